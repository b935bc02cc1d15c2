/* lower_values.c: the value of a node at an index → instructions of a loop kernel. What is in memory is loaded; what is
 * not is computed from its operands, all the way down; a view op only changes the index.
 *
 * A value that differs from element to element is computed in a phase: the first one in which the reductions beneath it
 * are known. Needed again in a later phase, it is loaded back if an earlier phase stored it, else computed again: the
 * same bits either way. A value per row is computed once and kept.
 *
 * Invariant: an (node, index, guard, phase) is one instruction: the builder's memo finds it again. */
#include "planner/loop_builder.h"

#include <string.h>

/* Whether this program computes `id` itself, for its outputs or on the way to them. */
static bool is_member(const an_loop_builder *b, int32_t id)
{
    return b->w->node[id].group == b->g || b->w->node[id].carrier == b->g;
}

/* The first instruction that reduces the node, -1. */
static int32_t oldest_reduction(const an_loop_builder *b, const an_loop_note *note)
{
    int32_t found = -1;
    for (int32_t m = note->memo; m >= 0; m = b->memo[m].older)
        if (b->p->ins[b->memo[m].ins].kind == AN_INS_REDUCE) found = b->memo[m].ins;
    return found;
}

/* First phase in which `id` can be computed: one past the last reduction of this group beneath it. Reductions of the
 * group are numbered as met. */
int an_loop_phase_of(an_loop_builder *b, int32_t id)
{
    an_planner *w = b->w;
    if (b->p->shape != AN_ROW) return 0;
    if (!is_member(b, id) && !(w->node[id].group >= 0 && !w->node[id].stored && !an_is_leaf(w, id))) return 0;
    an_loop_note *note = an_loop_note_of(b, id);
    if (note->phase >= 0) return note->phase;
    const struct an_tensor *n = w->g->node[id];
    const int32_t reduction = oldest_reduction(b, note);
    if (reduction >= 0) return b->p->ins[reduction].phase + 1;
    int phase = 0;
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        if (is_member(b, base) || (w->node[base].group >= 0 && !w->node[base].stored))
            phase = AN_MAX(phase, an_loop_phase_of(b, base));
    }
    an_loop_note_of(b, id)->phase = (int8_t)phase;
    return phase;
}

static int32_t load(an_loop_builder *b, int32_t base, const an_ix *iv, int32_t guard, int phase)
{
    an_ins in = an_loop_ins(AN_INS_LOAD, b->w->g->node[base]->dtype, phase);
    int arg = an_loop_arg_for(b, base, false);
    if (b->failed) return 0;
    in.arg = (int16_t)arg;
    in.ix = an_memory_index(b->w, &b->p->ix, base, iv);
    in.guard = guard;
    in.node = base;
    return an_loop_append(b, in, phase);
}

static int32_t constant(an_loop_builder *b, int dtype, double imm, int64_t imm_i, int phase)
{
    an_ins in = an_loop_ins(AN_INS_CONST, dtype, phase);
    in.imm = imm;
    in.imm_i = an_dtype_is_float((an_dtype)dtype) ? 0 : imm_i;
    for (int i = 0; i < b->p->n_ins; i++) {
        const an_ins *o = &b->p->ins[i];
        if (o->kind == AN_INS_CONST && o->dtype == dtype && !memcmp(&o->imm, &in.imm, sizeof imm) &&
            o->imm_i == in.imm_i && (o->scope == AN_SCOPE_ROW || o->phase == phase))
            return i;
    }
    return an_loop_append(b, in, b->p->shape == AN_ROW ? 0 : phase);
}

static int32_t test(an_loop_builder *b, an_bound bound, int phase)
{
    an_ins in = an_loop_ins(AN_INS_TEST, AN_BOOL, phase);
    in.guard = an_loop_guard(b, -1, bound);
    if (in.guard < 0) return constant(b, AN_BOOL, 0, 1, phase);
    return an_loop_append(b, in, phase);
}

static int32_t select(an_loop_builder *b, int32_t cond, int32_t yes, int32_t no, int dtype, int phase)
{
    an_ins in = an_loop_ins(AN_INS_ELEM, dtype, phase);
    in.op = AN_OP_WHERE;
    in.a = cond;
    in.b = yes;
    in.c = no;
    return an_loop_append(b, in, phase);
}

