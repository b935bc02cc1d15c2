/* pack.c: checks and takes packs. See pack.h; pack_write.c writes them. */
#define _DEFAULT_SOURCE
#include "tools/pack.h"
#include "io/formats/json.h"
#include "io/formats/sha256.h"
#include "io/formats/zip.h"
#include "platform/platform.h"
#include "report/run_record.h"
#include "train/run_state.h"
#include "train/session.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_BYTES = 4 << 20, NAME_BYTES = AN_PACK_NAME_BYTES };
static const char manifest_name[] = "pack.json";
const char *const an_pack_files[AN_PACK_RUN_FILES] = {"config.yaml", "metrics.jsonl", "logbook.jsonl",
                                                      "last.safetensors"};

/* Variables that change how fast a run computes or how much memory it takes, and name no file or program. */
const char *const an_pack_variables[] = {"OMP_NUM_THREADS",
                                         "DISABLE_COMPILE",
                                         "PYTORCH_ENABLE_MPS_FALLBACK",
                                         "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
                                         "PYTORCH_MPS_LOW_WATERMARK_RATIO",
                                         NULL};

/* A letter or digit, then letters, digits, and . _ -: no path separator, no hidden file, no command line option. */
bool an_pack_name_is_plain(const char *name)
{
    if (!isalnum((unsigned char)*name) || strlen(name) >= NAME_BYTES) return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) return false;
    return true;
}

static bool may_be_a_member(const char *name)
{
    for (size_t i = 0; i < AN_COUNT(an_pack_files); i++)
        if (strcmp(name, an_pack_files[i]) == 0) return true;
    return strncmp(name, "data/", 5) == 0 && an_pack_name_is_plain(name + 5);
}

bool an_pack_variable_travels(const char *name, const char *value)
{
    bool known = false;
    for (const char *const *v = an_pack_variables; *v; v++) known |= strcmp(name, *v) == 0;
    if (!known || !*value || strlen(value) > 64) return false;
    for (const char *c = value; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) return false;
    return true;
}

/* ---- checking */

static an_status refuse(an_err *err, const an_pack *t, const char *name, const char *why)
{
    char quoted[AN_QUOTED_BYTES];
    return an_fail(err, AN_E_DATA, "%s: %s: %s; nothing was written: ask for the pack again", t->path,
                   an_quoted(name, quoted), why);
}

static an_status check_file(an_err *err, const an_pack *t, const json_t *file)
{
    const char *name = an_run_text(file, "name");
    char hash[AN_SHA256_TEXT_BYTES];
    if (!may_be_a_member(name)) return refuse(err, t, name, "a pack has no file of this name");
    const an_zip_member *m = an_zip_find(&t->zip, name);
    if (!m) return refuse(err, t, name, "pack.json lists it, but the archive lacks it");
    an_sha256(t->zip.data + m->at, (size_t)m->bytes, hash);
    if (strcmp(hash, an_run_text(file, "sha256")) != 0)
        return refuse(err, t, name, "its SHA-256 is not the one in pack.json: it was changed or damaged");
    return AN_OK;
}

/* Each file of the list is a member, once, and each member is in the list. */
static an_status check_members(an_err *err, const an_pack *t)
{
    const json_t *files = json_object_get(t->manifest, "files");
    size_t i;
    json_t *file;
    if (an_run_number(t->manifest, "schema") != AN_PACK_SCHEMA)
        return an_fail(err, AN_E_DATA, "%s: a pack of schema %g; this program takes schema %d", t->path,
                       an_run_number(t->manifest, "schema"), AN_PACK_SCHEMA);
    if (json_array_size(files) > AN_PACK_MOST_FILES || json_array_size(files) + 1 != t->zip.n)
        return refuse(err, t, manifest_name, "it lists other files than the archive has");
    json_array_foreach(files, i, file)
    {
        AN_TRY(check_file(err, t, file));
        for (size_t k = 0; k < i; k++)
            if (strcmp(an_run_text(json_array_get(files, k), "name"), an_run_text(file, "name")) == 0)
                return refuse(err, t, an_run_text(file, "name"), "pack.json lists it twice");
    }
    for (size_t k = 0; k < (t->settings_only ? 1 : AN_COUNT(an_pack_files)); k++)
        if (!an_zip_find(&t->zip, an_pack_files[k])) return refuse(err, t, an_pack_files[k], "the pack lacks it");
    return AN_OK;
}

