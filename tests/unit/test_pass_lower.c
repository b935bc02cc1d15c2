/* test_pass_lower.c: groups become steps: kernels, specs, arguments. */
#include "plan_case.h"

#include "plan_remat.h"

static const an_plan_step *step_of(const plan_case *p, an_kernel_kind kind)
{
    for (int s = 0; s < p->plan.n_steps; s++)
        if (p->plan.kernel[p->plan.step[s].kernel].kind == kind) return &p->plan.step[s];
    fail_msg("no step of kind %d", kind);
    return NULL;
}

static void batch_rows_are_merged_into_m(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = case_leaf(&p.c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(3, 5, 4), -1, 1);
    plan_root(&p, MATMUL(x, plan_param(&p, 4, 6)));
    plan_run(&p, "lower");
    const an_gemm_spec *g = &p.plan.kernel[step_of(&p, AN_KERNEL_GEMM)->kernel].u.gemm;
    assert_int_equal(g->m, 15);
    assert_int_equal(g->n, 6);
    assert_int_equal(g->k, 4);
    assert_int_equal(g->nb[0] * g->nb[1] * g->nb[2], 1);
    plan_close(&p);
}

static void a_transposed_result_exchanges_the_operands(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *y = MATMUL(plan_param(&p, 4, 6), plan_param(&p, 6, 8)); /* [4,8], stored as [8,4] */
    plan_root(&p, PERMUTE(y, 1, 0));
    plan_run(&p, "lower");
    const an_gemm_spec *g = &p.plan.kernel[step_of(&p, AN_KERNEL_GEMM)->kernel].u.gemm;
    assert_int_equal(p.plan.n_steps, 1);
    assert_int_equal(g->m, 8);
    assert_int_equal(g->n, 4);
    assert_int_equal(g->c_m, 4);
    plan_close(&p);
}

/* [0,3] x [3,4] and [4,3] x [3,0], read transposed: a GEMM group without rows or columns. */
static void a_transposed_gemm_of_zero_extent_is_planned(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++) {
        plan_case p;
        plan_open(&p);
        an_tensor *a = case_leaf(&p.c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(side ? 4 : 0, 3), -1, 1);
        an_tensor *b = case_leaf(&p.c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(3, side ? 0 : 4), -1, 1);
        plan_root(&p, EXP(PERMUTE(MATMUL(a, b), 1, 0)));
        plan_run(&p, NULL);
        assert_int_equal(an_verify_plan(&p.c.cx.err, &p.plan), AN_OK);
        plan_close(&p);
    }
}

static void an_epilogue_is_a_loop_kernel_of_the_gemms_step(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_root(&p, EXP(MATMUL(plan_param(&p, 8, 4), plan_param(&p, 4, 16))));
    plan_run(&p, "lower");
    const an_plan_step *s = step_of(&p, AN_KERNEL_GEMM);
    assert_int_equal(p.plan.n_steps, 1);
    assert_true(s->epilogue >= 0);
    assert_int_equal(s->n_gemm_args, 3);
    assert_int_equal(s->arg[2].slot, -1); /* C is not written: the epilogue stores */
    assert_int_equal(p.plan.kernel[s->epilogue].u.loop->shape, AN_TILE);
    plan_close(&p);
}

static void readers_after_a_copy_read_the_copy(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    layer l = plan_layer(&p, true);
    plan_run(&p, "layout");
    const int32_t original = plan_node(&p, l.a)->value;
    p.cuts.node[l.a->id].own_launch = true;
    assert_int_equal(an_pass_schedule(&p.w), AN_OK);
    assert_int_equal(an_pass_remat_insert(&p.w), AN_OK);
    assert_int_equal(an_pass_lower(&p.w), AN_OK);
    const int32_t copy = plan_node(&p, l.a)->value;
    assert_int_not_equal(copy, original);
    int made = -1, last_of_original = -1, first_of_copy = p.plan.n_steps;
    for (int s = 0; s < p.plan.n_steps; s++) {
        if (p.plan.step[s].recompute) made = s;
        for (int a = 0; a < p.plan.step[s].n_args; a++) {
            if (p.plan.step[s].arg[a].value == original) last_of_original = s;
            if (p.plan.step[s].arg[a].value == copy) first_of_copy = AN_MIN(first_of_copy, s);
        }
    }
    assert_true(made > 0);
    assert_true(last_of_original < made);
    assert_int_equal(first_of_copy, made);
    plan_close(&p);
}

