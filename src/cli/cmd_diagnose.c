/* cmd_diagnose.c: what is wrong with a run, by the rules of report/diagnose.h. */
#include "cli/cli.h"
#include "report/diagnose.h"
#include "train/run_dir.h"
#include <string.h>

static an_status diagnose(an_err *err, const char *dir, an_diagnosis *out)
{
    an_run_record r;
    an_status status = an_run_record_read(err, dir, &r);
    if (status == AN_OK) status = an_diagnose(err, dir, &r, an_run_dir_is_locked(dir), out);
    an_run_record_free(&r);
    return status;
}

static void put_findings(an_text *out, const char *dir, const an_diagnosis *d)
{
    int rules = 0;
    while (an_diagnose_rule(rules)) rules++;
    if (d->n == 0) an_text_printf(out, "%s: nothing was found by %d rules", dir, rules);
    for (int i = 0; i < d->n; i++) {
        const an_finding *f = &d->finding[i];
        an_text_printf(out, "%s%s (%s)\n  evidence    %s\n  hypothesis  %s\n  first fix   %s", i ? "\n" : "",
                       f->symptom, f->rule, f->evidence, f->hypothesis, f->fix);
    }
}

void an_cli_diagnosis_line(const char *dir)
{
    an_err why = {0};
    an_diagnosis d;
    if (diagnose(&why, dir, &d) != AN_OK)
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
    an_diagnosis d = {.n = 0};
    an_text out = {0};
    const char *dir = args->words[0];
    AN_TRY(diagnose(err, dir, &d));
    if (args->json) {
        an_text_puts(&out, "{\"run\":");
        an_json_put(&out, dir);
        an_text_puts(&out, ",\"findings\":");
        an_diagnosis_json(&d, &out);
        an_text_puts(&out, ",\"rules\":[");
        for (int i = 0; an_diagnose_rule(i); i++) an_text_printf(&out, "%s\"%s\"", i ? "," : "", an_diagnose_rule(i));
        an_text_puts(&out, "]}");
    } else {
        put_findings(&out, dir, &d);
    }
    return an_print_line(err, &out);
}
