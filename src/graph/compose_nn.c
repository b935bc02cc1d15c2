/* compose_nn.c: operations of neural networks built from other operations: norms (batch norm with its running statistics),
 * linear layers, convolution, pooling, cross entropy of a linear head. Softmax, dropout, activations: compose.c; attention: compose_attention.c.
 *
 * Owns:      their public functions, their checks and their formulas; the matmul policy's casts.
 * Does not:  know layers, parameters' names or initialisation (src/nn).
 */
#include "graph/compose.h"

#include <math.h>
#include <string.h>

enum { TEXT = 8 * 12 + 3, MAX_CHUNKS = 64 };

static const char *text_of(const an_tensor *t, char *out)
{
    return an_shape_text(t->rank, t->shape, out, TEXT);
}

/* Axes but the last, multiplied. */
static int32_t row_count(const an_tensor *t)
{
    return an_merge(t->shape, 0, t->rank - 1);
}

static int32_t last_of(const an_tensor *t)
{
    return t->rank ? t->shape[t->rank - 1] : 1;
}

/* A weight vector [C] in x's dtype as [1,C,1] or [1,1,C]; poison when it is not [C]. */
static an_tensor *vector_like(an_tensor *w, an_tensor *x, const char *what, int32_t C, const int32_t *as)
{
    char text[TEXT];
    if (w->rank != 1 || w->shape[0] != C)
        return an_refuse(w->g, AN_E_SHAPE, "the %s is %s; [%d] is needed", what, text_of(w, text), (int)C);
    return CAST(an_make_reshape(w, 3, as), (an_dtype)x->dtype);
}

static an_tensor *want_float_rows(an_tensor *a)
{
    char text[TEXT];
    if (!an_dtype_is_float((an_dtype)a->dtype))
        return an_refuse(a->g, AN_E_DTYPE, "takes floats, not %s: cast first", an_dtype_name((an_dtype)a->dtype));
    if (a->rank < 1) return an_refuse(a->g, AN_E_SHAPE, "%s has no last axis", text_of(a, text));
    return a;
}

/* ------------------------------------------------------------------------------------------------ norms */

/* (x - mean) / sqrt(mean((x - mean)^2) + eps) over axis 1 of x [O,R,I]. The automatic gradient of this formula is three
 * dependent row sums and a dozen elementwise nodes; the rule's closed form is two independent sums and five. mean, var
 * (may be NULL): [O,1,I]. */
static an_tensor *standardize(an_tensor *x, double eps, an_tensor **mean, an_tensor **var)
{
    an_tensor *n = NUM(x, x->poison ? 1 : x->shape[1]);
    an_tensor *m = DIV(SUM3(x), n);
    an_tensor *d = SUB(x, m);
    an_tensor *v = DIV(SUM3(MUL(d, d)), n);
    an_tensor *rstd = RSQRT(ADD(v, NUM(v, eps)));
    an_tensor *y = MUL(d, rstd);
    an_set_rule(y, AN_RULE_LAYER_NORM, x, rstd);
    if (mean != NULL) *mean = m;
    if (var != NULL) *var = v;
    return y;
}

an_tensor *an_layer_norm_at(const char *at, an_tensor *a, an_tensor *gain, an_tensor *bias, double eps)
{
    an_tensor *t[] = {a, gain, bias};
    if (!an_enter(at, "an_layer_norm", 3, 1, t) || want_float_rows(t[0])->poison) return an_poison_of(t[0]->g);
    int32_t C = last_of(t[0]), as[3] = {1, C, 1};
    an_tensor *x = an_wide(an_make_reshape(t[0], 3, (int32_t[]){row_count(t[0]), C, 1})); /* [O,C,1] */
    an_tensor *y = standardize(x, eps, NULL, NULL);
    if (t[1] != NULL) y = MUL(y, vector_like(t[1], x, "gain", C, as));
    if (t[2] != NULL) y = ADD(y, vector_like(t[2], x, "bias", C, as));
    return an_make_like(CAST(y, (an_dtype)t[0]->dtype), t[0]);
}

