/* test_check.c: kernels against the oracle: right ones pass, and a wrong one of every kind is found. A device is made
 * wrong by changing what it loads; the oracle goes by the plan. */
#include "lib/gpt_settings.h"
#include "lib/test.h"

#include "runtime/context.h"
#define an_step an_training_step
#include "tools/selftest.h"
#include "train/session.h"
#include "train/step.h"
#undef an_step

#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static an_train_config small(void)
{
    an_err err = {0};
    an_train_config c;
    if (an_train_config_open(&err, "demo", &c) != AN_OK) fail_msg("%s", err.text);
    GPT(c)->n_layer = 1;
    GPT(c)->n_head = 2;
    GPT(c)->n_embd = 32;
    GPT(c)->block_size = 16;
    c.batch_size = 2;
    GPT(c)->vocab_size = 33;
    c.threads = 1;
    GPT(c)->dropout = 0.2;
    GPT(c)->bias = true;
    snprintf(c.cc, sizeof c.cc, "none"); /* interpreted: a wrong program must not enter the cache */
    return c;
}

/* ---- a device that loads something else */

typedef void (*spoil_fn)(an_kernel *k);

static an_backend wrong;
static const an_backend *right;
static spoil_fn spoil;

static an_status load_spoiled(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    static an_plan plan; /* lives as long as the loaded plan: one is loaded at a time */
    static an_kernel kernel[2];
    static an_loop_kernel row[2];
    static an_ins ins[2][512];
    if (p->n_kernels > 2) return right->load(err, d, p, out, stats); /* a whole plan */
    plan = *p;
    plan.kernel = kernel;
    memcpy(kernel, p->kernel, sizeof *kernel * (size_t)p->n_kernels);
    for (int i = 0; i < p->n_kernels; i++) {
        if (kernel[i].kind != AN_KERNEL_LOOP) continue;
        row[i] = *p->kernel[i].u.loop;
        assert_true(row[i].n_ins <= 512);
        memcpy(ins[i], row[i].ins, sizeof *ins[i] * (size_t)row[i].n_ins);
        row[i].ins = ins[i];
        kernel[i].u.loop = &row[i];
    }
    for (int i = 0; i < p->n_kernels; i++) spoil(&kernel[i]);
    return right->load(err, d, &plan, out, stats);
}

typedef struct seen {
    int wrong, in_epilogues, of_kind, kernels;
    const char *kind;
    int64_t launches, heard; /* of a selftest: told before; sum of those heard of */
} seen;

static void look(void *user, const an_kernel_check *k)
{
    seen *s = user;
    s->wrong += k->fault[0] != '\0';
    s->of_kind += k->fault[0] != '\0' && strcmp(k->kind, s->kind) == 0;
    assert_true(k->launches >= 1);
    assert_true(k->fault[0] || k->worst < 0.5); /* room is left for other machines, and none to hide in */
    assert_true(k->skipped[0] || k->elements > 0);
    s->heard += k->launches;
}

/* The last plan of a context, with its kernels spoiled. */
static seen check_last(an_ctx *cx, spoil_fn how, const char *kind)
{
    an_check_result result;
    seen s = {.kind = kind};
    right = cx->backend;
    wrong = *right;
    wrong.load = load_spoiled;
    spoil = how;
    if (how) cx->backend = &wrong;
    if (an_check_kernels(cx, look, &s, &result) != AN_OK) fail_msg("%s", an_error(cx));
    cx->backend = right;
    assert_int_equal(result.faults, s.wrong);
    assert_int_equal(result.skipped, 0);
    s.kernels = result.kernels;
    return s;
}

/* One training step of the small model. */
static seen check(spoil_fn how, const char *kind)
{
    an_err err = {0};
    an_session *r;
    int32_t tokens[64];
    const an_train_config c = small();
    for (int i = 0; i < 64; i++) tokens[i] = i * 7 % 33;
    if (an_session_open(&err, &c, NULL, AN_RUN_PARAMETERS_ONLY, &r) != AN_OK) fail_msg("%s", err.text);
    const an_training_step step =
        an_step_build(r->cx, r->model, &r->cfg, c.warmup_iters, 0, (void *[]){tokens, tokens + 32});
    assert_int_equal(an_eval(step.loss, step.norm), AN_OK);
    const seen s = check_last(r->cx, how, kind);
    assert_true(s.kernels > 8);
    an_session_close(r);
    return s;
}

