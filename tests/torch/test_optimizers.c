/* test_optimizers.c: every optimizer, and averages of the parameters, against PyTorch's: in float64 to 1e-12, in float32 to
 * its rounding, whether there is one parameter of each dtype or both. */
#include <anneal.h>

#include "lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct numbers {
    int updates;
    double lr, beta1, beta2, decay, ema;
} numbers;

static an_tensor *update(const char *row, an_ctx *cx, const numbers *n)
{
    const an_adamw_options a = {
        .lr = n->lr, .beta1 = n->beta1, .beta2 = n->beta2, .eps = 1e-8, .weight_decay = n->decay};
    an_sgd_options s = {.lr = n->lr, .weight_decay = n->decay};
    if (!strcmp(row, "adam")) return an_adam(cx, a);
    if (!strcmp(row, "adamw")) return an_adamw(cx, a);
    if (!strcmp(row, "adam_atan2")) return an_adam_atan2(cx, a);
    if (strcmp(row, "sgd") != 0) s.momentum = 0.9;
    if (!strcmp(row, "dampened")) s.dampening = 0.25;
    s.nesterov = !strcmp(row, "nesterov");
    return an_sgd_with(cx, s);
}

static void write_param(an_ctx *cx, const char *name, an_dtype dtype, const double *x, size_t n)
{
    double *d = malloc(n * sizeof *d);
    for (size_t i = 0; i < n; i++) {
        if (dtype == AN_F64)
            d[i] = x[i];
        else
            ((float *)(void *)d)[i] = (float)x[i];
    }
    assert_int_equal(an_persist_write(cx, an_persist_find(cx, name), d, n * an_dtype_size(dtype)), AN_OK);
    free(d);
}

/* Compares the parameter or average `name` with the golden's tensor `want`. */
static void compare(an_ctx *cx, const test_golden *g, const char *name, const char *want, an_dtype dtype, double most)
{
    size_t n;
    double *right = test_golden_read(g, want, &n), *got = malloc(n * sizeof *got);
    const int i = an_persist_find(cx, name);
    if (i < 0) fail_msg("nothing is named %s", name);
    assert_int_equal(an_persist_read(cx, i, got, n * an_dtype_size(dtype)), AN_OK);
    for (size_t k = 0; k < n; k++) {
        const double x = dtype == AN_F64 ? got[k] : (double)((float *)(void *)got)[k];
        if (!(fabs(x - right[k]) <= most)) fail_msg("%s[%zu] is %.17g, wanted %.17g", want, k, x, right[k]);
    }
    free(right), free(got);
}

/* The gradient of w and b in update t, as sum(p g): f32 holds it exactly. */
static an_tensor *loss_of(an_ctx *cx, const char *name, an_dtype dtype, an_shape shape, const double *g, size_t n)
{
    float *f = malloc(n * sizeof *f);
    for (size_t i = 0; i < n; i++) f[i] = (float)g[i];
    an_tensor *p = an_param(cx, name, dtype, shape, AN_ZEROS);
    an_tensor *loss = an_sum(an_mul(p, an_cast(an_input(cx, AN_F32, shape, f), dtype)), AN_ALL);
    free(f);
    return an_cast(loss, AN_F32);
}

static void run(const char *device, const char *row, an_dtype w_type, an_dtype b_type)
{
    test_golden g = test_golden_open("optimizers");
    const numbers s = {(int)test_golden_number(&g, "updates"), test_golden_number(&g, "lr"),
                       test_golden_number(&g, "beta1"),        test_golden_number(&g, "beta2"),
                       test_golden_number(&g, "decay"),        test_golden_number(&g, "ema")};
    size_t n, w_n = 15, b_n = 4;
    double *w0 = test_golden_read(&g, "first.w", &n), *b0 = test_golden_read(&g, "first.b", &n),
           *gw = test_golden_read(&g, "grad.w", &n), *gb = test_golden_read(&g, "grad.b", &n);
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    an_param(cx, "w", w_type, AN_SHAPE(3, 5), AN_ZEROS);
    an_param(cx, "b", b_type, AN_SHAPE(4), AN_ZEROS);
    write_param(cx, "w", w_type, w0, w_n);
    write_param(cx, "b", b_type, b0, b_n);
    for (int t = 0; t < s.updates; t++) {
        an_backward(an_add(loss_of(cx, "w", w_type, AN_SHAPE(3, 5), gw + (size_t)t * w_n, w_n),
                           loss_of(cx, "b", b_type, AN_SHAPE(4), gb + (size_t)t * b_n, b_n)));
        an_tensor *norm = update(row, cx, &s);
        an_ema(cx, s.ema, NULL);
        if (an_eval(norm) != AN_OK) fail_msg("%s on %s: %s", row, device, an_error(cx));
        assert_int_equal(an_dtype_of(norm), AN_F32);
        an_reset(cx);
    }
    char want[2][64];
    for (int b = 0; b < 2; b++) {
        const an_dtype dtype = b ? b_type : w_type;
        snprintf(want[0], sizeof want[0], "%s.%s", row, b ? "b" : "w");
        snprintf(want[1], sizeof want[1], "%s.ema.%s", row, b ? "b" : "w");
        compare(cx, &g, b ? "b" : "w", want[0], dtype, dtype == AN_F64 ? 1e-12 : 2e-6);
        compare(cx, &g, b ? "ema.b" : "ema.w", want[1], dtype, dtype == AN_F64 ? 1e-12 : 2e-6);
    }
    an_close(cx);
    free(w0), free(b0), free(gw), free(gb);
    test_golden_close(&g);
}

static const char *const rows[] = {"sgd", "momentum", "dampened", "nesterov", "adam", "adamw", "adam_atan2"};

