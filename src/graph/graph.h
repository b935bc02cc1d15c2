/* graph.h: the graph of tensor operations. A tensor is a node in an array; the array is in topological order.
 *
 * Owns:       nodes, their emission (simplification, common-subexpression elimination), shapes, composites, autograd,
 *             printing.
 * Does not:   know kernels, devices, memory or time. No function here runs anything.
 * Invariants: a node's sources have smaller ids; nodes never move and never change once appended; random nodes never
 *             merge. Reductions are rank 3, [O,R,I] over axis 1, and keep that axis with length 1; broadcasting is an
 *             EXPAND node; dtypes are never promoted implicitly. A function that fails records one error and returns the
 *             poison node; operations on poison return poison.
 */
#ifndef AN_GRAPH_GRAPH_H
#define AN_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/base.h"
#include "base/map.h"

#define AN_MAX_RANK 8

typedef enum an_op {
#define AN_ELEM(NAME, ...) AN_OP_##NAME,
#define AN_OP(NAME, ...)   AN_OP_##NAME,
#include "graph/ops.def"
    AN_N_OPS
} an_op;

typedef enum an_class {
    AN_CLS_ELEM,
    AN_CLS_LEAF,
    AN_CLS_CAST,
    AN_CLS_MOVE,
    AN_CLS_REDUCE,
    AN_CLS_MATMUL,
    AN_CLS_INDEX,
    AN_CLS_ATTENTION,
    AN_CLS_WINDOW,
    AN_CLS_CALL,
    AN_CLS_PICK,
    AN_CLS_EFFECT,
    AN_CLS_COLLECTIVE
} an_class;

typedef enum an_domain { AN_DOM_FLOAT, AN_DOM_NUMBER, AN_DOM_INT, AN_DOM_BOOL, AN_DOM_BITS, AN_DOM_ANY } an_domain;
typedef enum an_result { AN_RES_SAME, AN_RES_BOOL } an_result;

typedef struct an_op_info {
    const char *name; /* "ADD" */
    an_class cls;
    int8_t arity; /* -1: any number */
    int8_t outputs;
    bool has_grad;       /* false: declared none */
    an_domain domain;    /* ELEM only */
    an_result result;    /* ELEM only */
    const char *kernel;  /* ELEM only: the expression's text over a, b, c */
    const char *meaning; /* others */
} an_op_info;
extern const an_op_info an_ops[AN_N_OPS];

/* What a LEAF refers to: attr[0]; attr[1] is the index in the context's table of that kind. */
typedef enum an_leaf { AN_LEAF_PARAM, AN_LEAF_STATE, AN_LEAF_INPUT, AN_LEAF_SCALAR, AN_LEAF_BLOCK } an_leaf;

typedef struct an_graph an_graph;

/* Before an_backward; the gradients, also those built later when first asked for; what reads them: the optimizer. */
typedef enum an_phase { AN_PHASE_FORWARD, AN_PHASE_BACKWARD, AN_PHASE_UPDATE } an_phase;

