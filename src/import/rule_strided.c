/* rule_strided.c: operations that PyTorch expresses by strides: diagonals, overlapping windows, images as columns (im2col),
 * rotations by 90 degrees. Here they are reshapes, pads, slices and gathers, since a tensor has no strides. */
#include "import/rules.h"
#include <string.h>

/* ---- diagonals */

/* Axes `one` and `two` moved behind the others, in this order; `back`: from there to their places. */
static an_tensor *behind(an_tensor *x, int one, int two, bool back)
{
    an_shape perm = {.rank = an_rank(x)}, from = perm;
    int at = 0;
    for (int i = 0; i < perm.rank; i++)
        if (i != one && i != two) perm.dim[at++] = i;
    perm.dim[at++] = one;
    perm.dim[at] = two;
    for (int i = 0; i < perm.rank; i++) from.dim[perm.dim[i]] = i;
    return an_permute_at(AN_AT, x, back ? from : perm);
}

enum { MOST_OFFSET = 1 << 24 };

typedef struct diagonal {
    int one, two;              /* its axes */
    int64_t rows, columns;     /* their lengths */
    int64_t start, step, size; /* where it is among rows * columns elements */
} diagonal;

/* Arguments at, at + 1, at + 2: offset, dim1, dim2. `s` has both axes. */
static an_status read_diagonal(an_build *b, const an_pt2_node *n, int at, an_shape s, diagonal *d)
{
    const int64_t offset = an_in_int(b, n, at);
    d->one = an_wrap_axis(an_in_int(b, n, at + 1), s.rank);
    d->two = an_wrap_axis(an_in_int(b, n, at + 2), s.rank);
    if (d->one >= s.rank || d->two >= s.rank || d->one == d->two)
        return an_build_refuse(b, AN_E_IO, "of axes that are not there; the file is damaged");
    d->rows = s.dim[d->one];
    d->columns = s.dim[d->two];
    d->step = d->columns + 1;
    const int64_t right = AN_MIN(AN_MAX(offset, 0), d->columns), down = -AN_MAX(AN_MIN(offset, 0), -d->rows);
    d->size = AN_MIN(d->rows - down, d->columns - right);
    d->start = d->size > 0 ? down * d->columns + right : 0;
    return AN_OK;
}

static an_tensor *taken(an_tensor *x, const diagonal *d)
{
    x = behind(x, d->one, d->two, false);
    an_shape s = an_shape_of(x);
    if (s.rank < 2) return x; /* an error is recorded */
    s.rank--;
    s.dim[s.rank - 1] = d->rows * d->columns;
    x = an_reshape_at(AN_AT, x, s);
    const int64_t stop = d->size > 0 ? d->start + (d->size - 1) * d->step + 1 : 0;
    return an_slice_at(AN_AT, x, s.rank - 1, d->start, stop, d->size > 0 ? d->step : 1);
}

/* src [...,size] on the diagonal of zeros: each element is followed by `columns` zeros. */
static an_tensor *put_on(an_tensor *src, const diagonal *d)
{
    an_shape s = an_shape_of(src), apart = s;
    const int last = s.rank - 1;
    const int64_t all = d->rows * d->columns;
    apart.dim[apart.rank++] = 1;
    if (d->size > 0) {
        src = an_pad_at(AN_AT, an_reshape_at(AN_AT, src, apart), s.rank, 0, d->columns, 0);
        s.dim[last] = d->size * d->step;
        src = an_slice_at(AN_AT, an_reshape_at(AN_AT, src, s), last, 0, (d->size - 1) * d->step + 1, 1);
    }
    const int64_t used = d->size > 0 ? (d->size - 1) * d->step + 1 : 0;
    src = an_pad_at(AN_AT, src, last, d->start, all - d->start - used, 0);
    s.dim[last] = d->rows;
    s.dim[s.rank++] = d->columns;
    return behind(an_reshape_at(AN_AT, src, s), d->one, d->two, true);
}

