/* conv_cudnn.c: convolutions and their gradients by cuDNN's graph interface (cudnnBackend...).
 *
 * Owns:       which convolutions the library runs, their description to it, the choice of its algorithm, their workspace.
 *             One plan of the library for each shape, made when the planner first asks and kept until the device is closed.
 * Does not:   choose the layout: the planner gives NHWC images and OHWI weights (planner/lower_conv.c); or fuse anything.
 * Invariant:  a pure function of (spec, device, library version): nothing is timed. Of the algorithms that the library's
 *             heuristic returns, best first, it is the first that sums in the same order in every run, uses the tensor cores
 *             as the dtypes say, and needs no more than AN_CUDA_WORKSPACE. Where there is none, and where the library does not
 *             start, our own kernel runs (conv_bf16.inc, gemm.inc).
 *
 * Axes are named in the library's order N, C, H, W; strides tell it that channels are innermost.
 */
#include "device/cuda/cuda_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FORWARD, DX, DW };

/* What tells convolutions apart. Nothing but 32-bit numbers, so that equal ones have equal bytes. */
typedef struct conv_shape {
    int32_t what, images, x[2], y[2], channels, outputs, groups; /* channels, outputs: of all groups */
    int32_t taps[2], stride[2], pad[2], dilation[2], dtype, out_dtype;
} conv_shape;

struct an_conv_plan {
    conv_shape shape;
    dnn_object config, plan; /* NULL: the library does not run it */
    int64_t workspace_bytes;
    an_conv_plan *next;
};

struct an_cuda_convs {
    an_device *d;
    an_cudnn dnn;
    dnn_handle handle; /* NULL: not started yet */
    bool refused;      /* it does not start */
    an_conv_plan *plans;
};

/* ---------------------------------------------------------------------------------------------- shapes */

static conv_shape shape_of(const an_gemm_spec *s)
{
    const an_window_spec *v = &s->window;
    const int32_t positions = v->out[0] * v->out[1];
    conv_shape c = {.groups = s->nb[2], .dtype = s->a_dtype, .out_dtype = s->c_dtype};
    c.what = v->of == AN_WINDOW_B ? DW : v->tap[0] < 0 ? DX : FORWARD;
    c.images = (c.what == DW ? s->k : s->m) / positions;
    const int32_t others = (c.what == DW ? s->m : s->n) * c.groups;
    c.channels = c.what == DX ? others : v->pixel;
    c.outputs = c.what == DX ? v->pixel : others;
    for (int i = 0; i < 2; i++) {
        c.x[i] = c.what == DX ? v->out[i] : v->in[i];
        c.y[i] = c.what == DX ? v->in[i] : v->out[i];
        c.taps[i] = v->taps[i];
        c.stride[i] = c.what == DX ? v->apart[i] : v->step[i];
        c.pad[i] = abs(v->start[i]);
        c.dilation[i] = abs(v->tap[i]);
    }
    return c;
}

/* ---------------------------------------------------------------------------------------------- descriptions */

/* Descriptions that are needed until the library's plan is made. After a failure nothing more is asked of the library. */
typedef struct builder {
    const an_cudnn *dnn;
    dnn_object made[96];
    int n;
    bool failed;
} builder;

static dnn_object make(builder *b, int kind)
{
    dnn_object o = NULL;
    if (b->failed) return NULL;
    b->failed = b->n == (int)AN_COUNT(b->made) || b->dnn->object_new(kind, &o);
    if (!b->failed) b->made[b->n++] = o;
    return b->failed ? NULL : o;
}

static void set(builder *b, dnn_object o, int which, int type, int64_t n, const void *value)
{
    if (!b->failed) b->failed = b->dnn->set(o, which, type, n, value);
}

static void finish(builder *b, dnn_object o)
{
    if (!b->failed) b->failed = b->dnn->finish(o);
}

static void free_made(builder *b)
{
    while (b->n) b->dnn->object_free(b->made[--b->n]);
}

static int64_t type_of(int dtype)
{
    return dtype == AN_BF16 ? DNN_BF16 : dtype == AN_F16 ? DNN_F16 : DNN_F32;
}

