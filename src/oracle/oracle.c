/* oracle.c: the oracle's loop over nodes, and the simple ops: elementwise, view ops, reductions, GEMM, gather and
 * scatter.
 *
 * Owns:     the memory of values during one evaluation; rounding to dtypes.
 * Does not: evaluate windows, attention and calls (oracle_linalg.c).
 */
#include "oracle/oracle.h"
#include "graph/elem_domains.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ rounding */

/* Rounds x to nearest even with `digits` significant bits and smallest exponent `least`; above `top` to infinity. x
 * must be exact in f32. */
static double to_bits(double x, int digits, int least, double top)
{
    if (!isfinite(x) || x == 0) return x;
    int e;
    frexp(x, &e); /* x = m 2^e, 0.5 <= |m| < 1 */
    double unit = ldexp(1, (e < least + 1 ? least + 1 : e) - digits);
    double y = rint(x / unit) * unit;
    return fabs(y) > top ? copysign(INFINITY, x) : y;
}

double an_oracle_round(const an_oracle_options *o, an_dtype t, double x)
{
    if (o->round_nothing) return x;
    switch (t) {
    case AN_F32: return o->round_f32 ? (double)(float)x : x;
    case AN_BF16: return to_bits((double)(float)x, 8, -126, 0x1.FEp127);
    case AN_F16: return to_bits((double)(float)x, 11, -14, 65504);
    default: return x;
    }
}

int64_t an_oracle_round_int(an_dtype t, int64_t x)
{
    switch (t) {
    case AN_I32: return (int32_t)(uint32_t)(uint64_t)x;
    case AN_U8: return (uint8_t)x;
    case AN_BOOL: return x != 0;
    default: return x;
    }
}

int64_t an_oracle_to_int(an_dtype t, double x)
{
    if (t == AN_BOOL) return x != 0;
    if (isnan(x)) return 0;
    double low = t == AN_U8 ? 0 : t == AN_I32 ? INT32_MIN : -0x1p63;
    double high = t == AN_U8 ? 255 : t == AN_I32 ? INT32_MAX : 0x1p63;
    if (x >= high) return t == AN_I64 ? INT64_MAX : (int64_t)high;
    return x <= low ? (int64_t)low : (int64_t)x;
}

static bool is_float(const struct an_tensor *t)
{
    return an_dtype_is_float((an_dtype)t->dtype);
}

static void round_output(const an_oracle_options *o, an_dtype t, an_oracle_value v, int64_t numel)
{
    if (an_dtype_is_float(t))
        for (int64_t j = 0; j < numel; j++) v.d[j] = an_oracle_round(o, t, v.d[j]);
    else
        for (int64_t j = 0; j < numel; j++) v.i[j] = an_oracle_round_int(t, v.i[j]);
}

/* ------------------------------------------------------------------------------------------------ elementwise */

