/* lower_onehot.c: the sum over a row of where(column == k, x, 0) has one term, so it is x at column k: a load by address
 * instead of a walk over the row. A cross entropy's label is read like that.
 *
 *     sum over c of where(c == label[r], logp[r,c], 0)     becomes     logp[r, label[r]], or 0 outside the row
 *
 * Invariants: the bits are those of the sum: zeros before and after the term change nothing but the sign of a zero, and
 * the term is added to 0 for that. The element was in memory before the launch; an_may_alias (plan_tables.c) knows that it
 * is read before a later phase may write over it. */
#include "planner/loop_builder.h"

#include <math.h>

static bool is_zero(const an_ins *in)
{
    return in->kind == AN_INS_CONST && in->imm == 0 && !signbit(in->imm) && in->imm_i == 0;
}

/* k, when i is column == k with one k for the whole row; else -1. */
static int32_t column_asked(an_loop_builder *b, int32_t i)
{
    const an_ins *in = &b->p->ins[i];
    if (in->kind != AN_INS_ELEM || in->op != AN_OP_EQ) return -1;
    const an_ix column = an_ix_var(&b->p->ix, AN_VAR_COL, b->p->cols);
    for (int swap = 0; swap < 2; swap++) {
        const int32_t k = swap ? in->a : in->b;
        const an_ins *place = &b->p->ins[swap ? in->b : in->a];
        if (place->kind == AN_INS_INDEX && place->ix == column && b->p->ins[k].scope == AN_SCOPE_ROW) return k;
    }
    return -1;
}

/* Instruction i, a load or what casts make of one, at column k; -1 when it is something else. */
static int32_t at_column(an_loop_builder *b, int32_t i, int32_t k)
{
    an_ins in = b->p->ins[i];
    if (in.kind == AN_INS_CAST) {
        in.a = at_column(b, in.a, k);
        return in.a < 0 ? -1 : an_loop_append(b, in, 0);
    }
    if (in.kind != AN_INS_LOAD || in.a >= 0 || in.guard >= 0 || an_is_leaf(b->w, in.node) ||
        b->w->node[in.node].group == b->g || !an_ix_stride(&b->p->ix, in.ix, AN_VAR_COL, &in.scale))
        return -1;
    in.ix = an_ix_without(&b->p->ix, in.ix, AN_VAR_COL);
    in.a = k;
    in.clamp = b->p->cols;
    return an_loop_append(b, in, 0);
}

static int32_t elem(an_loop_builder *b, an_op op, int dtype, int32_t x, int32_t y, int32_t z)
{
    an_ins in = an_loop_ins(AN_INS_ELEM, dtype, 0);
    in.op = (uint16_t)op;
    in.a = x, in.b = y, in.c = z;
    return an_loop_append(b, in, 0);
}

static int32_t whole_number(an_loop_builder *b, int dtype, int64_t x)
{
    an_ins in = an_loop_ins(AN_INS_CONST, dtype, 0);
    in.imm_i = x;
    return an_loop_append(b, in, 0);
}

int32_t an_loop_onehot(an_loop_builder *b, int32_t summand)
{
    const an_ins in = b->p->ins[summand];
    if (in.kind != AN_INS_ELEM || in.op != AN_OP_WHERE || !an_dtype_is_float((an_dtype)in.dtype) ||
        !is_zero(&b->p->ins[in.c]))
        return -1;
    const int32_t k = column_asked(b, in.a), x = k < 0 ? -1 : at_column(b, in.b, k);
    if (x < 0) return -1;
    const int dtype = b->p->ins[k].dtype;
    const int32_t below = elem(b, AN_OP_LT, AN_BOOL, k, whole_number(b, dtype, 0), -1);
    const int32_t inside = elem(b, AN_OP_LT, AN_BOOL, k, whole_number(b, dtype, b->p->cols), -1);
    const int32_t sum = elem(b, AN_OP_ADD, in.dtype, x, in.c, -1);
    return elem(b, AN_OP_WHERE, in.dtype, below, in.c, elem(b, AN_OP_WHERE, in.dtype, inside, sum, in.c));
}
