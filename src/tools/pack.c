/* pack.c: writes and takes packs. See pack.h. */
#define _DEFAULT_SOURCE
#include "tools/pack.h"
#include "io/formats/json.h"
#include "io/formats/sha256.h"
#include "io/formats/zip.h"
#include "io/formats/zip_write.h"
#include "platform/platform.h"
#include "report/run_record.h"
#include "train/run_dir.h"
#include "train/session.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_BYTES = 4 << 20, NAME_BYTES = 128 };
static const char manifest_name[] = "pack.json";
static const char *const fixed_names[] = {"config.yaml", "metrics.jsonl", "logbook.jsonl", "last.safetensors"};

/* Variables that steer how fast a run computes or how much memory it takes, and name no file or program. */
static const char *const allowed_variables[] = {"OMP_NUM_THREADS", "DISABLE_COMPILE", "PYTORCH_ENABLE_MPS_FALLBACK",
                                                "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_MPS_LOW_WATERMARK_RATIO"};

/* Letters, digits, and . _ - behind the first: no separators, nothing hidden, no option. */
static bool is_plain(const char *name)
{
    if (!isalnum((unsigned char)*name) || strlen(name) >= NAME_BYTES) return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) return false;
    return true;
}

static bool may_be_a_member(const char *name)
{
    for (size_t i = 0; i < AN_COUNT(fixed_names); i++)
        if (strcmp(name, fixed_names[i]) == 0) return true;
    return strncmp(name, "data/", 5) == 0 && is_plain(name + 5);
}

static bool may_be_a_variable(const char *name, const char *value)
{
    bool known = false;
    for (size_t i = 0; i < AN_COUNT(allowed_variables); i++) known |= strcmp(name, allowed_variables[i]) == 0;
    if (!known || !*value || strlen(value) > 64) return false;
    for (const char *c = value; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) return false;
    return true;
}

/* ---- writing */

typedef struct packer {
    an_zip_writer zip;
    an_text files; /* members of the manifest's list */
    an_pack_result *out;
} packer;

static an_status add_file(an_err *err, packer *p, const char *path, const char *name)
{
    an_map_file m;
    char hash[AN_SHA256_TEXT_BYTES];
    if (p->out->files == AN_PACK_MOST_FILES)
        return an_fail(err, AN_E_USAGE, "%s: a pack holds at most %d files", path, AN_PACK_MOST_FILES);
    AN_TRY(an_file_map(err, path, &m));
    an_sha256(m.data, m.bytes, hash);
    an_status status = an_zip_add(err, &p->zip, name, m.data, m.bytes);
    an_text_printf(&p->files, "%s{\"name\":\"%s\",\"bytes\":%llu,\"sha256\":\"%s\"}", p->out->files++ ? "," : "", name,
                   (unsigned long long)m.bytes, hash);
    p->out->bytes += m.bytes;
    an_file_unmap(&m);
    return status;
}

