/* exact.h: elementary functions, conversions and random words with the same bits on every machine.
 *
 * Owns:      exp, expm1, exp2, log, log1p, log2, tanh, sigmoid, erf, sin, cos, atan2, pow, sqrt, rsqrt, floor, rint,
 *            min, max in f32; bf16 and f16 conversions; the Philox generator; the reduction tree's reference.
 * Does not:  include anything, or use a library, a table, a loop or a branch (the tree's reference has loops; on a GPU
 *            sin and cos branch for |x| > 2^20).
 *
 * One text, three uses: a C header, the inside of rendered C loops (gcc and clang vectorise every function), and the
 * text in front of CUDA and MSL kernels. What differs is in the macros below; a dialect may define them first.
 *
 * Why the bits agree: only additions, multiplications, fused multiply-adds, comparisons and integer operations are
 * used (sqrt and rsqrt: also correctly rounded roots and quotients), and IEEE 754 leaves no choice in those. Three
 * things could still differ, and are taken care of here:
 *   contraction  No product is an operand of an addition, unless it is exact; fused operations are written AN_FMA. So
 *                -ffp-contract does not matter. Reassociation does: -ffast-math and Metal's default fast math are wrong.
 *   subnormals   On a GPU (AN_KEEPS_SUBNORMALS 0) arguments below 2^-126 count as zeros with their sign, and results there
 *                are zeros with their sign; no intermediate result that matters is subnormal, so it does not matter whether
 *                the hardware flushes. On a CPU they are numbers like all others, as in PyTorch and libm, unless the
 *                processor flushes them (exact mode): then every bit is a GPU's, because a subnormal argument meets an
 *                addition, a multiplication or a comparison first, and a subnormal result comes from one.
 *   NaN          Every NaN that a function returns is 0x7fc00000; min and max return one of their arguments.
 * tests/unit/test_exact.c pins the bits by hashes; tests/unknowns/exact_bits.sh compares compilers and machines.
 *
 * Compile loops with -fno-math-errno -fno-trapping-math, or gcc will not vectorise the selects. The error given above a
 * function, in units of the last place (ulp), is the largest found over every third of the 2^32 arguments with libm in
 * double; sqrt is correctly rounded. Coefficients: bench/exact/fit.py. */
#ifndef AN_EXACT_H
#define AN_EXACT_H

#if defined(__METAL_VERSION__)
#define AN_EXACT_DEVICE 1
#ifndef AN_FN
#define AN_FN static inline
#endif
#ifndef AN_FMA
#define AN_FMA(a, b, c) fma(a, b, c)
#endif
#ifndef AN_F2U
#define AN_F2U(x) as_type<uint>(x)
#define AN_U2F(u) as_type<float>(u)
#endif
#ifndef AN_MULHI_U32
#define AN_MULHI_U32(a, b) mulhi(a, b)
#endif
#ifndef AN_RINT
#define AN_RINT(x) rint(x)
#endif
#ifndef AN_SQRT
#define AN_SQRT(x) precise::sqrt(x)
#endif
#elif defined(__CUDACC__)
#define AN_EXACT_DEVICE 1
#ifndef AN_FN
#define AN_FN static __device__ __forceinline__
#endif
#ifndef AN_FMA
#define AN_FMA(a, b, c) __fmaf_rn(a, b, c)
#endif
#ifndef AN_F2U
#define AN_F2U(x) __float_as_uint(x)
#define AN_U2F(u) __uint_as_float(u)
#endif
#ifndef AN_MULHI_U32
#define AN_MULHI_U32(a, b) __umulhi(a, b)
#endif
#ifndef AN_RINT
#define AN_RINT(x) rintf(x)
#endif
#ifndef AN_SQRT
#define AN_SQRT(x) __fsqrt_rn(x)
#endif
#ifndef AN_DIV
#define AN_DIV(a, b) __fdiv_rn(a, b)
#endif
#endif

#ifndef AN_FN
#define AN_FN static inline
#endif
#ifndef AN_FMA
#define AN_FMA(a, b, c) __builtin_fmaf(a, b, c)
#endif
#ifndef AN_MULHI_U32
#define AN_MULHI_U32(a, b) ((an_u32)(((unsigned long long)(a) * (b)) >> 32))
#endif
#ifndef AN_RINT /* to nearest, ties to even */
#define AN_RINT(x) __builtin_rintf(x)
#endif
#ifndef AN_SQRT /* correctly rounded */
#define AN_SQRT(x) __builtin_sqrtf(x)
#endif
#ifndef AN_DIV /* correctly rounded */
#define AN_DIV(a, b) ((a) / (b))
#endif
#ifndef AN_SEL
#define AN_SEL(c, a, b) ((c) ? (a) : (b))
#endif

typedef unsigned int an_u32;

#ifndef AN_F2U
AN_FN an_u32 an_f32_as_u32(float x)
{
    an_u32 u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}
