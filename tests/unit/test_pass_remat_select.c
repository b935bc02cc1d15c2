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

/* a = tanh(g) u of two GEMMs; da makes gradients of both, so both are alive in the backward pass anyway. With `apart` the
 * gradient does not reach g, which a copy of `a` would keep alive beside u. */
static bool gate_is_selected(bool apart)
{
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 16, 8), *w2 = plan_param(&p, 8, 8);
    an_tensor *g = MATMUL(x, plan_param(&p, 8, 8)), *u = MATMUL(x, plan_param(&p, 8, 8)); /* [16,8] */
    an_tensor *t = an_tanh_at(AT, g), *a = MUL(apart ? an_detach_at(AT, t) : t, apart ? an_detach_at(AT, u) : u);
    an_tensor *y = MATMUL(a, w2);
    an_tensor *loss = an_reshape_at(AT, SUM(MUL(y, y), AN_ALL), (an_shape){.rank = 0});
    if (an_graph_backward(p.c.g, loss) != AN_OK) fail_msg("%s", p.c.cx.err.text);
    p.rq.recompute = AN_RECOMPUTE_ON;
    p.rq.loss = loss->id;
    plan_root(&p, loss);
    plan_root(&p, an_graph_grad(p.c.g, w2));
    if (!apart) plan_root(&p, an_graph_grad(p.c.g, x));
    plan_run(&p, "remat_select");
    const bool selected = plan_node(&p, a)->remat;
    plan_close(&p);
    return selected;
}

static void a_product_of_two_values_is_selected_where_the_backward_pass_keeps_both(void **state)
{
    (void)state;
    assert_true(gate_is_selected(false));
    assert_false(gate_is_selected(true));
}

typedef enum halves {
    BOTH,
    ONE,
    AND_WHOLE
} halves; /* which rows of the product are read: gate alone; a root shows all */

/* A device that gates rows of sums up to 1024, at no cost of time up to 256, where there are columns enough. */
static an_gating gates(const an_target *t, int64_t m, int64_t n, int64_t k)
{
    (void)t;
    return m % 128 || n < 16384 || k > 1024 ? AN_GATES_NOT : k <= 256 ? AN_GATES_AGAIN : AN_GATES;
}

/* a = tanh(gate) up of [gate; up] = w x in bf16, on that device or another: is the product selected? `kept`: the dtype of w, which is
 * stored by columns. */
static bool product_of_is_selected(bool gating, an_dtype kept, int32_t columns, halves of, int32_t K, int recompute)
{
    enum { I = 128 };
    plan_case p;
    plan_open(&p);
    if (gating) p.target.gates = gates;
    p.target.library_gemm = true;
    an_tensor *weights = case_leaf(&p.c, AN_LEAF_PARAM, kept, AN_SHAPE(K, 2 * I), -1, 1),
              *w = an_transpose_at(AT, an_cast_at(AT, weights, AN_BF16), 0, 1),
              *x = case_leaf(&p.c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(K, columns), -1, 1),
              *down = case_leaf(&p.c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(8, I), -1, 1);
    an_tensor *both = MATMUL(w, x), *gate = an_slice_at(AT, both, 0, 0, I, 1);
    an_tensor *up = of == ONE ? gate : an_slice_at(AT, both, 0, I, 2 * I, 1);
    an_tensor *y = an_cast_at(AT, MATMUL(down, MUL(an_tanh_at(AT, gate), up)), AN_F32);
    an_tensor *loss = an_reshape_at(AT, SUM(MUL(y, y), AN_ALL), (an_shape){.rank = 0});
    if (an_graph_backward(p.c.g, loss) != AN_OK) fail_msg("%s", p.c.cx.err.text);
    p.rq.recompute = recompute;
    p.rq.loss = loss->id;
    plan_root(&p, loss);
    plan_root(&p, an_graph_grad(p.c.g, weights));
    if (of == AND_WHOLE) plan_root(&p, both);
    plan_run(&p, "remat_select");
    const bool selected = plan_node(&p, both)->remat;
    plan_close(&p);
    return selected;
}

static bool product_is_selected(int32_t columns, halves of, int32_t K, int recompute)
{
    return product_of_is_selected(true, AN_BF16, columns, of, K, recompute);
}

static void a_product_is_selected_where_its_halves_are_gated(void **state)
{
    (void)state;
    assert_true(product_is_selected(33024, BOTH, 97, AN_RECOMPUTE_ON));
    assert_true(product_is_selected(33024, BOTH, 97, AN_RECOMPUTE_CHEAP));
    assert_true(product_is_selected(33024, BOTH, 512, AN_RECOMPUTE_ON));
    assert_false(product_is_selected(33024, BOTH, 512, AN_RECOMPUTE_CHEAP)); /* costs time */
    assert_false(product_is_selected(33024, BOTH, 1025, AN_RECOMPUTE_ON));
    assert_false(product_of_is_selected(false, AN_BF16, 33024, BOTH, 97, AN_RECOMPUTE_ON));
    assert_false(product_is_selected(1024, BOTH, 97, AN_RECOMPUTE_ON)); /* few tiles */
    assert_false(product_is_selected(33024, ONE, 97, AN_RECOMPUTE_ON));
    assert_false(product_is_selected(33024, AND_WHOLE, 97, AN_RECOMPUTE_ON));
    assert_false(product_is_selected(33020, BOTH, 97, AN_RECOMPUTE_ON)); /* rows of x that begin between 16 bytes */
    assert_true(product_of_is_selected(true, AN_F32, 33024, BOTH, 97, AN_RECOMPUTE_ON)); /* the cast is stored */
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
        cmocka_unit_test(a_product_of_two_values_is_selected_where_the_backward_pass_keeps_both),
        cmocka_unit_test(a_product_is_selected_where_its_halves_are_gated),
        cmocka_unit_test(without_recomputation_nothing_is_selected),
        cmocka_unit_test(a_value_whose_copy_outgrew_a_kernel_is_kept),
        cmocka_unit_test(outputs_of_a_group_are_its_stored_members_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
