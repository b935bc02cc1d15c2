/* loops_gpu.h: what rendered loop kernels in CUDA and MSL need, after the dialect and base/exact.h: the counterpart of loops_c.h.
 *
 * Owns:      parameter macros, integer arithmetic that never traps, conversions, random numbers at an index, reductions over a subgroup or
 *            block, vector accesses and rows in shared memory (CUDA), fast approximations (CUDA, not exact).
 * Does not:  know a kernel. float64 exists on CUDA only; the renderer refuses it for MSL.
 * Invariant: the bits of loops_c.h. A subgroup's lanes are the 32 virtual lanes of base/exact.h's tree: lane l is combined with l ^ 16, then
 *            l ^ 8, ... */
typedef unsigned char an_u8;

/* Parameters. Unlike AN_IN and AN_OUT they may alias, since an elementwise result may be computed in place of its operand.
 * AN_LOOP_CONST (CUDA) aliases no output, so its loads may be hoisted above stores: a gain or bias. */
#ifdef __METAL_VERSION__
#define AN_LOOP_IN(i, type, name)  device const type *name [[buffer(i)]]
#define AN_LOOP_OUT(i, type, name) device type *name [[buffer(i)]]
#else
#define AN_LOOP_IN(i, type, name)  const type *name
#define AN_LOOP_OUT(i, type, name) type *name
#ifdef AN_FOLLOW
#define AN_LOOP_CONST(i, type, name) const type *name
#else
#define AN_LOOP_CONST(i, type, name) const type *__restrict__ name
#endif
#endif

#define AN_INT_MIN  (-2147483647 - 1)
#define AN_INT_MAX  2147483647
#define AN_LONG_MAX ((an_i64)(~(an_u64)0 >> 1))
#define AN_LONG_MIN (-AN_LONG_MAX - 1)

