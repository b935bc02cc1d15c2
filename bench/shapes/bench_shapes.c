/* bench_shapes.c: 200 random shapes, each beside its neighbour of round size: what is slow because nobody tuned it.
 *
 *     bench_shapes [-s text] [-t threads] [-p float32|bfloat16] [-r rounds] [-n shapes] [-k start of a kind's name] [-l limit]
 *
 * Half of the shapes come from a fixed seed, half from the text of -s, which is printed: `-s "$(git rev-parse HEAD)"`. A kind
 * is an operation with all its gradients. The neighbour has each extent at the nearest multiple of 32 (under 32: of 8; under 8:
 * as it is). Rates are arithmetic over time, so a neighbour's other size does not matter. A shape and its neighbour run in turn,
 * the fastest of the rounds counts, because other programs use the machine too; a shape under the limit runs four times as long
 * again before it is believed. Exits with 1 when a shape stays under the limit (0.6 of its neighbour's rate). */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE /* clock_gettime, getopt */
#endif
#include <anneal_tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXTENTS = 5, FIXED_SEED = 15 };
typedef struct shape {
    int kind;
    int64_t at[EXTENTS]; /* by kind, see KINDS */
} shape;

typedef struct options {
    const char *seed, *start;
    an_dtype dtype;
    int threads, rounds, shapes;
    double limit;
} options;

static void die(const char *text)
{
    fprintf(stderr, "bench_shapes: %s\n", text);
    exit(2);
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 16;
}

static int64_t within(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(next(state) % (uint64_t)(high - low + 1));
}

static uint64_t seed_of(const char *text)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++) h = (h ^ (uint8_t)*text) * 1099511628211u;
    return h ? h : 1;
}

static void draw_product(uint64_t *s, int64_t *at) /* rows, k, n: y = x W^T */
{
    at[0] = next(s) % 4 == 0 ? within(s, 1, 4) : within(s, 5, 600);
    at[1] = within(s, 5, 700);
    at[2] = next(s) % 8 == 0 ? 65 : within(s, 5, 700);
}

static void draw_batched(uint64_t *s, int64_t *at) /* batch, rows, k, n */
{
    at[0] = within(s, 2, 12);
    for (int i = 1; i < 4; i++) at[i] = within(s, 5, 200);
}

static void draw_attention(uint64_t *s, int64_t *at) /* batch, heads, positions, head size */
{
    at[0] = within(s, 1, 4);
    at[1] = within(s, 1, 8);
    at[2] = within(s, 9, 400);
    at[3] = within(s, 13, 256);
}

static void draw_conv(uint64_t *s, int64_t *at) /* images, side, channels, filters, kernel */
{
    at[0] = within(s, 1, 4);
    at[1] = within(s, 7, 40);
    at[2] = within(s, 3, 100);
    at[3] = within(s, 5, 100);
    at[4] = next(s) % 3 ? 3 : next(s) % 2 ? 1 : 5;
}

