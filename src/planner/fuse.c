/* fuse.c: nodes → fusion groups (operator fusion, epilogues). A group is one launch. Which values it writes to memory:
 * materialize.c.
 *
 * The whole rule. Live nodes are visited in order. Views never make a group: they become index arithmetic in their
 * reader. A GEMM, attention, scatter, window or call founds a group. Any other node fuses into the newest group G among
 * its producers' when
 *     - it has one value per element of G, or per row of G, in G's own linear order;
 *     - what it reads of G it reads at its own place, or it is the value of its own row;
 *     - G is not closed. A library's GEMM is, but for a sum that the library adds as it stores its result (accumulates, adds_residual).
 *       A GEMM that a device with a library runs itself takes the bias of f32 sums and their rounding first (is_bias_step).
 *
 *     matmul ─ +bias ─ gelu          one GEMM group: bias and GELU are its epilogue
 *     x ─ mean ─ x-mean ─ mean of ²  one row group of two phases: a norm
 *     matmul ─ sum down the rows     the sum cannot fuse: a column group
 *
 * Reductions
 *     - over the last axis: fuses like that and makes G a row group. Softmax, a norm and a row of a cross entropy are
 *       one launch each. One that cannot fuse into a library's GEMM fuses into G's sibling, the newest row group that
 *       reads the same GEMM or concatenation: a row's maximum and its label are found in one pass over the logits.
 *       Those that read leaves only, one of them the same, are one launch too: sum(dy) and sum(dy * (x - mean)).
 *     - down the rows of many runs of rows: fuses into the group that makes the rows; a norm's gradient sums its gain's.
 *     - any other founds a column group.
 *
 * Invariant: because a node fuses into the newest of its producers' groups, every group depends on older groups only.
 * The numbering is already an order of launches, and no cycle can arise. The one exception are leaf_only groups, which
 * read leaves only. Nodes prefer any other producer's group (so the moments of an optimizer meet in the group of the
 * gradient), and an older group that reads a member of a leaf_only group computes that member itself. */
#include "planner/loop_builder.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_REDUCTIONS = 24,   /* row reductions of a group: each is a phase of its kernel */
    MAX_BESIDE = 8,        /* elementwise nodes beneath a reduction of leaves that joins another's group */
    MIN_RUN = 32,          /* rows in a run that is summed where the rows are made ... */
    MIN_RUNS = 128,        /* ... and runs, so that a GPU is busy ... */
    MAX_RUN_COLUMNS = 1024 /* ... and sums that one thread block can hold */
};

/* ------------------------------------------------------------------------------------------------- groups */

static int32_t group_new(an_planner *w, an_fusion_kind kind, int32_t anchor, int64_t rows, int64_t cols)
{
    if (w->n_groups == w->cap_groups) {
        int32_t cap = w->cap_groups ? 2 * w->cap_groups : 256;
        an_fusion_group *bigger = AN_NEW_ARRAY(&w->scratch, an_fusion_group, cap);
        if (!bigger) return -1;
        if (w->n_groups) memcpy(bigger, w->group, sizeof *bigger * (size_t)w->n_groups);
        w->group = bigger;
        w->cap_groups = cap;
    }
    w->group[w->n_groups] = (an_fusion_group){.kind = (uint8_t)kind,
                                              .anchor = anchor,
                                              .rows = rows,
                                              .cols = cols,
                                              .red = 1,
                                              .lanes = 1,
                                              .sibling = -1,
                                              .part = w->cuts->node[anchor].part};
    w->group[w->n_groups].closed = kind > AN_FUSION_GEMM || (kind == AN_FUSION_GEMM && w->rq->target->library_gemm);
    return w->n_groups++;
}

