/* rule_matrix.c: PyTorch's linear algebra: linear systems, Cholesky factors and triangular solves, determinants, QR, singular values and
 * eigenvalues, pseudo-inverses, matrix exponentials. (products: rule_compose.c, rule_nn.c; norms of vectors: rule_reduce.c) */
#include "import/rules.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* ---- linear equations */

static an_tensor *unit_matrices(an_build *b, an_tensor *like)
{
    const an_shape s = an_shape_of(like);
    if (s.rank < 2) return like; /* an error is recorded */
    const an_shape one = AN_SHAPE(s.dim[s.rank - 1], s.dim[s.rank - 1]);
    an_tensor *column = an_iota_at(AN_AT, b->cx, one, 1), *row = an_iota_at(AN_AT, b->cx, one, 0);
    an_shape wide = {.rank = s.rank, .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
    wide.dim[s.rank - 2] = wide.dim[s.rank - 1] = one.dim[0];
    an_tensor *unit = an_as(an_eq_at(AN_AT, row, column), an_dtype_of(like));
    return an_expand_at(AN_AT, an_reshape_at(AN_AT, unit, wide), s);
}

static an_tensor *turned(an_tensor *x)
{
    return an_transpose_at(AN_AT, x, an_rank(x) - 2, an_rank(x) - 1);
}

static an_status square(an_build *b, const an_tensor *a)
{
    const int rank = an_rank(a);
    if (rank >= 2 && an_dim(a, rank - 1) == an_dim(a, rank - 2) && an_is_float(a)) return AN_OK;
    return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than square matrices of floats");
}

an_status an_rule_inverse(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0);
    AN_TRY(square(b, a));
    an_out(b, n, 0, an_solve_at(AN_AT, a, unit_matrices(b, a)));
    return AN_OK;
}

/* A B left: A X = B, or X A = B. B may be a vector, or as many vectors as A has matrices. */
an_status an_rule_linalg_solve(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0), *y = an_in(b, n, 1);
    const bool left = an_in_bool(b, n, 2);
    AN_TRY(square(b, a));
    const an_shape s = an_shape_of(a), of_y = an_shape_of(y);
    bool vector = of_y.rank == 1 || of_y.rank == s.rank - 1;
    for (int i = 0; vector && of_y.rank > 1 && i < of_y.rank; i++) vector = of_y.dim[i] == s.dim[i];
    if (vector) {
        an_shape wide = of_y;
        wide.dim[wide.rank++] = 1;
        y = an_reshape_at(AN_AT, y, wide);
    } else if (!left) {
        y = turned(y);
    }
    an_shape all = s; /* of as many matrices */
    if (an_rank(y) > s.rank) return an_build_refuse(b, AN_E_UNSUPPORTED, "one matrix for several right sides");
    for (int i = 0; i < s.rank - 2; i++) {
        const int at = i - (s.rank - an_rank(y));
        const int64_t there = at < 0 ? 1 : an_dim(y, at);
        if (there != s.dim[i] && there != 1)
            return an_build_refuse(b, AN_E_UNSUPPORTED, "one matrix for several right sides");
    }
    all.dim[s.rank - 1] = an_dim(y, an_rank(y) - 1);
    an_shape wide = {.rank = s.rank, .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
    for (int i = 0; i < an_rank(y); i++) wide.dim[s.rank - an_rank(y) + i] = an_dim(y, i);
    y = an_expand_at(AN_AT, an_reshape_at(AN_AT, y, wide), all);
    an_tensor *x = an_solve_at(AN_AT, left ? a : turned(a), y);
    if (vector) {
        an_shape out = an_shape_of(x);
        out.rank--;
        x = an_reshape_at(AN_AT, x, out);
    } else if (!left) {
        x = turned(x);
    }
    an_out(b, n, 0, x);
    return AN_OK;
}

/* The symmetric matrix of which a holds the lower or the upper triangle: what is in the other one is not read. The gradient is that of a
 * symmetric argument, in both triangles, as PyTorch's is. */
static an_tensor *mirrored(an_build *b, an_tensor *a, bool upper)
{
    const int64_t n = an_dim(a, an_rank(a) - 1);
    const an_shape s = AN_SHAPE(n, n);
    an_tensor *row = an_iota_at(AN_AT, b->cx, s, 0), *column = an_iota_at(AN_AT, b->cx, s, 1),
              *held = an_detach_at(AN_AT, a);
    an_tensor *read = upper ? an_le_at(AN_AT, row, column) : an_ge_at(AN_AT, row, column);
    an_tensor *whole = an_where_at(AN_AT, read, held, turned(held));
    an_tensor *zero = an_num(a, b->cx, 0), *number = an_where_at(AN_AT, an_isfinite_at(AN_AT, held), a, zero);
    return an_add_at(AN_AT, whole, an_sub_at(AN_AT, number, an_detach_at(AN_AT, number))); /* 0 with a's gradient */
}

