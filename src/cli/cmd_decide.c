/* cmd_decide.c: where to train, by the rules of report/decide.h over runs of the same settings on several lanes. */
#include "cli/decide_lanes.h"
#include "report/decide.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct decide_values {
    an_decide_limits limits;
    an_lane_values lanes;
} decide_values;

static const an_config_field fields[] = {
    AN_DECIDE_LIMIT_FIELDS(decide_values, limits),
    {"steps", AN_CONFIG_INT, offsetof(decide_values, lanes.steps), "60", 20, 1e6, NULL,
     "of a PRESET: updates that are trained on each device of this machine"},
    {"out", AN_CONFIG_TEXT, offsetof(decide_values, lanes.out), "decide", 0, 0, NULL,
     "of a PRESET: folder of these runs; a decision that was interrupted goes on in it"},
};
const an_config an_decide_keys = {.fields = fields, .n = AN_COUNT(fields)};

static void put_epochs(an_text *out, const an_decide_lane *l)
{
    an_text_printf(out, "updates %lld to %lld", (long long)l->first_step, (long long)l->last_step);
    if (isfinite(l->last_epoch)) an_text_printf(out, ", epochs %.3g to %.3g", l->first_epoch, l->last_epoch);
}

static void put_lane(an_text *out, const an_decision *d, int i, const char *dir)
{
    const an_decide_lane *l = &d->lane[i];
    an_text_printf(out, "lane %d    %s: %s in %s%s%s%s\n          %.4g ms an update, %.4g units/s", i + 1, dir,
                   *l->device ? l->device : "an unknown device", *l->dtype ? l->dtype : "an unknown dtype",
                   *l->host ? " on " : "", l->host, i ? "" : " (the reference)", l->ms, l->units_per_s);
    if (isfinite(l->busy)) an_text_printf(out, ", GPU busy %.0f %%", 100 * l->busy);
    an_text_puts(out, "; ");
    put_epochs(out, l);
    an_text_puts(out, "\n");
}

static const char *fired(const an_decide_lane *l, an_decide_rule rule)
{
    return l->fired[rule] ? "FIRES" : "holds";
}

/* The reference has nothing to drift from or to gain on. */
static void put_unknown(an_text *out, const char *rule, const char *why)
{
    an_text_printf(out, "  unknown %s: %s\n", rule, why);
}

static void put_rules(an_text *out, const an_decide_lane *l, const an_decide_limits *limits, bool reference)
{
    double found, limit;
    if (l->cpu_wait > AN_RUN_MUCH_CPU_WAIT)
        an_text_printf(out,
                       "  note    other programs used the processors: an update waited %.0f %% of its time for one, so "
                       "its time is not this "
                       "lane's alone; measure on a quiet machine\n",
                       100 * l->cpu_wait);
    if (!l->ended) an_text_puts(out, "  note    the run did not end: it was killed, or it trains still\n");
    if (an_decide_numbers(l, limits, AN_DECIDE_DRIFT, &found, &limit))
        an_text_printf(out, "  %s   drift: losses differ by %.3g (update %lld), allowed %.3g%s\n",
                       fired(l, AN_DECIDE_DRIFT), found, (long long)l->drift_step, limit,
                       l->accepted ? "; this difference was signed and accepted" : "");
    if (an_decide_numbers(l, limits, AN_DECIDE_MEMORY, &found, &limit)) {
        an_text_printf(out, "  %s   memory: %s %+.1f %%, allowed %.0f %%", fired(l, AN_DECIDE_MEMORY), l->growing,
                       100 * found, 100 * limit);
        if (isfinite(l->growth_epochs)) an_text_printf(out, "; over %.3g epochs", l->growth_epochs);
        an_text_puts(out, "\n");
    } else {
        put_unknown(out, "memory", "its metrics have no bytes");
    }
    if (an_decide_numbers(l, limits, AN_DECIDE_DATA, &found, &limit))
        an_text_printf(
            out, "  %s   data and batch: updates %+.1f %% faster, wanted %.0f %%; GPU busy %.1f %%, wanted %.0f %%\n",
            fired(l, AN_DECIDE_DATA), 100 * found, 100 * limit, 100 * l->busy, 100 * limits->busy);
    else if (!reference)
        an_text_printf(out,
                       "  unknown data and batch: updates %+.1f %% faster, wanted %.0f %%; how busy the device was is "
                       "not told\n",
                       100 * l->gain, 100 * limits->gain);
}

