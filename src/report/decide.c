/* decide.c: measures each lane within its window, tries the rules, concludes. See decide.h. */
#include "report/decide.h"
#include "report/compare.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct limits_alone {
    an_decide_limits limits;
} limits_alone;
static const an_config_field fields[] = {AN_DECIDE_LIMIT_FIELDS(limits_alone, limits)};
const an_config an_decide_limit_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* ---- one bucket */

/* Settings that change where, how fast or how long a run computes, and not what an update computes. */
static bool may_differ(const char *key)
{
    static const char *const keys[] = {"out",
                                       "out_dir",
                                       "note",
                                       "workers",
                                       "max_iters",
                                       "eval_interval",
                                       "eval_iters",
                                       "eval_batches",
                                       "eval_first",
                                       "eval_train",
                                       "eval_only",
                                       "log_interval",
                                       "keep",
                                       "save_interval",
                                       "log_format",
                                       "device",
                                       "threads",
                                       "dtype",
                                       "budget",
                                       "high_watermark",
                                       "low_watermark",
                                       "recompute",
                                       "compile",
                                       "isa",
                                       "cc",
                                       "cache_dir",
                                       "exact",
                                       "fallback",
                                       "tf32",
                                       "place_apart",
                                       "verify",
                                       "dump",
                                       "dump_dir",
                                       "wandb_log",
                                       "wandb_project",
                                       "wandb_run_name",
                                       "backend",
                                       "data",
                                       "dataset",
                                       "always_save_checkpoint"};
    for (size_t i = 0; i < AN_COUNT(keys); i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static an_status check_bucket(an_err *err, const an_run_record *a, const an_run_record *b, const char *dir_a,
                              const char *dir_b)
{
    const char *key;
    json_t *value;
    char is[AN_RUN_SETTING_BYTES], was[AN_RUN_SETTING_BYTES];
    json_object_foreach((json_t *)(uintptr_t)an_run_settings(a), key, value)
    {
        const json_t *other = json_object_get(an_run_settings(b), key);
        if (may_differ(key) || (other && json_equal(value, other))) continue;
        char quoted[AN_QUOTED_BYTES];
        return an_fail(err, AN_E_USAGE,
                       "%s and %s: the lanes of a decision share one input bucket, but %s is '%s' in the first and "
                       "'%s' in the second; train both with the same",
                       dir_a, dir_b, an_quoted(key, quoted), an_run_setting(a, key, was), an_run_setting(b, key, is));
    }
    return AN_OK;
}

/* ---- figures of a lane */

/* Units of the training split, as the logbook counted them: "train_tokens", "train_examples". */
static double train_units(const an_run_record *r)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->begin, key, value) if (strncmp(key, "train_", 6) == 0 &&
                                                  json_is_number(value)) return json_number_value(value);
    return NAN;
}

/* What is held at the end of the first epochs against their beginning: medians of the second tenth and of the last. */
static void measure_growth(const an_run_record *r, double epochs_a_step, const an_decide_limits *limits,
                           an_decide_lane *lane)
{
    static const struct {
        an_run_column column;
        const char *name;
    } kinds[] = {{AN_RUN_LIVE_BYTES, "live bytes"}, {AN_RUN_RSS_BYTES, "resident bytes"}};
    size_t n = r->n;
    while (n > AN_DECIDE_LINES && epochs_a_step > 0 && (double)r->update[n - 1].step * epochs_a_step > limits->epochs)
        n--;
    lane->growth = NAN;
    lane->growing = "memory";
    lane->growth_epochs = n ? (double)r->update[n - 1].step * epochs_a_step : NAN;
    for (size_t k = 0; k < AN_COUNT(kinds); k++) {
        const double early = an_run_median(r, kinds[k].column, n / 10, n / 5 + 1),
                     late = an_run_median(r, kinds[k].column, 9 * n / 10, n), growth = late / early - 1;
        if (!(early > 0) || !isfinite(growth) || growth <= (isfinite(lane->growth) ? lane->growth : -2)) continue;
        lane->growth = growth;
        lane->growing = kinds[k].name;
    }
}

