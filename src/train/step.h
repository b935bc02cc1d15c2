/* step.h: the graphs of a training step and of an evaluation batch, as train, plan and bench run them.
 *
 * Owns:      the order forward, backward, clip, AdamW; accumulation over micro-batches.
 * Does not:  run anything: the caller evaluates what it gets.
 */
#ifndef AN_TRAIN_STEP_H
#define AN_TRAIN_STEP_H

#include "train/config.h"

typedef struct an_step {
    an_tensor *loss; /* f32 scalar: the mean over the micro-batch */
    an_tensor *norm; /* f32 scalar: the global norm of the gradients; NULL but in the last micro-batch, as all below */
    an_tensor *losses;          /* f32 [an_step_losses]: of all micro-batches, where there are several; else NULL */
    an_tensor *stopped;         /* i32 scalar: see an_step_stopped; NULL without nan=stop */
    an_tensor *scale, *skipped; /* of float16's loss: f32 and i32 scalars; else NULL */
    an_tensor *root[6];         /* what is to be evaluated */
    int n_roots;
} an_step;

/* Micro-batch `micro` of update `iteration`: x and y [batch_size, block_size]. The last one ends in the update. */
an_step an_step_build(an_ctx *cx, an_gpt *m, const an_train_config *c, int64_t iteration, int64_t micro,
                      const int32_t *x, const int32_t *y);
an_status an_step_plan(const an_step *s);
an_status an_step_eval(const an_step *s);

/* With nan=stop the device applies no update from the first one on whose gradients are not finite (in float16: not even
 * at a loss scale of 1), until somebody asks. What `stopped` holds: 0, or the update's number and the norm. */
bool an_step_stopped(int32_t stopped, int64_t *iteration, double *norm);

/* The learning rate of an update, counted from 0. */
double an_step_lr(const an_train_config *c, int64_t iteration);

/* Losses stay on the device, in one state, until somebody reads them: so many. */
int64_t an_step_losses(const an_train_config *c);
/* The state itself, so that it is known before it is used. */
an_tensor *an_step_kept(an_ctx *cx, const an_train_config *c);

/* That state, f32 [an_step_losses], with the sum of the losses of x, y [batch_size, block_size] as number i. Positions
 * whose label is AN_NO_LABEL count nothing. */
enum { AN_NO_LABEL = -1 };
an_tensor *an_step_evaluation(an_ctx *cx, an_gpt *m, const an_train_config *c, int64_t i, const int32_t *x,
                              const int32_t *y);

#endif