/* self offset dim1 dim2 */
an_status an_rule_diagonal(an_build *b, const an_pt2_node *n)
{
    diagonal d;
    an_tensor *x = an_in(b, n, 0);
    AN_TRY(read_diagonal(b, n, 1, an_shape_of(x), &d));
    an_out(b, n, 0, taken(x, &d));
    return AN_OK;
}

/* Of a diagonal that makes its matrix. */
static an_status near(an_build *b, int64_t offset)
{
    if (offset >= -MOST_OFFSET && offset <= MOST_OFFSET) return AN_OK;
    return an_build_refuse(b, AN_E_UNSUPPORTED, "%lld off the main diagonal; %d is the most", (long long)offset,
                           MOST_OFFSET);
}

static diagonal square(int64_t size, int64_t offset, int one, int two)
{
    const int64_t n = size + (offset < 0 ? -offset : offset);
    return (diagonal){.one = one,
                      .two = two,
                      .rows = n,
                      .columns = n,
                      .start = offset < 0 ? -offset * n : offset,
                      .step = n + 1,
                      .size = size};
}

/* self offset dim1=-2 dim2=-1 */
an_status an_rule_diag_embed(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int rank = an_rank(x) + 1, one = an_wrap_axis(an_in_int(b, n, 2), rank),
              two = an_wrap_axis(an_in_int(b, n, 3), rank);
    if (rank > 7 || rank < 2 || one == two || one >= rank || two >= rank)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes", rank - 1);
    AN_TRY(near(b, an_in_int(b, n, 1)));
    const diagonal d = square(an_dim(x, rank - 2), an_in_int(b, n, 1), one, two);
    an_out(b, n, 0, put_on(x, &d));
    return AN_OK;
}

/* self diagonal: of a list the matrix, of a matrix the list */
an_status an_rule_diag(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int64_t offset = an_in_int(b, n, 1);
    if (an_rank(x) == 1) {
        AN_TRY(near(b, offset));
        const diagonal d = square(an_dim(x, 0), offset, 0, 1);
        an_out(b, n, 0, put_on(x, &d));
        return AN_OK;
    }
    if (an_rank(x) != 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes", an_rank(x));
    diagonal d = {.one = 0, .two = 1, .rows = an_dim(x, 0), .columns = an_dim(x, 1), .step = an_dim(x, 1) + 1};
    const int64_t right = AN_MIN(AN_MAX(offset, 0), d.columns), down = -AN_MAX(AN_MIN(offset, 0), -d.rows);
    d.size = AN_MIN(d.rows - down, d.columns - right);
    d.start = d.size > 0 ? down * d.columns + right : 0;
    an_out(b, n, 0, taken(x, &d));
    return AN_OK;
}

an_status an_rule_trace(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int64_t rows = an_dim(x, 0), columns = an_dim(x, 1);
    if (an_rank(x) != 2) return an_build_refuse(b, AN_E_IO, "of %d axes; the file is damaged", an_rank(x));
    const diagonal d = {
        .one = 0, .two = 1, .rows = rows, .columns = columns, .step = columns + 1, .size = AN_MIN(rows, columns)};
    an_out(b, n, 0, an_sum_at(AN_AT, taken(x, &d), AN_AXIS(0), false));
    return AN_OK;
}

/* self src offset dim1 dim2 */
an_status an_rule_diagonal_scatter(an_build *b, const an_pt2_node *n)
{
    diagonal d;
    an_tensor *x = an_in(b, n, 0), *src = an_as(an_in(b, n, 1), an_dtype_of(x));
    AN_TRY(read_diagonal(b, n, 2, an_shape_of(x), &d));
    if (an_rank(src) != an_rank(x) - 1) return an_build_refuse(b, AN_E_IO, "a diagonal of %d axes", an_rank(src));
    an_tensor *ones = put_on(an_full_at(AN_AT, b->cx, AN_I32, an_shape_of(src), 1), &d), *zero = an_num(ones, b->cx, 0);
    an_tensor *there = an_ne_at(AN_AT, ones, zero), *y = put_on(src, &d);
    an_out(b, n, 0, an_where_at(AN_AT, there, y, x));
    return AN_OK;
}

/* ---- windows */

/* self dimension size step: windows of an axis, their elements as the last axis */
an_status an_rule_unfold(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int rank = an_rank(x), axis = an_wrap_axis(an_in_int(b, n, 1), rank);
    const int64_t size = an_in_int(b, n, 2), step = an_in_int(b, n, 3), length = an_dim(x, axis);
    if (rank < 1 || rank > 7 || axis >= rank || step < 1 || size < 1 || size > length)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "windows of %lld elements of %lld", (long long)size,
                               (long long)length);
    const an_shape s = AN_SHAPE((length - size) / step + 1, size);
    an_tensor *from = an_mul_num_at(AN_AT, an_iota_at(AN_AT, b->cx, s, 0), (double)step);
    an_tensor *rows = axis ? an_transpose_at(AN_AT, x, 0, axis) : x;
    an_tensor *at = an_add_at(AN_AT, from, an_iota_at(AN_AT, b->cx, s, 1));
    an_tensor *y = an_gather_at(AN_AT, rows, at); /* [windows,size,rest...] */
    an_shape perm = {.rank = rank + 1};
    for (int i = 0; i < rank; i++) perm.dim[i] = i == axis ? 0 : i == 0 ? 1 + axis : 1 + i;
    perm.dim[rank] = 1;
    an_out(b, n, 0, an_permute_at(AN_AT, y, perm));
    return AN_OK;
}