AN_FN float an_u32_as_f32(an_u32 u)
{
    float x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}
#define AN_F2U(x) an_f32_as_u32(x)
#define AN_U2F(u) an_u32_as_f32(u)
#endif

#ifndef AN_KEEPS_SUBNORMALS
#ifdef AN_EXACT_DEVICE
#define AN_KEEPS_SUBNORMALS 0
#else
#define AN_KEEPS_SUBNORMALS 1
#endif
#endif

#define AN_SIGN_BIT  0x80000000u
#define AN_EXACT_INF AN_U2F(0x7f800000u)
#define AN_EXACT_NAN AN_U2F(0x7fc00000u)
#define AN_TINY      1.17549435e-38f /* 2^-126, the smallest normal number */

/* ---- pieces ---- */

/* 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits of the sum; subtracting it gives that
 * integer as a float. Good for |x| < 2^22. */
#define AN_ROUNDER 12582912.0f
#define AN_LOG2E   1.44269502f
#define AN_LN2     0.693147182f
#define AN_LN2_LO  1.90465432e-9f /* AN_LN2 - ln 2 */

AN_FN float an_abs_(float x)
{
    return AN_U2F(AN_F2U(x) & 0x7fffffffu);
}
AN_FN float an_signed_zero_(float x)
{
    return AN_U2F(AN_F2U(x) & AN_SIGN_BIT);
}
/* |y| with the sign of x, for y >= 0 */
AN_FN float an_with_sign_(float y, float x)
{
    return AN_U2F(AN_F2U(y) | (AN_F2U(x) & AN_SIGN_BIT));
}
/* Whether x counts as zero. A processor that flushes compares a subnormal number as one. */
AN_FN int an_is_zero_(float x)
{
#if AN_KEEPS_SUBNORMALS
    return x == 0.0f;
#else
    return an_abs_(x) < AN_TINY;
#endif
}
/* What a function with f(x) = x near 0 gives there. */
AN_FN float an_flush_small_(float y, float x)
{
    return an_is_zero_(x) ? an_signed_zero_(x) : y;
}

/* y where x is positive, `zero` where it counts as zero, else NaN. */
AN_FN float an_of_positive_(float x, float y, float zero)
{
    return an_is_zero_(x) ? zero : x > 0.0f ? y : AN_EXACT_NAN;
}

#define AN_EXP_Q4 0.00138706516f /* of q below, the coefficient of r^4 */
#define AN_EXP_Q3 0.00836625881f
#define AN_EXP_Q2 0.0416674353f
#define AN_EXP_Q1 0.166665465f
#define AN_EXP_Q0 0.49999997f

/* e^r = 1 + r + r^2 q(r) for |r| <= ln(2)/2; this is q, to 2^-26 of e^r - 1. */
AN_FN float an_exp_q_(float r)
{
    float q = AN_EXP_Q4;
    q = AN_FMA(q, r, AN_EXP_Q3);
    q = AN_FMA(q, r, AN_EXP_Q2);
    q = AN_FMA(q, r, AN_EXP_Q1);
    return AN_FMA(q, r, AN_EXP_Q0);
}

/* 2^n e^r, with the integer n in the low bits of t (see AN_ROUNDER), where the result is normal. */
AN_FN float an_exp_scaled_(float t, float r)
{
    float p = AN_FMA(an_exp_q_(r), r, 1.0f);
    p = AN_FMA(p, r, 1.0f);
    return AN_U2F(AN_F2U(p) + (AN_F2U(t) << 23));
}

/* What an_exp_scaled_ gave, where the result is subnormal (n >= -150) and the exponent ran over: 2^64 times as much, and one rounding. */
AN_FN float an_tiny_(float y)
{
#if AN_KEEPS_SUBNORMALS
    return AN_U2F(AN_F2U(y) + 0x20000000u) * 5.42101086e-20f;
#else
    (void)y;
    return 0.0f;
#endif
}

/* Keeps an_tiny_'s exponent within its range. */
AN_FN float an_at_least_(float x, float least)
{
#if AN_KEEPS_SUBNORMALS
    return x > least ? x : least;
#else
    (void)least;
    return x;
#endif
}

/* x for a logarithm: a subnormal one times 2^24, and what that adds to the exponent. */
AN_FN float an_normal_(float x)
{
#if AN_KEEPS_SUBNORMALS
    return x < AN_TINY ? x * 16777216.0f : x;
#else
    return x;
#endif
}
AN_FN float an_normal_exponent_(float k, float x)
{
#if AN_KEEPS_SUBNORMALS
    return x < AN_TINY ? k - 24.0f : k;
#else
    (void)x;
    return k;
#endif
}

