/* remat_fuse.c: can a launch of the backward pass write a rematerialized value beside its own outputs?
 *
 * A copy needs no launch of its own where a group of the backward pass runs over the same elements and reads the same
 * tensors at the same places:
 *
 *     forward    a = gelu(h)               reads h
 *     backward   dh = da * gelu'(h)        reads h at the same places: it carries a' = gelu(h) at the cost of a store
 *
 * The gradient of a norm reads the norm's input in the same way, that of silu(g) u both g and u. schedule.c asks this
 * file and launches the carrier before the value's first reader; lower.c writes the extra output.
 *
 * Index arithmetic is done in a pool of the caller's: nothing of the search is kept. */
#include "planner/planner_internal.h"

enum { MAX_READS = 128, MAX_DEPTH = 64 };

/* What the elements of a group are computed from, each with the index of the element that (row, column) reads: values
 * in memory, tables, and what is computed in place. */
typedef struct reads {
    int64_t large; /* elements from which a tensor counts: a row's mean, or a gain, costs little to read beside */
    int n, n_large;
    struct {
        int32_t base;
        an_ix at;
        bool large; /* and in memory */
    } met[MAX_READS];
    bool complete;
} reads;

static bool was_read(const reads *r, int32_t base, an_ix at)
{
    for (int i = 0; i < r->n; i++)
        if (r->met[i].base == base && r->met[i].at == at) return true;
    return false;
}

/* False when it was met before, or there is no space. */
static bool record_read(reads *r, int32_t base, an_ix at)
{
    if (was_read(r, base, at)) return false;
    if (r->n == MAX_READS) return r->complete = false;
    r->met[r->n].base = base;
    r->met[r->n].large = false;
    r->met[r->n++].at = at;
    return true;
}

/* Whether node `id` reads elements at other places than its own. */
static bool reads_elsewhere(const an_planner *w, int32_t id)
{
    const an_op op = (an_op)w->g->node[id]->op;
    return op == AN_OP_GATHER || op == AN_OP_PAD || op == AN_OP_CONCAT || w->node[id].as_copy;
}

/* What source s of node `id`, at iv, reads from memory, through what is computed in place. */
static void source_reads(const an_planner *w, an_ix_pool *ix, int32_t id, int s, const an_ix *iv, reads *r, int depth)
{
    int32_t base;
    an_ix at[AN_MAX_RANK];
    an_walk_views(w, ix, w->g->node[id]->src[s], iv, &base, at);
    const struct an_tensor *n = w->g->node[base];
    if (!record_read(r, base, an_ix_linear(ix, n->rank, n->shape, at))) return;
    if (an_is_leaf(w, base) || w->node[base].stored || n->op == AN_OP_GATHER) {
        r->met[r->n - 1].large = n->numel >= r->large;
        r->n_large += n->numel >= r->large;
        return;
    }
    if (!an_is_inlinable(w, base) || reads_elsewhere(w, base) || depth == MAX_DEPTH) {
        r->complete = false;
        return;
    }
    for (int i = 0; i < n->n_src; i++) source_reads(w, ix, base, i, at, r, depth + 1);
}

/* What node `id` reads as a member of group gr. */
static void member_reads(const an_planner *w, an_ix_pool *ix, const an_fusion_group *gr, int32_t id, reads *r)
{
    const struct an_tensor *n = w->g->node[id];
    const struct an_tensor *at = an_ops[n->op].cls == AN_CLS_REDUCE ? w->g->node[n->src[0]] : n;
    if (at->numel != gr->rows * gr->cols || an_starts_group(w, id) || reads_elsewhere(w, id)) {
        r->complete = false;
        return;
    }
    an_ix iv[AN_MAX_RANK], row = an_ix_mul(ix, an_ix_var(ix, AN_VAR_ROW, gr->rows), gr->cols);
    an_ix_unlinear(ix, an_ix_add(ix, row, an_ix_var(ix, AN_VAR_COL, gr->cols)), at->rank, at->shape, iv);
    for (int s = 0; s < n->n_src; s++) source_reads(w, ix, id, s, iv, r, 0);
}

bool an_may_carry(const an_planner *w, an_ix_pool *ix, int32_t g, int32_t id)
{
    const an_fusion_group *gr = &w->group[g];
    const int64_t numel = w->g->node[id]->numel;
    if ((gr->kind != AN_FUSION_ELEM && gr->kind != AN_FUSION_ROW && gr->kind != AN_FUSION_GEMM) || gr->closed ||
        gr->rows * gr->cols != numel || !gr->n_out || gr->no_launch || w->cuts->node[id].own_launch || w->rq->unfused)
        return false;
    reads own = {.large = numel / 4 + 1, .complete = true}, other = {.large = own.large};
    member_reads(w, ix, gr, id, &own);
    if (!own.complete || !own.n_large) return false;
    for (int32_t m = 0; m < gr->n_members && !ix->failed; m++) member_reads(w, ix, gr, gr->member[m], &other);
    bool all = !ix->failed && other.n < MAX_READS;
    for (int i = 0; i < own.n && all; i++) all = !own.met[i].large || was_read(&other, own.met[i].base, own.met[i].at);
    return all;
}
