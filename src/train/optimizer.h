/* optimizer.h: the optimizers that the setting `optimizer` names: a table, one row each.
 *
 * Owns:      the rows (what a setting means to an optimizer), the rate of the averages, which parameters decay or are
 *            frozen.
 * Does not:  compute updates: that is src/optim/, a file an optimizer.
 *
 * To add one: a file in src/optim/, its declaration in include/anneal.h, a row in optimizer.c, its name in the choices of
 * `optimizer` in config.c (a test compares the two). For whole steps from PyTorch also a branch in import/pt2_step.c and a row in
 * python/anneal/_step.py.
 */
#ifndef AN_TRAIN_OPTIMIZER_H
#define AN_TRAIN_OPTIMIZER_H

#include "train/config.h"

/* An update: what differs from step to step. */
typedef struct an_update {
    double lr;
    int64_t t;          /* counted from 1 */
    an_tensor *only_if; /* bool scalar: the update is skipped where it is false; NULL: true */
    bool scaled;        /* the loss is scaled (float16) */
} an_update;

typedef struct an_optimizer {
    const char *name;
    const char *const *keys; /* settings that only some optimizers have, of this one; up to NULL */
    /* Builds the update of all parameters that are not frozen; returns the norm of the gradients, f32 scalar. */
    an_tensor *(*update)(an_ctx *cx, const an_train_config *c, const an_update *u);
} an_optimizer;

extern const an_optimizer an_optimizers[];
extern const size_t an_n_optimizers;

const an_optimizer *an_optimizer_of(const an_train_config *c); /* the row that the settings name */
/* AN_E_USAGE: settings that the optimizer does not have, or that do not go together. */
an_status an_optimizer_check(an_err *err, const an_train_config *c);
/* Applies `decay` and `freeze` to the parameters of an open model; AN_E_USAGE when a pattern names none of them. */
an_status an_optimizer_select(an_err *err, an_ctx *cx, const an_train_config *c);

/* The rate of the averages at update t (from 1): ema_rate. In a run too short for it, with max_iters < 5 / (1 - ema_rate),
 * the averages would be mostly what the run began with: the rate then warms up, and is at most (1 + t) / (10 + t). */
bool an_optimizer_ema_warms_up(const an_train_config *c);
double an_optimizer_ema_rate(const an_train_config *c, int64_t t);

#endif
