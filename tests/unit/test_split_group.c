/* test_split_group.c: what outgrows a kernel is cut in two and the rest of the step stays as it was: the same bits, no kernel
 * with more buffers than the device binds, and the bill says how often. */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 100, N = 48 };

static const float *data(int which)
{
    static float x[MANY][N * N];
    for (int i = 0; i < N * N; i++) x[which][i] = (float)((which * 37 + i * 11) % 101) / 64 - 0.7f;
    return x[which];
}

static an_ctx *open_on(const char *device, bool unfused)
{
    an_ctx *cx =
        an_open(&(an_options){.device = device, .cc = "none", .threads = 2, .unfused = unfused, .verify = true});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static an_tensor *matrix(an_ctx *cx, int which)
{
    return an_input(cx, AN_F32, AN_SHAPE(N, N), data(which));
}

/* A hundred matrices in one expression, one after the other. */
static an_tensor *long_sum(an_ctx *cx)
{
    an_tensor *sum = matrix(cx, 0);
    for (int i = 1; i < MANY; i++) sum = i % 2 ? an_add(sum, matrix(cx, i)) : an_maximum(sum, matrix(cx, i));
    return sum;
}

/* Beside it a softmax, which stays one launch. */
static an_tensor *beside(an_ctx *cx)
{
    return an_softmax(an_mul_num(matrix(cx, 1), 3), 1);
}

static an_bill bill_of(an_ctx *cx)
{
    an_bill b;
    assert_int_equal(an_report(cx, &b), AN_OK);
    return b;
}

static void a_sum_of_a_hundred_inputs_is_cut_and_nothing_else_is(void **state)
{
    (void)state;
    static float sum[2][N * N], soft[2][N * N];
    int32_t launches[2];
    for (int unfused = 0; unfused < 2; unfused++) {
        an_ctx *cx = open_on("cpu", unfused);
        an_tensor *a = long_sum(cx), *b = beside(cx);
        assert_int_equal(an_eval(a, b), AN_OK);
        assert_int_equal(an_read(a, sum[unfused], sizeof sum[0]), AN_OK);
        assert_int_equal(an_read(b, soft[unfused], sizeof soft[0]), AN_OK);
        launches[unfused] = bill_of(cx).launches;
        if (unfused) {
            assert_int_equal(bill_of(cx).splits, 0);
        } else {
            assert_in_range(bill_of(cx).splits, 1, 7);
            assert_non_null(strstr(an_report_text(cx, "plan"), "more buffers than a kernel takes"));
        }
        an_close(cx);
    }
    assert_memory_equal(sum[0], sum[1], sizeof sum[0]);
    assert_memory_equal(soft[0], soft[1], sizeof soft[0]);
    assert_in_range(launches[0], 3, 6); /* two to five pieces of the sum, and the softmax */
    assert_true(launches[1] > MANY);
}

static void no_kernel_for_metal_takes_more_than_31_buffers(void **state)
{
    (void)state;
    an_ctx *cx = open_on("null:metal", false);
    an_tensor *sum = long_sum(cx), *tail = an_matmul(matrix(cx, 0), matrix(cx, 1));
    for (int i = 2; i < 60; i++) tail = an_mul(tail, matrix(cx, i));
    assert_int_equal(an_plan(sum, tail, beside(cx)), AN_OK);
    assert_true(bill_of(cx).splits > 0);
    const an_plan *p = cx->last->plan;
    int most = 0, tails = 0;
    for (int s = 0; s < p->n_steps; s++) {
        const an_plan_step *st = &p->step[s];
        int buffers = st->n_args + (st->epilogue >= 0 ? AN_TILE_ARGS - st->n_gemm_args : 0);
        tails += st->epilogue >= 0;
        most = AN_MAX(most, buffers);
    }
    assert_in_range(most, 20, 31);
    assert_int_equal(tails, 1);
    an_close(cx);
}

/* dtype, axis; parts of different lengths; one of them is computed, one is a view. */
static an_tensor *joined(an_ctx *cx, int parts, int axis, float *want)
{
    an_tensor *part[MANY];
    int at = 0;
    for (int i = 0; i < parts; i++) {
        const int len = 1 + i % 3;
        an_tensor *x = matrix(cx, i);
        if (i % 4 == 1) x = an_transpose(x, 0, 1);
        if (i % 4 == 2) x = an_add_num(x, 1);
        part[i] = an_slice(x, axis, i % 5, i % 5 + len);
        for (int k = 0; k < len; k++, at++)
            for (int j = 0; j < N; j++) {
                int row = axis ? j : i % 5 + k, col = axis ? i % 5 + k : j;
                float v = i % 4 == 1 ? data(i)[col * N + row] : data(i)[row * N + col] + (i % 4 == 2 ? 1.0f : 0.0f);
                want[axis ? j * 2 * parts + at : at * N + j] = v; /* in all 2 a part: 1, 2, 3 */
            }
    }
    assert_int_equal(at, parts / 3 * 6 + (parts % 3 ? 1 : 0) + (parts % 3 == 2 ? 2 : 0));
    return an_concat(part, parts, axis);
}

static void a_hundred_parts_are_joined_along_any_axis(void **state)
{
    (void)state;
    enum { PARTS = 99 }; /* 198 elements along the axis */
    static float want[2 * PARTS * N], got[2 * PARTS * N];
    for (int axis = 0; axis < 2; axis++)
        for (int unfused = 0; unfused < 2; unfused++) {
            an_ctx *cx = open_on("cpu", unfused);
            an_tensor *y = joined(cx, PARTS, axis, want);
            if (an_eval(y) != AN_OK) fail_msg("%s", an_error(cx));
            assert_int_equal(an_read(y, got, sizeof got), AN_OK);
            assert_memory_equal(got, want, sizeof want);
            if (!unfused)
                assert_int_equal(bill_of(cx).launches, 9); /* twelve parts a launch, views and sums in place */
            an_close(cx);
            const char *const others[] = {"null:metal", "null:cuda"};
            for (size_t i = 0; i < AN_COUNT(others); i++) {
                cx = open_on(others[i], unfused);
                if (an_plan(joined(cx, PARTS, axis, want)) != AN_OK) fail_msg("%s", an_error(cx));
                an_close(cx);
            }
        }
}

static void the_gradient_of_a_join_of_a_hundred_goes_to_each_part(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu", false);
    an_tensor *part[MANY];
    char name[16];
    float scale[MANY * 2], dw[2];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "w%d", i);
        part[i] = an_param(cx, name, AN_F32, AN_SHAPE(2), AN_FILL(i));
        scale[2 * i] = (float)i;
        scale[2 * i + 1] = 0.5f;
    }
    an_tensor *all = an_concat(part, MANY, 0);
    an_tensor *loss = an_sum(an_mul(all, an_input(cx, AN_F32, AN_SHAPE(2 * MANY), scale)), AN_ALL);
    an_backward(loss);
    an_tensor *g = an_grad(part[77]);
    if (an_eval(loss, g) != AN_OK) fail_msg("%s", an_error(cx));
    assert_int_equal(an_read(g, dw, sizeof dw), AN_OK);
    assert_true(dw[0] == 77 && dw[1] == 0.5f);
    double want = 0;
    for (int i = 0; i < MANY; i++) want += (double)i * i + 0.5 * i;
    assert_true(an_item(loss) == want);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_a_hundred_inputs_is_cut_and_nothing_else_is),
        cmocka_unit_test(no_kernel_for_metal_takes_more_than_31_buffers),
        cmocka_unit_test(a_hundred_parts_are_joined_along_any_axis),
        cmocka_unit_test(the_gradient_of_a_join_of_a_hundred_goes_to_each_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
