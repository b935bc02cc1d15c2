/* cuda.h: the kernel dialect on NVIDIA GPUs: text in front of every template body, compiled by NVRTC or nvcc (sm_80 and up).
 *
 * Owns:      what the dialect's macros and functions are in CUDA C++: entry, address spaces, ids, barriers, shuffles, bits, fragments.
 * Does not:  include any header (NVRTC has none at hand), allocate, or know a template.
 * Invariant: defines the same names as msl.h; docs/gpu-dialect.md lists them. AN_MUL (the multiplication kind) is defined before.
 *
 * Fragments of one subgroup (a warp): A is 16 x 16, B is 16 x 8, C is 16 x 8 in f32. Templates only load, store, multiply and scale them and
 * never ask which lane holds which element, so that the same body is right on a GPU whose layout is not documented.
 * The layout here is that of mma.m16n8k16 and mma.m16n8k8 in the PTX manual; g = lane / 4, t = lane % 4. */
#pragma nv_diag_suppress 177 /* unused functions: no body uses all of them */

#define AN_KIND_F32  0 /* exact: fused multiply-adds in ascending k */
#define AN_KIND_TF32 1
#define AN_KIND_BF16 2
#define AN_KIND_F16  3

typedef unsigned int an_u32;
typedef unsigned short an_u16;
typedef unsigned long long an_u64;
typedef long long an_i64;

/* ---- entry, address spaces, ids */
/* AN_KERNEL(name, threads of a block [, blocks that a multiprocessor must hold at a time]) */
#define AN_KERNEL(name, ...)     extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name
/* AN_FOLLOW: a launch may begin while the one before it still runs (programmatic dependent launch, sm_90). AN_LET_NEXT() allows the next launch
 * to begin; after AN_AWAIT() everything launched before has ended and its results can be read. Before AN_AWAIT() a kernel may only read what no
 * launch of the plan writes. Pointers are not __restrict__: the compiler might move a load in front of the wait. */
#ifdef AN_FOLLOW
#define AN_IN(i, type, name)     const type *name
#define AN_OUT(i, type, name)    type *name
#define AN_LET_NEXT()            asm volatile("griddepcontrol.launch_dependents;" : : : "memory")
#define AN_AWAIT()               asm volatile("griddepcontrol.wait;" : : : "memory")
#else
#define AN_IN(i, type, name)     const type *__restrict__ name
#define AN_OUT(i, type, name)    type *__restrict__ name
#define AN_LET_NEXT()
#define AN_AWAIT()
#endif
#define AN_ARGS(i, type, name)   const type name
#define AN_ARGS_REF(type)        const type & /* AN_ARGS handed to a function */
#define AN_IDS /* built in; MSL wants them as arguments */

#define AN_DEVICE
#define AN_SHARED
#define AN_PRIVATE
#define AN_CONSTANT __device__ const
/* 16-byte aligned, for vector stores and ldmatrix. */
#define AN_SHARED_ARRAY(type, name, n)                                                                                 \
    __shared__ uint4 name##_raw[((n) * sizeof(type) + 15) / 16];                                                       \
    type *name = (type *)name##_raw

#define an_block    blockIdx /* .x .y .z */
#define an_thread   ((int)threadIdx.x)
#define an_lane     ((int)(threadIdx.x & 31))
#define an_subgroup ((int)(threadIdx.x >> 5))

#define AN_BARRIER()          __syncthreads()
#define AN_DEVICE_BARRIER()   __syncthreads() /* orders device memory within a block */
#define AN_SUBGROUP_DEVICE_BARRIER() __syncwarp()
#define AN_SUBGROUP_BARRIER() __syncwarp()
#define AN_UNROLL             _Pragma("unroll")

