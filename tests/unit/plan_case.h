/* plan_case.h: a graph built by hand and the planner's passes run on it, up to one, for tests of that pass's own result.
 *
 * Owns:     the request and the planner of one test; leaves are graph_case.h's. Persistent leaf i is in slot
 *           AN_SLOT_FIRST + i. A pack puts its sources one behind the other, each on 256 bytes.
 * Does not: run anything. */
#ifndef AN_PLAN_CASE_H
#define AN_PLAN_CASE_H

#include "graph_case.h"

#include "planner/planner_internal.h"

enum { PLAN_ROOTS = 8 };

typedef struct plan_case {
    graph_case c;
    an_target target;
    an_plan_request rq;
    int32_t root[PLAN_ROOTS];
    an_cuts cuts;
    an_plan plan;
    an_planner w;
} plan_case;

static inline an_leaf_place plan_leaf(void *user, an_leaf kind, int index)
{
    const plan_case *p = user;
    const an_tensor *t = p->c.leaf[index];
    const int64_t bytes = t->numel * (int64_t)an_dtype_bytes((an_dtype)t->dtype);
    return (an_leaf_place){.slot = kind == AN_LEAF_INPUT ? AN_SLOT_INPUT : AN_SLOT_FIRST + index,
                           .bytes = bytes,
                           .usage = AN_USE_STATE,
                           .name = "leaf"};
}

static inline int64_t plan_pack(void *user, int block, int source, int64_t *block_bytes)
{
    (void)user, (void)block;
    *block_bytes = 1 << 20;
    return 256 * (int64_t)source;
}

static inline void plan_open(plan_case *p)
{
    memset(p, 0, sizeof *p);
    case_open(&p->c);
    p->target = (an_target){.dialect = "c", .threads = 1, .max_args = AN_LOOP_ARGS};
    p->rq = (an_plan_request){.graph = p->c.g,
                              .target = &p->target,
                              .leaf = plan_leaf,
                              .pack = plan_pack,
                              .user = p,
                              .root = p->root,
                              .loss = -1};
}

static inline void plan_free(plan_case *p)
{
    for (int k = 0; k < p->plan.n_kernels; k++)
        if (p->plan.kernel[k].kind == AN_KERNEL_LOOP) an_loop_kernel_free(p->plan.kernel[k].u.loop);
    free(p->plan.text_plan);
    free(p->plan.text_memory);
    an_arena_free(&p->plan.arena);
    an_arena_free(&p->w.scratch);
    an_ix_pool_free(&p->w.ix);
    free(p->cuts.node);
}

static inline void plan_close(plan_case *p)
{
    plan_free(p);
    case_close(&p->c);
}

static inline an_tensor *plan_param(plan_case *p, int rows, int cols)
{
    return case_leaf(&p->c, AN_LEAF_PARAM, AN_F32, cols ? AN_SHAPE(rows, cols) : AN_SHAPE(rows), -1, 1);
}

static inline an_tensor *plan_state(plan_case *p, int rows, int cols)
{
    return case_leaf(&p->c, AN_LEAF_STATE, AN_F32, AN_SHAPE(rows, cols), -1, 1);
}

/* The n gradients of a block of so many elements, side by side. */
static inline an_tensor *plan_packed(plan_case *p, an_tensor **grad, int n, int32_t elements)
{
    const int64_t block = 0;
    return an_emit(p->c.g, &(an_emit_args){.op = AN_OP_PACK,
                                           .dtype = AN_F32,
                                           .rank = 1,
                                           .shape = &elements,
                                           .n_src = n,
                                           .src = grad,
                                           .n_attr = 1,
                                           .attr = &block,
                                           .at = AT});
}

static inline void plan_root(plan_case *p, const an_tensor *t)
{
    assert_false(t->poison);
    assert_true(p->rq.n_roots < PLAN_ROOTS);
    p->root[p->rq.n_roots++] = t->id;
}

/* Runs the passes up to and including `last`. */
static inline an_status plan_try(plan_case *p, const char *last)
{
    if (p->c.cx.err.code != AN_OK) fail_msg("%s", p->c.cx.err.text);
    p->cuts.node = calloc((size_t)p->c.g->n + 1, sizeof *p->cuts.node);
    assert_non_null(p->cuts.node);
    p->w = (an_planner){
        .err = &p->c.cx.err, .rq = &p->rq, .cuts = &p->cuts, .g = p->c.g, .arena = &p->plan.arena, .plan = &p->plan};
    p->w.node = AN_NEW_ARRAY(&p->w.scratch, an_planner_node, p->c.g->n + 1);
    assert_non_null(p->w.node);
    return an_run_passes(&p->w, last);
}

static inline void plan_run(plan_case *p, const char *last)
{
    if (plan_try(p, last) != AN_OK) fail_msg("%s", p->c.cx.err.text);
}

/* ------------------------------------------------------------------------------------------------- what was decided */

static inline const an_planner_node *plan_node(const plan_case *p, const an_tensor *t)
{
    return &p->w.node[t->id];
}

static inline int plan_group(const plan_case *p, const an_tensor *t)
{
    return p->w.node[an_base(&p->w, t->id)].group;
}

static inline const an_fusion_group *plan_group_of(const plan_case *p, const an_tensor *t)
{
    const int g = plan_group(p, t);
    assert_true(g >= 0);
    return &p->w.group[g];
}

static inline int plan_stored(const plan_case *p, const an_tensor *t)
{
    return p->w.node[an_base(&p->w, t->id)].stored;
}

/* The value of t's memory. */
static inline const an_value *plan_value(const plan_case *p, const an_tensor *t)
{
    const int32_t v = p->w.node[an_base(&p->w, t->id)].value;
    assert_true(v >= 0);
    return &p->plan.value[v];
}

static inline int plan_steps(const plan_case *p, an_kernel_kind kind)
{
    int n = 0;
    for (int s = 0; s < p->plan.n_steps; s++) n += p->plan.kernel[p->plan.step[s].kernel].kind == kind;
    return n;
}

#define MATMUL(a, b)    an_matmul_at(AT, a, b)
#define ADD(a, b)       an_add_at(AT, a, b)
#define MUL(a, b)       an_mul_at(AT, a, b)
#define EXP(a)          an_exp_at(AT, a)
#define SUM(a, axes)    an_sum_at(AT, a, axes, true)
#define PERMUTE(a, ...) an_permute_at(AT, a, AN_SHAPE(__VA_ARGS__))

#endif
