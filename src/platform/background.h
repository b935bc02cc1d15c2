/* background.h: starts a program that outlives this one and its terminal. */
#ifndef AN_PLATFORM_BACKGROUND_H
#define AN_PLATFORM_BACKGROUND_H

#include "base/base.h"

/* Runs argv[0] (found as a shell would) with argv in a session of its own: stdin from /dev/null, stdout and stderr to the
 * file `log_fd`. For programs of one thread: it forks. AN_E_ENV: it cannot be started. */
an_status an_background_spawn(an_err *err, const char *const *argv, int log_fd, int *pid);
/* Whether that child has ended, and with what exit code (128 + n for a signal). Does not wait. */
bool an_background_ended(int pid, int *exit_code);

#endif
