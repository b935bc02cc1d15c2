/* sudoku.c: see sudoku.h. Solving is a search over sets of digits as bits, always at the cell with the fewest left. */
#include "io/data/sudoku.h"
#include "base/map.h"
#include "base/rng.h"
#include "io/data/order.h"
#include <string.h>

bool an_sudoku_is_side(int side)
{
    return side == 4 || side == 6 || side == 9;
}

void an_sudoku_box(int side, int *rows, int *columns)
{
    *rows = side == 9 ? 3 : 2;
    *columns = side == 4 ? 2 : 3;
}

/* ---- random numbers: a sequence for each (seed, number) */

typedef struct dice {
    uint32_t key, stream;
    uint64_t at;
} dice;

static dice dice_of(const char *use, uint64_t seed, uint64_t number)
{
    return (dice){an_rng_key(seed, number), an_rng_stream(an_hash(use, strlen(use), 0), 0), 0};
}

static int roll(dice *d, int n)
{
    return (int)((uint64_t)an_rng_u32(d->key, d->stream, d->at++) * (uint64_t)n >> 32);
}

/* 0 ... n - 1 in random order (Fisher and Yates). */
static void shuffle(dice *d, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++) {
        const int j = roll(d, i + 1);
        out[i] = out[j];
        out[j] = (uint8_t)i;
    }
}

/* ---- solving */

/* Bits of the digits that are taken in each row, column and box; `cell` holds the digits. */
typedef struct board {
    int side, box_rows, box_columns;
    uint16_t row[AN_SUDOKU_SIDE], column[AN_SUDOKU_SIDE], box[AN_SUDOKU_SIDE];
    uint8_t cell[AN_SUDOKU_CELLS];
} board;

static int box_of(const board *b, int r, int c)
{
    return r / b->box_rows * b->box_rows + c / b->box_columns;
}

static unsigned free_digits(const board *b, int r, int c)
{
    return ~(unsigned)(b->row[r] | b->column[c] | b->box[box_of(b, r, c)]) & ((2u << b->side) - 2);
}

static void flip(board *b, int r, int c, int digit)
{
    const uint16_t bit = (uint16_t)(1u << digit);
    b->row[r] ^= bit;
    b->column[c] ^= bit;
    b->box[box_of(b, r, c)] ^= bit;
}

/* False: a digit is out of range, or twice in a row, column or box. */
static bool load(int side, const uint8_t *cells, board *b)
{
    *b = (board){.side = side};
    an_sudoku_box(side, &b->box_rows, &b->box_columns);
    memcpy(b->cell, cells, (size_t)(side * side));
    for (int i = 0; i < side * side; i++) {
        if (cells[i] == 0) continue;
        if (cells[i] > side || !(free_digits(b, i / side, i % side) >> cells[i] & 1)) return false;
        flip(b, i / side, i % side, cells[i]);
    }
    return true;
}

