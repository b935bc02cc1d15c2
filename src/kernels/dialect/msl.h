/* msl.h: the kernel dialect on Apple GPUs: text in front of every template body, compiled by Metal from MSL 3.0 on.
 *
 * Owns:      what the dialect's macros and functions are in the Metal shading language: entry, address spaces, ids, barriers, shuffles, bits,
 *            fragments.
 * Does not:  use anything newer than MSL 3.0, except bfloat matrices where __METAL_VERSION__ says 3.1.
 * Invariant: defines the same names as cuda.h; docs/gpu-dialect.md lists them. AN_MUL (the multiplication kind) is defined before.
 *
 * AN_PLAIN 1 is for GPUs without matrix instructions: each lane holds its rows and columns in registers and multiplies one by one, in the
 * same order. AN_SHUFFLES 0, beside it, is for those that cannot shuffle within a subgroup either: lanes exchange values in threadgroup memory.
 *
 * A fragment is a set of simdgroup_matrix<T, 8, 8>: A is 16 x 16, B is 16 x 8, C is 16 x 8 in f32. Only load, store and multiply are used:
 * which lane holds which element is undocumented, so rows are scaled by multiplying with a diagonal matrix. */
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
#pragma METAL fp contract(off)

#define AN_KIND_F32  0
#define AN_KIND_TF32 1 /* Apple has no such unit: f32 */
#define AN_KIND_BF16 2
#define AN_KIND_F16  3

typedef uint an_u32;
typedef ushort an_u16;
typedef ulong an_u64;
typedef long an_i64;

/* ---- entry, address spaces, ids */
#define AN_KERNEL(name, threads) [[kernel, max_total_threads_per_threadgroup(threads)]] void name
#define AN_IN(i, type, name)     device const type *name [[buffer(i)]]
#define AN_OUT(i, type, name)    device type *name [[buffer(i)]]
#define AN_ARGS(i, type, name)   constant type &name [[buffer(i)]]
#define AN_ARGS_REF(type)        constant type & /* AN_ARGS handed to a function */
#define AN_IDS                                                                                                         \
    , uint3 an_block [[threadgroup_position_in_grid]], uint an_thread [[thread_index_in_threadgroup]],                 \
        uint an_lane [[thread_index_in_simdgroup]], uint an_subgroup [[simdgroup_index_in_threadgroup]]

#define AN_DEVICE   device
#define AN_SHARED   threadgroup
#define AN_PRIVATE  thread
#define AN_CONSTANT constant
#ifndef AN_SHARED_STORAGE /* a C++ compiler that checks or runs this text needs `static` here */
#define AN_SHARED_STORAGE threadgroup
#endif
/* Aligned for vector stores. */
#define AN_SHARED_ARRAY(type, name, n) alignas(16) AN_SHARED_STORAGE type name[n]

#define AN_BARRIER()          threadgroup_barrier(mem_flags::mem_threadgroup)
#define AN_DEVICE_BARRIER()   threadgroup_barrier(mem_flags::mem_device) /* orders device memory within a block */
#define AN_SUBGROUP_DEVICE_BARRIER() simdgroup_barrier(mem_flags::mem_device)
#define AN_SUBGROUP_BARRIER() simdgroup_barrier(mem_flags::mem_threadgroup)
#define AN_UNROLL             _Pragma("unroll")

/* ---- scalars: what base/exact.h is written in, and what fast kernels use in its place */
#define AN_FN                static inline __attribute__((always_inline))
#define AN_FMA(a, b, c)      fma(a, b, c)
#define AN_F2U(x)            as_type<uint>(x)
#define AN_U2F(x)            as_type<float>(x)
#define AN_MULHI_U32(a, b)   mulhi(a, b)
#define AN_RINT(x)           rint(x)
#define AN_SQRT(x)           precise::sqrt(x)
#define AN_DIV(a, b)         ((a) / (b)) /* correctly rounded: compiled with mathMode safe */
#define AN_FAST_EXP(x)       fast::exp(x)
#define AN_FAST_LOG(x)       fast::log(x)
#define AN_INF               as_type<float>(0x7f800000u)
#define AN_FLT_MAX           as_type<float>(0x7f7fffffu)

