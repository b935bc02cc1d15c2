/* unit_product.h: texts that stand beside a library's matrix product on CUDA: what is cast before it, what happens to
 * its result after it; and the product that is made instead where that end is better done with it. */
#ifndef AN_UNIT_PRODUCT_H
#define AN_UNIT_PRODUCT_H

#include "kernel/gpu_launch.h"
#include "kernel/plan.h"
#include "kernel/render.h"
#include "kernel/templates/gemm_tf32_args.h"
#include "kernel/templates/turn_args.h"

enum { AN_CAST_ITEMS = 8, AN_CAST_THREADS = 256 };

/* The epilogue of step `s` as the kernel `name`: an_render_gpu_tail with its prelude. */
void an_render_tail_unit(const an_plan *p, const an_plan_step *s, const char *name, an_dtype product, an_text *out);
/* gemm_hopper.inc with the epilogue of step `s` as its end. aligned: every argument of it begins on 16 bytes. */
void an_render_product_unit(const an_plan *p, const an_plan_step *s, bool b_along_k, bool aligned, an_text *out);
/* The kernel `cast`(const from *x, to *y, an_i64 n): templates/cast.inc. */
void an_render_cast_unit(an_dtype from, an_dtype to, an_text *out);
/* The kernel `turn`(const float *x, float *y, an_turn_args): templates/turn.inc. */
void an_render_turn_unit(an_text *out);
/* The kernels gemm_tf32 and gemm_tf32_join: templates/gemm_tf32.inc, for sm_90a alone. */
void an_render_tf32_unit(an_text *out);

#endif
