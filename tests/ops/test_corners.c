/* test_corners.c: special values, ties, bounds and extreme arguments where anneal.h states a convention (PyTorch's), on
 * literal numbers or plain loops in double, interpreted, compiled and unfused.
 *
 * Does not:  use the oracle: what both it and the kernels get wrong shows here. */
#include "ops/cases.h"

#include <limits.h>

enum { WAYS = 3, MOST = 4096 };

static an_ctx *ways[WAYS];
#define EACH_WAY(cx)                                                                                                   \
    for (an_ctx *const *at_ = ways, *cx = *at_; at_ < ways + WAYS; cx = ++at_ < ways + WAYS ? *at_ : cx)

static const double inf = (double)INFINITY, nan_ = (double)NAN;

static an_tensor *input(an_ctx *cx, an_dtype t, an_shape s, const double *x)
{
    static char raw[MOST * 8];
    assert_true(lab_numel(s) <= MOST);
    for (int64_t i = 0; i < lab_numel(s); i++) lab_put(t, raw, i, x[i]);
    return an_input_at(AT, cx, t, s, raw);
}

/* As many numbers as want, NaN equal to NaN, zeros with their signs when `tolerance` is 0. */
static void compare(an_ctx *cx, const char *what, an_tensor *t, const double *want, int64_t n, double tolerance)
{
    static char raw[MOST * 8];
    assert_true(n <= MOST);
    if (an_error(cx)) fail_msg("%s: %s", what, an_error(cx));
    const an_dtype dtype = an_dtype_of(t);
    assert_int_equal(lab_numel(an_shape_of(t)), n);
    if (n > 0) assert_int_equal(an_read_at(AT, t, raw, (size_t)n * an_dtype_size(dtype)), AN_OK);
    for (int64_t i = 0; i < n; i++) {
        const double got = lab_get(dtype, raw, i);
        bool same =
            isnan(want[i]) ? isnan(got) : got == want[i] || fabs(got - want[i]) <= tolerance * (1 + fabs(want[i]));
        if (tolerance == 0 && got == 0 && want[i] == 0) same = !signbit(got) == !signbit(want[i]);
        if (!same)
            fail_msg("%s (%s): element %lld is %.9g; %.9g is right", what, an_dtype_text(dtype), (long long)i, got,
                     want[i]);
    }
}

/* y, and the slopes of sum(y weights) in x; NULL: not looked at. */
static void expect(an_ctx *cx, const char *what, an_tensor *y, an_tensor *x, const double *value, const double *weights,
                   const double *slope, double tolerance)
{
    an_tensor *root[2] = {y, NULL};
    if (an_error(cx)) fail_msg("%s: %s", what, an_error(cx));
    if (slope) {
        an_tensor *wide = an_cast_at(AT, y, AN_F64);
        if (weights) wide = an_mul_at(AT, wide, input(cx, AN_F64, an_shape_of(y), weights));
        an_backward_at(AT, an_sum_at(AT, wide, AN_ALL, false));
        root[1] = an_grad(x);
        if (!root[1]) fail_msg("%s has no gradient", what);
    }
    if (an_eval_at(AT, root, slope ? 2 : 1) != AN_OK) fail_msg("%s: %s", what, an_error(cx));
    if (value) compare(cx, what, y, value, lab_numel(an_shape_of(y)), tolerance);
    if (slope) compare(cx, what, root[1], slope, lab_numel(an_shape_of(x)), tolerance > 0 ? tolerance : 1e-300);
    an_reset(cx);
}

#define N(list) ((int)(sizeof(list) / sizeof *(list)))

/* A refusal is a sentence of this status that holds `part`; the context is as new behind it. */
static void expect_refusal(an_ctx *cx, an_tensor *t, an_status status, const char *part)
{
    if (!an_error(cx)) an_eval_at(AT, &t, 1);
    assert_non_null(an_error(cx));
    assert_int_equal(an_error_status(cx), status);
    if (!strstr(an_error(cx), part)) fail_msg("'%s' does not hold '%s'", an_error(cx), part);
    an_error_clear(cx);
    an_reset(cx);
}

/* ------------------------------------------------------------------------------------------------ elementwise */

static void clamp_has_its_gradient_at_the_bounds_and_none_outside(void **state)
{
    (void)state;
    const double x[] = {-2, -1, 0, 1, 2, nan_, inf, -inf, -0.5}, y[] = {-1, -1, 0, 1, 1, nan_, 1, -1, -0.5},
                 dy[] = {0, 1, 1, 1, 0, 0, 0, 0, 1}, low[] = {-1, -1, 0, 1, 2, nan_, inf, -1, -0.5},
                 dlow[] = {0, 1, 1, 1, 1, 0, 1, 0, 1}, turned[] = {-1, -1, -1, -1, -1, nan_, -1, -1, -1},
                 none[] = {0, 0, 0, 0, 0, 0, 0, 0, 0}, numbers[] = {1, 1, 1, 1, 1, 0, 1, 1, 1}, whole[] = {-2, 0, 7},
                 bounded[] = {-1, 0, 3};
    static const an_dtype types[] = {AN_F32, AN_F64, AN_BF16, AN_F16};
    EACH_WAY(cx)
    {
        for (int i = 0; i < N(types); i++) {
            an_tensor *a = input(cx, types[i], AN_SHAPE(9), x);
            expect(cx, "clamp", an_clamp_at(AT, a, -1, 1), a, y, NULL, dy, 0);
            a = input(cx, types[i], AN_SHAPE(9), x);
            expect(cx, "clamp from below", an_clamp_at(AT, a, -1, inf), a, low, NULL, dlow, 0);
            a = input(cx, types[i], AN_SHAPE(9), x);
            expect(cx, "clamp with turned bounds", an_clamp_at(AT, a, 1, -1), a, turned, NULL, none, 0);
            a = input(cx, types[i], AN_SHAPE(9), x);
            expect(cx, "clamp without bounds", an_clamp_at(AT, a, -inf, inf), a, x, NULL, numbers, 0);
        }
        an_tensor *k = input(cx, AN_I32, AN_SHAPE(3), whole);
        expect(cx, "clamp", an_clamp_at(AT, k, -1, 3), NULL, bounded, NULL, NULL, 0);
        k = input(cx, AN_I32, AN_SHAPE(3), whole);
        expect(cx, "clamp", an_clamp_at(AT, k, -inf, inf), NULL, whole, NULL, NULL, 0);
        expect_refusal(cx, an_clamp_at(AT, input(cx, AN_I32, AN_SHAPE(3), whole), 0.5, 3), AN_E_DTYPE, "0.5");
        expect_refusal(cx, an_clamp_at(AT, input(cx, AN_F32, AN_SHAPE(3), whole), nan_, 3), AN_E_USAGE, "an_clamp");
        expect_refusal(cx, an_clamp_at(AT, input(cx, AN_BOOL, AN_SHAPE(3), whole), 0, 1), AN_E_USAGE, "an_clamp");
    }
}

