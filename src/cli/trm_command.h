/* trm_command.h: translates the command lines of TinyRecursiveModels, and of guides to it, to this program's commands.
 *
 *     pretrain, pretrain.py            train; --config-name NAME is a built-in preset (cfg_pretrain, cfg_chat), or with
 *                                      --config-path DIR the file DIR/NAME.yaml and what its `defaults` name
 *     generate.py                      generate
 *     -m dataset.build_X_dataset       prepare X (sudoku, maze, arc, chat)
 *     .../prepare_example_chat_dataset.sh   prepare example-chat
 *     torchrun                         is refused in front of a script, with what to do instead
 *     key=v, +key=v, arch.key=v        settings: lr is learning_rate, global_batch_size batch_size, ...;
 *                                      lists with or without brackets
 *     an argument of blanks            (left by a comment after a backslash) is ignored with a note
 *
 * Owns:      this translation, which is applied before anything else reads an argument.
 * Does not:  check settings: the tables of keys do (cli/args.c).
 */
#ifndef AN_CLI_TRM_COMMAND_H
#define AN_CLI_TRM_COMMAND_H

#include "cli/cli.h"

enum { AN_MAX_ARGUMENTS = 256 };

typedef struct an_argv {
    char *argv[AN_MAX_ARGUMENTS + 1]; /* argv[0] is the program; NULL after the last */
    int argc;
    void *made[4 * AN_MAX_ARGUMENTS]; /* blocks to free */
    int n_made;
} an_argv;

/* Fills *out, whose memory is the caller's to free, also on failure. */
an_status an_recursive_command(an_err *err, int argc, char **argv, an_argv *out);

/* Appends a file's settings to *out as key=value, under TinyRecursiveModels' names, those of `defaults` first; *chat: the
 * settings are of a causal model. `arch` (NULL: none) is taken in place of the file of that group which they name. */
an_status an_recursive_settings(an_err *err, const char *folder, const char *name, const char *arch, an_argv *out,
                                bool *chat);

/* Whether a value says that there is none: as YAML writes it, as Python prints it, or nothing at all. */
bool an_recursive_null(const char *value);

an_status an_argv_add(an_err *err, an_argv *a, const char *text);
/* Memory that lives as long as *a; NULL: there is none left. */
char *an_argv_printf(an_argv *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void an_argv_free(an_argv *a);

#endif
