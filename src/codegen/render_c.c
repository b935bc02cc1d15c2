/* render_c.c: loop kernels as C for the CPU's compiler. One instruction of the loop kernel is one line of C:
 *
 *     for (int64_t r = t->row0; r < t->row1; r++) {
 *         float s5[32];  ...                            a reduction along the row: 32 virtual lanes, so that its bits
 *         for (c0 ...) AN_LANES for (l < 32) {          are those of the tree in base/exact.h on every device
 *             const float v0 = x0[r * 384 + c];         load
 *             const float v1 = an_exp(v0);              elementwise, from ops.def
 *             s5[l] += v1;
 *         }
 *         AN_FOLD(s5, 32, AN_PLUS);  const float v5 = s5[0];
 *         AN_EACH for (c ...) { ... y1[r * 384 + c] = v7; }    the next phase
 *     }
 *
 * Inner loops have no branches, so that gcc and clang vectorise them (SIMD). Columns: render_c_columns.c.
 * Invariant: the bits of the interpreter and of the GPU's exact loops. */
#include "codegen/render_c.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char an_embed_exact[], an_embed_dialect_loops_c_h[];

const char *an_render_c_prelude(int part)
{
    return part ? an_embed_dialect_loops_c_h : an_embed_exact;
}

/* Types in memory and in arithmetic, by dtype: bf16 and f16 are bits in memory, computed in float and rounded after each
 * instruction; bool and u8 are computed as int. */
static const char *const storage[AN_N_DTYPES] = {"float",   "uint16_t", "uint16_t", "double",
                                                 "int32_t", "int64_t",  "uint8_t",  "uint8_t"};
const char *const an_c_computed[AN_N_DTYPES] = {"float",   "float",   "float",   "double",
                                                "int32_t", "int64_t", "int32_t", "int32_t"};
static const char *const vars[AN_N_VARS] = {"r", "c", "q"};

/* An expression of ops.def, "(a) * AN_SEL(b, c)", with operands in place of the letters a, b and c where these are words of
 * their own: "(v4) * AN_SEL(v7, v2)". */
void an_render_expression(const char *e, const char *a, const char *b, const char *c, an_text *out)
{
    while (*e) {
        if (!isalpha((unsigned char)*e) && *e != '_') {
            an_text_putn(out, e++, 1);
            continue;
        }
        const char *start = e;
        while (isalnum((unsigned char)*e) || *e == '_') e++;
        bool operand = e - start == 1;
        if (operand && *start == 'a')
            an_text_puts(out, a);
        else if (operand && *start == 'b')
            an_text_puts(out, b);
        else if (operand && *start == 'c')
            an_text_puts(out, c);
        else
            an_text_putn(out, start, (size_t)(e - start));
    }
}

/* As many digits as give the same bits again: 9 in float, 17 in double. */
void an_c_constant(const an_ins *in, an_text *out)
{
    if (!an_dtype_is_float((an_dtype)in->dtype)) {
        an_text_printf(out, in->imm_i == INT64_MIN ? "INT64_MIN" : "%lld", (long long)in->imm_i);
        return;
    }
    const char *suffix = in->dtype == AN_F64 ? "" : "f";
    double x = in->dtype == AN_F64 ? in->imm : (double)(float)in->imm;
    if (isnan(x))
        an_text_puts(out, "NAN");
    else if (isinf(x))
        an_text_puts(out, x > 0 ? "INFINITY" : "-INFINITY");
    else {
        char text[64];
        snprintf(text, sizeof text, in->dtype == AN_F64 ? "%.17g" : "%.9g", x);
        an_text_printf(out, "%s%s%s", text, strpbrk(text, ".en") ? "" : ".0", suffix);
    }
}

/* The condition that a padded load is inside: only the bounds that the range of an index does not settle are written,
 * joined by & so that no branch is made:
 *
 *     ((c - 1) >= 0) & ((c - 1) < 64)     c in 0 ... 65
 *     ((c - 1) >= 0)                      c in 0 ... 64 */
void an_c_guard(const an_loop_kernel *p, int32_t g, an_text *out)
{
    for (int i = 0; i < p->guard[g].n; i++) {
        const an_bound *b = &p->guard[g].bound[i];
        const an_ix_expr *e = &p->ix.expr[b->e];
        an_text_puts(out, i ? " & " : "");
        if (e->lo < b->lo) {
            an_text_puts(out, "((");
            an_ix_text(&p->ix, b->e, vars, out);
            an_text_printf(out, ") >= %lld)", (long long)b->lo);
        }
        if (e->hi >= b->hi) {
            an_text_puts(out, e->lo < b->lo ? " & ((" : "((");
            an_ix_text(&p->ix, b->e, vars, out);
            an_text_printf(out, ") < %lld)", (long long)b->hi);
        }
        if (e->lo >= b->lo && e->hi < b->hi) an_text_puts(out, "1");
    }
}

