/* test_schedule.c: nanoGPT's learning rates, and the host functions that they use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <anneal_nn.h>
#include <math.h>
#include <string.h>

static const an_lr_schedule char_preset = {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .decay = 5000};

static void warm_up_is_linear_and_starts_above_zero(void **state)
{
    (void)state;
    assert_true(an_lr_at(&char_preset, 0) == 1e-3 * 1.0 / 101.0);
    assert_true(an_lr_at(&char_preset, 49) == 1e-3 * 50.0 / 101.0);
    assert_true(an_lr_at(&char_preset, 99) < 1e-3);
}

static void the_peak_the_middle_and_the_end_of_the_cosine_are_exact(void **state)
{
    (void)state;
    assert_true(fabs(an_lr_at(&char_preset, 100) - 1e-3) <= 2e-19);
    assert_true(fabs(an_lr_at(&char_preset, 2550) - 5.5e-4) <= 2e-19);
    assert_true(an_lr_at(&char_preset, 5000) == 1e-4);
    assert_true(an_lr_at(&char_preset, 5001) == 1e-4);
    assert_true(an_lr_at(&char_preset, INT64_MAX / 2) == 1e-4);
}

static void every_iteration_agrees_with_the_formula_in_long_double(void **state)
{
    (void)state;
    for (int64_t it = 100; it <= 5000; it++) {
        long double r = (it - 100) / 4900.0L;
        long double want = 1e-4L + 0.5L * (1 + cosl(3.14159265358979323846L * r)) * (1e-3L - 1e-4L);
        assert_true(fabsl(an_lr_at(&char_preset, it) - want) <= 1e-15L * want);
    }
}

static void a_constant_schedule_and_one_without_decay_steps_are_defined(void **state)
{
    (void)state;
    assert_true(an_lr_at(&(an_lr_schedule){.lr = 0.5, .constant = true, .warmup = 10}, 0) == 0.5);
    an_lr_schedule s = {.lr = 1, .min_lr = 0.1, .warmup = 10, .decay = 10};
    assert_true(an_lr_at(&s, 10) == 0.1);
}

static void cospi_is_within_two_ulp_of_the_true_value(void **state)
{
    (void)state;
    const long double pi = 3.14159265358979323846264338327950288L;
    for (int i = -100000; i <= 100000; i++) {
        double r = i / 100000.0, s = 0.5 - fabs(r); /* exact near the zero at 1/2, where pi r would lose its digits */
        long double want = fabs(s) < 0.25 ? sinl(pi * s) : cosl(pi * r);
        assert_true(fabsl(an_cospi(r) - want) <= 4.5e-16L * fabsl(want));
    }
    assert_true(an_cospi(0) == 1 && an_cospi(1) == -1 && an_cospi(0.5) == 0);
}

static void exp_is_within_two_ulp_and_flushes_far_below_zero(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        double x = -708.0 * i / 200000.0;
        long double want = expl((long double)x);
        assert_true(fabsl(an_exp_host(x) - want) <= 4.5e-16L * want);
    }
    assert_true(an_exp_host(0) == 1 && an_exp_host(-1e300) == 0 && an_exp_host(-INFINITY) == 0);
    assert_true(isnan(an_exp_host(NAN)));
}

/* Golden bits: a change of compiler, machine or code that moves one of them would break resuming elsewhere. */
static void the_bits_of_three_learning_rates_are_fixed(void **state)
{
    (void)state;
    static const struct {
        int64_t it;
        uint64_t bits;
    } golden[] = {{0, 0x3ee4c38db7b0fffbu}, {1000, 0x3f4e61693b55c285u}, {4321, 0x3f229bca6f5a32a8u}};
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        double lr = an_lr_at(&char_preset, golden[i].it);
        uint64_t bits;
        memcpy(&bits, &lr, sizeof bits);
        if (bits != golden[i].bits) print_message("it %d: 0x%016llx\n", (int)golden[i].it, (unsigned long long)bits);
        assert_true(bits == golden[i].bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_is_linear_and_starts_above_zero),
        cmocka_unit_test(the_peak_the_middle_and_the_end_of_the_cosine_are_exact),
        cmocka_unit_test(every_iteration_agrees_with_the_formula_in_long_double),
        cmocka_unit_test(a_constant_schedule_and_one_without_decay_steps_are_defined),
        cmocka_unit_test(cospi_is_within_two_ulp_of_the_true_value),
        cmocka_unit_test(exp_is_within_two_ulp_and_flushes_far_below_zero),
        cmocka_unit_test(the_bits_of_three_learning_rates_are_fixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
