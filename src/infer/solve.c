/* solve.c: boards from text, the supervision steps of a model on them, and its answers as text. See solve.h. */
#include "infer/solve.h"
#include "io/data/sudoku.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char maze_characters[] = "# SGo"; /* of tokens 1 to 5 */
enum { OPEN = 2, START, GOAL, PATH };

/* ---- boards as text */

static int64_t cells_of(const an_boards *b)
{
    return b->side * b->side;
}

/* The token of a character, -1: none. */
static int32_t token_of(const an_boards *b, char ch)
{
    if (b->kind == AN_BOARD_MAZE) {
        const char *at = ch ? strchr(maze_characters, ch) : NULL;
        return at ? (int32_t)(at - maze_characters) + 1 : -1;
    }
    if (ch == '.') return 1;
    return ch >= '0' && ch - '0' <= b->side ? ch - '0' + 1 : -1;
}

static bool is_skipped(const an_boards *b, char ch)
{
    return ch == '\n' || ch == '\r' || (b->kind == AN_BOARD_SUDOKU && (ch == ' ' || ch == '\t'));
}

static an_status kind_of(an_err *err, const an_session *r, const char *text, size_t bytes, an_boards *out)
{
    an_array in[AN_MAX_ARRAYS];
    const an_train_config *c = &r->cfg;
    if (!c->model->answer) return an_fail(err, AN_E_USAGE, "a model of kind %s solves no boards", c->model->name);
    c->model->inputs(an_model_settings(c), 1, in);
    const int64_t cells = in[0].shape.dim[1];
    out->side = (int64_t)floor(sqrt((double)cells) + 0.5);
    const bool square = cells_of(out) == cells;
    const bool sudoku = square && an_sudoku_is_side((int)out->side) && in[0].limit == out->side + 2;
    const bool maze = square && in[0].limit == 6;
    const bool walls = memchr(text, '#', bytes) != NULL;
    out->kind = maze && (walls || !sudoku) ? AN_BOARD_MAZE : AN_BOARD_SUDOKU;
    if (sudoku || maze) return AN_OK;
    return an_fail(
        err, AN_E_USAGE,
        "solve: the run is for boards of %lld cells with %lld tokens, neither Sudokus nor mazes; anneal eval "
        "measures it on a data set",
        (long long)cells, (long long)in[0].limit);
}

static an_status not_a_cell(an_err *err, const an_boards *b, const char *name, int64_t line, char ch)
{
    char shown[8];
    snprintf(shown, sizeof shown, ch > ' ' && ch <= '~' ? "%c" : "\\x%02x", (unsigned char)ch);
    if (b->kind == AN_BOARD_MAZE)
        return an_fail(err, AN_E_DATA, "%s:%lld: %s is no cell of a maze; cells are # (wall), a blank, S, G and o",
                       name, (long long)line, shown);
    return an_fail(err, AN_E_DATA, "%s:%lld: %s is no cell of a Sudoku of %lldx%lld; cells are 1 to %lld, and . or 0",
                   name, (long long)line, shown, (long long)b->side, (long long)b->side, (long long)b->side);
}

/* A line of a maze holds a row, or a whole board. */
static an_status check_line(an_err *err, const an_boards *b, const char *name, int64_t line, int64_t cells)
{
    if (b->kind != AN_BOARD_MAZE || cells == 0 || cells == b->side || cells == cells_of(b)) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s:%lld: the line has %lld cells, a row of the maze has %lld", name,
                   (long long)line, (long long)cells, (long long)b->side);
}

an_status an_boards_read(an_err *err, const an_session *r, const char *name, const char *text, size_t bytes,
                         an_boards *out)
{
    *out = (an_boards){0};
    AN_TRY(kind_of(err, r, text, bytes, out));
    const int64_t cells = cells_of(out);
    int64_t used = 0, line = 1, began = 0; /* cells before this line */
    if (bytes > (size_t)INT32_MAX) return an_fail(err, AN_E_DATA, "%s: more than 2 GiB of boards", name);
    out->token = malloc((bytes + 1) * sizeof *out->token);
    if (!out->token) return an_fail_nomem(err, "boards", bytes * sizeof *out->token);
    an_status status = AN_OK;
    for (size_t i = 0; i < bytes && status == AN_OK; i++) {
        const char ch = text[i];
        if (is_skipped(out, ch)) {
            if (ch == '\n') status = check_line(err, out, name, line++, used - began), began = used;
            continue;
        }
        const int32_t token = token_of(out, ch);
        if (token < 0) status = not_a_cell(err, out, name, line, ch);
        out->token[used++] = token;
    }
    if (status == AN_OK) status = check_line(err, out, name, line, used - began);
    if (status == AN_OK && (used == 0 || used % cells))
        status = an_fail(err, AN_E_DATA, "%s:%lld: a board has %lld cells; the text ends after %lld of them", name,
                         (long long)line, (long long)cells, (long long)(used % cells));
    out->n = used / cells;
    if (status != AN_OK) an_boards_free(out);
    return status;
}

