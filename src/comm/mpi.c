/* mpi.c: a transport over MPI, between hosts. See comm.h and transport.h.
 *
 * Owns:       MPI's life in this process, from MPI_Init_thread to MPI_Finalize (MPI_Abort where ranks can no longer be brought
 *             together), and every message: to each other rank
 *                 tag 1   a note: "I am in collective 17, which adds 4096 bytes", or "I have failed: SENTENCE", or "I leave"
 *                 tag 2   the data of a collective that both have announced alike
 * Invariants: no call of MPI waits, but its first and its last, which another thread watches. Messages are nonblocking,
 *             and are asked after (MPI_Test) until they are done, a rank has failed or left, or the time is up. One receive a rank is open for its next note, always: a failure arrives
 *             whatever this rank is doing. Data are sent to a rank only after its note has come and is the same as this
 *             rank's, so a mismatch leaves no message behind. MPI keeps messages of a tag in order: a note that comes early
 *             belongs to the next collective, and is kept. The bits of a sum are those of shared memory: each rank gets
 *             its part from all others, adds in rank order, and sends the sums round: 2 (n - 1) / n of the bytes, as a ring.
 *             A message's memory stays where it is until MPI is done with it: after a failure in the middle of data the
 *             process ends with MPI_Abort, for the caller's arrays may be gone. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#ifdef __APPLE__
#define _DARWIN_C_SOURCE
#endif
#include "base/map.h"
#include "comm/mpi_library.h"
#include "comm/transport.h"
#include "platform/platform.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG_NOTE = 1,
    TAG_DATA,
    SERIALIZED = 2, /* MPI_THREAD_SERIALIZED of both families */
    CHUNK_BYTES = 4 << 20,
    PIECE_BYTES = 1 << 28, /* of one message: counts are ints */
    SCRATCH_BYTES = CHUNK_BYTES + AN_COMM_RANKS * AN_COMM_LINE * 8,
    NOTE_MAGIC = 0x414e4d31,
    STATUS_BYTES = 256, /* more than any library's MPI_Status */
    END_S = 20,  /* for all ranks to leave after a failure; what starting and ending MPI may take beside the timeout */
    ABORT_S = 10 /* for MPI_Abort */
};

/* Kinds of notes beside those of collectives. */
enum { HELLO = 100, FAILURE, LEAVE };

typedef struct note {
    uint32_t magic, kind;
    uint64_t serial, bytes; /* of a collective: which one, and its size; of HELLO: the version */
    int32_t failed_rank, code;
    char text[1024]; /* a failure's sentence; the host's name */
} note;

typedef struct an_mpi_job {
    an_mpi_library f;
    note mine, failure, leave; /* sent; each stays until it is */
    an_mpi_request note_out[AN_COMM_RANKS], failure_out[AN_COMM_RANKS], leave_out[AN_COMM_RANKS],
        data[2 * AN_COMM_RANKS];
    note in[AN_COMM_RANKS]; /* the next note of each rank */
    an_mpi_request note_in[AN_COMM_RANKS];
    /* of note_out; failure_out and leave_out have been begun and are not done */
    bool is_sent[AN_COMM_RANKS], fails_to[AN_COMM_RANKS], leaves_to[AN_COMM_RANKS];
    bool listens[AN_COMM_RANKS], has[AN_COMM_RANKS], left[AN_COMM_RANKS];
    bool data_open[2 * AN_COMM_RANKS];
    int data_rank[2 * AN_COMM_RANKS]; /* whose */
    int n_data;
    uint64_t serial;
    bool failed, broken; /* a failure is known; MPI itself has failed, or data were under way */
    int failed_rank;
    an_status failed_code;
    char failed_text[1024];
    char host[AN_COMM_RANKS][64];
    void (*waits)(const char *sentence); /* of the job; NULL: it waits in silence */
    char *scratch;
} an_mpi_job;

/* ---- MPI's calls */

