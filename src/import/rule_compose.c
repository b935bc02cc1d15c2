/* rule_compose.c: operations of PyTorch that are a few others: products of several tensors, tensors beside one another, grids.
 * (einsum, matmul: rule_nn.c; cat, stack: rule_shape.c; linear equations: rule_matrix.c) */
#include "import/rules.h"
#include <math.h>
#include <string.h>

enum { MOST_PARTS = 64 };

/* ---- beside one another */

/* x with at least `rank` axes, as numpy has them: a row is [1,n], or [1,n,1] of three axes; a matrix [m,n,1]. */
static an_tensor *at_least(an_tensor *x, int rank)
{
    const an_shape s = an_shape_of(x);
    an_shape out = {.rank = rank, .dim = {1, 1, 1}};
    if (s.rank >= rank) return x;
    const int at = s.rank == 1 && rank > 1 ? 1 : 0;
    for (int i = 0; i < s.rank; i++) out.dim[at + i] = s.dim[i];
    return an_reshape_at(AN_AT, x, out);
}

/* The tensors of argument 0, of one dtype and of at least `rank` axes; their number, 0: refused. */
static int parts_of(an_build *b, const an_pt2_node *n, int rank, an_tensor **part)
{
    const int count = an_in_count(n, 0);
    if (count < 1 || count > MOST_PARTS)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "%d tensors; 1 to %d are known", count, MOST_PARTS), 0;
    for (int k = 0; k < count; k++) {
        an_tensor *x = an_in_list(b, n, 0, k);
        if (!x) return an_build_refuse(b, AN_E_IO, "part %d is no tensor; the file is damaged", k), 0;
        part[k] = at_least(x, rank);
        if (k > 0) an_promote(&part[0], &part[k]);
    }
    for (int k = 1; k < count; k++) part[k] = an_as(part[k], an_dtype_of(part[0]));
    return count;
}

static an_status beside(an_build *b, const an_pt2_node *n, int rank, int axis)
{
    an_tensor *part[MOST_PARTS];
    const int count = parts_of(b, n, rank, part);
    if (count == 0) return b->err->code;
    an_out(b, n, 0, an_concat_at(AN_AT, part, count, an_rank(part[0]) > axis ? axis : 0));
    return AN_OK;
}

an_status an_rule_hstack(an_build *b, const an_pt2_node *n)
{
    return beside(b, n, 1, 1);
}
an_status an_rule_vstack(an_build *b, const an_pt2_node *n)
{
    return beside(b, n, 2, 0);
}
an_status an_rule_dstack(an_build *b, const an_pt2_node *n)
{
    return beside(b, n, 3, 2);
}

/* Lists as columns. */
an_status an_rule_column_stack(an_build *b, const an_pt2_node *n)
{
    an_tensor *part[MOST_PARTS];
    const int count = parts_of(b, n, 0, part);
    if (count == 0) return b->err->code;
    for (int k = 0; k < count; k++)
        if (an_rank(part[k]) < 2) part[k] = an_reshape_at(AN_AT, part[k], AN_SHAPE(an_count(part[k]), 1));
    an_out(b, n, 0, an_concat_at(AN_AT, part, count, 1));
    return AN_OK;
}

an_status an_rule_at_least(an_build *b, const an_pt2_node *n)
{
    const int rank = strstr(n->target, "3d") ? 3 : strstr(n->target, "2d") ? 2 : 1;
    if (an_in_is_tensor(n, 0)) return an_out(b, n, 0, at_least(an_in(b, n, 0), rank)), AN_OK;
    for (int k = 0; k < an_in_count(n, 0); k++) an_out(b, n, k, at_least(an_in_list(b, n, 0, k), rank));
    return AN_OK;
}

/* Matrices along a diagonal, zeros elsewhere. */
an_status an_rule_block_diag(an_build *b, const an_pt2_node *n)
{
    an_tensor *part[MOST_PARTS];
    const int count = parts_of(b, n, 2, part);
    if (count == 0) return b->err->code;
    int64_t columns = 0, before = 0;
    for (int k = 0; k < count; k++) columns += an_dim(part[k], 1);
    for (int k = 0; k < count; k++) {
        const int64_t own = an_dim(part[k], 1);
        part[k] = an_pad_at(AN_AT, part[k], 1, before, columns - before - own, 0);
        before += own;
    }
    an_out(b, n, 0, an_concat_at(AN_AT, part, count, 0));
    return AN_OK;
}

