/* cmd_profile_diff.c: anneal profile diff A B: what changed between two profiles, and what to do about it. */
#include "cli/cli.h"
#include "io/formats/sha256.h"
#include "report/profile_diff.h"
#include "report/run_record.h"
#include "train/run_dir.h"
#include <math.h>
#include <string.h>

enum { WEEK_DAYS = 7 };

static void put_file(an_text *out, const an_profile_file *f, char letter, const char *path)
{
    an_text_printf(out, "%c         %s: %s on %s, %s\n", letter, path, f->preset, f->device,
                   *f->time ? f->time : "no date");
    an_text_printf(out, "          %.3f ms without data (%.3f ms more): launches %.3f ms, host %.3f ms\n",
                   f->step_ms - f->data_ms, f->data_ms, f->device_ms, f->host_ms);
}

static void put_op(an_text *out, const an_profile_op *op)
{
    const double a = op->us[0], b = op->us[1];
    an_text_printf(out, "  %-9s %-40s %s\n            %.1f us (%d) -> %.1f us (%d)", op->phase, op->name, op->shape, a,
                   op->launches[0], b, op->launches[1]);
    if (a > 0 && b > 0)
        an_text_printf(out, ", x%.2f", b / a);
    else
        an_text_puts(out, a > 0 ? ", gone" : ", new");
    if (op->share[1] > 0) an_text_printf(out, ", %.0f%% of the roof", 100 * op->share[1]);
    an_text_printf(out, "; in %s\n", *op->scope ? op->scope : "no scope");
}

/* What keeps the figures from being about the operations alone. */
static void put_conditions(an_text *out, const an_profile_diff *d)
{
    const an_profile_file *a = &d->file[0], *b = &d->file[1];
    if (strcmp(a->preset, b->preset) != 0)
        an_text_printf(out, "note      A is of %s, B of %s: %.0f %% of the time is in operations that both have\n",
                       a->preset, b->preset, 100 * d->common);
    else if (d->common < 0.5)
        an_text_printf(out, "note      %.0f %% of the time is in operations that both have: the settings differ\n",
                       100 * d->common);
    for (int i = 0; i < 2; i++)
        if (10 * d->file[i].n_above > d->file[i].n_launches)
            an_text_printf(
                out,
                "note      %d launches of %c beat the roof that was measured after them: that machine was busy, or "
                "their data lay in caches; profile again on a quiet one\n",
                d->file[i].n_above, "AB"[i]);
    if (d->factor == 1) return;
    an_text_printf(out, "all       nine of ten operations take x%.2f or %s", d->factor,
                   d->factor > 1 ? "more" : "less");
    if (a->gflops > 0 && b->gflops > 0)
        an_text_printf(out, ", and the machine's own peak went from %.4g to %.4g GFLOP/s", a->gflops, b->gflops);
    an_text_puts(out, ": busy, another clock, or other settings for all\n");
}

static void put_diff(an_text *out, const an_args *args, const an_profile_diff *d)
{
    for (int i = 0; i < 2; i++) put_file(out, &d->file[i], "AB"[i], args -> words[i + 1]);
    put_conditions(out, d);
    an_text_printf(out, "the %s%s\n",
                   d->changed ? "steps differ by more than 5 %; what changed most"
                              : "steps differ by 5 % or less; what takes most of B:",
                   !d->changed      ? ""
                   : d->factor == 1 ? ":"
                                    : ", beyond what all did:");
    for (int k = 0; k < AN_PROFILE_TOP && d->top[k] >= 0; k++) put_op(out, &d->op[d->top[k]]);
    an_text_printf(out, "conclusion (%s) %s\n  because %s", d->file[1].time, an_profile_verdict_text(d->verdict),
                   d->why);
    if (d->verdict == AN_PROFILE_MOVE)
        an_text_puts(out, "; anneal runs a step on one device: device= chooses it for the whole run");
}

/* ---- the logbook */

/* The decision, with both files and their hashes. Refused unless the profiles are a week apart
 * and name the same slowest operation. */
static an_status write_decision(an_err *err, const an_args *args, const an_profile_diff *d, const char *run)
{
    an_run_record r;
    an_text members = {0};
    char hash[AN_SHA256_TEXT_BYTES] = "";
    if (!an_run_dir_is_a_run(run))
        return an_fail(err, AN_E_USAGE, "logbook=%s: no run was trained in this folder", run);
    if (!(d->days_apart >= WEEK_DAYS) || !d->same_slowest) {
        if (!(d->days_apart >= WEEK_DAYS))
            an_say("note    no decision was written: the profiles are %.1f days apart, a decision needs %d",
                   isfinite(d->days_apart) ? d->days_apart : 0.0, WEEK_DAYS);
        else
            an_say("note    no decision was written: other operations are the three slowest now");
        return AN_OK;
    }
    an_status status = an_run_record_read(err, run, &r);
    const int64_t step = r.n ? r.update[r.n - 1].step + 1 : 0;
    an_text_puts(&members, ",\"decision\":{");
    an_profile_diff_json(d, &members);
    an_text_puts(&members, "},\"profiles\":[");
    for (int i = 1; i <= 2 && status == AN_OK; i++) {
        status = an_json_check_text(err, "a profile's path", args->words[i]);
        an_text_puts(&members, i > 1 ? ",{\"path\":" : "{\"path\":");
        if (status == AN_OK) an_json_put(&members, args->words[i]);
        an_text_puts(&members, ",\"sha256\":\"");
        if (status == AN_OK) status = an_sha256_file(err, args->words[i], hash);
        an_text_printf(&members, "%s\"}", hash);
    }
    an_text_puts(&members, "]");
    if (status == AN_OK) status = an_logbook_add(err, run, step, "decision", &members);
    if (status == AN_OK) an_say("decided in %s/logbook.jsonl", run);
    an_run_record_free(&r);
    an_text_free(&members);
    return status;
}

an_status an_profile_diff_print(an_err *err, const an_args *args, const char *logbook)
{
    an_profile_diff d;
    an_text out = {0};
    if (args->n_words != 3)
        return an_fail(err, AN_E_USAGE, "profile diff: two files that anneal profile PRESET --json wrote");
    an_status status = an_profile_diff_read(err, args->words[1], args->words[2], &d);
    if (status == AN_OK && args->json) {
        an_text_puts(&out, "{");
        an_profile_diff_json(&d, &out);
        an_text_puts(&out, "}");
    } else if (status == AN_OK) {
        put_diff(&out, args, &d);
    }
    if (status == AN_OK) status = an_print_line(err, &out);
    if (status == AN_OK && *logbook) status = write_decision(err, args, &d, logbook);
    an_profile_diff_free(&d);
    return status;
}
