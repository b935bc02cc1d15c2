/* render_gpu_instr.c: the parts of render_gpu.c's texts: index expressions, instructions, vector accesses, lanes of
 * reductions.
 */
#include "codegen/render_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const an_gpu_storage[AN_N_DTYPES] = {"float", "an_u16", "an_u16", "double",
                                                 "int",   "an_i64", "an_u8",  "an_u8"};
const char *const an_gpu_computed[AN_N_DTYPES] = {"float", "float", "float", "double", "int", "an_i64", "int", "int"};
static const char *const narrow[AN_N_VARS] = {"r", "c", "q"};
static const char *const wide[AN_N_VARS] = {"(an_i64)r", "(an_i64)c", "(an_i64)q"};

/* ---------------------------------------------------------------------------------------------- indices */

/* Whether every intermediate value of `a` fits an int: 32-bit indices take half the registers and instructions of 64-bit
 * ones, which are used only where an index needs them. `reach`: the most that a gather adds to `a`, the last row's offset. */
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

void an_gpu_index(const an_loop_kernel *p, an_ix a, int64_t reach, an_text *out)
{
    an_ix_text(&p->ix, a, fits(&p->ix, a, reach) ? narrow : wide, out);
}

/* As in render_c.c, but joined by &&: a GPU has no vector loop that a branch would break. */
static void guard(const an_loop_kernel *p, int32_t g, an_text *out)
{
    bool any = false;
    for (int i = 0; i < p->guard[g].n; i++) {
        const an_bound *b = &p->guard[g].bound[i];
        const an_ix_expr *e = &p->ix.expr[b->e];
        for (int side = 0; side < 2; side++) {
            if (side ? e->hi < b->hi : e->lo >= b->lo) continue; /* always true */
            an_text_puts(out, any ? " && (" : "(");
            an_gpu_index(p, b->e, 0, out);
            an_text_printf(out, side ? ") < %lld" : ") >= %lld", (long long)(side ? b->hi : b->lo));
            any = true;
        }
    }
    if (!any) an_text_puts(out, "true");
}

/* Whether the kernel's text names loop variable `var`: compilers are told of one that it does not. */
bool an_gpu_uses(const an_loop_kernel *p, int32_t var)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->ix >= 0 && an_ix_uses(&p->ix, in->ix, var)) return true;
        if (in->kind == AN_INS_STORE && in->scope == AN_SCOPE_ROW && var == AN_VAR_COL) return true;
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

void an_gpu_rounded(int dtype, const char *e, an_text *out)
{
    static const char *const words[AN_N_DTYPES] = {
        [AN_BF16] = "an_to_bf16", [AN_F16] = "an_to_f16", [AN_U8] = "(an_u8)"};
    if (words[dtype])
        an_text_printf(out, "%s(%s)", words[dtype], e);
    else
        an_text_puts(out, e);
}

/* ---- vector accesses (CUDA): a thread has several neighbouring columns of one row, from c0 on, and loads and stores
 * them at once where they are contiguous in memory. Its other instructions are those of one column, in a loop over k:
 *
 *     float w0[8];  an_wide_load(w0, x0 + r * 768 + c0);
 *     for (k < 8) { const float v0 = w0[k]; ... w5[k] = v4; }
 *     an_wide_store(y5 + r * 768 + c0, w5); */

/* Whether all `wide` columns of a load are there, or none of them, and a kernel of elements or of columns reads it. */
static bool is_guarded_by_row(const an_loop_kernel *p, const an_ins *in)
{
    const an_guard *g = &p->guard[in->guard];
    if (in->kind != AN_INS_LOAD || p->shape == AN_TILE || an_gpu_reduces_rows(p) || !p->arg[in->arg].numel)
        return false;
    for (int i = 0; i < g->n; i++)
        if (an_ix_uses(&p->ix, g->bound[i].e, AN_VAR_COL)) return false;
    return true;
}

/* Contiguous along the columns from each c0, a multiple of `wide`, on, and aligned there. Neither a gather nor behind a guard
 * that looks at the column. */
