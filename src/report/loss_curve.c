/* loss_curve.c: points of metrics.jsonl, thinned, and the picture drawn of them.
 *
 * Invariant: whatever the file holds (steps out of order, losses that differ in their last bit or are not finite), the
 * points are in order of their steps, and a picture has a bounded number of marks. */
#define _DEFAULT_SOURCE
#include "report/loss_curve.h"
#include "io/formats/jsonl.h"
#include "platform/platform.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- points */

/* Larger step numbers are no run's, and doubles would not tell them apart. */
#define MAX_STEP ((int64_t)1 << 53)

static double number(const json_t *line, const char *key)
{
    const json_t *v = json_object_get(line, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Makes space for one more point. When the table is full, two neighbours that are no evaluations become their mean. */
static bool grow(an_curve *c, size_t *cap)
{
    if (c->n < *cap) return true;
    if (*cap < 2 * AN_CURVE_POINTS) {
        const size_t more = *cap ? 2 * *cap : 64;
        an_curve_point *p = realloc(c->point, more * sizeof *p);
        if (!p) return false;
        c->point = p;
        *cap = more;
        return true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        an_curve_point p = c->point[i];
        const bool pair = i + 1 < c->n && isnan(p.val_loss) && isnan(c->point[i + 1].val_loss);
        if (pair) p.loss = 0.5 * (p.loss + c->point[++i].loss);
        c->point[kept++] = p;
    }
    if (kept == c->n) { /* evaluations alone: every other one */
        for (size_t i = kept = 0; i < c->n; i += 2) c->point[kept++] = c->point[i];
    }
    c->n = kept;
    return true;
}

typedef struct point_list {
    an_curve *curve;
    size_t cap;
} point_list;

static an_status add_point(an_err *err, void *arg, const json_t *line)
{
    point_list *l = arg;
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    if (step > MAX_STEP) return AN_OK;
    if (!grow(l->curve, &l->cap)) return an_fail_nomem(err, "a loss curve", 2 * l->cap * sizeof *l->curve->point);
    l->curve->point[l->curve->n++] = (an_curve_point){AN_MAX(step, 0), number(line, "loss"), number(line, "val_loss")};
    return AN_OK;
}

static int compare_points(const void *a, const void *b)
{
    const int64_t x = ((const an_curve_point *)a)->step, y = ((const an_curve_point *)b)->step;
    return (x > y) - (x < y);
}

an_status an_curve_read(an_err *err, const char *dir, an_curve *out)
{
    char path[AN_CKPT_PATH_BYTES + 16];
    *out = (an_curve){0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    an_status status = an_jsonl_each(err, path, add_point, &(point_list){.curve = out});
    if (status != AN_OK) an_curve_free(out);
    if (out->n > 0) qsort(out->point, out->n, sizeof *out->point, compare_points);
    return status;
}

void an_curve_free(an_curve *c)
{
    free(c->point);
    *c = (an_curve){0};
}

/* A loss that a picture can show: finite, and so far from the largest double that differences are finite too. */
static bool is_drawn(double loss)
{
    return fabs(loss) < 1e300;
}

bool an_curve_range(const an_curve *c, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < c->n; i++) {
        const double two[] = {c->point[i].loss, c->point[i].val_loss};
        for (int k = 0; k < 2; k++) {
            if (!is_drawn(two[k])) continue;
            *low = fmin(*low, two[k]);
            *high = fmax(*high, two[k]);
        }
    }
    return *low <= *high;
}

/* ---- the picture */

enum { WIDTH = 720, HEIGHT = 400, LEFT = 64, RIGHT = 16, TOP = 40, BOTTOM = 48 };

typedef struct frame {
    double first, last, low, high; /* steps across, losses up */
} frame;

static double x_of(const frame *f, double step)
{
    return LEFT + (step - f->first) / (f->last - f->first) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const frame *f, double loss)
{
    return TOP + (f->high - loss) / (f->high - f->low) * (HEIGHT - TOP - BOTTOM);
}

enum { MOST_MARKS = 8 };

/* Marks of an axis at whole multiples of `distance`. */
typedef struct marks {
    double first, distance;
    int n;
} marks;

/* The distance is 1, 2 or 5 times a power of ten: the least that gives at most about MOST_MARKS between low and high.
 * The number of marks is fixed before they are drawn: where low and high differ in their last bits only, adding the
 * distance to a mark may not change it. */
static marks marks_of(double low, double high)
{
    const double span = high - low;
    double d = pow(10, floor(log10(span / MOST_MARKS)));
    for (int i = 0; i < 3 && span / d > MOST_MARKS; i++)
        d *= span / (2 * d) <= MOST_MARKS ? 2 : span / (5 * d) <= MOST_MARKS ? 5 : 10;
    const double first = ceil(low / d) * d, n = floor((high - first) / d + 1e-9) + 1;
    return (marks){first, d, n >= 0 && n <= MOST_MARKS + 2 ? (int)n : 0};
}

/* A mark's number; 0 is written without what rounding left of it. */
static double mark_at(const marks *m, int i)
{
    const double v = m->first + i * m->distance;
    return fabs(v) < 1e-9 * m->distance ? 0 : v;
}

static void draw_axes(const frame *f, const char *title, an_text *out)
{
    an_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                   "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                   "<text x=\"%d\" y=\"24\" font-size=\"14\">%s</text>\n",
                   WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, title);
    const marks up = marks_of(f->low, f->high), across = marks_of(f->first, f->last);
    for (int i = 0; i < up.n; i++) {
        const double v = mark_at(&up, i);
        an_text_printf(out,
                       "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                       "text-anchor=\"end\">%.4g</text>\n",
                       LEFT, y_of(f, v), WIDTH - RIGHT, LEFT - 8, y_of(f, v) + 4, v);
    }
    for (int i = 0; i < across.n; i++) {
        const double v = mark_at(&across, i);
        an_text_printf(out,
                       "<path d=\"M%.1f %dv5\" stroke=\"#444\"/><text x=\"%.1f\" y=\"%d\" "
                       "text-anchor=\"middle\">%.0f</text>\n",
                       x_of(f, v), HEIGHT - BOTTOM, x_of(f, v), HEIGHT - BOTTOM + 20, v);
    }
    an_text_printf(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
                   WIDTH - RIGHT);
    an_text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">updates</text>\n", (LEFT + WIDTH - RIGHT) / 2,
                   HEIGHT - 10);
}