/* The newest group among the producers of `id`, -1 when there is none; leaf_only ones when there is no other. */
static int32_t newest_producer(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    int32_t newest = -1, leaf_only = -1;
    for (int s = 0; s < n->n_src; s++) {
        int32_t g = w->node[an_base(w, n->src[s])].group;
        if (g >= 0 && w->group[g].leaf_only)
            leaf_only = AN_MAX(leaf_only, g);
        else
            newest = AN_MAX(newest, g);
    }
    return newest >= 0 ? newest : leaf_only;
}

/* ------------------------------------------------------------------------------------------------- places */

/* Loop variables of G, as the linear index of a value per element or per row. */
static an_ix place_of_scope(an_planner *w, const an_fusion_group *gr, int scope)
{
    an_ix r = an_ix_var(&w->ix, AN_VAR_ROW, gr->rows);
    if (scope == AN_SCOPE_ROW) return r;
    return an_ix_add(&w->ix, an_ix_mul(&w->ix, r, gr->cols), an_ix_var(&w->ix, AN_VAR_COL, gr->cols));
}

/* The linear index of base node `id` as group G counts it: a transposed GEMM is counted as it is stored. */
static an_ix place_in_group(an_planner *w, int32_t id, const an_ix *iv)
{
    const struct an_tensor *n = w->g->node[id];
    if (!w->node[id].transposed) return an_ix_linear(&w->ix, n->rank, n->shape, iv);
    int32_t shape[AN_MAX_RANK];
    an_ix at[AN_MAX_RANK];
    memcpy(shape, n->shape, sizeof shape);
    memcpy(at, iv, sizeof *at * n->rank);
    shape[n->rank - 1] = n->shape[n->rank - 2];
    shape[n->rank - 2] = n->shape[n->rank - 1];
    at[n->rank - 1] = iv[n->rank - 2];
    at[n->rank - 2] = iv[n->rank - 1];
    return an_ix_linear(&w->ix, n->rank, shape, at);
}

/* Does `id`, at linear index `here` of group g, read all that it takes from g at its own place or row? */
static bool reads_own_place(an_planner *w, int32_t id, int32_t g, int scope, an_ix here)
{
    const struct an_tensor *n = w->g->node[id];
    const an_fusion_group *gr = &w->group[g];
    an_ix at_col = place_of_scope(w, gr, AN_SCOPE_COL), at_row = place_of_scope(w, gr, AN_SCOPE_ROW);
    an_ix own[AN_MAX_RANK], iv[AN_MAX_RANK], base_iv[AN_MAX_RANK];
    an_ix_unlinear(&w->ix, here, n->rank, n->shape, own);
    if (w->node[id].as_copy && !n->n_src) return false;
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        if (w->node[base].group != g) continue;
        if (n->op == AN_OP_GATHER || n->op == AN_OP_PAD || n->op == AN_OP_CONCAT) return false;
        if (w->node[id].as_copy) return false; /* a copy exists because its order differs */
        memcpy(iv, own, sizeof iv);
        an_walk_views(w, &w->ix, n->src[s], iv, &base, base_iv);
        an_ix place = place_in_group(w, base, base_iv);
        if (w->ix.failed) return false;
        bool row_value = w->node[base].scope == AN_SCOPE_ROW;
        if (row_value ? place != at_row : (scope == AN_SCOPE_ROW || place != at_col)) return false;
    }
    return true;
}

/* Makes g a row group of rows x cols if `source`, a member seen through views, is at (row, column) in that shape. */
static bool becomes_rows(an_planner *w, int32_t source, int32_t g, int64_t rows, int64_t cols)
{
    an_fusion_group *gr = &w->group[g], saved = *gr;
    const struct an_tensor *s = w->g->node[source];
    if (rows * cols != gr->rows * gr->cols) return false;
    if (gr->kind == AN_FUSION_ROW ? rows != gr->rows : gr->kind != AN_FUSION_ELEM) return false;
    gr->rows = rows;
    gr->cols = cols;
    int32_t base;
    an_ix iv[AN_MAX_RANK], base_iv[AN_MAX_RANK];
    an_ix_unlinear(&w->ix, place_of_scope(w, gr, AN_SCOPE_COL), s->rank, s->shape, iv);
    an_walk_views(w, &w->ix, source, iv, &base, base_iv);
    bool fits = w->node[base].scope == AN_SCOPE_COL &&
                place_in_group(w, base, base_iv) == place_of_scope(w, gr, AN_SCOPE_COL) && !w->ix.failed;
    if (!fits) {
        *gr = saved;
        return false;
    }
    gr->kind = AN_FUSION_ROW;
    gr->leaf_only = false;
    return true;
}

