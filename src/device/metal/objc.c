/* objc.c: loading the Objective-C runtime and the frameworks, and sending messages. See objc.h. */
#include "device/metal/objc.h"

#include "platform/dynamic_library.h"
#include "platform/platform.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

an_objc an_mtl;

enum { MOST_LIBRARIES = 4 };
static void *libs[MOST_LIBRARIES]; /* never closed: images with Objective-C classes stay */
static an_err load_error;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A symbol of any of the libraries, as bytes of a function pointer: ISO C has no cast for it. */
bool an_objc_symbol(const char *name, void *to)
{
    for (size_t i = 0; i < AN_COUNT(libs); i++) {
        void *p = libs[i] ? an_dl_sym(libs[i], name) : NULL;
        if (!p) continue;
        memcpy(to, &p, sizeof p);
        return true;
    }
    return false;
}

static an_status open_libraries(an_err *err)
{
    const char *one = getenv("ANNEAL_METAL_PATH");
    if (one && *one) {
        libs[0] = an_dl_open(err, one);
        return libs[0] ? AN_OK : AN_E_ENV;
    }
#ifndef __APPLE__
    return an_fail(err, AN_E_ENV, "Metal is a part of macOS, and this is another system");
#else
    /* These files exist in the loader's shared cache only, not on disk. CoreGraphics must be loaded: without it a program
     * without windows gets no device. */
    static const char *const frameworks[MOST_LIBRARIES] = {
        "/usr/lib/libobjc.A.dylib", "/System/Library/Frameworks/Foundation.framework/Foundation",
        "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics",
        "/System/Library/Frameworks/Metal.framework/Metal"};
    for (size_t i = 0; i < AN_COUNT(frameworks); i++)
        if (!(libs[i] = an_dl_open(err, frameworks[i]))) return AN_E_ENV;
    return AN_OK;
#endif
}

static an_status find_symbols(an_err *err)
{
    an_sel (*register_name)(const char *) = NULL;
    const struct {
        const char *name;
        void *to;
    } wanted[] = {{"objc_msgSend", &an_mtl.send},
                  {"sel_registerName", &register_name},
                  {"objc_autoreleasePoolPush", &an_mtl.pool_push},
                  {"objc_autoreleasePoolPop", &an_mtl.pool_pop},
                  {"objc_retain", &an_mtl.retain},
                  {"objc_release", &an_mtl.release},
                  {"objc_getClass", &an_mtl.get_class},
                  {"MTLCreateSystemDefaultDevice", &an_mtl.create_device}};
    for (size_t i = 0; i < AN_COUNT(wanted); i++)
        if (!an_objc_symbol(wanted[i].name, wanted[i].to))
            return an_fail(err, AN_E_ENV, "the system's libraries have no %s; macOS 13 or newer is needed",
                           wanted[i].name);
#define X(name, owner, selector, result, args, encoding, need, since) selector,
    static const char *const names[] = {
#include "device/metal/selectors.def"
    };
#undef X
    for (int i = 0; i < AN_N_SELECTORS; i++) an_mtl.sel[i] = register_name(names[i] + (names[i][0] == '+'));
    return AN_OK;
}

/* Reads "14.5" from sysctl: NSProcessInfo returns a struct of 24 bytes, which needs another entry point on x86-64. */
static an_status find_version(an_err *err)
{
    int (*by_name)(const char *, void *, size_t *, void *, size_t) = NULL;
    char text[64] = "";
    size_t n = sizeof text - 1;
    int major = 0, minor = 0;
    if (!an_objc_symbol("sysctlbyname", &by_name) || by_name("kern.osproductversion", text, &n, NULL, 0) ||
        sscanf(text, "%d.%d", &major, &minor) < 1)
        return an_fail(err, AN_E_ENV, "the version of macOS cannot be read (sysctl kern.osproductversion)");
    an_mtl.macos = 100 * major + minor;
    if (an_mtl.macos < 1300)
        return an_fail(err, AN_E_ENV, "macOS %s is too old: 13 is the first with Metal 3; device=cpu works here", text);
    return AN_OK;
}

static void load_all(void)
{
    if (open_libraries(&load_error) == AN_OK) find_symbols(&load_error);
}

an_status an_objc_load(an_err *err)
{
    pthread_once(&once, load_all);
    return load_error.code == AN_OK ? find_version(err) : an_fail(err, load_error.code, "%s", load_error.text);
}

an_id an_objc_class(const char *name)
{
    return an_mtl.get_class(name);
}

an_id an_objc_new(const char *class_name)
{
    an_id class = an_objc_class(class_name);
    return class ? an_send0(object_new, class) : NULL;
}

an_id an_string(const char *utf8)
{
    return an_send(string_with_utf8, an_objc_class("NSString"), utf8);
}

void an_release(an_id object)
{
    if (object) an_mtl.release(object);
}

const char *an_utf8(an_id string)
{
    const char *s = string ? an_send0(string_utf8, string) : NULL;
    return s ? s : "";
}

an_status an_fail_ns(an_err *err, an_status code, an_id error, const char *what)
{
    if (!error) return an_fail(err, code, "metal: %s, and Metal says no more", what);
    return an_fail(err, code, "metal: %s: %.600s (%s %lld)", what, an_utf8(an_send0(error_description, error)),
                   an_utf8(an_send0(error_domain, error)), (long long)an_send0(error_code, error));
}

bool an_objc_mac_state(int *thermal, int *low_power)
{
    an_err quiet = {0};
    *thermal = *low_power = -1;
    if (an_objc_load(&quiet) != AN_OK) return false;
    void *pool = an_mtl.pool_push();
    an_id class = an_objc_class("NSProcessInfo"), info = class ? an_send0(process_info, class) : NULL;
    if (info && an_can(process_thermal, info)) *thermal = (int)an_send0(process_thermal, info);
    if (info && an_can(process_low_power, info)) *low_power = an_send0(process_low_power, info) != 0;
    an_mtl.pool_pop(pool);
    return true;
}

void *an_objc_awake_begin(void)
{
    const uint64_t idle_system_sleep_disabled = 1u << 20; /* NSActivityOptions */
    an_err quiet = {0};
    an_id token = NULL;
    if (an_objc_load(&quiet) != AN_OK) return NULL;
    void *pool = an_mtl.pool_push();
    an_id class = an_objc_class("NSProcessInfo"), info = class ? an_send0(process_info, class) : NULL;
    if (info && an_can(process_begin, info))
        token = an_send(process_begin, info, idle_system_sleep_disabled, an_string("training a model"));
    if (token) an_mtl.retain(token);
    an_mtl.pool_pop(pool);
    return token;
}

void an_objc_awake_end(void *token)
{
    if (!token) return;
    void *pool = an_mtl.pool_push();
    an_send(process_end, an_send0(process_info, an_objc_class("NSProcessInfo")), token);
    an_release(token);
    an_mtl.pool_pop(pool);
}
