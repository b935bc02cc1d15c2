/* process.c: running child processes to their end.
 *
 * Owns:      time limits of programs that hang; the children of one call: when an_spawn_many returns, all are reaped and their process groups killed.
 * Does not:  use a shell, touch signal handlers, or leave descriptors open in the children.
 *
 * posix_spawn, not fork: the process may hold gigabytes of page tables and running threads. A child leads its own
 * process group, so that a timeout also ends what it has started (a compiler driver runs cc1 and ld), and Ctrl-C
 * reaches only this process. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#include "platform/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __APPLE__
#include <crt_externs.h>
#define ENVIRON (*_NSGetEnviron())
#else
extern char **environ;
#define ENVIRON environ
#endif

typedef struct child {
    pid_t pid; /* 0: never started or reaped */
    int fd;    /* read end of its output; -1: at its end */
    size_t len;
    int code;
} child;

static int pipe_cloexec(int fds[2])
{
#ifdef __linux__
    return pipe2(fds, O_CLOEXEC);
#else
    if (pipe(fds) != 0) return -1;
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    fcntl(fds[1], F_SETFD, FD_CLOEXEC);
    return 0;
#endif
}

/* Returns 0 or an errno. */
static int spawn_with(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr, const char *const *argv, int out_fd,
                      pid_t *pid)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigemptyset(&all);
    sigaddset(&all, SIGPIPE); /* ignored dispositions are inherited: a compiler expects the usual ones */
    sigaddset(&all, SIGINT);
    sigaddset(&all, SIGCHLD);
    short flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    int e = posix_spawnattr_setflags(attr, flags);
    if (e == 0) e = posix_spawnattr_setpgroup(attr, 0);
    if (e == 0) e = posix_spawnattr_setsigmask(attr, &none);
    if (e == 0) e = posix_spawnattr_setsigdefault(attr, &all);
    if (e == 0) e = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (e == 0) e = posix_spawn_file_actions_adddup2(actions, out_fd, 1);
    if (e == 0) e = posix_spawn_file_actions_adddup2(actions, out_fd, 2);
    if (e == 0) e = posix_spawnp(pid, argv[0], actions, attr, (char *const *)(uintptr_t)argv, ENVIRON);
    return e;
}

static an_status start(an_err *err, child *c, const char *const *argv)
{
    int fds[2];
    if (pipe_cloexec(fds) != 0)
        return an_fail(err, AN_E_ENV, "%s: cannot make a pipe: %s; raise ulimit -n", argv[0], strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int e = posix_spawn_file_actions_init(&actions);
    if (e == 0) {
        e = posix_spawnattr_init(&attr);
        if (e == 0) {
            e = spawn_with(&actions, &attr, argv, fds[1], &c->pid);
            posix_spawnattr_destroy(&attr);
        }
        posix_spawn_file_actions_destroy(&actions);
    }
    close(fds[1]);
    if (e != 0) {
        c->pid = 0; /* unspecified after a failure */
        close(fds[0]);
        return an_fail(err, AN_E_ENV, "%s: cannot be started: %s; install it or name another", argv[0], strerror(e));
    }
    c->fd = fds[0];
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    return an_guard_child(c->pid) ? AN_OK : an_fail(err, AN_E_ENV, "%s: not run, the program was interrupted", argv[0]);
}

/* Reads the output that is available now; keeps the first cap - 1 bytes. */
static void drain(child *c, char *output, size_t cap)
{
    char chunk[4096];
    while (c->fd >= 0) {
        ssize_t n = read(c->fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(c->fd);
            c->fd = -1;
            return;
        }
        size_t room = cap > c->len + 1 ? cap - 1 - c->len : 0, keep = AN_MIN(room, (size_t)n);
        if (keep > 0) memcpy(output + c->len, chunk, keep);
        c->len += keep;
    }
}

/* True when the child has ended. Its group is killed before it is reaped, while its id cannot belong to another process
 * yet: what it left behind would hold the pipe and outlive the call. */
static bool reap(child *c, int flags)
{
    siginfo_t info = {0};
    int r, status;
    do r = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT | flags);
    while (r != 0 && errno == EINTR);
    if (r == 0 && info.si_pid == 0) return false;
    kill(-c->pid, SIGKILL);
    an_guard_reaped(c->pid);
    pid_t got;
    do got = waitpid(c->pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (got == c->pid)
        c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    else
        c->code = 127; /* ECHILD: the program around us ignores SIGCHLD, and the system threw the code away */
    c->pid = 0;
    return true;
}

static void kill_and_reap(child *c)
{
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL); /* in case it left its group */
    reap(c, 0);
    c->code = -1;
}

/* Waits for output or an end, at most until the deadline. A child may close its output long before it ends, or leave a
 * grandchild that holds it open, so both are asked, with a sleep that grows to 10 ms. */
static void await(child *kids, int n, struct pollfd *fds, double deadline, char *output, size_t cap)
{
    double nap_s = 0.0002;
    for (int running = n; running > 0;) {
        running = 0;
        nfds_t n_fds = 0;
        for (int i = 0; i < n; i++) {
            child *c = &kids[i];
            if (c->pid != 0 && reap(c, WNOHANG)) {
                drain(c, output + (size_t)i * cap, cap);
                if (c->fd >= 0) close(c->fd);
                c->fd = -1;
            }
            running += c->pid != 0;
            if (c->fd >= 0) fds[n_fds++] = (struct pollfd){.fd = c->fd, .events = POLLIN};
        }
        if (running == 0 || an_seconds() >= deadline) return;
        nap_s = AN_MIN(nap_s * 1.5, 0.01);
        if (poll(fds, n_fds, AN_MAX(1, (int)(nap_s * 1e3))) > 0)
            nap_s = 0.0002; /* output, or its end: others follow soon */
        for (int i = 0; i < n; i++) drain(&kids[i], output + (size_t)i * cap, cap);
    }
}

an_status an_spawn_many(an_err *err, const char *const *const *argvs, int n, double timeout_s, char *output, size_t cap,
                        int *exit_codes)
{
    if (n <= 0) return AN_OK;
    char nothing;
    if (cap == 0) output = &nothing; /* never written, but a pointer that may be added to */
    child *kids = calloc((size_t)n, sizeof *kids);
    struct pollfd *fds = calloc((size_t)n, sizeof *fds);
    if (kids == NULL || fds == NULL) {
        free(kids);
        free(fds);
        return an_fail_nomem(err, "running programs", (size_t)n * (sizeof *kids + sizeof *fds));
    }
    an_status status = AN_OK;
    double deadline = an_seconds() + timeout_s;
    for (int i = 0; i < n; i++) kids[i].fd = -1;
    for (int i = 0; i < n && status == AN_OK; i++) status = start(err, &kids[i], argvs[i]);
    if (status == AN_OK) await(kids, n, fds, deadline, output, cap);
    for (int i = 0; i < n; i++) {
        if (kids[i].pid != 0) kill_and_reap(&kids[i]);
        drain(&kids[i], output + (size_t)i * cap, cap);
        if (kids[i].fd >= 0) close(kids[i].fd);
        if (cap > 0) output[(size_t)i * cap + kids[i].len] = '\0';
        exit_codes[i] = kids[i].code;
    }
    free(kids);
    free(fds);
    return status;
}

an_status an_spawn(an_err *err, const char *const *argv, double timeout_s, char *output, size_t cap, int *exit_code)
{
    return an_spawn_many(err, &argv, 1, timeout_s, output, cap, exit_code);
}
