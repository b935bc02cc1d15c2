/* test_trm.c: sizes and names of the recursive model, its cache, its slots. Its mathematics is compared with PyTorch in
 * tests/torch. */
#include <anneal.h>
#include "lib/test.h"
#include "models/trm/act.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As TinyRecursiveModels trains on Sudoku, mazes and ARC. */
static an_trm_config published(int64_t vocab, int64_t seq, bool mlp_t)
{
    return (an_trm_config){.vocab = vocab,
                           .seq = seq,
                           .puzzles = 1,
                           .width = 512,
                           .heads = 8,
                           .layers = 2,
                           .expansion = 4,
                           .H_cycles = 3,
                           .L_cycles = 6,
                           .puzzle_width = 512,
                           .puzzle_length = 16,
                           .norm_eps = 1e-5,
                           .rope_theta = 10000,
                           .positions = mlp_t ? AN_TRM_NO_POSITIONS : AN_TRM_ROPE,
                           .mlp_t = mlp_t,
                           .steps = 16,
                           .dtype = AN_F32};
}

static const an_trm_config tiny = {.vocab = 7,
                                   .seq = 6,
                                   .puzzles = 3,
                                   .width = 12,
                                   .heads = 2,
                                   .layers = 1,
                                   .expansion = 1,
                                   .H_cycles = 2,
                                   .L_cycles = 1,
                                   .puzzle_width = 12,
                                   .puzzle_length = 1,
                                   .norm_eps = 1e-5,
                                   .rope_theta = 10000,
                                   .steps = 3,
                                   .dtype = AN_F32};

static an_ctx *open_cpu(void)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = 5, .threads = 1, .cc = "none"});
    assert_non_null(cx);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static void check(an_ctx *cx, an_status status)
{
    if (status != AN_OK || an_error(cx))
        fail_msg("status %d: %s", (int)status, an_error(cx) ? an_error(cx) : "no sentence");
}

static void parameter_counts_are_the_published_ones(void **state)
{
    (void)state;
    const struct {
        int64_t vocab, seq;
        bool mlp_t;
        int64_t parameters;
    } row[] = {{11, 81, false, 6828034}, {6, 900, false, 6822914}, {12, 900, false, 6829058},
               {11, 81, true, 5028866},  {6, 900, true, 18795522}, {12, 900, true, 18801666}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const an_trm_config c = published(row[i].vocab, row[i].seq, row[i].mlp_t);
        assert_null(an_trm_fault(&c));
        assert_int_equal(an_trm_parameters(&c), row[i].parameters);
    }
    const an_trm_config c = published(11, 81, true);
    assert_true(fabs(an_trm_call_flops(&c) / 25.6e9 - 1) < 0.01);
}

static void the_context_has_as_many_parameters_as_are_counted(void **state)
{
    (void)state;
    for (int mlp_t = 0; mlp_t < 2; mlp_t++) {
        an_trm_config c = tiny;
        c.mlp_t = mlp_t;
        c.positions = AN_TRM_LEARNED;
        an_ctx *cx = open_cpu();
        an_trm *m = an_trm_open(cx, &c);
        check(cx, AN_OK);
        int64_t n = 0;
        for (int i = 0; i < an_persist_count(cx); i++) {
            an_persist p;
            int64_t elements = 1;
            check(cx, an_persist_get(cx, i, &p));
            for (int axis = 0; axis < p.shape.rank; axis++) elements *= p.shape.dim[axis];
            if (p.kind == 0) n += elements;
        }
        assert_int_equal(n, an_trm_parameters(&c));
        an_trm_close(m);
        an_close(cx);
    }
}

static void the_inner_width_is_a_multiple_of_256(void **state)
{
    (void)state;
    assert_int_equal(an_trm_inner(4, 512), 1536);
    assert_int_equal(an_trm_inner(4, 384), 1024);
    assert_int_equal(an_trm_inner(4, 768), 2048);
    assert_int_equal(an_trm_inner(4, 97), 512);
    assert_int_equal(an_trm_inner(4, 916), 2560);
}

static void configs_that_make_no_model_are_refused_with_a_reason(void **state)
{
    (void)state;
    an_trm_config c = tiny;
    assert_null(an_trm_fault(&c));
    c.mlp_t = c.causal = true;
    assert_non_null(strstr(an_trm_fault(&c), "mlp_t"));
    c = tiny, c.width = c.puzzle_width = 10;
    assert_non_null(strstr(an_trm_fault(&c), "even head size"));
    c = tiny, c.puzzle_width = 13;
    assert_non_null(strstr(an_trm_fault(&c), "puzzle_emb_ndim"));
    c = tiny, c.heads = 13;
    assert_non_null(strstr(an_trm_fault(&c), "num_heads"));
    c = tiny, c.expansion = NAN;
    assert_non_null(strstr(an_trm_fault(&c), "expansion"));
    c = tiny, c.vocab = INT32_MAX;
    assert_non_null(an_trm_fault(&c));
    assert_null(an_trm_open(NULL, &c));
    c = published(11, 81, false), c.heads = 12; /* heads of 42 */
    assert_null(an_trm_fault(&c));
}

