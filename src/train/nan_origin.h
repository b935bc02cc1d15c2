/* nan_origin.h: where the first number that is not finite arose, in which operation, scope and micro-batch of an update.
 *
 * Owns:      running that update once more on its own batch, launch by launch, and the line "not_finite" of the logbook.
 * Does not:  decide that a run ends (loop.c), or run with several ranks, whose exchanges would wait for each other.
 *
 * Invariant: with nan=stop the device has applied nothing since that update, so that its parameters are those of then.
 * What is run once more changes the context's states: the run ends behind it, and its last checkpoint is on the
 * disk. */
#ifndef AN_TRAIN_NAN_ORIGIN_H
#define AN_TRAIN_NAN_ORIGIN_H

#include "train/session.h"

enum { AN_NAN_ORIGIN_BYTES = 400 };

/* "; first in h.0.mlp: ..., forward: element 7 is inf", or "" where it is not found: a device that computes other bits
 * the second time, or for want of memory. Writes the logbook's line too. */
void an_nan_origin(an_session *r, int64_t step, char out[AN_NAN_ORIGIN_BYTES]);

#endif