/* log(2^k (1 + f)) for -0.25 <= f < 0.5 */
AN_FN float an_log_(float f, float k)
{
    float q = -0.0451120548f;
    q = AN_FMA(q, f, 0.104688786f);
    q = AN_FMA(q, f, -0.131638736f);
    q = AN_FMA(q, f, 0.144783214f);
    q = AN_FMA(q, f, -0.166469991f);
    q = AN_FMA(q, f, 0.199908197f);
    q = AN_FMA(q, f, -0.250001043f);
    q = AN_FMA(q, f, 0.333334506f);
    q = AN_FMA(q, f, -0.5f);
    q = AN_FMA(f * f, q, f);
    return AN_FMA(k, AN_LN2, q);
}

/* 1/d for 1 <= d <= 2, within 0.7 ulp, exact at both ends: a cubic of 2^-9 and one step of third order. */
AN_FN float an_recip_1_2_(float d)
{
    float r = -0.221833423f;
    r = AN_FMA(r, d, 1.33100605f);
    r = AN_FMA(r, d, -2.93931723f);
    r = AN_FMA(r, d, 2.82841134f);
    float e = AN_FMA(-d, r, 1.0f);
    return AN_FMA(r, AN_FMA(e, e, e), r);
}

/* ---- exponentials and logarithms ---- */

/* 0.92 ulp; inf above 88.7228317 */
AN_FN float an_exp(float x)
{
    float a = an_at_least_(x, -104.0f); /* there e^x has become 0 */
    float t = AN_FMA(a, AN_LOG2E, AN_ROUNDER);
    float n = t - AN_ROUNDER;
    float r = AN_FMA(n, -AN_LN2, a);
    r = AN_FMA(n, AN_LN2_LO, r);
    float y = an_exp_scaled_(t, r);
    y = x > 88.7228317f ? AN_EXACT_INF : y;
    y = x < -87.3365402f ? an_tiny_(y) : y;
    return x == x ? y : AN_EXACT_NAN;
}

/* 0.91 ulp; inf from 128 */
AN_FN float an_exp2(float x)
{
    float a = an_at_least_(x, -150.0f); /* there 2^x has become 0 */
    float t = a + AN_ROUNDER;
    float n = t - AN_ROUNDER;
    float y = an_exp_scaled_(t, (a - n) * AN_LN2);
    y = x >= 128.0f ? AN_EXACT_INF : y;
    y = x < -126.0f ? an_tiny_(y) : y;
    return x == x ? y : AN_EXACT_NAN;
}

/* 1.53 ulp. e^r - 1 = p; e^x - 1 = 2^n p + (2^n - 1), by way of 2^(n-1), which does not overflow. */
AN_FN float an_expm1(float x)
{
    float a = x < -18.0f ? -18.0f : x; /* there e^x - 1 has become -1 */
    float t = AN_FMA(a, AN_LOG2E, AN_ROUNDER);
    float n = t - AN_ROUNDER;
    float r = AN_FMA(n, -AN_LN2, a);
    r = AN_FMA(n, AN_LN2_LO, r);
    float p = AN_FMA(r * r, an_exp_q_(r), r);
    float half_scale = AN_U2F(0x3f000000u + (AN_F2U(t) << 23));
    float y = AN_FMA(p, half_scale, half_scale - 0.5f);
    y = n == 0.0f ? p : y + y;
    y = x > 88.7228317f ? AN_EXACT_INF : y;
    y = an_flush_small_(y, x);
    return x == x ? y : AN_EXACT_NAN;
}

/* 0.93 ulp */
AN_FN float an_log(float x)
{
    an_u32 u = AN_F2U(an_normal_(x));
    an_u32 e = (u - 0x3f400000u) & 0xff800000u; /* x = 2^k m, 0.75 <= m < 1.5, k in the place of the exponent */
    float k = an_normal_exponent_((float)(int)e * 1.1920929e-7f, x);
    float y = an_log_(AN_U2F(u - e) - 1.0f, k);
    y = x == AN_EXACT_INF ? x : y;
    return an_of_positive_(x, y, -AN_EXACT_INF);
}

/* 1.76 ulp: the logarithm times a constant, one rounding more */
AN_FN float an_log2(float x)
{
    an_u32 u = AN_F2U(an_normal_(x));
    an_u32 e = (u - 0x3f400000u) & 0xff800000u;
    float k = an_normal_exponent_((float)(int)e * 1.1920929e-7f, x);
    float y = AN_FMA(an_log_(AN_U2F(u - e) - 1.0f, 0.0f), AN_LOG2E, k);
    y = x == AN_EXACT_INF ? x : y;
    return an_of_positive_(x, y, -AN_EXACT_INF);
}

/* 0.93 ulp. k from the rounded 1 + x, but f = 2^-k x + (2^-k - 1) from x itself: one rounding */
AN_FN float an_log1p(float x)
{
    an_u32 e = (AN_F2U(1.0f + x) - 0x3f400000u) & 0xff800000u;
    float f = AN_U2F(AN_F2U(x) - e) + AN_FMA(0.25f, AN_U2F(0x40800000u - e), -1.0f);
    float y = an_log_(f, (float)(int)e * 1.1920929e-7f);
    y = x == AN_EXACT_INF ? x : y;
    y = an_flush_small_(y, x);
    return x > -1.0f ? y : x == -1.0f ? -AN_EXACT_INF : AN_EXACT_NAN;
}

