/* assign_buffers.c: pass 6: values → offsets in one arena, by lifetimes.
 *
 * Rule: a value lives from the step that writes it to the last that reads it; parts of a whole live with it. First,
 * values are placed where they must end up: an assigned value is written straight into its state when every earlier
 * reader of the old value is done by then, else it is copied at the end of the step. Second, an elementwise result
 * takes over the memory of an input that dies there (dlogits over logits). Third, what is left is laid out greedily,
 * largest first, at the lowest offset free during its life. With `apart` nothing is shared and guard zones stand
 * between. */
#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

static int32_t whole_of(const an_plan *p, int32_t v)
{
    while (p->value[v].inside >= 0) v = p->value[v].inside;
    return v;
}

static void touch(an_plan *p, int32_t v, int step)
{
    for (; v >= 0; v = p->value[v].inside) {
        an_value *x = &p->value[v];
        if (x->first < 0 || step < x->first) x->first = step;
        if (step > x->last) x->last = step;
    }
}

static void lifetimes(an_plan *p)
{
    for (int v = 0; v < p->n_values; v++) p->value[v].first = p->value[v].last = -1;
    for (int s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++)
            if (p->step[s].arg[a].value >= 0) touch(p, p->step[s].arg[a].value, s);
    for (int i = 0; i < p->n_roots; i++)
        if (p->root[i] >= 0) touch(p, p->root[i], p->n_steps);
}

/* ---------------------------------------------------------------------------------------------- assignments */

static bool overlaps(const an_arg *a, const an_leaf_place *l)
{
    return a->slot == l->slot && a->offset < l->offset + l->bytes && l->offset < a->offset + a->bytes;
}

/* The step that writes value v whole, -1 when there is more than one. */
static int writer_of(const an_plan *p, int32_t v, int *arg)
{
    int found = -1;
    for (int s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            if (p->step[s].arg[a].value != v || !p->step[s].arg[a].written) continue;
            if (found >= 0) return -1;
            found = s;
            *arg = a;
        }
    return found;
}

static const an_loop_kernel *program_of(const an_plan *p, const an_plan_step *s, int arg, int *first)
{
    *first = s->epilogue >= 0 ? s->n_gemm_args : 0;
    int k = s->epilogue >= 0 ? s->epilogue : s->kernel;
    if (arg < *first || p->kernel[k].kind != AN_KERNEL_LOOP) return NULL;
    return p->kernel[k].u.loop;
}

/* Where assignment `id` puts its value. */
static an_leaf_place target_of(const an_planner *w, int32_t id)
{
    const struct an_tensor *leaf = w->g->node[w->g->node[id]->src[0]];
    return w->rq->leaf(w->rq->user, (an_leaf)leaf->attr[0], (int)leaf->attr[1]);
}

