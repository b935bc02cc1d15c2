/* run_report.c: see run_report.h. */
#include "report/run_report.h"
#include "report/compare.h"
#include "report/diagnose.h"
#include "report/memory_growth.h"
#include "report/roofline_chart.h"
#include "report/sweep.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Colours follow the reader's preference (light, dark; white for print); a wide table scrolls within the page, and its
 * cells do not break words. */
static const char style[] =
    ":root{--ink:#1b1f24;--paper:#fff;--faint:#d5d9de;--a:#2f6fb0;--b:#c0501f;--c:#2a7d4f;--bad:#b3261e;--good:#1f7a3d}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e7ea;--paper:#16191d;--faint:#3a4048;--a:#7ab3ea;--b:#f09a6b;"
    "--c:#74c796;--bad:#ff8a80;--good:#7bd88f}}"
    "body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;"
    "padding:1rem}h1{font-size:1.5rem}h2{font-size:1.25rem;border-top:2px solid var(--faint);padding-top:1rem;"
    "overflow-wrap:anywhere}h3{font-size:1rem;margin-bottom:.2rem}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{text-align:left;vertical-align:top;padding:.15rem .9rem .15rem 0;border-bottom:1px solid var(--faint);"
    "}p,li{overflow-wrap:anywhere}td{overflow-wrap:break-word}.facts td:last-child{overflow-wrap:anywhere}"
    "figure{margin:0}td.n,th.n{text-align:right}td.n{white-space:nowrap}th{font-weight:600}"
    ".stamp{display:inline-block;border:2px solid;border-radius:.3rem;padding:0 .5rem;font-weight:700}"
    ".bad{color:var(--bad)}.good{color:var(--good)}code{font-size:.9em;overflow-wrap:anywhere}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1rem}"
    "svg{width:100%;height:auto;font:11px system-ui,sans-serif}svg text{fill:var(--ink)}"
    ".grid{stroke:var(--faint)}.s0{stroke:var(--a)}.s1{stroke:var(--b)}.s2{stroke:var(--c)}"
    ".f0{fill:var(--a)!important}.f1{fill:var(--b)!important}.f2{fill:var(--c)!important}"
    ".sweep{overflow-x:auto}.sweep svg{min-width:32rem}.sweep rect{fill:none}.sweep "
    "path[stroke='#ddd']{stroke:var(--faint)}.sweep g text{fill:inherit}"
    "@media print{:root{--ink:#000;--paper:#fff;--faint:#bbb;--a:#1f4f80;--b:#a03f14;--c:#1c5c39;--bad:#900;"
    "--good:#060}body{font-size:10pt;padding:0}figure,tr,p{break-inside:avoid}h2,h3{break-after:avoid}"
    ".wide,.sweep{overflow:visible}.sweep svg{min-width:0}"
    ".charts{grid-template-columns:1fr 1fr}}";

/* A run and a sweep of its batch size whose speeds differ by more than this contradict each other. */
#define MOST_RATIO 1.5

/* ---- text */

static void put_row(an_text *out, const char *label, const char *value)
{
    if (!*value) return;
    an_text_printf(out, "<tr><th>%s</th><td>", label);
    an_html_put(out, value);
    an_text_puts(out, "</td></tr>\n");
}

__attribute__((format(printf, 3, 4))) static void put_fact(an_text *out, const char *label, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_row(out, label, text);
}

/* ---- charts: a line a column, thinned to means; times are without the first update, which compiles */

enum { WIDTH = 460, HEIGHT = 240, LEFT = 64, RIGHT = 12, TOP = 30, BOTTOM = 34, MOST_POINTS = 300 };

typedef struct line {
    an_run_column column;
    const char *name;
    double scale; /* of the file's number */
} line;

typedef struct chart {
    double x0, x1, y0, y1;
} chart;

static double value_at(const an_run_record *r, const line *l, size_t i)
{
    const double v = r->update[i].at[l->column] * l->scale;
    const bool compiles =
        i == 0 && (l->column == AN_RUN_MS || l->column == AN_RUN_DATA_WAIT_MS || l->column == AN_RUN_CPU_WAIT_MS);
    return fabs(v) < 1e200 && !compiles ? v : NAN;
}

static bool chart_of(const an_run_record *r, const line *lines, int n, bool from_zero, chart *c)
{
    bool any = false;
    *c = (chart){INFINITY, -INFINITY, from_zero ? 0 : INFINITY, -INFINITY};
    for (int k = 0; k < n; k++)
        for (size_t i = 0; i < r->n; i++) {
            const double v = value_at(r, &lines[k], i), x = (double)AN_MAX(r->update[i].step, 0);
            if (isnan(v)) continue;
            c->x0 = fmin(c->x0, x), c->x1 = fmax(c->x1, x);
            c->y0 = fmin(c->y0, v), c->y1 = fmax(c->y1, v);
            any = true;
        }
    if (c->x1 <= c->x0) c->x1 = c->x0 + 1;
    const double margin = c->y1 > c->y0 ? 0.05 * (c->y1 - c->y0) : fmax(1e-6 * fabs(c->y1), 1e-9);
    c->y1 += margin;
    if (!from_zero) c->y0 -= margin;
    return any;
}

