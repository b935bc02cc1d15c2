/* fuse.c: pass 2: nodes → groups; a group is one launch.
 *
 * The rule, whole. Visit live nodes in order. Moves never make a group: they become index arithmetic in their reader. A
 * product, attention, scatter, window or call starts its own group. Any other node joins the newest group G among its
 * producers' when
 *     - it has one value per element of G, or per row of G, in G's own linear order;
 *     - what it reads of G it reads at the same place (or the value of the same row);
 *     - G is not closed.
 * A sum or maximum over the last axis joins like that and makes G a row group: softmax, a norm and a cross-entropy row
 * are one launch each. What cannot join a product, because a library makes it, joins the newest group that reads the
 * same product (or join). A sum down the rows of each of many runs joins what makes the rows: a norm's gradient sums
 * its gain's. Any other reduction starts a column group. Because a node joins the newest of its producers' groups,
 * every group depends on older groups only: the numbering is already an order, and no cycle can arise. Groups that read
 * leaves alone are loose: they attract nobody (so that p, m and v of an optimizer meet in the group of the gradient),
 * and an older group that reads one of their members computes it itself.
 *
 * Then: what must exist in memory. Roots, assigned values, operands of products and calls, reductions used elsewhere.
 * An elementwise value read by another group is computed again there when that costs little and reads at most one large
 * tensor that is in memory anyway; otherwise it is stored. Random masks are always computed again.
 */
#include "planner/lower_loop.h"

#include <stdlib.h>
#include <string.h>

enum { RECOMPUTE_COST = 64, MOST_REDUCTIONS = 24, SHORT_RUN = 32, LEAST_RUNS = 128, RUN_COLUMNS = 1024 };

bool an_is_leaf(const an_planner *w, int32_t id)
{
    return w->g->node[id]->op == AN_OP_LEAF;
}

static bool float16ish(an_dtype t)
{
    return t == AN_F32 || t == AN_BF16 || t == AN_F16;
}

/* Products the template takes; others (f64, integers) are column groups with one chain. */
static bool gemm_takes(const an_planner *w, const struct an_tensor *n)
{
    return float16ish((an_dtype)n->dtype) && float16ish((an_dtype)w->g->node[n->src[0]]->dtype) &&
           !w->rq->target->loops_only;
}

bool an_is_heavy(const an_planner *w, int32_t id)
{
    an_class c = an_ops[w->g->node[id]->op].cls;
    return c == AN_CLS_MATMUL || c == AN_CLS_ATTENTION || c == AN_CLS_WINDOW || c == AN_CLS_CALL ||
           w->g->node[id]->op == AN_OP_SCATTER_ADD || w->g->node[id]->op == AN_OP_PACK ||
           w->g->node[id]->op == AN_OP_PICK || an_is_join(w, id) || w->node[id].put;
}

bool an_is_join(const an_planner *w, int32_t id)
{
    return w->g->node[id]->op == AN_OP_CONCAT && w->g->node[id]->n_src > AN_JOIN_PARTS;
}

bool an_is_virtual(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    if (w->node[id].put) return false;
    return an_ops[n->op].cls == AN_CLS_ELEM || n->op == AN_OP_CAST || n->op == AN_OP_GATHER || n->op == AN_OP_PAD ||
           (n->op == AN_OP_CONCAT && !an_is_join(w, id)) || n->op == AN_OP_RAND || n->op == AN_OP_IOTA ||
           n->op == AN_OP_CONST || w->node[id].as_copy;
}

bool an_reads_memory(const an_planner *w, int32_t user, int source)
{
    const struct an_tensor *n = w->g->node[user];
    if (n->op == AN_OP_GATHER) return source == 0;
    if (n->op == AN_OP_ASSIGN) return source == 1;
    if (w->node[user].put) return source == 1; /* the row; of the others only leaves are read */
    return an_is_heavy(w, user) && !an_is_join(w, user);
}

/* ---------------------------------------------------------------------------------------------- layouts that readers
 * wish for */

