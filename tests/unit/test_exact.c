/* test_exact.c: accuracy against libm in double, special values, conversions against their definitions, and pinned
 * bits. */
#include "lib/test.h"

#include "base/exact.h"
#include "device/cpu/float_mode.h"
#include "../unknowns/exact_cases.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double sigmoid_f64(double x)
{
    return 1.0 / (1.0 + exp(-x));
}
static double rsqrt_f64(double x)
{
    return 1.0 / sqrt(x);
}

typedef struct function {
    const char *name;
    float (*f)(float);
    double (*want)(double);
    double from, to; /* measured for from <= x <= to */
    double ulps;     /* allowed */
} function;

#define WRAP(name)                                                                                                     \
    static float call_##name(float x)                                                                                  \
    {                                                                                                                  \
        return an_##name(x);                                                                                           \
    }
/* clang-format off */
WRAP(exp) WRAP(exp2) WRAP(expm1) WRAP(log) WRAP(log2) WRAP(log1p) WRAP(tanh) WRAP(sigmoid) WRAP(erf)
WRAP(sin) WRAP(cos) WRAP(sqrt) WRAP(rsqrt) WRAP(rint) WRAP(floor)
    /* clang-format on */

    static const function functions[] = {
        {"exp", call_exp, exp, -INFINITY, INFINITY, 0.95},
        {"exp2", call_exp2, exp2, -INFINITY, INFINITY, 0.95},
        {"expm1", call_expm1, expm1, -INFINITY, INFINITY, 1.6},
        {"log", call_log, log, 0, INFINITY, 0.95},
        {"log2", call_log2, log2, 0, INFINITY, 1.8},
        {"log1p", call_log1p, log1p, -1, INFINITY, 0.95},
        {"tanh", call_tanh, tanh, -INFINITY, INFINITY, 1.5},
        {"sigmoid", call_sigmoid, sigmoid_f64, -88.72, INFINITY, 2.8},
        {"erf", call_erf, erf, -INFINITY, INFINITY, 1.2},
        {"sin", call_sin, sin, -FLT_MAX, FLT_MAX, 1.9},
        {"cos", call_cos, cos, -FLT_MAX, FLT_MAX, 1.9},
        {"sqrt", call_sqrt, sqrt, 0, INFINITY, 0.5},
        {"rsqrt", call_rsqrt, rsqrt_f64, 0, INFINITY, 1.5},
        {"rint", call_rint, rint, -INFINITY, INFINITY, 0},
        {"floor", call_floor, floor, -INFINITY, INFINITY, 0},
};

