/* persist.c: what a checkpoint holds (a state dict), as one numbered list: parameters, then first and second moments and averages of
 * those that have them, then states (an_persist_* of anneal.h). A rank that holds a part of an array (an_shard_optimizer) hands
 * out that part and takes it from the whole array (part_of).
 */
#include "runtime/context.h"

#include "base/exact.h"
#include "runtime/in_flight.h"
#include "runtime/param_blocks.h"
#include "runtime/stores.h"
#include "runtime/variables.h"

#include <stdlib.h>
#include <string.h>

typedef enum entry_role { ENTRY_PARAM, ENTRY_FIRST_MOMENT, ENTRY_SECOND_MOMENT, ENTRY_AVERAGE, ENTRY_STATE } entry_role;

typedef struct entry {
    const char *name; /* NULL for moments: composed by entry_name */
    const an_tensor *t;
    int32_t store;
    an_dtype dtype;
    int64_t offset; /* bytes */
    entry_role role;
} entry;

/* Entry i: parameters, then first and second moments and averages of those that have them, then states. */
static bool entry_at(an_ctx *cx, int i, entry *out, int *count)
{
    int n = 0;
    for (int p = 0; p < cx->n_params; p++) {
        const an_param_info *q = &cx->param[p];
        if (n++ == i)
            *out = (entry){q->name,
                           q->tensor,
                           q->block >= 0 ? cx->block[q->block].store[AN_ROLE_PARAM] : -1,
                           (an_dtype)q->tensor->dtype,
                           q->offset,
                           ENTRY_PARAM};
    }
    for (an_role role = AN_ROLE_M; role <= AN_ROLE_AVERAGE; role++)
        for (int p = 0; p < cx->n_params; p++) {
            const an_param_info *q = &cx->param[p];
            if (q->block < 0 || cx->block[q->block].store[role] < 0) continue;
            const an_block *b = &cx->block[q->block];
            const an_dtype dtype = an_block_dtype(b, role);
            const int64_t first = q->offset / (int64_t)an_dtype_bytes(b->dtype); /* element of the block */
            if (n++ == i)
                *out = (entry){NULL,
                               q->tensor,
                               b->store[role],
                               dtype,
                               first * (int64_t)an_dtype_bytes(dtype),
                               role == AN_ROLE_M   ? ENTRY_FIRST_MOMENT
                               : role == AN_ROLE_V ? ENTRY_SECOND_MOMENT
                                                   : ENTRY_AVERAGE};
        }
    for (int s = 0; s < cx->n_states; s++)
        if (!cx->state[s].data && n++ == i)
            *out = (entry){
                cx->state[s].name, cx->state[s].tensor, cx->state[s].store, (an_dtype)cx->state[s].tensor->dtype, 0,
                ENTRY_STATE};
    if (count) *count = n;
    return i >= 0 && i < n;
}

/* Declared in float32 and kept in bfloat16. */
static bool is_narrow(const entry *p)
{
    return p->role == ENTRY_PARAM && p->t->narrow;
}

static const char *entry_name(an_ctx *cx, const entry *p)
{
    if (p->name) return p->name;
    for (int i = 0; i < cx->n_params; i++)
        if (cx->param[i].tensor == p->t)
            return p->role == ENTRY_AVERAGE
                       ? an_arena_printf(&cx->step, "ema.%s", cx->param[i].name)
                       : an_arena_printf(&cx->step, "optimizer.%c.%s", p->role == ENTRY_FIRST_MOMENT ? 'm' : 'v',
                                         cx->param[i].name);
    return NULL;
}

int an_persist_count(an_ctx *cx)
{
    if (!cx) return 0;
    entry p;
    int n = 0;
    entry_at(cx, -1, &p, &n);
    return n;
}

an_status an_persist_get(an_ctx *cx, int i, an_persist *out)
{
    if (!cx) return AN_E_USAGE;
    if (!out)
        return an_fail(&cx->err, AN_E_USAGE, "an_persist_get: there is nowhere to write entry %d to: out is NULL", i);
    entry p;
    if (!entry_at(cx, i, &p, NULL))
        return an_fail(&cx->err, AN_E_USAGE, "an_persist_get: there is no entry %d of %d", i, an_persist_count(cx));
    *out = (an_persist){.name = entry_name(cx, &p),
                        .dtype = p.dtype,
                        .declared = is_narrow(&p) ? AN_F32 : p.dtype,
                        .shape = an_shape_of(p.t),
                        .kind = p.role == ENTRY_PARAM   ? 0
                                : p.role == ENTRY_STATE ? 2
                                                        : 1};
    return out->name ? AN_OK : an_fail_nomem(&cx->err, "a name", 0);
}

int an_persist_find(an_ctx *cx, const char *name)
{
    if (!cx || !name) return -1;
    int n = an_persist_count(cx);
    for (int i = 0; i < n; i++) {
        an_persist p;
        if (an_persist_get(cx, i, &p) == AN_OK && !strcmp(p.name, name)) return i;
    }
    return -1;
}

