/* rule_reduce.c: sums, means, extremes, norms, sorting and cumulative sums of PyTorch. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

/* ---- axes */

/* The axes of an argument as a mask over the stored order; None or an empty list: all axes. */
static an_axes axes_of(const an_build *b, const an_pt2_node *n, int i, const an_built_value *x)
{
    int64_t axes[8];
    const int rank = an_rank(x->t), count = i < 0 ? 0 : an_in_ints(b, n, i, axes, 8);
    an_axes mask = 0;
    for (int k = 0; k < count; k++) {
        const int axis = an_wrap_axis(axes[k], rank);
        mask |= AN_AXIS(x->last && axis < rank ? an_last_axis(axis, rank) : axis);
    }
    return count ? mask : rank ? (an_axes)((1u << rank) - 1) : 0;
}

/* A result with its axes kept, as PyTorch wants it. */
static void finish(an_build *b, const an_pt2_node *n, int k, an_tensor *t, bool last, an_axes mask, bool keep)
{
    if (keep) {
        an_out_last(b, n, k, t, last);
        return;
    }
    const int rank = an_rank(t);
    an_shape out = {.rank = 0};
    for (int axis = 0; axis < rank; axis++) {
        const int at = last ? an_last_axis(axis, rank) : axis;
        if (!(mask >> at & 1)) out.dim[out.rank++] = an_dim(t, at);
    }
    an_out(b, n, k, an_reshape_at(AN_AT, an_plain(t, last), out));
}

typedef an_tensor *an_reduction(const char *at, an_tensor *a, an_axes axes, bool keep);

static an_tensor *reduced(an_tensor *t, an_axes mask, an_reduction *fn)
{
    return an_rank(t) == 0 ? t : fn(AN_AT, t, mask, true);
}

static an_status reduce(an_build *b, const an_pt2_node *n, an_reduction *fn, int dims, int keepdim)
{
    an_built_value x = an_in_value(b, n, 0);
    x.t = an_as_result(b, n, 0, x.t);
    const an_axes mask = axes_of(b, n, dims, &x);
    const bool keep = keepdim >= 0 && an_in_bool(b, n, keepdim);
    an_tensor *y = reduced(an_as_number(x.t), mask, fn);
    finish(b, n, 0, an_dtype_of(x.t) == AN_BOOL ? an_as(y, AN_BOOL) : y, x.last, mask, keep);
    return AN_OK;
}

an_status an_rule_sum(an_build *b, const an_pt2_node *n)
{
    return reduce(b, n, an_sum_at, -1, -1);
}
an_status an_rule_sum_dim(an_build *b, const an_pt2_node *n)
{
    return reduce(b, n, an_sum_at, 1, 2);
}
an_status an_rule_mean(an_build *b, const an_pt2_node *n)
{
    return reduce(b, n, an_mean_at, -1, -1);
}
an_status an_rule_mean_dim(an_build *b, const an_pt2_node *n)
{
    return reduce(b, n, an_mean_at, 1, 2);
}

an_tensor *an_extreme(an_build *b, an_tensor *t, an_axes mask, bool least)
{
    int64_t length = 1;
    for (int axis = 0; axis < an_rank(t); axis++)
        if (mask >> axis & 1) length *= an_dim(t, axis);
    if (length != 1) return reduced(t, mask, least ? an_min_at : an_max_at);
    if (!an_is_float(t)) return t;
    an_tensor *nan = an_ne_at(AN_AT, t, t); /* equals no maximum: 0/0 of its gradient */
    an_tensor *odd = an_where_at(AN_AT, nan, t, an_num(t, b->cx, 0));
    return an_where_at(AN_AT, nan, an_mul_at(AN_AT, odd, an_detach_at(AN_AT, odd)), t);
}

