/* cuda_warp.h: the CUDA that kernels/gpu/attn_short.inc and attn_tf32_hopper.inc are written in, for the CPU shim: in place of dialect/cuda.h, and of the functions that
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
#define an_thread       ((int)shim_thread())
#define an_lane         (an_thread & 31)
#define an_subgroup     (an_thread >> 5)
#define AN_BARRIER()    shim_group_barrier(SHIM_THREADGROUP)
#define __syncwarp()    shim_subgroup_barrier(SHIM_THREADGROUP)
#define AN_FLT_MAX      3.402823466e38f
#define AN_INF          __builtin_inff()
#define AN_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define AN_U2F(x)       as_type<float>(an_u32(x))
#define AN_F2U(x)       as_type<an_u32>(float(x))
#define AN_IDS
#define fmaxf            __builtin_fmaxf
#define log2f            __builtin_log2f
#define an_power_of_2(x) __builtin_exp2f(x)
struct shim_block {
    unsigned x, y, z;
};
#define blockIdx                                                                                                       \
    shim_block                                                                                                         \
    {                                                                                                                  \
        shim_group(0), shim_group(1), shim_group(2)                                                                    \
    }
#define an_block blockIdx

struct alignas(16) uint4 {
    an_u32 x, y, z, w;
};
struct float2 {
    float x, y;
};
#define float4 cuda_float4 /* metal_stdlib has one, of another kind */
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint4 make_uint4(an_u32 x, an_u32 y, an_u32 z, an_u32 w)
{
    return uint4{x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return float2{x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
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
#define an_shuffle(x, lane) simd_shuffle(x, ushort(lane))
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

/* ---- attn_tf32_hopper.inc: shared memory by address, and wgmma, which is complete at once. Both operands must be rounded to tf32. */
SHIM_UNSEEN static inline float an_tf32(float x) /* to nearest, ties away from zero */
{
    return x != x ? x : as_type<float>((as_type<an_u32>(x) + 0x1000u) & 0xffffe000u);
}
#define an_rounded(x) an_tf32(x)
static inline an_u32 an_shared_base()
{
    return 0;
}
static inline float *shim_at(an_u32 at)
{
    return (float *)an_dynamic + at / 4;
}
static inline void an_write4(an_u32 at, float x, float y, float z, float w)
{
    float *p = shim_at(at);
    if (at % 16) __builtin_trap();
    p[0] = x, p[1] = y, p[2] = z, p[3] = w;
}
static inline void an_write1(an_u32 at, float x)
{
    *shim_at(at) = x;
}
static inline float2 an_read2(an_u32 at)
{
    return make_float2(shim_at(at)[0], shim_at(at)[1]);
}
#define an_show_to_wgmma() ((void)0)
#define an_hold(c)         ((void)0)
#define an_hold_head(c)    ((void)0)
#define an_hold_dq(c)      ((void)0)
#define an_hold_left(p)    ((void)0)
template <int LEFT> static inline void an_wgmma_wait() {}
static inline float shim_rounded(float x)
{
    if (x == x && (as_type<an_u32>(x) & 0x1fffu)) __builtin_trap();
    return x;
}
/* Column k of row r of a tile whose chunks have `rows` rows of 32 columns: wgmma's 128-byte swizzle. */
static inline float shim_element(an_u32 tile, int rows, int r, int k)
{
    return shim_rounded(*shim_at(tile + k / 32 * rows * 128 + r * 128 + (((k % 32 / 4) ^ (r & 7)) << 4) + k % 4 * 4));
}
static inline void an_begin_dq(float (*c)[4], an_u32 left, an_u32 right)
{
    for (int n = 0; n < 8; n++) {
        const int row = (an_subgroup & 3) * 16 + (an_lane >> 2) + 8 * (n >> 1 & 1),
                  column = 8 * (n >> 2) + (an_lane & 3) * 2 + (n & 1);
        float sum = 0;
        for (int k = 0; k < 128; k++) sum += shim_element(left, 64, row, k) * shim_element(right, 32, column, k);
        c[n >> 2][n & 3] = sum;
    }
}
static inline void an_begin_abt(float (*c)[4], an_u32 left, an_u32 right, int steps)
{
    for (int n = 0; n < 16; n++) {
        const int row = (an_subgroup & 3) * 16 + (an_lane >> 2) + 8 * (n >> 1 & 1),
                  column = 8 * (n >> 2) + (an_lane & 3) * 2 + (n & 1);
        float sum = 0;
        for (int k = 0; k < 8 * steps; k++) sum += shim_element(left, 64, row, k) * shim_element(right, 32, column, k);
        c[n >> 2][n & 3] = sum;
    }
}
/* A operand: (g, k = t) (g + 8, t) (g, t + 4) (g + 8, t + 4) of each eight k. */
#define an_begin_pb(c, p, turned)                                                                                      \
    for (int shim_k = 0; shim_k < 32; shim_k++)                                                                        \
        for (int shim_half = 0; shim_half < 2; shim_half++) {                                                          \
            const float shim_a = shim_rounded(simd_shuffle(AN_U2F(p[shim_k >> 3][(shim_k >> 2 & 1) * 2 + shim_half]),  \
                                                           ushort((an_lane & 28) | (shim_k & 3))));                    \
            for (int shim_j = 0; shim_j < AN_WIDTH / 8; shim_j++)                                                      \
                for (int shim_e = 0; shim_e < 2; shim_e++)                                                             \
                    c[shim_j][2 * shim_half + shim_e] +=                                                               \
                        shim_a * shim_element(turned, AN_WIDTH, 8 * shim_j + (an_lane & 3) * 2 + shim_e, shim_k);      \
        }
