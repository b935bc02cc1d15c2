/* conv.c: f32 convolutions of few channels, and their gradients, on the CPU: products with a window (ir/library_ops.h) whose lines lie in a
 * buffer with the padding around them, so that the innermost loop reads them as they lie: nothing is packed tap by tap, and nothing is tested
 * in the loop.
 *
 *     image, a line        buffer, a line             rows of a tile (conv_micro.h)
 *     [in, pixel]     ->   0 0 x x x x x x 0 0        forward, dX: positions of a line of the result; a tap's channels
 *                                                     are neighbours, and so are the taps of a line of the kernel
 *                                                     dW: taps and channels of a line of the kernel
 *
 * Images in planes, and dy of dW, are turned to channels last while their lines are taken: no copy of the whole.
 *
 * dX of a stride: the positions of each phase (y % stride, x % stride) of the result have taps of their own; the zeros between the strides
 * of the window are neither stored nor multiplied.
 *
 * Owns:       the entry of every GEMM and convolution on the CPU (gemm_or_conv: the table's `gemm`), the choice between this and
 *             gemm.c, padding, the division of the result into tasks.
 * Does not:   know registers (conv_micro.h); multiply in 16 bits or sum more channels than the caches hold (gemm.c does).
 * Invariants: the bits of gemm.c: an element is one chain of fused multiply-adds in ascending k from +0, the padding's zeros included; splits are
 *             added in order. The zeros between strides are left out: adding them changes a sum of -0 alone, or with weights that are not finite. */
#include "kernels/cpu/isa.h"

#if !AN_TILES
#include "kernels/cpu/conv_grouped.h"
#include "kernels/cpu/conv_lines.h"
#include "kernels/cpu/gemm_pack.h"
#endif

#include "ir/library_ops.h"
#include "kernels/cpu_kernels.h"

#include <string.h>

size_t AN_ISA_NAME(gemm_scratch)(const an_gemm_spec *s, int threads);
void AN_ISA_NAME(gemm)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi, an_pool *pool);
size_t AN_ISA_NAME(gemm_or_conv_scratch)(const an_gemm_spec *s, int threads);
bool AN_ISA_NAME(conv_planes)(const an_gemm_spec *s);
void AN_ISA_NAME(gemm_or_conv)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi,
                               an_pool *pool);

#if AN_TILES /* which multiply bf16 only */
size_t AN_REST_NAME(gemm_or_conv_scratch)(const an_gemm_spec *s, int threads);
bool AN_REST_NAME(conv_planes)(const an_gemm_spec *s);
void AN_REST_NAME(gemm_or_conv)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi,
                                an_pool *pool);

size_t AN_ISA_NAME(gemm_or_conv_scratch)(const an_gemm_spec *s, int threads)
{
    return s->mul_dtype == AN_BF16 ? AN_ISA_NAME(gemm_scratch)(s, threads)
                                   : AN_REST_NAME(gemm_or_conv_scratch)(s, threads);
}

bool AN_ISA_NAME(conv_planes)(const an_gemm_spec *s)
{
    return AN_REST_NAME(conv_planes)(s);
}

void AN_ISA_NAME(gemm_or_conv)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi,
                               an_pool *pool)
{
    if (s->mul_dtype == AN_BF16)
        AN_ISA_NAME(gemm)(s, args, scratch, epi, pool);
    else
        AN_REST_NAME(gemm_or_conv)(s, args, scratch, epi, pool);
}
#else

enum {
    MOST_RUNS = 128,         /* of a chunk of dW: lines of positions */
    MOST_K = 1280,           /* a panel of weights, 160 KiB with AVX-512, stays in the L2 cache */
    LINES_BYTES = 128 << 10, /* of the image, padded, for a block of lines of the result */
    SUMS_BYTES = 96 << 10,   /* of a block of lines */
    STRIP = 128,             /* columns that are passed to the epilogue together */
    TASKS = 16,              /* least number of tasks, where there are enough lines */
    MOST_POSITIONS = 256,    /* of a dW whose positions are all summed at once: vectors of dy stay in the L1 cache, */
    IMAGES_BYTES = 1 << 20,  /* and of all images, padded, a strip of channels in the L2 cache */
    DY_BYTES = 128 << 10,    /* of dy in planes, channels last, for a chunk of dW */
};

