/* files.h: what files.c and atomic_save.c share. */
#ifndef AN_PLATFORM_FILES_H
#define AN_PLATFORM_FILES_H

#include "base/base.h"

/* "PATH: cannot WHAT: REASON; what to do about it", AN_E_IO. */
an_status an_fail_io(an_err *err, const char *path, const char *what, int error);
/* Opens the folder that holds `path`; *name is the rest of the path. -1 and errno when it cannot be opened. */
int an_open_folder_of(const char *path, const char **name);

#endif
