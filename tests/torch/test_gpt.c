/* test_gpt.c: the GPT model against PyTorch: logits, losses, every gradient and ten AdamW updates, on the oracle and on
 * the CPU.
 *
 * The goldens are float64; float32 arithmetic in PyTorch differs from them by 1e-6 in logits and losses, by 7e-7 of a
 * gradient's largest element, and by 3e-7 in parameters after ten updates. The tolerances here are about ten times
 * that. */
#include <anneal.h>

#include "lib/test.h"
#include "models/gpt/gpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, MAX_EVAL = 16 };

static const char *const MODELS[] = {"gpt_c32", "gpt_c48_bias"};

typedef struct scene {
    const char *device;
    test_golden golden;
    an_ctx *cx;
    an_gpt *model;
    int64_t B, T, V;
    double *x, *y, *y_masked; /* x, y: [STEPS,B,T] */
} scene;

static void check(const scene *s)
{
    if (an_error(s->cx)) fail_msg("%s on %s: %s", s->golden.name, s->device, an_error(s->cx));
}

/* Opens the model and gives it the golden's parameters. */
static scene scene_open(const char *name, const char *device)
{
    scene s = {.device = device, .golden = test_golden_open(name)};
    const test_golden *g = &s.golden;
    s.B = (int64_t)test_golden_number(g, "batch_size");
    s.T = (int64_t)test_golden_number(g, "block_size");
    s.V = (int64_t)test_golden_number(g, "vocab_size");
    size_t n;
    s.x = test_golden_read(g, "x", &n), s.y = test_golden_read(g, "y", &n),
    s.y_masked = test_golden_read(g, "y_masked", &n);

    s.cx = an_open(&(an_options){.device = device, .seed = 1, .verify = true});
    assert_non_null(s.cx);
    an_gpt_config c = {.vocab = s.V,
                       .block = s.T,
                       .layers = (int64_t)test_golden_number(g, "n_layer"),
                       .heads = (int64_t)test_golden_number(g, "n_head"),
                       .width = (int64_t)test_golden_number(g, "n_embd"),
                       .bias = test_golden_number(g, "bias") != 0};
    s.model = an_gpt_open(s.cx, &c);
    check(&s);
    assert_non_null(s.model);
    int loaded = 0;
    for (size_t i = 0; i < an_st_count(g->file); i++) {
        const an_st_tensor *w = an_st_tensor_at(g->file, i);
        if (strncmp(w->name, "transformer.", 12) != 0) continue;
        int at = an_persist_find(s.cx, w->name);
        if (at < 0) fail_msg("the model has no parameter %s", w->name);
        assert_int_equal(an_persist_write(s.cx, at, w->data, w->bytes), AN_OK);
        loaded++;
    }
    assert_int_equal(loaded, an_persist_count(s.cx));
    return s;
}

static void scene_close(scene *s)
{
    free(s->x), free(s->y), free(s->y_masked);
    an_gpt_close(s->model);
    an_close(s->cx);
    test_golden_close(&s->golden);
}

/* Batch `step` of [STEPS,B,T] ids: i32 [B,T] */
static an_tensor *batch(scene *s, const double *ids, int step)
{
    int32_t buffer[256];
    int64_t n = s->B * s->T;
    assert_true(n <= (int64_t)AN_COUNT(buffer));
    for (int64_t i = 0; i < n; i++) buffer[i] = (int32_t)ids[step * n + i];
    return an_input(s->cx, AN_I32, AN_SHAPE(s->B, s->T), buffer);
}

/* Against golden tensor `name`; tolerances relative to the golden's largest element. */
static void compare(scene *s, const char *name, an_tensor *t, double tolerance)
{
    size_t n;
    double *want = test_golden_read(&s->golden, name, &n), largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    an_read(t, got, n * sizeof *got);
    check(s);
    char what[160];
    snprintf(what, sizeof what, "%s on %s: %s", s->golden.name, s->device, name);
    test_close(what, got, want, n, 0, tolerance * largest);
    free(got), free(want);
}

static void compare_number(scene *s, const char *name, int i, double got, double tolerance)
{
    size_t n;
    double *want = test_golden_read(&s->golden, name, &n);
    char what[160];
    snprintf(what, sizeof what, "%s on %s: %s, place %d", s->golden.name, s->device, name, i);
    test_close_f64(what, &got, want + i, 1, tolerance, 0);
    free(want);
}

static void for_each_model(const char *device, void (*body)(scene *s))
{
    for (size_t m = 0; m < AN_COUNT(MODELS); m++) {
        scene s = scene_open(MODELS[m], device);
        body(&s);
        scene_close(&s);
    }
}

