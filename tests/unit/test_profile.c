/* test_profile.c: a tiny model's step, profiled: every launch has a time, the trace is what viewers read; and the
 * benchmarks of single operations. */
#include "lib/gpt_settings.h"
#include "lib/test.h"

#include "tools/profile.h"

#include <anneal_tools.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static an_train_config tiny(void)
{
    an_err err = {0};
    an_train_config c;
    if (an_train_config_open(&err, "demo", &c) != AN_OK) fail_msg("%s", err.text);
    GPT(c)->n_layer = 2;
    GPT(c)->n_head = 2;
    GPT(c)->n_embd = 32;
    GPT(c)->block_size = 16;
    c.batch_size = 4;
    c.threads = 1;
    GPT(c)->dropout = 0.1;
    snprintf(c.device, sizeof c.device, "cpu");
    return c;
}

static an_profile_result profile(an_profile_what what, const char *trace)
{
    an_err err = {0};
    an_profile_result p;
    const an_train_config c = tiny();
    const an_profile_options o = {.what = what, .warmup = 1, .steps = 3, .trace = trace};
    if (an_profile_steps(&err, &c, &o, &p) != AN_OK) fail_msg("%s", err.text);
    return p;
}

static void every_launch_of_a_training_step_has_a_time_and_a_share(void **state)
{
    (void)state;
    an_profile_result p = profile(AN_PROFILE_TRAIN, NULL);
    bool product = false, optimizer = false;
    assert_true(p.n_launches > 20);
    for (int i = 0; i < p.n_launches; i++) {
        assert_true(p.launch[i].device_s > 0);
        assert_true(p.launch[i].enqueue_s < 0); /* the CPU runs where it is called */
        assert_true(p.launch[i].bytes == 0 || p.launch[i].share > 0 || p.launch[i].above_roof);
        product |= strcmp(p.launch[i].kind, "product") == 0 && p.launch[i].flops > 0;
        optimizer |= strncmp(p.launch[i].kernel, "optimizer", 9) == 0;
    }
    assert_true(product && optimizer);
    assert_true(p.device_ms > 0 && p.device_ms < 1.2 * p.run_ms); /* medians of parts, so not exactly a sum */
    assert_true(p.run_ms <= p.step_ms);
    assert_true(p.roof.gflops > 0 && p.roof.gbytes > 0);
    assert_int_equal(p.units, 64);
    an_profile_free(&p);
}

/* A roof that was measured on a busy machine is too low: 528 % of it is no share. */
static void a_share_above_the_roof_is_none(void **state)
{
    (void)state;
    an_profile_launch l[] = {{.device_s = 1, .flops = 5280000000},
                             {.device_s = 1, .flops = 1050000000},
                             {.device_s = 1, .bytes = 500000000},
                             {.device_s = 1, .bytes = 2000000000},
                             {.device_s = 0, .bytes = 2000000000}};
    an_profile_result p = {.launch = l, .n_launches = AN_COUNT(l), .roof = {.gflops = 1, .gbytes = 1}};
    an_profile_shares(&p);
    assert_int_equal(p.n_above, 2);
    assert_true(l[0].above_roof && l[0].share == 0);
    assert_true(!l[1].above_roof && l[1].share == 1); /* noise */
    assert_true(!l[2].above_roof && l[2].share == 0.5);
    assert_true(l[3].above_roof && l[3].share == 0);
    assert_true(!l[4].above_roof && l[4].share == 0);
}

static void forward_only_has_fewer_launches_and_data_only_none(void **state)
{
    (void)state;
    an_profile_result all = profile(AN_PROFILE_TRAIN, NULL), forward = profile(AN_PROFILE_FORWARD, NULL),
                      data = profile(AN_PROFILE_DATA, NULL);
    assert_true(forward.n_launches > 5 && forward.n_launches < all.n_launches / 2);
    assert_int_equal(data.n_launches, 0);
    assert_true(data.run_ms == 0 && data.step_ms >= data.data_ms);
    an_profile_free(&all);
    an_profile_free(&forward);
    an_profile_free(&data);
}

