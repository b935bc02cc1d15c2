/* background_runs.h: training in the background of one machine: starting it, and the list of what was started.
 *
 * Owns:      FOLDER/train.log, what a detached run prints; the list: a file a run in $XDG_STATE_HOME/anneal/runs
 *            (~/.local/state/anneal/runs), which holds the path of its folder.
 * Does not:  keep process ids: whether a run goes on is asked of its folder's lock, and it is stopped through its
 *            folder, so that no number of a file ever names a process to kill. */
#ifndef AN_CLI_BACKGROUND_RUNS_H
#define AN_CLI_BACKGROUND_RUNS_H

#include "cli/cli.h"

/* Starts `command` ("train", "resume") with these arguments, less detach, as a process of its own that trains in `out`;
 * returns when its logbook has begun, or with its exit code and last line when it ended before. */
an_status an_background_start(an_err *err, const an_args *args, const char *command, const char *out, int *exit_code);

/* The folder of the list, without making it; false: there is no home. */
enum { AN_STATE_PATH_BYTES = 1024 };
bool an_background_list_dir(char out[AN_STATE_PATH_BYTES]);

#endif