typedef struct plan {
    const an_gemm_spec *s;
    const an_window_spec *v;
    int64_t members, images, chains, split_k;
    conv_lines in;
    int64_t panels, ld;    /* columns of the result rounded up to vectors */
    int64_t lines, blocks; /* of the result in a block, at most; blocks of an image */
    int64_t parts;         /* dW: tasks of a chain */
    int64_t pitch;         /* floats from a pixel of the buffer to the next */
    bool at_once;          /* dW of few positions: sums never lie in memory */
    int64_t shared_bytes, lines_bytes, sums_bytes, dy_bytes;
} plan;

static int64_t bytes_of(int64_t floats)
{
    return an_round_up(floats * 4, 64);
}

static bool plan_positions(plan *p)
{
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    const int64_t line = p->in.wide * v->channels;
    const bool strided = v->apart[0] > 1 || v->apart[1] > 1; /* gemm.c multiplies its zeros, most of the work */
    if (s->splits > 1 || (s->k > MOST_K && !strided)) return false;
    p->images = s->m / v->out[0] / v->out[1];
    p->lines = 1;
    while (p->lines < v->out[0] && image_lines(&p->in, p->lines + 1) * line * 4 <= LINES_BYTES &&
           (p->lines + 1) * v->out[1] * p->ld * 4 <= SUMS_BYTES)
        p->lines++;
    p->blocks = an_ceil_div(v->out[0], p->lines);
    const int64_t others = AN_MAX(p->images * p->members, 1);
    if (others * p->blocks < TASKS) p->blocks = AN_MIN(an_ceil_div(TASKS, others), v->out[0]);
    p->lines = an_ceil_div(v->out[0], p->blocks);
    p->shared_bytes = bytes_of(p->members * p->panels * s->k * CONV_PANEL);
    p->lines_bytes = bytes_of(image_lines(&p->in, p->lines) * line);
    p->sums_bytes = bytes_of(p->lines * v->out[1] * p->ld);
    return true;
}

/* A tile of dW reads one line of the cache a pixel: pixels a multiple of 1 KiB apart would share four of its 64 sets. */
static bool plan_at_once(plan *p)
{
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    p->images = s->k / v->out[0] / v->out[1];
    if (p->members > 1 || s->splits > 1 || s->k > MOST_POSITIONS || p->images * v->out[0] > MOST_RUNS) return false;
    const int64_t pitch = v->channels % 256 ? v->channels : v->channels + AN_VL * 2;
    const int64_t bytes = bytes_of(p->images * image_lines(&p->in, v->out[0]) * p->in.wide * pitch);
    if (bytes > IMAGES_BYTES) return false;
    p->pitch = pitch;
    p->parts = v->taps[0];
    p->shared_bytes = bytes;
    p->lines_bytes = bytes_of(s->k * CONV_PANEL);
    p->sums_bytes = 2 * bytes_of(STRIP * CONV_PANEL);
    return true;
}

static bool plan_taps(plan *p, int threads)
{
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    if (v->apart[0] != 1 || v->apart[1] != 1 || s->m % AN_VL != 0 || s->a_m != 1) return false;
    p->chains = p->members * AN_MAX(s->splits, 1);
    p->split_k = an_ceil_div(s->k, AN_MAX(s->splits, 1));
    p->parts = threads > 1 ? AN_MIN(an_ceil_div(TASKS, p->chains), v->taps[0]) : 1; /* each takes the lines again */
    p->ld = s->m;
    p->panels = an_ceil_div(s->m, CONV_PANEL);
    p->at_once = plan_at_once(p);
    if (p->at_once) return true;
    p->shared_bytes = bytes_of(p->chains * s->n * p->ld);
    p->lines_bytes = bytes_of(AN_MAX(image_lines(&p->in, 1) * p->in.wide * v->channels, LINES_BYTES / 4));
    p->sums_bytes = bytes_of(AN_VL * STRIP);
    if (v->planes & AN_PLANES_DY) p->dy_bytes = AN_MAX(bytes_of(v->out[1] * p->ld), DY_BYTES);
    return true;
}