static an_status extreme_of_axes(an_build *b, const an_pt2_node *n, bool least)
{
    an_built_value x = an_in_value(b, n, 0);
    x.t = an_as_result(b, n, 0, x.t);
    const an_axes mask = axes_of(b, n, 1, &x);
    an_tensor *y = an_extreme(b, an_as_number(x.t), mask, least);
    finish(b, n, 0, an_dtype_of(x.t) == AN_BOOL ? an_as(y, AN_BOOL) : y, x.last, mask, an_in_bool(b, n, 2));
    return AN_OK;
}
an_status an_rule_amax(an_build *b, const an_pt2_node *n)
{
    return extreme_of_axes(b, n, false);
}
an_status an_rule_amin(an_build *b, const an_pt2_node *n)
{
    return extreme_of_axes(b, n, true);
}

/* Of all elements: where some are NaN those share the gradient, by way of their mean. */
static an_status extreme_of_all(an_build *b, const an_pt2_node *n, an_reduction *fn)
{
    const an_built_value x = an_in_value(b, n, 0);
    if (!an_is_float(x.t) || an_count(x.t) < 2) return reduce(b, n, fn, -1, -1);
    an_tensor *nan = an_ne_at(AN_AT, x.t, x.t), *zero = an_num(x.t, b->cx, 0);
    an_tensor *last = an_num(x.t, b->cx, fn == an_max_at ? -INFINITY : INFINITY);
    an_tensor *y = fn(AN_AT, an_where_at(AN_AT, nan, last, x.t), AN_ALL, false);
    an_tensor *sum = an_sum_at(AN_AT, an_where_at(AN_AT, nan, x.t, zero), AN_ALL, false);
    an_tensor *count = an_sum_at(AN_AT, an_as(nan, AN_F32), AN_ALL, false), *one = an_num(count, b->cx, 1);
    an_tensor *some = an_ge_at(AN_AT, count, one);
    count = an_as(an_maximum_at(AN_AT, count, one), an_dtype_of(sum));
    an_tensor *mean = an_as(an_div_at(AN_AT, sum, count), an_dtype_of(y));
    an_out(b, n, 0, an_as_result(b, n, 0, an_where_at(AN_AT, some, mean, y)));
    return AN_OK;
}
an_status an_rule_max_all(an_build *b, const an_pt2_node *n)
{
    return extreme_of_all(b, n, an_max_at);
}
an_status an_rule_min_all(an_build *b, const an_pt2_node *n)
{
    return extreme_of_all(b, n, an_min_at);
}

static an_status truth(an_build *b, const an_pt2_node *n, an_reduction *fn, int dims, int keepdim)
{
    an_built_value x = an_in_value(b, n, 0);
    const an_axes mask = axes_of(b, n, dims, &x);
    an_tensor *ones = an_dtype_of(x.t) == AN_BOOL ? x.t : an_ne_at(AN_AT, x.t, an_num(x.t, b->cx, 0));
    if (an_count(x.t) == 0) { /* any of none is false, all of none true */
        ones = an_as(fn == an_max_at ? ones : an_not_at(AN_AT, ones), AN_I32);
        an_tensor *sum = reduced(ones, mask, an_sum_at), *zero = an_num(sum, b->cx, 0);
        an_tensor *t = fn == an_max_at ? an_ne_at(AN_AT, sum, zero) : an_eq_at(AN_AT, sum, zero);
        finish(b, n, 0, t, x.last, mask, keepdim >= 0 && an_in_bool(b, n, keepdim));
        return AN_OK;
    }
    an_tensor *t = reduced(an_cast_at(AN_AT, ones, AN_I32), mask, fn);
    finish(b, n, 0, an_ne_at(AN_AT, t, an_num(t, b->cx, 0)), x.last, mask, keepdim >= 0 && an_in_bool(b, n, keepdim));
    return AN_OK;
}

an_status an_rule_any(an_build *b, const an_pt2_node *n)
{
    return truth(b, n, an_max_at, -1, -1);
}
an_status an_rule_any_dim(an_build *b, const an_pt2_node *n)
{
    return truth(b, n, an_max_at, 1, 2);
}
an_status an_rule_all(an_build *b, const an_pt2_node *n)
{
    return truth(b, n, an_min_at, -1, -1);
}
an_status an_rule_all_dim(an_build *b, const an_pt2_node *n)
{
    return truth(b, n, an_min_at, 1, 2);
}