/* List k along axis k of a grid. indexing="xy" exchanges the first two axes. */
an_status an_rule_meshgrid(an_build *b, const an_pt2_node *n)
{
    an_tensor *part[MOST_PARTS];
    const int count = parts_of(b, n, 1, part);
    if (count == 0) return b->err->code;
    if (count > 8) return an_build_refuse(b, AN_E_UNSUPPORTED, "a grid of %d axes; 8 are the most", count);
    const bool turned = n->arg[1].text && strcmp(n->arg[1].text, "xy") == 0 && count > 1;
    an_shape all = {.rank = count};
    for (int k = 0; k < count; k++) all.dim[turned && k < 2 ? 1 - k : k] = an_count(part[k]);
    for (int k = 0; k < count; k++) {
        an_shape own = {.rank = count, .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
        own.dim[turned && k < 2 ? 1 - k : k] = an_count(part[k]);
        an_out(b, n, k, an_expand_at(AN_AT, an_reshape_at(AN_AT, part[k], own), all));
    }
    return AN_OK;
}

/* All choices of one element of each list, a row each. */
an_status an_rule_cartesian_prod(an_build *b, const an_pt2_node *n)
{
    an_tensor *part[MOST_PARTS];
    const int count = parts_of(b, n, 1, part);
    if (count == 0) return b->err->code;
    if (count == 1) return an_out(b, n, 0, part[0]), AN_OK;
    if (count > 7) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d lists; 7 are the most", count);
    an_shape all = {.rank = count};
    int64_t rows = 1;
    for (int k = 0; k < count; k++) {
        all.dim[k] = an_count(part[k]);
        if (rows > INT32_MAX / AN_MAX(all.dim[k], 1))
            return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 2^31 rows");
        rows *= all.dim[k];
    }
    for (int k = 0; k < count; k++) {
        an_shape own = {.rank = count, .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
        own.dim[k] = all.dim[k];
        an_tensor *grid = an_expand_at(AN_AT, an_reshape_at(AN_AT, part[k], own), all);
        part[k] = an_reshape_at(AN_AT, grid, AN_SHAPE(rows, 1));
    }
    an_out(b, n, 0, an_concat_at(AN_AT, part, count, 1));
    return AN_OK;
}

/* ---- products */

/* Each axis of x by the same of y, those of the shorter one in front being 1: [a,b] and [c,d] are [a c, b d]. */
an_status an_rule_kron(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    const an_shape sx = an_shape_of(x), sy = an_shape_of(y);
    const int rank = AN_MAX(sx.rank, sy.rank);
    an_shape ox = {.rank = 2 * rank}, oy = {.rank = 2 * rank}, out = {.rank = rank};
    if (rank > 4) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes; four are the most", rank);
    for (int i = 0; i < rank; i++) {
        const int ix = i - (rank - sx.rank), iy = i - (rank - sy.rank);
        ox.dim[2 * i] = ix < 0 ? 1 : sx.dim[ix];
        ox.dim[2 * i + 1] = oy.dim[2 * i] = 1;
        oy.dim[2 * i + 1] = iy < 0 ? 1 : sy.dim[iy];
        out.dim[i] = ox.dim[2 * i] * oy.dim[2 * i + 1];
    }
    x = an_as_number(x);
    y = an_as_number(y);
    an_promote(&x, &y);
    x = an_reshape_at(AN_AT, x, ox);
    y = an_reshape_at(AN_AT, y, oy);
    y = an_reshape_at(AN_AT, an_mul_at(AN_AT, x, y), out);
    an_out(b, n, 0, an_out_dtype(b, n, 0) == AN_BOOL ? an_as(y, AN_BOOL) : y);
    return AN_OK;
}

/* x's axes `of_x` against y's axes `of_y`, which are summed; the others of x, then those of y, remain. All are there, and each once. */
static an_tensor *contracted(an_build *b, an_tensor *x, an_tensor *y, const an_shape *of_x, const an_shape *of_y)
{
    const an_shape sx = an_shape_of(x), sy = an_shape_of(y);
    an_shape px = {.rank = sx.rank}, py = {.rank = sy.rank}, out = {.rank = 0};
    int64_t rows = 1, columns = 1, sum = 1;
    int at = 0;
    an_axes gone_x = 0, gone_y = 0;
    for (int k = 0; k < of_x->rank; k++) {
        gone_x |= AN_AXIS(an_wrap_axis(of_x->dim[k], sx.rank));
        gone_y |= AN_AXIS(an_wrap_axis(of_y->dim[k], sy.rank));
    }
    for (int i = 0; i < sx.rank; i++)
        if (!(gone_x >> i & 1)) px.dim[at++] = i, rows *= out.dim[out.rank++] = sx.dim[i];
    for (int k = 0; k < of_x->rank; k++) {
        px.dim[at++] = an_wrap_axis(of_x->dim[k], sx.rank);
        sum *= sx.dim[px.dim[at - 1]];
    }
    at = 0;
    for (int k = 0; k < of_y->rank; k++) py.dim[at++] = an_wrap_axis(of_y->dim[k], sy.rank);
    for (int i = 0; i < sy.rank; i++)
        if (!(gone_y >> i & 1)) py.dim[at++] = i, columns *= out.dim[out.rank++] = sy.dim[i];
    x = an_reshape_at(AN_AT, an_permute_at(AN_AT, x, px), AN_SHAPE(rows, sum));
    y = an_reshape_at(AN_AT, an_permute_at(AN_AT, y, py), AN_SHAPE(sum, columns));
    return an_reshape_at(AN_AT, an_product(b, x, y), out);
}

/* Whether each of `axes` is an axis of s, and named once. */
static bool are_axes(const an_shape *axes, const an_shape *s)
{
    an_axes seen = 0;
    for (int k = 0; k < axes->rank; k++) {
        const int axis = an_wrap_axis(axes->dim[k], s->rank);
        if (axis >= s->rank || (seen >> axis & 1)) return false;
        seen |= AN_AXIS(axis);
    }
    return true;
}

an_status an_rule_tensordot(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    const an_shape of_x = an_in_shape(b, n, 2), of_y = an_in_shape(b, n, 3), sx = an_shape_of(x), sy = an_shape_of(y);
    if (!are_axes(&of_x, &sx) || !are_axes(&of_y, &sy))
        return an_build_refuse(b, AN_E_IO, "axes that are not there, or twice; the file is damaged");
    if (of_x.rank != of_y.rank || an_rank(x) + an_rank(y) - 2 * of_x.rank > 8)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "a result of more than 8 axes, or axes without a partner");
    for (int k = 0; k < of_x.rank; k++)
        if (an_dim(x, an_wrap_axis(of_x.dim[k], sx.rank)) != an_dim(y, an_wrap_axis(of_y.dim[k], sy.rank)))
            return an_build_refuse(b, AN_E_UNSUPPORTED, "axes of unequal lengths");
    an_out(b, n, 0, contracted(b, x, y, &of_x, &of_y));
    return AN_OK;
}

/* The last axes of both, summed. */
an_status an_rule_inner(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    const an_shape last = AN_SHAPE(-1);
    if (an_rank(x) == 0 || an_rank(y) == 0) {
        an_promote(&x, &y);
        return an_out(b, n, 0, an_mul_at(AN_AT, x, y)), AN_OK;
    }
    if (an_rank(x) + an_rank(y) - 2 > 8) return an_build_refuse(b, AN_E_UNSUPPORTED, "a result of more than 8 axes");
    an_out(b, n, 0, contracted(b, x, y, &last, &last));
    return AN_OK;
}

an_status an_rule_vecdot(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    an_promote(&x, &y);
    an_tensor *p = an_mul_at(AN_AT, x, y);
    an_out(b, n, 0, an_sum_at(AN_AT, p, AN_AXIS(an_wrap_axis(an_in_int(b, n, 2), an_rank(p))), false));
    return AN_OK;
}

/* One product after the other, from the left. A vector in front is a row, at the end a column. */
an_status an_rule_multi_dot(an_build *b, const an_pt2_node *n)
{
    an_tensor *part[MOST_PARTS];
    const int count = parts_of(b, n, 0, part);
    if (count == 0) return b->err->code;
    const bool row = an_rank(part[0]) == 1, column = an_rank(part[count - 1]) == 1;
    if (row) part[0] = an_reshape_at(AN_AT, part[0], AN_SHAPE(1, an_count(part[0])));
    if (column) part[count - 1] = an_reshape_at(AN_AT, part[count - 1], AN_SHAPE(an_count(part[count - 1]), 1));
    an_tensor *x = part[0];
    for (int k = 1; k < count; k++) x = an_product(b, x, part[k]);
    an_shape out = {.rank = 0};
    if (!row) out.dim[out.rank++] = an_dim(x, 0);
    if (!column) out.dim[out.rank++] = an_dim(x, 1);
    an_out(b, n, 0, an_reshape_at(AN_AT, x, out));
    return AN_OK;
}

/* beta c + alpha p, where beta of 0 leaves c out. */
static void accumulated(an_build *b, const an_pt2_node *n, an_tensor *c, an_tensor *p)
{
    const double beta = an_in_float(b, n, 3), alpha = an_in_float(b, n, 4);
    if (alpha != 1) p = an_mul_num_at(AN_AT, p, alpha);
    if (beta != 1) c = an_mul_num_at(AN_AT, c, beta);
    an_promote(&c, &p);
    p = beta == 0 ? p : an_add_at(AN_AT, c, p);
    an_out(b, n, 0, an_out_dtype(b, n, 0) == AN_BOOL ? an_as(p, AN_BOOL) : p);
}

an_status an_rule_addr(an_build *b, const an_pt2_node *n)
{
    an_tensor *c = an_as_number(an_in(b, n, 0)), *x = an_as_number(an_in(b, n, 1)), *y = an_as_number(an_in(b, n, 2));
    an_promote(&x, &y);
    y = an_reshape_at(AN_AT, y, AN_SHAPE(1, an_count(y)));
    accumulated(b, n, c, an_mul_at(AN_AT, an_reshape_at(AN_AT, x, AN_SHAPE(an_count(x), 1)), y));
    return AN_OK;
}

an_status an_rule_addbmm(an_build *b, const an_pt2_node *n)
{
    an_tensor *c = an_in(b, n, 0), *x = an_in(b, n, 1), *y = an_in(b, n, 2);
    accumulated(b, n, c, an_sum_at(AN_AT, an_product(b, x, y), AN_AXIS(0), false));
    return AN_OK;
}

/* Vectors of length 3 along an axis: x1 y2 - x2 y1 and the two others. Without an axis, the first of that length. */
an_status an_rule_cross(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1), *part[3];
    const int rank = AN_MAX(an_rank(x), an_rank(y));
    an_promote(&x, &y);
    int axis = an_in_none(n, 2) ? 0 : an_wrap_axis(an_in_int(b, n, 2), rank);
    while (an_in_none(n, 2) && axis < rank - 1 && an_dim(x, axis) != 3) axis++;
    if (an_rank(x) != an_rank(y) || axis >= rank || an_dim(x, axis) != 3)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "other than vectors of length 3 with as many axes");
    for (int k = 0; k < 3; k++) {
        const int i = (k + 1) % 3, j = (k + 2) % 3;
        an_tensor *xi = an_slice_at(AN_AT, x, axis, i, i + 1, 1), *yj = an_slice_at(AN_AT, y, axis, j, j + 1, 1);
        an_tensor *xj = an_slice_at(AN_AT, x, axis, j, j + 1, 1), *yi = an_slice_at(AN_AT, y, axis, i, i + 1, 1);
        an_tensor *first = an_mul_at(AN_AT, xi, yj);
        part[k] = an_sub_at(AN_AT, first, an_mul_at(AN_AT, xj, yi));
    }
    an_out(b, n, 0, an_concat_at(AN_AT, part, 3, axis));
    return AN_OK;
}

