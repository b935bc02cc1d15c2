/* handoff_causes.c: see handoff_causes.h. */
#define _DEFAULT_SOURCE
#include "cli/handoff_causes.h"
#include "io/data/disk_speed.h"
#include "io/formats/jsonl.h"
#include "platform/scratch.h"
#include "platform/sensors.h"
#include "report/machine_monitor.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A candidate that makes up at least this share of the difference is likely. */
static const double ENOUGH = 0.5;
/* Share of the processors that other programs use. */
static const double BUSY = 0.1;
static const char likely[] = "likely", ruled_out[] = "ruled out", not_known[] = "not known";

typedef struct facts {
    const an_handoff *h;
    const an_smoke *s;
    const an_run_record *run;
    const char *dir;
    an_system_info here;
    const json_t *there; /* of the origin; NULL: not told */
    double slower_ms;    /* of an update, here against there; negative: faster */
    int64_t throttled, interval;
} facts;

/* Whether `ms` more of an update here, in the direction of the difference, would explain it. */
static const char *by_share(const facts *f, double ms)
{
    if (!isfinite(ms) || !isfinite(f->slower_ms)) return not_known;
    return ms * f->slower_ms > 0 && fabs(ms) >= ENOUGH * fabs(f->slower_ms) ? likely : ruled_out;
}

#define SAY(place, ...) snprintf(place, AN_CAUSE_TEXT_BYTES, __VA_ARGS__)

static void processor(const facts *f, an_cause *c)
{
    const char *cpu = an_run_text(f->there, "cpu");
    const double cores = an_run_number(f->there, "usable_cores");
    if (*cpu) SAY(c->there, "%.120s, %.0f cores usable", cpu, isfinite(cores) ? cores : 0);
    SAY(c->here, "%.120s, %d cores usable", *f->here.cpu ? f->here.cpu : "unknown", f->here.cores_usable);
    if (*cpu) c->verdict = strcmp(cpu, f->here.cpu) != 0 || cores != f->here.cores_usable ? likely : ruled_out;
}

static void io_path(const facts *f, an_cause *c)
{
    const double wait_there = an_run_median(f->run, AN_RUN_DATA_WAIT_MS, f->run->n / 10, f->run->n),
                 wait_here = f->s->wait_share * f->s->ms;
    const char *mount = an_run_text(f->run->begin, "mount");
    an_storage disk = {.mb_s = 0};
    SAY(c->there, "an update waits %.3g ms for data%s%.32s", wait_there, *mount ? "; " : "", mount);
    int n = SAY(c->here, "an update waits %.3g ms for data", wait_here);
    if (*f->h->data) {
        an_storage_look(f->h->data, &disk);
        char speed[32] = "too small to measure";
        if (disk.mb_s > 0) snprintf(speed, sizeof speed, "%.0f MB/s", disk.mb_s);
        snprintf(c->here + n, sizeof c->here - (size_t)n, "; %.40s, %s%s",
                 *disk.mount.type ? disk.mount.type : "unknown mount", speed,
                 disk.mount.network ? ", over a network" : "");
    }
    c->verdict = by_share(f, wait_here - wait_there);
}

/* Writes and reads back a file beside the kernels: what a network volume makes slow. */
static double cache_ms(const char *dir)
{
    char path[AN_CKPT_PATH_BYTES + 64], *back = NULL;
    static char block[65536];
    size_t n;
    an_err unused = {0};
    an_scratch scratch;
    if (an_scratch_open(&unused, dir, &scratch) != AN_OK) return NAN;
    snprintf(path, sizeof path, "%s/speed", scratch.path);
    const double begin = an_seconds();
    const bool done = an_file_write(&unused, path, block, sizeof block) == AN_OK &&
                      an_file_read(&unused, path, sizeof block, &back, &n) == AN_OK;
    const double ms = 1e3 * (an_seconds() - begin);
    an_scratch_close(&scratch);
    free(back);
    return done ? ms : (double)NAN;
}

