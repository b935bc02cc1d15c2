/* shape.c: shape inference: the dtype and shape of an op's result from its operands, and the refusals when they do not fit.
 *
 * Owns:      one rule for each class of ops, and every sentence about shapes and dtypes that an_emit can say.
 * Does not:  broadcast (build.c makes EXPANDs), build anything, or know gradients.
 * Invariant: a node that passed here can be evaluated by every device without another check of its shape.
 */
#include "graph/build.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 8 * 12 + 3 };

/* Elements of a shape; -1: more than any machine holds. The bound leaves room for products with element sizes. */
int64_t an_count(int rank, const int32_t *shape)
{
    double most = 1;
    int64_t n = 1;
    for (int i = 0; i < rank; i++) most *= shape[i];
    if (most > 0x1p48) return -1;
    for (int i = 0; i < rank; i++) n = most == 0 ? 0 : n * shape[i]; /* no partial product is above the whole */
    return n;
}

typedef struct rule_ctx {
    an_graph *g;
    const an_emit_args *e;
    an_dtype *dtype;
    int *rank;
    int32_t *shape;
} rule_ctx;

static an_status refuse(const rule_ctx *r, an_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static an_status refuse(const rule_ctx *r, an_status code, const char *fmt, ...)
{
    char text[512], name[32];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    an_poison(r->g, code, r->e->at, "%s: %s", an_doing(r->g, r->e->op, r->e->at, name), text);
    return code;
}

/* The shape as text in `out`; returns out. */
static const char *shape_of(const an_tensor *t, char *out)
{
    return an_shape_text(t->rank, t->shape, out, TEXT);
}

static void copy_shape(const rule_ctx *r, int rank, const int32_t *shape)
{
    *r->rank = rank;
    if (rank > 0) memcpy(r->shape, shape, (size_t)rank * sizeof *shape);
}

static an_status want_attrs(const rule_ctx *r, int n)
{
    if (r->e->n_attr == n) return AN_OK;
    return refuse(r, AN_E_INTERNAL, "%d attributes where %d are needed", r->e->n_attr, n);
}

static an_status want_dtype(const rule_ctx *r, int i, an_dtype t)
{
    if (r->e->src[i]->dtype == t) return AN_OK;
    return refuse(r, AN_E_DTYPE, "operand %d is %s; %s is needed", i + 1, an_dtype_name(r->e->src[i]->dtype),
                  an_dtype_name(t));
}

static an_status want_float(const rule_ctx *r, int i)
{
    if (an_dtype_is_float(r->e->src[i]->dtype)) return AN_OK;
    return refuse(r, AN_E_DTYPE, "takes floats, not %s: cast first", an_dtype_name(r->e->src[i]->dtype));
}

static an_status want_same_dtype(const rule_ctx *r, int i, int j)
{
    an_dtype a = r->e->src[i]->dtype, b = r->e->src[j]->dtype;
    if (a == b) return AN_OK;
    return refuse(r, AN_E_DTYPE, "dtypes %s and %s differ: cast one of them", an_dtype_name(a), an_dtype_name(b));
}

static an_status want_same_shape(const rule_ctx *r, int i, int j)
{
    const an_tensor *a = r->e->src[i], *b = r->e->src[j];
    char ta[TEXT], tb[TEXT];
    if (an_same_shape(a, b)) return AN_OK;
    return refuse(r, AN_E_SHAPE, "shapes %s and %s differ", shape_of(a, ta), shape_of(b, tb));
}

static an_status want_rank(const rule_ctx *r, int i, int rank)
{
    char text[TEXT];
    if (r->e->src[i]->rank == rank) return AN_OK;
    return refuse(r, AN_E_SHAPE, "operand %d is %s; rank %d is needed", i + 1, shape_of(r->e->src[i], text), rank);
}

/* ------------------------------------------------------------------------------------------------ elementwise */

static bool in_domain(an_domain d, an_dtype t)
{
    switch (d) {
    case AN_DOM_FLOAT: return an_dtype_is_float(t);
    case AN_DOM_NUMBER: return t != AN_BOOL;
    case AN_DOM_INT: return an_dtype_is_int(t);
    case AN_DOM_BOOL: return t == AN_BOOL;
    case AN_DOM_BITS: return !an_dtype_is_float(t);
    case AN_DOM_ANY: return true;
    }
    return false;
}

static const char *domain_text(an_domain d)
{
    static const char *const text[] = {"floats", "numbers", "integers", "bools", "integers and bools", "any dtype"};
    return text[d];
}

static an_status rule_elem(const rule_ctx *r)
{
    const an_emit_args *e = r->e;
    const an_op_info *info = &an_ops[e->op];
    int value = e->op == AN_OP_WHERE; /* the operand whose dtype counts */
    const an_tensor *v = e->src[value];
    if (value) AN_TRY(want_dtype(r, 0, AN_BOOL));
    if (!in_domain(info->domain, v->dtype))
        return refuse(r, AN_E_DTYPE, "takes %s, not %s", domain_text(info->domain), an_dtype_name(v->dtype));
    for (int i = 0; i < e->n_src; i++) {
        if (i > value) AN_TRY(want_same_dtype(r, value, i));
        if (i != value) AN_TRY(want_same_shape(r, value, i));
    }
    *r->dtype = info->result == AN_RES_BOOL ? AN_BOOL : v->dtype;
    copy_shape(r, v->rank, v->shape);
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------ leaves */

static an_status rule_leaf(const rule_ctx *r)
{
    const an_emit_args *e = r->e;
    copy_shape(r, e->op == AN_OP_CONST ? 0 : e->rank, e->shape);
    *r->dtype = e->op == AN_OP_IOTA ? AN_I32 : e->op == AN_OP_RAND ? AN_F32 : e->dtype;
    if (e->op == AN_OP_IOTA) {
        AN_TRY(want_attrs(r, 1));
        if (e->attr[0] < 0 || e->attr[0] >= e->rank)
            return refuse(r, AN_E_SHAPE, "axis %d of a shape of rank %d", (int)e->attr[0], e->rank);
    }
    return e->op == AN_OP_CONST ? AN_OK : e->op == AN_OP_IOTA ? AN_OK : want_attrs(r, 2);
}

/* -------------------------------------------------------------------------------- view ops, padding, concatenation */

static an_status rule_reshape(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0];
    int64_t n = an_count(r->e->rank, r->e->shape);
    char ta[TEXT], tb[TEXT];
    if (n != a->numel)
        return refuse(r, AN_E_SHAPE, "%s has %lld elements, %s has %lld", shape_of(a, ta), (long long)a->numel,
                      an_shape_text(r->e->rank, r->e->shape, tb, TEXT), (long long)n);
    copy_shape(r, r->e->rank, r->e->shape);
    return AN_OK;
}

static an_status rule_permute(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0];
    uint32_t seen = 0;
    AN_TRY(want_attrs(r, a->rank));
    for (int i = 0; i < a->rank; i++) {
        int64_t p = r->e->attr[i];
        if (p < 0 || p >= a->rank || (seen >> p & 1))
            return refuse(r, AN_E_SHAPE, "the axes given are no permutation of %d axes", a->rank);
        seen |= 1u << p;
        r->shape[i] = a->shape[p];
    }
    *r->rank = a->rank;
    return AN_OK;
}

