/* test_pass_render.c: kernels of equal text are one kernel. */
#include "plan_case.h"

static void layers_of_equal_shape_share_a_kernel(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *w = plan_param(&p, 16, 16), *y = w;
    p.target.library_gemm = true;
    for (int i = 0; i < 3; i++) y = EXP(MATMUL(y, w));
    plan_root(&p, y);
    plan_run(&p, "render");
    int kernel = -1, loops = 0;
    for (int s = 0; s < p.plan.n_steps; s++) {
        if (p.plan.kernel[p.plan.step[s].kernel].kind != AN_KERNEL_LOOP) continue;
        if (loops++) assert_int_equal(p.plan.step[s].kernel, kernel);
        kernel = p.plan.step[s].kernel;
    }
    assert_int_equal(loops, 3);
    plan_close(&p);
}

static void kernels_that_differ_in_extents_share_their_text(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_root(&p, EXP(plan_param(&p, 1, 4096)));
    plan_root(&p, EXP(plan_param(&p, 1, 8192)));
    plan_run(&p, "render");
    assert_int_equal(p.plan.n_steps, 2);
    assert_int_not_equal(p.plan.step[0].kernel, p.plan.step[1].kernel);
    assert_ptr_equal(p.plan.kernel[0].text, p.plan.kernel[1].text);
    plan_close(&p);
}

static void what_a_dialect_cannot_express_is_named(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.dialect = "msl";
    plan_root(&p, EXP(case_leaf(&p.c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(4, 4), -1, 1)));
    assert_int_equal(plan_try(&p, "render"), AN_E_UNSUPPORTED);
    assert_non_null(strstr(p.c.cx.err.text, "[4,4]"));
    assert_non_null(strstr(p.c.cx.err.text, "float64"));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_equal_shape_share_a_kernel),
        cmocka_unit_test(kernels_that_differ_in_extents_share_their_text),
        cmocka_unit_test(what_a_dialect_cannot_express_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
