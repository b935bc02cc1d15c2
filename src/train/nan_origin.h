/* nan_origin.h: where the first number that is not finite (NaN, infinity) arose, in which operation, scope and micro-batch of an update.
 *
 * Owns:      running that update once more on its own batch, launch by launch, and the line "not_finite" of the logbook.
 * Does not:  decide that a run ends (loop.c), or run with several ranks, whose exchanges would wait for each other.
 *
 * Invariant: with nan=stop the device has applied no update since that one, so the parameters are still those that it
 * began with. Running it again changes the context's states: the session must not be trained or saved after this call. */
#ifndef AN_TRAIN_NAN_ORIGIN_H
#define AN_TRAIN_NAN_ORIGIN_H

#include "train/session.h"

enum { AN_NAN_ORIGIN_BYTES = 400 };

/* "; it arises in h.0.mlp: KERNEL (forward, launch 3): element 7 is inf", or "" where it is not found: the device
 * computed other bits the second time, memory did not suffice, or there are several ranks. Writes the logbook's line
 * too. */
void an_nan_origin(an_session *r, int64_t step, char out[AN_NAN_ORIGIN_BYTES]);
/* "nan", "inf" or "-inf". The sign of a NaN has no meaning and is left out. */
const char *an_not_finite_text(double value);

#endif