/* Error in units of the last place of `want`, which of a subnormal number is 2^-149. Overflow must be infinity. */
static double error_ulps(float got, double want)
{
    if (fabs(want) >= 0x1.ffffffp127) return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    int e;
    frexp(want, &e);
    return fabs(got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

/* Every 4099th bit pattern of the 2^32 (AN_SOAK: every one). */
static void every_function_is_within_its_documented_error(void **state)
{
    (void)state;
    uint32_t stride = getenv("AN_SOAK") ? 1 : 4099;
    for (size_t k = 0; k < AN_COUNT(functions); k++) {
        const function *f = &functions[k];
        for (uint64_t u = 0; u < 1ull << 32; u += stride) {
            float x = AN_U2F((uint32_t)u);
            if (!((double)x >= f->from && (double)x <= f->to)) continue;
            double ulps = error_ulps(f->f(x), f->want((double)x));
            if (!(ulps <= f->ulps)) fail_msg("%s(%a) = %a is %.3f ulp off", f->name, (double)x, (double)f->f(x), ulps);
        }
    }
}

/* The stretch where a network works, more densely. */
static void every_function_is_within_its_error_on_a_fine_grid_near_zero(void **state)
{
    (void)state;
    for (size_t k = 0; k < AN_COUNT(functions); k++) {
        const function *f = &functions[k];
        for (int i = -200000; i <= 200000; i++) {
            float x = (float)i * 5.3e-5f;
            if (!((double)x >= f->from && (double)x <= f->to) || i == 0) continue;
            double ulps = error_ulps(f->f(x), f->want((double)x));
            if (!(ulps <= f->ulps)) fail_msg("%s(%a) = %a is %.3f ulp off", f->name, (double)x, (double)f->f(x), ulps);
        }
    }
}

static bool same_bits(float a, float b)
{
    return AN_F2U(a) == AN_F2U(b);
}

/* The largest subnormal number. */
#define SUB 0x1.fffffcp-127f

static const struct {
    float (*f)(float);
    const char *name;
    float x, want;
} cases[] = {
    {call_exp, "exp", 0, 1},
    {call_exp, "exp", -0.0f, 1},
    {call_exp, "exp", INFINITY, INFINITY},
    {call_exp, "exp", -INFINITY, 0},
    {call_exp, "exp", 88.7228394f, INFINITY},
    {call_exp, "exp", -87.3365479f, 0x1.ffff98p-127f},
    {call_exp, "exp", -103.97207f, 0x1p-149f},
    {call_exp, "exp", -104, 0},
    {call_exp, "exp", SUB, 1},
    {call_exp2, "exp2", 0, 1},
    {call_exp2, "exp2", 127, 0x1p127f},
    {call_exp2, "exp2", -126, 0x1p-126f},
    {call_exp2, "exp2", 128, INFINITY},
    {call_exp2, "exp2", -127, 0x1p-127f},
    {call_exp2, "exp2", -149, 0x1p-149f},
    {call_exp2, "exp2", -150, 0},
    {call_exp2, "exp2", -INFINITY, 0},
    {call_expm1, "expm1", -0.0f, -0.0f},
    {call_expm1, "expm1", INFINITY, INFINITY},
    {call_expm1, "expm1", -INFINITY, -1},
    {call_expm1, "expm1", -18, -1},
    {call_expm1, "expm1", -SUB, -SUB},
    {call_expm1, "expm1", 0x1p-126f, 0x1p-126f},
    {call_log, "log", 1, 0},
    {call_log, "log", 0, -INFINITY},
    {call_log, "log", -0.0f, -INFINITY},
    {call_log, "log", INFINITY, INFINITY},
    {call_log, "log", -1, NAN},
    {call_log, "log", -INFINITY, NAN},
    {call_log, "log", 0x1p-149f, -0x1.9d1dap6f},
    {call_log, "log", -SUB, NAN},
    {call_log2, "log2", 0x1p127f, 127},
    {call_log2, "log2", 0x1p-126f, -126},
    {call_log2, "log2", 0x1p-149f, -149},
    {call_log2, "log2", 0, -INFINITY},
    {call_log1p, "log1p", -0.0f, -0.0f},
    {call_log1p, "log1p", -1, -INFINITY},
    {call_log1p, "log1p", -1.5f, NAN},
    {call_log1p, "log1p", INFINITY, INFINITY},
    {call_log1p, "log1p", -INFINITY, NAN},
    {call_log1p, "log1p", SUB, SUB},
    {call_tanh, "tanh", -0.0f, -0.0f},
    {call_tanh, "tanh", INFINITY, 1},
    {call_tanh, "tanh", -INFINITY, -1},
    {call_tanh, "tanh", -9.02f, -1},
    {call_tanh, "tanh", -SUB, -SUB},
    {call_tanh, "tanh", 0x1p-126f, 0x1p-126f},
    {call_sigmoid, "sigmoid", 0, 0.5f},
    {call_sigmoid, "sigmoid", INFINITY, 1},
    {call_sigmoid, "sigmoid", -INFINITY, 0},
    {call_sigmoid, "sigmoid", -88, 0x1.07b712p-127f},
    {call_sigmoid, "sigmoid", -89, 0}, /* 1 / (1 + inf) */
    {call_sigmoid, "sigmoid", 20, 1},
    {call_erf, "erf", -0.0f, -0.0f},
    {call_erf, "erf", INFINITY, 1},
    {call_erf, "erf", -INFINITY, -1},
    {call_erf, "erf", 0x1p-149f, 0x1p-149f},
    {call_sin, "sin", -0.0f, -0.0f},
    {call_sin, "sin", INFINITY, NAN},
    {call_sin, "sin", -SUB, -SUB},
    {call_sin, "sin", -0x1.fffffep127f, 0x1.0b3366p-1f},
    {call_sin, "sin", 0x1.f37c8ap95f, 1}, /* nearest of all to a multiple of pi/2 */
    {call_cos, "cos", -0.0f, 1},
    {call_cos, "cos", -INFINITY, NAN},
    {call_cos, "cos", 0x1.fffffep127f, 0x1.b4bf2cp-1f},
    {call_cos, "cos", 0x1.f37c8ap95f, -0x1.bbdd52p-30f},
    {call_sqrt, "sqrt", -0.0f, -0.0f},
    {call_sqrt, "sqrt", INFINITY, INFINITY},
    {call_sqrt, "sqrt", -1, NAN},
    {call_sqrt, "sqrt", 0x1p-148f, 0x1p-74f},
    {call_sqrt, "sqrt", -SUB, NAN},
    {call_rsqrt, "rsqrt", 4, 0.5f},
    {call_rsqrt, "rsqrt", 0x1p-148f, 0x1p74f},
    {call_rsqrt, "rsqrt", 0, INFINITY},
    {call_rsqrt, "rsqrt", -0.0f, -INFINITY},
    {call_rsqrt, "rsqrt", INFINITY, 0},
    {call_rsqrt, "rsqrt", -4, NAN},
    {call_rsqrt, "rsqrt", -INFINITY, NAN},
    {call_rint, "rint", 2.5f, 2},
    {call_rint, "rint", -0.5f, -0.0f},
    {call_rint, "rint", INFINITY, INFINITY},
    {call_rint, "rint", 1e30f, 1e30f},
    {call_floor, "floor", -0.5f, -1},
    {call_floor, "floor", 2.75f, 2},
    {call_floor, "floor", -SUB, -1},
    {call_floor, "floor", SUB, 0},
    {call_floor, "floor", -INFINITY, -INFINITY},
};

static void special_values_are_those_of_the_mathematical_function(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        float got = cases[i].f(cases[i].x);
        if (!same_bits(got, cases[i].want))
            fail_msg("%s(%a) = %a, wanted %a", cases[i].name, (double)cases[i].x, (double)got, (double)cases[i].want);
    }
}

static void whatever_nan_goes_in_the_one_nan_comes_out(void **state)
{
    (void)state;
    for (size_t k = 0; k < AN_COUNT(functions); k++) {
        const uint32_t nans[] = {0x7fc00000u, 0xffc12345u, 0x7f800001u, 0xff800001u};
        for (size_t i = 0; i < AN_COUNT(nans); i++)
            if (!same_bits(functions[k].f(AN_U2F(nans[i])), AN_EXACT_NAN))
                fail_msg("%s(%08x) is not the one NaN", functions[k].name, nans[i]);
    }
}

static void pow_has_every_special_case_of_the_c_standard(void **state)
{
    (void)state;
    const float v[] = {0,          0x1p-149f, 0x1p-126f, 0.3f,    0.5f,  0.99999994f, 1,        1.0000001f, 1.5f,
                       2,          2.5f,      3,         4,       7,     88,          127,      128,        150,
                       8388607.5f, 16777215,  0x1p24f,   0x1p30f, 1e30f, 3e38f,       INFINITY, 0.33333f,   16777213};
    for (size_t i = 0; i < 4 * AN_COUNT(v) * AN_COUNT(v); i++) {
        float x = v[i / 4 % AN_COUNT(v)], y = v[i / 4 / AN_COUNT(v)];
        if (i & 1) x = -x;
        if (i & 2) y = -y;
        float got = an_pow(x, y);
        double want = pow((double)x, (double)y);
        if (isnan(want) ? !same_bits(got, AN_EXACT_NAN) : error_ulps(got, want) > 4 || !signbit(got) != !signbit(want))
            fail_msg("pow(%a, %a) = %a, wanted %a", (double)x, (double)y, (double)got, want);
    }
    assert_true(an_pow(1, AN_EXACT_NAN) == 1 && an_pow(AN_EXACT_NAN, 0) == 1 && an_pow(AN_EXACT_NAN, -0.0f) == 1);
    assert_true(same_bits(an_pow(AN_EXACT_NAN, 1), AN_EXACT_NAN) && same_bits(an_pow(2, AN_EXACT_NAN), AN_EXACT_NAN));
    assert_true(an_pow(-1, INFINITY) == 1 && an_pow(-1, -INFINITY) == 1);
}

static void pow_is_within_four_ulp(void **state)
{
    (void)state;
    uint32_t n = getenv("AN_SOAK") ? 1u << 30 : 1u << 20, measured = 0;
    for (uint32_t i = 0; i < n; i++) {
        float x = AN_U2F(an_philox(1, 0, i, 0) & 0x7fffffffu);
        if (i % 2) x = 0.5f + 1.5f * an_philox_uniform(2, 0, i, 0); /* near 1, where y may be large */
        float y = (an_philox_uniform(3, 0, i, 0) - 0.5f) * (i % 2 ? 300.0f : 8.0f);
        if (!(x < INFINITY)) continue;
        double want = pow((double)x, (double)y), ulps = error_ulps(an_pow(x, y), want);
        measured += want >= 0x1p-126 && want < 0x1p128;
        if (!(ulps <= 4)) fail_msg("pow(%a, %a) is %.3f ulp off", (double)x, (double)y, ulps);
    }
    assert_true(measured > n / 4);
}

static void atan2_is_within_its_error_in_every_quadrant_and_at_every_special_value(void **state)
{
    (void)state;
    const float v[] = {0,    0x1p-149f, 0x1p-126f,  0x1.8p-126f, 1e-20f, 0.25f, 0.414213562f, 0.41421357f,
                       0.5f, 1,         1.0000001f, 2,           3e10f,  3e38f, INFINITY,     0x1p126f};
    for (size_t i = 0; i < 4 * AN_COUNT(v) * AN_COUNT(v); i++) {
        float y = v[i / 4 % AN_COUNT(v)], x = v[i / 4 / AN_COUNT(v)];
        if (i & 1) x = -x;
        if (i & 2) y = -y;
        float got = an_atan2(y, x);
        double want = atan2((double)y, (double)x);
        if (error_ulps(got, want) > 2.2 || !signbit(got) != !signbit(want))
            fail_msg("atan2(%a, %a) = %a, wanted %a", (double)y, (double)x, (double)got, want);
    }
    assert_true(same_bits(an_atan2(AN_EXACT_NAN, 1), AN_EXACT_NAN) && same_bits(an_atan2(1, -NAN), AN_EXACT_NAN));
    uint32_t n = getenv("AN_SOAK") ? 1u << 30 : 1u << 20;
    for (uint32_t i = 0; i < n; i++) {
        float y = AN_U2F(an_philox(1, 0, i, 0)), x = AN_U2F(an_philox(2, 0, i, 0));
        if (i % 2) {
            y = an_philox_uniform(3, 0, i, 0) - 0.5f;
            x = an_philox_uniform(4, 0, i, 0) - 0.5f;
        }
        if (!(fabsf(y) < INFINITY) || !(fabsf(x) < INFINITY)) continue;
        double ulps = error_ulps(an_atan2(y, x), atan2((double)y, (double)x));
        if (!(ulps <= 2.2)) fail_msg("atan2(%a, %a) is %.3f ulp off", (double)y, (double)x, ulps);
    }
}

/* The value of an f16 pattern from its definition. */
static double f16_value(uint32_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 0x3ff;
    double v = e == 31 ? (m ? NAN : INFINITY) : e == 0 ? ldexp(m, -24) : ldexp(1024 + m, (int)e - 25);
    return h & 0x8000 ? -v : v;
}

static void every_f16_pattern_becomes_its_value_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = an_f16_to_f32(h);
        double want = f16_value(h);
        if (isnan(want)) {
            assert_int_equal(AN_F2U(x), (h & 0x8000u) << 16 | 0x7fc00000u | (h & 0x3ffu) << 13);
            assert_int_equal(an_f32_to_f16(x), h | 0x200u);
        } else {
            assert_true((double)x == want && !signbit(x) == !signbit(want));
            assert_int_equal(an_f32_to_f16(x), h);
        }
    }
}