/* ------------------------------------------------------------------------------------------------- may it fuse? */

static bool in_backward(const an_planner *w, int32_t id)
{
    return w->rq->loss >= 0 && id > w->rq->loss;
}

/* When recomputing, what only the backward pass needs is not kept from the forward pass: it is computed where it is
 * used. The chunks of a deferred loss are the exception: a chunk and its gradient are launched together. */
static bool would_be_kept(const an_planner *w, int32_t id, int32_t g)
{
    return w->rq->recompute && in_backward(w, id) && g >= 0 && w->group[g].anchor <= w->rq->loss &&
           !w->g->node[w->group[g].anchor]->deferred;
}

/* Where the device has a library for GEMMs, a GEMM takes an epilogue in the forward pass alone: what the backward pass
 * reads of it would have to be stored beside the epilogue's result. */
static bool epilogue_is_closed(const an_planner *w, int32_t g, int32_t id)
{
    return w->group[g].kind == AN_FUSION_GEMM && w->rq->target->library_gemm && in_backward(w, id);
}

static bool same_part(const an_planner *w, int32_t g, int32_t id)
{
    return !w->rq->unfused && w->group[g].part == w->cuts->node[id].part;
}

/* Whether source s of elementwise node `id`, a value for each element of group g, is a leaf, or a cast of one, with a value a column. */
static bool is_bias(an_planner *w, int32_t id, int s, int32_t g)
{
    const struct an_tensor *n = w->g->node[id];
    an_ix own[AN_MAX_RANK], iv[AN_MAX_RANK];
    int32_t base = an_base(w, n->src[s]);
    an_ix_unlinear(&w->ix, place_of_scope(w, &w->group[g], AN_SCOPE_COL), n->rank, n->shape, own);
    an_walk_views(w, &w->ix, n->src[s], own, &base, iv);
    const struct an_tensor *of = w->g->node[base];
    const an_ix place = an_ix_linear(&w->ix, of->rank, of->shape, iv);
    if (w->ix.failed || an_ix_uses(&w->ix, place, AN_VAR_ROW)) return false;
    return an_is_leaf(w, base) || (of->op == AN_OP_CAST && an_is_leaf(w, an_base(w, of->src[0])));
}

/* Of a GEMM's f32 sums: a bias that is added to them, or the rounding to bf16 of what nothing else reads. The kernel does both in
 * registers, so that a value is rounded once. */
static bool is_bias_step(an_planner *w, int32_t g, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    const int32_t anchor = w->group[g].anchor;
    int at = 0;
    while (at < n->n_src && w->node[an_base(w, n->src[at])].group != g) at++;
    if (at == n->n_src) return false;
    const int32_t sum = an_base(w, n->src[at]);
    if (w->node[sum].n_uses != 1 || an_is_root_base(w, sum)) return false;
    if (n->op == AN_OP_CAST) return n->dtype == AN_BF16;
    return n->op == AN_OP_ADD && n->numel == w->group[g].rows * w->group[g].cols && sum == anchor &&
           is_bias(w, id, 1 - at, g);
}

static bool is_open_to(an_planner *w, int32_t g, int32_t id)
{
    return g >= 0 && !w->group[g].closed && same_part(w, g, id) && !epilogue_is_closed(w, g, id) &&
           (!w->group[g].rounds || is_bias_step(w, g, id));
}

