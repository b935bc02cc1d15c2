/* stores.c: allocating persistent buffers and drawing their initial values from the seed (base/rng.h).
 *
 * Invariant: initial values are a function of (seed, name, element) alone. They do not depend on the other parameters, on
 * the number of threads or on the device.
 */
#include "runtime/stores.h"

#include "base/map.h"
#include "base/rng.h"
#include "kernels/cpu_kernels.h"
#include "platform/thread_pool.h"
#include "runtime/buffers.h"
#include "runtime/param_blocks.h"

#include <stdlib.h>
#include <string.h>

typedef struct drawing {
    const an_cpu_kernels *isa;
    an_init_spec what;
    int64_t first, n; /* elements */
    char *out;        /* receives element `first` */
} drawing;

/* Elements a task draws; elements drawn at a time for a device whose memory the host cannot reach. */
enum { DRAW_TASK = 1 << 15, DRAW_CHUNK = 1 << 20, COPY_CHUNK = 1 << 24 };

static void draw_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const drawing *w = arg;
    int64_t at = task * DRAW_TASK;
    w->isa->draw(&w->what, w->first + at, AN_MIN(DRAW_TASK, w->n - at),
                 w->out + (size_t)at * an_dtype_bytes((an_dtype)w->what.dtype));
}

static void draw(drawing *w, an_pool *pool)
{
    an_pool_run(pool, an_ceil_div(w->n, DRAW_TASK), draw_task, w);
}

/* Elements [first, until) of t, the first of them at `offset` of the store. */
static an_status initialize(an_ctx *cx, an_pool *pool, an_store *store, int64_t offset, const an_tensor *t,
                            int64_t first, int64_t until, const char *name, an_init init)
{
    if (init.kind == 0 || until <= first) return AN_OK; /* memory arrives zeroed */
    size_t each = an_dtype_bytes((an_dtype)t->dtype);
    drawing w = {.isa = an_cpu_kernels_find(NULL),
                 .what = {.kind = (uint8_t)init.kind,
                          .dtype = t->dtype,
                          .key = an_rng_key(cx->options.seed, UINT64_MAX),
                          .stream = an_rng_stream(an_hash(name, strlen(name), 0), 0),
                          .a = init.a,
                          .b = init.b},
                 .first = first,
                 .n = until - first};
    if (store->mem.host) {
        w.out = (char *)store->mem.host + offset;
        draw(&w, pool);
        return AN_OK;
    }
    const size_t most = (size_t)AN_MIN(until - first, DRAW_CHUNK) * each;
    char *chunk = malloc(most);
    an_status status = chunk ? AN_OK : an_fail_nomem(&cx->err, name, most);
    for (w.out = chunk; w.first < until && status == AN_OK; w.first += w.n) {
        w.n = AN_MIN(DRAW_CHUNK, until - w.first);
        draw(&w, pool);
        status = cx->backend->write(&cx->err, cx->device, &store->mem,
                                    (size_t)offset + (size_t)(w.first - first) * each, chunk, (size_t)w.n * each);
    }
    free(chunk);
    return status;
}

/* A parameter, or what this rank has of it. */
static an_status initialize_param(an_ctx *cx, an_pool *pool, an_store *store, const an_param_info *q)
{
    const int64_t each = (int64_t)an_dtype_bytes((an_dtype)q->tensor->dtype), begin = q->offset / each;
    int64_t first = 0, until = q->tensor->numel, at = q->offset;
    if (an_block_in_parts(cx, q->block, AN_ROLE_PARAM)) {
        const int64_t part = cx->block[q->block].part, from = cx->graph.rank * part;
        first = AN_MAX(from - begin, 0);
        until = AN_MIN(from + part - begin, until);
        at = (begin + first - from) * each;
    }
    return initialize(cx, pool, store, at, q->tensor, first, until, q->name, q->init);
}

/* Averages begin as what they are averages of. */
static an_status copy_store(an_ctx *cx, const an_store *from, an_store *to)
{
    if (!from->bytes) return AN_OK;
    if (from->mem.host && to->mem.host) return memcpy(to->mem.host, from->mem.host, (size_t)from->bytes), AN_OK;
    const size_t most = (size_t)AN_MIN(from->bytes, COPY_CHUNK);
    char *chunk = malloc(most);
    an_status status = chunk ? AN_OK : an_fail_nomem(&cx->err, to->name, most);
    for (int64_t at = 0; at < from->bytes && status == AN_OK; at += COPY_CHUNK) {
        const size_t bytes = (size_t)AN_MIN(COPY_CHUNK, from->bytes - at);
        status = cx->backend->read(&cx->err, cx->device, &from->mem, (size_t)at, chunk, bytes);
        if (status == AN_OK) status = cx->backend->write(&cx->err, cx->device, &to->mem, (size_t)at, chunk, bytes);
    }
    free(chunk);
    return status;
}