/* ---- scalars: what base/exact.h is written in, and what fast kernels use in its place */
#define AN_FN               static __device__ __forceinline__
#define AN_FMA(a, b, c)     __fmaf_rn(a, b, c)
#define AN_F2U(x)           __float_as_uint(x)
#define AN_U2F(x)           __uint_as_float(x)
#define AN_MULHI_U32(a, b)  __umulhi(a, b)
#define AN_RINT(x)          rintf(x)
#define AN_SQRT(x)          __fsqrt_rn(x)
#define AN_DIV(a, b)        __fdiv_rn(a, b)
#define AN_FAST_EXP(x)      __expf(x)
#define AN_FAST_LOG(x)      __logf(x)
#define AN_INF              __uint_as_float(0x7f800000u)
#define AN_FLT_MAX          __uint_as_float(0x7f7fffffu)
#define an_shuffle(x, lane)  __shfl_sync(0xffffffffu, x, lane)
#define an_shuffle_xor(x, m) __shfl_xor_sync(0xffffffffu, x, m)

/* Every function can read its lane here, so that the parameter by which msl.h passes it on is empty. */
#define AN_LANES
#define AN_HAND_LANES
#define AN_KNOW_LANES()
#define AN_MEET_LANES(threads)

/* x[0..7] = p[0..7] of a 16-byte aligned address, 16 bytes at a time: f32, or bits of 16. */
AN_FN void an_read8(float *x, const float *p)
{
    uint4 a = ((const uint4 *)p)[0], b = ((const uint4 *)p)[1];
    x[0] = AN_U2F(a.x), x[1] = AN_U2F(a.y), x[2] = AN_U2F(a.z), x[3] = AN_U2F(a.w);
    x[4] = AN_U2F(b.x), x[5] = AN_U2F(b.y), x[6] = AN_U2F(b.z), x[7] = AN_U2F(b.w);
}
AN_FN void an_read8(an_u16 *x, const an_u16 *p)
{
    uint4 a = *(const uint4 *)p;
    x[0] = (an_u16)a.x, x[1] = (an_u16)(a.x >> 16), x[2] = (an_u16)a.y, x[3] = (an_u16)(a.y >> 16);
    x[4] = (an_u16)a.z, x[5] = (an_u16)(a.z >> 16), x[6] = (an_u16)a.w, x[7] = (an_u16)(a.w >> 16);
}
/* p[0..7] = x[0..7] */
AN_FN void an_write8(float *p, const float *x)
{
    uint4 a, b;
    a.x = AN_F2U(x[0]), a.y = AN_F2U(x[1]), a.z = AN_F2U(x[2]), a.w = AN_F2U(x[3]);
    b.x = AN_F2U(x[4]), b.y = AN_F2U(x[5]), b.z = AN_F2U(x[6]), b.w = AN_F2U(x[7]);
    ((uint4 *)p)[0] = a, ((uint4 *)p)[1] = b;
}
AN_FN void an_write8(an_u16 *p, const an_u16 *x)
{
    uint4 a;
    a.x = x[0] | (an_u32)x[1] << 16, a.y = x[2] | (an_u32)x[3] << 16, a.z = x[4] | (an_u32)x[5] << 16, a.w = x[6] | (an_u32)x[7] << 16;
    *(uint4 *)p = a;
}
/* An operand from 16 bits of its format, and from an f32 of its value. */
AN_FN void an_set_mul(float &to, an_u32 bits, float value) { to = value; }
AN_FN void an_set_mul(an_u16 &to, an_u32 bits, float value) { to = (an_u16)bits; }

