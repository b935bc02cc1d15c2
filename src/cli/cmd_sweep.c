/* cmd_sweep.c: which batch size: trains some updates with each of a series, every one a run of its own in a folder, and
 * says where more adds little and what the memory admits.
 *
 * Invariant: a point is measured by `anneal train` itself, in a process of its own: with its loader, its metrics and its
 * memory. A point is not run again where its folder already has a complete run of these settings and this program. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "cli/measured_run.h"
#include "cli/progress_bar.h"
#include "io/formats/json.h"
#include "platform/platform.h"
#include "report/run_record.h"
#include "report/metrics.h"
#include "report/sweep.h"
#include "tools/bench_op.h"
#include "tools/estimate.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct sweep_values {
    int64_t from, steps;
    double minutes;
    char budget[AN_CONFIG_TEXT_BYTES], over[AN_CONFIG_TEXT_BYTES], out[AN_CONFIG_TEXT_BYTES];
} sweep_values;

#define AT(name) offsetof(sweep_values, name)
static const an_config_field fields[] = {
    {"from", AN_CONFIG_INT, AT(from), "1", 1, 1 << 20, NULL, "the first batch size; then its doubles"},
    {"steps", AN_CONFIG_INT, AT(steps), "12", 4, 100000, NULL, "updates of a point; the first two are not counted"},
    {"minutes", AN_CONFIG_FLOAT, AT(minutes), "10", 0.01, 1e5, NULL, "no point begins that would end later than this"},
    {"budget", AN_CONFIG_TEXT, AT(budget), "", 0, 0, NULL,
     "memory, as 16GiB; may be there several times; empty: what the machine has"},
    {"over", AN_CONFIG_TEXT, AT(over), "", 0, 0, NULL,
     "an axis, key=a,b: a sweep with each value; may be there several times"},
    {"out", AN_CONFIG_TEXT, AT(out), "sweep", 0, 0, NULL,
     "folder of the points, sweep.json and sweep.svg; a sweep that was interrupted goes on in it"},
};
const an_config an_sweep_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { MOST_AXES = 32, MOST_BUDGETS = 8, MOST_BATCH = 1 << 20, MOST_ARGUMENTS = AN_CLI_MAX_SETTINGS + 32 };

typedef struct answer {
    int axes, budget; /* indices */
    int64_t fits;     /* the largest batch by the planner */
    bool all_fit;     /* no larger batch was tried */
} answer;

typedef struct job {
    const an_args *args;
    sweep_values v;
    an_train_config base;
    char axes[MOST_AXES][AN_SWEEP_AXES_BYTES];
    int n_axes;
    uint64_t budget[MOST_BUDGETS]; /* 0: what the machine has */
    int n_budgets;
    answer answers[MOST_AXES * MOST_BUDGETS];
    int n_answers;
    double deadline;
    bool late;    /* a point was left out for want of time */
    an_roof roof; /* of this combination of axes; zeros: not measured */
    an_sweep sweep;
} job;

/* ---- arguments */

static bool is_own(const char *key)
{
    return an_config_find(&an_sweep_keys, key) != NULL;
}

/* Multiplies the combinations by the values of one axis, "key=a,b". */
static an_status add_axis(an_err *err, job *j, const char *text)
{
    const char *equals = strchr(text, '=');
    const int before = j->n_axes;
    char had[MOST_AXES][AN_SWEEP_AXES_BYTES];
    if (!equals || equals == text || !equals[1])
        return an_fail(err, AN_E_USAGE, "sweep: over=%.100s: as dtype=float32,bfloat16", text);
    if (text[strcspn(text, " \t")])
        return an_fail(err, AN_E_USAGE, "sweep: over=%.100s: a value cannot have a blank", text);
    memcpy(had, j->axes, sizeof had);
    j->n_axes = 0;
    for (int i = 0; i < before; i++)
        for (const char *at = equals + 1;; at++) {
            const size_t n = strcspn(at, ",");
            if (n == 0) return an_fail(err, AN_E_USAGE, "sweep: over=%.100s: a value is missing at a comma", text);
            if (j->n_axes == MOST_AXES)
                return an_fail(err, AN_E_USAGE, "sweep: more than %d combinations of over=", MOST_AXES);
            char *out = j->axes[j->n_axes++];
            if (snprintf(out, AN_SWEEP_AXES_BYTES, "%s%s%.*s%.*s", had[i], *had[i] ? " " : "", (int)(equals + 1 - text),
                         text, (int)n, at) >= AN_SWEEP_AXES_BYTES)
                return an_fail(err, AN_E_USAGE, "sweep: over=%.100s...: too long", text);
            at += n;
            if (!*at) break;
        }
    return AN_OK;
}

