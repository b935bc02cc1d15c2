/* call.h: Metal from C, for tests of the stand-in: each message through a cast of objc_msgSend. Not the backend's: that
 * has its own, so that the two cannot be wrong together. */
#ifndef STANDIN_CALL_H
#define STANDIN_CALL_H

#include "load.h"

typedef void *object;
typedef struct size3 {
    uint64_t width, height, depth;
} size3;
typedef struct range {
    uint64_t location, length;
} range;

typedef void (*function)(void);
static inline function message(void)
{
    static function send;
    if (!send) standin_find("objc_msgSend", &send, sizeof send);
    return send;
}
static inline const void *selector(const char *name)
{
    static const void *(*find)(const char *);
    if (!find) standin_find("sel_registerName", &find, sizeof find);
    return find(name);
}
static inline object class_of_name(const char *name)
{
    static object (*find)(const char *);
    if (!find) standin_find("objc_getClass", &find, sizeof find);
    return find(name);
}

/* SEND(result, (types), object, "selector", arguments...): types are those after self and _cmd. */
#define UNPACK(...)            __VA_ARGS__
#define SEND0(result, o, name) (((result(*)(object, const void *))message())(o, selector(name)))
#define SEND(result, types, o, name, ...)                                                                              \
    (((result(*)(object, const void *, UNPACK types))message())(o, selector(name), __VA_ARGS__))

static inline object text_of(const char *text) /* in the pool */
{
    return SEND(object, (const char *), class_of_name("NSString"), "stringWithUTF8String:", text);
}
static inline const char *letters_of(object string)
{
    return SEND0(const char *, string, "UTF8String");
}
static inline void release(object o)
{
    SEND0(void, o, "release");
}
static inline void *pool_push(void)
{
    static void *(*push)(void);
    if (!push) standin_find("objc_autoreleasePoolPush", &push, sizeof push);
    return push();
}
static inline void pool_pop(void *token)
{
    static void (*pop)(void *);
    if (!pop) standin_find("objc_autoreleasePoolPop", &pop, sizeof pop);
    pop(token);
}

static inline object device(void)
{
    static object (*make)(void);
    if (!make) standin_find("MTLCreateSystemDefaultDevice", &make, sizeof make);
    return make();
}
static inline object new_buffer(object d, uint64_t bytes)
{
    return SEND(object, (uint64_t, uint64_t), d, "newBufferWithLength:options:", bytes, 0);
}
/* A pipeline of `kernel` in `text`, or fails. The language is MSL 3.0, math is safe. */
static inline object new_library(object d, const char *text, object *error)
{
    object options = SEND0(object, class_of_name("MTLCompileOptions"), "new");
    SEND(void, (uint64_t), options, "setLanguageVersion:", 0x30000);
    SEND(void, (signed char), options, "setFastMathEnabled:", 0);
    object library = SEND(object, (object, object, object *), d, "newLibraryWithSource:options:error:", text_of(text),
                          options, error);
    release(options);
    return library;
}
static inline object new_pipeline(object d, const char *text, const char *kernel)
{
    object error = NULL, library = new_library(d, text, &error);
    if (!library) fail_msg("%s", letters_of(SEND0(object, error, "localizedDescription")));
    object f = SEND(object, (object), library, "newFunctionWithName:", text_of(kernel));
    assert_non_null(f);
    object p = SEND(object, (object, object *), d, "newComputePipelineStateWithFunction:error:", f, &error);
    if (!p) fail_msg("%s", letters_of(SEND0(object, error, "localizedDescription")));
    release(f), release(library);
    return p;
}
static inline void set_buffer(object encoder, object buffer, uint64_t offset, uint64_t index)
{
    SEND(void, (object, uint64_t, uint64_t), encoder, "setBuffer:offset:atIndex:", buffer, offset, index);
}
static inline void set_bytes(object encoder, const void *bytes, uint64_t n, uint64_t index)
{
    SEND(void, (const void *, uint64_t, uint64_t), encoder, "setBytes:length:atIndex:", bytes, n, index);
}
static inline void dispatch(object encoder, uint64_t groups, uint64_t threads)
{
    SEND(void, (size3, size3), encoder, "dispatchThreadgroups:threadsPerThreadgroup:", ((size3){groups, 1, 1}),
         ((size3){threads, 1, 1}));
}

#endif
