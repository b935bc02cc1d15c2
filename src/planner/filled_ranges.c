/* filled_ranges.c: an array that exchanges fill range by range has memory as far as it was filled.
 *
 * A rank's part of the sums of gradients (scatter_gradients.c) is such an array. Each range becomes a value that begins life with its first
 * exchange, where the whole will be; the whole's own life begins with the last exchange:
 *
 *     offset ^         +---------------|-----+        other values take the bytes of a range before it is filled
 *            |    +--------------------| sums|
 *            |  +----------------------|-----+
 *            +--------------------------------> steps
 *
 * A rank's ranges are not those of others. A range lives from the first exchange that fills it on any rank, so that all have one
 * bill.
 *
 * Invariant: ranges of one array do not overlap; they are appended to the plan's values, `inside` the whole, their offsets in it. */
#include "planner/planner_internal.h"

#include "comm/comm.h"

#include <stdlib.h>

/* The value that step s fills a range of; -1: none. */
static int32_t filled_by(const an_plan *p, int32_t s)
{
    const an_kernel *k = &p->kernel[p->step[s].kernel];
    const bool fills = k->kind == AN_KERNEL_CALL && k->u.call.op == AN_OP_REDUCESCATTER && k->u.call.attr[2] > 0;
    const int32_t v = fills ? p->step[s].arg[1].value : -1;
    return v >= 0 && p->value[v].slot == AN_SLOT_ARENA && p->value[v].inside < 0 ? v : -1;
}

/* The bytes of its part that rank r fills in step s: from what is returned to *to. */
static int64_t range_on(const an_plan *p, int32_t s, int r, int64_t *to)
{
    const an_library_call_spec *k = &p->kernel[p->step[s].kernel].u.call;
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)k->dtype);
    int64_t from;
    const int64_t n = an_comm_range_of(k->attr[2], k->attr[3], k->src[0].shape[0], r, &from);
    *to = n ? (from + n) * size : 0;
    return n ? from * size : 0;
}

/* The numbers, ascending, where ranges of value v begin or end on some rank. */
static int64_t find_bounds(const an_plan *p, int32_t v, int ranks, int64_t *bound)
{
    int64_t n = 0, kept = 0;
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int r = 0; r < ranks && filled_by(p, s) == v; r++, n += 2) bound[n] = range_on(p, s, r, &bound[n + 1]);
    qsort(bound, (size_t)n, sizeof *bound, an_by_number);
    for (int64_t i = 0; i < n; i++)
        if (!kept || bound[i] != bound[kept - 1]) bound[kept++] = bound[i];
    return kept;
}

/* first[i]: the first step that fills bytes from bound[i] to bound[i + 1]. */
static void find_first(const an_plan *p, int32_t v, int ranks, int32_t last, const int64_t *bound, int64_t n,
                       int32_t *first)
{
    for (int64_t i = 0; i < n; i++) first[i] = last;
    for (int32_t s = 0; s < last; s++)
        for (int r = 0; r < ranks && filled_by(p, s) == v; r++) {
            int64_t to;
            const int64_t from = range_on(p, s, r, &to);
            const int64_t *at = bsearch(&from, bound, (size_t)n, sizeof from, an_by_number);
            for (; at && at < bound + n && *at < to; at++) first[at - bound] = AN_MIN(first[at - bound], s);
        }
}

static an_status add_ranges(an_planner *w, int32_t v, int32_t exchanges, int32_t last)
{
    an_plan *p = w->plan;
    const int64_t most = 2 * (int64_t)exchanges * w->g->ranks;
    int64_t *bound = AN_NEW_ARRAY(&w->scratch, int64_t, most);
    int32_t *first = AN_NEW_ARRAY(&w->scratch, int32_t, most);
    if (!bound || !first) return an_fail_nomem(w->err, "the plan's values", 0);
    const int64_t n = find_bounds(p, v, w->g->ranks, bound);
    find_first(p, v, w->g->ranks, last, bound, n, first);
    for (int64_t i = 0, next; i + 1 < n; i = next) {
        for (next = i + 1; next + 1 < n && first[next] == first[i];) next++;
        if (first[i] >= last) continue;
        const an_value whole = p->value[v];
        const int32_t of = an_value_new(w, whole.node, 0, bound[next] - bound[i], (an_usage)whole.usage, whole.name);
        if (of < 0) return an_fail_nomem(w->err, "the plan's values", 0);
        p->value[of].first = first[i];
        p->value[of].last = last - 1;
        p->value[of].offset = bound[i];
        p->value[of].inside = v;
    }
    p->value[v].first = last;
    return AN_OK;
}

an_status an_add_filled_ranges(an_planner *w)
{
    const an_plan *p = w->plan;
    for (int32_t s = 0; s < p->n_steps && !w->rq->isolate_values; s++) {
        const int32_t v = filled_by(p, s);
        int32_t exchanges = 0, last = s;
        for (int32_t t = 0; t < s && v >= 0; t++) exchanges += filled_by(p, t) == v;
        if (v < 0 || exchanges) continue; /* nothing is filled, or it has its ranges */
        for (int32_t t = s; t < p->n_steps; t++)
            if (filled_by(p, t) == v) exchanges++, last = t;
        if (exchanges > 1) AN_TRY(add_ranges(w, v, exchanges, last));
    }
    return AN_OK;
}
