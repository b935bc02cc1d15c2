/* test_scaler.c: float16's loss scale against the rule of torch.amp.GradScaler written by hand: overflows, growth,
 * micro-batches, updates that are not wanted. */
#include <anneal.h>

#include "lib/test.h"

#include <math.h>
#include <string.h>

enum { N = 4 };

static an_ctx *open_cpu(void)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static double get(an_ctx *cx, const char *name, an_dtype dtype)
{
    float f = 0;
    int32_t i = 0;
    const int at = an_persist_find(cx, name);
    if (at < 0) fail_msg("nothing is named %s", name);
    assert_int_equal(an_persist_read(cx, at, dtype == AN_I32 ? (void *)&i : (void *)&f, 4), AN_OK);
    return dtype == AN_I32 ? (double)i : (double)f;
}

static void set(an_ctx *cx, const char *name, an_dtype dtype, double x)
{
    const float f = (float)x;
    const int32_t i = (int32_t)x;
    const int at = an_persist_find(cx, name);
    if (at < 0) fail_msg("nothing is named %s", name);
    assert_int_equal(an_persist_write(cx, at, dtype == AN_I32 ? (const void *)&i : (const void *)&f, 4), AN_OK);
}

/* loss = sum(w x), elementwise in float16: the gradient is x times the scale, rounded to float16. (64 x and 1/64, so
 * that the scale alone is no infinity in float16.) Where x is zero, in f32. */
static an_tensor *half_loss(an_ctx *cx, const float *x)
{
    const bool zero = x[0] == 0 && x[1] == 0;
    const an_dtype type = zero ? AN_F32 : AN_F16;
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(N, 1), AN_ONES);                                  /* [N,1] */
    an_tensor *row = an_cast(an_mul_num(an_input(cx, AN_F32, AN_SHAPE(N, 1), x), zero ? 1 : 64), type); /* [N,1] */
    an_tensor *sum = an_sum(an_cast(an_mul(an_cast(w, type), row), AN_F32), AN_ALL);
    return zero ? sum : an_mul_num(sum, 1.0 / 64);
}

static const an_adamw_options options = {
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1, .scaled = true};

static double update(an_ctx *cx, const float *x, bool only_if)
{
    an_backward(an_scale_loss(half_loss(cx, x)));
    an_adamw_options o = options;
    if (!only_if) o.only_if = an_lt(an_scalar(cx, 1), an_scalar(cx, 0));
    an_tensor *norm = an_adamw(cx, o);
    if (an_eval(norm) != AN_OK) fail_msg("%s", an_error(cx));
    const double n = an_item(norm);
    an_reset(cx);
    return n;
}

/* In double: what the device holds in f32. */
typedef struct model {
    double w[N], m[N], v[N], scale;
    int good, skipped, applied;
} model;

static double model_update(model *s, const float *x)
{
    double g[N], sum = 0;
    bool finite = true;
    for (int i = 0; i < N; i++) {
        const double half = (double)x[i] * s->scale; /* powers of two and short numbers: float16 keeps them, or not */
        finite &= fabs(half) < 65520;
        g[i] = x[i];
        sum += g[i] * g[i];
    }
    if (!finite) {
        s->scale /= 2;
        s->good = 0;
        s->skipped++;
        return INFINITY;
    }
    const double factor = fmin(1, 1 / (sqrt(sum) + 1e-6));
    s->applied++;
    for (int i = 0; i < N; i++) {
        s->m[i] = 0.9 * s->m[i] + 0.1 * g[i] * factor;
        s->v[i] = 0.95 * s->v[i] + 0.05 * g[i] * g[i] * factor * factor;
        const double mean = s->m[i] / (1 - pow(0.9, s->applied)), square = s->v[i] / (1 - pow(0.95, s->applied));
        s->w[i] = s->w[i] * (1 - 0.01 * 0.1) - 0.01 * mean / (sqrt(square) + 1e-8);
    }
    if (++s->good == 2000) s->scale *= 2, s->good = 0;
    return sqrt(sum);
}

static void same(an_ctx *cx, const model *s, int step)
{
    float w[N];
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), w, sizeof w), AN_OK);
    for (int i = 0; i < N; i++)
        if (!(fabs((double)w[i] - s->w[i]) <= 2e-6))
            fail_msg("update %d: w[%d] is %.9g, not %.9g", step, i, (double)w[i], s->w[i]);
    assert_true(get(cx, "optimizer.scale", AN_F32) == s->scale);
    assert_int_equal((int)get(cx, "optimizer.good_updates", AN_I32), s->good);
    assert_int_equal((int)get(cx, "optimizer.skipped_updates", AN_I32), s->skipped);
}

