/* test_refusals.c: a mistake is told before anything runs: a tensor of another context or of a step that is over, a
 * wrong shape, dtype or id. The sentence names the file and line, the operation, the shapes, the scope and, where two
 * contexts are involved, both devices; and the context works again after an_reset. */
#include <anneal.h>
#include <math.h>
#include "proof/train_case.h"

static uint64_t requested_before; /* by usable_again */

static an_ctx *open_on(const char *device)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1});
    if (!cx || an_error(cx)) fail_msg("%s: %s", device, an_error(cx));
    requested_before = 0;
    return cx;
}

static an_tensor *zeros(an_ctx *cx, an_dtype t, an_shape s)
{
    static const char none[1 << 16];
    return an_input(cx, t, s, none);
}

/* Evaluating `t` gives `status` and a sentence with all of the words, and nothing was requested or run. */
static void refused(an_ctx *cx, an_tensor *t, an_status status, const char *const *words)
{
    an_bill b;
    if (t) assert_int_equal(an_eval(t), status);
    assert_int_equal(an_error_status(cx), status);
    const char *sentence = an_error(cx);
    assert_non_null(sentence);
    for (; *words; words++)
        if (!strstr(sentence, *words)) fail_msg("\"%s\" lacks \"%s\"", sentence, *words);
    if (an_report(cx, &b) == AN_OK && b.allocated_bytes != requested_before)
        fail_msg("%llu bytes were requested", (unsigned long long)b.allocated_bytes);
    print_message("# %s\n", sentence);
}

static void usable_again(an_ctx *cx)
{
    an_reset(cx);
    assert_null(an_error(cx));
    an_tensor *x = an_add_num(zeros(cx, AN_F32, AN_SHAPE(1)), 2);
    assert_int_equal(an_eval(x), AN_OK);
    assert_true(an_item(x) == 2);
    an_bill b;
    assert_int_equal(an_report(cx, &b), AN_OK);
    requested_before = b.allocated_bytes;
    an_reset(cx);
}

#define WORDS(...) ((const char *const[]){"test_refusals.c:", __VA_ARGS__, NULL})

static void shapes_that_do_not_fit_are_named_with_operation_and_scope(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_scope_push(cx, "gpt");
    an_scope_push(cx, "h.0");
    refused(cx, an_add(zeros(cx, AN_F32, AN_SHAPE(4, 8, 16)), zeros(cx, AN_F32, AN_SHAPE(4, 8, 15))), AN_E_SHAPE,
            WORDS("an_add", "[4,8,16]", "[4,8,15]", "gpt.h.0"));
    usable_again(cx);
    refused(cx, an_matmul(zeros(cx, AN_F32, AN_SHAPE(4, 8)), zeros(cx, AN_F32, AN_SHAPE(9, 4))), AN_E_SHAPE,
            WORDS("an_matmul", "[4,8]", "[9,4]", "gpt.h.0"));
    usable_again(cx);
    refused(cx, an_reshape(zeros(cx, AN_F32, AN_SHAPE(4, 8)), AN_SHAPE(5, 7)), AN_E_SHAPE,
            WORDS("an_reshape", "[4,8]", "[5,7]", "gpt.h.0"));
    an_scope_pop(cx);
    an_scope_pop(cx);
    an_close(cx);
}

