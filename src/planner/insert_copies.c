/* insert_copies.c: views that no strides describe become copies where an operand must be in memory (contiguous).
 *
 * Elementwise readers see through any view by index arithmetic. A GEMM, attention, a call, a pack and the caller read
 * memory, and each accepts some strides only:
 *
 *     reader                accepts
 *     GEMM                  any strides
 *     attention             any strides with a contiguous last axis; its mask any strides
 *     GROUPED_...           any strides, save its ends
 *     call, table of a      contiguous elements from the base's start or from inside it
 *       gather, convolution
 *     dX that a library     weights as they lie
 *       runs
 *     convolution whose     images in planes that are in memory before the step
 *       device takes them
 *     depthwise             any, with neighbouring channels: memory is read once for all taps, in vectors, and
 *       convolution, pool   channels that lie apart would be gathered at every tap. On the CPU also images of neighbouring pixels,
 *                           which its kernels take as they are (codegen/planes.h)
 *     several small GEMMs   on the CPU, where each would pack it: contiguous along n, which is read in place
 *     pack, assignment      the whole base, contiguous
 *     root                  the whole base, contiguous
 *
 * A view that its reader does not accept is marked as_copy: from here on it is a node like any other, which is written
 * to memory. Constants that are read from memory are marked too. What is accepted depends on the base, and a mark is a new base for the
 * views behind it: readers are asked again until none marks any more. At the end the uses are listed, since which nodes are views is
 * known only now. */
#include "codegen/planes.h"
#include "planner/loop_builder.h"

static bool is_contiguous(const struct an_tensor *n, const an_view *v)
{
    int64_t expect = 1;
    for (int i = n->rank - 1; i >= 0; expect *= n->shape[i--])
        if (n->shape[i] > 1 && v->stride[i] != expect) return false;
    return true;
}

static bool is_attention(const struct an_tensor *n)
{
    return n->op == AN_OP_ATTENTION || n->op == AN_OP_ATTENTION_GRAD;
}

static bool is_grouped(const struct an_tensor *n)
{
    return n->op == AN_OP_GROUPED_MATMUL || n->op == AN_OP_GROUPED_OUTER;
}

/* A column group reads its operands by index arithmetic, whatever view they are. */
static bool is_column_group(const an_planner *w, const struct an_tensor *n)
{
    return n->op == AN_OP_MATMUL ? !an_matmul_is_gemm(w, n) : an_is_window_of_columns(w, n);
}

/* An image in planes of neighbouring pixels that the CPU's kernels take as it lies: a buffer for some of its channels is small enough. */
static bool takes_planes(const an_planner *w, const struct an_tensor *n, const struct an_tensor *t, const an_view *v)
{
    const int64_t lines = (int64_t)(t->shape[1] - 1) * v->stride[1], pixels = (int64_t)(t->shape[2] - 1) * v->stride[2];
    return an_takes_planes(w, n, t) && v->stride[3] >= AN_PLANE_LEAST && v->stride[1] >= 0 && v->stride[2] == 1 &&
           lines + pixels < v->stride[3] && lines + pixels < AN_PLANE_MOST;
}

/* Channels that lie apart, of a tensor that a window reads at several taps. */
static bool gathers_channels(const an_planner *w, const struct an_tensor *n, const struct an_tensor *t,
                             const an_view *v)
{
    if (an_ops[n->op].cls != AN_CLS_WINDOW || t->rank != 4 || an_window_red(w, n->id) < 2) return false;
    return v->affine && t->shape[3] > 1 && v->stride[3] > 1 && !takes_planes(w, n, t, v);
}

/* Not where src is the weights, too. */
static bool takes_image_in_planes(an_planner *w, const struct an_tensor *n, int32_t src)
{
    bool all = true;
    for (int s = 0; s < n->n_src; s++) all &= n->src[s] != src || an_conv_takes_planes(w, n, s);
    return all;
}

/* Whether src is attention's mask, and no other operand of it. */
static bool is_mask_alone(const an_planner *w, const struct an_tensor *n, int32_t src)
{
    const int mask = an_attention_mask(w->g, n);
    bool alone = mask >= 0 && n->src[mask] == src;
    for (int s = 0; s < mask; s++) alone &= n->src[s] != src;
    return alone;
}

/* Whether reader n accepts view `src`, as the table above has it. */
static bool accepts(an_planner *w, const struct an_tensor *n, int32_t src)
{
    const struct an_tensor *t = w->g->node[src];
    const an_view v = an_view_of(w, src, n->op == AN_OP_MATMUL);
    if (is_column_group(w, n)) return !gathers_channels(w, n, t, &v);
    bool ok = v.affine;
    if (ok && is_attention(n)) {
        ok = is_mask_alone(w, n, src) ? t->rank == 4
             : t->rank < 4            ? is_contiguous(t, &v)
                                      : v.stride[3] == 1 || t->shape[3] == 1;
    } else if (ok && is_grouped(n) && src != n->src[2]) {
        ok = true;
    } else if (ok && n->op != AN_OP_MATMUL &&
               !(n->op == AN_OP_CONV2D_DX && src == n->src[1] && an_conv_by_library(w, n))) {
        ok = is_contiguous(t, &v) || takes_image_in_planes(w, n, src);
        if (n->op == AN_OP_PACK || n->op == AN_OP_ASSIGN) ok &= t->numel == w->g->node[v.base]->numel;
    }
    const int align = AN_MAX(w->rq->target->bind_align, 1);
    return ok && v.offset * (int64_t)an_dtype_bytes((an_dtype)v.dtype) % align == 0;
}

