/* progress_bar.c: see progress_bar.h. */
#define _DEFAULT_SOURCE
#include "cli/progress_bar.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "platform/platform.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 250 };
static const double FIRST_SECONDS = 1; /* a command that is done by then shows nothing */

struct an_bar {
    const char *what, *unit;
    an_bar_probe *probe;
    void *arg;
    double began;
    _Atomic int64_t done, all;
    atomic_bool ending;
    pthread_t thread;
};

/* The line that is drawn: one in a program, as there is one terminal. The lock is held while one is written. */
static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_drawn;

static void put_count(const char *unit, int64_t done, int64_t all, char out[80])
{
    char a[32], b[32];
    const bool bytes = strcmp(unit, "bytes") == 0;
    const char *have = bytes ? an_bytes_text((double)done, a) : an_grouped(done, a);
    const char *most = bytes ? an_bytes_text((double)all, b) : an_grouped(all, b);
    if (all > 0)
        snprintf(out, 80, "%s of %s%s%s", have, most, bytes ? "" : " ", bytes ? "" : unit);
    else
        snprintf(out, 80, "%s%s%s", have, bytes ? "" : " ", bytes ? "" : unit);
}

void an_bar_line(const char *what, const char *unit, int64_t done, int64_t all, double seconds, int columns,
                 char out[160])
{
    char count[80], left[32], line[160];
    done = all > 0 ? AN_MIN(AN_MAX(done, 0), all) : AN_MAX(done, 0);
    put_count(unit, done, all, count);
    if (all > 0 && done > 0)
        snprintf(line, sizeof line, "%-9.30s %s, %d %%, %s left", what, count,
                 (int)(100 * ((double)done / (double)all)),
                 an_duration(seconds / (double)done * (double)(all - done), left));
    else
        snprintf(line, sizeof line, "%-9.30s %s, %s so far", what, count, an_duration(seconds, left));
    snprintf(out, 160, "%.*s", AN_MAX(columns, 0), line);
}

static void draw(an_bar *b)
{
    char line[160];
    int64_t done = atomic_load(&b->done), all = atomic_load(&b->all);
    const double seconds = an_seconds() - b->began;
    if (b->probe) b->probe(b->arg, &done, &all);
    if (seconds < FIRST_SECONDS) return;
    an_bar_line(b->what, b->unit, done, all, seconds, an_terminal_columns(), line);
    pthread_mutex_lock(&line_lock);
    if (!atomic_load(&b->ending)) {
        fprintf(stderr, "\r\033[K%s", line);
        fflush(stderr);
        is_drawn = true;
    }
    pthread_mutex_unlock(&line_lock);
}

void an_bar_hide(void)
{
    pthread_mutex_lock(&line_lock);
    if (is_drawn) fputs("\r\033[K", stderr);
    if (is_drawn) fflush(stderr);
    is_drawn = false;
    pthread_mutex_unlock(&line_lock);
}

static void *tick(void *arg)
{
    an_bar *b = arg;
    const struct timespec pause = {.tv_nsec = TICK_MS * 1000000L};
    while (!atomic_load(&b->ending)) {
        draw(b);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

an_bar *an_bar_open(const an_args *args, const char *what, const char *unit, an_bar_probe *probe, void *arg)
{
    if (args->quiet || args->json || isatty(STDERR_FILENO) != 1) return NULL;
    an_bar *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    *b = (an_bar){.what = what, .unit = unit, .probe = probe, .arg = arg, .began = an_seconds()};
    if (pthread_create(&b->thread, NULL, tick, b) == 0) return b;
    free(b);
    return NULL;
}

void an_bar_tell(void *bar, int64_t done, int64_t all)
{
    an_bar *b = bar;
    if (!b) return;
    atomic_store(&b->done, done);
    atomic_store(&b->all, all);
}

void an_bar_close(an_bar *b)
{
    if (!b) return;
    atomic_store(&b->ending, true);
    pthread_join(b->thread, NULL);
    an_bar_hide();
    free(b);
}

/* ---- probes */

void an_bar_probe_file(void *arg, int64_t *done, int64_t *all)
{
    const an_bar_file *f = arg;
    char dir[AN_CKPT_PATH_BYTES], path[AN_CKPT_PATH_BYTES];
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    const size_t n = strlen(name);
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - f->path + 1) : 2, slash ? f->path : "./");
    *done = 0;
    *all = f->all;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        struct stat info;
        const size_t length = strlen(e->d_name);
        if (*e->d_name != '.' || strncmp(e->d_name + 1, name, n) != 0 || length < n + 6 || e->d_name[n + 1] != '.' ||
            strcmp(e->d_name + length - 4, ".tmp") != 0)
            continue;
        if (snprintf(path, sizeof path, "%s%s", dir, e->d_name) >= (int)sizeof path) continue;
        if (lstat(path, &info) == 0 && S_ISREG(info.st_mode)) *done = AN_MAX(*done, (int64_t)info.st_size);
    }
    if (d) closedir(d);
}

void an_bar_probe_run(void *arg, int64_t *done, int64_t *all)
{
    const an_bar_run *r = arg;
    char path[AN_CKPT_PATH_BYTES + 32], tail[4096];
    struct stat info;
    long long step;
    *done = 0;
    *all = r->all;
    snprintf(path, sizeof path, "%.1000s/metrics.jsonl", r->dir);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    const off_t from = regular && info.st_size > (off_t)sizeof tail ? info.st_size - (off_t)sizeof tail : 0;
    const ssize_t n = regular ? pread(fd, tail, sizeof tail - 1, from) : 0;
    close(fd);
    tail[AN_MAX(n, (ssize_t)0)] = 0;
    for (const char *at = tail; (at = strstr(at, "{\"step\":")) != NULL; at++)
        if (sscanf(at, "{\"step\":%18lld", &step) == 1) *done = AN_MAX(*done, (int64_t)step + 1 - r->from);
}