typedef struct corner {
    const char *what;
    an_tensor *(*f)(const char *, an_tensor *);
    double x, y, slope;
} corner;

/* PyTorch's values and slopes. */
static void functions_have_their_limits_and_slopes(void **state)
{
    (void)state;
    static const double pi = 3.141592653589793;
    const corner rows[] = {
        {"relu", an_relu_at, 0, 0, 0},
        {"relu", an_relu_at, nan_, nan_, 1},
        {"relu", an_relu_at, inf, inf, 1},
        {"abs", an_abs_at, -0.0, 0, 0},
        {"abs", an_abs_at, 0, 0, 0},
        {"abs", an_abs_at, -inf, inf, -1},
        {"sqrt", an_sqrt_at, 0, 0, inf},
        {"sqrt", an_sqrt_at, -0.0, -0.0, -inf},
        {"sqrt", an_sqrt_at, -1, nan_, nan_},
        {"rsqrt", an_rsqrt_at, inf, 0, -0.0},
        {"recip", an_recip_at, -0.0, -inf, -inf},
        {"exp", an_exp_at, -inf, 0, 0},
        {"expm1", an_expm1_at, -inf, -1, 0},
        {"expm1", an_expm1_at, -20, expm1(-20), exp(-20)},
        {"expm1", an_expm1_at, -0.0, -0.0, 1},
        {"log", an_log_at, 0, -inf, inf},
        {"log1p", an_log1p_at, -1, -inf, inf},
        {"log1p", an_log1p_at, -2, nan_, -1},
        {"sin", an_sin_at, inf, nan_, nan_},
        {"cos", an_cos_at, -inf, nan_, nan_},
        {"sin", an_sin_at, -0.0, -0.0, 1},
        {"tanh", an_tanh_at, -inf, -1, 0},
        {"tanh", an_tanh_at, -0.0, -0.0, 1},
        {"erf", an_erf_at, inf, 1, 0},
        {"atan", an_atan_at, inf, pi / 2, 0},
        {"atan", an_atan_at, -0.0, -0.0, 1},
        {"asin", an_asin_at, 1, pi / 2, inf},
        {"asin", an_asin_at, -0.0, -0.0, 1},
        {"asin", an_asin_at, 1.5, nan_, nan_},
        {"acos", an_acos_at, -1, pi, -inf},
        {"acos", an_acos_at, 1, 0, -inf},
        {"acos", an_acos_at, -1.5, nan_, nan_},
        {"sigmoid", an_sigmoid_at, -inf, 0, 0},
        {"sigmoid", an_sigmoid_at, inf, 1, 0},
        {"softplus", an_softplus_at, 0, log(2), 0.5},
        {"softplus", an_softplus_at, inf, inf, 1},
        {"softplus", an_softplus_at, -inf, 0, 0},
        {"gelu", an_gelu_at, inf, inf, nan_},
        {"gelu", an_gelu_at, 0, 0, 0.5},
        {"silu", an_silu_at, 0, 0, 0.5},
        {"sign", an_sign_at, nan_, 0, 2},
        {"floor", an_floor_at, -0.0, -0.0, 2},
        {"round", an_round_at, 2.5, 2, 2},
        {"round", an_round_at, -0.5, -0.0, 2},
    };
    static const an_dtype types[] = {AN_F32, AN_F64};
    EACH_WAY(cx) for (int t = 0; t < N(types); t++)
    { /* one graph: few programs to compile */
        an_tensor *x[N(rows)], *root[2 * N(rows)], *loss = NULL;
        for (int i = 0; i < N(rows); i++) {
            x[i] = input(cx, types[t], AN_SHAPE(1), &rows[i].x);
            root[2 * i] = rows[i].f(AT, x[i]);
            loss = loss ? an_add_at(AT, loss, root[2 * i]) : root[2 * i];
        }
        an_backward_at(AT, an_sum_at(AT, loss, AN_ALL, false));
        for (int i = 0; i < N(rows); i++) {
            an_tensor *slope = an_grad(x[i]);
            root[2 * i + 1] = slope ? slope : root[2 * i];
        }
        if (an_eval_at(AT, root, 2 * N(rows)) != AN_OK) fail_msg("%s", an_error(cx));
        for (int i = 0; i < N(rows); i++) {
            compare(cx, rows[i].what, root[2 * i], &rows[i].y, 1, rows[i].y == 0 ? 0 : 1e-6);
            if (rows[i].slope != 2) compare(cx, rows[i].what, root[2 * i + 1], &rows[i].slope, 1, 1e-6);
        }
        an_reset(cx);
    }
}

