/* attn_tile.h: the small pieces of which attn.c makes both directions of attention: packing rows of a view, and the
 * register-tiled GEMM of two packed panels. (Masks: the causal one is attn.c's, that of dropout dropout_mask.h's.)
 *
 * Owns:      nothing; everything here is a static function on the caller's scratch.
 * Does not:  know heads, blocks or threads.
 * Invariant: every element of a GEMM is one accumulation of fused multiply-adds over ascending k that starts at 0 or at the value in memory,
 *            whatever the tiling, so that instruction sets of any width agree bit for bit.
 *
 * A panel is an array of 32-bit words. With f32 multiplication a word is a float; with bf16 dot products it is a pair of bf16
 * numbers, neighbours along the summed axis, lower half first. One kernel then serves both: only the multiply differs.
 */
#ifndef AN_KERNELS_CPU_ATTN_TILE_H
#define AN_KERNELS_CPU_ATTN_TILE_H

#include "base/base.h"
#include "kernels/cpu/attn_vec.h"
#if AN_TILES
#include "kernels/cpu/gemm_tiles.h"
#endif

#include <string.h>

enum {
    BLOCK = 64,                   /* keys and queries of one score tile: AN_ATTN_KEYS, and the same for queries */
    GROUP = AN_TILES ? 16 : 8,    /* what a causal mask skips comes in this many rows, on every set of vectors */
    ROWS_UP = AN_TILES ? 16 : 1,  /* rows of a panel or of sums: tile registers work on whole tiles of rows, */
    WORDS_UP = AN_TILES ? 16 : 1, /* and on whole chunks of the words that are summed over */
};

/* ---- rows of a view -------------------------------------------------------------------------------------------- */

/* Row `src` of n elements as f32, zero up to `padded`. */
static inline void load_row(float *restrict out, const void *restrict src, uint8_t dtype, int n, int padded)
{
    if (dtype == AN_F32 && n % LANES == 0) {
        for (int i = 0; i < n; i += LANES) {
            lanes_store(out + i, lanes_load((const float *)src + i));
            __asm__("" : "+r"(out)); /* else compilers call memcpy, which takes longer than a row of one vector */
        }
    } else if (dtype == AN_F32) {
        memcpy(out, src, sizeof(float) * (size_t)n);
    } else {
        const uint16_t *h = src;
        an_word *bits = (an_word *)out;
        for (int i = 0; i < n; i++) bits[i] = (an_word)h[i] << 16;
    }
    for (int i = n; i < padded; i++) out[i] = 0.0f;
}

/* A row of two halves, x * factor, turned pair by pair: a cos + b s0, b cos + a s1. */
static inline void turn_row(float *restrict out, const float *restrict x, float factor, const float *restrict cosines,
                            const float *restrict s0, const float *restrict s1, int half)
{
    typedef float vf8_at __attribute__((vector_size(32), may_alias, aligned(4)));
    int j = 0;
#if AN_VL == 16
    if (half == 8) { /* the row is one vector: x (cos, cos) + (its halves exchanged) (s0, s1) */
        const __m512 row = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(factor));
        const __m512 c = _mm512_broadcast_f32x8(_mm256_loadu_ps(cosines));
        const __m512 s = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(s0)), _mm256_loadu_ps(s1), 1);
        const __m512 other = _mm512_shuffle_f32x4(row, row, 0x4e);
        _mm512_storeu_ps(out, _mm512_add_ps(_mm512_mul_ps(c, row), _mm512_mul_ps(s, other)));
        return;
    }
#endif
    for (; j + 8 <= half; j += 8) {
        const vf8 a = *(const vf8_at *)(x + j) * factor, b = *(const vf8_at *)(x + half + j) * factor;
        const vf8 c = *(const vf8_at *)(cosines + j);
        *(vf8_at *)(out + j) = c * a + *(const vf8_at *)(s0 + j) * b;
        *(vf8_at *)(out + half + j) = c * b + *(const vf8_at *)(s1 + j) * a;
    }
    for (; j < half; j++) {
        const float a = x[j] * factor, b = x[half + j] * factor;
        out[j] = cosines[j] * a + s0[j] * b;
        out[half + j] = cosines[j] * b + s1[j] * a;
    }
}