an_status an_rule_cholesky(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0);
    const bool upper = an_in_bool(b, n, 1);
    AN_TRY(square(b, a));
    an_tensor *l = an_cholesky_at(AN_AT, mirrored(b, a, upper));
    an_out(b, n, 0, upper ? turned(l) : l);
    return AN_OK;
}

/* Whether it failed, result k, is not computed: where it did, the result is infinite or NaN. */
static an_status failure_unread(an_build *b, const an_pt2_node *n, int k)
{
    return an_results_unread(b, n, k, "whether it failed is read; the result alone is known");
}

an_status an_rule_inverse_ex(an_build *b, const an_pt2_node *n)
{
    AN_TRY(failure_unread(b, n, 1));
    return an_rule_inverse(b, n);
}

an_status an_rule_linalg_solve_ex(an_build *b, const an_pt2_node *n)
{
    AN_TRY(failure_unread(b, n, 1));
    return an_rule_linalg_solve(b, n);
}

an_status an_rule_cholesky_ex(an_build *b, const an_pt2_node *n)
{
    AN_TRY(failure_unread(b, n, 1));
    return an_rule_cholesky(b, n);
}

static an_tensor *by_triangle(an_tensor *l, an_tensor *y, bool upper)
{
    return an_trisolve_at(AN_AT, l, an_trisolve_at(AN_AT, l, y, upper, upper), upper, !upper);
}

/* The X of A X = y, where `l` is A's triangle: A = l l^T, or with `upper` l^T l. The other triangle of l is not read; but as PyTorch has it,
 * the gradient is that of the product, which has all of l: y less the product's change, which is 0. */
static an_tensor *solved_by_triangle(an_build *b, an_tensor *l, an_tensor *y, bool upper)
{
    an_tensor *held = an_detach_at(AN_AT, l), *x = by_triangle(held, an_detach_at(AN_AT, y), upper);
    an_tensor *first = an_matmul_at(AN_AT, upper ? l : turned(l), x);
    an_tensor *product = an_matmul_at(AN_AT, upper ? turned(l) : l, first);
    an_tensor *zero = an_num(product, b->cx, 0),
              *known = an_isfinite_at(AN_AT, product); /* the other triangle may hold anything */
    product = an_where_at(AN_AT, known, product, zero);
    an_tensor *change = an_sub_at(AN_AT, product, an_detach_at(AN_AT, product));
    return by_triangle(held, an_sub_at(AN_AT, y, change), upper);
}

/* self input2 upper: input2 is the triangle; there are as many of them as of self's matrices */
an_status an_rule_cholesky_solve(an_build *b, const an_pt2_node *n)
{
    an_tensor *y = an_in(b, n, 0), *l = an_in(b, n, 1);
    AN_TRY(square(b, l));
    bool fit = an_rank(y) == an_rank(l);
    for (int i = 0; fit && i < an_rank(l) - 1; i++) fit = an_dim(l, i) == an_dim(y, i);
    if (!fit) return an_build_refuse(b, AN_E_UNSUPPORTED, "one matrix for several right sides");
    an_out(b, n, 0, solved_by_triangle(b, l, y, an_in_bool(b, n, 2)));
    return AN_OK;
}

an_status an_rule_cholesky_inverse(an_build *b, const an_pt2_node *n)
{
    an_tensor *l = an_in(b, n, 0);
    AN_TRY(square(b, l));
    an_out(b, n, 0, solved_by_triangle(b, l, unit_matrices(b, l), an_in_bool(b, n, 1)));
    return AN_OK;
}

/* x N: the powers 0 .. N - 1 of each element, as the last axis; without N as many as the last axis is long */
an_status an_rule_vander(an_build *b, const an_pt2_node *n)
{
    enum { MOST_POWERS = 1024 };
    an_tensor *x = an_in(b, n, 0), *part[MOST_POWERS];
    an_shape s = an_shape_of(x);
    const int64_t N = an_in_none(n, 1) ? s.dim[s.rank > 0 ? s.rank - 1 : 0] : an_in_int(b, n, 1);
    if (s.rank < 1 || s.rank > 7 || !an_is_float(x) || N < 1 || N > MOST_POWERS)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than 1 to %d powers of a list of floats", MOST_POWERS);
    s.dim[s.rank++] = 1;
    x = an_reshape_at(AN_AT, x, s);
    part[0] = an_full_at(AN_AT, b->cx, an_dtype_of(x), s, 1);
    for (int64_t k = 1; k < N; k++) part[k] = k == 1 ? x : an_mul_at(AN_AT, part[k - 1], x);
    an_out(b, n, 0, an_concat_at(AN_AT, part, (int)N, s.rank - 1));
    return AN_OK;
}

