/* metrics.c: see metrics.h. Lines are built with an_text, one write() a line (io/formats/jsonl.h). */
#define _DEFAULT_SOURCE
#include "report/metrics.h"
#include "report/device_check.h"
#include "report/machine_monitor.h"
#include "report/surroundings.h"
#include "io/formats/json.h"
#include "platform/platform.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static an_status path_in(an_err *err, const char *dir, const char *name, char out[AN_CKPT_PATH_BYTES])
{
    int n = snprintf(out, AN_CKPT_PATH_BYTES, "%s/%s", dir, name);
    return n > 0 && n < AN_CKPT_PATH_BYTES ? AN_OK
                                           : an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", dir);
}

static void put_if_known(an_text *out, const char *key, double value)
{
    if (isfinite(value)) an_json_put_number(out, key, value);
}

/* ,"key":"text", or null for text that is not UTF-8 (a folder's name may be): JSON cannot hold it. */
static void put_text(an_text *out, const char *key, const char *text)
{
    an_text_printf(out, ",\"%s\":", key);
    if (an_json_check_text(NULL, key, text) == AN_OK)
        an_json_put(out, text);
    else
        an_text_puts(out, "null");
}

static an_status write_line(an_err *err, an_jsonl *j, an_text *line)
{
    an_status status = line->failed ? an_fail_nomem(err, j->path, line->len) : an_jsonl_write(err, j, line->data);
    an_text_free(line);
    return status;
}

/* ---- metrics */

an_status an_metrics_open(an_err *err, const char *dir, int64_t step, an_jsonl *out)
{
    char path[AN_CKPT_PATH_BYTES];
    AN_TRY(path_in(err, dir, "metrics.jsonl", path));
    /* An evaluation before the first update is the line of update -1: a run that begins again repeats it. */
    AN_TRY(an_jsonl_drop_after(err, path, "step", step > 0 ? step - 1 : -2, NULL));
    return an_jsonl_open(err, path, out);
}

an_status an_metrics_write(an_err *err, an_jsonl *j, const an_metrics_line *m)
{
    an_text line = {0};
    an_text_printf(&line, "{\"step\":%lld", (long long)m->step);
    an_json_put_number(&line, "loss", m->loss);
    if (m->evaluated) an_json_put_number(&line, "val_loss", m->val_loss);
    if (m->evaluated && isfinite(m->train_loss)) an_json_put_number(&line, "train_loss", m->train_loss);
    an_json_put_number(&line, "lr", m->lr);
    an_json_put_number(&line, "grad_norm", m->norm);
    if (m->scale > 0) an_json_put_number(&line, "scale", m->scale);
    if (m->scale > 0) an_text_printf(&line, ",\"skipped\":%lld", (long long)m->skipped);
    an_json_put_number(&line, "ms", m->ms);
    if (strcmp(m->unit, "token") == 0) an_json_put_number(&line, "tokens_per_s", m->units_per_s);
    an_json_put_number(&line, "data_wait_ms", m->data_wait_ms);
    put_if_known(&line, "cpu_wait_ms", m->cpu_wait_ms);
    put_if_known(&line, "gpu_busy", m->gpu_busy);
    put_if_known(&line, "exchange_share", m->exchange_share);
    put_if_known(&line, "live_bytes", m->live_bytes);
    put_if_known(&line, "reserved_bytes", m->reserved_bytes);
    put_if_known(&line, "rss_bytes", m->rss_bytes);
    put_if_known(&line, "heap_bytes", m->heap_bytes);
    put_if_known(&line, "mapped_bytes", m->mapped_bytes);
    put_if_known(&line, "swap_bytes", m->swap_bytes);
    put_if_known(&line, "temperature_c", m->temperature_c);
    put_if_known(&line, "gpu_temperature_c", m->gpu_temperature_c);
    if (m->thermal && *m->thermal) put_text(&line, "thermal", m->thermal);
    put_if_known(&line, "plans", m->plans);
    put_text(&line, "unit", m->unit);
    an_json_put_number(&line, "units_per_s", m->units_per_s);
    for (const an_metrics_number *n = m->more; n->name; n++) an_json_put_number(&line, n->name, n->value);
    an_text_puts(&line, "}");
    return write_line(err, j, &line);
}

