/* cmd_eval.c: the mean loss of a checkpoint, and its other numbers, over a whole file or split. */
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "infer/eval_reports.h"
#include "train/data_fault.h"
#include "train/evaluate.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>

typedef struct eval_values {
    int64_t threads, batch_size, step;
    an_dtype dtype;
    bool best;
    char device[AN_CONFIG_TEXT_BYTES], submission[AN_CONFIG_TEXT_BYTES], data[AN_CONFIG_TEXT_BYTES];
} eval_values;

#define AT(name) offsetof(eval_values, name)
static const an_config_field fields[] = {
    {"best", AN_CONFIG_BOOL, AT(best), "false", 0, 0, NULL, "of a run: the checkpoint with the lowest validation loss"},
    {"step", AN_CONFIG_INT, AT(step), "-1", -1, 9e15, NULL, "of a run: the checkpoint after so many updates"},
    {"dtype", AN_CONFIG_DTYPE, AT(dtype), "float32", 0, 0, NULL, "float32, bfloat16 or float16, of matrix products"},
    {"batch_size", AN_CONFIG_INT, AT(batch_size), "0", 0, 1 << 20, NULL, "samples at a time; 0: as in training"},
    {"data", AN_CONFIG_TEXT, AT(data), "", 0, 0, NULL, "as the word DATA; empty: the run's validation split"},
    {"submission", AN_CONFIG_TEXT, AT(submission), "", 0, 0, NULL,
     "of data whose tests are answered by a file: that file; empty: submission.json in the run's folder"},
    {"device", AN_CONFIG_TEXT, AT(device), "auto", 0, 0, NULL, "where to run"},
    {"threads", AN_CONFIG_INT, AT(threads), "0", 0, 4096, NULL, "CPU threads; 0: every core"},
};
const an_config an_eval_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* submission.json beside the checkpoint, or in the run's folder. */
static an_status submission_path(an_err *err, const char *run, const char *wanted, char path[AN_CONFIG_TEXT_BYTES])
{
    struct stat st;
    const char *slash = strrchr(run, '/');
    const int whole = (int)strlen(run), n = stat(run, &st) == 0 && S_ISDIR(st.st_mode) ? whole
                                            : slash                                    ? (int)(slash - run)
                                                                                       : 0;
    const int used = *wanted ? snprintf(path, AN_CONFIG_TEXT_BYTES, "%s", wanted)
                             : snprintf(path, AN_CONFIG_TEXT_BYTES, "%.*s%ssubmission.json", n, run, n ? "/" : "");
    return used < AN_CONFIG_TEXT_BYTES ? AN_OK : an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", run);
}

/* "loss 2.1, accuracy 0.4, perplexity 8.2 over 500 tokens (5 windows of 100)" */
static void put_numbers(an_text *line, const an_train_config *c, const an_evaluation *e)
{
    const an_task *task = c->task;
    const an_sum *names = c->model->sums(an_model_settings(c));
    const size_t sums = an_model_sums(c->model, an_model_settings(c));
    for (size_t i = 0; i < sums; i++) an_text_printf(line, "%s%s %.6f", i ? ", " : "", names[i].name, e->number[i]);
    if (task->loss_exp) an_text_printf(line, ", %s %.6g", task->loss_exp, exp(e->loss));
    an_text_printf(line, " over %lld %s", (long long)e->units, task->units);
    if (strcmp(task->sample, task->unit) != 0)
        an_text_printf(line, " (%lld %ss of %lld)", (long long)e->samples, task->sample, (long long)an_task_units(c));
}

/* The same as members of a JSON object, which is left open. */
static void put_numbers_json(an_text *line, const an_train_config *c, const an_evaluation *e)
{
    const an_task *task = c->task;
    const an_sum *names = c->model->sums(an_model_settings(c));
    const size_t sums = an_model_sums(c->model, an_model_settings(c));
    an_text_puts(line, "{");
    if (strcmp(task->sample, task->unit) != 0)
        an_text_printf(line, "\"%ss\":%lld,", task->sample, (long long)e->samples);
    an_text_printf(line, "\"%s\":%lld", task->units, (long long)e->units);
    for (size_t i = 0; i < sums; i++) an_put_json(line, names[i].name, e->number[i]);
    if (task->loss_exp) an_put_json(line, task->loss_exp, exp(e->loss));
}

