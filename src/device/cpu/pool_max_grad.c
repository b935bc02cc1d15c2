/* pool_max_grad.c: the gradient of max pooling on the CPU: dx[p] = sum of dy[o] over the windows o whose first maximum is p.
 *
 * Owns:       both ways to run it: vectors of four channels for f32 and windows of few cells, else a channel at a time in double.
 * Does not:   allocate: scratch is part of the plan.
 * Invariants: the same bits either way: a sum is taken in double, in the order of the windows, and rounded once. A NaN is a maximum. */
#include "device/cpu/library_calls.h"

#include <string.h>

enum {
    CHANNELS = 16, /* of a unit */
    CELLS = 64,    /* of a window, the most of the vectors' way */
    LANES = 4
};

/* ------------------------------------------------------------------------------------------------ any float, any window */

/* One sample and a block of channels: dy [N,H',W',C], x to dx [N,H,W,C]; scratch: x and dx [H,W,CHANNELS]. */
static void by_channel(const an_call_job *j, int64_t u, void *scratch)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const int64_t *a = j->s->attr; /* kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w */
    const int64_t H = x->shape[1], W = x->shape[2], C = x->shape[3], OH = dy->shape[1], OW = dy->shape[2];
    const int64_t blocks = an_ceil_div(C, CHANNELS), b = u / blocks, from = u % blocks * CHANNELS;
    const int64_t m = AN_MIN(CHANNELS, C - from);
    double *xv = scratch, *dx = xv + H * W * CHANNELS;
    memset(dx, 0, (size_t)(H * W * CHANNELS) * sizeof *dx);
    for (int64_t i = 0; i < H * W; i++)
        an_call_load(xv + i * CHANNELS, j->arg[1], x->dtype, (b * H * W + i) * C + from, m);
    for (int64_t o = 0; o < OH * OW; o++) {
        double g[CHANNELS];
        int64_t best[CHANNELS];
        an_call_load(g, j->arg[0], dy->dtype, (b * OH * OW + o) * C + from, m);
        for (int64_t c = 0; c < m; c++) best[c] = -1;
        for (int64_t cell = 0; cell < a[0] * a[1]; cell++) {
            const int64_t h = o / OW * a[2] - a[4] + cell / a[1] * a[6], w = o % OW * a[3] - a[5] + cell % a[1] * a[7];
            if (h < 0 || h >= H || w < 0 || w >= W) continue;
            for (int64_t c = 0; c < m; c++) {
                const double v = xv[(h * W + w) * CHANNELS + c], top = best[c] < 0 ? v : xv[best[c]];
                if (best[c] < 0 || v > top || (v != v && top == top)) best[c] = (h * W + w) * CHANNELS + c;
            }
        }
        for (int64_t c = 0; c < m; c++)
            if (best[c] >= 0) dx[best[c]] += g[c];
    }
    for (int64_t i = 0; i < H * W; i++)
        an_call_store(j->arg[2], x->dtype, (b * H * W + i) * C + from, dx + i * CHANNELS, m);
}

/* ------------------------------------------------------------------------------------------------ f32 */

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t places __attribute__((vector_size(4 * LANES)));

#define INLINE static inline __attribute__((always_inline))

/* n is LANES, as a constant, in all but the last channels of a block. */
INLINE floats load(const float *p, int64_t n)
{
    floats v = {0};
    if (n == LANES)
        memcpy(&v, p, sizeof v);
    else
        for (int64_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}

INLINE void store(float *p, floats v, int64_t n)
{
    if (n == LANES)
        memcpy(p, &v, sizeof v);
    else
        for (int64_t i = 0; i < n; i++) p[i] = v[i];
}

INLINE floats keep(places mask, floats v)
{
    return (floats)(mask & (places)v);
}

/* Which of the window's cells, pixels `at` of `pixel` elements each, is the first maximum in each of n channels; -1: it has
 * none. */
INLINE places first_maximum(const float *x, int64_t pixel, const int64_t *at, int cells, int64_t n)
{
    if (cells == 0) return (places){-1, -1, -1, -1};
    floats top = load(x + at[0] * pixel, n);
    places best = {0};
    for (int32_t i = 1; i < cells; i++) { /* a NaN is above every number, but not above a NaN */
        const floats v = load(x + at[i] * pixel, n);
        const places take = ~(v <= top) & (top == top);
        top = (floats)((take & (places)v) | (~take & (places)top));
        best = (take & i) | (~take & best);
    }
    return best;
}

/* The cells of window o that are in the image, as pixels of the sample's image. */
static int cells_of(const an_call_job *j, int64_t o, int64_t at[CELLS])
{
    const int64_t *a = j->s->attr, *x = (const int64_t[]){j->s->src[1].shape[1], j->s->src[1].shape[2]};
    const int64_t OW = j->s->src[0].shape[2];
    int n = 0;
    for (int64_t r = 0; r < a[0]; r++)
        for (int64_t s = 0; s < a[1]; s++) {
            const int64_t h = o / OW * a[2] - a[4] + r * a[6], w = o % OW * a[3] - a[5] + s * a[7];
            if (h >= 0 && h < x[0] && w >= 0 && w < x[1]) at[n++] = h * x[1] + w;
        }
    return n;
}

/* One window that shares no cell: its n channels of dx are written. */
INLINE void spread(const float *x, const float *dy, float *dx, int64_t pixel, const int64_t *at, int cells, int64_t n)
{
    const places best = first_maximum(x, pixel, at, cells, n);
    const floats g = load(dy, n) + 0.0f;
    for (int32_t i = 0; i < cells; i++) store(dx + at[i] * pixel, keep(best == i, g), n);
}

/* The same of windows that share cells, with sums of CHANNELS a pixel. */
INLINE void add(const float *x, const float *dy, double *sum, int64_t pixel, const int64_t *at, int cells, int64_t n)
{
    const places best = first_maximum(x, pixel, at, cells, n);
    const floats g = load(dy, n);
    for (int32_t i = 0; i < cells; i++) {
        const floats d = keep(best == i, g); /* a sum is never -0: adding +0 leaves it as it is */
        double *to = sum + at[i] * CHANNELS;
        for (int k = 0; k < LANES; k++) to[k] += (double)d[k];
    }
}

/* The part of the f32 arrays that a unit works on: some channels of one sample. */
typedef struct block {
    const float *x, *dy; /* [H,W,C], [H',W',C] from the unit's first channel on */
    float *dx;           /* as x */
    int64_t C, m;        /* channels of the arrays, and of the unit */
    int64_t W, OW, pixels, windows;
    int64_t first; /* element of dx in its array */
} block;

static block block_of(const an_call_job *j, int64_t u)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const int64_t C = x->shape[3], blocks = an_ceil_div(C, CHANNELS), b = u / blocks, from = u % blocks * CHANNELS;
    block k = {.C = C, .m = AN_MIN(CHANNELS, C - from), .W = x->shape[2], .OW = dy->shape[2]};
    k.pixels = x->shape[1] * k.W;
    k.windows = dy->shape[1] * k.OW;
    k.first = b * k.pixels * C + from;
    k.x = (const float *)j->arg[1] + k.first;
    k.dx = (float *)j->arg[2] + k.first;
    k.dy = (const float *)j->arg[0] + b * k.windows * C + from;
    return k;
}

