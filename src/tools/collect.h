/* collect.h: brings a run home that went on elsewhere: its pack replaces the older state in the run's folder.
 *
 * Owns:      the check that the pack continues this very run; replacing the files without loss.
 * Invariant: no file of the folder is changed before all of the pack was checked, and what was there is in
 *            FOLDER/previous. */
#ifndef AN_TOOLS_COLLECT_H
#define AN_TOOLS_COLLECT_H

#include "tools/pack.h"

typedef struct an_collected {
    int64_t from, step;             /* updates done here before the call, and after it */
    char origin[160];               /* the machine that the pack comes from; printable */
    char aside[AN_CKPT_PATH_BYTES]; /* where the older state is */
    char data[AN_CKPT_PATH_BYTES];  /* what data= said here: the collected checkpoint names the other machine's */
} an_collected;

/* AN_E_USAGE: `dir` holds no run, or trains now. AN_E_DATA: the pack is damaged, or of another run, or no newer. */
an_status an_collect(an_err *err, const char *path, const char *dir, an_collected *out);

#endif