static void sines_of_huge_numbers_are_right(void **state)
{
    (void)state;
    static const double x[] = {0x1p20, 1e6, 0x1.8p30, -1e10, 0x1p60, 3e38, -0x1.fffffep127};
    EACH_WAY(cx) for (int i = 0; i < N(x); i++)
    {
        const double at = (double)(float)x[i], s = sin(at), c = cos(at);
        an_tensor *a = input(cx, AN_F32, AN_SHAPE(1), &x[i]);
        expect(cx, "sin", an_sin_at(AT, a), a, &s, NULL, &c, 3e-7);
    }
}

static void powers_have_their_corners(void **state)
{
    (void)state;
    static const double a[] = {0, 0, 0, 2, 0, -2, -2, -2, INFINITY, INFINITY, 1, -1, NAN, 0, -0.0},
                        b[] = {0, 3, 1, 0, -1, 3, -1, 0.5, -1, 0, NAN, INFINITY, 0, 0.5, 3};
    double y[N(a)], da[N(a)], db[N(a)];
    for (int i = 0; i < N(a); i++) {
        y[i] = pow(a[i], b[i]);
        da[i] = b[i] == 0 ? 0 : b[i] * pow(a[i], b[i] - 1);
        db[i] = a[i] == 0 && b[i] >= 0 ? 0 : y[i] * log(a[i]);
    }
    static const an_dtype types[] = {AN_F32, AN_F64};
    EACH_WAY(cx) for (int t = 0; t < N(types); t++) for (int k = 0; k < 2; k++)
    {
        an_tensor *x = input(cx, types[t], AN_SHAPE(N(a)), a), *p = input(cx, types[t], AN_SHAPE(N(a)), b);
        expect(cx, "pow", an_pow_at(AT, x, p), k ? p : x, y, NULL, k ? db : da, 1e-6);
    }
}

static void angles_have_every_quadrant_and_no_slope_at_the_origin(void **state)
{
    (void)state;
    static const double y[] = {0, 0, -0.0, -0.0, 1, -1, 0, INFINITY, 1, 3},
                        x[] = {0, -0.0, 0, -0.0, 0, 0, -2, INFINITY, -INFINITY, 4};
    double angle[N(y)], dy[N(y)], dx[N(y)];
    for (int i = 0; i < N(y); i++) {
        const double r = x[i] * x[i] + y[i] * y[i];
        angle[i] = atan2(y[i], x[i]);
        dy[i] = r == 0 ? 0 : x[i] / r;
        dx[i] = r == 0 ? 0 : -y[i] / r;
    }
    EACH_WAY(cx) for (int k = 0; k < 2; k++)
    {
        an_tensor *a = input(cx, AN_F32, AN_SHAPE(N(y)), y), *b = input(cx, AN_F32, AN_SHAPE(N(y)), x);
        expect(cx, "atan2", an_atan2_at(AT, a, b), k ? b : a, angle, NULL, k ? dx : dy, 1e-6);
    }
}

static void integers_wrap_and_divide_by_zero_to_zero(void **state)
{
    (void)state;
    static const double a[] = {7, -7, 7, -7, 5, INT32_MIN, INT32_MIN, 0}, b[] = {2, 2, -2, -2, 0, -1, 0, 0},
                        q[] = {3, -4, -4, 3, 0, INT32_MIN, 0, 0}, m[] = {1, 1, -1, -1, 0, 0, 0, 0},
                        sum[] = {9, -5, 5, -9, 5, INT32_MAX, INT32_MIN, 0};
    EACH_WAY(cx)
    {
        an_tensor *x = input(cx, AN_I32, AN_SHAPE(8), a), *y = input(cx, AN_I32, AN_SHAPE(8), b);
        expect(cx, "idiv", an_idiv_at(AT, x, y), NULL, q, NULL, NULL, 0);
        x = input(cx, AN_I32, AN_SHAPE(8), a), y = input(cx, AN_I32, AN_SHAPE(8), b);
        expect(cx, "imod", an_imod_at(AT, x, y), NULL, m, NULL, NULL, 0);
        x = input(cx, AN_I32, AN_SHAPE(8), a), y = input(cx, AN_I32, AN_SHAPE(8), b);
        expect(cx, "add", an_add_at(AT, x, y), NULL, sum, NULL, NULL, 0);
        const double least = INT32_MIN;
        expect(cx, "abs", an_abs_at(AT, input(cx, AN_I32, AN_SHAPE(1), &least)), NULL, &least, NULL, NULL, 0);
    }
}