/* 3.1 ulp (a million random pairs with normal results). x^y with C's special cases; log |x| in two floats. */
AN_FN float an_pow(float x, float y)
{
    float a = an_abs_(x), b = an_abs_(y);
    an_u32 u = AN_F2U(an_normal_(a));
    an_u32 e = (u - 0x3f3504f3u) & 0xff800000u; /* |x| = 2^k m, sqrt(1/2) <= m < sqrt(2) */
    float k = an_normal_exponent_((float)(int)e * 1.1920929e-7f, a);
    float m = AN_U2F(u - e);

    /* log m = 2 (s + s_lo) + s^3 a(s^2), s = (m-1)/(m+1) */
    float d = m + 1.0f, d_lo = m - (d - 1.0f);
    float r = AN_U2F(0x7ef311c7u - AN_F2U(d));
    float c = AN_FMA(-d, r, 1.0f);
    r = AN_FMA(r, AN_FMA(c, c, c), r);
    c = AN_FMA(-d, r, 1.0f);
    r = AN_FMA(r, AN_FMA(c, c, c), r);
    float f = m - 1.0f;
    float s = f * r;
    float rest = AN_FMA(-s, d, f);
    float s_lo = AN_FMA(-s, d_lo, rest) * r;
    float z = s * s;
    float p = AN_FMA(0.24151592f, z, 0.285035163f);
    p = AN_FMA(p, z, 0.400009334f);
    p = AN_FMA(p, z, 0.666666627f);
    float lo = AN_FMA(s * z, p, 2.0f * s_lo);

    /* log |x| = hi + lo; k * 0.693145752 is exact */
    float s2 = 2.0f * s;
    float sum = AN_FMA(k, 0.693145752f, s2);
    lo = AN_FMA(k, 1.42860677e-6f, lo) + (s2 + AN_FMA(k, 0.693145752f, -sum));
    float hi = sum + lo;
    lo = lo - (hi - sum);
    hi = an_is_zero_(a) ? -AN_EXACT_INF : a == AN_EXACT_INF ? AN_EXACT_INF : hi;

    /* e^(y log |x|) */
    float w = y * hi;
    float w_lo = AN_FMA(y, lo, AN_FMA(y, hi, -w));
    float t = AN_FMA(w, AN_LOG2E, AN_ROUNDER);
    float n = t - AN_ROUNDER;
    float g = AN_FMA(n, -AN_LN2, w) + AN_FMA(n, AN_LN2_LO, w_lo);
    float v = an_exp_scaled_(t, g);
    int bits = (int)AN_F2U(v); /* beyond the largest and below the smallest normal number the exponent has run over */
    float below = w < -104.0f ? 0.0f : an_tiny_(v);
    v = bits >= 0x7f800000 ? AN_EXACT_INF : v;
    v = bits < 0x00800000 ? below : v;
    v = w > 89.0f ? AN_EXACT_INF : w < -88.0f ? below : v;
    v = a == 1.0f ? 1.0f : v;

    /* the sign, for x < 0: y beyond 2^24 is an even integer */
    float y_small = b < 16777216.0f ? y : 0.0f;
    int i = (int)y_small;
    float whole = (float)i - y_small; /* 0 when y is an integer */
    v = AN_U2F(AN_F2U(v) | (whole == 0.0f ? AN_F2U(x) & ((an_u32)i << 31) : 0u));
    float of_fraction = x >= 0.0f || an_is_zero_(x) || a == AN_EXACT_INF ? v : AN_EXACT_NAN;
    v = whole == 0.0f ? v : of_fraction;
    v = x == x ? v : AN_EXACT_NAN;
    v = y == y ? v : AN_EXACT_NAN;
    v = x == 1.0f ? 1.0f : v;
    return an_is_zero_(y) ? 1.0f : v;
}

/* ---- sigmoids and the error function ---- */

/* 1.49 ulp. Below 0.55 an odd polynomial, above 1 - 2E/(1+E) with E = e^(-2|x|), 1 from 9.02. */
AN_FN float an_tanh(float x)
{
    float a = an_abs_(x);
    float z = a * a;
    float p = -0.00624614116f;
    p = AN_FMA(p, z, 0.0210525393f);
    p = AN_FMA(p, z, -0.0538478568f);
    p = AN_FMA(p, z, 0.133325458f);
    p = AN_FMA(p, z, -0.333333164f);
    p = AN_FMA(p * z, a, a);

    float t = AN_FMA(a, -2.0f * AN_LOG2E, AN_ROUNDER);
    float n = t - AN_ROUNDER;
    float e = an_exp_scaled_(t, AN_FMA(n, -AN_LN2, -2.0f * a));
    float y = AN_FMA(-2.0f * e, an_recip_1_2_(1.0f + e), 1.0f);

    y = a < 0.55f ? p : y;
    y = a < 9.02f ? y : 1.0f;
    y = an_flush_small_(an_with_sign_(y, x), x);
    return x == x ? y : AN_EXACT_NAN;
}

