/* attn_scores.h: what attention does with scores, a few neighbouring queries at a time: exponentials, and with AVX-512 all of a softmax and
 * of its gradient between the products, with the scores in registers from their product to their exponential.
 *
 * Owns:      nothing; everything here is a static function on the caller's panels.
 * Does not:  know heads, blocks, dropout or threads.
 * Invariant: the operations on a score, and the order of sums, are those of attn.c's loops over whole rows, so that the bits are. */
#ifndef AN_KERNELS_CPU_ATTN_SCORES_H
#define AN_KERNELS_CPU_ATTN_SCORES_H

#include "base/exact.h"
#include "kernels/cpu/attn_tile.h"

#include <float.h>
#include <math.h>

/* Rows whose exponentials are computed together, a step of all of them after the other: an exponential is a chain of a dozen dependent
 * operations, of which a core keeps one or two vectors in flight by itself and needs four. */
enum { EXP_ROWS = AN_VL == 16 ? 4 : 2 };
enum { EXP_VECTORS = LANES / AN_VL }; /* of a row */
#define EXP_EACH AN_UNROLL for (int i = 0; i < rows * EXP_VECTORS; i++)
#define EXP_X    x[i / EXP_VECTORS].v[i % EXP_VECTORS]

/* an_exp of the lanes of rows, with its bits; `below`: of x <= 0 or a NaN, where nothing is too large. */
AN_INLINE void exp_lanes(const int rows, const bool below, lanes *x)
{
    vf t[EXP_ROWS * EXP_VECTORS], r[EXP_ROWS * EXP_VECTORS], q[EXP_ROWS * EXP_VECTORS];
    EXP_EACH t[i] = vf_fma(EXP_X, vf_set(AN_LOG2E), vf_set(AN_ROUNDER));
    EXP_EACH q[i] = t[i] - vf_set(AN_ROUNDER);
    EXP_EACH r[i] = vf_fma(q[i], vf_set(-AN_LN2), EXP_X);
    EXP_EACH r[i] = vf_fma(q[i], vf_set(AN_LN2_LO), r[i]);
    EXP_EACH q[i] = vf_fma(vf_set(AN_EXP_Q4), r[i], vf_set(AN_EXP_Q3));
    EXP_EACH q[i] = vf_fma(q[i], r[i], vf_set(AN_EXP_Q2));
    EXP_EACH q[i] = vf_fma(q[i], r[i], vf_set(AN_EXP_Q1));
    EXP_EACH q[i] = vf_fma(q[i], r[i], vf_set(AN_EXP_Q0));
    EXP_EACH q[i] = vf_fma(q[i], r[i], vf_set(1.0f));
    EXP_EACH q[i] = vf_fma(q[i], r[i], vf_set(1.0f));
#if AN_VL == 16
    EXP_EACH
    {
        const __m512 at = (__m512)EXP_X;
        const __mmask16 normal = _mm512_cmp_ps_mask(at, _mm512_set1_ps(-87.3365402f), _CMP_GE_OQ);
        const __m512i power = _mm512_maskz_add_epi32(normal, (__m512i)q[i], _mm512_slli_epi32((__m512i)t[i], 23));
        EXP_X = (vf)power;
        if (!below)
            EXP_X =
                (vf)_mm512_mask_mov_ps((__m512)EXP_X, _mm512_cmp_ps_mask(at, _mm512_set1_ps(88.7228317f), _CMP_GT_OQ),
                                       _mm512_set1_ps(AN_EXACT_INF));
        EXP_X = (vf)_mm512_mask_mov_epi32((__m512i)EXP_X, _mm512_cmp_ps_mask(at, at, _CMP_UNORD_Q),
                                          _mm512_set1_epi32(0x7fc00000));
    }
#else
    EXP_EACH
    {
        const vu large = below ? vu_set(0) : (vu)(EXP_X > vf_set(88.7228317f)),
                 normal = (vu)(EXP_X >= vf_set(-87.3365402f));
        const vu power = ((vu)q[i] + ((vu)t[i] << 23)) & normal & ~large;
        EXP_X = (vf)(power | ((vu)vf_set(AN_EXACT_INF) & large) | (vu_set(0x7fc00000u) & (vu)(EXP_X != EXP_X)));
    }
#endif
}

/* Lanes below n become -inf. */
AN_INLINE lanes lanes_hide(lanes a, int n)
{
    AN_UNROLL LANES_EACH
    {
        const vu out = (vu)((vi)vu_iota() < vi_set(n - x * AN_VL));
        a.v[x] = (vf)(((vu)a.v[x] & ~out) | ((vu)vf_set(-INFINITY) & out));
    }
    return a;
}