static void casts_truncate_and_saturate(void **state)
{
    (void)state;
    static const double x[] = {2.9, -2.9, 3e9, -3e9, INFINITY, -INFINITY, NAN, -0.5, 255.5, 300, -1},
                        i32[] = {2, -2, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 0, 0, 255, 300, -1},
                        u8[] = {2, 0, 255, 0, 255, 0, 0, 0, 255, 255, 0}, yes[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const an_dtype types[] = {AN_F32, AN_F64};
    EACH_WAY(cx) for (int t = 0; t < N(types); t++)
    {
        expect(cx, "to int32", an_cast_at(AT, input(cx, types[t], AN_SHAPE(11), x), AN_I32), NULL, i32, NULL, NULL, 0);
        expect(cx, "to uint8", an_cast_at(AT, input(cx, types[t], AN_SHAPE(11), x), AN_U8), NULL, u8, NULL, NULL, 0);
        expect(cx, "to bool", an_cast_at(AT, input(cx, types[t], AN_SHAPE(11), x), AN_BOOL), NULL, yes, NULL, NULL, 0);
    }
}

/* ------------------------------------------------------------------------------------------------ ties and order */

static void equal_elements_share_the_gradient(void **state)
{
    (void)state;
    static const double a[] = {1, 2, 3, 2}, b[] = {2, 2, 1, 2}, most[] = {2, 2, 3, 2}, da[] = {0, 0.5, 1, 0.5},
                        least[] = {1, 2, 1, 2}, dl[] = {1, 0.5, 0, 0.5}, rows[] = {3, 1, 3, 0, 0, 0}, top[] = {3, 0},
                        w[] = {4, 6}, dt[] = {2, 0, 2, 2, 2, 2}, low[] = {1, 0}, dn[] = {0, 4, 0, 2, 2, 2};
    EACH_WAY(cx)
    {
        an_tensor *x = input(cx, AN_F32, AN_SHAPE(4), a), *y = input(cx, AN_F32, AN_SHAPE(4), b);
        expect(cx, "maximum", an_maximum_at(AT, x, y), x, most, NULL, da, 0);
        x = input(cx, AN_F32, AN_SHAPE(4), a), y = input(cx, AN_F32, AN_SHAPE(4), b);
        expect(cx, "minimum", an_minimum_at(AT, x, y), x, least, NULL, dl, 0);
        x = input(cx, AN_F32, AN_SHAPE(2, 3), rows);
        expect(cx, "max", an_max_at(AT, x, AN_AXIS(1), false), x, top, w, dt, 0);
        x = input(cx, AN_F32, AN_SHAPE(2, 3), rows);
        expect(cx, "min", an_min_at(AT, x, AN_AXIS(1), false), x, low, w, dn, 0);
    }
}

/* In parts of a reduction that is split: 3 x 300 x 3 over the first two axes. */
static void equal_elements_share_across_the_parts_of_a_reduction(void **state)
{
    (void)state;
    static double x[2700], d[2700];
    const double top[] = {5, 0, 2};
    for (int i = 0; i < 2700; i++) {
        const int c = i % 3, r = i / 3;
        x[i] = c == 0 ? (r % 100 == 7 ? 5 : -r) : c == 1 ? -(double)(r % 9) : r == 450 ? 2 : 1;
        d[i] = c == 0 ? (r % 100 == 7 ? 1. / 9 : 0) : c == 1 ? (r % 9 ? 0 : 1. / 100) : r == 450;
    }
    EACH_WAY(cx)
    {
        an_tensor *a = input(cx, AN_F32, AN_SHAPE(3, 300, 3), x);
        expect(cx, "max", an_max_at(AT, a, AN_AXIS(0) | AN_AXIS(1), false), a, top, NULL, d, 1e-6);
    }
}

static void sorted_ties_keep_their_order_and_their_gradients(void **state)
{
    (void)state;
    static const double x[] = {2, NAN, 1, 2, -INFINITY, 1, 2, NAN}, w[] = {1, 2, 3, 4, 5, 6, 7, 8},
                        up[] = {-INFINITY, 1, 1, 2, 2, 2, NAN, NAN}, at[] = {4, 2, 5, 0, 3, 6, 1, 7},
                        d[] = {4, 7, 2, 5, 1, 3, 6, 8}, down[] = {NAN, NAN, 2, 2, 2, 1, 1, -INFINITY},
                        down_at[] = {1, 7, 0, 3, 6, 2, 5, 4}, top[] = {NAN, NAN, 2, 2}, top_at[] = {1, 7, 0, 3},
                        dtop[] = {3, 1, 0, 4, 0, 0, 0, 2}, first = 1;
    EACH_WAY(cx)
    {
        an_tensor *places, *a = input(cx, AN_F32, AN_SHAPE(8), x);
        expect(cx, "sort", an_sort_at(AT, a, false, NULL), a, up, w, d, 0);
        an_sort_at(AT, input(cx, AN_F32, AN_SHAPE(8), x), false, &places);
        expect(cx, "places", places, NULL, at, NULL, NULL, 0);
        expect(cx, "descending", an_sort_at(AT, input(cx, AN_F32, AN_SHAPE(8), x), true, NULL), NULL, down, NULL, NULL,
               0);
        an_sort_at(AT, input(cx, AN_F32, AN_SHAPE(8), x), true, &places);
        expect(cx, "places", places, NULL, down_at, NULL, NULL, 0);
        a = input(cx, AN_F32, AN_SHAPE(8), x);
        expect(cx, "topk", an_topk_at(AT, a, 4, NULL), a, top, w, dtop, 0);
        an_topk_at(AT, input(cx, AN_F32, AN_SHAPE(8), x), 4, &places);
        expect(cx, "places", places, NULL, top_at, NULL, NULL, 0);
        expect(cx, "argmax", an_argmax_at(AT, input(cx, AN_F32, AN_SHAPE(8), x), 0, false), NULL, &first, NULL, NULL,
               0);
    }
}

static void running_sums_go_through_infinities(void **state)
{
    (void)state;
    static const double x[] = {1, INFINITY, 2, -INFINITY, 3}, y[] = {1, INFINITY, INFINITY, NAN, NAN},
                        back[] = {NAN, NAN, -INFINITY, -INFINITY, 3};
    EACH_WAY(cx)
    {
        expect(cx, "cumsum", an_cumsum_at(AT, input(cx, AN_F32, AN_SHAPE(5), x), false), NULL, y, NULL, NULL, 0);
        expect(cx, "cumsum", an_cumsum_at(AT, input(cx, AN_F32, AN_SHAPE(5), x), true), NULL, back, NULL, NULL, 0);
    }
}

/* ------------------------------------------------------------------------------------------------ nothing, and one */

static void reductions_of_nothing_are_their_neutral_element_or_a_sentence(void **state)
{
    (void)state;
    static const double zeros[] = {0, 0}, nans[] = {NAN, NAN}, least[] = {-INFINITY, -INFINITY};
#define NOTHING input(cx, AN_F32, AN_SHAPE(2, 0), zeros)
    EACH_WAY(cx)
    {
        expect(cx, "sum", an_sum_at(AT, NOTHING, AN_AXIS(1), false), NULL, zeros, NULL, NULL, 0);
        expect(cx, "mean", an_mean_at(AT, NOTHING, AN_AXIS(1), false), NULL, nans, NULL, NULL, 0);
        expect(cx, "var", an_var_at(AT, NOTHING, AN_AXIS(1), false), NULL, nans, NULL, NULL, 0);
        expect(cx, "logsumexp", an_logsumexp_at(AT, NOTHING, 1, false), NULL, least, NULL, NULL, 0);
        expect(cx, "softmax", an_softmax_at(AT, NOTHING, 1), NULL, zeros, NULL, NULL, 0);
        expect(cx, "cumsum", an_cumsum_at(AT, NOTHING, false), NULL, zeros, NULL, NULL, 0);
        expect_refusal(cx, an_max_at(AT, NOTHING, AN_AXIS(1), false), AN_E_SHAPE, "an_max");
        expect_refusal(cx, an_min_at(AT, NOTHING, AN_AXIS(1), false), AN_E_SHAPE, "an_min");
        expect_refusal(cx, an_argmax_at(AT, NOTHING, 1, false), AN_E_SHAPE, "an_argmax");
        expect_refusal(cx, an_topk_at(AT, NOTHING, 1, NULL), AN_E_SHAPE, "an_topk");
    }
}

static void rows_of_equal_numbers_are_normalized_to_zero(void **state)
{
    (void)state;
    static const double x[] = {3, 3, 3, 0, 0, 0}, gain[] = {2, 2, 2}, bias[] = {1, -1, 0.5},
                        y[] = {1, -1, 0.5, 1, -1, 0.5}, zeros[] = {0, 0, 0, 0, 0, 0}, w[] = {1, 2, 6, 1, 1, 1};
    const double r = 2 / sqrt(1e-5), d[] = {-2 * r, -1 * r, 3 * r, 0, 0, 0}, one[] = {7, -2}, beta[] = {0.5, 4};
    EACH_WAY(cx)
    {
        an_tensor *a = input(cx, AN_F32, AN_SHAPE(2, 3), x), *g = input(cx, AN_F32, AN_SHAPE(3), gain);
        expect(cx, "layer_norm", an_layer_norm_at(AT, a, g, input(cx, AN_F32, AN_SHAPE(3), bias), 1e-5), a, y, w, d,
               1e-5);
        a = input(cx, AN_F32, AN_SHAPE(1, 3), zeros);
        expect(cx, "rms_norm", an_rms_norm_at(AT, a, NULL, 1e-6), a, zeros, w, (double[]){1e3, 2e3, 6e3}, 1e-5);
        /* one row: what is subtracted is itself, and the unbiased variance keeps the biased one */
        an_tensor *mean = an_state_at(AT, cx, "mean", AN_F32, AN_SHAPE(2), AN_ZEROS),
                  *var = an_state_at(AT, cx, "var", AN_F32, AN_SHAPE(2), AN_ONES);
        a = input(cx, AN_F32, AN_SHAPE(1, 2), one);
        expect(cx, "batch_norm",
               an_batch_norm_at(AT, a, NULL, input(cx, AN_F32, AN_SHAPE(2), beta), mean, var, 0.5, 1e-5, true), a, beta,
               w, zeros, 1e-5);
        float v[2];
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, "var"), v, sizeof v), AN_OK);
        assert_true(isfinite(v[0]) && isfinite(v[1]));
    }
}