/* x / sqrt(mean(x^2) + eps) over axis 1 of x [O,R,I]; its rule has the gradient in one sum. */
static an_tensor *scale_to_unit(an_tensor *x, double eps)
{
    const double n = x->poison ? 1 : x->shape[1];
    an_tensor *rstd = RSQRT(ADD(DIV(SUM3(MUL(x, x)), NUM(x, n)), NUM(x, eps))); /* [O,1,I] */
    an_tensor *y = MUL(x, rstd);
    an_set_rule(y, AN_RULE_RMS_NORM, x, rstd);
    return y;
}

an_tensor *an_rms_norm_at(const char *at, an_tensor *a, an_tensor *gain, double eps)
{
    an_tensor *t[] = {a, gain};
    if (!an_enter(at, "an_rms_norm", 2, 1, t) || want_float_rows(t[0])->poison) return an_poison_of(t[0]->g);
    int32_t C = last_of(t[0]), as[3] = {1, C, 1};
    an_tensor *x = an_wide(an_make_reshape(t[0], 3, (int32_t[]){row_count(t[0]), C, 1})); /* [O,C,1] */
    an_tensor *y = scale_to_unit(x, eps);
    if (t[1] != NULL) y = MUL(y, vector_like(t[1], x, "gain", C, as));
    return an_make_like(CAST(y, (an_dtype)t[0]->dtype), t[0]);
}

an_tensor *an_rms_norm_axis_at(const char *at, an_tensor *a, int axis, double eps)
{
    an_tensor *t[] = {a};
    if (!an_enter(at, "an_rms_norm_axis", 1, 1, t) || want_float_rows(t[0])->poison) return an_poison_of(t[0]->g);
    const int i = an_axis_of(t[0], axis);
    if (i < 0) return an_poison_of(t[0]->g);
    an_tensor *x = an_wide(an_make_rows(t[0], i)); /* [O,R,I] */
    return an_make_like(CAST(scale_to_unit(x, eps), (an_dtype)t[0]->dtype), t[0]);
}

/* running + momentum (batch - running), in running's dtype. running [C], batch [1,1,C]. */
static an_tensor *moved(an_tensor *running, an_tensor *batch, double momentum)
{
    an_tensor *old = CAST(running, (an_dtype)batch->dtype);
    an_tensor *now = an_make_reshape(batch, 1, running->shape);
    an_tensor *next = ADD(MUL(old, NUM(old, 1 - momentum)), MUL(now, NUM(now, momentum)));
    return CAST(next, (an_dtype)running->dtype);
}

/* The same as an effect, for a batch of each rank, one after the other, as one process would see them. batch
 * [ranks,1,C]. */
static void move_running(an_tensor *running, an_tensor *batch, double momentum)
{
    an_tensor *next = running;
    const int ranks = batch->poison ? 0 : batch->shape[0];
    for (int r = 0; r < ranks; r++) next = moved(next, ranks > 1 ? an_make_slice(batch, 0, r, 1, 1) : batch, momentum);
    if (ranks && !next->poison) an_graph_assign(running->g, running, next, running->g->at);
}

/* The statistics [1,1,C] of each rank's batch, [ranks,1,C], in one exchange; those of a process alone are left as they
 * are. */
static void gather_statistics(an_tensor **mean, an_tensor **var)
{
    an_graph *g = (*mean)->g;
    const int32_t C = (*mean)->poison ? 0 : (*mean)->shape[2];
    if (g->ranks <= 1) return;
    an_tensor *both = an_make_concat(g, (an_tensor *[]){*mean, *var}, 2, 1);          /* [1,2,C] */
    both = an_make_reshape(an_make_all_gather(both), 3, (int32_t[]){g->ranks, 2, C}); /* [ranks,2,C] */
    *mean = an_make_slice(both, 1, 0, 1, 1);
    *var = an_make_slice(both, 1, 1, 1, 1);
}