/* ---- along an axis */

/* (y[i] + y[i + 1]) / 2 times the distance of the two. */
static an_tensor *strips(an_build *b, const an_pt2_node *n, an_tensor *y, int axis)
{
    const int64_t length = an_dim(y, axis);
    an_tensor *high = an_slice_at(AN_AT, y, axis, 1, length, 1), *low = an_slice_at(AN_AT, y, axis, 0, length - 1, 1);
    an_tensor *mean = an_mul_num_at(AN_AT, an_add_at(AN_AT, high, low), 0.5);
    if (!an_in_is_tensor(n, 1)) return an_mul_num_at(AN_AT, mean, an_in_float(b, n, 1));
    an_tensor *x = an_in(b, n, 1);
    const bool list = an_rank(x) == 1;
    const int at = list ? 0 : an_rank(x) - (an_rank(y) - axis);
    an_tensor *right = an_slice_at(AN_AT, x, at, 1, an_dim(x, at), 1);
    an_tensor *d = an_sub_at(AN_AT, right, an_slice_at(AN_AT, x, at, 0, an_dim(x, at) - 1, 1));
    an_shape s = {.rank = an_rank(y), .dim = {1, 1, 1, 1, 1, 1, 1, 1}};
    s.dim[axis] = length - 1;
    if (list) d = an_reshape_at(AN_AT, d, s);
    an_promote(&mean, &d);
    return an_mul_at(AN_AT, mean, d);
}

