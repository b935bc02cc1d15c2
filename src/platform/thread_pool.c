/* thread_pool.c: the thread pool.
 *
 * Owns:     the worker threads and the one run in progress.
 * Does not: split work; the caller gives each task index a meaning. One run at a time: a pool is one context's. It does not
 *           count cores (affinity, a container's CPU quota: an_cores_available in process_resources.c), nor pin threads.
 *
 * A run is coordinated by atomic words:
 *   parts      of each thread: a range of tasks that no thread has taken, [first, last) in one word. Its thread takes the first of them,
 *              threads that have none left take the last (work stealing).
 *   done       finished tasks. The run is over when it reaches n.
 *   epoch      incremented by each run; idle workers watch it.
 * Thread i is given the i-th part of every run: tasks are mostly blocks of rows, so that what it reads was often written by
 * itself in the run before, and is in its core's cache.
 *
 * Invariants:
 *   - fn, arg and n are written while done == n, when no thread holds a task, and read only by threads that hold one. A
 *     worker that arrives late finds empty ranges, or takes a task of the newer run, which is equally correct. So the
 *     caller never waits for a sleeping worker, only for tasks that were taken.
 *   - A worker that goes to sleep and a caller that wakes workers each write their own word, then read the other's, in
 *     sequentially consistent order. At least one of them sees the other's write, so no wake-up is lost.
 */
#include "platform/thread_pool.h"
#include "platform/platform.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 128 }; /* two 64-byte cache lines, which x86 prefetches in pairs; one line on Apple's cores */
enum { THREADS_MAX = 1024 };
enum { STACK_BYTES = 4 << 20 }; /* the same everywhere; macOS gives threads 512 KiB by itself */

/* Long enough to bridge the gaps between the kernels of a step, short enough not to heat an idle machine. With fewer
 * cores than threads the spinner holds the core that the others need. */
static const double SPIN_SECONDS = 50e-6, SPIN_SECONDS_CROWDED = 1e-6;

typedef struct worker {
    an_pool *pool;
    pthread_t thread;
    int index;
} worker;

typedef struct part {
    _Alignas(LINE) atomic_ullong range; /* first << 32 | last */
} part;

struct an_pool {
    _Alignas(LINE) atomic_llong done;
    _Alignas(LINE) atomic_uint epoch; /* read by spinning workers, written once a run */
    atomic_bool stop;
    atomic_int sleepers; /* workers in or on their way into waiting for work */
    atomic_bool caller_waits;
    _Alignas(LINE) an_pool_fn fn;
    void *arg;
    int64_t n;
    pthread_mutex_t mutex;
    pthread_cond_t work, more, finished; /* more: of workers beyond `working` */
    int threads;
    atomic_int working; /* threads that take part: of these only is one waked */
    pid_t process;      /* that started the workers: a forked child has the memory and none of the threads */
    int cores;          /* that this process may use, when the pool was opened */
    worker *workers;    /* [threads - 1] that were started */
    part *parts;        /* [threads] */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static double spin_seconds(const an_pool *p)
{
    return atomic_load_explicit(&p->working, memory_order_relaxed) <= p->cores ? SPIN_SECONDS : SPIN_SECONDS_CROWDED;
}

/* Takes a task of a part, the first or the last; -1 if none is left. */
static int64_t take(part *from, bool first)
{
    unsigned long long range = atomic_load_explicit(&from->range, memory_order_acquire);
    for (;;) {
        const uint32_t begin = (uint32_t)(range >> 32), end = (uint32_t)range;
        if (begin >= end) return -1;
        const unsigned long long rest = first ? range + (1ULL << 32) : range - 1;
        if (atomic_compare_exchange_weak_explicit(&from->range, &range, rest, memory_order_acq_rel,
                                                  memory_order_acquire))
            return first ? begin : end - 1;
    }
}

/* Takes and runs tasks until none is left, those of the thread's own part first; finally reports what it ran. Tasks that
 * one call takes are all of one run, because a run cannot end while some of its tasks are unreported. */
static void work(an_pool *p, int thread)
{
    int64_t ran = 0, n = 0;
    const int working = atomic_load_explicit(&p->working, memory_order_relaxed);
    for (int i = 0; i < working; i++) {
        part *from = &p->parts[(thread + i) % working];
        const bool own = i == 0 && thread < working;
        for (int64_t task; (task = take(from, own)) >= 0; ran++) {
            n = p->n;
            p->fn(p->arg, task, thread);
        }
    }
    if (ran == 0) return;
    if (atomic_fetch_add(&p->done, ran) + ran != n || !atomic_load(&p->caller_waits)) return;
    pthread_mutex_lock(&p->mutex);
    pthread_cond_signal(&p->finished);
    pthread_mutex_unlock(&p->mutex);
}

static bool takes_part(const an_pool *p, int thread)
{
    return thread < atomic_load_explicit(&p->working, memory_order_relaxed) || atomic_load(&p->stop);
}

/* Spins until the epoch leaves `seen`, then sleeps; returns the new epoch. */
static unsigned next_epoch(an_pool *p, unsigned seen, int thread)
{
    unsigned now;
    double until = an_seconds() + spin_seconds(p);
    while (takes_part(p, thread)) {
        for (int i = 0; i < 32; i++) {
            now = atomic_load_explicit(&p->epoch, memory_order_acquire);
            if (now != seen) return now;
            relax();
        }
        if (an_seconds() >= until) break;
    }
    pthread_mutex_lock(&p->mutex);
    do {
        while (!takes_part(p, thread)) pthread_cond_wait(&p->more, &p->mutex);
        atomic_fetch_add(&p->sleepers, 1);
        now = atomic_load(&p->epoch);
        if (now == seen) pthread_cond_wait(&p->work, &p->mutex);
        atomic_fetch_sub(&p->sleepers, 1);
    } while (now == seen);
    pthread_mutex_unlock(&p->mutex);
    return now;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    an_pool *p = w->pool;
    for (unsigned seen = 0; !atomic_load_explicit(&p->stop, memory_order_acquire);) {
        seen = next_epoch(p, seen, w->index);
        work(p, w->index);
    }
    return NULL;
}

/* Starts a new epoch; wakes at most `wanted` sleeping workers. */
static void announce(an_pool *p, int64_t wanted)
{
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers) == 0) return;
    pthread_mutex_lock(&p->mutex);
    int64_t asleep = atomic_load(&p->sleepers);
    if (wanted >= asleep)
        pthread_cond_broadcast(&p->work);
    else
        for (int64_t i = 0; i < wanted; i++) pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->mutex);
}

