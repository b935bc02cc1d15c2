/* files.c: whole files in, maps of files, folders, and crash-safe replacement.
 *
 * Owns:      the promise of an_save: a reader, or the next start after a crash, sees the old file or the new one,
 *            and sees it whole. The rule for files of a folder that others may have filled (an_file_open): opened
 *            relative to the folder's descriptor, never through a link, regular files only, never waiting.
 * Invariant: every return value is checked, also close's: a network file system may say only there that the disk is
 *            full.
 *
 * strerror is used for its sentences: glibc (2.32 on) and macOS give constants or per-thread text for it. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#include "base/map.h"
#include "platform/platform.h"

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

static an_status fail_io(an_err *err, const char *path, const char *what, int error)
{
    return an_fail(err, AN_E_IO, "%s: cannot %s: %s; %s", path, what, strerror(error), advice(error));
}

/* ---- opening ---- */

/* Opens the folder that holds `path`; *name is the rest of the path. */
static int open_folder_of(const char *path, const char **name)
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
    if (fstat(fd, &st) != 0) return fail_io(err, path, "open", errno);
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
    const int dir = open_folder_of(path, &name);
    if (dir < 0) return errno == ENOENT && !(flags & O_CREAT) ? AN_OK : fail_io(err, path, "open", errno);
    /* Not waiting matters for a FIFO, whose open would last until a writer comes; regular files do not care. */
    const int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    const int why = errno;
    close(dir);
    if (fd < 0 && why == ENOENT && !(flags & O_CREAT)) return AN_OK;
    if (fd < 0) return fail_io(err, path, "open", why == EMLINK ? ELOOP : why); /* BSD says EMLINK for a link */
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
            status = fail_io(err, path, "read", errno);
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
    if (fd < 0) return fail_io(err, path, "open", errno);
    struct stat st;
    an_status status = fstat(fd, &st) == 0 ? AN_OK : fail_io(err, path, "read", errno);
    if (status == AN_OK && S_ISDIR(st.st_mode)) status = fail_io(err, path, "read", EISDIR);
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
    if (fd < 0) return fail_io(err, path, "open", errno);
    struct stat st;
    an_status status = AN_OK;
    if (fstat(fd, &st) != 0) {
        status = fail_io(err, path, "read", errno);
    } else if (!S_ISREG(st.st_mode)) {
        status = an_fail(err, AN_E_IO, "%s: not a regular file; name one", path);
    } else if (st.st_size > 0) {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = fail_io(err, path, "map", errno);
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

/* ---- crash-safe replacement ---- */

/* Data on the medium, not only in the drive's cache, where the system can promise it. */
static int sync_fd(int fd)
{
#ifdef __APPLE__
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0; /* plain fsync leaves the data in the drive's cache there */
#endif
    int r;
    do r = fsync(fd);
    while (r != 0 && errno == EINTR);
    return r;
}

/* Closes and removes the temporary file; keeps errno for the sentence. */
static void discard(an_save *s)
{
    int error = errno;
    if (s->fd >= 0) close(s->fd);
    if (s->temp[0] != '\0') unlinkat(s->dir, s->temp, 0);
    if (s->name != NULL && s->dir >= 0) close(s->dir); /* an an_save that was never begun has no folder */
    s->fd = s->dir = -1;
    s->temp[0] = '\0';
    errno = error;
}

/* Removes what killed processes left of replacing the same file. A writer holds a lock on its temporary file while it
 * lives; the minute is for the moment between making the file and locking it. */
static void sweep_stale(const an_save *s)
{
    const size_t n = strlen(s->name);
    const int fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL && fd >= 0) close(fd);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        const char *name = e->d_name;
        struct stat st;
        if (name[0] != '.' || strncmp(name + 1, s->name, n) != 0 || name[1 + n] != '.' ||
            strspn(name + 2 + n, "0123456789abcdef") != AN_RANDOM_NAME_BYTES - 1 ||
            strcmp(name + 1 + n + AN_RANDOM_NAME_BYTES, ".tmp") != 0)
            continue;
        if (fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
            time(NULL) - st.st_mtime < 60)
            continue;
        const int stale = openat(s->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (stale < 0) continue;
        if (flock(stale, LOCK_EX | LOCK_NB) == 0) (void)unlinkat(s->dir, name, 0);
        close(stale);
    }
    if (d != NULL) closedir(d);
}