/* 2.78 ulp; 0 where e^-x is infinite, as of 1 / (1 + e^-x) */
AN_FN float an_sigmoid(float x)
{
    float a = an_abs_(x);
    float t = AN_FMA(a, -AN_LOG2E, AN_ROUNDER);
    float n = t - AN_ROUNDER;
    float r = AN_FMA(n, -AN_LN2, -a);
    r = AN_FMA(n, AN_LN2_LO, r);
    float e = an_exp_scaled_(t, r); /* e^-|x| */
    e = a > 87.3365402f ? an_tiny_(e) : e;
    e = a > 88.7228317f ? 0.0f : e;
    float y = an_recip_1_2_(1.0f + e);
    y = x < 0.0f ? e * y : y;
    return x == x ? y : AN_EXACT_NAN;
}

/* 1.19 ulp. Below 0.9375 an odd polynomial, above 1 - e^-q(x) with q = -log erfc, 1 from 3.92. */
AN_FN float an_erf(float x)
{
    float a = an_abs_(x);
    float z = a * a;
    float p = -0.000594680547f;
    p = AN_FMA(p, z, 0.00498529803f);
    p = AN_FMA(p, z, -0.0267619509f);
    p = AN_FMA(p, z, 0.112817161f);
    p = AN_FMA(p, z, -0.376124889f);
    p = AN_FMA(p, z, 0.128379151f);
    p = AN_FMA(p, a, a);

    float q = -0.00019380865f;
    q = AN_FMA(q, a, 0.00302246516f);
    q = AN_FMA(q, a, -0.0221447404f);
    q = AN_FMA(q, a, 0.103762299f);
    q = AN_FMA(q, a, 0.637373745f);
    q = AN_FMA(q, a, 1.12756276f);
    q = AN_FMA(q, a, 0.000222781469f);
    float t = AN_FMA(q, -AN_LOG2E, AN_ROUNDER);
    float n = t - AN_ROUNDER;
    float y = 1.0f - an_exp_scaled_(t, AN_FMA(n, -AN_LN2, -q));

    y = a < 0.9375f ? p : y;
    y = a < 3.92f ? y : 1.0f;
    y = an_flush_small_(an_with_sign_(y, x), x);
    return x == x ? y : AN_EXACT_NAN;
}

/* ---- sine (1.67 ulp) and cosine (1.81 ulp) ----
 * x = n pi/2 + r with |r| <= 0.81: sin x is sin r, cos r, -sin r or -cos r as n % 4 is 0, 1, 2 or 3. */

/* Bits 13 - 32 i to 44 - 32 i behind the point of 2/pi, as word i: the string of bits begins with 13 zeros. */
#define AN_2_PI_0 0x000517ccu
#define AN_2_PI_1 0x1b727220u
#define AN_2_PI_2 0xa94fe13au
#define AN_2_PI_3 0xbe8fa9a6u
#define AN_2_PI_4 0xee06db14u
#define AN_2_PI_5 0xacc9e21cu
#define AN_2_PI_6 0x820ff28bu

/* One of four words by two bits of a number. */
AN_FN an_u32 an_pick4_(an_u32 i, an_u32 a, an_u32 b, an_u32 c, an_u32 d)
{
    an_u32 low = (i & 1u) != 0u ? b : a, high = (i & 1u) != 0u ? d : c;
    return (i & 2u) != 0u ? high : low;
}

/* n (modulo 4) and r for 2^20 < x < infinity, by Payne and Hanek's method: x is an integer M < 2^32 times 2^(s - 11), and
 * M 2^(s - 11) 2/pi is wanted modulo 4 with 62 bits behind the point. So only 96 bits of 2/pi matter, which begin at bit s
 * of the string above:
 *
 *     string   000...0 1010001011111001100000110110111001001110010001...
 *                 |<- s ->|<------- w0 ------>|<------ w1 ----->|<------ w2 ----->|
 *     M (w0 w1 w2) modulo 2^96, upper 64 bits   =   p0 p1   =   n (2 bits) . fraction (62 bits)
 *
 * The error is below 2^-61 quarter turns, and no f32 is nearer to a multiple of a quarter turn than 2^-31. The fraction,
 * between -1/2 and 1/2, becomes two floats (24 + 24 + 13 bits, each part exact), and r their product with pi/2. */