static an_status read_arguments(an_err *err, job *j)
{
    j->n_axes = 1; /* one combination, of no axes */
    for (size_t i = 0; i < j->args->n_settings; i++) {
        const an_setting *s = &j->args->settings[i];
        if (strcmp(s->key, "batch_size") == 0 || strcmp(s->key, "max_iters") == 0 || strcmp(s->key, "note") == 0 ||
            strcmp(s->key, "out_dir") == 0)
            return an_fail(err, AN_E_USAGE, "sweep: %s is the sweep's own; from=, steps= and out= are its settings",
                           s->key);
        if (strcmp(s->key, "over") == 0 && *s->value) AN_TRY(add_axis(err, j, s->value));
        if (strcmp(s->key, "budget") != 0 || !*s->value) continue;
        if (j->n_budgets == MOST_BUDGETS) return an_fail(err, AN_E_USAGE, "sweep: more than %d budgets", MOST_BUDGETS);
        AN_TRY(an_bytes_parse(err, "budget", s->value, &j->budget[j->n_budgets++]));
    }
    if (j->n_budgets == 0) j->budget[j->n_budgets++] = 0;
    return AN_OK;
}

/* The run's settings with one combination of axes, KEY=VALUE with a blank between two. */
static an_status settings_of(an_err *err, const job *j, const char *axes, an_train_config *out)
{
    char text[AN_SWEEP_AXES_BYTES];
    *out = j->base;
    out->budget = 0;
    out->batch_size = j->v.from;
    snprintf(text, sizeof text, "%s", axes);
    for (char *at = text, *end; *at; at = end) {
        end = at + strcspn(at, " ");
        if (*end) *end++ = 0;
        char *value = strchr(at, '=');
        *value++ = 0;
        const an_config keys = an_train_keys(out);
        if (is_own(at) || strcmp(at, "batch_size") == 0 || !an_config_find(&keys, at))
            return an_fail(err, AN_E_USAGE, "sweep: over=%.64s=...: no setting of this run that can be an axis", at);
        AN_TRY(an_config_set(err, &keys, out, "over", at, value));
    }
    return an_train_config_check(err, out);
}

/* ---- what fits, by the planner */

static an_status fit_one(an_err *err, const an_session *r, uint64_t budget, answer *a)
{
    an_estimate estimate;
    an_fit fit;
    an_limit limit = {.bytes = budget, .name = "the budget"};
    if (!budget) {
        AN_TRY(an_estimate_settings(err, &r->cfg, r->data, &estimate));
        limit.bytes =
            estimate.device_limit_bytes && !estimate.device_shares ? estimate.device_limit_bytes : an_memory_bytes();
        limit.part = estimate.device_limit_bytes && !estimate.device_shares ? AN_ESTIMATE_DEVICE : AN_ESTIMATE_ALL;
    }
    AN_TRY(an_fit_batch(err, &r->cfg, r->data, &limit, strcmp(r->cfg.recompute, "on") == 0, &fit));
    a->fits = fit.batch_size;
    a->all_fit = fit.batch_size > 0 && fit.next_bytes == 0;
    return AN_OK;
}

/* The answers of one combination, without their speeds; *most: the largest batch of any budget. */
static an_status fit_axes(an_err *err, job *j, int axes, int64_t *most)
{
    an_train_config c;
    an_session *r;
    *most = 0;
    AN_TRY(settings_of(err, j, j->axes[axes], &c));
    AN_TRY(an_session_open(err, &c, NULL, AN_RUN_DATA, &r));
    an_status status = an_task_check(err, c.task, r->data);
    for (int i = 0; i < j->n_budgets && status == AN_OK; i++) {
        answer *a = &j->answers[j->n_answers++];
        *a = (answer){.axes = axes, .budget = i};
        status = fit_one(err, r, j->budget[i], a);
        *most = AN_MAX(*most, a->fits);
    }
    an_session_close(r);
    return status;
}

