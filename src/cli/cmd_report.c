/* cmd_report.c: one HTML page about runs (report/run_report.h). */
#include "cli/cli.h"
#include "platform/platform.h"
#include "report/run_report.h"
#include "train/run_dir.h"
#include <stdlib.h>
#include <string.h>

typedef struct report_values {
    char out[AN_CONFIG_TEXT_BYTES], sweep[AN_CONFIG_TEXT_BYTES], profile[AN_CONFIG_TEXT_BYTES];
} report_values;

#define AT(name) offsetof(report_values, name)
static const an_config_field fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "report.html", 0, 0, NULL, "the file to write"},
    {"sweep", AN_CONFIG_TEXT, AT(sweep), "", 0, 0, NULL,
     "folder of a sweep of the same preset, which a proof of speed needs"},
    {"profile", AN_CONFIG_TEXT, AT(profile), "", 0, 0, NULL,
     "a file of anneal profile --json: its roofline and its slowest launches"},
};
const an_config an_report_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { MOST_SWEEP_BYTES = 4 << 20, MOST_PROFILE_BYTES = 64 << 20 };

typedef struct page {
    an_report_run run[AN_REPORT_RUNS];
    int n;
    json_t *sweep;
    an_report_profile profile;
    an_text text;
} page;

static an_status read_sweep(an_err *err, const char *dir, json_t **out)
{
    char path[AN_CKPT_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/sweep.json", dir) >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "sweep=%.100s...: the path is too long", dir);
    return an_json_read(err, path, MOST_SWEEP_BYTES, out);
}

static an_status read_profile(an_err *err, const char *path, an_report_profile *out)
{
    char *data;
    size_t n;
    out->path = path;
    AN_TRY(an_file_read(err, path, MOST_PROFILE_BYTES, &data, &n));
    an_sha256(data, n, out->sha256);
    an_status status = an_json_parse(err, path, 0, data, n, &out->json);
    free(data);
    if (status == AN_OK && !json_is_array(json_object_get(out->json, "launches")))
        status = an_fail(err, AN_E_DATA, "%s: no profile: write one with anneal profile PRESET --json >FILE", path);
    return status;
}

static an_status fill(an_err *err, const an_args *args, const report_values *v, page *p)
{
    for (int i = 0; i < args->n_words; i++) {
        an_report_run *run = &p->run[p->n++];
        run->dir = args->words[i];
        AN_TRY(an_run_record_read(err, run->dir, &run->record));
        run->running = an_run_dir_is_locked(run->dir);
    }
    if (*v->sweep) AN_TRY(read_sweep(err, v->sweep, &p->sweep));
    if (*v->profile) AN_TRY(read_profile(err, v->profile, &p->profile));
    AN_TRY(an_run_report(err, p->run, p->n, p->sweep, &p->profile, &p->text));
    return an_file_write(err, v->out, p->text.data, p->text.len);
}

static an_status say_result(an_err *err, const an_args *args, const report_values *v, const page *p)
{
    const char *lacks[AN_REPORT_LACKS];
    an_text line = {0};
    for (int i = 0; i < p->n && !args->json && !args->quiet; i++) {
        const int n = an_run_report_lacks(&p->run[i], p->sweep, lacks);
        an_say("%s: its speed is %s%s%s", p->run[i].dir, n ? "unproven, for want of " : "proven", n ? lacks[0] : "",
               n > 1 ? "; the report has the rest" : "");
    }
    if (!args->json) return AN_OK;
    an_text_puts(&line, "{\"out\":");
    an_json_put(&line, v->out);
    an_text_puts(&line, ",\"runs\":[");
    for (int i = 0; i < p->n; i++) {
        const int n = an_run_report_lacks(&p->run[i], p->sweep, lacks);
        an_text_puts(&line, i ? ",{\"run\":" : "{\"run\":");
        an_json_put(&line, p->run[i].dir);
        an_text_printf(&line, ",\"proven\":%s,\"missing\":[", n ? "false" : "true");
        for (int k = 0; k < n; k++) {
            if (k) an_text_puts(&line, ",");
            an_json_put(&line, lacks[k]);
        }
        an_text_puts(&line, "]}");
    }
    an_text_puts(&line, "]}");
    return an_print_line(err, &line);
}

an_status an_cmd_report(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    report_values v;
    AN_TRY(an_config_defaults(err, &an_report_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_report_keys, &v}, 1));
    AN_TRY(an_run_dir_check_output(err, v.out));
    page *p = calloc(1, sizeof *p);
    if (!p) return an_fail_nomem(err, "a report", sizeof *p);
    an_status status = fill(err, args, &v, p);
    if (status == AN_OK) status = say_result(err, args, &v, p);
    for (int i = 0; i < p->n; i++) an_run_record_free(&p->run[i].record);
    json_decref(p->sweep);
    json_decref(p->profile.json);
    an_text_free(&p->text);
    free(p);
    return status;
}
