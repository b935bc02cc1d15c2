/* cmd_train.c: train and resume: the same loop over a run that is new or comes from a checkpoint. */
#include "cli/cli.h"
#include "cli/narrate.h"
#include "train/folder.h"
#include <string.h>

static an_status print_summary(an_err *err, const an_run *r, const an_train_result *result)
{
    an_text line = {0};
    an_text_puts(&line, "{\"out\":");
    an_put_json_text(&line, r->cfg.out);
    an_put_json(&line, "step", (double)r->step);
    an_put_json(&line, "loss", result->loss);
    an_put_json(&line, "val_loss", result->val_loss);
    an_put_json(&line, "best_val_loss", r->best_val);
    an_put_json(&line, "seconds", result->seconds);
    an_text_printf(&line, ",\"interrupted\":%s}", result->interrupted ? "true" : "false");
    return an_print_line(err, &line);
}

static an_status train(an_err *err, an_run *r, const an_args *args, int *exit_code)
{
    an_narrator narrator;
    an_train_result result;
    an_narrate_begin(&narrator, args->quiet);
    an_narrate_run(&narrator, r);
    an_interrupt_catch();
    const an_train_listener listener = {.tell = an_narrate, .stop = an_interrupt_seen, .arg = &narrator};
    an_status status = an_train(err, r, &listener, &result);
    if (status == AN_OK)
        an_narrate_end(&narrator, r, &result);
    else if (narrator.open_line)
        fputc('\n', stderr);
    an_narrate_free(&narrator);
    AN_TRY(status);
    if (result.interrupted) *exit_code = AN_EXIT_INTERRUPTED;
    return args->json ? print_summary(err, r, &result) : AN_OK;
}

an_status an_cmd_train(an_err *err, const an_args *args, int *exit_code)
{
    an_train_config c;
    an_run *r;
    AN_TRY(an_train_config_open(err, args->words[0], &c));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_train_keys, &c}, 1));
    AN_TRY(an_train_config_check(err, &c));
    AN_TRY(an_run_open(err, &c, NULL, AN_RUN_DATA, &r));
    int lock;
    bool moved = false;
    an_status status = an_folder_lock(err, c.out, &lock);
    if (status == AN_OK) status = an_folder_set_aside(err, c.out, &moved);
    if (moved && !args->quiet) fprintf(stderr, "%s held a run: it is in %s/previous now\n", c.out, c.out);
    if (status == AN_OK) status = train(err, r, args, exit_code);
    an_folder_unlock(lock);
    an_run_close(r);
    return status;
}

static an_status refuse_fixed_keys(an_err *err, const an_args *args)
{
    for (size_t i = 0; i < args->n_settings; i++)
        if (an_train_key_is_fixed(args->settings[i].key))
            return an_fail(err, AN_E_USAGE, "resume: %s was settled when the run began; train a new one to change it",
                           args->settings[i].key);
    return AN_OK;
}

/* The folder of a run, when it is given by one of its files. */
static void folder_of(const char *run_or_file, const char *path, char out[AN_CONFIG_TEXT_BYTES])
{
    const char *slash = strrchr(path, '/');
    if (strcmp(run_or_file, path) != 0)
        snprintf(out, AN_CONFIG_TEXT_BYTES, "%s", run_or_file);
    else
        snprintf(out, AN_CONFIG_TEXT_BYTES, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

static an_status resume(an_err *err, const an_args *args, const char *path, int *exit_code)
{
    an_train_config c;
    an_st *st;
    an_run *r = NULL;
    int lock = -1;
    AN_TRY(an_cli_open_weights(err, path, false, &c, &st));
    folder_of(args->words[0], path, c.out);
    an_status status = an_args_apply(err, args, &(an_key_set){&an_train_keys, &c}, 1);
    if (status == AN_OK) status = an_train_config_check(err, &c);
    if (status == AN_OK) status = an_folder_lock(err, c.out, &lock);
    if (status == AN_OK) status = an_run_open(err, &c, st, AN_RUN_DATA, &r);
    an_st_close(st);
    if (status == AN_OK && r->step >= c.max_iters && !args->quiet)
        fprintf(stderr, "the run has done its %lld updates; max_iters=N asks for more\n", (long long)r->step);
    if (status == AN_OK) status = train(err, r, args, exit_code);
    an_folder_unlock(lock);
    an_run_close(r);
    return status;
}

an_status an_cmd_resume(an_err *err, const an_args *args, int *exit_code)
{
    char path[AN_CKPT_PATH_BYTES];
    AN_TRY(refuse_fixed_keys(err, args));
    AN_TRY(an_ckpt_find(err, args->words[0], false, path));
    return resume(err, args, path, exit_code);
}