AN_FN float an_f16_value(an_u32 bits) { return float(as_type<half>(ushort(bits))); }
AN_FN an_u32 an_f16_bits(float x) { return as_type<ushort>(half(x)); }
#define an_bf16_bits(x) an_f32_to_bf16(x) /* of exact.h */
#define an_tf32(x)      (x)

#ifndef AN_PLAIN
#define AN_PLAIN 0
#endif
#ifndef AN_SHUFFLES
#define AN_SHUFFLES 1
#endif

/* Of CUDA: launches that begin before the one before them has ended. */
#define AN_LET_NEXT()
#define AN_AWAIT()

/* ---- the lane of a function: a function that needs it has the parameter AN_LANES and passes it on as AN_HAND_LANES; a kernel makes it by
 * AN_KNOW_LANES, or by AN_MEET_LANES where lanes shuffle. Empty but on plain GPUs: in MSL only a kernel is given its lane. */
#if AN_PLAIN
struct an_lanes {
    threadgroup an_u32 *word; /* 32 words of the subgroup's own, without shuffles */
    int lane;
};
#define AN_LANES         , an_lanes an_l
#define AN_HAND_LANES    , an_l
#define AN_KNOW_LANES()                                                                                                \
    an_lanes an_l = {0, int(an_lane)};                                                                                 \
    (void)an_l
#else
#define AN_LANES
#define AN_HAND_LANES
#define AN_KNOW_LANES()
#endif
#if AN_SHUFFLES
#define AN_MEET_LANES(threads) AN_KNOW_LANES()
#define an_shuffle(x, lane)  simd_shuffle(x, ushort(lane))
#define an_shuffle_xor(x, m) simd_shuffle_xor(x, ushort(m))
#else
#define AN_MEET_LANES(threads)                                                                                         \
    AN_SHARED_STORAGE an_u32 an_met[threads];                                                                          \
    an_lanes an_l = {an_met + 32u * an_subgroup, int(an_lane)}
#define an_shuffle(x, lane)  an_exchange(x, lane, an_l)
#define an_shuffle_xor(x, m) an_exchange(x, an_l.lane ^ (m), an_l)
/* x of another lane. The second barrier: the next exchange's write must not come before all have read. */
AN_FN an_u32 an_exchange(an_u32 x, int lane, an_lanes an_l)
{
    an_l.word[an_l.lane] = x;
    AN_SUBGROUP_BARRIER();
    an_u32 y = an_l.word[lane];
    AN_SUBGROUP_BARRIER();
    return y;
}
AN_FN int an_exchange(int x, int lane, an_lanes an_l) { return int(an_exchange(an_u32(x), lane, an_l)); }
AN_FN float an_exchange(float x, int lane, an_lanes an_l) { return as_type<float>(an_exchange(as_type<uint>(x), lane, an_l)); }
#endif

/* ---- an_mul: what a tile in threadgroup memory holds. Before MSL 3.1 there is no bfloat: values are rounded to bf16 and kept as f32,
 * which gives the same results. */
#if AN_PLAIN
typedef float an_mul;
#elif AN_MUL == AN_KIND_F16
typedef half an_mul;
#elif AN_MUL == AN_KIND_BF16 && __METAL_VERSION__ >= 310
typedef bfloat an_mul;
#else
typedef float an_mul;
#endif
/* An operand from 16 bits of its format, and from an f32 of its value. */
AN_FN void an_set_mul(thread float &to, an_u32 bits, float value) { to = value; }
AN_FN void an_set_mul(thread half &to, an_u32 bits, float value) { to = as_type<half>(ushort(bits)); }
#if __METAL_VERSION__ >= 310
AN_FN void an_set_mul(thread bfloat &to, an_u32 bits, float value) { to = as_type<bfloat>(ushort(bits)); }
#endif

