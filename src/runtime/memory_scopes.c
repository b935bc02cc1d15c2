/* memory_scopes.c: whose memory a context holds: what persists by its names, and of the plan that ran last what is
 * alive where it is fullest, by the scopes of the launches that write it (an_memory_scopes of anneal_tools.h).
 *
 * Does not: add equal scopes up, or change anything.
 */
#include "runtime/context.h"

#include <anneal_tools.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a tensor that holds its own part of the arena; 0: it does not. */
static int64_t own_bytes(const an_value *v)
{
    return v->slot == AN_SLOT_ARENA && v->inside < 0 && v->first >= 0 ? v->bytes : 0;
}

/* The launch at which most bytes of the arena are alive; -1: no memory to find it, or no launches. */
static int fullest(const an_plan *p)
{
    const int n = p->n_steps;
    int64_t *change = calloc((size_t)n + 1, sizeof *change), alive = 0, most = -1;
    int at = -1;
    if (!change) return -1;
    for (int i = 0; i < p->n_values; i++) {
        const an_value *v = &p->value[i];
        if (!own_bytes(v) || v->first >= n) continue;
        change[v->first] += v->bytes;
        if (v->last + 1 < n) change[v->last + 1] -= v->bytes;
    }
    for (int s = 0; s < n; s++) {
        alive += change[s];
        if (alive > most) most = alive, at = s;
    }
    free(change);
    return at;
}

void an_memory_scopes(an_ctx *cx, an_memory_scope_fn *tell, void *user)
{
    static const char *const kinds[] = {"parameters", "moments", "states"};
    if (!cx || !tell) return;
    an_persist e;
    const int n = an_persist_count(cx);
    for (int i = 0; i < n; i++)
        if (an_persist_get(cx, i, &e) == AN_OK) {
            uint64_t bytes = an_dtype_size(e.dtype);
            for (int d = 0; d < e.shape.rank; d++) bytes *= (uint64_t)e.shape.dim[d];
            tell(user, kinds[e.kind], e.name ? e.name : "", bytes);
        }
    const an_plan *p = cx->ran && cx->ran->exec ? cx->ran->plan : NULL;
    const int at = p ? fullest(p) : -1;
    if (!p) return;
    uint64_t alive = 0;
    for (int i = 0; at >= 0 && i < p->n_values; i++) {
        const an_value *v = &p->value[i];
        if (!own_bytes(v) || v->first > at || v->last < at) continue;
        const char *scope = p->step[v->first].scope;
        tell(user, v->usage == AN_USE_SCRATCH ? "scratch" : "step", scope ? scope : "", (uint64_t)v->bytes);
        alive += (uint64_t)v->bytes;
    }
    if (p->bill.input_bytes) tell(user, "inputs", "", p->bill.input_bytes);
    /* Placed around values that live at other launches, and rounded up. */
    if ((uint64_t)p->arena_bytes > alive) tell(user, "gaps", "", (uint64_t)p->arena_bytes - alive);
}
