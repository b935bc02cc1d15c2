/* rule_special.c: functions of PyTorch, element by element, that are formulas over several operations: special functions, shrinking
 * activations, what treats NaN and infinities apart.
 *
 * A branch that is not taken is given a number at which it has a finite slope: a gradient of 0 times infinity would be NaN. */
#include "import/rules.h"
#include <float.h>
#include <math.h>

static an_tensor *where_num(an_build *b, an_tensor *condition, double x, an_tensor *other)
{
    return an_where_at(AN_AT, condition, an_num(other, b->cx, x), other);
}

static an_tensor *over_num(an_tensor *x, an_build *b, double number)
{
    an_tensor *n = an_num(x, b->cx, number);
    return an_div_at(AN_AT, n, x);
}

static an_tensor *compared(an_build *b, an_tensor *x, an_fn2 *fn, double number)
{
    return fn(AN_AT, x, an_num(x, b->cx, number));
}

static an_tensor *is_nan(an_tensor *x)
{
    return an_ne_at(AN_AT, x, x);
}

/* The sign bit, also of -0: 1 / -0 is -infinity. */
static an_tensor *sign_bit(an_build *b, an_tensor *x)
{
    an_tensor *flat = an_detach_at(AN_AT, an_as_number(x)), *below = compared(b, flat, an_lt_at, 0);
    if (!an_is_float(x)) return below;
    an_tensor *zero = compared(b, flat, an_eq_at, 0), *from_below = compared(b, over_num(flat, b, 1), an_lt_at, 0);
    return an_or_at(AN_AT, below, an_and_at(AN_AT, zero, from_below));
}

/* ---- one operand */

#define SPECIAL(name, formula)                                                                                         \
    an_status an_rule_##name(an_build *b, const an_pt2_node *n)                                                        \
    {                                                                                                                  \
        an_built_value v = an_in_value(b, n, 0);                                                                       \
        v.t = an_as_result(b, n, 0, v.t);                                                                              \
        an_tensor *x = an_is_float(v.t) ? an_widen(v.t) : v.t; /* shifts and logarithms lose what 16 bits have */      \
        an_out_last(b, n, 0, an_is_float(v.t) ? an_as(formula, an_dtype_of(v.t)) : formula, v.last);                   \
        return AN_OK;                                                                                                  \
    }

/* sign(x) log(|x| + sqrt(x^2 + 1)), with the digits of a small x: log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))). Where x^2 would
 * overflow, log(2 |x|). */
static an_tensor *inverse_sinh(an_build *b, an_tensor *x)
{
    an_tensor *a = an_abs_at(AN_AT, x), *big = compared(b, a, an_gt_at, 1e9);
    an_tensor *s = where_num(b, big, 1, x), *square = an_square_at(AN_AT, s);
    an_tensor *root = an_add_num_at(AN_AT, an_sqrt_at(AN_AT, an_add_num_at(AN_AT, square, 1)), 1);
    an_tensor *rest = an_div_at(AN_AT, square, root), *t = an_add_at(AN_AT, an_abs_at(AN_AT, s), rest);
    an_tensor *far =
        an_add_num_at(AN_AT, an_log_at(AN_AT, where_num(b, an_not_at(AN_AT, big), 1, a)), 0.69314718055994531);
    an_tensor *y = an_where_at(AN_AT, big, far, an_log1p_at(AN_AT, t)), *negative = compared(b, x, an_lt_at, 0);
    /* near 0 the slope is that of x: |x| has none there */
    y = an_where_at(AN_AT, negative, an_neg_at(AN_AT, y), y);
    return an_where_at(AN_AT, compared(b, a, an_lt_at, 1e-9), x, y);
}

/* log(x + sqrt(x^2 - 1)), as log1p of what is above 1. */
static an_tensor *inverse_cosh(an_build *b, an_tensor *x)
{
    an_tensor *big = compared(b, x, an_gt_at, 1e9), *t = an_add_num_at(AN_AT, where_num(b, big, 2, x), -1);
    an_tensor *root = an_sqrt_at(AN_AT, an_mul_at(AN_AT, t, an_add_num_at(AN_AT, t, 2)));
    an_tensor *near = an_log1p_at(AN_AT, an_add_at(AN_AT, t, root));
    an_tensor *far =
        an_add_num_at(AN_AT, an_log_at(AN_AT, where_num(b, an_not_at(AN_AT, big), 1, x)), 0.69314718055994531);
    return an_where_at(AN_AT, big, far, near);
}

