/* planner_internal.h: what the passes share while a plan is made. One an_planner lives for one an_plan_make; each pass fills its part.
 *
 * Vocabulary:
 *     base      the node a chain of moves starts from: what memory or arithmetic stands behind a view
 *     virtual   a node with no memory of its own: computed where it is used
 *     group     nodes computed by one launch; its anchor is the reduction, product or call that gives it its shape
 *     value     a node (or output of one) that exists in memory
 */
#ifndef AN_PLANNER_PLANNER_INTERNAL_H
#define AN_PLANNER_PLANNER_INTERNAL_H

#include "base/arena.h"
#include "base/text.h"
#include "graph/graph.h"
#include "ir/plan.h"
#include "planner/planner.h"

typedef enum an_fusion_kind {
    AN_G_ELEM, /* elementwise over `cols` elements: becomes AN_G_ROW when a row reduction joins */
    AN_G_ROW,  /* rows x cols with row reductions */
    AN_G_COL,  /* anchor reduces over the middle axis: rows x red x cols */
    AN_G_GEMM,
    AN_G_ATTN,
    AN_G_ATTN_GRAD,
    AN_G_SCATTER,
    AN_G_CALL,
    AN_G_JOIN, /* a CONCAT of many parts: one launch a run of them */
    AN_G_PACK,
    AN_G_PUT /* one row of a state: inplace_update.c */
} an_fusion_kind;

enum { AN_JOIN_PARTS = 12 }; /* most parts of a CONCAT that is arithmetic in its reader, and of one launch of a join */

typedef struct an_fusion_group {
    uint8_t kind;
    bool closed;    /* nothing may join */
    bool loose;     /* reads leaves alone: attracts nobody, and an older group computes its members itself */
    int32_t anchor; /* node, -1 for elementwise groups */
    int32_t part;   /* an_cut.part of its members */
    int64_t rows, cols, red;
    int32_t lanes;
    int32_t run; /* AN_G_ROW: rows that a column sum in it adds up, 0: none; with such sums in `n_sums` */
    int32_t n_sums;
    int32_t n_red; /* row reductions: each is a phase, and later phases compute again what earlier ones had */
    int32_t n_out; /* materialised members, ascending */
    int32_t *out;
    int32_t sibling; /* newest group that reads this one's rows and could not join it, -1 */
    int32_t step;    /* number in the plan, -1: nothing of it is needed in memory */
} an_fusion_group;

typedef struct an_planner_node {
    int32_t group;                     /* -1: leaf, move or dead */
    int32_t value;                     /* output 0's value, -1 */
    uint8_t live, mat, as_copy, scope; /* scope: an_loop_scope within the group */
    uint8_t remat;                     /* computed again for the backward pass instead of kept */
    uint8_t again;                     /* the second instance exists: `value` is its */
    int32_t host;                      /* group of the backward pass that writes it again beside its own, -1 */
    uint8_t put;                       /* one row of a state: a kernel of its own */
    uint8_t swapped;                   /* product stored with its last two axes exchanged */
    int32_t first_use, n_uses;         /* live compute nodes that read this one, through moves: w->use[first_use ...] */
    int64_t *stride;                   /* of the value in memory, NULL: contiguous */
    int32_t home;                      /* node whose memory this value is written into (CONCAT parts), -1 */
    int64_t home_offset;
} an_planner_node;

/* What earlier attempts have learnt about a node: its group outgrew a kernel (split_group.c). */
typedef struct an_cut {
    int32_t part; /* only nodes of one part share a group */
    bool store;   /* read by another group it is stored, never computed again there */
    bool keep;    /* kept for the backward pass, never recomputed */
    bool alone;   /* recomputed by a launch of its own: with it a group outgrew a kernel */
} an_cut;

typedef struct an_cuts {
    an_cut *node;    /* [g->n] */
    int32_t n_parts; /* besides part 0 */
    int32_t n_split; /* groups that outgrew a kernel, over all attempts */
    bool more;       /* this attempt cut something: plan again */
    char first[160]; /* the first one's name, and why */
} an_cuts;

typedef struct an_planner {
    an_err *err;
    const an_plan_request *rq;
    an_cuts *cuts;
    bool outgrown; /* the last row program could not be made as it was asked for */
    an_graph *g;
    an_arena *arena;  /* the plan's */
    an_arena scratch; /* this run's */
    an_plan *plan;
    an_planner_node *node; /* [g->n] */
    int32_t *use, n_use;
    an_fusion_group *group;
    int32_t n_groups, cap_groups;
    an_ix_pool ix; /* of grouping and views */
    int32_t cap_steps, cap_values, cap_kernels, cap_inputs;
    int32_t n_live;
} an_planner;

/* A source seen through its moves: `base` at strides, in elements of the base's memory. */
typedef struct an_view {
    int32_t base;   /* compute node or leaf */
    int32_t output; /* which output of it */
    bool affine;
    uint8_t dtype; /* storage */
    int64_t offset, stride[AN_MAX_RANK];
} an_view;

