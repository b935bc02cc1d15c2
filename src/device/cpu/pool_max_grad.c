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

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif
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

/* The cells of a window that are in the image: their places in pixels, from a first one on, and their numbers in the window. */
typedef struct cells {
    int n;
    int64_t at[CELLS];
    int32_t number[CELLS];
} cells;

/* The number of the window's first maximum in each of n channels; -1: it has no cell. x: of its first pixel, `pixel` elements apart. */
INLINE places first_maximum(const float *x, int64_t pixel, const cells *k, int count, int64_t n)
{
    if (count == 0) return (places){-1, -1, -1, -1};
    floats top = load(x + k->at[0] * pixel, n);
    places best = (places){0} + k->number[0];
    for (int32_t i = 1; i < count; i++) { /* a NaN is above every number, but not above a NaN */
        const floats v = load(x + k->at[i] * pixel, n);
        const places take = ~(v <= top) & (top == top);
        top = (floats)((take & (places)v) | (~take & (places)top));
        best = (take & k->number[i]) | (~take & best);
    }
    return best;
}

/* The same of all CHANNELS, vector beside vector: one alone would wait for each comparison. */
INLINE void first_maxima(const float *x, int64_t pixel, const cells *k, int count, int32_t *best)
{
    floats top[CHANNELS / LANES];
    places at[CHANNELS / LANES];
    UNROLL for (int v = 0; v < CHANNELS / LANES; v++)
    {
        at[v] = (places){0} + (count ? k->number[0] : -1);
        top[v] = count ? load(x + k->at[0] * pixel + v * LANES, LANES) : (floats){0};
    }
    for (int32_t i = 1; i < count; i++) {
        const float *cell = x + k->at[i] * pixel;
        const places number = (places){0} + k->number[i];
        UNROLL for (int v = 0; v < CHANNELS / LANES; v++)
        {
            const floats next = load(cell + v * LANES, LANES);
            const places take = ~(next <= top[v]) & (top[v] == top[v]);
            top[v] = (floats)((take & (places)next) | (~take & (places)top[v]));
            at[v] = (take & number) | (~take & at[v]);
        }
    }
    memcpy(best, at, sizeof at);
}

/* One window that shares no cell: its n channels of dx are written. */
INLINE void spread(const float *x, const float *dy, float *dx, int64_t pixel, const cells *k, int count, int64_t n)
{
    const places best = first_maximum(x, pixel, k, count, n);
    const floats g = load(dy, n) + 0.0f;
    for (int32_t i = 0; i < count; i++) store(dx + k->at[i] * pixel, keep(best == k->number[i], g), n);
}

/* The part of the f32 arrays that a unit works on: some channels of one sample. */
typedef struct block {
    const float *x, *dy; /* [H,W,C], [H',W',C] from the unit's first channel on */
    float *dx;           /* as x */
    int64_t C, m;        /* channels of the arrays, and of the unit */
    int64_t W, OW, pixels, windows;
} block;

static block block_of(const an_call_job *j, int64_t u)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const int64_t C = x->shape[3], blocks = an_ceil_div(C, CHANNELS), b = u / blocks, from = u % blocks * CHANNELS;
    block k = {.C = C, .m = AN_MIN(CHANNELS, C - from), .W = x->shape[2], .OW = dy->shape[2]};
    k.pixels = x->shape[1] * k.W;
    k.windows = dy->shape[1] * k.OW;
    const int64_t first = b * k.pixels * C + from;
    k.x = (const float *)j->arg[1] + first;
    k.dx = (float *)j->arg[2] + first;
    k.dy = (const float *)j->arg[0] + b * k.windows * C + from;
    return k;
}

/* n channels from c on of window o, whose cells count from pixel `first`: the number of its maximum is kept in best [o,CHANNELS], or (NULL) dx is
 * written. */
