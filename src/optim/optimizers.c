/* optim/optimizers.c: gradients of parameters and the optimizers, as formulas over whole blocks.
 *
 * A backward pass packs each block's gradients into one array of the block's layout; an optimizer is elementwise
 * arithmetic over the arrays p, m, v, g, so that clipping and the update of every parameter of a block are one launch.
 * When no optimizer follows in the same step, the packed gradients are added to the block's gradient store
 * (accumulation over micro-batches); the next optimizer takes the sum and the store is free again.
 */
#include "runtime/runtime.h"

#include <math.h>
#include <string.h>

static an_tensor *block_leaf(an_ctx *cx, int b, an_role role, const char *name)
{
    an_block *bl = &cx->block[b];
    int32_t shape[1] = {(int32_t)bl->numel};
    if (bl->store[role] < 0) {
        an_usage usage = role == AN_ROLE_GRAD ? AN_USE_GRADIENT : role == AN_ROLE_PARAM ? AN_USE_WEIGHT : AN_USE_MOMENT;
        bl->store[role] = an_store_new(cx, bl->numel * (int64_t)an_dtype_bytes(bl->dtype), usage, name);
        if (bl->store[role] < 0) return cx->graph.poison;
    }
    if (!bl->tensor[role])
        bl->tensor[role] = an_persistent(&cx->graph, AN_LEAF_BLOCK, an_block_leaf(b, role), bl->dtype, 1, shape);
    return bl->tensor[role] ? bl->tensor[role] : cx->graph.poison;
}

static an_tensor *pack(an_ctx *cx, const char *at, int b)
{
    an_block *bl = &cx->block[b];
    an_tensor *src[255];
    int64_t attr[1] = {b};
    int32_t shape[1] = {(int32_t)bl->numel};
    for (int i = 0; i < bl->n; i++) {
        an_tensor *p = cx->param[bl->param[i]].tensor, *g = an_graph_grad(&cx->graph, p);
        src[i] = g ? g : an_full_at(at, cx, bl->dtype, an_shape_of(p), 0);
    }
    return an_emit(&cx->graph, &(an_emit_args){.op = AN_OP_PACK,
                                               .dtype = bl->dtype,
                                               .rank = 1,
                                               .shape = shape,
                                               .n_src = bl->n,
                                               .src = src,
                                               .n_attr = 1,
                                               .attr = attr,
                                               .at = at});
}

void an_backward_at(const char *at, an_tensor *loss)
{
    if (!loss || loss->poison) return;
    an_ctx *cx = loss->g->owner;
    if (an_freeze(cx) != AN_OK) return;
    an_tensor *node = an_use(&cx->graph, loss, at, "an_backward");
    if (node->poison) return;
    for (int b = 0; b < cx->n_blocks; b++)
        if (cx->block[b].pack) {
            an_poison(&cx->graph, AN_E_USAGE, at,
                      "an_backward: called twice in one step; add the losses, or run an_eval and an_reset between");
            return;
        }
    cx->loss = node->id;
    if (an_graph_backward(&cx->graph, node) != AN_OK) return;
    for (int b = 0; b < cx->n_blocks; b++)
        if (!cx->block[b].frozen) cx->block[b].pack = pack(cx, at, b);
}

an_tensor *an_grad(an_tensor *t)
{
    if (!t || t->poison) return NULL;
    return an_graph_grad(t->g, t);
}

/* This step's gradients plus those kept from earlier micro-batches. */
static an_tensor *gradient_of(an_ctx *cx, const char *at, int b)
{
    an_block *bl = &cx->block[b];
    if (bl->sum) return bl->sum; /* an_plan looked at the step before its optimizer came */
    if (!bl->pending) return bl->pack;
    an_tensor *kept = block_leaf(cx, b, AN_ROLE_GRAD, "gradients kept over micro-batches");
    return bl->pack ? an_add_at(at, kept, bl->pack) : kept;
}

void an_flush_gradients(an_ctx *cx)
{
    for (int b = 0; b < cx->n_blocks; b++) {
        an_block *bl = &cx->block[b];
        if (!bl->pack) continue;
        an_tensor *sum = gradient_of(cx, AN_AT, b),
                  *kept = block_leaf(cx, b, AN_ROLE_GRAD, "gradients kept over micro-batches");
        an_assign_at(AN_AT, kept, sum);
        bl->pack = NULL;
        bl->sum = sum;
        bl->after = true;
    }
}

