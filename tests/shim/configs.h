/* configs.h: configurations of kernels to test: the head sizes and formats of this project's models, plus unusual ones. The
 * NVRTC test and the MSL lint go through all of them. Tiles of the `metal` tables fit 32 KiB of threadgroup memory
 * (where bf16 takes four bytes too, in MSL 3.0), those of `cuda` 48 KiB. */
#ifndef AN_KERNEL_CONFIGS_H
#define AN_KERNEL_CONFIGS_H

#include "kernel_text.h"

static const attn_config cuda_attention[] = {
    /* store    mul      exact vec D dc causal dropout threads: forward, backward; cols, bias, sliding, group */
    {KIND_BF16, KIND_BF16, 0, 8, 64, 64, 1, 0, 128, 128, 32, 0, 0, 0},
    {KIND_BF16, KIND_BF16, 0, 8, 64, 64, 1, 0, 128, 128, 32, 0, 0, 4},
    {KIND_BF16, KIND_BF16, 0, 8, 64, 64, 1, 1, 128, 128, 32, 0, 0, 0},
    {KIND_BF16, KIND_BF16, 0, 8, 128, 64, 1, 0, 64, 64, 32, 0, 0, 0},
    {KIND_BF16, KIND_BF16, 0, 8, 256, 64, 0, 0, 32, 32, 32, 0, 0, 0},
    {KIND_F16, KIND_F16, 0, 8, 96, 48, 0, 0, 64, 64, 32, 0, 0, 0},
    {KIND_F32, KIND_TF32, 0, 8, 64, 32, 1, 0, 128, 64, 32, 0, 0, 0},
    {KIND_F32, KIND_BF16, 0, 8, 32, 32, 1, 1, 128, 128, 64, 0, 0, 0},
    {KIND_F32, KIND_F32, 1, 8, 64, 32, 1, 1, 128, 64, 32, 0, 0, 0},
    {KIND_F32, KIND_F32, 1, 1, 7, 16, 0, 0, 32, 64, 64, 0, 0, 0},
    {KIND_F32, KIND_F32, 1, 8, 128, 32, 1, 0, 64, 32, 32, 0, 0, 0},
    {KIND_BF16, KIND_BF16, 0, 8, 64, 64, 1, 1, 128, 128, 32, 1, 1, 0},
    {KIND_F32, KIND_TF32, 0, 8, 64, 32, 0, 0, 128, 64, 32, 1, 0, 0},
};
static const attn_config metal_attention[] = {
    {KIND_BF16, KIND_BF16, 0, 8, 64, 32, 1, 0, 64, 64, 32, 0, 0, 0},
    {KIND_BF16, KIND_BF16, 0, 8, 64, 32, 1, 0, 64, 64, 32, 0, 0, 4},
    {KIND_BF16, KIND_BF16, 0, 8, 64, 32, 1, 1, 64, 32, 32, 0, 0, 0},
    {KIND_BF16, KIND_BF16, 0, 8, 128, 32, 1, 0, 32, 32, 32, 0, 0, 0},
    {KIND_F16, KIND_F16, 0, 8, 96, 48, 0, 0, 32, 32, 32, 0, 0, 0},
    {KIND_F32, KIND_F32, 1, 8, 64, 32, 1, 1, 64, 32, 32, 0, 0, 0},
    {KIND_F32, KIND_F32, 1, 1, 7, 16, 0, 0, 32, 64, 64, 0, 0, 0},
    {KIND_F32, KIND_F32, 1, 8, 128, 32, 1, 0, 32, 32, 32, 0, 0, 0},
    {KIND_BF16, KIND_BF16, 0, 8, 64, 32, 0, 1, 64, 32, 32, 1, 0, 0},
    {KIND_F32, KIND_F32, 1, 8, 64, 32, 1, 0, 64, 32, 32, 1, 1, 0},
};
static const gemm_config cuda_gemm[] = {
    /* store, C, mul, vec, bm, bn, bk, subgroups, along k, direct */
    {KIND_BF16, KIND_BF16, KIND_BF16, 8, 128, 128, 32, 2, 4, 1, 0, 0},
    {KIND_BF16, KIND_F32, KIND_BF16, 8, 128, 128, 32, 2, 4, 0, 0, 0},
    {KIND_BF16, KIND_BF16, KIND_BF16, 8, 128, 128, 32, 2, 4, 1, 1, 0},
    {KIND_F32, KIND_F32, KIND_TF32, 8, 128, 64, 32, 4, 2, 1, 0, 0},
    {KIND_F32, KIND_F32, KIND_BF16, 8, 64, 64, 32, 2, 2, 1, 0, 0},
    {KIND_F16, KIND_F16, KIND_F16, 1, 64, 64, 32, 2, 2, 0, 1, 0},
    {KIND_F32, KIND_F32, KIND_F32, 8, 64, 64, 16, 2, 2, 1, 0, 0},
};
static const gemm_config metal_gemm[] = {
    {KIND_BF16, KIND_BF16, KIND_BF16, 8, 64, 64, 32, 2, 2, 1, 0, 0},
    {KIND_BF16, KIND_F32, KIND_BF16, 8, 64, 64, 32, 2, 2, 0, 0, 0},
    {KIND_F16, KIND_F16, KIND_F16, 1, 64, 32, 32, 2, 1, 0, 1, 0},
    {KIND_F32, KIND_F32, KIND_F32, 8, 64, 64, 16, 2, 2, 1, 1, 0},
    {KIND_F32, KIND_F32, KIND_F32, 8, 64, 64, 16, 2, 2, 1, 0, 1},
    {KIND_F16, KIND_F16, KIND_F16, 8, 32, 32, 16, 1, 1, 0, 1, 1},
};

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

#endif
