/* gpu_step.h: which launches run a step of a plan on a GPU, and the scratch they need. Shared by the backends, by the
 * planner (steps that a GPU has no kernel for) and by the tests that run the texts.
 *
 * Owns:      grids, the argument structs that templates read at run time, and how a step's scratch is divided.
 */
#ifndef AN_CODEGEN_GPU_STEP_H
#define AN_CODEGEN_GPU_STEP_H

#include "codegen/gpu_launch.h"
#include "codegen/gpu_module.h"

/* NULL, or why a GPU cannot run the step, as an_module_tiles says it. Steps that only fill or copy memory are refused
 * too: the driver does those. */
const char *an_gpu_step_make(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_gpu_step *out);
/* Bytes of scratch that the launches of a kernel need: what an_target.scratch answers. gpu NULL: a GPU without
 * architecture-specific kernels. */
size_t an_gpu_scratch(const an_kernel *k, const an_gpu *gpu);

#endif