static void the_trace_is_json_with_an_event_a_launch_a_step(void **state)
{
    (void)state;
    const char *path = test_path("trace.json");
    an_profile_result p = profile(AN_PROFILE_TRAIN, path);
    json_t *j = json_load_file(path, 0, NULL), *events = json_object_get(j, "traceEvents");
    assert_int_equal(json_array_size(events), 3 + 3 * (3 + (size_t)p.n_launches));
    double last_end = 0;
    for (size_t i = 3; i < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i);
        assert_string_equal(json_string_value(json_object_get(e, "ph")), "X");
        const double ts = json_number_value(json_object_get(e, "ts")),
                     us = json_number_value(json_object_get(e, "dur"));
        assert_true(ts >= 0 && us >= 0);
        if (json_integer_value(json_object_get(e, "tid")) != 2) continue;
        assert_true(ts >= last_end - 1e-6); /* launches of a device do not overlap, not by a nanosecond */
        last_end = ts + us;
    }
    json_decref(j);
    an_profile_free(&p);
}

static void a_trace_that_cannot_be_written_is_a_sentence(void **state)
{
    (void)state;
    an_err err = {0};
    an_profile_result p;
    const an_train_config c = tiny();
    const an_profile_options o = {.what = AN_PROFILE_DATA, .steps = 1, .trace = "/nonexistent/trace.json"};
    assert_int_equal(an_profile_steps(&err, &c, &o, &p), AN_E_IO);
    assert_non_null(strstr(err.text, "/nonexistent/trace.json"));
    assert_null(p.memory);
}

static void operations_are_timed_and_counted(void **state)
{
    (void)state;
    const an_train_config c = tiny();
    for (an_bench_kind kind = AN_BENCH_MATMUL; kind <= AN_BENCH_CONV; kind++) {
        an_err err = {0};
        an_bench_op_result r;
        const an_bench_op op = {.kind = kind, .dtype = AN_F32, .n = 4, .iters = 3};
        if (an_bench_run_op(&err, &c, &op, &r) != AN_OK) fail_msg("%s", err.text);
        assert_true(r.min_ms > 0 && r.min_ms <= r.ms && r.first_s > 0);
        assert_true((kind == AN_BENCH_COPY || kind == AN_BENCH_READ) == (r.gflops == 0));
        if (kind == AN_BENCH_COPY) assert_true(fabs(r.gbytes * r.ms * 1e6 - 8 * 1048576) < 1);
        if (kind == AN_BENCH_READ) assert_true(fabs(r.gbytes * r.ms * 1e6 - 4 * 1048576) < 1);
        if (kind == AN_BENCH_MATMUL) assert_true(fabs(r.gflops * r.ms * 1e6 - 128) < 1e-6);
    }
}

/* An iteration of the found size is expected to take at most most_ms, at any speed of the device. */
static void the_size_that_is_timed_fits_the_device(void **state)
{
    (void)state;
    const an_bench_op gemm = {.kind = AN_BENCH_MATMUL, .n = 4096, .most_ms = 100};
    const an_bench_op copy = {.kind = AN_BENCH_COPY, .n = 128, .most_ms = 100};
    assert_int_equal(an_bench_larger(&gemm, 64, 0.001), 2048); /* 33 ms there; the next look is at that one's time */
    assert_int_equal(an_bench_larger(&gemm, 2048, 0.4), 4096); /* a fast device is timed at the full size */
    assert_int_equal(an_bench_larger(&gemm, 4096, 0.4), 4096); /* and no larger */
    assert_int_equal(an_bench_larger(&gemm, 64, 3.5), 128);
    assert_int_equal(an_bench_larger(&gemm, 128, 28), 128); /* 256 would take 224 ms */
    assert_int_equal(an_bench_larger(&gemm, 64, 5000), 64); /* slow at the smallest */
    assert_int_equal(an_bench_larger(&copy, 1, 30), 2);
    assert_int_equal(an_bench_larger(&copy, 1, 0.05), 128);
    for (an_bench_kind kind = AN_BENCH_MATMUL; kind <= AN_BENCH_COPY; kind++) {
        an_err err = {0};
        an_bench_op_result r;
        const an_train_config c = tiny();
        const an_bench_op slow = {.kind = kind, .dtype = AN_F32, .n = 4096, .iters = 1000, .most_ms = 1e-9};
        if (an_bench_run_op(&err, &c, &slow, &r) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(r.n, kind == AN_BENCH_MATMUL ? 64 : 1);
        const an_bench_op fast = {.kind = kind, .dtype = AN_F32, .n = 96, .iters = 3, .most_ms = 1e9};
        if (an_bench_run_op(&err, &c, &fast, &r) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(r.n, 96);
    }
}

static void a_device_that_does_not_run_is_a_sentence(void **state)
{
    (void)state;
    an_err err = {0};
    an_bench_op_result r;
    an_train_config c = tiny();
    snprintf(c.device, sizeof c.device, "null:cuda");
    const an_bench_op op = {.kind = AN_BENCH_MATMUL, .dtype = AN_F32, .n = 4, .iters = 1};
    assert_int_equal(an_bench_run_op(&err, &c, &op, &r), AN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "does not run"));
}

static void a_median_is_the_middle(void **state)
{
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 2, 3};
    assert_true(an_median(odd, 3) == 2);
    assert_true(an_median(even, 4) == 2.5);
}