/* False: gemm.c computes it. */
static bool plan_make(const an_gemm_spec *s, int threads, plan *p)
{
    const an_window_spec *v = &s->window;
    const bool f32 = s->a_dtype == AN_F32 && s->b_dtype == AN_F32 && s->mul_dtype != AN_BF16;
    if (v->of == AN_WINDOW_NONE || !f32 || s->nb[0] != 1 || s->nb[1] != 1) return false;
    if (s->m < 1 || s->n < 1 || s->k < 1 || s->nb[2] < 1) return false;
    *p = (plan){.s = s, .v = v, .members = s->nb[2], .pitch = v->channels};
    if (!conv_lines_of(v, &p->in)) return false;
    p->panels = an_ceil_div(s->n, CONV_PANEL);
    p->ld = an_round_up(s->n, AN_VL);
    if (p->in.wide > INT32_MAX || image_lines(&p->in, 1) * p->in.wide > 4 * LINES_BYTES / v->channels) return false;
    return v->of == AN_WINDOW_A ? plan_positions(p) : plan_taps(p, threads);
}

static int64_t thread_bytes(const plan *p)
{
    return p->lines_bytes + p->sums_bytes + p->dy_bytes;
}

typedef struct call {
    plan p;
    const float *image, *other;  /* the operand with the window, and that without */
    uint8_t *c, *scratch;        /* shared: panels of weights, or sums of chains; then lines and sums of each thread */
    const an_epilogue *epilogue; /* or NULL */
    conv_phases phases;
} call;

/* `pixels` neighbours of at most AN_VL planes, `plane` floats apart, to pixels `pitch` floats apart, with `gap` floats more after each
 * `line` of them: a vector of pixels may be of several lines, of which some are shorter than it. */
AN_INLINE void turn_planes(const float *from, int64_t plane, int64_t planes, int64_t pixels, float *to, int64_t pitch,
                           int64_t line, int64_t gap)
{
    int64_t left = line;
    for (int64_t x = 0; x < pixels; x += AN_VL) {
        const int64_t some = AN_MIN(pixels - x, AN_VL);
        vu square[AN_VL];
        if (some == AN_VL && planes == AN_VL) {
            AN_UNROLL for (int i = 0; i < AN_VL; i++) square[i] = (vu)vf_load(from + i * plane + x);
        } else {
            for (int64_t i = 0; i < AN_VL; i++)
                square[i] = i < planes ? (vu)load_some((const uint8_t *)from, i * plane + x, 1, some, AN_F32) : (vu){0};
        }
        vu_transpose(square);
        if (some == AN_VL && planes == AN_VL && left > AN_VL) {
            AN_UNROLL for (int i = 0; i < AN_VL; i++) vu_store((an_word *)(to + i * pitch), square[i]);
            to += AN_VL * pitch, left -= AN_VL;
            continue;
        }
        for (int64_t i = 0; i < some; i++, to += pitch) {
            if (planes == AN_VL)
                vu_store((an_word *)to, square[i]);
            else
                memcpy(to, &square[i], (size_t)planes * sizeof *to);
            if (--left == 0) left = line, to += gap;
        }
    }
}

/* take_lines of an image in planes. */
static void take_lines_of_planes(const plan *p, const float *image, int64_t y, int64_t lines, int64_t from, int64_t to,
                                 float *out)
{
    const an_window_spec *v = p->v;
    const int64_t W = v->in[1], plane = v->in[0] * W, pitch = p->pitch, wide = p->in.wide, line = to - from;
    const int64_t begin = AN_MAX(y, 0), end = AN_MIN(y + lines, v->in[0]);
    const int64_t together = line == W ? AN_MAX(end - begin, 1) : 1; /* whole lines are neighbours in a plane */
    for (int64_t c = 0; c < v->channels && line > 0; c += AN_VL)
        for (int64_t at = begin; at < end; at += together)
            turn_planes(image + c * plane + at * W + from + p->in.low[1], plane, AN_MIN(v->channels - c, AN_VL),
                        together * line, out + ((at - y) * wide + from) * pitch + c, pitch, line,
                        (wide - line) * pitch);
}

