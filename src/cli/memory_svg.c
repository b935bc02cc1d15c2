/* memory_svg.c: memory over the launches of a step, as an SVG file and as a chart on a terminal.
 *
 * Launches run from left to right, bytes upwards; the kinds of memory are stacked. The lowest layer is what stays
 * allocated between steps (weights, moments, gradients that are kept). The largest tensors are listed beside it. */
#define _DEFAULT_SOURCE
#include "cli/cmd_plan.h"
#include "platform/platform.h"
#include <anneal_tools.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 900, HEIGHT = 460, LEFT = 84, RIGHT = 16, TOP = 56, BOTTOM = 44 };

typedef struct layer {
    const char *kind, *colour;
    uint64_t floor; /* bytes that stay allocated between steps */
    uint64_t *at;   /* [steps] */
} layer;

static int count_steps(const an_ctx *cx)
{
    an_plan_tensor t;
    int n = 0;
    for (int i = 0; i < an_plan_tensor_count(cx); i++)
        if (an_plan_tensor_get(cx, i, &t) && t.last + 1 > n) n = t.last + 1;
    return n;
}

static void add_tensors(const an_ctx *cx, layer *layers, int n_layers)
{
    an_plan_tensor t;
    for (int i = 0; i < an_plan_tensor_count(cx); i++) {
        if (!an_plan_tensor_get(cx, i, &t)) continue;
        for (int k = 0; k < n_layers; k++)
            for (int s = t.first; s <= t.last && strcmp(layers[k].kind, t.kind) == 0; s++) layers[k].at[s] += t.bytes;
    }
}

static uint64_t highest(const layer *layers, int n_layers, int steps)
{
    uint64_t most = 1;
    for (int s = 0; s < steps; s++) {
        uint64_t sum = 0;
        for (int k = 0; k < n_layers; k++) sum += layers[k].floor + layers[k].at[s];
        most = AN_MAX(most, sum);
    }
    return most;
}

static double x_of(int step, int steps)
{
    return LEFT + (double)step / steps * (WIDTH - LEFT - RIGHT);
}

static double y_of(double bytes, uint64_t top)
{
    return TOP + (1 - bytes / (double)top) * (HEIGHT - TOP - BOTTOM);
}

/* Layer k as a closed path on top of those below. */
static void draw_layer(const layer *layers, int k, int steps, uint64_t top, an_text *out)
{
    an_text_printf(out, "<path fill=\"%s\" d=\"", layers[k].colour);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < steps; i++) {
            const int s = side ? steps - 1 - i : i;
            uint64_t sum = 0;
            for (int b = 0; b < k + !side; b++) sum += layers[b].floor + layers[b].at[s];
            const double y = y_of((double)sum, top);
            an_text_printf(out, "%c%.1f %.1fH%.1f", side || i ? 'L' : 'M', x_of(s + side, steps), y,
                           x_of(s + !side, steps));
        }
    an_text_puts(out, "Z\"/>\n");
}

