/* kernel_cache.c: finding a safe folder, checking its files, removing old entries. See kernel_cache.h. */
#define _DARWIN_C_SOURCE
#define _GNU_SOURCE
#include "device/kernel_cache.h"

#include "platform/platform.h"
#include "platform/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* NULL when the folder is safe to load code from, else why not. */
static const char *unsafe(const char *dir)
{
    struct stat st;
    if (lstat(dir, &st)) return "cannot be made";
    if (!S_ISDIR(st.st_mode)) return "is not a directory";
    if (st.st_uid != geteuid()) return "belongs to another user";
    if (st.st_mode & 077) return "is open to other users (its mode should be 0700)";
    return access(dir, W_OK | X_OK) ? "cannot be written" : NULL;
}

/* $name where it is an absolute path: a relative one would make a cache in every folder, an empty one in the root. */
static const char *absolute(const char *name)
{
    const char *path = getenv(name);
    return path && *path == '/' ? path : NULL;
}

/* The folder that holds other programs' caches too; false: there is none, or its path is too long. */
static bool caches_of_user(char *out, size_t bytes)
{
#ifdef __APPLE__
    const char *caches = NULL, *below = "Library/Caches";
#else
    const char *caches = absolute("XDG_CACHE_HOME"), *below = ".cache";
#endif
    const char *home = absolute("HOME");
    const int n = caches ? snprintf(out, bytes, "%s", caches) : home ? snprintf(out, bytes, "%s/%s", home, below) : -1;
    return n >= 0 && (size_t)n < bytes;
}

void an_cache_find(const char *who, const char *wish, char *dir, size_t dir_bytes, char *why, size_t why_bytes)
{
    const char *named = wish ? wish : getenv("ANNEAL_CACHE");
    char parent[800] = "";
    int n = -1;
    why[0] = 0;
    if (named)
        n = *named ? snprintf(dir, dir_bytes, "%s", named) : -1;
    else if (caches_of_user(parent, sizeof parent))
        n = snprintf(dir, dir_bytes, "%s/anneal", parent);
    if (n < 0 || (size_t)n >= dir_bytes) {
        dir[0] = 0;
        snprintf(why, why_bytes,
                 "%s: no folder for compiled kernels (%s): they are compiled anew each time. Set ANNEAL_CACHE", who,
                 n >= 0   ? "its path is too long"
                 : !named ? "HOME is no absolute path"
                 : wish   ? "cache_dir is empty"
                          : "ANNEAL_CACHE is empty");
        return;
    }
    an_err e = {0};
    if (parent[0]) an_make_dirs(&e, parent, 0755);
    an_make_dirs(&e, dir, 0700);
    const char *bad = unsafe(dir);
    if (!bad) return;
    snprintf(why, why_bytes,
             "%s: the kernel cache %.300s %s: nothing is loaded from it and kernels are compiled anew. Repair it, or "
             "set ANNEAL_CACHE",
             who, dir, bad);
    dir[0] = 0;
}

/* A use sets the file's time, by which the least recently used is found; once an hour is enough. */
static void note_use(const char *path, const struct stat *st)
{
    enum { HOUR = 3600 };
    if (time(NULL) - st->st_mtime > HOUR) (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
}

bool an_cache_ours(const char *path)
{
    struct stat st;
    const bool ours = !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022);
    if (ours) note_use(path, &st);
    return ours;
}

/* ---------------------------------------------------------------------------------------------- the limit */

typedef struct entry {
    char name[32];
    uint64_t bytes;
    time_t used;
} entry;

typedef struct entry_list {
    entry *entry;
    int32_t n, cap;
    uint64_t bytes;
} entry_list;

/* 16 hexadecimal digits and an ending of ours: in a folder that was named by mistake, files of other kinds stay. */
static bool is_entry(const char *name)
{
    static const char *const endings[] = {".so", ".ref", ".cubin"};
    if (strspn(name, "0123456789abcdef") != 16) return false;
    for (size_t i = 0; i < AN_COUNT(endings); i++)
        if (strcmp(name + 16, endings[i]) == 0) return true;
    return false;
}

/* Removes what a killed program left of a file that it was writing (.NAME.RANDOM.tmp), an hour after its last change: no
 * write takes that long. The folder that it compiled in is scratch.h's to remove. */
static void sweep(int dir, const char *name, const struct stat *st)
{
    enum { HOUR = 3600 };
    const size_t n = strlen(name);
    if (time(NULL) - st->st_mtime < HOUR) return;
    if (S_ISREG(st->st_mode) && name[0] == '.' && n > 4 && strcmp(name + n - 4, ".tmp") == 0 &&
        strspn(name + 1, "0123456789abcdef") == 16)
        (void)unlinkat(dir, name, 0);
}

static bool list_entries(DIR *d, entry_list *l)
{
    struct stat st;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
        if (!S_ISREG(st.st_mode) || !is_entry(e->d_name)) {
            sweep(dirfd(d), e->d_name, &st);
            continue;
        }
        if (!an_grow((void **)&l->entry, l->n, &l->cap, sizeof *l->entry)) return false;
        entry *to = &l->entry[l->n++];
        snprintf(to->name, sizeof to->name, "%.31s", e->d_name); /* is_entry: at most 22 */
        to->bytes = (uint64_t)st.st_size;
        to->used = st.st_mtime;
        l->bytes += to->bytes;
    }
    return true;
}

static int compare_use(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

uint64_t an_cache_limit(void)
{
    const char *mib = getenv("ANNEAL_CACHE_MIB");
    char *end = NULL;
    const unsigned long long n = mib ? strtoull(mib, &end, 10) : 0;
    return mib && *mib && !*end && n < 1ull << 40 ? (uint64_t)n << 20 : (uint64_t)1 << 30;
}

uint64_t an_cache_trim(const char *dir, uint64_t limit, int64_t *files)
{
    entry_list l = {.n = 0};
    uint64_t freed = 0;
    *files = 0;
    if (*dir) an_scratch_sweep(dir);
    const int fd = *dir ? open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) close(fd);
        return 0;
    }
    const bool listed = list_entries(d, &l);
    if (listed && l.bytes > limit) {
        qsort(l.entry, (size_t)l.n, sizeof *l.entry, compare_use);
        /* Down to nine tenths, so that not every new kernel removes an old one. */
        for (int32_t i = 0; i < l.n && l.bytes - freed > limit / 10 * 9; i++) {
            if (unlinkat(fd, l.entry[i].name, 0)) continue;
            freed += l.entry[i].bytes;
            ++*files;
        }
    }
    free(l.entry);
    closedir(d);
    return freed;
}