/* As PyTorch's var(unbiased=False): an infinite element leaves the slopes of the others infinite. */
static void variances_have_their_slopes_at_infinities(void **state)
{
    (void)state;
    static const double x[] = {1, INFINITY, INFINITY, -INFINITY, 1, NAN, -INFINITY, 2, 3, 3, 1, 4},
                        y[] = {NAN, NAN, NAN, NAN, 0, 2.25},
                        d[] = {-INFINITY, NAN, NAN, NAN, NAN, NAN, NAN, INFINITY, 0, 0, -1.5, 1.5};
    static const an_dtype types[] = {AN_F32, AN_F64, AN_BF16, AN_F16};
    EACH_WAY(cx) for (int t = 0; t < N(types); t++)
    {
        an_tensor *a = input(cx, types[t], AN_SHAPE(6, 2), x);
        expect(cx, "var", an_var_at(AT, a, AN_AXIS(1), false), a, y, NULL, d, 1e-9);
    }
}

static void log_sums_and_losses_have_their_corners(void **state)
{
    (void)state;
    static const double x[] = {-INFINITY, -INFINITY, INFINITY, 0, INFINITY, -INFINITY, 1000, 1000, -INFINITY, 2},
                        y[] = {-INFINITY, INFINITY, INFINITY, 1000.69314718056, 2},
                        logits[] = {1, 2, 3, 4, -INFINITY, 6}, ignored[] = {-1, -100}, zeros[] = {0, 0, 0, 0, 0, 0},
                        label[] = {2, 2};
    const double z[] = {3, 6}, e0 = exp(1) + exp(2) + exp(3), e1 = exp(-2) + 1;
    const double loss[] = {log(e0) - z[0], log(e1)},
                 d[] = {exp(1) / e0, exp(2) / e0, exp(3) / e0 - 1, exp(-2) / e1, 0, 1 / e1 - 1};
    EACH_WAY(cx)
    {
        expect(cx, "logsumexp", an_logsumexp_at(AT, input(cx, AN_F32, AN_SHAPE(5, 2), x), 1, false), NULL, y, NULL,
               NULL, 1e-6);
        an_tensor *a = input(cx, AN_F32, AN_SHAPE(2, 3), logits);
        expect(cx, "cross_entropy", an_cross_entropy_at(AT, a, input(cx, AN_I32, AN_SHAPE(2), ignored)), a, zeros, NULL,
               zeros, 0);
        a = input(cx, AN_F32, AN_SHAPE(2, 3), logits);
        expect(cx, "cross_entropy", an_cross_entropy_at(AT, a, input(cx, AN_I32, AN_SHAPE(2), label)), a, loss, NULL, d,
               1e-6);
    }
}

/* ------------------------------------------------------------------------------------------------ rows by index */

