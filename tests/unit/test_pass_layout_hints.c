/* test_pass_layout_hints.c: a result is stored in the order in which its reader wants it. */
#include "plan_case.h"

static void a_gemm_whose_reader_transposes_it_is_stored_transposed(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *y = MATMUL(plan_param(&p, 4, 6), plan_param(&p, 6, 8)); /* [4,8] */
    plan_root(&p, EXP(PERMUTE(y, 1, 0)));
    plan_run(&p, "layout_hints");
    assert_true(plan_node(&p, y)->transposed);
    assert_int_equal(plan_node(&p, y)->stride[0], 1);
    assert_int_equal(plan_node(&p, y)->stride[1], 4);
    plan_close(&p);
}

static void a_gemm_that_is_read_as_it_is_has_no_strides(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *y = MATMUL(plan_param(&p, 4, 6), plan_param(&p, 6, 8));
    plan_root(&p, EXP(y));
    plan_run(&p, "layout_hints");
    assert_null(plan_node(&p, y)->stride);
    assert_false(plan_node(&p, y)->transposed);
    plan_close(&p);
}

/* A library's GEMM is fast on rows of whole 16 bytes: the gradient of a [14,8] weight that is read as [8,14]. */
static void rows_that_a_library_likes_are_not_given_up(void **state)
{
    (void)state;
    for (int rows = 14; rows <= 16; rows += 2) { /* of 14 f32: 56 bytes; of 16: 64 */
        for (int library = 0; library < 2; library++) {
            plan_case p;
            plan_open(&p);
            p.target.library_gemm = library;
            an_tensor *y = MATMUL(plan_param(&p, rows, 6), plan_param(&p, 6, 8)); /* [rows,8] */
            plan_root(&p, EXP(PERMUTE(y, 1, 0)));
            plan_run(&p, "layout_hints");
            assert_int_equal(plan_node(&p, y)->transposed, !library || rows == 16);
            plan_close(&p);
        }
    }
}

static void an_elementwise_result_is_never_permuted(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *y = EXP(plan_param(&p, 4, 6));
    plan_root(&p, EXP(PERMUTE(y, 1, 0)));
    plan_run(&p, "layout_hints");
    assert_null(plan_node(&p, y)->stride);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gemm_whose_reader_transposes_it_is_stored_transposed),
        cmocka_unit_test(a_gemm_that_is_read_as_it_is_has_no_strides),
        cmocka_unit_test(rows_that_a_library_likes_are_not_given_up),
        cmocka_unit_test(an_elementwise_result_is_never_permuted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
