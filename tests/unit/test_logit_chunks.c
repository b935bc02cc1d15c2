/* test_logit_chunks.c: the loss of a linear head whose logits are made chunk by chunk. */
#include <anneal.h>
#include "lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 50, C = 16, V = 96 }; /* 50 rows in 8 chunks: seven of 7 and one of 1 */
static const int64_t some = N * V / 8 + V;

typedef struct outcome {
    float loss[N], dx[N * C], dw[V * C];
    an_bill bill;
} outcome;

static void run(an_options o, an_policy policy, bool backward, outcome *out)
{
    int32_t y[N];
    for (int i = 0; i < N; i++) y[i] = i % 5 == 4 ? -100 : i * 37 % V;
    o.threads = 2;
    o.cc = "none";
    o.verify = true;
    an_ctx *cx = an_open(&o);
    an_set_policy(cx, policy);
    assert_int_equal(an_get_policy(cx).logits, policy.logits);
    an_tensor *px = an_param(cx, "x", AN_F32, AN_SHAPE(N, C), AN_NORMAL(1));
    an_tensor *pw = an_param(cx, "w", AN_F32, AN_SHAPE(V, C), AN_NORMAL(1));
    an_tensor *loss = an_linear_cross_entropy(an_tanh(px), pw, an_input(cx, AN_I32, AN_SHAPE(N), y));
    if (backward) {
        an_backward(an_mean(loss, AN_ALL));
        an_tensor *dx = an_grad(px), *dw = an_grad(pw);
        an_eval(loss, dx, dw);
        an_read(dx, out->dx, sizeof out->dx);
        an_read(dw, out->dw, sizeof out->dw);
    } else {
        an_eval(loss);
    }
    an_read(loss, out->loss, sizeof out->loss);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    if (strcmp(o.device, "ref")) assert_int_equal(an_report(cx, &out->bill), AN_OK); /* it has no plan */
    an_close(cx);
}

/* Rows are independent: losses and the gradient of x have the same bits; w's is summed chunk by chunk. */
static void expect_equal(const outcome *whole, const outcome *chunks)
{
    assert_memory_equal(whole->loss, chunks->loss, sizeof whole->loss);
    assert_memory_equal(whole->dx, chunks->dx, sizeof whole->dx);
    double far = 0, size = 0;
    for (int i = 0; i < V * C; i++) {
        const double apart = fabs((double)whole->dw[i] - (double)chunks->dw[i]), large = fabs((double)whole->dw[i]);
        assert_false(isnan(apart));
        if (apart > far) far = apart; /* not fmax, on which GCC 12 for arm64 crashes */
        if (large > size) size = large;
    }
    assert_true(size > 0.001);
    if (!(far <= 1e-6 * size)) fail_msg("w's gradients differ by %g of %g", far, size);
}

static void chunks_give_the_same_losses_and_gradients(void **state)
{
    (void)state;
    static outcome whole, chunks;
    static const char *const recompute[] = {"off", "on"};
    static const an_dtype matmul[] = {AN_F32, AN_BF16};
    for (int i = 0; i < 4; i++) {
        const an_options o = {.device = "cpu", .recompute = recompute[i / 2]};
        run(o, (an_policy){.matmul = matmul[i % 2]}, true, &whole);
        run(o, (an_policy){.matmul = matmul[i % 2], .logits = some}, true, &chunks);
        expect_equal(&whole, &chunks);
        assert_true(chunks.bill.launches > whole.bill.launches);
    }
}

static void chunks_agree_with_the_reference(void **state)
{
    (void)state;
    static outcome oracle, chunks;
    run((an_options){.device = "ref"}, (an_policy){.matmul = AN_F32}, true, &oracle);
    run((an_options){.device = "cpu"}, (an_policy){.matmul = AN_F32, .logits = some}, true, &chunks);
    for (int i = 0; i < N; i++) assert_true(fabs((double)oracle.loss[i] - (double)chunks.loss[i]) < 1e-5);
    for (int i = 0; i < N * C; i++) assert_true(fabs((double)oracle.dx[i] - (double)chunks.dx[i]) < 1e-6);
    for (int i = 0; i < V * C; i++) assert_true(fabs((double)oracle.dw[i] - (double)chunks.dw[i]) < 1e-6);
}

/* What it is for: a chunk's logits and their gradient share memory, which the next chunk uses again. */
static void one_chunk_of_the_logits_is_in_memory_at_a_time(void **state)
{
    (void)state;
    static outcome whole, chunks;
    const uint64_t chunk = 7 * V * sizeof(float), slack = 1024;
    const uint64_t results = (N + N * C + V * C) * sizeof(float), x = N * C * sizeof(float);
    for (int backward = 0; backward < 2; backward++) {
        run((an_options){.device = "cpu"}, (an_policy){.matmul = AN_F32}, backward, &whole);
        run((an_options){.device = "cpu"}, (an_policy){.matmul = AN_F32, .logits = some}, backward, &chunks);
        assert_true(whole.bill.activation_bytes >= N * V * sizeof(float));
        if (chunks.bill.activation_bytes > chunk + 2 * x + (backward ? results : 0) + slack)
            fail_msg("%llu bytes whole, %llu in chunks", (unsigned long long)whole.bill.activation_bytes,
                     (unsigned long long)chunks.bill.activation_bytes);
    }
}

/* The product's gradient goes past the copy: what the copy would say is not the whole. */
/* The narrowed copy of a float32 weight has the gradient of all that reads it, and the weight the same unrounded. */
static void a_weights_copy_has_its_gradient_as_the_weight_has(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1, .cc = "none"});
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(4, 4), AN_NORMAL(1)), *copy = an_cast(w, AN_BF16);
    an_tensor *turned = an_transpose(w, 0, 1), *x = an_full(cx, AN_BF16, AN_SHAPE(6, 4), 1);
    an_tensor *y = an_matmul(an_cast(x, AN_F32), turned);
    an_backward(an_add(an_sum(an_cast(an_matmul(x, copy), AN_F32), AN_ALL),
                       an_add(an_sum(y, AN_ALL), an_sum(an_cast(copy, AN_F32), AN_ALL))));
    an_tensor *dw = an_sum(an_grad(w), AN_ALL), *dt = an_sum(an_grad(turned), AN_ALL);
    an_tensor *dc = an_sum(an_cast(an_grad(copy), AN_F32), AN_ALL);
    an_eval(dw, dt, dc);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    assert_true(an_item(dw) == 6 * 16 + 6 * 16 + 16);
    assert_true(an_item(dt) == 6 * 16);
    assert_true(an_item(dc) == 6 * 16 + 16);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_the_same_losses_and_gradients),
        cmocka_unit_test(chunks_agree_with_the_reference),
        cmocka_unit_test(a_weights_copy_has_its_gradient_as_the_weight_has),
        cmocka_unit_test(one_chunk_of_the_logits_is_in_memory_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