/* self B upper left unitriangular */
an_status an_rule_solve_triangular(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0), *y = an_in(b, n, 1);
    const bool upper = an_in_bool(b, n, 2), left = an_in_bool(b, n, 3);
    AN_TRY(square(b, a));
    if (an_in_bool(b, n, 4)) return an_build_refuse(b, AN_E_UNSUPPORTED, "unitriangular=True");
    if (an_rank(a) != an_rank(y)) return an_build_refuse(b, AN_E_UNSUPPORTED, "one matrix for several right sides");
    for (int i = 0; i < an_rank(a) - 2; i++)
        if (an_dim(a, i) != an_dim(y, i))
            return an_build_refuse(b, AN_E_UNSUPPORTED, "one matrix for several right sides");
    an_tensor *x = an_trisolve_at(AN_AT, a, left ? y : turned(y), upper, !left);
    an_out(b, n, 0, left ? x : turned(x));
    return AN_OK;
}

/* self UPLO: from the least to the largest; vectors as columns, up to their signs. */
an_status an_rule_eigh(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0), *vectors = NULL;
    AN_TRY(square(b, a));
    const char *side = n->arg[1].text ? n->arg[1].text : "L";
    an_out(b, n, 0, an_eigh_at(AN_AT, mirrored(b, a, *side == 'U' || *side == 'u'), &vectors));
    if (vectors) an_out(b, n, 1, vectors);
    return AN_OK;
}

an_status an_rule_matrix_power(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0), *y = NULL;
    int64_t power = an_in_int(b, n, 1);
    AN_TRY(square(b, a));
    if (power < -1024 || power > 1024)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "to the power %lld", (long long)power);
    if (power < 0) a = an_solve_at(AN_AT, a, unit_matrices(b, a));
    for (power = power < 0 ? -power : power; power > 0; power /= 2) {
        if (power % 2) y = y ? an_product(b, y, a) : a;
        if (power > 1) a = an_product(b, a, a);
    }
    an_out(b, n, 0, y ? y : unit_matrices(b, a));
    return AN_OK;
}

/* ---- determinants and QR */

static an_tensor *slice_of(an_tensor *x, int axis, int64_t from, int64_t to)
{
    return an_slice_at(AN_AT, x, axis, from, to, 1);
}

/* The signs that LAPACK's reflections give the columns of a Q [...,m,k] whose R has a positive diagonal, as a row [...,1,k]; and their product
 * with that of the reflections, the determinant of a square Q, as [...,1,1]. Reflection j turns column j into a unit vector times its sign,
 * which is opposite to that of the element on the diagonal; a column that is one already is left alone. */
static an_tensor *signs_of_reflections(an_build *b, an_tensor *q, an_tensor **determinant)
{
    enum { MOST_COLUMNS = 128 };
    an_tensor *w = an_detach_at(AN_AT, q), *part[MOST_COLUMNS], *all = NULL;
    const int rank = an_rank(w);
    const int64_t m = an_dim(w, rank - 2), k = an_dim(w, rank - 1);
    if (k < 1 || k > MOST_COLUMNS) return NULL;
    an_tensor *row = an_as(an_iota_at(AN_AT, b->cx, AN_SHAPE(m, 1), 0), AN_I32);
    an_tensor *zero = an_num(w, b->cx, 0), *one = an_num(w, b->cx, 1), *down = an_num(w, b->cx, -1);
    for (int64_t j = 0; j < k; j++) {
        an_tensor *at = an_num(row, b->cx, (double)j), *column = slice_of(w, rank - 1, j, j + 1);
        an_tensor *below = an_where_at(AN_AT, an_gt_at(AN_AT, row, at), column, zero);
        an_tensor *tail = an_sum_at(AN_AT, an_square_at(AN_AT, below), AN_AXIS(rank - 2), true);
        an_tensor *head = slice_of(column, rank - 2, j, j + 1), *none = an_eq_at(AN_AT, tail, zero);
        an_tensor *side = an_where_at(AN_AT, an_lt_at(AN_AT, head, zero), down, one);
        part[j] = an_where_at(AN_AT, none, side, an_neg_at(AN_AT, side));
        all = all ? an_mul_at(AN_AT, all, side) : side;
        if (j == k - 1) break;
        /* v = column - sign e_j, |v|^2 = 2 (1 + |head|) */
        an_tensor *first = an_sub_at(AN_AT, head, part[j]);
        an_tensor *on = an_where_at(AN_AT, an_eq_at(AN_AT, row, at), first, below);
        an_tensor *v = an_where_at(AN_AT, none, zero, on), *share = an_add_num_at(AN_AT, an_abs_at(AN_AT, head), 1);
        an_tensor *along = an_div_at(AN_AT, an_matmul_at(AN_AT, turned(v), w), share);
        w = an_sub_at(AN_AT, w, an_matmul_at(AN_AT, v, along));
    }
    if (determinant) *determinant = all;
    return an_concat_at(AN_AT, part, (int)k, rank - 1);
}

