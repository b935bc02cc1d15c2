/* liveness.c: pass 1: which nodes the roots and effects need, and who reads whom.
 *
 * Rule: a node is live when a root, or an assignment not yet run, reaches it through its sources. Uses are recorded
 * between compute nodes: moves are transparent, so that "the users of x" means the arithmetic that reads x, whatever
 * views stand between. */
#include "planner/planner_internal.h"

static bool is_root(const an_planner *w, int32_t id)
{
    for (int i = 0; i < w->rq->n_roots; i++)
        if (w->rq->root[i] == id) return true;
    return w->g->node[id]->op == AN_OP_ASSIGN && id >= w->rq->effects_from;
}

/* Counts (fill == false) or records the uses of every live compute node. */
static void each_use(an_planner *w, bool fill)
{
    for (int32_t id = 0; id < w->g->n; id++) {
        if (!w->node[id].live || an_is_move(w, id)) continue;
        const struct an_tensor *n = w->g->node[id];
        for (int s = 0; s < n->n_src; s++) {
            an_planner_node *b = &w->node[an_base(w, n->src[s])];
            if (fill) w->use[b->first_use + b->n_uses] = id;
            b->n_uses++;
        }
    }
}

an_status an_pass_live(an_planner *w)
{
    for (int32_t id = w->g->n - 1; id >= 0; id--) {
        if (is_root(w, id)) w->node[id].live = 1;
        if (!w->node[id].live) continue;
        w->n_live++;
        const struct an_tensor *n = w->g->node[id];
        for (int s = 0; s < n->n_src; s++) w->node[n->src[s]].live = 1;
    }
    return AN_OK;
}

/* Called by group once the copies are known (as_copy ends a chain of moves). */
an_status an_find_uses(an_planner *w)
{
    for (int32_t id = 0; id < w->g->n; id++) w->node[id].n_uses = 0;
    each_use(w, false);
    int32_t total = 0;
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
