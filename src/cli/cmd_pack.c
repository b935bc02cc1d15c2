/* cmd_pack.c: pack and handoff: a run as one file, and taking it up on another machine. */
#define _DEFAULT_SOURCE
#include "cli/handoff_smoke.h"
#include "report/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct pack_values {
    char out[AN_CONFIG_TEXT_BYTES], owner[AN_CONFIG_TEXT_BYTES], data[AN_CONFIG_TEXT_BYTES];
} pack_values;
#define AT(name) offsetof(pack_values, name)
static const an_config_field pack_fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "run.anneal", 0, 0, NULL, "the file to write"},
    {"owner", AN_CONFIG_TEXT, AT(owner), "", 0, 0, NULL, "who answers questions about this run"},
    {"data", AN_CONFIG_TEXT, AT(data), "include", 0, 0, "include|checksums",
     "the data travel in the pack, or their hash only"},
};
const an_config an_pack_keys = {.fields = pack_fields, .n = AN_COUNT(pack_fields)};
#undef AT

typedef struct handoff_values {
    char out[AN_CONFIG_TEXT_BYTES], explain[AN_CONFIG_TEXT_BYTES];
    int64_t smoke;
    double tolerance;
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
};
#undef AT
const an_config an_handoff_keys = {.fields = handoff_fields, .n = AN_COUNT(handoff_fields)};

an_status an_cmd_pack(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    pack_values v;
    an_pack_result p;
    an_text out = {0};
    char bytes[16];
    AN_TRY(an_config_defaults(err, &an_pack_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_pack_keys, &v}, 1));
    const an_pack_options o = {.owner = v.owner, .commit = an_commit, .with_data = strcmp(v.data, "include") == 0};
    AN_TRY(an_pack_write(err, args->words[0], v.out, &o, &p));
    if (!args->json) {
        an_say("packed  %d files, %s, after %lld updates: %s; on the other machine: anneal handoff %s", p.files,
               an_bytes_text((double)p.bytes, bytes), (long long)p.step, v.out, v.out);
        return AN_OK;
    }
    an_text_puts(&out, "{\"out\":");
    an_json_put(&out, v.out);
    an_text_printf(&out, ",\"files\":%d,\"bytes\":%llu,\"step\":%lld}", p.files, (unsigned long long)p.bytes,
                   (long long)p.step);
    return an_print_line(err, &out);
}

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
        an_put_json(out, "ratio", s->ratio);
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
    an_text_puts(out, ": what was looked at here\n  ");
    for (const char *c = s->causes.data; c && *c; c++) {
        an_text_putn(out, c, 1);
        if (*c == '\n') an_text_puts(out, "  ");
    }
    if (*explain)
        an_text_printf(out, "\nexplained %s", explain);
    else
        an_text_puts(out, "\nAn explanation is missing: anneal note RUN \"why\", or handoff with explain=WHY");
}

/* The window and, where there is one, the explanation in the logbook of the run. */
static an_status smoke(an_err *err, const an_handoff *h, const handoff_values *v, const char *program, an_smoke *s,
                       int *exit_code)
{
    an_text members = {0};
    AN_TRY(an_json_check_text(err, "explain", v->explain));
    an_say("smoke   %lld updates in %s/smoke", (long long)v->smoke, v->out);
    AN_TRY(an_handoff_smoke(err, h, v->out, program, v->smoke, v->tolerance, s));
    if (!s->flat || (!s->alike && !*v->explain)) *exit_code = AN_EXIT_NUMERIC;
    if (s->alike || !*v->explain) return AN_OK;
    an_text_puts(&members, ",\"text\":");
    an_json_put(&members, v->explain);
    an_json_put_number(&members, "ratio", s->ratio);
    an_status status = an_logbook_add(err, v->out, h->step, "note", &members);
    an_text_free(&members);
    return status;
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
    find_program(program);
    an_status status = an_pack_take(err, args->words[0], v.out, program, &h);
    const bool tried = status == AN_OK && v.smoke > 0 && !h.needs_data;
    if (status == AN_OK && v.smoke > 0 && h.needs_data)
        an_say("note    no smoke window: it needs the data, which did not travel");
    if (tried) status = smoke(err, &h, &v, program, &s, exit_code);
    if (status == AN_OK && args->json) {
        json_handoff(&out, &h, v.out, tried ? &s : NULL);
    } else if (status == AN_OK) {
        put_handoff(&out, &h, v.out);
        if (tried) put_smoke(&out, &s, v.explain);
    }
    if (status == AN_OK) status = an_print_line(err, &out);
    an_text_free(&s.causes);
    an_handoff_free(&h);
    return status;
}
