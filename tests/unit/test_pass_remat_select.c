/* test_pass_remat_select.c: which values the backward pass computes again. */
#include "plan_case.h"

#include "plan_remat.h"

static void an_activation_that_the_backward_pass_reads_is_selected(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    layer l = plan_layer(&p, true);
    plan_run(&p, "remat_select");
    assert_true(plan_node(&p, l.a)->remat);
    assert_false(plan_node(&p, l.h)->remat); /* a GEMM is not elementwise */
    plan_close(&p);
}

static void without_recomputation_nothing_is_selected(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    layer l = plan_layer(&p, false);
    plan_run(&p, "remat_select");
    assert_true(plan_stored(&p, l.a));
    for (int32_t id = 0; id < p.c.g->n; id++) assert_false(p.w.node[id].remat);
    plan_close(&p);
}

static void a_value_whose_copy_outgrew_a_kernel_is_kept(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    layer l = plan_layer(&p, true);
    plan_run(&p, "materialize");
    p.cuts.node[l.a->id].keep = true;
    assert_int_equal(an_pass_remat_select(&p.w), AN_OK);
    assert_false(plan_node(&p, l.a)->remat);
    plan_close(&p);
}

static void outputs_of_a_group_are_its_stored_members_in_order(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_layer(&p, true);
    plan_run(&p, "remat_select");
    for (int g = 0; g < p.w.n_groups; g++) {
        const an_fusion_group *gr = &p.w.group[g];
        int stored = 0;
        for (int m = 0; m < gr->n_members; m++) {
            if (!p.w.node[gr->member[m]].stored) continue;
            assert_int_equal(gr->out[stored], gr->member[m]);
            stored++;
        }
        assert_int_equal(stored, gr->n_out);
    }
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_activation_that_the_backward_pass_reads_is_selected),
        cmocka_unit_test(without_recomputation_nothing_is_selected),
        cmocka_unit_test(a_value_whose_copy_outgrew_a_kernel_is_kept),
        cmocka_unit_test(outputs_of_a_group_are_its_stored_members_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