void an_boards_free(an_boards *b)
{
    free(b->token);
    *b = (an_boards){0};
}

static char character_of(const an_boards *b, int32_t token)
{
    if (b->kind == AN_BOARD_MAZE) return token >= 1 && token <= 5 ? maze_characters[token - 1] : '?';
    if (token == 1) return '.';
    return token >= 2 && token <= b->side + 1 ? (char)('0' + token - 1) : '?';
}

void an_board_put(const an_boards *b, const int32_t *token, an_text *out)
{
    for (int64_t i = 0; i < cells_of(b); i++) {
        const char ch[2] = {character_of(b, token[i]), 0};
        if (b->kind == AN_BOARD_MAZE && i > 0 && i % b->side == 0) an_text_puts(out, "\n");
        an_text_puts(out, ch);
    }
}

/* Of the cells beside `at` those that the answer's path goes on to, at most 4; its ends count. */
static int neighbours_on_path(const an_boards *b, const int32_t *answer, int64_t at, int64_t *out)
{
    const int64_t row = at / b->side, column = at % b->side;
    const int64_t next[4] = {row > 0 ? at - b->side : -1, row + 1 < b->side ? at + b->side : -1,
                             column > 0 ? at - 1 : -1, column + 1 < b->side ? at + 1 : -1};
    int n = 0;
    for (int i = 0; i < 4; i++)
        if (next[i] >= 0 && answer[next[i]] >= START) out[n++] = next[i];
    return n;
}

/* Whether the answer is the board with a path of o from its S to its G: an end has one neighbour on it, every other cell of it two, and
 * what is walked from S is all of it. */
static bool maze_holds(const an_boards *b, const int32_t *board, const int32_t *answer)
{
    int64_t start = -1, ends = 0, on_path = 0, next[4];
    for (int64_t i = 0; i < cells_of(b); i++) {
        const bool kept =
            board[i] == answer[i] || (board[i] == OPEN && answer[i] == PATH) || (board[i] == PATH && answer[i] == OPEN);
        if (!kept) return false;
        if (answer[i] == START) start = i;
        const bool end = answer[i] == START || answer[i] == GOAL;
        ends += end;
        on_path += answer[i] >= START;
        if (answer[i] >= START && neighbours_on_path(b, answer, i, next) != (end ? 1 : 2)) return false;
    }
    if (start < 0 || ends != 2) return false;
    int64_t walked = 1;
    for (int64_t at = start, from = -1; walked <= on_path; walked++) {
        const int n = neighbours_on_path(b, answer, at, next);
        const int64_t to = next[0] != from ? next[0] : n > 1 ? next[1] : -1;
        if (to < 0) break;
        from = at;
        at = to;
        if (answer[at] == GOAL) return walked + 1 == on_path;
    }
    return false;
}

bool an_board_holds(const an_boards *b, const int32_t *board, const int32_t *answer)
{
    uint8_t digit[AN_SUDOKU_CELLS];
    if (b->kind == AN_BOARD_MAZE) return maze_holds(b, board, answer);
    for (int64_t i = 0; i < cells_of(b); i++) {
        const bool kept = board[i] == 1 || board[i] == answer[i];
        if (!kept || answer[i] < 2 || answer[i] > b->side + 1) return false;
        digit[i] = (uint8_t)(answer[i] - 1);
    }
    return an_sudoku_solve((int)b->side, digit, 1, NULL) == 1;
}

/* ---- steps through the model */

typedef struct work {
    const an_boards *b;
    const an_solve_options *o;
    an_array in[AN_MAX_ARRAYS];
    an_arrays batch; /* of B boards */
    int64_t B, steps;
    int32_t *answer; /* [B,cells] */
    float *q;        /* [B] */
} work;

