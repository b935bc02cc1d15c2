/* sudoku_set.c: choosing puzzles for both splits, augmenting and writing them. See sudoku_set.h. */
#define _DEFAULT_SOURCE
#include "io/data/sudoku_set.h"
#include "base/map.h"
#include "base/rng.h"
#include "io/data/order.h"
#include "io/data/puzzle_write.h"
#include "io/data/sudoku_list.h"
#include <stdlib.h>
#include <string.h>

/* With more training puzzles than MAX_COMPARED, symmetric images of them are not searched for among the test puzzles: a
 * canonical form takes a millisecond or two. */
enum { MAX_FILES = 32, MAX_COMPARED = 20000, TRIES = 2000 };

typedef struct builder {
    const an_sudoku_options *o;
    an_sudoku_result *result;
    int side;
    an_puzzle_writer *train, *test;
    an_map forms;      /* canonical forms of training puzzles */
    an_map test_grids; /* solutions of test puzzles, which no image of a training puzzle may have */
} builder;

static uint64_t hash_board(int side, const uint8_t *board)
{
    return an_hash(board, (size_t)(side * side), (uint64_t)side);
}

static uint64_t form_of(int side, const uint8_t *board)
{
    uint8_t form[AN_SUDOKU_CELLS];
    an_sudoku_canonical(side, board, form);
    return hash_board(side, form);
}

static an_status put(an_err *err, an_map *m, uint64_t key)
{
    return an_map_set(m, key, 1) ? AN_OK : an_fail_nomem(err, "a set of puzzles", m->cap);
}

static bool is_in(const an_map *m, uint64_t key)
{
    uint64_t value;
    return an_map_get(m, key, &value);
}

/* ---- writing */

static an_status write_example(an_err *err, const builder *b, an_puzzle_writer *w, const uint8_t *puzzle,
                               const uint8_t *solution)
{
    int32_t inputs[AN_SUDOKU_CELLS], labels[AN_SUDOKU_CELLS];
    for (int i = 0; i < b->side * b->side; i++) inputs[i] = puzzle[i] + 1, labels[i] = solution[i] + 1;
    AN_TRY(an_puzzle_writer_example(err, w, inputs, labels));
    return an_puzzle_writer_puzzle(err, w, 0);
}

/* A training puzzle and its images; those of small boards whose solution is one of a test puzzle are drawn again. */
static an_status write_train(an_err *err, builder *b, const uint8_t *puzzle, const uint8_t *solution)
{
    uint8_t image[AN_SUDOKU_CELLS], answer[AN_SUDOKU_CELLS];
    const uint64_t number = (uint64_t)b->result->train++;
    AN_TRY(write_example(err, b, b->train, puzzle, solution));
    for (int64_t k = 0, at = 0; k < b->o->num_aug; at++) {
        an_sudoku_map map;
        if (at > TRIES * (b->o->num_aug + 1))
            return an_fail(err, AN_E_DATA, "a puzzle has not so many images that are no test puzzles; lower num_aug");
        an_sudoku_random_map(b->side, an_hash_u64(number, b->o->seed), (uint64_t)at, &map);
        an_sudoku_apply(&map, solution, answer);
        if (b->side < AN_SUDOKU_SIDE && is_in(&b->test_grids, hash_board(b->side, answer))) continue;
        an_sudoku_apply(&map, puzzle, image);
        AN_TRY(write_example(err, b, b->train, image, answer));
        k++;
    }
    return an_puzzle_writer_group(err, b->train);
}

static an_status write_test(an_err *err, builder *b, const uint8_t *puzzle, const uint8_t *solution)
{
    b->result->test++;
    AN_TRY(write_example(err, b, b->test, puzzle, solution));
    AN_TRY(put(err, &b->test_grids, hash_board(b->side, solution)));
    return an_puzzle_writer_group(err, b->test);
}

static an_status open_writers(an_err *err, builder *b)
{
    const int64_t cells = b->side * b->side;
    const an_puzzle_meta meta = {.vocab_size = b->side + 2,
                                 .seq_len = cells,
                                 .ignores = true,
                                 .num_puzzle_identifiers = 1,
                                 .mean_puzzle_examples = 1};
    AN_TRY(an_puzzle_writer_open(err, b->o->out, "train", &meta, AN_U8, &b->train));
    return an_puzzle_writer_open(err, b->o->out, "test", &meta, AN_U8, &b->test);
}

static an_status end_writers(an_err *err, builder *b)
{
    an_puzzle_writer *train = b->train, *test = b->test;
    static const char *const names[] = {"<blank>"};
    b->train = b->test = NULL;
    b->result->examples = an_puzzle_writer_examples(train);
    an_status status =
        b->result->train > 0 && b->result->test > 0
            ? AN_OK
            : an_fail(err, AN_E_DATA, "%s: the %s split is empty: %lld puzzles for training, %lld for testing",
                      b->o->out, b->result->train > 0 ? "test" : "training", (long long)b->result->train,
                      (long long)b->result->test);
    if (status != AN_OK) {
        an_puzzle_writer_abort(train);
        an_puzzle_writer_abort(test);
        return status;
    }
    status = an_puzzle_writer_end(err, train);
    if (status != AN_OK) {
        an_puzzle_writer_abort(test);
        return status;
    }
    AN_TRY(an_puzzle_writer_end(err, test));
    return an_puzzle_identifiers_write(err, b->o->out, names, 1);
}

