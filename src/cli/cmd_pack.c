/* cmd_pack.c: pack and handoff: a run as one file, and taking it up on another machine. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "tools/pack.h"
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
    char out[AN_CONFIG_TEXT_BYTES];
} handoff_values;
static const an_config_field handoff_fields[] = {
    {"out", AN_CONFIG_TEXT, offsetof(handoff_values, out), "handoff", 0, 0, NULL, "a new folder for the run"},
};
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

an_status an_cmd_handoff(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    handoff_values v;
    an_handoff h;
    an_text out = {0};
    char program[AN_CKPT_PATH_BYTES];
    AN_TRY(an_config_defaults(err, &an_handoff_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_handoff_keys, &v}, 1));
    find_program(program);
    an_status status = an_pack_take(err, args->words[0], v.out, program, &h);
    if (status == AN_OK && args->json) {
        an_text_puts(&out, "{\"out\":");
        an_json_put(&out, v.out);
        an_text_printf(&out, ",\"files\":%d,\"step\":%lld,\"units\":%s,\"needs_data\":%s,\"owner\":", h.files,
                       (long long)h.step, h.units ? "true" : "false", h.needs_data ? "true" : "false");
        an_json_put(&out, h.owner);
        an_text_puts(&out, ",\"origin\":");
        an_json_put(&out, h.origin);
        an_put_json(&out, "ms", h.ms);
        an_put_json(&out, "units_per_s", h.units_per_s);
        an_text_puts(&out, ",\"command\":");
        an_json_put(&out, h.command.data);
        an_text_puts(&out, "}");
    } else if (status == AN_OK) {
        put_handoff(&out, &h, v.out);
    }
    if (status == AN_OK) status = an_print_line(err, &out);
    an_handoff_free(&h);
    return status;
}
