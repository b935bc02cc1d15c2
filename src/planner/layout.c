/* layout.c: pass 3: where values are written. Every value gets a record; parts of a CONCAT and gradients of a PACK are
 * written straight into the whole, so that joining costs nothing. A product already stands as its reader wants it
 * (fuse.c's wishes). */
#include "planner/planner_internal.h"

#include <string.h>

/* Memory strides of `base` when it is written through the moves of `top` into node `whole`, wherever that stands, at
 * `start` along `axis`; false when no strides describe that. */
static bool strides_through(an_planner *w, int32_t top, int32_t base, int32_t whole, int axis, int64_t start,
                            int64_t *stride, int64_t *offset)
{
    int32_t chain[32];
    int n = 0;
    for (int32_t id = top; id != base; id = w->g->node[id]->src[0]) {
        if (n == 32) return false;
        chain[n++] = id;
    }
    const struct an_tensor *b = w->g->node[base];
    an_ix iv[AN_MAX_RANK], up[AN_MAX_RANK];
    for (int i = 0; i < b->rank; i++) iv[i] = an_ix_var(&w->ix, i, b->shape[i]);
    while (n--) {
        const struct an_tensor *m = w->g->node[chain[n]], *s = w->g->node[m->src[0]];
        if (m->op == AN_OP_RESHAPE)
            an_ix_unlinear(&w->ix, an_ix_linear(&w->ix, s->rank, s->shape, iv), m->rank, m->shape, up);
        else if (m->op == AN_OP_PERMUTE)
            for (int i = 0; i < m->rank; i++) up[i] = iv[m->attr[i]];
        else if (m->op == AN_OP_DETACH)
            memcpy(up, iv, sizeof up);
        else
            return false;
        memcpy(iv, up, sizeof iv);
    }
    iv[axis] = an_ix_add(&w->ix, iv[axis], an_ix_const(&w->ix, start));
    an_ix where = an_memory_index(w, &w->ix, whole, iv);
    for (int i = 0; i < b->rank; i++)
        if (!an_ix_stride(&w->ix, where, i, &stride[i])) return false;
    if (w->ix.failed) return false;
    *offset = w->ix.expr[where].c;
    return true;
}

static bool attention_gradient(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    return n->op == AN_OP_ATTENTION_GRAD || (n->op == AN_OP_PICK && w->g->node[n->src[0]]->op == AN_OP_ATTENTION_GRAD);
}

static bool is_root_base(const an_planner *w, int32_t id)
{
    for (int i = 0; i < w->rq->n_roots; i++)
        if (an_base(w, w->rq->root[i]) == id) return true;
    return false;
}

/* qkv's gradient: when every part of the CONCAT comes from attention and nobody else reads it, attention writes the
 * whole. */
static void house_concat(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    an_fusion_group *gr = &w->group[w->node[id].group];
    if (gr->n_out != 1 || gr->out[0] != id || n->n_src > 8 || w->rq->unfused) return;
    int axis = (int)n->attr[0];
    int64_t stride[8][AN_MAX_RANK], offset[8], start = 0;
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        const struct an_tensor *b = w->g->node[base];
        bool whole = w->g->node[n->src[s]]->numel == b->numel;
        if (!attention_gradient(w, base) || !whole || w->node[base].home >= 0 || is_root_base(w, base)) return;
        int users = 0;
        for (int u = 0; u < w->node[base].n_uses; u++)
            users += w->g->node[w->use[w->node[base].first_use + u]]->op != AN_OP_PICK;
        if (users != 1 || !strides_through(w, n->src[s], base, id, axis, start, stride[s], &offset[s])) return;
        if (stride[s][b->rank - 1] != 1) return;
        if (offset[s] * (int64_t)an_dtype_bytes((an_dtype)n->dtype) % AN_MAX(w->rq->target->bind_align, 1)) return;
        start += w->g->node[n->src[s]]->shape[axis];
    }
    for (int s = 0; s < n->n_src; s++) {
        an_planner_node *wn = &w->node[an_base(w, n->src[s])];
        int64_t *kept = an_arena_copy(&w->scratch, stride[s], sizeof stride[s]);
        if (!kept) return;
        wn->stride = kept;
        wn->home = id;
        wn->home_offset = offset[s];
        wn->mat = 1;
    }
    gr->step = -2; /* no launch of its own */
}

