/* nvrtc.h: NVRTC loaded at run time, for tests and benches: finds the library, compiles a text, says what ptxas said.
 */
#ifndef AN_NVRTC_H
#define AN_NVRTC_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVRTC_ABSENT "no NVRTC: install CUDA or the Python package nvidia-cuda-nvrtc, or set AN_NVRTC to the library"

typedef struct nvrtc {
    void *library;
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *text, const char *name, int headers, const char *const *texts,
                  const char *const *names);
    int (*compile)(void *program, int options, const char *const *option);
    int (*log_bytes)(void *program, size_t *out);
    int (*log)(void *program, char *out);
    int (*cubin_bytes)(void *program, size_t *out);
    int (*cubin)(void *program, char *out);
    int (*destroy)(void **program);
} nvrtc;

/* ISO C has no cast from void * to a function pointer; the bytes are the same. */
static inline int dl_symbol(void *library, const char *name, void *function)
{
    void *p = dlsym(library, name);
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

/* 0, or the reason why there is none in `why`. Looks at $AN_NVRTC, the loader's path, CUDA's usual place, and Python's
 * package. */
static inline int nvrtc_open(nvrtc *out, char *why, size_t room)
{
    static const char *const names[] = {"libnvrtc.so.13",
                                        "libnvrtc.so.12",
                                        "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const char *wanted = getenv("AN_NVRTC");
    memset(out, 0, sizeof *out);
    if (wanted) out->library = dlopen(wanted, RTLD_NOW);
    for (size_t i = 0; !wanted && !out->library && i < sizeof names / sizeof *names; i++)
        out->library = dlopen(names[i], RTLD_NOW);
    if (!out->library && !wanted) {
        char path[512] = "";
        FILE *python = popen("python3 -c 'import glob,sys; print(*[f for p in sys.path for f in glob.glob(p + "
                             "\"/nvidia/*/lib/libnvrtc.so*\")], "
                             "sep=chr(10))' 2>/dev/null",
                             "r");
        while (python && !out->library && fgets(path, sizeof path, python)) {
            path[strcspn(path, "\n")] = 0;
            if (*path) out->library = dlopen(path, RTLD_NOW);
        }
        if (python) pclose(python);
    }
    if (!out->library) {
        snprintf(why, room,
                 "libnvrtc not found (%s); install CUDA or the Python package nvidia-cuda-nvrtc, or set AN_NVRTC to "
                 "its path",
                 wanted ? wanted : "loader path, /usr/local/cuda, Python packages");
        return -1;
    }
    int all = dl_symbol(out->library, "nvrtcVersion", &out->version) &
              dl_symbol(out->library, "nvrtcCreateProgram", &out->create) &
              dl_symbol(out->library, "nvrtcCompileProgram", &out->compile) &
              dl_symbol(out->library, "nvrtcGetProgramLogSize", &out->log_bytes) &
              dl_symbol(out->library, "nvrtcGetProgramLog", &out->log) &
              dl_symbol(out->library, "nvrtcGetCUBINSize", &out->cubin_bytes) &
              dl_symbol(out->library, "nvrtcGetCUBIN", &out->cubin) &
              dl_symbol(out->library, "nvrtcDestroyProgram", &out->destroy);
    if (!all) snprintf(why, room, "libnvrtc lacks a function: %s", dlerror());
    return all ? 0 : -1;
}

/* Compiles `text`; *log always gets what the compiler and ptxas printed. The cubin and its size, or NULL. free() both. */
static inline char *nvrtc_run(const nvrtc *n, const char *text, const char *name, const char *const *options,
                              int n_options, size_t *bytes, char **log)
{
    void *program = NULL;
    size_t n_log = 0;
    char *cubin = NULL;
    if (n->create(&program, text, name, 0, NULL, NULL)) return NULL;
    int failed = n->compile(program, n_options, options);
    n->log_bytes(program, &n_log);
    *log = calloc(n_log + 1, 1);
    if (*log) n->log(program, *log);
    if (!failed && !n->cubin_bytes(program, bytes) && *bytes && (cubin = malloc(*bytes))) n->cubin(program, cubin);
    n->destroy(&program);
    return cubin;
}
/* For `arch` ("sm_90a"), with what ptxas says of registers. fmad 0: no contraction. */
static inline char *nvrtc_cubin_for(const nvrtc *n, const char *text, const char *name, const char *arch, int fmad,
                                    char **log)
{
    char target[64];
    size_t bytes;
    snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
    const char *const options[] = {target, "--std=c++17", fmad ? "--fmad=true" : "--fmad=false", "--ptxas-options=-v"};
    return nvrtc_run(n, text, name, options, sizeof options / sizeof *options, &bytes, log);
}
static inline char *nvrtc_cubin(const nvrtc *n, const char *text, const char *name, int arch, int fmad, char **log)
{
    char target[16];
    snprintf(target, sizeof target, "sm_%d", arch);
    return nvrtc_cubin_for(n, text, name, target, fmad, log);
}

#endif
