/* adamw.c: AdamW and Adam-atan2 over whole blocks, with clipping by the global norm.
 *
 *     m' = beta1 m + (1 - beta1) g              v' = beta2 v + (1 - beta2) g^2
 *     p' = p (1 - lr decay) - lr/(1 - beta1^t) * m' / (sqrt(v') * 1/sqrt(1 - beta2^t) + eps)
 *
 * Adam-atan2 (Everett et al., "Scaling Exponents Across Parameterizations and Optimizers", 2024) replaces the quotient by an
 * angle, which is bounded and needs no eps:
 *
 *     p' = p (1 - lr decay) - lr/(1 - beta1^t) * atan2(m', sqrt(v') * 1/sqrt(1 - beta2^t))
 *
 * An update whose gradient norm is not finite changes nothing. Numbers that differ from step to step (learning rate, bias
 * corrections) are scalars of the step, so that every step has the same plan.
 */
#include "optim/grad_accumulate.h"
#include "optim/loss_scaler.h"
#include "runtime/assign.h"
#include "runtime/param_blocks.h"

#include <math.h>

/* x^n by squaring: multiplications in a fixed order give the same bits on every machine; pow of the C library may not. */
static double power(double x, int64_t n)
{
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1) y *= x;
    return y;
}

typedef enum an_adam_kind { ADAMW, ADAM_ATAN2 } an_adam_kind;

static void update_block(an_ctx *cx, const char *at, an_adam_kind kind, int b, an_tensor *g, an_tensor *ok,
                         an_tensor *factor, const an_adamw_options *o, an_tensor *rate, an_tensor *keep,
                         an_tensor *root)
{
    an_tensor *p = an_block_params(cx, b, at), *m = an_block_tensor(cx, b, AN_ROLE_M, "first moments"),
              *v = an_block_tensor(cx, b, AN_ROLE_V, "second moments");
    if (factor) g = an_mul_at(at, g, factor);
    an_tensor *m1 = an_add_at(at, an_mul_num_at(at, m, o->beta1), an_mul_num_at(at, g, 1 - o->beta1));
    an_tensor *v1 = an_add_at(at, an_mul_num_at(at, v, o->beta2), an_mul_at(at, an_mul_num_at(at, g, 1 - o->beta2), g));
    an_tensor *spread = an_mul_at(at, an_sqrt_at(at, v1), root);
    if (kind == ADAMW) spread = an_add_num_at(at, spread, o->eps);
    an_tensor *p0 = cx->block[b].decay && o->weight_decay != 0 ? an_mul_at(at, p, keep) : p;
    an_tensor *step = kind == ADAMW ? an_div_at(at, m1, spread) : an_atan2_at(at, m1, spread);
    an_tensor *p1 = an_sub_at(at, p0, an_mul_at(at, rate, step));
    an_assign_at(at, m, an_where_at(at, ok, m1, m));
    an_assign_at(at, v, an_where_at(at, ok, v1, v));
    an_assign_at(at, an_block_tensor(cx, b, AN_ROLE_PARAM, NULL), an_where_at(at, ok, p1, p));
}

static an_tensor *update(const char *at, const char *who, an_adam_kind kind, an_ctx *cx, an_adamw_options o)
{
    an_tensor *grad[AN_MAX_BLOCKS], *norm;
    if (!cx) return NULL;
    if (o.beta1 == 0 && o.beta2 == 0 && o.eps == 0) {
        o.beta1 = 0.9;
        o.beta2 = 0.999;
        o.eps = 1e-8;
    }
    if (!an_begin_update(cx, at, who, o.scaled, grad, &norm)) return cx->graph.poison;
    cx->updates_by_step = o.t > 0 ? (uint64_t)o.t : cx->updates + 1;
    int64_t t = (int64_t)cx->updates_by_step;
    an_tensor *ok = an_isfinite_at(at, norm), *factor = NULL;
    if (o.scaled) an_loss_scale_update(at, cx, ok, o.only_if);
    if (o.only_if) ok = an_and_at(at, ok, o.only_if);
    if (o.clip > 0)
        factor = an_minimum_at(at, an_const_at(at, cx, AN_F32, 1),
                               an_div_at(at, an_const_at(at, cx, AN_F32, o.clip), an_add_num_at(at, norm, 1e-6)));
    /* With loss scaling, only the device knows how many updates were applied. */
    an_tensor *rate = o.scaled ? an_div_at(at, an_scalar_at(at, cx, o.lr),
                                           an_loss_scale_bias_correction(at, cx, 1, o.beta1, ok))
                               : an_scalar_at(at, cx, o.lr / (1 - power(o.beta1, t))),
              *keep = an_scalar_at(at, cx, 1 - o.lr * o.weight_decay),
              *root = o.scaled ? an_rsqrt_at(at, an_loss_scale_bias_correction(at, cx, 2, o.beta2, ok))
                               : an_scalar_at(at, cx, 1 / sqrt(1 - power(o.beta2, t)));
    for (int b = 0; b < cx->n_blocks; b++)
        if (grad[b]) update_block(cx, at, kind, b, grad[b], ok, factor, &o, rate, keep, root);
    an_scope_pop(cx);
    return norm;
}

an_tensor *an_adamw_at(const char *at, an_ctx *cx, an_adamw_options o)
{
    return update(at, "an_adamw", ADAMW, cx, o);
}

an_tensor *an_adam_atan2_at(const char *at, an_ctx *cx, an_adamw_options o)
{
    return update(at, "an_adam_atan2", ADAM_ATAN2, cx, o);
}
