/* node_queries.c: what kind of node is this one? Questions that several passes ask.
 *
 * Invariant: the answers depend on the graph, the target and what the passes before fuse have marked (as_copy,
 * row_update), never on groups: they are the same in every pass from fuse on. */
#include "codegen/planes.h"
#include "planner/loop_builder.h"

#include <string.h>

bool an_is_leaf(const an_planner *w, int32_t id)
{
    return w->g->node[id]->op == AN_OP_LEAF;
}

bool an_is_root_base(const an_planner *w, int32_t id)
{
    for (int i = 0; i < w->rq->n_roots; i++)
        if (an_base(w, w->rq->root[i]) == id) return true;
    return false;
}

static bool is_f32_or_16_bits(an_dtype t)
{
    return t == AN_F32 || t == AN_BF16 || t == AN_F16;
}

/* GEMM kernels take f32 and 16-bit floats; other dtypes are column groups. */
bool an_matmul_is_gemm(const an_planner *w, const struct an_tensor *n)
{
    return is_f32_or_16_bits((an_dtype)n->dtype) && is_f32_or_16_bits((an_dtype)w->g->node[n->src[0]]->dtype) &&
           !w->rq->target->loops_only;
}

bool an_is_window_of_columns(const an_planner *w, const struct an_tensor *n)
{
    return an_ops[n->op].cls == AN_CLS_WINDOW && n->op != AN_OP_POOL_MAX_GRAD && !an_conv_is_gemm(w, n);
}

bool an_takes_planes(const an_planner *w, const struct an_tensor *n, const struct an_tensor *t)
{
    const int64_t *stride = n->op == AN_OP_POOL_SUM_GRAD ? n->attr + 2 : n->attr;
    const bool divides = (n->op == AN_OP_CONV2D_DX || n->op == AN_OP_POOL_SUM_GRAD) && (stride[0] > 1 || stride[1] > 1);
    return !strcmp(w->rq->target->dialect, "c") && t->rank == 4 && t->dtype == AN_F32 && t->shape[3] % 8 == 0 &&
           !divides;
}

bool an_is_exchange(const struct an_tensor *n)
{
    return an_ops[n->op].cls == AN_CLS_COLLECTIVE && n->n_attr > 0 && n->attr[0] > 1;
}

bool an_starts_group(const an_planner *w, int32_t id)
{
    an_class c = an_ops[w->g->node[id]->op].cls;
    return c == AN_CLS_MATMUL || c == AN_CLS_ATTENTION || c == AN_CLS_WINDOW || c == AN_CLS_CALL ||
           w->g->node[id]->op == AN_OP_SCATTER_ADD || w->g->node[id]->op == AN_OP_PACK ||
           w->g->node[id]->op == AN_OP_PICK || an_is_exchange(w->g->node[id]) || an_is_concat_kernel(w, id) ||
           w->node[id].row_update;
}

bool an_is_concat_kernel(const an_planner *w, int32_t id)
{
    return w->g->node[id]->op == AN_OP_CONCAT && w->g->node[id]->n_src > AN_CONCAT_PARTS;
}

bool an_is_inlinable(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    if (w->node[id].row_update) return false;
    return an_ops[n->op].cls == AN_CLS_ELEM || n->op == AN_OP_CAST || n->op == AN_OP_GATHER || n->op == AN_OP_PAD ||
           (n->op == AN_OP_CONCAT && !an_is_concat_kernel(w, id)) || n->op == AN_OP_RAND || n->op == AN_OP_IOTA ||
           n->op == AN_OP_CONST || w->node[id].as_copy;
}

bool an_reads_memory(const an_planner *w, int32_t user, int source)
{
    const struct an_tensor *n = w->g->node[user];
    if (n->op == AN_OP_GATHER) return source == 0;
    if (n->op == AN_OP_ASSIGN) return source == 1;
    if (w->node[user].row_update) return source == 1; /* the row; its other sources are leaves */
    return an_starts_group(w, user) && !an_is_concat_kernel(w, user);
}

/* What a GEMM's packing makes of an operand that is stored as `from`: it widens 16 bits to float32, exactly, and rounds
 * to bf16. It reads nothing else, and rounds to nothing else: not to float16. */
