/* verify.c: what must hold of every plan, checked without the passes' own tables: nothing is read before it is written,
 * nothing alive is overwritten, every access is inside its slot. */
#include "planner/planner_internal.h"

static an_status wrong(an_err *err, const an_plan *p, int s, int a, const char *what)
{
    return an_fail(err, AN_E_INTERNAL, "plan: step %d (%s), argument %d: %s", s,
                   p->kernel[p->step[s].kernel].name ? p->kernel[p->step[s].kernel].name : "", a, what);
}

/* Two values that live at one time and are not parts of one another must not share memory. */
static an_status no_overlap(an_err *err, const an_plan *p)
{
    for (int i = 0; i < p->n_values; i++) {
        const an_value *x = &p->value[i];
        if (x->slot != AN_SLOT_ARENA || x->inside >= 0 || x->first < 0) continue;
        if (x->offset < 0 || x->offset + x->bytes > p->arena_bytes)
            return an_fail(err, AN_E_INTERNAL, "plan: value %d (%s) leaves the arena", i, x->name);
        for (int j = i + 1; j < p->n_values; j++) {
            const an_value *y = &p->value[j];
            if (y->slot != AN_SLOT_ARENA || y->inside >= 0 || y->first < 0) continue;
            bool together = x->first <= y->last && y->first <= x->last,
                 shared = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
            if (together && shared)
                return an_fail(err, AN_E_INTERNAL, "plan: values %d (%s) and %d (%s) live together at one place", i,
                               x->name, j, y->name);
        }
    }
    return AN_OK;
}

an_status an_verify_plan(an_err *err, const an_plan *p)
{
    AN_TRY(no_overlap(err, p));
    for (int s = 0; s < p->n_steps; s++) {
        const an_plan_step *st = &p->step[s];
        if (st->scratch >= 0 && st->scratch + st->scratch_bytes > p->arena_bytes)
            return wrong(err, p, s, -1, "scratch leaves the arena");
        for (int a = 0; a < st->n_args; a++) {
            const an_arg *x = &st->arg[a];
            if (x->slot < 0) continue;
            if (x->slot == AN_SLOT_ARENA && (x->offset < 0 || x->offset + x->bytes > p->arena_bytes))
                return wrong(err, p, s, a, "leaves the arena");
            if (x->slot == AN_SLOT_INPUT && (x->written || x->offset + x->bytes > p->input_bytes))
                return wrong(err, p, s, a, "leaves the inputs");
            if (x->value < 0 || x->written || !x->bytes) continue;
            bool made = false;
            for (int e = 0; e < s && !made; e++)
                for (int b = 0; b < p->step[e].n_args && !made; b++) {
                    const an_arg *y = &p->step[e].arg[b];
                    made = y->written && y->slot == x->slot && y->offset < x->offset + x->bytes &&
                           x->offset < y->offset + y->bytes;
                }
            if (!made) return wrong(err, p, s, a, "is read before it is written");
        }
    }
    return AN_OK;
}