static an_status rule_expand(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0];
    char ta[TEXT], tb[TEXT];
    bool fits = a->rank == r->e->rank;
    for (int i = 0; fits && i < a->rank; i++) fits = a->shape[i] == r->e->shape[i] || a->shape[i] == 1;
    if (!fits)
        return refuse(r, AN_E_SHAPE, "%s does not expand to %s", shape_of(a, ta),
                      an_shape_text(r->e->rank, r->e->shape, tb, TEXT));
    copy_shape(r, r->e->rank, r->e->shape);
    return AN_OK;
}

static an_status rule_slice(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0];
    AN_TRY(want_attrs(r, 2 * a->rank));
    if (r->e->rank != a->rank) return refuse(r, AN_E_INTERNAL, "a slice of rank %d of rank %d", r->e->rank, a->rank);
    for (int i = 0; i < a->rank; i++) {
        int64_t start = r->e->attr[2 * i], step = r->e->attr[2 * i + 1], n = r->e->shape[i];
        if (step < 1 || start < 0 || n < 0 || (n > 0 && start + (n - 1) * step >= a->shape[i]))
            return refuse(r, AN_E_SHAPE, "axis %d: %lld elements from %lld by %lld are not inside length %d", i,
                          (long long)n, (long long)start, (long long)step, a->shape[i]);
    }
    copy_shape(r, r->e->rank, r->e->shape);
    return AN_OK;
}

static an_status rule_pad(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0];
    AN_TRY(want_attrs(r, 2 * a->rank));
    for (int i = 0; i < a->rank; i++) {
        int64_t before = r->e->attr[2 * i], after = r->e->attr[2 * i + 1];
        if (before < 0 || after < 0 || a->shape[i] + before + after > INT32_MAX)
            return refuse(r, AN_E_SHAPE, "axis %d: %lld before and %lld after length %d", i, (long long)before,
                          (long long)after, a->shape[i]);
        r->shape[i] = (int32_t)(a->shape[i] + before + after);
    }
    *r->rank = a->rank;
    return AN_OK;
}

