/* session.h: what a training run, an evaluation and a prediction share: settings, data, context and model, and how they
 * are read from a checkpoint and written to one.
 *
 * Owns:      opening all of it in order, the contents of a checkpoint, what a resumed run continues with.
 * Does not:  train, evaluate or draw tokens.
 *
 * Invariants: a checkpoint holds everything that the next update depends on: parameters, moments, every state of the
 * context but those that step.h calls transient, the number of updates done, the settings and the tokenizer. Batches
 * and dropout are functions of (seed, step), so that no generator has a state to save.
 */
#ifndef AN_TRAIN_SESSION_H
#define AN_TRAIN_SESSION_H

#include "train/config.h"
#include "io/checkpoint.h"
#include "report/metrics.h"
#include "train/run_state.h"
#include "train/task.h"

typedef struct an_session {
    an_train_config cfg;                             /* what data settle (a vocabulary) is settled */
    an_task_data *data;                              /* not `loaded` when opened without AN_RUN_DATA */
    char data_xxh3[AN_N_SPLITS][AN_HASH_TEXT_BYTES]; /* hash of each split, of a run that can be trained */
    an_ctx *cx;
    void *model;          /* of cfg.model */
    int64_t step;         /* updates done */
    double best_val;      /* the lowest validation loss so far, infinity before the first */
    int64_t best_step;    /* updates done when it was measured */
    bool owes_evaluation; /* interrupted in the evaluation that is due after `step` updates: resuming makes it first */
    bool (*stop)(void *arg); /* polled between the batches of an evaluation; NULL: it goes on to its end */
    void *stop_arg;
    /* Progress callback; NULL: none. Called after each batch of an evaluation with the batches of all ranks, and before
     * each batch of predictions or answers with the rows or boards that are done. */
    void (*tell)(void *arg, int64_t done, int64_t all);
    void *tell_arg;
    bool data_in_use; /* a loader thread that hangs reads `data`: closing leaves them (an_loader_close) */
    an_text fresh;    /* parameters that the weights of init_from= lack or have for another head, ", " between them */
    char began_isa
        [AN_ISA_TEXT_BYTES]; /* instruction set that the run resumed in bfloat16 last ran on; "": none is known */
    int converted;           /* parameters that were read in another dtype than they are kept in (weights_dtype=) */
    int lock;                /* of the run's folder (run_dir.h), -1: none is held. The caller's */
    const char *commit;      /* of the program, for the logbook; NULL: unknown. The caller's */
    const struct an_storage *disk; /* of the data, where the caller has looked; NULL: the logbook does. The caller's */
} an_session;

enum { AN_RUN_DATA = AN_OPEN_DATA, AN_RUN_WHOLE_FILE = AN_OPEN_WHOLE_FILE, AN_RUN_PARAMETERS_ONLY = 4 };

/* Opens what the settings say; with c->comm, every rank does. `from` is NULL for a new run, else an open checkpoint
 * whose weights are taken and, without AN_RUN_PARAMETERS_ONLY, moments and progress too. AN_RUN_DATA opens the data as
 * well, with AN_RUN_WHOLE_FILE as one validation split. */
an_status an_session_open(an_err *err, const an_train_config *c, const an_st *from, int flags, an_session **out);
void an_session_close(an_session *r);

/* The settings stored in a checkpoint. */
an_status an_session_config(an_err *err, const an_st *from, an_train_config *out);

/* Writes the run's state as last.safetensors, as best.safetensors too when `improved`, as step_N.safetensors if `keep`
 * says so. At any moment each name holds a whole checkpoint, and `last` is replaced last: when it is of this state, so
 * are the others. */
an_status an_session_save(an_err *err, an_session *r, bool improved);

/* The context's recorded error as ours; AN_OK when there is none. */
an_status an_session_fault(an_err *err, an_ctx *cx);
/* The same after a call that gave `status`. */
an_status an_session_result(an_err *err, an_ctx *cx, an_status status);

/* The facts of the session for its logbook: texts are the session's. */
an_logbook an_session_logbook(const an_session *r);
/* Settings and machine into the logbook, and config.yaml: see an_logbook_begin. */
an_status an_session_begin_logbook(an_err *err, const an_session *r, an_text *notes);

double an_session_clock(void); /* monotonic seconds */

/* Host memory of a run in bytes: the loader's batches, and the buffers of evaluation and checkpoints. */
uint64_t an_session_loader_bytes(const an_train_config *c);
uint64_t an_session_buffer_bytes(const an_train_config *c);

#endif