/* The text `e`, rounded to `dtype`. */
void an_c_rounded(int dtype, const char *e, an_text *out)
{
    if (dtype == AN_BF16)
        an_text_printf(out, "an_to_bf16(%s)", e);
    else if (dtype == AN_F16)
        an_text_printf(out, "an_to_f16(%s)", e);
    else if (dtype == AN_U8)
        an_text_printf(out, "(uint8_t)(%s)", e);
    else
        an_text_puts(out, e);
}

void an_c_index(const an_loop_kernel *p, an_ix ix, an_text *out)
{
    an_ix_text(&p->ix, ix, vars, out);
}

/* (guard) ? an_bf16_to_f32(x0[r * 384 + c]) : 0; of a gather, a row's number is added to the index, clamped so that
 * wrong ids read inside of the array: x0[c + an_clamp(v3, 50304) * 384]. */
void an_c_load(const an_loop_kernel *p, const an_ins *in, an_text *out)
{
    const an_loop_arg *arg = &p->arg[in->arg];
    if (in->guard >= 0) {
        an_text_puts(out, "(");
        an_c_guard(p, in->guard, out);
        an_text_puts(out, ") ? ");
    }
    if (arg->dtype == AN_BF16) an_text_puts(out, "an_bf16_to_f32(");
    if (arg->dtype == AN_F16) an_text_puts(out, "an_f16_to_f32(");
    an_text_printf(out, "%s[", arg->name);
    an_ix_text(&p->ix, in->ix, vars, out);
    if (in->a >= 0)
        an_text_printf(out, in->scale == 1 ? " + an_clamp(v%d, %lld)" : " + an_clamp(v%d, %lld) * %lld", in->a,
                       (long long)in->clamp, (long long)in->scale);
    an_text_puts(out, "]");
    if (arg->dtype == AN_BF16 || arg->dtype == AN_F16) an_text_puts(out, ")");
    if (in->guard >= 0) an_text_puts(out, " : 0");
}

/* Floats to integers by functions with a result for every input: C leaves those out of range undefined. */
static void cast(const an_loop_kernel *p, const an_ins *in, an_text *out)
{
    char v[16];
    int from = p->ins[in->a].dtype, to = in->dtype;
    snprintf(v, sizeof v, "v%d", in->a);
    bool from_float = an_dtype_is_float((an_dtype)from);
    if (to == AN_BOOL)
        an_text_printf(out, "%s != 0", v);
    else if (to == AN_I32)
        an_text_printf(out, from_float ? "an_f_to_i32(%s)" : "(int32_t)%s", v);
    else if (to == AN_I64)
        an_text_printf(out, from_float ? "an_f_to_i64(%s)" : "(int64_t)%s", v);
    else if (to == AN_U8)
        an_text_printf(out, from_float ? "an_f_to_u8(%s)" : "(uint8_t)%s", v);
    else if (to == AN_F64)
        an_text_printf(out, "(double)%s", v);
    else {
        char e[32];
        snprintf(e, sizeof e, "(float)%s", v);
        an_c_rounded(to, e, out);
    }
}

/* Integer sums and products wrap around, which is undefined for signed integers in C: they are computed as unsigned. */
static bool wraps(const an_ins *in)
{
    return !an_dtype_is_float((an_dtype)in->dtype) &&
           (in->op == AN_OP_ADD || in->op == AN_OP_SUB || in->op == AN_OP_MUL || in->op == AN_OP_NEG);
}

/* A choice by a condition that is the same for all columns. Written as a?b:c, gcc 13 splits the loop into masked halves and
 * computes both: AdamW's update took five times as long. */
static bool chooses_for_a_row(const an_loop_kernel *p, const an_ins *in)
{
    return in->op == AN_OP_WHERE && an_dtype_is_float((an_dtype)in->dtype) && in->scope != AN_SCOPE_ROW &&
           p->ins[in->a].scope == AN_SCOPE_ROW;
}

static void elementwise(const an_loop_kernel *p, const an_ins *in, an_text *out)
{
    char a[32], b[32], c[32];
    const char *operand = "v%d";
    if (wraps(in)) {
        operand = in->dtype == AN_I64 ? "(uint64_t)v%d" : "(uint32_t)v%d";
        an_text_puts(out, in->dtype == AN_I64 ? "(int64_t)(" : "(int32_t)(");
    }
    snprintf(a, sizeof a, operand, in->a);
    snprintf(b, sizeof b, operand, in->b);
    snprintf(c, sizeof c, operand, in->c);
    an_text e = {0};
    an_render_expression(chooses_for_a_row(p, in) ? "an_pick(a, b, c)" : an_ops[in->op].kernel, a, b, c, &e);
    an_c_rounded(in->dtype, e.data ? e.data : "", out);
    out->failed |= e.failed;
    an_text_free(&e);
    if (wraps(in)) an_text_puts(out, ")");
}

/* Whether value `i` was rounded to bf16 as it was computed. */
static bool is_rounded(const an_loop_kernel *p, int i)
{
    const an_ins *in = &p->ins[i];
    return in->dtype == AN_BF16 && (in->kind == AN_INS_ELEM || in->kind == AN_INS_CAST || in->kind == AN_INS_TILE);
}

