/* lower_conv.c: decides which convolutions and gradients of convolutions become GEMMs with a window operand, and fills
 * their specs.
 *
 *     y [p, o] = window of x [p, (r,s,c)] * w [(r,s,c), o]      ir/library_ops.h has all three forms
 *
 * Owns:       the choice between a GEMM and a loop kernel with one serial sum an output (lower_pool.c), and split-k of dW;
 *             which of the GEMMs a library of the device runs, where it has one (an_target.library_conv).
 * Does not:   make the step: lower_gemm.c does; compute it: kernels/cpu/conv.c directly or gemm.c through gemm_im2col.h, on
 *             GPUs conv_bf16.inc or gemm.inc (codegen/gpu_module.c chooses).
 * Invariants: the choice and the splits are functions of shapes and dtypes alone, the same on every device: so are the bits,
 *             but for those of a library.
 *             (A target with loops_only, which tests use, has no GEMMs: there all are loop kernels.) */
#include "planner/planner_internal.h"

#include <string.h>

enum {
    MIN_GROUP = 2,      /* channels of a group: depthwise convolutions are column groups */
    SPLIT_TILE = 64,    /* of dW: tiles of this side ... */
    SPLIT_TASKS = 512,  /* ... times splits make this many tasks: the sum over positions is long, dw small */
    MIN_POSITIONS = 512 /* summed by one split */
};

static bool is_gemm_dtype(int t)
{
    return t == AN_F32 || t == AN_BF16 || t == AN_F16;
}

typedef struct sides {
    const struct an_tensor *x, *y; /* shapes [N,H,W,C] [N,H',W',O]; of each the operand or the result */
    int32_t o, c, taps[2];         /* of a group; kernel */
} sides;

static sides sides_of(const an_planner *w, const struct an_tensor *n)
{
    const struct an_tensor *a = w->g->node[n->src[0]], *b = w->g->node[n->src[1]];
    const int32_t groups = (int32_t)n->attr[6];
    sides s = {.x = n->op == AN_OP_CONV2D ? a : n->op == AN_OP_CONV2D_DX ? n : b, .y = n->op == AN_OP_CONV2D ? n : a};
    const struct an_tensor *k =
        n->op == AN_OP_CONV2D_DW ? n : b; /* the kernel's extents are axes 1 and 2 in each form */
    s.o = s.y->shape[3] / groups;
    s.c = s.x->shape[3] / groups;
    s.taps[0] = k->shape[1];
    s.taps[1] = k->shape[2];
    return s;
}

bool an_conv_is_gemm(const an_planner *w, const struct an_tensor *n)
{
    const int dtype = n->n_src > 0 ? w->g->node[n->src[0]]->dtype : n->dtype;
    if (n->op < AN_OP_CONV2D || n->op > AN_OP_CONV2D_DW || !is_gemm_dtype(dtype) || w->rq->target->loops_only)
        return false;
    const sides s = sides_of(w, n);
    const int64_t xp = (int64_t)s.x->shape[0] * s.x->shape[1] * s.x->shape[2],
                  yp = (int64_t)s.y->shape[0] * s.y->shape[1] * s.y->shape[2];
    const int64_t red = (int64_t)s.taps[0] * s.taps[1] * AN_MAX(s.o, s.c);
    const bool small = n->attr[6] > 1 && AN_MIN(s.o, s.c) < MIN_GROUP;
    return !small && AN_MAX(xp, yp) < INT32_MAX && red < INT32_MAX && s.x->numel && s.y->numel && s.o && s.c;
}

/* With 1 x 1 taps at a stride of 1 and without padding, positions are pixels: no window. */
bool an_conv_is_pointwise(const an_planner *w, const struct an_tensor *n)
{
    const sides s = sides_of(w, n);
    return s.taps[0] == 1 && s.taps[1] == 1 && n->attr[0] == 1 && n->attr[1] == 1 && !n->attr[2] && !n->attr[3];
}

