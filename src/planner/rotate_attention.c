/* rotate_attention.c: rotary positions of q and k, and those of their gradients, move into attention, on a device whose attention rotates
 * (an_target.rotates, an_kernel.rotated).
 *
 *     qkv ─ rotate ─ q, k ─ attention          becomes     qkv ─ attention (rotated)
 *                                              saved       two passes over q and k, and their memory
 *     attention_grad ─ dq, dk, dv ─ rotate back ─ dqkv     likewise
 *
 * The steps that rotate are elementwise loops that the passes before made of the model's arithmetic (models/trm/trm.c, rotate). They are
 * recognized by what they compute, not by where they come from: the stored value is followed back to its loads, and each load's index must
 * be the one that the kernel has, for all elements. What does not match stays as it is.
 *
 * Invariant: the same bits. The kernels round where the loops do. */
#include "planner/planner_internal.h"

#include <string.h>

enum {
    B,
    T,
    H,
    HALF,
    J,
    N_AXES,
    MOST_PARTS = 3
}; /* of an element: sequence, position, head, half of the head, place in it */

enum { V = 2, O = 4, GRAD_O = 3, DO = 5, DQ = 7 }; /* arguments of attention, and of its gradient */

/* A place in a buffer as a function of the element: argument of the loop, first element, strides. */
typedef struct place {
    int arg;
    int64_t at, stride[N_AXES];
} place;

/* What a loop stores for one of its parts (q, k or v). */
typedef struct part {
    bool rotated, back; /* back: by the negative angle */
    place from, to;
    int cosines, sines; /* arguments */
} part;

/* A loop over elements (b, t, part, h, half, j). */
typedef struct loop {
    const an_loop_kernel *p;
    const an_attn_spec *s;
    an_ix_pool *ix;
    an_ix var[AN_N_VARS]; /* row and column as functions of the element */
} loop;

/* A step of attention, and the steps that it can do the work of. */
typedef struct found {
    int32_t rotates, back; /* steps; -1: none */
    an_arg arg[5];         /* q k [dq dk dv] */
    int64_t stride[5][3];
    an_arg cosines, sines;
} found;

/* ---- what a loop computes */

static bool place_of(const loop *l, const an_ins *in, place *out)
{
    const int32_t extent[N_AXES] = {l->s->B, l->s->T, l->s->H, 2, l->s->D / 2};
    const an_ix at = an_ix_substitute(l->ix, &l->p->ix, in->ix, l->var);
    if (at < 0) return false;
    *out = (place){.arg = in->arg, .at = l->ix->expr[at].c};
    for (int v = 0; v < N_AXES; v++)
        if (extent[v] > 1 && !an_ix_stride(l->ix, at, v, &out->stride[v])) return false;
    return true;
}

/* Whether a guard holds for all elements of the part (1) or none (0); -1: neither. */
static int holds(const loop *l, int32_t guard)
{
    bool all = true;
    for (int i = 0; guard >= 0 && i < l->p->guard[guard].n; i++) {
        const an_bound *b = &l->p->guard[guard].bound[i];
        const an_ix e = an_ix_substitute(l->ix, &l->p->ix, b->e, l->var);
        if (e < 0) return -1;
        const an_ix_expr *x = &l->ix->expr[e];
        if (x->hi < b->lo || x->lo >= b->hi) return 0;
        all &= x->lo >= b->lo && x->hi < b->hi;
    }
    return all ? 1 : -1;
}

/* The instruction that computes value i, behind choices that the part decides and widenings, which change no bits; -1: undecided. */
static int32_t source(const loop *l, int32_t i)
{
    for (;;) {
        const an_ins *in = &l->p->ins[i];
        if (in->kind == AN_INS_ELEM && in->op == AN_OP_WHERE && l->p->ins[in->a].kind == AN_INS_TEST) {
            const int yes = holds(l, l->p->ins[in->a].guard);
            if (yes < 0) return -1;
            i = yes ? in->b : in->c;
        } else if (in->kind == AN_INS_CAST && in->dtype == AN_F32 && l->p->ins[in->a].dtype == AN_BF16) {
            i = in->a;
        } else {
            return i;
        }
    }
}

static bool is_load(const loop *l, int32_t i, an_dtype dtype, place *out)
{
    const an_ins *in = i >= 0 ? &l->p->ins[i] : NULL;
    return in && in->kind == AN_INS_LOAD && in->dtype == dtype && l->p->arg[in->arg].dtype == dtype && in->a < 0 &&
           holds(l, in->guard) == 1 && place_of(l, in, out);
}

