/* runtime/execute.c: a plan set going, and what comes of it: memory bound, inputs handed over, steps in flight, results.
 *
 * Owns:      how many steps are under way, the input blocks they read in turn, when the program waits; what is
 * readable. Does not:  find plans (runtime/context.c), do a step again or stop the ones behind it when it failed (device/).
 *
 * Invariants: steps run in the order of their an_eval, for they share the arena and states. The host neither frees nor
 * writes what a step in flight uses: an input block is filled when the step that read it last has ended. What failed in
 * flight ends the context's work: the sentence comes from the next call that waits or evaluates, and from each after
 * it, and nothing of that step is read.
 */
#include "runtime/runtime.h"

#include "base/exact.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- steps in flight */

static int32_t most_in_flight(const an_ctx *cx)
{
    const int32_t n = cx->backend->target(cx->device)->in_flight;
    return n < 1 ? 1 : AN_MIN(n, AN_MOST_IN_FLIGHT);
}

int an_input_blocks(const an_ctx *cx)
{
    const int32_t n = cx->backend->target(cx->device)->input_blocks;
    return n < 1 ? 1 : AN_MIN(n, AN_MOST_IN_FLIGHT);
}

an_status an_still_whole(an_ctx *cx)
{
    return cx->failed.code ? an_fail(&cx->err, cx->failed.code, "%s", cx->failed.text) : AN_OK;
}

/* The oldest step. */
static an_status wait_for_one(an_ctx *cx)
{
    an_err why = {0};
    const an_status status = cx->backend->wait(&why, cx->device, cx->flight[0], INT64_MAX);
    if (status != AN_OK) {
        cx->failed = why;
        cx->failed.code = status;
        cx->n_flight = cx->n_roots = 0;
        cx->unseen = false;
        return an_still_whole(cx);
    }
    memmove(cx->flight, cx->flight + 1, sizeof *cx->flight * (size_t)--cx->n_flight);
    return AN_OK;
}

static an_status wait_for_all(an_ctx *cx)
{
    while (cx->n_flight > 0) AN_TRY(wait_for_one(cx));
    return AN_OK;
}

an_status an_wait_idle(an_ctx *cx)
{
    cx->waits += cx->n_flight > 0;
    return wait_for_all(cx);
}

/* One more step may go. The ones behind the oldest are queued: the device does not stand still meanwhile. */
static an_status make_room(an_ctx *cx)
{
    if (cx->n_flight < most_in_flight(cx)) return AN_OK;
    cx->stalls += cx->backend->done && !cx->backend->done(cx->device, cx->flight[0]);
    return wait_for_one(cx);
}

an_status an_synchronize(an_ctx *cx)
{
    if (!cx) return AN_E_USAGE;
    if (cx->device) AN_TRY(an_wait_idle(cx));
    return cx->err.code;
}

/* ---------------------------------------------------------------------------------------------- running */

static an_status room_for(an_ctx *cx, an_buffer *b, int64_t bytes)
{
    if ((int64_t)b->bytes >= bytes) return AN_OK;
    if (b->bytes) an_memory_freed(cx, b);
    return an_device_alloc(cx, (size_t)bytes, b);
}

/* This step's generator, inputs and scalars, as they stand in an input block. */
static void write_inputs(const an_ctx *cx, const an_plan *p, char *out)
{
    const uint32_t rng[2] = {an_rng_key(cx->options.seed, cx->step_number), (uint32_t)cx->sample};
    memcpy(out + AN_INPUT_RNG, rng, sizeof rng);
    for (int i = 0; i < p->n_inputs; i++) {
        const an_plan_input *in = &p->input[i];
        const float f = in->leaf_kind == AN_LEAF_INPUT ? 0 : (float)cx->scalar[in->leaf_index];
        const int32_t n =
            in->leaf_kind != AN_LEAF_INPUT && cx->scalar_int[in->leaf_index] ? (int32_t)cx->scalar[in->leaf_index] : 0;
        const void *src = in->leaf_kind == AN_LEAF_INPUT   ? cx->input[in->leaf_index].data
                          : cx->scalar_int[in->leaf_index] ? (const void *)&n
                                                           : (const void *)&f;
        memcpy(out + in->offset, src, (size_t)in->bytes);
    }
}

