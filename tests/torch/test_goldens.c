/* test_goldens.c: the golden files agree with themselves, by arithmetic that shares nothing with the script that wrote
 * them. */
#include "lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const GPT[] = {"gpt_c32", "gpt_c48_bias"};

/* Mean cross-entropy of the rows whose target is not -1. logits: [rows,V], targets: [rows] */
static double cross_entropy(const double *logits, const double *targets, size_t rows, size_t V)
{
    double total = 0;
    size_t counted = 0;
    for (size_t r = 0; r < rows; r++) {
        if (targets[r] < 0) continue;
        const double *row = logits + r * V;
        double sum = 0;
        for (size_t v = 0; v < V; v++) sum += exp(row[v]);
        total += log(sum) - row[(size_t)targets[r]];
        counted++;
    }
    return total / (double)counted;
}

static void the_losses_are_the_cross_entropy_of_the_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(GPT); i++) {
        test_golden g = test_golden_open(GPT[i]);
        size_t n, V = (size_t)test_golden_number(&g, "vocab_size");
        double *logits = test_golden_read(&g, "logits", &n);
        size_t rows = n / V;
        static const char *const pairs[][2] = {{"y", "loss"}, {"y_masked", "loss_masked"}};
        for (size_t p = 0; p < AN_COUNT(pairs); p++) {
            double *y = test_golden_read(&g, pairs[p][0], &n), *want = test_golden_read(&g, pairs[p][1], &n);
            double got = cross_entropy(logits, y, rows, V);
            test_close_f64(pairs[p][1], &got, want, 1, 1e-13, 0);
            free(y), free(want);
        }
        free(logits);
        test_golden_close(&g);
    }
}

static void every_parameter_has_a_gradient_and_their_norm_is_the_first_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(GPT); i++) {
        test_golden g = test_golden_open(GPT[i]);
        double squares = 0;
        size_t parameters = 0, n;
        for (size_t t = 0; t < an_st_count(g.file); t++) {
            const an_st_tensor *w = an_st_tensor_at(g.file, t);
            if (strncmp(w->name, "transformer.", 12) != 0) continue;
            char name[160] = "grad.";
            strncat(name, w->name, sizeof name - 6);
            double *grad = test_golden_read(&g, name, &n);
            assert_int_equal(n * sizeof(float), w->bytes);
            for (size_t k = 0; k < n; k++) squares += grad[k] * grad[k];
            free(grad);
            parameters++;
        }
        double *norms = test_golden_read(&g, "steps.grad_norm", &n), norm = sqrt(squares);
        test_close_f64("steps.grad_norm[0]", &norm, norms, 1, 1e-7, 0); /* gradients are stored in float32 */
        double L = test_golden_number(&g, "n_layer"), bias = test_golden_number(&g, "bias");
        assert_int_equal(parameters, (size_t)(3 + 6 * L + bias * (6 * L + 1)));
        free(norms);
        test_golden_close(&g);
    }
}

static void ten_steps_in_float32_follow_those_in_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(GPT); i++) {
        test_golden g = test_golden_open(GPT[i]);
        size_t n, n_loss;
        double *f32 = test_golden_read(&g, "steps.loss_f32", &n), *f64 = test_golden_read(&g, "steps.loss_f64", &n);
        double *loss = test_golden_read(&g, "loss", &n_loss);
        assert_int_equal(n, 10);
        test_close_f64("steps.loss_f32", f32, f64, n, 1e-6, 0);
        test_close_f64("steps.loss_f64[0]", f64, loss, 1, 1e-14, 0);
        free(f32), free(f64), free(loss);
        test_golden_close(&g);
    }
}

static void softmax_and_gelu_are_their_formulas(void **state)
{
    (void)state;
    test_golden g = test_golden_open("ops");
    size_t n;
    double *x = test_golden_read(&g, "softmax.x", &n), *want = test_golden_read(&g, "softmax.result", &n), got[28];
    assert_int_equal(n, AN_COUNT(got)); /* [4,7] */
    for (size_t r = 0; r < 4; r++) {
        double sum = 0;
        for (size_t c = 0; c < 7; c++) sum += exp(x[r * 7 + c]);
        for (size_t c = 0; c < 7; c++) got[r * 7 + c] = exp(x[r * 7 + c]) / sum;
    }
    test_close_f64("softmax", got, want, n, 1e-14, 0);
    free(x), free(want);
    x = test_golden_read(&g, "gelu.x", &n), want = test_golden_read(&g, "gelu.result", &n);
    for (size_t k = 0; k < n; k++) got[k] = x[k] * 0.5 * erfc(-x[k] / sqrt(2.0));
    test_close_f64("gelu", got, want, n, 1e-13, 1e-15);
    free(x), free(want);
    test_golden_close(&g);
}

static an_status open_and_close(an_err *err, void *arg)
{
    (void)arg;
    an_st *file = NULL;
    AN_TRY(an_st_open(err, "tests/torch/ops.safetensors", &file));
    an_st_close(file);
    return AN_OK;
}

static void opening_a_golden_survives_each_refused_allocation(void **state)
{
    (void)state;
    test_refuse_each_allocation(open_and_close, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_losses_are_the_cross_entropy_of_the_logits),
        cmocka_unit_test(every_parameter_has_a_gradient_and_their_norm_is_the_first_steps),
        cmocka_unit_test(ten_steps_in_float32_follow_those_in_float64),
        cmocka_unit_test(softmax_and_gelu_are_their_formulas),
        cmocka_unit_test(opening_a_golden_survives_each_refused_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