/* The diagonal of square matrices as [...,n]: of their elements as one row every (n + 1)-th. */
static an_tensor *diagonal_of(an_tensor *a)
{
    an_shape s = an_shape_of(a);
    const int64_t n = s.dim[--s.rank];
    s.dim[s.rank - 1] = n * n;
    return an_slice_at(AN_AT, an_reshape_at(AN_AT, a, s), s.rank - 1, 0, n * n, n + 1);
}

static an_tensor *as_numbers(an_tensor *x, const an_tensor *matrices)
{
    an_shape s = an_shape_of(matrices);
    s.rank -= 2;
    return an_reshape_at(AN_AT, x, s);
}

static an_tensor *element(an_tensor *a, int i, int j)
{
    const int rank = an_rank(a);
    return slice_of(slice_of(a, rank - 2, i, i + 1), rank - 1, j, j + 1);
}

static an_tensor *minor_of_two(an_tensor *a, int i, int j, int k, int l) /* rows i and j, columns k and l */
{
    an_tensor *ik = element(a, i, k), *il = element(a, i, l), *down = an_mul_at(AN_AT, ik, element(a, j, l));
    return an_sub_at(AN_AT, down, an_mul_at(AN_AT, il, element(a, j, k)));
}

/* Of up to three rows by products, which have a gradient where the determinant is 0 too. */
static an_tensor *small_determinant(an_build *b, an_tensor *a)
{
    const int64_t n = an_dim(a, an_rank(a) - 1);
    an_shape s = an_shape_of(a);
    s.rank -= 2;
    if (n == 0) return an_full_at(AN_AT, b->cx, an_dtype_of(a), s, 1);
    if (n == 1) return an_reshape_at(AN_AT, a, s);
    if (n == 2) return an_reshape_at(AN_AT, minor_of_two(a, 0, 1, 0, 1), s);
    an_tensor *part[3];
    for (int k = 0; k < 3; k++) {
        an_tensor *top = element(a, 0, k);
        part[k] = an_mul_at(AN_AT, top, minor_of_two(a, 1, 2, k == 0, k == 2 ? 1 : 2));
    }
    return an_reshape_at(AN_AT, an_add_at(AN_AT, an_sub_at(AN_AT, part[0], part[1]), part[2]), s);
}

typedef struct determinant {
    an_tensor *sign, *log, *value;
} determinant;

static an_status determinant_of(an_build *b, const an_pt2_node *n, determinant *out)
{
    an_tensor *a = an_in(b, n, 0), *r = NULL, *sign = NULL;
    AN_TRY(square(b, a));
    *out = (determinant){.sign = NULL};
    if (an_dim(a, an_rank(a) - 1) <= 3) {
        out->value = small_determinant(b, a);
        out->sign = an_sign_at(AN_AT, an_detach_at(AN_AT, out->value));
        out->log = an_log_at(AN_AT, an_abs_at(AN_AT, out->value));
        return AN_OK;
    }
    an_tensor *q = an_qr_at(AN_AT, a, &r);
    if (!r) return AN_OK; /* recorded */
    if (!signs_of_reflections(b, q, &sign))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of more than 128 rows, whose sign is not known");
    an_tensor *on = an_abs_at(AN_AT, diagonal_of(r)), *zero = an_num(on, b->cx, 0); /* [...,n] */
    sign = as_numbers(sign, a);
    out->value = an_mul_at(AN_AT, sign, an_product_of_rows(on, false));
    an_tensor *none = an_eq_at(AN_AT, an_detach_at(AN_AT, out->value), zero);
    out->sign = an_where_at(AN_AT, none, zero, sign);
    out->log = an_sum_at(AN_AT, an_log_at(AN_AT, on), AN_AXIS(an_rank(on) - 1), false);
    return AN_OK;
}

static an_status factors_unread(an_build *b, const an_pt2_node *n, int from)
{
    for (int k = from; k < from + 2; k++)
        AN_TRY(an_results_unread(b, n, k, "its triangles are read; they are not known"));
    return AN_OK;
}

an_status an_rule_det(an_build *b, const an_pt2_node *n)
{
    determinant d;
    AN_TRY(factors_unread(b, n, 1));
    AN_TRY(determinant_of(b, n, &d));
    if (d.value) an_out(b, n, 0, d.value);
    return AN_OK;
}

an_status an_rule_logdet(an_build *b, const an_pt2_node *n)
{
    determinant d;
    AN_TRY(determinant_of(b, n, &d));
    if (!d.log) return AN_OK;
    an_tensor *below = an_lt_at(AN_AT, d.sign, an_num(d.sign, b->cx, 0));
    an_out(b, n, 0, an_where_at(AN_AT, below, an_num(d.log, b->cx, NAN), d.log));
    return AN_OK;
}

