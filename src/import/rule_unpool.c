/* rule_unpool.c: where the maxima of windows lie (max_pool with return_indices), and maxima put back there (max_unpool). The maxima
 * themselves are those of rule_window.c and rule_volume.c.
 *
 * A position counts the cells of a plane (or of a line, or a volume) of the input, row by row. Of equal cells the first is taken; a NaN is
 * greater than every number. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

enum { MOST_CELLS = 1024 }; /* of a window: some nodes each */

/* The windows of a pool, and how long the axes are and how many windows they have. */
typedef struct counted {
    an_windows by;
    int64_t length[3], count[3];
} counted;

/* self kernel_size stride padding dilation ceil_mode; x [N C,D,H,W] */
static an_status count_windows(an_build *b, const an_pt2_node *n, int axes, const an_tensor *x, counted *w)
{
    const an_windows *const s = &w->by;
    int64_t cells = 1;
    AN_TRY(an_in_windows(b, n, axes, 4, &w->by));
    for (int k = 0; k < 3; k++) {
        w->length[k] = an_dim(x, 1 + k);
        cells *= s->kernel[k];
        if (cells > MOST_CELLS)
            return an_build_refuse(b, AN_E_UNSUPPORTED,
                                   "its positions are read, and its windows have more than %d cells", MOST_CELLS);
        const int64_t more = an_in_bool(b, n, 5)
                                 ? an_ceil_extra(w->length[k], s->kernel[k], s->stride[k], s->pad[k], s->dilation[k])
                                 : 0,
                      room = w->length[k] + 2 * s->pad[k] + more - (int64_t)s->dilation[k] * (s->kernel[k] - 1) - 1;
        w->count[k] = room / s->stride[k] + 1;
        if (room < 0) return an_build_refuse(b, AN_E_IO, "no window fits; the file is damaged");
    }
    return AN_OK;
}

/* The position of cell `at` of each window, i32 [1,OD,OH,OW]; `inside`: of the first one behind it that is in the input. */
static an_tensor *position(an_build *b, const counted *w, const int64_t at[3], bool inside)
{
    an_tensor *sum = NULL;
    for (int k = 0; k < 3; k++) {
        an_tensor *i = an_iota_at(AN_AT, b->cx, AN_SHAPE(1, w->count[0], w->count[1], w->count[2]), 1 + k);
        i = an_add_num_at(AN_AT, an_mul_num_at(AN_AT, i, (double)w->by.stride[k]),
                          (double)(at[k] * w->by.dilation[k] - w->by.pad[k]));
        for (int64_t before = inside ? w->by.pad[k] : 0; before > 0; before -= w->by.dilation[k]) {
            an_tensor *outside = an_lt_at(AN_AT, i, an_num(i, b->cx, 0));
            an_tensor *next = an_add_num_at(AN_AT, i, (double)w->by.dilation[k]);
            i = an_where_at(AN_AT, outside, next, i);
        }
        sum = sum ? an_add_at(AN_AT, an_mul_num_at(AN_AT, sum, (double)w->length[k]), i) : i;
    }
    return sum;
}

an_status an_positions_of_maxima(an_build *b, const an_pt2_node *n, int axes)
{
    if (!an_result_read(b, n, 1)) return AN_OK;
    an_built_value v = an_in_value(b, n, 0);
    an_tensor *x = an_plain(v.t, v.last), *best = NULL, *where = NULL;
    const an_shape s = an_shape_of(x);
    an_shape out = s, flat = {.rank = 4, .dim = {1, 1, 1, 1}};
    counted w;
    for (int i = 0; i < s.rank; i++) flat.dim[i < s.rank - axes ? 0 : 4 - s.rank + i] *= s.dim[i];
    x = an_detach_at(AN_AT, an_reshape_at(AN_AT, x, flat));
    AN_TRY(count_windows(b, n, axes, x, &w));
    an_tensor *padded = x;
    for (int i = 0; i < 3; i++) {
        const int64_t need = (w.count[i] - 1) * w.by.stride[i] + w.by.dilation[i] * (w.by.kernel[i] - 1) + 1;
        const int64_t after = AN_MAX(need - w.length[i] - w.by.pad[i], 0);
        if (w.by.pad[i] || after) padded = an_pad_at(AN_AT, padded, 1 + i, w.by.pad[i], after, -INFINITY);
    }
    for (int64_t c = 0; c < w.by.kernel[0] * w.by.kernel[1] * w.by.kernel[2]; c++) {
        const int64_t at[3] = {c / (w.by.kernel[1] * w.by.kernel[2]), c / w.by.kernel[2] % w.by.kernel[1],
                               c % w.by.kernel[2]};
        an_tensor *cell = padded;
        for (int i = 0; i < 3; i++) {
            const int64_t from = at[i] * w.by.dilation[i];
            cell = an_slice_at(AN_AT, cell, 1 + i, from, from + (w.count[i] - 1) * w.by.stride[i] + 1, w.by.stride[i]);
        }
        an_tensor *here = an_expand_at(AN_AT, position(b, &w, at, c == 0), an_shape_of(cell));
        if (!best) {
            best = cell;
            where = here;
            continue;
        }
        an_tensor *better = an_gt_at(AN_AT, cell, best);
        better = an_or_at(AN_AT, better, an_ne_at(AN_AT, cell, cell));
        where = an_where_at(AN_AT, better, here, where);
        best = an_where_at(AN_AT, better, cell, best);
    }
    for (int i = 0; i < axes; i++) out.dim[s.rank - axes + i] = w.count[3 - axes + i];
    an_out(b, n, 1, an_reshape_at(AN_AT, where, out));
    return AN_OK;
}