an_status an_pass_live(an_planner *w);
an_status an_pass_group(an_planner *w);
an_status an_pass_layout(an_planner *w); /* where values of products and attention stand: strides and homes */

an_status an_pass_lower(an_planner *w);
an_status an_pass_place(an_planner *w);
an_status an_pass_render(an_planner *w);
an_status an_pass_report(an_planner *w);
an_status an_launch_order(an_planner *w, int32_t loss_group, int32_t **out); /* schedule.c: groups, [n_groups] */
an_status an_verify_plan(an_err *err, const an_plan *p);

an_status an_find_uses(an_planner *w); /* liveness.c: needs to know the copies */

/* inplace_update.c: is node `id` one row put into a state, and how? */
typedef struct an_row_update {
    int32_t index, state, row; /* nodes: the scalar, the state's leaf, the row as it is seen through moves */
    an_row_update_spec spec;
} an_row_update;
bool an_row_update_of(an_planner *w, int32_t id, an_row_update *out);
void an_find_row_updates(an_planner *w); /* fills an_planner_node.put */
/* Leaves the copy of the state out and writes value v where the state stands, if nobody reads it later. */
bool an_row_update_in_place(an_plan *p, int32_t v, const an_leaf_place *to);

/* remat_fuse.c: can group g, whose members are first, next[first] ..., write node `id` too, at no more than the cost of a
 * store? */
bool an_may_host(const an_planner *w, an_ix_pool *ix, int32_t g, int32_t first, const int32_t *next, int32_t id);

/* split_group.c: group g (or, alone >= 0, the second instance of that node) outgrew a kernel: cuts it for the next attempt.
 * False: there is nothing left to cut; true: the error is cleared. */
bool an_split_group(an_planner *w, int32_t g, int32_t alone);

/* views.c */
bool an_is_move(const an_planner *w, int32_t id); /* walks through it; a move marked as_copy is not one */
int32_t an_base(const an_planner *w, int32_t id); /* first node that is not a move */
/* One step through move `id`: the index of its source for index iv of its result. */
void an_move_index(const an_planner *w, an_ix_pool *p, int32_t id, const an_ix *iv, an_ix *out);
/* From node `id` at iv down to its base: *base and the base's index vector. */
void an_walk(const an_planner *w, an_ix_pool *p, int32_t id, const an_ix *iv, int32_t *base, an_ix *out);
/* Element offset in memory of node `base` (a value or leaf) at iv, by its value's strides. */
an_ix an_memory_index(const an_planner *w, an_ix_pool *p, int32_t base, const an_ix *iv);
an_view an_view_of(an_planner *w, int32_t id, bool through_cast);
/* layout.c: of a value, from its first element to its last, gaps included; of a part of a whole its own. */
int64_t an_value_bytes(const an_planner *w, int32_t id);

/* fuse.c's knowledge others use */
bool an_reads_memory(const an_planner *w, int32_t user,
                     int source); /* does `user` need that source in memory (not as an expression)? */
bool an_is_heavy(const an_planner *w, int32_t id);
bool an_is_virtual(const an_planner *w, int32_t id);
bool an_is_leaf(const an_planner *w, int32_t id);
bool an_is_join(const an_planner *w, int32_t id); /* a CONCAT with launches of its own */
void an_fold_short_rows(const struct an_tensor *n, const int32_t *shape, int64_t *rows, int64_t *cols);

/* builder.c: the plan's tables */
int32_t an_kernel_new(an_planner *w, an_kernel k); /* -1: no memory */
an_plan_step *an_step_new(an_planner *w, int32_t kernel, const an_arg *arg, int n_args, const char *scope);
/* May the output argument take the input's memory: is every element read at the place, and not after, it is written? */
bool an_same_place(const an_loop_kernel *p, int in, int out);
int32_t an_value_new(an_planner *w, int32_t node, int32_t output, int64_t bytes, an_usage usage, const char *name);
an_arg an_arg_of(an_planner *w, int32_t base, int32_t output, bool written); /* value or leaf as an argument */

/* lower_conv.c: is convolution n a product, one without a window, and which? Operands are contiguous. */
bool an_conv_takes(const an_planner *w, const struct an_tensor *n);
bool an_conv_windowless(const an_planner *w, const struct an_tensor *n);
const char *an_conv_name(const struct an_tensor *n);
void an_conv_spec(const an_planner *w, int32_t id, an_gemm_spec *out);
void an_conv_work(const an_planner *w, int32_t id, uint64_t *flops, uint64_t *bytes); /* bytes: of the operands */

/* lower_loop.c: group → row program; `tile` for a product's epilogue. Arguments' values are appended to `args`. */
an_status an_lower_row(an_planner *w, an_fusion_group *gr, bool tile, an_loop_kernel **out, an_arg *args, int *n_args);
/* Parts [from, to) of a join, the first of them at `start` along its axis. */
an_status an_lower_join(an_planner *w, an_fusion_group *gr, int from, int to, int64_t start, an_loop_kernel **out,
                        an_arg *args, int *n_args);

const char *an_scope_of(const an_planner *w, int32_t id);

#endif