static an_status check(an_err *err, an_comm *c, int code, const char *what, int rank)
{
    an_mpi_job *m = c->mpi;
    char text[AN_MPI_ERROR_BYTES] = "", host[80] = "";
    int length;
    if (code == 0) return AN_OK;
    m->broken = true;
    if (m->f.error_string(code, text, &length) != 0) snprintf(text, sizeof text, "error %d", code);
    if (rank >= 0 && *m->host[rank]) snprintf(host, sizeof host, " on %s", m->host[rank]);
    snprintf(m->failed_text, sizeof m->failed_text, "MPI fails at %s rank %d%s: %.600s", what, rank, host, text);
    m->failed = true;
    m->failed_rank = -1;
    m->failed_code = AN_E_ENV;
    return an_fail(err, AN_E_ENV, "%s", m->failed_text);
}

static an_status is_done(an_err *err, an_comm *c, an_mpi_request *request, int rank, const char *what, bool *done)
{
    _Alignas(16) char status[STATUS_BYTES];
    int flag = 0;
    AN_TRY(check(err, c, c->mpi->f.test(request, &flag, status), what, rank));
    *done = flag != 0;
    return AN_OK;
}

static an_status send_note(an_err *err, an_comm *c, const note *n, int to, an_mpi_request *request)
{
    const an_mpi_library *f = &c->mpi->f;
    return check(err, c, f->isend(n, (int)sizeof *n, f->byte, to, TAG_NOTE, f->world, request), "sending to", to);
}

static an_status listen_to(an_err *err, an_comm *c, int from)
{
    an_mpi_job *m = c->mpi;
    const int code =
        m->f.irecv(&m->in[from], (int)sizeof(note), m->f.byte, from, TAG_NOTE, m->f.world, &m->note_in[from]);
    m->has[from] = false;
    m->listens[from] = code == 0;
    return check(err, c, code, "receiving from", from);
}

/* ---- failures */

static an_status mpi_status(an_err *err, const an_comm *c)
{
    const an_mpi_job *m = c->mpi;
    if (!m->failed) return AN_OK;
    if (m->failed_rank < 0 || m->failed_rank == c->rank) return an_fail(err, m->failed_code, "%.1000s", m->failed_text);
    return an_fail(err, m->failed_code, "rank %d on %s: %.900s", m->failed_rank, m->host[m->failed_rank],
                   m->failed_text);
}

static int mpi_failed_rank(const an_comm *c)
{
    return c->mpi->failed ? c->mpi->failed_rank : -1;
}

static const char *mpi_host(const an_comm *c, int rank)
{
    return c->mpi->host[rank];
}

static const char *mpi_carrier(const an_comm *c)
{
    return c->mpi->f.version;
}

static void record(an_mpi_job *m, int rank, int code, const char *sentence)
{
    if (m->failed) return;
    m->failed = true;
    m->failed_rank = rank;
    m->failed_code = code > AN_OK && code <= AN_E_INTERNAL ? (an_status)code : AN_E_ENV;
    snprintf(m->failed_text, sizeof m->failed_text, "%.1000s", sentence);
}

/* The first failure that this rank knows of goes to all; a failure that another rank sent is not sent on. */
static void mpi_fail(an_comm *c, int rank, an_status code, const char *sentence)
{
    an_mpi_job *m = c->mpi;
    if (m->failed) return;
    record(m, rank, (int)code, sentence);
    m->failure = (note){.magic = NOTE_MAGIC, .kind = FAILURE, .failed_rank = rank, .code = (int32_t)code};
    snprintf(m->failure.text, sizeof m->failure.text, "%s", m->failed_text);
    for (int r = 0; r < c->ranks && !m->broken; r++)
        if (r != c->rank && !m->left[r])
            m->fails_to[r] = send_note(NULL, c, &m->failure, r, &m->failure_out[r]) == AN_OK;
}

static an_status give_up(an_err *err, an_comm *c, an_status code, const char *sentence)
{
    mpi_fail(c, -1, code, sentence);
    return mpi_status(err, c);
}

