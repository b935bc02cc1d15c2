/* cmd_pack.c: pack and collect: a run, or settings, as one file for another machine, and its return. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "report/run_record.h"
#include "tools/collect.h"
#include "train/run_dir.h"
#include <string.h>
#include <sys/stat.h>

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

/* A folder is a run; a preset or a file of settings becomes a pack before there is one. */
static an_status write(an_err *err, const char *what, const pack_values *v, an_pack_result *p, bool *settings)
{
    const an_pack_options o = {.owner = v->owner, .commit = an_commit, .with_data = strcmp(v->data, "include") == 0};
    const char *dot = strrchr(what, '.');
    const an_model *unused;
    an_train_config c;
    *settings = (dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0 || strcmp(dot, ".py") == 0)) ||
                (!an_run_dir_is_a_run(what) && an_preset_find(what, &unused));
    if (!*settings) return an_pack_write(err, what, v->out, &o, p);
    AN_TRY(an_train_config_open(err, what, &c));
    AN_TRY(an_train_config_check(err, &c));
    return an_pack_write_settings(err, &c, v->out, &o, p);
}

/* Of its files, and of its data where they travel; 0: unknown, as of settings. */
static int64_t bytes_of_run(const char *dir, bool with_data)
{
    char path[AN_CKPT_PATH_BYTES], data[AN_RUN_SETTING_BYTES];
    struct stat s;
    an_err quiet = {0};
    an_run_record r;
    int64_t sum = 0;
    if (!an_run_dir_is_a_run(dir)) return 0;
    for (size_t i = 0; i < AN_PACK_RUN_FILES; i++) {
        snprintf(path, sizeof path, "%.900s/%s", dir, an_pack_files[i]);
        if (stat(path, &s) == 0) sum += s.st_size;
    }
    if (with_data && an_run_record_read(&quiet, dir, &r) == AN_OK) {
        if (stat(an_run_setting(&r, "data", data), &s) != 0)
            s.st_size = 0;
        else if (S_ISDIR(s.st_mode))
            sum = s.st_size = 0; /* many files: not summed up */
        sum += s.st_size;
        an_run_record_free(&r);
    }
    return sum;
}

an_status an_cmd_pack(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    pack_values v;
    an_pack_result p;
    an_text out = {0};
    char bytes[16];
    bool settings;
    AN_TRY(an_config_defaults(err, &an_pack_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_pack_keys, &v}, 1));
    AN_TRY(an_run_dir_check_output(err, v.out));
    an_bar_file file = {v.out, bytes_of_run(args->words[0], strcmp(v.data, "include") == 0)};
    an_bar *bar = an_bar_open(args, "pack", "bytes", an_bar_probe_file, &file);
    an_status status = write(err, args->words[0], &v, &p, &settings);
    an_bar_close(bar);
    AN_TRY(status);
    if (!args->json && settings) {
        an_say("packed  the settings and %d files of data, %s: %s; on the other machine: anneal handoff %s",
               p.files - 1, an_bytes_text((double)p.bytes, bytes), v.out, v.out);
        return AN_OK;
    }
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

an_status an_cmd_collect(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    an_collected c;
    an_text out = {0};
    const char *dir = args->words[1];
    AN_TRY(an_collect(err, args->words[0], dir, &c));
    if (!args->json) {
        an_say("collected  updates %lld to %lld from %s", (long long)c.from, (long long)c.step - 1, c.origin);
        if (*c.aside) an_say("note    the older state of %s is in %s now", dir, c.aside);
        an_say("goes on with: anneal resume %s%s%s", dir, *c.data ? " data=" : "", c.data);
        return AN_OK;
    }
    an_text_puts(&out, "{\"run\":");
    an_json_put(&out, dir);
    an_text_printf(&out, ",\"from\":%lld,\"step\":%lld,\"origin\":", (long long)c.from, (long long)c.step);
    an_json_put(&out, c.origin);
    an_text_puts(&out, ",\"aside\":");
    an_json_put(&out, c.aside);
    an_text_puts(&out, "}");
    return an_print_line(err, &out);
}
