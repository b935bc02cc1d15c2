/* planner_internal.h: what the passes share while a plan is made. One an_planner lives for one attempt; each pass fills
 * its part and says in its file which.
 *
 * Vocabulary:
 *     view       a node that only changes how its source is indexed: reshape, permute, expand, slice, flip
 *     base       the first node below a chain of views: the memory or the arithmetic that the view shows
 *     inlinable  a node that each of its readers can compute for itself, element by element
 *     stored     a node that is written to memory
 *     group      nodes computed by one launch; its anchor is the reduction, GEMM or call that gives it its shape
 *     value      memory of a stored node (or of an output, or scratch): an_plan.value
 *     container  the node whose memory holds this one's: the concatenation of which it is a part
 *     carrier    the group of the backward pass that writes a rematerialized value as an extra output
 *
 *     nodes    x ─ matmul ─ +b ─ gelu ─ matmul        groups   g0: matmul +b gelu     g1: matmul
 */
#ifndef AN_PLANNER_PLANNER_INTERNAL_H
#define AN_PLANNER_PLANNER_INTERNAL_H

#include "base/arena.h"
#include "base/text.h"
#include "graph/graph.h"
#include "ir/plan.h"
#include "planner/planner.h"

/* ------------------------------------------------------------------------------------------------- what passes fill */

typedef enum an_fusion_kind {
    AN_FUSION_ELEM, /* elementwise over rows x cols elements; becomes AN_FUSION_ROW when a row reduction fuses into it */
    AN_FUSION_ROW,  /* rows x cols with reductions along the rows */
    AN_FUSION_COL,  /* the anchor reduces over the middle axis: rows x red x cols */
    AN_FUSION_GEMM,
    AN_FUSION_ATTN,
    AN_FUSION_ATTN_GRAD,
    AN_FUSION_SCATTER,
    AN_FUSION_CALL,
    AN_FUSION_CONCAT, /* a CONCAT of more than AN_CONCAT_PARTS parts: one launch for each run of them */
    AN_FUSION_PACK,   /* gradients of a block of parameters, side by side */
    AN_FUSION_ROW_UPDATE
} an_fusion_kind;

/* Slots of arguments that are parameters in parts, up to the pass gather_weights: this, plus the parameter's index. */
enum { AN_SLOT_IN_PARTS = 1 << 24 };

/* Most parts of a CONCAT that is arithmetic in its reader, and of one launch of a larger one. */
enum { AN_CONCAT_PARTS = 12 };

typedef struct an_fusion_group {
    uint8_t kind;
    bool closed;    /* no further node may fuse into it */
    bool rounds;    /* of a GEMM whose sums are f32: takes a bias and their rounding first ... */
    bool bias_only; /* ... and nothing else (an_target.fuses_bias) */
    bool leaf_only; /* reads leaves only: nodes prefer another producer's group, and an older group may read a member
                        of it by computing that itself */
    bool no_launch; /* a concatenation whose parts are all written in place (layout) */
    int32_t anchor; /* node that founded the group */
    int32_t part;   /* an_cut.part of its members */
    int64_t rows, cols, red;
    int32_t lanes; /* AN_FUSION_COL: partial sums of the reduction, 8 or 1 */
    int32_t run;   /* AN_FUSION_ROW: rows that a column sum in it adds up, 0: none; with such sums in `n_sums` */
    int32_t n_sums;
    int32_t n_red; /* row reductions: each begins a phase, and later phases compute again what earlier ones had */
    int32_t n_members, *member; /* nodes, ascending (fuse) */
    int32_t n_out, *out;        /* those that are stored, ascending (materialize); rematerialized ones first */
    int32_t n_remat;            /* of `out`: values of the forward pass that it writes again (schedule, remat_insert) */
    int32_t sibling;            /* newest group that reads what this one writes and could not fuse into it, -1 */
} an_fusion_group;

