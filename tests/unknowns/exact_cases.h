/* exact_cases.h: which functions of base/exact.h are hashed over which inputs. Shared by tests/unit/test_exact.c, which
 * pins the hashes, exact_bits.c and exact_bits.cu, which compute them elsewhere. Include base/exact.h first.
 *
 * A hash is a sum over the inputs of a mix of (number of the input, bits of the result), modulo 2^64: any order of
 * summing gives the same, so that a GPU may compute it. */
#ifndef AN_EXACT_CASES_H
#define AN_EXACT_CASES_H

#define CASE_INPUTS (1u << 22)
#define CASE_ROWS   4096u

AN_FN unsigned long long case_mix(an_u32 i, an_u32 bits)
{
    unsigned long long x = ((unsigned long long)i << 32 | bits) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Even numbers: bit patterns scattered over all 2^32, with NaN, infinities and subnormals. Odd: a grid over [-16, 16).
 */
AN_FN float case_x(an_u32 i)
{
    float grid = (float)((int)i - (int)(CASE_INPUTS / 2)) * 7.62939453125e-06f;
    return (i & 1u) != 0u ? grid : AN_U2F(i * 0x9e3779b1u);
}
AN_FN float case_y(an_u32 i)
{
    an_u32 h = (i ^ 0x5bd1e995u) * 0x85ebca6bu;
    float moderate = (float)((int)(h >> 8) - (1 << 23)) * 9.5367431640625e-07f; /* [-8, 8) */
    return (i & 7u) == 6u ? AN_U2F(h) : (i & 15u) == 1u ? AN_RINT(moderate) : moderate;
}

/* X(name, pinned hash, bits of the result for x, y and number i). A hash changes only with the definition of a
 * function. */
#define EXACT_CASES(X)                                                                                                 \
    X(exp, 0x9a5b2c25d7020effu, AN_F2U(an_exp(x)))                                                                     \
    X(exp2, 0x8bde3b260bafc587u, AN_F2U(an_exp2(x)))                                                                   \
    X(expm1, 0xf1f2fa5bef6d9d25u, AN_F2U(an_expm1(x)))                                                                 \
    X(log, 0xdbbb4b9d4136ce35u, AN_F2U(an_log(x)))                                                                     \
    X(log2, 0x0f7b386723cf3be9u, AN_F2U(an_log2(x)))                                                                   \
    X(log1p, 0xf33102e3fe7301ccu, AN_F2U(an_log1p(x)))                                                                 \
    X(pow, 0x1ad0ea908640f7f5u, AN_F2U(an_pow(x, y)))                                                                  \
    X(tanh, 0x88533302f8fecf1bu, AN_F2U(an_tanh(x)))                                                                   \
    X(sigmoid, 0x3d07e82fac4536a1u, AN_F2U(an_sigmoid(x)))                                                             \
    X(erf, 0x63d5e4d563291a23u, AN_F2U(an_erf(x)))                                                                     \
    X(sin, 0x3e9531e82ed871c3u, AN_F2U(an_sin(x)))                                                                     \
    X(cos, 0xfc053872598a1867u, AN_F2U(an_cos(x)))                                                                     \
    X(atan2, 0x43c73f0db5abd6f4u, AN_F2U(an_atan2(x, y)))                                                              \
    X(sqrt, 0x2d85e38b60f38faau, AN_F2U(an_sqrt(x)))                                                                   \
    X(rsqrt, 0xb8369fefd2faadf6u, AN_F2U(an_rsqrt(x)))                                                                 \
    X(rint_floor, 0x72a7b09243677f2fu, AN_F2U(an_rint(x)) * 31u + AN_F2U(an_floor(x)))                                 \
    X(bf16, 0xc4d1da42392837e4u, an_f32_to_bf16(x) * 65537u ^ AN_F2U(an_bf16_to_f32(i & 0xffffu)))                     \
    X(f16, 0x1f3f84ae518b1835u, an_f32_to_f16(x) * 65537u ^ AN_F2U(an_f16_to_f32(i & 0xffffu)))                        \
    X(philox, 0x4872eb62a3b48bc5u, an_philox(i, i * 7u, i * 0x9e3779b1u, i >> 3))                                      \
    X(uniform, 0x4569c59ddbfd7cdcu, AN_F2U(an_philox_uniform(1u, 2u, i, 0u)))

/* The reduction tree over rows of 1 to 1500 numbers of very different sizes. */
#define CASE_SUM_HASH 0x25bb4b5761487c99u
#define CASE_MAX_HASH 0x8b7a101284e5fe12u
AN_FN an_u32 case_row_length(an_u32 row)
{
    return 1u + row * 2654435761u % 1500u;
}
AN_FN float case_row_item(an_u32 row, an_u32 j)
{
    an_u32 h = an_philox(row, 3u, j, 0u);
    return ((float)(int)(h >> 8) * 5.9604645e-8f - 0.5f) * AN_U2F((112u + (h & 31u)) << 23);
}

#endif
