/* measured_run.h: what commands share that measure by training for a while, each time in a process and a folder of its own.
 *
 * Owns:      whether such a run exists already, the sentence that one failed with, what is kept of it.
 * Does not:  start it, or know what is measured. */
#ifndef AN_CLI_MEASURED_RUN_H
#define AN_CLI_MEASURED_RUN_H

#include "cli/cli.h"

/* This program's file, to start it once more. */
const char *an_measured_program(void);
/* Whether the folder has a whole run with this note, of this program. */
bool an_measured_is_there(const char *dir, const char *note);
/* The last sentence of what a program printed. */
void an_measured_sentence(char *output, char out[256]);
/* Only the numbers of such a run are kept. */
void an_measured_forget_weights(const char *dir);

#endif
