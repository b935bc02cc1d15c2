/* row_updates.c: one row of a state replaced in place, as decoding with a KV cache does it.
 *
 *     assign(state, where(iota == i, row, state))     row i of the state is replaced, the others stay
 *
 * As arithmetic this would read and write the whole state. Recognised here, it is lowered to a copy of the state and a
 * row update (dynamic_update_slice) of the copy; assign_states removes the copy when nothing reads the old state any
 * more, and then only the row is written.
 *
 * PUT_ROWS, many rows at ids that are computed or given, is lowered in the same way (lower_copy.c).
 *
 * Recognised, on targets that have the kernel, when the index is a scalar of the step, the row is (or will be) in memory
 * with contiguous inner axes, and the state is the one that is assigned. What is not recognised stays arithmetic: the
 * same bits. */
#include "planner/planner_internal.h"

#include <string.h>

static const struct an_tensor *source(const an_planner *w, const struct an_tensor *n, int s)
{
    return w->g->node[n->src[s]];
}

/* The axis along which `c`, a condition of n's shape, is iota == i with a scalar leaf i; -1: it is something else. */
static int indexed_axis(const an_planner *w, const struct an_tensor *n, const struct an_tensor *c, int32_t *index)
{
    if (c->op == AN_OP_EXPAND) c = source(w, c, 0);
    if (c->op != AN_OP_EQ || c->rank != n->rank) return -1;
    for (int s = 0; s < 2; s++) {
        const struct an_tensor *iota = source(w, c, s), *at = w->g->node[an_base(w, c->src[1 - s])];
        if (iota->op != AN_OP_IOTA || at->op != AN_OP_LEAF || at->numel != 1 || at->dtype != AN_I32) continue;
        int axis = (int)iota->attr[0];
        if (c->shape[axis] != n->shape[axis] || c->numel != c->shape[axis]) continue;
        *index = at->id;
        return axis;
    }
    return -1;
}

static bool assigned_to(const an_planner *w, int32_t id, int32_t leaf)
{
    for (int32_t a = w->rq->effects_from; a < w->g->n; a++) {
        const struct an_tensor *n = w->g->node[a];
        if (n->op == AN_OP_ASSIGN && w->node[a].live && n->src[0] == leaf && n->src[1] == id) return true;
    }
    return false;
}

/* Extents and strides of a row that replaces one along `axis` of n: outer rows `stride` apart, inner elements
 * contiguous. */
static bool row_spec(const struct an_tensor *n, const struct an_tensor *row, int axis, const an_view *v,
                     an_row_update_spec *s)
{
    *s = (an_row_update_spec){
        .outer = 1, .rows = n->shape[axis], .inner = 1, .bytes = (uint8_t)an_dtype_bytes((an_dtype)n->dtype)};
    for (int i = n->rank - 1; i >= 0; i--) {
        if (i == axis ? row->shape[i] != 1 : row->shape[i] != n->shape[i]) return false;
        if (row->shape[i] == 1) continue;
        if (i > axis) {
            if (v->stride[i] != s->inner) return false;
            s->inner *= row->shape[i];
        } else {
            if (s->outer > 1 && v->stride[i] != s->stride * s->outer) return false;
            if (s->outer == 1) s->stride = v->stride[i];
            s->outer *= row->shape[i];
        }
    }
    return true;
}

bool an_row_update_of(an_planner *w, int32_t id, an_row_update *out)
{
    const struct an_tensor *n = w->g->node[id];
    if (n->op != AN_OP_WHERE || !w->rq->target->row_update || w->rq->unfused) return false;
    const struct an_tensor *row = source(w, n, 1), *state = source(w, n, 2);
    int axis = indexed_axis(w, n, source(w, n, 0), &out->index);
    if (axis < 0 || state->op != AN_OP_LEAF || state->attr[0] != AN_LEAF_STATE || row->op != AN_OP_EXPAND) return false;
    *out = (an_row_update){.index = out->index, .state = n->src[2], .row = row->src[0]};
    an_view v = an_view_of(w, out->row, false);
    const struct an_tensor *base = w->g->node[v.base];
    if (!v.affine || v.dtype != n->dtype || base->op == AN_OP_CONST || !assigned_to(w, id, n->src[2])) return false;
    return row_spec(n, source(w, row, 0), axis, &v, &out->spec);
}

an_status an_pass_row_updates(an_planner *w)
{
    an_row_update unused;
    for (int32_t id = 0; id < w->g->n; id++)
        w->node[id].row_update = w->node[id].live && an_row_update_of(w, id, &unused);
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------- for assign_states */

bool an_overlaps(const an_arg *a, const an_leaf_place *to)
{
    return a->slot == to->slot && a->offset < to->offset + to->bytes && to->offset < a->offset + a->bytes;
}

/* Whether a kernel writes some rows of a table that its output holds already. */
static bool writes_rows(const an_kernel *k)
{
    return k->kind == AN_KERNEL_ROW_UPDATE || (k->kind == AN_KERNEL_CALL && k->u.call.op == AN_OP_PUT_ROWS);
}

/* The step that copies the state to value v, when the next one updates rows in it; -1. */
static int copy_of(const an_plan *p, int32_t v, const an_leaf_place *to)
{
    for (int s = 0; s + 1 < p->n_steps; s++) {
        const an_plan_step *c = &p->step[s];
        if (p->kernel[c->kernel].kind == AN_KERNEL_COPY && c->arg[1].value == v && c->arg[0].slot == to->slot &&
            c->arg[0].offset == to->offset && writes_rows(&p->kernel[p->step[s + 1].kernel]))
            return s;
    }
    return -1;
}

bool an_row_update_in_place(an_plan *p, int32_t v, const an_leaf_place *to)
{
    int copy = copy_of(p, v, to);
    if (copy < 0 || p->value[v].inside >= 0) return false;
    for (int s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            const an_arg *x = &p->step[s].arg[a];
            if (s != copy && an_overlaps(x, to) && (s > copy || x->written)) return false;
        }
    memmove(&p->step[copy], &p->step[copy + 1], sizeof *p->step * (size_t)(p->n_steps - copy - 1));
    p->n_steps--;
    p->bill.copies--;
    p->value[v].slot = to->slot;
    p->value[v].offset = to->offset;
    p->step[copy].commit = true;
    return true;
}
