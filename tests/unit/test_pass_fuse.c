/* test_pass_fuse.c: which nodes share a launch, and which cannot. */
#include "plan_case.h"

static void a_chain_of_elementwise_nodes_is_one_group(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 16), *a = EXP(x), *b = MUL(a, x), *c = ADD(b, a);
    plan_root(&p, c);
    plan_run(&p, "fuse");
    assert_int_equal(p.w.n_groups, 1);
    assert_int_equal(plan_group_of(&p, c)->kind, AN_FUSION_ELEM);
    assert_int_equal(plan_group_of(&p, c)->n_members, 3);
    plan_close(&p);
}

static void a_norm_is_one_row_group_of_two_reductions(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = EXP(plan_param(&p, 8, 16)), *mean = SUM(x, AN_AXIS(1)), *d = ADD(x, mean),
              *sq = SUM(MUL(d, d), AN_AXIS(1)), *y = MUL(d, sq);
    plan_root(&p, y);
    plan_run(&p, "fuse");
    const an_fusion_group *gr = plan_group_of(&p, y);
    assert_int_equal(plan_group(&p, x), plan_group(&p, y));
    assert_int_equal(gr->kind, AN_FUSION_ROW);
    assert_int_equal(gr->n_red, 2);
    assert_int_equal(gr->rows, 8);
    assert_int_equal(gr->cols, 16);
    plan_close(&p);
}

static void row_sums_that_read_one_leaf_are_one_launch(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) { /* whichever of them comes first */
        plan_case p;
        plan_open(&p);
        an_tensor *dy = plan_param(&p, 8, 16), *x = plan_param(&p, 8, 16), *b, *a;
        if (later) {
            b = SUM(MUL(dy, EXP(x)), AN_AXIS(1));
            a = SUM(dy, AN_AXIS(1));
        } else {
            a = SUM(dy, AN_AXIS(1));
            b = SUM(MUL(dy, EXP(x)), AN_AXIS(1));
        }
        plan_root(&p, a);
        plan_root(&p, b);
        plan_run(&p, "fuse");
        assert_int_equal(plan_group(&p, a), plan_group(&p, b));
        assert_int_equal(plan_group_of(&p, a)->kind, AN_FUSION_ROW);
        plan_close(&p);
    }
}

static void row_sums_of_leaves_stay_apart_where_they_share_none_or_something_else_reads_what_they_sum(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 16), *y = plan_param(&p, 8, 16), *e = EXP(x), *a = SUM(x, AN_AXIS(1)),
              *other = SUM(y, AN_AXIS(1)), *b = SUM(e, AN_AXIS(1)), *reader = MUL(e, e);
    plan_root(&p, a);
    plan_root(&p, other);
    plan_root(&p, b);
    plan_root(&p, reader);
    plan_run(&p, "fuse");
    assert_int_not_equal(plan_group(&p, a), plan_group(&p, other));
    assert_int_not_equal(plan_group(&p, a), plan_group(&p, b));
    assert_int_equal(plan_group(&p, b), plan_group(&p, reader));
    plan_close(&p);
}

static void what_follows_a_gemm_is_its_epilogue(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *h = MATMUL(plan_param(&p, 8, 4), plan_param(&p, 4, 16)), *y = EXP(ADD(h, plan_param(&p, 16, 0)));
    plan_root(&p, y);
    plan_run(&p, "fuse");
    assert_int_equal(plan_group(&p, h), plan_group(&p, y));
    assert_int_equal(plan_group_of(&p, y)->kind, AN_FUSION_GEMM);
    plan_close(&p);
}

static void a_gemm_of_a_library_is_closed(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.library_gemm = true;
    an_tensor *h = MATMUL(plan_param(&p, 8, 4), plan_param(&p, 4, 16)), *y = EXP(h);
    plan_root(&p, y);
    plan_run(&p, "fuse");
    assert_int_not_equal(plan_group(&p, h), plan_group(&p, y));
    assert_true(plan_group_of(&p, h)->closed);
    plan_close(&p);
}

static void a_sum_down_the_columns_is_a_group_of_its_own(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = EXP(plan_param(&p, 8, 16)), *s = SUM(x, AN_AXIS(0));
    plan_root(&p, s);
    plan_run(&p, "fuse");
    assert_int_not_equal(plan_group(&p, x), plan_group(&p, s));
    assert_int_equal(plan_group_of(&p, s)->kind, AN_FUSION_COL);
    assert_int_equal(plan_group_of(&p, s)->red, 8);
    plan_close(&p);
}