static bool meet(const an_leaf_place *a, const an_leaf_place *b)
{
    return a->slot == b->slot && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool assigns(const an_planner *w, int32_t id)
{
    return w->g->node[id]->op == AN_OP_ASSIGN && w->node[id].live;
}

/* Is the memory at `to` needed as it was, or written again, by another assignment? */
static bool contended(const an_planner *w, int32_t id, const an_leaf_place *to)
{
    for (int32_t other = w->rq->effects_from; other < w->g->n; other++) {
        if (other == id || !assigns(w, other)) continue;
        an_leaf_place there = target_of(w, other);
        if (meet(&there, to)) return true;
        int32_t base = an_base(w, w->g->node[other]->src[1]);
        if (w->g->node[base]->op != AN_OP_LEAF) continue;
        an_arg from = an_arg_of((an_planner *)w, base, 0, false);
        if (overlaps(&from, to)) return true;
    }
    return false;
}

static bool may_write_state(const an_planner *w, int32_t v, const an_leaf_place *to)
{
    const an_plan *p = w->plan;
    int out = -1, first, made = writer_of(p, v, &out);
    if (made < 0 || p->value[v].inside >= 0) return false;
    const an_plan_step *s = &p->step[made];
    const an_loop_kernel *prog = program_of(p, s, out, &first);
    if (!prog || prog->shape == AN_TILE) return false;
    for (int later = made; later < p->n_steps; later++)
        for (int a = 0; a < p->step[later].n_args; a++) {
            const an_arg *x = &p->step[later].arg[a];
            if (!overlaps(x, to)) continue;
            if (later > made || x->written || x->offset != to->offset || x->bytes != to->bytes ||
                !an_same_place(prog, a - first, out - first))
                return false;
        }
    return true;
}

static an_status assignments(an_planner *w)
{
    an_plan *p = w->plan;
    int32_t *old = AN_NEW_ARRAY(&w->scratch, int32_t, w->g->n + 1); /* of a leaf that is assigned too: its old value */
    if (!old) return an_fail_nomem(w->err, "the plan's assignments", 0);
    for (int32_t id = w->rq->effects_from; id < w->g->n; id++) {
        old[id] = -1;
        if (!assigns(w, id)) continue;
        int32_t base = an_base(w, w->g->node[id]->src[1]);
        if (w->g->node[base]->op != AN_OP_LEAF) continue;
        an_arg from = an_arg_of(w, base, 0, false);
        bool changes = false;
        for (int32_t other = w->rq->effects_from; other < w->g->n && !changes; other++) {
            if (!assigns(w, other)) continue;
            an_leaf_place there = target_of(w, other);
            changes = overlaps(&from, &there);
        }
        if (!changes) continue;
        old[id] = an_value_new(w, -1, 0, from.bytes, AN_USE_SCRATCH, "old value");
        an_arg arg[2] = {from, {.slot = AN_SLOT_ARENA, .bytes = from.bytes, .written = true, .value = old[id]}};
        if (old[id] < 0 ||
            !an_step_new(
                w,
                an_kernel_new(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "old", .bytes = 2 * (uint64_t)from.bytes}),
                arg, 2, an_scope_of(w, id)))
            return an_fail_nomem(w->err, "the plan's steps", sizeof(an_plan_step));
        p->bill.copies++;
    }
    for (int32_t id = w->rq->effects_from; id < w->g->n; id++) {
        const struct an_tensor *n = w->g->node[id];
        if (!assigns(w, id)) continue;
        an_leaf_place to = target_of(w, id);
        int32_t base = an_base(w, n->src[1]), v = w->node[base].value;
        if (w->node[base].put && !contended(w, id, &to) && an_row_update_in_place(p, v, &to)) continue;
        if (v >= 0 && p->value[v].slot == AN_SLOT_ARENA && !contended(w, id, &to) && may_write_state(w, v, &to)) {
            int arg = -1, made = writer_of(p, v, &arg);
            p->value[v].slot = to.slot;
            p->value[v].offset = to.offset;
            p->step[made].commit = true;
            continue;
        }
        if (old[id] >= 0) v = old[id];
        an_arg from = old[id] >= 0 ? (an_arg){.slot = AN_SLOT_ARENA, .bytes = to.bytes, .value = v}
                                   : an_arg_of(w, base, 0, false);
        an_arg arg[2] = {from, {.slot = to.slot, .offset = to.offset, .bytes = to.bytes, .written = true, .value = -1}};
        an_plan_step *s = an_step_new(
            w, an_kernel_new(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "commit", .bytes = 2 * (uint64_t)to.bytes}),
            arg, 2, an_scope_of(w, id));
        if (!s) return an_fail_nomem(w->err, "the plan's steps", sizeof *s);
        s->commit = true;
        p->bill.copies++;
    }
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- taking over */

static void take_over(an_plan *p, int step)
{
    an_plan_step *s = &p->step[step];
    for (int o = 0; o < s->n_args; o++) {
        int32_t ov = s->arg[o].value;
        if (!s->arg[o].written || ov < 0 || p->value[ov].slot != AN_SLOT_ARENA || p->value[ov].inside >= 0 ||
            p->value[ov].first != step)
            continue;
        int first;
        const an_loop_kernel *prog = program_of(p, s, o, &first);
        for (int i = first; prog && i < s->n_args; i++) {
            int32_t iv = s->arg[i].value;
            if (s->arg[i].written || iv < 0 || iv == ov || p->value[iv].slot != AN_SLOT_ARENA ||
                p->value[iv].bytes != p->value[ov].bytes)
                continue;
            int32_t whole = whole_of(p, iv);
            if (p->value[whole].last != step || p->value[whole].bytes != p->value[iv].bytes ||
                p->value[whole].usage == AN_USE_GRADIENT || whole == ov)
                continue;
            bool others = false; /* no other argument of this step may stand on the same memory */
            for (int k = 0; k < s->n_args; k++)
                others |= k != i && k != o && s->arg[k].value >= 0 && whole_of(p, s->arg[k].value) == whole;
            if (others || !an_same_place(prog, i - first, o - first)) continue;
            p->value[ov].inside = whole;
            p->value[whole].last = AN_MAX(p->value[whole].last, p->value[ov].last);
            break;
        }
    }
}

/* ---------------------------------------------------------------------------------------------- offsets */

static int larger_first(const an_plan *p, int32_t a, int32_t b)
{
    const an_value *x = &p->value[a], *y = &p->value[b];
    if (x->bytes != y->bytes) return x->bytes > y->bytes;
    return a < b;
}

static void sort_values(const an_plan *p, int32_t *order, int n)
{
    for (int gap = n / 2; gap > 0; gap /= 2) /* shell sort: a few hundred values */
        for (int i = gap; i < n; i++) {
            int32_t v = order[i];
            int j = i;
            for (; j >= gap && larger_first(p, v, order[j - gap]); j -= gap) order[j] = order[j - gap];
            order[j] = v;
        }
}

