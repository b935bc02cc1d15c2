/* device.c: MTLDevice and MTLBuffer: memory in two views, guarded, poisoned, shut while work is in flight.
 *
 * A host access that is not allowed raises SIGSEGV, which the handler here turns into a misuse with the buffer's name.
 * Invariant: a buffer's address is never given out again while fewer than MAX_GRAVES others have been freed after it.
 */
#define _GNU_SOURCE
#include "metal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { MAX_GRAVES = 4096, TAIL = 0xa5 };

static struct {
    id device;
    buffer *all;
    struct grave {
        uint8_t *at;
        uint64_t bytes;
    } grave[MAX_GRAVES];
    uint64_t n_graves;
    struct sigaction old;
} D;

id the_device(void)
{
    return D.device;
}
id device_of(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return object_lend(D.device);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static uint64_t pages(uint64_t bytes)
{
    return (bytes + MAC_PAGE - 1) & ~(uint64_t)(MAC_PAGE - 1);
}

/* `bytes` at fd between two guard pages. */
static uint8_t *guarded(int fd, uint64_t bytes)
{
    uint8_t *at = mmap(NULL, bytes + 2 * MAC_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    if (mmap(at + MAC_PAGE, bytes, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED) return NULL;
    return at + MAC_PAGE;
}

/* Leaves the addresses taken, so that a stale pointer into them is known. */
static void bury(uint8_t *at, uint64_t bytes)
{
    if (!at) return;
    mmap(at - MAC_PAGE, bytes + 2 * MAC_PAGE, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
         0);
    struct grave *g = &D.grave[D.n_graves++ % MAX_GRAVES];
    if (g->at) munmap(g->at - MAC_PAGE, g->bytes + 2 * MAC_PAGE);
    *g = (struct grave){at, bytes};
}

static void shut(buffer *b)
{
    if (!b->host) return;
    int how = b->writers ? PROT_NONE : b->readers ? PROT_READ : PROT_READ | PROT_WRITE;
    b->shut = b->writers || b->readers;
    mprotect(b->host, b->mapped, how);
}

void buffer_pin(buffer *b, bool writes)
{
    ++*(writes ? &b->writers : &b->readers);
    shut(b);
}
void buffer_unpin(buffer *b, bool writes)
{
    --*(writes ? &b->writers : &b->readers);
    shut(b);
}
void buffer_open(buffer *b, bool open)
{
    if (!b->no_copy) return;
    if (open)
        mprotect(b->host, b->mapped, PROT_READ | PROT_WRITE);
    else
        shut(b);
}

void buffer_shut(buffer *b, bool again)
{
    if (again)
        shut(b);
    else
        mprotect(b->host, b->mapped, PROT_READ | PROT_WRITE);
}

/* Checks that the bytes behind the last one are as written before, in the device's memory and in the host's. Puts it there
 * again: once said is enough. */
bool buffer_tail_clean(buffer *b)
{
    bool clean = true;
    for (uint64_t i = b->length; i < b->mapped && !b->no_copy; i++) {
        clean &= b->gpu[i] == TAIL;
        b->gpu[i] = TAIL;
    }
    for (uint64_t i = b->length; i < b->mapped && b->two_memories && !b->shut; i++) {
        clean &= b->host[i] == TAIL;
        b->host[i] = TAIL;
    }
    return clean;
}

static void poison(uint8_t *at, uint64_t bytes)
{
    for (uint64_t i = 0; i + 4 <= bytes; i += 4) memcpy(at + i, &(uint32_t){0x7fa5dead}, 4);
    for (uint64_t i = bytes & ~(uint64_t)3; i < bytes; i++) at[i] = 0xde;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    const uint8_t *at = info->si_addr;
    for (buffer *b = D.all; b; b = b->next) {
        const char *name = b->label ? string_text(b->label) : "";
        if (!b->no_copy && ((at >= b->gpu - MAC_PAGE && at < b->gpu) ||
                            (at >= b->gpu + b->mapped && at < b->gpu + b->mapped + MAC_PAGE))) {
            fprintf(stderr, "metal stand-in: a kernel touches memory %s buffer %s of %llu bytes\n",
                    at < b->gpu ? "in front of" : "behind", name, (unsigned long long)b->length);
            abort();
        }
        if (!b->host || at < b->host - MAC_PAGE || at >= b->host + b->mapped + MAC_PAGE) continue;
        if (!b->shut) {
            if (at >= b->host && at < b->host + b->mapped) continue;
            fprintf(stderr, "metal stand-in: the host touches memory %s buffer %s of %llu bytes\n",
                    at < b->host ? "in front of" : "behind", name, (unsigned long long)b->length);
            abort();
        }
        misuse(
            "the host %s byte %lld of buffer %s of %llu bytes, which committed work %s and the host has not waited for",
            b->writers ? "touches" : "writes", (long long)(at - b->host), name, (unsigned long long)b->length,
            b->writers ? "writes" : "reads");
        mprotect(b->host, b->mapped, PROT_READ | PROT_WRITE); /* misuse=record: go on */
        return;
    }
    for (int i = 0; i < MAX_GRAVES; i++)
        if (D.grave[i].at && at >= D.grave[i].at && at < D.grave[i].at + D.grave[i].bytes) {
            fprintf(stderr, "metal stand-in: the host touches byte %lld of a buffer that has been freed\n",
                    (long long)(at - D.grave[i].at));
            abort();
        }
    if (D.old.sa_flags & SA_SIGINFO && D.old.sa_sigaction)
        D.old.sa_sigaction(signal, info, context);
    else
        sigaction(signal, &D.old, NULL); /* it comes again, and ends the program as it would have */
}

static void watch_faults(void)
{
    struct sigaction now, mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, NULL, &now);
    if (now.sa_sigaction == on_fault) return;
    sigaction(SIGSEGV, &mine, &D.old);
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static void buffer_end(void *body)
{
    buffer *b = body;
    if (!b->length) return;
    if (!buffer_tail_clean(b))
        misuse("bytes behind the %llu of a buffer have been written", (unsigned long long)b->length);
    if (b->no_copy) {
        mprotect(b->host, b->mapped, PROT_READ | PROT_WRITE);
    } else {
        bury(b->host, b->mapped);
        if (b->gpu != b->host) munmap(b->gpu - MAC_PAGE, b->mapped + 2 * MAC_PAGE);
    }
    if (b->next) b->next->last = b->last;
    *(b->last ? &b->last->next : &D.all) = b->next;
    counts()->buffers_alive--;
    counts()->alive_bytes -= b->length;
    object_drop(b->label);
}

static bool buffer_may(uint64_t length, uint64_t options)
{
    int storage = (int)(options >> 4 & 15);
    if (!length || length > the()->max_buffer)
        misuse("a length of %llu; maxBufferLength is %llu", (unsigned long long)length,
               (unsigned long long)the()->max_buffer);
    else if (storage > STORAGE_PRIVATE || options >> 8 > 2)
        misuse("options %#llx: no compute buffer is like that", (unsigned long long)options);
    else
        return !fault_now(FAULT_BUFFER) && counts()->alive_bytes + length <= the()->memory;
    return false;
}

static id buffer_make(uint64_t length, uint64_t options, void *no_copy)
{
    world_lock();
    if (!buffer_may(length, options)) return world_unlock(), NULL;
    id o = object_new("MTLBuffer");
    buffer *b = object_body(o);
    *b = (buffer){.length = length,
                  .mapped = pages(length),
                  .options = options,
                  .storage = (int)(options >> 4 & 15),
                  .untracked = (options >> 8 & 3) == 1,
                  .no_copy = no_copy != NULL};
    b->two_memories = b->storage == STORAGE_MANAGED && !the()->gpu->unified;
    if (no_copy) {
        b->host = b->gpu = no_copy;
    } else if (b->two_memories) {
        b->host = guarded(-1, b->mapped), b->gpu = guarded(-1, b->mapped);
    } else {
        int fd = memfd_create("metal", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)b->mapped)) abort();
        b->gpu = guarded(fd, b->mapped);
        b->host = b->storage == STORAGE_PRIVATE ? NULL : guarded(fd, b->mapped);
        close(fd);
    }
    if (!b->gpu) abort();
    for (int side = 0; side < (b->no_copy ? 0 : b->two_memories ? 2 : 1); side++) {
        uint8_t *at = side ? b->host : b->gpu;
        poison(at, length);
        memset(at + length, TAIL, b->mapped - length);
    }
    b->next = D.all;
    if (D.all) D.all->last = b;
    D.all = b;
    standin_counts *c = counts();
    c->buffers_made++, c->buffer_bytes += length, c->buffers_alive++, c->alive_bytes += length;
    world_unlock();
    return o;
}

static id device_new_buffer(id self, SEL cmd, uint64_t length, uint64_t options)
{
    (void)self, (void)cmd;
    return buffer_make(length, options, NULL);
}
static id device_new_buffer_bytes(id self, SEL cmd, const void *bytes, uint64_t length, uint64_t options)
{
    (void)self, (void)cmd;
    if (!bytes) return misuse("bytes are NULL"), NULL;
    if ((options >> 4 & 15) == STORAGE_PRIVATE) return misuse("a Private buffer cannot be filled from bytes"), NULL;
    id o = buffer_make(length, options, NULL);
    if (!o) return NULL;
    buffer *b = object_body(o);
    memcpy(b->gpu, bytes, length);
    memcpy(b->host, bytes, length);
    return o;
}
static id device_new_buffer_no_copy(id self, SEL cmd, void *bytes, uint64_t length, uint64_t options, void *deallocator)
{
    (void)self, (void)cmd;
    if (!bytes || (uintptr_t)bytes % MAC_PAGE || length % MAC_PAGE)
        return misuse("%p and %llu bytes are not whole pages of 16 KiB", bytes, (unsigned long long)length), NULL;
    if ((options >> 4 & 15) == STORAGE_PRIVATE) return misuse("Private memory is never the host's"), NULL;
    if (deallocator) return misuse("a deallocator: pass NULL and free the memory after the buffer"), NULL;
    return buffer_make(length, options, bytes);
}

static void *buffer_contents(id self, SEL cmd)
{
    (void)cmd;
    SELF(buffer, b);
    return b->host;
}
static uint64_t buffer_length(id self, SEL cmd)
{
    (void)cmd;
    SELF(buffer, b);
    return b->length;
}
static uint64_t buffer_address(id self, SEL cmd)
{
    (void)cmd;
    SELF(buffer, b);
    return (uint64_t)(uintptr_t)b->gpu;
}
static void buffer_did_modify(id self, SEL cmd, NSRange r)
{
    (void)cmd;
    SELF(buffer, b);
    if (b->storage != STORAGE_MANAGED)
        misuse("only a Managed buffer is told what has changed");
    else if (r.location > b->length || r.length > b->length - r.location)
        misuse("bytes %llu to %llu of %llu", (unsigned long long)r.location,
               (unsigned long long)(r.location + r.length), (unsigned long long)b->length);
    else if (b->two_memories)
        memcpy(b->gpu + r.location, b->host + r.location, r.length);
}
static uint64_t resource_storage(id self, SEL cmd)
{
    (void)cmd;
    return (uint64_t)((buffer *)object_body(self))->storage;
}
static uint64_t resource_options(id self, SEL cmd)
{
    (void)cmd;
    return ((buffer *)object_body(self))->options;
}
static uint64_t resource_cache_mode(id self, SEL cmd)
{
    (void)cmd;
    return ((buffer *)object_body(self))->options & 15;
}
static uint64_t resource_tracking(id self, SEL cmd)
{
    (void)cmd;
    return ((buffer *)object_body(self))->untracked ? 1 : 2;
}
static uint64_t resource_allocated(id self, SEL cmd)
{
    (void)cmd;
    return ((buffer *)object_body(self))->mapped;
}
static uint64_t resource_purgeable(id self, SEL cmd, uint64_t state)
{
    (void)self, (void)cmd;
    if (state < 1 || state > 4) misuse("a purgeable state of %llu", (unsigned long long)state);
    if (state > 2) misuse("volatile memory is not simulated: keep it non-volatile");
    return 2;
}
OBJECT_PROPERTY(buffer, label, resource_label, resource_set_label)

/* ---- the device ------------------------------------------------------------------------------------------------ */

EXPORT id MTLCreateSystemDefaultDevice(void)
{
    if (!*the()->gpu->name || fault_now(FAULT_DEVICE)) return NULL;
    return object_retain(D.device);
}
EXPORT id MTLCopyAllDevices(void)
{
    bool none = !*the()->gpu->name || fault_now(FAULT_DEVICE);
    return array_new(&D.device, none ? 0 : 1);
}

static id device_name(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return string_pooled(the()->gpu->name);
}
static uint64_t device_registry(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return 0x100000abc;
}
static id device_architecture(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return object_pooled("MTLArchitecture");
}
static id architecture_name(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return string_pooled(the()->gpu->architecture);
}
static BOOL device_unified(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return the()->gpu->unified;
}
static BOOL device_low_power(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return the()->gpu->low_power && !the()->gpu->apple;
}
static BOOL device_no(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return 0;
}
static uint64_t device_zero(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return 0;
}
static uint64_t device_working_set(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return the()->working_set;
}
static uint64_t device_allocated(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return counts()->alive_bytes;
}
static uint64_t device_max_buffer(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return the()->max_buffer;
}
static uint64_t device_group_memory(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return MAX_GROUP_MEMORY;
}
static MTLSize device_max_threads(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return (MTLSize){MAX_GROUP_THREADS, MAX_GROUP_THREADS, MAX_GROUP_THREADS};
}
static uint64_t device_argument_buffers(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return the()->gpu->apple >= 6;
}
static BOOL device_family(id self, SEL cmd, int64_t family)
{
    (void)self, (void)cmd;
    const gpu *g = the()->gpu;
    if (family >= MTLGPUFamilyApple1 && family <= MTLGPUFamilyApple10) return family < MTLGPUFamilyApple1 + g->apple;
    if (family == MTLGPUFamilyMac1 || family == MTLGPUFamilyMac2) return g->apple == 0 || g->apple >= 7;
    if (family >= MTLGPUFamilyCommon1 && family <= MTLGPUFamilyCommon3) return 1;
    if (family == MTLGPUFamilyMetal3) return the()->macos >= 1300 && (g->apple == 0 || g->apple >= 7);
    if (family == MTLGPUFamilyMetal4) return the()->macos >= 2600 && g->apple >= 7;
    return 0;
}

static void reset(void)
{
    memset(&D.grave, 0, sizeof D.grave);
    D.n_graves = 0;
    D.all = NULL;
    D.device = object_new("MTLDevice");
    object_hold(D.device);
    object_release(D.device);
    object_lend(D.device);
    watch_faults();
}

static const class_row classes[] = {
    {"MTLDevice", "", 0, NULL, -1},
    {"MTLArchitecture", "", 0, NULL, 1400},
    {"MTLBuffer", "MTLResource MTLAllocation", sizeof(buffer), buffer_end, -1},
};
static const method_row methods[] = {
    {"MTLDevice", "name", METHOD_OF(device_name)},
    {"MTLDevice", "registryID", METHOD_OF(device_registry)},
    {"MTLDevice", "architecture", METHOD_OF(device_architecture)},
    {"MTLArchitecture", "name", METHOD_OF(architecture_name)},
    {"MTLDevice", "hasUnifiedMemory", METHOD_OF(device_unified)},
    {"MTLDevice", "isLowPower", METHOD_OF(device_low_power)},
    {"MTLDevice", "isHeadless", METHOD_OF(device_no)},
    {"MTLDevice", "isRemovable", METHOD_OF(device_no)},
    {"MTLDevice", "location", METHOD_OF(device_zero)},
    {"MTLDevice", "maxTransferRate", METHOD_OF(device_zero)},
    {"MTLDevice", "recommendedMaxWorkingSetSize", METHOD_OF(device_working_set)},
    {"MTLDevice", "currentAllocatedSize", METHOD_OF(device_allocated)},
    {"MTLDevice", "maxBufferLength", METHOD_OF(device_max_buffer)},
    {"MTLDevice", "maxThreadgroupMemoryLength", METHOD_OF(device_group_memory)},
    {"MTLDevice", "maxThreadsPerThreadgroup", METHOD_OF(device_max_threads)},
    {"MTLDevice", "argumentBuffersSupport", METHOD_OF(device_argument_buffers)},
    {"MTLDevice", "supportsFamily:", METHOD_OF(device_family)},
    {"MTLDevice", "newBufferWithLength:options:", METHOD_OF(device_new_buffer)},
    {"MTLDevice", "newBufferWithBytes:length:options:", METHOD_OF(device_new_buffer_bytes)},
    {"MTLDevice", "newBufferWithBytesNoCopy:length:options:deallocator:", METHOD_OF(device_new_buffer_no_copy)},
    {"MTLBuffer", "contents", METHOD_OF(buffer_contents)},
    {"MTLBuffer", "length", METHOD_OF(buffer_length)},
    {"MTLBuffer", "gpuAddress", METHOD_OF(buffer_address)},
    {"MTLBuffer", "didModifyRange:", METHOD_OF(buffer_did_modify)},
    {"MTLResource", "device", METHOD_OF(device_of)},
    {"MTLResource", "storageMode", METHOD_OF(resource_storage)},
    {"MTLResource", "resourceOptions", METHOD_OF(resource_options)},
    {"MTLResource", "cpuCacheMode", METHOD_OF(resource_cache_mode)},
    {"MTLResource", "hazardTrackingMode", METHOD_OF(resource_tracking)},
    {"MTLResource", "allocatedSize", METHOD_OF(resource_allocated)},
    {"MTLResource", "setPurgeableState:", METHOD_OF(resource_purgeable)},
    {"MTLResource", "label", METHOD_OF(resource_label)},
    {"MTLResource", "setLabel:", METHOD_OF(resource_set_label)},
};
const module device_module = {classes, COUNT(classes), methods, COUNT(methods), reset};
