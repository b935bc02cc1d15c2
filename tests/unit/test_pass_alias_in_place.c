/* test_pass_alias_in_place.c: which outputs take the memory of an input. */
#include "plan_case.h"

/* y = exp(h) where h is a GEMM's result; `again`: h is a root too. */
static bool aliases(plan_case *p, bool again, bool elsewhere)
{
    plan_open(p);
    p->target.library_gemm = true; /* no epilogue: exp is a launch of its own */
    an_tensor *x = plan_param(p, 8, 8), *h = MATMUL(x, x), *y = elsewhere ? EXP(PERMUTE(h, 1, 0)) : EXP(h);
    plan_root(p, elsewhere ? ADD(y, h) : y);
    if (again) plan_root(p, h);
    plan_run(p, "alias_in_place");
    const an_tensor *out = p->c.g->node[p->root[0]];
    return plan_value(p, out)->inside == p->w.node[h->id].value;
}

static void an_elementwise_result_takes_the_memory_of_an_input_that_dies(void **state)
{
    (void)state;
    plan_case p;
    assert_true(aliases(&p, false, false));
    plan_close(&p);
}

static void not_when_the_input_is_read_later(void **state)
{
    (void)state;
    plan_case p;
    assert_false(aliases(&p, true, false));
    plan_close(&p);
}

static void not_when_the_input_is_read_at_other_places(void **state)
{
    (void)state;
    plan_case p;
    assert_false(aliases(&p, false, true));
    plan_close(&p);
}

/* An int is not written over a float: compilers assume that the two never share memory. */
static void not_when_the_types_differ(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        plan_case p;
        plan_open(&p);
        p.target.library_gemm = true;
        an_tensor *x = plan_param(&p, 8, 8), *h = MATMUL(x, x), *y = i ? an_cast_at(AT, h, AN_I32) : EXP(h);
        plan_root(&p, y);
        plan_run(&p, "alias_in_place");
        const bool inside = plan_value(&p, p.c.g->node[p.root[0]])->inside == p.w.node[h->id].value;
        assert_int_equal(inside, !i);
        plan_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_elementwise_result_takes_the_memory_of_an_input_that_dies),
        cmocka_unit_test(not_when_the_input_is_read_later),
        cmocka_unit_test(not_when_the_input_is_read_at_other_places),
        cmocka_unit_test(not_when_the_types_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
