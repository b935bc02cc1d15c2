/* cmd_predict.c: predictions of a trained model, for the rows of a .npy array or for what the run's task reads (a text,
 * a file of them): as text, a line each, or as a .npy. */
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "infer/predict.h"
#include "train/run_dir.h"
#include <stdlib.h>
#include <string.h>

typedef struct predict_values {
    int64_t threads, batch_size, step;
    bool best;
    char device[AN_CONFIG_TEXT_BYTES], out[AN_CONFIG_TEXT_BYTES];
} predict_values;

#define AT(name) offsetof(predict_values, name)
static const an_config_field fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "", 0, 0, NULL,
     "a .npy file for the outputs, float32 [rows,outputs]; empty: text"},
    {"best", AN_CONFIG_BOOL, AT(best), "false", 0, 0, NULL, "of a run: the checkpoint with the lowest validation loss"},
    {"step", AN_CONFIG_INT, AT(step), "-1", -1, 9e15, NULL, "of a run: the checkpoint after so many updates"},
    {"batch_size", AN_CONFIG_INT, AT(batch_size), "0", 0, 1 << 20, NULL, "rows at a time; 0: as in training"},
    {"device", AN_CONFIG_TEXT, AT(device), "auto", 0, 0, NULL, "where to run"},
    {"threads", AN_CONFIG_INT, AT(threads), "0", 0, 4096, NULL, "CPU threads; 0: every core"},
};
const an_config an_predict_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { MAX_INPUT_BYTES = 1 << 30 }; /* of standard input */

/* ---- input */

typedef struct rows {
    an_npy array;
    an_questions asked;
    an_text text; /* of standard input */
} rows;

static bool ends_in(const char *word, const char *ending)
{
    const size_t n = strlen(word), e = strlen(ending);
    return n > e && strcmp(word + n - e, ending) == 0;
}

/* An array is a .npy file, or standard input where the task reads nothing else. */
static an_status open_rows(an_err *err, const an_session *r, const char *word, rows *in)
{
    const an_task *task = r->cfg.task;
    const bool input = strcmp(word, "-") == 0;
    if (input) AN_TRY(an_input_read(err, "-", MAX_INPUT_BYTES, &in->text));
    if (task->questions && (task->questions_of_arrays || !ends_in(word, ".npy")))
        return task->questions(err, r->data, word, input ? &in->text : NULL, &in->asked);
    if (!input) return an_npy_open(err, word, &in->array);
    return an_npy_parse(err, "standard input", in->text.data ? in->text.data : "", in->text.len, &in->array);
}

static void close_rows(rows *in)
{
    an_npy_close(&in->array);
    an_questions_free(&in->asked);
    an_text_free(&in->text);
}

/* ---- output */

/* -1: one of them is no number, and so none is. */
static int64_t most_probable(const float *p, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (p[i] != p[i]) return -1;
        if (p[i] > p[best]) best = i;
    }
    return best;
}

static const char *number_format(float p, bool json)
{
    return p - p == 0 ? "%s%.6g" : json ? "%snull" : "%snan"; /* JSON has no NaN */
}

/* {"class":2,"outputs":[...]} or "2  0.01 0.02 0.97"; without classes the outputs alone. */
static void put_row(an_text *out, const float *p, int64_t n, bool classes, bool json)
{
    const int64_t best = most_probable(p, n);
    char class[24] = "";
    if (best >= 0) snprintf(class, sizeof class, "%lld", (long long)best);
    if (json && classes)
        an_text_printf(out, "{\"class\":%s,\"outputs\":[", best < 0 ? "null" : class);
    else if (json)
        an_text_puts(out, "{\"outputs\":[");
    else if (classes)
        an_text_printf(out, "%s  ", best < 0 ? "nan" : class);
    for (int64_t i = 0; i < n; i++)
        an_text_printf(out, number_format(p[i], json), i == 0 ? "" : json ? "," : " ", (double)p[i]);
    if (json) an_text_puts(out, "]}");
}

/* The class that comes after `last` when they are sorted by falling probability, -1 being before the first; equal ones
 * are in the order of their numbers. */
static int64_t next_probable(const float *p, int64_t n, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        const bool after = last < 0 || p[i] < p[last] || (p[i] == p[last] && i > last);
        if (after && (best < 0 || p[i] > p[best])) best = i;
    }
    return best;
}

