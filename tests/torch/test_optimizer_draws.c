/* test_optimizer_draws.c: optimizers with settings drawn at random, the odd ones among them, end where PyTorch's do in float64:
 * rates of 0, betas of 0 and near 1, eps of 0 and 1e10, counts that begin at 10^9, gradients with infinities and NaN.
 *
 * tools/pytorch_optimizers.py drew them and wrote their ends; beside PyTorch itself it compares any number of draws, in
 * every dtype. */
#include <anneal.h>

#include "lib/test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum setting {
    KIND,
    UPDATES,
    MICRO,
    CLIP,
    DECAY,
    EMA, /* -1: none */
    FIRST,
    MOMENTUM,
    NESTEROV,
    DAMPENING,
    BETA1,
    BETA2,
    EPS,
    N_SETTINGS
} setting;
enum { SGD, ADAM, ADAMW, ATAN2, LARGEST = 32 };

typedef struct draw {
    int number;
    double *s, *lr, *grads[2]; /* of w and b: [updates * micro, numel] */
    an_shape shape[2];
    size_t n[2];
} draw;

static const char *const names[2] = {"w", "b"};

static double *tensor(const test_golden *g, int number, const char *name, const char *what, size_t *n)
{
    char key[64];
    snprintf(key, sizeof key, "%d.%s%s", number, name, what);
    return test_golden_read(g, key, n);
}

static an_tensor *update(an_ctx *cx, const draw *d, int u)
{
    const double *s = d->s;
    const int64_t t = s[FIRST] > 0 ? (int64_t)s[FIRST] + u : 0;
    const an_adamw_options a = {.lr = d->lr[u],
                                .beta1 = s[BETA1],
                                .beta2 = s[BETA2],
                                .eps = s[EPS],
                                .weight_decay = s[DECAY],
                                .clip = s[CLIP],
                                .t = t};
    const an_sgd_options b = {.lr = d->lr[u],
                              .momentum = s[MOMENTUM],
                              .dampening = s[DAMPENING],
                              .weight_decay = s[DECAY],
                              .clip = s[CLIP],
                              .nesterov = s[NESTEROV] != 0,
                              .t = t};
    switch ((int)s[KIND]) {
    case SGD: return an_sgd_with(cx, b);
    case ADAM: return an_adam(cx, a);
    case ADAMW: return an_adamw(cx, a);
    default: return an_adam_atan2(cx, a);
    }
}

/* The gradients of micro-batch m as those of sum(p g). */
static void backward(an_ctx *cx, const draw *d, int m)
{
    an_tensor *part[2];
    for (int i = 0; i < 2; i++) {
        an_tensor *p = an_param(cx, names[i], AN_F64, d->shape[i], AN_ZEROS);
        part[i] = an_sum(an_mul(p, an_input(cx, AN_F64, d->shape[i], d->grads[i] + (size_t)m * d->n[i])), AN_ALL);
    }
    an_backward(an_add(part[0], part[1]));
}

/* Against `want`, to the rounding of numbers as large as those on the way: `size` times 64 epsilons. */
static void compare(an_ctx *cx, const draw *d, const char *name, const double *want, size_t n, double size)
{
    double got[LARGEST];
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, name), got, n * sizeof *got), AN_OK);
    for (size_t k = 0; k < n; k++)
        if (!(got[k] == want[k] || (isnan(got[k]) && isnan(want[k])) ||
              fabs(got[k] - want[k]) <= 64 * DBL_EPSILON * size))
            fail_msg("draw %d: %s[%zu] is %.17g, wanted %.17g", d->number, name, k, got[k], want[k]);
}

static double largest(double so_far, const double *x, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (isfinite(x[k])) so_far = fmax(so_far, fabs(x[k]));
    return so_far;
}

static void run(const test_golden *g, const char *device, draw *d)
{
    const int updates = (int)d->s[UPDATES], micro = (int)d->s[MICRO];
    double size = 0, now[LARGEST];
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    for (int i = 0; i < 2; i++) {
        size_t n;
        double *first = tensor(g, d->number, names[i], "", &n);
        an_param(cx, names[i], AN_F64, d->shape[i], AN_ZEROS);
        assert_int_equal(an_persist_write(cx, an_persist_find(cx, names[i]), first, n * sizeof *first), AN_OK);
        free(first);
    }
    for (int u = 0; u < updates; u++) {
        for (int m = 0; m < micro; m++) {
            backward(cx, d, u * micro + m);
            if (m + 1 == micro) break;
            assert_int_equal(an_eval_effects(cx), AN_OK);
            an_reset(cx);
        }
        an_tensor *norm = update(cx, d, u);
        if (d->s[EMA] >= 0) an_ema(cx, d->s[EMA], NULL);
        if (an_eval(norm) != AN_OK) fail_msg("draw %d: %s", d->number, an_error(cx));
        an_reset(cx);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(an_persist_read(cx, an_persist_find(cx, names[i]), now, d->n[i] * sizeof *now), AN_OK);
            size += largest(0, now, d->n[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        size_t n;
        double *last = tensor(g, d->number, names[i], ".last", &n),
               *average = tensor(g, d->number, names[i], ".average", &n);
        char name[16];
        snprintf(name, sizeof name, "ema.%s", names[i]);
        compare(cx, d, names[i], last, n, size);
        if (d->s[EMA] >= 0) compare(cx, d, name, average, n, size);
        free(last), free(average);
    }
    an_close(cx);
}

static void run_all(const char *device)
{
    test_golden g = test_golden_open("optimizer_draws");
    const int draws = (int)test_golden_number(&g, "draws");
    assert_true(draws >= 60);
    for (int i = 0; i < draws; i++) {
        draw d = {.number = i};
        size_t n;
        d.s = tensor(&g, i, "settings", "", &n);
        assert_int_equal(n, N_SETTINGS);
        d.lr = tensor(&g, i, "lr", "", &n);
        const size_t batches = (size_t)(d.s[UPDATES] * d.s[MICRO]);
        for (int k = 0; k < 2; k++) {
            d.grads[k] = tensor(&g, i, names[k], ".grads", &n);
            d.n[k] = n / batches;
            assert_true(d.n[k] <= LARGEST);
            /* a matrix decays, a vector does not: its other extents do not matter */
            d.shape[k] = k ? AN_SHAPE((int64_t)d.n[k]) : AN_SHAPE((int64_t)d.n[k], 1);
        }
        run(&g, device, &d);
        free(d.s), free(d.lr), free(d.grads[0]), free(d.grads[1]);
    }
    test_golden_close(&g);
}

static void optimizers_of_any_settings_end_where_pytorchs_do(void **state)
{
    (void)state;
    run_all("cpu");
}

static void so_do_the_oracles(void **state)
{
    (void)state;
    run_all("ref");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_of_any_settings_end_where_pytorchs_do),
        cmocka_unit_test(so_do_the_oracles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
