/* param_blocks.c: parameters of one (dtype, declared dtype, decay, frozen) become one block; a block has at most 255 (an_block in
 * context.h). Those that are kept narrower than declared become several: the gradient of a block is one array, which lives
 * from the first of its parameters' gradients on, and the smaller it is the fewer activations live then too. (Others stay
 * one block: in which order a norm is summed, so its bits, depends on it.)
 *
 * Owns:      also which part of a block each rank has (sharding, ZeRO; an_shard_optimizer, open.c).
 * Does not:  gather parts (planner/gather_weights.c); decide which parameters decay: those of two axes or more (an_param_at in
 *            variables.c), unless the setting `decay` says otherwise (train/optimizer.c).
 * Invariant: a block never moves and never grows. Parameters made after a layout go to new blocks.
 */
#include "runtime/param_blocks.h"

#include "graph/build.h"
#include "runtime/variables.h"

enum {
    PARAM_ALIGN = 256,
    NARROW_LEAST = 1 << 26, /* elements at which a narrow block ends, or a NARROW_PARTS-th of all, if that is more */
    NARROW_PARTS = 8
};

static int64_t narrow_most(const an_ctx *cx)
{
    int64_t all = 0;
    for (int i = 0; i < cx->n_params; i++) all += cx->param[i].tensor->numel;
    return AN_MAX(all / NARROW_PARTS, NARROW_LEAST);
}

/* Small blocks are not worth an exchange. */
static bool is_sharded(const an_ctx *cx, const an_block *b)
{
    return cx->shard != AN_SHARD_NONE && !b->frozen && b->used > AN_TOTAL_MOST;
}

static an_status new_block(an_ctx *cx, const an_param_info *first)
{
    const an_dtype dtype = (an_dtype)first->tensor->dtype;
    const bool narrow = first->tensor->narrow, decay = first->decay, frozen = first->frozen;
    const int64_t most = narrow ? narrow_most(cx) : INT64_MAX;
    an_block b = {.dtype = dtype,
                  .moments = narrow ? AN_F32 : dtype,
                  .decay = decay,
                  .frozen = frozen,
                  .store = {-1, -1, -1, -1, -1}};
    size_t each = an_dtype_bytes(dtype);
    int64_t bytes = 0;
    b.param = AN_NEW_ARRAY(&cx->forever, int32_t, cx->n_params);
    if (!b.param || !an_grow((void **)&cx->block, cx->n_blocks, &cx->cap_blocks, sizeof b))
        return an_fail_nomem(&cx->err, "parameter blocks", 0);
    for (int i = 0; i < cx->n_params; i++) {
        an_param_info *p = &cx->param[i];
        if (p->block >= 0 || p->tensor->dtype != dtype || p->tensor->narrow != narrow || p->decay != decay ||
            p->frozen != frozen || b.n == 255 || bytes / (int64_t)each >= most)
            continue;
        p->block = cx->n_blocks;
        p->offset = bytes;
        bytes = an_round_up(bytes + p->tensor->numel * (int64_t)each, PARAM_ALIGN);
        b.param[b.n++] = i;
    }
    b.used = b.numel = bytes / (int64_t)each;
    if (is_sharded(cx, &b)) { /* whole chunks of a total: its order is that of one rank */
        b.part = an_round_up(an_ceil_div(b.used, cx->graph.ranks), AN_TOTAL_CHUNK);
        b.numel = b.part * cx->graph.ranks;
        bytes = b.numel * (int64_t)each;
    }
    if (b.numel > INT32_MAX) {
        for (int i = 0; i < b.n; i++) cx->param[b.param[i]].block = -1; /* it has no place: each an_eval says so */
        return an_fail(&cx->err, AN_E_UNSUPPORTED,
                       "parameters of one kind have %lld elements; a block holds at most 2147483647: give some of them "
                       "another dtype or decay",
                       (long long)b.numel);
    }
    const char *name = an_arena_printf(&cx->forever, "%s parameters %s", an_dtype_name(dtype),
                                       frozen  ? "(frozen)"
                                       : decay ? "with weight decay"
                                               : "without weight decay");
    if (b.part > 0 && cx->shard == AN_SHARD_WEIGHTS) bytes = b.part * (int64_t)each;
    b.store[AN_ROLE_PARAM] = an_store_new(cx, bytes, AN_USE_WEIGHT, name);
    if (!name || b.store[AN_ROLE_PARAM] < 0) {
        for (int i = 0; i < b.n; i++) cx->param[b.param[i]].block = -1; /* for the next attempt */
        return an_fail_nomem(&cx->err, "parameter blocks", 0);
    }
    cx->block[cx->n_blocks++] = b;
    return AN_OK;
}

