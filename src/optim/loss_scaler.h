/* loss_scaler.h: what the optimizers need of loss scaling in float16 (gradient scaling, overflow): loss_scaler.c. */
#ifndef AN_OPTIM_LOSS_SCALER_H
#define AN_OPTIM_LOSS_SCALER_H

#include "runtime/context.h"

an_tensor *an_loss_scale_inverse(const char *at, an_ctx *cx); /* gradients of a scaled loss are multiplied by it */

/* Adjusts the scale after an update. ok: the gradients were finite. only_if: NULL, or a condition; where it is false
 * nothing changes, whatever the gradients are. */
void an_loss_scale_update(const char *at, an_ctx *cx, an_tensor *ok, an_tensor *only_if);

/* Adam's bias correction 1 - beta^t, where t counts the updates that were applied, this one included. which: 1 for beta1,
 * 2 for beta2. Its state in checkpoints is called optimizer.mass1 or optimizer.mass2. */
an_tensor *an_loss_scale_bias_correction(const char *at, an_ctx *cx, int which, double beta, an_tensor *ok);

/* A bool scalar: no update was applied before this one. */
an_tensor *an_loss_scale_is_first(const char *at, an_ctx *cx, an_tensor *ok);

#endif
