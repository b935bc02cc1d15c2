/* decide_lanes.c: see decide_lanes.h. */
#define _DEFAULT_SOURCE
#include "cli/decide_lanes.h"
#include "cli/measured_run.h"
#include "cli/progress_bar.h"
#include "platform/platform.h"
#include "platform/scratch.h"
#include "tools/pack.h"
#include "train/run_dir.h"
#include <anneal_tools.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = AN_CLI_MAX_SETTINGS + 20, LANE_SECONDS = 24 * 3600, MLX_UPDATES = 60, MLX_LIMIT_S = 1200 };
#define MLX_SECONDS "60"
extern const char an_embed_mlx_gpt[];

void an_lanes_free(an_lanes *l)
{
    for (int i = 0; i < AN_DECIDE_LANES; i++) an_run_record_free(&l->run[i]);
}

static bool is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* One file or folder under two names. */
static bool is_same(const char *a, const char *b)
{
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

static bool is_pack(const char *path)
{
    an_map_file map;
    if (!is_file(path) || an_file_map(NULL, path, &map) != AN_OK) return false;
    const bool zip = an_zip_is(map.data, map.bytes);
    an_file_unmap(&map);
    return zip;
}

bool an_lanes_are_measured(const an_args *args)
{
    struct stat s;
    const char *word = args->words[0];
    const bool folder = stat(word, &s) == 0 && S_ISDIR(s.st_mode);
    return args->n_words == 1 && !folder && !is_pack(word) && (is_file(word) || !strchr(word, '/'));
}

/* ---- runs that were trained before */

/* The history of a pack, through a folder of its own. */
static an_status read_pack(an_err *err, const char *path, an_run_record *out)
{
    static const char *const files[] = {"metrics.jsonl", "logbook.jsonl"};
    char file[AN_CKPT_PATH_BYTES + 64];
    an_pack p;
    an_scratch dir = {.fd = 0};
    AN_TRY(an_pack_open(err, path, &p));
    an_status status =
        p.settings_only ? an_fail(err, AN_E_DATA, "%s: it holds settings, not a run: there is nothing to compare", path)
                        : an_scratch_open(err, NULL, &dir);
    for (size_t i = 0; i < AN_COUNT(files) && status == AN_OK; i++) {
        const an_zip_member *m = an_zip_find(&p.zip, files[i]);
        snprintf(file, sizeof file, "%s/%s", dir.path, files[i]);
        status = m ? an_file_write(err, file, p.zip.data + m->at, m->bytes)
                   : an_fail(err, AN_E_DATA, "%s: it has no %s", path, files[i]);
    }
    if (status == AN_OK) status = an_run_record_read(err, dir.path, out);
    an_scratch_close(&dir);
    an_pack_close(&p);
    return status;
}

an_status an_lanes_read(an_err *err, const an_args *args, const an_config *keys, void *values, an_lanes *out)
{
    const an_model *unused;
    for (size_t i = 0; i < args->n_settings; i++)
        if (!an_config_find(keys, args->settings[i].key) || strcmp(args->settings[i].key, "steps") == 0)
            return an_fail(err, AN_E_USAGE, "decide: %s is a setting of runs, and these are trained already%s",
                           args->settings[i].key,
                           args->n_words == 1 && an_preset_find(args->words[0], &unused)
                               ? "; this preset is also the name of a folder here, which was taken: call it elsewhere"
                               : "");
    AN_TRY(an_args_apply(err, args, &(an_key_set){keys, values}, 1));
    for (int i = 0; i < args->n_words; i++) {
        const char *word = args->words[i];
        for (int k = 0; k < i; k++)
            if (is_same(args->words[k], word))
                return an_fail(err, AN_E_USAGE, "decide: %s and %s are one run: name each lane once", args->words[k],
                               word);
        AN_TRY(is_pack(word) ? read_pack(err, word, &out->run[i]) : an_run_record_read(err, word, &out->run[i]));
        out->name[i] = word;
        out->n++;
    }
    return AN_OK;
}

/* ---- runs that are trained here */

static void leave_out(an_lanes *l, const char *name, const char *why)
{
    if (l->n_left_out == AN_LANES_LEFT_OUT) return;
    snprintf(l->left_out[l->n_left_out].name, sizeof l->left_out[0].name, "%.31s", name);
    snprintf(l->left_out[l->n_left_out].why, sizeof l->left_out[0].why, "%.255s", why);
    l->n_left_out++;
}

/* The last line of a program's output. */
static const char *last_line(char *output)
{
    size_t n = strlen(output);
    while (n > 0 && (output[n - 1] == '\n' || output[n - 1] == '\r')) output[--n] = 0;
    for (size_t i = 0; i < n; i++) /* of a program of strangers */
        if ((unsigned char)output[i] < ' ' && output[i] != '\n') output[i] = '?';
    const char *newline = strrchr(output, '\n');
    return newline ? newline + 1 : output;
}

/* What mlx_gpt.py printed: the time of each update. */
static bool read_times(const char *text, an_lanes *l)
{
    json_t *told = json_loads(text, 0, NULL);
    const json_t *ms = json_object_get(told, "ms");
    double sorted[MLX_UPDATES];
    size_t n = 0;
    const size_t all = json_array_size(ms), first = AN_MAX((size_t)2, all / 10);
    for (size_t i = first; i < all && n < MLX_UPDATES; i++) {
        const double x = json_number_value(json_array_get(ms, i));
        if (x > 0) sorted[n++] = x;
    }
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && sorted[k] < sorted[k - 1]; k--) {
            const double x = sorted[k];
            sorted[k] = sorted[k - 1];
            sorted[k - 1] = x;
        }
    l->mlx.n = (int)n;
    l->mlx.ms = an_run_quantile(sorted, n, 0.5);
    snprintf(l->mlx.on, sizeof l->mlx.on, "MLX %.30s, %.60s", an_run_text(told, "version"),
             an_run_text(told, "device"));
    json_decref(told);
    return n > 0;
}

