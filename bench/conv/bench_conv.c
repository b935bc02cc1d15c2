/* bench_conv.c: convolutions and their gradients, pooling and batch norm on a device: the time of each launch beside
 * the multiply-add peak measured in the same second.
 *
 *     bench_conv [-d device] [-t threads] [-p float32|bfloat16] [-n images] [-r rounds] [-s start of a name] [-f] [-c]
 *
 * Shapes are those of ResNet's stages on small images, and those of ImageNet that differ. Each launch's time is the
 * fastest of the rounds, the peak the fastest of as many, because other programs use the machine too. On a CPU the line `in all` is the
 * processor time of the whole plan divided by the threads, which others make longer by emptying caches only, and its
 * share of the peak. -f: tf32 where a device has it. -c: kernels are compared with the oracle; a difference exits with 1. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE /* clock_gettime, getopt */
#endif
#include <anneal_tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct shape {
    const char *name;
    int side, c, o, kernel, stride, groups;
} shape;

static const shape SHAPES[] = {
    {"3x3 64", 32, 64, 64, 3, 1, 1},          {"3x3 128", 16, 128, 128, 3, 1, 1},
    {"3x3 256", 8, 256, 256, 3, 1, 1},        {"3x3 64 wide", 56, 64, 64, 3, 1, 1},
    {"3x3 128 s2", 32, 64, 128, 3, 2, 1},     {"1x1 256", 16, 64, 256, 1, 1, 1},
    {"3x3 256 s2", 16, 128, 256, 3, 2, 1},    {"3x3 512 s2", 16, 256, 512, 3, 2, 1},
    {"3x3 512", 7, 512, 512, 3, 1, 1},        {"3x3 512 small", 4, 512, 512, 3, 1, 1},
    {"1x1 s2", 32, 64, 128, 1, 2, 1},         {"stem 3", 32, 3, 64, 3, 1, 1},
    {"stem 7x7 s2", 224, 3, 64, 7, 2, 1},     {"grouped 32", 16, 128, 128, 3, 1, 4},
    {"grouped 4", 32, 128, 128, 3, 1, 32},    {"grouped 8", 16, 256, 256, 3, 1, 32},
    {"grouped 8 s2", 32, 256, 256, 3, 2, 32}, {"grouped 12", 16, 96, 96, 3, 1, 8},
    {"grouped 16", 8, 512, 512, 3, 1, 32},    {"grouped 24", 8, 192, 192, 3, 1, 8},
    {"grouped 2", 32, 64, 64, 3, 1, 32},      {"depthwise", 32, 64, 64, 3, 1, 64},
};

typedef struct options {
    const char *device, *start;
    int threads, images, rounds;
    an_dtype dtype;
    bool tf32, check;
    int faults;
} options;

static void die(const char *text)
{
    fprintf(stderr, "bench_conv: %s\n", text);
    exit(1);
}

static an_ctx *open_context(const options *o)
{
    an_ctx *cx = an_open(&(an_options){.device = o->device, .seed = 1, .threads = o->threads, .tf32 = o->tf32});
    if (!cx || an_error(cx)) die(cx ? an_error(cx) : "no context");
    an_profile(cx, true);
    return cx;
}

static an_tensor *uniform(an_ctx *cx, const char *name, an_dtype dtype, an_shape s)
{
    return an_state(cx, name, dtype, s, AN_UNIFORM(-1, 1));
}

enum { MOST = 64 };
typedef struct times {
    char kernel[MOST][96];
    double s[MOST], flops[MOST], bytes[MOST], all; /* all: processor time */
    int n;
} times;

