/* atomic_save.c: replacing a file so that it is never half written (an_save, platform.h): checkpoints, exports, caches,
 * prepared data, curves.
 *
 *     begin    DIR/.NAME.RANDOM.tmp is made and locked
 *     write    appends
 *     commit   fsync, rename to DIR/NAME, fsync of the folder
 *
 * Owns:      the promise that a reader, or the next start after a crash, sees the old file or the new one, and sees it
 *            whole; removing temporary files of writers that were killed (an_save_sweep).
 * Invariant: every return value is checked, also close's: a network file system may say only there that the disk is
 *            full. strerror: as in files.c. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#include "platform/platform.h"
#include "platform/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { IO_MAX = 1 << 30 }; /* macOS refuses more than INT_MAX bytes in one call */

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

/* Whether `name` is .NAME.RANDOM.tmp; `n` is the length of NAME. */
static bool is_temporary(const char *name, size_t *n)
{
    const size_t random = AN_RANDOM_NAME_BYTES - 1, end = random + sizeof ".tmp", all = strlen(name);
    if (name[0] != '.' || all <= 1 + end || name[all - end] != '.' || strcmp(name + all - 4, ".tmp") != 0) return false;
    *n = all - 1 - end;
    return strspn(name + all - end + 1, "0123456789abcdef") == random;
}

/* A writer holds a lock on its temporary file while it lives. */
static void remove_unlocked(int dir, const char *name, double older_than_s)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        difftime(time(NULL), st.st_mtime) < older_than_s)
        return;
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)unlinkat(dir, name, 0);
    close(fd);
}

static void sweep(int fd, double older_than_s, an_save_sweep_fn takes, const void *arg)
{
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL && fd >= 0) close(fd);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        size_t n;
        if (is_temporary(e->d_name, &n) && takes(e->d_name + 1, n, arg))
            remove_unlocked(dirfd(d), e->d_name, older_than_s);
    }
    if (d != NULL) closedir(d);
}

void an_save_sweep(const char *dir, an_save_sweep_fn takes, const void *arg)
{
    sweep(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0, takes, arg);
}

static bool is_same_name(const char *name, size_t n, const void *arg)
{
    return strlen(arg) == n && strncmp(name, arg, n) == 0;
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
    return an_fail_io(err, s->path, "create a temporary file beside it", errno);
}

static an_status begin(an_err *err, const char *path, bool losable, an_save *out)
{
    *out = (an_save){.fd = -1, .dir = -1, .losable = losable};
    if (strlen(path) >= sizeof out->path) return an_fail_io(err, path, "save", ENAMETOOLONG);
    memcpy(out->path, path, strlen(path) + 1);
    out->dir = an_open_folder_of(out->path, &out->name);
    if (*out->name == '\0') {
        discard(out);
        return an_fail_io(err, path, "save", EISDIR);
    }
    if (out->dir < 0) return an_fail_io(err, path, "create a temporary file beside it", errno);
    struct stat there; /* a rename would put a file in the place of a device, a pipe or a socket */
    if (fstatat(out->dir, out->name, &there, 0) == 0 && !S_ISREG(there.st_mode)) {
        discard(out);
        return an_fail(err, AN_E_IO, "%s: is not a regular file, and is not replaced; name another file", path);
    }
    /* What killed writers of the same file left. A minute: a living one may not have locked its file yet. */
    if (!losable) sweep(openat(out->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 60, is_same_name, out->name);
    return create_temp(err, out);
}

an_status an_save_begin(an_err *err, const char *path, an_save *out)
{
    return begin(err, path, false, out);
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
            return an_fail_io(err, s->path, "write", errno);
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
    int r = s->losable ? 0 : sync_fd(s->dir);
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
    if (!s->losable && sync_fd(s->fd) != 0) what = "sync";
    int fd = s->fd;
    if (what == NULL) {
        s->fd = -1;
        if (close(fd) != 0) what = "close"; /* the descriptor is gone either way */
    }
    if (what == NULL && renameat(s->dir, s->temp, s->dir, s->name) != 0) what = "replace";
    if (what != NULL) {
        discard(s);
        return an_fail_io(err, s->path, what, errno);
    }
    s->temp[0] = '\0';
    if (sync_folder(s) != 0)
        return an_fail_io(err, s->path, "sync the folder; the new file is in place but may not survive a power loss",
                          errno);
    return AN_OK;
}

void an_save_abort(an_save *s)
{
    discard(s);
}

static an_status write_whole(an_err *err, const char *path, bool losable, const void *data, size_t bytes)
{
    an_save s;
    AN_TRY(begin(err, path, losable, &s));
    an_status status = an_save_write(err, &s, data, bytes);
    return status == AN_OK ? an_save_commit(err, &s) : status; /* a failed write has removed the temporary file */
}

an_status an_file_write(an_err *err, const char *path, const void *data, size_t bytes)
{
    return write_whole(err, path, false, data, bytes);
}

an_status an_file_write_losable(an_err *err, const char *path, const void *data, size_t bytes)
{
    return write_whole(err, path, true, data, bytes);
}