static void compare_logits_and_losses(scene *s)
{
    an_tensor *x = batch(s, s->x, 0);
    an_tensor *logits = an_gpt_logits(s->model, x);                                                  /* [B,T,V] */
    an_tensor *loss = an_mean(an_gpt_losses(s->model, x, batch(s, s->y, 0), true), AN_ALL);          /* [] */
    an_tensor *masked = an_sum(an_gpt_losses(s->model, x, batch(s, s->y_masked, 0), false), AN_ALL); /* [] */
    an_eval(logits, loss, masked);
    check(s);
    compare(s, "logits", logits, 1e-5);
    compare_number(s, "loss", 0, an_item(loss), 2e-6);
    int counted = 0;
    for (int64_t i = 0; i < s->B * s->T; i++) counted += s->y_masked[i] >= 0;
    compare_number(s, "loss_masked", 0, an_item(masked) / counted, 2e-6);
}

static void compare_gradients(scene *s)
{
    an_tensor *loss = an_mean(an_gpt_losses(s->model, batch(s, s->x, 0), batch(s, s->y, 0), true), AN_ALL);
    an_backward(loss);
    int n = an_persist_count(s->cx);
    for (int first = 0, k; first < n; first += k) { /* as many at a time as one an_eval takes */
        an_tensor *grads[MAX_EVAL];
        char names[MAX_EVAL][160];
        for (k = 0; k < MAX_EVAL && first + k < n; k++) {
            an_persist p;
            assert_int_equal(an_persist_get(s->cx, first + k, &p), AN_OK);
            snprintf(names[k], sizeof names[k], "grad.%s", p.name);
            grads[k] = an_grad(an_param(s->cx, p.name, p.dtype, p.shape, AN_ZEROS));
            if (!grads[k]) fail_msg("%s has no gradient", p.name);
        }
        an_eval_at(AN_AT, grads, k);
        check(s);
        for (int i = 0; i < k; i++) compare(s, names[i], grads[i], 1e-5);
    }
}

static void compare_ten_updates(scene *s)
{
    const test_golden *g = &s->golden;
    an_adamw_options o = {.lr = test_golden_number(g, "lr"),
                          .beta1 = test_golden_number(g, "beta1"),
                          .beta2 = test_golden_number(g, "beta2"),
                          .eps = test_golden_number(g, "eps"),
                          .weight_decay = test_golden_number(g, "weight_decay"),
                          .clip = test_golden_number(g, "clip")};
    for (int step = 0; step < STEPS; step++) {
        an_tensor *loss = an_mean(an_gpt_losses(s->model, batch(s, s->x, step), batch(s, s->y, step), true), AN_ALL);
        an_backward(loss);
        an_tensor *norm = an_adamw(s->cx, o);
        an_eval(loss, norm);
        check(s);
        compare_number(s, "steps.loss_f64", step, an_item(loss), 3e-6);
        compare_number(s, "steps.grad_norm", step, an_item(norm), 1e-5);
        an_reset(s->cx);
    }
    for (size_t i = 0; i < an_st_count(g->file); i++) {
        const an_st_tensor *w = an_st_tensor_at(g->file, i);
        if (strncmp(w->name, "after.", 6) != 0) continue;
        size_t n;
        double *want = test_golden_read(g, w->name, &n);
        float *got = malloc(w->bytes);
        assert_non_null(got);
        assert_int_equal(an_persist_read(s->cx, an_persist_find(s->cx, w->name + 6), got, w->bytes), AN_OK);
        test_close(w->name, got, want, n, 0, 5e-6);
        free(got), free(want);
    }
}

/* The device is the test's state. */
static void test_logits(void **device)
{
    for_each_model(*device, compare_logits_and_losses);
}
static void test_gradients(void **device)
{
    for_each_model(*device, compare_gradients);
}
static void test_updates(void **device)
{
    for_each_model(*device, compare_ten_updates);
}

int main(void)
{
    static char ref[] = "ref", device[32] = "cpu"; /* AN_LAB_DEVICE: another one */
    if (getenv("AN_LAB_DEVICE")) snprintf(device, sizeof device, "%s", getenv("AN_LAB_DEVICE"));
    const struct CMUnitTest tests[] = {
        {"logits_and_losses_on_ref_are_pytorchs", test_logits, NULL, NULL, ref},
        {"logits_and_losses_on_the_device_are_pytorchs", test_logits, NULL, NULL, device},
        {"every_gradient_on_ref_is_pytorchs", test_gradients, NULL, NULL, ref},
        {"every_gradient_on_the_device_is_pytorchs", test_gradients, NULL, NULL, device},
        {"ten_adamw_updates_on_ref_are_pytorchs", test_updates, NULL, NULL, ref},
        {"ten_adamw_updates_on_the_device_are_pytorchs", test_updates, NULL, NULL, device},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
