/* column_loads.c: which loads of a kernel of columns are the same for all rows, and which guards for all columns. */
#include "codegen/column_loads.h"

enum {
    COLUMNS = 64,       /* of a block with a table, at least */
    TABLE = 4096,       /* elements of a table that stay in the L1 cache */
    MOST_TABLED = 16384 /* on the stack */
};

/* Few of a long sum, so that all rows read them from the L2 cache. */
int64_t an_columns_of_a_block(const an_loop_kernel *p)
{
    return AN_MIN(AN_MAX(TABLE / AN_MAX(p->red, 1) / 32 * 32, COLUMNS), p->cols);
}

bool an_is_tabled(const an_loop_kernel *p, const an_ins *in)
{
    int64_t stride;
    if (p->shape != AN_COL || p->lanes != 1 || in->kind != AN_INS_LOAD || in->guard >= 0 || in->a >= 0) return false;
    if (p->rows < 2 || an_ix_uses(&p->ix, in->ix, AN_VAR_ROW) || p->red * an_columns_of_a_block(p) > MOST_TABLED)
        return false;
    return !an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &stride) || stride > 1;
}

bool an_guards_a_row(const an_loop_kernel *p, const an_ins *in)
{
    if ((in->kind != AN_INS_LOAD && in->kind != AN_INS_TEST) || in->guard < 0) return false;
    for (int i = 0; i < p->guard[in->guard].n; i++)
        if (an_ix_uses(&p->ix, p->guard[in->guard].bound[i].e, AN_VAR_COL)) return false;
    return true;
}
