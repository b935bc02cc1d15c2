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

/* [B,T,H D] seen as heads, attention, and its result's rows multiplied: as in a GPT, with heads of 13. */
static void attention_reads_and_writes_padded_rows(void **state)
{
    enum { B = 2, T = 32, H = 3, D = 13, ROW = H * D };
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.library_gemm = true;
    an_tensor *qkv = MATMUL(plan_param(&p, B * T, 64), plan_param(&p, 64, ROW));
    an_tensor *heads = PERMUTE(an_reshape_at(AT, qkv, AN_SHAPE(B, T, H, D)), 0, 2, 1, 3);
    an_tensor *src[3] = {heads, heads, heads};
    const an_emit_args attention = {
        .op = AN_OP_ATTENTION, .n_src = 3, .src = src, .n_attr = 2, .attr = (int64_t[]){1, 0}, .imm = {1, 0}, .at = AT};
    an_tensor *y = an_emit(heads->g, &attention);
    an_tensor *rows = an_reshape_at(AT, PERMUTE(y, 0, 2, 1, 3), AN_SHAPE(B * T, ROW));
    plan_root(&p, EXP(MATMUL(rows, plan_param(&p, ROW, 64))));
    plan_run(&p, "pad_rows");
    const int64_t *s = plan_node(&p, qkv)->stride, *o = plan_node(&p, y)->stride;
    assert_non_null(s);
    assert_int_equal(s[0], 40); /* 39 f32 are 156 bytes */
    assert_non_null(o);
    assert_int_equal(o[0], 40 * T);
    assert_int_equal(o[1], D);
    assert_int_equal(o[2], 40);
    assert_int_equal(o[3], 1);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_that_another_gemm_reads_gets_padded_rows),
        cmocka_unit_test(what_is_read_back_stays_contiguous),
        cmocka_unit_test(without_a_library_there_is_no_padding),
        cmocka_unit_test(attention_reads_and_writes_padded_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
