/* compose_attention.c: attention, as the operation that the kernels compute, or as the formula they follow.
 *
 * Owns:      the public functions, their checks, the policy's casts; which form it takes; what becomes of a mask.
 * Does not:  compute: src/kernels; its gradient: grad_call.c.
 *
 * The formula keeps scores in memory. It is for what has no kernel: float64, nothing to attend to, and a mask that wants a gradient of its
 * own. */
#include "graph/compose.h"

#include <math.h>
#include <string.h>

enum { TEXT = 8 * 12 + 3 };

static const char *text_of(const an_tensor *t, char *out)
{
    return an_shape_text(t->rank, t->shape, out, TEXT);
}

static int32_t last_of(const an_tensor *t)
{
    return t->rank ? t->shape[t->rank - 1] : 1;
}

/* ------------------------------------------------------------------------------------------------ formula */

/* Softmax along the last axis of scores [B,H,T,S]; a row of -inf alone is 0, as in PyTorch. */
static an_tensor *safe_softmax(an_tensor *scores)
{
    an_tensor *rows = an_make_rows(scores, 3); /* [B*H*T,S,1] */
    if (rows->poison || !rows->shape[1]) return scores;
    an_tensor *blind = EQ(MAX3(rows), NUM(rows, -INFINITY)); /* [B*H*T,1,1] */
    an_tensor *p = an_softmax_of(WHERE(blind, NUM(rows, 0), rows));
    return an_make_like(WHERE(blind, NUM(p, 0), p), scores);
}

an_tensor *an_repeat_heads(an_tensor *k, int32_t heads)
{
    const int32_t *s = k->shape;
    if (k->poison || s[1] == heads) return k;
    const int32_t one[5] = {s[0], s[1], 1, s[2], s[3]}, each[5] = {s[0], s[1], heads / s[1], s[2], s[3]},
                  all[4] = {s[0], heads, s[2], s[3]};
    return an_make_reshape(an_make_broadcast(an_make_reshape(k, 5, one), 5, each), 4, all);
}

/* A query that sees no key gives zeros. q [B,H,T,D], k v [B,G,S,D], n_keys i32 [] or NULL, mask [B,H,T,S] in scores' dtype or NULL. */
static an_tensor *attention_formula(an_tensor *q, an_tensor *k, an_tensor *v, const an_attention_options *o,
                                    double scale, an_tensor *mask)
{
    if (q->rank != 4 || k->rank != 4 || v->rank != 4 || !an_same_shape(k, v) || q->shape[3] != k->shape[3] ||
        q->shape[0] != k->shape[0] || !an_heads_divide(q, k))
        return an_refuse(q->g, AN_E_SHAPE, "q, k and v are not [B,H,T,D], [B,G,S,D] and [B,G,S,D], where G divides H");
    k = an_repeat_heads(k, q->shape[1]);
    v = an_repeat_heads(v, q->shape[1]);
    const int32_t T = q->shape[2], S = k->shape[2], shape[4] = {q->shape[0], q->shape[1], T, S};
    an_tensor *i = an_make_iota(q->g, 4, shape, 2), *j = an_make_iota(q->g, 4, shape, 3);
    an_tensor *n = o->n_keys != NULL ? an_make_reshape(o->n_keys, 0, NULL) : NUM(i, S),
              *seen = LT(j, n);                                     /* [B,H,T,S] */
    an_tensor *last = o->causal ? ADD(i, SUB(n, NUM(n, T))) : NULL; /* key that a query sees */
    if (o->causal) seen = AND(seen, LE(j, last));
    if (o->window) seen = AND(seen, LT(SUB(last, NUM(last, (double)o->window)), j));
    an_tensor *scores = MM(MUL(q, NUM(q, scale)), an_make_swap(k, 2, 3)), *p; /* [B,H,T,S] */
    if (mask == NULL) {
        scores = WHERE(seen, scores, NUM(scores, -INFINITY));
        p = an_make_like(an_softmax_of(an_make_rows(scores, 3)), scores);
        p = WHERE(seen, p, NUM(p, 0));
    } else {
        scores = ADD(an_wide(scores), mask);
        p = CAST(safe_softmax(WHERE(seen, scores, NUM(scores, -INFINITY))), (an_dtype)v->dtype);
    }
    return MM(an_dropout_of(p, o->dropout), v);
}

/* ------------------------------------------------------------------------------------------------ masks */

