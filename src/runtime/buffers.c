/* buffers.c: allocating and freeing device memory, with the counters that an_report and an_memory_read show. */
#include "runtime/buffers.h"

#include "runtime/in_flight.h"

an_status an_device_alloc(an_ctx *cx, size_t bytes, an_buffer *out)
{
    AN_TRY(cx->backend->alloc(&cx->err, cx->device, bytes, out));
    cx->allocations++;
    cx->allocated_bytes += bytes;
    cx->peak_bytes = AN_MAX(cx->peak_bytes, cx->allocated_bytes);
    return AN_OK;
}

void an_device_free(an_ctx *cx, an_buffer *b)
{
    an_wait_idle(cx); /* a step in flight may use it; its failure is returned by the next call that reports errors */
    cx->peek_later = false;
    cx->allocated_bytes -= b->bytes;
    cx->backend->free(cx->device, b);
    *b = (an_buffer){0};
}

an_status an_buffer_reserve(an_ctx *cx, an_buffer *b, int64_t bytes)
{
    if ((int64_t)b->bytes >= bytes) return AN_OK;
    if (b->bytes) an_device_free(cx, b);
    return an_device_alloc(cx, (size_t)bytes, b);
}
