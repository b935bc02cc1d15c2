/* render_gpu.c: row programs as CUDA and MSL: one text in the words of dialect/{cuda,msl}.h and dialect/rows_gpu.h.
 *
 * Rule: a row with reductions belongs to a subgroup, whose lane l takes columns l, l + 32, ...: the 32 virtual lanes of
 * the reduction tree are real ones, and the fold is five shuffles: the bits of render_c.c. Any other element, and any
 * column sum, belongs to one thread. The epilogue of a product is a function that templates/gemm.inc calls through its
 * hole. Invariants: no barrier of a group, no shared memory, no atomics; an element is written by the thread that later
 * phases have read it in; index arithmetic is in 32 bits unless the argument is too large for that. Extents are
 * literals: equal texts are equal kernels.
 *
 * AN_GPU_CUDA_FAST has liberties: several columns a lane, so sums in another order; a row kept in registers from phase
 * to phase; where all results are stored in 16 bits, exp and 1 + erf to 13 bits or more (is_brief). The last is the one
 * that fusing can show: the same formula in a program that also stores f32 is computed in full.
 */
#include "kernel/render.h"
#include "kernel/render_notes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EACH_THREADS = 256,
    COL_THREADS = 64,
    ROWS_A_GROUP = 4,
    FIRST_EPILOGUE_BUFFER = 5,
    METAL_BUFFERS = 31,
    TEAM_ROWS = 16,
    TEAM_THREADS = 1024,
    LONG_ROW = 8192,     /* columns from which a group takes a row, whose second reading then comes from the cache */
    ROW_WIDE = 4,        /* columns a lane of a row: 16 bytes of f32 */
    KEPT_REGISTERS = 96, /* of a lane that may hold its row from phase to phase */
    AN_WIDE = 8,         /* columns a thread of the wide form: 16 bytes of the narrowest float */
    WIDE_FROM = 1 << 20  /* elements from which it still fills a GPU */
};

static const char *const storage[AN_N_DTYPES] = {"float", "an_u16", "an_u16", "double",
                                                 "int",   "an_i64", "an_u8",  "an_u8"};
static const char *const computed[AN_N_DTYPES] = {"float", "float", "float", "double", "int", "an_i64", "int", "int"};
static const char *const narrow[AN_N_VARS] = {"r", "c", "q"};
static const char *const wide[AN_N_VARS] = {"(an_i64)r", "(an_i64)c", "(an_i64)q"};

/* ---------------------------------------------------------------------------------------------- indices */

/* Whether every intermediate value of `a` fits an int. */
static bool fits(const an_ix_pool *ix, an_ix a, int64_t reach)
{
    const an_ix_expr *e = &ix->expr[a];
    int64_t most = reach + llabs(e->c);
    for (int i = 0; i < e->n; i++) {
        const an_atom *t = &ix->atom[e->term[i].atom];
        if (t->kind != AN_ATOM_VAR && !fits(ix, t->e, 0)) return false;
        most += llabs(e->term[i].k) * AN_MAX(llabs(t->lo), llabs(t->hi));
    }
    return most <= INT32_MAX;
}

static void index_text(const an_row_prog *p, an_ix a, int64_t reach, an_text *out)
{
    an_ix_text(&p->ix, a, fits(&p->ix, a, reach) ? narrow : wide, out);
}

static void guard(const an_row_prog *p, int32_t g, an_text *out)
{
    bool any = false;
    for (int i = 0; i < p->guard[g].n; i++) {
        const an_bound *b = &p->guard[g].bound[i];
        const an_ix_expr *e = &p->ix.expr[b->e];
        for (int side = 0; side < 2; side++) {
            if (side ? e->hi < b->hi : e->lo >= b->lo) continue; /* holds always */
            an_text_puts(out, any ? " && (" : "(");
            index_text(p, b->e, 0, out);
            an_text_printf(out, side ? ") < %lld" : ") >= %lld", (long long)(side ? b->hi : b->lo));
            any = true;
        }
    }
    if (!any) an_text_puts(out, "true");
}

static bool uses(const an_row_prog *p, int32_t var)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->ix >= 0 && an_ix_uses(&p->ix, in->ix, var)) return true;
        if (in->kind == AN_INS_STORE && in->level == AN_LEVEL_ROW && var == AN_VAR_COL) return true;
        for (int b = 0; in->guard >= 0 && b < p->guard[in->guard].n; b++)
            if (an_ix_uses(&p->ix, p->guard[in->guard].bound[b].e, var)) return true;
    }
    return false;
}

/* ---------------------------------------------------------------------------------------------- instructions */

static void integer(int64_t x, an_text *out)
{
    if (x == INT64_MIN)
        an_text_puts(out, "AN_LONG_MIN");
    else if (x == INT32_MIN)
        an_text_puts(out, "AN_INT_MIN");
    else
        an_text_printf(out, "%lld", (long long)x);
}

static void constant(const an_ins *in, an_text *out)
{
    if (!an_dtype_is_float((an_dtype)in->dtype)) {
        integer(in->imm_i, out);
        return;
    }
    bool is_double = in->dtype == AN_F64;
    double x = is_double ? in->imm : (double)(float)in->imm;
    char text[64];
    snprintf(text, sizeof text, is_double ? "%.17g" : "%.9g", x);
    if (isnan(x))
        an_text_puts(out, "AN_EXACT_NAN");
    else if (isinf(x))
        an_text_puts(out, x > 0 ? "AN_INF" : "-AN_INF");
    else
        an_text_printf(out, "%s%s%s", text, strpbrk(text, ".e") ? "" : ".0", is_double ? "" : "f");
}

