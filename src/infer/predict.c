/* predict.c: rows of an array through the model, batch by batch. */
#include "infer/predict.h"
#include <stdlib.h>
#include <string.h>

static an_status check_input(an_err *err, const an_session *r, const an_npy *in, const an_array *wants)
{
    const an_model *m = r->cfg.model;
    const int64_t row = (int64_t)(an_array_bytes(wants) / an_dtype_size(wants->dtype)) / wants->shape.dim[0];
    if (in->rank < 1 || in->dim[0] < 1) return an_fail(err, AN_E_DATA, "predict: the array has no rows");
    if (an_npy_elements(in) / in->dim[0] == row) return AN_OK;
    return an_fail(err, AN_E_SHAPE, "predict: the array has rows of %lld numbers, the %s reads %lld",
                   (long long)(an_npy_elements(in) / in->dim[0]), m->name, (long long)row);
}

/* What is predicted from: the rows of an array, or samples that the task made (one of the two is NULL). */
typedef struct rows {
    const an_npy *array;
    const an_questions *asked;
    int64_t n;
} rows;

/* Copies rows [first, first + n) to x in the model's dtype, and fills the batch up with the same rows again: a graph of one batch size gets
 * numbers of the kind that it knows, where zeros could make NaN of what it takes over its samples. */
static void fill(const rows *in, int64_t first, int64_t n, const an_array *spec, void *x)
{
    const size_t all = an_array_bytes(spec), each = all / (size_t)spec->shape.dim[0], used = (size_t)n * each;
    if (in->asked) {
        memcpy(x, (const char *)in->asked->data + (size_t)first * each, used);
    } else {
        const int64_t row = an_npy_elements(in->array) / in->n;
        float *to = x; /* [n,row] */
        for (int64_t i = 0; i < n * row; i++) to[i] = (float)an_npy_number(in->array, first * row + i);
    }
    for (size_t at = used; at < all; at += each) memcpy((char *)x + at, (char *)x + (at - used), each);
}

/* Numbers of one sample, all axes but the first. */
static int64_t columns_of(an_shape s)
{
    int64_t n = 1;
    for (int i = 1; i < s.rank; i++) n *= s.dim[i];
    return n;
}

static an_status run_batch(an_err *err, an_session *r, const an_array *spec, const void *x, float *result, size_t cap,
                           int64_t *columns)
{
    an_tensor *in = an_input(r->cx, spec->dtype, spec->shape, x);
    an_tensor *outputs = r->cfg.model->predict(r->model, in); /* [B,...] */
    an_status status = an_eval(outputs);
    *columns = columns_of(an_shape_of(outputs));
    const size_t bytes = (size_t)(r->cfg.batch_size * *columns) * sizeof *result;
    if (status == AN_OK) status = bytes <= cap ? an_read(outputs, result, bytes) : AN_E_INTERNAL;
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

/* How many numbers the model outputs for a row; builds the graph and runs nothing. */
static an_status count_columns(an_err *err, an_session *r, const an_array *spec, int64_t *out)
{
    an_tensor *outputs = r->cfg.model->predict(r->model, an_input(r->cx, spec->dtype, spec->shape, NULL));
    const an_shape shape = an_shape_of(outputs);
    an_status status = an_session_fault(err, r->cx);
    *out = columns_of(shape);
    if (status == AN_OK && (shape.rank < 1 || shape.dim[0] != r->cfg.batch_size))
        status = an_fail(err, AN_E_USAGE, "predict: the first result of the model has no value for each sample");
    an_reset(r->cx);
    return status;
}

static an_status predict_all(an_err *err, an_session *r, const rows *in, const an_array *spec, void *x, float *result,
                             an_predictions *out)
{
    const int64_t B = r->cfg.batch_size, row = out->columns;
    int64_t columns;
    for (int64_t first = 0; first < out->rows; first += B) {
        const int64_t n = AN_MIN(B, out->rows - first);
        if (r->tell) r->tell(r->tell_arg, first, out->rows);
        fill(in, first, n, spec, x);
        AN_TRY(run_batch(err, r, spec, x, result, (size_t)(B * row) * sizeof *result, &columns));
        memcpy(out->value + first * row, result, (size_t)(n * row) * sizeof *result);
    }
    return AN_OK;
}

static an_status predict_rows(an_err *err, an_session *r, const rows *in, const an_array *spec, an_predictions *out)
{
    AN_TRY(count_columns(err, r, spec, &out->columns));
    out->rows = in->n;
    const size_t batch = (size_t)(r->cfg.batch_size * out->columns) * sizeof(float);
    void *x = malloc(an_array_bytes(spec));
    float *result = malloc(batch);
    out->value = calloc((size_t)(out->rows * out->columns) + 1, sizeof *out->value);
    an_status status = x && result && out->value
                           ? predict_all(err, r, in, spec, x, result, out)
                           : an_fail_nomem(err, "predictions", (size_t)(out->rows * out->columns) * sizeof(float));
    free(result);
    free(x);
    if (status == AN_OK) return AN_OK;
    free(out->value);
    *out = (an_predictions){0};
    return status;
}

static an_status first_input(an_err *err, const an_session *r, an_array *out)
{
    an_array spec[AN_MAX_ARRAYS];
    if (!r->cfg.model->predict)
        return an_fail(err, AN_E_USAGE,
                       "a model of kind %s does not predict from arrays; it is asked by another command",
                       r->cfg.model->name);
    r->cfg.model->inputs(an_model_settings(&r->cfg), r->cfg.batch_size, spec);
    *out = spec[0];
    return AN_OK;
}

an_status an_predict(an_err *err, an_session *r, const an_npy *in, an_predictions *out)
{
    an_array spec;
    *out = (an_predictions){0};
    AN_TRY(first_input(err, r, &spec));
    if (spec.dtype != AN_F32)
        return an_fail(err, AN_E_USAGE, "predict: the %s reads no rows of numbers; see anneal help predict",
                       r->cfg.model->name);
    AN_TRY(check_input(err, r, in, &spec));
    return predict_rows(err, r, &(rows){.array = in, .n = in->dim[0]}, &spec, out);
}

an_status an_predict_questions(an_err *err, an_session *r, const an_questions *q, an_predictions *out)
{
    an_array spec;
    *out = (an_predictions){0};
    AN_TRY(first_input(err, r, &spec));
    if (an_array_bytes(&spec) != q->sample_bytes * (size_t)r->cfg.batch_size)
        return an_fail(err, AN_E_INTERNAL, "predict: a sample of %zu bytes is none of the %s", q->sample_bytes,
                       r->cfg.model->name);
    return predict_rows(err, r, &(rows){.asked = q, .n = q->samples}, &spec, out);
}