static void draw_axes(const an_session *r, const an_estimate *p, int steps, uint64_t top, an_text *out)
{
    char text[16];
    an_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                   "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"20\" "
                   "font-size=\"14\">%s, batch %lld x %lld, %s: %s",
                   WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, strpbrk(r->cfg.preset, "<&") ? "" : r->cfg.preset,
                   (long long)r->cfg.batch_size, (long long)an_task_units(&r->cfg), an_dtype_text(r->cfg.dtype),
                   an_bytes_text((double)p->bill.peak_bytes, text));
    an_text_puts(out, " on the device</text>\n");
    for (int i = 0; i <= 4; i++) {
        const double bytes = (double)top * i / 4;
        an_text_printf(out,
                       "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text><path d=\"M%d %.1fh-5\" "
                       "stroke=\"#444\"/>\n",
                       LEFT - 8, y_of(bytes, top) + 4, an_bytes_text(bytes, text), LEFT, y_of(bytes, top));
        an_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x_of(steps * i / 4, steps),
                       HEIGHT - BOTTOM + 16, steps * i / 4);
    }
    an_text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">launches of an update</text>\n",
                   (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

static void draw_legend(const layer *layers, int n_layers, an_text *out)
{
    for (int k = 0; k < n_layers; k++)
        an_text_printf(out,
                       "<rect x=\"%d\" y=\"30\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
                       "y=\"40\">%s</text>\n",
                       LEFT + 110 * k, layers[k].colour, LEFT + 110 * k + 17, layers[k].kind);
}

static void draw(const an_session *r, const an_estimate *p, const layer *layers, int n_layers, int steps, an_text *out)
{
    const uint64_t top = highest(layers, n_layers, steps);
    draw_axes(r, p, steps, top, out);
    for (int k = 0; k < n_layers; k++) draw_layer(layers, k, steps, top, out);
    draw_legend(layers, n_layers, out);
    an_text_printf(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n</svg>\n", LEFT, TOP,
                   HEIGHT - BOTTOM, WIDTH - RIGHT);
}

/* ---- layers */

enum { N_LAYERS = 6 };

/* The layers of the plan made last; free(*table) when done. */
static an_status open_layers(an_err *err, const an_session *r, const an_estimate *p, layer layers[N_LAYERS], int *steps,
                             uint64_t **table)
{
    const an_bill *b = &p->bill;
    const layer all[N_LAYERS] = {
        {"weights", "#4878a8", b->weight_bytes, NULL}, {"moments", "#8fb3d4", b->moment_bytes, NULL},
        {"state", "#6a9a6a", b->state_bytes, NULL},    {"gradients", "#c9a227", 0, NULL},
        {"activations", "#c44e22", 0, NULL},           {"scratch", "#999999", 0, NULL}};
    *steps = count_steps(r->cx);
    if (*steps == 0) return an_fail(err, AN_E_UNSUPPORTED, "device %s has no plan to draw", r->cfg.device);
    *table = calloc((size_t)*steps * N_LAYERS, sizeof **table);
    if (!*table) return an_fail_nomem(err, "a timeline", (size_t)*steps * N_LAYERS * sizeof **table);
    memcpy(layers, all, sizeof all);
    for (int k = 0; k < N_LAYERS; k++) layers[k].at = *table + (size_t)k * (size_t)*steps;
    add_tensors(r->cx, layers, N_LAYERS);
    return AN_OK;
}

an_status an_plan_svg(an_err *err, const an_session *r, const an_estimate *p, const char *path)
{
    layer layers[N_LAYERS];
    int steps;
    uint64_t *table;
    an_text out = {0};
    AN_TRY(open_layers(err, r, p, layers, &steps, &table));
    draw(r, p, layers, N_LAYERS, steps, &out);
    an_status status = out.failed ? an_fail_nomem(err, path, out.len) : an_file_write(err, path, out.data, out.len);
    an_text_free(&out);
    free(table);
    return status;
}

/* ---- on a terminal: 79 columns */

enum { COLUMNS = 64, ROWS = 12, TENSORS = 16, BAR = 32 };

/* The highest sum of all layers among the launches of a column. */
static uint64_t in_column(const layer *layers, int steps, int column)
{
    uint64_t most = 0;
    const int from = column * steps / COLUMNS, to = AN_MAX((column + 1) * steps / COLUMNS, from + 1);
    for (int s = from; s < to; s++) {
        uint64_t sum = 0;
        for (int k = 0; k < N_LAYERS; k++) sum += layers[k].floor + layers[k].at[s];
        most = AN_MAX(most, sum);
    }
    return most;
}

static void put_profile(const layer *layers, int steps, an_text *out)
{
    const uint64_t top = highest(layers, N_LAYERS, steps), floor = layers[0].floor + layers[1].floor + layers[2].floor;
    char text[16];
    for (int row = ROWS; row > 0; row--) {
        const double least = (double)top * (row - 0.5) / ROWS;
        char line[COLUMNS + 1];
        int end = 0;
        for (int i = 0; i < COLUMNS; i++) {
            line[i] = least <= (double)floor ? '=' : least <= (double)in_column(layers, steps, i) ? '#' : ' ';
            if (line[i] != ' ') end = i + 1;
        }
        line[end] = 0;
        an_text_printf(out, "%10s |%s\n", row % 4 ? "" : an_bytes_text((double)top * row / ROWS, text), line);
    }
    an_text_printf(out, "%10s +", "0 B");
    for (int i = 0; i < COLUMNS; i++) an_text_puts(out, "-");
    an_text_printf(out, "\n%12slaunches 0 to %d; = lives on (weights, moments), # comes and goes\n\n", "", steps - 1);
}

static int larger(const void *a, const void *b)
{
    const an_plan_tensor *x = a, *y = b;
    return x->bytes != y->bytes ? x->bytes < y->bytes ? 1 : -1 : x->first - y->first;
}

static an_status put_tensors(an_err *err, const an_ctx *cx, int steps, an_text *out)
{
    const int count = an_plan_tensor_count(cx);
    an_plan_tensor *t = malloc((size_t)(count + 1) * sizeof *t);
    int n = 0;
    char size[16], name[160], bar[BAR + 1];
    if (!t) return an_fail_nomem(err, "a table of tensors", (size_t)count * sizeof *t);
    for (int i = 0; i < count; i++) n += an_plan_tensor_get(cx, i, &t[n]);
    qsort(t, (size_t)n, sizeof *t, larger);
    for (int i = 0; i < n && i < TENSORS; i++) {
        for (int k = 0; k < BAR; k++) {
            const int from = k * steps / BAR, to = AN_MAX((k + 1) * steps / BAR, from + 1);
            bar[k] = t[i].first < to && t[i].last >= from ? '#' : '.';
        }
        bar[BAR] = 0;
        an_text_printf(out, "%10s |%s| %.30s\n", an_bytes_text((double)t[i].bytes, size), bar,
                       an_estimate_name(&t[i], name));
    }
    free(t);
    return AN_OK;
}

an_status an_plan_timeline(an_err *err, const an_session *r, const an_estimate *p)
{
    layer layers[N_LAYERS];
    int steps;
    uint64_t *table;
    an_text out = {0};
    AN_TRY(open_layers(err, r, p, layers, &steps, &table));
    put_profile(layers, steps, &out);
    free(table);
    an_status status = put_tensors(err, r->cx, steps, &out);
    if (status == AN_OK && !out.failed) out.len--; /* an_print_line adds the newline */
    if (status == AN_OK) return an_print_line(err, &out);
    an_text_free(&out);
    return status;
}
