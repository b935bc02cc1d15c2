/* assign_states.c: where assigned values are written.
 *
 * assign(state, value) happens at the end of a step: readers in the same step see the old state. The value is written
 * straight into the state when nothing needs the old one any more by then:
 *
 *     m' = 0.9 m + 0.1 g     one loop kernel reads m and writes m', element by element: m' is m's memory
 *     y' = a b, conv(x, w)   a launch that does not read y writes it
 *     p' = gather(p' of a rank) an exchange between ranks writes p, or several do
 *     g' = pack(g1 + dL/dp1, ...) each launch reads and writes its part of g, element by element
 *     else                   m' gets memory of its own, and a copy is appended ("commit")
 *
 * When a leaf is assigned to another state and is itself changed in this step (two states that are exchanged), its old
 * value is copied first ("old").
 *
 * Invariants: no byte of a state is written twice in a step; launches that write one are marked `commit`; what they write is not read
 * as the old state by any launch behind them. */
#include "planner/planner_internal.h"

typedef struct assignment {
    int32_t id;
    int32_t base;     /* node of the assigned value, below views */
    an_leaf_place to; /* the state */
    an_arg from;      /* where `base` is a leaf */
    bool from_leaf;
    int32_t old; /* value with the leaf's old content, -1 */
} assignment;

typedef struct assigning {
    an_planner *w;
    assignment *all;
    int n;
    /* [n_values]: the first step that writes the value, and its argument; -1: none, -2: several, not all exchanges */
    int32_t *writer, *arg;
} assigning;

static an_status find_assignments(assigning *x)
{
    an_planner *w = x->w;
    for (int32_t id = w->rq->effects_from; id < w->g->n; id++)
        x->n += w->g->node[id]->op == AN_OP_ASSIGN && w->node[id].live;
    x->all = AN_NEW_ARRAY(&w->scratch, assignment, x->n + 1);
    if (!x->all) return an_fail_nomem(w->err, "the plan's assignments", sizeof *x->all * (size_t)x->n);
    x->n = 0;
    for (int32_t id = w->rq->effects_from; id < w->g->n; id++) {
        const struct an_tensor *n = w->g->node[id];
        if (n->op != AN_OP_ASSIGN || !w->node[id].live) continue;
        const struct an_tensor *leaf = w->g->node[n->src[0]];
        assignment *a = &x->all[x->n++];
        *a = (assignment){.id = id, .base = an_base(w, n->src[1]), .old = -1};
        a->to = w->rq->leaf(w->rq->user, (an_leaf)leaf->attr[0], (int)leaf->attr[1]);
        a->from_leaf = an_is_leaf(w, a->base);
        if (a->from_leaf) a->from = an_arg_of(w, a->base, false);
    }
    return AN_OK;
}

static bool is_exchange_step(const an_plan *p, int32_t s)
{
    return an_kernel_is_exchange(&p->kernel[p->step[s].kernel]);
}

static void find_writers(assigning *x)
{
    const an_plan *p = x->w->plan;
    for (int32_t v = 0; v < p->n_values; v++) x->writer[v] = -1;
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            const int32_t v = p->step[s].arg[a].value;
            if (v < 0 || !p->step[s].arg[a].written) continue;
            const bool all_exchanges = x->writer[v] >= 0 && is_exchange_step(p, x->writer[v]) && is_exchange_step(p, s);
            if (x->writer[v] == -1)
                x->writer[v] = s, x->arg[v] = a;
            else if (!all_exchanges)
                x->writer[v] = -2;
        }
}

/* Is the state's memory written, or read as it was, by another assignment? */
static bool is_contended(const assigning *x, const assignment *a)
{
    for (int i = 0; i < x->n; i++) {
        const assignment *b = &x->all[i];
        if (b == a) continue;
        const an_arg state = {.slot = b->to.slot, .offset = b->to.offset, .bytes = b->to.bytes};
        if (an_overlaps(&state, &a->to) || (b->from_leaf && an_overlaps(&b->from, &a->to))) return true;
    }
    return false;
}

/* Whether value v may be written straight into the state: its writer reads the state not at all, or (a loop kernel) only element by
 * element, where it writes it, and no later step touches the state. Several exchanges write v in the state's memory from the first on: no
 * step from there on may touch it. */
static bool may_write_state(const assigning *x, int32_t v, const an_leaf_place *to)
{
    const an_plan *p = x->w->plan;
    const int32_t made = x->writer[v], out = x->arg[v];
    int first;
    if (made < 0 || p->value[v].inside >= 0) return false;
    const an_loop_kernel *loop = an_loop_of(p, &p->step[made], out, &first);
    const bool each = loop && loop->shape != AN_TILE;
    if (!each && !is_exchange_step(p, made) && p->value[v].bytes != to->bytes) return false; /* padded rows */
    for (int later = made; later < p->n_steps; later++)
        for (int a = 0; a < p->step[later].n_args; a++) {
            const an_arg *arg = &p->step[later].arg[a];
            if (!an_overlaps(arg, to)) continue;
            if (later > made || !each || arg->written || arg->offset != to->offset || arg->bytes != to->bytes ||
                !an_may_alias(loop, a - first, out - first))
                return false;
        }
    return true;
}

/* Whether `old`, argument a of step s, is read as it was when each write to packed value v has gone to the state's memory: those of later
 * steps do no harm, nor does one of the same step that reads and writes element by element. */
