/* lower_loop.c: group → loop kernel. Every view becomes index arithmetic over the loop variables r (row), c (column), q.
 *
 * The builder starts from what the group writes and reduces, in order, and walks down to values in memory, inlining
 * what is not stored:
 *
 *     y = x - mean(x)      phase 0   load x[r*C+c]   reduce sum → %2 (one value a row)   %3 = %2 * 1/C
 *                          phase 1   load x[r*C+c]   sub %3   store y[r*C+c]
 *
 * A value that differs from element to element is computed in a phase: the first one in which the reductions beneath it
 * are known. Needed again in a later phase, it is loaded back if an earlier phase stored it, else computed again: the
 * same bits either way. A value per row is computed once and kept.
 *
 * Invariant: an (node, index, guard, phase) is one instruction: `memo` finds it again. What exceeds a limit (arguments,
 * depth, nested pads) fails with a reason, and the group is split (split_group.c). */
#include "planner/lower_loop.h"

#include <stdlib.h>
#include <string.h>

int32_t an_loop_fail(an_loop_builder *b, const char *why)
{
    if (!b->failed) b->why = why;
    b->failed = true;
    return 0;
}

static int32_t ins_new(an_loop_builder *b, an_ins in)
{
    an_loop_kernel *p = b->p;
    if (p->n_ins == b->cap_ins) {
        int32_t cap = b->cap_ins ? 2 * b->cap_ins : 64;
        an_ins *bigger = AN_NEW_ARRAY(&b->w->scratch, an_ins, cap);
        if (!bigger) return an_loop_fail(b, "no memory");
        if (p->n_ins) memcpy(bigger, p->ins, sizeof in * (size_t)p->n_ins);
        p->ins = bigger;
        b->cap_ins = cap;
    }
    p->ins[p->n_ins] = in;
    return p->n_ins++;
}

an_ins an_loop_ins(an_ins_kind kind, int dtype, int phase)
{
    return (an_ins){.kind = (uint8_t)kind,
                    .dtype = (uint8_t)dtype,
                    .phase = (uint8_t)phase,
                    .arg = -1,
                    .a = -1,
                    .b = -1,
                    .c = -1,
                    .ix = -1,
                    .guard = -1,
                    .node = -1};
}

int32_t an_loop_guard(an_loop_builder *b, int32_t guard, an_bound bound)
{
    const an_ix_expr *e = &b->p->ix.expr[bound.e];
    if (bound.e >= 0 && e->lo >= bound.lo && e->hi < bound.hi) return guard; /* always true */
    an_guard g = {0};
    if (guard >= 0) g = b->p->guard[guard];
    for (int i = 0; i < g.n; i++)
        if (!memcmp(&g.bound[i], &bound, sizeof bound)) return guard;
    if (g.n == (int)AN_COUNT(g.bound)) return an_loop_fail(b, "more than four nested pads");
    g.bound[g.n++] = bound;
    for (int i = 0; i < b->p->n_guards; i++)
        if (b->p->guard[i].n == g.n && !memcmp(b->p->guard[i].bound, g.bound, sizeof g.bound[0] * (size_t)g.n))
            return i;
    if (b->p->n_guards == b->cap_guards) {
        int32_t cap = b->cap_guards ? 2 * b->cap_guards : 8;
        an_guard *bigger = AN_NEW_ARRAY(&b->w->scratch, an_guard, cap);
        if (!bigger) return an_loop_fail(b, "no memory");
        if (b->p->n_guards) memcpy(bigger, b->p->guard, sizeof g * (size_t)b->p->n_guards);
        b->p->guard = bigger;
        b->cap_guards = cap;
    }
    b->p->guard[b->p->n_guards] = g;
    return b->p->n_guards++;
}

