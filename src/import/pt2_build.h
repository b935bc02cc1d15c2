/* pt2_build.h: builds an imported graph as tensors of a context, node by node. (graph/build.h makes the single nodes.)
 *
 * Owns:      the tensor of each value while a step is built, the order of its axes, which value is a view of which, the
 *            numbers that symbols have, and the states that hold buffers.
 * Does not:  know operations (rule_*.c), files, or what is trained.
 *
 * Order of axes: a value of rank 3 to 5 may be stored channels last, its axis 1 moved behind the others ([N,C,H,W] as
 * [N,H,W,C]). Convolutions, pools and batch norm make such values, elementwise operations and reductions keep the
 * order, and every other rule asks for the plain order, which is PyTorch's.
 *
 * Views: graphs here have no writes, so an operation in place gives its first argument a new value. Where that is a view,
 * the new elements are put into the value it is a view of; other views of that value are built again when next read. */
#ifndef AN_IMPORT_PT2_BUILD_H
#define AN_IMPORT_PT2_BUILD_H

#include "import/aten.h"

typedef struct an_built_value {
    an_tensor *t, *im; /* im: the imaginary part, where `t` is the real part of complex numbers (rule_complex.c) */
    an_tensor *
        once; /* [B,G,S,D], of which `t` is each head (axis 1) several times: [B,G,n,S,D] or [B,G*n,S,D]; NULL: not known to be */
    bool last;               /* channels last */
    const an_pt2_node *view; /* the node that made it as a view of `parent`; NULL: it is no view */
    int32_t parent;
    int depth;              /* views from here to a value that is none */
    uint32_t version, seen; /* how often it changed; the parent's version when it was made */
} an_built_value;

typedef struct an_build {
    an_ctx *cx;
    an_err *err;
    const an_pt2_graph *g;
    an_built_value *value;  /* of each value of the graph */
    an_pt2_number *symbol;  /* of each symbol */
    bool training;          /* dropout on, batch statistics */
    bool inference;         /* a graph for training that is evaluated: both off */
    struct an_folder *fold; /* computes constants at import; NULL: they are built as all else */
    const an_pt2_node *now; /* the node being built, for errors */
    int part[2]; /* of complex operands: 0, the real part, or 1 is read of the first tensor and of the others */
} an_build;

/* Fails with an error that names the node, its module and the line of code that it comes from. */
an_status an_build_refuse(an_build *b, an_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- arguments of a rule */
bool an_in_none(const an_pt2_node *n, int i);
bool an_in_is_tensor(const an_pt2_node *n, int i);
an_built_value an_in_value(an_build *b, const an_pt2_node *n, int i); /* in either order of axes */
an_tensor *an_in(an_build *b, const an_pt2_node *n, int i);           /* in the plain order; NULL: None */
/* Member k of a list of tensors, in either order of axes or in the plain order; NULL: None, no member k, or no list. */
an_built_value an_in_list_value(an_build *b, const an_pt2_node *n, int i, int k);
an_tensor *an_in_list(an_build *b, const an_pt2_node *n, int i, int k);
int an_in_count(const an_pt2_node *n, int i); /* members of a list of tensors; 0: the argument is no such list */
int64_t an_in_int(const an_build *b, const an_pt2_node *n, int i);
double an_in_float(const an_build *b, const an_pt2_node *n, int i);
bool an_in_bool(const an_build *b, const an_pt2_node *n, int i);
/* A list of numbers, or one number as a list; at most `cap`. Returns how many there are. */
int an_in_ints(const an_build *b, const an_pt2_node *n, int i, int64_t *out, int cap);
/* The list as a shape: its first 8 numbers. */
an_shape an_in_shape(const an_build *b, const an_pt2_node *n, int i);
an_tensor *an_value_tensor(an_build *b, int32_t value); /* plain */

/* Argument i, which the operation changes as running statistics are changed, becomes `t`, plain. */
an_status an_in_write(an_build *b, const an_pt2_node *n, int i, an_tensor *t);

/* ---- results */
void an_out(an_build *b, const an_pt2_node *n, int k, an_tensor *t);
void an_out_last(an_build *b, const an_pt2_node *n, int k, an_tensor *t, bool last);
/* Result k, which is set, is the heads of `once` several times each; NULL: it is not. */
void an_out_once(an_build *b, const an_pt2_node *n, int k, an_tensor *once);
/* The imaginary part of result k, which is set; what result k is; how many there are. */
void an_out_imaginary(an_build *b, const an_pt2_node *n, int k, an_tensor *im);
an_tensor *an_out_get(an_build *b, const an_pt2_node *n, int k);
int an_out_count(const an_pt2_node *n);
bool an_out_used(const an_pt2_node *n, int k);
/* Whether result k is uint8 by the file; `t` as int32 that wraps where argument i has 8 or 16 bits there. */
bool an_out_is_byte(const an_build *b, const an_pt2_node *n, int k);
an_tensor *an_in_range_of(const an_build *b, const an_pt2_node *n, int i, an_tensor *t);
/* The dtype of result k by the file. AN_F32 means any float: the precision policy may make products narrower. */
an_dtype an_out_dtype(const an_build *b, const an_pt2_node *n, int k);

/* ---- axes */
an_tensor *an_plain(an_tensor *t, bool last); /* [N,H,W,C] as [N,C,H,W] */
an_tensor *an_last(an_tensor *t);             /* and back */
int an_last_axis(int axis, int rank);         /* the place of a plain axis */
int an_wrap_axis(int64_t axis, int rank);     /* negative ones count from the end; 8: out of range */
/* `v` channels last, for an elementwise operation whose result has rank `rank`; v's rank is at most that. */
an_built_value an_to_last(const an_built_value *v, int rank);

/* Builds all nodes; the values of inputs are set before. */
an_status an_build_run(an_build *b);
an_status an_build_node(an_build *b, const an_pt2_node *n);
an_built_value *an_build_get(an_build *b, int32_t value); /* built again where it is an outdated view */

#endif
