/* rule_distance.c: operations of PyTorch over pairs: distances, bilinear forms, samples of an image at places that are computed, and
 * maxima of windows whose sizes differ. */
#include "import/rules.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- distances */

/* (sum |d|^p)^(1/p) over the last axis; the gradient at a distance of 0 is 0. */
static an_tensor *length_of(an_build *b, an_tensor *d, double p, bool keep)
{
    an_tensor *a = an_abs_at(AN_AT, d), *zero = an_num(d, b->cx, 0), *sum;
    if (isinf(p)) return an_max_at(AN_AT, a, AN_AXIS(-1), keep);
    if (p == 1) return an_sum_at(AN_AT, a, AN_AXIS(-1), keep);
    if (p == 0) return an_sum_at(AN_AT, an_cast_at(AN_AT, an_ne_at(AN_AT, d, zero), an_dtype_of(d)), AN_AXIS(-1), keep);
    if (p == 2) {
        sum = an_sum_at(AN_AT, an_square_at(AN_AT, d), AN_AXIS(-1), keep);
    } else {
        an_tensor *none = an_eq_at(AN_AT, a, zero), *safe = an_where_at(AN_AT, none, an_num(d, b->cx, 1), a);
        an_tensor *power = an_pow_at(AN_AT, safe, an_num(d, b->cx, p));
        sum = an_sum_at(AN_AT, an_where_at(AN_AT, none, zero, power), AN_AXIS(-1), keep);
    }
    an_tensor *none = an_eq_at(AN_AT, sum, zero), *safe = an_where_at(AN_AT, none, an_num(d, b->cx, 1), sum);
    an_tensor *root = p == 2 ? an_sqrt_at(AN_AT, safe) : an_pow_at(AN_AT, safe, an_num(d, b->cx, 1 / p));
    return an_where_at(AN_AT, none, zero, root);
}

/* x1 [...,P,M], x2 [...,R,M]: their differences [...,P,R,M]. */
static an_status differences(an_build *b, const an_pt2_node *n, int first, an_tensor **out)
{
    an_tensor *x = an_in(b, n, first), *y = an_in(b, n, first + 1);
    an_shape s = an_shape_of(x), t = an_shape_of(y);
    if (s.rank > 7 || t.rank > 7 || s.rank < 2 || t.rank < 2)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d and %d axes", s.rank, t.rank);
    s.dim[s.rank] = s.dim[s.rank - 1];
    s.dim[s.rank++ - 1] = 1;
    t.dim[t.rank] = t.dim[t.rank - 1];
    t.dim[t.rank - 1] = t.dim[t.rank - 2];
    t.dim[t.rank++ - 2] = 1;
    an_promote(&x, &y);
    x = an_reshape_at(AN_AT, x, s);
    y = an_reshape_at(AN_AT, y, t);
    *out = an_sub_at(AN_AT, x, y);
    return AN_OK;
}

/* self other p: the length of their difference as one list */
an_status an_rule_dist(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    an_promote(&x, &y);
    an_tensor *d = an_sub_at(AN_AT, x, y);
    if (!an_is_float(d)) return an_build_refuse(b, AN_E_UNSUPPORTED, "of integers");
    an_tensor *length = an_norm_of_rows(b, an_reshape_1(d, an_count(d)), an_in_float(b, n, 2));
    an_out(b, n, 0, an_reshape_at(AN_AT, length, (an_shape){0}));
    return AN_OK;
}

/* x1 x2 p: [...,P,R] */
an_status an_rule_cdist(an_build *b, const an_pt2_node *n)
{
    an_tensor *d = NULL;
    AN_TRY(differences(b, n, 0, &d));
    an_out(b, n, 0, length_of(b, d, an_in_float(b, n, 2), false));
    return AN_OK;
}

