/* eval.c: an_eval, an_eval_again and an_plan: the caller's roots and data are checked, the plan is found or made, the step
 * is run. */
#include "runtime/context.h"

#include "runtime/execute.h"
#include "runtime/in_flight.h"
#include "runtime/oracle_eval.h"
#include "runtime/param_blocks.h"
#include "runtime/plan_cache.h"
#include "runtime/results.h"
#include "runtime/variables.h"

#include <anneal_decode.h>
#include <stdlib.h>
#include <string.h>

/* The ids of the caller's roots, into cx->asked. */
static an_status find_roots(an_ctx *cx, const char *at, const char *who, an_tensor *const *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (!t[i]) {
            an_poison(&cx->graph, AN_E_USAGE, at, "%s: tensor %d of %d is NULL", who, i + 1, n);
            return cx->err.code;
        }
        if (!an_grow((void **)&cx->asked, i, &cx->cap_asked, sizeof *cx->asked))
            return an_fail_nomem(&cx->err, who, sizeof *cx->asked * (size_t)n);
        const an_tensor *node = an_use(&cx->graph, t[i], at, who);
        if (node->poison) return cx->err.code;
        cx->asked[i] = node->id;
    }
    return cx->err.code;
}

/* Kernels clamp an id, so a wrong one would pass unseen: those that the caller gave are looked at here. */
static an_status check_ids(an_ctx *cx)
{
    an_graph *g = &cx->graph;
    for (const an_id_range *r = g->id_ranges; r; r = r->next) {
        const an_tensor *leaf = g->node[r->leaf];
        const int32_t *id = cx->input[leaf->attr[1]].data;
        int64_t i = id ? 0 : leaf->numel;
        while (i < leaf->numel && id[i] < r->limit && (id[i] >= 0 || r->negative_too)) i++;
        if (i == leaf->numel) continue;
        char shape[128];
        int32_t scope = g->scope;
        g->scope = r->scope; /* where it was built */
        an_poison(g, AN_E_DATA, r->at, "%s: element %lld of the int32 input %s is %d, outside [0,%d)", r->doing,
                  (long long)i, an_shape_text(leaf->rank, leaf->shape, shape, sizeof shape), (int)id[i], (int)r->limit);
        g->scope = scope;
        return cx->err.code;
    }
    return AN_OK;
}

static an_status check_data(an_ctx *cx)
{
    for (int i = 0; i < cx->n_inputs; i++)
        if (!cx->input[i].data)
            return an_poison(&cx->graph, AN_E_USAGE, cx->input[i].at,
                             "an_input: data is NULL; a step without it can be planned (an_plan) and not run"),
                   cx->err.code;
    return AN_OK;
}

static an_status prepare(an_ctx *cx, const char *at, const char *who, an_tensor *const *t, int n, an_cached_plan **out)
{
    if (cx->err.code) return cx->err.code;
    if (!cx->device) return an_fail(&cx->err, AN_E_ENV, "%s: the context has no device: an_open failed", who);
    AN_TRY(an_in_flight_status(cx));
    AN_TRY(an_layout_params(cx));
    AN_TRY(find_roots(cx, at, who, t, n));
    AN_TRY(check_ids(cx));
    if (cx->hooks) cx->hooks->before_plan(cx);
    if (cx->err.code) return cx->err.code;
    *out = NULL;
    return an_is_ref(cx) ? AN_OK
                         : an_plan_cache_get(cx, cx->asked, n, out); /* the oracle evaluates nodes and has no plan */
}

/* What was asked for has run, and is readable now. */
static void swap_roots(an_ctx *cx, int n)
{
    int32_t *root = cx->asked, cap = cx->cap_asked;
    cx->asked = cx->root;
    cx->cap_asked = cx->cap_roots;
    cx->root = root;
    cx->cap_roots = cap;
    cx->n_roots = n;
}

static an_status eval(an_ctx *cx, const char *at, an_tensor *const *t, int n)
{
    an_cached_plan *c;
    cx->n_roots = 0;
    AN_TRY(check_data(cx));
    AN_TRY(prepare(cx, at, "an_eval", t, n, &c));
    AN_TRY(c ? an_run_plan(cx, c) : an_oracle_run(cx, cx->asked, n));
    cx->ran = c;
    if (cx->hooks) cx->hooks->completed(cx);
    cx->ran_from = cx->effects_from;
    cx->effects_from = cx->graph.n;
    an_graph_assigns_ran(&cx->graph);
    swap_roots(cx, n);
    cx->root_epoch = cx->graph.epoch;
    return an_note_peek(cx);
}

/* What an_eval checks of a graph holds still; ids that came since are looked at. */
static an_status eval_again(an_ctx *cx)
{
    if (cx->err.code) return cx->err.code;
    AN_TRY(an_in_flight_status(cx));
    if (!cx->n_roots || cx->root_epoch != cx->graph.epoch)
        return an_fail(&cx->err, AN_E_USAGE, "an_eval_again: no an_eval of a tensor has run since an_reset");
    if (cx->graph.n != cx->effects_from)
        return an_fail(&cx->err, AN_E_USAGE, "an_eval_again: the graph has grown since the last an_eval; call an_eval");
    if (cx->loss >= 0)
        return an_fail(&cx->err, AN_E_USAGE, "an_eval_again: the step has gradients; build it again and call an_eval");
    AN_TRY(check_ids(cx));
    if (an_is_ref(cx)) {
        cx->effects_from = cx->ran_from;
        const an_status status = an_oracle_run(cx, cx->root, cx->n_roots);
        cx->effects_from = cx->graph.n;
        AN_TRY(status);
    } else {
        AN_TRY(an_run_plan(cx, cx->ran));
    }
    return an_note_peek(cx);
}

static an_ctx *ctx_of(an_tensor *const *t, int n)
{
    for (int i = 0; t && i < n; i++)
        if (t[i] && t[i]->g) return t[i]->g->owner;
    return NULL;
}

an_status an_eval_at(const char *at, an_tensor *const *roots, int n)
{
    an_ctx *cx = ctx_of(roots, n);
    return cx ? eval(cx, at, roots, n) : AN_E_USAGE;
}

an_status an_eval_effects_at(const char *at, an_ctx *cx)
{
    return cx ? eval(cx, at, NULL, 0) : AN_E_USAGE;
}

an_status an_eval_again(an_ctx *cx)
{
    if (!cx) return AN_E_USAGE;
    const an_status status = eval_again(cx);
    if (status != AN_OK) cx->n_roots = 0;
    return status;
}

an_status an_plan_at(const char *at, an_tensor *const *roots, int n)
{
    an_ctx *cx = ctx_of(roots, n);
    an_cached_plan *c;
    if (!cx) return AN_E_USAGE;
    if (an_is_ref(cx))
        return an_fail(&cx->err, AN_E_UNSUPPORTED,
                       "an_plan: the device ref evaluates node by node and has no plan; use device=null:cpu for the "
                       "plan of a CPU");
    return prepare(cx, at, "an_plan", roots, n, &c);
}
