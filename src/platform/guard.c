/* guard.c: what a program, not the library, asks of the process: a sentence where a mapped file becomes shorter while
 * it is read (the system sends SIGBUS), compilers that end with it when it is interrupted, and an end that does not wait
 * for a device that hangs.
 *
 * Owns:      two tables that signal handlers read: the mapped files and the children that run. They are this process's
 *            and lock-free, because a handler gets no argument and may not wait.
 * Does not:  install anything unless the program asks (an_guard_maps); a library that is used by other programs leaves
 *            their signals alone.
 * Invariant: a slot is filled before its key (address, process id) is set, and a full table costs only the sentence. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#include "platform/platform.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { MAPS = 64, CHILDREN = 64, BUSY = 1 };

static struct {
    atomic_uintptr_t begin; /* 0: free, BUSY: being filled */
    size_t bytes;
    char path[512];
} maps[MAPS];
static atomic_int children[CHILDREN]; /* process groups; 0: free */
static atomic_bool interrupted, exit_hangs;

/* ---- mapped files */

void an_guard_map(const void *data, size_t bytes, const char *path)
{
    for (int i = 0; i < MAPS; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&maps[i].begin, &none, (uintptr_t)BUSY)) continue;
        const size_t n = AN_MIN(strlen(path), sizeof maps[i].path - 1);
        memcpy(maps[i].path, path, n);
        maps[i].path[n] = '\0';
        maps[i].bytes = bytes;
        atomic_store(&maps[i].begin, (uintptr_t)data);
        return;
    }
}

void an_guard_unmap(const void *data)
{
    for (int i = 0; i < MAPS; i++) {
        uintptr_t key = (uintptr_t)data;
        if (data && atomic_compare_exchange_strong(&maps[i].begin, &key, (uintptr_t)0)) return;
    }
}

static void put(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* Only what may be called in a handler. A fault elsewhere gets the system's way: the handler is gone when it recurs. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < MAPS; i++) {
        const uintptr_t begin = atomic_load(&maps[i].begin);
        if (begin <= BUSY || at < begin || at - begin >= maps[i].bytes) continue;
        put("anneal: ");
        put(maps[i].path);
        put(": became shorter while it was read, or its disk failed; what was saved before is whole: "
            "put the file back and start again\n");
        _exit(2);
    }
    signal(number, SIG_DFL);
}

void an_guard_maps(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

/* ---- children */

bool an_guard_child(int pid)
{
    for (int i = 0; i < CHILDREN; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&children[i], &none, pid)) break;
    }
    return !atomic_load(&interrupted);
}

void an_guard_reaped(int pid)
{
    for (int i = 0; i < CHILDREN; i++) {
        int key = pid;
        if (atomic_compare_exchange_strong(&children[i], &key, 0)) return;
    }
}

void an_interrupt_children(void)
{
    atomic_store(&interrupted, true);
    for (int i = 0; i < CHILDREN; i++) {
        const int pid = atomic_load(&children[i]);
        if (pid > 0) kill(-pid, SIGKILL);
    }
}

/* ---- the end */

void an_guard_exit_hangs(void)
{
    atomic_store(&exit_hangs, true);
}

int an_guard_exit(int code)
{
    if (!atomic_load(&exit_hangs)) return code;
    fflush(NULL);
    _exit(code);
}