/* Nearest even, as the upper half of a word; a NaN stays one. */
static inline an_word bf16_bits(an_word x)
{
    an_word rounded = x + 0x7fffu + ((x >> 16) & 1u);
    return ((x & 0x7fffffffu) > 0x7f800000u ? x | 0x00400000u : rounded) & 0xffff0000u;
}

static inline void round_row(float *row, int n)
{
    an_word *bits = (an_word *)row;
    for (int i = 0; i < n; i++) bits[i] = bf16_bits(bits[i]);
}

static inline void store_row(void *restrict dst, uint8_t dtype, const float *restrict row, float factor, int n)
{
    if (dtype == AN_F32) {
        float *out = dst;
        int i = 0;
        for (; i + LANES <= n; i += LANES) lanes_store(out + i, lanes_scale(lanes_load(row + i), factor));
        for (; i < n; i++) out[i] = row[i] * factor;
        return;
    }
    uint16_t *out = dst;
    for (int i = 0; i < n; i++) {
        float x = row[i] * factor;
        an_word bits;
        memcpy(&bits, &x, sizeof bits);
        out[i] = (uint16_t)(bf16_bits(bits) >> 16);
    }
}

/* The same with tile registers' zeros for subnormal numbers, so that vectors of any width give the same words. */
static inline an_word narrow_bits(an_word x)
{
    return AN_TILES && (x & 0x7f800000u) == 0 ? x & 0x80000000u : bf16_bits(x);
}

/* n floats to (n+1)/2 words, each a pair of neighbours, the last one with 0 when n is odd. */
static inline void narrow_row(an_word *restrict out, const float *restrict row, int n)
{
    const an_word *bits = (const an_word *)row;
    int i = 0;
    for (; i + 2 * AN_VL <= n; i += 2 * AN_VL)
        vu_store(out + i / 2, vu_narrow(vf_load(row + i), vf_load(row + i + AN_VL)));
    for (; i < n; i += 2) out[i / 2] = narrow_bits(bits[i]) >> 16 | (i + 1 < n ? narrow_bits(bits[i + 1]) : 0);
}

/* Two rows to one row of pairs (even[i], odd[i]). */
static inline void pair_rows(an_word *restrict out, const float *even, const float *odd, int n)
{
    for (int i = 0; i < n; i += AN_VL) vu_store(out + i, vu_pair(vf_load(even + i), vf_load(odd + i)));
}

/* The same of two rows that are bf16 already. */
static inline void pair_halves(an_word *restrict out, const an_half *restrict even, const an_half *restrict odd, int n)
{
    for (int i = 0; i < n; i++) out[i] = even[i] | (an_word)odd[i] << 16;
}

/* src [64, ld] words to out [width, 64]; width and ld are multiples of 16. */
static inline void transpose(an_word *out, const an_word *src, int64_t ld, int width)
{
    for (int row = 0; row < BLOCK; row += AN_VL)
        for (int col = 0; col < width; col += AN_VL) {
            vu r[AN_VL];
            AN_UNROLL for (int i = 0; i < AN_VL; i++) r[i] = vu_load(src + (row + i) * ld + col);
            vu_transpose(r);
            AN_UNROLL for (int i = 0; i < AN_VL; i++) vu_store(out + (int64_t)(col + i) * BLOCK + row, r[i]);
        }
}

/* ---- GEMM ------------------------------------------------------------------------------------------------------ */

#if AN_TILES
AN_INLINE void tiles_begin(void)
{
    tiles_configure(TILE_ROWS);
}
AN_INLINE void tiles_end(void)
{
    tiles_release();
}

