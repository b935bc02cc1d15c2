/* rule_order.c: operations of PyTorch that order or count elements: medians, running extremes, searches, and sums that pass NaN over. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

static an_tensor *is_nan(an_tensor *x)
{
    return an_ne_at(AN_AT, x, x);
}

static an_tensor *without_nan(an_build *b, an_tensor *x)
{
    an_tensor *zero = an_num(x, b->cx, 0);
    return an_is_float(x) ? an_where_at(AN_AT, is_nan(x), zero, x) : x;
}

/* Result k of a reduction over `axis`: t has it as its last axis, of length 1. */
static void put(an_build *b, const an_pt2_node *n, int k, an_tensor *t, int axis, bool keep)
{
    t = an_axis_last(t, axis);
    const an_shape s = an_shape_of(t);
    an_shape out = {.rank = 0};
    for (int i = 0; i < s.rank; i++)
        if (keep || i != axis) out.dim[out.rank++] = s.dim[i];
    an_out(b, n, k, an_reshape_at(AN_AT, t, out));
}

static an_tensor *element(an_tensor *rows, int64_t at)
{
    return an_slice_at(AN_AT, rows, -1, at, at + 1, 1);
}

typedef enum order { KTH, MEDIAN, NAN_MEDIAN } order;

/* The element of an axis that k others are below, and its position. A median of rows with a NaN is NaN, or is of the rest. */
static an_status ranked(an_build *b, const an_pt2_node *n, an_tensor *x, int axis, bool keep, order what, int64_t k)
{
    an_tensor *rows = an_axis_last(x, axis), *at = NULL, *values = an_sort_at(AN_AT, rows, false, &at);
    const int64_t L = an_dim(rows, an_rank(rows) - 1);
    if (L < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "of no elements");
    if (what != KTH) k = (L - 1) / 2;
    if (k < 0 || k >= L) return an_build_refuse(b, AN_E_IO, "element %lld of %lld", (long long)k + 1, (long long)L);
    an_tensor *value = element(values, k), *place = element(at, k);
    if (what == MEDIAN && an_is_float(x)) { /* NaN is sorted behind all numbers */
        an_tensor *last = element(values, L - 1), *nan = is_nan(last);
        value = an_where_at(AN_AT, nan, last, value);
        last = element(at, L - 1);
        place = an_where_at(AN_AT, nan, last, place);
    }
    if (what == NAN_MEDIAN && an_is_float(x)) {
        an_tensor *number = an_cast_at(AN_AT, an_eq_at(AN_AT, values, values), AN_I32);
        an_tensor *count = an_add_num_at(AN_AT, an_sum_at(AN_AT, number, AN_AXIS(-1), true), -1),
                  *none = an_num(count, b->cx, 0);
        count = an_maximum_at(AN_AT, count, none);
        count = an_idiv_at(AN_AT, count, an_num(count, b->cx, 2)); /* [...,1] */
        an_tensor *hot = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, an_shape_of(values), an_rank(values) - 1), count);
        value = an_sum_at(AN_AT, an_where_at(AN_AT, hot, values, an_num(values, b->cx, 0)), AN_AXIS(-1), true);
        place = an_sum_at(AN_AT, an_where_at(AN_AT, hot, at, an_num(at, b->cx, 0)), AN_AXIS(-1), true);
    }
    put(b, n, 0, value, axis, keep);
    put(b, n, 1, place, axis, keep);
    return AN_OK;
}

static an_status of_all(an_build *b, const an_pt2_node *n, order what)
{
    an_tensor *x = an_in(b, n, 0);
    return ranked(b, n, an_reshape_1(x, an_count(x)), 0, false, what, 0);
}

static an_status of_axis(an_build *b, const an_pt2_node *n, int dim, order what, int64_t k)
{
    an_tensor *x = an_in(b, n, 0);
    if (an_rank(x) == 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "of a tensor without axes");
    return ranked(b, n, x, an_wrap_axis(an_in_int(b, n, dim), an_rank(x)), an_in_bool(b, n, dim + 1), what, k);
}

