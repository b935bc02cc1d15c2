/* prepare_commands.c: the table of the data sets that `anneal prepare` makes. Also where they are made. See cmd_prepare.h. */
#define _DEFAULT_SOURCE
#include "cli/cmd_prepare.h"
#include "platform/platform.h"
#include <string.h>
#include <unistd.h>

/* clang-format off */
const an_command an_prepare_commands[] = {
    {.name = "sudoku", .run = an_cmd_prepare_sudoku, .json = true, .keys = &an_prepare_sudoku_keys,
     .usage = "prepare sudoku from=FILE|generate=N [key=value ...]",
     .summary = "a data set of Sudokus: of lists, which are solved, or made here",
     .details = "No test puzzle is a symmetry image of a training puzzle.\n"},
    {.name = "maze", .run = an_cmd_prepare_maze, .json = true, .keys = &an_prepare_maze_keys,
     .usage = "prepare maze [from=FILE.csv] [key=value ...]",
     .summary = "a data set of mazes and their shortest paths",
     .details = ""},
    {.name = "arc", .run = an_cmd_prepare_arc, .json = true, .keys = &an_prepare_arc_keys,
     .usage = "prepare arc from=PREFIX [key=value ...]",
     .summary = "a data set of ARC's puzzles and images of them, for arc1 and arc2",
     .details = "Files: PREFIX_SUBSET_challenges.json and PREFIX_SUBSET_solutions.json; .gz too.\n"},
    {.name = "chat", .run = an_cmd_prepare_chat, .json = true, .keys = &an_prepare_chat_keys,
     .usage = "prepare chat input_file=FILE [key=value ...]",
     .summary = "a data set of conversations, for cfg_chat",
     .details = "Formats: sharegpt, alpaca and openassistant as JSON or JSON lines, chatterbot as YAML; .gz too.\n"},
    {.name = "example-chat", .run = an_cmd_prepare_example_chat, .json = true, .keys = &an_prepare_example_chat_keys,
     .usage = "prepare example-chat [key=value ...]",
     .summary = "a data set of five built-in conversations, of which four are for training",
     .details = ""},
    {.name = "fashion-mnist", .run = an_cmd_prepare_fashion_mnist, .json = true, .keys = &an_prepare_fashion_mnist_keys,
     .usage = "prepare fashion-mnist [key=value ...]",
     .summary = "Fashion-MNIST, for models of images: of Debian's package, a folder, or downloaded",
     .details = "Each file is known by its SHA-256.\n"},
};
/* clang-format on */
const size_t an_n_prepare_commands = sizeof an_prepare_commands / sizeof an_prepare_commands[0];

void an_prepare_put_sets(an_text *out)
{
    for (size_t i = 0; i < an_n_prepare_commands; i++)
        an_text_printf(out, "  prepare %-15s%s\n", an_prepare_commands[i].name, an_prepare_commands[i].summary);
}

const an_command *an_prepare_find(const char *word)
{
    for (size_t i = 0; i < an_n_prepare_commands; i++)
        if (strcmp(an_prepare_commands[i].name, word) == 0) return &an_prepare_commands[i];
    return NULL;
}

an_status an_prepare_begin(an_err *err, const char *out, an_prepare_folder *made)
{
    *made = (an_prepare_folder){.out = out, .fresh = access(out, F_OK) != 0};
    AN_TRY(an_make_dirs(err, out, 0777));
    return an_scratch_open(err, out, &made->scratch);
}

an_status an_prepare_end(an_err *err, an_prepare_folder *made, an_status status)
{
    if (status == AN_OK) status = an_scratch_deliver(err, &made->scratch, "dataset.json");
    if (status != AN_OK && err && made->scratch.name[0]) { /* "OUT/.anneal-scratch-...": the folder's name is cut out */
        char within[sizeof made->scratch.name + 1];
        snprintf(within, sizeof within, "/%s", made->scratch.name);
        for (char *at; (at = strstr(err->text, within));)
            memmove(at, at + strlen(within), strlen(at + strlen(within)) + 1);
    }
    an_scratch_close(&made->scratch);
    if (status != AN_OK && made->fresh) (void)rmdir(made->out); /* empty, unless someone else put something there */
    return status;
}
