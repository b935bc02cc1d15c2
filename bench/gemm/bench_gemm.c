/* bench_gemm.c: GFLOP/s of the GEMMs of nanoGPT's presets, as a share of the multiply-add peak measured in the same
 * second, and the ladder that leads from three loops to the library's kernel.
 *
 *     bench_gemm [-i isa] [-t threads] [-s milliseconds a measurement] [-p start of a preset's name] [-k fwd|dX|dW]
 *                [-d f32|bf16] [-r MiB] [-w] [-b] [-l]
 *
 * Of y[M,N] = x[M,K] W[N,K]^T a step multiplies three times: forward, dX = dY W, dW = dY^T X. Packing is included
 * in the times. The medians of interleaved rounds are printed: each round measures the peak, then every GEMM once.
 * Operands and results rotate through -r MiB of each. With 8, as in a training step, small ones are in the last-level
 * cache at best, large ones in no cache; with 64 none are; with 0 the same ones are used in every call.
 *
 * Time is the process's processor time divided by its threads, for a machine that others use at the same time: waiting
 * for one another counts while threads spin, being suspended does not. -w takes the clock's. -b prints the fastest call of
 * all rounds beside the highest peak: on a core whose other hardware thread belongs to somebody else, calls take one of two
 * times, and the peak, which needs few instructions, does not tell which.
 * -l runs the ladder instead: naive, blocked, and the library, single threaded, checked against each other bit for bit.
 */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE /* clock_gettime, getopt */
#endif
#include "base/base.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"
#include "kernels/cpu_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct shape {
    const char *preset;
    int m, k, n;
    double times; /* in a step, in units of the least frequent one */
} shape;

static const shape SHAPES[] = {
    {"macbook", 768, 128, 384, 4},   {"macbook", 768, 128, 128, 4},   {"macbook", 768, 128, 512, 4},
    {"macbook", 768, 512, 128, 4},   {"macbook", 768, 128, 65, 1},    {"char", 16384, 384, 1152, 6},
    {"char", 16384, 384, 384, 6},    {"char", 16384, 384, 1536, 6},   {"char", 16384, 1536, 384, 6},
    {"char", 16384, 384, 65, 1},     {"gpt2s", 256, 768, 2304, 12},   {"gpt2s", 256, 768, 768, 12},
    {"gpt2s", 256, 768, 3072, 12},   {"gpt2s", 256, 3072, 768, 12},   {"gpt2s", 256, 768, 50304, 1},
    {"trm", 776, 128, 384, 2},       {"trm", 776, 128, 128, 2},       {"trm", 776, 128, 512, 4},
    {"trm", 776, 512, 128, 2},       {"vit_tiny", 1576, 192, 576, 1}, {"vit_tiny", 1576, 192, 192, 1},
    {"vit_tiny", 1576, 192, 768, 1}, {"vit_tiny", 1576, 768, 192, 1}, {"decode", 1, 768, 2304, 12},
    {"decode", 1, 768, 3072, 12},    {"decode", 1, 3072, 768, 12},    {"decode", 1, 768, 50304, 1},
};
enum { FORWARD, DX, DW, KINDS, ROUNDS = 9, ALIGN = 1024 /* floats: a page */ };
static const char *const KIND_NAMES[KINDS] = {"fwd", "dX", "dW"};

