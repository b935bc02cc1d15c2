/* conv_grouped.c: f32 convolutions in groups of few channels, and their gradients, on the CPU. A GEMM a group would fill a fraction of its
 * tile and pack every group on its own; here the lanes of a vector are neighbouring columns of the result, of whatever groups.
 *
 *     result, a vector      | g0 g0 g0 g0 g1 g1 g1 g1 |     4 columns a group, lanes j = 0 .. 7
 *     image in the buffer   | x0 x0 x0 x0 x4 x4 x4 x4 |     channel 0 of each lane's group, then
 *                           | x1 x1 x1 x1 x5 x5 x5 x5 |     channel 1, ... : `channels` vectors a pixel
 *
 * So a multiply-add of whole vectors does what both groups need. Lines of the image are spread so once for all taps that read them; the
 * padding's zeros are in the buffer.
 *
 * Owns:       which groups are computed so, the spreading, the division into tasks.
 * Does not:   know a product with an epilogue, in 16 bits or in groups of many columns (conv.c and gemm.c do).
 * Invariants: the bits of gemm.c: an element is one chain of fused multiply-adds in ascending k from +0, the padding's zeros included (not those
 *             between the strides of dX: conv.c); splits are added in order. */
#include "kernels/cpu/conv_grouped.h"

#if !AN_TILES /* sets with tiles take it from another */
#include "kernels/cpu/conv_lines.h"

#include <string.h>

/* ---- the innermost loop --------------------------------------------------------------------------------------------- */

#if AN_VL == 4 && !defined(__ARM_NEON)
enum { LANES_ROWS = 4 };
#define LANES_EACH_ROWS MICRO_ROWS_4
#else
enum { LANES_ROWS = 12 }; /* of 16 registers with AVX2 */
#define LANES_EACH_ROWS MICRO_ROWS_12
#endif

/* As conv_tile (conv_micro.h), but an element of the image is a vector, and so is one of the other operand. Strides are in floats. */
AN_INLINE void lanes_tile(const int rows, const conv_layout layout, const conv_run *run, int64_t n_runs,
                          const float *image, int64_t stride, const float *other, int64_t b_stride, float *c,
                          int64_t ldc, bool go_on)
{
    const int64_t a_step = 4 * (layout == CONV_POSITIONS ? AN_VL : stride);
    const int64_t b_step = layout == CONV_POSITIONS ? AN_VL : b_stride;
    int64_t odd[LANES_ROWS / 2];
    AN_UNROLL for (int i = 0; i < LANES_ROWS / 2; i++)
    {
        odd[i] = (2 * i + 1) * stride * 4;
        FORGET(odd[i]);
    }
    vf sum[LANES_ROWS];
    AN_UNROLL for (int r = 0; r < rows; r++) sum[r] = go_on ? vf_load(c + r * ldc) : (vf){0};
    for (const conv_run *last = run + n_runs; run < last; run++) {
        const uint8_t *a = (const uint8_t *)(image + run->a * AN_VL), *end = a + run->count * a_step;
        const float *b = other + (layout == CONV_POSITIONS ? run->b * AN_VL : run->b);
        for (; a != end; a += a_step, b += b_step) {
            FORGET(a);
            const vf right = vf_load(b);
            AN_UNROLL for (int r = 0; r < rows; r++)
            {
                const int64_t at = layout == CONV_POSITIONS ? conv_distance(odd, r) : 4 * r * AN_VL;
                sum[r] = vf_fma(vf_load((const float *)(const void *)(a + at)), right, sum[r]);
            }
        }
    }
    AN_UNROLL for (int r = 0; r < rows; r++) vf_store(c + r * ldc, sum[r]);
}

#define LANES_NAME(rows, layout) lanes_##rows##_##layout
#define LANES_BODY(rows, layout)                                                                                       \
    static void LANES_NAME(rows, layout)(const conv_run *run, int64_t n_runs, const float *a, int64_t stride,          \
                                         const float *b, int64_t b_stride, float *c, int64_t ldc, bool go_on)          \
    {                                                                                                                  \
        lanes_tile(rows, layout, run, n_runs, a, stride, b, b_stride, c, ldc, go_on);                                  \
    }