static bool is_op(const loop *l, int32_t i, an_op op)
{
    return i >= 0 && l->p->ins[i].kind == AN_INS_ELEM && l->p->ins[i].op == op && l->p->ins[i].dtype == AN_F32;
}

/* Whether the place is in a table. The dtype does not tell in float32, where what is turned is a float32 load too. */
static bool is_fixed(const loop *l, const place *p)
{
    return l->p->arg[p->arg].fixed;
}

/* A product of an element and a number of a table, in either order. */
static bool is_term(const loop *l, int32_t i, place *x, place *table)
{
    if (!is_op(l, i, AN_OP_MUL)) return false;
    const int32_t a = source(l, l->p->ins[i].a), b = source(l, l->p->ins[i].b);
    const an_dtype dtype = (an_dtype)l->s->dtype;
    if (is_load(l, a, dtype, x) && is_load(l, b, AN_F32, table) && is_fixed(l, table)) return true;
    return is_load(l, b, dtype, x) && is_load(l, a, AN_F32, table) && is_fixed(l, table);
}

static bool has_strides(const place *p, int64_t at, int64_t t, int64_t half)
{
    return p->at == at && !p->stride[B] && p->stride[T] == t && !p->stride[H] && p->stride[HALF] == half &&
           p->stride[J] == 1;
}

/* x cos + y sin, where y is the other half of the head. */
static bool is_rotation(const loop *l, int32_t i, part *out)
{
    const int64_t half = l->s->D / 2;
    place x[2], table[2];
    if (!is_op(l, i, AN_OP_ADD)) return false;
    if (!is_term(l, source(l, l->p->ins[i].a), &x[0], &table[0]) ||
        !is_term(l, source(l, l->p->ins[i].b), &x[1], &table[1]))
        return false;
    const int same = x[0].stride[HALF] == half ? 0 : 1;
    const place *straight = &x[same], *flipped = &x[!same], *sines = &table[!same];
    out->rotated = true;
    out->from = *straight;
    out->cosines = table[same].arg;
    out->sines = sines->arg;
    out->back = sines->at != 0;
    if (straight->stride[HALF] != half || flipped->stride[HALF] != -half || flipped->at != straight->at + half)
        return false;
    if (flipped->arg != straight->arg || memcmp(flipped->stride, straight->stride, HALF * sizeof *flipped->stride))
        return false;
    return straight->stride[J] == 1 && flipped->stride[J] == 1 && has_strides(&table[same], 0, half, 0) &&
           has_strides(sines, out->back ? half : 0, 2 * half, out->back ? -half : half);
}

/* What the loop stores for one part of n. */
static bool part_of(loop *l, int which, int n, part *out)
{
    const int64_t half = l->s->D / 2, width = (int64_t)l->s->H * l->s->D, across = l->p->cols;
    const int32_t extent[N_AXES] = {l->s->B, l->s->T, l->s->H, 2, (int32_t)half};
    const int64_t factor[N_AXES] = {n * l->s->T * width, n * width, 2 * half, half, 1};
    l->var[AN_VAR_ROW] = an_ix_const(l->ix, which * width / across);
    l->var[AN_VAR_COL] = an_ix_const(l->ix, which * width % across);
    l->var[AN_VAR_RED] = an_ix_const(l->ix, 0);
    for (int v = 0; v < N_AXES; v++) {
        const bool down = factor[v] >= across;
        an_ix *to = &l->var[down ? AN_VAR_ROW : AN_VAR_COL];
        const int64_t step = down ? factor[v] / across : factor[v];
        *to = an_ix_add(l->ix, *to, an_ix_mul(l->ix, an_ix_var(l->ix, v, extent[v]), step));
    }
    int32_t store = -1;
    for (int32_t i = 0; i < l->p->n_ins; i++) {
        if (l->p->ins[i].kind != AN_INS_STORE) continue;
        if (store >= 0) return false;
        store = i;
    }
    const an_dtype dtype = (an_dtype)l->s->dtype;
    if (store < 0 || l->p->arg[l->p->ins[store].arg].dtype != dtype || !place_of(l, &l->p->ins[store], &out->to))
        return false;
    if (out->to.stride[HALF] != half || out->to.stride[J] != 1) return false;
    const int32_t i = source(l, l->p->ins[store].a);
    out->rotated = false;
    if (is_load(l, i, dtype, &out->from)) return out->from.stride[HALF] == half && out->from.stride[J] == 1;
    if (dtype == AN_F32) return is_rotation(l, i, out);
    return i >= 0 && l->p->ins[i].kind == AN_INS_CAST && l->p->ins[i].dtype == AN_BF16 &&
           is_rotation(l, source(l, l->p->ins[i].a), out);
}