static double x_of(const chart *c, double x)
{
    return LEFT + (x - c->x0) / (c->x1 - c->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const chart *c, double y)
{
    return TOP + (c->y1 - y) / (c->y1 - c->y0) * (HEIGHT - TOP - BOTTOM);
}

/* A number at an axis: whole as it is, else with as many digits as have room beside the chart. */
static const char *axis_number(double v, char out[32])
{
    if (v == floor(v) && fabs(v) < 1e8)
        snprintf(out, 32, "%.0f", v);
    else if (snprintf(out, 32, "%.4g", v) > 8)
        snprintf(out, 32, "%.2g", v);
    return out;
}

static void begin_chart(an_text *out, const chart *c, const char *title, const char *across)
{
    an_text_printf(out, "<figure><h3>%s</h3><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", title, WIDTH,
                   HEIGHT, title);
    char from[32], to[32];
    for (int i = 0; i <= 4; i++) {
        const double v = c->y0 + (c->y1 - c->y0) * i / 4, y = y_of(c, v);
        an_text_printf(out,
                       "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                       "text-anchor=\"end\">%s</text>\n",
                       LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4, axis_number(v, from));
    }
    an_text_printf(out,
                   "<text x=\"%d\" y=\"%d\">%s</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>"
                   "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                   LEFT, HEIGHT - 16, axis_number(c->x0, from), WIDTH - RIGHT, HEIGHT - 16, axis_number(c->x1, to),
                   (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, across);
}

static void put_line(an_text *out, const an_run_record *r, const line *l, const chart *c, int k)
{
    const size_t step = r->n / MOST_POINTS + 1;
    const bool dots = l->column == AN_RUN_VAL_LOSS; /* evaluations are few: a dot each */
    char pen = 'M';
    an_text_printf(out, "<path class=\"s%d\" fill=\"none\" stroke-linecap=\"round\" stroke-width=\"%s\" d=\"", k,
                   dots ? "5" : "1.4");
    for (size_t i = 0; i < r->n; i += step) {
        double sum = 0, x = 0, n = 0;
        for (size_t m = i; m < r->n && m < i + step; m++) {
            const double v = value_at(r, l, m);
            if (isnan(v)) continue;
            sum += v, x += (double)AN_MAX(r->update[m].step, 0), n++;
        }
        if (n == 0) continue;
        an_text_printf(out, "%c%.1f %.1f", pen, x_of(c, x / n), y_of(c, sum / n));
        if (pen == 'M') an_text_puts(out, "h.01"); /* a point alone is seen */
        if (!dots) pen = 'L';
    }
    an_text_printf(out, "\"/><text class=\"f%d\" x=\"%d\" y=\"%d\">%s</text>\n", k, LEFT + 4 + k * 130, TOP - 10,
                   l->name);
}

static void put_chart(an_text *out, const an_run_record *r, const char *title, bool from_zero, const line *lines, int n)
{
    chart c;
    if (!chart_of(r, lines, n, from_zero, &c)) return;
    if (from_zero && c.y1 < 1e-8) return; /* nothing but zeros */
    begin_chart(out, &c, title, "update");
    for (int k = 0; k < n; k++) put_line(out, r, &lines[k], &c, k);
    an_text_puts(out, "</svg></figure>\n");
}

/* Histogram of the times of logged updates; those above the 99th percentile are in the last bar. */
static an_status put_histogram(an_err *err, const an_run_record *r, an_text *out)
{
    enum { BARS = 24 };
    double *ms;
    size_t n, count[BARS] = {0}, most = 0;
    AN_TRY(an_run_sorted(err, r, AN_RUN_MS, 1, r->n, &ms, &n));
    const double low = an_run_quantile(ms, n, 0), high = an_run_quantile(ms, n, 0.99);
    const double span = high > low ? high - low : fmax(1e-9, fabs(low));
    for (size_t i = 0; i < n; i++) {
        const double at = (ms[i] - low) / span * BARS;
        const int bar = at < BARS ? (int)at : BARS - 1;
        count[bar]++;
        most = AN_MAX(most, count[bar]);
    }
    free(ms);
    if (n < 2 || !(span < 1e200)) return AN_OK;
    const chart c = {low, low + span, 0,
                     (double)((most + 3) / 4 * 4)}; /* the four lines are whole numbers of updates */
    begin_chart(out, &c, "Time of an update", "ms (the last bar holds all above)");
    for (int b = 0; b < BARS; b++) {
        const double x = x_of(&c, low + span * b / BARS), y = y_of(&c, (double)count[b]);
        an_text_printf(out, "<rect class=\"f0\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", x, y,
                       x_of(&c, low + span * (b + 1) / BARS) - x - 1, HEIGHT - BOTTOM - y);
    }
    an_text_puts(out, "</svg></figure>\n");
    return AN_OK;
}

/* ---- what is proven */

static bool has_memory_curve(const an_run_record *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += isfinite(r->update[i].at[AN_RUN_RSS_BYTES]) || isfinite(r->update[i].at[AN_RUN_LIVE_BYTES]);
    return n >= AN_DIAGNOSE_LINES;
}

static bool is_point(const json_t *point)
{
    const double batch = an_run_number(point, "batch_size"), speed = an_run_number(point, "units_per_s");
    return json_is_true(json_object_get(point, "ran")) && batch >= 1 && speed > 0 && isfinite(speed);
}

/* Whether the sweep is of this run's preset, and made on its machine and device by its build. */
static bool has_sweep(const an_run_record *r, const json_t *sweep)
{
    static const char *const same[] = {"preset", "host", "commit"};
    size_t i, ran = 0;
    json_t *point;
    json_array_foreach(json_object_get(sweep, "points"), i, point) ran += is_point(point);
    bool is_same = ran >= 2;
    for (size_t k = 0; k < AN_COUNT(same); k++)
        is_same &= strcmp(an_run_text(sweep, same[k]), an_run_text(r->begin, same[k])) == 0;
    const char *device = an_run_text(r->begin, "device"), *swept = an_run_text(sweep, "device");
    const size_t n = strcspn(device, ":;\n");
    return is_same && strlen(swept) == n && strncmp(device, swept, n) == 0;
}

/* Whether the speed that the sweep measured for this run's batch differs from the run's by more than MOST_RATIO. */
static bool contradicts(const an_run_record *r, const json_t *sweep)
{
    const double speed = an_run_median(r, AN_RUN_UNITS_PER_S, 1, r->n),
                 batch = an_run_number(an_run_settings(r), "batch_size");
    size_t i;
    json_t *point;
    json_array_foreach(json_object_get(sweep, "points"), i, point)
    {
        const double swept = an_run_number(point, "units_per_s");
        if (!is_point(point) || *an_run_text(point, "axes") || an_run_number(point, "batch_size") != batch) continue;
        if (swept > MOST_RATIO * speed || speed > MOST_RATIO * swept) return true;
    }
    return false;
}

/* Whether the sweep's own figures say that other programs disturbed it. */
static bool is_disturbed(const json_t *sweep)
{
    size_t i;
    json_t *answer;
    json_array_foreach(json_object_get(sweep, "answers"), i,
                       answer) if (an_run_number(answer, "cpu_wait_share") > AN_RUN_MUCH_CPU_WAIT) return true;
    return false;
}

int an_run_report_lacks(const an_report_run *run, const json_t *sweep, const char *out[AN_REPORT_LACKS])
{
    const an_run_record *r = &run->record;
    const json_t *facts = json_object_get(r->begin, "facts");
    const char *commit = an_run_text(r->begin, "commit");
    int n = 0;
    if (!json_is_true(json_object_get(r->begin, "available")) || !*an_run_text(r->begin, "product_checked"))
        out[n++] = "a device proof: one matrix product, checked when the run began";
    if (!*an_run_text(facts, "machine")) out[n++] = "the machine's architecture";
    if (*an_run_text(facts, "translated")) out[n++] = "a native program: this one was translated";
    if (!has_sweep(r, sweep))
        out[n++] = "a sweep over batch sizes of this preset, on this machine and device by this build: anneal sweep, "
                   "then sweep=FOLDER";
    else if (contradicts(r, sweep))
        out[n++] = "agreement with the sweep: its speed for this batch size differs by more than half: other load, or "
                   "other settings";
    else if (is_disturbed(sweep))
        out[n++] = "a sweep that had the machine to itself: other programs used the processors while it measured";
    if (an_run_wait_share(r, AN_RUN_CPU_WAIT_MS, 1, r->n) > AN_RUN_MUCH_CPU_WAIT)
        out[n++] = "a machine of its own: for more than a fifth of the time of the updates the run waited for a "
                   "processor that other programs used";
    if (!has_memory_curve(r)) out[n++] = "a memory curve of 20 lines of metrics or more";
    if (!*commit) out[n++] = "the commit that the program was built from";
    if (strchr(an_run_text(r->begin, "anneal"), '-'))
        out[n++] = "a released version of the program: this is a pre-release";
    if (strstr(commit, "-dirty")) out[n++] = "a clean build: its sources differed from its commit";
    return n;
}

/* "tokens", from "train_tokens" of the logbook; "units" where it counts none. */
static const char *units_of(const an_run_record *r)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->begin, key, value) if (strncmp(key, "train_", 6) == 0 && json_is_number(value)) return key +
        6;
    return "units";
}