/* sqrt of the sum of squares over all blocks; padding is zero. */
static an_tensor *global_norm(an_ctx *cx, const char *at, an_tensor **grad)
{
    an_tensor *sum = NULL;
    for (int b = 0; b < cx->n_blocks; b++) {
        if (!grad[b]) continue;
        an_tensor *g = an_cast_at(at, grad[b], AN_F32), *s = an_sum_at(at, an_mul_at(at, g, g), AN_ALL, false);
        sum = sum ? an_add_at(at, sum, s) : s;
    }
    return sum ? an_sqrt_at(at, sum) : NULL;
}

static bool all_frozen(const an_ctx *cx)
{
    for (int b = 0; b < cx->n_blocks; b++)
        if (!cx->block[b].frozen) return false;
    return cx->n_blocks > 0;
}

/* Gradients of all blocks into grad[]; the norm; false when there is nothing to update. */
static bool begin_update(an_ctx *cx, const char *at, const char *who, bool scaled, an_tensor **grad, an_tensor **norm)
{
    an_tensor *unscale = scaled ? an_scaler_inverse(at, cx) : NULL; /* f32 scalar */
    bool any = false;
    if (an_freeze(cx) != AN_OK) return false;
    if (cx->n_blocks > 64) {
        an_poison(&cx->graph, AN_E_UNSUPPORTED, at, "%s: more than 64 parameter blocks", who);
        return false;
    }
    an_scope_push(cx, "optimizer");
    for (int b = 0; b < cx->n_blocks; b++) {
        grad[b] = cx->block[b].frozen ? NULL : gradient_of(cx, at, b);
        if (grad[b] && unscale) grad[b] = an_mul_at(at, grad[b], an_cast_at(at, unscale, cx->block[b].dtype));
        any |= grad[b] != NULL;
        cx->block[b].pack = NULL;
        cx->block[b].sum = NULL;
        cx->block[b].after = false;
    }
    *norm = any ? global_norm(cx, at, grad) : NULL;
    if (!any) {
        an_scope_pop(cx);
        if (!cx->err.code)
            an_poison(&cx->graph, AN_E_USAGE, at, "%s: there are no gradients: %s", who,
                      all_frozen(cx) ? "every parameter is frozen" : "call an_backward first");
    }
    return any;
}

/* x to the power n by squaring: plain multiplications in one order, so that every machine has the same bits (libm's pow
 * may differ). */
static double power(double x, int64_t n)
{
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1) y *= x;
    return y;
}

static void adamw_block(an_ctx *cx, const char *at, int b, an_tensor *g, an_tensor *ok, an_tensor *factor,
                        const an_adamw_options *o, an_tensor *rate, an_tensor *keep, an_tensor *root)
{
    an_tensor *p = block_leaf(cx, b, AN_ROLE_PARAM, NULL), *m = block_leaf(cx, b, AN_ROLE_M, "first moments"),
              *v = block_leaf(cx, b, AN_ROLE_V, "second moments");
    if (factor) g = an_mul_at(at, g, factor);
    an_tensor *m1 = an_add_at(at, an_mul_num_at(at, m, o->beta1), an_mul_num_at(at, g, 1 - o->beta1));
    an_tensor *v1 = an_add_at(at, an_mul_num_at(at, v, o->beta2), an_mul_at(at, an_mul_num_at(at, g, 1 - o->beta2), g));
    an_tensor *denominator = an_add_num_at(at, an_mul_at(at, an_sqrt_at(at, v1), root), o->eps);
    an_tensor *p0 = cx->block[b].decay && o->weight_decay != 0 ? an_mul_at(at, p, keep) : p;
    an_tensor *p1 = an_sub_at(at, p0, an_mul_at(at, rate, an_div_at(at, m1, denominator)));
    an_assign_at(at, m, an_where_at(at, ok, m1, m));
    an_assign_at(at, v, an_where_at(at, ok, v1, v));
    an_assign_at(at, p, an_where_at(at, ok, p1, p));
}

