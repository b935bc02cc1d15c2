/* views.c: seeing through views.
 *
 * A view has no memory: reading its element at one index is reading its source's element at another. PAD and CONCAT are
 * no views, for they choose between values; they are arithmetic.
 *
 * Which views a reader of memory takes as they are and which become copies (contiguous): insert_copies.c. How a GEMM reads a
 * transposed operand: lower_gemm.c (strides), device/cuda/gemm_cublaslt.c (transA, transB).
 *
 *     y = permute(reshape(x))      y[i,j] is x[(j * 4 + i)]: an_walk_views gives the index into x */
#include "planner/planner_internal.h"

#include <string.h>

bool an_is_view(const an_planner *w, int32_t id)
{
    if (w->node[id].as_copy) return false;
    switch (w->g->node[id]->op) {
    case AN_OP_RESHAPE:
    case AN_OP_PERMUTE:
    case AN_OP_EXPAND:
    case AN_OP_SLICE:
    case AN_OP_FLIP:
    case AN_OP_DETACH: return true;
    case AN_OP_ALLREDUCE:
    case AN_OP_REDUCESCATTER:
    case AN_OP_ALLGATHER: return !an_is_exchange(w->g->node[id]);
    default: return false;
    }
}

int32_t an_base(const an_planner *w, int32_t id)
{
    while (an_is_view(w, id)) id = w->g->node[id]->src[0];
    return id;
}

/* A coordinate that is read inside [0, n) only. Behind a pad or a concatenation its range is larger, and a guard keeps reads out of the
 * rest; the remainder by n is the same number inside, and its range is known. */
static an_ix within(an_ix_pool *p, an_ix at, int64_t n)
{
    if (at < 0 || n <= 1) return an_ix_const(p, 0);
    const int64_t lo = p->expr[at].lo;
    if (lo >= 0 && p->expr[at].hi < n) return at;
    return an_ix_mod(p, an_ix_add(p, at, an_ix_const(p, lo < 0 ? an_round_up(-lo, n) : 0)), n);
}

/* Divisions and remainders in an expression. */
static int divisions(const an_ix_pool *p, an_ix e)
{
    int n = 0;
    for (int i = 0; e >= 0 && i < p->expr[e].n; i++) {
        const an_atom *t = &p->atom[p->expr[e].term[i].atom];
        if (t->kind != AN_ATOM_VAR) n += 1 + divisions(p, t->e);
    }
    return n;
}

/* Where coordinates exceed their extents, divisions that would cancel remain, to be made for each element. So then the index is made of
 * the coordinates within() as well, and the one with fewer divisions is taken. */
static void reshape_index(an_ix_pool *p, const struct an_tensor *n, const struct an_tensor *s, const an_ix *iv,
                          an_ix *out)
{
    an_ix kept[AN_MAX_RANK], other[AN_MAX_RANK];
    an_ix_unlinear(p, an_ix_linear(p, n->rank, n->shape, iv), s->rank, s->shape, out);
    bool exceeds = false;
    for (int i = 0; i < n->rank && !p->failed; i++) {
        kept[i] = within(p, iv[i], n->shape[i]);
        exceeds |= kept[i] != iv[i];
    }
    if (!exceeds || p->failed) return;
    an_ix_unlinear(p, an_ix_linear(p, n->rank, n->shape, kept), s->rank, s->shape, other);
    int before = 0, after = 0;
    for (int i = 0; i < s->rank; i++) before += divisions(p, out[i]), after += divisions(p, other[i]);
    if (after < before) memcpy(out, other, sizeof *out * s->rank);
}