/* Whether value `id` has all of its memory in PyTorch, in the plain order: it is no view, or one of all elements in their order. */
static bool lies_as_read(const an_build *b, int32_t id)
{
    for (; b->value[id].view; id = b->value[id].parent)
        if (!b->g->value[id].contiguous || an_count(b->value[id].t) != an_count(b->value[b->value[id].parent].t))
            return false;
    return b->g->value[id].contiguous;
}

/* self size stride storage_offset: elements of self at offset + sum of index * stride. A tensor here has no memory of its own, so self must be
 * one that lies in PyTorch's as it is read here. */
an_status an_rule_as_strided(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *at = NULL;
    int64_t size[8], stride[8];
    const int32_t id = n->arg[0].value;
    const int rank = an_in_ints(b, n, 1, size, 8);
    const int64_t offset = an_in_none(n, 3) ? 0 : an_in_int(b, n, 3), count = an_count(x);
    if (n->arg[0].kind != AN_ARG_TENSOR || !lies_as_read(b, id))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of a view; put a clone() before it");
    if (rank > 8 || an_in_ints(b, n, 2, stride, 8) != rank || offset < 0 || count > INT32_MAX)
        return an_build_refuse(b, AN_E_IO, "strides that do not fit; the file is damaged");
    an_shape s = {.rank = AN_MAX(rank, 1), .dim = {1}};
    int64_t furthest = offset;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        empty |= size[i] == 0;
        if (size[i] == 1) stride[i] = 0; /* it is never taken */
    }
    for (int i = 0; i < rank; i++) {
        s.dim[i] = size[i];
        if (size[i] < 0 || size[i] > INT32_MAX || stride[i] < 0 ||
            (!empty && size[i] > 1 && stride[i] > count / (size[i] - 1)))
            return an_build_refuse(b, AN_E_IO, "elements beside those of its operand; the file is damaged");
        if (!empty) furthest += (size[i] - 1) * stride[i];
    }
    if (empty) {
        an_out(b, n, 0, an_full_at(AN_AT, b->cx, an_dtype_of(x), s, 0));
        return AN_OK;
    }
    if (furthest >= count)
        return an_build_refuse(b, AN_E_IO, "elements beside those of its operand; the file is damaged");
    for (int i = 0; i < s.rank; i++) {
        an_tensor *part = an_iota_at(AN_AT, b->cx, s, i);
        part = an_mul_num_at(AN_AT, part, rank ? (double)stride[i] : 0);
        at = at ? an_add_at(AN_AT, at, part) : an_add_num_at(AN_AT, part, (double)offset);
    }
    an_tensor *y = an_gather_at(AN_AT, an_reshape_1(x, count), at);
    an_out(b, n, 0, rank ? y : an_reshape_at(AN_AT, y, AN_SCALAR));
    return AN_OK;
}