static void a_kernel_of_too_many_buffers_is_cut_and_planned_again(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.max_args = 4;
    an_tensor *sum = plan_param(&p, 4, 4);
    for (int i = 0; i < 6; i++) sum = MUL(ADD(sum, plan_param(&p, 4, 4)), sum);
    plan_root(&p, sum);
    assert_int_equal(plan_try(&p, "lower"), AN_E_UNSUPPORTED);
    assert_true(p.cuts.more);
    assert_int_equal(p.cuts.n_split, 1);
    assert_non_null(strstr(p.cuts.first, "more buffers than a kernel takes"));
    plan_close(&p);
}

/* Whether no sum is divided: what remains are quotients and remainders of the loop variables, which code generation takes out of the
 * loop over 8 elements. */
static bool divides_no_sum(const an_ix_pool *p, an_ix e)
{
    bool none = true;
    for (int i = 0; i < p->expr[e].n; i++) {
        const an_atom *a = &p->atom[p->expr[e].term[i].atom];
        if (a->kind != AN_ATOM_VAR) none &= p->expr[a->e].n == 1 && divides_no_sum(p, a->e);
    }
    return none;
}

/* h_1 h_2 ... and h_0 h_1 ...: the second stack copies what lies in the first at once, and has a launch for h_0 alone. */
static void what_lies_in_another_concatenation_is_one_copy(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *w = plan_param(&p, 8, 8), *h[21] = {plan_param(&p, 4, 8)};
    for (int i = 0; i < 20; i++) h[i + 1] = EXP(MATMUL(h[i], w));
    plan_root(&p, MATMUL(an_concat_at(AT, h + 1, 20, 0), w));
    plan_root(&p, MATMUL(an_concat_at(AT, h, 20, 0), w));
    plan_run(&p, "lower");
    const an_plan_step *copy = step_of(&p, AN_KERNEL_COPY);
    assert_int_equal(plan_steps(&p, AN_KERNEL_COPY), 1);
    assert_int_equal(plan_steps(&p, AN_KERNEL_LOOP), 1);
    assert_int_equal(copy->arg[0].bytes, 19 * 4 * 8 * 4);
    assert_int_equal(copy->arg[0].offset, 0);
    assert_int_equal(copy->arg[1].bytes, 19 * 4 * 8 * 4);
    assert_int_equal(copy->arg[1].offset, 4 * 8 * 4);
    plan_close(&p);
}

/* The parts of a concatenation are read behind a reshape: the coordinate along the joined axis exceeds its part, and guards keep reads
 * inside. */
static void a_reshaped_part_of_a_concatenation_is_read_in_one_piece(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *two = case_leaf(&p.c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(5, 7, 2, 2, 8), -1, 1);
    an_tensor *one = case_leaf(&p.c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(5, 7, 2, 8), -1, 1);
    an_tensor *parts[] = {an_reshape_at(AT, two, AN_SHAPE(5, 7, 2, 16)), an_reshape_at(AT, one, AN_SHAPE(5, 7, 1, 16))};
    plan_root(&p, EXP(an_concat_at(AT, parts, 2, 2)));
    plan_run(&p, "lower");
    const an_loop_kernel *k = p.plan.kernel[step_of(&p, AN_KERNEL_LOOP)->kernel].u.loop;
    int loads = 0;
    for (int i = 0; i < k->n_ins; i++) {
        if (k->ins[i].kind != AN_INS_LOAD) continue;
        loads++;
        assert_true(divides_no_sum(&k->ix, k->ins[i].ix));
    }
    assert_int_equal(loads, 2);
    plan_close(&p);
}