/* Of an image: its first float. */
static const float *image_at(const plan *p, const float *first, int64_t image)
{
    const an_window_spec *v = p->v;
    return first + image * v->in[0] * v->in[1] * (v->planes & AN_PLANES_IMAGE ? v->channels : v->pixel);
}

/* Pixels [low, low + wide) of lines [y, y + lines) of an image, zeros where there are none. */
static void take_lines(const plan *p, const float *image, int64_t y, int64_t lines, float *out)
{
    const an_window_spec *v = p->v;
    const bool planes = v->planes & AN_PLANES_IMAGE;
    const int64_t C = v->channels, pitch = p->pitch, from = AN_MIN(AN_MAX(-p->in.low[1], 0), p->in.wide),
                  to = AN_MAX(AN_MIN(v->in[1] - p->in.low[1], p->in.wide), from);
    if (planes) take_lines_of_planes(p, image, y, lines, from, to, out);
    for (int64_t end = y + lines; y < end; y++, out += p->in.wide * pitch) {
        const bool inside = y >= 0 && y < v->in[0];
        const int64_t left = inside ? from : p->in.wide, right = inside ? to : p->in.wide;
        memset(out, 0, (size_t)(left * pitch) * sizeof *out);
        if (right > left && !planes) {
            const float *pixel = image + (y * v->in[1] + left + p->in.low[1]) * v->pixel;
            if (v->pixel == C && pitch == C)
                memcpy(out + left * C, pixel, (size_t)((right - left) * C) * sizeof *out);
            else
                for (int64_t x = left; x < right; x++, pixel += v->pixel)
                    memcpy(out + x * pitch, pixel, (size_t)C * sizeof *out);
        }
        memset(out + right * pitch, 0, (size_t)((p->in.wide - right) * pitch) * sizeof *out);
    }
}

/* Passes finished sums on: rows [row0, row1) and columns [col0, col1) of a member, the first at sums[0]. */
static void finish(const call *g, int64_t member, int64_t row0, int64_t row1, int64_t col0, int64_t col1, float *sums,
                   int64_t ld, int thread)
{
    const an_gemm_spec *s = g->p.s;
    if (g->epilogue) {
        const an_tile tile = {member * s->m + row0, member * s->m + row1, col0, col1, sums, ld, thread};
        g->epilogue->fn(&tile, g->epilogue->user);
        return;
    }
    for (int64_t r = row0; r < row1; r++)
        store_row(g->c, s->c_b[2] * member + r * s->c_m + col0, sums + (r - row0) * ld, col1 - col0, s->c_dtype);
}

/* ---- forward and dX: a window as A ------------------------------------------------------------------------------- */

static int64_t panel_width(const plan *p, int64_t panel)
{
    return p->s->n - panel * CONV_PANEL <= AN_VL ? AN_VL : CONV_PANEL;
}

static float *panel_at(const call *g, int64_t member, int64_t panel)
{
    return (float *)g->scratch + (member * g->p.panels + panel) * g->p.s->k * CONV_PANEL;
}

static void pack_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const call *g = arg;
    const an_gemm_spec *s = g->p.s;
    const int64_t member = task / g->p.panels, panel = task % g->p.panels;
    const operand o = {.p = (const uint8_t *)(g->other + member * s->b_b[2]),
                       .x = s->n,
                       .k = s->k,
                       .along_x = s->b_n,
                       .along_k = s->b_k,
                       .dtype = AN_F32};
    const part q = {panel * CONV_PANEL, AN_MIN((panel + 1) * CONV_PANEL, s->n), 0, s->k};
    pack(&o, q, (an_word *)panel_at(g, member, panel), panel_width(&g->p, panel),
         s->b_k == 1 ? PACK_TRANSPOSED : PACK_ALONG_X, WORD_F32);
}

