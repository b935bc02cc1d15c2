/* attn_vec.h: the vector types (SIMD) of attention and GEMM and the operations on them, for the instruction set that this
 * translation unit is compiled for.
 *
 *     vf, vu, vi, vq   one register of AN_VL 32-bit lanes as f32, u32, i32; vq: as AN_VL / 2 lanes of 64 bits
 *     vf_at, vu_at     the same in memory, aligned to 4 bytes only
 *     lanes            16 f32 lanes in as many registers as the instruction set needs
 *
 * Invariant: the result of an operation does not depend on the vector width: operations work lane by lane, and the
 *            sums over `lanes` use one tree on every width. The exception is vf_dot (bf16 pairs), see gemm_pack.h. */
#ifndef AN_KERNELS_CPU_ATTN_VEC_H
#define AN_KERNELS_CPU_ATTN_VEC_H

#include "kernels/cpu/isa.h"

#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define AN_VL 16
#define AN_MR 8 /* a tile of AN_MR rows by AN_NV vectors: 16 of the 32 registers hold its accumulators */
#define AN_NV 2
#elif defined(__AVX2__)
#include <immintrin.h>
#define AN_VL      8
#define AN_MR      4 /* 8 of 16 registers; 4 divides the groups of 8 rows that attention masks together */
#define AN_NV      2
/* Where more rows than a group of 8 are multiplied: 12 sums, more than the latency of their units asks for. */
#define AN_MR_LONG 6
#else
#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#define AN_VL 4
#define AN_MR 4 /* 16 of 32 registers */
#define AN_NV 4
#endif

#ifndef AN_MR_LONG
#define AN_MR_LONG AN_MR
#endif

/* Whether pairs of bf16 are multiplied by an instruction of their own. Without it operands are rounded to bf16 and multiplied
 * as f32.
 */

#if defined(__AVX512BF16__)
#define AN_BF16_DOT 1
#else
#define AN_BF16_DOT 0
#endif

#if AN_TILES && !defined(__AMX_BF16__) /* tile registers in plain C: speed does not count, compile time does */
#define AN_INLINE static __attribute__((unused))
#define AN_UNROLL
#else
#define AN_INLINE static inline __attribute__((always_inline))
#endif
#ifdef AN_UNROLL
#elif defined(__clang__)
#define AN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define AN_UNROLL _Pragma("GCC unroll 16")
#endif

typedef uint32_t an_word __attribute__((may_alias));
typedef uint16_t an_half __attribute__((may_alias));
typedef float vf __attribute__((vector_size(4 * AN_VL), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * AN_VL), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * AN_VL), may_alias));
typedef uint64_t vq __attribute__((vector_size(4 * AN_VL), may_alias));
typedef float vf_at __attribute__((vector_size(4 * AN_VL), may_alias, aligned(4)));
typedef uint32_t vu_at __attribute__((vector_size(4 * AN_VL), may_alias, aligned(4)));

AN_INLINE vf vf_load(const float *p)
{
    return *(const vf_at *)p;
}
AN_INLINE void vf_store(float *p, vf x)
{
    *(vf_at *)p = x;
}
AN_INLINE vu vu_load(const an_word *p)
{
    return *(const vu_at *)p;
}
AN_INLINE void vu_store(an_word *p, vu x)
{
    *(vu_at *)p = x;
}
/* x in every lane. Subtraction, because -0 + 0 is +0. */
AN_INLINE vf vf_set(float x)
{
    return x - (vf){0};
}
AN_INLINE vu vu_set(uint32_t x)
{
    return x - (vu){0};
}
AN_INLINE vi vi_set(int32_t x)
{
    return x - (vi){0};
}
AN_INLINE vq vq_set(uint64_t x)
{
    return x - (vq){0};
}
AN_INLINE vq vq_iota(void)
{
    vq x;
    for (int i = 0; i < AN_VL / 2; i++) x[i] = (uint64_t)i;
    return x;
}
AN_INLINE vu vu_widen(const uint16_t *x) /* 16-bit numbers, one a lane */
{
    typedef uint16_t vh __attribute__((vector_size(2 * AN_VL), may_alias));
    return __builtin_convertvector(*(const vh *)x, vu);
}

/* ---- operations that each instruction set spells differently ----------------------------------------------------
 * vu_iota   lane i holds i
 * vf_max    a > b ? a : b in each lane
 * vq_mul32  the low halves of the 64-bit lanes, multiplied to 64 bits
 * vu_low    lanes of the lower halves of a and b interleaved: a0 b0 a1 b1 ..; vu_high: of the upper halves */

