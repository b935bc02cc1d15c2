/* cpu_internal.h: what the files of the CPU backend share.
 *     cpu.c           the backend: memory, and the steps of a plan on a thread pool
 *     choose_isa.c    the instruction set that a device takes, by its measured rate
 *     compile.c       loop kernels by the system's C compiler, kept in the cache folder
 *     interpreter.c   loop kernels without a compiler: the same bits, slower
 *     library_calls.c library calls: running sums, sorting, scattering
 *     pool_max_grad.c library call: the gradient of max pooling
 *     linalg.c        library calls: factorisations and linear systems */
#ifndef AN_DEVICE_CPU_CPU_INTERNAL_H
#define AN_DEVICE_CPU_CPU_INTERNAL_H

#include "kernels/cpu_kernels.h"
#include "device/device.h"

/* The set that a device takes which is not told one, measured once a process. */
const an_cpu_kernels *an_isa_taken(void);
/* Of sets by their rates, the first that is near the fastest. */
int an_isa_choose(const double *gflops, int n);
const char *an_isa_as(const char *began);
void an_isa_rates(an_isa_rate_fn *tell, void *user);

/* A compiled loop kernel: computes the rows and columns of the tile. */
typedef void (*an_loop_fn)(const an_tile *t, void *const *arg);

typedef struct an_compiler {
    char path[512];      /* empty: none, loop kernels are interpreted */
    char why[256];       /* when there is none */
    char cache_dir[900]; /* empty: no cache folder could be used, see why_cache */
    char why_cache[512];
    const char *isa_flags;
    uint64_t
        compiler_key; /* hash of the compiler's path, time and size, the flags and the prelude: part of every cache key */
    double timeout_s;
} an_compiler;

/* Whether `compiler` is one of the programs beside `xcode_select` that only offer to install a compiler. */
bool an_compiler_is_stub(const char *compiler, const char *xcode_select);
/* Finds the compiler and the cache folder; never fails: `why` and `why_cache` explain what is missing. */
void an_compiler_find(an_compiler *c, const an_device_options *o, const char *isa);

typedef struct an_library { /* a loaded shared object */
    void *handle;
    struct an_library *next;
} an_library;

/* Looks up every distinct kernel of the plan in the cache, compiles the missing ones together, and fills fn[kernel]
 * (NULL: interpret). A failing compiler is no error: the kernels are interpreted and stats->note says so. */
an_status an_compile_plan(an_err *err, const an_compiler *c, int jobs, const an_plan *p, an_loop_fn *fn,
                          an_library **libs, an_load_stats *stats);

/* Runs a loop kernel without compiled code: the same bits, slower. */
size_t an_interp_scratch(const an_loop_kernel *p);
void an_interp_run(const an_loop_kernel *p, const an_tile *t, void *const *arg, void *scratch);

/* Library calls: ops with a loop inside; batches run in parallel. */
size_t an_call_scratch(const an_library_call_spec *s, const an_cpu_kernels *kernels, int threads);
an_status an_call_run(an_err *err, const an_library_call_spec *s, void *const *arg, void *scratch,
                      const an_cpu_kernels *kernels, an_pool *pool);

#endif
