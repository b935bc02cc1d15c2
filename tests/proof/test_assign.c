/* test_assign.c: what an assignment means. Readers in a step see the old value, the last assignment wins, and what did
 * not run has not happened: on every device and in every mode as on the oracle. */
#include <anneal.h>
#include "lib/test.h"

#include <math.h>
#include <string.h>

enum { N = 5, STATES = 3, STEPS = 3 };

typedef void (*recipe)(an_ctx *cx, an_tensor **s, an_tensor *x);

static void swap(an_ctx *cx, an_tensor **s, an_tensor *x)
{
    (void)cx, (void)x;
    an_assign(s[0], s[1]);
    an_assign(s[1], s[0]);
}

static void rotate_in_new(an_ctx *cx, an_tensor **s, an_tensor *x)
{
    (void)cx;
    an_assign(s[0], an_add_num(x, 1));
    an_assign(s[1], s[0]);
    an_assign(s[2], s[1]);
}

static void assign_twice(an_ctx *cx, an_tensor **s, an_tensor *x)
{
    (void)cx;
    an_tensor *e = an_exp(x);
    an_assign(s[0], an_softmax(an_add_num(e, 2), 0));
    an_assign(s[0], e);
    an_assign(s[1], an_mul(s[0], x));
}

static void run(const an_options *o, recipe r, float out[STATES][N])
{
    static const char *const names[STATES] = {"a", "b", "c"};
    static const float data[N] = {0.5f, -1, 2, 0.25f, -3};
    an_ctx *cx = an_open_sized(o, sizeof *o);
    an_tensor *s[STATES];
    for (int i = 0; i < STATES; i++) s[i] = an_state(cx, names[i], AN_F32, AN_SHAPE(N), AN_FILL(i + 1));
    for (int step = 0; step < STEPS; step++) {
        r(cx, s, an_input(cx, AN_F32, AN_SHAPE(N), data));
        assert_int_equal(an_eval_effects(cx), AN_OK);
        an_reset(cx);
    }
    for (int i = 0; i < STATES; i++)
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, names[i]), out[i], sizeof out[i]), AN_OK);
    an_close(cx);
}

static void everywhere_as_on_the_oracle(recipe r)
{
    static const an_options ways[] = {{.device = "cpu", .cc = "none", .threads = 1},
                                      {.device = "cpu", .cc = "none", .threads = 2, .unfused = true},
                                      {.device = "cpu", .cc = "none", .threads = 1, .place_apart = true}};
    float want[STATES][N], got[STATES][N];
    run(&(an_options){.device = "ref"}, r, want);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        run(&ways[w], r, got);
        for (int i = 0; i < STATES; i++)
            for (int j = 0; j < N; j++)
                if (!(fabsf(got[i][j] - want[i][j]) <= 1e-5f * (1 + fabsf(want[i][j]))))
                    fail_msg("way %zu, state %d, element %d: %.9g, the oracle has %.9g", w, i, j, got[i][j],
                             want[i][j]);
    }
}

static void states_swap(void **state)
{
    (void)state, everywhere_as_on_the_oracle(swap);
}
static void a_shift_register_shifts_by_one(void **state)
{
    (void)state, everywhere_as_on_the_oracle(rotate_in_new);
}
static void the_last_assignment_wins(void **state)
{
    (void)state, everywhere_as_on_the_oracle(assign_twice);
}

/* One micro-batch of a tiny classifier; a label of 9 is refused. */
static an_tensor *backward(an_ctx *cx, an_tensor *w, int seed, int32_t last)
{
    float x[6 * 4];
    int32_t y[6] = {0, 1, 2, 0, 1, last};
    for (int i = 0; i < 24; i++) x[i] = sinf((float)(i + 7 * seed));
    an_tensor *loss = an_mean(
        an_cross_entropy(an_matmul(an_input(cx, AN_F32, AN_SHAPE(6, 4), x), w), an_input(cx, AN_I32, AN_SHAPE(6), y)),
        AN_ALL);
    an_backward(loss);
    return loss;
}