static void kernel_cache(const facts *f, an_cause *c)
{
    an_compiler_facts compiler;
    an_mount_info mount;
    (void)f;
    SAY(c->there, "not told: kernels are loaded before the first update");
    an_compiler_facts_read(NULL, NULL, &compiler);
    if (!*compiler.cache_dir) {
        SAY(c->here, "none: %.200s", compiler.why_cache);
        c->verdict = ruled_out;
        return;
    }
    an_mount_info_read(compiler.cache_dir, &mount);
    const double ms = cache_ms(compiler.cache_dir);
    SAY(c->here, "%.32s%s, 64 KiB written and read in %.2g ms: %.140s", *mount.type ? mount.type : "unknown mount",
        mount.network ? ", over a network" : "", ms, compiler.cache_dir);
    /* Pages of a kernel that the system drops are read again from a network, in the middle of an update. */
    c->verdict = mount.network && f->slower_ms > 0 ? likely : ruled_out;
}

static void compiler_of(const facts *f, an_cause *c)
{
    an_compiler_facts compiler;
    const char *mode = an_run_text(f->run->begin, "mode");
    an_compiler_facts_read(NULL, NULL, &compiler);
    if (*mode) SAY(c->there, "%.40s", mode);
    SAY(c->here, "%.250s", *compiler.path ? compiler.version : compiler.why);
    if (*mode) c->verdict = strcmp(mode, "fused") == 0 && !*compiler.path && f->slower_ms > 0 ? likely : ruled_out;
}

/* Where both runs told how long an update waited for a processor, that is the answer; else who used the processors is a
 * guess. */
static void load(const facts *f, an_cause *c)
{
    static an_sensor_sample a, b;
    an_sensors between;
    const struct timespec nap = {.tv_nsec = 500000000};
    const double wait_there = an_run_median(f->run, AN_RUN_CPU_WAIT_MS, f->run->n / 10, f->run->n);
    const bool told = isfinite(wait_there) && isfinite(f->s->cpu_wait_ms);
    const double stall = AN_MAX(f->here.memory_stall, 0);
    if (told) {
        SAY(c->there, "an update waited %.3g ms for a processor", wait_there);
        SAY(c->here, "an update waited %.3g ms for a processor; %.0f %% of the last 10 s a program waited for memory",
            f->s->cpu_wait_ms, stall);
        c->verdict = f->slower_ms > 0 && stall > 1 ? likely : by_share(f, f->s->cpu_wait_ms - wait_there);
        return;
    }
    an_sensors_sample("", &a);
    nanosleep(&nap, NULL);
    an_sensors_sample("", &b);
    an_sensors_between(&a, &b, &between);
    if (isnan(between.cpu_busy.value)) {
        SAY(c->here, "%s", between.cpu_busy.why);
        return;
    }
    SAY(c->here, "other programs use %.0f %% of the processors; %.0f %% of the last 10 s a program waited for memory",
        100 * between.cpu_busy.value, stall);
    /* The origin's busiest programs, when its run began: where they took much, that run was the slower one. */
    const json_t *list = json_object_get(f->run->begin, "busiest"), *busiest = json_array_get(list, 0);
    const double there = 1e-2 * json_number_value(json_array_get(busiest, 1));
    if (there > 0) SAY(c->there, "another program used %.0f %% of a processor when the run began", 100 * there);
    if (f->slower_ms > 0)
        c->verdict = between.cpu_busy.value > BUSY || stall > 1 ? likely : ruled_out;
    else
        c->verdict = there > BUSY ? likely : json_is_array(list) ? ruled_out : not_known;
}

static void thermals(const facts *f, an_cause *c)
{
    const char *state = an_run_text(f->there, "thermal");
    const bool counted = f->throttled != AN_UNKNOWN && f->here.throttled != AN_UNKNOWN;
    const bool slowed =
        counted ? f->here.throttled > f->throttled : *f->here.thermal && strcmp(f->here.thermal, "nominal") != 0;
    if (f->there) SAY(c->there, "%.60s", *state ? state : "not told by that system");
    if (counted)
        SAY(c->here, "slowed for heat %lld times during the window%s%s", (long long)(f->here.throttled - f->throttled),
            f->here.on_battery == 1 ? "; on battery" : "", f->here.low_power == 1 ? "; low-power mode" : "");
    else
        SAY(c->here, "%.60s%s%s", *f->here.thermal ? f->here.thermal : "not told by this system",
            f->here.on_battery == 1 ? "; on battery" : "", f->here.low_power == 1 ? "; low-power mode" : "");
    if (slowed || f->here.on_battery == 1 || f->here.low_power == 1)
        c->verdict = f->slower_ms > 0 ? likely : ruled_out;
    else if (counted || *f->here.thermal)
        c->verdict = ruled_out;
}

