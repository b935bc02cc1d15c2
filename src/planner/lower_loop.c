/* lower_loop.c: group → loop kernel. Every view becomes index arithmetic over the loop variables r (row), c (column), q.
 *
 * It starts from what the group writes and reduces, in order, and asks lower_values.c for values, which inlines what is
 * not stored:
 *
 *     y = x - mean(x)      phase 0   load x[r*C+c]   reduce sum → %2 (one value a row)   %3 = %2 * 1/C
 *                          phase 1   load x[r*C+c]   sub %3   store y[r*C+c]
 *
 * What exceeds a limit (arguments, depth, nested pads) fails with a reason, and the group is split (split_group.c). */
#include "planner/loop_builder.h"

#include <string.h>

/* Notes that `ins` holds member `id` of the group at the member's own index. */
static void remember_member(an_loop_builder *b, int32_t id, const an_ix *iv, int phase, int32_t ins)
{
    const struct an_tensor *n = b->w->g->node[id];
    an_loop_remember(b, id, an_ix_linear(&b->p->ix, n->rank, n->shape, iv), -1, phase, ins);
}

/* The place in the iteration as one number: r of a row's value, r * cols + c of an element, (r / run) * cols + c of a
 * run's. */
static an_ix linear_here(an_loop_builder *b, int scope)
{
    an_ix r = an_ix_var(&b->p->ix, AN_VAR_ROW, b->p->rows);
    if (scope == AN_SCOPE_ROW) return r;
    if (scope == AN_SCOPE_RUN) r = an_ix_div(&b->p->ix, r, b->p->run);
    return an_ix_add(&b->p->ix, an_ix_mul(&b->p->ix, r, b->p->cols), an_ix_var(&b->p->ix, AN_VAR_COL, b->p->cols));
}

/* Index vector of member `id` at its place in the group. */
static void own_index(an_loop_builder *b, int32_t id, an_ix *iv)
{
    const struct an_tensor *n = b->w->g->node[id];
    an_ix here = linear_here(b, b->gr->kind == AN_FUSION_ROW ? b->w->node[id].scope : AN_SCOPE_COL);
    if (!b->w->node[id].transposed) {
        an_ix_unlinear(&b->p->ix, here, n->rank, n->shape, iv);
        return;
    }
    int32_t shape[AN_MAX_RANK];
    memcpy(shape, n->shape, sizeof shape);
    shape[n->rank - 1] = n->shape[n->rank - 2];
    shape[n->rank - 2] = n->shape[n->rank - 1];
    an_ix_unlinear(&b->p->ix, here, n->rank, shape, iv);
    an_ix t = iv[n->rank - 1];
    iv[n->rank - 1] = iv[n->rank - 2];
    iv[n->rank - 2] = t;
}

/* A reduction along the row: its element at (r, c) in the loop over columns, its result a value of the row for later
 * phases. A sum of iota == index times x has one term that is not 0: it becomes a load (lower_onehot.c). */
static void reduce_row(an_loop_builder *b, int32_t id)
{
    const struct an_tensor *n = b->w->g->node[id], *s = b->w->g->node[n->src[0]];
    an_ix src_iv[AN_MAX_RANK], iv[AN_MAX_RANK];
    an_ix_unlinear(&b->p->ix, linear_here(b, AN_SCOPE_COL), s->rank, s->shape, src_iv);
    int phase = an_loop_phase_of(b, an_base(b->w, n->src[0]));
    an_ins in = an_loop_ins(AN_INS_REDUCE, n->dtype, phase);
    in.op = n->op;
    in.a = an_loop_value(b, n->src[0], src_iv, -1, phase);
    in.node = id;
    if (b->failed) return;
    own_index(b, id, iv);
    const int32_t term = n->op == AN_OP_SUM ? an_loop_onehot(b, in.a) : -1;
    if (term >= 0 && !b->failed) remember_member(b, id, iv, b->p->ins[term].phase, term);
    if (term >= 0 || b->failed) return;
    if (b->p->ins[in.a].scope == AN_SCOPE_ROW) { /* a row of equal values still sums column by column */
        an_ins cast = an_loop_ins(AN_INS_CAST, b->p->ins[in.a].dtype, phase);
        cast.a = in.a;
        cast.scope = AN_SCOPE_COL;
        cast.phase = (uint8_t)phase;
        in.a = an_loop_put(b, cast);
    }
    if (b->failed) return;
    in.phase = b->p->ins[in.a].phase;
    in.scope = AN_SCOPE_ROW;
    int32_t r = an_loop_put(b, in);
    remember_member(b, id, iv, in.phase, r);
}