/* A product or attention output whose reader permutes it is stored permuted: then the reader needs no copy. */
static void wish_layout(an_planner *w, int32_t perm_id)
{
    const struct an_tensor *p = w->g->node[perm_id];
    int32_t id = p->src[0];
    const struct an_tensor *n = w->g->node[id];
    an_planner_node *wn = &w->node[id];
    bool attn = n->op == AN_OP_ATTENTION || n->op == AN_OP_ATTENTION_GRAD ||
                (n->op == AN_OP_PICK && w->g->node[n->src[0]]->op == AN_OP_ATTENTION_GRAD);
    if (wn->stride || wn->swapped || !(attn || (n->op == AN_OP_MATMUL && gemm_takes(w, n)))) return;
    int last = (int)p->attr[n->rank - 1]; /* the axis that becomes contiguous */
    if (attn && last != n->rank - 1) return;
    if (!attn && last < n->rank - 2) return;
    int64_t *stride = AN_NEW_ARRAY(&w->scratch, int64_t, AN_MAX_RANK);
    if (!stride) return; /* only a missed optimisation; the next allocation reports */
    int64_t s = 1;
    for (int i = n->rank - 1; i >= 0; i--) {
        stride[p->attr[i]] = s;
        s *= p->shape[i];
    }
    wn->stride = stride;
    wn->swapped = !attn && last == n->rank - 2;
}

/* Whether node `id` reads its source s as an operand that may stand at any strides. */
static bool reads_strided(const an_planner *w, int32_t id, int s)
{
    const struct an_tensor *n = w->g->node[id];
    return !an_reads_memory(w, id, s) || (n->op == AN_OP_MATMUL && gemm_takes(w, n));
}

/* What a product writes or reads, and nothing else reads in memory: found[id]. */
static void find_operands(const an_planner *w, bool *found, bool *fixed)
{
    for (int32_t id = 0; id < w->g->n; id++) {
        const struct an_tensor *n = w->g->node[id];
        if (!w->node[id].live || an_is_move(w, id)) continue;
        const bool product = n->op == AN_OP_MATMUL && gemm_takes(w, n);
        found[id] |= product;
        fixed[id] |= !product && !an_is_virtual(w, id);
        for (int s = 0; s < n->n_src; s++) {
            const int32_t base = an_base(w, n->src[s]);
            found[base] |= product;
            fixed[base] |= !reads_strided(w, id, s);
        }
    }
    for (int i = 0; i < w->rq->n_roots; i++) fixed[an_base(w, w->rq->root[i])] = true;
    for (int32_t id = 0; id < w->g->n; id++) found[id] &= !fixed[id];
}

/* A library's products are three times slower on rows that do not begin on 16 bytes (bench_products: 16384 x 65 x 384
 * and its gradients in bf16 take 71 us, of 72 columns 23): operands and results get rows of whole 16 bytes. */
static void pad_rows(an_planner *w)
{
    enum { ALIGN = 16, SMALL = 1 << 10 };
    const int32_t n_nodes = w->g->n;
    bool *found = AN_NEW_ARRAY(&w->scratch, bool, n_nodes + 1), *fixed = AN_NEW_ARRAY(&w->scratch, bool, n_nodes + 1);
    if (!w->rq->target->library_gemm || !found || !fixed) return; /* only a missed optimisation */
    find_operands(w, found, fixed);
    for (int32_t id = 0; id < n_nodes; id++) {
        const struct an_tensor *n = w->g->node[id];
        const int64_t unit = ALIGN / (int64_t)an_dtype_bytes((an_dtype)n->dtype);
        int axis = n->rank - 1;
        while (axis > 0 && n->shape[axis] == 1) axis--;
        if (!found[id] || w->node[id].stride || axis < 1 || n->numel < SMALL || n->shape[axis] < unit ||
            n->shape[axis] % unit == 0)
            continue;
        int64_t *stride = AN_NEW_ARRAY(&w->scratch, int64_t, AN_MAX_RANK), next = an_round_up(n->shape[axis], unit);
        if (!stride) return;
        for (int i = axis; i < n->rank; i++) stride[i] = 1;
        for (int i = axis - 1; i >= 0; next *= n->shape[i--]) stride[i] = next;
        w->node[id].stride = stride;
    }
}

