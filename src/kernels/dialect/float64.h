/* float64.h: an_f64: 64-bit floating-point arithmetic on every GPU, with the bits of a CPU's double.
 *
 * Owns:      addition, subtraction, multiplication, division, square roots, comparisons, conversions, all correctly rounded (to nearest, ties
 *            to even), subnormal numbers included. Every NaN counts as one.
 * Does not:  make anything fast where the language has no double: there a number is its 64 bits and arithmetic is done in integers
 *            (60 to 120 operations; division and roots bit by bit). For results that must not depend on the device: cumulative sums,
 *            factorizations, sums of a few addends.
 * Invariant: use the functions, never operators: an_f64 is an integer in MSL, and + would add bits.
 *
 * AN_SOFT_DOUBLE 1 selects the integer version elsewhere too: tests/shim/test_float64.c compares it with a CPU's doubles. */
#if defined(__METAL_VERSION__) && !defined(AN_SOFT_DOUBLE)
#define AN_SOFT_DOUBLE 1
#endif

#define AN_F64_SIGN 0x8000000000000000u
#define AN_F64_INF  0x7ff0000000000000u
#define AN_F64_NAN  0x7ff8000000000000u

AN_FN bool an_f64_is_nan(an_u64 bits) { return (bits & ~AN_F64_SIGN) > AN_F64_INF; }

#if !AN_SOFT_DOUBLE
typedef double an_f64;
AN_FN an_u64 an_f64_bits(an_f64 a) { return (an_u64)__double_as_longlong(a); }
AN_FN an_f64 an_f64_of_bits(an_u64 bits) { return __longlong_as_double((an_i64)bits); }
AN_FN an_f64 an_f64_add(an_f64 a, an_f64 b) { return __dadd_rn(a, b); }
AN_FN an_f64 an_f64_sub(an_f64 a, an_f64 b) { return __dsub_rn(a, b); }
AN_FN an_f64 an_f64_mul(an_f64 a, an_f64 b) { return __dmul_rn(a, b); }
AN_FN an_f64 an_f64_div(an_f64 a, an_f64 b) { return __ddiv_rn(a, b); }
AN_FN an_f64 an_f64_sqrt(an_f64 a) { return __dsqrt_rn(a); }
AN_FN bool an_f64_less(an_f64 a, an_f64 b) { return a < b; }
AN_FN an_f64 an_f64_of_f32(float x) { return (double)x; }
AN_FN float an_f64_to_f32(an_f64 a) { return __double2float_rn(a); }
#else
typedef an_u64 an_f64;
AN_FN an_u64 an_f64_bits(an_f64 a) { return a; }
AN_FN an_f64 an_f64_of_bits(an_u64 bits) { return bits; }

/* Leading zero bits; 64 for 0. */
AN_FN int an_leading_zeros(an_u64 x)
{
    int n = 0;
    if (x == 0u) return 64;
    if (x >> 32 == 0u) n += 32, x <<= 32;
    if (x >> 48 == 0u) n += 16, x <<= 16;
    if (x >> 56 == 0u) n += 8, x <<= 8;
    if (x >> 60 == 0u) n += 4, x <<= 4;
    if (x >> 62 == 0u) n += 2, x <<= 2;
    return n + (x >> 63 == 0u ? 1 : 0);
}

/* x / 2^n with a sticky last bit: it is set when any bit was shifted out, so that rounding knows. */
AN_FN an_u64 an_shift_sticky(an_u64 x, int n)
{
    if (n <= 0) return x;
    if (n > 63) return x != 0u ? 1u : 0u;
    return x >> n | (x << (64 - n) != 0u ? 1u : 0u);
}

/* Unpacks a finite number: m * 2^(e - 1085) with 2^62 <= m < 2^63. Zero: m is 0. */
AN_FN int an_f64_exponent(an_u64 a) { return (int)(a >> 52 & 0x7ffu); }
AN_FN an_u64 an_f64_open(an_u64 a, AN_PRIVATE int *e)
{
    an_u64 m = a & 0xfffffffffffffu;
    *e = an_f64_exponent(a);
    if (*e != 0) return (m | 0x10000000000000u) << 10;
    if (m == 0u) return 0u;
    int shift = an_leading_zeros(m) - 1;
    *e = 11 - shift;
    return m << shift;
}

