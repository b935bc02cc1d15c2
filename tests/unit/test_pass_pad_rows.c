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

/* A product in bf16 of this many columns, which another product reads. */
static int64_t bf16_row(int columns)
{
    plan_case p;
    plan_open(&p);
    p.target.library_gemm = true;
    an_tensor *logits = MATMUL(case_leaf(&p.c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(64, 64), -1, 1),
                               case_leaf(&p.c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(64, columns), -1, 1));
    plan_root(&p, EXP(MATMUL(logits, case_leaf(&p.c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(columns, 64), -1, 1))));
    plan_run(&p, "pad_rows");
    const int64_t *s = plan_node(&p, logits)->stride, row = s ? s[0] : columns;
    plan_close(&p);
    return row;
}

static void long_rows_of_bf16_begin_on_a_sector_of_the_cache(void **state)
{
    (void)state;
    assert_int_equal(bf16_row(65), 72); /* 16 bytes */
    assert_int_equal(bf16_row(693), 704);
    assert_int_equal(bf16_row(2340), 2352);
    assert_int_equal(bf16_row(520), 520); /* what is aligned stays as it is */
}

/* x, computed from a product and read by a sum along its rows alone, has rows like the product's, unless it is a part of a
 * concatenation, which is written where that is. */
static const int64_t *beside(plan_case *p, bool part)
{
    plan_open(p);
    p->target.library_gemm = true;
    an_tensor *product = MATMUL(plan_param(p, 32, 64), plan_param(p, 64, 65)), *x = EXP(product);
    plan_root(p, SUM(part ? an_concat_at(AT, (an_tensor *[]){x, EXP(x)}, 2, 0) : x, AN_AXIS(1)));
    plan_run(p, "pad_rows");
    return plan_node(p, x)->stride;
}

static void what_is_computed_beside_a_product_has_padded_rows_too(void **state)
{
    (void)state;
    plan_case p;
    const int64_t *s = beside(&p, false);
    assert_non_null(s);
    assert_int_equal(s[0], 72); /* eight columns at a time */
    assert_int_equal(s[1], 1);
    plan_close(&p);
    assert_null(beside(&p, true));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_that_another_gemm_reads_gets_padded_rows),
        cmocka_unit_test(what_is_read_back_stays_contiguous),
        cmocka_unit_test(without_a_library_there_is_no_padding),
        cmocka_unit_test(attention_reads_and_writes_padded_rows),
        cmocka_unit_test(long_rows_of_bf16_begin_on_a_sector_of_the_cache),
        cmocka_unit_test(what_is_computed_beside_a_product_has_padded_rows_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