/* ---- a point */

typedef struct arguments {
    const char *argv[MOST_ARGUMENTS];
    char text[24][AN_CONFIG_TEXT_BYTES + 32];
    char axes[AN_SWEEP_AXES_BYTES];
    char setting[AN_CLI_MAX_SETTINGS][64 + AN_CONFIG_TEXT_BYTES];
    int n, n_text;
} arguments;

__attribute__((format(printf, 2, 3))) static void add_argument(arguments *a, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(a->text[a->n_text], sizeof a->text[0], format, values);
    va_end(values);
    a->argv[a->n++] = a->text[a->n_text++];
}

/* Writes what a point's run is made of. It is the run's note, so that a later sweep recognises the run. */
static void describe(const job *j, const an_sweep_point *p, char out[AN_CONFIG_TEXT_BYTES])
{
    int n = snprintf(out, AN_CONFIG_TEXT_BYTES, "sweep: %s %s steps=%lld", j->args->words[0], p->axes,
                     (long long)j->v.steps);
    for (size_t i = 0; i < j->args->n_settings && n < AN_CONFIG_TEXT_BYTES; i++)
        if (!is_own(j->args->settings[i].key))
            n += snprintf(out + n, (size_t)(AN_CONFIG_TEXT_BYTES - n), " %s=%s", j->args->settings[i].key,
                          j->args->settings[i].value);
    if (n >= AN_CONFIG_TEXT_BYTES) out[0] = 0; /* too long for the note by which a later call finds this run */
}

static void build_arguments(const job *j, const an_sweep_point *p, const char *dir, const char *note, arguments *a)
{
    a->n = a->n_text = 0;
    a->argv[a->n++] = an_measured_program();
    a->argv[a->n++] = "train";
    a->argv[a->n++] = j->args->words[0];
    for (size_t i = 0; i < j->args->n_settings; i++) {
        const an_setting *s = &j->args->settings[i];
        if (is_own(s->key)) continue;
        snprintf(a->setting[i], sizeof a->setting[i], "%s=%s", s->key, s->value);
        a->argv[a->n++] = a->setting[i];
    }
    snprintf(a->axes, sizeof a->axes, "%s", p->axes);
    for (char *at = a->axes, *end; *at && a->n < MOST_ARGUMENTS - 16; at = end) {
        end = at + strcspn(at, " ");
        if (*end) *end++ = 0;
        a->argv[a->n++] = at;
    }
    add_argument(a, "batch_size=%lld", (long long)p->batch);
    add_argument(a, "max_iters=%lld", (long long)j->v.steps);
    add_argument(a, "out=%s", dir);
    add_argument(a, "note=%s", note);
    a->argv[a->n++] = "log_interval=1";
    a->argv[a->n++] = "eval_interval=1000000000";
    a->argv[a->n++] = "eval_iters=1";
    a->argv[a->n++] = "keep=0";
    a->argv[a->n++] = "--quiet";
    a->argv[a->n] = NULL;
}

static void point_folder(const job *j, const an_sweep_point *p, char out[AN_CKPT_PATH_BYTES])
{
    char name[AN_SWEEP_AXES_BYTES];
    snprintf(name, sizeof name, "%s", p->axes);
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *c)) *c = '-';
    snprintf(out, AN_CKPT_PATH_BYTES, "%.500s/%s%sbatch-%lld%s", j->v.out, name, *name ? "-" : "", (long long)p->batch,
             p->again ? "-again" : "");
}

/* "sweep, batch 64": what its line of progress is about; the time that is left is the point's. */
static const char *point_name(const an_sweep_point *p, char out[32])
{
    snprintf(out, 32, "batch %lld:", (long long)p->batch);
    return out;
}

