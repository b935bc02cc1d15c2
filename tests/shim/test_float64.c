/* test_float64.c: 64-bit arithmetic in integers (dialect/float64.h, as a GPU without doubles runs it) against this
 * processor's doubles: every bit, over numbers of all sizes, neighbours of powers of two, subnormals, infinities and
 * NaN. */
#include "lib/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t an_u64;
typedef uint32_t an_u32;

static an_u32 bits_of_f32(float x)
{
    an_u32 u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static float f32_of_bits(an_u32 u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
#define AN_FN static inline
#define AN_PRIVATE
#define AN_F2U(x)      bits_of_f32(x)
#define AN_U2F(x)      f32_of_bits(x)
#define AN_SOFT_DOUBLE 1
#include "kernels/dialect/float64.h"

static uint64_t state = 1;

static uint64_t word(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = (state ^ (state >> 31)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static double of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* A pattern: any bits; few digits, so that ties and exact results are common; near a power of two; a special one. */
static uint64_t pattern(void)
{
    static const uint64_t special[] = {0,
                                       1,
                                       0x000fffffffffffffu,
                                       0x0010000000000000u,
                                       0x3ff0000000000000u,
                                       0x3fefffffffffffffu,
                                       0x7fefffffffffffffu,
                                       0x7ff0000000000000u,
                                       0x7ff8000000000000u,
                                       0x36a0000000000000u,
                                       0x380fffffffffffffu,
                                       0x47efffffe0000000u,
                                       0x47effffff0000000u};
    uint64_t w = word(), how = w & 7;
    if (how == 0) return special[(w >> 8) % AN_COUNT(special)] | (w & AN_F64_SIGN);
    if (how == 1) return w;
    uint64_t exponent = 1023 - 30 + (w >> 8) % 61, digits = word() & 0xfffffffffffffu;
    if (how == 2) digits &= 0xff00000000000u;
    if (how == 3) digits = (w >> 20 & 1) ? word() & 3 : 0xffffffffffffcu | (word() & 3);
    if (how == 4) exponent = (w >> 8) % 2047;
    if (how == 5) exponent = (w >> 8) % 64;
    return (w & AN_F64_SIGN) | exponent << 52 | digits;
}

static void same(const char *what, double a, double b, uint64_t got, double want)
{
    if (got == bits_of(want) || (isnan(want) && got == AN_F64_NAN)) return;
    fail_msg("%a %s %a is %a, not %a", a, what, b, of_bits(got), want);
}

static void sums_products_and_quotients_have_a_doubles_bits(void **unused)
{
    (void)unused;
    for (long i = 0; i < (getenv("AN_SOAK") ? 300000000 : 2000000); i++) {
        const uint64_t u = pattern(), v = pattern();
        const volatile double a = of_bits(u), b = of_bits(v);
        same("+", a, b, an_f64_add(u, v), a + b);
        same("-", a, b, an_f64_sub(u, v), a - b);
        same("*", a, b, an_f64_mul(u, v), a * b);
        same("/", a, b, an_f64_div(u, v), a / b);
        assert_int_equal(an_f64_less(u, v), a < b);
    }
}

static void roots_have_a_doubles_bits(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2000000; i++) {
        const uint64_t u = i % 4 ? pattern() & ~AN_F64_SIGN : pattern();
        same("root", of_bits(u), 0, an_f64_sqrt(u), sqrt(of_bits(u)));
    }
}

static void conversions_have_a_processors_bits(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4000000; i++) {
        const uint64_t u = pattern();
        const float want = (float)of_bits(u), x = f32_of_bits((an_u32)word()),
                    tiny = f32_of_bits((an_u32)word() & 0x80ffffffu);
        const float got = an_f64_to_f32(u);
        if (bits_of_f32(got) != bits_of_f32(want) && !isnan(want))
            fail_msg("%a is %a as a float, not %a", of_bits(u), (double)got, (double)want);
        if (isnan(want)) assert_true(isnan(got));
        same("from", (double)x, 0, an_f64_of_f32(x), (double)x);
        same("from", (double)tiny, 0, an_f64_of_f32(tiny), (double)tiny);
    }
}

static void the_rest_is_what_it_says(void **unused)
{
    (void)unused;
    assert_true(an_f64_number(-1022) == bits_of(DBL_MIN) && an_f64_number(3) == bits_of(8.0));
    assert_true(an_f64_is_zero(AN_F64_SIGN) && !an_f64_is_zero(1));
    assert_true(an_f64_negative(bits_of(2.5)) == bits_of(-2.5) && an_f64_size(bits_of(-2.5)) == bits_of(2.5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_products_and_quotients_have_a_doubles_bits),
        cmocka_unit_test(roots_have_a_doubles_bits),
        cmocka_unit_test(conversions_have_a_processors_bits),
        cmocka_unit_test(the_rest_is_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
