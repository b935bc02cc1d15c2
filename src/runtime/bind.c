/* bind.c: states whose memory is the caller's (an_bind of anneal_interop.h).
 *
 * Owns:       the `mem` of a store while it is bound.
 * Invariants: of two bound stores that overlap, neither is written; a bound store is neither counted nor freed. */
#include "runtime/buffers.h"
#include "runtime/in_flight.h"
#include "runtime/stores.h"
#include <anneal_interop.h>

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

static an_status check(an_ctx *cx, const an_tensor *state, const an_store *s, const char *memory, size_t bytes,
                       an_access access)
{
    const size_t each = an_dtype_bytes((an_dtype)state->dtype);
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

an_status an_bind(an_tensor *state, void *memory, size_t bytes, an_access access)
{
    if (!state || state->poison) return AN_E_USAGE;
    an_ctx *cx = state->g->owner;
    an_store *s = NULL;
    for (int i = 0; i < cx->n_states && !s; i++)
        if (cx->state[i].tensor == state && !cx->state[i].data) s = &cx->store[cx->state[i].store];
    if (!s) return an_fail(&cx->err, AN_E_USAGE, "an_bind: the tensor is no state of an_state");
    if (memory) AN_TRY(check(cx, state, s, memory, bytes, access));
    AN_TRY(an_wait_idle(cx));
    if (s->bound == AN_UNBOUND && s->allocated && memory) an_device_free(cx, &s->mem);
    s->mem = (an_buffer){.host = memory, .bytes = memory ? bytes : 0};
    s->bound = !memory ? AN_UNBOUND : access == AN_READ_ONLY ? AN_BOUND : AN_BOUND_WRITTEN;
    s->allocated = false;
    s->ready = memory != NULL;
    return AN_OK;
}