static an_status refuse_note(an_err *err, an_comm *c, int from)
{
    char text[200];
    snprintf(text, sizeof text,
             "rank %d sends what no rank of this version of anneal does: install the same on all hosts", from);
    return give_up(err, c, AN_E_USAGE, text);
}

/* Receives notes that have come. Returns the failure where one is known. */
static an_status hear(an_err *err, an_comm *c)
{
    an_mpi_job *m = c->mpi;
    for (int r = 0; r < c->ranks; r++) {
        if (!m->listens[r] || m->has[r]) continue;
        bool came;
        AN_TRY(is_done(err, c, &m->note_in[r], r, "receiving from", &came));
        if (!came) continue;
        note *n = &m->in[r];
        n->text[sizeof n->text - 1] = '\0';
        if (n->magic != NOTE_MAGIC) return refuse_note(err, c, r);
        if (n->kind == LEAVE) {
            /* One that leaves for a failure says which: its word may be here before that of the rank that failed. */
            if (n->code)
                record(m, n->failed_rank >= -1 && n->failed_rank < c->ranks ? n->failed_rank : r, n->code, n->text);
            m->left[r] = true;
            m->listens[r] = false;
        } else if (n->kind == FAILURE) {
            const bool sane = n->failed_rank >= -1 && n->failed_rank < c->ranks;
            record(m, sane ? n->failed_rank : r, n->code, n->text);
            AN_TRY(listen_to(err, c, r));
        } else {
            m->has[r] = true;
        }
    }
    return mpi_status(err, c);
}

static an_status check_parent(an_err *err, an_comm *c)
{
    if (getppid() == c->parent) return AN_OK;
    return give_up(err, c, AN_E_ENV, "the process that started the ranks of this host has ended, so they end too");
}

static an_status mpi_watch(an_err *err, an_comm *c)
{
    AN_TRY(hear(err, c));
    return check_parent(err, c);
}

/* ---- waiting */

typedef struct patience {
    an_wait_clock clock;
    double looked;
    int rounds;
} patience;

/* After a round in which nothing came. Messages move only while MPI is called, so naps are short, and are for waits alone. */
static an_status wait_more(an_err *err, an_comm *c, patience *p, int missing, bool naps)
{
    char text[300];
    if (++p->rounds < 200) return AN_OK;
    if (naps && p->rounds > 4000)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    else
        sched_yield();
    const double now = an_seconds();
    if (now - p->looked < 0.01) return AN_OK;
    p->looked = now;
    AN_TRY(check_parent(err, c));
    if (an_wait_clock_at(&p->clock, now) < c->timeout_s) return AN_OK;
    snprintf(text, sizeof text,
             "rank %d on %s has waited %.0f s for rank %d on %s, which hangs, is very slow or has lost its link; "
             "ANNEAL_COMM_TIMEOUT=SECONDS waits longer",
             c->rank, c->mpi->host[c->rank], c->timeout_s, missing, c->mpi->host[missing]);
    return give_up(err, c, AN_E_ENV, text);
}

static an_status check_note(an_err *err, an_comm *c, int r)
{
    const note *mine = &c->mpi->mine, *other = &c->mpi->in[r];
    char text[400];
    if (mine->kind == other->kind && mine->bytes == other->bytes && mine->serial == other->serial) return AN_OK;
    if (mine->kind == HELLO || other->kind == HELLO)
        snprintf(text, sizeof text, "rank %d on %.63s is another version of anneal than rank %d on %s", r, other->text,
                 c->rank, c->mpi->host[c->rank]);
    else
        snprintf(
            text, sizeof text,
            "rank %d on %s %s %llu bytes where rank %d %s %llu: the ranks do not run the same program with the same "
            "settings",
            r, c->mpi->host[r], an_comm_kind_verb(other->kind), (unsigned long long)other->bytes, c->rank,
            an_comm_kind_verb(mine->kind), (unsigned long long)mine->bytes);
    return give_up(err, c, AN_E_USAGE, text);
}