static an_status trapezoid(an_build *b, const an_pt2_node *n, bool running)
{
    an_tensor *y = an_as_result(b, n, 0, an_in(b, n, 0));
    const int rank = an_rank(y), axis = an_wrap_axis(an_in_int(b, n, 2), rank);
    if (rank == 0 || axis >= rank || an_dim(y, axis) < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "of no points");
    if (an_in_is_tensor(n, 1) &&
        (an_rank(an_in(b, n, 1)) < 1 || (an_rank(an_in(b, n, 1)) != 1 && an_rank(an_in(b, n, 1)) != rank)))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "points of other axes than the values have");
    an_tensor *parts = strips(b, n, y, axis);
    if (running) {
        an_tensor *rows = an_axis_last(parts, axis);
        an_out(b, n, 0, an_axis_last(an_cumsum_at(AN_AT, rows, false), axis));
    } else {
        an_out(b, n, 0, an_sum_at(AN_AT, parts, AN_AXIS(axis), false));
    }
    return AN_OK;
}

an_status an_rule_trapezoid(an_build *b, const an_pt2_node *n)
{
    return trapezoid(b, n, false);
}
an_status an_rule_cumulative_trapezoid(an_build *b, const an_pt2_node *n)
{
    return trapezoid(b, n, true);
}