/* What rounding to `dtype` does to the text `e`. */
static void rounded(int dtype, const char *e, an_text *out)
{
    static const char *const words[AN_N_DTYPES] = {
        [AN_BF16] = "an_to_bf16", [AN_F16] = "an_to_f16", [AN_U8] = "(an_u8)"};
    if (words[dtype])
        an_text_printf(out, "%s(%s)", words[dtype], e);
    else
        an_text_puts(out, e);
}

/* How a program is spelled where other devices' bits are not asked for; all zero: plainly. */
typedef struct form {
    int wide;   /* columns of a thread, 0: one */
    int blocks; /* a lane keeps its columns of a row in registers from phase to phase, `wide` in each of so many blocks
                 */
    bool brief; /* every result is stored in 16 bits: exp and erf need no more than those can show */
} form;

/* ---- wide accesses (CUDA): a thread has AN_WIDE neighbouring columns of one row, c0 and up, and loads and stores them
 * together where they stand together. Its instructions are those of one column, in a loop over k. */

/* Whether instruction `in` takes AN_WIDE elements that begin at a multiple of AN_WIDE: its index is c plus what is such
 * a multiple in every row. */
static bool moves_together(const an_row_prog *p, const an_ins *in, int wide)
{
    int64_t stride;
    if (!wide || in->ix < 0 || in->guard >= 0 || in->level != AN_LEVEL_COL ||
        (in->kind == AN_INS_LOAD ? in->a >= 0 : in->kind != AN_INS_STORE))
        return false;
    if (!an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &stride) || stride != 1) return false;
    const an_ix_expr *e = &p->ix.expr[in->ix];
    if (e->c % wide) return false;
    for (int i = 0; i < e->n; i++) {
        const an_atom *t = &p->ix.atom[e->term[i].atom];
        bool col = t->kind == AN_ATOM_VAR && t->var == AN_VAR_COL;
        if (!col && e->term[i].k % wide) return false;
    }
    return true;
}

/* Where the columns of a load can be had: an earlier load of the same, or what was stored there; i itself when nowhere.
 */
static int source_of(const an_row_prog *p, int i, int wide)
{
    const an_ins *in = &p->ins[i];
    int source = i;
    if (in->kind != AN_INS_LOAD || !moves_together(p, in, wide) || !an_ix_uses(&p->ix, in->ix, AN_VAR_ROW)) return i;
    for (int j = 0; j < i; j++) {
        const an_ins *e = &p->ins[j];
        if ((e->kind != AN_INS_LOAD && e->kind != AN_INS_STORE) || e->arg != in->arg) continue;
        bool same = e->ix == in->ix && moves_together(p, e, wide);
        if (e->kind == AN_INS_STORE && !same) return i;
        if (same && (e->kind == AN_INS_STORE || source == i)) source = j;
    }
    return source;
}

/* Whether what i loads or stores outlives its phase, in registers. */
static bool lasts(const an_row_prog *p, int i, form f)
{
    const an_ins *in = &p->ins[i];
    if (!f.blocks || !moves_together(p, in, f.wide)) return false;
    if (in->kind == AN_INS_LOAD) return source_of(p, i, f.wide) == i && an_ix_uses(&p->ix, in->ix, AN_VAR_ROW);
    for (int j = i + 1; j < p->n_ins; j++)
        if (source_of(p, j, f.wide) == i) return true;
    return false;
}

/* Column k of what instruction i moves. */
static void moved(const an_row_prog *p, int i, form f, an_text *out)
{
    int source = f.blocks ? source_of(p, i, f.wide) : i;
    an_text_printf(out, lasts(p, source, f) ? "w%d[b][k]" : "w%d[k]", source);
}

static void load(const an_row_prog *p, int i, form f, an_text *out)
{
    static const char *const widen[AN_N_DTYPES] = {[AN_BF16] = "an_bf16_to_f32(", [AN_F16] = "an_f16_to_f32("};
    const an_ins *in = &p->ins[i];
    const an_row_arg *arg = &p->arg[in->arg];
    if (moves_together(p, in, f.wide)) {
        an_text_puts(out, widen[arg->dtype] ? widen[arg->dtype] : "");
        moved(p, i, f, out);
        an_text_puts(out, widen[arg->dtype] ? ")" : "");
        return;
    }
    int64_t reach = in->a >= 0 ? (in->clamp - 1) * in->scale : 0;
    if (arg->numel == 0) { /* of a row without columns */
        an_text_puts(out, "0");
        return;
    }
    if (in->guard >= 0) {
        guard(p, in->guard, out);
        an_text_puts(out, " ? ");
    }
    an_text_printf(out, "%s%s[", widen[arg->dtype] ? widen[arg->dtype] : "", arg->name);
    index_text(p, in->ix, reach, out);
    if (in->a >= 0)
        an_text_printf(out, " + %san_clamp(v%d, %lld) * %lld", fits(&p->ix, in->ix, reach) ? "" : "(an_i64)", in->a,
                       (long long)in->clamp, (long long)in->scale);
    an_text_puts(out, widen[arg->dtype] ? "])" : "]");
    if (in->guard >= 0) an_text_puts(out, " : 0");
}

