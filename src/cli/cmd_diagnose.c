/* cmd_diagnose.c: what is wrong with a run, by the rules of report/diagnose.h. */
#include "cli/cli.h"
#include "report/diagnose.h"
#include "platform/platform.h"
#include "train/run_dir.h"
#include <stdlib.h>
#include <string.h>

typedef struct diagnose_values {
    char profile[AN_CONFIG_TEXT_BYTES], reference[AN_CONFIG_TEXT_BYTES];
} diagnose_values;

static const an_config_field fields[] = {
    {"profile", AN_CONFIG_TEXT, offsetof(diagnose_values, profile), "", 0, 0, NULL,
     "a file of anneal profile --json: slow operations, moves and launches are judged too"},
    {"reference", AN_CONFIG_TEXT, offsetof(diagnose_values, reference), "", 0, 0, NULL,
     "a run of the same settings, on the CPU say, than which this one should be faster"},
};
const an_config an_diagnose_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { MOST_PROFILE_BYTES = 64 << 20 };

static an_status read_profile(an_err *err, const char *path, json_t **out)
{
    char *data;
    size_t n;
    *out = NULL;
    if (!*path) return AN_OK;
    AN_TRY(an_file_read(err, path, MOST_PROFILE_BYTES, &data, &n));
    an_status status = an_json_parse(err, path, 0, data, n, out);
    free(data);
    return status;
}

static an_status diagnose(an_err *err, const char *dir, const diagnose_values *v, an_diagnosis *out)
{
    an_run_record r, reference = {0};
    json_t *profile = NULL;
    an_status status = an_run_record_read(err, dir, &r);
    if (status == AN_OK) status = read_profile(err, v->profile, &profile);
    if (status == AN_OK && *v->reference) status = an_run_record_read(err, v->reference, &reference);
    const an_diagnose_beside beside = {.profile = profile,
                                       .profile_path = v->profile,
                                       .reference = *v->reference ? &reference : NULL,
                                       .reference_dir = v->reference};
    if (status == AN_OK) status = an_diagnose_beside_others(err, dir, &r, an_run_dir_is_locked(dir), &beside, out);
    json_decref(profile);
    an_run_record_free(&reference);
    an_run_record_free(&r);
    return status;
}

static void put_findings(an_text *out, const char *dir, const an_diagnosis *d)
{
    int rules = 0;
    while (an_diagnose_rule(rules)) rules++;
    if (d->n == 0) an_text_printf(out, "%s: nothing was found by %d rules", dir, d->judged);
    for (int i = 0; i < d->n; i++) {
        const an_finding *f = &d->finding[i];
        an_text_printf(out, "%s%s (%s)\n  evidence    %s\n  hypothesis  %s\n  first fix   %s", i ? "\n" : "",
                       f->symptom, f->rule, f->evidence, f->hypothesis, f->fix);
    }
    if (d->judged < rules)
        an_text_printf(out, "\n%d rules had no figures, for want of: %s", rules - d->judged, d->lacks);
}

void an_cli_diagnosis_line(const char *dir)
{
    an_err why = {0};
    an_diagnosis d;
    if (diagnose(&why, dir, &(diagnose_values){.profile = ""}, &d) != AN_OK)
        an_say("note    the run was not diagnosed: %s", why.text);
    else if (d.n == 1)
        an_say("found   %s: %s; %s diagnose %s", d.finding[0].symptom, d.finding[0].evidence, an_program, dir);
    else if (d.n > 1)
        an_say("found   %s: %s; and %d more: %s diagnose %s", d.finding[0].symptom, d.finding[0].evidence, d.n - 1,
               an_program, dir);
}

an_status an_cmd_diagnose(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    diagnose_values v;
    an_diagnosis d = {.n = 0};
    an_text out = {0};
    const char *dir = args->words[0];
    AN_TRY(an_config_defaults(err, &an_diagnose_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_diagnose_keys, &v}, 1));
    AN_TRY(diagnose(err, dir, &v, &d));
    if (args->json) {
        an_text_puts(&out, "{\"run\":");
        an_json_put(&out, dir);
        an_text_puts(&out, ",\"findings\":");
        an_diagnosis_json(&d, &out);
        an_text_printf(&out, ",\"judged\":%d,\"lacks\":", d.judged);
        an_json_put(&out, d.lacks);
        an_text_puts(&out, ",\"rules\":[");
        for (int i = 0; an_diagnose_rule(i); i++) an_text_printf(&out, "%s\"%s\"", i ? "," : "", an_diagnose_rule(i));
        an_text_puts(&out, "]}");
    } else {
        put_findings(&out, dir, &d);
    }
    return an_print_line(err, &out);
}