/* A token with the keys and values of those before it. */
static seen check_decoding(spoil_fn how, const char *kind)
{
    an_err err = {0};
    an_session *r;
    const int32_t token = 5;
    const an_train_config c = small();
    if (an_session_open(&err, &c, NULL, AN_RUN_PARAMETERS_ONLY, &r) != AN_OK) fail_msg("%s", err.text);
    an_tensor *x = an_input_at(AN_AT, r->cx, AN_I32, AN_SHAPE(1, 1), &token); /* [1,1] */
    an_tensor *logits =
        an_gpt_decode(r->model, x, an_scalar_i32_at(AN_AT, r->cx, 3), an_scalar_i32_at(AN_AT, r->cx, 4));
    assert_int_equal(an_eval(logits), AN_OK);
    const seen s = check_last(r->cx, how, kind);
    assert_true(s.kernels > 8);
    an_session_close(r);
    return s;
}

static void short_product(an_kernel *k)
{
    if (k->kind == AN_KERNEL_GEMM) k->u.gemm.k--;
}
static void other_scale(an_kernel *k)
{
    if (k->kind == AN_KERNEL_ATTN) k->u.attn.scale *= 1.01f;
}
static void other_scale_backward(an_kernel *k)
{
    if (k->kind == AN_KERNEL_ATTN_GRAD) k->u.attn.scale *= 1.01f;
}
static void other_dropout(an_kernel *k)
{
    if (k->kind == AN_KERNEL_ATTN) k->u.attn.stream++;
}
static void last_index_left_out(an_kernel *k)
{
    if (k->kind == AN_KERNEL_SCATTER) k->u.scatter.n--;
}
static void sum_for_difference(an_kernel *k)
{
    for (int i = 0; k->kind == AN_KERNEL_LOOP && k->u.loop->shape == AN_ROW && i < k->u.loop->n_ins; i++)
        if (k->u.loop->ins[i].kind == AN_INS_ELEM && k->u.loop->ins[i].op == AN_OP_ADD) {
            k->u.loop->ins[i].op = AN_OP_SUB;
            return;
        }
}
static void short_column(an_kernel *k)
{
    if (k->kind == AN_KERNEL_LOOP && k->u.loop->shape == AN_COL) k->u.loop->red--;
}
static void sum_of_something_else(an_kernel *k)
{
    for (int i = 0; k->kind == AN_KERNEL_LOOP && i < k->u.loop->n_ins; i++)
        if (k->u.loop->ins[i].kind == AN_INS_COLSUM) k->u.loop->ins[i].a--;
}
static void wrong_epilogue(an_kernel *k)
{
    for (int i = 0; k->kind == AN_KERNEL_LOOP && k->u.loop->shape == AN_TILE && i < k->u.loop->n_ins; i++)
        if (k->u.loop->ins[i].kind == AN_INS_ELEM && k->u.loop->ins[i].op == AN_OP_MUL) {
            k->u.loop->ins[i].op = AN_OP_ADD;
            return;
        }
}
static void other_constant(an_kernel *k)
{
    for (int i = 0; k->kind == AN_KERNEL_LOOP && i < k->u.loop->n_ins; i++)
        if (k->u.loop->ins[i].kind == AN_INS_CONST) k->u.loop->ins[i].imm *= 1.001;
}

static void short_row_put(an_kernel *k)
{
    if (k->kind == AN_KERNEL_ROW_UPDATE) k->u.row_update.inner--;
}

static void right_kernels_pass(void **state)
{
    (void)state;
    assert_int_equal(check(NULL, "").wrong, 0);
}

static void a_product_that_leaves_out_its_last_term_is_found(void **state)
{
    (void)state;
    const seen s = check(short_product, "product");
    assert_true(s.of_kind >= 5 && s.wrong == s.of_kind);
}

static void attention_with_another_scale_or_other_dropout_is_found(void **state)
{
    (void)state;
    assert_int_equal(check(other_scale, "attention").of_kind, 1);
    assert_int_equal(check(other_dropout, "attention").of_kind, 1);
    assert_int_equal(check(other_scale_backward, "attention'").of_kind, 1);
}

static void a_scatter_that_leaves_out_an_index_is_found(void **state)
{
    (void)state;
    assert_int_equal(check(last_index_left_out, "scatter").of_kind, 1);
}

static void a_row_program_with_one_wrong_operation_is_found(void **state)
{
    (void)state;
    assert_true(check(sum_for_difference, "row").of_kind >= 3);
    assert_true(check(short_column, "row").of_kind >= 3);
    assert_true(check(other_constant, "row").of_kind >= 1);
}

