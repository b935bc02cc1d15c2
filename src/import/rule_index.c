/* rule_index.c: operations of PyTorch that read or write elements by index. All of them become a gather from, or a scatter to,
 * the rows of a table by one linear index. Negative indices count from the end. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

static an_tensor *as_index(an_tensor *ids)
{
    return an_as(ids, AN_I32);
}

an_tensor *an_rows(an_tensor *table, an_tensor *ids)
{
    return an_gather_at(AN_AT, table, as_index(ids));
}

/* ids + n where they are negative. */
static an_tensor *wrapped(an_build *b, an_tensor *ids, int64_t n)
{
    ids = as_index(ids);
    an_tensor *from_end = an_add_num_at(AN_AT, ids, (double)n);
    return an_where_at(AN_AT, an_lt_at(AN_AT, ids, an_num(ids, b->cx, 0)), from_end, ids);
}

/* `rows` with a gradient divided by how often the row's id occurs among the ids. */
static an_tensor *by_frequency(an_build *b, an_tensor *rows, an_tensor *ids, int64_t table)
{
    an_shape s = an_shape_of(ids);
    if (s.rank < 8) s.dim[s.rank++] = 1;
    an_tensor *flat = an_reshape_1(as_index(ids), an_count(ids)), *held = an_detach_at(AN_AT, rows);
    an_tensor *ones = an_full_at(AN_AT, b->cx, an_dtype_of(rows), an_shape_of(flat), 1);
    an_tensor *times = an_gather_at(AN_AT, an_scatter_add_at(AN_AT, flat, ones, table), flat);
    an_tensor *zero = an_sub_at(AN_AT, rows, held);
    return an_add_at(AN_AT, held, an_div_at(AN_AT, zero, an_reshape_at(AN_AT, times, s)));
}

/* The row of padding_idx has no gradient. */
an_status an_rule_embedding(an_build *b, const an_pt2_node *n)
{
    an_tensor *ids = an_in(b, n, 1), *rows = an_rows(an_in(b, n, 0), ids); /* [I...,C] */
    const int64_t padding = an_in_int(b, n, 2);
    if (an_in_bool(b, n, 3)) rows = by_frequency(b, rows, ids, an_dim(an_in(b, n, 0), 0));
    if (padding >= 0 && !an_in_none(n, 2)) {
        an_shape s = an_shape_of(ids);
        if (s.rank > 7) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 7 axes");
        s.dim[s.rank++] = 1;
        an_tensor *index = as_index(ids), *held = an_detach_at(AN_AT, rows);
        an_tensor *pad = an_eq_at(AN_AT, index, an_num(index, b->cx, (double)padding));
        rows = an_where_at(AN_AT, an_reshape_at(AN_AT, pad, s), held, rows);
    }
    an_out(b, n, 0, rows);
    return AN_OK;
}

/* The axis that argument i names, of `rank`. */
static an_status read_axis(an_build *b, const an_pt2_node *n, int i, int rank, int *axis)
{
    *axis = an_wrap_axis(an_in_int(b, n, i), rank);
    if (*axis < 8) return AN_OK;
    return an_build_refuse(b, AN_E_IO, "axis %lld of %d; the file is damaged", (long long)an_in_int(b, n, i), rank);
}

/* x with axis `axis` first, as [length, the rest]. */
static an_tensor *axis_first(an_tensor *x, int axis)
{
    const int rank = an_rank(x);
    an_shape perm = {.rank = rank, .dim = {axis}};
    for (int i = 1; i < rank; i++) perm.dim[i] = i <= axis ? i - 1 : i;
    return axis == 0 ? x : an_permute_at(AN_AT, x, perm);
}

