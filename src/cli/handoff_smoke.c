/* handoff_smoke.c: see handoff_smoke.h. */
#include "cli/handoff_causes.h"
#include "platform/platform.h"
#include "report/machine_monitor.h"
#include "report/run_record.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMOKE_SECONDS = 3600, OUTPUT_BYTES = 8192 };
static const double FLAT = 0.01;

/* A line every `interval` updates: as often as the origin wrote one, where ten come of it. */
static int64_t interval_of(const an_run_record *r, int64_t updates)
{
    char every[AN_RUN_SETTING_BYTES];
    const double there = strtod(an_run_setting(r, "log_interval", every), NULL);
    const int64_t most = AN_MAX(updates / 10, 1);
    return there >= 1 && there < (double)most ? (int64_t)there : there >= 1 ? most : 1;
}

static an_status train(an_err *err, const an_handoff *h, const char *dir, const char *program, int64_t updates,
                       int64_t interval)
{
    char from[AN_CKPT_PATH_BYTES + 16], out[AN_CKPT_PATH_BYTES + 16], most[48], log[48], data[AN_CKPT_PATH_BYTES + 8];
    char said[OUTPUT_BYTES] = "";
    int code = -1;
    snprintf(from, sizeof from, "%.1000s%s", dir, h->settings_only ? "/config.yaml" : "");
    snprintf(out, sizeof out, "out=%.1000s/smoke", dir);
    snprintf(most, sizeof most, "max_iters=%lld", (long long)(h->step + updates));
    snprintf(log, sizeof log, "log_interval=%lld", (long long)interval);
    snprintf(data, sizeof data, "data=%s", h->data);
    const char *argv[] = {
        program, h->settings_only ? "train" : "resume", from, out, most, log, "--quiet", *h->data ? data : NULL, NULL};
    AN_TRY(an_spawn(err, argv, SMOKE_SECONDS, said, sizeof said, &code));
    if (code == 0) return AN_OK;
    said[strcspn(said, "\n")] = 0;
    return an_fail(err, AN_E_ENV, "%s: the first updates failed with exit code %d: %.400s", dir, code, said);
}

static void measure(const an_run_record *r, const an_handoff *h, double tolerance, an_smoke *s)
{
    size_t begin = 0;
    while (begin < r->n && r->update[begin].step < h->step) begin++;
    const size_t n = r->n - begin;
    const size_t from = begin + n / 10 + (n > 1), early = begin + n / 5 + (n > 1), late = begin + 9 * n / 10;
    s->ms = an_run_median(r, AN_RUN_MS, from, r->n);
    s->units_per_s = an_run_median(r, AN_RUN_UNITS_PER_S, from, r->n);
    s->live_bytes = an_run_median(r, AN_RUN_LIVE_BYTES, late, r->n);
    s->growth = s->live_bytes / an_run_median(r, AN_RUN_LIVE_BYTES, from, early + 1) - 1;
    s->wait_share = an_run_median(r, AN_RUN_DATA_WAIT_MS, from, r->n) / s->ms;
    s->cpu_wait_ms = an_run_median(r, AN_RUN_CPU_WAIT_MS, from, r->n);
    s->ratio = s->ms / h->ms;
    s->flat = !(s->growth > FLAT);
    s->alike = !(s->ratio > 1 + tolerance) && !(s->ratio < 1 / (1 + tolerance));
}

/* The received run and the machine before the window; of settings there is no run. */
static an_status look_before(an_err *err, const an_handoff *h, const char *dir, an_run_record *run, int64_t *throttled)
{
    an_system_info before;
    memset(run, 0, sizeof *run);
    an_monitor_facts(&before);
    *throttled = before.throttled;
    return h->settings_only ? AN_OK : an_run_record_read(err, dir, run);
}

an_status an_handoff_smoke(an_err *err, const an_handoff *h, const char *dir, const char *program, int64_t updates,
                           double tolerance, an_smoke *out)
{
    char smoke[AN_CKPT_PATH_BYTES];
    an_run_record run, window = {0};
    int64_t throttled;
    *out = (an_smoke){.ms = NAN};
    snprintf(smoke, sizeof smoke, "%.1000s/smoke", dir);
    an_status status = look_before(err, h, dir, &run, &throttled);
    const int64_t interval = interval_of(&run, updates);
    if (status == AN_OK) status = train(err, h, dir, program, updates, interval);
    if (status == AN_OK) status = an_run_record_read(err, smoke, &window);
    if (status == AN_OK) {
        measure(&window, h, tolerance, out);
        out->updates = updates;
        if (isfinite(h->ms)) an_causes_measure(h, out, &run, smoke, throttled, interval, out->cause);
    }
    an_run_record_free(&run);
    an_run_record_free(&window);
    return status;
}
