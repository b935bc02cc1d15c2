#include "train/evaluate.h"
#include "train/step.h"
#include <stdlib.h>
#include <string.h>

/* Of the seed of random evaluation batches, so that they are not those of training. */
enum { EVALUATION_SEED = 0x5EED };

/* Fills x, y [B,T] with windows first .. first + count; rows beyond `count` have no labels, so that a last batch that
 * is not full runs the plan of the full ones. */
static an_status read_windows(an_err *err, const an_session *r, int split, int64_t first, int64_t count, int32_t *x,
                              int32_t *y)
{
    const int64_t B = r->cfg.batch_size, T = r->cfg.block_size;
    AN_TRY(an_data_window(err, r->data, split, T, first, count, x, y));
    for (int64_t i = count * T; i < B * T; i++) {
        x[i] = 0;
        y[i] = AN_NO_LABEL;
    }
    return AN_OK;
}

/* Batches go to the device without a wait; their losses stay there until as many are kept as there is room for. */
typedef struct tally {
    float *loss; /* [room] */
    int64_t room, kept;
    double sum;
} tally;

static an_status open_tally(an_err *err, const an_session *r, tally *t)
{
    *t = (tally){.room = an_step_losses(&r->cfg)};
    t->loss = malloc((size_t)t->room * sizeof *t->loss);
    return t->loss ? AN_OK : an_fail_nomem(err, "an evaluation's losses", (size_t)t->room * sizeof *t->loss);
}

static an_status add_batch(an_err *err, an_session *r, const int32_t *x, const int32_t *y, bool last, tally *t)
{
    an_tensor *losses = an_step_evaluation(r->cx, r->model, &r->cfg, t->kept++, x, y); /* [room] */
    an_status status = an_eval(losses);
    if (status == AN_OK && (last || t->kept == t->room)) {
        status = an_read(losses, t->loss, (size_t)t->room * sizeof *t->loss);
        for (int64_t i = 0; i < t->kept && status == AN_OK; i++) t->sum += (double)t->loss[i];
        t->kept = 0;
    }
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

an_status an_evaluate(an_err *err, an_session *r, int split, int64_t most, an_evaluation *out)
{
    const int64_t B = r->cfg.batch_size, T = r->cfg.block_size, all = an_data_windows(r->data, split, T);
    const int64_t windows = most > 0 && most < all ? most : all;
    if (windows < 1)
        return an_fail(err, AN_E_DATA, "%s: %lld tokens are not one window of block_size=%lld and its next token",
                       r->cfg.data, (long long)an_data_tokens(r->data, split), (long long)T);
    int32_t *x = malloc((size_t)(2 * B * T) * sizeof *x); /* [B,T], and y behind it */
    if (!x) return an_fail_nomem(err, "an evaluation batch", (size_t)(2 * B * T) * sizeof *x);
    int32_t *y = x + B * T; /* [B,T] */
    tally t;
    an_status status = open_tally(err, r, &t);
    for (int64_t first = 0; first < windows && status == AN_OK; first += B) {
        status = read_windows(err, r, split, first, AN_MIN(B, windows - first), x, y);
        if (status == AN_OK) status = add_batch(err, r, x, y, first + B >= windows, &t);
    }
    free(t.loss);
    free(x);
    *out = (an_evaluation){.loss = t.sum / (double)(windows * T), .windows = windows, .tokens = windows * T};
    return status;
}

an_status an_evaluate_random(an_err *err, an_session *r, int split, int64_t batches, an_evaluation *out)
{
    const int64_t B = r->cfg.batch_size, T = r->cfg.block_size;
    const an_batch batch = {.split = split, .seed = (uint64_t)r->cfg.seed ^ EVALUATION_SEED, .B = B, .T = T};
    int32_t *x = malloc((size_t)(2 * B * T) * sizeof *x); /* [B,T], and y behind it */
    if (!x) return an_fail_nomem(err, "an evaluation batch", (size_t)(2 * B * T) * sizeof *x);
    int32_t *y = x + B * T; /* [B,T] */
    tally t;
    an_status status = open_tally(err, r, &t);
    for (int64_t i = 0; i < batches && status == AN_OK; i++) {
        status = an_data_batch(err, r->data, &batch, (uint64_t)(r->step * batches + i), x, y);
        if (status == AN_OK) status = add_batch(err, r, x, y, i == batches - 1, &t);
    }
    free(t.loss);
    free(x);
    const int64_t windows = batches * B;
    *out = (an_evaluation){.loss = t.sum / (double)(windows * T), .windows = windows, .tokens = windows * T};
    return status;
}

an_status an_evaluate_split(an_err *err, an_session *r, int split, an_evaluation *out)
{
    const an_train_config *c = &r->cfg;
    if (c->eval_iters > 0 && strcmp(c->eval_batches, "random") == 0)
        return an_evaluate_random(err, r, split, c->eval_iters, out);
    return an_evaluate(err, r, split, c->eval_iters * c->batch_size, out);
}
