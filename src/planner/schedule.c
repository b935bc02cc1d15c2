/* schedule.c: the order in which groups are launched.
 *
 * A group depends on older groups only, so the groups' numbers are an order. They are the order, with two exceptions:
 *
 * 1. Deferred groups: chunks of a result that is too large to be in memory at once. Such a group of the forward pass,
 *    and what reads it there, is launched only when something that is launched needs it. That is its own gradient:
 *
 *        numbers    logits0 logits1 loss | dlogits1 dlogits0 dW
 *        launched   logits1 dlogits1 dW  logits0 dlogits0 dW ... loss        one chunk is alive at a time
 *
 * 2. Carriers of rematerialized values. Before a group of the backward pass first reads a value that is computed again,
 *    a group that can write it as an extra output (remat_fuse.c), and whose own sources are all written, is launched
 *    early: the gradient of GELU before the GEMM that reads GELU's output. Or one of the last CARRIER_WINDOW launches
 *    carries it: the gradient of GELU as the epilogue of a GEMM.
 *
 * Invariants: a group is launched after all groups that it reads; a carrier is launched early only when it waits for
 * nothing, so no cycle can arise. Nothing else is moved: the order of a step is the order in which it was built. */
#include "planner/planner_internal.h"

typedef struct ordering {
    an_planner *w;
    int32_t n, loss;               /* launched so far; last group of the forward pass */
    bool *begun, *missing, *waits; /* [n_groups]; missing: not in the order yet; waits: deferred until needed */
    bool *met;                     /* [g->n]: rematerialized values whose carrier was looked for */
    int32_t *seen, walk;           /* [g->n]: the last walk that visited the node: each walk visits it once */
    an_ix_pool ix;
} ordering;

enum {
    MAX_DEPTH = 256,   /* inlined nodes above one another; what is deeper is launched in time by its number */
    CARRIER_WINDOW = 4 /* launches between a carrier and the first reader of what it carries, at most */
};

static void launch(ordering *o, int32_t g);

/* Whether group g reads `base` in memory; else it computes it for itself: what is not stored, and what a newer group
 * stores (a leaf_only one, whose members an older group may read). */
static bool in_memory(const an_planner *w, int32_t base, int32_t g)
{
    return !an_is_inlinable(w, base) || (w->node[base].stored && w->node[base].group < g);
}

/* Whether group g reads, in memory or through what it computes for itself, one of these groups. */
static bool reads_any(ordering *o, const bool *these, int32_t id, int32_t g, int depth)
{
    const an_planner *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < MAX_DEPTH; s++) {
        const int32_t base = an_base(w, n->src[s]), from = w->node[base].group;
        if (from < 0 || from == g || o->seen[base] == o->walk) continue;
        o->seen[base] = o->walk;
        if (in_memory(w, base, g) ? these[from] : reads_any(o, these, base, g, depth + 1)) return true;
    }
    return false;
}

/* Launches the groups that group g reads through node `id`. */
static void need_sources(ordering *o, int32_t id, int32_t g, int32_t walk, int depth)
{
    const an_planner *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < MAX_DEPTH; s++) {
        const int32_t base = an_base(w, n->src[s]), from = w->node[base].group;
        if (from < 0 || from == g || o->seen[base] == walk) continue;
        o->seen[base] = walk;
        if (in_memory(w, base, g))
            launch(o, from);
        else
            need_sources(o, base, g, walk, depth + 1);
    }
}

static bool sources_are_written(ordering *o, int32_t g)
{
    const an_fusion_group *gr = &o->w->group[g];
    o->walk++;
    for (int32_t m = 0; m < gr->n_members; m++)
        if (reads_any(o, o->missing, gr->member[m], g, 0)) return false;
    return true;
}

/* ... but for the result of one GEMM of the backward pass, whose own sources are written: it is launched early, too. */
static bool sources_are_near(ordering *o, int32_t g)
{
    const an_fusion_group *gr = &o->w->group[g];
    int32_t first = -1;
    for (int32_t m = 0; m < gr->n_members && first < 0; m++) {
        const struct an_tensor *n = o->w->g->node[gr->member[m]];
        for (int s = 0; s < n->n_src && first < 0; s++) {
            const int32_t from = o->w->node[an_base(o->w, n->src[s])].group;
            if (from >= 0 && from != g && o->missing[from]) first = from;
        }
    }
    if (first <= o->loss || o->begun[first] || o->w->group[first].kind != AN_FUSION_GEMM) return false;
    o->missing[first] = false;
    const bool rest = sources_are_written(o, g);
    o->missing[first] = true;
    return rest && sources_are_written(o, first);
}

/* Whether node m, of group g or computed there in place, needs `id` in memory before g begins: a GEMM its operand. */
static bool needs_whole(const an_planner *w, int32_t id, int32_t m, int32_t g, int depth)
{
    const struct an_tensor *n = w->g->node[m];
    for (int s = 0; s < n->n_src && depth < MAX_DEPTH; s++) {
        const int32_t base = an_base(w, n->src[s]);
        if (base == id && an_reads_memory(w, m, s)) return true;
        if (w->node[base].group < 0 || w->node[base].group == g || in_memory(w, base, g)) continue;
        if (needs_whole(w, id, base, g, depth + 1)) return true;
    }
    return false;
}

