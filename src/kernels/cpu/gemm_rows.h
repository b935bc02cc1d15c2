/* gemm_rows.h: a few rows of A times a B that is contiguous along k (a layer's weights, [n,k]), as when text is generated a token at a
 * time. All of B is read once, and reading it should be all that takes time: nothing is packed.
 *
 *          k: one vector               transposed in registers            rows of A
 *     n  [ b00 b01 b02 .. ]            [ b00 b10 b20 .. ]  k     sum += a[k] * [ b00 b10 b20 .. ]
 *        [ b10 b11 b12 .. ]   ----->   [ b01 b11 b21 .. ]  k+1   sum += a[k+1] * [ b01 b11 b21 .. ]
 *        [ ..             ]            [ ..             ]        ..
 *
 * Owns:      the loop over k of AN_VL columns (AVX2, one row: of 16) for one or up to four rows.
 * Does not:  know C but for where a panel of it is.
 * Invariant: the same words in the same order as gemm_pack.h packs and gemm_micro.h multiplies: the same bits.
 *
 * Of 16-bit B a vector of 32-bit words is transposed, each a pair of neighbours in k, and taken apart afterwards: half the
 * shuffles of transposing f32. With AVX2 a stripe of four words takes the place of a square: its shuffles stay within the halves of
 * a register, and the stripes of 16 columns fit the registers, so that two chains of multiply-adds run for one row of A. */
#ifndef AN_KERNELS_CPU_GEMM_ROWS_H
#define AN_KERNELS_CPU_GEMM_ROWS_H

#include "kernels/cpu/gemm_micro.h"
#include "kernels/cpu/gemm_pack.h"

enum { DIRECT_ROWS = 4, DIRECT_VECS = AN_VL == 8 ? 2 : 1 };

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

/* A square of AN_VL columns from word w on, all of it inside B; returns the words of k it covered. `ahead`: bytes to the columns that are
 * prefetched, 0 where there are none (beyond B there need be no page: gemm_pack.h). */