an_status an_layout_params(an_ctx *cx)
{
    for (int i = 0; i < cx->n_params; i++)
        if (cx->param[i].block < 0) AN_TRY(new_block(cx, &cx->param[i]));
    return AN_OK;
}

static int leaf_index(int block, an_role role)
{
    return block * AN_N_ROLES + (int)role;
}

bool an_block_in_parts(const an_ctx *cx, int b, an_role role)
{
    if (cx->block[b].part == 0) return false;
    switch (role) {
    case AN_ROLE_M:
    case AN_ROLE_V: return true;
    case AN_ROLE_GRAD: return cx->shard >= AN_SHARD_GRADIENTS;
    default: return cx->shard == AN_SHARD_WEIGHTS;
    }
}

int64_t an_block_numel(const an_ctx *cx, int b, an_role role)
{
    const an_block *bl = &cx->block[b];
    return an_block_in_parts(cx, b, role) ? bl->part : bl->numel;
}

an_dtype an_block_dtype(const an_block *b, an_role role)
{
    return role == AN_ROLE_M || role == AN_ROLE_V ? b->moments : b->dtype;
}

bool an_block_set_moments(an_ctx *cx, int b, an_dtype dtype)
{
    an_block *bl = &cx->block[b];
    const bool declared = bl->store[AN_ROLE_M] >= 0 || bl->store[AN_ROLE_V] >= 0;
    if (!declared) bl->moments = dtype;
    return bl->moments == dtype;
}

an_tensor *an_block_tensor(an_ctx *cx, int b, an_role role, const char *name)
{
    an_block *bl = &cx->block[b];
    const int64_t numel = an_block_numel(cx, b, role);
    const an_dtype dtype = an_block_dtype(bl, role);
    int32_t shape[1] = {(int32_t)numel};
    if (bl->store[role] < 0) {
        an_usage usage = role == AN_ROLE_GRAD ? AN_USE_GRADIENT : role == AN_ROLE_PARAM ? AN_USE_WEIGHT : AN_USE_MOMENT;
        bl->store[role] = an_store_new(cx, numel * (int64_t)an_dtype_bytes(dtype), usage, name);
        if (bl->store[role] < 0) return cx->graph.poison;
    }
    if (!bl->tensor[role])
        bl->tensor[role] = an_persistent(&cx->graph, AN_LEAF_BLOCK, leaf_index(b, role), dtype, 1, shape);
    return bl->tensor[role] ? bl->tensor[role] : cx->graph.poison;
}

/* ---------------------------------------------------------------------------------------------- places */

an_leaf_place an_leaf_place_of(void *user, an_leaf kind, int index)
{
    an_ctx *cx = user;
    an_leaf_place at = {.slot = -1};
    if (kind == AN_LEAF_PARAM) {
        const an_param_info *p = &cx->param[index];
        const an_block *b = &cx->block[p->block];
        const bool averaged = cx->averages && b->store[AN_ROLE_AVERAGE] >= 0;
        const an_store *s = &cx->store[b->store[averaged ? AN_ROLE_AVERAGE : AN_ROLE_PARAM]];
        at = (an_leaf_place){.slot = AN_SLOT_FIRST + (int32_t)(s - cx->store),
                             .offset = p->offset,
                             .bytes = p->tensor->numel * (int64_t)an_dtype_bytes((an_dtype)p->tensor->dtype),
                             .usage = s->usage,
                             .name = p->name};
        if (an_block_in_parts(cx, p->block, AN_ROLE_PARAM)) {
            at.dtype = b->dtype;
            at.part_bytes = s->bytes;
            at.whole_bytes = b->numel * (int64_t)an_dtype_bytes(b->dtype);
        }
    } else if (kind == AN_LEAF_BLOCK) {
        int32_t i = cx->block[index / AN_N_ROLES].store[index % AN_N_ROLES];
        at = (an_leaf_place){.slot = AN_SLOT_FIRST + i,
                             .bytes = cx->store[i].bytes,
                             .usage = cx->store[i].usage,
                             .name = cx->store[i].name};
    } else if (kind == AN_LEAF_STATE) {
        int32_t i = cx->state[index].store;
        at = (an_leaf_place){.slot = AN_SLOT_FIRST + i,
                             .bytes = cx->store[i].bytes,
                             .usage = AN_USE_STATE,
                             .name = cx->state[index].name};
    } else {
        at = (an_leaf_place){
            .slot = AN_SLOT_INPUT, .usage = AN_USE_INPUT, .name = kind == AN_LEAF_SCALAR ? "scalar" : "input"};
    }
    return at;
}

int64_t an_pack_place(void *user, int block, int source, int64_t *block_bytes)
{
    an_ctx *cx = user;
    const an_block *b = &cx->block[block];
    *block_bytes = b->numel * (int64_t)an_dtype_bytes(b->dtype);
    return cx->param[b->param[source]].offset;
}
