/* library_ops.h: what a hand-written kernel computes, as data: shapes, strides, dtypes. The planner fills a spec, a device
 * runs it. A spec also fixes the arithmetic, order of sums included, so that devices agree in f32 bit for bit. (Other sums:
 * ir/loop_kernel.h says where their order is fixed.)
 *
 * Strides are in elements. Storage dtypes are AN_F32, AN_BF16, AN_F16. `args` lists the pointers that a device gets, in
 * order; NULL for what is absent. */
#ifndef AN_IR_LIBRARY_OPS_H
#define AN_IR_LIBRARY_OPS_H

#include "base/base.h"

/* A convolution is a GEMM of which one operand, the window, is never stored: the matrix of positions by (tap row, tap
 * column, channel), read out of an image [images, in, in, pixel] as the operand is packed.
 *
 *                A                           B                              C
 *     forward    window of x [p, (r,s,c)]    w, strides of [(r,s,c), o]     y [p, o]
 *     dX         window of dy [p, (r,s,o)]   w as [groups, r, s, o, c]      dx [p, c]
 *     dW         dy, strides of [o, p]       window of x [p, (r,s,c)]       dw [o, (r,s,c)]
 *
 * Position p is (image, y, x) of [images, out, out]. Along each axis d its tap t reads the image at
 *     (p[d] * step + t * tap + start) / apart
 * and is zero where that is outside the image or `apart` does not divide it. Forward and for dW, step is the stride, tap
 * the dilation and apart 1. dX reads dy backwards: step is 1, tap the negative dilation, and apart the stride, because
 * neighbouring elements of dy belong to positions of x that are a stride apart.
 *
 * A group of channels is a member of the batch. With 1 x 1 taps, no padding and a stride of 1 there is no window. */
typedef enum an_window_of { AN_WINDOW_NONE, AN_WINDOW_A, AN_WINDOW_B } an_window_of;
typedef struct an_window_spec {
    int32_t of; /* an_window_of: that operand's strides are ignored, but for those of the batch */
    int32_t out[2], in[2], taps[2], channels; /* channels of the operand: of one group */
    int32_t step[2], tap[2], start[2], apart[2];
    int32_t pixel; /* elements from a pixel of the image to the next: channels of all groups */
    /* A library of the device runs it (an_target.library_conv). Then dX reads w as it lies, [o, r, s, c], and with 1 x 1 taps
     * there is a window too. */
    int32_t by_library;
    int32_t
        planes; /* an_planes_of_conv: which operands lie in planes, [images, channels, in, in], as images of PyTorch do */
} an_window_spec;

/* Only where an_target.conv_planes allows it. The strides of such an operand in an_gemm_spec are those of one that is channels last. */
enum an_planes_of_conv { AN_PLANES_IMAGE = 1, AN_PLANES_DY = 2 /* of dW: A */ };

/* C[b,m,n] = sum_k A[b,m,k] * B[b,k,n].      args: A, B, C
 *
 * Deterministic: for f32, k ascends in one chain of fused multiply-adds from 0, so the bits do not depend on blocking.
 * A, B        any strides: transposes and broadcasts are strides; 0 is allowed
 * C           unit stride in n. With an epilogue C may be NULL: the epilogue stores, and nothing is written to C here
 * mul_dtype   AN_BF16: both operands are rounded to bf16 as they are packed and multiplied by dot-product instructions,
 *             sums in f32
 * splits      > 1 cuts k into that many equal chains (the last shorter), summed in order (split-k). The planner sets it
 *             as a function of the shape alone */
typedef struct an_gemm_spec {
    int32_t m, n, k;
    int32_t nb[3]; /* batch extents, outermost first; 1 where unused */
    int64_t a_b[3], a_m, a_k;
    int64_t b_b[3], b_k, b_n;
    int64_t c_b[3], c_m;
    uint8_t a_dtype, b_dtype, c_dtype; /* storage */
    uint8_t mul_dtype;                 /* AN_F32 or AN_BF16 */
    int32_t splits;                    /* 0 or 1: one chain */
    an_window_spec window;
} an_gemm_spec;

/* The pixel along axis d of position `at` and tap `t`; -1: there is none. */
static inline int32_t an_window_along(const an_window_spec *w, int d, int32_t at, int32_t t)
{
    const int32_t z = at * w->step[d] + t * w->tap[d] + w->start[d], i = w->apart[d] > 1 ? z / w->apart[d] : z;
    return z < 0 || i >= w->in[d] || i * w->apart[d] != z ? -1 : i;
}

