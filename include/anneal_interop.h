/* anneal_interop.h: memory of other programs as states of a context, without copies. */
#ifndef ANNEAL_INTEROP_H
#define ANNEAL_INTEROP_H

#include <anneal.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum an_access { AN_READ_ONLY, AN_READ_WRITE } an_access;

/* From now on the state's elements are those at `memory`, in C order and in the state's dtype: steps read and write
 * them there. `bytes` is exactly the state's size; `memory` is aligned to the dtype's size and must stay valid until it
 * is unbound, another memory is bound or the context is closed. Binding neither plans anew nor copies, so that a state
 * may be bound to another tensor at each step. With memory NULL (and bytes 0) the state has memory of its own again,
 * and its initial values.
 *
 * What another bound state is bound to may be bound again only if neither is written: an overlap is AN_E_USAGE, and so
 * are a tensor that is no state, a wrong size or alignment, and an_assign to a state bound AN_READ_ONLY. A device other
 * than the CPU is AN_E_UNSUPPORTED. A step that failed, or was interrupted, may have written a part of what it
 * writes. */
AN_API an_status an_bind(an_tensor *state, void *memory, size_t bytes, an_access access);

/* Parameters lie in blocks, many in one. Where the one of this name lies: its block, and bytes from the block's start.
 * Fixes the layout: an_param_decay and an_param_freeze are said before. AN_E_USAGE: there is no parameter of that
 * name. */
typedef struct an_param_place {
    int32_t block;
    int64_t offset, bytes, block_bytes;
} an_param_place;
AN_API an_status an_param_find(an_ctx *cx, const char *name, an_param_place *out);
/* From now on the parameters of this block have their values at `memory`, as an_bind says, and optimizers change them
 * there; bytes between parameters must be zeros. Moments and gradients stay the context's own. Not of a sharded
 * optimizer. */
AN_API an_status an_bind_block(an_ctx *cx, int block, void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
