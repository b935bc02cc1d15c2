/* materialize.c: which nodes are written to memory, and which are computed again where they are read. What the
 * backward pass computes again: remat_select.c.
 *
 * Stored are: roots, operands that their reader needs in memory (of GEMMs, attention, calls, packs, assignments), and
 * reductions and GEMMs that another group reads. An elementwise node that another group reads is computed there again
 * when that is cheap (recompute_cost.c); otherwise it is stored, as is a concatenation that is a part of a larger one. Random masks are always
 * computed again, since they are a pure function of their index. Of a widening cast the narrow source is stored instead.
 *
 *     h = matmul   m = rand < p   y = h * m + x   z = matmul(y, w)
 *     stored: h when it is read in another group; y, an operand; not m
 *
 * Invariant: whatever a group reads of an older group is stored, or is inlinable down to what is stored. Nodes are
 * decided in order, so what is beneath a node is decided before it. */
#include "planner/planner_internal.h"

/* Only random numbers, constants and indices beneath: no memory is read to compute it. */
static bool only_random(const an_planner *w, int32_t id, int depth)
{
    const struct an_tensor *n = w->g->node[id];
    if (n->op == AN_OP_RAND || n->op == AN_OP_CONST || n->op == AN_OP_IOTA) return true;
    if (!an_is_inlinable(w, id) || depth > 4) return false;
    for (int s = 0; s < n->n_src; s++)
        if (!only_random(w, an_base(w, n->src[s]), depth + 1)) return false;
    return n->n_src > 0;
}

/* Is `id` read by another group as an expression? */
static bool is_read_elsewhere(const an_planner *w, int32_t id)
{
    const an_planner_node *wn = &w->node[id];
    if (w->rq->unfused && !an_is_leaf(w, id)) return wn->n_uses > 0;
    for (int u = 0; u < wn->n_uses; u++) {
        const int32_t user = w->use[wn->first_use + u];
        const struct an_tensor *un = w->g->node[user];
        if (un->op == AN_OP_PICK || w->node[user].group == wn->group) continue;
        for (int s = 0; s < un->n_src; s++)
            if (an_base(w, un->src[s]) == id && !an_reads_memory(w, user, s)) return true;
    }
    return false;
}

/* The narrow source of a widening cast, -1. */
static int32_t narrow_source(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    const int32_t below = n->op == AN_OP_CAST ? an_base(w, n->src[0]) : -1;
    if (below < 0 || an_is_leaf(w, below)) return -1;
    const bool narrower = an_dtype_bytes((an_dtype)w->g->node[below]->dtype) < an_dtype_bytes((an_dtype)n->dtype);
    return narrower ? below : -1;
}

/* Is `id` read by a sum down columns alone, which makes it from fewer bytes than storing and loading it would move? A batch
 * norm's d * x in f32, where d and x are bf16. */
static bool is_made_in_its_sum(const an_planner *w, int32_t id, const an_recompute_cost *c)
{
    const an_planner_node *wn = &w->node[id];
    if (!c->possible || wn->n_uses != 1) return false;
    const int32_t user = w->use[wn->first_use], group = w->node[user].group;
    const int64_t moved = 2 * w->g->node[id]->numel * (int64_t)an_dtype_bytes((an_dtype)w->g->node[id]->dtype);
    return an_ops[w->g->node[user]->op].cls == AN_CLS_REDUCE && group >= 0 && w->group[group].kind == AN_FUSION_COL &&
           c->bytes < moved;
}

/* Is `id` a concatenation that is a part of one with launches of its own? It is written in its place there (layout.c), where the launch would
 * compute all parts of each part for each element. */
static bool is_stacked(const an_planner *w, int32_t id)
{
    for (int u = 0; u < w->node[id].n_uses && w->g->node[id]->op == AN_OP_CONCAT; u++)
        if (an_is_concat_kernel(w, w->use[w->node[id].first_use + u])) return true;
    return false;
}

/* An elementwise node that another group reads: is it stored, or computed there again? */
static bool is_stored_for_others(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    if (!an_is_inlinable(w, id)) return true;
    if (n->op == AN_OP_IOTA || n->op == AN_OP_RAND || only_random(w, id, 0)) return false;
    if (w->rq->unfused || w->node[id].scope == AN_SCOPE_ROW || w->cuts->node[id].store || is_stacked(w, id))
        return true;
    const int32_t below = narrow_source(w, id);
    if (below >= 0) {
        w->node[below].stored = 1;
        return false;
    }
    const an_recompute_cost c = an_cost_to_recompute(w, id);
    if (!an_is_cheap(&c) && !is_made_in_its_sum(w, id, &c)) return true;
    an_store_rows_beneath(w, &c);
    return false;
}

static void decide(an_planner *w, int32_t id)
{
    an_planner_node *wn = &w->node[id];
    const an_op op = (an_op)w->g->node[id]->op;
    if ((op == AN_OP_CONST && !wn->as_copy) || op == AN_OP_ASSIGN || op == AN_OP_LEAF) return;
    if (an_is_operand(w, id)) wn->stored = wn->operand = 1;
    if (!wn->stored && is_read_elsewhere(w, id) && is_stored_for_others(w, id)) wn->stored = 1;
}

an_status an_pass_materialize(an_planner *w)
{
    for (int i = 0; i < w->rq->n_roots; i++) {
        const int32_t base = an_base(w, w->rq->root[i]);
        if (!an_is_leaf(w, base)) w->node[base].stored = w->node[base].operand = 1;
    }
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && !an_is_view(w, id)) decide(w, id);
    return AN_OK;
}