static an_status add_data_file(an_err *err, packer *p, const char *path, const char *name)
{
    char member[NAME_BYTES + 8];
    if (!is_plain(name))
        return an_fail(err, AN_E_USAGE, "%s: a file with this name cannot travel in a pack: use letters, digits, . _ -",
                       path);
    snprintf(member, sizeof member, "data/%s", name);
    return add_file(err, p, path, member);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The plain files of a folder, in the order of their names. A folder in it is refused: it would be left behind. */
static an_status add_data_folder(an_err *err, packer *p, const char *dir)
{
    DIR *d = opendir(dir);
    char *name[AN_PACK_MOST_FILES];
    int n = 0;
    an_status status = d ? AN_OK : an_fail(err, AN_E_IO, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; d && status == AN_OK && (e = readdir(d));) {
        char path[AN_CKPT_PATH_BYTES];
        struct stat s;
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%.700s/%.255s", dir, e->d_name);
        if (n == AN_PACK_MOST_FILES || lstat(path, &s) != 0 || !S_ISREG(s.st_mode))
            status = an_fail(err, AN_E_USAGE,
                             "%s: only folders of at most %d plain files travel in a pack; copy the data yourself and "
                             "pack with data=checksums",
                             path, AN_PACK_MOST_FILES);
        else if (!(name[n++] = strdup(e->d_name)))
            status = an_fail_nomem(err, dir, strlen(e->d_name)), n--;
    }
    if (d) closedir(d);
    qsort(name, (size_t)n, sizeof *name, by_name);
    for (int i = 0; i < n; i++) {
        char path[AN_CKPT_PATH_BYTES];
        snprintf(path, sizeof path, "%.700s/%.255s", dir, name[i]);
        if (status == AN_OK) status = add_data_file(err, p, path, name[i]);
        free(name[i]);
    }
    return status;
}

/* "builtin", "file", "folder", "elsewhere"; of a file its name. */
static an_status add_data(an_err *err, packer *p, const char *data, bool with_data, an_text *manifest)
{
    struct stat s;
    const char *slash = strrchr(data, '/'), *kind = "builtin";
    const bool there = stat(data, &s) == 0;
    if (!there && (slash || strchr(data, '.')))
        return an_fail(err, AN_E_USAGE, "%s: the run's data are not here: pack in the folder in which it was trained",
                       data);
    if (there && !with_data)
        kind = "elsewhere";
    else if (there)
        kind = S_ISDIR(s.st_mode) ? "folder" : "file";
    an_text_printf(manifest, ",\"data\":\"%s\",\"data_name\":", kind);
    an_json_put(manifest, slash ? slash + 1 : data);
    if (!there || !with_data) return AN_OK;
    return S_ISDIR(s.st_mode) ? add_data_folder(err, p, data) : add_data_file(err, p, data, slash ? slash + 1 : data);
}

static double median(const an_run_record *r, an_run_column column)
{
    double *v;
    size_t n;
    if (an_run_sorted(NULL, r, column, r->n / 10, r->n, &v, &n) != AN_OK) return NAN;
    const double m = an_run_quantile(v, n, 0.5);
    free(v);
    return m;
}

static void put_origin(const an_run_record *r, an_text *out)
{
    const json_t *environment = json_object_get(r->begin, "environment");
    int n = 0;
    an_text_puts(out, ",\"host\":");
    an_json_put(out, an_run_text(r->begin, "host"));
    an_text_puts(out, ",\"device\":");
    an_json_put(out, an_run_text(r->begin, "device"));
    an_text_puts(out, ",\"train_xxh3\":");
    an_json_put(out, an_run_text(r->begin, "train_xxh3"));
    an_json_put_number(out, "ms", median(r, AN_RUN_MS));
    an_json_put_number(out, "units_per_s", median(r, AN_RUN_UNITS_PER_S));
    an_json_put_number(out, "live_bytes", median(r, AN_RUN_LIVE_BYTES));
    an_text_puts(out, ",\"environment\":{");
    for (size_t i = 0; i < AN_COUNT(allowed_variables); i++) {
        const char *value = an_run_text(environment, allowed_variables[i]);
        if (may_be_a_variable(allowed_variables[i], value))
            an_text_printf(out, "%s\"%s\":\"%s\"", n++ ? "," : "", allowed_variables[i], value);
    }
    an_text_puts(out, "}");
}

static an_status write_members(an_err *err, packer *p, const char *dir, const an_run_record *r,
                               const an_pack_options *o)
{
    char path[AN_CKPT_PATH_BYTES];
    an_text manifest = {0};
    const char *named = json_string_value(json_object_get(an_run_settings(r), "data"));
    p->out->step = r->n ? r->update[r->n - 1].step + 1 : 0;
    an_text_printf(&manifest, "{\"schema\":%d,\"anneal\":\"%s\",\"commit\":", AN_PACK_SCHEMA, AN_VERSION);
    an_json_put(&manifest, o->commit);
    an_text_puts(&manifest, ",\"owner\":");
    an_json_put(&manifest, o->owner);
    an_text_printf(&manifest, ",\"step\":%lld", (long long)p->out->step);
    put_origin(r, &manifest);
    an_status status = AN_OK;
    for (size_t i = 0; i < AN_COUNT(fixed_names) && status == AN_OK; i++) {
        snprintf(path, sizeof path, "%.900s/%s", dir, fixed_names[i]);
        status = add_file(err, p, path, fixed_names[i]);
    }
    if (status == AN_OK) status = add_data(err, p, named ? named : "", o->with_data, &manifest);
    an_text_puts(&manifest, ",\"files\":[");
    an_text_puts(&manifest, p->files.data ? p->files.data : "");
    an_text_puts(&manifest, "]}\n");
    if (status == AN_OK && (manifest.failed || p->files.failed)) status = an_fail_nomem(err, "a pack", manifest.len);
    if (status == AN_OK) status = an_zip_add(err, &p->zip, manifest_name, manifest.data, manifest.len);
    an_text_free(&manifest);
    return status;
}

an_status an_pack_write(an_err *err, const char *dir, const char *path, const an_pack_options *o, an_pack_result *out)
{
    packer p = {.out = out};
    an_run_record r;
    *out = (an_pack_result){0};
    AN_TRY(an_json_check_text(err, "owner", o->owner));
    if (strlen(o->owner) >= AN_PACK_OWNER_BYTES)
        return an_fail(err, AN_E_USAGE, "owner: a name of at most %d bytes", AN_PACK_OWNER_BYTES - 1);
    if (!an_run_dir_is_a_run(dir)) return an_fail(err, AN_E_USAGE, "%s: no run was trained in this folder", dir);
    if (an_run_dir_is_locked(dir))
        return an_fail(err, AN_E_USAGE,
                       "%s: a process trains here: anneal stop %s first, so that the pack is one state", dir, dir);
    an_status status = an_run_record_read(err, dir, &r);
    if (status == AN_OK) status = an_zip_begin(err, path, &p.zip);
    if (status == AN_OK) status = write_members(err, &p, dir, &r, o);
    if (status == AN_OK) status = an_zip_commit(err, &p.zip);
    an_zip_abort(&p.zip);
    an_text_free(&p.files);
    an_run_record_free(&r);
    return status;
}

/* ---- checking */

typedef struct taker {
    const char *path;
    an_zip zip;
    json_t *manifest;
} taker;

static an_status refuse(an_err *err, const taker *t, const char *name, const char *why)
{
    char quoted[AN_QUOTED_BYTES];
    return an_fail(err, AN_E_DATA, "%s: %s: %s; nothing was written: ask for the pack again", t->path,
                   an_quoted(name, quoted), why);
}

static an_status check_file(an_err *err, const taker *t, const json_t *file)
{
    const char *name = an_run_text(file, "name");
    char hash[AN_SHA256_TEXT_BYTES];
    if (!may_be_a_member(name)) return refuse(err, t, name, "a pack has no file of this name");
    const an_zip_member *m = an_zip_find(&t->zip, name);
    if (!m) return refuse(err, t, name, "pack.json lists it, and the archive lacks it");
    an_sha256(t->zip.data + m->at, (size_t)m->bytes, hash);
    if (strcmp(hash, an_run_text(file, "sha256")) != 0)
        return refuse(err, t, name, "its SHA-256 is not the one in pack.json: it was changed or damaged");
    return AN_OK;
}

/* Each file of the list is a member, once, and each member is in the list. */
static an_status check_members(an_err *err, const taker *t)
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
    for (size_t k = 0; k < AN_COUNT(fixed_names); k++)
        if (!an_zip_find(&t->zip, fixed_names[k])) return refuse(err, t, fixed_names[k], "the pack lacks it");
    return AN_OK;
}

