/* scratch.h: folders for files that are needed only while a program runs: BASE/.anneal-scratch-RANDOM.
 *
 * Owns:      their removal: by an_scratch_close, and of those that killed programs left, by the next an_scratch_open in
 *            the same base. A living program holds a lock on its folder.
 * Invariant: what is made there is removed with it: files, and folders to a depth of AN_SCRATCH_DEPTH. */
#ifndef AN_PLATFORM_SCRATCH_H
#define AN_PLATFORM_SCRATCH_H

#include "base/base.h"

enum { AN_SCRATCH_DEPTH = 4 };

typedef struct an_scratch {
    char path[1024], name[40];
    int base, fd; /* descriptors; 0: none */
} an_scratch;

/* `base`: an existing folder; NULL: TMPDIR's, or /tmp. AN_E_IO: a folder cannot be made there. */
an_status an_scratch_open(an_err *err, const char *base, an_scratch *out);
/* It stays, as `name` in its base, with the permissions of that. False: errno says why not, EEXIST where that is taken. */
bool an_scratch_keep(an_scratch *s, const char *name);
/* Moves every file in it to the same place below the base, over a file of that name; folders are made where they are missing. Nothing is
 * written, so a full disk stops it before the first file or not at all. Files named `last` there go first and come last: of a set that
 * is read by way of them a killed move leaves none, and never a mixture of two. */
an_status an_scratch_deliver(an_err *err, an_scratch *s, const char *last);
/* Removes the folder and what is in it. Harmless for one that is all zeros. */
void an_scratch_close(an_scratch *s);
/* Removes the folders in `base` that killed programs left. */
void an_scratch_sweep(const char *base);

#endif
