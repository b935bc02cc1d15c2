/* grad_accumulate.h: shared by the optimizers: the gradients of this update, and their norm over all parameters.
 *
 * To add an optimizer: a file optim/NAME.c with a function declared in include/anneal.h that calls an_begin_update, builds
 * the new values of parameters and moments as elementwise tensors and assigns them (sgd.c is the shortest example); then
 * its value of the setting `optimizer` in train/. */
#ifndef AN_OPTIM_GRAD_ACCUMULATE_H
#define AN_OPTIM_GRAD_ACCUMULATE_H

#include "runtime/context.h"

enum { AN_MAX_BLOCKS = 64 };

/* Takes the accumulated gradients of all blocks into grad[] (NULL: frozen), divided by the loss scale when `scaled`, and
 * their norm; enters the scope "optimizer". False (and a recorded error): there is nothing to update. */
bool an_begin_update(an_ctx *cx, const char *at, const char *who, bool scaled, an_tensor *grad[AN_MAX_BLOCKS],
                     an_tensor **norm);

#endif
