/* cmd_selftest.c: tests whether this machine computes correctly: every kernel of a model, and on a GPU its driver,
 * speeds and training compared with the CPU's. Exit code 3: there is a fault; if a part could not run, its error's code.
 *
 * Owns:      the report: a text for people, written line by line, so that what was found before a crash is in it. */
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "tools/doctor.h"
#include "tools/selftest.h"
#include "train/run_dir.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct selftest_values {
    char report[AN_CONFIG_TEXT_BYTES];
    int64_t steps, size;
} selftest_values;

#define AT(name) offsetof(selftest_values, name)
static const an_config_field fields[] = {
    {"report", AN_CONFIG_TEXT, AT(report), "", 0, 0, NULL, "file for all that is found, to send back; empty: none"},
    {"steps", AN_CONFIG_INT, AT(steps), "-1", -1, 1e6, NULL,
     "updates to train beside the CPU; -1: 50 on a GPU that is named, else none"},
    {"size", AN_CONFIG_INT, AT(size), "-1", -1, 65536, NULL,
     "side of the products to time; 0: nothing is timed; -1: 1024 on a GPU that is named, else 0"},
};
const an_config an_selftest_keys = {.fields = fields, .n = AN_COUNT(fields)};

typedef struct table {
    bool json, quiet, heads; /* heads: the line above a part's kernels has been printed */
    char part[96];
    FILE *report;          /* NULL: none */
    an_text checks, lines; /* of JSON */
    an_text faults;        /* repeated at the report's end */
    const an_args *args;
    an_bar *bar; /* of the part that runs; NULL: none yet */
} table;

/* ---- text for people, on the screen and in the report */

__attribute__((format(printf, 3, 4))) static void put(table *t, bool fault, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    if (!t->json && (!t->quiet || fault)) {
        an_bar_hide();
        vprintf(format, arguments);
        fflush(stdout);
    }
    if (t->report) {
        vfprintf(t->report, format, again);
        fflush(t->report);
    }
    va_end(again);
    va_end(arguments);
}

/* ---- a crash: reports which kernel was running */

static int crash_fd = -1;
static char crash_words[160];

static void crashed(int number)
{
    const char digits[3] = {(char)('0' + number / 10), (char)('0' + number % 10), '\n'};
    ssize_t wrote = write(crash_fd, crash_words, strlen(crash_words));
    wrote += write(crash_fd, digits, sizeof digits);
    (void)wrote;
    signal(number, SIG_DFL);
    raise(number);
}

static void expect_crashes(const table *t)
{
    static const int signals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP, SIGTERM, SIGINT};
    crash_fd = fileno(t->report);
    for (size_t i = 0; i < AN_COUNT(signals); i++) signal(signals[i], crashed);
}

/* ---- findings */

static void hear_progress(void *user, const char *unit, int64_t done, int64_t all)
{
    table *t = user;
    if (!t->bar) t->bar = an_bar_open(t->args, "selftest", unit, NULL, NULL);
    an_bar_tell(t->bar, done, all);
}

static void hear_part(void *user, const char *title)
{
    table *t = user;
    an_bar_close(t->bar);
    t->bar = NULL;
    snprintf(t->part, sizeof t->part, "%s", title);
    snprintf(crash_words, sizeof crash_words, "\nFAULT   %s: the program was ended here by signal ", title);
    t->heads = false;
    put(t, false, "\n-- %s\n", title);
}

static void hear_line(void *user, const char *what, const char *found, bool fault)
{
    table *t = user;
    put(t, fault, "%s%s: %s\n", fault ? "FAULT   " : "", what, found);
    if (fault) an_text_printf(&t->faults, "FAULT   %s: %s: %s\n", t->part, what, found);
    an_text_puts(&t->lines, t->lines.len ? ",{\"part\":" : "{\"part\":");
    an_json_put(&t->lines, t->part);
    an_text_puts(&t->lines, ",\"what\":");
    an_json_put(&t->lines, what);
    an_text_puts(&t->lines, ",\"found\":");
    an_json_put(&t->lines, found);
    an_text_printf(&t->lines, ",\"fault\":%s}", fault ? "true" : "false");
}

static void hear_kernel(void *user, const an_kernel_check *k)
{
    table *t = user;
    const bool fault = k->fault[0] != 0;
    const char *verdict = fault ? "WRONG" : k->skipped[0] ? "skipped" : "good", *why = fault ? k->fault : k->skipped;
    an_text_puts(&t->checks, t->checks.len ? ",{\"kernel\":" : "{\"kernel\":");
    an_json_put(&t->checks, k->kernel);
    an_text_printf(&t->checks, ",\"kind\":\"%s\",\"launches\":%d,\"elements\":%lld,\"verdict\":\"%s\"", k->kind,
                   k->launches, (long long)k->elements, verdict);
    an_put_json(&t->checks, "worst", k->worst);
    if (*why) {
        an_text_puts(&t->checks, ",\"why\":");
        an_json_put(&t->checks, why);
    }
    an_text_puts(&t->checks, "}");
    if (!t->heads) put(t, false, "verdict kind   launches  elements   worst  kernel (worst: 1 is what is allowed)\n");
    t->heads = true;
    put(t, *why, "%-8s%-11s%5d %9lld %7.3f  %s\n", verdict, k->kind, k->launches, (long long)k->elements, k->worst,
        k->kernel);
    if (*why) put(t, true, "        %s\n", why);
    if (fault) an_text_printf(&t->faults, "FAULT   %s: %s: %s\n", t->part, k->kernel, why);
}