an_tensor *an_between(an_build *b, an_tensor *x, an_tensor *y, an_tensor *part)
{
    an_tensor *d = an_sub_at(AN_AT, y, x), *rest = an_add_num_at(AN_AT, an_neg_at(AN_AT, part), 1);
    an_tensor *up = an_add_at(AN_AT, x, an_mul_at(AN_AT, d, part)),
              *down = an_sub_at(AN_AT, y, an_mul_at(AN_AT, d, rest));
    return an_where_at(AN_AT, an_lt_at(AN_AT, part, an_num(part, b->cx, 0.5)), up, down);
}

/* Between two neighbours in order: q (n - 1) of the way. q is one number or a list, whose axis comes first. NaN where a row has one. */
an_status an_rule_quantile(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *at = NULL;
    const bool flat = an_in_none(n, 2), keep = an_in_bool(b, n, 3);
    if (n->arg[4].text && strcmp(n->arg[4].text, "linear") != 0)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "interpolation=%.20s; linear is known", n->arg[4].text);
    const an_shape s = an_shape_of(x);
    const int axis = flat ? 0 : an_wrap_axis(an_in_int(b, n, 2), s.rank);
    if (flat) x = an_reshape_1(x, an_count(x));
    const int rank = an_rank(x);
    if (axis >= rank || an_dim(x, axis) < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "of no elements");
    const int list = an_in_is_tensor(n, 1) ? an_rank(an_in(b, n, 1)) : 0;
    if (list > 1 || list + (keep ? s.rank : rank - 1) > 8)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "q of %d axes, or a result of more than 8", list);
    an_tensor *rows = an_sort_at(AN_AT, an_axis_last(x, axis), false, &at); /* [...,n], another order of the others */
    an_shape first = {.rank = rank, .dim = {rank - 1}};
    for (int i = 1; i < rank; i++) first.dim[i] = i - 1;
    rows = an_permute_at(AN_AT, rows, first); /* [n,...] */
    an_tensor *q =
        an_in_is_tensor(n, 1) ? an_as(an_in(b, n, 1), an_dtype_of(x)) : an_num(x, b->cx, an_in_float(b, n, 1));
    an_tensor *place = an_mul_num_at(AN_AT, q, (double)(an_dim(rows, 0) - 1)), *low = an_floor_at(AN_AT, place);
    an_tensor *part = an_sub_at(AN_AT, place, low), *index = an_as(low, AN_I32);
    an_tensor *above = an_as(an_neg_at(AN_AT, an_floor_at(AN_AT, an_neg_at(AN_AT, place))), AN_I32);
    an_tensor *from = an_gather_at(AN_AT, rows, index), *to = an_gather_at(AN_AT, rows, above); /* [Q or none, ...] */
    an_shape wide = an_shape_of(from), out = {.rank = 0};
    for (int i = list; i < wide.rank; i++) wide.dim[i] = 1;
    an_tensor *y = an_between(b, from, to, an_reshape_at(AN_AT, part, wide));
    an_shape rest = an_shape_of(rows); /* NaN is sorted behind all numbers */
    an_tensor *last = an_slice_at(AN_AT, rows, 0, rest.dim[0] - 1, rest.dim[0], 1);
    rest.rank--;
    memmove(rest.dim, rest.dim + 1, (size_t)rest.rank * sizeof rest.dim[0]);
    last = an_reshape_at(AN_AT, last, rest);
    y = an_where_at(AN_AT, an_ne_at(AN_AT, last, last), last, y);
    if (!flat &&
        axis != rank - 1) { /* the axis that took the sorted one's place goes back: rows are [.., last at `axis`, ..] */
        an_shape back = {.rank = an_rank(y)};
        for (int i = 0; i < list; i++) back.dim[i] = i;
        for (int i = 0, k = list; i < rank; i++) {
            if (i == axis) continue;
            back.dim[k++] = list + (i == rank - 1 ? axis : i);
        }
        y = an_permute_at(AN_AT, y, back);
    }
    if (list) out.dim[out.rank++] = an_dim(y, 0);
    for (int i = 0; i < s.rank; i++)
        if (flat || i == axis ? keep : true) out.dim[out.rank++] = flat || i == axis ? 1 : s.dim[i];
    an_out(b, n, 0, an_reshape_at(AN_AT, y, out));
    return AN_OK;
}

