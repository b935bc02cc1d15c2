/* data_fault.h: which sample is to blame where a loss is not finite: one with a NaN or an infinite number in what the model reads,
 * or a batch without a label.
 *
 * Owns:      the search, sample by sample, through the batch of an update or a split in order.
 * Does not:  find where in the network a number arises (nan_origin.h). Integers are checked when they are read. */
#ifndef AN_TRAIN_DATA_FAULT_H
#define AN_TRAIN_DATA_FAULT_H

#include "train/session.h"

/* Whether it is the data. Of training: the batch of update `step`; step < 0: all samples of `split`, in order. Appends to *out what
 * is wrong, with its file and row where the task knows them. */
bool an_data_fault(an_session *r, int split, int64_t step, an_text *out);

#endif