static an_tensor *axis_back(an_tensor *x, int axis)
{
    const int rank = an_rank(x);
    an_shape perm = {.rank = rank};
    for (int i = 0; i < rank; i++) perm.dim[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    return axis == 0 ? x : an_permute_at(AN_AT, x, perm);
}

an_status an_rule_index_select(an_build *b, const an_pt2_node *n)
{
    int axis;
    an_tensor *x = an_in(b, n, 0), *ids = an_in(b, n, 2);
    AN_TRY(read_axis(b, n, 1, an_rank(x), &axis));
    if (an_rank(ids) == 0) ids = an_reshape_1(ids, 1);
    an_out(b, n, 0, axis_back(an_rows(axis_first(x, axis), ids), axis));
    return AN_OK;
}

/* The linear index in x of element `ids` along `axis` at each place of ids. */
static an_tensor *linear_along(an_build *b, an_tensor *x, int axis, an_tensor *ids)
{
    an_tensor *linear = NULL;
    int64_t stride = 1;
    for (int i = an_rank(x) - 1; i >= 0; i--) {
        an_tensor *at = i == axis ? wrapped(b, ids, an_dim(x, i)) : an_iota_at(AN_AT, b->cx, an_shape_of(ids), i);
        at = stride == 1 ? at : an_mul_num_at(AN_AT, at, (double)stride);
        linear = linear ? an_add_at(AN_AT, linear, at) : at;
        stride *= an_dim(x, i);
    }
    return linear;
}

/* out[i][j] = x[ids[i][j]][j] and the like: one gradient an element, by scatter. */
an_status an_rule_gather(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *ids = an_in(b, n, 2);
    if (an_rank(x) == 0) return an_out(b, n, 0, an_expand_at(AN_AT, x, an_shape_of(ids))), AN_OK;
    int axis;
    AN_TRY(read_axis(b, n, 1, an_rank(x), &axis));
    an_tensor *linear = linear_along(b, x, axis, ids);
    an_out(b, n, 0, an_gather_at(AN_AT, an_reshape_1(x, an_count(x)), linear));
    return AN_OK;
}

an_status an_rule_take_along_dim(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *ids = an_in(b, n, 1);
    if (an_in_none(n, 2)) return an_build_refuse(b, AN_E_UNSUPPORTED, "without an axis");
    int axis;
    AN_TRY(read_axis(b, n, 2, an_rank(x), &axis));
    an_shape of_x = an_shape_of(x), of_ids = an_shape_of(ids); /* axes other than the one broadcast */
    for (int i = 0; i < of_x.rank && i < of_ids.rank; i++) {
        if (i == axis) continue;
        if (of_ids.dim[i] == 1) of_ids.dim[i] = of_x.dim[i];
        if (of_x.dim[i] == 1) of_x.dim[i] = of_ids.dim[i];
    }
    x = an_expand_at(AN_AT, x, of_x);
    ids = an_expand_at(AN_AT, ids, of_ids);
    an_tensor *linear = linear_along(b, x, axis, ids);
    an_out(b, n, 0, an_gather_at(AN_AT, an_reshape_1(x, an_count(x)), linear));
    return AN_OK;
}

/* ---- x[i, j, :, k] */

typedef struct indices {
    an_tensor *linear; /* over the indexed axes, i32 [I...] */
    an_tensor *table;  /* x as [indexed axes, rest...] */
    an_shape picked, rest;
    int first;     /* of the indexed axes */
    bool adjacent; /* they follow one another: the new axes of the result are at their place, else in front */
    int axis[8], n_axes, other[8], n_other;
    int64_t rows;
} indices;

/* Index tensors broadcast against one another, as one linear index. */
static an_status read_indices(an_build *b, const an_pt2_node *n, an_tensor *x, indices *out)
{
    const an_shape s = an_shape_of(x);
    an_tensor *linear = NULL;
    *out = (indices){.rows = 1};
    for (int i = 0; i < s.rank; i++) {
        if (an_in_list(b, n, 1, i))
            out->axis[out->n_axes++] = i;
        else
            out->other[out->n_other++] = i;
    }
    if (out->n_axes == 0 || an_in_count(n, 1) > s.rank)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "no index, or too many");
    out->first = out->axis[0];
    out->adjacent = out->axis[out->n_axes - 1] - out->axis[0] == out->n_axes - 1;
    for (int k = out->n_axes - 1; k >= 0; k--) {
        an_tensor *ids = an_in_list(b, n, 1, out->axis[k]);
        if (an_dtype_of(ids) == AN_BOOL)
            return an_build_refuse(b, AN_E_UNSUPPORTED, "an index of bools: its shape depends on data");
        an_tensor *at = wrapped(b, ids, s.dim[out->axis[k]]);
        if (out->rows != 1) at = an_mul_num_at(AN_AT, at, (double)out->rows);
        linear = linear ? an_add_at(AN_AT, linear, at) : at;
        out->rows *= s.dim[out->axis[k]];
    }
    an_shape perm = {.rank = s.rank}, table = {.rank = 1 + out->n_other, .dim = {out->rows}};
    for (int k = 0; k < out->n_axes; k++) perm.dim[k] = out->axis[k];
    for (int k = 0; k < out->n_other; k++) {
        perm.dim[out->n_axes + k] = out->other[k];
        table.dim[1 + k] = out->rest.dim[k] = s.dim[out->other[k]];
    }
    out->rest.rank = out->n_other;
    out->linear = linear;
    out->picked = an_shape_of(linear);
    out->table = an_reshape_at(AN_AT, an_permute_at(AN_AT, x, perm), table);
    return out->picked.rank + out->n_other <= 8 ? AN_OK : an_build_refuse(b, AN_E_UNSUPPORTED, "more than 8 axes");
}

/* [I..., rest...] with I moved to where PyTorch has it; `back` the other way. */
static an_tensor *place(const indices *x, an_tensor *t, bool back)
{
    const int I = x->picked.rank, front = x->adjacent ? x->first : 0;
    an_shape perm = {.rank = I + x->n_other};
    for (int i = 0; i < perm.rank; i++) {
        const int from = i < front ? I + i : i < front + I ? i - front : i;
        if (back)
            perm.dim[from] = i;
        else
            perm.dim[i] = from;
    }
    return front == 0 || I == 0 ? t : an_permute_at(AN_AT, t, perm);
}

an_status an_rule_index(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    indices at;
    AN_TRY(read_indices(b, n, x, &at));
    an_out(b, n, 0, place(&at, an_gather_at(AN_AT, at.table, at.linear), false));
    return AN_OK;
}

/* How many ids name each row, as [R,1,...] of the table's rank; none: where it is none. */
static an_tensor *hits_of(an_build *b, an_tensor *table, an_tensor *ids, an_dtype dtype, an_tensor **none)
{
    const int64_t R = an_dim(table, 0);
    an_shape s = {.rank = an_rank(table), .dim = {R, 1, 1, 1, 1, 1, 1, 1}};
    an_tensor *ones = an_full_at(AN_AT, b->cx, dtype, AN_SHAPE(an_count(ids)), 1);
    an_tensor *hits = an_reshape_at(AN_AT, an_scatter_add_at(AN_AT, an_reshape_1(ids, an_count(ids)), ones, R), s);
    *none = an_eq_at(AN_AT, hits, an_num(hits, b->cx, 0));
    return an_where_at(AN_AT, *none, an_num(hits, b->cx, 1), hits);
}

