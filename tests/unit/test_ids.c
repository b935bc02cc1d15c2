/* test_ids.c: one rule for bad ids: an input's are refused before a run, a computed one counts as the nearest in range,
 * in gather, in its gradient and in scatter_add, on the device and on the oracle. */
#include <anneal.h>

#include "lib/test.h"

#include <string.h>

enum { V = 3, N = 7 }; /* ids -2 ... 4 of a table of three rows */

static an_ctx *open_on(const char *device)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static void a_computed_id_counts_as_the_nearest_in_gather_its_gradient_and_scatter_add(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "ref"};
    static const float rows[V] = {1, 10, 100}, x[N] = {1, 2, 3, 4, 5, 6, 7};
    static const float read[N] = {1, 1, 1, 10, 100, 100, 100}, sums[V] = {1 + 2 + 3, 4, 5 + 6 + 7};
    for (size_t d = 0; d < AN_COUNT(devices); d++) {
        an_ctx *cx = open_on(devices[d]);
        an_tensor *table = an_param(cx, "table", AN_F32, AN_SHAPE(V, 1), AN_ZEROS);
        assert_int_equal(an_persist_write(cx, 0, rows, sizeof rows), AN_OK);
        an_tensor *ids = an_sub(an_iota(cx, AN_SHAPE(N), 0), an_const(cx, AN_I32, 2));
        an_tensor *weight = an_input(cx, AN_F32, AN_SHAPE(N, 1), x);
        an_tensor *got = an_gather(table, ids), *added = an_scatter_add(ids, weight, V);
        an_backward(an_sum(an_mul(got, weight), AN_ALL));
        an_tensor *grad = an_grad(table);
        float y[N], s[V], g[V];
        if (an_eval(got, added, grad) != AN_OK) fail_msg("%s", an_error(cx));
        assert_int_equal(an_read(got, y, sizeof y), AN_OK);
        assert_int_equal(an_read(added, s, sizeof s), AN_OK);
        assert_int_equal(an_read(grad, g, sizeof g), AN_OK);
        assert_memory_equal(y, read, sizeof y);
        assert_memory_equal(s, sums, sizeof s);
        assert_memory_equal(g, sums, sizeof g);
        an_close(cx);
    }
}

static void an_input_without_data_can_be_planned_and_not_run(void **state)
{
    (void)state;
    an_ctx *cx = open_on("cpu");
    an_tensor *table = an_full(cx, AN_F32, AN_SHAPE(V, 1), 1);
    an_tensor *ids = an_input(cx, AN_I32, AN_SHAPE(N), NULL), *y = an_gather(table, ids);
    int32_t out[N];
    assert_int_equal(an_plan(y), AN_OK);
    assert_int_equal(an_read(ids, out, sizeof out), AN_E_USAGE); /* nothing was evaluated */
    an_error_clear(cx);
    assert_int_equal(an_eval(y), AN_E_USAGE);
    assert_non_null(strstr(an_error(cx), "an_input: data is NULL; a step without it can be planned"));
    assert_non_null(strstr(an_error(cx), "test_ids.c"));
    an_close(cx);
}

static void a_bad_id_of_an_input_is_refused_by_gather_and_scatter_add(void **state)
{
    (void)state;
    static const int32_t ids[2] = {0, V};
    static const float x[2] = {1, 2};
    for (int scatter = 0; scatter < 2; scatter++) {
        an_ctx *cx = open_on("cpu");
        an_tensor *index = an_input(cx, AN_I32, AN_SHAPE(2), ids);
        an_tensor *table = an_full(cx, AN_F32, AN_SHAPE(V, 1), 1);
        an_tensor *y =
            scatter ? an_scatter_add(index, an_input(cx, AN_F32, AN_SHAPE(2, 1), x), V) : an_gather(table, index);
        assert_int_equal(an_eval(y), AN_E_DATA);
        assert_non_null(strstr(an_error(cx), scatter ? "an_scatter_add: element 1" : "an_gather: element 1"));
        assert_non_null(strstr(an_error(cx), "is 3, outside [0,3)"));
        an_close(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_computed_id_counts_as_the_nearest_in_gather_its_gradient_and_scatter_add),
        cmocka_unit_test(an_input_without_data_can_be_planned_and_not_run),
        cmocka_unit_test(a_bad_id_of_an_input_is_refused_by_gather_and_scatter_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
