/* roofline_chart.c: see roofline_chart.h. Williams, Waterman, Patterson: Roofline, Communications of the ACM 52(4), 2009. */
#include "report/roofline_chart.h"
#include "report/run_record.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 460, HEIGHT = 300, LEFT = 64, RIGHT = 12, TOP = 14, BOTTOM = 40 };

#define NOISE 0.04 /* a tenth, as a logarithm */

/* Both axes are logarithms to base 10: of FLOP a byte, of GFLOP/s. */
typedef struct frame {
    double x0, x1, y0, y1;
} frame;

typedef struct mark {
    double x, y, us;
} mark;

static bool positive(double v)
{
    return v > 1e-12 && v < 1e18;
}

static bool mark_of(const json_t *launch, mark *out)
{
    const double flops = an_run_number(launch, "flops"), bytes = an_run_number(launch, "bytes"),
                 us = an_run_number(launch, "device_us");
    if (!positive(flops) || !positive(bytes) || !positive(us)) return false;
    *out = (mark){log10(flops / bytes), log10(1e-3 * flops / us), us};
    return true;
}

static double across(const frame *f, double x)
{
    return LEFT + (x - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double down(const frame *f, double y)
{
    return TOP + (f->y1 - y) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

static void put_axes(const frame *f, an_text *out)
{
    an_text_printf(out, "<figure><h3>Roofline</h3><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"roofline\">\n",
                   WIDTH, HEIGHT);
    for (double v = f->y0; v <= f->y1 + 1e-9; v++)
        an_text_printf(out,
                       "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                       "text-anchor=\"end\">%.6g</text>\n",
                       LEFT, down(f, v), WIDTH - RIGHT, LEFT - 6, down(f, v) + 4, pow(10, v));
    for (double v = f->x0; v <= f->x1 + 1e-9; v++)
        an_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", across(f, v), HEIGHT - 22,
                       pow(10, v));
    an_text_printf(out,
                   "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">FLOP a byte; up: GFLOP/s; a mark's area is its "
                   "time</text>\n",
                   (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
}

/* From the left the bandwidth's slope, from the ridge on the peak. */
static void put_roof(const frame *f, double gflops, double gbytes, an_text *out)
{
    const double peak = log10(gflops), slope = log10(gbytes), ridge = fmin(fmax(peak - slope, f->x0), f->x1);
    const double left = fmax(slope + f->x0, f->y0), top = fmin(fmax(peak, f->y0), f->y1);
    an_text_printf(out, "<path class=\"s1\" fill=\"none\" stroke-width=\"1.6\" d=\"M%.1f %.1fL%.1f %.1fH%d\"/>\n",
                   across(f, fmax(f->x0, left - slope)), down(f, left), across(f, ridge), down(f, top), WIDTH - RIGHT);
}

bool an_roofline_figure(const json_t *profile, an_text *out)
{
    const json_t *launches = json_object_get(profile, "launches");
    const double gflops = an_run_number(profile, "peak_gflops"), gbytes = an_run_number(profile, "peak_gbytes");
    frame f = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    double longest = 0;
    mark m;
    size_t i;
    json_t *launch;
    json_array_foreach(launches, i, launch)
    {
        if (i == AN_ROOFLINE_LAUNCHES) break;
        if (!mark_of(launch, &m)) continue;
        f.x0 = fmin(f.x0, m.x), f.x1 = fmax(f.x1, m.x);
        f.y0 = fmin(f.y0, m.y), f.y1 = fmax(f.y1, m.y);
        longest = fmax(longest, m.us);
    }
    if (!(longest > 0) || !positive(gflops) || !positive(gbytes)) return false;
    f.x1 = fmax(f.x1, log10(gflops / gbytes)); /* the ridge is in the picture */
    f.y1 = fmax(f.y1, log10(gflops));
    f.x0 = floor(f.x0), f.y0 = floor(f.y0), f.x1 = ceil(f.x1 + 1e-9), f.y1 = ceil(f.y1 + 1e-9);
    put_axes(&f, out);
    put_roof(&f, gflops, gbytes, out);
    int above = 0;
    json_array_foreach(launches, i, launch)
    {
        if (i == AN_ROOFLINE_LAUNCHES) break;
        if (!mark_of(launch, &m)) continue;
        above += m.y > fmin(m.x + log10(gbytes), log10(gflops)) + NOISE;
        an_text_printf(out, "<circle class=\"f0\" fill-opacity=\".55\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n",
                       across(&f, m.x), down(&f, m.y), 1.5 + 9 * sqrt(m.us / longest));
    }
    an_text_puts(out, "</svg>");
    if (above)
        an_text_printf(out,
                       "<figcaption>%d mark%s above the line: data that lie in the processor's caches, or a line that "
                       "was measured while other programs ran.</figcaption>",
                       above, above == 1 ? "" : "s");
    an_text_puts(out, "</figure>\n");
    return true;
}

typedef struct slow {
    const json_t *launch;
    double us;
} slow;

void an_roofline_table(const json_t *profile, an_text *out)
{
    slow top[AN_ROOFLINE_SLOWEST] = {{0}};
    size_t i;
    json_t *launch;
    json_array_foreach(json_object_get(profile, "launches"), i, launch)
    {
        slow s = {launch, an_run_number(launch, "device_us")};
        if (!positive(s.us)) continue;
        for (int k = 0; k < AN_ROOFLINE_SLOWEST; k++)
            if (s.us > top[k].us) {
                const slow lower = top[k];
                top[k] = s;
                s = lower;
            }
    }
    an_text_puts(
        out, "<div class=\"wide\"><table><tr><th>slowest launches</th><th>shape</th><th>phase</th><th class=\"n\">us"
             "</th><th class=\"n\">of the roof</th></tr>\n");
    for (int k = 0; k < AN_ROOFLINE_SLOWEST && top[k].launch; k++) {
        static const char *const keys[] = {"kernel", "shape", "phase"};
        const double share = an_run_number(top[k].launch, "share_of_roof");
        an_text_puts(out, "<tr>");
        for (size_t c = 0; c < AN_COUNT(keys); c++) {
            an_text_puts(out, "<td>");
            an_run_text_html(top[k].launch, keys[c], out);
            an_text_puts(out, "</td>");
        }
        an_text_printf(out,
                       top[k].us >= 1e4 && top[k].us < 1e15 ? "<td class=\"n\">%.0f</td>" : "<td class=\"n\">%.4g</td>",
                       top[k].us);
        an_text_printf(out, isfinite(share) ? "<td class=\"n\">%.1f %%</td></tr>\n" : "<td class=\"n\"></td></tr>\n",
                       100 * share);
    }
    an_text_puts(out, "</table></div>\n");
}
