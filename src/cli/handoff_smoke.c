/* handoff_smoke.c: see handoff_smoke.h. */
#include "cli/handoff_smoke.h"
#include "io/data/disk_speed.h"
#include "platform/platform.h"
#include "report/machine_monitor.h"
#include "report/run_record.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMOKE_SECONDS = 3600, OUTPUT_BYTES = 8192 };
static const double FLAT = 0.01;

static an_status train(an_err *err, const an_handoff *h, const char *dir, const char *program, int64_t updates)
{
    char out[AN_CKPT_PATH_BYTES + 16], most[48], data[AN_CKPT_PATH_BYTES + 8], said[OUTPUT_BYTES] = "";
    int code = -1;
    snprintf(out, sizeof out, "out=%.1000s/smoke", dir);
    snprintf(most, sizeof most, "max_iters=%lld", (long long)(h->step + updates));
    snprintf(data, sizeof data, "data=%s", h->data);
    const char *argv[] = {program, "resume", dir, out, most, "log_interval=1", "--quiet", *h->data ? data : NULL, NULL};
    AN_TRY(an_spawn(err, argv, SMOKE_SECONDS, said, sizeof said, &code));
    if (code == 0) return AN_OK;
    said[strcspn(said, "\n")] = 0;
    return an_fail(err, AN_E_ENV, "%s: the first updates failed with exit code %d: %.400s", dir, code, said);
}

static double median(const an_run_record *r, an_run_column column, size_t first, size_t last)
{
    double *v;
    size_t n;
    if (an_run_sorted(NULL, r, column, first, last, &v, &n) != AN_OK) return NAN;
    const double m = an_run_quantile(v, n, 0.5);
    free(v);
    return m;
}

static void measure(const an_run_record *r, const an_handoff *h, double tolerance, an_smoke *s)
{
    size_t begin = 0;
    while (begin < r->n && r->update[begin].step < h->step) begin++;
    const size_t n = r->n - begin;
    const size_t from = begin + n / 10 + (n > 1), early = begin + n / 5 + (n > 1), late = begin + 9 * n / 10;
    s->updates = (int64_t)n;
    s->ms = median(r, AN_RUN_MS, from, r->n);
    s->units_per_s = median(r, AN_RUN_UNITS_PER_S, from, r->n);
    s->live_bytes = median(r, AN_RUN_LIVE_BYTES, late, r->n);
    s->growth = s->live_bytes / median(r, AN_RUN_LIVE_BYTES, from, early + 1) - 1;
    s->wait_share = median(r, AN_RUN_DATA_WAIT_MS, from, r->n) / s->ms;
    s->ratio = s->ms / h->ms;
    s->flat = !(s->growth > FLAT);
    s->alike = !(s->ratio > 1 + tolerance) && !(s->ratio < 1 / (1 + tolerance));
}

/* What makes a machine slower than another, each looked at here, whether it is the cause or not. */
static void find_causes(const an_handoff *h, const an_smoke *s, an_text *out)
{
    an_system_info machine;
    an_compiler_facts compiler;
    an_mount_info mount;
    an_storage disk;
    an_monitor_facts(&machine);
    an_text_printf(out, "processor  %s, %d cores usable\n", *machine.cpu ? machine.cpu : "unknown",
                   machine.cores_usable);
    an_text_printf(out, "I/O path   %.1f %% of the updates' time waits for data", 100 * s->wait_share);
    if (*h->data) {
        an_storage_look(h->data, &disk);
        an_text_printf(out, "; %s, %.0f MB/s%s", *disk.mount.type ? disk.mount.type : "unknown mount", disk.mb_s,
                       disk.mount.network ? ", over a network" : "");
    }
    an_compiler_facts_read("", "", &compiler);
    if (*compiler.cache_dir) {
        an_mount_info_read(compiler.cache_dir, &mount);
        an_text_printf(out, "\ncache      kernels in %s: %s%s", compiler.cache_dir,
                       *mount.type ? mount.type : "unknown mount", mount.network ? ", over a network" : "");
    } else {
        an_text_printf(out, "\ncache      none: %s", compiler.why_cache);
    }
    an_text_printf(out, "\ncompiler   %s", *compiler.path ? compiler.version : compiler.why);
    an_text_puts(out, "\nload       ");
    if (machine.memory_stall >= 0)
        an_text_printf(out, "programs waited for memory %.0f %% of the last 10 s", machine.memory_stall);
    else
        an_text_puts(out, "not told by this system");
    an_text_printf(out, "\nthermals   %s; %s%s", *machine.thermal ? machine.thermal : "not told",
                   machine.on_battery == 1 ? "on battery" : "mains, or not told",
                   machine.low_power == 1 ? ", low-power mode" : "");
    an_text_puts(out, "\nlogging    the window logs every update; the origin as its settings say (log_interval)");
}

an_status an_handoff_smoke(an_err *err, const an_handoff *h, const char *dir, const char *program, int64_t updates,
                           double tolerance, an_smoke *out)
{
    char smoke[AN_CKPT_PATH_BYTES];
    an_run_record r;
    *out = (an_smoke){.ms = NAN};
    AN_TRY(train(err, h, dir, program, updates));
    snprintf(smoke, sizeof smoke, "%.1000s/smoke", dir);
    an_status status = an_run_record_read(err, smoke, &r);
    if (status == AN_OK) measure(&r, h, tolerance, out);
    an_run_record_free(&r);
    if (status == AN_OK) find_causes(h, out, &out->causes);
    if (status == AN_OK && out->causes.failed) status = an_fail_nomem(err, "the causes", out->causes.len);
    return status;
}
