/* lab.h: one graph, run in every way the CPU can run it, compared bit for bit and with the oracle.
 *
 * Owns:      the ways (compiled, interpreted, one kernel an op, values apart between guards, exact mode; one thread or
 *            two), inputs, their data and the views they are read through, what equal means.
 * Does not:  know which graphs are worth running: tests/ops has a table, tests/random a generator.
 * Invariants: a build function gives the same graph and the same data every time it is called.
 */
#ifndef AN_TESTS_LAB_H
#define AN_TESTS_LAB_H

#include "lib/test.h"

#include "base/exact.h"
#include "base/rng.h"
#include "base/text.h"
#include "oracle/oracle.h"
#include "graph/graph.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT "lab.h:1"

enum { LAB_EXACT = 4, LAB_WAYS, LAB_ROOTS = 64, LAB_INPUTS = 512, LAB_SEED = 11, LAB_STEP = 3, LAB_SAMPLE = 5 };

/* What a root must be. `ulps` counts units of the result's last place; with a `scale` (a node of the same shape,
 * evaluated by the oracle only) it counts float epsilons of the sums' dtype times that: norm-wise. */
typedef struct lab_root {
    an_tensor *t, *scale;
    double ulps; /* < 0: the ways must agree, the oracle is not asked */
    bool
        sums_zeros; /* zeros beside its operands' elements are multiplied too: with NaN and infinities NaN, see anneal.h */
    char what[96];
} lab_root;

/* NaN, infinities, zeros of both signs and ties; or numbers whose sums overflow or are subnormal, for operations that
 * move and compare. */
typedef enum lab_spoil { LAB_PLAIN, LAB_SPECIAL, LAB_EXTREME } lab_spoil;

typedef struct lab {
    an_ctx *cx[LAB_WAYS];
    uint8_t covered[AN_N_OPS];
    long roots, elements, graphs, runs; /* runs: of roots, in all ways */
    unsigned skip;                      /* ways that are not run: bit w */
    /* of the graph being built */
    int views;       /* > 0: every operand is a view of what is stored: see lab_view */
    lab_spoil spoil; /* what is sown into every floating operand */
    an_ctx *now;
    uint64_t random;
    int n_roots, n_inputs;
    lab_root root[LAB_ROOTS];
    void *data[LAB_INPUTS];
    char why[1200];
} lab;

typedef void (*lab_build)(lab *l, const void *arg);

static const char *const lab_way_names[LAB_WAYS] = {"interpreted", "compiled", "unfused", "apart", "exact"};

static inline void lab_open(lab *l)
{
    memset(l, 0, sizeof *l);
    for (int w = 0; w < LAB_WAYS; w++) {
        an_options o = {
            .device = "cpu", .seed = LAB_SEED, .threads = w & 1 ? 2 : 1, .cc = w == 1 ? NULL : "none", .verify = true};
        if (w > 0 && getenv("AN_LAB_DEVICE")) o.device = getenv("AN_LAB_DEVICE"); /* another device: same bits */
        o.unfused = w == 2;
        o.place_apart = w == 3;
        o.recompute = w & 1 ? "on" : "off";
        o.exact = w == LAB_EXACT;
        l->cx[w] = an_open(&o);
        assert_non_null(l->cx[w]);
        if (an_error(l->cx[w])) fail_msg("%s", an_error(l->cx[w]));
    }
}

/* Apple GPUs have no float64: test_metal shows the refusal. */
static inline bool lab_takes(an_dtype t)
{
    const char *device = getenv("AN_LAB_DEVICE");
    return t != AN_F64 || !device || strcmp(device, "metal") != 0;
}

/* On CUDA the table is run twice (tests/cuda/on_gpu.sh). In exact mode (ANNEAL_EXACT=1) results have the CPU's bits,
 * and products of bf16 are refused; else libraries and tensor cores multiply, in an order of their own: only products
 * are run, each way held against the oracle alone. */
static inline bool lab_is_fast_cuda(void)
{
    const char *device = getenv("AN_LAB_DEVICE"), *exact = getenv("ANNEAL_EXACT");
    return device && !strcmp(device, "cuda") && !(exact && !strcmp(exact, "1"));
}

