/* gpu_library_calls.h: library calls on a GPU (sorting, cumulative sums, pooling gradients, factorizations, scattering): which
 * template computes what, its tiles, its launches, its scratch. gpu_module.c and gpu_step.c ask here for
 * AN_KERNEL_SCATTER and AN_KERNEL_CALL.
 */
#ifndef AN_CODEGEN_GPU_LIBRARY_CALLS_H
#define AN_CODEGEN_GPU_LIBRARY_CALLS_H

#include "codegen/dialect.h"
#include "codegen/gpu_launch.h"
#include "codegen/gpu_tiles.h"

/* NULL, or why a GPU has no kernel for it. */
const char *an_gpu_call_tiles(const an_kernel *k, const an_gpu *gpu, an_tiles *out);
void an_gpu_call_defines(const an_tiles *t, an_text *out);
const char *an_gpu_call_args_text(an_gpu_module m); /* the struct of arguments; the body follows it */
const char *an_gpu_call_body_text(an_gpu_module m);
int an_gpu_call_entries(const an_tiles *t); /* kernels in its text */
const char *an_gpu_call_step(const an_plan *p, const an_plan_step *s, const an_tiles *t, an_gpu_step *out);
size_t an_gpu_call_scratch(const an_kernel *k, const an_gpu *gpu);

#endif
