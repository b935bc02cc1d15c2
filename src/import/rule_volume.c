/* rule_volume.c: convolutions and pools over three axes ([N,C,D,H,W]), by those over two: what lies behind one another
 * along D is a sum of two-dimensional convolutions, and a maximum or a mean is one over H and W, then one over D. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

enum { MOST_TAPS = 64 }; /* of a kernel along D */

/* [N,C,D,H,W], or [C,D,H,W] as a batch of one, as [N,D,H,W,C]. */
static an_tensor *frames(an_build *b, const an_pt2_node *n, bool *alone)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x);
    *alone = s.rank == 4;
    if (*alone) x = an_reshape_at(AN_AT, x, AN_SHAPE(1, s.dim[0], s.dim[1], s.dim[2], s.dim[3]));
    return an_permute_at(AN_AT, x, AN_SHAPE(0, 2, 3, 4, 1));
}

/* y [N,D,H,W,C] as PyTorch has it. */
static void put(an_build *b, const an_pt2_node *n, an_tensor *y, bool alone)
{
    y = an_permute_at(AN_AT, y, AN_SHAPE(0, 4, 1, 2, 3));
    const an_shape s = an_shape_of(y);
    an_out(b, n, 0, alone ? an_reshape_at(AN_AT, y, AN_SHAPE(s.dim[1], s.dim[2], s.dim[3], s.dim[4])) : y);
}

static bool positive(const int x[3])
{
    return x[0] > 0 && x[1] > 0 && x[2] > 0;
}

/* Frames at, at + stride, ... of x [N,D,H,W,C], `length` of them, as images [N*length,H,W,C]. */
static an_tensor *images(an_tensor *x, int64_t at, int64_t stride, int64_t length)
{
    an_tensor *y = an_slice_at(AN_AT, x, 1, at, at + (length - 1) * stride + 1, stride);
    const an_shape s = an_shape_of(y);
    return an_reshape_at(AN_AT, y, AN_SHAPE(s.dim[0] * s.dim[1], s.dim[2], s.dim[3], s.dim[4]));
}

static an_tensor *volume(an_tensor *y, int64_t N, int64_t D)
{
    const an_shape s = an_shape_of(y);
    return an_reshape_at(AN_AT, y, AN_SHAPE(N, D, s.dim[1], s.dim[2], s.dim[3]));
}

/* The filter of tap k along D of w [KD,...], and the window of each over H and W. */
static an_tensor *tap_of(an_tensor *w, int64_t k)
{
    an_tensor *tap = an_slice_at(AN_AT, w, 0, k, k + 1, 1);
    return an_reshape_at(AN_AT, tap, AN_SHAPE(an_dim(w, 1), an_dim(w, 2), an_dim(w, 3), an_dim(w, 4)));
}

static an_window plane_of(const int stride[3], const int pad[3], const int dilation[3], int64_t groups)
{
    return (an_window){.stride_h = stride[1],
                       .stride_w = stride[2],
                       .pad_h = pad[1],
                       .pad_w = pad[2],
                       .dilation_h = dilation[1],
                       .dilation_w = dilation[2],
                       .groups = (int)AN_MIN(AN_MAX(groups, -1), 1 << 20)};
}

/* x [N,D,H,W,C] by w [KD,O,KH,KW,I/g]; `pad` over H and W alone. */
static an_status convolve(an_build *b, const an_pt2_node *n, an_tensor *x, an_tensor *w, an_tensor *bias,
                          const int stride[3], const int pad[3], const int dilation[3], int64_t groups, bool alone)
{
    const int64_t taps = an_dim(w, 0), N = an_dim(x, 0), length = an_dim(x, 1);
    const int64_t reach = (int64_t)dilation[0] * (taps - 1) + 1, D = (length - reach) / stride[0] + 1;
    an_tensor *y = NULL;
    if (length < reach || taps < 1) return an_build_refuse(b, AN_E_IO, "a kernel longer than its input");
    if (taps > MOST_TAPS) return an_build_refuse(b, AN_E_UNSUPPORTED, "a kernel of more than %d frames", MOST_TAPS);
    const an_window s = plane_of(stride, pad, dilation, groups);
    for (int64_t k = 0; k < taps; k++) {
        an_tensor *tap = tap_of(w, k);
        an_tensor *part = an_conv2d_at(AN_AT, images(x, k * dilation[0], stride[0], D), tap, k == 0 ? bias : NULL, s);
        y = y ? an_add_at(AN_AT, y, part) : part;
    }
    put(b, n, volume(y, N, D), alone);
    return AN_OK;
}

