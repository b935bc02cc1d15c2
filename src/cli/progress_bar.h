/* progress_bar.h: how far a long command is and how long it will take, on one line of a terminal.
 *
 *     eval      1200 of 5000 batches, 24 %, 1:03 left
 *
 * Owns:      the line on stderr; a thread that draws it again while the command works, four times a second, from the
 * second second on.
 * Does not:  know what is counted: the command says it (an_bar_tell, from any thread), or a probe that the thread asks.
 *
 * Invariants: nothing is written unless stderr is a terminal and the command is neither --quiet nor --json; the line is
 * gone before another is printed (an_say takes it away) and when the command ends. One bar at a time. Without a thread
 * there is no line. */
#ifndef AN_CLI_PROGRESS_BAR_H
#define AN_CLI_PROGRESS_BAR_H

#include "cli/cli.h"

typedef struct an_bar an_bar;

/* Where the work is done elsewhere, by another process: how many of how many; all = 0: unknown. Called from the bar's
 * thread. */
typedef void an_bar_probe(void *arg, int64_t *done, int64_t *all);

/* `what` is the command, `unit` what is counted ("batches"; "bytes" are shown as such); texts stay the caller's. NULL,
 * and nothing to be done, where no line is to be shown; the others take NULL. `probe`: NULL where an_bar_tell is
 * called. */
an_bar *an_bar_open(const an_args *args, const char *what, const char *unit, an_bar_probe *probe, void *arg);
/* `bar` is an an_bar *: this is what work that knows nothing of bars is given to call. */
void an_bar_tell(void *bar, int64_t done, int64_t all);
void an_bar_close(an_bar *bar);
/* Takes the line of the open bar away, where one is drawn, so that another can be printed. */
void an_bar_hide(void);

/* Probes. `arg` an an_bar_file: bytes of the file that is being saved as `path` (platform's .NAME.RANDOM.tmp beside it)
 * of `all`. */
typedef struct an_bar_file {
    const char *path;
    int64_t all;
} an_bar_file;
an_bar_probe an_bar_probe_file;
/* `arg` an an_bar_run: updates after update `from` that another process has logged in folder `dir`, of `all`. */
typedef struct an_bar_run {
    const char *dir;
    int64_t from, all;
} an_bar_run;
an_bar_probe an_bar_probe_run;

/* The line without a terminal's control characters, at most `columns` wide: for tests. `seconds`: since `done` was 0. */
void an_bar_line(const char *what, const char *unit, int64_t done, int64_t all, double seconds, int columns,
                 char out[160]);

#endif
