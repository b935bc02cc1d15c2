/* load.h: builds the stand-in for a test, loads it, and points ANNEAL_METAL_PATH at it. Skips the test, with the
 * reason, where that cannot be done. */
#ifndef STANDIN_LOAD_H
#define STANDIN_LOAD_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* setenv */
#endif

#include "lib/test.h"
#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void *standin_handle(void)
{
    static void *handle;
    if (handle) return handle;
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
    test_skip("the Metal stand-in needs Linux on x86-64 or arm64");
#endif
    if (system("c++ --version >/dev/null 2>&1")) {
        test_skip("no C++ compiler (c++): the Metal stand-in cannot run kernels");
    }
    const char *build = getenv("AN_BUILD") ? getenv("AN_BUILD") : "build";
    char command[1024], path[600];
#if defined(__aarch64__)
    const char *processor = "aarch64";
#else
    const char *processor = "x86_64";
#endif
    snprintf(command, sizeof command, "sh tests/metal/standin/build.sh '%s/standin' %s", build, processor);
    if (system(command)) fail_msg("the Metal stand-in does not build");
    snprintf(path, sizeof path, "%s/standin/libmetal_standin.so", build);
    char *whole = realpath(path, NULL); /* for programs that run elsewhere */
    handle = whole ? dlopen(whole, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!handle) fail_msg("%s: %s", path, dlerror());
    setenv("ANNEAL_METAL_PATH", whole, 1);
    free(whole);
    return handle;
}

/* A function of it. */
static inline void standin_find(const char *name, void *out, size_t bytes)
{
    void *p = dlsym(standin_handle(), name);
    if (!p) fail_msg("the stand-in has no %s", name);
    memcpy(out, &p, bytes);
}

/* Its interface for tests, freshly configured with these settings. */
static inline const standin_api *standin_load(const char *settings)
{
    const standin_api *(*standin_function)(void);
    standin_find("standin", &standin_function, sizeof standin_function);
    const standin_api *api = standin_function();
    const char *wrong = api->configure(settings);
    if (wrong) fail_msg("%s: %s", settings, wrong);
    return api;
}

#endif