static float weight_after(int refused_first, int planned_first)
{
    float w0[12];
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1, .seed = 3});
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(4, 3), AN_NORMAL(1));
    an_tensor *loss = backward(cx, w, 0, 2);
    assert_int_equal(an_eval(loss), AN_OK); /* kept for the update */
    an_reset(cx);
    for (int i = 0; i < 2; i++) {
        if (!(i ? planned_first : refused_first)) continue;
        loss = backward(cx, w, 1, i ? 2 : 9);
        an_adamw(cx, (an_adamw_options){.lr = 0.1});
        if (i)
            assert_int_equal(an_plan(loss), AN_OK);
        else
            assert_int_not_equal(an_eval(loss), AN_OK);
        an_reset(cx);
    }
    loss = backward(cx, w, 1, 2);
    an_adamw(cx, (an_adamw_options){.lr = 0.1});
    assert_int_equal(an_eval(loss), AN_OK);
    an_reset(cx);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), w0, sizeof w0), AN_OK);
    an_close(cx);
    return w0[0] + w0[5];
}

/* Both assignments read the state: the second starts from what the first made of it. */
static void count_twice(an_ctx *cx, an_tensor **s, an_tensor *x)
{
    (void)cx;
    an_assign(s[0], an_add_num(an_mul_num(s[0], 0.5), 1));
    an_assign(s[1], an_mul(s[0], x));
    an_assign(s[0], an_add(an_mul_num(s[0], 0.5), an_exp(x)));
    an_assign(s[0], an_softmax(an_mul(s[0], s[2]), 0));
}
static void an_assignment_that_reads_an_assigned_state_starts_from_the_assigned_value(void **state)
{
    (void)state;
    everywhere_as_on_the_oracle(count_twice);
    static const float x[N] = {0.5f, -1, 2, 0.25f, -3};
    for (int ref = 0; ref < 2; ref++) {
        an_ctx *cx = an_open(&(an_options){.device = ref ? "ref" : "cpu", .cc = "none", .threads = 1});
        an_tensor *s = an_state(cx, "s", AN_F32, AN_SHAPE(N), AN_FILL(3)), *in = an_input(cx, AN_F32, AN_SHAPE(N), x);
        float got[N];
        an_assign(s, an_add(an_mul_num(s, 2), in));
        an_assign(s, an_add_num(an_mul_num(s, 10), 1));
        assert_int_equal(an_eval(s), AN_OK);
        assert_int_equal(an_read(s, got, sizeof got), AN_OK);
        for (int i = 0; i < N; i++) assert_true(got[i] == 10 * (2 * 3 + x[i]) + 1);
        an_assign(s, an_add_num(s, 1)); /* the first two have run: this one starts from what they left */
        assert_int_equal(an_eval(s), AN_OK);
        assert_int_equal(an_read(s, got, sizeof got), AN_OK);
        for (int i = 0; i < N; i++) assert_true(got[i] == 10 * (2 * 3 + x[i]) + 2);
        an_close(cx);
    }
}

/* As PyTorch does it for a module called twice: 0.9 (0.9 m + 0.1 a) + 0.1 b. */
static void batch_norm_called_twice_moves_shared_statistics_twice(void **state)
{
    (void)state;
    static const float a[4] = {1, 2, 3, 6}, b[4] = {-1, 0, 4, 5}; /* means 3 and 2, variances 14/3 and 26/3 */
    for (int ref = 0; ref < 2; ref++) {
        an_ctx *cx = an_open(&(an_options){.device = ref ? "ref" : "cpu", .cc = "none", .threads = 1});
        an_tensor *mean = an_state(cx, "mean", AN_F32, AN_SHAPE(1), AN_FILL(10)),
                  *var = an_state(cx, "var", AN_F32, AN_SHAPE(1), AN_FILL(1));
        an_tensor *y = an_batch_norm(an_input(cx, AN_F32, AN_SHAPE(4, 1), a), NULL, NULL, mean, var, 0.1, 1e-5, true);
        an_tensor *z = an_batch_norm(an_input(cx, AN_F32, AN_SHAPE(4, 1), b), NULL, NULL, mean, var, 0.1, 1e-5, true);
        assert_int_equal(an_eval(mean, var, y, z), AN_OK);
        assert_true(fabs(an_item(mean) - (0.9 * (0.9 * 10 + 0.1 * 3) + 0.1 * 2)) < 1e-5);
        assert_true(fabs(an_item(var) - (0.9 * (0.9 * 1 + 0.1 * 14 / 3) + 0.1 * 26 / 3)) < 1e-5);
        an_close(cx);
    }
}

