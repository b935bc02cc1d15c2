/* rule_math.c: elementwise operations of PyTorch, and promotion of dtypes (the core promotes nothing). */
#include "import/rules.h"
#include <math.h>
#include <string.h>

/* ---- dtypes */

static int category(const an_tensor *t)
{
    return an_dtype_of(t) == AN_BOOL ? 0 : an_is_float(t) ? 2 : 1;
}

static int width(an_dtype t)
{
    return t == AN_F64 ? 3 : t == AN_F32 ? 2 : 1;
}

/* In promotion a scalar tensor counts with its category (bool, integer, float) but not its width beside one with axes. */
static an_dtype promoted(const an_tensor *x, const an_tensor *y)
{
    const int cx = category(x), cy = category(y);
    const an_dtype dx = an_dtype_of(x), dy = an_dtype_of(y);
    if (dx == dy || cx > cy) return dx;
    if (cy > cx) return dy;
    if (cx < 2) return AN_I32;
    if (an_rank(x) > 0 && an_rank(y) == 0) return dx;
    if (an_rank(y) > 0 && an_rank(x) == 0) return dy;
    return width(dx) == width(dy) ? AN_F32 : width(dx) > width(dy) ? dx : dy;
}

void an_promote(an_tensor **x, an_tensor **y)
{
    const an_dtype to = promoted(*x, *y);
    *x = an_as(*x, to);
    *y = an_as(*y, to);
}

an_tensor *an_widen(an_tensor *t)
{
    return an_dtype_of(t) == AN_BF16 || an_dtype_of(t) == AN_F16 ? an_cast_at(AN_AT, t, AN_F32) : t;
}

an_tensor *an_as_result(const an_build *b, const an_pt2_node *n, int k, an_tensor *t)
{
    const an_dtype want = an_out_dtype(b, n, k);
    if (want == AN_F32 && an_is_float(t) && an_dtype_of(t) != AN_F64) return t;
    return an_as(t, want);
}

an_tensor *an_narrow(an_build *b, an_tensor *t)
{
    const an_dtype to = an_get_policy(b->cx).matmul;
    return an_dtype_of(t) == AN_F32 && to != AN_F32 ? an_cast_at(AN_AT, t, to) : t;
}

an_tensor *an_product(an_build *b, an_tensor *x, an_tensor *y)
{
    if (an_dtype_of(x) != AN_F64 &&
        an_dtype_of(y) != AN_F64) { /* what one of them is already is not widened for the other */
        x = an_narrow(b, x);
        y = an_narrow(b, y);
    }
    an_promote(&x, &y);
    return an_matmul_at(AN_AT, x, y);
}

an_tensor *an_reshape_1(an_tensor *t, int64_t n)
{
    return an_reshape_at(AN_AT, t, AN_SHAPE(n));
}

/* ---- operands */

/* Operand i, a tensor or a number; a number takes the other's dtype, or float32 where it is a float beside integers. */
static an_built_value operand(an_build *b, const an_pt2_node *n, int i, const an_built_value *beside)
{
    if (an_in_is_tensor(n, i)) return an_in_value(b, n, i);
    an_dtype dtype = beside && beside->t ? an_dtype_of(beside->t) : AN_F32;
    const bool is_float = n->arg[i].kind == AN_ARG_FLOAT;
    const int rank = beside && beside->t ? category(beside->t) : 2;
    if (is_float && rank < 2) dtype = AN_F32;
    if (!is_float && rank == 0) dtype = n->arg[i].kind == AN_ARG_BOOL ? AN_BOOL : AN_I32;
    return (an_built_value){.t = an_const_at(AN_AT, b->cx, dtype,
                                             is_float || dtype == AN_F32 || dtype == AN_F64
                                                 ? an_in_float(b, n, i)
                                                 : (double)an_in_int(b, n, i))};
}

/* Brings two operands into one order of axes. */
static bool join(an_built_value *x, an_built_value *y)
{
    if (!x->last && !y->last) return false;
    const int rank = an_rank(x->last ? x->t : y->t);
    if (an_rank(x->t) > rank || an_rank(y->t) > rank) {
        x->t = an_plain(x->t, x->last);
        y->t = an_plain(y->t, y->last);
        x->last = y->last = false;
        return false;
    }
    *x = an_to_last(x, rank);
    *y = an_to_last(y, rank);
    return true;
}

bool an_operands(an_build *b, const an_pt2_node *n, an_built_value *x, an_built_value *y)
{
    *x = an_in_is_tensor(n, 0) ? an_in_value(b, n, 0) : (an_built_value){.t = NULL};
    *y = operand(b, n, 1, x);
    if (!x->t) *x = operand(b, n, 0, y);
    return join(x, y);
}

