/* remat_fuse.c: which launch of the backward pass writes a value of the forward pass a second time.
 *
 * A recomputed value needs no launch of its own where a group of the backward pass runs over the same elements and
 * reads the same tensor at the same places: GELU's gradient reads what GELU read, the gradient of a norm reads the
 * norm's input. Such a group is the value's host: it writes the value as one more output, before the value's first
 * reader (schedule.c asks, lower.c writes).
 *
 * Does not:  order launches, or keep what the search finds out: index arithmetic is in a pool of its own. */
#include "planner/planner_internal.h"

enum { MOST_MET = 128, DEEP = 64 };

/* What elements of a group are computed from, each with where in it the element at (row, column) stands: values in
 * memory or picked from a table there, and what is computed in place. */
typedef struct reads {
    int64_t large; /* elements from which a tensor counts: a row's mean, or a gain, costs little to read beside */
    int n, n_large;
    struct {
        int32_t base;
        an_ix at;
    } met[MOST_MET], first; /* of the large ones in memory */
    bool whole;             /* nothing was left out */
} reads;

/* False when it was met before, or there is no room. */
static bool meet(reads *r, int32_t base, an_ix at)
{
    for (int i = 0; i < r->n; i++)
        if (r->met[i].base == base && r->met[i].at == at) return false;
    if (r->n == MOST_MET) return r->whole = false;
    r->met[r->n].base = base;
    r->met[r->n++].at = at;
    return true;
}

static bool moves_elements(const an_planner *w, int32_t id)
{
    const an_op op = (an_op)w->g->node[id]->op;
    return op == AN_OP_GATHER || op == AN_OP_PAD || op == AN_OP_CONCAT || w->node[id].as_copy;
}

/* What source s of node `id`, seen from iv, takes from memory, through what is computed in place. */
static void source_reads(const an_planner *w, an_ix_pool *ix, int32_t id, int s, const an_ix *iv, reads *r, int depth)
{
    int32_t base;
    an_ix at[AN_MAX_RANK];
    an_walk(w, ix, w->g->node[id]->src[s], iv, &base, at);
    const struct an_tensor *n = w->g->node[base];
    if (!meet(r, base, an_ix_linear(ix, n->rank, n->shape, at))) return;
    if (an_is_leaf(w, base) || w->node[base].mat || n->op == AN_OP_GATHER) {
        if (n->numel >= r->large && !r->n_large++) r->first = r->met[r->n - 1];
        return;
    }
    if (!an_is_virtual(w, base) || moves_elements(w, base) || depth == DEEP) {
        r->whole = false;
        return;
    }
    for (int i = 0; i < n->n_src; i++) source_reads(w, ix, base, i, at, r, depth + 1);
}

/* What node `id` takes as a member of group gr. */
static void member_reads(const an_planner *w, an_ix_pool *ix, const an_fusion_group *gr, int32_t id, reads *r)
{
    const struct an_tensor *n = w->g->node[id];
    const struct an_tensor *at = an_ops[n->op].cls == AN_CLS_REDUCE ? w->g->node[n->src[0]] : n;
    if (at->numel != gr->rows * gr->cols || an_is_heavy(w, id) || moves_elements(w, id)) {
        r->whole = false;
        return;
    }
    an_ix iv[AN_MAX_RANK], row = an_ix_mul(ix, an_ix_var(ix, AN_VAR_ROW, gr->rows), gr->cols);
    an_ix_unlinear(ix, an_ix_add(ix, row, an_ix_var(ix, AN_VAR_COL, gr->cols)), at->rank, at->shape, iv);
    for (int s = 0; s < n->n_src; s++) source_reads(w, ix, id, s, iv, r, 0);
}

bool an_may_host(const an_planner *w, an_ix_pool *ix, int32_t g, int32_t first, const int32_t *next, int32_t id)
{
    const an_fusion_group *gr = &w->group[g];
    const int64_t numel = w->g->node[id]->numel;
    if ((gr->kind != AN_G_ELEM && gr->kind != AN_G_ROW && gr->kind != AN_G_GEMM) || gr->closed ||
        gr->rows * gr->cols != numel || !gr->n_out || gr->step == -2 || w->cuts->node[id].alone || w->rq->unfused)
        return false;
    reads own = {.large = numel / 4 + 1, .whole = true}, other = {.large = own.large};
    member_reads(w, ix, gr, id, &own);
    if (!own.whole || own.n_large != 1) return false;
    for (int32_t m = first; m >= 0 && !ix->failed; m = next[m]) member_reads(w, ix, gr, m, &other);
    return !ix->failed && !meet(&other, own.first.base, own.first.at) && other.n < MOST_MET;
}
