/* act.h: adaptive computation time (halting) around the network of trm.h. A batch is a row of slots. Each slot works on its
 * sample for some supervision steps, one update each, until it halts; then it takes a sample of the next batch.
 *
 * Owns:      the carry (states of the context), halting and exploration, losses and their sums, the update of the puzzle
 *            table.
 * Does not:  know the layers, settings or data.
 *
 * The carry of a micro-batch is "carry.z_H", "carry.z_L" [B,L,D], "carry.inputs", "carry.labels" i32 [B,S],
 * "carry.ids", "carry.steps", "carry.running" i32 [B]; with several micro-batches in an update each has its own:
 * "carry.0.z_H", ... The batch's sample for a slot that has not halted is not used. Evaluation starts anew with every
 * batch and keeps its states between calls in "evaluation.*", which checkpoints leave out. With several ranks each
 * works on the carries of its own micro-batches, and all have the table: the last micro-batch of a rank exchanges the
 * gradients of rows.
 *
 * Invariant: exploration is a function of (seed, update, slot).
 */
#ifndef AN_MODELS_TRM_ACT_H
#define AN_MODELS_TRM_ACT_H

#include "models/trm/trm.h"

typedef struct an_act_config {
    double explore;   /* share of slots that must go on for a random number of steps */
    bool stablemax;   /* cross entropy by stablemax (Prieto et al., "Grokking at the edge of numerical stability",
                          * 2025), not by softmax */
    bool no_continue; /* halt where q_halt > 0; else where q_halt > q_continue, which is learned from a second call */
    bool eval_halt;   /* evaluation stops a slot where q_halt > 0 */
    bool blank_ids;   /* evaluation reads the blank puzzle's row for all */
    double puzzle_lr, puzzle_decay; /* of the puzzle table's sign descent */
} an_act_config;

typedef struct an_act {
    an_trm *m;
    an_act_config c;
    int64_t micro, micros; /* training: which micro-batch of an update, and of how many */
    int64_t ranks;         /* training: micro-batch m is done by rank m mod ranks; 0: as 1 */
    int64_t call;          /* evaluation: which call on this batch */
    double lr_share;       /* training: the learning rate as a part of its peak */
    an_tensor *rows, *ids; /* of the graph that is being built: rows of the puzzle table, and their ids */
} an_act;

/* The losses of a micro-batch, scalars of the parameters' dtype. `loss` is differentiated: the mean over the slots.
 * `sum` has sums over the slots. For puzzles:
 *     loss, accuracy, exact, q_halt agrees, q_halt_loss, lm_loss, steps, halted slots
 * where accuracy, exact, agreement and steps count only the slots that halt now and have a label (in evaluation, all that
 * have a label). For causal models:
 *     loss of the tokens, number of tokens */
enum { AN_ACT_SUMS = 8 };
typedef struct an_act_losses {
    an_tensor *loss, *sum[AN_ACT_SUMS];
} an_act_losses;

/* Inputs: tokens, labels i32 [B,S] (negative: no label), ids i32 [B]. Declares the carry in training. */
an_act_losses an_act_train(an_act *a, an_tensor *const *in);
an_act_losses an_act_evaluate(an_act *a, an_tensor *const *in);
/* Called after an_backward: one step of sign descent on the rows of the puzzle table that the batch used, by their summed
 * gradients. Those of earlier micro-batches are kept in states until the last one of the update, whose `only_if` (a bool
 * scalar, or NULL) says whether it is applied. False: there is no table. */
bool an_act_update(an_act *a, an_tensor *only_if);

/* A call without labels, for solving: tokens i32 [B,S] and ids i32 [B]; states are kept in evaluation.*. Gives the most
 * probable tokens now, i32 [B,S], and q_halt, f32 [B]. */
void an_act_solve(an_act *a, an_tensor *tokens, an_tensor *ids, an_tensor **answer, an_tensor **q_halt);

#endif