/* self [N,D] p: each pair of rows once, [N (N - 1) / 2] */
an_status an_rule_pdist(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *rows[2];
    const int64_t N = an_rank(x) == 2 ? an_dim(x, 0) : 0, pairs = N < 4096 ? N * (N - 1) / 2 : 0;
    if (pairs < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than 2 to 4095 rows");
    int32_t *at = malloc((size_t)pairs * sizeof *at);
    if (!at) return an_build_refuse(b, AN_E_NOMEM, "no memory for %lld pairs", (long long)pairs);
    for (int side = 0; side < 2; side++) {
        int64_t k = 0;
        for (int32_t i = 0; i < N; i++)
            for (int32_t j = i + 1; j < N; j++) at[k++] = side ? j : i;
        rows[side] = an_rows(x, an_constant_at(AN_AT, b->cx, AN_I32, AN_SHAPE(pairs), at));
    }
    free(at);
    an_out(b, n, 0, length_of(b, an_sub_at(AN_AT, rows[0], rows[1]), an_in_float(b, n, 1), false));
    return AN_OK;
}

/* grad_output [...,P,R] x1 x2 p cdist: of x1 alone. sign(d) (|d| / distance)^(p - 1), 0 at a distance of 0. */
an_status an_rule_cdist_backward(an_build *b, const an_pt2_node *n)
{
    an_tensor *d = NULL, *given = an_in(b, n, 0), *far = an_in(b, n, 4);
    const double p = an_in_float(b, n, 3);
    AN_TRY(differences(b, n, 1, &d));
    an_shape s = an_shape_of(far);
    if (s.rank > 7 || p == 0) return an_build_refuse(b, AN_E_UNSUPPORTED, p == 0 ? "of counts" : "more than 7 axes");
    s.dim[s.rank++] = 1;
    given = an_reshape_at(AN_AT, given, s);
    far = an_reshape_at(AN_AT, far, s);
    an_tensor *zero = an_num(d, b->cx, 0), *one = an_num(d, b->cx, 1), *none = an_eq_at(AN_AT, far, zero);
    an_tensor *slope = an_sign_at(AN_AT, d), *a = an_abs_at(AN_AT, d);
    far = an_where_at(AN_AT, none, one, far);
    if (isinf(p)) {
        slope = an_where_at(AN_AT, an_eq_at(AN_AT, a, far), slope, zero);
    } else if (p == 2) {
        slope = an_div_at(AN_AT, d, far);
    } else if (p != 1) {
        an_tensor *same = an_eq_at(AN_AT, a, zero), *power = an_num(d, b->cx, p - 1);
        an_tensor *part = an_div_at(AN_AT, an_where_at(AN_AT, same, one, a), far);
        part = an_mul_at(AN_AT, slope, an_pow_at(AN_AT, part, power));
        slope = an_where_at(AN_AT, same, zero, part);
    }
    slope = an_where_at(AN_AT, none, zero, an_mul_at(AN_AT, given, slope));
    an_out(b, n, 0, an_sum_at(AN_AT, slope, AN_AXIS(-2), false));
    return AN_OK;
}

/* x1 x2 p eps keepdim */
an_status an_rule_pairwise_distance(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    an_promote(&x, &y);
    an_tensor *d = an_add_num_at(AN_AT, an_sub_at(AN_AT, x, y), an_in_float(b, n, 3));
    an_out(b, n, 0, length_of(b, d, an_in_float(b, n, 2), an_in_bool(b, n, 4)));
    return AN_OK;
}

/* ---- bilinear forms */

/* x1 [...,I], x2 [...,J], weight [O,I,J], bias [O]: x1 by all O matrices, then by x2. */
an_status an_rule_bilinear(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1), *w = an_in(b, n, 2), *bias = an_in(b, n, 3);
    if (an_rank(w) != 3 || an_rank(x) < 1) return an_build_refuse(b, AN_E_IO, "a weight of %d axes", an_rank(w));
    const int64_t O = an_dim(w, 0), I = an_dim(w, 1), J = an_dim(w, 2), B = I ? an_count(x) / I : 0;
    an_shape out = an_shape_of(x);
    out.dim[out.rank - 1] = O;
    w = an_reshape_at(AN_AT, an_permute_at(AN_AT, w, AN_SHAPE(1, 0, 2)), AN_SHAPE(I, O * J));
    an_tensor *by_all = an_product(b, an_reshape_at(AN_AT, x, AN_SHAPE(B, I)), w); /* [B,O*J] */
    by_all = an_reshape_at(AN_AT, by_all, AN_SHAPE(B, O, J));
    y = an_as(an_reshape_at(AN_AT, y, AN_SHAPE(B, 1, J)), an_dtype_of(by_all));
    an_tensor *sum = an_sum_at(AN_AT, an_mul_at(AN_AT, by_all, y), AN_AXIS(2), false);
    if (bias) sum = an_add_at(AN_AT, sum, an_as(bias, an_dtype_of(sum)));
    an_out(b, n, 0, an_reshape_at(AN_AT, sum, out));
    return AN_OK;
}

