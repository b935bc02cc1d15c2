/* test_pass_liveness.c: what the roots need is live, and nothing else. */
#include "plan_case.h"

static void only_what_a_root_reaches_is_live(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 4, 4), *y = EXP(x), *unused = MUL(y, y), *z = ADD(y, x);
    plan_root(&p, z);
    plan_run(&p, "liveness");
    assert_true(plan_node(&p, z)->live && plan_node(&p, y)->live);
    assert_false(plan_node(&p, unused)->live);
    assert_int_equal(p.w.n_live, 3); /* the leaf, y, z */
    plan_close(&p);
}

static void without_roots_nothing_is_live(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    EXP(plan_param(&p, 4, 4));
    plan_run(&p, "liveness");
    assert_int_equal(p.w.n_live, 0);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_a_root_reaches_is_live),
        cmocka_unit_test(without_roots_nothing_is_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
