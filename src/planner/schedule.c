/* schedule.c: the order in which groups are launched.
 *
 * A group depends on older groups only, so their numbers are an order, and without deferred nodes and recomputation it is
 * the one. A deferred group of the forward pass (a piece of something too large to be in memory at once) waits until a
 * group that needs it is launched; what reads it in the forward pass waits too, to the end if nobody asks. So a piece
 * of the logits is made just before its gradient is taken, and its memory is the next piece's.
 *
 * Before a group of the backward pass first reads a value that is computed again, a group that can write it beside its
 * own (remat_fuse.c), and whose own sources are all there, is launched out of turn: the gradient of GELU, before the product
 * that takes GELU's output to the gradient of a weight. Or it was launched just before, and the gradient of GELU is the
 * epilogue of a product. It waits for nothing, so that no cycle can arise.
 *
 * Does not:  move anything else: the order of a step is the order in which it was built. */
#include "planner/planner_internal.h"

typedef struct ordering {
    an_planner *w;
    int32_t *order, n, loss;       /* loss: last group of the forward pass */
    bool *begun, *missing, *waits; /* [n_groups]; missing: not in the order yet */
    bool *met;                     /* [g->n]: what the backward pass has read */
    an_ix_pool ix;
    int32_t *member;     /* [n_groups]: its first node; `next` chains the others, ascending */
    int32_t *next;       /* [g->n] */
    int32_t *seen, walk; /* [g->n]: the walk that has been there; a value read twice is followed once */
} ordering;

enum {
    DEEP = 256, /* virtual nodes above one another; what lies deeper is launched in time by its number */
    NEAR = 4    /* launches that a value is written before its reader, at most */
};

static void launch(ordering *o, int32_t g);

/* Whether group g reads `base` in memory; else it computes it itself: what nobody stores, and what a newer group does
 * (a loose one, whose members an older group may read). */
static bool in_memory(const an_planner *w, int32_t base, int32_t g)
{
    return !an_is_virtual(w, base) || (w->node[base].mat && w->node[base].group < g);
}

/* Whether group g reads, in memory or through what it computes itself, one of these groups. */
static bool reads_any(ordering *o, const bool *these, int32_t id, int32_t g, int depth)
{
    const an_planner *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < DEEP; s++) {
        const int32_t base = an_base(w, n->src[s]), from = w->node[base].group;
        if (from < 0 || from == g || o->seen[base] == o->walk) continue;
        o->seen[base] = o->walk;
        if (in_memory(w, base, g) ? these[from] : reads_any(o, these, base, g, depth + 1)) return true;
    }
    return false;
}

static void need_sources(ordering *o, int32_t id, int32_t g, int32_t walk, int depth)
{
    const an_planner *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < DEEP; s++) {
        const int32_t base = an_base(w, n->src[s]), from = w->node[base].group;
        if (from < 0 || from == g || o->seen[base] == walk) continue;
        o->seen[base] = walk;
        if (in_memory(w, base, g))
            launch(o, from);
        else
            need_sources(o, base, g, walk, depth + 1);
    }
}

static bool all_there(ordering *o, int32_t g)
{
    o->walk++;
    for (int32_t id = o->member[g]; id >= 0; id = o->next[id])
        if (reads_any(o, o->missing, id, g, 0)) return false;
    return true;
}

/* Whether node m, of group g or computed there in place, needs `id` in memory before g begins: a product its operand.
 */
static bool needs_whole(const an_planner *w, int32_t id, int32_t m, int32_t g, int depth)
{
    const struct an_tensor *n = w->g->node[m];
    for (int s = 0; s < n->n_src && depth < DEEP; s++) {
        const int32_t base = an_base(w, n->src[s]);
        if (base == id && an_reads_memory(w, m, s)) return true;
        if (w->node[base].group < 0 || w->node[base].group == g || in_memory(w, base, g)) continue;
        if (needs_whole(w, id, base, g, depth + 1)) return true;
    }
    return false;
}

static bool may_host(ordering *o, int32_t h, int32_t id)
{
    if (h <= o->loss || !an_may_host(o->w, &o->ix, h, o->member[h], o->next, id)) return false;
    for (int32_t m = o->member[h]; m >= 0; m = o->next[m])
        if (needs_whole(o->w, id, m, h, 0)) return false;
    return true;
}

