/* diagnose.c: see diagnose.h. The table of rules is at the end; a rule's check returns false, or true after it has set
 * the evidence and the fix.
 *
 * To add a rule: a check, a row, and in tests/unit/test_diagnose.c a run that it fires on and one that it does not. */
#include "report/diagnose.h"
#include "io/text/utf8.h"
#include "report/memory_growth.h"
#include "report/profile_diff.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0

/* Thresholds. Shares are of the time of the updates unless they say otherwise. */
#define MEMORY_SHARE  0.9 /* of what this process may use */
#define SWAP_BYTES    (256 * MIB)
#define CLIFF         1.3 /* median time of the last third against that of the first */
#define SWING         2.0 /* 90th percentile of the times against their median */
#define WAIT_SHARE    0.1
#define NETWORK_SHARE 0.05
#define SAVE_SHARE    0.1 /* of the run */
#define EVAL_SHARE    0.5 /* of the run */
#define IDLE_SHARE    0.5
#define LAUNCH_US     4.0  /* a GPU's time for a launch with little work: 2.3 us in a replayed graph of an H200 */
#define LOST_SHARE    0.25 /* of what the loss had gained */
#define SLOW_TIME     0.4  /* of the time of all launches, in one operation */
#define SLOW_ROOF     0.25 /* of what the machine can do, in that operation */
#define MOVE_TIME     0.3  /* of the time of all launches, in those that compute nothing */
#define LEAST_GAIN    1.2  /* times as fast as the reference */

/* The times of the updates without the first line, which plans and compiles. */
typedef struct times {
    size_t n;
    double seconds; /* all updates together */
    double median, p90, median_first, p75_first, median_last, p25_last;
    double wait_share, cpu_wait_share; /* waiting for data; for a processor that others used (NaN: unknown) */
    bool judged;                       /* long enough to be judged */
} times;

typedef struct inquiry {
    const char *dir;
    const an_run_record *r;
    bool running;
    times t;
    an_diagnose_beside beside;
    an_profile_diff ops; /* of the profile; n = 0: there is none */
    an_finding *out;
} inquiry;

/* ---- what the checks use */

/* Replaces control characters and bytes that are not UTF-8 (paths, texts of a file that were cut) by '?', and cuts the text
 * at its first newline. */
static void make_printable(char *text)
{
    uint32_t c;
    for (size_t n = strlen(text), at = 0; at < n;) {
        const int len = an_utf8_next(text + at, n - at, &c);
        if (len == 0) text[at] = '?';
        at += (size_t)AN_MAX(len, 1);
    }
    an_text_printable(text, strlen(text));
    text[strcspn(text, "\n")] = 0;
}

__attribute__((format(printf, 2, 3))) static bool evidence(const inquiry *q, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(q->out->evidence, sizeof q->out->evidence, format, arguments);
    va_end(arguments);
    make_printable(q->out->evidence);
    return true;
}

__attribute__((format(printf, 2, 3))) static void fix(const inquiry *q, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(q->out->fix, sizeof q->out->fix, format, arguments);
    va_end(arguments);
    make_printable(q->out->fix);
}