/* A library adds its result to a sum of GEMMs as it stores it (beta = 1; adds_in_place of gemm_cublaslt.c): the gradient of one
 * weight from several chunks of logits (compose_nn.c). What micro-batches accumulate is added elsewhere: grad_accumulate.c. */
static bool accumulates(an_planner *w, int32_t id, int32_t g)
{
    const struct an_tensor *n = w->g->node[id];
    if (g < 0 || w->group[g].kind != AN_FUSION_GEMM || n->op != AN_OP_ADD || n->dtype != AN_F32 || !same_part(w, g, id))
        return false;
    const struct an_tensor *anchor = w->g->node[w->group[g].anchor];
    if (anchor->op != AN_OP_MATMUL && (anchor->attr[6] > 1 || an_conv_by_library(w, anchor))) return false;
    int own = 0, sums = 0;
    for (int s = 0; s < 2; s++) {
        const int32_t base = an_base(w, n->src[s]), of = w->node[base].group;
        own += base == w->group[g].anchor && w->node[base].n_uses == 1;
        sums += of >= 0 && of != g && w->group[of].kind == AN_FUSION_GEMM;
    }
    return own == 1 && sums == 1;
}

/* Whether source s of elementwise node `id` has, in memory and in order, an element for each of group g: a leaf, or what another GEMM
 * or call reads. */
static bool is_operand_in_order(an_planner *w, int32_t id, int s, int32_t g)
{
    const struct an_tensor *n = w->g->node[id];
    an_ix own[AN_MAX_RANK], iv[AN_MAX_RANK];
    int32_t base = an_base(w, n->src[s]);
    if (w->node[base].group == g || w->g->node[base]->numel != n->numel) return false;
    if (!an_is_leaf(w, base) && !an_is_operand(w, base)) return false;
    const an_ix here = place_of_scope(w, &w->group[g], AN_SCOPE_COL);
    an_ix_unlinear(&w->ix, here, n->rank, n->shape, own);
    an_walk_views(w, &w->ix, n->src[s], own, &base, iv);
    return place_in_group(w, base, iv) == here && !w->ix.failed;
}

/* The same for a residual sum in bf16, of whole vectors along rows: the library reads the other term as it stores the product.
 * Where a norm down the columns reads the sum, it would be a pass over memory of its own; a norm along the rows would read both
 * terms at the cost of the sum. */
static bool adds_residual(an_planner *w, int32_t id, int32_t g)
{
    enum { VECTOR = 8 }; /* other extents along a row are multiplied by kernels that add in f32 alone (gemm_hopper.c) */
    const struct an_tensor *n = w->g->node[id];
    if (g < 0 || w->group[g].kind != AN_FUSION_GEMM || !w->rq->target->library_gemm || n->op != AN_OP_ADD ||
        n->dtype != AN_BF16 || !same_part(w, g, id))
        return false;
    const int32_t anchor = w->group[g].anchor;
    const struct an_tensor *product = w->g->node[anchor];
    const int at = an_base(w, n->src[0]) == anchor ? 0 : 1;
    if (an_base(w, n->src[at]) != anchor || an_base(w, n->src[1 - at]) == anchor || product->op != AN_OP_MATMUL ||
        product->dtype != AN_BF16 || product->numel != n->numel || w->node[anchor].n_uses != 1 ||
        an_is_root_base(w, anchor))
        return false;
    const struct an_tensor *a = w->g->node[product->src[0]], *b = w->g->node[product->src[1]];
    const int64_t k = a->shape[a->rank - 1], cols = product->shape[product->rank - 1];
    return b->numel == k * cols && k % VECTOR == 0 && cols % VECTOR == 0 && is_operand_in_order(w, id, 1 - at, g);
}