#define LANES_ENTRY(rows, layout) LANES_NAME(rows, layout),
LANES_EACH_ROWS(LANES_BODY, CONV_POSITIONS)
LANES_EACH_ROWS(LANES_BODY, CONV_TAPS)
static const conv_fn LANES_TILES[2][LANES_ROWS] = {{LANES_EACH_ROWS(LANES_ENTRY, CONV_POSITIONS)},
                                                   {LANES_EACH_ROWS(LANES_ENTRY, CONV_TAPS)}};

/* ---- the plan ---------------------------------------------------------------------------------------------------------- */

enum {
    MOST_K = 1024,          /* the weights of a vector stay in the L1 or L2 cache */
    LINES_BYTES = 96 << 10, /* of the image, spread, for a block of lines of the result ... */
    MOST_BYTES = 512 << 10, /* ... of which one may take more */
    TASKS = 16,             /* least number of tasks, where there are enough lines */
    MOST_RUNS = 128,        /* of a chunk of dW: lines of positions */
};

typedef struct plan {
    const an_gemm_spec *s;
    const an_window_spec *v;
    conv_lines in;
    int64_t groups, per, columns, vectors; /* columns of the result in a group, and in all; vectors of them */
    int64_t images, lines, blocks;         /* lines of the result in a block, at most; blocks of an image */
    int64_t splits, split_k;
    int64_t line; /* floats of a spread line */
    int64_t shared_bytes, lines_bytes;
} plan;

static int64_t bytes_of(int64_t floats)
{
    return an_round_up(floats * 4, 64);
}

/* Lines of the result whose pixels fit the buffer, 1 or more. */
static int64_t lines_that_fit(const plan *p)
{
    int64_t lines = 1;
    while (lines < p->v->out[0] && image_lines(&p->in, lines + 1) * p->line * 4 <= LINES_BYTES) lines++;
    return lines;
}

static bool plan_positions(plan *p)
{
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    if (s->splits > 1 || s->k > MOST_K || s->c_b[2] != s->n) return false;
    p->images = s->m / v->out[0] / v->out[1];
    p->blocks = an_ceil_div(v->out[0], lines_that_fit(p));
    if (p->images * p->blocks < TASKS) p->blocks = AN_MIN(an_ceil_div(TASKS, AN_MAX(p->images, 1)), v->out[0]);
    p->lines = an_ceil_div(v->out[0], p->blocks);
    p->shared_bytes = bytes_of(p->vectors * s->k * AN_VL);
    return true;
}

static bool plan_taps(plan *p)
{
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    if (v->apart[0] != 1 || v->apart[1] != 1 || s->a_m != 1 || s->a_b[2] != s->m || p->columns % AN_VL) return false;
    p->splits = AN_MAX(s->splits, 1);
    p->split_k = an_ceil_div(s->k, p->splits);
    p->lines = lines_that_fit(p);
    p->shared_bytes = bytes_of(p->splits * p->vectors * s->n * AN_VL);
    return true;
}

/* A group of so many columns fills conv.c's tiles well enough; as rows of dW it takes none that fill no vector. */
static int64_t most_columns(const an_gemm_spec *s)
{
    return s->window.of == AN_WINDOW_B && s->m % AN_VL != 0 ? 2 * AN_VL : AN_VL;
}

/* False: conv.c or gemm.c computes it. */
static bool plan_make(const an_gemm_spec *s, plan *p)
{
    const an_window_spec *v = &s->window;
    const bool f32 = s->a_dtype == AN_F32 && s->b_dtype == AN_F32 && s->c_dtype == AN_F32 && s->mul_dtype != AN_BF16;
    if (v->of == AN_WINDOW_NONE || !f32 || s->nb[0] != 1 || s->nb[1] != 1 || s->nb[2] < 2) return false;
    if (s->m < 1 || s->n < 1 || s->k < 1 || v->channels < 1) return false;
    *p = (plan){.s = s, .v = v, .groups = s->nb[2]};
    p->per = v->of == AN_WINDOW_A ? s->n : s->m;
    p->columns = p->per * p->groups;
    p->vectors = an_ceil_div(p->columns, AN_VL);
    if (p->per >= most_columns(s) || !conv_lines_of(v, &p->in)) return false;
    const int64_t channel_base = v->of == AN_WINDOW_A ? s->a_b[2] : s->b_b[2];
    p->line = p->in.wide * v->channels * AN_VL;
    if (channel_base != v->channels || image_lines(&p->in, 1) * p->line > MOST_BYTES / 4) return false;
    if (!(v->of == AN_WINDOW_A ? plan_positions(p) : plan_taps(p))) return false;
    p->lines_bytes = bytes_of(image_lines(&p->in, p->lines) * p->line);
    return true;
}