static an_status read_manifest(an_err *err, an_pack *t)
{
    AN_TRY(an_zip_open(err, t->path, t->map.data, t->map.bytes, &t->arena, &t->zip));
    const an_zip_member *manifest = an_zip_find(&t->zip, manifest_name);
    if (!manifest)
        return an_fail(err, AN_E_DATA, "%s: no pack: it has no %s; anneal pack RUN writes one", t->path, manifest_name);
    if (manifest->bytes > MANIFEST_BYTES)
        return an_fail(err, AN_E_DATA, "%s: %s has more than %d MiB; the pack is damaged", t->path, manifest_name,
                       MANIFEST_BYTES >> 20);
    AN_TRY(an_json_parse(err, t->path, manifest->at, (const char *)t->zip.data + manifest->at, (size_t)manifest->bytes,
                         &t->manifest));
    t->settings_only = strcmp(an_run_text(t->manifest, "kind"), "settings") == 0;
    const double step = an_run_number(t->manifest, "step");
    t->step = step >= 0 && step < 1e15 ? (int64_t)step : 0;
    return check_members(err, t);
}

an_status an_pack_open(an_err *err, const char *path, an_pack *out)
{
    *out = (an_pack){.path = path};
    an_status status = an_file_map(err, path, &out->map);
    if (status == AN_OK) status = read_manifest(err, out);
    if (status != AN_OK) an_pack_close(out);
    return status;
}

void an_pack_close(an_pack *p)
{
    json_decref(p->manifest);
    an_arena_free(&p->arena);
    an_file_unmap(&p->map);
    *p = (an_pack){.path = p->path};
}

/* ---- writing what was received */

static an_status write_member(an_err *err, const an_pack *t, const an_zip_member *m, const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%.800s/%.140s", dir, m->name);
    return an_file_write(err, path, t->zip.data + m->at, (size_t)m->bytes);
}

static an_status write_files(an_err *err, const an_pack *t, const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%.900s/data", dir);
    AN_TRY(an_make_dirs(err, path, 0700));
    for (size_t i = 0; i < t->zip.n; i++) AN_TRY(write_member(err, t, &t->zip.members[i], dir));
    return AN_OK;
}

an_status an_pack_check_checkpoint(an_err *err, const char *dir, int64_t *step)
{
    char path[AN_CKPT_PATH_BYTES];
    const an_model *model;
    an_st *st;
    an_train_config c;
    an_run_state state;
    snprintf(path, sizeof path, "%.900s/last.safetensors", dir);
    AN_TRY(an_model_open_weights(err, path, &model, &st));
    an_status status = an_session_config(err, st, &c);
    const char *text = an_st_meta(st, AN_CKPT_STATE);
    if (status == AN_OK && !text) status = an_fail(err, AN_E_IO, "%s: it does not say how far the run is", path);
    if (status == AN_OK) status = an_run_state_read(err, path, text, c.task->units, &state);
    if (status == AN_OK && step) *step = state.step;
    an_st_close(st);
    return status;
}

/* The same of settings alone: they are read as those of a stranger's file. */
static an_status check_settings(an_err *err, const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    an_train_config c;
    snprintf(path, sizeof path, "%.900s/config.yaml", dir);
    AN_TRY(an_train_config_open(err, path, &c));
    return an_train_config_check(err, &c);
}

an_status an_pack_write_run(an_err *err, const an_pack *t, const char *dir)
{
    if (t->settings_only) return refuse(err, t, manifest_name, "it holds settings, not a run");
    for (size_t i = 0; i < AN_COUNT(an_pack_files); i++)
        AN_TRY(write_member(err, t, an_zip_find(&t->zip, an_pack_files[i]), dir));
    return an_pack_check_checkpoint(err, dir, NULL);
}

static void copy_printable(const char *from, char *out, size_t cap)
{
    snprintf(out, cap, "%s", from);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126) *c = '?';
}

