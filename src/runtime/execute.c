/* execute.c: one step: memory bound to slots, inputs copied, the plan submitted to the device. It does not wait: in_flight.c.
 *
 * Owns: the arena and the input buffers.
 *
 * Invariant: the host neither frees nor writes what a step in flight uses. Input buffers are used round robin (double buffering); one is
 * filled again only when the step that read it last has ended, or where the queue keeps writes in order.
 */
#include "runtime/execute.h"

#include "base/rng.h"
#include "runtime/buffers.h"
#include "runtime/in_flight.h"
#include "runtime/memory.h"
#include "runtime/stores.h"
#include "runtime/variables.h"

#include <stdlib.h>
#include <string.h>

/* A batch of images is large enough to be copied once less where the input buffer is not the host's. */
static bool is_large(const an_plan_input *in)
{
    return in->leaf_kind == AN_LEAF_INPUT && in->bytes >= 1 << 20;
}

/* Writes this step's random seed, inputs and scalars in the layout of an input buffer, the large ones too or without them. */
static void write_inputs(const an_ctx *cx, const an_plan *p, bool large, char *out)
{
    const uint32_t rng[2] = {an_rng_key(cx->options.seed, cx->step_number), (uint32_t)cx->sample};
    memcpy(out + AN_INPUT_RNG, rng, sizeof rng);
    for (int i = 0; i < p->n_inputs; i++) {
        const an_plan_input *in = &p->input[i];
        if (!large && is_large(in)) continue;
        if (in->leaf_kind == AN_LEAF_INPUT)
            memcpy(out + in->offset, cx->input[in->leaf_index].data, (size_t)in->bytes);
        else
            an_scalar_bytes(cx, in->leaf_index, out + in->offset);
    }
}

static an_status fill_inputs(an_ctx *cx, const an_plan *p)
{
    an_buffer *block = &cx->inputs[cx->now];
    const size_t bytes = (size_t)p->input_bytes;
    if (block->host) {
        write_inputs(cx, p, true, block->host);
        return AN_OK;
    }
    if (cx->image_bytes < bytes) {
        void *more = realloc(cx->image, bytes);
        if (!more) return an_fail_nomem(&cx->err, "a step's inputs", bytes);
        memset((char *)more + cx->image_bytes, 0, bytes - cx->image_bytes); /* padding between inputs */
        cx->image = more;
        cx->image_bytes = bytes;
    }
    write_inputs(cx, p, false, cx->image);
    size_t done = 0;
    for (int i = 0; i < p->n_inputs; i++) { /* in the order of their offsets */
        const an_plan_input *in = &p->input[i];
        if (!is_large(in)) continue;
        const size_t from = (size_t)in->offset;
        AN_TRY(cx->backend->write(&cx->err, cx->device, block, done, (char *)cx->image + done, from - done));
        AN_TRY(
            cx->backend->write(&cx->err, cx->device, block, from, cx->input[in->leaf_index].data, (size_t)in->bytes));
        done = from + (size_t)in->bytes;
    }
    return cx->backend->write(&cx->err, cx->device, block, done, (char *)cx->image + done, bytes - done);
}

static an_status make_ready(an_ctx *cx, an_cached_plan *c)
{
    AN_TRY(an_memory_admit(cx, c));
    AN_TRY(an_stores_ready(cx));
    AN_TRY(an_buffer_reserve(cx, &cx->arena, c->plan->arena_bytes));
    for (int i = 0; i < an_input_blocks(cx); i++) AN_TRY(an_buffer_reserve(cx, &cx->inputs[i], c->plan->input_bytes));
    if (c->exec) return AN_OK;
    AN_TRY(cx->backend->load(&cx->err, cx->device, c->plan, &c->exec, &c->stats));
    c->plan->bill.compile_ms = c->stats.compile_ms;
    c->plan->bill.compiled = c->stats.compiled;
    c->plan->bill.cached = c->stats.cached;
    return AN_OK;
}

an_status an_run_plan(an_ctx *cx, an_cached_plan *c)
{
    an_buffer small[64], *slots = small;
    const int n = AN_SLOT_FIRST + cx->n_stores;
    AN_TRY(make_ready(cx, c));
    AN_TRY(an_wait_for_slot(cx));
    cx->now = (cx->now + 1) % an_input_blocks(cx);
    AN_TRY(fill_inputs(cx, c->plan));
    if (n > 64 && !(slots = an_arena_alloc(&cx->step, sizeof *slots * (size_t)n)))
        return an_fail_nomem(&cx->err, "slots", 0);
    slots[AN_SLOT_ARENA] = cx->arena;
    slots[AN_SLOT_INPUT] = cx->inputs[cx->now];
    for (int i = 0; i < cx->n_stores; i++) slots[AN_SLOT_FIRST + i] = cx->store[i].mem;
    cx->peek_later = false; /* the arena is written over */
    const an_status status = cx->backend->submit(&cx->err, cx->device, c->exec, slots, n, &cx->flight[cx->n_flight]);
    if (status == AN_E_DEVICE) cx->failed = cx->err; /* part of it may have been handed over */
    AN_TRY(status);
    cx->n_flight++;
    return an_max_in_flight(cx) == 1 ? an_wait_oldest(cx) : AN_OK;
}
