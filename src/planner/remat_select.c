/* remat_select.c: which values of the forward pass are computed again for the backward pass (rematerialization,
 * elsewhere called activation or gradient checkpointing). What any reader
 * computes again in place of reading it: materialize.c.
 *
 * With recompute=on an elementwise operand of the forward pass (a value that a GEMM reads) is not kept for the backward
 * pass when its cone is cheap (recompute_cost.c). Its memory is free between the two passes, and the backward pass
 * makes a copy:
 *
 *     kept            h = matmul   a = gelu(h) ............................ dW = matmul(aT, dy)
 *                     a is alive throughout
 *     rematerialized  h = matmul   a = gelu(h)          a' = gelu(h) ...... dW = matmul(a'T, dy)
 *                     h is alive throughout instead; a ends with the forward pass
 *
 * The same bits either way. What leaves alone make may be launched behind the loss and is not selected: computing it
 * again would save nothing. Row reductions beneath a selected value (a norm's mean) are small and are stored.
 *
 * A product is computed again where that is the beginning of the launch that reads it: gate and up of a SwiGLU, on a
 * device that gates the halves of a product's rows as it is stored (an_target.gates). Neither pass then writes
 * them: with a short sum the arithmetic takes less time than writing and reading the result would. A longer sum takes
 * more, and is computed again for the memory alone (AN_RECOMPUTE_ON).
 *
 * Where the copies are made is decided later: schedule, remat_insert. This is the last pass that stores nodes, so it
 * lists each group's outputs. */
#include "planner/planner_internal.h"

enum {
    DEPTH = 4 /* a cast, then a sigmoid and what is made of it */
};

/* Itself, or through values that are computed where they are read (casts, a sigmoid). */
static bool is_read_by_backward(const an_planner *w, int32_t id, int depth)
{
    const an_planner_node *wn = &w->node[id];
    for (int u = 0; u < wn->n_uses; u++) {
        const int32_t user = w->use[wn->first_use + u];
        if (user > w->rq->loss) return w->rq->loss >= 0;
        if (depth > 0 && !w->node[user].stored && is_read_by_backward(w, user, depth - 1)) return true;
    }
    return false;
}

/* silu(g) u reads two large tensors. Where the backward pass reads both for gradients of their own, they are alive there
 * whether or not the product is. */
static bool is_cheap_beside_gradients(const an_planner *w, const an_recompute_cost *c)
{
    an_recompute_cost one = *c;
    if (c->large != 2) return false;
    for (int i = 1; i < c->n_seen; i++) { /* seen[0] is the value itself */
        const int32_t id = c->seen[i];
        if (w->node[id].stored && !an_is_leaf(w, id) && !is_read_by_backward(w, id, DEPTH)) return false;
    }
    one.large = 1;
    return an_is_cheap(&one);
}

static bool is_candidate(const an_planner *w, int32_t id)
{
    const an_planner_node *wn = &w->node[id];
    const struct an_tensor *n = w->g->node[id];
    return wn->live && wn->operand && wn->group >= 0 && (w->rq->loss < 0 || id <= w->rq->loss) &&
           an_is_inlinable(w, id) && wn->scope == AN_SCOPE_COL && !w->cuts->node[id].keep && !n->deferred;
}

/* The group of the backward pass that reads `id`, if it is an elementwise one and the only one that reads it itself; -1. */
static int32_t gradient_of(const an_planner *w, int32_t id)
{
    const an_planner_node *wn = &w->node[id];
    int32_t group = -1;
    for (int u = 0; u < wn->n_uses; u++) {
        const int32_t user = w->use[wn->first_use + u], g = w->node[user].group;
        if (user <= w->rq->loss) continue;
        if (g < 0 || w->group[g].kind != AN_FUSION_ELEM || (group >= 0 && g != group)) return -1;
        group = g;
    }
    return group;
}

/* Whether the operand is read as it is in memory: in bf16, in rows that begin on 16 bytes. A product of what it casts, or copies,
 * first is the library's. */
static bool is_read_as_stored(an_planner *w, int32_t src)
{
    enum { VECTOR = 8 };
    const an_view v = an_view_of(w, src, false);
    const int64_t along[2] = {v.stride[0], v.stride[1]};
    if (!v.affine || v.dtype != AN_BF16 || v.offset % VECTOR || (!an_is_leaf(w, v.base) && !w->node[v.base].stored))
        return false;
    return (along[1] == 1 && along[0] % VECTOR == 0) || (along[0] == 1 && along[1] % VECTOR == 0);
}

static an_gating gating_of(an_planner *w, int32_t id)
{
    const an_planner_node *wn = &w->node[id];
    const struct an_tensor *n = w->g->node[id];
    if (!wn->live || n->op != AN_OP_MATMUL || !wn->stored || wn->operand || wn->group < 0 ||
        wn->group > w->loss_group || w->group[wn->group].kind != AN_FUSION_GEMM || w->group[wn->group].n_members != 1)
        return AN_GATES_NOT;
    const an_gating g = an_gating_of(w, id);
    if (g == AN_GATES_NOT || (g != AN_GATES_AGAIN && w->rq->recompute == AN_RECOMPUTE_CHEAP)) return AN_GATES_NOT;
    return gradient_of(w, id) > w->loss_group && is_read_as_stored(w, n->src[0]) && is_read_as_stored(w, n->src[1])
               ? g
               : AN_GATES_NOT;
}

static an_status list_outputs(an_planner *w)
{
    for (int32_t g = 0; g < w->n_groups; g++) {
        an_fusion_group *gr = &w->group[g];
        gr->out = AN_NEW_ARRAY(&w->scratch, int32_t, gr->n_members + 1);
        if (!gr->out) return an_fail_nomem(w->err, "the planner's groups", sizeof(int32_t) * (size_t)gr->n_members);
        for (int32_t m = 0; m < gr->n_members; m++)
            if (w->node[gr->member[m]].stored) gr->out[gr->n_out++] = gr->member[m];
    }
    return AN_OK;
}

an_status an_pass_remat_select(an_planner *w)
{
    /* By a product that costs no time: early in the backward pass, where no carrier comes in time. */
    bool *needed = AN_NEW_ARRAY(&w->scratch, bool, w->g->n + 1);
    if (!needed) return an_fail_nomem(w->err, "the planner", (size_t)w->g->n);
    for (int32_t id = 0; w->rq->recompute && id < w->g->n; id++) {
        const an_gating g = gating_of(w, id);
        if (g == AN_GATES_NOT) continue;
        w->node[id].remat = 1;
        for (int s = 0; s < w->g->node[id]->n_src && g == AN_GATES_AGAIN; s++)
            needed[an_base(w, w->g->node[id]->src[s])] = true;
    }
    for (int32_t id = 0; w->rq->recompute && id < w->g->n; id++) {
        if (needed[id] || !is_candidate(w, id)) continue;
        const an_recompute_cost c = an_cost_to_recompute(w, id);
        if (!an_is_cheap(&c) && !is_cheap_beside_gradients(w, &c)) continue;
        w->node[id].remat = w->node[id].group <= w->loss_group;
        an_store_rows_beneath(w, &c);
    }
    return list_outputs(w);
}
