/* session.h: what a training run, an evaluation and a sampler share: settings, data, context and model, and the way they
 * come from and go to a checkpoint.
 *
 * Owns:      opening all of it in order, the contents of a checkpoint, what a resumed run continues with.
 * Does not:  train, evaluate or draw tokens.
 *
 * Invariants: a checkpoint holds everything that the next update depends on: parameters, moments, the number of updates
 * done, the seed, the settings and the tokenizer. Batches and dropout are functions of (seed, step), so that no
 * generator has a state to save.
 */
#ifndef AN_TRAIN_SESSION_H
#define AN_TRAIN_SESSION_H

#include "train/config.h"
#include "io/checkpoint.h"
#include "io/data/dataset.h"

typedef struct an_session {
    an_train_config cfg; /* vocab_size is settled */
    an_tokenizer *own_tokenizer;
    const an_tokenizer *tokenizer;                   /* NULL: the tokens came without one */
    an_data *data;                                   /* NULL: opened without data */
    char data_xxh3[AN_N_SPLITS][AN_HASH_TEXT_BYTES]; /* see an_proof_data; of a run that can be trained */
    an_ctx *cx;
    an_gpt *model;
    int64_t step;       /* updates done */
    double best_val;    /* the lowest validation loss so far, infinity before the first */
    int64_t best_step;  /* updates done when it was measured */
    const char *commit; /* of the program, for the logbook; NULL: not known. The caller's */
} an_session;

enum { AN_RUN_DATA = 1, AN_RUN_PARAMETERS_ONLY = 2, AN_RUN_WHOLE_FILE = 4 };

/* Opens what the settings say. `from` is NULL for a new run, else an open checkpoint whose weights are taken and,
 * without AN_RUN_PARAMETERS_ONLY, moments and progress too. AN_RUN_DATA opens the data as well, with AN_RUN_WHOLE_FILE
 * as one validation split. */
an_status an_session_open(an_err *err, const an_train_config *c, const an_st *from, int flags, an_session **out);
void an_session_close(an_session *r);

/* The settings stored in a checkpoint. */
an_status an_session_config(an_err *err, const an_st *from, an_train_config *out);

/* Writes the run's state as last.safetensors, as best.safetensors too when `improved`, as step_N.safetensors if `keep`
 * says so. Whatever happens in between, each name holds a whole checkpoint, and `last` is never newer than `best`
 * should be. */
an_status an_session_save(an_err *err, an_session *r, bool improved);

/* The context's recorded error as ours; AN_OK when there is none. */
an_status an_session_fault(an_err *err, an_ctx *cx);
/* The same after a call that gave `status`. */
an_status an_session_result(an_err *err, an_ctx *cx, an_status status);

double an_session_clock(void); /* monotonic seconds */

#endif
