/* sweep.c: see sweep.h. */
#include "report/sweep.h"
#include "io/formats/json.h"
#include "report/run_record.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines at a run's beginning that are left out: the first compiles, the second runs with cold caches. */
enum { SKIPPED = 2 };

/* ---- a point */

static an_status quantile(an_err *err, const an_run_record *r, an_run_column column, size_t first, double share,
                          double *out)
{
    double *v;
    size_t n;
    AN_TRY(an_run_sorted(err, r, column, first, r->n, &v, &n));
    *out = an_run_quantile(v, n, share);
    free(v);
    return AN_OK;
}

static an_status read_point(an_err *err, const char *dir, const an_run_record *r, an_sweep_point *p)
{
    double swap_first = NAN, swap_most = NAN;
    if (strcmp(an_run_text(r->end, "event"), "end") != 0 || r->n <= SKIPPED)
        return an_fail(err, AN_E_DATA, "%s: the run has not ended, or logged at most %d updates", dir, SKIPPED);
    AN_TRY(quantile(err, r, AN_RUN_MS, SKIPPED, 0.5, &p->ms));
    p->units_per_s = 1e3 * an_run_units_an_update(r) / p->ms;
    AN_TRY(quantile(err, r, AN_RUN_MS, SKIPPED, 0.1, &p->ms_fast));
    AN_TRY(quantile(err, r, AN_RUN_MS, SKIPPED, 0.9, &p->ms_slow));
    AN_TRY(quantile(err, r, AN_RUN_GPU_BUSY, SKIPPED, 0.5, &p->gpu_busy));
    AN_TRY(quantile(err, r, AN_RUN_RESERVED_BYTES, 0, 1, &p->measured_bytes));
    AN_TRY(quantile(err, r, AN_RUN_RSS_BYTES, 0, 1, &p->rss_bytes));
    AN_TRY(quantile(err, r, AN_RUN_SWAP_BYTES, 0, 0, &swap_first));
    AN_TRY(quantile(err, r, AN_RUN_SWAP_BYTES, 0, 1, &swap_most));
    p->swap_growth_bytes = swap_most - swap_first;
    p->predicted_bytes = an_run_number(r->plan, "peak_bytes");
    p->wait_share = an_run_wait_share(r, AN_RUN_DATA_WAIT_MS, SKIPPED, r->n);
    p->cpu_wait_share = an_run_wait_share(r, AN_RUN_CPU_WAIT_MS, SKIPPED, r->n);
    if (isnan(p->wait_share)) p->wait_share = 0;
    if (!(p->units_per_s > 0)) return an_fail(err, AN_E_DATA, "%s: its metrics have no speed", dir);
    p->ran = true;
    return AN_OK;
}

an_status an_sweep_read(an_err *err, const char *dir, an_sweep_point *io)
{
    an_run_record r;
    an_status status = an_run_record_read(err, dir, &r);
    if (status == AN_OK) status = read_point(err, dir, &r, io);
    an_run_record_free(&r);
    return status;
}

/* ---- the knee and the limits */

static bool is_within(const an_sweep_point *p, const char *axes, int64_t most)
{
    return p->ran && strcmp(p->axes, axes) == 0 && (most <= 0 || p->batch <= most);
}

/* Whether a larger batch was measured, and none is faster by AN_SWEEP_GAIN for each doubling that it is larger. */
static bool is_flat_beyond(const an_sweep *s, const an_sweep_point *p, int64_t most)
{
    bool found = false;
    for (int i = 0; i < s->n; i++) {
        const an_sweep_point *q = &s->point[i];
        if (!is_within(q, p->axes, most) || q->batch <= p->batch) continue;
        const double doublings = log2((double)q->batch / (double)p->batch);
        if (q->units_per_s >= pow(AN_SWEEP_GAIN, doublings) * p->units_per_s) return false;
        found = true;
    }
    return found;
}