static an_status put_speed(an_err *err, const an_report_run *run, const json_t *sweep, an_text *out)
{
    const char *lacks[AN_REPORT_LACKS];
    double *speed;
    size_t n;
    const an_run_record *r = &run->record;
    AN_TRY(an_run_sorted(err, r, AN_RUN_UNITS_PER_S, 1, r->n, &speed, &n));
    const double median = an_run_quantile(speed, n, 0.5), low = an_run_quantile(speed, n, 0.1),
                 high = an_run_quantile(speed, n, 0.9);
    free(speed);
    const int missing = an_run_report_lacks(run, sweep, lacks), decimals = median < 1 ? 4 : median < 100 ? 2 : 0;
    an_text_puts(out, "<h3>Speed</h3>\n");
    if (n == 0) return an_text_puts(out, "<p>No logged update has a speed.</p>\n"), AN_OK;
    an_text_printf(out, "<p>%.*f ", decimals, median);
    an_html_put(out, units_of(r));
    an_text_printf(out,
                   " a second, median of %zu lines; a tenth below %.*f, a tenth above %.*f. <span class=\"stamp "
                   "%s\">%s</span></p>\n",
                   n, decimals, low, decimals, high, missing ? "bad" : "good", missing ? "unproven" : "proven");
    if (missing) an_text_puts(out, "<p>What is missing:</p><ul>");
    for (int i = 0; i < missing; i++) an_text_printf(out, "<li>%s</li>", lacks[i]);
    if (missing) an_text_puts(out, "</ul>\n");
    return AN_OK;
}

