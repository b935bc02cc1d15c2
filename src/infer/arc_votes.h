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
 * Limits:    an answer without a cell of colour is no vote; a test without a vote is answered by [[0]]. */
#ifndef AN_INFER_ARC_VOTES_H
#define AN_INFER_ARC_VOTES_H

#include "train/session.h"

enum { AN_ARC_KS = 6 };
extern const int an_arc_k[AN_ARC_KS]; /* 1, 2, 5, 10, 100, 1000 */

typedef struct an_arc_score {
    double pass[AN_ARC_KS];
    int64_t puzzles, tests;
    int64_t votes, unanswered; /* tests without a vote */
} an_arc_score;

/* Whether the session's data have ARC's test puzzles (test_puzzles.json) beside them. */
bool an_arc_has_tests(const an_session *r);
/* All of the test split through all steps. `path`: of the submission; NULL: none is written. Needs a session with data. */
an_status an_arc_vote(an_err *err, an_session *r, const char *path, an_arc_score *out);

#endif
