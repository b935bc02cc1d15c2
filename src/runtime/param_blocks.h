/* param_blocks.h: the layout of parameters in blocks, and where every leaf of a graph lives. */
#ifndef AN_RUNTIME_PARAM_BLOCKS_H
#define AN_RUNTIME_PARAM_BLOCKS_H

#include "runtime/context.h"

an_status an_layout_params(an_ctx *cx); /* puts parameters made since the last call into new blocks */

/* Whether each rank holds a part of this array of block b (an_shard_optimizer). */
bool an_block_in_parts(const an_ctx *cx, int b, an_role role);
/* Elements of an array of block b that this rank holds: all, or its part. */
int64_t an_block_numel(const an_ctx *cx, int b, an_role role);
an_dtype an_block_dtype(const an_block *b, an_role role);
/* The dtype of the block's moments, before they are first asked for; false: they have another one already. */
bool an_block_set_moments(an_ctx *cx, int b, an_dtype dtype);
an_tensor *an_block_tensor(an_ctx *cx, int b, an_role role,
                           const char *name); /* an array of block b; declared at first use */

/* Callbacks of an_plan_request; `cx` is the context. */
an_leaf_place an_leaf_place_of(void *cx, an_leaf kind, int index);
int64_t an_pack_place(void *cx, int block, int source, int64_t *block_bytes);

#endif