/* The same of integers, whose sums wrap. float32 has 24 bits: they are added in three parts of 10 or 11 bits, exact for up to 8,192 at a row. */
static an_tensor *put_whole_rows(an_build *b, an_tensor *table, an_tensor *ids, an_tensor *src, bool add)
{
    enum { PARTS = 3, BITS = 11 };
    an_tensor *none = NULL, *hits = add ? NULL : hits_of(b, table, ids, AN_F32, &none), *all = NULL;
    src = an_as(src, AN_I32);
    for (int k = 0; k < PARTS; k++) {
        const double unit = ldexp(1, k * BITS), wraps = ldexp(1, 32 - k * BITS);
        const double mask = k == PARTS - 1 ? -unit : ldexp(1, (k + 1) * BITS) - unit; /* the last one has the sign */
        an_tensor *bits = an_cast_at(AN_AT, an_and_at(AN_AT, src, an_num(src, b->cx, mask)), AN_F32);
        an_tensor *sum = an_mul_num_at(AN_AT, bits, 1 / unit);
        sum = an_scatter_add_at(AN_AT, ids, sum, an_dim(table, 0));
        if (hits) sum = an_div_at(AN_AT, sum, hits);
        an_tensor *turns = an_floor_at(AN_AT, an_mul_num_at(AN_AT, sum, 1 / wraps));
        sum = an_sub_at(AN_AT, sum, an_mul_num_at(AN_AT, turns, wraps)); /* 0 to wraps, below 2^24 */
        sum = an_mul_num_at(AN_AT, an_cast_at(AN_AT, sum, AN_I32), unit);
        all = all ? an_add_at(AN_AT, all, sum) : sum;
    }
    return add ? an_add_at(AN_AT, table, all) : an_where_at(AN_AT, none, table, all);
}

/* Rows of `table` [R,...] set to src [n,...] at ids [n], or added. Where several rows go to one place, their mean is set:
 * PyTorch's result is any one of them. */
static an_tensor *put_rows(an_build *b, an_tensor *table, an_tensor *ids, an_tensor *src, bool add)
{
    const an_dtype dtype = an_dtype_of(table);
    const bool whole = !an_is_float(table);
    if (dtype == AN_I32) return put_whole_rows(b, table, ids, src, add);
    an_tensor *base = whole ? an_cast_at(AN_AT, table, AN_F32) : table;
    src = an_as(src, an_dtype_of(base));
    an_tensor *sum = an_scatter_add_at(AN_AT, ids, src, an_dim(table, 0));
    if (!add) {
        an_tensor *none, *hits = hits_of(b, table, ids, an_dtype_of(base), &none);
        base = an_where_at(AN_AT, none, base, an_div_at(AN_AT, sum, hits));
    } else {
        base = an_add_at(AN_AT, base, sum);
    }
    return whole ? an_as(base, dtype) : base;
}

/* x[mask] = value for a mask of x's leading axes: where. */
static an_status put_masked(an_build *b, const an_pt2_node *n, an_tensor *x, an_tensor *mask)
{
    an_tensor *src = an_in(b, n, 2);
    an_shape s = an_shape_of(mask);
    if (an_count(src) != 1)
        return an_build_refuse(b, AN_E_UNSUPPORTED,
                               "values by a mask: their number depends on data; one value is known");
    while (s.rank < an_rank(x)) s.dim[s.rank++] = 1;
    an_tensor *value = an_reshape_at(AN_AT, an_as(src, an_dtype_of(x)), AN_SCALAR);
    an_out(b, n, 0, an_where_at(AN_AT, an_reshape_at(AN_AT, mask, s), value, x));
    return AN_OK;
}

an_status an_rule_index_put(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *src = an_in(b, n, 2);
    indices at;
    an_tensor *mask = an_in_count(n, 1) == 1 ? an_in_list(b, n, 1, 0) : NULL;
    if (mask && an_dtype_of(mask) == AN_BOOL) return put_masked(b, n, x, mask);
    AN_TRY(read_indices(b, n, x, &at));
    an_shape shape = {.rank = at.picked.rank + at.n_other}, rows = {.rank = 1 + at.n_other};
    const int front = at.adjacent ? at.first : 0;
    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = i < front                    ? at.rest.dim[i]
                       : i < front + at.picked.rank ? at.picked.dim[i - front]
                                                    : at.rest.dim[i - at.picked.rank];
    src = place(&at, an_expand_at(AN_AT, src, shape), true); /* [I..., rest...] */
    rows.dim[0] = an_count(at.linear);
    memcpy(rows.dim + 1, at.rest.dim, (size_t)at.n_other * sizeof rows.dim[0]);
    an_tensor *values = an_reshape_at(AN_AT, src, rows);
    an_tensor *table = put_rows(b, at.table, an_reshape_1(at.linear, rows.dim[0]), values, an_in_bool(b, n, 3));
    an_shape moved = {.rank = an_rank(x)}, back = moved;
    for (int k = 0; k < at.n_axes; k++) moved.dim[k] = an_dim(x, at.axis[k]), back.dim[at.axis[k]] = k;
    for (int k = 0; k < at.n_other; k++) {
        moved.dim[at.n_axes + k] = at.rest.dim[k];
        back.dim[at.other[k]] = at.n_axes + k;
    }
    an_out(b, n, 0, an_permute_at(AN_AT, an_reshape_at(AN_AT, table, moved), back));
    return AN_OK;
}

