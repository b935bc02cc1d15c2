/* loop.h: training: updates, evaluations, checkpoints, metrics, in an order that a resumed run repeats bit for bit.
 *
 * Owns:      the order of one iteration; when to log, evaluate and save; what happens when a loss is not finite or the
 *            listener asks to stop; accounting of where the time went.
 * Does not:  print (it calls a listener), write lines (metrics.h), or know models, tasks and file formats (io/).
 *
 * One iteration `it`, counted from 0: learning rate, micro-batches, update; a line of metrics every log_interval
 * updates; after every eval_interval updates and after the last one an evaluation and a checkpoint. The line of update
 * `it` has the loss before it and, where evaluated, `val_loss` after it.
 *
 * Only a line of metrics, an evaluation and a checkpoint wait for the device: between them updates are queued
 * asynchronously. An update whose gradients are not finite stops the run (nan=stop) on the device at once, and the
 * loop at the next of these points.
 */
#ifndef AN_TRAIN_LOOP_H
#define AN_TRAIN_LOOP_H

#include "train/session.h"

typedef enum an_train_event_kind {
    AN_TRAIN_PLANNED,   /* before the first update: `bill` */
    AN_TRAIN_COMPILED,  /* after it: `bill` with what was compiled */
    AN_TRAIN_LOGGED,    /* a line of metrics: numbers, lr, norm, ms, units_per_s, data_wait_ms, eta_s */
    AN_TRAIN_EVALUATED, /* val_loss, improved; train_loss where that split was evaluated too */
    AN_TRAIN_SAVED,     /* a checkpoint of `step` updates */
    AN_TRAIN_NOTE       /* `note`: a sentence for people */
} an_train_event_kind;

typedef struct an_train_event {
    an_train_event_kind kind;
    int64_t step; /* the update's number; in EVALUATED and SAVED how many are done */
    double loss, val_loss, train_loss, lr, norm, ms, units_per_s, data_wait_ms, eta_s;
    /* the model's numbers (the first is the loss) in training and on the validation split; NaN: absent */
    double number[AN_MODEL_SUMS], val_number[AN_MODEL_SUMS];
    double cpu_wait_ms; /* of ms: what the training thread waited for a processor that others used; NaN: unknown */
    double gpu_busy;    /* share of the updates' time in which the device itself worked; NaN: unknown */
    /* Of several ranks: the share of the updates' time that exchanges take and nothing hides; NaN: unknown, or one
     * rank. The slowest rank, and how much slower it is than the mean of the others; -1: unknown. */
    double exchange_share, slower;
    int slowest;
    double scale;    /* of float16's loss in LOGGED; 0: there is none */
    int64_t skipped; /* updates, because that scale was too large for them */
    bool improved;
    an_bill bill;
    const char *note;
} an_train_event;

typedef struct an_train_listener {
    void (*event)(void *arg, const an_session *r, const an_train_event *e);
    bool (*stop)(void *arg); /* polled between updates; true: save and return (Ctrl-C, SIGTERM: cli/interrupt.c) */
    void *arg;
} an_train_listener;

typedef struct an_train_result {
    bool interrupted;
    double loss, val_loss, train_loss; /* the last ones; NaN: none */
    double seconds;                    /* of the wall clock, of which: */
    double compile_s, evaluate_s, save_s, data_wait_s;
    double user_s, system_s; /* of all threads of this program, in that time */
    int64_t waits, stalls;   /* how often the program waited for the device to finish, or for its queue (an_bill) */
} an_train_result;

/* Trains from r->step to max_iters; with eval_only it evaluates and writes nothing. AN_E_NUMERIC: a loss was not finite
 * and nan=stop. */
an_status an_train(an_err *err, an_session *r, const an_train_listener *listener, an_train_result *out);

/* The line of the logbook for the end of training: `how` is "end", "interrupted" or "failed", and then `error` says why
 * (else NULL). */
an_status an_train_logbook_end(an_err *err, const an_session *r, const char *how, const an_train_result *result,
                               const char *error);

#endif
