/* run_dir.h: the folder of a run: one writer at a time, and room for a new run.
 *
 * Owns:      the lock (FOLDER/.lock, held by the process: a killed one lets go), what becomes of files of an earlier
 * run. Does not:  know what is in the files. */
#ifndef AN_TRAIN_RUN_DIR_H
#define AN_TRAIN_RUN_DIR_H

#include <anneal.h>
#include "io/checkpoint.h"

/* Makes the folder (and those above it) where it is missing and locks it. AN_E_ENV: another process has it. */
an_status an_run_dir_lock(an_err *err, const char *dir, int *out);
void an_run_dir_unlock(int lock); /* -1 is fine */

/* Moves the files of an earlier run in `dir` into dir/previous (or previous-2, ...: nothing is ever removed), so that a
 * new run can begin; with after >= 0 those that a run which is taken up at that update will write anew, where there is
 * a later checkpoint, and a copy of its metrics. `to` is where they are now, "" when there were none. */
an_status an_run_dir_set_aside(an_err *err, const char *dir, int64_t after, char to[AN_CKPT_PATH_BYTES]);

/* Whether a run of ours was trained in `dir`. */
bool an_run_dir_is_a_run(const char *dir);

#endif