/* What a mask is made of that a gradient may be asked of. */
typedef enum an_made_of { OF_NUMBERS, OF_INPUTS, OF_PARAMETERS } an_made_of;
static an_made_of made_of(const an_tensor *mask)
{
    const an_graph *g = mask->g;
    bool *reached = AN_NEW_ARRAY(&mask->g->arena, bool, mask->id + 1);
    if (!reached) return OF_PARAMETERS; /* what is refused next says that there is no memory */
    an_made_of most = OF_NUMBERS;
    reached[mask->id] = true;
    for (int32_t id = mask->id; id >= 0; id--) {
        const an_tensor *t = g->node[id];
        if (!reached[id] || !an_dtype_is_float((an_dtype)t->dtype) || t->op == AN_OP_DETACH) continue;
        if (t->op == AN_OP_LEAF) most = AN_MAX(most, t->attr[0] == AN_LEAF_PARAM ? OF_PARAMETERS : OF_INPUTS);
        for (int i = 0; i < t->n_src; i++) reached[t->src[i]] = true;
    }
    return most;
}

/* A mask as [B,H,T,S], what is added to the scores, in dtype `as`; of bools 0 and -inf. It is expanded last: a kernel reads what lies
 * beneath by strides of 0. NULL: every key counts. */
static an_tensor *additive(an_tensor *mask, const an_tensor *q, const an_tensor *k, an_dtype as)
{
    char tm[TEXT], ts[TEXT];
    const int32_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], k->shape[2]};
    const bool boolean = mask->dtype == AN_BOOL;
    double x;
    int64_t one;
    if (!boolean && !an_dtype_is_float((an_dtype)mask->dtype))
        return an_refuse(q->g, AN_E_DTYPE, "the mask is %s: a float, which is added to the scores, or bool",
                         an_dtype_name((an_dtype)mask->dtype));
    bool fits = mask->rank <= 4;
    for (int i = 1; fits && i <= mask->rank; i++)
        fits = mask->shape[mask->rank - i] == 1 || mask->shape[mask->rank - i] == shape[4 - i];
    if (!fits)
        return an_refuse(q->g, AN_E_SHAPE, "the mask %s does not broadcast to %s", text_of(mask, tm),
                         an_shape_text(4, shape, ts, sizeof ts));
    if (an_uniform(mask, &x, &one) && (boolean ? one != 0 : x == 0)) return NULL;
    while (mask->op == AN_OP_EXPAND) mask = an_src(mask, 0);
    mask = boolean ? WHERE(mask, an_make_full(q->g, as, 0, NULL, 0, 0), an_make_full(q->g, as, 0, NULL, -INFINITY, 0))
                   : CAST(mask, as);
    return an_make_broadcast(mask, 4, shape);
}

/* ------------------------------------------------------------------------------------------------ attention */

/* Kernels of attention look for a row's largest score before they scale it, and mask with -inf, so their scale is positive: q takes the sign.
 * Whether it did. */
static bool scale_is_made_positive(an_tensor **q, double *scale)
{
    if (!(*scale < 0)) return false;
    *q = NEG(*q);
    *scale = -*scale;
    return true;
}

/* The kernel draws its dropout mask itself (kernels/cpu/dropout_mask.h, kernels/gpu/dropout_mask.h); outside attention the mask is
 * an_dropout_of's, compose.c. */
an_tensor *an_attention_with_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v, an_attention_options o)
{
    an_tensor *t[] = {q, k, v, o.n_keys, o.mask}, *mask = NULL;
    if (!an_enter(at, "an_attention", 5, 3, t)) return t[0];
    an_graph *g = t[0]->g;
    o.n_keys = t[3];
    if (!(o.dropout >= 0 && o.dropout < 1)) return an_refuse(g, AN_E_USAGE, "dropout %g is not in [0,1)", o.dropout);
    if (o.window < 0 || (o.window && !o.causal))
        return an_refuse(g, AN_E_USAGE, "a window of %lld%s; with causal it is 1 or more, or 0: none",
                         (long long)o.window, o.causal ? "" : ", not causal");
    if (t[1]->rank == 4 && o.window >= t[1]->shape[2]) o.window = 0; /* hides nothing */
    an_dtype as = an_policy_dtype(t[0], t[1]);
    if (t[1]->dtype != t[2]->dtype) as = g->matmul_dtype;
    const bool narrow = as == AN_F16; /* there is no kernel for it: scores in f32 are what float16 needs anyway */
    if (narrow) as = AN_F32;
    for (int i = 0; i < 3; i++) {
        if (!an_dtype_is_float((an_dtype)t[i]->dtype))
            return an_refuse(g, AN_E_DTYPE, "takes floats, not %s: cast first", an_dtype_name((an_dtype)t[i]->dtype));
        t[i] = CAST(t[i], as);
    }
    const bool four = t[0]->rank == 4 && t[1]->rank == 4; /* else it is refused below */
    if (t[4] != NULL && four) mask = additive(t[4], t[0], t[1], as == AN_F64 ? AN_F64 : AN_F32);
    if (mask != NULL && mask->poison) return mask;
    double factor = o.scale != 0 ? o.scale : 1 / sqrt((double)AN_MAX(1, last_of(t[0])));
    const an_made_of of = mask != NULL ? made_of(mask) : OF_NUMBERS;
    const bool empty = t[0]->numel == 0 || t[1]->numel == 0; /* has no kernel either */
    if (as == AN_F64 || empty || of == OF_PARAMETERS || (of == OF_INPUTS && o.dropout > 0)) {
        an_tensor *y = attention_formula(t[0], t[1], t[2], &o, factor, mask);
        return narrow ? CAST(y, AN_F16) : y;
    }
    scale_is_made_positive(&t[0], &factor);
    int64_t attr[3] = {o.causal, o.dropout > 0 ? (int64_t)an_graph_stream(g) : 0, o.window};
    int n_src = 3;
    if (o.n_keys != NULL) t[n_src++] = o.n_keys;
    if (mask != NULL) t[n_src++] = mask;
    an_emit_args e = {
        .op = AN_OP_ATTENTION, .n_src = (uint8_t)n_src, .src = t, .n_attr = o.window ? 3 : 2, .attr = attr};
    e.imm[0] = factor;
    e.imm[1] = o.dropout;
    e.at = at;
    return narrow ? CAST(an_emit(g, &e), AN_F16) : an_emit(g, &e);
}

