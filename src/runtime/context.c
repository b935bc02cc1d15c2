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

void an_error_record(an_ctx *cx, an_status status, const char *sentence)
{
    if (cx) an_fail(&cx->err, status, "%s", sentence);
}

const char *an_status_text(an_status status)
{
    static const char *const text[] = {
        [AN_OK] = "there was no error",
        [AN_E_USAGE] =
            "a wrong argument: a tensor or context is NULL, or the result of an operation whose operands are NULL",
        [AN_E_SHAPE] = "shapes, axes or ranks do not fit",
        [AN_E_DTYPE] = "the operation does not take this dtype",
        [AN_E_CONTEXT] = "a tensor belongs to another context, or an_reset has ended it",
        [AN_E_NOMEM] = "the host or the device has no memory",
        [AN_E_BUDGET] = "the plan does not fit the memory budget",
        [AN_E_ENV] = "something outside is missing or refuses: a compiler, the cache, a driver",
        [AN_E_DEVICE] = "the device failed or disappeared",
        [AN_E_IO] = "a file cannot be read or written, or is damaged",
        [AN_E_DATA] = "data is out of range: an id or a label",
        [AN_E_NUMERIC] = "NaN or infinity where training cannot go on",
        [AN_E_UNSUPPORTED] = "this is not supported",
        [AN_E_INTERNAL] = "an internal check failed: please report it"};
    return (size_t)status < AN_COUNT(text) ? text[status] : "an unknown status";
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
    if (!an_dtype_is_float(p.matmul)) {
        an_poison(&cx->graph, AN_E_DTYPE, NULL,
                  "an_set_policy: products cannot be made in %s: float32, bfloat16 or float16",
                  an_dtype_name(p.matmul));
        return;
    }
    if (p.weights != AN_F32 && p.weights != AN_BF16) {
        an_poison(&cx->graph, AN_E_DTYPE, NULL,
                  "an_set_policy: float32 parameters are kept in float32 or bfloat16, not in %s",
                  (unsigned)p.weights < AN_N_DTYPES ? an_dtype_name(p.weights) : "a dtype that there is not");
        return;
    }
    cx->graph.narrow_weights = p.weights == AN_BF16;
    cx->graph.matmul_dtype = p.matmul;
    cx->graph.most_logits = p.logits;
}

an_policy an_get_policy(const an_ctx *cx)
{
    if (!cx) return (an_policy){0};
    return (an_policy){.matmul = cx->graph.matmul_dtype,
                       .logits = cx->graph.most_logits,
                       .weights = cx->graph.narrow_weights ? AN_BF16 : AN_F32};
}