an_tensor *an_batch_norm_at(const char *at, an_tensor *x, an_tensor *gain, an_tensor *bias, an_tensor *running_mean,
                            an_tensor *running_var, double momentum, double eps, bool training)
{
    an_tensor *t[] = {x, running_mean, running_var, gain, bias};
    if (!an_enter(at, "an_batch_norm", 5, 3, t) || want_float_rows(t[0])->poison) return an_poison_of(t[0]->g);
    int32_t C = last_of(t[0]), N = row_count(t[0]), as[3] = {1, 1, C};
    an_tensor *a = an_wide(an_make_reshape(t[0], 3, (int32_t[]){1, N, C})), *y; /* [1,N,C] */
    an_tensor *rm = vector_like(t[1], a, "running mean", C, as), *rv = vector_like(t[2], a, "running variance", C, as);
    if (rm->poison || rv->poison) return an_poison_of(a->g);
    if (training) {
        an_tensor *mean, *var;
        y = standardize(a, eps, &mean, &var);
        gather_statistics(&mean, &var);
        move_running(t[1], mean, momentum);
        move_running(t[2], MUL(var, NUM(var, (double)N / (N > 1 ? N - 1 : 1))), momentum);
    } else {
        y = MUL(SUB(a, rm), RSQRT(ADD(rv, NUM(rv, eps))));
    }
    if (t[3] != NULL) y = MUL(y, vector_like(t[3], a, "gain", C, as));
    if (t[4] != NULL) y = ADD(y, vector_like(t[4], a, "bias", C, as));
    return an_make_like(CAST(y, (an_dtype)t[0]->dtype), t[0]);
}

/* ------------------------------------------------------------------------------------------------ GEMMs */

an_dtype an_policy_dtype(const an_tensor *a, const an_tensor *b)
{
    an_dtype policy = a->g->matmul_dtype;
    bool same = a->dtype == b->dtype;
    return same && (policy == AN_F32 || a->dtype == AN_F64) ? (an_dtype)a->dtype : policy;
}

/* The dtype in which a bias is added: float32 for 16-bit operands, whose sums are rounded once, behind the bias. */
static an_dtype sum_dtype(an_dtype t)
{
    return t == AN_BF16 || t == AN_F16 ? AN_F32 : t;
}

/* A weight as it is kept in the dtype in which it will be multiplied, where it is kept. */
static an_tensor *kept_weight(an_tensor *w)
{
    return w && w->rounded && w->rounded->dtype == w->g->matmul_dtype ? w->rounded : w;
}

/* x [...,in] as [N,in] times w [out,in] transposed: [N,out], in the policy's dtype t, or in sum_dtype(t) when more is
 * added to it (`open`). */
static an_tensor *project(an_tensor *x, an_tensor *w, bool open)
{
    char tx[TEXT], tw[TEXT];
    if (want_float_rows(x)->poison || want_float_rows(w)->poison) return an_poison_of(x->g);
    if (w->rank != 2 || w->shape[1] != last_of(x))
        return an_refuse(x->g, AN_E_SHAPE, "x %s and w %s are not [...,in] and [out,in]", text_of(x, tx),
                         text_of(w, tw));
    an_dtype t = an_policy_dtype(x, w);
    an_tensor *rows = CAST(an_make_reshape(x, 2, (int32_t[]){row_count(x), last_of(x)}), t);
    return an_make_matmul(rows, an_make_swap(CAST(w, t), 0, 1), open ? sum_dtype(t) : t);
}

