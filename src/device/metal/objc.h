/* objc.h: the Objective-C runtime and Metal from plain C: messages as typed calls, strings, autorelease pools, versions.
 *
 * Owns:      loading libobjc, Foundation, CoreGraphics and Metal at run time ($ANNEAL_METAL_PATH: one file in place of all
 *            of them, for tests), the table of selectors, the differences between the ABIs.
 * Does not:  know devices, buffers or plans.
 *
 * Rules of use:
 *   - An entry point of the backend pushes a pool and pops it on every return, last in, first out.
 *   - What `new...` returns is owned (an_release). Everything else lives until the pool is popped, unless it is retained.
 *   - A message to nil returns 0, so each object is checked where it is made.
 *   - No method with a result above 16 bytes is called: those need another entry point on x86-64.
 */
#ifndef AN_DEVICE_METAL_OBJC_H
#define AN_DEVICE_METAL_OBJC_H

#include "base/base.h"

typedef void *an_id;
typedef void *an_sel;
typedef void *an_handler; /* only ever NULL */
#if defined(__x86_64__)
typedef signed char an_bool; /* BOOL there; `bool` on arm64 */
#define AN_BOOL_LETTER 'c'
#else
typedef bool an_bool;
#define AN_BOOL_LETTER 'B'
#endif
typedef struct an_mtl_size {
    uint64_t x, y, z;
} an_mtl_size;

/* One function type and one number for each row of selectors.def. */
#define ARGS0                                                         (an_id, an_sel)
#define ARGS(...)                                                     (an_id, an_sel, __VA_ARGS__)
#define X(name, owner, selector, result, args, encoding, need, since) typedef result(*an_fn_##name) args;
#include "device/metal/selectors.def"
#undef X
#undef ARGS0
#undef ARGS
#define X(name, owner, selector, result, args, encoding, need, since) AN_SEL_##name,
enum an_selector_number {
#include "device/metal/selectors.def"
    AN_N_SELECTORS
};
#undef X

/* AN_MTLCommandBufferStatusError and so on. */
#define V(enumeration, name, value) AN_##name = (value),
enum an_mtl_value {
#include "device/metal/values.def"
};
#undef V

/* Types that are passed by value, or that Metal reads from memory, have the layout of Apple's headers. */
_Static_assert(sizeof(an_mtl_size) == 24 && offsetof(an_mtl_size, y) == 8 && offsetof(an_mtl_size, z) == 16,
               "MTLSize is three NSUInteger");
_Static_assert(sizeof(an_bool) == 1 && sizeof(void *) == 8 && sizeof(long) == 8, "BOOL is a byte, NSUInteger 64 bits");

typedef struct an_objc {
    void (*send)(void); /* objc_msgSend: only ever called through a type of selectors.def */
    an_sel sel[AN_N_SELECTORS];
    void *(*pool_push)(void);
    void (*pool_pop)(void *);
    an_id (*retain)(an_id);
    void (*release)(an_id);
    an_id (*get_class)(const char *);
    an_id (*create_device)(void);
    int macos; /* major * 100 + minor */
} an_objc;
extern an_objc an_mtl;

/* Sends the message `name` of selectors.def to `object`. */
#define an_send0(name, object)     (((an_fn_##name)an_mtl.send)((object), an_mtl.sel[AN_SEL_##name]))
#define an_send(name, object, ...) (((an_fn_##name)an_mtl.send)((object), an_mtl.sel[AN_SEL_##name], __VA_ARGS__))
/* Whether `object` has the method: for OPTIONAL ones. */
#define an_can(name, object) (an_send(object_responds, (object), an_mtl.sel[AN_SEL_##name]) != 0)

/* Loads everything, once in a process. AN_E_ENV and the reason where it is not available. */
an_status an_objc_load(an_err *err);

bool an_objc_symbol(const char *name, void *to); /* the address of a function, as bytes; false: there is none */
an_id an_objc_class(const char *name);           /* NULL: this macOS has none */
an_id an_objc_new(const char *class_name);       /* +1; NULL: no such class */
an_id an_string(const char *utf8);               /* lives until the pool is popped */
void an_release(an_id object);                   /* NULL is nothing */
const char *an_utf8(an_id string);               /* lives as long as the string; "" for nil */

/* Thermal state (0 to 3: NSProcessInfoThermalState) and low-power mode of this Mac; -1: unknown. False: not macOS. */
bool an_objc_mac_state(int *thermal, int *low_power);

/* Keeps this Mac from going to sleep when its user is idle (the display may sleep). A token for an_objc_awake_end;
 * NULL: not macOS, or it refused. */
void *an_objc_awake_begin(void);
void an_objc_awake_end(void *token);

/* Fails with `what` and the contents of the NSError (domain, code, description). */
an_status an_fail_ns(an_err *err, an_status code, an_id error, const char *what);

#endif
