/* background_runs.c: starts a run in the background and enters it in the list. See background_runs.h. */
#define _DEFAULT_SOURCE
#include "cli/background_runs.h"
#include "io/formats/sha256.h"
#include "platform/background.h"
#include "platform/platform.h"
#include "train/run_dir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool an_background_list_dir(char out[AN_STATE_PATH_BYTES])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state && *state == '/')
        n = snprintf(out, AN_STATE_PATH_BYTES, "%s/anneal/runs", state);
    else if (home && *home == '/')
        n = snprintf(out, AN_STATE_PATH_BYTES, "%s/.local/state/anneal/runs", home);
    return n > 0 && n < AN_STATE_PATH_BYTES - AN_SHA256_TEXT_BYTES;
}

/* A run that cannot be listed trains all the same. */
static void enter_in_list(const char *out)
{
    char list[AN_STATE_PATH_BYTES], path[AN_STATE_PATH_BYTES + AN_SHA256_TEXT_BYTES], name[AN_SHA256_TEXT_BYTES];
    char *absolute = realpath(out, NULL);
    an_err why = {0};
    an_status status = AN_OK;
    if (!absolute)
        status = an_fail(&why, AN_E_ENV, "%.200s has no absolute path: %s", out, strerror(errno));
    else if (!an_background_list_dir(list))
        status = an_fail(&why, AN_E_ENV, "no home folder, or XDG_STATE_HOME is too long");
    if (status == AN_OK) status = an_make_dirs(&why, list, 0700);
    if (status == AN_OK) {
        an_sha256(absolute, strlen(absolute), name);
        snprintf(path, sizeof path, "%s/%s", list, name);
        status = an_file_write(&why, path, absolute, strlen(absolute));
    }
    if (status != AN_OK) an_say("note    anneal ps will not list this run: %s", why.text);
    free(absolute);
}

/* The arguments as they were typed, for another process: argv, in memory of *text. */
static an_status make_argv(an_err *err, const an_args *args, const char *command, an_text *text, const char **argv)
{
    size_t start[AN_CLI_MAX_WORDS + AN_CLI_MAX_SETTINGS + 3];
    int n = 0;
#define ADD(...) (start[n++] = text->len, an_text_printf(text, __VA_ARGS__), an_text_putn(text, "", 1))
    ADD("%s", an_program);
    ADD("%s", command);
    for (int i = 0; i < args->n_words; i++) ADD("%s", args->words[i]);
    for (size_t i = 0; i < args->n_settings; i++)
        if (strcmp(args->settings[i].key, "detach") != 0) ADD("%s=%s", args->settings[i].key, args->settings[i].value);
    if (args->quiet) ADD("--quiet");
#undef ADD
    if (text->failed) return an_fail_nomem(err, "the arguments of a background run", text->len);
    for (int i = 0; i < n; i++) argv[i] = text->data + start[i];
    argv[n] = NULL;
    return AN_OK;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* The last line of the log is the child's sentence; it goes to stderr as the child would have said it. */
static void tell_last_line(const char *log)
{
    an_err why = {0};
    char *data = NULL;
    size_t n = 0;
    if (an_file_read(&why, log, 64 << 20, &data, &n) != AN_OK) return;
    while (n && data[n - 1] == '\n') data[--n] = 0;
    const char *line = n ? strrchr(data, '\n') : NULL;
    an_say("%.1500s", line ? line + 1 : n ? data : "the run ended without a word");
    free(data);
}

/* Waits until the child writes to the run's logbook, which it does with the folder's lock in hand; false: it ended. */
static bool wait_for_logbook(const char *logbook, int pid, int *exit_code)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    struct stat before = {0}, now = {0};
    (void)stat(logbook, &before);
    for (;;) {
        if (an_background_ended(pid, exit_code)) return false;
        if (stat(logbook, &now) == 0 && now.st_size > 0 && !same_file(&before, &now)) return true;
        nanosleep(&nap, NULL);
    }
}

an_status an_background_start(an_err *err, const an_args *args, const char *command, const char *out, int *exit_code)
{
    char log[AN_CKPT_PATH_BYTES], logbook[AN_CKPT_PATH_BYTES];
    const char *argv[AN_CLI_MAX_WORDS + AN_CLI_MAX_SETTINGS + 4];
    an_text text = {0}, line = {0};
    int fd, pid;
    if (snprintf(log, sizeof log, "%s/train.log", out) >= (int)sizeof log)
        return an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", out);
    snprintf(logbook, sizeof logbook, "%.*s/logbook.jsonl", (int)sizeof logbook - 20, out);
    if (an_run_dir_is_locked(out))
        return an_fail(err, AN_E_ENV,
                       "%s: another process trains here; anneal stop %s ends it, or name another out=", out, out);
    AN_TRY(an_make_dirs(err, out, 0777));
    AN_TRY(make_argv(err, args, command, &text, argv));
    an_status status = an_file_open(err, log, O_RDWR | O_CREAT | O_APPEND, &fd);
    if (status == AN_OK) {
        (void)fchmod(
            fd, 0600); /* it holds the token of the run's page; where the file system has no rights, it is as it is */
        status = an_background_spawn(err, argv, fd, &pid);
        close(fd);
    }
    an_text_free(&text);
    AN_TRY(status);
    if (!wait_for_logbook(logbook, pid, exit_code)) {
        tell_last_line(log);
        return AN_OK;
    }
    enter_in_list(out);
    if (args->json) {
        an_text_puts(&line, "{\"out\":");
        an_json_put(&line, out);
        an_text_printf(&line, ",\"pid\":%d}", pid);
        return an_print_line(err, &line);
    }
    an_say("trains in the background in %s; %s logs -f %s follows it, %s stop %s saves and ends it", out, an_program,
           out, an_program, out);
    return AN_OK;
}