static an_tensor *inverse_tanh(an_tensor *x)
{
    an_tensor *below = an_log1p_at(AN_AT, an_neg_at(AN_AT, x));
    return an_mul_num_at(AN_AT, an_sub_at(AN_AT, an_log1p_at(AN_AT, x), below), 0.5);
}

SPECIAL(asinh, inverse_sinh(b, x))
SPECIAL(acosh, inverse_cosh(b, x))
SPECIAL(atanh, inverse_tanh(x))

/* The inverse of erf: Winitzki's approximation, to 2e-3, and four of Newton's steps. The last step alone depends on x for the
 * gradient: d/dx = sqrt(pi)/2 exp(y^2). */
static an_tensor *inverse_erf(an_build *b, an_tensor *x)
{
    an_tensor *outside = compared(b, an_abs_at(AN_AT, x), an_ge_at, 1), *in = where_num(b, outside, 0, x);
    an_tensor *flat = an_detach_at(AN_AT, in), *y;
    /* sign(x) sqrt(sqrt(t^2 - l/a) - t), t = 2/(pi a) + l/2, l = log(1 - x^2), a = 0.147 */
    an_tensor *l = an_log1p_at(AN_AT, an_neg_at(AN_AT, an_square_at(AN_AT, flat)));
    an_tensor *t = an_add_num_at(AN_AT, an_mul_num_at(AN_AT, l, 0.5), 4.3307467508002895);
    an_tensor *part = an_mul_num_at(AN_AT, l, 1 / 0.147), *zero = an_num(x, b->cx, 0);
    an_tensor *root = an_sqrt_at(AN_AT, an_sub_at(AN_AT, an_square_at(AN_AT, t), part));
    root = an_sqrt_at(AN_AT, an_maximum_at(AN_AT, an_sub_at(AN_AT, root, t), zero));
    y = an_mul_at(AN_AT, an_sign_at(AN_AT, flat), root);
    for (int step = 0; step < 4; step++) {
        an_tensor *inverse_slope = an_mul_num_at(AN_AT, an_exp_at(AN_AT, an_square_at(AN_AT, y)), 0.88622692545275801);
        an_tensor *off = an_sub_at(AN_AT, an_erf_at(AN_AT, y), step == 3 ? in : flat);
        y = an_sub_at(AN_AT, y, an_mul_at(AN_AT, an_detach_at(AN_AT, inverse_slope), off));
        if (step < 3) y = an_detach_at(AN_AT, y);
    }
    an_tensor *edge = an_mul_num_at(AN_AT, an_sign_at(AN_AT, x), INFINITY);
    edge = where_num(b, compared(b, an_abs_at(AN_AT, x), an_gt_at, 1), NAN, edge);
    y = an_where_at(AN_AT, outside, edge, y);
    return an_where_at(AN_AT, is_nan(x), x, y);
}
SPECIAL(erfinv, inverse_erf(b, x))

/* Of z >= 7: (z - 1/2) log z - z + log(2 pi)/2 + sum of B_2k / (2k (2k - 1) z^(2k - 1)); or its derivative. */
static an_tensor *stirling(an_build *b, an_tensor *z, bool slope)
{
    static const double of_log[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                    1.0 / 1188, -691.0 / 360360, 1.0 / 156,  -3617.0 / 122400};
    static const double of_slope[] = {-1.0 / 12,  1.0 / 120,     -1.0 / 252, 1.0 / 240,
                                      -1.0 / 132, 691.0 / 32760, -1.0 / 12,  3617.0 / 8160};
    an_tensor *inverse = an_recip_at(AN_AT, z), *square = an_square_at(AN_AT, inverse), *sum = an_num(z, b->cx, 0);
    for (int k = (int)AN_COUNT(of_log) - 1; k >= 0; k--)
        sum = an_add_num_at(AN_AT, an_mul_at(AN_AT, sum, square), slope ? of_slope[k] : of_log[k]);
    an_tensor *log = an_log_at(AN_AT, z);
    if (slope) {
        sum = an_mul_at(AN_AT, sum, square);
        log = an_sub_at(AN_AT, log, an_mul_num_at(AN_AT, inverse, 0.5));
        return an_add_at(AN_AT, log, sum);
    }
    sum = an_add_num_at(AN_AT, an_mul_at(AN_AT, sum, inverse), 0.91893853320467274);
    log = an_add_num_at(AN_AT, log, -1);
    an_tensor *main = an_mul_at(AN_AT, an_add_num_at(AN_AT, z, -0.5), log);
    return an_add_at(AN_AT, main, an_add_num_at(AN_AT, sum, -0.5));
}