an_status an_rule_slogdet(an_build *b, const an_pt2_node *n)
{
    determinant d;
    AN_TRY(factors_unread(b, n, 2));
    AN_TRY(determinant_of(b, n, &d));
    if (!d.log) return AN_OK;
    an_out(b, n, 0, d.sign);
    an_out(b, n, 1, d.log);
    return AN_OK;
}

/* A mode, or self some: the signs are LAPACK's. A wide matrix by its first columns. */
an_status an_rule_qr(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0), *r = NULL;
    const int rank = an_rank(a);
    if (rank < 2 || !an_is_float(a)) return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than matrices of floats");
    const int64_t rows = an_dim(a, rank - 2), columns = an_dim(a, rank - 1);
    const char *mode = n->arg[1].text;
    const bool whole = mode ? strcmp(mode, "complete") == 0 : n->arg[1].kind == AN_ARG_BOOL && !an_in_bool(b, n, 1);
    if (whole && rows > columns && (an_result_read(b, n, 0) || an_result_read(b, n, 1)))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "mode='complete' of a tall matrix; mode='reduced' is known");
    an_tensor *q = an_qr_at(AN_AT, rows < columns ? slice_of(a, rank - 1, 0, rows) : a, &r);
    if (!r) return AN_OK; /* recorded */
    an_tensor *sign = signs_of_reflections(b, q, NULL);
    if (!sign) return an_build_refuse(b, AN_E_UNSUPPORTED, "of no columns, or more than 128");
    q = an_mul_at(AN_AT, q, sign);
    r = an_mul_at(AN_AT, r, turned(sign));
    if (rows < columns) {
        an_tensor *others = slice_of(a, rank - 1, rows, columns);
        an_tensor *part[2] = {r, an_matmul_at(AN_AT, turned(q), others)};
        r = an_concat_at(AN_AT, part, 2, rank - 1);
    }
    if (mode && strcmp(mode, "r") == 0)
        AN_TRY(an_results_unread(b, n, 0, "Q of mode='r' is read"));
    else
        an_out(b, n, 0, q);
    an_out(b, n, 1, r);
    return AN_OK;
}

/* input tau: the first columns of the product of the reflections I - tau v v^T, whose v has a 1 on the diagonal and input below it */
an_status an_rule_householder_product(an_build *b, const an_pt2_node *n)
{
    enum { MOST_REFLECTIONS = 128 };
    an_tensor *a = an_in(b, n, 0), *tau = an_in(b, n, 1);
    const int rank = an_rank(a);
    if (rank < 2 || an_rank(tau) != rank - 1 || an_dim(a, rank - 2) < an_dim(a, rank - 1))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than tall matrices, each with its factors");
    const int64_t m = an_dim(a, rank - 2), columns = an_dim(a, rank - 1), k = an_dim(tau, rank - 2);
    if (k > columns || k > MOST_REFLECTIONS)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of more than %d reflections", MOST_REFLECTIONS);
    const an_shape s = AN_SHAPE(m, columns);
    an_tensor *row = an_iota_at(AN_AT, b->cx, s, 0), *column = an_iota_at(AN_AT, b->cx, s, 1);
    an_tensor *y = an_as(an_eq_at(AN_AT, row, column), an_dtype_of(a)), *zero = an_num(a, b->cx, 0);
    y = an_expand_at(AN_AT, y, an_shape_of(a));
    an_shape one = an_shape_of(tau);
    one.dim[one.rank - 1] = 1;
    one.dim[one.rank++] = 1;
    an_tensor *place = an_iota_at(AN_AT, b->cx, AN_SHAPE(m, 1), 0);
    for (int64_t j = k - 1; j >= 0; j--) {
        an_tensor *at = an_num(place, b->cx, (double)j), *below = slice_of(a, rank - 1, j, j + 1);
        below = an_where_at(AN_AT, an_gt_at(AN_AT, place, at), below, zero);
        an_tensor *one_at = an_eq_at(AN_AT, place, at), *v = an_where_at(AN_AT, one_at, an_num(a, b->cx, 1), below);
        an_tensor *factor = an_reshape_at(AN_AT, slice_of(tau, rank - 2, j, j + 1), one);
        an_tensor *along = an_mul_at(AN_AT, factor, an_matmul_at(AN_AT, turned(v), y));
        y = an_sub_at(AN_AT, y, an_matmul_at(AN_AT, v, along));
    }
    an_out(b, n, 0, y);
    return AN_OK;
}

/* ---- singular values */

typedef struct singular {
    an_tensor *u, *s, *v; /* [...,m,k] [...,k] [...,n,k] */
} singular;

static an_status singular_of(an_build *b, an_tensor *a, singular *out)
{
    const int rank = an_rank(a);
    *out = (singular){.u = NULL};
    if (rank < 2 || !an_is_float(a)) return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than matrices of floats");
    const bool wide = an_dim(a, rank - 2) < an_dim(a, rank - 1);
    out->u = an_svd_at(AN_AT, wide ? turned(a) : a, &out->s, &out->v);
    if (wide) {
        an_tensor *u = out->u;
        out->u = out->v;
        out->v = u;
    }
    return AN_OK;
}