typedef struct an_planner_node {
    int32_t group;      /* -1: leaf, view or dead */
    int32_t reduced_in; /* fuse, of a leaf: the newest group with a row reduction of it and of other leaves alone; -1 */
    int32_t value;      /* index into an_plan.value, -1; lowering sets it to the copy's once a copy is made */
    uint8_t live;       /* liveness */
    uint8_t as_copy;    /* insert_copies: a view or constant that is written to memory */
    uint8_t stored;     /* materialize, remat_select, layout */
    uint8_t operand;    /* materialize: a root, or a reader needs it in memory */
    uint8_t scope;      /* fuse: an_loop_scope of the node in its group */
    uint8_t remat; /* remat_select: the backward pass computes it again, the stored value ends with the forward pass */
    int32_t carrier;    /* schedule: group of the backward pass that writes it again beside its own outputs, -1 */
    uint8_t row_update; /* row_updates: one row of a state, a kernel of its own */
    uint8_t transposed; /* layout_hints: a GEMM's result stored with its last two axes exchanged */
    int32_t first_use, n_uses; /* live compute nodes that read this one, through views: w->use[first_use ...] */
    int64_t *stride;           /* layout_hints, pad_rows, layout: of the value in memory, NULL: contiguous */
    int32_t container;         /* layout: node whose memory this value is written into, -1 */
    int64_t container_offset;  /* in elements */
} an_planner_node;

/* What earlier attempts have learnt about a node: its group exceeded a kernel's limits (split_group.c). */
typedef struct an_cut {
    int32_t part;    /* only nodes of one part share a group */
    bool store;      /* read by another group it is stored, never computed there */
    bool keep;       /* kept for the backward pass, never rematerialized */
    bool own_launch; /* rematerialized by a launch of its own: as an extra output it was too much for its carrier */
} an_cut;

typedef struct an_cuts {
    an_cut *node;    /* [g->n] */
    int32_t n_parts; /* besides part 0 */
    int32_t n_split; /* groups that exceeded a kernel's limits, over all attempts */
    bool more;       /* this attempt cut something: plan again */
    char first[160]; /* the first one's name, and why */
} an_cuts;

/* One launch, in order: a group, or a rematerialized copy of one node by a loop kernel of its own. */
typedef struct an_planned_launch {
    int32_t group; /* of a copy: the group that computed the original */
    int32_t copy;  /* node, -1 */
} an_planned_launch;

/* Scratch of lowering, kept between kernels: an entry belongs to the kernel whose number is `kernel`. */
typedef struct an_loop_note {
    int32_t kernel;
    int32_t memo; /* newest remembered instruction of this node, -1 */
    int8_t phase; /* first phase in which it is known, -1 */
} an_loop_note;

typedef struct an_planner {
    an_err *err;
    const an_plan_request *rq;
    an_cuts *cuts;
    bool limit_exceeded; /* the last loop kernel exceeded a limit */
    an_graph *g;
    an_arena *arena;  /* the plan's */
    an_arena scratch; /* this attempt's */
    an_plan *plan;
    an_planner_node *node; /* [g->n] */
    int32_t *use, n_use;
    an_fusion_group *group;
    int32_t n_groups, cap_groups;
    int32_t loss_group;        /* fuse: last group of the forward pass, -1 without a backward pass */
    int32_t *order;            /* schedule: [n_groups] */
    an_planned_launch *launch; /* remat_insert: [n_launches] */
    int32_t n_launches, cap_launches;
    an_ix_pool ix;      /* index arithmetic of the passes before lowering */
    an_loop_note *note; /* [g->n] */
    int32_t n_loops;    /* loop kernels built so far */
    int32_t cap_steps, cap_values, cap_kernels, cap_inputs;
    int32_t n_live;
} an_planner;

/* ------------------------------------------------------------------------------------------------- passes */

#define AN_PASS(name) an_status an_pass_##name(an_planner *w);
#include "planner/passes.def"
#undef AN_PASS

/* Runs the passes up to and including `last` (NULL: all), each followed by its dump. */
an_status an_run_passes(an_planner *w, const char *last);
/* dump.c: what pass `name` decided, as text. */
void an_dump_pass(const an_planner *w, const char *name, an_text *out);
/* verify.c: checks a finished plan without the passes' own tables. */
an_status an_verify_plan(an_err *err, const an_plan *p);
/* split_group.c: group g (or, when copy >= 0, the copy of that node) exceeded a kernel's limits: cuts it for the next
 * attempt. False: there is nothing left to cut; true: the error is cleared. */
bool an_split_group(an_planner *w, int32_t g, int32_t copy);

/* ------------------------------------------------------------------------------------------------- questions about nodes */

