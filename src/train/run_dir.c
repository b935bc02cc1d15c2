/* run_dir.c: the folder of a run: its lock, and moving an earlier run's files aside. See run_dir.h.
 *
 * Invariant: the folder is untrusted; its files are opened with an_file_open, which follows no links. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700 /* realpath */
#include "train/run_dir.h"
#include "platform/platform.h"
#include "platform/scratch.h"
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

/* ---- the lock */

/* Like mkdir -p; returns the errno of the first folder that could not be made, 0 on success. */
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

/* Files that a run replaces while it goes on, besides checkpoints, of which checkpoint.c removes the older
 * ones (an_ckpt_prune). */
static bool is_replaced(const char *name, size_t n, const void *unused)
{
    static const char *const names[] = {"config.yaml", "all_config.yaml", "metrics.jsonl", "ranks.jsonl", "loss.svg"};
    (void)unused;
    for (size_t i = 0; i < AN_COUNT(names); i++)
        if (strlen(names[i]) == n && strncmp(name, names[i], n) == 0) return true;
    return false;
}

/* A compiler that a killed run was about to start holds its lock until it is one: the run may be resumed at once all the same. */
static bool lock_soon(int fd)
{
    enum { TRIES = 50 };
    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
        if (errno != EWOULDBLOCK) return false;
        if (i + 1 < TRIES) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    errno = EWOULDBLOCK;
    return false;
}

