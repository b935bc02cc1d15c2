/* fake_mpi.c: a stand-in of an MPI library, for ranks of one machine, that allows what the standard promises and nothing more.
 *
 * It is the least helpful library that is still right: a send is done only when its receiver has taken it, received bytes appear at the
 * very moment when MPI_Test says so, and messages move in no call but MPI's. What the standard forbids is a line of FAKE_MPI_LOG: calls
 * before MPI_Init, after MPI_Finalize or MPI_Abort, or by two threads at a time; a message of another size than its receive; a buffer
 * that is written while its message is under way; requests that are left open; messages that nobody receives; an end without
 * MPI_Finalize. Compiled with -DMPICH it has MPICH's handles, else Open MPI's.
 *
 * FAKE_MPI_FILE is the memory that a job's ranks share, a new file for each job; rank and number are those of the launcher's variables.
 * FAKE_MPI_SLOW=SEED: MPI_Test says no at random. FAKE_MPI_FAIL=MPI_Test:7:1 fails the seventh MPI_Test of rank 1;
 * FAKE_MPI_STOPS=MPI_Finalize:1: that call never comes back in rank 1. FAKE_MPI_LEVEL=1: calls of one thread only. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, TAGS = 4, PIECE = 1 << 18, REQUESTS = 512, POISON = 0xa5, ERR_TRUNCATE = 15, ERR_OTHER = 16 };

#define EXPORT __attribute__((visibility("default")))

#ifdef MPICH
typedef int handle, request;
static const handle world = 0x44000000, byte_type = 0x4c00010d, errors_return = 0x54000001;
static const request null_request = 0x2c000000;
EXPORT void MPIR_Dup_fn(void);
void MPIR_Dup_fn(void) {}
static const char version[] = "MPICH Version:\t4.0.2 (stand-in)\n";
#else
typedef void *handle, *request;
EXPORT char ompi_mpi_comm_world[8], ompi_mpi_byte[8], ompi_mpi_errors_return[8], ompi_request_null[8];
#define world         ((void *)ompi_mpi_comm_world)
#define byte_type     ((void *)ompi_mpi_byte)
#define errors_return ((void *)ompi_mpi_errors_return)
#define null_request  ((void *)ompi_request_null)
static const char version[] = "Open MPI v4.1.4, stand-in";
#endif

/* One piece of a message on its way from one rank to another under one tag. */
typedef struct channel {
    _Atomic int full;
    size_t total, at, n;
    char bytes[PIECE];
} channel;

typedef struct job {
    _Atomic int arrived, finalized[RANKS], aborted; /* aborted: the exit code plus 1 */
    channel channels[RANKS][RANKS][TAGS];           /* [from][to][tag] */
} job;

typedef struct message {
    enum { FREE, SENDS, RECEIVES } kind;
    int peer, tag, code, started, done;
    char *user, *received;
    size_t count, moved;
    uint64_t hash, serial;
} message;

static job *shared;
static message messages[REQUESTS];
static uint64_t serial, chance;
static int rank_, ranks_, stage; /* of `stage`: 1 initialized, 2 finalized, 3 aborted */
static _Atomic int inside;

static void complain(const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    int n = snprintf(text, sizeof text, "rank %d: ", rank_);
    n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, list);
    va_end(list);
    text[n++] = '\n';
    const char *path = getenv("FAKE_MPI_LOG");
    const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : 2;
    if (file < 0 || write(file, text, (size_t)n) != n) abort();
    if (path) close(file);
}

static int setting(const char *a, const char *b, int otherwise)
{
    const char *text = getenv(a) ? getenv(a) : getenv(b);
    return text ? atoi(text) : otherwise;
}

/* Whether this call of `name` is the one that is to fail. */
static int fails(const char *name)
{
    static char wanted[40];
    static int at = -1, who, calls;
    if (at < 0) {
        const char *text = getenv("FAKE_MPI_FAIL");
        at = 0;
        if (text && sscanf(text, "%39[^:]:%d:%d", wanted, &at, &who) != 3) at = 0;
    }
    return at > 0 && who == rank_ && strcmp(name, wanted) == 0 && ++calls == at;
}

/* A call that never comes back, where this is the one that FAKE_MPI_STOPS names. */
static void stop_here(const char *name)
{
    const char *wanted = getenv("FAKE_MPI_STOPS");
    const size_t n = strlen(name);
    while (wanted && strncmp(wanted, name, n) == 0 && wanted[n] == ':' && atoi(wanted + n + 1) == rank_) pause();
}

/* What every call does first; a rank of a job that was aborted ends here, as a launcher kills it. */
static int enter(const char *name)
{
    static const char *const when[] = {"before MPI_Init_thread", "", "after MPI_Finalize", "after MPI_Abort"};
    if (atomic_exchange(&inside, 1)) complain("%s while another thread is in a call of MPI", name);
    if (stage != 1) complain("%s %s", name, when[stage]);
    if (stage == 1 && shared->aborted) _exit(shared->aborted - 1);
    return stage == 1;
}

static int leave(int code)
{
    inside = 0;
    return code;
}