static an_status run_call(an_err *err, an_session *r, const work *w, int n_inputs, int64_t call)
{
    an_tensor *in[AN_MAX_ARRAYS], *answer, *q;
    for (int i = 0; i < n_inputs; i++) in[i] = an_input(r->cx, w->in[i].dtype, w->in[i].shape, w->batch.data[i]);
    r->cfg.model->place(r->model, &(an_place){.micros = 1, .call = call});
    r->cfg.model->answer(r->model, in, &answer, &q);
    an_status status = q ? an_eval(answer, q) : an_eval(answer);
    if (status == AN_OK) status = an_read(answer, w->answer, (size_t)(w->B * cells_of(w->b)) * sizeof *w->answer);
    if (status == AN_OK && q) status = an_read(q, w->q, (size_t)w->B * sizeof *w->q);
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

/* Copies the answers of the boards that are not done (steps < 0: done); returns how many of them still are not. */
static int64_t take(const work *w, int64_t first, int64_t n, int64_t step, an_answers *out)
{
    const int64_t cells = cells_of(w->b);
    int64_t remain = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t board = first + i;
        if (out->steps[board] < 0) continue; /* done */
        memcpy(out->token + board * cells, w->answer + i * cells, (size_t)cells * sizeof *w->answer);
        out->steps[board] = step;
        out->sure[board] = 1 / (1 + exp(-(double)w->q[i]));
        if (w->o->trace) w->o->trace(w->o->arg, board, step, w->answer + i * cells, out->sure[board]);
        if (w->o->halt && w->q[i] > 0)
            out->steps[board] = -step;
        else
            remain++;
    }
    return remain;
}

static an_status solve_batch(an_err *err, an_session *r, work *w, int n_inputs, int64_t first, an_answers *out)
{
    const int64_t cells = cells_of(w->b), n = AN_MIN(w->B, w->b->n - first);
    int32_t *inputs = w->batch.data[0];
    for (int64_t i = 0; i < w->B * cells; i++) inputs[i] = i < n * cells ? w->b->token[first * cells + i] : 0;
    for (int64_t step = 1, remain = n; step <= w->steps && remain > 0; step++) {
        AN_TRY(run_call(err, r, w, n_inputs, step - 1));
        remain = take(w, first, n, step, out);
    }
    for (int64_t i = first; i < first + n; i++) out->steps[i] = llabs(out->steps[i]);
    return AN_OK;
}

static an_status solve_all(an_err *err, an_session *r, work *w, an_answers *out)
{
    const size_t n = (size_t)w->b->n, cells = (size_t)cells_of(w->b);
    const int inputs = r->cfg.model->inputs(an_model_settings(&r->cfg), w->B, w->in);
    AN_TRY(an_arrays_open(err, w->in, inputs, &w->batch));
    w->answer = calloc((size_t)w->B * cells, sizeof *w->answer);
    w->q = calloc((size_t)w->B, sizeof *w->q);
    out->token = calloc(n * cells + 1, sizeof *out->token);
    out->steps = calloc(n + 1, sizeof *out->steps);
    out->sure = calloc(n + 1, sizeof *out->sure);
    if (!w->answer || !w->q || !out->token || !out->steps || !out->sure)
        return an_fail_nomem(err, "answers", n * cells * sizeof *out->token);
    for (int64_t first = 0; first < w->b->n; first += w->B) {
        if (r->tell) r->tell(r->tell_arg, first, w->b->n);
        AN_TRY(solve_batch(err, r, w, inputs, first, out));
    }
    return AN_OK;
}

an_status an_solve_boards(an_err *err, an_session *r, const an_boards *b, const an_solve_options *o, an_answers *out)
{
    const an_train_config *c = &r->cfg;
    work w = {.b = b, .o = o, .B = AN_MIN(c->batch_size, b->n)};
    w.steps = o->steps > 0 ? o->steps : c->model->calls(an_model_settings(c));
    *out = (an_answers){0};
    an_status status = solve_all(err, r, &w, out);
    an_arrays_close(&w.batch);
    free(w.answer);
    free(w.q);
    if (status != AN_OK) an_answers_free(out);
    return status;
}

void an_answers_free(an_answers *a)
{
    free(a->token);
    free(a->steps);
    free(a->sure);
    *a = (an_answers){0};
}