an_status an_rule_median(an_build *b, const an_pt2_node *n)
{
    return of_all(b, n, MEDIAN);
}
an_status an_rule_median_dim(an_build *b, const an_pt2_node *n)
{
    return of_axis(b, n, 1, MEDIAN, 0);
}
an_status an_rule_nanmedian(an_build *b, const an_pt2_node *n)
{
    return of_all(b, n, NAN_MEDIAN);
}
an_status an_rule_nanmedian_dim(an_build *b, const an_pt2_node *n)
{
    return of_axis(b, n, 1, NAN_MEDIAN, 0);
}
/* self k dim=-1 keepdim */
an_status an_rule_kthvalue(an_build *b, const an_pt2_node *n)
{
    return of_axis(b, n, 2, KTH, AN_MAX(an_in_int(b, n, 1), 0) - 1);
}

/* ---- running along an axis: log2(length) steps, each with the value half as far behind */

static an_tensor *behind(an_tensor *rows, int64_t by, double first)
{
    const int64_t L = an_dim(rows, an_rank(rows) - 1);
    return an_slice_at(AN_AT, an_pad_at(AN_AT, rows, -1, by, 0, first), -1, 0, L, 1);
}

/* The greatest up to each place and where it is: of equal ones the last, NaN for good. */
static an_status running(an_build *b, const an_pt2_node *n, an_fn2 *not_worse, double worst)
{
    an_tensor *x = an_in(b, n, 0);
    if (an_rank(x) == 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "of a tensor without axes");
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    an_tensor *rows = an_axis_last(x, axis), *flat = an_detach_at(AN_AT, rows);
    const an_shape s = an_shape_of(rows);
    if (s.rank == 0) return AN_OK; /* an error is recorded */
    const int64_t L = s.dim[s.rank - 1];
    if (an_dtype_of(flat) == AN_BOOL) flat = an_cast_at(AN_AT, flat, AN_I32);
    if (!an_is_float(flat)) worst = worst < 0 ? INT32_MIN : INT32_MAX;
    an_tensor *at = an_iota_at(AN_AT, b->cx, s, s.rank - 1);
    for (int64_t by = 1; by < L; by *= 2) {
        an_tensor *before = behind(flat, by, worst), *there = behind(at, by, 0);
        an_tensor *stays = not_worse(AN_AT, flat, before);
        if (an_is_float(flat)) stays = an_or_at(AN_AT, stays, is_nan(flat));
        an_tensor *place = an_iota_at(AN_AT, b->cx, s, s.rank - 1);
        an_tensor *inside = an_ge_at(AN_AT, place, an_num(place, b->cx, (double)by));
        stays = an_or_at(AN_AT, stays, an_not_at(AN_AT, inside));
        flat = an_where_at(AN_AT, stays, flat, before);
        at = an_where_at(AN_AT, stays, at, there);
    }
    /* the values by their places: the gradient goes there */
    const int64_t count = an_count(rows);
    an_tensor *row = an_iota_at(AN_AT, b->cx, AN_SHAPE(L ? count / L : 0, L), 0);
    row = an_mul_num_at(AN_AT, row, (double)L);
    an_tensor *linear = an_reshape_1(an_add_at(AN_AT, row, an_reshape_at(AN_AT, at, an_shape_of(row))), count);
    an_tensor *value = an_gather_at(AN_AT, an_reshape_1(rows, count), linear);
    an_out(b, n, 0, an_axis_last(an_reshape_at(AN_AT, value, s), axis));
    an_out(b, n, 1, an_axis_last(at, axis));
    return AN_OK;
}

an_status an_rule_cummax(an_build *b, const an_pt2_node *n)
{
    return running(b, n, an_ge_at, -INFINITY);
}
an_status an_rule_cummin(an_build *b, const an_pt2_node *n)
{
    return running(b, n, an_le_at, INFINITY);
}

an_status an_rule_logcumsumexp(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    if (an_rank(x) == 0) return an_out(b, n, 0, x), AN_OK;
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    an_tensor *rows = an_axis_last(x, axis);
    for (int64_t by = 1; by < an_dim(x, axis); by *= 2) rows = an_logaddexp(b, rows, behind(rows, by, -INFINITY));
    an_out(b, n, 0, an_axis_last(rows, axis));
    return AN_OK;
}

/* ---- searches */

