/* rule_resample.c: upsampling, and means over windows that adapt to a size, one axis after the other.
 *
 *     y[o] = sum over i of weight[o][i] x[i]
 *
 * is a product with the matrix [out,in], though most weights are zero: up to lengths of a hundred its multiply-adds cost less than loops that
 * add a few slices. Where each output is one input it is that input, read by its number: a product would make NaN of 0 times infinity. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

typedef enum resample_kind {
    BY_MEANS,
    BY_NEAREST,
    BY_NEAREST_MIDDLE,
    BY_LINES,
    BY_CUBES,
    SMOOTH_LINES,
    SMOOTH_CUBES
} resample_kind;

typedef struct resample {
    resample_kind kind;
    bool corners;
    double scale; /* of the file; 0: out / in */
} resample;

/* Keys' cubic convolution kernel at distance d >= 0. PyTorch's a is -3/4, with antialias=True -1/2. */
static double cubic(double a, double d)
{
    if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* A triangle, or a cubic convolution. */
static double smooth_filter(resample_kind kind, double d)
{
    d = fabs(d);
    return kind == SMOOTH_LINES ? fmax(1 - d, 0) : cubic(-0.5, d);
}

/* The distance between outputs, in inputs. */
static double step_of(const resample *r, int64_t in, int64_t out)
{
    if (r->corners) return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    return r->scale > 0 ? 1 / r->scale : (double)in / (double)out;
}

/* The weights of all inputs in output o with antialias=True: the filter is as wide as the step between outputs. */
static void smooth_weights(const resample *r, double step, int64_t in, int64_t o, double *weight)
{
    const double wide = AN_MAX(step, 1), reach = (r->kind == SMOOTH_LINES ? 1 : 2) * wide,
                 middle = step * ((double)o + 0.5);
    const int64_t from = AN_MAX((int64_t)(middle - reach + 0.5), 0), to = AN_MIN((int64_t)(middle + reach + 0.5), in);
    double sum = 0;
    for (int64_t k = 0; k < in; k++) weight[k] = 0;
    for (int64_t k = from; k < to; k++) sum += weight[k] = smooth_filter(r->kind, ((double)k - middle + 0.5) / wide);
    for (int64_t k = from; k < to; k++) weight[k] /= sum;
}

/* The weight of input i in output o. The nearest one is found in float32, as PyTorch finds it. */
static double weight_at(const resample *r, int64_t in, int64_t out, int64_t o, int64_t i)
{
    const double step = step_of(r, in, out);
    if (r->kind == BY_MEANS) {
        const int64_t from = o * in / out, to = an_ceil_div((o + 1) * in, out);
        return i >= from && i < to ? 1 / (double)(to - from) : 0;
    }
    if (r->kind == BY_NEAREST || r->kind == BY_NEAREST_MIDDLE) {
        const float near = r->scale > 0 ? (float)step : (float)in / (float)out;
        const float at = r->kind == BY_NEAREST ? (float)o : (float)o + 0.5f;
        return i == AN_MIN((int64_t)floorf(at * near), in - 1);
    }
    double at = r->corners ? (double)o * step : ((double)o + 0.5) * step - 0.5;
    if (r->kind == BY_CUBES) {
        const int64_t low = (int64_t)floor(at);
        double sum = 0;
        for (int tap = 0; tap < 4; tap++)
            if (i == AN_MIN(AN_MAX(low + tap - 1, 0), in - 1)) sum += cubic(-0.75, fabs(at - (double)low - (tap - 1)));
        return sum;
    }
    at = AN_MAX(at, 0);
    const int64_t low = AN_MIN((int64_t)at, in - 1), high = AN_MIN(low + 1, in - 1);
    const double part = at - (double)low;
    return (i == low ? 1 - part : 0) + (i == high ? part : 0);
}

static void weights_of(const resample *r, int64_t in, int64_t out, int64_t o, double *weight)
{
    if (r->kind == SMOOTH_LINES || r->kind == SMOOTH_CUBES) {
        smooth_weights(r, step_of(r, in, out), in, o, weight);
        return;
    }
    for (int64_t i = 0; i < in; i++) weight[i] = weight_at(r, in, out, o, i);
}

enum { MOST_WEIGHTS = 1 << 20 };

/* The lengths before, of, and behind an axis. */
typedef struct lines {
    int64_t before, in, behind;
} lines;

static lines lines_of(const an_shape *s, int axis)
{
    lines l = {1, s->dim[axis], 1};
    for (int i = 0; i < axis; i++) l.before *= s->dim[i];
    for (int i = axis + 1; i < s->rank; i++) l.behind *= s->dim[i];
    return l;
}

/* Numbers as an array of x's dtype, in a double or a float. */
static an_tensor *numbers(an_build *b, an_dtype dtype, const double *x, an_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= s.dim[i];
    if (dtype == AN_F64) return an_input_at(AN_AT, b->cx, AN_F64, s, x);
    an_arena arena = {0};
    float *f = AN_NEW_ARRAY(&arena, float, n);
    for (int64_t i = 0; f && i < n; i++) f[i] = (float)x[i];
    an_tensor *t = f ? an_input_at(AN_AT, b->cx, AN_F32, s, f) : NULL;
    an_arena_free(&arena);
    return t;
}

/* By the whole matrix w [out,in], on the left of x [before,in,behind]. */
static an_tensor *by_product(an_build *b, an_tensor *x, const lines *l, int64_t out, const double *w)
{
    an_tensor *m = numbers(b, an_dtype_of(x), w, AN_SHAPE(1, out, l->in));
    return m ? an_matmul_at(AN_AT, an_expand_at(AN_AT, m, AN_SHAPE(l->before, out, l->in)), x) : NULL;
}

/* Where each output is the input whose weight is not zero. */
static an_tensor *by_number(an_build *b, an_tensor *x, const lines *l, int64_t out, const double *w)
{
    an_arena arena = {0};
    int32_t *id = AN_NEW_ARRAY(&arena, int32_t, l->before * out);
    const int64_t times = out % l->in == 0 ? out / l->in : 0;
    bool repeats = times > 0; /* each input is as many outputs in a row */
    an_tensor *ids = NULL;
    for (int64_t o = 0; id && o < out; o++) {
        int64_t i = 0;
        while (w[o * l->in + i] == 0) i++;
        repeats = repeats && i == o / times;
        for (int64_t k = 0; k < l->before; k++) id[k * out + o] = (int32_t)(k * l->in + i);
    }
    if (id && !repeats) ids = an_input_at(AN_AT, b->cx, AN_I32, AN_SHAPE(l->before * out), id);
    an_arena_free(&arena);
    if (id && repeats) {
        an_tensor *each = an_reshape_at(AN_AT, x, AN_SHAPE(l->before, l->in, 1, l->behind));
        return an_expand_at(AN_AT, each, AN_SHAPE(l->before, l->in, times, l->behind));
    }
    return ids ? an_gather_at(AN_AT, an_reshape_at(AN_AT, x, AN_SHAPE(l->before * l->in, l->behind)), ids) : NULL;
}

/* x with an axis resampled to `out`; NULL: the axis is too long, or there is no memory. */
static an_tensor *along(an_build *b, an_tensor *x, int axis, int64_t out, const resample *r)
{
    const an_shape s = an_shape_of(x);
    const lines l = lines_of(&s, axis);
    if (l.in == out && r->scale == 0) return x;
    if (l.in < 1 || out < 1 || l.in > MOST_WEIGHTS / out) return NULL;
    if (r->kind == BY_MEANS && out == 1) return an_mean_at(AN_AT, x, AN_AXIS(axis), true);
    an_arena arena = {0};
    double *w = AN_NEW_ARRAY(&arena, double, l.in *out);
    for (int64_t o = 0; w && o < out; o++) weights_of(r, l.in, out, o, w + o * l.in);
    const bool nearest = r->kind == BY_NEAREST || r->kind == BY_NEAREST_MIDDLE;
    an_tensor *y = NULL, *in = an_reshape_at(AN_AT, nearest ? x : an_widen(x), AN_SHAPE(l.before, l.in, l.behind));
    if (w && nearest && l.before * AN_MAX(out, l.in) <= INT32_MAX)
        y = by_number(b, in, &l, out, w);
    else if (w)
        y = by_product(b, in, &l, out, w);
    an_arena_free(&arena);
    if (!y) return NULL;
    an_shape to = s;
    to.dim[axis] = out;
    return an_as(an_reshape_at(AN_AT, y, to), an_dtype_of(x));
}

an_tensor *an_adaptive_mean(an_build *b, an_tensor *x, int axis, int64_t out)
{
    return along(b, x, axis, out, &(resample){.kind = BY_MEANS});
}

/* x [N,C,...] with each axis behind the channels resampled to a size. */
static an_status resampled(an_build *b, const an_pt2_node *n, an_built_value x, const int64_t *size,
                           const resample *each)
{
    an_tensor *y = x.last ? x.t : an_last(x.t);
    for (int i = 0; i < an_rank(x.t) - 2; i++) {
        y = along(b, y, 1 + i, size[i], &each[i]);
        if (!y) return an_build_refuse(b, AN_E_UNSUPPORTED, "an axis that is too long");
    }
    an_out_last(b, n, 0, y, true);
    return AN_OK;
}

an_status an_rule_adaptive_avg_pool(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const int rank = strstr(n->target, "1d") ? 3 : 4;
    const bool alone = an_add_batch(&x, rank);
    const resample each[2] = {{.kind = BY_MEANS}, {.kind = BY_MEANS}};
    int out[3];
    an_in_axes(b, n, 1, rank - 2, 1, out);
    AN_TRY(resampled(b, n, x, rank == 3 ? (int64_t[]){out[2]} : (int64_t[]){out[1], out[2]}, each));
    if (alone) an_drop_batch(b, n);
    return AN_OK;
}

/* input output_size [align_corners] scale_factors: a size or a factor an axis */
static an_status upsample(an_build *b, const an_pt2_node *n, resample r, int sizes_at, int factors_at)
{
    an_built_value x = an_in_value(b, n, 0);
    const int rank = an_rank(x.t), axes = rank - 2;
    int64_t size[3] = {1, 1, 1};
    resample each[3] = {r, r, r};
    if (axes < 1 || axes > 3) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes", rank);
    const an_shape s = an_shape_of(an_plain(x.t, x.last));
    if (!an_in_none(n, sizes_at)) {
        if (an_in_ints(b, n, sizes_at, size, axes) != axes)
            return an_build_refuse(b, AN_E_IO, "not as many sizes as axes; the file is damaged");
    } else if (n->arg[factors_at].kind == AN_ARG_FLOATS && n->arg[factors_at].n == axes) {
        for (int i = 0; i < axes; i++) {
            each[i].scale = n->arg[factors_at].numbers[i].f;
            const double length = floor((double)s.dim[2 + i] * each[i].scale);
            size[i] = length >= 1 && length <= INT32_MAX ? (int64_t)length : 0;
            /* PyTorch copies an axis that keeps its length, and the nearest of an image's axis that doubles is each one twice, whatever the
             * factor is. */
            const bool kept = size[i] == s.dim[2 + i], doubled = size[i] == 2 * s.dim[2 + i];
            const bool image = r.kind == BY_NEAREST && axes == 2;
            if ((kept && (image || r.kind == BY_LINES)) || (doubled && image)) each[i].scale = 0;
        }
    } else {
        return an_build_refuse(b, AN_E_UNSUPPORTED, "neither sizes nor factors");
    }
    return resampled(b, n, x, size, each);
}

an_status an_rule_upsample_nearest(an_build *b, const an_pt2_node *n)
{
    return upsample(b, n, (resample){.kind = strstr(n->target, "exact") ? BY_NEAREST_MIDDLE : BY_NEAREST}, 1, 2);
}
an_status an_rule_upsample_linear(an_build *b, const an_pt2_node *n)
{
    return upsample(
        b, n, (resample){.kind = strstr(n->target, "_aa") ? SMOOTH_LINES : BY_LINES, .corners = an_in_bool(b, n, 2)}, 1,
        3);
}
an_status an_rule_upsample_cubic(an_build *b, const an_pt2_node *n)
{
    return upsample(
        b, n, (resample){.kind = strstr(n->target, "_aa") ? SMOOTH_CUBES : BY_CUBES, .corners = an_in_bool(b, n, 2)}, 1,
        3);
}
