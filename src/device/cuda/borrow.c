/* borrow.c: memory and streams of other programs in this process (PyTorch's, CuPy's): a state over a device pointer (an_bind), and an order
 * between their stream and ours.
 *
 * Does not:  keep that memory alive: who gives it does. */
#include "device/cuda/cuda_internal.h"

enum { MEMORY_ON_DEVICE = 2 };                                     /* CUmemorytype */
enum { ATTR_MEMORY_TYPE = 2, ATTR_MANAGED = 8, ATTR_ORDINAL = 9 }; /* CUpointer_attribute */

/* Whether this GPU's kernels reach the byte at `p` as its own memory: allocated on it, or managed. */
static bool is_here(an_device *d, cu_pointer p)
{
    unsigned type = 0, managed = 0;
    int ordinal = -1;
    if (d->cu.pointer_attribute(&type, ATTR_MEMORY_TYPE, p) || type != MEMORY_ON_DEVICE) return false;
    if (!d->cu.pointer_attribute(&managed, ATTR_MANAGED, p) && managed) return true;
    return !d->cu.pointer_attribute(&ordinal, ATTR_ORDINAL, p) && ordinal == d->device;
}

an_status an_cuda_borrow(an_err *err, an_device *d, void *memory, uint64_t offset, size_t bytes, an_buffer *out)
{
    const cu_pointer p = (cu_pointer)(uintptr_t)memory + offset;
    AN_TRY(an_cuda_enter(err, d));
    if (!is_here(d, p) ||
        !is_here(d, p + bytes - 1)) /* both ends: the driver tells no length of memory that it maps piece by piece */
        return an_fail(err, AN_E_USAGE,
                       "%zu bytes at 0x%llx are not memory of %s: give a device pointer of this GPU that is allocated",
                       bytes, (unsigned long long)p, d->name);
    *out = (an_buffer){.handle = p, .bytes = bytes};
    return AN_OK;
}

uint64_t an_cuda_stream(an_device *d)
{
    return (uint64_t)(uintptr_t)d->stream;
}

an_status an_cuda_order(an_err *err, an_device *d, uint64_t theirs, bool ours_first)
{
    cu_stream other = (cu_stream)(uintptr_t)theirs;
    cu_event now = NULL;
    AN_TRY(an_cuda_enter(err, d));
    AN_TRY(an_cuda_check(err, d, d->cu.event_new(&now, CU_EVENT_NO_TIMING), "making an event"));
    an_status status = an_cuda_check(err, d, d->cu.event_record(now, ours_first ? d->stream : other, 0),
                                     "recording an event on stream 0x%llx", (unsigned long long)theirs);
    if (status == AN_OK)
        status = an_cuda_check(err, d, d->cu.stream_after(ours_first ? other : d->stream, now, 0),
                               "ordering stream 0x%llx", (unsigned long long)theirs);
    d->cu.event_free(now); /* the driver keeps it until it has come */
    return status;
}
