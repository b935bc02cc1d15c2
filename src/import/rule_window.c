/* rule_window.c: convolutions and pools of PyTorch. They are computed channels last, and so are their results. */
#include "import/rules.h"
#include <anneal_tools.h>
#include <math.h>
#include <string.h>

/* ---- shapes */

/* [N,C,L] and [N,C,H,W] as [N,H,W,C], H = 1 of the former. */
an_tensor *an_nhwc(const an_built_value *v)
{
    an_tensor *x = v->last ? v->t : an_last(v->t);
    const an_shape s = an_shape_of(x);
    return s.rank == 3 ? an_reshape_at(AN_AT, x, AN_SHAPE(s.dim[0], 1, s.dim[1], s.dim[2])) : x;
}

/* The result of x's rank, channels last. */
static void put(an_build *b, const an_pt2_node *n, an_tensor *y, int rank)
{
    const an_shape s = an_shape_of(y);
    if (rank == 3) y = an_reshape_at(AN_AT, y, AN_SHAPE(s.dim[0], s.dim[2], s.dim[3]));
    an_out_last(b, n, 0, y, true);
}

/* As an int: a number below 0 stays one, and one above every length stays that. */
static int bounded(int64_t x)
{
    return (int)AN_MIN(AN_MAX(x, -1), 1 << 20);
}

void an_in_axes(const an_build *b, const an_pt2_node *n, int i, int axes, int missing, int out[3])
{
    int64_t x[3] = {missing, missing, missing};
    const int count = an_in_ints(b, n, i, x, 3);
    for (int k = 0; k < 3; k++) {
        const int from = k - (3 - AN_MIN(axes, 3));
        out[k] = from < 0 ? missing : bounded(count > 1 ? x[from] : x[0]);
    }
}

an_status an_in_windows(an_build *b, const an_pt2_node *n, int axes, int dilation, an_windows *out)
{
    int64_t any[3];
    *out = (an_windows){.dilation = {1, 1, 1}};
    an_in_axes(b, n, 1, axes, 1, out->kernel);
    if (an_in_ints(b, n, 2, any, 3) > 0)
        an_in_axes(b, n, 2, axes, 1, out->stride);
    else
        memcpy(out->stride, out->kernel, sizeof out->stride);
    an_in_axes(b, n, 3, axes, 0, out->pad);
    if (dilation >= 0) an_in_axes(b, n, dilation, axes, 1, out->dilation);
    for (int k = 0; k < 3; k++) {
        if (out->kernel[k] < 1 || out->stride[k] < 1 || out->dilation[k] < 1 || out->pad[k] < 0)
            return an_build_refuse(b, AN_E_IO, "a window of no size; the file is damaged");
        if (out->pad[k] > ((int64_t)out->dilation[k] * (out->kernel[k] - 1) + 1) / 2)
            return an_build_refuse(b, AN_E_IO, "padding of more than half a window; the file is damaged");
    }
    return AN_OK;
}

bool an_add_batch(an_built_value *v, int rank)
{
    an_shape s = an_shape_of(v->t);
    if (s.rank != rank - 1) return false;
    an_shape wide = {.rank = rank, .dim = {1}};
    v->t = an_plain(v->t, v->last);
    memcpy(wide.dim + 1, s.dim, (size_t)s.rank * sizeof s.dim[0]);
    v->t = an_reshape_at(AN_AT, v->t, wide);
    v->last = false;
    return true;
}

void an_drop_batch(an_build *b, const an_pt2_node *n)
{
    if (!an_out_used(n, 0)) return;
    an_tensor *t = an_value_tensor(b, n->out[0].value);
    an_shape s = an_shape_of(t), out = {.rank = s.rank - 1};
    if (s.rank == 0) return; /* an error is recorded */
    memcpy(out.dim, s.dim + 1, (size_t)out.rank * sizeof s.dim[0]);
    an_out(b, n, 0, an_reshape_at(AN_AT, t, out));
}

/* ---- convolution */

/* The colours of an image as a GPU's library takes channels on tensor cores: 8, of which the others are 0. */
static void pad_channels(const an_build *b, const an_window *s, an_tensor **x, an_tensor **w)
{
    enum { UNIT = 8 };
    an_device_facts f;
    const int64_t C = an_dim(*x, 3);
    if (s->groups > 1 || C < 1 || C >= UNIT || C != an_dim(*w, 3) || an_dtype_of(*x) != AN_BF16) return;
    if (!an_device_opened(b->cx, &f) || !f.own_memory) return;
    *x = an_pad_at(AN_AT, *x, 3, 0, UNIT - C, 0);
    *w = an_pad_at(AN_AT, *w, 3, 0, UNIT - C, 0);
}

