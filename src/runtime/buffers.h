/* buffers.h: device memory of a context, counted. Every allocation of a context passes here. */
#ifndef AN_RUNTIME_BUFFERS_H
#define AN_RUNTIME_BUFFERS_H

#include "runtime/context.h"

an_status an_device_alloc(an_ctx *cx, size_t bytes, an_buffer *out);
void an_device_free(an_ctx *cx, an_buffer *b); /* waits for all steps in flight first */
an_status an_buffer_reserve(an_ctx *cx, an_buffer *b,
                            int64_t bytes); /* replaces `b` by a larger one when it is smaller */

#endif
