/* ranks.c: starts ranks and watches them, and ends all when one fails or is killed (one that hangs: comm/comm.h).
 * See ranks.h.
 *
 *     anneal train P ranks=2      this process forks both, before anything else is open, and waits
 *       |- rank 0                 logs, writes, and ends with the command's exit code; a process group of its own
 *       `- rank 1                 computes
 *
 * A rank that fails says so to all (an_comm_fail), and each ends at its next exchange; one that is killed is reported
 * by this process. The sentence is rank 0's to print, as any command's, unless it is rank 0 that was killed. Ranks that
 * have not ended GRACE_S after the first failure are killed. A signal to end (Ctrl-C, SIGTERM) goes on to rank 0, which
 * makes all stop together and saves once; a second one, half a second later or more, kills all. */
#define _DEFAULT_SOURCE
#include "cli/ranks.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { GRACE_S = 60, GPU_NAME_BYTES = 64 };

typedef struct only_ranks {
    an_rank_values v;
} only_ranks;

static const an_config_field fields[] = {AN_RANK_FIELDS(only_ranks, v)};
static const an_config rank_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* ---- what was asked for */

/* The GPU of rank r: its number among those that CUDA_VISIBLE_DEVICES leaves. */
static long gpu_number(const char *devices, int r)
{
    if (!strchr(devices, ',')) return r;
    for (int i = 0; i < r; i++) devices += strcspn(devices, ",") + 1;
    return strtol(devices, NULL, 10);
}

/* Leaves this process that GPU alone. Where CUDA_VISIBLE_DEVICES has none of this number: none, or an error if they must be there. */
static an_status take_gpu(an_err *err, long number, bool must)
{
    const char *all = getenv("CUDA_VISIBLE_DEVICES"), *visible = all;
    char name[GPU_NAME_BYTES];
    if (!all) {
        snprintf(name, sizeof name, "%ld", number);
    } else {
        for (long i = 0; i < number && *visible; i++) visible += strcspn(visible, ","), visible += *visible == ',';
        if (!*visible && must)
            return an_fail(err, AN_E_USAGE, "CUDA_VISIBLE_DEVICES=%.60s has no GPU %ld", all, number);
        snprintf(name, sizeof name, "%.*s", (int)AN_MIN(strcspn(visible, ","), GPU_NAME_BYTES - 1), visible);
    }
    if (setenv("CUDA_VISIBLE_DEVICES", name, 1) == 0) return AN_OK;
    return an_fail_nomem(err, "the environment of a rank", sizeof name);
}

/* NVIDIA's GPUs that programs see: those that CUDA_VISIBLE_DEVICES names, or all that the kernel's driver has. The
 * driver's library is not asked: ranks are forked from this process, and it does not live through that. */
static int count_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    if (visible) {
        n = *visible != '\0';
        for (; *visible; visible++) n += *visible == ',';
        return n;
    }
    DIR *d = opendir("/proc/driver/nvidia/gpus");
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* NCCL refuses two ranks on one GPU, in words of its own and late. */
static an_status check_devices_differ(an_err *err, const char *devices, int n)
{
    for (int r = 0; r < n; r++)
        for (int other = 0; other < r; other++)
            if (gpu_number(devices, r) == gpu_number(devices, other))
                return an_fail(err, AN_E_USAGE, "devices=%.60s names GPU %ld twice: each device is a rank", devices,
                               gpu_number(devices, r));
    return AN_OK;
}

