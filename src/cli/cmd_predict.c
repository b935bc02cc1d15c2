/* cmd_predict.c: predictions of a trained model for the rows of a .npy array: as text, a line a row, or as a .npy. */
#include "cli/cli.h"
#include "infer/predict.h"
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
    an_text text; /* of standard input */
} rows;

static an_status read_input(an_err *err, rows *in)
{
    char piece[65536];
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;) {
        an_text_putn(&in->text, piece, n);
        if (in->text.failed) return an_fail_nomem(err, "standard input", in->text.len);
        if (in->text.len > MAX_INPUT_BYTES)
            return an_fail(err, AN_E_DATA, "standard input: more than 1 GiB; write it to a file first");
    }
    if (ferror(stdin)) return an_fail(err, AN_E_IO, "standard input cannot be read");
    return an_npy_parse(err, "standard input", in->text.data ? in->text.data : "", in->text.len, &in->array);
}

static an_status open_rows(an_err *err, const char *path, rows *in)
{
    return strcmp(path, "-") == 0 ? read_input(err, in) : an_npy_open(err, path, &in->array);
}

static void close_rows(rows *in)
{
    an_npy_close(&in->array);
    an_text_free(&in->text);
}

/* ---- output */

static int64_t most_probable(const float *p, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (p[i] > p[best]) best = i;
    return best;
}

/* {"class":2,"outputs":[...]} or "2  0.01 0.02 0.97"; without classes the outputs alone. */
static void put_row(an_text *out, const float *p, int64_t n, bool classes, bool json)
{
    const int64_t best = most_probable(p, n);
    if (json && classes)
        an_text_printf(out, "{\"class\":%lld,\"outputs\":[", (long long)best);
    else if (json)
        an_text_puts(out, "{\"outputs\":[");
    else if (classes)
        an_text_printf(out, "%lld  ", (long long)best);
    for (int64_t i = 0; i < n; i++) {
        const char *format = p[i] - p[i] == 0 ? "%s%.6g" : json ? "%snull" : "%snan"; /* JSON has no NaN */
        an_text_printf(out, format, i == 0 ? "" : json ? "," : " ", (double)p[i]);
    }
    if (json) an_text_puts(out, "]}");
}

static an_status print_rows(an_err *err, const an_session *r, const an_predictions *p, bool json)
{
    const an_model *m = r->cfg.model;
    const bool classes = m->predicts_classes && m->predicts_classes(an_model_settings(&r->cfg));
    an_text out = {0};
    if (json) an_text_puts(&out, "[");
    for (int64_t i = 0; i < p->rows; i++) {
        if (i > 0) an_text_puts(&out, json ? "," : "\n");
        put_row(&out, p->value + i * p->columns, p->columns, classes, json);
    }
    if (json) an_text_puts(&out, "]");
    return an_print_line(err, &out);
}

static an_status predict(an_err *err, an_session *r, const rows *in, const predict_values *v, const an_args *args)
{
    an_predictions p;
    AN_TRY(an_predict(err, r, &in->array, &p));
    const int64_t dim[] = {p.rows, p.columns};
    an_status status =
        *v->out ? an_npy_write(err, v->out, AN_F32, 2, dim, p.value) : print_rows(err, r, &p, args->json);
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
    AN_TRY(an_cli_open_weights(err, args->words[0], v.best, v.step, &c, &st));
    if (v.batch_size) c.batch_size = v.batch_size;
    snprintf(c.device, sizeof c.device, "%s", v.device);
    c.threads = v.threads;
    an_status status = open_rows(err, args->words[1], &in);
    if (status == AN_OK) status = an_session_open(err, &c, st, AN_RUN_PARAMETERS_ONLY, &r);
    an_st_close(st);
    if (status == AN_OK) status = predict(err, r, &in, &v, args);
    an_session_close(r);
    close_rows(&in);
    return status;
}
