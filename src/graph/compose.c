/* compose.c: reductions over any axes, softmax, dropout, activations and losses as formulas. The decomposition is the
 * specification: a fused kernel must give the same bits.
 *
 * Owns:       how sums are split, and the formulas.
 * Does not:   know operands' places or names (build.c), layers with weights (compose_nn.c) or kernels.
 * Invariants: formulas over a row work on [O,R,I], axis 1, from the first node to the last, so that all nodes
 *             between are elementwise, row sums or EXPANDs and can be fused. bf16 and f16 operands are widened to f32
 *             first and rounded back once at the end. Results are deterministic: how a sum is split depends on its shape
 *             alone.
 */
#include "graph/compose.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ reductions */

/* A sum over all elements would run in one thread, and a sum down many rows in one thread a column. So they are split into
 * partial sums here, in the graph: deterministic, with the same bits on every device. Totals of more than TOTAL_MOST
 * elements are split into chunks of TOTAL_CHUNK, repeatedly; columns of COLUMN_LEAST rows and more into chunks of
 * COLUMN_CHUNK rows, once. Rows are never split. */
enum { TOTAL_MOST = AN_TOTAL_MOST, TOTAL_CHUNK = AN_TOTAL_CHUNK, COLUMN_LEAST = 256, COLUMN_CHUNK = 128 };

static an_tensor *emit_reduce(an_op op, an_tensor *x)
{
    return an_make_call(op, 1, &x, 0, NULL);
}

/* x [O,R,I] to [O,ceil(R/chunk),I]. */
static an_tensor *reduce_chunks(an_op op, an_tensor *x, int32_t chunk)
{
    if (x->poison) return x;
    int32_t O = x->shape[0], R = x->shape[1], I = x->shape[2];
    int32_t n = (int32_t)an_ceil_div(R, chunk);
    x = an_make_pad(x, 1, 0, (int64_t)n * chunk - R, op == AN_OP_SUM ? 0 : -INFINITY);
    x = an_make_reshape(x, 3, (int32_t[]){O * n, chunk, I});
    return an_make_reshape(emit_reduce(op, x), 3, (int32_t[]){O, n, I});
}

an_tensor *an_make_reduce3(an_op op, an_tensor *x)
{
    if (x->poison) return x;
    an_dtype t = (an_dtype)x->dtype;
    if (op == AN_OP_SUM) x = an_wide(x);
    while (!x->poison && x->shape[0] == 1 && x->shape[2] == 1 && x->shape[1] > TOTAL_MOST)
        x = reduce_chunks(op, x, TOTAL_CHUNK);
    if (!x->poison && x->shape[2] > 1 && x->shape[1] >= COLUMN_LEAST) x = reduce_chunks(op, x, COLUMN_CHUNK);
    return CAST(emit_reduce(op, x), t);
}

/* A maximum made of several MAX nodes shares its gradient among the largest elements of all parts, not of each part. */
static void share_among_equals(an_tensor *max, const an_tensor *x, uint32_t mask)
{
    if (max->poison || max->op != AN_OP_MAX) return;
    const an_tensor *part = an_src(max, 0);
    while (part->op == AN_OP_RESHAPE || part->op == AN_OP_PAD) part = an_src(part, 0);
    if (part->op != AN_OP_MAX) return;
    an_set_rule(max, AN_RULE_MAX, x, NULL);
    if (max->rule != 0) max->g->rules[max->rule - 1].axes = mask;
}

/* Adjacent axes are reduced together; sets with gaps take one node a run, the last run first. */
an_tensor *an_make_reduce(an_op op, an_tensor *a, uint32_t mask, bool keep)
{
    if (a->poison) return a;
    int32_t shape[AN_MAX_RANK], left[AN_MAX_RANK];
    int rank = a->rank, n_left = 0;
    an_tensor *x = a;
    memcpy(shape, a->shape, sizeof shape);
    for (int i = rank - 1; i >= 0; i--) {
        if (!(mask >> i & 1)) continue;
        int end = i + 1;
        while (i >= 0 && ((mask >> i & 1) || shape[i] == 1)) i--;
        int32_t orI[3] = {an_merge(shape, 0, i + 1), an_merge(shape, i + 1, end), an_merge(shape, end, rank)};
        for (int k = i + 1; k < end; k++) shape[k] = 1;
        a = an_make_reduce3(op, an_make_reshape(a, 3, orI));
    }
    if (op == AN_OP_MAX) share_among_equals(a, x, mask);
    for (int i = 0; i < rank; i++)
        if (!(mask >> i & 1) || keep) left[n_left++] = (mask >> i & 1) ? 1 : shape[i];
    return an_make_reshape(a, n_left, left);
}

an_tensor *an_make_rows(an_tensor *a, int axis)
{
    if (a->poison) return a;
    int32_t orI[3] = {an_merge(a->shape, 0, axis), a->shape[axis], an_merge(a->shape, axis + 1, a->rank)};
    return an_make_reshape(a, 3, orI);
}

an_tensor *an_wide(an_tensor *a)
{
    return a->dtype == AN_BF16 || a->dtype == AN_F16 ? CAST(a, AN_F32) : a;
}