/* ---- variance and norms */

static double count_of(const an_tensor *t, an_axes mask)
{
    double count = 1;
    for (int i = 0; i < an_rank(t); i++)
        if (mask >> i & 1) count *= (double)an_dim(t, i);
    return count;
}

/* sqrt(x); the gradient at 0 is 0, as of a deviation of equal numbers and of a norm of zeros. */
static an_tensor *root_of(an_build *b, an_tensor *x)
{
    an_tensor *zero = an_num(x, b->cx, 0), *none = an_eq_at(AN_AT, x, zero);
    return an_where_at(AN_AT, none, zero, an_sqrt_at(AN_AT, an_where_at(AN_AT, none, an_num(x, b->cx, 1), x)));
}

/* mean((x - mean)^2) N / (N - correction). */
static an_status variance(an_build *b, const an_pt2_node *n, int dims, double correction, bool keep, bool root)
{
    an_built_value x = an_in_value(b, n, 0);
    const an_axes mask = axes_of(b, n, dims, &x);
    const double count = count_of(x.t, mask), left = AN_MAX(0, count - correction);
    an_tensor *t = an_mul_num_at(AN_AT, reduced(an_widen(x.t), mask, an_var_at), count / left);
    finish(b, n, 0, an_as_result(b, n, 0, root ? root_of(b, t) : t), x.last, mask, keep);
    return AN_OK;
}

static double correction_of(const an_build *b, const an_pt2_node *n)
{
    return an_in_none(n, 2) ? 1 : an_in_float(b, n, 2);
}

an_status an_rule_var_correction(an_build *b, const an_pt2_node *n)
{
    return variance(b, n, 1, correction_of(b, n), an_in_bool(b, n, 3), false);
}
/* The mean as second result: of the overload with correction, with dim, and over all. */
static an_status with_mean(an_build *b, const an_pt2_node *n, bool root)
{
    an_built_value x = an_in_value(b, n, 0);
    const bool all = strstr(n->target, ".default") != NULL, by_dim = strstr(n->target, ".dim") != NULL;
    const an_axes mask = axes_of(b, n, all ? -1 : 1, &x);
    const bool keep = !all && an_in_bool(b, n, 3);
    const double correction = all ? an_in_bool(b, n, 1) : by_dim ? an_in_bool(b, n, 2) : correction_of(b, n);
    finish(b, n, 1, an_as_result(b, n, 1, reduced(an_widen(x.t), mask, an_mean_at)), x.last, mask, keep);
    return variance(b, n, all ? -1 : 1, correction, keep, root);
}
an_status an_rule_var_mean(an_build *b, const an_pt2_node *n)
{
    return with_mean(b, n, false);
}
an_status an_rule_std_mean(an_build *b, const an_pt2_node *n)
{
    return with_mean(b, n, true);
}
an_status an_rule_std_correction(an_build *b, const an_pt2_node *n)
{
    return variance(b, n, 1, correction_of(b, n), an_in_bool(b, n, 3), true);
}
an_status an_rule_var_dim(an_build *b, const an_pt2_node *n)
{
    return variance(b, n, 1, an_in_bool(b, n, 2), an_in_bool(b, n, 3), false);
}
an_status an_rule_std_dim(an_build *b, const an_pt2_node *n)
{
    return variance(b, n, 1, an_in_bool(b, n, 2), an_in_bool(b, n, 3), true);
}
an_status an_rule_var(an_build *b, const an_pt2_node *n)
{
    return variance(b, n, -1, an_in_bool(b, n, 1), false, false);
}
an_status an_rule_std(an_build *b, const an_pt2_node *n)
{
    return variance(b, n, -1, an_in_bool(b, n, 1), false, true);
}

