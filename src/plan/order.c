/* order.c: the order in which groups are launched.
 *
 * A group depends on older groups only, so their numbers are an order, and without lazy nodes it is the one. A lazy
 * group of the forward pass (a piece of something too large to be in memory at once) waits until a group that needs it
 * is launched; what reads it in the forward pass waits too, to the end if nobody asks. So a piece of the logits is made
 * just before its gradient is taken, and its memory is the next piece's.
 *
 * Does not:  move anything else: the order of a step is the order in which it was built. */
#include "plan/work.h"

typedef struct ordering {
    an_work *w;
    int32_t *order, n;
    bool *done, *waits;  /* [n_groups] */
    int32_t *member;     /* [n_groups]: its first node; `next` chains the others, ascending */
    int32_t *next;       /* [g->n] */
    int32_t *seen, walk; /* [g->n]: the walk that has been there; a value read twice is followed once */
} ordering;

enum { DEEP = 256 }; /* virtual nodes above one another; what lies deeper is launched in time by its number */

static void launch(ordering *o, int32_t g);

/* Whether group g reads, in memory or through what it computes itself, a group that waits. */
static bool reads_waiting(ordering *o, int32_t id, int32_t g, int depth)
{
    const an_work *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < DEEP; s++) {
        const int32_t base = an_base(w, n->src[s]), from = w->node[base].group;
        if (from < 0 || from == g || o->seen[base] == o->walk) continue;
        o->seen[base] = o->walk;
        if (w->node[base].mat || n->op == AN_OP_PICK ? o->waits[from] : reads_waiting(o, base, g, depth + 1))
            return true;
    }
    return false;
}

static void need_sources(ordering *o, int32_t id, int32_t g, int32_t walk, int depth)
{
    const an_work *w = o->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < DEEP; s++) {
        const int32_t base = an_base(w, n->src[s]), from = w->node[base].group;
        if (from < 0 || from == g || o->seen[base] == walk) continue;
        o->seen[base] = walk;
        if (w->node[base].mat || !an_is_virtual(w, base))
            launch(o, from);
        else
            need_sources(o, base, g, walk, depth + 1);
    }
}

static void launch(ordering *o, int32_t g)
{
    if (o->done[g]) return;
    o->done[g] = true; /* sources are in older groups: no cycle comes back here */
    const int32_t walk = ++o->walk;
    for (int32_t id = o->member[g]; id >= 0; id = o->next[id]) need_sources(o, id, g, walk, 0);
    o->order[o->n++] = g;
}

static bool any_lazy(const an_work *w)
{
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && w->g->node[id]->lazy) return true;
    return false;
}

/* Lazy groups of the forward pass, and what reads them there. */
static void find_waiting(ordering *o)
{
    const an_work *w = o->w;
    const int32_t loss = w->rq->loss >= 0 ? w->rq->loss : w->g->n;
    for (int32_t g = 0; g < w->n_groups; g++) {
        o->walk++;
        for (int32_t id = o->member[g]; id >= 0 && !o->waits[g]; id = o->next[id])
            o->waits[g] = w->group[g].anchor <= loss && o->member[g] <= loss &&
                          (w->g->node[id]->lazy || reads_waiting(o, id, g, 0));
    }
}

an_status an_launch_order(an_work *w, int32_t **out)
{
    const size_t n = (size_t)w->n_groups;
    ordering o = {.w = w, .order = AN_NEW_ARRAY(&w->scratch, int32_t, n + 1)};
    if (!o.order) return an_fail_nomem(w->err, "the order of launches", n * sizeof *o.order);
    *out = o.order;
    if (!any_lazy(w)) {
        for (int32_t g = 0; g < w->n_groups; g++) o.order[g] = g;
        return AN_OK;
    }
    o.done = AN_NEW_ARRAY(&w->scratch, bool, n + 1);
    o.waits = AN_NEW_ARRAY(&w->scratch, bool, n + 1);
    o.member = AN_NEW_ARRAY(&w->scratch, int32_t, n + 1);
    o.next = AN_NEW_ARRAY(&w->scratch, int32_t, w->g->n + 1);
    o.seen = AN_NEW_ARRAY(&w->scratch, int32_t, w->g->n + 1); /* zero: no walk */
    if (!o.done || !o.waits || !o.member || !o.next || !o.seen)
        return an_fail_nomem(w->err, "the order of launches", n * sizeof *o.order);
    for (int32_t g = 0; g < w->n_groups; g++) o.member[g] = -1;
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
    return AN_OK;
}
