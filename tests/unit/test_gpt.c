/* test_gpt.c: names, numbers and shapes of the model; decoding with a cache against the whole forward pass. Its
 * mathematics is compared with PyTorch in tests/torch. */
#include <anneal.h>
#include "lib/test.h"
#include "models/gpt/gpt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const an_gpt_config shakespeare = {.vocab = 65, .block = 256, .layers = 6, .heads = 6, .width = 384};
static const an_gpt_config macbook = {.vocab = 65, .block = 64, .layers = 4, .heads = 4, .width = 128};
static const an_gpt_config gpt2 = {.vocab = 50304, .block = 1024, .layers = 12, .heads = 12, .width = 768};
static const an_gpt_config released = {
    .vocab = 50257, .block = 1024, .layers = 12, .heads = 12, .width = 768, .bias = true};
static const an_gpt_config tiny = {
    .vocab = 11, .block = 8, .layers = 2, .heads = 2, .width = 8, .bias = true, .dropout = 0.5};

static void parameter_counts_are_those_nanogpt_prints(void **state)
{
    (void)state;
    assert_int_equal(an_gpt_parameters(&shakespeare), 10745088);
    assert_int_equal(an_gpt_parameters_printed(&shakespeare), 10646784);
    assert_int_equal(an_gpt_parameters(&macbook), 804096);
    assert_int_equal(an_gpt_parameters(&gpt2), 124373760);
    assert_int_equal(an_gpt_parameters(&released), 124439808);
}

static void flops_are_those_of_the_formula(void **state)
{
    (void)state;
    const double n = 65.0 * 128 + 4 * 12 * 128.0 * 128;
    assert_true(an_gpt_flops(&macbook, 12, 64) == (6 * n + 12.0 * 4 * 128 * 64) * 12 * 64);
}

static void configs_that_make_no_model_are_refused_with_a_reason(void **state)
{
    (void)state;
    assert_null(an_gpt_fault(&gpt2));
    an_gpt_config c = macbook;
    c.heads = 3;
    assert_non_null(strstr(an_gpt_fault(&c), "n_head"));
    c = macbook, c.dropout = 1.0;
    assert_non_null(strstr(an_gpt_fault(&c), "dropout"));
    c = macbook, c.dropout = NAN;
    assert_non_null(an_gpt_fault(&c));
    c = macbook, c.vocab = 0;
    assert_non_null(an_gpt_fault(&c));
    c = macbook, c.layers = 0;
    assert_non_null(an_gpt_fault(&c));
    c = macbook, c.vocab = INT32_MAX;
    assert_non_null(an_gpt_fault(&c));
    assert_null(an_gpt_open(NULL, &c));
}

static an_ctx *open_cpu(uint64_t seed)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = seed, .threads = 1});
    assert_non_null(cx);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static void check(an_ctx *cx, an_status status)
{
    if (status != AN_OK || an_error(cx))
        fail_msg("status %d: %s", (int)status, an_error(cx) ? an_error(cx) : "no sentence");
}

static void names_and_shapes_are_nanogpts_and_the_head_is_tied(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int rank;
        int64_t dim[2];
    } want[] = {
        {"transformer.wte.weight", 2, {11, 8}},
        {"transformer.wpe.weight", 2, {8, 8}},
        {"transformer.h.0.ln_1.weight", 1, {8}},
        {"transformer.h.0.ln_1.bias", 1, {8}},
        {"transformer.h.0.attn.c_attn.weight", 2, {24, 8}},
        {"transformer.h.0.attn.c_attn.bias", 1, {24}},
        {"transformer.h.0.attn.c_proj.weight", 2, {8, 8}},
        {"transformer.h.1.ln_2.weight", 1, {8}},
        {"transformer.h.1.mlp.c_fc.weight", 2, {32, 8}},
        {"transformer.h.1.mlp.c_proj.weight", 2, {8, 32}},
        {"transformer.h.1.mlp.c_proj.bias", 1, {8}},
        {"transformer.ln_f.weight", 1, {8}},
        {"transformer.ln_f.bias", 1, {8}},
    };
    an_ctx *cx = open_cpu(1);
    an_gpt *m = an_gpt_open(cx, &tiny);
    assert_non_null(m);
    check(cx, AN_OK);
    assert_int_equal(an_persist_count(cx), 2 + 2 * 12 + 2);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        an_persist p;
        const int at = an_persist_find(cx, want[i].name);
        if (at < 0) fail_msg("no parameter %s", want[i].name);
        assert_int_equal(an_persist_get(cx, at, &p), AN_OK);
        assert_int_equal(p.dtype, AN_F32);
        assert_int_equal(p.shape.rank, want[i].rank);
        assert_memory_equal(p.shape.dim, want[i].dim, (size_t)p.shape.rank * sizeof p.shape.dim[0]);
    }
    assert_int_equal(an_persist_find(cx, "lm_head.weight"), -1);
    an_gpt_close(m);
    an_close(cx);
}