/* The weight [O,KH,KW,I] as a product reads it. Of a depthwise convolution for a GPU it is rounded tap by tap, so that the weights of
 * neighbouring channels lie side by side: its kernel has a thread for some channels. */
static an_tensor *narrow_weight(an_build *b, const an_window *s, an_tensor *w)
{
    an_device_facts f;
    const bool depthwise = s->groups > 1 && s->groups == an_dim(w, 0) && an_dim(w, 3) == 1;
    if (!depthwise || !an_device_opened(b->cx, &f) || !f.own_memory) return an_narrow(b, w);
    w = an_narrow(b, an_permute_at(AN_AT, w, AN_SHAPE(1, 2, 3, 0)));
    return an_permute_at(AN_AT, w, AN_SHAPE(3, 0, 1, 2));
}

static an_status convolve(an_build *b, const an_pt2_node *n, an_window s, bool same)
{
    an_built_value x = an_in_value(b, n, 0), w = an_in_value(b, n, 1);
    const int rank = an_rank(w.t);
    if (rank != 3 && rank != 4)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "over %d axes; one and two are known", rank - 2);
    const bool alone = an_add_batch(&x, rank);
    an_tensor *wide = an_nhwc(&w), *in = an_nhwc(&x); /* [O,KH,KW,I], [N,H,W,C] */
    if (same) {                                       /* one more at the end where the sum is odd */
        const int64_t h = (int64_t)s.dilation_h * (an_dim(wide, 1) - 1),
                      w_pad = (int64_t)s.dilation_w * (an_dim(wide, 2) - 1);
        if (h > 0) in = an_pad_at(AN_AT, in, 1, h / 2, h - h / 2, 0);
        if (w_pad > 0) in = an_pad_at(AN_AT, in, 2, w_pad / 2, w_pad - w_pad / 2, 0);
    }
    an_tensor *bias = an_in(b, n, 2);
    wide = narrow_weight(b, &s, wide);
    in = an_narrow(b, in);
    pad_channels(b, &s, &in, &wide);
    put(b, n, an_conv2d_at(AN_AT, in, wide, bias, s), rank);
    if (alone) an_drop_batch(b, n);
    return AN_OK;
}

static an_window window_of(const an_build *b, const an_pt2_node *n, int rank, int stride, int pad, int dilation)
{
    int steps[3], border[3] = {0, 0, 0}, apart[3];
    an_in_axes(b, n, stride, rank - 2, 1, steps);
    if (pad >= 0) an_in_axes(b, n, pad, rank - 2, 0, border);
    an_in_axes(b, n, dilation, rank - 2, 1, apart);
    return (an_window){.stride_h = steps[1],
                       .stride_w = steps[2],
                       .pad_h = border[1],
                       .pad_w = border[2],
                       .dilation_h = apart[1],
                       .dilation_w = apart[2],
                       .groups = 1};
}

static int weight_rank(an_build *b, const an_pt2_node *n)
{
    return an_rank(an_in_value(b, n, 1).t);
}

bool an_conv_is_by_planes(an_build *b, const an_pt2_node *n, int x_at, int stride, int pad, int groups)
{
    const an_built_value x = an_in_value(b, n, x_at), w = an_in_value(b, n, x_at + 1);
    if (x.last || an_rank(x.t) != 4 || an_rank(w.t) != 4 || an_in_int(b, n, groups) != 1) return false;
    const an_window s = window_of(b, n, 4, stride, pad, stride);
    const an_shape in = an_shape_of(x.t), k = an_shape_of(an_plain(w.t, w.last));
    if (k.dim[2] != 1 || k.dim[3] != 1 || s.stride_h != 1 || s.stride_w != 1 || s.pad_h || s.pad_w) return false;
    if (an_dtype_of(x.t) != AN_F64 && (an_dtype_of(x.t) != AN_F32 || an_get_policy(b->cx).matmul != AN_F32))
        return false;
    if (an_dtype_of(w.t) != an_dtype_of(x.t) || k.dim[1] != in.dim[1]) return false;
    return in.dim[0] > 0 && AN_MIN(k.dim[0], k.dim[1]) > 0 && AN_MIN(k.dim[0], k.dim[1]) <= in.dim[2] * in.dim[3];
}

