/* peak_flops.c: measured peak of the multiply-add units: independent accumulations in registers, nothing loaded or stored.
 *
 * Owns:      the figure of which benchmarks and the progress line ('% of peak') report a share (an_fma_peak; on CUDA
 *            device/cuda/peak_flops.c measures it).
 * Does not:  assume a clock: it is measured where and when the benchmark runs, on as many threads.
 * Invariant: other programs do not lower it: each task is timed alone, and is too short for most to be interrupted. */
#include "kernels/cpu/isa.h"

#include "kernels/cpu/attn_vec.h"
#if AN_TILES
#include "kernels/cpu/gemm_tiles.h"
#endif

#include "platform/platform.h"
#include "kernels/cpu_kernels.h"

#include <stdlib.h>

#if AN_VL == 4 && !defined(__ARM_NEON)
enum { CHAINS = 4, STEPS = 200 }; /* fma is a function call */
#else
enum { CHAINS = AN_VL == 8 ? 6 : 12, STEPS = 5000 }; /* twice as many: more than latency times ports on any of them */
#endif

AN_INLINE vf chains(const bool dot, vf x, vf y)
{
    vf even[CHAINS], odd[CHAINS];
    AN_UNROLL for (int i = 0; i < CHAINS; i++)
    {
        even[i] = vf_set((float)i);
        odd[i] = vf_set((float)-i);
    }
    for (int step = 0; step < STEPS; step++) {
        AN_UNROLL for (int i = 0; i < CHAINS; i++)
        {
            even[i] = dot ? vf_dot(x, y, even[i]) : vf_fma(x, y, even[i]);
            odd[i] = dot ? vf_dot(x, y, odd[i]) : vf_fma(x, y, odd[i]);
        }
    }
    vf all = {0};
    AN_UNROLL for (int i = 0; i < CHAINS; i++) all += even[i] + odd[i];
    return all;
}

typedef enum peak_of { PEAK_FMA, PEAK_DOT, PEAK_TILES } peak_of;

/* Flops of a multiplication of tile registers: 16 x 16 sums of 32 products. */
enum { TILE_FLOPS = 2 * 16 * 16 * 32, TILE_STEPS = 500 };
#if AN_TILES && defined(__AMX_BF16__)
static float tile_chains(void)
{
    static const float zeros[TILE_SIDE * TILE_SIDE];
    float sum[TILE_SIDE * TILE_SIDE];
    tiles_configure(TILE_ROWS);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zeros, 4 * TILE_SIDE);
    _tile_loadd(5, zeros, 4 * TILE_SIDE);
    _tile_loadd(6, zeros, 4 * TILE_SIDE);
    _tile_loadd(7, zeros, 4 * TILE_SIDE);
    for (int step = 0; step < TILE_STEPS; step++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum, 4 * TILE_SIDE);
    tiles_release();
    return sum[0];
}
#else
static float tile_chains(void)
{
    return 0; /* never called */
}
#endif

enum { TASKS = 64, FEW_TASKS = 8 };
typedef struct peak_run {
    peak_of of;
    float x, y;
    float results[TASKS]; /* what is looked at is not optimised away */
    double seconds[TASKS];
} peak_run;

static void peak_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    peak_run *r = arg;
    const double begin = an_seconds();
    if (r->of == PEAK_TILES)
        r->results[task] = tile_chains();
    else
        r->results[task] = (r->of == PEAK_DOT ? chains(true, vf_set(r->x), vf_set(r->y))
                                              : chains(false, vf_set(r->x), vf_set(r->y)))[0];
    r->seconds[task] = an_seconds() - begin;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#if AN_TILES
double AN_REST_NAME(fma_peak)(an_pool *p, uint8_t mul_dtype, double seconds);
#endif

double AN_ISA_NAME(fma_peak)(an_pool *p, uint8_t mul_dtype, double seconds)
{
    peak_of of = mul_dtype == AN_BF16 && AN_BF16_DOT ? PEAK_DOT : PEAK_FMA;
    double flops = 2.0 * AN_VL * (of == PEAK_DOT ? 2 : 1) * 2 * CHAINS * STEPS;
#if AN_TILES
#ifdef __AMX_BF16__
    const bool tiles = mul_dtype == AN_BF16;
#else
    const bool tiles = false; /* tile registers in plain C are no yardstick */
#endif
    if (!tiles) return AN_REST_NAME(fma_peak)(p, mul_dtype, seconds);
    of = PEAK_TILES;
    flops = 4.0 * TILE_FLOPS * TILE_STEPS;
#endif
    /* read from memory: a known factor would let the compiler shorten the chain */
    volatile float x = 1.0f, y = 0.5f;
    peak_run r = {.of = of, .x = x, .y = y};
    const int threads = AN_MIN(AN_MIN(an_pool_threads(p), an_cores_available()), TASKS);
    const double begin = an_seconds();
    const int tasks = seconds > 0 ? TASKS : FEW_TASKS;
    double best = 0;
    do {
        an_pool_run(p, tasks, peak_task, &r);
        qsort(r.seconds, (size_t)tasks, sizeof *r.seconds, by_value);
        best = AN_MAX(best, threads * flops / r.seconds[tasks / 2] * 1e-9);
    } while (an_seconds() - begin < seconds);
    return best;
}
