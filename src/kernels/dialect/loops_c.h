/* loops_c.h: what rendered loop kernels in C need, after base/exact.h: tiles, the float64 and integer overloads of exact.h's functions,
 * conversions, random numbers at an index. The interpreter includes the same text, so that both compute the same bits. float64 takes the same
 * names as float32 through _Generic, with libm underneath. */
#ifndef AN_LOOPS_C_H
#define AN_LOOPS_C_H

#include <math.h>
#include <stdint.h>

#ifndef AN_KERNELS_CPU_KERNELS_H /* kernels/cpu_kernels.h declares it too */
typedef struct an_tile {
    int64_t row0, row1, col0, col1;
    float *acc;
    int64_t ld;
} an_tile;
#endif

#if defined(__clang__)
#define AN_EACH     _Pragma("clang loop vectorize(assume_safety)")
#define AN_LANES    AN_EACH /* a loop over the 32 lanes of a row: all of it, so that they stay in registers */
#define AN_STRAIGHT _Pragma("clang loop unroll(full)")
#define AN_EACH_LONG _Pragma("clang loop vectorize(assume_safety) interleave_count(4)")
#define AN_LONG_BEGIN
#define AN_LONG_COLUMN
#define AN_LONG_END
#else
#define AN_EACH     _Pragma("GCC ivdep")
#define AN_LANES    _Pragma("GCC ivdep") _Pragma("GCC unroll 8")
#define AN_STRAIGHT _Pragma("GCC unroll 64")
/* A loop whose columns are long chains of dependent operations, as an exponential is: four vectors are computed together, so that the units that
 * one chain leaves idle are used by the others; a processor looks too few instructions ahead to do that by itself. gcc takes together as many
 * vectors of floats as one vector of the loop's smallest type has columns: that is a byte here, of which no instruction but one exclusive or remains. */
#define AN_EACH_LONG   AN_EACH
#define AN_LONG_BEGIN  uint8_t an_byte = 0, an_bits; __asm__("" : "=r"(an_bits));
#define AN_LONG_COLUMN an_byte ^= an_bits;
#define AN_LONG_END    __asm__ volatile("" : : "r"(an_byte));
#endif

AN_FN double an_max_f64(double a, double b)
{
    return a == a ? (a > b ? a : b) : a;
}
AN_FN double an_min_f64(double a, double b)
{
    return a == a ? (a < b ? a : b) : a;
}
AN_FN int64_t an_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
AN_FN int64_t an_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
AN_FN int32_t an_max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}
AN_FN int32_t an_min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}
/* libm takes its arguments apart by their bits. Where operands count as zeros, in exact mode, those bits must be zeros too: its
 * logarithm of any subnormal number is 2^-1075's there, by a product that becomes 0. */
AN_FN double an_seen_f64(double a)
{
    return a == 0 ? copysign(0, a) : a;
}
#define AN_LIBM(f)                                                                                                     \
    AN_FN double an_##f##_f64(double a)                                                                                \
    {                                                                                                                  \
        return f(an_seen_f64(a));                                                                                      \
    }
#define AN_LIBM2(f)                                                                                                    \
    AN_FN double an_##f##_f64(double a, double b)                                                                      \
    {                                                                                                                  \
        return f(an_seen_f64(a), an_seen_f64(b));                                                                      \
    }
AN_LIBM(exp)
AN_LIBM(expm1)
AN_LIBM(log)
AN_LIBM(log1p)
AN_LIBM(sin)
AN_LIBM(cos)
AN_LIBM(tanh)
AN_LIBM(erf)
AN_LIBM2(pow)
AN_LIBM2(atan2)
AN_LIBM2(fmod)
/* C's fmodf is exact. Subnormal numbers count as zeros, as in exact.h. */
AN_FN float an_fmod_f32(float a, float b)
{
    const float x = an_flush_small_(a, a), r = fmodf(x, an_flush_small_(b, b));
    return r != r ? AN_EXACT_NAN : an_flush_small_(r, x);
}
AN_FN double an_sigmoid_f64(double a)
{
    return 1.0 / (1.0 + exp(-a));
}
AN_FN double an_rsqrt_f64(double a)
{
    return 1.0 / sqrt(a);
}
AN_FN double an_round_bf16_f64(double x, double u)
{
    return an_round_bf16((float)x, (float)u);
}
/* c ? a : b by masks, all bits of a NaN kept: where c is one value for a whole loop, compilers see no branch to split it by. */
AN_FN float an_pick_f32(int c, float a, float b)
{
    const uint32_t mask = c ? 0xffffffffu : 0u;
    return AN_U2F((AN_F2U(a) & mask) | (AN_F2U(b) & ~mask));
}
AN_FN double an_pick_f64(int c, double a, double b)
{
    union {
        double d;
        uint64_t u;
    } x = {a}, y = {b};
    const uint64_t mask = c ? ~UINT64_C(0) : 0;
    x.u = (x.u & mask) | (y.u & ~mask);
    return x.d;
}
AN_FN int an_isfinite_f32(float a)
{
    return (AN_F2U(a) & 0x7f800000u) != 0x7f800000u;
}
AN_FN int an_isfinite_f64(double a)
{
    return isfinite(a) != 0;
}
/* toward minus infinity; 0 for a zero divisor, and no trap for INT_MIN / -1 */
AN_FN int64_t an_idiv_i64(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0u - (uint64_t)a);
    int64_t q = a / b;
    return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
