/* proxy_cuda.c: a libcuda.so.1 in front of the real one, for tests/cuda/on_gpu.sh: hands every call on, counts what is
 * allocated, and gives one kernel a pointer to nowhere. x86-64: a call is handed on by a jump, whatever its arguments.
 *
 * Environment: PROXY_DRIVER  path of the real library (without it: libcuda.so.1 by name)
 *              PROXY_FAULT   N: the Nth launch's first parameter becomes an address that nothing lives at */
#define _GNU_SOURCE
#include "device/cuda/driver.h"
#include "codegen/gpu_step.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(name, symbol, arguments) at_##name,
enum { AN_CUDA_DRIVER(COUNT) n_functions };
#define NAME(name, symbol, arguments) symbol,
static const char *const names[] = {AN_CUDA_DRIVER(NAME)};

/* Where each jumps to; hidden, so that the jumps need no relocation of their own. */
#define TARGET(name, symbol, arguments) __attribute__((visibility("hidden"))) void *proxy_##name;
AN_CUDA_DRIVER(TARGET)
#define PLACE(name, symbol, arguments) &proxy_##name,
static void **const place[] = {AN_CUDA_DRIVER(PLACE)};
#define JUMP(name, symbol, arguments)                                                                                  \
    __asm__(".globl " symbol "\n.type " symbol ",@function\n" symbol ":\n\tjmp *proxy_" #name "(%rip)\n");
AN_CUDA_DRIVER(JUMP)

static struct {
    pthread_mutex_t lock;
    size_t now, most;
    struct {
        cu_pointer p;
        size_t n;
    } block[4096];
    int n_blocks;
    long launches;
    AN_CUDA_DRIVER(AN_CUDA_FIELD)
} real = {.lock = PTHREAD_MUTEX_INITIALIZER};

static cu_result memory_new(cu_pointer *out, size_t bytes)
{
    cu_result r = real.memory_new(out, bytes);
    pthread_mutex_lock(&real.lock);
    if (!r && real.n_blocks < 4096) {
        real.block[real.n_blocks].p = *out;
        real.block[real.n_blocks++].n = bytes;
        real.now += bytes;
        if (real.now > real.most) real.most = real.now;
    }
    pthread_mutex_unlock(&real.lock);
    return r;
}

static cu_result memory_free(cu_pointer p)
{
    pthread_mutex_lock(&real.lock);
    for (int i = 0; i < real.n_blocks; i++)
        if (real.block[i].p == p) {
            real.now -= real.block[i].n;
            real.block[i] = real.block[--real.n_blocks];
            break;
        }
    pthread_mutex_unlock(&real.lock);
    return real.memory_free(p);
}

/* The parameters of a launch; of the Nth, with the first replaced. */
static void **given(void **params, void **own)
{
    static cu_pointer nowhere = 0x1000;
    const char *nth = getenv("PROXY_FAULT");
    if (!nth || ++real.launches != strtol(nth, NULL, 10)) return params;
    memcpy(own, params, AN_GPU_BINDS * sizeof *own); /* the caller's array is as long */
    own[0] = &nowhere;                               /* kernels read their first parameter */
    fprintf(stderr, "# a kernel is given an address that nothing lives at\n");
    return own;
}
static cu_result launch(cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, cu_stream s, void **params, void **extra)
{
    void *own[AN_GPU_BINDS];
    return real.launch(f, gx, gy, gz, bx, by, bz, shared, s, given(params, own), extra);
}
static cu_result launch_with(const cu_launch_config *c, cu_function f, void **params, void **extra)
{
    void *own[AN_GPU_BINDS];
    return real.launch_with(c, f, given(params, own), extra);
}

/* As the stand-in has it: bytes given out now, and at most since this was asked last. */
__attribute__((visibility("default"))) void fake_bytes(size_t *now, size_t *most);
void fake_bytes(size_t *now, size_t *most)
{
    pthread_mutex_lock(&real.lock);
    *now = real.now;
    *most = real.most;
    real.most = real.now;
    pthread_mutex_unlock(&real.lock);
}

__attribute__((constructor)) static void find(void)
{
    const char *path = getenv("PROXY_DRIVER");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "the driver's proxy finds no driver: %s\n", dlerror());
        return;
    }
    for (int i = 0; i < n_functions; i++) *place[i] = dlsym(library, names[i]);
    memcpy(&real.memory_new, &proxy_memory_new, sizeof real.memory_new);
    memcpy(&real.memory_free, &proxy_memory_free, sizeof real.memory_free);
    memcpy(&real.launch, &proxy_launch, sizeof real.launch);
    memcpy(&real.launch_with, &proxy_launch_with, sizeof real.launch_with);
    cu_result (*const own_new)(cu_pointer *, size_t) = memory_new;
    cu_result (*const own_free)(cu_pointer) = memory_free;
    cu_result (*const own_launch)(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  cu_stream, void **, void **) = launch;
    cu_result (*const own_launch_with)(const cu_launch_config *, cu_function, void **, void **) = launch_with;
    memcpy(&proxy_memory_new, &own_new, sizeof own_new);
    memcpy(&proxy_memory_free, &own_free, sizeof own_free);
    memcpy(&proxy_launch, &own_launch, sizeof own_launch);
    memcpy(&proxy_launch_with, &own_launch_with, sizeof own_launch_with);
}