an_status an_rule_svdvals(an_build *b, const an_pt2_node *n)
{
    singular x;
    AN_TRY(singular_of(b, an_in(b, n, 0), &x));
    if (x.s) an_out(b, n, 0, x.s);
    return AN_OK;
}

/* A full_matrices ...: U, s and V transposed; or self some: V as it is. Vectors are known up to their signs. */
static an_status svd(an_build *b, const an_pt2_node *n, bool square_too, bool v_turned)
{
    an_tensor *a = an_in(b, n, 0);
    singular x;
    AN_TRY(singular_of(b, a, &x));
    const int rank = an_rank(a);
    const int64_t rows = an_dim(a, rank - 2), columns = an_dim(a, rank - 1);
    if (square_too && rows != columns && an_result_read(b, n, rows > columns ? 0 : 2))
        return an_build_refuse(b, AN_E_UNSUPPORTED,
                               "full_matrices=True, whose further columns are read; full_matrices=False is known");
    if (!x.s) return AN_OK; /* recorded */
    if (!square_too || rows <= columns) an_out(b, n, 0, x.u);
    an_out(b, n, 1, x.s);
    if (!square_too || rows >= columns) an_out(b, n, 2, v_turned ? turned(x.v) : x.v);
    return AN_OK;
}

an_status an_rule_svd(an_build *b, const an_pt2_node *n)
{
    return svd(b, n, an_in_bool(b, n, 1), true);
}
an_status an_rule_svd_some(an_build *b, const an_pt2_node *n)
{
    if (!an_in_bool(b, n, 2) && (an_result_read(b, n, 0) || an_result_read(b, n, 2)))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "vectors of compute_uv=False");
    return svd(b, n, !an_in_bool(b, n, 1), false);
}