static void decoding_with_a_cache_gives_the_logits_of_the_whole_forward_pass(void **state)
{
    (void)state;
    an_trm_config c = tiny;
    c.causal = true;
    c.puzzle_width = c.puzzle_length = 0;
    c.steps = 2;
    const int32_t token[] = {3, 1, 4, 1, 5, 2};
    float whole[6][7], got[7];
    an_ctx *cx = open_cpu();
    an_trm *m = an_trm_open(cx, &c);
    const an_shape shape = AN_SHAPE(1, 6, 12);
    const an_trm_state initial = an_trm_initial(m);
    an_trm_state z = {an_expand(initial.z_H, shape), an_expand(initial.z_L, shape)};
    an_tensor *x = an_trm_embed(m, an_input(cx, AN_I32, AN_SHAPE(1, 6), token), NULL);
    for (int i = 0; i < 2; i++) z = an_trm_call(m, z, x);
    an_tensor *logits = an_trm_logits(m, z.z_H); /* [1,6,7] */
    check(cx, an_eval(logits));
    check(cx, an_read(logits, whole, sizeof whole));
    an_reset(cx);
    for (int32_t i = 2; i < 6; i++) {
        an_tensor *next;
        if (i == 2)
            next = an_trm_prefill(m, an_input(cx, AN_I32, AN_SHAPE(1, 4), ((int32_t[]){3, 1, 4, 0})),
                                  an_scalar_i32(cx, i));
        else
            next = an_trm_decode(m, an_input(cx, AN_I32, AN_SHAPE(1, 1), &token[i]), an_scalar_i32(cx, i),
                                 an_scalar_i32(cx, i + 1));
        check(cx, an_eval(next));
        check(cx, an_read(next, got, sizeof got));
        an_reset(cx);
        for (int k = 0; k < 7; k++)
            if (fabsf(got[k] - whole[i][k]) > 1e-5f)
                fail_msg("logit %d at position %d is %g, without a cache %g", k, (int)i, (double)got[k],
                         (double)whole[i][k]);
    }
    an_trm_close(m);
    an_close(cx);
}

/* ---- slots */

typedef struct slots {
    an_ctx *cx;
    an_act act;
} slots;

static slots slots_open(int64_t steps, double explore)
{
    an_trm_config c = tiny;
    c.steps = steps;
    slots s = {.cx = open_cpu()};
    s.act = (an_act){.m = an_trm_open(s.cx, &c), .micros = 1, .lr_share = 1};
    s.act.c = (an_act_config){
        .stablemax = true, .no_continue = true, .explore = explore, .puzzle_lr = 0.25, .puzzle_decay = 0.5};
    check(s.cx, AN_OK);
    return s;
}

static void slots_close(slots *s)
{
    an_trm_close(s->act.m);
    an_close(s->cx);
}

enum { B = 4, S = 6 };

/* One training step on boards full of `token`; ids as given. Reads the sums. */
static void train_step(slots *s, int32_t token, const int32_t ids[B], uint64_t step, double sum[AN_ACT_SUMS])
{
    int32_t cells[B * S];
    for (int i = 0; i < B * S; i++) cells[i] = token;
    an_set_step(s->cx, step);
    an_tensor *in[] = {an_input(s->cx, AN_I32, AN_SHAPE(B, S), cells), an_input(s->cx, AN_I32, AN_SHAPE(B, S), cells),
                       an_input(s->cx, AN_I32, AN_SHAPE(B), ids)};
    const an_act_losses l = an_act_train(&s->act, in);
    an_backward(l.loss);
    an_act_update(&s->act, NULL);
    an_tensor *const *k = l.sum;
    check(s->cx, an_eval(k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7]));
    for (int i = 0; i < AN_ACT_SUMS; i++) sum[i] = an_item(l.sum[i]);
    an_reset(s->cx);
}

static void read_state(slots *s, const char *name, void *dst, size_t bytes)
{
    const int i = an_persist_find(s->cx, name);
    if (i < 0) fail_msg("no state %s", name);
    check(s->cx, an_persist_read(s->cx, i, dst, bytes));
}