static uint64_t hash(const char *data, size_t n)
{
    uint64_t h = 1469598103934665603u;
    uint64_t eight;
    size_t i = 0;
    for (; i + sizeof eight <= n; i += sizeof eight) {
        memcpy(&eight, data + i, sizeof eight);
        h = (h ^ eight) * 1099511628211u, h ^= h >> 32;
    }
    for (; i < n; i++) h = (h ^ (unsigned char)data[i]) * 1099511628211u;
    return h;
}

/* ---- messages */

static message *oldest(int kind, int peer, int tag)
{
    message *best = NULL;
    for (int i = 0; i < REQUESTS; i++) {
        message *m = &messages[i];
        if (m->kind != (unsigned)kind || m->done || m->peer != peer || m->tag != tag) continue;
        if (!best || m->serial < best->serial) best = m;
    }
    return best;
}

static void send_piece(int to, int tag)
{
    channel *c = &shared->channels[rank_][to][tag];
    message *m;
    while (!c->full && (m = oldest(SENDS, to, tag))) {
        if (m->started && m->moved == m->count) {
            m->done = 1;
            continue;
        }
        c->total = m->count;
        c->at = m->moved;
        c->n = m->count - m->moved < PIECE ? m->count - m->moved : PIECE;
        memcpy(c->bytes, m->user + m->moved, c->n);
        m->moved += c->n;
        m->started = 1;
        c->full = 1;
    }
}

static void take_piece(int from, int tag)
{
    channel *c = &shared->channels[from][rank_][tag];
    message *m = c->full ? oldest(RECEIVES, from, tag) : NULL;
    if (!m) return;
    if (c->at == 0 && c->total != m->count) {
        complain("a message of %zu bytes of rank %d meets a receive of %zu", c->total, from, m->count);
        m->code = ERR_TRUNCATE;
    }
    if (!m->code) memcpy(m->received + c->at, c->bytes, c->n);
    m->moved = c->at + c->n;
    m->done = m->moved == c->total;
    c->full = 0;
}

static void progress(void)
{
    for (int r = 0; r < ranks_; r++)
        for (int tag = 0; tag < TAGS; tag++)
            if (r != rank_) send_piece(r, tag), take_piece(r, tag);
}

static int unlikely(void)
{
    if (!getenv("FAKE_MPI_SLOW")) return 0;
    if (!chance) chance = strtoull(getenv("FAKE_MPI_SLOW"), NULL, 10) * 2654435761u + (uint64_t)rank_ + 1;
    chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
    return chance % 4 != 0;
}

static void check_overlap(const char *name, int kind, const char *data, size_t n)
{
    for (int i = 0; i < REQUESTS; i++) {
        const message *m = &messages[i];
        if (m->kind == FREE || (m->kind == SENDS && kind == SENDS)) continue; /* two sends may read the same bytes */
        if (data < m->user + m->count && m->user < data + n)
            complain("%s: its buffer is also that of a message with rank %d that is under way", name, m->peer);
    }
}

static int begin(const char *name, int kind, char *data, int n, handle type, int peer, int tag, handle comm,
                 request *out)
{
    message *m = NULL;
    if (!enter(name) || fails(name)) return leave(ERR_OTHER);
    if (comm != world || type != byte_type) complain("%s: other handles than the library's", name);
    if (n < 0 || peer < 0 || peer >= ranks_ || peer == rank_ || tag < 0 || tag >= TAGS) {
        complain("%s: %d bytes, rank %d of %d, tag %d", name, n, peer, ranks_, tag);
        return leave(ERR_OTHER);
    }
    if (kind == SENDS && shared->finalized[peer]) complain("%s to rank %d, which has called MPI_Finalize", name, peer);
    check_overlap(name, kind, data, (size_t)n);
    for (int i = 0; i < REQUESTS && !m; i++)
        if (messages[i].kind == FREE) m = &messages[i];
    if (!m) {
        complain("%s: more than %d requests are open", name, REQUESTS);
        return leave(ERR_OTHER);
    }
    *m = (message){
        .kind = (unsigned)kind, .peer = peer, .tag = tag, .user = data, .count = (size_t)n, .serial = ++serial};
    if (kind == RECEIVES) {
        memset(data, POISON, (size_t)n);
        m->received = malloc((size_t)n + 1);
        if (!m->received) abort();
    }
    m->hash = hash(data, (size_t)n);
#ifdef MPICH
    *out = 0x6c000000 | (int)(m - messages);
#else
    *out = m;
#endif
    progress();
    return leave(0);
}

static message *message_of(request r)
{
#ifdef MPICH
    const int i = r ^ 0x6c000000;
    message *m = i >= 0 && i < REQUESTS ? &messages[i] : NULL;
#else
    message *m = r;
    if (m < messages || m >= messages + REQUESTS) m = NULL;
#endif
    return m && m->kind != FREE ? m : NULL;
}

/* ---- MPI's functions */

EXPORT int MPI_Initialized(int *flag)
{
    *flag = stage > 0;
    return 0;
}