static an_window_spec window_of(const struct an_tensor *n, const sides *s)
{
    const bool dx = n->op == AN_OP_CONV2D_DX;
    const struct an_tensor *image = dx ? s->y : s->x, *positions = dx ? s->x : s->y;
    an_window_spec v = {.of = n->op == AN_OP_CONV2D_DW ? AN_WINDOW_B : AN_WINDOW_A,
                        .channels = dx ? s->o : s->c,
                        .pixel = image->shape[3]};
    for (int d = 0; d < 2; d++) { /* attr: stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups */
        const int32_t stride = (int32_t)n->attr[d], pad = (int32_t)n->attr[2 + d], dilation = (int32_t)n->attr[4 + d];
        v.out[d] = positions->shape[1 + d];
        v.in[d] = image->shape[1 + d];
        v.taps[d] = s->taps[d];
        v.step[d] = dx ? 1 : stride;
        v.tap[d] = dx ? -dilation : dilation;
        v.start[d] = dx ? pad : -pad;
        v.apart[d] = dx ? stride : 1;
    }
    return v;
}

/* Split-k: the sum over all positions of a batch is long and dw small, so several sums give a GPU enough work. */
static int32_t splits_of(const an_gemm_spec *s)
{
    const int64_t tiles = an_ceil_div(s->m, SPLIT_TILE) * an_ceil_div(s->n, SPLIT_TILE) * s->nb[2];
    return (int32_t)AN_MAX(AN_MIN(SPLIT_TASKS / tiles, s->k / MIN_POSITIONS), 1);
}

static an_gemm_spec spec_of(const an_planner *w, const struct an_tensor *n)
{
    const sides s = sides_of(w, n);
    const int32_t groups = (int32_t)n->attr[6], taps = s.taps[0] * s.taps[1];
    const bool dx = n->op == AN_OP_CONV2D_DX, dw = n->op == AN_OP_CONV2D_DW;
    const struct an_tensor *rows = dx ? s.x : s.y; /* positions */
    const int32_t positions = rows->shape[0] * rows->shape[1] * rows->shape[2];
    const uint8_t dtype = w->g->node[n->src[0]]->dtype; /* of both operands; the result may be wider */
    an_gemm_spec g = {.nb = {1, 1, groups}, .a_dtype = dtype, .b_dtype = dtype, .c_dtype = n->dtype};
    g.mul_dtype = dtype == AN_BF16 ? AN_BF16 : AN_F32;
    if (dw) { /* dy^T [o, p] window [p, (r,s,c)] */
        g.m = s.o, g.n = taps * s.c, g.k = positions;
        g.a_m = 1, g.a_k = s.y->shape[3], g.a_b[2] = s.o;
        g.b_k = s.x->shape[3], g.b_n = 1, g.b_b[2] = s.c;
        g.c_m = g.n, g.c_b[2] = (int64_t)g.m * g.n;
        g.splits = splits_of(&g);
    } else { /* window [p, (r,s,i)] w [(r,s,i), j] */
        const int32_t i = dx ? s.o : s.c, j = dx ? s.c : s.o;
        g.m = positions, g.n = j, g.k = taps * i;
        g.a_m = (dx ? s.y : s.x)->shape[3], g.a_k = 1, g.a_b[2] = i;
        g.b_k = dx ? j : 1, g.b_n = dx ? 1 : g.k, g.b_b[2] = (int64_t)g.k * j;
        g.c_m = (dx ? s.x : s.y)->shape[3], g.c_b[2] = j;
    }
    if (groups == 1) g.a_b[2] = g.b_b[2] = g.c_b[2] = 0;
    if (!an_conv_is_pointwise(w, n)) g.window = window_of(n, &s);
    return g;
}

static an_gemm_spec library_spec(const an_planner *w, const struct an_tensor *n)
{
    const sides s = sides_of(w, n);
    an_gemm_spec g = spec_of(w, n);
    g.window = window_of(n, &s);
    g.window.by_library = 1;
    return g;
}

/* Whether a view [groups,r,s,o,c] of the weights is one of [o,r,s,c] as they lie in memory: how graph/grad_call.c gives
 * them to dX. */