/* A number, or an integer without axes, beside integers of 8 or 16 bits becomes one of those: PyTorch's -1 beside uint8 is 255. */
static void narrow_beside(const an_build *b, const an_pt2_node *n, an_tensor **x, an_tensor **y)
{
    an_tensor **t[] = {x, y};
    for (int i = 0; i < 2; i++) {
        const bool has_axes = an_in_is_tensor(n, i) && b->g->value[n->arg[i].value].rank > 0;
        const bool counts = an_in_is_tensor(n, 1 - i) && b->g->value[n->arg[1 - i].value].rank > 0;
        if (has_axes && !counts && an_dtype_of(*t[1 - i]) == AN_I32) *t[1 - i] = an_in_range_of(b, n, i, *t[1 - i]);
    }
}

void an_to_result(const an_build *b, const an_pt2_node *n, an_tensor **x, an_tensor **y)
{
    const an_dtype want = an_out_dtype(b, n, 0);
    if (want == AN_I32) narrow_beside(b, n, x, y);
    an_promote(x, y);
    if (want == AN_F32 && an_is_float(*x) && an_dtype_of(*x) != AN_F64) return;
    *x = an_as(*x, want);
    *y = an_as(*y, want);
}

static bool is_scalar(const an_build *b, const an_pt2_node *n, int i)
{
    return !an_in_is_tensor(n, i) || b->g->value[n->arg[i].value].rank == 0;
}

void an_to_factors(an_build *b, const an_pt2_node *n, an_tensor **x, an_tensor **y, an_dtype *out)
{
    an_tensor *given = *y;
    an_to_result(b, n, x, y);
    *out = an_dtype_of(*x);
    if ((*out != AN_BF16 && *out != AN_F16) || is_scalar(b, n, 0) || !is_scalar(b, n, 1)) return;
    *x = an_widen(*x);
    *y = an_in_is_tensor(n, 1) ? an_as(given, AN_F32) : an_const_at(AN_AT, b->cx, AN_F32, an_in_float(b, n, 1));
}

/* A number in the dtype of `like`, as float32 where floats of 16 bits are widened. */
static an_tensor *narrow_number(an_build *b, an_tensor *like, double x)
{
    return an_widen(an_num(like, b->cx, x));
}

/* ---- two operands */

static an_status scaling(an_build *b, const an_pt2_node *n, an_fn2 *fn)
{
    an_built_value x, y;
    an_dtype out;
    const bool last = an_operands(b, n, &x, &y);
    an_to_factors(b, n, &x.t, &y.t, &out);
    if (an_dtype_of(x.t) == AN_BOOL) fn = an_and_at;
    an_out_last(b, n, 0, an_as(fn(AN_AT, x.t, y.t), out), last);
    return AN_OK;
}

/* y times argument `at` of a sum, alpha: PyTorch rounds floats of 16 bits behind the sum. */
static an_tensor *times_alpha(an_build *b, const an_pt2_node *n, int at, an_tensor *y)
{
    const double alpha = an_in_float(b, n, at);
    if (an_dtype_of(y) == AN_BOOL) return alpha == 0 ? an_num(y, b->cx, 0) : y;
    if (alpha == 1) return y;
    an_tensor *by = narrow_number(b, y, alpha);
    return an_mul_at(AN_AT, an_widen(y), by);
}

static an_status arithmetic(an_build *b, const an_pt2_node *n, an_fn2 *fn, int alpha)
{
    an_built_value x, y;
    const bool last = an_operands(b, n, &x, &y);
    an_to_result(b, n, &x.t, &y.t);
    const an_dtype out = an_dtype_of(x.t);
    if (alpha >= 0) y.t = times_alpha(b, n, alpha, y.t);
    if (an_dtype_of(y.t) != out) x.t = an_widen(x.t);
    if (out == AN_BOOL) fn = fn == an_minimum_at ? an_and_at : an_or_at;
    an_out_last(b, n, 0, an_as(fn(AN_AT, x.t, y.t), out), last);
    return AN_OK;
}

an_status an_rule_add(an_build *b, const an_pt2_node *n)
{
    return arithmetic(b, n, an_add_at, 2);
}
an_status an_rule_sub(an_build *b, const an_pt2_node *n)
{
    return arithmetic(b, n, an_sub_at, 2);
}
an_status an_rule_mul(an_build *b, const an_pt2_node *n)
{
    return scaling(b, n, an_mul_at);
}
an_status an_rule_div(an_build *b, const an_pt2_node *n)
{
    return scaling(b, n, an_div_at);
}
an_status an_rule_atan2(an_build *b, const an_pt2_node *n)
{
    return arithmetic(b, n, an_atan2_at, -1);
}
an_status an_rule_maximum(an_build *b, const an_pt2_node *n)
{
    return arithmetic(b, n, an_maximum_at, -1);
}
an_status an_rule_minimum(an_build *b, const an_pt2_node *n)
{
    return arithmetic(b, n, an_minimum_at, -1);
}