/* Results of operations on NULL belong to no context: they are a status, and a sentence once a context is known. */
static void a_null_tensor_is_a_status_and_a_sentence_and_never_a_crash(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_tensor *none = NULL, *x = zeros(cx, AN_F32, AN_SHAPE(2));
    an_tensor *const lost[] = {an_exp(NULL), an_concat(&x, 0, 0), an_full(NULL, AN_F32, AN_SHAPE(2), 1),
                               an_const(NULL, AN_F32, 1), an_matmul(none, none)};
    char raw[8];
    assert_int_equal(an_eval(none), AN_E_USAGE);
    assert_int_equal(an_plan(none), AN_E_USAGE);
    assert_int_equal(an_eval_at("here", NULL, 1), AN_E_USAGE);
    assert_non_null(strstr(an_status_text(AN_E_USAGE), "NULL"));
    assert_non_null(an_status_text((an_status)99));
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        assert_int_equal(an_eval(lost[i]), AN_E_USAGE);
        assert_int_equal(an_plan(lost[i]), AN_E_USAGE);
        assert_int_equal(an_read(lost[i], raw, 4), AN_E_USAGE);
        assert_true(isnan(an_item(lost[i])));
        assert_null(an_error(cx));
        refused(cx, an_add(x, lost[i]), AN_E_USAGE, WORDS("an_add", "its own operands are NULL"));
        usable_again(cx);
        x = zeros(cx, AN_F32, AN_SHAPE(2));
        assert_int_equal(an_eval(x, lost[i]), AN_E_USAGE);
        refused(cx, NULL, AN_E_USAGE, WORDS("an_eval", "its own operands are NULL"));
        usable_again(cx);
        x = zeros(cx, AN_F32, AN_SHAPE(2));
    }
    assert_int_equal(an_eval(x, none), AN_E_USAGE);
    refused(cx, NULL, AN_E_USAGE, WORDS("an_eval", "tensor 2 of 2 is NULL"));
    usable_again(cx);
    x = an_exp(zeros(cx, AN_F32, AN_SHAPE(2)));
    assert_int_equal(an_eval(x), AN_OK);
    assert_int_equal(an_read(x, NULL, 8), AN_E_USAGE);
    refused(cx, NULL, AN_E_USAGE, WORDS("an_read", "dst is NULL"));
    usable_again(cx);
    an_param(cx, "w", AN_F32, AN_SHAPE(2), AN_ZEROS);
    assert_int_equal(an_persist_read(cx, 0, NULL, 8), AN_E_USAGE);
    assert_non_null(strstr(an_error(cx), "an_persist_read: there is no memory to read to"));
    an_reset(cx);
    assert_int_equal(an_persist_write(cx, 0, NULL, 8), AN_E_USAGE);
    assert_non_null(strstr(an_error(cx), "an_persist_write: there is nothing to write"));
    an_reset(cx);
    assert_int_equal(an_persist_get(cx, 0, NULL), AN_E_USAGE);
    assert_non_null(strstr(an_error(cx), "an_persist_get: there is nowhere to write entry 0 to"));
    an_close(cx);
}

static void a_name_or_kind_of_initial_values_that_would_be_ambiguous_is_refused(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_param(cx, "w", AN_F32, AN_SHAPE(2), AN_ZEROS);
    an_state(cx, "s", AN_F32, AN_SHAPE(2), AN_ZEROS);
    refused(cx, an_state(cx, "w", AN_F32, AN_SHAPE(2), AN_ZEROS), AN_E_USAGE,
            WORDS("an_state", "\"w\" is a parameter already"));
    usable_again(cx);
    refused(cx, an_param(cx, "s", AN_F32, AN_SHAPE(2), AN_ZEROS), AN_E_USAGE,
            WORDS("an_param", "\"s\" is a state already"));
    usable_again(cx);
    refused(cx, an_state(cx, "optimizer.m.w", AN_F32, AN_SHAPE(2), AN_ZEROS), AN_E_USAGE,
            WORDS("an_state", "names that begin with optimizer.m."));
    usable_again(cx);
    static const an_init bad[] = {{9, 0, 0}, {-1, 0, 0}, {2, INFINITY, 0}, {2, NAN, 0}, {3, 0, INFINITY}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int param = 0; param < 2; param++) {
            an_tensor *t = param ? an_param(cx, "new", AN_F32, AN_SHAPE(2), bad[i])
                                 : an_state(cx, "new", AN_F32, AN_SHAPE(2), bad[i]);
            refused(cx, t, AN_E_USAGE, WORDS("\"new\"", i < 2 ? "kind of initial values" : "must be finite"));
            usable_again(cx);
        }
    refused(cx, an_param(cx, "new", AN_F32, AN_SHAPE(2), AN_NORMAL(-1)), AN_E_USAGE,
            WORDS("\"new\"", "deviation of -1"));
    usable_again(cx);
    refused(cx, an_param(cx, "new", AN_F32, AN_SHAPE(2), AN_UNIFORM(1, -1)), AN_E_USAGE, WORDS("\"new\"", "[1, -1)"));
    usable_again(cx);
    refused(cx, an_state(cx, "new", AN_I32, AN_SHAPE(2), AN_FILL(0.5)), AN_E_DTYPE,
            WORDS("\"new\"", "0.5 is no int32"));
    usable_again(cx);
    refused(cx, an_state(cx, "new", AN_U8, AN_SHAPE(2), AN_FILL(256)), AN_E_DTYPE, WORDS("\"new\"", "256 is no uint8"));
    usable_again(cx);
    assert_int_equal(an_persist_count(cx), 2);
    an_close(cx);
}

