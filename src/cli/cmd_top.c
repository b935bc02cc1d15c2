/* cmd_top.c: top: this machine and the runs that train on it, from moment to moment. Reads what any user may read, and the
 * runs' own lines of metrics: nothing here makes a device wait. */
#define _DEFAULT_SOURCE
#include "cli/background_runs.h"
#include "platform/gpu_sensors.h"
#include "platform/platform.h"
#include "report/machine_monitor.h"
#include "report/run_record.h"
#include "train/run_dir.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct top_values {
    bool once;
    double seconds;
} top_values;
static const an_config_field top_fields[] = {
    {"once", AN_CONFIG_BOOL, offsetof(top_values, once), "false", 0, 0, NULL, "print one look and end, as --json does"},
    {"seconds", AN_CONFIG_FLOAT, offsetof(top_values, seconds), "2", 0.1, 3600, NULL, "between two looks"},
};
const an_config an_top_keys = {.fields = top_fields, .n = AN_COUNT(top_fields)};

enum { MOST_RUNS = 64, TAIL_BYTES = 65536 };

typedef struct top_run {
    char dir[AN_CKPT_PATH_BYTES];
    int pid;                            /* 0: not told */
    double cpu_s, rss_bytes;            /* of the process; NaN: not told */
    double cpu;                         /* processors in use, 1 is one of them */
    double step, loss, ms, units_per_s; /* of the last line of metrics */
    double live_bytes, gpu_busy;
    char unit[24];
} top_run;

typedef struct look {
    an_sensor_sample sample;
    an_system_info machine;
    top_run run[MOST_RUNS];
    int n;
} look;

/* ---- runs */

static void add_run(void *arg, int pid, const char *folder)
{
    look *l = arg;
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->run[i].dir, folder) == 0) return;
    if (l->n == MOST_RUNS || strlen(folder) >= AN_CKPT_PATH_BYTES) return;
    top_run *r = &l->run[l->n++];
    *r = (top_run){.pid = pid, .cpu_s = NAN, .rss_bytes = NAN, .cpu = NAN};
    snprintf(r->dir, sizeof r->dir, "%s", folder);
    if (pid) (void)an_process_usage("", pid, &r->cpu_s, &r->rss_bytes);
}

/* Runs in the background that the list of processes does not show: other systems than Linux. */
static void add_listed(look *l)
{
    char list[AN_STATE_PATH_BYTES], path[AN_STATE_PATH_BYTES + 300];
    DIR *d = an_background_list_dir(list) ? opendir(list) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *dir = NULL;
        size_t bytes;
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/%s", list, e->d_name);
        if (an_file_read(NULL, path, AN_CKPT_PATH_BYTES, &dir, &bytes) == AN_OK && an_run_dir_is_locked(dir))
            add_run(l, 0, dir);
        free(dir);
    }
    if (d) closedir(d);
}

/* The last whole line of the metrics: only the file's end is read, however long it is. */
static json_t *last_line(const char *dir)
{
    static char tail[TAIL_BYTES + 1];
    char path[AN_CKPT_PATH_BYTES + 32];
    struct stat info;
    int fd = -1;
    json_t *line = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    if (an_file_open(NULL, path, O_RDONLY, &fd) != AN_OK || fd < 0) return NULL;
    const off_t from = fstat(fd, &info) == 0 && info.st_size > TAIL_BYTES ? info.st_size - TAIL_BYTES : 0;
    const ssize_t got = pread(fd, tail, TAIL_BYTES, from);
    close(fd);
    if (got <= 0) return NULL;
    tail[got] = 0;
    char *end = strrchr(tail, '\n');
    if (!end) return NULL;
    *end = 0;
    const char *begin = strrchr(tail, '\n');
    begin = begin ? begin + 1 : tail;
    return an_json_parse(NULL, path, 0, begin, (size_t)(end - begin), &line) == AN_OK ? line : NULL;
}

static void read_numbers(top_run *r)
{
    json_t *line = last_line(r->dir);
    r->step = an_run_number(line, "step");
    r->loss = an_run_number(line, "loss");
    r->ms = an_run_number(line, "ms");
    r->units_per_s = an_run_number(line, "units_per_s");
    r->live_bytes = an_run_number(line, "live_bytes");
    r->gpu_busy = an_run_number(line, "gpu_busy");
    if (isnan(r->rss_bytes)) r->rss_bytes = an_run_number(line, "rss_bytes");
    snprintf(r->unit, sizeof r->unit, "%s", *an_run_text(line, "unit") ? an_run_text(line, "unit") : "unit");
    an_text_printable(r->unit, strlen(r->unit));
    json_decref(line);
}