static void read_origin(const an_pack *t, an_handoff *h)
{
    const json_t *m = t->manifest;
    const char *key;
    json_t *value;
    char device[80];
    h->files = (int)t->zip.n - 1;
    h->step = t->step;
    h->settings_only = t->settings_only;
    copy_printable(an_run_text(m, "owner"), h->owner, sizeof h->owner);
    copy_printable(an_run_text(m, "host"), h->origin, 70);
    copy_printable(an_run_text(m, "device"), device, sizeof device);
    device[strcspn(device, ";")] = 0;
    snprintf(h->origin + strlen(h->origin), sizeof h->origin - strlen(h->origin), ", %s", device);
    copy_printable(an_run_text(m, "train_xxh3"), h->train_xxh3, sizeof h->train_xxh3);
    h->ms = an_run_number(m, "ms");
    h->units_per_s = an_run_number(m, "units_per_s");
    h->live_bytes = an_run_number(m, "live_bytes");
    json_object_foreach(json_object_get(m, "environment"), key,
                        value) if (json_is_string(value) && an_pack_variable_travels(key, json_string_value(value)))
        an_text_printf(&h->environment, "%s=%s\n", key, json_string_value(value));
}

/* Sets where the data are on this machine, from the manifest: a name in it is used only if such a member was checked. */
static an_status place_data(an_err *err, const an_pack *t, const char *dir, an_handoff *h)
{
    const char *kind = an_run_text(t->manifest, "data"), *name = an_run_text(t->manifest, "data_name");
    if (strcmp(kind, "folder") == 0) {
        snprintf(h->data, sizeof h->data, "%.900s/data", dir);
    } else if (strcmp(kind, "file") == 0) {
        char member[NAME_BYTES + 8];
        snprintf(member, sizeof member, "data/%.127s", name);
        if (!an_pack_name_is_plain(name) || !an_zip_find(&t->zip, member))
            return refuse(err, t, name, "the data are not in the pack");
        snprintf(h->data, sizeof h->data, "%.800s/%s", dir, member);
    } else if (strcmp(kind, "elsewhere") == 0) {
        h->needs_data = true;
    } else if (strcmp(kind, "builtin") != 0) {
        return refuse(err, t, manifest_name, "this program does not know its kind of data");
    }
    return AN_OK;
}

/* Characters that mean themselves to a shell, to systemd and to launchd. */
static bool is_safe_path(const char *path)
{
    for (const char *c = path; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/._+@-", *c)) return false;
    return *path == '/';
}

static void put_quoted(an_text *out, const char *s)
{
    an_text_puts(out, "'");
    for (; *s; s++)
        if (*s == '\'')
            an_text_puts(out, "'\\''");
        else
            an_text_putn(out, s, 1);
    an_text_puts(out, "'");
}

static void put_environment(const an_handoff *h, const char *before, const char *middle, const char *after,
                            an_text *out)
{
    for (const char *line = h->environment.data; line && *line; line = strchr(line, '\n') + 1) {
        const int n = (int)strcspn(line, "="), all = (int)strcspn(line, "\n");
        an_text_printf(out, "%s%.*s%s%.*s%s", before, n, line, middle, all - n - 1, line + n + 1, after);
    }
}

static an_status save_text(an_err *err, const char *dir, const char *name, an_text *text)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%.900s/%s", dir, name);
    an_status status =
        text->failed ? an_fail_nomem(err, name, text->len) : an_file_write(err, path, text->data, text->len);
    an_text_free(text);
    return status;
}

static an_status write_units(an_err *err, const char *dir, const char *program, an_handoff *h)
{
    an_text service = {0}, plist = {0};
    const char *data = *h->data ? " data=" : "";
    an_text_printf(&service, "[Unit]\nDescription=anneal trains in %s\n\n[Service]\nType=exec\nExecStart=%s ", dir,
                   program);
    if (h->settings_only)
        an_text_printf(&service, "train %s/config.yaml out=%s/run%s%s --quiet\n", dir, dir, data, h->data);
    else
        an_text_printf(&service, "resume %s%s%s --quiet\n", dir, data, h->data);
    put_environment(h, "Environment=", "=", "\n", &service);
    an_text_puts(&service,
                 "KillSignal=SIGTERM\nTimeoutStopSec=600\nRestart=no\n\n[Install]\nWantedBy=default.target\n");
    AN_TRY(save_text(err, dir, "anneal.service", &service));
    an_text_printf(&plist,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "
                   "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n"
                   "  <key>Label</key><string>anneal.run</string>\n  <key>ProgramArguments</key>\n  <array>\n"
                   "    <string>%s</string>\n",
                   program);
    if (h->settings_only)
        an_text_printf(&plist,
                       "    <string>train</string>\n    <string>%s/config.yaml</string>\n"
                       "    <string>out=%s/run</string>\n",
                       dir, dir);
    else
        an_text_printf(&plist, "    <string>resume</string>\n    <string>%s</string>\n", dir);
    if (*data) an_text_printf(&plist, "    <string>data=%s</string>\n", h->data);
    an_text_puts(&plist, "    <string>--quiet</string>\n  </array>\n  <key>EnvironmentVariables</key>\n  <dict>\n");
    put_environment(h, "    <key>", "</key><string>", "</string>\n", &plist);
    an_text_printf(&plist,
                   "  </dict>\n  <key>RunAtLoad</key><true/>\n  <key>ExitTimeOut</key><integer>600</integer>\n"
                   "  <key>StandardErrorPath</key><string>%s/train.log</string>\n</dict>\n</plist>\n",
                   dir);
    h->units = true;
    return save_text(err, dir, "anneal.plist", &plist);
}