/* What made it so: the data, or else the model, whose weights are checked for NaN when they are read. */
static an_status not_finite(an_err *err, an_session *r, const char *run, double loss)
{
    an_text data = {0};
    const bool blame = an_data_fault(r, AN_VAL, -1, &data);
    an_status status =
        an_fail(err, AN_E_NUMERIC, blame ? "%s: the loss is %s: %s; correct the data" : "%s: the loss is %s%s", run,
                isnan(loss) ? "nan" : "infinite",
                blame ? data.data
                      : ": the model is not finite on these data; take an earlier checkpoint of its run (step=N), or "
                        "dtype=float32");
    an_text_free(&data);
    return status;
}

static an_status evaluate(an_err *err, an_session *r, const an_args *args, const char *submission)
{
    an_evaluation e;
    an_text line = {0};
    an_bar *bar = an_bar_open(args, "eval", "batches", NULL, NULL);
    r->tell = an_bar_tell;
    r->tell_arg = bar;
    an_status status = an_evaluate(err, r, AN_VAL, 0, &e);
    r->tell = NULL;
    an_bar_close(bar);
    AN_TRY(status);
    if (!isfinite(e.loss)) return not_finite(err, r, args->words[0], e.loss);
    if (args->json)
        put_numbers_json(&line, &r->cfg, &e);
    else
        put_numbers(&line, &r->cfg, &e);
    status = an_eval_reports_put(err, r, submission, args->json, &line);
    if (args->json) an_text_puts(&line, "}");
    if (status == AN_OK) return an_print_line(err, &line);
    an_text_free(&line);
    return status;
}

/* float32 is the default everywhere, so that a number does not depend on the device. On a GPU it can take many times as long
 * as the precision that the run was trained in: who did not choose is told. */
static void tell_of_dtype(const an_args *args, an_dtype trained, const an_session *r)
{
    an_device_facts device;
    for (size_t i = 0; i < args->n_settings; i++)
        if (strcmp(args->settings[i].key, "dtype") == 0) return;
    if (an_dtype_size(trained) != 2 || args->quiet || !an_device_opened(r->cx, &device) || !device.gpu) return;
    an_say("note    computes in %s; the run was trained in %s: dtype=%s is faster on a GPU",
           an_dtype_text(r->cfg.dtype), an_dtype_text(trained), an_dtype_text(trained));
}

/* Settings that are not of this command's table are the model's. */
static an_status apply_model_settings(an_err *err, const an_args *args, an_train_config *c)
{
    for (size_t i = 0; i < args->n_settings; i++) {
        const an_setting *s = &args->settings[i];
        if (!an_config_find(&an_eval_keys, s->key)) AN_TRY(an_train_eval_set(err, c, s->key, s->value));
    }
    return AN_OK;
}

an_status an_cmd_eval(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    eval_values v;
    char submission[AN_CONFIG_TEXT_BYTES];
    an_train_config c;
    an_st *st;
    an_session *r = NULL;
    AN_TRY(an_config_defaults(err, &an_eval_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_eval_keys, &v}, 1));
    if (args->n_words == 2 && *v.data)
        return an_fail(err, AN_E_USAGE, "eval: the data twice: the word %.200s and data=%.200s; give one",
                       args->words[1], v.data);
    AN_TRY(submission_path(err, args->words[0], v.submission, submission));
    AN_TRY(an_cli_open_weights(err, args->words[0], v.best, v.step, &c, &st));
    const int whole = args->n_words == 2 || *v.data ? AN_RUN_WHOLE_FILE : 0;
    if (whole) snprintf(c.data, sizeof c.data, "%s", *v.data ? v.data : args->words[1]);
    if (v.batch_size) c.batch_size = v.batch_size;
    snprintf(c.device, sizeof c.device, "%s", v.device);
    c.threads = v.threads;
    const an_dtype trained = c.dtype;
    c.dtype = v.dtype;
    an_status status = apply_model_settings(err, args, &c);
    if (status == AN_OK) status = an_session_open(err, &c, st, AN_RUN_DATA | AN_RUN_PARAMETERS_ONLY | whole, &r);
    an_st_close(st);
    if (status == AN_OK) tell_of_dtype(args, trained, r);
    if (status == AN_OK) status = evaluate(err, r, args, submission);
    an_session_close(r);
    return status;
}