/* node_queries.c */
bool an_is_leaf(const an_planner *w, int32_t id);
bool an_is_root_base(const an_planner *w, int32_t id);                  /* a root shows this node's memory */
bool an_matmul_is_gemm(const an_planner *w, const struct an_tensor *n); /* else a column group, one chain of sums */
bool an_is_exchange(const struct an_tensor *n);        /* a collective of several ranks; of one it is a view */
bool an_starts_group(const an_planner *w, int32_t id); /* has a kernel of its own that others may fuse into */
bool an_is_inlinable(const an_planner *w, int32_t id);
bool an_is_concat_kernel(const an_planner *w, int32_t id); /* a CONCAT with launches of its own */
/* Does `user` need its source in memory, not as an expression? */
bool an_reads_memory(const an_planner *w, int32_t user, int source);
bool an_is_operand(an_planner *w,
                   int32_t id); /* such a reader it has, but for GEMMs that cast a leaf as they load it */
/* Whether the device applies a gate as it stores this product, whose readers take its upper and its lower rows. */
an_gating an_gating_of(an_planner *w, int32_t product);
const char *an_scope_of(const an_planner *w, int32_t id); /* the name scope in which it was built */
/* Rows and columns of an elementwise group over `shape`, of n's rank: outer axes are folded into short rows. */
void an_fold_short_rows(const struct an_tensor *n, const int32_t *shape, int64_t *rows, int64_t *cols);

/* views.c. A source seen through its views: `base` at strides, in elements of the base's memory. */
typedef struct an_view {
    int32_t base;   /* compute node or leaf */
    int32_t output; /* which output of it */
    bool affine;    /* strides describe it */
    uint8_t dtype;  /* storage */
    int64_t offset, stride[AN_MAX_RANK];
} an_view;
bool an_is_view(const an_planner *w, int32_t id); /* false for a view that is written to memory (as_copy) */
int32_t an_base(const an_planner *w, int32_t id); /* first node below that is not a view */
/* One step through view `id`: the index of its source for index iv of its result. */
void an_view_index(const an_planner *w, an_ix_pool *p, int32_t id, const an_ix *iv, an_ix *out);
/* From node `id` at iv down to its base: *base and the base's index vector. */
void an_walk_views(const an_planner *w, an_ix_pool *p, int32_t id, const an_ix *iv, int32_t *base, an_ix *out);
/* Element offset in memory of node `base` (a value or leaf) at iv, by its value's strides. */
an_ix an_memory_index(const an_planner *w, an_ix_pool *p, int32_t base, const an_ix *iv);
an_view an_view_of(an_planner *w, int32_t id, bool through_cast);

/* recompute_cost.c: what computing a node again takes, from what is in memory. */
typedef struct an_recompute_cost {
    int cost, large;  /* operations; tensors of about the value's size that it reads */
    int64_t elements; /* of the large ones */
    int64_t bytes;    /* which are so many */
    bool possible;
    int32_t seen[48];
    int n_seen;
} an_recompute_cost;
an_recompute_cost an_cost_to_recompute(const an_planner *w, int32_t id);
bool an_is_cheap(const an_recompute_cost *c);
void an_store_rows_beneath(an_planner *w, const an_recompute_cost *c); /* row reductions that it reads are stored */

/* remat_fuse.c: can group g write node `id` too, at no more than the cost of a store? */
bool an_may_carry(const an_planner *w, an_ix_pool *ix, int32_t g, int32_t id);

/* row_updates.c: is node `id` a state with one row replaced, and how? */
typedef struct an_row_update {
    int32_t index, state, row; /* nodes: the scalar, the state's leaf, the row as it is seen through views */
    an_row_update_spec spec;
} an_row_update;
bool an_row_update_of(an_planner *w, int32_t id, an_row_update *out);
/* Removes the copy of the state and writes value v into the state's own memory, if no later step reads the old state. */
bool an_row_update_in_place(an_plan *p, int32_t v, const an_leaf_place *to);
bool an_overlaps(const an_arg *a, const an_leaf_place *to); /* does the argument touch the state's memory? */

/* layout.c: from a value's first element to its last, padding included; a part of a container: its own elements. */
int64_t an_value_bytes(const an_planner *w, int32_t id);

/* ------------------------------------------------------------------------------------------------- building the plan */