/* ---- a run */

/* Seconds of the whole run, and those of its parts that the logbook has. */
static void put_times(const json_t *end, an_text *out)
{
    static const char *const part[][2] = {{"compile_s", "compiling"},
                                          {"evaluate_s", "evaluating"},
                                          {"save_s", "saving"},
                                          {"data_wait_s", "waiting for data"}};
    if (!isfinite(an_run_number(end, "seconds"))) return;
    an_text_printf(out, "<tr><th>time</th><td>%.4g s", an_run_number(end, "seconds"));
    for (size_t i = 0; i < AN_COUNT(part); i++)
        if (isfinite(an_run_number(end, part[i][0])))
            an_text_printf(out, "; %s %.3g s", part[i][1], an_run_number(end, part[i][0]));
    an_text_puts(out, "</td></tr>\n");
}

/* The plan's bytes by kind. */
static void put_memory_kinds(const json_t *plan, an_text *out)
{
    static const char *const kinds[][2] = {{"weight_bytes", "weights"},  {"gradient_bytes", "gradients"},
                                           {"moment_bytes", "moments"},  {"activation_bytes", "activations"},
                                           {"scratch_bytes", "scratch"}, {"input_bytes", "inputs"}};
    const char *between = "<tr><th>of these</th><td>";
    char bytes[16];
    for (size_t i = 0; i < AN_COUNT(kinds); i++) {
        const double n = an_run_number(plan, kinds[i][0]);
        if (!(n >= 0) || !isfinite(n)) continue;
        an_text_printf(out, "%s%s %s", between, kinds[i][1], an_bytes_text(n, bytes));
        between = ", ";
    }
    if (*between == ',') an_text_puts(out, "</td></tr>\n");
}

/* Other programs that used the processors when the run began. */
static void put_busiest(const json_t *begin, an_text *out)
{
    size_t i;
    json_t *program;
    const char *between = "<tr><th>other programs</th><td>";
    json_array_foreach(json_object_get(begin, "busiest"), i, program)
    {
        const char *name = json_string_value(json_array_get(program, 0));
        if (i == 3) break;
        if (!name) continue;
        an_text_puts(out, between);
        an_html_put(out, name);
        an_text_printf(out, " %.0f %% of a processor", json_number_value(json_array_get(program, 1)));
        between = ", ";
    }
    if (*between == ',') an_text_puts(out, "</td></tr>\n");
}

/* Lists what no line of metrics has, so that a missing chart is not read as zero. */
static void put_unmeasured(const an_run_record *r, an_text *out)
{
    static const struct {
        an_run_column column;
        const char *name;
    } columns[] = {{AN_RUN_GPU_BUSY, "how busy a GPU was"},
                   {AN_RUN_TEMPERATURE, "the processor's temperature"},
                   {AN_RUN_SWAP_BYTES, "swap"},
                   {AN_RUN_CPU_WAIT_MS, "waiting for a processor"},
                   {AN_RUN_RSS_BYTES, "memory of the process"},
                   {AN_RUN_LIVE_BYTES, "memory of the device"}};
    const char *between = "<tr><th>not measured here</th><td>";
    for (size_t k = 0; k < AN_COUNT(columns); k++) {
        bool known = false;
        for (size_t i = 0; i < r->n && !known; i++) known = isfinite(r->update[i].at[columns[k].column]);
        if (known) continue;
        an_text_printf(out, "%s%s", between, columns[k].name);
        between = ", ";
    }
    if (*between == ',') an_text_puts(out, "</td></tr>\n");
}

/* Launches that the CPU runs for a GPU. */
static void put_on_cpu(const an_run_record *r, an_text *out)
{
    const double all = an_run_number(r->plan, "fallbacks"), placed = an_run_number(r->plan, "placed"),
                 turns = an_run_number(r->plan, "cpu_turns"), ms = an_run_number(r->plan, "fallback_ms");
    if (!(all > 0))
        put_row(out, "fallbacks", isfinite(all) ? "none: the device runs every launch" : "");
    else
        put_fact(out, "on the CPU instead",
                 "%.0f launches an update, %.0f of them by place=; the GPU waits for them %.0f times; %.3g ms of the "
                 "first update",
                 all, placed > 0 ? placed : 0, turns, ms);
}

