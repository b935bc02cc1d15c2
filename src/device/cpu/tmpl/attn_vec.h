/* attn_vec.h: the vector types and the dozen operations attention needs, one width an instruction set.
 *
 * Invariant: lane-wise operations only; nothing here changes a result with the width, except vf_dot. */
#ifndef AN_ATTN_VEC_H
#define AN_ATTN_VEC_H

#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define AN_VL 16
#define AN_MR 8 /* 8 x 2 accumulators of 32 registers */
#define AN_NV 2
#elif defined(__AVX2__)
#include <immintrin.h>
#define AN_VL 8
#define AN_MR 4 /* 4 x 2 of 16 registers: divides the groups of 8 rows */
#define AN_NV 2
#else
#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#define AN_VL 4
#define AN_MR 4 /* 4 x 4 of 32 registers */
#define AN_NV 4
#endif

#if defined(__AVX512BF16__)
#define AN_BF16_DOT 1
#else
#define AN_BF16_DOT 0
#endif

#define AN_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define AN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define AN_UNROLL _Pragma("GCC unroll 16")
#endif

typedef uint32_t an_word __attribute__((may_alias));
typedef float vf __attribute__((vector_size(4 * AN_VL), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * AN_VL), may_alias));
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
AN_INLINE vf vf_set(float x)
{
    return x - (vf){0};
} /* minus: x + 0 would turn -0 into 0 */
AN_INLINE vu vu_set(uint32_t x)
{
    return x - (vu){0};
}
AN_INLINE vq vq_set(uint64_t x)
{
    return x - (vq){0};
}

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

#if AN_BF16_DOT
AN_INLINE vf vf_dot(vf a, vf b, vf c)
{
    return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
}
#else
AN_INLINE vf vf_dot(vf a, vf b, vf c)
{
    (void)a;
    (void)b;
    return c; /* never called: without a dot product operands are rounded and multiplied as f32 */
}
#endif

/* Square transpose: log2(width) rounds of the perfect shuffle of the lower and the upper half of the rows. */
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