/* sign * m * 2^(e - 1085), rounded; m is 0, or 2^62 <= m < 2^63 with a sticky last bit. A carry out of the mantissa raises the exponent, up to
 * infinity, by itself. */
AN_FN an_f64 an_f64_round(an_u64 sign, int e, an_u64 m)
{
    if (m == 0u) return sign;
    if (e > 2046) return sign | AN_F64_INF;
    if (e < 1) m = an_shift_sticky(m, 1 - e), e = 0;
    an_u64 rest = m & 0x3ffu, digits = m >> 10;
    if (rest > 0x200u || (rest == 0x200u && (digits & 1u) != 0u)) digits++;
    return sign | (((an_u64)(e > 0 ? e - 1 : 0) << 52) + digits);
}

AN_FN an_f64 an_f64_add(an_f64 a, an_f64 b)
{
    if ((a & ~AN_F64_SIGN) < (b & ~AN_F64_SIGN)) {
        an_u64 larger = b;
        b = a, a = larger;
    }
    an_u64 sign = a & AN_F64_SIGN;
    bool opposite = ((a ^ b) & AN_F64_SIGN) != 0u;
    if (an_f64_exponent(a) == 0x7ff) { /* NaN, or infinity and a smaller number */
        bool none = an_f64_is_nan(a) || (opposite && a == (b ^ AN_F64_SIGN));
        return none ? AN_F64_NAN : a;
    }
    int ea, eb;
    an_u64 ma = an_f64_open(a, &ea), mb = an_f64_open(b, &eb);
    if (mb == 0u) return ma == 0u && opposite ? 0u : a;
    mb = an_shift_sticky(mb, ea - eb);
    an_u64 m = opposite ? ma - mb : ma + mb;
    if (m == 0u) return 0u;
    int shift = an_leading_zeros(m) - 1;
    return an_f64_round(sign, ea - shift, shift < 0 ? an_shift_sticky(m, 1) : m << shift);
}
AN_FN an_f64 an_f64_sub(an_f64 a, an_f64 b) { return an_f64_add(a, b ^ AN_F64_SIGN); }

AN_FN an_f64 an_f64_mul(an_f64 a, an_f64 b)
{
    an_u64 sign = (a ^ b) & AN_F64_SIGN;
    int ea, eb;
    if (an_f64_exponent(a) == 0x7ff || an_f64_exponent(b) == 0x7ff) {
        bool none = an_f64_is_nan(a) || an_f64_is_nan(b) || a << 1 == 0u || b << 1 == 0u;
        return none ? AN_F64_NAN : sign | AN_F64_INF;
    }
    an_u64 ma = an_f64_open(a, &ea), mb = an_f64_open(b, &eb) << 1;
    if (ma == 0u || mb == 0u) return sign;
    an_u64 al = ma & 0xffffffffu, ah = ma >> 32, bl = mb & 0xffffffffu, bh = mb >> 32;
    an_u64 low = al * bl, cross = ah * bl + (low >> 32), other = al * bh + (cross & 0xffffffffu);
    an_u64 high = ah * bh + (cross >> 32) + (other >> 32); /* of 128 bits: 2^61 <= high < 2^63 */
    if ((low & 0xffffffffu) != 0u || (other & 0xffffffffu) != 0u) high |= 1u;
    int shift = an_leading_zeros(high) - 1;
    return an_f64_round(sign, ea + eb - 1022 - shift, high << shift);
}

AN_FN an_f64 an_f64_div(an_f64 a, an_f64 b)
{
    an_u64 sign = (a ^ b) & AN_F64_SIGN;
    int ea, eb;
    bool a_inf = an_f64_exponent(a) == 0x7ff, b_inf = an_f64_exponent(b) == 0x7ff;
    an_u64 ma = an_f64_open(a, &ea), mb = an_f64_open(b, &eb);
    if (an_f64_is_nan(a) || an_f64_is_nan(b) || (a_inf && b_inf) || (!a_inf && !b_inf && ma == 0u && mb == 0u)) return AN_F64_NAN;
    if (a_inf || (mb == 0u && !b_inf)) return sign | AN_F64_INF;
    if (b_inf || ma == 0u) return sign;
    an_u64 rest = ma, q = 0u;
    int e = ea - eb + 1023;
    if (rest < mb) rest <<= 1, e--;
    for (int i = 0; i < 55; i++) { /* 1 <= rest / mb < 2: one bit an iteration */
        bool take = rest >= mb;
        rest = (take ? rest - mb : rest) << 1;
        q = q << 1 | (take ? 1u : 0u);
    }
    return an_f64_round(sign, e, q << 8 | (rest != 0u ? 1u : 0u));
}

