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

/* Positions and columns are fewer than 2^31 (planner/lower_conv.c), and a division of 64 bits costs as much as packing a tap. */
AN_INLINE position position_of(const an_window_spec *v, int64_t p)
{
    const uint32_t at = (uint32_t)p, wide = (uint32_t)v->out[1], high = (uint32_t)v->out[0], line = at / wide;
    return (position){line / high, (int32_t)(line % high), (int32_t)(at % wide)};
}

AN_INLINE void step_position(const an_window_spec *v, position *at)
{
    if (++at->x < v->out[1]) return;
    at->x = 0;
    if (++at->y < v->out[0]) return;
    at->y = 0;
    at->image++;
}

typedef struct tap { /* a column of a window: channel c of tap (r, s) */
    int32_t r, s, c;
} tap;

AN_INLINE tap tap_of(const an_window_spec *v, int64_t t)
{
    const uint32_t channels = (uint32_t)v->channels, at = (uint32_t)t / channels, wide = (uint32_t)v->taps[1];
    return (tap){(int32_t)(at / wide), (int32_t)(at % wide), (int32_t)((uint32_t)t % channels)};
}

/* Element 0 of a pixel of the image. */
AN_INLINE int64_t pixel_at(const an_window_spec *v, int64_t image, int32_t y, int32_t x)
{
    return ((image * v->in[0] + y) * v->in[1] + x) * v->pixel;
}

/* Whole vectors: both write up to AN_VL - 1 zeros behind the run. */
AN_INLINE void store_zeros(float *out, int64_t run)
{
    for (int64_t i = 0; i < run; i += AN_VL) vf_store(out + i, (vf){0});
}

AN_INLINE void store_run(const uint8_t *image, int64_t from, int64_t run, float *out, const uint8_t dtype)
{
    int64_t i = 0;
    for (; i + AN_VL <= run; i += AN_VL) vf_store(out + i, load_some(image, from + i, 1, AN_VL, dtype));
    if (i < run) vf_store(out + i, load_some(image, from + i, 1, run - i, dtype));
}

/* Whether the taps of a line of the kernel are one piece of a line of the image. */
AN_INLINE bool lines_are_pieces(const an_window_spec *v)
{
    return v->tap[1] == 1 && v->apart[1] == 1 && v->channels == v->pixel;
}

/* As window_row, a line of the kernel at a time: zeros left of the image, a piece of it, zeros right of it. */
AN_INLINE void window_lines(const an_window_spec *v, const uint8_t *image, position at, tap t, int64_t count,
                            float *out, const uint8_t dtype)
{
    const int64_t C = v->channels, line = v->taps[1] * C;
    const int64_t x = (int64_t)at.x * v->step[1] + v->start[1]; /* the pixel of a line's first tap */
    const int64_t left = AN_MIN(AN_MAX(-x, 0) * C, line), right = AN_MIN(AN_MAX((v->in[1] - x) * C, left), line);
    for (int64_t e = t.s * C + t.c; count > 0; e = 0, t.r++) {
        const int64_t end = AN_MIN(line, e + count), y = an_window_along(v, 0, at.y, t.r);
        const int64_t begin = y < 0 ? end : AN_MIN(AN_MAX(left, e), end), stop = AN_MIN(AN_MAX(right, begin), end);
        if (begin > e) store_zeros(out, begin - e);
        store_run(image, ((at.image * v->in[0] + y) * v->in[1] + x) * C + begin, stop - begin, out + (begin - e),
                  dtype);
        if (end > stop) store_zeros(out + (stop - e), end - stop);
        count -= end - e;
        out += end - e;
    }
}

/* `count` columns, from tap t on, of a position, as f32. Whole vectors are written: `out` has room for AN_VL - 1 more, which
 * are zeros. */
