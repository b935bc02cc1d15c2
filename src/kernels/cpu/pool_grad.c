/* pool_grad.c: the gradient of max pooling in f32 for windows of few cells, compiled once per instruction set: vectors of neighbouring channels.
 *
 * Owns:       both ways: windows apart, whose gradient is written where the maximum is found, and windows that overlap, of which each pixel
 *             gathers.
 * Does not:   choose (device/cpu/pool_max_grad.c), divide into tasks, allocate.
 * Invariants: a sum is taken in double, in the order of the windows, and rounded once, on every set. A NaN is a maximum. */
#include "kernels/cpu/attn_vec.h"
#include "kernels/cpu_kernels.h"

#include <string.h>

enum {
    CHANNELS = AN_POOL_CHANNELS,
    CELLS = AN_POOL_CELLS,
    POOL_LANES = AN_VL < 8 ? AN_VL : 8 /* of 16 half a vector would be idle in images of 8 channels */
};

typedef float floats __attribute__((vector_size(4 * POOL_LANES)));
typedef int32_t places __attribute__((vector_size(4 * POOL_LANES)));

/* n is POOL_LANES, as a constant, in all but the last channels of a block. */
AN_INLINE floats load(const float *p, int64_t n)
{
    floats v = {0};
    if (n == POOL_LANES)
        memcpy(&v, p, sizeof v);
    else
        for (int64_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}

AN_INLINE void store(float *p, floats v, int64_t n)
{
    if (n == POOL_LANES)
        memcpy(p, &v, sizeof v);
    else
        for (int64_t i = 0; i < n; i++) p[i] = v[i];
}

AN_INLINE floats keep(places mask, floats v)
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
AN_INLINE places first_maximum(const float *x, int64_t pixel, const cells *k, int count, int64_t n)
{
    if (count == 0) return (places){0} - 1;
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
AN_INLINE void first_maxima(const float *x, int64_t pixel, const cells *k, int count, int32_t *best)
{
    floats top[CHANNELS / POOL_LANES];
    places at[CHANNELS / POOL_LANES];
    AN_UNROLL for (int v = 0; v < CHANNELS / POOL_LANES; v++)
    {
        at[v] = (places){0} + (count ? k->number[0] : -1);
        top[v] = count ? load(x + k->at[0] * pixel + v * POOL_LANES, POOL_LANES) : (floats){0};
    }
    for (int32_t i = 1; i < count; i++) {
        const float *cell = x + k->at[i] * pixel;
        const places number = (places){0} + k->number[i];
        AN_UNROLL for (int v = 0; v < CHANNELS / POOL_LANES; v++)
        {
            const floats next = load(cell + v * POOL_LANES, POOL_LANES);
            const places take = ~(next <= top[v]) & (top[v] == top[v]);
            top[v] = (floats)((take & (places)next) | (~take & (places)top[v]));
            at[v] = (take & number) | (~take & at[v]);
        }
    }
    memcpy(best, at, sizeof at);
}

/* One window that shares no cell: its n channels of dx are written. */
AN_INLINE void spread(const float *x, const float *dy, float *dx, int64_t pixel, const cells *k, int count, int64_t n)
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

static block block_of(const an_pool_grad *s, int64_t u)
{
    const int64_t C = s->C, blocks = an_ceil_div(C, CHANNELS), b = u / blocks, from = u % blocks * CHANNELS;
    block k = {.C = C, .m = AN_MIN(CHANNELS, C - from), .W = s->W, .OW = s->out_w};
    k.pixels = s->H * k.W;
    k.windows = s->out_h * k.OW;
    const int64_t first = b * k.pixels * C + from;
    k.x = s->x + first;
    k.dx = s->dx + first;
    k.dy = s->dy + b * k.windows * C + from;
    return k;
}

/* n channels from c on of window o, whose cells count from pixel `first`: the number of its maximum is kept in best [o,CHANNELS], or (NULL) dx is
 * written. */
AN_INLINE void visit(const block *k, int32_t *best, int64_t o, int64_t first, int64_t c, const cells *in, int count,
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
AN_INLINE void each_window(const int64_t *a, const block *k, int32_t *best)
{
    const int64_t W = k->W, H = k->pixels / W;
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
                for (; c + POOL_LANES <= k->m; c += POOL_LANES) visit(k, best, o, first, c, &whole, 4, POOL_LANES);
            if (c == k->m) continue;
            if (!inside) edge = cells_of(a, y, x, H, W, W);
            const cells *some = inside ? &whole : &edge;
            const int64_t from = inside ? first : 0;
            for (; c + POOL_LANES <= k->m; c += POOL_LANES) visit(k, best, o, from, c, some, some->n, POOL_LANES);
            if (c < k->m) visit(k, best, o, from, c, some, some->n, k->m - c);
        }
}

/* Windows that share no cell: dx is written at once. Adding zero makes -0 what a sum that begins at +0 makes of it. */
static void apart(const an_pool_grad *s, int64_t u)
{
    const block k = block_of(s, u);
    const int64_t *a = s->attr; /* without padding no window has fewer cells than the others */
    if (a[4] || a[5] || k.windows * a[0] * a[1] != k.pixels)
        for (int64_t i = 0; i < k.pixels; i++) memset(k.dx + i * k.C, 0, (size_t)k.m * sizeof *k.dx);
    each_window(a, &k, NULL);
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

typedef double pair __attribute__((vector_size(4 * POOL_LANES)));
typedef float half __attribute__((vector_size(2 * POOL_LANES)));

/* sum += v, as doubles. */
AN_INLINE void add_wide(pair sum[2], floats v)
{
    half h[2];
    memcpy(h, &v, sizeof v);
    sum[0] += __builtin_convertvector(h[0], pair);
    sum[1] += __builtin_convertvector(h[1], pair);
}

/* n channels from c on of dy of window o, where its maximum is `cell`; else +0, which leaves a sum as it is, since none is -0. */
AN_INLINE floats held(const block *k, const int32_t *best, int64_t o, places cell, int64_t c, int64_t n)
{
    places at;
    memcpy(&at, best + o * CHANNELS + c, sizeof at);
    return keep(at == cell, load(k->dy + o * k->C + c, n));
}

/* `vectors` vectors of channels of a pixel, of n channels each: the gradients of the windows whose maximum it is, summed in their order. */
AN_INLINE void gather_many(const block *k, const int32_t *best, const holder *hs, int n_h, const holder *ws, int n_w,
                           int64_t c, float *dx, int vectors, int64_t n, int32_t wide)
{
    pair sum[CHANNELS / POOL_LANES][2] = {{{0}}};
    for (int i = 0; i < n_h; i++)
        for (int l = 0; l < n_w; l++) {
            const int64_t o = (int64_t)hs[i].window * k->OW + ws[l].window;
            const places cell = (places){0} + (hs[i].cell * wide + ws[l].cell);
            AN_UNROLL for (int v = 0; v < vectors; v++)
            {
                add_wide(sum[v], held(k, best, o, cell, c + v * POOL_LANES, n));
            }
        }
    AN_UNROLL for (int v = 0; v < vectors; v++)
    {
        const half h[2] = {__builtin_convertvector(sum[v][0], half), __builtin_convertvector(sum[v][1], half)};
        floats out;
        memcpy(&out, h, sizeof out);
        store(dx + c + v * POOL_LANES, out, n);
    }
}

/* The same of at most two windows: a sum of two floats is rounded the same whether or not it was a double before. */
AN_INLINE void gather_few(const block *k, const int32_t *best, const holder *hs, int n_h, const holder *ws, int n_w,
                          int64_t c, float *dx, int vectors, int64_t n, int32_t wide)
{
    floats sum[CHANNELS / POOL_LANES] = {{0}};
    for (int i = 0; i < n_h; i++)
        for (int l = 0; l < n_w; l++) {
            const int64_t o = (int64_t)hs[i].window * k->OW + ws[l].window;
            const places cell = (places){0} + (hs[i].cell * wide + ws[l].cell);
            AN_UNROLL for (int v = 0; v < vectors; v++) sum[v] += held(k, best, o, cell, c + v * POOL_LANES, n);
        }
    AN_UNROLL for (int v = 0; v < vectors; v++) store(dx + c + v * POOL_LANES, sum[v], n);
}

AN_INLINE void gather(const block *k, const int32_t *best, const holder *hs, int n_h, const holder *ws, int n_w,
                      int64_t c, float *dx, int vectors, int64_t n, int32_t wide)
{
    if (n_h * n_w <= 2)
        gather_few(k, best, hs, n_h, ws, n_w, c, dx, vectors, n, wide);
    else
        gather_many(k, best, hs, n_h, ws, n_w, c, dx, vectors, n, wide);
}

/* Windows that overlap: the maxima of a block of channels, [windows,CHANNELS], and along the width who holds a pixel, are in scratch. */
static void overlapping(const an_pool_grad *s, int64_t u, void *scratch)
{
    const block k = block_of(s, u);
    const int64_t *a = s->attr, H = k.pixels / k.W, OH = k.windows / AN_MAX(k.OW, 1);
    int32_t *best = scratch;
    int32_t *n_w = best + k.windows * CHANNELS;
    holder *ws = (holder *)(n_w + k.W), hs[CELLS];
    each_window(a, &k, best);
    for (int64_t w = 0; w < k.W; w++) n_w[w] = holders_of(a + 1, w, k.OW, ws + w * a[1]);
    for (int64_t h = 0; h < H; h++) {
        const int n_h = holders_of(a, h, OH, hs);
        for (int64_t w = 0; w < k.W; w++) {
            float *dx = k.dx + (h * k.W + w) * k.C;
            const holder *held = ws + w * a[1];
            const int32_t wide = (int32_t)a[1];
            int64_t c = 0;
            if (k.m == CHANNELS) {
                gather(&k, best, hs, n_h, held, n_w[w], 0, dx, CHANNELS / POOL_LANES, POOL_LANES, wide);
                continue;
            }
            for (; c + POOL_LANES <= k.m; c += POOL_LANES)
                gather(&k, best, hs, n_h, held, n_w[w], c, dx, 1, POOL_LANES, wide);
            if (c < k.m) gather(&k, best, hs, n_h, held, n_w[w], c, dx, 1, k.m - c, wide);
        }
    }
}

void AN_ISA_NAME(pool_max_grad)(const an_pool_grad *s, int64_t unit, void *scratch);

void AN_ISA_NAME(pool_max_grad)(const an_pool_grad *s, int64_t unit, void *scratch)
{
    if (an_pool_windows_overlap(s->attr))
        overlapping(s, unit, scratch);
    else
        apart(s, unit);
}
