/* conv_lines.h: which pixels a convolution's lines of positions read, and which taps in which order: the geometry that conv.c and
 * conv_grouped.c share. They copy lines of the image, with the padding around them, into a buffer and multiply them as they lie there.
 *
 * Owns:      offsets of taps and phases in such a buffer.
 * Does not:  say what a pixel of the buffer holds: offsets count its elements, channels a pixel.
 * Invariant: the runs of a phase are in the order of the taps. */
#ifndef AN_KERNELS_CPU_CONV_LINES_H
#define AN_KERNELS_CPU_CONV_LINES_H

#include "kernels/cpu/conv_micro.h"

#include "ir/library_ops.h"

enum { MOST_TAPS = 128, MOST_PHASES = 64 };

typedef struct conv_lines {
    const an_window_spec *v;
    int64_t low[2], extent[2]; /* pixels read at index 0 begin at low and are so many; index: position / apart */
    int64_t wide;              /* pixels of a padded line */
} conv_lines;

typedef struct conv_phases {
    conv_run run[MOST_TAPS]; /* of all phases */
    int first[MOST_PHASES + 1];
} conv_phases;

/* Positions that are `phase` modulo v->apart[d] read pixel index * step + *out with tap t; false: none. */
AN_INLINE bool offset_of(const an_window_spec *v, int d, int64_t phase, int64_t t, int64_t *out)
{
    const int64_t z = phase + t * v->tap[d] + v->start[d], apart = v->apart[d];
    const int64_t down = z >= 0 ? z / apart : -((-z + apart - 1) / apart);
    *out = down;
    return down * apart == z;
}

/* False: it is none that lies in lines; gemm.c computes it. */
AN_INLINE bool conv_lines_of(const an_window_spec *v, conv_lines *l)
{
    if (v->taps[0] == 1 && v->taps[1] == 1 && v->apart[0] == 1 && v->apart[1] == 1)
        return false; /* pixels: no padding */
    if ((int64_t)v->taps[0] * v->taps[1] > MOST_TAPS || (int64_t)v->apart[0] * v->apart[1] > MOST_PHASES) return false;
    for (int d = 0; d < 2; d++)
        if (v->apart[d] > 1 && v->step[d] != 1) return false;
    l->v = v;
    for (int d = 0; d < 2; d++) {
        int64_t low = INT64_MAX, high = INT64_MIN, at;
        for (int64_t phase = 0; phase < v->apart[d]; phase++)
            for (int64_t t = 0; t < v->taps[d]; t++)
                if (offset_of(v, d, phase, t, &at)) low = AN_MIN(low, at), high = AN_MAX(high, at);
        l->low[d] = low;
        l->extent[d] = high - low + 1;
    }
    l->wide = (an_ceil_div(v->out[1], v->apart[1]) - 1) * v->step[1] + l->extent[1];
    return true;
}

/* Lines of the image that `lines` neighbouring lines of the result read, at most. */
AN_INLINE int64_t image_lines(const conv_lines *l, int64_t lines)
{
    return an_ceil_div(lines - 1, l->v->apart[0]) * l->v->step[0] + l->extent[0];
}

/* The taps of each phase as runs of steps, joined where they are neighbours in the buffer too. */
AN_INLINE void conv_phases_of(const conv_lines *l, conv_phases *out)
{
    const an_window_spec *v = l->v;
    const int64_t C = v->channels;
    int n = 0, phase = 0;
    for (int64_t py = 0; py < v->apart[0]; py++)
        for (int64_t px = 0; px < v->apart[1]; px++) {
            out->first[phase++] = n;
            const int begin = n;
            for (int64_t tap = 0; tap < (int64_t)v->taps[0] * v->taps[1]; tap++) {
                int64_t y, x;
                if (!offset_of(v, 0, py, tap / v->taps[1], &y) || !offset_of(v, 1, px, tap % v->taps[1], &x)) continue;
                const conv_run some = {((y - l->low[0]) * l->wide + x - l->low[1]) * C, tap * C, C};
                conv_run *last = n > begin ? &out->run[n - 1] : NULL;
                if (last && last->a + last->count == some.a && last->b + last->count == some.b)
                    last->count += C;
                else
                    out->run[n++] = some;
            }
        }
    out->first[phase] = n;
}

#endif
