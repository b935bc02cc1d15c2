/* planner.c: the driver, to be read aloud. One line a pass, a dump after each, no pass manager. */
#include "planner/planner.h"

#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- dumps */

static void print_groups(const an_planner *w, an_text *out)
{
    static const char *const kinds[] = {"elem",    "row",  "col",  "gemm", "attention", "attention_grad",
                                        "scatter", "call", "join", "pack", "put"};
    for (int g = 0; g < w->n_groups; g++) {
        const an_fusion_group *gr = &w->group[g];
        if (!gr->n_out) continue;
        an_text_printf(out, "group %d %s %lldx%lld", g, kinds[gr->kind], (long long)gr->rows, (long long)gr->cols);
        if (gr->red > 1) an_text_printf(out, " over %lld", (long long)gr->red);
        an_text_puts(out, ":");
        for (int32_t id = 0; id < w->g->n; id++)
            if (w->node[id].live && w->node[id].group == g)
                an_text_printf(out, " %d%s", id, w->node[id].mat ? w->node[id].remat ? "~" : "!" : "");
        an_text_printf(out, "  %s\n", an_scope_of(w, gr->out[gr->n_out - 1]));
    }
}

static void dump(an_planner *w, const char *pass)
{
    if (!w->rq->dump) return;
    an_text t = {0};
    if (!strcmp(pass, "live")) {
        an_graph_print(w->g, 0, &t);
        an_text_printf(&t, "%d of %d nodes are live\n", w->n_live, w->g->n);
    } else if (!strcmp(pass, "group") || !strcmp(pass, "layout")) {
        print_groups(w, &t);
    } else if (!strcmp(pass, "lower")) {
        for (int k = 0; k < w->plan->n_kernels; k++)
            if (w->plan->kernel[k].kind == AN_KERNEL_LOOP) an_loop_kernel_print(w->plan->kernel[k].u.loop, &t);
    } else {
        an_plan_print(w->plan, &t);
    }
    w->rq->dump(w->rq->user, pass, t.data ? t.data : "");
    an_text_free(&t);
}

/* ---------------------------------------------------------------------------------------------- the passes */

static an_status run_passes(an_planner *w)
{
    /* clang-format off */
    AN_TRY(an_pass_live(w));     dump(w, "live");    /* 1  nodes the roots and effects need                */
    AN_TRY(an_pass_group(w));    dump(w, "group");   /* 2  nodes → groups; a group is one launch           */
    AN_TRY(an_pass_layout(w));   dump(w, "layout");  /* 3  what exists in memory, and how it is laid out   */
    AN_TRY(an_pass_lower(w));    dump(w, "lower");   /* 4  groups → steps; recomputation; index arithmetic */
    AN_TRY(an_pass_place(w));    dump(w, "place");   /* 5  values → offsets in one arena                   */
    AN_TRY(an_pass_render(w));   dump(w, "render");  /* 6  programs → source text of the device's dialect  */
    AN_TRY(an_pass_report(w));   dump(w, "report");  /* 7  the bill                                        */
    /* clang-format on */
    if (w->rq->verify) AN_TRY(an_verify_plan(w->err, w->plan));
    return AN_OK;
}

static an_status make_as_cut(an_err *err, const an_plan_request *rq, int recompute, an_cuts *cuts, an_plan **out)
{
    an_arena arena = {0};
    an_plan_request mine = *rq;
    mine.recompute = recompute;
    an_plan *p = AN_NEW(&arena, an_plan);
    if (!p) return an_fail_nomem(err, "a plan", sizeof *p);
    an_planner w = {.err = err, .rq = &mine, .cuts = cuts, .g = rq->graph, .arena = &p->arena, .plan = p};
    p->arena = arena;
    p->apart = rq->apart;
    w.node = AN_NEW_ARRAY(&w.scratch, an_planner_node, rq->graph->n + 1);
    an_status status =
        w.node ? run_passes(&w) : an_fail_nomem(err, "the planner", sizeof *w.node * (size_t)rq->graph->n);
    if (w.ix.no_memory) { /* a pass that could not follow an index chose otherwise than it would have, or found a fault
                             that is none */
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

/* A kernel may outgrow its tables (buffers, depth, nested pads): its group is split, the others stay as they are. */
static an_status make_once(an_err *err, const an_plan_request *rq, int recompute, an_plan **out)
{
    an_cuts cuts = {.node = calloc((size_t)rq->graph->n + 1, sizeof *cuts.node)};
    if (!cuts.node) return an_fail_nomem(err, "the planner", sizeof *cuts.node * (size_t)rq->graph->n);
    an_status status;
    do {
        if (cuts.more) an_err_clear(err);
        status = make_as_cut(err, rq, recompute, &cuts, out);
    } while (status == AN_E_UNSUPPORTED && cuts.more);
    free(cuts.node);
    return status;
}

an_status an_plan_make(an_err *err, const an_plan_request *rq, an_plan **out)
{
    if (rq->recompute != 2) return make_once(err, rq, rq->recompute, out);
    /* "auto": keep everything if that fits. Without a budget, below a limit on activations (1 GiB, more on a GPU):
     * above it recomputing costs 2 to 4 % of a step (measured on shakespeare_char) and saves a third of the memory. A
     * pure function of the plan, and the same bits either way. */
    AN_TRY(make_once(err, rq, 0, out));
    const uint64_t keep = rq->target->keep_bytes ? rq->target->keep_bytes : 1u << 30;
    bool fits = rq->budget_bytes ? (*out)->bill.peak_bytes <= rq->budget_bytes : (*out)->bill.activation_bytes <= keep;
    if (fits || rq->loss < 0) return AN_OK;
    an_plan *smaller;
    AN_TRY(make_once(err, rq, 1, &smaller));
    an_plan_free(*out);
    *out = smaller;
    return AN_OK;
}