/* ---- the logbook */

static void begin_line(an_text *out, const char *event, const an_logbook *b)
{
    time_t now = time(NULL);
    struct tm utc;
    char text[32] = "";
    if (gmtime_r(&now, &utc)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    an_text_printf(out, "{\"event\":\"%s\",\"step\":%lld,\"time\":\"%s\",\"unix\":%lld", event, (long long)b->step,
                   text, (long long)now);
}

/* Ends and writes the line if status is AN_OK; frees it in any case. */
static an_status add_line(an_err *err, const an_logbook *b, an_text *line, an_status status)
{
    char path[AN_CKPT_PATH_BYTES];
    an_jsonl j;
    an_text_puts(line, "}");
    if (status == AN_OK) status = path_in(err, b->dir, "logbook.jsonl", path);
    if (status == AN_OK) status = an_jsonl_open(err, path, &j);
    if (status != AN_OK) {
        an_text_free(line);
        return status;
    }
    status = write_line(err, &j, line);
    an_jsonl_close(&j);
    return status;
}

void an_logbook_host(char out[256])
{
    struct utsname u;
    if (uname(&u) == 0)
        snprintf(out, 256, "%.100s %.40s", u.nodename, u.machine);
    else
        snprintf(out, 256, "unknown");
}

/* Whether a variable steers how a run computes, where it finds its parts, or how fast it is. */
static bool steers(const char *assignment)
{
    static const char *const begins[] = {"OMP_", "ANNEAL_", "PYTORCH_", "CUDA_", "NCCL_", "MTL_", "MALLOC_", "GOMP_"};
    static const char *const names[] = {
        "CC",         "DISABLE_COMPILE", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES",
        "PYTHONPATH", "TMPDIR",          "XDG_CACHE_HOME"};
    for (size_t i = 0; i < AN_COUNT(begins); i++)
        if (strncmp(assignment, begins[i], strlen(begins[i])) == 0) return true;
    for (size_t i = 0; i < AN_COUNT(names); i++)
        if (strncmp(assignment, names[i], strlen(names[i])) == 0 && assignment[strlen(names[i])] == '=') return true;
    return false;
}

static void put_environment(an_text *out)
{
    const char *comma = "";
    an_text_puts(out, ",\"environment\":{");
    for (char **e = environ; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        if (!equals || !steers(*e) || an_json_check_text(NULL, "", *e) != AN_OK) continue;
        an_text name = {0};
        an_text_putn(&name, *e, (size_t)(equals - *e));
        an_text_puts(out, comma);
        an_json_put(out, name.data ? name.data : "");
        an_text_puts(out, ":");
        an_json_put(out, equals + 1);
        out->failed |= name.failed;
        an_text_free(&name);
        comma = ",";
    }
    an_text_puts(out, "}");
}

static void put_data(const an_logbook *b, an_text *out)
{
    put_text(out, "data", b->data);
    an_text_printf(out, ",\"train_%s\":%lld,\"val_%s\":%lld", b->units, (long long)b->count[AN_TRAIN], b->units,
                   (long long)b->count[AN_VAL]);
    put_text(out, "train_xxh3", b->xxh3[AN_TRAIN]);
    put_text(out, "val_xxh3", b->xxh3[AN_VAL]);
    an_surroundings_put(b->data_built_in ? "" : b->data, b->disk, out);
    /* Batches are functions of (seed, step, sample): a loader's thread has no generator of its own to seed. */
    an_text_printf(out, ",\"workers\":%lld,\"worker_seeds\":\"none: a batch is a function of seed, step and sample\"",
                   (long long)b->workers);
}

void an_logbook_put_machine(const char *commit, an_text *out)
{
    an_system_info facts;
    struct utsname u;
    char host[256];
    if (uname(&u) == 0)
        an_text_printf(out, ",\"system\":\"%s %s\",\"machine\":\"%s\"", u.sysname, u.release, u.machine);
    an_logbook_host(host);
    put_text(out, "host", host);
    an_monitor_facts(&facts);
    an_text_puts(out, ",\"facts\":");
    an_system_info_json(&facts, out);
    an_text_printf(out, ",\"anneal\":\"%s\"", AN_VERSION);
    put_text(out, "commit", commit);
    put_text(out, "compiler", __VERSION__);
    put_environment(out);
}

static an_status put_device(an_err *err, const an_logbook *b, an_text *out)
{
    an_device_proof proof;
    an_device_facts facts;
    const an_options same = {.device = b->device, .threads = b->threads, .isa = *b->isa ? b->isa : NULL, .cc = "none"};
    const char *text = an_report_text(b->cx, "device");
    AN_TRY(an_prove_device(err, &same, b->dtype, &proof));
    put_text(out, "device", text ? text : b->device);
    if (an_device_isa(b->cx)) put_text(out, "isa", an_device_isa(b->cx));
    const bool gpu = an_device_opened(b->cx, &facts) && facts.gpu;
    an_text_printf(out, ",\"built\":%s,\"available\":%s,\"gpu\":%s", proof.built ? "true" : "false",
                   proof.available ? "true" : "false", gpu ? "true" : "false");
    put_text(out, "product_checked", proof.sentence);
    an_text_printf(out, ",\"dtype\":\"%s\",\"weights\":\"%s\",\"moments\":\"%s\"", an_dtype_text(b->dtype),
                   an_dtype_text(b->weights_dtype), an_dtype_text(b->moments_dtype));
    an_surroundings_put_policy(b->dtype, b->weights_dtype, b->moments_dtype, out);
    an_text_puts(out, ",\"deterministic\":true"); /* no other mode exists: the same bits for any number of threads */
    put_text(out, "mode", b->fused ? "fused" : "one kernel an operation");
    return AN_OK;
}

/* ---- earlier lines of the logbook: another machine, a clock that went back */

typedef struct past {
    char host[256]; /* of the last line that names one; "" when none does */
    int64_t latest; /* Unix time, of any line */
} past;

static an_status note_past(an_err *err, void *arg, const json_t *line)
{
    (void)err;
    past *p = arg;
    const char *name = json_string_value(json_object_get(line, "host"));
    if (name) snprintf(p->host, sizeof p->host, "%.250s", name);
    p->latest = AN_MAX(p->latest, (int64_t)json_integer_value(json_object_get(line, "unix")));
    return AN_OK;
}

static an_status look_back(an_err *err, const char *dir, an_text *notes)
{
    char path[AN_CKPT_PATH_BYTES], now[256];
    past before = {.latest = 0};
    AN_TRY(path_in(err, dir, "logbook.jsonl", path));
    AN_TRY(an_jsonl_each(err, path, note_past, &before));
    an_logbook_host(now);
    if (*before.host && strcmp(before.host, now) != 0)
        an_text_printf(
            notes,
            "this run was made on %s and goes on on %s: float32 has the same bits on any CPU, bfloat16 only on "
            "one of the same kind",
            before.host, now);
    /* In double: a file may claim any time, and the difference of two integers may not fit in one. */
    const double back = (double)before.latest - (double)time(NULL);
    if (back > 60)
        an_text_printf(notes,
                       "%sthe clock is %.0f s behind the last line of the logbook: times there are not in order, "
                       "nothing else depends on it",
                       notes->len ? "\n" : "", back);
    return AN_OK;
}

/* ---- beginning, plan, end */

static an_status save_settings(an_err *err, const an_logbook *b, const an_text *yaml)
{
    char path[AN_CKPT_PATH_BYTES];
    AN_TRY(path_in(err, b->dir, "config.yaml", path));
    return yaml->failed ? an_fail_nomem(err, path, yaml->len) : an_file_write(err, path, yaml->data, yaml->len);
}

an_status an_logbook_begin(an_err *err, const an_logbook *b, const an_text *yaml, const an_text *json, an_text *notes)
{
    an_text line = {0};
    AN_TRY(look_back(err, b->dir, notes));
    AN_TRY(save_settings(err, b, yaml));
    begin_line(&line, "begin", b);
    an_logbook_put_machine(b->commit, &line);
    put_data(b, &line);
    an_status status = put_device(err, b, &line);
    put_text(&line, "preset", b->preset);
    put_text(&line, "note", b->note);
    an_text_puts(&line, ",\"settings\":");
    an_text_putn(&line, json->data ? json->data : "", json->len);
    line.failed |= json->failed;
    return add_line(err, b, &line, status);
}

an_status an_logbook_plan(an_err *err, const an_logbook *b, const an_bill *bill, an_cpu_launches on_cpu)
{
    an_text line = {0};
    const struct {
        const char *key;
        uint64_t value;
    } row[] = {{"peak_bytes", bill->peak_bytes},
               {"weight_bytes", bill->weight_bytes},
               {"gradient_bytes", bill->gradient_bytes},
               {"moment_bytes", bill->moment_bytes},
               {"activation_bytes", bill->activation_bytes},
               {"scratch_bytes", bill->scratch_bytes},
               {"input_bytes", bill->input_bytes},
               {"flops", bill->flops},
               {"launches", (uint64_t)bill->launches},
               {"kernels", (uint64_t)bill->kernels},
               {"compiled", (uint64_t)bill->compiled},
               {"cached", (uint64_t)bill->cached},
               {"fallbacks", (uint64_t)bill->fallbacks},
               {"fallback_bytes", bill->fallback_bytes},
               {"placed", (uint64_t)on_cpu.placed},
               {"cpu_turns", (uint64_t)on_cpu.turns},
               {"workers", (uint64_t)b->workers}};
    begin_line(&line, "plan", b);
    put_text(&line, "recompute", b->recompute);
    for (size_t i = 0; i < AN_COUNT(row); i++)
        an_text_printf(&line, ",\"%s\":%llu", row[i].key, (unsigned long long)row[i].value);
    an_json_put_number(&line, "plan_ms", bill->plan_ms);
    an_json_put_number(&line, "compile_ms", bill->compile_ms);
    an_json_put_number(&line, "fallback_ms", bill->fallback_ms);
    return add_line(err, b, &line, AN_OK);
}

an_status an_logbook_machine(an_err *err, const an_logbook *b, const char *what, const an_system_info *facts)
{
    an_text line = {0};
    begin_line(&line, "machine", b);
    put_text(&line, "what", what);
    an_text_puts(&line, ",\"facts\":");
    an_system_info_json(facts, &line);
    return add_line(err, b, &line, AN_OK);
}

an_status an_logbook_end(an_err *err, const an_logbook *b, const char *how, const an_metrics_number *numbers,
                         const char *error)
{
    an_text line = {0};
    begin_line(&line, how, b);
    for (const an_metrics_number *n = numbers; n->name; n++) an_json_put_number(&line, n->name, n->value);
    if (error) put_text(&line, "error", error);
    return add_line(err, b, &line, AN_OK);
}

an_status an_logbook_add(an_err *err, const char *dir, int64_t step, const char *event, const an_text *members)
{
    const an_logbook b = {.dir = dir, .step = step};
    an_text line = {0};
    begin_line(&line, event, &b);
    if (members) an_text_puts(&line, members->data ? members->data : "");
    if (members) line.failed |= members->failed;
    return add_line(err, &b, &line, AN_OK);
}
