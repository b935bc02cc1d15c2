/* The loader: batches prepared ahead by threads. A ring of buffers; the batch of step s lies in buffer s mod n_slots.
 * One is the caller's, the others are being filled or full. Workers take steps in order from a counter, so that order
 * is that of steps whatever the number of workers, and what a step holds is a function of the step alone (dataset.h).
 */
#include "platform/platform.h"
#include "io/data/dataset.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct slot {
    int32_t *x, *y; /* [B,T] */
    uint64_t full;  /* 1 + the number of the batch it holds, counted from first_step; 0: none yet */
    an_status status;
    an_err err;
} slot;

struct an_loader {
    const an_data *data;
    an_batch batch;
    uint64_t first_step, taken, read; /* batches that workers took, batches that the caller got */
    slot *slots;
    uint64_t n_slots;
    int32_t *memory;
    size_t bytes;
    pthread_t *threads;
    int n_threads;
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    double wait_s;
};

static void fill(const an_loader *l, slot *s, uint64_t number)
{
    an_err_clear(&s->err);
    s->status = an_data_batch(&s->err, l->data, &l->batch, l->first_step + number, s->x, s->y);
}

/* Batch `number` may be filled when the caller is done with the one that has its buffer: it holds batch read-1 still.
 */
static bool may_take(const an_loader *l)
{
    return l->taken + 1 < l->read + l->n_slots;
}

static void *work(void *arg)
{
    an_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && !may_take(l)) pthread_cond_wait(&l->emptied, &l->lock);
        if (l->stop) break;
        uint64_t number = l->taken++;
        slot *s = &l->slots[number % l->n_slots];
        pthread_mutex_unlock(&l->lock);
        fill(l, s, number);
        pthread_mutex_lock(&l->lock);
        s->full = number + 1;
        pthread_cond_broadcast(&l->filled);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

size_t an_loader_bytes_for(const an_batch *b, int workers)
{
    return (size_t)b->B * (size_t)b->T * 2 * sizeof(int32_t) * ((size_t)workers + 1);
}

static an_status allocate(an_err *err, an_loader *l, int workers)
{
    uint64_t B = (uint64_t)l->batch.B, T = (uint64_t)l->batch.T;
    l->n_slots = (uint64_t)workers + 1;
    if (l->batch.B <= 0 || l->batch.T <= 0 || B > (uint64_t)INT64_MAX / 8 / T / l->n_slots)
        return an_fail(err, AN_E_USAGE, "a batch of %lld samples of %lld tokens cannot be loaded",
                       (long long)l->batch.B, (long long)l->batch.T);
    l->bytes = an_loader_bytes_for(&l->batch, workers);
    l->memory = malloc(l->bytes);
    l->slots = calloc(l->n_slots, sizeof *l->slots);
    l->threads = calloc((size_t)workers + 1, sizeof *l->threads);
    if (!l->memory || !l->slots || !l->threads) return an_fail_nomem(err, "the loader's batches", l->bytes);
    for (uint64_t i = 0; i < l->n_slots; i++) {
        l->slots[i].x = l->memory + 2 * i * B * T;
        l->slots[i].y = l->slots[i].x + B * T;
    }
    return AN_OK;
}

an_status an_loader_open(an_err *err, const an_data *d, const an_batch *b, uint64_t first_step, int workers,
                         an_loader **out)
{
    *out = NULL;
    if (workers < 0 || workers > 64)
        return an_fail(err, AN_E_USAGE, "workers=%d: 0 to 64 loader threads are possible", workers);
    an_loader *l = calloc(1, sizeof *l);
    if (!l) return an_fail_nomem(err, "the loader", sizeof *l);
    l->data = d;
    l->batch = *b;
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

an_status an_loader_next(an_err *err, an_loader *l, const int32_t **x, const int32_t **y)
{
    double start = an_seconds();
    slot *s = &l->slots[l->read % l->n_slots];
    if (l->n_threads == 0) {
        fill(l, s, l->read++);
    } else {
        pthread_mutex_lock(&l->lock);
        l->read++;
        pthread_cond_broadcast(&l->emptied); /* the batch before is done with */
        while (s->full != l->read) pthread_cond_wait(&l->filled, &l->lock);
        pthread_mutex_unlock(&l->lock);
    }
    l->wait_s += an_seconds() - start;
    *x = s->x;
    *y = s->y;
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

void an_loader_close(an_loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->emptied);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++) pthread_join(l->threads[i], NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->filled);
    pthread_cond_destroy(&l->emptied);
    free(l->memory);
    free(l->slots);
    free(l->threads);
    free(l);
}
