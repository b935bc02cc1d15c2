/* test_pass_verify.c: a plan that is damaged by hand is found out. */
#include "plan_case.h"

static an_tensor *plan(plan_case *p)
{
    plan_open(p);
    p->target.library_gemm = true;
    an_tensor *w = plan_param(p, 64, 64), *y = MATMUL(w, w);
    an_tensor *z = ADD(MATMUL(y, w), PERMUTE(y, 1, 0));
    plan_root(p, z);
    plan_run(p, NULL);
    assert_int_equal(an_verify_plan(&p->c.cx.err, &p->plan), AN_OK);
    return y;
}

static void expect(plan_case *p, const char *sentence)
{
    assert_int_equal(an_verify_plan(&p->c.cx.err, &p->plan), AN_E_INTERNAL);
    if (!strstr(p->c.cx.err.text, sentence)) fail_msg("%s", p->c.cx.err.text);
    plan_close(p);
}

static void two_values_in_one_place(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    assert_true(p.plan.n_values >= 2);
    p.plan.value[1].offset = p.plan.value[0].offset + 64;
    p.plan.value[1].first = p.plan.value[0].first;
    p.plan.value[1].inside = -1;
    expect(&p, "live together at one place");
}

static void a_value_behind_the_arena(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    p.plan.value[0].offset = p.plan.arena_bytes;
    expect(&p, "leaves the arena");
}

static void a_read_before_the_write(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    const an_plan_step first = p.plan.step[0];
    p.plan.step[0] = p.plan.step[1];
    p.plan.step[1] = first;
    expect(&p, "is read before it is written");
}

static void scratch_behind_the_arena(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    p.plan.step[0].scratch = p.plan.arena_bytes;
    p.plan.step[0].scratch_bytes = 1;
    expect(&p, "scratch leaves the arena");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_values_in_one_place),
        cmocka_unit_test(a_value_behind_the_arena),
        cmocka_unit_test(a_read_before_the_write),
        cmocka_unit_test(scratch_behind_the_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