an_tensor *an_attention_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v, double scale, bool causal,
                           double dropout, an_tensor *n_keys)
{
    return an_attention_with_at(
        at, q, k, v, (an_attention_options){.scale = scale, .causal = causal, .dropout = dropout, .n_keys = n_keys});
}

/* t: q k v, or q k v o lse dy of a gradient. Whether the kernels of attention take them as they are. */
static bool attention_fits(an_tensor *const *t, int n)
{
    char text[TEXT];
    for (int i = 0; i < n; i++) {
        if (t[i]->poison) return false;
        const an_dtype as = i == 4 ? AN_F32 : (an_dtype)t[0]->dtype;
        if (t[i]->dtype != as || (as != AN_F32 && as != AN_BF16) || t[i]->numel == 0) {
            an_refuse(t[0]->g, AN_E_DTYPE,
                      "operand %d is %s %s: takes float32 or bfloat16, all the same, with elements", i,
                      an_dtype_name((an_dtype)t[i]->dtype), text_of(t[i], text));
            return false;
        }
    }
    if (n == 3) return true;
    const bool rows =
        t[4]->rank == 3 && t[0]->rank == 4 && memcmp(t[4]->shape, t[0]->shape, 3 * sizeof *t[0]->shape) == 0;
    if (rows && an_same_shape(t[3], t[0]) && an_same_shape(t[5], t[0])) return true;
    an_refuse(t[0]->g, AN_E_SHAPE, "o, lse and dy are not of q's shape %s", text_of(t[0], text));
    return false;
}

static an_tensor *emit_attention(const char *at, an_op op, an_tensor **t, int n, double scale, bool causal)
{
    const int64_t attr[2] = {causal, 0};
    an_emit_args e = {.op = op, .n_src = (uint8_t)n, .src = t, .n_attr = 2, .attr = attr, .at = at};
    e.imm[0] = scale != 0 ? scale : 1 / sqrt((double)AN_MAX(1, last_of(t[0])));
    return an_emit(t[0]->g, &e);
}

an_tensor *an_attention_lse_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v, double scale, bool causal,
                               an_tensor **lse)
{
    an_tensor *t[] = {q, k, v};
    if (!an_enter(at, "an_attention_lse", 3, 3, t) || !attention_fits(t, 3)) return *lse = an_poison_of(t[0]->g);
    scale_is_made_positive(&t[0], &scale);
    an_tensor *o = emit_attention(at, AN_OP_ATTENTION, t, 3, scale, causal);
    *lse = o->poison ? o : an_make_pick(o, 1);
    return o;
}

an_tensor *an_attention_grad_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v, an_tensor *o, an_tensor *lse,
                                an_tensor *dy, double scale, bool causal, an_tensor **dk, an_tensor **dv)
{
    an_tensor *t[] = {q, k, v, o, lse, dy};
    if (!an_enter(at, "an_attention_grad", 6, 6, t) || !attention_fits(t, 6)) return *dk = *dv = an_poison_of(t[0]->g);
    const bool negative = scale_is_made_positive(&t[0], &scale);
    an_tensor *d = emit_attention(at, AN_OP_ATTENTION_GRAD, t, 6, scale, causal);
    *dk = d->poison ? d : an_make_pick(d, 1);
    *dv = d->poison ? d : an_make_pick(d, 2);
    return negative ? NEG(d) : d;
}