static void *memory(size_t bytes)
{
    void *p = an_pages_alloc(AN_MAX(bytes, 1));
    if (!p) {
        fprintf(stderr, "bench_gemm: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static void fill(float *p, int64_t n)
{
    uint32_t state = 7;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (float)(int32_t)(state >> 8) * 0x1p-23f - 1.0f;
    }
}

/* f32 in storage, as in training; dY takes the place of C's operand. */
static an_gemm_spec spec_of(const shape *x, int kind, uint8_t mul_dtype)
{
    an_gemm_spec s = {.nb = {1, 1, 1}, .mul_dtype = mul_dtype};
    s.a_dtype = s.b_dtype = s.c_dtype = AN_F32;
    if (kind == FORWARD) { /* x [M,K], W [N,K] */
        s.m = x->m, s.n = x->n, s.k = x->k;
        s.a_m = x->k, s.a_k = 1, s.b_n = x->k, s.b_k = 1;
    } else if (kind == DX) { /* dY [M,N], W [N,K] */
        s.m = x->m, s.n = x->k, s.k = x->n;
        s.a_m = x->n, s.a_k = 1, s.b_k = x->k, s.b_n = 1;
    } else { /* dY [M,N], x [M,K] */
        s.m = x->n, s.n = x->k, s.k = x->m;
        s.a_m = 1, s.a_k = x->n, s.b_k = x->k, s.b_n = 1;
    }
    s.c_m = s.n;
    return s;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct options {
    const an_cpu_kernels *isa;
    const char *preset, *kind, *dtype;
    int threads;
    double seconds;
    int64_t rotated; /* floats of each operand */
    bool clock, best;
} options;

/* The median, or the greatest. */
static double typical(const options *o, double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[o->best ? n - 1 : n / 2];
}

static double now(const options *o)
{
    struct timespec t;
    if (o->clock) return an_seconds();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / o->threads;
}

typedef struct bench {
    const options *o;
    an_pool *pool;
    float *a, *b, *c; /* large enough for every shape */
    int64_t a_size, b_size, c_size;
    void *scratch;
    int64_t calls; /* so far: choose the next operands */
} bench;

/* The operand of `need` floats for this call: operands rotate through all `size` floats. */
static float *next_of(float *all, int64_t size, int64_t need, int64_t call)
{
    const int64_t stride = an_round_up(need, ALIGN);
    return all + call % (size / stride) * stride;
}

static void call(bench *t, const an_gemm_spec *s)
{
    const int64_t i = t->calls++;
    void *const args[] = {next_of(t->a, t->a_size, (int64_t)s->m * s->k, i),
                          next_of(t->b, t->b_size, (int64_t)s->k * s->n, i),
                          next_of(t->c, t->c_size, (int64_t)s->m * s->n, i)};
    t->o->isa->gemm(s, args, t->scratch, NULL, t->pool);
}

/* GFLOP/s of one GEMM, repeated for about o->seconds; of its fastest call with o->best. */
static double measure(bench *t, const an_gemm_spec *s)
{
    const double flops = 2.0 * s->m * s->n * s->k;
    call(t, s); /* warm: code and scratch */
    const double begin = now(t->o);
    double end = begin, least = INFINITY;
    int calls = 0;
    do {
        const double last = end;
        call(t, s);
        calls++;
        end = now(t->o);
        least = AN_MIN(least, end - last);
    } while (end - begin < t->o->seconds);
    return flops / (t->o->best ? least : (end - begin) / calls) * 1e-9;
}

static bool wanted_kind(const options *o, int kind)
{
    return !o->kind || !strcmp(KIND_NAMES[kind], o->kind);
}

static bool wanted(const options *o, const shape *x)
{
    return !o->preset || !strncmp(x->preset, o->preset, strlen(o->preset));
}

/* most: the highest peak of all rounds */
static void print_table(const options *o, uint8_t mul_dtype, double most, double rate[][KINDS][ROUNDS],
                        double share[][KINDS][ROUNDS])
{
    for (size_t i = 0; i < AN_COUNT(SHAPES);) {
        const char *preset = SHAPES[i].preset;
        double flops = 0, seconds = 0, peak_seconds = 0;
        for (; i < AN_COUNT(SHAPES) && !strcmp(SHAPES[i].preset, preset); i++) {
            const shape *x = &SHAPES[i];
            if (!wanted(o, x)) continue;
            printf("%-8s %-4s %d  %5d x %4d x %5d ", preset, mul_dtype == AN_F32 ? "f32" : "bf16", o->threads, x->m,
                   x->k, x->n);
            for (int kind = 0; kind < KINDS; kind++) {
                if (!wanted_kind(o, kind)) continue;
                const double r = typical(o, rate[i][kind], ROUNDS);
                const double part = o->best ? r / most : typical(o, share[i][kind], ROUNDS);
                const double f = 2e-9 * x->m * x->k * x->n * x->times;
                flops += f, seconds += f / r, peak_seconds += f / r * part;
                printf("  %s %7.1f (%3.0f %%)", KIND_NAMES[kind], r, 100 * part);
            }
            printf("\n");
        }
        if (flops > 0)
            printf("%-8s %-4s %d  all, by flops: %.1f GFLOP/s, %.1f %% of peak\n", preset,
                   mul_dtype == AN_F32 ? "f32" : "bf16", o->threads, flops / seconds, 100 * peak_seconds / seconds);
    }
}

static void run_table(const options *o, bench *t, uint8_t mul_dtype)
{
    if (o->dtype && strcmp(o->dtype, mul_dtype == AN_F32 ? "f32" : "bf16") != 0) return;
    static double rate[AN_COUNT(SHAPES)][KINDS][ROUNDS], share[AN_COUNT(SHAPES)][KINDS][ROUNDS];
    double most = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < AN_COUNT(SHAPES); i++) {
            if (!wanted(o, &SHAPES[i])) continue;
            const double peak = o->isa->fma_peak(t->pool, mul_dtype, 0.005);
            most = AN_MAX(most, peak);
            for (int kind = 0; kind < KINDS; kind++) {
                if (!wanted_kind(o, kind)) continue;
                const an_gemm_spec s = spec_of(&SHAPES[i], kind, mul_dtype);
                rate[i][kind][round] = measure(t, &s);
                share[i][kind][round] = rate[i][kind][round] / peak;
            }
        }
    print_table(o, mul_dtype, most, rate, share);
}

static void table(const options *o)
{
    an_err err = {0};
    bench t = {.o = o};
    if (an_pool_open(&err, o->threads, &t.pool) != AN_OK) {
        fprintf(stderr, "bench_gemm: %s\n", err.text);
        exit(1);
    }
    int64_t a = o->rotated, b = o->rotated, c = o->rotated;
    size_t scratch = 0;
    for (size_t i = 0; i < AN_COUNT(SHAPES); i++)
        for (int kind = 0; kind < 2 * KINDS && wanted(o, &SHAPES[i]); kind++) {
            const an_gemm_spec s = spec_of(&SHAPES[i], kind % KINDS, kind < KINDS ? AN_F32 : AN_BF16);
            a = AN_MAX(a, an_round_up((int64_t)s.m * s.k, ALIGN)),
            b = AN_MAX(b, an_round_up((int64_t)s.k * s.n, ALIGN));
            c = AN_MAX(c, an_round_up((int64_t)s.m * s.n, ALIGN));
            scratch = AN_MAX(scratch, o->isa->gemm_scratch(&s, o->threads));
        }
    t.a = memory((size_t)a * 4), t.b = memory((size_t)b * 4), t.c = memory((size_t)c * 4), t.scratch = memory(scratch);
    t.a_size = a, t.b_size = b, t.c_size = c;
    fill(t.a, a);
    fill(t.b, b);
    memset(t.c, 0, (size_t)c * 4);
    memset(t.scratch, 0, scratch);
    printf("%s, %d thread(s), peak f32 %.1f, bf16 %.1f GFLOP/s\n", o->isa->isa, o->threads,
           o->isa->fma_peak(t.pool, AN_F32, 0.1), o->isa->fma_peak(t.pool, AN_BF16, 0.1));
    run_table(o, &t, AN_F32);
    run_table(o, &t, AN_BF16);
    an_pages_free(t.a, (size_t)a * 4);
    an_pages_free(t.b, (size_t)b * 4);
    an_pages_free(t.c, (size_t)c * 4);
    an_pages_free(t.scratch, scratch);
    an_pool_close(t.pool);
}

/* ---- ladder: C[M,N] = A[M,K] B[K,N] ---------------------------------------------------------------------------- */

enum { LADDER_M = 768, LADDER_N = 384, LADDER_K = 384 };

/* The rungs are plain C, vectorised by the compiler for AVX2, where the effect of each step is visible. */
#if defined(__x86_64__) && defined(__clang__)
#define RUNG __attribute__((noinline, target("avx2,fma")))
#elif defined(__x86_64__)
#define RUNG __attribute__((noinline, target("avx2,fma"), optimize("O3")))
#else
#define RUNG __attribute__((noinline))
#endif

/* 1. The definition: a row of A by a column of B. Each step reads another cache line of B and waits for the sum of the step
 * before. */
RUNG static void naive(const float *a, const float *b, float *c)
{
    for (int i = 0; i < LADDER_M; i++)
        for (int j = 0; j < LADDER_N; j++) {
            float sum = 0;
            for (int k = 0; k < LADDER_K; k++) sum = fmaf(a[i * LADDER_K + k], b[k * LADDER_N + j], sum);
            c[i * LADDER_N + j] = sum;
        }
}

/* 2. The loops in another order, along rows of B and C: whole cache lines are read and the sums are independent, but C is
 * loaded and stored at every step. The bits are the same: each element is still summed in ascending k. */
RUNG static void row_by_row(const float *a, const float *b, float *c)
{
    memset(c, 0, sizeof(float) * LADDER_M * LADDER_N);
    for (int i = 0; i < LADDER_M; i++)
        for (int k = 0; k < LADDER_K; k++)
            for (int j = 0; j < LADDER_N; j++)
                c[i * LADDER_N + j] = fmaf(a[i * LADDER_K + k], b[k * LADDER_N + j], c[i * LADDER_N + j]);
}

/* 3. A tile of C stays in local sums over all of k: 4 x 32, in registers where the instruction set has enough. */
RUNG static void blocked(const float *a, const float *b, float *c)
{
    enum { R = 4, W = 32 };
    _Static_assert(LADDER_M % R == 0 && LADDER_N % W == 0, "whole tiles");
    for (int j = 0; j < LADDER_N; j += W)
        for (int i = 0; i < LADDER_M; i += R) {
            float sum[R][W] = {{0}};
            for (int k = 0; k < LADDER_K; k++)
                for (int r = 0; r < R; r++)
                    for (int w = 0; w < W; w++)
                        sum[r][w] = fmaf(a[(i + r) * LADDER_K + k], b[k * LADDER_N + j + w], sum[r][w]);
            for (int r = 0; r < R; r++) memcpy(&c[(i + r) * LADDER_N + j], sum[r], sizeof sum[r]);
        }
}

typedef void (*rung_fn)(const float *a, const float *b, float *c);
static const struct {
    const char *name;
    rung_fn fn;
} RUNGS[] = {{"naive", naive}, {"row by row", row_by_row}, {"blocked", blocked}};

static double best_seconds(rung_fn fn, const an_cpu_kernels *isa, const an_gemm_spec *s, float *const abc[3],
                           void *scratch)
{
    double best = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = an_seconds();
        if (fn)
            fn(abc[0], abc[1], abc[2]);
        else
            isa->gemm(s, (void *const[]){abc[0], abc[1], abc[2]}, scratch, NULL, NULL);
        best = AN_MIN(best, an_seconds() - begin);
    }
    return best;
}

static void ladder(void)
{
    const size_t c_bytes = sizeof(float) * LADDER_M * LADDER_N;
    float *first = memory(c_bytes);
    float *abc[3] = {memory(sizeof(float) * LADDER_M * LADDER_K), memory(sizeof(float) * LADDER_K * LADDER_N),
                     memory(c_bytes)};
    fill(abc[0], LADDER_M * LADDER_K);
    fill(abc[1], LADDER_K * LADDER_N);
    an_gemm_spec s = {.m = LADDER_M, .n = LADDER_N, .k = LADDER_K, .nb = {1, 1, 1}};
    s.a_m = LADDER_K, s.a_k = 1, s.b_k = LADDER_N, s.b_n = 1, s.c_m = LADDER_N;
    s.a_dtype = s.b_dtype = s.c_dtype = s.mul_dtype = AN_F32;
    int n;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
#ifdef __x86_64__
    if (!an_cpu_kernels_find("avx2")) {
        fprintf(stderr, "bench_gemm: the ladder needs AVX2\n");
        exit(1);
    }
#endif
    printf("%d x %d x %d, f32, 1 thread, best of %d\n", LADDER_M, LADDER_K, LADDER_N, ROUNDS);
    for (int rung = 0; rung < (int)AN_COUNT(RUNGS) + n; rung++) {
        const int set = (int)AN_COUNT(RUNGS) + n - 1 - rung; /* the best last */
        const bool plain = rung < (int)AN_COUNT(RUNGS);
        if (!plain && !an_cpu_kernels_find(sets[set]->isa)) continue;
        const an_cpu_kernels *isa = plain ? an_cpu_kernels_find(NULL) : sets[set];
        const size_t scratch_bytes = isa->gemm_scratch(&s, 1);
        void *scratch = memory(scratch_bytes);
        const double seconds = best_seconds(plain ? RUNGS[rung].fn : NULL, isa, &s, abc, scratch);
        const double rate = 2e-9 * LADDER_M * LADDER_N * LADDER_K / seconds, peak = isa->fma_peak(NULL, AN_F32, 0.05);
        if (rung == 0) memcpy(first, abc[2], c_bytes);
        printf("%-12s %8.2f ms %8.1f GFLOP/s %5.1f %% of the peak of %-10s %s\n", plain ? RUNGS[rung].name : "library",
               1e3 * seconds, rate, 100 * rate / peak, isa->isa,
               memcmp(first, abc[2], c_bytes) ? "OTHER BITS" : "same bits");
        an_pages_free(scratch, scratch_bytes);
    }
}

int main(int argc, char **argv)
{
    options o = {an_cpu_kernels_find(NULL), NULL, NULL, NULL, 0, 0.004, INT64_C(8) << 18, false, false};
    int option;
    bool climb = false;
    while ((option = getopt(argc, argv, "i:t:s:p:k:d:r:wbl")) != -1) {
        if (option == 'i') o.isa = an_cpu_kernels_find(optarg);
        if (option == 't') o.threads = atoi(optarg);
        if (option == 's') o.seconds = atof(optarg) * 1e-3;
        if (option == 'p') o.preset = optarg;
        if (option == 'k') o.kind = optarg;
        if (option == 'd') o.dtype = optarg;
        if (option == 'r') o.rotated = atoll(optarg) << 18;
        if (option == 'w') o.clock = true;
        if (option == 'b') o.best = true;
        if (option == 'l') climb = true;
        if (option == '?' || !o.isa) {
            fprintf(stderr, "usage: bench_gemm [-i isa that runs here] [-t threads] [-s ms] [-p preset] [-k fwd|dX|dW] "
                            "[-d f32|bf16] [-r MiB] [-w] [-b] [-l]\n");
            return 2;
        }
    }
    if (climb) {
        ladder();
        return 0;
    }
    for (int threads = o.threads ? o.threads : 1; threads <= (o.threads ? o.threads : an_cores_available());
         threads++) {
        options each = o;
        each.threads = threads;
        table(&each);
    }
    return 0;
}