static int count_bits(unsigned x)
{
    int n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

/* The places of a unit (row, column or box `u`): cell number k of it. */
static int unit_cell(const board *b, int kind, int u, int k)
{
    if (kind == 0) return u * b->side + k;
    if (kind == 1) return k * b->side + u;
    const int boxes = b->side / b->box_columns; /* in a row of boxes */
    const int r = u / boxes * b->box_rows + k / b->box_columns, c = u % boxes * b->box_columns + k % b->box_columns;
    return r * b->side + c;
}

/* The empty cell with the fewest digits left, or, where every cell has two, a digit that has one place only in a unit:
 * *digits are what to try. -1: the board is full. *digits 0: there is no solution. */
static int choose(const board *b, unsigned *digits)
{
    int best = -1, fewest = 10;
    for (int i = 0; i < b->side * b->side && fewest > 1; i++) {
        if (b->cell[i]) continue;
        const unsigned left = free_digits(b, i / b->side, i % b->side);
        const int n = count_bits(left);
        if (n < fewest) fewest = n, best = i, *digits = left;
    }
    if (best < 0 || fewest <= 1) return best;
    for (int kind = 0; kind < 3; kind++)
        for (int u = 0; u < b->side; u++) {
            unsigned once = 0, twice = 0;
            for (int k = 0; k < b->side; k++) {
                const int i = unit_cell(b, kind, u, k);
                const unsigned left = b->cell[i] ? 0 : free_digits(b, i / b->side, i % b->side);
                twice |= once & left;
                once |= left;
            }
            const unsigned taken = kind == 0 ? b->row[u] : kind == 1 ? b->column[u] : b->box[u];
            if ((once | taken) != (2u << b->side) - 2) return *digits = 0, best; /* a digit has no place */
            if ((once &= ~twice) == 0) continue;
            for (int k = 0; k < b->side; k++) {
                const int i = unit_cell(b, kind, u, k);
                const unsigned left = b->cell[i] ? 0 : free_digits(b, i / b->side, i % b->side);
                if (left & once) return *digits = left & once & (0u - (left & once)), i;
            }
        }
    return best;
}

/* Counts solutions from here on; digits in the order that `order` says (NULL: ascending). Depth is the number of cells. */
static int search(board *b, int most, const uint8_t *order, uint8_t *out)
{
    unsigned digits = 0;
    int found = 0;
    const int i = choose(b, &digits);
    if (i < 0) {
        if (out) memcpy(out, b->cell, (size_t)(b->side * b->side));
        return 1;
    }
    for (int k = 0; k < b->side && found < most; k++) {
        const int digit = order ? order[k] + 1 : k + 1;
        if (!(digits >> digit & 1)) continue;
        flip(b, i / b->side, i % b->side, digit);
        b->cell[i] = (uint8_t)digit;
        found += search(b, most - found, order, found ? NULL : out);
        flip(b, i / b->side, i % b->side, digit);
        b->cell[i] = 0;
    }
    return found;
}

int an_sudoku_solve(int side, const uint8_t *cells, int most, uint8_t *out)
{
    board b;
    return load(side, cells, &b) ? search(&b, most, NULL, out) : 0;
}

/* ---- making */

/* A full grid: the first row and a column in random order, the rest by search, then a random symmetry. */
void an_sudoku_grid(int side, uint64_t seed, uint64_t number, uint8_t *grid)
{
    dice d = dice_of("sudoku grid", seed, number);
    uint8_t cells[AN_SUDOKU_CELLS], order[AN_SUDOKU_SIDE], full[AN_SUDOKU_CELLS] = {0}, digits[AN_SUDOKU_SIDE];
    an_sudoku_map map;
    /* random digits at random cells, each tried in the order of chance, until the search completes them */
    uint8_t start[AN_SUDOKU_CELLS] = {0};
    shuffle(&d, side * side, cells);
    shuffle(&d, side, digits);
    for (int k = 0; k < side * side; k++) {
        board b;
        if (!load(side, start, &b) || start[cells[k]]) continue;
        const unsigned left = free_digits(&b, cells[k] / side, cells[k] % side);
        int n = count_bits(left);
        if (n == 0) continue;
        n = roll(&d, n);
        int digit = 1;
        for (; !(left >> digit & 1) || n-- > 0; digit++) continue;
        start[cells[k]] = (uint8_t)digit;
        if (an_sudoku_solve(side, start, 1, full) == 0) start[cells[k]] = 0;
    }
    shuffle(&d, side, order);
    board b;
    if (load(side, start, &b)) search(&b, 1, order, full);
    an_sudoku_random_map(side, seed, number, &map);
    an_sudoku_apply(&map, full, grid);
}

void an_sudoku_generate(int side, uint64_t seed, uint64_t number, int least, uint8_t *puzzle, uint8_t *solution)
{
    dice d = dice_of("sudoku puzzle", seed, number);
    uint8_t cells[AN_SUDOKU_CELLS];
    an_sudoku_grid(side, seed, number, solution);
    memcpy(puzzle, solution, (size_t)(side * side));
    shuffle(&d, side * side, cells);
    int givens = side * side;
    for (int k = 0; k < side * side && givens > least; k++) {
        const uint8_t digit = puzzle[cells[k]];
        puzzle[cells[k]] = 0;
        if (an_sudoku_solve(side, puzzle, 2, NULL) == 1)
            givens--;
        else
            puzzle[cells[k]] = digit;
    }
}

/* ---- symmetries */

/* Where the rows (or columns) of the image come from: bands in random order, and lines in each. */
static void shuffle_lines(dice *d, int bands, int lines, uint8_t *out)
{
    uint8_t band[AN_SUDOKU_SIDE], line[AN_SUDOKU_SIDE];
    shuffle(d, bands, band);
    for (int i = 0; i < bands; i++) {
        shuffle(d, lines, line);
        for (int k = 0; k < lines; k++) out[i * lines + k] = (uint8_t)(band[i] * lines + line[k]);
    }
}

void an_sudoku_random_map(int side, uint64_t seed, uint64_t number, an_sudoku_map *out)
{
    dice d = dice_of("sudoku map", seed, number);
    int box_rows, box_columns;
    uint8_t digit[AN_SUDOKU_SIDE], row[AN_SUDOKU_SIDE], column[AN_SUDOKU_SIDE];
    an_sudoku_box(side, &box_rows, &box_columns);
    *out = (an_sudoku_map){.side = side};
    shuffle(&d, side, digit);
    for (int i = 0; i < side; i++) out->digit[i + 1] = (uint8_t)(digit[i] + 1);
    const bool transpose = roll(&d, 2) == 1 && box_rows == box_columns;
    shuffle_lines(&d, side / box_rows, box_rows, row);
    shuffle_lines(&d, side / box_columns, box_columns, column);
    for (int r = 0; r < side; r++)
        for (int c = 0; c < side; c++) {
            const int from_row = transpose ? column[c] : row[r], from_column = transpose ? row[r] : column[c];
            out->cell[r * side + c] = (uint8_t)(from_row * side + from_column);
        }
}

void an_sudoku_apply(const an_sudoku_map *m, const uint8_t *cells, uint8_t *out)
{
    for (int i = 0; i < m->side * m->side; i++) out[i] = m->digit[cells[m->cell[i]]];
}

/* ---- the canonical form */

/* Every order of the columns, and for each the smallest relabelled grid that orders of the rows give: rows are chosen one
 * after the other, all that tie are followed. */
typedef struct canon {
    int side, lines, bands;         /* rows in a band, bands */
    uint8_t cells[AN_SUDOKU_CELLS]; /* the board, columns in the order that is tried */
    uint8_t best[AN_SUDOKU_CELLS];
    bool have;
} canon;

/* Follows rows from number r on; `label` is what each digit has become (0: not yet), `next` the next label. */
static void follow(canon *c, int r, unsigned used, const uint8_t *label, int next, uint8_t *image, bool less)
{
    const int side = c->side;
    if (r == side) {
        memcpy(c->best, image, (size_t)(side * side));
        c->have = true;
        return;
    }
    for (int from = 0; from < side; from++) {
        /* inside a band, rows of that band; at its beginning, rows of bands without a used one */
        const unsigned band = ((1u << c->lines) - 1) << from / c->lines * c->lines;
        if (used >> from & 1 || (r % c->lines != 0 ? (used & band) == 0 || (used & band) == band : (used & band) != 0))
            continue;
        uint8_t relabel[AN_SUDOKU_SIDE + 1];
        int n = next;
        memcpy(relabel, label, sizeof relabel);
        for (int k = 0; k < side; k++) {
            const uint8_t digit = c->cells[from * side + k];
            if (digit && !relabel[digit]) relabel[digit] = (uint8_t)n++;
            image[r * side + k] = digit ? relabel[digit] : 0;
        }
        const int order = c->have && !less ? memcmp(image + r * side, c->best + r * side, (size_t)side) : -1;
        if (order > 0) continue;
        follow(c, r + 1, used | 1u << from, relabel, n, image, less || order < 0);
        less = less && !c->have; /* once a smaller grid was found, it is what others are compared with */
    }
}

/* Calls follow for every order of the columns: stacks, and columns in each. */
static void each_columns(canon *c, const uint8_t *cells, int columns, uint8_t *order, int at, unsigned used)
{
    const int side = c->side;
    if (at == side) {
        uint8_t image[AN_SUDOKU_CELLS], label[AN_SUDOKU_SIDE + 1] = {0};
        for (int r = 0; r < side; r++)
            for (int k = 0; k < side; k++) c->cells[r * side + k] = cells[r * side + order[k]];
        follow(c, 0, 0, label, 1, image, false);
        return;
    }
    for (int from = 0; from < side; from++) {
        const unsigned stack = ((1u << columns) - 1) << from / columns * columns;
        if (used >> from & 1 ||
            (at % columns != 0 ? (used & stack) == 0 || (used & stack) == stack : (used & stack) != 0))
            continue;
        order[at] = (uint8_t)from;
        each_columns(c, cells, columns, order, at + 1, used | 1u << from);
    }
}

void an_sudoku_canonical(int side, const uint8_t *cells, uint8_t *out)
{
    int box_rows, box_columns;
    uint8_t order[AN_SUDOKU_SIDE], transposed[AN_SUDOKU_CELLS];
    an_sudoku_box(side, &box_rows, &box_columns);
    canon c = {.side = side, .lines = box_rows, .bands = side / box_rows};
    each_columns(&c, cells, box_columns, order, 0, 0);
    if (box_rows == box_columns) {
        for (int r = 0; r < side; r++)
            for (int k = 0; k < side; k++) transposed[r * side + k] = cells[k * side + r];
        each_columns(&c, transposed, box_columns, order, 0, 0);
    }
    memcpy(out, c.best, (size_t)(side * side));
}