static an_status lock_folder(an_err *err, const char *dir, int *out)
{
    char path[AN_CKPT_PATH_BYTES];
    *out = -1;
    if (snprintf(path, sizeof path, "%s/.lock", dir) >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", dir);
    const int unmade = make_folders(dir);
    if (unmade && access(dir, F_OK) != 0)
        return an_fail(err, AN_E_IO, "%s: %s; name another folder with out=", dir, strerror(unmade));
    int fd;
    an_err why_not = {0};
    if (an_file_open(&why_not, path, O_RDWR | O_CREAT, &fd) != AN_OK)
        return an_fail(err, AN_E_IO, "%s; or name another folder with out=", why_not.text);
    if (!lock_soon(fd)) {
        const int why = errno;
        close(fd);
        if (why == EWOULDBLOCK)
            return an_fail(err, AN_E_ENV,
                           "%s: another process trains here; wait for it or stop it (Ctrl-C saves first), or name "
                           "another folder with "
                           "out=",
                           dir);
        return an_fail(err, AN_E_IO, "%s: %s", path, strerror(why));
    }
    an_save_sweep(dir, is_replaced, NULL);
    an_scratch_sweep(dir);
    an_run_dir_clear_stop(dir);
    *out = fd;
    return AN_OK;
}

an_status an_run_dir_check(an_err *err, const char *dir, int lock)
{
    struct stat held, there;
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/.lock", dir);
    if (fstat(lock, &held) == 0 && lstat(path, &there) == 0 && held.st_ino == there.st_ino &&
        held.st_dev == there.st_dev)
        return AN_OK;
    if (lstat(dir, &there) != 0)
        return an_fail(err, AN_E_IO,
                       "%s: the folder was removed or renamed since the run began, and nothing was written after "
                       "that; if it was renamed, anneal resume NEW_NAME goes on from its last checkpoint",
                       dir);
    return an_fail(err, AN_E_IO,
                   "%s: the folder or its .lock was removed or replaced while the run went on, and another run may "
                   "write there now: this run writes nothing more to it; restart with another out=",
                   dir);
}

void an_run_dir_sweep(const char *dir)
{
    an_err busy = {0};
    int lock;
    if (an_run_dir_is_a_run(dir) && lock_folder(&busy, dir, &lock) == AN_OK) an_run_dir_unlock(lock);
}

bool an_run_dir_is_locked(const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    an_err unused = {0};
    int fd;
    if (snprintf(path, sizeof path, "%s/.lock", dir) >= (int)sizeof path) return false;
    if (an_file_open(&unused, path, O_RDONLY, &fd) != AN_OK || fd < 0) return false;
    const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

/* ---- asking a run to end */

static bool stop_path(const char *dir, char path[AN_CKPT_PATH_BYTES])
{
    return snprintf(path, AN_CKPT_PATH_BYTES, "%s/.stop", dir) < AN_CKPT_PATH_BYTES;
}

an_status an_run_dir_ask_stop(an_err *err, const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    int fd;
    if (!stop_path(dir, path)) return an_fail(err, AN_E_USAGE, "%.100s...: the path is too long", dir);
    AN_TRY(an_file_open(err, path, O_RDWR | O_CREAT, &fd));
    close(fd);
    return AN_OK;
}

bool an_run_dir_stop_asked(const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    struct stat there;
    return stop_path(dir, path) && lstat(path, &there) == 0 && S_ISREG(there.st_mode);
}

void an_run_dir_clear_stop(const char *dir)
{
    char path[AN_CKPT_PATH_BYTES];
    if (an_run_dir_stop_asked(dir) && stop_path(dir, path)) unlink(path);
}

void an_run_dir_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

/* ---- moving an earlier run's files aside */

/* N of step_N.safetensors, -1 for any other name. */
static int64_t step_of(const char *name)
{
    long long step = 0;
    int end = 0;
    if (sscanf(name, "step_%18lld%n", &step, &end) != 1 || strcmp(name + end, ".safetensors") != 0) return -1;
    return name[5] >= '0' && name[5] <= '9' ? step : -1;
}

/* Whether `anneal train` writes files of this name. */
static bool is_ours(const char *name)
{
    static const char *const names[] = {"metrics.jsonl",   "ranks.jsonl", "logbook.jsonl",    "config.yaml",
                                        "all_config.yaml", "loss.svg",    "last.safetensors", "best.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return step_of(name) >= 0 || strncmp(name, "events.out.tfevents.", 20) == 0;
}

static bool is_checkpoint(const char *name)
{
    return step_of(name) >= 0 || strcmp(name, "last.safetensors") == 0 || strcmp(name, "best.safetensors") == 0;
}

/* Whether a new run (after < 0), or one resumed at update `after`, will overwrite the file `name`. In a folder without
 * an earlier run (`foreign`) that includes config.yaml and the like, which are then a user's own files. */
static bool overwrites(const char *name, int64_t after, bool foreign)
{
    if (after < 0) return is_ours(name);
    return is_checkpoint(name) ? step_of(name) > after || step_of(name) < 0 : foreign && is_ours(name);
}

/* Whether `dir` has a file that would be lost. A run resumed at `after` loses later checkpoints; last and best are
 * replaced by design. */
static bool would_lose(const char *dir, int64_t after, bool foreign)
{
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d)) != NULL;) {
        const bool replaced = after >= 0 && is_checkpoint(e->d_name) && step_of(e->d_name) < 0;
        found = overwrites(e->d_name, after, foreign) && !replaced;
    }
    if (d) closedir(d);
    return found;
}

static an_status copy_blocks(an_err *err, int in, const char *from, an_save *out)
{
    char block[65536];
    ssize_t n;
    while ((n = read(in, block, sizeof block)) > 0) AN_TRY(an_save_write(err, out, block, (size_t)n));
    return n == 0 ? AN_OK : an_fail(err, AN_E_IO, "%s: %s", from, strerror(errno));
}

static an_status copy_file(an_err *err, const char *dir, const char *name, const char *to)
{
    char from[AN_CKPT_PATH_BYTES + 32], path[AN_CKPT_PATH_BYTES + 32];
    int in;
    an_save out;
    snprintf(from, sizeof from, "%s/%s", dir, name);
    snprintf(path, sizeof path, "%s/%s", to, name);
    AN_TRY(an_file_open(err, from, O_RDONLY, &in));
    if (in < 0) return AN_OK;
    an_status status = an_save_begin(err, path, &out);
    if (status == AN_OK) {
        status = copy_blocks(err, in, from, &out);
        if (status == AN_OK)
            status = an_save_commit(err, &out);
        else
            an_save_abort(&out);
    }
    close(in);
    return status;
}