static an_status open_pack(an_err *err, taker *t, const an_map_file *m, an_arena *arena)
{
    AN_TRY(an_zip_open(err, t->path, m->data, m->bytes, arena, &t->zip));
    const an_zip_member *manifest = an_zip_find(&t->zip, manifest_name);
    if (!manifest || manifest->bytes > MANIFEST_BYTES)
        return an_fail(err, AN_E_DATA, "%s: no pack: it has no %s; anneal pack RUN writes one", t->path, manifest_name);
    AN_TRY(an_json_parse(err, t->path, manifest->at, (const char *)t->zip.data + manifest->at, (size_t)manifest->bytes,
                         &t->manifest));
    return check_members(err, t);
}

/* ---- writing what was received */

static an_status write_files(an_err *err, const taker *t, const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%.900s/data", dir);
    AN_TRY(an_make_dirs(err, path, 0700));
    for (size_t i = 0; i < t->zip.n; i++) {
        const an_zip_member *m = &t->zip.members[i];
        snprintf(path, sizeof path, "%.800s/%.140s", dir, m->name);
        AN_TRY(an_file_write(err, path, t->zip.data + m->at, (size_t)m->bytes));
    }
    return AN_OK;
}

static void copy_printable(const char *from, char *out, size_t cap)
{
    snprintf(out, cap, "%s", from);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126) *c = '?';
}

static void read_origin(const taker *t, an_handoff *h)
{
    const json_t *m = t->manifest;
    const char *key;
    json_t *value;
    char device[80];
    const double step = an_run_number(m, "step");
    h->files = (int)t->zip.n - 1;
    h->step = step >= 0 && step < 1e15 ? (int64_t)step : 0;
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
                        value) if (json_is_string(value) && may_be_a_variable(key, json_string_value(value)))
        an_text_printf(&h->environment, "%s=%s\n", key, json_string_value(value));
}