/* Operands that no strides describe are copied: the move becomes a value of its own. */
static void mark_copies(an_planner *w)
{
    for (int32_t id = 0; id < w->g->n; id++) {
        if (!w->node[id].live) continue;
        const struct an_tensor *n = w->g->node[id];
        for (int s = 0; s < n->n_src; s++) {
            if (!an_reads_memory(w, id, s) || n->op == AN_OP_PICK || w->node[id].put) continue;
            int32_t src = n->src[s];
            if (w->g->node[src]->op == AN_OP_CONST) w->node[src].as_copy = 1;
            if (!an_is_move(w, src)) continue;
            if (w->g->node[an_base(w, src)]->op == AN_OP_CONST) {
                w->node[src].as_copy = 1;
                continue;
            }
            an_view v = an_view_of(w, src, n->op == AN_OP_MATMUL);
            bool strided = n->op == AN_OP_MATMUL || n->op == AN_OP_ATTENTION || n->op == AN_OP_ATTENTION_GRAD;
            bool ok = v.affine;
            if (n->op == AN_OP_MATMUL && !gemm_takes(w, n)) continue; /* a column group reads at any index */
            if (an_ops[n->op].cls == AN_CLS_WINDOW && n->op != AN_OP_POOL_MAX_GRAD && !an_conv_takes(w, n)) continue;
            if (strided && ok && n->op != AN_OP_MATMUL)
                ok = n->rank < 1 || w->g->node[src]->rank < 4 || v.stride[3] == 1 || w->g->node[src]->shape[3] == 1;
            if (ok && !strided) { /* calls, tables, packs: contiguous, from the base's start or inside it */
                int64_t expect = 1;
                const struct an_tensor *t = w->g->node[src];
                for (int i = t->rank - 1; i >= 0; i--) {
                    if (t->shape[i] > 1 && v.stride[i] != expect) ok = false;
                    expect *= t->shape[i];
                }
                if ((n->op == AN_OP_PACK || n->op == AN_OP_ASSIGN) && t->numel != w->g->node[v.base]->numel) ok = false;
            }
            const int align = AN_MAX(w->rq->target->bind_align, 1);
            if (v.offset * (int64_t)an_dtype_bytes((an_dtype)v.dtype) % align != 0) ok = false;
            if (!ok) w->node[src].as_copy = 1;
        }
    }
    for (int i = 0; i < w->rq->n_roots; i++) { /* roots are read back whole and in order */
        int32_t id = w->rq->root[i], base = an_base(w, id);
        const struct an_tensor *n = w->g->node[id];
        an_view v = an_view_of(w, id, false);
        int64_t expect = 1;
        bool ok = v.affine && v.offset == 0 && n->numel == w->g->node[base]->numel;
        for (int d = n->rank - 1; d >= 0; expect *= n->shape[d--]) ok &= n->shape[d] == 1 || v.stride[d] == expect;
        if (!ok || w->g->node[base]->op == AN_OP_CONST) w->node[id].as_copy = 1;
    }
}

/* ---------------------------------------------------------------------------------------------- joining */

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
                                              .step = -1};
    w->group[w->n_groups].closed = kind > AN_G_GEMM || (kind == AN_G_GEMM && w->rq->target->library_gemm);
    w->group[w->n_groups].part = w->cuts->node[anchor].part;
    return w->n_groups++;
}

/* The newest group among the producers of `id`, -1 when there is none; loose ones count only when there is no other. */
static int32_t newest(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    int32_t firm = -1, loose = -1;
    for (int s = 0; s < n->n_src; s++) {
        int32_t g = w->node[an_base(w, n->src[s])].group;
        if (g >= 0 && w->group[g].loose)
            loose = AN_MAX(loose, g);
        else
            firm = AN_MAX(firm, g);
    }
    return firm >= 0 ? firm : loose;
}

/* Loop variables of G, as the linear index of a column-level or row-level node. */
static an_ix level_index(an_planner *w, const an_fusion_group *gr, int level)
{
    an_ix r = an_ix_var(&w->ix, AN_VAR_ROW, gr->rows);
    if (level == AN_SCOPE_ROW) return r;
    return an_ix_add(&w->ix, an_ix_mul(&w->ix, r, gr->cols), an_ix_var(&w->ix, AN_VAR_COL, gr->cols));
}