/* A 1x1 convolution of an input [N,C,H,W] as products of w with the pixels [C,HW] of each image: nothing is transposed. */
static an_status by_planes(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *w = an_in(b, n, 1), *bias = an_in(b, n, 2);
    const an_shape s = an_shape_of(x);
    const int64_t O = an_dim(w, 0), C = s.dim[1];
    w = an_expand_at(AN_AT, an_reshape_at(AN_AT, w, AN_SHAPE(1, O, C)), AN_SHAPE(s.dim[0], O, C));
    an_tensor *y = an_matmul_at(AN_AT, w, an_reshape_at(AN_AT, x, AN_SHAPE(s.dim[0], C, s.dim[2] * s.dim[3])));
    if (bias) y = an_add_at(AN_AT, y, an_reshape_at(AN_AT, bias, AN_SHAPE(1, O, 1)));
    an_out(b, n, 0, an_reshape_at(AN_AT, y, AN_SHAPE(s.dim[0], O, s.dim[2], s.dim[3])));
    return AN_OK;
}

an_status an_rule_conv(an_build *b, const an_pt2_node *n)
{
    if (an_conv_is_by_planes(b, n, 0, 3, 4, 6)) return by_planes(b, n);
    an_window s = window_of(b, n, weight_rank(b, n), 3, 4, 5);
    s.groups = bounded(an_in_int(b, n, 6));
    return convolve(b, n, s, false);
}

an_status an_rule_conv_padding(an_build *b, const an_pt2_node *n)
{
    an_window s = window_of(b, n, weight_rank(b, n), 3, -1, 5);
    s.groups = bounded(an_in_int(b, n, 6));
    return convolve(b, n, s, n->arg[4].text && strcmp(n->arg[4].text, "same") == 0);
}

/* Zeros between the elements of an axis: x as [before, length, 1, behind] padded to [before, length, stride, behind]. */
an_tensor *an_spread(an_tensor *x, int axis, int stride)
{
    an_shape s = an_shape_of(x);
    int64_t before = 1, behind = 1;
    if (stride == 1) return x;
    for (int i = 0; i < s.rank; i++) {
        if (i < axis) before *= s.dim[i];
        if (i > axis) behind *= s.dim[i];
    }
    x = an_reshape_at(AN_AT, x, AN_SHAPE(before, s.dim[axis], 1, behind));
    s.dim[axis] *= stride;
    x = an_reshape_at(AN_AT, an_pad_at(AN_AT, x, 2, 0, stride - 1, 0), s);
    return an_slice_at(AN_AT, x, axis, 0, s.dim[axis] - (stride - 1), 1);
}

an_tensor *an_pad_or_cut(an_tensor *x, int axis, int64_t before, int64_t after)
{
    if (before < 0) x = an_slice_at(AN_AT, x, axis, -before, an_dim(x, axis), 1);
    if (after < 0) x = an_slice_at(AN_AT, x, axis, 0, an_dim(x, axis) + after, 1);
    return before > 0 || after > 0 ? an_pad_at(AN_AT, x, axis, AN_MAX(before, 0), AN_MAX(after, 0), 0) : x;
}

an_tensor *an_transposed_planes(an_tensor *x, an_tensor *w, an_tensor *bias, an_window s)
{
    const int64_t size[2] = {an_dim(x, 1), an_dim(x, 2)}, taps[2] = {an_dim(w, 1), an_dim(w, 2)};
    const int *const step[2] = {&s.stride_h, &s.stride_w}, *const apart[2] = {&s.dilation_h, &s.dilation_w};
    int *const pad[2] = {&s.pad_h, &s.pad_w}, *const extra[2] = {&s.extra_h, &s.extra_w};
    int64_t cut[2] = {0, 0}, add[2] = {0, 0};
    for (int k = 0; k < 2;
         k++) { /* as many rows as a dilation are allowed behind the last tap: all are made, then cut or filled */
        if (*extra[k] < *step[k]) continue;
        cut[k] = *pad[k];
        add[k] = *extra[k] - *pad[k];
        *pad[k] = *extra[k] = 0;
        if ((size[k] - 1) * *step[k] + *apart[k] * (taps[k] - 1) + 1 + add[k] - cut[k] < 1) cut[k] = add[k] = 0;
    }
    const bool later = cut[0] || cut[1] || add[0] || add[1];
    an_tensor *y = an_conv_transpose2d_at(AN_AT, x, w, later ? NULL : bias, s);
    if (!later) return y;
    y = an_pad_or_cut(an_pad_or_cut(y, 1, -cut[0], add[0]), 2, -cut[1], add[1]);
    if (!bias) return y;
    an_tensor *wide = an_widen(y);
    return an_as(an_add_at(AN_AT, wide, an_widen(bias)), an_dtype_of(y));
}