static void store(const an_loop_kernel *p, const an_ins *in, an_text *out)
{
    const an_loop_arg *arg = &p->arg[in->arg];
    an_text_printf(out, "%s[", arg->name);
    an_ix_text(&p->ix, in->ix, vars, out);
    an_text_puts(out, "] = ");
    if (arg->dtype == AN_BF16 && is_rounded(p, in->a))
        an_text_printf(out, "(uint16_t)(AN_F2U(v%d) >> 16);\n", in->a);
    else if (arg->dtype == AN_BF16)
        an_text_printf(out, "(uint16_t)an_f32_to_bf16(v%d);\n", in->a);
    else if (arg->dtype == AN_F16)
        an_text_printf(out, "(uint16_t)an_f32_to_f16(v%d);\n", in->a);
    else if (arg->dtype == AN_BOOL)
        an_text_printf(out, "v%d != 0;\n", in->a);
    else
        an_text_printf(out, "(%s)v%d;\n", storage[arg->dtype], in->a);
}

void an_c_instruction(const an_loop_kernel *p, int i, const char *indent, an_text *out)
{
    const an_ins *in = &p->ins[i];
    an_text_puts(out, indent);
    if (in->kind == AN_INS_STORE) {
        store(p, in, out);
        return;
    }
    an_text_printf(out, "const %s v%d = ", an_c_computed[in->dtype], i);
    switch (in->kind) {
    case AN_INS_CONST: an_c_constant(in, out); break;
    case AN_INS_INDEX:
        an_text_puts(out, "(int32_t)(");
        an_ix_text(&p->ix, in->ix, vars, out);
        an_text_puts(out, ")");
        break;
    case AN_INS_TEST: an_c_guard(p, in->guard, out); break;
    case AN_INS_LOAD: an_c_load(p, in, out); break;
    case AN_INS_TILE: an_c_rounded(in->dtype, "acc[c - col0]", out); break;
    case AN_INS_RAND:
        an_text_printf(out, "an_uniform_at(%s, %uu, (uint64_t)(", p->arg[in->arg].name, (unsigned)in->imm_i);
        an_ix_text(&p->ix, in->ix, vars, out);
        an_text_printf(out, "), %lldu)", (long long)in->scale);
        break;
    case AN_INS_ELEM: elementwise(p, in, out); break;
    case AN_INS_CAST: cast(p, in, out); break;
    default: break;
    }
    an_text_puts(out, ";\n");
}

/* ---------------------------------------------------------------------------------------------- reductions */

/* What a maximum starts from: smaller than or equal to every value. */
static const char *worst(int dtype)
{
    switch (dtype) {
    case AN_I32: return "INT32_MIN";
    case AN_I64: return "INT64_MIN";
    case AN_U8:
    case AN_BOOL: return "0";
    default: return "-INFINITY";
    }
}

const char *an_c_first_value(const an_ins *in)
{
    return in->op == AN_OP_MAX ? worst(in->dtype) : "0";
}

/* "s5[l] += v4;" of reduction i, in its lane. Integers are added as unsigned: they wrap. */
static void accumulate(const an_loop_kernel *p, int i, const char *lane, an_text *out)
{
    const an_ins *in = &p->ins[i];
    bool real = an_dtype_is_float((an_dtype)p->ins[in->a].dtype);
    if (in->op == AN_OP_MAX)
        an_text_printf(out, "s%d%s = an_max(s%d%s, v%d);\n", i, lane, i, lane, in->a);
    else if (real)
        an_text_printf(out, "s%d%s += v%d;\n", i, lane, in->a);
    else
        an_text_printf(out, "s%d%s = (%s)((%s)s%d%s + (%s)v%d);\n", i, lane, an_c_computed[in->dtype],
                       in->dtype == AN_I64 ? "uint64_t" : "uint32_t", i, lane,
                       in->dtype == AN_I64 ? "uint64_t" : "uint32_t", in->a);
}

/* b: the best value so far, q: its place, -1 before the first. The first of equal values stays; a NaN is larger than every
 * number, and the first NaN stays. */
void an_c_argmax_update(const an_loop_kernel *p, int i, const char *place, const char *indent, an_text *out)
{
    int v = p->ins[i].a;
    bool real = an_dtype_is_float((an_dtype)p->ins[v].dtype);
    const char *lane = p->shape == AN_COL ? "[l]" : "";
    an_text_printf(out, "%sif (q%d%s < 0 || v%d > b%d%s", indent, i, lane, v, i, lane);
    if (real) an_text_printf(out, " || (v%d != v%d && b%d%s == b%d%s)", v, v, i, lane, i, lane);
    an_text_printf(out, ") { b%d%s = v%d; q%d%s = (int32_t)%s; }\n", i, lane, v, i, lane, place);
}

/* ---------------------------------------------------------------------------------------------- transposed loads */

