/* exact_bits.c: prints one hash a function of base/exact.h, over the inputs of exact_cases.h. Exits with 1
 * when one is not the pinned one. exact_bits.sh builds it with every compiler, optimisation level and machine at hand;
 * exact_bits.cu does the same on a GPU.
 *
 * `exact_bits flush` does it with the processor set to flush subnormal numbers, which must change nothing in a GPU's text
 * (AN_KEEPS_SUBNORMALS=0), and makes a CPU's text (=1) give a GPU's bits. */
#include "base/exact.h"
#include "exact_cases.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
static void flush_subnormals(void)
{
    _mm_setcsr(_mm_getcsr() | 0x8040);
}
#elif defined(__aarch64__)
static void flush_subnormals(void)
{
    unsigned long long fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | 1ull << 24));
}
#else
#error "say here how this processor flushes subnormal numbers"
#endif

enum { BLOCK = 1024 };

/* In blocks, so that the loop is one the compiler vectorises, as in a rendered kernel. */
#define DEFINE(name, pinned, result)                                                                                   \
    static void block_##name(an_u32 first, const float *restrict xs, const float *restrict ys, an_u32 *restrict out)   \
    {                                                                                                                  \
        for (an_u32 j = 0; j < BLOCK; j++) {                                                                           \
            float x = xs[j], y = ys[j];                                                                                \
            an_u32 i = first + j;                                                                                      \
            out[j] = result;                                                                                           \
            (void)x, (void)y, (void)i;                                                                                 \
        }                                                                                                              \
    }
EXACT_CASES(DEFINE)

typedef void (*block_fn)(an_u32, const float *restrict, const float *restrict, an_u32 *restrict);

static unsigned long long hash_case(block_fn f)
{
    static float x[BLOCK], y[BLOCK];
    static an_u32 out[BLOCK];
    unsigned long long sum = 0;
    for (an_u32 first = 0; first < CASE_INPUTS; first += BLOCK) {
        for (an_u32 j = 0; j < BLOCK; j++) x[j] = case_x(first + j), y[j] = case_y(first + j);
        f(first, x, y, out);
        for (an_u32 j = 0; j < BLOCK; j++) sum += case_mix(first + j, out[j]);
    }
    return sum;
}

static int report(const char *name, unsigned long long hash, unsigned long long pinned)
{
    printf("%-10s %016llx%s\n", name, hash, hash == pinned ? "" : " DIFFERS");
    return hash != pinned;
}

static int report_reductions(void)
{
    static float row[1500];
    unsigned long long sums = 0, maxima = 0;
    for (an_u32 r = 0; r < CASE_ROWS; r++) {
        an_u32 n = case_row_length(r);
        for (an_u32 j = 0; j < n; j++) row[j] = case_row_item(r, j);
        sums += case_mix(r, AN_F2U(an_sum_r(row, n)));
        maxima += case_mix(r, AN_F2U(an_max_r(row, n)));
    }
    return report("sum", sums, CASE_SUM_HASH) + report("max", maxima, CASE_MAX_HASH);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "flush") == 0) flush_subnormals();
    int wrong = 0;
#define REPORT(name, pinned, result) wrong += report(#name, hash_case(block_##name), pinned);
    EXACT_CASES(REPORT)
    wrong += report_reductions();
    return wrong != 0;
}