struct an_tensor { /* a node */
    an_graph *g;
    int32_t id;  /* place in the array; -1: poison or persistent (see `leaf_epoch`) */
    uint16_t op; /* an_op */
    uint8_t dtype, rank;
    uint8_t n_src, n_attr; /* PACK and CONCAT: up to 255 sources... more are nested (CONCAT) or chained (PACK) */
    uint8_t poison;
    /* Belongs to one chunk of a chunked loss: launched only when its result is first needed (schedule.c), so that one
     * chunk is live at a time. Not part of hash or key. */
    uint8_t deferred;
    int32_t scope; /* index into g->scopes */
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    const int32_t *src;  /* ids [n_src] */
    const int64_t *attr; /* [n_attr] */
    double imm[2];
    int64_t imm_i;  /* CONST of an integer dtype */
    const char *at; /* "file.c:88", where the user wrote it; may be NULL */
    uint64_t hash;
    /* persistent tensors (parameters, states): not in the array; their LEAF is appended at first use after a reset */
    /* of a parameter: the state with its values in the policy's dtype (an_round_weights), or NULL */
    struct an_tensor *rounded;
    bool narrow; /* a parameter declared in float32 and kept in 16 bits (an_policy.weights): its readers get float32 */
    int32_t leaf_id;
    uint32_t leaf_epoch; /* persistent: epoch in which leaf_id is right; a node: the epoch it was made in */
    int32_t rule; /* g->rules[rule - 1] is the gradient of this composite's output; 0: none. Not part of hash or key */
    /* The expression as it was built, before simplification: for the gradients of intermediates (an_folded). Not part
     * of hash or key. */
    int32_t folded;                  /* 0: a node of the array; else this is g->folded[folded - 1].t */
    const int32_t *sources_as_built; /* [n_src] a node's id, or -number of a folded tensor; NULL: the same as src */
    uint8_t phase;                   /* an_phase in which it was appended. Not part of hash or key */
    bool has_folded; /* a folded tensor equals this node or reads it: readers' `src` lists do not show all its uses */
};

/* A tensor that was folded or merged into another node, with its expression as it was built. In
 *
 *     h = permute(x); y = permute(h); loss = f(y)
 *
 * y is folded to x, so no node reads h, and yet the caller may ask for the gradient of h. y is then a folded tensor: it
 * has x's id, so that every computation reads x, but keeps the op, attributes and sources {PERMUTE, h} that it was built
 * with. f's node has x in `src` and y in `sources_as_built`. The gradients that update parameters follow `src`;
 * an_graph_grad of h follows `sources_as_built` (grad.c). */
typedef struct an_folded {
    struct an_tensor *t;
    int32_t before; /* its sources: nodes with smaller ids, older folded tensors; its readers' ids are not smaller */
} an_folded;

/* A gradient written by hand for a composite: the gradient of node `n` that carries it goes straight to node `x`. All
 * but GELU and MAX are rank 3 over axis 1. Everything else follows from ops.def. */
typedef enum an_rule_kind {
    AN_RULE_LOGSUMEXP,  /* n = logsumexp(x) [O,1,I]:        exp(x - n) g                                    */
    AN_RULE_SOFTMAX,    /* n = softmax(x) [O,R,I]:          n (g - sum(g n))                                */
    AN_RULE_LAYER_NORM, /* n = (x - mean(x)) aux [O,R,I]:   aux (g - mean(g) - n mean(g n)), aux = 1/sigma  */
    AN_RULE_RMS_NORM,   /* n = x aux [O,R,I]:               aux (g - n mean(g n))                           */
    AN_RULE_GELU,       /* n = x aux, aux = Phi(x):         g (aux + x phi(x))                              */
    AN_RULE_MAX         /* n = max(x) over `axes`, in parts: g shared by all elements that equal n           */
} an_rule_kind;
/* An input whose elements index `limit` rows of something: looked at before a run, because a kernel can only clamp. */
typedef struct an_id_range {
    struct an_id_range *next;
    int32_t leaf, limit, scope;
    bool negative_too; /* labels: a negative one means "ignore" */
    const char *at, *doing;
} an_id_range;

typedef struct an_rule {
    an_rule_kind kind;
    int32_t x, aux;
    int32_t x_as_built; /* x, or -number of the folded tensor that was given for it */
    uint32_t axes;      /* MAX: bit i is axis i of x */
} an_rule;

