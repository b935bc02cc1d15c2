/* files.c: whole files in, maps of files, folders. Writing a file: atomic_save.c.
 *
 * Owns:      the rule for files of a folder that others may have filled (an_file_open): opened relative to the folder's
 *            descriptor, never through a link, regular files only, never waiting.
 * Invariant: every return value is checked.
 *
 * strerror is used for its sentences: glibc (2.32 on) and macOS give constants or per-thread text for it. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#include "base/map.h"
#include "platform/platform.h"
#include "platform/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

enum { IO_MAX = 1 << 30 }; /* macOS refuses more than INT_MAX bytes in one call */

double an_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double an_wait_clock_at(an_wait_clock *c, double now)
{
    if (c->last > 0) c->waited += AN_MIN(AN_MAX(now - c->last, 0), AN_WAIT_CLOCK_MOST);
    c->last = now;
    return c->waited;
}

double an_wait_clock_ask(an_wait_clock *c)
{
    return an_wait_clock_at(c, an_seconds());
}

/* What a person can do about it. */
static const char *advice(int error)
{
    switch (error) {
    case ENOSPC: return "free some space or use another disk";
#ifdef EDQUOT
    case EDQUOT: return "your quota is used up: remove files or use another disk";
#endif
    case EFBIG: return "the file system or a limit (ulimit -f) forbids files of this size";
    case EACCES:
    case EPERM: return "check the permissions of the file and its folder";
    case EROFS: return "the disk is read-only: use another one";
    case ENOENT: return "check the name";
    case ENOTDIR: return "a part of the path is not a folder";
    case EISDIR: return "this is a folder: name a file in it";
    case ENAMETOOLONG: return "use a shorter name";
    case EMFILE:
    case ENFILE: return "too many open files: raise ulimit -n";
    case ELOOP: return "it is a symbolic link, which is not followed here: put the file itself in its place";
    case EIO: return "the disk reports an error: check it, and use another one";
    default: return "check the disk and the path";
    }
}

an_status an_fail_io(an_err *err, const char *path, const char *what, int error)
{
    const bool first = err && err->code == AN_OK;
    an_fail(err, AN_E_IO, "%s: cannot %s: %s; %s", path, what, strerror(error), advice(error));
    for (char *c = first ? err->text : NULL; c && *c; c++) /* a received file may name a file over several lines */
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    return AN_E_IO;
}

/* ---- opening ---- */

int an_open_folder_of(const char *path, const char **name)
{
    char dir[1024];
    const char *slash = strrchr(path, '/');
    const size_t len = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    *name = slash ? slash + 1 : path;
    if (len >= sizeof dir) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(dir, len ? path : ".", len ? len : 1);
    dir[len ? len : 1] = '\0';
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A regular file with one name. A second name (a hard link) would make every change here a change elsewhere. */
static an_status check_opened(an_err *err, int fd, const char *path, bool writes)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return an_fail_io(err, path, "open", errno);
    if (!S_ISREG(st.st_mode)) return an_fail(err, AN_E_IO, "%s: not a regular file; remove it, or name one", path);
    if (writes && st.st_nlink > 1)
        return an_fail(err, AN_E_IO,
                       "%s: has %lu names (hard links), so that writing to it would change the others too; "
                       "replace it by a copy",
                       path, (unsigned long)st.st_nlink);
    return AN_OK;
}

an_status an_file_open(an_err *err, const char *path, int flags, int *out)
{
    const char *name;
    *out = -1;
    const int dir = an_open_folder_of(path, &name);
    if (dir < 0) return errno == ENOENT && !(flags & O_CREAT) ? AN_OK : an_fail_io(err, path, "open", errno);
    /* Not waiting matters for a FIFO, whose open would last until a writer comes; regular files do not care. */
    const int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    const int why = errno;
    close(dir);
    if (fd < 0 && why == ENOENT && !(flags & O_CREAT)) return AN_OK;
    if (fd < 0) return an_fail_io(err, path, "open", why == EMLINK ? ELOOP : why); /* BSD says EMLINK for a link */
    an_status status = check_opened(err, fd, path, (flags & O_ACCMODE) != O_RDONLY);
    if (status != AN_OK)
        close(fd);
    else
        *out = fd;
    return status;
}

