/* step.h: the graphs of a training step and of an evaluation batch, as train, plan, bench and profile run them.
 *
 * Owns:      the order forward, backward, clip, optimizer; accumulation over micro-batches; the states in which a run
 *            keeps numbers on the device until they are read.
 * Does not:  evaluate a graph (the caller does), or know models (models/model.h does).
 *
 * The numbers of micro-batch (or evaluation batch) i are row i of one state on the device, so that a whole update, or
 * a whole evaluation, is one read:
 *
 *     "losses"   f32 [n] of a model with one sum, f32 [n, sums] of others
 */
#ifndef AN_TRAIN_STEP_H
#define AN_TRAIN_STEP_H

#include "train/config.h"

/* The most updates of a run: the record of bad update u is the int32 1 + 2 u + n, where n is 1 if its gradient norm was NaN and
 * 0 if infinite (an_step_stopped). */
enum { AN_STEP_MOST = (1 << 30) - 2 };

typedef struct an_step {
    an_tensor *loss;    /* f32 scalar: the mean over the micro-batch */
    an_tensor *norm;    /* f32 scalar: global norm of the gradients; as all below, in the last micro-batch only */
    an_tensor *numbers; /* the state above; NULL: one micro-batch and one sum, and `loss` is the only number */
    an_tensor *stopped; /* i32 scalar: see an_step_stopped; NULL without nan=stop */
    an_tensor *scale, *skipped; /* of float16's loss: f32 and i32 scalars; else NULL */
    an_tensor *root[6];         /* what is to be evaluated */
    int n_roots;
} an_step;

/* Micro-batch `micro` of update `iteration`, over the model's input arrays (all NULL: to be planned only), which are lent until an_reset. The
 * last one of a rank ends in the update. */
an_step an_step_build(an_ctx *cx, void *model, const an_train_config *c, int64_t iteration, int64_t micro,
                      void *const *array);
/* part[i]: where the arrays of micro-batch `micro` begin in those of a whole update. */
void an_step_slice(const an_train_config *c, void *const *array, int64_t micro, void *part[AN_MAX_ARRAYS]);
an_status an_step_plan(const an_step *s);
an_status an_step_eval(const an_step *s);

/* Waits for an update of all ranks (every one calls this) and gives its numbers, in the order of the model's sums: each
 * the mean over the update, or its ratio to another sum (an_sum.per). NaN where the model has no such sum in
 * training. */
an_status an_step_read(an_err *err, an_ctx *cx, const an_train_config *c, const an_step *s,
                       double number[AN_MODEL_SUMS]);

/* With nan=stop the device applies no update from the first one on whose gradients are not finite (in float16: not even
 * at a loss scale of 1). Decodes the state `stopped`: false, or the number of that update and its gradient norm. */
bool an_step_stopped(int32_t stopped, int64_t *iteration, double *norm);

/* The learning rate of an update, counted from 0 (nn/schedules.c). */
double an_step_lr(const an_train_config *c, int64_t iteration);

/* How many sums the model has in these settings. */
int64_t an_step_sums(const an_train_config *c);
/* How many rows of numbers stay on the device until they are read, and how many numbers that is. */
int64_t an_step_rows(const an_train_config *c);
int64_t an_step_numbers(const an_train_config *c);
/* Declares the state (or finds it). */
an_tensor *an_step_kept(an_ctx *cx, const an_train_config *c);
/* Whether the state of this name is a temporary that checkpoints leave out. */
bool an_step_is_transient(const char *state);
/* Whether it is a part of a run's progress, as moments are, and not of what the run has learned: a new run that begins
 * with these weights does not take it. */
bool an_step_is_progress(const char *state);

/* That state, with the sums of an evaluation batch as row i. */
an_tensor *an_step_evaluation(an_ctx *cx, void *model, const an_train_config *c, int64_t i, void *const *array);
/* The same of one of the graphs that an evaluation runs on each batch, counted from 0 (an_model.calls): the sums of the
 * last replace those before. */
an_tensor *an_step_evaluation_call(an_ctx *cx, void *model, const an_train_config *c, int64_t i, int64_t call,
                                   void *const *array);
int64_t an_step_calls(const an_train_config *c);

/* Sums over `units` of the task's units as numbers: divided by them, or by another sum (an_sum.per; of an evaluation
 * an_model.evaluated). */
void an_step_means(const an_train_config *c, const double sum[AN_MODEL_SUMS], double units, bool evaluation,
                   double number[AN_MODEL_SUMS]);

#endif
