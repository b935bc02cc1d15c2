/* scratch.c: see scratch.h.
 *
 * Invariant: `base` may be a folder that others fill (/tmp, a received run): a folder is swept only when it is this
 *            user's, is no link, and no process holds its lock; what is removed lies directly in it. */
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

/* Removes the folder that `fd` is open on; closes it. */
static void remove_folder(int base, const char *name, int fd)
{
    DIR *d = fdopendir(fd);
    if (!d) close(fd);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)unlinkat(base, name, AT_REMOVEDIR);
    if (d) closedir(d); /* the lock is held until here */
}

static void sweep_one(int base, const char *name)
{
    struct stat st;
    const int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
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
    if (mkdirat(fd, out->name, 0700) == 0)
        made = openat(fd, out->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
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

void an_scratch_close(an_scratch *s)
{
    if (s->fd <= 0) return;
    remove_folder(s->base, s->name, s->fd);
    close(s->base);
    *s = (an_scratch){.base = 0};
}