static void ids_out_of_range_are_refused_or_clamped(void **state)
{
    (void)state;
    static const double table[] = {10, 20, 30}, bad[] = {0, 3}, far[] = {-5, 9}, rows[] = {10, 30}, one[] = {1, 1},
                        sums[] = {1, 0, 1}, d[] = {1, 0, 1};
    EACH_WAY(cx)
    {
        an_tensor *t = input(cx, AN_F32, AN_SHAPE(3), table);
        expect_refusal(cx, an_gather_at(AT, t, input(cx, AN_I32, AN_SHAPE(2), bad)), AN_E_DATA, "3");
        expect_refusal(
            cx, an_scatter_add_at(AT, input(cx, AN_I32, AN_SHAPE(2), bad), input(cx, AN_F32, AN_SHAPE(2), one), 3),
            AN_E_DATA, "3");
        t = input(cx, AN_F32, AN_SHAPE(3), table);
        an_tensor *computed = an_neg_at(AT, an_neg_at(AT, an_add_num_at(AT, input(cx, AN_I32, AN_SHAPE(2), far), 0)));
        computed = an_mul_num_at(AT, computed, 3);
        expect(cx, "gather", an_gather_at(AT, t, computed), t, rows, NULL, d, 0);
        computed = an_mul_num_at(AT, input(cx, AN_I32, AN_SHAPE(2), far), 3);
        expect(cx, "scatter_add", an_scatter_add_at(AT, computed, input(cx, AN_F32, AN_SHAPE(2), one), 3), NULL, sums,
               NULL, NULL, 0);
    }
}

static uint64_t words = 7;
static int draw(int low, int high) /* both included */
{
    lab l = {.random = words};
    const double u = lab_uniform(&l);
    words = l.random;
    return low + (int)(u * (high - low + 1));
}

static void products_and_scattered_sums_of_integers_wrap(void **state)
{
    (void)state;
    static const an_dtype types[] = {AN_I32, AN_I64, AN_U8};
    EACH_WAY(cx) for (int trial = 0; trial < 12; trial++)
    {
        if (cx == ways[1] && trial > 3) continue; /* a compiler for each */
        const an_dtype t = types[trial % 3];
        const int M = draw(1, 7), K = draw(0, 9), n = draw(1, 6);
        double a[64], b[64], y[64];
        int32_t id[64];
        const double big = t == AN_U8 ? 255 : t == AN_I32 ? 2147483000 : 4e9;
        for (int i = 0; i < M * K; i++) a[i] = trial % 2 ? big - draw(0, 99) : draw(0, 9);
        for (int i = 0; i < K * n; i++) b[i] = draw(t == AN_U8 ? 0 : -9, 9);
        for (int i = 0; i < M * n; i++) {
            uint64_t sum = 0;
            for (int k = 0; k < K; k++)
                sum += (uint64_t)(int64_t)a[i / n * K + k] * (uint64_t)(int64_t)b[k * n + i % n];
            y[i] = t == AN_U8 ? (uint8_t)sum : t == AN_I32 ? (int32_t)(uint32_t)sum : (double)(int64_t)sum;
        }
        an_tensor *x = input(cx, t, AN_SHAPE(M, K), a), *w = input(cx, t, AN_SHAPE(K, n), b);
        expect(cx, "matmul", an_matmul_at(AT, x, w), NULL, y, NULL, NULL, 0);
        uint64_t sums[5] = {0};
        for (int i = 0; i < M * K; i++) id[i] = draw(0, 4), sums[id[i]] += (uint64_t)(int64_t)a[i];
        for (int i = 0; i < 5; i++)
            y[i] = t == AN_U8 ? (uint8_t)sums[i] : t == AN_I32 ? (int32_t)(uint32_t)sums[i] : (double)(int64_t)sums[i];
        an_tensor *ids = an_input_at(AT, cx, AN_I32, AN_SHAPE(M * K), id);
        expect(cx, "scatter_add", an_scatter_add_at(AT, ids, input(cx, t, AN_SHAPE(M * K), a), 5), NULL, y, NULL, NULL,
               0);
    }
}

/* ------------------------------------------------------------------------------------------------ layers */

/* Sums whose terms float32 holds exactly, rounded once, behind the bias. */
static void a_bias_in_16_bits_is_added_before_the_rounding(void **state)
{
    (void)state;
    static const an_dtype types[] = {AN_BF16, AN_F16};
    enum { ROWS = 16, K = 3, OUT = 12 };
    EACH_WAY(cx) for (int t = 0; t < 2; t++)
    {
        double x[ROWS * K], w[OUT * K], bias[OUT], once[ROWS * OUT];
        double half = 0; /* room for any dtype */
        int twice = 0;   /* how many a second rounding would change: the test has teeth */
        for (int i = 0; i < ROWS * K; i++) x[i] = draw(-127, 127);
        for (int i = 0; i < OUT * K; i++) w[i] = draw(-127, 127);
        for (int i = 0; i < OUT; i++) bias[i] = draw(-127, 127);
        for (int i = 0; i < ROWS * OUT; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += x[i / OUT * K + k] * w[i % OUT * K + k];
            lab_put(types[t], &half, 0, sum + bias[i % OUT]);
            once[i] = lab_get(types[t], &half, 0);
            lab_put(types[t], &half, 0, sum);
            lab_put(types[t], &half, 0, lab_get(types[t], &half, 0) + bias[i % OUT]);
            twice += lab_get(types[t], &half, 0) != once[i];
        }
        assert_true(twice > 5);
        an_tensor *a = input(cx, types[t], AN_SHAPE(ROWS, K), x), *f = input(cx, types[t], AN_SHAPE(OUT, K), w),
                  *b = input(cx, types[t], AN_SHAPE(OUT), bias);
        expect(cx, "linear", an_linear_at(AT, a, f, b), NULL, once, NULL, NULL, 0);
        a = input(cx, types[t], AN_SHAPE(1, 4, 4, K), x), f = input(cx, types[t], AN_SHAPE(OUT, 1, 1, K), w);
        b = input(cx, types[t], AN_SHAPE(OUT), bias);
        expect(cx, "conv2d", an_conv2d_at(AT, a, f, b, (an_window){0}), NULL, once, NULL, NULL, 0);
    }
}