static void cast(const an_row_prog *p, const an_ins *in, an_text *out)
{
    bool from_float = an_dtype_is_float((an_dtype)p->ins[in->a].dtype);
    char e[32];
    snprintf(e, sizeof e, "(float)v%d", in->a);
    switch (in->dtype) {
    case AN_BOOL: an_text_printf(out, "v%d != 0", in->a); break;
    case AN_I32: an_text_printf(out, from_float ? "an_f_to_i32(v%d)" : "(int)v%d", in->a); break;
    case AN_I64: an_text_printf(out, from_float ? "an_f_to_i64(v%d)" : "(an_i64)v%d", in->a); break;
    case AN_U8: an_text_printf(out, from_float ? "an_f_to_u8(v%d)" : "(an_u8)v%d", in->a); break;
    case AN_F64: an_text_printf(out, "(double)v%d", in->a); break;
    default: rounded(in->dtype, e, out); break;
    }
}

/* The place of x in 1 + erf(x) or erf(x) + 1, -1 when in is no such sum. */
static int32_t one_plus_erf(const an_row_prog *p, const an_ins *in)
{
    for (int swap = 0; swap < 2 && in->op == AN_OP_ADD; swap++) {
        const an_ins *one = &p->ins[swap ? in->b : in->a], *erf = &p->ins[swap ? in->a : in->b];
        if (one->kind == AN_INS_CONST && one->imm == 1 && erf->kind == AN_INS_ELEM && erf->op == AN_OP_ERF)
            return erf->a;
    }
    return -1;
}

static void elementwise(const an_row_prog *p, const an_ins *in, form f, an_text *out)
{
    if (f.brief && in->dtype == AN_F32) {
        int32_t x = one_plus_erf(p, in);
        if (x >= 0 || in->op == AN_OP_EXP) {
            an_text_printf(out, x >= 0 ? "an_one_plus_erf(v%d)" : "an_brief_exp(v%d)", x >= 0 ? x : in->a);
            return;
        }
    }
    /* Integer sums and products wrap; signed ones would be undefined. */
    bool wraps = !an_dtype_is_float((an_dtype)in->dtype) &&
                 (in->op == AN_OP_ADD || in->op == AN_OP_SUB || in->op == AN_OP_MUL || in->op == AN_OP_NEG),
         is_long = in->dtype == AN_I64;
    const char *operand = !wraps ? "v%d" : is_long ? "(an_u64)v%d" : "(an_u32)v%d";
    char a[32], b[32], c[32];
    snprintf(a, sizeof a, operand, in->a);
    snprintf(b, sizeof b, operand, in->b);
    snprintf(c, sizeof c, operand, in->c);
    an_text e = {0};
    an_text_puts(&e, !wraps ? "" : is_long ? "(an_i64)(" : "(int)(");
    an_render_expression(an_ops[in->op].kernel, a, b, c, &e);
    an_text_puts(&e, wraps ? ")" : "");
    rounded(in->dtype, e.data ? e.data : "", out);
    out->failed |= e.failed;
    an_text_free(&e);
}

static void store(const an_row_prog *p, int i, form f, an_text *out)
{
    const an_ins *in = &p->ins[i];
    const an_row_arg *arg = &p->arg[in->arg];
    if (moves_together(p, in, f.wide)) {
        moved(p, i, f, out);
    } else {
        an_text_printf(out, "%s[", arg->name);
        index_text(p, in->ix, 0, out);
        an_text_puts(out, "]");
    }
    if (arg->dtype == AN_BF16 && p->ins[in->a].dtype == AN_BF16) /* is rounded */
        an_text_printf(out, " = (an_u16)(AN_F2U(v%d) >> 16);\n", in->a);
    else if (arg->dtype == AN_BF16)
        an_text_printf(out, " = (an_u16)an_f32_to_bf16(v%d);\n", in->a);
    else if (arg->dtype == AN_F16)
        an_text_printf(out, " = (an_u16)an_f32_to_f16(v%d);\n", in->a);
    else if (arg->dtype == AN_BOOL)
        an_text_printf(out, " = v%d != 0;\n", in->a);
    else if (arg->dtype == AN_U8)
        an_text_printf(out, " = (an_u8)v%d;\n", in->a);
    else
        an_text_printf(out, " = v%d;\n", in->a);
}

/* `once`: the condition under which one thread of a row writes what belongs to the row. */
static void instruction(const an_row_prog *p, int i, const char *indent, const char *once, form f, an_text *out)
{
    const an_ins *in = &p->ins[i];
    an_text_puts(out, indent);
    if (in->kind == AN_INS_STORE) {
        if (in->level == AN_LEVEL_ROW) an_text_puts(out, once);
        store(p, i, f, out);
        return;
    }
    an_text_printf(out, "const %s v%d = ", computed[in->dtype], i);
    switch (in->kind) {
    case AN_INS_CONST: constant(in, out); break;
    case AN_INS_INDEX:
        an_text_puts(out, "(int)(");
        index_text(p, in->ix, 0, out);
        an_text_puts(out, ")");
        break;
    case AN_INS_TEST: guard(p, in->guard, out); break;
    case AN_INS_LOAD: load(p, i, f, out); break;
    case AN_INS_TILE: rounded(in->dtype, "acc", out); break;
    case AN_INS_RAND:
        an_text_printf(out, "an_uniform_at(%s, %uu, (an_u64)(", p->arg[in->arg].name, (unsigned)in->imm_i);
        index_text(p, in->ix, 0, out);
        an_text_printf(out, "), %lldu)", (long long)in->scale);
        break;
    case AN_INS_ELEM: elementwise(p, in, f, out); break;
    case AN_INS_CAST: cast(p, in, out); break;
    default: break;
    }
    an_text_puts(out, ";\n");
}

