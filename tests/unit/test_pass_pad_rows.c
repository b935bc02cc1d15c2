/* test_pass_pad_rows.c: rows of what a library's GEMM reads and writes begin on 16 bytes. */
#include "plan_case.h"

/* logits [32,65], read by a GEMM; `root`: read back too. Its strides, NULL for none. */
static const int64_t *strides(plan_case *p, bool library, bool root)
{
    plan_open(p);
    p->target.library_gemm = library;
    an_tensor *logits = MATMUL(plan_param(p, 32, 64), plan_param(p, 64, 65));
    plan_root(p, EXP(MATMUL(logits, plan_param(p, 65, 64))));
    if (root) plan_root(p, logits);
    plan_run(p, "pad_rows");
    return plan_node(p, logits)->stride;
}

static void a_result_that_another_gemm_reads_gets_padded_rows(void **state)
{
    (void)state;
    plan_case p;
    const int64_t *s = strides(&p, true, false);
    assert_non_null(s);
    assert_int_equal(s[0], 68); /* 65 f32 are 260 bytes, 68 are 272 */
    assert_int_equal(s[1], 1);
    plan_close(&p);
}

static void what_is_read_back_stays_contiguous(void **state)
{
    (void)state;
    plan_case p;
    assert_null(strides(&p, true, true));
    plan_close(&p);
}

static void without_a_library_there_is_no_padding(void **state)
{
    (void)state;
    plan_case p;
    assert_null(strides(&p, false, false));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_that_another_gemm_reads_gets_padded_rows),
        cmocka_unit_test(what_is_read_back_stays_contiguous),
        cmocka_unit_test(without_a_library_there_is_no_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