an_tensor *an_linear_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *bias)
{
    an_tensor *t[] = {x, kept_weight(w), bias};
    char text[TEXT];
    if (!an_enter(at, "an_linear", 3, 2, t)) return t[0];
    an_tensor *y = project(t[0], t[1], t[2] != NULL); /* [N,out] */
    if (y->poison) return y;
    if (t[2] != NULL && (t[2]->rank != 1 || t[2]->shape[0] != y->shape[1]))
        return an_refuse(y->g, AN_E_SHAPE, "the bias is %s; [%d] is needed", text_of(t[2], text), y->shape[1]);
    if (t[2] != NULL) y = CAST(ADD(y, CAST(t[2], (an_dtype)y->dtype)), an_policy_dtype(t[0], t[1]));
    int32_t shape[AN_MAX_RANK];
    memcpy(shape, t[0]->shape, sizeof shape);
    shape[t[0]->rank - 1] = y->poison ? 0 : y->shape[1];
    return an_make_reshape(y, t[0]->rank, shape);
}

/* Labels as [N,1,1], after the check that they fit the rows of `of`; each is one of n_labels. */
static an_tensor *label_rows(an_tensor *labels, const an_tensor *of, int32_t n_labels)
{
    char tl[TEXT], to[TEXT];
    bool fits = labels->rank + 1 == of->rank;
    for (int i = 0; fits && i < labels->rank; i++) fits = labels->shape[i] == of->shape[i];
    if (!fits)
        return an_refuse(of->g, AN_E_SHAPE, "labels %s do not fit rows of %s", text_of(labels, tl), text_of(of, to));
    if (labels->dtype != AN_I32)
        return an_refuse(of->g, AN_E_DTYPE, "labels are %s; int32 is needed", an_dtype_name((an_dtype)labels->dtype));
    an_expect_ids(labels, n_labels, true);
    return an_make_reshape(labels, 3, (int32_t[]){(int32_t)labels->numel, 1, 1});
}

an_tensor *an_cross_entropy_at(const char *at, an_tensor *logits, an_tensor *labels)
{
    an_tensor *t[] = {logits, labels};
    if (!an_enter(at, "an_cross_entropy", 2, 2, t) || want_float_rows(t[0])->poison) return an_poison_of(t[0]->g);
    an_tensor *rows = label_rows(t[1], t[0], last_of(t[0]));
    an_tensor *x = an_wide(an_make_reshape(t[0], 3, (int32_t[]){row_count(t[0]), last_of(t[0]), 1}));
    return an_make_like(an_cross_entropy_of(x, rows), t[1]);
}

an_tensor *an_stablemax_cross_entropy_at(const char *at, an_tensor *logits, an_tensor *labels)
{
    an_tensor *t[] = {logits, labels};
    if (!an_enter(at, "an_stablemax_cross_entropy", 2, 2, t) || want_float_rows(t[0])->poison)
        return an_poison_of(t[0]->g);
    an_tensor *rows = label_rows(t[1], t[0], last_of(t[0]));
    an_tensor *x = an_wide(an_make_reshape(t[0], 3, (int32_t[]){row_count(t[0]), last_of(t[0]), 1}));
    return an_make_like(an_stablemax_loss_of(x, rows), t[1]);
}

/* Into how many chunks of rows the N x V logits are cut, so that a chunk has at most as many elements as the policy
 * allows; 1: they are not cut. At least eight: fewer save little memory, and GEMMs of an eighth still run at full speed. */
static int32_t logit_chunks(const an_graph *g, int64_t N, int64_t V)
{
    const int64_t most = g->most_logits > 0 ? g->most_logits : (int64_t)1 << 28;
    int32_t chunks = 1;
    if (N * V > most)
        for (chunks = 8; chunks < MAX_CHUNKS && N * V > most * chunks; chunks *= 2) continue;
    return (int32_t)AN_MIN(chunks, AN_MAX(N, 1));
}

/* Logits in the policy's dtype, sums over them in f32. Large logits are made in chunks of rows, and the gradient of a
 * chunk is computed while the chunk is in memory, so that one chunk is live at a time. */
