/* loader.c: a ring of buffers, each with the arrays of one batch.
 *
 *     slot:    0      1      2      3          step s is in slot (s - first_step) mod n_slots
 *           [ 8 ]  [ 9 ]  [ 6 ]  [ 7 ]
 *                           ^ the caller's    the others are full, or being filled
 *
 * Workers take step numbers from one counter (prefetch); the caller waits for the slot of its step.
 *
 * A read of a network file system may hang for ever, and no signal ends it in a thread. So a caller that was told to stop
 * (an_loader_stops) leaves such a thread behind instead of waiting for it. */
#define _DEFAULT_SOURCE
#include "io/data/loader.h"
#include "platform/platform.h"
#include <pthread.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

typedef struct slot {
    void *array[AN_MAX_ARRAYS];
    uint64_t full; /* 1 + the number of the batch it holds, counted from first_step; 0: none yet */
    an_status status;
    an_err err;
} slot;

enum { MOST_WORKERS = 64 };

struct an_loader {
    an_source source;
    _Atomic(const char *) reading[MOST_WORKERS]; /* what each thread is at */
    double patience_s;
    void (*tell)(void *arg, const char *path, double seconds); /* of a thread that is stuck; may be NULL */
    void *tell_arg;
    uint64_t first_step, taken, read; /* batches that workers took, batches that the caller got */
    slot *slots;
    uint64_t n_slots;
    char *memory;
    size_t bytes;
    pthread_t *threads;
    int n_threads, started;
    bool stop;
    bool (*stops)(void *arg);
    void *stops_arg;
    double grace_s;
    bool gave_up, left_behind;
    int ended; /* threads */
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    double wait_s;
    atomic_bool timed;
    an_loader_times times;
};

/* Of a batch that is being made. */
typedef struct stage_clock {
    an_loader_stage stage;
    double since;
    an_loader_times times;
} stage_clock;

/* Where this thread notes the path that it reads: its entry of an_loader.reading. NULL in threads that no loader started. */
static _Thread_local _Atomic(const char *) *own_reading;

void an_loader_reading(const char *path)
{
    if (own_reading) atomic_store_explicit(own_reading, path, memory_order_release);
}

/* The times of the batch that this thread is making; NULL: it is not timed. */
static _Thread_local stage_clock *own_clock;

an_loader_stage an_loader_enter(an_loader_stage stage)
{
    stage_clock *c = own_clock;
    if (!c) return AN_LOADER_COLLATE;
    const an_loader_stage before = c->stage;
    const double now = an_seconds();
    c->times.s[before] += now - c->since;
    c->since = now;
    c->stage = stage;
    return before;
}

void an_loader_copied(size_t bytes)
{
    if (!own_clock) return;
    own_clock->times.copies++;
    own_clock->times.copied_bytes += bytes;
}

/* What a timed batch took, and the batch itself: one copy of each array. */
static void add_times(an_loader *l, stage_clock *c)
{
    for (int i = 0; i < l->source.n; i++) an_loader_copied(an_array_bytes(&l->source.array[i]));
    an_loader_enter(AN_LOADER_COLLATE);
    pthread_mutex_lock(&l->lock);
    for (int k = 0; k < AN_LOADER_STAGES; k++) l->times.s[k] += c->times.s[k];
    l->times.batches++;
    l->times.copies += c->times.copies;
    l->times.copied_bytes += c->times.copied_bytes;
    pthread_mutex_unlock(&l->lock);
}

static void fill(an_loader *l, slot *s, uint64_t number)
{
    stage_clock clock = {.stage = AN_LOADER_COLLATE};
    an_err_clear(&s->err);
    if (atomic_load_explicit(&l->timed, memory_order_relaxed)) {
        clock.since = an_seconds();
        own_clock = &clock;
    }
    s->status = l->source.fill(&s->err, l->source.data, l->first_step + number, s->array);
    if (own_clock) add_times(l, &clock);
    own_clock = NULL;
}

void an_loader_time(an_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->times = (an_loader_times){.batches = 0};
    pthread_mutex_unlock(&l->lock);
    atomic_store_explicit(&l->timed, true, memory_order_relaxed);
}

