/* test_pass_assign_states.c: assigned values are written into their state, or copied at the end. */
#include "plan_case.h"

static void assign(plan_case *p, an_tensor *state, an_tensor *value)
{
    an_tensor *src[2] = {an_use(p->c.g, state, AT, "assign"), value};
    an_emit(p->c.g, &(an_emit_args){.op = AN_OP_ASSIGN,
                                    .dtype = AN_F32,
                                    .rank = state->rank,
                                    .shape = state->shape,
                                    .n_src = 2,
                                    .src = src,
                                    .at = AT});
}

static void an_elementwise_update_is_written_into_the_state(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *m = plan_state(&p, 8, 8), *next = an_mul_num_at(AT, m, 0.5);
    assign(&p, m, next);
    plan_run(&p, "assign_states");
    assert_int_equal(p.plan.n_steps, 1);
    assert_true(p.plan.step[0].commit);
    assert_int_equal(plan_value(&p, next)->slot, AN_SLOT_FIRST);
    plan_close(&p);
}

static an_tensor *exchange(plan_case *p, an_op op, an_tensor *t)
{
    const int64_t ranks = p->c.g->ranks = 4;
    return an_emit(p->c.g, &(an_emit_args){.op = op, .n_src = 1, .src = &t, .n_attr = 1, .attr = &ranks, .at = AT});
}

static void an_exchange_between_ranks_writes_the_state_and_nothing_is_copied(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *m = plan_state(&p, 8, 8);
    an_tensor *mine = an_mul_num_at(AT, an_slice_at(AT, m, 0, 2, 4, 1), 0.5); /* of rank 1 */
    an_tensor *next = an_reshape_at(AT, exchange(&p, AN_OP_ALLGATHER, mine), AN_SHAPE(8, 8));
    assign(&p, m, next);
    plan_run(&p, "assign_states");
    assert_int_equal(p.plan.n_steps, 2);
    assert_false(p.plan.step[0].commit);
    assert_true(p.plan.step[1].commit);
    assert_int_equal(p.plan.bill.copies, 0);
    plan_close(&p);
}

static void an_exchange_that_reads_the_state_is_copied_at_the_end(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *m = plan_state(&p, 8, 8), *sum = exchange(&p, AN_OP_ALLREDUCE, m);
    assign(&p, m, sum);
    plan_run(&p, "assign_states");
    assert_int_equal(p.plan.n_steps, 2);
    assert_true(p.plan.step[1].commit);
    assert_int_equal(p.plan.bill.copies, 1);
    plan_close(&p);
}

static void a_value_that_reads_the_state_at_other_places_is_copied_at_the_end(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *m = plan_state(&p, 8, 8), *next = EXP(PERMUTE(m, 1, 0));
    assign(&p, m, next);
    plan_run(&p, "assign_states");
    assert_int_equal(p.plan.n_steps, 2);
    assert_false(p.plan.step[0].commit);
    assert_true(p.plan.step[1].commit);
    assert_int_equal(plan_steps(&p, AN_KERNEL_COPY), 1);
    assert_int_equal(plan_value(&p, next)->slot, AN_SLOT_ARENA);
    plan_close(&p);
}

static void two_states_that_are_exchanged_save_one_old_value_each(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *a = plan_state(&p, 8, 8), *b = plan_state(&p, 8, 8);
    assign(&p, a, an_use(p.c.g, b, AT, "b"));
    assign(&p, b, an_use(p.c.g, a, AT, "a"));
    plan_run(&p, "assign_states");
    assert_int_equal(p.plan.n_steps, 4); /* old a, old b, commit a, commit b */
    for (int s = 0; s < 4; s++) assert_int_equal(p.plan.step[s].commit, s >= 2);
    plan_close(&p);
}

static void a_product_of_others_is_written_into_the_state(void **state)
{
    (void)state;
    for (int epilogue = 0; epilogue < 2; epilogue++) {
        plan_case p;
        plan_open(&p);
        an_tensor *a = plan_state(&p, 8, 8), *b = plan_state(&p, 8, 8), *y = plan_state(&p, 8, 8), *next = MATMUL(a, b);
        if (epilogue) next = ADD(next, b);
        assign(&p, y, next);
        plan_run(&p, "assign_states");
        assert_int_equal(p.plan.bill.copies, 0);
        assert_int_equal(p.plan.n_steps, 1);
        assert_true(p.plan.step[0].commit);
        assert_true(plan_value(&p, next)->slot != AN_SLOT_ARENA);
        plan_close(&p);
    }
}