/* even and odd rows of f32 [2 words, 64] to pairs of bf16 [64, 32]: word w of row j is (rows[2w][j], rows[2w + 1][j]). `words` is
 * a multiple of 16. */
static void pair_columns(an_word *out, const float *rows, int words)
{
    for (int j = 0; j < BLOCK; j += AN_VL)
        for (int word = 0; word < words; word += AN_VL) {
            vu square[AN_VL];
            AN_UNROLL for (int i = 0; i < AN_VL; i++)
            {
                const float *even = rows + (int64_t)2 * (word + i) * BLOCK + j;
                square[i] = vu_pair(vf_load(even), vf_load(even + BLOCK));
            }
            vu_transpose(square);
            AN_UNROLL for (int i = 0; i < AN_VL; i++) vu_store(out + (int64_t)(j + i) * (BLOCK / 2) + word, square[i]);
        }
}

/* c[m, n] = (load ? c : 0) + a[m, k] * b[k, n], n a multiple of 16, k in words. Rows of a and c up to a multiple of 16, and
 * words of k, are in their panels: the former are anything, the latter zeros in a and numbers in b. */
static void gemm_rows(bool bf16, int m, int n, int64_t k, const an_word *a, int64_t lda, const an_word *b, int64_t ldb,
                      float *c, int64_t ldc, bool load)
{
    (void)bf16;
    const int64_t chunks = an_ceil_div(k, TILE_SIDE);
    for (int i = 0; i < m; i += TILE_ROWS) {
        const int64_t rows = m - i > TILE_SIDE ? TILE_ROWS : TILE_SIDE;
        for (int j = 0; j < n; j += PANEL)
            tiles_multiply(rows, n - j >= PANEL, chunks, a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, load);
    }
}
#else
static inline void tiles_begin(void) {}
static inline void tiles_end(void) {}

/* How a tile multiplies. Words of BY_ROUNDED are f32 rounded to bf16; the odd one of two neighbouring k is added first, as the dot product
 * instruction of BY_PAIRS adds, so that both give the same bits (but for subnormal operands and sums, which the instruction takes as zeros). */
typedef enum tile_kind { BY_F32, BY_ROUNDED, BY_PAIRS } tile_kind;

AN_INLINE vf multiply_add(const tile_kind kind, vf a, vf b, vf sum)
{
    return kind == BY_PAIRS ? vf_dot(a, b, sum) : vf_fma(a, b, sum);
}

/* acc[mr, nv vectors] += a[i*sm] * b[j], of one k. */
AN_INLINE void add_products(const tile_kind kind, int mr, int nv, const an_word *a, int64_t sm, const an_word *b,
                            vf acc[AN_MR_LONG][AN_NV])
{
    vf row[AN_NV];
    AN_UNROLL for (int j = 0; j < nv; j++) row[j] = (vf)vu_load(b + j * AN_VL);
    AN_UNROLL for (int i = 0; i < mr; i++)
    {
        const vf value = (vf)vu_set(a[i * sm]);
        AN_UNROLL for (int j = 0; j < nv; j++) acc[i][j] = multiply_add(kind, value, row[j], acc[i][j]);
    }
}

/* One register tile: c[mr, nv vectors] = (load ? c : 0) + sum over k of a[i*sm + k*sk] * b[k*ldb + j]. */
AN_INLINE void micro(const tile_kind kind, int mr, int nv, int64_t k, const an_word *a, int64_t sm, int64_t sk,
                     const an_word *b, int64_t ldb, float *c, int64_t ldc, bool load)
{
    vf acc[AN_MR_LONG][AN_NV];
    AN_UNROLL for (int i = 0; i < mr; i++)
    {
        AN_UNROLL for (int j = 0; j < nv; j++) acc[i][j] = load ? vf_load(c + i * ldc + j * AN_VL) : vf_set(0.0f);
    }
    for (; kind == BY_ROUNDED && k >= 2; k -= 2, a += 2 * sk, b += 2 * ldb) {
        add_products(kind, mr, nv, a + sk, sm, b + ldb, acc);
        add_products(kind, mr, nv, a, sm, b, acc);
    }
    for (int64_t x = 0; x < k; x++, a += sk, b += ldb) add_products(kind, mr, nv, a, sm, b, acc);
    AN_UNROLL for (int i = 0; i < mr; i++)
    {
        AN_UNROLL for (int j = 0; j < nv; j++) vf_store(c + i * ldc + j * AN_VL, acc[i][j]);
    }
}