/* How many ranks the arguments ask for; 1: this process alone. */
static an_status count_ranks(an_err *err, const an_rank_values *v, int *out)
{
    const char *d = v->devices;
    int n = 0;
    *out = (int)AN_MAX(v->ranks, 1);
    if (!*d) return AN_OK;
    if (strcmp(d, "auto") == 0) {
        if (v->ranks == 0) *out = AN_MAX(AN_MIN(count_gpus(), AN_COMM_RANKS), 1);
        return AN_OK;
    }
    for (const char *at = d;; at++) {
        if (!isdigit((unsigned char)*at) || strspn(at, "0123456789") > 4)
            return an_fail(err, AN_E_USAGE,
                           "devices=%.60s: it is auto, a number of GPUs, or their numbers with commas between: 0,2", d);
        at += strspn(at, "0123456789");
        n++;
        if (!*at) break;
        if (*at != ',')
            return an_fail(err, AN_E_USAGE,
                           "devices=%.60s: it is auto, a number of GPUs, or their numbers with commas between: 0,2", d);
    }
    if (n == 1) n = (int)strtol(d, NULL, 10);
    if (n < 1 || n > AN_COMM_RANKS)
        return an_fail(err, AN_E_USAGE, "devices=%.60s: one host runs 1 to %d ranks", d, AN_COMM_RANKS);
    if (v->ranks > 0 && v->ranks != n)
        return an_fail(err, AN_E_USAGE, "ranks=%lld and devices=%.60s: each device is a rank; leave ranks out",
                       (long long)v->ranks, d);
    *out = n;
    return check_devices_differ(err, d, n);
}

static an_status read_values(an_err *err, const an_args *args, an_rank_values *out)
{
    only_ranks all;
    AN_TRY(an_config_defaults(err, &rank_keys, &all));
    AN_TRY(an_args_apply(err, args, (an_key_set[]){{&rank_keys, &all}}, 1));
    *out = all.v;
    return AN_OK;
}

/* ---- a rank */

/* Runs the command as a rank of `comm`. A failure of one rank is sent to all; rank 0 alone returns the sentence. */
static an_status run_rank(an_err *err, const an_args *args, an_comm *comm, an_rank_fn *fn, int *exit_code)
{
    an_args mine = *args;
    const bool is_first = an_comm_rank(comm) == 0;
    mine.quiet |= !is_first;
    mine.json &= is_first;
    an_status status = fn(err, &mine, comm, exit_code);
    if (status != AN_OK) an_comm_fail(comm, an_comm_rank(comm), status, err->text);
    return status;
}

static void be_child(const an_args *args, an_comm *comm, an_rank_fn *fn, const an_rank_values *v, int rank)
{
    an_err err = {0};
    int exit_code = AN_EXIT_OK;
    an_comm_become(comm, rank);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    setpgid(0, 0); /* the terminal's Ctrl-C is for the process that watches */
    an_status status = take_gpu(&err, gpu_number(v->devices, rank), *v->devices);
    if (status == AN_OK)
        status = run_rank(&err, args, comm, fn, &exit_code);
    else
        an_comm_fail(comm, rank, status, err.text);
    if (status != AN_OK && rank == 0) an_say("%s: %s", an_program, err.text);
    an_comm_close(comm);
    exit(an_guard_exit(status == AN_OK ? exit_code : an_exit_code(status)));
}

/* ---- the process that watches */

static volatile sig_atomic_t asked_to_end, asked_to_pause;

static void on_pause(int signal_number)
{
    (void)signal_number;
    asked_to_pause = 1;
}

static void on_end(int signal_number)
{
    (void)signal_number;
    asked_to_end = asked_to_end + 1;
}

typedef struct watch {
    an_comm *comm;
    pid_t pid[AN_COMM_RANKS]; /* 0: ended */
    int n, running;
    int code;         /* of rank 0 */
    int killed_by;    /* the signal that ended rank 0; 0: none */
    double failed_at; /* when the first one failed; 0: none has */
    bool killed;      /* all, by this process */
    bool ended_early; /* by Ctrl-C, before a rank caught it */
    int forwarded;
    double forwarded_at;
} watch;

static void kill_all(watch *w)
{
    for (int r = 0; r < w->n; r++)
        if (w->pid[r]) kill(w->pid[r], SIGKILL);
    w->killed = true;
}

/* Ctrl-Z stops the ranks too, which are no children of the terminal; when this process goes on, so do they. */
static void pause_all(const watch *w)
{
    for (int r = 0; r < w->n; r++)
        if (w->pid[r]) kill(w->pid[r], SIGSTOP);
    raise(SIGSTOP);
    for (int r = 0; r < w->n; r++)
        if (w->pid[r]) kill(w->pid[r], SIGCONT);
}