/* A rate of NaN makes every parameter NaN, a beta of 1 divides by zero. */
static void numbers_that_would_make_parameters_nan_are_refused_before_the_update(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    for (int i = 0; i < 9; i++) {
        an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(2), AN_ONES), *norm = NULL;
        an_adamw_options a = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
        an_backward(an_sum(w, AN_ALL));
        const char *name = i < 2 || i == 6 ? "lr is"
                           : i < 4         ? "beta"
                           : i == 4        ? "eps"
                           : i == 7        ? "momentum"
                                           : "weight_decay";
        if (i == 0) a.lr = NAN;
        if (i == 1) a.lr = INFINITY;
        if (i == 2) a.beta1 = 1;
        if (i == 3) a.beta2 = -0.5;
        if (i == 4) a.eps = -1;
        if (i == 5) a.weight_decay = NAN;
        norm = i < 6 ? an_adamw(cx, a)
               : i == 6
                   ? an_sgd(cx, NAN)
                   : an_sgd_with(cx, ((an_sgd_options){
                                         .lr = 1, .momentum = i == 7 ? -1 : 0, .weight_decay = i == 8 ? INFINITY : 0}));
        refused(cx, norm, AN_E_USAGE, WORDS(name));
        usable_again(cx);
    }
    float w[2];
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), w, sizeof w), AN_OK);
    assert_true(w[0] == 1 && w[1] == 1);
    an_set_policy(cx, (an_policy){.matmul = AN_I32});
    assert_int_equal(an_error_status(cx), AN_E_DTYPE);
    assert_non_null(strstr(an_error(cx), "int32"));
    assert_int_equal(an_get_policy(cx).matmul, AN_F32);
    usable_again(cx);
    refused(cx, an_iota(cx, AN_SHAPE(2, 3), -3), AN_E_SHAPE, WORDS("an_iota", "axis -3 of a shape of rank 2"));
    usable_again(cx);
    an_close(cx);
}

/* 2^32 elements fit no axis that an operation joins several into; the sentence says so instead of a negative length. */
static void axes_that_join_to_more_than_an_axis_holds_are_named(void **state)
{
    (void)state;
    an_ctx *cx = open_on("null:cpu");
    an_tensor *const x = an_input(cx, AN_F32, AN_SHAPE(65536, 65536, 3), NULL);
    an_softmax(x, -1);
    refused(cx, NULL, AN_E_SHAPE, WORDS("an_softmax", "more than 2147483647 elements together"));
    an_close(cx);
}

/* an_error_clear forgets the sentence; the tensor that the failed call returned is still none. */
static void what_a_failed_call_left_is_refused_after_its_error_was_cleared(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    float number = 7;
    an_tensor *kept = an_state(cx, "kept", AN_F32, AN_SHAPE(3), AN_ONES), *x = zeros(cx, AN_F32, AN_SHAPE(3));
    an_tensor *failed = an_add(x, zeros(cx, AN_F32, AN_SHAPE(2)));
    an_error_clear(cx);
    refused(cx, failed, AN_E_USAGE, WORDS("an_eval", "failed", "cleared"));
    an_error_clear(cx);
    assert_int_equal(an_read(failed, &number, sizeof number), AN_E_USAGE);
    refused(cx, NULL, AN_E_USAGE, WORDS("an_read", "cleared"));
    assert_true(number == 7);
    an_error_clear(cx);
    assert_true(isnan(an_item(failed)));
    refused(cx, NULL, AN_E_USAGE, WORDS("an_read", "cleared"));
    an_error_clear(cx);
    an_assign(kept, failed); /* would be passed over, and the step run without it */
    refused(cx, x, AN_E_USAGE, WORDS("an_assign", "cleared"));
    an_error_clear(cx);
    an_assign(kept, NULL);
    refused(cx, x, AN_E_USAGE, WORDS("an_assign", "NULL"));
    an_error_clear(cx);
    an_assign(kept, an_exp(NULL));
    refused(cx, x, AN_E_USAGE, WORDS("an_assign", "operands are NULL"));
    an_error_clear(cx);
    an_backward(failed);
    refused(cx, x, AN_E_USAGE, WORDS("an_backward", "cleared"));
    an_error_clear(cx);
    an_sign_sgd_rows(an_state(cx, "table", AN_F32, AN_SHAPE(4, 2), AN_ONES), NULL, failed, 0.1, 0, NULL);
    refused(cx, x, AN_E_USAGE, WORDS("an_sign_sgd_rows", "NULL"));
    usable_again(cx);
    an_close(cx);
    cx = an_open(&(an_options){.device = "no such device"});
    an_error_clear(cx);
    x = an_scalar(cx, 1);
    assert_int_equal(an_eval(x), AN_E_ENV);
    refused(cx, NULL, AN_E_ENV, (const char *const[]){"an_eval", "no device", NULL});
    an_close(cx);
}

