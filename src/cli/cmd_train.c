/* cmd_train.c: train and resume: the same loop over a run that is new or comes from a checkpoint. Which settings a resume may
 * change: an_train_key_is_fixed (train/config.h). Which override which: the head of train/config.h. */
#include "cli/background_runs.h"
#include "cli/live.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "io/data/disk_speed.h"
#include "report/metrics.h"
#include "report/surroundings.h"
#include "report/tensorboard.h"
#include "train/run_dir.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct resume_values {
    int64_t step;
    bool detach, tensorboard;
    char closed[AN_CONFIG_TEXT_BYTES], store[AN_CONFIG_TEXT_BYTES];
    an_live_values live;
    an_rank_values ranks;
} resume_values;
typedef struct train_values {
    bool detach, tensorboard;
    char closed[AN_CONFIG_TEXT_BYTES], store[AN_CONFIG_TEXT_BYTES];
    an_live_values live;
    an_rank_values ranks;
} train_values;

/* clang-format off */
#define OWN_KEYS(type)                                                                                                 \
    {"detach", AN_CONFIG_BOOL, offsetof(type, detach), "false", 0, 0, NULL,                                            \
     "train in the background: anneal ps, logs, stop"},                                                                \
    {"tensorboard", AN_CONFIG_BOOL, offsetof(type, tensorboard), "false", 0, 0, NULL,                                  \
     "write the numbers of metrics.jsonl as a file of events for TensorBoard too"},                                    \
    {"closed", AN_CONFIG_TEXT, offsetof(type, closed), "", 0, 0, NULL,                                                 \
     "programs that are promised to be closed, Chrome,Slack: the logbook says which run all the same"},                \
    {"store", AN_CONFIG_TEXT, offsetof(type, store), "", 0, 0, NULL,                                                   \
     "folder, or HOST:FOLDER for sftp, where results will be kept: a mebibyte is written there and read back when the " \
     "run begins"}
/* clang-format on */

static const an_config_field fields[] = {
    {"step", AN_CONFIG_INT, offsetof(resume_values, step), "-1", -1, 9e15, NULL,
     "go on from the checkpoint after so many updates; -1: from the last one"},
    OWN_KEYS(resume_values),
    AN_LIVE_FIELDS(resume_values, live),
    AN_RANK_FIELDS(resume_values, ranks),
};
static const an_config_field train_fields[] = {OWN_KEYS(train_values), AN_LIVE_FIELDS(train_values, live),
                                               AN_RANK_FIELDS(train_values, ranks)};
const an_config an_train_command_keys = {.fields = train_fields, .n = AN_COUNT(train_fields)};
const an_config an_resume_keys = {.fields = fields, .n = AN_COUNT(fields)};

static an_status print_summary(an_err *err, const an_session *r, const an_train_result *result)
{
    an_text line = {0};
    an_text_puts(&line, "{\"out\":");
    an_json_put(&line, r->cfg.out);
    an_put_json(&line, "step", (double)r->step);
    an_put_json(&line, "loss", result->loss);
    an_put_json(&line, "val_loss", result->val_loss);
    an_put_json(&line, "train_loss", result->train_loss);
    an_put_json(&line, "best_val_loss", r->best_val);
    an_put_json(&line, "seconds", result->seconds);
    an_put_json(&line, "user_s", result->user_s);
    an_put_json(&line, "system_s", result->system_s);
    an_put_json(&line, "compile_s", result->compile_s);
    an_put_json(&line, "evaluate_s", result->evaluate_s);
    an_put_json(&line, "waits", (double)result->waits);
    an_put_json(&line, "stalls", (double)result->stalls);
    an_text_printf(&line, ",\"interrupted\":%s}", result->interrupted ? "true" : "false");
    return an_print_line(err, &line);
}

/* Looks at the disk of the data once, for the logbook too, and warns of a network mount, which may slow the run down. */
static void look_at_storage(an_session *r, bool quiet, an_storage *look)
{
    char text[AN_STORAGE_TEXT_BYTES];
    if (r->data->built_in) return;
    an_storage_look(r->cfg.data, look);
    r->disk = look;
    if (!quiet && an_storage_warning(look, "data", r->cfg.data, text)) an_say("note    %s", text);
}