static bool try_fuse(an_planner *w, int32_t id, int32_t g)
{
    const bool open = is_open_to(w, g, id);
    if (!open && !accumulates(w, id, g) && !adds_residual(w, id, g)) return false;
    an_fusion_group *gr = &w->group[g];
    const struct an_tensor *n = w->g->node[id];
    if (would_be_kept(w, id, g)) return false;
    int scope;
    if (n->numel == gr->rows * gr->cols)
        scope = AN_SCOPE_COL;
    else if (gr->kind == AN_FUSION_ROW && n->numel == gr->rows)
        scope = AN_SCOPE_ROW;
    else
        return false;
    if (!reads_own_place(w, id, g, scope, place_of_scope(w, gr, scope))) return false;
    w->node[id].group = g;
    w->node[id].scope = (uint8_t)scope;
    if (!open || (gr->rounds && n->op == AN_OP_CAST)) { /* not open: the library's sum is all that it does */
        gr->rounds = false;
        gr->closed = !open || gr->bias_only;
    }
    return true;
}

/* A reduction over the last axis: [O,R,1] to [O,1,1]. */
static bool try_fuse_row_reduction(an_planner *w, int32_t id, int32_t g)
{
    if (!is_open_to(w, g, id)) return false;
    const int32_t source = w->g->node[id]->src[0];
    const struct an_tensor *s = w->g->node[source];
    an_fusion_group *gr = &w->group[g];
    if (s->shape[1] == 1 || gr->n_red == MAX_REDUCTIONS) return false;
    if (!becomes_rows(w, source, g, s->shape[0], s->shape[1])) return false;
    gr->n_red++;
    w->node[id].group = g;
    w->node[id].scope = AN_SCOPE_ROW;
    return true;
}

/* A sum down runs of R rows, [O,R,C] to [O,1,C], of what a group makes row by row: the group walks its rows run by run.
 * Not where runs are short or too few to keep a GPU busy, or there are more sums than a thread block can hold. */
static bool try_fuse_run_sum(an_planner *w, int32_t id, int32_t g)
{
    if (!is_open_to(w, g, id) || would_be_kept(w, id, g)) return false;
    const struct an_tensor *n = w->g->node[id], *s = w->g->node[n->src[0]];
    an_fusion_group *gr = &w->group[g];
    const int64_t rows = (int64_t)s->shape[0] * s->shape[1], cols = s->shape[2];
    if (n->op != AN_OP_SUM || n->dtype != AN_F32 || cols < 32 || s->shape[1] < MIN_RUN || s->shape[0] < MIN_RUNS ||
        an_round_up(cols, 32) * (gr->n_sums + 1) > MAX_RUN_COLUMNS)
        return false;
    if (gr->kind == AN_FUSION_ROW && gr->run && gr->run != s->shape[1]) return false;
    if (!becomes_rows(w, n->src[0], g, rows, cols)) return false;
    gr->run = s->shape[1];
    gr->n_sums++;
    w->node[id].group = g;
    w->node[id].scope = AN_SCOPE_RUN;
    return true;
}

/* A value of the forward pass is not computed with one of the backward pass. */
static bool is_of_one_pass(const an_planner *w, int32_t id, int32_t g)
{
    return in_backward(w, id) == in_backward(w, w->group[g].anchor);
}

/* The newest group that reads what closed group g makes, if `id` may share its launch. */
static int32_t sibling_of(const an_planner *w, int32_t id, int32_t g)
{
    if (g < 0 || w->group[g].sibling < 0) return -1;
    const int32_t s = w->group[g].sibling;
    return is_of_one_pass(w, id, s) ? s : -1;
}

/* What a row reduction reads, where that is leaves and elementwise nodes that nothing else reads. */
typedef struct reduced {
    int64_t numel;                                             /* of a row's elements, all rows */
    int32_t n, member[MAX_BESIDE], n_leaves, leaf[MAX_BESIDE]; /* members: the lower first; leaves: those as large */
} reduced;

