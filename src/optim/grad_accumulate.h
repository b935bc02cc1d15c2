/* grad_accumulate.h: shared by the optimizers: the gradients of this update, and their norm over all parameters.
 *
 * To add an optimizer: a file optim/NAME.c with a function declared in include/anneal.h that calls an_begin_update, builds
 * the new values of parameters and moments as elementwise tensors and assigns them (sgd.c is the shortest example); then
 * a row of train/optimizer.c, as train/optimizer.h says. */
#ifndef AN_OPTIM_GRAD_ACCUMULATE_H
#define AN_OPTIM_GRAD_ACCUMULATE_H

#include "runtime/context.h"

enum { AN_MAX_BLOCKS = 64 };

/* Takes the accumulated gradients of all blocks into grad[] (NULL: frozen; of a sharded block this rank's part),
 * divided by the loss scale when `scaled`, and their norm (f32, f64 where a parameter is); enters the scope
 * "optimizer". False (and a recorded error): there is nothing to update. */
bool an_begin_update(an_ctx *cx, const char *at, const char *who, bool scaled, an_tensor *grad[AN_MAX_BLOCKS],
                     an_tensor **norm);

/* A number that a caller gave: `least` to below `below`. */
typedef struct an_option {
    const char *name;
    double value, least, below;
} an_option;
/* False, and the error is recorded, when one is outside or NaN: it would make parameters NaN without a word. Called before
 * an_begin_update, which takes the gradients. */
bool an_options_fit(an_ctx *cx, const char *at, const char *who, int n, const an_option *o);

/* The parameters of block b that this rank updates, [n]: all of them, or its part (an_shard_optimizer); grad[b] and the
 * moments have the same elements. */
an_tensor *an_own_params(an_ctx *cx, const char *at, int b);
/* A uniform number in [0,1) for each of these elements, f32 [n]; the same on every rank that has an element. */
an_tensor *an_own_random(an_ctx *cx, const char *at, int b);
/* Gives them their new values, on every rank. */
void an_assign_own_params(an_ctx *cx, const char *at, int b, an_tensor *value);

/* Values of an_own_params as they are stored: rounded at random where they are declared in float32 and kept in bfloat16
 * (an_policy.weights), to the nearest where they are declared in 16 bits. */
an_tensor *an_stored_params(an_ctx *cx, const char *at, int b, an_tensor *value);
/* A block of parameters that are declared in float32 and kept in bfloat16. */
bool an_is_narrow_block(const an_ctx *cx, int b);

/* The dtype in which a block of `dtype` is updated: its own; float32 for the 16-bit ones. */
an_dtype an_update_dtype(an_dtype dtype);
/* A number of this step (a rate, a bias correction) in that dtype: it does not enter the plan. */
an_tensor *an_update_scalar(const char *at, an_ctx *cx, an_dtype dtype, double x);
/* min(1, clip / (norm + 1e-6)), by which gradients are multiplied. */
an_tensor *an_clip_factor(const char *at, an_ctx *cx, an_tensor *norm, double clip);

#endif