static void measure_drift(const an_run_record *reference, const an_run_record *r, const an_decide_limits *limits,
                          an_decide_lane *lane)
{
    an_err quiet = {0};
    an_comparison c;
    const an_tolerances t = {.loss = limits->tolerance, .val_loss = INFINITY, .grad_norm = INFINITY};
    lane->drift = NAN;
    if (an_compare_runs(&quiet, reference, r, &t, &c) != AN_OK || !c.row[0].compared) return;
    lane->drift = c.row[0].worst;
    lane->drift_step = c.row[0].worst_step;
    size_t i;
    json_t *note;
    json_array_foreach(r->notes, i, note) if (strcmp(an_run_text(note, "event"), "accepted") == 0) lane->accepted =
        true;
}

static an_status measure(an_err *err, const an_run_record *r, const char *dir, const an_decide_limits *limits,
                         an_decide_lane *lane)
{
    if (r->n < AN_DECIDE_LINES)
        return an_fail(err, AN_E_DATA,
                       "%s: %zu lines of metrics; a lane needs %d: train longer, or with log_interval=1", dir, r->n,
                       AN_DECIDE_LINES);
    const size_t first = r->n / 10 + 1;
    *lane = (an_decide_lane){.gain = NAN, .drift = NAN};
    snprintf(lane->device, sizeof lane->device, "%.*s", (int)strcspn(an_run_text(r->begin, "device"), ":;\n"),
             an_run_text(r->begin, "device"));
    snprintf(lane->host, sizeof lane->host, "%.60s", an_run_text(r->begin, "host"));
    an_run_setting(r, "dtype", lane->dtype);
    an_text_printable(lane->device, strlen(lane->device));
    an_text_printable(lane->host, strlen(lane->host));
    lane->ms = an_run_median(r, AN_RUN_MS, first, r->n);
    lane->units_per_s = an_run_median(r, AN_RUN_UNITS_PER_S, first, r->n);
    lane->busy = an_run_median(r, AN_RUN_GPU_BUSY, first, r->n);
    lane->first_step = r->update[first].step;
    lane->last_step = r->update[r->n - 1].step;
    const double epochs_a_step = 1e-3 * lane->units_per_s * lane->ms / train_units(r);
    lane->first_epoch = (double)lane->first_step * epochs_a_step;
    lane->last_epoch = (double)(lane->last_step + 1) * epochs_a_step;
    if (!(lane->ms > 0)) return an_fail(err, AN_E_DATA, "%s: its updates have no times", dir);
    measure_growth(r, epochs_a_step, limits, lane);
    return AN_OK;
}

/* ---- rules */

bool an_decide_numbers(const an_decide_lane *lane, const an_decide_limits *limits, an_decide_rule rule, double *found,
                       double *limit)
{
    switch (rule) {
    case AN_DECIDE_DRIFT: *found = lane->drift, *limit = limits->tolerance; break;
    case AN_DECIDE_MEMORY: *found = lane->growth, *limit = limits->growth; break;
    default: *found = lane->gain, *limit = limits->gain; break;
    }
    return !isnan(*found) && (rule != AN_DECIDE_DATA || !isnan(lane->busy));
}

static void try_rules(const an_decide_limits *limits, an_decide_lane *lane)
{
    double found, limit;
    for (int rule = 0; rule < AN_DECIDE_RULES; rule++) {
        if (!an_decide_numbers(lane, limits, (an_decide_rule)rule, &found, &limit)) continue;
        lane->fired[rule] = rule == AN_DECIDE_DATA ? found < limit && lane->busy < limits->busy : found > limit;
    }
    if (lane->accepted) lane->fired[AN_DECIDE_DRIFT] = false;
}

static bool is_clean(const an_decide_lane *lane)
{
    for (int rule = 0; rule < AN_DECIDE_RULES; rule++)
        if (lane->fired[rule]) return false;
    return true;
}

/* The fastest lane of those that are clean, or of the others; -1: there is none. */
static int fastest(const an_decision *d, int from, bool clean)
{
    int best = -1;
    for (int i = from; i < d->n; i++)
        if (is_clean(&d->lane[i]) == clean && (best < 0 || d->lane[i].ms < d->lane[best].ms)) best = i;
    return best;
}

