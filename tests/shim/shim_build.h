/* shim_build.h: MSL text to something that runs here: compiles it with the C++ compiler against msl/ and the runtime,
 * loads it, and finds its kernels. Skips the test, with the reason, where that cannot be done. */
#ifndef AN_SHIM_BUILD_H
#define AN_SHIM_BUILD_H

#include "lib/test.h"
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shim_object {
    void *handle;
} shim_object;

/* Prints the command and its output when it fails; a compiler that is not there is 127. */
static inline int shim_command(const char *command, const char *log)
{
    char line[4096];
    snprintf(line, sizeof line, "%s >%s 2>&1", command, log);
    int status = system(line);
    if (status == 0) return 0;
    print_message("%s\n", command);
    FILE *f = fopen(log, "r");
    for (int n = 0; f && n < 40 && fgets(line, sizeof line, f); n++) print_message("%s", line);
    if (f) fclose(f);
    return status;
}

static inline const char *shim_compiler(void)
{
    return getenv("CXX") ? getenv("CXX") : "c++";
}

/* `kernels`: names between spaces. metal_version: 300, 310, ... */
static inline shim_object shim_build(const char *text, const char *kernels, int metal_version)
{
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
    print_message("the shim needs ELF sections and its stack switch: Linux on x86-64 or arm64\n");
    skip();
#endif
    static int number;
    char name[64], command[2048], list[256], source[256], kernel_o[256], runtime_o[256], so[256], log[256];
    snprintf(command, sizeof command, "%s --version", shim_compiler());
    if (shim_command(command, test_path("cxx.log"))) {
        print_message("no C++ compiler (%s): MSL cannot be run here; set CXX\n", shim_compiler());
        skip();
    }
    number++;
    snprintf(name, sizeof name, "k%d.metal", number), snprintf(source, sizeof source, "%s", test_path(name));
    snprintf(name, sizeof name, "k%d.o", number), snprintf(kernel_o, sizeof kernel_o, "%s", test_path(name));
    snprintf(name, sizeof name, "r%d.o", number), snprintf(runtime_o, sizeof runtime_o, "%s", test_path(name));
    snprintf(name, sizeof name, "k%d.so", number), snprintf(so, sizeof so, "%s", test_path(name));
    snprintf(log, sizeof log, "%s", test_path("build.log"));

    FILE *f = fopen(source, "w");
    assert_non_null(f);
    fputs(text, f);
    snprintf(list, sizeof list, "%s", kernels);
    for (char *k = strtok(list, " "); k; k = strtok(NULL, " ")) fprintf(f, "\nSHIM_EXPORT(%s)", k);
    fputs("\n", f);
    fclose(f);

    snprintf(
        command, sizeof command,
        "%s -x c++ -std=c++14 -O1 -fPIC -fsanitize=thread -ffp-contract=off -fno-strict-aliasing -fno-exceptions -w "
        "-D__METAL_VERSION__=%d -Itests/shim/msl -Itests/shim -c %s -o %s",
        shim_compiler(), metal_version, source, kernel_o);
    if (shim_command(command, log)) fail_msg("the kernel does not compile");
    snprintf(command, sizeof command, "%s -std=c17 -O2 -fPIC -Itests/shim -c tests/shim/shim.c -o %s",
             getenv("CC") ? getenv("CC") : "cc", runtime_o);
    if (shim_command(command, log)) fail_msg("the runtime does not compile");
    snprintf(command, sizeof command, "%s -shared -Wl,-Bsymbolic -o %s %s %s", shim_compiler(), so, kernel_o,
             runtime_o);
    if (shim_command(command, log)) fail_msg("the kernel does not link");
    void *handle = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_msg("%s", dlerror());
    return (shim_object){handle};
}

/* Runs a kernel; what the runtime found comes back. */
static inline shim_report shim_launch_kernel(shim_object o, const char *kernel, const shim_launch *l)
{
    char name[64];
    snprintf(name, sizeof name, "shim_%s", kernel);
    shim_entry entry;
    void *p = dlsym(o.handle, name);
    assert_non_null(p);
    memcpy(&entry, &p, sizeof entry);
    shim_report report;
    entry(l, &report);
    return report;
}

static inline void shim_launch_clean(shim_object o, const char *kernel, const shim_launch *l)
{
    shim_report r = shim_launch_kernel(o, kernel, l);
    if (r.faults) fail_msg("%s: %ld faults; the first: %s", kernel, r.faults, r.first);
}

static inline void shim_unload(shim_object o)
{
    dlclose(o.handle);
}

#endif