/* ---- integer overloads of exact.h's functions */
AN_FN int an_max(int a, int b) { return a > b ? a : b; }
AN_FN int an_min(int a, int b) { return a < b ? a : b; }
AN_FN an_i64 an_max(an_i64 a, an_i64 b) { return a > b ? a : b; }
AN_FN an_i64 an_min(an_i64 a, an_i64 b) { return a < b ? a : b; }
AN_FN int an_isfinite(float a) { return (AN_F2U(a) & 0x7f800000u) != 0x7f800000u; }
/* toward minus infinity; 0 for a zero divisor, and no overflow for the least number / -1 */
AN_FN int an_idiv(int a, int b)
{
    if (b == 0) return 0;
    if (b == -1) return (int)(0u - (an_u32)a);
    return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
AN_FN an_i64 an_idiv(an_i64 a, an_i64 b)
{
    if (b == 0) return 0;
    if (b == -1) return (an_i64)((an_u64)0 - (an_u64)a);
    return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
AN_FN int an_imod(int a, int b)
{
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r + ((r != 0 && (r < 0) != (b < 0)) ? b : 0);
}
AN_FN an_i64 an_imod(an_i64 a, an_i64 b)
{
    if (b == 0 || b == -1) return 0;
    an_i64 r = a % b;
    return r + ((r != 0 && (r < 0) != (b < 0)) ? b : 0);
}

#ifndef __METAL_VERSION__
/* Conversion instructions with the results of exact.h's integer operations. */
#define an_f32_to_bf16(x) an_bf16_bits(x)
#define an_f32_to_f16(x)  an_f16_bits(x)
#define an_f16_to_f32(x)  an_f16_value(x)

/* Vector loads and stores of n neighbours, in 16-byte accesses where the address is aligned; AN_ALIGNED: all are. */
#ifndef AN_ALIGNED
#define AN_ALIGNED 0
#endif
template <class T, int n> struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) an_pack {
    T x[n];
};
template <class T, int n> AN_FN void an_wide_load(T (&x)[n], const T *p)
{
    if (AN_ALIGNED || (an_u64)p % alignof(an_pack<T, n>) == 0) {
        an_pack<T, n> w = *(const an_pack<T, n> *)p;
        AN_UNROLL for (int i = 0; i < n; i++) x[i] = w.x[i];
    } else {
        AN_UNROLL for (int i = 0; i < n; i++) x[i] = p[i];
    }
}
template <class T, int n> AN_FN void an_wide_store(T *p, const T (&x)[n])
{
    if (AN_ALIGNED || (an_u64)p % alignof(an_pack<T, n>) == 0) {
        an_pack<T, n> w;
        AN_UNROLL for (int i = 0; i < n; i++) w.x[i] = x[i];
        *(an_pack<T, n> *)p = w;
    } else {
        AN_UNROLL for (int i = 0; i < n; i++) p[i] = x[i];
    }
}
/* The same at the end of a row, of which `left` columns are left: what is beyond is 0, and is not stored. */
template <class T, int n> AN_FN void an_wide_load(T (&x)[n], const T *p, int left)
{
    if (left >= n) {
        an_wide_load(x, p);
    } else {
        AN_UNROLL for (int i = 0; i < n; i++) x[i] = i < left ? p[i] : (T)0;
    }
}
template <class T, int n> AN_FN void an_wide_store(T *p, const T (&x)[n], int left)
{
    if (left >= n) {
        an_wide_store(p, x);
    } else {
        AN_UNROLL for (int i = 0; i < n; i++)
            if (i < left) p[i] = x[i];
    }
}
#endif

/* The remainder with the sign of a, exact: eight digits of a long division at a time. Metal's own rounds a / b. Subnormal numbers count as zeros. */
AN_FN float an_fmod(float a, float b)
{
    const an_u32 sign = AN_F2U(a) & AN_SIGN_BIT, x = AN_F2U(a) & ~AN_SIGN_BIT, y = AN_F2U(b) & ~AN_SIGN_BIT;
    if (x >= 0x7f800000u || y > 0x7f800000u || y < 0x00800000u) return AN_EXACT_NAN;
    if (x < 0x00800000u) return AN_U2F(sign);
    if (x < y) return a;
    an_u32 rest = (x & 0x7fffffu) | 0x800000u, by = (y & 0x7fffffu) | 0x800000u;
    int left = (int)(x >> 23) - (int)(y >> 23), exponent = (int)(y >> 23);
    rest %= by;
    while (left > 0) {
        const int digits = left < 8 ? left : 8;
        rest = (rest << digits) % by;
        left -= digits;
    }
    while (rest != 0u && rest < 0x800000u) {
        rest <<= 1;
        exponent--;
    }
    return AN_U2F(rest == 0u || exponent <= 0 ? sign : sign | (an_u32)exponent << 23 | (rest & 0x7fffffu));
}

/* ---- conversions: rounding to a storage dtype in registers; float to integer truncates, saturates, NaN is 0 */
#ifdef __METAL_VERSION__
AN_FN float an_to_bf16(float x) { return an_bf16_to_f32(an_f32_to_bf16(x)); }
#else
AN_FN float an_to_bf16(float x) { return an_bf16_round(x); }
#endif
AN_FN float an_to_f16(float x) { return an_f16_to_f32(an_f32_to_f16(x)); }
AN_FN int an_f_to_i32(float x) { return x != x ? 0 : x >= 2147483648.0f ? AN_INT_MAX : x <= -2147483648.0f ? AN_INT_MIN : (int)x; }
AN_FN an_i64 an_f_to_i64(float x) { return x != x ? 0 : x >= 9223372036854775808.0f ? AN_LONG_MAX : x <= -9223372036854775808.0f ? AN_LONG_MIN : (an_i64)x; }
AN_FN int an_f_to_u8(float x) { return x != x ? 0 : x >= 255.0f ? 255 : x <= 0.0f ? 0 : (int)x; }
AN_FN int an_clamp(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
AN_FN int an_clamp(an_i64 i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : (int)i; }

/* A uniform number in [0, 1) for one element; rng is {key, global index of sample 0} */
AN_FN float an_uniform_at(AN_DEVICE const an_u32 *rng, an_u32 stream, an_u64 index, an_u64 per_sample)
{
    an_u64 i = index + per_sample * rng[1];
    return an_philox_uniform(rng[0], stream, (an_u32)i, (an_u32)(i >> 32));
}

/* ---- doubles: libm's functions, as in loops_c.h */
#ifndef __METAL_VERSION__
AN_FN double an_max(double a, double b) { return a == a ? (a > b ? a : b) : a; }
AN_FN double an_min(double a, double b) { return a == a ? (a < b ? a : b) : a; }
AN_FN double an_exp(double a) { return exp(a); }
AN_FN double an_expm1(double a) { return expm1(a); }
AN_FN double an_log(double a) { return log(a); }
AN_FN double an_log1p(double a) { return log1p(a); }
AN_FN double an_sin(double a) { return sin(a); }
AN_FN double an_cos(double a) { return cos(a); }
AN_FN double an_tanh(double a) { return tanh(a); }
AN_FN double an_erf(double a) { return erf(a); }
AN_FN double an_pow(double a, double b) { return pow(a, b); }
AN_FN double an_atan2(double a, double b) { return atan2(a, b); }
AN_FN double an_fmod(double a, double b) { return fmod(a, b); }
AN_FN double an_round_bf16(double a, double b) { return an_round_bf16((float)a, (float)b); }
AN_FN double an_sqrt(double a) { return sqrt(a); }
AN_FN double an_rsqrt(double a) { return 1.0 / sqrt(a); }
AN_FN double an_sigmoid(double a) { return 1.0 / (1.0 + exp(-a)); }
AN_FN double an_rint(double a) { return rint(a); }
AN_FN double an_floor(double a) { return floor(a); }
AN_FN int an_isfinite(double a) { return a - a == 0.0; }
AN_FN int an_f_to_i32(double x) { return x != x ? 0 : x >= 2147483647.0 ? AN_INT_MAX : x <= -2147483648.0 ? AN_INT_MIN : (int)x; }
AN_FN an_i64 an_f_to_i64(double x) { return x != x ? 0 : x >= 9223372036854775808.0 ? AN_LONG_MAX : x <= -9223372036854775808.0 ? AN_LONG_MIN : (an_i64)x; }
AN_FN int an_f_to_u8(double x) { return x != x ? 0 : x >= 255.0 ? 255 : x <= 0.0 ? 0 : (int)x; }
#endif

/* ---- reductions over the 32 lanes of a subgroup; every lane gets the result. Metal shuffles 32 bits, so 64-bit values go in halves. */
AN_FN float an_lane_xor(float x, int m AN_LANES) { return an_shuffle_xor(x, m); }
AN_FN int an_lane_xor(int x, int m AN_LANES) { return an_shuffle_xor(x, m); }
AN_FN an_i64 an_lane_xor(an_i64 x, int m AN_LANES)
{
    an_u32 low = an_shuffle_xor((an_u32)x, m), high = an_shuffle_xor((an_u32)((an_u64)x >> 32), m);
    return (an_i64)((an_u64)high << 32 | low);
}
AN_FN float an_plus(float a, float b) { return a + b; }
AN_FN int an_plus(int a, int b) { return (int)((an_u32)a + (an_u32)b); }
AN_FN an_i64 an_plus(an_i64 a, an_i64 b) { return (an_i64)((an_u64)a + (an_u64)b); }
AN_FN int an_is_nan(float x) { return x != x; }
AN_FN int an_is_nan(int x) { return x & 0; }
AN_FN int an_is_nan(an_i64 x) { return (int)(x & 0); }

/* an_max depends on the order of its operands for zeros of both signs, so both lanes of a pair combine in the tree's order: the lane whose bit
 * s is set puts its partner first. an_fold_argmax: index of the maximum, -1 for none; NaN is above all, of equals the first. */
#define AN_FOLDS(type)                                                                                                 \
    AN_FN type an_fold_sum(type x AN_LANES)                                                                                \
    {                                                                                                                  \
        AN_UNROLL for (int s = 16; s > 0; s /= 2) x = an_plus(x, an_lane_xor(x, s AN_HAND_LANES));                                       \
        return x;                                                                                                      \
    }                                                                                                                  \
    AN_FN type an_fold_max(type x, int lane AN_LANES)                                                                           \
    {                                                                                                                  \
        AN_UNROLL for (int s = 16; s > 0; s /= 2)                                                                      \
        {                                                                                                              \
            type other = an_lane_xor(x, s AN_HAND_LANES);                                                                                \
            x = (lane & s) != 0 ? an_max(other, x) : an_max(x, other);                                                 \
        }                                                                                                              \
        return x;                                                                                                      \
    }                                                                                                                  \
    AN_FN int an_fold_argmax(type best, int place AN_LANES)                                                                     \
    {                                                                                                                  \
        AN_UNROLL for (int s = 16; s > 0; s /= 2)                                                                      \
        {                                                                                                              \
            type other = an_lane_xor(best, s AN_HAND_LANES);                                                                             \
            int q = an_lane_xor(place, s AN_HAND_LANES);                                                                                 \
            bool above = other > best || (an_is_nan(other) && !an_is_nan(best));                                       \
            bool equal = other == best || (an_is_nan(other) && an_is_nan(best));                                       \
            bool take = q >= 0 && (place < 0 || above || (equal && q < place));                                        \
            best = take ? other : best, place = take ? q : place;                                                      \
        }                                                                                                              \
        return place;                                                                                                  \
    }
AN_FOLDS(float)
AN_FOLDS(int)
AN_FOLDS(an_i64)
#ifdef __METAL_VERSION__ /* rendered kernels call them without what a plain GPU hands on */
#define an_fold_sum(x)             an_fold_sum(x AN_HAND_LANES)
#define an_fold_max(x, lane)       an_fold_max(x, lane AN_HAND_LANES)
#define an_fold_argmax(x, place)   an_fold_argmax(x, place AN_HAND_LANES)
#endif
#ifndef __METAL_VERSION__
/* Reductions over a block of n subgroups; every thread gets the result. */
template <int n, class T> AN_FN T an_block_sum(T x)
{
    __shared__ T part[n];
    x = an_fold_sum(x);
    AN_BARRIER(); /* the previous reduction has been read */
    if (an_lane == 0) part[an_subgroup] = x;
    AN_BARRIER();
    return an_fold_sum(an_lane < n ? part[an_lane] : (T)0);
}
template <int n, class T> AN_FN T an_block_max(T x)
{
    __shared__ T part[n];
    x = an_fold_max(x, an_lane);
    AN_BARRIER();
    if (an_lane == 0) part[an_subgroup] = x;
    AN_BARRIER();
    return an_fold_max(part[an_lane < n ? an_lane : 0], an_lane);
}
/* A row held in shared memory by its block. A thread's n neighbouring columns are several 16-byte pieces, stored `units` apart, so that
 * neighbouring threads access neighbouring pieces. Each thread fetches, reads and writes only its own: no barrier is needed. */
template <int units> struct an_shared_row {
    uint4 *piece;
};
template <int units> struct an_shared_row_at {
    uint4 *piece;
};
template <int units> AN_FN an_shared_row_at<units> operator+(an_shared_row<units> row, int at) { return {row.piece + at}; }
template <class T, int n> union an_row_chunks {
    uint4 piece[n * sizeof(T) / 16];
    T x[n];
};
template <class T, int n, int units> AN_FN void an_shared_row_load(T (&x)[n], an_shared_row_at<units> from)
{
    an_row_chunks<T, n> w;
    AN_UNROLL for (int i = 0; i < (int)(n * sizeof(T) / 16); i++) w.piece[i] = from.piece[i * units];
    AN_UNROLL for (int i = 0; i < n; i++) x[i] = w.x[i];
}
template <class T, int n, int units> AN_FN void an_shared_row_store(const T (&x)[n], an_shared_row_at<units> to)
{
    an_row_chunks<T, n> w;
    AN_UNROLL for (int i = 0; i < n; i++) w.x[i] = x[i];
    AN_UNROLL for (int i = 0; i < (int)(n * sizeof(T) / 16); i++) to.piece[i * units] = w.piece[i];
}
template <int n, class T, int units> AN_FN void an_shared_row_fetch(an_shared_row_at<units> to, const T *from)
{
    if ((an_u64)from % 16 == 0) {
        AN_UNROLL for (int i = 0; i < (int)(n * sizeof(T) / 16); i++)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                         :
                         : "r"((an_u32)__cvta_generic_to_shared(to.piece + i * units)), "l"((const uint4 *)from + i)
                         : "memory");
    } else {
        T x[n];
        AN_UNROLL for (int i = 0; i < n; i++) x[i] = from[i];
        an_shared_row_store(x, to);
    }
}
/* The same at the end of a row, of which `left` columns are left: what is beyond is 0. */
template <int n, class T, int units> AN_FN void an_shared_row_fetch(an_shared_row_at<units> to, const T *from, int left)
{
    if (left >= n) {
        an_shared_row_fetch<n>(to, from);
    } else {
        T x[n];
        AN_UNROLL for (int i = 0; i < n; i++) x[i] = i < left ? from[i] : (T)0;
        an_shared_row_store(x, to);
    }
}
/* bf16 number k of packed pairs, as f32, in one operation. */
AN_FN float an_bf16_of(const an_u32 *pairs, int k) { return AN_U2F(k % 2 ? pairs[k / 2] & 0xffff0000u : pairs[k / 2] << 16); }
AN_FN void an_shared_row_wait() { asm volatile("cp.async.wait_all;" : : : "memory"); }
AN_FN double an_lane_xor(double x, int m AN_LANES) { return an_shuffle_xor(x, m); }
AN_FN double an_plus(double a, double b) { return a + b; }
AN_FN int an_is_nan(double x) { return x != x; }
AN_FOLDS(double)
#endif

/* ---- AN_EXACT 0 on CUDA: the device's own functions, accurate to 2 units of the last place and two to three times shorter. Compiled without
 * contraction too, so that a value computed twice is the same. */
#if !defined(__METAL_VERSION__) && !AN_EXACT
#define AN_FAST_PAIR(name, function)                                                                                   \
    AN_FN float an_fast_##name(float x) { return function(x); }                                                        \
    AN_FN double an_fast_##name(double x) { return an_##name(x); }
/* 2^(x log2 e) by the processor's instruction, corrected for what rounding x log2 e lost: 3 units of the last place. The bound on the
 * correction keeps infinities. */
AN_FN float an_quick_exp(float x)
{
    float high = x * 1.44269504f, low = fmaxf(AN_FMA(x, 1.92596299e-8f, AN_FMA(x, 1.44269504f, -high)), -1.0f), y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(high));
    return AN_FMA(y, low * 0.693147181f, y);
}
/* Approximations for results of 16 bits (_16bit). e^x: relative error 2^-17 up to |x| = 88. erf(x) + 1: relative 1e-4 down to x = -4, absolute
 * 1e-6; 1 - erf(a) is 2^-q(a) with a polynomial q for 0 <= a <= 4, fitted to minimise the larger of both errors. NaN is kept. */
