/* test_pass_scatter_gradients.c: packed gradients are exchanged in pieces behind their last launch, their memory is used again, and
 * the sums have memory as far as they are filled (filled_ranges.c). */
#include "plan_case.h"

#include "comm/comm.h"

/* Eight gradients of half a MiB, computed from the last one of the block to the first: pieces of two. */
enum { GRADS = 8, ROWS = 128, COLS = 1024, GRAD_BYTES = ROWS * COLS * 4, PIECES = 4, RANKS = 2 };
enum { ELEMENTS = GRADS * ROWS * COLS, PART = ELEMENTS / RANKS };

static int64_t in_order(void *user, int block, int source, int64_t *block_bytes)
{
    (void)user, (void)block;
    *block_bytes = (int64_t)GRADS * GRAD_BYTES;
    return (int64_t)GRAD_BYTES * source;
}

static an_tensor *reduce_scatter(plan_case *p, an_tensor *x, bool early)
{
    const int64_t attr[2] = {RANKS, early};
    return an_emit(
        p->c.g,
        &(an_emit_args){
            .op = AN_OP_REDUCESCATTER, .dtype = AN_F32, .n_src = 1, .src = &x, .n_attr = 2, .attr = attr, .at = AT});
}

/* Returns the packed gradients; *sums: this rank's part of their sums over ranks. */
static an_tensor *make(plan_case *p, int rank, bool early, bool side_by_side, an_tensor **sums)
{
    plan_open(p);
    p->rq.pack = in_order;
    p->target.side_by_side = side_by_side;
    p->c.g->ranks = RANKS;
    p->c.g->rank = rank;
    an_tensor *grad[GRADS], *x = plan_state(p, ROWS, ROWS), *w = plan_param(p, ROWS, COLS);
    for (int i = GRADS - 1; i >= 0; i--) {
        x = MATMUL(x, x);
        grad[i] = MATMUL(x, w);
    }
    an_tensor *block = plan_packed(p, grad, GRADS, ELEMENTS);
    *sums = reduce_scatter(p, block, early);
    plan_root(p, an_cast_at(AT, *sums, AN_BF16)); /* of another size: not in place */
    return block;
}

static const an_library_call_spec *exchange(const plan_case *p, int s)
{
    const an_kernel *k = &p->plan.kernel[p->plan.step[s].kernel];
    return k->kind == AN_KERNEL_CALL && k->u.call.op == AN_OP_REDUCESCATTER ? &k->u.call : NULL;
}

/* at[i]: the step of the i-th exchange. */
static int find_exchanges(const plan_case *p, int at[GRADS + 1])
{
    int n = 0;
    for (int s = 0; s < p->plan.n_steps && n <= GRADS; s++)
        if (exchange(p, s)) at[n++] = s;
    return n;
}

/* Launches before step s that write into the value that the step exchanges, and the last of them. */
static int writers(const plan_case *p, int s, int *last)
{
    const int32_t v = p->plan.step[s].arg[0].value;
    int n = 0;
    for (int t = 0; t < s; t++)
        for (int a = 0; a < p->plan.step[t].n_args; a++) {
            const an_arg *to = &p->plan.step[t].arg[a];
            if (!to->written || to->value < 0) continue;
            if (to->value != v && p->plan.value[to->value].inside != v) continue;
            n++;
            *last = t;
        }
    return n;
}

static void each_piece_is_exchanged_behind_its_last_gradient(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        plan_case p;
        an_tensor *sums;
        int at[GRADS + 1], last = -1;
        make(&p, rank, true, false, &sums);
        plan_run(&p, "scatter_gradients");
        assert_int_equal(find_exchanges(&p, at), PIECES);
        for (int i = 0; i < PIECES; i++) {
            const an_library_call_spec *k = exchange(&p, at[i]);
            const int64_t from =
                (int64_t)(PIECES - 1 - i) * ELEMENTS / PIECES; /* the last computed is first in the block */
            assert_int_equal(k->attr[2], PART);
            assert_int_equal(k->attr[3], from);
            assert_int_equal(k->src[0].shape[0], ELEMENTS / PIECES);
            const an_arg *piece = &p.plan.step[at[i]].arg[0], *part = &p.plan.step[at[i]].arg[1];
            assert_int_equal(piece->offset, 0);
            assert_int_equal(piece->bytes, 2 * GRAD_BYTES);
            assert_int_equal(writers(&p, at[i], &last), 2);
            assert_int_equal(last, at[i] - 1);
            const bool mine = from / PART == rank;
            assert_int_equal(part->bytes, mine ? 2 * GRAD_BYTES : 0);
            if (mine) assert_int_equal(part->offset, (from - (int64_t)rank * PART) * 4);
            for (int j = 0; j < i; j++) assert_int_not_equal(p.plan.step[at[j]].arg[0].value, piece->value);
        }
        plan_close(&p);
    }
}

