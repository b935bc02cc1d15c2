/* test_scaling.c: what plan predicts of several devices. */
#include "lib/test.h"

#include "tools/scaling.h"

#include <math.h>

static void one_device_exchanges_nothing(void **state)
{
    an_scaling s;
    (void)state;
    an_scaling_predict(&(an_scaling_work){.update_s = 0.1, .exchanged_bytes = 1e9}, an_link_find("wifi"), 1, &s);
    assert_true(s.exchange_s == 0 && s.update_s == 0.1 && s.efficiency == 1);
}

static void a_ring_moves_twice_the_bytes_whatever_the_number_of_devices(void **state)
{
    const an_link link = {.bytes_per_s = 1e9, .hop_s = 0};
    const an_scaling_work w = {.update_s = 1, .exchanged_bytes = 1e9};
    an_scaling s;
    (void)state;
    an_scaling_predict(&w, &link, 2, &s);
    assert_true(fabs(s.exchange_s - 1) < 1e-9 && fabs(s.update_s - 2.01) < 1e-9 &&
                fabs(s.efficiency - 1 / 2.01) < 1e-9);
    an_scaling_predict(&w, &link, 4, &s);
    assert_true(fabs(s.exchange_s - 1.5) < 1e-9);
    an_scaling_predict(&w, &link, 1000, &s);
    assert_true(s.exchange_s > 1.99 && s.exchange_s < 2);
}

static void the_backward_pass_hides_all_buckets_but_the_last(void **state)
{
    const an_link link = {.bytes_per_s = 1e9, .hop_s = 0};
    an_scaling_work w = {.update_s = 3, .exchanged_bytes = 16 << 20, .overlap = true}; /* 16 buckets */
    an_scaling s;
    (void)state;
    an_scaling_predict(&w, &link, 2, &s);
    assert_true(fabs(s.exposed_s - s.exchange_s / 16) < 1e-9);
    w.update_s = 0.003; /* of which 2 ms are the backward pass */
    an_scaling_predict(&w, &link, 2, &s);
    assert_true(fabs(s.exposed_s - (s.exchange_s - 0.002)) < 1e-9);
    w.micros = 4; /* the last one's backward pass takes 0.5 ms */
    an_scaling_predict(&w, &link, 2, &s);
    assert_true(fabs(s.exposed_s - (s.exchange_s - 0.0005)) < 1e-9);
    w.overlap = false;
    an_scaling_predict(&w, &link, 2, &s);
    assert_true(s.exposed_s == s.exchange_s);
}

static void what_is_hidden_makes_the_backward_pass_longer(void **state)
{
    const an_link free = {.bytes_per_s = 1e9}, half = {.bytes_per_s = 1e9, .contention = 0.5},
                  all = {.bytes_per_s = 1e9, .contention = 1};
    an_scaling_work w = {.update_s = 3, .exchanged_bytes = 16 << 20, .overlap = true};
    an_scaling a, b, c, apart;
    (void)state;
    an_scaling_predict(&w, &free, 2, &a);
    an_scaling_predict(&w, &half, 2, &b);
    an_scaling_predict(&w, &all, 2, &c);
    w.overlap = false;
    an_scaling_predict(&w, &all, 2, &apart);
    assert_true(fabs(b.update_s - a.update_s - (a.exchange_s - a.exposed_s) / 2) < 1e-9);
    assert_true(fabs(c.update_s - apart.update_s) < 1e-9); /* nothing is gained */
}

/* GPT-2 124M, 64 x 1024 tokens a GPU: 65,536 tokens in 111 ms alone, all GPUs of that host at work (bench/cuda/README.md). */
static void the_prediction_is_within_a_percent_of_what_was_measured_on_two_and_four_gpus(void **state)
{
    const an_scaling_work w = {.update_s = 65536 / 590.3e3, .exchanged_bytes = 4 * 124.4e6, .overlap = true};
    an_scaling two, four;
    (void)state;
    an_scaling_predict(&w, an_link_find("nvlink"), 2, &two);
    an_scaling_predict(&w, an_link_find("nvlink"), 4, &four);
    assert_true(fabs(two.efficiency - 1143.1 / (2 * 590.3)) < 0.01);
    assert_true(fabs(four.efficiency - 2280.0 / (4 * 590.3)) < 0.01);
}

static void a_slower_link_and_more_devices_never_help(void **state)
{
    const an_scaling_work w = {.update_s = 0.1, .exchanged_bytes = 5e8, .overlap = true};
    (void)state;
    for (size_t l = 0; l < an_n_links; l++) {
        double before = 1;
        for (int64_t n = 2; n <= 512; n *= 2) {
            an_scaling s, slower;
            an_scaling_predict(&w, &an_links[l], n, &s);
            assert_true(s.efficiency > 0 && s.efficiency <= before);
            before = s.efficiency;
            if (l + 1 == an_n_links) continue;
            an_scaling_predict(&w, &an_links[l + 1], n, &slower);
            assert_true(slower.efficiency < s.efficiency);
        }
    }
    assert_null(an_link_find("carrier pigeon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_exchanges_nothing),
        cmocka_unit_test(a_ring_moves_twice_the_bytes_whatever_the_number_of_devices),
        cmocka_unit_test(the_backward_pass_hides_all_buckets_but_the_last),
        cmocka_unit_test(what_is_hidden_makes_the_backward_pass_longer),
        cmocka_unit_test(the_prediction_is_within_a_percent_of_what_was_measured_on_two_and_four_gpus),
        cmocka_unit_test(a_slower_link_and_more_devices_never_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
