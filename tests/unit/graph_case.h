/* graph_case.h: a graph without a context or a device, for the tests of src/graph: leaves with data, evaluated by the
 * reference.
 *
 * Owns:     an an_ctx of these programs, which starts with its graph as the library's does (an_ctx_graph).
 * Does not: hold more than CASE_LEAVES leaves at a time. Every helper ends the running test when it cannot do its part.
 */
#ifndef AN_GRAPH_CASE_H
#define AN_GRAPH_CASE_H

#include "lib/test.h"

#include "base/text.h"
#include "oracle/oracle.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct an_ctx {
    an_graph g;
    an_err err;
};

enum { CASE_LEAVES = 16 };

typedef struct graph_case {
    an_ctx cx;
    an_graph *g;
    an_tensor *leaf[CASE_LEAVES]; /* persistent parameters and inputs */
    double *data[CASE_LEAVES];
    int n;
    an_oracle_options ref;
    uint32_t random;
} graph_case;

#define AT "case.c:7"

static inline void case_open(graph_case *c)
{
    memset(c, 0, sizeof *c);
    c->g = &c->cx.g;
    c->random = 12345;
    c->ref.rng_key = 77;
    assert_int_equal(an_graph_open(&c->cx.err, &c->cx, c->g), AN_OK);
}

static inline void case_close(graph_case *c)
{
    for (int i = 0; i < c->n; i++) free(c->data[i]);
    an_graph_close(c->g);
}

static inline double case_random(graph_case *c) /* [0,1) */
{
    c->random = c->random * 1664525u + 1013904223u;
    return (c->random >> 8) * 0x1p-24;
}

/* A leaf filled with numbers from [low, high); integers are rounded down. */
static inline an_tensor *case_leaf(graph_case *c, an_leaf kind, an_dtype t, an_shape s, double low, double high)
{
    int32_t shape[8] = {0};
    assert_true(c->n < CASE_LEAVES);
    for (int i = 0; i < s.rank; i++) shape[i] = (int32_t)s.dim[i];
    an_tensor *leaf = an_persistent(c->g, kind, c->n, t, s.rank, shape);
    assert_false(leaf->poison);
    double *data = malloc((size_t)(leaf->numel + 1) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < leaf->numel; i++) {
        data[i] = low + (high - low) * case_random(c);
        if (!an_dtype_is_float(t)) data[i] = floor(data[i]);
    }
    c->leaf[c->n] = leaf;
    c->data[c->n++] = data;
    return leaf;
}

#define PARAM(c, s, low, high) case_leaf(c, AN_LEAF_PARAM, AN_F64, s, low, high)

static inline an_status case_read(an_err *err, void *user, const an_tensor *leaf, void *out)
{
    const graph_case *c = user;
    (void)err;
    for (int64_t i = 0; i < leaf->numel; i++)
        if (an_dtype_is_float((an_dtype)leaf->dtype))
            ((double *)out)[i] = c->data[leaf->attr[1]][i];
        else
            ((int64_t *)out)[i] = (int64_t)c->data[leaf->attr[1]][i];
    return AN_OK;
}

/* The values of t; free() them. A building error ends the test with its sentence. */
static inline double *case_eval(graph_case *c, const an_tensor *t)
{
    if (c->cx.err.code != AN_OK) fail_msg("%s", c->cx.err.text);
    assert_false(t->poison);
    double *values = malloc((size_t)(t->numel + 1) * sizeof *values);
    assert_non_null(values);
    an_status status = an_oracle_eval(&c->cx.err, c->g, &c->ref, case_read, c, &t->id, 1, &values);
    if (status != AN_OK) fail_msg("%s", c->cx.err.text);
    return values;
}

static inline double case_item(graph_case *c, const an_tensor *t)
{
    double *values = case_eval(c, t), x = values[0];
    free(values);
    return x;
}

/* The ATTENTION node itself, in any dtype: an_attention of float64 is a formula of other nodes. */
static inline an_tensor *case_attention(an_tensor *q, an_tensor *k, an_tensor *v, double scale, bool causal,
                                        double dropout, an_tensor *behind) /* n_keys, or a mask */
{
    an_tensor *src[4] = {q, k, v, behind};
    const int n = behind ? 4 : 3;
    for (int i = 0; i < n; i++) src[i] = an_use(q->g, src[i], AT, "case_attention");
    int64_t attr[2] = {causal, dropout > 0 ? (int64_t)an_graph_stream(q->g) : 0};
    an_emit_args e = {.op = AN_OP_ATTENTION, .n_src = n, .src = src, .n_attr = 2, .attr = attr, .at = AT};
    e.imm[0] = scale != 0 ? scale : 1 / sqrt((double)q->shape[3]);
    e.imm[1] = dropout;
    return an_emit(q->g, &e);
}

/* sum(y * w), w of fixed random numbers: every element of y counts differently. y of any dtype. */
static inline an_tensor *case_loss(graph_case *c, an_tensor *y)
{
    if (y->poison) fail_msg("%s", c->cx.err.text);
    an_shape s = {.rank = y->rank};
    for (int i = 0; i < y->rank; i++) s.dim[i] = y->shape[i];
    an_tensor *w = case_leaf(c, AN_LEAF_INPUT, AN_F64, s, -1, 1);
    return an_sum_at(AT, an_mul_at(AT, an_cast_at(AT, y, AN_F64), w), AN_ALL, false);
}

#endif
