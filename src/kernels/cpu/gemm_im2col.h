/* gemm_im2col.h: packing of a convolution's window matrix (im2col): the words and panels of gemm_micro.h, read from the image. The matrix is
 * never stored: rows are output positions, columns are (tap, channel).
 *
 * Owns:      where an element of the window is in the image, and gathering elements as f32.
 * Does not:  hold more of the window than the block being multiplied; convert words (gemm_pack.h).
 * Invariant: nothing outside the image is read; the window's elements there are +0.
 *
 * The channels of a tap are contiguous, and positions along a row of the image are `step` pixels apart: a row of A is gathered tap by tap,
 * columns of B by rows of the image. Words other than f32 are converted from gathered f32: a second pass through the L1 cache, which saves a
 * second addressing scheme. */
#ifndef AN_KERNELS_CPU_GEMM_IM2COL_H
#define AN_KERNELS_CPU_GEMM_IM2COL_H

#include "kernels/cpu/gemm_pack.h"

#include "ir/library_ops.h"

typedef struct position { /* of a window's rows */
    int64_t image;
    int32_t y, x;
} position;

AN_INLINE position position_of(const an_window_spec *v, int64_t p)
{
    const int64_t line = p / v->out[1];
    return (position){line / v->out[0], (int32_t)(line % v->out[0]), (int32_t)(p % v->out[1])};
}

typedef struct tap { /* a column of a window: channel c of tap (r, s) */
    int32_t r, s, c;
} tap;

AN_INLINE tap tap_of(const an_window_spec *v, int64_t t)
{
    const int32_t at = (int32_t)(t / v->channels);
    return (tap){at / v->taps[1], at % v->taps[1], (int32_t)(t % v->channels)};
}

/* Element 0 of a pixel of the image. */
AN_INLINE int64_t pixel_at(const an_window_spec *v, int64_t image, int32_t y, int32_t x)
{
    return ((image * v->in[0] + y) * v->in[1] + x) * v->pixel;
}

/* Columns [t0, t1) of position p, as f32. Whole vectors are written: `out` has room for AN_VL - 1 more, which are
 * zeros.
 */
AN_INLINE void window_row(const an_window_spec *v, const uint8_t *image, int64_t p, int64_t t0, int64_t t1, float *out,
                          const uint8_t dtype)
{
    const position at = position_of(v, p);
    tap t = tap_of(v, t0);
    int32_t y = an_window_along(v, 0, at.y, t.r);
    while (t0 < t1) {
        const int64_t run = AN_MIN(v->channels - t.c, t1 - t0);
        const int32_t x = an_window_along(v, 1, at.x, t.s);
        const int64_t from = pixel_at(v, at.image, y, x) + t.c;
        if (y < 0 || x < 0)
            for (int64_t i = 0; i < run; i += AN_VL) vf_store(out + i, (vf){0});
        else
            for (int64_t i = 0; i < run; i += AN_VL) vf_store(out + i, load_some(image, from + i, 1, run - i, dtype));
        t0 += run;
        out += run;
        t.c = 0;
        if (++t.s < v->taps[1]) continue;
        t.s = 0;
        y = an_window_along(v, 0, at.y, ++t.r);
    }
}

/* One vector of columns, all of tap t, of positions [p0, p1), `width` apart. Positions step over one image here:
 * `apart` is 1. */
AN_INLINE void window_strip(const an_window_spec *v, const uint8_t *image, tap t, int64_t count, int64_t p0, int64_t p1,
                            float *out, int64_t width, const uint8_t dtype)
{
    position at = position_of(v, p0);
    const int32_t step = v->step[1], offset = t.s * v->tap[1] + v->start[1]; /* x reads pixel x * step + offset */
    while (p0 < p1) {
        const int32_t end = (int32_t)AN_MIN(v->out[1], at.x + p1 - p0), y = an_window_along(v, 0, at.y, t.r);
        const int32_t first = offset < 0 ? (-offset + step - 1) / step : 0; /* positions [first, last) are inside */
        const int32_t last = v->in[1] > offset ? (v->in[1] - offset - 1) / step + 1 : 0;
        const int32_t begin = y < 0 ? end : AN_MIN(AN_MAX(first, at.x), end), stop = AN_MIN(AN_MAX(last, begin), end);
        const int64_t next = (int64_t)step * v->pixel;
        int64_t from = pixel_at(v, at.image, y, begin * step + offset) + t.c;
        p0 += end - at.x;
        for (; at.x < begin; at.x++, out += width) vf_store(out, (vf){0});
        for (; at.x < stop; at.x++, out += width, from += next) vf_store(out, load_some(image, from, 1, count, dtype));
        for (; at.x < end; at.x++, out += width) vf_store(out, (vf){0});
        at.x = 0;
        if (++at.y == v->out[0]) at.y = 0, at.image++;
    }
}