/* Of a row of n scores, n a multiple of 16: s = s * scale + mask, and -inf below `hidden` and from `seen` on; mask: of key j at j * step, read
 * where it is seen; NULL: nothing is added.
 * Returns the maximum of the scores and `least`. */
static inline float masked_row(float *s, int n, int hidden, int seen, float scale, const float *mask, int64_t step,
                               float least)
{
    lanes most = lanes_set(least);
    for (int j = 0; j < n; j += LANES) {
        float some[LANES];
        const bool whole = step == 1 && j + LANES <= seen;
        lanes t = lanes_scale(lanes_load(s + j), scale);
        for (int x = 0; mask && x < LANES && !whole; x++) some[x] = j + x < seen ? mask[(j + x) * step] : 0.0f;
        if (mask) t = lanes_add(t, lanes_load(whole ? mask + j : some));
        t = lanes_hide(lanes_first(t, seen - j, -INFINITY), hidden - j);
        lanes_store(s + j, t);
        most = lanes_max(t, most);
    }
    return lanes_most(most);
}

/* s[i][j] = exp((s[i][j] - most[i]) - log_sum[i]) for neighbouring rows i. */
AN_INLINE void exp_masked(const int rows, float *s, int n, const float *most, const float *log_sum)
{
    for (int j = 0; j < n; j += LANES) {
        lanes x[EXP_ROWS];
        AN_UNROLL for (int i = 0; i < rows; i++) x[i] =
            lanes_add(lanes_add(lanes_load(s + i * BLOCK + j), lanes_set(-most[i])), lanes_set(-log_sum[i]));
        exp_lanes(rows, false, x);
        AN_UNROLL for (int i = 0; i < rows; i++) lanes_store(s + i * BLOCK + j, x[i]);
    }
}

/* Scores stay in registers where there are enough of them: of four queries and 64 keys, 16 of 32. */
#define AN_IN_REGISTERS (AN_VL == 16 && !AN_TILES)
#if AN_IN_REGISTERS
enum { MOST_VECS = BLOCK / AN_VL };

/* Neighbouring queries against a block of keys. */
typedef struct queries {
    const an_word *q; /* [rows, ld] */
    int64_t ld;
    int64_t depth; /* words of a row that are summed over */
    int64_t seen;  /* keys of the block up to the last one that the first query sees; the next query sees one more */
    int n;         /* keys of the block */
    float scale;
} queries;

/* Lanes of keys [16 v, 16 v + 16) that query `row` of the group sees. */
AN_INLINE __mmask16 seen_of(const queries *w, const int row, const int v)
{
    const int64_t n = AN_MIN(w->seen + row, w->n) - v * AN_VL;
    return (__mmask16)(n <= 0 ? 0u : n >= AN_VL ? 0xffffu : (1u << n) - 1u);
}

AN_INLINE bool all_seen(const queries *w, const int vecs)
{
    return AN_MIN(w->seen, w->n) >= vecs * AN_VL;
}

/* Which word of k is added as the k-th (tile_kind). */
AN_INLINE int64_t word_of(const tile_kind kind, int64_t k, int64_t depth)
{
    return kind == BY_ROUNDED && (k ^ 1) < depth ? k ^ 1 : k;
}

/* s[rows][vecs] += a [rows] b [64], of one word of k. */
AN_INLINE void score_step(const tile_kind kind, const int rows, const int vecs, const an_word *a, int64_t ld,
                          const an_word *b, vf s[EXP_ROWS][MOST_VECS])
{
    vf right[MOST_VECS];
    AN_UNROLL for (int v = 0; v < vecs; v++) right[v] = (vf)vu_load(b + v * AN_VL);
    AN_UNROLL for (int i = 0; i < rows; i++)
    {
        const vf left = (vf)vu_set(a[i * ld]);
        AN_UNROLL for (int v = 0; v < vecs; v++) s[i][v] = multiply_add(kind, left, right[v], s[i][v]);
    }
}

/* The largest lane of each of four vectors. */
AN_INLINE __m128 most_of_four(const vf x[EXP_ROWS])
{
    __m128 z[4];
    AN_UNROLL for (int i = 0; i < 4; i++)
    {
        const __m256 y = _mm256_max_ps(_mm512_castps512_ps256((__m512)x[i]), _mm512_extractf32x8_ps((__m512)x[i], 1));
        z[i] = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    }
    const __m128 low = _mm_max_ps(_mm_unpacklo_ps(z[0], z[1]), _mm_unpackhi_ps(z[0], z[1])),
                 high = _mm_max_ps(_mm_unpacklo_ps(z[2], z[3]), _mm_unpackhi_ps(z[2], z[3]));
    return _mm_max_ps(_mm_movelh_ps(low, high), _mm_movehl_ps(high, low));
}