AN_INLINE int64_t direct_square(const int rows, const an_word *const *a, const uint8_t *p, int64_t row_bytes,
                                int64_t ahead, int64_t w, const word_kind kind, const uint8_t dtype, vf *sum)
{
    const bool halves = dtype == AN_BF16 && kind != WORD_PAIR; /* a pair is two words */
    const int first = kind == WORD_ROUNDED;                    /* WORD_ROUNDED: the odd k of a pair first */
    p += w * (dtype == AN_F32 || kind == WORD_PAIR ? 4 : 2);
    vu square[AN_VL];
    AN_UNROLL for (int i = 0; i < AN_VL; i++)
    {
        const uint8_t *at = p + i * row_bytes;
        prefetch(at, ahead);
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

#if AN_VL == 8
/* Distances from a row of B to the seven behind it: x86 addresses multiply a register by 2 and 4, so four are enough. */
typedef struct column_steps {
    int64_t one, three, five, seven;
} column_steps;

AN_INLINE column_steps steps_of(int64_t row_bytes)
{
    column_steps s = {row_bytes, 3 * row_bytes, 5 * row_bytes, 7 * row_bytes};
    FORGET(s.one);
    FORGET(s.three);
    FORGET(s.five);
    FORGET(s.seven);
    return s;
}

AN_INLINE int64_t step_of(const column_steps *s, const int i)
{
    return i == 6       ? s->three * 2
           : i % 2 == 0 ? s->one * i
           : i == 7     ? s->seven
           : i == 5     ? s->five
           : i == 3     ? s->three
                        : s->one;
}

typedef uint32_t vu_quarter __attribute__((vector_size(16), may_alias, aligned(2)));

/* Four words of k of eight columns. The halves of a register are columns 0 .. 3 and 4 .. 7, so that no shuffle crosses them: 16 for
 * eight words, where a square takes 24. */
AN_INLINE void load_stripe(const uint8_t *p, const column_steps *s, vu out[4])
{
    vu r[4];
    AN_UNROLL for (int i = 0; i < 4; i++)
    {
        const vu_quarter low = *(const vu_quarter *)(const void *)(p + step_of(s, i));
        const vu_quarter high = *(const vu_quarter *)(const void *)(p + step_of(s, i + 4));
        r[i] = (vu)__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    vu pairs[4]; /* words 0 and 1, or 2 and 3, of rows 0 and 1, or 2 and 3 */
    AN_UNROLL for (int i = 0; i < 2; i++)
    {
        pairs[i] = (vu)__builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[i + 2] = (vu)__builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    AN_UNROLL for (int i = 0; i < 4; i += 2)
    {
        out[i] = (vu)__builtin_shufflevector(pairs[i], pairs[i + 1], 0, 1, 8, 9, 4, 5, 12, 13);
        out[i + 1] = (vu)__builtin_shufflevector(pairs[i], pairs[i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
    }
}

/* direct_square's part for all k of which whole stripes are inside B; returns the words of k it covered. */
AN_INLINE int64_t direct_stripes(const int rows, const int vecs, const an_word *const *a, const uint8_t *p,
                                 const operand *b, int64_t row_bytes, bool more, const word_kind kind,
                                 const uint8_t dtype, vf *sum)
{
    const column_steps s = steps_of(row_bytes);
    const bool halves = dtype == AN_BF16;
    const int first = kind == WORD_ROUNDED, words = halves ? 8 : 4; /* of a stripe; the odd k of a pair first */
    const uint8_t *const end = p + b->k / words * 16, *other = p + (vecs - 1) * 8 * row_bytes;
    const an_word *left[DIRECT_ROWS];
    AN_UNROLL for (int r = 0; r < rows; r++) left[r] = a[r];
    const uintptr_t line = more ? 64 : 0;
    uintptr_t next = (uintptr_t)other + (more ? (uintptr_t)(8 * row_bytes) : 0); /* the columns behind these */
    int64_t w = 0;
    for (; p < end; p += 16, other += 16, w += words) {
        vu stripe[DIRECT_VECS][4];
        FORGET(p);
        FORGET(other);
        load_stripe(p, &s, stripe[0]);
        if (vecs > 1) load_stripe(other, &s, stripe[1]);
        AN_UNROLL for (int i = 0; i < 2 * vecs; i++, next += line) __builtin_prefetch((const void *)next, 0, 2);
        AN_UNROLL for (int i = 0; i < words; i++)
        {
            const int word = halves ? i / 2 : i ^ first;
            AN_UNROLL for (int r = 0; r < rows; r++)
            {
                const vf of_a = (vf)vu_set(left[r][w + i]);
                AN_UNROLL for (int v = 0; v < vecs; v++)
                {
                    vu x = stripe[v][word];
                    if (halves) x = i % 2 == first ? (vu)(x << 16) : (vu)(x & 0xffff0000u);
                    if (!halves && kind == WORD_ROUNDED) x = vu_round_bf16((vf)x);
                    sum[v * rows + r] = vf_fma(of_a, (vf)x, sum[v * rows + r]);
                }
            }
        }
    }
    return w;
}
#endif

/* sum[v * rows + r] = sum over all `words` of k, for `vecs` vectors of columns from x on and `rows` rows. Several vectors are
 * inside B. A vector of a row is one chain of multiply-adds: with two of them one row does not wait for the latency. */
AN_INLINE void direct_columns(const int rows, const int vecs, const an_word *const *a, const operand *o, int64_t x,
                              int64_t words, const word_kind kind, const uint8_t dtype, vf *sums)
{
    const operand copy = *o, *const b = &copy;
    const int64_t size = dtype == AN_F32 ? 4 : 2, row_bytes = b->along_x * size;
    const int64_t per = dtype == AN_BF16 ? 2 * AN_VL : AN_VL; /* elements of k of a square */
    const uint8_t *p = b->p + x * row_bytes;
    vf sum[DIRECT_ROWS * DIRECT_VECS];
    AN_UNROLL for (int i = 0; i < rows * vecs; i++) sum[i] = (vf){0};
    int64_t w = 0;
    const bool more = x + 2 * vecs * AN_VL <= b->x;
    if (x + vecs * AN_VL <= b->x) {
#if AN_VL == 8
        if (dtype != AN_F16)
            w = direct_stripes(rows, vecs, a, p, b, row_bytes, more, kind, dtype, sum);
        else
#endif
            for (int64_t k = 0; k + per <= b->k; k += per) {
                int64_t covered = 0;
                AN_UNROLL for (int v = 0; v < vecs; v++) covered =
                    direct_square(rows, a, p + v * AN_VL * row_bytes, row_bytes, more ? AN_VL * row_bytes : 0, w, kind,
                                  dtype, sum + v * rows);
                w += covered;
            }
    }
    for (; w < words; w += AN_VL)
        AN_UNROLL for (int v = 0; v < vecs; v++)
            direct_edge(rows, a, b, x + v * AN_VL, w, words, kind, dtype, sum + v * rows);
    AN_UNROLL for (int i = 0; i < rows * vecs; i++) sums[i] = sum[i];
}

#define DIRECT(name, rows, vecs, kind, dtype)                                                                          \
    static void name(const an_word *const *a, const operand *b, int64_t x, int64_t words, vf *sum)                     \
    {                                                                                                                  \
        direct_columns(rows, vecs, a, b, x, words, kind, dtype, sum);                                                  \
    }
#define DIRECT_ALL(name, kind, dtype)                                                                                  \
    DIRECT(name##_1, 1, 1, kind, dtype)                                                                                \
    DIRECT(name##_wide, 1, DIRECT_VECS, kind, dtype) DIRECT(name##_4, DIRECT_ROWS, 1, kind, dtype)
DIRECT_ALL(direct_f32, WORD_F32, AN_F32)
DIRECT_ALL(direct_f16, WORD_F32, AN_F16)
DIRECT_ALL(direct_bf16_as_f32, WORD_F32, AN_BF16)
#if AN_BF16_DOT
DIRECT_ALL(direct_pairs, WORD_PAIR, AN_BF16)
#else
DIRECT_ALL(direct_rounded_f32, WORD_ROUNDED, AN_F32)
DIRECT_ALL(direct_rounded_bf16, WORD_ROUNDED, AN_BF16)
#endif

typedef void (*direct_fn)(const an_word *const *a, const operand *b, int64_t x, int64_t words, vf *sum);

/* Vectors of columns that a call of direct_body's takes: one, of a single row two, unless all their columns lie in one set of the
 * L1 cache, which has eight ways. */
AN_INLINE int64_t direct_vecs(int64_t rows, int64_t row_bytes)
{
    return rows == 1 && row_bytes % 4096 != 0 ? DIRECT_VECS : 1;
}

/* For `vecs` vectors of columns, 1, or of one row DIRECT_VECS. NULL: this pair is packed. */
static direct_fn direct_body(int64_t rows, int64_t vecs, word_kind kind, uint8_t dtype)
{
#define BODY(name) return rows > 1 ? name##_4 : vecs > 1 ? name##_wide : name##_1
    if (kind == WORD_F32 && dtype == AN_F32) BODY(direct_f32);
    if (kind == WORD_F32 && dtype == AN_F16) BODY(direct_f16);
    if (kind == WORD_F32 && dtype == AN_BF16) BODY(direct_bf16_as_f32);
#if AN_BF16_DOT
    if (kind == WORD_PAIR && dtype == AN_BF16) BODY(direct_pairs);
#else
    if (kind == WORD_ROUNDED && dtype == AN_F32) BODY(direct_rounded_f32);
    if (kind == WORD_ROUNDED && dtype == AN_BF16) BODY(direct_rounded_bf16);
#endif
#undef BODY
    return NULL;
}

/* c[rows][x0 .. x1) = up to DIRECT_ROWS rows of A times those columns of B. whole: C's rows have room for whole vectors. */
static void direct_panel(int64_t rows, const an_word *const *a, const operand *b, int64_t x0, int64_t x1, int64_t words,
                         word_kind kind, uint8_t dtype, float *c, int64_t ldc, bool whole)
{
    const int64_t wide = direct_vecs(rows, b->along_x * (dtype == AN_F32 ? 4 : 2));
    for (int64_t x = x0, vecs; x < x1; x += vecs * AN_VL) {
        vf sum[DIRECT_ROWS * DIRECT_VECS];
        vecs = x + wide * AN_VL <= x1 ? wide : 1;
        direct_body(rows, vecs, kind, dtype)(a, b, x, words, sum);
        for (int64_t i = 0; i < rows * vecs; i++) { /* row i of the first vector, or vector i of the only row */
            const int64_t from = rows == 1 ? x + i * AN_VL : x, columns = AN_MIN(x1 - from, AN_VL);
            float *to = c + (rows == 1 ? 0 : i * ldc) + from - x0;
            if (whole || columns == AN_VL)
                vf_store(to, sum[i]);
            else
                for (int64_t j = 0; j < columns; j++) to[j] = sum[i][j];
        }
    }
}

#endif
