/* folder.h: the folder of a run: one writer at a time, and room for a new run.
 *
 * Owns:      the lock (FOLDER/.lock, held by the process: a killed one lets go), what becomes of files of an earlier
 * run. Does not:  know what is in the files. */
#ifndef AN_TRAIN_FOLDER_H
#define AN_TRAIN_FOLDER_H

#include <anneal.h>
#include "io/checkpoint.h"

/* Makes the folder (and those above it) where it is missing and locks it. AN_E_ENV: another process has it. */
an_status an_folder_lock(an_err *err, const char *dir, int *out);
void an_folder_unlock(int lock); /* -1 is fine */

/* Moves the files of a finished or abandoned run in `dir` into dir/previous, where those of the run before are removed,
 * so that a new run can begin. *moved: there was one. */
an_status an_folder_set_aside(an_err *err, const char *dir, bool *moved);

#endif