/* The first place from `at` on where a value of `bytes` crosses no segment. */
static int64_t inside_segment(int64_t at, int64_t bytes, int64_t segment)
{
    return segment && bytes && at / segment != (at + bytes - 1) / segment ? an_round_up(at, segment) : at;
}

static int64_t lowest_free(const an_plan *p, const int32_t *placed, int n, int32_t v, int64_t segment)
{
    const an_value *x = &p->value[v];
    int64_t at = 0;
    for (int i = 0; i < n; i++) { /* `placed` is in ascending offset */
        const an_value *y = &p->value[placed[i]];
        if (y->last < x->first || y->first > x->last) continue;
        if (y->offset >= at + x->bytes) break;
        at = inside_segment(AN_MAX(at, an_round_up(y->offset + y->bytes, ALIGN)), x->bytes, segment);
    }
    return at;
}

static an_status offsets(an_planner *w)
{
    an_plan *p = w->plan;
    int32_t *order = AN_NEW_ARRAY(&w->scratch, int32_t, p->n_values + 1),
            *placed = AN_NEW_ARRAY(&w->scratch, int32_t, p->n_values + 1);
    if (!order || !placed) return an_fail_nomem(w->err, "placing", 0);
    int n = 0, done = 0;
    for (int v = 0; v < p->n_values; v++)
        if (p->value[v].slot == AN_SLOT_ARENA && p->value[v].inside < 0 && p->value[v].first >= 0) order[n++] = v;
    sort_values(p, order, n);
    int64_t top = w->rq->apart ? ALIGN : 0;
    const int64_t segment = w->rq->target->segment_bytes;
    for (int i = 0; i < n; i++) {
        an_value *x = &p->value[order[i]];
        if (w->rq->apart) {
            x->offset = inside_segment(top, x->bytes, segment);
            top = an_round_up(x->offset + x->bytes + ALIGN, ALIGN);
            continue;
        }
        x->offset = lowest_free(p, placed, done, order[i], segment);
        top = AN_MAX(top, x->offset + x->bytes);
        int j = done++;
        for (; j > 0 && p->value[placed[j - 1]].offset > x->offset; j--) placed[j] = placed[j - 1];
        placed[j] = order[i];
    }
    p->arena_bytes = an_round_up(top, ALIGN);
    return AN_OK;
}

static void settle(an_plan *p)
{
    for (int s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            an_arg *x = &p->step[s].arg[a];
            if (x->value >= 0) x->offset += an_value_offset(p, x->value, &x->slot);
        }
}

/* What is larger than a segment, or part of a block that is laid out across two, has no place on the device. */
static an_status check_segments(an_planner *w)
{
    const an_plan *p = w->plan;
    const int64_t segment = w->rq->target->segment_bytes;
    for (int s = 0; segment && s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            const an_arg *x = &p->step[s].arg[a];
            char need[16], most[16];
            if (x->slot < 0 || !x->bytes || x->offset / segment == (x->offset + x->bytes - 1) / segment) continue;
            return an_fail(w->err, AN_E_NOMEM,
                           "%s: %s of %s needs %s in one piece, and a buffer of this GPU is at most %s; use a smaller "
                           "batch or model, or device=cpu",
                           w->rq->target->dialect, p->kernel[p->step[s].kernel].name,
                           p->step[s].scope ? p->step[s].scope : "the step", an_bytes_text((double)x->bytes, need),
                           an_bytes_text((double)segment, most));
        }
    return AN_OK;
}

an_status an_pass_place(an_planner *w)
{
    an_plan *p = w->plan;
    p->n_roots = w->rq->n_roots;
    p->root = AN_NEW_ARRAY(w->arena, int32_t, p->n_roots + 1);
    if (!p->root) return an_fail_nomem(w->err, "the plan's roots", 0);
    for (int i = 0; i < p->n_roots; i++)
        p->root[i] = w->node[an_base(w, w->rq->root[i])].value; /* -1: a leaf, read where it stands */
    lifetimes(p);
    AN_TRY(assignments(w));
    lifetimes(p);
    if (!w->rq->apart && !w->rq->unfused)
        for (int s = 0; s < p->n_steps; s++) take_over(p, s);
    for (int s = 0; s < p->n_steps; s++) {
        if (p->step[s].scratch_bytes <= 0) continue;
        int32_t v = an_value_new(w, -1, 0, p->step[s].scratch_bytes, AN_USE_SCRATCH, "scratch");
        if (v < 0) return an_fail_nomem(w->err, "the plan's values", 0);
        p->value[v].first = p->value[v].last = s;
        p->step[s].scratch = v;
    }
    AN_TRY(offsets(w));
    settle(p);
    for (int s = 0; s < p->n_steps; s++)
        if (p->step[s].scratch >= 0) p->step[s].scratch = p->value[p->step[s].scratch].offset;
    return check_segments(w);
}
