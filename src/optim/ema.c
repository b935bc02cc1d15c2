/* ema.c: exponential moving averages (EMA) of the parameters, an array of each block's layout:
 *
 *     a' = rate a + (1 - rate) p'        p': the parameters as this step's optimizer leaves them
 *
 * (Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992, with exponential weights.)
 *
 * Invariant: averages begin as a copy of the parameters (runtime/stores.c). A graph that reads averages is the same graph:
 * only the place of its parameters differs (an_leaf_place_of), so that nothing is copied for an evaluation.
 */
#include "optim/grad_accumulate.h"
#include "runtime/assign_params.h"
#include "runtime/param_blocks.h"

#include <math.h>

/* The block's parameters after this step. */
static an_tensor *updated_params(an_ctx *cx, const char *at, int b)
{
    an_tensor *array = cx->block[b].tensor[AN_ROLE_PARAM];
    const int32_t assign = array ? an_graph_last_assign(&cx->graph, array) : -1;
    return assign < 0 ? an_block_params(cx, b, at) : cx->graph.node[cx->graph.node[assign]->src[1]];
}

void an_ema_at(const char *at, an_ctx *cx, double rate, an_tensor *only_if)
{
    if (!cx) return;
    if (!(rate >= 0 && rate <= 1)) {
        an_poison(&cx->graph, AN_E_USAGE, at, "an_ema: the rate is %g; it is between 0 and 1", rate);
        return;
    }
    if (cx->averages) {
        an_poison(&cx->graph, AN_E_USAGE, at,
                  "an_ema: averages are read in place of the parameters now; call an_use_averages(cx, false) first");
        return;
    }
    if (an_layout_params(cx) != AN_OK) return;
    for (int b = 0; b < cx->n_blocks; b++)
        if (an_is_narrow_block(cx, b)) {
            an_poison(&cx->graph, AN_E_UNSUPPORTED, at,
                      "an_ema: parameters are kept in bfloat16 (an_policy.weights), whose steps are too coarse for an "
                      "average");
            return;
        }
    an_scope_push(cx, "ema");
    for (int b = 0; b < cx->n_blocks; b++) {
        if (cx->block[b].frozen) continue; /* is its own average */
        const an_dtype dtype = an_update_dtype(cx->block[b].dtype);
        an_tensor *p = an_cast_at(at, updated_params(cx, at, b), dtype),
                  *stored = an_block_tensor(cx, b, AN_ROLE_AVERAGE, "averages of parameters"),
                  *a = an_cast_at(at, stored, dtype);
        an_tensor *share = an_mul_at(at, p, an_update_scalar(at, cx, dtype, 1 - rate));
        an_tensor *a1 = an_add_at(at, an_mul_at(at, a, an_update_scalar(at, cx, dtype, rate)), share);
        a1 = an_cast_at(at, a1, cx->block[b].dtype);
        an_assign_at(at, stored, only_if ? an_where_at(at, only_if, a1, stored) : a1);
    }
    an_scope_pop(cx);
}

an_status an_use_averages(an_ctx *cx, bool averages)
{
    if (!cx) return AN_E_USAGE;
    if (averages != cx->averages) an_round_weights(cx, false);
    cx->averages = averages;
    return AN_OK;
}