/* self with src (or a value) set or added at positions along an axis. */
static an_status scatter(an_build *b, const an_pt2_node *n, bool add)
{
    int axis;
    an_tensor *x = an_in(b, n, 0), *ids = an_in(b, n, 2);
    AN_TRY(read_axis(b, n, 1, an_rank(x), &axis));
    const an_shape s = an_shape_of(ids);
    an_tensor *src =
        an_in_is_tensor(n, 3) ? an_in(b, n, 3) : an_full_at(AN_AT, b->cx, an_dtype_of(x), s, an_in_float(b, n, 3));
    for (int i = 0; i < s.rank; i++)
        if (an_dim(src, i) > s.dim[i]) src = an_slice_at(AN_AT, src, i, 0, s.dim[i], 1);
    an_tensor *linear = an_reshape_1(linear_along(b, x, axis, ids), an_count(ids));
    an_tensor *values = an_reshape_1(src, an_count(ids));
    an_tensor *flat = put_rows(b, an_reshape_1(x, an_count(x)), linear, values, add);
    an_out(b, n, 0, an_reshape_at(AN_AT, flat, an_shape_of(x)));
    return AN_OK;
}

an_status an_rule_scatter(an_build *b, const an_pt2_node *n)
{
    return scatter(b, n, false);
}
an_status an_rule_scatter_add(an_build *b, const an_pt2_node *n)
{
    return scatter(b, n, true);
}

static an_status along(an_build *b, const an_pt2_node *n, bool add)
{
    int axis;
    an_tensor *x = an_in(b, n, 0), *ids = an_in(b, n, 2), *src = an_in(b, n, 3);
    AN_TRY(read_axis(b, n, 1, an_rank(x), &axis));
    const an_dtype dtype = an_dtype_of(x);
    if (dtype == AN_BOOL) x = an_as_number(x), src = an_as_number(src);
    if (add && an_in_float(b, n, 4) != 1) src = an_mul_num_at(AN_AT, src, an_in_float(b, n, 4));
    an_tensor *values = axis_first(src, axis), *rows = wrapped(b, ids, an_dim(x, axis));
    an_tensor *table = put_rows(b, axis_first(x, axis), rows, values, add);
    table = axis_back(table, axis);
    an_out(b, n, 0, dtype == AN_BOOL ? an_as(table, AN_BOOL) : table);
    return AN_OK;
}

an_status an_rule_index_add(an_build *b, const an_pt2_node *n)
{
    return along(b, n, true);
}
an_status an_rule_index_copy(an_build *b, const an_pt2_node *n)
{
    return along(b, n, false);
}

an_tensor *an_put_strided(an_build *b, an_tensor *x, int axis, int64_t start, int64_t step, an_tensor *part)
{
    const an_shape s = an_shape_of(x);
    const int64_t length = s.dim[axis], count = an_dim(part, axis);
    if (count == 0 || step < 1) return x;
    step = AN_MIN(step, AN_MAX(length - start, 1));     /* a longer one goes beyond the end too */
    an_tensor *wide = an_spread(part, axis, (int)step); /* the elements and zeros between them */
    wide = an_pad_at(AN_AT, wide, axis, start, AN_MAX(0, length - start - an_dim(wide, axis)), 0);
    an_shape line = {.rank = s.rank, .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
    line.dim[axis] = length;
    an_tensor *i = an_add_num_at(AN_AT, an_iota_at(AN_AT, b->cx, line, axis), (double)-start),
              *zero = an_num(i, b->cx, 0);
    an_tensor *on = an_eq_at(AN_AT, an_imod_at(AN_AT, i, an_num(i, b->cx, (double)step)), zero);
    an_tensor *behind = an_ge_at(AN_AT, i, zero);
    an_tensor *before = an_lt_at(AN_AT, i, an_num(i, b->cx, (double)(count * step)));
    on = an_and_at(AN_AT, on, an_and_at(AN_AT, behind, before));
    return an_where_at(AN_AT, on, wide, x);
}

/* A slice or one element of an axis replaced by src. */
static an_status replace(an_build *b, const an_pt2_node *n, int axis, int64_t start, int64_t length)
{
    an_tensor *x = an_in(b, n, 0);
    an_shape s = an_shape_of(x);
    const int64_t all = s.dim[axis];
    start = start < 0 ? AN_MAX(start + all, 0) : AN_MIN(start, all);
    length = AN_MIN(length, all - start);
    s.dim[axis] = length;
    an_tensor *part[] = {an_slice_at(AN_AT, x, axis, 0, start, 1),
                         an_reshape_at(AN_AT, an_as(an_in(b, n, 1), an_dtype_of(x)), s),
                         an_slice_at(AN_AT, x, axis, start + length, all, 1)};
    an_out(b, n, 0, an_concat_at(AN_AT, part, 3, axis));
    return AN_OK;
}

an_status an_rule_slice_scatter(an_build *b, const an_pt2_node *n)
{
    int axis;
    const int64_t step = an_in_int(b, n, 5);
    AN_TRY(read_axis(b, n, 2, an_rank(an_in(b, n, 0)), &axis));
    if (step < 1) return an_build_refuse(b, AN_E_IO, "every %lld elements; the file is damaged", (long long)step);
    if (step != 1) {
        an_tensor *x = an_in(b, n, 0), *src = an_in(b, n, 1);
        const int64_t start = an_in_none(n, 3) ? 0 : an_in_int(b, n, 3), length = an_dim(x, axis);
        const int64_t from = AN_MIN(AN_MAX(start < 0 ? start + length : start, 0), length), count = an_dim(src, axis);
        if (count > 1 && (length - from - 1) / step < count - 1)
            return an_build_refuse(b, AN_E_IO, "%lld elements beyond the end; the file is damaged", (long long)count);
        an_out(b, n, 0, an_put_strided(b, x, axis, from, step, an_as(src, an_dtype_of(x))));
        return AN_OK;
    }
    return replace(b, n, axis, an_in_none(n, 3) ? 0 : an_in_int(b, n, 3), an_dim(an_in(b, n, 1), axis));
}
an_status an_rule_select_scatter(an_build *b, const an_pt2_node *n)
{
    int axis;
    AN_TRY(read_axis(b, n, 2, an_rank(an_in(b, n, 0)), &axis));
    return replace(b, n, axis, an_in_int(b, n, 3), 1);
}

/* One at the id, 0 elsewhere: the classes are a number of the graph. */
an_status an_rule_one_hot(an_build *b, const an_pt2_node *n)
{
    an_tensor *ids = as_index(an_in(b, n, 0));
    an_shape s = an_shape_of(ids), one;
    if (an_in_int(b, n, 1) < 1 || s.rank > 7)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "the number of classes depends on data: give num_classes");
    one = s;
    one.dim[one.rank++] = 1;
    s.dim[s.rank++] = an_in_int(b, n, 1);
    an_tensor *label = an_reshape_at(AN_AT, ids, one);
    an_tensor *hot = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, s, s.rank - 1), label);
    an_out(b, n, 0, an_cast_at(AN_AT, hot, AN_I32));
    return AN_OK;
}

