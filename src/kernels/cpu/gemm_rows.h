/* gemm_rows.h: a few rows of A times a B that is contiguous along k (a layer's weights, [n,k]), as when text is generated a token at a
 * time. All of B is read once, and reading it should be all that takes time: nothing is packed.
 *
 *          k: one vector               transposed in registers            rows of A
 *     n  [ b00 b01 b02 .. ]            [ b00 b10 b20 .. ]  k     sum += a[k] * [ b00 b10 b20 .. ]
 *        [ b10 b11 b12 .. ]   ----->   [ b01 b11 b21 .. ]  k+1   sum += a[k+1] * [ b01 b11 b21 .. ]
 *        [ ..             ]            [ ..             ]        ..
 *
 * Owns:      the loop over k of AN_VL columns for one or up to four rows.
 * Does not:  know C: sums are written as whole vectors; padding is the caller's.
 * Invariant: the same words in the same order as gemm_pack.h packs and gemm_micro.h multiplies: the same bits.
 *
 * Of 16-bit B a vector of 32-bit words is transposed, each a pair of neighbours in k, and taken apart afterwards: half the
 * shuffles of transposing f32. */
#ifndef AN_KERNELS_CPU_GEMM_ROWS_H
#define AN_KERNELS_CPU_GEMM_ROWS_H

#include "kernels/cpu/gemm_pack.h"

enum { DIRECT_ROWS = 4 };

typedef uint32_t vu_at2 __attribute__((vector_size(4 * AN_VL), may_alias, aligned(2)));

/* sum[r] += a[r] * b for word `at` of each row of A. */
AN_INLINE void direct_add(const int rows, const an_word *const *a, int64_t at, vu b, const bool dot, vf *sum)
{
    AN_UNROLL for (int r = 0; r < rows; r++)
    {
        const vf left = (vf)vu_set(a[r][at]);
        sum[r] = dot ? vf_dot(left, (vf)b, sum[r]) : vf_fma(left, (vf)b, sum[r]);
    }
}

/* A square of AN_VL columns from word w on, all of it inside B; returns the words of k it covered. */
AN_INLINE int64_t direct_square(const int rows, const an_word *const *a, const uint8_t *p, int64_t row_bytes, int64_t w,
                                const word_kind kind, const uint8_t dtype, vf *sum)
{
    const bool halves = dtype == AN_BF16 && kind != WORD_PAIR; /* a pair is two words */
    const int first = kind == WORD_ROUNDED;                    /* WORD_ROUNDED: the odd k of a pair first */
    p += w * (dtype == AN_F32 || kind == WORD_PAIR ? 4 : 2);
    vu square[AN_VL];
    AN_UNROLL for (int i = 0; i < AN_VL; i++)
    {
        const uint8_t *at = p + i * row_bytes;
        prefetch(at, AN_VL * row_bytes);
        square[i] = dtype == AN_F16 ? (vu)load_one_vector(at, 0, AN_F16) : (vu) * (const vu_at2 *)(const void *)at;
    }
    vu_transpose(square);
    AN_UNROLL for (int i = 0; i < AN_VL; i++)
    {
        if (halves) {
            const vu low = square[i] << 16, high = square[i] & 0xffff0000u;
            direct_add(rows, a, w + 2 * i, first ? high : low, false, sum);
            direct_add(rows, a, w + 2 * i + 1, first ? low : high, false, sum);
        } else {
            const vu b = square[i ^ first];
            direct_add(rows, a, w + i, kind == WORD_ROUNDED ? vu_round_bf16((vf)b) : b, kind == WORD_PAIR, sum);
        }
    }
    return halves ? 2 * AN_VL : AN_VL;
}

/* The same from word w on where the square may reach beyond B: AN_VL words at most, as packing makes them. */
AN_INLINE void direct_edge(const int rows, const an_word *const *a, const operand *b, int64_t x, int64_t w,
                           int64_t words, const word_kind kind, const uint8_t dtype, vf *sum)
{
    vu square[AN_VL];
    for (int i = 0; i < AN_VL; i++) square[i] = x + i < b->x ? words_along_k(b, x + i, w, kind, dtype) : (vu){0};
    vu_transpose(square);
    for (int i = 0; i < AN_VL && w + i < words; i++) direct_add(rows, a, w + i, square[i], kind == WORD_PAIR, sum);
}

/* c[r][0 .. AN_VL) = sum over all `words` of k, for the columns from x on and `rows` rows, 1 or DIRECT_ROWS. */
AN_INLINE void direct_columns(const int rows, const an_word *const *a, const operand *o, int64_t x, int64_t words,
                              const word_kind kind, const uint8_t dtype, vf *sum)
{
    const operand copy = *o, *const b = &copy;
    const int64_t size = dtype == AN_F32 ? 4 : 2, row_bytes = b->along_x * size;
    const int64_t per = dtype == AN_BF16 ? 2 * AN_VL : AN_VL; /* elements of k of a square */
    const uint8_t *p = b->p + x * row_bytes;
    AN_UNROLL for (int r = 0; r < rows; r++) sum[r] = (vf){0};
    int64_t w = 0;
    if (x + AN_VL <= b->x)
        for (int64_t k = 0; k + per <= b->k; k += per) w += direct_square(rows, a, p, row_bytes, w, kind, dtype, sum);
    for (; w < words; w += AN_VL) direct_edge(rows, a, b, x, w, words, kind, dtype, sum);
}

#define DIRECT(name, rows, kind, dtype)                                                                                \
    static void name(const an_word *const *a, const operand *b, int64_t x, int64_t words, vf *sum)                     \
    {                                                                                                                  \
        direct_columns(rows, a, b, x, words, kind, dtype, sum);                                                        \
    }
#define DIRECT_BOTH(name, kind, dtype) DIRECT(name##_1, 1, kind, dtype) DIRECT(name##_4, DIRECT_ROWS, kind, dtype)
DIRECT_BOTH(direct_f32, WORD_F32, AN_F32)
DIRECT_BOTH(direct_f16, WORD_F32, AN_F16)
DIRECT_BOTH(direct_bf16_as_f32, WORD_F32, AN_BF16)
#if AN_BF16_DOT
DIRECT_BOTH(direct_pairs, WORD_PAIR, AN_BF16)
#else
DIRECT_BOTH(direct_rounded_f32, WORD_ROUNDED, AN_F32)
DIRECT_BOTH(direct_rounded_bf16, WORD_ROUNDED, AN_BF16)
#endif

typedef void (*direct_fn)(const an_word *const *a, const operand *b, int64_t x, int64_t words, vf *sum);

/* NULL: this pair is packed. */
static direct_fn direct_body(int64_t rows, word_kind kind, uint8_t dtype)
{
    const bool one = rows == 1;
    if (kind == WORD_F32 && dtype == AN_F32) return one ? direct_f32_1 : direct_f32_4;
    if (kind == WORD_F32 && dtype == AN_F16) return one ? direct_f16_1 : direct_f16_4;
    if (kind == WORD_F32 && dtype == AN_BF16) return one ? direct_bf16_as_f32_1 : direct_bf16_as_f32_4;
#if AN_BF16_DOT
    if (kind == WORD_PAIR && dtype == AN_BF16) return one ? direct_pairs_1 : direct_pairs_4;
#else
    if (kind == WORD_ROUNDED && dtype == AN_F32) return one ? direct_rounded_f32_1 : direct_rounded_f32_4;
    if (kind == WORD_ROUNDED && dtype == AN_BF16) return one ? direct_rounded_bf16_1 : direct_rounded_bf16_4;
#endif
    return NULL;
}

#endif
