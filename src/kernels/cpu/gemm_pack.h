/* gemm_pack.h: packs operands of any dtype and stride into the words and panels that gemm_micro.h multiplies, and stores
 * finished rows of C.
 *
 * Owns:      loading and converting operands, the orders of packing, storing finished rows.
 * Does not:  choose the blocking (gemm_plan.h).
 * Invariant: words beyond an operand's edge (in k, or in the columns of a panel) are zero. No memory outside an operand
 *            is read.
 *
 * A GEMM multiplies 32-bit words of one kind:
 *     WORD_F32      one f32.
 *     WORD_PAIR     two bf16, of k and k + 1, for the bf16 dot product instruction. The instruction treats subnormal
 *                   operands as zeros, and so does packing.
 *     WORD_ROUNDED  one f32 that was rounded to bf16, where the CPU has no dot product. Words k and k + 1 are swapped,
 *                   because the instruction adds the odd k first. So both kinds give the same bits, except for
 *                   subnormal operands and sums, of which the instruction makes zeros.
 *
 * Functions take `const word_kind kind` and `const uint8_t dtype`: they are inlined into callers that pass constants, so
 * that each combination is compiled to a loop without branches on them (pack_f32_words, pack_bf16_words). */
#ifndef AN_KERNELS_CPU_GEMM_PACK_H
#define AN_KERNELS_CPU_GEMM_PACK_H

#if AN_TILES
#include "kernels/cpu/gemm_tiles.h"
#else
#include "kernels/cpu/gemm_micro.h"
#endif

#include "base/base.h"
#include "base/exact.h"

#include <string.h>

typedef enum word_kind { WORD_F32, WORD_PAIR, WORD_ROUNDED } word_kind;

/* A or B of one batch member and one split of k. Element (x, k), where x is the row of A or the column of B, is at
 * p[x * along_x + k * along_k]. Of a convolution's window (gemm_im2col.h) p is the image, and k begins at first_k. */
typedef struct operand {
    const uint8_t *p;
    int64_t x, k; /* extents: rows of A or columns of B; k */
    int64_t along_x, along_k;
    uint8_t dtype;
    const struct an_window_spec *window;
    int64_t first_k;
} operand;

typedef float an_float __attribute__((may_alias));
typedef uint16_t vh __attribute__((vector_size(2 * AN_VL)));
typedef uint16_t vh_at __attribute__((vector_size(2 * AN_VL), may_alias, aligned(2)));

/* ---- loading: float16 by exact.h, which makes no subnormal float32 on the way: exact mode flushes those --------------- */

/* AN_VL consecutive elements from p[at], as f32. */
AN_INLINE vf load_one_vector(const uint8_t *p, int64_t at, const uint8_t dtype)
{
    if (dtype == AN_F32) return vf_load((const float *)p + at);
    const an_half *h = (const an_half *)p + at;
    if (dtype == AN_BF16) return (vf)(__builtin_convertvector((vh)(*(const vh_at *)h), vu) << 16);
#if AN_VL == 16
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)h));
#elif AN_VL == 8
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)h));
#else
    vf x;
    for (int i = 0; i < AN_VL; i++) x[i] = an_f16_to_f32(h[i]);
    return x;
#endif
}

AN_INLINE float load_one(const uint8_t *p, int64_t at, const uint8_t dtype)
{
    if (dtype == AN_F32) return ((const an_float *)p)[at];
    const uint16_t h = ((const an_half *)p)[at];
    if (dtype == AN_F16) return an_f16_to_f32(h);
    union {
        uint32_t u;
        float f;
    } x = {(uint32_t)h << 16};
    return x.f;
}

/* The first `count` < AN_VL of consecutive f32; zeros in the other lanes. */
AN_INLINE vf load_first(const float *p, int64_t count)
{
#if AN_VL == 16
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
#elif AN_VL == 8
    return (vf)_mm256_maskload_ps(p, (__m256i)((vi)vu_iota() < vi_set((int32_t)count)));
#else
    vf x = {0};
    for (int64_t i = 0; i < count; i++) x[i] = p[i];
    return x;
#endif
}

/* `count` elements that are `stride` apart, from p[at]; zeros in the other lanes. count may be negative or larger than
 * AN_VL. */