/* Two slices of one vector: each argument begins where its slice does, and the kernels differ in nothing. */
static void slices_of_a_vector_are_arguments_of_their_own_size(void **state)
{
    (void)state;
    enum { N = 4096 };
    plan_case p;
    plan_open(&p);
    an_tensor *vector = case_leaf(&p.c, AN_LEAF_STATE, AN_F32, AN_SHAPE(3 * N), -1, 1);
    for (int i = 0; i < 2; i++) {
        an_tensor *x = plan_state(&p, 1, N);
        an_tensor *slice = an_slice_at(AT, vector, 0, (i + 1) * N, (i + 2) * N, 1);
        plan_root(&p, MATMUL(ADD(an_reshape_at(AT, slice, AN_SHAPE(1, N)), x), plan_state(&p, N, 64)));
    }
    plan_run(&p, "render");
    int found = 0;
    for (int s = 0; s < p.plan.n_steps; s++)
        for (int a = 0; a < p.plan.step[s].n_args; a++) {
            const an_arg *x = &p.plan.step[s].arg[a];
            if (x->slot != AN_SLOT_FIRST) continue;
            assert_int_equal(x->bytes, N * 4);
            assert_int_equal(x->offset, (found + 1) * N * 4);
            found++;
        }
    assert_int_equal(found, 2);
    assert_int_equal(p.plan.step[0].kernel, p.plan.step[2].kernel);
    plan_close(&p);
}

/* A slice that does not begin where a GPU's vectors may, and an element looked up by its number, leave the argument whole. */
static void other_reads_of_a_vector_are_of_the_whole(void **state)
{
    (void)state;
    enum { N = 4096 };
    for (int looked_up = 0; looked_up < 2; looked_up++) {
        plan_case p;
        plan_open(&p);
        if (!looked_up) p.target.dialect = "cuda";
        an_tensor *vector = case_leaf(&p.c, AN_LEAF_STATE, AN_F32, AN_SHAPE(3 * N), -1, 1);
        an_tensor *id = case_leaf(&p.c, AN_LEAF_STATE, AN_I32, AN_SHAPE(N), -1, 1);
        an_tensor *read = looked_up ? an_gather_at(AT, vector, id) : an_slice_at(AT, vector, 0, 3, 3 + N, 1);
        plan_root(&p, EXP(read));
        plan_run(&p, "render");
        assert_int_equal(p.plan.n_steps, 1);
        bool found = false;
        for (int a = 0; a < p.plan.step[0].n_args; a++) {
            const an_arg *x = &p.plan.step[0].arg[a];
            if (x->slot != AN_SLOT_FIRST) continue;
            assert_int_equal(x->bytes, 3 * N * 4);
            assert_int_equal(x->offset, 0);
            found = true;
        }
        assert_true(found);
        plan_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_rows_are_merged_into_m),
        cmocka_unit_test(a_transposed_result_exchanges_the_operands),
        cmocka_unit_test(a_transposed_gemm_of_zero_extent_is_planned),
        cmocka_unit_test(an_epilogue_is_a_loop_kernel_of_the_gemms_step),
        cmocka_unit_test(a_reshaped_part_of_a_concatenation_is_read_in_one_piece),
        cmocka_unit_test(what_lies_in_another_concatenation_is_one_copy),
        cmocka_unit_test(readers_after_a_copy_read_the_copy),
        cmocka_unit_test(a_kernel_of_too_many_buffers_is_cut_and_planned_again),
        cmocka_unit_test(slices_of_a_vector_are_arguments_of_their_own_size),
        cmocka_unit_test(other_reads_of_a_vector_are_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