const an_sweep_point *an_sweep_knee(const an_sweep *s, const char *axes, int64_t most, const an_sweep_point **fastest)
{
    const an_sweep_point *knee = NULL;
    *fastest = NULL;
    for (int i = 0; i < s->n; i++) {
        const an_sweep_point *p = &s->point[i];
        if (!is_within(p, axes, most)) continue;
        if (!*fastest || p->units_per_s > (*fastest)->units_per_s) *fastest = p;
        if ((!knee || p->batch < knee->batch) && is_flat_beyond(s, p, most)) knee = p;
    }
    return knee;
}

const an_sweep_point *an_sweep_most_disturbed(const an_sweep *s, const char *axes, int64_t most)
{
    const an_sweep_point *worst = NULL;
    for (int i = 0; i < s->n; i++) {
        const an_sweep_point *p = &s->point[i];
        if (!is_within(p, axes, most) || !(p->cpu_wait_share > AN_RUN_MUCH_CPU_WAIT)) continue;
        if (!worst || p->cpu_wait_share > worst->cpu_wait_share) worst = p;
    }
    return worst;
}

const an_sweep_point *an_sweep_contradicts(const an_sweep *s, const an_sweep_point *p)
{
    const an_sweep_point *largest = NULL;
    for (int i = 0; i < s->n; i++) {
        const an_sweep_point *q = &s->point[i];
        if (!is_within(q, p->axes, 0) || q->batch <= p->batch || !(p->ms > AN_SWEEP_SLOWER * q->ms)) continue;
        if (!largest || q->batch > largest->batch) largest = q;
    }
    return largest;
}

an_sweep_point *an_sweep_contradicted(an_sweep *s, const char *axes, int64_t most, bool again)
{
    for (int i = 0; i < s->n; i++) {
        an_sweep_point *p = &s->point[i];
        if (is_within(p, axes, most) && p->again == again && an_sweep_contradicts(s, p)) return p;
    }
    return NULL;
}

const char *an_sweep_limit(const an_sweep_point *p)
{
    if (p->swap_growth_bytes > 256.0 * 1048576) return "memory";
    if (p->wait_share > 0.1) return "data";
    if (p->gpu_busy < 0.5) return "launches";
    if (!(p->arithmetic_ms + p->bandwidth_ms > 0)) return "arithmetic or bandwidth";
    return p->arithmetic_ms >= p->bandwidth_ms ? "arithmetic" : "bandwidth";
}

/* ---- table and JSON */

void an_sweep_table(const an_sweep *s, an_text *out)
{
    char predicted[16], measured[16], rss[16];
    const char *axes = NULL;
    for (int i = 0; i < s->n; i++) {
        const an_sweep_point *p = &s->point[i];
        if (!axes || strcmp(axes, p->axes) != 0) {
            axes = p->axes;
            an_text_printf(out,
                           "%s%s%sbatch  %11s/s  ms an update   fast..slow tenth     data wait  planned     "
                           "requested   resident\n",
                           i ? "\n" : "", axes, *axes ? "\n" : "", p->unit);
        }
        if (!p->ran) {
            an_text_printf(out, "%5lld  not run: %s\n", (long long)p->batch, p->why);
            continue;
        }
        an_text_printf(out, "%5lld  %13.5g  %12.5g   %8.4g..%-8.4g  %9.1f %%  %-10s  %-10s  %s\n", (long long)p->batch,
                       p->units_per_s, p->ms, p->ms_fast, p->ms_slow, 100 * p->wait_share,
                       isfinite(p->predicted_bytes) ? an_bytes_text(p->predicted_bytes, predicted) : "-",
                       isfinite(p->measured_bytes) ? an_bytes_text(p->measured_bytes, measured) : "-",
                       isfinite(p->rss_bytes) ? an_bytes_text(p->rss_bytes, rss) : "-");
        const an_sweep_point *larger = an_sweep_contradicts(s, p);
        if (larger)
            an_text_printf(out, "       an update takes longer than with batch_size=%lld%s\n", (long long)larger->batch,
                           p->again ? ", measured twice" : "");
    }
}