AN_FN int64_t an_imod_i64(int64_t a, int64_t b)
{
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r + ((r != 0 && (r < 0) != (b < 0)) ? b : 0);
}
AN_FN int32_t an_idiv_i32(int32_t a, int32_t b)
{
    return (int32_t)an_idiv_i64(a, b);
}
AN_FN int32_t an_imod_i32(int32_t a, int32_t b)
{
    return (int32_t)an_imod_i64(a, b);
}

#define AN_F64(x, wide, narrow) _Generic((x), double : wide, default : narrow)
#define an_exp(x)               AN_F64(x, an_exp_f64, an_exp)(x)
#define an_expm1(x)             AN_F64(x, an_expm1_f64, an_expm1)(x)
#define an_log(x)               AN_F64(x, an_log_f64, an_log)(x)
#define an_log1p(x)             AN_F64(x, an_log1p_f64, an_log1p)(x)
#define an_sin(x)               AN_F64(x, an_sin_f64, an_sin)(x)
#define an_cos(x)               AN_F64(x, an_cos_f64, an_cos)(x)
#define an_tanh(x)              AN_F64(x, an_tanh_f64, an_tanh)(x)
#define an_erf(x)               AN_F64(x, an_erf_f64, an_erf)(x)
#define an_sigmoid(x)           AN_F64(x, an_sigmoid_f64, an_sigmoid)(x)
#define an_sqrt(x)              AN_F64(x, sqrt, an_sqrt)(x)
#define an_rsqrt(x)             AN_F64(x, an_rsqrt_f64, an_rsqrt)(x)
#define an_rint(x)              AN_F64(x, rint, an_rint)(x)
#define an_floor(x)             AN_F64(x, floor, an_floor)(x)
#define an_isfinite(x)          AN_F64(x, an_isfinite_f64, an_isfinite_f32)(x)
#define an_pick(c, x, y)        AN_F64(x, an_pick_f64, an_pick_f32)(c, x, y)
#define an_pow(x, y)            AN_F64(x, an_pow_f64, an_pow)(x, y)
#define an_atan2(y, x)          AN_F64(y, an_atan2_f64, an_atan2)(y, x)
#define an_fmod(x, y)           AN_F64(x, an_fmod_f64, an_fmod_f32)(x, y)
#define an_round_bf16(x, u)     AN_F64(x, an_round_bf16_f64, an_round_bf16)(x, u)
#define an_max(x, y)                                                                                                   \
    _Generic((x), double : an_max_f64, int64_t : an_max_i64, int32_t : an_max_i32, default : an_max)(x, y)
#define an_min(x, y)                                                                                                   \
    _Generic((x), double : an_min_f64, int64_t : an_min_i64, int32_t : an_min_i32, default : an_min)(x, y)
#define an_idiv(x, y) _Generic((x), int64_t : an_idiv_i64, default : an_idiv_i32)(x, y)
#define an_imod(x, y) _Generic((x), int64_t : an_imod_i64, default : an_imod_i32)(x, y)

/* Rounds to a storage dtype in registers: a bf16 node's value is a bf16 number, whether stored or fused. */
AN_FN float an_to_bf16(float x)
{
    return an_bf16_to_f32(an_f32_to_bf16(x));
}
AN_FN float an_to_f16(float x)
{
    return an_f16_to_f32(an_f32_to_f16(x));
}
/* float to integer: toward zero, saturating, NaN is 0 */
AN_FN int32_t an_f_to_i32(double x)
{
    return x != x ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int32_t)x;
}
AN_FN int64_t an_f_to_i64(double x)
{
    return x != x ? 0 : x >= 9223372036854775808.0 ? INT64_MAX : x <= -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}
AN_FN int32_t an_f_to_u8(double x)
{
    return x != x ? 0 : x >= 255.0 ? 255 : x <= 0.0 ? 0 : (int32_t)x;
}
AN_FN int64_t an_clamp(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}
AN_FN float an_uniform_at(const uint32_t *rng, uint32_t stream, uint64_t index, uint64_t per_sample)
{
    uint64_t i = index + per_sample * rng[1];
    return an_philox_uniform(rng[0], stream, (uint32_t)i, (uint32_t)(i >> 32));
}

