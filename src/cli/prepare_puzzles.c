/* prepare_puzzles.c: anneal prepare sudoku, maze: data sets of puzzles. */
#include "cli/cmd_prepare.h"
#include "cli/progress_bar.h"
#include "io/data/maze_set.h"
#include "io/data/sudoku_set.h"
#include <signal.h>
#include <string.h>

typedef struct values {
    char out[AN_CONFIG_TEXT_BYTES], output_dir[AN_CONFIG_TEXT_BYTES], from[AN_CONFIG_TEXT_BYTES],
        test[AN_CONFIG_TEXT_BYTES];
    char size[AN_CONFIG_TEXT_BYTES], source_repo[AN_CONFIG_TEXT_BYTES];
    int64_t side, generate, givens, subsample_size, test_size, num_aug, seed, min_path;
    double min_difficulty;
    bool aug;
} values;

#define AT(name) offsetof(values, name)
#define OUT_KEYS(folder)                                                                                               \
    {"out", AN_CONFIG_TEXT, AT(out), "", 0, 0, NULL, "folder for the data set; empty: " folder},                       \
    {                                                                                                                  \
        "output_dir", AN_CONFIG_TEXT, AT(output_dir), "", 0, 0, NULL, "the same"                                       \
    }
#define SOURCE_KEY                                                                                                     \
    {                                                                                                                  \
        "source_repo", AN_CONFIG_TEXT, AT(source_repo), "", 0, 0, NULL,                                                \
            "refused with what to do: a data set of Hugging Face's hub, whose files from= and test= take"              \
    }
#define SPLIT_KEYS                                                                                                     \
    {"subsample_size",                                                                                                 \
     AN_CONFIG_INT,                                                                                                    \
     AT(subsample_size),                                                                                               \
     "0",                                                                                                              \
     0,                                                                                                                \
     1e9,                                                                                                              \
     NULL,                                                                                                             \
     "so many of the files' puzzles for training, as many of each file; 0: all that are not for testing"},             \
        {"test_size",                                                                                                  \
         AN_CONFIG_INT,                                                                                                \
         AT(test_size),                                                                                                \
         "0",                                                                                                          \
         0,                                                                                                            \
         1e9,                                                                                                          \
         NULL,                                                                                                         \
         "puzzles for testing; 0: a tenth as many as for training, or all of test"},                                   \
    {                                                                                                                  \
        "seed", AN_CONFIG_INT, AT(seed), "0", 0, 1e15, NULL, "of every choice; the same gives the same files"          \
    }

static const an_config_field sudoku_fields[] = {
    OUT_KEYS("data/sudoku"),
    {"from", AN_CONFIG_TEXT, AT(from), "", 0, 0, NULL,
     "FILE,FILE: CSV with question and answer, or a puzzle of 16, 36 or 81 characters a line; .gz too"},
    {"test", AN_CONFIG_TEXT, AT(test), "", 0, 0, NULL, "files of puzzles for testing; empty: of the same files"},
    {"generate", AN_CONFIG_INT, AT(generate), "0", 0, 1e7, NULL, "make so many training puzzles, in place of from"},
    {"size", AN_CONFIG_TEXT, AT(size), "9", 0, 0, NULL,
     "of puzzles that are made: 4, 6 or 9; several, 4,6,9, are a folder each: OUT/4x4, OUT/6x6, OUT/9x9"},
    {"givens", AN_CONFIG_INT, AT(givens), "-1", -1, 81, NULL,
     "given cells left in them at least; -1: 6 of 4x4, 12 of 6x6, as few as can be of 9x9"},
    {"num_aug", AN_CONFIG_INT, AT(num_aug), "0", 0, 1e6, NULL,
     "symmetry images of each training puzzle, beside itself: digits, bands, stacks, rows, columns, transposed"},
    {"min_difficulty", AN_CONFIG_FLOAT, AT(min_difficulty), "0", 0, 1e9, NULL, "least rating of a CSV file's puzzles"},
    SOURCE_KEY,
    SPLIT_KEYS,
};
const an_config an_prepare_sudoku_keys = {.fields = sudoku_fields, .n = AN_COUNT(sudoku_fields)};

