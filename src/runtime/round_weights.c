/* round_weights.c: weights kept in the 16-bit dtype in which they are multiplied, while parameters do not change, as in generation
 * (an_round_weights).
 *
 *     parameter "h.0.mlp.c_fc.weight" f32 [3072,768]  ->  state "rounded.h.0.mlp.c_fc.weight" bf16 [3072,768]
 *
 * Owns:      the states and when they are read.
 * Does not:  know which operations read them: graph/compose_nn.c.
 * It ends the step that is being built (an_reset), for it runs one of its own.
 * Invariant: tensor->rounded is set only while the state's values are the parameter's. */
#include "runtime/context.h"

#include <anneal.h>

/* A matrix that an_linear would round in every run. */
static bool is_rounded_each_run(const an_ctx *cx, const an_tensor *t)
{
    const an_dtype to = cx->graph.matmul_dtype;
    return t->dtype == AN_F32 && t->rank == 2 && t->numel > 0 && (to == AN_BF16 || to == AN_F16);
}

an_status an_round_weights(an_ctx *cx, bool rounded)
{
    if (!cx) return AN_E_USAGE;
    if (rounded && cx->rounded) return AN_OK;
    cx->rounded = false;
    for (int i = 0; i < cx->n_params; i++) cx->param[i].tensor->rounded = NULL;
    if (!rounded) return AN_OK;
    an_reset(cx);
    const an_dtype to = cx->graph.matmul_dtype;
    for (int i = 0; i < cx->n_params; i++) {
        an_tensor *t = cx->param[i].tensor;
        if (!is_rounded_each_run(cx, t)) continue;
        const char *name = an_arena_printf(&cx->step, "rounded.%s", cx->param[i].name);
        if (!name) return an_fail_nomem(&cx->err, "a name", 0);
        t->rounded = an_state(cx, name, to, an_shape_of(t), AN_ZEROS);
        an_assign_at(AN_AT, t->rounded, an_cast_at(AN_AT, t, to));
        cx->rounded = true;
    }
    an_status status = cx->rounded ? an_eval_effects(cx) : AN_OK;
    an_reset(cx);
    return status == AN_OK ? AN_OK : (an_round_weights(cx, false), status);
}