static void draw_rows(uint64_t *s, int64_t *at) /* rows, length */
{
    at[0] = within(s, 40, 2000);
    at[1] = next(s) % 4 == 0 ? 211 : within(s, 17, 1500);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static an_tensor *uniform(an_ctx *cx, const char *name, an_dtype dtype, an_shape s)
{
    return an_state(cx, name, dtype, s, AN_UNIFORM(-1, 1));
}

/* Lets the gradients of sum(y g) be asked for: that by y is g. */
static void backward(an_ctx *cx, an_tensor *y, an_dtype dtype)
{
    an_backward(an_sum(an_mul(y, uniform(cx, "g", dtype, an_shape_of(y))), AN_ALL));
}

static an_status run_product(an_ctx *cx, an_dtype t, const int64_t *at)
{
    an_tensor *x = uniform(cx, "x", t, AN_SHAPE(at[0], at[1])), *w = uniform(cx, "w", t, AN_SHAPE(at[2], at[1]));
    an_tensor *y = an_linear(x, w, NULL);
    backward(cx, y, t);
    return an_eval(y, an_grad(x), an_grad(w));
}

static an_status run_batched(an_ctx *cx, an_dtype t, const int64_t *at)
{
    an_tensor *a = uniform(cx, "a", t, AN_SHAPE(at[0], at[1], at[2]));
    an_tensor *b = uniform(cx, "b", t, AN_SHAPE(at[0], at[2], at[3])), *y = an_matmul(a, b);
    backward(cx, y, t);
    return an_eval(y, an_grad(a), an_grad(b));
}

static an_status run_attention(an_ctx *cx, an_dtype t, const int64_t *at)
{
    const an_shape s = AN_SHAPE(at[0], at[1], at[2], at[3]);
    an_tensor *q = uniform(cx, "q", t, s), *k = uniform(cx, "k", t, s), *v = uniform(cx, "v", t, s);
    an_tensor *y = an_attention(q, k, v, 0.125, true, 0);
    backward(cx, y, t);
    return an_eval(y, an_grad(q), an_grad(k), an_grad(v));
}

static an_status run_conv(an_ctx *cx, an_dtype t, const int64_t *at)
{
    an_tensor *x = uniform(cx, "x", t, AN_SHAPE(at[0], at[1], at[1], at[2]));
    an_tensor *w = uniform(cx, "w", t, AN_SHAPE(at[3], at[4], at[4], at[2]));
    an_tensor *y = an_conv2d(x, w, NULL, (an_window){.pad_h = (int)at[4] / 2, .pad_w = (int)at[4] / 2});
    backward(cx, y, t);
    return an_eval(y, an_grad(x), an_grad(w));
}

static an_status run_norm(an_ctx *cx, an_dtype t, const int64_t *at)
{
    an_tensor *x = uniform(cx, "x", t, AN_SHAPE(at[0], at[1]));
    an_tensor *gain = uniform(cx, "gain", AN_F32, AN_SHAPE(at[1])), *y = an_layer_norm(x, gain, NULL, 1e-5);
    backward(cx, y, t);
    return an_eval(y, an_grad(x), an_grad(gain));
}

static an_status run_loss(an_ctx *cx, an_dtype t, const int64_t *at)
{
    an_tensor *x = uniform(cx, "x", t, AN_SHAPE(at[0], at[1]));
    an_tensor *labels = an_state(cx, "labels", AN_I32, AN_SHAPE(at[0]), AN_FILL(5));
    an_tensor *loss = an_mean(an_cross_entropy(x, labels), AN_ALL);
    an_backward(loss);
    return an_eval(loss, an_grad(x));
}

static const struct kind {
    const char *name;
    int extents, rounded, share; /* leading extents that stay (batch), and of 20 shapes how many */
    int last;                    /* extents from here on stay (a kernel's size) */
    bool squares;                /* extent 2 counts twice in the work (attention's positions) */
    void (*draw)(uint64_t *state, int64_t *at);
    an_status (*run)(an_ctx *cx, an_dtype t, const int64_t *at);
} KINDS[] = {
    {"product", 3, 0, 7, 3, false, draw_product, run_product},
    {"batched", 4, 1, 3, 4, false, draw_batched, run_batched},
    {"attention", 4, 2, 4, 4, true, draw_attention, run_attention},
    {"conv", 5, 1, 3, 4, false, draw_conv, run_conv},
    {"norm", 2, 0, 2, 2, false, draw_rows, run_norm},
    {"loss", 2, 0, 1, 2, false, draw_rows, run_loss},
};

/* In units of multiply-adds or elements: only ratios of one kind are looked at. */
static double work_of(const shape *s)
{
    double w = 1;
    for (int i = 0; i < KINDS[s->kind].extents; i++) w *= (double)s->at[i];
    if (KINDS[s->kind].squares) w *= (double)s->at[2];
    if (KINDS[s->kind].last < KINDS[s->kind].extents) w *= (double)s->at[1] * (double)s->at[4]; /* both sides */
    return w;
}

static shape neighbour_of(const shape *s)
{
    shape n = *s;
    for (int i = KINDS[s->kind].rounded; i < KINDS[s->kind].last; i++) {
        const int64_t unit = s->at[i] >= 32 ? 32 : s->at[i] >= 8 ? 8 : 1;
        n.at[i] = (s->at[i] + unit / 2) / unit * unit;
    }
    return n;
}

static shape draw(uint64_t *state)
{
    int64_t ticket = within(state, 0, 19);
    shape s = {0};
    while (ticket >= KINDS[s.kind].share) ticket -= KINDS[s.kind++].share;
    KINDS[s.kind].draw(state, s.at);
    return s;
}

/* ---- timing ------------------------------------------------------------------------------------------------------ */

static an_ctx *open_context(const options *o)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = 1, .threads = o->threads});
    if (!cx || an_error(cx)) die(cx ? an_error(cx) : "no context");
    an_profile(cx, true);
    return cx;
}