/* The argument for a value or leaf; the same memory is one argument. */
static int arg_for(an_loop_builder *b, int32_t base, bool written)
{
    an_arg a = an_arg_of(b->w, base, written);
    const struct an_tensor *n = b->w->g->node[base];
    for (int i = 0; i < b->p->n_args; i++) {
        if (b->args[i].slot != a.slot || b->args[i].offset != a.offset || b->args[i].value != a.value ||
            b->p->arg[i].dtype != n->dtype)
            continue;
        b->p->arg[i].written |= written;
        b->p->arg[i].read |= !written;
        b->args[i].written |= written;
        if (a.bytes > b->args[i].bytes) { /* an empty tensor begins where the next one does */
            b->args[i].bytes = a.bytes;
            b->p->arg[i].numel = a.bytes / (int64_t)an_dtype_bytes((an_dtype)n->dtype);
        }
        return i;
    }
    if (b->p->n_args >= b->max_args) return an_loop_fail(b, "more buffers than a kernel takes");
    char shape[128];
    int i = b->p->n_args++;
    b->args[i] = a;
    b->p->arg[i] = (an_loop_arg){.dtype = n->dtype,
                                 .written = written,
                                 .read = !written,
                                 .fixed = an_is_leaf(b->w, base),
                                 .numel = a.bytes / (int64_t)an_dtype_bytes((an_dtype)n->dtype)};
    const char *stem = an_is_leaf(b->w, base) ? "p" : written ? "y" : "x";
    b->p->arg[i].name = an_arena_printf(b->w->arena, "%s%d", stem, i);
    const char *label = an_is_leaf(b->w, base)
                            ? b->w->rq->leaf(b->w->rq->user, (an_leaf)n->attr[0], (int)n->attr[1]).name
                            : an_ops[n->op].name;
    b->p->arg[i].note = an_arena_printf(b->w->arena, "%s %s %s", an_shape_text(n->rank, n->shape, shape, sizeof shape),
                                        label ? label : "", an_scope_of(b->w, base));
    if (!b->p->arg[i].name || !b->p->arg[i].note) return an_loop_fail(b, "no memory");
    for (char *c = (char *)b->p->arg[i].note; *c; c++) /* it is written into a comment, and names are the user's */
        if (*c == '*' || *c == '\\' || (unsigned char)*c < ' ') *c = '.';
    return i;
}

static int rng_arg(an_loop_builder *b)
{
    for (int i = 0; i < b->p->n_args; i++)
        if (b->args[i].slot == AN_SLOT_INPUT && b->args[i].offset == AN_INPUT_RNG && b->args[i].bytes == 8) return i;
    if (b->p->n_args >= b->max_args) return an_loop_fail(b, "more buffers than a kernel takes");
    int i = b->p->n_args++;
    b->args[i] = (an_arg){.slot = AN_SLOT_INPUT, .offset = AN_INPUT_RNG, .bytes = 8, .value = -1};
    b->p->arg[i] = (an_loop_arg){.dtype = AN_I32, .read = true, .numel = 2, .name = "rng", .note = "[2] key, sample 0"};
    return i;
}

/* ---------------------------------------------------------------------------------------------- scopes and phases */

static bool varies(an_loop_builder *b, an_ix e)
{
    return an_ix_uses(&b->p->ix, e, AN_VAR_COL) || an_ix_uses(&b->p->ix, e, AN_VAR_RED);
}

static bool guard_varies(an_loop_builder *b, int32_t guard)
{
    if (guard < 0) return false;
    for (int i = 0; i < b->p->guard[guard].n; i++)
        if (varies(b, b->p->guard[guard].bound[i].e)) return true;
    return false;
}

/* Appends with the scope and earliest phase that operands and indices give. */
int32_t an_loop_append(an_loop_builder *b, an_ins in, int phase)
{
    bool col = b->p->shape != AN_ROW || (in.ix >= 0 && varies(b, in.ix)) || guard_varies(b, in.guard);
    int earliest = 0;
    const int32_t operands[3] = {in.a, in.b, in.c};
    for (int i = 0; i < 3; i++) {
        if (operands[i] < 0) continue;
        const an_ins *o = &b->p->ins[operands[i]];
        bool reduced = o->kind == AN_INS_REDUCE;
        col |= o->scope == AN_SCOPE_COL && !reduced;
        earliest = AN_MAX(earliest, reduced ? o->phase + 1 : o->phase);
    }
    in.scope = col ? AN_SCOPE_COL : AN_SCOPE_ROW;
    in.phase = (uint8_t)(col ? AN_MAX(phase, earliest) : earliest);
    return ins_new(b, in);
}

/* Whether this program computes `id` itself, for its outputs or on the way to them. */
static bool is_member(const an_loop_builder *b, int32_t id)
{
    return b->w->node[id].group == b->g || b->w->node[id].carrier == b->g;
}

