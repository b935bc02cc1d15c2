/* cmd_handoff.c: handoff: taking up a pack on another machine, and what differs there. */
#define _DEFAULT_SOURCE
#include "cli/handoff_smoke.h"
#include "cli/progress_bar.h"
#include "report/metrics.h"
#include "tools/drift.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct handoff_values {
    char out[AN_CONFIG_TEXT_BYTES], explain[AN_CONFIG_TEXT_BYTES];
    int64_t smoke;
    double tolerance;
    bool diff;
} handoff_values;
#define AT(name) offsetof(handoff_values, name)
static const an_config_field handoff_fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "handoff", 0, 0, NULL, "a new folder for the run"},
    {"smoke", AN_CONFIG_INT, AT(smoke), "50", 0, 1e6, NULL,
     "updates in RUN/smoke, to compare memory and speed with the origin; 0: none"},
    {"tolerance", AN_CONFIG_FLOAT, AT(tolerance), "0.1", 0, 1e9, NULL,
     "share by which an update may take longer or shorter than at the origin"},
    {"explain", AN_CONFIG_TEXT, AT(explain), "", 0, 0, NULL,
     "why it takes longer or shorter here; goes into the run's logbook"},
    {"diff", AN_CONFIG_BOOL, AT(diff), "false", 0, 0, NULL,
     "only show what differs from the origin: program, system, processor, variables; nothing is written"},
};
#undef AT
const an_config an_handoff_keys = {.fields = handoff_fields, .n = AN_COUNT(handoff_fields)};

/* This program's own path, for units that outlive this shell; as it was called where it cannot be found. */
static void find_program(char out[AN_CKPT_PATH_BYTES])
{
    const char *path = getenv("PATH");
    char *absolute = strchr(an_program, '/') ? realpath(an_program, NULL) : NULL;
    while (!absolute && !strchr(an_program, '/') && path && *path) {
        char candidate[AN_CKPT_PATH_BYTES];
        const int n = (int)strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s/%s", n < 800 ? n : 0, path, an_program);
        if (n && access(candidate, X_OK) == 0) absolute = realpath(candidate, NULL);
        path += n + (path[n] == ':');
    }
    snprintf(out, AN_CKPT_PATH_BYTES, "%.900s", absolute ? absolute : an_program);
    free(absolute);
}

static void put_handoff(an_text *out, const an_handoff *h, const char *dir)
{
    char bytes[16];
    an_text_printf(out, "verified  %d files, each with its SHA-256, in %s\n", h->files, dir);
    if (h->settings_only)
        an_text_printf(out, "origin    settings, no run so far%s%s", *h->owner ? "; owner " : "", h->owner);
    else
        an_text_printf(out, "origin    %s%s%s; %lld updates", h->origin, *h->owner ? "; owner " : "", h->owner,
                       (long long)h->step);
    if (isfinite(h->ms)) an_text_printf(out, ", %.4g ms each, %.4g units/s", h->ms, h->units_per_s);
    if (isfinite(h->live_bytes)) an_text_printf(out, ", %s live", an_bytes_text(h->live_bytes, bytes));
    if (h->needs_data)
        an_text_printf(out,
                       "\ndata      did not travel: name them in place of DATA; train_xxh3 in the logbook must be %s",
                       *h->train_xxh3 ? h->train_xxh3 : "that of the origin");
    if (h->units)
        an_text_printf(
            out, "\nunits     %s/anneal.service (systemctl --user enable --now), %s/anneal.plist (launchctl load)", dir,
            dir);
    else
        an_text_puts(out, "\nunits     none: they need the data, and paths of letters, digits and . / _ + @ -");
    an_text_printf(out, "\ngoes on   %s", h->command.data);
}

static void json_causes(an_text *out, const an_smoke *s)
{
    an_text_puts(out, ",\"causes\":[");
    for (const an_cause *c = s->cause; c < s->cause + AN_CAUSES && c->name; c++) {
        an_text_printf(out, "%s{\"name\":\"%s\",\"verdict\":\"%s\",\"there\":", c > s->cause ? "," : "", c->name,
                       c->verdict);
        an_json_put(out, c->there);
        an_text_puts(out, ",\"here\":");
        an_json_put(out, c->here);
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]");
}

static void json_handoff(an_text *out, const an_handoff *h, const char *dir, const an_smoke *s)
{
    an_text_puts(out, "{\"out\":");
    an_json_put(out, dir);
    an_text_printf(out, ",\"files\":%d,\"step\":%lld,\"units\":%s,\"needs_data\":%s,\"owner\":", h->files,
                   (long long)h->step, h->units ? "true" : "false", h->needs_data ? "true" : "false");
    an_json_put(out, h->owner);
    an_text_puts(out, ",\"origin\":");
    an_json_put(out, h->origin);
    an_put_json(out, "ms", h->ms);
    an_put_json(out, "units_per_s", h->units_per_s);
    if (s) {
        an_text_printf(out, ",\"smoke\":{\"updates\":%lld,\"flat\":%s,\"alike\":%s", (long long)s->updates,
                       s->flat ? "true" : "false", s->alike ? "true" : "false");
        an_put_json(out, "ms", s->ms);
        an_put_json(out, "units_per_s", s->units_per_s);
        an_put_json(out, "live_bytes", s->live_bytes);
        an_put_json(out, "growth", s->growth);
        an_put_json(out, "data_wait_share", s->wait_share);
        an_put_json(out, "cpu_wait_ms", s->cpu_wait_ms);
        an_put_json(out, "ratio", s->ratio);
        json_causes(out, s);
        an_text_puts(out, "}");
    }
    an_text_puts(out, ",\"command\":");
    an_json_put(out, h->command.data);
    an_text_puts(out, "}");
}