an_status an_rule_rsub(an_build *b, const an_pt2_node *n)
{
    an_built_value x, y;
    const bool last = an_operands(b, n, &x, &y);
    an_to_result(b, n, &x.t, &y.t);
    const an_dtype out = an_dtype_of(x.t);
    x.t = times_alpha(b, n, 2, x.t);
    if (an_dtype_of(x.t) != out) y.t = an_widen(y.t);
    an_out_last(b, n, 0, an_as(an_sub_at(AN_AT, y.t, x.t), out), last);
    return AN_OK;
}

static an_tensor *integer_power(an_tensor *x, int64_t k)
{
    an_tensor *y = x;
    for (int64_t i = 1; i < k; i++) y = an_mul_at(AN_AT, y, x);
    return y;
}

/* x to the power of a number, by the short forms that PyTorch uses too. */
an_status an_rule_pow_number(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const double e = an_in_float(b, n, 1);
    an_tensor *t = an_as_result(b, n, 0, x.t), *y = t;
    if (e == 0)
        y = an_full_at(AN_AT, b->cx, an_dtype_of(t), an_shape_of(t), 1);
    else if (e == floor(e) && e > 0 && e <= (an_is_float(t) ? 4 : 64))
        y = integer_power(t, (int64_t)e);
    else if (!an_is_float(t))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "integers to the power %g", e);
    else if (e == 0.5)
        y = an_sqrt_at(AN_AT, t);
    else if (e == -0.5)
        y = an_rsqrt_at(AN_AT, t);
    else if (e == -1)
        y = an_recip_at(AN_AT, t);
    else if (e == -2)
        y = an_recip_at(AN_AT, an_square_at(AN_AT, t));
    else
        y = an_pow_at(AN_AT, t, an_num(t, b->cx, e));
    an_out_last(b, n, 0, y, x.last);
    return AN_OK;
}

/* x to the power y of int32, which wraps: a factor for each bit of y. Below 0 it is 0 but for 1 and -1. */
static an_tensor *whole_power(an_build *b, an_tensor *x, an_tensor *y)
{
    an_tensor *zero = an_num(y, b->cx, 0), *one = an_num(x, b->cx, 1), *square = x, *all = one, *odd = NULL;
    for (int bit = 0; bit < 31; bit++) {
        an_tensor *set = an_ne_at(AN_AT, an_and_at(AN_AT, y, an_num(y, b->cx, (double)((int64_t)1 << bit))), zero);
        an_tensor *factor = an_where_at(AN_AT, set, square, one);
        if (bit == 0) odd = factor;
        all = bit == 0 ? factor : an_mul_at(AN_AT, all, factor);
        square = an_mul_at(AN_AT, square, square);
    }
    an_tensor *none = an_num(x, b->cx, 0);
    an_tensor *inverse = an_where_at(AN_AT, an_eq_at(AN_AT, an_abs_at(AN_AT, x), one), odd, none);
    return an_where_at(AN_AT, an_lt_at(AN_AT, y, zero), inverse, all);
}

an_status an_rule_pow(an_build *b, const an_pt2_node *n)
{
    an_built_value x, y;
    const bool last = an_operands(b, n, &x, &y);
    an_to_result(b, n, &x.t, &y.t);
    if (!an_is_float(x.t)) {
        an_out_last(b, n, 0, whole_power(b, x.t, y.t), last);
        return AN_OK;
    }
    an_out_last(b, n, 0, an_pow_at(AN_AT, x.t, y.t), last);
    return AN_OK;
}

/* ---- comparisons and logic */

static an_status compare(an_build *b, const an_pt2_node *n, an_fn2 *fn)
{
    an_built_value x, y;
    const bool last = an_operands(b, n, &x, &y);
    narrow_beside(b, n, &x.t, &y.t);
    an_promote(&x.t, &y.t);
    if (an_dtype_of(x.t) == AN_BOOL && fn != an_eq_at && fn != an_ne_at) {
        x.t = an_cast_at(AN_AT, x.t, AN_I32);
        y.t = an_cast_at(AN_AT, y.t, AN_I32);
    }
    an_out_last(b, n, 0, fn(AN_AT, x.t, y.t), last);
    return AN_OK;
}

