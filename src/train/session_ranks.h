/* session_ranks.h: a session whose process is one of several ranks: what all of them must have in common, and the
 * values that only one of them has.
 *
 * Owns:       the checks that ranks agree on settings, data and parameters; gathering, for a checkpoint, the states of
 *             micro-batches before it is written, and the ranks' parts of moments and weights (shard=) while it is.
 * Does not:   exchange gradients (optim/grad_accumulate.c), or sums of losses (step.c, evaluate.c).
 * A checkpoint holds whole arrays. When it is loaded each rank takes its part (runtime/persist.c), so that the number of ranks
 * may change from one start to the next.
 * Invariants: every rank calls these at the same place. In a process alone they do nothing. */
#ifndef AN_TRAIN_SESSION_RANKS_H
#define AN_TRAIN_SESSION_RANKS_H

#include "train/session.h"

/* AN_E_USAGE where the number of ranks, the run's or the given one, does not divide an update's micro-batches. */
an_status an_ranks_check_division(an_err *err, const an_train_config *c);
an_status an_ranks_check_division_by(an_err *err, const an_train_config *c, int64_t ranks);
/* Before the first update: the same device, settings, data and progress on all ranks; AN_E_UNSUPPORTED where the model
 * has states that are not made for ranks. */
an_status an_ranks_check(an_err *err, an_session *r);
/* AN_E_ENV unless all ranks have the same parameters; before the first update, and before each checkpoint (`began`).
 * Parameters are never sent: every rank computes all updates. Equal processors give equal bits; different ones may not,
 * and memory may fail. */
an_status an_ranks_check_params(an_err *err, an_session *r, bool began);
/* Before a checkpoint: gives rank 0 the states of the micro-batches of the others (an_model.state_micro). */
an_status an_ranks_gather_states(an_err *err, an_session *r);
/* While rank 0 writes a checkpoint: entry i of an_persist_get, whole, to `out`, with the parts that other ranks hold
 * (shard=). */
an_status an_ranks_read(an_err *err, an_session *r, int i, void *out, size_t bytes);
/* The other ranks meanwhile: send what rank 0 asks for, until it has written the checkpoint. */
an_status an_ranks_send_parts(an_err *err, an_session *r);
/* Rank 0, after it has written a checkpoint: tells the others to go on. */
an_status an_ranks_end_parts(an_err *err, an_session *r);

#endif
