/* cost_report.c: what the plan will ask for, known before a byte is allocated.
 *
 * Launches, distinct kernels, operations, bytes moved, and bytes of memory by kind at the step where the arena is
 * fullest (an_report: the bill); the plan as text and a timeline of memory; steps that the target leaves to the CPU. */
#include "codegen/gpu_step.h"
#include "codegen/render.h"
#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

static int by_address(const void *x, const void *y)
{
    const uintptr_t a = (uintptr_t) * (const char *const *)x, b = (uintptr_t) * (const char *const *)y;
    return a < b ? -1 : a > b;
}

/* Distinct texts: what a compiler is asked for. Equal texts are one pointer (dedupe_kernels.c). */
static an_status count_kernels(an_planner *w)
{
    an_plan *p = w->plan;
    const char **text = AN_NEW_ARRAY(&w->scratch, const char *, p->n_kernels + 1);
    int n = 0;
    if (!text) return an_fail_nomem(w->err, "the plan's report", sizeof *text * (size_t)p->n_kernels);
    for (int k = 0; k < p->n_kernels; k++)
        if (p->kernel[k].text) text[n++] = p->kernel[k].text;
    qsort(text, (size_t)n, sizeof *text, by_address);
    for (int i = 0; i < n; i++) p->bill.kernels += !i || text[i] != text[i - 1];
    return AN_OK;
}

/* Bytes of each kind at the last step where the arena is fullest. What lives in persistent slots is the context's to
 * add. */
static an_status count_bytes(an_planner *w)
{
    typedef int64_t by_use[AN_N_USES];
    an_plan *p = w->plan;
    by_use *change = AN_NEW_ARRAY(&w->scratch, by_use, p->n_steps + 2), now = {0}, best = {0};
    int64_t sum = 0, most = 0;
    if (!change) return an_fail_nomem(w->err, "the plan's report", sizeof *change * (size_t)p->n_steps);
    for (int v = 0; v < p->n_values; v++) {
        const an_value *x = &p->value[v];
        if (x->slot != AN_SLOT_ARENA || x->inside >= 0 || x->last < 0) continue;
        change[AN_MAX(x->first, 0)][x->usage] += x->bytes;
        change[x->last + 1][x->usage] -= x->bytes;
    }
    for (int s = 0; s < p->n_steps; s++) {
        for (int k = 0; k < AN_N_USES; k++) {
            now[k] += change[s][k];
            sum += change[s][k];
        }
        if (sum < most) continue;
        most = sum;
        memcpy(best, now, sizeof best);
    }
    const int64_t padding = AN_MAX(p->arena_bytes - most, 0); /* between values */
    p->bill.weight_bytes += (uint64_t)best[AN_USE_WEIGHT];
    p->bill.gradient_bytes += (uint64_t)best[AN_USE_GRADIENT];
    p->bill.activation_bytes += (uint64_t)best[AN_USE_ACTIVATION];
    p->bill.scratch_bytes += (uint64_t)(best[AN_USE_SCRATCH] + padding);
    return AN_OK;
}

/* Tensor x step: one row for each of the largest values, one column for each slice of the steps. */
static void timeline(const an_plan *p, an_text *out)
{
    enum { WIDTH = 64, ROWS = 24 };
    char taken[16], name[16];
    an_text_printf(out, "arena %s over %d steps; # is memory a tensor holds\n",
                   an_bytes_text((double)p->arena_bytes, taken), p->n_steps);
    int64_t shown_below = INT64_MAX;
    for (int row = 0, last = -1; row < ROWS; row++) {
        int best = -1;
        for (int v = 0; v < p->n_values; v++) { /* the next in order of size */
            const an_value *x = &p->value[v];
            if (x->slot != AN_SLOT_ARENA || x->inside >= 0 || x->first < 0) continue;
            bool before = x->bytes < shown_below || (x->bytes == shown_below && v > last);
            if (before && (best < 0 || x->bytes > p->value[best].bytes)) best = v;
        }
        if (best < 0) break;
        const an_value *x = &p->value[best];
        char line[WIDTH + 1];
        for (int i = 0; i < WIDTH; i++) {
            int from = i * p->n_steps / WIDTH, to = (i + 1) * p->n_steps / WIDTH;
            line[i] = x->first < AN_MAX(to, from + 1) && x->last >= from ? '#' : '.';
        }
        line[WIDTH] = 0;
        an_text_printf(out, "%10s |%s| %s\n", an_bytes_text((double)x->bytes, name), line, x->name);
        shown_below = x->bytes;
        last = best;
    }
}

/* The steps that run on the CPU: those that were placed there, and those that the target leaves to it. */
static void count_fallbacks(an_plan *p, const an_plan_request *rq)
{
    const an_gpu gpu = {.dialect = an_dialect_find(rq->target->dialect), .version = 300};
    for (int s = 0; (rq->target->fallback || rq->on_cpu) && s < p->n_steps; s++) {
        an_plan_step *st = &p->step[s];
        const an_kernel_kind kind = p->kernel[st->kernel].kind;
        an_gpu_step launches;
        if (kind == AN_KERNEL_ZERO || kind == AN_KERNEL_COPY) continue;
        st->placed = rq->on_cpu && an_glob_list(rq->on_cpu, st->scope ? st->scope : "");
        st->fallback = st->placed || (rq->target->fallback && an_gpu_step_make(p, st, &gpu, &launches) != NULL);
        p->bill.fallbacks += st->fallback;
        p->bill.fallback_bytes += st->fallback ? st->bytes : 0;
    }
}

static void count_work(an_planner *w)
{
    an_plan *p = w->plan;
    if (!p->input_bytes) p->input_bytes = 64;
    p->input_bytes = an_round_up(p->input_bytes, 64);
    p->bill.input_bytes += (uint64_t)p->input_bytes * (uint64_t)AN_MAX(w->rq->target->input_blocks, 1);
    p->bill.peak_bytes = w->rq->persistent_bytes + (uint64_t)p->arena_bytes + p->bill.input_bytes;
    p->bill.launches = p->n_steps;
    for (int s = 0; s < p->n_steps; s++) {
        p->bill.flops += p->step[s].flops;
        p->bill.moved_bytes += p->step[s].bytes;
    }
}

an_status an_pass_cost_report(an_planner *w)
{
    an_plan *p = w->plan;
    count_work(w);
    AN_TRY(count_bytes(w));
    AN_TRY(count_kernels(w));
    count_fallbacks(p, w->rq);
    p->n_split = w->cuts->n_split;
    p->first_split = p->n_split ? an_arena_strdup(w->arena, w->cuts->first) : NULL;
    if (p->n_split && !p->first_split) return an_fail_nomem(w->err, "the plan's report", sizeof w->cuts->first);
    p->bill.splits = p->n_split;
    an_text plan = {0}, memory = {0};
    an_plan_print(p, &plan);
    timeline(p, &memory);
    p->text_plan = plan.data;
    p->text_memory = memory.data;
    return plan.failed || memory.failed ? an_fail_nomem(w->err, "the plan's report", 0) : AN_OK;
}