/* n channels from c on of a window whose gradient is g: into the sums, or (`sum` NULL) written to dx. */
INLINE void visit(const block *k, const float *g, double *sum, int64_t c, const int64_t *at, int cells, int64_t n)
{
    if (sum)
        add(k->x + c, g + c, sum + c, k->C, at, cells, n);
    else
        spread(k->x + c, g + c, k->dx + c, k->C, at, cells, n);
}

/* All windows in their order. Inlined, so that each caller's loop has only what it needs of visit(). */
INLINE void each_window(const an_call_job *j, const block *k, double *sum)
{
    const int64_t *a = j->s->attr, W = k->W;
    /* Windows of 2 x 2 without padding or dilation, the usual ones: their four cells need no search. */
    const bool squares = a[0] == 2 && a[1] == 2 && !a[4] && !a[5] && a[6] == 1 && a[7] == 1;
    for (int64_t o = 0; o < k->windows; o++) {
        int64_t at[CELLS], c = 0;
        const int64_t first = o / k->OW * a[2] * W + o % k->OW * a[3],
                      square[4] = {first, first + 1, first + W, first + W + 1};
        const int cells = squares ? 4 : cells_of(j, o, at);
        const float *g = k->dy + o * k->C;
        for (; squares && c + LANES <= k->m; c += LANES) visit(k, g, sum, c, square, 4, LANES);
        if (squares) memcpy(at, square, sizeof square);
        for (; c + LANES <= k->m; c += LANES) visit(k, g, sum, c, at, cells, LANES);
        if (c < k->m) visit(k, g, sum, c, at, cells, k->m - c);
    }
}

/* Windows that share no cell: dx is written at once. Adding zero makes -0 what a sum that begins at +0 makes of it. */
static void apart(const an_call_job *j, int64_t u, void *scratch)
{
    (void)scratch;
    const block k = block_of(j, u);
    const int64_t *a = j->s->attr; /* without padding no window has fewer cells than the others */
    if (a[4] || a[5] || k.windows * a[0] * a[1] != k.pixels)
        for (int64_t i = 0; i < k.pixels; i++) memset(k.dx + i * k.C, 0, (size_t)k.m * sizeof *k.dx);
    each_window(j, &k, NULL);
}

/* Windows that overlap: sums of a block of channels in scratch, [H,W,CHANNELS]. */
static void overlapping(const an_call_job *j, int64_t u, void *scratch)
{
    const block k = block_of(j, u);
    double *sum = scratch;
    memset(sum, 0, (size_t)(k.pixels * CHANNELS) * sizeof *sum);
    each_window(j, &k, sum);
    for (int64_t i = 0; i < k.pixels; i++) an_call_store(j->arg[2], AN_F32, k.first + i * k.C, sum + i * CHANNELS, k.m);
}

void an_call_pool_max_grad(an_call_job *j)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const int64_t *a = j->s->attr;
    const bool vectors = x->dtype == AN_F32 && dy->dtype == AN_F32 && a[0] * a[1] <= CELLS;
    const bool share = a[6] != 1 || a[7] != 1 || a[2] < a[0] || a[3] < a[1];
    j->units = x->shape[0] * an_ceil_div(x->shape[3], CHANNELS);
    j->weight = (int64_t)x->shape[1] * x->shape[2] * CHANNELS;
    j->scratch_bytes = (size_t)(vectors ? share : 2) * (size_t)j->weight * sizeof(double);
    j->unit = !vectors ? by_channel : share ? overlapping : apart;
}