/* Group g, whose sources are there, is the first to read value `id` again: who writes it? */
static void find_host(ordering *o, int32_t id, int32_t g)
{
    int32_t *host = &o->w->node[id].host;
    for (int32_t h = o->loss + 1; h < o->w->n_groups && *host < 0; h++)
        if ((h == g || !o->begun[h]) && may_host(o, h, id) && (h == g || all_there(o, h))) *host = h;
    if (*host >= 0) launch(o, *host); /* has begun when it is g */
    for (int32_t i = o->n - 1; i >= 0 && i >= o->n - NEAR && *host < 0; i--)
        if (may_host(o, o->order[i], id)) *host = o->order[i];
}

/* Finds hosts of what group g reads again, and of what that is computed from. */
static void need_again(ordering *o, int32_t id, int32_t g, int depth)
{
    const an_planner *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < DEEP; s++) {
        const int32_t base = an_base(w, n->src[s]);
        if (w->node[base].group < 0 || w->node[base].group == g || o->met[base]) continue;
        o->met[base] = true;
        if (in_memory(w, base, g) && !w->node[base].remat) continue;
        need_again(o, base, g, depth + 1);
        if (w->node[base].remat) find_host(o, base, g);
    }
}

static void launch(ordering *o, int32_t g)
{
    if (o->begun[g]) return;
    o->begun[g] = true; /* sources are in older groups: no cycle comes back here */
    const int32_t walk = ++o->walk;
    for (int32_t id = o->member[g]; id >= 0; id = o->next[id]) need_sources(o, id, g, walk, 0);
    for (int32_t id = o->w->rq->recompute && g > o->loss ? o->member[g] : -1; id >= 0; id = o->next[id])
        need_again(o, id, g, 0);
    o->missing[g] = false;
    o->order[o->n++] = g;
}

static bool any_lazy(const an_planner *w)
{
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && w->g->node[id]->deferred) return true;
    return false;
}

/* Lazy groups of the forward pass, and what reads them there. */
static void find_waiting(ordering *o)
{
    const an_planner *w = o->w;
    const int32_t loss = w->rq->loss >= 0 ? w->rq->loss : w->g->n;
    for (int32_t g = 0; g < w->n_groups; g++) {
        o->walk++;
        for (int32_t id = o->member[g]; id >= 0 && !o->waits[g]; id = o->next[id])
            o->waits[g] = w->group[g].anchor <= loss && o->member[g] <= loss &&
                          (w->g->node[id]->deferred || reads_any(o, o->waits, id, g, 0));
    }
}

static bool make_room(ordering *o)
{
    const size_t n = (size_t)o->w->n_groups + 1, n_nodes = (size_t)o->w->g->n + 1;
    an_arena *a = &o->w->scratch;
    o->begun = AN_NEW_ARRAY(a, bool, n);
    o->waits = AN_NEW_ARRAY(a, bool, n);
    o->missing = AN_NEW_ARRAY(a, bool, n);
    o->member = AN_NEW_ARRAY(a, int32_t, n);
    o->next = AN_NEW_ARRAY(a, int32_t, n_nodes);
    o->seen = AN_NEW_ARRAY(a, int32_t, n_nodes); /* zero: no walk */
    o->met = AN_NEW_ARRAY(a, bool, n_nodes);
    return o->begun && o->waits && o->missing && o->member && o->next && o->seen && o->met;
}

an_status an_launch_order(an_planner *w, int32_t loss_group, int32_t **out)
{
    const bool recomputes = w->rq->recompute && loss_group >= 0;
    ordering o = {.w = w, .loss = recomputes ? loss_group : w->n_groups};
    *out = o.order = AN_NEW_ARRAY(&w->scratch, int32_t, w->n_groups + 1);
    if (!o.order || !make_room(&o))
        return an_fail_nomem(w->err, "the order of launches", sizeof *o.order * (size_t)w->n_groups);
    for (int32_t id = 0; id < w->g->n; id++) w->node[id].host = -1;
    if (!any_lazy(w) && !recomputes) {
        for (int32_t g = 0; g < w->n_groups; g++) o.order[g] = g;
        return AN_OK;
    }
    for (int32_t g = 0; g < w->n_groups; g++) {
        o.member[g] = -1;
        o.missing[g] = true;
    }
    for (int32_t id = w->g->n - 1; id >= 0; id--) {
        const int32_t g = w->node[id].live ? w->node[id].group : -1;
        if (g < 0 || an_is_move(w, id)) continue;
        o.next[id] = o.member[g];
        o.member[g] = id;
    }
    find_waiting(&o);
    for (int32_t g = 0; g < w->n_groups; g++)
        if (!o.waits[g]) launch(&o, g);
    for (int32_t g = 0; g < w->n_groups; g++) launch(&o, g);
    const bool no_memory = o.ix.no_memory;
    an_ix_pool_free(&o.ix);
    return no_memory ? an_fail_nomem(w->err, "index arithmetic", 0) : AN_OK;
}