static void a_kernel_that_sums_other_columns_is_found(void **state)
{
    (void)state;
    static float x[128 * 32 * 40];
    for (int i = 0; i < (int)AN_COUNT(x); i++) x[i] = (float)(i * 37 % 61 - 30) / 7.0f;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1, .cc = "none"});
    an_tensor *a = an_exp_at(AN_AT, an_input(cx, AN_F32, AN_SHAPE(128, 32, 40), x));
    an_tensor *b = an_mul_at(AN_AT, a, an_sum_at(AN_AT, a, AN_AXIS(2), true));
    assert_int_equal(an_eval(b, an_sum_at(AN_AT, b, AN_AXIS(1), false)), AN_OK);
    assert_int_equal(check_last(cx, NULL, "row").wrong, 0);
    assert_int_equal(check_last(cx, sum_of_something_else, "row").of_kind, 1);
    an_close(cx);
}

static void a_product_with_a_wrong_epilogue_is_found(void **state)
{
    (void)state;
    const seen s = check(wrong_epilogue, "product");
    assert_true(s.of_kind >= 1 && s.wrong == s.of_kind);
}

static void keys_that_are_not_put_whole_are_found(void **state)
{
    (void)state;
    assert_int_equal(check_decoding(NULL, "").wrong, 0);
    const seen s = check_decoding(short_row_put, "put");
    assert_true(s.of_kind >= 1 && s.wrong == s.of_kind);
}

static void the_selftest_of_a_model_passes_in_every_mode(void **state)
{
    (void)state;
    static const struct {
        bool compile, apart;
        an_dtype dtype;
        int64_t micros;
        const char *recompute;
    } mode[] = {{true, false, AN_F32, 2, "auto"},
                {false, false, AN_F32, 1, "off"},
                {true, true, AN_F32, 1, "on"},
                {true, false, AN_BF16, 1, "auto"}};
    for (size_t i = 0; i < AN_COUNT(mode); i++) {
        an_err err = {0};
        an_check_result r;
        seen s = {.kind = ""};
        an_train_config c = small();
        c.compile = mode[i].compile;
        c.place_apart = mode[i].apart;
        c.dtype = mode[i].dtype;
        c.gradient_accumulation_steps = mode[i].micros;
        snprintf(c.recompute, sizeof c.recompute, "%s", mode[i].recompute);
        if (an_selftest_kernels(&err, &c, true, NULL, NULL, NULL, &r) != AN_OK) fail_msg("%s", err.text);
        const int compiled = r.kernels;
        if (an_selftest_kernels(&err, &c, false, look, &s, &s.launches, &r) != AN_OK) fail_msg("%s", err.text);
        assert_true(compiled > 30 && compiled <= r.kernels); /* gradients that no run has kept need no kernels */
        assert_int_equal(r.faults, 0);
        assert_int_equal(r.skipped, 0);
        assert_true(r.elements > 10000);
        /* Of earlier micro-batches' gradients a plan that never ran knows less. */
        assert_true(s.launches > 50 && s.heard >= s.launches && s.heard - s.launches <= (mode[i].micros > 1 ? 4 : 0));
    }
}

static void without_a_plan_there_is_nothing_to_check(void **state)
{
    (void)state;
    an_check_result r;
    an_ctx *cx = an_open(&(an_options){.device = "ref"});
    assert_int_equal(an_check_kernels(cx, NULL, NULL, &r), AN_E_USAGE);
    assert_non_null(strstr(an_error(cx), "nothing has run"));
    an_close(cx);
    assert_int_equal(an_check_kernels(NULL, NULL, NULL, &r), AN_E_USAGE);
}

/* Calls, copies and f64, which no GPT has. */
static void operations_of_other_models_are_checked_too(void **state)
{
    (void)state;
    float x[60];
    for (int i = 0; i < 60; i++) x[i] = (float)((i * 37 % 60) - 30) / 7.0f;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1, .cc = "none", .seed = 3});
    an_tensor *a = an_input(cx, AN_F32, AN_SHAPE(6, 10), x), *position;
    an_tensor *sum = an_cumsum_at(AN_AT, a, false), *sorted = an_sort_at(AN_AT, a, true, &position);
    an_tensor *memory = an_state(cx, "memory", AN_F32, AN_SHAPE(6, 10), AN_UNIFORM(0, 1));
    an_tensor *other = an_state(cx, "other", AN_F32, AN_SHAPE(6, 10), AN_UNIFORM(0, 1));
    an_tensor *wide = an_exp_at(AN_AT, an_cast_at(AN_AT, a, AN_F64)), *top = an_argmax_at(AN_AT, a, 1, false);
    an_assign(memory, other);
    assert_int_equal(an_eval(sum, sorted, position, wide, top), AN_OK);
    an_check_result r;
    seen s = {.kind = ""};
    if (an_check_kernels(cx, look, &s, &r) != AN_OK) fail_msg("%s", an_error(cx));
    assert_int_equal(r.faults + r.skipped, 0);
    assert_true(r.kernels >= 5);
    an_close(cx);
}