/* Whether all that this rank has sent to r is done: MPI_Finalize is for a process without open requests. */
static bool all_sent(an_comm *c, int r)
{
    an_mpi_job *m = c->mpi;
    bool done = false;
    if (!m->is_sent[r] && is_done(NULL, c, &m->note_out[r], r, "sending to", &done) == AN_OK) m->is_sent[r] = done;
    if (m->fails_to[r] && is_done(NULL, c, &m->failure_out[r], r, "sending to", &done) == AN_OK) m->fails_to[r] = !done;
    if (m->leaves_to[r] && is_done(NULL, c, &m->leave_out[r], r, "sending to", &done) == AN_OK) m->leaves_to[r] = !done;
    return m->is_sent[r] && !m->fails_to[r] && !m->leaves_to[r];
}

/* Whether all notes have come and this rank's are sent; *missing is a rank that is waited for. */
static an_status all_met(an_err *err, an_comm *c, int *missing)
{
    an_mpi_job *m = c->mpi;
    char text[200];
    *missing = -1;
    AN_TRY(hear(err, c));
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        if (m->left[r]) {
            snprintf(text, sizeof text, "rank %d on %s has ended without a word", r, m->host[r]);
            return give_up(err, c, AN_E_ENV, text);
        }
        if (!m->is_sent[r]) AN_TRY(is_done(err, c, &m->note_out[r], r, "sending to", &m->is_sent[r]));
        if (!m->has[r] || !m->is_sent[r]) *missing = r;
    }
    return AN_OK;
}

/* Waits until every rank has said that it is in this collective. */
static an_status meet(an_err *err, an_comm *c, uint32_t kind, uint64_t bytes)
{
    an_mpi_job *m = c->mpi;
    patience p = {0};
    int missing = -1;
    AN_TRY(hear(err, c));
    const double began = an_seconds();
    m->mine.magic = NOTE_MAGIC;
    m->mine.kind = kind;
    m->mine.serial = m->serial++;
    m->mine.bytes = bytes;
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        m->is_sent[r] = false;
        AN_TRY(send_note(err, c, &m->mine, r, &m->note_out[r]));
    }
    while (true) {
        AN_TRY(all_met(err, c, &missing));
        if (missing < 0) break;
        AN_TRY(wait_more(err, c, &p, missing, true));
    }
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        AN_TRY(check_note(err, c, r));
        if (kind == HELLO) memcpy(m->host[r], m->in[r].text, sizeof m->host[r] - 1); /* whose last byte is 0 */
        AN_TRY(listen_to(err, c, r));
    }
    c->wait_s += an_seconds() - began;
    return hear(err, c); /* a rank that gave up waiting for this one has said so behind its note */
}

/* ---- data */

static an_status add_request(an_err *err, an_comm *c, int rank, int code, const char *what)
{
    an_mpi_job *m = c->mpi;
    AN_TRY(check(err, c, code, what, rank));
    m->data_rank[m->n_data] = rank;
    m->data_open[m->n_data++] = true;
    return AN_OK;
}

static an_status send_data(an_err *err, an_comm *c, int to, const char *data, size_t bytes)
{
    an_mpi_job *m = c->mpi;
    if (bytes == 0) return AN_OK;
    return add_request(err, c, to,
                       m->f.isend(data, (int)bytes, m->f.byte, to, TAG_DATA, m->f.world, &m->data[m->n_data]),
                       "sending to");
}

static an_status receive_data(an_err *err, an_comm *c, int from, char *data, size_t bytes)
{
    an_mpi_job *m = c->mpi;
    if (bytes == 0) return AN_OK;
    return add_request(err, c, from,
                       m->f.irecv(data, (int)bytes, m->f.byte, from, TAG_DATA, m->f.world, &m->data[m->n_data]),
                       "receiving from");
}