static bool lies_by_outputs(const struct an_tensor *t, const an_view *v)
{
    const int64_t tap = t->shape[4], row = t->shape[2] * tap, filter = t->shape[1] * row;
    const int64_t expected[5] = {t->shape[3] * filter, row, tap, filter, 1};
    for (int i = 0; i < 5; i++)
        if (t->shape[i] > 1 && v->stride[i] != expected[i]) return false;
    return true;
}

/* Libraries want operands that begin at a multiple of 16 bytes, as values and states do; a part of one need not. */
bool an_conv_by_library(an_planner *w, const struct an_tensor *n)
{
    enum { ALIGNMENT = 16 };
    const an_target *t = w->rq->target;
    if (!t->library_conv || !an_conv_is_gemm(w, n)) return false;
    for (int i = 0; i < 2; i++) {
        const an_view v = an_view_of(w, n->src[i], false);
        const struct an_tensor *operand = w->g->node[n->src[i]];
        if (v.affine && v.offset * (int64_t)an_dtype_bytes((an_dtype)v.dtype) % ALIGNMENT) return false;
        if (i == 1 && n->op == AN_OP_CONV2D_DX && !(v.affine && lies_by_outputs(operand, &v))) return false;
    }
    const an_gemm_spec s = library_spec(w, n);
    return t->library_conv(t, &s);
}

/* Whether a view [N,H,W,C] is one of [N,C,H,W] as it lies in memory, and not both at once. */
static bool lies_in_planes(const struct an_tensor *t, const an_view *v)
{
    const int64_t plane = (int64_t)t->shape[1] * t->shape[2];
    const int64_t expected[4] = {plane * t->shape[3], t->shape[2], 1, plane};
    if (!v->affine || plane < 2 || t->shape[3] < 2) return false;
    for (int i = 0; i < 4; i++)
        if (t->shape[i] > 1 && v->stride[i] != expected[i]) return false;
    return true;
}

/* Only of what lies in memory so already: a copy of a value that this step computes is that computation in another order, and costs nothing,
 * where the order of planes would be a transposition when it is written and another when it is read. */
bool an_conv_takes_planes(an_planner *w, const struct an_tensor *n, int source)
{
    const an_target *t = w->rq->target;
    if (!t->conv_planes || source > (n->op == AN_OP_CONV2D_DW) || !an_conv_is_gemm(w, n)) return false;
    const an_view v = an_view_of(w, n->src[source], false);
    if (!an_is_leaf(w, v.base) || !lies_in_planes(w->g->node[n->src[source]], &v)) return false;
    const an_gemm_spec s = spec_of(w, n);
    return t->conv_planes(t, &s);
}

void an_conv_spec(an_planner *w, int32_t id, an_gemm_spec *out)
{
    const struct an_tensor *n = w->g->node[id];
    const bool dw = n->op == AN_OP_CONV2D_DW;
    *out = an_conv_by_library(w, n) ? library_spec(w, n) : spec_of(w, n);
    if (an_conv_takes_planes(w, n, dw)) out->window.planes |= AN_PLANES_IMAGE;
    if (dw && an_conv_takes_planes(w, n, 0)) out->window.planes |= AN_PLANES_DY;
}

/* What a window reads again, and the zeros of dX between strides, do not count. */
void an_conv_work(const an_planner *w, int32_t id, uint64_t *flops, uint64_t *bytes)
{
    const struct an_tensor *n = w->g->node[id];
    const sides s = sides_of(w, n);
    *flops = 2u * (uint64_t)s.y->numel * (uint64_t)s.taps[0] * (uint64_t)s.taps[1] * (uint64_t)s.c;
    *bytes = 0;
    for (int i = 0; i < 2; i++)
        *bytes += (uint64_t)w->g->node[n->src[i]]->numel * an_dtype_bytes((an_dtype)w->g->node[n->src[i]]->dtype);
}

const char *an_conv_name(const struct an_tensor *n)
{
    return n->op == AN_OP_CONV2D ? "conv2d" : n->op == AN_OP_CONV2D_DX ? "conv2d_dx" : "conv2d_dw";
}
