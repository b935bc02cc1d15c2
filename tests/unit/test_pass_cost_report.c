/* test_pass_cost_report.c: launches, kernels, operations and bytes of a plan. */
#include "plan_case.h"

static void a_plan_of_two_gemms_is_counted(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.library_gemm = true;
    p.rq.persistent_bytes = 1000;
    an_tensor *x = plan_param(&p, 8, 16), *w = plan_param(&p, 16, 16), *y = EXP(MATMUL(MATMUL(x, w), w));
    plan_root(&p, y);
    plan_run(&p, NULL);
    const an_bill *b = &p.plan.bill;
    assert_int_equal(b->launches, 3);
    assert_int_equal(b->kernels, 1); /* GEMMs have no text */
    assert_int_equal(b->flops, 2 * 2 * 8 * 16 * 16 + 12 * 8 * 16);
    assert_int_equal(b->moved_bytes, (2 * (8 * 16 + 16 * 16 + 8 * 16) + 2 * 8 * 16) * 4);
    assert_int_equal(b->activation_bytes, 2 * 8 * 16 * 4); /* y takes the memory of what it reads */
    assert_int_equal(b->peak_bytes, 1000 + (uint64_t)p.plan.arena_bytes + b->input_bytes);
    assert_non_null(strstr(p.plan.text_plan, "3 steps"));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_of_two_gemms_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