/* Makes m[rows] the running maxima `now`, and rescales l and o of those that grew. */
AN_INLINE void grow(const int rows, __m128 now, float *m, float *l, float *o, int width)
{
    float before[4], shrink[LANES];
    lanes x;
    AN_UNROLL for (int i = 0; i < 4; i++) before[i] = i < rows ? m[i] : 0.0f;
    x.v[0] = (vf)_mm512_zextps128_ps512(_mm_sub_ps(_mm_loadu_ps(before), now));
    exp_lanes(1, true, &x);
    lanes_store(shrink, x);
    for (int i = 0; i < rows; i++) {
        const bool grew = now[i] > before[i];
        m[i] = now[i];
        if (!grew || before[i] == -FLT_MAX) continue; /* -FLT_MAX: l and o are still zero */
        lanes_store(l + i * LANES, lanes_scale(lanes_load(l + i * LANES), shrink[i]));
        for (int d = 0; d < width; d += LANES)
            lanes_store(o + (int64_t)i * width + d, lanes_scale(lanes_load(o + (int64_t)i * width + d), shrink[i]));
    }
}

AN_INLINE void softmax_vecs(const tile_kind kind, const int rows, const int vecs, const queries *w, const an_word *kt,
                            float *m, float *l, float *o, int width, float *p)
{
    vf s[EXP_ROWS][MOST_VECS], most[EXP_ROWS], sum[EXP_ROWS];
    AN_UNROLL for (int i = 0; i < rows; i++) AN_UNROLL for (int v = 0; v < vecs; v++) s[i][v] = vf_set(0.0f);
    for (int64_t x = 0; x < w->depth; x++) {
        const int64_t k = word_of(kind, x, w->depth);
        score_step(kind, rows, vecs, w->q + k, w->ld, kt + k * BLOCK, s);
    }
    AN_UNROLL for (int i = 0; i < rows; i++) AN_UNROLL for (int v = 0; v < vecs; v++) s[i][v] *= w->scale;
    if (!all_seen(w, vecs)) {
        AN_UNROLL for (int i = 0; i < rows; i++) AN_UNROLL for (int v = 0; v < vecs; v++) s[i][v] =
            (vf)_mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen_of(w, i, v), (__m512)s[i][v]);
    }
    AN_UNROLL for (int i = 0; i < rows; i++)
    {
        most[i] = vf_set(m[i]);
        AN_UNROLL for (int v = 0; v < vecs; v++) most[i] = vf_max(s[i][v], most[i]);
    }
    const __m128 now = rows == 4 ? most_of_four(most) : _mm_set_ss(lanes_most((lanes){{most[0]}}));
    bool grew = false;
    AN_UNROLL for (int i = 0; i < rows; i++) grew |= now[i] > m[i];
    if (grew) grow(rows, now, m, l, o, width);
    AN_UNROLL for (int i = 0; i < rows; i++) sum[i] = vf_load(l + i * LANES);
    AN_UNROLL for (int v = 0; v < vecs; v++)
    {
        lanes x[EXP_ROWS];
        AN_UNROLL for (int i = 0; i < rows; i++) x[i].v[0] = s[i][v] + vf_set(-now[i]);
        exp_lanes(rows, true, x);
        AN_UNROLL for (int i = 0; i < rows; i++)
        {
            vf_store(p + i * BLOCK + v * AN_VL, x[i].v[0]);
            sum[i] += x[i].v[0];
        }
    }
    AN_UNROLL for (int i = 0; i < rows; i++) vf_store(l + i * LANES, sum[i]);
}

AN_INLINE void softmax_rows_of(const tile_kind kind, const int rows, int n, const queries *w, const an_word *kt,
                               float *m, float *l, float *o, int width, float *p)
{
    switch (n / AN_VL) {
    case 1: softmax_vecs(kind, rows, 1, w, kt, m, l, o, width, p); return;
    case 2: softmax_vecs(kind, rows, 2, w, kt, m, l, o, width, p); return;
    case 3: softmax_vecs(kind, rows, 3, w, kt, m, l, o, width, p); return;
    case 4: softmax_vecs(kind, rows, 4, w, kt, m, l, o, width, p); return;
    default: return;
    }
}

/* p [rows, 64] = exp(score - m) of `rows` (EXP_ROWS or 1) queries and n keys (a multiple of 16), m [rows] being the running maxima with
 * these scores; the 16 lane sums l [rows, 16] take p, and rows of l and o [rows, width] are rescaled where a maximum grew. */