/* The tensor of argument i with axes of length 1 at the places of argument `at`. */
static an_tensor *expanded(an_build *b, const an_pt2_node *n, int i, int at)
{
    an_tensor *x = an_in(b, n, i);
    const an_shape s = an_shape_of(x);
    int64_t places[8];
    const int count = an_in_ints(b, n, at, places, 8);
    an_shape out = {.rank = AN_MIN(s.rank + count, 8)};
    for (int k = 0, from = 0; k < out.rank; k++) {
        bool one = false;
        for (int j = 0; j < count; j++) one |= an_wrap_axis(places[j], out.rank) == k;
        out.dim[k] = one ? 1 : s.dim[from++ & 7];
    }
    return an_reshape_at(AN_AT, x, out);
}

/* i1 i2 i3 expand1 expand2 expand3 sumdim: the product of three, summed over axes */
an_status an_rule_trilinear(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = expanded(b, n, 0, 3), *y = expanded(b, n, 1, 4), *z = expanded(b, n, 2, 5);
    int64_t axes[8];
    const int count = an_in_ints(b, n, 6, axes, 8);
    an_axes mask = 0;
    x = an_mul_at(AN_AT, an_mul_at(AN_AT, x, y), z);
    for (int k = 0; k < count; k++) mask |= AN_AXIS(an_wrap_axis(axes[k], an_rank(x)));
    an_out(b, n, 0, mask ? an_sum_at(AN_AT, x, mask, false) : x);
    return AN_OK;
}

/* ---- samples of images */

typedef struct sampler {
    int64_t mode, padding; /* 0 lines, 1 the nearest, 2 cubes; 0 zeros, 1 the edge, 2 reflected */
    bool corners;
    int axes;          /* 2 or 3 */
    int64_t length[3]; /* of each axis of the image */
    an_tensor *table;  /* [N D H W,C] */
} sampler;

/* A place beside the image as the padding has it. */
static an_tensor *brought_in(an_build *b, const sampler *o, an_tensor *x, int64_t length)
{
    const double low = o->corners ? 0 : -0.5, span = o->corners ? (double)(length - 1) : (double)length;
    const double most = (double)(length - 1);
    if (o->padding == 2) { /* there and back: |x - low| modulo twice the span */
        if (span == 0) return an_mul_num_at(AN_AT, x, 0);
        x = an_abs_at(AN_AT, an_add_num_at(AN_AT, x, -low));
        an_tensor *turns = an_floor_at(AN_AT, an_mul_num_at(AN_AT, x, 0.5 / span));
        x = an_sub_at(AN_AT, x, an_mul_num_at(AN_AT, turns, 2 * span));
        an_tensor *back = an_add_num_at(AN_AT, an_neg_at(AN_AT, x), 2 * span);
        x = an_add_num_at(AN_AT, an_where_at(AN_AT, an_gt_at(AN_AT, x, an_num(x, b->cx, span)), back, x), low);
    }
    if (o->padding > 0) {
        an_tensor *zero = an_num(x, b->cx, 0), *end = an_num(x, b->cx, most);
        x = an_where_at(AN_AT, an_gt_at(AN_AT, x, zero), x, zero); /* NaN is the first one */
        x = an_where_at(AN_AT, an_ge_at(AN_AT, x, end), end, x);
    }
    return x;
}

