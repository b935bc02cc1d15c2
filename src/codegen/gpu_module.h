/* gpu_module.h: the complete text that a GPU's compiler is given for a step: dialect, #define lines, template body.
 *
 * Owns:      which templates a GPU has, their tile sizes, the order of the texts in a module.
 * Does not:  compile, launch, or know a driver.
 * Invariant: tiles are a pure function of (spec, alignment of the arguments, GPU): no timing decides bits. The body that was
 *            asked for (an_gpu.gemm_body) decides none either.
 */
#ifndef AN_CODEGEN_GPU_MODULE_H
#define AN_CODEGEN_GPU_MODULE_H

#include "codegen/gpu_tiles.h"
#include "codegen/render.h"
#include "ir/plan.h"

/* Whether attention runs on the kernels for sm_90a. */
bool an_module_attn_hopper(const an_attn_spec *s, const an_gpu *gpu);
/* Which passes of attn_hopper.inc and attn_hopper_backward.inc (attn_args.h) it runs on there. */
int an_module_attn_pass(const an_attn_spec *s, bool grad);
/* Whether it runs on attn_short.inc, where rows are aligned; that can rotate q and k. */
bool an_module_attn_short(const an_attn_spec *s, const an_gpu *gpu);
/* Whether the kernels for sm_90a copy q, k, v (and do) to rows of 16 bytes first. */
bool an_module_attn_packed(const an_attn_spec *s, bool grad);
/* Whether attn_hopper*.inc stores dropout's bits in scratch: not where they take more than a gigabyte, nor where thread blocks share
 * heads, whose warps have time to draw them. */
bool an_module_attn_mask(const an_attn_spec *s, bool grad);
enum { AN_FEW_ROWS = 8 };
/* Whether a product of few rows runs on gemm_rows.inc, with any alignment. */
bool an_module_gemm_rows(const an_gemm_spec *s, const an_gpu *gpu);
/* The name of the i-th body of GEMM that an_gpu.gemm_body may ask for (as i + 1); NULL: there are no more. */
const char *an_gemm_body_name(int i);
/* Tiles for step `s` of plan `p`; NULL, or why a GPU has no kernel for it ("operands are stored in two dtypes"). */
const char *an_module_tiles(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_tiles *out);
/* Which inputs of the step's loop kernel (or fused epilogue) are read through an output's parameter, because the step
 * computes in place and the GPU's language forbids two parameters for one range. None where it allows them. */
an_aliases an_step_aliases(const an_plan *p, const an_plan_step *s, const an_gpu *gpu);
/* The text of step `s`, to be compiled alone. A loop kernel is named `name`; a template's entries are gemm, gemm_reduce_splits,
 * attn_mask, attn_pack, attn_forward, attn_delta, attn_dq, attn_dkv, attn_dqkv, attn_backward, scatter_sort, scatter_rank, scatter_starts,
 * scatter_few, scatter_parts, scatter_rows, running_sum, pool_max_grad, pool_max_places, put_rows, sort_rows, row_update and
 * matrix. Marks `out` failed when an_module_tiles refuses. */
void an_render_module(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, const char *name, an_text *out);
/* All kernels of a plan, to be read: each text once, template bodies last. Any dialect. */
void an_render_plan(const char *dialect, const an_plan *p, an_text *out);

#endif
