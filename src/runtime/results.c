/* results.c: reading the roots of the last an_eval; peeking at the newest scalar loss without waiting.
 *
 * A root is in the arena, in a persistent buffer (it is a state or parameter), or still with the host (it is an input).
 */
#include "runtime/results.h"

#include "base/exact.h"
#include "runtime/in_flight.h"
#include "runtime/oracle_eval.h"
#include "runtime/param_blocks.h"
#include "runtime/variables.h"

#include <math.h>
#include <string.h>

/* The leaf that a root is, perhaps under view ops that keep the order of its elements. */
static const an_tensor *leaf_under(const an_ctx *cx, const an_tensor *node)
{
    while (node->op != AN_OP_LEAF && node->n_src) node = cx->graph.node[node->src[0]];
    return node;
}

/* The slot and offset of root `which`; AN_SLOT_INPUT: it is data of this step, which the host has. */
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

/* A root that is a parameter of which this rank has a part. */
static an_status refuse_part(an_ctx *cx, int which, const an_tensor *node)
{
    const an_tensor *leaf = leaf_under(cx, node);
    if (cx->ran->plan->root[which] >= 0 || leaf->attr[0] != AN_LEAF_PARAM ||
        !an_leaf_place_of(cx, AN_LEAF_PARAM, (int)leaf->attr[1]).part_bytes)
        return AN_OK;
    return an_fail(&cx->err, AN_E_UNSUPPORTED,
                   "an_read: each rank holds a part of \"%s\": an_persist_read reads this one's",
                   cx->param[leaf->attr[1]].name);
}

static an_status read_slot(an_ctx *cx, int32_t slot, int64_t offset, void *dst, size_t bytes)
{
    const an_buffer *b = slot == AN_SLOT_ARENA ? &cx->arena : &cx->store[slot - AN_SLOT_FIRST].mem;
    if (bytes == 0) return AN_OK; /* a buffer of nothing may have no address */
    return cx->backend->read(&cx->err, cx->device, b, (size_t)offset, dst, bytes);
}

static void copy_from_host(const an_ctx *cx, const an_tensor *node, void *dst, size_t bytes)
{
    const an_tensor *leaf = leaf_under(cx, node);
    if (leaf->attr[0] == AN_LEAF_INPUT) {
        memcpy(dst, cx->input[leaf->attr[1]].data, bytes);
    } else {
        an_scalar_bytes(cx, (int)leaf->attr[1], dst);
    }
}

/* On the device "ref": a root that is a parameter or state is read after the step, as a plan's is; the others were kept. */
static an_status fetch_from_oracle(an_ctx *cx, int which, const an_tensor *node, void *dst, size_t bytes)
{
    while (node->op == AN_OP_RESHAPE) node = cx->graph.node[node->src[0]];
    if (node->op != AN_OP_LEAF || node->attr[0] == AN_LEAF_INPUT || node->attr[0] == AN_LEAF_SCALAR)
        return an_oracle_read(cx, which, dst, bytes);
    const an_leaf_place place = an_leaf_place_of(cx, (an_leaf)node->attr[0], (int)node->attr[1]);
    return read_slot(cx, place.slot, place.offset, dst, bytes);
}

/* Reads root number `which`, after every step in flight. */
static an_status fetch(an_ctx *cx, int which, const an_tensor *node, void *dst, size_t bytes)
{
    int64_t offset;
    if (an_is_ref(cx)) return fetch_from_oracle(cx, which, node, dst, bytes);
    AN_TRY(refuse_part(cx, which, node));
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
        AN_TRY(an_in_flight_status(cx));
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
    if (!t || !t->g) return AN_E_USAGE;
    an_ctx *cx = t->g->owner;
    if (!dst && bytes) {
        an_poison(&cx->graph, AN_E_USAGE, at, "an_read: there is no memory to read to: dst is NULL");
        return cx->err.code;
    }
    AN_TRY(read_root(cx, at, t, dst, bytes));
    an_sync_note(cx, at);
    return AN_OK;
}

/* A NaN has no sign: which it gets depends on the instructions, and texts would say "-nan". */
static double number_of(an_dtype dtype, const char *raw)
{
    const double x = an_dtype_load(dtype, raw, 0);
    return isnan(x) ? (double)NAN : x;
}

double an_item_at(const char *at, an_tensor *t)
{
    _Alignas(8) char raw[8] = {0};
    if (!t || !t->g) return NAN;
    if (!t->poison && t->numel != 1) {
        an_poison(t->g, AN_E_SHAPE, at, "an_item: the tensor has %lld elements, not 1", (long long)t->numel);
        return NAN;
    }
    if (an_read_at(at, t, raw, an_dtype_bytes((an_dtype)t->dtype)) != AN_OK) return NAN;
    return number_of((an_dtype)t->dtype, raw);
}

/* ---------------------------------------------------------------------------------------------- peeking */

static void seen(an_ctx *cx, double value, int64_t step)
{
    cx->peek_value = value;
    cx->peek_step = step;
    cx->peek_valid = true;
    cx->peek_later = false;
}

an_status an_note_peek(an_ctx *cx)
{
    _Alignas(8) char raw[8] = {0};
    const an_tensor *node = cx->n_roots ? cx->graph.node[cx->root[0]] : NULL;
    if (!node || node->numel != 1) return AN_OK;
    if (cx->n_flight && (cx->peek_slot = place_of(cx, 0, node, &cx->peek_at)) != AN_SLOT_INPUT) {
        cx->peek_later = true;
        cx->peek_dtype = (an_dtype)node->dtype;
        cx->peek_later_step = (int64_t)cx->step_number;
        return AN_OK;
    }
    AN_TRY(fetch(cx, 0, node, raw, an_dtype_bytes((an_dtype)node->dtype))); /* waits for nothing: the run is over */
    seen(cx, number_of((an_dtype)node->dtype, raw), (int64_t)cx->step_number);
    return AN_OK;
}

bool an_peek(an_ctx *cx, double *value, int64_t *step)
{
    _Alignas(8) char raw[8] = {0};
    if (!cx) return false;
    const bool ended = !cx->n_flight || cx->backend->done(cx->device, cx->flight[cx->n_flight - 1]);
    if (cx->peek_later && ended && an_wait_all(cx) == AN_OK &&
        read_slot(cx, cx->peek_slot, cx->peek_at, raw, an_dtype_bytes(cx->peek_dtype)) == AN_OK)
        seen(cx, number_of((an_dtype)cx->peek_dtype, raw), cx->peek_later_step);
    if (!cx->peek_valid) return false;
    if (value) *value = cx->peek_value;
    if (step) *step = cx->peek_step;
    return true;
}
