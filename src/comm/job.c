/* job.c: a job whose ranks another program started: its variables, and how the ranks find one another on their host.
 *
 *     DIR/anneal-UID-HASH      DIR is /dev/shm where there is one. Made by rank 0, readable by its user alone, mapped by every
 *                              rank, and removed by rank 0 as soon as all have come: nothing is left behind
 *
 * Byte r of the file is locked by rank r while it lives: the system releases the lock of a process that is killed, so the others
 * notice, and a file of an earlier job whose rank 0 is dead is never joined. A process has one descriptor of the file: closing a
 * second one would release its locks. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#ifdef __APPLE__
#define _DARWIN_C_SOURCE
#endif
#include "base/map.h"
#include "comm/shared.h"
#include "platform/platform.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- variables */

typedef struct launcher {
    const char *name, *rank, *ranks, *local_rank, *local_ranks, *hosts;
    const char *only_with; /* the variables mean nothing without this one; NULL: they always do */
    bool mpi;              /* it starts processes of MPI */
    const char *key[4];    /* what tells its jobs apart */
} launcher;

static const launcher launchers[] = {
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     NULL,
     NULL,
     false,
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     NULL,
     true,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL, NULL}},
    {"mpiexec",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     NULL,
     "PMI_FD",
     true,
     {NULL, NULL, NULL, NULL}},
    /* a batch script has these variables too, without a step: it is no rank */
    {"srun",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     NULL,
     "SLURM_STEP_NUM_NODES",
     "SLURM_STEP_ID",
     true,
     {"SLURM_JOB_ID", "SLURM_STEP_ID", NULL, NULL}},
};

/* A whole number of the environment, `otherwise` where it is not set. */
static an_status number(an_err *err, const char *name, int otherwise, int *out)
{
    const char *text = name ? getenv(name) : NULL;
    char *end;
    *out = otherwise;
    if (!text || !*text) return AN_OK;
    const long n = strtol(text, &end, 10);
    if (*end || n < 0 || n > 1 << 20)
        return an_fail(err, AN_E_USAGE, "%s is %.40s in the environment; it is a whole number: unset it or correct it",
                       name, text);
    *out = (int)n;
    return AN_OK;
}

/* `here`: how many ranks this host has. */
static an_status check_job(an_err *err, const launcher *l, const an_comm_job *j, int here)
{
    if (j->rank < 0)
        return an_fail(
            err, AN_E_USAGE,
            "%s=%d in the environment says that this is one of several processes, and %s does not say which: "
            "unset %s, or start the processes with %s",
            l->ranks, j->ranks, l->rank, l->ranks, l->name);
    if (j->rank >= j->ranks)
        return an_fail(err, AN_E_USAGE, "%s=%d and %s=%d in the environment contradict each other", l->rank, j->rank,
                       l->ranks, j->ranks);
    if (here < 1 || here > j->ranks)
        return an_fail(err, AN_E_USAGE, "%s=%d and %s=%d in the environment contradict each other", l->local_ranks,
                       here, l->ranks, j->ranks);
    const bool is_told = l->local_ranks && getenv(l->local_ranks); /* else `here` is the number of all */
    if (getenv(l->local_rank) && j->local_rank >= here)
        return an_fail(err, AN_E_USAGE, "%s=%d and %s=%d in the environment contradict each other", l->local_rank,
                       j->local_rank, is_told ? l->local_ranks : l->ranks, here);
    if (j->ranks > AN_COMM_RANKS)
        return an_fail(err, AN_E_UNSUPPORTED, "%s=%d: a job has 1 to %d ranks", l->ranks, j->ranks, AN_COMM_RANKS);
    return AN_OK;
}

/* Variables of torchrun's or of another MPI's launcher that were left in the environment of processes that MPI's launcher starts would
 * give all of them one rank. Those of srun may differ: it also starts other launchers, one a host. */
static an_status check_mpi_agrees(an_err *err, const launcher *l, const an_comm_job *j)
{
    for (size_t i = 0; i < AN_COUNT(launchers) && !l->hosts; i++) {
        const launcher *other = &launchers[i];
        int rank, ranks;
        if (other == l || !other->mpi || other->hosts || (other->only_with && !getenv(other->only_with))) continue;
        AN_TRY(number(err, other->ranks, 1, &ranks));
        AN_TRY(number(err, other->rank, j->rank, &rank));
        if (ranks < 2 || (ranks == j->ranks && rank == j->rank)) continue;
        return an_fail(
            err, AN_E_USAGE,
            "%s=%d of %s=%d and %s=%d of %s=%d in the environment contradict each other: unset those that are "
            "not of this job",
            l->rank, j->rank, l->ranks, j->ranks, other->rank, rank, other->ranks, ranks);
    }
    return AN_OK;
}