enum { STIRLING = 10 }; /* from where on eight terms are exact to float64's last digits */

/* Of x > 0: shifted to z = x + 10, less log of x (x + 1) ... (x + 9), or less the sum of their inverses. */
static an_tensor *gamma_above_zero(an_build *b, an_tensor *x, bool slope)
{
    an_tensor *far = compared(b, x, an_ge_at, STIRLING), *near = where_num(b, far, 1, x), *all = NULL;
    for (int k = 0; k < STIRLING; k++) {
        an_tensor *factor = k ? an_add_num_at(AN_AT, near, k) : near,
                  *term = slope ? an_recip_at(AN_AT, factor) : factor;
        all = !all ? term : slope ? an_add_at(AN_AT, all, term) : an_mul_at(AN_AT, all, term);
    }
    an_tensor *shift = where_num(b, far, 0, slope ? all : an_log_at(AN_AT, all));
    an_tensor *z = an_where_at(AN_AT, far, x, an_add_num_at(AN_AT, near, STIRLING));
    return an_sub_at(AN_AT, stirling(b, z, slope), shift);
}

/* x less the nearest whole number, and pi times that: sin(pi x) and tan(pi x) but for a sign. */
static an_tensor *turn(an_tensor *x)
{
    return an_mul_num_at(AN_AT, an_sub_at(AN_AT, x, an_round_at(AN_AT, x)), 3.14159265358979324);
}

/* log |gamma(x)|: below 1/2 by reflection, log(pi / |sin(pi x)|) - lgamma(1 - x). Infinite at 0, -1, ... */
static an_tensor *log_gamma(an_build *b, an_tensor *x)
{
    an_tensor *low = compared(b, x, an_lt_at, 0.5), *reflected = an_add_num_at(AN_AT, an_neg_at(AN_AT, x), 1);
    an_tensor *y = gamma_above_zero(b, an_where_at(AN_AT, low, reflected, x), false);
    an_tensor *sine = an_abs_at(AN_AT, an_sin_at(AN_AT, turn(where_num(b, an_not_at(AN_AT, low), 0.5, x))));
    an_tensor *mirror =
        an_sub_at(AN_AT, an_add_num_at(AN_AT, an_neg_at(AN_AT, an_log_at(AN_AT, sine)), 1.1447298858494002), y);
    y = an_where_at(AN_AT, low, mirror, y);
    an_tensor *endless = compared(b, an_abs_at(AN_AT, x), an_eq_at, INFINITY);
    return where_num(b, endless, INFINITY, y);
}
SPECIAL(lgamma, log_gamma(b, x))

/* d/dx of it: below 1/2 digamma(1 - x) - pi / tan(pi x). */
static an_tensor *psi(an_build *b, an_tensor *x)
{
    an_tensor *low = compared(b, x, an_lt_at, 0.5), *reflected = an_add_num_at(AN_AT, an_neg_at(AN_AT, x), 1);
    an_tensor *y = gamma_above_zero(b, an_where_at(AN_AT, low, reflected, x), true);
    an_tensor *angle = turn(where_num(b, an_not_at(AN_AT, low), 0.25, x)), *cosine = an_cos_at(AN_AT, angle);
    an_tensor *cotangent = an_mul_num_at(AN_AT, an_div_at(AN_AT, cosine, an_sin_at(AN_AT, angle)), 3.14159265358979324);
    y = an_where_at(AN_AT, low, an_sub_at(AN_AT, y, cotangent), y);
    /* PyTorch: -infinity at 0, infinity at -0, NaN at the other poles */
    an_tensor *whole = an_eq_at(AN_AT, an_floor_at(AN_AT, x), x);
    an_tensor *pole = an_and_at(AN_AT, compared(b, x, an_lt_at, 0), whole);
    y = where_num(b, pole, NAN, y);
    y = where_num(b, compared(b, x, an_eq_at, INFINITY), INFINITY, y);
    an_tensor *at_zero = an_neg_at(AN_AT, over_num(an_detach_at(AN_AT, x), b, 1));
    return an_where_at(AN_AT, compared(b, x, an_eq_at, 0), at_zero, y);
}
SPECIAL(digamma, psi(b, x))

