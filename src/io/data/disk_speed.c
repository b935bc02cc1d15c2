/* disk_speed.c: see disk_speed.h. Reads past the page cache, because what is cached says nothing about the disk. */
#define _GNU_SOURCE /* posix_fadvise */
#include "io/data/disk_speed.h"
#include "platform/platform.h"
#include "base/text.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, BLOCKS = 32, SLOW_MB_S = 50, FAST_ENOUGH_BYTES = 4 << 20, PATH_BYTES = 1024 };
static const double most_seconds = 0.3;

/* The largest regular file of a folder, or the path itself. */
static bool find_file(const char *path, char out[PATH_BYTES])
{
    struct stat info;
    off_t most = -1;
    if (stat(path, &info) != 0) return false;
    if (!S_ISDIR(info.st_mode)) return S_ISREG(info.st_mode) && snprintf(out, PATH_BYTES, "%s", path) < PATH_BYTES;
    DIR *d = opendir(path);
    if (!d) return false;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char child[PATH_BYTES];
        int n = snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (n < 0 || n >= PATH_BYTES || stat(child, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= most)
            continue;
        most = info.st_size;
        memcpy(out, child, (size_t)n + 1);
    }
    closedir(d);
    return most >= 0;
}

/* Drops the file from the page cache. Where the system ignores this, the measured speed is too high, never too low. */
static void forget_cache(int fd)
{
#ifdef F_NOCACHE
    (void)fcntl(fd, F_NOCACHE, 1);
#else
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no reading ahead of what is not counted */
#endif
}

static void measure(int fd, off_t size, an_storage *out)
{
    char *block = malloc(BLOCK_BYTES);
    if (!block) return;
    forget_cache(fd);
    const off_t step = size / BLOCKS > BLOCK_BYTES ? size / BLOCKS : BLOCK_BYTES;
    double bytes = 0, start = an_seconds();
    for (off_t at = 0; at < size && out->seconds < most_seconds; at += step) {
        ssize_t n = pread(fd, block, BLOCK_BYTES, at);
        if (n <= 0) break;
        bytes += (double)n;
        out->seconds = an_seconds() - start;
    }
    free(block);
    /* A small file is read at once: a run will not wait for it, and only the delay is measured. */
    if (out->seconds > 0 && (bytes >= FAST_ENOUGH_BYTES || out->seconds >= most_seconds / 2))
        out->mb_s = bytes / 1e6 / out->seconds;
}

void an_storage_look(const char *path, an_storage *out)
{
    char file[PATH_BYTES];
    struct stat info;
    memset(out, 0, sizeof *out);
    an_mount_info_read(path, &out->mount);
    if (!find_file(path, file)) return;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) measure(fd, info.st_size, out);
    close(fd);
}

bool an_storage_warning(const an_storage *s, const char *what, const char *path, char text[AN_STORAGE_TEXT_BYTES])
{
    char speed[64] = "its speed was not measured";
    const bool slow = s->mb_s > 0 && s->mb_s < SLOW_MB_S;
    if (!slow && !s->mount.network) return false;
    if (s->mb_s > 0) snprintf(speed, sizeof speed, "it is read with %.*f MB/s", s->mb_s < 10 ? 1 : 0, s->mb_s);
    snprintf(text, AN_STORAGE_TEXT_BYTES, "%.400s: %s lies on a %s (%.63s): %s; a copy on a local disk is faster", path,
             what, s->mount.network ? "network mount" : "slow mount", s->mount.type[0] ? s->mount.type : "unknown type",
             speed);
    return true;
}
