/* test_put_rows.c: rows of a state written by index: of a large table only the rows of a batch move, on every device; what else
 * reads the state in the step sees the old one; ids that are equal, outside, or all the same. Constants of a context. */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <math.h>
#include <string.h>

enum { V = 4096, C = 32, N = 6 };

static an_ctx *open_on(const char *device)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 2, .seed = 3, .verify = true});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static an_tensor *table_of(an_ctx *cx)
{
    return an_state(cx, "table", AN_F32, AN_SHAPE(V, C), AN_UNIFORM(-1, 1));
}

/* A step of sign descent: gradients are rows of the table, looked up, times the row's number in the batch. */
static void descend(an_ctx *cx, const int32_t *ids, bool computed, an_tensor *only_if)
{
    float factor[N];
    for (int i = 0; i < N; i++) factor[i] = (float)(i + 1);
    an_tensor *index = an_input(cx, AN_I32, AN_SHAPE(N), ids);
    if (computed) index = an_add_num(index, 1);
    an_tensor *rows = an_gather(table_of(cx), index); /* [N,C] */
    an_tensor *grad = an_mul(rows, an_input(cx, AN_F32, AN_SHAPE(N, 1), factor));
    an_sign_sgd_rows(table_of(cx), index, grad, 0.25, 0.5, only_if);
}

static void read_table(an_ctx *cx, float *out)
{
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "table"), out, sizeof(float) * V * C), AN_OK);
}

/* Each row that an id names moves against its sign (all factors are positive); the others keep their bits. */
static void check_rows(const float *before, const float *after, const int32_t *ids, int shift)
{
    for (int r = 0; r < V; r++) {
        bool named = false;
        for (int i = 0; i < N; i++) named |= ids[i] + shift == r;
        for (int k = 0; k < C; k++) {
            const float w = before[r * C + k], sign = w > 0 ? 1.0f : w < 0 ? -1.0f : 0.0f;
            const float want = named ? w * 0.875f - 0.25f * sign : w;
            /* one rounding or two in w * 0.875 - 0.25: a device may contract them */
            if (named ? !(fabsf(after[r * C + k] - want) <= 6e-8f) : after[r * C + k] != want)
                fail_msg("row %d, column %d is %g, wanted %g", r, k, (double)after[r * C + k], (double)want);
        }
    }
}

static void only_rows_that_ids_name_change(void **state)
{
    (void)state;
    static float before[V * C], after[V * C];
    static const int32_t ids[][N] = {{7, 9, 7, 0, V - 1, 9}, {5, 5, 5, 5, 5, 5}, {0, 1, 2, 3, 4, 5}};
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < AN_COUNT(ids); i++) {
            an_ctx *cx = open_on(d ? "ref" : "cpu");
            table_of(cx);
            read_table(cx, before);
            descend(cx, ids[i], false, NULL);
            if (an_eval_effects(cx) != AN_OK) fail_msg("%s", an_error(cx));
            an_reset(cx);
            read_table(cx, after);
            check_rows(before, after, ids[i], 0);
            descend(cx, ids[i], false, an_lt(an_scalar(cx, 1), an_scalar(cx, 0)));
            assert_int_equal(an_eval_effects(cx), AN_OK);
            read_table(cx, before);
            assert_memory_equal(before, after, sizeof after);
            an_close(cx);
        }
}

static void ids_outside_are_refused_where_the_host_sees_them_and_else_change_nothing(void **state)
{
    (void)state;
    static float before[V * C], after[V * C];
    static const int32_t ids[N] = {3, -9, V + 5, 3, INT32_MAX - 1, -2}; /* and one more, when computed */
    an_ctx *cx = open_on("cpu");
    table_of(cx);
    read_table(cx, before);
    descend(cx, ids, false, NULL);
    assert_int_equal(an_eval_effects(cx), AN_E_DATA);
    assert_non_null(strstr(an_error(cx), "outside [0,4096)"));
    an_error_clear(cx);
    an_reset(cx);
    descend(cx, ids, true, NULL);
    if (an_eval_effects(cx) != AN_OK) fail_msg("%s", an_error(cx));
    read_table(cx, after);
    check_rows(before, after, ids, 1);
    an_close(cx);
}

static int steps_of(const an_ctx *cx, an_kernel_kind kind)
{
    const an_plan *p = cx->last->plan;
    int n = 0;
    for (int s = 0; s < p->n_steps; s++) n += p->kernel[p->step[s].kernel].kind == kind;
    return n;
}