static an_status rule_concat(const rule_ctx *r)
{
    const an_emit_args *e = r->e;
    AN_TRY(want_attrs(r, 1));
    if (e->n_src < 1) return refuse(r, AN_E_USAGE, "no parts");
    int axis = (int)e->attr[0], rank = e->src[0]->rank;
    char ta[TEXT], tb[TEXT];
    if (axis < 0 || axis >= rank) return refuse(r, AN_E_SHAPE, "axis %d of rank %d", axis, rank);
    copy_shape(r, rank, e->src[0]->shape);
    for (int i = 1; i < e->n_src; i++) {
        const an_tensor *p = e->src[i];
        bool fits = p->rank == rank;
        for (int k = 0; fits && k < rank; k++) fits = k == axis || p->shape[k] == e->src[0]->shape[k];
        if (!fits)
            return refuse(r, AN_E_SHAPE, "parts %s and %s do not join along axis %d", shape_of(e->src[0], ta),
                          shape_of(p, tb), axis);
        AN_TRY(want_same_dtype(r, 0, i));
        if ((int64_t)r->shape[axis] + p->shape[axis] > INT32_MAX)
            return refuse(r, AN_E_SHAPE, "axis %d gets longer than %d", axis, INT32_MAX);
        r->shape[axis] += p->shape[axis];
    }
    return AN_OK;
}

static an_status rule_move(const rule_ctx *r)
{
    *r->dtype = r->e->src[0]->dtype;
    switch (r->e->op) {
    case AN_OP_RESHAPE: return rule_reshape(r);
    case AN_OP_PERMUTE: return rule_permute(r);
    case AN_OP_EXPAND: return rule_expand(r);
    case AN_OP_SLICE: return rule_slice(r);
    case AN_OP_PAD: return rule_pad(r);
    case AN_OP_CONCAT: return rule_concat(r);
    default: copy_shape(r, r->e->src[0]->rank, r->e->src[0]->shape); return AN_OK; /* FLIP, DETACH */
    }
}

/* -------------------------------------------------------------------------------------- reductions, matmul, rows */

static an_status rule_reduce(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0];
    char text[TEXT];
    AN_TRY(want_rank(r, 0, 3));
    if (a->dtype == AN_BOOL) return refuse(r, AN_E_DTYPE, "takes numbers, not bool: cast first");
    if (r->e->op != AN_OP_SUM && a->shape[1] == 0)
        return refuse(r, AN_E_SHAPE, "no elements to choose from in %s", shape_of(a, text));
    *r->dtype = r->e->op == AN_OP_ARGMAX ? AN_I32 : a->dtype;
    copy_shape(r, 3, a->shape);
    r->shape[1] = 1;
    return AN_OK;
}

static an_status rule_matmul(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0], *b = r->e->src[1];
    char ta[TEXT], tb[TEXT];
    AN_TRY(want_float(r, 0));
    AN_TRY(want_same_dtype(r, 0, 1));
    bool fits = a->rank >= 2 && a->rank == b->rank;
    for (int i = 0; fits && i < a->rank - 2; i++) fits = a->shape[i] == b->shape[i];
    if (!fits || a->shape[a->rank - 1] != b->shape[b->rank - 2])
        return refuse(r, AN_E_SHAPE, "shapes %s and %s do not multiply", shape_of(a, ta), shape_of(b, tb));
    if (r->e->dtype != a->dtype && (r->e->dtype != AN_F32 || a->dtype == AN_F64))
        return refuse(r, AN_E_DTYPE, "a product of %s as %s", an_dtype_name(a->dtype), an_dtype_name(r->e->dtype));
    *r->dtype = r->e->dtype;
    copy_shape(r, a->rank, a->shape);
    r->shape[a->rank - 1] = b->shape[b->rank - 1];
    return AN_OK;
}

static an_status rule_gather(const rule_ctx *r)
{
    const an_tensor *table = r->e->src[0], *index = r->e->src[1];
    char text[TEXT];
    AN_TRY(want_dtype(r, 1, AN_I32));
    if (table->rank < 1) return refuse(r, AN_E_SHAPE, "the table is a scalar");
    if (table->shape[0] < 1 && index->numel > 0)
        return refuse(r, AN_E_SHAPE, "the table %s has no rows", shape_of(table, text));
    int rank = index->rank + table->rank - 1;
    if (rank > AN_MAX_RANK) return refuse(r, AN_E_SHAPE, "the result has %d axes, more than %d", rank, AN_MAX_RANK);
    *r->dtype = table->dtype;
    copy_shape(r, index->rank, index->shape);
    if (table->rank > 1) memcpy(r->shape + index->rank, table->shape + 1, (size_t)(table->rank - 1) * sizeof(int32_t));
    *r->rank = rank;
    return AN_OK;
}

