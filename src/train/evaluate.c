/* evaluate.c: evaluation (validation, without dropout) over all samples or over random batches. See evaluate.h. */
#include "train/evaluate.h"
#include "comm/comm.h"
#include "train/step.h"
#include <stdlib.h>
#include <string.h>

/* XORed into the seed, so that random evaluation batches are not those of training. */
enum { EVALUATION_SEED = 0x5EED };

/* Sums of an evaluation. Batches go to the device without a wait; their sums stay there, one row for each batch, until
 * all rows are used. Several ranks take batches in turn, one each in a round; the sums are added in the order that one
 * rank would have, so that the result has the same bits. */
typedef struct tally {
    an_array array[AN_MAX_ARRAYS];
    an_arrays batch;       /* of batch_size samples */
    float *kept;           /* [rows,sums], then [ranks,rows,sums] */
    int64_t rows, used;    /* used: rounds in `kept` */
    int64_t batches, done; /* of all ranks */
    int ranks, rank;
    double sum[AN_MODEL_SUMS];
} tally;

static an_status open_tally(an_err *err, const an_session *r, int64_t batches, tally *t)
{
    const int ranks = an_comm_ranks(r->cfg.comm);
    const size_t bytes = (size_t)(1 + ranks) * (size_t)an_step_numbers(&r->cfg) * sizeof(float);
    *t = (tally){.rows = an_step_rows(&r->cfg), .batches = batches, .ranks = ranks, .rank = an_comm_rank(r->cfg.comm)};
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

/* Runs all graphs of a batch but the last; only the last one's sums count. */
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

/* The sums of this rank's batch, into the next row. */
static an_status add_batch(an_err *err, an_session *r, const tally *t, float *read)
{
    const int64_t call = an_step_calls(&r->cfg) - 1;
    AN_TRY(begin_batch(err, r, t));
    an_tensor *kept =
        an_step_evaluation_call(r->cx, r->model, &r->cfg, t->used, call, t->batch.data); /* [rows] or [rows,sums] */
    an_status status = an_eval(kept);
    if (status == AN_OK && read) status = an_read(kept, read, (size_t)an_step_numbers(&r->cfg) * sizeof *read);
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

/* Where this rank has no batch in the last round, the rows of those before are read from the state. */
static an_status read_rows(an_err *err, const an_session *r, float *read)
{
    const int i = an_persist_find(r->cx, "losses");
    return an_session_result(err, r->cx,
                             an_persist_read(r->cx, i, read, (size_t)an_step_numbers(&r->cfg) * sizeof *read));
}

/* Whether every rank runs every graph, for it gives the others its part of the weights. */
static bool runs_with_others(const an_train_config *c)
{
    return an_comm_ranks(c->comm) > 1 && strcmp(c->shard, "weights") == 0;
}

/* A round: a batch of each rank, this one's in t->batch (`mine`: there is one). */
static an_status add_round(an_err *err, an_session *r, bool mine, tally *t)
{
    const int64_t sums = an_step_sums(&r->cfg), each = an_step_numbers(&r->cfg);
    const bool full = t->used + 1 == t->rows || t->done + t->ranks >= t->batches;
    float *all = t->kept + each;
    /* without a batch of its own a rank computes on what its arrays hold, for the others' sake; its sums are not added up */
    if (mine || runs_with_others(&r->cfg))
        AN_TRY(add_batch(err, r, t, full ? t->kept : NULL));
    else if (full)
        AN_TRY(read_rows(err, r, t->kept));
    t->used++;
    t->done += t->ranks;
    if (!full) return AN_OK;
    AN_TRY(an_comm_gather(err, r->cfg.comm, (size_t)each * sizeof *all, t->kept, all));
    const int64_t first = t->done - t->used * t->ranks;
    for (int64_t i = 0; i < t->used * t->ranks && first + i < t->batches; i++)
        for (int64_t k = 0; k < sums; k++) t->sum[k] += (double)all[i % t->ranks * each + i / t->ranks * sums + k];
    t->used = 0;
    return AN_OK;
}

/* All ranks stop together. */
static an_status is_stopped(an_err *err, const an_session *r, bool *stopped)
{
    return an_comm_any(err, r->cfg.comm, r->stop && r->stop(r->stop_arg), stopped);
}

static void finish(const an_session *r, const tally *t, int64_t samples, bool stopped, an_evaluation *out)
{
    *out = (an_evaluation){.samples = samples, .stopped = stopped, .units = samples * an_task_units(&r->cfg)};
    an_step_means(&r->cfg, t->sum, (double)out->units, true, out->number);
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
    an_status status = open_tally(err, r, an_ceil_div(samples, B), &t);
    bool stopped = false;
    while (t.done < t.batches && status == AN_OK) {
        const int64_t first = (t.done + t.rank) * B;
        const bool mine = first < samples;
        status = is_stopped(err, r, &stopped);
        if (status != AN_OK || stopped) break;
        if (mine) status = task->read(err, r->data, split, first, AN_MIN(B, samples - first), B, t.batch.data);
        if (status == AN_OK) status = add_round(err, r, mine, &t);
        if (r->tell) r->tell(r->tell_arg, AN_MIN(t.done, t.batches), t.batches);
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
    an_status status = open_tally(err, r, batches, &t);
    bool stopped = false;
    while (t.done < t.batches && status == AN_OK) {
        const int64_t i = t.done + t.rank;
        status = is_stopped(err, r, &stopped);
        if (status != AN_OK || stopped) break;
        if (i < batches)
            status = r->cfg.task->batch(err, r->data, &draw, (uint64_t)r->step * (uint64_t)batches + (uint64_t)i,
                                        t.batch.data);
        if (status == AN_OK) status = add_round(err, r, i < batches, &t);
        if (r->tell) r->tell(r->tell_arg, AN_MIN(t.done, t.batches), t.batches);
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