static bool finished_soon(an_pool *p, int64_t n)
{
    double until = an_seconds() + spin_seconds(p);
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&p->done, memory_order_acquire) == n) return true;
            relax();
        }
    } while (an_seconds() < until);
    return false;
}

void an_pool_run(an_pool *p, int64_t n_tasks, an_pool_fn fn, void *arg)
{
    const int64_t parts = AN_MIN(an_pool_working(p), n_tasks);
    if (parts <= 1 || p->process != getpid() || n_tasks > UINT32_MAX) {
        for (int64_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n_tasks;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    for (int64_t i = 0; i < parts; i++) {
        const unsigned long long first = (unsigned long long)(n_tasks * i / parts);
        const unsigned long long last = (unsigned long long)(n_tasks * (i + 1) / parts);
        atomic_store_explicit(&p->parts[i].range, first << 32 | last, memory_order_release);
    }
    announce(p, parts - 1);
    work(p, 0);
    if (atomic_load_explicit(&p->done, memory_order_acquire) == n_tasks || finished_soon(p, n_tasks)) return;
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->caller_waits, true);
    while (atomic_load(&p->done) != n_tasks) pthread_cond_wait(&p->finished, &p->mutex);
    atomic_store(&p->caller_waits, false);
    pthread_mutex_unlock(&p->mutex);
}

void an_pool_limit(an_pool *p, int most)
{
    if (p == NULL || p->process != getpid()) return;
    const int working = AN_MAX(1, AN_MIN(p->threads, most)), before = atomic_load(&p->working);
    if (working == before) return;
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->working, working);
    pthread_cond_broadcast(working > before ? &p->more : &p->work);
    pthread_mutex_unlock(&p->mutex);
}

static an_status start_workers(an_err *err, an_pool *p, int threads)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int failure = 0;
    while (p->threads < threads && failure == 0) {
        worker *w = &p->workers[p->threads - 1];
        *w = (worker){.pool = p, .index = p->threads};
        failure = pthread_create(&w->thread, &attr, worker_main, w);
        p->threads += failure == 0;
    }
    pthread_attr_destroy(&attr);
    if (failure == 0) return AN_OK;
    return an_fail(err, AN_E_ENV, "thread pool: cannot start thread %d of %d: %s; ask for fewer threads",
                   p->threads + 1, threads, strerror(failure));
}

an_status an_pool_open(an_err *err, int threads, an_pool **out)
{
    *out = NULL;
    if (threads < 0 || threads > THREADS_MAX)
        return an_fail(err, AN_E_USAGE, "thread pool: %d threads; use 1 to %d, or 0 for all cores", threads,
                       THREADS_MAX);
    int cores = an_cores_available();
    if (threads == 0) threads = AN_MIN(cores, THREADS_MAX);
    an_pool *p = aligned_alloc(LINE, sizeof *p);
    if (p == NULL) return an_fail_nomem(err, "thread pool", sizeof *p);
    memset(p, 0, sizeof *p);
    p->threads = 1;
    p->process = getpid();
    atomic_store(&p->working, threads);
    p->cores = cores;
    p->workers = calloc((size_t)threads, sizeof *p->workers);
    p->parts = aligned_alloc(LINE, (size_t)threads * sizeof *p->parts);
    if (p->workers == NULL || p->parts == NULL) {
        free(p->workers);
        free(p->parts);
        free(p);
        return an_fail_nomem(err, "thread pool", (size_t)threads * (sizeof *p->workers + sizeof *p->parts));
    }
    for (int i = 0; i < threads; i++) atomic_init(&p->parts[i].range, 0);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->more, NULL);
    pthread_cond_init(&p->finished, NULL);
    an_status status = start_workers(err, p, threads);
    if (status != AN_OK)
        an_pool_close(p);
    else
        *out = p;
    return status;
}

void an_pool_close(an_pool *p)
{
    if (p == NULL) return;
    if (p->process == getpid()) { /* a forked child has no workers to join, and may find the mutex locked for ever */
        atomic_store(&p->stop, true);
        announce(p, INT64_MAX);
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->more);
        pthread_mutex_unlock(&p->mutex);
        for (int i = 0; i + 1 < p->threads; i++) pthread_join(p->workers[i].thread, NULL);
        pthread_cond_destroy(&p->work);
        pthread_cond_destroy(&p->more);
        pthread_cond_destroy(&p->finished);
        pthread_mutex_destroy(&p->mutex);
    }
    free(p->workers);
    free(p->parts);
    free(p);
}

int an_pool_threads(const an_pool *p)
{
    return p == NULL ? 1 : p->threads;
}

int an_pool_working(const an_pool *p)
{
    return p == NULL ? 1 : atomic_load_explicit(&p->working, memory_order_relaxed);
}
