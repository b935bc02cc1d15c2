/* kernel_comment.c: the formulas in the comment above a rendered kernel: operands written out instead of numbered,
 * casts and index arithmetic left out. */
#include "codegen/kernel_comment.h"

#include <ctype.h>
#include <string.h>

enum { MOST = 150 }; /* characters of a formula; what is longer ends in "..." */

static const char *infix(int op)
{
    switch (op) {
    case AN_OP_ADD: return " + ";
    case AN_OP_SUB: return " - ";
    case AN_OP_MUL: return " * ";
    case AN_OP_DIV: return " / ";
    case AN_OP_EQ: return " == ";
    case AN_OP_NE: return " != ";
    case AN_OP_LT: return " < ";
    case AN_OP_LE: return " <= ";
    default: return NULL;
    }
}

static void lower(const char *name, an_text *out)
{
    for (; *name; name++) {
        char c = (char)tolower((unsigned char)*name);
        an_text_putn(out, &c, 1);
    }
}

static void formula(const an_loop_kernel *p, int32_t i, int32_t from, bool inner, an_text *out);

static void operation(const an_loop_kernel *p, const an_ins *in, int32_t from, bool inner, an_text *out)
{
    const int32_t operand[3] = {in->a, in->b, in->c};
    const char *sign = infix(in->op);
    if (sign) {
        an_text_puts(out, inner ? "(" : "");
        formula(p, in->a, from, true, out);
        an_text_puts(out, sign);
        formula(p, in->b, from, true, out);
        an_text_puts(out, inner ? ")" : "");
        return;
    }
    lower(an_ops[in->op].name, out);
    an_text_puts(out, "(");
    for (int k = 0; k < 3 && operand[k] >= 0; k++) {
        an_text_puts(out, k ? ", " : "");
        formula(p, operand[k], from, false, out);
    }
    an_text_puts(out, ")");
}

/* The argument that value `i` was stored to before instruction `before`, or NULL. */
static const char *stored_as(const an_loop_kernel *p, int32_t i, int32_t before)
{
    for (int32_t s = 0; s < before; s++)
        if (p->ins[s].kind == AN_INS_STORE && p->ins[s].a == i) return p->arg[p->ins[s].arg].name;
    return NULL;
}

/* Value `i` as seen from store `from`; in brackets when it is `inner` to another expression. */
static void formula(const an_loop_kernel *p, int32_t i, int32_t from, bool inner, an_text *out)
{
    const an_ins *in = &p->ins[i];
    const char *name = in->kind == AN_INS_LOAD ? NULL : stored_as(p, i, from);
    if (out->len > 2 * MOST) return; /* will be cut anyway */
    if (name) {
        an_text_puts(out, name);
        return;
    }
    switch (in->kind) {
    case AN_INS_CONST:
        if (an_dtype_is_float((an_dtype)in->dtype))
            an_text_printf(out, "%.6g", in->imm);
        else
            an_text_printf(out, "%lld", (long long)in->imm_i);
        break;
    case AN_INS_INDEX: an_text_puts(out, "position"); break;
    case AN_INS_TEST: an_text_puts(out, "inside"); break;
    case AN_INS_TILE: an_text_puts(out, "matmul"); break;
    case AN_INS_RAND: an_text_puts(out, "random"); break;
    case AN_INS_CAST: formula(p, in->a, from, inner, out); break;
    case AN_INS_ELEM:
    case AN_INS_REDUCE: operation(p, in, from, inner, out); break;
    default: /* a load */
        an_text_puts(out, p->arg[in->arg].name);
        if (in->a < 0) break;
        an_text_puts(out, "[");
        formula(p, in->a, from, false, out);
        an_text_puts(out, "]");
        break;
    }
}

void an_render_formulas(const an_loop_kernel *p, const char *prefix, an_text *out)
{
    an_text t = {0};
    for (int32_t i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_STORE && p->ins[i].kind != AN_INS_COLSUM) continue;
        an_text_clear(&t);
        if (p->ins[i].kind == AN_INS_COLSUM) an_text_printf(&t, "sum of %d rows of ", p->run);
        formula(p, p->ins[i].a, i, p->ins[i].kind == AN_INS_COLSUM, &t);
        if (!t.data) break;
        an_text_printf(out, "%s%s = %.*s%s\n", prefix, p->arg[p->ins[i].arg].name, MOST, t.data,
                       t.len > MOST ? " ..." : "");
    }
    out->failed |= t.failed;
    an_text_free(&t);
}

void an_render_cost(uint64_t flops, uint64_t bytes, an_text *out)
{
    static const char *const unit[] = {"", "k", "M", "G", "T"};
    double f = (double)flops;
    char taken[16];
    int u = 0;
    while (f >= 1000 && u < 4) f /= 1000, u++;
    an_text_printf(out, "%.3g %sflop, %s", f, unit[u], an_bytes_text((double)bytes, taken));
}
