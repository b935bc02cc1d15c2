/* run_record.c: see run_record.h. */
#include "report/run_record.h"
#include "io/checkpoint.h"
#include "io/formats/jsonl.h"
#include "io/text/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Larger step numbers are no run's, and doubles would not tell them apart. */
#define MAX_STEP ((int64_t)1 << 53)

static const char *const column_keys[AN_RUN_COLUMNS] = {
    [AN_RUN_LOSS] = "loss",
    [AN_RUN_VAL_LOSS] = "val_loss",
    [AN_RUN_GRAD_NORM] = "grad_norm",
    [AN_RUN_MS] = "ms",
    [AN_RUN_UNITS_PER_S] = "units_per_s",
    [AN_RUN_DATA_WAIT_MS] = "data_wait_ms",
    [AN_RUN_CPU_WAIT_MS] = "cpu_wait_ms",
    [AN_RUN_GPU_BUSY] = "gpu_busy",
    [AN_RUN_LIVE_BYTES] = "live_bytes",
    [AN_RUN_RESERVED_BYTES] = "reserved_bytes",
    [AN_RUN_RSS_BYTES] = "rss_bytes",
    [AN_RUN_HEAP_BYTES] = "heap_bytes",
    [AN_RUN_MAPPED_BYTES] = "mapped_bytes",
    [AN_RUN_SWAP_BYTES] = "swap_bytes",
    [AN_RUN_TEMPERATURE] = "temperature_c",
    [AN_RUN_GPU_TEMPERATURE] = "gpu_temperature_c",
    [AN_RUN_PLANS] = "plans",
};