/* Which of the update's launches are limited by arithmetic and which by bandwidth: their work and bytes are the plan's,
 * what the machine can do was measured. Where that was not measured, the point is listed without it. */
static void add_roofline(const job *j, an_sweep_point *p)
{
    an_err unused = {0};
    an_train_config c;
    an_session *r;
    an_estimate estimate;
    an_launch l;
    if (!(j->roof.gflops > 0 && j->roof.gbytes > 0) || settings_of(&unused, j, p->axes, &c) != AN_OK) return;
    c.batch_size = p->batch;
    if (an_session_open(&unused, &c, NULL, AN_RUN_DATA, &r) != AN_OK) return;
    if (an_estimate_run(&unused, r, &estimate) == AN_OK)
        for (int i = 0; an_planned_launch_get(r->cx, i, &l); i++) {
            const double compute = 1e-6 * (double)l.flops / j->roof.gflops,
                         move = 1e-6 * (double)l.bytes / j->roof.gbytes;
            *(compute >= move ? &p->arithmetic_ms : &p->bandwidth_ms) += fmax(compute, move);
        }
    an_session_close(r);
}

/* A failure that the point's own run had is the point's; `err` is for what ends the sweep. */
static an_status run_point(an_err *err, job *j, an_sweep_point *p)
{
    char dir[AN_CKPT_PATH_BYTES], note[AN_CONFIG_TEXT_BYTES], output[8192], name[32];
    int code;
    point_folder(j, p, dir);
    describe(j, p, note);
    if (!an_measured_is_there(dir, note)) {
        arguments *a = malloc(sizeof *a);
        if (!a) return an_fail_nomem(err, "a point's arguments", sizeof *a);
        build_arguments(j, p, dir, note, a);
        const double most_s = AN_MAX(60, 4 * (j->deadline - an_seconds()));
        an_bar_run run = {dir, 0, j->v.steps};
        an_bar *bar = an_bar_open(j->args, point_name(p, name), "updates", an_bar_probe_run, &run);
        an_status status = an_spawn(err, a->argv, most_s, output, sizeof output, &code);
        an_bar_close(bar);
        free(a);
        AN_TRY(status);
        an_measured_forget_weights(dir);
        if (code != 0) {
            an_measured_sentence(output, p->why);
            return AN_OK;
        }
    }
    an_err why = {0};
    if (an_sweep_read(&why, dir, p) != AN_OK) snprintf(p->why, sizeof p->why, "%.200s", why.text);
    return AN_OK;
}

/* Puts the point at its place: after those of its axes with a smaller batch. */
static an_sweep_point *insert(an_sweep *s, const an_sweep_point *p)
{
    int at = s->n;
    while (at > 0 && strcmp(s->point[at - 1].axes, p->axes) == 0 && s->point[at - 1].batch > p->batch) at--;
    memmove(&s->point[at + 1], &s->point[at], (size_t)(s->n - at) * sizeof *p);
    s->point[at] = *p;
    s->n++;
    return &s->point[at];
}

static const an_sweep_point *find_point(const an_sweep *s, const char *axes, int64_t batch)
{
    for (int i = 0; i < s->n; i++)
        if (s->point[i].batch == batch && strcmp(s->point[i].axes, axes) == 0) return &s->point[i];
    return NULL;
}

/* *out is NULL where the sweep is to end: it was interrupted, or is full. */
static an_status measure(an_err *err, job *j, const char *axes, int64_t batch, const an_sweep_point **out)
{
    an_sweep_point p = {.batch = batch};
    *out = NULL;
    snprintf(p.axes, sizeof p.axes, "%s", axes);
    snprintf(p.unit, sizeof p.unit, "%s", j->base.task->unit);
    if (j->sweep.n == AN_SWEEP_POINTS) return AN_OK;
    an_status status = run_point(err, j, &p);
    if (an_interrupt_seen(NULL)) return an_err_clear(err), AN_OK;
    AN_TRY(status);
    if (!j->args->quiet && p.ran)
        an_say("%s%sbatch %lld: %.5g %ss/s, %.4g ms an update", axes, *axes ? " " : "", (long long)batch, p.units_per_s,
               p.unit, p.ms);
    if (!j->args->quiet && !p.ran) an_say("%s%sbatch %lld: %s", axes, *axes ? " " : "", (long long)batch, p.why);
    *out = insert(&j->sweep, &p);
    return AN_OK;
}