/* Waits for everything that send_data and receive_data have begun. */
static an_status finish_data(an_err *err, an_comm *c)
{
    an_mpi_job *m = c->mpi;
    patience p = {0};
    while (true) {
        int missing = -1;
        bool moved = false;
        for (int i = 0; i < m->n_data; i++) {
            bool done = true;
            if (!m->data_open[i]) continue;
            AN_TRY(is_done(err, c, &m->data[i], m->data_rank[i], "exchanging with", &done));
            m->data_open[i] = !done;
            moved |= done;
            if (!done) missing = m->data_rank[i];
        }
        if (missing < 0) break;
        if (moved) p = (patience){0};
        AN_TRY(hear(err, c));
        AN_TRY(wait_more(err, c, &p, missing, false));
    }
    m->n_data = 0;
    return AN_OK;
}

/* ---- collectives */

static an_status mpi_barrier(an_err *err, an_comm *c)
{
    return meet(err, c, AN_COMM_BARRIER, 0);
}

/* This rank's part, in `in`, and those of the others, which have come to `scratch` one behind another, in rank order. */
static void add_parts(an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const char *all[AN_COMM_RANKS];
    const size_t bytes = (size_t)n * an_dtype_size(dtype);
    for (int r = 0; r < c->ranks; r++) all[r] = r == c->rank ? in : c->mpi->scratch + (size_t)r * bytes;
    an_comm_add(dtype, c->ranks, n, all, out, NULL);
}

static an_status sum_chunk(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype);
    const int64_t from = an_comm_part_begin(c, n, c->rank), mine = an_comm_part_begin(c, n, c->rank + 1) - from;
    const size_t bytes = (size_t)mine * each, at = (size_t)from * each;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) AN_TRY(receive_data(err, c, r, c->mpi->scratch + (size_t)r * bytes, bytes));
    for (int r = 0; r < c->ranks; r++) {
        const size_t begin = (size_t)an_comm_part_begin(c, n, r) * each,
                     end = (size_t)an_comm_part_begin(c, n, r + 1) * each;
        if (r != c->rank) AN_TRY(send_data(err, c, r, in + begin, end - begin));
    }
    AN_TRY(finish_data(err, c));
    add_parts(c, dtype, mine, in + at, out + at);
    for (int r = 0; r < c->ranks; r++) {
        const size_t begin = (size_t)an_comm_part_begin(c, n, r) * each,
                     end = (size_t)an_comm_part_begin(c, n, r + 1) * each;
        if (r != c->rank) AN_TRY(receive_data(err, c, r, out + begin, end - begin));
    }
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) AN_TRY(send_data(err, c, r, out + at, bytes));
    return finish_data(err, c);
}

static an_status mpi_sum(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype);
    const int64_t most = CHUNK_BYTES / (int64_t)each;
    AN_TRY(meet(err, c, AN_COMM_SUM, (uint64_t)n * each));
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(sum_chunk(err, c, dtype, AN_MIN(most, n - at), in + (size_t)at * each, out + (size_t)at * each));
    return AN_OK;
}

static an_status scatter_chunk(an_err *err, an_comm *c, an_dtype dtype, int64_t n, int64_t m, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype), bytes = (size_t)m * each, apart = (size_t)n * each;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) AN_TRY(receive_data(err, c, r, c->mpi->scratch + (size_t)r * bytes, bytes));
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) AN_TRY(send_data(err, c, r, in + (size_t)r * apart, bytes));
    AN_TRY(finish_data(err, c));
    add_parts(c, dtype, m, in + (size_t)c->rank * apart, out);
    return AN_OK;
}

static an_status mpi_reduce_scatter(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype);
    const int64_t most = CHUNK_BYTES / (int64_t)each / c->ranks;
    AN_TRY(meet(err, c, AN_COMM_REDUCE_SCATTER, (uint64_t)n * each));
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(scatter_chunk(err, c, dtype, n, AN_MIN(most, n - at), in + (size_t)at * each, out + (size_t)at * each));
    return AN_OK;
}