static const char *how_it_ended(const an_report_run *run)
{
    const an_run_record *r = &run->record;
    const char *event = an_run_text(r->end, "event");
    return run->running                ? "it runs still"
           : !r->end                   ? "without a word: it was killed, or the machine was"
           : strcmp(event, "end") == 0 ? "as it was asked to"
                                       : event;
}

static void put_facts(const an_report_run *run, an_text *out)
{
    const an_run_record *r = &run->record;
    const json_t *b = r->begin, *facts = json_object_get(b, "facts");
    char batch[AN_RUN_SETTING_BYTES], micros[AN_RUN_SETTING_BYTES], bytes[16];
    an_text_puts(out, "<div class=\"wide\"><table class=\"facts\">\n");
    put_row(out, "trained", an_run_text(b, "preset"));
    put_fact(out, "updates", "%lld; %zu lines of metrics; begun %zu time%s",
             r->n ? (long long)r->update[r->n - 1].step + 1 : 0LL, r->n, r->begins, r->begins == 1 ? "" : "s");
    put_row(out, "ended", how_it_ended(run));
    put_row(out, "error", an_run_text(r->end, "error"));
    an_run_setting(r, "gradient_accumulation_steps", micros);
    put_fact(out, "batch", "%s%s%s", an_run_setting(r, "batch_size", batch),
             strcmp(micros, "1") == 0 ? "" : ", micro-batches an update: ", strcmp(micros, "1") == 0 ? "" : micros);
    put_row(out, "data", an_run_text(b, "data"));
    put_row(out, "data's hash", an_run_text(b, "train_xxh3"));
    put_row(out, "mount of the data", an_run_text(b, "mount"));
    put_row(out, "device", an_run_text(b, "device"));
    put_row(out, "device proof", an_run_text(b, "product_checked"));
    put_fact(out, "dtypes", "%s; weights %s, moments %s", an_run_text(b, "dtype"), an_run_text(b, "weights"),
             an_run_text(b, "moments"));
    put_row(out, "processor", an_run_text(facts, "cpu"));
    put_fact(out, "architecture", "%s, %s", an_run_text(facts, "machine"),
             *an_run_text(facts, "translated") ? an_run_text(facts, "translated") : "native");
    put_row(out, "system", an_run_text(facts, "system"));
    put_busiest(b, out);
    if (isfinite(an_run_number(facts, "ram_bytes")))
        put_fact(out, "memory", "%s", an_bytes_text(an_run_number(facts, "ram_bytes"), bytes));
    if (isfinite(an_run_number(r->plan, "peak_bytes")))
        put_fact(out, "planned", "%s on the device, %.0f launches an update",
                 an_bytes_text(an_run_number(r->plan, "peak_bytes"), bytes), an_run_number(r->plan, "launches"));
    put_memory_kinds(r->plan, out);
    put_on_cpu(r, out);
    put_fact(out, "program", "%s, commit %s", an_run_text(b, "anneal"), an_run_text(b, "commit"));
    put_row(out, "begun", an_run_text(b, "time"));
    put_times(r->end, out);
    if (isfinite(an_run_number(r->end, "best_val_loss")))
        put_fact(out, "best validation loss", "%.6g", an_run_number(r->end, "best_val_loss"));
    if (r->n) put_unmeasured(r, out);
    if (r->disordered)
        put_fact(out, "left out", "%llu lines of metrics out of order", (unsigned long long)r->disordered);
    an_text_puts(out, "</table></div>\n");
}

/* Whether memory was flat, in a sentence: medians of the second tenth and of the last. */
static void put_growth(const an_run_record *r, an_text *out)
{
    char from[16], to[16];
    const char *between = "";
    an_text kinds = {0};
    bool flat = true;
    if (r->n < AN_DIAGNOSE_LINES) return;
    for (an_memory_kind kind = 0; kind < AN_MEMORY_KINDS; kind++) {
        double early, late;
        an_memory_growth_of(r, r->n, kind, &early, &late);
        if (!(early > 0) || !isfinite(early) || !isfinite(late)) continue;
        flat &= !an_memory_grew(kind, early, late);
        an_text_printf(&kinds, "%s%s %s and %s (%+.1f %%", between, an_memory_kind_name(kind),
                       an_bytes_text(early, from), an_bytes_text(late, to), 100 * (late / early - 1));
        if (late > 1.01 * early && !an_memory_grew(kind, early, late))
            an_text_puts(&kinds, kind == AN_MEMORY_RESIDENT
                                     ? ", less than the 16 MiB by which a process' pages come and go"
                                     : ", less than 1 MiB");
        an_text_puts(&kinds, ")");
        between = "; ";
    }
    if (kinds.data)
        an_text_printf(out, "<p>%s In the second tenth of the lines and in the last: %s.</p>\n",
                       flat ? "Memory was flat." : "Memory grew.", kinds.data);
    out->failed |= kinds.failed;
    an_text_free(&kinds);
}

