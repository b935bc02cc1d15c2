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
    an_tensor *norm; /* f32 scalar: the global norm of the gradients; NULL but in the last micro-batch */
} an_step;

/* Micro-batch `micro` of update `iteration`: x and y [batch_size, block_size]. The last one ends in the update. */
an_step an_step_build(an_ctx *cx, an_gpt *m, const an_train_config *c, int64_t iteration, int64_t micro,
                      const int32_t *x, const int32_t *y);

/* The learning rate of an update, counted from 0. */
double an_step_lr(const an_train_config *c, int64_t iteration);

/* f32 scalar: the sum of the losses of x, y [B,T]; positions whose label is AN_NO_LABEL count nothing. */
enum { AN_NO_LABEL = -1 };
an_tensor *an_step_evaluation(an_ctx *cx, an_gpt *m, int64_t B, int64_t T, const int32_t *x, const int32_t *y);

#endif
