/* arc_set.h: writes data sets of ARC's puzzles in the layout of puzzle_set.h, as TinyRecursiveModels makes them.
 *
 * The demonstrations of all subsets are for training. The tests of the test subsets are the test split; those of the
 * other subsets are for training too. Each puzzle comes with images of it (arc_grid.h), each with an identifier of its own
 * that is the same in both splits; a group holds all images of a puzzle. In training a grid is placed anywhere in the
 * 30x30 cells, except for one example of each puzzle; that one, and all of the test split, begin at the corner. Beside the
 * splits there is
 *
 *     DIR/test_puzzles.json    {"id": {"train": [{"input", "output"}, ...], "test": [...]}, ...}, of the test subsets
 *
 * Owns:      the choice of images, the places of grids, identifiers.
 * Does not:  read the published files (arc_tasks.h) or vote over images (infer/arc_votes.h).
 * Invariants: no image of a puzzle occurs twice. The same options and seed give the same bytes. */
#ifndef AN_IO_DATA_ARC_SET_H
#define AN_IO_DATA_ARC_SET_H

#include "io/data/arc_tasks.h"

typedef struct an_arc_options {
    const char *prefix;       /* of the files: PREFIX_SUBSET_challenges.json */
    const char *subsets;      /* with commas between them */
    const char *test_subsets; /* of them */
    const char *out;
    int64_t num_aug;           /* images of each puzzle, beside itself */
    int64_t identifiers_start; /* the first puzzle's; 0 is the blank one's */
    uint64_t seed;
    void (*tell)(void *arg, int64_t done,
                 int64_t all); /* puzzles that are written with their images so far; NULL: not told */
    void *tell_arg;
} an_arc_options;

typedef struct an_arc_result {
    int64_t train, test; /* puzzles in the splits */
    int64_t images;      /* puzzles with their images */
    int64_t train_examples, test_examples;
    int64_t few;      /* puzzles with fewer images than asked: there are no more */
    int64_t unsolved; /* test puzzles whose solutions are not known */
} an_arc_result;

an_status an_arc_build(an_err *err, const an_arc_options *o, an_arc_result *out);

#endif