static void any_number_of_tensors_is_evaluated_together(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static an_tensor *t[MANY];
    static const char *const devices[] = {"cpu", "ref"};
    for (int d = 0; d < 2; d++) {
        an_ctx *cx = open_on(devices[d]);
        for (int step = 0; step < 2; step++) {
            for (int i = 0; i < MANY; i++) t[i] = an_add(zeros(cx, AN_F32, AN_SHAPE(1)), an_scalar(cx, i + step));
            assert_int_equal(an_eval_at("here", t, MANY), AN_OK);
            for (int i = 0; i < MANY; i++) assert_true(an_item(t[i]) == i + step);
            an_reset(cx);
        }
        an_close(cx);
    }
}

static void a_bad_assignment_names_its_target(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_tensor *cache = an_state(cx, "cache", AN_F32, AN_SHAPE(4, 8), AN_ZEROS);
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(3), AN_ZEROS); /* before it has its place */
    an_assign(cache, zeros(cx, AN_F32, AN_SHAPE(4, 9)));
    refused(cx, NULL, AN_E_SHAPE, WORDS("an_assign", "\"cache\" is float32 [4,8]", "float32 [4,9]"));
    usable_again(cx);
    an_assign(w, zeros(cx, AN_BF16, AN_SHAPE(3)));
    refused(cx, NULL, AN_E_DTYPE, WORDS("an_assign", "\"w\" is float32 [3]", "bfloat16 [3]"));
    usable_again(cx);
    an_assign(an_add_num(cache, 1), cache);
    refused(cx, NULL, AN_E_USAGE, WORDS("an_assign", "the result of ADD", "[4,8]"));
    usable_again(cx);
    an_close(cx);
}

static void dtypes_that_do_not_agree_are_named_with_operation_and_scope(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_scope_push(cx, "head");
    refused(cx, an_add(zeros(cx, AN_F32, AN_SHAPE(4)), zeros(cx, AN_BF16, AN_SHAPE(4))), AN_E_DTYPE,
            WORDS("an_add", "float32", "bfloat16", "head"));
    usable_again(cx);
    refused(cx, an_gather(zeros(cx, AN_F32, AN_SHAPE(4, 2)), zeros(cx, AN_F32, AN_SHAPE(3))), AN_E_DTYPE,
            WORDS("an_gather", "float32", "head"));
    usable_again(cx);
    refused(cx, an_exp(zeros(cx, AN_I32, AN_SHAPE(3))), AN_E_DTYPE, WORDS("an_exp", "int32", "head"));
    an_scope_pop(cx);
    an_close(cx);
}

static void a_tensor_of_another_context_is_refused_and_both_devices_are_named(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu"), *other = open_on("null:cuda");
    an_scope_push(cx, "mlp");
    an_tensor *here = zeros(cx, AN_F32, AN_SHAPE(4)), *there = zeros(other, AN_F32, AN_SHAPE(4));
    refused(cx, an_add(here, there), AN_E_CONTEXT, WORDS("an_add", "cpu", "null", "mlp"));
    assert_null(an_error(other));
    usable_again(cx);
    an_scope_pop(cx);
    an_tensor *mine = an_exp(zeros(cx, AN_F32, AN_SHAPE(4))), *theirs = an_exp(there);
    assert_int_equal(an_eval(mine, theirs), AN_E_CONTEXT);
    refused(cx, NULL, AN_E_CONTEXT, WORDS("an_eval", "cpu", "null"));
    an_close(other);
    an_close(cx);
}

static void a_tensor_of_a_step_that_is_over_is_refused(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_tensor *old = an_exp(zeros(cx, AN_F32, AN_SHAPE(4)));
    an_reset(cx);
    an_scope_push(cx, "later");
    refused(cx, an_neg(old), AN_E_CONTEXT, WORDS("an_neg", "[4]", "an_reset has ended", "later"));
    usable_again(cx);
    old = an_exp(zeros(cx, AN_F32, AN_SHAPE(4)));
    an_reset(cx);
    refused(cx, old, AN_E_CONTEXT, WORDS("an_eval", "an_reset has ended"));
    an_scope_pop(cx);
    an_close(cx);
}