/* A weight [I,O/g,KH,KW] is read as [I,KH,KW,O/g]. */
static an_status transposed(an_build *b, const an_pt2_node *n, int stride, int pad, int extra, int groups_at,
                            int dilation)
{
    an_built_value x = an_in_value(b, n, 0), w = an_in_value(b, n, 1);
    const int rank = an_rank(w.t);
    int extras[3];
    if (rank != 3 && rank != 4)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "over %d axes; one to three are known", rank - 2);
    an_window s = window_of(b, n, rank, stride, pad, dilation); /* of the convolution whose gradient it is */
    an_in_axes(b, n, extra, rank - 2, 0, extras);
    s.extra_h = extras[1];
    s.extra_w = extras[2];
    s.groups = bounded(an_in_int(b, n, groups_at));
    if (s.groups < 1 || s.stride_h < 1 || s.stride_w < 1 || s.dilation_h < 1 || s.dilation_w < 1 || s.pad_h < 0 ||
        s.pad_w < 0)
        return an_build_refuse(b, AN_E_IO, "groups, strides or padding; the file is damaged");
    const bool alone = an_add_batch(&x, rank);
    an_tensor *wide = narrow_weight(b, &s, an_nhwc(&w));
    an_tensor *in = an_narrow(b, an_nhwc(&x));
    put(b, n, an_transposed_planes(in, wide, an_in(b, n, 2), s), rank);
    if (alone) an_drop_batch(b, n);
    return AN_OK;
}

an_status an_rule_conv_transpose(an_build *b, const an_pt2_node *n)
{
    return transposed(b, n, 3, 4, 5, 6, 7);
}

/* input weight bias stride padding dilation transposed output_padding groups */
an_status an_rule_convolution(an_build *b, const an_pt2_node *n)
{
    if (weight_rank(b, n) == 5) { /* the arguments of conv3d, whose groups are argument 6, or of conv_transpose3d */
        const bool transposed3d = an_in_bool(b, n, 6);
        an_pt2_arg arg[AN_ATEN_MAX_ARGS];
        memcpy(arg, n->arg, sizeof arg);
        arg[6] = n->arg[8];
        if (transposed3d) {
            arg[5] = n->arg[7];
            arg[7] = n->arg[5];
        }
        an_pt2_node f = *n;
        f.arg = arg;
        return transposed3d ? an_rule_conv_transpose3d(b, &f) : an_rule_conv3d(b, &f);
    }
    if (an_in_bool(b, n, 6)) return transposed(b, n, 3, 4, 7, 8, 5);
    if (an_conv_is_by_planes(b, n, 0, 3, 4, 8)) return by_planes(b, n);
    an_window s = window_of(b, n, weight_rank(b, n), 3, 4, 5);
    s.groups = bounded(an_in_int(b, n, 8));
    return convolve(b, n, s, false);
}

/* ---- pools */

/* What ceil_mode adds at the end of an axis, so that a window that begins inside of x (or its front padding) is there. */
int64_t an_ceil_extra(int64_t length, int kernel, int stride, int pad, int dilation)
{
    const int64_t reach = (int64_t)dilation * (kernel - 1) + 1, room = length + 2 * pad - reach;
    int64_t windows = an_ceil_div(room, stride) + 1;
    if ((windows - 1) * stride >= length + pad) windows--;
    return AN_MAX(0, (windows - 1) * stride + reach - (length + 2 * pad));
}

an_window an_window_of_planes(const an_windows *w)
{
    return (an_window){.kernel_h = w->kernel[1],
                       .kernel_w = w->kernel[2],
                       .stride_h = w->stride[1],
                       .stride_w = w->stride[2],
                       .pad_h = w->pad[1],
                       .pad_w = w->pad[2],
                       .dilation_h = w->dilation[1],
                       .dilation_w = w->dilation[2],
                       .groups = 1};
}

static bool reads(const an_pt2_arg *a, int32_t value)
{
    if (a->kind == AN_ARG_TENSOR) return a->value == value;
    for (int32_t k = 0; a->kind == AN_ARG_TENSORS && k < a->n; k++)
        if (a->values[k] == value) return true;
    return false;
}