static an_tensor *fraction(an_build *b, an_tensor *x)
{
    an_tensor *down = an_floor_at(AN_AT, x), *up = an_neg_at(AN_AT, an_floor_at(AN_AT, an_neg_at(AN_AT, x)));
    return an_sub_at(AN_AT, x, an_where_at(AN_AT, compared(b, x, an_lt_at, 0), up, down));
}
SPECIAL(frac, fraction(b, x))

/* sin(pi x) / (pi x), 1 at 0. */
static an_tensor *cardinal_sine(an_build *b, an_tensor *x)
{
    an_tensor *zero = compared(b, x, an_eq_at, 0),
              *t = an_mul_num_at(AN_AT, where_num(b, zero, 1, x), 3.14159265358979324);
    return where_num(b, zero, 1, an_div_at(AN_AT, an_sin_at(AN_AT, t), t));
}
SPECIAL(sinc, cardinal_sine(b, x))
SPECIAL(rad2deg, an_mul_num_at(AN_AT, x, 57.295779513082321))
SPECIAL(deg2rad, an_mul_num_at(AN_AT, x, 0.017453292519943296))

/* The share of a normal distribution below x. */
static an_tensor *normal_below(an_tensor *x)
{
    an_tensor *e = an_erf_at(AN_AT, an_mul_num_at(AN_AT, x, 0.70710678118654752));
    return an_mul_num_at(AN_AT, an_add_num_at(AN_AT, e, 1), 0.5);
}
SPECIAL(ndtr, normal_below(x))

/* -x log x, of slope -1 - log x: at 0 it is 0 with an infinite slope, as a root's, below it is -infinity and the slope NaN: the logarithm of
 * (sqrt d)^2 at d = 0. At infinity x / x would make the slope NaN. */
static an_tensor *entropy(an_build *b, an_tensor *x)
{
    an_tensor *zero = compared(b, x, an_eq_at, 0), *below = compared(b, x, an_lt_at, 0);
    an_tensor *far = compared(b, x, an_eq_at, INFINITY), *none = an_or_at(AN_AT, zero, below);
    an_tensor *safe = where_num(b, an_or_at(AN_AT, none, far), 1, x), *log = an_log_at(AN_AT, safe);
    an_tensor *y = an_mul_at(AN_AT, an_neg_at(AN_AT, safe), log);
    an_tensor *end = an_mul_num_at(AN_AT, where_num(b, an_not_at(AN_AT, far), 1, x), -INFINITY);
    an_tensor *d = an_recip_at(AN_AT, where_num(b, an_not_at(AN_AT, below), -1, x)); /* finite also of -infinity */
    d = an_square_at(AN_AT, an_sqrt_at(AN_AT, an_sub_at(AN_AT, d, an_detach_at(AN_AT, d))));
    y = an_where_at(AN_AT, far, end, y);
    y = an_where_at(AN_AT, below, an_log_at(AN_AT, d), y);
    an_tensor *at_zero = where_num(b, an_not_at(AN_AT, zero), 1, x);
    at_zero = an_sqrt_at(AN_AT, an_sub_at(AN_AT, at_zero, an_detach_at(AN_AT, at_zero))); /* +0, also of -0 */
    return an_where_at(AN_AT, zero, at_zero, y);
}
SPECIAL(entr, entropy(b, x))

an_status an_rule_signbit(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0, sign_bit(b, x.t), x.last);
    return AN_OK;
}

static an_status infinite(an_build *b, const an_pt2_node *n, double which)
{
    an_built_value x = an_in_value(b, n, 0);
    an_tensor *t =
        an_is_float(x.t) ? compared(b, x.t, an_eq_at, which) : an_full_at(AN_AT, b->cx, AN_BOOL, an_shape_of(x.t), 0);
    an_out_last(b, n, 0, t, x.last);
    return AN_OK;
}