static void a_reader_at_other_places_does_not_fuse(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = EXP(plan_param(&p, 8, 8)), *y = ADD(x, PERMUTE(x, 1, 0));
    plan_root(&p, y);
    plan_run(&p, "fuse");
    assert_int_not_equal(plan_group(&p, x), plan_group(&p, y));
    plan_close(&p);
}

/* The result of a convolution of groups lies by groups, not in the rows that an epilogue is called for. */
static void a_sum_of_two_convolutions_is_an_epilogue_where_there_is_one_group_of_channels(void **state)
{
    (void)state;
    for (int groups = 1; groups <= 3; groups += 2) {
        plan_case p;
        plan_open(&p);
        an_tensor *y[2];
        for (int i = 0; i < 2; i++) {
            an_tensor *x = case_leaf(&p.c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(2, 3, 4, 18), -1, 1);
            an_tensor *w = case_leaf(&p.c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(15, 1, 1, 18 / groups), -1, 1);
            y[i] = an_conv2d_at(AT, x, w, NULL, (an_window){.groups = groups});
        }
        an_tensor *sum = ADD(y[0], y[1]);
        plan_root(&p, sum);
        plan_run(&p, "fuse");
        const bool fused = plan_group(&p, sum) == plan_group(&p, y[0]) || plan_group(&p, sum) == plan_group(&p, y[1]);
        assert_int_equal(fused, groups == 1);
        plan_close(&p);
    }
}

static void unfused_every_node_is_a_group(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.rq.unfused = true;
    an_tensor *x = plan_param(&p, 8, 16);
    plan_root(&p, EXP(MUL(EXP(x), x)));
    plan_run(&p, "fuse");
    assert_int_equal(p.w.n_groups, 3);
    plan_close(&p);
}

/* Random sums and products of what is there: every group reads older groups only, but for leaf_only ones. */
static void a_group_depends_on_older_groups_only(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *t[60] = {plan_param(&p, 8, 8), plan_param(&p, 8, 8)};
    for (int i = 2; i < 60; i++) {
        an_tensor *a = t[(int)(case_random(&p.c) * i)], *b = t[(int)(case_random(&p.c) * i)];
        const int kind = (int)(case_random(&p.c) * 4);
        t[i] = kind == 0   ? MATMUL(a, b)
               : kind == 1 ? ADD(a, PERMUTE(b, 1, 0))
               : kind == 2 ? MUL(a, b)
                           : ADD(a, SUM(b, AN_AXIS(1)));
    }
    plan_root(&p, t[59]);
    plan_root(&p, t[58]);
    plan_run(&p, "fuse");
    int groups = 0;
    for (int32_t id = 0; id < p.c.g->n; id++) {
        const struct an_tensor *n = p.c.g->node[id];
        for (int s = 0; p.w.node[id].group >= 0 && s < n->n_src; s++) {
            const int32_t from = p.w.node[an_base(&p.w, n->src[s])].group;
            if (from < 0 || p.w.group[from].leaf_only) continue;
            assert_true(from <= p.w.node[id].group);
            groups++;
        }
    }
    assert_true(groups > 10);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_of_elementwise_nodes_is_one_group),
        cmocka_unit_test(a_norm_is_one_row_group_of_two_reductions),
        cmocka_unit_test(row_sums_that_read_one_leaf_are_one_launch),
        cmocka_unit_test(row_sums_of_leaves_stay_apart_where_they_share_none_or_something_else_reads_what_they_sum),
        cmocka_unit_test(what_follows_a_gemm_is_its_epilogue),
        cmocka_unit_test(a_gemm_of_a_library_is_closed),
        cmocka_unit_test(a_sum_down_the_columns_is_a_group_of_its_own),
        cmocka_unit_test(a_reader_at_other_places_does_not_fuse),
        cmocka_unit_test(a_sum_of_two_convolutions_is_an_epilogue_where_there_is_one_group_of_channels),
        cmocka_unit_test(unfused_every_node_is_a_group),
        cmocka_unit_test(a_group_depends_on_older_groups_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
