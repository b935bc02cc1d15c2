/* pack_write.c: writes packs of a run, or of settings before there is one. See pack.h. */
#define _DEFAULT_SOURCE
#include "tools/pack.h"
#include "io/formats/sha256.h"
#include "io/formats/zip_write.h"
#include "platform/platform.h"
#include "report/run_record.h"
#include "train/run_dir.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct packer {
    an_zip_writer zip;
    an_text files; /* members of the manifest's list */
    an_pack_result *out;
} packer;

static an_status add_bytes(an_err *err, packer *p, const char *name, const void *data, size_t bytes)
{
    char hash[AN_SHA256_TEXT_BYTES];
    if (p->out->files == AN_PACK_MOST_FILES)
        return an_fail(err, AN_E_USAGE, "%s: a pack holds at most %d files", name, AN_PACK_MOST_FILES);
    an_sha256(data, bytes, hash);
    an_text_printf(&p->files, "%s{\"name\":\"%s\",\"bytes\":%llu,\"sha256\":\"%s\"}", p->out->files++ ? "," : "", name,
                   (unsigned long long)bytes, hash);
    p->out->bytes += bytes;
    return an_zip_add(err, &p->zip, name, data, bytes);
}

static an_status add_file(an_err *err, packer *p, const char *path, const char *name)
{
    an_map_file m;
    AN_TRY(an_file_map(err, path, &m));
    an_status status = add_bytes(err, p, name, m.data, m.bytes);
    an_file_unmap(&m);
    return status;
}

static an_status add_data_file(an_err *err, packer *p, const char *path, const char *name)
{
    char member[AN_PACK_NAME_BYTES + 8];
    if (!an_pack_name_is_plain(name))
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

/* Adds the data, and to the manifest their kind ("builtin", "file", "folder", "elsewhere") and name. */
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
    an_json_put_number(out, "ms", an_run_median(r, AN_RUN_MS, r->n / 10, r->n));
    an_json_put_number(out, "units_per_s", an_run_median(r, AN_RUN_UNITS_PER_S, r->n / 10, r->n));
    an_json_put_number(out, "live_bytes", an_run_median(r, AN_RUN_LIVE_BYTES, r->n / 10, r->n));
    an_text_puts(out, ",\"environment\":{");
    for (const char *const *name = an_pack_variables; *name; name++) {
        const char *value = an_run_text(environment, *name);
        if (an_pack_variable_travels(*name, value))
            an_text_printf(out, "%s\"%s\":\"%s\"", n++ ? "," : "", *name, value);
    }
    an_text_puts(out, "}");
}

/* Begins the manifest: {"schema":..,"kind":..,"step":..; the caller appends members, add_manifest the list of files. */
static void begin_manifest(const char *kind, int64_t step, const an_pack_options *o, an_text *out)
{
    an_text_printf(out, "{\"schema\":%d,\"kind\":\"%s\",\"anneal\":\"%s\",\"commit\":", AN_PACK_SCHEMA, kind,
                   AN_VERSION);
    an_json_put(out, o->commit);
    an_text_puts(out, ",\"owner\":");
    an_json_put(out, o->owner);
    an_text_printf(out, ",\"step\":%lld", (long long)step);
}

/* Ends the manifest and adds it to the pack if status is AN_OK; frees it in any case. */
static an_status add_manifest(an_err *err, packer *p, an_text *manifest, an_status status)
{
    an_text_puts(manifest, ",\"files\":[");
    an_text_puts(manifest, p->files.data ? p->files.data : "");
    an_text_puts(manifest, "]}\n");
    if (status == AN_OK && (manifest->failed || p->files.failed)) status = an_fail_nomem(err, "a pack", manifest->len);
    if (status == AN_OK) status = an_zip_add(err, &p->zip, "pack.json", manifest->data, manifest->len);
    an_text_free(manifest);
    return status;
}

static an_status write_run(an_err *err, packer *p, const char *dir, const an_run_record *r, const an_pack_options *o)
{
    char path[AN_CKPT_PATH_BYTES];
    an_text manifest = {0};
    const char *named = json_string_value(json_object_get(an_run_settings(r), "data"));
    begin_manifest("run", p->out->step, o, &manifest);
    put_origin(r, &manifest);
    an_status status = AN_OK;
    for (size_t i = 0; i < AN_PACK_RUN_FILES && status == AN_OK; i++) {
        snprintf(path, sizeof path, "%.900s/%s", dir, an_pack_files[i]);
        status = add_file(err, p, path, an_pack_files[i]);
    }
    if (status == AN_OK) status = add_data(err, p, named ? named : "", o->with_data, &manifest);
    return add_manifest(err, p, &manifest, status);
}

static an_status write_settings(an_err *err, packer *p, const an_train_config *c, const an_pack_options *o)
{
    an_text manifest = {0}, yaml = {0};
    begin_manifest("settings", 0, o, &manifest);
    an_train_config_yaml(c, &yaml);
    an_status status = yaml.failed ? an_fail_nomem(err, "settings", yaml.len) : AN_OK;
    if (status == AN_OK) status = add_bytes(err, p, an_pack_files[0], yaml.data, yaml.len);
    an_text_free(&yaml);
    if (status == AN_OK) status = add_data(err, p, c->data, o->with_data, &manifest);
    return add_manifest(err, p, &manifest, status);
}

static an_status check_owner(an_err *err, const an_pack_options *o)
{
    AN_TRY(an_json_check_text(err, "owner", o->owner));
    if (strlen(o->owner) < AN_PACK_OWNER_BYTES) return AN_OK;
    return an_fail(err, AN_E_USAGE, "owner: a name of at most %d bytes", AN_PACK_OWNER_BYTES - 1);
}

static void end_pack(packer *p)
{
    an_zip_abort(&p->zip);
    an_text_free(&p->files);
}

an_status an_pack_write(an_err *err, const char *dir, const char *path, const an_pack_options *o, an_pack_result *out)
{
    packer p = {.out = out};
    an_run_record r;
    *out = (an_pack_result){0};
    AN_TRY(check_owner(err, o));
    if (!an_run_dir_is_a_run(dir)) return an_fail(err, AN_E_USAGE, "%s: no run was trained in this folder", dir);
    if (an_run_dir_is_locked(dir))
        return an_fail(err, AN_E_USAGE,
                       "%s: a process trains here: anneal stop %s first, so that the pack is one state", dir, dir);
    /* not of the metrics, which go on behind the checkpoint of a run that was killed */
    AN_TRY(an_pack_check_checkpoint(err, dir, &out->step));
    an_status status = an_run_record_read(err, dir, &r);
    if (status == AN_OK) status = an_zip_begin(err, path, &p.zip);
    if (status == AN_OK) status = write_run(err, &p, dir, &r, o);
    if (status == AN_OK) status = an_zip_commit(err, &p.zip);
    end_pack(&p);
    an_run_record_free(&r);
    return status;
}

an_status an_pack_write_settings(an_err *err, const an_train_config *c, const char *path, const an_pack_options *o,
                                 an_pack_result *out)
{
    packer p = {.out = out};
    *out = (an_pack_result){0};
    AN_TRY(check_owner(err, o));
    an_status status = an_zip_begin(err, path, &p.zip);
    if (status == AN_OK) status = write_settings(err, &p, c, o);
    if (status == AN_OK) status = an_zip_commit(err, &p.zip);
    end_pack(&p);
    return status;
}