static an_status range_chunk(an_err *err, an_comm *c, an_dtype dtype, int64_t part, int64_t first, int64_t n,
                             const char *in, char **out)
{
    const size_t each = an_dtype_size(dtype);
    int64_t from;
    const int64_t mine = an_comm_range_of(part, first, n, c->rank, &from);
    const size_t bytes = (size_t)mine * each;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) AN_TRY(receive_data(err, c, r, c->mpi->scratch + (size_t)r * bytes, bytes));
    size_t at = 0, mine_at = 0;
    for (int r = 0; r < c->ranks; r++) {
        const size_t its = (size_t)an_comm_range_of(part, first, n, r, &from) * each;
        if (r == c->rank)
            mine_at = at;
        else
            AN_TRY(send_data(err, c, r, in + at, its));
        at += its;
    }
    AN_TRY(finish_data(err, c));
    if (mine > 0) add_parts(c, dtype, mine, in + mine_at, *out);
    *out += bytes;
    return AN_OK;
}

static an_status mpi_sum_range(an_err *err, an_comm *c, an_dtype dtype, int64_t part, int64_t first, int64_t n,
                               const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype);
    const int64_t most = CHUNK_BYTES / (int64_t)each / c->ranks;
    AN_TRY(meet(err, c, AN_COMM_REDUCE_SCATTER, (uint64_t)n * each));
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(range_chunk(err, c, dtype, part, first + at, AN_MIN(most, n - at), in + (size_t)at * each, &out));
    return AN_OK;
}

static an_status mpi_gather(an_err *err, an_comm *c, size_t bytes, const char *in, char *out)
{
    char *own = out + (size_t)c->rank * bytes;
    AN_TRY(meet(err, c, AN_COMM_GATHER, bytes));
    if (own != in && bytes) memmove(own, in, bytes); /* `in` may lie where another rank's come */
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const size_t n = AN_MIN(bytes - at, PIECE_BYTES);
        for (int r = 0; r < c->ranks; r++)
            if (r != c->rank) AN_TRY(receive_data(err, c, r, out + (size_t)r * bytes + at, n));
        for (int r = 0; r < c->ranks; r++)
            if (r != c->rank) AN_TRY(send_data(err, c, r, own + at, n));
        AN_TRY(finish_data(err, c));
    }
    return AN_OK;
}

static an_status mpi_broadcast(an_err *err, an_comm *c, int root, size_t bytes, char *data)
{
    AN_TRY(meet(err, c, AN_COMM_BROADCAST, bytes));
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const size_t n = AN_MIN(bytes - at, PIECE_BYTES);
        if (c->rank != root) AN_TRY(receive_data(err, c, root, data + at, n));
        for (int r = 0; r < c->ranks && c->rank == root; r++)
            if (r != root) AN_TRY(send_data(err, c, r, data + at, n));
        AN_TRY(finish_data(err, c));
    }
    return AN_OK;
}

/* ---- beginning and end */

/* Tells all that this rank leaves, and waits until all have said so: MPI_Finalize waits for every rank without an end. */
static bool all_leave(an_comm *c)
{
    an_mpi_job *m = c->mpi;
    const double most = m->failed ? END_S : c->timeout_s, began = an_seconds();
    m->leave = (note){.magic = NOTE_MAGIC, .kind = LEAVE, .failed_rank = m->failed_rank};
    if (m->failed)
        m->leave.code = (int32_t)m->failed_code, snprintf(m->leave.text, sizeof m->leave.text, "%s", m->failed_text);
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        if (send_note(NULL, c, &m->leave, r, &m->leave_out[r]) != AN_OK) return false;
        m->leaves_to[r] = true;
    }
    for (int waiting = 1; waiting > 0 && an_seconds() - began < most;) {
        (void)hear(NULL, c);
        if (m->broken) return false;
        waiting = 0;
        for (int r = 0; r < c->ranks; r++) {
            /* One that failed at once may have a note of a collective before: it is of no use any more. */
            if (m->has[r] && listen_to(NULL, c, r) != AN_OK) return false;
            waiting += r != c->rank && (!all_sent(c, r) || !m->left[r]);
            if (m->broken) return false;
        }
        if (waiting == 0) return true;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return false;
}

