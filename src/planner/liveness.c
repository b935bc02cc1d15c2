/* liveness.c: which nodes are needed (dead code elimination: no later pass looks at the others).
 *
 * A node is live when a root reaches it through its sources, or an assignment that has not run yet does. Sources have
 * smaller numbers than their readers, so one walk from the last node to the first finds all. */
#include "planner/planner_internal.h"

an_status an_pass_liveness(an_planner *w)
{
    for (int i = 0; i < w->rq->n_roots; i++) w->node[w->rq->root[i]].live = 1;
    for (int32_t id = w->g->n - 1; id >= 0; id--) {
        const struct an_tensor *n = w->g->node[id];
        if (n->op == AN_OP_ASSIGN && id >= w->rq->effects_from) w->node[id].live = 1;
        if (!w->node[id].live) continue;
        w->n_live++;
        for (int s = 0; s < n->n_src; s++) w->node[n->src[s]].live = 1;
    }
    return AN_OK;
}
