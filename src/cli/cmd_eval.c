/* cmd_eval.c: the mean loss of a checkpoint, and its other numbers, over a whole file or split. */
#include "cli/cli.h"
#include "infer/arc_votes.h"
#include "infer/confusion.h"
#include "train/evaluate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct eval_values {
    int64_t threads, batch_size, step, steps;
    an_dtype dtype;
    bool best;
    char device[AN_CONFIG_TEXT_BYTES], halt[AN_CONFIG_TEXT_BYTES], ids[AN_CONFIG_TEXT_BYTES],
        submission[AN_CONFIG_TEXT_BYTES];
} eval_values;

#define AT(name) offsetof(eval_values, name)
static const an_config_field fields[] = {
    {"best", AN_CONFIG_BOOL, AT(best), "false", 0, 0, NULL, "of a run: the checkpoint with the lowest validation loss"},
    {"step", AN_CONFIG_INT, AT(step), "-1", -1, 9e15, NULL, "of a run: the checkpoint after so many updates"},
    {"dtype", AN_CONFIG_DTYPE, AT(dtype), "float32", 0, 0, NULL, "float32, bfloat16 or float16, of matrix products"},
    {"batch_size", AN_CONFIG_INT, AT(batch_size), "0", 0, 1 << 20, NULL, "samples at a time; 0: as in training"},
    {"steps", AN_CONFIG_INT, AT(steps), "0", 0, 1 << 16, NULL,
     "of a recursive model: supervision steps; 0: as in training"},
    {"halt", AN_CONFIG_TEXT, AT(halt), "", 0, 0, NULL,
     "of a recursive model: true: a sample stops where the model says so; empty: as the run has eval_halt"},
    {"ids", AN_CONFIG_TEXT, AT(ids), "", 0, 0, NULL,
     "of a recursive model: puzzle or blank, the rows of the puzzle table; empty: as the run has eval_ids"},
    {"submission", AN_CONFIG_TEXT, AT(submission), "", 0, 0, NULL,
     "of a run on ARC: file for both attempts at each test; empty: submission.json in the run's folder"},
    {"device", AN_CONFIG_TEXT, AT(device), "auto", 0, 0, NULL, "where to run"},
    {"threads", AN_CONFIG_INT, AT(threads), "0", 0, 4096, NULL, "CPU threads; 0: every core"},
};
const an_config an_eval_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* ,"classes":[...],"confusion":[[...],...] */
static void put_confusion_json(an_text *out, const an_class_names *names, const int64_t *counts, int64_t K)
{
    an_text_puts(out, ",\"classes\":[");
    for (int64_t i = 0; names && i < K && i < names->n; i++) {
        an_text_puts(out, i ? "," : "");
        an_json_put(out, names->name[i]);
    }
    an_text_puts(out, "],\"confusion\":[");
    for (int64_t i = 0; i < K; i++)
        for (int64_t k = 0; k < K; k++)
            an_text_printf(out, "%s%lld%s",
                           k   ? ","
                           : i ? ",["
                               : "[",
                           (long long)counts[i * K + k], k + 1 < K ? "" : "]");
    an_text_puts(out, "]");
}

/* A row a class, what it was taken for in the columns, which are in the same order. */
static void put_confusion(an_text *out, const an_class_names *names, const int64_t *counts, int64_t K)
{
    enum { SHOWN = 20, NAME = 14 };
    if (K > SHOWN) return;
    for (int64_t i = 0; i < K; i++) {
        char name[NAME + 1];
        snprintf(name, sizeof name, "%s", names && i < names->n ? names->name[i] : "");
        an_text_printf(out, "\n%3lld %-*s", (long long)i, NAME, name);
        for (int64_t k = 0; k < K; k++) an_text_printf(out, " %5lld", (long long)counts[i * K + k]);
    }
}

static an_status print_confusion(an_err *err, an_session *r, bool json, an_text *out)
{
    int64_t *counts, K;
    AN_TRY(an_confusion(err, r, &counts, &K));
    const an_class_names *names = r->cfg.task->classes ? r->cfg.task->classes(r->data) : NULL;
    if (K > 0 && json)
        put_confusion_json(out, names, counts, K);
    else if (K > 0)
        put_confusion(out, names, counts, K);
    free(counts);
    return AN_OK;
}

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