static void note_end(watch *w, int rank, int status)
{
    char text[200];
    w->pid[rank] = 0;
    w->running--;
    if (asked_to_end && WIFSIGNALED(status) &&
        WTERMSIG(status) == SIGINT) { /* before it could save: nothing was begun */
        w->ended_early = true;
        kill_all(w);
        return;
    }
    if (rank == 0) {
        w->code = WIFEXITED(status) ? WEXITSTATUS(status) : AN_EXIT_ENVIRONMENT;
        w->killed_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    if (WIFEXITED(status) && (WEXITSTATUS(status) == AN_EXIT_OK || WEXITSTATUS(status) == AN_EXIT_INTERRUPTED)) return;
    if (w->failed_at == 0) w->failed_at = an_seconds();
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "rank %d was killed by signal %d (%s)%s", rank, WTERMSIG(status),
                 strsignal(WTERMSIG(status)),
                 WTERMSIG(status) == SIGKILL ? "; the kernel does that where memory runs out" : "");
    else
        snprintf(text, sizeof text, "rank %d ended with exit code %d and said nothing", rank, WEXITSTATUS(status));
    if (!w->killed) an_comm_fail(w->comm, -1, AN_E_ENV, text);
}

static void look_after(watch *w)
{
    for (int r = 0; r < w->n; r++) {
        int status;
        if (w->pid[r] && waitpid(w->pid[r], &status, WNOHANG) == w->pid[r]) note_end(w, r, status);
    }
    const double now = an_seconds();
    if (asked_to_pause) asked_to_pause = 0, pause_all(w);
    if (asked_to_end > w->forwarded) {
        const bool again = w->forwarded > 0 && now - w->forwarded_at > 0.5;
        w->forwarded = asked_to_end;
        w->forwarded_at = now;
        if (again)
            kill_all(w);
        else if (w->pid[0])
            kill(w->pid[0], SIGINT);
    }
    if (w->failed_at > 0 && !w->killed && now - w->failed_at > GRACE_S) kill_all(w);
}

/* Ends with the code of rank 0, whose sentence, if any, is printed already. */
static an_status end_of(an_err *err, const watch *w, int *exit_code)
{
    *exit_code = w->code;
    if ((asked_to_end > 1 || w->ended_early) && w->killed) return *exit_code = AN_EXIT_INTERRUPTED, AN_OK;
    if (w->killed_by) AN_TRY(an_comm_status(err, w->comm));
    if (w->killed) {
        an_fail(err, AN_E_ENV, "ranks that did not end in %d s after one had failed were killed", GRACE_S);
        if (w->killed_by) return AN_E_ENV;
    }
    if (!w->killed_by) return AN_OK;
    return an_fail(err, AN_E_ENV, "rank 0 was killed by signal %d", w->killed_by);
}

static const struct {
    int number;
    void (*handler)(int);
} caught[] = {{SIGINT, on_end}, {SIGTERM, on_end}, {SIGHUP, on_end}, {SIGTSTP, on_pause}};

/* Holds back the signals that catch_signals is for. */
static void block_signals(sigset_t *was)
{
    sigset_t all;
    sigemptyset(&all);
    for (size_t i = 0; i < AN_COUNT(caught); i++) sigaddset(&all, caught[i].number);
    sigprocmask(SIG_BLOCK, &all, was);
}

