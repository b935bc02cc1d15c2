/* remat_insert.c: where rematerialized copies are made.
 *
 * The launches are walked in order. Before a launch of the backward pass first reads a value that remat_select chose,
 * its copy must exist. Either a carrier writes it as an extra output (schedule chose it, and it comes first), or a
 * launch of its own is inserted just before the reader; copies of what the copy is computed from come before it.
 *
 *     order     ... loss   dgelu        dW = matmul(a'T, dy)
 *     result    ... loss   dgelu + a'   dW                        a' has a carrier
 *               ... loss   a'   dgelu   dW                        it has none
 *
 * Result: w->launch, and the extra outputs at the head of each carrier's `out`. From the launch that makes the copy on,
 * lowering lets readers read the copy. Without recomputation the launches are the order. */
#include "planner/planner_internal.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

typedef struct insertion {
    an_planner *w;
    bool *made;          /* [g->n]: the copy exists */
    int32_t *seen, walk; /* [g->n]: the last launch whose sources were followed through this node */
    int32_t *carried;    /* [n_groups]: first value that the group carries, chained by next_carried */
    int32_t *next_carried;
} insertion;

static an_status add_launch(an_planner *w, int32_t group, int32_t copy)
{
    if (w->n_launches == w->cap_launches) {
        const int32_t cap = AN_MAX(w->n_groups, 2 * w->cap_launches) + 1;
        an_planned_launch *bigger = AN_NEW_ARRAY(&w->scratch, an_planned_launch, cap);
        if (!bigger) return an_fail_nomem(w->err, "the plan's launches", sizeof *bigger * (size_t)cap);
        if (w->n_launches) memcpy(bigger, w->launch, sizeof *bigger * (size_t)w->n_launches);
        w->launch = bigger;
        w->cap_launches = cap;
    }
    w->launch[w->n_launches++] = (an_planned_launch){.group = group, .copy = copy};
    return AN_OK;
}

static an_status copy_if_needed(insertion *in, int32_t id, int32_t g);

/* Copies of the rematerialized values that `id` is computed from, through what is computed in place. */
static an_status copies_beneath(insertion *in, int32_t id, int32_t g, int depth)
{
    const an_planner *w = in->w;
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < MAX_DEPTH; s++) {
        const int32_t base = an_base(w, n->src[s]);
        if (an_is_leaf(w, base) || w->node[base].group == g || in->seen[base] == in->walk) continue;
        in->seen[base] = in->walk;
        if (w->node[base].stored)
            AN_TRY(copy_if_needed(in, base, g));
        else
            AN_TRY(copies_beneath(in, base, g, depth + 1));
    }
    return AN_OK;
}

static an_status copy_if_needed(insertion *in, int32_t id, int32_t g)
{
    an_planner_node *wn = &in->w->node[id];
    if (!wn->remat || in->made[id] || wn->carrier == g) return AN_OK;
    wn->carrier = -1; /* if it has one, that comes too late */
    AN_TRY(copies_beneath(in, id, g, 0));
    in->made[id] = true;
    return add_launch(in->w, wn->group, id);
}

/* The values that group g carries become its first outputs: they are older than its members, so that outputs stay
 * ascending. */
static an_status add_extra_outputs(insertion *in, int32_t g)
{
    an_planner *w = in->w;
    an_fusion_group *gr = &w->group[g];
    int32_t n = 0;
    for (int32_t id = in->carried[g]; id >= 0; id = in->next_carried[id]) n += w->node[id].carrier == g;
    if (!n) return AN_OK;
    int32_t *out = AN_NEW_ARRAY(&w->scratch, int32_t, n + gr->n_out);
    if (!out) return an_fail_nomem(w->err, "the planner's groups", sizeof *out * (size_t)(n + gr->n_out));
    memcpy(out + n, gr->out, sizeof *out * (size_t)gr->n_out);
    for (int32_t id = in->carried[g]; id >= 0; id = in->next_carried[id]) {
        if (w->node[id].carrier != g) continue;
        in->made[id] = true;
        out[gr->n_remat++] = id;
    }
    gr->out = out;
    gr->n_out += n;
    return AN_OK;
}

/* Copies that group g reads, for its members and for what it carries. */
static an_status copies_for(insertion *in, int32_t g)
{
    const an_fusion_group *gr = &in->w->group[g];
    in->walk++;
    for (int32_t id = in->carried[g]; id >= 0; id = in->next_carried[id])
        if (in->w->node[id].carrier == g) AN_TRY(copies_beneath(in, id, g, 0));
    for (int32_t m = 0; m < gr->n_members; m++) AN_TRY(copies_beneath(in, gr->member[m], g, 0));
    return add_extra_outputs(in, g);
}

static an_status prepare(insertion *in)
{
    an_planner *w = in->w;
    an_arena *a = &w->scratch;
    in->made = AN_NEW_ARRAY(a, bool, w->g->n + 1);
    in->seen = AN_NEW_ARRAY(a, int32_t, w->g->n + 1);
    in->next_carried = AN_NEW_ARRAY(a, int32_t, w->g->n + 1);
    in->carried = AN_NEW_ARRAY(a, int32_t, w->n_groups + 1);
    if (!in->made || !in->seen || !in->next_carried || !in->carried)
        return an_fail_nomem(w->err, "the plan's launches", (size_t)w->g->n);
    for (int32_t g = 0; g < w->n_groups; g++) in->carried[g] = -1;
    for (int32_t id = w->g->n - 1; id >= 0; id--) {
        const int32_t g = w->node[id].carrier;
        if (g < 0) continue;
        in->next_carried[id] = in->carried[g];
        in->carried[g] = id;
    }
    return AN_OK;
}

/* Groups of which nothing is needed in memory are not launched. Attention's gradient writes all its outputs. */
static bool is_launched(const an_fusion_group *gr)
{
    return (gr->n_out || gr->kind == AN_FUSION_ATTN_GRAD) && !gr->no_launch;
}

an_status an_pass_remat_insert(an_planner *w)
{
    insertion in = {.w = w};
    const bool recomputes = w->rq->recompute && w->loss_group >= 0;
    if (recomputes) AN_TRY(prepare(&in));
    for (int32_t i = 0; i < w->n_groups; i++) {
        const int32_t g = w->order[i];
        if (!is_launched(&w->group[g])) continue;
        if (recomputes && g > w->loss_group) AN_TRY(copies_for(&in, g));
        AN_TRY(add_launch(w, g, -1));
    }
    return AN_OK;
}