/* plan_tables.c: the plan's tables */
int32_t an_kernel_new(an_planner *w, an_kernel k); /* -1: no memory */
an_plan_step *an_step_new(an_planner *w, int32_t kernel, const an_arg *arg, int n_args, const char *scope);
int32_t an_value_new(an_planner *w, int32_t node, int32_t output, int64_t bytes, an_usage usage, const char *name);
an_arg an_arg_of(an_planner *w, int32_t base, bool written); /* value or leaf as an argument */
/* Where the bytes of argument x begin in value v, before its own offset in its slot is known; -1: it is not inside of it. */
int64_t an_offset_in_value(const an_plan *p, const an_arg *x, int32_t v);
/* May the output argument alias the input's memory: is every element read where, and not after, it is written? */
bool an_may_alias(const an_loop_kernel *p, int in, int out);
/* alias_in_place.c: the loop kernel that reads or writes argument `arg` of the step, and its first argument; NULL. */
const an_loop_kernel *an_loop_of(const an_plan *p, const an_plan_step *s, int arg, int *first);
/* For qsort and bsearch over int64_t. */
static inline int an_by_number(const void *x, const void *y)
{
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}
void an_find_lifetimes(an_plan *p);            /* assign_buffers.c: an_value.first and .last */
an_status an_add_filled_ranges(an_planner *w); /* filled_ranges.c: values of what exchanges fill range by range */

/* lower.c: shared by the files that lower one kind of group each */
an_status an_lower_no_memory(an_planner *w);
an_arg an_operand(an_planner *w, int32_t src, bool through_cast, an_view *view); /* in memory, seen through views */
an_arg an_output_arg(an_planner *w, int32_t id, int k, int64_t *stride, int64_t bytes);
void an_strides_of(const an_planner *w, int32_t id, int64_t *stride);
char *an_short_name(an_planner *w, int32_t id, const char *kind);
an_status an_add_step(an_planner *w, an_kernel k, const an_arg *arg, int n_args, int32_t id, an_plan_step **out);
an_status an_add_loop(an_planner *w, an_loop_kernel *p, const an_arg *args, int n_args, int32_t id);
an_status an_refuse_inexact(an_planner *w, int32_t id, const char *what);
an_status an_lower_gemm(an_planner *w, an_fusion_group *gr);      /* lower_gemm.c */
an_status an_lower_attention(an_planner *w, an_fusion_group *gr); /* lower_attention.c */
an_status an_lower_scatter(an_planner *w, an_fusion_group *gr);   /* lower_call.c */
an_status an_lower_call(an_planner *w, an_fusion_group *gr);
/* Sums of gradients with those of earlier micro-batches, directly behind the gradients that they add. */
an_status an_lower_early(an_planner *w);
an_status an_lower_concat(an_planner *w, an_fusion_group *gr); /* lower_copy.c */
an_status an_lower_row_update(an_planner *w, an_fusion_group *gr);
an_status an_lower_put_rows(an_planner *w, an_fusion_group *gr);
void an_call_source(an_call_tensor *out, const struct an_tensor *t); /* a tensor's dtype and shape */
an_status an_lower_pack(an_planner *w, an_fusion_group *gr);

/* lower_conv.c: is convolution n a GEMM, is it one without a window, and which? Operands are contiguous. */
bool an_is_window_of_columns(const an_planner *w,
                             const struct an_tensor *n); /* a convolution or pool that is a column group */
/* Whether the column group of window n reads, or writes, t in planes of neighbouring pixels (codegen/planes.h), if these are small enough: on the CPU, but
 * not where a gradient by the input divides places by a stride. */
bool an_takes_planes(const an_planner *w, const struct an_tensor *n, const struct an_tensor *t);
bool an_conv_is_gemm(const an_planner *w, const struct an_tensor *n);
bool an_conv_is_pointwise(const an_planner *w, const struct an_tensor *n);
const char *an_conv_name(const struct an_tensor *n);
void an_conv_spec(an_planner *w, int32_t id, an_gemm_spec *out);
bool an_conv_by_library(an_planner *w, const struct an_tensor *n); /* a library of the device runs it */
/* Whether operand `source` of convolution n lies in planes, [N,C,H,W], and is read so. */
bool an_conv_takes_planes(an_planner *w, const struct an_tensor *n, int source);
void an_conv_work(const an_planner *w, int32_t id, uint64_t *flops, uint64_t *bytes); /* bytes: of the operands */

/* lower_loop.c: group → loop kernel; `tile` for a GEMM's epilogue. The arguments' values are appended to `args`. */
an_status an_lower_loop(an_planner *w, an_fusion_group *gr, bool tile, an_loop_kernel **out, an_arg *args, int *n_args);
/* Parts [from, to) of a concatenation, the first of them at `start` along its axis. */
an_status an_lower_concat_parts(an_planner *w, an_fusion_group *gr, int from, int to, int64_t start,
                                an_loop_kernel **out, an_arg *args, int *n_args);

#endif