static void f32_rounds_to_the_nearest_f16_and_to_even_between_two(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = f16_value(h), high = h == 0x7bff ? 65536.0 : f16_value(h + 1);
        float middle = (float)((low + high) / 2); /* exact */
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(an_f32_to_f16(middle), even);
        assert_int_equal(an_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(an_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(an_f32_to_f16(-middle), even | 0x8000u);
    }
    assert_int_equal(an_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(an_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(an_f32_to_f16(AN_U2F(0xffc02000u)), 0xfe01);
    assert_int_equal(an_f32_to_f16(AN_U2F(0x7f800001u)), 0x7e00);
    assert_int_equal(an_f32_to_f16(AN_U2F(1)), 0);
}

static void f32_rounds_to_the_nearest_bf16_and_to_even_between_two(void **state)
{
    (void)state;
    for (uint32_t h = 0x0080; h < 0x7f80; h++) {
        assert_int_equal(an_f32_to_bf16(an_bf16_to_f32(h)), h);
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(an_f32_to_bf16(AN_U2F(h << 16 | 0x8000u)), even);
        assert_int_equal(an_f32_to_bf16(AN_U2F(h << 16 | 0x7fffu)), h);
        assert_int_equal(an_f32_to_bf16(AN_U2F(h << 16 | 0x8001u)), h + 1);
        assert_int_equal(an_f32_to_bf16(AN_U2F(0x80000000u | h << 16 | 0x8000u)), 0x8000u | even);
    }
    assert_int_equal(an_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(an_f32_to_bf16(AN_U2F(0x7f800001u)), 0x7fc0);
    assert_int_equal(an_f32_to_bf16(AN_U2F(0xffffffffu)), 0xffff);
    assert_int_equal(an_f32_to_bf16(AN_U2F(0x007fffffu)), 0);
    assert_int_equal(an_f32_to_bf16(AN_U2F(0x807fffffu)), 0x8000);
}

static void the_larger_and_the_smaller_of_two_is_nan_when_one_is(void **state)
{
    (void)state;
    assert_true(isnan(an_max(NAN, 1)) && isnan(an_max(1, NAN)) && isnan(an_min(NAN, 1)) && isnan(an_min(1, NAN)));
    assert_true(an_max(2, -INFINITY) == 2 && an_min(2, -INFINITY) == -INFINITY);
}

static void the_tree_adds_32_lanes_in_the_documented_order(void **state)
{
    (void)state;
    float x[100];
    for (int i = 0; i < 100; i++) x[i] = ldexpf(1.0f + (float)i / 7, i * 37 % 24); /* the order shows in the bits */
    for (int n = 0; n <= 100; n++) {
        float lane[32] = {0};
        for (int l = 0; l < 32; l++)
            for (int i = l; i < n; i += 32) lane[l] = lane[l] + x[i];
        for (int l = 0; l < 16; l++) lane[l] = lane[l] + lane[l + 16];
        for (int l = 0; l < 8; l++) lane[l] = lane[l] + lane[l + 8];
        for (int l = 0; l < 4; l++) lane[l] = lane[l] + lane[l + 4];
        float want = (lane[0] + lane[2]) + (lane[1] + lane[3]);
        assert_true(same_bits(an_sum_r(x, n), want));
    }
    assert_true(same_bits(an_sum_r((float[]){-0.0f}, 1), 0.0f));
    assert_true(an_max_r(x, 0) == -INFINITY);
    x[71] = NAN;
    assert_true(isnan(an_max_r(x, 100)) && !isnan(an_max_r(x, 71)));
}

/* In blocks as exact_bits.c, but as this compiler was told to build the library. */
#define HASH(name, pinned, result)                                                                                     \
    static uint64_t hash_##name(void)                                                                                  \
    {                                                                                                                  \
        uint64_t sum = 0;                                                                                              \
        for (an_u32 i = 0; i < CASE_INPUTS; i++) {                                                                     \
            float x = case_x(i), y = case_y(i);                                                                        \
            sum += case_mix(i, result);                                                                                \
            (void)x, (void)y;                                                                                          \
        }                                                                                                              \
        return sum;                                                                                                    \
    }
EXACT_CASES(HASH)

/* Those of a GPU, whose text knows no subnormal numbers: the processor flushes them. */
static void the_bits_of_every_function_in_exact_mode_are_the_pinned_ones(void **state)
{
    (void)state;
    const uint64_t mode = an_float_mode_set(true);
#define CHECK(name, pinned, result)                                                                                    \
    if (hash_##name() != (pinned)) fail_msg("%s: hash %016llx", #name, (unsigned long long)hash_##name());
    EXACT_CASES(CHECK)
    an_float_mode_restore(mode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_within_its_documented_error),
        cmocka_unit_test(every_function_is_within_its_error_on_a_fine_grid_near_zero),
        cmocka_unit_test(whatever_nan_goes_in_the_one_nan_comes_out),
        cmocka_unit_test(special_values_are_those_of_the_mathematical_function),
        cmocka_unit_test(pow_has_every_special_case_of_the_c_standard),
        cmocka_unit_test(pow_is_within_four_ulp),
        cmocka_unit_test(atan2_is_within_its_error_in_every_quadrant_and_at_every_special_value),
        cmocka_unit_test(every_f16_pattern_becomes_its_value_and_comes_back),
        cmocka_unit_test(f32_rounds_to_the_nearest_f16_and_to_even_between_two),
        cmocka_unit_test(f32_rounds_to_the_nearest_bf16_and_to_even_between_two),
        cmocka_unit_test(the_larger_and_the_smaller_of_two_is_nan_when_one_is),
        cmocka_unit_test(the_tree_adds_32_lanes_in_the_documented_order),
        cmocka_unit_test(the_bits_of_every_function_in_exact_mode_are_the_pinned_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
