/* test_grad_products.c: the gradient of a matrix that many small products read is one long product (grad.c). */
#include "lib/test.h"
#include <anneal.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 3, C = 5, STEPS = 11 };

/* The loss of n steps h = tanh(x + h w), and its gradient by w in `grad` (may be NULL). */
static double loss_of(const double w[C * C], int threads, int n, double *grad)
{
    double x[B * C];
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = threads});
    for (int i = 0; i < B * C; i++) x[i] = sin(i * 1.7);
    an_tensor *m = an_state_at(AN_AT, cx, "w", AN_F64, AN_SHAPE(C, C), AN_ZEROS);
    an_tensor *in = an_input_at(AN_AT, cx, AN_F64, AN_SHAPE(B, C), x), *h = in;
    assert_int_equal(an_persist_write(cx, an_persist_find(cx, "w"), w, C * C * sizeof *w), AN_OK);
    for (int k = 0; k < n; k++) h = an_tanh_at(AN_AT, an_add_at(AN_AT, in, an_linear_at(AN_AT, h, m, NULL)));
    an_tensor *loss = an_sum_at(AN_AT, an_mul_at(AN_AT, h, an_cos_at(AN_AT, in)), AN_ALL, false);
    an_backward_at(AN_AT, loss);
    an_tensor *g = an_grad(m);
    assert_non_null(g);
    assert_int_equal(an_eval_at(AN_AT, (an_tensor *[]){loss, g}, 2), AN_OK);
    const double y = an_item_at(AN_AT, loss);
    if (grad) assert_int_equal(an_read_at(AN_AT, g, grad, C * C * sizeof *grad), AN_OK);
    an_close(cx);
    return y;
}

static void weights(double w[C * C])
{
    for (int i = 0; i < C * C; i++) w[i] = cos(i * 0.9) / 3;
}

/* The same in float32, where the plan names its products. */
static void count_products(int n, int *shorter, int *longer)
{
    char few[64], many[64];
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1});
    an_tensor *m = an_param_at(AN_AT, cx, "w", AN_F32, AN_SHAPE(C, C), AN_NORMAL(0.1));
    an_tensor *in = an_input_at(AN_AT, cx, AN_F32, AN_SHAPE(B, C), (float[B * C]){1, 2, 3}), *h = in;
    for (int k = 0; k < n; k++) h = an_tanh_at(AN_AT, an_add_at(AN_AT, in, an_linear_at(AN_AT, h, m, NULL)));
    an_tensor *loss = an_sum_at(AN_AT, h, AN_ALL, false);
    an_backward_at(AN_AT, loss);
    (void)an_sgd_at(AN_AT, cx, 0.1);
    assert_int_equal(an_eval_at(AN_AT, &loss, 1), AN_OK);
    snprintf(few, sizeof few, " %dx%dx%d ", C, C, B);
    snprintf(many, sizeof many, " %dx%dx%d ", C, C, B * n);
    *shorter = *longer = 0;
    for (const char *at = an_report_text(cx, "plan"); (at = strstr(at, few)) != NULL; at++) ++*shorter;
    for (const char *at = an_report_text(cx, "plan"); (at = strstr(at, many)) != NULL; at++) ++*longer;
    an_close(cx);
}

static void it_is_one_product_from_eight_on(void **unused)
{
    (void)unused;
    int shorter, longer;
    count_products(STEPS, &shorter, &longer);
    assert_int_equal(shorter, 0);
    assert_int_equal(longer, 1);
    count_products(7, &shorter, &longer);
    assert_int_equal(shorter, 7);
    assert_int_equal(longer, 0);
}

static void it_is_the_gradient(void **unused)
{
    (void)unused;
    double w[C * C], g[C * C];
    weights(w);
    loss_of(w, 2, STEPS, g);
    for (int i = 0; i < C * C; i += 3) {
        const double was = w[i], step = 1e-5;
        w[i] = was + step;
        const double more = loss_of(w, 2, STEPS, NULL);
        w[i] = was - step;
        const double less = loss_of(w, 2, STEPS, NULL);
        w[i] = was;
        assert_true(fabs(g[i] - (more - less) / (2 * step)) < 1e-7);
    }
}

static void threads_do_not_change_its_bits(void **unused)
{
    (void)unused;
    double w[C * C], one[C * C], four[C * C];
    weights(w);
    loss_of(w, 1, STEPS, one);
    loss_of(w, 4, STEPS, four);
    assert_memory_equal(one, four, sizeof one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_one_product_from_eight_on),
                                       cmocka_unit_test(it_is_the_gradient),
                                       cmocka_unit_test(threads_do_not_change_its_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