/* MLX is another program: a GPT that is written for it (mlx_gpt.py) is timed with the reference's settings. */
static void time_mlx(const an_args *args, int64_t steps, an_lanes *l)
{
    char output[8192] = "", updates[32], why[256];
    int code = -1;
    const json_t *settings = l->n ? an_run_settings(&l->run[0]) : NULL;
    char *told = settings ? json_dumps(settings, JSON_COMPACT) : NULL;
    snprintf(updates, sizeof updates, "%d", (int)AN_MIN(steps, (int64_t)MLX_UPDATES));
    const char *const argv[] = {"python3", "-c", an_embed_mlx_gpt, told ? told : "{}", updates, MLX_SECONDS, NULL};
    an_bar *bar = an_bar_open(args, "mlx", "updates", NULL, NULL);
    const bool ran = an_spawn(NULL, argv, MLX_LIMIT_S, output, sizeof output, &code) == AN_OK;
    an_bar_close(bar);
    free(told);
    const char *line = last_line(output);
    if (!ran)
        leave_out(l, "mlx", "no python3 was found");
    else if (code == 0 && read_times(line, l))
        return;
    else if (code == 3 && *line)
        leave_out(l, "mlx", line);
    else {
        snprintf(why, sizeof why,
                 code < 0 ? "its program was not done in time" : "its program ended with code %d: %.150s", code, line);
        leave_out(l, "mlx", why);
    }
}

typedef struct arguments {
    const char *argv[MOST_ARGUMENTS];
    char setting[AN_CLI_MAX_SETTINGS][64 + AN_CONFIG_TEXT_BYTES];
    char own[4][AN_CONFIG_TEXT_BYTES + 32];
    char note[AN_CONFIG_TEXT_BYTES];
} arguments;