AN_INLINE vf load_some(const uint8_t *p, int64_t at, int64_t stride, int64_t count, const uint8_t dtype)
{
    if (stride == 1 && count >= AN_VL) return load_one_vector(p, at, dtype);
    if (stride == 1 && dtype == AN_F32) return load_first((const float *)p + at, AN_MAX(count, 0));
    float lane[AN_VL] = {0};
    for (int64_t i = 0; i < AN_MIN(count, AN_VL); i++) lane[i] = load_one(p, at + i * stride, dtype);
    return vf_load(lane);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

AN_INLINE vu swap_neighbours(vu x)
{
#if AN_VL == 16
    return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif AN_VL == 8
    return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    return __builtin_shufflevector(x, x, 1, 0, 3, 2);
#endif
}

/* WORD_ROUNDED: nothing is left to round in elements of `dtype` bf16. (A signalling NaN among them is made quiet by the
 * multiplication instead: the same bits.) */
AN_INLINE vu rounded_words(vf x, const uint8_t dtype)
{
    return dtype == AN_BF16 ? (vu)x : vu_round_bf16(x);
}

/* Tile registers take subnormal operands as zeros themselves: pairs of bf16 are words as they lie. */
AN_INLINE bool pairs_are_words(const word_kind kind, const uint8_t dtype)
{
    return AN_TILES && kind == WORD_PAIR && dtype == AN_BF16;
}

/* Words w .. w + AN_VL - 1 of row x. */
AN_INLINE vu words_along_k(const operand *o, int64_t x, int64_t w, const word_kind kind, const uint8_t dtype)
{
    const int64_t k = kind == WORD_PAIR ? 2 * w : w, at = x * o->along_x + k * o->along_k;
    if (pairs_are_words(kind, dtype) && o->along_k == 1 && k + 2 * AN_VL <= o->k)
        return vu_load((const an_word *)(const void *)((const an_half *)o->p + at));
    const vf low = load_some(o->p, at, o->along_k, o->k - k, dtype);
    if (kind == WORD_F32) return (vu)low;
    if (kind == WORD_ROUNDED) return swap_neighbours(rounded_words(low, dtype));
    return vu_narrow(low, load_some(o->p, at + AN_VL * o->along_k, o->along_k, o->k - k - AN_VL, dtype));
}

/* Word w of rows x .. x + AN_VL - 1, of which there are `count`. */
AN_INLINE vu words_along_x(const operand *o, int64_t x, int64_t count, int64_t w, const word_kind kind,
                           const uint8_t dtype)
{
    const int64_t k = kind == WORD_PAIR ? 2 * w : kind == WORD_ROUNDED ? w ^ 1 : w;
    const int64_t at = x * o->along_x + k * o->along_k;
    const vf even = load_some(o->p, at, o->along_x, k < o->k ? count : 0, dtype);
    if (kind == WORD_F32) return (vu)even;
    if (kind == WORD_ROUNDED) return rounded_words(even, dtype);
    return vu_pair(even, load_some(o->p, at + o->along_k, o->along_x, k + 1 < o->k ? count : 0, dtype));
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* The part of an operand to pack: words [w0, w1) of rows of A, or columns of B, [x0, x1). */
typedef struct part {
    int64_t x0, x1, w0, w1;
} part;

/* While a slice of words is read, the next slice is prefetched: reads along x jump from row to row, too far for the
 * hardware prefetcher. Nothing beyond the operand is: of an unmapped page each prefetch looks up the address anew, for a hundred
 * cycles. The address is computed as an integer, because that of a second line of a row may be beyond it. */
enum { SLICE = 32 };
AN_INLINE void prefetch(const uint8_t *p, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)bytes), 0, 2);
}

/* The first `count` words of x, at most AN_VL. */
AN_INLINE void store_words(an_word *out, vu x, int64_t count)
{
    if (count >= AN_VL) {
        vu_store(out, x);
        return;
    }
#if AN_VL == 16
    _mm512_mask_storeu_epi32(out, (__mmask16)((1u << count) - 1), (__m512i)x);
#else
    for (int64_t i = 0; i < count; i++) out[i] = x[i];
#endif
}

