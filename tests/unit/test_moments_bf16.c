/* test_moments_bf16.c: rounding to bfloat16 at random, and AdamW with moments that are kept so. */
#include <anneal.h>
#include <anneal_tools.h>

#include "lib/test.h"

#include <math.h>
#include <string.h>

enum { N = 20000, DRAWS = 1 << 16 };

static an_ctx *open_cpu(an_options o)
{
    o.device = "cpu";
    if (!o.cc) o.cc = "none";
    an_ctx *cx = an_open(&o);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

/* Every u in steps of 2^-16: x is between its neighbours, and goes to the farther one as often as its distance says. */
static void rounding_keeps_the_mean(void **state)
{
    (void)state;
    static const float number[] = {1, 1.001f, -1.005f, 3.14159f, -1e-30f, 7e29f, 0.00390624f};
    static float u[DRAWS], x[DRAWS], y[DRAWS];
    for (int i = 0; i < DRAWS; i++) u[i] = (float)i / DRAWS;
    for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
        an_ctx *cx = open_cpu((an_options){.threads = 1});
        for (int i = 0; i < DRAWS; i++) x[i] = number[k];
        an_tensor *a = an_input(cx, AN_F32, AN_SHAPE(DRAWS), x);
        an_tensor *r = an_round_bf16(a, an_input(cx, AN_F32, AN_SHAPE(DRAWS), u));
        if (an_eval(r) != AN_OK || an_read(r, y, sizeof y) != AN_OK) fail_msg("%s", an_error(cx));
        double mean = 0;
        for (int i = 0; i < DRAWS; i++) {
            uint32_t bits;
            memcpy(&bits, &y[i], sizeof bits);
            assert_int_equal(bits & 0xffff, 0);
            assert_true(fabs((double)y[i] - (double)number[k]) < fabs((double)number[k]) / 128);
            mean += (double)y[i] / DRAWS;
        }
        if (!(fabs(mean - (double)number[k]) <= 1e-9 * fabs((double)number[k])))
            fail_msg("%.9g is %.12g in the mean", (double)number[k], mean);
        an_close(cx);
    }
}

typedef struct trained {
    float w[N];
    uint16_t m[N], v[N];
} trained;

/* `updates` updates of w [N,1] by gradients of 1 or, in every fourth element, 0.01; `resume`: from what `out` holds. */
static void train(trained *out, an_options o, int first, int updates, bool resume)
{
    static float g[N];
    for (int i = 0; i < N; i++) g[i] = i % 4 ? 1 : 0.01f;
    an_ctx *cx = open_cpu(o);
    for (int u = first; u < first + updates; u++) {
        an_set_step(cx, (uint64_t)u);
        an_tensor *p = an_param(cx, "w", AN_F32, AN_SHAPE(N, 1), AN_ONES); /* [N,1] */
        an_backward(an_sum(an_mul(p, an_input(cx, AN_F32, AN_SHAPE(N, 1), g)), AN_ALL));
        an_tensor *norm = an_adamw(cx, ((an_adamw_options){.lr = 1e-4, .t = u + 1, .moments = AN_BF16}));
        if (u == first && resume) {
            assert_int_equal(an_plan(norm), AN_OK);
            assert_int_equal(an_persist_write(cx, an_persist_find(cx, "w"), out->w, sizeof out->w), AN_OK);
            assert_int_equal(an_persist_write(cx, an_persist_find(cx, "optimizer.m.w"), out->m, sizeof out->m), AN_OK);
            assert_int_equal(an_persist_write(cx, an_persist_find(cx, "optimizer.v.w"), out->v, sizeof out->v), AN_OK);
        }
        if (an_eval(norm) != AN_OK) fail_msg("%s", an_error(cx));
        an_reset(cx);
    }
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), out->w, sizeof out->w), AN_OK);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "optimizer.m.w"), out->m, sizeof out->m), AN_OK);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "optimizer.v.w"), out->v, sizeof out->v), AN_OK);
    an_close(cx);
}

static double bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return (double)x;
}

/* v' = v + (1 - beta2)(g^2 - v) adds a thousandth of g^2: rounding to the nearest stops at 0.25, where half of bfloat16's spacing is
 * as much. The mean over many elements is that of float32. */
