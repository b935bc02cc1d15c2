#define _DEFAULT_SOURCE
#include "report/loss_curve.h"
#include "report/provenance.h"
#include "io/formats/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- points */

static double number(const json_t *line, const char *key)
{
    const json_t *v = json_object_get(line, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Room for one more point; halves the lines that are no evaluations when the table is full of them. */
static bool make_room(an_curve *c, size_t *cap)
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

static an_status read_lines(an_err *err, FILE *f, const char *path, an_curve *c)
{
    char *text = NULL;
    size_t cap = 0, room = 0;
    an_status status = AN_OK;
    for (ssize_t n; status == AN_OK && (n = getline(&text, &cap, f)) > 0;) {
        json_t *line;
        if (an_json_parse(NULL, path, 0, text, (size_t)n, &line) != AN_OK) continue; /* a half line of a killed run */
        if (make_room(c, &room))
            c->point[c->n++] = (an_curve_point){AN_MAX(json_integer_value(json_object_get(line, "step")), 0),
                                                number(line, "loss"), number(line, "val_loss")};
        else
            status = an_fail_nomem(err, path, 2 * room * sizeof *c->point);
        json_decref(line);
    }
    free(text);
    return status;
}

an_status an_curve_read(an_err *err, const char *dir, an_curve *out)
{
    char path[AN_CKPT_PATH_BYTES];
    *out = (an_curve){0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *f = fopen(path, "rb");
    if (!f) return AN_OK;
    an_status status = read_lines(err, f, path, out);
    fclose(f);
    if (status != AN_OK) an_curve_free(out);
    return status;
}

void an_curve_free(an_curve *c)
{
    free(c->point);
    *c = (an_curve){0};
}

bool an_curve_range(const an_curve *c, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < c->n; i++) {
        *low = fmin(*low, fmin(c->point[i].loss, c->point[i].val_loss)); /* fmin and fmax pass NaN over */
        *high = fmax(*high, fmax(c->point[i].loss, c->point[i].val_loss));
    }
    return isfinite(*low) && isfinite(*high);
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

/* 1, 2 or 5 times a power of ten: the least that gives at most `most` marks over `span`. */
static double mark_distance(double span, int most)
{
    double d = pow(10, floor(log10(span / most)));
    while (span / d > most) d *= span / (2 * d) <= most ? 2 : span / (5 * d) <= most ? 5 : 10;
    return d;
}

static void draw_axes(const frame *f, const char *title, an_text *out)
{
    an_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                   "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                   "<text x=\"%d\" y=\"24\" font-size=\"14\">%s</text>\n",
                   WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, title);
    const double up = mark_distance(f->high - f->low, 8), across = mark_distance(f->last - f->first, 8);
    for (double v = ceil(f->low / up) * up; v <= f->high + 1e-9 * up; v += up)
        an_text_printf(out,
                       "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                       "text-anchor=\"end\">%.4g</text>\n",
                       LEFT, y_of(f, v), WIDTH - RIGHT, LEFT - 8, y_of(f, v) + 4, fabs(v) < 1e-9 * up ? 0 : v);
    for (double v = ceil(f->first / across) * across; v <= f->last + 1e-9 * across; v += across)
        an_text_printf(out,
                       "<path d=\"M%.1f %dv5\" stroke=\"#444\"/><text x=\"%.1f\" y=\"%d\" "
                       "text-anchor=\"middle\">%.0f</text>\n",
                       x_of(f, v), HEIGHT - BOTTOM, x_of(f, v), HEIGHT - BOTTOM + 20, fabs(v) < 1e-9 * across ? 0 : v);
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
        if (!isfinite(c->point[i].loss)) continue;
        an_text_printf(out, "%c%.1f %.1f", pen, x_of(f, (double)c->point[i].step), y_of(f, c->point[i].loss));
        pen = 'L';
    }
    an_text_puts(out, "\"/>\n<g fill=\"#c44e22\">");
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(c->point[i].val_loss))
            an_text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", x_of(f, (double)c->point[i].step),
                           y_of(f, c->point[i].val_loss));
    an_text_printf(out,
                   "</g>\n<path d=\"M%d 50h24\" stroke=\"#4878a8\" stroke-width=\"1.2\"/><text x=\"%d\" "
                   "y=\"54\">loss of a batch</text>\n<circle cx=\"%d\" cy=\"68\" r=\"3.5\" "
                   "fill=\"#c44e22\"/><text x=\"%d\" y=\"72\">validation loss</text>\n",
                   WIDTH - 160, WIDTH - 130, WIDTH - 148, WIDTH - 130);
}

/* Of text in XML. */
static void put_xml(an_text *out, const char *s)
{
    for (; *s; s++)
        if (*s == '<' || *s == '&')
            an_text_printf(out, "&#%d;", *s);
        else if ((unsigned char)*s >= 32)
            an_text_putn(out, s, 1);
}

void an_curve_svg(const an_curve *c, const char *title, an_text *out)
{
    frame f = {.first = (double)c->point[0].step, .last = (double)c->point[c->n - 1].step};
    an_text safe = {0};
    put_xml(&safe, title);
    if (!an_curve_range(c, &f.low, &f.high)) f.low = 0, f.high = 1;
    const double margin = f.high > f.low ? 0.03 * (f.high - f.low) : 0.5;
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
        status = text.failed ? an_fail_nomem(err, path, text.len) : an_write_file(err, path, text.data, text.len);
    }
    an_text_free(&text);
    an_curve_free(&c);
    return status;
}