typedef struct call {
    plan p;
    const float *image, *other; /* the operand with the window, and that without */
    float *c;
    uint8_t *scratch; /* shared: weights, or sums of chains; then lines of each thread */
    conv_phases phases;
} call;

static float *lines_of(const call *g, int thread)
{
    return (float *)(g->scratch + g->p.shared_bytes + thread * g->p.lines_bytes);
}

/* ---- spreading the image ------------------------------------------------------------------------------------------------- */

typedef struct spread {
    int64_t first, n; /* groups of the vector's lanes */
    vu mask[AN_VL];   /* lanes of each */
    vu from;          /* of each lane, less the channel: where it is in one vector of the image */
    bool whole;       /* one vector of the image holds all groups' channels */
} spread;

static spread spread_of(const plan *p, int64_t vector)
{
    const int64_t col = vector * AN_VL, C = p->v->channels;
    spread s = {.first = col / p->per};
    for (int j = 0; j < AN_VL; j++) {
        const int64_t group = AN_MIN((col + j) / p->per, p->groups - 1) - s.first;
        s.n = group + 1;
        s.mask[group][j] = UINT32_MAX;
        s.from[j] = (uint32_t)(group * C);
    }
    s.whole = s.n * C <= AN_VL && s.first * C + AN_VL <= p->v->pixel;
    return s;
}

/* Lane j of the result: lane from[j] of x. */
AN_INLINE vf permuted(vf x, vu from)
{
#if AN_VL == 16
    return (vf)_mm512_permutexvar_ps((__m512i)from, (__m512)x);
#elif AN_VL == 8
    return (vf)_mm256_permutevar8x32_ps((__m256)x, (__m256i)from);
#else
    vf y;
    for (int i = 0; i < AN_VL; i++) y[i] = x[from[i]];
    return y;
#endif
}

static void spread_pixels(const plan *p, const spread *s, const float *pixel, int64_t n, float *out)
{
    const int64_t C = p->v->channels, step = p->v->pixel;
    pixel += s->first * C;
    if (s->whole) {
        for (; n > 0; n--, pixel += step) {
            const vf x = vf_load(pixel);
            for (int64_t c = 0; c < C; c++, out += AN_VL) vf_store(out, permuted(x, s->from + (uint32_t)c));
        }
        return;
    }
    for (; n > 0; n--, pixel += step)
        for (int64_t c = 0; c < C; c++, out += AN_VL) {
            vu x = (vu)vf_set(pixel[c]) & s->mask[0];
            for (int64_t i = 1; i < s->n; i++) x |= (vu)vf_set(pixel[i * C + c]) & s->mask[i];
            vf_store(out, (vf)x);
        }
}

/* Lines [y, y + lines) of an image for one vector of columns, zeros where there are no pixels. */
static void spread_lines(const plan *p, const spread *s, const float *image, int64_t y, int64_t lines, float *out)
{
    const an_window_spec *v = p->v;
    const int64_t one = v->channels * AN_VL, low = p->in.low[1], wide = p->in.wide;
    const int64_t from = AN_MIN(AN_MAX(-low, 0), wide), to = AN_MAX(AN_MIN(v->in[1] - low, wide), from);
    for (const int64_t end = y + lines; y < end; y++, out += p->line) {
        if (y < 0 || y >= v->in[0] || to == from) {
            memset(out, 0, (size_t)p->line * sizeof *out);
            continue;
        }
        memset(out, 0, (size_t)(from * one) * sizeof *out);
        spread_pixels(p, s, image + (y * v->in[1] + from + low) * v->pixel, to - from, out + from * one);
        memset(out + to * one, 0, (size_t)((wide - to) * one) * sizeof *out);
    }
}

/* ---- forward and dX: a window as A ------------------------------------------------------------------------------------------- */

