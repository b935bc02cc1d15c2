/* test_pass_gather_weights.c: parameters that ranks have parts of are gathered ahead of use, and again after a long time. */
#include "plan_case.h"

enum { RANKS = 4, SIDE = 512, PARAM_BYTES = SIDE * SIDE * 4, PARAMS = 3 };

/* The parameters are leaves 0 ... PARAMS - 1, one behind the other in a block of slot AN_SLOT_FIRST. */
static an_leaf_place in_parts(void *user, an_leaf kind, int index)
{
    an_leaf_place at = plan_leaf(user, kind, index);
    if (kind != AN_LEAF_PARAM) return at;
    at.slot = AN_SLOT_FIRST;
    at.offset = (int64_t)index * at.bytes; /* all have one size */
    at.part_bytes = (int64_t)PARAMS * PARAM_BYTES / RANKS;
    at.whole_bytes = (int64_t)PARAMS * PARAM_BYTES;
    at.dtype = AN_F32;
    return at;
}

/* x times each of the parameters, then `idle` launches that read none, then times parameter 0 again. */
static an_tensor *make(plan_case *p, int idle)
{
    plan_open(p);
    p->rq.leaf = in_parts;
    p->rq.unfused = true;
    p->c.g->ranks = RANKS;
    an_tensor *w[PARAMS];
    for (int i = 0; i < PARAMS; i++) w[i] = plan_param(p, SIDE, SIDE);
    an_tensor *x = plan_state(p, 4, SIDE);
    for (int i = 0; i < PARAMS; i++) x = MATMUL(x, w[i]);
    for (int i = 0; i < idle; i++) x = EXP(x);
    x = MATMUL(x, w[0]);
    plan_root(p, x);
    return x;
}

static bool is_gather(const plan_case *p, int step)
{
    const an_kernel *k = &p->plan.kernel[p->plan.step[step].kernel];
    return k->kind == AN_KERNEL_CALL && k->u.call.op == AN_OP_ALLGATHER;
}

static int gathers(const plan_case *p)
{
    int n = 0;
    for (int s = 0; s < p->plan.n_steps; s++) n += is_gather(p, s);
    return n;
}

/* Whether every operand is memory, and of a parameter that the step before it (or an earlier one) gathered. */
static void every_reader_has_memory(const plan_case *p)
{
    for (int s = 0; s < p->plan.n_steps; s++)
        for (int a = 0; a < p->plan.step[s].n_args; a++) assert_true(p->plan.step[s].arg[a].slot < AN_SLOT_IN_PARTS);
}

static void each_is_gathered_before_its_first_reader_and_again_after_a_long_time(void **state)
{
    plan_case p;
    (void)state;
    make(&p, 40);
    plan_run(&p, "gather_weights");
    every_reader_has_memory(&p);
    assert_int_equal(gathers(&p), PARAMS + 1);
    assert_true(is_gather(&p, 0) && is_gather(&p, 2) && is_gather(&p, 4) && is_gather(&p, p.plan.n_steps - 2));
    const an_library_call_spec *call = &p.plan.kernel[p.plan.step[2].kernel].u.call;
    assert_int_equal(call->attr[0], RANKS);
    assert_int_equal(call->attr[1], PARAMS * SIDE * SIDE / RANKS);
    assert_int_equal(call->attr[2], SIDE * SIDE);
    assert_int_equal(call->out[0].shape[0], SIDE * SIDE);
    assert_int_equal(p.plan.step[2].arg[0].slot, AN_SLOT_FIRST);
    assert_int_equal(p.plan.step[2].arg[1].value, p.plan.step[3].arg[1].value);
    plan_close(&p);
}

static void soon_again_it_is_still_there(void **state)
{
    plan_case p;
    (void)state;
    make(&p, 1);
    plan_run(&p, "gather_weights");
    assert_int_equal(gathers(&p), PARAMS);
    every_reader_has_memory(&p);
    plan_close(&p);
}

static void ahead_the_next_is_gathered_before_the_launch_that_reads_this_one(void **state)
{
    plan_case p;
    (void)state;
    make(&p, 40);
    p.rq.gather_ahead = true;
    plan_run(&p, "gather_weights");
    every_reader_has_memory(&p);
    assert_true(is_gather(&p, 0) && is_gather(&p, 1) && is_gather(&p, 3) && is_gather(&p, 5));
    assert_int_equal(gathers(&p), PARAMS + 1);
    plan_close(&p);
}

static void in_the_end_few_are_in_memory_at_once(void **state)
{
    plan_case p;
    (void)state;
    make(&p, 40);
    plan_run(&p, NULL);
    an_err err = {0};
    assert_int_equal(an_verify_plan(&err, &p.plan), AN_OK);
    assert_true(p.plan.arena_bytes < 2 * PARAM_BYTES);
    plan_close(&p);
}

static void neighbours_that_are_small_are_gathered_together(void **state)
{
    plan_case p;
    (void)state;
    plan_open(&p);
    p.rq.leaf = in_parts;
    p.c.g->ranks = RANKS;
    an_tensor *a = plan_param(&p, 8, 8), *b = plan_param(&p, 8, 8);
    plan_root(&p, ADD(a, b));
    plan_run(&p, "gather_weights");
    assert_int_equal(gathers(&p), 1);
    assert_int_equal(p.plan.kernel[p.plan.step[0].kernel].u.call.out[0].shape[0], 128);
    every_reader_has_memory(&p);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_gathered_before_its_first_reader_and_again_after_a_long_time),
        cmocka_unit_test(soon_again_it_is_still_there),
        cmocka_unit_test(ahead_the_next_is_gathered_before_the_launch_that_reads_this_one),
        cmocka_unit_test(in_the_end_few_are_in_memory_at_once),
        cmocka_unit_test(neighbours_that_are_small_are_gathered_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