/* ARC's votes, where the data are ARC's. */
static an_status print_votes(an_err *err, an_session *r, const char *path, bool json, an_text *out)
{
    an_arc_score s;
    if (!an_arc_has_tests(r)) return AN_OK;
    AN_TRY(an_arc_vote(err, r, path, &s));
    if (json) {
        for (int i = 0; i < AN_ARC_KS; i++) an_text_printf(out, ",\"pass@%d\":%.9g", an_arc_k[i], s.pass[i]);
        an_text_printf(out, ",\"test_puzzles\":%lld,\"votes\":%lld,\"unanswered\":%lld,\"submission\":",
                       (long long)s.puzzles, (long long)s.votes, (long long)s.unanswered);
        an_json_put(out, path);
        return AN_OK;
    }
    an_text_puts(out, "\n");
    for (int i = 0; i < AN_ARC_KS; i++) an_text_printf(out, "%spass@%d %.4f", i ? ", " : "", an_arc_k[i], s.pass[i]);
    an_text_printf(out, " over %lld test puzzles (%lld tests, %lld votes", (long long)s.puzzles, (long long)s.tests,
                   (long long)s.votes);
    if (s.unanswered) an_text_printf(out, "; %lld tests without a vote", (long long)s.unanswered);
    an_text_printf(out, "): %s", path);
    return AN_OK;
}

static an_status evaluate(an_err *err, an_session *r, const an_args *args, const char *submission)
{
    an_evaluation e;
    an_text line = {0};
    const an_sum *names = r->cfg.model->sums(an_model_settings(&r->cfg));
    const an_task *task = r->cfg.task;
    const size_t sums = an_model_sums(r->cfg.model, an_model_settings(&r->cfg));
    const int64_t per = an_task_units(&r->cfg);
    AN_TRY(an_evaluate(err, r, AN_VAL, 0, &e));
    if (!args->json) {
        for (size_t i = 0; i < sums; i++) an_text_printf(&line, "%s%s %.6f", i ? ", " : "", names[i].name, e.number[i]);
        if (task->loss_exp) an_text_printf(&line, ", %s %.6g", task->loss_exp, exp(e.loss));
        an_text_printf(&line, " over %lld %s", (long long)e.units, task->units);
        if (strcmp(task->sample, task->unit) != 0)
            an_text_printf(&line, " (%lld %ss of %lld)", (long long)e.samples, task->sample, (long long)per);
        AN_TRY(print_confusion(err, r, false, &line));
        AN_TRY(print_votes(err, r, submission, false, &line));
        return an_print_line(err, &line);
    }
    an_text_puts(&line, "{");
    if (strcmp(task->sample, task->unit) != 0)
        an_text_printf(&line, "\"%ss\":%lld,", task->sample, (long long)e.samples);
    an_text_printf(&line, "\"%s\":%lld", task->units, (long long)e.units);
    for (size_t i = 0; i < sums; i++) an_put_json(&line, names[i].name, e.number[i]);
    if (task->loss_exp) an_put_json(&line, task->loss_exp, exp(e.loss));
    AN_TRY(print_confusion(err, r, true, &line));
    AN_TRY(print_votes(err, r, submission, true, &line));
    an_text_puts(&line, "}");
    return an_print_line(err, &line);
}

/* One of the model's settings that say how it is evaluated. */
static an_status set(an_err *err, an_train_config *c, const char *word, const char *key, const char *value)
{
    const an_config keys = an_train_keys(c);
    if (!an_config_find(&keys, key))
        return an_fail(err, AN_E_USAGE, "%s=%.64s: a model of kind %s has no such setting", word, value,
                       c->model->name);
    return an_config_set(err, &keys, c, "", key, value);
}

static an_status apply(an_err *err, const eval_values *v, an_train_config *c)
{
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)v->steps);
    if (v->steps > 0) AN_TRY(set(err, c, "steps", "eval_steps", number));
    if (*v->halt) AN_TRY(set(err, c, "halt", "eval_halt", v->halt));
    return *v->ids ? set(err, c, "ids", "eval_ids", v->ids) : AN_OK;
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
    AN_TRY(submission_path(err, args->words[0], v.submission, submission));
    AN_TRY(an_cli_open_weights(err, args->words[0], v.best, v.step, &c, &st));
    const int whole = args->n_words == 2 ? AN_RUN_WHOLE_FILE : 0;
    if (whole) snprintf(c.data, sizeof c.data, "%s", args->words[1]);
    if (v.batch_size) c.batch_size = v.batch_size;
    snprintf(c.device, sizeof c.device, "%s", v.device);
    c.threads = v.threads;
    c.dtype = v.dtype;
    an_status status = apply(err, &v, &c);
    if (status == AN_OK) status = an_session_open(err, &c, st, AN_RUN_DATA | AN_RUN_PARAMETERS_ONLY | whole, &r);
    an_st_close(st);
    if (status == AN_OK) status = evaluate(err, r, args, submission);
    an_session_close(r);
    return status;
}