static inline bool lab_leaves_out(an_op op, an_dtype t)
{
    const char *device = getenv("AN_LAB_DEVICE");
    const bool product = op == AN_OP_MATMUL || op == AN_OP_ATTENTION || op == AN_OP_ATTENTION_GRAD ||
                         op == AN_OP_CONV2D || op == AN_OP_CONV2D_DX || op == AN_OP_CONV2D_DW ||
                         op == AN_OP_CONV2D_DW_IMAGES || op == AN_OP_GROUPED_MATMUL || op == AN_OP_GROUPED_OUTER;
    if (!device || strcmp(device, "cuda") != 0) return false;
    return lab_is_fast_cuda() ? !product : product && t == AN_BF16;
}

static inline void lab_forget(lab *l)
{
    for (int i = 0; i < l->n_inputs; i++) free(l->data[i]);
    l->n_inputs = l->n_roots = 0;
}

static inline void lab_close(lab *l)
{
    lab_forget(l);
    for (int w = 0; w < LAB_WAYS; w++) an_close(l->cx[w]);
}

/* ---- numbers */

static inline uint64_t lab_word(lab *l)
{
    l->random = l->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = l->random;
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

static inline double lab_uniform(lab *l) /* [0,1) */
{
    return (double)(lab_word(l) >> 11) * 0x1p-53;
}

static inline double lab_get(int dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case AN_F32: return (double)((const float *)p)[i];
    case AN_F64: return ((const double *)p)[i];
    case AN_BF16: return (double)an_bf16_to_f32(((const uint16_t *)p)[i]);
    case AN_F16: return (double)an_f16_to_f32(((const uint16_t *)p)[i]);
    case AN_I32: return ((const int32_t *)p)[i];
    case AN_I64: return (double)((const int64_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

static inline void lab_put(int dtype, void *p, int64_t i, double x)
{
    switch (dtype) {
    case AN_F32: ((float *)p)[i] = (float)x; break;
    case AN_F64: ((double *)p)[i] = x; break;
    case AN_BF16: ((uint16_t *)p)[i] = (uint16_t)an_f32_to_bf16((float)x); break;
    case AN_F16: ((uint16_t *)p)[i] = (uint16_t)an_f32_to_f16((float)x); break;
    case AN_I32: ((int32_t *)p)[i] = x >= INT32_MAX ? INT32_MAX : x <= INT32_MIN ? INT32_MIN : (int32_t)x; break;
    case AN_I64: ((int64_t *)p)[i] = x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x; break;
    case AN_U8: ((uint8_t *)p)[i] = (uint8_t)(int64_t)x; break;
    default: ((uint8_t *)p)[i] = x != 0; break;
    }
}

static inline int64_t lab_numel(an_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= s.dim[i];
    return n;
}

enum { LAB_VIEWS = 4 }; /* transposed, every second element of a wider tensor, flipped, expanded */

static inline void lab_sow(lab *l, an_dtype t, void *data, int64_t numel)
{
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0, -0.0, 1, 1, -2},
                        extreme[] = {3e38, -3e38, 65504, 1e-40, -1e-40, 6e-8, 0, -0.0};
    if (l->spoil == LAB_PLAIN || !an_dtype_is_float(t)) return;
    for (int64_t i = (int64_t)(lab_word(l) % 5); i < numel; i += 1 + (int64_t)(lab_word(l) % 31))
        lab_put(t, data, i, (l->spoil == LAB_SPECIAL ? special : extreme)[lab_word(l) % AN_COUNT(special)]);
}

/* The numbers of `data`, of shape s, as a view of an input that stores them otherwise; an expanded one has the first
 * numbers of axis 0 throughout. Kinds go round: over as many passes as there are kinds, every operand comes in each. */
static inline an_tensor *lab_view(lab *l, an_dtype t, an_shape s, void **data)
{
    const int kind = (l->views + l->n_inputs) % LAB_VIEWS;
    const size_t size = an_dtype_size(t);
    an_shape stored = s;
    int64_t step[8] = {0}, at = 0, numel = 1;
    for (int i = 0; i < s.rank; i++)
        stored.dim[i] = kind == 0   ? s.dim[s.rank - 1 - i]
                        : kind == 1 ? 2 * s.dim[i] + 1
                        : kind == 3 ? (i == 0 && s.dim[0] > 0 ? 1 : s.dim[i])
                                    : s.dim[i];
    for (int i = s.rank - 1; i >= 0; numel *= stored.dim[i--]) step[kind == 0 ? s.rank - 1 - i : i] = numel;
    for (int i = 0; i < s.rank; i++) {
        if (kind == 1) at += step[i], step[i] *= 2;
        if (kind == 2 && s.dim[i] > 0) at += (s.dim[i] - 1) * step[i], step[i] = -step[i];
        if (kind == 3 && i == 0) step[i] = 0;
    }
    char *raw = calloc((size_t)numel + 1, size);
    assert_non_null(raw);
    for (int64_t n = lab_numel(s), i = n - 1; i >= 0; i--) { /* backwards: of equal places the first number stays */
        int64_t to = at, rest = i;
        for (int d = s.rank - 1; d >= 0; rest /= s.dim[d--]) to += rest % s.dim[d] * step[d];
        memcpy(raw + (size_t)to * size, (char *)*data + (size_t)i * size, size);
    }
    free(*data);
    *data = raw;
    an_tensor *x = an_input_at(AT, l->now, t, stored, raw);
    if (kind == 0) {
        an_shape perm = s;
        for (int i = 0; i < s.rank; i++) perm.dim[i] = s.rank - 1 - i;
        return an_permute_at(AT, x, perm);
    }
    for (int i = 0; kind == 1 && i < s.rank; i++) x = an_slice_at(AT, x, i, 1, 2 * s.dim[i] + 1, 2);
    if (kind == 2) return an_flip_at(AT, x, AN_ALL);
    return kind == 3 ? an_expand_at(AT, x, s) : x;
}

/* An input of numbers from [low, high), whole ones for integers; `special` numbers first (cyclic offset `turn`). */
static inline an_tensor *lab_input(lab *l, an_dtype t, an_shape s, double low, double high, const double *special,
                                   int n_special, int turn)
{
    int64_t numel = lab_numel(s);
    assert_true(l->n_inputs < LAB_INPUTS);
    void *data = l->data[l->n_inputs++] = calloc((size_t)numel + 1, an_dtype_size(t));
    assert_non_null(data);
    for (int64_t i = 0; i < numel; i++) {
        double x = low + (high - low) * lab_uniform(l);
        if (i < (int64_t)n_special * n_special) x = turn ? special[i / n_special] : special[i % n_special];
        lab_put(t, data, i, an_dtype_is_float(t) ? x : floor(x));
    }
    if (!special) lab_sow(l, t, data, numel);
    if (l->views > 0 && s.rank > 0) return lab_view(l, t, s, &l->data[l->n_inputs - 1]);
    return an_input_at(AT, l->now, t, s, data);
}

static inline an_tensor *lab_fill(lab *l, an_dtype t, an_shape s, double low, double high)
{
    return lab_input(l, t, s, low, high, NULL, 0, 0);
}

static inline void lab_root_scaled(lab *l, an_tensor *t, double ulps, an_tensor *scale, const char *what)
{
    assert_true(l->n_roots < LAB_ROOTS);
    lab_root *r = &l->root[l->n_roots++];
    *r = (lab_root){.t = t, .ulps = ulps, .scale = scale};
    snprintf(r->what, sizeof r->what, "%s", what);
}

/* ---- the oracle's side */

static inline an_status lab_leaf(an_err *err, void *user, const an_tensor *leaf, void *out)
{
    const lab *l = user;
    if (leaf->attr[0] != AN_LEAF_INPUT) return an_fail(err, AN_E_USAGE, "lab: a leaf that is no input");
    const void *data = l->data[leaf->attr[1]];
    for (int64_t i = 0; i < leaf->numel; i++)
        if (an_dtype_is_float((an_dtype)leaf->dtype))
            ((double *)out)[i] = lab_get(leaf->dtype, data, i);
        else if (leaf->dtype == AN_I64)
            ((int64_t *)out)[i] = ((const int64_t *)data)[i];
        else
            ((int64_t *)out)[i] = (int64_t)lab_get(leaf->dtype, data, i);
    return AN_OK;
}

/* One unit of x's last place in a dtype; integers: 1. */
static inline double lab_ulp(int dtype, double x)
{
    static const struct {
        int digits, least;
    } f[] = {[AN_F32] = {24, -126}, [AN_BF16] = {8, -126}, [AN_F16] = {11, -14}, [AN_F64] = {53, -1022}};
    if (!an_dtype_is_float((an_dtype)dtype)) return 1;
    int e;
    frexp(x, &e);
    if (x == 0 || e - 1 < f[dtype].least) e = f[dtype].least + 1;
    return ldexp(1, e - f[dtype].digits);
}

/* Results about the smallest normal number may be zero (base/exact.h); above the largest, infinite. */
static inline bool lab_near(int dtype, double got, double want, double ulps, double scale)
{
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
    if (got == want) return true;
    double top = dtype == AN_F32 ? FLT_MAX : dtype == AN_BF16 ? 0x1.FEp127 : dtype == AN_F16 ? 65504 : DBL_MAX;
    if (isinf(got))
        return an_dtype_is_float((an_dtype)dtype) && fabs(want) > top * (1 - 0x1p-20) && (want > 0) == (got > 0) &&
               dtype != AN_F64;
    double unit = lab_ulp(dtype, want), room = ulps * unit;
    if (scale >= 0) room = ulps * scale * (dtype == AN_F64 ? DBL_EPSILON : (double)FLT_EPSILON) + unit;
    if (an_dtype_is_float((an_dtype)dtype) && dtype != AN_F16)
        room += 2 * (dtype == AN_F64 ? DBL_MIN : (double)FLT_MIN);
    return fabs(got - want) <= room;
}

static inline bool lab_against_oracle(lab *l, void *const *raw)
{
    const an_graph *g = an_ctx_graph(l->cx[0]);
    an_oracle_options o = {.rng_key = an_rng_key(LAB_SEED, LAB_STEP), .first_sample = LAB_SAMPLE};
    int32_t ids[2 * LAB_ROOTS];
    double *values[2 * LAB_ROOTS];
    int n = 0;
    an_err err = {0};
    for (int r = 0; r < l->n_roots; r++)
        for (int k = 0; k < 2; k++) {
            an_tensor *t = k ? l->root[r].scale : l->root[r].t;
            if (!t || l->root[r].ulps < 0) continue;
            ids[n] = t->leaf_id >= 0 && t->id < 0 ? t->leaf_id : t->id;
            values[n] = calloc((size_t)t->numel + 1, sizeof(double));
            assert_non_null(values[n++]);
        }
    bool good = an_oracle_eval(&err, g, &o, lab_leaf, l, ids, n, values) == AN_OK;
    if (!good) snprintf(l->why, sizeof l->why, "oracle: %s", err.text);
    for (int r = 0, v = 0; r < l->n_roots; r++) {
        const lab_root *x = &l->root[r];
        if (x->ulps < 0) continue;
        const double spare = x->t->dtype == AN_F64 && getenv("AN_LAB_DEVICE") ? 2 : 0; /* its own functions */
        const double *want = values[v++], *scale = x->scale ? values[v++] : NULL;
        for (int64_t i = 0; good && i < x->t->numel; i++) {
            double got = lab_get(x->t->dtype, raw[r], i);
            good = lab_near(x->t->dtype, got, want[i], x->ulps + spare, scale ? scale[i] : -1) ||
                   (x->sums_zeros && isnan(got));
            if (!good)
                snprintf(l->why, sizeof l->why,
                         "%s (%s): element %lld is %.17g, the oracle says %.17g: %.3g ulp, allowed %g", x->what,
                         an_dtype_text((an_dtype)x->t->dtype), (long long)i, got, want[i],
                         fabs(got - want[i]) / lab_ulp(x->t->dtype, want[i]), x->ulps);
        }
        l->elements += x->t->numel;
    }
    for (int i = 0; i < n; i++) free(values[i]);
    return good;
}

/* ---- running */

/* A GPU may flush subnormal results, and exact mode does. */
static inline bool lab_is_flushed(int dtype, double x, double y)
{
    const double least = dtype == AN_F64 ? DBL_MIN : (double)FLT_MIN;
    return an_dtype_is_float((an_dtype)dtype) && dtype != AN_F16 && fabs(x) < least && fabs(y) < least;
}

/* Of all roots, or of those for which `only` is `which`. */
static inline bool lab_same_bits_as(lab *l, int way, int like, void *const *raw, void *const *first, const bool *only,
                                    bool which)
{
    for (int r = 0; r < l->n_roots; r++) {
        const an_tensor *t = l->root[r].t;
        size_t size = an_dtype_size((an_dtype)t->dtype);
        for (int64_t i = 0; i < t->numel && (!only || only[r] == which); i++) {
            const char *a = (const char *)raw[r] + (size_t)i * size, *b = (const char *)first[r] + (size_t)i * size;
            double x = lab_get(t->dtype, a, 0), y = lab_get(t->dtype, b, 0);
            if (!memcmp(a, b, size) || (isnan(x) && isnan(y))) continue; /* C does not say which NaN */
            if ((getenv("AN_LAB_DEVICE") || way == LAB_EXACT) && lab_is_flushed(t->dtype, x, y)) continue;
            snprintf(l->why, sizeof l->why, "%s (%s): element %lld is %.17g %s, %.17g %s", l->root[r].what,
                     an_dtype_text((an_dtype)t->dtype), (long long)i, x, lab_way_names[way], y, lab_way_names[like]);
            return false;
        }
    }
    return true;
}

static inline bool lab_same_bits(lab *l, int way, void *const *raw, void *const *first)
{
    return lab_same_bits_as(l, way, 0, raw, first, NULL, false);
}

static inline bool lab_eval(lab *l, int way, void **raw)
{
    an_tensor *roots[LAB_ROOTS];
    for (int r = 0; r < l->n_roots; r++) roots[r] = l->root[r].t;
    bool good = an_eval_at(AT, roots, l->n_roots) == AN_OK;
    for (int r = 0; good && r < l->n_roots; r++) {
        size_t bytes = (size_t)roots[r]->numel * an_dtype_size((an_dtype)roots[r]->dtype);
        raw[r] = calloc(1, bytes + 1);
        assert_non_null(raw[r]);
        good = an_read_at(AT, roots[r], raw[r], bytes) == AN_OK;
    }
    if (!good)
        snprintf(l->why, sizeof l->why, "%s: %s", lab_way_names[way],
                 an_error(l->cx[way]) ? an_error(l->cx[way]) : "failed without a sentence");
    return good;
}

/* Notes the ops that the roots are made of. */
static inline void lab_mark(lab *l, const an_graph *g)
{
    uint8_t *used = calloc((size_t)g->n + 1, 1);
    assert_non_null(used);
    for (int r = 0; r < l->n_roots; r++)
        if (l->root[r].t->id >= 0) used[l->root[r].t->id] = 1;
    for (int32_t id = g->n - 1; id >= 0; id--) {
        if (!used[id]) continue;
        l->covered[g->node[id]->op] = 1;
        for (int i = 0; i < g->node[id]->n_src; i++) used[g->node[id]->src[i]] = 1;
    }
    free(used);
}

/* Products of 16-bit operands are sums in the order of a device's matrix unit, and in float64 a device has elementary
 * functions of its own: there the CPU's bits and another device's may differ, and both are held against the oracle. */
static inline bool lab_is_the_devices(const an_graph *g, const struct an_tensor *n)
{
    const bool conv = n->op == AN_OP_CONV2D || n->op == AN_OP_CONV2D_DX || n->op == AN_OP_CONV2D_DW ||
                      n->op == AN_OP_CONV2D_DW_IMAGES;
    if (n->dtype == AN_F64) return true;
    if (!conv && n->op != AN_OP_MATMUL && n->op != AN_OP_ATTENTION && n->op != AN_OP_ATTENTION_GRAD &&
        n->op != AN_OP_GROUPED_MATMUL && n->op != AN_OP_GROUPED_OUTER)
        return false;
    for (int i = 0; i < n->n_src; i++)
        if (g->node[n->src[i]]->dtype == AN_BF16 || g->node[n->src[i]]->dtype == AN_F16) return true;
    return false;
}

/* The roots that such nodes lead to. */
static inline void lab_find_own(const lab *l, const an_graph *g, bool own[LAB_ROOTS])
{
    bool *is = calloc((size_t)g->n + 1, sizeof *is);
    assert_non_null(is);
    for (int32_t id = 0; id < g->n; id++) {
        const struct an_tensor *n = g->node[id];
        is[id] = lab_is_the_devices(g, n);
        for (int i = 0; i < n->n_src; i++) is[id] |= is[n->src[i]];
    }
    for (int r = 0; r < l->n_roots; r++)
        own[r] = l->root[r].sums_zeros || (l->root[r].t->id >= 0 && is[l->root[r].t->id]);
    free(is);
}

/* Exact mode refuses products of bfloat16. */
static inline bool lab_is_refused_exact(const an_graph *g)
{
    for (int32_t id = 0; id < g->n; id++)
        if (g->node[id]->dtype != AN_F64 && lab_is_the_devices(g, g->node[id]))
            for (int i = 0; i < g->node[id]->n_src; i++)
                if (g->node[g->node[id]->src[i]]->dtype == AN_BF16) return true;
    return false;
}

static inline void lab_build_in(lab *l, int way, uint64_t seed, lab_build build, const void *arg)
{
    lab_forget(l);
    l->now = l->cx[way];
    l->random = seed * 0x9E3779B97F4A7C15u + 1;
    an_reset(l->now);
    an_set_step(l->now, LAB_STEP);
    an_set_sample(l->now, LAB_SAMPLE);
    build(l, arg);
}

/* AN_LAB_PART=i/n: of all graphs every nth, from the ith on: several programs share the table. */
static inline bool lab_is_ours(lab *l)
{
    const char *part = getenv("AN_LAB_PART"), *of = part ? strchr(part, '/') : NULL;
    const long n = of ? strtol(of + 1, NULL, 10) : 1;
    return n < 2 || l->graphs++ % n == strtol(part, NULL, 10) % n;
}

/* Builds and runs the graph in every way. False: l->why says what differs (the graph of way 0 is still there). */
static inline bool lab_run(lab *l, uint64_t seed, lab_build build, const void *arg)
{
    void *raw[LAB_WAYS][LAB_ROOTS] = {{0}};
    bool good = true, ours = lab_is_ours(l);
    l->why[0] = 0;
    if (!ours) { /* known to the list of what is covered */
        lab_build_in(l, 0, seed, build, arg);
        lab_mark(l, an_ctx_graph(l->cx[0]));
        return true;
    }
    for (int w = 0; w < LAB_WAYS && good; w++) {
        if (l->skip >> w & 1 || (w == LAB_EXACT && getenv("AN_LAB_DEVICE"))) continue;
        lab_build_in(l, w, seed, build, arg);
        if (w == LAB_EXACT && lab_is_refused_exact(an_ctx_graph(l->cx[w]))) continue;
        good = lab_eval(l, w, raw[w]);
        l->runs += l->n_roots;
        if (w == 0 || !good) continue;
        if (lab_is_fast_cuda()) {
            good = lab_against_oracle(l, raw[w]);
            continue;
        }
        bool own[LAB_ROOTS] = {0};
        if (getenv("AN_LAB_DEVICE")) lab_find_own(l, an_ctx_graph(l->cx[w]), own);
        good = lab_same_bits_as(l, w, 0, raw[w], raw[0], own, false) &&
               lab_same_bits_as(l, w, 1, raw[w], raw[1], own, true);
        if (w == 1 && good && getenv("AN_LAB_DEVICE")) good = lab_against_oracle(l, raw[1]);
    }
    if (good) { /* the roots of the last build have the ids of the first one's: ask way 0's graph */
        lab_build_in(l, 0, seed, build, arg);
        good = lab_against_oracle(l, raw[0]);
        lab_mark(l, an_ctx_graph(l->cx[0]));
        l->roots += l->n_roots;
    }
    for (int w = 0; w < LAB_WAYS; w++)
        for (int r = 0; r < LAB_ROOTS; r++) free(raw[w][r]);
    return good;
}

#endif