static int64_t floor_div(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/* Functions that the reference column of ops.def uses. */
/* The spacing of bfloat16 around |x| is 2^(exponent - 8), for frexp's exponent. */
static double ref_round_bf16(double a, double b)
{
    const float x = (float)a, u = b >= 0 && b < 1 ? (float)b : 0.0f;
    int exponent;
    if (!isfinite(x)) return x;
    if (fabsf(x) < FLT_MIN) return copysign(0.0, x);
    frexp(x, &exponent);
    const double step = ldexp(1.0, exponent - 8), below = floor(fabs((double)x) / step) * step;
    const double share = (fabs((double)x) - below) / step; /* a multiple of 2^-16 */
    const double size = share + (u < 1.0f ? floor(ldexp(u, 16)) : 0) / 65536 >= 1 ? below + step : below;
    return copysign((double)(float)size, x);
}
#define AN_REF_ROUND_BF16(a, b) ref_round_bf16(a, b)
#define AN_REF_MAX(a, b)        ((a) > (b) || (a) != (a) ? (a) : (b))
#define AN_REF_MIN(a, b)        ((a) < (b) || (a) != (a) ? (a) : (b))
#define an_idiv(a, b)           floor_div(a, b)
#define an_imod(a, b)           ((b) == 0 ? 0 : (a) - (b)*floor_div(a, b))

/* A row of ops.def is evaluated in double, in int64, or in both, depending on its domain (graph/elem_domains.h). */
double an_oracle_elem(int op, double a, double b, double c)
{
    switch (op) {
/* clang-format off */
#define AN_ELEM(NAME, arity, domain, result, kernel, reference, ...)                                                   \
    case AN_OP_##NAME: return (double)(FLOAT_##domain(reference));
#include "graph/ops.def"
        /* clang-format on */
    default: return NAN;
    }
}

#define fabs(x) llabs(x)
int64_t an_oracle_elem_int(int op, int64_t a, int64_t b, int64_t c)
{
    switch (op) {
/* clang-format off */
#define AN_ELEM(NAME, arity, domain, result, kernel, reference, ...)                                                   \
    case AN_OP_##NAME: return (int64_t)(INT_##domain(reference));
#include "graph/ops.def"
        /* clang-format on */
    default: return 0;
    }
}
#undef fabs

static void eval_elem(an_oracle_node *r)
{
    const struct an_tensor *n = r->n;
    bool floats = is_float(r->src[n->n_src - 1]), result = is_float(n);
    for (int64_t j = 0; j < n->numel; j++) {
        if (n->op == AN_OP_WHERE) {
            r->out[0].w[j] = r->in[0].i[j] ? r->in[1].w[j] : r->in[2].w[j];
        } else if (floats) {
            double y = an_oracle_elem(n->op, r->in[0].d[j], n->n_src > 1 ? r->in[1].d[j] : 0, 0);
            if (result)
                r->out[0].d[j] = y;
            else
                r->out[0].i[j] = y != 0;
        } else {
            r->out[0].i[j] = an_oracle_elem_int(n->op, r->in[0].i[j], n->n_src > 1 ? r->in[1].i[j] : 0, 0);
        }
    }
}

static void eval_cast(an_oracle_node *r)
{
    bool from = is_float(r->src[0]), to = is_float(r->n);
    for (int64_t j = 0; j < r->n->numel; j++) {
        if (from && !to)
            r->out[0].i[j] = an_oracle_to_int((an_dtype)r->n->dtype, r->in[0].d[j]);
        else if (!from && to)
            r->out[0].d[j] = (double)r->in[0].i[j];
        else
            r->out[0].w[j] = r->in[0].w[j];
    }
}

/* ------------------------------------------------------------------------------------------------ leaves */

static void eval_rand(an_oracle_node *r)
{
    const struct an_tensor *n = r->n;
    uint64_t sample = n->rank > 0 && n->shape[0] > 0 ? (uint64_t)(n->numel / n->shape[0]) : 0;
    uint64_t first = n->attr[1] ? r->o->first_sample * sample : 0;
    for (int64_t j = 0; j < n->numel; j++)
        r->out[0].d[j] = (double)an_rng_uniform(r->o->rng_key, (uint32_t)n->attr[0], first + (uint64_t)j);
}

/* Coordinates of linear index j. */
static void unravel(const struct an_tensor *t, int64_t j, int64_t *at)
{
    for (int k = t->rank - 1; k >= 0; k--) {
        at[k] = j % t->shape[k];
        j /= t->shape[k];
    }
}

static int64_t ravel(const struct an_tensor *t, const int64_t *at)
{
    int64_t j = 0;
    for (int k = 0; k < t->rank; k++) j = j * t->shape[k] + at[k];
    return j;
}

static void eval_leaf(an_oracle_node *r)
{
    const struct an_tensor *n = r->n;
    int64_t at[AN_MAX_RANK];
    if (n->op == AN_OP_RAND) eval_rand(r);
    if (n->op == AN_OP_CONST && is_float(n)) r->out[0].d[0] = n->imm[0];
    if (n->op == AN_OP_CONST && !is_float(n)) r->out[0].i[0] = n->imm_i;
    for (int64_t j = 0; n->op == AN_OP_IOTA && j < n->numel; j++) {
        unravel(n, j, at);
        r->out[0].i[j] = at[n->attr[0]];
    }
}

/* ------------------------------------------------------------------------------------------------ view ops */

/* The source coordinates of a result's element; false: outside the source (PAD). */
static bool source_of(const struct an_tensor *n, const struct an_tensor *x, const int64_t *at, int64_t *from)
{
    for (int k = 0; k < n->rank; k++) {
        switch (n->op) {
        case AN_OP_PERMUTE: from[n->attr[k]] = at[k]; break;
        case AN_OP_EXPAND: from[k] = x->shape[k] == 1 ? 0 : at[k]; break;
        case AN_OP_SLICE: from[k] = n->attr[2 * k] + at[k] * n->attr[2 * k + 1]; break;
        case AN_OP_PAD: from[k] = at[k] - n->attr[2 * k]; break;
        case AN_OP_FLIP: from[k] = n->attr[0] >> k & 1 ? x->shape[k] - 1 - at[k] : at[k]; break;
        default: from[k] = at[k]; break;
        }
    }
    for (int k = 0; k < n->rank; k++)
        if (from[k] < 0 || from[k] >= x->shape[k]) return false;
    return true;
}

static void eval_concat(an_oracle_node *r)
{
    const struct an_tensor *n = r->n;
    int64_t at[AN_MAX_RANK], axis = n->attr[0];
    for (int64_t j = 0; j < n->numel; j++) {
        int part = 0;
        unravel(n, j, at);
        while (at[axis] >= r->src[part]->shape[axis]) at[axis] -= r->src[part++]->shape[axis];
        r->out[0].w[j] = r->in[part].w[ravel(r->src[part], at)];
    }
}

static void eval_view(an_oracle_node *r)
{
    const struct an_tensor *n = r->n, *x = r->src[0];
    int64_t at[AN_MAX_RANK], from[AN_MAX_RANK];
    bool plain = n->op == AN_OP_RESHAPE || n->op == AN_OP_DETACH;
    if (n->op == AN_OP_CONCAT) {
        eval_concat(r);
        return;
    }
    for (int64_t j = 0; j < n->numel; j++) {
        unravel(n, j, at);
        if (plain)
            r->out[0].w[j] = r->in[0].w[j];
        else if (source_of(n, x, at, from))
            r->out[0].w[j] = r->in[0].w[ravel(x, from)];
        else if (is_float(n))
            r->out[0].d[j] = n->imm[0];
        else
            r->out[0].i[j] = (int64_t)n->imm[0];
    }
}

/* ---------------------------------------------------------------------------------- reductions, GEMM, gather */

/* Whether x is larger than `best`. NaN is larger than every number. */
static bool above(double x, double best)
{
    return x > best || (isnan(x) && !isnan(best));
}

static void eval_reduce(an_oracle_node *r)
{
    const struct an_tensor *n = r->n, *x = r->src[0];
    int64_t R = x->shape[1], I = x->shape[2];
    bool floats = is_float(x);
    for (int64_t j = 0; j < n->numel; j++) {
        double sum = 0;
        uint64_t sum_i = 0; /* wraps */
        int64_t best = 0, base = j / I * R * I + j % I;
        for (int64_t k = 0; k < R; k++) {
            int64_t at = base + k * I, top = base + best * I;
            if (floats)
                sum += r->in[0].d[at];
            else
                sum_i += (uint64_t)r->in[0].i[at];
            if (floats ? above(r->in[0].d[at], r->in[0].d[top]) : r->in[0].i[at] > r->in[0].i[top]) best = k;
        }
        if (n->op == AN_OP_ARGMAX)
            r->out[0].i[j] = best;
        else if (n->op == AN_OP_MAX)
            r->out[0].w[j] = r->in[0].w[base + best * I];
        else if (floats)
            r->out[0].d[j] = sum;
        else
            r->out[0].i[j] = (int64_t)sum_i;
    }
}

static void eval_matmul(an_oracle_node *r)
{
    const struct an_tensor *n = r->n, *a = r->src[0];
    int64_t M = n->shape[n->rank - 2], N = n->shape[n->rank - 1], K = a->shape[n->rank - 1];
    for (int64_t j = 0; j < n->numel; j++) {
        int64_t batch = j / (M * N), row = j / N % M, col = j % N;
        double sum = 0;
        for (int64_t k = 0; k < K; k++)
            sum += r->in[0].d[(batch * M + row) * K + k] * r->in[1].d[(batch * K + k) * N + col];
        r->out[0].d[j] = sum;
    }
}

static void eval_index(an_oracle_node *r)
{
    bool gather = r->n->op == AN_OP_GATHER;
    const struct an_tensor *table = gather ? r->src[0] : r->n, *index = r->src[gather];
    int64_t rows = table->shape[0], row = rows > 0 ? table->numel / rows : 0;
    if (!gather && r->n->n_src > 2) memcpy(r->out[0].w, r->in[2].w, (size_t)r->n->numel * sizeof(uint64_t));
    for (int64_t j = 0; j < index->numel; j++) {
        int64_t id = r->in[gather].i[j];
        if (gather) {
            id = id < 0 ? 0 : id >= rows ? rows - 1 : id;
            for (int64_t c = 0; c < row; c++) r->out[0].w[j * row + c] = r->in[0].w[id * row + c];
        } else if (id >= 0 && id < rows) {
            for (int64_t c = 0; c < row; c++) r->out[0].d[id * row + c] += r->in[1].d[j * row + c];
        }
    }
}

static an_status eval_effect(an_err *err, void *user, an_oracle_node *r)
{
    const struct an_tensor *n = r->n;
    if (n->op == AN_OP_ASSIGN) {
        memcpy(r->out[0].w, r->in[1].w, (size_t)n->numel * sizeof(uint64_t));
        return AN_OK;
    }
    if (r->o->pack == NULL) return an_fail(err, AN_E_USAGE, "ref: node %d packs, and no layout was given", (int)n->id);
    for (int i = 0; i < n->n_src; i++) {
        int64_t at = r->o->pack(user, n, i);
        if (at < 0 || at + r->src[i]->numel > n->numel)
            return an_fail(err, AN_E_USAGE, "ref: node %d: source %d is outside the block", (int)n->id, i);
        memcpy(r->out[0].w + at, r->in[i].w, (size_t)r->src[i]->numel * sizeof(uint64_t));
    }
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------ the loop */

static an_status eval_node(an_err *err, an_oracle_leaf_fn leaf, void *user, an_oracle_node *r)
{
    const struct an_tensor *n = r->n;
    switch (an_ops[n->op].cls) {
    case AN_CLS_ELEM: eval_elem(r); break;
    case AN_CLS_LEAF:
        if (n->op == AN_OP_LEAF) return leaf(err, user, n, r->out[0].w);
        eval_leaf(r);
        break;
    case AN_CLS_CAST: eval_cast(r); break;
    case AN_CLS_MOVE: eval_view(r); break;
    case AN_CLS_REDUCE: eval_reduce(r); break;
    case AN_CLS_MATMUL: eval_matmul(r); break;
    case AN_CLS_INDEX: eval_index(r); break;
    case AN_CLS_EFFECT: return eval_effect(err, user, r);
    case AN_CLS_COLLECTIVE: /* of one rank: an_join refuses the oracle */
        memcpy(r->out[0].w, r->in[0].w, (size_t)n->numel * sizeof(uint64_t));
        break;
    case AN_CLS_ATTENTION:
    case AN_CLS_WINDOW:
    case AN_CLS_CALL: return an_oracle_call(err, r);
    case AN_CLS_PICK: break; /* eval_at copies an output of its source */
    }
    return AN_OK;
}

/* Elements of a node's output k, and their dtype. */
static int64_t output_numel(const an_graph *g, const an_tensor *n, int k, an_dtype *t)
{
    int rank;
    int32_t shape[AN_MAX_RANK];
    int64_t numel = 1;
    an_output_shape(g, n, k, t, &rank, shape);
    for (int i = 0; i < rank; i++) numel *= shape[i];
    return numel;
}

typedef struct evaluation {
    const an_graph *g;
    an_oracle_options o;
    an_oracle_value (*value)[3]; /* [g->n][3] outputs of each node */
    bool *needed;
} evaluation;

static an_status eval_at(an_err *err, evaluation *ev, an_oracle_leaf_fn leaf, void *user, int32_t id)
{
    an_oracle_node r = {.n = ev->g->node[id], .o = &ev->o};
    for (int i = 0; i < r.n->n_src; i++) {
        r.src[i] = ev->g->node[r.n->src[i]];
        r.in[i] = ev->value[r.n->src[i]][0];
    }
    int outputs = r.n->op == AN_OP_PICK ? 1 : an_ops[r.n->op].outputs;
    for (int k = 0; k < outputs; k++) {
        an_dtype t;
        const int64_t numel = output_numel(ev->g, r.n, k, &t);
        r.out[k] = ev->value[id][k] = (an_oracle_value){.w = calloc((size_t)numel + 1, sizeof(uint64_t))};
        if (r.out[k].w == NULL) return an_fail_nomem(err, "ref", (size_t)numel * sizeof(uint64_t));
    }
    if (r.n->op == AN_OP_PICK)
        memcpy(r.out[0].w, ev->value[r.n->src[0]][r.n->attr[0]].w, (size_t)r.n->numel * sizeof(uint64_t));
    AN_TRY(eval_node(err, leaf, user, &r));
    for (int k = 0; k < outputs; k++) {
        an_dtype t;
        const int64_t numel = output_numel(ev->g, r.n, k, &t);
        round_output(&ev->o, t, r.out[k], numel);
    }
    return AN_OK;
}

static an_status eval_needed(an_err *err, evaluation *ev, an_oracle_leaf_fn leaf, void *user, const int32_t *ids, int n,
                             double **out_values)
{
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= ev->g->n) return an_fail(err, AN_E_USAGE, "ref: there is no node %d", (int)ids[i]);
        ev->needed[ids[i]] = true;
    }
    for (int32_t id = ev->g->n - 1; id >= 0; id--)
        for (int k = 0; ev->needed[id] && k < ev->g->node[id]->n_src; k++) ev->needed[ev->g->node[id]->src[k]] = true;
    for (int32_t id = 0; id < ev->g->n; id++)
        if (ev->needed[id]) AN_TRY(eval_at(err, ev, leaf, user, id));
    for (int i = 0; i < n; i++) {
        const struct an_tensor *t = ev->g->node[ids[i]];
        for (int64_t j = 0; j < t->numel; j++)
            out_values[i][j] = is_float(t) ? ev->value[ids[i]][0].d[j] : (double)ev->value[ids[i]][0].i[j];
    }
    return AN_OK;
}

an_status an_oracle_eval(an_err *err, const an_graph *g, const an_oracle_options *o, an_oracle_leaf_fn leaf, void *user,
                         const int32_t *ids, int n, double **out_values)
{
    evaluation ev = {.g = g, .o = o != NULL ? *o : (an_oracle_options){0}};
    ev.value = calloc((size_t)g->n + 1, sizeof *ev.value);
    ev.needed = calloc((size_t)g->n + 1, sizeof *ev.needed);
    an_status status = ev.value != NULL && ev.needed != NULL
                           ? eval_needed(err, &ev, leaf, user, ids, n, out_values)
                           : an_fail_nomem(err, "ref", (size_t)g->n * sizeof *ev.value);
    for (int32_t id = 0; ev.value != NULL && id < g->n; id++)
        for (int k = 0; k < 3; k++) free(ev.value[id][k].w);
    free(ev.value);
    free(ev.needed);
    return status;
}
