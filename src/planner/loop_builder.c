/* loop_builder.c: see loop_builder.h: instructions, guards, arguments and memos of the loop kernel that is being built,
 * and its end: what is stored is kept, in execution order, and its work is counted. */
#include "planner/loop_builder.h"

#include <string.h>

/* The first reason is kept: it is what the sentence says, and what split_group.c acts on. */
int32_t an_loop_fail(an_loop_builder *b, const char *why)
{
    if (!b->failed) b->why = why;
    b->failed = true;
    return 0;
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

int32_t an_loop_put(an_loop_builder *b, an_ins in)
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

/* By fields: padding between them is not set. */
static bool same_bound(const an_bound *x, const an_bound *y)
{
    return x->e == y->e && x->lo == y->lo && x->hi == y->hi;
}

static bool same_guard(const an_guard *x, const an_guard *y)
{
    bool same = x->n == y->n;
    for (int i = 0; same && i < x->n; i++) same = same_bound(&x->bound[i], &y->bound[i]);
    return same;
}

/* The guard `guard` (-1: none) with one more bound. Equal guards are one, so that loads under them can be shared; a
 * bound that the range of the index settles is left out. */
int32_t an_loop_guard(an_loop_builder *b, int32_t guard, an_bound bound)
{
    const an_ix_expr *e = &b->p->ix.expr[bound.e];
    if (bound.e >= 0 && e->lo >= bound.lo && e->hi < bound.hi) return guard; /* always true */
    an_guard g = {0};
    if (guard >= 0) g = b->p->guard[guard];
    for (int i = 0; i < g.n; i++)
        if (same_bound(&g.bound[i], &bound)) return guard;
    if (g.n == (int)AN_COUNT(g.bound)) return an_loop_fail(b, "more than four nested pads");
    g.bound[g.n++] = bound;
    for (int i = 0; i < b->p->n_guards; i++)
        if (same_guard(&b->p->guard[i], &g)) return i;
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

static bool is_c(const an_planner *w)
{
    return !strcmp(w->rq->target->dialect, "c");
}

/* The argument for a value or leaf; the same memory is one argument. */
int an_loop_arg_for(an_loop_builder *b, int32_t base, bool written)
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
    b->sliceable[i] = a.slot < AN_SLOT_IN_PARTS && (n->rank == 1 || !an_is_leaf(b->w, base) || is_c(b->w));
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

/* The two words from which dropout masks are drawn, which the runtime writes before each step: an argument only where
 * used. */
int an_loop_rng_arg(an_loop_builder *b)
{
    for (int i = 0; i < b->p->n_args; i++)
        if (b->args[i].slot == AN_SLOT_INPUT && b->args[i].offset == AN_INPUT_RNG && b->args[i].bytes == 8) return i;
    if (b->p->n_args >= b->max_args) return an_loop_fail(b, "more buffers than a kernel takes");
    int i = b->p->n_args++;
    b->args[i] = (an_arg){.slot = AN_SLOT_INPUT, .offset = AN_INPUT_RNG, .bytes = 8, .value = -1};
    b->p->arg[i] = (an_loop_arg){.dtype = AN_I32, .read = true, .numel = 2, .name = "rng", .note = "[2] key, sample 0"};
    return i;
}

/* Whether an index changes within a row. */
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
    return an_loop_put(b, in);
}

/* What this kernel knows about node `id`; empty for one that it meets for the first time. */
an_loop_note *an_loop_note_of(an_loop_builder *b, int32_t id)
{
    an_loop_note *note = &b->w->note[id];
    if (note->kernel != b->number) *note = (an_loop_note){.kernel = b->number, .memo = -1, .phase = -1};
    return note;
}

/* Notes that `ins` holds `node` at linear index `at`. */
void an_loop_remember(an_loop_builder *b, int32_t node, an_ix at, int32_t guard, int phase, int32_t ins)
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
    an_loop_note *note = an_loop_note_of(b, node);
    b->memo[b->n_memo] = (an_memo){node, guard, phase, ins, at, note->memo};
    note->memo = b->n_memo++;
}

/* Takes shape and extents from the group. An epilogue leaves room among the arguments for the GEMM's own. */
an_status an_loop_begin(an_loop_builder *b, bool tile)
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

/* flops: the cost of each instruction times how often it runs; bytes: of each argument what is moved, once. */
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

enum {
    SLICE_ALIGN = 64
}; /* bytes: where a slice may begin on GPUs, for vectors of it to be loaded as those of the whole */

/* Where a part of argument i is read (a parameter's part of its block, a step of a recurrent layer), what is read of it, [*lo, *hi]. */
static bool reads_slice(const an_loop_kernel *p, int i, int64_t *lo, int64_t *hi)
{
    *lo = p->arg[i].numel, *hi = -1;
    for (int k = 0; k < p->n_ins; k++) {
        const an_ins *in = &p->ins[k];
        if (in->arg != i) continue;
        if (in->kind != AN_INS_LOAD || in->a >= 0 || in->guard >= 0) return false;
        *lo = AN_MIN(*lo, p->ix.expr[in->ix].lo);
        *hi = AN_MAX(*hi, p->ix.expr[in->ix].hi);
    }
    return *lo >= 0 && *hi >= *lo && *hi < p->arg[i].numel && *hi - *lo + 1 < p->arg[i].numel;
}

/* Arguments that are slices begin where the slice does: the kernels of all slices of one size are one, and an output of a slice's size may
 * be written over it. */
static void begin_at_slices(an_loop_builder *b)
{
    an_loop_kernel *p = b->p;
    const int64_t align = is_c(b->w) ? AN_MAX(b->w->rq->target->bind_align, 1) : SLICE_ALIGN;
    for (int i = 0; i < p->n_args && !b->failed; i++) {
        int64_t lo, hi;
        const int64_t size = (int64_t)an_dtype_bytes((an_dtype)p->arg[i].dtype);
        if (!b->sliceable[i] || !reads_slice(p, i, &lo, &hi) || lo * size % align) continue;
        for (int k = 0; k < p->n_ins; k++) {
            if (p->ins[k].arg != i) continue;
            p->ins[k].ix = an_ix_add(&p->ix, p->ins[k].ix, an_ix_const(&p->ix, -lo));
            if (p->ins[k].ix < 0) an_loop_fail(b, "index arithmetic is too complex");
        }
        p->arg[i].numel = hi - lo + 1;
        b->args[i].offset += lo * size;
        b->args[i].bytes = p->arg[i].numel * size;
    }
}

/* A state that assign_states writes in place is as large as its old value: a leaf of an output's size may alias it. */
static void find_fixed(an_loop_kernel *p)
{
    for (int i = 0; i < p->n_args; i++)
        for (int o = 0; o < p->n_args; o++)
            if (p->arg[o].written && p->arg[o].numel * (int64_t)an_dtype_bytes((an_dtype)p->arg[o].dtype) ==
                                         p->arg[i].numel * (int64_t)an_dtype_bytes((an_dtype)p->arg[i].dtype))
                p->arg[i].fixed = false;
}

/* Sorts, counts and checks what was built. A limit that was exceeded is no error of the graph: limit_exceeded tells
 * lower.c to split the group and to try again. */
an_status an_loop_end(an_loop_builder *b, an_loop_kernel **out, int *n_args)
{
    an_planner *w = b->w;
    an_loop_kernel *p = b->p;
    if (!b->failed) sort_instructions(b);
    if (!b->failed) begin_at_slices(b);
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
