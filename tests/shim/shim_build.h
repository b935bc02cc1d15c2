/* shim_build.h: shim_text.h for tests: a kernel that does not compile, or a run with a fault, ends the test; where MSL
 * cannot be run at all, the test is skipped with the reason. */
#ifndef AN_SHIM_BUILD_H
#define AN_SHIM_BUILD_H

#include "lib/test.h"
#include "shim_text.h"

/* Prints the command and its output when it fails; a compiler that is not there is 127. */
static inline int shim_command(const char *command, const char *log)
{
    static char why[16384];
    if (!shim_try(command, log, "failed", why, sizeof why)) return 0;
    print_message("%.4000s\n", why);
    return -1;
}

static inline void shim_need(void)
{
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
    test_skip("the shim needs ELF sections and its stack switch: Linux on x86-64 or arm64");
#endif
    static int there;
    char command[512];
    snprintf(command, sizeof command, "%s --version", shim_compiler());
    if (there || !shim_command(command, test_path("cxx.log"))) {
        there = 1;
        return;
    }
    test_skip("no C++ compiler (%s): MSL cannot be run here; set CXX", shim_compiler());
}

static inline shim_object shim_build(const char *text, int metal_version)
{
    static char why[16384];
    shim_object o;
    shim_need();
    if (shim_compile(&o, text, metal_version, test_folder(), why, sizeof why)) fail_msg("%.8000s", why);
    return o;
}

static inline shim_report shim_launch_kernel(shim_object o, const char *kernel, const shim_launch *l)
{
    return shim_call(&o, kernel, l);
}

static inline void shim_launch_clean(shim_object o, const char *kernel, const shim_launch *l)
{
    shim_report r = shim_call(&o, kernel, l);
    if (r.faults) fail_msg("%s: %ld faults; the first: %s", kernel, r.faults, r.first);
}

static inline void shim_unload(shim_object o)
{
    shim_close(&o);
}

#endif
