/* loop_kernel.c: printing, checking and freeing of loop kernels. */
#include "ir/loop_kernel.h"

#include <stdlib.h>
#include <string.h>

void an_loop_kernel_free(an_loop_kernel *p)
{
    if (p) an_ix_pool_free(&p->ix);
}

bool an_takes_whole_rows(const an_loop_kernel *p)
{
    bool whole = p->shape == AN_ROW && (p->n_phases > 1 || p->run);
    for (int i = 0; p->shape == AN_ROW && i < p->n_ins; i++) whole |= p->ins[i].kind == AN_INS_REDUCE;
    return whole;
}

int an_op_cost(an_op op)
{
    switch (op) {
    case AN_OP_EXP:
    case AN_OP_LOG:
    case AN_OP_SIGMOID: return 12;
    case AN_OP_EXPM1:
    case AN_OP_LOG1P:
    case AN_OP_SIN:
    case AN_OP_COS:
    case AN_OP_TANH:
    case AN_OP_ERF: return 16;
    case AN_OP_ATAN:
    case AN_OP_ASIN:
    case AN_OP_ACOS:
    case AN_OP_ATAN2:
    case AN_OP_FMOD:
    case AN_OP_POW: return 30;
    case AN_OP_SQRT:
    case AN_OP_DIV:
    case AN_OP_RECIP: return 4;
    case AN_OP_RSQRT:
    case AN_OP_ROUND_BF16: return 8;
    case AN_OP_RAND: return 30;
    default: return 1;
    }
}

static const char *const var_names[AN_N_VARS] = {"r", "c", "q"};
static const char *const kind_names[] = {"const", "index", "test",   "load",  "tile",  "rand",
                                         "elem",  "cast",  "reduce", "store", "colsum"};

static void print_guard(const an_loop_kernel *p, const an_guard *g, an_text *out)
{
    for (int i = 0; i < g->n; i++) {
        an_text_printf(out, "%s%lld <= ", i ? " and " : " if ", (long long)g->bound[i].lo);
        an_ix_text(&p->ix, g->bound[i].e, var_names, out);
        an_text_printf(out, " < %lld", (long long)g->bound[i].hi);
    }
}

static void print_ins(const an_loop_kernel *p, int i, an_text *out)
{
    const an_ins *in = &p->ins[i];
    an_text_printf(out, "  %3d %d%c %-8s %-6s", i, in->phase, in->scope == AN_SCOPE_ROW ? 'r' : 'c',
                   an_dtype_name((an_dtype)in->dtype),
                   in->kind == AN_INS_ELEM || in->kind == AN_INS_REDUCE ? an_ops[in->op].name : kind_names[in->kind]);
    if (in->arg >= 0) an_text_printf(out, " %s", p->arg[in->arg].name);
    if (in->ix >= 0) {
        an_text_puts(out, "[");
        an_ix_text(&p->ix, in->ix, var_names, out);
        if (in->kind == AN_INS_LOAD && in->a >= 0)
            an_text_printf(out, " + clamp(%%%d, %lld) * %lld", in->a, (long long)in->clamp, (long long)in->scale);
        an_text_puts(out, "]");
    }
    if (in->kind == AN_INS_CONST)
        an_text_printf(out, an_dtype_is_float((an_dtype)in->dtype) ? " %.9g" : " %.0f",
                       an_dtype_is_float((an_dtype)in->dtype) ? in->imm : (double)in->imm_i);
    if (in->kind != AN_INS_LOAD && in->a >= 0) an_text_printf(out, " %%%d", in->a);
    if (in->b >= 0) an_text_printf(out, " %%%d", in->b);
    if (in->c >= 0) an_text_printf(out, " %%%d", in->c);
    if (in->guard >= 0) print_guard(p, &p->guard[in->guard], out);
    an_text_puts(out, "\n");
}