static void draw_losses(const an_curve *c, const frame *f, an_text *out)
{
    char pen = 'M';
    an_text_puts(out, "<path fill=\"none\" stroke=\"#4878a8\" stroke-width=\"1.2\" d=\"");
    for (size_t i = 0; i < c->n; i++) {
        if (!is_drawn(c->point[i].loss)) continue;
        an_text_printf(out, "%c%.1f %.1f", pen, x_of(f, (double)c->point[i].step), y_of(f, c->point[i].loss));
        pen = 'L';
    }
    an_text_puts(out, "\"/>\n<g fill=\"#c44e22\">");
    for (size_t i = 0; i < c->n; i++)
        if (is_drawn(c->point[i].val_loss))
            an_text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", x_of(f, (double)c->point[i].step),
                           y_of(f, c->point[i].val_loss));
    an_text_printf(out,
                   "</g>\n<path d=\"M%d 50h24\" stroke=\"#4878a8\" stroke-width=\"1.2\"/><text x=\"%d\" "
                   "y=\"54\">loss of a batch</text>\n<circle cx=\"%d\" cy=\"68\" r=\"3.5\" "
                   "fill=\"#c44e22\"/><text x=\"%d\" y=\"72\">validation loss</text>\n",
                   WIDTH - 160, WIDTH - 130, WIDTH - 148, WIDTH - 130);
}

void an_curve_svg(const an_curve *c, const char *title, an_text *out)
{
    frame f = {.first = (double)c->point[0].step, .last = (double)c->point[c->n - 1].step};
    an_text safe = {0};
    an_text_put_xml(&safe, title);
    if (!an_curve_range(c, &f.low, &f.high)) f.low = 0, f.high = 1;
    /* Not less than the numbers' own precision, so that a flat curve of large losses has a height as well. */
    const double least = 1e-6 * fmax(fabs(f.low), fabs(f.high));
    const double margin = fmax(f.high > f.low ? 0.03 * (f.high - f.low) : 0.5, least);
    f.low -= margin;
    f.high += margin;
    if (f.last <= f.first) f.last = f.first + 1;
    draw_axes(&f, safe.data ? safe.data : "", out);
    draw_losses(c, &f, out);
    an_text_puts(out, "</svg>\n");
    out->failed |= safe.failed;
    an_text_free(&safe);
}

an_status an_curve_save(an_err *err, const char *dir)
{
    char path[AN_CKPT_PATH_BYTES + 16];
    an_curve c;
    an_text text = {0};
    AN_TRY(an_curve_read(err, dir, &c));
    an_status status = AN_OK;
    if (c.n >= 2) {
        an_curve_svg(&c, dir, &text);
        snprintf(path, sizeof path, "%s/loss.svg", dir);
        status = text.failed ? an_fail_nomem(err, path, text.len) : an_file_write(err, path, text.data, text.len);
    }
    an_text_free(&text);
    an_curve_free(&c);
    return status;
}