/* Deviations from a mean add up to nothing but rounding. The same sums without their first column are still found wrong (short_column). */
static void sums_that_cancel_pass(void **state)
{
    (void)state;
    enum { ROWS = 1000, COLS = 6 };
    static float x[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)(i * 7919 % 10007) / 977.0f + 3;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1, .cc = "none", .seed = 3});
    an_tensor *a = an_input(cx, AN_F32, AN_SHAPE(ROWS, COLS), x);
    an_tensor *apart = an_sub_at(AN_AT, a, an_mul_num_at(AN_AT, an_sum_at(AN_AT, a, AN_AXIS(0), true), 1.0 / ROWS));
    an_tensor *nothing = an_mul_num_at(AN_AT, an_sum_at(AN_AT, an_mul_num_at(AN_AT, apart, 3), AN_AXIS(0), false), 5);
    assert_int_equal(an_eval(nothing), AN_OK);
    assert_int_equal(check_last(cx, NULL, "").wrong, 0);
    an_close(cx);
}

/* log(-1) in one scope makes NaN of everything behind it: the scope, the launch's phase and the element are the logarithm's. */
static void the_first_number_that_is_not_finite_is_named(void **state)
{
    (void)state;
    bool found = true;
    an_not_finite f;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = 1, .threads = 1, .cc = "none"});
    float in[3][4] = {{1, 2, 3, 4}, {1, 2, -1, 4}, {0.5f, 1, 1, 1}},
          square[4][4] = {{1}, {0, 1}, {0, 0, 1}, {0, 0, 0, 1}};
    for (int bad = 0; bad < 2; bad++) {
        if (!bad) in[1][2] = 3;
        an_tensor *x = an_input(cx, AN_F32, AN_SHAPE(3, 4), in), *m = an_input(cx, AN_F32, AN_SHAPE(4, 4), square);
        an_scope_push(cx, "before");
        an_tensor *y = an_matmul(x, m); /* [3,4] */
        an_scope_pop(cx);
        an_scope_push(cx, "logs");
        an_tensor *z = an_matmul(an_log(x), m); /* [3,4] */
        an_scope_pop(cx);
        an_scope_push(cx, "behind");
        an_tensor *loss = an_sum(an_matmul(an_add(y, z), m), AN_ALL);
        an_scope_pop(cx);
        assert_int_equal(an_eval(loss), AN_OK);
        assert_int_equal(an_find_not_finite(cx, &found, &f), AN_OK);
        assert_int_equal(found, bad);
        an_reset(cx);
        in[1][2] = -1;
    }
    assert_string_equal(f.scope, "logs");
    assert_int_equal(f.element, 6);
    assert_true(f.value != f.value);
    assert_int_equal(an_find_not_finite(NULL, &found, &f), AN_E_USAGE);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_pass),
        cmocka_unit_test(a_product_that_leaves_out_its_last_term_is_found),
        cmocka_unit_test(attention_with_another_scale_or_other_dropout_is_found),
        cmocka_unit_test(a_scatter_that_leaves_out_an_index_is_found),
        cmocka_unit_test(a_row_program_with_one_wrong_operation_is_found),
        cmocka_unit_test(a_kernel_that_sums_other_columns_is_found),
        cmocka_unit_test(a_product_with_a_wrong_epilogue_is_found),
        cmocka_unit_test(keys_that_are_not_put_whole_are_found),
        cmocka_unit_test(the_selftest_of_a_model_passes_in_every_mode),
        cmocka_unit_test(without_a_plan_there_is_nothing_to_check),
        cmocka_unit_test(operations_of_other_models_are_checked_too),
        cmocka_unit_test(sums_that_cancel_pass),
        cmocka_unit_test(the_first_number_that_is_not_finite_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