void an_sweep_json(const an_sweep *s, an_text *out)
{
    an_text_puts(out, "[");
    for (int i = 0; i < s->n; i++) {
        const an_sweep_point *p = &s->point[i];
        an_text_printf(out, "%s{\"axes\":", i ? "," : "");
        an_json_put(out, p->axes);
        an_text_printf(out, ",\"batch_size\":%lld,\"ran\":%s", (long long)p->batch, p->ran ? "true" : "false");
        if (p->ran) {
            an_text_puts(out, ",\"unit\":");
            an_json_put(out, p->unit);
            an_text_printf(out, ",\"again\":%s", p->again ? "true" : "false");
            const an_sweep_point *larger = an_sweep_contradicts(s, p);
            an_json_put_number(out, "slower_than", larger ? (double)larger->batch : NAN);
            an_json_put_number(out, "units_per_s", p->units_per_s);
            an_json_put_number(out, "ms", p->ms);
            an_json_put_number(out, "ms_fast", p->ms_fast);
            an_json_put_number(out, "ms_slow", p->ms_slow);
            an_json_put_number(out, "data_wait_share", p->wait_share);
            an_json_put_number(out, "cpu_wait_share", p->cpu_wait_share);
            an_json_put_number(out, "gpu_busy", p->gpu_busy);
            an_json_put_number(out, "predicted_bytes", p->predicted_bytes);
            an_json_put_number(out, "measured_bytes", p->measured_bytes);
            an_json_put_number(out, "rss_bytes", p->rss_bytes);
            an_json_put_number(out, "swap_growth_bytes", p->swap_growth_bytes);
            const bool roof = p->arithmetic_ms + p->bandwidth_ms > 0;
            an_json_put_number(out, "arithmetic_ms", roof ? p->arithmetic_ms : NAN);
            an_json_put_number(out, "bandwidth_ms", roof ? p->bandwidth_ms : NAN);
            an_text_printf(out, ",\"limited_by\":\"%s\"", an_sweep_limit(p));
        } else {
            an_text_puts(out, ",\"why\":");
            an_json_put(out, p->why);
        }
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]");
}

/* ---- the picture: speed over batch, both logarithmic to base 2, a line for each combination of axes */

enum { WIDTH = 760, HEIGHT = 420, LEFT = 80, RIGHT = 40, TOP = 60, BOTTOM = 60 };

typedef struct frame {
    double x0, x1, y0, y1; /* log2 of batch; speed */
} frame;

static bool frame_of(const an_sweep *s, frame *f)
{
    bool any = false;
    *f = (frame){INFINITY, -INFINITY, 0, 0};
    for (int i = 0; i < s->n; i++) {
        const an_sweep_point *p = &s->point[i];
        if (!p->ran) continue;
        f->x0 = fmin(f->x0, log2((double)p->batch));
        f->x1 = fmax(f->x1, log2((double)p->batch));
        f->y1 = fmax(f->y1, 1.08 * p->units_per_s);
        any = true;
    }
    if (f->x1 <= f->x0) f->x1 = f->x0 + 1;
    return any;
}