static void each_optimizer_and_its_averages_are_pytorchs_in_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(rows); i++) run("cpu", rows[i], AN_F64, AN_F64);
}

static void each_optimizer_and_its_averages_are_pytorchs_in_float32(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(rows); i++) run("cpu", rows[i], AN_F32, AN_F32);
}

static void parameters_of_two_dtypes_are_updated_in_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(rows); i++) run("cpu", rows[i], i % 2 ? AN_F64 : AN_F32, i % 2 ? AN_F32 : AN_F64);
}

static void the_oracle_computes_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(rows); i++) run("ref", rows[i], AN_F64, AN_F32);
}

static void load_param(an_ctx *cx, const test_golden *g, const char *name, const char *from, an_dtype dtype)
{
    size_t n;
    double *x = test_golden_read(g, from, &n);
    write_param(cx, name, dtype, x, n);
    free(x);
}

static void close_to(const char *what, an_tensor *t, const test_golden *g, const char *want, double most)
{
    size_t n;
    double *right = test_golden_read(g, want, &n), *got = malloc(n * sizeof *got);
    assert_int_equal(an_read(t, got, n * an_dtype_size(an_dtype_of(t))), AN_OK);
    for (size_t k = 0; k < n; k++) {
        const double x = an_dtype_of(t) == AN_F64 ? got[k] : (double)((float *)(void *)got)[k];
        if (!(fabs(x - right[k]) <= most)) fail_msg("%s: %s[%zu] is %.17g, wanted %.17g", what, want, k, x, right[k]);
    }
    free(right), free(got);
}

static int32_t *integers(const test_golden *g, const char *name, size_t *n)
{
    double *x = test_golden_read(g, name, n);
    int32_t *out = malloc(*n * sizeof *out);
    for (size_t i = 0; i < *n; i++) out[i] = (int32_t)x[i];
    free(x);
    return out;
}

static void stablemax_and_its_gradient_are_pytorchs(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        an_dtype dtype;
        double most;
    } rows_of[] = {{"cpu", AN_F64, 1e-13}, {"cpu", AN_F32, 1e-6}, {"ref", AN_F32, 1e-6}};
    for (size_t i = 0; i < AN_COUNT(rows_of); i++) {
        const an_dtype dtype = rows_of[i].dtype;
        test_golden g = test_golden_open("optimizers");
        size_t n;
        int32_t *labels = integers(&g, "stablemax.labels", &n);
        double *up = test_golden_read(&g, "stablemax.upstream", &n);
        float up_f32[16];
        for (size_t k = 0; k < n; k++) up_f32[k] = (float)up[k];
        an_ctx *cx = an_open(&(an_options){.device = rows_of[i].device, .cc = "none", .threads = 1});
        an_tensor *x = an_param(cx, "x", dtype, AN_SHAPE(9, 13), AN_ZEROS);
        load_param(cx, &g, "x", "stablemax.logits", dtype);
        an_tensor *loss = an_stablemax_cross_entropy(x, an_input(cx, AN_I32, AN_SHAPE(9), labels));
        an_tensor *weight = an_cast(an_input(cx, AN_F32, AN_SHAPE(9), up_f32), dtype);
        an_backward(an_sum(an_mul(loss, weight), AN_ALL));
        an_tensor *grad = an_grad(x);
        if (an_eval(loss, grad) != AN_OK) fail_msg("%s", an_error(cx));
        assert_int_equal(an_dtype_of(loss), dtype);
        close_to(rows_of[i].device, loss, &g, "stablemax.loss", rows_of[i].most);
        close_to(rows_of[i].device, grad, &g, "stablemax.grad", rows_of[i].most);
        an_close(cx);
        free(labels), free(up);
        test_golden_close(&g);
    }
}

static void rows_of_a_table_descend_by_the_sign_of_their_summed_gradients(void **state)
{
    (void)state;
    enum { V = 12, n = 7, c = 6, UPDATES = 3 };
    for (int d = 0; d < 3; d++) {
        const char *device = d == 2 ? "ref" : "cpu";
        const an_dtype dtype = d == 0 ? AN_F64 : AN_F32;
        test_golden g = test_golden_open("optimizers");
        size_t all;
        int32_t *ids = integers(&g, "rows.ids", &all);
        double *grads = test_golden_read(&g, "rows.grads", &all);
        an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1});
        an_state(cx, "table", dtype, AN_SHAPE(V, c), AN_ZEROS);
        load_param(cx, &g, "table", "rows.first", dtype);
        for (int t = 0; t < UPDATES; t++) {
            float now[n * c];
            for (int k = 0; k < n * c; k++) now[k] = (float)grads[t * n * c + k];
            an_sign_sgd_rows(an_state(cx, "table", dtype, AN_SHAPE(V, c), AN_ZEROS),
                             an_input(cx, AN_I32, AN_SHAPE(n), ids + t * n),
                             an_cast(an_input(cx, AN_F32, AN_SHAPE(n, c), now), dtype), 0.01, 0.5, NULL);
            if (an_eval_effects(cx) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
            an_reset(cx);
        }
        compare(cx, &g, "table", "rows.last", dtype, dtype == AN_F64 ? 1e-14 : 5e-7);
        an_close(cx);
        free(ids), free(grads);
        test_golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_optimizer_and_its_averages_are_pytorchs_in_float64),
        cmocka_unit_test(each_optimizer_and_its_averages_are_pytorchs_in_float32),
        cmocka_unit_test(parameters_of_two_dtypes_are_updated_in_their_own),
        cmocka_unit_test(the_oracle_computes_the_same),
        cmocka_unit_test(stablemax_and_its_gradient_are_pytorchs),
        cmocka_unit_test(rows_of_a_table_descend_by_the_sign_of_their_summed_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