/* Softmax attention over strided views.
 *     q, o [B,H,T,D]    k, v [B,H/group,S,D]    d contiguous;  lse [B,H,T] f32, contiguous: row maximum + log of the sum
 *     forward args      q, k, v, rng, o, lse [, n_keys [, mask]]
 *     backward args     q, k, v, o, lse, do, rng, dq, dk, dv [, mask]
 *
 * group: head h of q, o and lse reads head h / group of k and v. dk and dv are sums over a group's queries: head by head, ascending, and
 * ascending in each.
 * causal: key j is visible to query i when j <= i + (S - T), with a window also only when j > i + (S - T) - window.
 * masked: a score is q k^T * scale, rounded, + mask[b,h,i,j] (f32, any strides, 0 among them), a row that only sees -inf is 0, and lse is
 * [B,H,2,T]: the rows' maxima, then the logarithms of the sums of exp(score - maximum), 0 for a row that only sees -inf. Added up they would
 * lose the second beside maxima of -1e4 or the most negative number.
 * The dropout mask acts on the probabilities: key j of query i is kept when an_rng_16(rng[0], stream, index, j) >=
 * an_rng_least_16(p), with
 *     index = (((rng[1] + b)*H + h)*T + i)*ceil(S / 4) + j / 4
 * and scaled by an_rng_keep_scale_16(p). rng points to two words {key, global index of sample 0}; NULL when p is 0.
 * Deterministic: keys are taken in ascending blocks of AN_ATTN_KEYS, which is part of the spec; the backward pass sums in a
 * fixed order without atomics and writes all of dq, dk and dv. Memory is linear in T.
 * n_keys (KV-cache decoding, may be NULL): a device scalar, i32, the keys in use n <= S; key j is then visible to query i
 * when j <= i + (n - T). */
#define AN_ATTN_KEYS 64
typedef struct an_attn_spec {
    int32_t B, H, T, S, D; /* D <= 256 */
    int32_t group;         /* heads of q for each of k and v; it divides H; 0 is 1 */
    float scale;
    uint8_t causal, dtype; /* storage of q k v o and their gradients: AN_F32 or AN_BF16; arithmetic and sums are f32,
                              products by mul_dtype */
    uint8_t mul_dtype;     /* AN_F16: q, k and v were float16, so a device may round factors to its 11 bits, in f32's
                              range; most multiply in f32 */
    uint8_t masked;
    float dropout;
    uint32_t stream;
    int32_t window;                 /* with causal; 0: none */
    int64_t q[3], k[3], v[3], o[3]; /* strides of (b, h, t) */
    int64_t do_[3], dq[3], dk[3], dv[3];
    int64_t mask[4]; /* strides of (b, h, i, j) */
} an_attn_spec;

static inline int32_t an_attn_group(const an_attn_spec *s)
{
    return s->group > 1 ? s->group : 1;
}

/* Which argument the mask is, forward and backward. */
enum { AN_ATTN_MASK = 7, AN_ATTN_GRAD_MASK = 10 };

/* out[table, :] += sum over i with index[i] == row of src[i, :], i ascending: the embedding gradient, without atomics.
 * CUDA outside exact mode adds partial sums of fixed ranges of i (kernels/gpu/scatter.inc), still deterministic.
 * args: index (i32 [n]), src ([n, c], row stride), out ([rows, c] f32, fully written: zero first unless accumulate).
 * Out-of-range ids are skipped; the graph clamps those that have not been checked. */
typedef struct an_scatter_spec {
    int64_t n, rows, c, src_stride, out_stride;
    uint8_t src_dtype, accumulate;
} an_scatter_spec;

/* dst[o, *index, :] = src[o, :] in a contiguous dst [outer, rows, inner]; the other rows keep their values, and nothing
 * happens when the index is outside [0, rows). args: index (i32), src (rows `stride` elements apart, inner contiguous),
 * dst. Elements of 1, 2, 4 or 8 bytes are moved, not computed. */
typedef struct an_row_update_spec {
    int64_t outer, rows, inner, stride;
    uint8_t bytes; /* of an element */
} an_row_update_spec;

#endif