AN_INLINE void strip(const tile_kind kind, int nv, int m, int64_t k, const an_word *a, int64_t sm, int64_t sk,
                     const an_word *b, int64_t ldb, float *c, int64_t ldc, bool load)
{
    int i = 0;
#if AN_MR_LONG > AN_MR
    for (; m - i >= AN_MR_LONG && m - i != 2 * AN_MR; i += AN_MR_LONG)
        micro(kind, AN_MR_LONG, nv, k, a + i * sm, sm, sk, b, ldb, c + i * ldc, ldc, load);
#endif
    for (; i + AN_MR <= m; i += AN_MR) micro(kind, AN_MR, nv, k, a + i * sm, sm, sk, b, ldb, c + i * ldc, ldc, load);
#if AN_MR_LONG > AN_MR
    if (m - i == 3) {
        micro(kind, 3, nv, k, a + i * sm, sm, sk, b, ldb, c + i * ldc, ldc, load);
        return;
    }
#endif
    for (; i < m; i++) micro(kind, 1, nv, k, a + i * sm, sm, sk, b, ldb, c + i * ldc, ldc, load);
}

AN_INLINE void panels(const tile_kind kind, int m, int n, int64_t k, const an_word *a, int64_t sm, int64_t sk,
                      const an_word *b, int64_t ldb, float *c, int64_t ldc, bool load)
{
    int j = 0;
    for (; j + AN_NV * AN_VL <= n; j += AN_NV * AN_VL)
        strip(kind, AN_NV, m, k, a, sm, sk, b + j, ldb, c + j, ldc, load);
    for (; j < n; j += LANES) strip(kind, LANES / AN_VL, m, k, a, sm, sk, b + j, ldb, c + j, ldc, load);
}

/* c[m, n] = (load ? c : 0) + a[m, k] * b[k, n], n a multiple of 16, k in words. */
static void gemm_rows(bool bf16, int m, int n, int64_t k, const an_word *a, int64_t lda, const an_word *b, int64_t ldb,
                      float *c, int64_t ldc, bool load)
{
    if (bf16)
        panels(AN_BF16_DOT ? BY_PAIRS : BY_ROUNDED, m, n, k, a, lda, 1, b, ldb, c, ldc, load);
    else
        panels(BY_F32, m, n, k, a, lda, 1, b, ldb, c, ldc, load);
}

/* The same with a transposed: a[k, m], rows of 64 words, as score tiles have. */
static void gemm_columns(bool bf16, int m, int n, int64_t k, const an_word *a, const an_word *b, int64_t ldb, float *c,
                         int64_t ldc)
{
    if (bf16)
        panels(AN_BF16_DOT ? BY_PAIRS : BY_ROUNDED, m, n, k, a, 1, BLOCK, b, ldb, c, ldc, true);
    else
        panels(BY_F32, m, n, k, a, 1, BLOCK, b, ldb, c, ldc, true);
}
#endif

/* Dot product of two rows in 16 lanes of fused multiply-adds and the tree; n is a multiple of 16. */
static inline float dot_rows(const float *a, const float *b, int n)
{
    lanes sum = lanes_set(0.0f);
    for (int i = 0; i < n; i += LANES) sum = lanes_fma(lanes_load(a + i), lanes_load(b + i), sum);
    return lanes_sum(sum);
}

#endif