/* The parts of step `s`, a loop over n of them; false: it is another loop. */
static bool parts_of(const an_planner *w, int32_t s, const an_attn_spec *spec, int n, part *out)
{
    const an_kernel *k = &w->plan->kernel[w->plan->step[s].kernel];
    if (k->kind != AN_KERNEL_LOOP || k->u.loop->shape != AN_ROW || k->u.loop->n_phases != 1) return false;
    /* A row of the loop is all of a sequence, of a position in it, or a part of that. */
    const int64_t width = (int64_t)spec->H * spec->D, across = k->u.loop->cols;
    if (k->u.loop->rows * across != n * spec->B * spec->T * width) return false;
    if (across != width && across != n * width && across != n * spec->T * width) return false;
    if (spec->dtype == AN_BF16 && across != width) return false; /* the rows that its kernel, a GPU's, was tried with */
    an_ix_pool ix = {0};
    loop l = {.p = k->u.loop, .s = spec, .ix = &ix};
    bool good = true;
    for (int i = 0; i < n && good; i++) good = part_of(&l, i, n, &out[i]) && !ix.failed;
    an_ix_pool_free(&ix);
    return good;
}

/* ---- which steps they are */

/* Marks what value of the plan the tensor is: it is needed behind the steps, for a root or a state. */
static void keep(const an_planner *w, bool *kept, int32_t id)
{
    const int32_t v = w->node[an_base(w, id)].value;
    if (v >= 0) kept[v] = true;
}

/* Values that are more than the output of one step and the input of others; NULL: no memory. */
static bool *kept_values(an_planner *w)
{
    const an_plan *p = w->plan;
    bool *kept = AN_NEW_ARRAY(&w->scratch, bool, p->n_values + 1);
    if (!kept) return NULL;
    for (int i = 0; i < w->rq->n_roots; i++) keep(w, kept, w->rq->root[i]);
    for (int32_t id = 0; id < w->g->n; id++)
        for (int i = 0; w->g->node[id]->op == AN_OP_ASSIGN && i < w->g->node[id]->n_src; i++)
            keep(w, kept, w->g->node[id]->src[i]);
    for (int32_t v = 0; v < p->n_values; v++) {
        kept[v] |= p->value[v].slot != AN_SLOT_ARENA || p->value[v].inside >= 0;
        if (p->value[v].inside >= 0) kept[p->value[v].inside] = true;
    }
    return kept;
}

/* The only step that writes (or, `written` false, reads) value v; -1. */
static int32_t only_step(const an_plan *p, const bool *kept, int32_t v, bool written)
{
    int32_t found = -1;
    if (v < 0 || kept[v]) return -1;
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            const an_arg *x = &p->step[s].arg[a];
            if (x->value != v || x->written != written) continue;
            if (found >= 0 && found != s) return -1;
            found = s;
        }
    return found;
}

static int64_t item(const an_attn_spec *spec)
{
    return (int64_t)an_dtype_bytes((an_dtype)spec->dtype);
}

/* Whether argument x of attention, with these strides, is place `p` of step s. */
static bool is_at(const an_attn_spec *spec, const an_plan_step *s, const place *p, const an_arg *x,
                  const int64_t *stride)
{
    const an_arg *y = &s->arg[p->arg];
    const int64_t mine[3] = {p->stride[B], p->stride[H], p->stride[T]};
    const int32_t extent[3] = {spec->B, spec->H, spec->T};
    for (int i = 0; i < 3; i++)
        if (extent[i] > 1 && mine[i] != stride[i]) return false;
    return y->value == x->value && y->offset + item(spec) * p->at == x->offset;
}

/* Whether what attention reads or writes as it is lies on 16 bytes, row by row: a GPU's kernel that rotates has no other way to reach it. */
static bool in_rows_of_16(const an_attn_spec *spec, const an_arg *x, const int64_t *stride)
{
    for (int i = 0; i < 3; i++)
        if (stride[i] < 0 || stride[i] * item(spec) % 16) return false;
    return x->offset % 16 == 0;
}