/* out[p - p0][width]: columns x0 and on of positions [p0, p1), zeros from x1 on; width is whole vectors. */
AN_INLINE void window_columns(const an_window_spec *v, const uint8_t *image, int64_t x0, int64_t x1, int64_t p0,
                              int64_t p1, float *out, int64_t width, const uint8_t dtype)
{
    for (int64_t x = x0; x < x0 + width; x += AN_VL, out += AN_VL) {
        const int64_t count = AN_MAX(AN_MIN(x1 - x, AN_VL), 0);
        const tap t = tap_of(v, x);
        if (count > 0 && t.c + count <= v->channels) {
            window_strip(v, image, t, count, p0, p1, out, width, dtype);
            continue;
        }
        for (int64_t p = p0; p < p1; p++) {
            float row[2 * AN_VL] = {0};
            window_row(v, image, p, x, x + count, row, dtype);
            vf_store(out + (p - p0) * width, vf_load(row));
        }
    }
}

AN_INLINE void window_gather(const operand *o, const part q, float *out, int64_t width, bool columns,
                             const uint8_t dtype)
{
    const an_window_spec copy = *o->window, *const v = &copy; /* in registers: what is stored may alias anything */
    if (columns)
        window_columns(v, o->p, q.x0, q.x1, o->first_k + q.w0, o->first_k + q.w1, out, width, dtype);
    else
        for (int64_t x = q.x0; x < q.x1; x++, out += width)
            window_row(v, o->p, x, o->first_k + q.w0, o->first_k + q.w1, out, dtype);
}

/* Rows q.x0 .. q.x1 (columns: of B) of k from q.w0 to q.w1, as f32. */
static void window_floats(const operand *o, const part q, float *out, int64_t width, bool columns)
{
    if (o->dtype == AN_F32)
        window_gather(o, q, out, width, columns, AN_F32);
    else if (o->dtype == AN_BF16)
        window_gather(o, q, out, width, columns, AN_BF16);
    else
        window_gather(o, q, out, width, columns, AN_F16);
}

/* As pack_rows and as pack_along_x: out[x][width], or out[w][width] of columns of B, whole vectors. */
static void pack_window(const operand *o, const part q, an_word *out, int64_t width, bool columns, word_kind kind)
{
    enum { WORDS = 64 }; /* of columns at a time; of a row all at once */
    float k[2 * AN_MAX(WORDS * PANEL, 512 + AN_VL)];
    const int64_t per = kind == WORD_PAIR ? 2 : 1;
    part some = q;
    if (kind == WORD_F32) {
        window_floats(o, q, (float *)out, width, columns);
        return;
    }
    const int64_t xs = columns ? q.x1 - q.x0 : 1, ws = columns ? WORDS : q.w1 - q.w0;
    for (some.x0 = q.x0; some.x0 < q.x1; some.x0 += xs)
        for (int64_t w = q.w0; w < q.w1; w += ws) {
            const int64_t end = AN_MIN(w + ws, q.w1), count = AN_MIN(end * per, o->k) - w * per;
            some.x1 = some.x0 + xs;
            some.w0 = w * per;
            some.w1 = some.w0 + count;
            window_floats(o, some, k, width, columns);
            const operand floats = {.p = (uint8_t *)k,
                                    .x = columns ? width : 1,
                                    .k = count,
                                    .along_x = 1,
                                    .along_k = columns ? width : 1,
                                    .dtype = AN_F32};
            const part all = {0, floats.x, 0, end - w};
            an_word *to = out + (columns ? (w - q.w0) * width : (some.x0 - q.x0) * width);
            pack(&floats, all, to, width, columns ? PACK_ALONG_X : PACK_ROWS, kind);
        }
}

#endif