INLINE void visit(const block *k, int32_t *best, int64_t o, int64_t first, int64_t c, const cells *in, int count,
                  int64_t n)
{
    const float *x = k->x + first * k->C + c;
    if (best) {
        const places found = first_maximum(x, k->C, in, count, n);
        memcpy(best + o * CHANNELS + c, &found, sizeof found);
    } else {
        spread(x, k->dy + o * k->C + c, k->dx + first * k->C + c, k->C, in, count, n);
    }
}

/* The cells of the window whose first pixel is (y, x), which may be outside, in an image of H x W pixels whose lines are `line` apart. */
static cells cells_of(const int64_t *a, int64_t y, int64_t x, int64_t H, int64_t W, int64_t line)
{
    cells in;
    in.n = 0;
    for (int32_t r = 0; r < a[0]; r++)
        for (int32_t s = 0; s < a[1]; s++) {
            const int64_t h = y + r * a[6], w = x + s * a[7];
            if (h < 0 || h >= H || w < 0 || w >= W) continue;
            in.at[in.n] = h * line + w;
            in.number[in.n++] = r * (int32_t)a[1] + s;
        }
    return in;
}

/* All windows in their order. Inlined, so that each caller's loop has only what it needs of visit(). */
INLINE void each_window(const an_call_job *j, const block *k, int32_t *best)
{
    const int64_t *a = j->s->attr, W = k->W, H = k->pixels / W;
    const int64_t high = (a[0] - 1) * a[6], wide = (a[1] - 1) * a[7]; /* from the first pixel to the last */
    const cells whole = cells_of(a, 0, 0, high + 1, wide + 1, W);
    cells edge;
    for (int64_t o = 0, oh = 0; o < k->windows; oh++)
        for (int64_t ow = 0; ow < k->OW; ow++, o++) {
            const int64_t y = oh * a[2] - a[4], x = ow * a[3] - a[5], first = y * W + x;
            const bool inside = y >= 0 && y + high < H && x >= 0 && x + wide < W;
            int64_t c = 0;
            if (best && k->m == CHANNELS) {
                if (!inside) edge = cells_of(a, y, x, H, W, W);
                first_maxima(k->x + (inside ? first : 0) * k->C, k->C, inside ? &whole : &edge,
                             inside ? whole.n : edge.n, best + o * CHANNELS);
                continue;
            }
            if (inside && whole.n == 4) /* the usual, as straight code */
                for (; c + LANES <= k->m; c += LANES) visit(k, best, o, first, c, &whole, 4, LANES);
            if (c == k->m) continue;
            if (!inside) edge = cells_of(a, y, x, H, W, W);
            const cells *some = inside ? &whole : &edge;
            const int64_t from = inside ? first : 0;
            for (; c + LANES <= k->m; c += LANES) visit(k, best, o, from, c, some, some->n, LANES);
            if (c < k->m) visit(k, best, o, from, c, some, some->n, k->m - c);
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

/* A window that has a pixel as a cell, along one axis. */
typedef struct holder {
    int32_t window, cell;
} holder;

/* The windows that have pixel p, in ascending order; a: kernel, stride, pad, dilation of the axis, 2 apart. */
static int holders_of(const int64_t *a, int64_t p, int64_t windows, holder *out)
{
    int n = 0;
    for (int64_t cell = a[0] - 1; cell >= 0; cell--) {
        const int64_t z = p + a[4] - cell * a[6], o = z / a[2];
        if (z >= 0 && o * a[2] == z && o < windows) out[n++] = (holder){(int32_t)o, (int32_t)cell};
    }
    return n;
}

typedef double pair __attribute__((vector_size(16)));
typedef float half __attribute__((vector_size(8)));

/* sum += v, as doubles. */
INLINE void add_wide(pair sum[2], floats v)
{
    half h[2];
    memcpy(h, &v, sizeof v);
    sum[0] += __builtin_convertvector(h[0], pair);
    sum[1] += __builtin_convertvector(h[1], pair);
}

/* `vectors` vectors of channels of a pixel, of n channels each: the gradients of the windows whose maximum it is, summed in their order. */
INLINE void gather(const block *k, const int32_t *best, const holder *hs, int n_h, const holder *ws, int n_w, int64_t c,
                   float *dx, int vectors, int64_t n, int32_t wide)
{
    pair sum[CHANNELS / LANES][2] = {{{0}}};
    for (int i = 0; i < n_h; i++)
        for (int l = 0; l < n_w; l++) {
            const int64_t o = (int64_t)hs[i].window * k->OW + ws[l].window;
            const places cell = (places){0} + (hs[i].cell * wide + ws[l].cell);
            UNROLL for (int v = 0; v < vectors; v++)
            {
                places at;
                memcpy(&at, best + o * CHANNELS + c + v * LANES, sizeof at);
                const floats d = keep(at == cell, load(k->dy + o * k->C + c + v * LANES, n));
                add_wide(sum[v], d); /* a sum is never -0: adding +0 leaves it as it is */
            }
        }
    UNROLL for (int v = 0; v < vectors; v++)
    {
        const half h[2] = {__builtin_convertvector(sum[v][0], half), __builtin_convertvector(sum[v][1], half)};
        floats out;
        memcpy(&out, h, sizeof out);
        store(dx + c + v * LANES, out, n);
    }
}

/* Windows that overlap: the maxima of a block of channels, [windows,CHANNELS], and along the width who holds a pixel, are in scratch. */
static void overlapping(const an_call_job *j, int64_t u, void *scratch)
{
    const block k = block_of(j, u);
    const int64_t *a = j->s->attr, H = k.pixels / k.W, OH = k.windows / AN_MAX(k.OW, 1);
    int32_t *best = scratch;
    int32_t *n_w = best + k.windows * CHANNELS;
    holder *ws = (holder *)(n_w + k.W), hs[CELLS];
    each_window(j, &k, best);
    for (int64_t w = 0; w < k.W; w++) n_w[w] = holders_of(a + 1, w, k.OW, ws + w * a[1]);
    for (int64_t h = 0; h < H; h++) {
        const int n_h = holders_of(a, h, OH, hs);
        for (int64_t w = 0; w < k.W; w++) {
            float *dx = k.dx + (h * k.W + w) * k.C;
            const holder *held = ws + w * a[1];
            const int32_t wide = (int32_t)a[1];
            int64_t c = 0;
            if (k.m == CHANNELS) {
                gather(&k, best, hs, n_h, held, n_w[w], 0, dx, CHANNELS / LANES, LANES, wide);
                continue;
            }
            for (; c + LANES <= k.m; c += LANES) gather(&k, best, hs, n_h, held, n_w[w], c, dx, 1, LANES, wide);
            if (c < k.m) gather(&k, best, hs, n_h, held, n_w[w], c, dx, 1, k.m - c, wide);
        }
    }
}

void an_call_pool_max_grad(an_call_job *j)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const int64_t *a = j->s->attr;
    const bool vectors = x->dtype == AN_F32 && dy->dtype == AN_F32 && a[0] * a[1] <= CELLS;
    const bool share = a[6] != 1 || a[7] != 1 || a[2] < a[0] || a[3] < a[1];
    j->units = x->shape[0] * an_ceil_div(x->shape[3], CHANNELS);
    j->weight = (int64_t)x->shape[1] * x->shape[2] * CHANNELS;
    const int64_t W = x->shape[2],
                  maxima = (int64_t)dy->shape[1] * dy->shape[2] * CHANNELS + W + 2 * W * a[1]; /* int32 */
    j->scratch_bytes = vectors ? share * (size_t)maxima * sizeof(int32_t) : 2 * (size_t)j->weight * sizeof(double);
    j->unit = !vectors ? by_channel : share ? overlapping : apart;
}