static double roundoff(const an_tensor *x)
{
    return an_dtype_of(x) == AN_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

/* What a singular value has to be above, [...,1]: atol, or rtol times the largest, the greater. Arguments that are none: 0, and as PyTorch has it. */
static an_status threshold_of(an_build *b, const an_pt2_node *n, an_tensor *a, an_tensor *s, int atol, int rtol,
                              an_tensor **out)
{
    const int rank = an_rank(a), last = an_rank(s) - 1;
    const double most = (double)AN_MAX(an_dim(a, rank - 2), an_dim(a, rank - 1));
    an_tensor *largest = an_max_at(AN_AT, an_detach_at(AN_AT, s), AN_AXIS(last), true), *end[2] = {NULL};
    const int at[2] = {atol, rtol};
    for (int i = 0; i < 2; i++) {
        if (at[i] < 0 || an_in_none(n, at[i])) continue;
        if (!an_in_is_tensor(n, at[i])) {
            end[i] = an_num(s, b->cx, an_in_float(b, n, at[i]));
            continue;
        }
        an_tensor *t = an_as(an_in(b, n, at[i]), an_dtype_of(s));
        an_shape wide = an_shape_of(t);
        if (wide.rank > last)
            return an_build_refuse(b, AN_E_UNSUPPORTED, "a bound of more axes than there are matrices");
        if (wide.rank) wide.dim[wide.rank++] = 1;
        end[i] = an_reshape_at(AN_AT, t, wide);
    }
    /* rtol counts only where there is no atol above 0 */
    an_tensor *relative = end[1] ? end[1] : an_num(s, b->cx, most * roundoff(s)), *zero = an_num(s, b->cx, 0);
    if (end[0] && !end[1]) relative = an_where_at(AN_AT, an_gt_at(AN_AT, end[0], zero), zero, relative);
    relative = an_mul_at(AN_AT, relative, largest);
    *out = an_detach_at(AN_AT, end[0] ? an_maximum_at(AN_AT, end[0], relative) : relative);
    return AN_OK;
}

/* V diag(1 / s) U^T of the singular values above a threshold. The gradient is Golub's and Pereyra's, which needs no gaps between singular
 * values: dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P. */
static an_status pseudo_inverse(an_build *b, const an_pt2_node *n, int atol, int rtol)
{
    an_tensor *a = an_in(b, n, 0), *held = an_detach_at(AN_AT, a), *least = NULL;
    singular x;
    if (an_count(a) == 0) return an_out(b, n, 0, turned(a)), AN_OK;
    AN_TRY(singular_of(b, held, &x));
    if (!x.s) return AN_OK; /* recorded */
    AN_TRY(threshold_of(b, n, a, x.s, atol, rtol, &least));
    an_tensor *some = an_gt_at(AN_AT, x.s, least), *one = an_num(x.s, b->cx, 1), *zero = an_num(x.s, b->cx, 0);
    an_tensor *inverse = an_where_at(AN_AT, some, an_recip_at(AN_AT, an_where_at(AN_AT, some, x.s, one)), zero);
    an_shape row = an_shape_of(inverse);
    row.dim[row.rank] = row.dim[row.rank - 1];
    row.dim[row.rank++ - 1] = 1;
    an_tensor *scaled = an_mul_at(AN_AT, x.v, an_reshape_at(AN_AT, inverse, row));
    an_tensor *p = an_detach_at(AN_AT, an_matmul_at(AN_AT, scaled, turned(x.u)));
    an_tensor *d = an_sub_at(AN_AT, a, held), *dt = turned(d), *pt = turned(p); /* 0, with a's gradient */
    an_tensor *change = an_matmul_at(AN_AT, p, an_matmul_at(AN_AT, d, p));
    an_tensor *rest = an_matmul_at(AN_AT, held, p), *other = an_matmul_at(AN_AT, p, held);
    rest = an_sub_at(AN_AT, unit_matrices(b, rest), rest);
    other = an_sub_at(AN_AT, unit_matrices(b, other), other);
    an_tensor *ppt = an_matmul_at(AN_AT, p, pt), *ptp = an_matmul_at(AN_AT, pt, p);
    an_tensor *left = an_matmul_at(AN_AT, ppt, an_matmul_at(AN_AT, dt, rest));
    an_tensor *right = an_matmul_at(AN_AT, an_matmul_at(AN_AT, other, dt), ptp);
    an_tensor *moved = an_sub_at(AN_AT, p, change), *sum = an_add_at(AN_AT, left, right);
    an_out(b, n, 0, an_add_at(AN_AT, moved, sum));
    return AN_OK;
}

an_status an_rule_pinv(an_build *b, const an_pt2_node *n)
{
    return pseudo_inverse(b, n, -1, 1);
}
an_status an_rule_pinv_bounds(an_build *b, const an_pt2_node *n)
{
    return pseudo_inverse(b, n, 1, 2);
}

/* How many singular values are above a threshold. */
static an_status matrix_rank(an_build *b, const an_pt2_node *n, int atol, int rtol)
{
    an_tensor *a = an_detach_at(AN_AT, an_in(b, n, 0)), *least = NULL;
    singular x;
    AN_TRY(singular_of(b, a, &x));
    if (!x.s) return AN_OK; /* recorded */
    if (an_count(a) == 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "of no elements");
    AN_TRY(threshold_of(b, n, a, x.s, atol, rtol, &least));
    an_tensor *some = an_as(an_gt_at(AN_AT, x.s, least), AN_I32);
    an_out(b, n, 0, an_sum_at(AN_AT, some, AN_AXIS(an_rank(some) - 1), false));
    return AN_OK;
}

an_status an_rule_matrix_rank(an_build *b, const an_pt2_node *n)
{
    return matrix_rank(b, n, 1, -1);
}
an_status an_rule_matrix_rank_bounds(an_build *b, const an_pt2_node *n)
{
    return matrix_rank(b, n, 1, 2);
}

/* Where sums of matrices' elements run: the norm `p` of the last two axes, which stay with length 1. */
static an_status norm_of_matrices(an_build *b, an_tensor *a, double p, bool nuclear, an_tensor **out)
{
    const int rank = an_rank(a);
    if (nuclear || fabs(p) == 2) {
        singular x;
        AN_TRY(singular_of(b, a, &x));
        if (!x.s) return *out = NULL, AN_OK; /* recorded */
        const an_axes last = AN_AXIS(an_rank(x.s) - 1);
        an_shape one = an_shape_of(a);
        one.dim[rank - 1] = one.dim[rank - 2] = 1;
        an_tensor *y = nuclear ? an_sum_at(AN_AT, x.s, last, true)
                       : p > 0 ? slice_of(x.s, rank - 2, 0, 1)
                               : slice_of(x.s, rank - 2, an_dim(x.s, rank - 2) - 1, an_dim(x.s, rank - 2));
        *out = an_reshape_at(AN_AT, y, one);
        return AN_OK;
    }
    if (!isinf(p) && fabs(p) != 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "ord=%g of matrices", p);
    const int along = isinf(p) ? rank - 1 : rank - 2;
    an_tensor *sum = an_sum_at(AN_AT, an_abs_at(AN_AT, a), AN_AXIS(along), true);
    const an_axes over = AN_AXIS(isinf(p) ? rank - 2 : rank - 1);
    *out = p > 0 ? an_max_at(AN_AT, sum, over, true) : an_min_at(AN_AT, sum, over, true);
    return AN_OK;
}

/* self ord dim keepdim dtype, over two axes, which are brought behind the others and back. */
an_status an_rule_norm_of_matrices(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_as_result(b, n, 0, an_in(b, n, 0)), *y = NULL;
    const int rank = an_rank(a);
    int64_t named[8] = {-2, -1};
    const int count = an_in_none(n, 2) ? 2 : an_in_ints(b, n, 2, named, 8);
    const bool nuclear = n->arg[1].text && strcmp(n->arg[1].text, "nuc") == 0;
    if (n->arg[1].text && !nuclear)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "ord='%.20s' of matrices", n->arg[1].text);
    const int row = rank < 2 ? 8 : an_wrap_axis(named[0], rank), column = rank < 2 ? 8 : an_wrap_axis(named[1], rank);
    if (count != 2 || row >= rank || column >= rank || row == column)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "over other than two axes");
    an_shape order = {.rank = rank}, back = {.rank = rank}, kept = an_shape_of(a);
    int at = 0;
    for (int i = 0; i < rank; i++)
        if (i != row && i != column) order.dim[at++] = i;
    order.dim[at++] = row;
    order.dim[at] = column;
    for (int i = 0; i < rank; i++) back.dim[order.dim[i]] = i;
    AN_TRY(norm_of_matrices(b, an_permute_at(AN_AT, a, order), nuclear ? 0 : an_in_float(b, n, 1), nuclear, &y));
    if (!y) return AN_OK; /* recorded */
    y = an_permute_at(AN_AT, y, back);
    if (!an_in_bool(b, n, 3)) {
        at = 0;
        for (int i = 0; i < rank; i++)
            if (i != row && i != column) kept.dim[at++] = kept.dim[i];
        kept.rank = at;
        y = an_reshape_at(AN_AT, y, kept);
    }
    an_out(b, n, 0, an_as(y, an_out_dtype(b, n, 0)));
    return AN_OK;
}

