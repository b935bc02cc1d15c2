/* profile_diff.c: matches the launches of two profiles by operation, ranks them, concludes. See profile_diff.h. */
#define _DEFAULT_SOURCE /* timegm */
#include "report/profile_diff.h"
#include "report/run_record.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BYTES = 64 << 20 };

/* Thresholds of the conclusion. */
static const double CHANGED = 0.05;   /* steps differ by more than this share */
static const double DATA_WAIT = 0.1;  /* share of the step that waits for data */
static const double HOST_SHARE = 0.5; /* share of the step without data that no launch accounts for */
static const double NEAR_ROOF = 0.6;  /* share of the roof from which a rewrite has little to gain */
static const double MOVE_GAIN = 1.2;  /* times as fast on the other device */
static const double ONE_MODEL = 0.5; /* share of the time in common operations below which two presets are two models */
static const double LEAST_OP =
    0.005;               /* an operation below this share of the launches' time says nothing of the factor */
enum { FEWEST_OPS = 5 }; /* to find a common factor from */

/* ---- reading */

/* Copies a text of the file, cut to `cap`, other characters than printable ASCII replaced. */
static void copy_text(const json_t *object, const char *key, char *out, size_t cap)
{
    snprintf(out, cap, "%s", an_run_text(object, key));
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126) *c = '?';
}

/* A number of the file that is a time or a share; 0 where it is missing, negative or not finite. */
static double amount(const json_t *object, const char *key)
{
    const double x = an_run_number(object, key);
    return isfinite(x) && x > 0 ? x : 0;
}

/* Each run of digits in a name becomes *: layer 3 and layer 4 are one operation. */
static void without_numbers(char *name)
{
    char *to = name;
    for (const char *from = name; *from;) {
        const bool digit = isdigit((unsigned char)*from);
        *to++ = digit ? '*' : *from;
        from++;
        while (digit && isdigit((unsigned char)*from)) from++;
    }
    *to = 0;
}

static double parse_time(const char *text)
{
    struct tm t = {0};
    int n = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec,
               &n) != 6 ||
        n == 0 || t.tm_year < 1970)
        return NAN;
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    return (double)timegm(&t);
}

static void describe(const json_t *launch, an_profile_op *op)
{
    *op = (an_profile_op){.us = {0}};
    copy_text(launch, "kernel", op->name, sizeof op->name);
    copy_text(launch, "scope", op->scope, sizeof op->scope);
    copy_text(launch, "kind", op->kind, sizeof op->kind);
    copy_text(launch, "phase", op->phase, sizeof op->phase);
    copy_text(launch, "shape", op->shape, sizeof op->shape);
    without_numbers(op->name);
    if (!*op->shape)
        snprintf(op->shape, sizeof op->shape, "%.0f flops, %.0f B", amount(launch, "flops"), amount(launch, "bytes"));
}

static bool same_op(const an_profile_op *a, const an_profile_op *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->shape, b->shape) == 0 && strcmp(a->kind, b->kind) == 0 &&
           strcmp(a->phase, b->phase) == 0;
}

static void add_launches(an_profile_diff *d, int side, const json_t *launches)
{
    size_t i;
    json_t *launch;
    json_array_foreach(launches, i, launch)
    {
        an_profile_op op;
        int at = 0;
        describe(launch, &op);
        while (at < d->n && !same_op(&d->op[at], &op)) at++;
        if (at == d->n) d->op[d->n++] = op;
        const double us = amount(launch, "device_us");
        d->op[at].us[side] += us;
        d->op[at].share[side] += us * amount(launch, "share_of_roof"); /* divided by the time at the end */
        d->op[at].launches[side]++;
    }
}

