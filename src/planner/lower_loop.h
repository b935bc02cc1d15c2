/* lower_loop.h: the builder of row programs, shared by lower_loop.c, lower_onehot.c and lower_pool.c. */
#ifndef AN_PLANNER_LOWER_LOOP_H
#define AN_PLANNER_LOWER_LOOP_H

#include "planner/planner_internal.h"

typedef struct an_memo {
    int32_t node, guard, phase, ins;
    an_ix at;
} an_memo;

typedef struct an_builder {
    an_planner *w;
    an_fusion_group *gr;
    int32_t g; /* number of gr */
    an_loop_kernel *p;
    an_arg *args;
    an_memo *memo;
    int32_t n_memo, cap_memo, cap_ins, cap_guards;
    int32_t *stored_phase; /* per output of gr: phase of its store, -1 */
    int8_t *phase;         /* per node: first phase, -1 unknown */
    int depth, max_args;
    bool failed;
    const char *why;
} an_builder;

/* The instruction holding node `id` (through its moves) at index iv under `guard`, for use in `phase`. 0 after a
 * failure (b->failed). */
int32_t an_row_value(an_builder *b, int32_t id, const an_ix *iv, int32_t guard, int phase);
int32_t an_row_guard(an_builder *b, int32_t guard,
                     an_bound bound);                       /* guard and bound; guards that always hold vanish (-1) */
int32_t an_row_append(an_builder *b, an_ins in, int phase); /* works out level and phase */
an_ins an_row_ins(an_ins_kind kind, int dtype, int phase);  /* with every number absent */
int32_t an_row_fail(an_builder *b, const char *why);

/* lower_onehot.c: the sum of `summand` along the row as the one term it has, or -1. */
int32_t an_row_pick(an_builder *b, int32_t summand);

/* lower_pool.c: the element at (r, q, c) that a window or a product without a template sums. */
int32_t an_window_element(an_builder *b, int32_t id);
int64_t an_window_red(const an_planner *w, int32_t id); /* its number of elements */

#endif