static bool read_by_a_node(const an_build *b, const an_pt2_node *n, int k)
{
    for (int32_t i = 0; an_out_used(n, k) && i < b->g->n_nodes; i++)
        for (int a = 0; a < AN_ATEN_MAX_ARGS; a++)
            if (reads(&b->g->node[i].arg[a], n->out[k].value)) return true;
    return false;
}

an_status an_results_unread(an_build *b, const an_pt2_node *n, int k, const char *why)
{
    return read_by_a_node(b, n, k) ? an_build_refuse(b, AN_E_UNSUPPORTED, "%s", why) : AN_OK;
}

bool an_result_read(const an_build *b, const an_pt2_node *n, int k)
{
    for (int32_t i = 0; an_out_used(n, k) && i < b->g->n_outputs; i++)
        if (b->g->output[i].value == n->out[k].value) return true;
    return read_by_a_node(b, n, k);
}

an_status an_positions_unread(an_build *b, const an_pt2_node *n, int k)
{
    return an_results_unread(b, n, k, "its positions are read; its values alone are known");
}

an_status an_rule_max_pool(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const int rank = strstr(n->target, "1d") ? 3 : 4;
    const bool alone = an_add_batch(&x, rank);
    an_windows windows;
    AN_TRY(an_in_windows(b, n, rank - 2, 4, &windows));
    const an_window s = an_window_of_planes(&windows);
    an_tensor *in = an_nhwc(&x);
    if (an_in_bool(b, n, 5)) { /* padding that never wins, at the end alone */
        const int64_t h = an_ceil_extra(an_dim(in, 1), s.kernel_h, s.stride_h, s.pad_h, s.dilation_h);
        const int64_t w = an_ceil_extra(an_dim(in, 2), s.kernel_w, s.stride_w, s.pad_w, s.dilation_w);
        if (h > 0) in = an_pad_at(AN_AT, in, 1, 0, h, -INFINITY);
        if (w > 0) in = an_pad_at(AN_AT, in, 2, 0, w, -INFINITY);
    }
    put(b, n, an_max_pool_at(AN_AT, in, s), rank);
    if (alone) an_drop_batch(b, n);
    return an_positions_of_maxima(b, n, rank - 2);
}

an_status an_rule_avg_pool(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const int rank = strstr(n->target, "1d") ? 3 : 4;
    const bool alone = an_add_batch(&x, rank), ceil = an_in_bool(b, n, 4), pads = an_in_bool(b, n, 5);
    an_windows windows;
    AN_TRY(an_in_windows(b, n, rank - 2, -1, &windows));
    const an_window s = an_window_of_planes(&windows);
    an_tensor *in = an_nhwc(&x);
    const int64_t H = an_dim(in, 1), W = an_dim(in, 2);
    const int64_t h = ceil ? an_ceil_extra(H, s.kernel_h, s.stride_h, s.pad_h, 1) : 0;
    const int64_t w = ceil ? an_ceil_extra(W, s.kernel_w, s.stride_w, s.pad_w, 1) : 0;
    /* how much of each window counts: padding does or not, what ceil_mode adds never */
    an_tensor *ones = an_full_at(AN_AT, b->cx, an_dtype_of(an_widen(in)), AN_SHAPE(1, H, W, 1), 1);
    an_window bare = s;
    bare.pad_h = bare.pad_w = 0;
    in = an_pad_or_cut(an_pad_or_cut(in, 1, s.pad_h, s.pad_h + h), 2, s.pad_w, s.pad_w + w);
    an_tensor *y = an_avg_pool_at(AN_AT, in, bare);
    if (!an_in_none(n, 6)) { /* the sum by another number than how many count */
        y = an_mul_num_at(AN_AT, y, (double)s.kernel_h * s.kernel_w / an_in_float(b, n, 6));
    } else if ((!pads && (s.pad_h || s.pad_w)) || h > 0 || w > 0) {
        const double edge = pads ? 1 : 0;
        if (s.pad_h) ones = an_pad_at(AN_AT, ones, 1, s.pad_h, s.pad_h, edge);
        if (s.pad_w) ones = an_pad_at(AN_AT, ones, 2, s.pad_w, s.pad_w, edge);
        ones = an_pad_or_cut(an_pad_or_cut(ones, 1, 0, h), 2, 0, w);
        an_tensor *share = an_avg_pool_at(AN_AT, ones, bare);
        y = an_div_at(AN_AT, y, an_as(share, an_dtype_of(y)));
    }
    put(b, n, y, rank);
    if (alone) an_drop_batch(b, n);
    return AN_OK;
}