#define COMPARISON(name)                                                                                               \
    an_status an_rule_##name(an_build *b, const an_pt2_node *n)                                                        \
    {                                                                                                                  \
        return compare(b, n, an_##name##_at);                                                                          \
    }
COMPARISON(eq)
COMPARISON(ne)
COMPARISON(lt)
COMPARISON(le)
COMPARISON(gt)
COMPARISON(ge)

static an_tensor *truth(an_build *b, an_tensor *t)
{
    return an_dtype_of(t) == AN_BOOL ? t : an_ne_at(AN_AT, t, an_num(t, b->cx, 0));
}

static an_status bits(an_build *b, const an_pt2_node *n, an_fn2 *fn, bool logical)
{
    an_built_value x, y;
    const bool last = an_operands(b, n, &x, &y);
    if (logical) {
        x.t = truth(b, x.t);
        y.t = truth(b, y.t);
    }
    an_promote(&x.t, &y.t);
    an_out_last(b, n, 0, fn(AN_AT, x.t, y.t), last);
    return AN_OK;
}

#define BITS(name)                                                                                                     \
    an_status an_rule_##name(an_build *b, const an_pt2_node *n)                                                        \
    {                                                                                                                  \
        return bits(b, n, an_##name##_at, false);                                                                      \
    }                                                                                                                  \
    an_status an_rule_logical_##name(an_build *b, const an_pt2_node *n)                                                \
    {                                                                                                                  \
        return bits(b, n, an_##name##_at, true);                                                                       \
    }
BITS(and)
BITS(or)
BITS(xor)

an_status an_rule_not(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_tensor *t = an_dtype_of(x.t) == AN_BOOL ? an_not_at(AN_AT, x.t) : an_xor_at(AN_AT, x.t, an_num(x.t, b->cx, -1));
    an_out_last(b, n, 0, t, x.last);
    return AN_OK;
}

an_status an_rule_logical_not(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0, an_not_at(AN_AT, truth(b, x.t)), x.last);
    return AN_OK;
}

/* where(condition, a, b), each of which may be a number. */
static an_status choose(an_build *b, const an_pt2_node *n, an_built_value c, an_built_value x, an_built_value y)
{
    an_to_result(b, n, &x.t, &y.t);
    c.t = truth(b, c.t);
    bool last = c.last || x.last || y.last;
    int rank = 0;
    an_built_value *all[] = {&c, &x, &y};
    for (int i = 0; i < 3; i++) rank = AN_MAX(rank, an_rank(all[i]->t));
    for (int i = 0; i < 3; i++) last = last && (!all[i]->last || an_rank(all[i]->t) == rank);
    for (int i = 0; i < 3; i++) {
        if (last)
            *all[i] = an_to_last(all[i], rank);
        else
            all[i]->t = an_plain(all[i]->t, all[i]->last);
    }
    an_out_last(b, n, 0, an_where_at(AN_AT, c.t, x.t, y.t), last);
    return AN_OK;
}

an_status an_rule_where(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_is_tensor(n, 1) ? an_in_value(b, n, 1) : (an_built_value){.t = NULL};
    an_built_value y = operand(b, n, 2, &x);
    if (!x.t) x = operand(b, n, 1, &y);
    return choose(b, n, an_in_value(b, n, 0), x, y);
}

an_status an_rule_masked_fill(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0), y;
    y = operand(b, n, 2, &x);
    y.t = an_as(y.t, an_dtype_of(x.t));
    return choose(b, n, an_in_value(b, n, 1), y, x);
}

/* ---- one operand */

static an_built_value floating(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    x.t = an_as_result(b, n, 0, x.t);
    return x;
}

static an_built_value number(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    x.t = an_as_number(x.t);
    return x;
}

#define UNARY(name, from)                                                                                              \
    an_status an_rule_##name(an_build *b, const an_pt2_node *n)                                                        \
    {                                                                                                                  \
        an_built_value x = from;                                                                                       \
        an_tensor *y = an_##name##_at(AN_AT, x.t);                                                                     \
        an_out_last(b, n, 0, an_out_dtype(b, n, 0) == AN_BOOL ? an_as(y, AN_BOOL) : y, x.last);                        \
        return AN_OK;                                                                                                  \
    }
#define FLOAT floating(b, n)
#define ANY   number(b, n)
UNARY(abs, ANY)
UNARY(sign, ANY)
UNARY(sqrt, FLOAT)
UNARY(rsqrt, FLOAT)
UNARY(recip, FLOAT)
UNARY(exp, FLOAT)
UNARY(expm1, FLOAT)
UNARY(log, FLOAT)
UNARY(log1p, FLOAT)
UNARY(sin, FLOAT)
UNARY(cos, FLOAT)
UNARY(tanh, FLOAT)
UNARY(erf, FLOAT)
UNARY(sigmoid, FLOAT)
UNARY(silu, FLOAT)
UNARY(square, ANY)

an_status an_rule_neg(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0, an_neg_at(AN_AT, x.t), x.last);
    return AN_OK;
}