/* A sum down the rows of a run. */
static void sum_run(an_loop_builder *b, int32_t id)
{
    const struct an_tensor *n = b->w->g->node[id], *s = b->w->g->node[n->src[0]];
    an_ix src_iv[AN_MAX_RANK], iv[AN_MAX_RANK];
    an_ix_unlinear(&b->p->ix, linear_here(b, AN_SCOPE_COL), s->rank, s->shape, src_iv);
    const int phase = an_loop_phase_of(b, an_base(b->w, n->src[0]));
    an_ins in = an_loop_ins(AN_INS_COLSUM, n->dtype, phase);
    in.a = an_loop_value(b, n->src[0], src_iv, -1, phase);
    if (b->failed) return;
    own_index(b, id, iv);
    in.arg = (int16_t)an_loop_arg_for(b, id, true);
    in.ix = an_memory_index(b->w, &b->p->ix, id, iv);
    in.node = id;
    an_loop_append(b, in, phase);
}

/* y[index of `id` at iv] = v. */
static int32_t store_at(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t v, int phase)
{
    an_ins in = an_loop_ins(AN_INS_STORE, b->w->g->node[id]->dtype, phase);
    in.arg = (int16_t)an_loop_arg_for(b, id, true);
    in.ix = an_memory_index(b->w, &b->p->ix, id, iv);
    in.a = v;
    in.node = id;
    return an_loop_append(b, in, phase);
}

static void store(an_loop_builder *b, int out)
{
    int32_t id = b->gr->out[out];
    an_ix iv[AN_MAX_RANK];
    own_index(b, id, iv);
    int phase = b->p->shape == AN_ROW ? an_loop_phase_of(b, id) : b->p->shape == AN_COL;
    int32_t v = an_loop_value(b, id, iv, -1, phase);
    if (b->failed) return;
    int32_t at = store_at(b, id, iv, v, phase);
    if (b->failed) return;
    b->stored_phase[out] = b->p->ins[at].phase;
    if (b->p->shape == AN_ROW && b->gr->kind == AN_FUSION_ROW && b->w->node[id].scope == AN_SCOPE_COL)
        b->p->ins[at].scope = AN_SCOPE_COL;
}

/* The reduction of a column group: its element at (r, q, c) in phase 0, its result remembered for phase 1. */
static void reduce_col(an_loop_builder *b, int32_t id)
{
    const struct an_tensor *n = b->w->g->node[id];
    an_ix iv[AN_MAX_RANK];
    an_ins in = an_loop_ins(AN_INS_REDUCE, n->dtype, 0);
    in.op = AN_OP_SUM;
    if (an_ops[n->op].cls == AN_CLS_REDUCE) {
        an_ix src_iv[3] = {an_ix_var(&b->p->ix, AN_VAR_ROW, b->p->rows), an_ix_var(&b->p->ix, AN_VAR_RED, b->p->red),
                           an_ix_var(&b->p->ix, AN_VAR_COL, b->p->cols)};
        in.op = n->op;
        in.a = an_loop_value(b, n->src[0], src_iv, -1, 0);
    } else {
        if (n->op == AN_OP_POOL_MAX) in.op = AN_OP_MAX;
        in.a = an_window_element(b, id);
    }
    if (b->failed) return;
    in.scope = AN_SCOPE_COL;
    in.node = id;
    int32_t r = an_loop_put(b, in);
    own_index(b, id, iv);
    remember_member(b, id, iv, 1, r);
}