void an_set_rule(an_tensor *out, an_rule_kind kind, const an_tensor *x, const an_tensor *aux)
{
    an_graph *g = out->g;
    if (out->poison || x->poison || out->rule != 0 || out->id <= x->id) return;
    an_rule *rule = an_graph_new_rule(g);
    if (rule == NULL) return; /* recorded */
    *rule = (an_rule){.kind = kind, .x = x->id, .aux = aux != NULL ? aux->id : -1};
    rule->x_as_built = x->folded != 0 ? -x->folded : x->id;
    out->rule = g->n_rules;
    if (out->folded != 0 && g->node[out->id]->rule == 0) g->node[out->id]->rule = g->n_rules;
}

/* ------------------------------------------------------------------------------------------------ statistics */

/* sum / n: n is exact in f32 for any axis a machine holds up to 2^24; beyond it the rounding of n is the specification.
 */
an_tensor *an_mean_of(an_tensor *a, uint32_t mask, bool keep)
{
    double n = 1;
    for (int i = 0; i < a->rank; i++)
        if (mask >> i & 1) n *= a->shape[i];
    an_tensor *sum = an_make_reduce(AN_OP_SUM, an_wide(a), mask, keep);
    return CAST(DIV(sum, NUM(sum, n)), (an_dtype)a->dtype);
}

/* No gradient goes through the mean: it would be g times the sum of deviations, which is 0 but for rounding, and NaN where
 * one element is infinite. */
an_tensor *an_var_of(an_tensor *a, uint32_t mask, bool keep)
{
    an_tensor *x = an_wide(a);
    an_tensor *mean = an_mean_of(x, mask, true), *d = SUB(x, an_make_call(AN_OP_DETACH, 1, &mean, 0, NULL));
    return CAST(an_mean_of(MUL(d, d), mask, keep), (an_dtype)a->dtype);
}

/* min(x) = -max(-x); integers are reversed by their complement, which has no overflow. */
an_tensor *an_min_of(an_tensor *a, uint32_t mask, bool keep)
{
    if (an_dtype_is_float((an_dtype)a->dtype)) return NEG(an_make_reduce(AN_OP_MAX, NEG(a), mask, keep));
    an_tensor *ones = an_make_full(a->g, (an_dtype)a->dtype, 0, NULL, 0, -1);
    return an_make2(AN_OP_XOR, an_make_reduce(AN_OP_MAX, an_make2(AN_OP_XOR, a, ones), mask, keep), ones);
}

/* log sum exp(x): m + log(sum(exp(x - m))), m = max(x). x [O,R,I] to [O,1,I]. The gradient is exp(x - lse) g, written
 * by hand: through m it would add terms that cancel only in exact arithmetic. */
an_tensor *an_lse_of(an_tensor *x)
{
    if (!x->poison && x->shape[1] == 0) return LOG(SUM3(x)); /* of nothing: log 0 */
    an_tensor *m = MAX3(x);
    an_tensor *lse = ADD(LOG(SUM3(EXP(SUB(x, m)))), m);
    an_set_rule(lse, AN_RULE_LOGSUMEXP, x, NULL);
    return lse;
}

/* The same where m may be infinite: a row of -inf alone gives -inf, and one that holds +inf gives +inf. Losses and
 * log_softmax, which subtract the result from x again, use the shorter formula: NaN either way. */
an_tensor *an_lse_of_any(an_tensor *x)
{
    if (!x->poison && x->shape[1] == 0) return an_lse_of(x);
    an_tensor *m = MAX3(x);
    m = WHERE(ISFINITE(m), m, NUM(m, 0));
    an_tensor *lse = ADD(LOG(SUM3(EXP(SUB(x, m)))), m);
    an_set_rule(lse, AN_RULE_LOGSUMEXP, x, NULL);
    return lse;
}

/* exp(x - m) * (1 / sum(exp(x - m))): one reciprocal a row. x [O,R,I]. */
an_tensor *an_softmax_of(an_tensor *x)
{
    if (x->poison || x->shape[1] == 0) return x; /* no rows of no elements */
    an_tensor *e = EXP(SUB(x, MAX3(x)));
    an_tensor *y = MUL(e, RECIP(SUM3(e)));
    an_set_rule(y, AN_RULE_SOFTMAX, x, NULL);
    return y;
}

/* ------------------------------------------------------------------------------------------------ activations */

an_tensor *an_relu_of(an_tensor *a)
{
    return WHERE(LE(a, NUM(a, 0)), NUM(a, 0), a);
}

/* x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel, 2016). Halving is exact, so this has the bits of
 * x/2 (1 + erf). */