/* Conversions: exact.h writes them in integer operations; here they are instructions with the same results. */
AN_FN float an_f16_value(an_u32 bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((an_u16)bits));
    return x;
}
AN_FN an_u32 an_f16_bits(float x)
{
    an_u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
AN_FN an_u32 an_bf16_bits(float x)
{
    an_u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
/* x rounded to bf16: the upper half of a pair whose lower half is 0, in one instruction; a conversion of one number takes the unit of exp. */
AN_FN float an_bf16_round(float x)
{
    an_u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
    return __uint_as_float(bits);
}
AN_FN float an_tf32(float x)
{
    an_u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}

/* ldmatrix reads 8 x 8 blocks of 16-bit elements; lanes 8q..8q+7 give the addresses of the rows of block q, which must lie on 16 bytes
 * (AN_LD rounds row lengths so). With .trans each block arrives transposed. */
#define AN_LDMATRIX_X4(x, p, trans)                                                                                    \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];"                              \
                 : "=r"((x)[0]), "=r"((x)[1]), "=r"((x)[2]), "=r"((x)[3])                                              \
                 : "r"((an_u32)__cvta_generic_to_shared(p))                                                            \
                 : "memory")

/* ---- an_mul: what a tile in shared memory holds */
#if AN_MUL == AN_KIND_F32 || AN_MUL == AN_KIND_TF32
typedef float an_mul;
#else
typedef an_u16 an_mul;
#endif

/* ---- C: x = (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1), whatever the kind of the operands */
struct an_frag_c {
    float x[4];
};
AN_FN void an_zero_c(an_frag_c &c) { c.x[0] = c.x[1] = c.x[2] = c.x[3] = 0.0f; }
/* p[i*ld + j] = c[i][j] */
AN_FN void an_store_c(float *p, int ld, const an_frag_c &c)
{
    p += (an_lane >> 2) * ld + (an_lane & 3) * 2;
    *(float2 *)p = make_float2(c.x[0], c.x[1]);
    *(float2 *)(p + 8 * ld) = make_float2(c.x[2], c.x[3]);
}
/* c[i][j] *= factor i; the 16 factors are the diagonals of two consecutive 8 x 8 matrices. */
AN_FN void an_scale_rows(an_frag_c &c, const float *diagonals)
{
    const float *f = diagonals + (an_lane >> 2) * 9;
    c.x[0] *= f[0], c.x[1] *= f[0];
    c.x[2] *= f[64], c.x[3] *= f[64];
}

#if AN_MUL == AN_KIND_F32
/* Tensor cores do not multiply f32 exactly: each lane holds the two full rows of A and the two full columns of B that its four sums need. */
struct an_frag_a {
    float x[2][16]; /* rows g, g+8 */
};
struct an_frag_b {
    float x[16][2]; /* columns 2t, 2t+1 */
};
AN_FN void an_load_a_strided(an_frag_a &a, const an_mul *p, int row, int col)
{
    AN_UNROLL for (int k = 0; k < 16; k++)
        AN_UNROLL for (int r = 0; r < 2; r++) a.x[r][k] = p[((an_lane >> 2) + 8 * r) * row + k * col];
}
AN_FN void an_load_b_strided(an_frag_b &b, const an_mul *p, int row, int col)
{
    AN_UNROLL for (int k = 0; k < 16; k++)
        AN_UNROLL for (int j = 0; j < 2; j++) b.x[k][j] = p[k * row + ((an_lane & 3) * 2 + j) * col];
}
AN_FN void an_mma(an_frag_c &c, const an_frag_a &a, const an_frag_b &b)
{
    AN_UNROLL for (int k = 0; k < 16; k++)
        AN_UNROLL for (int i = 0; i < 4; i++) c.x[i] = AN_FMA(a.x[i >> 1][k], b.x[k][i & 1], c.x[i]);
}
#elif AN_MUL == AN_KIND_TF32
struct an_frag_a {
    an_u32 x[8]; /* for k in 0..7, then 8..15: (g, t) (g+8, t) (g, t+4) (g+8, t+4) */
};
struct an_frag_b {
    an_u32 x[4]; /* for k in 0..7, then 8..15: (t, g) (t+4, g) */
};
AN_FN void an_load_a_strided(an_frag_a &a, const an_mul *p, int row, int col)
{
    AN_UNROLL for (int i = 0; i < 8; i++)
        a.x[i] = __float_as_uint(p[((an_lane >> 2) + 8 * (i & 1)) * row + ((an_lane & 3) + 4 * (i >> 1)) * col]);
}
AN_FN void an_load_b_strided(an_frag_b &b, const an_mul *p, int row, int col)
{
    AN_UNROLL for (int i = 0; i < 4; i++) b.x[i] = __float_as_uint(p[((an_lane & 3) + 4 * i) * row + (an_lane >> 2) * col]);
}
AN_FN void an_mma(an_frag_c &c, const an_frag_a &a, const an_frag_b &b)
{
    AN_UNROLL for (int h = 0; h < 2; h++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
            : "r"(a.x[4 * h]), "r"(a.x[4 * h + 1]), "r"(a.x[4 * h + 2]), "r"(a.x[4 * h + 3]), "r"(b.x[2 * h]),
              "r"(b.x[2 * h + 1]));
}
#endif

#if AN_MUL == AN_KIND_F32 || AN_MUL == AN_KIND_TF32
AN_FN void an_load_a(an_frag_a &a, const an_mul *p, int ld) { an_load_a_strided(a, p, ld, 1); }  /* a[i][k] = p[i*ld + k] */
AN_FN void an_load_at(an_frag_a &a, const an_mul *p, int ld) { an_load_a_strided(a, p, 1, ld); } /* a[i][k] = p[k*ld + i] */
AN_FN void an_load_b(an_frag_b &b, const an_mul *p, int ld) { an_load_b_strided(b, p, ld, 1); }  /* b[k][j] = p[k*ld + j] */
AN_FN void an_load_bt(an_frag_b &b, const an_mul *p, int ld) { an_load_b_strided(b, p, 1, ld); } /* b[k][j] = p[j*ld + k] */
#else
struct an_frag_a {
    an_u32 x[4]; /* blocks (rows 0-7, k 0-7) (rows 8-15, k 0-7) (rows 0-7, k 8-15) (rows 8-15, k 8-15) */
};
struct an_frag_b {
    an_u32 x[2]; /* blocks k 0-7, k 8-15 */
};
#define AN_LDMATRIX_X2(x, p, trans)                                                                                    \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0,%1}, [%2];"                                    \
                 : "=r"((x)[0]), "=r"((x)[1])                                                                          \
                 : "r"((an_u32)__cvta_generic_to_shared(p))                                                            \
                 : "memory")