/* What shows a run while it trains: the progress on stderr and, where they were asked for, files for TensorBoard and a
 * page. */
typedef struct console {
    an_progress narrator;
    an_tensorboard board;
    an_live live;
    char closed[AN_CONFIG_TEXT_BYTES], store[AN_CONFIG_TEXT_BYTES]; /* promises that are checked when the run begins */
} console;

/* Ctrl-C, a signal, the page's button, or anneal stop, which leaves a file in the run's folder: it is looked for twice a second. */
static bool wants_stop(void *arg)
{
    console *c = arg;
    an_progress *n = &c->narrator;
    const double now = an_session_clock();
    if (an_interrupt_seen(NULL) || an_live_wants_stop(&c->live)) return true;
    if (!n->out || now - n->looked < 0.5) return false;
    n->looked = now;
    return an_run_dir_stop_asked(n->out);
}

static void tell_tensorboard(an_tensorboard *board, const an_train_event *e)
{
    an_err why = {0};
    const an_scalar_value logged[] = {{"loss", e->loss},
                                      {"lr", e->lr},
                                      {"grad_norm", e->norm},
                                      {"ms", e->ms},
                                      {"units_per_s", e->units_per_s},
                                      {"data_wait_ms", e->data_wait_ms}};
    const an_scalar_value evaluated[] = {{"val_loss", e->val_loss}, {"train_loss", e->train_loss}};
    an_status status = AN_OK;
    if (board->fd < 0) return;
    if (e->kind == AN_TRAIN_LOGGED)
        status = an_tensorboard_add(&why, board, e->step, logged, AN_COUNT(logged));
    else if (e->kind == AN_TRAIN_EVALUATED)
        status = an_tensorboard_add(&why, board, AN_MAX(e->step - 1, 0), evaluated, isfinite(e->train_loss) ? 2 : 1);
    if (status == AN_OK) return;
    an_say("note    no more events for TensorBoard: %s", why.text);
    an_tensorboard_close(board);
}

/* A promise that is not kept is a note, and the run goes on. */
static void check_promises(const console *c, const an_session *r)
{
    an_text members = {0}, notes = {0};
    an_err why = {0};
    an_surroundings_check(c->closed, c->store, &members, &notes);
    for (char *line = notes.data, *end; line && *line; line = end + (*end != 0)) {
        end = line + strcspn(line, "\n");
        an_say("note    %.*s", (int)(end - line), line);
    }
    if (members.failed || an_logbook_add(&why, r->cfg.out, r->step, "promises", &members) != AN_OK)
        an_say("note    the logbook has no promises: %s", why.text);
    an_text_free(&members);
    an_text_free(&notes);
}

static void hear(void *arg, const an_session *r, const an_train_event *e)
{
    console *c = arg;
    an_progress_event(&c->narrator, r, e);
    if (e->kind == AN_TRAIN_PLANNED && (*c->closed || *c->store)) check_promises(c, r);
    tell_tensorboard(&c->board, e);
    an_live_event(&c->live, r, e);
}

/* The keys are in the tables of both commands; their values were checked when they were applied. */
static train_values values_of(const an_args *args)
{
    train_values v = {.tensorboard = false};
    an_err unused = {0};
    if (an_config_defaults(&unused, &an_train_command_keys, &v) == AN_OK)
        (void)an_args_apply(&unused, args, &(an_key_set){&an_train_command_keys, &v}, 1);
    return v;
}

static an_status check_page(an_err *err, const an_args *args)
{
    const train_values v = values_of(args);
    return an_live_check(err, &v.live);
}

static an_status open_listeners(an_err *err, const an_session *r, const an_args *args, console *c)
{
    const train_values v = values_of(args);
    if (!c->narrator.out) return AN_OK;
    snprintf(c->closed, sizeof c->closed, "%s", v.closed);
    snprintf(c->store, sizeof c->store, "%s", v.store);
    if (v.tensorboard) AN_TRY(an_tensorboard_open(err, c->narrator.out, &c->board));
    return an_live_open(err, &v.live, r, &c->live);
}