/* input weight [O,I/g,KD,KH,KW] bias stride padding dilation groups; padding may be "same": one more at the end where it is odd */
an_status an_rule_conv3d(an_build *b, const an_pt2_node *n)
{
    bool alone;
    an_tensor *x = frames(b, n, &alone), *w = an_in(b, n, 1), *bias = an_in(b, n, 2);
    int stride[3], pad[3], dilation[3];
    an_in_axes(b, n, 3, 3, 1, stride);
    an_in_axes(b, n, 4, 3, 0, pad);
    an_in_axes(b, n, 5, 3, 1, dilation);
    if (!positive(stride) || !positive(dilation) || an_rank(w) != 5)
        return an_build_refuse(b, AN_E_IO, "a stride or dilation of 0; the file is damaged");
    const bool same = n->arg[4].text && strcmp(n->arg[4].text, "same") == 0;
    x = an_narrow(b, x);
    for (int k = 0; same && k < 3; k++) {
        const int64_t all = (int64_t)dilation[k] * (an_dim(w, 2 + k) - 1);
        if (all > 0) x = an_pad_at(AN_AT, x, 1 + k, all / 2, all - all / 2, 0);
    }
    w = an_narrow(b, an_permute_at(AN_AT, w, AN_SHAPE(2, 0, 3, 4, 1))); /* [KD,O,KH,KW,I/g] */
    if (pad[0]) x = an_pad_at(AN_AT, x, 1, pad[0], pad[0], 0);
    return convolve(b, n, x, w, bias, stride, pad, dilation, an_in_int(b, n, 6), alone);
}

/* input weight [I,O/g,KD,KH,KW] bias stride padding output_padding groups dilation: for each tap along D a transposed convolution over H and
 * W of all frames, whose results are added `stride` frames apart. */
an_status an_rule_conv_transpose3d(an_build *b, const an_pt2_node *n)
{
    bool alone;
    an_tensor *x = frames(b, n, &alone), *w = an_in(b, n, 1), *bias = an_in(b, n, 2), *y = NULL;
    int stride[3], pad[3], extra[3], dilation[3];
    an_in_axes(b, n, 3, 3, 1, stride);
    an_in_axes(b, n, 4, 3, 0, pad);
    an_in_axes(b, n, 5, 3, 0, extra);
    an_in_axes(b, n, 7, 3, 1, dilation);
    const int64_t g = an_in_int(b, n, 6), N = an_dim(x, 0), D = an_dim(x, 1);
    if (!positive(stride) || !positive(dilation) || an_rank(w) != 5 || g < 1 || g > 1 << 20 || D < 1 || pad[0] < 0 ||
        pad[1] < 0 || pad[2] < 0)
        return an_build_refuse(b, AN_E_IO, "groups, a stride, a padding or a dilation; the file is damaged");
    const int64_t taps = an_dim(w, 2),
                  length = (D - 1) * stride[0] + dilation[0] * (taps - 1) + 1 + extra[0] - 2 * (int64_t)pad[0];
    if (taps < 1 || length < 1) return an_build_refuse(b, AN_E_IO, "a result without frames; the file is damaged");
    if (taps > MOST_TAPS) return an_build_refuse(b, AN_E_UNSUPPORTED, "a kernel of more than %d frames", MOST_TAPS);
    an_window s = plane_of(stride, pad, dilation, g);
    s.extra_h = extra[1];
    s.extra_w = extra[2];
    x = an_narrow(b, images(x, 0, 1, D));
    w = an_narrow(b, an_permute_at(AN_AT, w, AN_SHAPE(2, 0, 3, 4, 1))); /* [KD,I,KH,KW,O/g] */
    for (int64_t k = 0; k < taps; k++) {
        an_tensor *tap = tap_of(w, k);
        an_tensor *part = an_spread(volume(an_widen(an_transposed_planes(x, tap, NULL, s)), N, D), 1, stride[0]);
        const int64_t before = k * dilation[0] - pad[0], reach = an_dim(part, 1);
        if (before >= length || before + reach <= 0) continue; /* all in the padding */
        part = an_pad_or_cut(part, 1, before, length - before - reach);
        y = y ? an_add_at(AN_AT, y, part) : part;
    }
    if (!y) return an_build_refuse(b, AN_E_UNSUPPORTED, "a result that no tap reaches");
    if (bias) y = an_add_at(AN_AT, y, an_widen(bias));
    put(b, n, an_as(y, an_dtype_of(x)), alone);
    return AN_OK;
}

/* ---- pools */

typedef an_tensor *pool(const char *at, an_tensor *x, an_window s);

