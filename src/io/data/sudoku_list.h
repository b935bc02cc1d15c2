/* sudoku_list.h: reads lists of Sudokus into memory (sudoku_set.h describes the files). */
#ifndef AN_IO_DATA_SUDOKU_LIST_H
#define AN_IO_DATA_SUDOKU_LIST_H

#include "io/data/sudoku.h"

typedef struct an_sudoku_row {
    uint8_t puzzle[AN_SUDOKU_CELLS], answer[AN_SUDOKU_CELLS];
    bool answered; /* the file has an answer */
    uint32_t line;
} an_sudoku_row;

typedef struct an_sudoku_list {
    const char *path;
    int side; /* 0: no puzzle yet */
    an_sudoku_row *row;
    int32_t n, cap, most;
} an_sudoku_list;

enum { AN_SUDOKU_LIST_MOST = 1 << 24 }; /* 2.6 GiB of memory */

/* All puzzles of a file of at least this rating; AN_E_DATA: there are more than `most`. */
an_status an_sudoku_list_read(an_err *err, const char *path, double min_difficulty, int32_t most, an_sudoku_list *out);
/* Solves a puzzle that has no answer, and checks an answer. AN_E_DATA with file and line: no solution, or several. */
an_status an_sudoku_list_solve(an_err *err, an_sudoku_list *l, int32_t i);
void an_sudoku_list_free(an_sudoku_list *l);

#endif