static void put_smoke(an_text *out, const an_smoke *s, const char *explain)
{
    char bytes[16];
    an_text_printf(out, "\nsmoke     %lld updates, %.4g ms each, %.4g units/s, %s live, growth %.2f %%: memory is %s",
                   (long long)s->updates, s->ms, s->units_per_s, an_bytes_text(s->live_bytes, bytes), 100 * s->growth,
                   s->flat ? "flat" : "NOT FLAT (1 % is allowed)");
    if (isfinite(s->ratio)) an_text_printf(out, "\nspeed     an update takes %.2f times the origin's", s->ratio);
    if (s->alike) return;
    an_text_puts(out, ": each candidate, measured");
    for (const an_cause *c = s->cause; c < s->cause + AN_CAUSES && c->name; c++)
        an_text_printf(out, "\n  %-9s  %-9s  there: %s\n%24shere:  %s", c->verdict, c->name, c->there, "", c->here);
    if (*explain)
        an_text_printf(out, "\nexplained %s", explain);
    else
        an_text_puts(out, "\nAn explanation is missing: anneal note RUN \"why\", or handoff with explain=WHY");
}

/* The window and, where there is one, the explanation in the logbook of the run. */
static an_status smoke(an_err *err, const an_args *args, const an_handoff *h, const handoff_values *v,
                       const char *program, an_smoke *s, int *exit_code)
{
    an_text members = {0};
    AN_TRY(an_json_check_text(err, "explain", v->explain));
    an_say("smoke   %lld updates in %s/smoke", (long long)v->smoke, v->out);
    char dir[AN_CKPT_PATH_BYTES + 8];
    snprintf(dir, sizeof dir, "%.1000s/smoke", v->out);
    an_bar_run run = {dir, h->step, v->smoke};
    an_bar *bar = an_bar_open(args, "handoff", "updates", an_bar_probe_run, &run);
    an_status tried = an_handoff_smoke(err, h, v->out, program, v->smoke, v->tolerance, s);
    an_bar_close(bar);
    AN_TRY(tried);
    if (!s->flat || (!s->alike && !*v->explain)) *exit_code = AN_EXIT_NUMERIC;
    if (s->alike || !*v->explain) return AN_OK;
    an_text_puts(&members, ",\"text\":");
    an_json_put(&members, v->explain);
    an_json_put_number(&members, "ratio", s->ratio);
    an_status status = an_logbook_add(err, v->out, h->step, "note", &members);
    an_text_free(&members);
    return status;
}

/* ---- what differs */

static void put_drift(const an_drift *d, const char *path, bool json, an_text *out)
{
    if (json)
        an_text_printf(out, "{\"differing\":%zu,\"left_out\":%zu,\"rows\":[", d->differing, d->left_out);
    else
        an_text_printf(out, "%zu of %zu differ between the origin of %s and this machine", d->differing, d->n, path);
    for (size_t i = 0; i < d->n; i++) {
        const an_drift_row *r = &d->row[i];
        if (json) {
            an_text_puts(out, i ? ",{\"name\":" : "{\"name\":");
            an_json_put(out, r->name);
            an_text_printf(out, ",\"variable\":%s,\"differs\":%s,\"there\":", r->variable ? "true" : "false",
                           r->differs ? "true" : "false");
            an_json_put(out, r->there);
            an_text_puts(out, ",\"here\":");
            an_json_put(out, r->here);
            an_text_puts(out, "}");
        } else {
            an_text_printf(out, "\n%s %s%-20s  %s", r->differs ? "differs" : "same   ", r->variable ? "$" : " ",
                           r->name, *r->there ? r->there : "-");
            if (r->differs) an_text_printf(out, "  ->  %s", *r->here ? r->here : "-");
        }
    }
    if (json) an_text_puts(out, "]}");
    if (!json && d->left_out) an_text_printf(out, "\n%zu more variables were left out", d->left_out);
}

static an_status show_drift(an_err *err, const an_args *args)
{
    an_pack p;
    json_t *beginning = NULL;
    an_text out = {0};
    an_drift *d = malloc(sizeof *d);
    if (!d) return an_fail_nomem(err, "what differs", sizeof *d);
    an_status status = an_pack_open(err, args->words[0], &p);
    if (status == AN_OK) status = an_pack_beginning(err, &p, &beginning);
    if (status == AN_OK) status = an_drift_find(err, beginning, an_commit, d);
    if (status == AN_OK) put_drift(d, args->words[0], args->json, &out);
    json_decref(beginning);
    an_pack_close(&p);
    free(d);
    return status == AN_OK ? an_print_line(err, &out) : status;
}

an_status an_cmd_handoff(an_err *err, const an_args *args, int *exit_code)
{
    handoff_values v;
    an_handoff h;
    an_smoke s = {.updates = 0};
    an_text out = {0};
    char program[AN_CKPT_PATH_BYTES];
    AN_TRY(an_config_defaults(err, &an_handoff_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_handoff_keys, &v}, 1));
    if (v.diff) return show_drift(err, args);
    find_program(program);
    an_status status = an_pack_take(err, args->words[0], v.out, program, &h);
    const bool tried = status == AN_OK && v.smoke > 0 && !h.needs_data;
    if (status == AN_OK && v.smoke > 0 && h.needs_data)
        an_say("note    no smoke window: it needs the data, which did not travel");
    if (tried) status = smoke(err, args, &h, &v, program, &s, exit_code);
    if (status == AN_OK && args->json) {
        json_handoff(&out, &h, v.out, tried ? &s : NULL);
    } else if (status == AN_OK) {
        put_handoff(&out, &h, v.out);
        if (tried) put_smoke(&out, &s, v.explain);
    }
    if (status == AN_OK) status = an_print_line(err, &out);
    an_handoff_free(&h);
    return status;
}