/* MPI's first and last call come back when every process of the job has made them: never, where one is another program or
 * hangs. Such a call cannot be left, and MPI belongs to the thread that makes it; so another thread looks at the time, says
 * what this rank waits for, and ends the process when the time is up. Its launcher then ends the job. */
typedef struct call_watch {
    const char *call, *cause;
    int rank;
    double timeout_s;
    void (*waits)(const char *sentence);
    pthread_t thread;
    atomic_bool over;
} call_watch;

static void *watch_call(void *arg)
{
    enum { EXIT_CODE = 2 };
    call_watch *w = arg;
    an_wait_clock clock = {0};
    char sentence[400];
    for (bool told = false; !atomic_load(&w->over);) {
        const double waited_s = an_wait_clock_ask(&clock);
        const bool late = waited_s >= w->timeout_s;
        if (late || (waited_s >= AN_COMM_TELL_S && !told)) {
            snprintf(sentence, sizeof sentence, "rank %d has waited %.3g s in %s: %s%s", w->rank, waited_s, w->call,
                     w->cause, late ? "; ANNEAL_COMM_TIMEOUT=SECONDS waits longer" : "");
            told = true;
            if (w->waits) w->waits(sentence);
        }
        if (late) _exit(EXIT_CODE);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return NULL;
}

static bool watch_begin(call_watch *w)
{
    return pthread_create(&w->thread, NULL, watch_call, w) == 0;
}

static void watch_end(call_watch *w)
{
    atomic_store(&w->over, true);
    pthread_join(w->thread, NULL);
}

/* Whether MPI has ended in order. */
static bool finalize(an_comm *c)
{
    call_watch w = {"MPI_Finalize", "another rank has not come to its end; what this one computed is saved", c->rank,
                    c->timeout_s + END_S, .waits = c->mpi->waits};
    const bool watched = watch_begin(&w);
    const int code = c->mpi->f.finalize();
    if (watched) watch_end(&w);
    return code == 0;
}

static void mpi_close(an_comm *c)
{
    an_mpi_job *m = c->mpi;
    if (!m) return;
    if (m->f.world) {
        const bool in_order = !m->broken && m->n_data == 0 && all_leave(c) && finalize(c);
        if (!in_order) {
            signal(SIGALRM, SIG_DFL); /* MPI_Abort waits for the launcher, which may not reach the other hosts */
            alarm(ABORT_S);
            m->f.abort(m->f.world, m->failed ? 2 : 1);
            alarm(0); /* a library may return from it */
        }
    }
    free(m->scratch);
    free(m);
}

const an_comm_transport an_comm_mpi = {.barrier = mpi_barrier,
                                       .sum = mpi_sum,
                                       .reduce_scatter = mpi_reduce_scatter,
                                       .sum_range = mpi_sum_range,
                                       .gather = mpi_gather,
                                       .broadcast = mpi_broadcast,
                                       .fail = mpi_fail,
                                       .status = mpi_status,
                                       .watch = mpi_watch,
                                       .failed_rank = mpi_failed_rank,
                                       .host = mpi_host,
                                       .carrier = mpi_carrier,
                                       .close = mpi_close};

static an_status begin(an_err *err, const an_comm_job *j, an_comm *c, an_mpi_library *f)
{
    int is_on = 0, level = 0, rank = -1, ranks = 0;
    if (f->initialized(&is_on) != 0 || is_on)
        return an_fail(err, AN_E_USAGE, "MPI was initialized in this process before; a process joins one job");
    char cause[200];
    snprintf(
        cause, sizeof cause,
        "of the %d processes that %s started one has not started MPI: another program, stopped, or its host cannot "
        "be reached",
        j->ranks, j->launcher);
    call_watch w = {"MPI_Init_thread", cause, j->rank, c->timeout_s + END_S, .waits = j->waits};
    if (!watch_begin(&w)) return an_fail_nomem(err, "a thread that watches MPI's start", 0);
    const int code = f->init_thread(NULL, NULL, SERIALIZED, &level);
    watch_end(&w);
    if (code != 0) return an_fail(err, AN_E_ENV, "MPI_Init_thread of %s fails with code %d", f->version, code);
    c->mpi->f = *f; /* from here on mpi_close ends MPI */
    f->comm_set_errhandler(f->world, f->errors_return);
    const bool told =
        f->comm_rank(f->world, &rank) == 0 && f->comm_size(f->world, &ranks) == 0 && ranks <= AN_COMM_RANKS;
    c->rank = told ? rank : 0;
    c->ranks = told ? ranks : 1;
    c->mpi->broken = !told;
    for (int r = 0; r < AN_COMM_RANKS; r++) c->mpi->is_sent[r] = true; /* nothing is under way yet */
    c->mpi->waits = j->waits;
    if (ranks != j->ranks) {
        /* No rank listens to another yet, so none can be told: MPI_Abort ends them, this one maybe before its caller has
         * said why. */
        an_fail(err, AN_E_ENV,
                "%s has started %d processes, and the library %s counts %d: name the library of that %s in "
                "ANNEAL_MPI, or start with the library's own mpirun%s",
                j->launcher, j->ranks, f->version, ranks, j->launcher,
                strcmp(j->launcher, "srun") == 0 ? " (srun: --mpi=pmix or --mpi=pmi2)" : "");
        c->mpi->broken |= c->ranks > 1;
        if (c->mpi->broken && j->waits && err) j->waits(err->text);
        return AN_E_ENV;
    }
    if (level < SERIALIZED) {
        c->rank = 0, c->ranks = 1; /* no rank greets another, so none is to be told that this one leaves */
        return an_fail(err, AN_E_UNSUPPORTED, "%s allows calls from its first thread only; name another in ANNEAL_MPI",
                       f->version);
    }
    return AN_OK;
}

static an_status greet(an_err *err, an_comm *c)
{
    an_mpi_job *m = c->mpi;
    if (gethostname(m->host[c->rank], sizeof m->host[c->rank] - 1) != 0)
        snprintf(m->host[c->rank], sizeof m->host[c->rank], "a host without a name");
    snprintf(m->mine.text, sizeof m->mine.text, "%s", m->host[c->rank]);
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        snprintf(m->host[r], sizeof m->host[r], "its host");
        AN_TRY(listen_to(err, c, r));
    }
    return meet(err, c, HELLO, an_hash(AN_VERSION, sizeof AN_VERSION, sizeof(note)));
}