/* Integers are whole already. */
#define WHOLE(name, formula)                                                                                           \
    an_status an_rule_##name(an_build *b, const an_pt2_node *n)                                                        \
    {                                                                                                                  \
        an_built_value x = an_in_value(b, n, 0);                                                                       \
        an_out_last(b, n, 0, an_is_float(x.t) ? (formula) : x.t, x.last);                                              \
        return AN_OK;                                                                                                  \
    }
WHOLE(floor, an_floor_at(AN_AT, x.t))
WHOLE(round, an_round_at(AN_AT, x.t))
WHOLE(ceil, an_neg_at(AN_AT, an_floor_at(AN_AT, an_neg_at(AN_AT, x.t))))
WHOLE(trunc, an_truncated(b, x.t))

an_status an_rule_relu(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_tensor *t = an_is_float(x.t) ? an_relu_at(AN_AT, x.t) : an_maximum_at(AN_AT, x.t, an_num(x.t, b->cx, 0));
    an_out_last(b, n, 0, t, x.last);
    return AN_OK;
}

an_status an_rule_isfinite(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0,
                an_is_float(x.t) ? an_isfinite_at(AN_AT, x.t) : an_full_at(AN_AT, b->cx, AN_BOOL, an_shape_of(x.t), 1),
                x.last);
    return AN_OK;
}

an_status an_rule_isnan(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0, an_ne_at(AN_AT, x.t, x.t), x.last);
    return AN_OK;
}

an_status an_rule_isinf(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_tensor *t =
        an_as(an_is_float(x.t) ? x.t : an_cast_at(AN_AT, x.t, AN_F32), an_is_float(x.t) ? an_dtype_of(x.t) : AN_F32);
    an_tensor *infinite = an_num(t, b->cx, INFINITY);
    an_out_last(b, n, 0, an_eq_at(AN_AT, an_abs_at(AN_AT, t), infinite), x.last);
    return AN_OK;
}

static an_tensor *tangent(an_tensor *x)
{
    an_tensor *cosine = an_cos_at(AN_AT, x);
    return an_div_at(AN_AT, an_sin_at(AN_AT, x), cosine);
}

/* sqrt(1 - x^2), with its digits near 1 and -1. */
static an_tensor *other_leg(an_tensor *x)
{
    an_tensor *below = an_add_num_at(AN_AT, an_neg_at(AN_AT, x), 1);
    return an_sqrt_at(AN_AT, an_mul_at(AN_AT, an_add_num_at(AN_AT, x, 1), below));
}

/* (e^x - e^-x) / 2, by e^x - 1, which keeps the digits of a small x. */
static an_tensor *hyperbolic_sine(an_tensor *x)
{
    an_tensor *down = an_expm1_at(AN_AT, an_neg_at(AN_AT, x)), *up = an_expm1_at(AN_AT, x);
    return an_mul_num_at(AN_AT, an_sub_at(AN_AT, up, down), 0.5);
}

static an_tensor *hyperbolic_cosine(an_tensor *x)
{
    an_tensor *down = an_exp_at(AN_AT, an_neg_at(AN_AT, x)), *up = an_exp_at(AN_AT, x);
    return an_mul_num_at(AN_AT, an_add_at(AN_AT, up, down), 0.5);
}

/* A logarithm of another base, and 2^x. */
#define SCALED(name, formula)                                                                                          \
    an_status an_rule_##name(an_build *b, const an_pt2_node *n)                                                        \
    {                                                                                                                  \
        an_built_value v = floating(b, n);                                                                             \
        an_tensor *x = v.t;                                                                                            \
        an_out_last(b, n, 0, formula, v.last);                                                                         \
        return AN_OK;                                                                                                  \
    }
SCALED(log2, an_mul_num_at(AN_AT, an_log_at(AN_AT, x), 1.4426950408889634))
SCALED(log10, an_mul_num_at(AN_AT, an_log_at(AN_AT, x), 0.43429448190325182))
SCALED(exp2, an_pow_at(AN_AT, an_num(x, b->cx, 2), x))
SCALED(tan, tangent(x))
SCALED(atan, an_atan2_at(AN_AT, x, an_num(x, b->cx, 1)))
SCALED(asin, an_atan2_at(AN_AT, x, other_leg(x)))
SCALED(acos, an_atan2_at(AN_AT, other_leg(x), x))
SCALED(sinh, hyperbolic_sine(x))
SCALED(cosh, hyperbolic_cosine(x))
SCALED(erfc, an_add_num_at(AN_AT, an_neg_at(AN_AT, an_erf_at(AN_AT, x)), 1))
SCALED(log_sigmoid, an_neg_at(AN_AT, an_softplus_at(AN_AT, an_neg_at(AN_AT, x))))
SCALED(softsign, an_div_at(AN_AT, x, an_add_num_at(AN_AT, an_abs_at(AN_AT, x), 1)))
SCALED(mish, an_mul_at(AN_AT, x, an_tanh_at(AN_AT, an_softplus_at(AN_AT, x))))