static dnn_object tensor(builder *b, int64_t id, int dtype, const int64_t extent[4])
{
    const int64_t alignment = 16, row = extent[3] * extent[1], stride[4] = {extent[2] * row, 1, row, extent[1]};
    const int type = (int)type_of(dtype);
    dnn_object o = make(b, DNN_TENSOR);
    set(b, o, DNN_TENSOR_ID, DNN_TYPE_INT64, 1, &id);
    set(b, o, DNN_TENSOR_TYPE, DNN_TYPE_DTYPE, 1, &type);
    set(b, o, DNN_TENSOR_EXTENTS, DNN_TYPE_INT64, 4, extent);
    set(b, o, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, 4, stride);
    set(b, o, DNN_TENSOR_ALIGNMENT, DNN_TYPE_INT64, 1, &alignment);
    finish(b, o);
    return o;
}

static dnn_object convolution(builder *b, const conv_shape *c)
{
    const int compute = DNN_F32, mode = DNN_CROSS_CORRELATION;
    const int64_t axes = 2, dilation[2] = {c->dilation[0], c->dilation[1]}, stride[2] = {c->stride[0], c->stride[1]},
                  pad[2] = {c->pad[0], c->pad[1]};
    dnn_object o = make(b, DNN_CONVOLUTION);
    set(b, o, DNN_CONVOLUTION_COMPUTE, DNN_TYPE_DTYPE, 1, &compute);
    set(b, o, DNN_CONVOLUTION_MODE, DNN_TYPE_MODE, 1, &mode);
    set(b, o, DNN_CONVOLUTION_AXES, DNN_TYPE_INT64, 1, &axes);
    set(b, o, DNN_CONVOLUTION_DILATION, DNN_TYPE_INT64, 2, dilation);
    set(b, o, DNN_CONVOLUTION_STRIDE, DNN_TYPE_INT64, 2, stride);
    set(b, o, DNN_CONVOLUTION_PAD_BEFORE, DNN_TYPE_INT64, 2, pad);
    set(b, o, DNN_CONVOLUTION_PAD_BEHIND, DNN_TYPE_INT64, 2, pad);
    finish(b, o);
    return o;
}

/* The operation, alone in a graph. A tensor's id is its place among the arguments of the GEMM, from 1. */
static dnn_object graph_of(builder *b, dnn_handle handle, const conv_shape *c)
{
    static const struct {
        int operation, alpha; /* beta, the convolution, w, x and y follow */
        int64_t x, w, y;      /* ids */
    } forms[] = {
        [FORWARD] = {DNN_FORWARD, DNN_FORWARD_ALPHA, 1, 2, 3},
        [DX] = {DNN_DX, DNN_DX_ALPHA, 3, 2, 1},
        [DW] = {DNN_DW, DNN_DW_ALPHA, 2, 3, 1},
    };
    const int at = forms[c->what].alpha;
    const float one = 1, zero = 0;
    const int64_t x[4] = {c->images, c->channels, c->x[0], c->x[1]},
                  w[4] = {c->outputs, c->channels / c->groups, c->taps[0], c->taps[1]},
                  y[4] = {c->images, c->outputs, c->y[0], c->y[1]};
    const dnn_object conv = convolution(b, c),
                     xs = tensor(b, forms[c->what].x, c->what == DX ? c->out_dtype : c->dtype, x),
                     ws = tensor(b, forms[c->what].w, c->what == DW ? c->out_dtype : c->dtype, w),
                     ys = tensor(b, forms[c->what].y, c->what == FORWARD ? c->out_dtype : c->dtype, y);
    dnn_object o = make(b, forms[c->what].operation);
    set(b, o, at, DNN_TYPE_FLOAT, 1, &one);
    set(b, o, at + 1, DNN_TYPE_FLOAT, 1, &zero);
    set(b, o, at + 2, DNN_TYPE_OBJECT, 1, &conv);
    set(b, o, at + 3, DNN_TYPE_OBJECT, 1, &ws);
    set(b, o, at + 4, DNN_TYPE_OBJECT, 1, &xs);
    set(b, o, at + 5, DNN_TYPE_OBJECT, 1, &ys);
    finish(b, o);
    dnn_object graph = make(b, DNN_GRAPH);
    set(b, graph, DNN_GRAPH_HANDLE, DNN_TYPE_HANDLE, 1, &handle);
    set(b, graph, DNN_GRAPH_OPERATIONS, DNN_TYPE_OBJECT, 1, &o);
    finish(b, graph);
    return graph;
}

