/* evaluate.h: the mean loss of a split and the model's other numbers, over all samples of the split in order, so that two
 * evaluations can be compared, or over random batches, as nanoGPT does.
 *
 * Without dropout, and with batch norm's stored running statistics: the model's `losses` with `training` false
 * (models/model.h). With ema=true on averages of the parameters (optim/ema.c). */
#ifndef AN_TRAIN_EVALUATE_H
#define AN_TRAIN_EVALUATE_H

#include "train/session.h"

typedef struct an_evaluation {
    double loss;                  /* mean over all units, in nats: number[0] */
    double number[AN_MODEL_SUMS]; /* as the model's row names its sums */
    int64_t samples, units;       /* evaluated */
    bool stopped;                 /* the session's `stop` ended it early: loss and number are not to be used */
} an_evaluation;

/* The first `most` samples, or all of them when `most` is 0, batch_size at a time. */
an_status an_evaluate(an_err *err, an_session *r, int split, int64_t most, an_evaluation *out);

/* `batches` batches of samples drawn with replacement, as a function of (seed, updates done, split). */
an_status an_evaluate_random(an_err *err, an_session *r, int split, int64_t batches, an_evaluation *out);
/* What the run's settings ask for. */
an_status an_evaluate_split(an_err *err, an_session *r, int split, an_evaluation *out);

#endif