static void make_key(const launcher *l, an_comm_job *j)
{
    int used = snprintf(j->key, sizeof j->key, "%s/%d", l->name, j->ranks);
    bool any = false;
    for (size_t i = 0; i < AN_COUNT(l->key) && used > 0 && used < (int)sizeof j->key; i++) {
        const char *value = l->key[i] ? getenv(l->key[i]) : NULL;
        any |= value != NULL;
        used += snprintf(j->key + used, sizeof j->key - (size_t)used, "/%.60s", value ? value : "");
    }
    if (!any && used > 0 && used < (int)sizeof j->key) /* the ranks are then children of one process */
        snprintf(j->key + used, sizeof j->key - (size_t)used, "/%ld", (long)getppid());
}

/* MPICH's `mpiexec -pmi-port` does not tell a process how many there are: each would train alone, all into one folder. */
static an_status check_told(an_err *err)
{
    const char *port = getenv("PMI_PORT"), *id = getenv("PMI_ID");
    if (!port || !*port || !id || !*id) return AN_OK;
    return an_fail(
        err, AN_E_USAGE,
        "PMI_PORT=%.60s and PMI_ID=%.20s in the environment are those of mpiexec -pmi-port, which does not say "
        "how many processes it started: leave -pmi-port out, or unset both",
        port, id);
}

an_status an_comm_job_read(an_err *err, an_comm_job *out)
{
    *out = (an_comm_job){.ranks = 1};
    for (size_t i = 0; i < AN_COUNT(launchers); i++) {
        const launcher *l = &launchers[i];
        an_comm_job j = {0};
        int here, hosts;
        if (l->only_with && !getenv(l->only_with)) continue;
        AN_TRY(number(err, l->ranks, 1, &j.ranks));
        if (j.ranks < 2) continue;
        AN_TRY(number(err, l->rank, -1, &j.rank));
        AN_TRY(number(err, l->local_rank, j.rank, &j.local_rank));
        AN_TRY(number(err, l->local_ranks, j.ranks, &here));
        AN_TRY(number(err, l->hosts, 1, &hosts));
        AN_TRY(check_job(err, l, &j, here));
        AN_TRY(check_mpi_agrees(err, l, &j));
        j.several_hosts = here != j.ranks || hosts > 1;
        j.mpi = l->mpi;
        snprintf(j.launcher, sizeof j.launcher, "%s", l->name);
        j.rank_name = l->rank, j.ranks_name = l->ranks;
        make_key(l, &j);
        *out = j;
        return AN_OK;
    }
    return check_told(err);
}

/* ---- finding one another */

static void path_of(const an_comm_job *j, char out[256])
{
    const uint64_t hash = an_hash(j->key, strlen(j->key), 0);
    snprintf(out, 256, "%s/anneal-%ld-%016llx", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getuid(),
             (unsigned long long)hash);
}

static bool lock_byte(int fd, int rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(fd, F_SETLK, &lock) == 0;
}