/* A clean lane that is faster than the reference wins; else what is wrong with the fastest other lane is the answer. */
static void conclude(an_decision *d)
{
    static const an_decide_verdict of_rule[AN_DECIDE_RULES] = {AN_DECIDE_OTHER_HARDWARE, AN_DECIDE_RETAINED,
                                                               AN_DECIDE_DATA_FIRST};
    const int clean = fastest(d, 0, true), wrong = fastest(d, 1, false);
    d->verdict = AN_DECIDE_TRAIN;
    d->on = clean < 0 ? 0 : clean;
    if (clean > 0 || (clean == 0 && wrong < 0)) return;
    d->on = wrong < 0 ? 0 : wrong;
    for (int rule = AN_DECIDE_RULES - 1; rule >= 0; rule--)
        if (d->lane[d->on].fired[rule]) d->verdict = of_rule[rule];
}

an_status an_decide(an_err *err, const an_run_record *run, const char *const *dir, int n,
                    const an_decide_limits *limits, an_decision *out)
{
    *out = (an_decision){.n = n};
    if (n < 1 || n > AN_DECIDE_LANES)
        return an_fail(err, AN_E_USAGE, "decide: %d runs; 1 to %d are compared", n, AN_DECIDE_LANES);
    for (int i = 0; i < n; i++) {
        AN_TRY(measure(err, &run[i], dir[i], limits, &out->lane[i]));
        if (i) {
            AN_TRY(check_bucket(err, &run[0], &run[i], dir[0], dir[i]));
            out->lane[i].gain = 1 - out->lane[i].ms / out->lane[0].ms;
            measure_drift(&run[0], &run[i], limits, &out->lane[i]);
        }
        try_rules(limits, &out->lane[i]);
    }
    conclude(out);
    return AN_OK;
}

/* ---- texts */

const char *an_decide_rule_name(an_decide_rule rule)
{
    static const char *const names[AN_DECIDE_RULES] = {"drift", "memory", "data_and_batch"};
    return names[rule];
}

const char *an_decide_verdict_name(an_decide_verdict v)
{
    static const char *const names[] = {"train", "data_and_batch_first", "retained_tensors", "other_hardware"};
    return names[v];
}

void an_decide_json(const an_decision *d, const an_decide_limits *limits, an_text *out)
{
    an_text_printf(out, "\"verdict\":\"%s\",\"lane\":%d,\"lanes\":[", an_decide_verdict_name(d->verdict), d->on);
    for (int i = 0; i < d->n; i++) {
        const an_decide_lane *l = &d->lane[i];
        an_text_puts(out, i ? ",{\"device\":" : "{\"device\":");
        an_json_put(out, l->device);
        an_text_puts(out, ",\"host\":");
        an_json_put(out, l->host);
        an_json_put_number(out, "ms", l->ms);
        an_json_put_number(out, "units_per_s", l->units_per_s);
        an_json_put_number(out, "gpu_busy", l->busy);
        an_json_put_number(out, "first_step", (double)l->first_step);
        an_json_put_number(out, "last_step", (double)l->last_step);
        an_json_put_number(out, "first_epoch", l->first_epoch);
        an_json_put_number(out, "last_epoch", l->last_epoch);
        an_text_printf(out, ",\"accepted\":%s,\"rules\":[", l->accepted ? "true" : "false");
        for (int rule = 0; rule < AN_DECIDE_RULES; rule++) {
            double found, limit;
            const bool known = an_decide_numbers(l, limits, (an_decide_rule)rule, &found, &limit);
            an_text_printf(out, "%s{\"rule\":\"%s\",\"fired\":%s", rule ? "," : "",
                           an_decide_rule_name((an_decide_rule)rule), l->fired[rule] ? "true" : "false");
            an_json_put_number(out, "found", known ? found : (double)NAN);
            an_json_put_number(out, "limit", limit);
            an_text_puts(out, "}");
        }
        an_text_puts(out, "]}");
    }
    an_text_puts(out, "]");
}
