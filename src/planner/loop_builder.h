/* loop_builder.h: a loop kernel while it is being built from a fusion group.
 *
 *     lower_loop.c     a group: its reductions and outputs, in order
 *     lower_values.c   the value of a node at an index; lower_onehot.c, lower_pool.c: two kinds of sums
 *     loop_builder.c   the instructions, guards and arguments they append
 *
 * A failure (a limit that was exceeded, no memory) is noted in the builder: later calls do nothing, and an_loop_end
 * returns it. */
#ifndef AN_PLANNER_LOOP_BUILDER_H
#define AN_PLANNER_LOOP_BUILDER_H

#include "planner/planner_internal.h"

/* Instruction `ins` holds node `node` at index `at` under `guard`, for use in `phase`. */
typedef struct an_memo {
    int32_t node, guard, phase, ins;
    an_ix at;
    int32_t older; /* the memo of this node before it, -1 */
} an_memo;

typedef struct an_loop_builder {
    an_planner *w;
    an_fusion_group *gr;
    int32_t g; /* number of gr */
    an_loop_kernel *p;
    an_arg *args;
    an_memo *memo;
    int32_t n_memo, cap_memo, cap_ins, cap_guards;
    bool sliceable[AN_LOOP_ARGS]; /* arguments that may begin where a slice of them does */
    int32_t *stored_phase;        /* per output of gr: phase of its store, -1 */
    int32_t number;               /* of this kernel: an_loop_note.kernel of the nodes that it has met */
    int depth, max_args;
    bool failed;
    const char *why; /* a limit that was exceeded, or "no memory" */
} an_loop_builder;

/* ---- loop_builder.c */
an_status an_loop_begin(an_loop_builder *b, bool tile);
/* Drops what nothing stored needs, sorts, counts work. AN_E_UNSUPPORTED with w->limit_exceeded: the group must be split. */
an_status an_loop_end(an_loop_builder *b, an_loop_kernel **out, int *n_args);
int32_t an_loop_fail(an_loop_builder *b, const char *why);  /* returns 0 */
an_ins an_loop_ins(an_ins_kind kind, int dtype, int phase); /* with every number absent */
int32_t an_loop_put(an_loop_builder *b, an_ins in);         /* appends as it is; its number */
/* Appends with the scope and earliest phase that operands and indices give. */
int32_t an_loop_append(an_loop_builder *b, an_ins in, int phase);
/* guard and bound; a guard that always holds is none (-1). */
int32_t an_loop_guard(an_loop_builder *b, int32_t guard, an_bound bound);
/* The argument of a value or leaf; the same memory is one argument. */
int an_loop_arg_for(an_loop_builder *b, int32_t base, bool written);
int an_loop_rng_arg(an_loop_builder *b);                       /* of AN_INS_RAND: key and sample 0 */
an_loop_note *an_loop_note_of(an_loop_builder *b, int32_t id); /* what this kernel knows about a node; empty at first */
/* Notes that `ins` holds `node` at linear index `at`. */
void an_loop_remember(an_loop_builder *b, int32_t node, an_ix at, int32_t guard, int phase, int32_t ins);

/* ---- lower_values.c */
/* The instruction holding node `id` (through view ops) at index iv under `guard`, for use in `phase`. 0 after a
 * failure (b->failed). */
int32_t an_loop_value(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t guard, int phase);
/* Parts [from, to) of a CONCAT, the first of them at `start` along its axis; iv is in one of them. */
int32_t an_loop_concat(an_loop_builder *b, const struct an_tensor *n, int from, int to, int64_t start, const an_ix *iv,
                       int32_t guard, int phase);
/* First phase in which `id` can be computed: one past the last reduction of this group beneath it. */
int an_loop_phase_of(an_loop_builder *b, int32_t id);

/* lower_onehot.c: the sum of `summand` along the row as the one term it has, or -1. */
int32_t an_loop_onehot(an_loop_builder *b, int32_t summand);

/* lower_pool.c: the element at (r, q, c) that a window, or a matmul that is no GEMM, sums. */
int32_t an_window_element(an_loop_builder *b, int32_t id);
int64_t an_window_red(const an_planner *w, int32_t id); /* its number of elements */

#endif