static an_status initialize_averages(an_ctx *cx, int32_t i)
{
    for (int b = 0; b < cx->n_blocks; b++)
        if (cx->block[b].store[AN_ROLE_AVERAGE] == i)
            return copy_store(cx, &cx->store[cx->block[b].store[AN_ROLE_PARAM]], &cx->store[i]);
    return AN_OK;
}

static an_status initialize_store(an_ctx *cx, an_pool *pool, int32_t i)
{
    an_store *s = &cx->store[i];
    if (s->bytes == 0) return AN_OK; /* a buffer of nothing may have no address */
    for (int p = 0; p < cx->n_params; p++) {
        const an_param_info *q = &cx->param[p];
        if (cx->options.parameters_given) break; /* memory arrives zeroed */
        if (q->block >= 0 && cx->block[q->block].store[AN_ROLE_PARAM] == i) AN_TRY(initialize_param(cx, pool, s, q));
    }
    for (int p = 0; p < cx->n_states; p++)
        if (cx->state[p].store == i && cx->state[p].data)
            AN_TRY(cx->backend->write(&cx->err, cx->device, &s->mem, 0, cx->state[p].data, (size_t)s->bytes));
        else if (cx->state[p].store == i)
            AN_TRY(initialize(cx, pool, s, 0, cx->state[p].tensor, 0, cx->state[p].tensor->numel, cx->state[p].name,
                              cx->state[p].init));
    AN_TRY(initialize_averages(cx, i)); /* the parameters' store is older: it is ready */
    s->ready = true;
    return AN_OK;
}

an_status an_stores_ready(an_ctx *cx)
{
    int64_t weights = 0;
    for (int i = 0; i < cx->n_stores; i++) {
        an_store *s = &cx->store[i];
        if (s->ready) continue;
        if (!s->allocated) AN_TRY(an_device_alloc(cx, (size_t)s->bytes, &s->mem));
        s->allocated = true;
        if (s->usage == AN_USE_WEIGHT || s->usage == AN_USE_STATE) weights += s->bytes;
    }
    an_pool *pool =
        NULL; /* a pool of our own, because a device's threads are not shared; worth starting for large models only */
    if (weights > DRAW_CHUNK) AN_TRY(an_pool_open(&cx->err, cx->options.threads, &pool));
    an_status status = AN_OK;
    for (int i = 0; i < cx->n_stores && status == AN_OK; i++)
        if (!cx->store[i].ready) status = initialize_store(cx, pool, i);
    if (pool) an_pool_close(pool);
    return status;
}

int64_t an_persistent_bytes(const an_ctx *cx, uint64_t by_usage[AN_N_USES])
{
    int64_t sum = 0;
    for (int i = 0; i < cx->n_stores; i++) {
        if (cx->store[i].bound != AN_UNBOUND) continue;
        sum += cx->store[i].bytes;
        if (by_usage) by_usage[cx->store[i].usage] += (uint64_t)cx->store[i].bytes;
    }
    return sum;
}

void an_store_release(an_ctx *cx, an_store *s)
{
    if (s->allocated)
        an_device_free(cx, &s->mem);
    else if (s->bound && cx->backend->give_back)
        cx->backend->give_back(cx->device, &s->mem);
    s->mem = (an_buffer){0};
    s->allocated = s->ready = false;
    s->bound = AN_UNBOUND;
}

void an_stores_close(an_ctx *cx)
{
    for (int i = 0; i < cx->n_stores; i++) {
        if (cx->store[i].allocated) cx->backend->free(cx->device, &cx->store[i].mem);
        if (cx->store[i].bound && cx->backend->give_back) cx->backend->give_back(cx->device, &cx->store[i].mem);
    }
    free(cx->param);
    free(cx->block);
    free(cx->state);
    free(cx->store);
    free(cx->input);
    free(cx->scalar);
    free(cx->scalar_dtype);
}
