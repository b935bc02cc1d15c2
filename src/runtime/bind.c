/* bind.c: states and blocks of parameters whose memory is the caller's, without a copy (anneal_interop.h).
 *
 * Owns:       the `mem` of a store while it is bound.
 * Invariants: of two bound stores that overlap, neither is written; a bound store is neither counted nor freed. */
#include "runtime/buffers.h"
#include "runtime/in_flight.h"
#include "runtime/param_blocks.h"
#include "runtime/stores.h"
#include <anneal_interop.h>
#include <string.h>

static an_status overlap(an_ctx *cx, const an_store *s, const char *memory, an_access access)
{
    for (int i = 0; i < cx->n_stores; i++) {
        const an_store *o = &cx->store[i];
        const char *other = o->mem.host;
        if (o == s || o->bound == AN_UNBOUND || (o->bound == AN_BOUND && access == AN_READ_ONLY)) continue;
        if (memory < other + o->bytes && other < memory + s->bytes)
            return an_fail(&cx->err, AN_E_USAGE,
                           "an_bind: \"%s\": its memory overlaps that of \"%s\", and one of them is written; copy one",
                           s->name, o->name);
    }
    return AN_OK;
}

static an_status check(an_ctx *cx, an_dtype dtype, const an_store *s, const char *memory, size_t bytes,
                       an_access access)
{
    const size_t each = an_dtype_bytes(dtype);
    if (bytes != (size_t)s->bytes)
        return an_fail(&cx->err, AN_E_USAGE, "an_bind: \"%s\" has %lld bytes, not %zu", s->name, (long long)s->bytes,
                       bytes);
    if ((uintptr_t)memory % each != 0)
        return an_fail(&cx->err, AN_E_USAGE, "an_bind: \"%s\": its memory is not aligned to %zu bytes", s->name, each);
    if (!cx->device || !cx->backend->binds)
        return an_fail(&cx->err, AN_E_UNSUPPORTED,
                       "an_bind: memory of other programs can be bound on the CPU only; open the context with device "
                       "\"cpu\", or copy (an_input, an_read)");
    return overlap(cx, s, memory, access);
}

static an_status take(an_ctx *cx, an_dtype dtype, an_store *s, void *memory, size_t bytes, an_access access)
{
    if (memory) AN_TRY(check(cx, dtype, s, memory, bytes, access));
    AN_TRY(an_wait_idle(cx));
    if (s->bound == AN_UNBOUND && s->allocated && memory) an_device_free(cx, &s->mem);
    s->mem = (an_buffer){.host = memory, .bytes = memory ? bytes : 0};
    s->bound = !memory ? AN_UNBOUND : access == AN_READ_ONLY ? AN_BOUND : AN_BOUND_WRITTEN;
    s->allocated = false;
    s->ready = memory != NULL;
    return AN_OK;
}

an_status an_bind(an_tensor *state, void *memory, size_t bytes, an_access access)
{
    if (!state || state->poison) return AN_E_USAGE;
    an_ctx *cx = state->g->owner;
    an_store *s = NULL;
    for (int i = 0; i < cx->n_states && !s; i++)
        if (cx->state[i].tensor == state && !cx->state[i].data) s = &cx->store[cx->state[i].store];
    if (!s) return an_fail(&cx->err, AN_E_USAGE, "an_bind: the tensor is no state of an_state");
    return take(cx, (an_dtype)state->dtype, s, memory, bytes, access);
}

an_status an_param_find(an_ctx *cx, const char *name, an_param_place *out)
{
    if (!cx) return AN_E_USAGE;
    if (!name || !out) return an_fail(&cx->err, AN_E_USAGE, "an_param_find: a name and a place to write to are needed");
    AN_TRY(an_layout_params(cx));
    for (int i = 0; i < cx->n_params; i++) {
        const an_param_info *p = &cx->param[i];
        if (strcmp(p->name, name) != 0) continue;
        *out = (an_param_place){.block = p->block,
                                .offset = p->offset,
                                .bytes = p->tensor->numel * (int64_t)an_dtype_bytes((an_dtype)p->tensor->dtype),
                                .block_bytes = cx->store[cx->block[p->block].store[AN_ROLE_PARAM]].bytes};
        return AN_OK;
    }
    return an_fail(&cx->err, AN_E_USAGE, "an_param_find: there is no parameter \"%.200s\"", name);
}

an_status an_bind_block(an_ctx *cx, int block, void *memory, size_t bytes)
{
    if (!cx) return AN_E_USAGE;
    if (block < 0 || block >= cx->n_blocks)
        return an_fail(&cx->err, AN_E_USAGE, "an_bind_block: there is no block %d of %d", block, cx->n_blocks);
    const an_block *b = &cx->block[block];
    if (b->part > 0) return an_fail(&cx->err, AN_E_UNSUPPORTED, "an_bind_block: the parameters of a sharded optimizer");
    return take(cx, b->dtype, &cx->store[b->store[AN_ROLE_PARAM]], memory, bytes, AN_READ_WRITE);
}
