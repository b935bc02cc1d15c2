/* build.c: the public functions of anneal.h's section "operations" and the leaves that are formulas: operands checked
 * and resolved, axes and sizes brought to the graph's terms, then one node constructor (build.h) or one formula
 * (compose.h).
 *
 * Owns:      negative axes, -1 in shapes, int64 to int32, and the sentences about them.
 * Does not:  own layers with weights (compose_nn.c), parameters, states and inputs (src/runtime/variables.c).
 */
#include "graph/compose.h"

#include "base/rng.h"

#include <anneal_decode.h>
#include <math.h>
#include <string.h>

enum { TEXT = 8 * 12 + 3 };

static const char *text_of(const an_tensor *t, char *out)
{
    return an_shape_text(t->rank, t->shape, out, TEXT);
}

/* ------------------------------------------------------------------------------------------------ arguments */

int an_axis_of(an_tensor *t, int axis)
{
    char text[TEXT];
    int i = axis < 0 ? axis + t->rank : axis;
    if (i >= 0 && i < t->rank) return i;
    an_refuse(t->g, AN_E_SHAPE, "axis %d of %s", axis, text_of(t, text));
    return -1;
}

/* A set of axes as a mask: bits 0-7 count from the front, 8-15 from the end (AN_AXIS(-1) is bit 15). */
static bool mask_of(an_tensor *t, an_axes axes, uint32_t *out)
{
    *out = 0;
    if (axes == AN_ALL) {
        *out = (1u << t->rank) - 1;
        return true;
    }
    if (axes == 0 || axes >> 16) {
        an_refuse(t->g, AN_E_USAGE,
                  "0x%x is no set of axes: use AN_AXIS(i) | AN_AXIS(j) with i and j from -8 to 7, or AN_ALL",
                  (unsigned)axes);
        return false;
    }
    for (int bit = 0; bit < 16; bit++) {
        if (!(axes >> bit & 1)) continue;
        int i = an_axis_of(t, bit < 8 ? bit : bit - 16);
        if (i < 0) return false;
        *out |= 1u << i;
    }
    return true;
}

/* A user's shape in the graph's terms; false, and the error is recorded, where an axis is negative or longer than int32
 * holds. */
static bool shape_in(an_graph *g, const an_shape *s, int32_t *out)
{
    if (s->rank < 0 || s->rank > AN_MAX_RANK) {
        an_refuse(g, AN_E_SHAPE, "%d axes; at most %d are possible", s->rank, AN_MAX_RANK);
        return false;
    }
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0 || s->dim[i] > INT32_MAX) {
            an_refuse(g, AN_E_SHAPE, "axis %d has length %lld", i, (long long)s->dim[i]);
            return false;
        }
        out[i] = (int32_t)s->dim[i];
    }
    return true;
}

bool an_number_fits(an_dtype dtype, double x)
{
    static const double low[AN_N_DTYPES] = {[AN_I32] = INT32_MIN, [AN_I64] = -0x1p63},
                        beyond[AN_N_DTYPES] = {[AN_I32] = 0x1p31, [AN_I64] = 0x1p63, [AN_U8] = 256};
    return !an_dtype_is_int(dtype) || (x == floor(x) && x >= low[dtype] && x < beyond[dtype]);
}

/* False, and the error is recorded, for a number that `like`'s dtype does not hold. */
static bool holds(const an_tensor *like, double x)
{
    if (an_number_fits((an_dtype)like->dtype, x)) return true;
    an_refuse(like->g, AN_E_DTYPE, "%g is no %s: cast the tensor to a float first, or round the number", x,
              an_dtype_name((an_dtype)like->dtype));
    return false;
}

static an_tensor *bad(const an_tensor *t)
{
    return an_poison_of(t->g);
}

/* ------------------------------------------------------------------------------------------------ leaves */

an_tensor *an_full_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape shape, double x)
{
    int32_t s[AN_MAX_RANK];
    an_graph *g = an_enter_ctx(at, "an_full", cx);
    if (g == NULL) return an_poison_of(NULL);
    if ((unsigned)dtype >= AN_N_DTYPES) return an_refuse(g, AN_E_DTYPE, "%d is no dtype", (int)dtype);
    if (!shape_in(g, &shape, s)) return an_poison_of(g);
    an_tensor like = {.g = g, .dtype = (uint8_t)dtype};
    if (!holds(&like, x)) return an_poison_of(g);
    return an_make_broadcast(an_make_num(&like, x), shape.rank, s);
}

