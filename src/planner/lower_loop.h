/* lower_loop.h: the builder of loop kernels, shared by lower_loop.c, lower_onehot.c and lower_pool.c. */
#ifndef AN_PLANNER_LOWER_LOOP_H
#define AN_PLANNER_LOWER_LOOP_H

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
    int32_t *stored_phase; /* per output of gr: phase of its store, -1 */
    int32_t number;        /* of this kernel: an_loop_note.kernel of the nodes that it has met */
    int depth, max_args;
    bool failed;
    const char *why; /* a limit that was exceeded, or "no memory" */
} an_loop_builder;

/* The instruction holding node `id` (through its moves) at index iv under `guard`, for use in `phase`. 0 after a
 * failure (b->failed). */
int32_t an_loop_value(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t guard, int phase);
int32_t an_loop_guard(an_loop_builder *b, int32_t guard,
                      an_bound bound); /* guard and bound; a guard that always holds is none (-1) */
int32_t an_loop_append(an_loop_builder *b, an_ins in, int phase); /* works out scope and phase */
an_ins an_loop_ins(an_ins_kind kind, int dtype, int phase);       /* with every number absent */
int32_t an_loop_fail(an_loop_builder *b, const char *why);

/* lower_onehot.c: the sum of `summand` along the row as the one term it has, or -1. */
int32_t an_loop_onehot(an_loop_builder *b, int32_t summand);

/* lower_pool.c: the element at (r, q, c) that a window, or a matmul that is no GEMM, sums. */
int32_t an_window_element(an_loop_builder *b, int32_t id);
int64_t an_window_red(const an_planner *w, int32_t id); /* its number of elements */

#endif
