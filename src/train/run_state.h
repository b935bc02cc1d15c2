/* run_state.h: how far a run is, as a checkpoint stores it: a line of JSON beside settings and weights.
 *
 *     {"anneal":"0.1.0","step":50,"best_val":4.2,"best_step":40,"train_tokens":9,"val_tokens":1,"train_xxh3":"...","val_xxh3":"...","isa":"avx512"}
 *
 * Owns:      writing and reading it; bounds of what a file from elsewhere may say.
 * Does not:  compare it with the data that are here, or open checkpoints (session.c).
 *
 * Invariant: what was read has 0 <= step <= AN_STEP_MOST 0 <= best_step <= step, and a best_val of at most FLT_MAX, or
 *            infinity before the first evaluation. */
#ifndef AN_TRAIN_RUN_STATE_H
#define AN_TRAIN_RUN_STATE_H

#include "train/task.h"

enum { AN_ISA_TEXT_BYTES = 16 };

typedef struct an_run_state {
    int64_t step;         /* updates done */
    double best_val;      /* infinity: no evaluation yet */
    int64_t best_step;    /* updates done when it was measured */
    bool owes_evaluation; /* interrupted in the evaluation that is due after `step` updates */
    int64_t epoch;        /* training samples in an epoch, as the task counts those; 0: it does not. Written only */
    bool counted;         /* the numbers of units are there: nanoGPT's ckpt.pt has none */
    int64_t units[AN_N_SPLITS];
    char xxh3[AN_N_SPLITS][AN_HASH_TEXT_BYTES]; /* of each split's data; "": not stored */
    char isa[AN_ISA_TEXT_BYTES];                /* of a CPU that multiplied in bfloat16; "": of none */
} an_run_state;

/* `units`: the task's word, "tokens". */
void an_run_state_write(const an_run_state *s, const char *units, an_text *out);
/* AN_E_IO: it is not JSON, or lacks the number of updates, or a number is out of these bounds. `path` begins its sentences. */
an_status an_run_state_read(an_err *err, const char *path, const char *text, const char *units, an_run_state *out);

#endif