static an_status put_charts(an_err *err, const an_run_record *r, an_text *out)
{
    static const line loss[] = {{AN_RUN_LOSS, "loss of a batch", 1}, {AN_RUN_VAL_LOSS, "validation", 1}};
    static const line norm[] = {{AN_RUN_GRAD_NORM, "norm", 1}};
    static const line ms[] = {{AN_RUN_MS, "update", 1},
                              {AN_RUN_DATA_WAIT_MS, "waiting for data", 1},
                              {AN_RUN_CPU_WAIT_MS, "for a processor", 1}};
    static const line memory[] = {{AN_RUN_RSS_BYTES, "process", 1 / 1048576.0},
                                  {AN_RUN_LIVE_BYTES, "device, live", 1 / 1048576.0},
                                  {AN_RUN_RESERVED_BYTES, "requested", 1 / 1048576.0}};
    static const line swap[] = {{AN_RUN_SWAP_BYTES, "swap", 1 / 1048576.0}};
    static const line busy[] = {{AN_RUN_GPU_BUSY, "busy", 100}};
    static const line heat[] = {{AN_RUN_TEMPERATURE, "processor", 1}, {AN_RUN_GPU_TEMPERATURE, "GPU", 1}};
    an_text_puts(out, "<div class=\"charts\">\n");
    put_chart(out, r, "Loss", false, loss, 2);
    put_chart(out, r, "Memory, MiB", true, memory, 3);
    put_chart(out, r, "Milliseconds an update", true, ms, 3);
    AN_TRY(put_histogram(err, r, out));
    put_chart(out, r, "Norm of the gradients", true, norm, 1);
    put_chart(out, r, "GPU busy, percent of the time", true, busy, 1);
    put_chart(out, r, "Temperature, degrees Celsius", false, heat, 2);
    put_chart(out, r, "Swap in use on the machine, MiB", true, swap, 1);
    an_text_puts(out, "</div>\n");
    put_growth(r, out);
    return AN_OK;
}

static an_status put_diagnosis(an_err *err, const an_report_run *run, an_text *out)
{
    an_diagnosis *d = malloc(sizeof *d);
    if (!d) return an_fail_nomem(err, "a diagnosis", sizeof *d);
    an_status status = an_diagnose(err, run->dir, &run->record, run->running, d);
    an_text_puts(out, "<h3>Diagnosis</h3>\n");
    if (status == AN_OK && d->n == 0) an_text_puts(out, "<p class=\"good\">No rule found anything.</p>\n");
    for (int i = 0; status == AN_OK && i < d->n; i++) {
        const an_finding *f = &d->finding[i];
        an_text_printf(out, "<p><b class=\"bad\">%s</b> (%s)<br>", f->symptom, f->rule);
        an_html_put(out, f->evidence);
        an_text_printf(out, "<br>%s<br><code>", f->hypothesis);
        an_html_put(out, f->fix);
        an_text_puts(out, "</code></p>\n");
    }
    free(d);
    return status;
}

static void put_events(const an_run_record *r, an_text *out)
{
    static const char *const members[] = {"name", "hypothesis", "reason", "text", "against", "what"};
    const json_t *lists[] = {r->notes, r->machine};
    if (json_array_size(r->notes) + json_array_size(r->machine) == 0) return;
    an_text_puts(
        out, "<h3>Logbook: notes, rejected hypotheses, the machine</h3><div class=\"wide\"><table class=\"facts\">\n");
    for (size_t l = 0; l < AN_COUNT(lists); l++) {
        size_t i;
        json_t *event;
        json_array_foreach(lists[l], i, event)
        {
            an_text_printf(out, "<tr><td class=\"n\">%.0f</td><td>", fmax(an_run_number(event, "step"), 0));
            an_html_put(out, an_run_text(event, "event"));
            an_text_puts(out, "</td><td>");
            for (size_t m = 0; m < AN_COUNT(members); m++) {
                const char *text = an_run_text(event, members[m]);
                if (*text) an_html_put(out, text), an_text_puts(out, "<br>");
            }
            an_text_puts(out, "</td></tr>\n");
        }
    }
    an_text_puts(out, "</table></div>\n");
    if (r->events_left_out) an_text_printf(out, "<p>%zu more are in the logbook.</p>\n", r->events_left_out);
}

static an_status put_run(an_err *err, const an_report_run *run, const json_t *sweep, an_text *out)
{
    an_text_puts(out, "<section><h2>");
    an_html_put(out, run->dir);
    an_text_puts(out, "</h2>\n");
    put_facts(run, out);
    AN_TRY(put_speed(err, run, sweep, out));
    an_text_puts(out, "</section>\n");
    AN_TRY(put_charts(err, &run->record, out));
    AN_TRY(put_diagnosis(err, run, out));
    put_events(&run->record, out);
    return AN_OK;
}

/* ---- several runs, a sweep */

