/* dependencies.c: a plan's true dependencies (read after write, write after read, write after write).
 *
 * Two steps are ordered when they touch the same bytes and at least one of them writes; this includes values that use the
 * same memory one after the other. Where the exact range is not known a larger one is taken:
 *     weights and inputs         the slot: a view may begin anywhere in it
 *     part of a concatenation    the concatenation: its rows may be between other parts' rows
 *     gradient in its block      the gradient alone
 *     copied, zeroed, exchanged  the bytes themselves; all of its value where an exchange is not to begin early
 *
 * Exchanges between ranks follow one another in the plan's order, which is that of all ranks.
 *
 * Transitive reduction: walking back from a step, earlier steps that it already waits for through another are skipped,
 * by a bit set of predecessors per step. */
#include "ir/dependencies.h"

#include <stdlib.h>

typedef struct range {
    int32_t slot;
    int64_t from, to;
    bool written;
} range;

/* Whether the step touches the bytes of its arguments one after the other and no others. */
static bool is_exact(const an_plan *p, const an_plan_step *s)
{
    const an_kernel *k = &p->kernel[s->kernel];
    return k->kind == AN_KERNEL_COPY || k->kind == AN_KERNEL_ZERO ||
           (k->kind == AN_KERNEL_CALL && (k->u.call.op == AN_OP_ALLREDUCE || k->u.call.op == AN_OP_REDUCESCATTER) &&
            k->u.call.attr[1]);
}

static range range_of(const an_plan *p, const an_plan_step *s, const an_arg *a)
{
    if (a->value >= 0 && is_exact(p, s)) return (range){a->slot, a->offset, a->offset + a->bytes, a->written};
    range r = {.slot = a->slot, .from = 0, .to = INT64_MAX, .written = a->written};
    int32_t v = a->value;
    if (v < 0) return r;
    while (p->value[v].inside >= 0 && p->value[v].usage != AN_USE_GRADIENT) v = p->value[v].inside;
    r.from = an_value_offset(p, v, &r.slot);
    r.to = r.from + p->value[v].bytes;
    return r;
}

/* Ranges of a step, at most n_args + 1. */
static int ranges_of(const an_plan *p, int32_t step, const int64_t *scratch_used, range *out)
{
    const an_plan_step *s = &p->step[step];
    const int64_t scratch = scratch_used ? scratch_used[step] : s->scratch_bytes;
    int n = 0;
    for (int i = 0; i < s->n_args; i++)
        if (s->arg[i].slot >= 0 && s->arg[i].bytes) out[n++] = range_of(p, s, &s->arg[i]);
    if (scratch > 0 && s->scratch >= 0) out[n++] = (range){AN_SLOT_ARENA, s->scratch, s->scratch + scratch, true};
    return n;
}

static bool is_exchange(const an_plan *p, int32_t step)
{
    return an_kernel_is_exchange(&p->kernel[p->step[step].kernel]);
}

static bool in_order(const range *a, int n_a, const range *b, int n_b)
{
    for (int i = 0; i < n_a; i++)
        for (int j = 0; j < n_b; j++)
            if (a[i].slot == b[j].slot && (a[i].written || b[j].written) && a[i].from < b[j].to && b[j].from < a[i].to)
                return true;
    return false;
}

an_status an_dependencies_make(an_err *err, const an_plan *p, const int64_t *scratch_used, an_arena *arena,
                               an_dependencies *out)
{
    const int32_t n = p->n_steps;
    const size_t words = ((size_t)n + 63) / 64;
    size_t n_ranges = 0, n_lists = 0, capacity = 4 * (size_t)n + 1;
    for (int32_t s = 0; s < n; s++) n_ranges += (size_t)p->step[s].n_args + 1;
    range *all = calloc(n_ranges + 1, sizeof *all), **of = calloc((size_t)n + 1, sizeof *of);
    int *count = calloc((size_t)n + 1, sizeof *count);
    uint64_t *before = calloc(words * (size_t)n + 1, sizeof *before); /* bit t of row s: s waits for t */
    int32_t *list = malloc(capacity * sizeof *list);
    out->first = AN_NEW_ARRAY(arena, int32_t, n + 1);
    out->last = AN_NEW_ARRAY(arena, bool, n + 1);
    bool ok = all && of && count && before && list && out->first && out->last;
    range *next = all;
    for (int32_t s = 0; ok && s < n; s++) {
        uint64_t *mine = before + words * (size_t)s;
        out->last[s] = true;
        of[s] = next;
        count[s] = ranges_of(p, s, scratch_used, next);
        next += count[s];
        out->first[s] = (int32_t)n_lists;
        for (int32_t t = s - 1; ok && t >= 0; t--) {
            if (mine[t / 64] >> (t % 64) & 1) continue;
            if (!in_order(of[s], count[s], of[t], count[t]) && !(is_exchange(p, s) && is_exchange(p, t))) continue;
            if (n_lists == capacity) {
                int32_t *more = realloc(list, (capacity *= 2) * sizeof *list);
                if (more) list = more;
                ok = more != NULL;
            }
            if (!ok) break;
            list[n_lists++] = t;
            out->last[t] = false;
            mine[t / 64] |= (uint64_t)1 << (t % 64);
            for (size_t i = 0; i < words; i++) mine[i] |= before[words * (size_t)t + i];
        }
    }
    if (ok) {
        out->first[n] = (int32_t)n_lists;
        if (!n_lists) list[0] = -1;
        out->step = an_arena_copy(arena, list, sizeof *list * AN_MAX(n_lists, (size_t)1));
    }
    free(all), free(of), free(count), free(before), free(list);
    return ok && out->step ? AN_OK : an_fail_nomem(err, "a plan's dependencies", (size_t)n * words * 8);
}
