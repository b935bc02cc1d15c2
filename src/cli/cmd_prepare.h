/* cmd_prepare.h: what `anneal prepare` makes besides token files: each a command of two words with settings of its own. */
#ifndef AN_CLI_CMD_PREPARE_H
#define AN_CLI_CMD_PREPARE_H

#include "cli/cli.h"

extern const an_command an_prepare_commands[];
extern const size_t an_n_prepare_commands;
/* The row of `prepare WORD`; NULL: WORD is a text for `prepare` itself. */
const an_command *an_prepare_find(const char *word);
void an_prepare_put_sets(an_text *out); /* a line a row, for help */

/* Both settings name the folder, out= here and --output-dir elsewhere; `initial` where neither does. */
const char *an_prepare_out(const char *out, const char *output_dir, const char *initial);

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