an_status an_rule_gelu(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const bool tanh_form = n->arg[1].text && strcmp(n->arg[1].text, "tanh") == 0;
    an_out_last(b, n, 0, tanh_form ? an_gelu_tanh_at(AN_AT, x.t) : an_gelu_at(AN_AT, x.t), x.last);
    return AN_OK;
}

/* lo where x < lo, hi where x > hi, NaN where an end is NaN. With `open` the ends themselves pass no gradient, as of hardtanh; clamp's do,
 * but NaN does not. */
static an_tensor *clamped(an_build *b, an_tensor *x, const double *lo, const double *hi, bool open)
{
    if ((lo && isnan(*lo)) || (hi && isnan(*hi))) return an_full_at(AN_AT, b->cx, an_dtype_of(x), an_shape_of(x), NAN);
    if (!open && an_is_float(x)) {
        an_tensor *nan = an_ne_at(AN_AT, x, x);
        x = an_where_at(AN_AT, nan, an_detach_at(AN_AT, x), x);
    }
    if (lo) {
        an_tensor *end = an_num(x, b->cx, *lo);
        x = an_where_at(AN_AT, open ? an_le_at(AN_AT, x, end) : an_lt_at(AN_AT, x, end), end, x);
    }
    if (hi) {
        an_tensor *end = an_num(x, b->cx, *hi);
        x = an_where_at(AN_AT, open ? an_ge_at(AN_AT, x, end) : an_gt_at(AN_AT, x, end), end, x);
    }
    return x;
}

/* Number i, as PyTorch casts it to result 0's dtype: -1 of uint8 is 255. Others that do not fit are refused by PyTorch. */
static double in_range_of(const an_build *b, const an_pt2_node *n, int i)
{
    const double x = an_in_float(b, n, i);
    return x < 0 && an_out_is_byte(b, n, 0) ? x + 256 : x;
}

static an_status clamp(an_build *b, const an_pt2_node *n, int lo_at, int hi_at, bool open)
{
    an_built_value x = floating(b, n);
    const double lo = lo_at >= 0 ? in_range_of(b, n, lo_at) : 0, hi = hi_at >= 0 ? in_range_of(b, n, hi_at) : 0;
    const bool has_lo = lo_at >= 0 && !an_in_none(n, lo_at), has_hi = hi_at >= 0 && !an_in_none(n, hi_at);
    an_out_last(b, n, 0, clamped(b, x.t, has_lo ? &lo : NULL, has_hi ? &hi : NULL, open), x.last);
    return AN_OK;
}

an_status an_rule_clamp(an_build *b, const an_pt2_node *n)
{
    return clamp(b, n, 1, 2, false);
}
an_status an_rule_clamp_min(an_build *b, const an_pt2_node *n)
{
    return clamp(b, n, 1, -1, false);
}
an_status an_rule_clamp_max(an_build *b, const an_pt2_node *n)
{
    return clamp(b, n, -1, 1, false);
}
an_status an_rule_hardtanh(an_build *b, const an_pt2_node *n)
{
    return clamp(b, n, 1, 2, true);
}
an_status an_rule_relu6(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const double lo = 0, hi = 6;
    an_out_last(b, n, 0, clamped(b, x.t, &lo, &hi, true), x.last);
    return AN_OK;
}

/* Tensors as ends, arguments lo and hi, -1: none. The gradient goes to x between the ends, at them too; to lo below it where lo < hi; to hi
 * above it, and everywhere where hi < lo. NaN of any operand stays. */