#if AN_VL == 16
AN_INLINE vu vu_iota(void)
{
    return (vu){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}
AN_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
AN_INLINE vf vf_max(vf a, vf b)
{
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}
AN_INLINE vq vq_mul32(vq a, vq b)
{
    return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
AN_INLINE vu vu_low(vu a, vu b)
{
    return (vu)__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
AN_INLINE vu vu_high(vu a, vu b)
{
    return (vu)__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif AN_VL == 8
AN_INLINE vu vu_iota(void)
{
    return (vu){0, 1, 2, 3, 4, 5, 6, 7};
}
AN_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
AN_INLINE vf vf_max(vf a, vf b)
{
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}
AN_INLINE vq vq_mul32(vq a, vq b)
{
    return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
AN_INLINE vu vu_low(vu a, vu b)
{
    return (vu)__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
AN_INLINE vu vu_high(vu a, vu b)
{
    return (vu)__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
AN_INLINE vu vu_iota(void)
{
    return (vu){0, 1, 2, 3};
}
AN_INLINE vu vu_low(vu a, vu b)
{
    return (vu)__builtin_shufflevector(a, b, 0, 4, 1, 5);
}
AN_INLINE vu vu_high(vu a, vu b)
{
    return (vu)__builtin_shufflevector(a, b, 2, 6, 3, 7);
}
AN_INLINE vf vf_max(vf a, vf b)
{
    vu more = (vu)(a > b);
    return (vf)(((vu)a & more) | ((vu)b & ~more));
}
AN_INLINE vq vq_mul32(vq a, vq b)
{
    return (a & vq_set(0xffffffffu)) * (b & vq_set(0xffffffffu));
}
#if defined(__ARM_NEON)
AN_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#else
AN_INLINE vf vf_fma(vf a, vf b, vf c)
{
    for (int i = 0; i < AN_VL; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
#endif
#endif

/* Rounds to bf16, to nearest, ties to even. The result is in the upper half of a lane, the lower half is zero. A NaN
 * stays a NaN and becomes quiet. */
AN_INLINE vu vu_round_bf16(vf x)
{
    const vu u = (vu)x, nan = (vu)(x != x);
    const vu near = u + (0x7fff + (u >> 16 & 1));
    return ((near & ~nan) | ((u | 0x400000) & nan)) & 0xffff0000u;
}

#if AN_BF16_DOT
/* c + a0 b0 + a1 b1 in each lane, a and b holding pairs of bf16. */
AN_INLINE vf vf_dot(vf a, vf b, vf c)
{
    return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
/* Rounding to 16 pairs of bf16; subnormal numbers become 0. vu_narrow pairs neighbours, (lo0, lo1), (lo2, lo3), ..,
 * then those of hi; vu_pair pairs (even[i], odd[i]). */
AN_INLINE vu vu_narrow(vf lo, vf hi)
{
    return (vu)_mm512_cvtne2ps_pbh((__m512)hi, (__m512)lo);
}
AN_INLINE vu vu_pair(vf even, vf odd)
{
    const vu order = (vu_iota() + 16) << 16 | vu_iota();
    return (vu)_mm512_permutexvar_epi16((__m512i)order, (__m512i)vu_narrow(even, odd));
}
#else
/* Without the instruction, operands are rounded to bf16 and multiplied as f32: this one is compiled but never called. */
AN_INLINE vf vf_dot(vf a, vf b, vf c)
{
    return (void)a, (void)b, c;
}
/* Pairs are packed without it only for tile registers in plain C (gemm_tiles.h). */
AN_INLINE vu vu_pair(vf even, vf odd)
{
    const vu e = (vu)even, o = (vu)odd; /* subnormal numbers keep their sign only */
    const vu e_small = (vu)((e & 0x7f800000u) == 0), o_small = (vu)((o & 0x7f800000u) == 0);
    return (vu_round_bf16((vf)(e & ~(e_small & 0x7fffffffu))) >> 16) |
           vu_round_bf16((vf)(o & ~(o_small & 0x7fffffffu)));
}
AN_INLINE vu vu_narrow(vf lo, vf hi)
{
    vf even, odd;
    for (int i = 0; i < AN_VL / 2; i++) {
        even[i] = lo[2 * i], odd[i] = lo[2 * i + 1];
        even[AN_VL / 2 + i] = hi[2 * i], odd[AN_VL / 2 + i] = hi[2 * i + 1];
    }
    return vu_pair(even, odd);
}
#endif

/* ---- 16 lanes on any width ------------------------------------------------------------------------------------- */

enum { LANES = 16 };
typedef struct lanes {
    vf v[LANES / AN_VL];
} lanes;
typedef float vf8 __attribute__((vector_size(32)));
typedef float vf4 __attribute__((vector_size(16)));

#define LANES_EACH for (int x = 0; x < LANES / AN_VL; x++)

AN_INLINE lanes lanes_load(const float *p)
{
    lanes a;
    AN_UNROLL LANES_EACH a.v[x] = vf_load(p + x * AN_VL);
    return a;
}
AN_INLINE void lanes_store(float *p, lanes a)
{
    AN_UNROLL LANES_EACH vf_store(p + x * AN_VL, a.v[x]);
}
AN_INLINE lanes lanes_set(float f)
{
    lanes a;
    AN_UNROLL LANES_EACH a.v[x] = vf_set(f);
    return a;
}
AN_INLINE lanes lanes_add(lanes a, lanes b)
{
    AN_UNROLL LANES_EACH a.v[x] += b.v[x];
    return a;
}
AN_INLINE lanes lanes_scale(lanes a, float f)
{
    AN_UNROLL LANES_EACH a.v[x] *= f;
    return a;
}
AN_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    AN_UNROLL LANES_EACH c.v[x] = vf_fma(a.v[x], b.v[x], c.v[x]);
    return c;
}
AN_INLINE lanes lanes_max(lanes a, lanes b)
{
    AN_UNROLL LANES_EACH a.v[x] = vf_max(a.v[x], b.v[x]);
    return a;
}

/* Lane j becomes `rest` where j >= n; n may be negative or larger than 16. Written with vector operations because gcc 12
 * turns the scalar loop into branches. */
AN_INLINE lanes lanes_first(lanes a, int n, float rest)
{
    AN_UNROLL LANES_EACH
    {
        const vu in = (vu)((vi)vu_iota() < vi_set(n - x * AN_VL));
        a.v[x] = (vf)(((vu)a.v[x] & in) | ((vu)vf_set(rest) & ~in));
    }
    return a;
}

/* Reductions combine the lower and the upper half, 16 -> 8 -> 4 -> 2 -> 1 lanes: the same tree on every width. */
#if AN_VL == 16
#define LANES_LOW(a)  __builtin_shufflevector(a.v[0], a.v[0], 0, 1, 2, 3, 4, 5, 6, 7)
#define LANES_HIGH(a) __builtin_shufflevector(a.v[0], a.v[0], 8, 9, 10, 11, 12, 13, 14, 15)
#elif AN_VL == 8
#define LANES_LOW(a)  a.v[0]
#define LANES_HIGH(a) a.v[1]
#else
#define LANES_LOW(a)  __builtin_shufflevector(a.v[0], a.v[1], 0, 1, 2, 3, 4, 5, 6, 7)
#define LANES_HIGH(a) __builtin_shufflevector(a.v[2], a.v[3], 0, 1, 2, 3, 4, 5, 6, 7)
#endif
AN_INLINE float lanes_sum(lanes a)
{
    const vf8 y = (vf8)LANES_LOW(a) + (vf8)LANES_HIGH(a);
    const vf4 z = __builtin_shufflevector(y, y, 0, 1, 2, 3) + __builtin_shufflevector(y, y, 4, 5, 6, 7);
    return (z[0] + z[2]) + (z[1] + z[3]);
}
AN_INLINE float larger(float a, float b)
{
    return a > b ? a : b;
}
AN_INLINE float lanes_most(lanes a)
{
#if AN_VL == 4
    const vf z = vf_max(vf_max(a.v[0], a.v[2]), vf_max(a.v[1], a.v[3]));
#else
    const vf8 y = (vf8)_mm256_max_ps((__m256)LANES_LOW(a), (__m256)LANES_HIGH(a));
    const vf4 z = (vf4)_mm_max_ps((__m128)__builtin_shufflevector(y, y, 0, 1, 2, 3),
                                  (__m128)__builtin_shufflevector(y, y, 4, 5, 6, 7));
#endif
    return larger(larger(z[0], z[2]), larger(z[1], z[3]));
}

#if AN_VL == 8
/* Transposes a square of 8 registers by 24 shuffles: of single lanes, of pairs and of halves. Interleaving whole registers, as below,
 * crosses the halves in each round, which takes AVX2 twice as many. */
AN_INLINE void vu_transpose(vu r[AN_VL])
{
    vu s[AN_VL], t[AN_VL];
    AN_UNROLL for (int i = 0; i < AN_VL; i += 2)
    {
        s[i] = (vu)__builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        s[i + 1] = (vu)__builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    AN_UNROLL for (int i = 0; i < AN_VL;
                   i += 4) /* t[i + j]: column j, and j + 4 in the upper half, of rows i .. i + 3 */
    {
        t[i] = (vu)__builtin_shufflevector(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 1] = (vu)__builtin_shufflevector(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        t[i + 2] = (vu)__builtin_shufflevector(s[i + 1], s[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 3] = (vu)__builtin_shufflevector(s[i + 1], s[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    AN_UNROLL for (int j = 0; j < AN_VL / 2; j++)
    {
        r[j] = (vu)__builtin_shufflevector(t[j], t[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[j + 4] = (vu)__builtin_shufflevector(t[j], t[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#else
/* Transposes a square of AN_VL registers in log2(AN_VL) rounds. Each round interleaves row i with row i + AN_VL / 2. */
AN_INLINE void vu_transpose(vu r[AN_VL])
{
    AN_UNROLL for (int round = 1; round < AN_VL; round *= 2)
    {
        vu t[AN_VL];
        AN_UNROLL for (int i = 0; i < AN_VL / 2; i++)
        {
            t[2 * i] = vu_low(r[i], r[i + AN_VL / 2]);
            t[2 * i + 1] = vu_high(r[i], r[i + AN_VL / 2]);
        }
        AN_UNROLL for (int i = 0; i < AN_VL; i++) r[i] = t[i];
    }
}
#endif

#endif