double an_run_number(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

const char *an_run_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

const json_t *an_run_settings(const an_run_record *r)
{
    const json_t *settings = json_object_get(r->begin, "settings");
    return json_is_object(settings) ? settings : NULL;
}

const char *an_run_setting(const an_run_record *r, const char *key, char out[AN_RUN_SETTING_BYTES])
{
    const json_t *v = json_object_get(an_run_settings(r), key);
    out[0] = 0;
    if (json_is_string(v)) snprintf(out, AN_RUN_SETTING_BYTES, "%.100s", json_string_value(v));
    if (json_is_number(v)) snprintf(out, AN_RUN_SETTING_BYTES, "%.12g", json_number_value(v));
    if (json_is_boolean(v)) snprintf(out, AN_RUN_SETTING_BYTES, "%s", json_is_true(v) ? "true" : "false");
    an_text_printable(out, strlen(out));
    return out;
}

/* ---- metrics.jsonl */

/* A null is a number that was not finite; but in a line without a time, of an evaluation before any update, null means
 * that there is no such number. */
static void read_columns(const json_t *line, an_run_update *u)
{
    const bool updated = json_is_number(json_object_get(line, "ms"));
    for (int c = 0; c < AN_RUN_COLUMNS; c++) {
        const json_t *v = json_object_get(line, column_keys[c]);
        u->at[c] = json_is_number(v) ? json_number_value(v) : json_is_null(v) && updated ? INFINITY : NAN;
    }
}

static an_status add_update(an_err *err, void *arg, const json_t *line)
{
    an_run_record *r = arg;
    const json_t *number = json_object_get(line, "step");
    const int64_t step = json_integer_value(number);
    if (!json_is_integer(number) || step < -1 || step > MAX_STEP) return AN_OK;
    an_run_update u = {.step = step};
    read_columns(line, &u);
    an_run_update *last = r->n ? &r->update[r->n - 1] : NULL;
    if (last && step == last->step) { /* the line of an interrupted evaluation, which the resumed run repeats */
        for (int c = 0; c < AN_RUN_COLUMNS; c++)
            if (isnan(last->at[c])) last->at[c] = u.at[c];
        return AN_OK;
    }
    if (last && step < last->step) return r->disordered++, AN_OK;
    if (r->n == AN_RUN_MOST_UPDATES)
        return an_fail(err, AN_E_DATA, "metrics.jsonl has more than %d updates, the most that are read; log fewer",
                       AN_RUN_MOST_UPDATES);
    if (r->n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 256;
        an_run_update *more = realloc(r->update, cap * sizeof *more);
        if (!more) return an_fail_nomem(err, "metrics", cap * sizeof *more);
        r->update = more;
        r->cap = cap;
    }
    r->update[r->n++] = u;
    return AN_OK;
}

/* ---- logbook.jsonl */

static void replace(json_t **at, const json_t *line)
{
    json_decref(*at);
    *at = line ? json_deep_copy(line) : NULL;
}

static an_status keep(an_err *err, an_run_record *r, json_t *list, const json_t *line)
{
    if (json_array_size(list) >= AN_RUN_MOST_EVENTS) return r->events_left_out++, AN_OK;
    return json_array_append_new(list, json_deep_copy(line)) == 0 ? AN_OK : an_fail_nomem(err, "a logbook", 0);
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

static an_status add_event(an_err *err, void *arg, const json_t *line)
{
    static const char *const ends[] = {"end", "interrupted", "failed", NULL};
    static const char *const notes[] = {"note", "rejected", "accepted", NULL};
    an_run_record *r = arg;
    const char *event = an_run_text(line, "event");
    json_t **one = NULL;
    if (strcmp(event, "begin") == 0) {
        r->begins++;
        replace(&r->plan, NULL);
        replace(&r->end, NULL);
        replace(&r->not_finite, NULL);
        replace(&r->memory[0], NULL);
        replace(&r->memory[1], NULL);
        one = &r->begin;
    }
    if (strcmp(event, "plan") == 0) one = &r->plan;
    if (is_one_of(event, ends)) one = &r->end;
    if (strcmp(event, "not_finite") == 0) one = &r->not_finite;
    if (strcmp(event, "memory") == 0) one = &r->memory[r->memory[0] != NULL];
    if (one) {
        replace(one, line);
        return *one ? AN_OK : an_fail_nomem(err, "a logbook", 0);
    }
    if (strcmp(event, "machine") == 0) return keep(err, r, r->machine, line);
    return is_one_of(event, notes) ? keep(err, r, r->notes, line) : AN_OK;
}

static an_status read_both(an_err *err, const char *dir, an_run_record *out)
{
    char path[AN_CKPT_PATH_BYTES];
    *out = (an_run_record){.machine = json_array(), .notes = json_array()};
    if (!out->machine || !out->notes) return an_fail_nomem(err, "a run's record", 0);
    if (strlen(dir) + sizeof "/metrics.jsonl" > sizeof path)
        return an_fail(err, AN_E_USAGE, "%.100s...: the path is too long", dir);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    AN_TRY(an_jsonl_each(err, path, add_update, out));
    snprintf(path, sizeof path, "%s/logbook.jsonl", dir);
    AN_TRY(an_jsonl_each(err, path, add_event, out));
    if (!out->n && !out->begins && !json_array_size(out->notes))
        return an_fail(err, AN_E_DATA,
                       "%s: no run's folder: neither metrics.jsonl nor logbook.jsonl has a line of one; name the "
                       "folder that train's out= named",
                       dir);
    return AN_OK;
}

an_status an_run_record_read(an_err *err, const char *dir, an_run_record *out)
{
    const an_status status = read_both(err, dir, out);
    if (status != AN_OK) an_run_record_free(out);
    return status;
}

void an_run_record_free(an_run_record *r)
{
    free(r->update);
    json_decref(r->begin);
    json_decref(r->plan);
    json_decref(r->end);
    json_decref(r->not_finite);
    json_decref(r->memory[0]);
    json_decref(r->memory[1]);
    json_decref(r->machine);
    json_decref(r->notes);
    *r = (an_run_record){0};
}

/* ---- statistics */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

an_status an_run_sorted(an_err *err, const an_run_record *r, an_run_column column, size_t first, size_t last,
                        double **out, size_t *n)
{
    *out = NULL;
    *n = 0;
    last = AN_MIN(last, r->n);
    if (first >= last) return AN_OK;
    double *v = malloc((last - first) * sizeof *v);
    if (!v) return an_fail_nomem(err, "a run's numbers", (last - first) * sizeof *v);
    for (size_t i = first; i < last; i++)
        if (isfinite(r->update[i].at[column])) v[(*n)++] = r->update[i].at[column];
    if (*n) qsort(v, *n, sizeof *v, ascending);
    if (*n)
        *out = v;
    else
        free(v);
    return AN_OK;
}

double an_run_quantile(const double *sorted, size_t n, double share)
{
    if (!n) return NAN;
    const double place = share * (double)(n - 1);
    const size_t below = AN_MIN((size_t)place, n - 1), above = AN_MIN(below + 1, n - 1);
    const double part = place - (double)below;
    return part > 0 ? (1 - part) * sorted[below] + part * sorted[above] : sorted[below];
}

double an_run_median(const an_run_record *r, an_run_column column, size_t first, size_t last)
{
    double *v;
    size_t n;
    if (an_run_sorted(NULL, r, column, first, last, &v, &n) != AN_OK) return NAN;
    const double m = an_run_quantile(v, n, 0.5);
    free(v);
    return m;
}

double an_run_wait_share(const an_run_record *r, an_run_column column, size_t first, size_t last)
{
    double ms = 0, wait = 0;
    for (size_t i = first; i < last; i++) {
        const double *at = r->update[i].at, updates = i ? (double)(r->update[i].step - r->update[i - 1].step) : 1;
        if (!isfinite(at[AN_RUN_MS]) || !isfinite(at[column])) continue;
        ms += updates * at[AN_RUN_MS];
        wait += updates * at[column];
    }
    return ms > 0 ? wait / ms : (double)NAN;
}

double an_run_units_an_update(const an_run_record *r)
{
    for (size_t i = r->n; i-- > 0;) {
        const double units = 1e-3 * r->update[i].at[AN_RUN_UNITS_PER_S] * r->update[i].at[AN_RUN_MS];
        if (isfinite(units) && units > 0) return units;
    }
    return NAN;
}

void an_html_put(an_text *out, const char *text)
{
    uint32_t c = 0;
    for (size_t n = strlen(text), at = 0; at < n;) {
        const int len = an_utf8_next(text + at, n - at, &c);
        if (len <= 0 || c < 32 || (c >= 127 && c < 160))
            an_text_puts(out, c == '\n' && len > 0 ? " " : "?");
        else if (strchr("<>&\"'", text[at]))
            an_text_printf(out, "&#%d;", text[at]);
        else
            an_text_putn(out, text + at, (size_t)len);
        at += (size_t)AN_MAX(len, 1);
    }
}

void an_run_text_html(const json_t *object, const char *key, an_text *out)
{
    an_html_put(out, an_run_text(object, key));
}
