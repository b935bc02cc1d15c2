/* gemm_micro.h: the innermost loop of GEMM: C tile [TILE_ROWS, PANEL] in registers += A rows x B panel, one multiply-add an element and a k.
 *
 * Owns:      the tile's size, and one function for every number of rows, both layouts of A, and full or narrow panels.
 * Does not:  know matrices: it is handed panels, packed or in place, and writes whole vectors; padding is the caller's.
 * Invariant: an element's multiply-adds are in ascending k, starting from +0 or, when the accumulation continues, from the value in C.
 *
 * Operands are 32-bit words: an f32, or a pair of bf16 of neighbouring k for the dot product.
 *     B is a panel, TILE_VECS * AN_VL words (narrow: AN_VL) of each k, `ldb` words apart.
 *     A is either rows (a row's words contiguous, rows `stride` words apart) or columns, [words][stride].
 *
 *     instruction set   tile      accumulators   registers
 *     AVX-512           12 x 32   24             32 (14 x 32 would leave too few for addresses)
 *     AVX2               6 x 16   12             16
 *     NEON               6 x 12   18             32 of 4 lanes
 * Each step loads TILE_VECS vectors of B and broadcasts TILE_ROWS words of A, so that loads are not the limit. */
#ifndef AN_KERNELS_CPU_GEMM_MICRO_H
#define AN_KERNELS_CPU_GEMM_MICRO_H

#include "kernels/cpu/gemm_inner_args.h"

#if AN_VL == 16
enum { TILE_ROWS = 12, TILE_VECS = 2 };
#elif AN_VL == 8
enum { TILE_ROWS = 6, TILE_VECS = 2 };
#elif defined(__ARM_NEON)
enum { TILE_ROWS = 6, TILE_VECS = 3 };
#else
enum { TILE_ROWS = 4, TILE_VECS = 2 };
#endif
enum { PANEL = TILE_VECS * AN_VL }; /* columns of a full panel */

typedef void (*micro_fn)(int64_t words, const an_word *a, int64_t stride, const an_word *b, int64_t ldb, float *c,
                         int64_t ldc, bool go_on, const prefetch_plan *next);

/* Four steps of k in one turn of the loop, in the same order: an Intel core needs it to keep both of its multiply-add units busy
 * (bench/gemm/README.md). Sanitized builds, where the time to compile counts, go without. */
#ifdef AN_SANITIZE
#define FOUR_STEPS
#elif defined(__clang__)
#define FOUR_STEPS _Pragma("clang loop unroll_count(4)")
#else
#define FOUR_STEPS _Pragma("GCC unroll 4")
#endif

/* Row offsets of A from which x86 addressing makes all others: odd multiples of the stride, scaled by 2, 4 or 8 for free.
 * Left alone, compilers keep a pointer for each row, more than there are registers. */
typedef struct row_strides {
    int64_t odd[TILE_ROWS / 2];
} row_strides;
#if defined(__x86_64__)
#define FORGET(p) __asm__("" : "+r"(p)) /* hides its origin, so that the compiler derives addresses from it */
#else
#define FORGET(p) (void)0
#endif

AN_INLINE row_strides strides_of(int64_t stride)
{
    row_strides s;
    AN_UNROLL for (int i = 0; i < TILE_ROWS / 2; i++)
    {
        s.odd[i] = (2 * i + 1) * stride * 4;
        FORGET(s.odd[i]);
    }
    return s;
}

AN_INLINE int64_t row_distance(const row_strides *s, const int r)
{
    return r == 0       ? 0
           : r % 8 == 0 ? s->odd[0] * 8
           : r % 4 == 0 ? s->odd[r / 8] * 4
           : r % 2 == 0 ? s->odd[r / 4] * 2
                        : s->odd[r / 2];
}

AN_INLINE void micro_step(const int rows, const int vecs, const a_layout layout, const bool dot, const uint8_t *a,
                          const row_strides *s, const an_word *b, vf sum[TILE_ROWS][TILE_VECS])
{
    vu right[TILE_VECS];
    AN_UNROLL for (int v = 0; v < vecs; v++) right[v] = vu_load(b + v * AN_VL);
    AN_UNROLL for (int r = 0; r < rows; r++)
    {
        const vu left = vu_set(*(const an_word *)(a + (layout == A_ROWS ? row_distance(s, r) : 4 * r)));
        AN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] =
            dot ? vf_dot((vf)left, (vf)right[v], sum[r][v]) : vf_fma((vf)left, (vf)right[v], sum[r][v]);
    }
}