/* AN_VL pairs of consecutive bf16 of two rows. */
AN_INLINE vu pair_words(const uint8_t *even, const uint8_t *odd)
{
    const vh low = (vh)(*(const vh_at *)(const void *)even), high = (vh)(*(const vh_at *)(const void *)odd);
    return __builtin_convertvector(low, vu) | __builtin_convertvector(high, vu) << 16;
}

/* Word w of AN_VL neighbours in x, from p. Every read is a whole vector inside the operand: nearly all words are packed
 * by this path. */
AN_INLINE vu whole_word(const operand *o, const uint8_t *p, int64_t w, const word_kind kind, const uint8_t dtype)
{
    const int64_t row = o->along_k * (dtype == AN_F32 ? 4 : 2), slice = SLICE * (kind == WORD_PAIR ? 2 : 1);
    const int64_t k = kind == WORD_PAIR ? 2 * w : kind == WORD_ROUNDED ? w ^ 1 : w;
    const int64_t ahead = k + slice < o->k ? slice : 0;
    const uint8_t *at = p + row * k;
    prefetch(at, ahead * row);
    if (pairs_are_words(kind, dtype)) {
        prefetch(at, (ahead + 1) * row);
        return pair_words(at, at + row);
    }
    const vf even = load_one_vector(at, 0, dtype);
    if (kind != WORD_PAIR) return kind == WORD_F32 ? (vu)even : rounded_words(even, dtype);
    prefetch(at, (ahead + 1) * row);
    return vu_pair(even, load_one_vector(at + row, 0, dtype));
}

/* Words q.w0 .. q.w1 - 1 of AN_VL neighbours from x on. Whole vectors are stored except for the last word, of which
 * `count` lanes are. */
AN_INLINE void pack_whole(const operand *o, int64_t x, const part q, an_word *out, int64_t width, int64_t count,
                          const word_kind kind, const uint8_t dtype)
{
    const uint8_t *p = o->p + x * (dtype == AN_F32 ? 4 : 2);
    int64_t w = q.w0;
    for (; w + 1 < q.w1; w++, out += width) vu_store(out, whole_word(o, p, w, kind, dtype));
    if (w < q.w1) store_words(out, whole_word(o, p, w, kind, dtype), count);
}

/* PACK_ALONG_X: out[w][width], for columns of A and panels of B whose elements are contiguous in x or have no unit stride.
 * width is the rows of a tile, or a multiple of AN_VL. Whole vectors are stored: lanes beyond `width` are overwritten by
 * the next word. After the last word nothing is written, because that memory may belong to another thread. */
AN_INLINE void pack_along_x(const operand *o, part q, an_word *out, int64_t width, const word_kind kind,
                            const uint8_t dtype)
{
    const int64_t vectors = an_round_up(width, AN_VL);
    if (o->along_x == 1 && q.x0 + vectors <= o->x) {
        part whole = q; /* an odd k: all words but the last */
        whole.w1 = AN_MIN(q.w1, kind == WORD_PAIR ? o->k / 2 : kind == WORD_ROUNDED ? o->k & ~INT64_C(1) : o->k);
        /* From the right: lanes of the rightmost vector beyond `width` fall on the next word and are overwritten by it. */
        for (int64_t x = vectors - AN_VL; x >= 0; x -= AN_VL)
            pack_whole(o, q.x0 + x, whole, out + x, width, width - x, kind, dtype);
        out += AN_MAX(whole.w1 - q.w0, 0) * width;
        q.w0 = AN_MAX(whole.w1, q.w0);
    }
    for (int64_t w = q.w0; w < q.w1; w++, out += width)
        for (int64_t x = 0; x < width; x += AN_VL)
            store_words(out + x, words_along_x(o, q.x0 + x, o->x - q.x0 - x, w, kind, dtype), width - x);
}

typedef void (*pack_inside_fn)(const operand *o, int64_t x, int64_t w0, int64_t w1, an_word *out, int64_t width,
                               bool more);
