/* anneal_interop.h: memory of other programs as states of a context, without copies. */
#ifndef ANNEAL_INTEROP_H
#define ANNEAL_INTEROP_H

#include <anneal.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum an_access { AN_READ_ONLY, AN_READ_WRITE } an_access;

/* From now on the state's elements are those at `memory`, in C order and in the state's dtype: steps read and write
 * them there. `bytes` is exactly the state's size. Binding neither plans anew nor copies, so that a state may be bound to
 * another tensor at each step; it waits until no step is in flight. With memory NULL (and bytes 0) the state has memory
 * of its own again, and its initial values.
 *
 *     device   memory                              begins on a multiple of            lives until it is unbound because
 *     cpu      an address of this process          the dtype's size                   the caller keeps it
 *     cuda     a device pointer (CUdeviceptr) of   256 bytes (an_bind_alignment)      the caller keeps it
 *              the context's GPU, or managed
 *     metal    an id<MTLBuffer> in shared storage  16 bytes, with its offset          it is retained
 *
 * an_bind_part: bytes [offset, offset + bytes) of it; for an MTLBuffer the only way to name a part.
 *
 * What another bound state is bound to may be bound again only if neither is written: an overlap is AN_E_USAGE, and so
 * are a tensor that is no state, a wrong size or alignment, memory that the device does not reach, and an_assign to a
 * state bound AN_READ_ONLY. Another device is AN_E_UNSUPPORTED. A step that failed, or was interrupted, may have written
 * a part of what it writes. On cuda a plan whose memory moves at each step is launched kernel by kernel, not as a graph.
 * (cuda and metal: tested on stand-ins of the driver and of Metal; cuda also by tests/cuda/bind_on_gpu.py on a GPU.) */
AN_API an_status an_bind(an_tensor *state, void *memory, size_t bytes, an_access access);
AN_API an_status an_bind_part(an_tensor *state, void *memory, uint64_t offset, size_t bytes, an_access access);
/* What `memory` is on a context's device: nothing that is taken, an address, a device pointer, an MTLBuffer. */
typedef enum an_external { AN_EXTERNAL_NONE, AN_EXTERNAL_ADDRESS, AN_EXTERNAL_POINTER, AN_EXTERNAL_OBJECT } an_external;
AN_API an_external an_bind_takes(const an_ctx *cx);
/* The alignment in bytes that memory for a state of this dtype must have. */
AN_API size_t an_bind_alignment(const an_ctx *cx, an_dtype dtype);

/* Copies between memory as an_bind takes it, of any alignment, and this process's. Both wait for what is in flight, and copy in
 * the device's stream: behind an_stream_wait. */
AN_API an_status an_read_external(an_ctx *cx, void *memory, uint64_t offset, void *to, size_t bytes);
AN_API an_status an_write_external(an_ctx *cx, void *memory, uint64_t offset, const void *from, size_t bytes);

/* Order between what is evaluated here and another program's work on the same memory. On the CPU an evaluation has ended
 * when it returns; on Metal an_synchronize waits for it; on cuda, without waiting:
 *     an_stream_wait     steps that are evaluated from now on begin after what is on `stream` (a CUstream or cudaStream_t;
 *                        0 or 1: the default stream) now
 *     an_stream_release  what is put on `stream` from now on begins after all steps that were evaluated until now
 * AN_E_UNSUPPORTED on devices without streams. */
AN_API an_status an_stream_wait(an_ctx *cx, uint64_t stream);
AN_API an_status an_stream_release(an_ctx *cx, uint64_t stream);
/* The stream that steps run on, for a library that puts its own work in order (__dlpack__(stream=...)); 0: there is none. */
AN_API uint64_t an_stream(an_ctx *cx);

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