/* w is one of three parameters in a block; dL/dp is 1 for every element, so an update subtracts 0.5. */
static void assigned_and_updated(bool assign_first, const char *device, float w[N], float beside[3])
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1});
    an_tensor *before = an_param(cx, "before", AN_F32, AN_SHAPE(3), AN_FILL(7)),
              *p = an_param(cx, "w", AN_F32, AN_SHAPE(N), AN_FILL(4)),
              *after = an_param(cx, "after", AN_F32, AN_SHAPE(2), AN_FILL(8));
    an_backward(an_add(an_add(an_sum(p, AN_ALL), an_sum(before, AN_ALL)), an_sum(after, AN_ALL)));
    if (!assign_first) an_sgd(cx, 0.5);
    an_assign(p, an_mul_num(p, 10));
    if (assign_first) an_sgd(cx, 0.5);
    if (an_eval_effects(cx) != AN_OK) fail_msg("%s", an_error(cx));
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), w, N * sizeof *w), AN_OK);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "before"), beside, 3 * sizeof *beside), AN_OK);
    an_close(cx);
}
static void a_parameter_is_updated_and_assigned_in_the_order_of_the_calls(void **state)
{
    (void)state;
    static const char *const devices[] = {"ref", "cpu"};
    float w[N], beside[3];
    for (int d = 0; d < 2; d++)
        for (int first = 0; first < 2; first++) {
            assigned_and_updated(first, devices[d], w, beside);
            for (int i = 0; i < N; i++)
                if (w[i] != (first ? 39.5f : 35.0f))
                    fail_msg("%s: assigned %s: %g", devices[d], first ? "first" : "last", w[i]);
            for (int i = 0; i < 3; i++) assert_true(beside[i] == 6.5f);
        }
}

static void two_updates_of_a_parameter_in_a_step_are_refused(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(4, 3), AN_NORMAL(1));
    backward(cx, w, 0, 2);
    an_sgd(cx, 0.1);
    backward(cx, w, 1, 2);
    an_adamw(cx, (an_adamw_options){.lr = 0.1});
    assert_int_equal(an_eval_effects(cx), AN_E_USAGE);
    if (!strstr(an_error(cx), "an_adamw: an optimizer has updated these parameters in this step already"))
        fail_msg("%s", an_error(cx));
    an_reset(cx);
    for (int i = 0; i < 2; i++) { /* with an_eval between, one step may do both */
        an_tensor *loss = backward(cx, w, i, 2);
        an_sgd(cx, 0.1);
        assert_int_equal(an_eval(loss), AN_OK);
    }
    an_close(cx);
}

static void a_refused_or_only_planned_update_leaves_no_trace(void **state)
{
    (void)state;
    float straight = weight_after(0, 0);
    assert_true(weight_after(1, 0) == straight);
    assert_true(weight_after(0, 1) == straight);
    assert_true(weight_after(1, 1) == straight);
}

/* More than one kernel can hold is planned one op a kernel. */
static void a_sum_of_seventy_inputs_and_a_deep_chain_run(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    float one[N] = {1, 1, 1, 1, 1}, out[N];
    an_tensor *sum = an_input(cx, AN_F32, AN_SHAPE(N), one);
    for (int i = 1; i < 70; i++) sum = an_add(sum, an_input(cx, AN_F32, AN_SHAPE(N), one));
    for (int i = 0; i < 500; i++) sum = an_add_num(an_abs(an_neg(sum)), 1);
    assert_int_equal(an_eval(sum), AN_OK);
    assert_int_equal(an_read(sum, out, sizeof out), AN_OK);
    assert_true(out[0] == 570 && out[N - 1] == 570);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_swap),
        cmocka_unit_test(a_shift_register_shifts_by_one),
        cmocka_unit_test(the_last_assignment_wins),
        cmocka_unit_test(an_assignment_that_reads_an_assigned_state_starts_from_the_assigned_value),
        cmocka_unit_test(batch_norm_called_twice_moves_shared_statistics_twice),
        cmocka_unit_test(a_parameter_is_updated_and_assigned_in_the_order_of_the_calls),
        cmocka_unit_test(two_updates_of_a_parameter_in_a_step_are_refused),
        cmocka_unit_test(a_refused_or_only_planned_update_leaves_no_trace),
        cmocka_unit_test(a_sum_of_seventy_inputs_and_a_deep_chain_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
