/* sudoku.h: the rules of Sudoku on boards of 4x4 (boxes 2x2), 6x6 (boxes of 2 rows and 3 columns) and 9x9: solving,
 * generating, symmetries.
 *
 * Does not:  read or write files (sudoku_set.h).
 *
 * A board is uint8_t [side*side] in rows, 0 for an empty cell, else 1 to side. Functions that draw take a seed and a
 * number, and are pure functions of them.
 */
#ifndef AN_IO_DATA_SUDOKU_H
#define AN_IO_DATA_SUDOKU_H

#include "base/base.h"

enum { AN_SUDOKU_SIDE = 9, AN_SUDOKU_CELLS = 81 };

/* Whether side is 4, 6 or 9. */
bool an_sudoku_is_side(int side);
/* Rows and columns of a box. */
void an_sudoku_box(int side, int *rows, int *columns);

/* How many solutions a board has, counted up to `most`: 0 none, 1 one, 2 more. The first is left in `out` (may be NULL). A
 * board that breaks a rule has none. */
int an_sudoku_solve(int side, const uint8_t *board, int most, uint8_t *out);

/* A random full grid, and a random puzzle with this grid as its only solution: cells are emptied in random order while
 * the solution stays the only one and more than `least` givens are left (0: as many as can be). */
void an_sudoku_grid(int side, uint64_t seed, uint64_t number, uint8_t *grid);
void an_sudoku_generate(int side, uint64_t seed, uint64_t number, int least, uint8_t *puzzle, uint8_t *solution);

/* A symmetry: relabels digits, transposes (never for 6x6, whose boxes are not square), permutes bands, rows in bands,
 * stacks, columns in stacks. */
typedef struct an_sudoku_map {
    int side;
    uint8_t cell[AN_SUDOKU_CELLS];     /* cell i of the image is cell[i] of the board */
    uint8_t digit[AN_SUDOKU_SIDE + 1]; /* 0 stays 0 */
} an_sudoku_map;
void an_sudoku_random_map(int side, uint64_t seed, uint64_t number, an_sudoku_map *out);
void an_sudoku_apply(const an_sudoku_map *m, const uint8_t *board, uint8_t *out);

/* The smallest image of a board under all its symmetries, in the order of memcmp: two boards are images of each other
 * exactly when these are equal. Full grids and puzzles alike. */
void an_sudoku_canonical(int side, const uint8_t *board, uint8_t *out);

#endif
