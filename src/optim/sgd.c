/* sgd.c: stochastic gradient descent over whole blocks, with PyTorch's momentum, dampening and Nesterov's variant
 * (Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013):
 *
 *     g' = g + decay p                       where the parameter decays
 *     b' = momentum b + (1 - dampening) g'   the first update: b' = g'
 *     p' = p - lr (nesterov ? g' + momentum b' : momentum > 0 ? b' : g')
 *
 * An update whose gradient norm is not finite changes nothing. This file is the example to copy for a new optimizer:
 * train/optimizer.h says what else it takes.
 */
#include "optim/grad_accumulate.h"
#include "optim/loss_scaler.h"
#include "runtime/param_blocks.h"

#include <float.h>
#include <math.h>

/* What a gradient counts by in the momentum buffer, a scalar; NULL: 1. first: NULL, or a bool scalar that only the device knows. */
static an_tensor *undampened(an_ctx *cx, const char *at, an_dtype dtype, const an_sgd_options *o, an_tensor *first)
{
    if (o->momentum == 0 || o->dampening == 0) return NULL;
    const bool now = !first && cx->updates_by_step == 1;
    an_tensor *share = an_update_scalar(at, cx, dtype, now ? 1 : 1 - o->dampening);
    return first ? an_where_at(at, first, an_const_at(at, cx, dtype, 1), share) : share;
}

/* The direction of the step, from the block's gradient g; the momentum buffer takes its new value. */
static an_tensor *direction(an_ctx *cx, const char *at, int b, an_tensor *g, an_tensor *ok, const an_sgd_options *o,
                            an_tensor *share)
{
    const an_dtype dtype = an_update_dtype(cx->block[b].dtype);
    if (o->momentum == 0) return g;
    an_tensor *stored = an_block_tensor(cx, b, AN_ROLE_M, "momentum buffers"), *buffer = an_cast_at(at, stored, dtype);
    an_tensor *part = share ? an_mul_at(at, g, share) : g;
    an_tensor *next = an_add_at(at, an_mul_num_at(at, buffer, o->momentum), part);
    an_assign_at(at, stored, an_where_at(at, ok, an_cast_at(at, next, cx->block[b].moments), stored));
    return o->nesterov ? an_add_at(at, g, an_mul_num_at(at, next, o->momentum)) : next;
}

an_tensor *an_sgd_with_at(const char *at, an_ctx *cx, an_sgd_options o)
{
    an_tensor *grad[AN_MAX_BLOCKS], *norm;
    if (!cx) return NULL;
    if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
        return an_poison(&cx->graph, AN_E_USAGE, at,
                         "an_sgd_with: Nesterov's momentum needs a momentum above 0 and no dampening");
    const an_option numbers[] = {{"lr", o.lr, -DBL_MAX, INFINITY},
                                 {"momentum", o.momentum, 0, INFINITY},
                                 {"dampening", o.dampening, -DBL_MAX, INFINITY},
                                 {"weight_decay", o.weight_decay, -DBL_MAX, INFINITY},
                                 {"clip", o.clip == (double)INFINITY ? 0 : o.clip, 0, INFINITY}};
    if (!an_options_fit(cx, at, "an_sgd", sizeof numbers / sizeof *numbers, numbers)) return cx->graph.poison;
    if (!an_begin_update(cx, at, "an_sgd", o.scaled, grad, &norm)) return cx->graph.poison;
    cx->updates_by_step = o.t > 0 ? (uint64_t)o.t : cx->updates + 1;
    an_tensor *ok = an_isfinite_at(at, norm);
    if (o.scaled) an_loss_scale_update(at, cx, ok, o.only_if);
    if (o.only_if) ok = an_and_at(at, ok, o.only_if);
    an_tensor *factor = o.clip > 0 ? an_clip_factor(at, cx, norm, o.clip) : NULL;
    /* With loss scaling the first updates are likely to be skipped, and count nothing. */
    an_tensor *first = o.scaled && o.momentum != 0 && o.dampening != 0 ? an_loss_scale_is_first(at, cx, ok) : NULL;
    an_tensor *rate[2] = {NULL}, *share[2] = {NULL}; /* of f32, f64 */
    for (int wide = 0; wide <= (an_dtype_of(norm) == AN_F64); wide++) {
        rate[wide] = an_update_scalar(at, cx, wide ? AN_F64 : AN_F32, o.lr);
        share[wide] = undampened(cx, at, wide ? AN_F64 : AN_F32, &o, first);
    }
    for (int b = 0; b < cx->n_blocks; b++) {
        if (!grad[b]) continue;
        const an_dtype stored = cx->block[b].dtype, dtype = an_update_dtype(stored);
        an_tensor *p0 = an_own_params(cx, at, b), *p = an_cast_at(at, p0, dtype), *g = an_cast_at(at, grad[b], dtype);
        if (factor) g = an_mul_at(at, g, an_cast_at(at, factor, dtype));
        if (cx->block[b].decay && o.weight_decay != 0) g = an_add_at(at, g, an_mul_num_at(at, p, o.weight_decay));
        g = direction(cx, at, b, g, ok, &o, share[dtype == AN_F64]);
        an_tensor *p1 = an_sub_at(at, p, an_mul_at(at, g, rate[dtype == AN_F64]));
        an_assign_own_params(cx, at, b, an_where_at(at, ok, an_stored_params(cx, at, b, p1), p0));
    }
    an_scope_pop(cx);
    return an_cast_at(at, norm, AN_F32);
}

an_tensor *an_sgd_at(const char *at, an_ctx *cx, double lr)
{
    return an_sgd_with_at(at, cx, (an_sgd_options){.lr = lr});
}