/* What this kernel knows about node `id`; empty for one that it meets for the first time. */
static an_loop_note *note_of(an_loop_builder *b, int32_t id)
{
    an_loop_note *note = &b->w->note[id];
    if (note->kernel != b->number) *note = (an_loop_note){.kernel = b->number, .memo = -1, .phase = -1};
    return note;
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
static int phase_of(an_loop_builder *b, int32_t id)
{
    an_planner *w = b->w;
    if (b->p->shape != AN_ROW) return 0;
    if (!is_member(b, id) && !(w->node[id].group >= 0 && !w->node[id].stored && !an_is_leaf(w, id))) return 0;
    an_loop_note *note = note_of(b, id);
    if (note->phase >= 0) return note->phase;
    const struct an_tensor *n = w->g->node[id];
    const int32_t reduction = oldest_reduction(b, note);
    if (reduction >= 0) return b->p->ins[reduction].phase + 1;
    int phase = 0;
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        if (is_member(b, base) || (w->node[base].group >= 0 && !w->node[base].stored))
            phase = AN_MAX(phase, phase_of(b, base));
    }
    note_of(b, id)->phase = (int8_t)phase;
    return phase;
}

/* ---------------------------------------------------------------------------------------------- values */

static int32_t load(an_loop_builder *b, int32_t base, const an_ix *iv, int32_t guard, int phase)
{
    an_ins in = an_loop_ins(AN_INS_LOAD, b->w->g->node[base]->dtype, phase);
    int arg = arg_for(b, base, false);
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
static int32_t concat(an_loop_builder *b, const struct an_tensor *n, int from, int to, int64_t start, const an_ix *iv,
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
    int32_t which = an_loop_value(b, n->src[1], iv, guard, phase), base;
    if (b->failed) return 0;
    an_ix at[AN_MAX_RANK], base_iv[AN_MAX_RANK];
    at[0] = an_ix_const(&b->p->ix, 0);
    memcpy(at + 1, iv + ids->rank, sizeof *at * (size_t)(t->rank - 1));
    an_walk_views(w, &b->p->ix, n->src[0], at, &base, base_iv);
    an_ins in = an_loop_ins(AN_INS_LOAD, n->dtype, phase);
    in.arg = (int16_t)arg_for(b, base, false);
    in.ix = an_memory_index(w, &b->p->ix, base, base_iv);
    in.a = which;
    in.clamp = t->shape[0];
    in.scale = t->shape[0] ? t->numel / t->shape[0] : 0; /* tables are contiguous: insert_copies.c */
    in.guard = guard;
    return an_loop_append(b, in, phase);
}

static int32_t elementwise(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t guard, int phase)
{
    const struct an_tensor *n = b->w->g->node[id];
    int32_t s[3] = {-1, -1, -1};
    for (int i = 0; i < n->n_src; i++) s[i] = an_loop_value(b, n->src[i], iv, guard, phase);
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
        if (n->op == AN_OP_CONCAT) return concat(b, n, 0, n->n_src, 0, iv, guard, phase);
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
        in.arg = (int16_t)rng_arg(b);
        in.ix = an_ix_linear(&b->p->ix, n->rank, n->shape, iv);
        in.imm_i = n->attr[0];
        in.scale = n->attr[1] && n->rank && n->shape[0] ? n->numel / n->shape[0] : 0;
        in.node = id;
        return an_loop_append(b, in, phase);
    case AN_OP_PAD: return pad(b, n, iv, guard, phase);
    case AN_OP_CONCAT: return concat(b, n, 0, n->n_src, 0, iv, guard, phase);
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

/* Notes that `ins` holds `node` at linear index `at`. */
static void remember(an_loop_builder *b, int32_t node, an_ix at, int32_t guard, int phase, int32_t ins)
{
    if (b->n_memo == b->cap_memo) {
        int32_t cap = b->cap_memo ? 2 * b->cap_memo : 128;
        an_memo *bigger = AN_NEW_ARRAY(&b->w->scratch, an_memo, cap);
        if (!bigger) {
            an_loop_fail(b, "no memory");
            return;
        }
        if (b->n_memo) memcpy(bigger, b->memo, sizeof *bigger * (size_t)b->n_memo);
        b->memo = bigger;
        b->cap_memo = cap;
    }
    an_loop_note *note = note_of(b, node);
    b->memo[b->n_memo] = (an_memo){node, guard, phase, ins, at, note->memo};
    note->memo = b->n_memo++;
}

/* The same for a member of the group at its own index. */
static void remember_member(an_loop_builder *b, int32_t id, const an_ix *iv, int phase, int32_t ins)
{
    const struct an_tensor *n = b->w->g->node[id];
    remember(b, id, an_ix_linear(&b->p->ix, n->rank, n->shape, iv), -1, phase, ins);
}

/* Whether output `out`, node `base`, is stored at `at` by an earlier phase. One element of it that a whole row reads is
 * not asked for: a row's values are loaded before the first phase. */
static bool stored_before(an_loop_builder *b, int out, int32_t base, const an_ix *at, int phase)
{
    return b->stored_phase[out] >= 0 && b->stored_phase[out] < phase && b->w->g->node[base]->op != AN_OP_CONST &&
           an_ix_uses(&b->p->ix, an_memory_index(b->w, &b->p->ix, base, at), AN_VAR_COL);
}

/* The instruction holding `id` (through its moves) at index iv, for use in `phase`. */
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
    for (int32_t i = note_of(b, base)->memo; i >= 0; i = b->memo[i].older) {
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
        (out >= 0 && stored_before(b, out, base, at, phase)))
        r = load(b, base, at, guard, phase); /* in memory, or stored by an earlier phase of this kernel */
    else
        r = compute(b, base, at, guard, phase);
    b->depth--;
    if (b->failed) return 0;
    remember(b, base, key, guard, phase, r);
    return r;
}

/* ---------------------------------------------------------------------------------------------- programs */

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

static void reduce_row(an_loop_builder *b, int32_t id)
{
    const struct an_tensor *n = b->w->g->node[id], *s = b->w->g->node[n->src[0]];
    an_ix src_iv[AN_MAX_RANK], iv[AN_MAX_RANK];
    an_ix_unlinear(&b->p->ix, linear_here(b, AN_SCOPE_COL), s->rank, s->shape, src_iv);
    int phase = phase_of(b, an_base(b->w, n->src[0]));
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
        in.a = ins_new(b, cast);
    }
    if (b->failed) return;
    in.phase = b->p->ins[in.a].phase;
    in.scope = AN_SCOPE_ROW;
    int32_t r = ins_new(b, in);
    remember_member(b, id, iv, in.phase, r);
}