/* Whether a point of so many samples would end in time, by the speed of the one before; its start is a guess. */
static bool has_time(job *j, const an_sweep_point *before, int64_t batch)
{
    double s = 1;
    if (before) s += 1e-3 * before->ms * (double)batch / (double)before->batch * (double)(j->v.steps + 1);
    if (an_seconds() + s <= j->deadline) return true;
    j->late = true;
    return false;
}

/* ---- a combination of axes */

/* Doubles up to `most`, or until two doublings in turn gained little. */
static an_status double_batch(an_err *err, job *j, const char *axes, int64_t most, const an_sweep_point **last_out)
{
    double speed = 0;
    int flat = 0;
    *last_out = NULL;
    for (int64_t batch = j->v.from; batch <= most && flat < 2 && has_time(j, *last_out, batch); batch *= 2) {
        const an_sweep_point *p;
        AN_TRY(measure(err, j, axes, batch, &p));
        if (!p || !p->ran) return AN_OK;
        flat = speed > 0 && p->units_per_s < AN_SWEEP_GAIN * speed ? flat + 1 : 0;
        speed = p->units_per_s;
        *last_out = p;
    }
    return AN_OK;
}

/* The middle below the knee, and the largest batch that fits, where time is left. */
static an_status refine(an_err *err, job *j, const char *axes, int64_t most, int64_t last_batch)
{
    const an_sweep_point *fastest, *p, *last = find_point(&j->sweep, axes, last_batch);
    const an_sweep_point *knee = an_sweep_knee(&j->sweep, axes, 0, &fastest);
    const int64_t middle = knee ? knee->batch / 2 + knee->batch / 4 : 0;
    if (knee && knee->batch >= 4 && find_point(&j->sweep, axes, knee->batch / 2) && has_time(j, knee, middle))
        AN_TRY(measure(err, j, axes, middle, &p));
    if (an_interrupt_seen(NULL) || knee || !last || find_point(&j->sweep, axes, most) || most < j->v.from) return AN_OK;
    return has_time(j, last, most) ? measure(err, j, axes, most, &p) : AN_OK;
}

/* A smaller batch that takes longer than a larger one did so beside other load, most likely: it is measured once more, in a
 * folder of its own, and the faster of both counts. */
static an_status repeat_contradicted(an_err *err, job *j, const char *axes)
{
    an_sweep_point *p;
    while (!an_interrupt_seen(NULL) && (p = an_sweep_contradicted(&j->sweep, axes, 0, false)) &&
           has_time(j, p, p->batch)) {
        an_sweep_point second = {.batch = p->batch, .again = true};
        memcpy(second.axes, p->axes, sizeof second.axes);
        memcpy(second.unit, p->unit, sizeof second.unit);
        an_status status = run_point(err, j, &second);
        if (an_interrupt_seen(NULL)) return an_err_clear(err), AN_OK;
        AN_TRY(status);
        p->again = true;
        if (!second.ran) continue;
        if (!j->args->quiet)
            an_say("%s%sbatch %lld again: a larger one took less time an update; %.4g ms, %.4g before", axes,
                   *axes ? " " : "", (long long)p->batch, second.ms, p->ms);
        if (second.ms < p->ms) *p = second;
    }
    return AN_OK;
}

/* For the points with these axes, when all of them ran: their time is not the roof's. Without a roof a point's limit is
 * not told apart: that ends no sweep. */
static void add_rooflines(job *j, int axes)
{
    an_err unused = {0};
    an_train_config c;
    if (an_interrupt_seen(NULL) || settings_of(&unused, j, j->axes[axes], &c) != AN_OK ||
        an_bench_roof(&unused, &c, &j->roof) != AN_OK)
        return;
    for (int i = 0; i < j->sweep.n; i++)
        if (j->sweep.point[i].ran && strcmp(j->sweep.point[i].axes, j->axes[axes]) == 0)
            add_roofline(j, &j->sweep.point[i]);
}