/* ---- other */

/* Written into `out`, which the result is from then on (an_aten_written). */
an_status an_rule_div_out(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1), *out = an_in(b, n, 2);
    an_promote(&x, &y);
    an_tensor *q = an_div_at(AN_AT, x, y);
    if (an_count(q) != an_count(out)) return an_build_refuse(b, AN_E_UNSUPPORTED, "out= of another shape");
    an_out(b, n, 0, an_reshape_at(AN_AT, q, an_shape_of(out)));
    return AN_OK;
}

/* The elements of the main diagonal; with `wrap` it begins again below a tall matrix's end. */
an_status an_rule_fill_diagonal(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x);
    if (s.rank != 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes; two are known", s.rank);
    an_tensor *row = an_iota_at(AN_AT, b->cx, s, 0), *column = an_iota_at(AN_AT, b->cx, s, 1);
    if (an_in_bool(b, n, 2)) row = an_imod_at(AN_AT, row, an_num(row, b->cx, (double)(s.dim[1] + 1)));
    an_tensor *value = an_num(x, b->cx, an_in_float(b, n, 1));
    an_out(b, n, 0, an_where_at(AN_AT, an_eq_at(AN_AT, row, column), value, x));
    return AN_OK;
}

/* Up to down along the first axis, left to right along the second. */
an_status an_rule_flip_first(an_build *b, const an_pt2_node *n)
{
    an_out(b, n, 0, an_flip_at(AN_AT, an_in(b, n, 0), AN_AXIS(strstr(n->target, "lr") ? 1 : 0)));
    return AN_OK;
}