AN_FN an_f64 an_f64_sqrt(an_f64 a)
{
    int e;
    if (a << 1 == 0u) return a;
    if (an_f64_is_nan(a) || (a & AN_F64_SIGN) != 0u) return AN_F64_NAN;
    if (a == AN_F64_INF) return a;
    an_u64 m = an_f64_open(a, &e), rest = 0u, q = 0u;
    bool odd = (e & 1) == 0; /* the exponent that counts is e - 1023 */
    an_u64 digits = odd ? m << 1 : m;
    for (int i = 0; i < 55; i++) { /* two bits of the radicand for one of the root */
        rest = rest << 2 | digits >> 62;
        digits <<= 2;
        an_u64 t = q << 2 | 1u;
        bool take = rest >= t;
        if (take) rest -= t;
        q = q << 1 | (take ? 1u : 0u);
    }
    return an_f64_round(0u, (e - 1023 - (odd ? 1 : 0)) / 2 + 1023, q << 8 | (rest != 0u ? 1u : 0u));
}

AN_FN bool an_f64_less(an_f64 a, an_f64 b)
{
    if (an_f64_is_nan(a) || an_f64_is_nan(b) || (a | b) << 1 == 0u) return false;
    bool below = (a & AN_F64_SIGN) != 0u, b_below = (b & AN_F64_SIGN) != 0u;
    if (below != b_below) return below;
    return below ? a > b : a < b;
}

AN_FN an_f64 an_f64_of_f32(float x)
{
    an_u32 u = AN_F2U(x), size = u & 0x7fffffffu;
    an_u64 sign = (an_u64)(u & 0x80000000u) << 32;
    if (size > 0x7f800000u) return AN_F64_NAN;
    if (size == 0x7f800000u) return sign | AN_F64_INF;
    if (size >= 0x00800000u) return sign | (((an_u64)size << 29) + 0x3800000000000000u);
    if (size == 0u) return sign;
    int shift = an_leading_zeros((an_u64)size) - 1; /* subnormal: size * 2^-149 */
    return an_f64_round(sign, 936 - shift, (an_u64)size << shift);
}

AN_FN float an_f64_to_f32(an_f64 a)
{
    an_u32 sign = (an_u32)(a >> 32) & 0x80000000u;
    int e;
    if (an_f64_is_nan(a)) return AN_U2F(0x7fc00000u);
    an_u64 m = an_f64_open(a, &e);
    e -= 896;
    if (e > 254) return AN_U2F(sign | 0x7f800000u);
    if (e < 1) m = an_shift_sticky(m, 1 - e), e = 0;
    an_u64 rest = m & 0x7fffffffffu;
    an_u32 digits = (an_u32)(m >> 39);
    if (rest > 0x4000000000u || (rest == 0x4000000000u && (digits & 1u) != 0u)) digits++;
    return AN_U2F(sign | (((an_u32)(e > 0 ? e - 1 : 0) << 23) + digits));
}
#endif

/* Operations on the bits alone. */
AN_FN an_f64 an_f64_negative(an_f64 a) { return an_f64_of_bits(an_f64_bits(a) ^ AN_F64_SIGN); }
AN_FN an_f64 an_f64_size(an_f64 a) { return an_f64_of_bits(an_f64_bits(a) & ~AN_F64_SIGN); }
AN_FN bool an_f64_is_zero(an_f64 a) { return an_f64_bits(a) << 1 == 0u; }
AN_FN an_f64 an_f64_number(int exponent) { return an_f64_of_bits((an_u64)(exponent + 1023) << 52); } /* 2^exponent, normal */