/* The settings in which two runs differ: what a difference of their losses may come from. */
static void put_settings(const an_run_record *a, const an_run_record *b, an_text *out)
{
    enum { MOST_SETTINGS = 16 };
    an_text lines = {0};
    const size_t n = an_compare_settings(a, b, MOST_SETTINGS, &lines);
    if (n == 0) an_text_puts(out, "<p>Their settings are the same.</p>\n");
    if (n) an_text_printf(out, "<p>%zu of their settings differ; the first run's value, then the other's:</p><ul>", n);
    for (char *line = lines.data, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        an_text_puts(out, "<li>");
        an_html_put(out, line);
        an_text_puts(out, "</li>");
    }
    if (n) an_text_puts(out, "</ul>\n");
    out->failed |= lines.failed;
    an_text_free(&lines);
}

static an_status put_comparison(an_err *err, const an_report_run *a, const an_report_run *b, an_text *out)
{
    an_tolerances t;
    an_comparison c;
    an_err why = {0};
    AN_TRY(an_config_defaults(err, &an_tolerance_keys, &t));
    an_text_puts(out, "<h3>");
    an_html_put(out, a->dir);
    an_text_puts(out, " and ");
    an_html_put(out, b->dir);
    an_text_puts(out, "</h3>\n");
    if (an_compare_runs(&why, &a->record, &b->record, &t, &c) != AN_OK) {
        an_text_puts(out, "<p>");
        an_html_put(out, why.text);
        an_text_puts(out, "</p>\n");
        return AN_OK;
    }
    an_text_puts(
        out,
        "<div class=\"wide\"><table><tr><th></th><th>verdict</th><th class=\"n\">compared</th><th class=\"n\">largest "
        "relative difference</th><th class=\"n\">allowed</th></tr>\n");
    for (int k = 0; k < AN_COMPARE_ROWS; k++) {
        const an_compare_row *row = &c.row[k];
        if (!row->compared) continue;
        an_text_printf(out, "<tr><td>%s</td><td class=\"%s\">%s", row->name, row->beyond_step < 0 ? "good" : "bad",
                       row->beyond_step < 0 ? "pass" : "beyond");
        if (row->beyond_step >= 0) an_text_printf(out, " from update %lld", (long long)row->beyond_step);
        an_text_printf(out, "</td><td class=\"n\">%zu</td><td class=\"n\">%.3g</td><td class=\"n\">%.3g", row->compared,
                       row->worst, row->allowed);
        an_text_puts(out, "</td></tr>\n");
    }
    an_text_puts(out, "</table></div>\n");
    put_settings(&a->record, &b->record, out);
    return AN_OK;
}

/* Draws the sweep's picture from its points: the saved file would be untrusted markup. */
static an_status put_sweep_picture(an_err *err, const json_t *sweep, an_text *out)
{
    an_sweep *s = malloc(sizeof *s);
    if (!s) return an_fail_nomem(err, "a sweep's picture", sizeof *s);
    an_sweep_from_json(json_object_get(sweep, "points"), s);
    static const char address[] = " xmlns=\"http://www.w3.org/2000/svg\""; /* SVG inside HTML needs no namespace */
    an_text svg = {0};
    an_sweep_svg(s, "Speed over batch size, a line for each combination of settings", &svg);
    const char *at = svg.data ? strstr(svg.data, address) : NULL;
    if (at) {
        an_text_puts(out, "<figure class=\"sweep\">");
        an_text_putn(out, svg.data, (size_t)(at - svg.data));
        an_text_printf(out, "%s</figure>\n", at + sizeof address - 1);
    }
    out->failed |= svg.failed;
    an_text_free(&svg);
    free(s);
    return AN_OK;
}

/* A table cell: five digits; a large number as a whole one, without an exponent. */
static void put_number(double v, an_text *out)
{
    an_text_puts(out, "<td class=\"n\">");
    if (isfinite(v)) an_text_printf(out, fabs(v) >= 1e5 && fabs(v) < 1e15 ? "%.0f" : "%.5g", v);
    an_text_puts(out, "</td>");
}