/* Line y of the result, columns of one panel: `lines` holds the image from the line that index `index0` begins with. */
static void multiply_line(const call *g, int64_t y, int64_t index0, const float *lines, const float *panel,
                          int64_t width, float *out, int64_t ld)
{
    const plan *p = &g->p;
    const an_window_spec *v = p->v;
    const int64_t apart = v->apart[1], step = (int64_t)v->step[1] * v->channels;
    const float *line = lines + (y / v->apart[0] - index0) * v->step[0] * p->in.wide * v->channels;
    for (int64_t px = 0; px < AN_MIN(apart, v->out[1]); px++) {
        const int phase = (int)(y % v->apart[0] * apart + px);
        const int64_t count = (v->out[1] - px + apart - 1) / apart, tiles = an_ceil_div(count, CONV_ROWS);
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t begin = count * t / tiles, rows = count * (t + 1) / tiles - begin;
            CONV_TILES[CONV_POSITIONS][width / AN_VL - 1][rows - 1](
                g->phases.run + g->phases.first[phase], g->phases.first[phase + 1] - g->phases.first[phase],
                line + begin * step, step, panel, 0, out + (px + begin * apart) * ld, apart * ld, false);
        }
    }
}

/* Task: a block of lines of an image of a member. */
static void lines_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    const int64_t block = task % p->blocks, image = task / p->blocks % p->images, member = task / p->blocks / p->images;
    const int64_t y0 = v->out[0] * block / p->blocks, y1 = v->out[0] * (block + 1) / p->blocks;
    const int64_t row0 = (image * v->out[0] + y0) * v->out[1], row1 = row0 + (y1 - y0) * v->out[1];
    const int64_t index0 = y0 / v->apart[0], index1 = (y1 - 1) / v->apart[0];
    float *lines = (float *)(g->scratch + p->shared_bytes + thread * thread_bytes(p));
    const bool in_place = !g->epilogue && s->c_dtype == AN_F32 && s->n % AN_VL == 0;
    float *sums = in_place ? (float *)g->c + member * s->c_b[2] + row0 * s->c_m : lines + p->lines_bytes / 4;
    const int64_t ld = in_place ? s->c_m : p->ld;
    take_lines(p, image_at(p, g->image + member * s->a_b[2], image), index0 * v->step[0] + p->in.low[0],
               (index1 - index0) * v->step[0] + p->in.extent[0], lines);
    for (int64_t panel = 0; panel < p->panels; panel++)
        for (int64_t y = y0; y < y1; y++)
            multiply_line(g, y, index0, lines, panel_at(g, member, panel), panel_width(p, panel),
                          sums + (y - y0) * v->out[1] * ld + panel * CONV_PANEL, ld);
    for (int64_t col = 0; !in_place && col < s->n; col += STRIP)
        finish(g, member, row0, row1, col, AN_MIN(col + STRIP, s->n), sums + col, ld, thread);
}

/* ---- dW: a window as B ------------------------------------------------------------------------------------------- */

/* Columns [o, o + width) of dy in planes at `count` positions of one image from `at` on. */
static void take_dy(const call *g, int64_t at, int64_t count, int64_t o, int64_t width, float *out, int64_t pitch)
{
    const an_gemm_spec *s = g->p.s;
    const int64_t plane = (int64_t)g->p.v->out[0] * g->p.v->out[1];
    const float *from = g->other + (at / plane * s->m + o) * plane + at % plane;
    for (int64_t i = 0; i < width; i += AN_VL)
        turn_planes(from + i * plane, plane, AN_MIN(width - i, AN_VL), count, out + i, pitch, count, 0);
}

/* As many lines of positions from *at on, of those before `end`, as fit: their pixels go to `lines`, and dy, where it lies in planes, to
 * `dy`. Returns the runs. */