an_status an_comm_join_mpi(an_err *err, const an_comm_job *j, an_comm **out)
{
    an_mpi_library library;
    an_comm *c;
    *out = NULL;
    if (!j->mpi)
        return an_fail(
            err, AN_E_UNSUPPORTED,
            "ranks that %s started cannot use MPI; start them with MPI's own: mpirun -n %d --host A,B anneal "
            "train ...",
            j->launcher, j->ranks);
    AN_TRY(an_mpi_load(err, strcmp(j->launcher, "mpiexec") == 0, &library));
    AN_TRY(an_comm_handle(err, &an_comm_mpi, j->rank, j->ranks, &c));
    c->parent = getppid();
    c->mpi = calloc(1, sizeof *c->mpi);
    if (c->mpi) c->mpi->scratch = malloc(SCRATCH_BYTES);
    an_status status = c->mpi && c->mpi->scratch
                           ? begin(err, j, c, &library)
                           : an_fail_nomem(err, "messages of MPI", sizeof *c->mpi + SCRATCH_BYTES);
    if (status == AN_OK) status = greet(err, c);
    if (status == AN_OK)
        *out = c;
    else
        an_comm_close(c);
    return status;
}

an_status an_comm_mpi_version(an_err *err, char *out, size_t n)
{
    an_mpi_library library;
    AN_TRY(an_mpi_load(err, false, &library));
    snprintf(out, n, "%s", library.version);
    return AN_OK;
}