/* where(column - row <= diagonal), and >=. */
static an_status triangle(an_build *b, const an_pt2_node *n, bool lower)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x);
    if (s.rank < 2) return an_build_refuse(b, AN_E_IO, "of fewer than 2 axes; the file is damaged");
    an_tensor *row = an_iota_at(AN_AT, b->cx, s, s.rank - 2), *column = an_iota_at(AN_AT, b->cx, s, s.rank - 1);
    row = an_add_num_at(AN_AT, row, (double)an_in_int(b, n, 1));
    an_tensor *keep = lower ? an_le_at(AN_AT, column, row) : an_ge_at(AN_AT, column, row);
    an_out(b, n, 0, an_where_at(AN_AT, keep, x, an_num(x, b->cx, 0)));
    return AN_OK;
}

an_status an_rule_tril(an_build *b, const an_pt2_node *n)
{
    return triangle(b, n, true);
}
an_status an_rule_triu(an_build *b, const an_pt2_node *n)
{
    return triangle(b, n, false);
}

/* [2,M]: rows and columns of a matrix's triangle. */
static an_status triangle_indices(an_build *b, const an_pt2_node *n, bool lower)
{
    enum { MOST = 1 << 20 };
    const int64_t rows = an_in_int(b, n, 0), columns = an_in_int(b, n, 1);
    const int64_t offset = AN_MIN(AN_MAX(an_in_int(b, n, 2), -2 * MOST), 2 * MOST);
    if (rows < 0 || columns < 0 || rows > MOST || columns > MOST || rows * columns > MOST)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of more than %d elements", MOST);
    an_arena arena = {0};
    int32_t *index = AN_NEW_ARRAY(&arena, int32_t, 2 * rows * columns + 1);
    int64_t count = 0;
    for (int half = 0; index && half < 2; half++) {
        int64_t at = half * count;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                if (lower ? c <= r + offset : c >= r + offset) index[at++] = (int32_t)(half ? c : r);
        if (!half) count = at;
    }
    an_tensor *t = index ? an_input_at(AN_AT, b->cx, AN_I32, AN_SHAPE(2, count), index) : NULL;
    an_arena_free(&arena);
    if (!t) return an_build_refuse(b, AN_E_NOMEM, "no memory");
    an_out(b, n, 0, t);
    return AN_OK;
}

an_status an_rule_tril_indices(an_build *b, const an_pt2_node *n)
{
    return triangle_indices(b, n, true);
}
an_status an_rule_triu_indices(an_build *b, const an_pt2_node *n)
{
    return triangle_indices(b, n, false);
}

/* How many of `offsets` [B] are not above each of 0 ... count-1: i32 [count]. */
static an_tensor *offsets_up_to(an_build *b, an_tensor *offsets, int64_t count)
{
    const int64_t B = an_dim(offsets, 0);
    an_tensor *at = an_iota_at(AN_AT, b->cx, AN_SHAPE(count, B), 0);
    offsets = an_expand_at(AN_AT, an_reshape_at(AN_AT, as_index(offsets), AN_SHAPE(1, B)), AN_SHAPE(count, B));
    return an_sum_at(AN_AT, an_as(an_le_at(AN_AT, offsets, at), AN_I32), AN_AXIS(1), false);
}

typedef enum group_kind { LARGEST, LEAST, PRODUCT } group_kind;

/* Of rows src [M,...] the largest, the least or the product of each group, ids [M] or of src's shape, as [R,...]: R times as many comparisons as there
 * are elements. -inf, inf or 1 where a group has none, of integers the least, the largest or 1. NULL: too many, or src has 8 axes. */
