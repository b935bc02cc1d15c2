/* core.h: inside the stand-in: objects, classes, ownership, pools, misuse.
 *
 * Owns:      what an object is; who owns it; which methods exist in the simulated macOS.
 * Does not:  know Metal. device.c, library.c, command.c and execute.c do.
 * Invariants: an object's header is never reused while another slot is free, so a stale pointer is known as such. The
 * host's references (`owned`, of which pools hold `pooled`) are counted apart from the stand-in's own (`held`): a
 * release of what the host does not own is found at that release. One lock guards all state; kernels run under it. */
#ifndef STANDIN_CORE_H
#define STANDIN_CORE_H

#include "standin.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct object *id;
typedef const struct selector *SEL;
typedef signed char BOOL; /* as on x86-64; on arm64 the same register */
typedef void (*imp)(void);

typedef struct MTLSize {
    uint64_t width, height, depth;
} MTLSize;
typedef struct NSRange {
    uint64_t location, length;
} NSRange;

enum { MADE_AT = 12 };
typedef struct class_row {
    const char *name, *owners; /* owners: protocols and classes whose rows it has, between spaces */
    size_t body_bytes;
    void (*dealloc)(void *body);
    int since; /* of a class that objc_getClass finds; 0: any macOS; -1: not found by name */
} class_row;

typedef struct object {
    const struct class *isa;
    uint32_t magic;
    int32_t owned, pooled, held;
    bool is_class, lent; /* lent: a getter gave it out, so that the host may use it without owning it */
    void *body;
    const char *made_by;
    void *made_at[MADE_AT];
    int n_made_at;
} object;

typedef struct method_row {
    const char *owner, *selector;
    imp fn;
} method_row;
#define METHOD_OF(fn) ((imp)(fn))

/* Each file's tables; core.c gathers them. */
typedef struct module {
    const class_row *classes;
    int n_classes;
    const method_row *methods;
    int n_methods;
    void (*reset)(void); /* the simulation starts anew */
} module;
extern const module foundation_module, device_module, library_module, command_module, execute_module, indirect_module;
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* ---- the state of the simulation */
void world_lock(void);
void world_unlock(void);
standin_counts *counts(void);
/* Reports a misuse when the current message has been handled; ends the program unless misuse=record. */
void misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- objects */
id object_new(const char *class_name); /* owned once by the caller; the body is zero */
id object_pooled(const char *class_name);
void *object_body(id o);
const char *object_class(const object *o);
bool object_is(id o, const char *class_name);
bool object_alive(id o);
id object_retain(id o);
void object_release(id o);
id object_autorelease(id o);
void object_hold(id o); /* the stand-in's own reference; NULL is nothing */
id object_lend(id o);   /* +0, kept alive by what it was asked of */
void object_drop(id o);
/* For an argument: a misuse unless it is an alive object of that class; the body, or NULL. */
void *argument(id o, const char *class_name, const char *what);

/* The body of `self` as a TYPE. */
#define SELF(type, name) type *name = object_body(self)

/* Two methods and a field: for descriptors. */
#define PROPERTY(body, type, field, getter, setter)                                                                    \
    static type getter(id self, SEL cmd)                                                                               \
    {                                                                                                                  \
        (void)cmd;                                                                                                     \
        SELF(body, b);                                                                                                 \
        return b->field;                                                                                               \
    }                                                                                                                  \
    static void setter(id self, SEL cmd, type value)                                                                   \
    {                                                                                                                  \
        (void)cmd;                                                                                                     \
        SELF(body, b);                                                                                                 \
        b->field = value;                                                                                              \
    }
#define OBJECT_PROPERTY(body, field, getter, setter)                                                                   \
    static id getter(id self, SEL cmd)                                                                                 \
    {                                                                                                                  \
        (void)cmd;                                                                                                     \
        SELF(body, b);                                                                                                 \
        return object_lend(b->field);                                                                                  \
    }                                                                                                                  \
    static void setter(id self, SEL cmd, id value)                                                                     \
    {                                                                                                                  \
        (void)cmd;                                                                                                     \
        SELF(body, b);                                                                                                 \
        object_hold(value);                                                                                            \
        object_drop(b->field);                                                                                         \
        b->field = value;                                                                                              \
    }

/* ---- Foundation, for the rest */
id string_new(const char *text); /* owned once */
id string_pooled(const char *text);
const char *string_text(id string);
id array_new(const id *item, int n);
id error_new(const char *domain, int64_t code, const char *description, id key, id value);
id error_pooled(const char *domain, int64_t code, const char *description, id key, id value);
BOOL bool_argument(BOOL value);

#endif