/* ---- generated */

/* Whether a generated puzzle is for testing: decided by a hash of its canonical form. On small boards, where few solutions
 * differ by more than a symmetry, a hash of the solution must agree. 0: they disagree, and the puzzle is not used. */
static int split_of(const builder *b, const uint8_t *puzzle, const uint8_t *solution, bool *test)
{
    const bool form = an_hash_u64(form_of(b->side, puzzle), 11) % 5 == 0;
    const bool grid = b->side == AN_SUDOKU_SIDE ? form : an_hash_u64(hash_board(b->side, solution), 12) % 5 == 0;
    *test = form;
    return form == grid;
}

static an_status generate(an_err *err, builder *b)
{
    const an_sudoku_options *o = b->o;
    const int64_t tests = o->test_size > 0 ? o->test_size : AN_MAX(o->generate / 10, 1);
    const int least = o->givens >= 0 ? (int)o->givens : b->side == 4 ? 6 : b->side == 6 ? 12 : 0;
    const size_t cells = (size_t)(b->side * b->side);
    an_map seen = {0};
    an_status status = AN_OK;
    uint8_t *kept = malloc((size_t)o->generate * 2 * cells); /* training puzzles, until all tests are known */
    int64_t train = 0;
    if (!kept) return an_fail_nomem(err, "puzzles", (size_t)o->generate * 2 * cells);
    uint64_t useful = 0; /* the last number whose puzzle was used */
    for (uint64_t number = 0; status == AN_OK && (train < o->generate || b->result->test < tests); number++) {
        uint8_t puzzle[AN_SUDOKU_CELLS], solution[AN_SUDOKU_CELLS];
        bool test;
        if (number > useful + 20 * TRIES) {
            status = an_fail(err, AN_E_DATA,
                             "there are not so many different puzzles of this size: %lld were found for "
                             "training and %lld for testing; ask for fewer, or other givens",
                             (long long)train, (long long)b->result->test);
            break;
        }
        an_sudoku_generate(b->side, o->seed, number, least, puzzle, solution);
        if (is_in(&seen, hash_board(b->side, puzzle)) || !split_of(b, puzzle, solution, &test)) continue;
        if (test ? b->result->test >= tests : train >= o->generate) continue;
        status = put(err, &seen, hash_board(b->side, puzzle));
        if (status != AN_OK) break;
        useful = number;
        if (test) {
            status = write_test(err, b, puzzle, solution);
            continue;
        }
        memcpy(kept + 2 * cells * (size_t)train, puzzle, cells);
        memcpy(kept + 2 * cells * (size_t)train++ + cells, solution, cells);
    }
    for (int64_t i = 0; status == AN_OK && i < train; i++) {
        if (b->o->tell) b->o->tell(b->o->tell_arg, i, train);
        status = write_train(err, b, kept + 2 * cells * (size_t)i, kept + 2 * cells * (size_t)i + cells);
    }
    free(kept);
    an_map_free(&seen);
    return status;
}

/* ---- from files */

typedef struct files {
    char *names; /* the option, cut at its commas */
    an_sudoku_list list[MAX_FILES];
    int n;
} files;

static void free_files(files *f)
{
    for (int i = 0; i < f->n; i++) an_sudoku_list_free(&f->list[i]);
    free(f->names);
}

static an_status read_files(an_err *err, const an_sudoku_options *o, const char *names, int *side, files *f)
{
    f->n = 0;
    f->names = strdup(names);
    if (!f->names) return an_fail_nomem(err, names, strlen(names));
    for (char *at = f->names; at;) {
        char *comma = strchr(at, ',');
        if (comma) *comma = 0;
        if (f->n == MAX_FILES) return an_fail(err, AN_E_USAGE, "more than %d files of puzzles", MAX_FILES);
        if (*at) {
            an_sudoku_list *l = &f->list[f->n++];
            AN_TRY(an_sudoku_list_read(err, at, o->min_difficulty, AN_SUDOKU_LIST_MOST, l));
            if (*side == 0) *side = l->side;
            if (l->side != *side)
                return an_fail(err, AN_E_DATA, "%s has boards of %dx%d, another file of %dx%d", at, l->side, l->side,
                               *side, *side);
        }
        at = comma ? comma + 1 : NULL;
    }
    return f->n > 0 ? AN_OK : an_fail(err, AN_E_USAGE, "from= names no file");
}

/* `total` in as many equal parts as there are files. */
static int64_t share(int64_t total, int files_n, int i)
{
    return total / files_n + (i < total % files_n);
}