static void close_listeners(console *c, an_status status, const an_train_result *result)
{
    an_tensorboard_close(&c->board);
    an_live_close(&c->live, status != AN_OK       ? "failed: see the logbook"
                            : result->interrupted ? "stopped and saved"
                                                  : "done");
}

/* `estimate`: what the run takes, checked. */
static an_status train(an_err *err, an_session *r, const an_estimate *estimate, const an_args *args, int *exit_code)
{
    console c = {.board = {.fd = -1}, .live = {.fd = -1}};
    an_progress *n = &c.narrator;
    an_train_result result = {.interrupted = false};
    an_storage disk = {.mb_s = 0};
    r->commit = an_commit;
    an_progress_begin(n, r, args->quiet);
    const bool is_first = an_comm_rank(r->cfg.comm) == 0; /* the others have nothing to tell */
    if (is_first) an_progress_run(n, r);
    if (is_first) look_at_storage(r, args->quiet, &disk);
    if (!r->cfg.comm && strcmp(r->cfg.shard, "none") != 0 && !args->quiet)
        an_say("note    shard=%s divides nothing: this is one process; ranks=, devices= or a launcher makes several",
               r->cfg.shard);
    n->estimate = estimate;
    n->out = r->cfg.eval_only || !is_first ? NULL : r->cfg.out;
    an_interrupt_catch();
    const an_train_listener listener = {.event = is_first ? hear : NULL, .stop = wants_stop, .arg = &c};
    an_status status = open_listeners(err, r, args, &c);
    if (status == AN_OK) status = an_train(err, r, &listener, &result);
    if (status == AN_OK && is_first)
        an_progress_end(n, r, &result);
    else
        an_progress_close(n);
    close_listeners(&c, status, &result);
    r->disk = NULL;
    if (n->out) an_run_dir_clear_stop(n->out);
    AN_TRY(status);
    if (!args->quiet && !r->cfg.eval_only) an_cli_diagnosis_line(r->cfg.out);
    if (result.interrupted) *exit_code = AN_EXIT_INTERRUPTED;
    return args->json ? print_summary(err, r, &result) : AN_OK;
}

/* The reader of stderr may exit (head, a pager, a closed connection); training continues. */
static void outlive_readers(void)
{
    signal(SIGPIPE, SIG_IGN);
}

/* The message for a run that had no updates left to do. */
static an_status finished(an_err *err, const an_session *r, const an_args *args)
{
    const an_train_result none = {.loss = NAN, .val_loss = NAN, .train_loss = NAN};
    return args->json ? print_summary(err, r, &none) : AN_OK;
}

static an_status resume(an_err *err, const an_args *args, const char *path, const an_train_config *settings,
                        an_comm *comm, int *exit_code);

/* Starts a new run in its folder: locks it and moves an earlier run's files aside. */
static an_status train_in_folder(an_err *err, an_session *r, const an_estimate *estimate, const an_args *args,
                                 int *exit_code)
{
    int lock;
    char aside[AN_CKPT_PATH_BYTES];
    if (an_comm_rank(r->cfg.comm) > 0) return train(err, r, estimate, args, exit_code); /* rank 0 has the folder */
    AN_TRY(check_page(err, args));
    an_status status = an_run_dir_take(err, r->cfg.out, -1, &lock, aside);
    r->lock = lock;
    if (*aside && !args->quiet) an_say("note    %s held a run: it is in %s now", r->cfg.out, aside);
    if (status == AN_OK) status = train(err, r, estimate, args, exit_code);
    an_run_dir_unlock(lock);
    return status;
}

/* Weights determine the model's shape. It replaces a preset's numbers silently, but contradicting ones on the command
 * line are an error. */