EXPORT int MPI_Get_library_version(char *text, int *length)
{
    strcpy(text, version);
    *length = (int)strlen(version);
    return 0;
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    const char *path = getenv("FAKE_MPI_FILE");
    (void)argc, (void)argv;
    rank_ = setting("OMPI_COMM_WORLD_RANK", "PMI_RANK", 0);
    ranks_ = setting("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", 1);
    if (stage) return complain("MPI_Init_thread twice"), ERR_OTHER;
    if (fails("MPI_Init_thread")) return ERR_OTHER;
    stop_here("MPI_Init_thread");
    const int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ranks_ > RANKS || ftruncate(file, sizeof(job)) != 0) return ERR_OTHER;
    shared = mmap(NULL, sizeof(job), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED) return ERR_OTHER;
    atomic_fetch_add(&shared->arrived, 1);
    while (atomic_load(&shared->arrived) < ranks_)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* as libraries do */
    stage = 1;
    *provided = getenv("FAKE_MPI_LEVEL") ? atoi(getenv("FAKE_MPI_LEVEL")) : required;
    return 0;
}

EXPORT int MPI_Comm_set_errhandler(handle comm, handle handler)
{
    if (!enter("MPI_Comm_set_errhandler")) return leave(ERR_OTHER);
    if (comm != world || handler != errors_return)
        complain("MPI_Comm_set_errhandler: other handles than the library's");
    return leave(0);
}

EXPORT int MPI_Comm_rank(handle comm, int *out)
{
    if (!enter("MPI_Comm_rank") || comm != world) return leave(ERR_OTHER);
    *out = rank_;
    return leave(0);
}

EXPORT int MPI_Comm_size(handle comm, int *out)
{
    if (!enter("MPI_Comm_size") || comm != world) return leave(ERR_OTHER);
    *out = ranks_;
    return leave(0);
}

EXPORT int MPI_Isend(const void *data, int n, handle type, int to, int tag, handle comm, request *out)
{
    return begin("MPI_Isend", SENDS, (char *)(uintptr_t)data, n, type, to, tag, comm, out);
}

EXPORT int MPI_Irecv(void *data, int n, handle type, int from, int tag, handle comm, request *out)
{
    return begin("MPI_Irecv", RECEIVES, data, n, type, from, tag, comm, out);
}

EXPORT int MPI_Test(request *r, int *flag, void *status)
{
    (void)status;
    *flag = 0;
    if (!enter("MPI_Test") || fails("MPI_Test")) return leave(ERR_OTHER);
    progress();
    if (*r == null_request) return *flag = 1, leave(0);
    message *m = message_of(*r);
    if (!m) {
        complain("MPI_Test of what is no open request");
        return leave(ERR_OTHER);
    }
    if (!m->done || unlikely()) return leave(0);
    if (hash(m->user, m->count) != m->hash)
        complain("the buffer of a message %s rank %d was written while it was under way",
                 m->kind == SENDS ? "to" : "from", m->peer);
    if (m->kind == RECEIVES && !m->code) memcpy(m->user, m->received, m->count);
    const int code = m->code;
    free(m->received);
    *m = (message){0};
    *r = null_request;
    *flag = 1;
    return leave(code);
}

EXPORT int MPI_Error_string(int code, char *text, int *length)
{
    *length = sprintf(text, code == ERR_TRUNCATE ? "the message has another size" : "the stand-in refuses it");
    return 0;
}

EXPORT int MPI_Finalize(void)
{
    if (!enter("MPI_Finalize") || fails("MPI_Finalize")) return leave(ERR_OTHER);
    stop_here("MPI_Finalize");
    for (int i = 0; i < REQUESTS; i++)
        if (messages[i].kind != FREE)
            complain("MPI_Finalize: a message of %zu bytes %s rank %d is still open", messages[i].count,
                     messages[i].kind == SENDS ? "to" : "from", messages[i].peer);
    shared->finalized[rank_] = 1;
    for (int r = 0; r < ranks_ && !shared->aborted;)
        if (shared->finalized[r])
            r++;
        else
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    /* only now: until the others are here too, one may still send */
    for (int r = 0; r < ranks_; r++)
        for (int tag = 0; tag < TAGS; tag++)
            if (shared->channels[r][rank_][tag].full)
                complain("MPI_Finalize: nobody has received a message of %zu bytes of rank %d",
                         shared->channels[r][rank_][tag].total, r);
    stage = 2;
    return leave(0);
}

/* It returns, which the standard allows: a caller that goes on as if nothing had been is found. */
EXPORT int MPI_Abort(handle comm, int code)
{
    if (!enter("MPI_Abort")) return leave(ERR_OTHER);
    if (comm != world) complain("MPI_Abort: other handles than the library's");
    shared->aborted = code + 1;
    stage = 3;
    return leave(0);
}

__attribute__((destructor)) static void at_the_end(void)
{
    if (stage != 1) return;
    if (!shared->aborted) complain("the process ends without MPI_Finalize or MPI_Abort");
    if (!shared->aborted) shared->aborted = 144; /* its launcher kills the others */
}