static const an_config_field maze_fields[] = {
    OUT_KEYS("data/maze"),
    {"from", AN_CONFIG_TEXT, AT(from), "", 0, 0, NULL, "CSV of source,question,answer,rating; empty: mazes are made"},
    {"test", AN_CONFIG_TEXT, AT(test), "", 0, 0, NULL, "CSV of mazes for testing; empty: of the same"},
    {"generate", AN_CONFIG_INT, AT(generate), "1000", 1, 1e6, NULL, "make so many training mazes, without from"},
    {"size", AN_CONFIG_INT, AT(side), "30", 3, AN_MAZE_MAX_SIDE, NULL, "rows and columns of mazes that are made"},
    {"min_path", AN_CONFIG_INT, AT(min_path), "110", 1, 4096, NULL, "least steps from S to G in them"},
    {"aug", AN_CONFIG_BOOL, AT(aug), "false", 0, 0, NULL, "the eight rotations and reflections of each training maze"},
    SOURCE_KEY,
    SPLIT_KEYS,
};
const an_config an_prepare_maze_keys = {.fields = maze_fields, .n = AN_COUNT(maze_fields)};

const char *an_prepare_out(const char *out, const char *output_dir, const char *initial)
{
    return *output_dir ? output_dir : *out ? out : initial;
}

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

static an_status print_counts(an_err *err, const char *out, const char *name, int64_t train, int64_t examples,
                              int64_t test, bool json, const char *more)
{
    an_text line = {0};
    if (json) {
        an_text_puts(&line, "{\"out\":");
        an_json_put(&line, out);
        an_text_printf(&line, ",\"train\":%lld,\"train_examples\":%lld,\"test\":%lld}", (long long)train,
                       (long long)examples, (long long)test);
    } else {
        an_text_printf(&line, "%s: %lld %s for training", out, (long long)train, name);
        if (examples > train) an_text_printf(&line, ", %lld with their images,", (long long)examples);
        an_text_printf(&line, " and %lld for testing%s", (long long)test, more);
    }
    return an_print_line(err, &line);
}

/* TinyRecursiveModels' builders download such a set by themselves. */
static an_status refuse_repository(an_err *err, const char *what, const char *repository)
{
    if (!*repository) return AN_OK;
    return an_fail(err, AN_E_USAGE,
                   "prepare %s: source_repo=%.200s is not downloaded: take train.csv and test.csv from "
                   "https://huggingface.co/datasets/%.200s and name them, --from train.csv --test test.csv",
                   what, repository, repository);
}

/* Puzzles of one size, or of files, in the folder `out`. */
static an_status prepare_sudoku(an_err *err, const an_args *args, const values *v, int side, const char *out)
{
    an_sudoku_result result;
    an_prepare_folder made;
    char more[160] = "";
    AN_TRY(an_prepare_begin(err, out, &made));
    an_bar *bar = an_bar_open(args, "prepare", "puzzles", NULL, NULL);
    const an_sudoku_options o = {.from = or_null(v->from),
                                 .test = or_null(v->test),
                                 .out = made.scratch.path,
                                 .side = side,
                                 .generate = v->generate,
                                 .givens = v->givens,
                                 .subsample = v->subsample_size,
                                 .test_size = v->test_size,
                                 .num_aug = v->num_aug,
                                 .min_difficulty = v->min_difficulty,
                                 .seed = (uint64_t)v->seed,
                                 .tell = an_bar_tell,
                                 .tell_arg = bar};
    an_status status = an_sudoku_build(err, &o, &result);
    an_bar_close(bar);
    AN_TRY(an_prepare_end(err, &made, status));
    if (result.images > 0)
        snprintf(more, sizeof more, "; %lld were left out, being images of training puzzles", (long long)result.images);
    if (result.not_compared)
        snprintf(more, sizeof more, "; these are too many to tell whether test puzzles are images of training puzzles");
    return print_counts(err, out, "puzzles", result.train, result.examples, result.test, args->json, more);
}