static void softmax_group(bool bf16, int rows, int n, const queries *w, const an_word *kt, float *m, float *l, float *o,
                          int width, float *p)
{
    const tile_kind narrow = AN_BF16_DOT ? BY_PAIRS : BY_ROUNDED;
    if (bf16 && rows > 1)
        softmax_rows_of(narrow, EXP_ROWS, n, w, kt, m, l, o, width, p);
    else if (bf16)
        softmax_rows_of(narrow, 1, n, w, kt, m, l, o, width, p);
    else if (rows > 1)
        softmax_rows_of(BY_F32, EXP_ROWS, n, w, kt, m, l, o, width, p);
    else
        softmax_rows_of(BY_F32, 1, n, w, kt, m, l, o, width, p);
}

/* Columns [16 first, 16 (first + vecs)) of p and ds. */
AN_INLINE void gradient_vecs(const tile_kind kind, const int rows, const int first, const int vecs, const queries *w,
                             const an_word *g, const an_word *kt, const an_word *vt, const float *lse,
                             const float *delta, float *p, float *ds)
{
    vf s[EXP_ROWS][MOST_VECS], d[EXP_ROWS][MOST_VECS];
    kt += first * AN_VL, vt += first * AN_VL, p += first * AN_VL, ds += first * AN_VL;
    AN_UNROLL for (int i = 0; i < rows; i++) AN_UNROLL for (int v = 0; v < vecs; v++) s[i][v] = d[i][v] = vf_set(0.0f);
    for (int64_t x = 0; x < w->depth; x++) {
        const int64_t k = word_of(kind, x, w->depth);
        score_step(kind, rows, vecs, w->q + k, w->ld, kt + k * BLOCK, s);
        score_step(kind, rows, vecs, g + k, w->ld, vt + k * BLOCK, d);
    }
    AN_UNROLL for (int v = 0; v < vecs; v++)
    {
        lanes x[EXP_ROWS];
        AN_UNROLL for (int i = 0; i < rows; i++) x[i].v[0] = s[i][v] * w->scale + vf_set(-lse[i]);
        exp_lanes(rows, false, x);
        AN_UNROLL for (int i = 0; i < rows; i++)
        {
            s[i][v] = x[i].v[0];
            d[i][v] = s[i][v] * (d[i][v] - delta[i]);
        }
    }
    if (!all_seen(w, first + vecs)) {
        AN_UNROLL for (int i = 0; i < rows; i++) AN_UNROLL for (int v = 0; v < vecs; v++)
        {
            const __mmask16 in = seen_of(w, i, first + v);
            s[i][v] = (vf)_mm512_maskz_mov_ps(in, (__m512)s[i][v]);
            d[i][v] = (vf)_mm512_maskz_mov_ps(in, (__m512)d[i][v]);
        }
    }
    AN_UNROLL for (int i = 0; i < rows; i++) AN_UNROLL for (int v = 0; v < vecs; v++)
    {
        vf_store(p + i * BLOCK + v * AN_VL, s[i][v]);
        vf_store(ds + i * BLOCK + v * AN_VL, d[i][v]);
    }
}

AN_INLINE void gradient_rows(const tile_kind kind, const int rows, int n, const queries *w, const an_word *g,
                             const an_word *kt, const an_word *vt, const float *lse, const float *delta, float *p,
                             float *ds)
{
    if (n >= 2 * AN_VL) gradient_vecs(kind, rows, 0, 2, w, g, kt, vt, lse, delta, p, ds);
    if (n == AN_VL) gradient_vecs(kind, rows, 0, 1, w, g, kt, vt, lse, delta, p, ds);
    if (n == 3 * AN_VL) gradient_vecs(kind, rows, 2, 1, w, g, kt, vt, lse, delta, p, ds);
    if (n == 4 * AN_VL) gradient_vecs(kind, rows, 2, 2, w, g, kt, vt, lse, delta, p, ds);
}

/* p [rows, 64] = exp(score - lse) and ds = p (g v^T - delta) of `rows` (EXP_ROWS or 1) queries and n keys (a multiple of 16); 0 where a query
 * sees no key. g is laid out as the queries. */
static void gradient_group(bool bf16, int rows, int n, const queries *w, const an_word *g, const an_word *kt,
                           const an_word *vt, const float *lse, const float *delta, float *p, float *ds)
{
    const tile_kind narrow = AN_BF16_DOT ? BY_PAIRS : BY_ROUNDED;
    if (bf16 && rows > 1)
        gradient_rows(narrow, EXP_ROWS, n, w, g, kt, vt, lse, delta, p, ds);
    else if (bf16)
        gradient_rows(narrow, 1, n, w, g, kt, vt, lse, delta, p, ds);
    else if (rows > 1)
        gradient_rows(BY_F32, EXP_ROWS, n, w, g, kt, vt, lse, delta, p, ds);
    else
        gradient_rows(BY_F32, 1, n, w, g, kt, vt, lse, delta, p, ds);
}
#endif

#endif
