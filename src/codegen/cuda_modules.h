/* cuda_modules.h: texts of the kernels around a GEMM on CUDA: casts and a transpose before a library's GEMM, the epilogue after it, and the
 * project's own GEMMs for sm_90a that replace it where they are faster (bf16 with a fused epilogue; tf32 weight gradients).
 */
#ifndef AN_CODEGEN_CUDA_MODULES_H
#define AN_CODEGEN_CUDA_MODULES_H

#include "codegen/gpu_launch.h"
#include "ir/plan.h"
#include "codegen/render.h"
#include "kernels/gpu/gemm_tf32_args.h"
#include "kernels/gpu/transpose_args.h"

enum { AN_CAST_ITEMS = 8, AN_CAST_THREADS = 256 };

/* The epilogue of step `s` as the kernel `name`, complete: an_render_gpu_epilogue_kernel with its prelude. */
void an_render_epilogue_module(const an_plan *p, const an_plan_step *s, const char *name, an_dtype gemm_dtype,
                               an_text *out);
/* gemm_hopper.inc with the epilogue of step `s` fused. aligned: every argument of the epilogue is 16-byte aligned. */
void an_render_gemm_module(const an_plan *p, const an_plan_step *s, bool b_along_k, bool aligned, an_text *out);
/* The same for a pair: the kernel of the elementwise step `s` as epilogue, whose argument `gemm` is the result (render.h). */
void an_render_pair_module(const an_plan *p, const an_plan_step *s, int gemm, bool keep, bool narrow, bool a_along_k,
                           bool b_along_k, bool aligned, an_text *out);
/* gemm_hopper.inc with the ends of gemm_hopper_plain.inc: f32: of C; split: gemm stores partial sums, gemm_reduce adds them; bias: the
 * dtype of a bias that is added before the sums are rounded, AN_N_DTYPES: none is. */
void an_render_plain_gemm_module(bool a_along_k, bool b_along_k, bool f32, bool split, an_dtype bias, an_text *out);
/* The kernels `cast`(const from *x, to *y, an_i64 n) and `cast_rows`(const from *x, to *y, int rows, cols, from, to):
 * kernels/gpu/cast.inc. */
void an_render_cast_module(an_dtype from, an_dtype to, an_text *out);
/* The kernel `transpose`(const float *x, float *y, an_transpose_args): kernels/gpu/transpose.inc. */
void an_render_transpose_module(an_text *out);
/* The kernels gemm_tf32 and gemm_tf32_reduce: kernels/gpu/gemm_tf32.inc, for sm_90a alone. */
void an_render_tf32_module(an_text *out);

#endif