static an_status read_head(an_err *err, const json_t *j, const char *path, an_profile_file *f)
{
    const json_t *launches = json_object_get(j, "launches");
    const double schema = an_run_number(j, "schema");
    size_t i;
    json_t *launch;
    if (!json_is_array(launches))
        return an_fail(err, AN_E_DATA,
                       "%s: no profile: it has no list of launches; write one with anneal profile "
                       "PRESET --json >FILE",
                       path);
    if (schema != AN_PROFILE_SCHEMA)
        return an_fail(err, AN_E_DATA, "%s: a profile of schema %g; this program reads schema %d: profile again", path,
                       schema, AN_PROFILE_SCHEMA);
    const size_t n = json_array_size(launches);
    if (n == 0 || n > AN_PROFILE_MOST_LAUNCHES)
        return an_fail(err, AN_E_DATA, "%s: %zu launches; a profile that is compared has 1 to %d", path, n,
                       AN_PROFILE_MOST_LAUNCHES);
    copy_text(j, "preset", f->preset, sizeof f->preset);
    copy_text(j, "device", f->device, sizeof f->device);
    copy_text(j, "time", f->time, sizeof f->time);
    copy_text(j, "commit", f->commit, sizeof f->commit);
    f->unix_time = parse_time(f->time);
    f->step_ms = amount(j, "step_ms");
    f->data_ms = amount(j, "data_ms");
    f->device_ms = amount(j, "device_ms");
    f->host_ms = f->step_ms - f->data_ms - f->device_ms;
    f->host_ms = f->host_ms > 0 ? f->host_ms : 0;
    f->n_launches = (int)n;
    f->gflops = amount(j, "peak_gflops");
    f->gbytes = amount(j, "peak_gbytes");
    json_array_foreach(launches, i, launch) f->n_above +=
        json_is_null(json_object_get(launch, "share_of_roof")) && amount(launch, "device_us") > 0;
    if (f->device_ms <= 0 || f->step_ms <= 0)
        return an_fail(err, AN_E_DATA, "%s: its launches have no times: this device does not measure them", path);
    return AN_OK;
}

/* ---- ranking */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int largest_change_first(const void *a, const void *b)
{
    const an_profile_op *x = a, *y = b;
    return x->change > y->change ? -1 : x->change < y->change;
}

/* Finds the factor that nearly all operations changed by, as a busy machine or another clock changes them: the tenth
 * percentile of the ratios where they grew, the ninetieth where they shrank. A change of half the operations leaves it
 * at 1. */
static an_status find_common(an_err *err, an_profile_diff *d)
{
    double all[2] = {0}, both = 0, *ratio = malloc((size_t)d->n * sizeof *ratio);
    int n = 0;
    if (!ratio) return an_fail_nomem(err, "the operations of two profiles", (size_t)d->n * sizeof *ratio);
    for (int i = 0; i < d->n; i++)
        for (int side = 0; side < 2; side++) all[side] += d->op[i].us[side];
    for (int i = 0; i < d->n; i++) {
        const double *us = d->op[i].us;
        if (!(us[0] > 0 && us[1] > 0)) continue;
        both += us[0] + us[1];
        if (us[0] > LEAST_OP * all[0] || us[1] > LEAST_OP * all[1]) ratio[n++] = us[1] / us[0];
    }
    if (n) qsort(ratio, (size_t)n, sizeof *ratio, ascending);
    const double slower = an_run_quantile(ratio, (size_t)n, 0.1), faster = an_run_quantile(ratio, (size_t)n, 0.9);
    d->factor = 1;
    if (n >= FEWEST_OPS && slower > 1 + CHANGED && isfinite(slower)) d->factor = slower;
    if (n >= FEWEST_OPS && faster < 1 - CHANGED) d->factor = faster;
    d->common = all[0] + all[1] > 0 ? both / (all[0] + all[1]) : 0;
    free(ratio);
    const an_profile_file *a = &d->file[0], *b = &d->file[1];
    if (!*a->preset || !*b->preset || strcmp(a->preset, b->preset) == 0 || d->common >= ONE_MODEL) return AN_OK;
    return an_fail(
        err, AN_E_DATA,
        "the profiles are of two models: one is of %s, the other of %s, and %.0f %% of their time is in operations "
        "that both have; profile one model before and after a change",
        a->preset, b->preset, 100 * d->common);
}

/* The slowest operations of one side. */
static void slowest(const an_profile_diff *d, int side, int top[AN_PROFILE_TOP])
{
    for (int k = 0; k < AN_PROFILE_TOP; k++) {
        top[k] = -1;
        for (int i = 0; i < d->n; i++) {
            bool taken = d->op[i].us[side] <= 0;
            for (int j = 0; j < k; j++) taken |= top[j] == i;
            if (!taken && (top[k] < 0 || d->op[i].us[side] > d->op[top[k]].us[side])) top[k] = i;
        }
    }
}

