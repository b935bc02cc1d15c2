/* cmd_background.c: ps, stop and logs: the runs that train in the background of this machine. */
#define _DEFAULT_SOURCE
#include "cli/background_runs.h"
#include "platform/platform.h"
#include "report/run_record.h"
#include "train/run_dir.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- ps */

enum { MOST_RUNS = 1000 };

/* "running", or how it ended: "end", "interrupted", "failed", "killed". */
static const char *state_of(const char *dir, const an_run_record *r)
{
    static const char *const ends[] = {"end", "interrupted", "failed"};
    if (an_run_dir_is_locked(dir)) return "running";
    for (size_t i = 0; i < AN_COUNT(ends); i++)
        if (strcmp(an_run_text(r->end, "event"), ends[i]) == 0) return ends[i];
    return "killed";
}

static void put_run(an_text *out, const char *dir, const char *state, const an_run_record *r, bool json, bool first)
{
    char most[AN_RUN_SETTING_BYTES];
    const an_run_update *last = r->n ? &r->update[r->n - 1] : NULL;
    const long long steps = last ? (long long)last->step + 1 : 0;
    const double loss = last ? last->at[AN_RUN_LOSS] : NAN, ms = last ? last->at[AN_RUN_MS] : NAN;
    an_run_setting(r, "max_iters", most);
    if (json) {
        an_text_puts(out, first ? "{\"run\":" : ",{\"run\":");
        an_json_put(out, dir);
        an_text_printf(out, ",\"state\":\"%s\",\"step\":%lld", state, steps);
        an_json_put_number(out, "max_iters", *most ? strtod(most, NULL) : (double)NAN);
        an_json_put_number(out, "loss", loss);
        an_json_put_number(out, "ms", ms);
        an_text_puts(out, "}");
    } else {
        char loss_text[16] = "-", ms_text[16] = "-";
        if (!isnan(loss)) snprintf(loss_text, sizeof loss_text, "%.4g", loss);
        if (!isnan(ms)) snprintf(ms_text, sizeof ms_text, "%.4g", ms);
        an_text_printf(out, "%s%-11s  %8lld of %-8s  loss %-8s  %8s ms  %s", first ? "" : "\n", state, steps, most,
                       loss_text, ms_text, dir);
    }
}

/* Each run of the list; those that have ended are printed once and leave it. Returns how many there were. */
static an_status put_list(an_err *err, const char *list, bool json, an_text *out, int *n)
{
    DIR *d = opendir(list);
    *n = 0;
    if (!d) return errno == ENOENT ? AN_OK : an_fail(err, AN_E_IO, "%s: %s", list, strerror(errno));
    for (struct dirent *e; *n < MOST_RUNS && (e = readdir(d));) {
        char path[AN_STATE_PATH_BYTES + 300], *dir = NULL;
        size_t bytes;
        an_err why = {0};
        an_run_record r;
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/%s", list, e->d_name);
        if (an_file_read(&why, path, AN_CKPT_PATH_BYTES, &dir, &bytes) != AN_OK) {
            an_say("note    %s", why.text);
            continue;
        }
        if (an_run_record_read(&why, dir, &r) == AN_OK) {
            const char *state = state_of(dir, &r);
            put_run(out, dir, state, &r, json, *n == 0);
            (*n)++;
            if (strcmp(state, "running") != 0) unlink(path);
        } else {
            an_say("note    %s; it leaves the list", why.text);
            unlink(path);
        }
        an_run_record_free(&r);
        free(dir);
    }
    closedir(d);
    return AN_OK;
}

an_status an_cmd_ps(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    char list[AN_STATE_PATH_BYTES];
    an_text out = {0};
    int n = 0;
    if (!an_background_list_dir(list))
        return an_fail(err, AN_E_ENV, "ps: neither HOME nor XDG_STATE_HOME names a folder with the list of runs");
    if (args->json) an_text_puts(&out, "{\"runs\":[");
    AN_TRY(put_list(err, list, args->json, &out, &n));
    if (args->json) an_text_puts(&out, "]}");
    if (n || args->json) return an_print_line(err, &out);
    an_say("no run trains in the background; anneal train PRESET --detach starts one");
    return AN_OK;
}