#ifdef AN_EXACT_DEVICE /* a GPU jumps over what no lane needs; a vectorised loop always computes it, and inlines it */
#define AN_RARELY_(condition) if (condition)
#define AN_FN_LARGE_          AN_FN
#else
#define AN_RARELY_(condition)
#define AN_FN_LARGE_ AN_FN __attribute__((always_inline))
#endif
struct an_angle_ {
    float r;
    an_u32 n;
};
AN_FN_LARGE_ struct an_angle_ an_reduce_large_(float x)
{
    struct an_angle_ of;
    an_u32 u = AN_F2U(x), m = (u << 8) | AN_SIGN_BIT, s = (u >> 23) - 147u;
    an_u32 word = s >> 5, bit = s & 31u;
    an_u32 a = an_pick4_(word, AN_2_PI_0, AN_2_PI_1, AN_2_PI_2, AN_2_PI_3);
    an_u32 b = an_pick4_(word, AN_2_PI_1, AN_2_PI_2, AN_2_PI_3, AN_2_PI_4);
    an_u32 c = an_pick4_(word, AN_2_PI_2, AN_2_PI_3, AN_2_PI_4, AN_2_PI_5);
    an_u32 d = an_pick4_(word, AN_2_PI_3, AN_2_PI_4, AN_2_PI_5, AN_2_PI_6);
    an_u32 w0 = (a << bit) | ((b >> 1) >> (31u - bit));
    an_u32 w1 = (b << bit) | ((c >> 1) >> (31u - bit));
    an_u32 w2 = (c << bit) | ((d >> 1) >> (31u - bit));
    an_u32 low = m * w1, p1 = low + AN_MULHI_U32(m, w2);
    an_u32 p0 = m * w0 + AN_MULHI_U32(m, w1) + (p1 < low ? 1u : 0u);
    of.n = (p0 + 0x20000000u) >> 30;
    p0 -= of.n << 30;
    an_u32 sign = p0 & AN_SIGN_BIT, flip = sign != 0u ? 0xffffffffu : 0u;
    p0 ^= flip, p1 ^= flip;                            /* the complement is 2^-62 off the negative */
    float f0 = (float)(int)(p0 >> 5) * 2.98023224e-8f; /* 2^-25 */
    float f1 = (float)(int)(((p0 & 31u) << 19) | (p1 >> 13)) * 1.77635684e-15f; /* 2^-49 */
    float f2 = (float)(int)(p1 & 0x1fffu) * 2.16840434e-19f;                    /* 2^-62 */
    float hi = f0 + f1, lo = (f1 - (hi - f0)) + f2;
    float r = hi * 1.57079637f;
    float e = AN_FMA(hi, 1.57079637f, -r);
    e = AN_FMA(hi, -4.37113883e-8f, e);
    r = r + AN_FMA(lo, 1.57079637f, e);
    of.r = AN_U2F(AN_F2U(r) ^ sign);
    return of;
}

/* x = n pi/2 + r for |x| <= 2^20, with pi/2 in three floats. */
AN_FN struct an_angle_ an_reduce_(float x)
{
    struct an_angle_ of;
    float t = AN_FMA(x, 0.636619747f, AN_ROUNDER);
    float n = t - AN_ROUNDER;
    float r = AN_FMA(n, -1.57079637f, x); /* exact: a multiple of 2^-23 below 1, or n is 0 */
    r = AN_FMA(n, 4.37113883e-8f, r);
    of.r = AN_FMA(n, 1.71512489e-15f, r);
    of.n = AN_F2U(t);
    return of;
}

/* sin(n pi/2 + r) */
AN_FN float an_sin_of_(float r, an_u32 n)
{
    float z = r * r;
    float s = AN_FMA(-0.000194945838f, z, 0.00833200943f);
    s = AN_FMA(s, z, -0.166666523f);
    s = AN_FMA(r * z, s, r);
    float c = AN_FMA(2.44100593e-05f, z, -0.00138871197f);
    c = AN_FMA(c, z, 0.0416666418f);
    c = AN_FMA(z * z, c, AN_FMA(z, -0.5f, 1.0f));
    float y = (n & 1u) != 0u ? c : s;
    return AN_U2F(AN_F2U(y) ^ ((n & 2u) << 30));
}

/* quarter 0: sine, 1: cosine. */
AN_FN_LARGE_ float an_sin_or_cos_(float x, an_u32 quarter)
{
    float size = an_abs_(x);
    an_u32 sign = AN_F2U(x) & AN_SIGN_BIT;
    struct an_angle_ small = an_reduce_(x), large = {0.0f, 0u};
    AN_RARELY_(size > 1048576.0f)
    large = an_reduce_large_(size); /* of |x|: n and r change sign with x */
    an_u32 large_n = sign != 0u ? 0u - large.n : large.n;
    float r = size <= 1048576.0f ? small.r : AN_U2F(AN_F2U(large.r) ^ sign);
    float y = an_sin_of_(r, (size <= 1048576.0f ? small.n : large_n) + quarter);
    return size < AN_EXACT_INF ? y : AN_EXACT_NAN;
}