/* x^e of a number from 0 on; the gradient at 0 is 0. */
static an_tensor *power(an_build *b, an_tensor *x, double e)
{
    an_tensor *none = an_eq_at(AN_AT, x, an_num(x, b->cx, 0)), *at_zero = an_num(x, b->cx, e < 0 ? INFINITY : 0);
    an_tensor *some = an_where_at(AN_AT, none, an_num(x, b->cx, 1), x);
    return an_where_at(AN_AT, none, at_zero, an_pow_at(AN_AT, some, an_num(x, b->cx, e)));
}

/* (sum |x|^p)^(1/p) over axes that stay with length 1; the gradient at a norm of 0 is 0. */
static an_tensor *norm_of(an_build *b, an_tensor *t, an_axes mask, double p)
{
    if (p == 2) return root_of(b, reduced(an_square_at(AN_AT, t), mask, an_sum_at));
    if (p == 0)
        return reduced(an_cast_at(AN_AT, an_ne_at(AN_AT, t, an_num(t, b->cx, 0)), an_dtype_of(t)), mask, an_sum_at);
    an_tensor *a = an_abs_at(AN_AT, t);
    if (isinf(p)) return reduced(a, mask, p > 0 ? an_max_at : an_min_at);
    if (p == 1) return reduced(a, mask, an_sum_at);
    an_tensor *sum = reduced(power(b, a, p), mask, an_sum_at);
    return p < 0 ? an_pow_at(AN_AT, sum, an_num(sum, b->cx, 1 / p)) : power(b, sum, 1 / p);
}

an_tensor *an_norm_of_rows(an_build *b, an_tensor *x, double p)
{
    return norm_of(b, x, AN_AXIS(an_rank(x) - 1), p);
}

/* As float32, or in the result's dtype where that is wider. */
static an_tensor *norm_operand(const an_build *b, const an_pt2_node *n, an_tensor *x)
{
    return an_out_dtype(b, n, 0) == AN_F64 ? an_as(x, AN_F64) : an_widen(x);
}

static an_status norm(an_build *b, const an_pt2_node *n, double p, int dims, bool keep)
{
    an_built_value x = an_in_value(b, n, 0);
    const an_axes mask = axes_of(b, n, dims, &x);
    finish(b, n, 0, an_as_result(b, n, 0, norm_of(b, norm_operand(b, n, x.t), mask, p)), x.last, mask, keep);
    return AN_OK;
}

/* self ord dim keepdim: Frobenius' norm of the last two axes, or of those that are named. */
an_status an_rule_matrix_norm(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    if (n->arg[1].text && strcmp(n->arg[1].text, "nuc") == 0) return an_rule_norm_of_matrices(b, n);
    if (!n->arg[1].text || strcmp(n->arg[1].text, "fro") != 0)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "ord=%.20s; 'fro' and 'nuc' are known",
                               n->arg[1].text ? n->arg[1].text : "a number");
    x = (an_built_value){.t = an_plain(x.t, x.last)};
    const int rank = an_rank(x.t);
    if (rank < 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "of no matrix");
    const an_axes mask = an_in_none(n, 2) ? AN_AXIS(rank - 1) | AN_AXIS(rank - 2) : axes_of(b, n, 2, &x);
    finish(b, n, 0, an_as_result(b, n, 0, norm_of(b, norm_operand(b, n, x.t), mask, 2)), false, mask,
           an_in_bool(b, n, 3));
    return AN_OK;
}

an_status an_rule_vector_norm(an_build *b, const an_pt2_node *n)
{
    return norm(b, n, an_in_float(b, n, 1), 2, an_in_bool(b, n, 3));
}
an_status an_rule_norm_dim(an_build *b, const an_pt2_node *n)
{
    return norm(b, n, an_in_none(n, 1) ? 2 : an_in_float(b, n, 1), 2, an_in_bool(b, n, 3));
}
/* self ord dim keepdim dtype: without ord the root of the sum of squares; else the norm of vectors, or over two axes of matrices */
an_status an_rule_linalg_norm(an_build *b, const an_pt2_node *n)
{
    int64_t axes[8];
    const int named = an_in_none(n, 2) ? an_rank(an_in(b, n, 0)) : an_in_ints(b, n, 2, axes, 8);
    if (!an_in_none(n, 1) && named == 2) return an_rule_norm_of_matrices(b, n);
    if (!an_in_none(n, 1) && named != 1)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "ord=%g over %d axes; one and two are known", an_in_float(b, n, 1),
                               named);
    return an_rule_norm_dim(b, n);
}
an_status an_rule_norm(an_build *b, const an_pt2_node *n)
{
    return norm(b, n, an_in_float(b, n, 1), -1, false);
}