/* A sum down the rows of a run. */
static void sum_run(an_loop_builder *b, int32_t id)
{
    const struct an_tensor *n = b->w->g->node[id], *s = b->w->g->node[n->src[0]];
    an_ix src_iv[AN_MAX_RANK], iv[AN_MAX_RANK];
    an_ix_unlinear(&b->p->ix, linear_here(b, AN_SCOPE_COL), s->rank, s->shape, src_iv);
    const int phase = phase_of(b, an_base(b->w, n->src[0]));
    an_ins in = an_loop_ins(AN_INS_COLSUM, n->dtype, phase);
    in.a = an_loop_value(b, n->src[0], src_iv, -1, phase);
    if (b->failed) return;
    own_index(b, id, iv);
    in.arg = (int16_t)arg_for(b, id, true);
    in.ix = an_memory_index(b->w, &b->p->ix, id, iv);
    in.node = id;
    an_loop_append(b, in, phase);
}

static int32_t store_at(an_loop_builder *b, int32_t id, const an_ix *iv, int32_t v, int phase)
{
    an_ins in = an_loop_ins(AN_INS_STORE, b->w->g->node[id]->dtype, phase);
    in.arg = (int16_t)arg_for(b, id, true);
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
    int phase = b->p->shape == AN_ROW ? phase_of(b, id) : b->p->shape == AN_COL;
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
    int32_t r = ins_new(b, in);
    own_index(b, id, iv);
    remember_member(b, id, iv, 1, r);
}

/* Whether anything that is stored comes from instruction i, for each i. */
static bool *find_wanted(an_loop_builder *b)
{
    const an_loop_kernel *p = b->p;
    bool *wanted = AN_NEW_ARRAY(&b->w->scratch, bool, p->n_ins + 1);
    for (int i = p->n_ins - 1; wanted && i >= 0; i--) { /* operands are older */
        const an_ins *in = &p->ins[i];
        const int32_t operand[3] = {in->a, in->b, in->c};
        wanted[i] |= in->kind == AN_INS_STORE || in->kind == AN_INS_COLSUM;
        for (int k = 0; k < 3 && wanted[i]; k++)
            if (operand[k] >= 0) wanted[operand[k]] = true;
    }
    return wanted;
}