/* The linear place of base node `id` as group G counts it: products stored swapped are counted as stored. */
static an_ix place_in_group(an_planner *w, int32_t id, const an_ix *iv)
{
    const struct an_tensor *n = w->g->node[id];
    if (!w->node[id].swapped) return an_ix_linear(&w->ix, n->rank, n->shape, iv);
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

/* Does `id`, standing at linear index `here` of group g, read everything it takes from g at its own place or row? */
static bool sources_fit(an_planner *w, int32_t id, int32_t g, int level, an_ix here)
{
    const struct an_tensor *n = w->g->node[id];
    const an_fusion_group *gr = &w->group[g];
    an_ix at_col = level_index(w, gr, AN_SCOPE_COL), at_row = level_index(w, gr, AN_SCOPE_ROW);
    an_ix own[AN_MAX_RANK], iv[AN_MAX_RANK], base_iv[AN_MAX_RANK];
    an_ix_unlinear(&w->ix, here, n->rank, n->shape, own);
    if (w->node[id].as_copy && !n->n_src) return false;
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        if (w->node[base].group != g) continue;
        if (n->op == AN_OP_GATHER || n->op == AN_OP_PAD || n->op == AN_OP_CONCAT) return false;
        if (w->node[id].as_copy) return false; /* a copy exists because its order differs */
        memcpy(iv, own, sizeof iv);
        an_walk(w, &w->ix, n->src[s], iv, &base, base_iv);
        an_ix place = place_in_group(w, base, base_iv);
        if (w->ix.failed) return false;
        bool row_value = w->node[base].scope == AN_SCOPE_ROW;
        if (row_value ? place != at_row : (level == AN_SCOPE_ROW || place != at_col)) return false;
    }
    return true;
}

/* When recomputing, what only the backward pass needs is not kept from the forward pass: it is computed where it is
 * used. */
static bool late_for(const an_planner *w, int32_t id, int32_t g)
{
    return w->rq->recompute && w->rq->loss >= 0 && id > w->rq->loss && g >= 0 && w->group[g].anchor <= w->rq->loss &&
           !w->g->node[w->group[g].anchor]->deferred; /* a piece and its gradient are launched together */
}

/* A product with an end is the forward pass's alone: what the backward pass needs beside it would have to be stored. */
static bool ended_before(const an_planner *w, int32_t g, int32_t id)
{
    return w->group[g].kind == AN_G_GEMM && w->rq->target->library_gemm && w->rq->loss >= 0 && id > w->rq->loss;
}

static bool open_to(const an_planner *w, int32_t g, int32_t id)
{
    return g >= 0 && !ended_before(w, g, id) && !w->group[g].closed && !w->rq->unfused &&
           w->group[g].part == w->cuts->node[id].part;
}

/* A library adds a product to a sum of products as it stores it: gradients of a weight from several products. */
static bool adds_to_sum(const an_planner *w, int32_t id, int32_t g)
{
    const struct an_tensor *n = w->g->node[id];
    if (g < 0 || w->group[g].kind != AN_G_GEMM || n->op != AN_OP_ADD || n->dtype != AN_F32 || w->rq->unfused ||
        w->group[g].part != w->cuts->node[id].part)
        return false;
    int own = 0, sums = 0;
    for (int s = 0; s < 2; s++) {
        const int32_t base = an_base(w, n->src[s]), of = w->node[base].group;
        own += base == w->group[g].anchor && w->node[base].n_uses == 1;
        sums += of >= 0 && of != g && w->group[of].kind == AN_G_GEMM;
    }
    return own == 1 && sums == 1;
}

static bool try_join(an_planner *w, int32_t id, int32_t g)
{
    if (!open_to(w, g, id) && !adds_to_sum(w, id, g)) return false;
    an_fusion_group *gr = &w->group[g];
    const struct an_tensor *n = w->g->node[id];
    if (late_for(w, id, g)) return false;
    int level;
    if (n->numel == gr->rows * gr->cols)
        level = AN_SCOPE_COL;
    else if (gr->kind == AN_G_ROW && n->numel == gr->rows)
        level = AN_SCOPE_ROW;
    else
        return false;
    if (!sources_fit(w, id, g, level, level_index(w, gr, level))) return false;
    w->node[id].group = g;
    w->node[id].scope = (uint8_t)level;
    return true;
}