an_status an_rule_logsumexp(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_tensor *t = an_as(an_plain(x.t, x.last), an_out_dtype(b, n, 0));
    x = (an_built_value){.t = t};
    const an_axes mask = axes_of(b, n, 1, &x);
    const int rank = an_rank(t);
    if (rank == 0) return an_out(b, n, 0, t), AN_OK;
    if (mask >> rank) return an_build_refuse(b, AN_E_IO, "over an axis that is not there; the file is damaged");
    an_shape perm = {.rank = rank}, joined = {.rank = 1}, kept = an_shape_of(t);
    int64_t all = 1;
    int at = 0;
    for (int i = 0; i < rank; i++)
        if (!(mask >> i & 1)) perm.dim[at++] = i;
    for (int i = 0; i < at; i++) joined.dim[i] = an_dim(t, (int)perm.dim[i]);
    for (int i = 0; i < rank; i++)
        if (mask >> i & 1) perm.dim[at++] = i, all *= kept.dim[i], kept.dim[i] = 1, joined.rank++;
    joined.rank = rank - joined.rank + 2; /* the axes that stay, and one */
    joined.dim[joined.rank - 1] = all;
    if (joined.rank < rank) /* several axes as one */
        t = an_reshape_at(
            AN_AT, an_logsumexp_at(AN_AT, an_reshape_at(AN_AT, an_permute_at(AN_AT, t, perm), joined), -1, true), kept);
    else
        t = an_logsumexp_at(AN_AT, t, (int)perm.dim[rank - 1], true);
    finish(b, n, 0, t, false, mask, an_in_bool(b, n, 2));
    return AN_OK;
}

/* ---- positions */

/* Extremes along an axis with the first position of them; the gradient goes to that position alone. */
static an_status extreme(an_build *b, const an_pt2_node *n, bool least)
{
    an_tensor *x = an_in(b, n, 0);
    if (an_rank(x) == 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "of a tensor without axes");
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    const bool keep = an_in_bool(b, n, 2);
    const an_dtype dtype = an_dtype_of(x);
    if (dtype == AN_BOOL) x = an_cast_at(AN_AT, x, AN_I32);
    an_tensor *at = an_argmax_at(AN_AT, least ? an_neg_at(AN_AT, x) : x, axis, true); /* [...,1,...] i32 */
    an_tensor *hot = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, an_shape_of(x), axis), at);
    an_tensor *zero = an_num(x, b->cx, 0);
    an_tensor *value = an_sum_at(AN_AT, an_where_at(AN_AT, hot, x, zero), AN_AXIS(axis), true);
    finish(b, n, 0, an_as(value, dtype), false, AN_AXIS(axis), keep);
    finish(b, n, 1, at, false, AN_AXIS(axis), keep);
    return AN_OK;
}

an_status an_rule_max_dim(an_build *b, const an_pt2_node *n)
{
    return extreme(b, n, false);
}
an_status an_rule_min_dim(an_build *b, const an_pt2_node *n)
{
    return extreme(b, n, true);
}

static an_status arg_extreme(an_build *b, const an_pt2_node *n, bool least)
{
    an_tensor *x = an_in(b, n, 0);
    if (an_rank(x) == 0) return an_out(b, n, 0, an_full_at(AN_AT, b->cx, AN_I32, AN_SCALAR, 0)), AN_OK;
    const bool flat = an_in_none(n, 1);
    if (flat) x = an_reshape_1(x, an_count(x));
    if (an_dtype_of(x) == AN_BOOL) x = an_cast_at(AN_AT, x, AN_I32);
    const int axis = flat ? 0 : an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    an_out(b, n, 0, an_argmax_at(AN_AT, least ? an_neg_at(AN_AT, x) : x, axis, an_in_bool(b, n, 2) && !flat));
    return AN_OK;
}