static void rank(an_profile_diff *d)
{
    int a[AN_PROFILE_TOP], b[AN_PROFILE_TOP];
    for (int i = 0; i < d->n; i++)
        for (int side = 0; side < 2; side++)
            if (d->op[i].us[side] > 0) d->op[i].share[side] /= d->op[i].us[side];
    for (int i = 0; i < d->n; i++) d->op[i].change = fabs(d->op[i].us[1] / d->factor - d->op[i].us[0]);
    qsort(d->op, (size_t)d->n, sizeof *d->op, largest_change_first);
    slowest(d, 0, a);
    slowest(d, 1, b);
    d->same_slowest = true;
    for (int k = 0; k < AN_PROFILE_TOP; k++) {
        bool found = false;
        for (int j = 0; j < AN_PROFILE_TOP; j++) found |= a[k] == b[j];
        d->same_slowest &= found;
    }
    const double was = d->file[0].step_ms - d->file[0].data_ms, is = d->file[1].step_ms - d->file[1].data_ms;
    d->changed = fabs(is - was) > CHANGED * fmax(is, was);
    d->days_apart = fabs(d->file[1].unix_time - d->file[0].unix_time) / 86400;
    for (int k = 0; k < AN_PROFILE_TOP; k++) d->top[k] = d->changed ? (k < d->n ? k : -1) : b[k];
}

/* ---- the conclusion, about B */

static void conclude(an_profile_diff *d)
{
    const an_profile_file *a = &d->file[0], *b = &d->file[1];
    double us[2] = {0}, share = 0;
    for (int k = 0; k < AN_PROFILE_TOP && d->top[k] >= 0; k++) {
        const an_profile_op *op = &d->op[d->top[k]];
        for (int side = 0; side < 2; side++) us[side] += op->us[side];
        share += op->us[1] * op->share[1];
    }
    share = us[1] > 0 ? share / us[1] : 0;
    const double wait = b->data_ms / b->step_ms, work = b->step_ms - b->data_ms;
    const double host = work > 0 ? b->host_ms / work : 0;
    const bool other_device = strcmp(a->device, b->device) != 0;
    if (wait > DATA_WAIT || host > HOST_SHARE) {
        d->verdict = AN_PROFILE_OTHER_PATH;
        snprintf(d->why, sizeof d->why,
                 "%.0f %% of the step waits for data (limit %.0f %%), %.0f %% of the rest is in no launch (limit "
                 "%.0f %%): launches are not what takes the time",
                 100 * wait, 100 * DATA_WAIT, 100 * host, 100 * HOST_SHARE);
    } else if (other_device && us[0] > 0 && us[1] > MOVE_GAIN * us[0]) {
        d->verdict = AN_PROFILE_MOVE;
        snprintf(d->why, sizeof d->why,
                 "the three take %.3f ms on %s and %.3f ms on %s: %.1f times as long (limit %.1f)", 1e-3 * us[1],
                 b->device, 1e-3 * us[0], a->device, us[1] / us[0], MOVE_GAIN);
    } else if (share > NEAR_ROOF) {
        d->verdict = AN_PROFILE_OTHER_HARDWARE;
        snprintf(d->why, sizeof d->why, "the three take %.3f ms at %.0f %% of what this machine can do (limit %.0f %%)",
                 1e-3 * us[1], 100 * share, 100 * NEAR_ROOF);
    } else {
        d->verdict = AN_PROFILE_REWRITE;
        snprintf(d->why, sizeof d->why,
                 "the three take %.3f of %.3f ms of launches at %.0f %% of what this machine can do (limit %.0f %%)",
                 1e-3 * us[1], b->device_ms, 100 * share, 100 * NEAR_ROOF);
    }
}

