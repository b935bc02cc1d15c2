/* shared.c: shared memory, barriers, failures. See comm.h and shared.h. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#ifdef __APPLE__
#define _DARWIN_C_SOURCE
#endif
#include "comm/shared.h"

#include "base/map.h"
#include "platform/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- memory */

static size_t header_bytes(void)
{
    return (size_t)an_round_up((int64_t)sizeof(an_comm_shared), 4096);
}

uint64_t an_comm_bytes(int ranks)
{
    return ranks > 1 ? header_bytes() + 2 * (uint64_t)ranks * AN_COMM_SLOT_BYTES : 0;
}

char *an_comm_slot(const an_comm *c, int rank)
{
    return (char *)c->shared + header_bytes() + (size_t)(c->parity * c->ranks + rank) * AN_COMM_SLOT_BYTES;
}

uint32_t an_comm_version(void)
{
    return (uint32_t)an_hash(AN_VERSION, sizeof AN_VERSION, sizeof(an_comm_shared));
}

an_status an_comm_wrap(an_err *err, an_comm_shared *shared, size_t bytes, int rank, int ranks, an_comm **out)
{
    AN_TRY(an_comm_handle(err, &an_comm_shared_memory, rank, ranks, out));
    (*out)->shared = shared;
    (*out)->bytes = bytes;
    return AN_OK;
}

an_status an_comm_new(an_err *err, int ranks, an_comm **out)
{
    *out = NULL;
    if (ranks < 1 || ranks > AN_COMM_RANKS)
        return an_fail(err, AN_E_USAGE, "%d ranks: one host runs 1 to %d", ranks, AN_COMM_RANKS);
    const size_t bytes = (size_t)an_comm_bytes(AN_MAX(ranks, 2));
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return an_fail_nomem(err, "memory that the ranks share", bytes);
    an_comm_shared *shared = at;
    shared->ranks = ranks;
    shared->version = an_comm_version();
    atomic_store(&shared->ready, AN_COMM_MAGIC);
    an_status status = an_comm_wrap(err, shared, bytes, -1, ranks, out);
    if (status != AN_OK)
        munmap(at, bytes);
    else
        (*out)->parent = getpid(); /* of the ranks: the children that become them */
    return status;
}

void an_comm_become(an_comm *c, int rank)
{
    c->rank = rank;
    atomic_store(&c->shared->member[rank].present, 1);
}

void an_comm_shared_close(an_comm *c)
{
    if (c->shared && c->rank >= 0) atomic_store(&c->shared->member[c->rank].left, 1);
    if (c->shared) munmap(c->shared, c->bytes);
    if (c->file >= 0) close(c->file);
}

/* ---- failures */

void an_comm_shared_fail(an_comm *c, int rank, an_status code, const char *sentence)
{
    if (atomic_exchange(&c->shared->claimed, 1)) return;
    c->shared->failed_rank = rank;
    c->shared->failed_code = (int32_t)code;
    snprintf(c->shared->failed_text, sizeof c->shared->failed_text, "%s", sentence);
    atomic_store(&c->shared->failed, 1);
}

int an_comm_shared_failed_rank(const an_comm *c)
{
    return atomic_load(&c->shared->failed) ? c->shared->failed_rank : -1;
}

an_status an_comm_shared_status(an_err *err, const an_comm *c)
{
    if (!atomic_load(&c->shared->failed)) return AN_OK;
    const an_comm_shared *s = c->shared;
    const an_status code =
        s->failed_code > AN_OK && s->failed_code <= AN_E_INTERNAL ? (an_status)s->failed_code : AN_E_ENV;
    if (s->failed_rank < 0 || s->failed_rank == c->rank) return an_fail(err, code, "%.1000s", s->failed_text);
    return an_fail(err, code, "rank %d: %.1000s", (int)s->failed_rank, s->failed_text);
}

/* Records what this rank has seen of another, and returns the failure that came first. One that another rank has claimed can be
 * read a moment later, or never: that rank may be killed before it has written it. */
