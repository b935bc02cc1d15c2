/* conv_micro.h: the innermost loop of convolutions: a tile of sums in registers += lines of an image x vectors of the other operand.
 *
 * Owns:      the tile's size, and one function for every number of rows, both layouts and one or two vectors.
 * Does not:  know convolutions: it is handed runs of steps that are equally far apart in both operands.
 * Invariant: an element's multiply-adds are in the order of the runs, starting from +0 or from the value in C.
 *
 * CONV_POSITIONS: rows of the tile are positions, `stride` floats apart in the image, and a step takes the next float of each:
 *                 the next channel of a tap. The other operand is a panel of weights, [step][vectors * AN_VL].
 * CONV_TAPS:      rows of the tile are neighbouring floats of the image (tap, channel), and a step goes on by `stride`, to
 *                 the next position. The other operand is dy, `b_stride` floats from a position to the next.
 *
 *     instruction set   tile      accumulators   registers
 *     AVX-512           14 x 32   28             32
 *     AVX2               6 x 16   12             16
 *     NEON              12 x  8   24             32 of 4 lanes
 * 14 divides the lines of many images: 28, 14 and 7 pixels of MNIST's, 224 ... 7 of ImageNet's. */
#ifndef AN_KERNELS_CPU_CONV_MICRO_H
#define AN_KERNELS_CPU_CONV_MICRO_H

#include "kernels/cpu/gemm_micro.h"

#if AN_VL == 16
enum { CONV_ROWS = 14 };
#elif AN_VL == 8
enum { CONV_ROWS = 6 };
#elif defined(__ARM_NEON)
enum { CONV_ROWS = 12 };
#else
enum { CONV_ROWS = 4 };
#endif
enum { CONV_VECS = 2, CONV_PANEL = CONV_VECS * AN_VL };

typedef enum conv_layout { CONV_POSITIONS, CONV_TAPS } conv_layout;

/* `count` steps from float `a` of the image and float `b` of the other operand; of weights, step b of the panel. */
typedef struct conv_run {
    int64_t a, b, count;
} conv_run;

typedef void (*conv_fn)(const conv_run *run, int64_t n_runs, const float *a, int64_t stride, const float *b,
                        int64_t b_stride, float *c, int64_t ldc, bool go_on);

/* As row_distance (gemm_micro.h), in bytes, for more rows: what x86 addressing cannot scale from another row's. */
AN_INLINE int64_t conv_distance(const int64_t *odd, const int r)
{
    return r == 0       ? 0
           : r % 8 == 0 ? odd[r / 16] * 8
           : r % 4 == 0 ? odd[r / 8] * 4
           : r % 2 == 0 ? odd[r / 4] * 2
                        : odd[r / 2];
}

AN_INLINE void conv_tile(const int rows, const int vecs, const conv_layout layout, const conv_run *run, int64_t n_runs,
                         const float *image, int64_t stride, const float *other, int64_t b_stride, float *c,
                         int64_t ldc, bool go_on)
{
    const int64_t a_step = layout == CONV_POSITIONS ? 4 : stride * 4;
    const int64_t b_step = layout == CONV_POSITIONS ? vecs * AN_VL : b_stride;
    int64_t odd[CONV_ROWS / 2];
    AN_UNROLL for (int i = 0; i < CONV_ROWS / 2; i++)
    {
        odd[i] = (2 * i + 1) * stride * 4;
        FORGET(odd[i]);
    }
    vf sum[CONV_ROWS][CONV_VECS];
    AN_UNROLL for (int r = 0; r < rows; r++) AN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] =
        go_on ? vf_load(c + r * ldc + v * AN_VL) : (vf){0};
    for (const conv_run *last = run + n_runs; run < last; run++) {
        const uint8_t *a = (const uint8_t *)(image + run->a), *end = a + run->count * a_step;
        const float *b = other + (layout == CONV_POSITIONS ? run->b * vecs * AN_VL : run->b);
        for (; a != end; a += a_step, b += b_step) {
            FORGET(a);
            vf right[CONV_VECS];
            AN_UNROLL for (int v = 0; v < vecs; v++) right[v] = vf_load(b + v * AN_VL);
            AN_UNROLL for (int r = 0; r < rows; r++)
            {
                const vf left = vf_set(
                    *(const float *)(const void *)(a + (layout == CONV_POSITIONS ? conv_distance(odd, r) : 4 * r)));
                AN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = vf_fma(left, right[v], sum[r][v]);
            }
        }
    }
    AN_UNROLL for (int r = 0; r < rows; r++) AN_UNROLL for (int v = 0; v < vecs; v++)
        vf_store(c + r * ldc + v * AN_VL, sum[r][v]);
}

#define CONV_NAME(rows, vecs, layout) conv_##rows##_##vecs##_##layout
#define CONV_BODY(rows, vecs, layout)                                                                                  \
    static void CONV_NAME(rows, vecs, layout)(const conv_run *run, int64_t n_runs, const float *a, int64_t stride,     \
                                              const float *b, int64_t b_stride, float *c, int64_t ldc, bool go_on)     \
    {                                                                                                                  \
        conv_tile(rows, vecs, layout, run, n_runs, a, stride, b, b_stride, c, ldc, go_on);                             \
    }
#define CONV_ENTRY(rows, vecs, layout) CONV_NAME(rows, vecs, layout),
#if AN_VL == 16
#define CONV_EACH_ROWS(X, ...) MICRO_ROWS_12(X, __VA_ARGS__) X(13, __VA_ARGS__) X(14, __VA_ARGS__)
#elif AN_VL == 8
#define CONV_EACH_ROWS MICRO_ROWS_6
#elif defined(__ARM_NEON)
#define CONV_EACH_ROWS MICRO_ROWS_12
#else
#define CONV_EACH_ROWS MICRO_ROWS_4
#endif
CONV_EACH_ROWS(CONV_BODY, 1, CONV_POSITIONS)
CONV_EACH_ROWS(CONV_BODY, 2, CONV_POSITIONS)
CONV_EACH_ROWS(CONV_BODY, 1, CONV_TAPS)
CONV_EACH_ROWS(CONV_BODY, 2, CONV_TAPS)
static const conv_fn CONV_TILES[2][CONV_VECS][CONV_ROWS] = {
    /* by [layout][vectors - 1][rows - 1] */
    {{CONV_EACH_ROWS(CONV_ENTRY, 1, CONV_POSITIONS)}, {CONV_EACH_ROWS(CONV_ENTRY, 2, CONV_POSITIONS)}},
    {{CONV_EACH_ROWS(CONV_ENTRY, 1, CONV_TAPS)}, {CONV_EACH_ROWS(CONV_ENTRY, 2, CONV_TAPS)}},
};

#endif