AN_FN float an_power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
AN_FN float an_exp_16bit(float x) { return an_power_of_2(x * 1.44269504f); }
/* Relative error 2^-16 down to x = -87; 0 below. */
AN_FN float an_sigmoid_16bit(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + an_power_of_2(x * -1.44269504f)));
    return y;
}
AN_FN float an_one_plus_erf_16bit(float x)
{
    float a, q = 0.000238917986f;
    asm("min.NaN.f32 %0, %1, 0f41100000;" : "=f"(a) : "f"(fabsf(x))); /* beyond 9 the result is 0 or 2 */
    q = AN_FMA(q, a, -0.00408843486f);
    q = AN_FMA(q, a, 0.0314671844f);
    q = AN_FMA(q, a, -0.149935499f);
    q = AN_FMA(q, a, -0.918180227f);
    q = AN_FMA(q, a, -1.62791061f);
    float y = an_power_of_2(q * a);
    return x < 0.0f ? y : 2.0f - y;
}
/* One instruction; orders zeros of both signs differently from an_max. */
AN_FN float an_fast_max(float a, float b)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
template <class T> AN_FN T an_fast_max(T a, T b) { return an_max(a, b); }
/* The normal distribution function (1 + erf(x / sqrt 2)) / 2 of GELU; and c exp(k x), given k log2 e and log2 c. */
AN_FN float an_normal_cdf_16bit(float x)
{
    float a, q = 2.98647483e-05f;
    asm("min.NaN.f32 %0, %1, 0f414ba592;" : "=f"(a) : "f"(fabsf(x))); /* 9 sqrt 2 */
    q = AN_FMA(q, a, -0.000722740003f);
    q = AN_FMA(q, a, 0.0078667961f);
    q = AN_FMA(q, a, -0.053010204f);
    q = AN_FMA(q, a, -0.459090114f);
    q = AN_FMA(q, a, -1.15110663f);
    float y = an_power_of_2(AN_FMA(q, a, -1.0f));
    return x < 0.0f ? y : 1.0f - y;
}
AN_FN float an_scaled_exp_16bit(float x, float k, float c) { return an_power_of_2(AN_FMA(x, k, c)); }
AN_FAST_PAIR(exp, an_quick_exp)
AN_FAST_PAIR(log, logf)
AN_FAST_PAIR(tanh, tanhf)
AN_FAST_PAIR(erf, erff)
#define an_max  an_fast_max
#define an_exp  an_fast_exp
#define an_log  an_fast_log
#define an_tanh an_fast_tanh
#define an_erf  an_fast_erf
#endif
