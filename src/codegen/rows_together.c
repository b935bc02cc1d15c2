/* rows_together.c: how many neighbouring rows of a kernel of columns with long sums are summed at once. */
#include "codegen/rows_together.h"

#include "codegen/planes.h"
#include "codegen/transposed.h"

/* Whether (r / by) % of (of 0: not taken) changes from row n t to row n t + i, i < n, by what does not depend on t. */
static bool is_regular(int64_t by, int64_t of, int64_t n)
{
    if (by % n == 0) return true;
    return n % by == 0 && (of == 0 || of % (n / by) == 0 || n / by % of == 0);
}

static bool is_bare_row(const an_ix_pool *x, an_ix e)
{
    const an_ix_expr *s = &x->expr[e];
    return s->c == 0 && s->n == 1 && s->term[0].k == 1 && x->atom[s->term[0].atom].kind == AN_ATOM_VAR;
}

/* r / by, as an expression; 0: another. */
static int64_t divisor_of(const an_ix_pool *x, an_ix e)
{
    const an_ix_expr *s = &x->expr[e];
    if (is_bare_row(x, e)) return 1;
    if (s->c != 0 || s->n != 1 || s->term[0].k != 1) return 0;
    const an_atom *a = &x->atom[s->term[0].atom];
    return a->kind == AN_ATOM_DIV && is_bare_row(x, a->e) ? a->by : 0;
}

static bool is_regular_atom(const an_ix_pool *x, const an_atom *a, int64_t n)
{
    if (a->kind == AN_ATOM_VAR || !an_ix_uses(x, a->e, AN_VAR_ROW)) return true;
    if (an_ix_uses(x, a->e, AN_VAR_RED) || an_ix_uses(x, a->e, AN_VAR_COL)) return false;
    const int64_t by = divisor_of(x, a->e);
    if (by == 0) return false;
    return a->kind == AN_ATOM_MOD ? is_regular(by, a->by, n) : is_regular(by * a->by, 0, n);
}

static bool is_regular_index(const an_loop_kernel *p, an_ix ix, int64_t n)
{
    const an_ix_expr *s = &p->ix.expr[ix];
    for (int i = 0; i < s->n; i++)
        if (!is_regular_atom(&p->ix, &p->ix.atom[s->term[i].atom], n)) return false;
    return true;
}

int64_t an_row_apart(const an_loop_kernel *p, an_ix ix, int i)
{
    const int64_t first[AN_N_VARS] = {0}, row[AN_N_VARS] = {i};
    return an_ix_eval(&p->ix, ix, row) - an_ix_eval(&p->ix, ix, first);
}

bool an_is_shared(const an_loop_kernel *p, const an_ins *in, int n)
{
    if (in->guard >= 0) return false;
    for (int i = 1; i < n; i++)
        if (an_row_apart(p, in->ix, i) != 0) return false;
    return true;
}

static bool fits(const an_loop_kernel *p, int n)
{
    bool shared = false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != 0) continue;
        if (in->kind == AN_INS_LOAD) {
            if (!is_regular_index(p, in->ix, n)) return false;
            shared |= an_is_shared(p, in, n);
        }
        if ((in->kind != AN_INS_LOAD && in->kind != AN_INS_TEST) || in->guard < 0) continue;
        for (int b = 0; b < p->guard[in->guard].n; b++)
            if (!is_regular_index(p, p->guard[in->guard].bound[b].e, n)) return false;
    }
    return shared;
}

static int rows_together(const an_loop_kernel *p, int64_t image)
{
    if (p->red <= AN_WINDOW_OF_A_SUM || p->cols % 8 || an_stage_of_sums(p).along != AN_NOT_STAGED) return 1;
    const int64_t rows = image ? image : p->rows;
    for (int n = AN_MOST_ROWS_TOGETHER; n > 2; n--)
        if (rows % n == 0 && fits(p, n)) return n;
    return 1;
}

an_columns an_columns_of(const an_loop_kernel *p)
{
    an_columns c = {.together = 1};
    if (p->shape != AN_COL || !an_sums_vectors(p)) return c;
    c.planes = an_planes_of(p);
    c.together = rows_together(p, c.planes.rows);
    if (c.planes.rows == 0) return c;
    while (c.together > 1 && c.planes.width > 8 * (AN_SUMS_TOGETHER / c.together)) c.planes.width /= 2;
    c.tests = an_round_up(c.planes.rows * (p->red + 1), AN_BUFFER_ALIGN);
    c.buffer_bytes = (size_t)c.tests;
    an_plane plane;
    for (int i = 0; i < p->n_ins; i++)
        if (an_plane_of(p, &p->ins[i], c.planes.rows, &plane))
            c.buffer_bytes += (size_t)an_plane_bytes(&plane, c.planes.width);
    return c;
}