static void take_look(look *l, const look *before)
{
    const double since = before ? before->sample.seconds : 0;
    l->n = 0;
    an_sensors_sample("", &l->sample);
    (void)an_processes_each("", "anneal", add_run, l);
    add_listed(l);
    if (before)
        l->machine = before->machine, an_monitor_update(&l->machine);
    else
        an_monitor_facts(&l->machine);
    for (int i = 0; i < l->n; i++) {
        top_run *r = &l->run[i];
        read_numbers(r);
        for (int k = 0; before && r->pid && k < before->n; k++)
            if (before->run[k].pid == r->pid) r->cpu = (r->cpu_s - before->run[k].cpu_s) / (l->sample.seconds - since);
    }
}

/* ---- output */

static void put_sensor(an_text *out, const char *name, const an_sensor *s, double times, const char *unit)
{
    an_text_printf(out, "\n%-10s", name);
    if (isnan(s->value))
        an_text_printf(out, "unreadable: %s", s->why);
    else
        an_text_printf(out, "%.1f %s%s%s%s", times * s->value, unit, *s->name ? " (" : "", s->name,
                       *s->name ? ")" : "");
}

static void json_sensor(an_text *out, const char *name, const an_sensor *s)
{
    an_json_put_number(out, name, s->value);
    if (!isnan(s->value)) return;
    an_text_printf(out, ",\"%s_why\":", name);
    an_json_put(out, s->why);
}

/* Watts of all that is known, over the units of all runs; NaN where either is unknown. */
static double joules_a_unit(const look *l, const an_sensors *s, const an_gpu_sensors *gpu, int n_gpus)
{
    double units = 0, watts = s->watts.value;
    for (int i = 0; i < l->n; i++)
        if (l->run[i].units_per_s > 0) units += l->run[i].units_per_s;
    for (int i = 0; i < n_gpus; i++)
        if (!isnan(gpu[i].watts.value)) watts = (isnan(watts) ? 0 : watts) + gpu[i].watts.value;
    return units > 0 ? watts / units : (double)NAN;
}

static void put_machine(const look *l, const an_sensors *s, an_text *out)
{
    const an_system_info *m = &l->machine;
    char a[16], b[16], c[16], d[16];
    const uint64_t swap = m->swap_bytes > m->swap_free_bytes ? m->swap_bytes - m->swap_free_bytes : 0;
    an_text_printf(out, "%s, %d processors", *m->cpu ? m->cpu : "processor unknown", m->threads);
    put_sensor(out, "CPU", &s->cpu_busy, 100, "% busy");
    an_text_printf(out, "\nmemory    %s of %s free; swap %s of %s in use", an_bytes_text((double)m->free_bytes, a),
                   an_bytes_text((double)m->ram_bytes, b), an_bytes_text((double)swap, c),
                   an_bytes_text((double)m->swap_bytes, d));
    put_sensor(out, "heat", &s->temperature, 1, "degrees C");
    put_sensor(out, "power", &s->watts, 1, "W");
    if (an_neural_engine()) an_text_printf(out, "\nNeural    %s", an_neural_engine());
}

static void put_gpus(const an_gpu_sensors *gpu, int n, const char *why, an_text *out)
{
    if (n == 0) an_text_printf(out, "\nGPU       %s", *why ? why : "none is shown");
    for (int i = 0; i < n; i++) {
        char used[16], total[16];
        an_text_printf(out, "\nGPU %d     %s", i, gpu[i].name);
        put_sensor(out, "  busy", &gpu[i].busy, 100, "%");
        if (!isnan(gpu[i].used_bytes.value))
            an_text_printf(out, "\n  memory  %s of %s", an_bytes_text(gpu[i].used_bytes.value, used),
                           an_bytes_text(gpu[i].total_bytes.value, total));
        put_sensor(out, "  heat", &gpu[i].temperature, 1, "degrees C");
        put_sensor(out, "  power", &gpu[i].watts, 1, "W");
        if (isfinite(gpu[i].processes.value))
            an_text_printf(out, "\n  programs that compute on it: %.0f", gpu[i].processes.value);
    }
}

static void put_runs(const look *l, double joules, an_text *out)
{
    if (l->n == 0) an_text_puts(out, "\nno run trains here");
    for (int i = 0; i < l->n; i++) {
        const top_run *r = &l->run[i];
        char bytes[16];
        an_text_printf(out, "\nrun       %s\n  ", r->dir);
        if (isnan(r->step))
            an_text_puts(out, "no update is logged yet");
        else
            an_text_printf(out, "update %.0f, loss %.4g", r->step + 1, r->loss);
        if (!isnan(r->ms)) an_text_printf(out, ", %.4g ms", r->ms);
        if (!isnan(r->units_per_s)) an_text_printf(out, ", %.4g %ss/s", r->units_per_s, r->unit);
        if (!isnan(r->cpu)) an_text_printf(out, ", %.2f processors", r->cpu);
        if (!isnan(r->rss_bytes)) an_text_printf(out, ", %s resident", an_bytes_text(r->rss_bytes, bytes));
        if (!isnan(r->gpu_busy)) an_text_printf(out, ", its GPU %.0f %% busy", 100 * r->gpu_busy);
    }
    if (!isnan(joules)) an_text_printf(out, "\nenergy    %.3g J for each unit of all runs", joules);
}