/* Standard deviation of a parameter. */
static double spread(an_ctx *cx, const char *name, size_t n)
{
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    check(cx, an_persist_read(cx, an_persist_find(cx, name), v, n * sizeof *v));
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += v[i], squares += (double)v[i] * v[i];
    free(v);
    return sqrt(squares / (double)n - sum / (double)n * sum / (double)n);
}

static void initialisation_has_nanogpts_standard_deviations(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu(7);
    an_gpt *m = an_gpt_open(cx, &macbook);
    const size_t C = 128;
    assert_true(fabs(spread(cx, "transformer.wte.weight", 65 * C) / 0.02 - 1) < 0.04);
    assert_true(fabs(spread(cx, "transformer.wpe.weight", 64 * C) / 0.02 - 1) < 0.04);
    assert_true(fabs(spread(cx, "transformer.h.0.attn.c_attn.weight", 3 * C * C) / 0.02 - 1) < 0.02);
    assert_true(fabs(spread(cx, "transformer.h.3.mlp.c_fc.weight", 4 * C * C) / 0.02 - 1) < 0.02);
    assert_true(fabs(spread(cx, "transformer.h.2.attn.c_proj.weight", C * C) / (0.02 / sqrt(8)) - 1) < 0.04);
    assert_true(fabs(spread(cx, "transformer.h.1.mlp.c_proj.weight", 4 * C * C) / (0.02 / sqrt(8)) - 1) < 0.02);
    assert_true(spread(cx, "transformer.ln_f.weight", C) == 0);
    an_gpt_close(m);
    an_close(cx);
}

static void an_untrained_model_knows_nothing_so_its_loss_is_the_logarithm_of_the_vocabulary(void **state)
{
    (void)state;
    int32_t x[4 * 8], y[4 * 8];
    for (int i = 0; i < 32; i++) x[i] = (i * 7) % 11, y[i] = (i * 5 + 3) % 11;
    an_ctx *cx = open_cpu(3);
    an_gpt *m = an_gpt_open(cx, &tiny);
    an_tensor *losses =
        an_gpt_losses(m, an_input(cx, AN_I32, AN_SHAPE(4, 8), x), an_input(cx, AN_I32, AN_SHAPE(4, 8), y), false);
    an_tensor *loss = an_mean(losses, AN_ALL);
    check(cx, an_eval(loss));
    assert_true(fabs(an_item(loss) - log(11)) < 0.01);
    an_gpt_close(m);
    an_close(cx);
}

static double loss_of(an_ctx *cx, an_gpt *m, uint64_t step, bool training)
{
    static const int32_t x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {2, 3, 4, 5, 6, 7, 8, 9};
    an_set_step(cx, step);
    an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(1, 8), x), *labels = an_input(cx, AN_I32, AN_SHAPE(1, 8), y);
    an_tensor *loss = an_mean(an_gpt_losses(m, tokens, labels, training), AN_ALL);
    check(cx, an_eval(loss));
    const double value = an_item(loss);
    an_reset(cx);
    return value;
}

static void dropout_acts_in_training_only_and_differs_from_step_to_step(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu(3);
    an_gpt *m = an_gpt_open(cx, &tiny);
    const double evaluated = loss_of(cx, m, 0, false), first = loss_of(cx, m, 0, true),
                 second = loss_of(cx, m, 1, true);
    assert_true(evaluated == loss_of(cx, m, 5, false));
    assert_true(first != evaluated && second != evaluated && first != second);
    assert_true(first == loss_of(cx, m, 0, true));
    an_gpt_close(m);
    an_close(cx);
}