/* A coordinate of [-1,1] as a place among `length` elements. */
static an_tensor *place_of(const sampler *o, an_tensor *g, int64_t length)
{
    const double half = o->corners ? (double)(length - 1) / 2 : (double)length / 2;
    an_tensor *x = an_mul_num_at(AN_AT, an_add_num_at(AN_AT, g, 1), half);
    return o->corners ? x : an_add_num_at(AN_AT, x, -0.5);
}

/* Whether 0 <= x < length, as 1 or 0 in x's dtype. */
static an_tensor *inside(an_build *b, an_tensor *x, int64_t length)
{
    an_tensor *below = an_lt_at(AN_AT, x, an_num(x, b->cx, (double)length));
    below = an_and_at(AN_AT, below, an_ge_at(AN_AT, x, an_num(x, b->cx, 0)));
    return an_cast_at(AN_AT, below, an_dtype_of(x));
}

/* The pixels at whole places at[axis] [N,P], times the weight: [N,P,C]. */
static an_tensor *pixels(an_build *b, const sampler *o, an_tensor *const *at, an_tensor *weight)
{
    const an_shape s = an_shape_of(at[0]);
    an_tensor *seen = NULL, *index = an_iota_at(AN_AT, b->cx, s, 0);
    for (int k = 0; k < o->axes; k++) {
        an_tensor *in = inside(b, at[k], o->length[k]), *near = an_maximum_at(AN_AT, at[k], an_num(at[k], b->cx, 0));
        near = an_minimum_at(AN_AT, near, an_num(near, b->cx, (double)(o->length[k] - 1)));
        index = an_mul_num_at(AN_AT, index, (double)o->length[k]);
        index = an_add_at(AN_AT, index, an_cast_at(AN_AT, near, AN_I32));
        seen = seen ? an_mul_at(AN_AT, seen, in) : in;
    }
    weight = weight ? an_mul_at(AN_AT, weight, seen) : seen;
    an_tensor *value = an_gather_at(AN_AT, o->table, index);
    weight = an_as(an_reshape_at(AN_AT, weight, AN_SHAPE(s.dim[0], s.dim[1], 1)), an_dtype_of(value));
    /* what lies outside counts nothing, whatever value the edge has */
    an_tensor *zero = an_num(weight, b->cx, 0), *some = an_ne_at(AN_AT, weight, zero);
    return an_mul_at(AN_AT, an_where_at(AN_AT, an_or_at(AN_AT, some, an_eq_at(AN_AT, value, value)), value, zero),
                     weight);
}

/* The corners around each place, each by the area (or volume) of the opposite part. */
static an_tensor *by_lines(an_build *b, const sampler *o, an_tensor *const *place)
{
    an_tensor *sum = NULL;
    for (int corner = 0; corner < 1 << o->axes; corner++) {
        an_tensor *at[3], *weight = NULL;
        for (int k = 0; k < o->axes; k++) {
            an_tensor *low = an_floor_at(AN_AT, place[k]), *part = an_sub_at(AN_AT, place[k], low);
            const bool far = corner >> (o->axes - 1 - k) & 1;
            at[k] = far ? an_add_num_at(AN_AT, low, 1) : low;
            if (!far) part = an_add_num_at(AN_AT, an_neg_at(AN_AT, part), 1);
            weight = weight ? an_mul_at(AN_AT, weight, part) : part;
        }
        an_tensor *part = pixels(b, o, at, weight);
        sum = sum ? an_add_at(AN_AT, sum, part) : part;
    }
    return sum;
}

/* The weight of a pixel at distance d in (0,1), or of one behind it in (1,2): a cubic convolution with a = -3/4. */
static an_tensor *cubic_weight(an_tensor *d, bool far)
{
    const double a = -0.75, third = far ? a : a + 2, second = far ? -5 * a : -(a + 3);
    an_tensor *w = an_add_num_at(AN_AT, an_mul_num_at(AN_AT, d, third), second);
    if (!far) return an_add_num_at(AN_AT, an_mul_at(AN_AT, an_mul_at(AN_AT, w, d), d), 1);
    w = an_add_num_at(AN_AT, an_mul_at(AN_AT, w, d), 8 * a);
    return an_add_num_at(AN_AT, an_mul_at(AN_AT, w, d), -4 * a);
}