static bool packing_casts(an_dtype from, an_dtype to)
{
    const bool narrow = from == AN_BF16 || from == AN_F16;
    return (narrow && to == AN_F32) || ((narrow || from == AN_F32) && to == AN_BF16);
}

/* Is `id` a leaf's cast that GEMM `user` does as it loads the operand?
 *     the device's own GEMM does those above: nothing is stored
 *     a library's wants the operand in memory: stored once for all GEMMs, but while values are recomputed for want of
 *         memory only from MANY_READERS on; for two (forward and backward) it would be alive between them
 *     one whose rows are gated reads bf16: the cast takes less memory than the gate would */
static bool cast_is_folded(an_planner *w, int32_t id, int32_t user)
{
    enum { MANY_READERS = 3 };
    const struct an_tensor *n = w->g->node[id], *un = w->g->node[user];
    if (n->op != AN_OP_CAST || un->op != AN_OP_MATMUL || !an_matmul_is_gemm(w, un)) return false;
    const int32_t leaf = an_base(w, n->src[0]);
    if (!an_is_leaf(w, leaf) || !packing_casts((an_dtype)w->g->node[leaf]->dtype, (an_dtype)n->dtype)) return false;
    if (!w->rq->target->library_gemm) return true;
    return w->node[id].n_uses < (w->rq->recompute ? MANY_READERS : 2) && an_gating_of(w, user) == AN_GATES_NOT;
}

bool an_is_operand(an_planner *w, int32_t id)
{
    const an_planner_node *wn = &w->node[id];
    for (int u = 0; u < wn->n_uses; u++) {
        const int32_t user = w->use[wn->first_use + u];
        const struct an_tensor *un = w->g->node[user];
        if (un->op == AN_OP_PICK || cast_is_folded(w, id, user)) continue;
        for (int s = 0; s < un->n_src; s++)
            if (an_base(w, un->src[s]) == id && an_reads_memory(w, user, s)) return true;
    }
    return false;
}

/* Does every reader of `id` read its upper or its lower rows? */
static bool is_read_in_halves(an_planner *w, int32_t id)
{
    const an_planner_node *wn = &w->node[id];
    const int64_t half = w->g->node[id]->numel / 2;
    bool read[2] = {false, false};
    for (int u = 0; u < wn->n_uses; u++) {
        const struct an_tensor *user = w->g->node[w->use[wn->first_use + u]];
        for (int s = 0; s < user->n_src; s++) {
            if (an_base(w, user->src[s]) != id) continue;
            const an_view v = an_view_of(w, user->src[s], false);
            if (!v.affine || w->g->node[user->src[s]]->numel != half || (v.offset != 0 && v.offset != half))
                return false;
            read[v.offset == half] = true;
        }
    }
    return read[0] && read[1];
}

an_gating an_gating_of(an_planner *w, int32_t product)
{
    const an_target *t = w->rq->target;
    const struct an_tensor *n = w->g->node[product];
    if (!t->gates || n->op != AN_OP_MATMUL || n->dtype != AN_BF16 || n->rank != 2 || n->shape[0] % 2 || n->deferred ||
        w->node[product].stride || w->node[product].transposed || w->rq->unfused || an_is_root_base(w, product))
        return AN_GATES_NOT;
    const an_gating g = t->gates(t, n->shape[0], n->shape[1], w->g->node[n->src[0]]->shape[1]);
    return g != AN_GATES_NOT && is_read_in_halves(w, product) ? g : AN_GATES_NOT;
}

const char *an_scope_of(const an_planner *w, int32_t id)
{
    int32_t s = w->g->node[id]->scope;
    return s >= 0 && s < w->g->n_scopes ? w->g->scopes[s] : "";
}

enum { SHORT_ROW = 512 }; /* rows of fewer columns take the next axis in */

void an_fold_short_rows(const struct an_tensor *n, const int32_t *shape, int64_t *rows, int64_t *cols)
{
    *rows = *cols = 1;
    int i = n->rank - 1;
    for (; i >= 0 && (i == n->rank - 1 || *cols < SHORT_ROW); i--) *cols *= shape[i];
    for (; i >= 0; i--) *rows *= shape[i];
    if (!*cols && n->rank) *rows = 0;
}
