/* build.h: node constructors: the functions with which public functions, composites and gradients are written. Private to
 * src/graph.
 *
 * Owns:       nothing. Every function takes tensors already resolved by an_enter (or made by another function here),
 *             finds the graph in them and the place in g->at, and returns a node or the poison node, never NULL.
 * Invariant:  elementwise constructors broadcast by explicit RESHAPE and EXPAND nodes; dtypes must agree.
 */
#ifndef AN_GRAPH_BUILD_H
#define AN_GRAPH_BUILD_H

#include "graph/graph.h"

/* Starts a public function: resolves operands [0, n) in place (NULL is an error in the first `required`, skipped after
 * them) and notes caller and name in their graph. False: t[0] is the poison node to return. */
bool an_enter(const char *at, const char *name, int n, int required, an_tensor **t);
/* The same for a function with a context instead of operands; NULL: nothing can be recorded. */
an_graph *an_enter_ctx(const char *at, const char *name, an_ctx *cx);
/* Records the error "at: doing: sentence in scope" from g->at and g->doing; returns the poison node. */
an_tensor *an_refuse(an_graph *g, an_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Notes that `index`, when it is an input's data as it was given, must lie in [0, limit), or below when `negative_too`.
 */
void an_expect_ids(an_tensor *index, int64_t limit, bool negative_too);
/* What a sentence calls the operation `op` emitted at `at`: the public function, or an_ and the op's name in `out`
 * [32]. */
const char *an_doing(const an_graph *g, an_op op, const char *at, char *out);
/* An error on the way, and the poison node for when there is no graph at all. */
an_tensor *an_poison_of(an_graph *g);

static inline an_tensor *an_node(const an_graph *g, int32_t id)
{
    return g->node[id];
}
static inline an_tensor *an_src(const an_tensor *t, int i)
{
    return t->g->node[t->src[i]];
}
int64_t an_count(int rank, const int32_t *shape);         /* elements; -1: too many */
int32_t an_merge(const int32_t *shape, int from, int to); /* axes [from,to) as one; -1: too long */
bool an_same_shape(const an_tensor *a, const an_tensor *b);

/* True for a node whose every element is one number: a CONST under any view ops. Floats in *x, integers and bools in *i
 * (and *x). */
bool an_uniform(const an_tensor *t, double *x, int64_t *i);
/* A number of a dtype as CONST holds it: floats rounded to it, integers saturated. */
double an_round_to(an_dtype t, double x);
int64_t an_wrap_to(an_dtype t, int64_t i);

/* fold.c: the node that `e` (checked; result dtype and shape given) equals, or NULL. */
an_tensor *an_fold(an_graph *g, const an_emit_args *e, an_dtype dtype, int rank, const int32_t *shape);

/* ---- node constructors */
an_tensor *an_make_num(an_tensor *like, double x); /* rank 0, in like's dtype */
an_tensor *an_make_full(an_graph *g, an_dtype t, int rank, const int32_t *shape, double x, int64_t i);
an_tensor *an_make_iota(an_graph *g, int rank, const int32_t *shape, int axis);
an_tensor *an_make_rand(an_graph *g, int rank, const int32_t *shape);
an_tensor *an_make_shared_rand(an_graph *g, int rank,
                               const int32_t *shape); /* the same for every micro-batch and rank of a step */
an_tensor *an_make1(an_op op, an_tensor *a);
an_tensor *an_make2(an_op op, an_tensor *a, an_tensor *b);
an_tensor *an_make3(an_op op, an_tensor *a, an_tensor *b, an_tensor *c);
an_tensor *an_make_cast(an_tensor *a, an_dtype t);
an_tensor *an_make_reshape(an_tensor *a, int rank, const int32_t *shape);
an_tensor *an_make_like(an_tensor *a, const an_tensor *shape_of); /* reshape to its shape */
an_tensor *an_make_expand(an_tensor *a, int rank, const int32_t *shape);
an_tensor *an_make_broadcast(an_tensor *a, int rank, const int32_t *shape); /* reshape to the rank, then expand */
an_tensor *an_make_permute(an_tensor *a, const int *perm);
/* Weights w [O,KH,KW,C/groups] of a convolution as [groups,KH,KW,O/groups,C/groups], CONV2D_DX's operand: what it sums (taps, outputs) is then
 * one axis in memory. */
an_tensor *an_make_taps_first(an_tensor *w, int32_t groups);
an_tensor *an_make_swap(an_tensor *a, int axis1, int axis2);
an_tensor *an_make_slice(an_tensor *a, int axis, int64_t start, int64_t length, int64_t step);
an_tensor *an_make_pad(an_tensor *a, int axis, int64_t before, int64_t after, double value);
an_tensor *an_make_flip(an_tensor *a, uint32_t mask);
an_tensor *an_make_concat(an_graph *g, an_tensor *const *parts, int n, int axis);
an_tensor *an_make_matmul(an_tensor *a, an_tensor *b, an_dtype result); /* equal batch axes */
an_tensor *an_make_gather(an_tensor *table, an_tensor *index);
an_tensor *an_make_ids(an_tensor *index, int64_t rows); /* clamped into [0, rows) unless they are an input's */
an_tensor *an_make_scatter(an_tensor *index, an_tensor *src, int64_t rows);
an_tensor *an_make_scatter_onto(an_tensor *scatter, an_tensor *onto);
an_tensor *an_make_call(an_op op, int n_src, an_tensor *const *src, int n_attr, const int64_t *attr);
an_tensor *an_make_pick(an_tensor *a, int k);
an_tensor *an_make_all_gather(an_tensor *a); /* [ranks,...]: of each rank */

void an_put_aside(an_tensor *left);
an_tensor *an_make2_after(an_op op, an_tensor *right); /* with the tensor put aside last; MATMUL too, in its dtype */
an_tensor *an_make3_after(an_op op, an_tensor *right);

/* A total of more than AN_TOTAL_MOST elements is that of the sums of its chunks of AN_TOTAL_CHUNK. */
enum { AN_TOTAL_MOST = 8192, AN_TOTAL_CHUNK = 4096 };
/* x [O,R,I] over axis 1 to [O,1,I], split as the specification says (compose.c). op is SUM or MAX. */
an_tensor *an_make_reduce3(an_op op, an_tensor *x);
/* Over a mask of axes (bit i is axis i), any rank; length-1 axes stay when `keep`. */
an_tensor *an_make_reduce(an_op op, an_tensor *a, uint32_t mask, bool keep);
/* Axis -1 is the last. Returns -1 (and says so) for one that `t` does not have. */
int an_axis_of(an_tensor *t, int axis);
an_tensor *an_make_rows(an_tensor *a, int axis); /* [O,R,I] around `axis` */
/* Gives `out` a hand-written gradient. */
void an_set_rule(an_tensor *out, an_rule_kind kind, const an_tensor *x, const an_tensor *aux);

#define NUM(like, v) an_make_num(like, v)
#define CAST(x, t)   an_make_cast(x, t)
#define NEG(x)       an_make1(AN_OP_NEG, x)
#define SIGN(x)      an_make1(AN_OP_SIGN, x)
#define FLOOR(x)     an_make1(AN_OP_FLOOR, x)
#define EXP(x)       an_make1(AN_OP_EXP, x)
#define LOG(x)       an_make1(AN_OP_LOG, x)
#define LOG1P(x)     an_make1(AN_OP_LOG1P, x)
#define SIN(x)       an_make1(AN_OP_SIN, x)
#define COS(x)       an_make1(AN_OP_COS, x)
#define TANH(x)      an_make1(AN_OP_TANH, x)
#define ERF(x)       an_make1(AN_OP_ERF, x)
#define SIGMOID(x)   an_make1(AN_OP_SIGMOID, x)
#define RSQRT(x)     an_make1(AN_OP_RSQRT, x)
#define RECIP(x)     an_make1(AN_OP_RECIP, x)
#define ABS(x)       an_make1(AN_OP_ABS, x)
#define ISFINITE(x)  an_make1(AN_OP_ISFINITE, x)

/* C leaves the order of arguments open, and compilers differ; ids, and with them the order in which gradients are
 * added, must not. A comma fixes it: the left operand is built and put aside, then the right one. */
#define an_in_order2(op, x, y) (an_put_aside(x), an_make2_after(op, y))
#define ADD(x, y)              an_in_order2(AN_OP_ADD, x, y)
#define SUB(x, y)              an_in_order2(AN_OP_SUB, x, y)
#define MUL(x, y)              an_in_order2(AN_OP_MUL, x, y)
#define DIV(x, y)              an_in_order2(AN_OP_DIV, x, y)
#define POW(x, y)              an_in_order2(AN_OP_POW, x, y)
#define MAXIMUM(x, y)          an_in_order2(AN_OP_MAXIMUM, x, y)
#define EQ(x, y)               an_in_order2(AN_OP_EQ, x, y)
#define LT(x, y)               an_in_order2(AN_OP_LT, x, y)
#define LE(x, y)               an_in_order2(AN_OP_LE, x, y)
#define AND(x, y)              an_in_order2(AN_OP_AND, x, y)
#define MM(x, y)               an_in_order2(AN_OP_MATMUL, x, y)
#define WHERE(x, y, z)         (an_put_aside(x), an_put_aside(y), an_make3_after(AN_OP_WHERE, z))
#define SUM3(x)                an_make_reduce3(AN_OP_SUM, x)
#define MAX3(x)                an_make_reduce3(AN_OP_MAX, x)

#endif