static an_status fill_inputs(an_ctx *cx, const an_plan *p)
{
    an_buffer *block = &cx->inputs[cx->now];
    const size_t bytes = (size_t)p->input_bytes;
    if (block->host) {
        write_inputs(cx, p, block->host);
        return AN_OK;
    }
    if (cx->image_bytes < bytes) {
        void *more = realloc(cx->image, bytes);
        if (!more) return an_fail_nomem(&cx->err, "a step's inputs", bytes);
        memset((char *)more + cx->image_bytes, 0, bytes - cx->image_bytes); /* what stands between inputs */
        cx->image = more;
        cx->image_bytes = bytes;
    }
    write_inputs(cx, p, cx->image);
    return cx->backend->write(&cx->err, cx->device, block, 0, cx->image, bytes);
}

static an_status make_ready(an_ctx *cx, an_cached_plan *c)
{
    AN_TRY(an_memory_admit(cx, c));
    AN_TRY(an_stores_ready(cx));
    AN_TRY(room_for(cx, &cx->arena, c->plan->arena_bytes));
    for (int i = 0; i < an_input_blocks(cx); i++) AN_TRY(room_for(cx, &cx->inputs[i], c->plan->input_bytes));
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
    AN_TRY(make_room(cx));
    cx->now = (cx->now + 1) % an_input_blocks(cx);
    AN_TRY(fill_inputs(cx, c->plan));
    if (n > 64 && !(slots = an_arena_alloc(&cx->step, sizeof *slots * (size_t)n)))
        return an_fail_nomem(&cx->err, "slots", 0);
    slots[AN_SLOT_ARENA] = cx->arena;
    slots[AN_SLOT_INPUT] = cx->inputs[cx->now];
    for (int i = 0; i < cx->n_stores; i++) slots[AN_SLOT_FIRST + i] = cx->store[i].mem;
    cx->unseen = false; /* the arena is written over */
    const an_status status = cx->backend->submit(&cx->err, cx->device, c->exec, slots, n, &cx->flight[cx->n_flight]);
    if (status == AN_E_DEVICE) cx->failed = cx->err; /* part of it may have been handed over */
    AN_TRY(status);
    cx->n_flight++;
    return most_in_flight(cx) == 1 ? wait_for_one(cx) : AN_OK;
}

/* ---------------------------------------------------------------------------------------------- reading */

static double number(int dtype, const void *raw)
{
    switch (dtype) {
    case AN_F32: return *(const float *)raw;
    case AN_F64: return *(const double *)raw;
    case AN_BF16: return an_bf16_to_f32(*(const uint16_t *)raw);
    case AN_F16: return an_f16_to_f32(*(const uint16_t *)raw);
    case AN_I32: return *(const int32_t *)raw;
    case AN_I64: return (double)*(const int64_t *)raw;
    default: return *(const uint8_t *)raw;
    }
}

/* The leaf that a root is, perhaps under moves that keep its order. */
static const an_tensor *leaf_under(const an_ctx *cx, const an_tensor *node)
{
    while (node->op != AN_OP_LEAF && node->n_src) node = cx->graph.node[node->src[0]];
    return node;
}

/* The slot where root `which` stands; AN_SLOT_INPUT: it is data of this step. */
static int32_t place_of(an_ctx *cx, int which, const an_tensor *node, int64_t *offset)
{
    const an_plan *p = cx->ran->plan;
    int32_t slot = AN_SLOT_ARENA;
    if (p->root[which] >= 0) {
        *offset = an_value_offset(p, p->root[which], &slot);
        return slot;
    }
    const an_tensor *leaf = leaf_under(cx, node);
    const an_leaf_place place = an_leaf_place_of(cx, (an_leaf)leaf->attr[0], (int)leaf->attr[1]);
    *offset = place.offset;
    return place.slot;
}

static an_status read_slot(an_ctx *cx, int32_t slot, int64_t offset, void *dst, size_t bytes)
{
    const an_buffer *b = slot == AN_SLOT_ARENA ? &cx->arena : &cx->store[slot - AN_SLOT_FIRST].mem;
    return cx->backend->read(&cx->err, cx->device, b, (size_t)offset, dst, bytes);
}

static void copy_from_host(const an_ctx *cx, const an_tensor *node, void *dst, size_t bytes)
{
    const an_tensor *leaf = leaf_under(cx, node);
    if (leaf->attr[0] == AN_LEAF_INPUT) {
        memcpy(dst, cx->input[leaf->attr[1]].data, bytes);
    } else {
        const float f = (float)cx->scalar[leaf->attr[1]];
        const int32_t i = leaf->dtype == AN_I32 ? (int32_t)cx->scalar[leaf->attr[1]] : 0;
        memcpy(dst, leaf->dtype == AN_I32 ? (const void *)&i : (const void *)&f, 4);
    }
}