static an_status refuse_other_shape(an_err *err, const an_args *args, const an_train_config *asked, const an_session *r)
{
    const an_config keys = an_train_keys(asked);
    an_status status = AN_OK;
    for (size_t i = 0; i < args->n_settings; i++)
        for (const char *const *key = asked->model->weight_keys; *key && status == AN_OK; key++) {
            const an_config_field *f = an_config_find(&keys, *key);
            an_text want = {0}, have = {0};
            if (strcmp(args->settings[i].key, *key) != 0) continue;
            an_config_value_text(f, asked, &want);
            an_config_value_text(f, &r->cfg, &have);
            if (want.data && have.data && strcmp(want.data, have.data) != 0 &&
                !(f->type == AN_CONFIG_INT && strcmp(want.data, "0") == 0)) /* a size that the data decide */
                status = an_fail(err, AN_E_USAGE, "%s=%s, but the weights of init_from=%s have %s", *key, want.data,
                                 asked->init_from, have.data);
            an_text_free(&want);
            an_text_free(&have);
        }
    return status;
}

static bool is_set(const an_args *args, const char *key)
{
    for (size_t i = 0; i < args->n_settings; i++)
        if (strcmp(args->settings[i].key, key) == 0) return true;
    return false;
}

/* Of a preset or file; `train --dataset=X` alone has nanoGPT's defaults, which are those of its train.py. */
static an_status open_settings(an_err *err, const an_args *args, an_train_config *c)
{
    const bool data = is_set(args, "data") || is_set(args, "dataset"), weights = is_set(args, "init_from");
    if (!args->n_words && !data)
        return an_fail(err, AN_E_USAGE,
                       "train: usage: anneal train PRESET|FILE; name a preset or a file of settings, or data= for "
                       "nanoGPT's defaults; anneal help train lists them");
    const char *name = args->n_words ? args->words[0] : "gpt2";
    const an_model *model;
    AN_TRY(an_train_config_open(err, name, c));
    const int64_t *vocabulary = an_train_number(c, "vocab_size"); /* settled: the preset is for tokens of its own */
    if (an_preset_find(name, &model) && vocabulary && *vocabulary > 0 && strcmp(c->data, "corpus") == 0 && !data &&
        !weights)
        return an_fail(
            err, AN_E_USAGE,
            "train %s: the built-in text is not for its vocabulary of %lld ids: set data= to a folder of "
            "GPT-2 tokens, as anneal prepare FILE tokenizer=gpt2 makes it (data=corpus is the built-in text)",
            name, (long long)*vocabulary);
    if (args->n_words) return AN_OK;
    snprintf(c->preset, sizeof c->preset, "train.py"); /* the number of ids: the folder's; 50304 where it names none */
    *an_train_number(c, "vocab_size") = 0;
    return AN_OK;
}

static an_status open_new(an_err *err, an_train_config *c, an_session **out)
{
    if (c->comm && c->divide_batch > 0)
        return an_fail(err, AN_E_USAGE,
                       "divide_batch divides the batch of one process: with several ranks set batch_size and "
                       "gradient_accumulation_steps");
    AN_TRY(an_session_open(err, c, NULL, AN_RUN_DATA, out));
    an_status status = an_task_check(err, c->task, (*out)->data);
    if (status == AN_OK && !c->eval_only) status = an_task_check_batch(err, &(*out)->cfg, (*out)->data);
    if (status == AN_OK && !c->eval_only) status = an_cli_divide(err, c, out);
    if (status == AN_OK && !*out) return an_session_open(err, c, NULL, AN_RUN_DATA, out);
    if (status != AN_OK) an_session_close(*out);
    return status;
}

static an_status open_config(an_err *err, const an_args *args, train_values *v, an_train_config *c)
{
    AN_TRY(open_settings(err, args, c));
    AN_TRY(an_config_defaults(err, &an_train_command_keys, v));
    AN_TRY(an_args_apply_run(err, args, &an_train_command_keys, v, c));
    an_train_config one = *c; /* the batch is checked when the data are open: it may be larger than they are */
    one.batch_size = 1;
    return an_train_config_check(err, &one);
}

