/* test_rng.c: the generator against its authors' numbers, and the distributions made of it. */
#include "lib/test.h"

#include "base/exact.h"
#include "base/rng.h"

#include <math.h>

/* kat_vectors of Random123 (D. E. Shaw Research), philox2x32 with 7 rounds: counter, key, first word of the result. */
static void philox_gives_its_authors_known_answers(void **state)
{
    (void)state;
    assert_int_equal(an_philox(0, 0, 0, 0), 0x257a3673u);
    assert_int_equal(an_philox(0xffffffffu, 0xffffffffu, 0xffffffffu, 0), 0xab302c4du);
    assert_int_equal(an_philox(0x13198a2eu, 0x85a308d3u, 0x243f6a88u, 0), 0xbedbbe6bu);
}

/* The generator again, in 64-bit arithmetic and a loop, from the paper's definition. */
static uint32_t philox_reference(uint32_t key, uint32_t stream, uint64_t index)
{
    uint32_t a = (uint32_t)index, b = stream ^ (uint32_t)(index >> 32) * 0x9E3779B9u;
    for (int round = 0; round < AN_PHILOX_ROUNDS; round++, key += 0x9E3779B9u) {
        uint64_t product = (uint64_t)0xD256D193u * a;
        a = (uint32_t)(product >> 32) ^ key ^ b;
        b = (uint32_t)product;
    }
    return a;
}

static void words_are_the_documented_function_of_key_stream_and_64_bit_index(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        uint64_t index = (uint64_t)i * 0x123456789abcdefu;
        assert_int_equal(an_rng_u32(i, i * 3, index), philox_reference(i, i * 3, index));
        assert_true(an_rng_uniform(i, i * 3, index) == (float)(philox_reference(i, i * 3, index) >> 8) / 16777216.0f);
    }
    assert_int_not_equal(an_rng_u32(1, 2, 5), an_rng_u32(1, 2, 5 + (1ull << 32)));
}

/* Philox2x32's second word is the last round's lower product: the reference's state after its rounds. */
static void sixteen_bits_are_quarters_of_both_words(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        const uint64_t index = (uint64_t)i * 0x123456789abcdefu;
        uint32_t a = (uint32_t)index, b = i * 3 ^ (uint32_t)(index >> 32) * 0x9E3779B9u, key = i;
        for (int round = 0; round < AN_PHILOX_ROUNDS; round++, key += 0x9E3779B9u) {
            const uint64_t product = (uint64_t)0xD256D193u * a;
            a = (uint32_t)(product >> 32) ^ key ^ b, b = (uint32_t)product;
        }
        const uint32_t quarter[4] = {a & 0xffffu, a >> 16, b & 0xffffu, b >> 16};
        for (int c = 0; c < 8; c++) assert_int_equal(an_rng_16(i, i * 3, index, c), quarter[c % 4]);
    }
    assert_int_equal(an_rng_least_16(0.0f), 0);
    assert_int_equal(an_rng_least_16(0.25f), 16384);
    assert_int_equal(an_rng_least_16(0.1f), 6554); /* rounded up */
    assert_int_equal(an_rng_least_16(1e-9f), 1);
    assert_int_equal(an_rng_least_16(0.9999999f), 65535); /* some are always kept */
    static const float rate[] = {0, 1e-9f, 0.1f, 0.25f, 0.9999f, 0.9999999f};
    for (size_t i = 0; i < sizeof rate / sizeof *rate;
         i++) { /* what is kept is multiplied by one over how often it is */
        const double kept = (65536 - (double)an_rng_least_16(rate[i])) / 65536;
        assert_true(fabs(kept * (double)an_rng_keep_scale_16(rate[i]) - 1) < 1e-6);
    }
}

/* Every quarter of a number fills its interval, alone and beside its neighbour. */
static void sixteen_bits_are_even_and_independent_of_their_neighbours(void **state)
{
    (void)state;
    enum { N = 1 << 18, BINS = 64 };
    int alone[4][BINS] = {{0}}, beside[3][BINS] = {{0}};
    for (uint64_t i = 0; i < N; i++)
        for (int c = 0; c < 4; c++) {
            const uint32_t x = an_rng_16(7, 9, i, c);
            alone[c][x >> 10]++;
            if (c) beside[c - 1][(x >> 13) * 8 + (an_rng_16(7, 9, i, c - 1) >> 13)]++;
        }
    for (int t = 0; t < 7; t++) {
        const int *bins = t < 4 ? alone[t] : beside[t - 4];
        double chi2 = 0, expected = (double)N / BINS;
        for (int b = 0; b < BINS; b++) chi2 += (bins[b] - expected) * (bins[b] - expected) / expected;
        assert_true(chi2 > 30 && chi2 < 110);
    }
}

static void uniforms_fill_the_interval_evenly_and_never_reach_one(void **state)
{
    (void)state;
    enum { N = 1 << 20, BINS = 64 };
    int bins[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        float u = an_rng_uniform(7, 9, i);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
    }
    double chi2 = 0, expected = (double)N / BINS;
    for (int b = 0; b < BINS; b++) chi2 += (bins[b] - expected) * (bins[b] - expected) / expected;
    assert_true(chi2 > 30 && chi2 < 110); /* 63 degrees of freedom: beyond 4 standard deviations on either side */
    assert_true(an_word_uniform(0xffffffffu) < 1 && an_word_uniform(0) == 0);
}

static void normals_have_the_moments_and_the_tails_of_the_normal_distribution(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, tail = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = (double)an_rng_normal(3, 4, i);
        assert_true(fabs(x) < 5.8);
        m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x, tail += fabs(x) > 3;
    }
    assert_true(fabs(m1 / N) < 0.004 && fabs(m2 / N - 1) < 0.006 && fabs(m3 / N) < 0.012 && fabs(m4 / N - 3) < 0.04);
    assert_true(fabs(tail / N - 0.0026998) < 2.5e-4);
}

static void a_normal_is_box_muller_of_the_two_uniforms_at_twice_the_index(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        double u = 1 - (double)an_rng_uniform(3, 4, 2 * i), v = (double)an_rng_uniform(3, 4, 2 * i + 1);
        double want = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
        assert_true(fabs((double)an_rng_normal(3, 4, i) - want) < 4e-6);
    }
}

static void keys_and_streams_of_neighbouring_numbers_differ_in_half_their_bits(void **state)
{
    (void)state;
    int key_bits = 0, stream_bits = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        key_bits += __builtin_popcount(an_rng_key(1, i) ^ an_rng_key(1, i + 1));
        stream_bits += __builtin_popcount(an_rng_stream(5, i) ^ an_rng_stream(5, i + 1));
    }
    assert_true(key_bits > 15000 && key_bits < 17000 && stream_bits > 15000 && stream_bits < 17000);
    assert_int_not_equal(an_rng_key(1, 2), an_rng_key(2, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_authors_known_answers),
        cmocka_unit_test(words_are_the_documented_function_of_key_stream_and_64_bit_index),
        cmocka_unit_test(sixteen_bits_are_quarters_of_both_words),
        cmocka_unit_test(sixteen_bits_are_even_and_independent_of_their_neighbours),
        cmocka_unit_test(uniforms_fill_the_interval_evenly_and_never_reach_one),
        cmocka_unit_test(normals_have_the_moments_and_the_tails_of_the_normal_distribution),
        cmocka_unit_test(a_normal_is_box_muller_of_the_two_uniforms_at_twice_the_index),
        cmocka_unit_test(keys_and_streams_of_neighbouring_numbers_differ_in_half_their_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