static an_status rule_scatter(const rule_ctx *r)
{
    const an_tensor *index = r->e->src[0], *src = r->e->src[1];
    char ta[TEXT], tb[TEXT];
    AN_TRY(want_dtype(r, 0, AN_I32));
    AN_TRY(want_float(r, 1));
    bool fits = src->rank >= index->rank && r->e->rank == src->rank - index->rank + 1;
    for (int i = 0; fits && i < index->rank; i++) fits = src->shape[i] == index->shape[i];
    for (int i = index->rank; fits && i < src->rank; i++) fits = src->shape[i] == r->e->shape[i - index->rank + 1];
    if (!fits)
        return refuse(r, AN_E_SHAPE, "index %s does not lead rows of %s", shape_of(index, ta), shape_of(src, tb));
    *r->dtype = src->dtype == AN_F64 ? AN_F64 : AN_F32; /* rows are added in f32 and stay so */
    copy_shape(r, r->e->rank, r->e->shape);
    if (r->e->n_src > 2) { /* what they are added to */
        const an_tensor *onto = r->e->src[2];
        bool same = onto->dtype == *r->dtype && onto->rank == r->e->rank;
        for (int i = 0; same && i < onto->rank; i++) same = onto->shape[i] == r->e->shape[i];
        if (!same)
            return refuse(r, AN_E_SHAPE, "rows cannot be added to a tensor of another shape or dtype, %s",
                          shape_of(onto, ta));
    }
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------ attention, windows */

int an_attention_mask(const an_graph *g, const an_tensor *n)
{
    const int least = an_ops[n->op].arity;
    return n->n_src > least && g->node[n->src[n->n_src - 1]]->dtype != AN_I32 ? n->n_src - 1 : -1;
}

int64_t an_attention_window(const an_tensor *n)
{
    return n->n_attr > 2 ? n->attr[2] : 0;
}

/* The sources behind q, k and v, or those of the gradient: n_keys (forward), mask. */
static an_status want_keys_and_mask(const rule_ctx *r)
{
    const bool grad = r->e->op == AN_OP_ATTENTION_GRAD;
    const an_tensor *q = r->e->src[0], *k = r->e->src[1];
    char text[TEXT];
    int i = an_ops[r->e->op].arity;
    if (!grad && i < r->e->n_src && r->e->src[i]->dtype == AN_I32) {
        if (r->e->src[i]->numel != 1)
            return refuse(r, AN_E_DTYPE, "n_keys is one int32, not %s", shape_of(r->e->src[i], text));
        i++;
    }
    if (i == r->e->n_src) return AN_OK;
    const an_tensor *m = r->e->src[i++];
    const bool fits = m->rank == 4 && m->shape[0] == q->shape[0] && m->shape[1] == q->shape[1] &&
                      m->shape[2] == q->shape[2] && m->shape[3] == k->shape[2];
    if (m->dtype != (q->dtype == AN_F64 ? AN_F64 : AN_F32) || !fits || i != r->e->n_src)
        return refuse(r, AN_E_DTYPE, "behind k and v come n_keys, one int32, and a float32 mask [B,H,T,S], not %s %s",
                      an_dtype_name((an_dtype)m->dtype), shape_of(m, text));
    return AN_OK;
}

bool an_heads_divide(const an_tensor *q, const an_tensor *k)
{
    return q->shape[1] == k->shape[1] || (q->shape[1] > 0 && k->shape[1] > 0 && q->shape[1] % k->shape[1] == 0);
}

static an_status rule_attention(const rule_ctx *r)
{
    const an_tensor *q = r->e->src[0], *k = r->e->src[1], *v = r->e->src[2]; /* [B,H,T,D] [B,G,S,D] [B,G,S,D] */
    char ta[TEXT], tb[TEXT], tc[TEXT];
    AN_TRY(want_attrs(r, r->e->n_attr == 3 ? 3 : 2));
    AN_TRY(want_float(r, 0));
    AN_TRY(want_same_dtype(r, 0, 1));
    AN_TRY(want_same_dtype(r, 0, 2));
    bool fits = q->rank == 4 && k->rank == 4 && an_same_shape(k, v) && q->shape[0] == k->shape[0] &&
                an_heads_divide(q, k) && q->shape[3] == k->shape[3];
    if (!fits)
        return refuse(r, AN_E_SHAPE,
                      "q %s, k %s and v %s are not [B,H,T,D], [B,G,S,D] and [B,G,S,D], where G divides H",
                      shape_of(q, ta), shape_of(k, tb), shape_of(v, tc));
    AN_TRY(want_keys_and_mask(r));
    *r->dtype = q->dtype;
    copy_shape(r, 4, q->shape);
    return AN_OK;
}

/* Outputs along one axis: (length + 2 pad - extent of the window) / stride + 1. The arguments are ints (an_window) or
 * lengths, so that nothing overflows 64 bits. -1 where the window does not fit, or an index of the padded axis is longer
 * than 31 bits, which is what the kernels' index arithmetic has. */
static int64_t window_length(int64_t length, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
{
    int64_t padded = length + 2 * pad, extent = dilation * (kernel - 1) + 1;
    if (kernel < 1 || padded > INT32_MAX || extent > padded || stride > INT32_MAX) return -1;
    return (padded - extent) / stride + 1;
}

static an_status want_window(const rule_ctx *r, const int64_t *stride, const int64_t *pad, const int64_t *dilation)
{
    if (stride[0] < 1 || stride[1] < 1)
        return refuse(r, AN_E_USAGE, "a stride of %lld x %lld; strides begin at 1", (long long)stride[0],
                      (long long)stride[1]);
    if (pad[0] < 0 || pad[1] < 0)
        return refuse(r, AN_E_USAGE, "a padding of %lld x %lld; paddings begin at 0", (long long)pad[0],
                      (long long)pad[1]);
    if (dilation[0] < 1 || dilation[1] < 1)
        return refuse(r, AN_E_USAGE, "a dilation of %lld x %lld; dilations begin at 1", (long long)dilation[0],
                      (long long)dilation[1]);
    return AN_OK;
}

static an_status rule_conv(const rule_ctx *r)
{
    const an_tensor *x = r->e->src[0], *w = r->e->src[1]; /* [N,H,W,C] [O,KH,KW,C/groups] */
    const int64_t *s = r->e->attr;                        /* stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups */
    char ta[TEXT], tb[TEXT];
    AN_TRY(want_attrs(r, 7));
    AN_TRY(want_float(r, 0));
    AN_TRY(want_same_dtype(r, 0, 1));
    *r->dtype = x->dtype;
    if (r->e->op == AN_OP_CONV2D_DW ||
        r->e->op == AN_OP_CONV2D_DW_IMAGES) { /* the forward node was checked; the weight's shape is given */
        copy_shape(r, 4, r->e->shape);
        if (r->e->op == AN_OP_CONV2D_DW_IMAGES && x->dtype != AN_F64) *r->dtype = AN_F32;
        return AN_OK;
    }
    if (r->e->dtype != x->dtype && (r->e->dtype != AN_F32 || x->dtype == AN_F64))
        return refuse(r, AN_E_DTYPE, "a convolution of %s as %s", an_dtype_name(x->dtype), an_dtype_name(r->e->dtype));
    *r->dtype = r->e->dtype;
    if (r->e->op == AN_OP_CONV2D_DX) { /* its operands were checked, and its shape is that of the convolution's */
        copy_shape(r, 4, r->e->shape);
        return AN_OK;
    }
    if (x->rank != 4 || w->rank != 4 || s[6] < 1 || x->shape[3] != w->shape[3] * s[6] || w->shape[0] % s[6] != 0)
        return refuse(r, AN_E_SHAPE, "x %s and w %s are not [N,H,W,C] and [O,KH,KW,C/groups] with %d groups",
                      shape_of(x, ta), shape_of(w, tb), (int)s[6]);
    AN_TRY(want_window(r, s, s + 2, s + 4));
    int64_t h = window_length(x->shape[1], w->shape[1], s[0], s[2], s[4]);
    int64_t v = window_length(x->shape[2], w->shape[2], s[1], s[3], s[5]);
    if (h < 0 || v < 0)
        return refuse(r, AN_E_SHAPE, "a kernel %s (padding %lld, %lld; dilation %lld, %lld) does not fit into %s",
                      shape_of(w, tb), (long long)s[2], (long long)s[3], (long long)s[4], (long long)s[5],
                      shape_of(x, ta));
    copy_shape(r, 4, (int32_t[]){x->shape[0], (int32_t)h, (int32_t)v, w->shape[0]});
    return AN_OK;
}

static an_status rule_pool(const rule_ctx *r)
{
    const an_tensor *x = r->e->src[0];
    const int64_t *s = r->e->attr; /* kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w */
    char text[TEXT];
    AN_TRY(want_attrs(r, 8));
    AN_TRY(want_float(r, 0));
    *r->dtype = x->dtype;
    if (r->e->op == AN_OP_POOL_MAX_GRAD) copy_shape(r, 4, r->e->src[1]->shape);
    if (r->e->op == AN_OP_POOL_SUM_GRAD) copy_shape(r, 4, r->e->shape);
    if (r->e->op == AN_OP_POOL_MAX_GRAD || r->e->op == AN_OP_POOL_SUM_GRAD) return AN_OK;
    AN_TRY(want_rank(r, 0, 4));
    AN_TRY(want_window(r, s + 2, s + 4, s + 6));
    int64_t h = window_length(x->shape[1], s[0], s[2], s[4], s[6]);
    int64_t w = window_length(x->shape[2], s[1], s[3], s[5], s[7]);
    /* The first window must not end in the padding: without dilation every window then holds an element. */
    if (h < 0 || w < 0 || s[4] > s[6] * (s[0] - 1) || s[5] > s[7] * (s[1] - 1))
        return refuse(r, AN_E_SHAPE,
                      "a window of %lld x %lld (padding %lld, %lld; dilation %lld, %lld) does not fit into %s",
                      (long long)s[0], (long long)s[1], (long long)s[4], (long long)s[5], (long long)s[6],
                      (long long)s[7], shape_of(x, text));
    copy_shape(r, 4, (int32_t[]){x->shape[0], (int32_t)h, (int32_t)w, x->shape[3]});
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------ calls */

static an_status want_matrix(const rule_ctx *r, int i, bool square)
{
    const an_tensor *a = r->e->src[i];
    char text[TEXT];
    AN_TRY(want_float(r, i));
    bool fits = a->rank >= 2;
    int m = fits ? a->shape[a->rank - 2] : 0, n = fits ? a->shape[a->rank - 1] : 0;
    if (fits && (square ? m == n : m >= n)) return AN_OK;
    return refuse(r, AN_E_SHAPE, "%s is not %s", shape_of(a, text),
                  square ? "a batch of square matrices"
                         : "a batch of matrices with at least as many rows as columns: transpose a wide one");
}

/* logits [...,V] and number [2]: [...]. Weights of up to 2^40 are summed in 63 bits. */
static an_status rule_draw(const rule_ctx *r)
{
    const an_tensor *logits = r->e->src[0], *number = r->e->src[1];
    char ta[TEXT], tb[TEXT];
    const int64_t V = logits->rank ? logits->shape[logits->rank - 1] : 0;
    AN_TRY(want_attrs(r, 4));
    AN_TRY(want_dtype(r, 0, AN_F32));
    AN_TRY(want_dtype(r, 1, AN_I32));
    if (V < 1 || V > 1 << 22 || number->rank != 1 || number->shape[0] != 2)
        return refuse(r, AN_E_SHAPE, "logits %s and number %s are not [...,V] with 1 to 4194304 tokens, and [2]",
                      shape_of(logits, ta), shape_of(number, tb));
    *r->dtype = AN_I32;
    *r->rank = logits->rank - 1;
    return AN_OK;
}

static an_status rule_put_rows(const rule_ctx *r)
{
    const an_tensor *table = r->e->src[0], *index = r->e->src[1], *rows = r->e->src[2];
    char ta[TEXT], tb[TEXT], tc[TEXT];
    AN_TRY(want_dtype(r, 1, AN_I32));
    AN_TRY(want_same_dtype(r, 0, 2));
    bool fits = table->rank >= 1 && index->rank == 1 && rows->rank == table->rank && rows->shape[0] == index->shape[0];
    for (int i = 1; fits && i < rows->rank; i++) fits = rows->shape[i] == table->shape[i];
    if (fits) return AN_OK;
    return refuse(r, AN_E_SHAPE, "ids %s and rows %s are not [n] and [n,...] for a table %s", shape_of(index, ta),
                  shape_of(rows, tb), shape_of(table, tc));
}

/* a [...,n,n] and b [...,n,m]: as b */
static an_status rule_solve(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0], *b = r->e->src[1];
    char ta[TEXT], tb[TEXT];
    AN_TRY(want_matrix(r, 0, true));
    AN_TRY(want_same_dtype(r, 0, 1));
    bool fits = b->rank == a->rank && b->shape[b->rank - 2] == a->shape[a->rank - 1];
    for (int i = 0; fits && i < a->rank - 2; i++) fits = a->shape[i] == b->shape[i];
    if (!fits)
        return refuse(r, AN_E_SHAPE, "a %s and b %s are not [...,n,n] and [...,n,m]", shape_of(a, ta), shape_of(b, tb));
    copy_shape(r, b->rank, b->shape);
    return AN_OK;
}

/* x [S,K], w [E,K,N] to [S,N], or a [S,M], b [S,N] to [E,M,N]; ends [E]. */
static an_status rule_grouped(const rule_ctx *r)
{
    const an_tensor *x = r->e->src[0], *w = r->e->src[1], *ends = r->e->src[2];
    const bool outer = r->e->op == AN_OP_GROUPED_OUTER;
    char ta[TEXT], tb[TEXT], tc[TEXT];
    AN_TRY(want_float(r, 0));
    AN_TRY(want_same_dtype(r, 0, 1));
    AN_TRY(want_dtype(r, 2, AN_I32));
    const bool ranks = x->rank == 2 && w->rank == (outer ? 2 : 3) && ends->rank == 1;
    const bool fits =
        ranks && (outer ? x->shape[0] == w->shape[0] : x->shape[1] == w->shape[1] && ends->shape[0] == w->shape[0]);
    if (!fits)
        return refuse(r, AN_E_SHAPE, "%s, %s and ends %s are not %s", shape_of(x, ta), shape_of(w, tb),
                      shape_of(ends, tc), outer ? "[S,M], [S,N] and [E]" : "[S,K], [E,K,N] and [E]");
    if (outer) {
        const int32_t shape[3] = {ends->shape[0], x->shape[1], w->shape[1]};
        copy_shape(r, 3, shape);
    } else {
        const int32_t shape[2] = {x->shape[0], w->shape[2]};
        copy_shape(r, 2, shape);
    }
    return AN_OK;
}

/* The dtype and the shape are the first operand's, unless a case below says otherwise. */
static an_status rule_call(const rule_ctx *r)
{
    const an_emit_args *e = r->e;
    const an_tensor *a = e->src[0];
    char ta[TEXT];
    *r->dtype = a->dtype;
    copy_shape(r, a->rank, a->shape);
    switch (e->op) {
    case AN_OP_CUMSUM:
    case AN_OP_SORT:
    case AN_OP_TOPK:
        AN_TRY(want_attrs(r, 1));
        if (a->dtype == AN_BOOL) return refuse(r, AN_E_DTYPE, "takes numbers, not bool: cast first");
        if (a->rank < 1) return refuse(r, AN_E_SHAPE, "a scalar has no last axis");
        if (e->op != AN_OP_TOPK) return AN_OK;
        if (e->attr[0] < 1 || e->attr[0] > a->shape[a->rank - 1])
            return refuse(r, AN_E_SHAPE, "the %lld largest of %s", (long long)e->attr[0], shape_of(a, ta));
        r->shape[a->rank - 1] = (int32_t)e->attr[0];
        return AN_OK;
    case AN_OP_DRAW: return rule_draw(r);
    case AN_OP_PUT_ROWS: return rule_put_rows(r);
    case AN_OP_GROUPED_MATMUL:
    case AN_OP_GROUPED_OUTER: return rule_grouped(r);
    case AN_OP_CHOLESKY: return want_matrix(r, 0, true);
    case AN_OP_EIGH:
        AN_TRY(want_matrix(r, 0, true));
        *r->rank = a->rank - 1;
        return AN_OK;
    case AN_OP_QR:
    case AN_OP_SVD: return want_matrix(r, 0, false);
    case AN_OP_SOLVE: return rule_solve(r);
    case AN_OP_TRISOLVE: AN_TRY(want_attrs(r, 2)); return rule_solve(r);
    default: return AN_OK;
    }
}

/* Dtype and shape of output k of n; output 0 is the node itself. */
void an_output_shape(const an_graph *g, const an_tensor *n, int k, an_dtype *dtype, int *rank, int32_t *shape)
{
    const an_tensor *a = n->n_src > 0 ? g->node[n->src[0]] : n;
    const an_tensor *like = n;
    *dtype = n->dtype;
    if (n->op == AN_OP_ATTENTION_GRAD && k > 0) like = g->node[n->src[k]];
    if (n->op == AN_OP_QR && k == 1) like = a;
    if ((n->op == AN_OP_EIGH && k == 1) || (n->op == AN_OP_SVD && k > 0)) like = a;
    *rank = like->rank;
    memcpy(shape, like->shape, sizeof like->shape);
    if (k == 0) return;
    if (n->op == AN_OP_ATTENTION) { /* lse [B,H,T], or of two numbers a row [B,H,2,T] */
        *rank = 3;
        *dtype = AN_F32;
        if (an_attention_mask(g, n) >= 0) {
            *rank = 4;
            shape[3] = shape[2];
            shape[2] = 2;
        }
        if (n->dtype == AN_F64) *dtype = AN_F64;
    }
    if (n->op == AN_OP_SORT || n->op == AN_OP_TOPK) *dtype = AN_I32;
    if (n->op == AN_OP_QR || (n->op == AN_OP_SVD && k == 2)) shape[*rank - 2] = shape[*rank - 1];
    if (n->op == AN_OP_SVD && k == 1) {
        shape[*rank - 2] = shape[*rank - 1];
        *rank -= 1;
    }
}

static an_status rule_effect(const rule_ctx *r)
{
    const an_emit_args *e = r->e;
    *r->dtype = e->dtype;
    copy_shape(r, e->rank, e->shape);
    if (e->op == AN_OP_PACK) {
        AN_TRY(want_attrs(r, 1));
        for (int i = 1; i < e->n_src; i++) AN_TRY(want_same_dtype(r, 0, i));
        return AN_OK;
    }
    const an_tensor *state = e->src[0];
    if (state->op != AN_OP_LEAF || state->attr[0] == AN_LEAF_INPUT || state->attr[0] == AN_LEAF_SCALAR)
        return refuse(r, AN_E_USAGE, "only a state can be assigned to");
    AN_TRY(want_same_dtype(r, 0, 1));
    AN_TRY(want_same_shape(r, 0, 1));
    *r->dtype = state->dtype;
    copy_shape(r, state->rank, state->shape);
    return AN_OK;
}

static an_status rule_pick(const rule_ctx *r)
{
    const an_tensor *a = r->e->src[0];
    AN_TRY(want_attrs(r, 1));
    int64_t k = r->e->attr[0];
    if (k < 0 || k >= an_ops[a->op].outputs)
        return refuse(r, AN_E_INTERNAL, "output %d of %s", (int)k, an_ops[a->op].name);
    an_output_shape(r->g, a, (int)k, r->dtype, r->rank, r->shape);
    return AN_OK;
}

static an_status rule_collective(const rule_ctx *r)
{
    const an_emit_args *e = r->e;
    const an_tensor *x = e->src[0];
    int32_t shape[AN_MAX_RANK];
    *r->dtype = x->dtype;
    copy_shape(r, x->rank, x->shape);
    if (e->op != AN_OP_ALLGATHER && !an_dtype_is_float(x->dtype))
        return refuse(r, AN_E_DTYPE,
                      "%s: ranks add floating-point numbers; cast it, or gather it and sum the first axis",
                      an_dtype_name(x->dtype));
    if (e->op == AN_OP_ALLREDUCE) return AN_OK;
    AN_TRY(want_attrs(r, e->op == AN_OP_REDUCESCATTER && e->n_attr == 2 ? 2 : 1));
    if (e->op == AN_OP_REDUCESCATTER) {
        if (x->rank != 1 || e->attr[0] < 1 || x->numel % e->attr[0] != 0)
            return refuse(r, AN_E_SHAPE, "%lld elements in equal parts for %lld ranks", (long long)x->numel,
                          (long long)e->attr[0]);
        shape[0] = (int32_t)(x->numel / e->attr[0]);
        copy_shape(r, 1, shape);
        return AN_OK;
    }
    if (x->rank == AN_MAX_RANK || e->attr[0] < 1 || e->attr[0] * AN_MAX(x->numel, 1) > INT32_MAX)
        return refuse(r, AN_E_SHAPE, "the values of %lld ranks together are no tensor", (long long)e->attr[0]);
    shape[0] = (int32_t)e->attr[0];
    memcpy(shape + 1, x->shape, (size_t)x->rank * sizeof *shape);
    copy_shape(r, x->rank + 1, shape);
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------ shape inference */

static an_status by_class(const rule_ctx *r)
{
    const an_emit_args *e = r->e;
    switch (an_ops[e->op].cls) {
    case AN_CLS_ELEM: return rule_elem(r);
    case AN_CLS_LEAF: return rule_leaf(r);
    case AN_CLS_MOVE: return rule_move(r);
    case AN_CLS_REDUCE: return rule_reduce(r);
    case AN_CLS_MATMUL: return rule_matmul(r);
    case AN_CLS_INDEX: return e->op == AN_OP_GATHER ? rule_gather(r) : rule_scatter(r);
    case AN_CLS_ATTENTION: return rule_attention(r);
    case AN_CLS_WINDOW: return e->op <= AN_OP_CONV2D_DW_IMAGES ? rule_conv(r) : rule_pool(r);
    case AN_CLS_CALL: return rule_call(r);
    case AN_CLS_PICK: return rule_pick(r);
    case AN_CLS_EFFECT: return rule_effect(r);
    case AN_CLS_CAST: *r->dtype = e->dtype; break;
    case AN_CLS_COLLECTIVE: return rule_collective(r);
    }
    copy_shape(r, e->src[0]->rank, e->src[0]->shape);
    return AN_OK;
}

/* ATTENTION takes n_keys and a mask as optional sources, its gradient a mask, SCATTER_ADD what it adds to as a third. */
static bool right_arity(const an_emit_args *e)
{
    int arity = an_ops[e->op].arity;
    return arity < 0
               ? e->n_src <= UINT8_MAX
               : e->n_src == arity || (e->op == AN_OP_ATTENTION && e->n_src <= 5 && e->n_src > arity) ||
                     (e->op == AN_OP_ATTENTION_GRAD && e->n_src == 7) || (e->op == AN_OP_SCATTER_ADD && e->n_src == 3);
}

an_status an_infer(an_graph *g, const an_emit_args *e, an_dtype *dtype, int *rank, int32_t *shape)
{
    rule_ctx r = {g, e, dtype, rank, shape};
    if (!right_arity(e))
        return refuse(&r, AN_E_INTERNAL, "%d sources where %d are needed", e->n_src, an_ops[e->op].arity);
    if (e->rank < 0 || e->rank > AN_MAX_RANK)
        return refuse(&r, AN_E_SHAPE, "%d axes; at most %d are possible", e->rank, AN_MAX_RANK);
    for (int i = 0; i < e->rank; i++)
        if (e->shape[i] < 0) /* of an_merge: the joined axes are too long */
            return refuse(&r, AN_E_SHAPE,
                          "it works on axes joined to one, and they have more than %d elements together: split "
                          "the tensor",
                          INT32_MAX);
    return by_class(&r);
}