static an_status train_rank(an_err *err, const an_args *args, an_comm *comm, int *exit_code)
{
    char path[AN_CKPT_PATH_BYTES];
    an_train_config c;
    an_session *r;
    an_estimate estimate;
    train_values v;
    AN_TRY(open_config(err, args, &v, &c));
    c.comm = comm;
    if (an_comm_rank(comm) == 0 && !args->quiet && strcmp(c.log_format, "nanogpt") == 0) an_nanogpt_overrides(args);
    if (strcmp(c.init_from, "resume") == 0) {
        AN_TRY(an_ckpt_find(err, c.out, false, path));
        return resume(err, args, path, &c, comm, exit_code);
    }
    AN_TRY(open_new(err, &c, &r));
    an_status status = refuse_other_shape(err, args, &c, r);
    if (status == AN_OK) status = an_estimate_check(err, r, &estimate);
    if (status == AN_OK)
        status = c.eval_only ? train(err, r, &estimate, args, exit_code)
                             : train_in_folder(err, r, &estimate, args, exit_code);
    an_session_close(r);
    return status;
}

an_status an_cmd_train(an_err *err, const an_args *args, int *exit_code)
{
    an_train_config c;
    train_values v;
    outlive_readers();
    AN_TRY(open_config(err, args, &v, &c));
    if (v.detach) return an_background_start(err, args, "train", c.out, exit_code);
    return an_ranks_run(err, args, train_rank, exit_code);
}

static an_status refuse_fixed_keys(an_err *err, const an_args *args, const an_train_config *c)
{
    for (size_t i = 0; i < args->n_settings; i++)
        if (an_train_key_is_fixed(c, args->settings[i].key))
            return an_fail(err, AN_E_USAGE, "resume: %s was settled when the run began; train a new one to change it",
                           args->settings[i].key);
    return AN_OK;
}

