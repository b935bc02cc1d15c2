/* kill_at.c: preloaded into the program by test_kill_points.sh: kill -9 just before its KILL_AT'th call that changes a folder or waits
 * for the disk. Its children are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long left;

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("KILL_AT");
    atomic_store(&left, at ? atol(at) : 0);
    unsetenv("LD_PRELOAD");
}

static void count(void)
{
    if (atomic_fetch_sub(&left, 1) == 1) kill(getpid(), SIGKILL);
}

#define COUNTED(name, parameters, ...)                                                                                 \
    int name parameters                                                                                                \
    {                                                                                                                  \
        int(*next) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #name);                                            \
        count();                                                                                                       \
        return next(__VA_ARGS__);                                                                                      \
    }

COUNTED(rename, (const char *a, const char *b), a, b)
COUNTED(renameat, (int d, const char *a, int e, const char *b), d, a, e, b)
COUNTED(link, (const char *a, const char *b), a, b)
COUNTED(unlink, (const char *a), a)
COUNTED(unlinkat, (int d, const char *a, int flags), d, a, flags)
COUNTED(rmdir, (const char *a), a)
COUNTED(mkdir, (const char *a, mode_t mode), a, mode)
COUNTED(mkdirat, (int d, const char *a, mode_t mode), d, a, mode)
COUNTED(fsync, (int d), d)