/* ---- the report's beginning and end */

static an_status open_report(an_err *err, table *t, const an_train_config *c, const char *path)
{
    an_text facts = {0}, settings = {0};
    an_system_info os;
    char now[40];
    const time_t seconds = time(NULL);
    if (!(t->report = fopen(path, "w"))) return an_fail(err, AN_E_IO, "%s: %s", path, strerror(errno));
    expect_crashes(t);
    an_system_info_read(&os);
    an_system_info_json(&os, &facts);
    an_train_config_yaml(c, &settings);
    strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S UTC", gmtime(&seconds));
    fprintf(t->report,
            "anneal selftest: %s on %s\nversion: %s %s, compiled by " AN_COMPILER "\ntime: %s\n\n-- machine\n",
            c->preset, c->device, AN_VERSION, an_commit, now);
    for (const char *p = facts.data ? facts.data : ""; *p; p++) { /* a fact a line */
        if (*p == '{' || *p == '}') continue;
        fputc(*p == ',' && p[1] == '"' ? '\n' : *p, t->report);
    }
    fprintf(t->report, "\n\n-- settings\n%s", settings.data ? settings.data : "");
    fflush(t->report);
    an_text_free(&facts);
    an_text_free(&settings);
    return AN_OK;
}

static an_status close_report(an_err *err, table *t, const char *path, const char *verdict)
{
    fprintf(t->report, "\n-- verdict\n%s%s\n", t->faults.data ? t->faults.data : "", verdict);
    const bool written = !ferror(t->report), closed = fclose(t->report) == 0;
    if (written && closed) return AN_OK;
    return an_fail(err, AN_E_IO, "%s: the report could not be written whole: is the disk full?", path);
}

/* ---- the command */

static an_status settle(an_err *err, const an_args *args, an_train_config *c, selftest_values *v)
{
    an_train_config chosen; /* for its device: on a GPU another model is the default */
    AN_TRY(an_train_config_open(err, args->n_words ? args->words[0] : "demo", c));
    AN_TRY(an_config_defaults(err, &an_selftest_keys, v));
    AN_TRY(an_args_apply_run(err, args, &an_selftest_keys, v, c));
    AN_TRY(an_run_dir_check_output(err, v->report));
    an_device_facts device = {0};
    const bool gpu = strcmp(c->device, "auto") && an_device_find(c->device, &device) && device.runs &&
                     device.gpu; /* named: all that there is; found: what takes seconds */
    if (gpu && !args->n_words) {
        AN_TRY(an_train_config_open(err, "shakespeare_char", &chosen));
        *c = chosen;
        AN_TRY(an_args_apply_run(err, args, &an_selftest_keys, v, c));
    }
    if (strcmp(c->device, "auto") == 0) snprintf(c->device, sizeof c->device, "%s", an_cli_device("auto"));
    if (v->steps < 0) v->steps = gpu ? 50 : 0;
    if (v->size < 0) v->size = gpu ? 1024 : 0;
    return AN_OK;
}

static an_status print_verdict(an_err *err, table *t, const an_train_config *c, const an_selftest_result *r,
                               const char *verdict)
{
    an_text out = {0};
    if (t->json) {
        an_text_puts(&out, "{\"preset\":");
        an_json_put(&out, c->preset);
        an_text_puts(&out, ",\"device\":");
        an_json_put(&out, c->device);
        an_text_printf(&out, ",\"kernels\":%d,\"faults\":%d,\"skipped\":%d,\"elements\":%lld,\"checks\":[%s]",
                       r->kernels.kernels, r->faults, r->kernels.skipped, (long long)r->kernels.elements,
                       t->checks.data ? t->checks.data : "");
        an_text_printf(&out, ",\"lines\":[%s]}", t->lines.data ? t->lines.data : "");
        out.failed |= t->checks.failed || t->lines.failed;
    } else {
        an_text_puts(&out, verdict);
    }
    return an_print_line(err, &out);
}

an_status an_cmd_selftest(an_err *err, const an_args *args, int *exit_code)
{
    an_train_config c;
    selftest_values v;
    an_selftest_result r;
    char verdict[400];
    table t = {.json = args->json, .quiet = args->quiet, .args = args};
    AN_TRY(settle(err, args, &c, &v));
    AN_TRY(an_train_config_check(err, &c));
    if (v.report[0]) AN_TRY(open_report(err, &t, &c, v.report));
    an_selftest(&c, &(an_selftest_options){.steps = v.steps, .size = v.size},
                &(an_selftest_listener){hear_part, hear_line, hear_kernel, hear_progress, &t}, &r);
    an_bar_close(t.bar);
    snprintf(verdict, sizeof verdict, "%.200s on %.40s: %d kernels, %lld elements compared, %d skipped: %s", c.preset,
             c.device, r.kernels.kernels, (long long)r.kernels.elements, r.kernels.skipped,
             r.faults ? "SOMETHING IS WRONG, see above" : "all as the oracle has them");
    if (r.faults) *exit_code = AN_EXIT_NUMERIC;
    an_status status = t.report ? close_report(err, &t, v.report, verdict) : AN_OK;
    if (status == AN_OK) status = print_verdict(err, &t, &c, &r, verdict);
    an_text_free(&t.checks);
    an_text_free(&t.lines);
    an_text_free(&t.faults);
    if (status == AN_OK && r.failed.code != AN_OK) status = an_fail(err, r.failed.code, "%s", r.failed.text);
    return status;
}
