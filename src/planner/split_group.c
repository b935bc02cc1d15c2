/* split_group.c: what exceeds a kernel's limits is cut, and the plan is made again.
 *
 * A loop kernel has limits: buffers that a device binds, depth of an expression, nested pads. A group that exceeds one
 * is cut at the first of these that applies:
 *
 *     extra outputs       they get launches of their own (own_launch)
 *     two members         the later half of its nodes goes to a part of its own; only nodes of one part share a group
 *     one member          its operands that were computed in place are stored
 *     a copy's kernel     there is no copy: the original is kept for the backward pass
 *
 * Invariants: every cut makes something smaller, so attempts end; all other groups stay as they were; the bits are the
 * same in any case. */
#include "planner/planner_internal.h"

#include <stdio.h>

enum { MAX_DEPTH = 64 };

static bool halve(an_planner *w, const an_fusion_group *gr)
{
    if (gr->n_members < 2) return false;
    const int32_t part = ++w->cuts->n_parts;
    for (int32_t m = gr->n_members / 2; m < gr->n_members; m++) w->cuts->node[gr->member[m]].part = part;
    return true;
}

/* Marks the operands that `id` computes in place, nearest first. */
static bool store_operands(an_planner *w, int32_t id, int depth)
{
    const struct an_tensor *n = w->g->node[id];
    bool any = false;
    for (int s = 0; s < n->n_src && depth < MAX_DEPTH; s++) {
        int32_t base = an_base(w, n->src[s]);
        if (w->node[base].stored || !an_is_inlinable(w, base)) continue;
        if (w->cuts->node[base].store)
            any |= store_operands(w, base, depth + 1);
        else
            any = w->cuts->node[base].store = true;
    }
    return any;
}

static bool drop_extra_outputs(an_planner *w, const an_fusion_group *gr)
{
    for (int32_t o = 0; o < gr->n_remat; o++) w->cuts->node[gr->out[o]].own_launch = true;
    return gr->n_remat > 0;
}

static bool cut_group(an_planner *w, const an_fusion_group *gr)
{
    if (drop_extra_outputs(w, gr) || halve(w, gr)) return true;
    bool any = false;
    for (int32_t m = 0; m < gr->n_members; m++) any |= store_operands(w, gr->member[m], 0);
    return any;
}

static bool keep(an_planner *w, int32_t id)
{
    const bool kept = w->cuts->node[id].keep;
    w->cuts->node[id].keep = true;
    return !kept;
}

bool an_split_group(an_planner *w, int32_t g, int32_t copy)
{
    an_cuts *c = w->cuts;
    if (!(copy >= 0 ? keep(w, copy) : cut_group(w, &w->group[g]))) return false;
    if (!c->n_split++) snprintf(c->first, sizeof c->first, "%.150s", w->err->text);
    c->more = true;
    an_err_clear(w->err);
    return true;
}