void an_loader_times_read(an_loader *l, an_loader_times *out)
{
    pthread_mutex_lock(&l->lock);
    *out = l->times;
    pthread_mutex_unlock(&l->lock);
}

/* A slot may be filled when the caller is done with the batch in it: batch read - 1 is still in use. */
static bool may_take(const an_loader *l)
{
    return l->taken + 1 < l->read + l->n_slots;
}

static void destroy(an_loader *l)
{
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->filled);
    pthread_cond_destroy(&l->emptied);
    free(l->memory);
    free(l->slots);
    free(l->threads);
    free(l);
}

static void *work(void *arg)
{
    an_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    own_reading = &l->reading[l->started++];
    for (;;) {
        while (!l->stop && !may_take(l)) pthread_cond_wait(&l->emptied, &l->lock);
        if (l->stop) break;
        uint64_t number = l->taken++;
        slot *s = &l->slots[number % l->n_slots];
        pthread_mutex_unlock(&l->lock);
        fill(l, s, number);
        an_loader_reading(NULL);
        pthread_mutex_lock(&l->lock);
        s->full = number + 1;
        pthread_cond_broadcast(&l->filled);
    }
    l->ended++;
    pthread_cond_broadcast(&l->filled);
    const bool is_last = l->left_behind && l->ended == l->n_threads;
    pthread_mutex_unlock(&l->lock);
    if (is_last) destroy(l);
    return NULL;
}

size_t an_loader_bytes_for(const an_source *s, int workers)
{
    return an_arrays_layout(s->array, s->n, NULL) * ((size_t)workers + 1);
}

/* Whether all buffers together have a size that can be named. */
static bool is_possible(const an_source *s, int workers)
{
    double bytes = 0;
    for (int i = 0; i < s->n; i++) {
        double n = (double)an_dtype_size(s->array[i].dtype);
        for (int axis = 0; axis < s->array[i].shape.rank; axis++) n *= (double)s->array[i].shape.dim[axis];
        if (!(n > 0)) return false;
        bytes += n;
    }
    return bytes * (workers + 1) < 0x1p62;
}

static an_status allocate(an_err *err, an_loader *l, int workers)
{
    size_t offset[AN_MAX_ARRAYS];
    const an_source *s = &l->source;
    if (!is_possible(s, workers))
        return an_fail(err, AN_E_USAGE, "a batch of %lld samples cannot be loaded",
                       (long long)(s->n ? s->array[0].shape.dim[0] : 0));
    l->n_slots = (uint64_t)workers + 1;
    l->bytes = an_loader_bytes_for(s, workers);
    l->memory = malloc(l->bytes);
    l->slots = calloc(l->n_slots, sizeof *l->slots);
    l->threads = calloc((size_t)workers + 1, sizeof *l->threads);
    if (!l->memory || !l->slots || !l->threads) return an_fail_nomem(err, "the loader's batches", l->bytes);
    const size_t one = an_arrays_layout(s->array, s->n, offset);
    for (uint64_t k = 0; k < l->n_slots; k++)
        for (int i = 0; i < s->n; i++) l->slots[k].array[i] = l->memory + k * one + offset[i];
    return AN_OK;
}

an_status an_loader_open(an_err *err, const an_source *s, uint64_t first_step, int workers, an_loader **out)
{
    *out = NULL;
    if (workers < 0 || workers > MOST_WORKERS)
        return an_fail(err, AN_E_USAGE, "workers=%d: 0 to 64 loader threads are possible", workers);
    an_loader *l = calloc(1, sizeof *l);
    if (!l) return an_fail_nomem(err, "the loader", sizeof *l);
    l->source = *s;
    l->first_step = first_step;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, NULL);
    pthread_cond_init(&l->emptied, NULL);
    an_status status = allocate(err, l, workers);
    while (status == AN_OK && l->n_threads < workers) {
        if (pthread_create(&l->threads[l->n_threads], NULL, work, l) == 0)
            l->n_threads++;
        else
            status = an_fail(err, AN_E_ENV, "cannot start loader thread %d; set fewer workers (0 needs none)",
                             l->n_threads + 1);
    }
    if (status == AN_OK)
        *out = l;
    else
        an_loader_close(l);
    return status;
}