bool an_gpu_is_vector_access(const an_loop_kernel *p, const an_ins *in, int wide)
{
    if (!wide || in->ix < 0 || in->scope != AN_SCOPE_COL ||
        (in->kind == AN_INS_LOAD ? in->a >= 0 : in->kind != AN_INS_STORE))
        return false;
    return (in->guard < 0 || is_guarded_by_row(p, in)) && an_ix_is_run(&p->ix, in->ix, AN_VAR_COL, wide);
}

bool an_gpu_all_vector_accesses(const an_loop_kernel *p, int wide)
{
    int n = 0;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if ((in->kind != AN_INS_LOAD && in->kind != AN_INS_STORE) || in->scope != AN_SCOPE_COL) continue;
        if (!an_gpu_is_vector_access(p, in, wide)) return false;
        n++;
    }
    return n > 0;
}

bool an_gpu_wide_columns_pay(const an_loop_kernel *p, int wide)
{
    bool pays = false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if ((in->kind != AN_INS_LOAD && in->kind != AN_INS_STORE) || in->scope != AN_SCOPE_COL) continue;
        const bool vector = an_gpu_is_vector_access(p, in, wide);
        if (!vector && (in->kind == AN_INS_STORE || in->a >= 0 || an_ix_uses(&p->ix, in->ix, AN_VAR_ROW))) return false;
        pays |= vector && in->phase == 0;
    }
    return pays;
}

void an_gpu_edge(const an_loop_kernel *p, an_gpu_form f, an_text *out)
{
    if (f.ragged && f.blocks && !f.shared) /* the loop is unrolled: a constant in all blocks but the last */
        an_text_printf(out, ", b < %d ? %d : %lld - c0", f.blocks - 1, f.wide, (long long)p->cols);
    else if (f.ragged)
        an_text_printf(out, ", %lld - c0", (long long)p->cols);
}

void an_gpu_skip_beyond_edge(const an_loop_kernel *p, an_gpu_form f, const char *indent, an_text *out)
{
    if (f.ragged && f.blocks && !f.shared)
        an_text_printf(out, "%sif (b == %d && c >= %lld) continue;\n", indent, f.blocks - 1, (long long)p->cols);
    else if (f.ragged)
        an_text_printf(out, "%sif (c >= %lld) continue;\n", indent, (long long)p->cols);
}

/* The instruction that already has the columns of load i in registers: an earlier load of the same, or the store to that
 * place; i itself when there is none. */
static int source_of(const an_loop_kernel *p, int i, int wide)
{
    const an_ins *in = &p->ins[i];
    int source = i;
    if (in->kind != AN_INS_LOAD || !an_gpu_is_vector_access(p, in, wide) || !an_ix_uses(&p->ix, in->ix, AN_VAR_ROW))
        return i;
    for (int j = 0; j < i; j++) {
        const an_ins *e = &p->ins[j];
        if ((e->kind != AN_INS_LOAD && e->kind != AN_INS_STORE) || e->arg != in->arg) continue;
        bool same = e->ix == in->ix && e->guard == in->guard && an_gpu_is_vector_access(p, e, wide);
        if (e->kind == AN_INS_STORE && !same) return i;
        if (same && (e->kind == AN_INS_STORE || source == i)) source = j;
    }
    return source;
}

/* Whether the columns that i loads or stores stay where later instructions of the thread find them: in registers
 * (w5[b][k] of block b), or in shared memory for the phases that follow. */
bool an_gpu_is_kept(const an_loop_kernel *p, int i, an_gpu_form f)
{
    const an_ins *in = &p->ins[i];
    if (!f.blocks || !an_gpu_is_vector_access(p, in, f.wide)) return false;
    if (in->kind == AN_INS_LOAD && !f.shared)
        return source_of(p, i, f.wide) == i && an_ix_uses(&p->ix, in->ix, AN_VAR_ROW);
    for (int j = i + 1; j < p->n_ins; j++)
        if (source_of(p, j, f.wide) == i && p->ins[j].phase >= in->phase + f.shared) return true;
    return false;
}

/* The first draw of the random number that i is. */
static int first_draw(const an_loop_kernel *p, int i)
{
    const an_ins *in = &p->ins[i];
    for (int j = 0; j < i; j++) {
        const an_ins *e = &p->ins[j];
        if (e->kind == AN_INS_RAND && e->scope == in->scope && e->arg == in->arg && e->ix == in->ix &&
            e->imm_i == in->imm_i && e->scale == in->scale)
            return j;
    }
    return i;
}

