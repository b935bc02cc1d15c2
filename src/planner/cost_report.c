/* cost_report.c: rendering of the programs (equal texts are compiled once) and the bill: what the plan will ask for, known
 * before a byte is allocated. */
#include "codegen/gpu_step.h"
#include "codegen/render.h"
#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

/* Extents need not stand in the text: loops run over what the tile says. */
static bool same_work(const an_loop_kernel *a, const an_loop_kernel *b)
{
    return a->shape == b->shape && a->rows == b->rows && a->cols == b->cols && a->red == b->red;
}

/* Renders kernel k. An earlier one's text is taken when it is the same; returns that earlier kernel when its extents
 * are the same too, else k. -1: no memory. */
static int32_t render_one(an_planner *w, int32_t k, const char *dialect, an_text *t)
{
    an_plan *p = w->plan;
    an_kernel *mine = &p->kernel[k];
    an_text_clear(t);
    an_render(dialect, mine->u.loop, "NAME", false, t);
    if (t->failed || !t->data) return -1;
    mine->key = an_hash(t->data, t->len, 0);
    for (int32_t j = 0; j < k; j++) {
        const an_kernel *other = &p->kernel[j];
        if (!other->text || other->key != mine->key || strcmp(other->text, t->data)) continue;
        if (same_work(other->u.loop, mine->u.loop)) {
            mine->text = NULL;
            return j;
        }
        mine->text = other->text;
    }
    if (!mine->text) mine->text = an_arena_strdup(w->arena, t->data);
    return mine->text ? k : -1;
}

/* Names the first operation of the program that the dialect cannot spell, and where it was built. */
static an_status refuse(an_planner *w, const an_loop_kernel *prog, const char *why)
{
    const char *dialect = w->rq->target->dialect;
    const struct an_tensor *n = NULL;
    for (int i = 0; i < prog->n_ins && !n; i++)
        if (prog->ins[i].dtype == AN_F64 && prog->ins[i].node >= 0) n = w->g->node[prog->ins[i].node];
    if (!n) return an_fail(w->err, AN_E_UNSUPPORTED, "%s: %s %s", dialect, prog->name, why);
    char shape[128];
    const char *scope = an_scope_of(w, n->id);
    return an_fail(w->err, AN_E_UNSUPPORTED, "%s: %s %s%s%s%s%s %s", dialect, an_ops[n->op].name,
                   an_shape_text(n->rank, n->shape, shape, sizeof shape), scope && *scope ? " of " : "",
                   scope ? scope : "", n->at ? " built at " : "", n->at ? n->at : "", why);
}

/* Layers of equal shape give equal programs: one kernel. Programs that differ in extents alone, [7936] and [320], are
 * two kernels of one text, compiled once. */
static an_status share_kernels(an_planner *w)
{
    an_plan *p = w->plan;
    const an_target *target = w->rq->target;
    an_text t = {0};
    int32_t *same = AN_NEW_ARRAY(&w->scratch, int32_t, p->n_kernels + 1);
    bool ok = same != NULL;
    for (int32_t k = 0; ok && k < p->n_kernels; k++) {
        same[k] = k;
        if (p->kernel[k].kind != AN_KERNEL_LOOP) continue;
        const char *why = an_render_refusal(target->dialect, p->kernel[k].u.loop);
        if (why && !target->fallback) {
            an_text_free(&t);
            return refuse(w, p->kernel[k].u.loop, why);
        }
        same[k] = render_one(w, k, why ? "c" : target->dialect, &t);
        ok = same[k] >= 0;
    }
    an_text_free(&t);
    if (!ok) return an_fail_nomem(w->err, "rendered kernels", 0);
    for (int s = 0; s < p->n_steps; s++) {
        p->step[s].kernel = same[p->step[s].kernel];
        if (p->step[s].epilogue >= 0) p->step[s].epilogue = same[p->step[s].epilogue];
    }
    return AN_OK;
}

an_status an_pass_render(an_planner *w)
{
    return share_kernels(w);
}

/* Distinct texts: what a compiler is asked for. */
static int count_kernels(const an_plan *p)
{
    int n = 0;
    for (int k = 0; k < p->n_kernels; k++) n += p->kernel[k].text && an_kernel_first(p, k) == k;
    return n;
}

/* Bytes of each kind at the step where the arena is fullest; what lives in persistent slots is the context's to add. */
static void count_bytes(an_plan *p, uint64_t input_blocks)
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
    p->bill.input_bytes += (uint64_t)p->input_bytes * input_blocks;
    p->bill.peak_bytes += (uint64_t)p->arena_bytes + p->bill.input_bytes;
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

/* The steps that the target leaves to the CPU. */
static void count_fallbacks(an_plan *p, const an_target *target)
{
    const an_gpu gpu = {.dialect = an_dialect_find(target->dialect), .version = 300};
    for (int s = 0; target->fallback && s < p->n_steps; s++) {
        an_plan_step *st = &p->step[s];
        const an_kernel_kind kind = p->kernel[st->kernel].kind;
        an_gpu_step launches;
        st->fallback =
            kind != AN_KERNEL_ZERO && kind != AN_KERNEL_COPY && an_gpu_step_make(p, st, &gpu, &launches) != NULL;
        p->bill.fallbacks += st->fallback;
        p->bill.fallback_bytes += st->fallback ? st->bytes : 0;
    }
}

an_status an_pass_report(an_planner *w)
{
    an_plan *p = w->plan;
    if (!p->input_bytes) p->input_bytes = 64;
    p->input_bytes = an_round_up(p->input_bytes, 64);
    p->bill.peak_bytes = w->rq->persistent_bytes;
    count_bytes(p, (uint64_t)AN_MAX(w->rq->target->input_blocks, 1));
    p->bill.launches = p->n_steps;
    p->bill.kernels = count_kernels(p);
    for (int s = 0; s < p->n_steps; s++) {
        p->bill.flops += p->step[s].flops;
        p->bill.moved_bytes += p->step[s].bytes;
    }
    count_fallbacks(p, w->rq->target);
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