an_tensor *an_linear_cross_entropy_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *labels)
{
    an_tensor *t[] = {x, w, labels}, *chunk[MAX_CHUNKS];
    if (!an_enter(at, "an_linear_cross_entropy", 3, 3, t)) return t[0];
    if (want_float_rows(t[0])->poison) return t[0];
    an_graph *g = t[0]->g;
    const int32_t N = row_count(t[0]), C = last_of(t[0]), V = t[1]->rank > 0 ? t[1]->shape[0] : 0;
    an_tensor *id = label_rows(t[2], t[0], V), *rows = an_make_reshape(t[0], 2, (int32_t[]){N, C});
    const int32_t wanted = logit_chunks(g, N, V), most = (N + wanted - 1) / wanted;
    const int32_t chunks = N ? (N + most - 1) / most : 1;
    bool fine = true;
    g->deferred = chunks > 1;
    for (int32_t i = 0; i < chunks && fine; i++) {
        const int32_t from = i * most, n = AN_MIN(most, N - from);
        an_tensor *logits = project(an_make_slice(rows, 0, from, n, 1), t[1], false); /* [n,V] */
        if (!logits->poison) logits = an_wide(an_make_reshape(logits, 3, (int32_t[]){n, V, 1}));
        chunk[i] = logits->poison || id->poison ? an_poison_of(g)
                                                : an_cross_entropy_of(logits, an_make_slice(id, 0, from, n, 1));
        fine = !chunk[i]->poison;
    }
    g->deferred = false;
    if (!fine) return an_poison_of(g);
    return an_make_like(chunks > 1 ? an_make_concat(g, chunk, chunks, 0) : chunk[0], t[2]);
}

/* ------------------------------------------------------------------------------------------------ windows */

static int64_t or_one(int x)
{
    return x == 0 ? 1 : x;
}

enum { CONV_ATTRS = 7 };

static void conv_attrs(const an_window *s, int64_t attr[CONV_ATTRS])
{
    const int64_t a[CONV_ATTRS] = {or_one(s->stride_h),   or_one(s->stride_w),   s->pad_h,         s->pad_w,
                                   or_one(s->dilation_h), or_one(s->dilation_w), or_one(s->groups)};
    memcpy(attr, a, sizeof a);
}

/* The convolution that e says of operands in dtype `as`; a bias is added before the sums are rounded to it. */
static an_tensor *convolved(an_emit_args *e, an_tensor *bias, an_dtype as)
{
    char text[TEXT];
    e->dtype = bias != NULL ? sum_dtype(as) : as;
    an_tensor *y = an_emit(e->src[0]->g, e);
    if (y->poison || bias == NULL) return y;
    if (bias->rank != 1 || bias->shape[0] != y->shape[3])
        return an_refuse(y->g, AN_E_SHAPE, "the bias is %s; [%d] is needed", text_of(bias, text), y->shape[3]);
    return CAST(ADD(y, CAST(bias, (an_dtype)y->dtype)), as);
}

an_tensor *an_conv2d_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *bias, an_window s)
{
    an_tensor *t[] = {x, w, bias};
    int64_t attr[CONV_ATTRS];
    if (!an_enter(at, "an_conv2d", 3, 2, t)) return t[0];
    conv_attrs(&s, attr);
    const an_dtype as = an_policy_dtype(t[0], t[1]);
    for (int i = 0; i < 2 && an_dtype_is_float((an_dtype)t[i]->dtype); i++) t[i] = CAST(t[i], as);
    an_emit_args e = {.op = AN_OP_CONV2D, .n_src = 2, .src = t, .n_attr = CONV_ATTRS, .attr = attr, .at = at};
    return convolved(&e, t[2], as);
}