/* Over H and W, then over D. `pad` counts cells at each end, whose value (-inf or 0) the kind of pool decides. */
static an_tensor *pooled(an_tensor *x, pool *f, const an_windows *w)
{
    const an_window plane = an_window_of_planes(w), depth = {.kernel_h = w->kernel[0],
                                                             .kernel_w = 1,
                                                             .stride_h = w->stride[0],
                                                             .stride_w = 1,
                                                             .pad_h = w->pad[0],
                                                             .dilation_h = w->dilation[0],
                                                             .dilation_w = 1,
                                                             .groups = 1};
    const int64_t N = an_dim(x, 0), D = an_dim(x, 1);
    an_tensor *y = volume(f(AN_AT, images(x, 0, 1, D), plane), N, D);
    const int64_t H = an_dim(y, 2), W = an_dim(y, 3), C = an_dim(y, 4);
    y = f(AN_AT, an_reshape_at(AN_AT, y, AN_SHAPE(N, D, H * W, C)), depth);
    return an_reshape_at(AN_AT, y, AN_SHAPE(N, an_dim(y, 1), H, W, C));
}

/* self kernel_size stride padding dilation ceil_mode */
an_status an_rule_max_pool3d(an_build *b, const an_pt2_node *n)
{
    bool alone;
    an_windows w;
    an_tensor *x = frames(b, n, &alone);
    AN_TRY(an_in_windows(b, n, 3, 4, &w));
    for (int k = 0; k < 3 && an_in_bool(b, n, 5); k++) { /* padding that never wins, at the end alone */
        const int64_t more = an_ceil_extra(an_dim(x, 1 + k), w.kernel[k], w.stride[k], w.pad[k], w.dilation[k]);
        if (more > 0) x = an_pad_at(AN_AT, x, 1 + k, 0, more, -INFINITY);
    }
    put(b, n, pooled(x, an_max_pool_at, &w), alone);
    return an_positions_of_maxima(b, n, 3);
}

/* self kernel_size stride padding ceil_mode count_include_pad divisor_override */
an_status an_rule_avg_pool3d(an_build *b, const an_pt2_node *n)
{
    bool alone;
    an_windows w;
    an_tensor *x = frames(b, n, &alone);
    AN_TRY(an_in_windows(b, n, 3, -1, &w));
    an_windows bare = w;
    memset(bare.pad, 0, sizeof bare.pad);
    const bool pads = an_in_bool(b, n, 5);
    bool uneven = false; /* whether a window has cells that do not count: padding may, what ceil_mode adds never does */
    an_tensor *ones =
        an_full_at(AN_AT, b->cx, an_dtype_of(an_widen(x)), AN_SHAPE(1, an_dim(x, 1), an_dim(x, 2), an_dim(x, 3), 1), 1);
    for (int k = 0; k < 3; k++) {
        const int64_t more =
            an_in_bool(b, n, 4) ? an_ceil_extra(an_dim(x, 1 + k), w.kernel[k], w.stride[k], w.pad[k], 1) : 0;
        x = an_pad_or_cut(x, 1 + k, w.pad[k], w.pad[k] + more);
        if (w.pad[k]) ones = an_pad_at(AN_AT, ones, 1 + k, w.pad[k], w.pad[k], pads ? 1 : 0);
        uneven = uneven || more > 0 || (w.pad[k] && !pads);
    }
    for (int k = 0; k < 3; k++) ones = an_pad_or_cut(ones, 1 + k, 0, an_dim(x, 1 + k) - an_dim(ones, 1 + k));
    an_tensor *y = pooled(x, an_avg_pool_at, &bare);
    if (!an_in_none(n, 6)) /* the sum by another number than how many count */
        y = an_mul_num_at(AN_AT, y, (double)w.kernel[0] * w.kernel[1] * w.kernel[2] / an_in_float(b, n, 6));
    else if (uneven)
        y = an_div_at(AN_AT, y, an_as(pooled(ones, an_avg_pool_at, &bare), an_dtype_of(y)));
    put(b, n, y, alone);
    return AN_OK;
}

/* Where each length is a multiple of its result's, a mean of equal windows; else a product along each axis. */
an_status an_rule_adaptive_avg_pool3d(an_build *b, const an_pt2_node *n)
{
    bool alone, equal = true;
    int64_t size[3] = {1, 1, 1};
    an_windows w = {.dilation = {1, 1, 1}};
    an_tensor *x = frames(b, n, &alone);
    if (an_in_ints(b, n, 1, size, 3) == 1) size[1] = size[2] = size[0];
    for (int k = 0; k < 3; k++) {
        const int64_t length = an_dim(x, 1 + k);
        if (size[k] < 1 || length < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "windows of no elements");
        equal = equal && length % size[k] == 0;
        w.kernel[k] = w.stride[k] = (int)(length / size[k]);
    }
    for (int k = 0; !equal && k < 3; k++) {
        x = an_adaptive_mean(b, x, 1 + k, size[k]);
        if (!x) return an_build_refuse(b, AN_E_UNSUPPORTED, "an axis that is too long");
    }
    put(b, n, equal ? pooled(x, an_avg_pool_at, &w) : x, alone);
    return AN_OK;
}