static bool collect_reduced(const an_planner *w, int32_t id, reduced *r)
{
    const struct an_tensor *n = w->g->node[id];
    if (n->op == AN_OP_CONST) return true;
    if (an_is_leaf(w, id)) {
        if (n->numel != r->numel) return true;
        if (r->n_leaves == MAX_BESIDE) return false;
        r->leaf[r->n_leaves++] = id;
        return true;
    }
    const int32_t g = w->node[id].group;
    if (g < 0 || !w->group[g].leaf_only || w->node[id].n_uses != 1 || !an_is_inlinable(w, id)) return false;
    for (int s = 0; s < n->n_src; s++)
        if (!collect_reduced(w, an_base(w, n->src[s]), r)) return false;
    if (r->n == MAX_BESIDE) return false;
    r->member[r->n++] = id;
    return true;
}

/* Joins the row group of an earlier reduction of one of the same leaves, with all that is beneath: the leaf is then read once. */
static bool try_fuse_beside(an_planner *w, int32_t id, const reduced *r)
{
    const struct an_tensor *s = w->g->node[w->g->node[id]->src[0]];
    int32_t g = -1, from = r->n ? w->node[r->member[0]].group : -1, n = 0;
    for (int i = 0; i < r->n_leaves; i++) g = AN_MAX(g, w->node[r->leaf[i]].reduced_in);
    if (!is_open_to(w, g, id) || !is_of_one_pass(w, id, g) || w->group[g].rows != s->shape[0] ||
        w->group[g].cols != s->shape[1] || w->group[g].n_red == MAX_REDUCTIONS)
        return false;
    while (n < r->n && w->node[r->member[n]].group == from && try_fuse(w, r->member[n], g)) n++;
    if (n == r->n && (n == 0 || becomes_rows(w, w->g->node[id]->src[0], g, s->shape[0], s->shape[1]))) {
        w->group[g].n_red++;
        w->node[id].group = g;
        w->node[id].scope = AN_SCOPE_ROW;
        return true;
    }
    while (n-- > 0) w->node[r->member[n]].group = from;
    return false;
}

/* A GEMM's result or a concatenation is large: elementwise nodes that cannot be its epilogue read it together. */
static bool is_read_once(const an_planner *w, int32_t g)
{
    return g >= 0 && (w->group[g].kind == AN_FUSION_GEMM || w->group[g].kind == AN_FUSION_CONCAT);
}

/* ------------------------------------------------------------------------------------------------- founding groups */

static int32_t column_group(an_planner *w, int32_t id, int64_t rows, int64_t cols)
{
    int32_t g = group_new(w, AN_FUSION_COL, id, rows, cols);
    if (g >= 0) w->group[g].red = an_window_red(w, id);
    return g;
}

/* Rows and columns are those of the GEMM's result, so that what fuses is an epilogue. Of grouped channels they are not:
 * the group is closed. */
static int32_t conv_group(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    const int64_t rows = n->op == AN_OP_CONV2D_DW ? n->shape[0] : n->numel / n->shape[3];
    int32_t g = group_new(w, AN_FUSION_GEMM, id, rows, n->numel / rows);
    const bool library = (w->rq->target->library_gemm && an_conv_is_pointwise(w, n)) || an_conv_by_library(w, n);
    if (g >= 0) w->group[g].closed = n->attr[6] > 1 || library;
    return g;
}

/* Opens the group of a GEMM that a device with a library runs itself, with a fused epilogue. Of the forward pass: gradients are
 * multiplied with something that would have to be read beside it. */
