/* spec.h: what a hand-written template computes, as data: shapes, strides, dtypes. The planner fills a spec, a device
 * runs it.
 *
 * Strides are in elements. Storage dtypes are AN_F32, AN_BF16, AN_F16. `args` lists the pointers a device gets, in
 * order; NULL for what is absent.
 */
#ifndef AN_SPEC_H
#define AN_SPEC_H

#include "base/base.h"

/* C[b,m,n] = sum_k A[b,m,k] * B[b,k,n], k ascending in one fused multiply-add chain from 0 for f32 (so the blocking is
 * invisible). args: A, B, C. Any strides for A and B (transposes and broadcasts are strides; a stride of 0 is allowed);
 * C has unit stride in n. mul_dtype AN_BF16: both operands are rounded to bf16 as they are packed and multiplied by the
 * dot product, sums in f32. `splits` > 1 cuts k into that many equal chains (last shorter), summed in order: set by the
 * planner as a pure function of shape. With an epilogue C may be NULL (the epilogue stores) and nothing is written to C
 * here. */
typedef struct an_gemm_spec {
    int32_t m, n, k;
    int32_t nb[3]; /* batch extents, outermost first; 1 where unused */
    int64_t a_b[3], a_m, a_k;
    int64_t b_b[3], b_k, b_n;
    int64_t c_b[3], c_m;
    uint8_t a_dtype, b_dtype, c_dtype; /* storage */
    uint8_t mul_dtype;                 /* AN_F32 or AN_BF16 */
    uint8_t accumulate;                /* C += product (f32 add after the chain), not with an epilogue */
    int32_t splits;                    /* 0 or 1: one chain */
} an_gemm_spec;

/* Softmax attention over strided views; d contiguous. q,o: [B,H,T,D]; k,v: [B,H,S,D]; lse: [B,H,T] f32 contiguous, the
 * row maximum plus log of the sum (natural log). causal: key j is visible to query i when j <= i + (S - T). Dropout
 * acts on the probabilities, kept when an_rng_uniform(rng[0], stream, index) >= p, index = (((rng[1] + b)*H + h)*T +
 * i)*S + j, and scaled by 1/(1-p). rng points to two words {key, global index of sample 0}; NULL when p is 0. Keys are
 * taken in blocks whose size is part of the spec (AN_ATTN_KEYS), ascending; memory is linear in T. forward  args: q, k,
 * v, rng, o, lse backward args: q, k, v, o, lse, do, rng, dq, dk, dv   (deterministic: no atomics, fixed order;
 * dq/dk/dv fully written) n_keys (may be NULL in args slot after the others: args[6] forward): device scalar i32, the
 * keys in use n <= S (KV-cache decoding); then key j is visible to query i when j <= i + (n - T). */
#define AN_ATTN_KEYS 64
typedef struct an_attn_spec {
    int32_t B, H, T, S, D; /* D <= 256 */
    float scale;
    uint8_t causal, dtype; /* storage of q k v o and their gradients: AN_F32 or AN_BF16; arithmetic and sums are f32,
                              products by mul_dtype */
    uint8_t mul_dtype;
    float dropout;
    uint32_t stream;
    int64_t q[3], k[3], v[3], o[3]; /* strides of (b, h, t) */
    int64_t do_[3], dq[3], dk[3], dv[3];
} an_attn_spec;

/* out[table, :] += sum over i with index[i] == row of src[i, :], i ascending: the embedding gradient, without atomics.
 * args: index (i32 [n]), src ([n, c], row stride), out ([rows, c] f32, fully written: zero first unless accumulate).
 * Out-of-range ids are skipped; the graph clamps those that nobody has looked at. */
typedef struct an_scatter_spec {
    int64_t n, rows, c, src_stride, out_stride;
    uint8_t src_dtype, accumulate;
} an_scatter_spec;

/* dst[o, *index, :] = src[o, :] in a contiguous dst [outer, rows, inner] whose other rows stay; nothing happens when
 * the index is outside [0, rows). args: index (i32), src (o apart by `stride`, inner contiguous), dst. Elements of 1,
 * 2, 4 or 8 bytes are moved, not computed. */
typedef struct an_put_spec {
    int64_t outer, rows, inner, stride;
    uint8_t bytes; /* of an element */
} an_put_spec;

#endif