/* Makes g a group of rows x cols if it can be one in which `source`, a member seen through moves, stands at (r,c). */
static bool stands_in_rows(an_planner *w, int32_t source, int32_t g, int64_t rows, int64_t cols)
{
    an_fusion_group *gr = &w->group[g], saved = *gr;
    const struct an_tensor *s = w->g->node[source];
    if (rows * cols != gr->rows * gr->cols) return false;
    if (gr->kind == AN_G_ROW ? rows != gr->rows : gr->kind != AN_G_ELEM) return false;
    gr->rows = rows;
    gr->cols = cols;
    int32_t base;
    an_ix iv[AN_MAX_RANK], base_iv[AN_MAX_RANK];
    an_ix_unlinear(&w->ix, level_index(w, gr, AN_SCOPE_COL), s->rank, s->shape, iv);
    an_walk(w, &w->ix, source, iv, &base, base_iv);
    bool fits = w->node[base].scope == AN_SCOPE_COL &&
                place_in_group(w, base, base_iv) == level_index(w, gr, AN_SCOPE_COL) && !w->ix.failed;
    if (!fits) {
        *gr = saved;
        return false;
    }
    gr->kind = AN_G_ROW;
    gr->loose = false;
    return true;
}

/* A reduction over the last axis: [O,R,1] to [O,1,1]. */
static bool try_join_reduction(an_planner *w, int32_t id, int32_t g)
{
    if (!open_to(w, g, id)) return false;
    const int32_t source = w->g->node[id]->src[0];
    const struct an_tensor *s = w->g->node[source];
    an_fusion_group *gr = &w->group[g];
    if (s->shape[1] == 1 || gr->n_red == MOST_REDUCTIONS) return false;
    if (!stands_in_rows(w, source, g, s->shape[0], s->shape[1])) return false;
    gr->n_red++;
    w->node[id].group = g;
    w->node[id].scope = AN_SCOPE_ROW;
    return true;
}

/* A sum down runs of R rows, [O,R,C] to [O,1,C], of what a group makes row by row: the group walks its rows a run at a
 * time. Not where runs are short or too few to keep a GPU busy, or the sums more than a group of its threads can hold.
 */
static bool try_join_runs(an_planner *w, int32_t id, int32_t g)
{
    if (!open_to(w, g, id) || late_for(w, id, g)) return false;
    const struct an_tensor *n = w->g->node[id], *s = w->g->node[n->src[0]];
    an_fusion_group *gr = &w->group[g];
    const int64_t rows = (int64_t)s->shape[0] * s->shape[1], cols = s->shape[2];
    if (n->op != AN_OP_SUM || n->dtype != AN_F32 || cols < 32 || s->shape[1] < SHORT_RUN || s->shape[0] < LEAST_RUNS ||
        an_round_up(cols, 32) * (gr->n_sums + 1) > RUN_COLUMNS)
        return false;
    if (gr->kind == AN_G_ROW && gr->run && gr->run != s->shape[1]) return false;
    if (!stands_in_rows(w, n->src[0], g, rows, cols)) return false;
    gr->run = s->shape[1];
    gr->n_sums++;
    w->node[id].group = g;
    w->node[id].scope = AN_SCOPE_RUN;
    return true;
}

/* The newest group that reads what closed group g makes, if `id` may share its launch: not a value of the forward pass
 * with one of the backward pass. */
static int32_t sibling_of(const an_planner *w, int32_t id, int32_t g)
{
    if (g < 0 || w->group[g].sibling < 0) return -1;
    const int32_t s = w->group[g].sibling, loss = w->rq->loss;
    return (id <= loss) == (w->group[s].anchor <= loss) ? s : -1;
}

/* A product or a join is large: elementwise nodes that cannot be its end read it together. */
static bool is_read_once(const an_planner *w, int32_t g)
{
    return g >= 0 && (w->group[g].kind == AN_G_GEMM || w->group[g].kind == AN_G_JOIN);
}

static int32_t column_group(an_planner *w, int32_t id, int64_t rows, int64_t cols)
{
    int32_t g = group_new(w, AN_G_COL, id, rows, cols);
    if (g >= 0) w->group[g].red = an_window_red(w, id);
    return g;
}

/* Rows and columns are those of the product's result, so that what joins is an epilogue; those of grouped channels lie
 * apart. */
static int32_t conv_group(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    const int64_t rows = n->op == AN_OP_CONV2D_DW ? n->shape[0] : n->numel / n->shape[3];
    int32_t g = group_new(w, AN_G_GEMM, id, rows, n->numel / rows);
    const bool library = w->rq->target->library_gemm && an_conv_windowless(w, n);
    if (g >= 0) w->group[g].closed = n->attr[6] > 1 || library;
    return g;
}

/* A product that a device which has a library's makes itself, with what is done to its elements. Of the forward pass:
 * what comes back is multiplied with something that has to be read. */
