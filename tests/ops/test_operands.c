/* test_operands.c: one tensor in the place of several operands. f(x, x) must be f(a, b) for equal a and b, and the gradient
 * of x the sum of those of a and b: rules that simplify equal operands, share buffers or update in place must not lose one.
 *
 * Owns:      random shapes (axes of length 0 and 1 among them), ordinary and special numbers, fused and unfused, f32 and f64.
 * Does not:  say what a function's values are: test_ops and test_corners do. */
#include "ops/lab.h"

#include <math.h>

enum { DRAWS = 60, MOST = 4096, KINDS = 16 };

typedef struct drawn {
    lab random;
    an_dtype dtype;
    bool special; /* NaN, infinities, zeros of both signs among the numbers */
    an_shape shape;
    double value[MOST], weight[MOST]; /* of the operand; of the loss */
} drawn;

static unsigned draw(drawn *d, unsigned n)
{
    return (unsigned)(lab_word(&d->random) >> 33) % n;
}

static const char *const names[KINDS] = {"add",       "sub",    "mul",    "div",     "pow",      "maximum",
                                         "minimum",   "atan2",  "where",  "matmul",  "matmul^T", "linear",
                                         "attention", "conv2d", "concat", "put_rows"};

static bool is_elementwise(int kind)
{
    return kind <= 8;
}

/* x and y of the shape that choose_shape gave; one of three where there are three. */
static an_tensor *apply(an_ctx *cx, int kind, an_tensor *x, an_tensor *y, an_tensor *z)
{
    const an_shape s = an_shape_of(x);
    int32_t back[16];
    switch (kind) {
    case 0: return an_add_at(AT, x, y);
    case 1: return an_sub_at(AT, x, y);
    case 2: return an_mul_at(AT, x, y);
    case 3: return an_div_at(AT, x, y);
    case 4: return an_pow_at(AT, x, y);
    case 5: return an_maximum_at(AT, x, y);
    case 6: return an_minimum_at(AT, x, y);
    case 7: return an_atan2_at(AT, x, y);
    case 8: return an_where_at(AT, an_gt_at(AT, x, an_const_at(AT, cx, an_dtype_of(x), 0.25)), y, z);
    case 9: return an_matmul_at(AT, x, y);
    case 10: return an_matmul_at(AT, x, an_transpose_at(AT, y, -2, -1));
    case 11: return an_linear_at(AT, x, y, NULL);
    case 12: return an_attention_at(AT, x, y, z, 0, true, 0, NULL);
    case 13: return an_conv2d_at(AT, x, y, NULL, (an_window){.pad_h = 1, .pad_w = 1});
    case 14: return an_concat_at(AT, (an_tensor *[]){x, y, z}, 3, 0);
    default:
        for (int i = 0; i < s.dim[0]; i++) back[i] = (int32_t)s.dim[0] - 1 - i;
        return an_put_rows_at(AT, x, an_input_at(AT, cx, AN_I32, AN_SHAPE(s.dim[0]), back), y);
    }
}

static void choose_shape(drawn *d, int kind)
{
    static const int64_t lengths[] = {0, 1, 2, 3, 5, 8, 13};
    const int64_t n = lengths[draw(d, 7)], m = lengths[1 + draw(d, 5)];
    d->shape = AN_SHAPE(n, m);
    if (is_elementwise(kind) && draw(d, 3) == 0) d->shape = AN_SHAPE(m, n, 1 + draw(d, 4));
    if (kind == 9) d->shape = draw(d, 2) ? AN_SHAPE(n, n) : AN_SHAPE(m, n, n);
    if (kind == 12) d->shape = AN_SHAPE(1 + draw(d, 2), 1 + draw(d, 3), m, 1 + draw(d, 9));
    if (kind == 13) d->shape = AN_SHAPE(1 + draw(d, 3), 1 + draw(d, 3), 1 + draw(d, 3), 1 + draw(d, 5));
}

static void fill(drawn *d)
{
    static const double corners[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1, -1, 1e-30};
    const int64_t n = lab_numel(d->shape);
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++) {
        d->value[i] = ((double)draw(d, 4001) - 2000) / 1000;
        if (d->special && draw(d, 4) == 0) d->value[i] = corners[draw(d, 8)];
    }
    for (int i = 0; i < MOST; i++) d->weight[i] = ((double)draw(d, 2001) - 1000) / 500;
}