static void second_moments_go_on_growing(void **state)
{
    (void)state;
    static trained t;
    enum { UPDATES = 1000 };
    train(&t, (an_options){.threads = 2}, 0, UPDATES, false);
    double mean[2] = {0, 0}, most = 0, least = 2;
    for (int i = 0; i < N; i++) {
        mean[i % 4 != 0] += bf16(t.v[i]) / (i % 4 ? N - N / 4 : N / 4);
        if (i % 4) most = fmax(most, bf16(t.v[i])), least = fmin(least, bf16(t.v[i]));
    }
    const double want = 1 - pow(0.999, UPDATES); /* 0.632 */
    if (!(fabs(mean[1] - want) < 0.002 * want)) fail_msg("v is %g in the mean, not %g", mean[1], want);
    if (!(fabs(mean[0] - want * 1e-4) < 0.002 * want * 1e-4))
        fail_msg("v is %g in the mean, not %g", mean[0], want * 1e-4);
    assert_true(least < want && want < most); /* elements are rounded apart */
}

static void bits_do_not_depend_on_threads_or_fusion_and_go_on_from_a_checkpoint(void **state)
{
    (void)state;
    static trained one, other;
    train(&one, (an_options){.threads = 1}, 0, 8, false);
    train(&other, (an_options){.threads = 3, .unfused = true}, 0, 8, false);
    assert_memory_equal(&one, &other, sizeof one);
    train(&other, (an_options){.threads = 2}, 0, 5, false);
    assert_memory_not_equal(&one, &other, sizeof one);
    train(&other, (an_options){.threads = 2}, 5, 3, true);
    assert_memory_equal(&one, &other, sizeof one);
}

static an_tensor *step(an_ctx *cx, an_dtype params, an_dtype moments)
{
    an_tensor *p = an_param(cx, "w", params, AN_SHAPE(N, 1), AN_ONES); /* [N,1] */
    an_backward(an_sum(an_cast(p, AN_F32), AN_ALL));
    return an_adamw(cx, ((an_adamw_options){.lr = 1e-4, .moments = moments}));
}

static void they_take_half_the_memory_and_are_persistent_as_bf16(void **state)
{
    (void)state;
    int64_t bytes[2];
    for (int narrow = 0; narrow < 2; narrow++) {
        an_ctx *cx = open_cpu((an_options){.threads = 1});
        if (an_plan(step(cx, AN_F32, narrow ? AN_BF16 : AN_F32)) != AN_OK) fail_msg("%s", an_error(cx));
        an_bill bill;
        an_persist p;
        assert_int_equal(an_report(cx, &bill), AN_OK);
        bytes[narrow] = (int64_t)bill.moment_bytes;
        assert_int_equal(an_persist_get(cx, an_persist_find(cx, "optimizer.v.w"), &p), AN_OK);
        assert_int_equal(p.dtype, narrow ? AN_BF16 : AN_F32);
        an_close(cx);
    }
    assert_int_equal(bytes[0], 2 * bytes[1]);
}

static void what_cannot_be_is_a_sentence(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu((an_options){.threads = 1});
    assert_int_equal(an_eval(step(cx, AN_F32, AN_F16)), AN_E_DTYPE);
    assert_non_null(strstr(an_error(cx), "float32 or bfloat16, not in float16"));
    an_close(cx);
    cx = open_cpu((an_options){.threads = 1});
    assert_int_equal(an_eval(step(cx, AN_F32, AN_F32)), AN_OK);
    an_reset(cx);
    assert_int_equal(an_eval(step(cx, AN_F32, AN_BF16)), AN_E_USAGE);
    assert_non_null(strstr(an_error(cx), "kept in float32 since the first update"));
    an_close(cx);
    cx = open_cpu((an_options){.threads = 1}); /* parameters of another dtype keep their own */
    if (an_eval(step(cx, AN_F64, AN_BF16)) != AN_OK) fail_msg("%s", an_error(cx));
    an_persist p;
    assert_int_equal(an_persist_get(cx, an_persist_find(cx, "optimizer.m.w"), &p), AN_OK);
    assert_int_equal(p.dtype, AN_F64);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_keeps_the_mean),
        cmocka_unit_test(second_moments_go_on_growing),
        cmocka_unit_test(bits_do_not_depend_on_threads_or_fusion_and_go_on_from_a_checkpoint),
        cmocka_unit_test(they_take_half_the_memory_and_are_persistent_as_bf16),
        cmocka_unit_test(what_cannot_be_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
