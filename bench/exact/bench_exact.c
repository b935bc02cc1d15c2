/* bench_exact.c: nanoseconds an element of exact.h's functions as the compiler vectorises them, and the pool's fork and
 * join. Build with the flags of rendered kernels: make bench CFLAGS='-std=c17 -O3 -march=native -ffp-contract=off
 * -fno-math-errno -fno-trapping-math -pthread' */
#include "base/exact.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4096, ROUNDS = 300, CALLS = 5, TRIALS = 200, JOINS = 200 };

#define LOOP(name, result)                                                                                             \
    __attribute__((noinline)) static void loop_##name(const float *restrict xs, float *restrict ys)                    \
    {                                                                                                                  \
        for (an_u32 i = 0; i < N; i++) {                                                                               \
            float x = xs[i];                                                                                           \
            ys[i] = result;                                                                                            \
            (void)x;                                                                                                   \
        }                                                                                                              \
    }
#define CASES(X)                                                                                                       \
    X(copy, x * 2.0f)                                                                                                  \
    X(exp, an_exp(x))                                                                                                  \
    X(exp2, an_exp2(x))                                                                                                \
    X(expm1, an_expm1(x))                                                                                              \
    X(log, an_log(x))                                                                                                  \
    X(log1p, an_log1p(x))                                                                                              \
    X(tanh, an_tanh(x))                                                                                                \
    X(sigmoid, an_sigmoid(x))                                                                                          \
    X(erf, an_erf(x))                                                                                                  \
    X(sin, an_sin(x))                                                                                                  \
    X(cos, an_cos(x))                                                                                                  \
    X(pow, an_pow(x, 1.7f))                                                                                            \
    X(rsqrt, an_rsqrt(x))                                                                                              \
    X(bf16, an_bf16_to_f32(an_f32_to_bf16(x)))                                                                         \
    X(f16, an_f16_to_f32(an_f32_to_f16(x)))                                                                            \
    X(uniform, an_philox_uniform(1u, 2u, i, 0u))
CASES(LOOP)

static void measure(const char *name, void (*loop)(const float *restrict, float *restrict))
{
    static float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)(i + 1) / N * 4;
    double best = 1;
    for (int r = 0; r < ROUNDS; r++) {
        double t = an_seconds();
        for (int c = 0; c < CALLS; c++) loop(x, y);
        best = AN_MIN(best, (an_seconds() - t) / CALLS);
    }
    printf("%-8s %.3f ns\n", name, best / N * 1e9);
}

/* Every task waits for all others of its run, so that a run ends only after every thread has taken part. */
static void meet(void *arg, int64_t task, int thread)
{
    (void)task, (void)thread;
    atomic_llong *arrived = arg;
    long long n = atomic_fetch_add(arrived, 1), threads = arrived[1];
    while (atomic_load(arrived) < n / threads * threads + threads) continue;
}

static void measure_pool(void)
{
    an_err err = {0};
    an_pool *p;
    if (an_pool_open(&err, 0, &p) != AN_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    atomic_llong arrived[2] = {0, an_pool_threads(p)};
    double best = 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        double t = an_seconds();
        for (int i = 0; i < JOINS; i++) an_pool_run(p, an_pool_threads(p), meet, arrived);
        best = AN_MIN(best, (an_seconds() - t) / JOINS);
    }
    printf("fork and join of %d threads: %.3f us\n", an_pool_threads(p), best * 1e6);
    an_pool_close(p);
}

int main(void)
{
#define MEASURE(name, result) measure(#name, loop_##name);
    CASES(MEASURE)
    measure_pool();
    return 0;
}
