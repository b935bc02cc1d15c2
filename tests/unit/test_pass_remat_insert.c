/* test_pass_remat_insert.c: where rematerialized copies are made. */
#include "plan_case.h"

#include "plan_remat.h"

static int copies_of(const plan_case *p, const an_tensor *t, int *at)
{
    int n = 0;
    for (int i = 0; i < p->w.n_launches; i++)
        if (p->w.launch[i].copy == t->id) *at = i, n++;
    return n;
}

static int launch_of(const plan_case *p, const an_tensor *t)
{
    for (int i = 0; i < p->w.n_launches; i++)
        if (p->w.launch[i].copy < 0 && p->w.launch[i].group == plan_group(p, t)) return i;
    return -1;
}

static void a_carrier_writes_the_value_as_its_first_output(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    layer l = plan_layer(&p, true);
    plan_run(&p, "remat_insert");
    int at;
    const an_fusion_group *carrier = &p.w.group[plan_node(&p, l.a)->carrier];
    assert_int_equal(carrier->n_remat, 1);
    assert_int_equal(carrier->out[0], l.a->id);
    assert_int_equal(copies_of(&p, l.a, &at), 0);
    plan_close(&p);
}

static void without_a_carrier_a_copy_is_launched_once_before_its_first_reader(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    layer l = plan_layer(&p, true);
    plan_run(&p, "layout");
    p.cuts.node[l.a->id].own_launch = true;
    assert_int_equal(an_pass_schedule(&p.w), AN_OK);
    assert_int_equal(an_pass_remat_insert(&p.w), AN_OK);
    int at = -1;
    assert_int_equal(copies_of(&p, l.a, &at), 1);
    assert_true(at > launch_of(&p, l.y));
    assert_true(at < launch_of(&p, l.dw1));
    plan_close(&p);
}

static void without_recomputation_launches_are_the_groups_that_store_something(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_layer(&p, false);
    plan_run(&p, "remat_insert");
    int stores = 0;
    for (int g = 0; g < p.w.n_groups; g++) stores += p.w.group[g].n_out > 0;
    assert_int_equal(p.w.n_launches, stores);
    for (int i = 0; i < p.w.n_launches; i++) assert_int_equal(p.w.launch[i].copy, -1);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_carrier_writes_the_value_as_its_first_output),
        cmocka_unit_test(without_a_carrier_a_copy_is_launched_once_before_its_first_reader),
        cmocka_unit_test(without_recomputation_launches_are_the_groups_that_store_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
