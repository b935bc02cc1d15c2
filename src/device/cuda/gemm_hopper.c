/* gemm_hopper.c: sm_90a GEMMs with a fused elementwise epilogue, by our own kernel (kernels/gpu/gemm_hopper.inc).
 *
 * Owns:      which GEMMs these are, and their launch parameters.
 * Does not:  compile or launch (lower_launches.c, graph_exec.c).
 * Invariant: a pure function of (spec, epilogue, device).
 *
 * The library's GEMMs are up to a tenth faster than ours, but a separate epilogue reads the result from memory once more.
 * That matters where the result is wide and the sum over k short: GELU after the first linear layer of a GPT block
 * (bench/cuda/README.md has the ladder).
 */
#include "device/cuda/cuda_internal.h"

enum { TILE_M = AN_HGEMM_M * AN_HGEMM_CLUSTER, TILE_N = AN_HGEMM_N, LEAST_ROUNDS = 2, MOST_WIDER = 8 };

static int64_t tiles(int64_t m, int64_t n)
{
    return an_ceil_div(m, TILE_M) * an_ceil_div(n, TILE_N);
}

static int64_t clusters(const an_device *d)
{
    return d->multiprocessors / AN_HGEMM_CLUSTER;
}

bool an_cuda_fusion_pays(const an_device *d, int64_t m, int64_t n, int64_t k)
{
    if (d->gpu.arch_specific != 90 || !d->has_lt || m % 64 || n % 64 || k % 8 || m > INT32_MAX || n > INT32_MAX)
        return false;
    return n > k && n <= MOST_WIDER * k && tiles(m, n) >= LEAST_ROUNDS * clusters(d);
}

bool an_cuda_fuses_epilogue(const an_device *d, const an_gemm_spec *s, const an_loop_kernel *epilogue,
                            const an_gemm_plan *p)
{
    if (p->mul != AN_BF16 || p->out != AN_BF16 || !p->a_along_k || p->batches != 1 || s->splits > 1 || s->accumulate)
        return false;
    return p->lda % 8 == 0 && p->ldb % 8 == 0 && an_cuda_fusion_pays(d, s->m, s->n, s->k) && epilogue->rows == s->m &&
           epilogue->cols == s->n && an_render_gpu_can_fuse_epilogue(epilogue);
}

struct an_gemm_hopper_args an_cuda_fused_gemm_args(const an_device *d, const an_gemm_spec *s, uint32_t *blocks)
{
    *blocks = (uint32_t)(AN_HGEMM_CLUSTER * AN_MIN(tiles(s->m, s->n), clusters(d)));
    return (struct an_gemm_hopper_args){.m = s->m, .n = s->n, .k = s->k, .band = (int)an_ceil_div(s->n, TILE_N)};
}

cu_result an_cuda_operand_map(an_device *d, const an_gemm_spec *s, const an_gemm_plan *p, int which, cu_pointer at,
                              cu_tensor_map *out)
{
    const bool along_k = which == 0 || p->b_along_k;
    const int64_t rows = which == 0 ? s->m : s->n;
    const uint64_t extents[2] = {(uint64_t)(along_k ? s->k : rows), (uint64_t)(along_k ? rows : s->k)},
                   stride = 2 * (uint64_t)(which ? p->ldb : p->lda);
    const uint32_t steps[2] = {1, 1}, box[2] = {64, which == 0 ? AN_HGEMM_M
                                                    : along_k  ? AN_HGEMM_N / AN_HGEMM_CLUSTER
                                                               : 64 / AN_HGEMM_CLUSTER};
    return d->cu.tensor_map(out, CU_MAP_BF16, 2, at, extents, &stride, box, steps, 0, CU_MAP_SWIZZLE_128B,
                            CU_MAP_PROMOTE_256B, 0);
}