an_status an_rule_isposinf(an_build *b, const an_pt2_node *n)
{
    return infinite(b, n, INFINITY);
}
an_status an_rule_isneginf(an_build *b, const an_pt2_node *n)
{
    return infinite(b, n, -INFINITY);
}

/* self nan posinf neginf; None: 0 and the ends of the dtype. */
an_status an_rule_nan_to_num(an_build *b, const an_pt2_node *n)
{
    an_built_value v = an_in_value(b, n, 0);
    an_tensor *x = v.t;
    if (an_is_float(x)) {
        const an_dtype d = an_dtype_of(x);
        const double most = d == AN_F64 ? DBL_MAX : d == AN_F32 ? (double)FLT_MAX : d == AN_F16 ? 65504 : 0x1.FEp127;
        an_tensor *y = where_num(b, is_nan(x), an_in_none(n, 1) ? 0 : an_in_float(b, n, 1), x);
        y = where_num(b, compared(b, x, an_eq_at, INFINITY), an_in_none(n, 2) ? most : an_in_float(b, n, 2), y);
        x = where_num(b, compared(b, x, an_eq_at, -INFINITY), an_in_none(n, 3) ? -most : an_in_float(b, n, 3), y);
    }
    an_out_last(b, n, 0, x, v.last);
    return AN_OK;
}

/* log(x / (1 - x)), x clamped to [eps, 1 - eps] where there is an eps. */
an_status an_rule_logit(an_build *b, const an_pt2_node *n)
{
    an_built_value v = an_in_value(b, n, 0);
    an_tensor *x = an_as_result(b, n, 0, v.t);
    if (!an_in_none(n, 1)) {
        const double eps = an_in_float(b, n, 1);
        x = where_num(b, compared(b, x, an_lt_at, eps), eps, x);
        x = where_num(b, compared(b, x, an_gt_at, 1 - eps), 1 - eps, x);
    }
    an_tensor *rest = an_add_num_at(AN_AT, an_neg_at(AN_AT, x), 1);
    an_out_last(b, n, 0, an_log_at(AN_AT, an_div_at(AN_AT, x, rest)), v.last);
    return AN_OK;
}

/* Rounded to a number of decimals. */
an_status an_rule_round_decimals(an_build *b, const an_pt2_node *n)
{
    an_built_value v = an_in_value(b, n, 0);
    const int64_t decimals = an_in_int(b, n, 1);
    const double by = pow(10, fabs((double)decimals));
    an_tensor *x = v.t, *ten = an_is_float(x) ? an_num(x, b->cx, by) : NULL;
    if (ten && decimals >= 0)
        x = an_div_at(AN_AT, an_round_at(AN_AT, an_mul_at(AN_AT, x, ten)), ten);
    else if (ten)
        x = an_mul_at(AN_AT, an_round_at(AN_AT, an_div_at(AN_AT, x, ten)), ten);
    an_out_last(b, n, 0, x, v.last);
    return AN_OK;
}

/* 0 between -lambda and lambda; x outside, or with `soft` x moved toward 0 by lambda. NaN stays. */
static an_status shrink(an_build *b, const an_pt2_node *n, bool soft)
{
    an_built_value v = an_in_value(b, n, 0);
    const double lambda = an_in_float(b, n, 1);
    an_tensor *x = v.t, *above = compared(b, x, an_gt_at, lambda), *below = compared(b, x, an_lt_at, -lambda);
    an_tensor *up = soft ? an_add_num_at(AN_AT, x, -lambda) : x, *down = soft ? an_add_num_at(AN_AT, x, lambda) : x;
    an_tensor *zero = an_num(x, b->cx, 0), *middle = an_where_at(AN_AT, is_nan(x), x, zero);
    an_out_last(b, n, 0, an_where_at(AN_AT, above, up, an_where_at(AN_AT, below, down, middle)), v.last);
    return AN_OK;
}

an_status an_rule_hardshrink(an_build *b, const an_pt2_node *n)
{
    return shrink(b, n, false);
}
an_status an_rule_softshrink(an_build *b, const an_pt2_node *n)
{
    return shrink(b, n, true);
}