static an_tensor *of_groups(an_build *b, an_tensor *src, an_tensor *ids, int64_t R, group_kind kind)
{
    const an_shape s = an_shape_of(src);
    an_shape group = {.rank = s.rank + 1, .dim = {R, 1, 1, 1, 1, 1, 1, 1}},
             each = {.rank = s.rank + 1, .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
    const an_shape of_ids = an_shape_of(ids);
    if (group.rank > 8 || of_ids.rank > s.rank || (double)R * (double)an_count(src) > 1e9) return NULL;
    for (int i = 0; i < of_ids.rank; i++) each.dim[1 + i] = of_ids.dim[i];
    an_tensor *at = an_reshape_at(AN_AT, as_index(ids), each);
    memcpy(each.dim + 1, s.dim, (size_t)s.rank * sizeof s.dim[0]);
    src = an_reshape_at(AN_AT, src, each);
    an_tensor *mine = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, group, 0), at);
    const bool least = kind == LEAST, whole = an_dtype_of(src) == AN_I32;
    const double lowest = whole ? INT32_MIN : -HUGE_VAL, highest = whole ? INT32_MAX : HUGE_VAL;
    const double end = least ? highest : lowest;
    an_tensor *all = an_where_at(AN_AT, mine, src, an_num(src, b->cx, kind == PRODUCT ? 1 : end));
    if (kind == PRODUCT) {
        an_shape back = s;
        back.dim[0] = R;
        an_shape perm = group; /* the axis of rows last, the others in their order */
        for (int i = 0; i < perm.rank; i++) perm.dim[i] = i == 0 ? 0 : i + 1 < perm.rank ? i + 1 : 1;
        return an_reshape_at(AN_AT, an_product_of_rows(an_permute_at(AN_AT, all, perm), false), back);
    }
    return least ? an_min_at(AN_AT, all, AN_AXIS(1), false) : an_max_at(AN_AT, all, AN_AXIS(1), false);
}

/* index [M] of rows as index_reduce has it, for each element of src. */
static an_tensor *for_each(an_tensor *ids, an_tensor *src, int axis)
{
    an_shape s = {.rank = an_rank(src), .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
    s.dim[axis] = an_count(ids);
    return an_expand_at(AN_AT, an_reshape_at(AN_AT, ids, s), an_shape_of(src));
}

/* x with its first elements along all axes replaced by `part`, which has as many axes. */
static an_tensor *over_part(an_tensor *x, an_tensor *part)
{
    for (int i = an_rank(x) - 1; i >= 0; i--) {
        const int64_t n = an_dim(part, i), all = an_dim(x, i);
        an_tensor *rest = n < all ? an_slice_at(AN_AT, x, i, n, all, 1) : NULL;
        for (int k = 0; rest && k < i; k++) rest = an_slice_at(AN_AT, rest, k, 0, an_dim(part, k), 1);
        an_tensor *both[] = {part, rest};
        if (rest) part = an_concat_at(AN_AT, both, 2, i);
    }
    return part;
}

/* self dim index src reduce include_self: sums, means, products or extremes of what goes to one place. */
an_status an_rule_scatter_reduce(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *ids = an_in(b, n, 2), *src = an_in(b, n, 3);
    const char *how = n->arg[4].text ? n->arg[4].text : "";
    const bool sum = strcmp(how, "sum") == 0, mean = strcmp(how, "mean") == 0;
    const group_kind kind = strcmp(how, "amin") == 0 ? LEAST : strcmp(how, "prod") == 0 ? PRODUCT : LARGEST;
    const bool self = an_in_bool(b, n, 5);
    if (!sum && !mean && kind == LARGEST && strcmp(how, "amax") != 0)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "reduce=%.20s; sum, mean, prod, amax and amin are known", how);
    const an_shape given = an_shape_of(x);
    if (given.rank == 0) x = an_reshape_1(x, 1);
    if (an_rank(ids) == 0) ids = an_reshape_1(ids, 1);
    if (an_rank(src) == 0) src = an_reshape_1(src, 1);
    if (!an_is_float(x) && (sum || mean || an_dtype_of(x) == AN_BOOL))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "reduce=%.20s of integers or bools", how);
    int axis;
    AN_TRY(read_axis(b, n, 1, an_rank(x), &axis));
    if (strstr(n->target, "index_reduce")) {
        if (an_rank(ids) != 1 || axis >= an_rank(src) || an_count(ids) != an_dim(src, axis))
            return an_build_refuse(b, AN_E_UNSUPPORTED, "an index of other than one number a row");
        ids = for_each(ids, src, axis);
    }
    const an_shape s = an_shape_of(ids), shape = an_shape_of(x);
    if (s.rank != shape.rank || an_rank(src) != shape.rank)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "an index or a source of other axes than self has");
    for (int i = 0; i < s.rank; i++)
        if (an_dim(src, i) > s.dim[i]) src = an_slice_at(AN_AT, src, i, 0, s.dim[i], 1);
    an_tensor *linear = an_reshape_1(linear_along(b, x, axis, ids), an_count(ids)),
              *flat = an_reshape_1(x, an_count(x));
    const an_dtype counts = an_is_float(x) ? an_dtype_of(x) : AN_F32;
    an_tensor *ones = an_full_at(AN_AT, b->cx, counts, AN_SHAPE(an_count(ids)), 1);
    an_tensor *hits = an_scatter_add_at(AN_AT, linear, ones, an_count(x));
    an_tensor *none = an_eq_at(AN_AT, hits, an_num(hits, b->cx, 0)), *y;
    if (sum || mean) {
        y = an_scatter_add_at(AN_AT, linear, an_reshape_1(src, an_count(ids)), an_count(x));
        if (self) y = an_add_at(AN_AT, flat, y);
        an_tensor *count = self ? an_add_num_at(AN_AT, hits, 1) : an_where_at(AN_AT, none, an_num(x, b->cx, 1), hits);
        if (mean) y = an_div_at(AN_AT, y, count);
    } else {
        an_tensor *reached = x; /* the part of self in which the index's places are */
        for (int i = 0; i < s.rank; i++)
            if (i != axis && s.dim[i] != shape.dim[i]) reached = an_slice_at(AN_AT, reached, i, 0, s.dim[i], 1);
        an_tensor *rows = axis_first(src, axis), *at = wrapped(b, axis_first(ids, axis), shape.dim[axis]);
        if (self) { /* each element of self is one more of its group */
            an_tensor *own = axis_first(reached, axis);
            an_tensor *rows_of[] = {rows, own}, *ids_of[] = {at, an_iota_at(AN_AT, b->cx, an_shape_of(own), 0)};
            rows = an_concat_at(AN_AT, rows_of, 2, 0);
            at = an_concat_at(AN_AT, ids_of, 2, 0);
        }
        y = of_groups(b, rows, at, shape.dim[axis], kind);
        if (!y) return an_build_refuse(b, AN_E_UNSUPPORTED, "reduce=%.20s: 8 axes, or more than 1e9 comparisons", how);
        y = an_reshape_1(over_part(x, axis_back(y, axis)), an_count(x));
    }
    if (!self) y = an_where_at(AN_AT, none, flat, y);
    an_out(b, n, 0, an_reshape_at(AN_AT, y, given));
    return AN_OK;
}