/* The first gradients are too large for the first scales; one in the middle is again; then the scale grows. */
static void updates_are_those_of_the_rule_with_overflows_and_growth(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    model s = {.scale = 65536};
    for (int i = 0; i < N; i++) s.w[i] = 1;
    for (int step = 0; step < 14; step++) {
        const float large = step == 8 ? 64 : 4;
        const float x[N] = {large, -0.5f, 0.25f * (float)step, 0.125f};
        if (step == 11) { /* as if 1998 updates had gone well since */
            set(cx, "optimizer.good_updates", AN_I32, 1998);
            s.good = 1998;
        }
        const double norm = update(cx, x, true), expected = model_update(&s, x);
        if (isfinite(expected) ? fabs(norm - expected) > 1e-5 * expected : isfinite(norm))
            fail_msg("update %d: the norm is %g, not %g", step, norm, expected);
        same(cx, &s, step);
    }
    assert_true(s.skipped == 4 && s.applied == 10 && s.scale == 8192);
    an_close(cx);
}

static void a_scale_that_cannot_be_doubled_stays(void **state)
{
    (void)state;
    const float x[N] = {0};
    an_ctx *cx = open_cpu();
    update(cx, x, true);
    set(cx, "optimizer.scale", AN_F32, 0x1p127);
    set(cx, "optimizer.good_updates", AN_I32, 1999);
    update(cx, x, true);
    assert_true(get(cx, "optimizer.scale", AN_F32) == 0x1p127);
    assert_int_equal((int)get(cx, "optimizer.good_updates", AN_I32), 0);
    an_close(cx);
}

static void an_update_that_is_not_wanted_changes_nothing(void **state)
{
    (void)state;
    const float good[N] = {0.5f, 0.25f, 0, 0.125f}, bad[N] = {900, 1, 1, 1};
    an_ctx *cx = open_cpu();
    update(cx, good, true);
    float before[N], after[N];
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), before, sizeof before), AN_OK);
    const double mass = get(cx, "optimizer.mass1", AN_F32);
    update(cx, good, false);
    update(cx, bad, false);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), after, sizeof after), AN_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_true(get(cx, "optimizer.scale", AN_F32) == 65536 && get(cx, "optimizer.mass1", AN_F32) == mass);
    assert_int_equal((int)get(cx, "optimizer.good_updates", AN_I32), 1);
    assert_int_equal((int)get(cx, "optimizer.skipped_updates", AN_I32), 0);
    an_close(cx);
}

/* Two micro-batches see one scale, and what comes out is their sum, unscaled once; one that overflows takes both. */
static void micro_batches_share_a_scale_and_are_unscaled_once(void **state)
{
    (void)state;
    static const float x[3][2][N] = {{{0.5f, 0.25f, 0, 0.125f}, {0.25f, -0.5f, 0.5f, 0}},
                                     {{0.5f, 0.5f, 0.5f, 0.5f}, {900, 1, 1, 1}},
                                     {{0.25f, 0, 0.25f, 0}, {0.125f, 0.125f, 0, 0}}};
    an_ctx *cx = open_cpu();
    model s = {.scale = 65536};
    for (int i = 0; i < N; i++) s.w[i] = 1;
    for (int step = 0; step < 3; step++) {
        float both[N];
        for (int i = 0; i < N; i++) both[i] = x[step][0][i] + x[step][1][i];
        an_backward(an_scale_loss(half_loss(cx, x[step][0])));
        assert_int_equal(an_eval_effects(cx), AN_OK);
        an_reset(cx);
        update(cx, x[step][1], true);
        model_update(&s, both);
        same(cx, &s, step);
    }
    assert_int_equal(s.skipped, 1);
    an_close(cx);
}

