/* stall_at.c: preloaded into the program by test_hanging_read.sh: opening a file whose path ends with STALL_AT never returns once
 * the file STALL_FLAG is there, as on a network file system that has gone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void stall(const char *path)
{
    const char *end = getenv("STALL_AT"), *flag = getenv("STALL_FLAG");
    const size_t n = strlen(path), m = end ? strlen(end) : 0;
    if (!m || n < m || strcmp(path + n - m, end) != 0) return;
    while (flag && access(flag, F_OK) == 0) usleep(100000);
}

static int mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
}

int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    va_list more;
    va_start(more, flags);
    const int mode = mode_of(flags, more);
    va_end(more);
    stall(path);
    return next(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    int (*next)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    va_list more;
    va_start(more, flags);
    const int mode = mode_of(flags, more);
    va_end(more);
    stall(path);
    return next(dir, path, flags, mode);
}