static bool is_locked(int fd, int rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Gives the file its size, and takes the memory for it: a page that /dev/shm has no room for would kill the rank that writes to
 * it (SIGBUS). An error's number; 0: none. */
static int size_file(int fd, size_t bytes)
{
#ifdef __linux__
    return posix_fallocate(fd, 0, (off_t)bytes);
#else
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
#endif
}

static an_comm_shared *map_file(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Whether a rank 0 that lives has the file: it waits for its ranks. */
static bool is_taken(const char *path)
{
    const int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    const bool taken = fd >= 0 && is_locked(fd, 0);
    if (fd >= 0) close(fd);
    return taken;
}

/* Removes what rank 0 of earlier jobs of this user's left where it was killed before all had come. Not what is a minute old: its rank 0 may be
 * about to take its lock. */
static void sweep(const char *path)
{
    enum { OLD_S = 60 };
    char dir[256], other[600], mine[64];
    const char *name = strrchr(path, '/') + 1;
    snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
    snprintf(mine, sizeof mine, "anneal-%ld-", (long)getuid());
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat facts;
        if (strncmp(e->d_name, mine, strlen(mine)) != 0 || strlen(e->d_name) != strlen(name)) continue;
        snprintf(other, sizeof other, "%s%s", dir, e->d_name);
        if (lstat(other, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == getuid() &&
            difftime(time(NULL), facts.st_mtime) > OLD_S && !is_taken(other))
            unlink(other);
    }
    if (d) closedir(d);
}

static an_status make_file(an_err *err, const an_comm_job *j, const char *path, size_t bytes, int *fd,
                           an_comm_shared **out)
{
    if (is_taken(path))
        return an_fail(err, AN_E_USAGE,
                       "two processes say that they are rank 0 of this job; if these are two jobs, start them with "
                       "other ports (%s)",
                       j->launcher);
    sweep(path);
    unlink(path); /* of an earlier job; a file of another user stays, and the next line fails */
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0) return an_fail(err, AN_E_ENV, "%s: the ranks of the job cannot meet there: %s", path, strerror(errno));
    int code = lock_byte(*fd, 0) ? size_file(*fd, bytes) : errno;
    if (!code && !(*out = map_file(*fd, bytes))) code = errno;
    if (code)
        return an_fail(err, AN_E_ENV, "%s: %zu bytes of shared memory for the ranks of the job: %s", path, bytes,
                       strerror(code));
    (*out)->ranks = j->ranks;
    (*out)->version = an_comm_version();
    atomic_store(&(*out)->ready, AN_COMM_MAGIC);
    return AN_OK;
}

/* Lets go of a job's memory without a trace: a rank that closes it says that it leaves. */
static void unmap_file(an_comm_shared **shared, size_t bytes)
{
    munmap(*shared, bytes);
    *shared = NULL;
}

/* *out stays NULL where rank 0 has not made the file yet, and where this process is no rank of its job. */
static an_status try_file(an_err *err, const an_comm_job *j, const char *path, size_t bytes, int *fd,
                          an_comm_shared **out)
{
    struct stat facts;
    *fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) return AN_OK;
    const bool ours =
        fstat(*fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == getuid() && (facts.st_mode & 077) == 0;
    if (!ours || !is_locked(*fd, 0) || facts.st_size != (off_t)bytes || !(*out = map_file(*fd, bytes))) return AN_OK;
    if (atomic_load(&(*out)->ready) != AN_COMM_MAGIC) {
        unmap_file(out, bytes);
        return AN_OK;
    }
    if ((*out)->version != an_comm_version() || (*out)->ranks != j->ranks) {
        unmap_file(out, bytes);
        return an_fail(err, AN_E_USAGE, "rank %d is another version of anneal than rank 0, or of another job", j->rank);
    }
    if (!lock_byte(*fd, j->rank)) {
        unmap_file(out, bytes);
        return an_fail(err, AN_E_USAGE, "two processes say that they are rank %d of this job", j->rank);
    }
    return AN_OK;
}

/* Says once that rank `other` lets this one wait. */
static void tell(const an_comm_job *j, int other, double waited_s, bool *told)
{
    char sentence[256];
    if (*told || !j->waits || waited_s < AN_COMM_TELL_S) return;
    snprintf(
        sentence, sizeof sentence,
        "rank %d waits for rank %d: %s=%d and %s=%d in the environment say that this is one process of a job of %s's; "
        "unset both to train with this one alone",
        j->rank, other, j->rank_name, j->rank, j->ranks_name, j->ranks, j->launcher);
    *told = true;
    j->waits(sentence);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static an_status find_file(an_err *err, const an_comm_job *j, const char *path, size_t bytes, double timeout_s, int *fd,
                           an_comm_shared **out)
{
    an_wait_clock clock = {0};
    bool told = false;
    while (true) {
        AN_TRY(try_file(err, j, path, bytes, fd, out));
        if (*out) return AN_OK;
        if (*fd >= 0) close(*fd);
        *fd = -1;
        const double waited_s = an_wait_clock_ask(&clock);
        tell(j, 0, waited_s, &told);
        if (waited_s >= timeout_s)
            return an_fail(err, AN_E_ENV,
                           "rank %d has waited %.0f s for rank 0 of the job that %s started on this host (%s); was it "
                           "started, and by the same user?",
                           j->rank, timeout_s, j->launcher, path);
        nap();
    }
}

static an_status wait_for_all(an_err *err, const an_comm_job *j, an_comm *c, const char *path)
{
    an_wait_clock clock = {0};
    bool told = false;
    for (int r = 0; r < c->ranks; r++)
        while (!atomic_load(&c->shared->member[r].present)) {
            AN_TRY(an_comm_status(err, c));
            if (c->rank > 0 && !is_locked(c->file, 0))
                return an_fail(err, AN_E_ENV, "rank 0 of the job has ended before all ranks had come");
            const double waited_s = an_wait_clock_ask(&clock);
            tell(j, r, waited_s, &told);
            if (waited_s >= c->timeout_s)
                return an_fail(
                    err, AN_E_ENV,
                    "rank %d of the job has not come in %.0f s; are all %d ranks started on this host, by the same "
                    "user? (%s)",
                    r, c->timeout_s, c->ranks, path);
            nap();
        }
    return AN_OK;
}

an_status an_comm_join(an_err *err, const an_comm_job *j, an_comm **out)
{
    const size_t bytes = (size_t)an_comm_bytes(j->ranks);
    an_comm_shared *shared = NULL;
    an_comm *c = NULL;
    char path[256];
    int fd = -1;
    *out = NULL;
    if (j->several_hosts)
        return an_fail(err, AN_E_UNSUPPORTED,
                       "the %d processes of this job are on several hosts, which need MPI: transport=mpi", j->ranks);
    path_of(j, path);
    an_status status = an_comm_wrap(err, NULL, bytes, j->rank, j->ranks, &c);
    if (status != AN_OK) return status;
    status = j->rank == 0 ? make_file(err, j, path, bytes, &fd, &shared)
                          : find_file(err, j, path, bytes, c->timeout_s, &fd, &shared);
    c->shared = shared;
    c->file = fd;
    if (status == AN_OK) {
        atomic_store(&shared->member[j->rank].present, 1);
        status = wait_for_all(err, j, c, path);
    }
    if (j->rank == 0 && fd >= 0) unlink(path);
    if (status != AN_OK) {
        an_comm_close(c);
        return status;
    }
    *out = c;
    return AN_OK;
}