/* softmax(q k^T scale) v by plain loops; a query that sees no key gives zeros. [B,H,...] is [1,2,...]. */
static void attend(int T, int S, int D, bool causal, const double *q, const double *k, const double *v, double *o)
{
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < T; i++) {
            double p[16], sum = 0;
            for (int j = 0; j < S; j++) {
                double s = 0;
                for (int d = 0; d < D; d++) s += q[(h * T + i) * D + d] * k[(h * S + j) * D + d];
                sum += p[j] = causal && j > i + S - T ? 0 : exp(s / sqrt(D));
            }
            for (int d = 0; d < D; d++) {
                double y = 0;
                for (int j = 0; j < S; j++) y += sum > 0 ? p[j] / sum * v[(h * S + j) * D + d] : 0;
                o[(h * T + i) * D + d] = y;
            }
        }
}

static void attention_in_two_precisions_is_plain_loops_and_its_slopes_are_differences(void **state)
{
    (void)state;
    static const struct {
        int T, S, D;
        bool causal;
    } shapes[] = {{3, 5, 4, false}, {5, 5, 2, true}, {4, 2, 3, true}, {1, 7, 1, false}, {6, 1, 5, true}};
    EACH_WAY(cx) for (int n = 0; n < N(shapes); n++) for (int type = 0; type < 2; type++)
    {
        if (cx == ways[1] && n > 1) continue; /* a compiler for each */
        const int T = shapes[n].T, S = shapes[n].S, D = shapes[n].D, most[3] = {2 * T * D, 2 * S * D, 2 * S * D};
        double in[3][128], o[128], up[128], down[128], w[128], d[128];
        const an_dtype t = type ? AN_F32 : AN_F64;
        for (int i = 0; i < 3; i++)
            for (int e = 0; e < most[i]; e++) in[i][e] = draw(-8, 8) / 8.;
        for (int e = 0; e < most[0]; e++) w[e] = draw(-8, 8) / 8.;
        attend(T, S, D, shapes[n].causal, in[0], in[1], in[2], o);
        for (int i = 0; i < 3; i++) { /* the slopes in q, k and v */
            for (int e = 0; e < most[i]; e++) {
                const double x = in[i][e];
                in[i][e] = x + 1e-5, attend(T, S, D, shapes[n].causal, in[0], in[1], in[2], up);
                in[i][e] = x - 1e-5, attend(T, S, D, shapes[n].causal, in[0], in[1], in[2], down);
                in[i][e] = x, d[e] = 0;
                for (int r = 0; r < most[0]; r++) d[e] += w[r] * (up[r] - down[r]) / 2e-5;
            }
            an_tensor *a[3];
            for (int k = 0; k < 3; k++) a[k] = input(cx, t, AN_SHAPE(1, 2, k ? S : T, D), in[k]);
            expect(cx, "attention", an_attention_at(AT, a[0], a[1], a[2], 0, shapes[n].causal, 0, NULL), a[i], o, w, d,
                   t == AN_F64 ? 1e-8 : 1e-5);
        }
    }
}

/* The pixel that tap k of output o reads along one axis; -1: padding. */
static int pixel(int o, int k, int stride, int pad, int dilation, int length)
{
    const int at = o * stride - pad + k * dilation;
    return at < 0 || at >= length ? -1 : at;
}

static void windows_are_plain_loops_for_any_stride_padding_and_dilation(void **state)
{
    (void)state;
    enum { C = 2 };
    for (int trial = 0; trial < 60; trial++) {
        const int H = draw(1, 9), W = draw(1, 9);
        an_window s = {.kernel_h = draw(1, 4), .kernel_w = draw(1, 4), .stride_h = draw(1, 3), .stride_w = draw(1, 3)};
        s.dilation_h = draw(1, 3);
        s.dilation_w = draw(1, 3);
        s.pad_h = draw(0, s.kernel_h / 2), s.pad_w = draw(0, s.kernel_w / 2);
        const int span_h = (s.kernel_h - 1) * s.dilation_h + 1, span_w = (s.kernel_w - 1) * s.dilation_w + 1;
        if (H + 2 * s.pad_h < span_h || W + 2 * s.pad_w < span_w) continue;
        const int OH = (H + 2 * s.pad_h - span_h) / s.stride_h + 1, OW = (W + 2 * s.pad_w - span_w) / s.stride_w + 1;
        double x[9 * 9 * C], w[9 * 9 * 4 * C], top[9 * 9 * 4 * C], mean[9 * 9 * 4 * C],
            dtop[9 * 9 * C] = {0}, dmean[9 * 9 * C] = {0};
        for (int i = 0; i < H * W * C; i++) x[i] = draw(-3, 3); /* many ties: the first wins */
        for (int i = 0; i < OH * OW * C; i++) {
            const int oh = i / C / OW, ow = i / C % OW, c = i % C, taps = s.kernel_h * s.kernel_w;
            int best = -1;
            double sum = 0;
            w[i] = draw(-8, 8) / 8.;
            for (int k = 0; k < taps; k++) {
                const int h = pixel(oh, k / s.kernel_w, s.stride_h, s.pad_h, s.dilation_h, H),
                          v = pixel(ow, k % s.kernel_w, s.stride_w, s.pad_w, s.dilation_w, W), e = (h * W + v) * C + c;
                if (h < 0 || v < 0) continue;
                sum += x[e], dmean[e] += w[i] / taps;
                if (best < 0 || x[e] > x[best]) best = e;
            }
            mean[i] = sum / taps;
            top[i] = best < 0 ? -inf : x[best];
            if (best >= 0) dtop[best] += w[i];
        }
        EACH_WAY(cx)
        {
            an_tensor *a = input(cx, AN_F32, AN_SHAPE(1, H, W, C), x);
            if (cx == ways[1] && trial > 4) continue; /* a compiler for each */
            expect(cx, "max_pool", an_max_pool_at(AT, a, s), a, top, w, dtop, 1e-6);
            a = input(cx, AN_F32, AN_SHAPE(1, H, W, C), x);
            expect(cx, "avg_pool", an_avg_pool_at(AT, a, s), a, mean, w, dmean, 1e-6);
        }
    }
}