an_status an_rule_argmax(an_build *b, const an_pt2_node *n)
{
    return arg_extreme(b, n, false);
}
an_status an_rule_argmin(an_build *b, const an_pt2_node *n)
{
    return arg_extreme(b, n, true);
}

static an_status sorted(an_build *b, const an_pt2_node *n, int dim, bool descending, int64_t most)
{
    an_tensor *x = an_in(b, n, 0), *at = NULL;
    const int axis = an_wrap_axis(an_in_int(b, n, dim), an_rank(x));
    an_tensor *rows = an_axis_last(an_as_number(x), axis);
    an_tensor *values = an_as(an_sort_at(AN_AT, rows, descending, &at), an_dtype_of(x));
    if (most >= 0) {
        values = an_slice_at(AN_AT, values, -1, 0, most, 1);
        at = an_slice_at(AN_AT, at, -1, 0, most, 1);
    }
    an_out(b, n, 0, an_axis_last(values, axis));
    an_out(b, n, 1, an_axis_last(at, axis));
    return AN_OK;
}

an_status an_rule_sort(an_build *b, const an_pt2_node *n)
{
    return sorted(b, n, 1, an_in_bool(b, n, 2), -1);
}
an_status an_rule_sort_stable(an_build *b, const an_pt2_node *n)
{
    return sorted(b, n, 2, an_in_bool(b, n, 3), -1);
}
an_status an_rule_argsort(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *at = NULL;
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    (void)an_sort_at(AN_AT, an_axis_last(an_as_number(x), axis), an_in_bool(b, n, 2), &at);
    an_out(b, n, 0, an_axis_last(at, axis));
    return AN_OK;
}
an_status an_rule_topk(an_build *b, const an_pt2_node *n)
{
    return sorted(b, n, 2, an_in_bool(b, n, 3), an_in_int(b, n, 1));
}

/* ---- along an axis */

an_status an_rule_cumsum(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_as_result(b, n, 0, an_in(b, n, 0));
    if (an_rank(x) == 0) return an_out(b, n, 0, x), AN_OK;
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    an_tensor *sums = an_axis_last(an_cumsum_at(AN_AT, an_axis_last(x, axis), false), axis);
    an_out(b, n, 0, sums);
    return AN_OK;
}

/* Running products: log2(length) products with itself shifted. */
static an_tensor *products(an_tensor *rows)
{
    const int64_t length = an_dim(rows, an_rank(rows) - 1);
    for (int64_t by = 1; by < length; by *= 2) {
        an_tensor *shifted = an_slice_at(AN_AT, an_pad_at(AN_AT, rows, -1, by, 0, 1), -1, 0, length, 1);
        rows = an_mul_at(AN_AT, rows, shifted);
    }
    return rows;
}

an_status an_rule_cumprod(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_as_result(b, n, 0, an_in(b, n, 0));
    if (an_rank(x) == 0) return an_out(b, n, 0, x), AN_OK;
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    an_out(b, n, 0, an_axis_last(products(an_axis_last(x, axis)), axis));
    return AN_OK;
}

an_tensor *an_product_of_rows(an_tensor *rows, bool keep)
{
    const int rank = an_rank(rows);
    if (rank == 0) return rows; /* an error is recorded */
    const int64_t length = an_dim(rows, rank - 1);
    an_shape out = an_shape_of(rows);
    out.rank = keep ? rank : rank - 1;
    out.dim[rank - 1] = 1;
    if (length == 0) { /* the product of none is 1 */
        an_tensor *none = an_reshape_at(AN_AT, an_sum_at(AN_AT, rows, AN_AXIS(rank - 1), false), out);
        return an_add_num_at(AN_AT, none, 1);
    }
    return an_reshape_at(AN_AT, an_slice_at(AN_AT, products(rows), -1, length - 1, length, 1), out);
}

