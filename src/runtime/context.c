/* context.c: the small accessors of a context: its recorded error, scopes, step and sample numbers, policy.
 *
 * Opening and closing are in open.c, evaluating in eval.c.
 */
#include "runtime/context.h"

bool an_is_ref(const an_ctx *cx)
{
    return cx->backend && cx->backend->evaluates_nodes;
}

const char *an_error(const an_ctx *cx)
{
    return !cx ? "an_open: no memory" : cx->err.code ? cx->err.text : NULL;
}

an_status an_error_status(const an_ctx *cx)
{
    return cx ? cx->err.code : AN_E_NOMEM;
}

void an_error_clear(an_ctx *cx)
{
    if (cx) an_err_clear(&cx->err);
}

void an_scope_push(an_ctx *cx, const char *name)
{
    if (cx) an_graph_scope_push(&cx->graph, name ? name : "");
}

void an_scope_pop(an_ctx *cx)
{
    if (cx) an_graph_scope_pop(&cx->graph);
}

void an_set_step(an_ctx *cx, uint64_t step)
{
    if (cx) cx->step_number = step;
}

void an_set_sample(an_ctx *cx, uint64_t first)
{
    if (cx) cx->sample = first;
}

void an_set_policy(an_ctx *cx, an_policy p)
{
    if (!cx) return;
    cx->graph.matmul_dtype = p.matmul;
    cx->graph.most_logits = p.logits;
}

an_policy an_get_policy(const an_ctx *cx)
{
    return cx ? (an_policy){.matmul = cx->graph.matmul_dtype, .logits = cx->graph.most_logits} : (an_policy){0};
}