/* A line of metrics, as a run writes it. */
static double line_ms(const char *dir)
{
    enum { LINES = 100 };
    char path[AN_CKPT_PATH_BYTES + 64], line[400];
    an_jsonl j;
    an_err unused = {0};
    an_scratch scratch;
    if (an_scratch_open(&unused, dir, &scratch) != AN_OK) return NAN;
    snprintf(path, sizeof path, "%s/lines", scratch.path);
    memset(line, ' ', sizeof line - 1);
    line[0] = '{', line[sizeof line - 2] = '}', line[sizeof line - 1] = 0;
    if (an_jsonl_open(&unused, path, &j) != AN_OK) return an_scratch_close(&scratch), (double)NAN;
    const double begin = an_seconds();
    bool done = true;
    for (int i = 0; i < LINES && done; i++) done = an_jsonl_write(&unused, &j, line) == AN_OK;
    const double ms = 1e3 * (an_seconds() - begin) / LINES;
    an_jsonl_close(&j);
    an_scratch_close(&scratch);
    return done ? ms : (double)NAN;
}

static void logging(const facts *f, an_cause *c)
{
    char every[AN_RUN_SETTING_BYTES], verify[AN_RUN_SETTING_BYTES], dump[AN_RUN_SETTING_BYTES];
    an_run_setting(f->run, "log_interval", every);
    an_run_setting(f->run, "verify", verify);
    an_run_setting(f->run, "dump", dump);
    const double there = *every ? strtod(every, NULL) : (double)NAN, ms = line_ms(f->dir);
    const bool debugged = strcmp(verify, "true") == 0 || *dump;
    if (*every) SAY(c->there, "a line every %.12s updates%s", every, debugged ? ", with verify or dump on" : "");
    SAY(c->here, "a line every %lld updates; a line takes %.2g ms", (long long)f->interval, ms);
    c->verdict = by_share(f, ms / (double)f->interval - ms / there);
}

static void variables(const facts *f, an_cause *c)
{
    const json_t *environment = json_object_get(f->run->begin, "environment");
    const char *threads = an_run_text(environment, "OMP_NUM_THREADS"), *here = getenv("OMP_NUM_THREADS");
    char set[AN_RUN_SETTING_BYTES];
    an_run_setting(f->run, "threads", set);
    SAY(c->there, "%zu that steer a run; OMP_NUM_THREADS=%.16s, threads=%.16s", json_object_size(environment), threads,
        set);
    SAY(c->here, "OMP_NUM_THREADS=%.16s; all of them: anneal handoff FILE --diff", here ? here : "");
    const bool decided = strcmp(set, "0") != 0; /* by the setting, and by no variable */
    c->verdict = decided || strcmp(threads, here ? here : "") == 0 ? ruled_out : likely;
}

void an_causes_measure(const an_handoff *h, const an_smoke *s, const an_run_record *run, const char *dir,
                       int64_t throttled, int64_t interval, an_cause out[AN_CAUSES])
{
    static const struct {
        const char *name;
        void (*measure)(const facts *f, an_cause *c);
    } candidates[AN_CAUSES] = {{"processor", processor},  {"I/O path", io_path},   {"cache", kernel_cache},
                               {"compiler", compiler_of}, {"load", load},          {"thermals", thermals},
                               {"logging", logging},      {"variables", variables}};
    facts f = {.h = h,
               .s = s,
               .run = run,
               .dir = dir,
               .there = json_object_get(run->begin, "facts"),
               .slower_ms = s->ms - h->ms,
               .throttled = throttled,
               .interval = interval};
    an_monitor_facts(&f.here);
    for (size_t i = 0; i < AN_CAUSES; i++) {
        out[i] = (an_cause){.name = candidates[i].name, .verdict = not_known, .there = "not told"};
        candidates[i].measure(&f, &out[i]);
        an_text_printable(out[i].there, strlen(out[i].there));
        an_text_printable(out[i].here, strlen(out[i].here));
    }
}
