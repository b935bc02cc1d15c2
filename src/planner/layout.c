/* layout.c: a value for each stored node, and where it is written.
 *
 * Most values are memory of their own. Some are written straight into a container, so that joining them needs no
 * copy:
 *
 *     CONCAT of attention's gradients   [dq | dk | dv] is qkv's gradient: attention writes all three at the
 *                                       container's strides, and the concatenation has no launch
 *     CONCAT                            of results that are stored anyway: each is a block of the container, which others may read
 *                                       too (the steps of a recurrent layer), or (CPU) rows in it that nothing else reads (its gates)
 *     PACK of gradients                 each gradient is written at its parameter's offset in the block
 *     ALLREDUCE of a PACK               the all-reduce runs in place: its result aliases the packed gradients
 *     SCATTER onto a value              the value is written where the sum will be
 *
 * Invariants: a container is stored; a value has at most one container; only its own readers and the container's read
 * it. Strides chosen by layout_hints stay as they are unless a container dictates others. */
#include "planner/planner_internal.h"

#include <string.h>

enum { MAX_VIEWS = 32 };

/* Memory strides of `base` when it is written through the views of `top` into node `container`, at `start` along
 * `axis`; false when no strides describe that. */
static bool strides_through(an_planner *w, int32_t top, int32_t base, int32_t container, int axis, int64_t start,
                            int64_t *stride, int64_t *offset)
{
    int32_t chain[MAX_VIEWS];
    int n = 0;
    for (int32_t id = top; id != base; id = w->g->node[id]->src[0]) {
        if (n == MAX_VIEWS) return false;
        chain[n++] = id;
    }
    const struct an_tensor *b = w->g->node[base];
    an_ix iv[AN_MAX_RANK], up[AN_MAX_RANK];
    for (int i = 0; i < b->rank; i++) iv[i] = an_ix_var(&w->ix, i, b->shape[i]);
    while (n--) { /* from the base up: each view's index from its source's */
        const struct an_tensor *m = w->g->node[chain[n]], *s = w->g->node[m->src[0]];
        if (m->op == AN_OP_RESHAPE)
            an_ix_unlinear(&w->ix, an_ix_linear(&w->ix, s->rank, s->shape, iv), m->rank, m->shape, up);
        else if (m->op == AN_OP_PERMUTE)
            for (int i = 0; i < m->rank; i++) up[i] = iv[m->attr[i]];
        else if (m->op == AN_OP_DETACH)
            memcpy(up, iv, sizeof up);
        else
            return false;
        memcpy(iv, up, sizeof iv);
    }
    iv[axis] = an_ix_add(&w->ix, iv[axis], an_ix_const(&w->ix, start));
    an_ix where = an_memory_index(w, &w->ix, container, iv);
    for (int i = 0; i < b->rank; i++)
        if (!an_ix_stride(&w->ix, where, i, &stride[i])) return false;
    if (w->ix.failed) return false;
    *offset = w->ix.expr[where].c;
    return true;
}

static bool is_attention_gradient(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    return n->op == AN_OP_ATTENTION_GRAD || (n->op == AN_OP_PICK && w->g->node[n->src[0]]->op == AN_OP_ATTENTION_GRAD);
}

static bool has_one_reader(const an_planner *w, int32_t id)
{
    int n = 0;
    for (int u = 0; u < w->node[id].n_uses; u++) n += w->g->node[w->use[w->node[id].first_use + u]]->op != AN_OP_PICK;
    return n == 1;
}

/* A result of loops or of a GEMM in memory, that is where its readers look for it through the whole step. */
static bool is_loop_result(const an_planner *w, int32_t id)
{
    const an_planner_node *wn = &w->node[id];
    if (wn->group < 0 || wn->as_copy || !wn->stored || wn->stride || wn->transposed || wn->remat) return false;
    const int kind = w->group[wn->group].kind;
    return kind == AN_FUSION_ELEM || kind == AN_FUSION_ROW || kind == AN_FUSION_GEMM;
}

static bool is_contiguous(const struct an_tensor *n, const int64_t *stride)
{
    int64_t next = 1;
    for (int i = n->rank - 1; i >= 0; next *= n->shape[i--])
        if (n->shape[i] > 1 && stride[i] != next) return false;
    return true;
}

static bool is_assigned(const an_planner *w, int32_t id)
{
    for (int u = 0; u < w->node[id].n_uses; u++)
        if (w->g->node[w->use[w->node[id].first_use + u]]->op == AN_OP_ASSIGN) return true;
    return false;
}

static bool on_cpu(const an_planner *w)
{
    return !strcmp(w->rq->target->dialect, "c");
}

/* Whether part `base` of a concatenation may be written at these strides in it. A block keeps its order, so that its other readers find it as
 * they would elsewhere; at other strides nothing may read it but the concatenation, and neither GEMMs nor containers write it. (On GPUs, where
 * that is not measured, it is not done.) */