static const int32_t no_ids[B] = {0};

static void running_slots_ignore_the_incoming_batch_until_they_halt(void **state)
{
    (void)state;
    double sum[AN_ACT_SUMS];
    int32_t cells[B * S];
    slots s = slots_open(3, 0); /* q_head begins at -5: slots halt at the last step alone */
    for (int step = 0; step < 7; step++) {
        train_step(&s, 1 + step % 6, no_ids, (uint64_t)step, sum);
        read_state(&s, "carry.inputs", cells, sizeof cells);
        for (int i = 0; i < B * S; i++) assert_int_equal(cells[i], 1 + step / 3 * 3 % 6);
        assert_int_equal((int)sum[7], step % 3 == 2 ? B : 0);
        assert_int_equal((int)sum[6], step % 3 == 2 ? 3 * B : 0);
    }
    slots_close(&s);
}

static void exploration_makes_slots_go_on_and_depends_on_seed_update_and_slot(void **state)
{
    (void)state;
    double sum[AN_ACT_SUMS];
    int32_t steps[2][B], longest = 0;
    const float halt_now[2] = {5, 0};
    for (int run = 0; run < 2; run++) {
        slots s = slots_open(16, 1);
        check(s.cx, an_persist_write(s.cx, an_persist_find(s.cx, "q_head.bias"), halt_now, sizeof halt_now));
        for (int step = 0; step < 5; step++) train_step(&s, 1, no_ids, (uint64_t)step, sum);
        read_state(&s, "carry.steps", steps[run], sizeof steps[run]);
        slots_close(&s);
    }
    assert_memory_equal(steps[0], steps[1], sizeof steps[0]);
    for (int i = 0; i < B; i++) longest = steps[0][i] > longest ? steps[0][i] : longest;
    assert_true(longest > 1); /* without exploration every slot halts at its first step */
}

static void only_rows_of_the_batch_change_and_each_takes_one_step(void **state)
{
    (void)state;
    double sum[AN_ACT_SUMS];
    float table[3][12];
    const int32_t ids[B] = {2, 0, 2, 2};
    slots s = slots_open(3, 0);
    float begin[3][12];
    for (int i = 0; i < 36; i++) begin[i / 12][i % 12] = 1;
    check(s.cx, an_persist_write(s.cx, an_persist_find(s.cx, "puzzle_emb.weights"), begin, sizeof begin));
    train_step(&s, 1, ids, 0, sum);
    read_state(&s, "puzzle_emb.weights", table, sizeof table);
    for (int k = 0; k < 12; k++) {
        assert_true(table[1][k] == 1);
        for (int row = 0; row < 3; row += 2) {
            const float moved = table[row][k] - (1 - 0.25f * 0.5f);
            if (moved != 0.25f && moved != -0.25f) fail_msg("row %d moved by %g", row, (double)moved);
        }
    }
    slots_close(&s);
}

/* The last of many micro-batches: the others' gradients are states, which are zero here, and name row 0. */
static void an_update_of_many_micro_batches_steps_the_rows_of_all_of_them(void **state)
{
    (void)state;
    double sum[AN_ACT_SUMS];
    float table[3][12];
    const int32_t ids[B] = {2, 2, 2, 2};
    slots s = slots_open(3, 0);
    s.act.micros = 70;
    s.act.micro = 69;
    train_step(&s, 1, ids, 0, sum);
    float begin[3][12];
    for (int i = 0; i < 36; i++) begin[i / 12][i % 12] = 1;
    check(s.cx, an_persist_write(s.cx, an_persist_find(s.cx, "puzzle_emb.weights"), begin, sizeof begin));
    train_step(&s, 1, ids, 1, sum);
    read_state(&s, "puzzle_emb.weights", table, sizeof table);
    for (int k = 0; k < 12; k++) {
        assert_true(table[0][k] == 1 - 0.25f * 0.5f);
        assert_true(table[1][k] == 1);
        const float moved = table[2][k] - (1 - 0.25f * 0.5f);
        if (moved != 0.25f && moved != -0.25f) fail_msg("row 2 moved by %g", (double)moved);
    }
    slots_close(&s);
}

