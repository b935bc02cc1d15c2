/* solve.h: a model's answers to boards: Sudokus and mazes.
 *
 * Owns:      reading boards from text, supervision steps through the model, answers as text.
 * Does not:  open files or print.
 *
 * A Sudoku is side * side characters, 1 to side, and . or 0 for an empty cell; line ends and blanks between them are
 * ignored. A maze is side lines of side characters, # wall, blank free, S start, G goal (o in answers: the path); empty
 * lines between boards are ignored. Which of the two a run solves follows from its sizes and the text. */
#ifndef AN_INFER_SOLVE_H
#define AN_INFER_SOLVE_H

#include "train/session.h"

typedef enum an_board_kind { AN_BOARD_SUDOKU, AN_BOARD_MAZE } an_board_kind;

typedef struct an_boards {
    an_board_kind kind;
    int64_t n, side;
    int32_t *token; /* [n,side*side]; free with an_boards_free */
} an_boards;

/* `name` begins sentences, which name the line. AN_E_DATA: not a board; AN_E_USAGE: the run is for no boards. */
an_status an_boards_read(an_err *err, const an_session *r, const char *name, const char *text, size_t bytes,
                         an_boards *out);
void an_boards_free(an_boards *b);
/* A board as text: a Sudoku on one line, a maze on `side` lines; no newline at the end. */
void an_board_put(const an_boards *b, const int32_t *token, an_text *out);
/* Whether a Sudoku's answer keeps the board's digits and the rules, or that to a maze is the maze with a path of o from S to G that has no
 * shorter way between its own cells. */
bool an_board_holds(const an_boards *b, const int32_t *board, const int32_t *answer);

typedef struct an_solve_options {
    int64_t steps; /* the most supervision steps; 0: the run's */
    bool halt;     /* a board is done once the model predicts that its answer is right */
    /* Called after each step of each board; may be NULL. */
    void (*trace)(void *arg, int64_t board, int64_t step, const int32_t *answer, double done);
    void *arg;
} an_solve_options;

/* Answers i32 [n,side*side], for each how many steps it took and how probable the model holds it to be right. */
typedef struct an_answers {
    int32_t *token;
    int64_t *steps;
    double *sure;
} an_answers;
an_status an_solve_boards(an_err *err, an_session *r, const an_boards *b, const an_solve_options *o, an_answers *out);
void an_answers_free(an_answers *a); /* what an_solve_boards returned */

#endif