static int64_t take_chunk(const call *g, int64_t member, int64_t *at, int64_t end, float *lines, float *dy,
                          conv_run run[MOST_RUNS])
{
    const plan *p = &g->p;
    const an_window_spec *v = p->v;
    const bool planes = v->planes & AN_PLANES_DY;
    const int64_t W = v->out[1], H = v->out[0], line = p->in.wide * v->channels, room = p->lines_bytes / 4;
    const int64_t begin = *at, dy_lines = planes ? p->dy_bytes / 4 / p->ld / W : MOST_RUNS;
    int64_t n = 0, used = 0;
    while (*at < end && n < MOST_RUNS) {
        const int64_t image = *at / W / H, y = *at / W % H, x = *at % W;
        const int64_t fit =
            room - used < p->in.extent[0] * line ? 0 : ((room - used) / line - p->in.extent[0]) / v->step[0] + 1;
        const int64_t count =
            AN_MIN(AN_MIN(fit, AN_MIN(MOST_RUNS, dy_lines) - n), AN_MIN(H - y, an_ceil_div(end - *at + x, W)));
        if (count < 1) break;
        const int64_t taken = image_lines(&p->in, count), first_at = *at;
        take_lines(p, image_at(p, g->image + member * p->s->b_b[2], image), y * v->step[0] + p->in.low[0], taken,
                   lines + used);
        for (int64_t i = 0; i < count; i++) {
            const int64_t first = *at % W, some = AN_MIN(W - first, end - *at);
            run[n++] = (conv_run){used + i * v->step[0] * line + first * v->step[1] * v->channels,
                                  planes ? (*at - begin) * p->ld : *at * p->s->a_k, some};
            *at += some;
        }
        if (planes) take_dy(g, first_at, *at - first_at, 0, p->s->m, dy + (first_at - begin) * p->ld, p->ld);
        used += taken * line;
    }
    return n;
}

/* Columns [c0, c0 + count) of the window, neighbours in the buffer from float `from` on, by all rows of dy. */
static void multiply_columns(const call *g, const conv_run *run, int64_t n, const float *from, int64_t c0,
                             int64_t count, const float *dy, float *sums, bool go_on)
{
    const plan *p = &g->p;
    const int64_t tiles = an_ceil_div(count, CONV_ROWS), step = (int64_t)p->v->step[1] * p->v->channels;
    const int64_t dy_step = p->v->planes & AN_PLANES_DY ? p->ld : p->s->a_k;
    for (int64_t o = 0; o < p->ld; o += CONV_PANEL)
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t begin = count * t / tiles, rows = count * (t + 1) / tiles - begin;
            CONV_TILES[CONV_TAPS][AN_MIN(p->ld - o, CONV_PANEL) / AN_VL - 1][rows - 1](
                run, n, from + begin, step, dy + o, dy_step, sums + (c0 + begin) * p->ld + o, p->ld, go_on);
        }
}

/* Task: some lines of the kernel, of a chain: sums [(r,s,c), o]. */
static void taps_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    const int64_t part = task % p->parts, chain = task / p->parts, splits = AN_MAX(s->splits, 1);
    const int64_t member = chain / splits, end = AN_MIN((chain % splits + 1) * p->split_k, s->k);
    const int64_t r0 = v->taps[0] * part / p->parts, r1 = v->taps[0] * (part + 1) / p->parts, C = v->channels;
    const int64_t joined = v->tap[1] == 1 ? v->taps[1] : 1, line = v->taps[1] * C;
    float *lines = (float *)(g->scratch + p->shared_bytes + thread * thread_bytes(p));
    float *sums = (float *)g->scratch + chain * s->n * p->ld;
    float *turned = lines + (p->lines_bytes + p->sums_bytes) / 4;
    const float *dy = v->planes & AN_PLANES_DY ? turned : g->other + member * s->a_b[2];
    int64_t at = AN_MIN(chain % splits * p->split_k, s->k);
    if (at >= end) memset(sums + r0 * line * p->ld, 0, (size_t)((r1 - r0) * line * p->ld) * sizeof *sums);
    for (bool go_on = false; at < end; go_on = true) {
        conv_run run[MOST_RUNS];
        const int64_t n = take_chunk(g, member, &at, end, lines, turned, run);
        for (int64_t r = r0; r < r1; r++)
            for (int64_t tap = 0; tap < v->taps[1]; tap += joined) {
                const int64_t y = r * v->tap[0] + v->start[0] - p->in.low[0],
                              x = tap * v->tap[1] + v->start[1] - p->in.low[1];
                multiply_columns(g, run, n, lines + (y * p->in.wide + x) * C, r * line + tap * C, joined * C, dy, sums,
                                 go_on);
            }
    }
}