/* Where the data are on this machine, by the manifest's word; the names in it were members that were checked. */
static an_status place_data(an_err *err, const taker *t, const char *dir, an_handoff *h)
{
    const char *kind = an_run_text(t->manifest, "data"), *name = an_run_text(t->manifest, "data_name");
    if (strcmp(kind, "folder") == 0) {
        snprintf(h->data, sizeof h->data, "%.900s/data", dir);
    } else if (strcmp(kind, "file") == 0) {
        char member[NAME_BYTES + 8];
        snprintf(member, sizeof member, "data/%.127s", name);
        if (!is_plain(name) || !an_zip_find(&t->zip, member))
            return refuse(err, t, name, "the data are not in the pack");
        snprintf(h->data, sizeof h->data, "%.800s/%s", dir, member);
    } else if (strcmp(kind, "elsewhere") == 0) {
        h->needs_data = true;
    } else if (strcmp(kind, "builtin") != 0) {
        return refuse(err, t, manifest_name, "its data are of no kind that this program knows");
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
    const char *data = *h->data ? "data=" : "";
    an_text_printf(
        &service,
        "[Unit]\nDescription=anneal trains in %s\n\n[Service]\nType=exec\nExecStart=%s resume %s%s%s%s --quiet\n", dir,
        program, dir, *data ? " " : "", data, h->data);
    put_environment(h, "Environment=", "=", "\n", &service);
    an_text_puts(&service,
                 "KillSignal=SIGTERM\nTimeoutStopSec=600\nRestart=no\n\n[Install]\nWantedBy=default.target\n");
    AN_TRY(save_text(err, dir, "anneal.service", &service));
    an_text_printf(&plist,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "
                   "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n"
                   "  <key>Label</key><string>anneal.run</string>\n  <key>ProgramArguments</key>\n  <array>\n"
                   "    <string>%s</string>\n    <string>resume</string>\n    <string>%s</string>\n",
                   program, dir);
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

/* The checkpoint must be one that this program would resume: its settings are read and checked here. */
static an_status check_checkpoint(an_err *err, const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    const an_model *model;
    an_st *st;
    an_train_config c;
    snprintf(path, sizeof path, "%.900s/last.safetensors", dir);
    AN_TRY(an_model_open_weights(err, path, &model, &st));
    an_status status = an_session_config(err, st, &c);
    an_st_close(st);
    return status;
}

static an_status take(an_err *err, const taker *t, const char *dir, const char *program, an_handoff *h)
{
    if (mkdir(dir, 0700) != 0)
        return an_fail(err, AN_E_IO, "%s: %s; a pack is taken into a new folder: name another with out=", dir,
                       strerror(errno));
    char *absolute = realpath(dir, NULL);
    an_status status =
        absolute && strlen(absolute) < 700 ? AN_OK : an_fail(err, AN_E_IO, "%s: the path is too long", dir);
    if (status == AN_OK) status = place_data(err, t, absolute, h);
    if (status != AN_OK) rmdir(dir);
    if (status == AN_OK) status = write_files(err, t, absolute);
    if (status == AN_OK) status = check_checkpoint(err, absolute);
    if (status == AN_OK) {
        put_environment(h, "", "=", " ", &h->command);
        put_quoted(&h->command, program);
        an_text_puts(&h->command, " resume ");
        put_quoted(&h->command, absolute);
        if (*h->data) an_text_puts(&h->command, " data="), put_quoted(&h->command, h->data);
        if (h->needs_data) an_text_puts(&h->command, " data=DATA");
        if (!h->needs_data && is_safe_path(absolute) && is_safe_path(program))
            status = write_units(err, absolute, program, h);
    }
    if (status == AN_OK && (h->command.failed || h->environment.failed)) status = an_fail_nomem(err, "a command", 0);
    free(absolute);
    return status;
}

an_status an_pack_take(an_err *err, const char *path, const char *dir, const char *program, an_handoff *out)
{
    taker t = {.path = path};
    an_map_file m;
    an_arena arena = {0};
    *out = (an_handoff){.ms = NAN, .units_per_s = NAN, .live_bytes = NAN};
    AN_TRY(an_file_map(err, path, &m));
    an_status status = open_pack(err, &t, &m, &arena);
    if (status == AN_OK) {
        read_origin(&t, out);
        status = take(err, &t, dir, program, out);
    }
    json_decref(t.manifest);
    an_arena_free(&arena);
    an_file_unmap(&m);
    return status;
}

void an_handoff_free(an_handoff *h)
{
    an_text_free(&h->environment);
    an_text_free(&h->command);
}