/* The buffer of PyTorch's SGD begins as the first gradient it is given, undampened: not as that of an update that was skipped. */
static void the_first_update_that_is_applied_is_not_dampened(void **state)
{
    (void)state;
    const float x[N] = {16, -0.5f, 0.25f, 0.125f}; /* too large for the first scales */
    double w[N] = {1, 1, 1, 1}, b[N] = {0};
    float got[N];
    int applied = 0;
    an_ctx *cx = open_cpu();
    for (int step = 0; step < 9; step++) {
        an_backward(an_scale_loss(half_loss(cx, x)));
        an_tensor *norm = an_sgd_with(
            cx, ((an_sgd_options){.lr = 0.01, .momentum = 0.5, .dampening = 0.75, .t = step + 1, .scaled = true}));
        if (an_eval(norm) != AN_OK) fail_msg("%s", an_error(cx));
        const bool good = isfinite(an_item(norm));
        an_reset(cx);
        for (int i = 0; good && i < N; i++) {
            b[i] = applied ? 0.5 * b[i] + 0.25 * (double)x[i] : (double)x[i];
            w[i] -= 0.01 * b[i];
        }
        applied += good;
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), got, sizeof got), AN_OK);
        for (int i = 0; i < N; i++)
            if (!(fabs((double)got[i] - w[i]) <= 2e-6))
                fail_msg("update %d: w[%d] is %.9g, not %.9g", step, i, (double)got[i], w[i]);
    }
    assert_true(applied > 2 && applied < 7);
    an_close(cx);
}

/* A float16 parameter's gradient of 2^-20 is a subnormal number of float16, times 2^10 it is none; divided again in float16 it
 * would be what it was without a scale. */
static void gradients_of_16_bit_parameters_are_unscaled_in_float32(void **state)
{
    (void)state;
    const float x[1] = {(1 + 0x1p-9f) * 0x1p-20f};
    an_ctx *cx = open_cpu();
    for (int step = 0; step < 2; step++) {
        if (step) set(cx, "optimizer.scale", AN_F32, 1024);
        an_tensor *w = an_cast(an_param(cx, "w", AN_F16, AN_SHAPE(1), AN_ZEROS), AN_F32);
        an_backward(an_scale_loss(an_sum(an_mul(w, an_input(cx, AN_F32, AN_SHAPE(1), x)), AN_ALL)));
        an_tensor *norm = an_sgd_with(cx, ((an_sgd_options){.lr = 0, .scaled = true}));
        if (an_eval(norm) != AN_OK) fail_msg("%s", an_error(cx));
        assert_true(step == 0 || an_item(norm) == (double)x[0]);
        an_reset(cx);
    }
    an_close(cx);
}

static void a_loss_in_float64_is_scaled_too(void **state)
{
    (void)state;
    const double x[2] = {3, 4};
    an_ctx *cx = open_cpu();
    an_tensor *w = an_param(cx, "w", AN_F64, AN_SHAPE(2), AN_ZEROS);
    an_backward(an_scale_loss(an_sum(an_mul(w, an_input(cx, AN_F64, AN_SHAPE(2), x)), AN_ALL)));
    an_tensor *norm = an_sgd_with(cx, ((an_sgd_options){.lr = 1, .scaled = true}));
    if (an_eval(norm) != AN_OK) fail_msg("%s", an_error(cx));
    assert_true(an_item(norm) == 5);
    an_close(cx);
}

/* A negative norm would turn the step round, and NaN was taken for "do not clip". */
static void a_norm_to_clip_at_is_a_number_not_below_zero(void **state)
{
    (void)state;
    static const double wrong[] = {-1, -INFINITY, NAN}, right[] = {0, 1, INFINITY};
    const float x[N] = {1};
    for (int which = 0; which < 12; which++) {
        const double clip = which % 2 ? right[which / 4] : wrong[which / 4];
        an_ctx *cx = open_cpu();
        an_backward(half_loss(cx, x));
        an_tensor *norm = which / 2 % 2 ? an_sgd_with(cx, ((an_sgd_options){.lr = 1, .clip = clip}))
                                        : an_adamw(cx, ((an_adamw_options){.lr = 1, .clip = clip}));
        assert_int_equal(an_eval(norm), which % 2 ? AN_OK : AN_E_USAGE);
        if (which % 2 == 0) assert_non_null(strstr(an_error(cx), "clip is"));
        an_close(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_those_of_the_rule_with_overflows_and_growth),
        cmocka_unit_test(a_scale_that_cannot_be_doubled_stays),
        cmocka_unit_test(an_update_that_is_not_wanted_changes_nothing),
        cmocka_unit_test(micro_batches_share_a_scale_and_are_unscaled_once),
        cmocka_unit_test(the_first_update_that_is_applied_is_not_dampened),
        cmocka_unit_test(gradients_of_16_bit_parameters_are_unscaled_in_float32),
        cmocka_unit_test(a_loss_in_float64_is_scaled_too),
        cmocka_unit_test(a_norm_to_clip_at_is_a_number_not_below_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