static void where_launches_run_side_by_side_it_follows_the_next_piece(void **state)
{
    plan_case p;
    an_tensor *sums;
    int at[GRADS + 1], last[PIECES];
    (void)state;
    make(&p, 0, true, true, &sums);
    plan_run(&p, "scatter_gradients");
    assert_int_equal(find_exchanges(&p, at), PIECES);
    for (int i = 0; i < PIECES; i++) assert_int_equal(writers(&p, at[i], &last[i]), 2);
    for (int i = 0; i + 1 < PIECES; i++) assert_true(at[i] > last[i + 1]);
    for (int i = 0; i + 2 < PIECES; i++) assert_true(at[i] < last[i + 2]);
    plan_close(&p);
}

static void exchanges_that_may_not_begin_early_follow_all_gradients(void **state)
{
    plan_case p;
    an_tensor *sums;
    int at[GRADS + 1], last = -1;
    (void)state;
    make(&p, 0, false, true, &sums);
    plan_run(&p, "scatter_gradients");
    assert_int_equal(find_exchanges(&p, at), PIECES);
    for (int i = 0; i < PIECES; i++) {
        assert_int_equal(exchange(&p, at[i])->attr[3], (PIECES - 1 - i) * (ELEMENTS / PIECES));
        assert_int_equal(p.plan.step[at[i]].arg[0].value, p.plan.step[at[0]].arg[0].value);
        assert_int_equal(at[i], at[0] + i);
    }
    assert_int_equal(writers(&p, at[0], &last), GRADS);
    plan_close(&p);
}

static void gradients_that_something_else_reads_stay_whole(void **state)
{
    plan_case p;
    an_tensor *sums;
    int at[GRADS + 1];
    (void)state;
    an_tensor *block = make(&p, 0, true, false, &sums);
    plan_root(&p, EXP(block));
    plan_run(&p, "scatter_gradients");
    assert_int_equal(find_exchanges(&p, at), 1);
    assert_int_equal(exchange(&p, at[0])->attr[2], 0);
    plan_close(&p);
}

/* Bytes that two pieces, exchanged one after the other's end, have in common. */
static void memory_of_a_piece_is_used_again(void **state)
{
    plan_case p;
    an_tensor *sums;
    int at[GRADS + 1];
    bool again = false;
    (void)state;
    make(&p, 0, true, false, &sums);
    plan_run(&p, "assign_buffers");
    assert_int_equal(find_exchanges(&p, at), PIECES);
    for (int i = 0; i < PIECES; i++)
        for (int j = 0; j < i; j++) {
            const an_value *a = &p.plan.value[p.plan.step[at[j]].arg[0].value],
                           *b = &p.plan.value[p.plan.step[at[i]].arg[0].value];
            again |= a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
        }
    assert_true(again);
    plan_close(&p);
}

/* The exchanges fill the second half of rank 1's part, its first half, then those of rank 0's: every rank's part has memory as
 * far as it is filled on any rank. */
static void sums_have_memory_as_far_as_they_are_filled(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        plan_case p;
        an_tensor *sums;
        int at[GRADS + 1], ranges = 0;
        make(&p, rank, true, false, &sums);
        plan_run(&p, "assign_buffers");
        assert_int_equal(find_exchanges(&p, at), PIECES);
        const int32_t of = p.plan.step[at[0]].arg[1].value;
        const an_value *whole = &p.plan.value[of];
        assert_int_equal(whole->first, at[PIECES - 1]);
        for (int32_t v = 0; v < p.plan.n_values; v++) {
            const an_value *range = &p.plan.value[v];
            if (v == of || range->node != whole->node) continue;
            const bool second = range->offset > whole->offset;
            ranges++;
            assert_int_equal(range->bytes, PART * 4 / 2);
            assert_int_equal(range->offset - whole->offset, second ? PART * 4 / 2 : 0);
            assert_int_equal(range->first, at[second ? 0 : 1]);
            assert_int_equal(range->last, at[PIECES - 1] - 1);
        }
        assert_int_equal(ranges, 2);
        plan_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_piece_is_exchanged_behind_its_last_gradient),
        cmocka_unit_test(where_launches_run_side_by_side_it_follows_the_next_piece),
        cmocka_unit_test(exchanges_that_may_not_begin_early_follow_all_gradients),
        cmocka_unit_test(gradients_that_something_else_reads_stay_whole),
        cmocka_unit_test(memory_of_a_piece_is_used_again),
        cmocka_unit_test(sums_have_memory_as_far_as_they_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
