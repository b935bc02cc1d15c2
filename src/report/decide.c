/* decide.c: takes each lane's figures from its window, applies the rules, concludes. See decide.h. */
#include "report/decide.h"
#include "report/memory_growth.h"
#include "report/compare.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct limits_alone {
    an_decide_limits limits;
} limits_alone;
static const an_config_field fields[] = {AN_DECIDE_LIMIT_FIELDS(limits_alone, limits)};
const an_config an_decide_limit_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* ---- the lanes must compute the same updates */

/* Settings that change where, how fast or how long a run computes, and not what an update computes. */
static bool may_differ(const char *key)
{
    static const char *const keys[] = {"out",
                                       "out_dir",
                                       "note",
                                       "workers",
                                       "max_iters",
                                       "eval_interval",
                                       "min_eval_interval",
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
                                       "place",
                                       "epochs",
                                       "shard",
                                       "overlap",
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
    static const char *const hashes[] = {"train_xxh3", "val_xxh3"};
    for (size_t i = 0; i < AN_COUNT(hashes); i++) {
        const char *first = an_run_text(a->begin, hashes[i]), *second = an_run_text(b->begin, hashes[i]);
        if (*first && *second && strcmp(first, second) != 0)
            return an_fail(err, AN_E_USAGE,
                           "%s and %s: the lanes of a decision share one input bucket, but their data differ (%s in "
                           "the logbooks); train both on the same",
                           dir_a, dir_b, hashes[i]);
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

/* Growth of memory within the first limits->epochs epochs: the median of the last tenth of their lines over that of the
 * second tenth. */
static void measure_growth(const an_run_record *r, double epochs_a_step, const an_decide_limits *limits,
                           an_decide_lane *lane)
{
    size_t n = r->n;
    while (n > AN_DECIDE_LINES && epochs_a_step > 0 && (double)r->update[n - 1].step * epochs_a_step > limits->epochs)
        n--;
    lane->growth = NAN;
    lane->growing = "memory";
    lane->growth_epochs = n ? (double)r->update[n - 1].step * epochs_a_step : NAN;
    static const char *const names[AN_MEMORY_KINDS] = {
        [AN_MEMORY_LIVE] = "live bytes", [AN_MEMORY_RESIDENT] = "resident bytes"};
    double grown = NAN;
    an_memory_kind kind = AN_MEMORY_LIVE;
    for (an_memory_kind k = 0; k < AN_MEMORY_KINDS; k++) {
        double early, late;
        an_memory_growth_of(r, n, k, &early, &late);
        const double growth = late / early - 1;
        if (!names[k] || !(early > 0) || !isfinite(growth)) continue;
        if (growth <= (isfinite(lane->growth) ? lane->growth : -2)) continue;
        lane->growth = growth;
        lane->growing = names[k];
        kind = k;
        grown = late - early;
    }
    if (grown > 0) an_memory_growth_owner(r, kind, grown, lane->owner);
}

/* Whether the run's loss at this update is `loss`, up to the digits that the logbook and metrics.jsonl print. */
static bool is_loss_at(const an_run_record *r, int64_t step, double loss)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->update[i].step == step) return fabs(r->update[i].at[AN_RUN_LOSS] - loss) <= 1e-7 * fabs(loss);
    return false;
}

/* Whether a line "accepted" of the lane's logbook (anneal compare) covers its difference from this reference: the line's
 * worst losses are those of the two runs, and over the updates that it covers no loss differs by more than it says. */
static bool signs(const json_t *line, const an_run_record *reference, const an_run_record *r)
{
    an_err quiet = {0};
    an_comparison c;
    const json_t *row = json_array_get(json_object_get(line, "rows"), 0);
    const double worst = an_run_number(row, "worst"), updates = an_run_number(line, "updates"),
                 step = an_run_number(row, "worst_step");
    if (strcmp(an_run_text(line, "event"), "accepted") != 0 || strcmp(an_run_text(row, "name"), "loss") != 0)
        return false;
    if (!(worst >= 0) || !(updates >= 0 && updates < 9e15) || !(step >= -1 && step < 9e15)) return false;
    if (!is_loss_at(reference, (int64_t)step, an_run_number(row, "a"))) return false;
    if (!is_loss_at(r, (int64_t)step, an_run_number(row, "b"))) return false;
    const an_tolerances t = {
        .loss = worst * (1 + 1e-6), .val_loss = INFINITY, .grad_norm = INFINITY, .updates = (int64_t)updates};
    return an_compare_runs(&quiet, reference, r, &t, &c) == AN_OK && c.row[0].beyond_step < 0;
}

static an_status measure_drift(an_err *err, const an_run_record *reference, const an_run_record *r,
                               const char *const dir[2], const an_decide_limits *limits, an_decide_lane *lane)
{
    an_comparison c;
    an_err why = {0};
    const an_tolerances t = {.loss = limits->tolerance, .val_loss = INFINITY, .grad_norm = INFINITY};
    if (an_compare_runs(&why, reference, r, &t, &c) != AN_OK)
        return an_fail(err, AN_E_DATA, "%s and %s: cannot be compared for drift: %s", dir[0], dir[1], why.text);
    lane->drift = c.row[0].worst;
    lane->drift_step = c.row[0].worst_step;
    size_t i;
    json_t *note;
    json_array_foreach(r->notes, i, note) lane->accepted |= signs(note, reference, r);
    return AN_OK;
}

static an_status measure(an_err *err, const an_run_record *r, const char *dir, const an_decide_limits *limits,
                         an_decide_lane *lane)
{
    if (r->n < AN_DECIDE_LINES)
        return an_fail(err, AN_E_DATA,
                       "%s: %zu lines of metrics; a lane needs %d: train longer, or with log_interval=1", dir, r->n,
                       AN_DECIDE_LINES);
    if (strcmp(an_run_text(r->end, "event"), "failed") == 0)
        return an_fail(err, AN_E_DATA,
                       "%s: this run failed, so it cannot be a lane: anneal diagnose %s says why; "
                       "resume it to its end, or leave it out",
                       dir, dir);
    const size_t first = r->n / 10 + 1;
    *lane = (an_decide_lane){.gain = NAN, .drift = NAN};
    snprintf(lane->device, sizeof lane->device, "%.*s", (int)strcspn(an_run_text(r->begin, "device"), ":;\n"),
             an_run_text(r->begin, "device"));
    snprintf(lane->host, sizeof lane->host, "%.60s", an_run_text(r->begin, "host"));
    an_run_setting(r, "dtype", lane->dtype);
    an_text_printable(lane->device, strlen(lane->device));
    an_text_printable(lane->host, strlen(lane->host));
    lane->ended = r->end != NULL;
    lane->ms = an_run_median(r, AN_RUN_MS, first, r->n);
    lane->units_per_s = an_run_median(r, AN_RUN_UNITS_PER_S, first, r->n);
    lane->busy = an_run_median(r, AN_RUN_GPU_BUSY, first, r->n);
    lane->cpu_wait = an_run_wait_share(r, AN_RUN_CPU_WAIT_MS, first, r->n);
    lane->first_step = r->update[first].step;
    lane->last_step = r->update[r->n - 1].step;
    const double epochs_a_step = an_run_units_an_update(r) / train_units(r);
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
            AN_TRY(measure_drift(err, &run[0], &run[i], (const char *const[]){dir[0], dir[i]}, limits, &out->lane[i]));
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
        an_json_put_number(out, "cpu_wait_share", l->cpu_wait);
        an_json_put_number(out, "first_step", (double)l->first_step);
        an_json_put_number(out, "last_step", (double)l->last_step);
        an_json_put_number(out, "first_epoch", l->first_epoch);
        an_json_put_number(out, "last_epoch", l->last_epoch);
        an_text_puts(out, ",\"growing\":");
        an_json_put(out, l->growing);
        an_text_puts(out, ",\"growth_owner\":");
        an_json_put(out, l->owner);
        an_text_printf(out, ",\"accepted\":%s,\"ended\":%s,\"rules\":[", l->accepted ? "true" : "false",
                       l->ended ? "true" : "false");
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
