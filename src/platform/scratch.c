/* scratch.c: see scratch.h.
 *
 * Invariant: `base` may be a folder that others fill (/tmp, a received run): a folder is swept only when it is this
 *            user's, is no link, and no process holds its lock; no link in it is followed, and no folder of another user
 *            entered. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#include "platform/scratch.h"
#include "platform/files.h"
#include "platform/platform.h"

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

static const char prefix[] = ".anneal-scratch-";
enum { GRACE_S = 60 }; /* one that lives may not have locked its folder yet */

static bool is_scratch(const char *name)
{
    const char *random = name + sizeof prefix - 1;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 && strlen(random) == AN_RANDOM_NAME_BYTES - 1 &&
           strspn(random, "0123456789abcdef") == AN_RANDOM_NAME_BYTES - 1;
}

static int open_inside(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool is_inside(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Removes what is in the folder that `fd` is open on; closes it. */
static void remove_inside(int fd, int depth)
{
    DIR *d = fdopendir(fd);
    if (!d) close(fd);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (!is_inside(e->d_name) || unlinkat(dirfd(d), e->d_name, 0) == 0 || depth == 0) continue;
        struct stat st;
        const int inner = open_inside(dirfd(d), e->d_name);
        if (inner >= 0 && fstat(inner, &st) == 0 && st.st_uid == geteuid())
            remove_inside(inner, depth - 1);
        else if (inner >= 0)
            close(inner);
        (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    }
    if (d) closedir(d); /* a lock on it is held until here */
}

/* Removes the folder that `fd` is open on; closes it. */
static void remove_folder(int base, const char *name, int fd)
{
    const int held = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* the lock, until the folder is gone */
    remove_inside(fd, AN_SCRATCH_DEPTH);
    (void)unlinkat(base, name, AT_REMOVEDIR);
    if (held >= 0) close(held);
}

static void sweep_one(int base, const char *name)
{
    struct stat st;
    const int fd = open_inside(base, name);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && difftime(time(NULL), st.st_mtime) >= GRACE_S &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_folder(base, name, fd);
    else
        close(fd);
}

static void sweep(int base)
{
    const int again = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again >= 0 ? fdopendir(again) : NULL;
    if (!d && again >= 0) close(again);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (is_scratch(e->d_name)) sweep_one(base, e->d_name);
    if (d) closedir(d);
}

static int open_base(const char *base)
{
    return open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void an_scratch_sweep(const char *base)
{
    const int fd = open_base(base);
    if (fd < 0) return;
    sweep(fd);
    close(fd);
}

an_status an_scratch_open(an_err *err, const char *base, an_scratch *out)
{
    char random[AN_RANDOM_NAME_BYTES];
    *out = (an_scratch){.base = 0};
    if (!base) base = getenv("TMPDIR");
    if (!base || !*base) base = "/tmp";
    an_random_name(random);
    snprintf(out->name, sizeof out->name, "%s%s", prefix, random);
    if (snprintf(out->path, sizeof out->path, "%s/%s", base, out->name) >= (int)sizeof out->path)
        return an_fail_io(err, base, "make a folder in it", ENAMETOOLONG);
    const int fd = open_base(base);
    if (fd < 0) return an_fail_io(err, base, "make a folder in it", errno);
    sweep(fd);
    int made = -1;
    if (mkdirat(fd, out->name, 0700) == 0) made = open_inside(fd, out->name);
    if (made < 0) {
        const int why = errno;
        (void)unlinkat(fd, out->name, AT_REMOVEDIR);
        close(fd);
        return an_fail_io(err, base, "make a folder in it", why);
    }
    (void)flock(made, LOCK_EX | LOCK_NB); /* some file systems have no locks: the grace is all there is of it */
    out->base = fd;
    out->fd = made;
    return AN_OK;
}

bool an_scratch_keep(an_scratch *s, const char *name)
{
    struct stat there;
    if (fstatat(s->base, name, &there, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return false;
    }
    if (fstat(s->base, &there) == 0) (void)fchmod(s->fd, there.st_mode & 0777);
    if (renameat(s->base, s->name, s->base, name) != 0) {
        if (errno == ENOTEMPTY) errno = EEXIST;
        return false;
    }
    close(s->fd);
    close(s->base);
    *s = (an_scratch){.base = 0};
    return true;
}

/* ---- moving what is there to the base */

typedef enum step { CHECK, REMOVE_LAST, MOVE, MOVE_LAST } step;

/* One file; 0, or -1 and errno. A file takes the place of a file, not of a folder or device. */
static int take_file(int from, int to, const char *name, step what, bool is_last)
{
    struct stat there;
    const bool taken = fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (what == CHECK && taken && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode)) return errno = EEXIST, -1;
    if (what == REMOVE_LAST && is_last && taken) return unlinkat(to, name, 0);
    if (what == (is_last ? MOVE_LAST : MOVE)) return renameat(from, name, to, name);
    return 0;
}

/* Each file of the folder `from`, which it closes. */
static int take_folder(int from, int to, const char *last, step what, int depth)
{
    DIR *d = fdopendir(from);
    if (!d) return close(from), -1;
    int status = 0;
    for (struct dirent *e; status == 0 && (e = readdir(d)) != NULL;) {
        struct stat st;
        if (!is_inside(e->d_name)) continue;
        if (fstatat(from, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || (S_ISDIR(st.st_mode) && depth == 0)) {
            status = -1;
        } else if (!S_ISDIR(st.st_mode)) {
            status = take_file(from, to, e->d_name, what, strcmp(e->d_name, last) == 0);
        } else {
            if (what == CHECK && mkdirat(to, e->d_name, 0777) != 0 && errno != EEXIST) status = -1;
            const int inner = status == 0 ? open_inside(from, e->d_name) : -1;
            const int place = inner < 0 ? -1 : openat(to, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (place >= 0)
                status = take_folder(inner, place, last, what, depth - 1);
            else
                status = -1, inner >= 0 ? close(inner) : 0;
            if (place >= 0 && what == MOVE_LAST) (void)fsync(place);
            if (place >= 0) close(place);
        }
    }
    const int error = errno;
    closedir(d);
    errno = error;
    return status;
}

an_status an_scratch_deliver(an_err *err, an_scratch *s, const char *last)
{
    for (step what = CHECK; what <= MOVE_LAST; what++) {
        const int from = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (from < 0 || take_folder(from, s->base, last, what, AN_SCRATCH_DEPTH) != 0)
            return an_fail_io(err, s->path, "move its files to their place", errno);
    }
    (void)fsync(s->base);
    return AN_OK;
}

void an_scratch_close(an_scratch *s)
{
    if (s->fd <= 0) return;
    remove_folder(s->base, s->name, s->fd);
    close(s->base);
    *s = (an_scratch){.base = 0};
}