static void an_update_that_is_not_applied_leaves_the_puzzle_table(void **state)
{
    (void)state;
    const int32_t cells[B * S] = {1, 2, 3}, ids[B] = {0, 1, 2, 1};
    float table[36];
    slots s = slots_open(3, 0);
    for (int applied = 0; applied < 2; applied++) {
        an_tensor *in[] = {an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells), an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells),
                           an_input(s.cx, AN_I32, AN_SHAPE(B), ids)};
        const an_act_losses l = an_act_train(&s.act, in);
        an_backward(l.loss);
        an_tensor *only_if = an_gt(an_scalar(s.cx, applied), an_const(s.cx, AN_F32, 0));
        assert_true(an_act_update(&s.act, only_if));
        check(s.cx, an_eval(l.loss));
        an_reset(s.cx);
        read_state(&s, "puzzle_emb.weights", table, sizeof table);
        int moved = 0;
        for (int i = 0; i < 36; i++) moved += table[i] != 0;
        assert_true(applied ? moved > 0 : moved == 0);
    }
    slots_close(&s);
}

static void more_micro_batches_than_can_be_joined_are_a_sentence(void **state)
{
    (void)state;
    int32_t cells[B * S] = {0};
    slots s = slots_open(3, 0);
    s.act.micros = 1025;
    an_tensor *in[] = {an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells), an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells),
                       an_input(s.cx, AN_I32, AN_SHAPE(B), no_ids)};
    an_backward(an_act_train(&s.act, in).loss);
    an_act_update(&s.act, NULL);
    assert_non_null(an_error(s.cx));
    assert_non_null(strstr(an_error(s.cx), "1025 parts; at most 1024 are possible"));
    slots_close(&s);
}

static void evaluation_uses_every_step_and_a_fresh_carry(void **state)
{
    (void)state;
    slots s = slots_open(3, 0);
    int32_t cells[B * S];
    for (int i = 0; i < B * S; i++) cells[i] = 1 + i % 5;
    double first[3];
    for (int round = 0; round < 2; round++)
        for (int call = 0; call < 3; call++) {
            an_tensor *in[] = {an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells),
                               an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells),
                               an_input(s.cx, AN_I32, AN_SHAPE(B), no_ids)};
            s.act.call = call;
            const an_act_losses l = an_act_evaluate(&s.act, in);
            check(s.cx, an_eval(l.sum[0], l.sum[6], l.sum[7]));
            assert_int_equal((int)an_item(l.sum[7]), B);
            assert_int_equal((int)an_item(l.sum[6]), B * (call + 1));
            const double loss = an_item(l.sum[0]);
            if (round == 0) first[call] = loss;
            assert_true(loss == first[call]);
            an_reset(s.cx);
        }
    assert_true(first[0] != first[1]);
    slots_close(&s);
}

static void an_evaluation_may_stop_where_the_model_says_so(void **state)
{
    (void)state;
    slots s = slots_open(3, 0);
    s.act.c.eval_halt = true;
    const float halt_now[2] = {5, 0};
    check(s.cx, an_persist_write(s.cx, an_persist_find(s.cx, "q_head.bias"), halt_now, sizeof halt_now));
    int32_t cells[B * S] = {0};
    double loss = 0;
    for (int call = 0; call < 3; call++) {
        an_tensor *in[] = {an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells), an_input(s.cx, AN_I32, AN_SHAPE(B, S), cells),
                           an_input(s.cx, AN_I32, AN_SHAPE(B), no_ids)};
        s.act.call = call;
        const an_act_losses l = an_act_evaluate(&s.act, in);
        check(s.cx, an_eval(l.sum[0], l.sum[6]));
        assert_int_equal((int)an_item(l.sum[6]), B); /* one step each */
        if (call == 0) loss = an_item(l.sum[0]);
        assert_true(an_item(l.sum[0]) == loss);
        an_reset(s.cx);
    }
    slots_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_counts_are_the_published_ones),
        cmocka_unit_test(the_context_has_as_many_parameters_as_are_counted),
        cmocka_unit_test(the_inner_width_is_a_multiple_of_256),
        cmocka_unit_test(configs_that_make_no_model_are_refused_with_a_reason),
        cmocka_unit_test(decoding_with_a_cache_gives_the_logits_of_the_whole_forward_pass),
        cmocka_unit_test(running_slots_ignore_the_incoming_batch_until_they_halt),
        cmocka_unit_test(exploration_makes_slots_go_on_and_depends_on_seed_update_and_slot),
        cmocka_unit_test(only_rows_of_the_batch_change_and_each_takes_one_step),
        cmocka_unit_test(an_update_of_many_micro_batches_steps_the_rows_of_all_of_them),
        cmocka_unit_test(an_update_that_is_not_applied_leaves_the_puzzle_table),
        cmocka_unit_test(more_micro_batches_than_can_be_joined_are_a_sentence),
        cmocka_unit_test(evaluation_uses_every_step_and_a_fresh_carry),
        cmocka_unit_test(an_evaluation_may_stop_where_the_model_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