/* to[i * apart + l] = from[l * far + i] for i, l in 0 ... 7. In registers: eight lines are asked for at once, where element by element
 * would wait for one after the other. */
typedef float an_v8 __attribute__((vector_size(32)));
typedef float an_v8_at __attribute__((vector_size(32), aligned(4), may_alias));
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define AN_SHUFFLES 1
#endif
#endif
#ifdef AN_SHUFFLES
#define AN_LOW(a, b)   __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define AN_HIGH(a, b)  __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define AN_LOW2(a, b)  __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define AN_HIGH2(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define AN_FRONT(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define AN_BACK(a, b)  __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define AN_PUT(i, x)   (*(an_v8_at *)(to + (i)*apart) = (x))
AN_FN void an_transpose8(const float *from, int64_t far, float *to, int64_t apart)
{
    an_v8 a[8], b[8];
    AN_STRAIGHT for (int i = 0; i < 8; i++) a[i] = *(const an_v8_at *)(from + i * far);
    AN_STRAIGHT for (int i = 0; i < 8; i += 2) b[i] = AN_LOW(a[i], a[i + 1]), b[i + 1] = AN_HIGH(a[i], a[i + 1]);
    AN_STRAIGHT for (int i = 0; i < 8; i += 4)
    {
        a[i] = AN_LOW2(b[i], b[i + 2]), a[i + 1] = AN_HIGH2(b[i], b[i + 2]);
        a[i + 2] = AN_LOW2(b[i + 1], b[i + 3]), a[i + 3] = AN_HIGH2(b[i + 1], b[i + 3]);
    }
    AN_STRAIGHT for (int i = 0; i < 4; i++) AN_PUT(i, AN_FRONT(a[i], a[i + 4])), AN_PUT(i + 4, AN_BACK(a[i], a[i + 4]));
}
#else
AN_FN void an_transpose8(const float *from, int64_t far, float *to, int64_t apart)
{
    for (int l = 0; l < 8; l++)
        for (int i = 0; i < 8; i++) to[i * apart + l] = from[l * far + i];
}
#endif

/* Asks for the lines that the next block's rows begin with, `ahead` floats on: each row is another line, which no hardware foresees. */
AN_FN void an_ask8(const float *from, int64_t far, int64_t ahead)
{
    for (int i = 0; i < 8; i++)
        __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)((i * far + ahead) * 4)), 0, 2);
}

/* Asks for the lines of n elements from element `at` of an array on, if there are any. */
AN_FN void an_ask_row(const void *from, int64_t at, int64_t n, int64_t size)
{
    const uintptr_t first = (uintptr_t)from + (uintptr_t)(at * size);
    for (int64_t i = 0; i < n * size; i += 64) __builtin_prefetch((const void *)(first + (uintptr_t)i));
}

/* to[q * to_q + i * to_i] = from[q * from_q + i * from_i] for i in 0 ... 15 and q in 0 ... n - 1, where i is the neighbour in one array and q in
 * the other: whole lines are written one after the other, since those of neighbouring q may push each other out of the cache. Constants. */
AN_FN void an_turn16(const float *from, int64_t from_i, int64_t from_q, float *to, int64_t to_i, int64_t to_q,
                     int64_t n)
{
    const int64_t far = from_q == 1 ? from_i : from_q, apart = to_i == 1 ? to_q : to_i;
    int64_t q = 0;
    for (; q + 8 <= n; q += 8)
        for (int64_t i = 0; i < 16; i += 8)
            an_transpose8(from + q * from_q + i * from_i, far, to + q * to_q + i * to_i, apart);
    for (; q < n; q++)
        for (int64_t i = 0; i < 16; i++) to[q * to_q + i * to_i] = from[q * from_q + i * from_i];
}

/* to[c * far + r] = from[r * n + c] for rows r and columns c, many of each. Strips of `wide` columns, 8 rows at a time: few lines whose distance
 * is a power of two, and those of the next 8 rows are asked for meanwhile. */
AN_FN void an_turn_many(const float *from, int64_t n, int64_t rows, int64_t columns, int wide, float *to, int64_t far)
{
    for (int64_t c = 0, some; c < columns; c += some) {
        some = columns - c < wide ? columns - c < 8 ? columns - c : 8 : wide;
        int64_t r = 0;
        for (; some >= 8 && r + 8 <= rows; r += 8)
            for (int64_t i = c; i < c + some; i += 8) {
                if (i % 16 == c % 16) an_ask8(from + r * n + i, n, 8 * n);
                an_transpose8(from + r * n + i, n, to + i * far + r, far);
            }
        for (; r < rows; r++)
            for (int64_t i = c; i < c + some; i++) to[i * far + r] = from[r * n + i];
    }
}

