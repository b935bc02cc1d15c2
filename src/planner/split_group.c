/* split_group.c: what outgrows a kernel is cut, and the plan made again.
 *
 * Rule: a row program may outgrow its tables (buffers a device binds, depth, nested pads). Its group is cut in the
 * middle: the later half of its nodes goes to a part of its own, and only nodes of one part share a group. A group of
 * one node has its operands stored that it would have computed in place. A group that outgrows a kernel and writes
 * values of the forward pass again goes without them: they get launches of their own. A second instance that outgrows
 * a kernel is not made: the first one's value is kept. Every cut makes something smaller, so that attempts end; the
 * others keep their groups, and the bits are the same in any case. */
#include "planner/planner_internal.h"

#include <stdio.h>

static bool member(const an_planner *w, int32_t id, int32_t g)
{
    return w->node[id].live && w->node[id].group == g && !an_is_move(w, id);
}

static bool halve(an_planner *w, int32_t g)
{
    int n = 0, seen = 0;
    for (int32_t id = 0; id < w->g->n; id++) n += member(w, id, g);
    if (n < 2) return false;
    int32_t part = ++w->cuts->n_parts;
    for (int32_t id = 0; id < w->g->n; id++)
        if (member(w, id, g) && seen++ >= n / 2) w->cuts->node[id].part = part;
    return true;
}

/* Marks what `id` computes in place of its operands, nearest first. */
static bool store_operands(an_planner *w, int32_t id, int depth)
{
    const struct an_tensor *n = w->g->node[id];
    bool any = false;
    for (int s = 0; s < n->n_src && depth < 64; s++) {
        int32_t base = an_base(w, n->src[s]);
        if (w->node[base].mat || !an_is_virtual(w, base)) continue;
        if (w->cuts->node[base].store)
            any |= store_operands(w, base, depth + 1);
        else
            any = w->cuts->node[base].store = true;
    }
    return any;
}

static bool without_guests(an_planner *w, int32_t g)
{
    bool any = false;
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].host == g) any = w->cuts->node[id].alone = true;
    return any;
}

bool an_split_group(an_planner *w, int32_t g, int32_t alone)
{
    an_cuts *c = w->cuts;
    bool cut = false;
    if (alone >= 0) {
        cut = !c->node[alone].keep;
        c->node[alone].keep = true;
    } else if (without_guests(w, g) || halve(w, g)) {
        cut = true;
    } else {
        for (int32_t id = 0; id < w->g->n; id++)
            if (member(w, id, g)) cut |= store_operands(w, id, 0);
    }
    if (!cut) return false;
    if (!c->n_split++) snprintf(c->first, sizeof c->first, "%.150s", w->err->text);
    c->more = true;
    an_err_clear(w->err);
    return true;
}
