#define _DEFAULT_SOURCE
#include "train/run_dir.h"
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

an_status an_run_dir_lock(an_err *err, const char *dir, int *out)
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
            return an_fail(err, AN_E_ENV,
                           "%s: another process trains here; wait for it or stop it (Ctrl-C saves first), or name "
                           "another folder with "
                           "out=",
                           dir);
        return an_fail(err, AN_E_IO, "%s: %s", path, strerror(why));
    }
    *out = fd;
    return AN_OK;
}

void an_run_dir_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

/* ---- making room for a new run */

/* N of step_N.safetensors, -1 for any other name. */
static int64_t step_of(const char *name)
{
    long long step = 0;
    int end = 0;
    if (sscanf(name, "step_%18lld%n", &step, &end) != 1 || strcmp(name + end, ".safetensors") != 0) return -1;
    return name[5] >= '0' && name[5] <= '9' ? step : -1;
}

static bool is_ours(const char *name)
{
    static const char *const names[] = {"metrics.jsonl", "logbook.jsonl",    "config.yaml",
                                        "loss.svg",      "last.safetensors", "best.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return step_of(name) >= 0;
}

/* What a run that is taken up at update `after` will write anew. */
static bool is_later(const char *name, int64_t after)
{
    return step_of(name) > after || strcmp(name, "last.safetensors") == 0 || strcmp(name, "best.safetensors") == 0;
}

static bool goes(const char *name, int64_t after)
{
    return after < 0 ? is_ours(name) : is_later(name, after);
}

/* Whether `dir` has a file that would go: for a run taken up at `after`, a later checkpoint. */
static bool holds_a_run(const char *dir, int64_t after)
{
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d)) != NULL;)
        found = after < 0 ? is_ours(e->d_name) : step_of(e->d_name) > after;
    if (d) closedir(d);
    return found;
}

/* previous, previous-2, ...: the first that does not exist. Nothing is ever put into an older one. */
static an_status make_previous(an_err *err, const char *dir, char out[AN_CKPT_PATH_BYTES])
{
    for (int i = 1; i < 100000; i++) {
        const int n = i == 1 ? snprintf(out, AN_CKPT_PATH_BYTES, "%s/previous", dir)
                             : snprintf(out, AN_CKPT_PATH_BYTES, "%s/previous-%d", dir, i);
        if (n >= AN_CKPT_PATH_BYTES - 32) return an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", dir);
        if (mkdir(out, 0777) == 0) return AN_OK;
        if (errno != EEXIST) return an_fail(err, AN_E_IO, "%s: %s", out, strerror(errno));
    }
    return an_fail(err, AN_E_IO, "%s: holds too many earlier runs; name another folder", dir);
}

static an_status copy_metrics(an_err *err, const char *dir, const char *to)
{
    char path[AN_CKPT_PATH_BYTES + 32], block[65536];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *in = fopen(path, "rb");
    if (!in) return AN_OK;
    snprintf(path, sizeof path, "%s/metrics.jsonl", to);
    FILE *out = fopen(path, "wb");
    bool good = out != NULL;
    for (size_t n; good && (n = fread(block, 1, sizeof block, in)) > 0;) good = fwrite(block, 1, n, out) == n;
    good &= !ferror(in);
    fclose(in);
    if (out) good &= fclose(out) == 0;
    return good ? AN_OK : an_fail(err, AN_E_IO, "%s: %s", path, strerror(errno));
}

an_status an_run_dir_set_aside(an_err *err, const char *dir, int64_t after, char to[AN_CKPT_PATH_BYTES])
{
    to[0] = 0;
    if (!holds_a_run(dir, after)) return AN_OK;
    AN_TRY(make_previous(err, dir, to));
    if (after >= 0) AN_TRY(copy_metrics(err, dir, to));
    DIR *d = opendir(dir);
    if (!d) return an_fail(err, AN_E_IO, "%s: %s", dir, strerror(errno));
    an_status status = AN_OK;
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;) {
        if (!goes(e->d_name, after)) continue;
        char old[AN_CKPT_PATH_BYTES + 256], new[AN_CKPT_PATH_BYTES + 256];
        snprintf(old, sizeof old, "%s/%s", dir, e->d_name);
        snprintf(new, sizeof new, "%s/%s", to, e->d_name);
        if (rename(old, new) != 0) status = an_fail(err, AN_E_IO, "%s: %s", old, strerror(errno));
    }
    closedir(d);
    return status;
}

bool an_run_dir_is_a_run(const char *dir)
{
    static const char *const signs[] = {".lock", "logbook.jsonl"}; /* the first is there from the start */
    char path[AN_CKPT_PATH_BYTES + 32];
    bool found = false;
    for (int i = 0; i < 2 && !found; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, signs[i]);
        found = access(path, F_OK) == 0;
    }
    return found;
}