static void json_look(const look *l, const an_sensors *s, const an_gpu_sensors *gpu, int n_gpus, const char *why,
                      an_text *out)
{
    const an_system_info *m = &l->machine;
    an_text_printf(out, "{\"processors\":%d", m->threads);
    json_sensor(out, "cpu_busy", &s->cpu_busy);
    json_sensor(out, "temperature_c", &s->temperature);
    json_sensor(out, "watts", &s->watts);
    an_json_put_number(out, "ram_bytes", (double)m->ram_bytes);
    an_json_put_number(out, "free_bytes", (double)m->free_bytes);
    an_json_put_number(out, "swap_bytes", (double)(m->swap_bytes - AN_MIN(m->swap_free_bytes, m->swap_bytes)));
    an_json_put_number(out, "joules_per_unit", joules_a_unit(l, s, gpu, n_gpus));
    an_text_puts(out, ",\"gpus\":[");
    for (int i = 0; i < n_gpus; i++) {
        an_text_puts(out, i ? ",{\"name\":" : "{\"name\":");
        an_json_put(out, gpu[i].name);
        json_sensor(out, "busy", &gpu[i].busy);
        json_sensor(out, "used_bytes", &gpu[i].used_bytes);
        json_sensor(out, "total_bytes", &gpu[i].total_bytes);
        json_sensor(out, "temperature_c", &gpu[i].temperature);
        json_sensor(out, "watts", &gpu[i].watts);
        json_sensor(out, "processes", &gpu[i].processes);
        an_text_puts(out, "}");
    }
    an_text_puts(out, "],\"gpus_why\":");
    an_json_put(out, why);
    an_text_puts(out, ",\"runs\":[");
    for (int i = 0; i < l->n; i++) {
        const top_run *r = &l->run[i];
        an_text_puts(out, i ? ",{\"run\":" : "{\"run\":");
        an_json_put(out, r->dir);
        an_text_printf(out, ",\"pid\":%d,\"unit\":", r->pid);
        an_json_put(out, r->unit);
        an_json_put_number(out, "step", r->step);
        an_json_put_number(out, "loss", r->loss);
        an_json_put_number(out, "ms", r->ms);
        an_json_put_number(out, "units_per_s", r->units_per_s);
        an_json_put_number(out, "cpu", r->cpu);
        an_json_put_number(out, "rss_bytes", r->rss_bytes);
        an_json_put_number(out, "live_bytes", r->live_bytes);
        an_json_put_number(out, "gpu_busy", r->gpu_busy);
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]}");
}

/* ---- the command */

static an_status show(an_err *err, const look *a, const look *b, const an_gpu_watch *watch, const char *why, bool json)
{
    static an_gpu_sensors gpu[AN_GPU_SENSORS_MOST];
    an_sensors s;
    an_text out = {0};
    const int n = an_gpu_watch_read(watch, gpu);
    an_sensors_between(&a->sample, &b->sample, &s);
    if (json) {
        json_look(b, &s, gpu, n, why, &out);
    } else {
        put_machine(b, &s, &out);
        put_gpus(gpu, n, why, &out);
        put_runs(b, joules_a_unit(b, &s, gpu, n), &out);
        if (out.data) an_text_printable(out.data, out.len);
    }
    return an_print_line(err, &out);
}

an_status an_cmd_top(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    top_values v;
    char why[AN_SENSOR_WHY_BYTES];
    AN_TRY(an_config_defaults(err, &an_top_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_top_keys, &v}, 1));
    look *l = calloc(2, sizeof *l);
    if (!l) return an_fail_nomem(err, "two looks at the machine", 2 * sizeof *l);
    const bool once = v.once || args->json, terminal = isatty(STDOUT_FILENO) == 1;
    an_gpu_watch *watch = an_gpu_watch_open(why);
    an_status status = AN_OK;
    an_interrupt_catch();
    take_look(&l[0], NULL);
    for (int now = 1;; now ^= 1) {
        an_nap(once ? AN_MIN(v.seconds, 1) : v.seconds);
        if (an_interrupt_seen(NULL)) break;
        take_look(&l[now], &l[now ^ 1]);
        if (terminal && !once) fputs("\033[H\033[J", stdout);
        status = show(err, &l[now ^ 1], &l[now], watch, why, args->json);
        if (status == AN_OK && fflush(stdout) != 0) status = an_fail(err, AN_E_IO, "stdout cannot be written to");
        if (once || status != AN_OK) break;
    }
    an_gpu_watch_close(watch);
    free(l);
    return status;
}
