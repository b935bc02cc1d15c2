/* assign_buffers.c: values → offsets in one arena, by lifetimes (memory planning, reuse of buffers). Whether the arena fits the
 * budget: runtime/plan_cache.c.
 *
 * A value lives from the step that first writes it to the last that reads it; what is inside a container lives in it.
 * Values are placed largest first, each at the lowest offset that is free during its life (ranges of an array that is filled,
 * filled_ranges.c, where it is):
 *
 *     offset ^   +------ a ------+          a is the largest, so it was placed first
 *            |   +---------------+--- c --+ c begins where a ends: it takes a's bytes
 *            |   +-- b --+                  b lives while a does: above it
 *            +--------------------------------> steps
 *
 * Invariants: two values that live at one time do not overlap unless one is inside the other (verify.c checks that); no
 * value crosses a multiple of the target's segment_bytes. With isolate_values nothing is shared, and guard bytes are
 * between values. */
#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

/* ------------------------------------------------------------------------------------------------- lifetimes */

static void touch(an_plan *p, int32_t v, int step)
{
    for (; v >= 0; v = p->value[v].inside) {
        an_value *x = &p->value[v];
        if (x->first < 0 || step < x->first) x->first = step;
        if (step > x->last) x->last = step;
    }
}

void an_find_lifetimes(an_plan *p)
{
    for (int v = 0; v < p->n_values; v++) p->value[v].first = p->value[v].last = -1;
    for (int s = 0; s < p->n_steps; s++) {
        const bool longer = p->step[s].gated && s + 1 < p->n_steps;
        for (int a = 0; a < p->step[s].n_args; a++) {
            touch(p, p->step[s].arg[a].value, s);
            if (longer) touch(p, p->step[s].arg[a].value, s + 1);
        }
    }
    for (int i = 0; i < p->n_roots; i++)
        if (p->root[i] >= 0) touch(p, p->root[i], p->n_steps);
}

/* Scratch of a step is a value that lives in that step alone. */
static an_status add_scratch(an_planner *w)
{
    an_plan *p = w->plan;
    for (int s = 0; s < p->n_steps; s++) {
        if (p->step[s].scratch_bytes <= 0) continue;
        int32_t v = an_value_new(w, -1, 0, p->step[s].scratch_bytes, AN_USE_SCRATCH, "scratch");
        if (v < 0) return an_fail_nomem(w->err, "the plan's values", 0);
        p->value[v].first = p->value[v].last = s;
        p->step[s].scratch = v;
    }
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------- offsets */

typedef struct sized {
    int64_t bytes;
    int32_t value;
} sized;

static int larger_first(const void *x, const void *y)
{
    const sized *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* The first offset from `at` on where a value of `bytes` crosses no segment. */
static int64_t within_segment(int64_t at, int64_t bytes, int64_t segment)
{
    return segment && bytes && at / segment != (at + bytes - 1) / segment ? an_round_up(at, segment) : at;
}

/* A value that has been placed. The list is searched for every value, so it is compact. */
typedef struct placed {
    int64_t offset, end; /* end: rounded up to where the next value may begin */
    int32_t first, last;
} placed;

/* `at`: values placed so far, ascending by offset. */
static int64_t lowest_free(const placed *at, int n, const an_value *x, int64_t segment)
{
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (at[i].last < x->first || at[i].first > x->last) continue;
        if (at[i].offset >= offset + x->bytes) break;
        offset = within_segment(AN_MAX(offset, at[i].end), x->bytes, segment);
    }
    return offset;
}

/* Keeps the list ascending; of equal offsets the later value comes last. */
static void add_placed(placed *at, int n, const an_value *x)
{
    int low = 0, high = n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (at[middle].offset > x->offset)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&at[low + 1], &at[low], sizeof *at * (size_t)(n - low));
    at[low] = (placed){x->offset, an_round_up(x->offset + x->bytes, ALIGN), x->first, x->last};
}

/* A place for value v, and for the ranges of it among the values from `ranges` on: there, as soon as they live. */
static int place(an_plan *p, int32_t v, int32_t ranges, placed *at, int n, int64_t segment)
{
    an_value x = p->value[v];
    for (int32_t r = ranges; r < p->n_values; r++)
        if (p->value[r].inside == v) x.first = AN_MIN(x.first, p->value[r].first);
    p->value[v].offset = lowest_free(at, n, &x, segment);
    add_placed(at, n++, &p->value[v]);
    for (int32_t r = ranges; r < p->n_values; r++) {
        if (p->value[r].inside != v) continue;
        p->value[r].inside = -1;
        p->value[r].offset += p->value[v].offset;
        add_placed(at, n++, &p->value[r]);
    }
    return n;
}

/* The values from `ranges` on are ranges of others. */
static an_status assign_offsets(an_planner *w, int32_t ranges)
{
    an_plan *p = w->plan;
    sized *order = AN_NEW_ARRAY(&w->scratch, sized, p->n_values + 1);
    placed *at = AN_NEW_ARRAY(&w->scratch, placed, p->n_values + 1);
    if (!order || !at) return an_fail_nomem(w->err, "the plan's buffers", sizeof *order * (size_t)p->n_values);
    int n = 0, done = 0;
    for (int v = 0; v < ranges; v++)
        if (p->value[v].slot == AN_SLOT_ARENA && p->value[v].inside < 0 && p->value[v].first >= 0)
            order[n++] = (sized){p->value[v].bytes, v};
    qsort(order, (size_t)n, sizeof *order, larger_first);
    int64_t top = w->rq->isolate_values ? ALIGN : 0;
    const int64_t segment = w->rq->target->segment_bytes;
    for (int i = 0; i < n; i++) {
        an_value *x = &p->value[order[i].value];
        if (w->rq->isolate_values) {
            x->offset = within_segment(top, x->bytes, segment);
            top = an_round_up(x->offset + x->bytes + ALIGN, ALIGN);
            continue;
        }
        done = place(p, order[i].value, ranges, at, done, segment);
        top = AN_MAX(top, x->offset + x->bytes);
    }
    p->arena_bytes = an_round_up(top, ALIGN);
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------- the pass */

/* Arguments and scratch get their offset in their slot, through the containers that they are inside of. */
static void resolve_arguments(an_plan *p)
{
    for (int s = 0; s < p->n_steps; s++) {
        for (int a = 0; a < p->step[s].n_args; a++) {
            an_arg *x = &p->step[s].arg[a];
            if (x->value >= 0) x->offset += an_value_offset(p, x->value, &x->slot);
        }
        if (p->step[s].scratch >= 0) p->step[s].scratch = p->value[p->step[s].scratch].offset;
    }
}

/* What is larger than a segment, or part of a block that lies across two, has no buffer on the device. */
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

an_status an_pass_assign_buffers(an_planner *w)
{
    AN_TRY(add_scratch(w));
    const int32_t ranges = w->plan->n_values;
    AN_TRY(an_add_filled_ranges(w));
    AN_TRY(assign_offsets(w, ranges));
    resolve_arguments(w->plan);
    return check_segments(w);
}
