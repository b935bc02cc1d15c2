/* test_adam_atan2.c: Adam-atan2 against its formula in double, and what sets it apart from AdamW: steps that do not
 * depend on the size of a gradient, no eps, the same bits for a loss scaled by a power of two. */
#include <anneal.h>

#include "lib/test.h"

#include <math.h>
#include <string.h>

enum { N = 5, UPDATES = 6 };

static const double rate = 0.01, beta1 = 0.9, beta2 = 0.95, decay = 0.1;

/* The gradient of element i in an update: of all sizes; element 2 has none, element 3 is tiny, element 4 huge. */
static float gradient(int update, int i)
{
    static const float size[N] = {1, -0.3f, 0, 1e-12f, 3e10f};
    return size[i] * (1 + 0.25f * (float)((update * 7 + i * 3) % 5 - 2));
}

/* loss = scale * sum(w g): its gradient is scale * g. Matrices decay, so w is [N,1]. */
static void train(float *w, float scale, int updates, int bad_update)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    for (int u = 0; u < updates; u++) {
        float g[N];
        for (int i = 0; i < N; i++) g[i] = scale * gradient(u, i);
        if (u == bad_update) g[1] = NAN;
        an_tensor *p = an_param(cx, "w", AN_F32, AN_SHAPE(N, 1), AN_ONES); /* [N,1] */
        an_backward(an_sum(an_mul(p, an_input(cx, AN_F32, AN_SHAPE(N, 1), g)), AN_ALL));
        an_tensor *norm = an_adam_atan2(
            cx, ((an_adamw_options){.lr = rate, .beta1 = beta1, .beta2 = beta2, .weight_decay = decay, .t = u + 1}));
        if (an_eval(norm) != AN_OK) fail_msg("%s", an_error(cx));
        an_reset(cx);
    }
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), w, N * sizeof *w), AN_OK);
    an_close(cx);
}

static void updates_follow_the_formula_for_gradients_of_every_size(void **state)
{
    (void)state;
    float got[N];
    train(got, 1, UPDATES, -1);
    for (int i = 0; i < N; i++) {
        double p = 1, m = 0, v = 0;
        for (int u = 0; u < UPDATES; u++) {
            const double g = (double)gradient(u, i);
            m = beta1 * m + (1 - beta1) * g;
            v = beta2 * v + (1 - beta2) * g * g;
            p *= 1 - rate * decay;
            p -= rate / (1 - pow(beta1, u + 1)) * atan2(m, sqrt(v) / sqrt(1 - pow(beta2, u + 1)));
        }
        if (!(fabs((double)got[i] - p) <= 2e-6)) fail_msg("element %d is %.9g, wanted %.9g", i, (double)got[i], p);
    }
}

/* At the first update m / (1 - beta1) and sqrt(v / (1 - beta2)) are g and |g|: but for decay the step is
 * rate / (1 - beta1) * atan2((1 - beta1) g, |g|), whatever the size of g. */
static void the_first_step_does_not_depend_on_the_size_of_a_gradient(void **state)
{
    (void)state;
    float one[N];
    train(one, 1, 1, -1);
    const double step = rate / (1 - beta1) * atan(1 - beta1);
    const double sign[N] = {1, -1, 0, 1, 1};
    for (int i = 0; i < N; i++) {
        const double want = 1 - rate * decay - sign[i] * step;
        if (!(fabs((double)one[i] - want) <= 1e-6))
            fail_msg("element %d is %.9g, wanted %.9g", i, (double)one[i], want);
    }
}

static void a_loss_scaled_by_a_power_of_two_gives_the_same_bits(void **state)
{
    (void)state;
    float plain[N], scaled[N];
    train(plain, 1, UPDATES, -1);
    train(scaled, 1024, UPDATES, -1);
    assert_memory_equal(plain, scaled, sizeof plain);
}

static void an_update_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    float whole[N], bad[N];
    train(whole, 1, 3, -1);
    train(bad, 1, 4, 3);
    assert_memory_equal(whole, bad, sizeof whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_follow_the_formula_for_gradients_of_every_size),
        cmocka_unit_test(the_first_step_does_not_depend_on_the_size_of_a_gradient),
        cmocka_unit_test(a_loss_scaled_by_a_power_of_two_gives_the_same_bits),
        cmocka_unit_test(an_update_that_is_not_finite_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
