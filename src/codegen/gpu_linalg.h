/* gpu_linalg.h: scattering and calls on a GPU: which template computes what, its tiles, its launches, its scratch. The
 * part of gpu_module.c and gpu_launch.c that is about kernels with a loop inside. */
#ifndef AN_CODEGEN_GPU_LINALG_H
#define AN_CODEGEN_GPU_LINALG_H

#include "codegen/gpu_launch.h"

/* For AN_KERNEL_SCATTER and AN_KERNEL_CALL. NULL, or why a GPU has no kernel for it. */
const char *an_call_tiles(const an_kernel *k, const an_gpu *gpu, an_tiles *out);
void an_call_defines(const an_tiles *t, an_text *out);
const char *an_call_args_text(an_gpu_module u); /* the struct, then the body */
const char *an_call_body_text(an_gpu_module u);
int an_call_entries(an_gpu_module u); /* kernels in its text */
const char *an_call_step(const an_plan *p, const an_plan_step *s, const an_tiles *t, an_gpu_step *out);
size_t an_call_gpu_scratch(const an_kernel *k);

/* gpu_launch.c's words: a launch with its grid, then what its buffers are. */
const char *an_gpu_launch_add(an_gpu_step *out, const char *entry, int64_t x, int64_t y, int64_t z, int threads,
                              an_gpu_launch **l);
void an_gpu_bind(an_gpu_launch *l, an_bind_kind kind, int index, int arg, int64_t offset);
void an_gpu_bind_arg(an_gpu_launch *l, int index, const an_plan_step *s, int arg);

#endif