/* The verdict, and what would change it. */
static void put_verdict(an_text *out, const an_decision *d, const an_decide_limits *limits, const char *const *dir)
{
    const an_decide_lane *l = &d->lane[d->on];
    switch (d->verdict) {
    case AN_DECIDE_TRAIN:
        an_text_printf(out, "verdict   train on lane %d (%s)\nchanges   ", d->on + 1, l->device);
        if (d->n == 1)
            an_text_puts(out, "another lane: train the same settings on it, and name both runs");
        else
            an_text_printf(out, "a lane of less than %.4g ms an update for which no rule fires", l->ms);
        break;
    case AN_DECIDE_DATA_FIRST:
        an_text_printf(out,
                       "verdict   data and batch first: lane %d has too little to do\n"
                       "changes   less than %.4g ms an update, or a GPU busy for %.0f %%: anneal sweep, more workers, "
                       "anneal profile --data-only",
                       d->on + 1, (1 - limits->gain) * d->lane[0].ms, 100 * limits->busy);
        break;
    case AN_DECIDE_RETAINED:
        an_text_printf(
            out,
            "verdict   retained tensors: %s of lane %d grow (%s); train on a machine of its own until they are found\n"
            "changes   growth below %.0f %%: anneal diagnose %s, anneal plan %s/config.yaml show=memory",
            l->growing, d->on + 1, l->owner, 100 * limits->growth, dir[d->on], dir[d->on]);
        break;
    case AN_DECIDE_OTHER_HARDWARE:
        an_text_printf(
            out,
            "verdict   other hardware: use lane %d for preprocessing only, and train on another GPU or the "
            "reference's device\n"
            "changes   losses within %.3g, or the difference signed: anneal compare %s %s --accept NAME,REASON",
            d->on + 1, limits->tolerance, dir[0], dir[d->on]);
        break;
    }
}

/* MLX: only its time is known. */
static void put_timed(an_text *out, const an_lanes *l, const an_decision *d, bool json)
{
    const double units = an_run_units_an_update(&l->run[0]), speed = 1e3 * units / l->mlx.ms;
    if (json) an_text_puts(out, ",\"timed\":[");
    if (l->mlx.n > 0 && json) {
        an_text_puts(out, "{\"lane\":\"mlx\",\"on\":");
        an_json_put(out, l->mlx.on);
        an_text_printf(out, ",\"updates\":%d", l->mlx.n);
        an_put_json(out, "ms", l->mlx.ms);
        an_put_json(out, "units_per_s", speed);
        an_text_puts(out, "}");
    } else if (l->mlx.n > 0) {
        an_text_printf(
            out,
            "timed     mlx: %.4g ms an update, %.4g units/s, %.3g times the time of lane 1; %d updates after "
            "the first tenth, %s\n          the same shapes, weights and batches of its own: no rule applies to it\n",
            l->mlx.ms, speed, l->mlx.ms / d->lane[0].ms, l->mlx.n, l->mlx.on);
    }
    if (json) an_text_puts(out, "]");
}

static void put_left_out(an_text *out, const an_lanes *l, bool json)
{
    if (json) an_text_puts(out, ",\"left_out\":[");
    for (int i = 0; i < l->n_left_out; i++) {
        if (!json) {
            an_text_printf(out, "left out  %s: %s\n", l->left_out[i].name, l->left_out[i].why);
            continue;
        }
        an_text_printf(out, "%s{\"lane\":\"%s\",\"why\":", i ? "," : "", l->left_out[i].name);
        an_json_put(out, l->left_out[i].why);
        an_text_puts(out, "}");
    }
    if (json) an_text_puts(out, "]");
}

static an_status decide(an_err *err, const an_args *args, const decide_values *v, const an_lanes *l, an_text *out)
{
    const an_decide_limits *limits = &v->limits;
    an_decision d;
    AN_TRY(an_decide(err, l->run, l->name, l->n, limits, &d));
    if (args->json) {
        an_text_puts(out, "{");
        an_decide_json(&d, limits, out);
        put_timed(out, l, &d, true);
        put_left_out(out, l, true);
        an_text_puts(out, "}");
        return AN_OK;
    }
    for (int i = 0; i < d.n; i++) {
        put_lane(out, &d, i, l->name[i]);
        put_rules(out, &d.lane[i], limits, i == 0);
    }
    put_timed(out, l, &d, false);
    put_left_out(out, l, false);
    put_verdict(out, &d, limits, l->name);
    return AN_OK;
}

an_status an_cmd_decide(an_err *err, const an_args *args, int *exit_code)
{
    decide_values v;
    an_text out = {0};
    bool interrupted = false;
    AN_TRY(an_config_defaults(err, &an_decide_keys, &v));
    an_lanes *l = calloc(1, sizeof *l);
    if (!l) return an_fail_nomem(err, "lanes", sizeof *l);
    an_status status = an_lanes_are_measured(args)
                           ? an_lanes_measure(err, args, &an_decide_keys, &v, &v.lanes, l, &interrupted)
                           : an_lanes_read(err, args, &an_decide_keys, &v, l);
    if (status == AN_OK && interrupted) {
        an_say("interrupted: the same command goes on in %s", v.lanes.out);
        *exit_code = AN_EXIT_INTERRUPTED;
    } else if (status == AN_OK) {
        status = decide(err, args, &v, l, &out);
        if (status == AN_OK) status = an_print_line(err, &out);
    }
    an_lanes_free(l);
    an_text_free(&out);
    free(l);
    return status;
}