/* Our own O_EXCL loop, not mkstemp: the file gets the permissions that the user's umask gives, not 0600. */
static an_status create_temp(an_err *err, an_save *s)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        char random[AN_RANDOM_NAME_BYTES];
        an_random_name(random);
        if (snprintf(s->temp, sizeof s->temp, ".%s.%s.tmp", s->name, random) >= (int)sizeof s->temp) {
            errno = ENAMETOOLONG;
            break;
        }
        s->fd = openat(s->dir, s->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (s->fd >= 0) {
            (void)flock(s->fd, LOCK_EX | LOCK_NB); /* "a living process writes this"; some file systems have no locks */
            return AN_OK;
        }
        if (errno != EEXIST && errno != EINTR) break;
    }
    s->temp[0] = '\0'; /* a file of that name, if there is one, was not made here */
    discard(s);
    return fail_io(err, s->path, "create a temporary file beside it", errno);
}

an_status an_save_begin(an_err *err, const char *path, an_save *out)
{
    *out = (an_save){.fd = -1, .dir = -1};
    if (strlen(path) >= sizeof out->path) return fail_io(err, path, "save", ENAMETOOLONG);
    memcpy(out->path, path, strlen(path) + 1);
    out->dir = open_folder_of(out->path, &out->name);
    if (*out->name == '\0') {
        discard(out);
        return fail_io(err, path, "save", EISDIR);
    }
    if (out->dir < 0) return fail_io(err, path, "create a temporary file beside it", errno);
    struct stat there; /* a rename would put a file in the place of a device, a pipe or a socket */
    if (fstatat(out->dir, out->name, &there, 0) == 0 && !S_ISREG(there.st_mode)) {
        discard(out);
        return an_fail(err, AN_E_IO, "%s: is not a regular file, and is not replaced; name another file", path);
    }
    sweep_stale(out);
    return create_temp(err, out);
}

static an_status not_open(an_err *err, const an_save *s)
{
    return an_fail(err, AN_E_IO,
                   "%s: was not saved, because an earlier write failed; the old file, if any, is untouched", s->path);
}

an_status an_save_write(an_err *err, an_save *s, const void *data, size_t bytes)
{
    if (s->fd < 0) return not_open(err, s);
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = write(s->fd, p, AN_MIN(bytes, (size_t)IO_MAX));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = ENOSPC; /* a regular file takes at least a byte or says why not */
            discard(s);
            return fail_io(err, s->path, "write", errno);
        }
        p += n;
        bytes -= (size_t)n;
        s->bytes += (uint64_t)n;
    }
    return AN_OK;
}

/* A rename is on the medium when its folder is. Some file systems cannot sync a folder and say EINVAL: nothing to do.
 * Closes the folder. */
static int sync_folder(an_save *s)
{
    int r = sync_fd(s->dir);
    if (r != 0 && (errno == EINVAL || errno == ENOTSUP)) r = 0;
    const int error = errno;
    if (close(s->dir) != 0 && r == 0) r = -1;
    s->dir = -1;
    if (r != 0) errno = error;
    return r;
}

an_status an_save_commit(an_err *err, an_save *s)
{
    if (s->fd < 0) return not_open(err, s);
    const char *what = NULL;
    if (sync_fd(s->fd) != 0) what = "sync";
    int fd = s->fd;
    if (what == NULL) {
        s->fd = -1;
        if (close(fd) != 0) what = "close"; /* the descriptor is gone either way */
    }
    if (what == NULL && renameat(s->dir, s->temp, s->dir, s->name) != 0) what = "replace";
    if (what != NULL) {
        discard(s);
        return fail_io(err, s->path, what, errno);
    }
    s->temp[0] = '\0';
    if (sync_folder(s) != 0)
        return fail_io(err, s->path, "sync the folder; the new file is in place but may not survive a power loss",
                       errno);
    return AN_OK;
}

void an_save_abort(an_save *s)
{
    discard(s);
}

an_status an_file_write(an_err *err, const char *path, const void *data, size_t bytes)
{
    an_save s;
    AN_TRY(an_save_begin(err, path, &s));
    an_status status = an_save_write(err, &s, data, bytes);
    return status == AN_OK ? an_save_commit(err, &s) : status; /* a failed write has removed the temporary file */
}

/* ---- folders ---- */

an_status an_make_dirs(an_err *err, const char *path, unsigned mode)
{
    char part[1024];
    size_t len = strlen(path);
    if (len == 0) return fail_io(err, "(empty path)", "make the folder", ENOENT);
    if (len >= sizeof part) return fail_io(err, path, "make the folder", ENAMETOOLONG);
    for (size_t i = 1; i <= len; i++) {
        if (i < len && path[i] != '/') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, (mode_t)mode) == 0) continue;
        int error = errno; /* EEXIST as a rule; EROFS, EACCES too for folders that exist */
        struct stat st;
        if (stat(part, &st) != 0) return fail_io(err, part, "make the folder", error);
        if (!S_ISDIR(st.st_mode)) return fail_io(err, part, "make the folder", ENOTDIR);
    }
    return AN_OK;
}