void an_view_index(const an_planner *w, an_ix_pool *p, int32_t id, const an_ix *iv, an_ix *out)
{
    const struct an_tensor *n = w->g->node[id], *s = w->g->node[n->src[0]];
    switch (n->op) {
    case AN_OP_ALLGATHER: /* of one rank: [1,...] */
    case AN_OP_RESHAPE: reshape_index(p, n, s, iv, out); break;
    case AN_OP_PERMUTE:
        for (int i = 0; i < n->rank; i++) out[n->attr[i]] = iv[i];
        break;
    case AN_OP_EXPAND:
        for (int i = 0; i < n->rank; i++) out[i] = s->shape[i] == 1 ? an_ix_const(p, 0) : iv[i];
        break;
    case AN_OP_SLICE:
        for (int i = 0; i < n->rank; i++)
            out[i] = an_ix_add(p, an_ix_mul(p, iv[i], n->attr[2 * i + 1]), an_ix_const(p, n->attr[2 * i]));
        break;
    case AN_OP_FLIP:
        for (int i = 0; i < n->rank; i++)
            out[i] =
                n->attr[0] >> i & 1 ? an_ix_add(p, an_ix_const(p, n->shape[i] - 1), an_ix_mul(p, iv[i], -1)) : iv[i];
        break;
    default:
        memcpy(out, iv, sizeof *out * n->rank);
        break; /* DETACH, ALLREDUCE and REDUCESCATTER of one rank, copies */
    }
}

void an_walk_views(const an_planner *w, an_ix_pool *p, int32_t id, const an_ix *iv, int32_t *base, an_ix *out)
{
    an_ix a[AN_MAX_RANK], b[AN_MAX_RANK];
    memcpy(a, iv, sizeof *a * w->g->node[id]->rank);
    while (an_is_view(w, id)) {
        an_view_index(w, p, id, a, b);
        id = w->g->node[id]->src[0];
        memcpy(a, b, sizeof *a * w->g->node[id]->rank);
    }
    *base = id;
    memcpy(out, a, sizeof *out * w->g->node[id]->rank);
}

an_ix an_memory_index(const an_planner *w, an_ix_pool *p, int32_t base, const an_ix *iv)
{
    const struct an_tensor *n = w->g->node[base];
    const int64_t *stride = w->node[base].stride;
    if (!stride) return an_ix_linear(p, n->rank, n->shape, iv);
    an_ix sum = an_ix_const(p, 0);
    for (int i = 0; i < n->rank; i++) sum = an_ix_add(p, sum, an_ix_mul(p, iv[i], stride[i]));
    return sum;
}

an_view an_view_of(an_planner *w, int32_t id, bool through_cast)
{
    const struct an_tensor *n = w->g->node[id];
    an_view v = {.affine = true};
    an_ix iv[AN_MAX_RANK], at[AN_MAX_RANK];
    for (int i = 0; i < n->rank; i++) iv[i] = an_ix_var(&w->ix, i, n->shape[i]);
    an_walk_views(w, &w->ix, id, iv, &v.base, at);
    /* A weight's cast to the GEMM's dtype happens while the operand is packed, unless it is stored; other casts are
     * values of their own. */
    if (through_cast && w->g->node[v.base]->op == AN_OP_CAST && !w->node[v.base].stored) {
        int32_t below = an_base(w, w->g->node[v.base]->src[0]);
        if (an_is_leaf(w, below)) {
            int32_t cast = v.base;
            memcpy(iv, at, sizeof iv);
            an_walk_views(w, &w->ix, w->g->node[cast]->src[0], iv, &v.base, at);
        }
    }
    v.dtype = w->g->node[v.base]->dtype;
    an_ix where = an_memory_index(w, &w->ix, v.base, at);
    for (int i = 0; i < n->rank; i++) v.affine &= an_ix_stride(&w->ix, where, i, &v.stride[i]);
    if (w->ix.failed) v.affine = false;
    if (v.affine) {
        v.offset = w->ix.expr[where].c;
        for (int i = 0; i < w->ix.expr[where].n; i++)
            v.affine &= w->ix.atom[w->ix.expr[where].term[i].atom].kind == AN_ATOM_VAR;
    }
    return v;
}
