/* background.c: see background.h. posix_spawn has no portable way into a session of its own, so this forks. */
#define _DEFAULT_SOURCE
#include "platform/background.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: only calls that are safe after a fork. A failure is one int in the pipe, which exec closes. */
static void become(const char *const *argv, int log_fd, int failed)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    const int null = open("/dev/null", O_RDONLY);
    for (size_t i = 0; i < AN_COUNT(ends); i++) signal(ends[i], SIG_DFL);
    setsid();
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(log_fd, 1) >= 0 && dup2(log_fd, 2) >= 0)
        execvp(argv[0], (char *const *)(uintptr_t)argv);
    const int why = errno;
    (void)!write(failed, &why, sizeof why);
    _exit(127);
}

an_status an_background_spawn(an_err *err, const char *const *argv, int log_fd, int *pid)
{
    int end[2], why = 0;
    if (pipe(end) != 0) return an_fail(err, AN_E_ENV, "%s: cannot be started: %s", argv[0], strerror(errno));
    fcntl(end[1], F_SETFD, FD_CLOEXEC);
    fcntl(end[0], F_SETFD, FD_CLOEXEC);
    const pid_t child = fork();
    if (child == 0) become(argv, log_fd, end[1]);
    if (child < 0) why = errno;
    close(end[1]);
    ssize_t n = 0;
    while (child > 0 && (n = read(end[0], &why, sizeof why)) < 0 && errno == EINTR) {
    }
    close(end[0]);
    *pid = (int)child;
    if (child > 0 && n <= 0) return AN_OK;
    if (child > 0) waitpid(child, NULL, 0);
    return an_fail(err, AN_E_ENV, "%s: cannot be started: %s", argv[0], strerror(why));
}

bool an_background_ended(int pid, int *exit_code)
{
    int status;
    if (waitpid((pid_t)pid, &status, WNOHANG) != (pid_t)pid) return false;
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return true;
}