/* Execution order of what is wanted: by phase, values per row first. Operands still come earlier, because a value's
 * phase is never below its operands'. */
static void sort_instructions(an_loop_builder *b)
{
    an_loop_kernel *p = b->p;
    an_ins *sorted = AN_NEW_ARRAY(b->w->arena, an_ins, p->n_ins + 1);
    int32_t *where = AN_NEW_ARRAY(&b->w->scratch, int32_t, p->n_ins + 1), n = 0, last = 0;
    const bool *wanted = find_wanted(b);
    if (!sorted || !where || !wanted) {
        an_loop_fail(b, "no memory");
        return;
    }
    for (int i = 0; i < p->n_ins; i++) last = AN_MAX(last, p->ins[i].phase);
    for (int phase = 0; phase <= last; phase++)
        for (int part = 0; part < 3; part++) /* values per row, the column loop, then the reductions that end it */
            for (int i = 0; i < p->n_ins; i++) {
                const an_ins *in = &p->ins[i];
                int in_part = in->kind == AN_INS_REDUCE ? 2 : in->scope == AN_SCOPE_COL;
                if (in->phase != phase || in_part != part || !wanted[i]) continue;
                where[i] = n;
                sorted[n++] = *in;
            }
    for (int i = 0; i < n; i++) {
        if (sorted[i].a >= 0) sorted[i].a = where[sorted[i].a];
        if (sorted[i].b >= 0) sorted[i].b = where[sorted[i].b];
        if (sorted[i].c >= 0) sorted[i].c = where[sorted[i].c];
    }
    p->ins = sorted;
    p->n_ins = n;
    p->n_phases = last + 1;
}

/* Elements of an argument that are moved between memory and the kernel: each once; of a slice, its own. What a kernel
 * writes and then reads again is still in a cache. */
static int64_t moved(const an_loop_kernel *p, int arg)
{
    int64_t touched = 0;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if ((in->kind != AN_INS_LOAD && in->kind != AN_INS_STORE) || in->arg != arg) continue;
        const int64_t red = p->shape == AN_COL && in->phase == 0 ? AN_MAX(p->red, 1) : 1;
        touched += p->rows * (in->scope == AN_SCOPE_COL ? p->cols * red : 1);
    }
    return touched ? AN_MIN(touched, p->arg[arg].numel) : p->arg[arg].numel;
}

static void count_work(an_loop_builder *b)
{
    an_loop_kernel *p = b->p;
    uint64_t per_row = 0, per_col = 0;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        uint64_t c = in->kind == AN_INS_ELEM                                  ? (uint64_t)an_op_cost((an_op)in->op)
                     : in->kind == AN_INS_REDUCE || in->kind == AN_INS_COLSUM ? 1u
                     : in->kind == AN_INS_RAND                                ? 30u
                                                                              : 0u;
        if (p->shape == AN_COL && in->phase == 0) c *= (uint64_t)p->red;
        if (in->scope == AN_SCOPE_COL || in->kind == AN_INS_REDUCE)
            per_col += c;
        else
            per_row += c;
    }
    p->flops = (per_row + per_col * (uint64_t)p->cols) * (uint64_t)p->rows;
    for (int i = 0; i < p->n_args; i++)
        p->bytes += (uint64_t)(moved(p, i) * (int64_t)an_dtype_bytes((an_dtype)p->arg[i].dtype));
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
        remember_member(b, b->gr->anchor, iv, 0, ins_new(b, in));
    }
    if (b->gr->kind == AN_FUSION_COL) reduce_col(b, b->gr->anchor);
    for (int out = 0; out < b->gr->n_remat && !b->failed; out++) build_member(b, b->gr->out[out], out);
    for (int32_t m = 0, out = b->gr->n_remat; m < b->gr->n_members && out < b->gr->n_out && !b->failed; m++) {
        const int32_t id = b->gr->member[m];
        build_member(b, id, id == b->gr->out[out] ? out++ : -1);
    }
}

