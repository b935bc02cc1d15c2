/* sgd.c: plain stochastic gradient descent over whole blocks: p' = p - lr g. An update that is not finite changes nothing. */
#include "optim/grad_accumulate.h"
#include "runtime/assign.h"
#include "runtime/param_blocks.h"

an_tensor *an_sgd_at(const char *at, an_ctx *cx, double lr)
{
    an_tensor *grad[AN_MAX_BLOCKS], *norm;
    if (!cx) return NULL;
    if (!an_begin_update(cx, at, "an_sgd", false, grad, &norm)) return cx->graph.poison;
    an_tensor *ok = an_isfinite_at(at, norm), *rate = an_scalar_at(at, cx, lr);
    for (int b = 0; b < cx->n_blocks; b++) {
        if (!grad[b]) continue;
        an_tensor *p = an_block_params(cx, b, at), *p1 = an_sub_at(at, p, an_mul_at(at, grad[b], rate));
        an_assign_at(at, an_block_tensor(cx, b, AN_ROLE_PARAM, NULL), an_where_at(at, ok, p1, p));
    }
    an_scope_pop(cx);
    return norm;
}