an_status an_rule_prod_dim(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_as_result(b, n, 0, an_in(b, n, 0));
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    an_tensor *kept = an_axis_last(an_product_of_rows(an_axis_last(x, axis), true), axis);
    finish(b, n, 0, kept, false, AN_AXIS(axis), an_in_bool(b, n, 2));
    return AN_OK;
}

an_status an_rule_prod(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_as_result(b, n, 0, an_in(b, n, 0));
    an_out(b, n, 0, an_product_of_rows(an_reshape_1(x, an_count(x)), false));
    return AN_OK;
}

enum { DIFF_MOST = 64 };

/* x[1:] - x[:-1], n times, and 0 elements when they are used up; of bools whether they differ. */
an_status an_rule_diff(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = an_wrap_axis(an_in_int(b, n, 2), an_rank(x));
    for (int i = 3; i <= 4 && an_in_int(b, n, 1) != 0; i++) { /* of no differences self alone is the result */
        an_tensor *part[2] = {i == 3 ? an_in(b, n, 3) : x, i == 3 ? x : an_in(b, n, 4)};
        if (part[0] && part[1]) x = an_concat_at(AN_AT, part, 2, axis);
    }
    const int64_t times = an_in_int(b, n, 1), elements = an_dim(x, axis);
    if (times < 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "n=%lld differences", (long long)times);
    if (times > DIFF_MOST && elements > DIFF_MOST)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "n=%lld differences, at most %d are built", (long long)times,
                               DIFF_MOST);
    for (int64_t k = 0; k < AN_MIN(times, elements); k++) {
        const int64_t length = an_dim(x, axis);
        an_tensor *high = an_slice_at(AN_AT, x, axis, 1, length, 1),
                  *low = an_slice_at(AN_AT, x, axis, 0, length - 1, 1);
        x = an_dtype_of(x) == AN_BOOL ? an_xor_at(AN_AT, high, low) : an_sub_at(AN_AT, high, low);
    }
    an_out(b, n, 0, x);
    return AN_OK;
}

/* softmax and its logarithm; with a dtype argument the operand is converted first. */
static an_status soft(an_build *b, const an_pt2_node *n, an_tensor *(*fn)(const char *, an_tensor *, int))
{
    an_tensor *x = an_as_result(b, n, 0, an_in(b, n, 0));
    if (n->arg[2].kind == AN_ARG_DTYPE) x = an_as(x, an_out_dtype(b, n, 0));
    if (an_rank(x) == 0) /* of one number: 1, and the logarithm 0 */
        return an_out(b, n, 0, an_reshape_at(AN_AT, fn(AN_AT, an_reshape_1(x, 1), 0), AN_SCALAR)), AN_OK;
    an_out(b, n, 0, fn(AN_AT, x, an_wrap_axis(an_in_int(b, n, 1), an_rank(x))));
    return AN_OK;
}

an_status an_rule_softmax(an_build *b, const an_pt2_node *n)
{
    return soft(b, n, an_softmax_at);
}
/* As softmax, but rows of -infinity alone give 0. */
an_status an_rule_safe_softmax(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_as_result(b, n, 0, an_in(b, n, 0));
    if (an_rank(x) == 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "of one number");
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    an_tensor *most = an_max_at(AN_AT, an_detach_at(AN_AT, x), AN_AXIS(axis), true), *zero = an_num(x, b->cx, 0);
    an_tensor *none = an_eq_at(AN_AT, most, an_num(x, b->cx, -INFINITY));
    an_tensor *y = an_softmax_at(AN_AT, an_where_at(AN_AT, none, zero, x), axis);
    an_out(b, n, 0, an_where_at(AN_AT, none, zero, y));
    return AN_OK;
}
an_status an_rule_log_softmax(an_build *b, const an_pt2_node *n)
{
    return soft(b, n, an_log_softmax_at);
}
