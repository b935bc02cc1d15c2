/* conv_grouped.h: convolutions in groups of few channels on vectors of columns; conv.c asks it first.
 *
 * Owns:     the two entries.
 * Does not: have an epilogue. */
#ifndef AN_KERNELS_CPU_CONV_GROUPED_H
#define AN_KERNELS_CPU_CONV_GROUPED_H

#include "kernels/cpu/isa.h"

#include "ir/library_ops.h"
#include "kernels/cpu_kernels.h"

/* 0 and false: not a convolution of this kind. */
size_t AN_ISA_NAME(conv_grouped_scratch)(const an_gemm_spec *s, int threads);
bool AN_ISA_NAME(conv_grouped)(const an_gemm_spec *s, void *const *args, void *scratch, an_pool *pool);

#endif
