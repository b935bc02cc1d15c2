/* sudoku_set.h: writes data sets of Sudokus in the layout of puzzle_set.h, from files of puzzles or from generated boards.
 *
 * Owns:      reading the lists, which puzzles are for training and which for testing, augmentation. A token is the digit
 *            + 1 (1 is an empty cell), 0 is padding; every cell is a label.
 * Does not:  know the rules (sudoku.h) or the files' layout (puzzle_write.h).
 *
 * A list has one puzzle on each line: 16, 36 or 81 characters, `.` or 0 for an empty cell. What follows a blank is ignored,
 * and so are lines that begin with #. A CSV file has a header line that names `question`, and optionally `answer` and
 * `rating`.
 * Invariants: every puzzle has exactly one solution, and no test puzzle is a symmetry image of a training one. The
 * same options and seed give the same bytes. */
#ifndef AN_IO_DATA_SUDOKU_SET_H
#define AN_IO_DATA_SUDOKU_SET_H

#include "base/base.h"

typedef struct an_sudoku_options {
    const char *from, *test; /* files with commas between them; NULL: made here; test NULL: of the same files */
    const char *out;
    int side;              /* of boards that are made here */
    int64_t generate;      /* training puzzles to make */
    int64_t givens;        /* left at least in those; -1: 6 of 4x4, 12 of 6x6, else as few as can be */
    int64_t subsample;     /* training puzzles of all files, as many of each; 0: all that are not for testing */
    int64_t test_size;     /* 0: a tenth of the training puzzles, or all of `test` */
    int64_t num_aug;       /* images of each training puzzle, beside itself */
    double min_difficulty; /* rating of a CSV file's puzzles */
    uint64_t seed;
    void (*tell)(void *arg, int64_t done,
                 int64_t all); /* puzzles that are made, or written with their images, so far; NULL: not told */
    void *tell_arg;
} an_sudoku_options;

typedef struct an_sudoku_result {
    int64_t train, examples, test; /* puzzles, with their images, puzzles for testing */
    int64_t images;                /* possible test puzzles left out: symmetry images of training ones */
    bool not_compared;             /* too many training puzzles of files to look for images */
} an_sudoku_result;

an_status an_sudoku_build(an_err *err, const an_sudoku_options *o, an_sudoku_result *out);

#endif
