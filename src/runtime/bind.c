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

/* Where a buffer begins, on its device. */
static uint64_t place(const an_buffer *b)
{
    return b->host ? (uint64_t)(uintptr_t)b->host : b->handle;
}

static an_status overlap(an_ctx *cx, const an_store *s, const an_buffer *memory, an_access access)
{
    const uint64_t at = place(memory);
    for (int i = 0; i < cx->n_stores; i++) {
        const an_store *o = &cx->store[i];
        const uint64_t other = place(&o->mem);
        if (o == s || o->bound == AN_UNBOUND || (o->bound == AN_BOUND && access == AN_READ_ONLY)) continue;
        if (at < other + (uint64_t)o->bytes && other < at + (uint64_t)s->bytes)
            return an_fail(&cx->err, AN_E_USAGE,
                           "an_bind: \"%s\": its memory overlaps that of \"%s\", and one of them is written; copy one",
                           s->name, o->name);
    }
    return AN_OK;
}

static an_status borrow(an_ctx *cx, an_dtype dtype, const an_store *s, void *memory, uint64_t offset, size_t bytes,
                        an_access access, an_buffer *out)
{
    if (bytes != (size_t)s->bytes || bytes == 0)
        return an_fail(&cx->err, AN_E_USAGE, "an_bind: \"%s\" has %lld bytes, not %zu", s->name, (long long)s->bytes,
                       bytes);
    if (!cx->device || !cx->backend->borrow)
        return an_fail(
            &cx->err, AN_E_UNSUPPORTED,
            "an_bind: the device %s takes no memory of other programs; open the context with device \"cpu\", "
            "\"cuda\" or \"metal\", or copy (an_input, an_read)",
            cx->backend->name);
    an_err why = {0};
    const an_status status = cx->backend->borrow(&why, cx->device, memory, offset, bytes, out);
    if (status != AN_OK) return an_fail(&cx->err, status, "an_bind: \"%s\": %s", s->name, why.text);
    const size_t each = an_bind_alignment(cx, dtype);
    if (place(out) % each == 0 && overlap(cx, s, out, access) == AN_OK) return AN_OK;
    if (place(out) % each)
        an_fail(&cx->err, AN_E_USAGE, "an_bind: \"%s\": its memory is not aligned to %zu bytes", s->name, each);
    if (cx->backend->give_back) cx->backend->give_back(cx->device, out);
    return AN_E_USAGE;
}

static an_status take(an_ctx *cx, an_dtype dtype, an_store *s, void *memory, uint64_t offset, size_t bytes,
                      an_access access)
{
    an_buffer now = {0};
    if (memory) AN_TRY(borrow(cx, dtype, s, memory, offset, bytes, access, &now));
    const an_status idle = an_wait_idle(cx);
    if (idle != AN_OK) {
        if (memory && cx->backend->give_back) cx->backend->give_back(cx->device, &now);
        return idle;
    }
    an_store_release(cx, s);
    s->mem = now;
    s->bound = !memory ? AN_UNBOUND : access == AN_READ_ONLY ? AN_BOUND : AN_BOUND_WRITTEN;
    s->ready = memory != NULL;
    return AN_OK;
}

an_external an_bind_takes(const an_ctx *cx)
{
    if (!cx || !cx->device || !cx->backend->borrow) return AN_EXTERNAL_NONE;
    switch (cx->backend->borrows) {
    case AN_BORROWS_ADDRESS: return AN_EXTERNAL_ADDRESS;
    case AN_BORROWS_POINTER: return AN_EXTERNAL_POINTER;
    case AN_BORROWS_OBJECT: return AN_EXTERNAL_OBJECT;
    case AN_BORROWS_NONE: break;
    }
    return AN_EXTERNAL_NONE;
}

size_t an_bind_alignment(const an_ctx *cx, an_dtype dtype)
{
    const size_t each = an_dtype_bytes(dtype);
    return cx && cx->backend ? AN_MAX((size_t)cx->backend->borrow_align, each) : each;
}

an_status an_bind(an_tensor *state, void *memory, size_t bytes, an_access access)
{
    return an_bind_part(state, memory, 0, bytes, access);
}

an_status an_bind_part(an_tensor *state, void *memory, uint64_t offset, size_t bytes, an_access access)
{
    if (!state || state->poison) return AN_E_USAGE;
    an_ctx *cx = state->g->owner;
    an_store *s = NULL;
    for (int i = 0; i < cx->n_states && !s; i++)
        if (cx->state[i].tensor == state && !cx->state[i].data) s = &cx->store[cx->state[i].store];
    if (!s) return an_fail(&cx->err, AN_E_USAGE, "an_bind: the tensor is no state of an_state");
    return take(cx, (an_dtype)state->dtype, s, memory, offset, bytes, access);
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
    return take(cx, b->dtype, &cx->store[b->store[AN_ROLE_PARAM]], memory, 0, bytes, AN_READ_WRITE);
}

/* ---- copies */

static an_status copy(an_ctx *cx, void *memory, uint64_t offset, void *to, const void *from, size_t bytes)
{
    an_buffer b = {0};
    an_err why = {0};
    if (!cx || !memory || (!to && !from)) return AN_E_USAGE;
    if (bytes == 0) return AN_OK;
    if (!cx->device || !cx->backend->borrow)
        return an_fail(&cx->err, AN_E_UNSUPPORTED, "the device %s takes no memory of other programs",
                       cx->backend->name);
    AN_TRY(an_wait_idle(cx));
    an_status status = cx->backend->borrow(&why, cx->device, memory, offset, bytes, &b);
    if (status != AN_OK) return an_fail(&cx->err, status, "memory of another program: %s", why.text);
    status = to ? cx->backend->read(&cx->err, cx->device, &b, 0, to, bytes)
                : cx->backend->write(&cx->err, cx->device, &b, 0, from, bytes);
    if (cx->backend->give_back) cx->backend->give_back(cx->device, &b);
    return status;
}

an_status an_read_external(an_ctx *cx, void *memory, uint64_t offset, void *to, size_t bytes)
{
    return copy(cx, memory, offset, to, NULL, bytes);
}

an_status an_write_external(an_ctx *cx, void *memory, uint64_t offset, const void *from, size_t bytes)
{
    return copy(cx, memory, offset, NULL, from, bytes);
}

/* ---- streams */

uint64_t an_stream(an_ctx *cx)
{
    return cx && cx->device && cx->backend->stream ? cx->backend->stream(cx->device) : 0;
}

static an_status order(an_ctx *cx, uint64_t stream, bool ours_first)
{
    if (!cx) return AN_E_USAGE;
    if (!cx->device || !cx->backend->order)
        return an_fail(&cx->err, AN_E_UNSUPPORTED,
                       "the device %s has no streams: what runs before an evaluation is to "
                       "have ended, and an_synchronize waits for what was evaluated",
                       cx->backend->name);
    AN_TRY(an_in_flight_status(cx));
    return cx->backend->order(&cx->err, cx->device, stream, ours_first);
}

an_status an_stream_wait(an_ctx *cx, uint64_t stream)
{
    return order(cx, stream, false);
}

an_status an_stream_release(an_ctx *cx, uint64_t stream)
{
    return order(cx, stream, true);
}