/* {"input":"...","label":"b","probabilities":{"b":0.9,...}} or "b  b 0.9, a 0.1"; text shows the five most probable. */
static void put_named(an_text *out, const char *name, const float *p, const an_class_names *c, bool json)
{
    enum { SHOWN = 5 };
    char printable[AN_CLASS_NAME_BYTES];
    const int64_t n = c->n, most = json ? n : AN_MIN(n, SHOWN);
    int64_t at = most_probable(p, n);
    if (json) {
        an_text_puts(out, "{\"input\":");
        an_json_put(out, name);
        if (at < 0)
            an_text_puts(out, ",\"class\":null,\"label\":null");
        else
            an_text_printf(out, ",\"class\":%lld,\"label\":", (long long)at), an_json_put(out, c->name[at]);
        an_text_puts(out, ",\"probabilities\":{");
    } else {
        snprintf(printable, sizeof printable, "%s", at < 0 ? "nan" : c->name[at]);
        an_text_printable(printable, strlen(printable));
        an_text_printf(out, "%s ", printable);
    }
    at = json ? 0 : at < 0 ? -1 : next_probable(p, n, -1);
    for (int64_t i = 0; i < most && at >= 0; i++) {
        snprintf(printable, sizeof printable, "%s", c->name[at]);
        an_text_printable(printable, strlen(printable));
        if (json) {
            an_text_puts(out, i ? "," : "");
            an_json_put(out, c->name[at]);
            an_text_printf(out, number_format(p[at], true), ":", (double)p[at]);
        } else {
            an_text_printf(out, "%s %s", i ? "," : "", printable);
            an_text_printf(out, p[at] - p[at] == 0 ? " %.4f" : " nan", (double)p[at]);
        }
        at = json ? at + 1 : next_probable(p, n, at);
    }
    if (n > most) an_text_puts(out, ", ...");
    if (json) an_text_puts(out, "}}");
}

static void put_name(an_text *out, const char *name)
{
    char printable[4096];
    snprintf(printable, sizeof printable, "%s", name);
    an_text_printable(printable, strlen(printable));
    an_text_printf(out, "  %s", printable);
}

static an_status print_rows(an_err *err, const an_session *r, const rows *in, const an_predictions *p, bool json)
{
    const an_model *m = r->cfg.model;
    const bool classes = m->predicts_classes && m->predicts_classes(an_model_settings(&r->cfg));
    const an_class_names *names = r->cfg.task->classes ? r->cfg.task->classes(r->data) : NULL;
    const bool named = classes && names && names->n == p->columns;
    const char *name = in->asked.names.data;
    an_text out = {0};
    int64_t bad = -1;
    if (json) an_text_puts(&out, "[");
    for (int64_t i = 0; i < p->rows; i++) {
        if (classes && bad < 0 && most_probable(p->value + i * p->columns, p->columns) < 0) bad = i;
        if (i > 0) an_text_puts(&out, json ? "," : "\n");
        const float *row = p->value + i * p->columns;
        if (named)
            put_named(&out, name ? name : "", row, names, json);
        else
            put_row(&out, row, p->columns, classes, json);
        if (name && !json && in->asked.names_shown) put_name(&out, name);
        if (name) name += strlen(name) + 1;
    }
    if (json) an_text_puts(&out, "]");
    AN_TRY(an_print_line(err, &out));
    if (bad < 0) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "predict: what the model says of row %lld (from 0) is not a number, so it has no class: look for "
                   "NaN and infinities there",
                   (long long)bad);
}

static an_status predict(an_err *err, an_session *r, const rows *in, const predict_values *v, const an_args *args)
{
    an_predictions p;
    an_bar *bar = an_bar_open(args, "predict", "rows", NULL, NULL);
    r->tell = an_bar_tell;
    r->tell_arg = bar;
    an_status status =
        in->asked.samples ? an_predict_questions(err, r, &in->asked, &p) : an_predict(err, r, &in->array, &p);
    r->tell = NULL;
    an_bar_close(bar);
    AN_TRY(status);
    const int64_t dim[] = {p.rows, p.columns};
    status = *v->out ? an_npy_write(err, v->out, AN_F32, 2, dim, p.value) : print_rows(err, r, in, &p, args->json);
    if (status == AN_OK && *v->out && !args->quiet)
        an_say("%lld rows of %lld outputs are in %s", (long long)p.rows, (long long)p.columns, v->out);
    free(p.value);
    return status;
}

an_status an_cmd_predict(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    predict_values v;
    an_train_config c;
    an_st *st;
    an_session *r = NULL;
    rows in = {.text = {0}};
    AN_TRY(an_config_defaults(err, &an_predict_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_predict_keys, &v}, 1));
    AN_TRY(an_run_dir_check_output(err, v.out));
    AN_TRY(an_cli_open_weights(err, args->words[0], v.best, v.step, &c, &st));
    if (v.batch_size) c.batch_size = v.batch_size;
    snprintf(c.device, sizeof c.device, "%s", v.device);
    c.threads = v.threads;
    an_status status = an_session_open(err, &c, st, AN_RUN_PARAMETERS_ONLY, &r);
    an_st_close(st);
    if (status == AN_OK && !r->cfg.task->questions && !r->cfg.model->predict)
        status = an_fail(err, AN_E_USAGE, "predict: a model of kind %s answers no rows here; it is asked with %s RUN%s",
                         r->cfg.model->name, an_cli_ask(r->cfg.task), r->cfg.task->next_argument);
    if (status == AN_OK) status = open_rows(err, r, args->words[1], &in);
    if (status == AN_OK) status = predict(err, r, &in, &v, args);
    an_session_close(r);
    close_rows(&in);
    return status;
}