/* self lower upper training: below 0 x times a slope that is drawn, or in evaluation the middle of both. */
an_status an_rule_rrelu(an_build *b, const an_pt2_node *n)
{
    an_built_value v = an_in_value(b, n, 0);
    const double lower = an_in_float(b, n, 1), upper = an_in_float(b, n, 2);
    an_tensor *x = v.t, *low;
    if (an_in_bool(b, n, 3) && !b->inference) {
        an_tensor *slope =
            an_add_num_at(AN_AT, an_mul_num_at(AN_AT, an_rand_at(AN_AT, b->cx, an_shape_of(x)), upper - lower), lower);
        low = an_mul_at(AN_AT, x, an_as(slope, an_dtype_of(x)));
    } else {
        low = an_mul_num_at(AN_AT, x, (lower + upper) / 2);
    }
    an_out_last(b, n, 0, an_where_at(AN_AT, compared(b, x, an_gt_at, 0), x, low), v.last);
    return AN_OK;
}

/* ---- two operands */

/* Operands 0 and 1, tensors or numbers, in the result's dtype. */
static void two(an_build *b, const an_pt2_node *n, an_tensor **x, an_tensor **y, bool floats)
{
    an_tensor **t[2] = {x, y};
    for (int i = 0; i < 2; i++) {
        *t[i] = an_in(b, n, i);
        if (*t[i]) continue;
        an_tensor *other = an_in(b, n, 1 - i);
        const bool whole = n->arg[i].kind != AN_ARG_FLOAT && other && !an_is_float(other) && !floats;
        const an_dtype dtype = other && an_is_float(other) ? an_dtype_of(other) : whole ? AN_I32 : AN_F32;
        *t[i] = an_const_at(AN_AT, b->cx, dtype, an_in_float(b, n, i));
    }
    an_promote(x, y);
    if (floats) {
        *x = an_as_result(b, n, 0, *x);
        *y = an_as_result(b, n, 0, *y);
    }
}

an_tensor *an_logaddexp(an_build *b, an_tensor *x, an_tensor *y)
{
    an_tensor *same = an_eq_at(AN_AT, x, y),
              *most = an_maximum_at(AN_AT, x, y); /* equal infinities have no difference */
    an_tensor *other = where_num(b, same, 0, y), *d = an_sub_at(AN_AT, where_num(b, same, 0, x), other);
    return an_add_at(AN_AT, most, an_log1p_at(AN_AT, an_exp_at(AN_AT, an_neg_at(AN_AT, an_abs_at(AN_AT, d)))));
}

an_status an_rule_logaddexp(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, true);
    an_out(b, n, 0, an_logaddexp(b, x, y));
    return AN_OK;
}

an_status an_rule_logaddexp2(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, true);
    x = an_mul_num_at(AN_AT, x, 0.69314718055994531);
    y = an_mul_num_at(AN_AT, y, 0.69314718055994531);
    an_out(b, n, 0, an_mul_num_at(AN_AT, an_logaddexp(b, x, y), 1.4426950408889634));
    return AN_OK;
}

/* sqrt(x^2 + y^2), scaled by the larger, so that no square overflows. */
an_status an_rule_hypot(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, true);
    an_tensor *a = an_abs_at(AN_AT, x), *c = an_abs_at(AN_AT, y), *m = an_detach_at(AN_AT, an_maximum_at(AN_AT, a, c));
    m = where_num(b, an_not_at(AN_AT, compared(b, m, an_lt_at, INFINITY)), 1, m); /* NaN too */
    m = where_num(b, compared(b, m, an_eq_at, 0), 1, m);
    x = an_square_at(AN_AT, an_div_at(AN_AT, x, m));
    y = an_square_at(AN_AT, an_div_at(AN_AT, y, m));
    an_out(b, n, 0, an_mul_at(AN_AT, m, an_sqrt_at(AN_AT, an_add_at(AN_AT, x, y))));
    return AN_OK;
}

/* |x| with the sign of y, that of -0 too. */
an_status an_rule_copysign(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    const bool number = !an_in_is_tensor(n, 1);
    two(b, n, &x, &y, true);
    an_tensor *a = an_abs_at(AN_AT, x), *down = an_neg_at(AN_AT, a);
    if (number)
        an_out(b, n, 0, signbit(an_in_float(b, n, 1)) ? down : a);
    else
        an_out(b, n, 0, an_where_at(AN_AT, sign_bit(b, y), down, a));
    return AN_OK;
}

