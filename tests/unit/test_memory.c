/* test_memory.c: the counters, the watermarks, giving memory back, the list of waits; and that a plan is never taken
 * for another graph's. */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N = 256 };

static an_ctx *open_cpu(void)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

/* A step whose arena grows with `rows`: a chain of products, each kept until the next has read it. */
static an_tensor *step(an_ctx *cx, int rows)
{
    static float x[8 * N * N];
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(N, N), AN_NORMAL(0.1));
    an_tensor *y = an_input(cx, AN_F32, AN_SHAPE(rows, N), x);
    for (int i = 0; i < 3; i++) y = an_tanh(an_matmul(y, w));
    return an_sum(y, AN_ALL);
}

static an_memory memory_of(an_ctx *cx)
{
    an_memory m;
    assert_int_equal(an_memory_read(cx, &m), AN_OK);
    return m;
}

static void counters_follow_what_is_requested_and_given_back(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    assert_true(memory_of(cx).requested_bytes == 0 && memory_of(cx).live_bytes == 0);
    assert_int_equal(an_eval(step(cx, 8 * N)), AN_OK);
    an_bill large, small;
    assert_int_equal(an_report(cx, &large), AN_OK);
    an_memory m = memory_of(cx);
    assert_true(m.requested_bytes == large.peak_bytes && m.live_bytes == large.peak_bytes);
    assert_true(m.peak_bytes == m.requested_bytes && m.requested_bytes == large.allocated_bytes);
    assert_true(m.driver_bytes > m.requested_bytes / 2 && m.recommended_bytes > m.driver_bytes);
    assert_true(m.high_bytes < m.recommended_bytes && m.low_bytes < m.high_bytes && m.plans == 1);
    an_reset(cx);
    assert_int_equal(an_eval(step(cx, N)), AN_OK);
    assert_int_equal(an_report(cx, &small), AN_OK);
    m = memory_of(cx);
    assert_true(small.peak_bytes < large.peak_bytes);
    assert_true(m.live_bytes == small.peak_bytes && m.requested_bytes == large.peak_bytes && m.plans == 2);
    assert_int_equal(an_empty_cache(cx), AN_OK);
    m = memory_of(cx);
    assert_true(m.plans == 0 && m.live_bytes == small.weight_bytes && m.requested_bytes == small.weight_bytes);
    assert_true(m.peak_bytes == large.peak_bytes);
    an_memory_reset_peak(cx);
    assert_true(memory_of(cx).peak_bytes == small.weight_bytes);
    an_close(cx);
}

static void after_empty_cache_the_step_gives_the_same_number_and_old_results_are_named_gone(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    an_tensor *y = step(cx, N);
    assert_int_equal(an_eval(y), AN_OK);
    double before = an_item(y);
    an_empty_cache(cx);
    float gone;
    assert_int_equal(an_read(y, &gone, sizeof gone), AN_E_USAGE);
    assert_non_null(strstr(an_error(cx), "was not evaluated"));
    an_reset(cx);
    y = step(cx, N);
    assert_int_equal(an_eval(y), AN_OK);
    assert_true(an_item(y) == before);
    an_close(cx);
}

static void above_the_high_watermark_a_step_is_refused_before_anything_is_requested(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    const double mib = 1048576.0 / (double)memory_of(cx).recommended_bytes;
    assert_int_equal(an_memory_limits(cx, 1 * mib, 1.5 * mib), AN_OK);
    assert_int_equal(an_eval(step(cx, 8 * N)), AN_E_NOMEM);
    assert_non_null(strstr(an_error(cx), "the high watermark allows 1.5 MiB"));
    assert_true(memory_of(cx).requested_bytes == 0);
    an_reset(cx);
    assert_int_equal(an_eval(step(cx, N / 4)), AN_OK); /* what fits runs */
    an_reset(cx);
    assert_int_equal(an_memory_limits(cx, 0, -1), AN_OK);
    assert_non_null(strstr(an_report_text(cx, "warning"), "the high watermark is off"));
    assert_int_equal(an_eval(step(cx, 8 * N)), AN_OK);
    assert_int_equal(an_memory_limits(cx, 0, 0), AN_OK);
    assert_null(an_report_text(cx, "warning"));
    assert_int_equal(an_memory_limits(cx, 0.9, 0.5), AN_E_USAGE);
    an_close(cx);
    cx = an_open(&(an_options){.device = "cpu", .cc = "none", .high_watermark = 1e-9});
    assert_int_equal(an_eval(step(cx, N)), AN_E_NOMEM);
    an_close(cx);
}

static void a_request_for_tf32_that_has_no_effect_is_a_warning(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .tf32 = true, .high_watermark = -1});
    const char *warning = an_report_text(cx, "warning");
    assert_non_null(warning);
    assert_non_null(strstr(warning, "swap"));
    assert_non_null(strstr(warning, "; tf32 is asked for and has no effect: cpu multiplies float32 unrounded"));
    an_close(cx);
}

