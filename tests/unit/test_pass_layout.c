/* test_pass_layout.c: which values share a container, and how large they are. */
#include "plan_case.h"

static void every_stored_node_has_a_value_and_no_other_has(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *a = EXP(x), *b = MUL(a, x), *y = MATMUL(b, x);
    plan_root(&p, y);
    plan_run(&p, "layout");
    assert_int_equal(p.plan.n_values, 2);
    assert_int_equal(plan_node(&p, a)->value, -1);
    assert_int_equal(plan_value(&p, b)->bytes, 8 * 8 * 4);
    assert_int_equal(plan_value(&p, y)->inside, -1);
    plan_close(&p);
}

static void a_padded_value_counts_its_padding(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.library_gemm = true;
    an_tensor *logits = MATMUL(plan_param(&p, 32, 64), plan_param(&p, 64, 65));
    plan_root(&p, EXP(MATMUL(logits, plan_param(&p, 65, 64))));
    plan_run(&p, "layout");
    assert_int_equal(plan_value(&p, logits)->bytes, (31 * 68 + 65) * 4);
    plan_close(&p);
}

static void gradients_of_a_pack_are_written_in_place(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *part[2] = {MATMUL(x, x), MUL(EXP(x), x)};
    an_tensor *block = plan_packed(&p, part, 2, (1 << 20) / 4);
    plan_root(&p, block);
    plan_run(&p, "layout");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plan_node(&p, part[i])->container, block->id);
        assert_int_equal(plan_value(&p, part[i])->inside, plan_node(&p, block)->value);
        assert_int_equal(plan_value(&p, part[i])->offset, 256 * i);
        assert_int_equal(plan_value(&p, part[i])->usage, AN_USE_GRADIENT);
    }
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stored_node_has_a_value_and_no_other_has),
        cmocka_unit_test(a_padded_value_counts_its_padding),
        cmocka_unit_test(gradients_of_a_pack_are_written_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