static bool may_carry(ordering *o, int32_t g, int32_t id)
{
    const an_fusion_group *gr = &o->w->group[g];
    if (g <= o->loss || !an_may_carry(o->w, &o->ix, g, id)) return false;
    for (int32_t m = 0; m < gr->n_members; m++)
        if (needs_whole(o->w, id, gr->member[m], g, 0)) return false;
    return true;
}

/* Group g, whose sources are written, is the first to read rematerialized value `id`: which group carries it? */
static void find_carrier(ordering *o, int32_t id, int32_t g)
{
    const an_planner *w = o->w;
    int32_t *carrier = &o->w->node[id].carrier;
    for (int32_t h = o->loss + 1; h < w->n_groups && *carrier < 0; h++)
        if ((h == g || !o->begun[h]) && may_carry(o, h, id) && (h == g || sources_are_written(o, h))) *carrier = h;
    for (int32_t h = o->loss + 1; h < w->n_groups && *carrier < 0; h++)
        if (!o->begun[h] && may_carry(o, h, id) && sources_are_near(o, h)) *carrier = h;
    if (*carrier >= 0) launch(o, *carrier); /* has begun when it is g */
    for (int32_t i = o->n - 1; i >= 0 && i >= o->n - CARRIER_WINDOW && *carrier < 0; i--)
        if (may_carry(o, w->order[i], id)) *carrier = w->order[i];
}

/* Finds carriers of the rematerialized values that group g reads, and of those that they are computed from. */
static void need_copies(ordering *o, int32_t id, int32_t g, int depth)
{
    const an_planner *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < MAX_DEPTH; s++) {
        const int32_t base = an_base(w, n->src[s]);
        if (w->node[base].group < 0 || w->node[base].group == g || o->met[base]) continue;
        o->met[base] = true;
        if (in_memory(w, base, g) && !w->node[base].remat) continue;
        need_copies(o, base, g, depth + 1);
        if (w->node[base].remat) find_carrier(o, base, g);
    }
}

static void launch(ordering *o, int32_t g)
{
    const an_fusion_group *gr = &o->w->group[g];
    if (o->begun[g]) return;
    o->begun[g] = true; /* sources are in older groups: no cycle comes back here */
    const int32_t walk = ++o->walk;
    for (int32_t m = 0; m < gr->n_members; m++) need_sources(o, gr->member[m], g, walk, 0);
    for (int32_t m = 0; o->w->rq->recompute && g > o->loss && m < gr->n_members; m++)
        need_copies(o, gr->member[m], g, 0);
    o->missing[g] = false;
    o->w->order[o->n++] = g;
}

static bool any_deferred(const an_planner *w)
{
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && w->g->node[id]->deferred) return true;
    return false;
}

/* Deferred groups of the forward pass, and what reads them there. */
static void find_waiting(ordering *o)
{
    const an_planner *w = o->w;
    const int32_t loss = w->rq->loss >= 0 ? w->rq->loss : w->g->n;
    for (int32_t g = 0; g < w->n_groups; g++) {
        const an_fusion_group *gr = &w->group[g];
        o->walk++;
        for (int32_t m = 0; m < gr->n_members && !o->waits[g]; m++)
            o->waits[g] = gr->anchor <= loss && gr->member[0] <= loss &&
                          (w->g->node[gr->member[m]]->deferred || reads_any(o, o->waits, gr->member[m], g, 0));
    }
}

static bool allocate(ordering *o)
{
    const size_t n = (size_t)o->w->n_groups + 1, n_nodes = (size_t)o->w->g->n + 1;
    an_arena *a = &o->w->scratch;
    o->begun = AN_NEW_ARRAY(a, bool, n);
    o->waits = AN_NEW_ARRAY(a, bool, n);
    o->missing = AN_NEW_ARRAY(a, bool, n);
    o->seen = AN_NEW_ARRAY(a, int32_t, n_nodes); /* zero: no walk */
    o->met = AN_NEW_ARRAY(a, bool, n_nodes);
    return o->begun && o->waits && o->missing && o->seen && o->met;
}

an_status an_pass_schedule(an_planner *w)
{
    const bool recomputes = w->rq->recompute && w->loss_group >= 0;
    ordering o = {.w = w, .loss = recomputes ? w->loss_group : w->n_groups};
    w->order = AN_NEW_ARRAY(&w->scratch, int32_t, w->n_groups + 1);
    if (!w->order || !allocate(&o))
        return an_fail_nomem(w->err, "the order of launches", sizeof *w->order * (size_t)w->n_groups);
    for (int32_t id = 0; id < w->g->n; id++) w->node[id].carrier = -1;
    if (!any_deferred(w) && !recomputes) {
        for (int32_t g = 0; g < w->n_groups; g++) w->order[g] = g;
        return AN_OK;
    }
    for (int32_t g = 0; g < w->n_groups; g++) o.missing[g] = true;
    find_waiting(&o);
    for (int32_t g = 0; g < w->n_groups; g++)
        if (!o.waits[g]) launch(&o, g);
    for (int32_t g = 0; g < w->n_groups; g++) launch(&o, g);
    const bool no_memory = o.ix.no_memory;
    an_ix_pool_free(&o.ix);
    return no_memory ? an_fail_nomem(w->err, "index arithmetic", 0) : AN_OK;
}