void an_loader_on_stuck(an_loader *l, double patience_s, void (*tell)(void *arg, const char *path, double seconds),
                        void *arg)
{
    l->patience_s = patience_s > 0 ? patience_s : AN_LOADER_PATIENCE_S;
    l->tell = tell;
    l->tell_arg = arg;
}

void an_loader_stops(an_loader *l, double grace_s, bool (*stop)(void *arg), void *arg)
{
    l->grace_s = grace_s > 0 ? grace_s : AN_LOADER_GRACE_S;
    l->stops = stop;
    l->stops_arg = arg;
}

/* Says, while the lock is held, what a thread is at. */
static void tell_stuck(an_loader *l, double seconds)
{
    const char *path = NULL;
    for (int i = 0; i < l->n_threads && !path; i++) path = atomic_load_explicit(&l->reading[i], memory_order_acquire);
    l->tell(l->tell_arg, path, seconds);
}

/* Waits, with the lock, until something is filled, a thread has ended, or so many seconds have passed. */
static void wait_seconds(an_loader *l, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    seconds = AN_MAX(seconds, 0.001);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    pthread_cond_timedwait(&l->filled, &l->lock, &until);
}

/* Waits, with the lock, for the batch of slot s; says once when that takes too long. False: it did not come in time after
 * `stop` had asked to end. */
static bool wait_for(an_loader *l, const slot *s, double start)
{
    bool told = !l->tell;
    double asked = 0; /* when `stop` was first seen to be true */
    while (s->full != l->read) {
        const double now = an_seconds();
        if (l->stops && asked <= 0 && l->stops(l->stops_arg)) asked = now;
        if (asked > 0 && now - asked >= l->grace_s) return false;
        if (!told && now - start >= l->patience_s) {
            tell_stuck(l, now - start);
            told = true;
        }
        if (l->stops)
            wait_seconds(l, 0.1);
        else if (told)
            pthread_cond_wait(&l->filled, &l->lock);
        else
            wait_seconds(l, l->patience_s - (now - start));
    }
    return true;
}

an_status an_loader_next(an_err *err, an_loader *l, void *const **arrays)
{
    double start = an_seconds();
    slot *s = &l->slots[l->read % l->n_slots];
    if (l->n_threads == 0) {
        fill(l, s, l->read++);
    } else {
        pthread_mutex_lock(&l->lock);
        l->read++;
        pthread_cond_broadcast(&l->emptied); /* the batch before is done with */
        l->gave_up = !wait_for(l, s, start);
        if (l->gave_up) l->read--;
        pthread_mutex_unlock(&l->lock);
    }
    l->wait_s += an_seconds() - start;
    *arrays = NULL;
    if (l->gave_up) return AN_OK;
    *arrays = s->array;
    if (s->status == AN_OK) return AN_OK;
    pthread_mutex_lock(&l->lock);
    l->read--; /* the next call finds the same failure */
    pthread_mutex_unlock(&l->lock);
    return an_fail(err, s->status, "%s", s->err.text);
}

double an_loader_wait_seconds(const an_loader *l)
{
    return l->wait_s;
}
size_t an_loader_bytes(const an_loader *l)
{
    return l->bytes;
}

/* With the lock: whether all threads have ended, those that may hang within the grace period. */
static bool threads_have_ended(an_loader *l)
{
    const double start = an_seconds();
    while (l->gave_up && l->ended < l->n_threads && an_seconds() - start < l->grace_s) wait_seconds(l, 0.1);
    return !l->gave_up || l->ended == l->n_threads;
}

bool an_loader_close(an_loader *l)
{
    if (!l) return true;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->emptied);
    l->left_behind = !threads_have_ended(l);
    if (l->left_behind) { /* the last of them frees the loader, should its read ever come back */
        for (int i = 0; i < l->n_threads; i++) pthread_detach(l->threads[i]);
        pthread_mutex_unlock(&l->lock);
        return false;
    }
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++) pthread_join(l->threads[i], NULL);
    destroy(l);
    return true;
}