/* where(all bounds hold, source, padding). The source is loaded under the guard, so nothing outside of it is read. */
static int32_t pad(an_loop_builder *b, const struct an_tensor *n, const an_ix *iv, int32_t guard, int phase)
{
    const struct an_tensor *s = b->w->g->node[n->src[0]];
    an_ix at[AN_MAX_RANK] = {0};
    int32_t inside = guard, all = -1;
    for (int i = 0; i < n->rank; i++) {
        at[i] = an_ix_add(&b->p->ix, iv[i], an_ix_const(&b->p->ix, -n->attr[2 * i]));
        if (at[i] < 0) return an_loop_fail(b, "index arithmetic is too complex");
        an_bound bound = {at[i], 0, s->shape[i]};
        inside = an_loop_guard(b, inside, bound);
        all = an_loop_guard(b, all, bound);
    }
    int32_t v = an_loop_value(b, n->src[0], at, inside, phase);
    if (all < 0 || b->failed) return v;
    an_ins in = an_loop_ins(AN_INS_TEST, AN_BOOL, phase);
    in.guard = all;
    int32_t cond = an_loop_append(b, in, phase);
    return select(b, cond, v, constant(b, n->dtype, n->imm[0], (int64_t)n->imm[0], phase), n->dtype, phase);
}

/* Parts [from, to) of a CONCAT, the first of them at `start` along its axis; iv is in one of them:
 *     where(iv in part 1, part 1, where(iv in part 2, part 2, ...)) */
int32_t an_loop_concat(an_loop_builder *b, const struct an_tensor *n, int from, int to, int64_t start, const an_ix *iv,
                       int32_t guard, int phase)
{
    int axis = (int)n->attr[0];
    int32_t result = -1;
    for (int s = from; s < to; s++) {
        an_ix at[AN_MAX_RANK];
        memcpy(at, iv, sizeof *at * n->rank);
        int64_t len = b->w->g->node[n->src[s]]->shape[axis];
        at[axis] = an_ix_add(&b->p->ix, iv[axis], an_ix_const(&b->p->ix, -start));
        if (at[axis] < 0) return an_loop_fail(b, "index arithmetic is too complex");
        an_bound bound = {at[axis], 0, len};
        int32_t v = an_loop_value(b, n->src[s], at, an_loop_guard(b, guard, bound), phase);
        if (b->failed) return 0;
        result = result < 0 ? v : select(b, test(b, bound, phase), v, result, n->dtype, phase);
        start += len;
    }
    return result;
}

/* A row of a table in memory: a load whose address depends on a value, clamped into the table. */
static int32_t gather(an_loop_builder *b, const struct an_tensor *n, const an_ix *iv, int32_t guard, int phase)
{
    an_planner *w = b->w;
    const struct an_tensor *t = w->g->node[n->src[0]], *ids = w->g->node[n->src[1]];
    int32_t which = an_loop_value(b, n->src[1], iv, guard, phase);
    if (b->failed) return 0;
    an_ix at[AN_MAX_RANK];
    at[0] = an_ix_const(&b->p->ix, 0);
    memcpy(at + 1, iv + ids->rank, sizeof *at * (size_t)(t->rank - 1));
    const an_view v = an_view_of(w, n->src[0], false);
    an_ins in = an_loop_ins(AN_INS_LOAD, n->dtype, phase);
    in.arg = (int16_t)an_loop_arg_for(b, v.base, false);
    /* Not by way of the views: their quotients and remainders would come back to this, and be bounded more loosely. */
    in.ix = an_ix_add(&b->p->ix, an_ix_linear(&b->p->ix, t->rank, t->shape, at), an_ix_const(&b->p->ix, v.offset));
    in.a = which;
    in.clamp = t->shape[0];
    in.scale = t->shape[0] ? t->numel / t->shape[0] : 0; /* tables are contiguous: insert_copies.c */
    in.guard = guard;
    return an_loop_append(b, in, phase);
}

/* Whether operands change places: the graph has the older node first (emit.c), so a constant of several layers is first in all but the one that
 * made it. Here it is second in all, and their kernels are one. */
static bool constant_first(const an_planner *w, const struct an_tensor *n)
{
    return n->n_src == 2 && an_op_commutes((an_op)n->op) && w->g->node[an_base(w, n->src[0])]->op == AN_OP_CONST &&
           w->g->node[an_base(w, n->src[1])]->op != AN_OP_CONST;
}

static int32_t elementwise(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t guard, int phase)
{
    const struct an_tensor *n = b->w->g->node[id];
    const bool turn = constant_first(b->w, n);
    int32_t s[3] = {-1, -1, -1};
    for (int i = 0; i < n->n_src; i++) s[i] = an_loop_value(b, n->src[turn ? 1 - i : i], iv, guard, phase);
    if (b->failed) return 0;
    an_ins in = an_loop_ins(n->op == AN_OP_CAST ? AN_INS_CAST : AN_INS_ELEM, n->dtype, phase);
    in.op = n->op;
    in.a = s[0];
    in.b = s[1];
    in.c = s[2];
    in.node = id;
    return an_loop_append(b, in, phase);
}