/* Copies a file to the folder `to`; AN_OK where there is none. A checkpoint is linked where the file system can, since
 * it is large and never written in place. */
static an_status keep_file(an_err *err, const char *dir, const char *name, const char *to)
{
    char old[AN_CKPT_PATH_BYTES + 256], new[AN_CKPT_PATH_BYTES + 256];
    struct stat there;
    snprintf(old, sizeof old, "%s/%s", dir, name);
    snprintf(new, sizeof new, "%s/%s", to, name);
    if (lstat(old, &there) != 0 && errno == ENOENT) return AN_OK;
    if (is_checkpoint(name) && link(old, new) == 0) return AN_OK;
    return copy_file(err, dir, name, to);
}

/* The folder becomes the first of previous, previous-2, ... that does not exist. Existing ones are never changed. */
static an_status name_previous(an_err *err, const char *dir, an_scratch *s, char out[AN_CKPT_PATH_BYTES])
{
    for (int i = 1; i < 100000; i++) {
        char name[32] = "previous";
        if (i > 1) snprintf(name, sizeof name, "previous-%d", i);
        if (snprintf(out, AN_CKPT_PATH_BYTES, "%s/%s", dir, name) >= AN_CKPT_PATH_BYTES - 32)
            return an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", dir);
        if (an_scratch_keep(s, name)) return AN_OK;
        if (errno != EEXIST) return an_fail(err, AN_E_IO, "%s: %s", out, strerror(errno));
    }
    return an_fail(err, AN_E_IO, "%s: holds too many earlier runs; name another folder with out=", dir);
}

/* Makes that folder, with copies of those of the n `names` that exist. It appears under its name only when it is
 * complete: a process killed before that leaves none. */
static an_status make_previous(an_err *err, const char *dir, const char *const *names, size_t n,
                               char out[AN_CKPT_PATH_BYTES])
{
    an_scratch s;
    an_status status = an_scratch_open(err, dir, &s);
    for (size_t i = 0; status == AN_OK && i < n; i++) status = keep_file(err, dir, names[i], s.path);
    if (status == AN_OK) status = name_previous(err, dir, &s, out);
    if (status != AN_OK) out[0] = 0;
    an_scratch_close(&s);
    return status;
}

static an_status move_file(an_err *err, const char *dir, const char *name, const char *to)
{
    char old[AN_CKPT_PATH_BYTES + 256], new[AN_CKPT_PATH_BYTES + 256];
    snprintf(old, sizeof old, "%s/%s", dir, name);
    snprintf(new, sizeof new, "%s/%s", to, name);
    return rename(old, new) == 0 ? AN_OK : an_fail(err, AN_E_IO, "%s: %s", old, strerror(errno));
}

/* Moves the files that the run would overwrite to `to`. The checkpoint that it resumes from stays. */
static an_status move_files(an_err *err, const char *dir, int64_t after, bool foreign, const char *to)
{
    DIR *d = opendir(dir);
    if (!d) return an_fail(err, AN_E_IO, "%s: %s", dir, strerror(errno));
    const bool later = would_lose(dir, after, false); /* checkpoints of a later update: last and best are theirs */
    an_status status = AN_OK;
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;) {
        if (!overwrites(e->d_name, after, foreign) || (is_checkpoint(e->d_name) && !later)) continue;
        status = move_file(err, dir, e->d_name, to);
    }
    closedir(d);
    return status;
}

static an_status set_aside(an_err *err, const char *dir, int64_t after, bool foreign, char to[AN_CKPT_PATH_BYTES])
{
    if (!would_lose(dir, after, foreign)) return AN_OK;
    /* A resumed run drops the lines of later updates from these, in place: the copies keep them. */
    static const char *const lines[] = {"metrics.jsonl", "ranks.jsonl"};
    AN_TRY(make_previous(err, dir, lines, after >= 0 && !foreign ? AN_COUNT(lines) : 0, to));
    return move_files(err, dir, after, foreign, to);
}

