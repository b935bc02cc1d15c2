/* evaluate.c: evaluation over all samples or over random batches. See evaluate.h. */
#include "train/evaluate.h"
#include "train/step.h"
#include <stdlib.h>
#include <string.h>

/* Of the seed of random evaluation batches, so that they are not those of training. */
enum { EVALUATION_SEED = 0x5EED };

/* Batches go to the device without a wait; their sums stay there, a row a batch, until all rows are used. */
typedef struct tally {
    an_array array[AN_MAX_ARRAYS];
    an_arrays batch; /* of batch_size samples */
    float *kept;     /* [rows,sums] */
    int64_t rows, used;
    double sum[AN_MODEL_SUMS];
} tally;

static an_status open_tally(an_err *err, const an_session *r, tally *t)
{
    const size_t bytes = (size_t)an_step_numbers(&r->cfg) * sizeof(float);
    *t = (tally){.rows = an_step_rows(&r->cfg)};
    const int n = r->cfg.model->inputs(an_model_settings(&r->cfg), r->cfg.batch_size, t->array);
    AN_TRY(an_arrays_open(err, t->array, n, &t->batch));
    an_use_averages(r->cx, r->cfg.ema);
    t->kept = malloc(bytes);
    return t->kept ? AN_OK : an_fail_nomem(err, "an evaluation's losses", bytes);
}

static void close_tally(const an_session *r, tally *t)
{
    an_use_averages(r->cx, false);
    an_arrays_close(&t->batch);
    free(t->kept);
}

/* All graphs of a batch but the last, whose sums count. */
static an_status begin_batch(an_err *err, const an_session *r, const tally *t)
{
    const int64_t calls = an_step_calls(&r->cfg);
    an_status status = AN_OK;
    for (int64_t call = 0; call < calls - 1 && status == AN_OK; call++) {
        an_tensor *kept = an_step_evaluation_call(r->cx, r->model, &r->cfg, t->used, call, t->batch.data);
        status = an_session_result(err, r->cx, an_eval(kept));
        an_reset(r->cx);
    }
    return status;
}

static an_status add_batch(an_err *err, an_session *r, bool last, tally *t)
{
    const int64_t sums = (int64_t)an_step_sums(&r->cfg), call = an_step_calls(&r->cfg) - 1;
    AN_TRY(begin_batch(err, r, t));
    an_tensor *kept =
        an_step_evaluation_call(r->cx, r->model, &r->cfg, t->used++, call, t->batch.data); /* [rows] or [rows,sums] */
    an_status status = an_eval(kept);
    if (status == AN_OK && (last || t->used == t->rows)) {
        status = an_read(kept, t->kept, (size_t)(t->rows * sums) * sizeof *t->kept);
        for (int64_t i = 0; i < t->used * sums && status == AN_OK; i++) t->sum[i % sums] += (double)t->kept[i];
        t->used = 0;
    }
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

static bool is_stopped(const an_session *r)
{
    return r->stop && r->stop(r->stop_arg);
}

static void finish(const an_session *r, const tally *t, int64_t samples, bool stopped, an_evaluation *out)
{
    *out = (an_evaluation){.samples = samples, .stopped = stopped, .units = samples * an_task_units(&r->cfg)};
    an_step_means(&r->cfg, t->sum, (double)out->units, out->number);
    out->loss = out->number[0];
}

an_status an_evaluate(an_err *err, an_session *r, int split, int64_t most, an_evaluation *out)
{
    const an_task *task = r->cfg.task;
    const int64_t B = r->cfg.batch_size;
    int64_t all;
    tally t;
    AN_TRY(task->count(err, r->data, split, &all));
    const int64_t samples = most > 0 && most < all ? most : all;
    an_status status = open_tally(err, r, &t);
    bool stopped = false;
    for (int64_t first = 0; first < samples && status == AN_OK && !(stopped = is_stopped(r)); first += B) {
        status = task->read(err, r->data, split, first, AN_MIN(B, samples - first), B, t.batch.data);
        if (status == AN_OK) status = add_batch(err, r, first + B >= samples, &t);
    }
    close_tally(r, &t);
    finish(r, &t, samples, stopped, out);
    return status;
}

an_status an_evaluate_random(an_err *err, an_session *r, int split, int64_t batches, an_evaluation *out)
{
    const int64_t B = r->cfg.batch_size;
    const an_sample_range draw = {.split = split, .seed = (uint64_t)r->cfg.seed ^ EVALUATION_SEED, .samples = B};
    tally t;
    an_status status = open_tally(err, r, &t);
    bool stopped = false;
    for (int64_t i = 0; i < batches && status == AN_OK && !(stopped = is_stopped(r)); i++) {
        status =
            r->cfg.task->batch(err, r->data, &draw, (uint64_t)r->step * (uint64_t)batches + (uint64_t)i, t.batch.data);
        if (status == AN_OK) status = add_batch(err, r, i == batches - 1, &t);
    }
    close_tally(r, &t);
    finish(r, &t, batches * B, stopped, out);
    return status;
}

an_status an_evaluate_split(an_err *err, an_session *r, int split, an_evaluation *out)
{
    const an_train_config *c = &r->cfg;
    if (c->eval_iters > 0 && strcmp(c->eval_batches, "random") == 0)
        return an_evaluate_random(err, r, split, c->eval_iters, out);
    const int64_t most = c->eval_iters > INT64_MAX / c->batch_size ? INT64_MAX : c->eval_iters * c->batch_size;
    return an_evaluate(err, r, split, most, out);
}