/* x[0..7] = p[0..7] of a 16-byte aligned address, by vectors of the element's own type; f32, or bits of 16. */
AN_FN void an_read8(thread float *x, device const float *p)
{
    float4 a = *(device const float4 *)p, b = *(device const float4 *)(p + 4);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
AN_FN void an_read8(thread ushort *x, device const ushort *p)
{
    ushort4 a = *(device const ushort4 *)p, b = *(device const ushort4 *)(p + 4);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}
/* p[0..7] = x[0..7] */
AN_FN void an_write8(threadgroup an_mul *p, thread const an_mul *x)
{
    AN_UNROLL for (int i = 0; i < 8; i += 4) *(threadgroup vec<an_mul, 4> *)(p + i) = vec<an_mul, 4>{x[i], x[i + 1], x[i + 2], x[i + 3]};
}

#if AN_PLAIN
/* ---- fragments: each lane holds the two full rows of A and the two full columns of B that its four sums need; g = lane / 4, t = lane % 4 */
struct an_frag_a {
    float x[2][16]; /* rows g, g+8 */
};
struct an_frag_b {
    float x[16][2]; /* columns 2t, 2t+1 */
};
struct an_frag_c {
    float x[4]; /* (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1) */
};
AN_FN void an_zero_c(thread an_frag_c &c) { c.x[0] = c.x[1] = c.x[2] = c.x[3] = 0.0f; }
AN_FN void an_store_c(threadgroup float *p, int ld, thread const an_frag_c &c AN_LANES) /* p[i*ld + j] = c[i][j] */
{
    int lane = an_l.lane;
    AN_UNROLL for (int i = 0; i < 4; i++) p[(lane / 4 + i / 2 * 8) * ld + lane % 4 * 2 + i % 2] = c.x[i];
}
/* c[i][j] *= factor i; the 16 factors are the diagonals of two consecutive 8 x 8 matrices. */
AN_FN void an_scale_rows(thread an_frag_c &c, threadgroup const float *diagonals AN_LANES)
{
    int g = an_l.lane / 4;
    AN_UNROLL for (int i = 0; i < 4; i++) c.x[i] *= diagonals[g * 9 + i / 2 * 64];
}
AN_FN void an_load_a_strided(thread an_frag_a &a, threadgroup const float *p, int row, int col AN_LANES)
{
    int g = an_l.lane / 4;
    AN_UNROLL for (int k = 0; k < 16; k++)
        AN_UNROLL for (int r = 0; r < 2; r++) a.x[r][k] = p[(g + 8 * r) * row + k * col];
}
AN_FN void an_load_b_strided(thread an_frag_b &b, threadgroup const float *p, int row, int col AN_LANES)
{
    int t = an_l.lane % 4;
    AN_UNROLL for (int k = 0; k < 16; k++)
        AN_UNROLL for (int j = 0; j < 2; j++) b.x[k][j] = p[k * row + (2 * t + j) * col];
}
AN_FN void an_load_a(thread an_frag_a &a, threadgroup const float *p, int ld AN_LANES) { an_load_a_strided(a, p, ld, 1 AN_HAND_LANES); }  /* a[i][k] = p[i*ld + k] */
AN_FN void an_load_at(thread an_frag_a &a, threadgroup const float *p, int ld AN_LANES) { an_load_a_strided(a, p, 1, ld AN_HAND_LANES); } /* a[i][k] = p[k*ld + i] */
AN_FN void an_load_b(thread an_frag_b &b, threadgroup const float *p, int ld AN_LANES) { an_load_b_strided(b, p, ld, 1 AN_HAND_LANES); }  /* b[k][j] = p[k*ld + j] */
AN_FN void an_load_bt(thread an_frag_b &b, threadgroup const float *p, int ld AN_LANES) { an_load_b_strided(b, p, 1, ld AN_HAND_LANES); } /* b[k][j] = p[j*ld + k] */
AN_FN void an_mma(thread an_frag_c &c, thread const an_frag_a &a, thread const an_frag_b &b)
{
    AN_UNROLL for (int k = 0; k < 16; k++)
        AN_UNROLL for (int i = 0; i < 4; i++) c.x[i] = AN_FMA(a.x[i / 2][k], b.x[k][i % 2], c.x[i]);
}
#else
/* ---- fragments: blocks of 8 x 8 */
typedef simdgroup_matrix<an_mul, 8, 8> an_matrix;
struct an_frag_a {
    an_matrix x[2][2]; /* [rows / 8][k / 8] */
};
struct an_frag_b {
    an_matrix x[2]; /* [k / 8] */
};
struct an_frag_c {
    simdgroup_matrix<float, 8, 8> x[2]; /* [rows / 8] */
};

AN_FN void an_zero_c(thread an_frag_c &c)
{
    c.x[0] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    c.x[1] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
/* p[i*ld + j] = c[i][j] */
AN_FN void an_store_c(threadgroup float *p, int ld, thread const an_frag_c &c)
{
    simdgroup_store(c.x[0], p, ulong(ld));
    simdgroup_store(c.x[1], p + 8 * ld, ulong(ld));
}
/* c[i][j] *= factor i; the 16 factors are the diagonals of two consecutive 8 x 8 matrices. */
AN_FN void an_scale_rows(thread an_frag_c &c, threadgroup const float *diagonals)
{
    AN_UNROLL for (int r = 0; r < 2; r++) {
        simdgroup_matrix<float, 8, 8> diagonal;
        simdgroup_load(diagonal, diagonals + 64 * r, 8ul);
        simdgroup_multiply(c.x[r], diagonal, c.x[r]);
    }
}
/* From threadgroup memory, or from device memory where it holds an_mul. */
template <class pointer>
AN_FN void an_load_a(thread an_frag_a &a, pointer p, int ld) /* a[i][k] = p[i*ld + k] */
{
    AN_UNROLL for (int r = 0; r < 2; r++)
        AN_UNROLL for (int k = 0; k < 2; k++) simdgroup_load(a.x[r][k], p + 8 * r * ld + 8 * k, ulong(ld));
}
template <class pointer>
AN_FN void an_load_at(thread an_frag_a &a, pointer p, int ld) /* a[i][k] = p[k*ld + i] */
{
    AN_UNROLL for (int r = 0; r < 2; r++)
        AN_UNROLL for (int k = 0; k < 2; k++)
            simdgroup_load(a.x[r][k], p + 8 * k * ld + 8 * r, ulong(ld), ulong2(0), true);
}
template <class pointer>
AN_FN void an_load_b(thread an_frag_b &b, pointer p, int ld) /* b[k][j] = p[k*ld + j] */
{
    AN_UNROLL for (int k = 0; k < 2; k++) simdgroup_load(b.x[k], p + 8 * k * ld, ulong(ld));
}
template <class pointer>
AN_FN void an_load_bt(thread an_frag_b &b, pointer p, int ld) /* b[k][j] = p[j*ld + k] */
{
    AN_UNROLL for (int k = 0; k < 2; k++) simdgroup_load(b.x[k], p + 8 * k, ulong(ld), ulong2(0), true);
}
AN_FN void an_mma(thread an_frag_c &c, thread const an_frag_a &a, thread const an_frag_b &b)
{
    AN_UNROLL for (int k = 0; k < 2; k++)
        AN_UNROLL for (int r = 0; r < 2; r++) simdgroup_multiply_accumulate(c.x[r], a.x[r][k], b.x[k], c.x[r]);
}
#endif