typedef struct columns {
    int64_t kernel[2], dilation[2], pad[2], stride[2], out[2];
} columns;

enum { MOST_TAPS = 1024 };

static void pair(const an_build *b, const an_pt2_node *n, int i, int64_t out[2])
{
    if (an_in_ints(b, n, i, out, 2) == 1) out[1] = out[0];
}

/* Arguments at ... at + 3: kernel, dilation, padding, stride; the image is H times W. */
static an_status read_columns(an_build *b, const an_pt2_node *n, int at, int64_t H, int64_t W, columns *c)
{
    const int64_t size[2] = {H, W};
    *c = (columns){.kernel = {1, 1}, .dilation = {1, 1}, .stride = {1, 1}};
    pair(b, n, at, c->kernel);
    pair(b, n, at + 1, c->dilation);
    pair(b, n, at + 2, c->pad);
    pair(b, n, at + 3, c->stride);
    for (int i = 0; i < 2; i++) c->stride[i] = AN_MIN(c->stride[i], INT32_MAX);
    for (int i = 0; i < 2; i++) {
        bool good =
            size[i] >= 0 && size[i] <= INT32_MAX && c->pad[i] >= 0 && c->pad[i] <= INT32_MAX && c->stride[i] >= 1;
        good = good && c->kernel[i] >= 1 && c->kernel[i] <= INT32_MAX && c->dilation[i] >= 1 &&
               c->dilation[i] <= INT32_MAX;
        const int64_t room = good ? size[i] + 2 * c->pad[i] - c->dilation[i] * (c->kernel[i] - 1) - 1 : -1;
        if (room < 0) return an_build_refuse(b, AN_E_IO, "a window that does not fit; the file is damaged");
        c->out[i] = room / c->stride[i] + 1;
    }
    if (c->kernel[0] * c->kernel[1] > MOST_TAPS)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "windows of more than %d", MOST_TAPS);
    return AN_OK;
}

/* Columns [N, C KH KW, L] of images [N,C,H,W]. */
an_status an_rule_im2col(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *part[MOST_TAPS];
    const bool alone = an_rank(x) == 3;
    columns c;
    if (alone) x = an_reshape_at(AN_AT, x, AN_SHAPE(1, an_dim(x, 0), an_dim(x, 1), an_dim(x, 2)));
    if (an_rank(x) != 4) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes", an_rank(x));
    AN_TRY(read_columns(b, n, 1, an_dim(x, 2), an_dim(x, 3), &c));
    const int64_t N = an_dim(x, 0), C = an_dim(x, 1), taps = c.kernel[0] * c.kernel[1];
    for (int i = 0; i < 2; i++)
        if (c.pad[i]) x = an_pad_at(AN_AT, x, 2 + i, c.pad[i], c.pad[i], 0);
    for (int64_t k = 0; k < taps; k++) {
        const int64_t at[2] = {k / c.kernel[1] * c.dilation[0], k % c.kernel[1] * c.dilation[1]};
        an_tensor *y = x;
        for (int i = 0; i < 2; i++)
            y = an_slice_at(AN_AT, y, 2 + i, at[i], at[i] + (c.out[i] - 1) * c.stride[i] + 1, c.stride[i]);
        part[k] = an_reshape_at(AN_AT, y, AN_SHAPE(N, C, 1, c.out[0] * c.out[1]));
    }
    an_tensor *y = an_concat_at(AN_AT, part, (int)taps, 2);
    an_out(b, n, 0,
           an_reshape_at(AN_AT, y,
                         alone ? AN_SHAPE(C * taps, c.out[0] * c.out[1]) : AN_SHAPE(N, C * taps, c.out[0] * c.out[1])));
    return AN_OK;
}

