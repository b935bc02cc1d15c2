/* gpu_module.h: what a GPU's compiler is given: whole texts of a plan's kernels, templates with their holes filled.
 *
 * Owns:      which templates a GPU has, their tile sizes, the order of the texts in a unit.
 * Does not:  compile, launch, or know a driver. Tiles are a pure function of (spec, dialect, version): no timing
 * decides bits.
 */
#ifndef AN_CODEGEN_GPU_MODULE_H
#define AN_CODEGEN_GPU_MODULE_H

#include "ir/plan.h"
#include "codegen/render.h"

typedef struct an_gpu { /* whose compiler */
    bool msl;
    int version; /* MSL: 300, 310, ...; CUDA: not asked yet */
    bool fast;   /* CUDA: bits of other devices are not asked for */
    bool tf32;   /* CUDA: products of f32 on tensor cores */
    bool plain;  /* MSL: a GPU without matrix instructions (a virtual machine's) */
    int own;     /* CUDA: the architecture whose own instructions the compiler knows and the GPU has: 90, or 0 */
    int multiprocessors; /* CUDA: how many groups fill the GPU; leaves no trace in bits */
} an_gpu;
static inline an_gpu_kind an_gpu_kind_of(const an_gpu *g)
{
    return g->msl ? AN_GPU_MSL : g->fast ? AN_GPU_CUDA_FAST : AN_GPU_CUDA;
}

typedef enum an_gpu_module {
    AN_UNIT_ROW,
    AN_UNIT_GEMM,
    AN_UNIT_ATTN,
    AN_UNIT_ATTN_GRAD,
    AN_UNIT_SCATTER, /* this and the rest: gpu_linalg.h */
    AN_UNIT_ROWS,
    AN_UNIT_SORT,
    AN_UNIT_MATRIX,
    AN_N_UNITS
} an_gpu_module;

typedef enum an_attn_body {                   /* attention: whose kernels, all with the same entries and buffers */
                            AN_BODY_PORTABLE, /* attn_forward.inc, attn_backward.inc */
                            AN_BODY_BF16,     /* NVIDIA: attn_cuda.inc */
                            AN_BODY_TF32,     /* NVIDIA: attn_tf32.inc */
                            AN_BODY_HOPPER    /* sm_90a: attn_hopper.inc, and ..._backward.inc, behind attn_cuda.inc */
} an_attn_body;

typedef struct an_tiles {                        /* what the templates are told by #define lines; unused ones are 0 */
    const char *store, *store_b, *store_c, *mul; /* "F32", "BF16", "F16" */
    an_gpu_module unit;
    int window, fast; /* of products: an_window_of; 1: the body for NVIDIA GPUs alone, conv_cuda.inc */
    int exact, vec, threads;
    int bm, bn, bk, subgroups_m, subgroups_n, a_along_k, b_along_k; /* products */
    int d, dc, cols, causal, dropout;                               /* attention; bm: rows a group, bn: of attn_delta */
    int body;                                                       /* attention: an_attn_body */
    int call, work; /* calls: which of a template's; words of shared memory, 0: scratch */
} an_tiles;

/* Whether attention is for the kernels of sm_90a, if its tensors begin and step on 16 bytes. */
bool an_module_attn_hopper(const an_attn_spec *s, const an_gpu *gpu, bool grad);
/* Tiles for step `s` of plan `p`; NULL, or why a GPU has no kernel for it ("operands are stored in two dtypes"). */
const char *an_module_tiles(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_tiles *out);
/* The whole text of step `s`: compiled alone. A row program's kernel is named `name`, a template's are gemm, gemm_join,
 * attn_forward, attn_delta, attn_dq, attn_dkv, attn_dqkv, scatter_sort, scatter_rank, scatter_starts, scatter_parts,
 * scatter_rows, running_sum, pool_max_grad, sort_rows and matrix. Marks `out` failed when an_module_tiles gives a reason.
 */
void an_render_module(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, const char *name, an_text *out);
/* All kernels of a plan for people: each text once, templates' bodies at the end. Any dialect. */
void an_render_plan(const char *dialect, const an_plan *p, an_text *out);

#endif