static void above_the_low_watermark_idle_plans_and_their_arena_go_first(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    const double mib = 1048576.0 / (double)memory_of(cx).recommended_bytes;
    assert_int_equal(an_eval(step(cx, N)), AN_OK);
    an_reset(cx);
    assert_int_equal(an_memory_limits(cx, 0.5 * mib, 100 * mib), AN_OK);
    assert_int_equal(an_eval(step(cx, 8 * N)), AN_OK);
    an_memory m = memory_of(cx);
    assert_int_equal(m.plans, 1);
    assert_true(m.requested_bytes == m.live_bytes);
    an_close(cx);
}

static void each_wait_is_listed_with_its_line(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    an_sync list[4];
    an_bill bill;
    an_tensor *y = step(cx, N);
    assert_int_equal(an_eval(y), AN_OK);
    assert_int_equal(an_syncs(cx, list, 4), 0); /* an_eval reads the loss for an_peek: the run is over by then */
    char here[64];
    for (int i = 0; i < 3; i++) snprintf(here, sizeof here, "test_memory.c:%d", __LINE__), an_item(y);
    float x;
    assert_int_equal(an_read(y, &x, sizeof x), AN_OK);
    assert_int_equal(an_synchronize(cx), AN_OK);
    assert_int_equal(an_syncs(cx, list, 4), 2);
    assert_non_null(strstr(list[0].at, here));
    assert_true(list[0].count == 3 && list[1].count == 1);
    assert_int_equal(an_report(cx, &bill), AN_OK);
    assert_int_equal(bill.syncs, 4);
    an_close(cx);
}

static double times(an_ctx *cx, double factor)
{
    static const float three[1] = {3};
    an_tensor *y = an_mul_num(an_input(cx, AN_F32, AN_SHAPE(1), three), factor);
    assert_int_equal(an_eval(y), AN_OK);
    double x = an_item(y);
    an_reset(cx);
    return x;
}

static void graphs_of_equal_keys_do_not_share_a_plan(void **state)
{
    (void)state;
    an_ctx *cx = open_cpu();
    assert_true(times(cx, 5) == 15);
    an_cached_plan *five = cx->ran;
    assert_true(times(cx, 7) == 21);
    an_cached_plan *seven = cx->ran;
    assert_true(five != seven && five->key != seven->key);
    const uint64_t key = five->key; /* as if both graphs had hashed to the same number */
    five->key = seven->key;
    seven->key = key;
    assert_true(times(cx, 5) == 15 && times(cx, 7) == 21);
    an_bill b;
    assert_true(times(cx, 7) == 21);
    assert_int_equal(an_report(cx, &b), AN_OK);
    assert_true(b.plan_cached);
    an_close(cx);
}

static void a_dump_that_cannot_be_written_is_a_sentence(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "null:cpu", .dump = "fuse", .dump_dir = "/no/such/folder"});
    assert_int_equal(an_plan(step(cx, N)), AN_E_IO);
    assert_non_null(strstr(an_error(cx), "/no/such/folder/fuse.txt"));
    assert_non_null(strstr(an_error(cx), "dump_dir"));
    an_close(cx);
}

static void a_dump_of_a_pass_that_does_not_exist_lists_the_passes(void **state)
{
    (void)state;
    static const char *const wrong[] = {"fus", "fuse,lowering", "all,fuses", "remat"};
    for (size_t i = 0; i < AN_COUNT(wrong); i++) {
        an_ctx *cx = an_open(&(an_options){.device = "null:cpu", .dump = wrong[i], .dump_dir = test_folder()});
        assert_int_equal(an_plan(step(cx, N)), AN_E_USAGE);
        assert_non_null(strstr(an_error(cx), "liveness, layout_hints,"));
        an_close(cx);
    }
}

static void a_dump_writes_the_named_passes_and_no_other(void **state)
{
    (void)state;
    char layout[1100], hints[1100];
    const char *dir = test_folder();
    snprintf(layout, sizeof layout, "%s/layout.txt", dir);
    snprintf(hints, sizeof hints, "%s/layout_hints.txt", dir);
    an_ctx *cx = an_open(&(an_options){.device = "null:cpu", .dump = " layout_hints, lower ", .dump_dir = dir});
    assert_int_equal(an_plan(step(cx, N)), AN_OK);
    assert_int_equal(access(hints, F_OK), 0);
    assert_int_equal(access(layout, F_OK), -1); /* its name is a part of the other's */
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_for_tf32_that_has_no_effect_is_a_warning),
        cmocka_unit_test(counters_follow_what_is_requested_and_given_back),
        cmocka_unit_test(after_empty_cache_the_step_gives_the_same_number_and_old_results_are_named_gone),
        cmocka_unit_test(above_the_high_watermark_a_step_is_refused_before_anything_is_requested),
        cmocka_unit_test(above_the_low_watermark_idle_plans_and_their_arena_go_first),
        cmocka_unit_test(each_wait_is_listed_with_its_line),
        cmocka_unit_test(graphs_of_equal_keys_do_not_share_a_plan),
        cmocka_unit_test(a_dump_that_cannot_be_written_is_a_sentence),
        cmocka_unit_test(a_dump_of_a_pass_that_does_not_exist_lists_the_passes),
        cmocka_unit_test(a_dump_writes_the_named_passes_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