void an_c_fill_blocks(const an_loop_kernel *p, const an_stage *s, const char *full, const char *place,
                      const char *columns_in, int columns, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (!an_is_staged(p, in, s)) continue;
        const int64_t far = an_staged_square(p, in, s);
        an_text_printf(out, "        %s b%d[%d][%d];\n", an_c_computed[in->dtype], i, AN_STAGE_BLOCK, columns);
        if (far && columns % 8 == 0 && p->arg[in->arg].dtype == AN_F32) {
            const int64_t ahead = s->along == AN_ALONG_ROWS ? far * columns : AN_STAGE_BLOCK;
            an_text_printf(out,
                           "        if (%s) for (int l = 0; l < %d; l += 8) for (int i = 0; i < %d; i += 8) { %s "
                           "const float *from = &",
                           full, columns, AN_STAGE_BLOCK, place);
            an_c_load(p, in, out);
            an_text_printf(out,
                           "; if (i == 0) an_ask8(from, %lld, %lld); an_transpose8(from, %lld, &b%d[i][l], %d); }\n  "
                           "      else\n",
                           (long long)far, (long long)ahead, (long long)far, i, columns);
        }
        an_text_printf(out, "        for (int l = 0; l < %s; l++) for (int i = 0; i < ni; i++) { %s b%d[i][l] = ",
                       columns_in, place, i);
        an_c_load(p, in, out);
        an_text_puts(out, "; }\n");
    }
}

/* ---------------------------------------------------------------------------------------------- rows */

/* Whether the phase has: with `reduce`, an argmax (op ARGMAX) or another reduction (op SUM); without, work for each
 * column. */
static bool has(const an_loop_kernel *p, int phase, bool reduce, an_op op)
{
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase &&
            (reduce ? p->ins[i].kind == AN_INS_REDUCE && (p->ins[i].op == AN_OP_ARGMAX) == (op == AN_OP_ARGMAX)
                    : p->ins[i].scope == AN_SCOPE_COL && p->ins[i].kind != AN_INS_REDUCE))
            return true;
    return false;
}

/* The body of a phase's loop over columns: its instructions, then what they add to the reductions. */
static void column_body(const an_loop_kernel *p, int phase, const char *indent, bool lanes, bool argmax,
                        const an_stage *s, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || in->scope != AN_SCOPE_COL || in->kind == AN_INS_REDUCE) continue;
        if (in->kind == AN_INS_COLSUM)
            an_text_printf(out, "%sd%d[r %% %d %% %d][c] += v%d;\n", indent, i, p->run, AN_RUN_LANES, in->a);
        else if (s && an_is_staged(p, in, s))
            an_text_printf(out, "%sconst %s v%d = b%d[i][l];\n", indent, an_c_computed[in->dtype], i, i);
        else
            an_c_instruction(p, i, indent, out);
    }
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || in->kind != AN_INS_REDUCE) continue;
        if (in->op == AN_OP_ARGMAX) {
            if (argmax) an_c_argmax_update(p, i, "c", indent, out);
        } else if (lanes) {
            an_text_puts(out, indent);
            accumulate(p, i, "[l]", out);
        }
    }
}

/* Whether an atom is part of expression e. */
static bool has_atom(const an_ix_pool *ix, an_ix e, int32_t atom)
{
    if (e < 0) return false;
    for (int i = 0; i < ix->expr[e].n; i++) {
        const int32_t at = ix->expr[e].term[i].atom;
        if (at == atom || (ix->atom[at].kind != AN_ATOM_VAR && has_atom(ix, ix->atom[at].e, atom))) return true;
    }
    return false;
}

/* Whether an instruction's index or guard has the atom: the pool also keeps those of which simpler ones were made. */
static bool is_in_use(const an_loop_kernel *p, int32_t atom)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        const bool indexed = in->kind == AN_INS_LOAD || in->kind == AN_INS_STORE || in->kind == AN_INS_INDEX ||
                             in->kind == AN_INS_RAND || in->kind == AN_INS_COLSUM;
        if (indexed && has_atom(&p->ix, in->ix, atom)) return true;
        const bool guarded = (in->kind == AN_INS_LOAD || in->kind == AN_INS_TEST) && in->guard >= 0;
        for (int b = 0; guarded && b < p->guard[in->guard].n; b++)
            if (has_atom(&p->ix, p->guard[in->guard].bound[b].e, atom)) return true;
    }
    return false;
}

/* How many neighbouring columns have the same quotient and neighbouring remainders by the smallest constant that the
 * column itself is divided by: its common divisor with 64, for tiles of columns begin and end at multiples of 64
 * (device/cpu/cpu.c). 0: too few. */
static int64_t column_period(const an_loop_kernel *p)
{
    int64_t period = 0;
    for (int i = 0; i < p->ix.n_atom; i++) {
        const an_atom *a = &p->ix.atom[i];
        if (a->kind == AN_ATOM_VAR || (period && a->by >= period)) continue;
        const an_ix_expr *e = &p->ix.expr[a->e];
        if (e->n != 1 || e->c != 0 || e->term[0].k != 1) continue;
        const an_atom *var = &p->ix.atom[e->term[0].atom];
        if (var->kind != AN_ATOM_VAR || var->var != AN_VAR_COL || !is_in_use(p, i)) continue;
        period = a->by;
    }
    int64_t common = 64;
    while (period % common != 0) common /= 2;
    return period > 0 && common >= 8 && p->cols % common == 0 ? common : 0;
}