static an_status sweep_axes(an_err *err, job *j, int axes)
{
    int64_t most;
    const an_sweep_point *last;
    AN_TRY(fit_axes(err, j, axes, &most));
    most = AN_MIN(most, MOST_BATCH);
    AN_TRY(double_batch(err, j, j->axes[axes], most, &last));
    if (an_interrupt_seen(NULL) || !last) return AN_OK;
    const int64_t last_batch = last->batch;
    AN_TRY(repeat_contradicted(err, j, j->axes[axes]));
    AN_TRY(refine(err, j, j->axes[axes], most, last_batch));
    AN_TRY(repeat_contradicted(err, j, j->axes[axes]));
    add_rooflines(j, axes);
    return AN_OK;
}

/* ---- answers */

static void put_answer(job *j, const answer *a, bool json, an_text *out)
{
    const an_sweep_point *fastest;
    const char *axes = j->axes[a->axes];
    const an_sweep_point *knee = a->fits > 0 ? an_sweep_knee(&j->sweep, axes, a->fits, &fastest) : (fastest = NULL);
    const an_sweep_point *disturbed = an_sweep_most_disturbed(&j->sweep, axes, a->fits);
    char bytes[16];
    if (json) {
        an_text_puts(out, "{\"axes\":");
        an_json_put(out, axes);
        an_text_printf(out, ",\"budget_bytes\":%llu,\"largest_fit\":%lld,\"larger_untried\":%s",
                       (unsigned long long)j->budget[a->budget], (long long)a->fits, a->all_fit ? "true" : "false");
        an_put_json(out, "knee", knee ? (double)knee->batch : NAN);
        an_put_json(out, "fastest", fastest ? (double)fastest->batch : NAN);
        an_put_json(out, "cpu_wait_share", disturbed ? disturbed->cpu_wait_share : NAN);
        an_text_printf(out, ",\"limited_by\":\"%s\"}", fastest ? an_sweep_limit(fastest) : "unknown");
        return;
    }
    an_text_printf(out, "%s%s%s: ", axes, *axes ? ", " : "",
                   j->budget[a->budget] ? an_bytes_text((double)j->budget[a->budget], bytes) : "this machine");
    if (knee)
        an_text_printf(out, "the knee is batch_size=%lld, %.5g %ss/s: twice as many add less than 5 %% (%s)",
                       (long long)knee->batch, knee->units_per_s, knee->unit, an_sweep_limit(knee));
    else if (fastest)
        an_text_printf(out, "no knee up to batch_size=%lld, the fastest: %.5g %ss/s", (long long)fastest->batch,
                       fastest->units_per_s, fastest->unit);
    else
        an_text_puts(out, "nothing was measured");
    if (a->fits > 0)
        an_text_printf(out, "; the largest that fits by the plan: %lld%s\n", (long long)a->fits,
                       a->all_fit ? ", and more were not tried" : "");
    else
        an_text_puts(out, "; not one sample fits\n");
    const an_sweep_point *slow = an_sweep_contradicted(&j->sweep, axes, a->fits, true);
    if (slow)
        an_text_printf(
            out,
            "  not certain: with batch_size=%lld an update takes longer than with batch_size=%lld, also when "
            "measured again\n",
            (long long)slow->batch, (long long)an_sweep_contradicts(&j->sweep, slow)->batch);
    if (disturbed)
        an_text_printf(
            out,
            "  not certain: other programs used the processors; with batch_size=%lld an update waited %.0f %% of its "
            "time for one. anneal top names them; the same command with another out= measures again\n",
            (long long)disturbed->batch, 100 * disturbed->cpu_wait_share);
}

