/* transposed.c: which loads of a loop kernel are read in blocks, and along what. */
#include "codegen/transposed.h"

#include "codegen/column_loads.h"
#include "codegen/planes.h"

enum {
    FAR = 8,
    MOST_STAGED = 6,
    MOST_SHORT = 4096,  /* elements of the short axis of a turn */
    MOST_TRIED = 49152, /* periods, a third of which are tried as distances: rows may have 2^30 columns */
    LEAST_LONG = 16
};

static int64_t address(const an_loop_kernel *p, const an_ins *in, int64_t r, int64_t c, int64_t q)
{
    const int64_t vars[AN_N_VARS] = {r, c, q};
    return an_ix_eval(&p->ix, in->ix, vars);
}

/* A vector of neighbours, one number for all of them, or a part of planes. */
static bool loads_vectors(const an_loop_kernel *p, const an_ins *in)
{
    int64_t stride;
    const int dtype = p->arg[in->arg].dtype;
    if ((dtype != AN_F32 && dtype != AN_BF16) || in->a >= 0 || (in->guard >= 0 && !an_guards_a_row(p, in)))
        return false;
    if (an_is_tabled(p, in)) return true;
    if (!an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &stride)) return false;
    return stride == 0 || stride == 1 || (stride >= AN_PLANE_LEAST && an_planes_of(p).rows > 0);
}

static bool is_vector_op(const an_loop_kernel *p, const an_ins *in)
{
    if (in->dtype != AN_F32) return false;
    if (in->op == AN_OP_WHERE) return p->ins[in->a].kind == AN_INS_TEST;
    return in->op == AN_OP_ADD || in->op == AN_OP_SUB || in->op == AN_OP_MUL;
}

bool an_sums_vectors(const an_loop_kernel *p)
{
    if (p->shape != AN_COL || p->lanes != 1 || p->cols < 8 || p->red > 1 << 16) return false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != 0) continue;
        const bool known = in->kind == AN_INS_LOAD    ? loads_vectors(p, in)
                           : in->kind == AN_INS_TEST  ? an_guards_a_row(p, in)
                           : in->kind == AN_INS_CONST ? in->dtype == AN_F32
                           : in->kind == AN_INS_ELEM  ? is_vector_op(p, in)
                           : in->kind == AN_INS_REDUCE
                               ? in->op != AN_OP_ARGMAX && an_dtype_is_float((an_dtype)in->dtype) && in->dtype != AN_F64
                               : false;
        if (!known) return false;
    }
    return true;
}

bool an_is_staged(const an_loop_kernel *p, const an_ins *in, const an_stage *s)
{
    if (s->along == AN_NOT_STAGED || in->kind != AN_INS_LOAD || in->scope != AN_SCOPE_COL || in->phase > 0)
        return false;
    if (in->guard >= 0 || in->a >= 0 || (s->along == AN_ALONG_SUM && an_sums_vectors(p) && an_is_tabled(p, in)))
        return false;
    const int64_t at = address(p, in, 0, 0, 0), far = address(p, in, 0, 1, 0) - at;
    if (far < FAR || address(p, in, 0, 7, 0) - at != 7 * far) return false;
    for (int64_t i = 1; i <= 3; i += 2) {
        const int64_t next = s->along == AN_ALONG_ROWS      ? address(p, in, i, 0, 0)
                             : s->along == AN_ALONG_COLUMNS ? address(p, in, 0, i * s->apart, 0)
                                                            : address(p, in, 0, 0, i);
        if (next - at != i) return false;
    }
    return true;
}

static bool gains(const an_loop_kernel *p, const an_stage *s)
{
    int n = 0;
    for (int i = 0; i < p->n_ins; i++) n += an_is_staged(p, &p->ins[i], s);
    return n > 0 && n <= MOST_STAGED;
}

an_stage an_stage_of_rows(const an_loop_kernel *p, int64_t period)
{
    const an_stage none = {.along = AN_NOT_STAGED};
    an_stage s = {.along = AN_ALONG_ROWS, .period = period};
    if (p->shape != AN_ROW || p->n_phases > 1 || p->run || p->cols < 8) return none;
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_REDUCE) return none;
    if (p->rows >= 4 && gains(p, &s)) return s;
    s.along = AN_ALONG_COLUMNS;
    const int64_t most = AN_MIN(p->cols, MOST_TRIED * period);
    for (s.apart = period; period && s.apart * 3 < most; s.apart += period)
        if (gains(p, &s)) return s;
    return none;
}

an_stage an_stage_of_sums(const an_loop_kernel *p)
{
    const an_stage s = {.along = AN_ALONG_SUM};
    const an_stage none = {.along = AN_NOT_STAGED};
    if (an_planes_of(p).rows > 0 && an_sums_vectors(p)) return none;
    return p->red >= 4 && p->cols >= 8 && gains(p, &s) ? s : none;
}

