/* sudoku_list.c: parsing lines and CSV files of Sudokus. See sudoku_list.h. */
#define _DEFAULT_SOURCE
#include "io/data/sudoku_list.h"
#include "io/formats/csv.h"
#include "io/formats/json.h"
#include "io/formats/line_reader.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 16 };

typedef struct columns {
    int question, answer, rating; /* -1: there is none */
    bool csv;
} columns;

static an_status bad_line(an_err *err, const an_sudoku_list *l, uint64_t line, const char *why)
{
    return an_fail(err, AN_E_DATA, "%s:%llu: %s", l->path, (unsigned long long)line, why);
}

/* Cells of text; false: not so many characters, or others than digits and dots. */
static bool take_cells(int side, const char *text, size_t n, uint8_t *out)
{
    if (n != (size_t)(side * side)) return false;
    for (size_t i = 0; i < n; i++) {
        const int digit = text[i] == '.' ? 0 : text[i] - '0';
        if (digit < 0 || digit > side) return false;
        out[i] = (uint8_t)digit;
    }
    return true;
}

static int side_of(size_t n)
{
    return n == 16 ? 4 : n == 36 ? 6 : n == 81 ? 9 : 0;
}

static void find_columns(const char *line, size_t n, columns *out)
{
    *out = (columns){-1, -1, -1, false};
    for (int k = 0; k < MAX_COLUMNS; k++) {
        size_t length;
        const char *name = an_csv_line_field(line, n, k, &length);
        if (!name) break;
        if (length == 8 && memcmp(name, "question", 8) == 0) out->question = k;
        if (length == 6 && memcmp(name, "answer", 6) == 0) out->answer = k;
        if (length == 6 && memcmp(name, "rating", 6) == 0) out->rating = k;
    }
    out->csv = out->question >= 0;
}

static an_status add_row(an_err *err, an_sudoku_list *l, uint64_t line, const char *text, size_t n, an_sudoku_row **out)
{
    char why[AN_QUOTED_BYTES + 160], quoted[AN_QUOTED_BYTES], copy[64];
    const int side = side_of(n);
    if (l->side == 0) l->side = side;
    if (l->n == l->most) {
        snprintf(why, sizeof why, "more than %d puzzles; split the file", l->most);
        return bad_line(err, l, line, why);
    }
    if (!an_grow((void **)&l->row, l->n, &l->cap, sizeof *l->row)) return an_fail_nomem(err, l->path, sizeof *l->row);
    an_sudoku_row *r = *out = &l->row[l->n];
    *r = (an_sudoku_row){.line = (uint32_t)line};
    if (side && side == l->side && take_cells(side, text, n, r->puzzle)) return l->n++, AN_OK;
    snprintf(copy, sizeof copy, "%.*s", (int)AN_MIN(n, sizeof copy - 1), text);
    snprintf(why, sizeof why, "%s is no puzzle of %d characters, digits and dots", an_quoted(copy, quoted),
             l->side ? l->side * l->side : 81);
    return bad_line(err, l, line, why);
}

static an_status read_csv_line(an_err *err, an_sudoku_list *l, const columns *c, uint64_t number, const char *line,
                               size_t n, double min_difficulty)
{
    size_t question_n = 0, answer_n = 0, rating_n = 0;
    const char *question = an_csv_line_field(line, n, c->question, &question_n);
    const char *answer = c->answer >= 0 ? an_csv_line_field(line, n, c->answer, &answer_n) : NULL;
    const char *rating = c->rating >= 0 ? an_csv_line_field(line, n, c->rating, &rating_n) : NULL;
    an_sudoku_row *r;
    if (question_n == SIZE_MAX || answer_n == SIZE_MAX || rating_n == SIZE_MAX)
        return bad_line(err, l, number, "a quote has no end, or no comma behind it");
    if (!question || (c->answer >= 0 && !answer)) return bad_line(err, l, number, "fewer columns than the first line");
    if (rating && strtod(rating, NULL) < min_difficulty) return AN_OK;
    AN_TRY(add_row(err, l, number, question, question_n, &r));
    r->answered = answer != NULL;
    if (answer && !take_cells(l->side, answer, answer_n, r->answer))
        return bad_line(err, l, number, "the answer is no full board");
    return AN_OK;
}

static an_status read_lines(an_err *err, an_sudoku_list *l, an_line_reader *reader, double min_difficulty)
{
    columns c = {-1, -1, -1, false};
    const char *line;
    size_t n;
    an_sudoku_row *r;
    for (bool first = true;; first = false) {
        AN_TRY(an_line_reader_next(err, reader, &line, &n));
        if (!line) return AN_OK;
        const uint64_t number = an_line_reader_number(reader);
        while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == ' ')) n--;
        if (first) find_columns(line, n, &c);
        if ((first && c.csv) || n == 0 || (!c.csv && line[0] == '#')) continue;
        if (c.csv) {
            AN_TRY(read_csv_line(err, l, &c, number, line, n, min_difficulty));
            continue;
        }
        size_t length = 0;
        while (length < n && !strchr(" \t,;", line[length])) length++;
        AN_TRY(add_row(err, l, number, line, length, &r));
    }
}

an_status an_sudoku_list_read(an_err *err, const char *path, double min_difficulty, int32_t most, an_sudoku_list *out)
{
    an_line_reader *reader;
    *out = (an_sudoku_list){.path = path, .most = most};
    AN_TRY(an_line_reader_open(err, path, &reader));
    an_status status = read_lines(err, out, reader, min_difficulty);
    an_line_reader_close(reader);
    if (status == AN_OK && out->n == 0)
        status = an_fail(err, AN_E_DATA, "%s: there is no puzzle in it%s", path,
                         min_difficulty > 0 ? " of this difficulty" : "");
    return status;
}

an_status an_sudoku_list_solve(an_err *err, an_sudoku_list *l, int32_t i)
{
    an_sudoku_row *r = &l->row[i];
    const int cells = l->side * l->side;
    if (!r->answered) {
        const int n = an_sudoku_solve(l->side, r->puzzle, 2, r->answer);
        r->answered = n == 1;
        if (n == 1) return AN_OK;
        return bad_line(err, l, r->line, n == 0 ? "this puzzle has no solution" : "this puzzle has several solutions");
    }
    for (int k = 0; k < cells; k++)
        if (r->answer[k] == 0 || (r->puzzle[k] && r->puzzle[k] != r->answer[k]))
            return bad_line(err, l, r->line, "the answer is not full, or not of this puzzle");
    if (an_sudoku_solve(l->side, r->answer, 1, NULL) == 1) return AN_OK;
    return bad_line(err, l, r->line, "the answer breaks a rule: a digit is twice in a row, column or box");
}

void an_sudoku_list_free(an_sudoku_list *l)
{
    free(l->row);
    *l = (an_sudoku_list){0};
}
