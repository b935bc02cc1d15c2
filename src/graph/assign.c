/* assign.c: assignments to states, ordered.
 *
 * Readers in a step see the value that a state had when the step began. So two assignments that each read the state would
 * both start from that value, and the second would undo the first:
 *
 *     s' = f(s)         a module called twice in a step, for example
 *     s' = g(s)         batch norm with shared running statistics
 *
 * The second assignment is therefore built on the first: its value is emitted again with f(s) in place of s, and the step
 * ends with s' = g(f(s)). Only the nodes between the state and the assigned value are emitted again.
 */
#include "graph/graph.h"

#include <stdlib.h>

static int32_t leaf_id_of(const an_graph *g, const an_tensor *t)
{
    return t->leaf_epoch == g->epoch ? t->leaf_id : -1;
}

int32_t an_graph_last_assign(const an_graph *g, const an_tensor *state)
{
    const int32_t leaf = leaf_id_of(g, state);
    for (int32_t i = g->n_assigns; leaf >= 0 && i-- > 0;)
        if (g->node[g->assign[i]]->src[0] == leaf) return g->assign[i];
    return -1;
}

/* Emits node `n` again with the sources new_id[n->src[i] - first]. */
static an_tensor *emit_copy(an_graph *g, const an_tensor *n, const int32_t *new_id, int32_t first)
{
    an_tensor *src[UINT8_MAX];
    for (int i = 0; i < n->n_src; i++) {
        const int32_t s = n->src[i];
        src[i] = g->node[s < first ? s : new_id[s - first]];
    }
    const int32_t scope = g->scope;
    const bool deferred = g->deferred;
    g->scope = n->scope;
    g->deferred = n->deferred;
    an_tensor *copy = an_emit(g, &(an_emit_args){.op = (an_op)n->op,
                                                 .dtype = (an_dtype)n->dtype,
                                                 .rank = n->rank,
                                                 .shape = n->shape,
                                                 .n_src = n->n_src,
                                                 .src = src,
                                                 .n_attr = n->n_attr,
                                                 .attr = n->attr,
                                                 .imm = {n->imm[0], n->imm[1]},
                                                 .imm_i = n->imm_i,
                                                 .at = n->at});
    g->scope = scope;
    g->deferred = deferred;
    return copy;
}

/* new_id[i] of node first + i: -1 when `value` does not need it, itself when it does. */
static void mark_needed(const an_graph *g, int32_t first, int32_t value, int32_t *new_id)
{
    for (int32_t id = first; id <= value; id++) new_id[id - first] = -1;
    new_id[value - first] = value;
    for (int32_t id = value; id > first; id--)
        for (int i = 0; new_id[id - first] >= 0 && i < g->node[id]->n_src; i++) {
            const int32_t s = g->node[id]->src[i];
            if (s >= first) new_id[s - first] = s;
        }
}

an_tensor *an_graph_substitute(an_graph *g, an_tensor *value, const an_tensor *leaf, const an_tensor *by)
{
    const int32_t first = leaf->id, last = value->id;
    if (last < first) return value;
    int32_t *new_id = malloc(sizeof *new_id * (size_t)(last - first + 1));
    if (!new_id) {
        an_fail_nomem(g->err, "an_assign", sizeof *new_id * (size_t)(last - first + 1));
        return g->poison;
    }
    mark_needed(g, first, last, new_id);
    const bool reads = new_id[0] >= 0; /* the value depends on the leaf */
    if (reads) new_id[0] = by->id;
    bool fine = true;
    for (int32_t id = first + 1; id <= last && reads && fine; id++) {
        const an_tensor *n = g->node[id];
        bool changed = false;
        for (int i = 0; new_id[id - first] >= 0 && i < n->n_src; i++)
            changed |= n->src[i] >= first && new_id[n->src[i] - first] != n->src[i];
        if (!changed) continue;
        new_id[id - first] = emit_copy(g, n, new_id, first)->id;
        fine = new_id[id - first] >= 0;
    }
    an_tensor *result = fine ? g->node[new_id[last - first]] : g->poison;
    free(new_id);
    return result;
}

an_tensor *an_graph_assign(an_graph *g, an_tensor *leaf, an_tensor *value, const char *at)
{
    const int32_t before = an_graph_last_assign(g, leaf);
    if (before >= 0) value = an_graph_substitute(g, value, leaf, g->node[g->node[before]->src[1]]);
    if (value->poison) return value;
    if (!an_grow((void **)&g->assign, g->n_assigns, &g->cap_assigns, sizeof *g->assign)) {
        an_fail_nomem(g->err, "an_assign", sizeof *g->assign);
        return g->poison;
    }
    an_tensor *n = an_emit(g, &(an_emit_args){.op = AN_OP_ASSIGN,
                                              .dtype = (an_dtype)leaf->dtype,
                                              .rank = leaf->rank,
                                              .shape = leaf->shape,
                                              .n_src = 2,
                                              .src = (an_tensor *[]){leaf, value},
                                              .at = at});
    if (!n->poison) g->assign[g->n_assigns++] = n->id;
    return n;
}

void an_graph_assigns_ran(an_graph *g)
{
    g->n_assigns = 0;
}