/* to[i * wide + l] = p[at + l * far + i] for i in 0 ... n - 1 and l in 0 ... wide - 1, a multiple of 8: channels of an image become neighbours. What
 * would be outside of the array, of `numel`, is left out. */
AN_FN void an_take_planes(const float *p, int64_t numel, int64_t at, int64_t far, int64_t n, float *to, int wide)
{
    const int64_t last = numel - at - (wide - 1) * far, begin = at < 0 ? -at : 0, end = last < n ? last : n;
    int64_t i = begin;
    for (; i + 16 <= end; i += 16)
        for (int l = 0; l < wide; l += 8) { /* lines of 8 channels: those of more may push each other out */
            const float *from = p + at + l * far + i;
            an_ask8(from, far, 16);
            an_transpose8(from, far, to + i * wide + l, wide);
            an_transpose8(from + 8, far, to + (i + 8) * wide + l, wide);
        }
    for (int l = 0; l < wide; l++) {
        for (int64_t k = 0; k < begin && k < n; k++)
            if (at + l * far + k >= 0 && at + l * far + k < numel) to[k * wide + l] = p[at + l * far + k];
        for (int64_t k = i; k < n; k++)
            if (at + l * far + k < numel) to[k * wide + l] = p[at + l * far + k];
    }
}

/* to[l * far + i] = from[i * wide + l]: the other way. Whole lines are written. */
AN_FN void an_put_planes(const float *from, int wide, int64_t n, float *to, int64_t far)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < wide; l += 8) {
            an_transpose8(from + i * wide + l, wide, to + l * far + i, far);
            an_transpose8(from + (i + 8) * wide + l, wide, to + l * far + i + 8, far);
        }
    for (; i < n; i++)
        for (int l = 0; l < wide; l++) to[l * far + i] = from[i * wide + l];
}

/* Eight neighbouring columns. Macros: functions of vectors have another ABI with each instruction set. AN_MAX8 is an_max of each: a NaN of a
 * stays. */
typedef int32_t an_i8 __attribute__((vector_size(32)));
typedef uint16_t an_h8 __attribute__((vector_size(16)));
typedef uint16_t an_h8_at __attribute__((vector_size(16), aligned(2), may_alias));
#define AN_VEC(p, i)        ((an_v8) * (const an_v8_at *)&(p)[i])
#define AN_VEC_BF16(p, i)   ((an_v8)(__builtin_convertvector((an_h8) * (const an_h8_at *)&(p)[i], an_i8) << 16))
#define AN_VEC_PUT(p, i, x) (*(an_v8_at *)&(p)[i] = (x))
#define AN_IN_MEMORY(x)     __asm__("" : "+m"(x)) /* here x is in memory, whatever registers hold before and behind */
#define AN_ALL8(x)          ((an_v8){(x), (x), (x), (x), (x), (x), (x), (x)})
#define AN_IF8(test, x)     ((an_v8)((an_i8)(x) & ((an_i8){0} - (int32_t)(test)))) /* x or zeros; test is 0 or 1 */
#ifdef __AVX__ /* of a > b ? a : b, b where a NaN is, then that */
#define AN_MAX8(a, b) __builtin_ia32_blendvps256((a), __builtin_ia32_maxps256((a), (b)), (an_v8)((a) == (a)))
#else
#define AN_TAKE8(a, b) (((a) == (a)) & ~((a) > (b)))
#define AN_MAX8(a, b)  ((an_v8)((AN_TAKE8(a, b) & (an_i8)(b)) | (~AN_TAKE8(a, b) & (an_i8)(a))))
#endif

/* Folds of the reduction tree: 32 lanes of a row, 8 of a column. */
#define AN_FOLD(lane, n, combine)                                                                                      \
    for (int an_s = (n) / 2; an_s; an_s >>= 1)                                                                         \
        for (int an_l = 0; an_l < an_s; an_l++) lane[an_l] = combine(lane[an_l], lane[an_l + an_s])
#define AN_PLUS(a, b) ((a) + (b))

/* AN_FOLD(s, 32, AN_PLUS) of floats, four lanes at once: its loops over an array cost gcc 10 ms a sum. */
typedef float an_four_lanes __attribute__((vector_size(16), aligned(4), may_alias));
AN_FN float an_sum32(const float *s)
{
    const an_four_lanes *v = (const an_four_lanes *)s;
    const an_four_lanes low = (v[0] + v[4]) + (v[2] + v[6]), high = (v[1] + v[5]) + (v[3] + v[7]);
    const an_four_lanes sum = low + high;
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

#endif