/* Copies `text`, in which `c` is k * period + l: "(c) % 32" becomes l, or what it is of k and l, and "(c) / 32" becomes
 * k. */
static void put_periodic(const char *text, int64_t period, an_text *out)
{
    for (const char *at; (at = strstr(text, "(c) ")) != NULL;) {
        const char sign = at[4];
        char *end;
        const long long by = strtoll(at + 6, &end, 10);
        an_text_putn(out, text, (size_t)(at - text));
        text = end;
        if (by % period != 0 || (sign != '%' && sign != '/'))
            an_text_putn(out, at, (size_t)(end - at));
        else if (by == period)
            an_text_puts(out, sign == '%' ? "(l)" : "(k)");
        else if (sign == '%')
            an_text_printf(out, "((k) %% %lld * %lld + l)", by / (long long)period, (long long)period);
        else
            an_text_printf(out, "((k) / %lld)", by / (long long)period);
    }
    an_text_puts(out, text);
}

/* The loops of a kernel with staged loads: blocks of rows, or of columns `apart` apart; in a block first the loads, then one row
 * or column after the other. k: a period of columns, or of 64 where they are never divided; l: a column of it. */
static void staged_rows(const an_loop_kernel *p, const an_stage *s, int64_t period, an_text *out)
{
    enum { BLOCK = AN_STAGE_BLOCK };
    const bool rows = s->along == AN_ALONG_ROWS;
    const long long wide = (long long)(period ? period : 64), apart = (long long)(rows ? 1 : s->apart / period);
    char place[160], full[80];
    an_text text = {0};
    if (rows) {
        an_text_printf(
            &text,
            "    for (int64_t r0 = t->row0; r0 < t->row1; r0 += %d)\n    for (int64_t k = col0 / %lld; k * "
            "%lld < col1; k++) {\n        const int ni = t->row1 - r0 < %d ? (int)(t->row1 - r0) : %d;\n     "
            "   const int nl = col1 - k * %lld < %lld ? (int)(col1 - k * %lld) : %lld;\n",
            BLOCK, wide, wide, BLOCK, BLOCK, wide, wide, wide, wide);
        snprintf(place, sizeof place, "const int64_t r = r0 + i, c = k * %lld + l; (void)r, (void)c;", wide);
        snprintf(full, sizeof full, "ni == %d && nl == %lld && r0 %% 8 == 0", BLOCK, wide);
    } else {
        an_text_printf(
            &text,
            "    for (int64_t r = t->row0; r < t->row1; r++)\n    for (int64_t k0 = col0 / %lld; k0 < col1 / "
            "%lld; k0 += %lld)\n    for (int64_t k1 = k0; k1 < k0 + %lld && k1 < col1 / %lld; k1++) {\n     "
            "   const int64_t left = (col1 / %lld - k1 + %lld) / %lld;\n        const int ni = left < %d ? "
            "(int)left : %d, nl = %lld;\n",
            wide, wide, BLOCK * apart, apart, wide, wide, apart - 1, apart, BLOCK, BLOCK, wide);
        snprintf(place, sizeof place, "const int64_t k = k1 + i * %lld, c = k * %lld + l; (void)c;", apart, wide);
        snprintf(full, sizeof full, "ni == %d && k0 %% %lld == 0", BLOCK, 8 * apart);
    }
    an_c_fill_blocks(p, s, full, place, "nl", (int)wide, &text);
    an_text_puts(&text, "        for (int i = 0; i < ni; i++) {\n");
    if (rows) an_text_puts(&text, "            const int64_t r = r0 + i;\n            (void)r;\n");
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].scope == AN_SCOPE_ROW) an_c_instruction(p, i, "            ", &text);
    an_text_printf(&text, "            AN_EACH for (int l = 0; l < nl; l++) {\n                %s\n", place);
    column_body(p, 0, "                ", false, false, s, &text);
    an_text_puts(&text, "            }\n        }\n    }\n");
    if (period)
        put_periodic(text.data ? text.data : "", period, out);
    else
        an_text_puts(out, text.data ? text.data : "");
    out->failed |= text.failed;
    an_text_free(&text);
}

enum { MANY_TO_TURN = 32 };

/* A copy that exchanges two axes: the tile is one of [o][i], whatever rows and columns are. */
static void turned(const an_loop_kernel *p, const an_turn *x, an_text *out)
{
    const long long inside = (long long)(x->i * x->t), n = (long long)x->t, far = (long long)x->far_t;
    const long long from_i = x->back ? 1 : n, from_q = x->back ? far : 1, to_i = x->back ? n : 1,
                    to_q = x->back ? 1 : far;
    an_text_puts(out, "    for (int64_t o = t->row0; o < t->row1; o++) {\n");
    an_text_printf(out, "        const float *from = %s + o * %lld;\n        float *to = %s + o * %lld;\n",
                   p->arg[p->ins[0].arg].name, x->back ? (long long)x->far_o : inside, p->arg[p->ins[1].arg].name,
                   x->back ? inside : (long long)x->far_o);
    if (n >= MANY_TO_TURN) {
        an_text_printf(out, "        an_turn_many(from + col0 * %lld, %lld, ", from_i, x->back ? far : n);
        if (x->back)
            an_text_printf(out, "%lld, col1 - col0, 64", n);
        else
            an_text_printf(out, "col1 - col0, %lld, 32", n);
        an_text_printf(out, ", to + col0 * %lld, %lld);\n    }\n", to_i, x->back ? n : far);
        return;
    }
    an_text_printf(
        out,
        "        int64_t i = col0;\n        for (; i + 16 <= col1; i += 16) an_turn16(from + i * %lld, %lld, %lld, "
        "to + i * %lld, %lld, %lld, %lld);\n",
        from_i, from_i, from_q, to_i, to_i, to_q, n);
    an_text_printf(
        out,
        "        for (; i < col1; i++)\n            for (int64_t q = 0; q < %lld; q++) to[q * %lld + i * %lld] = "
        "from[q * %lld + i * %lld];\n    }\n",
        n, to_q, to_i, from_q, from_i);
}