static double processor(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Keeps the fastest of each launch of the plan that ran last. */
static void collect(an_ctx *cx, times *t)
{
    t->n = 0;
    for (int i = 0; i < an_launch_count(cx) && t->n < MOST; i++) {
        an_launch l;
        if (!an_launch_get(cx, i, &l) || l.device_s <= 0) continue;
        const int k = t->n++;
        if (t->s[k] == 0 || l.device_s < t->s[k]) t->s[k] = l.device_s;
        t->flops[k] = (double)l.flops;
        t->bytes[k] = (double)l.bytes;
        snprintf(t->kernel[k], sizeof t->kernel[k], "%s %s", l.kind, l.kernel);
    }
}

static void tell(void *user, const an_kernel_check *c)
{
    (void)user;
    printf("  %-24s %lld elements, worst %.3f of what is allowed %s%s\n", c->kernel, (long long)c->elements, c->worst,
           c->fault, c->skipped);
}

static void finish(an_ctx *cx, options *o, an_status status, double begin, times *t)
{
    const double all = processor() - begin;
    an_check_result result;
    if (status == AN_OK) status = an_synchronize(cx);
    if (status != AN_OK) die(an_error(cx));
    if (o->check) {
        if (an_check_kernels(cx, tell, NULL, &result) != AN_OK) die(an_error(cx));
        o->faults += result.faults;
    }
    if (t->all == 0 || all < t->all) t->all = all;
    collect(cx, t);
    an_reset(cx);
}

static an_tensor *convolved(an_ctx *cx, const options *o, const shape *s, an_tensor **x, an_tensor **w)
{
    *x = uniform(cx, "x", o->dtype, AN_SHAPE(o->images, s->side, s->side, s->c));
    *w = uniform(cx, "w", o->dtype, AN_SHAPE(s->o, s->kernel, s->kernel, s->c / s->groups));
    return an_conv2d(*x, *w, NULL,
                     (an_window){.pad_h = s->kernel / 2,
                                 .pad_w = s->kernel / 2,
                                 .stride_h = s->stride,
                                 .stride_w = s->stride,
                                 .groups = s->groups});
}

/* What: 0 y, 1 dx, 2 dw. The gradient of sum(y g) by y is g. */
static void convolve(an_ctx *cx, options *o, const shape *s, int what, times *t)
{
    an_tensor *x, *w, *y = convolved(cx, o, s, &x, &w);
    if (what) {
        an_tensor *leaf = what == 1 ? x : w, *g = uniform(cx, "g", o->dtype, an_shape_of(y));
        an_backward(an_sum(an_mul(y, g), AN_ALL));
        y = an_grad(leaf);
        if (!y) die("no gradient");
    }
    const double begin = processor();
    finish(cx, o, an_eval(y), begin, t);
}

static void report(const times *t, const options *o, double peak, const char *what, const char *which)
{
    double flops = 0, bytes = 0;
    for (int i = 0; i < t->n; i++) flops += t->flops[i], bytes += t->bytes[i];
    const double all = t->all / o->threads;
    if (!strcmp(o->device, "cpu"))
        printf("  %-10s %-44s %10.1f us%9.1f GFLOP/s %5.1f %%%9.1f GB/s\n", what, "in all", all * 1e6,
               flops / all * 1e-9, peak > 0 ? flops / all * 1e-7 / peak : 0, bytes / all * 1e-9);
    for (int i = 0; i < t->n; i++) {
        const bool conv = which && strstr(t->kernel[i], which);
        printf("  %-10s %-44s %10.1f us", what, t->kernel[i], t->s[i] * 1e6);
        if (conv || !which) printf("%9.1f GFLOP/s", t->flops[i] / t->s[i] * 1e-9);
        if (conv && peak > 0) printf(" %5.1f %%", t->flops[i] / t->s[i] * 1e-7 / peak);
        printf("%9.1f GB/s\n", t->bytes[i] / t->s[i] * 1e-9);
    }
}

static void bench_shape(options *o, const shape *s)
{
    static const char *const names[] = {"forward", "dx", "dw"}, *const kernels[] = {"conv2d", "conv2d_dx", "conv2d_dw"};
    an_ctx *cx = open_context(o);
    static times t[3];
    memset(t, 0, sizeof t);
    double peak = 0;
    for (int r = 0; r < o->rounds; r++) {
        const double now = an_fma_peak(cx, o->dtype);
        if (now > peak) peak = now;
        for (int k = 0; k < 3; k++) convolve(cx, o, s, k, &t[k]);
    }
    printf("%s: %d x %d x %d x %d to %d, kernel %d, stride %d, groups %d; peak %.1f GFLOP/s\n", s->name, o->images,
           s->side, s->side, s->c, s->o, s->kernel, s->stride, s->groups, peak);
    for (int k = 0; k < 3; k++) report(&t[k], o, peak, names[k], kernels[k]);
    an_close(cx);
}

/* Batch norm and ReLU, and pooling, with their gradients: rates of the memory. */
static void bench_rows(options *o, const char *name, int which)
{
    static times t;
    memset(&t, 0, sizeof t);
    an_ctx *cx = open_context(o);
    for (int r = 0; r < o->rounds; r++) {
        an_tensor *x = uniform(cx, "x", o->dtype, AN_SHAPE(o->images, 32, 32, 64)), *y = x, *dw = NULL;
        const an_window two = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2},
                        three = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
        if (which == 0) {
            an_tensor *gain = uniform(cx, "gain", AN_F32, AN_SHAPE(64)),
                      *bias = uniform(cx, "bias", AN_F32, AN_SHAPE(64));
            an_tensor *mean = uniform(cx, "mean", AN_F32, AN_SHAPE(64)),
                      *var = uniform(cx, "var", AN_F32, AN_SHAPE(64));
            y = an_relu(an_batch_norm(x, gain, bias, mean, var, 0.1, 1e-5, true));
            dw = gain;
        } else {
            y = which == 1 ? an_max_pool(x, two) : which == 2 ? an_max_pool(x, three) : an_avg_pool(x, two);
        }
        an_tensor *g = uniform(cx, "g", o->dtype, an_shape_of(y));
        an_backward(an_sum(an_mul(y, g), AN_ALL));
        an_tensor *dx = an_grad(x);
        if (!dx) die("no gradient");
        const double begin = processor();
        finish(cx, o, dw ? an_eval(y, dx, an_grad(dw)) : an_eval(y, dx), begin, &t);
    }
    printf("%s: %d x 32 x 32 x 64, forward and backward\n", name, o->images);
    report(&t, o, 0, "", NULL);
    an_close(cx);
}

int main(int argc, char **argv)
{
    static const char *const rows[] = {"batch norm", "max pool 2x2", "max pool 3x3 s2", "avg pool 2x2"};
    options o = {.device = "cpu", .start = "", .threads = 1, .images = 64, .rounds = 7, .dtype = AN_F32};
    for (int c; (c = getopt(argc, argv, "d:t:p:n:r:s:fc")) != -1;) switch (c) {
        case 'd': o.device = optarg; break;
        case 't': o.threads = atoi(optarg); break;
        case 'p': o.dtype = strcmp(optarg, "bfloat16") ? AN_F32 : AN_BF16; break;
        case 'n': o.images = atoi(optarg); break;
        case 'r': o.rounds = atoi(optarg); break;
        case 's': o.start = optarg; break;
        case 'f': o.tf32 = true; break;
        case 'c': o.check = true, o.rounds = 1; break;
        default: die("-d device -t threads -p float32|bfloat16 -n images -r rounds -s shape -f -c");
        }
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (!strncmp(SHAPES[i].name, o.start, strlen(o.start))) bench_shape(&o, &SHAPES[i]);
    for (int i = 0; i < 4; i++)
        if (!strncmp(rows[i], o.start, strlen(o.start))) bench_rows(&o, rows[i], i);
    return o.faults > 0;
}