/* ---------------------------------------------------------------------------------------------- reductions */

/* What a lane starts from. */
static const char *first_value(const an_ins *in)
{
    bool real = an_dtype_is_float((an_dtype)in->dtype);
    if (in->op != AN_OP_MAX) return real ? "0.0f" : "0";
    if (real) return "-AN_INF";
    return in->dtype == AN_I32 ? "AN_INT_MIN" : in->dtype == AN_I64 ? "AN_LONG_MIN" : "0";
}

/* lane: "" or "[k]" */
static void declare_lanes(const an_row_prog *p, int i, int lanes, an_text *out)
{
    const an_ins *in = &p->ins[i];
    if (in->op == AN_OP_ARGMAX) {
        an_text_printf(out, "    %s b%d = 0;\n    int q%d = -1;\n", computed[p->ins[in->a].dtype], i, i);
    } else if (lanes == 1) {
        an_text_printf(out, "    %s s%d = %s;\n", computed[in->dtype], i, first_value(in));
    } else {
        an_text_printf(out, "    %s s%d[%d] = {", computed[in->dtype], i, lanes);
        for (int l = 0; l < lanes; l++) an_text_printf(out, l ? ", %s" : "%s", first_value(in));
        an_text_puts(out, "};\n");
    }
}

static void accumulate(const an_row_prog *p, int i, const char *lane, const char *place, const char *indent,
                       an_text *out)
{
    const an_ins *in = &p->ins[i];
    if (in->op == AN_OP_ARGMAX) /* NaN is above all */
        an_text_printf(out, "%sif (q%d < 0 || v%d > b%d || (an_is_nan(v%d) && !an_is_nan(b%d))) b%d = v%d, q%d = %s;\n",
                       indent, i, in->a, i, in->a, i, i, in->a, i, place);
    else
        an_text_printf(out, "%ss%d%s = %s(s%d%s, v%d);\n", indent, i, lane, in->op == AN_OP_MAX ? "an_max" : "an_plus",
                       i, lane, in->a);
}

static void end_row_reduction(const an_row_prog *p, int i, bool wide, bool shares, an_text *out)
{
    const an_ins *in = &p->ins[i];
    const char *lane = wide ? "[0]" : "", *join = in->op == AN_OP_MAX ? "an_max" : "an_plus";
    char e[48];
    for (int step = ROW_WIDE / 2; wide && step; step /= 2)
        for (int l = 0; l < step; l++)
            an_text_printf(out, "    s%d[%d] = %s(s%d[%d], s%d[%d]);\n", i, l, join, i, l, i, l + step);
    if (in->op == AN_OP_ARGMAX)
        snprintf(e, sizeof e, "an_fold_argmax(b%d, q%d)", i, i);
    else if (shares)
        snprintf(e, sizeof e, "an_group_%s(s%d%s)", in->op == AN_OP_MAX ? "max" : "sum", i, lane);
    else if (in->op == AN_OP_MAX)
        snprintf(e, sizeof e, "an_fold_max(s%d%s, l)", i, lane);
    else
        snprintf(e, sizeof e, "an_fold_sum(s%d%s)", i, lane);
    an_text_printf(out, "    const %s v%d = ", computed[in->dtype], i);
    rounded(in->dtype, e, out);
    an_text_puts(out, ";\n");
}

/* ---------------------------------------------------------------------------------------------- the shapes */

static bool is_column(const an_ins *in)
{
    return in->level == AN_LEVEL_COL && in->kind != AN_INS_REDUCE;
}

/* Rows with values of their own need a subgroup each; other elements a thread each. */
static bool has_rows(const an_row_prog *p)
{
    bool rows = p->n_phases > 1;
    for (int i = 0; i < p->n_ins; i++) rows |= p->ins[i].kind == AN_INS_REDUCE;
    return p->shape == AN_ROW && rows;
}

/* An output of the row may take over the memory of an input of the row: the lane that writes it waits until all lanes
 * have read. */
static bool row_is_read(const an_row_prog *p, int until)
{
    for (int i = 0; i < until; i++)
        if (p->ins[i].kind == AN_INS_LOAD && p->ins[i].level == AN_LEVEL_ROW) return true;
    return false;
}

/* One load or store of the wide form, at c0. */
static void move(const an_row_prog *p, int i, const char *block, const char *indent, an_text *out)
{
    static const char *const narrow_c0[AN_N_VARS] = {"r", "c0", "q"};
    static const char *const wide_c0[AN_N_VARS] = {"(an_i64)r", "(an_i64)c0", "(an_i64)q"};
    const an_ins *in = &p->ins[i];
    const bool stores = in->kind == AN_INS_STORE;
    const char *name = p->arg[in->arg].name;
    if (stores)
        an_text_printf(out, "%san_wide_store(%s + ", indent, name);
    else
        an_text_printf(out, "%san_wide_load(w%d%s, %s + ", indent, i, block, name);
    an_ix_text(&p->ix, in->ix, fits(&p->ix, in->ix, 0) ? narrow_c0 : wide_c0, out);
    if (stores) an_text_printf(out, ", w%d%s", i, block);
    an_text_puts(out, ");\n");
}

