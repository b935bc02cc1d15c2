/* test_bytes.c: the bill is exact: what a plan says it will ask for is what is asked for, over many shapes of model and
 * every setting that changes memory. */
#include "proof/train_case.h"

typedef struct point {
    train_case c;
    const char *recompute;
    uint64_t budget;
    bool unfused, apart, evaluation;
} point;

/* Plans in one context, runs in it, and compares; `what` names the point in a failure. */
static void plan_and_run(const point *p, const char *what)
{
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    an_bill plan, run;
    const an_options o = {.device = "cpu",
                          .seed = 3,
                          .threads = 2,
                          .cc = "none",
                          .recompute = p->recompute,
                          .budget_bytes = p->budget,
                          .unfused = p->unfused,
                          .place_apart = p->apart};
    if (case_open(&err, &p->c, &o, &cx, &m) != AN_OK) fail_msg("%s: %s", what, err.text);
    an_tensor *root;
    if (p->evaluation) {
        static const int32_t zeros[CASE_TOKENS];
        an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(p->c.B, p->c.T), zeros);
        root = an_sum(an_gpt_losses(m, tokens, tokens, false), AN_ALL);
    } else {
        root = case_build(cx, m, &p->c, 0, 0);
    }
    if (an_plan(root) != AN_OK || an_report(cx, &plan) != AN_OK) fail_msg("%s: plan: %s", what, an_error(cx));
    if (plan.allocated_bytes != 0)
        fail_msg("%s: planning requested %llu bytes", what, (unsigned long long)plan.allocated_bytes);
    if (an_eval(root) != AN_OK || an_report(cx, &run) != AN_OK) fail_msg("%s: run: %s", what, an_error(cx));
    if (plan.peak_bytes == 0 || plan.peak_bytes != run.allocated_bytes || plan.peak_bytes != run.peak_bytes)
        fail_msg("%s: predicted %llu bytes, requested %llu, reported %llu", what, (unsigned long long)plan.peak_bytes,
                 (unsigned long long)run.allocated_bytes, (unsigned long long)run.peak_bytes);
    const uint64_t parts = plan.weight_bytes + plan.gradient_bytes + plan.moment_bytes + plan.state_bytes +
                           plan.activation_bytes + plan.scratch_bytes + plan.input_bytes;
    if (parts != plan.peak_bytes)
        fail_msg("%s: the parts of the bill sum to %llu, not %llu", what, (unsigned long long)parts,
                 (unsigned long long)plan.peak_bytes);
    case_close(cx, m);
}

static const train_case shapes[] = {
    {.B = 1, .T = 1, .C = 8, .L = 1, .H = 1, .V = 2},     {.B = 1, .T = 8, .C = 16, .L = 1, .H = 2, .V = 11},
    {.B = 2, .T = 16, .C = 24, .L = 2, .H = 3, .V = 65},  {.B = 3, .T = 7, .C = 20, .L = 1, .H = 2, .V = 31},
    {.B = 4, .T = 32, .C = 32, .L = 3, .H = 4, .V = 65},  {.B = 5, .T = 33, .C = 48, .L = 2, .H = 6, .V = 257},
    {.B = 8, .T = 64, .C = 64, .L = 1, .H = 1, .V = 500},
};

/* Every shape under every setting: a bit of `i` each. */
static void predicted_bytes_are_the_requested_bytes_in_every_configuration(void **state)
{
    (void)state;
    static const char *const recompute[] = {"off", "on"};
    int n = 0;
    for (size_t s = 0; s < AN_COUNT(shapes); s++)
        for (int i = 0; i < 12; i++) {
            point p = {.c = shapes[s],
                       .recompute = recompute[i % 2],
                       .evaluation = i % 6 == 5,
                       .unfused = i == 8,
                       .apart = i == 9};
            p.c.dropout = i % 3 == 0 ? 0.2 : 0;
            p.c.bias = (i / 2) % 2 != 0;
            p.c.matmul = i % 4 == 3 ? AN_BF16 : AN_F32;
            p.c.micros = i % 5 == 4 ? 4 : 1;
            char what[160];
            snprintf(what, sizeof what, "shape %zu, setting %d", s, i);
            plan_and_run(&p, what);
            n++;
        }
    assert_true(n >= 50);
    print_message("# %d configurations, each exact\n", n);
}

/* A budget between the two extremes makes `auto` drop some activations; the bill stays exact and within it. */
static void a_plan_squeezed_into_a_budget_asks_for_what_it_says_and_no_more_than_allowed(void **state)
{
    (void)state;
    const train_case c = {.B = 8, .T = 64, .C = 64, .L = 3, .H = 4, .V = 65, .dropout = 0.1};
    uint64_t bytes[2];
    for (int on = 0; on < 2; on++) {
        an_err err = {0};
        an_ctx *cx;
        an_gpt *m;
        an_bill b;
        if (case_open(&err, &c, &(an_options){.device = "cpu", .cc = "none", .recompute = on ? "on" : "off"}, &cx,
                      &m) != AN_OK)
            fail_msg("%s", err.text);
        assert_int_equal(an_plan(case_build(cx, m, &c, 0, 0)), AN_OK);
        assert_int_equal(an_report(cx, &b), AN_OK);
        bytes[on] = b.peak_bytes;
        case_close(cx, m);
    }
    if (bytes[1] >= bytes[0])
        fail_msg("recompute=on needs %llu bytes, off %llu", (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
    for (int part = 0; part <= 4; part++) {
        const point p = {.c = c, .recompute = "auto", .budget = bytes[1] + (bytes[0] - bytes[1]) * (uint64_t)part / 4};
        plan_and_run(&p, "a budget");
    }
}

static void a_step_beyond_the_budget_is_refused_with_the_bill_before_anything_is_requested(void **state)
{
    (void)state;
    const train_case c = {.B = 8, .T = 64, .C = 64, .L = 1, .H = 4, .V = 65};
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    if (case_open(&err, &c, &(an_options){.device = "cpu", .cc = "none", .budget_bytes = 100000}, &cx, &m) != AN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(an_eval(case_build(cx, m, &c, 0, 0)), AN_E_BUDGET);
    assert_non_null(strstr(an_error(cx), "the budget is 97.7 KiB"));
    assert_non_null(strstr(an_error(cx), "recompute=on"));
    case_close(cx, m);
}

static an_status eval_sum(an_ctx *cx)
{
    an_tensor *x = an_full(cx, AN_F32, AN_SHAPE(64, 64), 1),
              *y = an_sum(an_mul(an_rand(cx, AN_SHAPE(64, 64)), x), AN_ALL);
    const an_status status = an_eval(y);
    an_reset(cx);
    return status;
}

/* The same graph, the second time beside a parameter that takes most of the budget: the first plan is not taken again. */
static void parameters_that_come_later_count_against_the_budget(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .budget_bytes = 100000});
    assert_non_null(cx);
    assert_int_equal(eval_sum(cx), AN_OK);
    assert_int_equal(eval_sum(cx), AN_OK);
    an_param(cx, "large", AN_F32, AN_SHAPE(25, 1000), AN_ZEROS);
    an_reset(cx);
    assert_int_equal(eval_sum(cx), AN_E_BUDGET);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_that_come_later_count_against_the_budget),
        cmocka_unit_test(predicted_bytes_are_the_requested_bytes_in_every_configuration),
        cmocka_unit_test(a_plan_squeezed_into_a_budget_asks_for_what_it_says_and_no_more_than_allowed),
        cmocka_unit_test(a_step_beyond_the_budget_is_refused_with_the_bill_before_anything_is_requested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