/* window_length periodic alpha beta: alpha - beta cos(2 pi i / length), a length less by one where it is not periodic. */
an_status an_rule_cosine_window(an_build *b, const an_pt2_node *n)
{
    const int64_t length = an_in_int(b, n, 0);
    const an_dtype dtype = an_out_dtype(b, n, 0);
    if (length < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "of no elements");
    const double turns = (double)(an_in_bool(b, n, 1) ? length : length - 1);
    an_tensor *i = an_as(an_iota_at(AN_AT, b->cx, AN_SHAPE(length), 0), dtype == AN_F64 ? AN_F64 : AN_F32);
    an_tensor *wave = an_cos_at(AN_AT, an_mul_num_at(AN_AT, i, 2 * 3.14159265358979323846 / AN_MAX(turns, 1)));
    an_tensor *y = an_add_num_at(AN_AT, an_mul_num_at(AN_AT, wave, -an_in_float(b, n, 3)), an_in_float(b, n, 2));
    an_out(b, n, 0, an_as(length == 1 ? an_full_at(AN_AT, b->cx, an_dtype_of(y), AN_SHAPE(1), 1) : y, dtype));
    return AN_OK;
}

/* Coordinates from -1 to 1 of a grid of `length`: of the corners, or of the middles of its cells. */
static an_tensor *coordinates(an_build *b, int64_t length, bool corners, an_dtype dtype)
{
    an_tensor *i = an_as(an_iota_at(AN_AT, b->cx, AN_SHAPE(length), 0), dtype);
    if (length == 1) return an_mul_num_at(AN_AT, i, 0);
    if (corners) return an_add_num_at(AN_AT, an_mul_num_at(AN_AT, i, 2 / (double)(length - 1)), -1);
    return an_add_num_at(AN_AT, an_mul_num_at(AN_AT, i, 2 / (double)length), 1 / (double)length - 1);
}

/* theta [N,2,3] size [N,C,H,W] align_corners: theta (x, y, 1) at each place; of three axes theta [N,3,4]. */
an_status an_rule_affine_grid(an_build *b, const an_pt2_node *n)
{
    an_tensor *theta = an_in(b, n, 0), *part[4];
    const an_shape s = an_in_shape(b, n, 1);
    const int axes = s.rank - 2;
    if ((axes != 2 && axes != 3) || an_rank(theta) != 3 || an_dim(theta, 1) != axes || an_dim(theta, 2) != axes + 1)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "other than a matrix [2,3] or [3,4] an image");
    an_shape all = {.rank = axes + 1}, out = {.rank = axes + 2, .dim = {s.dim[0]}};
    int64_t places = 1;
    for (int k = 0; k < axes; k++) {
        if (s.dim[2 + k] < 1 || s.dim[2 + k] > INT32_MAX / places)
            return an_build_refuse(b, AN_E_IO, "of no places, or more than 2^31; the file is damaged");
        places *= all.dim[k] = out.dim[1 + k] = s.dim[2 + k];
    }
    all.dim[axes] = 1;
    out.dim[axes + 1] = axes;
    for (int k = 0; k < axes; k++) { /* the last axis comes first */
        an_shape own = {.rank = axes + 1, .dim = {1, 1, 1, 1}};
        own.dim[axes - 1 - k] = s.dim[1 + axes - k];
        an_tensor *line = coordinates(b, s.dim[1 + axes - k], an_in_bool(b, n, 2), an_dtype_of(theta));
        part[k] = an_expand_at(AN_AT, an_reshape_at(AN_AT, line, own), all);
    }
    part[axes] = an_full_at(AN_AT, b->cx, an_dtype_of(theta), all, 1);
    an_tensor *grid = an_reshape_at(AN_AT, an_concat_at(AN_AT, part, axes + 1, axes), AN_SHAPE(1, places, axes + 1));
    grid = an_expand_at(AN_AT, grid, AN_SHAPE(s.dim[0], places, axes + 1));
    an_out(b, n, 0, an_reshape_at(AN_AT, an_matmul_at(AN_AT, grid, an_transpose_at(AN_AT, theta, 1, 2)), out));
    return AN_OK;
}
