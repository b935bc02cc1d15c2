/* cuda_warp.h: the CUDA that kernels/gpu/attn_short.inc is written in, for the CPU shim: in place of dialect/cuda.h, and of the functions that
 * attn_bf16.inc has from the processor. A warp is a simdgroup of shim.h, so races and what leaves a buffer are found here too. Dynamic shared
 * memory is an_dynamic, an array of AN_DYNAMIC_BYTES. */
#include <metal_stdlib>
using namespace metal;

#define AN_WARP_ON_CPU
#define __restrict__
#define __shared__
#define __align__(n) __attribute__((aligned(n)))
typedef unsigned an_u32;
typedef unsigned short an_u16;
typedef unsigned long long an_u64;
typedef long long an_i64;
#define AN_FN                  static inline
#define AN_KERNEL(name, ...)   kernel void name
#define AN_IN(i, type, name)   const type *name [[buffer(i)]]
#define AN_OUT(i, type, name)  type *name [[buffer(i)]]
#define AN_ARGS(i, type, name) const type &name [[buffer(i)]]
#define AN_UNROLL
#define an_thread        ((int)shim_thread())
#define an_lane          (an_thread & 31)
#define an_subgroup      (an_thread >> 5)
#define AN_BARRIER()     shim_group_barrier(SHIM_THREADGROUP)
#define __syncwarp()     shim_subgroup_barrier(SHIM_THREADGROUP)
#define AN_FLT_MAX       3.402823466e38f
#define AN_INF           __builtin_inff()
#define AN_FMA(a, b, c)  __builtin_fmaf(a, b, c)
#define AN_U2F(x)        as_type<float>(an_u32(x))
#define fmaxf            __builtin_fmaxf
#define log2f            __builtin_log2f
#define an_power_of_2(x) __builtin_exp2f(x)
struct shim_block {
    unsigned x;
};
#define blockIdx                                                                                                       \
    shim_block                                                                                                         \
    {                                                                                                                  \
        shim_group(0)                                                                                                  \
    }

struct alignas(16) uint4 {
    an_u32 x, y, z, w;
};
struct float2 {
    float x, y;
};
static inline uint4 make_uint4(an_u32 x, an_u32 y, an_u32 z, an_u32 w)
{
    return uint4{x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return float2{x, y};
}
static inline uint4 __ldcg(const uint4 *p)
{
    return *p;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
} /* the shim's compiler contracts nothing */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float an_shuffle_xor(float x, int mask)
{
    return simd_shuffle_xor(x, ushort(mask));
}

extern an_u16 an_dynamic[];
__attribute__((section("shim_shared"), visibility("hidden"), aligned(16))) an_u16 an_dynamic[AN_DYNAMIC_BYTES / 2];

SHIM_UNSEEN static inline an_u32 shim_bf16(float x)
{
    const an_u32 u = as_type<an_u32>(x);
    return x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
SHIM_UNSEEN static inline an_u32 an_pack2(float low, float high)
{
    return shim_bf16(low) | shim_bf16(high) << 16;
}
/* Copies are complete at once, which a kernel that waits for them cannot tell from any other time. */
static inline void an_copy_8(an_u16 *to, const an_u16 *from, bool in)
{
    *(uint4 *)to = in ? *(const uint4 *)from : uint4{0, 0, 0, 0};
}
static inline void an_copy_commit() {}
template <int LEFT> static inline void an_await_copies() {}

/* mma.m16n8k16 (PTX manual): c (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1); a: the same of 16 x 8 blocks, k of 0-7 and 8-15, packed; b (k, n):
 * (2t, g), (2t+1, g) of each. */
struct shim_mma {
    float *c;
    const an_u32 *a;
    an_u32 b[2];
    SHIM_UNSEEN static float half_of(an_u32 pair, int which)
    {
        return as_type<float>(which ? pair & 0xffff0000u : pair << 16);
    }
    SHIM_UNSEEN static void act(void *const mine[SHIM_LANES])
    {
        float a[16][16], b[16][8];
        for (int l = 0; l < SHIM_LANES; l++) {
            const shim_mma *me = static_cast<shim_mma *>(mine[l]);
            const int g = l >> 2, t = (l & 3) * 2;
            for (int i = 0; i < 8; i++)
                a[g + 8 * (i >> 1 & 1)][t + (i & 1) + 8 * (i >> 2)] = half_of(me->a[i >> 1], i & 1);
            for (int i = 0; i < 4; i++) b[t + (i & 1) + 8 * (i >> 1)][g] = half_of(me->b[i >> 1], i & 1);
        }
        for (int l = 0; l < SHIM_LANES; l++)
            for (int e = 0; e < 4; e++) {
                float *c = &static_cast<shim_mma *>(mine[l])->c[e];
                for (int k = 0; k < 16; k++) *c += a[(l >> 2) + 8 * (e >> 1)][k] * b[k][(l & 3) * 2 + (e & 1)];
            }
    }
};
SHIM_UNSEEN static inline void an_mma16(float *c, const an_u32 *a, an_u32 b0, an_u32 b1)
{
    shim_mma m = {c, a, {b0, b1}};
    shim_meet("mma", &m, m.act);
}
/* ldmatrix: lane 8 q + r has the address of row r of block q; this lane gets (g, 2t) (g, 2t+1) of each, transposed (2t, g) (2t+1, g). */
struct shim_ldmatrix {
    an_u32 *x;
    const an_u16 *row;
    bool transposed;
    SHIM_UNSEEN static void act(void *const mine[SHIM_LANES])
    {
        for (int l = 0; l < SHIM_LANES; l++) {
            const an_u16 *row = static_cast<shim_ldmatrix *>(mine[l])->row;
            if ((uintptr_t)row % 16) __builtin_trap();
            shim_subgroup_access(row, 16, 0);
        }
        for (int l = 0; l < SHIM_LANES; l++) {
            const shim_ldmatrix *me = static_cast<shim_ldmatrix *>(mine[l]);
            const int g = l >> 2, t = (l & 3) * 2;
            for (int q = 0; q < 4; q++) {
                an_u32 pair[2];
                for (int e = 0; e < 2; e++)
                    pair[e] = static_cast<shim_ldmatrix *>(mine[8 * q + (me->transposed ? t + e : g)])
                                  ->row[me->transposed ? g : t + e];
                me->x[q] = pair[0] | pair[1] << 16;
            }
        }
    }
};
#define AN_LDMATRIX_X4(x, p, trans)                                                                                    \
    do {                                                                                                               \
        shim_ldmatrix shim_m = {x, p, sizeof(trans) > 1};                                                              \
        shim_meet("ldmatrix", &shim_m, shim_m.act);                                                                    \
    } while (0)