static an_tensor *operand(an_ctx *cx, const drawn *d, const double *value, an_shape s)
{
    static float single[MOST];
    const int64_t n = lab_numel(s);
    if (d->dtype == AN_F64) return an_input_at(AT, cx, AN_F64, s, value);
    for (int64_t i = 0; i < n; i++) single[i] = (float)value[i];
    return an_input_at(AT, cx, AN_F32, s, single);
}

static int64_t take(an_tensor *t, double *out)
{
    static char raw[MOST * sizeof(double)];
    const int64_t n = lab_numel(an_shape_of(t));
    assert_true(n <= MOST);
    if (n > 0) assert_int_equal(an_read_at(AT, t, raw, (size_t)n * an_dtype_size(an_dtype_of(t))), AN_OK);
    for (int64_t i = 0; i < n; i++)
        out[i] = an_dtype_of(t) == AN_F64 ? ((const double *)(void *)raw)[i] : (double)((const float *)(void *)raw)[i];
    return n;
}

/* The value of f and the gradient of its operands, their sum where they are `apart`. Returns the elements of f. */
static int64_t run(an_ctx *cx, const drawn *d, int kind, bool apart, double *f, double *g)
{
    static double part[MOST];
    an_tensor *x[3], *root[5];
    int n = 0;
    x[0] = operand(cx, d, d->value, d->shape);
    for (int i = 1; i < 3; i++) x[i] = apart ? operand(cx, d, d->value, d->shape) : x[0];
    an_tensor *y = apply(cx, kind, x[0], x[1], x[2]);
    if (an_error(cx)) fail_msg("%s: %s", names[kind], an_error(cx));
    root[n++] = y;
    root[n++] = an_sum_at(AT, an_mul_at(AT, y, operand(cx, d, d->weight, an_shape_of(y))), AN_ALL, false);
    an_backward_at(AT, root[1]);
    for (int i = 0; i < (apart ? 3 : 1); i++)
        if (an_grad(x[i])) root[n++] = an_grad(x[i]);
    if (an_eval_at(AT, root, n) != AN_OK) fail_msg("%s: %s", names[kind], an_error(cx));
    const int64_t elements = take(y, f), inputs = lab_numel(d->shape);
    for (int64_t i = 0; i < inputs; i++) g[i] = 0;
    for (int k = 2; k < n; k++) {
        if (take(root[k], part) != inputs) fail_msg("%s: the gradient has another shape than its operand", names[kind]);
        for (int64_t i = 0; i < inputs; i++) g[i] += part[i];
    }
    an_reset(cx);
    return elements;
}

static void same(const drawn *d, int kind, const char *what, const double *got, const double *want, int64_t n)
{
    const double eps = d->dtype == AN_F64 ? 1e-12 : 2e-5;
    double scale = 1;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(want[i])) scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        if (isnan(got[i]) && isnan(want[i])) continue;
        /* maximum(x, x) is x to the engine: a NaN gets the gradient once, where two operands that are NaN get it each */
        if ((kind == 5 || kind == 6) && isnan(d->value[i]) && 2 * got[i] == want[i]) continue;
        if (got[i] == want[i] || fabs(got[i] - want[i]) <= eps * scale) continue;
        fail_msg("%s of %s in %s%s, axes %lld %lld: element %lld (%g) is %.17g, of operands apart %.17g", what,
                 names[kind], d->dtype == AN_F64 ? "f64" : "f32", d->special ? " with special numbers" : "",
                 (long long)d->shape.dim[0], (long long)d->shape.dim[1], (long long)i, d->value[i], got[i], want[i]);
    }
}

static void one_tensor_as_several_operands_is_several_equal_ones(void **state)
{
    (void)state;
    static double f[2][MOST], g[2][MOST];
    static drawn d;
    const long draws = getenv("AN_SOAK") ? 40L * DRAWS : DRAWS;
    for (int unfused = 0; unfused < 2; unfused++) {
        an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1, .unfused = unfused != 0});
        d = (drawn){.random = {.random = 20261123}};
        for (long i = 0; i < draws; i++)
            for (int kind = 0; kind < KINDS; kind++) {
                d.dtype = draw(&d, 2) ? AN_F64 : AN_F32;
                d.special = (is_elementwise(kind) || kind >= 14) && draw(&d, 2);
                choose_shape(&d, kind);
                fill(&d);
                const int64_t n = run(cx, &d, kind, true, f[1], g[1]);
                assert_true(run(cx, &d, kind, false, f[0], g[0]) == n);
                same(&d, kind, "value", f[0], f[1], n);
                same(&d, kind, "gradient", g[0], g[1], lab_numel(d.shape));
            }
        an_close(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tensor_as_several_operands_is_several_equal_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