static int32_t compute(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t guard, int phase)
{
    const struct an_tensor *n = b->w->g->node[id];
    an_ins in;
    if (b->w->node[id].as_copy && n->n_src) {
        an_ix at[AN_MAX_RANK];
        if (n->op == AN_OP_PAD) return pad(b, n, iv, guard, phase);
        if (n->op == AN_OP_CONCAT) return an_loop_concat(b, n, 0, n->n_src, 0, iv, guard, phase);
        an_view_index(b->w, &b->p->ix, id, iv, at);
        return an_loop_value(b, n->src[0], at, guard, phase);
    }
    switch (n->op) {
    case AN_OP_CONST: return constant(b, n->dtype, n->imm[0], n->imm_i, phase);
    case AN_OP_IOTA:
        in = an_loop_ins(AN_INS_INDEX, AN_I32, phase);
        in.ix = iv[n->attr[0]];
        return an_loop_append(b, in, phase);
    case AN_OP_RAND:
        in = an_loop_ins(AN_INS_RAND, AN_F32, phase);
        in.arg = (int16_t)an_loop_rng_arg(b);
        in.ix = an_ix_linear(&b->p->ix, n->rank, n->shape, iv);
        in.imm_i = n->attr[0];
        in.scale = n->attr[1] && n->rank && n->shape[0] ? n->numel / n->shape[0] : 0;
        in.node = id;
        return an_loop_append(b, in, phase);
    case AN_OP_PAD: return pad(b, n, iv, guard, phase);
    case AN_OP_CONCAT: return an_loop_concat(b, n, 0, n->n_src, 0, iv, guard, phase);
    case AN_OP_GATHER: return gather(b, n, iv, guard, phase);
    default:
        if (an_ops[n->op].cls == AN_CLS_ELEM || n->op == AN_OP_CAST) return elementwise(b, id, iv, guard, phase);
        return an_loop_fail(b, "an operation with its own kernel cannot be inlined");
    }
}

static int output_number(const an_loop_builder *b, int32_t id)
{
    for (int i = 0; i < b->gr->n_out; i++)
        if (b->gr->out[i] == id) return i;
    return -1;
}

/* Whether the place `key` of a value with one number per element is in this row: another row may not have been made. A node
 * of a leaf_only group, which an older group computes and stores, can be read anywhere (flipped along the rows). */
static bool in_own_row(an_loop_builder *b, an_ix key)
{
    an_ix_pool *p = &b->p->ix;
    return p->expr[key].lo >= 0 && an_ix_div(p, key, b->p->cols) == an_ix_var(p, AN_VAR_ROW, b->p->rows);
}

/* Whether output `out`, node `base`, is stored at `at` (linear: `key`) by an earlier phase. One element of it that a whole
 * row reads is not asked for: a row's values are loaded before the first phase. */
static bool stored_before(an_loop_builder *b, int out, int32_t base, const an_ix *at, an_ix key, int phase)
{
    return b->stored_phase[out] >= 0 && b->stored_phase[out] < phase && b->w->g->node[base]->op != AN_OP_CONST &&
           an_ix_uses(&b->p->ix, an_memory_index(b->w, &b->p->ix, base, at), AN_VAR_COL) && in_own_row(b, key);
}

/* The instruction holding `id` (through view ops) at index iv, for use in `phase`. */
int32_t an_loop_value(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t guard, int phase)
{
    an_planner *w = b->w;
    int32_t base;
    an_ix at[AN_MAX_RANK];
    if (b->failed || ++b->depth > 400) return an_loop_fail(b, "expression too deep");
    an_walk_views(w, &b->p->ix, id, iv, &base, at);
    const struct an_tensor *n = w->g->node[base];
    an_ix key = an_ix_linear(&b->p->ix, n->rank, n->shape, at);
    if (key < 0 || b->p->ix.failed) return an_loop_fail(b, "index arithmetic is too complex");
    for (int32_t i = an_loop_note_of(b, base)->memo; i >= 0; i = b->memo[i].older) {
        const an_memo *m = &b->memo[i];
        if (m->at != key) continue;
        const an_ins *in = &b->p->ins[m->ins];
        bool everywhere = in->kind == AN_INS_REDUCE || (in->scope == AN_SCOPE_ROW && m->guard == guard);
        if (everywhere || (m->phase == phase && m->guard == guard)) {
            b->depth--;
            return m->ins;
        }
    }
    bool mine = is_member(b, base);
    int out = mine ? output_number(b, base) : -1;
    int32_t r;
    if (an_is_leaf(w, base) || (!mine && w->node[base].stored && w->node[base].group < b->g) ||
        (out >= 0 && stored_before(b, out, base, at, key, phase)))
        r = load(b, base, at, guard, phase); /* in memory, or stored by an earlier phase of this kernel */
    else
        r = compute(b, base, at, guard, phase);
    b->depth--;
    if (b->failed) return 0;
    an_loop_remember(b, base, key, guard, phase, r);
    return r;
}
