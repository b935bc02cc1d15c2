/* sensors.c: see sensors.h. Linux: Documentation/filesystems/proc.rst, hwmon/sysfs-interface.rst and
 * ABI/testing/sysfs-class-powercap of the kernel. */
#define _DEFAULT_SOURCE
#include "platform/sensors.h"
#include "platform/platform.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1200, LINE_BYTES = 4096, MOST_ENTRIES = 128 };

/* ---- small files */

/* The beginning of a file; false, with errno, when it cannot be read. */
__attribute__((format(printf, 2, 3))) static bool read_text(char out[LINE_BYTES], const char *format, ...)
{
    char path[PATH_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    out[0] = 0;
    if (n < 0 || n >= (int)sizeof path) return errno = ENAMETOOLONG, false;
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const size_t got = fread(out, 1, LINE_BYTES - 1, f);
    const bool failed = ferror(f) != 0;
    out[got] = 0;
    fclose(f);
    return !failed && got > 0;
}

/* A number in such a file; NaN when there is none. */
static double number_of(const char *text)
{
    char *end;
    const double v = strtod(text, &end);
    return end == text || !isfinite(v) ? (double)NAN : v;
}

__attribute__((format(printf, 2, 3))) static void explain(an_sensor *s, const char *format, ...)
{
    va_list arguments;
    s->value = NAN;
    va_start(arguments, format);
    vsnprintf(s->why, sizeof s->why, format, arguments);
    va_end(arguments);
}

static void set(an_sensor *s, double value, const char *name)
{
    s->value = value;
    s->why[0] = 0;
    snprintf(s->name, sizeof s->name, "%.*s", (int)strcspn(name, "\n"), name);
}

/* ---- counters */

static void read_processors(const char *root, an_sensor_sample *out)
{
    char text[LINE_BYTES];
    double t[8] = {0};
    out->busy = out->total = NAN;
    if (!read_text(text, "%s/proc/stat", root) || strncmp(text, "cpu ", 4) != 0) return;
    char *at = text + 4;
    for (size_t i = 0; i < AN_COUNT(t); i++) t[i] = strtod(at, &at);
    const double idle = t[3] + t[4]; /* user nice system idle iowait irq softirq steal */
    out->total = 0;
    for (size_t i = 0; i < AN_COUNT(t); i++) out->total += t[i];
    out->busy = out->total - idle;
}

static bool of_the_processor(const char *chip)
{
    static const char *const chips[] = {"coretemp",    "k10temp",   "zenpower", "cpu_thermal",
                                        "soc_thermal", "apple_soc", "acpitz"};
    for (size_t i = 0; i < AN_COUNT(chips); i++)
        if (strncmp(chip, chips[i], strlen(chips[i])) == 0) return true;
    return false;
}

static void hotter(an_sensor *s, double millidegrees, const char *name)
{
    const double degrees = millidegrees / 1000;
    if (!(degrees > -50 && degrees < 200)) return; /* no sensor there */
    if (!(s->value >= degrees)) set(s, degrees, name);
}

static void read_temperature(const char *root, an_sensor *out)
{
    char text[LINE_BYTES], chip[LINE_BYTES];
    explain(out, "no sensor of the processor below /sys/class/hwmon or /sys/class/thermal%s",
            *root ? "" : ": a virtual machine or container does not show its host's");
    for (int h = 0; h < MOST_ENTRIES; h++) {
        if (!read_text(chip, "%s/sys/class/hwmon/hwmon%d/name", root, h)) continue;
        for (int i = 1; i < 32 && of_the_processor(chip); i++)
            if (read_text(text, "%s/sys/class/hwmon/hwmon%d/temp%d_input", root, h, i))
                hotter(out, number_of(text), chip);
    }
    for (int z = 0; z < MOST_ENTRIES && isnan(out->value); z++)
        if (read_text(text, "%s/sys/class/thermal/thermal_zone%d/temp", root, z))
            hotter(out, number_of(text), "thermal zone");
}

/* The energy counter of the processor's package, which only root may read on most systems since 2020 (CVE-2020-8694). */
static void read_energy(const char *root, an_sensor_sample *out)
{
    char text[LINE_BYTES];
    out->joules = NAN;
    if (read_text(text, "%s/sys/class/powercap/intel-rapl:0/energy_uj", root)) {
        out->joules = 1e-6 * number_of(text);
        set(&out->energy, out->joules, "RAPL package");
    } else if (errno == EACCES) {
        explain(&out->energy, "only root may read the processor's energy counter (powercap) here");
    } else {
        explain(&out->energy, "the system shows no energy counter of the processor (powercap)");
    }
}

static void read_watts(const char *root, an_sensor *out)
{
    char text[LINE_BYTES], chip[LINE_BYTES];
    explain(out, "no power sensor");
    for (int h = 0; h < MOST_ENTRIES && isnan(out->value); h++) {
        if (!read_text(chip, "%s/sys/class/hwmon/hwmon%d/name", root, h)) continue;
        if (read_text(text, "%s/sys/class/hwmon/hwmon%d/power1_average", root, h) ||
            read_text(text, "%s/sys/class/hwmon/hwmon%d/power1_input", root, h))
            set(out, 1e-6 * number_of(text), chip);
    }
    for (int b = 0; b < 4 && isnan(out->value); b++)
        if (read_text(text, "%s/sys/class/power_supply/BAT%d/status", root, b) &&
            strncmp(text, "Discharging", 11) == 0 &&
            read_text(text, "%s/sys/class/power_supply/BAT%d/power_now", root, b))
            set(out, 1e-6 * number_of(text), "battery, the whole machine");
}

void an_sensors_sample(const char *root, an_sensor_sample *out)
{
    memset(out, 0, sizeof *out);
    out->seconds = an_seconds();
    read_processors(root, out);
    read_temperature(root, &out->temperature);
    read_energy(root, out);
    read_watts(root, &out->watts_now);
}

void an_sensors_between(const an_sensor_sample *a, const an_sensor_sample *b, an_sensors *out)
{
    const double s = b->seconds - a->seconds, ticks = b->total - a->total;
    memset(out, 0, sizeof *out);
    if (ticks > 0)
        set(&out->cpu_busy, AN_MIN(AN_MAX((b->busy - a->busy) / ticks, 0), 1), "/proc/stat");
    else
        explain(&out->cpu_busy, isnan(b->total) ? "this system has no /proc/stat" : "too short a time to tell");
    out->temperature = b->temperature;
    out->watts = b->watts_now;
    const double joules = b->joules - a->joules;
    if (isnan(out->watts.value) && s > 0 && joules >= 0)
        set(&out->watts, joules / s, "RAPL package");
    else if (isnan(out->watts.value)) /* the counter went back: it has wrapped */
        explain(&out->watts, "%s", *b->energy.why ? b->energy.why : "the energy counter began anew");
}

const char *an_neural_engine(void)
{
#ifdef __APPLE__
    return "not used by anneal; how busy it is only root may read (powermetrics)";
#else
    return NULL;
#endif
}

/* ---- processes */

bool an_process_usage(const char *root, int pid, double *cpu_s, double *rss_bytes)
{
    char text[LINE_BYTES];
    *cpu_s = *rss_bytes = NAN;
    if (!read_text(text, "%s/proc/%d/stat", root, pid)) return false;
    const char *at = strrchr(text, ')'); /* the name between parentheses may hold anything */
    if (!at) return false;
    double field[22] = {
        0}; /* from the third on: state, ppid, ...; utime and stime are the 14th and 15th, rss the 24th */
    at += at[1] ? 3 : 1;
    for (size_t i = 1; i < AN_COUNT(field) && *at; i++) {
        char *end;
        field[i] = strtod(at, &end);
        if (end == at) return false;
        at = end;
    }
    const long ticks = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);
    *cpu_s = (field[11] + field[12]) / (double)(ticks > 0 ? ticks : 100);
    *rss_bytes = field[21] * (double)(page > 0 ? page : 4096);
    return true;
}