static void a_step_moves_the_rows_of_its_batch_and_no_other_byte_of_the_table(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "null:cuda", "null:metal"};
    static const int32_t ids[N] = {7, 9, 7, 0, V - 1, 9};
    for (size_t d = 0; d < AN_COUNT(devices); d++) {
        an_ctx *cx = open_on(devices[d]);
        descend(cx, ids, false, NULL);
        an_status status = d ? an_plan(an_full(cx, AN_F32, AN_SCALAR, 1)) : an_eval_effects(cx);
        if (status != AN_OK) fail_msg("%s: %s", devices[d], an_error(cx));
        an_bill b;
        assert_int_equal(an_report(cx, &b), AN_OK);
        assert_int_equal(b.copies, 0);
        assert_int_equal(steps_of(cx, AN_KERNEL_COPY), 0);
        assert_int_equal(b.state_bytes, sizeof(float) * V * C);
        if (b.moved_bytes > 16 * sizeof(float) * N * C)
            fail_msg("%s: %llu bytes are moved, the table has %zu", devices[d], (unsigned long long)b.moved_bytes,
                     sizeof(float) * V * C);
        assert_true(b.activation_bytes + b.scratch_bytes < sizeof(float) * V * C / 8);
        an_close(cx);
    }
}

static void what_reads_the_table_later_in_the_step_sees_it_as_it_was(void **state)
{
    (void)state;
    static float before[V * C], after[V * C], seen[V * C];
    static const int32_t ids[N] = {7, 9, 7, 0, V - 1, 9};
    an_ctx *cx = open_on("cpu");
    table_of(cx);
    read_table(cx, before);
    descend(cx, ids, false, NULL);
    an_tensor *other = an_state(cx, "other", AN_F32, AN_SHAPE(V, C), AN_ZEROS);
    an_assign(other, table_of(cx));
    if (an_eval_effects(cx) != AN_OK) fail_msg("%s", an_error(cx));
    read_table(cx, after);
    check_rows(before, after, ids, 0);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "other"), seen, sizeof seen), AN_OK);
    assert_memory_equal(seen, before, sizeof seen);
    an_close(cx);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++) {
        an_ctx *cx = open_on("cpu");
        an_tensor *ids = an_full(cx, AN_I32, AN_SHAPE(what == 0 ? 2 : 3), 0);
        an_tensor *rows = an_full(cx, what == 1 ? AN_F64 : AN_F32, AN_SHAPE(3, what == 2 ? C - 1 : C), 0);
        if (what == 3)
            an_sign_sgd_rows(table_of(cx), ids, an_full(cx, AN_F32, AN_SHAPE(4, C), 0), 1, 0, NULL);
        else
            an_put_rows(table_of(cx), ids, rows);
        assert_int_equal(an_error_status(cx), what == 1 ? AN_E_DTYPE : AN_E_SHAPE);
        an_close(cx);
    }
}

static void a_constant_is_one_tensor_for_the_same_bytes_and_in_no_checkpoint(void **state)
{
    (void)state;
    static const float x[4] = {1, 2, 3, 4}, y[4] = {1, 2, 3, 5};
    static const char *const devices[] = {"cpu", "ref"};
    for (size_t d = 0; d < 2; d++) {
        an_ctx *cx = open_on(devices[d]);
        for (int again = 0; again < 2; again++) {
            an_tensor *a = an_constant(cx, AN_F32, AN_SHAPE(4), x), *b = an_constant(cx, AN_F32, AN_SHAPE(4), y);
            assert_ptr_equal(a, an_constant(cx, AN_F32, AN_SHAPE(4), x));
            assert_ptr_not_equal(a, b);
            assert_ptr_not_equal(a, an_constant(cx, AN_F32, AN_SHAPE(2, 2), x));
            an_tensor *sum = an_sum(an_mul(a, b), AN_ALL);
            if (an_eval(sum) != AN_OK) fail_msg("%s", an_error(cx));
            assert_true(an_item(sum) == 1 + 4 + 9 + 20);
            an_reset(cx);
        }
        assert_int_equal(an_persist_count(cx), 0);
        an_assign(an_constant(cx, AN_F32, AN_SHAPE(4), x), an_full(cx, AN_F32, AN_SHAPE(4), 0));
        assert_int_equal(an_error_status(cx), AN_E_USAGE);
        an_close(cx);
        cx = open_on(devices[d]);
        an_constant(cx, AN_F32, AN_SHAPE(4), NULL);
        assert_int_equal(an_error_status(cx), AN_E_USAGE);
        an_close(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_rows_that_ids_name_change),
        cmocka_unit_test(ids_outside_are_refused_where_the_host_sees_them_and_else_change_nothing),
        cmocka_unit_test(a_step_moves_the_rows_of_its_batch_and_no_other_byte_of_the_table),
        cmocka_unit_test(what_reads_the_table_later_in_the_step_sees_it_as_it_was),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(a_constant_is_one_tensor_for_the_same_bytes_and_in_no_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