/* Element i of an argument that is a tensor, or a number in the dtype of `like`. */
static an_tensor *operand(an_build *b, const an_pt2_node *n, int i, an_tensor *like)
{
    return an_in_is_tensor(n, i) ? an_in(b, n, i) : an_num(like, b->cx, an_in_float(b, n, i));
}

/* How many of the bounds (last axis) are below each value, with `right` not above it. */
static void count_below(an_build *b, const an_pt2_node *n, an_tensor *bounds, an_tensor *x, bool right)
{
    an_shape s = an_shape_of(x), wide = s, table = an_shape_of(bounds);
    an_promote(&bounds, &x);
    wide.dim[wide.rank++] = 1;
    if (table.rank > 1) { /* a row of bounds for each row of values */
        table.dim[table.rank] = table.dim[table.rank - 1];
        table.dim[table.rank - 1] = 1;
        table.rank++;
    }
    x = an_reshape_at(AN_AT, x, wide);
    bounds = an_reshape_at(AN_AT, bounds, table);
    an_tensor *below = right ? an_le_at(AN_AT, bounds, x) : an_lt_at(AN_AT, bounds, x);
    an_out(b, n, 0, an_sum_at(AN_AT, an_cast_at(AN_AT, below, AN_I32), AN_AXIS(-1), false));
}

/* self boundaries out_int32 right */
an_status an_rule_bucketize(an_build *b, const an_pt2_node *n)
{
    an_tensor *bounds = an_in(b, n, 1), *x = operand(b, n, 0, bounds);
    if (an_rank(x) > 7) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 7 axes");
    if (an_rank(bounds) != 1)
        return an_build_refuse(b, AN_E_IO, "boundaries of %d axes; one is meant", an_rank(bounds));
    count_below(b, n, bounds, x, an_in_bool(b, n, 3));
    return AN_OK;
}

/* sorted_sequence self out_int32 right side sorter */
an_status an_rule_searchsorted(an_build *b, const an_pt2_node *n)
{
    an_tensor *bounds = an_in(b, n, 0), *x = operand(b, n, 1, bounds);
    if (an_rank(x) > 7 || an_rank(bounds) > 7) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 7 axes");
    if (!an_in_none(n, 5)) return an_build_refuse(b, AN_E_UNSUPPORTED, "a sequence that is sorted by another tensor");
    const bool right = an_in_bool(b, n, 3) || (n->arg[4].text && strcmp(n->arg[4].text, "right") == 0);
    count_below(b, n, bounds, x, right);
    return AN_OK;
}

/* elements test_elements assume_unique invert */
an_status an_rule_isin(an_build *b, const an_pt2_node *n)
{
    an_tensor *tests = an_in(b, n, 1), *x = an_in_is_tensor(n, 0) ? an_in(b, n, 0) : operand(b, n, 0, tests);
    if (!tests) tests = operand(b, n, 1, x);
    an_shape wide = an_shape_of(x);
    if (wide.rank > 7) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 7 axes");
    wide.dim[wide.rank++] = 1;
    an_promote(&x, &tests);
    tests = an_reshape_1(tests, an_count(tests));
    an_tensor *same = an_eq_at(AN_AT, an_reshape_at(AN_AT, x, wide), tests);
    an_tensor *hits = an_sum_at(AN_AT, an_cast_at(AN_AT, same, AN_I32), AN_AXIS(-1), false),
              *none = an_num(hits, b->cx, 0);
    an_out(b, n, 0, an_in_bool(b, n, 3) ? an_eq_at(AN_AT, hits, none) : an_ne_at(AN_AT, hits, none));
    return AN_OK;
}

/* ---- sums */

/* The axes of argument `dims` as a mask; none: all. `out`: the shape without them, or with them as 1. */
static an_axes axes_of(const an_build *b, const an_pt2_node *n, int dims, const an_tensor *x, bool keep, an_shape *out)
{
    int64_t axes[8];
    const an_shape s = an_shape_of(x);
    const int count = an_in_ints(b, n, dims, axes, 8);
    an_axes mask = 0;
    for (int k = 0; k < count; k++) mask |= AN_AXIS(an_wrap_axis(axes[k], s.rank));
    if (!count) mask = (an_axes)((1u << s.rank) - 1);
    *out = (an_shape){.rank = 0};
    for (int i = 0; i < s.rank; i++) {
        if (!(mask >> i & 1))
            out->dim[out->rank++] = s.dim[i];
        else if (keep)
            out->dim[out->rank++] = 1;
    }
    return mask;
}