/* indices [n] in bags that begin at offsets [B]. mode 0: sum, 1: mean, 2: maximum. */
an_status an_rule_embedding_bag(an_build *b, const an_pt2_node *n)
{
    an_tensor *table = an_in(b, n, 0), *ids = an_in(b, n, 1), *offsets = an_in(b, n, 2), *weights = an_in(b, n, 6);
    const int64_t mode = an_in_int(b, n, 4), count = an_count(ids);
    int64_t B = an_dim(offsets, 0);
    if (an_rank(offsets) != 1 || B < 1) return an_build_refuse(b, AN_E_IO, "without bags");
    an_tensor *bag = an_add_num_at(AN_AT, offsets_up_to(b, offsets, count), -1); /* [count] */
    if (an_in_bool(b, n, 7)) B--;
    const an_dtype dtype = an_dtype_of(table);
    an_tensor *rows = an_rows(table, an_reshape_1(ids, count)),
              *share = an_full_at(AN_AT, b->cx, dtype, AN_SHAPE(count, 1), 1);
    if (an_in_bool(b, n, 3)) rows = by_frequency(b, rows, an_reshape_1(ids, count), an_dim(table, 0));
    if (weights) rows = an_mul_at(AN_AT, rows, an_reshape_at(AN_AT, weights, AN_SHAPE(count, 1)));
    if (strstr(n->target, "padding_idx") && !an_in_none(n, 8)) {
        int64_t padding = an_in_int(b, n, 8);
        if (padding < 0) padding += an_dim(table, 0);
        an_tensor *index = as_index(ids);
        an_tensor *pad = an_eq_at(AN_AT, index, an_num(index, b->cx, (double)padding));
        pad = an_reshape_at(AN_AT, pad, AN_SHAPE(count, 1));
        rows = an_where_at(AN_AT, pad, an_num(rows, b->cx, mode > 1 ? -INFINITY : 0), rows);
        share = an_where_at(AN_AT, pad, an_num(share, b->cx, 0), share);
    }
    an_tensor *y = mode > 1 ? of_groups(b, rows, bag, B, LARGEST) : an_scatter_add_at(AN_AT, bag, rows, B);
    if (!y) return an_build_refuse(b, AN_E_UNSUPPORTED, "maxima: more than 1e9 comparisons");
    if (mode > 1) { /* of no rows */
        an_tensor *none = an_eq_at(AN_AT, y, an_num(y, b->cx, -INFINITY));
        y = an_where_at(AN_AT, none, an_num(y, b->cx, 0), y);
    }
    if (mode == 1) {
        an_tensor *all = an_scatter_add_at(AN_AT, bag, share, B);
        y = an_div_at(AN_AT, y, an_maximum_at(AN_AT, all, an_num(all, b->cx, 1)));
    }
    an_out(b, n, 0, y);
    return AN_OK;
}

/* ---- products by groups of rows: a mixture of experts */

static an_tensor *transposed(an_tensor *x)
{
    return an_transpose_at(AN_AT, x, an_rank(x) - 2, an_rank(x) - 1);
}

/* self mat2 offs bias out_dtype: groups are rows of self, columns of mat2, what is summed over (offs says where each ends), or members of a
 * batch (there is no offs). */
an_status an_rule_grouped_product(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_narrow(b, an_in(b, n, 0)), *w = an_narrow(b, an_in(b, n, 1)), *y;
    const int left = an_rank(x), right = an_rank(w);
    if (!an_in_none(n, 3)) return an_build_refuse(b, AN_E_UNSUPPORTED, "with a bias, which PyTorch refuses, too");
    if (left < 2 || left > 3 || right < 2 || right > 3)
        return an_build_refuse(b, AN_E_IO, "operands of %d and %d axes; the file is damaged", left, right);
    if (an_in_none(n, 2) != (left == 3 && right == 3))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "operands of %d and %d axes %s offs", left, right,
                               an_in_none(n, 2) ? "without" : "with");
    if (left == 3 && right == 3) {
        an_out(b, n, 0, an_as_result(b, n, 0, an_product(b, x, w)));
        return AN_OK;
    }
    an_tensor *ends = as_index(an_in(b, n, 2));
    an_promote(&x, &w);
    if (left == 3) { /* what is asked for is the transpose of rows by a matrix each */
        x = transposed(x), w = transposed(w);
        y = transposed(an_grouped_matmul_at(AN_AT, w, x, ends));
    } else if (right == 3) {
        y = an_grouped_matmul_at(AN_AT, x, w, ends);
    } else {
        x = transposed(x);
        y = an_grouped_outer_at(AN_AT, x, w, ends);
    }
    an_out(b, n, 0, an_as_result(b, n, 0, y));
    return AN_OK;
}