static void a_product_that_reads_the_state_is_copied_at_the_end(void **state)
{
    (void)state;
    for (int of = 0; of < 3; of++) { /* as an operand, in its epilogue, behind it */
        plan_case p;
        plan_open(&p);
        an_tensor *a = plan_state(&p, 8, 8), *b = plan_state(&p, 8, 8), *y = plan_state(&p, 8, 8);
        an_tensor *next = MATMUL(a, of == 0 ? y : b), *later = NULL;
        if (of == 1) next = ADD(next, y);
        if (of == 2) later = MATMUL(next, y);
        assign(&p, y, next);
        if (later) assign(&p, b, later);
        plan_run(&p, "assign_states");
        assert_int_equal(plan_value(&p, next)->slot, AN_SLOT_ARENA);
        assert_true(p.plan.bill.copies >= 1);
        plan_close(&p);
    }
}

/* Two gradients of a block that is kept in `store`, each plus a part of it. */
enum { PART_ROWS = 64, PART = PART_ROWS * PART_ROWS };

static int64_t two_parts(void *user, int block, int source, int64_t *block_bytes)
{
    (void)user, (void)block;
    *block_bytes = 2 * PART * 4;
    return (int64_t)source * PART * 4;
}

static an_tensor *part_of(an_tensor *store, int i)
{
    return an_reshape_at(AT, an_slice_at(AT, store, 0, i * PART, (i + 1) * PART, 1), AN_SHAPE(PART_ROWS, PART_ROWS));
}

/* Gradient i is added to part of[i] of the store, unless that is below 0. Returns the packed sums, assigned to the store. */
static an_tensor *add_to_store(plan_case *p, const int of[2], an_tensor **store, an_tensor **second)
{
    plan_open(p);
    p->rq.pack = two_parts;
    an_tensor *grad[2], *x = plan_state(p, PART_ROWS, PART_ROWS);
    *store = case_leaf(&p->c, AN_LEAF_STATE, AN_F32, AN_SHAPE(2 * PART), -1, 1);
    for (int i = 0; i < 2; i++) {
        grad[i] = x = MATMUL(x, x);
        if (of[i] >= 0) grad[i] = ADD(part_of(*store, of[i]), x);
    }
    *second = x;
    an_tensor *sums = plan_packed(p, grad, 2, 2 * PART);
    assign(p, *store, sums);
    return sums;
}

static void packed_sums_are_written_into_the_store_that_they_add_to(void **state)
{
    (void)state;
    static const int cases[][2] = {{0, 1}, {-1, -1}, {-1, 1}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        plan_case p;
        an_tensor *store, *second, *sums = add_to_store(&p, cases[i], &store, &second);
        plan_run(&p, "assign_states");
        assert_int_equal(p.plan.bill.copies, 0);
        assert_int_equal(plan_value(&p, sums)->slot, AN_SLOT_FIRST + 1);
        int commits = 0;
        for (int s = 0; s < p.plan.n_steps; s++) commits += p.plan.step[s].commit;
        assert_int_equal(commits, 2);
        plan_close(&p);
    }
}

static void packed_sums_that_read_what_is_overwritten_are_copied_at_the_end(void **state)
{
    (void)state;
    plan_case p;
    an_tensor *store, *second, *sums = add_to_store(&p, (const int[]){1, 0}, &store, &second);
    plan_run(&p, "assign_states");
    assert_int_equal(p.plan.bill.copies, 1);
    assert_int_equal(plan_value(&p, sums)->slot, AN_SLOT_ARENA);
    plan_close(&p);
}

static void packed_sums_of_a_store_that_is_read_later_are_copied_at_the_end(void **state)
{
    (void)state;
    plan_case p;
    an_tensor *store, *second, *sums = add_to_store(&p, (const int[]){0, 1}, &store, &second);
    plan_root(&p, MATMUL(second, an_add_at(AT, part_of(store, 0), second))); /* the old part, behind the first sum */
    plan_run(&p, "assign_states");
    assert_int_equal(p.plan.bill.copies, 1);
    assert_int_equal(plan_value(&p, sums)->slot, AN_SLOT_ARENA);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_elementwise_update_is_written_into_the_state),
        cmocka_unit_test(an_exchange_between_ranks_writes_the_state_and_nothing_is_copied),
        cmocka_unit_test(an_exchange_that_reads_the_state_is_copied_at_the_end),
        cmocka_unit_test(a_product_of_others_is_written_into_the_state),
        cmocka_unit_test(a_product_that_reads_the_state_is_copied_at_the_end),
        cmocka_unit_test(a_value_that_reads_the_state_at_other_places_is_copied_at_the_end),
        cmocka_unit_test(two_states_that_are_exchanged_save_one_old_value_each),
        cmocka_unit_test(packed_sums_are_written_into_the_store_that_they_add_to),
        cmocka_unit_test(packed_sums_that_read_what_is_overwritten_are_copied_at_the_end),
        cmocka_unit_test(packed_sums_of_a_store_that_is_read_later_are_copied_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
