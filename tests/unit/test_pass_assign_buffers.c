/* test_pass_assign_buffers.c: offsets in the arena: what lives together does not overlap, what does not shares. */
#include "plan_case.h"

/* A chain of GEMMs: of each value only the next reader needs it. */
static void chain(plan_case *p, int n, bool apart)
{
    plan_open(p);
    p->rq.isolate_values = apart;
    an_tensor *w = plan_param(p, 64, 64), *y = MATMUL(w, w);
    for (int i = 0; i < n; i++) y = MATMUL(y, w);
    plan_root(p, y);
    plan_run(p, "assign_buffers");
}

static void a_chain_of_any_length_needs_two_buffers(void **state)
{
    (void)state;
    for (int n = 2; n < 9; n += 3) {
        plan_case p;
        chain(&p, n, false);
        assert_int_equal(p.plan.arena_bytes, 2 * 64 * 64 * 4);
        plan_close(&p);
    }
}

static void apart_nothing_is_shared(void **state)
{
    (void)state;
    plan_case p;
    chain(&p, 4, true);
    for (int i = 0; i < p.plan.n_values; i++)
        for (int j = 0; j < i; j++)
            assert_true(llabs(p.plan.value[i].offset - p.plan.value[j].offset) >= p.plan.value[i].bytes + 256);
    plan_close(&p);
}

/* Random graphs: lifetimes, sizes and offsets agree, by comparison of all pairs. */
static void values_that_live_together_do_not_overlap(void **state)
{
    (void)state;
    int together = 0;
    for (uint32_t seed = 1; seed < 12; seed++) {
        plan_case p;
        plan_open(&p);
        p.c.random = seed;
        p.target.segment_bytes = seed % 2 ? 0 : 1 << 16;
        an_tensor *t[40] = {plan_param(&p, 32, 32), plan_param(&p, 32, 32)};
        for (int i = 2; i < 40; i++) {
            const int near = i - 1 - (int)(case_random(&p.c) * 8);
            an_tensor *a = t[AN_MAX(near, 0)], *b = t[(int)(case_random(&p.c) * i)];
            t[i] = case_random(&p.c) < 0.6 ? MATMUL(a, b) : MUL(a, SUM(b, AN_AXIS(0)));
        }
        plan_root(&p, t[39]);
        plan_run(&p, "assign_buffers");
        for (int i = 0; i < p.plan.n_values; i++)
            for (int j = 0; j < i; j++) {
                const an_value *x = &p.plan.value[i], *y = &p.plan.value[j];
                if (x->inside >= 0 || y->inside >= 0 || x->first < 0 || y->first < 0 || x->first > y->last ||
                    y->first > x->last)
                    continue;
                assert_true(x->offset >= y->offset + y->bytes || y->offset >= x->offset + x->bytes);
                together++;
            }
        plan_close(&p);
    }
    assert_true(together > 100);
}

static void what_is_larger_than_a_segment_is_refused(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.segment_bytes = 4096;
    an_tensor *w = plan_param(&p, 64, 64);
    plan_root(&p, MATMUL(w, w));
    assert_int_equal(plan_try(&p, "assign_buffers"), AN_E_NOMEM);
    assert_non_null(strstr(p.c.cx.err.text, "in one piece"));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_of_any_length_needs_two_buffers),
        cmocka_unit_test(apart_nothing_is_shared),
        cmocka_unit_test(values_that_live_together_do_not_overlap),
        cmocka_unit_test(what_is_larger_than_a_segment_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
