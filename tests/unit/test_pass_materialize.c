/* test_pass_materialize.c: what is written to memory and what is computed again by each reader. */
#include "plan_case.h"

static void operands_and_roots_are_stored_and_what_lies_between_is_not(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *a = EXP(x), *b = MUL(a, x), *y = MATMUL(b, x);
    plan_root(&p, y);
    plan_run(&p, "materialize");
    assert_true(plan_stored(&p, b) && plan_node(&p, b)->operand);
    assert_true(plan_stored(&p, y));
    assert_false(plan_stored(&p, a));
    plan_close(&p);
}

static void a_cheap_node_is_computed_again_by_another_group(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *a = MUL(x, x);
    plan_root(&p, SUM(a, AN_AXIS(0)));
    plan_root(&p, SUM(ADD(PERMUTE(a, 1, 0), x), AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_false(plan_stored(&p, a));
    plan_close(&p);
}

/* What reads one of two halves at each element reads no more than one tensor: the gradient of rotary positions, which reads those of
 * queries and of keys. Two whole tensors are two. */
static void halves_count_as_the_tensor_that_they_make(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        plan_case p;
        plan_open(&p);
        an_tensor *x = plan_param(&p, whole ? 16 : 8, 8), *y = plan_param(&p, whole ? 16 : 8, 8);
        an_tensor *both =
            whole ? ADD(x, y) : ADD(an_pad_at(AT, x, 0, 0, 8, 0), an_pad_at(AT, y, 0, 8, 0, 0)); /* [16,8] */
        an_tensor *a = MUL(both, both);
        plan_root(&p, SUM(a, AN_AXIS(0)));
        plan_root(&p, SUM(ADD(an_flip_at(AT, a, AN_AXIS(0)), a), AN_AXIS(0)));
        plan_run(&p, "materialize");
        assert_int_equal(plan_stored(&p, a), whole);
        plan_close(&p);
    }
}

/* A batch norm's d * x: made of two numbers in 16 bits it moves 4 bytes an element, where f32 would move 8 to be stored and loaded. */
static void a_product_of_narrow_numbers_is_made_in_its_sum(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        plan_case p;
        plan_open(&p);
        const an_dtype as = narrow ? AN_BF16 : AN_F32;
        an_tensor *x = an_cast_at(AT, EXP(plan_param(&p, 8, 8)), as),
                  *y = an_cast_at(AT, EXP(plan_param(&p, 8, 8)), as);
        an_tensor *a = MUL(an_cast_at(AT, x, AN_F32), an_cast_at(AT, y, AN_F32));
        plan_root(&p, x);
        plan_root(&p, y);
        plan_root(&p, SUM(a, AN_AXIS(0)));
        plan_run(&p, "materialize");
        assert_int_equal(plan_stored(&p, a), !narrow);
        plan_close(&p);
    }
}

static void a_dear_node_is_stored_for_another_group(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *a = x;
    for (int i = 0; i < 8; i++) a = EXP(a); /* 96 operations, the limit is 64 */
    plan_root(&p, SUM(a, AN_AXIS(0)));
    plan_root(&p, SUM(PERMUTE(a, 1, 0), AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_true(plan_stored(&p, a));
    plan_close(&p);
}

static void a_gemm_that_another_group_reads_is_stored(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *x = plan_param(&p, 8, 8), *h = MATMUL(x, x);
    plan_root(&p, SUM(h, AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_true(plan_stored(&p, h));
    plan_close(&p);
}

static void random_numbers_are_never_stored(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *r = an_rand_at(AT, &p.c.cx, AN_SHAPE(8, 8)), *x = plan_param(&p, 8, 8);
    plan_root(&p, SUM(MUL(r, x), AN_AXIS(0)));
    plan_root(&p, SUM(ADD(r, x), AN_AXIS(0)));
    plan_run(&p, "materialize");
    assert_false(plan_stored(&p, r));
    plan_close(&p);
}

static void a_leaf_s_cast_is_folded_into_a_gemm_only_where_packing_does_it(void **state)
{
    (void)state;
    static const struct {
        an_dtype from, to;
        bool stored;
    } t[] = {{AN_F32, AN_BF16, false}, {AN_F16, AN_BF16, false}, {AN_BF16, AN_F32, false}, {AN_F16, AN_F32, false},
             {AN_F32, AN_F16, true},   {AN_BF16, AN_F16, true},  {AN_F64, AN_F32, true},   {AN_I32, AN_F32, true},
             {AN_U8, AN_BF16, true},   {AN_BOOL, AN_F32, true}};
    for (size_t i = 0; i < AN_COUNT(t); i++) {
        plan_case p;
        plan_open(&p);
        an_tensor *x = case_leaf(&p.c, AN_LEAF_PARAM, t[i].from, AN_SHAPE(8, 8), -1, 1),
                  *a = an_cast_at(AT, x, t[i].to);
        plan_root(&p, MATMUL(a, a));
        plan_run(&p, "materialize");
        assert_int_equal(plan_stored(&p, a), t[i].stored);
        plan_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_and_roots_are_stored_and_what_lies_between_is_not),
        cmocka_unit_test(a_cheap_node_is_computed_again_by_another_group),
        cmocka_unit_test(halves_count_as_the_tensor_that_they_make),
        cmocka_unit_test(a_product_of_narrow_numbers_is_made_in_its_sum),
        cmocka_unit_test(a_dear_node_is_stored_for_another_group),
        cmocka_unit_test(a_gemm_that_another_group_reads_is_stored),
        cmocka_unit_test(random_numbers_are_never_stored),
        cmocka_unit_test(a_leaf_s_cast_is_folded_into_a_gemm_only_where_packing_does_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