an_tensor *an_gelu_of(an_tensor *a)
{
    an_tensor *x = an_wide(a);
    an_tensor *Phi = MUL(ADD(ERF(MUL(x, NUM(x, 0.70710678118654752))), NUM(x, 1)), NUM(x, 0.5));
    an_tensor *y = MUL(x, Phi);
    an_set_rule(y, AN_RULE_GELU, x, Phi);
    return CAST(y, (an_dtype)a->dtype);
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
an_tensor *an_gelu_tanh_of(an_tensor *a)
{
    an_tensor *x = an_wide(a);
    an_tensor *cubic = MUL(x, ADD(MUL(MUL(x, x), NUM(x, 0.044715)), NUM(x, 1)));
    an_tensor *t = TANH(MUL(cubic, NUM(x, 0.79788456080286536)));
    return CAST(MUL(x, MUL(ADD(t, NUM(x, 1)), NUM(x, 0.5))), (an_dtype)a->dtype);
}

an_tensor *an_silu_of(an_tensor *a)
{
    an_tensor *x = an_wide(a);
    return CAST(MUL(x, SIGMOID(x)), (an_dtype)a->dtype);
}

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)): no overflow. */
an_tensor *an_softplus_of(an_tensor *a)
{
    an_tensor *x = an_wide(a);
    an_tensor *y = ADD(MAXIMUM(x, NUM(x, 0)), LOG1P(EXP(NEG(ABS(x)))));
    return CAST(y, (an_dtype)a->dtype);
}

an_tensor *an_square_of(an_tensor *a)
{
    return MUL(a, a);
}

/* What lies between the bounds, or at one, is itself and has its gradient; the rest, NaN too, is bounded and has none.
 * An infinite bound on its own side bounds nothing; on the other side it is the result, which integers saturate. */
an_tensor *an_clamp_of(an_tensor *a, double low, double high)
{
    an_tensor *inside = NULL, *bounded = a;
    if (low > -INFINITY) {
        inside = LE(NUM(a, low), a);
        bounded = WHERE(LT(bounded, NUM(a, low)), NUM(a, low), bounded);
    }
    if (high < INFINITY) {
        an_tensor *below = LE(a, NUM(a, high));
        inside = inside != NULL ? AND(inside, below) : below;
        bounded = WHERE(LT(NUM(a, high), bounded), NUM(a, high), bounded);
    }
    if (inside == NULL && !an_dtype_is_float((an_dtype)a->dtype)) return a;
    if (inside == NULL) inside = LE(a, a); /* all but NaN */
    return WHERE(inside, a, an_make_call(AN_OP_DETACH, 1, &bounded, 0, NULL));
}

/* The dropout mask: an element is kept where a uniform number u >= p, and scaled by 1/(1-p) in f32, because bf16 is too
 * coarse for that factor. The loop kernel that uses the mask draws it (AN_INS_RAND, ir/loop_kernel.h), and the backward
 * pass draws it again: it is never stored. Inside attention: dropout_mask.h in kernels/cpu and kernels/gpu. */
an_tensor *an_dropout_of(an_tensor *a, double p)
{
    if (a->poison || p == 0) return a;
    an_tensor *u = an_make_rand(a->g, a->rank, a->shape);
    an_tensor *x = an_wide(a);
    an_tensor *y = WHERE(LE(NUM(u, p), u), MUL(x, NUM(x, 1 / (1 - p))), NUM(x, 0));
    return CAST(y, (an_dtype)a->dtype);
}

/* ------------------------------------------------------------------------------------------------ losses */

/* logits [N,V,1] f32, labels [N,1,1] to [N,1,1]: lse - logit[label]. The backward pass is exp(logits - lse) g minus g
 * at the label: elementwise, no row sums. A negative label is ignored (PyTorch's -100 among them): loss 0, gradient 0.
 */
an_tensor *an_cross_entropy_of(an_tensor *logits, an_tensor *labels)
{
    if (logits->poison || labels->poison) return an_poison_of(logits->poison ? labels->g : logits->g);
    an_tensor *hot = EQ(an_make_iota(logits->g, 3, logits->shape, 1), labels); /* [N,V,1] */
    an_tensor *picked = SUM3(WHERE(hot, logits, NUM(logits, 0)));              /* [N,1,1] */
    an_tensor *loss = SUB(an_lse_of(logits), picked);
    return WHERE(LT(labels, NUM(labels, 0)), NUM(loss, 0), loss);
}

/* logits [N,V,1], labels [N,1,1] to [N,1,1]: log of the sum of s less log of s at the label, both from numbers above 0,
 * so that nothing cancels but equal logarithms. Written so that no branch is infinite where the other counts:
 * 1 / (1 + |x|). */
an_tensor *an_stablemax_loss_of(an_tensor *logits, an_tensor *labels)
{
    if (logits->poison || labels->poison) return an_poison_of(logits->poison ? labels->g : logits->g);
    an_tensor *none = LT(labels, NUM(labels, 0)), *above = ADD(ABS(logits), NUM(logits, 1));
    an_tensor *score = WHERE(LT(logits, NUM(logits, 0)), RECIP(above), ADD(logits, NUM(logits, 1))); /* [N,V,1] */
    an_tensor *hot = EQ(an_make_iota(logits->g, 3, logits->shape, 1), labels);
    an_tensor *picked = SUM3(WHERE(hot, score, NUM(score, 0))); /* [N,1,1] */
    picked = WHERE(none, NUM(picked, 1), picked);
    an_tensor *loss = SUB(LOG(SUM3(score)), LOG(picked));
    return WHERE(none, NUM(loss, 0), loss);
}