static an_status begin(an_loop_builder *b, bool tile)
{
    an_planner *w = b->w;
    an_loop_kernel *p = b->p = AN_NEW(w->arena, an_loop_kernel);
    an_loop_arg *arg = AN_NEW_ARRAY(w->arena, an_loop_arg, AN_LOOP_ARGS);
    b->stored_phase = AN_NEW_ARRAY(&w->scratch, int32_t, b->gr->n_out + 1);
    b->number = ++w->n_loops;
    if (!p || !arg || !b->stored_phase) return an_fail_nomem(w->err, "a loop kernel", sizeof *arg * AN_LOOP_ARGS);
    for (int i = 0; i < b->gr->n_out; i++) b->stored_phase[i] = -1;
    p->shape = tile ? AN_TILE : b->gr->kind == AN_FUSION_COL ? AN_COL : AN_ROW;
    p->rows = b->gr->rows;
    p->cols = b->gr->cols;
    p->red = b->gr->red;
    p->lanes = b->gr->lanes;
    p->run = b->gr->run;
    p->arg = arg;
    b->g = (int32_t)(b->gr - w->group);
    b->max_args = AN_MIN(AN_LOOP_ARGS, w->rq->target->max_args) - (tile ? AN_TILE_ARGS : 0);
    w->limit_exceeded = false;
    return AN_OK;
}

/* A state that is written in place is as large as its old value (assign_buffers.c). */
static void find_fixed(an_loop_kernel *p)
{
    for (int i = 0; i < p->n_args; i++)
        for (int o = 0; o < p->n_args; o++)
            if (p->arg[o].written && p->arg[o].numel * (int64_t)an_dtype_bytes((an_dtype)p->arg[o].dtype) ==
                                         p->arg[i].numel * (int64_t)an_dtype_bytes((an_dtype)p->arg[i].dtype))
                p->arg[i].fixed = false;
}

static an_status end(an_loop_builder *b, an_loop_kernel **out, int *n_args)
{
    an_planner *w = b->w;
    an_loop_kernel *p = b->p;
    if (!b->failed) sort_instructions(b);
    if (!b->failed) count_work(b);
    find_fixed(p);
    an_guard *guards = p->n_guards ? an_arena_copy(w->arena, p->guard, sizeof *guards * (size_t)p->n_guards) : NULL;
    if (p->n_guards && !guards) return an_fail_nomem(w->err, "a loop kernel", 0);
    p->guard = guards;
    *n_args = p->n_args;
    *out = p;
    if (b->failed) {
        bool no_memory = p->ix.no_memory || !strcmp(b->why, "no memory");
        an_loop_kernel_free(p);
        if (no_memory) return an_fail_nomem(w->err, p->name ? p->name : "a loop kernel", 0);
        w->limit_exceeded = true;
        return an_fail(w->err, AN_E_UNSUPPORTED, "%s: %s", p->name ? p->name : "kernel", b->why);
    }
    return w->rq->verify ? an_loop_kernel_verify(w->err, p) : AN_OK;
}

an_status an_lower_loop(an_planner *w, an_fusion_group *gr, bool tile, an_loop_kernel **out, an_arg *args, int *n_args)
{
    an_loop_builder b = {.w = w, .gr = gr, .args = args};
    AN_TRY(begin(&b, tile));
    b.p->name = kernel_name(w, gr, tile);
    build(&b, tile);
    return end(&b, out, n_args);
}

an_status an_lower_concat_parts(an_planner *w, an_fusion_group *gr, int from, int to, int64_t start,
                                an_loop_kernel **out, an_arg *args, int *n_args)
{
    const struct an_tensor *n = w->g->node[gr->anchor];
    int axis = (int)n->attr[0];
    int32_t shape[AN_MAX_RANK];
    an_loop_builder b = {.w = w, .gr = gr, .args = args};
    AN_TRY(begin(&b, false));
    memcpy(shape, n->shape, sizeof shape);
    shape[axis] = 0;
    for (int s = from; s < to; s++) shape[axis] += w->g->node[n->src[s]]->shape[axis];
    an_fold_short_rows(n, shape, &b.p->rows, &b.p->cols);
    b.p->name = an_arena_printf(w->arena, "%s_%d", kernel_name(w, gr, false), from / AN_CONCAT_PARTS);
    an_ix iv[AN_MAX_RANK];
    an_ix_unlinear(&b.p->ix, linear_here(&b, AN_SCOPE_COL), n->rank, shape, iv);
    iv[axis] = an_ix_add(&b.p->ix, iv[axis], an_ix_const(&b.p->ix, start));
    int32_t v =
        iv[axis] < 0 ? an_loop_fail(&b, "index arithmetic is too complex") : concat(&b, n, from, to, start, iv, -1, 0);
    if (!b.failed) store_at(&b, gr->anchor, iv, v, 0);
    return end(&b, out, n_args);
}