AN_FN void an_load_a(an_frag_a &a, const an_mul *p, int ld) /* a[i][k] = p[i*ld + k] */
{
    p += (an_lane & 15) * ld + (an_lane >> 4) * 8;
    AN_LDMATRIX_X4(a.x, p, "");
}
AN_FN void an_load_at(an_frag_a &a, const an_mul *p, int ld) /* a[i][k] = p[k*ld + i] */
{
    p += ((an_lane & 7) + (an_lane >> 4) * 8) * ld + ((an_lane >> 3) & 1) * 8;
    AN_LDMATRIX_X4(a.x, p, ".trans");
}
AN_FN void an_load_b(an_frag_b &b, const an_mul *p, int ld) /* b[k][j] = p[k*ld + j] */
{
    p += (an_lane & 15) * ld;
    AN_LDMATRIX_X2(b.x, p, ".trans");
}
AN_FN void an_load_bt(an_frag_b &b, const an_mul *p, int ld) /* b[k][j] = p[j*ld + k] */
{
    p += (an_lane & 7) * ld + ((an_lane >> 3) & 1) * 8;
    AN_LDMATRIX_X2(b.x, p, "");
}
#if AN_MUL == AN_KIND_BF16
#define AN_MMA_PTX "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define AN_MMA_PTX "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
AN_FN void an_mma(an_frag_c &c, const an_frag_a &a, const an_frag_b &b)
{
    asm(AN_MMA_PTX " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}
#endif