/* The loop variables in terms of others: I and L in 0 ... 7, the place in a block, and where the block is. */
int64_t an_staged_square(const an_loop_kernel *p, const an_ins *in, const an_stage *s)
{
    enum { R, C, Q, I, L, PART, BLOCK };
    const bool rows = s->along == AN_ALONG_ROWS, columns = s->along == AN_ALONG_COLUMNS, sum = s->along == AN_ALONG_SUM;
    an_ix_pool pool = {0};
    int64_t near = 0, far = 0;
    if (p->cols % 8 != 0 || (rows && p->rows % 8 != 0) || (sum && p->red % 8 != 0)) return 0;
    if (columns && (s->period % 8 != 0 || p->cols % (8 * s->apart) != 0)) return 0;
    const an_ix i = an_ix_var(&pool, I, 8), l = an_ix_var(&pool, L, 8);
    const int64_t inner = columns ? s->period : p->cols;
    an_ix row = an_ix_var(&pool, R, p->rows), red = an_ix_var(&pool, Q, AN_MAX(p->red, 1)),
          col = an_ix_add(&pool, an_ix_mul(&pool, an_ix_var(&pool, C, inner / 8), 8), l);
    if (rows) row = an_ix_add(&pool, an_ix_mul(&pool, an_ix_var(&pool, R, p->rows / 8), 8), i);
    if (sum) red = an_ix_add(&pool, an_ix_mul(&pool, an_ix_var(&pool, Q, p->red / 8), 8), i);
    if (columns) {
        const an_ix part = an_ix_var(&pool, PART, s->apart / s->period),
                    block = an_ix_var(&pool, BLOCK, p->cols / (8 * s->apart)),
                    neighbour = an_ix_add(&pool, an_ix_mul(&pool, block, 8), i);
        col = an_ix_add(&pool, col, an_ix_mul(&pool, part, s->period));
        col = an_ix_add(&pool, col, an_ix_mul(&pool, neighbour, s->apart));
    }
    const an_ix vars[AN_N_VARS] = {row, col, red}, at = an_ix_substitute(&pool, &p->ix, in->ix, vars);
    const bool square =
        !pool.failed && an_ix_stride(&pool, at, I, &near) && an_ix_stride(&pool, at, L, &far) && near == 1;
    an_ix_pool_free(&pool);
    return square ? far : 0;
}

/* Of a kernel that only copies: its load; NULL: it does something else, or does not store in order. */
static const an_ins *load_of_copy(const an_loop_kernel *p)
{
    int64_t of_row, of_col;
    if (p->shape != AN_ROW || p->n_phases > 1 || p->run || p->n_ins != 2 || p->rows < 1 || p->cols < 1) return NULL;
    const an_ins *load = &p->ins[0], *store = &p->ins[1];
    if (load->kind != AN_INS_LOAD || load->guard >= 0 || load->a >= 0 || store->kind != AN_INS_STORE) return NULL;
    if (p->arg[load->arg].dtype != AN_F32 || p->arg[store->arg].dtype != AN_F32) return NULL;
    const bool linear = an_ix_stride(&p->ix, store->ix, AN_VAR_ROW, &of_row) &&
                        an_ix_stride(&p->ix, store->ix, AN_VAR_COL, &of_col) && address(p, store, 0, 0, 0) == 0;
    return linear && (p->rows == 1 || of_row == p->cols) && (p->cols == 1 || of_col == 1) ? load : NULL;
}

/* From where the load of element j is. */
static int64_t from(const an_loop_kernel *p, const an_ins *load, int64_t j)
{
    return address(p, load, j / p->cols, j % p->cols, 0);
}

/* How many of the elements 0, apart, 2 apart, ... from the first on are loaded `step` from each other. In a turn all further ones are
 * loaded from elsewhere than they would be so; is_turn rejects what is none. */
static int64_t length_of(const an_loop_kernel *p, const an_ins *load, int64_t apart, int64_t step)
{
    int64_t n = 1, end = an_ceil_div(p->rows * p->cols, apart);
    while (n < end) {
        const int64_t middle = n + (end - n) / 2;
        if (from(p, load, middle * apart) == middle * step)
            n = middle + 1;
        else
            end = middle;
    }
    return n;
}

/* Whether every element is loaded from where `x` says. */
static bool is_turn(const an_loop_kernel *p, const an_ins *load, const an_turn *x)
{
    enum { O, I, T };
    an_ix_pool pool = {0};
    const an_ix o = an_ix_var(&pool, O, x->o), i = an_ix_var(&pool, I, x->i), t = an_ix_var(&pool, T, x->t);
    const an_ix short_inside =
        an_ix_add(&pool, an_ix_add(&pool, an_ix_mul(&pool, o, x->i * x->t), an_ix_mul(&pool, i, x->t)), t);
    const an_ix short_outside =
        an_ix_add(&pool, an_ix_add(&pool, an_ix_mul(&pool, o, x->far_o), an_ix_mul(&pool, t, x->far_t)), i);
    const an_ix to = x->back ? short_inside : short_outside;
    const an_ix vars[AN_N_VARS] = {an_ix_div(&pool, to, p->cols), an_ix_mod(&pool, to, p->cols), an_ix_const(&pool, 0)};
    const an_ix found = an_ix_substitute(&pool, &p->ix, load->ix, vars);
    const bool same = !pool.failed && found == (x->back ? short_outside : short_inside);
    an_ix_pool_free(&pool);
    return same;
}

an_turn an_turn_of(const an_loop_kernel *p)
{
    const an_turn none = {0};
    const an_ins *load = load_of_copy(p);
    const int64_t all = p->rows * p->cols;
    if (!load || all < LEAST_LONG * 2 || from(p, load, 0) != 0) return none;
    const int64_t step = from(p, load, 1), length = step < 2 ? 1 : length_of(p, load, 1, step);
    an_turn x = {.back = step > length};
    x.t = x.back ? length : step;
    if (x.t < 2 || x.t > MOST_SHORT) return none;
    x.i = x.back ? length_of(p, load, length, 1) : length;
    if (x.i < LEAST_LONG || all % (x.i * x.t) != 0) return none;
    x.o = all / (x.i * x.t);
    x.far_t = x.back ? step : x.i;
    x.far_o = x.back && x.o > 1 ? from(p, load, x.i * x.t) : x.i * x.t;
    return is_turn(p, load, &x) ? x : none;
}