static bool is_read_in_time(const an_plan *p, int32_t v, const an_leaf_place *to, int32_t s, int a)
{
    const an_arg *old = &p->step[s].arg[a];
    for (int32_t t = 0; t <= s; t++)
        for (int b = 0; b < p->step[t].n_args; b++) {
            const an_arg *x = &p->step[t].arg[b];
            const int64_t in = x->written ? an_offset_in_value(p, x, v) : -1, at = to->offset + in;
            if (in < 0 || at >= old->offset + old->bytes || old->offset >= at + x->bytes) continue;
            int first;
            const an_loop_kernel *loop = t == s ? an_loop_of(p, &p->step[s], b, &first) : NULL;
            if (!loop || a < first || at != old->offset || x->bytes != old->bytes ||
                !an_may_alias(loop, a - first, b - first))
                return false;
        }
    return true;
}

/* Whether v holds packed gradients, or their sums over ranks, which are made in the same memory. */
static bool is_packed(const an_planner *w, int32_t v)
{
    const int32_t node = w->plan->value[v].node;
    if (node < 0 || w->plan->value[v].inside >= 0) return false;
    const struct an_tensor *n = w->g->node[node];
    if (n->op == AN_OP_PACK) return true;
    if (n->op != AN_OP_ALLREDUCE) return false;
    const int32_t base = an_base(w, n->src[0]);
    return w->g->node[base]->op == AN_OP_PACK && w->node[base].container == node;
}

/* may_write_state of packed gradients, which many steps write a part of. */
static bool may_write_parts(const assigning *x, int32_t v, const an_leaf_place *to)
{
    const an_plan *p = x->w->plan;
    if (!is_packed(x->w, v) || p->value[v].bytes != to->bytes) return false;
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            const an_arg *arg = &p->step[s].arg[a];
            if (an_overlaps(arg, to) && (arg->written || !is_read_in_time(p, v, to, s, a))) return false;
        }
    return true;
}

static an_status add_copy(an_planner *w, const assignment *a, const char *name, an_arg from, an_arg to, bool commit)
{
    an_arg arg[2] = {from, to};
    const an_kernel k = {.kind = AN_KERNEL_COPY, .name = name, .bytes = 2 * (uint64_t)to.bytes};
    an_plan_step *s = an_step_new(w, an_kernel_new(w, k), arg, 2, an_scope_of(w, a->id));
    if (!s) return an_lower_no_memory(w);
    s->commit = commit;
    w->plan->bill.copies++;
    return AN_OK;
}

/* Copies the content of a leaf that is assigned to a state and changes itself. */
static an_status save_old(assigning *x, assignment *a)
{
    an_planner *w = x->w;
    bool changes = false;
    for (int i = 0; a->from_leaf && i < x->n && !changes; i++) changes = an_overlaps(&a->from, &x->all[i].to);
    if (!changes) return AN_OK;
    a->old = an_value_new(w, -1, 0, a->from.bytes, AN_USE_SCRATCH, "old value");
    if (a->old < 0) return an_lower_no_memory(w);
    const an_arg to = {.slot = AN_SLOT_ARENA, .bytes = a->from.bytes, .written = true, .value = a->old};
    return add_copy(w, a, "old", a->from, to, false);
}

static void mark_commits(an_plan *p, int32_t v)
{
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++)
            if (p->step[s].arg[a].written && an_offset_in_value(p, &p->step[s].arg[a], v) >= 0)
                p->step[s].commit = true;
}

static an_status assign(assigning *x, const assignment *a)
{
    an_planner *w = x->w;
    an_plan *p = w->plan;
    const int32_t v = w->node[a->base].value;
    const bool free_state = !is_contended(x, a);
    const bool rows = w->node[a->base].row_update || w->g->node[a->base]->op == AN_OP_PUT_ROWS;
    if (rows && free_state && an_row_update_in_place(p, v, &a->to)) {
        find_writers(x); /* a step less */
        return AN_OK;
    }
    if (v >= 0 && p->value[v].slot == AN_SLOT_ARENA && free_state &&
        (may_write_state(x, v, &a->to) || may_write_parts(x, v, &a->to))) {
        p->value[v].slot = a->to.slot;
        p->value[v].offset = a->to.offset;
        mark_commits(p, v);
        return AN_OK;
    }
    const an_arg from = a->old >= 0 ? (an_arg){.slot = AN_SLOT_ARENA, .bytes = a->to.bytes, .value = a->old}
                                    : an_arg_of(w, a->base, false);
    const an_arg to = {.slot = a->to.slot, .offset = a->to.offset, .bytes = a->to.bytes, .written = true, .value = -1};
    return add_copy(w, a, "commit", from, to, true);
}

/* Values of the roots: they are read behind the last step. */
static an_status list_roots(an_planner *w)
{
    an_plan *p = w->plan;
    p->n_roots = w->rq->n_roots;
    p->root = AN_NEW_ARRAY(w->arena, int32_t, p->n_roots + 1);
    if (!p->root) return an_fail_nomem(w->err, "the plan's roots", 0);
    for (int i = 0; i < p->n_roots; i++)
        p->root[i] = w->node[an_base(w, w->rq->root[i])].value; /* -1: a leaf, read where it is */
    return AN_OK;
}

an_status an_pass_assign_states(an_planner *w)
{
    assigning x = {.w = w};
    AN_TRY(list_roots(w));
    AN_TRY(find_assignments(&x));
    for (int i = 0; i < x.n; i++) AN_TRY(save_old(&x, &x.all[i]));
    x.writer = AN_NEW_ARRAY(&w->scratch, int32_t, w->plan->n_values + 1);
    x.arg = AN_NEW_ARRAY(&w->scratch, int32_t, w->plan->n_values + 1);
    if (!x.writer || !x.arg) return an_fail_nomem(w->err, "the plan's assignments", 0);
    find_writers(&x);
    for (int i = 0; i < x.n; i++) AN_TRY(assign(&x, &x.all[i]));
    return AN_OK;
}