static void open_own_epilogue(const an_planner *w, int32_t id, an_fusion_group *gr)
{
    const an_target *t = w->rq->target;
    const struct an_tensor *n = w->g->node[id];
    const struct an_tensor *a = w->g->node[n->src[0]], *b = w->g->node[n->src[1]];
    const int64_t k = a->shape[a->rank - 1];
    const bool f32 = n->dtype == AN_F32;
    if (in_backward(w, id) || !t->library_gemm || !t->fuses_epilogue || a->dtype != AN_BF16 || b->dtype != AN_BF16 ||
        (!f32 && n->dtype != AN_BF16) || b->numel != k * gr->cols)
        return;
    const bool any = t->fuses_epilogue(t, gr->rows, gr->cols, k);
    gr->rounds = f32;
    gr->bias_only = !any;
    gr->closed = !any && !(f32 && t->fuses_bias && t->fuses_bias(t, gr->rows, gr->cols, k));
}

static int32_t matmul_group(an_planner *w, int32_t id, int64_t rows, int64_t cols)
{
    const struct an_tensor *n = w->g->node[id];
    if (!an_matmul_is_gemm(w, n)) return column_group(w, id, rows, cols);
    if (w->node[id].transposed) {
        cols = n->shape[n->rank - 2];
        rows = cols ? n->numel / cols : 0;
    }
    const int32_t g = group_new(w, AN_FUSION_GEMM, id, rows, cols);
    if (g >= 0 && !w->node[id].transposed) open_own_epilogue(w, id, &w->group[g]);
    return g;
}

/* The group of a node with a kernel of its own. */
static int32_t anchor_group(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    const int64_t cols = n->rank ? n->shape[n->rank - 1] : 1, rows = cols ? n->numel / cols : 0;
    const bool scatter = n->dtype == AN_F32 && !w->rq->target->loops_only;
    if (w->node[id].row_update) return group_new(w, AN_FUSION_ROW_UPDATE, id, rows, cols);
    switch (an_ops[n->op].cls) {
    case AN_CLS_MATMUL: return matmul_group(w, id, rows, cols);
    case AN_CLS_ATTENTION:
        return group_new(w, n->op == AN_OP_ATTENTION ? AN_FUSION_ATTN : AN_FUSION_ATTN_GRAD, id, rows, cols);
    case AN_CLS_WINDOW:
        if (n->op == AN_OP_POOL_MAX_GRAD) return group_new(w, AN_FUSION_CALL, id, rows, cols);
        return an_conv_is_gemm(w, n) ? conv_group(w, id) : column_group(w, id, rows, cols);
    case AN_CLS_INDEX: return group_new(w, scatter ? AN_FUSION_SCATTER : AN_FUSION_CALL, id, rows, cols);
    case AN_CLS_EFFECT: return group_new(w, AN_FUSION_PACK, id, rows, cols);
    case AN_CLS_MOVE: return group_new(w, AN_FUSION_CONCAT, id, rows, cols);
    default: return group_new(w, AN_FUSION_CALL, id, rows, cols);
    }
}

/* A reduction along rows: into the group of its operand, or of another reduction that reads the same, else it founds one. */
static void group_row_reduction(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id], *s = w->g->node[n->src[0]];
    an_planner_node *wn = &w->node[id];
    const int32_t g = newest_producer(w, id);
    reduced r = {.numel = s->numel};
    const bool of_leaves = s->shape[1] > 1 && collect_reduced(w, an_base(w, n->src[0]), &r);
    if (!(of_leaves && try_fuse_beside(w, id, &r)) && !try_fuse_row_reduction(w, id, g) &&
        !try_fuse_row_reduction(w, id, sibling_of(w, id, g))) {
        wn->group = group_new(w, AN_FUSION_ROW, id, s->shape[0], s->shape[1]);
        wn->scope = AN_SCOPE_ROW;
        if (wn->group < 0) return;
        if (g >= 0) w->group[g].sibling = wn->group;
    }
    for (int i = 0; of_leaves && i < r.n_leaves; i++) w->node[r.leaf[i]].reduced_in = wn->group;
}