/* ---- exchanges between ranks beside other launches */

static void assert_exposed(an_launch *launch, int n, double exchange_s, double exposed_s)
{
    const an_exchange_time t = an_exchange_time_of(launch, n);
    if (fabs(t.exchange_s - exchange_s) > 1e-12 || fabs(t.exposed_s - exposed_s) > 1e-12)
        fail_msg("%g s of exchanges, of which %g exposed; not %g, %g", t.exchange_s, t.exposed_s, exchange_s,
                 exposed_s);
}

static void what_no_launch_covers_of_an_exchange_is_exposed(void **state)
{
    (void)state;
    an_launch in_turn[] = {{.begin_s = -1, .device_s = 3}, {.begin_s = -1, .device_s = 2, .exchange = true}};
    assert_exposed(in_turn, 2, 2, 2);
    an_launch none[] = {{.begin_s = 1, .device_s = 3}};
    assert_exposed(none, 1, 0, 0);
    /* launches run in [0,4), [5,8) and [7,10), exchanges in [2,6), [8,9) and [9,12) */
    an_launch all[] = {{.begin_s = 9, .device_s = 3, .exchange = true}, {.begin_s = 0, .device_s = 4},
                       {.begin_s = 2, .device_s = 4, .exchange = true}, {.begin_s = 7, .device_s = 3},
                       {.begin_s = 8, .device_s = 1, .exchange = true}, {.begin_s = 5, .device_s = 3}};
    assert_exposed(all, 6, 4 + 1 + 3, 1 + 0 + 2);
    /* an exchange that begins before the one before it ends counts from there */
    an_launch twice[] = {{.begin_s = 0, .device_s = 4, .exchange = true},
                         {.begin_s = 2, .device_s = 4, .exchange = true}};
    assert_exposed(twice, 2, 6, 6);
    /* two launches that cover the same time */
    an_launch same[] = {
        {.begin_s = 0, .device_s = 4, .exchange = true}, {.begin_s = 1, .device_s = 2}, {.begin_s = 1, .device_s = 2}};
    assert_exposed(same, 3, 4, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launch_of_a_training_step_has_a_time_and_a_share),
        cmocka_unit_test(a_share_above_the_roof_is_none),
        cmocka_unit_test(forward_only_has_fewer_launches_and_data_only_none),
        cmocka_unit_test(the_trace_is_json_with_an_event_a_launch_a_step),
        cmocka_unit_test(a_trace_that_cannot_be_written_is_a_sentence),
        cmocka_unit_test(operations_are_timed_and_counted),
        cmocka_unit_test(the_size_that_is_timed_fits_the_device),
        cmocka_unit_test(a_device_that_does_not_run_is_a_sentence),
        cmocka_unit_test(a_median_is_the_middle),
        cmocka_unit_test(what_no_launch_covers_of_an_exchange_is_exposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
