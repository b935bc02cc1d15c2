/* cuda_host.h: the CUDA driver loaded at run time, as little of it as a bench needs: one device, memory, kernels from
 * text, a clock. Every failure ends the program with a sentence. */
#ifndef AN_CUDA_HOST_H
#define AN_CUDA_HOST_H

#include "shim/nvrtc.h"

#include <stdarg.h>
#include <stdint.h>

typedef uint64_t cuda_pointer;

static struct {
    nvrtc compiler;
    int arch;
    int (*init)(unsigned), (*device_get)(int *, int), (*attribute)(int *, int, int), (*name)(char *, int, int);
    int (*retain)(void **, int), (*set_current)(void *), (*synchronize)(void);
    int (*alloc)(cuda_pointer *, size_t), (*release)(cuda_pointer), (*to_device)(cuda_pointer, const void *, size_t);
    int (*to_host)(void *, cuda_pointer, size_t), (*set8)(cuda_pointer, unsigned char, size_t);
    int (*load)(void **, const void *), (*function)(void **, void *, const char *),
        (*function_attribute)(int *, int, void *), (*function_set)(void *, int, int);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **);
    int (*event_create)(void **, unsigned), (*event_record)(void *, void *), (*event_synchronize)(void *),
        (*event_elapsed)(float *, void *, void *);
    int (*error_name)(int, const char **);
} cuda;

__attribute__((format(printf, 1, 2), noreturn)) static inline void cuda_die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static inline void cuda_check(int status, const char *what)
{
    const char *name = "?";
    if (status && cuda.error_name) cuda.error_name(status, &name);
    if (status) cuda_die("%s: CUDA error %d (%s)", what, status, name);
}

static inline void cuda_begin(void)
{
    char why[512], name[128] = "";
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int device, major, minor;
    if (!driver) cuda_die("libcuda.so.1 not found: no NVIDIA driver here");
    if (nvrtc_open(&cuda.compiler, why, sizeof why)) cuda_die("%s", why);
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"cuInit", &cuda.init},
        {"cuDeviceGet", &cuda.device_get},
        {"cuDeviceGetAttribute", &cuda.attribute},
        {"cuDeviceGetName", &cuda.name},
        {"cuDevicePrimaryCtxRetain", &cuda.retain},
        {"cuCtxSetCurrent", &cuda.set_current},
        {"cuCtxSynchronize", &cuda.synchronize},
        {"cuMemAlloc_v2", &cuda.alloc},
        {"cuMemFree_v2", &cuda.release},
        {"cuMemcpyHtoD_v2", &cuda.to_device},
        {"cuMemcpyDtoH_v2", &cuda.to_host},
        {"cuMemsetD8_v2", &cuda.set8},
        {"cuModuleLoadData", &cuda.load},
        {"cuModuleGetFunction", &cuda.function},
        {"cuFuncGetAttribute", &cuda.function_attribute},
        {"cuFuncSetAttribute", &cuda.function_set},
        {"cuLaunchKernel", &cuda.launch},
        {"cuEventCreate", &cuda.event_create},
        {"cuEventRecord", &cuda.event_record},
        {"cuEventSynchronize", &cuda.event_synchronize},
        {"cuEventElapsedTime", &cuda.event_elapsed},
        {"cuGetErrorName", &cuda.error_name},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!dl_symbol(driver, symbols[i].name, symbols[i].function))
            cuda_die("libcuda.so.1 has no %s", symbols[i].name);
    cuda_check(cuda.init(0), "cuInit");
    cuda_check(cuda.device_get(&device, 0), "cuDeviceGet");
    cuda.attribute(&major, 75, device), cuda.attribute(&minor, 76, device); /* compute capability */
    cuda.arch = major * 10 + minor;
    cuda_check(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda_check(cuda.set_current(context), "cuCtxSetCurrent");
    cuda.name(name, sizeof name, device);
    printf("# %s, sm_%d\n", name, cuda.arch);
}

/* own: for this generation alone ("sm_90a"), with what later ones need not have. */
static inline void *cuda_module(const char *text, const char *name, int fmad, int own)
{
    char target[32];
    snprintf(target, sizeof target, "sm_%d%s", cuda.arch, own ? "a" : "");
    char *log = NULL, *cubin = nvrtc_cubin_for(&cuda.compiler, text, name, target, fmad, &log);
    void *module;
    if (!cubin) cuda_die("%s does not compile:\n%s", name, log ? log : "");
    cuda_check(cuda.load(&module, cubin), "cuModuleLoadData");
    free(cubin), free(log);
    return module;
}

static inline void *cuda_kernel(void *module, const char *name)
{
    void *f;
    cuda_check(cuda.function(&f, module, name), name);
    return f;
}

static inline cuda_pointer cuda_new(size_t bytes, const void *from)
{
    cuda_pointer p;
    cuda_check(cuda.alloc(&p, bytes), "cuMemAlloc");
    cuda_check(from ? cuda.to_device(p, from, bytes) : cuda.set8(p, 0xff, bytes), "filling memory");
    return p;
}

static inline void cuda_run(void *kernel, unsigned x, unsigned y, unsigned z, unsigned threads, void **args)
{
    cuda_check(cuda.launch(kernel, x, y, z, threads, 1, 1, 0, NULL, args, NULL), "cuLaunchKernel");
}

/* Groups in a line, with shared memory that is asked for at launch. */
static inline void cuda_run_shared(void *kernel, unsigned groups, unsigned threads, unsigned shared, void **args)
{
    enum { MOST_DYNAMIC_SHARED = 8 }; /* CUfunction_attribute */
    cuda_check(cuda.function_set(kernel, MOST_DYNAMIC_SHARED, (int)shared), "cuFuncSetAttribute");
    cuda_check(cuda.launch(kernel, groups, 1, 1, threads, 1, 1, shared, NULL, args, NULL), "cuLaunchKernel");
}

/* cuda_clock(0) starts the stopwatch; cuda_clock(1) waits and gives milliseconds. */
static inline float cuda_clock(int stop)
{
    static void *events[2];
    float ms = 0;
    if (!events[0]) cuda.event_create(&events[0], 0), cuda.event_create(&events[1], 0);
    cuda_check(cuda.event_record(events[stop], NULL), "cuEventRecord");
    if (!stop) return 0;
    cuda_check(cuda.event_synchronize(events[1]), "waiting");
    cuda_check(cuda.event_elapsed(&ms, events[0], events[1]), "cuEventElapsedTime");
    return ms;
}

#endif