void an_random_name(char out[AN_RANDOM_NAME_BYTES])
{
    uint64_t bits;
    if (getentropy(&bits, sizeof bits) != 0) { /* an old kernel, or a sandbox: O_EXCL still keeps a guess harmless */
        const double now = an_seconds();
        bits = an_hash(&now, sizeof now, (uint64_t)getpid());
    }
    snprintf(out, AN_RANDOM_NAME_BYTES, "%016llx", (unsigned long long)bits);
}

/* ---- reading ---- */

/* Reads until the end. The size that the system tells is a hint only: files in /proc have 0, and a file may grow. */
static an_status read_all(an_err *err, int fd, const char *path, size_t hint, size_t max_bytes, char **out,
                          size_t *out_bytes)
{
    size_t cap = AN_MIN(hint, max_bytes) + 1, len = 0;
    char *data = malloc(cap + 1);
    for (;;) {
        if (data == NULL) return an_fail_nomem(err, path, cap + 1);
        ssize_t n = read(fd, data + len, AN_MIN(cap - len, (size_t)IO_MAX));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) break;
        an_status status = AN_OK;
        if (n < 0)
            status = an_fail_io(err, path, "read", errno);
        else if ((len += (size_t)n) > max_bytes)
            status = an_fail(err, AN_E_IO,
                             "%s: larger than %zu bytes, which is too large for what it should be; check the name",
                             path, max_bytes);
        if (status != AN_OK) {
            free(data);
            return status;
        }
        if (len < cap) continue;
        cap += AN_MIN(AN_MAX(cap, (size_t)4096), max_bytes - len + 1);
        char *grown = realloc(data, cap + 1);
        if (grown == NULL) free(data);
        data = grown;
    }
    data[len] = '\0';
    *out = data;
    *out_bytes = len;
    return AN_OK;
}

an_status an_file_read(an_err *err, const char *path, size_t max_bytes, char **out, size_t *out_bytes)
{
    *out = NULL;
    *out_bytes = 0;
    if (max_bytes == 0 || max_bytes > SIZE_MAX / 4) max_bytes = SIZE_MAX / 4;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block; files do not care */
    if (fd < 0) return an_fail_io(err, path, "open", errno);
    struct stat st;
    an_status status = fstat(fd, &st) == 0 ? AN_OK : an_fail_io(err, path, "read", errno);
    if (status == AN_OK && S_ISDIR(st.st_mode)) status = an_fail_io(err, path, "read", EISDIR);
    if (status == AN_OK && !S_ISREG(st.st_mode))
        status = an_fail(err, AN_E_IO, "%s: not a regular file; name one", path);
    if (status == AN_OK)
        status = read_all(err, fd, path, st.st_size > 0 ? (size_t)st.st_size : 0, max_bytes, out, out_bytes);
    close(fd); /* only read: nothing can be lost */
    return status;
}

an_status an_file_map(an_err *err, const char *path, an_map_file *out)
{
    *out = (an_map_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block; files do not care */
    if (fd < 0) return an_fail_io(err, path, "open", errno);
    struct stat st;
    an_status status = AN_OK;
    if (fstat(fd, &st) != 0) {
        status = an_fail_io(err, path, "read", errno);
    } else if (!S_ISREG(st.st_mode)) {
        status = an_fail(err, AN_E_IO, "%s: not a regular file; name one", path);
    } else if (st.st_size > 0) {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = an_fail_io(err, path, "map", errno);
        else
            *out = (an_map_file){data, (size_t)st.st_size};
        if (status == AN_OK) an_guard_map(data, out->bytes, path);
    }
    close(fd);
    return status;
}

void an_file_unmap(an_map_file *m)
{
    an_guard_unmap(m->data);
    if (m->data != NULL) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (an_map_file){0};
}

/* ---- folders ---- */

an_status an_make_dirs(an_err *err, const char *path, unsigned mode)
{
    char part[1024];
    size_t len = strlen(path);
    if (len == 0) return an_fail_io(err, "(empty path)", "make the folder", ENOENT);
    if (len >= sizeof part) return an_fail_io(err, path, "make the folder", ENAMETOOLONG);
    for (size_t i = 1; i <= len; i++) {
        if (i < len && path[i] != '/') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, (mode_t)mode) == 0) continue;
        int error = errno; /* EEXIST as a rule; EROFS, EACCES too for folders that exist */
        struct stat st;
        if (stat(part, &st) != 0) return an_fail_io(err, part, "make the folder", error);
        if (!S_ISDIR(st.st_mode)) return an_fail_io(err, part, "make the folder", ENOTDIR);
    }
    return AN_OK;
}
