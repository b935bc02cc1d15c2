/* test_grad_slices.c: the gradient of a tensor that many slices read, as steps of a loop do, is one concatenation (grad.c). */
#include "lib/test.h"
#include <anneal.h>
#include <stdlib.h>

enum { WIDE = 3 };

/* sum over the steps t of c_t x_t^2 / 2, for those of the `n` rows of x that `takes` says: the gradient is c_t x_t there and 0 elsewhere. Returns the
 * bytes that a step moves. */
static double check(int n, bool (*takes)(int t, int n))
{
    float *x = calloc((size_t)n * WIDE, sizeof *x), *g = calloc((size_t)n * WIDE, sizeof *g);
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1, .cc = "none", .verify = true});
    an_bill bill;
    assert_non_null(x);
    assert_non_null(g);
    for (int i = 0; i < n * WIDE; i++) x[i] = (float)(i % 17 - 8);
    an_tensor *v = an_state_at(AN_AT, cx, "x", AN_F32, AN_SHAPE(n, WIDE), AN_ZEROS), *loss = NULL;
    assert_int_equal(an_persist_write(cx, an_persist_find(cx, "x"), x, (size_t)n * WIDE * sizeof *x), AN_OK);
    for (int t = n; t-- > 0;) { /* the last first: the order of the readers is not that of the rows */
        if (!takes(t, n)) continue;
        an_tensor *row = an_slice_at(AN_AT, v, 0, t, t + 1, 1), *square = an_mul_at(AN_AT, row, row);
        an_tensor *part = an_mul_num_at(AN_AT, square, (t % 5 + 1) / 2.0);
        loss = loss ? an_add_at(AN_AT, loss, part) : part;
    }
    loss = an_sum_at(AN_AT, loss, AN_ALL, false);
    an_backward_at(AN_AT, loss);
    an_tensor *d = an_grad(v);
    assert_non_null(d);
    assert_int_equal(an_eval_at(AN_AT, &d, 1), AN_OK);
    assert_int_equal(an_read_at(AN_AT, d, g, (size_t)n * WIDE * sizeof *g), AN_OK);
    for (int i = 0; i < n * WIDE; i++) {
        const int t = i / WIDE;
        const float want = takes(t, n) ? x[i] * (float)(t % 5 + 1) : 0;
        if (g[i] != want) fail_msg("row %d of %d: %g, not %g", t, n, (double)g[i], (double)want);
    }
    assert_int_equal(an_report(cx, &bill), AN_OK);
    an_close(cx);
    free(x);
    free(g);
    return (double)bill.moved_bytes;
}

static bool all(int t, int n)
{
    (void)n;
    return t >= 0;
}
static bool all_but_the_last(int t, int n)
{
    return t < n - 1;
}
static bool some(int t, int n)
{
    (void)n;
    return t % 7 != 3 && t > 1;
}

static void any_number_of_steps_has_the_gradient_of_each(void **state)
{
    (void)state;
    const int n[] = {2, 3, 7, 8, 9, 254, 255, 256, 257, 600};
    for (size_t i = 0; i < AN_COUNT(n); i++) {
        (void)check(n[i], all);
        (void)check(n[i], all_but_the_last);
        if (n[i] > 3) (void)check(n[i], some);
    }
}

static void a_step_grows_with_their_number_not_with_its_square(void **state)
{
    (void)state;
    bool (*const takes[])(int, int) = {all, all_but_the_last, some};
    for (size_t i = 0; i < AN_COUNT(takes); i++) {
        const double once = check(300, takes[i]), twice = check(600, takes[i]);
        if (!(twice < 2.5 * once)) fail_msg("%zu: 300 steps move %.0f bytes, 600 %.0f", i, once, twice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_steps_has_the_gradient_of_each),
        cmocka_unit_test(a_step_grows_with_their_number_not_with_its_square),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