static bool may_write_part(const an_planner *w, int32_t base, const int64_t *stride)
{
    const struct an_tensor *b = w->g->node[base];
    if (is_attention_gradient(w, base)) return stride[b->rank - 1] == 1 && has_one_reader(w, base);
    if (!is_loop_result(w, base) || is_assigned(w, base)) return false;
    if (is_contiguous(b, stride)) return true;
    const an_fusion_group *gr = &w->group[w->node[base].group];
    const bool by_loop = !gr->no_launch && !(gr->kind == AN_FUSION_GEMM && gr->anchor == base);
    return on_cpu(w) && by_loop && stride[b->rank - 1] == 1 && has_one_reader(w, base);
}

/* Bytes that the offset of a part in its container is a multiple of. GPUs load vectors of it, as of a value of its own. */
static int64_t part_align(const an_planner *w)
{
    enum { GPU_ALIGN = 64 };
    return AN_MAX(w->rq->target->bind_align, on_cpu(w) ? 1 : GPU_ALIGN);
}

/* Puts the base of source s of CONCAT `id`, which begins at `start` along its axis, in the concatenation's memory, or only looks (`put`
 * false); *done: whether that is possible. */
static an_status put_part(an_planner *w, int32_t id, int s, int64_t start, bool put, bool *done)
{
    const struct an_tensor *n = w->g->node[id];
    const int32_t base = an_base(w, n->src[s]);
    const struct an_tensor *b = w->g->node[base];
    an_planner_node *wn = &w->node[base];
    int64_t stride[AN_MAX_RANK], offset;
    *done = false;
    if (!b->rank || w->g->node[n->src[s]]->numel != b->numel || wn->container >= 0 || an_is_leaf(w, base) ||
        an_is_root_base(w, base) || !(is_attention_gradient(w, base) || is_loop_result(w, base)))
        return AN_OK;
    if (!strides_through(w, n->src[s], base, id, (int)n->attr[0], start, stride, &offset)) return AN_OK;
    if (!may_write_part(w, base, stride)) return AN_OK;
    if (offset * (int64_t)an_dtype_bytes((an_dtype)n->dtype) % part_align(w)) return AN_OK;
    *done = true;
    if (!put) return AN_OK;
    if (is_attention_gradient(w, base) || !is_contiguous(b, stride)) {
        wn->stride = an_arena_copy(&w->scratch, stride, sizeof stride);
        if (!wn->stride) return an_fail_nomem(w->err, "the planner's layouts", sizeof stride);
    }
    wn->container = id;
    wn->container_offset = offset;
    wn->stored = 1;
    return AN_OK;
}

/* Whether all parts of CONCAT `id` may be written in it. */
static an_status all_fit(an_planner *w, int32_t id, bool *fit)
{
    const struct an_tensor *n = w->g->node[id];
    int64_t start = 0;
    *fit = true;
    for (int s = 0; s < n->n_src && *fit; s++) {
        AN_TRY(put_part(w, id, s, start, false, fit));
        start += w->g->node[n->src[s]]->shape[n->attr[0]];
    }
    return AN_OK;
}

/* Whether another node than CONCAT `id` reads a part that is written in it. Nothing may then be added to the concatenation where it is: the
 * reader may come later. */
static bool parts_are_read(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; n->op == AN_OP_CONCAT && s < n->n_src; s++) {
        const int32_t base = an_base(w, n->src[s]);
        if (w->node[base].container == id && (!has_one_reader(w, base) || parts_are_read(w, base))) return true;
    }
    return false;
}

static void take_part(an_planner *w, int32_t id, int s)
{
    an_planner_node *wn = &w->node[an_base(w, w->g->node[id]->src[s])];
    wn->container = -1;
    if (!is_attention_gradient(w, an_base(w, w->g->node[id]->src[s]))) wn->stride = NULL;
}

/* Writes parts of a CONCAT where the concatenation will be. Where all of them are, it has no launch. One of many parts has launches for
 * those that are not (lower_copy.c); of a small one, whose launch is one kernel that reads all, none is then. */
static an_status write_concat_in_place(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    an_fusion_group *gr = &w->group[w->node[id].group];
    const bool each = gr->kind == AN_FUSION_CONCAT && !is_assigned(w, id);
    bool fit = true;
    if (gr->n_out != 1 || gr->out[0] != id || w->rq->unfused) return AN_OK;
    if (!each) AN_TRY(all_fit(w, id, &fit));
    if (!fit) return AN_OK;
    int64_t start = 0;
    int n_done = 0;
    for (int s = 0; s < n->n_src; s++) {
        bool done;
        AN_TRY(put_part(w, id, s, start, true, &done));
        n_done += done;
        start += w->g->node[n->src[s]]->shape[n->attr[0]];
        if (done || each) continue;
        while (s-- > 0) take_part(w, id, s);
        return AN_OK;
    }
    gr->no_launch = n_done == n->n_src;
    return AN_OK;
}

