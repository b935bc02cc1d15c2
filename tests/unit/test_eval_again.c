/* test_eval_again.c: a step that is run again with other numbers gives what the same step built again would, on the CPU and in
 * the reference interpreter; what it cannot run again is refused with a sentence. */
#include <anneal.h>
#include <anneal_decode.h>
#include <anneal_tools.h>

#include "lib/test.h"

#include <string.h>

static an_ctx *open_on(const char *device)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1, .seed = 5});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

typedef struct numbers {
    an_tensor *scale, *shift, *count, *ids, *out;
} numbers;

/* out[i] = table[ids[i]] * scale + shift + count + noise, and a state that counts the steps. */
static numbers build(an_ctx *cx, float scale, double shift, int32_t count, const int32_t ids[3])
{
    static const float table[4] = {1, 10, 100, 1000};
    numbers s;
    s.scale = an_scalar(cx, scale);
    s.shift = an_scalar_f64(cx, shift);
    s.count = an_scalar_i32(cx, count);
    s.ids = an_input(cx, AN_I32, AN_SHAPE(3), ids);
    an_tensor *steps = an_state(cx, "steps", AN_F32, AN_SHAPE(3), AN_ZEROS), *more = an_add_num(steps, 1);
    an_tensor *row = an_reshape(an_gather(an_input(cx, AN_F32, AN_SHAPE(4, 1), table), s.ids), AN_SHAPE(3));
    an_tensor *sum = an_add(an_mul(row, s.scale), an_cast(s.shift, AN_F32));
    sum = an_add(sum, an_cast(s.count, AN_F32));
    s.out = an_add(an_add(sum, more), an_rand(cx, AN_SHAPE(3)));
    an_assign(steps, more);
    return s;
}

static void as_if_built_again(const char *device)
{
    static const int32_t ids[4][3] = {{0, 1, 2}, {3, 3, 0}, {2, 0, 1}, {1, 1, 1}};
    float want[4][3], got[3];
    for (int again = 0; again < 2; again++) {
        an_ctx *cx = open_on(device);
        numbers s = {.out = NULL};
        for (int i = 0; i < 4; i++) {
            an_set_step(cx, (uint64_t)i);
            if (i == 0 || !again) {
                an_reset(cx);
                s = build(cx, (float)(i + 1), 0.25 * i, 7 * i, ids[i]);
                assert_int_equal(an_eval(s.out), AN_OK);
            } else {
                assert_int_equal(an_set_scalar(s.scale, i + 1), AN_OK);
                assert_int_equal(an_set_scalar(s.shift, 0.25 * i), AN_OK);
                assert_int_equal(an_set_scalar(s.count, 7 * i), AN_OK);
                assert_int_equal(an_set_input(s.ids, ids[i]), AN_OK);
                assert_int_equal(an_eval_again(cx), AN_OK);
            }
            assert_int_equal(an_read(s.out, again ? got : want[i], sizeof got), AN_OK);
            if (again) assert_memory_equal(got, want[i], sizeof got);
        }
        an_close(cx);
    }
    assert_true(want[1][0] > 2000 && want[3][2] < 100);
}

static void on_the_cpu(void **state)
{
    (void)state;
    as_if_built_again("cpu");
}

/* A lent input is read where it lies; new values are written elsewhere, and the caller's stay as they were. */
static void what_is_lent_is_not_written(void **state)
{
    (void)state;
    static const int32_t other[3] = {1, 1, 2};
    int32_t lent[3] = {3, 4, 5}, got[3];
    an_ctx *cx = open_on("cpu");
    an_tensor *in = an_input_lent(cx, AN_I32, AN_SHAPE(3), lent), *twice = an_mul_num(in, 2);
    lent[0] = 6; /* before the step is evaluated: a copy would have 3 */
    assert_int_equal(an_eval(twice), AN_OK);
    assert_int_equal(an_read(twice, got, sizeof got), AN_OK);
    assert_int_equal(got[0], 12);
    assert_int_equal(an_set_input(in, other), AN_OK);
    assert_int_equal(an_eval_again(cx), AN_OK);
    assert_int_equal(an_read(twice, got, sizeof got), AN_OK);
    assert_int_equal(got[0], 2);
    assert_int_equal(lent[0], 6);
    an_close(cx);
}

static void in_the_reference(void **state)
{
    (void)state;
    as_if_built_again("ref");
}

static void refused(an_ctx *cx, an_status status, an_status want, const char *part)
{
    assert_int_equal(status, want);
    assert_non_null(an_error(cx));
    if (!strstr(an_error(cx), part)) fail_msg("\"%s\" does not say \"%s\"", an_error(cx), part);
    an_error_clear(cx);
}

static void what_cannot_run_again_is_refused(void **state)
{
    (void)state;
    static const int32_t ids[3] = {0, 1, 2}, wrong[3] = {0, 4, 0};
    an_ctx *cx = open_on("cpu");
    assert_int_equal(an_eval_again(NULL), AN_E_USAGE);
    assert_int_equal(an_set_scalar(NULL, 1), AN_E_USAGE);
    assert_int_equal(an_set_input(NULL, ids), AN_E_USAGE);
    refused(cx, an_eval_again(cx), AN_E_USAGE, "no an_eval");
    numbers s = build(cx, 1, 0, 0, ids);
    refused(cx, an_eval_again(cx), AN_E_USAGE, "no an_eval");
    assert_int_equal(an_eval(s.out), AN_OK);
    refused(cx, an_set_scalar(s.ids, 1), AN_E_USAGE, "an_set_scalar");
    refused(cx, an_set_input(s.out, ids), AN_E_USAGE, "an_set_input");
    refused(cx, an_set_input(s.ids, NULL), AN_E_USAGE, "NULL");
    assert_int_equal(an_eval_again(cx), AN_OK);
    an_exp(s.out);
    refused(cx, an_eval_again(cx), AN_E_USAGE, "has grown");
    an_reset(cx);
    refused(cx, an_eval_again(cx), AN_E_USAGE, "no an_eval");
    s = build(cx, 1, 0, 0, ids);
    assert_int_equal(an_eval(s.out), AN_OK);
    assert_int_equal(an_set_input(s.ids, wrong), AN_OK);
    refused(cx, an_eval_again(cx), AN_E_DATA, "outside [0,4)");
    an_reset(cx);
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(3), AN_ONES), *loss = an_sum(w, AN_ALL);
    an_backward(loss);
    an_sgd(cx, 0.1);
    assert_int_equal(an_eval(loss), AN_OK);
    refused(cx, an_eval_again(cx), AN_E_USAGE, "gradients");
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_cpu),
        cmocka_unit_test(what_is_lent_is_not_written),
        cmocka_unit_test(in_the_reference),
        cmocka_unit_test(what_cannot_run_again_is_refused),
    };
    return cmocka_run_group_tests_name("eval_again", tests, NULL, NULL);
}