static an_status put_sweep(an_err *err, const json_t *sweep, an_text *out)
{
    enum { MOST_ROWS = 512 };
    static const struct {
        const char *key, *head;
        double scale;
    } columns[] = {{"batch_size", "batch", 1},
                   {"units_per_s", "units a second", 1},
                   {"ms", "ms an update", 1},
                   {"data_wait_share", "data wait, %", 100},
                   {"cpu_wait_share", "processor wait, %", 100},
                   {"predicted_bytes", "planned, MiB", 1 / 1048576.0},
                   {"measured_bytes", "requested, MiB", 1 / 1048576.0},
                   {"rss_bytes", "resident, MiB", 1 / 1048576.0}};
    size_t i;
    json_t *p;
    char bytes[16];
    an_text_puts(out, "<section><h2>Sweep of ");
    an_html_put(out, an_run_text(sweep, "preset"));
    an_text_puts(out, " on ");
    an_html_put(out, an_run_text(sweep, "device"));
    an_text_puts(out, "</h2>\n");
    AN_TRY(put_sweep_picture(err, sweep, out));
    an_text_puts(out, "<div class=\"wide\"><table><tr><th></th>");
    for (size_t k = 0; k < AN_COUNT(columns); k++) an_text_printf(out, "<th class=\"n\">%s</th>", columns[k].head);
    an_text_puts(out, "</tr>\n");
    json_array_foreach(json_object_get(sweep, "points"), i, p)
    {
        if (i == MOST_ROWS) break;
        an_text_puts(out, "<tr><td>");
        an_html_put(out, an_run_text(p, "axes"));
        an_html_put(out, an_run_text(p, "why"));
        if (an_run_number(p, "slower_than") > 0)
            an_text_printf(out, " <span class=\"bad\">slower than a batch of %.0f</span>",
                           an_run_number(p, "slower_than"));
        an_text_puts(out, "</td>");
        for (size_t k = 0; k < AN_COUNT(columns); k++) {
            const double v = an_run_number(p, columns[k].key) * columns[k].scale;
            put_number(v, out);
        }
        an_text_puts(out, "</tr>\n");
    }
    an_text_puts(out, "</table></div>\n");
    json_array_foreach(json_object_get(sweep, "answers"), i, p)
    {
        if (i == MOST_ROWS) break;
        an_text_puts(out, "<p>");
        an_html_put(out, an_run_text(p, "axes"));
        if (an_run_number(p, "budget_bytes") > 0)
            an_text_printf(out, " Within %s:", an_bytes_text(an_run_number(p, "budget_bytes"), bytes));
        if (isfinite(an_run_number(p, "knee")))
            an_text_printf(out, " the knee is a batch of %.0f;", an_run_number(p, "knee"));
        else
            an_text_puts(out, " no knee was reached;");
        an_text_printf(out, " the largest that fits by the plan: %.0f.", an_run_number(p, "largest_fit"));
        if (an_run_number(p, "cpu_wait_share") > AN_RUN_MUCH_CPU_WAIT)
            an_text_printf(out,
                           " <span class=\"bad\">Not certain: other programs used the processors, for which a point "
                           "waited %.0f %% of "
                           "its time.</span>",
                           fmin(100 * an_run_number(p, "cpu_wait_share"), 100));
        an_text_puts(out, "</p>\n");
    }
    an_text_puts(out, "</section>\n");
    return AN_OK;
}

/* The file's hash is shown, so that a reader can tell whether a file at hand is the one that was used. */
static void put_profile(const an_report_profile *p, an_text *out)
{
    static const struct {
        const char *key, *name, *unit;
    } figures[] = {{"step_ms", "step", "ms"},           {"data_ms", "waiting for data", "ms"},
                   {"forward_ms", "forward", "ms"},     {"backward_ms", "backward", "ms"},
                   {"update_ms", "optimizer", "ms"},    {"peak_gflops", "the machine reaches", "GFLOP/s"},
                   {"peak_gbytes", "and reads", "GB/s"}};
    const json_t *j = p->json;
    an_text_puts(out, "<section><h2>Profile of ");
    an_html_put(out, an_run_text(j, "preset"));
    an_text_puts(out, " on ");
    an_html_put(out, an_run_text(j, "device"));
    an_text_puts(out, "</h2>\n<p>");
    an_html_put(out, p->path);
    an_text_printf(out, ", SHA-256 %.64s, of ", p->sha256);
    an_html_put(out, an_run_text(j, "time"));
    for (size_t i = 0; i < AN_COUNT(figures); i++)
        if (isfinite(an_run_number(j, figures[i].key)))
            an_text_printf(out, ", %s %.4g %s", figures[i].name, an_run_number(j, figures[i].key), figures[i].unit);
    an_text_puts(out, ".</p>\n");
    an_text_puts(out, "<div class=\"charts\">\n");
    if (!an_roofline_figure(j, out)) an_text_puts(out, "<p>Its launches have no times.</p>\n");
    an_text_puts(out, "</div>\n");
    an_roofline_table(j, out); /* as wide as the page: beside the figure its last column would be cut */
    an_text_puts(out, "</section>\n");
}

an_status an_run_report(an_err *err, const an_report_run *run, int n, const json_t *sweep,
                        const an_report_profile *profile, an_text *out)
{
    an_text_printf(out,
                   "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                   "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">"
                   "<title>Report of %d run%s</title><style>%s</style></head><body>\n<h1>Report of %d run%s</h1>\n",
                   n, n == 1 ? "" : "s", style, n, n == 1 ? "" : "s");
    for (int i = 0; i < n; i++) AN_TRY(put_run(err, &run[i], sweep, out));
    if (n > 1) an_text_puts(out, "<section><h2>Comparison</h2>\n");
    for (int i = 1; i < n; i++) AN_TRY(put_comparison(err, &run[0], &run[i], out));
    if (n > 1) an_text_puts(out, "</section>\n");
    if (sweep) AN_TRY(put_sweep(err, sweep, out));
    if (profile && profile->json) put_profile(profile, out);
    an_text_puts(out, "</body></html>\n");
    return out->failed ? an_fail_nomem(err, "the report", out->len) : AN_OK;
}