/* Those of a phase that stand outside its loop. */
static void moves(const an_row_prog *p, int phase, form f, bool stores, const char *indent, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || !moves_together(p, in, f.wide)) continue;
        const bool is_store = in->kind == AN_INS_STORE, kept = lasts(p, i, f);
        const bool there = kept || (f.blocks && source_of(p, i, f.wide) != i); /* declared, and loaded, before */
        if (!stores && !there)
            an_text_printf(out, "%s%s w%d[%d];\n", indent, storage[p->arg[in->arg].dtype], i, f.wide);
        if (stores == is_store && (stores || !there)) move(p, i, kept ? "[b]" : "", indent, out);
    }
}

/* Whether a phase ends in a reduction. */
static bool reduces(const an_row_prog *p, int phase)
{
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE) return true;
    return false;
}

/* One long row and few others (CUDA): a group a row. Its subgroups all reduce the row, each for itself, in the one
 * order that the bits want; what is done to columns afterwards they share. Not where a column is written while it is
 * still reduced. */
static bool is_team(const an_row_prog *p, bool msl)
{
    bool shared = false;
    if (msl || p->rows > TEAM_ROWS || p->cols < TEAM_THREADS) return false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (!is_column(in)) continue;
        shared |= !reduces(p, in->phase);
        if (in->kind == AN_INS_STORE && reduces(p, in->phase)) return false;
    }
    return shared;
}

static void narrow_columns(const an_row_prog *p, int phase, bool shared, an_text *out)
{
    an_text_printf(out, "    for (int c = %s; c < %lld; c += %d) {\n", shared ? "an_thread" : "l", (long long)p->cols,
                   shared ? TEAM_THREADS : 32);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && is_column(&p->ins[i])) instruction(p, i, "        ", "", (form){0}, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE) accumulate(p, i, "", "c", "        ", out);
    an_text_puts(out, "    }\n");
}

/* The loop over a lane's columns; an unrolled one where the row is kept. */
static void wide_loop(const an_row_prog *p, form f, bool shared, an_text *out)
{
    const int step = ROW_WIDE * (shared ? TEAM_THREADS : 32);
    if (!f.blocks) {
        an_text_printf(out, "    for (int c0 = %d * %s; c0 < %lld; c0 += %d) {\n", ROW_WIDE, shared ? "an_thread" : "l",
                       (long long)p->cols, step);
        return;
    }
    an_text_printf(out, "    AN_UNROLL for (int b = 0; b < %d; b++)\n    {\n        const int c0 = %d * b + %d * l;\n",
                   f.blocks, step, ROW_WIDE);
    if (p->cols % step) an_text_printf(out, "        if (c0 >= %lld) continue;\n", (long long)p->cols);
}

/* What the row's lane keeps; everything that it reads is asked for at once. */
static void kept_rows(const an_row_prog *p, form f, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++)
        if (lasts(p, i, f))
            an_text_printf(out, "    %s w%d[%d][%d];\n", storage[p->arg[p->ins[i].arg].dtype], i, f.blocks, f.wide);
    wide_loop(p, f, false, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_LOAD && lasts(p, i, f)) move(p, i, "[b]", "        ", out);
    an_text_puts(out, "    }\n");
}

/* Four columns a lane at a time: 128 chains instead of 32, so only where the bits of other devices are not asked for.
 */
static void wide_columns(const an_row_prog *p, int phase, form f, bool shared, an_text *out)
{
    wide_loop(p, f, shared, out);
    moves(p, phase, f, false, "        ", out);
    an_text_printf(
        out,
        "        AN_UNROLL for (int k = 0; k < %d; k++)\n        {\n            const int c = c0 + k;\n         "
        "   (void)c;\n",
        ROW_WIDE);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && is_column(&p->ins[i])) instruction(p, i, "            ", "", f, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE)
            accumulate(p, i, "[k]", "c", "            ", out);
    an_text_puts(out, "        }\n");
    moves(p, phase, f, true, "        ", out);
    an_text_puts(out, "    }\n");
}

/* Arg max keeps its one order of columns. */
static bool wide_rows(const an_row_prog *p, an_gpu_kind gpu)
{
    bool wide = gpu == AN_GPU_CUDA_FAST && p->cols % ROW_WIDE == 0 && p->cols >= 32 * ROW_WIDE;
    for (int i = 0; i < p->n_ins; i++) wide &= p->ins[i].kind != AN_INS_REDUCE || p->ins[i].op != AN_OP_ARGMAX;
    return wide;
}

static form rows_form(const an_row_prog *p, const an_launch *launch, an_gpu_kind gpu)
{
    form f = {.wide = wide_rows(p, gpu) ? ROW_WIDE : 0};
    if (!f.wide || launch->team || p->n_phases < 2) return f;
    const form kept = {.wide = f.wide, .blocks = (int)AN_MIN(an_ceil_div(p->cols, 32 * ROW_WIDE), KEPT_REGISTERS)};
    size_t bytes = 0;
    for (int i = 0; i < p->n_ins; i++)
        if (lasts(p, i, kept))
            bytes += an_dtype_bytes((an_dtype)p->arg[p->ins[i].arg].dtype) * ROW_WIDE * (size_t)kept.blocks;
    return bytes <= 4 * KEPT_REGISTERS ? kept : f;
}