/* Each argument at the ends of int: a sentence, or the shape that exact arithmetic gives. */
static void window_arguments_at_the_ends_of_int_are_refused_or_exact(void **state)
{
    (void)state;
    static const int extreme[] = {INT_MAX, INT_MAX - 1, INT_MAX / 2 + 1, 1 << 30, 65536, -1, INT_MIN};
    const double ones[64] = {1};
    an_ctx *cx = ways[0];
    int refused = 0, taken = 0;
    for (int op = 0; op < 3; op++)
        for (int field = 0; field < 9; field++)
            for (int i = 0; i < N(extreme); i++) {
                int args[9] = {2, 2, 1, 1, 0, 0, 1, 1, 1};
                args[field] = extreme[i];
                if (op == 2 && field < 2) continue; /* a convolution's kernel is its filter's shape */
                const an_window s = {args[0], args[1], args[2], args[3], args[4], args[5],
                                     args[6], args[7], args[8], 0,       0};
                an_tensor *x = input(cx, AN_F32, AN_SHAPE(1, 4, 4, 1), ones),
                          *w = input(cx, AN_F32, AN_SHAPE(1, 2, 2, 1), ones);
                an_tensor *y = op == 0   ? an_max_pool_at(AT, x, s)
                               : op == 1 ? an_avg_pool_at(AT, x, s)
                                         : an_conv2d_at(AT, x, w, NULL, s);
                if (an_error(cx)) {
                    refused++;
                    assert_true(strlen(an_error(cx)) > 20);
                } else {
                    taken++;
                    for (int d = 0; d < 2; d++) {
                        const int64_t span = ((int64_t)args[d] - 1) * args[6 + d] + 1;
                        assert_int_equal(an_shape_of(y).dim[1 + d],
                                         (4 + 2 * (int64_t)args[4 + d] - span) / args[2 + d] + 1);
                    }
                }
                an_error_clear(cx);
                an_reset(cx);
            }
    assert_true(refused > 80 && taken > 20);
}

static void padding_may_be_longer_than_what_it_pads(void **state)
{
    (void)state;
    static const double x[] = {1, 2}, y[] = {9, 9, 9, 9, 9, 1, 2, 9, 9, 9, 9}, w[] = {0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0},
                        d[] = {3, 4};
    EACH_WAY(cx)
    {
        an_tensor *a = input(cx, AN_F32, AN_SHAPE(2), x);
        expect(cx, "pad", an_pad_at(AT, a, 0, 5, 4, 9), a, y, w, d, 0);
    }
}

static void a_wide_matrix_has_no_qr_but_a_sentence(void **state)
{
    (void)state;
    const double x[6] = {1};
    EACH_WAY(cx)
    {
        expect_refusal(cx, an_qr_at(AT, input(cx, AN_F32, AN_SHAPE(2, 3), x), NULL), AN_E_SHAPE, "transpose");
        expect_refusal(cx, an_svd_at(AT, input(cx, AN_F32, AN_SHAPE(2, 3), x), NULL, NULL), AN_E_SHAPE, "transpose");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clamp_has_its_gradient_at_the_bounds_and_none_outside),
        cmocka_unit_test(functions_have_their_limits_and_slopes),
        cmocka_unit_test(sines_of_huge_numbers_are_right),
        cmocka_unit_test(powers_have_their_corners),
        cmocka_unit_test(angles_have_every_quadrant_and_no_slope_at_the_origin),
        cmocka_unit_test(integers_wrap_and_divide_by_zero_to_zero),
        cmocka_unit_test(casts_truncate_and_saturate),
        cmocka_unit_test(equal_elements_share_the_gradient),
        cmocka_unit_test(equal_elements_share_across_the_parts_of_a_reduction),
        cmocka_unit_test(sorted_ties_keep_their_order_and_their_gradients),
        cmocka_unit_test(running_sums_go_through_infinities),
        cmocka_unit_test(reductions_of_nothing_are_their_neutral_element_or_a_sentence),
        cmocka_unit_test(rows_of_equal_numbers_are_normalized_to_zero),
        cmocka_unit_test(variances_have_their_slopes_at_infinities),
        cmocka_unit_test(log_sums_and_losses_have_their_corners),
        cmocka_unit_test(ids_out_of_range_are_refused_or_clamped),
        cmocka_unit_test(products_and_scattered_sums_of_integers_wrap),
        cmocka_unit_test(a_bias_in_16_bits_is_added_before_the_rounding),
        cmocka_unit_test(attention_in_two_precisions_is_plain_loops_and_its_slopes_are_differences),
        cmocka_unit_test(windows_are_plain_loops_for_any_stride_padding_and_dilation),
        cmocka_unit_test(window_arguments_at_the_ends_of_int_are_refused_or_exact),
        cmocka_unit_test(padding_may_be_longer_than_what_it_pads),
        cmocka_unit_test(a_wide_matrix_has_no_qr_but_a_sentence),
    };
    for (int w = 0; w < WAYS; w++) {
        ways[w] = an_open(&(an_options){.device = "cpu",
                                        .seed = 1,
                                        .cc = w == 1 ? NULL : "none",
                                        .unfused = w == 2,
                                        .threads = 1 + w % 2,
                                        .verify = true});
        assert_non_null(ways[w]);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int w = 0; w < WAYS; w++) an_close(ways[w]);
    return failed;
}