/* Place `p` of step s as an argument of attention. False: it is not aligned as attention needs it. */
static bool arg_at(const an_plan *plan, const an_attn_spec *spec, const an_plan_step *s, const place *p, bool written,
                   an_arg *out, int64_t *stride)
{
    *out = s->arg[p->arg];
    out->offset += item(spec) * p->at;
    out->written = written;
    stride[0] = p->stride[B], stride[1] = p->stride[H], stride[2] = p->stride[T];
    out->bytes =
        item(spec) * ((spec->B - 1) * stride[0] + (spec->H - 1) * stride[1] + (spec->T - 1) * stride[2] + spec->D);
    return in_rows_of_16(spec, out, stride) && out->value >= 0 && plan->value[out->value].slot == AN_SLOT_ARENA &&
           plan->value[out->value].inside < 0;
}

static bool is_table(const an_plan_step *s, const an_loop_kernel *p, int arg)
{
    return p->arg[arg].fixed && s->arg[arg].slot >= AN_SLOT_FIRST && s->arg[arg].offset % 16 == 0;
}

/* q and k of a step of attention are what an elementwise step has rotated. */
static bool find_rotation(const an_planner *w, const bool *kept, const an_plan_step *s, const an_attn_spec *spec,
                          found *f)
{
    const an_plan *p = w->plan;
    const bool grad = p->kernel[s->kernel].kind == AN_KERNEL_ATTN_GRAD;
    part x[2];
    if (!in_rows_of_16(spec, &s->arg[V], spec->v) || !in_rows_of_16(spec, &s->arg[grad ? GRAD_O : O], spec->o))
        return false;
    if (s->arg[0].value != s->arg[1].value || (f->rotates = only_step(p, kept, s->arg[0].value, true)) < 0)
        return false;
    const an_plan_step *from = &p->step[f->rotates];
    const an_loop_kernel *loop = p->kernel[from->kernel].u.loop;
    if (!parts_of(w, f->rotates, spec, 2, x)) return false;
    for (int i = 0; i < 2; i++) {
        if (!x[i].rotated || x[i].back || x[i].cosines != x[0].cosines || x[i].sines != x[0].sines) return false;
        if (!is_at(spec, from, &x[i].to, &s->arg[i], i ? spec->k : spec->q)) return false;
        if (!arg_at(p, spec, from, &x[i].from, false, &f->arg[i], f->stride[i])) return false;
    }
    f->cosines = from->arg[x[0].cosines], f->sines = from->arg[x[0].sines];
    return is_table(from, loop, x[0].cosines) && is_table(from, loop, x[0].sines);
}

static bool same_table(const an_arg *a, const an_arg *b)
{
    return a->slot == b->slot && a->offset == b->offset && a->value == b->value;
}

/* dq, dk and dv are read by one elementwise step alone, which rotates dq and dk back. */
static bool find_rotation_back(const an_planner *w, const bool *kept, const an_plan_step *s, const an_attn_spec *spec,
                               found *f)
{
    const an_plan *p = w->plan;
    const int64_t *const stride[MOST_PARTS] = {spec->dq, spec->dk, spec->dv};
    part x[MOST_PARTS];
    if (!in_rows_of_16(spec, &s->arg[DO], spec->do_)) return false;
    f->back = only_step(p, kept, s->arg[DQ].value, false);
    if (f->back < 0 || !parts_of(w, f->back, spec, MOST_PARTS, x)) return false;
    const an_plan_step *to = &p->step[f->back];
    for (int i = 0; i < MOST_PARTS; i++) {
        const an_arg *d = &s->arg[DQ + i];
        if (only_step(p, kept, d->value, false) != f->back || !is_at(spec, to, &x[i].from, d, stride[i])) return false;
        if (x[i].rotated != (i < 2) || (x[i].rotated && !x[i].back)) return false;
        if (x[i].rotated &&
            (!same_table(&to->arg[x[i].cosines], &f->cosines) || !same_table(&to->arg[x[i].sines], &f->sines)))
            return false;
        if (!arg_at(p, spec, to, &x[i].to, true, &f->arg[2 + i], f->stride[2 + i])) return false;
    }
    return true;
}

/* ---- the pass */