/* Four by four pixels around each place; each of them, not the place, is brought into the image. */
static an_tensor *bicubic(an_build *b, const sampler *o, an_tensor *const *place)
{
    an_tensor *at[2][4], *weight[2][4], *sum = NULL;
    for (int k = 0; k < 2; k++) {
        an_tensor *low = an_floor_at(AN_AT, place[k]), *part = an_sub_at(AN_AT, place[k], low);
        an_tensor *rest = an_add_num_at(AN_AT, an_neg_at(AN_AT, part), 1);
        for (int tap = 0; tap < 4; tap++) {
            an_tensor *d = tap < 2 ? part : rest;
            const bool far = tap == 0 || tap == 3;
            weight[k][tap] = cubic_weight(far ? an_add_num_at(AN_AT, d, 1) : d, far);
            at[k][tap] = brought_in(b, o, an_add_num_at(AN_AT, an_detach_at(AN_AT, low), tap - 1), o->length[k]);
        }
    }
    for (int tap = 0; tap < 16; tap++) {
        an_tensor *const here[2] = {at[0][tap / 4], at[1][tap % 4]};
        an_tensor *part = pixels(b, o, here, an_mul_at(AN_AT, weight[0][tap / 4], weight[1][tap % 4]));
        sum = sum ? an_add_at(AN_AT, sum, part) : part;
    }
    return sum;
}

/* input [N,C,D,H,W] or [N,C,H,W], grid [N,...,3] of (x, y, z) or [N,...,2] of (x, y), in [-1,1]; interpolation_mode padding_mode
 * align_corners */
an_status an_rule_grid_sampler(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *grid = an_in(b, n, 1), *place[3], *sum;
    sampler o = {an_in_int(b, n, 2), an_in_int(b, n, 3), an_in_bool(b, n, 4), .axes = an_rank(x) - 2};
    const an_shape s = an_shape_of(x), g = an_shape_of(grid);
    if (o.mode < 0 || o.mode > 2)
        return an_build_refuse(b, AN_E_IO, "interpolation mode %lld; the file is damaged", (long long)o.mode);
    if (o.padding < 0 || o.padding > 2)
        return an_build_refuse(b, AN_E_IO, "padding mode %lld; the file is damaged", (long long)o.padding);
    if (o.axes != 2 && o.axes != 3)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes; four and five are known", s.rank);
    if (g.rank != s.rank || g.dim[g.rank - 1] != o.axes)
        return an_build_refuse(b, AN_E_IO, "a grid whose last axis is not the %d coordinates; the file is damaged",
                               o.axes);
    if (o.mode == 2 && o.axes == 3) return an_build_refuse(b, AN_E_UNSUPPORTED, "bicubic interpolation of a volume");
    const int64_t N = s.dim[0], C = s.dim[1];
    an_shape last = {.rank = s.rank, .dim = {0, 2, 3, 4}}, back = {.rank = s.rank, .dim = {0, s.rank - 1, 1, 2, 3}},
             out = g;
    last.dim[s.rank - 1] = 1;
    out.dim[s.rank - 1] = C;
    int64_t P = 1, pixels_of = N;
    for (int k = 0; k < o.axes; k++) {
        o.length[k] = s.dim[2 + k];
        pixels_of *= s.dim[2 + k];
        P *= g.dim[1 + k];
    }
    o.table = an_reshape_at(AN_AT, an_permute_at(AN_AT, x, last), AN_SHAPE(pixels_of, C));
    grid = an_reshape_at(AN_AT, grid, AN_SHAPE(N, P, o.axes));
    for (int k = 0; k < o.axes; k++) { /* x is the last axis */
        const int from = o.axes - 1 - k;
        place[k] = an_reshape_at(AN_AT, an_slice_at(AN_AT, grid, 2, from, from + 1, 1), AN_SHAPE(N, P));
        place[k] = place_of(&o, place[k], o.length[k]);
        if (o.mode != 2) place[k] = brought_in(b, &o, place[k], o.length[k]);
    }
    if (o.mode == 1) {
        an_tensor *at[3] = {NULL, NULL, NULL};
        for (int k = 0; k < o.axes; k++) at[k] = an_round_at(AN_AT, place[k]);
        sum = pixels(b, &o, at, NULL);
    } else {
        sum = o.mode == 2 ? bicubic(b, &o, place) : by_lines(b, &o, place);
    }
    an_out(b, n, 0, an_permute_at(AN_AT, an_reshape_at(AN_AT, sum, out), back));
    return AN_OK;
}