AN_INLINE void window_row(const an_window_spec *v, const uint8_t *image, position at, tap t, int64_t count, float *out,
                          const uint8_t dtype)
{
    int32_t y = an_window_along(v, 0, at.y, t.r);
    while (count > 0) {
        const int64_t run = AN_MIN(v->channels - t.c, count);
        const int32_t x = an_window_along(v, 1, at.x, t.s);
        if (y < 0 || x < 0)
            store_zeros(out, run);
        else
            store_run(image, pixel_at(v, at.image, y, x) + t.c, run, out, dtype);
        count -= run;
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
    const bool pieces = lines_are_pieces(v);
    for (int64_t x = x0; x < x0 + width; x += AN_VL, out += AN_VL) {
        const int64_t count = AN_MAX(AN_MIN(x1 - x, AN_VL), 0);
        const tap t = tap_of(v, x);
        if (count > 0 && t.c + count <= v->channels) {
            window_strip(v, image, t, count, p0, p1, out, width, dtype);
            continue;
        }
        position at = position_of(v, p0);
        for (int64_t p = p0; p < p1; p++, step_position(v, &at)) {
            float row[2 * AN_VL] = {0};
            if (pieces)
                window_lines(v, image, at, t, count, row, dtype);
            else
                window_row(v, image, at, t, count, row, dtype);
            vf_store(out + (p - p0) * width, vf_load(row));
        }
    }
}

/* The columns of a block of k as runs of channels: tap by tap, and joined where they are contiguous in the image. `from`
 * counts from the pixel under the position, and holds where the whole window is inside the image. */
enum { MOST_RUNS = 64 };
typedef struct run {
    int64_t from;
    int32_t count;
    tap at;
} run;
typedef struct runs {
    run by_tap[MOST_RUNS], joined[MOST_RUNS];
    int n_taps, n_joined;
    int32_t x_first, x_last; /* positions [x_first, x_last) of a line have all their columns inside */
} runs;

/* False: too many taps, or a kernel too wide for the tables of window_rows. */
static bool find_runs(const an_window_spec *v, int64_t first, int64_t count, runs *out)
{
    out->n_taps = out->n_joined = 0;
    if (v->taps[0] > MOST_RUNS || v->taps[1] > MOST_RUNS) return false;
    int64_t after = 0; /* where the last run ends */
    for (tap t = tap_of(v, first); count > 0; t.c = 0, t.r += ++t.s == v->taps[1], t.s %= v->taps[1]) {
        if (out->n_taps == MOST_RUNS) return false;
        const int64_t y = t.r * v->tap[0] + v->start[0], x = t.s * v->tap[1] + v->start[1];
        const run some = {(y * v->in[1] + x) * v->pixel + t.c, (int32_t)AN_MIN(v->channels - t.c, count), t};
        out->by_tap[out->n_taps++] = some;
        if (out->n_joined > 0 && some.from == after)
            out->joined[out->n_joined - 1].count += some.count;
        else
            out->joined[out->n_joined++] = some;
        after = some.from + some.count;
        count -= some.count;
    }
    const int32_t left = v->start[1] + AN_MIN(v->tap[1] * (v->taps[1] - 1), 0), step = v->step[1];
    const int32_t right = v->start[1] + AN_MAX(v->tap[1] * (v->taps[1] - 1), 0);
    out->x_first = left < 0 ? (-left + step - 1) / step : 0;
    out->x_last = v->apart[0] > 1 || v->apart[1] > 1 || v->in[1] <= right ? 0 : (v->in[1] - right - 1) / step + 1;
    return true;
}

/* Rows q.x0 .. q.x1 of A, whose columns are `of`; as window_row for each. */
AN_INLINE void window_rows(const an_window_spec *v, const uint8_t *image, const runs *of, const part q, float *out,
                           int64_t width, const uint8_t dtype)
{
    int32_t ys[MOST_RUNS], xs[MOST_RUNS], y = -1;
    bool inside = false; /* all lines of the kernel */
    position at = position_of(v, q.x0);
    for (int64_t p = q.x0; p < q.x1; p++, out += width, step_position(v, &at)) {
        if (at.y != y) {
            y = at.y;
            inside = true;
            for (int32_t r = 0; r < v->taps[0]; r++) inside &= (ys[r] = an_window_along(v, 0, y, r)) >= 0;
        }
        if (inside && at.x >= of->x_first && at.x < of->x_last) {
            const int64_t from = pixel_at(v, at.image, y * v->step[0], at.x * v->step[1]);
            float *to = out;
            for (const run *i = of->joined; i < of->joined + of->n_joined; to += i->count, i++)
                store_run(image, from + i->from, i->count, to, dtype);
            continue;
        }
        for (int32_t s = 0; s < v->taps[1]; s++) xs[s] = an_window_along(v, 1, at.x, s);
        float *to = out;
        for (const run *i = of->by_tap; i < of->by_tap + of->n_taps; to += i->count, i++)
            if (ys[i->at.r] < 0 || xs[i->at.s] < 0)
                store_zeros(to, i->count);
            else
                store_run(image, pixel_at(v, at.image, ys[i->at.r], xs[i->at.s]) + i->at.c, i->count, to, dtype);
    }
}

AN_INLINE void window_gather(const operand *o, const part q, float *out, int64_t width, bool columns,
                             const uint8_t dtype)
{
    const an_window_spec copy = *o->window, *const v = &copy; /* in registers: what is stored may alias anything */
    if (columns) {
        window_columns(v, o->p, q.x0, q.x1, o->first_k + q.w0, o->first_k + q.w1, out, width, dtype);
        return;
    }
    runs some;
    if (find_runs(v, o->first_k + q.w0, q.w1 - q.w0, &some)) {
        window_rows(v, o->p, &some, q, out, width, dtype);
        return;
    }
    const tap first = tap_of(v, o->first_k + q.w0);
    const bool pieces = lines_are_pieces(v);
    position at = position_of(v, q.x0);
    for (int64_t x = q.x0; x < q.x1; x++, out += width, step_position(v, &at))
        if (pieces)
            window_lines(v, o->p, at, first, q.w1 - q.w0, out, dtype);
        else
            window_row(v, o->p, at, first, q.w1 - q.w0, out, dtype);
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
    enum { WORDS = 64, FLOATS = 2 * AN_MAX(WORDS * PANEL, 512 + AN_VL) };
    float k[FLOATS];
    const int64_t per = kind == WORD_PAIR ? 2 : 1;
    part some = q;
    if (kind == WORD_F32) {
        window_floats(o, q, (float *)out, width, columns);
        return;
    }
    /* WORDS of all columns at a time, or some rows whole */
    const int64_t ws = columns ? WORDS : q.w1 - q.w0, row = columns ? width : an_round_up(ws * per, AN_VL) + AN_VL;
    const int64_t xs = columns ? q.x1 - q.x0 : AN_MAX(FLOATS / row, 1);
    for (some.x0 = q.x0; some.x0 < q.x1; some.x0 += xs)
        for (int64_t w = q.w0; w < q.w1; w += ws) {
            const int64_t end = AN_MIN(w + ws, q.w1), count = AN_MIN(end * per, o->k) - w * per;
            some.x1 = AN_MIN(some.x0 + xs, q.x1);
            some.w0 = w * per;
            some.w1 = some.w0 + count;
            window_floats(o, some, k, row, columns);
            const operand floats = {.p = (uint8_t *)k,
                                    .x = columns ? width : some.x1 - some.x0,
                                    .k = count,
                                    .along_x = columns ? 1 : row,
                                    .along_k = columns ? width : 1,
                                    .dtype = AN_F32};
            const part all = {0, floats.x, 0, end - w};
            an_word *to = out + (columns ? (w - q.w0) * width : (some.x0 - q.x0) * width);
            pack(&floats, all, to, width, columns ? PACK_ALONG_X : PACK_ROWS, kind);
        }
}

#endif
