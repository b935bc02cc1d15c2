/* build.h: a graph of PyTorch's operations as tensors of a context, node by node.
 *
 * Owns:      the value of each name while a step is built, in which order its axes lie, what is a view of what, values
 *            of symbols, the states that buffers are.
 * Does not:  know operations (rule_*.c), files, or what is trained.
 *
 * Axes: a value of rank 3 to 5 may lie channels last: axis 1 moved behind the others ([N,C,H,W] as [N,H,W,C]).
 * Convolutions, pools and batch norm give such values, elementwise operations and reductions keep them, and every other
 * rule asks for the plain order.
 *
 * Views: an operation in place gives its first argument a new value; what that is a view of is rewritten through the
 * views, and other views of it are built again when they are next read. */
#ifndef AN_IMPORT_BUILD_H
#define AN_IMPORT_BUILD_H

#include "import/aten.h"

typedef struct an_value {
    an_tensor *t;
    bool last;               /* channels last */
    const an_pt2_node *view; /* the node that made it of `parent`; NULL: no view */
    int32_t parent;
    uint32_t version, seen; /* changes of it; the parent's when it was made */
} an_value;

typedef struct an_build {
    an_ctx *cx;
    an_err *err;
    const an_pt2_graph *g;
    an_value *value;        /* of each value of the graph */
    an_arg_number *symbol;  /* of each symbol */
    bool training;          /* dropout on, batch statistics */
    bool inference;         /* a training graph that is evaluated: both off */
    struct an_folder *fold; /* constants; NULL: they are built as all else */
    const an_pt2_node *now; /* for sentences */
} an_build;

/* A failure that names the node, its module and place. */
an_status an_build_refuse(an_build *b, an_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- arguments of a rule */
bool an_in_none(const an_pt2_node *n, int i);
bool an_in_is_tensor(const an_pt2_node *n, int i);
an_value an_in_value(an_build *b, const an_pt2_node *n, int i); /* as it lies */
an_tensor *an_in(an_build *b, const an_pt2_node *n, int i);     /* in the plain order; NULL: None */
an_tensor *an_in_list(an_build *b, const an_pt2_node *n, int i, int k);
int64_t an_in_int(const an_build *b, const an_pt2_node *n, int i);
double an_in_float(const an_build *b, const an_pt2_node *n, int i);
bool an_in_bool(const an_build *b, const an_pt2_node *n, int i);
/* A list of numbers, or one number as a list; at most `cap`. Returns how many there are. */
int an_in_ints(const an_build *b, const an_pt2_node *n, int i, int64_t *out, int cap);
an_tensor *an_value_tensor(an_build *b, int32_t value); /* plain */

/* ---- results */
void an_out(an_build *b, const an_pt2_node *n, int k, an_tensor *t);
void an_out_last(an_build *b, const an_pt2_node *n, int k, an_tensor *t, bool last);
bool an_out_used(const an_pt2_node *n, int k);
/* What the file says of result k: its dtype inside. AN_F32 means any float: products may be narrower by policy. */
an_dtype an_out_dtype(const an_build *b, const an_pt2_node *n, int k);

/* ---- axes */
an_tensor *an_plain(an_tensor *t, bool last);     /* [N,H,W,C] as [N,C,H,W] */
an_tensor *an_last(an_tensor *t);                 /* and back */
int an_last_axis(int axis, int rank);             /* where a plain axis lies */
int an_wrap_axis(int64_t axis, int rank);         /* negative ones count from the end; out of range: 8 */
an_value an_to_last(const an_value *v, int rank); /* of any rank up to `rank`, for an elementwise operation */

/* Runs all nodes. Values of inputs are set before. */
an_status an_build_run(an_build *b);
an_status an_build_node(an_build *b, const an_pt2_node *n);
an_value *an_build_get(an_build *b, int32_t value); /* up to date */

/* The state or parameter that a value is, up to its order: "" where it is none. */
void an_build_assign_buffers(an_build *b);

#endif
