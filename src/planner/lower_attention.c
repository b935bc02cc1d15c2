/* lower_attention.c: attention and its gradient → one step each: shapes, strides and dropout of an an_attn_spec.
 *
 *     forward   args  q k v rng | o lse [n_keys [mask]]
 *     backward  args  q k v o lse do rng | dq dk dv [mask]
 *
 * q, k, v and the results are read and written at any strides with a contiguous last axis, so that heads need no
 * permuted copies; a mask at any strides, so that it is read where it was before it was broadcast. Outputs that nothing reads go to scratch: the kernels write all of them. The dropout mask is no
 * argument: the kernels compute it from rng and the spec's stream (dropout_mask.h in kernels/cpu and kernels/gpu). */
#include "planner/planner_internal.h"

#include <string.h>

static an_arg absent(void)
{
    return (an_arg){.slot = -1, .value = -1};
}

static an_arg strided(an_planner *w, int32_t src, int64_t *out)
{
    an_view v;
    an_arg a = an_operand(w, src, false, &v);
    memcpy(out, v.stride, 3 * sizeof *out);
    return a;
}

/* Whether q, k and v were float16 before they were widened: a device may round its factors to float16's 11 bits. */
static bool widened_from_half(const an_graph *g, const struct an_tensor *n)
{
    bool all = true;
    for (int i = 0; i < 3; i++) {
        const struct an_tensor *x = g->node[n->src[i]];
        all &= x->dtype == AN_F32 && x->op == AN_OP_CAST && g->node[x->src[0]]->dtype == AN_F16;
    }
    return all;
}

static uint8_t factor_dtype(const an_planner *w, const struct an_tensor *n)
{
    if (w->g->node[n->src[0]]->dtype == AN_BF16) return AN_BF16;
    return widened_from_half(w->g, n) ? AN_F16 : AN_F32;
}

static an_attn_spec attention_spec(const an_planner *w, const struct an_tensor *n)
{
    const struct an_tensor *q = w->g->node[n->src[0]], *k = w->g->node[n->src[1]];
    return (an_attn_spec){.B = q->shape[0],
                          .H = q->shape[1],
                          .T = q->shape[2],
                          .S = k->shape[2],
                          .D = q->shape[3],
                          .group = q->shape[1] / k->shape[1],
                          .scale = (float)n->imm[0],
                          .causal = (uint8_t)n->attr[0],
                          .dtype = q->dtype,
                          .mul_dtype = factor_dtype(w, n),
                          .dropout = (float)n->imm[1],
                          .stream = (uint32_t)n->attr[1],
                          .window = (int32_t)an_attention_window(n)};
}

static an_arg mask_arg(an_planner *w, int32_t src, an_attn_spec *s)
{
    an_view v;
    const an_arg a = an_operand(w, src, false, &v);
    memcpy(s->mask, v.stride, sizeof s->mask);
    s->masked = 1;
    return a;
}

static int forward_args(an_planner *w, int32_t id, an_attn_spec *s, an_arg rng, an_arg *arg)
{
    const struct an_tensor *n = w->g->node[id];
    const int mask = an_attention_mask(w->g, n);
    int64_t stride[AN_MAX_RANK], lse_bytes = (int64_t)s->B * s->H * s->T * (mask >= 0 ? 8 : 4);
    int n_args = 3;
    arg[n_args++] = rng;
    arg[n_args++] = an_output_arg(w, id, 0, stride, 0);
    memcpy(s->o, stride, sizeof s->o);
    arg[n_args++] = an_output_arg(w, id, 1, NULL, lse_bytes);
    if (n->n_src > 3 && mask != 3) {
        an_view keys;
        arg[n_args++] = an_operand(w, n->src[3], false, &keys);
    }
    if (mask < 0) return n_args;
    if (n_args < AN_ATTN_MASK) arg[n_args++] = absent();
    arg[n_args++] = mask_arg(w, n->src[mask], s);
    return n_args;
}

static int backward_args(an_planner *w, int32_t id, an_attn_spec *s, an_arg rng, an_arg *arg)
{
    const struct an_tensor *n = w->g->node[id];
    int64_t stride[AN_MAX_RANK], *const out[3] = {s->dq, s->dk, s->dv};
    an_view lse;
    int n_args = 3;
    arg[n_args++] = strided(w, n->src[3], s->o);
    arg[n_args++] = an_operand(w, n->src[4], false, &lse);
    arg[n_args++] = strided(w, n->src[5], s->do_);
    arg[n_args++] = rng;
    for (int i = 0; i < 3; i++) {
        arg[n_args++] = an_output_arg(w, id, i, stride, 0);
        memcpy(out[i], stride, 3 * sizeof *stride);
    }
    const int mask = an_attention_mask(w->g, n);
    if (mask >= 0) arg[n_args++] = mask_arg(w, n->src[mask], s);
    return n_args;
}

an_status an_lower_attention(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id], *q = w->g->node[n->src[0]];
    const bool grad = n->op == AN_OP_ATTENTION_GRAD;
    if (q->dtype != AN_F32 && q->dtype != AN_BF16)
        return an_fail(w->err, AN_E_UNSUPPORTED,
                       "%s: an_attention: %s has no attention kernel; cast q, k and v to float32 or bfloat16 (in %s)",
                       n->at ? n->at : "plan", an_dtype_name((an_dtype)q->dtype), an_scope_of(w, id));
    if (w->rq->target->exact && q->dtype == AN_BF16) return an_refuse_inexact(w, id, "an_attention");
    an_attn_spec s = attention_spec(w, n);
    const an_arg words = {.slot = AN_SLOT_INPUT, .offset = AN_INPUT_RNG, .bytes = 8, .value = -1};
    const an_arg rng = s.dropout > 0 ? words : absent();
    an_arg arg[AN_ATTN_GRAD_MASK + 1];
    arg[0] = strided(w, n->src[0], s.q);
    arg[1] = strided(w, n->src[1], s.k);
    arg[2] = strided(w, n->src[2], s.v);
    const int n_args = grad ? backward_args(w, id, &s, rng, arg) : forward_args(w, id, &s, rng, arg);
    const uint64_t pairs = (uint64_t)s.B * (uint64_t)s.H * (uint64_t)s.T * (uint64_t)s.S,
                   work = pairs * (uint64_t)s.D * (grad ? 10u : 4u);
    an_kernel kernel = {.kind = grad ? AN_KERNEL_ATTN_GRAD : AN_KERNEL_ATTN,
                        .name = an_short_name(w, id, grad ? "attention_grad" : "attention"),
                        .u.attn = s,
                        .flops = s.causal ? work / 2 : work};
    if (s.window) kernel.flops = AN_MIN(kernel.flops, work / (uint64_t)s.S * (uint64_t)s.window);
    for (int i = 0; i < n_args; i++) kernel.bytes += (uint64_t)arg[i].bytes;
    return an_add_step(w, kernel, arg, n_args, id, NULL);
}