static const char *kernel_name(an_planner *w, const an_fusion_group *gr, bool tile)
{
    const char *scope = an_scope_of(w, gr->n_out ? gr->out[gr->n_out - 1] : gr->anchor);
    const char *kind = tile                           ? "epilogue"
                       : gr->kind == AN_FUSION_ROW    ? "rows"
                       : gr->kind == AN_FUSION_COL    ? "cols"
                       : gr->kind == AN_FUSION_CONCAT ? "concat"
                                                      : "elementwise";
    char *name = an_arena_printf(w->arena, "%s%s%s_%d", scope, *scope ? "_" : "", kind, (int)(gr - w->group));
    for (char *c = name; c && *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9'))) *c = '_';
    return name;
}

/* Reduction or output `out` (-1: no output) of the group. */
static void build_member(an_loop_builder *b, int32_t id, int out)
{
    const int scope = b->w->node[id].scope;
    const bool reduction = an_ops[b->w->g->node[id]->op].cls == AN_CLS_REDUCE;
    if (scope == AN_SCOPE_ROW && b->gr->kind == AN_FUSION_ROW && reduction) reduce_row(b, id);
    if (b->failed || out < 0) return;
    if (scope == AN_SCOPE_RUN)
        sum_run(b, id);
    else
        store(b, out);
}

/* Extra outputs first: they are older than the members. Members in order: reductions and outputs. */
static void build(an_loop_builder *b, bool tile)
{
    an_planner *w = b->w;
    if (tile) {
        an_ix iv[AN_MAX_RANK];
        own_index(b, b->gr->anchor, iv);
        an_ins in = an_loop_ins(AN_INS_TILE, w->g->node[b->gr->anchor]->dtype, 0);
        in.scope = AN_SCOPE_COL;
        in.node = b->gr->anchor;
        remember_member(b, b->gr->anchor, iv, 0, an_loop_put(b, in));
    }
    if (b->gr->kind == AN_FUSION_COL) reduce_col(b, b->gr->anchor);
    for (int out = 0; out < b->gr->n_remat && !b->failed; out++) build_member(b, b->gr->out[out], out);
    for (int32_t m = 0, out = b->gr->n_remat; m < b->gr->n_members && out < b->gr->n_out && !b->failed; m++) {
        const int32_t id = b->gr->member[m];
        build_member(b, id, id == b->gr->out[out] ? out++ : -1);
    }
}

an_status an_lower_loop(an_planner *w, an_fusion_group *gr, bool tile, an_loop_kernel **out, an_arg *args, int *n_args)
{
    an_loop_builder b = {.w = w, .gr = gr, .args = args};
    AN_TRY(an_loop_begin(&b, tile));
    b.p->name = kernel_name(w, gr, tile);
    build(&b, tile);
    return an_loop_end(&b, out, n_args);
}

an_status an_lower_concat_parts(an_planner *w, an_fusion_group *gr, int from, int to, int64_t start,
                                an_loop_kernel **out, an_arg *args, int *n_args)
{
    const struct an_tensor *n = w->g->node[gr->anchor];
    int axis = (int)n->attr[0];
    int32_t shape[AN_MAX_RANK];
    an_loop_builder b = {.w = w, .gr = gr, .args = args};
    AN_TRY(an_loop_begin(&b, false));
    memcpy(shape, n->shape, sizeof shape);
    shape[axis] = 0;
    for (int s = from; s < to; s++) shape[axis] += w->g->node[n->src[s]]->shape[axis];
    an_fold_short_rows(n, shape, &b.p->rows, &b.p->cols);
    b.p->name = an_arena_printf(w->arena, "%s_%d", kernel_name(w, gr, false), from / AN_CONCAT_PARTS);
    an_ix iv[AN_MAX_RANK];
    an_ix_unlinear(&b.p->ix, linear_here(&b, AN_SCOPE_COL), n->rank, shape, iv);
    iv[axis] = an_ix_add(&b.p->ix, iv[axis], an_ix_const(&b.p->ix, start));
    int32_t v = iv[axis] < 0 ? an_loop_fail(&b, "index arithmetic is too complex")
                             : an_loop_concat(&b, n, from, to, start, iv, -1, 0);
    if (!b.failed) store_at(&b, gr->anchor, iv, v, 0);
    return an_loop_end(&b, out, n_args);
}