/* an_cos for |x| <= 2^20, a fifth of its work. */
AN_FN float an_cos_moderate(float x)
{
    struct an_angle_ of = an_reduce_(x);
    return an_sin_of_(of.r, of.n + 1u);
}

AN_FN float an_sin(float x)
{
    return an_flush_small_(an_sin_or_cos_(x, 0u), x);
}
AN_FN float an_cos(float x)
{
    return an_sin_or_cos_(x, 1u);
}

/* ---- the angle of a point ---- */

/* The angle of (x, y), in (-pi, pi]: 2.17 ulp. Of |y| and |x| the smaller over the larger is t <= 1; atan t is pi/4 +
 * atan((t - 1)/(t + 1)) above tan(pi/8), so that one odd polynomial on |r| <= tan(pi/8) is enough. The octants only
 * count quarters of pi: the angle is k pi/4 + s r. Zeros, infinities and their signs as in C's atan2. */
AN_FN float an_atan2(float y, float x)
{
    float a = an_abs_(y), b = an_abs_(x);
    a = an_is_zero_(a) ? 0.0f : a;
    b = an_is_zero_(b) ? 0.0f : b;
    float low = a < b ? a : b, high = a < b ? b : a;
    low = high == AN_EXACT_INF ? (low == AN_EXACT_INF ? 1.0f : 0.0f) : low; /* infinity is as large as infinity */
    high = high == AN_EXACT_INF ? 1.0f : high;
    /* Neither the sum overflows nor is the difference subnormal. */
    float scale = high > 4.25352958651173079e+37f   ? 0.25f
                  : high < 8.67361737988403547e-19f ? 1.8446744073709552e+19f
                                                    : 1.0f;
    low = low * scale;
    high = high * scale;
    high = high == 0.0f ? 1.0f : high;
    int octant = low > 0.414213562f * high;
    float r = AN_DIV(octant ? low - high : low, octant ? low + high : high);

    float z = r * r;
    float p = -0.0609004684f;
    p = AN_FMA(p, z, 0.105991676f);
    p = AN_FMA(p, z, -0.14244391f);
    p = AN_FMA(p, z, 0.199985281f);
    p = AN_FMA(p, z, -0.333333164f);
    r = AN_FMA(r * z, p, r);

    float k = octant ? 1.0f : 0.0f;
    k = a > b ? 2.0f - k : k;
    r = a > b ? -r : r;
    int left = (AN_F2U(x) & AN_SIGN_BIT) != 0u;
    k = left ? 4.0f - k : k;
    r = left ? -r : r;
    float v = AN_FMA(k, 0.785398185f, AN_FMA(k, -2.18556941e-08f, r)); /* pi/4 in two parts */
    v = an_with_sign_(an_flush_small_(v, v), y);
    v = x == x ? v : AN_EXACT_NAN;
    return y == y ? v : AN_EXACT_NAN;
}

/* ---- roots, rounding, minimum and maximum ---- */

/* correctly rounded */
AN_FN float an_sqrt(float x)
{
    float y = AN_SQRT(x);
    return an_of_positive_(x, y, an_signed_zero_(x));
}

/* 1.49 ulp: 1 / sqrt(x), each correctly rounded; inf with the sign of x at zeros */
AN_FN float an_rsqrt(float x)
{
    float y = AN_DIV(1.0f, AN_SQRT(x));
    return an_of_positive_(x, y, an_with_sign_(AN_EXACT_INF, x));
}

AN_FN float an_rint(float x)
{
    float y = AN_RINT(x);
    return x == x ? y : AN_EXACT_NAN;
}

AN_FN float an_floor(float x)
{
    float a = an_flush_small_(x, x);
    float y = AN_RINT(a);
    y = y > a ? y - 1.0f : y;
    return x == x ? y : AN_EXACT_NAN;
}

/* NaN wins; of equals (zeros of both signs) the second is returned. */
AN_FN float an_max(float a, float b)
{
    float y = a > b ? a : b;
    return a == a ? y : a;
}
AN_FN float an_min(float a, float b)
{
    float y = a < b ? a : b;
    return a == a ? y : a;
}

/* ---- storage types: a 16-bit pattern in the low half of a word; round to nearest even, NaN stays NaN and becomes
 * quiet ---- */

/* Subnormal numbers become zeros, as in the processors' own instruction (vcvtneps2bf16). */
AN_FN an_u32 an_f32_to_bf16(float x)
{
    an_u32 u = AN_F2U(x);
    an_u32 size = u & 0x7fffffffu;
    an_u32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    rounded = size < 0x00800000u ? (u & AN_SIGN_BIT) >> 16 : rounded;
    return size > 0x7f800000u ? (u >> 16) | 0x40u : rounded;
}
AN_FN float an_bf16_to_f32(an_u32 bits)
{
    return AN_U2F(bits << 16);
}

/* x as one of its two neighbours in bf16 (a f32 whose low half is zero): away from zero where u in [0,1) is less than the share of the way
 * that x has gone there, in steps of 2^-16, so that the mean over all u is x. A u elsewhere counts as 0, and a u of 0 truncates. */
