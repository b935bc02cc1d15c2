/* test_round_weights.c: weights that are kept rounded while parameters do not change (an_round_weights): the same bits, fewer bytes, and what
 * is refused meanwhile. */
#include <anneal.h>

#include "lib/test.h"

#include <string.h>

enum { OUT = 257, IN = 130 };

static an_ctx *open_cpu(an_dtype policy)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 2, .seed = 3});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    an_set_policy(cx, (an_policy){.matmul = policy});
    return cx;
}

static an_tensor *weight(an_ctx *cx)
{
    return an_param(cx, "w", AN_F32, AN_SHAPE(OUT, IN), AN_NORMAL(1));
}

/* y = x w^T of one row x; returns the bytes that the plan moves. */
static uint64_t run(an_ctx *cx, float *y)
{
    float x[IN];
    for (int i = 0; i < IN; i++) x[i] = (float)(i % 17) / 16 - 0.4f;
    an_tensor *row = an_input(cx, AN_F32, AN_SHAPE(1, IN), x);
    an_tensor *out = an_cast(an_linear(row, weight(cx), NULL), AN_F32);
    an_bill bill;
    if (an_eval(out) != AN_OK || an_read(out, y, OUT * sizeof *y) != AN_OK) fail_msg("%s", an_error(cx));
    assert_int_equal(an_report(cx, &bill), AN_OK);
    an_reset(cx);
    return bill.moved_bytes;
}

static void rounded_weights_give_the_same_bits_from_half_the_bytes(void **state)
{
    (void)state;
    static const an_dtype policy[] = {AN_BF16, AN_F16};
    for (int i = 0; i < 2; i++) {
        an_ctx *cx = open_cpu(policy[i]);
        float before[OUT], kept[OUT], after[OUT];
        const uint64_t all = run(cx, before);
        assert_int_equal(an_round_weights(cx, true), AN_OK);
        assert_int_equal(an_round_weights(cx, true), AN_OK); /* a second time it is done already */
        const uint64_t half = run(cx, kept);
        assert_int_equal(an_round_weights(cx, false), AN_OK);
        assert_int_equal(run(cx, after), all);
        assert_memory_equal(before, kept, sizeof before);
        assert_memory_equal(before, after, sizeof before);
        assert_true(half + 2 * OUT * IN <= all);
        an_close(cx);
    }
}

static void under_a_float32_policy_there_is_nothing_to_round(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu(AN_F32);
    float before[OUT], kept[OUT];
    const uint64_t all = run(cx, before);
    assert_int_equal(an_round_weights(cx, true), AN_OK);
    assert_int_equal(run(cx, kept), all);
    assert_memory_equal(before, kept, sizeof before);
    an_assign(weight(cx), an_full(cx, AN_F32, AN_SHAPE(OUT, IN), 2)); /* nothing is kept, so nothing is refused */
    assert_int_equal(an_eval_effects(cx), AN_OK);
    an_close(cx);
    assert_int_equal(an_round_weights(NULL, true), AN_E_USAGE);
}

static void parameters_whose_rounded_values_are_kept_do_not_change(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu(AN_BF16);
    static float other[OUT * IN];
    float y[OUT];
    run(cx, y);
    const int entry = an_persist_find(cx, "w");
    assert_int_equal(an_round_weights(cx, true), AN_OK);
    for (int what = 0; what < 3; what++) {
        if (what == 0) {
            an_backward(an_sum(an_linear(an_full(cx, AN_F32, AN_SHAPE(1, IN), 1), weight(cx), NULL), AN_ALL));
            an_sgd(cx, 1);
        }
        if (what == 1) an_assign(weight(cx), an_full(cx, AN_F32, AN_SHAPE(OUT, IN), 0));
        assert_int_equal(what == 2 ? an_persist_write(cx, entry, other, sizeof other) : an_eval_effects(cx),
                         AN_E_USAGE);
        assert_non_null(strstr(an_error(cx), "an_round_weights(cx, false)"));
        an_reset(cx);
        an_error_clear(cx);
    }
    assert_int_equal(an_round_weights(cx, false), AN_OK);
    assert_int_equal(an_persist_write(cx, entry, other, sizeof other), AN_OK);
    run(cx, y);
    for (int i = 0; i < OUT; i++) assert_true(y[i] == 0);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_weights_give_the_same_bits_from_half_the_bytes),
        cmocka_unit_test(under_a_float32_policy_there_is_nothing_to_round),
        cmocka_unit_test(parameters_whose_rounded_values_are_kept_do_not_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
