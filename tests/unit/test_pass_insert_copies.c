/* test_pass_insert_copies.c: a view that its reader cannot read is copied, any other is not. */
#include "plan_case.h"

static int copies(const plan_case *p)
{
    int n = 0;
    for (int32_t id = 0; id < p->c.g->n; id++) n += p->w.node[id].live && p->w.node[id].as_copy;
    return n;
}

static void a_gemm_reads_a_transposed_operand_without_a_copy(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_root(&p, MATMUL(PERMUTE(plan_param(&p, 6, 4), 1, 0), plan_param(&p, 6, 8)));
    plan_run(&p, "insert_copies");
    assert_int_equal(copies(&p), 0);
    plan_close(&p);
}

/* As a kernel that packs an operand which is contiguous along k. */
static bool packs_along_k(const an_target *t, const an_gemm_spec *s)
{
    (void)t;
    return s->b_k == 1 && s->m < 100;
}

static void what_several_small_gemms_would_pack_is_copied_once(void **state)
{
    (void)state;
    const struct {
        int readers, rows;
        bool asks;
    } of[] = {{4, 6, true}, {3, 6, true}, {4, 100, true}, {4, 6, false}};
    for (int i = 0; i < 4; i++) {
        plan_case p;
        plan_open(&p);
        p.target.gemm_repacks = of[i].asks ? packs_along_k : NULL;
        an_tensor *turned = PERMUTE(plan_param(&p, 8, 8), 1, 0), *x = plan_param(&p, of[i].rows, 8);
        for (int k = 0; k < of[i].readers; k++) x = EXP(MATMUL(x, turned));
        plan_root(&p, x);
        plan_run(&p, "insert_copies");
        assert_int_equal(copies(&p), i == 0);
        assert_int_equal(plan_node(&p, turned)->as_copy, i == 0);
        plan_close(&p);
    }
}

static void a_call_gets_a_copy_of_a_transposed_operand(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *turned = PERMUTE(plan_param(&p, 6, 4), 1, 0);
    plan_root(&p, an_cumsum_at(AT, turned, false));
    plan_run(&p, "insert_copies");
    assert_int_equal(copies(&p), 1);
    assert_true(plan_node(&p, turned)->as_copy);
    assert_false(an_is_view(&p.w, turned->id));
    plan_close(&p);
}

static void a_root_that_is_a_view_is_copied_and_one_that_is_all_of_its_base_is_not(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *y = EXP(plan_param(&p, 6, 4)), *part = an_slice_at(AT, y, 0, 1, 3, 1);
    plan_root(&p, y);
    plan_root(&p, an_reshape_at(AT, y, AN_SHAPE(24)));
    plan_root(&p, part);
    plan_run(&p, "insert_copies");
    assert_int_equal(copies(&p), 1);
    assert_true(plan_node(&p, part)->as_copy);
    plan_close(&p);
}

static void uses_are_seen_through_views(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *y = EXP(plan_param(&p, 6, 4)), *z = EXP(PERMUTE(y, 1, 0)), *u = MUL(y, y);
    plan_root(&p, z);
    plan_root(&p, u);
    plan_run(&p, "insert_copies");
    assert_int_equal(plan_node(&p, y)->n_uses, 3); /* z once, u twice */
    assert_int_equal(p.w.use[plan_node(&p, y)->first_use], z->id);
    plan_close(&p);
}

/* At each of nine taps channels that lie apart would be gathered; what only a pointwise window or one channel reads is no matter. */
static void a_window_gets_a_copy_of_channels_that_lie_apart(void **state)
{
    (void)state;
    for (int kernel = 1; kernel <= 3; kernel += 2) {
        plan_case p;
        plan_open(&p);
        an_tensor *x = an_reshape_at(AT, plan_param(&p, 12, 64), AN_SHAPE(2, 6, 8, 8)); /* [N,C,H,W] */
        an_tensor *last = an_permute_at(AT, x, AN_SHAPE(0, 2, 3, 1));
        const an_window s = {.kernel_h = kernel, .kernel_w = kernel, .stride_h = 1, .stride_w = 1};
        plan_root(&p, an_max_pool_at(AT, last, s));
        plan_run(&p, "insert_copies");
        assert_int_equal(copies(&p), kernel == 3);
        assert_int_equal(plan_node(&p, last)->as_copy, kernel == 3);
        plan_close(&p);
    }
}

static bool takes_all_planes(const struct an_target *t, const an_gemm_spec *s)
{
    (void)t, (void)s;
    return true;
}

/* Images [N,C,H,W] that a convolution reads channels last, on a device that takes them so and on one that does not; an image that is turned
 * over is copied by both, and so is one that the step computes: the copy is what computes it. */
static void a_convolution_reads_planes_where_its_device_takes_them(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        plan_case p;
        plan_open(&p);
        const bool takes = variant > 0, turned = variant == 2, computed = variant == 3;
        if (takes) p.target.conv_planes = takes_all_planes;
        an_tensor *x = an_reshape_at(AT, plan_param(&p, 12, 63), AN_SHAPE(2, 6, 7, 9)); /* [N,C,H,W] */
        if (computed) x = an_relu_at(AT, x);
        an_tensor *w = an_reshape_at(AT, plan_param(&p, 16, 54), AN_SHAPE(16, 3, 3, 6));
        an_tensor *last = an_permute_at(AT, x, turned ? AN_SHAPE(0, 3, 2, 1) : AN_SHAPE(0, 2, 3, 1));
        const an_window s = {.kernel_h = 3,
                             .kernel_w = 3,
                             .stride_h = 1,
                             .stride_w = 1,
                             .pad_h = 1,
                             .pad_w = 1,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1};
        an_tensor *y = an_conv2d_at(AT, last, w, NULL, s);
        plan_root(&p, y);
        plan_run(&p, "insert_copies");
        assert_int_equal(plan_node(&p, last)->as_copy, !takes || turned || computed);
        an_gemm_spec spec;
        an_conv_spec(&p.w, y->id, &spec);
        assert_int_equal(spec.window.planes, takes && !turned && !computed ? AN_PLANES_IMAGE : 0);
        plan_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gemm_reads_a_transposed_operand_without_a_copy),
        cmocka_unit_test(what_several_small_gemms_would_pack_is_copied_once),
        cmocka_unit_test(a_call_gets_a_copy_of_a_transposed_operand),
        cmocka_unit_test(a_root_that_is_a_view_is_copied_and_one_that_is_all_of_its_base_is_not),
        cmocka_unit_test(uses_are_seen_through_views),
        cmocka_unit_test(a_window_gets_a_copy_of_channels_that_lie_apart),
        cmocka_unit_test(a_convolution_reads_planes_where_its_device_takes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