static bool ends_itself(const an_planner *w, int32_t id, int64_t rows, int64_t cols)
{
    const an_target *t = w->rq->target;
    const struct an_tensor *n = w->g->node[id];
    if (w->rq->loss >= 0 && id > w->rq->loss) return false;
    const struct an_tensor *a = w->g->node[n->src[0]], *b = w->g->node[n->src[1]];
    const int64_t k = a->shape[a->rank - 1];
    return t->library_gemm && t->fuses_epilogue && n->dtype == AN_BF16 && a->dtype == AN_BF16 && b->dtype == AN_BF16 &&
           b->numel == k * cols && t->fuses_epilogue(t, rows, cols, k);
}

static int32_t start_heavy(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    int64_t cols = n->rank ? n->shape[n->rank - 1] : 1, rows = cols ? n->numel / cols : 0;
    if (w->node[id].put) return group_new(w, AN_G_PUT, id, rows, cols);
    switch (an_ops[n->op].cls) {
    case AN_CLS_MATMUL: {
        if (gemm_takes(w, n)) {
            if (w->node[id].swapped) {
                cols = n->shape[n->rank - 2];
                rows = n->numel / cols;
            }
            int32_t g = group_new(w, AN_G_GEMM, id, rows, cols);
            if (g >= 0 && !w->node[id].swapped && ends_itself(w, id, rows, cols)) w->group[g].closed = false;
            return g;
        }
        return column_group(w, id, rows, cols);
    }
    case AN_CLS_ATTENTION: return group_new(w, n->op == AN_OP_ATTENTION ? AN_G_ATTN : AN_G_ATTN_GRAD, id, rows, cols);
    case AN_CLS_WINDOW:
        if (n->op == AN_OP_POOL_MAX_GRAD) return group_new(w, AN_G_CALL, id, rows, cols);
        if (an_conv_takes(w, n)) return conv_group(w, id);
        return column_group(w, id, rows, cols);
    case AN_CLS_INDEX:
        return group_new(w, n->dtype == AN_F32 && !w->rq->target->loops_only ? AN_G_SCATTER : AN_G_CALL, id, rows,
                         cols);
    case AN_CLS_EFFECT: return group_new(w, AN_G_PACK, id, rows, cols);
    case AN_CLS_MOVE: return group_new(w, AN_G_JOIN, id, rows, cols);
    default: return group_new(w, AN_G_CALL, id, rows, cols);
    }
}

/* Rows and columns of an elementwise group over `shape`, of n's rank: outer axes are folded into short rows. */
void an_fold_short_rows(const struct an_tensor *n, const int32_t *shape, int64_t *rows, int64_t *cols)
{
    *rows = *cols = 1;
    int i = n->rank - 1;
    for (; i >= 0 && (i == n->rank - 1 || *cols < 512); i--) *cols *= shape[i];
    for (; i >= 0; i--) *rows *= shape[i];
    if (!*cols && n->rank) *rows = 0;
}