an_status an_profile_diff_make(an_err *err, const json_t *a, const json_t *b, const char *path_a, const char *path_b,
                               an_profile_diff *out)
{
    *out = (an_profile_diff){.days_apart = NAN};
    AN_TRY(read_head(err, a, path_a, &out->file[0]));
    AN_TRY(read_head(err, b, path_b, &out->file[1]));
    const size_t most = (size_t)out->file[0].n_launches + (size_t)out->file[1].n_launches;
    out->op = calloc(most, sizeof *out->op);
    if (!out->op) return an_fail_nomem(err, "the operations of two profiles", most * sizeof *out->op);
    add_launches(out, 0, json_object_get(a, "launches"));
    add_launches(out, 1, json_object_get(b, "launches"));
    AN_TRY(find_common(err, out));
    rank(out);
    conclude(out);
    return AN_OK;
}

an_status an_profile_diff_read(an_err *err, const char *path_a, const char *path_b, an_profile_diff *out)
{
    json_t *a = NULL, *b = NULL;
    *out = (an_profile_diff){.days_apart = NAN};
    an_status status = an_json_read(err, path_a, MOST_BYTES, &a);
    if (status == AN_OK) status = an_json_read(err, path_b, MOST_BYTES, &b);
    if (status == AN_OK) status = an_profile_diff_make(err, a, b, path_a, path_b, out);
    json_decref(a);
    json_decref(b);
    return status;
}

void an_profile_diff_free(an_profile_diff *d)
{
    free(d->op);
    *d = (an_profile_diff){.op = NULL};
}

/* ---- texts */

const char *an_profile_verdict_name(an_profile_verdict v)
{
    static const char *const names[] = {"rewrite", "move", "other_path", "other_hardware"};
    return names[v];
}

const char *an_profile_verdict_text(an_profile_verdict v)
{
    static const char *const texts[] = {
        "rewrite these operations",
        ("these operations are faster on the other device: train there, or, where that is the CPU of a Mac, "
         "move them (place=SCOPE:cpu)"),
        "another path: the time is not in launches; data, batch size or host first",
        "other hardware: these operations are near what this machine can do",
    };
    return texts[v];
}

void an_profile_diff_json(const an_profile_diff *d, an_text *out)
{
    for (int i = 0; i < 2; i++) {
        const an_profile_file *f = &d->file[i];
        an_text_printf(out, "\"%c\":{\"preset\":", "ab"[i]);
        an_json_put(out, f->preset);
        an_text_puts(out, ",\"device\":");
        an_json_put(out, f->device);
        an_text_puts(out, ",\"time\":");
        an_json_put(out, f->time);
        an_json_put_number(out, "step_ms", f->step_ms);
        an_json_put_number(out, "data_ms", f->data_ms);
        an_json_put_number(out, "host_ms", f->host_ms);
        an_json_put_number(out, "device_ms", f->device_ms);
        an_json_put_number(out, "peak_gflops", f->gflops);
        an_text_printf(out, ",\"above_roof\":%d},", f->n_above);
    }
    an_text_printf(out, "\"changed\":%s,\"same_slowest\":%s", d->changed ? "true" : "false",
                   d->same_slowest ? "true" : "false");
    an_json_put_number(out, "days_apart", d->days_apart);
    an_json_put_number(out, "factor", d->factor);
    an_json_put_number(out, "common_share", d->common);
    an_text_puts(out, ",\"top\":[");
    for (int k = 0; k < AN_PROFILE_TOP && d->top[k] >= 0; k++) {
        const an_profile_op *op = &d->op[d->top[k]];
        an_text_puts(out, k ? ",{\"name\":" : "{\"name\":");
        an_json_put(out, op->name);
        an_text_puts(out, ",\"scope\":");
        an_json_put(out, op->scope);
        an_text_puts(out, ",\"kind\":");
        an_json_put(out, op->kind);
        an_text_puts(out, ",\"phase\":");
        an_json_put(out, op->phase);
        an_text_puts(out, ",\"shape\":");
        an_json_put(out, op->shape);
        an_json_put_number(out, "a_us", op->us[0]);
        an_json_put_number(out, "b_us", op->us[1]);
        an_json_put_number(out, "b_share_of_roof", op->share[1]);
        an_text_printf(out, ",\"a_launches\":%d,\"b_launches\":%d}", op->launches[0], op->launches[1]);
    }
    an_text_printf(out, "],\"verdict\":\"%s\",\"why\":", an_profile_verdict_name(d->verdict));
    an_json_put(out, d->why);
}