/* ---------------------------------------------------------------------------------------------- the choice */

/* Whether an algorithm gives the same bits in every run, multiplies on the tensor cores (the others are several times
 * slower), and rounds nothing but what the dtypes say. */
static bool serves(builder *b, dnn_object config)
{
    enum { MOST = 32 };
    int32_t note[MOST];
    int64_t got = 0, n = 0;
    bool tensor_cores = false;
    dnn_object engine = make(b, DNN_ENGINE);
    if (b->failed || b->dnn->get(config, DNN_CONFIG_ENGINE, DNN_TYPE_OBJECT, 1, &got, &engine) ||
        b->dnn->get(engine, DNN_ENGINE_NOTES, DNN_TYPE_NOTE, MOST, &n, note))
        return false;
    for (int64_t i = 0; i < n && i < MOST; i++) {
        if (note[i] != DNN_NOTE_TENSOR_CORES && note[i] != DNN_NOTE_STRICT_NAN) return false;
        tensor_cores |= note[i] == DNN_NOTE_TENSOR_CORES;
    }
    return tensor_cores;
}

/* The library's plan by this algorithm, if its workspace is small enough. */
static bool plan_by(an_cuda_convs *l, dnn_object config, an_conv_plan *out)
{
    dnn_object plan = NULL;
    int64_t got = 0, bytes = -1;
    if (l->dnn.object_new(DNN_PLAN, &plan)) return false;
    if (!l->dnn.set(plan, DNN_PLAN_HANDLE, DNN_TYPE_HANDLE, 1, &l->handle) &&
        !l->dnn.set(plan, DNN_PLAN_CONFIG, DNN_TYPE_OBJECT, 1, &config) && !l->dnn.finish(plan) &&
        !l->dnn.get(plan, DNN_PLAN_WORKSPACE, DNN_TYPE_INT64, 1, &got, &bytes) && bytes >= 0 &&
        bytes <= AN_CUDA_WORKSPACE) {
        out->plan = plan;
        out->workspace_bytes = bytes;
        return true;
    }
    l->dnn.object_free(plan);
    return false;
}

static void choose(an_cuda_convs *l, an_conv_plan *out)
{
    enum { CHOICES = 24 };
    builder b = {.dnn = &l->dnn};
    dnn_object config[CHOICES] = {NULL};
    int64_t n = 0;
    const int mode = DNN_HEURISTIC_A;
    const dnn_object graph = graph_of(&b, l->handle, &out->shape);
    dnn_object heuristic = make(&b, DNN_HEURISTIC);
    set(&b, heuristic, DNN_HEURISTIC_GRAPH, DNN_TYPE_OBJECT, 1, &graph);
    set(&b, heuristic, DNN_HEURISTIC_MODE, DNN_TYPE_HEURISTIC, 1, &mode);
    finish(&b, heuristic);
    for (int i = 0; i < CHOICES; i++) config[i] = make(&b, DNN_CONFIG);
    if (!b.failed) b.failed = l->dnn.get(heuristic, DNN_HEURISTIC_RESULTS, DNN_TYPE_OBJECT, CHOICES, &n, config);
    for (int i = 0; i < n && i < CHOICES && !b.failed && !out->plan; i++)
        if (serves(&b, config[i]) && plan_by(l, config[i], out)) out->config = config[i];
    for (int i = 0; i < b.n; i++) /* a plan's algorithm lives as long as the plan */
        if (out->config && b.made[i] == out->config) b.made[i] = b.made[--b.n];
    free_made(&b);
}

static bool is_started(an_cuda_convs *l)
{
    an_err quiet = {0};
    if (l->handle || l->refused) return l->handle;
    l->refused = an_cuda_enter(&quiet, l->d) != AN_OK || l->dnn.create(&l->handle);
    if (l->refused) {
        l->handle = NULL;
    } else if (l->dnn.stream(l->handle, l->d->stream)) {
        l->dnn.destroy(l->handle);
        l->handle = NULL;
        l->refused = true;
    }
    return l->handle;
}

