/* recompute_cost.c: what it takes to compute a node again from what is in memory.
 *
 * The cone of a node: itself and everything beneath it that would have to be computed too, down to leaves and stored
 * nodes.
 *
 *     gelu(h + b)      reads h (large, stored) and b (small); costs the operations of GELU and one addition
 *
 * A node is cheap to recompute when its cone costs at most 64 simple operations an element and reads at most one tensor
 * of about its own size: then computing it again costs no more than loading it would. */
#include "planner/planner_internal.h"

enum { MAX_COST = 64, MAX_LARGE = 1 };

/* Small beside `numel` elements: one value a row, which is stored where a cone needs it (an_store_rows_beneath). */
static bool is_row_value(const an_planner *w, int32_t id)
{
    return w->node[id].scope == AN_SCOPE_ROW || an_ops[w->g->node[id]->op].cls == AN_CLS_REDUCE;
}

/* Tensors of more than a quarter of its size count by their elements, at most as many as it has itself: two halves are one. */
static void count_read(an_recompute_cost *c, const struct an_tensor *read, int64_t at_least, int64_t numel)
{
    const int64_t n = AN_MIN(AN_MAX(read->numel, at_least), numel); /* of a larger one, as much as there are elements */
    if (n * 4 <= numel) return;
    c->elements += n;
    c->bytes += n * (int64_t)an_dtype_bytes((an_dtype)read->dtype);
    c->large = (int)AN_MIN(an_ceil_div(c->elements, AN_MAX(numel, 1)), INT32_MAX);
}

/* `top`: the node itself, which is looked beneath even if it is stored. */
static void measure(const an_planner *w, int32_t id, int64_t numel, bool top, an_recompute_cost *c)
{
    for (int i = 0; i < c->n_seen; i++)
        if (c->seen[i] == id) return;
    if (c->n_seen == (int)AN_COUNT(c->seen)) {
        c->possible = false;
        return;
    }
    c->seen[c->n_seen++] = id;
    const struct an_tensor *n = w->g->node[id];
    if (an_is_leaf(w, id) || (w->node[id].stored && !top)) {
        count_read(c, n, 0, numel);
        return;
    }
    if (n->op == AN_OP_CONST || n->op == AN_OP_IOTA) return;
    if (is_row_value(w, id) && n->numel * 8 <= numel) return;
    if (!an_is_inlinable(w, id)) {
        c->possible = false;
        return;
    }
    c->cost += an_op_cost((an_op)n->op);
    for (int s = 0; s < n->n_src && c->possible; s++) {
        if (n->op == AN_OP_GATHER && s == 0)
            count_read(c, w->g->node[an_base(w, n->src[0])], numel, numel);
        else
            measure(w, an_base(w, n->src[s]), numel, false, c);
    }
}

an_recompute_cost an_cost_to_recompute(const an_planner *w, int32_t id)
{
    an_recompute_cost c = {.possible = true};
    measure(w, id, w->g->node[id]->numel, true, &c);
    return c;
}

bool an_is_cheap(const an_recompute_cost *c)
{
    return c->possible && c->cost <= MAX_COST && c->large <= MAX_LARGE;
}

void an_store_rows_beneath(an_planner *w, const an_recompute_cost *c)
{
    for (int i = 0; i < c->n_seen; i++) {
        const int32_t id = c->seen[i];
        const an_op op = (an_op)w->g->node[id]->op;
        if (an_is_leaf(w, id) || op == AN_OP_CONST || op == AN_OP_IOTA) continue;
        if (is_row_value(w, id)) w->node[id].stored = 1;
    }
}
