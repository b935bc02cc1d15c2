/* gpu_launch.h: a step of a plan as launches on a GPU (entry, grid, threads, what each buffer is), and the functions
 * that fill such a record in. A leaf: it knows neither templates nor tiles.
 *
 * Does not:  know a driver or an address. Which launches a step needs is gpu_step.c's and gpu_library_calls.c's; the grid
 *            of a generated loop kernel is an_render_gpu_launch's (render_gpu.c), that of a template gpu_step.c's.
 * Invariants: launches are in order and each sees what the ones before it have written; none has an empty grid; all of
 * it is a pure function of the step, so that a captured plan may be replayed.
 */
#ifndef AN_CODEGEN_GPU_LAUNCH_H
#define AN_CODEGEN_GPU_LAUNCH_H

#include "ir/plan.h"

typedef int64_t an_i64; /* the names that the argument structs, shared by C and kernels, are written with */
typedef uint32_t an_u32;
#include "kernels/gpu/attn_args.h"
#include "kernels/gpu/library_call_args.h"
#include "kernels/gpu/gemm_args.h"
#include "kernels/gpu/scatter_args.h"

typedef enum an_bind_kind {
    AN_BIND_ARG,     /* argument `arg` of the step */
    AN_BIND_SCRATCH, /* the step's scratch, from byte `offset` on */
    AN_BIND_PARAMS,  /* an_gpu_step.params: by value in CUDA, a constant buffer in Metal */
    AN_BIND_ANY      /* never read: any valid address */
} an_bind_kind;

typedef struct an_gpu_binding { /* in the order of the kernel's parameters */
    uint8_t kind, index;        /* index: Metal's buffer number */
    int16_t arg;
    int64_t offset;
} an_gpu_binding;

enum { AN_GPU_BINDS = AN_LOOP_ARGS + 5, AN_GPU_LAUNCHES = 5 };

typedef struct an_gpu_launch {
    const char *entry; /* NULL: the name that the loop kernel was rendered with */
    uint32_t blocks[3], threads;
    uint32_t shared_bytes; /* CUDA: dynamic shared memory, on top of what the text declares */
    int n_binds;
    an_gpu_binding bind[AN_GPU_BINDS];
} an_gpu_launch;

typedef struct an_gpu_step {
    int n_launches; /* 0: an empty tensor, nothing to do */
    an_gpu_launch launch[AN_GPU_LAUNCHES];
    size_t params_bytes;
    union {
        struct an_gemm_args gemm;
        struct an_attn_args attn;
        struct an_scatter_args scatter;
        struct an_call_args call;
        struct an_grouped_args grouped;
    } params;
} an_gpu_step;

/* Appends a launch to `out` and hands it to the caller in *l, without binds. NULL, or why the grid is refused. */
const char *an_gpu_launch_add(an_gpu_step *out, const char *entry, int64_t x, int64_t y, int64_t z, int threads,
                              an_gpu_launch **l);
void an_gpu_bind(an_gpu_launch *l, an_bind_kind kind, int index, int arg, int64_t offset);
/* Argument `arg` of step s as buffer `index`; AN_BIND_ANY when the step does not have it. */
void an_gpu_bind_arg(an_gpu_launch *l, int index, const an_plan_step *s, int arg);

#endif