/* One id too many, one below zero, and a label, in a model's step: the run stops before a kernel sees them. */
static void an_id_out_of_range_is_named_before_anything_runs(void **state)
{
    (void)state;
    static const struct {
        bool label;
        int32_t id;
    } bad[] = {{false, 5}, {false, -1}, {false, INT32_MAX}, {false, INT32_MIN}, {true, 5}, {true, INT32_MAX}};
    const train_case c = {.B = 1, .T = 4, .C = 8, .L = 1, .H = 1, .V = 5};
    for (size_t i = 0; i < AN_COUNT(bad); i++) {
        an_err err = {0};
        an_ctx *cx;
        an_gpt *m;
        int32_t x[4] = {0, 1, 2, 3}, y[4] = {1, 2, 3, 4};
        char id[32];
        if (case_open(&err, &c, &(an_options){.device = "cpu", .cc = "none", .threads = 1}, &cx, &m) != AN_OK)
            fail_msg("%s", err.text);
        (bad[i].label ? y : x)[2] = bad[i].id;
        an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(1, 4), x), *labels = an_input(cx, AN_I32, AN_SHAPE(1, 4), y);
        an_tensor *loss = an_mean(an_gpt_losses(m, tokens, labels, true), AN_ALL);
        snprintf(id, sizeof id, "%d", bad[i].id);
        assert_int_equal(an_eval(loss), AN_E_DATA);
        const char *const words[] = {"gpt.c:", bad[i].label ? "cross_entropy" : "an_gather",
                                     id,       "element 2",
                                     "[0,5)",  "[1,4]",
                                     "int32",  " in gpt",
                                     NULL};
        refused(cx, NULL, AN_E_DATA, words);
        an_reset(cx);
        if (case_train(&err, cx, m, &c, 0, 1, NULL) != AN_OK) fail_msg("%s", err.text);
        case_close(cx, m);
    }
}

static void a_parameter_under_one_name_has_one_shape_and_dtype(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_param(cx, "w", AN_F32, AN_SHAPE(2, 3), AN_ZEROS);
    refused(cx, an_param(cx, "w", AN_F32, AN_SHAPE(3, 2), AN_ZEROS), AN_E_SHAPE,
            WORDS("an_param", "\"w\"", "[2,3]", "[3,2]"));
    usable_again(cx);
    refused(cx, an_param(cx, "i", AN_I32, AN_SHAPE(2), AN_ZEROS), AN_E_DTYPE, WORDS("an_param", "\"i\"", "int32"));
    an_close(cx);
}

static void an_unknown_device_or_setting_is_refused_and_every_later_call_is_harmless(void **state)
{
    (void)state;
    static const struct {
        an_options o;
        an_status status;
        const char *word;
    } bad[] = {
        {{.device = "abacus"}, AN_E_USAGE, "abacus"},
        {{.device = "cpu", .isa = "sse9"}, AN_E_ENV, "sse9"},
        {{.device = "cpu", .recompute = "perhaps"}, AN_E_USAGE, "perhaps"},
    };
    for (size_t i = 0; i < AN_COUNT(bad); i++) {
        an_ctx *cx = an_open(&bad[i].o);
        assert_non_null(cx);
        assert_int_equal(an_error_status(cx), bad[i].status);
        assert_non_null(strstr(an_error(cx), bad[i].word));
        print_message("# %s\n", an_error(cx));
        an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(2), AN_ONES), *y = an_sum(w, AN_ALL);
        an_backward(y);
        an_sgd(cx, 0.1);
        assert_int_not_equal(an_eval(y), AN_OK);
        an_item(y);
        an_reset(cx);
        assert_int_not_equal(an_eval_effects(cx), AN_OK);
        an_close(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_null_tensor_is_a_status_and_a_sentence_and_never_a_crash),
        cmocka_unit_test(what_a_failed_call_left_is_refused_after_its_error_was_cleared),
        cmocka_unit_test(a_name_or_kind_of_initial_values_that_would_be_ambiguous_is_refused),
        cmocka_unit_test(numbers_that_would_make_parameters_nan_are_refused_before_the_update),
        cmocka_unit_test(axes_that_join_to_more_than_an_axis_holds_are_named),
        cmocka_unit_test(any_number_of_tensors_is_evaluated_together),
        cmocka_unit_test(shapes_that_do_not_fit_are_named_with_operation_and_scope),
        cmocka_unit_test(a_bad_assignment_names_its_target),
        cmocka_unit_test(dtypes_that_do_not_agree_are_named_with_operation_and_scope),
        cmocka_unit_test(a_tensor_of_another_context_is_refused_and_both_devices_are_named),
        cmocka_unit_test(a_tensor_of_a_step_that_is_over_is_refused),
        cmocka_unit_test(an_id_out_of_range_is_named_before_anything_runs),
        cmocka_unit_test(a_parameter_under_one_name_has_one_shape_and_dtype),
        cmocka_unit_test(an_unknown_device_or_setting_is_refused_and_every_later_call_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