/* The folder of the run to which a checkpoint file belongs. */
static void folder_of(const char *run_or_file, const char *path, char out[AN_CONFIG_TEXT_BYTES])
{
    const char *slash = strrchr(path, '/');
    if (strcmp(run_or_file, path) != 0)
        snprintf(out, AN_CONFIG_TEXT_BYTES, "%s", run_or_file);
    else
        snprintf(out, AN_CONFIG_TEXT_BYTES, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

/* The settings of a resumed run: the checkpoint's, overridden by the command line's; or, as with nanoGPT's
 * init_from=resume, those of `settings`, except what the checkpoint determines. */
static an_status settings_of(an_err *err, const an_args *args, const an_train_config *settings, an_train_config *c)
{
    resume_values unused;
    if (!settings) {
        AN_TRY(refuse_fixed_keys(err, args, c));
        return an_args_apply_run(err, args, &an_resume_keys, &unused, c);
    }
    const an_train_config file = *c;
    *c = *settings;
    an_train_config_fix(c, &file);
    return AN_OK;
}

/* A folder that came in a pack has its data beside it, and settings that name those of the origin: the failure to open
 * them says so. */
static an_status hint_at_data(an_err *err, an_status status, const char *dir, const an_train_config *c)
{
    char pack[AN_CKPT_PATH_BYTES], there[AN_CKPT_PATH_BYTES];
    const char *slash = strrchr(c->data, '/');
    snprintf(pack, sizeof pack, "%.900s/pack.json", dir);
    snprintf(there, sizeof there, "%.700s/data/%.200s", dir, slash ? slash + 1 : c->data);
    if (!slash || access(c->data, F_OK) == 0 || access(pack, F_OK) != 0) return status;
    if (access(there, F_OK) != 0) snprintf(there, sizeof there, "%.700s/data", dir);
    const an_err why = *err;
    an_err_clear(err);
    return an_fail(err, status, "%.500s; this folder came with its data: data=%.400s", why.text, there);
}

static an_status resume(an_err *err, const an_args *args, const char *path, const an_train_config *settings,
                        an_comm *comm, int *exit_code)
{
    an_train_config c;
    an_st *st;
    an_session *r = NULL;
    an_estimate estimate;
    char began[AN_CONFIG_TEXT_BYTES], aside[AN_CKPT_PATH_BYTES];
    int lock = -1;
    AN_TRY(an_cli_open_weights(err, path, false, -1, &c, &st));
    folder_of(settings ? settings->out : args->words[0], path, c.out);
    snprintf(began, sizeof began, "%s", c.out);
    an_status status = settings_of(err, args, settings, &c);
    const bool is_first = an_comm_rank(comm) == 0;
    c.comm = comm;
    if (status == AN_OK) status = an_train_config_check(err, &c);
    const bool by_file = !settings && strcmp(args->words[0], path) == 0;
    if (status == AN_OK && by_file && !an_run_dir_is_a_run(began) && strcmp(began, c.out) == 0)
        status =
            an_fail(err, AN_E_USAGE,
                    "%s is not in the folder of a run: say where it goes on, with out=DIR, so that nothing beside it "
                    "is touched",
                    path);
    if (status == AN_OK && (status = an_session_open(err, &c, st, AN_RUN_DATA, &r)) == AN_E_IO)
        status = hint_at_data(err, status, began, &c);
    if (status == AN_OK) status = an_task_check(err, c.task, r->data);
    an_st_close(st);
    if (status == AN_OK) c.max_iters = r->cfg.max_iters; /* epochs= has become updates */
    const bool done = status == AN_OK && r->step >= c.max_iters && !c.eval_only && !r->owes_evaluation;
    if (done && is_first) {
        an_run_dir_sweep(c.out); /* a run killed while it wrote its last file has nothing else that would */
        an_say("the run has done its %lld updates and max_iters=%lld: nothing to do; max_iters=N asks for more",
               (long long)r->step, (long long)c.max_iters);
    }
    if (status == AN_OK && !done) status = an_estimate_check(err, r, &estimate);
    const bool writes = !done && !c.eval_only && is_first;
    if (status == AN_OK && writes) status = check_page(err, args);
    if (status == AN_OK && writes) {
        status = an_run_dir_take(err, c.out, strcmp(began, c.out) == 0 ? r->step : -1, &lock, aside);
        r->lock = lock;
        if (*aside && !args->quiet) an_say("note    what the run would write over in %s is in %s now", c.out, aside);
    }
    if (status == AN_OK) status = done ? finished(err, r, args) : train(err, r, &estimate, args, exit_code);
    an_run_dir_unlock(lock);
    an_session_close(r);
    return status;
}

static an_status resume_rank(an_err *err, const an_args *args, an_comm *comm, int *exit_code)
{
    char path[AN_CKPT_PATH_BYTES];
    resume_values v;
    AN_TRY(an_config_defaults(err, &an_resume_keys, &v));
    AN_TRY(an_args_apply(err, args, (an_key_set[]){{&an_resume_keys, &v}}, 1));
    AN_TRY(an_cli_find_checkpoint(err, args->words[0], false, v.step, path));
    return resume(err, args, path, NULL, comm, exit_code);
}

/* Starts it all once more in the background. */
static an_status detach_resume(an_err *err, const an_args *args, int64_t step, int *exit_code)
{
    char path[AN_CKPT_PATH_BYTES];
    const char *out = args->words[0];
    AN_TRY(an_cli_find_checkpoint(err, out, false, step, path));
    for (size_t i = 0; i < args->n_settings; i++)
        if (strcmp(args->settings[i].key, "out") == 0 || strcmp(args->settings[i].key, "out_dir") == 0)
            out = args->settings[i].value;
    if (strcmp(out, path) == 0)
        return an_fail(err, AN_E_USAGE, "resume: with detach name the run's folder, or out=DIR, not the file %s", path);
    return an_background_start(err, args, "resume", out, exit_code);
}

an_status an_cmd_resume(an_err *err, const an_args *args, int *exit_code)
{
    resume_values v;
    outlive_readers();
    AN_TRY(an_config_defaults(err, &an_resume_keys, &v));
    AN_TRY(an_args_apply(err, args, (an_key_set[]){{&an_resume_keys, &v}}, 1));
    if (v.detach) return detach_resume(err, args, v.step, exit_code);
    return an_ranks_run(err, args, resume_rank, exit_code);
}