AN_INLINE void micro(const int rows, const int vecs, const a_layout layout, const bool dot, int64_t words,
                     const an_word *from, int64_t stride, const an_word *b, int64_t ldb, float *c, int64_t ldc,
                     bool go_on, const prefetch_plan *next)
{
    const row_strides s = strides_of(stride);
    const int64_t on = layout == A_ROWS ? 4 : stride * 4;
    const uint8_t *a = (const uint8_t *)from;
    vf sum[TILE_ROWS][TILE_VECS];
    AN_UNROLL for (int r = 0; r < rows; r++) AN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] =
        go_on ? vf_load(c + r * ldc + v * AN_VL) : (vf){0};
    uintptr_t row = next->c, at = next->at;
    const int64_t first = words < rows ? words : rows;
    for (int64_t k = 0; k < first; k++, a += on, b += ldb, row += (uintptr_t)ldc * 4) {
        FORGET(a);
        AN_UNROLL for (int v = 0; v < vecs; v += 16 / AN_VL) __builtin_prefetch((const float *)row + v * AN_VL, 1);
        micro_step(rows, vecs, layout, dot, a, &s, b, sum);
    }
    const uintptr_t step = (uintptr_t)next->step;
    const int64_t second = first + (words - first < next->asks ? words - first : next->asks);
    uintptr_t line = next->row;
    int64_t left = next->left;
    for (int64_t k = first; k < second; k++, a += on, b += ldb, at += step) {
        FORGET(a);
        __builtin_prefetch((const void *)line, 0, 2);
        __builtin_prefetch((const void *)at, 0, 2);
        line += (uintptr_t)next->apart;
        if (--left == 0) {
            line += 64 - (uintptr_t)(next->rows * next->apart);
            left = next->rows;
        }
        micro_step(rows, vecs, layout, dot, a, &s, b, sum);
    }
    FOUR_STEPS for (int64_t k = second; k < words; k++, a += on, b += ldb, at += step)
    {
        FORGET(a);
        __builtin_prefetch((const void *)at, 0, 2);
        micro_step(rows, vecs, layout, dot, a, &s, b, sum);
    }
    AN_UNROLL for (int r = 0; r < rows; r++) AN_UNROLL for (int v = 0; v < vecs; v++)
        vf_store(c + r * ldc + v * AN_VL, sum[r][v]);
}

/* Tables by [layout][narrow, full][rows - 1]: f32 sums, of f32 words or of bf16 pairs. */
#define MICRO_NAME(rows, vecs, layout, dot) micro_##rows##_##vecs##_##layout##_##dot
#define MICRO(rows, vecs, layout, dot)                                                                                 \
    static void MICRO_NAME(rows, vecs, layout, dot)(int64_t words, const an_word *a, int64_t stride, const an_word *b, \
                                                    int64_t ldb, float *c, int64_t ldc, bool go_on,                    \
                                                    const prefetch_plan *next)                                         \
    {                                                                                                                  \
        micro(rows, vecs, layout, dot, words, a, stride, b, ldb, c, ldc, go_on, next);                                 \
    }
#define MICRO_ROWS_4(X, ...)  X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__)
#define MICRO_ROWS_6(X, ...)  MICRO_ROWS_4(X, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
#define MICRO_ROWS_8(X, ...)  MICRO_ROWS_6(X, __VA_ARGS__) X(7, __VA_ARGS__) X(8, __VA_ARGS__)
#define MICRO_ROWS_10(X, ...) MICRO_ROWS_8(X, __VA_ARGS__) X(9, __VA_ARGS__) X(10, __VA_ARGS__)
#define MICRO_ROWS_12(X, ...) MICRO_ROWS_10(X, __VA_ARGS__) X(11, __VA_ARGS__) X(12, __VA_ARGS__)
#if AN_VL == 16
#define MICRO_ROWS MICRO_ROWS_12
#elif AN_VL == 8
#define MICRO_ROWS MICRO_ROWS_6
#elif defined(__ARM_NEON)
#define MICRO_ROWS MICRO_ROWS_6
#else
#define MICRO_ROWS MICRO_ROWS_4
#endif
#if AN_VL == 4 && defined(__ARM_NEON)
#define MICRO_FULL 3
#else
#define MICRO_FULL 2
#endif
#define MICRO_ENTRY(rows, vecs, layout, dot) MICRO_NAME(rows, vecs, layout, dot),
#define MICRO_KIND(dot)                                                                                                \
    MICRO_ROWS(MICRO, 1, A_ROWS, dot)                                                                                  \
    MICRO_ROWS(MICRO, 1, A_COLUMNS, dot)                                                                               \
    MICRO_ROWS(MICRO, MICRO_FULL, A_ROWS, dot)                                                                         \
    MICRO_ROWS(MICRO, MICRO_FULL, A_COLUMNS, dot)                                                                      \
    static const micro_fn MICRO_##dot[2][2][TILE_ROWS] = {                                                             \
        {{MICRO_ROWS(MICRO_ENTRY, 1, A_ROWS, dot)}, {MICRO_ROWS(MICRO_ENTRY, MICRO_FULL, A_ROWS, dot)}},               \
        {{MICRO_ROWS(MICRO_ENTRY, 1, A_COLUMNS, dot)}, {MICRO_ROWS(MICRO_ENTRY, MICRO_FULL, A_COLUMNS, dot)}},         \
    };
MICRO_KIND(0)
#if AN_BF16_DOT
MICRO_KIND(1)
#else
#define MICRO_1 MICRO_0 /* no instruction for pairs */
#endif

#endif