/* Task: adds the splits of AN_VL rows of dW of a member, in order, and turns them to rows of o. */
static void add_splits_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    const an_gemm_spec *s = p->s;
    const int64_t blocks = s->m / AN_VL, member = task / blocks, o = task % blocks * AN_VL;
    const int64_t splits = AN_MAX(s->splits, 1), apart = s->n * p->ld;
    const float *sums = (const float *)g->scratch + member * splits * apart + o;
    float *out = (float *)(g->scratch + p->shared_bytes + thread * thread_bytes(p) + p->lines_bytes);
    for (int64_t col = 0; col < s->n; col += STRIP) {
        const int64_t end = AN_MIN(col + STRIP, s->n);
        for (int64_t k = col; k < end; k += AN_VL) {
            vu square[AN_VL];
            for (int64_t i = 0; i < AN_VL; i++) {
                vf sum = {0};
                if (k + i < s->n) sum = vf_load(sums + (k + i) * p->ld);
                for (int64_t split = 1; split < splits && k + i < s->n; split++)
                    sum = sum + vf_load(sums + split * apart + (k + i) * p->ld);
                square[i] = (vu)sum;
            }
            vu_transpose(square);
            for (int64_t i = 0; i < AN_VL; i++) vu_store((an_word *)out + i * STRIP + k - col, square[i]);
        }
        finish(g, member, o, o + AN_VL, col, end, out, STRIP, thread);
    }
}

/* ---- dW of few positions: a panel of dy's columns at a time, the sums of a strip of columns passed on at once -------- */

static int64_t image_floats(const plan *p)
{
    return image_lines(&p->in, p->v->out[0]) * p->in.wide * p->pitch;
}

/* Task: an image. */
static void take_image_task(void *arg, int64_t image, int thread)
{
    (void)thread;
    const call *g = arg;
    const plan *p = &g->p;
    const an_window_spec *v = p->v;
    take_lines(p, image_at(p, g->image, image), p->in.low[0], image_lines(&p->in, v->out[0]),
               (float *)g->scratch + image * image_floats(p));
}

/* `sums` [column][o] are passed on as rows of o. */
static void finish_turned(const call *g, int64_t o, int64_t width, int64_t col0, int64_t count, const float *sums,
                          float *out, int thread)
{
    for (int64_t k = 0; k < count; k += AN_VL)
        for (int64_t v = 0; v < width; v += AN_VL) {
            vu square[AN_VL];
            for (int64_t i = 0; i < AN_VL; i++)
                square[i] = k + i < count ? (vu)vf_load(sums + (k + i) * CONV_PANEL + v) : (vu){0};
            vu_transpose(square);
            for (int64_t i = 0; i < AN_VL; i++) vu_store((an_word *)out + (v + i) * STRIP + k, square[i]);
        }
    finish(g, 0, o, o + width, col0, col0 + count, out, STRIP, thread);
}

