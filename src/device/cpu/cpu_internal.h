/* cpu_internal.h: shared by cpu.c (the backend), compile.c (row programs through the system's compiler), interpreter.c
 * (without one) and loop_ops.c. */
#ifndef AN_DEVICE_CPU_CPU_INTERNAL_H
#define AN_DEVICE_CPU_CPU_INTERNAL_H

#include "kernels/cpu_kernels.h"
#include "device/device.h"

/* A row program made runnable: covers the tile's rows and columns. */
typedef void (*an_row_fn)(const an_tile *t, void *const *arg);

typedef struct an_compiler {
    char path[512];      /* empty: none, row programs are interpreted */
    char why[256];       /* when there is none */
    char cache_dir[900]; /* empty: no cache folder could be used, see why_cache */
    char why_cache[512];
    const char *isa_flags;
    uint64_t identity; /* of the compiler's file and our flags: part of every key */
    double timeout_s;
} an_compiler;

/* Finds the compiler and the cache folder; never fails: what is missing is explained in `why`. */
void an_compiler_find(an_compiler *c, const an_device_options *o, const char *isa);

typedef struct an_library { /* a loaded shared object */
    void *handle;
    struct an_library *next;
} an_library;

/* Looks every distinct program of the plan up in the cache, compiles what is missing in one go, and fills fn[kernel]
 * (NULL: interpret). A failing compiler is no error: the programs are interpreted and stats->note says so. */
an_status an_compile_plan(an_err *err, const an_compiler *c, int jobs, const an_plan *p, an_row_fn *fn,
                          an_library **libs, an_load_stats *stats);

/* Runs a row program without compiled code: the same bits, slower. */
size_t an_interp_scratch(const an_loop_kernel *p);
void an_interp_run(const an_loop_kernel *p, const an_tile *t, void *const *arg, void *scratch);

/* Ops with a loop inside; batches in parallel. */
size_t an_call_scratch(const an_library_call_spec *s, int threads);
an_status an_call_run(an_err *err, const an_library_call_spec *s, void *const *arg, void *scratch, an_pool *pool);

#endif