/* self p: the largest singular value over the least, or the other way round */
an_status an_rule_cond(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_in(b, n, 0);
    const double p = an_in_none(n, 1) ? 2 : an_in_float(b, n, 1);
    singular x;
    if (n->arg[1].text || fabs(p) != 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "p other than None, 2 and -2");
    AN_TRY(singular_of(b, a, &x));
    if (!x.s) return AN_OK; /* recorded */
    const int axis = an_rank(x.s) - 1;
    const int64_t k = an_dim(x.s, axis);
    an_tensor *most = slice_of(x.s, axis, 0, 1), *least = slice_of(x.s, axis, k - 1, k);
    an_out(b, n, 0, as_numbers(p > 0 ? an_div_at(AN_AT, most, least) : an_div_at(AN_AT, least, most), a));
    return AN_OK;
}

/* ---- exponentials */

/* Powers up to the 18th of the matrix halved until its norm is below 1, squared as often: up to 16 times, each where it is needed. */
an_status an_rule_matrix_exp(an_build *b, const an_pt2_node *n)
{
    enum { TERMS = 18, SQUARES = 16 };
    an_tensor *a = an_in(b, n, 0), *norm = NULL;
    AN_TRY(square(b, a));
    if (an_count(a) == 0) return an_out(b, n, 0, a), AN_OK;
    AN_TRY(norm_of_matrices(b, an_detach_at(AN_AT, a), 1, false, &norm));
    an_tensor *half = an_num(a, b->cx, 1), *one = an_num(a, b->cx, 1), *need[SQUARES];
    for (int k = 0; k < SQUARES; k++) {
        need[k] = an_gt_at(AN_AT, norm, an_num(a, b->cx, ldexp(1, k)));
        half = an_mul_at(AN_AT, half, an_where_at(AN_AT, need[k], an_num(a, b->cx, 0.5), one));
    }
    an_tensor *x = an_mul_at(AN_AT, a, half), *unit = unit_matrices(b, a), *y = unit;
    for (int k = TERMS; k > 0; k--) {
        an_tensor *term = k == TERMS ? x : an_matmul_at(AN_AT, x, y);
        y = an_add_at(AN_AT, unit, an_mul_num_at(AN_AT, term, 1.0 / k));
    }
    for (int k = 0; k < SQUARES; k++) y = an_where_at(AN_AT, need[k], an_matmul_at(AN_AT, y, y), y);
    an_out(b, n, 0, y);
    return AN_OK;
}

/* self A upper transpose unitriangular: the X of A X = self, and A */
an_status an_rule_triangular_solve(an_build *b, const an_pt2_node *n)
{
    an_tensor *y = an_in(b, n, 0), *a = an_in(b, n, 1);
    AN_TRY(square(b, a));
    if (an_in_bool(b, n, 4)) return an_build_refuse(b, AN_E_UNSUPPORTED, "unitriangular=True");
    bool fit = an_rank(y) == an_rank(a);
    for (int i = 0; fit && i < an_rank(a) - 2; i++) fit = an_dim(a, i) == an_dim(y, i);
    if (!fit) return an_build_refuse(b, AN_E_UNSUPPORTED, "one matrix for several right sides");
    an_out(b, n, 0, an_trisolve_at(AN_AT, a, y, an_in_bool(b, n, 2), an_in_bool(b, n, 3)));
    an_out(b, n, 1, a);
    return AN_OK;
}