static void build_arguments(const an_args *args, const an_config *keys, const an_lane_values *v, const char *device,
                            const char *dir, arguments *a)
{
    int n = 0;
    int used = snprintf(a->note, sizeof a->note, "decide: %s steps=%lld", args->words[0], (long long)v->steps);
    a->argv[n++] = an_measured_program();
    a->argv[n++] = "train";
    a->argv[n++] = args->words[0];
    for (size_t i = 0; i < args->n_settings; i++) {
        const an_setting *s = &args->settings[i];
        if (an_config_find(keys, s->key)) continue;
        snprintf(a->setting[i], sizeof a->setting[i], "%s=%s", s->key, s->value);
        a->argv[n++] = a->setting[i];
        if (used < (int)sizeof a->note)
            used += snprintf(a->note + used, sizeof a->note - (size_t)used, " %s", a->setting[i]);
    }
    if (used >= (int)sizeof a->note) a->note[0] = 0; /* too long for the note by which a later call finds this run */
    snprintf(a->own[0], sizeof a->own[0], "device=%.31s", device);
    snprintf(a->own[1], sizeof a->own[1], "out=%s", dir);
    snprintf(a->own[2], sizeof a->own[2], "max_iters=%lld", (long long)v->steps);
    snprintf(a->own[3], sizeof a->own[3], "note=%s", a->note);
    for (size_t i = 0; i < AN_COUNT(a->own); i++) a->argv[n++] = a->own[i];
    a->argv[n++] = "log_interval=1";
    a->argv[n++] = "eval_interval=1000000000";
    a->argv[n++] = "eval_iters=1";
    a->argv[n++] = "keep=0";
    a->argv[n++] = "--quiet";
    a->argv[n] = NULL;
}

/* A lane that cannot be trained is left out with its sentence; the first is the reference: if it
 * fails, the command fails. */
static an_status measure_lane(an_err *err, const an_args *args, const an_config *keys, const an_lane_values *v,
                              const char *device, an_lanes *l)
{
    char output[8192] = "", why[256];
    char *dir = l->path[l->n];
    int code = 0;
    arguments *a = malloc(sizeof *a);
    if (!a) return an_fail_nomem(err, "a lane's arguments", sizeof *a);
    snprintf(dir, AN_CKPT_PATH_BYTES, "%.500s/%.31s", v->out, device);
    build_arguments(args, keys, v, device, dir, a);
    an_status status = AN_OK;
    if (!an_measured_is_there(dir, a->note)) {
        if (!args->quiet) an_say("lane %s: %lld updates in %s", device, (long long)v->steps, dir);
        an_bar_run run = {dir, 0, v->steps};
        an_bar *bar = an_bar_open(args, "decide", "updates", an_bar_probe_run, &run);
        status = an_spawn(err, a->argv, LANE_SECONDS, output, sizeof output, &code);
        an_bar_close(bar);
        an_measured_forget_weights(dir);
    }
    free(a);
    if (an_interrupt_seen(NULL)) return an_err_clear(err), AN_OK;
    AN_TRY(status);
    if (code != 0) {
        an_measured_sentence(output, why);
        if (l->n == 0) return an_fail(err, AN_E_ENV, "lane %s: %s", device, why);
        leave_out(l, device, why);
        return AN_OK;
    }
    AN_TRY(an_run_record_read(err, dir, &l->run[l->n]));
    l->name[l->n++] = dir;
    return AN_OK;
}

an_status an_lanes_measure(an_err *err, const an_args *args, const an_config *keys, void *values,
                           const an_lane_values *v, an_lanes *out, bool *interrupted)
{
    static const char *const own[] = {"device", "max_iters", "log_interval", "out_dir", "note"};
    an_device_facts device[16];
    an_train_config c;
    AN_TRY(an_train_config_open(err, args->words[0], &c));
    AN_TRY(an_args_apply_run(err, args, keys, values, &c));
    AN_TRY(an_train_config_check(err, &c));
    for (size_t i = 0; i < args->n_settings; i++)
        for (size_t k = 0; k < AN_COUNT(own); k++)
            if (strcmp(args->settings[i].key, own[k]) == 0)
                return an_fail(err, AN_E_USAGE, "decide: %s is the decision's own; steps= and out= are its settings",
                               own[k]);
    an_interrupt_catch();
    const int n = AN_MIN(an_devices(device, (int)AN_COUNT(device)), (int)AN_COUNT(device));
    for (int gpu = 0; gpu < 2; gpu++) /* a processor is the reference */
        for (int i = 0; i < n && !an_interrupt_seen(NULL) && out->n < AN_DECIDE_LANES; i++) {
            if (device[i].gpu != (gpu == 1) || device[i].plans_only) continue;
            if (device[i].available && device[i].runs)
                AN_TRY(measure_lane(err, args, keys, v, device[i].name, out));
            else if (!device[i].available)
                leave_out(out, device[i].name, device[i].reason);
        }
    *interrupted = an_interrupt_seen(NULL);
    if (!*interrupted) time_mlx(args, v->steps, out);
    *interrupted = an_interrupt_seen(NULL);
    return AN_OK;
}