enum { FEW_COLUMNS = 64, LONG_CHAIN = 12 };

/* Whether the columns of a phase are long chains of float32 operations: those of four vectors are worth computing together
 * (AN_EACH_LONG of loops_c.h). */
static bool is_long(const an_loop_kernel *p, int phase)
{
    bool some = false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || in->scope != AN_SCOPE_COL) continue;
        if (in->dtype == AN_F64 || in->dtype == AN_I64 || in->kind == AN_INS_RAND) return false;
        some |= in->kind == AN_INS_ELEM && in->dtype == AN_F32 && an_op_cost((an_op)in->op) >= LONG_CHAIN;
    }
    return some;
}

/* A loop over the tile's columns without a reduction. Trip counts that are known leave compilers straight code, and
 * where an index depends on the column modulo the channels, an inner loop over these reads neighbours instead of
 * gathering. */
static void column_loop(const an_loop_kernel *p, int phase, an_text *out)
{
    const long long period = (long long)column_period(p), cols = (long long)p->cols;
    if (p->shape == AN_ROW && period) {
        an_text body = {0};
        column_body(p, phase, "                ", false, false, NULL, &body);
        an_text_printf(
            out,
            "        for (int64_t k = col0 / %lld; k < col1 / %lld; k++) {\n            AN_EACH for (int l "
            "= 0; l < %lld; l++) {\n                const int64_t c = k * %lld + l;\n                (void)c;\n",
            period, period, period, period);
        put_periodic(body.data ? body.data : "", period, out);
        an_text_puts(out, "            }\n        }\n");
        out->failed |= body.failed;
        an_text_free(&body);
        return;
    }
    if (p->shape == AN_ROW && cols <= FEW_COLUMNS) { /* which are never divided */
        an_text_printf(out, "        AN_EACH for (int64_t c = 0; c < %lld; c++) {\n", cols);
    } else {
        if (cols <= FEW_COLUMNS && cols % 8 == 0) {
            an_text_printf(
                out, "        if (col1 - col0 == %lld) {\n            AN_EACH for (int64_t c = 0; c < %lld; c++) {\n",
                cols, cols);
            column_body(p, phase, "                ", false, false, NULL, out);
            an_text_puts(out, "            }\n            continue;\n        }\n");
        }
        if (cols > FEW_COLUMNS && is_long(p, phase)) {
            an_text_puts(out, "        {\n            AN_LONG_BEGIN\n            AN_EACH_LONG for (int64_t c = col0; c "
                              "< col1; c++) {\n"
                              "                AN_LONG_COLUMN\n");
            column_body(p, phase, "                ", false, false, NULL, out);
            an_text_puts(out, "            }\n            AN_LONG_END\n        }\n");
            return;
        }
        an_text_puts(out, "        AN_EACH for (int64_t c = col0; c < col1; c++) {\n");
    }
    column_body(p, phase, "            ", false, false, NULL, out);
    an_text_puts(out, "        }\n");
}

/* The columns [0, full) of a row, a multiple of 32, each added to its lane. */
static void lanes_of_row(const an_loop_kernel *p, int phase, int64_t full, an_text *out)
{
    an_text_printf(
        out,
        "        for (int64_t c0 = 0; c0 < %lld; c0 += 32) {\n            AN_LANES for (int l = 0; l < 32; l++) {\n"
        "                const int64_t c = c0 + l;\n",
        (long long)full);
    column_body(p, phase, "                ", true, false, NULL, out);
    an_text_puts(out, "            }\n        }\n");
}

enum { GUARDS = 8 };

/* The guards of `p` without the bounds that ascend or descend along the columns of this phase, in `open`; those bounds as one condition in
 * `test`. False: there are none, or more guards than GUARDS. */