static double x_of(const frame *f, int64_t batch)
{
    return LEFT + (log2((double)batch) - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const frame *f, double speed)
{
    return HEIGHT - BOTTOM - speed / f->y1 * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(const frame *f, const char *unit, const char *title, an_text *out)
{
    an_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                   "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                   "<text x=\"%d\" y=\"24\" font-size=\"14\">",
                   WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    an_text_put_xml(out, title);
    an_text_puts(out, "</text>\n");
    for (int i = 0; i <= 4; i++) {
        const double v = f->y1 * i / 4, y = y_of(f, v);
        an_text_printf(out,
                       "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                       "text-anchor=\"end\">",
                       LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4);
        an_text_printf(out, v >= 1e4 && v < 1e8 ? "%.0f</text>\n" : "%.4g</text>\n", v);
    }
    for (int e = (int)ceil(f->x0); e <= (int)floor(f->x1) && e < 62; e++)
        an_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>\n", x_of(f, (int64_t)1 << e),
                       HEIGHT - BOTTOM + 20, (long long)1 << e);
    an_text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">batch size</text>\n",
                   (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16);
    an_text_printf(out, "<text x=\"%d\" y=\"%d\">%ss a second</text>\n", LEFT, TOP - 12, unit);
}

void an_sweep_svg(const an_sweep *s, const char *title, an_text *out)
{
    static const char *const colours[] = {"#4878a8", "#c44e22", "#2a7d4f", "#8a4fa3", "#a8842c", "#444444"};
    frame f;
    int line = 0;
    if (!frame_of(s, &f)) return;
    draw_axes(&f, s->point[0].unit, title, out);
    for (int i = 0; i < s->n; i++) {
        if (i && strcmp(s->point[i].axes, s->point[i - 1].axes) == 0) continue;
        const char *axes = s->point[i].axes, *colour = colours[line % (int)AN_COUNT(colours)];
        char pen = 'M';
        an_text_printf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" d=\"", colour);
        for (int k = i; k < s->n && strcmp(s->point[k].axes, axes) == 0; k++) {
            if (!s->point[k].ran) continue;
            an_text_printf(out, "%c%.1f %.1f", pen, x_of(&f, s->point[k].batch), y_of(&f, s->point[k].units_per_s));
            pen = 'L';
        }
        an_text_printf(out, "\"/>\n<g fill=\"%s\">", colour);
        for (int k = i; k < s->n && strcmp(s->point[k].axes, axes) == 0; k++)
            if (s->point[k].ran)
                an_text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", x_of(&f, s->point[k].batch),
                               y_of(&f, s->point[k].units_per_s));
        const an_sweep_point *fastest, *knee = an_sweep_knee(s, axes, 0, &fastest);
        if (knee)
            an_text_printf(out,
                           "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"7\" fill=\"none\" stroke=\"%s\"/>"
                           "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">knee</text>",
                           x_of(&f, knee->batch), y_of(&f, knee->units_per_s), colour, x_of(&f, knee->batch) - 9,
                           y_of(&f, knee->units_per_s) - 6);
        an_text_printf(out, "<text x=\"%d\" y=\"%d\">", LEFT + 12, TOP + 12 + 16 * line++);
        an_text_put_xml(out, axes);
        an_text_puts(out, "</text></g>\n");
    }
    an_text_puts(out, "</svg>\n");
}

/* ---- back from JSON */

static double number_of(const json_t *point, const char *key)
{
    const json_t *v = json_object_get(point, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static bool is_word(const char *text)
{
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz_") == strlen(text);
}

void an_sweep_from_json(const json_t *points, an_sweep *out)
{
    size_t i;
    json_t *point;
    out->n = 0;
    json_array_foreach(points, i, point)
    {
        const double batch = number_of(point, "batch_size"), speed = number_of(point, "units_per_s");
        const char *axes = json_string_value(json_object_get(point, "axes")),
                   *unit = json_string_value(json_object_get(point, "unit"));
        if (out->n == AN_SWEEP_POINTS) break;
        if (!json_is_true(json_object_get(point, "ran"))) continue;
        if (!(batch >= 1 && batch <= 0x1p50) || !(speed > 0 && speed < 1e30)) continue;
        an_sweep_point *p = &out->point[out->n++];
        *p = (an_sweep_point){.batch = (int64_t)batch, .ran = true, .units_per_s = speed};
        p->cpu_wait_share = number_of(point, "cpu_wait_share");
        snprintf(p->axes, sizeof p->axes, "%s", axes && strlen(axes) < sizeof p->axes ? axes : "");
        snprintf(p->unit, sizeof p->unit, "%s", unit && strlen(unit) < sizeof p->unit && is_word(unit) ? unit : "unit");
    }
}