an_tensor *an_const_at(const char *at, an_ctx *cx, an_dtype dtype, double x)
{
    return an_full_at(at, cx, dtype, AN_SCALAR, x);
}

an_tensor *an_iota_at(const char *at, an_ctx *cx, an_shape shape, int axis)
{
    int32_t s[AN_MAX_RANK];
    an_graph *g = an_enter_ctx(at, "an_iota", cx);
    if (g == NULL) return an_poison_of(NULL);
    if (!shape_in(g, &shape, s)) return an_poison_of(g);
    if (axis < -shape.rank || axis >= shape.rank)
        return an_refuse(g, AN_E_SHAPE, "axis %d of a shape of rank %d", axis, shape.rank);
    return an_make_iota(g, shape.rank, s, axis < 0 ? axis + shape.rank : axis);
}

an_tensor *an_rand_at(const char *at, an_ctx *cx, an_shape shape)
{
    int32_t s[AN_MAX_RANK];
    an_graph *g = an_enter_ctx(at, "an_rand", cx);
    if (g == NULL) return an_poison_of(NULL);
    return shape_in(g, &shape, s) ? an_make_rand(g, shape.rank, s) : an_poison_of(g);
}

/* ------------------------------------------------------------------------------------------------ elementwise */

#define UNARY(name, expression)                                                                                        \
    an_tensor *an_##name##_at(const char *at, an_tensor *a)                                                            \
    {                                                                                                                  \
        return an_enter(at, "an_" #name, 1, 1, &a) ? expression : a;                                                   \
    }
#define UNARY_OP(name, NAME) UNARY(name, an_make1(AN_OP_##NAME, a))
#define UNARY_OF(name)       UNARY(name, an_##name##_of(a))

UNARY_OP(neg, NEG)
UNARY_OP(abs, ABS)
UNARY_OP(sign, SIGN)
UNARY_OP(floor, FLOOR)
UNARY_OP(round, ROUND)
UNARY_OP(sqrt, SQRT)
UNARY_OP(rsqrt, RSQRT)
UNARY_OP(recip, RECIP)
UNARY_OP(exp, EXP)
UNARY_OP(expm1, EXPM1)
UNARY_OP(log, LOG)
UNARY_OP(log1p, LOG1P)
UNARY_OP(sin, SIN)
UNARY_OP(cos, COS)
UNARY_OP(tanh, TANH)
UNARY_OP(erf, ERF)
UNARY_OP(atan, ATAN)
UNARY_OP(asin, ASIN)
UNARY_OP(acos, ACOS)
UNARY_OP(sigmoid, SIGMOID)
UNARY_OP(not, NOT)
UNARY_OP(isfinite, ISFINITE)
UNARY_OF(relu)
UNARY_OF(gelu)
UNARY_OF(gelu_tanh)
UNARY_OF(silu)
UNARY_OF(softplus)
UNARY_OF(square)

/* x > y is built as y < x, so that there are no ops for > and >=. */
#define BINARY(name, NAME, first, second)                                                                              \
    an_tensor *an_##name##_at(const char *at, an_tensor *a, an_tensor *b)                                              \
    {                                                                                                                  \
        an_tensor *t[] = {a, b};                                                                                       \
        return an_enter(at, "an_" #name, 2, 2, t) ? an_make2(AN_OP_##NAME, t[first], t[second]) : t[0];                \
    }
BINARY(add, ADD, 0, 1)
BINARY(sub, SUB, 0, 1)
BINARY(mul, MUL, 0, 1)
BINARY(div, DIV, 0, 1)
BINARY(idiv, IDIV, 0, 1)
BINARY(imod, IMOD, 0, 1)
BINARY(pow, POW, 0, 1)
BINARY(atan2, ATAN2, 0, 1)
BINARY(fmod, FMOD, 0, 1)
BINARY(round_bf16, ROUND_BF16, 0, 1)
BINARY(maximum, MAXIMUM, 0, 1)
BINARY(minimum, MINIMUM, 0, 1)
BINARY(eq, EQ, 0, 1)
BINARY(ne, NE, 0, 1)
BINARY(lt, LT, 0, 1)
BINARY(le, LE, 0, 1)
BINARY(gt, LT, 1, 0)
BINARY(ge, LE, 1, 0)
BINARY(and, AND, 0, 1)
BINARY(or, OR, 0, 1)
BINARY(xor, XOR, 0, 1)

an_tensor *an_where_at(const char *at, an_tensor *cond, an_tensor *a, an_tensor *b)
{
    an_tensor *t[] = {cond, a, b};
    return an_enter(at, "an_where", 3, 3, t) ? WHERE(t[0], t[1], t[2]) : t[0];
}

an_tensor *an_cast_at(const char *at, an_tensor *a, an_dtype dtype)
{
    if (!an_enter(at, "an_cast", 1, 1, &a)) return a;
    if ((unsigned)dtype >= AN_N_DTYPES) return an_refuse(a->g, AN_E_DTYPE, "%d is no dtype", (int)dtype);
    return CAST(a, dtype);
}

an_tensor *an_add_num_at(const char *at, an_tensor *a, double x)
{
    if (!an_enter(at, "an_add_num", 1, 1, &a)) return a;
    return holds(a, x) ? ADD(a, NUM(a, x)) : bad(a);
}

an_tensor *an_mul_num_at(const char *at, an_tensor *a, double x)
{
    if (!an_enter(at, "an_mul_num", 1, 1, &a)) return a;
    return holds(a, x) ? MUL(a, NUM(a, x)) : bad(a);
}

an_tensor *an_clamp_at(const char *at, an_tensor *a, double low, double high)
{
    if (!an_enter(at, "an_clamp", 1, 1, &a)) return a;
    if (a->dtype == AN_BOOL || isnan(low) || isnan(high))
        return an_refuse(a->g, AN_E_USAGE, "%s between %g and %g: numbers are needed", an_dtype_name(a->dtype), low,
                         high);
    if ((!isinf(low) && !holds(a, low)) || (!isinf(high) && !holds(a, high))) return bad(a);
    return an_clamp_of(a, low, high);
}

an_tensor *an_dropout_at(const char *at, an_tensor *a, double p)
{
    if (!an_enter(at, "an_dropout", 1, 1, &a)) return a;
    if (!(p >= 0 && p < 1)) return an_refuse(a->g, AN_E_USAGE, "p is %g; [0,1) is possible", p);
    return an_dropout_of(a, p);
}

/* -------------------------------------------------------------------------------- view ops, padding, concatenation */

an_tensor *an_reshape_at(const char *at, an_tensor *a, an_shape shape)
{
    int32_t s[AN_MAX_RANK];
    char text[TEXT];
    if (!an_enter(at, "an_reshape", 1, 1, &a)) return a;
    int open = -1;
    int64_t rest = 1;
    for (int i = 0; i < shape.rank && i < AN_MAX_RANK; i++) {
        if (shape.dim[i] == -1 && open < 0)
            open = i;
        else if (shape.dim[i] > 0 && rest <= a->numel)
            rest *= AN_MIN(shape.dim[i], INT32_MAX);
        else if (shape.dim[i] == 0)
            rest = 0;
    }
    if (open >= 0) {
        if (rest <= 0 || a->numel % rest != 0)
            return an_refuse(a->g, AN_E_SHAPE, "no length of axis %d makes %s fit", open, text_of(a, text));
        shape.dim[open] = a->numel / rest;
    }
    return shape_in(a->g, &shape, s) ? an_make_reshape(a, shape.rank, s) : bad(a);
}

an_tensor *an_permute_at(const char *at, an_tensor *a, an_shape perm)
{
    int p[AN_MAX_RANK];
    char text[TEXT];
    if (!an_enter(at, "an_permute", 1, 1, &a)) return a;
    if (perm.rank != a->rank) return an_refuse(a->g, AN_E_SHAPE, "%d axes for %s", perm.rank, text_of(a, text));
    for (int i = 0; i < a->rank; i++)
        if ((p[i] = an_axis_of(a, perm.dim[i] < -a->rank || perm.dim[i] >= a->rank ? a->rank : (int)perm.dim[i])) < 0)
            return bad(a);
    return an_make_permute(a, p);
}

an_tensor *an_transpose_at(const char *at, an_tensor *a, int axis1, int axis2)
{
    if (!an_enter(at, "an_transpose", 1, 1, &a)) return a;
    int i = an_axis_of(a, axis1), j = an_axis_of(a, axis2);
    return i < 0 || j < 0 ? bad(a) : an_make_swap(a, i, j);
}

an_tensor *an_expand_at(const char *at, an_tensor *a, an_shape shape)
{
    int32_t s[AN_MAX_RANK];
    char ta[TEXT], tb[TEXT];
    if (!an_enter(at, "an_expand", 1, 1, &a)) return a;
    if (!shape_in(a->g, &shape, s)) return bad(a);
    if (shape.rank < a->rank)
        return an_refuse(a->g, AN_E_SHAPE, "%s does not expand to %s", text_of(a, ta),
                         an_shape_text(shape.rank, s, tb, TEXT));
    return an_make_broadcast(a, shape.rank, s);
}

an_tensor *an_slice_at(const char *at, an_tensor *a, int axis, int64_t start, int64_t stop, int64_t step)
{
    char text[TEXT];
    if (!an_enter(at, "an_slice", 1, 1, &a)) return a;
    int i = an_axis_of(a, axis);
    if (i < 0) return bad(a);
    int64_t n = a->shape[i], from = start < 0 ? start + n : start, to = stop < 0 ? stop + n : stop;
    if (step < 1 || from < 0 || from > to || to > n)
        return an_refuse(a->g, AN_E_SHAPE, "[%lld,%lld) by %lld is not inside axis %d of %s", (long long)start,
                         (long long)stop, (long long)step, i, text_of(a, text));
    return an_make_slice(a, i, from, an_ceil_div(to - from, AN_MIN(step, INT32_MAX)), AN_MIN(step, INT32_MAX));
}

an_tensor *an_pad_at(const char *at, an_tensor *a, int axis, int64_t before, int64_t after, double value)
{
    if (!an_enter(at, "an_pad", 1, 1, &a)) return a;
    int i = an_axis_of(a, axis);
    if (before < 0 || after < 0 || before > INT32_MAX || after > INT32_MAX)
        return an_refuse(a->g, AN_E_SHAPE, "%lld before and %lld after", (long long)before, (long long)after);
    return i < 0 || !holds(a, value) ? bad(a) : an_make_pad(a, i, before, after, value);
}

an_tensor *an_flip_at(const char *at, an_tensor *a, an_axes axes)
{
    uint32_t mask;
    if (!an_enter(at, "an_flip", 1, 1, &a)) return a;
    return mask_of(a, axes, &mask) ? an_make_flip(a, mask) : bad(a);
}

an_tensor *an_concat_at(const char *at, an_tensor *const *parts, int n, int axis)
{
    enum { MOST = 1024 };
    an_tensor *t[MOST];
    if (n < 1 || parts == NULL) return an_poison_of(NULL);
    memcpy(t, parts, (size_t)AN_MIN(n, MOST) * sizeof(an_tensor *));
    if (!an_enter(at, "an_concat", AN_MIN(n, MOST), n, t)) return t[0];
    if (n > MOST) return an_refuse(t[0]->g, AN_E_UNSUPPORTED, "%d parts; at most %d are possible", n, MOST);
    int i = an_axis_of(t[0], axis);
    return i < 0 ? bad(t[0]) : an_make_concat(t[0]->g, t, n, i);
}

an_tensor *an_all_gather_at(const char *at, an_tensor *a)
{
    return an_enter(at, "an_all_gather", 1, 1, &a) ? an_make_all_gather(a) : a;
}

an_tensor *an_all_reduce_at(const char *at, an_tensor *a)
{
    const bool fine = an_enter(at, "an_all_reduce", 1, 1, &a);
    return fine ? an_make_call(AN_OP_ALLREDUCE, 1, &a, 2, (int64_t[]){a->g->ranks, 0}) : a;
}

an_tensor *an_detach_at(const char *at, an_tensor *a)
{
    return an_enter(at, "an_detach", 1, 1, &a) ? an_make_call(AN_OP_DETACH, 1, &a, 0, NULL) : a;
}

/* ------------------------------------------------------------------------------------------------ reductions */

static an_tensor *want_numbers(an_tensor *a, bool real)
{
    an_dtype t = (an_dtype)a->dtype;
    if (t == AN_BOOL || (real && !an_dtype_is_float(t)))
        return an_refuse(a->g, AN_E_DTYPE, "takes %s, not %s: cast first", real ? "floats" : "numbers",
                         an_dtype_name(t));
    return a;
}

#define REDUCTION(name, real, expression)                                                                              \
    an_tensor *an_##name##_at(const char *at, an_tensor *a, an_axes axes, bool keep)                                   \
    {                                                                                                                  \
        uint32_t mask;                                                                                                 \
        if (!an_enter(at, "an_" #name, 1, 1, &a)) return a;                                                            \
        return want_numbers(a, real)->poison || !mask_of(a, axes, &mask) ? bad(a) : expression;                        \
    }
REDUCTION(sum, false, an_make_reduce(AN_OP_SUM, a, mask, keep))
REDUCTION(mean, true, an_mean_of(a, mask, keep))
REDUCTION(max, false, an_make_reduce(AN_OP_MAX, a, mask, keep))
REDUCTION(min, false, an_min_of(a, mask, keep))
REDUCTION(var, true, an_var_of(a, mask, keep))

/* Drops or keeps the reduced `axis` of a's shape on r [O,1,I]. */
static an_tensor *after_axis(an_tensor *r, const an_tensor *a, int axis, bool keep)
{
    int32_t shape[AN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < a->rank; i++)
        if (i != axis || keep) shape[n++] = i == axis ? 1 : a->shape[i];
    return an_make_reshape(r, n, shape);
}

an_tensor *an_argmax_at(const char *at, an_tensor *a, int axis, bool keep)
{
    if (!an_enter(at, "an_argmax", 1, 1, &a)) return a;
    int i = an_axis_of(a, axis);
    if (i < 0 || want_numbers(a, false)->poison) return bad(a);
    an_tensor *x = an_make_rows(a, i);
    return after_axis(an_make_call(AN_OP_ARGMAX, 1, &x, 0, NULL), a, i, keep);
}

an_tensor *an_logsumexp_at(const char *at, an_tensor *a, int axis, bool keep)
{
    if (!an_enter(at, "an_logsumexp", 1, 1, &a)) return a;
    int i = an_axis_of(a, axis);
    if (i < 0 || want_numbers(a, true)->poison) return bad(a);
    return CAST(after_axis(an_lse_of_any(an_make_rows(an_wide(a), i)), a, i, keep), (an_dtype)a->dtype);
}

an_tensor *an_softmax_at(const char *at, an_tensor *a, int axis)
{
    if (!an_enter(at, "an_softmax", 1, 1, &a)) return a;
    int i = an_axis_of(a, axis);
    if (i < 0 || want_numbers(a, true)->poison) return bad(a);
    return CAST(an_make_like(an_softmax_of(an_make_rows(an_wide(a), i)), a), (an_dtype)a->dtype);
}

/* x - logsumexp(x). */
an_tensor *an_log_softmax_at(const char *at, an_tensor *a, int axis)
{
    if (!an_enter(at, "an_log_softmax", 1, 1, &a)) return a;
    int i = an_axis_of(a, axis);
    if (i < 0 || want_numbers(a, true)->poison) return bad(a);
    an_tensor *x = an_make_rows(an_wide(a), i); /* [O,R,I] */
    return CAST(an_make_like(SUB(x, an_lse_of(x)), a), (an_dtype)a->dtype);
}

/* ------------------------------------------------------------------------------------------------ matmul and rows */

/* Batch axes of a and b broadcast; false: they do not, and the error is recorded. */
static bool join_batches(an_tensor *t[2])
{
    int rank = AN_MAX(t[0]->rank, t[1]->rank);
    int32_t shape[2][AN_MAX_RANK];
    char ta[TEXT], tb[TEXT];
    for (int i = 0; i < rank; i++) {
        int32_t d[2];
        for (int k = 0; k < 2; k++) {
            int own = i - (rank - t[k]->rank);
            d[k] = own < 0 ? 1 : t[k]->shape[own];
        }
        if (i < rank - 2 && d[0] != d[1] && d[0] != 1 && d[1] != 1) {
            an_refuse(t[0]->g, AN_E_SHAPE, "batch axes of %s and %s do not broadcast (axis %d)", text_of(t[0], ta),
                      text_of(t[1], tb), i);
            return false;
        }
        for (int k = 0; k < 2; k++) shape[k][i] = i < rank - 2 && d[k] == 1 ? d[1 - k] : d[k];
    }
    for (int k = 0; k < 2; k++) t[k] = an_make_broadcast(t[k], rank, shape[k]);
    return true;
}

/* Integers have no GEMM: the sum over k of a[...,m,k,1] b[...,1,k,n], which wraps as their arithmetic does. The factors
 * are views, and the sum is one loop over k for each element. */
static an_tensor *multiply_integers(an_tensor *t[2], an_dtype result)
{
    an_tensor *x[2];
    if (result != t[0]->dtype || t[0]->dtype != t[1]->dtype)
        return an_refuse(t[0]->g, AN_E_DTYPE, "a product of %s and %s as %s: cast first",
                         an_dtype_name((an_dtype)t[0]->dtype), an_dtype_name((an_dtype)t[1]->dtype),
                         an_dtype_name(result));
    if (AN_MAX(t[0]->rank, t[1]->rank) == AN_MAX_RANK)
        return an_refuse(t[0]->g, AN_E_UNSUPPORTED, "integers of rank %d: reshape to fewer batch axes", AN_MAX_RANK);
    if (!join_batches(t)) return bad(t[0]);
    const int rank = t[0]->rank;
    for (int k = 0; k < 2; k++) {
        int32_t shape[AN_MAX_RANK];
        memcpy(shape, t[k]->shape, sizeof shape);
        shape[rank] = t[k]->shape[rank - 1];
        shape[rank - 1] = t[k]->shape[rank - 1];
        if (k == 0) shape[rank] = 1;
        if (k == 1) shape[rank - 1] = t[k]->shape[rank - 2], shape[rank - 2] = 1;
        x[k] = an_make_reshape(t[k], rank + 1, shape);
    }
    return an_make_reduce(AN_OP_SUM, MUL(x[0], x[1]), 1u << (rank - 1), false);
}

/* b without batch axes: a's become rows of one GEMM, whose gradients then are one GEMM each too. */
static an_tensor *multiply(an_tensor *t[2], an_dtype result)
{
    an_tensor *a = t[0], *b = t[1];
    char ta[TEXT], tb[TEXT];
    int32_t shape[AN_MAX_RANK];
    if (a->rank < 2 || b->rank < 2 || a->shape[a->rank - 1] != b->shape[b->rank - 2])
        return an_refuse(a->g, AN_E_SHAPE, "shapes %s and %s are not [...,M,K] and [...,K,N]", text_of(a, ta),
                         text_of(b, tb));
    if (an_dtype_is_int((an_dtype)a->dtype)) return multiply_integers(t, result);
    int32_t K = a->shape[a->rank - 1], N = b->shape[b->rank - 1];
    bool flat =
        a->rank > 2 && b->rank <= a->rank && b->numel == (int64_t)K * N && an_merge(b->shape, 0, b->rank - 2) == 1;
    if (!flat) return join_batches(t) ? an_make_matmul(t[0], t[1], result) : bad(a);
    an_tensor *rows = an_make_reshape(a, 2, (int32_t[]){an_merge(a->shape, 0, a->rank - 1), K});
    memcpy(shape, a->shape, sizeof shape);
    shape[a->rank - 1] = N;
    return an_make_reshape(an_make_matmul(rows, an_make_reshape(b, 2, (int32_t[]){K, N}), result), a->rank, shape);
}

an_tensor *an_matmul_at(const char *at, an_tensor *a, an_tensor *b)
{
    an_tensor *t[] = {a, b};
    return an_enter(at, "an_matmul", 2, 2, t) ? multiply(t, (an_dtype)t[0]->dtype) : t[0];
}

an_tensor *an_matmul_as_at(const char *at, an_tensor *a, an_tensor *b, an_dtype result)
{
    an_tensor *t[] = {a, b};
    return an_enter(at, "an_matmul_as", 2, 2, t) ? multiply(t, result) : t[0];
}

/* Only moves that keep every element are looked through: a slice may leave the odd ones out. */
void an_expect_ids(an_tensor *index, int64_t limit, bool negative_too)
{
    an_graph *g = index->g;
    if (index->poison) return;
    while (index->op == AN_OP_RESHAPE || index->op == AN_OP_EXPAND || index->op == AN_OP_PERMUTE)
        index = g->node[index->src[0]];
    if (index->op != AN_OP_LEAF || index->attr[0] != AN_LEAF_INPUT || index->dtype != AN_I32) return;
    an_id_range *r = AN_NEW(&g->arena, an_id_range);
    if (!r) {
        an_fail_nomem(g->err, "the ranges of ids", sizeof *r);
        return;
    }
    *r = (an_id_range){g->id_ranges, index->id, (int32_t)AN_MIN(limit, INT32_MAX), g->scope, negative_too,
                       g->at,        g->doing};
    g->id_ranges = r;
}

an_tensor *an_gather_at(const char *at, an_tensor *table, an_tensor *index)
{
    an_tensor *t[] = {table, index};
    if (!an_enter(at, "an_gather", 2, 2, t)) return t[0];
    /* Of a narrow parameter the rows are widened, not the table. */
    an_tensor *rows = table->narrow ? CAST(an_make_gather(an_src(t[0], 0), t[1]), AN_F32) : an_make_gather(t[0], t[1]);
    if (!rows->poison) an_expect_ids(t[1], t[0]->shape[0], false);
    return rows;
}

/* Rows are added in floats, so integers are cut into digits of 16 bits, whose sums a double holds exactly (for 2^37
 * rows), and put together again in int64: the sum wraps as integer arithmetic does. */
static an_tensor *scatter_integers(an_tensor *ids, an_tensor *src, int64_t rows)
{
    const an_dtype t = (an_dtype)src->dtype;
    const int digits = t == AN_U8 ? 1 : t == AN_I32 ? 2 : 4;
    an_tensor *rest = CAST(src, AN_I64), *sum = NULL;
    double unit = 1;
    for (int i = 0; i < digits; i++, unit *= 65536) {
        an_tensor *digit = i + 1 < digits ? AND(rest, NUM(rest, 65535)) : rest;
        an_tensor *part = CAST(an_make_scatter(ids, CAST(digit, AN_F64), rows), AN_I64);
        part = MUL(part, NUM(part, unit));
        sum = sum == NULL ? part : ADD(sum, part);
        rest = an_make2(AN_OP_IDIV, rest, NUM(rest, 65536)); /* rounds down: the last digit keeps the sign */
    }
    return CAST(sum, t);
}

an_tensor *an_scatter_add_at(const char *at, an_tensor *index, an_tensor *src, int64_t rows)
{
    an_tensor *t[] = {index, src};
    if (!an_enter(at, "an_scatter_add", 2, 2, t)) return t[0];
    if (rows < 0 || rows > INT32_MAX) return an_refuse(t[0]->g, AN_E_SHAPE, "%lld rows", (long long)rows);
    an_tensor *ids = an_make_ids(t[0], rows), *sum;
    if (an_dtype_is_int((an_dtype)t[1]->dtype))
        sum = scatter_integers(ids, t[1], rows);
    else
        sum = CAST(an_make_scatter(ids, t[1], rows), (an_dtype)t[1]->dtype);
    if (!sum->poison) an_expect_ids(t[0], rows, false);
    return sum;
}

/* The floats of t, two of them, as the policy has products. False: one is no float, which is refused. */
static bool to_policy(an_tensor **t)
{
    for (int i = 0; i < 2; i++)
        if (!an_dtype_is_float((an_dtype)t[i]->dtype)) {
            t[0] = an_refuse(t[0]->g, AN_E_DTYPE, "takes floats, not %s: cast first",
                             an_dtype_name((an_dtype)t[i]->dtype));
            return false;
        }
    const an_dtype as = t[0]->dtype == t[1]->dtype ? an_policy_dtype(t[0], t[1]) : t[0]->g->matmul_dtype;
    t[0] = CAST(t[0], as);
    t[1] = CAST(t[1], as);
    return true;
}

an_tensor *an_grouped_matmul_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *ends)
{
    an_tensor *t[] = {x, w, ends};
    if (!an_enter(at, "an_grouped_matmul", 3, 3, t) || !to_policy(t)) return t[0];
    return an_make_call(AN_OP_GROUPED_MATMUL, 3, t, 0, NULL);
}

an_tensor *an_grouped_outer_at(const char *at, an_tensor *a, an_tensor *b, an_tensor *ends)
{
    an_tensor *t[] = {a, b, ends};
    if (!an_enter(at, "an_grouped_outer", 3, 3, t) || !to_policy(t)) return t[0];
    return an_make_call(AN_OP_GROUPED_OUTER, 3, t, 0, NULL);
}

an_tensor *an_put_rows_at(const char *at, an_tensor *table, an_tensor *index, an_tensor *rows)
{
    an_tensor *t[] = {table, index, rows};
    if (!an_enter(at, "an_put_rows", 3, 3, t)) return t[0];
    an_tensor *put = an_make_call(AN_OP_PUT_ROWS, 3, t, 0, NULL);
    if (!put->poison) an_expect_ids(t[1], t[0]->shape[0], false);
    return put;
}

/* ------------------------------------------------------------------------------------------------ calls */

an_tensor *an_draw_at(const char *at, an_tensor *logits, an_tensor *number, double temperature, int64_t top_k,
                      double top_p, uint64_t seed)
{
    an_tensor *t[] = {logits, number};
    if (!an_enter(at, "an_draw", 2, 2, t)) return t[0];
    if (!(temperature >= 0) || !(top_p >= 0 && top_p <= 1) || top_k < 0)
        return an_refuse(t[0]->g, AN_E_USAGE,
                         "temperature %g, top_k %lld, top_p %g: none is below 0, and top_p is at most 1", temperature,
                         (long long)top_k, top_p);
    /* beyond 1e30 the largest logit alone has weight, and a product with a subnormal number still has none */
    const float scale = temperature == 0 ? 0 : (float)fmax(fmin(1 / temperature, 1e30), 1e-30);
    const bool cut = top_p > 0 && top_p < 1;
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    const int64_t attr[] = {top_k, an_rng_key(seed, 0), bits,
                            cut ? (int64_t)fmin(ceil(top_p * 0x1p24), 0x1p24 - 1) : 0};
    return an_make_call(AN_OP_DRAW, 2, t, AN_COUNT(attr), attr);
}

static an_tensor *call1(const char *at, const char *name, an_op op, an_tensor *a, int n_attr, int64_t attr)
{
    if (!an_enter(at, name, 1, 1, &a)) return a;
    return an_make_call(op, 1, &a, n_attr, &attr);
}

/* `out` may be NULL for an output that is not wanted. */
static void pick(an_tensor *a, int k, an_tensor **out)
{
    if (out != NULL) *out = a->poison ? a : an_make_pick(a, k);
}

/* Output 0 of a call with several outputs. One without elements is not computed: see fold_empty. */
static an_tensor *first_output(an_tensor *a)
{
    return a->poison || a->numel > 0 ? a : an_make_full(a->g, (an_dtype)a->dtype, a->rank, a->shape, 0, 0);
}

an_tensor *an_cumsum_at(const char *at, an_tensor *a, bool reverse)
{
    return call1(at, "an_cumsum", AN_OP_CUMSUM, a, 1, reverse);
}

an_tensor *an_sort_at(const char *at, an_tensor *a, bool descending, an_tensor **positions)
{
    an_tensor *y = call1(at, "an_sort", AN_OP_SORT, a, 1, descending);
    pick(y, 1, positions);
    return y->poison || y->numel > 0 ? y : a; /* nothing, in order */
}

an_tensor *an_topk_at(const char *at, an_tensor *a, int k, an_tensor **positions)
{
    an_tensor *y = call1(at, "an_topk", AN_OP_TOPK, a, 1, k);
    pick(y, 1, positions);
    return y->poison || y->numel > 0 ? y : an_make_slice(a, a->rank - 1, 0, k, 1);
}

an_tensor *an_cholesky_at(const char *at, an_tensor *a)
{
    return call1(at, "an_cholesky", AN_OP_CHOLESKY, a, 0, 0);
}

an_tensor *an_qr_at(const char *at, an_tensor *a, an_tensor **r)
{
    an_tensor *q = call1(at, "an_qr", AN_OP_QR, a, 0, 0);
    pick(q, 1, r);
    return first_output(q);
}

an_tensor *an_eigh_at(const char *at, an_tensor *a, an_tensor **vectors)
{
    an_tensor *w = call1(at, "an_eigh", AN_OP_EIGH, a, 0, 0);
    pick(w, 1, vectors);
    return first_output(w);
}

an_tensor *an_svd_at(const char *at, an_tensor *a, an_tensor **s, an_tensor **v)
{
    an_tensor *u = call1(at, "an_svd", AN_OP_SVD, a, 0, 0);
    pick(u, 1, s);
    pick(u, 2, v);
    return first_output(u);
}

an_tensor *an_solve_at(const char *at, an_tensor *a, an_tensor *b)
{
    an_tensor *t[] = {a, b};
    return an_enter(at, "an_solve", 2, 2, t) ? an_make_call(AN_OP_SOLVE, 2, t, 0, NULL) : t[0];
}

an_tensor *an_trisolve_at(const char *at, an_tensor *t, an_tensor *b, bool upper, bool transpose)
{
    an_tensor *src[] = {t, b};
    int64_t attr[2] = {upper, transpose};
    return an_enter(at, "an_trisolve", 2, 2, src) ? an_make_call(AN_OP_TRISOLVE, 2, src, 2, attr) : src[0];
}