AN_FN float an_round_bf16(float x, float u)
{
    an_u32 bits = AN_F2U(x);
    an_u32 size = bits & 0x7fffffffu;
    float inside = u >= 0.0f && u < 1.0f ? u : 0.0f;
    an_u32 rounded = (bits + (an_u32)(int)(inside * 65536.0f)) & 0xffff0000u;
    rounded = size < 0x00800000u ? bits & AN_SIGN_BIT : rounded;
    rounded = size >= 0x7f800000u ? bits : rounded;
    return size > 0x7f800000u ? AN_EXACT_NAN : AN_U2F(rounded);
}

/* f16's subnormals are normal numbers of f32 and are kept: adding 0.5 rounds to multiples of 2^-24. */
AN_FN an_u32 an_f32_to_f16(float x)
{
    an_u32 u = AN_F2U(x);
    an_u32 size = u & 0x7fffffffu;
    an_u32 normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
    an_u32 small = AN_F2U(AN_U2F(size) + 0.5f) - 0x3f000000u;
    an_u32 bits = size < 0x38800000u ? small : normal; /* 2^-14 */
    bits = size >= 0x477ff000u ? 0x7c00u : bits;       /* 65520 */
    bits = size > 0x7f800000u ? 0x7e00u | ((size >> 13) & 0x1ffu) : bits;
    return bits | ((u & AN_SIGN_BIT) >> 16);
}
AN_FN float an_f16_to_f32(an_u32 bits)
{
    an_u32 size = (bits & 0x7fffu) << 13;
    an_u32 normal = size + 0x38000000u;
    an_u32 small = AN_F2U((float)(int)(bits & 0x3ffu) * 5.9604645e-8f); /* 2^-24 */
    an_u32 u = size < 0x00800000u ? small : normal;
    u = size >= 0x0f800000u ? size | 0x7f800000u : u; /* infinity and NaN */
    u = size > 0x0f800000u ? u | 0x00400000u : u;
    return AN_U2F(u | ((bits & 0x8000u) << 16));
}

/* ---- random words: see base/rng.h ---- */

#define AN_PHILOX_ROUND_                                                                                               \
    {                                                                                                                  \
        an_u32 high = AN_MULHI_U32(0xd256d193u, a);                                                                    \
        an_u32 low = 0xd256d193u * a;                                                                                  \
        a = high ^ key ^ b;                                                                                            \
        b = low;                                                                                                       \
        key += 0x9e3779b9u;                                                                                            \
    }

/* Philox2x32 with 7 rounds: word 0 for the counter (lo, stream ^ hi * 0x9e3779b9). */
AN_FN an_u32 an_philox(an_u32 key, an_u32 stream, an_u32 lo, an_u32 hi)
{
    an_u32 a = lo, b = stream ^ (hi * 0x9e3779b9u);
    AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_
        AN_PHILOX_ROUND_ return a;
}

/* [0, 1) from a random word */
AN_FN float an_word_uniform(an_u32 word)
{
    return (float)(int)(word >> 8) * 5.9604645e-8f;
}
AN_FN float an_philox_uniform(an_u32 key, an_u32 stream, an_u32 lo, an_u32 hi)
{
    return an_word_uniform(an_philox(key, stream, lo, hi));
}

/* ---- the reduction tree over a row, on the host; kernels spell it with their own lanes ----
 * 32 virtual lanes. Lane l starts from 0 (maximum: -inf) and takes elements l, l+32, l+64, ... in order; then lanes
 * fold: 16, 8, 4, 2, 1. The number of real lanes and threads does not show. */
#ifndef AN_EXACT_DEVICE
AN_FN float an_tree_sum32(const float *lanes)
{
    float a[32];
    for (int l = 0; l < 32; l++) a[l] = lanes[l];
    for (int s = 16; s > 0; s >>= 1)
        for (int l = 0; l < s; l++) a[l] += a[l + s];
    return a[0];
}
AN_FN float an_tree_max32(const float *lanes)
{
    float a[32];
    for (int l = 0; l < 32; l++) a[l] = lanes[l];
    for (int s = 16; s > 0; s >>= 1)
        for (int l = 0; l < s; l++) a[l] = an_max(a[l], a[l + s]);
    return a[0];
}
AN_FN float an_sum_r(const float *x, long long n)
{
    float lanes[32] = {0};
    for (long long i = 0; i < n; i++) lanes[i % 32] += x[i];
    return an_tree_sum32(lanes);
}
AN_FN float an_max_r(const float *x, long long n)
{
    float lanes[32];
    for (int l = 0; l < 32; l++) lanes[l] = -AN_EXACT_INF;
    for (long long i = 0; i < n; i++) lanes[i % 32] = an_max(lanes[i % 32], x[i]);
    return an_tree_max32(lanes);
}
#endif

#endif