/* Weights of a vector of columns: [k][lane]. */
static void pack_task(void *arg, int64_t vector, int thread)
{
    (void)thread;
    const call *g = arg;
    const plan *p = &g->p;
    const an_gemm_spec *s = p->s;
    float *out = (float *)g->scratch + vector * s->k * AN_VL;
    const float *column[AN_VL];
    for (int j = 0; j < AN_VL; j++) {
        const int64_t col = vector * AN_VL + j;
        column[j] = col < p->columns ? g->other + col / p->per * s->b_b[2] + col % p->per * s->b_n : NULL;
    }
    for (int64_t k = 0; k < s->k; k++)
        for (int j = 0; j < AN_VL; j++) *out++ = column[j] ? column[j][k * s->b_k] : 0;
}

/* Line y of the result: `lines` holds the image from the line that index `index0` begins with. */
static void multiply_line(const call *g, int64_t y, int64_t index0, const float *lines, const float *weights,
                          int64_t columns, float *out)
{
    const plan *p = &g->p;
    const an_window_spec *v = p->v;
    const int64_t apart = v->apart[1], step = (int64_t)v->step[1] * v->channels * AN_VL;
    const float *line = lines + (y / v->apart[0] - index0) * v->step[0] * p->line;
    for (int64_t px = 0; px < AN_MIN(apart, v->out[1]); px++) {
        const int phase = (int)(y % v->apart[0] * apart + px);
        const conv_run *run = g->phases.run + g->phases.first[phase];
        const int64_t runs = g->phases.first[phase + 1] - g->phases.first[phase];
        const int64_t count = (v->out[1] - px + apart - 1) / apart, tiles = an_ceil_div(count, LANES_ROWS);
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t begin = count * t / tiles, rows = count * (t + 1) / tiles - begin;
            const conv_fn tile = LANES_TILES[CONV_POSITIONS][rows - 1];
            float *to = out + (px + begin * apart) * p->s->c_m, some[LANES_ROWS * AN_VL];
            if (columns == AN_VL) {
                tile(run, runs, line + begin * step, step, weights, 0, to, apart * p->s->c_m, false);
                continue;
            }
            tile(run, runs, line + begin * step, step, weights, 0, some, AN_VL, false);
            for (int64_t r = 0; r < rows; r++)
                memcpy(to + r * apart * p->s->c_m, some + r * AN_VL, (size_t)columns * sizeof *to);
        }
    }
}

/* Task: a block of lines of an image. */
static void lines_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    const an_window_spec *v = p->v;
    const int64_t block = task % p->blocks, image = task / p->blocks;
    const int64_t y0 = v->out[0] * block / p->blocks, y1 = v->out[0] * (block + 1) / p->blocks;
    const int64_t index0 = y0 / v->apart[0], index1 = (y1 - 1) / v->apart[0];
    float *lines = lines_of(g, thread);
    for (int64_t vector = 0; vector < p->vectors; vector++) {
        const spread s = spread_of(p, vector);
        spread_lines(p, &s, g->image + image * v->in[0] * v->in[1] * v->pixel, index0 * v->step[0] + p->in.low[0],
                     (index1 - index0) * v->step[0] + p->in.extent[0], lines);
        for (int64_t y = y0; y < y1; y++)
            multiply_line(g, y, index0, lines, (const float *)g->scratch + vector * p->s->k * AN_VL,
                          AN_MIN(p->columns - vector * AN_VL, AN_VL),
                          g->c + (image * v->out[0] + y) * v->out[1] * p->s->c_m + vector * AN_VL);
    }
}

/* ---- dW: a window as B ----------------------------------------------------------------------------------------------------------- */

/* As many lines of positions from *at on, of those of an image and before `end`, as fit: their pixels go to `lines`. Returns the runs. */
static int64_t take_chunk(const call *g, const spread *s, int64_t *at, int64_t end, float *lines,
                          conv_run run[MOST_RUNS])
{
    const plan *p = &g->p;
    const an_window_spec *v = p->v;
    const int64_t W = v->out[1], H = v->out[0], image = *at / W / H, y = *at / W % H;
    const int64_t count = AN_MIN(AN_MIN(p->lines, MOST_RUNS), AN_MIN(H - y, an_ceil_div(end - *at + *at % W, W)));
    spread_lines(p, s, g->image + image * v->in[0] * v->in[1] * v->pixel, y * v->step[0] + p->in.low[0],
                 image_lines(&p->in, count), lines);
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = *at % W, some = AN_MIN(W - first, end - *at);
        run[i] = (conv_run){(i * v->step[0] * p->in.wide + first * v->step[1]) * v->channels, *at * p->s->a_k, some};
        *at += some;
    }
    return count;
}

