/* test_pool.c: the gradient of max pooling in float32, which runs on vectors, against float64's, which takes one channel at a time:
 * the same bits, on the instruction set found and on the portable one, for windows drawn at random, apart or overlapping, padded, dilated, over numbers with ties, NaN, infinities and -0. */
#include <anneal.h>

#include "lib/test.h"
#include <math.h>
#include <string.h>

enum { CASES = 200, MOST = 2 * 9 * 9 * 40 };

typedef struct draw {
    uint32_t at;
} draw;

static int below(draw *d, int n)
{
    d->at = d->at * 1664525u + 1013904223u;
    return (int)((d->at >> 8) % (uint32_t)n);
}

static float special(draw *d)
{
    const int kind = below(d, 12);
    return kind == 0 ? NAN : kind == 1 ? -0.0f : kind == 2 ? INFINITY : 0.37f * (float)(below(d, 5) - 2);
}

/* The gradient of x [N,H,W,C] for gradients drawn with `seed`, as float32. */
static void gradient(const char *isa, an_dtype dtype, an_shape shape, an_window s, const float *x, uint32_t seed,
                     float *out)
{
    static double wide[MOST], result[MOST];
    static float narrow[MOST];
    draw d = {seed};
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = 1, .cc = "none", .isa = isa});
    assert_non_null(cx);
    const int64_t n = shape.dim[0] * shape.dim[1] * shape.dim[2] * shape.dim[3];
    for (int64_t i = 0; i < n; i++) wide[i] = x[i];
    an_tensor *p = an_param(cx, "p", dtype, shape, AN_ZEROS);
    an_tensor *y =
        an_max_pool_at(AN_AT, an_add(p, an_input(cx, dtype, shape, dtype == AN_F64 ? (void *)wide : (void *)x)), s);
    const an_shape of = an_shape_of(y);
    const int64_t m = of.dim[0] * of.dim[1] * of.dim[2] * of.dim[3];
    static double wide_dy[4 * MOST];
    assert_true(m <= 4 * MOST);
    for (int64_t i = 0; i < m; i++) {
        const float g = below(&d, 9) == 0 ? -0.0f : 0.37f * (float)(below(&d, 7) - 3);
        if (dtype == AN_F64)
            wide_dy[i] = g;
        else
            ((float *)wide_dy)[i] = g;
    }
    an_backward(an_sum(an_mul(y, an_input(cx, dtype, of, wide_dy)), AN_ALL));
    an_tensor *dx = an_grad(p);
    if (!dx || an_eval(dx) != AN_OK) fail_msg("%s", an_error(cx));
    if (dtype == AN_F64) {
        assert_int_equal(an_read(dx, result, sizeof *result * (size_t)n), AN_OK);
        for (int64_t i = 0; i < n; i++) out[i] = (float)result[i];
    } else {
        assert_int_equal(an_read(dx, narrow, sizeof *narrow * (size_t)n), AN_OK);
        memcpy(out, narrow, sizeof *narrow * (size_t)n);
    }
    an_close(cx);
}

static void max_poolings_gradient_on_vectors_has_the_bits_of_a_channel_at_a_time(void **state)
{
    static float x[MOST], fast[MOST], slow[MOST];
    draw d = {7};
    int compared = 0;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const an_shape shape = AN_SHAPE(1 + below(&d, 2), 1 + below(&d, 9), 1 + below(&d, 9), 1 + below(&d, 40));
        an_window s = {.kernel_h = 1 + below(&d, 3),
                       .kernel_w = 1 + below(&d, 3),
                       .stride_h = 1 + below(&d, 4),
                       .stride_w = 1 + below(&d, 4),
                       .dilation_h = 1 + below(&d, 2),
                       .dilation_w = 1 + below(&d, 2)};
        if (below(&d, 2) && s.kernel_h > 1 && s.kernel_w > 1) s.pad_h = s.pad_w = 1;
        if (shape.dim[1] + 2 * s.pad_h < (s.kernel_h - 1) * s.dilation_h + 1) continue;
        if (shape.dim[2] + 2 * s.pad_w < (s.kernel_w - 1) * s.dilation_w + 1) continue;
        const int64_t n = shape.dim[0] * shape.dim[1] * shape.dim[2] * shape.dim[3];
        for (int64_t k = 0; k < n; k++) x[k] = special(&d);
        gradient(i % 2 ? "portable" : NULL, AN_F32, shape, s, x, (uint32_t)i, fast);
        gradient(NULL, AN_F64, shape, s, x, (uint32_t)i, slow);
        if (memcmp(fast, slow, sizeof *x * (size_t)n) != 0)
            fail_msg("[%d,%d,%d,%d], windows of %d x %d, stride %d, %d, padding %d, dilation %d, %d", (int)shape.dim[0],
                     (int)shape.dim[1], (int)shape.dim[2], (int)shape.dim[3], s.kernel_h, s.kernel_w, s.stride_h,
                     s.stride_w, s.pad_h, s.dilation_h, s.dilation_w);
        compared++;
    }
    assert_true(compared > CASES / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_poolings_gradient_on_vectors_has_the_bits_of_a_channel_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