bool an_gpu_is_drawn_again(const an_loop_kernel *p, int i)
{
    const an_ins *in = &p->ins[i];
    if (in->kind != AN_INS_RAND || in->scope != AN_SCOPE_COL || first_draw(p, i) != i) return false;
    for (int j = i + 1; j < p->n_ins; j++)
        if (p->ins[j].kind == AN_INS_RAND && p->ins[j].phase > in->phase && first_draw(p, j) == i) return true;
    return false;
}

/* A random number, drawn, or kept from the phase that drew it: in u5[b][k], as rows are. */
static void random_number(const an_loop_kernel *p, int i, an_gpu_form f, an_text *out)
{
    const an_ins *in = &p->ins[i];
    const int first = first_draw(p, i);
    const bool kept = f.drawn && an_gpu_is_drawn_again(p, first);
    if (kept && p->ins[first].phase < in->phase) {
        an_text_printf(out, "u%d[b][k]", first);
        return;
    }
    if (kept && first == i) an_text_printf(out, "u%d[b][k] = ", i);
    an_text_printf(out, "an_uniform_at(%s, %uu, (an_u64)(", p->arg[in->arg].name, (unsigned)in->imm_i);
    an_gpu_index(p, in->ix, 0, out);
    an_text_printf(out, "), %lldu)", (long long)in->scale);
}

/* Whether i reads a kept row of bf16, two columns a word. */
static bool is_paired(const an_loop_kernel *p, int i, an_gpu_form f)
{
    return f.shared && p->ins[i].kind == AN_INS_LOAD && p->arg[p->ins[i].arg].dtype == AN_BF16 &&
           an_gpu_is_kept(p, i, f);
}

/* The register of column k of what instruction i loads or stores. */
static void moved(const an_loop_kernel *p, int i, an_gpu_form f, an_text *out)
{
    int source = f.blocks ? source_of(p, i, f.wide) : i;
    an_text_printf(out, an_gpu_is_kept(p, source, f) && !f.shared ? "w%d[b][k]" : "w%d[k]", source);
}

/* Three forms: a column of a word of two bf16, a register that a vector load has filled, memory. */
static void load(const an_loop_kernel *p, int i, an_gpu_form f, an_text *out)
{
    static const char *const widen[AN_N_DTYPES] = {[AN_BF16] = "an_bf16_to_f32(", [AN_F16] = "an_f16_to_f32("};
    const an_ins *in = &p->ins[i];
    const an_loop_arg *arg = &p->arg[in->arg];
    if (an_gpu_is_vector_access(p, in, f.wide) && is_paired(p, source_of(p, i, f.wide), f)) {
        an_text_printf(out, "an_bf16_of(w%d, k)", source_of(p, i, f.wide));
        return;
    }
    if (an_gpu_is_vector_access(p, in, f.wide)) {
        an_text_puts(out, widen[arg->dtype] ? widen[arg->dtype] : "");
        moved(p, i, f, out);
        an_text_puts(out, widen[arg->dtype] ? ")" : "");
        return;
    }
    int64_t reach = in->a >= 0 ? (in->clamp - 1) * in->scale : 0;
    if (arg->numel == 0) { /* an empty row: the load is never executed */
        an_text_puts(out, "0");
        return;
    }
    if (in->guard >= 0) {
        guard(p, in->guard, out);
        an_text_puts(out, " ? ");
    }
    an_text_printf(out, "%s%s[", widen[arg->dtype] ? widen[arg->dtype] : "", arg->name);
    an_gpu_index(p, in->ix, reach, out);
    if (in->a >= 0)
        an_text_printf(out, in->scale == 1 ? " + %san_clamp(v%d, %lld)" : " + %san_clamp(v%d, %lld) * %lld",
                       fits(&p->ix, in->ix, reach) ? "" : "(an_i64)", in->a, (long long)in->clamp,
                       (long long)in->scale);
    an_text_puts(out, widen[arg->dtype] ? "])" : "]");
    if (in->guard >= 0) an_text_puts(out, " : 0");
}

static void cast(const an_loop_kernel *p, const an_ins *in, an_text *out)
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
    default: an_gpu_rounded(in->dtype, e, out); break;
    }
}