static an_status clamp_by_tensors(an_build *b, const an_pt2_node *n, int lo, int hi)
{
    const int at[2] = {lo, hi};
    an_tensor *x = an_as_number(an_in(b, n, 0)), *end[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        end[i] = at[i] >= 0 ? an_in(b, n, at[i]) : NULL;
        if (!end[i]) continue;
        end[i] = an_as_number(end[i]);
        if (an_rank(end[i]) == 0 && an_rank(x) > 0 && an_dtype_of(end[i]) == AN_I32)
            end[i] = an_in_range_of(b, n, 0, end[i]);
        an_promote(&x, &end[i]);
    }
    an_tensor *y = x, *inside = an_eq_at(AN_AT, x, x), *beyond[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        if (!end[i]) continue;
        end[i] = an_as(end[i], an_dtype_of(x)); /* the other end may be wider */
        y = i == 0 ? an_maximum_at(AN_AT, y, end[i]) : an_minimum_at(AN_AT, y, end[i]);
        beyond[i] = i == 0 ? an_lt_at(AN_AT, x, end[0]) : an_gt_at(AN_AT, x, end[1]);
        inside = an_and_at(AN_AT, inside, i == 0 ? an_ge_at(AN_AT, x, end[0]) : an_le_at(AN_AT, x, end[1]));
    }
    if (end[0] && end[1]) {
        beyond[0] = an_and_at(AN_AT, beyond[0], an_lt_at(AN_AT, end[0], end[1]));
        beyond[1] = an_or_at(AN_AT, beyond[1], an_lt_at(AN_AT, end[1], end[0]));
    }
    an_tensor *whole = y;
    y = an_where_at(AN_AT, inside, x, an_detach_at(AN_AT, y));
    for (int i = 0; i < 2; i++) {
        if (!end[i]) continue;
        an_tensor *taken = end[i];
        if (an_is_float(x)) { /* the slope is the end's though another operand is NaN */
            an_tensor *odd = an_ne_at(AN_AT, whole, whole);
            taken = an_where_at(AN_AT, odd, an_add_at(AN_AT, taken, an_detach_at(AN_AT, whole)), taken);
        }
        y = an_where_at(AN_AT, beyond[i], taken, y);
    }
    an_out(b, n, 0, an_as_result(b, n, 0, y));
    return AN_OK;
}

an_status an_rule_clamp_tensor(an_build *b, const an_pt2_node *n)
{
    return clamp_by_tensors(b, n, 1, 2);
}
an_status an_rule_clamp_min_tensor(an_build *b, const an_pt2_node *n)
{
    return clamp_by_tensors(b, n, 1, -1);
}
an_status an_rule_clamp_max_tensor(an_build *b, const an_pt2_node *n)
{
    return clamp_by_tensors(b, n, -1, 1);
}

/* x / 6 + 1/2 between -3 and 3; the ends pass no gradient. PyTorch's kernel multiplies the gradient by 1/6 as float32 has it, in float64
 * too: what is missing of the sixth is added without a gradient. */
an_status an_rule_hardsigmoid(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const double lo = 0, hi = 6, slope = (double)(1.0f / 6.0f);
    an_tensor *c = clamped(b, an_add_num_at(AN_AT, x.t, 3), &lo, &hi, true), *y = an_mul_num_at(AN_AT, c, 1.0 / 6);
    if (an_dtype_of(c) == AN_F64) {
        an_tensor *missing = an_mul_num_at(AN_AT, an_detach_at(AN_AT, c), 1.0 / 6 - slope);
        y = an_add_at(AN_AT, an_mul_num_at(AN_AT, c, slope), missing);
    }
    an_out_last(b, n, 0, y, x.last);
    return AN_OK;
}

/* 0 up to -3, x from 3 on, x (x + 3) / 6 between; the ends take the outer slopes. */
an_status an_rule_hardswish(an_build *b, const an_pt2_node *n)
{
    an_built_value v = an_in_value(b, n, 0);
    an_tensor *x = v.t, *zero = an_mul_num_at(AN_AT, an_detach_at(AN_AT, x), 0); /* of -infinity PyTorch's is NaN */
    an_tensor *above = an_ge_at(AN_AT, x, an_num(x, b->cx, 3)), *below = an_le_at(AN_AT, x, an_num(x, b->cx, -3));
    an_tensor *outside = an_or_at(AN_AT, above, below);
    an_tensor *in = an_where_at(AN_AT, outside, an_num(x, b->cx, 0), x); /* no slope of infinities */
    an_tensor *middle = an_mul_num_at(AN_AT, an_mul_at(AN_AT, in, an_add_num_at(AN_AT, in, 3)), 1.0 / 6);
    an_out_last(b, n, 0, an_where_at(AN_AT, below, zero, an_where_at(AN_AT, above, x, middle)), v.last);
    return AN_OK;
}

/* where(x > 0, x, x slope) */
an_status an_rule_leaky_relu(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_tensor *low = an_as(an_mul_num_at(AN_AT, an_widen(x.t), an_in_float(b, n, 1)), an_dtype_of(x.t));
    an_out_last(b, n, 0, an_where_at(AN_AT, an_gt_at(AN_AT, x.t, an_num(x.t, b->cx, 0)), x.t, low), x.last);
    return AN_OK;
}

/* scale (x > 0 ? x : alpha (exp(x s) - 1)); the unused branch is given 0, so that no infinity meets a zero. */
static void elu(an_build *b, const an_pt2_node *n, double alpha, double scale, double input)
{
    an_built_value v = an_in_value(b, n, 0);
    an_tensor *x = an_widen(v.t), *zero = an_num(x, b->cx, 0), *up = an_gt_at(AN_AT, x, zero);
    an_tensor *low = an_expm1_at(AN_AT, an_mul_num_at(AN_AT, an_where_at(AN_AT, up, zero, x), input));
    an_tensor *high = scale == 1 ? x : an_mul_num_at(AN_AT, x, scale);
    an_tensor *y = an_where_at(AN_AT, up, high, an_mul_num_at(AN_AT, low, alpha * scale));
    an_out_last(b, n, 0, an_as(y, an_dtype_of(v.t)), v.last);
}