static an_status apply(an_planner *w, an_plan_step *s, const found *f)
{
    an_kernel *k = &w->plan->kernel[s->kernel];
    an_attn_spec *spec = &k->u.attn;
    int64_t *const stride[5] = {spec->q, spec->k, spec->dq, spec->dk, spec->dv};
    const bool grad = k->kind == AN_KERNEL_ATTN_GRAD;
    const int n = grad ? AN_ATTN_GRAD_TABLES : AN_ATTN_TABLES;
    an_arg *arg = AN_NEW_ARRAY(w->arena, an_arg, n + 2);
    if (!arg) return an_lower_no_memory(w);
    memcpy(arg, s->arg, sizeof *arg * (size_t)AN_MIN(s->n_args, n));
    for (int i = s->n_args; i < n; i++) arg[i] = (an_arg){.slot = -1, .value = -1};
    for (int i = 0; i < (grad ? 5 : 2); i++) {
        arg[i < 2 ? i : 5 + i] = f->arg[i];
        memcpy(stride[i], f->stride[i], sizeof f->stride[i]);
    }
    arg[n] = f->cosines, arg[n + 1] = f->sines;
    const uint64_t tensor = (uint64_t)spec->B * (uint64_t)spec->H * (uint64_t)spec->T * (uint64_t)spec->D;
    k->bytes = (grad ? 7 : 4) * (uint64_t)item(spec) * tensor + (uint64_t)arg[4 + !grad].bytes +
               (uint64_t)f->cosines.bytes + (uint64_t)f->sines.bytes;
    s->bytes = k->bytes;
    k->rotated = true;
    s->scratch_bytes =
        w->rq->target->scratch(w->rq->target, k); /* on a GPU less than without: the kernel has no sums of dq apart */
    s->arg = arg;
    s->n_args = n + 2;
    return AN_OK;
}

static int n_readers(const an_plan *p, int32_t v)
{
    int n = 0;
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) n += p->step[s].arg[a].value == v && !p->step[s].arg[a].written;
    return n;
}

static void remove_steps(an_plan *p, const bool *gone)
{
    int32_t n = 0;
    for (int32_t s = 0; s < p->n_steps; s++)
        if (!gone[s]) p->step[n++] = p->step[s];
    p->n_steps = n;
}

an_status an_pass_rotate_attention(an_planner *w)
{
    an_plan *p = w->plan;
    const an_target *t = w->rq->target;
    if (!t->rotates) return AN_OK;
    found *all = AN_NEW_ARRAY(&w->scratch, found, p->n_steps + 1);
    int *ready = AN_NEW_ARRAY(&w->scratch, int,
                              p->n_steps + 1); /* readers of what a step rotates that can rotate for themselves */
    bool *can = AN_NEW_ARRAY(&w->scratch, bool, p->n_steps + 1),
         *gone = AN_NEW_ARRAY(&w->scratch, bool, p->n_steps + 1);
    const bool *kept = kept_values(w);
    if (!all || !ready || !can || !gone || !kept) return an_lower_no_memory(w);
    for (int32_t i = 0; i < p->n_steps; i++) {
        const an_plan_step *s = &p->step[i];
        const an_kernel *k = &p->kernel[s->kernel];
        all[i].rotates = all[i].back = -1;
        if ((k->kind != AN_KERNEL_ATTN && k->kind != AN_KERNEL_ATTN_GRAD) || k->u.attn.masked || k->u.attn.window ||
            an_attn_group(&k->u.attn) > 1 || !t->rotates(t, &k->u.attn))
            continue;
        if (k->kind == AN_KERNEL_ATTN && s->n_args > AN_ATTN_TABLES - 1) continue; /* a number of keys in use */
        can[i] = find_rotation(w, kept, s, &k->u.attn, &all[i]) &&
                 (k->kind == AN_KERNEL_ATTN || find_rotation_back(w, kept, s, &k->u.attn, &all[i]));
        if (can[i]) ready[all[i].rotates] += 2;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const int32_t rotates = all[i].rotates;
        if (!can[i] || ready[rotates] != n_readers(p, p->step[i].arg[0].value)) can[i] = false;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        if (!can[i]) continue;
        AN_TRY(apply(w, &p->step[i], &all[i]));
        gone[all[i].rotates] = true;
        if (all[i].back >= 0) gone[all[i].back] = true;
    }
    remove_steps(p, gone);
    return AN_OK;
}