/* Task: a vector of columns of dy, of a chain: sums [(r,s,c)][lane]. */
static void taps_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    const int64_t vector = task % p->vectors, split = task / p->vectors, C = v->channels;
    const int64_t end = AN_MIN((split + 1) * p->split_k, s->k), step = v->step[1] * C * AN_VL;
    const int64_t joined = v->tap[1] == 1 ? v->taps[1] : 1, count = joined * C, tiles = an_ceil_div(count, LANES_ROWS);
    const spread how = spread_of(p, vector);
    float *lines = lines_of(g, thread), *sums = (float *)g->scratch + task * s->n * AN_VL;
    int64_t at = AN_MIN(split * p->split_k, s->k);
    if (at >= end) memset(sums, 0, (size_t)(s->n * AN_VL) * sizeof *sums);
    for (bool go_on = false; at < end; go_on = true) {
        conv_run run[MOST_RUNS];
        const int64_t n = take_chunk(g, &how, &at, end, lines, run);
        float *to = sums;
        for (int64_t r = 0; r < v->taps[0]; r++)
            for (int64_t tap = 0; tap < v->taps[1]; tap += joined, to += count * AN_VL) {
                const int64_t y = r * v->tap[0] + v->start[0] - p->in.low[0],
                              x = tap * v->tap[1] + v->start[1] - p->in.low[1];
                const float *from = lines + (y * p->in.wide + x) * C * AN_VL;
                for (int64_t t = 0; t < tiles; t++) {
                    const int64_t begin = count * t / tiles, rows = count * (t + 1) / tiles - begin;
                    LANES_TILES[CONV_TAPS][rows - 1](run, n, from + begin * AN_VL, step, g->other + vector * AN_VL,
                                                     s->a_k, to + begin * AN_VL, AN_VL, go_on);
                }
            }
    }
}

/* Task: adds the splits of a vector of columns of dy, in order, and turns them to rows of dW. */
static void add_splits_task(void *arg, int64_t vector, int thread)
{
    (void)thread;
    const call *g = arg;
    const plan *p = &g->p;
    const an_gemm_spec *s = p->s;
    const int64_t apart = p->vectors * s->n * AN_VL;
    const float *sums = (const float *)g->scratch + vector * s->n * AN_VL;
    for (int64_t k = 0; k < s->n; k += AN_VL) {
        const int64_t some = AN_MIN(s->n - k, AN_VL);
        vu square[AN_VL];
        for (int64_t i = 0; i < AN_VL; i++) {
            vf sum = {0};
            if (i < some) sum = vf_load(sums + (k + i) * AN_VL);
            for (int64_t split = 1; split < p->splits && i < some; split++)
                sum = sum + vf_load(sums + split * apart + (k + i) * AN_VL);
            square[i] = (vu)sum;
        }
        vu_transpose(square);
        for (int64_t j = 0; j < AN_VL; j++) {
            const int64_t row = vector * AN_VL + j;
            memcpy(g->c + row / p->per * s->c_b[2] + row % p->per * s->c_m + k, &square[j],
                   (size_t)some * sizeof *g->c);
        }
    }
}

/* ---- entries ---------------------------------------------------------------------------------------------------------------------- */

size_t AN_ISA_NAME(conv_grouped_scratch)(const an_gemm_spec *s, int threads)
{
    plan p;
    return plan_make(s, &p) ? (size_t)(p.shared_bytes + AN_MAX(threads, 1) * p.lines_bytes) : 0;
}

bool AN_ISA_NAME(conv_grouped)(const an_gemm_spec *s, void *const *args, void *scratch, an_pool *pool)
{
    call g = {.c = args[2], .scratch = scratch};
    const plan *p = &g.p;
    if (!plan_make(s, &g.p)) return false;
    const bool positions = s->window.of == AN_WINDOW_A;
    g.image = args[!positions];
    g.other = args[positions];
    if (positions) {
        conv_phases_of(&p->in, &g.phases);
        an_pool_run(pool, p->vectors, pack_task, &g);
        an_pool_run(pool, p->images * p->blocks, lines_task, &g);
    } else {
        an_pool_run(pool, p->splits * p->vectors, taps_task, &g);
        an_pool_run(pool, p->vectors, add_splits_task, &g);
    }
    return true;
}
#endif