#if AN_VL >= 8 && !AN_TILES /* on narrower vectors not measured */
/* PACK_ALONG_X where all that is read lies inside an operand that is contiguous along x. Tiles and panels are packed a few
 * words each in turn, and what pack() prepares for a call would take as long as those words. `vectors` hold the rows of a
 * tile (1) or the columns of a panel; the last word is stored whole where the same thread writes the one behind it (`more`).
 *
 * Of rows that are far apart nothing is prefetched: all panels or tiles together read whole rows, which the hardware then sees,
 * and 32 rows ahead are another page for each (rows of 3 KiB: twice as fast without, bench/gemm/README.md). */
enum { FAR_APART = 2048 /* bytes, for one vector of a row */ };
AN_INLINE void pack_inside(const operand *o, int64_t x, int64_t w0, int64_t w1, an_word *out, int64_t width,
                           const int vectors, bool more, const word_kind kind, const uint8_t dtype)
{
    const operand copy = {.k = o->k, .along_k = o->along_k};
    const int64_t size = dtype == AN_F32 ? 4 : 2, row = o->along_k * size;
    const int64_t whole = more || width == vectors * AN_VL ? w1 : w1 - 1;
    const uint8_t *p = o->p + x * size;
    if (kind == WORD_F32 && dtype == AN_F32 && row * vectors >= FAR_APART) {
        for (int64_t w = w0; w < whole; w++, out += width)
            AN_UNROLL for (int v = 0; v < vectors; v++)
                vu_store(out + v * AN_VL, (vu)load_one_vector(p + w * row + v * AN_VL * size, 0, dtype));
        return;
    }
    for (int64_t w = w0; w < whole; w++, out += width)
        AN_UNROLL for (int v = 0; v < vectors; v++)
            vu_store(out + v * AN_VL, whole_word(&copy, p + v * AN_VL * size, w, kind, dtype));
    if (whole < w1) store_words(out, whole_word(&copy, p, whole, kind, dtype), width);
}

/* The same of a tile of f32: exactly its rows are copied, six as 16 and 8 bytes, because whole vectors would be stored over one another, and
 * read beyond the operand. */
AN_INLINE void copy_rows(const uint8_t *p, int64_t row, int64_t words, int64_t ahead, an_word *out, const size_t bytes)
{
    int64_t w = 0;
    for (; w < AN_MIN(ahead, words); w++, p += row, out += bytes / sizeof *out) {
        prefetch(p, SLICE * row);
        memcpy(out, p, bytes);
    }
    for (; w < words; w++, p += row, out += bytes / sizeof *out) memcpy(out, p, bytes);
}
static void inside_f32_tile(const operand *o, int64_t x, int64_t w0, int64_t w1, an_word *out, int64_t width, bool more)
{
    const int64_t row = o->along_k * 4, ahead = row < FAR_APART ? o->k - SLICE - w0 : 0; /* words that prefetch */
    const uint8_t *p = o->p + x * 4 + w0 * row;
    (void)more;
    if (width == TILE_ROWS)
        copy_rows(p, row, w1 - w0, ahead, out, TILE_ROWS * 4);
    else if (width == TILE_ROWS - 1)
        copy_rows(p, row, w1 - w0, ahead, out, (TILE_ROWS - 1) * 4);
    else if (TILE_ROWS > 8 && width == TILE_ROWS - 2)
        copy_rows(p, row, w1 - w0, ahead, out, (TILE_ROWS - 2) * 4);
    else
        copy_rows(p, row, w1 - w0, 0, out, (size_t)width * 4);
}

#define PACK_INSIDE(name, vectors, kind, dtype)                                                                        \
    static void name(const operand *o, int64_t x, int64_t w0, int64_t w1, an_word *out, int64_t width, bool more)      \
    {                                                                                                                  \
        pack_inside(o, x, w0, w1, out, width, vectors, more, kind, dtype);                                             \
    }