/* Root number `which`, after all that is under way. */
static an_status fetch(an_ctx *cx, int which, const an_tensor *node, void *dst, size_t bytes)
{
    int64_t offset;
    if (an_is_ref(cx)) return an_oracle_read(cx, which, dst, bytes);
    const int32_t slot = place_of(cx, which, node, &offset);
    if (slot == AN_SLOT_INPUT) {
        copy_from_host(cx, node, dst, bytes);
        return AN_OK;
    }
    AN_TRY(an_wait_idle(cx));
    return read_slot(cx, slot, offset, dst, bytes);
}

static an_status read_root(an_ctx *cx, const char *at, an_tensor *t, void *dst, size_t bytes)
{
    if (cx->err.code) return cx->err.code;
    int which = -1;
    an_tensor *node = an_use(&cx->graph, t, at, "an_read");
    for (int i = 0; i < cx->n_roots && cx->root_epoch == cx->graph.epoch; i++)
        if (cx->root[i] == node->id) which = i;
    if (node->poison) return cx->err.code;
    if (which < 0) {
        AN_TRY(an_still_whole(cx));
        an_poison(&cx->graph, AN_E_USAGE, at, "an_read: this tensor was not evaluated; name it in the last an_eval");
        return AN_E_USAGE;
    }
    size_t want = (size_t)node->numel * an_dtype_bytes((an_dtype)node->dtype);
    if (bytes != want) {
        an_poison(&cx->graph, AN_E_USAGE, at, "an_read: the tensor has %zu bytes, not %zu", want, bytes);
        return AN_E_USAGE;
    }
    return fetch(cx, which, node, dst, bytes);
}

an_status an_read_at(const char *at, an_tensor *t, void *dst, size_t bytes)
{
    if (!t || !dst) return AN_E_USAGE;
    an_ctx *cx = t->g->owner;
    AN_TRY(read_root(cx, at, t, dst, bytes));
    an_sync_note(cx, at);
    return AN_OK;
}

double an_item_at(const char *at, an_tensor *t)
{
    _Alignas(8) char raw[8] = {0};
    if (!t) return NAN;
    if (t->numel != 1) {
        an_poison(t->g, AN_E_SHAPE, at, "an_item: the tensor has %lld elements, not 1", (long long)t->numel);
        return NAN;
    }
    if (an_read_at(at, t, raw, an_dtype_bytes((an_dtype)t->dtype)) != AN_OK) return NAN;
    return number(t->dtype, raw);
}

/* ---------------------------------------------------------------------------------------------- peeking */

static void seen(an_ctx *cx, double value, int64_t step)
{
    cx->peek_value = value;
    cx->peek_step = step;
    cx->peek_valid = true;
    cx->unseen = false;
}

an_status an_note_peek(an_ctx *cx)
{
    _Alignas(8) char raw[8] = {0};
    const an_tensor *node = cx->n_roots ? cx->graph.node[cx->root[0]] : NULL;
    if (!node || node->numel != 1) return AN_OK;
    if (cx->n_flight && (cx->unseen_slot = place_of(cx, 0, node, &cx->unseen_at)) != AN_SLOT_INPUT) {
        cx->unseen = true;
        cx->unseen_dtype = (an_dtype)node->dtype;
        cx->unseen_step = (int64_t)cx->step_number;
        return AN_OK;
    }
    AN_TRY(fetch(cx, 0, node, raw, an_dtype_bytes((an_dtype)node->dtype))); /* waits for nothing: the run is over */
    seen(cx, number(node->dtype, raw), (int64_t)cx->step_number);
    return AN_OK;
}

bool an_peek(an_ctx *cx, double *value, int64_t *step)
{
    _Alignas(8) char raw[8] = {0};
    if (!cx) return false;
    const bool ended = !cx->n_flight || cx->backend->done(cx->device, cx->flight[cx->n_flight - 1]);
    if (cx->unseen && ended && wait_for_all(cx) == AN_OK &&
        read_slot(cx, cx->unseen_slot, cx->unseen_at, raw, an_dtype_bytes(cx->unseen_dtype)) == AN_OK)
        seen(cx, number(cx->unseen_dtype, raw), cx->unseen_step);
    if (!cx->peek_valid) return false;
    if (value) *value = cx->peek_value;
    if (step) *step = cx->peek_step;
    return true;
}
