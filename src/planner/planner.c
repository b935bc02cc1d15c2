/* planner.c: the driver. The passes are rows of passes.def, run in that order, a dump after each; no pass manager.
 *
 *     an_plan_make            recompute=auto: a plan that keeps everything, or, when that does not fit, one that recomputes what
 *                             costs little time, or all that can be
 *       make_plan             attempts, until no kernel exceeds its limits: split_group.c
 *         attempt             one an_planner, all passes
 *           an_run_passes     passes.def */
#include "planner/planner.h"

#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    an_status (*run)(an_planner *w);
} passes[] = {
#define AN_PASS(name) {#name, an_pass_##name},
#include "planner/passes.def"
#undef AN_PASS
};

static void dump(const an_planner *w, const char *pass)
{
    if (!w->rq->dump) return;
    an_text t = {0};
    an_dump_pass(w, pass, &t);
    w->rq->dump(w->rq->user, pass, t.data ? t.data : "");
    an_text_free(&t);
}

an_status an_run_passes(an_planner *w, const char *last)
{
    for (size_t i = 0; i < AN_COUNT(passes); i++) {
        AN_TRY(passes[i].run(w));
        dump(w, passes[i].name);
        if (last && !strcmp(passes[i].name, last)) break;
    }
    return AN_OK;
}

static an_status attempt(an_err *err, const an_plan_request *rq, int recompute, an_cuts *cuts, an_plan **out)
{
    an_arena arena = {0};
    an_plan_request mine = *rq;
    mine.recompute = recompute;
    an_plan *p = AN_NEW(&arena, an_plan);
    if (!p) return an_fail_nomem(err, "a plan", sizeof *p);
    an_planner w = {.err = err, .rq = &mine, .cuts = cuts, .g = rq->graph, .arena = &p->arena, .plan = p};
    p->arena = arena;
    p->isolate_values = rq->isolate_values;
    w.node = AN_NEW_ARRAY(&w.scratch, an_planner_node, rq->graph->n + 1);
    an_status status =
        w.node ? an_run_passes(&w, NULL) : an_fail_nomem(err, "the planner", sizeof *w.node * (size_t)rq->graph->n);
    if (status == AN_OK) status = an_verify_plan(err, p);
    if (w.ix.no_memory) { /* a pass that could not follow an index chose otherwise than it would have */
        an_err_clear(err);
        status = an_fail_nomem(err, "index arithmetic", 0);
    }
    an_arena_free(&w.scratch);
    an_ix_pool_free(&w.ix);
    if (status != AN_OK) {
        an_plan_free(p);
        return status;
    }
    *out = p;
    return AN_OK;
}

/* A kernel may exceed its limits (buffers, depth, nested pads): its group is split, and the plan is made again. */
static an_status make_plan(an_err *err, const an_plan_request *rq, int recompute, an_plan **out)
{
    an_cuts cuts = {.node = calloc((size_t)rq->graph->n + 1, sizeof *cuts.node)};
    if (!cuts.node) return an_fail_nomem(err, "the planner", sizeof *cuts.node * (size_t)rq->graph->n);
    an_status status;
    do {
        if (cuts.more) an_err_clear(err);
        status = attempt(err, rq, recompute, &cuts, out);
    } while (status == AN_E_UNSUPPORTED && cuts.more);
    free(cuts.node);
    return status;
}

an_status an_plan_make(an_err *err, const an_plan_request *rq, an_plan **out)
{
    if (rq->recompute != AN_RECOMPUTE_AUTO) return make_plan(err, rq, rq->recompute, out);
    /* Keep everything if that fits. Without a budget, up to a limit on activations (1 GiB, more on a GPU): above it
     * recomputing costs 2 to 4 % of a step (measured on shakespeare_char) and saves a third of the memory. A pure
     * function of the plan, and the same bits either way. */
    AN_TRY(make_plan(err, rq, AN_RECOMPUTE_OFF, out));
    const uint64_t keep = rq->target->keep_bytes ? rq->target->keep_bytes : 1u << 30,
                   most = rq->budget_bytes         ? rq->budget_bytes
                          : rq->target->free_bytes ? rq->target->free_bytes
                                                   : UINT64_MAX;
    if (rq->loss < 0 ||
        ((*out)->bill.peak_bytes <= most && (rq->budget_bytes || (*out)->bill.activation_bytes <= keep)))
        return AN_OK;
    const int levels[] = {AN_RECOMPUTE_CHEAP, AN_RECOMPUTE_ON};
    for (size_t i = 0; i < AN_COUNT(levels) && (i == 0 || (*out)->bill.peak_bytes > most); i++) {
        an_plan *next = NULL;
        const an_status status = make_plan(err, rq, levels[i], &next);
        if (status != AN_OK) {
            an_plan_free(*out);
            *out = NULL;
            return status;
        }
        const bool smaller = i == 0 || next->bill.peak_bytes < (*out)->bill.peak_bytes;
        an_plan_free(smaller ? *out : next);
        if (smaller) *out = next;
    }
    return AN_OK;
}