an_tensor *an_adamw_at(const char *at, an_ctx *cx, an_adamw_options o)
{
    an_tensor *grad[64], *norm;
    if (!cx) return NULL;
    if (o.beta1 == 0 && o.beta2 == 0 && o.eps == 0) {
        o.beta1 = 0.9;
        o.beta2 = 0.999;
        o.eps = 1e-8;
    }
    if (!begin_update(cx, at, "an_adamw", o.scaled, grad, &norm)) return cx->graph.poison;
    cx->updates_after = o.t > 0 ? (uint64_t)o.t : cx->updates + 1;
    int64_t t = (int64_t)cx->updates_after;
    an_tensor *ok = an_isfinite_at(at, norm), *factor = NULL;
    if (o.scaled) an_scaler_update(at, cx, ok, o.only_if);
    if (o.only_if) ok = an_and_at(at, ok, o.only_if);
    if (o.clip > 0)
        factor = an_minimum_at(at, an_const_at(at, cx, AN_F32, 1),
                               an_div_at(at, an_const_at(at, cx, AN_F32, o.clip), an_add_num_at(at, norm, 1e-6)));
    /* Of a scaled loss the device alone knows how many updates were applied. */
    an_tensor *rate = o.scaled ? an_div_at(at, an_scalar_at(at, cx, o.lr), an_scaler_mass(at, cx, 1, o.beta1, ok))
                               : an_scalar_at(at, cx, o.lr / (1 - power(o.beta1, t))),
              *keep = an_scalar_at(at, cx, 1 - o.lr * o.weight_decay),
              *root = o.scaled ? an_rsqrt_at(at, an_scaler_mass(at, cx, 2, o.beta2, ok))
                               : an_scalar_at(at, cx, 1 / sqrt(1 - power(o.beta2, t)));
    for (int b = 0; b < cx->n_blocks; b++)
        if (grad[b]) adamw_block(cx, at, b, grad[b], ok, factor, &o, rate, keep, root);
    an_scope_pop(cx);
    return norm;
}

an_tensor *an_sgd_at(const char *at, an_ctx *cx, double lr)
{
    an_tensor *grad[64], *norm;
    if (!cx) return NULL;
    if (!begin_update(cx, at, "an_sgd", false, grad, &norm)) return cx->graph.poison;
    an_tensor *ok = an_isfinite_at(at, norm), *rate = an_scalar_at(at, cx, lr);
    for (int b = 0; b < cx->n_blocks; b++) {
        if (!grad[b]) continue;
        an_tensor *p = block_leaf(cx, b, AN_ROLE_PARAM, NULL);
        an_assign_at(at, p, an_where_at(at, ok, an_sub_at(at, p, an_mul_at(at, grad[b], rate)), p));
    }
    an_scope_pop(cx);
    return norm;
}

void an_assign_at(const char *at, an_tensor *state, an_tensor *value)
{
    if (!state || !value) return;
    if (state->poison || value->poison) return;
    an_ctx *cx = state->g->owner;
    an_tensor *s = an_use(&cx->graph, state, at, "an_assign"), *v = an_use(&cx->graph, value, at, "an_assign");
    if (s->poison || v->poison) return;
    if (s->op != AN_OP_LEAF || s->attr[0] == AN_LEAF_INPUT || s->attr[0] == AN_LEAF_SCALAR) {
        char shape[128];
        an_poison(&cx->graph, AN_E_USAGE, at,
                  "an_assign: the target is the result of %s, %s %s; it must be a state or parameter",
                  an_ops[s->op].name, an_dtype_name((an_dtype)s->dtype),
                  an_shape_text(s->rank, s->shape, shape, sizeof shape));
        return;
    }
    if (s->dtype != v->dtype || s->rank != v->rank || memcmp(s->shape, v->shape, sizeof *s->shape * s->rank)) {
        char have[128], got[128];
        const char *name = an_name_of(state);
        bool shapes = s->rank != v->rank || memcmp(s->shape, v->shape, sizeof *s->shape * s->rank);
        an_poison(&cx->graph, shapes ? AN_E_SHAPE : AN_E_DTYPE, at, "an_assign: \"%s\" is %s %s; it cannot take %s %s",
                  name ? name : "a block", an_dtype_name((an_dtype)s->dtype),
                  an_shape_text(s->rank, s->shape, have, sizeof have), an_dtype_name((an_dtype)v->dtype),
                  an_shape_text(v->rank, v->shape, got, sizeof got));
        return;
    }
    an_emit(&cx->graph, &(an_emit_args){.op = AN_OP_ASSIGN,
                                        .dtype = (an_dtype)s->dtype,
                                        .rank = s->rank,
                                        .shape = s->shape,
                                        .n_src = 2,
                                        .src = (an_tensor *[]){s, v},
                                        .at = at});
}
