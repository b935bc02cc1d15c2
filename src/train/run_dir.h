/* run_dir.h: the folder of a run: one writer at a time, and what happens to files that are in it before the run.
 *
 * Owns:      the lock (FOLDER/.lock, held by the process: the system releases it when the process is killed), and what
 *            happens to the files of an earlier run, or of a user's own files under names that a run uses.
 * Does not:  know what is in the files, or delete old checkpoints (an_ckpt_prune in io/checkpoint.h).
 * Invariant: no file is removed or overwritten that the run did not write; what would be is moved to
 *            FOLDER/previous. */
#ifndef AN_TRAIN_RUN_DIR_H
#define AN_TRAIN_RUN_DIR_H

#include <anneal.h>
#include "io/checkpoint.h"

/* Makes the folder (and those above it) where it is missing, locks it, removes unfinished files of a killed run, and
 * moves what the run would write over into dir/previous (or previous-2, ...):
 *   after < 0    a new run: all files of the run before it. Refused when no run was in this folder before and it has
 *                files of these names;
 *   after >= 0   a run resumed at that update: moves checkpoints of later updates, last and best among them, and copies of
 *                metrics.jsonl and ranks.jsonl there; out of a folder in which no run was, also its own config.yaml,
 *                metrics.jsonl, ...
 * `aside` is where they are now, "" when there were none. AN_E_ENV: another process has the lock. */
an_status an_run_dir_take(an_err *err, const char *dir, int64_t after, int *lock, char aside[AN_CKPT_PATH_BYTES]);
/* The lock alone, of a folder that a run was in: nothing but unfinished files of a killed run is removed. */
an_status an_run_dir_lock(an_err *err, const char *dir, int *lock);
void an_run_dir_unlock(int lock); /* -1: none is held */
/* Moves the n files `names` from the folder `from`, on the same file system, into the run's folder `dir`, whose lock the
 * caller holds, and what a run wrote there before to `aside`. Files are moved in the order of `names`, with the
 * checkpoint last: if the process is killed before that, the older checkpoint is still what a resume reads. */
an_status an_run_dir_replace(an_err *err, const char *dir, const char *from, const char *const *names, size_t n,
                             char aside[AN_CKPT_PATH_BYTES]);
/* Removes unfinished files of a killed run, where `dir` is a run's folder and no other process has its lock. */
void an_run_dir_sweep(const char *dir);
/* Fails when the folder or its lock was removed or replaced since. */
an_status an_run_dir_check(an_err *err, const char *dir, int lock);

/* Whether a process trains in `dir` now. */
bool an_run_dir_is_locked(const char *dir);
/* Asks the process that trains in `dir` to save and end: a file that it looks for (an_run_dir_stop_asked), and that the
 * next run to take the folder removes. */
an_status an_run_dir_ask_stop(an_err *err, const char *dir);
bool an_run_dir_stop_asked(const char *dir);
void an_run_dir_clear_stop(const char *dir);
/* Whether a run was trained in `dir`. */
bool an_run_dir_is_a_run(const char *dir);
/* AN_E_USAGE: `path`, which a command was told to write, is a file of a run (its metrics, settings, a checkpoint), by
 * its own name or through a link: writing would lose it. "" is no file, and AN_OK. */
an_status an_run_dir_check_output(an_err *err, const char *path);

#endif