static void house_pack(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        an_planner_node *wn = &w->node[base];
        if (an_is_leaf(w, base) || wn->home >= 0 || w->g->node[base]->dtype != w->g->node[id]->dtype ||
            w->g->node[base]->op == AN_OP_PACK)
            continue;
        int64_t block_bytes;
        int64_t at = w->rq->pack(w->rq->user, (int)n->attr[0], s, &block_bytes);
        wn->home = id;
        wn->home_offset = at / (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    }
}

/* What rows are scattered onto is written where the sum will stand, when nobody else reads it. */
static void house_scatter(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    if (n->n_src < 3 || w->group[w->node[id].group].kind != AN_G_SCATTER) return;
    int32_t base = an_base(w, n->src[2]);
    an_planner_node *wn = &w->node[base];
    if (an_is_leaf(w, base) || wn->home >= 0 || wn->n_uses != 1 || is_root_base(w, base) ||
        w->g->node[base]->numel != n->numel || w->g->node[base]->op == AN_OP_PACK)
        return;
    wn->home = id;
    wn->home_offset = 0;
}

int64_t an_value_bytes(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    int64_t last = 0;
    if (!w->node[id].stride || w->node[id].home >= 0 || !n->numel) return n->numel * size;
    for (int i = 0; i < n->rank; i++) last += (n->shape[i] - 1) * w->node[id].stride[i];
    return AN_MAX(last + 1, n->numel) * size;
}

static an_status make_value(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    int64_t bytes = an_value_bytes(w, id);
    if (n->op == AN_OP_PACK) w->rq->pack(w->rq->user, (int)n->attr[0], 0, &bytes);
    const char *scope = an_scope_of(w, id), *op = n->op == AN_OP_PACK ? "gradients" : an_ops[n->op].name;
    const char *name = an_arena_printf(w->arena, "%s%s%s", scope, *scope ? " " : "", op);
    w->node[id].value =
        name ? an_value_new(w, id, 0, bytes, n->op == AN_OP_PACK ? AN_USE_GRADIENT : AN_USE_ACTIVATION, name) : -1;
    return w->node[id].value < 0 ? an_fail_nomem(w->err, "the plan's values", sizeof(an_value)) : AN_OK;
}

an_status an_pass_layout(an_planner *w)
{
    for (int32_t id = 0; id < w->g->n; id++) w->node[id].value = w->node[id].home = -1;
    for (int32_t id = 0; id < w->g->n; id++) {
        if (!w->node[id].live || w->node[id].group < 0) continue;
        if (w->g->node[id]->op == AN_OP_CONCAT && w->node[id].mat) house_concat(w, id);
    }
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && w->g->node[id]->op == AN_OP_PACK) house_pack(w, id);
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && w->g->node[id]->op == AN_OP_SCATTER_ADD && w->node[id].mat) house_scatter(w, id);
    for (int32_t id = 0; id < w->g->n; id++)
        if (w->node[id].live && w->node[id].mat && w->node[id].group >= 0) AN_TRY(make_value(w, id));
    for (int32_t id = 0; id < w->g->n; id++) { /* homes are values by now: a home is always materialised */
        int32_t home = w->node[id].home, v = w->node[id].value;
        if (home < 0 || v < 0) continue;
        w->plan->value[v].inside = w->node[home].value;
        w->plan->value[v].offset = w->node[id].home_offset * (int64_t)an_dtype_bytes((an_dtype)w->g->node[home]->dtype);
        if (w->g->node[home]->op == AN_OP_PACK) w->plan->value[v].usage = AN_USE_GRADIENT;
    }
    return AN_OK;
}