/* `x` divided by `times`, with the gradient of x itself. Of an infinite x it is the quotient's: the difference would be NaN. */
static an_tensor *share_of(an_build *b, an_tensor *x, an_tensor *times)
{
    an_tensor *share = an_div_at(AN_AT, x, times), *zero = an_num(x, b->cx, 0);
    an_tensor *none = an_sub_at(AN_AT, x, x); /* NaN of what is infinite */
    an_tensor *rest = an_sub_at(AN_AT, x, share);
    an_tensor *same = an_eq_at(AN_AT, an_detach_at(AN_AT, none), zero);
    return an_where_at(AN_AT, same, an_sub_at(AN_AT, x, an_detach_at(AN_AT, rest)), share);
}

/* self indices output_size [stride padding]: zeros with each element at its position. Windows that overlap have one maximum in several
 * places of self: each of them adds its share of it, and gets the place's whole gradient. A position beside the plane is that of its
 * nearest cell. */
an_status an_rule_max_unpool(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *at = an_in(b, n, 1);
    const int axes = strstr(n->target, "2d") ? 2 : 3;
    int64_t size[3] = {1, 1, 1}, plane = 1;
    const an_shape s = an_shape_of(x);
    an_shape out = s;
    if (an_in_ints(b, n, 2, size, 3) != axes || s.rank < axes || an_count(at) != an_count(x))
        return an_build_refuse(b, AN_E_IO, "sizes or positions that do not fit; the file is damaged");
    for (int i = 0; i < axes; i++) {
        if (size[i] < 1 || size[i] > INT32_MAX / plane)
            return an_build_refuse(b, AN_E_UNSUPPORTED, "to no cell, or more than 2^31");
        out.dim[s.rank - axes + i] = size[i];
        plane *= size[i];
    }
    int64_t planes = 1, cells = 1;
    for (int i = 0; i < s.rank; i++) *(i < s.rank - axes ? &planes : &cells) *= s.dim[i];
    if (planes * plane > INT32_MAX) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 2^31 cells");
    an_tensor *row = an_mul_num_at(AN_AT, an_iota_at(AN_AT, b->cx, AN_SHAPE(planes, cells), 0), (double)plane);
    at = an_reshape_at(AN_AT, an_as(at, AN_I32), AN_SHAPE(planes, cells));
    at = an_maximum_at(AN_AT, at, an_num(at, b->cx, 0));
    at = an_minimum_at(AN_AT, at, an_num(at, b->cx, (double)(plane - 1)));
    an_tensor *linear = an_reshape_1(an_add_at(AN_AT, row, at), planes * cells);
    an_tensor *values = an_reshape_1(x, planes * cells);
    an_tensor *ones = an_full_at(AN_AT, b->cx, an_dtype_of(x), AN_SHAPE(planes * cells), 1);
    an_tensor *times = an_gather_at(AN_AT, an_scatter_add_at(AN_AT, linear, ones, planes * plane), linear);
    values = an_scatter_add_at(AN_AT, linear, share_of(b, values, times), planes * plane);
    an_out(b, n, 0, an_reshape_at(AN_AT, values, out));
    return AN_OK;
}