static an_tensor *summed(an_tensor *x, an_axes mask, const an_shape *out)
{
    return an_reshape_at(AN_AT, mask ? an_sum_at(AN_AT, x, mask, true) : x, *out);
}

/* self dim keepdim dtype */
static an_status of_numbers(an_build *b, const an_pt2_node *n, bool mean)
{
    an_tensor *x = an_in(b, n, 0);
    an_shape out;
    const an_axes mask = axes_of(b, n, 1, x, an_in_bool(b, n, 2), &out);
    an_tensor *sum = summed(an_as_result(b, n, 0, without_nan(b, x)), mask, &out);
    if (mean) {
        an_tensor *number = an_cast_at(AN_AT, an_eq_at(AN_AT, x, x), an_dtype_of(sum));
        sum = an_div_at(AN_AT, sum, summed(number, mask, &out));
    }
    an_out(b, n, 0, sum);
    return AN_OK;
}

an_status an_rule_nansum(an_build *b, const an_pt2_node *n)
{
    return of_numbers(b, n, false);
}
an_status an_rule_nanmean(an_build *b, const an_pt2_node *n)
{
    return of_numbers(b, n, true);
}

an_status an_rule_count_nonzero(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    an_shape out;
    const an_axes mask = axes_of(b, n, 1, x, false, &out);
    an_tensor *some = an_dtype_of(x) == AN_BOOL ? x : an_ne_at(AN_AT, x, an_num(x, b->cx, 0));
    an_out(b, n, 0, summed(an_cast_at(AN_AT, some, AN_I32), mask, &out));
    return AN_OK;
}

/* self dim keepdim: the least and the greatest; equal ones share the gradient */
an_status an_rule_aminmax(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    an_shape out;
    const an_axes mask = axes_of(b, n, 1, x, an_in_bool(b, n, 2), &out);
    an_out(b, n, 0, an_reshape_at(AN_AT, an_extreme(b, x, mask, true), out));
    an_out(b, n, 1, an_reshape_at(AN_AT, an_extreme(b, x, mask, false), out));
    return AN_OK;
}

/* self p dim maxnorm: what is longer than maxnorm along the other axes is shortened to it */
an_status an_rule_renorm(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *a = an_abs_at(AN_AT, x), *norm;
    const double p = an_in_float(b, n, 1), most = an_in_float(b, n, 3);
    const int axis = an_wrap_axis(an_in_int(b, n, 2), an_rank(x));
    const an_axes mask = (an_axes)((1u << an_rank(x)) - 1) & ~AN_AXIS(axis);
    if (axis >= an_rank(x)) return an_build_refuse(b, AN_E_IO, "an axis that is not there; the file is damaged");
    if (isinf(p))
        norm = an_max_at(AN_AT, a, mask, true);
    else if (p == 1)
        norm = an_sum_at(AN_AT, a, mask, true);
    else if (p == 2)
        norm = an_sum_at(AN_AT, an_square_at(AN_AT, x), mask, true);
    else
        norm = an_sum_at(AN_AT, an_pow_at(AN_AT, a, an_num(a, b->cx, p)), mask, true);
    an_tensor *one = an_num(norm, b->cx, 1), *limit = an_num(norm, b->cx, p == 1 || isinf(p) ? most : pow(most, p));
    an_tensor *longer = an_gt_at(AN_AT, norm, limit);
    norm = an_where_at(AN_AT, longer, norm, one); /* a norm of 0 has no slope */
    if (p == 2)
        norm = an_sqrt_at(AN_AT, norm);
    else if (p != 1 && !isinf(p))
        norm = an_pow_at(AN_AT, norm, an_num(norm, b->cx, 1 / p));
    an_tensor *factor = an_mul_num_at(AN_AT, an_recip_at(AN_AT, an_add_num_at(AN_AT, norm, 1e-7)), most);
    an_out(b, n, 0, an_mul_at(AN_AT, x, an_where_at(AN_AT, longer, factor, one)));
    return AN_OK;
}
