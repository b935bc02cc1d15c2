#define _DEFAULT_SOURCE
#include "train/folder.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the lock */

/* Like mkdir -p; gives the reason of the first folder that could not be made, 0 when there is none. */
static int make_folders(const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    int why = 0;
    snprintf(path, sizeof path, "%s", dir);
    for (char *p = path + 1;; p++) {
        const char end = *p;
        if (end != '/' && end != 0) continue;
        *p = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST && why == 0) why = errno;
        *p = end;
        if (end == 0) return why;
    }
}

an_status an_folder_lock(an_err *err, const char *dir, int *out)
{
    char path[AN_CKPT_PATH_BYTES];
    *out = -1;
    if (snprintf(path, sizeof path, "%s/.lock", dir) >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", dir);
    const int unmade = make_folders(dir), fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return an_fail(err, AN_E_IO, "%s: %s; name another folder with out=", unmade ? dir : path,
                       strerror(unmade ? unmade : errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int why = errno;
        close(fd);
        if (why == EWOULDBLOCK)
            return an_fail(err, AN_E_ENV, "%s: another process trains here; name another folder", dir);
        return an_fail(err, AN_E_IO, "%s: %s", path, strerror(why));
    }
    *out = fd;
    return AN_OK;
}

void an_folder_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

/* ---- making room for a new run */

static bool is_ours(const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || name[0] == '.') return false;
    if (strcmp(dot, ".jsonl") == 0) return strcmp(name, "metrics.jsonl") == 0 || strcmp(name, "logbook.jsonl") == 0;
    return strcmp(dot, ".safetensors") == 0 &&
           (strncmp(name, "step_", 5) == 0 || strcmp(name, "last.safetensors") == 0 ||
            strcmp(name, "best.safetensors") == 0);
}

/* Removes our files in `from`, or with `to` moves them there. */
static an_status clear_folder(an_err *err, const char *from, const char *to)
{
    DIR *d = opendir(from);
    if (!d) return errno == ENOENT ? AN_OK : an_fail(err, AN_E_IO, "%s: %s", from, strerror(errno));
    an_status status = AN_OK;
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;) {
        if (!is_ours(e->d_name)) continue;
        char old[AN_CKPT_PATH_BYTES + 256], new[AN_CKPT_PATH_BYTES + 256];
        snprintf(old, sizeof old, "%s/%s", from, e->d_name);
        snprintf(new, sizeof new, "%s/%s", to ? to : "", e->d_name);
        if ((to ? rename(old, new) : unlink(old)) != 0) status = an_fail(err, AN_E_IO, "%s: %s", old, strerror(errno));
    }
    closedir(d);
    return status;
}

an_status an_folder_set_aside(an_err *err, const char *dir, bool *moved)
{
    char previous[AN_CKPT_PATH_BYTES], last[AN_CKPT_PATH_BYTES];
    struct stat info;
    *moved = false;
    int n = snprintf(previous, sizeof previous, "%s/previous", dir);
    if (n >= AN_CKPT_PATH_BYTES - 32) return an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", dir);
    snprintf(last, sizeof last, "%s/last.safetensors", dir);
    if (stat(last, &info) != 0) return clear_folder(err, dir, NULL); /* metrics of a run that never saved */
    if (mkdir(previous, 0777) != 0 && errno != EEXIST)
        return an_fail(err, AN_E_IO, "%s: %s", previous, strerror(errno));
    AN_TRY(clear_folder(err, previous, NULL));
    *moved = true;
    return clear_folder(err, dir, previous);
}