/* ---- stop */

typedef struct stop_values {
    double wait;
} stop_values;
static const an_config_field stop_fields[] = {
    {"wait", AN_CONFIG_FLOAT, offsetof(stop_values, wait), "120", 0, 1e6, NULL,
     "seconds to wait until it has saved and ended; 0: only ask"},
};
const an_config an_stop_keys = {.fields = stop_fields, .n = AN_COUNT(stop_fields)};

an_status an_cmd_stop(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    stop_values v;
    const char *dir = args->words[0];
    AN_TRY(an_config_defaults(err, &an_stop_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_stop_keys, &v}, 1));
    if (!an_run_dir_is_locked(dir))
        return an_fail(err, AN_E_ENV, "%s: no process trains here; anneal ps lists the runs in the background", dir);
    AN_TRY(an_run_dir_ask_stop(err, dir));
    const double begin = an_seconds();
    while (an_run_dir_is_locked(dir)) {
        if (an_seconds() - begin > v.wait) {
            if (v.wait > 0)
                return an_fail(
                    err, AN_E_ENV,
                    "%s: asked to stop, and still training after %.0f s: an update or evaluation is long; it "
                    "ends when that is done",
                    dir, v.wait);
            an_say("asked; it saves and ends after its update");
            return AN_OK;
        }
        an_nap(0.1);
    }
    an_say("stopped and saved; anneal resume %s goes on", dir);
    return AN_OK;
}

/* ---- logs */

typedef struct logs_values {
    bool follow;
} logs_values;
static const an_config_field logs_fields[] = {
    {"follow", AN_CONFIG_BOOL, offsetof(logs_values, follow), "false", 0, 0, NULL,
     "-f: go on with what is written, until the run ends"},
};
const an_config an_logs_keys = {.fields = logs_fields, .n = AN_COUNT(logs_fields)};

/* Copies the rest of the file, from its offset on, to stdout; to a terminal without control characters, since a folder
 * may come from someone else. */
static an_status copy_rest(an_err *err, int fd, const char *path)
{
    char block[65536];
    ssize_t n;
    while ((n = read(fd, block, sizeof block)) > 0) {
        if (isatty(STDOUT_FILENO) == 1) an_text_printable(block, (size_t)n);
        if (fwrite(block, 1, (size_t)n, stdout) != (size_t)n)
            return an_fail(err, AN_E_IO, "stdout cannot be written to");
    }
    if (n < 0) return an_fail(err, AN_E_IO, "%s: %s", path, strerror(errno));
    return fflush(stdout) == 0 ? AN_OK : an_fail(err, AN_E_IO, "stdout cannot be written to");
}

an_status an_cmd_logs(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    logs_values v;
    char path[AN_CKPT_PATH_BYTES];
    int fd;
    const bool f_first = strcmp(args->words[0], "-f") == 0;
    const char *dir = args->words[f_first ? 1 : 0], *more = args->n_words > 1 ? args->words[f_first ? 0 : 1] : NULL;
    AN_TRY(an_config_defaults(err, &an_logs_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_logs_keys, &v}, 1));
    if (!dir || (more && strcmp(more, "-f") != 0)) return an_fail(err, AN_E_USAGE, "logs: usage: anneal logs RUN [-f]");
    v.follow |= more != NULL;
    if (snprintf(path, sizeof path, "%s/train.log", dir) >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "%.100s...: the path is too long", dir);
    AN_TRY(an_file_open(err, path, O_RDONLY, &fd));
    if (fd < 0)
        return an_fail(err, AN_E_IO,
                       "%s: no run was trained in the background here; the numbers of one that was not are in its "
                       "metrics.jsonl",
                       path);
    an_status status;
    for (bool running = true; running;) {
        running = v.follow && an_run_dir_is_locked(dir); /* asked first: what is written before the end is read below */
        status = copy_rest(err, fd, path);
        if (status != AN_OK) break;
        if (running) an_nap(0.2);
    }
    close(fd);
    return status;
}
