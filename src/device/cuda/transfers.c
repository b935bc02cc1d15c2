/* transfers.c: copies between the host's memory and the GPU's, through pinned memory, in the order of the stream.
 *
 * Owns:       a ring of pinned stages. A write copies into the next stage whose last copy has ended, and returns. Where none has, because the
 *             copies wait behind a step, the ring grows: so a whole batch is written while the step before it still runs.
 * Invariants: up to AN_CUDA_STAGES; then a write waits. After its first steps a run takes no more.
 */
#include "device/cuda/cuda_internal.h"
#include "platform/thread_pool.h"

#include <string.h>

enum { COPY_THREADS = 4, COPY_PART = 256 << 10 }; /* a thread copies 10 of the 50 GB a second that the GPU takes */

static an_status add_stage(an_err *err, an_device *d, int place)
{
    void *p = NULL;
    cu_event copied;
    AN_TRY(an_cuda_check(err, d, d->cu.event_new(&copied, CU_EVENT_NO_TIMING), "making an event"));
    an_status status = an_cuda_check(err, d, d->cu.host_new(&p, AN_CUDA_STAGE_BYTES, 0),
                                     "taking %d bytes of pinned memory", AN_CUDA_STAGE_BYTES);
    if (status != AN_OK) {
        d->cu.event_free(copied);
        return status;
    }
    memmove(d->stage + place + 1, d->stage + place, sizeof *d->stage * (size_t)(d->n_stages++ - place));
    d->stage[place] = (an_cuda_stage){.at = p, .copied = copied};
    return AN_OK;
}

an_status an_cuda_stages_open(an_err *err, an_device *d)
{
    for (int i = 0; i < 2; i++) AN_TRY(add_stage(err, d, i));
    return AN_OK;
}

void an_cuda_stages_close(an_device *d, bool reachable)
{
    for (int i = 0; i < d->n_stages && reachable; i++) {
        d->cu.event_free(d->stage[i].copied);
        d->cu.host_free(d->stage[i].at);
    }
    d->n_stages = 0;
    an_pool_close(d->copiers);
    d->copiers = NULL;
}

/* The stage behind the present one, whose copies have all been enqueued. */
static an_status next_stage(an_err *err, an_device *d)
{
    an_err quiet = {0};
    an_cuda_stage *full = &d->stage[d->stage_now];
    AN_TRY(an_cuda_check(err, d, d->cu.event_record(full->copied, d->stream, 0), "recording an event"));
    full->used = true;
    d->stage_used = 0;
    const int next = (d->stage_now + 1) % d->n_stages;
    const an_cuda_stage *s = &d->stage[next];
    const bool busy = s->used && d->cu.event_query(s->copied) == CU_NOT_READY;
    if (busy && d->n_stages < AN_CUDA_STAGES && add_stage(&quiet, d, d->stage_now + 1) == AN_OK) {
        d->stage_now++;
        return AN_OK;
    }
    d->stage_now = next;
    return s->used ? an_cuda_wait_event(err, d, s->copied, "waiting for a copy to the GPU") : AN_OK;
}

/* The next n bytes of pinned memory, whose previous contents have been copied. */
static an_status take(an_err *err, an_device *d, size_t n, char **out)
{
    if (d->stage_used + n > AN_CUDA_STAGE_BYTES) AN_TRY(next_stage(err, d));
    *out = d->stage[d->stage_now].at + d->stage_used;
    d->stage_used = AN_MIN(d->stage_used + (size_t)an_round_up((int64_t)n, 64), (size_t)AN_CUDA_STAGE_BYTES);
    return AN_OK;
}

typedef struct copying {
    char *to;
    const char *from;
    size_t bytes;
} copying;

static void copy_part(void *arg, int64_t part, int thread)
{
    (void)thread;
    const copying *c = arg;
    const size_t at = (size_t)part * COPY_PART;
    memcpy(c->to + at, c->from + at, AN_MIN(c->bytes - at, (size_t)COPY_PART));
}

static void copy(an_device *d, char *to, const char *from, size_t n)
{
    an_err quiet = {0};
    if (n < AN_CUDA_STAGE_BYTES / 2) {
        memcpy(to, from, n);
        return;
    }
    if (!d->copiers) (void)an_pool_open(&quiet, AN_MIN(an_cores_available(), COPY_THREADS), &d->copiers);
    an_pool_run(d->copiers, an_ceil_div((int64_t)n, COPY_PART), copy_part,
                &(copying){.to = to, .from = from, .bytes = n});
}

static an_status in_bounds(an_err *err, const an_buffer *b, size_t at, size_t n, const char *what)
{
    if (at <= b->bytes && n <= b->bytes - at) return AN_OK;
    return an_fail(err, AN_E_INTERNAL, "cuda: %s of %zu bytes at %zu, the buffer has %zu", what, n, at, b->bytes);
}

an_status an_cuda_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n)
{
    AN_TRY(in_bounds(err, dst, at, n, "write"));
    AN_TRY(an_cuda_enter(err, d));
    for (size_t done = 0; done < n;) {
        const size_t part = AN_MIN(n - done, (size_t)AN_CUDA_STAGE_BYTES);
        char *pinned;
        AN_TRY(take(err, d, part, &pinned));
        copy(d, pinned, (const char *)src + done, part);
        AN_TRY(an_cuda_check(err, d, d->cu.to_device(dst->handle + at + done, pinned, part, d->stream),
                             "copying %zu bytes to the GPU", part));
        done += part;
    }
    return AN_OK;
}

an_status an_cuda_read(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n)
{
    AN_TRY(in_bounds(err, src, at, n, "read"));
    AN_TRY(an_cuda_enter(err, d));
    for (size_t done = 0; done < n;) {
        const size_t part = AN_MIN(n - done, (size_t)AN_CUDA_STAGE_BYTES);
        char *pinned;
        AN_TRY(take(err, d, part, &pinned));
        AN_TRY(an_cuda_check(err, d, d->cu.to_host(pinned, src->handle + at + done, part, d->stream),
                             "copying %zu bytes from the GPU", part));
        AN_TRY(an_cuda_wait_stream(err, d, "reading from the GPU"));
        memcpy((char *)dst + done, pinned, part);
        done += part;
    }
    return AN_OK;
}
