/* cmd_prepare.h: what `anneal prepare` makes besides token files: each a command of two words with settings of its own. */
#ifndef AN_CLI_CMD_PREPARE_H
#define AN_CLI_CMD_PREPARE_H

#include "cli/cli.h"
#include "platform/scratch.h"

extern const an_command an_prepare_commands[];
extern const size_t an_n_prepare_commands;
/* The row of `prepare WORD`; NULL: WORD is a text for `prepare` itself. */
const an_command *an_prepare_find(const char *word);
void an_prepare_put_sets(an_text *out); /* a line a row, for help */

/* Both settings name the folder, out= here and --output-dir elsewhere; `initial` where neither does. */
const char *an_prepare_out(const char *out, const char *output_dir, const char *initial);

/* A data set of several files that belong together is made in a scratch folder within `out`, which is made where it is missing, and
 * moved to its place when all of it is written: a disk that is full leaves the set that was there, never parts of two. */
typedef struct an_prepare_folder {
    const char *out;
    bool fresh; /* it was not there */
    an_scratch scratch;
} an_prepare_folder;
an_status an_prepare_begin(an_err *err, const char *out, an_prepare_folder *made);
/* Moves the set to its place where `status` is AN_OK, else removes it; returns `status`, or why that failed. The sentence of an error
 * names `out`, not the scratch folder. */
an_status an_prepare_end(an_err *err, an_prepare_folder *made, an_status status);

/* The `tell` of an an_download, on a terminal: draws how much of the file named `arg` has come. */
void an_prepare_tell_download(void *arg, uint64_t have, uint64_t bytes);

/* GPT-2's tokenizer of a folder, into which its two files are downloaded unless they are there. */
an_status an_prepare_gpt2(an_err *err, const char *folder, const char *mirror, bool quiet, an_tokenizer **out);

an_status an_cmd_prepare_sudoku(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_prepare_maze(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_prepare_arc(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_prepare_chat(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_prepare_fashion_mnist(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_prepare_example_chat(an_err *err, const an_args *args, int *exit_code);
extern const an_config an_prepare_sudoku_keys, an_prepare_maze_keys, an_prepare_arc_keys, an_prepare_chat_keys,
    an_prepare_example_chat_keys, an_prepare_fashion_mnist_keys;

#endif