#define PACK_INSIDE_BOTH(name, kind, dtype)                                                                            \
    PACK_INSIDE(name##_tile, 1, kind, dtype) PACK_INSIDE(name##_panel, PANEL / AN_VL, kind, dtype)
PACK_INSIDE(inside_f32_panel, PANEL / AN_VL, WORD_F32, AN_F32)
#define WORD_OF_BF16 (AN_BF16_DOT ? WORD_PAIR : WORD_ROUNDED)
PACK_INSIDE_BOTH(inside_bf16_f32, WORD_OF_BF16, AN_F32)
PACK_INSIDE_BOTH(inside_bf16_bf16, WORD_OF_BF16, AN_BF16)

/* NULL: pack() is to be called. bf16: two k are packed at a time, so an odd k has a word beyond it. */
AN_INLINE pack_inside_fn pack_inside_body(const operand *o, bool panel, word_kind kind)
{
    if (o->along_x != 1 || o->window) return NULL;
    if (kind == WORD_F32 && o->dtype == AN_F32) return panel ? inside_f32_panel : inside_f32_tile;
    if (kind == WORD_F32 || o->k % 2 != 0) return NULL;
    if (o->dtype == AN_F32) return panel ? inside_bf16_f32_panel : inside_bf16_f32_tile;
    if (o->dtype == AN_BF16) return panel ? inside_bf16_bf16_panel : inside_bf16_bf16_tile;
    return NULL;
}
#else
AN_INLINE pack_inside_fn pack_inside_body(const operand *o, bool panel, word_kind kind)
{
    (void)o, (void)panel, (void)kind;
    return NULL;
}
#endif

/* PACK_TRANSPOSED: the same layout for operands that are contiguous in k; width is a multiple of AN_VL. Squares of AN_VL
 * by AN_VL words are transposed in registers. */
AN_INLINE void pack_transposed(const operand *o, const part q, an_word *out, int64_t width, const word_kind kind,
                               const uint8_t dtype)
{
    const int64_t size = dtype == AN_F32 ? 4 : 2;
    for (int64_t x = 0; x < width; x += AN_VL)
        for (int64_t w = q.w0; w < q.w1; w += AN_VL) {
            vu square[AN_VL];
            AN_UNROLL for (int i = 0; i < AN_VL; i++)
            {
                const int64_t row = q.x0 + x + i;
                const int64_t later = row + AN_VL < o->x ? row + AN_VL : o->x - 1;
                prefetch(o->p, (later * o->along_x + w * (kind == WORD_PAIR ? 2 : 1)) * size);
                if (kind == WORD_PAIR) prefetch(o->p, (later * o->along_x + 2 * w + AN_VL) * size);
                square[i] = row < q.x1 ? words_along_k(o, row, w, kind, dtype) : (vu){0};
            }
            vu_transpose(square);
            AN_UNROLL for (int i = 0; i < AN_VL; i++)
            {
                if (w + i < q.w1) vu_store(out + (w - q.w0 + i) * width + x, square[i]);
            }
        }
}

/* PACK_ROWS: out[x][stride], rows of A. Whole vectors are stored, so `stride` includes up to AN_VL - 1 words of padding. */
AN_INLINE void pack_rows(const operand *o, const part q, an_word *out, int64_t stride, const word_kind kind,
                         const uint8_t dtype)
{
    const int64_t per = kind == WORD_PAIR ? 2 : 1, size = dtype == AN_F32 ? 4 : 2;
    const int64_t whole = AN_MIN(q.w1, o->k / per) - AN_VL; /* the last word that begins a vector within the operand */
    for (int64_t x = q.x0; x < q.x1; x++, out += stride) {
        const uint8_t *row = o->p + x * o->along_x * size;
        const int64_t later = x + 2 < o->x ? 2 * o->along_x : 0;
        int64_t w = q.w0;
        for (; o->along_k == 1 && w <= whole; w += AN_VL) {
            const uint8_t *at = row + w * per * size;
            const vf low = load_one_vector(at, 0, dtype);
            prefetch(at, later * size);
            if (kind == WORD_PAIR) prefetch(at, (later + AN_VL) * size);
            vu_store(out + w - q.w0, kind == WORD_F32    ? (vu)low
                                     : kind == WORD_PAIR ? vu_narrow(low, load_one_vector(at, AN_VL, dtype))
                                                         : swap_neighbours(rounded_words(low, dtype)));
        }
        for (; w < q.w1; w += AN_VL) vu_store(out + w - q.w0, words_along_k(o, x, w, kind, dtype));
    }
}

/* PACK_ROWS of an operand that is contiguous along x (the A of a weight gradient), for tile registers: squares of AN_VL
 * by AN_VL words are transposed in registers. */
AN_INLINE void pack_rows_across(const operand *o, const part q, an_word *out, int64_t stride, const word_kind kind,
                                const uint8_t dtype)
{
    const int64_t per = kind == WORD_PAIR ? 2 : 1, size = dtype == AN_F32 ? 4 : 2;
    for (int64_t x = q.x0; x < q.x1; x += AN_VL) {
        const bool inside = o->along_x == 1 && x + AN_VL <= o->x;
        for (int64_t w = q.w0; w < q.w1; w += AN_VL) {
            vu square[AN_VL];
            const bool whole = inside && (w + AN_VL) * per <= o->k;
            AN_UNROLL for (int i = 0; i < AN_VL; i++) square[i] =
                whole ? whole_word(o, o->p + x * size, w + i, kind, dtype)
                      : words_along_x(o, x, o->x - x, w + i, kind, dtype);
            vu_transpose(square);
            AN_UNROLL for (int i = 0; i < AN_VL; i++)
            {
                if (x + i < q.x1) vu_store(out + (x + i - q.x0) * stride + w - q.w0, square[i]);
            }
        }
    }
}

#if AN_TILES
/* PACK_TRANSPOSED by way of rows: TILE_WORDS words of all columns of a panel are read row by row, which the hardware prefetches,
 * into a block that stays in the L1 cache, and transposed from there. */
enum { TILE_WORDS = 128, LINE_WORDS = TILE_WORDS + 16 };
AN_INLINE void pack_rows_transposed(const operand *o, const part q, an_word *out, int64_t width, const word_kind kind,
                                    const uint8_t dtype)
{
    an_word lines[PANEL * LINE_WORDS];
    for (int64_t w0 = q.w0; w0 < q.w1; w0 += TILE_WORDS) {
        const part now = {q.x0, q.x1, w0, AN_MIN(w0 + TILE_WORDS, q.w1)};
        pack_rows(o, now, lines, LINE_WORDS, kind, dtype);
        for (int64_t x = 0; x < width; x += AN_VL)
            for (int64_t w = w0; w < now.w1; w += AN_VL) {
                vu square[AN_VL];
                AN_UNROLL for (int i = 0; i < AN_VL; i++) square[i] =
                    q.x0 + x + i < q.x1 ? vu_load(lines + (x + i) * LINE_WORDS + w - w0) : (vu){0};
                vu_transpose(square);
                AN_UNROLL for (int i = 0; i < AN_VL; i++)
                {
                    if (w + i < q.w1) vu_store(out + (w - q.w0 + i) * width + x, square[i]);
                }
            }
    }
}

/* Whole words [w0, w1) of `panels` neighbouring panels inside an operand that is contiguous along x, `apart` words from
 * panel to panel: rows are read from end to end, where one panel after the other would read a line or two of each. */
AN_INLINE void pack_panels_typed(const operand *from, int64_t x0, int64_t panels, int64_t w0, int64_t w1, an_word *out,
                                 int64_t apart, const uint8_t dtype)
{
    enum { AHEAD = 4 };
    const int64_t size = dtype == AN_F32 ? 4 : 2, row = from->along_k * size;
    const uint8_t *even = from->p + x0 * size + 2 * w0 * row;
    for (int64_t w = w0; w < w1; w++, even += 2 * row, out += PANEL) {
        const uint8_t *at = even;
        an_word *to = out;
        for (int64_t i = 0; i < panels; i++, at += PANEL * size, to += apart) {
            for (int64_t line = 0; line < PANEL * size; line += 64) {
                prefetch(at, 2 * AHEAD * row + line);
                prefetch(at, (2 * AHEAD + 1) * row + line);
            }
            AN_UNROLL for (int x = 0; x < PANEL; x += AN_VL)
            {
                const uint8_t *low = at + x * size;
                vu_store(to + x, dtype == AN_BF16
                                     ? pair_words(low, low + row)
                                     : vu_pair(load_one_vector(low, 0, dtype), load_one_vector(low + row, 0, dtype)));
            }
        }
    }
}

static void pack_panels_inside(const operand *o, int64_t x0, int64_t panels, int64_t w0, int64_t w1, an_word *out,
                               int64_t apart)
{
    if (o->dtype == AN_F32)
        pack_panels_typed(o, x0, panels, w0, w1, out, apart, AN_F32);
    else if (o->dtype == AN_BF16)
        pack_panels_typed(o, x0, panels, w0, w1, out, apart, AN_BF16);
    else
        pack_panels_typed(o, x0, panels, w0, w1, out, apart, AN_F16);
}
#endif

typedef enum pack_order { PACK_ALONG_X, PACK_TRANSPOSED, PACK_ROWS, PACK_ROWS_ACROSS } pack_order;

AN_INLINE void pack_typed(const operand *from, const part q, an_word *out, int64_t width, pack_order order,
                          const word_kind kind, const uint8_t dtype)
{
    const operand copy = *from, *const o =
                                    &copy; /* a local copy stays in registers: the stores into `out` may alias *from */
    if (order == PACK_TRANSPOSED)
#if AN_TILES
        pack_rows_transposed(o, q, out, width, kind, dtype);
#else
        pack_transposed(o, q, out, width, kind, dtype);
#endif
    else if (order == PACK_ROWS)
        pack_rows(o, q, out, width, kind, dtype);
    else if (AN_TILES && order == PACK_ROWS_ACROSS)
        pack_rows_across(o, q, out, width, kind, dtype);
    else
        pack_along_x(o, q, out, width, kind, dtype);
}

static void pack_f32_words(const operand *o, const part q, an_word *out, int64_t width, pack_order order)
{
    if (o->dtype == AN_F32)
        pack_typed(o, q, out, width, order, WORD_F32, AN_F32);
    else if (o->dtype == AN_BF16)
        pack_typed(o, q, out, width, order, WORD_F32, AN_BF16);
    else
        pack_typed(o, q, out, width, order, WORD_F32, AN_F16);
}

static void pack_bf16_words(const operand *o, const part q, an_word *out, int64_t width, pack_order order)
{
    const word_kind kind = AN_BF16_DOT || AN_TILES ? WORD_PAIR : WORD_ROUNDED;
    if (o->dtype == AN_F32)
        pack_typed(o, q, out, width, order, kind, AN_F32);
    else if (o->dtype == AN_BF16)
        pack_typed(o, q, out, width, order, kind, AN_BF16);
    else
        pack_typed(o, q, out, width, order, kind, AN_F16);
}

static void pack(const operand *o, const part q, an_word *out, int64_t width, pack_order order, word_kind kind)
{
    if (kind == WORD_F32)
        pack_f32_words(o, q, out, width, order);
    else
        pack_bf16_words(o, q, out, width, order);
}

/* ---- finished rows ----------------------------------------------------------------------------------------------- */

AN_INLINE void store_one(uint8_t *p, int64_t at, float x, const uint8_t dtype)
{
    if (dtype == AN_F32)
        ((an_float *)p)[at] = x;
    else
        ((an_half *)p)[at] = (uint16_t)(dtype == AN_F16 ? an_f32_to_f16(x) : vu_round_bf16(vf_set(x))[0] >> 16);
}

AN_INLINE void store_one_vector(uint8_t *p, int64_t at, vf x, const uint8_t dtype)
{
    an_half *h = (an_half *)p + at;
    if (dtype == AN_F32)
        vf_store((float *)p + at, x);
    else if (dtype == AN_BF16)
        *(vh_at *)h = __builtin_convertvector(vu_round_bf16(x) >> 16, vh);
    else
        for (int i = 0; i < AN_VL; i++) h[i] = (uint16_t)an_f32_to_f16(x[i]);
}

AN_INLINE void store_row_typed(uint8_t *c, int64_t at, const float *sum, int64_t n, const uint8_t dtype)
{
    int64_t i = 0;
    for (; i + AN_VL <= n; i += AN_VL) store_one_vector(c, at + i, vf_load(sum + i), dtype);
    for (; i < n; i++) store_one(c, at + i, sum[i], dtype);
}

/* c[at .. at + n) = sum, rounded to dtype. */
static void store_row(uint8_t *c, int64_t at, const float *sum, int64_t n, uint8_t dtype)
{
    if (dtype == AN_F32)
        store_row_typed(c, at, sum, n, AN_F32);
    else if (dtype == AN_BF16)
        store_row_typed(c, at, sum, n, AN_BF16);
    else
        store_row_typed(c, at, sum, n, AN_F16);
}

#endif