static bool open_guards(const an_loop_kernel *p, int phase, an_guard open[GUARDS], an_text *test)
{
    if (p->n_guards == 0 || p->n_guards > GUARDS) return false;
    memcpy(open, p->guard, sizeof *open * (size_t)p->n_guards);
    bool used[GUARDS] = {false}, any = false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        const bool guarded = in->kind == AN_INS_LOAD || in->kind == AN_INS_TEST;
        if (guarded && in->phase == phase && in->scope == AN_SCOPE_COL && in->guard >= 0) used[in->guard] = true;
    }
    for (int g = 0; g < p->n_guards; g++)
        for (int i = 0; used[g] && i < p->guard[g].n; i++) {
            const an_bound *b = &p->guard[g].bound[i];
            int64_t stride;
            if (!an_ix_uses(&p->ix, b->e, AN_VAR_COL) || !an_ix_stride(&p->ix, b->e, AN_VAR_COL, &stride)) continue;
            an_text_puts(test, any ? " & (" : "(");
            an_ix_text(&p->ix, b->e, vars, test);
            an_text_printf(test, " >= %lld & ", (long long)b->lo);
            an_ix_text(&p->ix, b->e, vars, test);
            an_text_printf(test, " < %lld)", (long long)b->hi);
            open[g].bound[i].lo = INT64_MIN;
            open[g].bound[i].hi = INT64_MAX;
            any = true;
        }
    return any;
}

/* The same. A load under a guard that changes from column to column is a load under a mask, or none of a vector: where the first and the
 * last column of the row are inside, and so all, the loop goes without. */
static void guarded_lanes_of_row(const an_loop_kernel *p, int phase, int64_t full, an_text *out)
{
    an_guard open[GUARDS];
    an_text test = {0};
    const bool some = open_guards(p, phase, open, &test);
    out->failed |= test.failed;
    if (!some || out->failed) {
        an_text_free(&test);
        lanes_of_row(p, phase, full, out);
        return;
    }
    an_loop_kernel bare = *p;
    bare.guard = open;
    an_text_printf(
        out,
        "        int inside%d = 1;\n        for (int64_t c = 0; c < %lld; c += %lld) inside%d &= %s;\n        if "
        "(inside%d)\n",
        phase, (long long)full, (long long)full - 1, phase, test.data, phase);
    an_text_free(&test);
    lanes_of_row(&bare, phase, full, out);
    an_text_puts(out, "        else\n");
    lanes_of_row(p, phase, full, out);
}

/* A phase of a row: values of the row, the loop over columns in one of three forms, the results of its reductions.
 *
 *     sums, maxima      columns in blocks of 32, one a lane: lane l sums columns l, l + 32, ...; then the lanes are folded
 *                       16, 8, 4, 2, 1, which is the tree of base/exact.h
 *     an argmax         one column after the other, because the first of equals counts
 *     neither           all columns of the block [col0, col1), without lanes */
static void row_phase(const an_loop_kernel *p, int phase, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].scope == AN_SCOPE_ROW && p->ins[i].kind != AN_INS_REDUCE)
            an_c_instruction(p, i, "        ", out);
    bool tree = has(p, phase, true, AN_OP_SUM), best = has(p, phase, true, AN_OP_ARGMAX);
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || in->kind != AN_INS_REDUCE) continue;
        if (in->op == AN_OP_ARGMAX)
            an_text_printf(out, "        %s b%d = 0;\n        int32_t q%d = -1;\n", an_c_computed[p->ins[in->a].dtype],
                           i, i);
        else
            an_text_printf(out, "        %s s%d[32];\n        for (int l = 0; l < 32; l++) s%d[l] = %s;\n",
                           an_c_computed[in->dtype], i, i, an_c_first_value(in));
    }
    long long cols = (long long)p->cols, full = cols / 32 * 32;
    if (tree && !best) {
        if (full) guarded_lanes_of_row(p, phase, full, out);
        if (cols % 32) {
            an_text_printf(out, "        for (int l = 0; l < %lld; l++) {\n            const int64_t c = %lld + l;\n",
                           cols % 32, full);
            column_body(p, phase, "            ", true, false, NULL, out);
            an_text_puts(out, "        }\n");
        }
    } else if (tree || best) { /* an argmax visits columns in order; sums beside it keep their lanes */
        an_text_printf(out,
                       "        for (int64_t c = 0; c < %lld; c++) {\n            const int l = (int)(c & 31);\n       "
                       "     (void)l;\n",
                       cols);
        column_body(p, phase, "            ", true, true, NULL, out);
        an_text_puts(out, "        }\n");
    } else if (has(p, phase, false, AN_OP_SUM)) {
        column_loop(p, phase, out);
    }
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || in->kind != AN_INS_REDUCE) continue;
        if (in->op == AN_OP_ARGMAX) {
            an_text_printf(out, "        const int32_t v%d = q%d;\n", i, i);
            continue;
        }
        char e[32];
        const bool sum = in->op == AN_OP_SUM && !strcmp(an_c_computed[in->dtype], "float");
        if (!sum) an_text_printf(out, "        AN_FOLD(s%d, 32, %s);\n", i, in->op == AN_OP_MAX ? "an_max" : "AN_PLUS");
        an_text_printf(out, "        const %s v%d = ", an_c_computed[in->dtype], i);
        snprintf(e, sizeof e, sum ? "an_sum32(s%d)" : "s%d[0]", i);
        an_c_rounded(in->dtype, e, out);
        an_text_puts(out, ";\n");
    }
}

