/* test_run_sums.c: which sums down columns are taken by the kernel that makes the rows, and which are kernels of their own.
 * That both have the same bits, and those of the oracle, is shown by the table of tests/ops (SUM). */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16384, C = 40 };

typedef struct sums {
    int runs, down, along; /* programs with runs; sums down their columns and along their rows */
    int64_t longest;       /* elements under a column sum of its own */
    int n_own;
} sums;

static sums count(an_ctx *cx)
{
    sums s = {0};
    const an_plan *p = cx->last->plan;
    for (int k = 0; k < p->n_kernels; k++) {
        if (p->kernel[k].kind != AN_KERNEL_LOOP) continue;
        const an_loop_kernel *row = p->kernel[k].u.loop;
        s.runs += row->run > 0;
        if (row->shape == AN_COL) s.longest = AN_MAX(s.longest, row->rows * row->red), s.n_own++;
        for (int i = 0; i < row->n_ins && row->run; i++) {
            s.down += row->ins[i].kind == AN_INS_COLSUM;
            s.along += row->ins[i].kind == AN_INS_REDUCE;
        }
    }
    return s;
}

static sums gradients(const an_options *o, float (*out)[ROWS * C])
{
    an_ctx *cx = an_open(o);
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(ROWS, C), AN_NORMAL(1));
    an_tensor *gain = an_param(cx, "gain", AN_F32, AN_SHAPE(C), AN_UNIFORM(0.5, 1.5));
    an_tensor *bias = an_param(cx, "bias", AN_F32, AN_SHAPE(C), AN_NORMAL(1));
    an_tensor *y = an_layer_norm(x, gain, bias, 1e-5);
    an_backward(an_mean(an_mul(y, y), AN_ALL));
    an_tensor *g[3] = {an_grad(x), an_grad(gain), an_grad(bias)};
    if (an_eval(g[0], g[1], g[2]) != AN_OK) fail_msg("%s", an_error(cx));
    for (int i = 0; i < 3; i++) assert_int_equal(an_read(g[i], out[i], sizeof(float) * (i ? C : ROWS * C)), AN_OK);
    const sums s = count(cx);
    an_close(cx);
    return s;
}

static void a_norms_gradient_sums_those_of_its_gain_and_bias(void **state)
{
    (void)state;
    static float fused[3][ROWS * C], apart[3][ROWS * C];
    an_options o = {.device = "cpu", .threads = 2, .seed = 3, .cc = "none", .verify = true};
    const sums s = gradients(&o, fused);
    assert_int_equal(s.runs, 1);
    assert_int_equal(s.down, 2);
    assert_in_range(s.along, 2, 4);
    assert_int_equal(s.longest, ROWS / 128); /* what is left to sum */
    o.unfused = true;
    assert_int_equal(gradients(&o, apart).runs, 0);
    assert_memory_equal(fused, apart, sizeof fused);
    assert_true(isfinite(fused[1][7]) && fused[1][7] != 0.0f);
}

/* Sums of n values over axis 1 of [O,R,cols]. */
static sums plan_sums(an_dtype t, int64_t O, int64_t R, int64_t cols, int n, bool maximum)
{
    an_ctx *cx = an_open(&(an_options){.device = "null:cpu", .verify = true});
    an_tensor *y[3], *x = an_state(cx, "x", t, AN_SHAPE(O, R, cols), AN_UNIFORM(0, 1));
    for (int i = 0; i < 3; i++) {
        y[i] = an_exp(i ? y[i - 1] : x);
        if (i >= n) y[i] = y[0];
    }
    for (int i = 0; i < 3; i++) y[i] = maximum ? an_max(y[i], AN_AXIS(1)) : an_sum(y[i], AN_AXIS(1));
    if (an_plan(y[0], y[1], y[2]) != AN_OK) fail_msg("%s", an_error(cx));
    const sums s = count(cx);
    an_close(cx);
    return s;
}

static void few_short_narrow_or_many_sums_are_kernels_of_their_own(void **state)
{
    (void)state;
    static const struct {
        an_dtype t;
        int O, R, cols, n, down;
        bool maximum;
    } of[] = {
        {AN_F32, 128, 32, 32, 1, 1, false},  {AN_BF16, 128, 32, 1024, 1, 1, false},
        {AN_F32, 127, 32, 32, 1, 0, false},  {AN_F32, 128, 31, 32, 1, 0, false},
        {AN_F32, 128, 32, 31, 1, 0, false},  {AN_F32, 128, 32, 1025, 1, 0, false},
        {AN_F32, 128, 32, 512, 2, 2, false}, {AN_F32, 128, 32, 512, 3, 2, false},
        {AN_F64, 128, 32, 32, 1, 0, false},  {AN_F32, 128, 32, 32, 1, 0, true},
        {AN_F32, 128, 255, 32, 1, 1, false}, {AN_F32, 128, 256, 32, 1, 1, false},
        {AN_F32, 1, 16384, 32, 1, 1, false}, /* runs of 128 rows */
        {AN_F32, 1, 16385, 32, 1, 1, false}, /* the last one with zeros */
    };
    for (size_t i = 0; i < AN_COUNT(of); i++) {
        const sums s = plan_sums(of[i].t, of[i].O, of[i].R, of[i].cols, of[i].n, of[i].maximum);
        if (s.down != of[i].down)
            fail_msg("[%d,%d,%d]: %d of %d sums in the rows' kernel, not %d", of[i].O, of[i].R, of[i].cols, s.down,
                     of[i].n, of[i].down);
        if (!of[i].down) assert_true(s.n_own > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_norms_gradient_sums_those_of_its_gain_and_bias),
        cmocka_unit_test(few_short_narrow_or_many_sums_are_kernels_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
