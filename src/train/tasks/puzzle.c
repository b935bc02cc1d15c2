/* puzzle.c: the task `puzzle`: fills in boards that have one answer each, from directories of puzzles
 * (io/data/puzzle_set.h) or Sudoku boards that are generated here.
 *
 * A sample is a board, and so is a unit. The model has three inputs: tokens and labels i32 [B,S], puzzle identifiers i32
 * [B]. Its settings vocab_size, arch.seq_len and num_puzzle_identifiers are settled by the data where they are 0.
 *
 * Built in are sudoku_4x4 and sudoku_6x6: boards with one solution each. No solution is in both splits: a hash of its
 * digits decides the split. */
#include "train/tasks/puzzle.h"
#include "io/data/order.h"
#include "io/data/puzzle_set.h"
#include "io/data/sudoku.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct settings {
    int64_t epochs_per_pass, eval_epochs;
    char data_test[AN_CONFIG_TEXT_BYTES];
    double lr_min_ratio;
} settings;

#define AT(name) offsetof(settings, name)
static const an_config_field fields[] = {
    {"epochs_per_pass", AN_CONFIG_INT, AT(epochs_per_pass), "1", 1, 1LL << 40, NULL,
     "epochs in a row of which the last batch, where it is not full, is left out"},
    {"eval_epochs", AN_CONFIG_INT, AT(eval_epochs), "0", 0, 1LL << 40, NULL,
     "epochs between evaluations; 0: as eval_interval says"},
    {"data_paths_test", AN_CONFIG_TEXT, AT(data_test), "", 0, 0, NULL,
     "folders whose test split is evaluated; empty: those of data"},
    {"lr_min_ratio", AN_CONFIG_FLOAT, AT(lr_min_ratio), "-1", -1, 1, NULL,
     "learning rate at the end, as a part of its peak; -1: as min_lr says"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

/* Boards made here; a token is a digit + 1, as in TinyRecursiveModels' Sudoku sets. */
typedef struct made {
    int side;
    uint8_t *puzzle[AN_N_SPLITS], *solution[AN_N_SPLITS]; /* [boards,side*side] */
} made;

typedef struct puzzle_data {
    an_task_data head;
    an_puzzle_set *set[AN_N_SPLITS]; /* NULL: made here, or opened without data */
    made made;
    int64_t cells;
    an_puzzle_order order; /* of training */
} puzzle_data;

static const puzzle_data *puzzles(const an_task_data *d)
{
    return (const puzzle_data *)d;
}

static const settings *settings_of(const an_train_config *c)
{
    return (const settings *)(const void *)c->task_settings.bytes;
}

/* ---- Sudoku boards made here */

enum { MADE_SEED = 1, N_TRAIN = 8192, N_VAL = 1024, PART = 5 /* one grid in so many is for validation */ };

static int side_of(const char *data)
{
    return strcmp(data, "sudoku_4x4") == 0 ? 4 : strcmp(data, "sudoku_6x6") == 0 ? 6 : 0;
}

static int split_of(const uint8_t *grid, size_t cells)
{
    return XXH3_64bits(grid, cells) % PART == 0 ? AN_VAL : AN_TRAIN;
}

static an_status make_boards(an_err *err, made *m)
{
    const int64_t most[AN_N_SPLITS] = {[AN_TRAIN] = N_TRAIN, [AN_VAL] = N_VAL};
    const size_t cells = (size_t)(m->side * m->side);
    int64_t n[AN_N_SPLITS] = {0};
    uint8_t puzzle[AN_SUDOKU_CELLS], solution[AN_SUDOKU_CELLS];
    for (int split = 0; split < AN_N_SPLITS; split++) {
        const size_t bytes = (size_t)most[split] * cells;
        m->puzzle[split] = malloc(bytes);
        m->solution[split] = malloc(bytes);
        if (!m->puzzle[split] || !m->solution[split]) return an_fail_nomem(err, "Sudoku boards", bytes);
    }
    for (uint64_t number = 0; n[AN_TRAIN] < N_TRAIN || n[AN_VAL] < N_VAL; number++) {
        an_sudoku_grid(m->side, MADE_SEED, number, solution);
        int split = split_of(solution, cells);
        if (n[split] == most[split]) continue;
        an_sudoku_generate(m->side, MADE_SEED, number, 0, puzzle, solution);
        split = split_of(solution, cells);
        if (n[split] == most[split]) continue;
        memcpy(m->puzzle[split] + (size_t)n[split] * cells, puzzle, cells);
        memcpy(m->solution[split] + (size_t)n[split]++ * cells, solution, cells);
    }
    return AN_OK;
}

static void read_made(const made *m, int split, int64_t board, int32_t *inputs, int32_t *labels, int32_t *id)
{
    const int64_t cells = m->side * m->side;
    for (int64_t i = 0; i < cells; i++) {
        inputs[i] = m->puzzle[split][board * cells + i] + 1;
        labels[i] = m->solution[split][board * cells + i] + 1;
    }
    *id = 0;
}

/* ---- opening */

static void close_puzzles(an_task_data *d)
{
    puzzle_data *p = (puzzle_data *)d;
    for (int split = 0; split < AN_N_SPLITS; split++) {
        an_puzzle_set_close(p->set[split]);
        free(p->made.puzzle[split]);
        free(p->made.solution[split]);
    }
}

static an_status open_made(an_err *err, const an_train_config *c, puzzle_data *d)
{
    if (*settings_of(c)->data_test)
        return an_fail(err, AN_E_USAGE,
                       "data_paths_test=%.200s: the boards of %s have a test split of their own; it is for data=FOLDER",
                       settings_of(c)->data_test, c->data);
    AN_TRY(make_boards(err, &d->made));
    d->head.built_in = true;
    d->head.units[AN_TRAIN] = d->head.epoch = N_TRAIN;
    d->head.units[AN_VAL] = N_VAL;
    d->head.bytes = (size_t)(2 * (N_TRAIN + N_VAL)) * (size_t)(d->made.side * d->made.side);
    return AN_OK;
}

static an_status open_sets(an_err *err, const an_train_config *c, puzzle_data *d)
{
    const char *test = settings_of(c)->data_test;
    AN_TRY(an_puzzle_set_open_list(err, c->data, "train", &d->set[AN_TRAIN]));
    AN_TRY(an_puzzle_set_open_list(err, *test ? test : c->data, "test", &d->set[AN_VAL]));
    for (int split = 0; split < AN_N_SPLITS; split++) {
        AN_TRY(an_puzzle_set_labelled(err, d->set[split], split == AN_TRAIN ? "train" : "test", INT64_MAX));
        d->head.units[split] = an_puzzle_set_examples(d->set[split]);
        d->head.bytes += an_puzzle_set_bytes(d->set[split]);
    }
    const an_puzzle_meta *m = an_puzzle_set_meta(d->set[AN_TRAIN]);
    d->head.epoch = (int64_t)((double)m->total_groups * m->mean_puzzle_examples);
    return an_puzzle_set_agree(err, d->set[AN_TRAIN], d->set[AN_VAL], true);
}

/* A whole directory as one validation split: its test boards. */
static an_status open_whole(an_err *err, const an_train_config *c, puzzle_data *d)
{
    AN_TRY(an_puzzle_set_open_list(err, c->data, "test", &d->set[AN_VAL]));
    AN_TRY(an_puzzle_set_labelled(err, d->set[AN_VAL], "test", INT64_MAX));
    d->head.units[AN_VAL] = an_puzzle_set_examples(d->set[AN_VAL]);
    d->head.bytes = an_puzzle_set_bytes(d->set[AN_VAL]);
    return AN_OK;
}

static an_puzzle_meta meta_of(const puzzle_data *d)
{
    if (d->set[AN_VAL] && !d->set[AN_TRAIN]) return *an_puzzle_set_meta(d->set[AN_VAL]);
    if (d->set[AN_TRAIN]) return *an_puzzle_set_meta(d->set[AN_TRAIN]);
    const int side = d->made.side;
    return (an_puzzle_meta){.vocab_size = side + 2, .seq_len = side * side, .num_puzzle_identifiers = 1};
}

static an_status settle(an_err *err, an_train_config *c, const char *key, int64_t have, bool more)
{
    AN_TRY(an_task_settle(err, c, key, have));
    const int64_t *size = an_train_number(c, key);
    if (have == 0 || *size == have || (more && *size > have)) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "data=%s: its %s is %lld, the model's %lld; a new model takes what the data have with %s=0", c->data,
                   key, (long long)have, (long long)*size, key);
}

/* `key` has the value `epochs`. */
static an_status check_passes(an_err *err, const an_train_config *c, const char *key, int64_t epochs)
{
    const int64_t per_pass = settings_of(c)->epochs_per_pass;
    if (epochs % per_pass == 0) return AN_OK;
    return an_fail(err, AN_E_USAGE,
                   "%s=%lld epochs_per_pass=%lld: not a whole number of passes; eval_interval= of pretrain sets both "
                   "the passes and the evaluations: take a divisor of the epochs, %lld for one pass",
                   key, (long long)epochs, (long long)per_pass, (long long)epochs);
}

/* Updates in so many epochs over the files. */
static an_status count_updates(an_err *err, const an_train_config *c, const puzzle_data *d, int64_t epochs,
                               int64_t *updates)
{
    const int64_t per_pass = settings_of(c)->epochs_per_pass;
    return an_puzzle_set_updates(err, d->set[AN_TRAIN], &d->order, epochs / per_pass, updates);
}

/* Updates in so many epochs of boards made here: each board once in an epoch. */
static int64_t count_made(const an_train_config *c, const puzzle_data *d, int64_t epochs)
{
    const double batch = (double)(c->batch_size * c->gradient_accumulation_steps);
    const double made = (double)epochs * (double)d->head.units[AN_TRAIN] / batch;
    return made > 1 ? (int64_t)AN_MIN(made, 1e15) : 1;
}

/* Where a batch is larger than the training split, as that of an evaluation may be, the interval stays: a run that trains
 * with it is refused elsewhere. */
static an_status settle_evaluations(an_err *err, an_train_config *c, const puzzle_data *d)
{
    const int64_t epochs = settings_of(c)->eval_epochs;
    int64_t updates = 0;
    if (epochs > 0 && d->head.loaded && d->made.side) updates = count_made(c, d, epochs);
    if (epochs > 0 && d->set[AN_TRAIN]) {
        AN_TRY(check_passes(err, c, "eval_epochs", epochs));
        if (count_updates(NULL, c, d, epochs, &updates) != AN_OK) return AN_OK;
    }
    if (updates > 0) c->eval_interval = updates;
    return AN_OK;
}

/* Converts epochs= to updates as TinyRecursiveModels does: max_iters is what it runs, lr_decay_iters the length that its
 * schedule assumes. */
static an_status settle_epochs(an_err *err, an_train_config *c, const puzzle_data *d)
{
    const int64_t batch = c->batch_size * c->gradient_accumulation_steps;
    const int64_t *table = an_train_number(c, "arch.puzzle_emb_ndim");
    if (strcmp(c->freeze, "*") == 0 && table && *table == 0)
        return an_fail(err, AN_E_USAGE,
                       "freeze=* (freeze_weights) trains the rows of puzzles alone, and this model has none: set "
                       "arch.puzzle_emb_ndim=, or freeze less");
    if (settings_of(c)->lr_min_ratio >= 0) c->min_lr = settings_of(c)->lr_min_ratio * c->learning_rate;
    AN_TRY(settle_evaluations(err, c, d));
    if (c->epochs > 0 && d->head.loaded && d->made.side) c->max_iters = c->lr_decay_iters = count_made(c, d, c->epochs);
    if (c->epochs == 0 || !d->set[AN_TRAIN]) return AN_OK;
    const an_puzzle_meta *m = an_puzzle_set_meta(d->set[AN_TRAIN]);
    int64_t updates;
    AN_TRY(check_passes(err, c, "epochs", c->epochs));
    AN_TRY(count_updates(err, c, d, c->epochs, &updates));
    const double total = (double)c->epochs * (double)m->total_groups * m->mean_puzzle_examples / (double)batch;
    if (updates < 1)
        return an_fail(err, AN_E_DATA, "data=%s: %lld epochs make no batch of %lld", c->data, (long long)c->epochs,
                       (long long)batch);
    const int64_t planned =
        (int64_t)AN_MIN(total, 1e15); /* total is a file's word, and may be larger than any integer */
    c->max_iters = AN_MIN(updates, planned);
    c->lr_decay_iters = AN_MAX(1, planned - 1);
    return AN_OK;
}

/* `from`: whether there are weights, which say what is read without data. Of attention they do not say how many cells there are, and
 * TinyRecursiveModels' settings beside them only where the data are. */
static an_status open_parts(an_err *err, an_train_config *c, bool from, int flags, puzzle_data *d)
{
    int64_t *cells = an_train_number(c, "arch.seq_len");
    d->made.side = flags & AN_OPEN_WHOLE_FILE || (from && !(flags & AN_OPEN_DATA)) ? 0 : side_of(c->data);
    if (from && cells && *cells == 0 && !(flags & AN_OPEN_DATA)) *cells = an_puzzle_set_length(c->data);
    if (from && cells && *cells == 0 && !(flags & AN_OPEN_DATA))
        return an_fail(
            err, AN_E_DATA,
            "neither the weights nor an all_config.yaml beside them say how many cells a board has: write there "
            "where the data are (data_paths:), or seq_len: under arch:");
    d->order = (an_puzzle_order){.seed = (uint64_t)c->seed,
                                 .per_update = c->batch_size * c->gradient_accumulation_steps,
                                 .epochs_per_pass = settings_of(c)->epochs_per_pass};
    if (flags & AN_OPEN_DATA) {
        if (flags & AN_OPEN_WHOLE_FILE)
            AN_TRY(open_whole(err, c, d));
        else if (d->made.side)
            AN_TRY(open_made(err, c, d));
        else
            AN_TRY(open_sets(err, c, d));
        d->head.loaded = true;
    }
    const an_puzzle_meta m = d->head.loaded || d->made.side ? meta_of(d) : (an_puzzle_meta){0};
    AN_TRY(settle(err, c, "vocab_size", m.vocab_size, false));
    AN_TRY(settle(err, c, "arch.seq_len", m.seq_len, false));
    AN_TRY(settle(err, c, "num_puzzle_identifiers", m.num_puzzle_identifiers, true));
    d->cells = *an_train_number(c, "arch.seq_len");
    return settle_epochs(err, c, d);
}

static an_status open_puzzles(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *data)
{
    if (!an_train_number(c, "num_puzzle_identifiers"))
        return an_fail(err, AN_E_USAGE, "task=puzzle: the model %s reads no puzzles", c->model->name);
    return open_parts(err, c, from != NULL, flags, (puzzle_data *)data);
}

/* As of Sudoku 9x9, or of the built-in boards that data= names. */
static void assume(an_train_config *c)
{
    const int side = side_of(c->data) ? side_of(c->data) : 9;
    int64_t *vocab = an_train_number(c, "vocab_size"), *cells = an_train_number(c, "arch.seq_len"),
            *ids = an_train_number(c, "num_puzzle_identifiers");
    if (vocab && *vocab == 0) *vocab = side + 2;
    if (cells && *cells == 0) *cells = side * side;
    if (ids && *ids == 0) *ids = 1;
}

/* ---- batches and evaluation samples */

static an_status count(an_err *err, const an_task_data *d, int split, int64_t *out)
{
    *out = d->units[split];
    if (*out > 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "the %s split has no boards", split == AN_TRAIN ? "training" : "validation");
}

/* A batch that no pass over the files fills is refused before anything is planned for it. */
static an_status check(an_err *err, const an_task_data *d)
{
    int64_t n;
    for (int split = 0; split < AN_N_SPLITS; split++) AN_TRY(count(err, d, split, &n));
    return puzzles(d)->set[AN_TRAIN] ? an_puzzle_set_check(err, puzzles(d)->set[AN_TRAIN], &puzzles(d)->order) : AN_OK;
}

/* Board `board` of the split as sample i of the arrays. */
static an_status read_board(an_err *err, const puzzle_data *d, int split, int64_t board, int64_t i, void *const *array)
{
    int32_t *inputs = (int32_t *)array[0] + i * d->cells, *labels = (int32_t *)array[1] + i * d->cells;
    int32_t *id = (int32_t *)array[2] + i;
    if (d->set[split]) return an_puzzle_set_read(err, d->set[split], board, inputs, labels, id);
    read_made(&d->made, split, board, inputs, labels, id);
    return AN_OK;
}

/* The board of sample `s` of a step, of those made here: in epochs, each board once. */
static int64_t draw_made(const puzzle_data *d, const an_sample_range *r, uint64_t step, uint64_t s)
{
    const uint64_t n = (uint64_t)d->head.units[r->split];
    const uint64_t at = step * (uint64_t)(r->per_step > 0 ? r->per_step : r->samples) + s;
    return (int64_t)an_shuffled(at % n, n, (uint32_t)(r->seed ^ r->seed >> 32), (uint32_t)(at / n));
}

static an_status batch(an_err *err, const an_task_data *head, const an_sample_range *draw, uint64_t step,
                       void *const *array)
{
    enum { CHUNK = 64 };
    const puzzle_data *d = puzzles(head);
    int64_t board[CHUNK];
    const an_puzzle_order o = {.seed = draw->seed,
                               .per_update = draw->per_step > 0 ? draw->per_step : draw->samples,
                               .epochs_per_pass = d->order.epochs_per_pass};
    for (int64_t at = 0; at < draw->samples; at += CHUNK) {
        const int64_t n = AN_MIN(CHUNK, draw->samples - at);
        if (d->set[draw->split])
            AN_TRY(an_puzzle_set_draw(err, d->set[draw->split], &o, step, draw->first + at, n, board));
        for (int64_t i = 0; i < n; i++) {
            if (!d->set[draw->split]) board[i] = draw_made(d, draw, step, (uint64_t)(draw->first + at + i));
            AN_TRY(read_board(err, d, draw->split, board[i], at + i, array));
        }
    }
    return AN_OK;
}

static an_status read_boards(an_err *err, const an_task_data *head, int split, int64_t first, int64_t n, int64_t room,
                             void *const *array)
{
    const puzzle_data *d = puzzles(head);
    for (int64_t i = 0; i < n; i++) AN_TRY(read_board(err, d, split, first + i, i, array));
    int32_t *inputs = array[0], *labels = array[1], *ids = array[2]; /* [room,S], [room,S], [room] */
    for (int64_t i = n * d->cells; i < room * d->cells; i++) inputs[i] = 0, labels[i] = AN_PUZZLE_IGNORED;
    for (int64_t i = n; i < room; i++) ids[i] = 0;
    return AN_OK;
}

static void hash(const an_task_data *head, int split, char out[AN_HASH_TEXT_BYTES])
{
    const puzzle_data *d = puzzles(head);
    if (d->set[split]) {
        an_puzzle_set_hash(d->set[split], out);
        return;
    }
    out[0] = 0;
    if (!d->made.puzzle[split]) return;
    const size_t bytes = (size_t)(d->head.units[split] * d->made.side * d->made.side);
    const XXH128_hash_t h =
        XXH3_128bits_withSeed(d->made.puzzle[split], bytes, XXH3_64bits(d->made.solution[split], bytes));
    snprintf(out, AN_HASH_TEXT_BYTES, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static const char *folder(const an_task_data *d, int split, int i)
{
    const an_puzzle_set *s = puzzles(d)->set[split];
    return s ? an_puzzle_set_dir(s, i) : NULL;
}

static const an_task_unit other_units[] = {
    {"eval_interval", "eval_epochs", "0"}, {"min_lr", "lr_min_ratio", "-1"}, {NULL, NULL, NULL}};

const an_task an_puzzle_task = {.name = "puzzle",
                                .settles_epochs = true,
                                .unit = "puzzle",
                                .units = "puzzles",
                                .unit_rate = "puzzles/s",
                                .sample = "puzzle",
                                .built_in = "Sudoku boards made by the program (data=FOLDER for your own)",
                                .next = "ask it with\n    anneal solve",
                                .next_argument = " FILE",
                                .keys = &keys,
                                .settings_bytes = sizeof(settings),
                                .other_units = other_units,
                                .data_bytes = sizeof(puzzle_data),
                                .open = open_puzzles,
                                .close = close_puzzles,
                                .assume = assume,
                                .check = check,
                                .hash = hash,
                                .batch = batch,
                                .count = count,
                                .read = read_boards,
                                .folder = folder};