/* The value x of 1 + erf(x) or erf(x) + 1; -1 when `in` is no such sum. */
static int32_t one_plus_erf(const an_loop_kernel *p, const an_ins *in)
{
    for (int swap = 0; swap < 2 && in->kind == AN_INS_ELEM && in->op == AN_OP_ADD; swap++) {
        const an_ins *one = &p->ins[swap ? in->b : in->a], *erf = &p->ins[swap ? in->a : in->b];
        if (one->kind == AN_INS_CONST && one->imm == 1 && erf->kind == AN_INS_ELEM && erf->op == AN_OP_ERF)
            return erf->a;
    }
    return -1;
}

/* The value x of k * x or x * k with a constant k; -1 when `in` is no such product. */
static int32_t times_constant(const an_loop_kernel *p, const an_ins *in, double *k)
{
    for (int swap = 0; swap < 2 && in->kind == AN_INS_ELEM && in->op == AN_OP_MUL; swap++) {
        const an_ins *constant_of = &p->ins[swap ? in->b : in->a];
        *k = constant_of->imm;
        if (constant_of->kind == AN_INS_CONST && constant_of->dtype == AN_F32) return swap ? in->a : in->b;
    }
    return -1;
}

/* The parts of GELU and SiLU and of their gradients in 16-bit approximations: (1 + erf(x / sqrt 2)) / 2, c exp(kx),
 * 1 + erf(x), exp(x), sigmoid(x). False: `in` is none of these. */
static bool approximated(const an_loop_kernel *p, const an_ins *in, const char *column, an_text *out)
{
    const double log2_e = 1.4426950408889634;
    double c = 0, k = 0;
    const int32_t of = times_constant(p, in, &c), x = one_plus_erf(p, of >= 0 ? &p->ins[of] : in);
    const int32_t scaled = x >= 0 ? times_constant(p, &p->ins[x], &k) : -1;
    if (scaled >= 0 && of >= 0 && c == 0.5 && fabs(k - sqrt(0.5)) < 1e-7) {
        an_text_printf(out, "an_normal_cdf_16bit(v%d%s)", scaled, column);
    } else if (of >= 0 && c > 0 && p->ins[of].kind == AN_INS_ELEM && p->ins[of].op == AN_OP_EXP) {
        const int32_t of_exp = times_constant(p, &p->ins[p->ins[of].a], &k);
        if (of_exp < 0) return false;
        an_text_printf(out, "an_scaled_exp_16bit(v%d%s, %.9gf, %.9gf)", of_exp, column, k * log2_e, log2(c));
    } else if (in->op == AN_OP_SIGMOID) {
        an_text_printf(out, "an_sigmoid_16bit(v%d%s)", in->a, column);
    } else if (of < 0 && (x >= 0 || in->op == AN_OP_EXP)) {
        an_text_printf(out, x >= 0 ? "an_one_plus_erf_16bit(v%d%s)" : "an_exp_16bit(v%d%s)", x >= 0 ? x : in->a,
                       column);
    } else {
        return false;
    }
    return true;
}

static void elementwise(const an_loop_kernel *p, const an_ins *in, an_gpu_form f, an_text *out)
{
    const char *column = f.column ? f.column : "";
    if (f.approx_16bit && in->dtype == AN_F32 && approximated(p, in, column, out)) return;
    /* Integer sums and products wrap around; as signed integers that would be undefined. */
    bool wraps = !an_dtype_is_float((an_dtype)in->dtype) &&
                 (in->op == AN_OP_ADD || in->op == AN_OP_SUB || in->op == AN_OP_MUL || in->op == AN_OP_NEG),
         is_long = in->dtype == AN_I64;
    const char *as = !wraps ? "" : is_long ? "(an_u64)" : "(an_u32)";
    char a[32], b[32], c[32];
    snprintf(a, sizeof a, "%sv%d%s", as, in->a, column);
    snprintf(b, sizeof b, "%sv%d%s", as, in->b, column);
    snprintf(c, sizeof c, "%sv%d%s", as, in->c, column);
    an_text e = {0};
    an_text_puts(&e, !wraps ? "" : is_long ? "(an_i64)(" : "(int)(");
    an_render_expression(an_ops[in->op].kernel, a, b, c, &e);
    an_text_puts(&e, wraps ? ")" : "");
    an_gpu_rounded(in->dtype, e.data ? e.data : "", out);
    out->failed |= e.failed;
    an_text_free(&e);
}