void an_loop_kernel_print(const an_loop_kernel *p, an_text *out)
{
    static const char *const shapes[] = {"row", "col", "tile"};
    an_text_printf(out, "%s %s rows=%lld cols=%lld", p->name, shapes[p->shape], (long long)p->rows, (long long)p->cols);
    if (p->shape == AN_COL) an_text_printf(out, " red=%lld lanes=%d", (long long)p->red, p->lanes);
    if (p->run) an_text_printf(out, " run=%d", p->run);
    an_text_printf(out, " flops=%llu bytes=%llu\n", (unsigned long long)p->flops, (unsigned long long)p->bytes);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, "  arg %s %s %s%s %s\n", p->arg[i].name, an_dtype_name((an_dtype)p->arg[i].dtype),
                       p->arg[i].read ? "r" : "", p->arg[i].written ? "w" : "", p->arg[i].note);
    for (int i = 0; i < p->n_ins; i++) print_ins(p, i, out);
}

static an_status bad(an_err *err, const an_loop_kernel *p, int i, const char *what)
{
    return an_fail(err, AN_E_INTERNAL, "loop kernel %s: instruction %d: %s", p->name, i, what);
}

static an_status verify_operand(an_err *err, const an_loop_kernel *p, int i, int32_t operand)
{
    if (operand < 0) return AN_OK;
    if (operand >= i) return bad(err, p, i, "operand is not computed earlier");
    const an_ins *in = &p->ins[i], *o = &p->ins[operand];
    if (o->kind == AN_INS_STORE || o->kind == AN_INS_COLSUM) return bad(err, p, i, "operand is a store");
    if (p->shape == AN_ROW && o->scope == AN_SCOPE_COL && o->kind != AN_INS_REDUCE) {
        if (in->scope == AN_SCOPE_ROW && in->kind != AN_INS_REDUCE)
            return bad(err, p, i, "an instruction of row scope uses a value of column scope");
        if (o->phase != in->phase) return bad(err, p, i, "a value of column scope crosses a phase");
    }
    if (o->kind == AN_INS_REDUCE && o->phase >= in->phase)
        return bad(err, p, i, "uses a reduction before its phase has ended");
    return AN_OK;
}

an_status an_loop_kernel_verify(an_err *err, const an_loop_kernel *p)
{
    if (p->ix.failed) return an_fail(err, AN_E_INTERNAL, "loop kernel %s: index arithmetic failed", p->name);
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        AN_TRY(verify_operand(err, p, i, in->a));
        AN_TRY(verify_operand(err, p, i, in->b));
        AN_TRY(verify_operand(err, p, i, in->c));
        if (in->arg >= p->n_args || in->guard >= p->n_guards || in->ix >= p->ix.n)
            return bad(err, p, i, "number out of range");
        if (in->kind == AN_INS_COLSUM && (p->shape != AN_ROW || p->run < 1 || p->rows % p->run || in->dtype != AN_F32))
            return bad(err, p, i, "a column sum without runs of rows");
        if (in->kind != AN_INS_LOAD && in->kind != AN_INS_STORE && in->kind != AN_INS_COLSUM) continue;
        if (in->arg < 0 || in->ix < 0) return bad(err, p, i, "memory access without an argument or index");
        const an_ix_expr *e = &p->ix.expr[in->ix];
        int64_t reach = in->kind == AN_INS_LOAD && in->a >= 0 ? (in->clamp - 1) * in->scale : 0;
        bool runs = p->rows > 0 && p->cols > 0 &&
                    (p->shape != AN_COL || in->phase > 0 || p->red > 0); /* an index of an empty loop has no range */
        if (runs && in->guard < 0 && (e->lo < 0 || e->hi + reach >= p->arg[in->arg].numel))
            return bad(err, p, i, "index out of the argument's range");
        if (i && in->phase < p->ins[i - 1].phase) return bad(err, p, i, "phases are not in order");
    }
    return AN_OK;
}