static double processor(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Lowers *best to the seconds that the launches of one run took: by the clock, or the run's processor time where that is less,
 * which planning lengthens but being suspended does not. */
static void time_once(an_ctx *cx, const options *o, const shape *s, double *best)
{
    const double begin = processor();
    if (KINDS[s->kind].run(cx, o->dtype, s->at) != AN_OK || an_synchronize(cx) != AN_OK) die(an_error(cx));
    const double busy = (processor() - begin) / o->threads;
    double sum = 0;
    for (int i = 0; i < an_launch_count(cx); i++) {
        an_launch l;
        if (an_launch_get(cx, i, &l)) sum += l.device_s;
    }
    an_reset(cx);
    if (busy < sum) sum = busy;
    if (*best == 0 || sum < *best) *best = sum;
}

/* The rate beside that of the neighbour; 1 when the shape is round itself. */
static double compare(const options *o, const shape *s, const shape *n, double seconds[2])
{
    an_ctx *a = open_context(o), *b = open_context(o);
    double ratio = 0;
    seconds[0] = seconds[1] = 0;
    for (int r = 0; r < o->rounds || (ratio < o->limit && r < 5 * o->rounds); r++) {
        time_once(a, o, s, &seconds[0]);
        time_once(b, o, n, &seconds[1]);
        ratio = work_of(s) / seconds[0] / (work_of(n) / seconds[1]);
    }
    an_close(a);
    an_close(b);
    return ratio;
}

static void print_extents(const shape *s)
{
    char text[64];
    int at = 0;
    for (int i = 0; i < KINDS[s->kind].extents; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%lld", i ? "x" : "", (long long)s->at[i]);
    printf(" %-20s", text);
}

int main(int argc, char **argv)
{
    options o = {.seed = "", .start = "", .dtype = AN_F32, .threads = 1, .rounds = 7, .shapes = 200, .limit = 0.6};
    for (int c; (c = getopt(argc, argv, "s:t:p:r:n:k:l:")) != -1;) switch (c) {
        case 's': o.seed = optarg; break;
        case 't': o.threads = atoi(optarg); break;
        case 'p': o.dtype = strcmp(optarg, "bfloat16") ? AN_F32 : AN_BF16; break;
        case 'r': o.rounds = atoi(optarg); break;
        case 'n': o.shapes = atoi(optarg); break;
        case 'k': o.start = optarg; break;
        case 'l': o.limit = atof(optarg); break;
        default: die("-s text -t threads -p float32|bfloat16 -r rounds -n shapes -k kind -l limit");
        }
    uint64_t fixed = FIXED_SEED * UINT64_C(0x9e3779b97f4a7c15), drawn = seed_of(o.seed);
    int below = 0, all = 0;
    double least = 1e9;
    printf("%d shapes, half from a fixed seed, half from \"%s\"; microseconds, and the rate beside the neighbour's\n",
           o.shapes, o.seed);
    for (int i = 0; i < o.shapes; i++) {
        const shape s = draw(i % 2 ? &drawn : &fixed), n = neighbour_of(&s);
        if (strncmp(KINDS[s.kind].name, o.start, strlen(o.start)) != 0) continue;
        double seconds[2];
        const double ratio = compare(&o, &s, &n, seconds);
        printf("%s %-10s", i % 2 ? "drawn" : "fixed", KINDS[s.kind].name);
        print_extents(&s);
        printf("%10.1f ", seconds[0] * 1e6);
        print_extents(&n);
        printf("%10.1f   %.2f%s\n", seconds[1] * 1e6, ratio, ratio < o.limit ? "  below the limit" : "");
        fflush(stdout);
        below += ratio < o.limit, all++;
        if (ratio < least) least = ratio;
    }
    printf("%d shapes, %d below %.2f of their neighbour's rate, the least %.2f\n", all, below, o.limit, least);
    return below > 0;
}