/* logits[t] of the whole pass against a prefill of `prompt` tokens and decoding of the others. */
static void compare_decoding(an_dtype matmul, int prompt, double tolerance)
{
    enum { S = 8, V = 11 };
    static const int32_t text[S] = {3, 1, 4, 1, 5, 9, 2, 6};
    float whole[S * V], one[V];
    an_ctx *cx = open_cpu(11);
    an_set_policy(cx, (an_policy){.matmul = matmul});
    an_gpt *m = an_gpt_open(cx, &tiny);
    an_tensor *all = an_gpt_logits(m, an_input(cx, AN_I32, AN_SHAPE(1, S), text));
    check(cx, an_eval(all));
    check(cx, an_read(all, whole, sizeof whole));
    an_reset(cx);
    for (int t = prompt - 1; t < S; t++) {
        int32_t padded[S] = {0};
        memcpy(padded, text, (size_t)prompt * sizeof *padded);
        an_tensor *logits = t < prompt
                                ? an_gpt_prefill(m, an_input(cx, AN_I32, AN_SHAPE(1, S), padded), an_scalar_i32(cx, t))
                                : an_gpt_decode(m, an_input(cx, AN_I32, AN_SHAPE(1, 1), &text[t]), an_scalar_i32(cx, t),
                                                an_scalar_i32(cx, t + 1));
        check(cx, an_eval(logits));
        check(cx, an_read(logits, one, sizeof one));
        an_reset(cx);
        for (int v = 0; v < V; v++)
            if (!(fabs(one[v] - whole[t * V + v]) <= tolerance))
                fail_msg("position %d, token %d: %g decoded, %g in the whole pass", t, v, one[v], whole[t * V + v]);
    }
    an_gpt_close(m);
    an_close(cx);
}

static void decoding_with_the_cache_gives_the_logits_of_the_whole_pass(void **state)
{
    (void)state;
    compare_decoding(AN_F32, 1, 1e-6);
    compare_decoding(AN_F32, 3, 1e-6);
    compare_decoding(AN_F32, 8, 1e-6);
}

static void decoding_in_bfloat16_is_as_close_as_bfloat16(void **state)
{
    (void)state;
    compare_decoding(AN_BF16, 3, 5e-3);
}

static void gradients_reach_every_parameter(void **state)
{
    (void)state;
    static const int32_t x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {2, 3, 4, 5, 6, 7, 8, 9};
    an_ctx *cx = open_cpu(5);
    an_gpt *m = an_gpt_open(cx, &tiny);
    double before[64], after[64];
    const int n = an_persist_count(cx);
    assert_true(n < 64);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            an_persist p;
            float v[512];
            assert_int_equal(an_persist_get(cx, i, &p), AN_OK);
            size_t numel = 1;
            for (int axis = 0; axis < p.shape.rank; axis++) numel *= (size_t)p.shape.dim[axis];
            assert_true(numel <= 512);
            if (p.kind != 0) continue;
            check(cx, an_persist_read(cx, i, v, numel * sizeof *v));
            double sum = 0;
            for (size_t k = 0; k < numel; k++) sum += v[k] * (double)(k + 1);
            *(pass ? &after[i] : &before[i]) = sum;
        }
        if (pass) break;
        an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(1, 8), x), *labels = an_input(cx, AN_I32, AN_SHAPE(1, 8), y);
        an_tensor *loss = an_mean(an_gpt_losses(m, tokens, labels, false), AN_ALL);
        an_backward(loss);
        an_adamw(cx, ((an_adamw_options){.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .t = 1}));
        check(cx, an_eval(loss));
        an_reset(cx);
    }
    for (int i = 0; i < n; i++)
        if (before[i] == after[i]) fail_msg("parameter %d did not move", i);
    an_gpt_close(m);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_counts_are_those_nanogpt_prints),
        cmocka_unit_test(flops_are_those_of_the_formula),
        cmocka_unit_test(configs_that_make_no_model_are_refused_with_a_reason),
        cmocka_unit_test(names_and_shapes_are_nanogpts_and_the_head_is_tied),
        cmocka_unit_test(initialisation_has_nanogpts_standard_deviations),
        cmocka_unit_test(an_untrained_model_knows_nothing_so_its_loss_is_the_logarithm_of_the_vocabulary),
        cmocka_unit_test(dropout_acts_in_training_only_and_differs_from_step_to_step),
        cmocka_unit_test(decoding_with_the_cache_gives_the_logits_of_the_whole_pass),
        cmocka_unit_test(decoding_in_bfloat16_is_as_close_as_bfloat16),
        cmocka_unit_test(gradients_reach_every_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