/* What was written into a folder that take() has made. */
static void remove_taken(const an_pack *t, const char *dir)
{
    static const char *const made[] = {"anneal.service", "anneal.plist", "data", ""};
    char path[AN_CKPT_PATH_BYTES];
    for (size_t i = 0; i < t->zip.n + AN_COUNT(made); i++) {
        snprintf(path, sizeof path, "%.800s/%.140s", dir, i < t->zip.n ? t->zip.members[i].name : made[i - t->zip.n]);
        (void)remove(path);
    }
}

/* The command that goes on with the run, for a shell. */
static void put_command(const an_pack *t, const char *dir, const char *program, an_handoff *h)
{
    put_environment(h, "", "=", " ", &h->command);
    put_quoted(&h->command, program);
    an_text_puts(&h->command, t->settings_only ? " train " : " resume ");
    put_quoted(&h->command, dir);
    if (t->settings_only) {
        an_text_puts(&h->command, "/config.yaml out=");
        put_quoted(&h->command, dir);
        an_text_puts(&h->command, "/run");
    }
    if (*h->data) an_text_puts(&h->command, " data="), put_quoted(&h->command, h->data);
    if (h->needs_data) an_text_puts(&h->command, " data=DATA");
}

static an_status take_into(an_err *err, const an_pack *t, const char *dir, const char *program, an_handoff *h)
{
    AN_TRY(place_data(err, t, dir, h));
    AN_TRY(write_files(err, t, dir));
    AN_TRY(t->settings_only ? check_settings(err, dir) : an_pack_check_checkpoint(err, dir, &h->step));
    put_command(t, dir, program, h);
    if (!h->needs_data && is_safe_path(dir) && is_safe_path(program)) AN_TRY(write_units(err, dir, program, h));
    return h->command.failed || h->environment.failed ? an_fail_nomem(err, "a command", 0) : AN_OK;
}

static an_status take(an_err *err, const an_pack *t, const char *dir, const char *program, an_handoff *h)
{
    if (mkdir(dir, 0700) != 0)
        return an_fail(
            err, AN_E_IO,
            "%s: %s; a pack is taken into a new folder: name another with out=, or, where an earlier handoff "
            "into this one was interrupted, remove it and call handoff again",
            dir, strerror(errno));
    char *absolute = realpath(dir, NULL);
    const bool fits = absolute && strlen(absolute) < 700;
    an_status status =
        fits ? take_into(err, t, absolute, program, h) : an_fail(err, AN_E_IO, "%s: the path is too long", dir);
    if (status != AN_OK && fits)
        remove_taken(t, absolute);
    else if (status != AN_OK)
        rmdir(dir);
    free(absolute);
    return status;
}

an_status an_pack_take(an_err *err, const char *path, const char *dir, const char *program, an_handoff *out)
{
    an_pack t;
    *out = (an_handoff){.ms = NAN, .units_per_s = NAN, .live_bytes = NAN};
    AN_TRY(an_pack_open(err, path, &t));
    read_origin(&t, out);
    an_status status = take(err, &t, dir, program, out);
    an_pack_close(&t);
    return status;
}

void an_handoff_free(an_handoff *h)
{
    an_text_free(&h->environment);
    an_text_free(&h->command);
}
