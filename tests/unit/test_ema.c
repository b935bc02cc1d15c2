/* test_ema.c: averages of the parameters as a caller meets them: what they begin as, what an evaluation reads, what is
 * refused meanwhile, frozen parameters, updates that are not wanted; patterns of names. */
#include <anneal.h>

#include "lib/test.h"

#include <math.h>
#include <string.h>

enum { N = 3 };

static an_ctx *open_cpu(void)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static an_tensor *weights(an_ctx *cx)
{
    return an_param(cx, "w", AN_F32, AN_SHAPE(N), AN_FILL(2));
}

/* w' = w - 1: the gradient of sum(w) with rate 1 */
static void step(an_ctx *cx, double rate, an_tensor *only_if)
{
    an_backward(an_sum(weights(cx), AN_ALL));
    an_tensor *norm = an_sgd(cx, 1);
    an_ema(cx, rate, only_if);
    if (an_eval(norm) != AN_OK) fail_msg("%s", an_error(cx));
    an_reset(cx);
}

static float get(an_ctx *cx, const char *name)
{
    float x[N];
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, name), x, sizeof x), AN_OK);
    return x[N - 1];
}

static double evaluated(an_ctx *cx)
{
    an_tensor *sum = an_sum(weights(cx), AN_ALL);
    if (an_eval(sum) != AN_OK) fail_msg("%s", an_error(cx));
    const double x = an_item(sum);
    an_reset(cx);
    return x;
}

static void an_evaluation_reads_averages_until_it_is_told_not_to(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    step(cx, 0.5, NULL); /* w 1, average 0.5 * 2 + 0.5 * 1 */
    assert_true(get(cx, "w") == 1 && get(cx, "ema.w") == 1.5f);
    for (int again = 0; again < 2; again++) { /* the second time both plans are cached */
        assert_true(evaluated(cx) == 3);
        assert_int_equal(an_use_averages(cx, true), AN_OK);
        assert_true(evaluated(cx) == 4.5);
        assert_int_equal(an_use_averages(cx, false), AN_OK);
    }
    step(cx, 0.5, NULL); /* w 0, average 0.75 */
    assert_true(evaluated(cx) == 0);
    assert_true(get(cx, "ema.w") == 0.75f);
    an_close(cx);
}

static void nothing_changes_a_parameter_whose_average_is_read(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    step(cx, 0.5, NULL);
    for (int what = 0; what < 3; what++) {
        an_use_averages(cx, true);
        an_backward(an_sum(weights(cx), AN_ALL));
        if (what == 0) an_sgd(cx, 1);
        if (what == 1) an_ema(cx, 0.5, NULL);
        if (what == 2) an_assign(weights(cx), an_full(cx, AN_F32, AN_SHAPE(N), 0));
        assert_int_equal(an_eval_effects(cx), AN_E_USAGE);
        assert_non_null(strstr(an_error(cx), "an_use_averages(cx, false)"));
        an_reset(cx);
        an_error_clear(cx);
        an_use_averages(cx, false);
    }
    assert_true(get(cx, "w") == 1 && get(cx, "ema.w") == 1.5f);
    an_close(cx);
}

static void averages_stay_where_the_condition_is_false(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    step(cx, 0.5, an_lt(an_scalar(cx, 1), an_scalar(cx, 0)));
    assert_true(get(cx, "w") == 1 && get(cx, "ema.w") == 2);
    an_close(cx);
}

static void a_frozen_parameter_is_its_own_average(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    an_tensor *still = an_param(cx, "still", AN_F32, AN_SHAPE(1), AN_FILL(7));
    weights(cx);
    assert_int_equal(an_params_freeze(cx, "st*", true), 1);
    step(cx, 0.5, NULL);
    assert_int_equal(an_persist_find(cx, "ema.still"), -1);
    an_use_averages(cx, true);
    still = an_param(cx, "still", AN_F32, AN_SHAPE(1), AN_FILL(7));
    an_tensor *both = an_add(an_sum(weights(cx), AN_ALL), an_sum(still, AN_ALL));
    assert_int_equal(an_eval(both), AN_OK);
    assert_true(an_item(both) == 4.5 + 7);
    an_close(cx);
}

static void a_rate_outside_0_to_1_and_a_name_of_an_average_are_refused(void **state)
{
    (void)state;
    static const double bad[] = {-0.1, 1.5, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < AN_COUNT(bad); i++) {
        an_ctx *cx = open_cpu();
        weights(cx);
        an_ema(cx, bad[i], NULL);
        assert_int_equal(an_error_status(cx), AN_E_USAGE);
        an_close(cx);
    }
    an_ctx *cx = open_cpu();
    an_state(cx, "ema.w", AN_F32, AN_SHAPE(1), AN_ZEROS);
    assert_int_equal(an_error_status(cx), AN_E_USAGE);
    an_close(cx);
}

static void moments_of_the_bill_count_averages(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    an_bill before, after;
    an_backward(an_sum(weights(cx), AN_ALL));
    assert_int_equal(an_plan(an_sgd(cx, 1)), AN_OK);
    assert_int_equal(an_report(cx, &before), AN_OK);
    an_reset(cx);
    step(cx, 0.5, NULL);
    assert_int_equal(an_report(cx, &after), AN_OK);
    assert_int_equal(before.moment_bytes, 0);
    assert_int_equal(after.moment_bytes, after.weight_bytes);
    an_close(cx);
}

static void patterns_match_names_as_a_shell_does(void **state)
{
    (void)state;
    static const struct {
        const char *globs, *name;
        bool matches;
    } rows[] = {{"*", "h.0.w", true},
                {"*", "", true},
                {"h.*", "h.0.w", true},
                {"h.*", "wte", false},
                {"h.?.w", "h.0.w", true},
                {"h.?.w", "h.10.w", false},
                {"wte,h.*", "h.1", true},
                {"wte,h.*", "wte", true},
                {"wte,h.*", "wte.x", false},
                {"*.w", "a.w.w", true},
                {"*a*b*c", "xaybzc", true},
                {"*a*b*c", "xaybz", false},
                {"", "a", false},
                {",,", "", false},
                {"a,", "a", true},
                {"*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false}};
    for (size_t i = 0; i < AN_COUNT(rows); i++) {
        an_ctx *cx = open_cpu();
        if (*rows[i].name) {
            an_param(cx, rows[i].name, AN_F32, AN_SHAPE(1), AN_ZEROS);
            if (an_params_decay(cx, rows[i].globs, true) != rows[i].matches)
                fail_msg("%s and %s", rows[i].globs, rows[i].name);
        }
        an_close(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_evaluation_reads_averages_until_it_is_told_not_to),
        cmocka_unit_test(nothing_changes_a_parameter_whose_average_is_read),
        cmocka_unit_test(averages_stay_where_the_condition_is_false),
        cmocka_unit_test(a_frozen_parameter_is_its_own_average),
        cmocka_unit_test(a_rate_outside_0_to_1_and_a_name_of_an_average_are_refused),
        cmocka_unit_test(moments_of_the_bill_count_averages),
        cmocka_unit_test(patterns_match_names_as_a_shell_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