static void put_json(job *j, an_text *out)
{
    char host[256];
    an_logbook_host(host);
    if (an_json_check_text(NULL, "", host) != AN_OK) snprintf(host, sizeof host, "unknown");
    an_text_puts(out, "{\"preset\":");
    an_json_put(out, j->base.preset);
    an_text_puts(out, ",\"device\":");
    an_json_put(out, an_cli_device(j->base.device));
    an_text_puts(out, ",\"host\":");
    an_json_put(out, host);
    an_text_puts(out, ",\"commit\":");
    an_json_put(out, an_commit);
    an_text_printf(out, ",\"workers\":%lld,\"threads\":%lld,\"steps\":%lld,\"interrupted\":%s,\"out_of_time\":%s,",
                   (long long)j->base.workers, (long long)j->base.threads, (long long)j->v.steps,
                   an_interrupt_seen(NULL) ? "true" : "false", j->late ? "true" : "false");
    an_text_puts(out, "\"points\":");
    an_sweep_json(&j->sweep, out);
    an_text_puts(out, ",\"answers\":[");
    for (int i = 0; i < j->n_answers; i++) {
        if (i) an_text_puts(out, ",");
        put_answer(j, &j->answers[i], true, out);
    }
    an_text_puts(out, "]}");
}

static an_status save(an_err *err, const job *j, const char *name, const an_text *text)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%.500s/%s", j->v.out, name);
    if (text->failed) return an_fail_nomem(err, path, text->len);
    return text->len ? an_file_write(err, path, text->data, text->len) : AN_OK;
}

static an_status finish(an_err *err, job *j)
{
    an_text json = {0}, svg = {0}, table = {0};
    char title[AN_CONFIG_TEXT_BYTES + 64];
    snprintf(title, sizeof title, "%s on %s", j->base.preset, an_cli_device(j->base.device));
    put_json(j, &json);
    an_sweep_svg(&j->sweep, title, &svg);
    an_status status = an_make_dirs(err, j->v.out, 0777);
    if (status == AN_OK) status = save(err, j, "sweep.json", &json);
    if (status == AN_OK) status = save(err, j, "sweep.svg", &svg);
    an_text_free(&svg);
    if (status == AN_OK && j->args->json) return an_print_line(err, &json);
    an_text_free(&json);
    AN_TRY(status);
    an_sweep_table(&j->sweep, &table);
    for (int i = 0; i < j->n_answers; i++) put_answer(j, &j->answers[i], false, &table);
    an_text_printf(&table,
                   "fixed: workers=%lld, threads=%lld (0: every core), %lld updates a point, the first two left out\n",
                   (long long)j->base.workers, (long long)j->base.threads, (long long)j->v.steps);
    if (j->late) an_text_puts(&table, "points were left out for want of time: more with minutes=\n");
    an_text_printf(&table, "in %s: sweep.json, sweep.svg, and a run's folder a point", j->v.out);
    return an_print_line(err, &table);
}

static an_status sweep(an_err *err, job *j, int *exit_code)
{
    AN_TRY(an_train_config_open(err, j->args->words[0], &j->base));
    AN_TRY(an_config_defaults(err, &an_sweep_keys, &j->v));
    AN_TRY(an_args_apply_run(err, j->args, &an_sweep_keys, &j->v, &j->base));
    AN_TRY(read_arguments(err, j));
    if (strlen(j->v.out) > 400 || !*j->v.out) return an_fail(err, AN_E_USAGE, "sweep: out= names no usable folder");
    for (int i = 0; i < j->n_axes; i++) {
        an_train_config unused;
        AN_TRY(settings_of(err, j, j->axes[i], &unused));
    }
    an_interrupt_catch();
    const double begin = an_seconds();
    for (int i = 0; i < j->n_axes && !an_interrupt_seen(NULL); i++) {
        j->deadline = begin + 60 * j->v.minutes * (i + 1) / j->n_axes; /* each combination has its share */
        AN_TRY(sweep_axes(err, j, i));
    }
    if (an_interrupt_seen(NULL)) {
        *exit_code = AN_EXIT_INTERRUPTED;
        an_say("interrupted: the same command goes on in %s", j->v.out);
    }
    return finish(err, j);
}

an_status an_cmd_sweep(an_err *err, const an_args *args, int *exit_code)
{
    job *j = calloc(1, sizeof *j);
    if (!j) return an_fail_nomem(err, "a sweep", sizeof *j);
    j->args = args;
    an_status status = sweep(err, j, exit_code);
    free(j);
    return status;
}
