/* oracle.h: the oracle evaluates nodes of a graph one by one, in double and int64, with the plainest loops.
 *
 * Owns:     the meaning of every op, written a second time, without the kernels' functions.
 * Does not: plan, fuse, parallelize, or reproduce bits. Reductions add in index order in double, and libm is used.
 *           Tests compare within tolerances that follow from the dtype. It is never part of a training plan.
 *
 * Invariants:
 *   - Floating values are doubles; integers and bools are int64_t.
 *   - Nodes of bf16, f16 and integer dtypes hold only values of their dtype: each node rounds, as its kernel would.
 *   - f32 and f64 nodes are not rounded unless the options ask for it.
 *   - RAND and dropout give exactly the kernels' numbers (base/rng.h).
 */
#ifndef AN_ORACLE_ORACLE_H
#define AN_ORACLE_ORACLE_H

#include "graph/graph.h"

/* Writes the leaf's numel values to `out`: double for floats, int64_t for integers and bools. */
typedef an_status (*an_oracle_leaf_fn)(an_err *err, void *user, const struct an_tensor *leaf, void *out);
/* The element of PACK node `pack` where its source number `i` starts. */
typedef int64_t (*an_oracle_pack_fn)(void *user, const struct an_tensor *pack, int i);

typedef struct an_oracle_options { /* zero: the default */
    bool round_f32;                /* f32 nodes round, too */
    bool round_nothing;            /* bf16 and f16 do not: finite differences need smooth functions */
    uint32_t rng_key;              /* an_rng_key(seed, step) */
    uint64_t first_sample;         /* the global number of sample 0 */
    an_oracle_pack_fn pack;        /* required if the graph has a PACK */
} an_oracle_options;

/* Writes the values of nodes ids[0..n) to out_values[i] [numel], as doubles for every dtype. `o` may be NULL. */
an_status an_oracle_eval(an_err *err, const an_graph *g, const an_oracle_options *o, an_oracle_leaf_fn leaf, void *user,
                         const int32_t *ids, int n, double **out_values);

/* ---- shared by oracle.c, oracle_linalg.c and loop_oracle.c */
double an_oracle_elem(int op, double a, double b, double c); /* an elementwise op but WHERE; comparisons give 0 or 1 */
int64_t an_oracle_elem_int(int op, int64_t a, int64_t b, int64_t c);
double an_oracle_round(const an_oracle_options *o, an_dtype t, double x); /* to a floating dtype */
int64_t an_oracle_round_int(an_dtype t, int64_t x);
int64_t an_oracle_to_int(an_dtype t, double x); /* truncates and saturates */

typedef union an_oracle_value { /* 8 bytes an element of any dtype */
    double *d;
    int64_t *i;
    uint64_t *w;
} an_oracle_value;

typedef struct an_oracle_node {
    const struct an_tensor *n, *src[UINT8_MAX];
    an_oracle_value in[UINT8_MAX], out[3];
    const an_oracle_options *o;
} an_oracle_node;

/* Windows, attention and calls; out[] are zeroed. */
an_status an_oracle_call(an_err *err, an_oracle_node *r);

#endif