static void row_phase(const an_row_prog *p, int phase, const an_launch *launch, form f, an_text *out)
{
    const bool team = launch->team;
    bool columns = false, stored = false, shared = team && (launch->shares || !reduces(p, phase));
    if (p->n_phases > 1) an_text_printf(out, "\n    /* phase %d */\n", phase);
    if (team && phase > 0) an_text_puts(out, "    AN_BARRIER();\n"); /* other threads have stored */
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase) continue;
        columns |= is_column(in) || in->kind == AN_INS_REDUCE;
        if (in->kind == AN_INS_STORE && in->level == AN_LEVEL_ROW && !stored && (team || row_is_read(p, i))) {
            an_text_puts(out, team ? "    AN_BARRIER();\n" : "    AN_SUBGROUP_DEVICE_BARRIER();\n");
            stored = true;
        }
        if (in->kind == AN_INS_REDUCE)
            declare_lanes(p, i, f.wide ? ROW_WIDE : 1, out);
        else if (in->level == AN_LEVEL_ROW)
            instruction(p, i, "    ", team ? "if (an_thread == 0) " : "if (l == 0) ", (form){0}, out);
    }
    if (!columns) return;
    if (f.wide)
        wide_columns(p, phase, f, shared, out);
    else
        narrow_columns(p, phase, shared, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE)
            end_row_reduction(p, i, f.wide, launch->shares, out);
}

static void rows(const an_row_prog *p, const an_launch *launch, an_gpu_kind gpu, an_text *out)
{
    int at_once = launch->team ? 1 : (int)AN_MIN(ROWS_A_GROUP, AN_MAX(p->rows, 1));
    an_text_puts(out, "    const int l = (int)an_lane, r = ");
    if (at_once > 1)
        an_text_printf(out, "(int)an_group.x * %d + (int)an_subgroup; /* a row a subgroup */\n", at_once);
    else
        an_text_printf(out, "(int)an_group.x; /* a row a %s */\n", launch->team ? "group" : "subgroup");
    if (p->rows % at_once)
        an_text_printf(out, "    if (r >= %lld) return; /* the whole subgroup */\n", (long long)p->rows);
    if (p->rows <= 1 && !p->ix.failed) an_text_puts(out, "    (void)r;\n");
    const form f = rows_form(p, launch, gpu);
    if (f.blocks) kept_rows(p, f, out);
    for (int phase = 0; phase < p->n_phases; phase++) row_phase(p, phase, launch, f, out);
}

/* i, and r and c where they are read. */
static void place_of_thread(const an_row_prog *p, int threads, an_text *out)
{
    int64_t n = p->rows * p->cols;
    bool is_long = n > INT32_MAX;
    an_text_printf(out,
                   is_long ? "    const an_i64 i = (an_i64)an_group.x * %d + (int)an_thread;\n"
                           : "    const int i = (int)an_group.x * %d + (int)an_thread;\n",
                   threads);
    if (n % threads) an_text_printf(out, "    if (i >= %lld) return;\n", (long long)n);
    const char *type = is_long ? "an_u64" : "an_u32";
    if (uses(p, AN_VAR_ROW)) {
        if (p->cols == 1)
            an_text_puts(out, "    const int r = (int)i;\n");
        else
            an_text_printf(out, "    const int r = (int)((%s)i / %lldu);\n", type, (long long)AN_MAX(p->cols, 1));
    }
    if (uses(p, AN_VAR_COL)) {
        if (p->rows == 1)
            an_text_puts(out, "    const int c = (int)i;\n");
        else
            an_text_printf(out, "    const int c = (int)((%s)i %% %lldu);\n", type, (long long)AN_MAX(p->cols, 1));
    }
    if (!uses(p, AN_VAR_ROW) && !uses(p, AN_VAR_COL)) an_text_puts(out, "    (void)i;\n");
}

/* Elementwise and nothing but 16-bit results. */
static bool is_brief(const an_row_prog *p, an_gpu_kind gpu)
{
    bool brief = gpu == AN_GPU_CUDA_FAST && p->shape != AN_COL && !has_rows(p);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_STORE)
            brief &= p->arg[p->ins[i].arg].dtype == AN_BF16 || p->arg[p->ins[i].arg].dtype == AN_F16;
    return brief;
}

