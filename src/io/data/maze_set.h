/* maze_set.h: writes data sets of mazes in the layout of puzzle_set.h, from CSV files or from mazes generated here.
 *
 * A maze is side*side characters in rows: # wall, blank free, S start, G goal; its answer has `o` on the free cells of
 * a shortest path. Tokens: 0 padding, then "# SGo" from 1 on; every cell is a label.
 *
 * Owns:      generating and checking mazes (the answer is a shortest path), their eight reflections and rotations.
 * Invariant: no maze occurs twice, not even rotated or reflected; the same options and seed give the same bytes. */
#ifndef AN_IO_DATA_MAZE_SET_H
#define AN_IO_DATA_MAZE_SET_H

#include "base/base.h"

typedef struct an_maze_options {
    const char *from, *test; /* CSV files with columns question and answer; NULL: made here; of the same file */
    const char *out;
    int side;                     /* of mazes that are made here */
    int64_t generate, min_path;   /* training mazes to make, with at least so many steps from S to G */
    int64_t subsample, test_size; /* 0: all; a tenth of the training mazes, or all of `test` */
    int64_t most;                 /* of a list; 0: AN_MAZE_MOST */
    bool aug;                     /* the eight images of each training maze */
    uint64_t seed;
    void (*tell)(void *arg, int64_t done,
                 int64_t all); /* mazes that are made, then those that are written, so far; NULL: not told */
    void *tell_arg;
} an_maze_options;

enum { AN_MAZE_MAX_SIDE = 64, AN_MAZE_MOST = 1 << 22 };

typedef struct an_maze_result {
    int64_t train, examples, test, shortest, longest; /* paths in steps */
} an_maze_result;

an_status an_maze_build(an_err *err, const an_maze_options *o, an_maze_result *out);

/* A maze whose free cells are a tree, so that its path is the only one; `text` and `answer` [side*side]. False: the walk
 * drawn for this number is shorter than min_path. */
bool an_maze_generate(int side, uint64_t seed, uint64_t number, int64_t min_path, char *text, char *answer);
/* Steps of the shortest path from S to G, -1: there is none, or not one S and one G. */
int64_t an_maze_path(int side, const char *text);

#endif
