/* arc_votes.h: answers to ARC's tests by a vote over a puzzle's images, as TinyRecursiveModels evaluates them.
 *
 * The model answers every image of a test (arc_grid.h); the answer, with the image's transformation undone, is a vote for a
 * grid. Grids are ranked by their votes, then by the mean probability of being right that the model gave them. pass@K is
 * the share of a puzzle's tests whose solution is among the first K grids, averaged over the puzzles; the first two are
 * the attempts of a submission:
 *
 *     {"id": [{"attempt_1": [[0, 1], ...], "attempt_2": [[...], ...]}, ...], ...}
 *
 * Owns:      the votes and the submission's file.
 * Does not:  make images (io/data/arc_set.h) or know the network.
 * Limits:    an answer without a coloured cell is no vote; a test without a vote is answered by [[0]]. */
#ifndef AN_INFER_ARC_VOTES_H
#define AN_INFER_ARC_VOTES_H

#include "infer/eval_reports.h"

/* For sessions whose data have ARC's test puzzles (test_puzzles.json) beside them: runs the whole test split through all
 * supervision steps. */
an_eval_report_fn an_arc_report;

#endif
