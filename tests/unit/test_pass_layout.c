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

/* EXP and a product of it, [4,8]: a part is a block of the concatenation, and a GEMM reads it, too. */
static void blocks_of_a_concatenation_have_other_readers(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *w = plan_param(&p, 8, 8), *part[20], *x = EXP(plan_param(&p, 4, 8));
    for (int i = 0; i < 20; i++) part[i] = x = EXP(MATMUL(x, w));
    an_tensor *all = an_concat_at(AT, part, 20, 0);
    plan_root(&p, MATMUL(all, w));
    plan_run(&p, "layout");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(plan_value(&p, part[i])->inside, plan_node(&p, all)->value);
        assert_int_equal(plan_value(&p, part[i])->offset, i * 4 * 8 * 4);
    }
    assert_true(plan_group_of(&p, all)->no_launch);
    plan_close(&p);
}

/* Rows of gates side by side, which are themselves blocks of the stack of all steps: EXP is too dear to be computed in the product. */
static void gates_are_written_side_by_side_where_nothing_else_reads_them(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        plan_case p;
        plan_open(&p);
        an_tensor *w = plan_param(&p, 16, 8), *all[13], *gate[13][2], *x = MATMUL(plan_param(&p, 4, 16), w);
        for (int i = 0; i < 13; i++) {
            for (int k = 0; k < 2; k++) gate[i][k] = EXP(EXP(EXP(k ? x : MUL(x, x))));
            all[i] = an_concat_at(AT, gate[i], 2, 1); /* [4,16] */
            x = MATMUL(all[i], w);
        }
        an_tensor *stack = an_concat_at(AT, all, 13, 0);
        plan_root(&p, MATMUL(stack, w));
        if (others) plan_root(&p, MATMUL(gate[5][0], w = plan_param(&p, 8, 8)));
        plan_run(&p, "layout");
        for (int i = 0; i < 13; i++) {
            const bool apart = others && i == 5;
            assert_int_equal(plan_value(&p, all[i])->inside, plan_node(&p, stack)->value);
            assert_int_equal(plan_value(&p, all[i])->offset, i * 4 * 16 * 4);
            assert_int_equal(plan_group_of(&p, all[i])->no_launch, !apart);
            for (int k = 0; k < 2; k++) {
                assert_int_equal(plan_value(&p, gate[i][k])->inside, apart ? -1 : plan_node(&p, all[i])->value);
                if (apart) continue;
                assert_int_equal(plan_value(&p, gate[i][k])->offset, k * 8 * 4);
                assert_int_equal(plan_node(&p, gate[i][k])->stride[0], 16);
                assert_int_equal(plan_value(&p, gate[i][k])->bytes, (3 * 16 + 8) * 4);
            }
        }
        plan_close(&p);
    }
}

/* On GPUs parts begin where vectors may: 4 x 5 floats are 80 bytes. */
static void parts_of_a_gpu_begin_on_64_bytes(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        plan_case p;
        plan_open(&p);
        if (gpu) p.target.dialect = "cuda";
        an_tensor *w = plan_param(&p, 5, 5), *part[14], *x = EXP(plan_param(&p, 4, 5));
        for (int i = 0; i < 14; i++) part[i] = x = EXP(MATMUL(x, w));
        an_tensor *all = an_concat_at(AT, part, 14, 0);
        plan_root(&p, MATMUL(all, w));
        plan_run(&p, "layout");
        for (int i = 0; i < 14; i++)
            assert_int_equal(plan_node(&p, part[i])->container, !gpu || i % 4 == 0 ? all->id : -1);
        plan_close(&p);
    }
}

/* Rows are added to a concatenation where it is, unless a part of it has another reader, who may come later. */
static void nothing_is_added_where_a_part_is_read(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        plan_case p;
        plan_open(&p);
        an_tensor *w = plan_param(&p, 8, 8), *x = plan_param(&p, 4, 8),
                  *part[2] = {EXP(MATMUL(x, w)), EXP(MATMUL(EXP(x), w))};
        an_tensor *all = an_concat_at(AT, part, 2, 0), *rows = EXP(x);
        an_tensor *src[3] = {an_argmax_at(AT, x, 1, false), rows, all};
        an_tensor *sum = an_emit(
            p.c.g,
            &(an_emit_args){.op = AN_OP_SCATTER_ADD, .rank = 2, .shape = all->shape, .n_src = 3, .src = src, .at = AT});
        plan_root(&p, MATMUL(sum, w));
        if (others) plan_root(&p, MATMUL(part[1], w));
        plan_run(&p, "layout");
        assert_int_equal(plan_node(&p, part[0])->container, all->id);
        assert_int_equal(plan_node(&p, part[1])->container, all->id);
        assert_int_equal(plan_node(&p, all)->container, others ? -1 : sum->id);
        plan_close(&p);
    }
}

/* A state that gets a concatenation is written by one launch. */
static void an_assigned_concatenation_is_not_written_in_parts(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *w = plan_param(&p, 8, 8), *part[14], *x = EXP(plan_param(&p, 4, 8));
    for (int i = 0; i < 14; i++) part[i] = x = EXP(MATMUL(x, w));
    part[3] = plan_param(&p, 4, 8);
    an_tensor *all = an_concat_at(AT, part, 14, 0);
    p.rq.effects_from = p.c.g->n;
    an_tensor *src[2] = {an_use(p.c.g, plan_state(&p, 56, 8), AT, "assign"), all};
    an_emit(p.c.g,
            &(an_emit_args){
                .op = AN_OP_ASSIGN, .dtype = AN_F32, .rank = 2, .shape = all->shape, .n_src = 2, .src = src, .at = AT});
    plan_root(&p, MATMUL(all, w));
    plan_run(&p, "layout");
    for (int i = 0; i < 14; i++)
        if (i != 3) assert_int_equal(plan_node(&p, part[i])->container, -1);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stored_node_has_a_value_and_no_other_has),
        cmocka_unit_test(a_padded_value_counts_its_padding),
        cmocka_unit_test(gradients_of_a_pack_are_written_in_place),
        cmocka_unit_test(blocks_of_a_concatenation_have_other_readers),
        cmocka_unit_test(gates_are_written_side_by_side_where_nothing_else_reads_them),
        cmocka_unit_test(parts_of_a_gpu_begin_on_64_bytes),
        cmocka_unit_test(nothing_is_added_where_a_part_is_read),
        cmocka_unit_test(an_assigned_concatenation_is_not_written_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