/* ---- maxima of windows */

enum { MOST_WINDOWS = 512 };

/* x [N,H,W,C], axis 1 or 2 as `out` windows, of which each begins at floor(k length / out) and ends at ceil((k + 1) length / out). */
static an_tensor *maxima(an_tensor *x, int axis, int64_t out)
{
    an_tensor *part[MOST_WINDOWS];
    const int64_t length = an_dim(x, axis);
    const bool equal = length % out == 0;
    for (int64_t k = 0; k < (equal ? 1 : out); k++) {
        const int64_t from = k * length / out, to = equal ? length : an_ceil_div((k + 1) * length, out);
        const int size = (int)(equal ? length / out : to - from);
        const an_window s = {.kernel_h = axis == 1 ? size : 1,
                             .kernel_w = axis == 2 ? size : 1,
                             .stride_h = axis == 1 ? size : 1,
                             .stride_w = axis == 2 ? size : 1,
                             .dilation_h = 1,
                             .dilation_w = 1,
                             .groups = 1};
        part[k] = an_max_pool_at(AN_AT, an_slice_at(AN_AT, x, axis, from, to, 1), s);
    }
    return equal ? part[0] : an_concat_at(AN_AT, part, (int)out, axis);
}

/* self output_size. Columns first: of equal elements of a window PyTorch takes the first, row by row. */
an_status an_rule_adaptive_max_pool(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const int axes = strstr(n->target, "1d") ? 1 : strstr(n->target, "2d") ? 2 : 3, rank = an_rank(x.t);
    int64_t size[3] = {1, 1, 1}, given[3] = {1, 1, 1}, length[3] = {1, 1, 1};
    const int count = an_in_ints(b, n, 1, given, 3);
    if (rank != axes + 1 && rank != axes + 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes", rank);
    AN_TRY(an_positions_unread(b, n, 1));
    an_tensor *t = an_plain(x.t, x.last);
    const an_shape s = an_shape_of(t);
    const bool batch = rank == axes + 2;
    const int64_t N = batch ? s.dim[0] : 1, C = s.dim[batch];
    an_shape out = s;
    for (int k = 0; k < axes; k++) {
        const int to = 3 - axes + k;
        out.dim[rank - axes + k] = size[to] = given[count == 1 ? 0 : k];
        length[to] = s.dim[rank - axes + k];
        if (size[to] < 1 || size[to] > MOST_WINDOWS)
            return an_build_refuse(b, AN_E_UNSUPPORTED, "%lld windows; 1 to %d are known", (long long)size[to],
                                   MOST_WINDOWS);
        if (length[to] < 1) return an_build_refuse(b, AN_E_IO, "of no elements");
    }
    const int64_t F = length[0], H = size[1], W = size[2]; /* frames */
    t = an_permute_at(AN_AT, an_reshape_at(AN_AT, t, AN_SHAPE(N, C, F, length[1], length[2])), AN_SHAPE(0, 2, 3, 4, 1));
    t = an_reshape_at(AN_AT, t, AN_SHAPE(N * F, length[1], length[2], C));
    t = maxima(maxima(t, 2, W), 1, H);
    if (axes == 3) t = maxima(an_reshape_at(AN_AT, t, AN_SHAPE(N, F, H * W, C)), 1, size[0]);
    t = an_permute_at(AN_AT, an_reshape_at(AN_AT, t, AN_SHAPE(N, size[0], H, W, C)), AN_SHAPE(0, 4, 1, 2, 3));
    an_out(b, n, 0, an_reshape_at(AN_AT, t, out));
    return AN_OK;
}