static bool locked_folder(const char *root, int pid, char out[PATH_BYTES])
{
    char dir[PATH_BYTES], path[PATH_BYTES + 300];
    static const char lock[] = "/.lock";
    snprintf(dir, sizeof dir, "%.600s/proc/%d/fd", root, pid);
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        if (!isdigit((unsigned char)*e->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        const ssize_t n = readlink(path, out, PATH_BYTES - 1);
        if (n < (ssize_t)sizeof lock) continue;
        out[n] = 0;
        found = strcmp(out + n - (sizeof lock - 1), lock) == 0;
        if (found) out[n - (ssize_t)(sizeof lock - 1)] = 0;
    }
    if (d) closedir(d);
    return found;
}

bool an_processes_each(const char *root, const char *program, an_process_fn *take, void *arg)
{
    char path[PATH_BYTES], text[LINE_BYTES], folder[PATH_BYTES];
    snprintf(path, sizeof path, "%.600s/proc", root);
    DIR *d = opendir(path);
    if (!d) return false;
    for (struct dirent *e; (e = readdir(d));) {
        const int pid = isdigit((unsigned char)*e->d_name) ? atoi(e->d_name) : 0;
        if (pid <= 0 || !read_text(text, "%s/proc/%d/comm", root, pid)) continue;
        text[strcspn(text, "\n")] = 0;
        if (strcmp(text, program) == 0 && locked_folder(root, pid, folder)) take(arg, pid, folder);
    }
    closedir(d);
    return true;
}