void an_gpu_value(const an_loop_kernel *p, int i, an_gpu_form f, an_text *out)
{
    if (p->ins[i].kind == AN_INS_CONST)
        constant(&p->ins[i], out);
    else
        elementwise(p, &p->ins[i], f, out);
}

/* Into a register that a vector store writes out, or into memory, rounded to the array's dtype. */
static void store(const an_loop_kernel *p, int i, an_gpu_form f, an_text *out)
{
    const an_ins *in = &p->ins[i];
    const an_loop_arg *arg = &p->arg[in->arg];
    if (an_gpu_is_vector_access(p, in, f.wide)) {
        moved(p, i, f, out);
    } else {
        an_text_printf(out, "%s[", arg->name);
        an_gpu_index(p, in->ix, 0, out);
        an_text_puts(out, "]");
    }
    if (arg->dtype == AN_BF16 && p->ins[in->a].dtype == AN_BF16) /* the value is rounded already */
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

/* `once`: in front of a row's stores, the condition that picks one thread of those that share a row. */
void an_gpu_instruction(const an_loop_kernel *p, int i, const char *indent, const char *once, an_gpu_form f,
                        an_text *out)
{
    const an_ins *in = &p->ins[i];
    an_text_puts(out, indent);
    if (in->kind == AN_INS_STORE) {
        if (in->scope == AN_SCOPE_ROW) an_text_puts(out, once);
        store(p, i, f, out);
        return;
    }
    if (in->kind == AN_INS_COLSUM) { /* columns of a lane are stored 32 apart: no bank conflicts */
        const char *at = f.wide ? "c0 - 3 * l + 32 * k" : "c";
        an_text_printf(out, "m%d[%s] = an_plus(m%d[%s], v%d);\n", i, at, i, at, in->a);
        return;
    }
    an_text_printf(out, "const %s v%d = ", an_gpu_computed[in->dtype], i);
    switch (in->kind) {
    case AN_INS_CONST: constant(in, out); break;
    case AN_INS_INDEX:
        an_text_puts(out, "(int)(");
        an_gpu_index(p, in->ix, 0, out);
        an_text_puts(out, ")");
        break;
    case AN_INS_TEST: guard(p, in->guard, out); break;
    case AN_INS_LOAD: load(p, i, f, out); break;
    case AN_INS_TILE: an_gpu_rounded(in->dtype, "acc", out); break;
    case AN_INS_RAND: random_number(p, i, f, out); break;
    case AN_INS_ELEM: elementwise(p, in, f, out); break;
    case AN_INS_CAST: cast(p, in, out); break;
    default: break;
    }
    an_text_puts(out, ";\n");
}

/* ---------------------------------------------------------------------------------------------- reductions */

const char *an_gpu_first_value(const an_ins *in)
{
    bool real = an_dtype_is_float((an_dtype)in->dtype);
    if (in->op != AN_OP_MAX) return real ? "0.0f" : "0";
    if (real) return "-AN_INF";
    return in->dtype == AN_I32 ? "AN_INT_MIN" : in->dtype == AN_I64 ? "AN_LONG_MIN" : "0";
}

/* "float s5[4] = {0.0f, 0.0f, 0.0f, 0.0f};": the part of reduction i that this thread sums. */
void an_gpu_declare_lanes(const an_loop_kernel *p, int i, int lanes, an_text *out)
{
    const an_ins *in = &p->ins[i];
    if (in->op == AN_OP_ARGMAX) {
        an_text_printf(out, "    %s b%d = 0;\n    int q%d = -1;\n", an_gpu_computed[p->ins[in->a].dtype], i, i);
    } else if (lanes == 1) {
        an_text_printf(out, "    %s s%d = %s;\n", an_gpu_computed[in->dtype], i, an_gpu_first_value(in));
    } else {
        an_text_printf(out, "    %s s%d[%d] = {", an_gpu_computed[in->dtype], i, lanes);
        for (int l = 0; l < lanes; l++) an_text_printf(out, l ? ", %s" : "%s", an_gpu_first_value(in));
        an_text_puts(out, "};\n");
    }
}

void an_gpu_accumulate(const an_loop_kernel *p, int i, const char *lane, const char *place, const char *indent,
                       an_text *out)
{
    const an_ins *in = &p->ins[i];
    if (in->op == AN_OP_ARGMAX) /* NaN counts as the largest */
        an_text_printf(out, "%sif (q%d < 0 || v%d > b%d || (an_is_nan(v%d) && !an_is_nan(b%d))) b%d = v%d, q%d = %s;\n",
                       indent, i, in->a, i, in->a, i, i, in->a, i, place);
    else
        an_text_printf(out, "%ss%d%s = %s(s%d%s, v%d);\n", indent, i, lane, in->op == AN_OP_MAX ? "an_max" : "an_plus",
                       i, lane, in->a);
}

void an_gpu_address(const an_loop_kernel *p, const an_ins *in, an_text *out)
{
    static const char *const narrow_c0[AN_N_VARS] = {"r", "c0", "q"};
    static const char *const wide_c0[AN_N_VARS] = {"(an_i64)r", "(an_i64)c0", "(an_i64)q"};
    an_text_printf(out, "%s + ", p->arg[in->arg].name);
    an_ix_text(&p->ix, in->ix, fits(&p->ix, in->ix, 0) ? narrow_c0 : wide_c0, out);
}

void an_gpu_vector_access(const an_loop_kernel *p, int i, an_gpu_form f, const char *block, const char *indent,
                          an_text *out)
{
    const an_ins *in = &p->ins[i];
    const bool stores = in->kind == AN_INS_STORE;
    an_text_puts(out, indent);
    if (!stores && in->guard >= 0) {
        an_text_puts(out, "if (");
        guard(p, in->guard, out);
        an_text_puts(out, ") ");
    }
    if (stores)
        an_text_puts(out, "an_wide_store(");
    else
        an_text_printf(out, "an_wide_load(w%d%s, ", i, block);
    an_gpu_address(p, in, out);
    if (stores) an_text_printf(out, ", w%d%s", i, block);
    an_gpu_edge(p, f, out);
    an_text_puts(out, ");\n");
}

/* The same for rows kept in shared memory: what a phase needs of an earlier one is loaded by its first reader. */
static void shared_moves(const an_loop_kernel *p, int phase, an_gpu_form f, bool stores, const char *indent,
                         an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || !an_gpu_is_vector_access(p, in, f.wide)) continue;
        const int source = source_of(p, i, f.wide);
        bool first = source == i || p->ins[source].phase < phase;
        for (int j = 0; j < i && source != i; j++)
            first &= p->ins[j].phase != phase || source_of(p, j, f.wide) != source;
        const bool is_store = in->kind == AN_INS_STORE, lasts = an_gpu_is_kept(p, source, f);
        const bool pairs = is_paired(p, source, f);
        if (!stores && first)
            an_text_printf(out, "%s%s w%d[%d];\n", indent, pairs ? "an_u32" : an_gpu_storage[p->arg[in->arg].dtype],
                           source, f.wide >> pairs);
        if (stores != is_store || !first) continue;
        if (is_store || !lasts) an_gpu_vector_access(p, i, f, "", indent, out);
        if (lasts)
            an_text_printf(out, "%san_shared_row_%s(w%d, row%d + at);\n", indent, is_store ? "store" : "load", source,
                           source);
    }
}

void an_gpu_vector_accesses(const an_loop_kernel *p, int phase, an_gpu_form f, bool stores, const char *indent,
                            an_text *out)
{
    if (f.shared) {
        shared_moves(p, phase, f, stores, indent, out);
        return;
    }
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase || !an_gpu_is_vector_access(p, in, f.wide)) continue;
        const bool is_store = in->kind == AN_INS_STORE, kept = an_gpu_is_kept(p, i, f);
        const bool there = kept || (f.blocks && source_of(p, i, f.wide) != i); /* declared and loaded earlier */
        if (!stores && !there)
            an_text_printf(out, "%s%s w%d[%d]%s;\n", indent, an_gpu_storage[p->arg[in->arg].dtype], i, f.wide,
                           is_store || in->guard < 0 ? "" : " = {0}"); /* zeros where the guard is false */
        if (stores == is_store && (stores || !there)) an_gpu_vector_access(p, i, f, kept ? "[b]" : "", indent, out);
    }
}
