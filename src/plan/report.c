/* report.c: rendering of the programs (equal texts are one kernel) and the bill: what the plan will ask for, known
 * before a byte is allocated. */
#include "kernel/render.h"
#include "plan/work.h"

#include <stdlib.h>
#include <string.h>

/* Extents need not stand in the text: loops run over what the tile says. */
static bool same_work(const an_row_prog *a, const an_row_prog *b)
{
    return a->shape == b->shape && a->rows == b->rows && a->cols == b->cols && a->red == b->red;
}

/* Layers of equal shape give equal programs: one kernel, compiled once. */
static an_status share_kernels(an_work *w)
{
    an_plan *p = w->plan;
    an_text t = {0};
    int32_t *same = AN_NEW_ARRAY(&w->scratch, int32_t, p->n_kernels + 1);
    bool ok = same != NULL;
    for (int k = 0; ok && k < p->n_kernels; k++) {
        same[k] = k;
        if (p->kernel[k].kind != AN_KERNEL_ROW) continue;
        const char *why = an_render_refusal(w->rq->target->dialect, p->kernel[k].u.row);
        if (why) {
            an_text_free(&t);
            return an_fail(w->err, AN_E_UNSUPPORTED, "%s: %s %s", w->rq->target->dialect, p->kernel[k].u.row->name,
                           why);
        }
        an_text_clear(&t);
        an_render(w->rq->target->dialect, p->kernel[k].u.row, "NAME", false, &t);
        if (t.failed || !t.data) {
            ok = false;
            break;
        }
        /* The text of an elementwise program does not hold its extents, the launch does: [7936] and [320] are two
         * kernels. */
        const an_row_prog *row = p->kernel[k].u.row;
        const int64_t extents[3] = {row->rows, row->cols, row->red};
        p->kernel[k].key = an_hash(t.data, t.len, an_hash(extents, sizeof extents, 0));
        for (int j = 0; j < k && same[k] == k; j++)
            if (p->kernel[j].kind == AN_KERNEL_ROW && p->kernel[j].text &&
                same_work(p->kernel[j].u.row, p->kernel[k].u.row) && !strcmp(p->kernel[j].text, t.data))
                same[k] = j;
        if (same[k] == k) ok = (p->kernel[k].text = an_arena_strdup(w->arena, t.data)) != NULL;
    }
    an_text_free(&t);
    if (!ok) return an_fail_nomem(w->err, "rendered kernels", 0);
    for (int s = 0; s < p->n_steps; s++) {
        p->step[s].kernel = same[p->step[s].kernel];
        if (p->step[s].epilogue >= 0) p->step[s].epilogue = same[p->step[s].epilogue];
    }
    return AN_OK;
}

an_status an_pass_render(an_work *w)
{
    return share_kernels(w);
}

static int count_kernels(const an_plan *p)
{
    int n = 0;
    for (int k = 0; k < p->n_kernels; k++) n += p->kernel[k].kind == AN_KERNEL_ROW && p->kernel[k].text;
    return n;
}

/* Bytes of each kind at the step where the arena is fullest; what lives in persistent slots is the context's to add. */
static void count_bytes(an_plan *p)
{
    uint64_t kind[AN_N_USES], best[AN_N_USES] = {0}, most = 0;
    for (int s = 0; s < p->n_steps; s++) {
        uint64_t sum = 0;
        memset(kind, 0, sizeof kind);
        for (int v = 0; v < p->n_values; v++) {
            const an_value *x = &p->value[v];
            if (x->slot != AN_SLOT_ARENA || x->inside >= 0 || x->first > s || x->last < s) continue;
            kind[x->usage] += (uint64_t)x->bytes;
            sum += (uint64_t)x->bytes;
        }
        if (sum < most) continue;
        most = sum;
        memcpy(best, kind, sizeof best);
    }
    p->bill.gradient_bytes += best[AN_USE_GRADIENT];
    p->bill.activation_bytes += best[AN_USE_ACTIVATION];
    p->bill.scratch_bytes += best[AN_USE_SCRATCH] + ((uint64_t)p->arena_bytes > most ? (uint64_t)p->arena_bytes - most
                                                                                     : 0); /* holes between */
    p->bill.input_bytes += (uint64_t)p->input_bytes;
    p->bill.peak_bytes += (uint64_t)p->arena_bytes + (uint64_t)p->input_bytes;
}

/* Tensor x step: a row for each of the largest values, a column for each slice of the steps. */
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

an_status an_pass_report(an_work *w)
{
    an_plan *p = w->plan;
    if (!p->input_bytes) p->input_bytes = 64;
    p->input_bytes = an_round_up(p->input_bytes, 64);
    p->bill.peak_bytes = w->rq->persistent_bytes;
    count_bytes(p);
    p->bill.launches = p->n_steps;
    p->bill.kernels = count_kernels(p);
    for (int s = 0; s < p->n_steps; s++) {
        p->bill.flops += p->step[s].flops;
        p->bill.moved_bytes += p->step[s].bytes;
    }
    an_text plan = {0}, memory = {0};
    an_plan_print(p, &plan);
    timeline(p, &memory);
    p->text_plan = plan.data;
    p->text_memory = memory.data;
    return plan.failed || memory.failed ? an_fail_nomem(w->err, "the plan's report", 0) : AN_OK;
}