/* The length of a transposed convolution's axis; -1 where none is possible. */
static int64_t spread_length(int64_t length, int64_t taps, int64_t stride, int64_t pad, int64_t dilation, int64_t extra)
{
    if (length < 1 || taps < 1 || stride < 1 || pad < 0 || dilation < 1 || extra < 0 || extra >= stride) return -1;
    const int64_t most = INT32_MAX; /* each product below fits 64 bits */
    if (stride > most || dilation > most || pad > most) return -1;
    const int64_t full = (length - 1) * stride + dilation * (taps - 1) + 1 + extra;
    return full > most || full < 2 * pad ? -1 : full - 2 * pad;
}

an_tensor *an_conv_transpose2d_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *bias, an_window s)
{
    an_tensor *t[] = {x, w, bias};
    int64_t attr[CONV_ATTRS];
    char tx[TEXT], tw[TEXT];
    if (!an_enter(at, "an_conv_transpose2d", 3, 2, t)) return t[0];
    an_graph *g = t[0]->g;
    conv_attrs(&s, attr);
    if (t[0]->rank != 4 || t[1]->rank != 4 || attr[6] < 1 || t[0]->shape[3] != t[1]->shape[0] ||
        t[0]->shape[3] % attr[6] != 0 || t[1]->shape[3] * attr[6] > INT32_MAX)
        return an_refuse(g, AN_E_SHAPE, "x %s and w %s are not [N,H,W,I] and [I,KH,KW,O/groups] with %d groups",
                         text_of(t[0], tx), text_of(t[1], tw), (int)attr[6]);
    const int64_t h = spread_length(t[0]->shape[1], t[1]->shape[1], attr[0], attr[2], attr[4], s.extra_h);
    const int64_t v = spread_length(t[0]->shape[2], t[1]->shape[2], attr[1], attr[3], attr[5], s.extra_w);
    if (h < 0 || v < 0)
        return an_refuse(
            g, AN_E_SHAPE,
            "a kernel %s (stride %d, %d; padding %d, %d; dilation %d, %d; extra %d, %d) does not spread %s",
            text_of(t[1], tw), (int)attr[0], (int)attr[1], (int)attr[2], (int)attr[3], (int)attr[4], (int)attr[5],
            s.extra_h, s.extra_w, text_of(t[0], tx));
    const an_dtype as = an_policy_dtype(t[0], t[1]);
    for (int i = 0; i < 2 && an_dtype_is_float((an_dtype)t[i]->dtype); i++) t[i] = CAST(t[i], as);
    t[1] = an_make_taps_first(t[1], (int32_t)attr[6]);
    if (t[1]->poison) return t[1];
    const int32_t shape[4] = {t[0]->shape[0], (int32_t)h, (int32_t)v, t[1]->shape[4] * (int32_t)attr[6]};
    an_emit_args e = {.op = AN_OP_CONV2D_DX, .n_src = 2, .src = t, .n_attr = CONV_ATTRS, .attr = attr, .at = at};
    e.rank = 4;
    e.shape = shape;
    return convolved(&e, t[2], as);
}

static an_tensor *pool(an_op op, an_tensor *x, an_window s)
{
    if (s.groups > 1) return an_refuse(x->g, AN_E_USAGE, "%d groups; pooling has none", s.groups);
    int64_t attr[8] = {s.kernel_h, s.kernel_w, or_one(s.stride_h),   or_one(s.stride_w),
                       s.pad_h,    s.pad_w,    or_one(s.dilation_h), or_one(s.dilation_w)};
    return an_make_call(op, 1, &x, 8, attr);
}

an_tensor *an_max_pool_at(const char *at, an_tensor *x, an_window s)
{
    return an_enter(at, "an_max_pool", 1, 1, &x) ? pool(AN_OP_POOL_MAX, x, s) : x;
}

an_tensor *an_avg_pool_at(const char *at, an_tensor *x, an_window s)
{
    if (!an_enter(at, "an_avg_pool", 1, 1, &x)) return x;
    an_tensor *sum = pool(AN_OP_POOL_SUM, an_wide(x), s);
    return CAST(DIV(sum, NUM(sum, (double)s.kernel_h * s.kernel_w)), (an_dtype)x->dtype);
}