/* Whether this is news. */
static bool mark(an_planner *w, int32_t id)
{
    const bool news = !w->node[id].as_copy;
    w->node[id].as_copy = 1;
    return news;
}

static bool copy_operands(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    bool marked = false;
    for (int s = 0; s < n->n_src; s++) {
        const int32_t src = n->src[s];
        if (!an_reads_memory(w, id, s) || n->op == AN_OP_PICK || w->node[id].row_update) continue;
        if (w->g->node[src]->op == AN_OP_CONST) marked |= mark(w, src);
        if (!an_is_view(w, src)) continue;
        if (w->g->node[an_base(w, src)]->op == AN_OP_CONST || !accepts(w, n, src)) marked |= mark(w, src);
    }
    return marked;
}

/* Roots are read back whole and in order. */
static bool copy_root(an_planner *w, int32_t id)
{
    const int32_t base = an_base(w, id);
    const struct an_tensor *n = w->g->node[id];
    const an_view v = an_view_of(w, id, false);
    const bool whole = v.affine && v.offset == 0 && n->numel == w->g->node[base]->numel && is_contiguous(n, &v);
    return (!whole || w->g->node[base]->op == AN_OP_CONST) && mark(w, id);
}

/* Counts (fill == false) or records the uses of every live compute node: views are transparent, so that "the users of
 * x" are the arithmetic that reads x. */
static void each_use(an_planner *w, bool fill)
{
    for (int32_t id = 0; id < w->g->n; id++) {
        if (!w->node[id].live || an_is_view(w, id)) continue;
        const struct an_tensor *n = w->g->node[id];
        for (int s = 0; s < n->n_src; s++) {
            an_planner_node *b = &w->node[an_base(w, n->src[s])];
            if (fill) w->use[b->first_use + b->n_uses] = id;
            b->n_uses++;
        }
    }
}

static an_status list_uses(an_planner *w)
{
    int32_t total = 0;
    each_use(w, false);
    for (int32_t id = 0; id < w->g->n; id++) {
        w->node[id].first_use = total;
        total += w->node[id].n_uses;
        w->node[id].n_uses = 0;
    }
    w->use = AN_NEW_ARRAY(&w->scratch, int32_t, total + 1);
    if (!w->use) return an_fail_nomem(w->err, "the planner's use lists", sizeof(int32_t) * (size_t)total);
    w->n_use = total;
    each_use(w, true);
    return AN_OK;
}

/* Whether GEMM n packs its right operand, a view, anew in each call, which a copy of it would spare. */
static bool repacks(an_planner *w, const struct an_tensor *n)
{
    const an_target *t = w->rq->target;
    const an_view a = an_view_of(w, n->src[0], true), b = an_view_of(w, n->src[1], true);
    if (!a.affine || !b.affine) return false;
    const an_dtype mul = (an_dtype)w->g->node[n->src[0]]->dtype;
    const an_gemm_spec s = {.m = n->shape[0],
                            .n = n->shape[1],
                            .k = w->g->node[n->src[0]]->shape[1],
                            .nb = {1, 1, 1},
                            .a_m = a.stride[0],
                            .a_k = a.stride[1],
                            .b_k = b.stride[0],
                            .b_n = b.stride[1],
                            .c_m = n->shape[1],
                            .a_dtype = a.dtype,
                            .b_dtype = b.dtype,
                            .c_dtype = n->dtype,
                            .mul_dtype = mul == AN_BF16 ? AN_BF16 : AN_F32};
    return t->gemm_repacks(t, &s);
}

/* A matrix that LEAST_READERS products or more of few rows would each pack (a recurrent layer's, at each step) is copied once for all of
 * them. Among many rows packing is little, and what is chunked to save memory gets no copy of its weights. */
static an_status copy_repacked(an_planner *w)
{
    enum { LEAST_READERS = 4, MOST_ROWS = 128 };
    if (!w->rq->target->gemm_repacks) return AN_OK;
    uint8_t *readers = AN_NEW_ARRAY(&w->scratch, uint8_t, w->g->n + 1);
    if (!readers) return an_fail_nomem(w->err, "the planner's copies", (size_t)w->g->n);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t id = 0; id < w->g->n; id++) {
            const struct an_tensor *n = w->g->node[id];
            if (!w->node[id].live || n->op != AN_OP_MATMUL || n->rank != 2 || n->shape[0] > MOST_ROWS || n->deferred ||
                w->node[id].transposed || !an_matmul_is_gemm(w, n) || !an_is_view(w, n->src[1]))
                continue;
            if (pass == 0)
                readers[n->src[1]] = (uint8_t)AN_MIN(readers[n->src[1]] + 1, LEAST_READERS);
            else if (readers[n->src[1]] == LEAST_READERS && repacks(w, n))
                mark(w, n->src[1]);
        }
    return AN_OK;
}

an_status an_pass_insert_copies(an_planner *w)
{
    AN_TRY(copy_repacked(w));
    for (bool marked = true; marked;) {
        marked = false;
        for (int32_t id = 0; id < w->g->n; id++)
            if (w->node[id].live) marked |= copy_operands(w, id);
        for (int i = 0; i < w->rq->n_roots; i++) marked |= copy_root(w, w->rq->root[i]);
    }
    return list_uses(w);
}