/* Forward in float16, where the library's result is 0 in place of -inf (seen with version 9 on an H200), so that an
 * overflow would go on as a plausible number. And groups that our own kernels do as fast or faster (bench/conv): of a number of
 * channels that the library's tiles do not divide, and in tf32 all gradients of weights. */
static bool is_ours(const conv_shape *c)
{
    const int32_t inner = c->channels / c->groups;
    if (c->what == FORWARD && c->dtype == AN_F16) return true;
    return c->groups > 1 && ((inner & (inner - 1)) || (c->what == DW && c->dtype == AN_F32));
}

const an_conv_plan *an_cuda_conv_plan(const an_device *d, const an_gemm_spec *s)
{
    an_cuda_convs *l = d->convs;
    if (!l || !s->window.of || s->a_dtype != s->b_dtype || (s->a_dtype == AN_F32 && !d->tf32)) return NULL;
    const conv_shape shape = shape_of(s);
    if (is_ours(&shape)) return NULL;
    for (const an_conv_plan *p = l->plans; p; p = p->next)
        if (!memcmp(&p->shape, &shape, sizeof shape)) return p->plan ? p : NULL;
    if (!is_started(l)) return NULL;
    an_conv_plan *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->shape = shape;
    p->next = l->plans;
    l->plans = p;
    choose(l, p);
    return p->plan ? p : NULL;
}

int64_t an_cuda_conv_workspace(const an_conv_plan *p)
{
    return p->workspace_bytes;
}

/* ---------------------------------------------------------------------------------------------- running */

static an_status check(an_err *err, const an_cuda_convs *l, int r, const an_conv_plan *p)
{
    const conv_shape *c = &p->shape;
    if (!r) return AN_OK;
    const char *text = l->dnn.error_text(r);
    return an_fail(err, AN_E_DEVICE,
                   "cuda: cuDNN: a convolution of %d x %d x %d x %d to %d channels fails: %s (%d); ANNEAL_CUDNN=0 runs "
                   "without it",
                   c->images, c->x[0], c->x[1], c->channels, c->outputs, text ? text : "no reason given", r);
}

an_status an_cuda_conv_run(an_err *err, an_device *d, const an_conv_plan *p, const cu_pointer address[3],
                           cu_pointer workspace)
{
    static const int64_t id[3] = {1, 2, 3};
    const an_cuda_convs *l = d->convs;
    const cu_pointer scratch = p->workspace_bytes ? workspace : 0;
    dnn_object pack = NULL;
    int r = l->dnn.object_new(DNN_PACK, &pack);
    if (!r) r = l->dnn.set(pack, DNN_PACK_IDS, DNN_TYPE_INT64, 3, id);
    if (!r) r = l->dnn.set(pack, DNN_PACK_ADDRESSES, DNN_TYPE_ADDRESS, 3, address);
    if (!r) r = l->dnn.set(pack, DNN_PACK_WORKSPACE, DNN_TYPE_ADDRESS, 1, &scratch);
    if (!r) r = l->dnn.finish(pack);
    if (!r) r = l->dnn.execute(l->handle, p->plan, pack);
    if (pack) l->dnn.object_free(pack);
    return check(err, l, r, p);
}

/* ---------------------------------------------------------------------------------------------- open and close */

an_status an_cuda_convs_open(an_err *err, an_device *d)
{
    an_cuda_convs *l = calloc(1, sizeof *l);
    if (!l) return an_fail_nomem(err, "cuDNN", sizeof *l);
    an_status status = an_cudnn_find(err, &l->dnn);
    if (status != AN_OK) {
        free(l);
        return status;
    }
    l->d = d;
    d->convs = l;
    return AN_OK;
}

void an_cuda_convs_close(an_device *d, bool reachable)
{
    an_cuda_convs *l = d->convs;
    d->convs = NULL;
    if (!l) return;
    for (an_conv_plan *p = l->plans, *next; p; p = next) {
        next = p->next;
        if (reachable && p->plan) l->dnn.object_free(p->plan);
        if (reachable && p->config) l->dnn.object_free(p->config);
        free(p);
    }
    if (reachable && l->handle) l->dnn.destroy(l->handle);
    free(l);
}
