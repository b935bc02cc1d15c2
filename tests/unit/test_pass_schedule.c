/* test_pass_schedule.c: launches come after what they read, chunks when they are needed, carriers before the first reader. */
#include "plan_case.h"

#include "plan_remat.h"

static int place_of(const plan_case *p, int group)
{
    for (int i = 0; i < p->w.n_groups; i++)
        if (p->w.order[i] == group) return i;
    return -1;
}

static void without_recomputation_the_order_is_that_of_the_groups(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_layer(&p, false);
    plan_run(&p, "schedule");
    for (int g = 0; g < p.w.n_groups; g++) assert_int_equal(p.w.order[g], g);
    plan_close(&p);
}

static void every_group_is_launched_once(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_layer(&p, true);
    plan_run(&p, "schedule");
    for (int g = 0; g < p.w.n_groups; g++) assert_in_range(place_of(&p, g), 0, p.w.n_groups - 1);
    plan_close(&p);
}

static void the_gradient_that_reads_the_same_carries_the_value_before_its_first_reader(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    layer l = plan_layer(&p, true);
    plan_run(&p, "schedule");
    const int carrier = plan_node(&p, l.a)->carrier;
    assert_true(carrier > p.w.loss_group);
    assert_true(place_of(&p, carrier) < place_of(&p, plan_group(&p, l.dw1)));
    plan_close(&p);
}

static void a_chunk_is_launched_when_its_gradient_is(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *w = plan_param(&p, 8, 8), *early = SUM(MUL(x, w), AN_AXIS(0));
    p.c.g->deferred = true;
    an_tensor *chunk = MATMUL(x, w);
    p.c.g->deferred = false;
    an_tensor *after = SUM(MUL(w, w), AN_AXIS(0)), *reader = SUM(MUL(chunk, chunk), AN_AXIS(0));
    p.rq.loss = after->id;
    plan_root(&p, early);
    plan_root(&p, after);
    plan_root(&p, reader);
    plan_run(&p, "schedule");
    assert_true(plan_group(&p, chunk) < plan_group(&p, after));                             /* built before ... */
    assert_true(place_of(&p, plan_group(&p, chunk)) > place_of(&p, plan_group(&p, after))); /* ... launched behind */
    assert_true(place_of(&p, plan_group(&p, chunk)) < place_of(&p, plan_group(&p, reader)));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_recomputation_the_order_is_that_of_the_groups),
        cmocka_unit_test(every_group_is_launched_once),
        cmocka_unit_test(the_gradient_that_reads_the_same_carries_the_value_before_its_first_reader),
        cmocka_unit_test(a_chunk_is_launched_when_its_gradient_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