/* Axis `axis` with `stride` - 1 zeros between its elements, `before` zeros in front, and `length` in all. */
static an_tensor *spread(an_tensor *x, int axis, int64_t stride, int64_t before, int64_t length)
{
    an_shape s = an_shape_of(x), apart = {.rank = s.rank + 1};
    for (int i = 0; i < apart.rank; i++) apart.dim[i] = i == axis + 1 ? 1 : s.dim[i <= axis ? i : i - 1];
    const int64_t used = (s.dim[axis] - 1) * stride + 1;
    if (stride > 1) {
        x = an_pad_at(AN_AT, an_reshape_at(AN_AT, x, apart), axis + 1, 0, stride - 1, 0);
        s.dim[axis] *= stride;
        x = an_slice_at(AN_AT, an_reshape_at(AN_AT, x, s), axis, 0, used, 1);
    }
    return an_pad_at(AN_AT, x, axis, before, length - before - used, 0);
}

/* The sum of columns [N, C KH KW, L] at their places: self output_size kernel dilation padding stride. */
an_status an_rule_col2im(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = NULL;
    int64_t size[2] = {1, 1};
    const bool alone = an_rank(x) == 2;
    columns c;
    pair(b, n, 1, size);
    if (alone) x = an_reshape_at(AN_AT, x, AN_SHAPE(1, an_dim(x, 0), an_dim(x, 1)));
    AN_TRY(read_columns(b, n, 2, size[0], size[1], &c));
    const int64_t N = an_dim(x, 0), taps = c.kernel[0] * c.kernel[1], C = an_dim(x, 1) / taps;
    x = an_reshape_at(AN_AT, x, AN_SHAPE(N, C, taps, c.out[0], c.out[1]));
    for (int64_t k = 0; k < taps; k++) {
        const int64_t at[2] = {k / c.kernel[1] * c.dilation[0], k % c.kernel[1] * c.dilation[1]};
        an_tensor *tap =
            an_reshape_at(AN_AT, an_slice_at(AN_AT, x, 2, k, k + 1, 1), AN_SHAPE(N, C, c.out[0], c.out[1]));
        for (int i = 0; i < 2; i++) tap = spread(tap, 2 + i, c.stride[i], at[i], size[i] + 2 * c.pad[i]);
        y = y ? an_add_at(AN_AT, y, tap) : tap;
    }
    for (int i = 0; i < 2; i++)
        if (c.pad[i]) y = an_slice_at(AN_AT, y, 2 + i, c.pad[i], c.pad[i] + size[i], 1);
    an_out(b, n, 0, alone ? an_reshape_at(AN_AT, y, AN_SHAPE(C, size[0], size[1])) : y);
    return AN_OK;
}

/* ---- turns */

/* self k dims: k quarter turns from the first axis towards the second */
an_status an_rule_rot90(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    int64_t dims[2] = {0, 1};
    (void)an_in_ints(b, n, 2, dims, 2);
    const int one = an_wrap_axis(dims[0], an_rank(x)), two = an_wrap_axis(dims[1], an_rank(x));
    const int turns = (int)((an_in_int(b, n, 1) % 4 + 4) % 4);
    if (one >= an_rank(x) || two >= an_rank(x) || one == two)
        return an_build_refuse(b, AN_E_IO, "other than two axes; the file is damaged");
    if (turns == 2) x = an_flip_at(AN_AT, x, AN_AXIS(one) | AN_AXIS(two));
    if (turns % 2) x = an_transpose_at(AN_AT, an_flip_at(AN_AT, x, turns == 1 ? AN_AXIS(two) : AN_AXIS(one)), one, two);
    an_out(b, n, 0, x);
    return AN_OK;
}

/* The last two axes exchanged. */
an_status an_rule_mT(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    if (an_rank(x) < 2) return an_build_refuse(b, AN_E_IO, "of %d axes; the file is damaged", an_rank(x));
    an_out(b, n, 0, an_transpose_at(AN_AT, x, an_rank(x) - 2, an_rank(x) - 1));
    return AN_OK;
}

an_status an_rule_ravel(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    an_out(b, n, 0, an_reshape_1(x, an_count(x)));
    return AN_OK;
}
