/* confusion.c: see confusion.h. Batches of the validation split in order, as an evaluation reads them. */
#include "infer/confusion.h"
#include "io/formats/json.h"
#include <stdlib.h>

/* Counts the predictions of n samples: p [n,K], labels [n]. */
static void add(const float *p, const int32_t *label, int64_t n, int64_t K, int64_t *counts)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t best = 0;
        for (int64_t k = 1; k < K; k++)
            if (p[i * K + k] > p[i * K + best]) best = k;
        if (label[i] >= 0 && label[i] < K) counts[label[i] * K + best]++;
    }
}

static an_status count_all(an_err *err, an_session *r, const an_arrays *batch, const an_array *spec, int64_t K,
                           float *p, int64_t *counts)
{
    const int64_t B = r->cfg.batch_size;
    const an_task *task = r->cfg.task;
    int64_t samples;
    AN_TRY(task->count(err, r->data, AN_VAL, &samples));
    for (int64_t first = 0; first < samples; first += B) {
        const int64_t n = AN_MIN(B, samples - first);
        AN_TRY(task->read(err, r->data, AN_VAL, first, n, B, batch->data));
        an_tensor *in = an_input_at(AN_AT, r->cx, spec[0].dtype, spec[0].shape, batch->data[0]);
        an_tensor *outputs = r->cfg.model->predict(r->model, in); /* [B,K] */
        an_status status = an_eval_at(AN_AT, &outputs, 1);
        if (status == AN_OK) status = an_read(outputs, p, (size_t)(B * K) * sizeof *p);
        status = an_session_result(err, r->cx, status);
        an_reset(r->cx);
        AN_TRY(status);
        add(p, batch->data[1], n, K, counts);
    }
    return AN_OK;
}

/* *out: counts [classes,classes], rows are labels, columns predictions; free() it. *classes 0 and *out NULL: the model
 * predicts no classes, or too many. */
static an_status count(an_err *err, an_session *r, int64_t **out, int64_t *classes)
{
    an_array spec[AN_MAX_ARRAYS];
    an_arrays batch;
    const an_model *m = r->cfg.model;
    const void *settings = an_model_settings(&r->cfg);
    *out = NULL;
    *classes = 0;
    if (!m->predict || !m->predicts_classes || !m->predicts_classes(settings)) return AN_OK;
    const int n = m->inputs(settings, r->cfg.batch_size, spec);
    const int64_t K = n == 2 && spec[1].dtype == AN_I32 ? spec[1].limit : 0;
    if (K < 1 || K > AN_CONFUSION_MOST) return AN_OK;
    AN_TRY(an_arrays_open(err, spec, n, &batch));
    float *p = malloc((size_t)(r->cfg.batch_size * K) * sizeof *p);
    int64_t *counts = calloc((size_t)(K * K), sizeof *counts);
    an_status status = p && counts ? count_all(err, r, &batch, spec, K, p, counts)
                                   : an_fail_nomem(err, "a confusion table", (size_t)(K * K) * sizeof *counts);
    an_arrays_close(&batch);
    free(p);
    if (status == AN_OK) {
        *out = counts;
        *classes = K;
    } else {
        free(counts);
    }
    return status;
}

/* ,"classes":[...],"confusion":[[...],...] */
static void put_json(an_text *out, const an_class_names *names, const int64_t *counts, int64_t K)
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

/* One line for each class: how many of its samples were predicted as each class, in the same order. */
static void put_lines(an_text *out, const an_class_names *names, const int64_t *counts, int64_t K)
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

an_status an_confusion_report(an_err *err, an_session *r, const char *submission, bool json, an_text *out)
{
    (void)submission;
    int64_t *counts, K;
    AN_TRY(count(err, r, &counts, &K));
    const an_class_names *names = r->cfg.task->classes ? r->cfg.task->classes(r->data) : NULL;
    if (K > 0 && json)
        put_json(out, names, counts, K);
    else if (K > 0)
        put_lines(out, names, counts, K);
    free(counts);
    return AN_OK;
}