static void wide_elements(const an_row_prog *p, const an_launch *launch, form f, an_text *out)
{
    int64_t n = p->rows * p->cols;
    const bool is_long = n > INT32_MAX - EACH_THREADS * AN_WIDE; /* the last group reaches beyond n */
    const char *type = is_long ? "an_i64" : "int", *unsigned_type = is_long ? "an_u64" : "an_u32";
    an_text_printf(out, "    const %s i = ((%s)an_group.x * %d + (int)an_thread) * %d; /* %d columns a thread */\n",
                   type, type, launch->threads, AN_WIDE, AN_WIDE);
    if (n % ((int64_t)launch->threads * AN_WIDE)) an_text_printf(out, "    if (i >= %lld) return;\n", (long long)n);
    an_text_printf(out, "    const int r = (int)((%s)i / %lldu), c0 = (int)((%s)i %% %lldu);\n    (void)r;\n",
                   unsigned_type, (long long)p->cols, unsigned_type, (long long)p->cols);
    if (p->shape == AN_TILE)
        an_text_printf(out, "    an_product wp[%d];\n    an_wide_load(wp, product + i);\n", AN_WIDE);
    moves(p, 0, f, false, "    ", out);
    an_text_printf(
        out, "    AN_UNROLL for (int k = 0; k < %d; k++)\n    {\n        const int c = c0 + k;\n        (void)c;\n",
        AN_WIDE);
    if (p->shape == AN_TILE) an_text_puts(out, "        const float acc = an_product_value(wp[k]);\n");
    for (int i = 0; i < p->n_ins; i++) instruction(p, i, "        ", "if (c == 0) ", f, out);
    an_text_puts(out, "    }\n");
    moves(p, 0, f, true, "    ", out);
}

static void elements(const an_row_prog *p, const an_launch *launch, an_gpu_kind gpu, an_text *out)
{
    const form f = {.wide = launch->wide ? AN_WIDE : 0, .brief = is_brief(p, gpu)};
    if (launch->wide) {
        wide_elements(p, launch, f, out);
        return;
    }
    place_of_thread(p, launch->threads, out);
    if (p->shape == AN_TILE) an_text_puts(out, "    const float acc = an_product_value(product[i]);\n");
    for (int i = 0; i < p->n_ins; i++) instruction(p, i, "    ", "if (c == 0) ", f, out);
}

static void columns(const an_row_prog *p, const an_launch *launch, an_text *out)
{
    int red = 0;
    while (p->ins[red].kind != AN_INS_REDUCE) red++;
    const an_ins *in = &p->ins[red];
    int lanes = in->op == AN_OP_ARGMAX ? 1 : AN_MAX(p->lanes, 1);
    const char *indent = lanes > 1 ? "            " : "        ";
    place_of_thread(p, launch->threads, out);
    declare_lanes(p, red, lanes, out);
    if (lanes > 1) {
        an_text_printf(out,
                       "    for (int q0 = 0; q0 < %lld; q0 += %d)\n        AN_UNROLL for (int k = 0; k < %d; k++)\n    "
                       "    {\n            const int q = q0 + k;\n",
                       (long long)p->red, lanes, lanes);
        if (p->red % lanes) an_text_printf(out, "            if (q >= %lld) break;\n", (long long)p->red);
        if (!uses(p, AN_VAR_RED)) an_text_puts(out, "            (void)q;\n");
    } else {
        an_text_printf(out, "    for (int q = 0; q < %lld; q++) {\n", (long long)p->red);
    }
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && i != red) instruction(p, i, indent, "", (form){0}, out);
    accumulate(p, red, lanes > 1 ? "[k]" : "", "q", indent, out);
    an_text_puts(out, lanes > 1 ? "        }\n" : "    }\n");
    for (int s = lanes / 2; s; s /= 2)
        for (int l = 0; l < s; l++)
            an_text_printf(out, "    s%d[%d] = %s(s%d[%d], s%d[%d]);\n", red, l,
                           in->op == AN_OP_MAX ? "an_max" : "an_plus", red, l, red, l + s);
    char e[32];
    snprintf(e, sizeof e, in->op == AN_OP_ARGMAX ? "q%d" : lanes > 1 ? "s%d[0]" : "s%d", red);
    an_text_printf(out, "    const %s v%d = ", computed[in->dtype], red);
    rounded(in->dtype, e, out);
    an_text_puts(out, ";\n");
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase > 0 && i != red) instruction(p, i, "    ", "if (c == 0) ", (form){0}, out);
}

/* ---------------------------------------------------------------------------------------------- kernels */

static bool is_rng(const an_row_arg *a)
{
    return !strcmp(a->name, "rng");
}
static const char *type_of(const an_row_arg *a)
{
    return is_rng(a) ? "an_u32" : storage[a->dtype];
}

static void notes_above(const an_row_prog *p, an_text *out)
{
    static const char *const shapes[] = {"rows", "columns", "epilogue"};
    an_text_printf(out, "/* %s: %s, %lld x %lld", p->name, shapes[p->shape], (long long)p->rows, (long long)p->cols);
    if (p->shape == AN_COL) an_text_printf(out, " over %lld", (long long)p->red);
    an_text_puts(out, "; ");
    an_render_cost(p->flops, p->bytes, out);
    an_text_puts(out, "\n");
    an_render_formulas(p, " *     ", out);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, " * %s %s: %s %s\n", p->arg[i].written ? p->arg[i].read ? "updates" : "writes " : "reads  ",
                       p->arg[i].name, an_dtype_name((an_dtype)p->arg[i].dtype), p->arg[i].note);
    an_text_puts(out, " */\n");
}