/* A reduction [O,R,C] to [O,1,C]: along the rows when C is 1. */
static void group_reduction(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id], *s = w->g->node[n->src[0]];
    if (s->shape[2] == 1) {
        group_row_reduction(w, id);
    } else if (!try_fuse_run_sum(w, id, newest_producer(w, id))) {
        const int32_t g = w->node[id].group = group_new(w, AN_FUSION_COL, id, s->shape[0], s->shape[2]);
        if (g < 0) return;
        w->group[g].red = s->shape[1];
        w->group[g].lanes = 8;
    }
}

static void group_elementwise(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    an_planner_node *wn = &w->node[id];
    const int32_t g = newest_producer(w, id);
    if (try_fuse(w, id, g) || (is_read_once(w, g) && try_fuse(w, id, sibling_of(w, id, g)))) return;
    int64_t rows, cols;
    an_fold_short_rows(n, n->shape, &rows, &cols);
    const bool leaf_only = g < 0 || w->group[g].leaf_only || would_be_kept(w, id, g);
    wn->group = group_new(w, AN_FUSION_ELEM, id, rows, cols);
    if (wn->group < 0) return;
    w->group[wn->group].leaf_only = leaf_only;
    if (g >= 0 && w->group[g].closed) w->group[g].sibling = wn->group;
}

static an_status group_node(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    an_planner_node *wn = &w->node[id];
    wn->scope = AN_SCOPE_COL;
    if (n->op == AN_OP_PICK) {
        wn->group = w->node[n->src[0]].group;
        return AN_OK;
    }
    if (n->op == AN_OP_GATHER) { /* its table is in memory, never computed again by an older group */
        const int32_t table = w->node[an_base(w, n->src[0])].group;
        if (table >= 0) w->group[table].leaf_only = false;
    }
    if (an_starts_group(w, id))
        wn->group = anchor_group(w, id);
    else if (an_ops[n->op].cls == AN_CLS_REDUCE)
        group_reduction(w, id);
    else
        group_elementwise(w, id);
    if (wn->group >= 0) return AN_OK;
    return an_fail_nomem(w->err, "the planner's groups", sizeof(an_fusion_group) * (size_t)w->n_groups * 2);
}

/* ------------------------------------------------------------------------------------------------- the pass */

/* Fills an_fusion_group.member. */
static an_status list_members(an_planner *w)
{
    int32_t *all = AN_NEW_ARRAY(&w->scratch, int32_t, w->g->n + 1), total = 0;
    if (!all) return an_fail_nomem(w->err, "the planner's groups", sizeof *all * (size_t)w->g->n);
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].group >= 0) w->group[w->node[id].group].n_members++;
    for (int32_t g = 0; g < w->n_groups; g++) {
        w->group[g].member = all + total;
        total += w->group[g].n_members;
        w->group[g].n_members = 0;
    }
    for (int32_t id = 0; id < w->g->n; id++) {
        an_fusion_group *gr = w->node[id].group < 0 ? NULL : &w->group[w->node[id].group];
        if (gr) gr->member[gr->n_members++] = id;
    }
    return AN_OK;
}

/* The last group of the forward pass, -1 without a backward pass. The loss itself may have no reader (a loss scaled by
 * 1 / micro-batches): the newest live node up to it is the border. */
static int32_t find_loss_group(const an_planner *w)
{
    int32_t id = w->rq->loss;
    while (id >= 0 && (!w->node[id].live || w->node[id].group < 0)) id--;
    return id >= 0 ? w->node[id].group : -1;
}

an_status an_pass_fuse(an_planner *w)
{
    for (int32_t id = 0; id < w->g->n; id++) {
        const an_op op = (an_op)w->g->node[id]->op;
        w->node[id].group = w->node[id].reduced_in = -1;
        if (!w->node[id].live || an_is_view(w, id) || op == AN_OP_LEAF || op == AN_OP_ASSIGN ||
            (op == AN_OP_CONST && !w->node[id].as_copy))
            continue;
        AN_TRY(group_node(w, id));
    }
    w->loss_group = find_loss_group(w);
    return list_members(w);
}