static an_status give_up(an_err *err, an_comm *c, an_status code, const char *sentence)
{
    an_comm_fail(c, -1, code, sentence);
    for (int i = 0; i < 100 && !atomic_load(&c->shared->failed); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    AN_TRY(an_comm_status(err, c));
    return an_fail(err, code, "%s", sentence);
}

/* ---- barriers */

/* Whether a rank of a job without a process that watches it holds the lock on its byte no more. */
static bool is_gone(const an_comm *c, int rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return c->file >= 0 && atomic_load(&c->shared->member[rank].present) && fcntl(c->file, F_GETLK, &lock) == 0 &&
           lock.l_type == F_UNLCK;
}

/* AN_OK, the failure that was recorded, or that the process that started the ranks has ended. */
static an_status check_job(an_err *err, an_comm *c)
{
    AN_TRY(an_comm_status(err, c));
    if (c->rank >= 0 && c->parent && getppid() != c->parent)
        return give_up(err, c, AN_E_ENV, "the process that started the ranks has ended, so they end too");
    return AN_OK;
}

static an_status say_ended(an_err *err, an_comm *c, int rank)
{
    char text[300];
    snprintf(text, sizeof text,
             "rank %d has ended without a word: it was killed, perhaps for memory (the kernel's log says so)", rank);
    return give_up(err, c, AN_E_ENV, text);
}

an_status an_comm_shared_watch(an_err *err, an_comm *c)
{
    AN_TRY(check_job(err, c));
    /* A rank sets `left` before it gives up its lock, so `left` is read after the lock. */
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank && is_gone(c, r) && !atomic_load(&c->shared->member[r].left)) return say_ended(err, c, r);
    return AN_OK;
}

static an_status check_others(an_err *err, an_comm *c, int missing, uint64_t barrier, double waited)
{
    char text[300];
    AN_TRY(check_job(err, c));
    const bool ended = atomic_load(&c->shared->member[missing].left) || is_gone(c, missing);
    if (ended && atomic_load(&c->shared->member[missing].arrived) < barrier) /* else it came first, and then left */
        return say_ended(err, c, missing);
    if (waited < c->timeout_s) return AN_OK;
    snprintf(
        text, sizeof text,
        "rank %d has waited %.0f s for rank %d, which hangs or is very slow; ANNEAL_COMM_TIMEOUT=SECONDS waits longer",
        c->rank, waited, missing);
    return give_up(err, c, AN_E_ENV, text);
}

/* Spins, then yields, then sleeps up to 0.2 ms at a time: ranks arrive together, or a step apart. */
static void pause_for(int round)
{
    enum { SPINS = 2000, YIELDS = 4000 };
    if (round < SPINS) {
#if defined(__x86_64__)
        __asm__ volatile("pause");
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
        return;
    }
    if (round < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = AN_MIN((round - YIELDS + 1) * 2000L, 200000L)}, NULL);
}

static an_status wait_for(an_err *err, an_comm *c, int rank, uint64_t barrier)
{
    an_wait_clock clock = {0};
    const _Atomic uint64_t *arrived = &c->shared->member[rank].arrived;
    double looked = an_seconds();
    for (int round = 0; atomic_load_explicit(arrived, memory_order_acquire) < barrier;
         round = AN_MIN(round + 1, 1 << 20)) {
        pause_for(round);
        if (round % 256 != 255 && round < 4000) continue;
        const double now = an_seconds();
        if (now - looked < 0.01) continue;
        looked = now;
        AN_TRY(check_others(err, c, rank, barrier, an_wait_clock_at(&clock, now)));
    }
    return AN_OK;
}

static an_status check_equal(an_err *err, an_comm *c, int rank)
{
    const an_comm_member *mine = &c->shared->member[c->rank], *other = &c->shared->member[rank];
    const int now = c->barriers & 1;
    const uint32_t kind = other->kind[now];
    char text[300];
    if (mine->kind[now] == kind && mine->bytes[now] == other->bytes[now]) return AN_OK;
    snprintf(
        text, sizeof text,
        "rank %d %s %llu bytes where rank %d %s %llu: the ranks do not run the same program with the same settings",
        rank, an_comm_kind_verb(kind), (unsigned long long)other->bytes[now], c->rank,
        an_comm_kind_verb(mine->kind[now]), (unsigned long long)mine->bytes[now]);
    return give_up(err, c, AN_E_USAGE, text);
}

an_status an_comm_meet(an_err *err, an_comm *c, an_comm_kind kind, uint64_t bytes)
{
    an_comm_member *mine = &c->shared->member[c->rank];
    AN_TRY(an_comm_status(err, c));
    c->barriers++;
    mine->kind[c->barriers & 1] = (uint32_t)kind;
    mine->bytes[c->barriers & 1] = bytes;
    atomic_store_explicit(&mine->arrived, c->barriers, memory_order_release);
    const double began = an_seconds();
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) AN_TRY(wait_for(err, c, r, c->barriers));
    c->wait_s += an_seconds() - began;
    for (int r = 0; r < c->ranks; r++) AN_TRY(check_equal(err, c, r));
    return AN_OK;
}