/* The function behind AN_EPILOGUE. Rows count through the batch, as on the CPU. */
static void epilogue(const an_row_prog *p, const char *name, an_text *out)
{
    an_text_printf(out, "AN_FN void %s(int r, int c, float acc", name);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, ", AN_DEVICE %s%s *%s", p->arg[i].written ? "" : "const ", type_of(&p->arg[i]),
                       p->arg[i].name);
    an_text_puts(out, ")\n{\n");
    if (!uses(p, AN_VAR_ROW)) an_text_puts(out, "    (void)r;\n");
    if (!uses(p, AN_VAR_COL)) an_text_puts(out, "    (void)c;\n");
    for (int i = 0; i < p->n_ins; i++) instruction(p, i, "    ", "if (c == 0) ", (form){0}, out);
    an_text_puts(out, "}\n#define AN_EPILOGUE_ARGS ");
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, ", %s(%d, %s, %s)", p->arg[i].written ? "AN_ROW_OUT" : "AN_ROW_IN",
                       FIRST_EPILOGUE_BUFFER + i, type_of(&p->arg[i]), p->arg[i].name);
    an_text_printf(out, "\n#define AN_EPILOGUE(row, col, acc) %s(batch * g.m + (row), col, acc", name);
    for (int i = 0; i < p->n_args; i++) an_text_printf(out, ", %s", p->arg[i].name);
    an_text_puts(out, ")\n");
}

an_launch an_render_gpu_launch(const an_row_prog *p, an_gpu_kind gpu)
{
    const bool msl = gpu == AN_GPU_MSL;
    if (has_rows(p) && wide_rows(p, gpu) && p->cols >= LONG_ROW && p->rows < INT32_MAX)
        return (an_launch){.groups = p->rows, .threads = TEAM_THREADS, .team = true, .shares = true};
    if (has_rows(p) && is_team(p, msl)) return (an_launch){.groups = p->rows, .threads = TEAM_THREADS, .team = true};
    if (has_rows(p)) {
        int64_t at_once = AN_MIN(ROWS_A_GROUP, AN_MAX(p->rows, 1));
        return (an_launch){.groups = an_ceil_div(p->rows, at_once), .threads = 32 * (int)at_once};
    }
    int64_t n = p->rows * p->cols;
    if (!msl && p->shape != AN_COL && p->cols % AN_WIDE == 0 && n >= WIDE_FROM && n / AN_WIDE <= INT32_MAX)
        return (an_launch){
            .groups = an_ceil_div(n, (int64_t)EACH_THREADS * AN_WIDE), .threads = EACH_THREADS, .wide = true};
    int threads = (int)AN_MIN(p->shape == AN_COL ? COL_THREADS : EACH_THREADS, AN_MAX(an_round_up(n, 32), 32));
    return (an_launch){.groups = an_ceil_div(n, threads), .threads = threads};
}

const char *an_render_gpu_refusal(const an_row_prog *p, bool msl)
{
    static const char no_float64[] =
        "uses float64, which Apple GPUs do not have; use float32, device=cpu, or fallback=cpu";
    int buffers = p->n_args + (p->shape == AN_TILE ? FIRST_EPILOGUE_BUFFER : 0);
    if (msl && buffers > METAL_BUFFERS)
        return "takes more than the 31 buffers of Metal; evaluate fewer tensors at once";
    if (p->rows > INT32_MAX || p->cols > INT32_MAX || p->red > INT32_MAX)
        return "has an extent of more than 2147483647; use a smaller batch";
    for (int i = 0; i < p->n_args; i++)
        if (msl && p->arg[i].dtype == AN_F64) return no_float64;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (msl && in->dtype == AN_F64) return no_float64;
    }
    return NULL;
}

void an_render_gpu_tail(const an_row_prog *p, const char *name, an_dtype product, an_text *out)
{
    an_launch launch = an_render_gpu_launch(p, AN_GPU_CUDA_FAST);
    bool half = product == AN_BF16;
    an_text_printf(out, "typedef %s an_product;\nAN_FN float an_product_value(an_product x) { return %s; }\n",
                   storage[product], half ? "an_bf16_to_f32(x)" : "x");
    an_text_printf(out, "AN_KERNEL(%s, %d)\n(AN_ROW_IN(0, %s, product)", name, launch.threads, storage[product]);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, ", %s(%d, %s, %s)", p->arg[i].written ? "AN_ROW_OUT" : "AN_ROW_IN", i + 1,
                       type_of(&p->arg[i]), p->arg[i].name);
    an_text_puts(out, " AN_IDS)\n{\n");
    elements(p, &launch, AN_GPU_CUDA_FAST, out);
    an_text_puts(out, "}\n");
}

void an_render_gpu(const an_row_prog *p, const char *name, an_gpu_kind gpu, bool notes, an_text *out)
{
    const bool msl = gpu == AN_GPU_MSL;
    if (an_render_gpu_refusal(p, msl)) {
        out->failed = true;
        return;
    }
    if (notes) notes_above(p, out);
    if (p->shape == AN_TILE) {
        epilogue(p, name, out);
        return;
    }
    an_launch launch = an_render_gpu_launch(p, gpu);
    an_text_printf(out, "AN_KERNEL(%s, %d)\n(", name, launch.threads);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, "%s%s(%d, %s, %s)", i ? ", " : "", p->arg[i].written ? "AN_ROW_OUT" : "AN_ROW_IN", i,
                       type_of(&p->arg[i]), p->arg[i].name);
    an_text_puts(out, " AN_IDS)\n{\n");
    if (p->shape == AN_COL)
        columns(p, &launch, out);
    else if (has_rows(p))
        rows(p, &launch, gpu, out);
    else
        elements(p, &launch, gpu, out);
    an_text_puts(out, "}\n");
}