/* input weight offs grad_output: the gradients of input [S,K] and weight [E,K,N]. */
an_status an_rule_grouped_product_backward(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_narrow(b, an_in(b, n, 0)), *w = an_narrow(b, an_in(b, n, 1)), *dy = an_narrow(b, an_in(b, n, 3));
    an_tensor *ends = as_index(an_in(b, n, 2));
    if (an_rank(w) != 3) return an_build_refuse(b, AN_E_IO, "a weight of %d axes; the file is damaged", an_rank(w));
    an_promote(&x, &dy);
    an_promote(&w, &dy);
    an_out(b, n, 0, an_as_result(b, n, 0, an_grouped_matmul_at(AN_AT, dy, transposed(w), ends)));
    an_out(b, n, 1, an_as_result(b, n, 1, an_grouped_outer_at(AN_AT, x, dy, ends)));
    return AN_OK;
}

/* ---- places of the whole tensor, and masks */

/* self index: elements of self read in a row */
an_status an_rule_take(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int64_t count = an_count(x);
    an_tensor *at = wrapped(b, an_in(b, n, 1), count);
    an_out(b, n, 0, an_gather_at(AN_AT, an_reshape_1(x, count), at));
    return AN_OK;
}

/* self dim index value: elements of an axis set to one number */
an_status an_rule_index_fill(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *ids = an_in(b, n, 2);
    if (an_rank(x) == 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "of a tensor without axes");
    int axis;
    AN_TRY(read_axis(b, n, 1, an_rank(x), &axis));
    const int64_t length = an_dim(x, axis), count = an_count(ids);
    an_tensor *value = an_in_is_tensor(n, 3) ? an_as(an_reshape_at(AN_AT, an_in(b, n, 3), AN_SCALAR), an_dtype_of(x))
                                             : an_num(x, b->cx, an_in_float(b, n, 3));
    ids = an_reshape_at(AN_AT, wrapped(b, ids, length), AN_SHAPE(1, count));
    an_tensor *same = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, AN_SHAPE(length, count), 0), ids);
    an_tensor *hits = an_sum_at(AN_AT, an_cast_at(AN_AT, same, AN_I32), AN_AXIS(1), false); /* [length] */
    an_shape s = {.rank = an_rank(x)};
    for (int i = 0; i < s.rank; i++) s.dim[i] = i == axis ? length : 1;
    hits = an_reshape_at(AN_AT, hits, s);
    an_tensor *mask = an_ne_at(AN_AT, hits, an_num(hits, b->cx, 0));
    an_out(b, n, 0, an_where_at(AN_AT, mask, value, x));
    return AN_OK;
}

/* self mask source: the k-th place where the mask is true takes element k of source: k is a running sum of the mask. */
an_status an_rule_masked_scatter(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *mask = an_in(b, n, 1), *src = an_in(b, n, 2);
    const an_shape s = an_shape_of(x);
    const int64_t count = an_count(x);
    mask = an_reshape_1(an_expand_at(AN_AT, mask, s), count);
    an_tensor *order = an_add_num_at(AN_AT, an_cumsum_at(AN_AT, an_cast_at(AN_AT, mask, AN_I32), false), -1);
    an_tensor *values = an_gather_at(AN_AT, an_reshape_1(an_as(src, an_dtype_of(x)), an_count(src)), order);
    an_out(b, n, 0, an_reshape_at(AN_AT, an_where_at(AN_AT, mask, values, an_reshape_1(x, count)), s));
    return AN_OK;
}

/* grad_output mask sizes: element k of the source has the gradient of the k-th true place */
an_status an_rule_masked_scatter_backward(an_build *b, const an_pt2_node *n)
{
    an_tensor *given = an_in(b, n, 0), *mask = an_in(b, n, 1);
    const int64_t count = an_count(given);
    an_shape s = {.rank = 0};
    s.rank = an_in_ints(b, n, 2, s.dim, 8);
    int64_t length = 1;
    for (int i = 0; i < s.rank; i++)
        length = s.dim[i] < 1 || length < 1 || s.dim[i] > INT32_MAX / length ? 0 : length * s.dim[i];
    if (length < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "of none, or more than 2^31 elements");
    mask = an_reshape_1(an_expand_at(AN_AT, mask, an_shape_of(given)), count);
    an_tensor *order = an_add_num_at(AN_AT, an_cumsum_at(AN_AT, an_cast_at(AN_AT, mask, AN_I32), false), -1);
    given = an_reshape_1(given, count);
    given = an_where_at(AN_AT, mask, given, an_num(given, b->cx, 0));
    an_out(b, n, 0, an_reshape_at(AN_AT, an_scatter_add_at(AN_AT, order, given, length), s));
    return AN_OK;
}

/* self index source accumulate: elements by their place in the whole, set or added */
an_status an_rule_put(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *src = an_in(b, n, 2);
    const int64_t count = an_count(x), many = an_count(src);
    an_tensor *at = an_reshape_1(wrapped(b, an_in(b, n, 1), count), many);
    src = an_reshape_1(src, many);
    an_tensor *y = put_rows(b, an_reshape_1(x, count), at, src, an_in_bool(b, n, 3));
    an_out(b, n, 0, an_reshape_at(AN_AT, y, an_shape_of(x)));
    return AN_OK;
}