struct an_graph {
    an_arena arena;    /* nodes and all they point to; reset with the graph */
    an_arena previous; /* the ended step's, kept until the next reset: a stale tensor is an error, not a wild pointer */
    an_arena forever;  /* persistent tensors and scope names */
    struct an_tensor **node; /* [n] */
    int32_t n, cap;
    uint32_t epoch; /* counts resets; a node of an older epoch is an error that says so */
    uint64_t key;   /* running hash of the array: the plan's key */
    int32_t *cse;   /* [cap_cse], a power of two: id + 1 of the node whose hash leads here, 0: none */
    int32_t cap_cse;
    int32_t *grad; /* after an_graph_backward: gradient's id per node id, -1: none */
    int32_t n_grad;
    an_folded *folded; /* [n_folded], of this step */
    int32_t n_folded, cap_folded;
    const struct an_tensor *loss; /* of an_graph_backward, and how many nodes and folded tensors there were */
    int32_t n_forward, n_forward_folded;
    int32_t *grad_as_built; /* [n_forward + n_forward_folded] gradients along sources_as_built; NULL: not made yet */
    const char **scopes;    /* full paths, "gpt.h.0.mlp" */
    int32_t *scope_parent;  /* [n_scopes] */
    an_map scope_index;     /* hash of (parent, name) → index into scopes */
    int32_t n_scopes, cap_scopes, scope; /* scope 0 is the root, "" */
    uint32_t rand_ordinal;               /* random nodes so far in this step (mixed into streams) */
    an_rule *rules;                      /* [n_rules], of this step */
    an_id_range *id_ranges;              /* of this step */
    int32_t n_rules, cap_rules;
    int32_t *assign; /* [n_assigns] ASSIGN nodes that have not run */
    int32_t n_assigns, cap_assigns;
    an_dtype matmul_dtype;         /* the policy: an_linear and attention cast to it */
    int64_t most_logits;           /* the policy: more are made chunk by chunk; 0: 2^28 */
    bool narrow_weights;           /* the policy: float32 parameters of two axes or more are kept in bfloat16 */
    const char *device_name;       /* for sentences; may be NULL */
    int ranks, rank;               /* processes that train together (an_join); 0, 1: this one alone */
    struct an_tensor *operand[24]; /* left operands waiting for their right ones (build.h) */
    int32_t n_operands;
    const char *at, *doing; /* the public function being built and its caller's place, for sentences and nodes */
    struct an_tensor *poison;
    an_err *err;          /* the context's */
    void *owner;          /* the an_ctx */
    an_phase phase;       /* of nodes emitted now */
    bool deferred;        /* nodes emitted now get `deferred` */
    bool keep_duplicates; /* compile=False and tests: no fold, no CSE */
    bool no_folded;       /* while folding and in the backward pass: the caller cannot name those tensors */
    bool has_empty; /* tensors without elements were folded in this step: the array does not show what read them */
};

typedef struct an_emit_args { /* zero fields mean none */
    an_op op;
    an_dtype dtype;
    int rank;
    const int32_t *shape;
    int n_src;
    struct an_tensor *const *src;
    int n_attr;
    const int64_t *attr;
    double imm[2];
    int64_t imm_i;
    const char *at;
} an_emit_args;

an_status an_graph_open(an_err *err, void *owner, an_graph *out);
void an_graph_reset(an_graph *g); /* drops every node, keeps memory, persistent tensors and scopes */
void an_graph_close(an_graph *g);
an_graph *an_ctx_graph(an_ctx *cx); /* a context starts with its graph (runtime/context.h asserts it) */

/* "gpt", then "h.0" within it: the scope "gpt.h.0". Returns false (and records it) without memory. */
bool an_graph_scope_push(an_graph *g, const char *name);
void an_graph_scope_pop(an_graph *g);
/* The stream of the next random node: a hash of the scope's path and the node's ordinal in the step. */
uint32_t an_graph_stream(an_graph *g);

/* The only function that appends nodes: checks the sources by the op's rules (an_infer), simplifies (an_fold), merges with
 * an equal node, else appends. Never NULL. */
struct an_tensor *an_emit(an_graph *g, const an_emit_args *e);
bool an_op_commutes(an_op op); /* bit for bit, so that operands may change places */

/* Assignments, ordered: the state behind `leaf` takes `value` at the end of the step. Where `value` reads a state that this
 * step has assigned already, it is built on the assigned value (assign.c). Returns the ASSIGN node, or poison. */