static an_status ready_entry(an_ctx *cx, int i, size_t bytes, entry *out)
{
    if (!cx) return AN_E_USAGE;
    if (!cx->device && !an_is_ref(cx))
        return cx->err.code ? cx->err.code
                            : an_fail(&cx->err, AN_E_ENV, "an_persist: the context has no device: an_open failed");
    AN_TRY(an_wait_idle(cx));
    AN_TRY(an_in_flight_status(cx));
    AN_TRY(an_layout_params(cx));
    AN_TRY(an_stores_ready(cx));
    if (!entry_at(cx, i, out, NULL))
        return an_fail(&cx->err, AN_E_USAGE, "an_persist: there is no entry %d of %d", i, an_persist_count(cx));
    size_t want = (size_t)out->t->numel * an_dtype_bytes(out->dtype);
    if (bytes == want || (is_narrow(out) && bytes == (size_t)out->t->numel * sizeof(float))) return AN_OK;
    return an_fail(&cx->err, AN_E_USAGE, "an_persist: \"%s\" has %zu bytes, not %zu", entry_name(cx, out), want, bytes);
}

/* The elements [*first, *first + *n) of the entry that a rank holds, and where in its store the first is. */
static void part_of(const an_ctx *cx, const entry *p, int rank, int64_t *first, int64_t *n, int64_t *at)
{
    const int64_t each = (int64_t)an_dtype_bytes(p->dtype);
    int64_t part = 0;
    *first = 0;
    *n = p->t->numel;
    *at = p->offset;
    for (int b = 0; b < cx->n_blocks; b++)
        for (an_role role = AN_ROLE_PARAM; role < AN_N_ROLES; role++)
            if (p->store >= 0 && p->store == cx->block[b].store[role] && an_block_in_parts(cx, b, role))
                part = cx->block[b].part;
    if (part == 0) return;
    const int64_t begin = p->offset / each, from = AN_MAX(begin, rank * part),
                  until = AN_MIN(begin + p->t->numel, (rank + 1) * part);
    *n = AN_MAX(until - from, 0);
    *first = *n > 0 ? from - begin : 0;
    *at = *n > 0 ? (from - rank * part) * each : 0;
}

an_status an_persist_part(an_ctx *cx, int i, int rank, int64_t *first, int64_t *n)
{
    entry p;
    int64_t at;
    if (!cx) return AN_E_USAGE;
    AN_TRY(an_layout_params(cx));
    if (!entry_at(cx, i, &p, NULL))
        return an_fail(&cx->err, AN_E_USAGE, "an_persist_part: there is no entry %d of %d", i, an_persist_count(cx));
    part_of(cx, &p, rank, first, n, &at);
    return AN_OK;
}

/* A narrow parameter, its caller's numbers float32. */
static bool converts(const entry *p, size_t bytes)
{
    return is_narrow(p) && bytes != (size_t)p->t->numel * an_dtype_bytes(p->dtype);
}

/* The second half of dst takes them as they are kept: number i is read before a float is written over it. */
static an_status read_wide(an_ctx *cx, int i, int64_t n, float *dst)
{
    uint16_t *kept = (uint16_t *)dst + n;
    AN_TRY(an_persist_read(cx, i, kept, (size_t)n * sizeof *kept));
    for (int64_t k = 0; k < n; k++) dst[k] = an_bf16_to_f32(kept[k]);
    return AN_OK;
}

static an_status write_wide(an_ctx *cx, int i, const entry *p, const float *src)
{
    const int64_t n = p->t->numel;
    const size_t bytes = (size_t)n * sizeof(uint16_t);
    uint16_t *kept = malloc(bytes);
    if (!kept) return an_fail_nomem(&cx->err, entry_name(cx, p), bytes);
    for (int64_t k = 0; k < n; k++) kept[k] = (uint16_t)an_f32_to_bf16(src[k]);
    const an_status status = an_persist_write(cx, i, kept, bytes);
    free(kept);
    return status;
}

an_status an_persist_read(an_ctx *cx, int i, void *dst, size_t bytes)
{
    if (!cx) return AN_E_USAGE;
    if (!dst && bytes)
        return an_fail(&cx->err, AN_E_USAGE, "an_persist_read: there is no memory to read to: dst is NULL");
    entry p;
    AN_TRY(ready_entry(cx, i, bytes, &p));
    if (converts(&p, bytes)) return read_wide(cx, i, p.t->numel, dst);
    int64_t first, n, at;
    const size_t each = an_dtype_bytes(p.dtype);
    part_of(cx, &p, cx->graph.rank, &first, &n, &at);
    if (n == 0) return AN_OK; /* a buffer of nothing may have no address */
    return cx->backend->read(&cx->err, cx->device, &cx->store[p.store].mem, (size_t)at,
                             (char *)dst + (size_t)first * each, (size_t)n * each);
}

an_status an_persist_write(an_ctx *cx, int i, const void *src, size_t bytes)
{
    if (!cx) return AN_E_USAGE;
    if (!src && bytes) return an_fail(&cx->err, AN_E_USAGE, "an_persist_write: there is nothing to write: src is NULL");
    entry p;
    AN_TRY(ready_entry(cx, i, bytes, &p));
    if (cx->rounded && p.role != ENTRY_STATE)
        return an_fail(&cx->err, AN_E_USAGE, "an_persist_write: \"%s\" cannot change: %s", entry_name(cx, &p),
                       an_why_params_are_fixed(cx));
    if (converts(&p, bytes)) return write_wide(cx, i, &p, src);
    int64_t first, n, at;
    const size_t each = an_dtype_bytes(p.dtype);
    part_of(cx, &p, cx->graph.rank, &first, &n, &at);
    if (n == 0) return AN_OK; /* a buffer of nothing may have no address */
    return cx->backend->write(&cx->err, cx->device, &cx->store[p.store].mem, (size_t)at,
                              (const char *)src + (size_t)first * each, (size_t)n * each);
}