/* Task: a line of the kernel, columns of dy of a panel. */
static void at_once_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    const an_gemm_spec *s = p->s;
    const an_window_spec *v = p->v;
    const int64_t r = task % p->parts, o = task / p->parts * CONV_PANEL, C = v->channels;
    const int64_t width = AN_MIN(s->m - o, CONV_PANEL), lines = p->images * v->out[0];
    float *dy = (float *)(g->scratch + p->shared_bytes + thread * thread_bytes(p));
    float *sums = dy + p->lines_bytes / 4, *out = sums + STRIP * CONV_PANEL;
    const int64_t per_image = v->planes & AN_PLANES_DY ? s->k / p->images : 0;
    for (int64_t image = 0; image < p->images && per_image; image++)
        take_dy(g, image * per_image, per_image, o, width, dy + image * per_image * CONV_PANEL, CONV_PANEL);
    for (int64_t k = 0; k < s->k && !per_image; k++)
        for (int64_t i = 0; i < width; i += AN_VL)
            vf_store(dy + k * CONV_PANEL + i, vf_load(g->other + k * s->a_k + o + i));
    conv_run run[MOST_RUNS];
    for (int64_t i = 0; i < lines; i++)
        run[i] = (conv_run){i / v->out[0] * image_floats(p) + i % v->out[0] * v->step[0] * p->in.wide * p->pitch,
                            i * v->out[1] * CONV_PANEL, v->out[1]};
    for (int64_t tap = 0; tap < v->taps[1]; tap++) {
        const int64_t y = r * v->tap[0] + v->start[0] - p->in.low[0], x = tap * v->tap[1] + v->start[1] - p->in.low[1];
        const float *from = (const float *)g->scratch + (y * p->in.wide + x) * p->pitch;
        for (int64_t col = 0; col < C; col += STRIP) {
            const int64_t count = AN_MIN(C - col, STRIP), tiles = an_ceil_div(count, CONV_ROWS);
            for (int64_t t = 0; t < tiles; t++) {
                const int64_t begin = count * t / tiles, rows = count * (t + 1) / tiles - begin;
                CONV_TILES[CONV_TAPS][width / AN_VL - 1][rows - 1](run, lines, from + col + begin,
                                                                   v->step[1] * p->pitch, dy, CONV_PANEL,
                                                                   sums + begin * CONV_PANEL, CONV_PANEL, false);
            }
            finish_turned(g, o, width, (r * v->taps[1] + tap) * C + col, count, sums, out, thread);
        }
    }
}

/* ---- a GEMM or a convolution: the entry that the table of cpu_kernels.h calls `gemm` -------------------------------- */

size_t AN_ISA_NAME(gemm_or_conv_scratch)(const an_gemm_spec *s, int threads)
{
    plan p;
    const size_t grouped = AN_ISA_NAME(conv_grouped_scratch)(s, threads);
    const size_t other = plan_make(s, threads, &p) ? (size_t)(p.shared_bytes + AN_MAX(threads, 1) * thread_bytes(&p))
                                                   : AN_ISA_NAME(gemm_scratch)(s, threads);
    return AN_MAX(grouped, other); /* who computes it depends on the epilogue too */
}

bool AN_ISA_NAME(conv_planes)(const an_gemm_spec *s)
{
    plan p;
    return s->nb[2] == 1 && plan_make(s, 1, &p);
}

void AN_ISA_NAME(gemm_or_conv)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi,
                               an_pool *pool)
{
    call g = {.c = args[2], .scratch = scratch, .epilogue = epi};
    const plan *p = &g.p;
    if (!epi && AN_ISA_NAME(conv_grouped)(s, args, scratch, pool)) return;
    if (!plan_make(s, an_pool_working(pool), &g.p)) { /* scratch does not depend on it */
        AN_ISA_NAME(gemm)(s, args, scratch, epi, pool);
        return;
    }
    const bool positions = s->window.of == AN_WINDOW_A;
    g.image = args[!positions];
    g.other = args[positions];
    if (positions) {
        conv_phases_of(&p->in, &g.phases);
        an_pool_run(pool, p->members * p->panels, pack_task, &g);
        an_pool_run(pool, p->members * p->images * p->blocks, lines_task, &g);
        return;
    }
    if (p->at_once) {
        an_pool_run(pool, p->images, take_image_task, &g);
        an_pool_run(pool, p->panels * p->parts, at_once_task, &g);
        return;
    }
    an_pool_run(pool, p->chains * p->parts, taps_task, &g);
    an_pool_run(pool, p->members * (s->m / AN_VL), add_splits_task, &g);
}
#endif