static an_status make_group(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    an_planner_node *wn = &w->node[id];
    wn->scope = AN_SCOPE_COL;
    if (n->op == AN_OP_PICK) {
        wn->group = w->node[n->src[0]].group;
        return AN_OK;
    }
    if (n->op == AN_OP_GATHER) { /* its table is in memory before any group that computes it in place */
        const int32_t table = w->node[an_base(w, n->src[0])].group;
        if (table >= 0) w->group[table].loose = false;
    }
    if (an_is_heavy(w, id)) {
        wn->group = start_heavy(w, id);
    } else if (an_ops[n->op].cls == AN_CLS_REDUCE) {
        const struct an_tensor *s = w->g->node[n->src[0]];
        bool row = s->shape[2] == 1;
        const int32_t g = newest(w, id);
        if (row ? try_join_reduction(w, id, g) || try_join_reduction(w, id, sibling_of(w, id, g))
                : try_join_runs(w, id, g))
            return AN_OK;
        wn->group = group_new(w, row ? AN_G_ROW : AN_G_COL, id, s->shape[0], row ? s->shape[1] : s->shape[2]);
        if (row && g >= 0 && wn->group >= 0) w->group[g].sibling = wn->group;
        if (wn->group >= 0 && row) wn->scope = AN_SCOPE_ROW;
        if (wn->group >= 0 && !row) {
            w->group[wn->group].red = s->shape[1];
            w->group[wn->group].lanes = 8;
        }
    } else {
        const int32_t g = newest(w, id);
        if (try_join(w, id, g) || (is_read_once(w, g) && try_join(w, id, sibling_of(w, id, g)))) return AN_OK;
        int64_t rows, cols;
        an_fold_short_rows(n, n->shape, &rows, &cols);
        bool loose = g < 0 || w->group[g].loose || late_for(w, id, g);
        wn->group = group_new(w, AN_G_ELEM, id, rows, cols);
        if (wn->group >= 0) w->group[wn->group].loose = loose;
        if (wn->group >= 0 && g >= 0 && w->group[g].closed) w->group[g].sibling = wn->group;
    }
    if (wn->group < 0)
        return an_fail_nomem(w->err, "the planner's groups", sizeof(an_fusion_group) * (size_t)w->n_groups * 2);
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- what exists in memory
 */

typedef struct cone {
    int cost, large; /* operations; tensors of about the value's size that it reads */
    bool possible;
    int32_t seen[48];
    int n_seen;
} cone;

static void measure_cone(an_planner *w, int32_t id, int64_t numel, cone *c)
{
    for (int i = 0; i < c->n_seen; i++)
        if (c->seen[i] == id) return;
    if (c->n_seen == (int)AN_COUNT(c->seen)) {
        c->possible = false;
        return;
    }
    c->seen[c->n_seen++] = id;
    const struct an_tensor *n = w->g->node[id];
    if (an_is_leaf(w, id) || w->node[id].mat) {
        c->large += n->numel * 4 > numel;
        return;
    }
    if (n->op == AN_OP_CONST || n->op == AN_OP_IOTA) return;
    bool row_value = w->node[id].scope == AN_SCOPE_ROW || an_ops[n->op].cls == AN_CLS_REDUCE;
    if (row_value && n->numel * 8 <= numel) return; /* small: stored for this purpose, see store_cone_rows */
    if (!an_is_virtual(w, id)) {
        c->possible = false;
        return;
    }
    c->cost += an_op_cost((an_op)n->op);
    for (int s = 0; s < n->n_src && c->possible; s++) {
        if (n->op == AN_OP_GATHER && s == 0) {
            c->large++;
            continue;
        }
        measure_cone(w, an_base(w, n->src[s]), numel, c);
    }
}

static void store_cone_rows(an_planner *w, const cone *c)
{
    for (int i = 0; i < c->n_seen; i++) {
        int32_t id = c->seen[i];
        const struct an_tensor *n = w->g->node[id];
        if (an_is_leaf(w, id) || n->op == AN_OP_CONST || n->op == AN_OP_IOTA) continue;
        if (w->node[id].scope == AN_SCOPE_ROW || an_ops[n->op].cls == AN_CLS_REDUCE) w->node[id].mat = 1;
    }
}

static bool only_random(const an_planner *w, int32_t id, int depth)
{
    const struct an_tensor *n = w->g->node[id];
    if (n->op == AN_OP_RAND || n->op == AN_OP_CONST || n->op == AN_OP_IOTA) return true;
    if (!an_is_virtual(w, id) || depth > 4) return false;
    for (int s = 0; s < n->n_src; s++)
        if (!only_random(w, an_base(w, n->src[s]), depth + 1)) return false;
    return n->n_src > 0;
}

/* A leaf's cast that products read. A device's own product rounds its operand to bf16 as it loads it (to float16 it
 * does not round), and nothing is stored. A library wants it rounded in memory: then once for all products, but while
 * values are computed again for want of memory, where two (forward and backward) would keep it alive between them. In
 * float16 always: beside an operand in float32 the library would multiply in float32 (device/cuda/gemm_cublaslt.c). */
static bool folds_cast(const an_planner *w, int32_t id)
{
    enum { MANY = 3 };
    const struct an_tensor *n = w->g->node[id];
    if (n->op != AN_OP_CAST || !an_is_leaf(w, an_base(w, n->src[0]))) return false;
    if (!w->rq->target->library_gemm) return true;
    return n->dtype != AN_F16 && w->node[id].n_uses < (w->rq->recompute ? MANY : 2);
}

static void decide_memory(an_planner *w, int32_t id)
{
    an_planner_node *wn = &w->node[id];
    const struct an_tensor *n = w->g->node[id];
    if ((n->op == AN_OP_CONST && !wn->as_copy) || n->op == AN_OP_ASSIGN || n->op == AN_OP_LEAF) return;
    bool elsewhere = false;
    for (int u = 0; u < wn->n_uses; u++) {
        int32_t user = w->use[wn->first_use + u];
        const struct an_tensor *un = w->g->node[user];
        if (un->op == AN_OP_PICK) continue;
        for (int s = 0; s < un->n_src; s++) {
            if (an_base(w, un->src[s]) != id) continue;
            if (an_reads_memory(w, user, s)) {
                if (un->op != AN_OP_MATMUL || !gemm_takes(w, un) || !folds_cast(w, id)) wn->mat = 1;
            } else if (w->node[user].group != wn->group) {
                elsewhere = true;
            }
        }
    }
    if (w->rq->unfused && !an_is_leaf(w, id)) elsewhere = wn->n_uses > 0;
    if (wn->mat && w->rq->recompute && (w->rq->loss < 0 || id <= w->rq->loss) && an_is_virtual(w, id) &&
        wn->scope == AN_SCOPE_COL && !w->cuts->node[id].keep && !n->deferred) {
        cone again = {.possible = true};
        wn->mat = 0; /* look beneath it */
        measure_cone(w, id, n->numel, &again);
        wn->mat = 1;
        if (again.possible && again.cost <= RECOMPUTE_COST && again.large <= 1) {
            wn->remat = 1;
            store_cone_rows(w, &again);
        }
    }
    if (wn->mat || !elsewhere) return;
    if (!an_is_virtual(w, id)) {
        wn->mat = 1;
        return;
    }
    if (n->op == AN_OP_IOTA || n->op == AN_OP_RAND || only_random(w, id, 0)) return;
    if (w->rq->unfused || wn->scope == AN_SCOPE_ROW || w->cuts->node[id].store) {
        wn->mat = 1;
        return;
    }
    int32_t below = n->op == AN_OP_CAST ? an_base(w, n->src[0]) : -1;
    if (below >= 0 && !an_is_leaf(w, below) &&
        an_dtype_bytes((an_dtype)w->g->node[below]->dtype) < an_dtype_bytes((an_dtype)n->dtype)) {
        w->node[below].mat = 1; /* a widening cast: keep the narrow value */
        return;
    }
    cone c = {.possible = true};
    measure_cone(w, id, n->numel, &c);
    if (c.possible && c.cost <= RECOMPUTE_COST && c.large <= 1)
        store_cone_rows(w, &c);
    else
        wn->mat = 1;
}

static an_status list_outputs(an_planner *w)
{
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && w->node[id].mat && w->node[id].group >= 0) w->group[w->node[id].group].n_out++;
    for (int32_t g = 0; g < w->n_groups; g++) {
        w->group[g].out = AN_NEW_ARRAY(&w->scratch, int32_t, w->group[g].n_out + 1);
        if (!w->group[g].out) return an_fail_nomem(w->err, "the planner's groups", 0);
        w->group[g].n_out = 0;
    }
    for (int32_t id = 0; id < w->g->n; id++) {
        if (!w->node[id].live || !w->node[id].mat || w->node[id].group < 0) continue;
        an_fusion_group *gr = &w->group[w->node[id].group];
        gr->out[gr->n_out++] = id;
    }
    return AN_OK;
}

an_status an_pass_group(an_planner *w)
{
    an_graph *g = w->g;
    for (int32_t id = 0; id < g->n; id++)
        if (w->node[id].live && g->node[id]->op == AN_OP_PERMUTE) wish_layout(w, id);
    an_find_row_updates(w);
    pad_rows(w);
    mark_copies(w);
    AN_TRY(an_find_uses(w));
    for (int32_t id = 0; id < g->n; id++) {
        an_op op = (an_op)g->node[id]->op;
        w->node[id].group = -1;
        if (!w->node[id].live || an_is_move(w, id) || op == AN_OP_LEAF || op == AN_OP_ASSIGN ||
            (op == AN_OP_CONST && !w->node[id].as_copy))
            continue;
        AN_TRY(make_group(w, id));
    }
    for (int i = 0; i < w->rq->n_roots; i++) {
        int32_t base = an_base(w, w->rq->root[i]);
        if (g->node[base]->op != AN_OP_LEAF) w->node[base].mat = 1;
    }
    for (int32_t id = 0; id < g->n; id++)
        if (w->node[id].live && !an_is_move(w, id)) decide_memory(w, id);
    return list_outputs(w);
}
