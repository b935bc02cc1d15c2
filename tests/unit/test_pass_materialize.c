/* test_pass_materialize.c: what is written to memory and what is computed again by each reader. */
#include "plan_case.h"

static void operands_and_roots_are_stored_and_what_lies_between_is_not(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *a = EXP(x), *b = MUL(a, x), *y = MATMUL(b, x);
    plan_root(&p, y);
    plan_run(&p, "materialize");
    assert_true(plan_stored(&p, b) && plan_node(&p, b)->operand);
    assert_true(plan_stored(&p, y));
    assert_false(plan_stored(&p, a));
    plan_close(&p);
}

static void a_cheap_node_is_computed_again_by_another_group(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *a = MUL(x, x);
    plan_root(&p, SUM(a, AN_AXIS(0)));
    plan_root(&p, SUM(ADD(PERMUTE(a, 1, 0), x), AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_false(plan_stored(&p, a));
    plan_close(&p);
}

static void a_dear_node_is_stored_for_another_group(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *a = x;
    for (int i = 0; i < 8; i++) a = EXP(a); /* 96 operations, the limit is 64 */
    plan_root(&p, SUM(a, AN_AXIS(0)));
    plan_root(&p, SUM(PERMUTE(a, 1, 0), AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_true(plan_stored(&p, a));
    plan_close(&p);
}

static void a_gemm_that_another_group_reads_is_stored(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *h = MATMUL(x, x);
    plan_root(&p, SUM(h, AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_true(plan_stored(&p, h));
    plan_close(&p);
}

static void random_numbers_are_never_stored(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *r = an_rand_at(AT, &p.c.cx, AN_SHAPE(8, 8)), *x = plan_param(&p, 8, 8);
    plan_root(&p, SUM(MUL(r, x), AN_AXIS(0)));
    plan_root(&p, SUM(ADD(r, x), AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_false(plan_stored(&p, r));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_and_roots_are_stored_and_what_lies_between_is_not),
        cmocka_unit_test(a_cheap_node_is_computed_again_by_another_group),
        cmocka_unit_test(a_dear_node_is_stored_for_another_group),
        cmocka_unit_test(a_gemm_that_another_group_reads_is_stored),
        cmocka_unit_test(random_numbers_are_never_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