static void write_pack_in_place(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        an_planner_node *wn = &w->node[base];
        if (an_is_leaf(w, base) || wn->container >= 0 || w->g->node[base]->dtype != w->g->node[id]->dtype ||
            w->g->node[base]->op == AN_OP_PACK || parts_are_read(w, base))
            continue;
        int64_t block_bytes;
        int64_t at = w->rq->pack(w->rq->user, (int)n->attr[0], s, &block_bytes);
        wn->container = id;
        wn->container_offset = at / (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    }
}

/* What rows are scattered onto is written where the sum will be, when it has no other reader. */
static void write_scatter_in_place(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    if (n->n_src < 3 || w->group[w->node[id].group].kind != AN_FUSION_SCATTER) return;
    int32_t base = an_base(w, n->src[2]);
    an_planner_node *wn = &w->node[base];
    if (an_is_leaf(w, base) || wn->container >= 0 || wn->n_uses != 1 || an_is_root_base(w, base) ||
        w->g->node[base]->numel != n->numel || w->g->node[base]->op == AN_OP_PACK || parts_are_read(w, base))
        return;
    wn->container = id;
    wn->container_offset = 0;
}

/* Packed gradients are added up over ranks where they are, when nothing else reads them. */
static void write_sum_in_place(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    if (n->op != AN_OP_ALLREDUCE || !an_is_exchange(n) || w->rq->isolate_values) return;
    const int32_t base = an_base(w, n->src[0]);
    an_planner_node *wn = &w->node[base];
    if (w->g->node[base]->op != AN_OP_PACK || wn->container >= 0 || wn->n_uses != 1 || an_is_root_base(w, base)) return;
    wn->container = id;
    wn->container_offset = 0;
}

int64_t an_value_bytes(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    int64_t last = 0;
    const bool between_others =
        w->node[id].container >= 0 && is_attention_gradient(w, id); /* what is moved is counted by it */
    if (!w->node[id].stride || !n->numel || between_others) return n->numel * size;
    for (int i = 0; i < n->rank; i++) last += (n->shape[i] - 1) * w->node[id].stride[i];
    return AN_MAX(last + 1, n->numel) * size;
}

static an_status make_value(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    int64_t bytes = an_value_bytes(w, id);
    if (n->op == AN_OP_PACK) w->rq->pack(w->rq->user, (int)n->attr[0], 0, &bytes);
    const char *scope = an_scope_of(w, id), *op = n->op == AN_OP_PACK ? "gradients" : an_ops[n->op].name;
    const char *name = an_arena_printf(w->arena, "%s%s%s", scope, *scope ? " " : "", op);
    w->node[id].value =
        name ? an_value_new(w, id, 0, bytes, n->op == AN_OP_PACK ? AN_USE_GRADIENT : AN_USE_ACTIVATION, name) : -1;
    return w->node[id].value < 0 ? an_fail_nomem(w->err, "the plan's values", sizeof(an_value)) : AN_OK;
}

static void put_inside(an_planner *w, int32_t id)
{
    const int32_t container = w->node[id].container, v = w->node[id].value;
    if (container < 0 || v < 0) return;
    an_value *x = &w->plan->value[v];
    x->inside = w->node[container].value;
    x->offset = w->node[id].container_offset * (int64_t)an_dtype_bytes((an_dtype)w->g->node[container]->dtype);
    if (w->g->node[container]->op == AN_OP_PACK) x->usage = AN_USE_GRADIENT;
    if (w->g->node[id]->op == AN_OP_PACK) w->plan->value[x->inside].usage = AN_USE_GRADIENT;
}

an_status an_pass_layout(an_planner *w)
{
    const int32_t n = w->g->n;
    for (int32_t id = 0; id < n; id++) w->node[id].value = w->node[id].container = -1;
    for (int32_t id = 0; id < n; id++)
        if (w->node[id].live && w->node[id].group >= 0 && w->g->node[id]->op == AN_OP_CONCAT && w->node[id].stored)
            AN_TRY(write_concat_in_place(w, id));
    for (int32_t id = 0; id < n; id++)
        if (w->node[id].live && w->g->node[id]->op == AN_OP_PACK) write_pack_in_place(w, id);
    for (int32_t id = 0; id < n; id++)
        if (w->node[id].live && w->g->node[id]->op == AN_OP_SCATTER_ADD && w->node[id].stored)
            write_scatter_in_place(w, id);
    for (int32_t id = 0; id < n; id++)
        if (w->node[id].live) write_sum_in_place(w, id);
    for (int32_t id = 0; id < n; id++)
        if (w->node[id].live && w->node[id].stored && w->node[id].group >= 0) AN_TRY(make_value(w, id));
    for (int32_t id = 0; id < n; id++) put_inside(w, id); /* containers have values by now */
    return AN_OK;
}