/* The greater or lesser; NaN only where both are. Of equal ones the first has the gradient. */
static an_status of_both(an_build *b, const an_pt2_node *n, an_fn2 *fn)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, false);
    x = an_as_number(x);
    y = an_as_number(y);
    an_tensor *first = an_or_at(AN_AT, fn(AN_AT, x, y), is_nan(y));
    an_out(b, n, 0, an_as_result(b, n, 0, an_where_at(AN_AT, first, x, y)));
    return AN_OK;
}

an_status an_rule_fmax(an_build *b, const an_pt2_node *n)
{
    return of_both(b, n, an_ge_at);
}
an_status an_rule_fmin(an_build *b, const an_pt2_node *n)
{
    return of_both(b, n, an_le_at);
}

/* x log y (or log(1 + y)), 0 where x is 0 and the logarithm is no number; NaN where y is. */
static an_status x_log(an_build *b, const an_pt2_node *n, an_fn1 *log, double edge)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, true);
    an_tensor *zero = compared(b, x, an_eq_at, 0), *bad = compared(b, y, an_le_at, edge);
    bad = an_and_at(AN_AT, zero, an_or_at(AN_AT, bad, compared(b, y, an_eq_at, INFINITY)));
    an_tensor *safe = where_num(b, bad, 1, y), *product = an_mul_at(AN_AT, x, log(AN_AT, safe));
    an_out(b, n, 0, where_num(b, bad, 0, product));
    return AN_OK;
}

an_status an_rule_xlogy(an_build *b, const an_pt2_node *n)
{
    return x_log(b, n, an_log_at, 0);
}
an_status an_rule_xlog1py(an_build *b, const an_pt2_node *n)
{
    return x_log(b, n, an_log1p_at, -1);
}

/* 0 below 0, 1 above, y at 0. */
an_status an_rule_heaviside(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, false);
    x = an_as_number(x);
    y = an_as_number(y);
    an_tensor *step = an_as(compared(b, x, an_gt_at, 0), an_dtype_of(x)); /* of NaN 0 */
    y = an_where_at(AN_AT, compared(b, x, an_eq_at, 0), y, step);
    an_out(b, n, 0, an_as_result(b, n, 0, an_detach_at(AN_AT, y)));
    return AN_OK;
}

/* |x - y| <= atol + rtol |y|, or equal. */
an_status an_rule_isclose(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, false);
    an_tensor *close = an_eq_at(AN_AT, x, y);
    if (an_is_float(x)) {
        an_tensor *room =
            an_add_num_at(AN_AT, an_mul_num_at(AN_AT, an_abs_at(AN_AT, y), an_in_float(b, n, 2)), an_in_float(b, n, 3));
        an_tensor *d = an_abs_at(AN_AT, an_sub_at(AN_AT, x, y));
        an_tensor *finite = an_isfinite_at(AN_AT, d), *near = an_and_at(AN_AT, an_le_at(AN_AT, d, room), finite);
        close = an_or_at(AN_AT, close, near);
        an_tensor *nan = is_nan(y);
        nan = an_and_at(AN_AT, is_nan(x), nan);
        if (an_in_bool(b, n, 4)) close = an_or_at(AN_AT, close, nan);
    }
    an_out(b, n, 0, close);
    return AN_OK;
}

/* x 2^y */
an_status an_rule_ldexp(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, true);
    an_tensor *power = an_pow_at(AN_AT, an_num(y, b->cx, 2), y);
    an_out(b, n, 0, an_mul_at(AN_AT, x, power));
    return AN_OK;
}

/* Integers times 2^y, or divided by it and rounded down. */
static an_status shift(an_build *b, const an_pt2_node *n, an_fn2 *fn)
{
    an_tensor *x, *y;
    two(b, n, &x, &y, false);
    if (an_is_float(x)) return an_build_refuse(b, AN_E_UNSUPPORTED, "bits of floats");
    an_tensor *by = an_as(y, AN_F32), *two_to = an_pow_at(AN_AT, an_num(by, b->cx, 2), by);
    an_out(b, n, 0, fn(AN_AT, x, an_as(an_round_at(AN_AT, two_to), AN_I32)));
    return AN_OK;
}

an_status an_rule_shift_left(an_build *b, const an_pt2_node *n)
{
    return shift(b, n, an_mul_at);
}
an_status an_rule_shift_right(an_build *b, const an_pt2_node *n)
{
    return shift(b, n, an_idiv_at);
}
