/* memory_guard.c: place_apart on a GPU: guard bytes around every buffer and around every value of the arena.
 *
 *     | guard | value 0 | guard | value 1 | guard | ...        guards: 0xA5; values not yet written: poison, 0x7F
 *
 * Owns:      writing the guards and the poison, and checking the guards after a run (after each launch with
 *            ANNEAL_CUDA_LAUNCH=sync, which then names it).
 * Does not:  detect a read outside a value, as compute-sanitizer does. But such a read gets poison, so results differ.
 *
 * The planner leaves AN_CUDA_GUARD_BYTES or more behind each value and before the first (planner/assign_buffers.c).
 */
#include "device/cuda/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 0xA5, POISON = 0x7F /* as a float: 3.4e38 */ };
/* Behind a value: its guard, and up to as much again until the next one begins. */
enum { MOST_ZONE = 2 * AN_CUDA_GUARD_BYTES };

an_status an_cuda_guard_buffer(an_err *err, an_device *d, cu_pointer p, size_t bytes)
{
    an_cuda_guarded *more = realloc(d->guarded, sizeof *more * (size_t)(d->n_guarded + 1));
    if (!more) return an_fail_nomem(err, "the list of guarded buffers", sizeof *more);
    d->guarded = more;
    AN_TRY(an_cuda_check(err, d, d->cu.fill(p - AN_CUDA_GUARD_BYTES, GUARD, AN_CUDA_GUARD_BYTES, d->stream),
                         "writing a guard"));
    AN_TRY(an_cuda_check(err, d, d->cu.fill(p + bytes, GUARD, AN_CUDA_GUARD_BYTES, d->stream), "writing a guard"));
    d->guarded[d->n_guarded++] = (an_cuda_guarded){p, bytes};
    return AN_OK;
}

void an_cuda_unguard_buffer(an_device *d, cu_pointer p)
{
    for (int i = 0; i < d->n_guarded; i++)
        if (d->guarded[i].at == p) d->guarded[i] = d->guarded[--d->n_guarded];
}

static bool holds_memory(const an_value *x)
{
    return x->slot == AN_SLOT_ARENA && x->inside < 0 && x->first >= 0;
}

static size_t zone_bytes(const an_value *x)
{
    return (size_t)(an_round_up(x->bytes + AN_CUDA_GUARD_BYTES, AN_CUDA_GUARD_BYTES) - x->bytes);
}

an_status an_cuda_guards_set(an_err *err, an_device *d, const an_plan *p, cu_pointer arena)
{
    AN_TRY(an_cuda_check(err, d, d->cu.fill(arena, GUARD, (size_t)p->arena_bytes, d->stream), "writing guards"));
    for (int v = 0; v < p->n_values; v++) {
        const an_value *x = &p->value[v];
        if (!holds_memory(x) || !x->bytes) continue;
        AN_TRY(an_cuda_check(err, d, d->cu.fill(arena + (cu_pointer)x->offset, POISON, (size_t)x->bytes, d->stream),
                             "writing poison"));
    }
    return AN_OK;
}

typedef struct check {
    an_device *d;
    char *seen; /* pinned: zones one behind the other */
    size_t used;
} check;

static an_status fetch(an_err *err, check *c, cu_pointer at, size_t bytes)
{
    an_status status =
        an_cuda_check(err, c->d, c->d->cu.to_host(c->seen + c->used, at, bytes, c->d->stream), "reading guards");
    c->used += bytes;
    return status;
}

/* Reads every guard, in a fixed order: before the first value, behind each value, around each buffer. */
static an_status fetch_all(an_err *err, check *c, const an_plan *p, cu_pointer arena)
{
    AN_TRY(fetch(err, c, arena, AN_CUDA_GUARD_BYTES));
    for (int v = 0; v < p->n_values; v++) {
        const an_value *x = &p->value[v];
        if (holds_memory(x)) AN_TRY(fetch(err, c, arena + (cu_pointer)(x->offset + x->bytes), zone_bytes(x)));
    }
    for (int i = 0; i < c->d->n_guarded; i++) {
        const an_cuda_guarded *g = &c->d->guarded[i];
        AN_TRY(fetch(err, c, g->at - AN_CUDA_GUARD_BYTES, AN_CUDA_GUARD_BYTES));
        AN_TRY(fetch(err, c, g->at + g->bytes, AN_CUDA_GUARD_BYTES));
    }
    return an_cuda_wait_stream(err, c->d, "reading guards");
}

static bool whole(check *c, size_t bytes)
{
    const char *zone = c->seen + c->used;
    c->used += bytes;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)zone[i] != GUARD) return false;
    return true;
}

/* "cuda: step 3 (gpt_rows) wrote outside ...", or "cuda: a step ..." and how to find out which. */
static an_status fault(an_err *err, const an_plan *p, int step, const char *what)
{
    if (step >= 0)
        return an_fail(err, AN_E_INTERNAL, "cuda: step %d (%s) wrote outside %s; report it with this sentence", step,
                       p->kernel[p->step[step].kernel].name, what);
    return an_fail(err, AN_E_INTERNAL, "cuda: a step wrote outside %s; ANNEAL_CUDA_LAUNCH=sync says which", what);
}

static an_status look(an_err *err, check *c, const an_plan *p, int step)
{
    char what[200];
    c->used = 0;
    if (!whole(c, AN_CUDA_GUARD_BYTES)) return fault(err, p, step, "the arena's first value");
    for (int v = 0; v < p->n_values; v++) {
        const an_value *x = &p->value[v];
        if (!holds_memory(x) || whole(c, zone_bytes(x))) continue;
        snprintf(what, sizeof what, "value %d (%s)", v, x->name ? x->name : "");
        return fault(err, p, step, what);
    }
    for (int i = 0; i < c->d->n_guarded; i++) {
        const bool before = whole(c, AN_CUDA_GUARD_BYTES), after = whole(c, AN_CUDA_GUARD_BYTES);
        if (before && after) continue;
        snprintf(what, sizeof what, "a buffer of %zu bytes", c->d->guarded[i].bytes);
        return fault(err, p, step, what);
    }
    return AN_OK;
}

an_status an_cuda_guards_check(an_err *err, an_device *d, const an_plan *p, cu_pointer arena, int step)
{
    const size_t zones = (size_t)(p->n_values + 1 + 2 * d->n_guarded);
    void *seen = NULL;
    AN_TRY(an_cuda_check(err, d, d->cu.host_new(&seen, zones * MOST_ZONE, 0), "taking memory for guards"));
    check c = {.d = d, .seen = seen};
    an_status status = fetch_all(err, &c, p, arena);
    if (status == AN_OK) status = look(err, &c, p, step);
    d->cu.host_free(seen);
    return status;
}