an_status an_rule_elu(an_build *b, const an_pt2_node *n)
{
    elu(b, n, an_in_float(b, n, 1), an_in_float(b, n, 2), an_in_float(b, n, 3));
    return AN_OK;
}
an_status an_rule_celu(an_build *b, const an_pt2_node *n)
{
    elu(b, n, an_in_float(b, n, 1), 1, 1 / an_in_float(b, n, 1));
    return AN_OK;
}
an_status an_rule_selu(an_build *b, const an_pt2_node *n)
{
    elu(b, n, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1);
    return AN_OK;
}

/* log(1 + exp(beta x)) / beta, x above the threshold. */
an_status an_rule_softplus(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const double beta = an_in_float(b, n, 1), threshold = an_in_float(b, n, 2);
    an_tensor *scaled = an_mul_num_at(AN_AT, x.t, beta), *big = an_gt_at(AN_AT, scaled, an_num(x.t, b->cx, threshold));
    an_tensor *soft = an_mul_num_at(AN_AT, an_softplus_at(AN_AT, scaled), 1 / beta);
    an_out_last(b, n, 0, an_where_at(AN_AT, big, x.t, soft), x.last);
    return AN_OK;
}

/* where(x > 0, x, weight x), a weight a channel (axis 1) or one. */
an_status an_rule_prelu(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *w = an_in(b, n, 1);
    an_shape s = {.rank = an_rank(x)};
    for (int i = 0; i < s.rank; i++) s.dim[i] = 1;
    if (s.rank > 1 && an_count(w) > 1) s.dim[1] = an_count(w);
    an_tensor *low = an_mul_at(AN_AT, x, an_reshape_at(AN_AT, w, s));
    an_out(b, n, 0, an_where_at(AN_AT, an_gt_at(AN_AT, x, an_num(x, b->cx, 0)), x, low));
    return AN_OK;
}

an_status an_rule_threshold(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_tensor *low = an_le_at(AN_AT, x.t, an_num(x.t, b->cx, in_range_of(b, n, 1)));
    an_out_last(b, n, 0, an_where_at(AN_AT, low, an_num(x.t, b->cx, in_range_of(b, n, 2)), x.t), x.last);
    return AN_OK;
}

/* self + value tensor1 tensor2, and with a quotient. */
static an_status combine(an_build *b, const an_pt2_node *n, an_fn2 *fn)
{
    an_tensor *self = an_in(b, n, 0), *x = an_in(b, n, 1), *y = an_in(b, n, 2);
    an_promote(&x, &y);
    an_tensor *by = narrow_number(b, x, an_in_float(b, n, 3));
    an_tensor *wide = an_widen(x), *other = an_widen(y), *p = an_mul_at(AN_AT, fn(AN_AT, wide, other), by);
    an_promote(&self, &x);
    wide = an_widen(self);
    p = an_as(p, an_dtype_of(wide));
    an_out(b, n, 0, an_as(an_add_at(AN_AT, wide, p), an_dtype_of(self)));
    return AN_OK;
}

an_status an_rule_addcmul(an_build *b, const an_pt2_node *n)
{
    return combine(b, n, an_mul_at);
}
an_status an_rule_addcdiv(an_build *b, const an_pt2_node *n)
{
    return combine(b, n, an_div_at);
}

/* a + w (b - a), from 1/2 on b - (1 - w)(b - a) */
an_status an_rule_lerp(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    if (an_in_is_tensor(n, 2)) {
        an_out(b, n, 0, an_between(b, x, y, an_in(b, n, 2)));
        return AN_OK;
    }
    const double w = an_in_float(b, n, 2);
    an_tensor *d = an_sub_at(AN_AT, y, x);
    an_out(b, n, 0,
           w < 0.5 ? an_add_at(AN_AT, x, an_mul_num_at(AN_AT, d, w))
                   : an_sub_at(AN_AT, y, an_mul_num_at(AN_AT, d, 1 - w)));
    return AN_OK;
}

/* The first half of an axis times the sigmoid of the second. */
an_status an_rule_glu(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    const int64_t half = an_dim(x, axis) / 2;
    an_tensor *gate = an_sigmoid_at(AN_AT, an_slice_at(AN_AT, x, axis, half, 2 * half, 1));
    an_out(b, n, 0, an_mul_at(AN_AT, an_slice_at(AN_AT, x, axis, 0, half, 1), gate));
    return AN_OK;
}
