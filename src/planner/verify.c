/* verify.c: what must hold of every plan, checked without the passes' own tables.
 *
 *     - two values that live at one time do not overlap in the arena, unless one is inside the other
 *     - every access is inside its slot
 *     - nothing is read before it is written
 *     - what is read of a value is what was written for it: no other value that shares its memory (an operation in place, a
 *       concatenation and its parts, a state's next value) was written there between the beginning of its life and the read
 *
 * The questions about overlap are answered by sorted sets of ranges that follow the steps: values that are alive, and who wrote
 * bytes last. */
#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

/* Disjoint ranges of one slot, ascending. */
typedef struct range {
    int64_t from, to;
    int32_t value, step; /* whose bytes; of written ones: by which step */
} range;
typedef struct range_set {
    range *at;
    int32_t n, cap;
} range_set;

/* The first range that ends behind `from`. */
static int32_t first_behind(const range_set *r, int64_t from)
{
    int32_t low = 0, high = r->n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (r->at[middle].to > from)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static const range *overlapping(const range_set *r, int64_t from, int64_t to)
{
    const int32_t i = first_behind(r, from);
    return i < r->n && r->at[i].from < to ? &r->at[i] : NULL;
}

static void remove_ranges(range_set *r, int32_t i, int32_t n)
{
    memmove(&r->at[i], &r->at[i + n], sizeof *r->at * (size_t)(r->n - i - n));
    r->n -= n;
}

static bool insert(range_set *r, int32_t i, range x)
{
    if (r->n == r->cap) {
        const int32_t cap = r->cap ? 2 * r->cap : 64;
        range *bigger = realloc(r->at, sizeof *bigger * (size_t)cap);
        if (!bigger) return false;
        r->at = bigger;
        r->cap = cap;
    }
    memmove(&r->at[i + 1], &r->at[i], sizeof *r->at * (size_t)(r->n - i));
    r->at[i] = x;
    r->n++;
    return true;
}

/* From now on the bytes are `by`'s: what was known of them is cut away. */
static bool write_bytes(range_set *r, int64_t from, int64_t to, int32_t value, int32_t step)
{
    const int32_t i = first_behind(r, from);
    int32_t n = 0;
    range head = {0}, tail = {0};
    while (i + n < r->n && r->at[i + n].from < to) n++;
    if (n) {
        head = tail = r->at[i];
        head.to = from;
        tail = r->at[i + n - 1];
        tail.from = to;
        remove_ranges(r, i, n);
    }
    if (n && tail.from < tail.to && !insert(r, i, tail)) return false;
    if (!insert(r, i, (range){from, to, value, step})) return false;
    return !n || head.from >= head.to || insert(r, i, head);
}

/* ------------------------------------------------------------------------------------------------- values */

typedef struct event {
    int32_t step, value; /* a value's life begins, or (end) is over before this step */
    bool end;
} event;

static int by_step(const void *x, const void *y)
{
    const event *a = x, *b = y;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->end != b->end) return a->end ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* Begins or ends a value's life in the set of those that are alive. */
static an_status follow(an_err *err, const an_plan *p, const event *e, range_set *alive)
{
    const an_value *x = &p->value[e->value];
    const int32_t i = first_behind(alive, x->offset);
    if (e->end) {
        remove_ranges(alive, i, 1);
        return AN_OK;
    }
    const range *other = overlapping(alive, x->offset, x->offset + x->bytes);
    if (other)
        return an_fail(err, AN_E_INTERNAL, "plan: values %d (%s) and %d (%s) live together at one place", other->value,
                       p->value[other->value].name, e->value, x->name);
    if (!insert(alive, i, (range){x->offset, x->offset + x->bytes, e->value, e->step}))
        return an_fail_nomem(err, "checking a plan", sizeof(range) * (size_t)alive->n);
    return AN_OK;
}

static an_status no_overlap(an_err *err, const an_plan *p)
{
    event *all = malloc(sizeof *all * 2 * (size_t)(p->n_values + 1));
    range_set alive = {0};
    an_status status = all ? AN_OK : an_fail_nomem(err, "checking a plan", sizeof *all * 2 * (size_t)p->n_values);
    int32_t n = 0;
    for (int32_t v = 0; v < p->n_values && status == AN_OK; v++) {
        const an_value *x = &p->value[v];
        if (x->slot != AN_SLOT_ARENA || x->inside >= 0 || x->first < 0) continue;
        if (x->offset < 0 || x->offset + x->bytes > p->arena_bytes)
            status = an_fail(err, AN_E_INTERNAL, "plan: value %d (%s) leaves the arena", v, x->name);
        if (!x->bytes) continue;
        all[n++] = (event){x->first, v, false};
        all[n++] = (event){x->last + 1, v, true};
    }
    if (status == AN_OK) qsort(all, (size_t)n, sizeof *all, by_step);
    for (int32_t i = 0; i < n && status == AN_OK; i++) status = follow(err, p, &all[i], &alive);
    free(all);
    free(alive.at);
    return status;
}

/* ------------------------------------------------------------------------------------------------- accesses */

static an_status wrong(an_err *err, const an_plan *p, int s, int a, const char *what)
{
    const char *name = p->kernel[p->step[s].kernel].name;
    return an_fail(err, AN_E_INTERNAL, "plan: step %d (%s), argument %d: %s", s, name ? name : "", a, what);
}

static bool is_inside(const an_plan *p, int32_t v, int32_t of)
{
    while (v >= 0 && v != of) v = p->value[v].inside;
    return v == of;
}

/* Whether writing value `w` may have been for value v: v itself, or a part of it. What is inside it and as large took its memory. */
static bool is_for(const an_plan *p, int32_t w, int32_t v)
{
    return w == v || (w >= 0 && v >= 0 && p->value[w].bytes < p->value[v].bytes && is_inside(p, w, v));
}

/* What argument `a` reads, which must be as it was written for its value. A value of -1 is what was in the slot before the plan. */
static an_status check_read(an_err *err, const an_plan *p, int s, int a, const range_set *written)
{
    const an_arg *x = &p->step[s].arg[a];
    const int32_t born = x->value >= 0 ? p->value[x->value].first : -1;
    for (int32_t i = first_behind(written, x->offset); i < written->n && written->at[i].from < x->offset + x->bytes;
         i++) {
        const range *r = &written->at[i];
        if (r->step <= born || is_for(p, r->value, x->value)) continue;
        const char *own = x->value >= 0 ? p->value[x->value].name : "a state",
                   *name = r->value >= 0 ? p->value[r->value].name : "";
        return an_fail(err, AN_E_INTERNAL,
                       "plan: step %d, argument %d: value %d (%s) is read after step %d wrote value %d (%s) over it", s,
                       a, x->value, own ? own : "", r->step, r->value, name ? name : "");
    }
    return AN_OK;
}

static an_status check_access(an_err *err, const an_plan *p, int s, int a, const range_set *written)
{
    const an_arg *x = &p->step[s].arg[a];
    if (x->slot < 0) return AN_OK;
    if (x->slot == AN_SLOT_ARENA && (x->offset < 0 || x->offset + x->bytes > p->arena_bytes))
        return wrong(err, p, s, a, "leaves the arena");
    if (x->slot == AN_SLOT_INPUT && (x->written || x->offset + x->bytes > p->input_bytes))
        return wrong(err, p, s, a, "leaves the inputs");
    if (x->written || !x->bytes) return AN_OK;
    if (x->value >= 0 && !overlapping(&written[x->slot], x->offset, x->offset + x->bytes))
        return wrong(err, p, s, a, "is read before it is written");
    return check_read(err, p, s, a, &written[x->slot]);
}

static an_status check_step(an_err *err, const an_plan *p, int s, range_set *written)
{
    const an_plan_step *st = &p->step[s];
    if (st->scratch >= 0 && st->scratch + st->scratch_bytes > p->arena_bytes)
        return wrong(err, p, s, -1, "scratch leaves the arena");
    for (int a = 0; a < st->n_args; a++) AN_TRY(check_access(err, p, s, a, written));
    for (int a = 0; a < st->n_args; a++) {
        const an_arg *x = &st->arg[a];
        if (x->slot < 0 || !x->written || !x->bytes) continue;
        if (!write_bytes(&written[x->slot], x->offset, x->offset + x->bytes, x->value, s))
            return an_fail_nomem(err, "checking a plan", sizeof(range));
    }
    return AN_OK;
}

an_status an_verify_plan(an_err *err, const an_plan *p)
{
    int32_t n_slots = AN_SLOT_FIRST;
    AN_TRY(no_overlap(err, p));
    for (int s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) n_slots = AN_MAX(n_slots, p->step[s].arg[a].slot + 1);
    range_set *written = calloc((size_t)n_slots, sizeof *written); /* of each slot */
    an_status status = written ? AN_OK : an_fail_nomem(err, "checking a plan", sizeof *written * (size_t)n_slots);
    for (int s = 0; s < p->n_steps && status == AN_OK; s++) status = check_step(err, p, s, written);
    for (int32_t slot = 0; written && slot < n_slots; slot++) free(written[slot].at);
    free(written);
    return status;
}