/* A column sum over runs of rows: its lanes are cleared at the first row of a run, ... */
static void begin_run(const an_loop_kernel *p, an_text *out)
{
    an_text_printf(out, "        if (r %% %d == 0) {\n", p->run);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_COLSUM)
            an_text_printf(out,
                           "            for (int l = 0; l < %d; l++)\n                for (int64_t c = 0; c < %lld; "
                           "c++) d%d[l][c] = 0;\n",
                           AN_RUN_LANES, (long long)p->cols, i);
    an_text_puts(out, "        }\n");
}

/* ... and folded and stored after the last one. */
static void end_run(const an_loop_kernel *p, an_text *out)
{
    an_text_printf(out, "        if ((r + 1) %% %d == 0) {\n", p->run);
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_COLSUM) continue;
        an_text_printf(out, "            AN_EACH for (int64_t c = 0; c < %lld; c++) {\n", (long long)p->cols);
        for (int s = AN_RUN_LANES / 2; s; s /= 2)
            for (int l = 0; l < s; l++)
                an_text_printf(out, "                d%d[%d][c] += d%d[%d][c];\n", i, l, i, l + s);
        an_text_printf(out, "                %s[", p->arg[p->ins[i].arg].name);
        an_ix_text(&p->ix, p->ins[i].ix, vars, out);
        an_text_printf(out, "] = d%d[0][c];\n            }\n", i);
    }
    an_text_puts(out, "        }\n");
}

enum { ROWS_AHEAD = 2, TILE_COLUMNS = 128 /* at most: STRIP of kernels/cpu/gemm_plan.h */ };

/* Asks for what an epilogue reads and writes of a row of its tile two rows later: the tile's rows are pieces of longer rows, whose
 * beginnings no hardware foresees. */
static void ask_for_rows(const an_loop_kernel *p, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        int64_t row, col;
        if ((in->kind != AN_INS_LOAD && in->kind != AN_INS_STORE) || in->guard >= 0) continue;
        if (in->kind == AN_INS_LOAD && in->a >= 0) continue;
        if (!an_ix_stride(&p->ix, in->ix, AN_VAR_ROW, &row) || !an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &col))
            continue;
        if (col != 1 || row <= TILE_COLUMNS) continue;
        an_text_printf(out, "        if (r + %d < t->row1) an_ask_row(%s, (r + %d) * %lld", ROWS_AHEAD,
                       p->arg[in->arg].name, ROWS_AHEAD, (long long)row);
        an_text_printf(out, " + col0 + %lld, col1 - col0, sizeof *%s);\n", (long long)p->ix.expr[in->ix].c,
                       p->arg[in->arg].name);
    }
}

/* The function of a kernel: pointers from arg[], the rows of the tile, and in each the body of its shape. */
void an_render_c(const an_loop_kernel *p, const char *name, bool notes, an_text *out)
{
    if (notes)
        an_text_printf(out, "/* %s: %lld x %lld, %llu flops, %llu bytes */\n", p->name, (long long)p->rows,
                       (long long)p->cols, (unsigned long long)p->flops, (unsigned long long)p->bytes);
    an_text_printf(out, "void %s(const an_tile *t, void *const *arg)\n{\n", name);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, notes ? "    %s%s *%s = arg[%d]; /* %s */\n" : "    %s%s *%s = arg[%d];\n",
                       p->arg[i].written ? "" : "const ",
                       strcmp(p->arg[i].name, "rng") ? storage[p->arg[i].dtype] : "uint32_t", p->arg[i].name, i,
                       p->arg[i].note);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_COLSUM)
            an_text_printf(out, "    float d%d[%d][%lld];\n", i, AN_RUN_LANES, (long long)p->cols);
    if (an_takes_whole_rows(p)) /* known to the compiler, a row has no remainder to be compiled for */
        an_text_printf(out, "    const int64_t col0 = 0, col1 = %lld;\n", (long long)p->cols);
    else
        an_text_puts(out,
                     "    const int64_t col0 = t->col0, col1 = t->col1; /* stores of bytes may alias the tile */\n");
    an_text_puts(out, "    (void)col0, (void)col1;\n");
    if (p->shape == AN_COL) {
        an_c_columns(p, out);
        an_text_puts(out, "}\n");
        return;
    }
    const an_turn turn = an_turn_of(p);
    if (turn.t) {
        turned(p, &turn, out);
        an_text_puts(out, "}\n");
        return;
    }
    const int64_t period = column_period(p);
    const an_stage s = an_stage_of_rows(p, period);
    if (s.along) {
        staged_rows(p, &s, period, out);
        an_text_puts(out, "}\n");
        return;
    }
    an_text_puts(out, "    for (int64_t r = t->row0; r < t->row1; r++) {\n");
    if (p->shape == AN_TILE) {
        an_text_puts(out, "        const float *acc = t->acc + (r - t->row0) * t->ld;\n        (void)acc;\n");
        ask_for_rows(p, out);
        column_loop(p, 0, out);
    } else {
        if (p->run) begin_run(p, out);
        for (int phase = 0; phase < p->n_phases; phase++) row_phase(p, phase, out);
        if (p->run) end_run(p, out);
    }
    an_text_puts(out, "    }\n}\n");
}
