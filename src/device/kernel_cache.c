/* kernel_cache.c: see kernel_cache.h. */
#define _DARWIN_C_SOURCE
#define _GNU_SOURCE
#include "device/kernel_cache.h"

#include "platform/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL when the folder is safe to load code from, else why not. */
static const char *unsafe(const char *dir)
{
    struct stat st;
    if (lstat(dir, &st)) return "cannot be made";
    if (!S_ISDIR(st.st_mode)) return "is not a directory";
    if (st.st_uid != geteuid()) return "belongs to somebody else";
    if (st.st_mode & 077) return "is open to other users (its mode should be 0700)";
    return access(dir, W_OK | X_OK) ? "cannot be written" : NULL;
}

void an_cache_find(const char *who, const char *wish, char *dir, size_t dir_bytes, char *why, size_t why_bytes)
{
    const char *env = getenv("ANNEAL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char parent[800] = "";
    why[0] = 0;
    if (wish || env) {
        snprintf(dir, dir_bytes, "%s", wish ? wish : env);
    } else {
#ifdef __APPLE__
        snprintf(parent, sizeof parent, "%s/Library/Caches", home ? home : "");
        (void)xdg;
#else
        if (xdg && *xdg)
            snprintf(parent, sizeof parent, "%s", xdg);
        else
            snprintf(parent, sizeof parent, "%s/.cache", home ? home : "");
#endif
        snprintf(dir, dir_bytes, "%s/anneal", parent);
        if (!home && !(xdg && *xdg)) dir[0] = 0;
    }
    an_err e = {0};
    if (!dir[0]) {
        snprintf(why, why_bytes,
                 "%s: no folder for compiled kernels (HOME is not set): they are compiled anew each time. Set "
                 "ANNEAL_CACHE",
                 who);
        return;
    }
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

bool an_cache_ours(const char *path)
{
    struct stat st;
    return !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022);
}