/* The run again with one setting changed. */
__attribute__((format(printf, 2, 3))) static void fix_setting(const inquiry *q, const char *format, ...)
{
    char settings[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(settings, sizeof settings, format, arguments);
    va_end(arguments);
    fix(q, "anneal train %.300s/config.yaml out=NEW %s", q->dir, settings);
}

static double setting(const inquiry *q, const char *key)
{
    return an_run_number(an_run_settings(q->r), key);
}

/* Half the batch, twice the micro-batches: the same updates in less memory. */
static void fix_smaller_batch(const inquiry *q)
{
    const double batch = setting(q, "batch_size"), micros = setting(q, "gradient_accumulation_steps");
    if (batch >= 2 && batch < 1e9 && fmod(batch, 2) == 0 && micros >= 1 && micros < 1e9)
        fix_setting(q, "batch_size=%.0f gradient_accumulation_steps=%.0f", batch / 2, 2 * micros);
    else
        fix_setting(q, "recompute=on");
}

static const json_t *facts(const inquiry *q)
{
    return json_object_get(q->r->begin, "facts");
}

/* The first sentence of the machine's log that has one of these words; NULL: none has. */
static const char *machine_said(const inquiry *q, const char *const *words)
{
    size_t i;
    json_t *line;
    json_array_foreach(q->r->machine, i, line)
    {
        const char *what = an_run_text(line, "what");
        for (const char *const *w = words; *w; w++)
            if (strstr(what, *w)) return what;
    }
    return NULL;
}

static const char *const heat_words[] = {"slowed down", NULL};
static const char *const power_words[] = {"from the battery", "low-power mode is on", NULL};
static const char *const shared_words[] = {"programs compute on the GPU", NULL};
static const char *const memory_words[] = {"swap has grown", "waited for memory", NULL};

/* The first and the highest finite number of a column; NaN: it has none. */
static void range_of(const an_run_record *r, an_run_column column, double *first, double *most)
{
    *first = *most = NAN;
    for (size_t i = 0; i < r->n; i++) {
        const double v = r->update[i].at[column];
        if (!isfinite(v)) continue;
        if (isnan(*first)) *first = v;
        *most = fmax(*most, v);
    }
}

/* The mean of the finite losses of updates first .. last - 1, and their standard deviation. */
static double mean_loss(const an_run_record *r, size_t first, size_t last, double *deviation)
{
    double n = 0, sum = 0, squares = 0;
    for (size_t i = first; i < last; i++)
        if (isfinite(r->update[i].at[AN_RUN_LOSS])) n++, sum += r->update[i].at[AN_RUN_LOSS];
    const double mean = sum / n;
    for (size_t i = first; i < last; i++) {
        const double d = r->update[i].at[AN_RUN_LOSS] - mean;
        if (isfinite(d)) squares += d * d;
    }
    *deviation = sqrt(squares / n);
    return mean;
}

/* ---- how it ended */

static bool has_failed(const inquiry *q)
{
    return strcmp(an_run_text(q->r->end, "event"), "failed") == 0;
}

static bool is_about_memory(const char *error)
{
    return strstr(error, "memory") != NULL || strstr(error, "budget") != NULL;
}

static int64_t not_finite_at(const an_run_record *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (isinf(r->update[i].at[AN_RUN_LOSS]) || isinf(r->update[i].at[AN_RUN_GRAD_NORM])) return (int64_t)i;
    return -1;
}

static bool out_of_memory(const inquiry *q)
{
    const char *error = an_run_text(q->r->end, "error");
    if (!has_failed(q) || !is_about_memory(error)) return false;
    fix_smaller_batch(q);
    return evidence(q, "%.380s", error);
}

static bool failed(const inquiry *q)
{
    const char *error = an_run_text(q->r->end, "error");
    if (!has_failed(q) || is_about_memory(error) || not_finite_at(q->r) >= 0) return false;
    fix(q, "anneal doctor; then anneal resume %.300s", q->dir);
    return evidence(q, "%.380s", *error ? error : "the logbook does not say why");
}

static bool killed(const inquiry *q)
{
    if (!q->r->begin || q->r->end || q->running) return false;
    fix(q, "anneal resume %.300s", q->dir);
    return evidence(q, "the logbook has a beginning at %.24s and no end; the last line of metrics is of update %lld",
                    an_run_text(q->r->begin, "time"), q->r->n ? (long long)q->r->update[q->r->n - 1].step : -1LL);
}

/* Fewer updates in metrics.jsonl than the logbook says were done: what the other rules read is a part of the run. */
static bool metrics_cut_short(const inquiry *q)
{
    const an_run_record *r = q->r;
    const double done = an_run_number(r->end, "step"), interval = setting(q, "log_interval");
    const double last = r->n ? (double)r->update[r->n - 1].step + 1 : 0;
    if (r->disordered) {
        fix(q, "copy %.300s/metrics.jsonl again from the machine that trained it", q->dir);
        return evidence(q, "%llu lines of metrics.jsonl come after one of a later update, and were left out",
                        (unsigned long long)r->disordered);
    }
    if (!(interval >= 1) || !(done - last > interval) || has_failed(q)) return false;
    fix(q, "copy %.300s/metrics.jsonl again from the machine that trained it, or anneal resume it there", q->dir);
    return evidence(q, "metrics.jsonl ends after %.0f updates, the logbook after %.0f", last, done);
}

/* ---- numbers */

/* In which operation the first such number arose, where the run looked (train/nan_origin.h). */
static void put_origin(const json_t *line, char out[200])
{
    const char *scope = an_run_text(line, "scope");
    const double element = an_run_number(line, "element");
    out[0] = 0;
    if (line)
        snprintf(out, 200, "; it arises in %.60s%s%.60s (%.12s), element %.0f: %.8s", scope, *scope ? ": " : "",
                 an_run_text(line, "kernel"), an_run_text(line, "phase"), isfinite(element) ? element : -1,
                 an_run_text(line, "value"));
}

static bool not_finite(const inquiry *q)
{
    const an_run_record *r = q->r;
    const int64_t i = not_finite_at(r);
    const double rate = setting(q, "learning_rate");
    char origin[200];
    if (i < 0) return false;
    put_origin(r->not_finite, origin);
    fix_setting(q, "learning_rate=%.3g", isfinite(rate) ? 0.5 * rate : 1e-4);
    if (i == 0) return evidence(q, "at update %lld, the first that was logged%s", (long long)r->update[0].step, origin);
    return evidence(q, "first at update %lld; at update %lld the loss was %.4g and the norm of the gradients %.4g%s",
                    (long long)r->update[i].step, (long long)r->update[i - 1].step, r->update[i - 1].at[AN_RUN_LOSS],
                    r->update[i - 1].at[AN_RUN_GRAD_NORM], origin);
}

/* The run in tenths: the loss has lost a good part of what it had gained, by more than its noise. */
static bool loss_rises(const inquiry *q)
{
    const an_run_record *r = q->r;
    const double rate = setting(q, "learning_rate");
    double deviation, noise = 0, best = INFINITY;
    size_t best_tenth = 0;
    if (r->n < 2 * AN_DIAGNOSE_LINES || not_finite_at(r) >= 0) return false;
    const double first = mean_loss(r, 0, r->n / 10, &deviation);
    for (size_t k = 0; k < 10; k++) {
        const double mean = mean_loss(r, k * r->n / 10, (k + 1) * r->n / 10, &deviation);
        if (mean < best) best = mean, noise = deviation, best_tenth = k;
    }
    const double last = mean_loss(r, 9 * r->n / 10, r->n, &deviation);
    if (!(last - best > LOST_SHARE * (first - best)) || !(last - best > 2 * fmax(noise, 1e-6 * fabs(best))))
        return false;
    fix_setting(q, "learning_rate=%.3g", isfinite(rate) ? 0.5 * rate : 1e-4);
    return evidence(q, "mean loss %.4g around update %lld, %.4g in the last tenth (%.4g at first)", best,
                    (long long)r->update[best_tenth * r->n / 10].step, last, first);
}

/* ---- memory */

static bool near_memory_limit(const inquiry *q)
{
    const double ram = an_run_number(facts(q), "ram_bytes"), group = an_run_number(facts(q), "cgroup_bytes");
    const double limit = group > 0 ? fmin(ram, group) : ram;
    double first, most;
    char used[16], all[16];
    range_of(q->r, AN_RUN_RSS_BYTES, &first, &most);
    if (!(most > MEMORY_SHARE * limit)) return false;
    fix_smaller_batch(q);
    return evidence(q, "the process held %s of the %s that it may use", an_bytes_text(most, used),
                    an_bytes_text(limit, all));
}

static bool swap_grows(const inquiry *q)
{
    double first, most;
    char from[16], to[16];
    range_of(q->r, AN_RUN_SWAP_BYTES, &first, &most);
    const char *said = machine_said(q, memory_words);
    if (!said && !(most - first > SWAP_BYTES)) return false;
    fix_smaller_batch(q);
    if (said) return evidence(q, "%.380s", said);
    return evidence(q, "swap in use went from %s to %s", an_bytes_text(first, from), an_bytes_text(most, to));
}

static bool memory_grows(const inquiry *q)
{
    const size_t n = q->r->n;
    if (n < 2 * AN_DIAGNOSE_LINES) return false;
    for (an_memory_kind kind = 0; kind < AN_MEMORY_KINDS; kind++) {
        double early, late;
        char from[16], to[16], owner[AN_MEMORY_OWNER_BYTES];
        an_memory_growth_of(q->r, n, kind, &early, &late);
        if (!an_memory_grew(kind, early, late)) continue;
        if (an_memory_growth_owner(q->r, kind, late - early, owner))
            fix(q, "valgrind --tool=massif anneal train %.300s/config.yaml out=NEW max_iters=100: who allocates it",
                q->dir);
        else
            fix(q, "anneal plan %.300s/config.yaml show=memory; then the states of the model that grow", q->dir);
        return evidence(q, "%s: %s in the second tenth of the run, %s in the last; %s", an_memory_kind_name(kind),
                        an_bytes_text(early, from), an_bytes_text(late, to), owner);
    }
    return false;
}

static bool plans_grow(const inquiry *q)
{
    const an_run_record *r = q->r;
    if (r->n < AN_DIAGNOSE_LINES) return false;
    const double middle = r->update[r->n / 2].at[AN_RUN_PLANS], last = r->update[r->n - 1].at[AN_RUN_PLANS];
    if (!(last >= middle + 3)) return false; /* an evaluation adds one or two */
    fix(q, "an_report_text(cx, \"miss\") names the first node that differs; a number that changes belongs in "
           "an_scalar");
    return evidence(q, "%.0f plans in the middle of the run, %.0f at its end", middle, last);
}

/* ---- time */

typedef struct line_means {
    double n, ms, cpu_wait, data_wait;
} line_means;

/* The means of the lines first .. last - 1 whose updates took from `from` milliseconds on, and less than `below`. */
static line_means mean_lines(const an_run_record *r, size_t first, size_t last, double from, double below)
{
    line_means m = {0};
    for (size_t i = first; i < last; i++) {
        const double *at = r->update[i].at;
        if (!(at[AN_RUN_MS] >= from && at[AN_RUN_MS] < below)) continue;
        m.n++, m.ms += at[AN_RUN_MS], m.cpu_wait += at[AN_RUN_CPU_WAIT_MS], m.data_wait += at[AN_RUN_DATA_WAIT_MS];
    }
    m.ms /= m.n, m.cpu_wait /= m.n, m.data_wait /= m.n;
    return m;
}

/* Writes what accounts for most of the extra time of the slow lines; `other` where the run's figures do not say. */
static void explain_slow(const inquiry *q, const line_means *fast, const line_means *slow, const char *other,
                         char out[200])
{
    const double longer = slow->ms - fast->ms;
    if (slow->cpu_wait - fast->cpu_wait > 0.5 * longer)
        snprintf(
            out, 200,
            "other programs used the processors: an update waited %.3g ms for one when it was fast, %.3g when slow",
            fast->cpu_wait, slow->cpu_wait);
    else if (slow->data_wait - fast->data_wait > 0.5 * longer)
        snprintf(out, 200, "data are the cause: an update waited %.3g ms for them when it was fast, %.3g when slow",
                 fast->data_wait, slow->data_wait);
    else if (an_run_number(q->r->plan, "fallbacks") > 0)
        snprintf(out, 200, "%.0f launches of an update run on the CPU instead of the GPU, and each waits for the other",
                 an_run_number(q->r->plan, "fallbacks"));
    else
        snprintf(out, 200, "%s", other);
}

static bool slows_down(const inquiry *q)
{
    const times *t = &q->t;
    double first, most;
    char cause[200];
    if (!t->judged || !(t->median_last > CLIFF * t->median_first) || !(t->p25_last > t->p75_first)) return false;
    range_of(q->r, AN_RUN_SWAP_BYTES, &first, &most);
    const bool swaps = machine_said(q, memory_words) || most - first > SWAP_BYTES;
    const char *heat = machine_said(q, heat_words), *power = machine_said(q, power_words);
    const char *said = heat    ? "the machine's log says: heat"
                       : power ? "the machine's log says: battery or low-power mode"
                       : swaps ? "the machine's log says: memory went to swap"
                               : NULL;
    const line_means fast = mean_lines(q->r, 1, 1 + t->n / 3, 0, INFINITY),
                     slow = mean_lines(q->r, q->r->n - t->n / 3, q->r->n, 0, INFINITY);
    if (said)
        snprintf(cause, sizeof cause, "%s", said);
    else if (isnan(slow.cpu_wait))
        explain_slow(q, &fast, &slow, "the machine's log names no cause: other load, or caches that no longer suffice",
                     cause);
    else
        explain_slow(q, &fast, &slow,
                     "neither the machine's log nor waits for data or a processor are the cause: caches "
                     "that no longer suffice, or the GPU's clock",
                     cause);
    fix(q,
        heat    ? "let the machine cool, then anneal resume %.300s"
        : power ? "plug it in, then anneal resume %.300s"
                : "close other programs, then anneal resume %.300s",
        q->dir);
    return evidence(q, "%.4g ms an update in the first third, %.4g in the last; %s", t->median_first, t->median_last,
                    cause);
}

static bool times_swing(const inquiry *q)
{
    const times *t = &q->t;
    char cause[200];
    if (!t->judged || slows_down(q) || !(t->p90 > SWING * t->median)) return false;
    const double limit = SWING * t->median;
    const line_means fast = mean_lines(q->r, 1, q->r->n, 0, limit),
                     slow = mean_lines(q->r, 1, q->r->n, limit, INFINITY);
    explain_slow(q, &fast, &slow,
                 isnan(slow.cpu_wait)
                     ? "the run does not tell whether other programs used the processors"
                     : "neither waits for data nor for a processor are the cause: the device was interrupted",
                 cause);
    fix(q, "anneal profile %.300s/config.yaml, with other programs closed", q->dir);
    return evidence(q, "median %.4g ms an update, a tenth of the lines above %.4g ms; in these %.170s", t->median,
                    t->p90, cause);
}

static bool waits_for_data(const inquiry *q)
{
    const double workers = setting(q, "workers");
    if (!q->t.judged || !(q->t.wait_share > WAIT_SHARE)) return false;
    if (q->t.cpu_wait_share > AN_RUN_MUCH_CPU_WAIT) { /* the loader's threads want a processor too */
        fix(q, "anneal top, and end the others or give them a lower priority; more workers= would share the same "
               "processors");
        return evidence(q,
                        "%.0f %% of the time of the updates, on a machine whose processors other programs used: an "
                        "update waited %.0f %% of its time for one, and so did the loader",
                        100 * q->t.wait_share, 100 * fmin(q->t.cpu_wait_share, 1));
    }
    fix_setting(q, "workers=%.0f", workers >= 0 && workers < 512 ? 2 * fmax(workers, 1) : 2);
    return evidence(q, "%.0f %% of the time of the updates", 100 * q->t.wait_share);
}

static bool network_mount(const inquiry *q)
{
    static const char *const types[] = {"nfs",        "nfs4",           "cifs",     "smb3",   "smbfs", "afpfs", "9p",
                                        "fuse.sshfs", "fuse.glusterfs", "virtiofs", "lustre", "ceph",  "afs",   NULL};
    const char *mount = an_run_text(q->r->begin, "mount");
    bool network = false;
    for (const char *const *type = types; *type; type++) network |= strcmp(mount, *type) == 0;
    if (!network || !q->t.judged || !(q->t.wait_share > NETWORK_SHARE)) return false;
    fix_setting(q, "data=A_COPY_ON_A_LOCAL_DISK");
    return evidence(q, "the data are on a mount of type %.32s, and updates wait %.0f %% of their time", mount,
                    100 * q->t.wait_share);
}

static bool slow_saves(const inquiry *q)
{
    const double s = an_run_number(q->r->end, "save_s"), all = an_run_number(q->r->end, "seconds");
    const double interval = setting(q, "save_interval");
    if (!(all > AN_DIAGNOSE_SECONDS) || !(s > SAVE_SHARE * all)) return false;
    if (interval > 0 && interval < 1e12)
        fix(q, "anneal doctor; or anneal resume %.300s save_interval=%.0f", q->dir, 4 * interval);
    else
        fix(q, "anneal doctor, and out= on another disk");
    return evidence(q, "%.3g of %.3g s went into checkpoints", s, all);
}

static bool evaluates_much(const inquiry *q)
{
    const double s = an_run_number(q->r->end, "evaluate_s"), all = an_run_number(q->r->end, "seconds");
    const double interval = setting(q, "eval_interval");
    if (!(all > 3 * AN_DIAGNOSE_SECONDS) || !(s > EVAL_SHARE * all)) return false;
    fix(q, "anneal resume %.300s eval_interval=%.0f", q->dir, interval > 0 && interval < 1e12 ? 4 * interval : 1000);
    return evidence(q, "%.3g of %.3g s went into evaluations", s, all);
}

static bool falls_back(const inquiry *q)
{
    const double all = an_run_number(q->r->plan, "fallbacks"), placed = an_run_number(q->r->plan, "placed"),
                 ms = an_run_number(q->r->plan, "fallback_ms");
    const double n = all - (placed > 0 ? placed : 0); /* what place= moved is there deliberately */
    if (!(n > 0)) return false;
    fix(q, "anneal plan %.300s/config.yaml show=plan", q->dir);
    return evidence(q, "%.0f launches of an update run on the CPU%s; they took %.3g ms of the first", n,
                    placed > 0 ? " beside those of place=" : "", ms);
}

/* For a device without a clock of its own: an update's time divided by its launches is no more than a launch takes that
 * computes nothing. */
static bool launches_are_empty(const inquiry *q, double launches)
{
    const double us = q->t.median * 1e3 / launches;
    if (!json_is_true(json_object_get(q->r->begin, "gpu")) || !(launches > 0) || !(us < LAUNCH_US)) return false;
    return evidence(q, "an update of %.3g ms has %.0f launches: %.2g us each, which a launch without work takes too",
                    q->t.median, launches, us);
}

static bool device_is_idle(const inquiry *q)
{
    const double batch = setting(q, "batch_size"), launches = an_run_number(q->r->plan, "launches");
    const double busy = an_run_median(q->r, AN_RUN_GPU_BUSY, 1, q->r->n);
    if (!q->t.judged || q->t.wait_share > WAIT_SHARE) return false;
    fix_setting(q, "batch_size=%.0f", batch >= 1 && batch < 1e9 ? 2 * batch : 64);
    if (busy < IDLE_SHARE)
        return evidence(
            q, "the GPU works %.0f %% of the time of an update, %.0f launches each, and data are not waited for",
            100 * busy, launches);
    return launches_are_empty(q, launches); /* NVIDIA's library counts a GPU as busy while any kernel runs */
}

/* ---- the machine */

static bool too_hot(const inquiry *q)
{
    const char *said = machine_said(q, heat_words);
    if (!said || slows_down(q)) return false;
    fix(q, "let the machine cool, then anneal resume %.300s", q->dir);
    return evidence(q, "%.380s", said);
}

static bool saves_power(const inquiry *q)
{
    const char *said = machine_said(q, power_words);
    const bool battery = an_run_number(facts(q), "on_battery") == 1, low = an_run_number(facts(q), "low_power") == 1;
    if ((!said && !battery && !low) || slows_down(q)) return false;
    fix(q, "plug it in, low-power mode off, then anneal resume %.300s", q->dir);
    return evidence(q, "%.380s",
                    said  ? said
                    : low ? "low-power mode was on when the run began"
                          : "the run began on battery power");
}

static bool is_translated(const inquiry *q)
{
    const char *by = an_run_text(facts(q), "translated");
    if (!*by) return false;
    fix(q, "install the program that is built for this processor; anneal doctor says what it is");
    return evidence(q, "%.40s runs this program's instructions", by);
}

/* By the system's account of how long the training thread was ready to run while other programs ran. */
static bool processors_are_shared(const inquiry *q)
{
    enum {
        MOST_PROGRAMS = 3
    }; /* that the writer lists; a file of strangers may have more, for which there is no room */
    char others[160] = "";
    size_t i, used = 0;
    json_t *program;
    if (!q->t.judged || !(q->t.cpu_wait_share > AN_RUN_MUCH_CPU_WAIT)) return false;
    json_array_foreach(json_object_get(q->r->begin, "busiest"), i, program)
    {
        const char *name = json_string_value(json_array_get(program, 0));
        const double percent = json_number_value(json_array_get(program, 1));
        if (i == MOST_PROGRAMS) break;
        if (!name || !(percent >= 1 && percent < 1e6)) continue;
        used += (size_t)snprintf(others + used, sizeof others - used, "%s%.30s %.0f %%",
                                 used ? ", " : "; when it began: ", name, percent);
    }
    fix(q, "anneal top, and end the others or give them a lower priority, then anneal resume %.300s", q->dir);
    return evidence(q, "the thread that trains waited %.0f %% of the time of the updates for a processor%s",
                    100 * q->t.cpu_wait_share, others);
}

static bool gpu_is_shared(const inquiry *q)
{
    const char *said = machine_said(q, shared_words);
    if (!said) return false;
    fix(q, "anneal top; end the others, or choose another GPU with CUDA_VISIBLE_DEVICES, then anneal resume %.300s",
        q->dir);
    return evidence(q, "%.380s", said);
}

/* ---- with a profile of the run's step, or a reference run of the same settings */

static double sum_of_launches(const json_t *profile, const char *key)
{
    double sum = 0;
    size_t i;
    json_t *launch;
    json_array_foreach(json_object_get(profile, "launches"), i, launch)
    {
        const double us = an_run_number(launch, key);
        if (isfinite(us) && us > 0) sum += us;
    }
    return sum;
}

static void fix_profile(const inquiry *q, const char *then)
{
    fix(q, "anneal profile %.300s/config.yaml --top 10, on a quiet machine; %s", q->dir, then);
}

static bool slow_operation(const inquiry *q)
{
    const an_profile_op *slowest = NULL;
    double all = 0;
    for (int i = 0; i < q->ops.n; i++) {
        const an_profile_op *op = &q->ops.op[i];
        all += op->us[0];
        if (!slowest || op->us[0] > slowest->us[0]) slowest = op;
    }
    if (!slowest || !(slowest->us[0] > SLOW_TIME * all)) return false;
    if (!(slowest->share[0] > 0) || !(slowest->share[0] < SLOW_ROOF)) return false;
    fix_profile(q, "anneal plan with show=kernels has its kernel");
    return evidence(q, "%s, %s (%s): %d launches take %.0f %% of the time of all, at %.1f %% of the roofline",
                    slowest->name, slowest->shape, slowest->phase, slowest->launches[0], 100 * slowest->us[0] / all,
                    100 * slowest->share[0]);
}

static bool moves_dominate(const inquiry *q)
{
    const double all = sum_of_launches(q->beside.profile, "device_us");
    double moves = 0;
    int n = 0;
    size_t i;
    json_t *launch;
    json_array_foreach(json_object_get(q->beside.profile, "launches"), i, launch)
    {
        const char *kind = an_run_text(launch, "kind");
        const double us = an_run_number(launch, "device_us");
        const bool moves_only = strcmp(kind, "scatter") == 0 || strcmp(kind, "copy") == 0 ||
                                strcmp(kind, "zero") == 0 || an_run_number(launch, "flops") == 0;
        if (moves_only && isfinite(us) && us > 0) moves += us, n++;
    }
    if (!(moves > MOVE_TIME * all)) return false;
    fix_profile(q, "larger batches amortize tables; anneal plan with show=plan says what is copied and why");
    return evidence(q, "%d launches that gather, scatter or copy take %.0f %% of the time of all", n,
                    100 * moves / all);
}

static bool launch_bound(const inquiry *q)
{
    const double batch = setting(q, "batch_size");
    const double work = sum_of_launches(q->beside.profile, "device_us"),
                 enqueue = sum_of_launches(q->beside.profile, "enqueue_us");
    if (!(work > 0) || !(enqueue > work)) return false;
    fix_setting(q, "batch_size=%.0f", batch >= 1 && batch < 1e9 ? 2 * batch : 64);
    return evidence(q, "handing the launches of an update over takes %.4g ms, their work %.4g ms", 1e-3 * enqueue,
                    1e-3 * work);
}

static bool no_faster(const inquiry *q)
{
    const an_run_record *other = q->beside.reference;
    char here[AN_RUN_SETTING_BYTES], there[AN_RUN_SETTING_BYTES];
    if (!other || !q->t.judged || other->n < AN_DIAGNOSE_LINES) return false;
    if (strcmp(an_run_setting(q->r, "batch_size", here), an_run_setting(other, "batch_size", there)) != 0) return false;
    const double slow = an_run_median(other, AN_RUN_MS, 1, other->n), times = slow / q->t.median;
    if (!(times < LEAST_GAIN)) return false;
    fix_profile(q, "then anneal sweep: a larger batch gives this device more to do");
    return evidence(q, "%.4g ms an update here, %.4g in %.200s: %.2f times as fast", q->t.median, slow,
                    q->beside.reference_dir, times);
}

/* ---- the table */

/* The figures that a rule needs to be applied. */
typedef enum needs {
    NEEDS_A_LOGBOOK,
    NEEDS_AN_END,
    NEEDS_A_PLAN,
    NEEDS_A_LINE,
    NEEDS_LINES,
    NEEDS_A_HISTORY,
    NEEDS_TIMES,
    NEEDS_A_PROFILE,
    NEEDS_A_REFERENCE
} needs;

static const struct {
    const char *name, *symptom, *hypothesis;
    bool (*check)(const inquiry *q);
    needs needs;
} rules[] = {
    {"out_of_memory", "the run failed for want of memory", "the batch is too large for this machine", out_of_memory,
     NEEDS_A_LOGBOOK},
    {"not_finite", "a loss or a gradient is not finite",
     "the learning rate is too high here, or the data hold such a number", not_finite, NEEDS_A_LINE},
    {"failed", "the run failed", "see the sentence that it failed with", failed, NEEDS_A_LOGBOOK},
    {"killed", "the run ended without a word",
     "it was killed: by the system for want of memory, by a person, or by a reboot", killed, NEEDS_A_LOGBOOK},
    {"metrics_cut_short", "a part of the metrics is missing",
     "the file was cut, changed, or copied while the run went on", metrics_cut_short, NEEDS_A_LINE},
    {"loss_rises", "the loss rises again", "the learning rate is too high for this stage of training", loss_rises,
     NEEDS_A_HISTORY},
    {"near_memory_limit", "memory is nearly full", "a little more and the system swaps, or kills the run",
     near_memory_limit, NEEDS_A_LINE},
    {"swap_grows", "swap grew", "memory is short, and updates wait for the disk", swap_grows, NEEDS_A_LINE},
    {"memory_grows", "memory is higher at the end than at the start", "something is kept from update to update",
     memory_grows, NEEDS_A_HISTORY},
    {"plans_grow", "updates are planned again and again", "the graph differs from update to update", plans_grow,
     NEEDS_LINES},
    {"slows_down", "a fast start, then slower", "heat, power, swap or other load: see the evidence", slows_down,
     NEEDS_TIMES},
    {"times_swing", "the times of the updates swing", "other programs, or an interrupted device", times_swing,
     NEEDS_TIMES},
    {"waits_for_data", "updates wait for data", "too few loader threads, or a slow disk", waits_for_data, NEEDS_TIMES},
    {"network_mount", "data come over a network", "the mount is slower than training", network_mount, NEEDS_TIMES},
    {"slow_saves", "checkpoints take long", "a slow disk, or too many of them", slow_saves, NEEDS_AN_END},
    {"evaluates_much", "most of the time is evaluation", "eval_interval is short, or eval_iters large", evaluates_much,
     NEEDS_AN_END},
    {"falls_back", "operations run on the CPU instead of the GPU", "this device has no kernel for them", falls_back,
     NEEDS_A_PLAN},
    {"device_is_idle", "the GPU has little to do", "the model is small for it: launches take longer than their work",
     device_is_idle, NEEDS_TIMES},
    {"slow_operation", "one operation takes most of the time, far below the roofline",
     "its kernel does not suit these shapes, or the machine was busy", slow_operation, NEEDS_A_PROFILE},
    {"moves_dominate", "moving data takes much of the time", "tables, casts and copies cost more than the products",
     moves_dominate, NEEDS_A_PROFILE},
    {"launch_bound", "launches take longer to hand over than to run", "the model is small for this device",
     launch_bound, NEEDS_A_PROFILE},
    {"no_faster", "hardly faster than the reference", "small batches, waits, or fallbacks: the device has little to do",
     no_faster, NEEDS_A_REFERENCE},
    {"processors_are_shared", "other programs use the processors", "the times are theirs as much as this run's",
     processors_are_shared, NEEDS_TIMES},
    {"gpu_is_shared", "several programs use one GPU", "each gets a part of its time and memory", gpu_is_shared,
     NEEDS_A_LOGBOOK},
    {"too_hot", "the machine was slowed for its heat", "cooling does not keep up", too_hot, NEEDS_A_LOGBOOK},
    {"saves_power", "the machine saves power", "battery or low-power mode: updates are slower", saves_power,
     NEEDS_A_LOGBOOK},
    {"is_translated", "the program is translated", "it was built for another processor", is_translated,
     NEEDS_A_LOGBOOK},
};
_Static_assert(AN_COUNT(rules) <= AN_MOST_RULES, "a diagnosis has room for every rule");

const char *an_diagnose_rule(int i)
{
    return i >= 0 && i < (int)AN_COUNT(rules) ? rules[i].name : NULL;
}

/* ---- the times */

static double median_of(const an_run_record *r, size_t first, size_t last, double other_share, double *other)
{
    double *v;
    size_t n;
    if (an_run_sorted(NULL, r, AN_RUN_MS, first, last, &v, &n) != AN_OK) n = 0;
    const double median = an_run_quantile(v, n, 0.5);
    *other = an_run_quantile(v, n, other_share);
    free(v);
    return median;
}

/* A line's time is the mean of the updates since the line before. */
static void read_times(const an_run_record *r, times *t)
{
    double ms = 0;
    *t = (times){.n = r->n > 1 ? r->n - 1 : 0};
    for (size_t i = 1; i < r->n; i++) {
        const double *at = r->update[i].at, updates = (double)(r->update[i].step - r->update[i - 1].step);
        if (isfinite(at[AN_RUN_MS])) ms += updates * at[AN_RUN_MS];
    }
    t->seconds = 1e-3 * ms;
    t->wait_share = an_run_wait_share(r, AN_RUN_DATA_WAIT_MS, 1, r->n);
    t->cpu_wait_share = an_run_wait_share(r, AN_RUN_CPU_WAIT_MS, 1, r->n);
    t->judged = t->n >= AN_DIAGNOSE_LINES && t->seconds >= AN_DIAGNOSE_SECONDS;
    if (!t->judged) return;
    t->median = median_of(r, 1, r->n, 0.9, &t->p90);
    t->median_first = median_of(r, 1, 1 + t->n / 3, 0.75, &t->p75_first);
    t->median_last = median_of(r, r->n - t->n / 3, r->n, 0.25, &t->p25_last);
}

static bool has_figures(const inquiry *q, needs n)
{
    const an_run_record *r = q->r;
    switch (n) {
    case NEEDS_A_LOGBOOK: return r->begin != NULL;
    case NEEDS_AN_END: return r->end != NULL;
    case NEEDS_A_PLAN: return r->plan != NULL;
    case NEEDS_A_LINE: return r->n > 0;
    case NEEDS_LINES: return r->n >= AN_DIAGNOSE_LINES;
    case NEEDS_A_HISTORY: return r->n >= 2 * AN_DIAGNOSE_LINES;
    case NEEDS_TIMES: return q->t.judged;
    case NEEDS_A_PROFILE: return q->beside.profile != NULL;
    case NEEDS_A_REFERENCE: break;
    }
    return q->beside.reference != NULL;
}

/* Counts the rules that had their figures, and lists what the others lack. */
static void judge_rules(const inquiry *q, an_diagnosis *out)
{
    static const char *const names[] = {[NEEDS_A_LOGBOOK] = "a logbook",
                                        [NEEDS_AN_END] = "the logbook's last line",
                                        [NEEDS_A_PLAN] = "the logbook's line of the plan",
                                        [NEEDS_A_LINE] = "a line of metrics",
                                        [NEEDS_LINES] = "20 lines of metrics",
                                        [NEEDS_A_HISTORY] = "40 lines of metrics",
                                        [NEEDS_TIMES] = "20 lines and 10 s of updates",
                                        [NEEDS_A_PROFILE] = "profile=",
                                        [NEEDS_A_REFERENCE] = "reference="};
    _Static_assert(AN_DIAGNOSE_LINES == 20 && AN_DIAGNOSE_SECONDS == 10, "the sentences above say so");
    bool told[AN_COUNT(names)] = {false};
    out->judged = 0;
    out->lacks[0] = 0;
    for (size_t i = 0; i < AN_COUNT(rules); i++) {
        const needs n = rules[i].needs;
        const size_t used = strlen(out->lacks);
        if (has_figures(q, n)) {
            out->judged++;
            continue;
        }
        if (!told[n]) snprintf(out->lacks + used, sizeof out->lacks - used, "%s%s", used ? ", " : "", names[n]);
        told[n] = true;
    }
}

an_status an_diagnose(an_err *err, const char *dir, const an_run_record *r, bool running, an_diagnosis *out)
{
    return an_diagnose_beside_others(err, dir, r, running, &(an_diagnose_beside){0}, out);
}

/* AN_E_DATA where a profile or a reference run is of another preset than the run; unknown presets pass. */
static an_status check_preset(an_err *err, const an_run_record *r, const char *preset, const char *path)
{
    const char *own = an_run_text(r->begin, "preset");
    char names[2][AN_QUOTED_BYTES];
    if (!*own || !*preset || strcmp(own, preset) == 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "%.300s: it is of %s, and the run is of %s: name one of the same preset", path,
                   an_quoted(preset, names[0]), an_quoted(own, names[1]));
}

an_status an_diagnose_beside_others(an_err *err, const char *dir, const an_run_record *r, bool running,
                                    const an_diagnose_beside *beside, an_diagnosis *out)
{
    inquiry q = {.dir = dir, .r = r, .running = running, .beside = *beside};
    out->n = 0;
    if (strlen(dir) > 300) return an_fail(err, AN_E_USAGE, "%.100s...: the path is too long", dir);
    read_times(r, &q.t);
    AN_TRY(check_preset(err, r, an_run_text(beside->profile, "preset"), beside->profile_path));
    if (beside->reference)
        AN_TRY(check_preset(err, r, an_run_text(beside->reference->begin, "preset"), beside->reference_dir));
    if (beside->profile) {
        an_status status = an_profile_diff_make(err, beside->profile, beside->profile, beside->profile_path,
                                                beside->profile_path, &q.ops);
        if (status != AN_OK) an_profile_diff_free(&q.ops);
        AN_TRY(status);
    }
    for (size_t i = 0; i < AN_COUNT(rules); i++) {
        q.out = &out->finding[out->n];
        *q.out = (an_finding){.rule = rules[i].name, .symptom = rules[i].symptom, .hypothesis = rules[i].hypothesis};
        if (rules[i].check(&q)) out->n++;
    }
    judge_rules(&q, out);
    an_profile_diff_free(&q.ops);
    return AN_OK;
}

void an_diagnosis_json(const an_diagnosis *d, an_text *out)
{
    an_text_puts(out, "[");
    for (int i = 0; i < d->n; i++) {
        const an_finding *f = &d->finding[i];
        const char *const member[][2] = {{"{\"rule\":", f->rule},
                                         {",\"symptom\":", f->symptom},
                                         {",\"evidence\":", f->evidence},
                                         {",\"hypothesis\":", f->hypothesis},
                                         {",\"fix\":", f->fix}};
        if (i) an_text_puts(out, ",");
        for (size_t k = 0; k < AN_COUNT(member); k++) {
            an_text_puts(out, member[k][0]);
            an_json_put(out, member[k][1]);
        }
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]");
}
