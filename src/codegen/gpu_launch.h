/* gpu_launch.h: a step of a plan as launches on a GPU: which entries of its text run, over which grid, and what each
 * buffer is. Shared by the backends and by the tests that run the texts.
 *
 * Owns:      grids, the bytes that a template is told at run time, and how a step's scratch is divided.
 * Does not:  know a driver, an address, or the words of a text (gpu_module.h).
 * Invariants: launches are in order and each sees what the ones before have written; none has an empty grid; everything
 * is a pure function of the step, so that a captured plan may be replayed.
 */
#ifndef AN_CODEGEN_GPU_LAUNCH_H
#define AN_CODEGEN_GPU_LAUNCH_H

#include "codegen/gpu_module.h"

typedef int64_t an_i64; /* the spelling of the texts that C and kernels share */
typedef uint32_t an_u32;
#include "kernels/gpu/attn_args.h"
#include "kernels/gpu/call_args.h"
#include "kernels/gpu/gemm_args.h"
#include "kernels/gpu/scatter_args.h"

typedef enum an_bind_kind {
    AN_BIND_ARG,     /* argument `arg` of the step */
    AN_BIND_SCRATCH, /* the step's scratch, from byte `offset` on */
    AN_BIND_PARAMS,  /* an_gpu_step.params: by value in CUDA, a constant buffer in Metal */
    AN_BIND_ANY      /* never read: any valid address */
} an_bind_kind;

typedef struct an_bind { /* in the order of the kernel's parameters */
    uint8_t kind, index; /* index: Metal's buffer number */
    int16_t arg;
    int64_t offset;
} an_bind;

enum { AN_GPU_BINDS = AN_LOOP_ARGS + 5, AN_GPU_LAUNCHES = 5 };

typedef struct an_gpu_launch {
    const char *entry; /* NULL: the name that the row program was rendered with */
    uint32_t groups[3], threads;
    uint32_t shared_bytes; /* CUDA: asked for at launch, on top of what the text declares */
    int n_binds;
    an_bind bind[AN_GPU_BINDS];
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
    } params;
} an_gpu_step;

/* NULL, or why a GPU cannot run the step, as an_module_tiles says it. A step that only fills or copies memory is such a
 * one: that is the driver's. */
const char *an_gpu_step_make(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_gpu_step *out);
/* Bytes of scratch that the launches of a kernel want on `gpu` (NULL: one without kernels of its own): what a target's
 * `scratch` says. */
size_t an_gpu_scratch(const an_kernel *k, const an_gpu *gpu);

#endif
