/* planes.c: which operands of a window lie in planes, a channel behind the other. */
#include "codegen/planes.h"

#include "codegen/column_loads.h"

/* A load of f32 whose channels lie apart, guarded, if at all, by what is the same for all of them; or a store of results. */
static bool is_candidate(const an_loop_kernel *p, const an_ins *in, int64_t *far)
{
    const bool load = in->kind == AN_INS_LOAD && in->phase == 0 && in->a < 0, store = in->kind == AN_INS_STORE;
    if ((!load && !store) || p->arg[in->arg].dtype != AN_F32) return false;
    if (load && ((in->guard >= 0 && !an_guards_a_row(p, in)) || an_is_tabled(p, in))) return false;
    return an_ix_stride(&p->ix, in->ix, AN_VAR_COL, far) && *far >= AN_PLANE_LEAST;
}

/* The largest number that an index divides rows by: the rows of an image. 1: it divides none. */
static int64_t divisor_of_rows(const an_loop_kernel *p, an_ix ix)
{
    const an_ix_expr *e = &p->ix.expr[ix];
    int64_t most = 1;
    for (int i = 0; i < e->n; i++) {
        const an_atom *a = &p->ix.atom[e->term[i].atom];
        if (a->kind == AN_ATOM_VAR) continue;
        const an_ix_expr *d = &p->ix.expr[a->e];
        const bool row = d->c == 0 && d->n == 1 && d->term[0].k == 1 &&
                         p->ix.atom[d->term[0].atom].kind == AN_ATOM_VAR &&
                         p->ix.atom[d->term[0].atom].var == AN_VAR_ROW;
        if (row && a->kind == AN_ATOM_DIV) most = AN_MAX(most, a->by);
    }
    return most;
}

/* Whether an index is a part of rows and one of the sum's elements: what a window moved by the element reads. Not where they are divided together,
 * as by a stride in the gradient by the input. */
static bool is_sum_of_parts(const an_loop_kernel *p, an_ix ix)
{
    const an_ix_expr *e = &p->ix.expr[ix];
    for (int i = 0; i < e->n; i++) {
        const an_atom *a = &p->ix.atom[e->term[i].atom];
        if (a->kind != AN_ATOM_VAR && an_ix_uses(&p->ix, a->e, AN_VAR_ROW) && an_ix_uses(&p->ix, a->e, AN_VAR_RED))
            return false;
    }
    return true;
}

bool an_plane_of(const an_loop_kernel *p, const an_ins *in, int64_t rows, an_plane *out)
{
    enum { IMAGE, ROW, Q };
    an_ix_pool pool = {0};
    *out = (an_plane){0};
    if (!is_candidate(p, in, &out->far) || !is_sum_of_parts(p, in->ix)) return false;
    const an_ix row =
        an_ix_add(&pool, an_ix_mul(&pool, an_ix_var(&pool, IMAGE, p->rows / rows), rows), an_ix_var(&pool, ROW, rows));
    const an_ix vars[AN_N_VARS] = {row, an_ix_const(&pool, 0), an_ix_var(&pool, Q, AN_MAX(p->red, 1))};
    const an_ix at = an_ix_substitute(&pool, &p->ix, in->ix, vars);
    const bool known = !pool.failed && an_ix_stride(&pool, at, IMAGE, &out->image) && out->image >= 0;
    const an_ix within = known ? an_ix_without(&pool, at, IMAGE) : -1;
    int64_t step = 0;
    bool good = within >= 0;
    if (good) {
        out->first = pool.expr[within].lo;
        out->n = pool.expr[within].hi - out->first + 1;
        if (in->kind == AN_INS_STORE) good = an_ix_stride(&pool, within, ROW, &step) && step == 1 && out->n == rows;
    }
    an_ix_pool_free(&pool);
    return good;
}

int64_t an_plane_bytes(const an_plane *plane, int width)
{
    return an_round_up(plane->n * width * (int64_t)sizeof(float), AN_BUFFER_ALIGN);
}

/* How much all buffers hold of a channel where images have `rows` rows; 0: it is not known, or more than planes of single images have. */
static int64_t floats_of(const an_loop_kernel *p, int64_t rows)
{
    int64_t far, floats = 0;
    if (p->rows % rows != 0 || rows > AN_PLANES_TESTS / p->red)
        return 0; /* their guards are tested once, for all channels */
    for (int i = 0; i < p->n_ins; i++) {
        an_plane plane;
        if (!is_candidate(p, &p->ins[i], &far)) continue;
        if (!an_plane_of(p, &p->ins[i], rows, &plane) || plane.n > 8 * plane.far) return 0;
        floats += plane.n;
    }
    return floats;
}

an_planes an_planes_of(const an_loop_kernel *p)
{
    const an_planes none = {0};
    int64_t far, rows = 1;
    bool any = false;
    if (p->shape != AN_COL || p->lanes != 1 || p->red < 2 || p->cols < 8 || p->cols % 8 != 0 || p->rows == 0)
        return none;
    for (int i = 0; i < p->n_ins; i++) {
        if (!is_candidate(p, &p->ins[i], &far)) continue;
        rows = AN_MAX(rows, divisor_of_rows(p, p->ins[i].ix));
        any = true;
    }
    if (!any) return none;
    int64_t floats = floats_of(p, p->rows); /* one image, whose rows may be divided by those of pixels */
    if (floats)
        rows = p->rows;
    else
        floats = floats_of(p, rows);
    for (int width = p->red <= AN_TAPS_IN_REGISTERS ? 8 : 32; floats && width >= 8; width /= 2)
        if (p->cols % width == 0 && floats <= AN_PLANES_FLOATS / width) return (an_planes){rows, width};
    return none;
}