/* The sizes of a list, each once; out[] ends with 0. */
static an_status sizes_of(an_err *err, const char *list, int out[4])
{
    int n = 0;
    an_text item = {0};
    an_list l = an_list_begin(list);
    an_status status = AN_OK;
    while (status == AN_OK && an_list_next(&l, &item)) {
        const int side = item.len == 1 ? item.data[0] - '0' : 0;
        bool again = false;
        for (int i = 0; i < n; i++) again |= out[i] == side;
        if (again || (side != 4 && side != 6 && side != 9))
            status = an_fail(
                err, AN_E_USAGE,
                "size=%.100s: puzzles that are made have size 4, 6 or 9, or several of them, each once: 4,6,9", list);
        else
            out[n++] = side;
    }
    if (status == AN_OK && n == 0) status = an_fail(err, AN_E_USAGE, "size=%.100s: it is 4, 6 or 9, or 4,6,9", list);
    an_text_free(&item);
    out[n] = 0;
    return status;
}

an_status an_cmd_prepare_sudoku(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    values v;
    int side[4];
    char folder[AN_CONFIG_TEXT_BYTES + 16];
    AN_TRY(an_config_defaults(err, &an_prepare_sudoku_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_prepare_sudoku_keys, &v}, 1));
    AN_TRY(refuse_repository(err, "sudoku", v.source_repo));
    AN_TRY(sizes_of(err, v.size, side));
    if (v.from[0] && v.generate > 0)
        return an_fail(err, AN_E_USAGE, "prepare sudoku: puzzles are of files (from) or made (generate), not both");
    signal(SIGXFSZ, SIG_IGN);
    const char *out = an_prepare_out(v.out, v.output_dir, "data/sudoku");
    if (!side[1] || v.generate == 0) return prepare_sudoku(err, args, &v, side[0], out);
    for (int i = 0; side[i]; i++) { /* boards of one folder have one size */
        snprintf(folder, sizeof folder, "%s/%dx%d", out, side[i], side[i]);
        AN_TRY(prepare_sudoku(err, args, &v, side[i], folder));
    }
    return AN_OK;
}

an_status an_cmd_prepare_maze(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    values v;
    an_maze_result result;
    an_prepare_folder made;
    char more[96];
    AN_TRY(an_config_defaults(err, &an_prepare_maze_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_prepare_maze_keys, &v}, 1));
    AN_TRY(refuse_repository(err, "maze", v.source_repo));
    signal(SIGXFSZ, SIG_IGN);
    const char *out = an_prepare_out(v.out, v.output_dir, "data/maze");
    AN_TRY(an_prepare_begin(err, out, &made));
    an_bar *bar = an_bar_open(args, "prepare", "mazes", NULL, NULL);
    const an_maze_options o = {.from = or_null(v.from),
                               .test = or_null(v.test),
                               .out = made.scratch.path,
                               .side = (int)v.side,
                               .generate = v.generate,
                               .min_path = v.min_path,
                               .subsample = v.subsample_size,
                               .test_size = v.test_size,
                               .aug = v.aug,
                               .seed = (uint64_t)v.seed,
                               .tell = an_bar_tell,
                               .tell_arg = bar};
    an_status status = an_maze_build(err, &o, &result);
    an_bar_close(bar);
    AN_TRY(an_prepare_end(err, &made, status));
    snprintf(more, sizeof more, "; paths of %lld to %lld steps", (long long)result.shortest, (long long)result.longest);
    return print_counts(err, out, "mazes", result.train, result.examples, result.test, args->json, more);
}
