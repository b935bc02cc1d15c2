/* test_lower_onehot.c: a row's one-hot sum is a load by address, with the bits of the sum; what cannot be one stays a
 * sum. */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <math.h>
#include <string.h>

enum { ROWS = 6, COLS = 40 };

static an_ctx *open_on(const char *device, const char *cc)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = cc, .threads = 2, .verify = true});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

/* Loads of a row's one element, and sums along rows, in the last plan. */
static void count(an_ctx *cx, int *picks, int *sums)
{
    const an_plan *p = cx->last->plan;
    *picks = *sums = 0;
    for (int k = 0; k < p->n_kernels; k++) {
        if (p->kernel[k].kind != AN_KERNEL_LOOP) continue;
        const an_loop_kernel *r = p->kernel[k].u.loop;
        for (int i = 0; i < r->n_ins; i++) {
            const an_ins *in = &r->ins[i];
            *picks += in->kind == AN_INS_LOAD && in->a >= 0 && in->scope == AN_SCOPE_ROW;
            *sums += in->kind == AN_INS_REDUCE && in->op == AN_OP_SUM && r->shape == AN_ROW;
        }
    }
}

/* The sum of where(column == k, x, other) along each row. k is computed: labels that are an input are checked. */
static an_tensor *one_hot_sum(an_ctx *cx, an_tensor *x, const int32_t *k, int column, float other)
{
    an_tensor *at = an_mul(an_input(cx, AN_I32, AN_SHAPE(ROWS, 1), k), an_scalar_i32(cx, 1));
    an_tensor *place = an_add(an_iota(cx, AN_SHAPE(ROWS, COLS), 1), an_scalar_i32(cx, column));
    an_tensor *there = column ? an_eq(place, at) : an_eq(an_iota(cx, AN_SHAPE(ROWS, COLS), 1), at);
    return an_sum(an_where(there, x, an_full(cx, AN_F32, AN_SHAPE(1), other)), AN_AXIS(1));
}

static void the_term_has_the_bits_of_the_sum(void **state)
{
    (void)state;
    static const int32_t k[ROWS] = {0, COLS - 1, 7, -1, COLS, -100};
    static const float want[ROWS] = {-9, NAN, 0, 0, 0, 0};
    float x[ROWS][COLS], got[ROWS];
    int picks, sums;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) x[r][c] = c < 7 ? (float)c - 9 : c == 7 ? -0.0f : (float)c;
    for (int r = 0; r < ROWS; r++) x[r][COLS - 1] = NAN; /* sorting leaves it last */
    for (int way = 0; way < 2; way++) {
        an_ctx *cx = open_on("cpu", way ? "none" : NULL);
        an_tensor *sorted = an_sort(an_input(cx, AN_F32, AN_SHAPE(ROWS, COLS), x), false, NULL);
        an_tensor *y = one_hot_sum(cx, sorted, k, 0, 0);
        if (an_eval(y) != AN_OK) fail_msg("%s", an_error(cx));
        assert_int_equal(an_read(y, got, sizeof got), AN_OK);
        count(cx, &picks, &sums);
        assert_int_equal(picks, 1);
        assert_int_equal(sums, 0);
        for (int r = 0; r < ROWS; r++) {
            if (isnan(want[r]) ? !isnan(got[r]) : memcmp(&got[r], &want[r], sizeof *got) != 0)
                fail_msg("row %d: %g (sign %d), not %g", r, (double)got[r], signbit(got[r]) != 0, (double)want[r]);
        }
        an_close(cx);
    }
}

static void what_has_more_terms_stays_a_sum(void **state)
{
    (void)state;
    static const int32_t k[ROWS] = {1, 2, 3, 4, 5, 6};
    static float x[ROWS][COLS], got[ROWS];
    int picks, sums;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) x[r][c] = (float)(100 * r + c);
    for (int which = 0; which < 3; which++) { /* another column's; others not zero; of what is being computed */
        an_ctx *cx = open_on("cpu", "none");
        an_tensor *in = an_input(cx, AN_F32, AN_SHAPE(ROWS, COLS), x);
        an_tensor *t = which == 2 ? an_mul_num(in, 2) : an_sort(in, false, NULL);
        an_tensor *y = one_hot_sum(cx, t, k, which == 0, which == 1 ? 0.5f : 0);
        if (an_eval(y) != AN_OK) fail_msg("%s", an_error(cx));
        assert_int_equal(an_read(y, got, sizeof got), AN_OK);
        count(cx, &picks, &sums);
        assert_int_equal(picks, 0);
        assert_int_equal(sums, 1);
        for (int r = 0; r < ROWS; r++) {
            const float at = x[r][k[r]], want = which == 0 ? at - 1 : which == 1 ? at + 0.5f * (COLS - 1) : 2 * at;
            assert_true(got[r] == want);
        }
        an_close(cx);
    }
}

/* The gradient still takes the logits' memory: all of a row's readers are done by then. */
static void a_cross_entropy_picks_its_label_and_its_gradient_stands_where_the_logits_stood(void **state)
{
    (void)state;
    static const char *const devices[] = {"null:cpu", "null:cuda", "null:metal"};
    static const int32_t y[ROWS];
    int picks, sums;
    for (size_t d = 0; d < AN_COUNT(devices); d++) {
        an_ctx *cx = open_on(devices[d], NULL);
        an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(ROWS, 8), AN_NORMAL(1)),
                  *w = an_param(cx, "w", AN_F32, AN_SHAPE(COLS, 8), AN_NORMAL(1));
        an_tensor *loss = an_mean(an_linear_cross_entropy(x, w, an_input(cx, AN_I32, AN_SHAPE(ROWS), y)), AN_ALL);
        an_backward(loss);
        if (an_plan(loss, an_grad(x), an_grad(w)) != AN_OK) fail_msg("%s: %s", devices[d], an_error(cx));
        count(cx, &picks, &sums);
        assert_int_equal(picks, 1);
        const an_plan *p = cx->last->plan;
        bool in_place = false;
        for (int s = 0; s < p->n_steps; s++) {
            const an_plan_step *st = &p->step[s];
            for (int i = 0; p->kernel[st->kernel].kind == AN_KERNEL_LOOP && i < st->n_args; i++)
                for (int o = 0; o < st->n_args; o++)
                    in_place |= !st->arg[i].written && st->arg[o].written && st->arg[i].value >= 0 &&
                                st->arg[i].bytes == ROWS * COLS * 4 && st->arg[i].offset == st->arg[o].offset &&
                                st->arg[i].slot == st->arg[o].slot;
        }
        assert_true(in_place);
        an_close(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_term_has_the_bits_of_the_sum),
        cmocka_unit_test(what_has_more_terms_stays_a_sum),
        cmocka_unit_test(a_cross_entropy_picks_its_label_and_its_gradient_stands_where_the_logits_stood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
