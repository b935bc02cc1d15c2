/* test_sampler.c: what temperature, top-k and top-p let through, and how often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <anneal_nn.h>
#include <math.h>

/* Draws `n` tokens from the options and counts them. */
static void count_draws(an_sampler_options o, const float *logits, int64_t vocab, int n, int *counts)
{
    an_sampler *s = an_sampler_open(&o, vocab);
    assert_non_null(s);
    for (int64_t i = 0; i < vocab; i++) counts[i] = 0;
    for (int i = 0; i < n; i++) {
        int64_t id = an_sampler_next(s, logits, (uint64_t)i);
        assert_true(id >= 0 && id < vocab);
        counts[id]++;
    }
    an_sampler_close(s);
}

static void temperature_zero_is_the_first_maximum(void **state)
{
    (void)state;
    const float logits[5] = {-1, 3, 2, 3, -4};
    int counts[5];
    count_draws((an_sampler_options){.temperature = 0, .top_k = 2}, logits, 5, 50, counts);
    assert_int_equal(counts[1], 50);
}

static void frequencies_follow_the_softmax(void **state)
{
    (void)state;
    enum { N = 200000 };
    const float logits[4] = {0, 1, 2, -1};
    int counts[4];
    count_draws((an_sampler_options){.temperature = 0.8, .seed = 7}, logits, 4, N, counts);
    double total = 0, chi2 = 0;
    for (int i = 0; i < 4; i++) total += exp(logits[i] / 0.8);
    for (int i = 0; i < 4; i++) {
        double want = N * exp(logits[i] / 0.8) / total;
        chi2 += (counts[i] - want) * (counts[i] - want) / want;
    }
    assert_true(chi2 < 16.3); /* 3 degrees of freedom, p = 0.001; the draws are fixed by the seed */
}

static void top_k_keeps_k_tokens_and_ties_with_the_last(void **state)
{
    (void)state;
    const float logits[6] = {1, 5, 3, 3, 0, 4};
    int counts[6];
    count_draws((an_sampler_options){.temperature = 1, .top_k = 2}, logits, 6, 5000, counts);
    assert_true(counts[1] > 0 && counts[5] > 0 && counts[1] + counts[5] == 5000);
    count_draws((an_sampler_options){.temperature = 1, .top_k = 3}, logits, 6, 5000, counts);
    assert_true(counts[2] > 0 && counts[3] > 0 && counts[0] == 0 && counts[4] == 0);
}

static void top_k_of_random_logits_keeps_exactly_the_k_largest(void **state)
{
    (void)state;
    enum { V = 301 };
    float logits[V];
    int counts[V];
    uint32_t x = 12345;
    for (int i = 0; i < V; i++) {
        x = x * 1664525u + 1013904223u;
        logits[i] = (float)(x >> 8) * 1e-9f; /* close together: every kept token is drawn sometimes */
    }
    for (int k = 1; k <= V; k += 37) {
        count_draws((an_sampler_options){.temperature = 1, .top_k = k}, logits, V, 20000, counts);
        for (int i = 0; i < V; i++) {
            int larger = 0;
            for (int j = 0; j < V; j++) larger += logits[j] > logits[i];
            if (larger >= k)
                assert_int_equal(counts[i], 0);
            else
                assert_true(counts[i] > 0);
        }
    }
}

static void top_p_keeps_the_fewest_tokens_that_reach_p(void **state)
{
    (void)state;
    const float logits[4] = {logf(0.1f), logf(0.5f), logf(0.3f), logf(0.1f)};
    int counts[4];
    count_draws((an_sampler_options){.temperature = 1, .top_p = 0.45}, logits, 4, 3000, counts);
    assert_int_equal(counts[1], 3000);
    count_draws((an_sampler_options){.temperature = 1, .top_p = 0.75}, logits, 4, 3000, counts);
    assert_true(counts[2] > 900 && counts[2] < 1400 && counts[1] + counts[2] == 3000);
}

static void equal_seeds_draw_equal_tokens_and_other_seeds_do_not(void **state)
{
    (void)state;
    enum { V = 64, N = 64 };
    float logits[V] = {0};
    int64_t first[N];
    int same = 0;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        an_sampler *s = an_sampler_open(&(an_sampler_options){.temperature = 1, .seed = seed == 2 ? 1 : seed}, V);
        for (int i = 0; i < N; i++) {
            int64_t id = an_sampler_next(s, logits, (uint64_t)i);
            if (seed == 1)
                first[i] = id;
            else if (seed == 2)
                assert_int_equal(id, first[i]);
            else
                same += id == first[i];
        }
        an_sampler_close(s);
    }
    assert_true(same < 10);
}

static void damaged_logits_are_reported_and_infinity_is_certain(void **state)
{
    (void)state;
    an_sampler *s = an_sampler_open(&(an_sampler_options){.temperature = 1}, 3);
    assert_int_equal(an_sampler_next(s, (float[]){0, NAN, 1}, 0), -1);
    assert_int_equal(an_sampler_next(s, (float[]){-INFINITY, -INFINITY, -INFINITY}, 0), -1);
    assert_int_equal(an_sampler_next(s, (float[]){-INFINITY, INFINITY, 3}, 0), 1);
    assert_int_equal(an_sampler_next(s, (float[]){-INFINITY, -INFINITY, 3}, 0), 2);
    an_sampler_close(s);
}

static void options_without_meaning_are_refused(void **state)
{
    (void)state;
    assert_null(an_sampler_open(&(an_sampler_options){.temperature = -1}, 3));
    assert_null(an_sampler_open(&(an_sampler_options){.temperature = NAN}, 3));
    assert_null(an_sampler_open(&(an_sampler_options){.temperature = 1, .top_p = 1.5}, 3));
    assert_null(an_sampler_open(&(an_sampler_options){.temperature = 1, .top_k = -1}, 3));
    assert_null(an_sampler_open(&(an_sampler_options){.temperature = 1}, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_is_the_first_maximum),
        cmocka_unit_test(frequencies_follow_the_softmax),
        cmocka_unit_test(top_k_keeps_k_tokens_and_ties_with_the_last),
        cmocka_unit_test(top_k_of_random_logits_keeps_exactly_the_k_largest),
        cmocka_unit_test(top_p_keeps_the_fewest_tokens_that_reach_p),
        cmocka_unit_test(equal_seeds_draw_equal_tokens_and_other_seeds_do_not),
        cmocka_unit_test(damaged_logits_are_reported_and_infinity_is_certain),
        cmocka_unit_test(options_without_meaning_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