struct an_tensor *an_graph_assign(an_graph *g, struct an_tensor *leaf, struct an_tensor *value, const char *at);
/* The newest ASSIGN node of this state that has not run; -1: none. */
int32_t an_graph_last_assign(const an_graph *g, const struct an_tensor *state);
/* `value`, emitted again with `by` wherever it reads `leaf`; the same node where it does not. */
struct an_tensor *an_graph_substitute(an_graph *g, struct an_tensor *value, const struct an_tensor *leaf,
                                      const struct an_tensor *by);
void an_graph_assigns_ran(an_graph *g); /* the step ran: leaves hold the assigned values now */

/* A tensor that outlives resets; its LEAF {kind,index} enters the array at first use. */
struct an_tensor *an_persistent(an_graph *g, an_leaf kind, int index, an_dtype dtype, int rank, const int32_t *shape);
/* The node to use for `t` now: t itself, or the persistent tensor's LEAF of this epoch; poison (with a sentence) for
 * tensors of another graph or an ended step. */
struct an_tensor *an_use(an_graph *g, struct an_tensor *t, const char *at, const char *op);
/* The LEAF of a persistent tensor in this step; of one that is `narrow` in the dtype in which it is kept. */
struct an_tensor *an_use_leaf(an_graph *g, struct an_tensor *t, const char *at);

/* Records "AT: OP: sentence in SCOPE" and returns the poison node. */
struct an_tensor *an_poison(an_graph *g, an_status code, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Appends the gradient nodes of scalar `loss` (one backward loop over the array); g->grad maps node ids to gradient
 * ids. */
an_status an_graph_backward(an_graph *g, struct an_tensor *loss);
/* The gradient of node, folded tensor or persistent tensor `t` after it, NULL when the loss does not depend on it. Of
 * tensors that fold or CSE bypassed, and of narrowed weights, it is built by a second backward pass when first asked
 * for. */
struct an_tensor *an_graph_grad(an_graph *g, const struct an_tensor *t);

/* Text of nodes [from, n): one line a node, golden-tested. */
struct an_text;
void an_graph_print(const an_graph *g, int32_t from, struct an_text *out);

const char *an_dtype_name(an_dtype t); /* "float32", … */
size_t an_dtype_bytes(an_dtype t);
bool an_dtype_is_float(an_dtype t);
const char *an_shape_text(int rank, const int32_t *shape, char *out, size_t cap); /* "[64,256,384]" */

bool an_dtype_is_int(an_dtype t); /* i32, i64, u8 */
/* False for a number that `t` does not hold: 0.5 or 1e300 as an int32. Floats are rounded, and any number other than 0 is
 * true. */
bool an_number_fits(an_dtype t, double x);
/* Element `at` of an array in memory; an int64 beyond 2^53 is rounded. */
double an_dtype_load(an_dtype t, const void *raw, int64_t at);

/* Checks the sources of `e` and gives the result's dtype and shape (shape.c). From e->shape: CONST LEAF IOTA RAND,
 * RESHAPE EXPAND SLICE (lengths), SCATTER_ADD, CONV2D_DX, CONV2D_DW, CONV2D_DW_IMAGES, POOL_SUM_GRAD, PACK. From
 * e->dtype: CONST, LEAF, CONV2D, CAST, MATMUL, PACK. Everything else follows from the sources. */
an_status an_infer(an_graph *g, const an_emit_args *e, an_dtype *dtype, int *rank, int32_t *shape);

/* Which source of ATTENTION or ATTENTION_GRAD is its mask; -1: it has none. */
int an_attention_mask(const an_graph *g, const struct an_tensor *n);

int64_t an_attention_window(const struct an_tensor *n); /* 0: none */

/* Whether q's heads, axis 1, are as many as k's or a multiple of them (grouped heads). Both have that axis. */
bool an_heads_divide(const struct an_tensor *q, const struct an_tensor *k);

/* Shape of output `k` of a several-output node. */
void an_output_shape(const an_graph *g, const struct an_tensor *n, int k, an_dtype *dtype, int *rank, int32_t *shape);

#endif