/* Row number k of a list in random order. */
static int32_t row_at(const builder *b, const an_sudoku_list *l, int file, int64_t k)
{
    const uint32_t key = an_rng_key(b->o->seed, (uint64_t)file);
    return (int32_t)an_shuffled((uint64_t)k, (uint64_t)l->n, key, an_rng_stream(an_hash("sudoku rows", 11, 0), 0));
}

/* Takes `wanted` (0: all) test puzzles from a list in random order, from `begin` on, leaving out symmetric images of
 * training puzzles. */
static an_status take_tests(an_err *err, builder *b, an_sudoku_list *l, int file, int64_t begin, int64_t wanted)
{
    int64_t taken = 0;
    for (int64_t k = begin; k < l->n && (wanted == 0 || taken < wanted); k++) {
        const int32_t i = row_at(b, l, file, k);
        if (b->forms.len > 0 && is_in(&b->forms, form_of(b->side, l->row[i].puzzle))) {
            b->result->images++;
            continue;
        }
        AN_TRY(an_sudoku_list_solve(err, l, i));
        AN_TRY(write_test(err, b, l->row[i].puzzle, l->row[i].answer));
        taken++;
    }
    if (taken >= wanted) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s: %lld puzzles are left for testing, %lld are wanted; lower test_size or subsample_size", l->path,
                   (long long)taken, (long long)wanted);
}

/* How many training puzzles a file gives; the rest is left for testing where no other file is named. */
static an_status train_count(an_err *err, const builder *b, const files *f, int i, bool same, int64_t *out)
{
    const an_sudoku_options *o = b->o;
    const int64_t n = f->list[i].n;
    const int64_t tests = !same ? 0 : o->test_size > 0 ? share(o->test_size, f->n, i) : AN_MAX(n / 10, 1);
    *out = o->subsample > 0 ? share(o->subsample, f->n, i) : AN_MAX(n - tests, 0);
    if (*out <= n && *out >= 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s has %lld puzzles, of which subsample_size takes %lld", f->list[i].path,
                   (long long)n, (long long)*out);
}

static an_status build_from(an_err *err, builder *b, files *train, files *test)
{
    const an_sudoku_options *o = b->o;
    const bool same = o->test == NULL;
    int64_t count[MAX_FILES], all = 0;
    AN_TRY(read_files(err, o, o->from, &b->side, train));
    if (!same) AN_TRY(read_files(err, o, o->test, &b->side, test));
    AN_TRY(open_writers(err, b));
    for (int i = 0; i < train->n; i++) {
        AN_TRY(train_count(err, b, train, i, same, &count[i]));
        all += count[i];
    }
    b->result->not_compared = all > MAX_COMPARED;
    for (int i = 0; i < train->n; i++)
        for (int64_t k = 0; k < count[i] && all <= MAX_COMPARED; k++)
            AN_TRY(put(err, &b->forms, form_of(b->side, train->list[i].row[row_at(b, &train->list[i], i, k)].puzzle)));
    files *from = same ? train : test;
    for (int i = 0; i < from->n; i++) {
        const int64_t rest = AN_MAX(count[same ? i : 0] / 10, 1);
        const int64_t wanted = o->test_size > 0 ? share(o->test_size, from->n, i) : same && o->subsample > 0 ? rest : 0;
        AN_TRY(take_tests(err, b, &from->list[i], same ? i : i + MAX_FILES, same ? count[i] : 0, wanted));
    }
    int64_t done = 0;
    for (int i = 0; i < train->n; i++)
        for (int64_t k = 0; k < count[i]; k++) {
            if (o->tell) o->tell(o->tell_arg, done++, all);
            an_sudoku_list *l = &train->list[i];
            const int32_t row = row_at(b, l, i, k);
            AN_TRY(an_sudoku_list_solve(err, l, row));
            AN_TRY(write_train(err, b, l->row[row].puzzle, l->row[row].answer));
        }
    return AN_OK;
}

an_status an_sudoku_build(an_err *err, const an_sudoku_options *o, an_sudoku_result *out)
{
    builder b = {.o = o, .result = out, .side = o->from ? 0 : o->side};
    files train = {.n = 0}, test = {.n = 0};
    *out = (an_sudoku_result){0};
    if (!o->from && (!an_sudoku_is_side(o->side) || o->generate < 1))
        return an_fail(
            err, AN_E_USAGE,
            "prepare sudoku: name lists of puzzles with from=FILE, or make some with generate=N size=4, 6 or 9");
    an_status status = o->from ? build_from(err, &b, &train, &test) : open_writers(err, &b);
    if (status == AN_OK && !o->from) status = generate(err, &b);
    if (status == AN_OK)
        status = end_writers(err, &b);
    else {
        an_puzzle_writer_abort(b.train);
        an_puzzle_writer_abort(b.test);
    }
    free_files(&train);
    free_files(&test);
    an_map_free(&b.forms);
    an_map_free(&b.test_grids);
    return status;
}
