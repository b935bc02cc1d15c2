/* evaluate.h: the mean loss over consecutive windows of a split: the same windows every time, so that two evaluations
 * can be compared, and all floor((n-1)/T) of them when a whole split is asked for. */
#ifndef AN_TRAIN_EVALUATE_H
#define AN_TRAIN_EVALUATE_H

#include "train/run.h"

typedef struct an_evaluation {
    double loss; /* mean over all tokens, in nats */
    int64_t windows, tokens;
} an_evaluation;

/* The first `most` windows of block_size tokens, or all of them when `most` is 0, batch_size windows at a time. */
an_status an_evaluate(an_err *err, an_run *r, int split, int64_t most, an_evaluation *out);

#endif