static void catch_signals(void)
{
    for (size_t i = 0; i < AN_COUNT(caught); i++) {
        struct sigaction was, action = {.sa_handler = caught[i].handler, .sa_flags = SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(caught[i].number, NULL, &was);
        if (was.sa_handler != SIG_IGN) sigaction(caught[i].number, &action, NULL);
    }
}

static an_status start_and_watch(an_err *err, const an_args *args, an_rank_fn *fn, const an_rank_values *v, int ranks,
                                 int *exit_code)
{
    watch w = {.n = ranks};
    sigset_t was;
    AN_TRY(an_comm_new(err, ranks, &w.comm));
    an_status status = AN_OK;
    fflush(NULL);        /* or a child would print it again */
    block_signals(&was); /* one that comes meanwhile is for this process to pass on, once it knows its ranks */
    for (int r = 0; r < ranks && status == AN_OK; r++) {
        const pid_t pid = fork();
        if (pid == 0) sigprocmask(SIG_SETMASK, &was, NULL), be_child(args, w.comm, fn, v, r);
        if (pid < 0)
            status = an_fail(err, AN_E_ENV, "rank %d cannot be started: %s", r, strerror(errno));
        else
            w.pid[r] = pid, w.running++;
    }
    catch_signals();
    sigprocmask(SIG_SETMASK, &was, NULL);
    if (status != AN_OK) kill_all(&w);
    while (w.running > 0) {
        look_after(&w);
        if (w.running > 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (status == AN_OK) status = end_of(err, &w, exit_code);
    an_comm_close(w.comm);
    return status;
}

/* ---- a job that another program started */

static void say_waits(const char *sentence)
{
    fprintf(stderr, "%s: %s\n", an_program, sentence);
}

static an_status join(an_err *err, const an_rank_values *v, const an_comm_job *job, an_comm **out)
{
    const bool mpi = strcmp(v->transport, "mpi") == 0 || (job->several_hosts && strcmp(v->transport, "auto") == 0);
    return mpi ? an_comm_join_mpi(err, job, out) : an_comm_join(err, job, out);
}

static an_status run_joined(an_err *err, const an_args *args, an_rank_fn *fn, const an_rank_values *v,
                            const an_comm_job *job, int *exit_code)
{
    an_comm *comm;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"); /* srun may have left each process one already */
    if (!visible || strchr(visible, ',')) AN_TRY(take_gpu(err, job->local_rank, *v->devices));
    AN_TRY(join(err, v, job, &comm));
    an_status status = run_rank(err, args, comm, fn, exit_code);
    /* Rank 0 says it, if it lives: over MPI every rank sends its failure before it ends, and one without a rank (-1) may be
     * that rank 0 does not come. */
    const int failed = an_comm_failed_rank(comm);
    const bool is_told = job->rank > 0 && (an_comm_may_abort(comm) ? failed >= 0 : failed != job->rank);
    if (status != AN_OK && (is_told || an_comm_may_abort(comm))) {
        if (!is_told) an_say("%s: %s", an_program, err->text);
        an_err_clear(err);
        *exit_code = an_exit_code(status);
        status = AN_OK;
    }
    an_comm_close(comm);
    return status;
}

an_status an_ranks_run(an_err *err, const an_args *args, an_rank_fn *fn, int *exit_code)
{
    an_rank_values v;
    an_comm_job job;
    int ranks;
    AN_TRY(read_values(err, args, &v));
    AN_TRY(count_ranks(err, &v, &ranks));
    AN_TRY(an_comm_job_read(err, &job));
    if (job.ranks > 1 && ranks > 1)
        return an_fail(err, AN_E_USAGE, "%s has started %d processes: leave ranks= and devices= out, or %s",
                       job.launcher, job.ranks, job.launcher);
    if (ranks > 1 && strcmp(v.transport, "mpi") == 0)
        return an_fail(err, AN_E_USAGE,
                       "ranks that %s starts itself share memory: leave transport=mpi out, or start "
                       "them with mpirun -n %d and leave ranks= and devices= out",
                       an_program, ranks);
    if (ranks > 1) return start_and_watch(err, args, fn, &v, ranks, exit_code);
    if (job.ranks == 1 && strcmp(v.transport, "mpi") == 0)
        return an_fail(err, AN_E_USAGE,
                       "transport=mpi is for processes that MPI's launcher starts: mpirun -n 2 %s train ...",
                       an_program);
    if (job.ranks == 1) return fn(err, args, NULL, exit_code);
    job.waits = say_waits;
    return run_joined(err, args, fn, &v, &job, exit_code);
}