/* ---- replacing a run's files by a newer state from elsewhere */

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Moves the run's files that are not among `names` to the folder `to`. */
static an_status move_others(an_err *err, const char *dir, const char *const *names, size_t n, const char *to)
{
    DIR *d = opendir(dir);
    if (!d) return an_fail(err, AN_E_IO, "%s: %s", dir, strerror(errno));
    an_status status = AN_OK;
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;)
        if (is_ours(e->d_name) && !is_among(e->d_name, names, n)) status = move_file(err, dir, e->d_name, to);
    closedir(d);
    return status;
}

an_status an_run_dir_replace(an_err *err, const char *dir, const char *from, const char *const *names, size_t n,
                             char aside[AN_CKPT_PATH_BYTES])
{
    AN_TRY(make_previous(err, dir, names, n, aside));
    AN_TRY(move_others(err, dir, names, n, aside));
    for (size_t i = 0; i < n; i++) AN_TRY(move_file(err, from, names[i], dir));
    return AN_OK;
}

bool an_run_dir_is_a_run(const char *dir)
{
    static const char *const signs[] = {".lock", "logbook.jsonl"}; /* .lock is created first */
    char path[AN_CKPT_PATH_BYTES + 32];
    bool found = false;
    struct stat info;
    for (int i = 0; i < 2 && !found; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, signs[i]);
        found = lstat(path, &info) == 0;
    }
    return found;
}

static bool is_file_of_a_run(const char *path)
{
    char dir[AN_CKPT_PATH_BYTES];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!is_ours(name)) return false;
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)AN_MIN(slash - path, (ptrdiff_t)sizeof dir - 1) : 1,
             slash ? path : ".");
    return an_run_dir_is_a_run(slash == path ? "/" : dir);
}

an_status an_run_dir_check_output(an_err *err, const char *path)
{
    char *real = realpath(path, NULL); /* NULL: there is no such file, or no memory: then the name decides */
    const bool refused = *path && (is_file_of_a_run(path) || (real && is_file_of_a_run(real)));
    free(real);
    return refused ? an_fail(err, AN_E_USAGE,
                             "%s: this is a file of a run, which would be lost: name another file to be written", path)
                   : AN_OK;
}

/* Whether a resumed run can write its files: asked before the first of them is written, so that a folder which cannot be gone on with
 * stays as it is. */
static an_status check_writable(an_err *err, const char *dir)
{
    static const char *const replaced[] = {"config.yaml", "all_config.yaml", "loss.svg", "last.safetensors",
                                           "best.safetensors"};
    static const char *const added_to[] = {"logbook.jsonl", "metrics.jsonl", "ranks.jsonl"};
    char path[AN_CKPT_PATH_BYTES + 32];
    struct stat there;
    for (size_t i = 0; i < AN_COUNT(replaced); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, replaced[i]);
        if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
            return an_fail(err, AN_E_IO,
                           "%s: is not a regular file, and is not replaced; nothing was written: move it away, or name "
                           "another folder with out=",
                           path);
    }
    for (size_t i = 0; i < AN_COUNT(added_to); i++) {
        int fd;
        snprintf(path, sizeof path, "%s/%s", dir, added_to[i]);
        AN_TRY(an_file_open(err, path, O_RDWR, &fd));
        if (fd >= 0) close(fd);
    }
    return AN_OK;
}

an_status an_run_dir_lock(an_err *err, const char *dir, int *lock)
{
    return lock_folder(err, dir, lock);
}

an_status an_run_dir_take(an_err *err, const char *dir, int64_t after, int *lock, char aside[AN_CKPT_PATH_BYTES])
{
    const bool foreign = !an_run_dir_is_a_run(dir); /* checked before locking, which creates the sign .lock */
    aside[0] = 0;
    *lock = -1;
    if (after < 0 && foreign && would_lose(dir, after, foreign))
        return an_fail(err, AN_E_USAGE,
                       "%s: holds files with the names of a run's (config.yaml, metrics.jsonl, ...), but no run of "
                       "anneal was in it: nothing in it was changed; name another folder with out=",
                       dir);
    AN_TRY(lock_folder(err, dir, lock));
    if (after >= 0 && !foreign) AN_TRY(check_writable(err, dir));
    return set_aside(err, dir, after, foreign, aside);
}
