/* metal.c: the Apple GPU (MPS) as a device: choosing it, what it can do, its memory. Running is in metal_run.c.
 *
 * Invariants: every entry point that sends messages pushes an autorelease pool and pops it on every return. Buffers are in
 *             shared storage: the host reads and writes them in place, after the work that uses them has ended. */
#include "device/metal/metal_internal.h"
#include "device/apple_roofline.h"

#include "platform/platform.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- which device */

static void read_facts(an_id device, an_mtl_facts *f)
{
    *f = (an_mtl_facts){.working_set = an_send0(device_working_set, device),
                        .max_buffer = an_send0(device_max_buffer, device)};
    snprintf(f->name, sizeof f->name, "%s", an_utf8(an_send0(device_name, device)));
    for (int family = AN_MTLGPUFamilyApple1; family <= AN_MTLGPUFamilyApple10; family++)
        if (an_send(device_supports, device, family)) f->family = family;
}

/* Why this GPU cannot train; NULL: it can. docs/metal.md has the table. */
static const char *refusal(an_id device, const an_mtl_facts *f)
{
    if (!an_send0(device_unified, device))
        return "the GPU has memory of its own (an AMD card or an external one), and SIMD groups of 64 lanes; train "
               "with "
               "device=cpu, or on a Mac with an M1 or newer";
    if (!f->family)
        return "the GPU is Intel's, whose SIMD groups have 8 to 32 lanes; train with device=cpu, or on a Mac with an "
               "M1 or "
               "newer";
    if (f->family < AN_MTLGPUFamilyApple5) return "the GPU is older than Apple5; train with device=cpu";
    return NULL;
}

static int metal_probe(an_device_info *out)
{
    an_err err = {0};
    an_mtl_facts f;
    char memory[24];
    *out = (an_device_info){.name = "metal", .built = true};
    if (an_objc_load(&err) != AN_OK) {
        snprintf(out->reason, sizeof out->reason, "%.255s", err.text);
        return 0;
    }
    void *pool = an_mtl.pool_push();
    an_id device = an_mtl.create_device();
    if (!device) {
        snprintf(out->reason, sizeof out->reason, "macOS gives no Metal device (a virtual machine without a GPU?)");
    } else {
        read_facts(device, &f);
        const char *why = refusal(device, &f);
        if (why)
            snprintf(out->reason, sizeof out->reason, "%s: %s", f.name, why);
        else
            snprintf(out->reason, sizeof out->reason, "%s, Apple%d%s, macOS %d.%d, %s for the GPU", f.name,
                     f.family - 1000, f.family < AN_MTLGPUFamilyApple7 ? " (no matrix instructions)" : "",
                     an_mtl.macos / 100, an_mtl.macos % 100, an_bytes_text((double)f.working_set, memory));
        out->available = !why;
    }
    an_release(device);
    an_mtl.pool_pop(pool);
    return out->available;
}

static size_t scratch_of(const an_target *t, const an_kernel *k)
{
    (void)t;
    return an_gpu_scratch(k, NULL);
}

static void metal_close(an_device *d)
{
    if (!d) return;
    void *pool = an_mtl.pool_push();
    an_mtl_run_free(d);
    for (int i = 0; i < AN_N_BUILTIN; i++) an_release(d->builtin[i]);
    an_release(d->protocol);
    an_release(d->queue);
    an_release(d->device);
    an_mtl.pool_pop(pool);
    if (d->cpu) d->cpu_backend->close(d->cpu);
    free(d);
}

/* Seconds in an environment variable; unset or empty: `normal`. */
static an_status read_seconds(an_err *err, const char *variable, double normal, double *out)
{
    const char *text = getenv(variable);
    char *end = NULL;
    *out = normal;
    if (!text || !*text) return AN_OK;
    *out = strtod(text, &end);
    if (!*end && *out > 0 && *out < 1e9) return AN_OK;
    return an_fail(err, AN_E_USAGE, "metal: %s is %.40s; it is seconds, more than 0 (%g when not set)", variable, text,
                   normal);
}

static an_status open_device(an_err *err, an_device *d)
{
    AN_TRY(read_seconds(err, "ANNEAL_METAL_TIMEOUT", 60, &d->hang_s));
    AN_TRY(read_seconds(err, "ANNEAL_METAL_RETRY", 300, &d->retry_s));
    if (!(d->device = an_mtl.create_device()))
        return an_fail(err, AN_E_ENV, "metal: macOS gives no device; `anneal doctor` says more, device=cpu works here");
    read_facts(d->device, &d->facts);
    const char *why = refusal(d->device, &d->facts);
    if (why) return an_fail(err, AN_E_ENV, "metal: %s: %s", d->facts.name, why);
    if (!(d->queue = an_send(device_new_queue, d->device, AN_QUEUE_BUFFERS)))
        return an_fail(err, AN_E_DEVICE, "metal: %s gives no command queue", d->facts.name);
    d->gpu = (an_gpu){.dialect = &an_dialects[AN_DIALECT_MSL],
                      .version = an_mtl.macos >= 1400 ? 310 : 300,
                      .plain = d->facts.family < AN_MTLGPUFamilyApple7};
    AN_TRY(an_mtl_gemm_bodies(err, d));
    d->target = (an_target){.dialect = "msl",
                            .threads = 1,
                            .max_args = AN_MSL_BUFFERS,
                            .bind_align = 4,
                            .segment_bytes = (int64_t)(d->facts.max_buffer & ~(uint64_t)0x3fff), /* whole pages */
                            .fallback = d->options.fallback,
                            .cpu_steps = true,
                            .scratch = scratch_of,
                            .in_flight = AN_STEPS_IN_FLIGHT,
                            .input_blocks = AN_STEPS_IN_FLIGHT};
    if (!(d->protocol = an_mtl_buffer(err, d, sizeof *d->counters * AN_N_COUNTERS, "the commit protocol")))
        return err->code;
    d->counters = an_send0(buffer_contents, d->protocol);
    AN_TRY(an_mtl_builtin_make(err, d));
    if (d->gpu.plain) d->gpu.no_shuffles = !an_mtl_shuffles_work(d);
    return AN_OK;
}

static an_status metal_open(an_err *err, const an_device_options *o, an_device **out)
{
    AN_TRY(an_objc_load(err));
    an_device *d = calloc(1, sizeof *d);
    if (!d) return an_fail_nomem(err, "the metal device", sizeof *d);
    d->options = *o;
    void *pool = an_mtl.pool_push();
    an_status status = open_device(err, d);
    an_mtl.pool_pop(pool);
    if (status != AN_OK) {
        metal_close(d);
        return status;
    }
    *out = d;
    return AN_OK;
}

static const an_target *metal_target(an_device *d)
{
    return &d->target;
}

/* ---------------------------------------------------------------------------------------------- memory */

/* Beyond the recommended working set macOS pages GPU memory in and out: the machine stalls long before it fails. */
static an_status admit(an_err *err, const an_device *d, size_t bytes, const char *what)
{
    char want[24], have[24];
    if (bytes <= d->facts.working_set && d->allocated <= d->facts.working_set - bytes) return AN_OK;
    return an_fail(err, AN_E_NOMEM,
                   "metal: %s needs %s more, and of the %s that macOS recommends for the GPU too little is left; use a "
                   "smaller batch or recompute=on",
                   what, an_bytes_text((double)bytes, want), an_bytes_text((double)d->facts.working_set, have));
}

static an_status no_memory(an_err *err, size_t bytes, const char *what)
{
    char want[24];
    return an_fail(err, AN_E_NOMEM, "metal: no memory for %s: %s; close other programs or use a smaller batch", what,
                   an_bytes_text((double)bytes, want));
}

an_id an_mtl_buffer(an_err *err, an_device *d, size_t bytes, const char *what)
{
    if (admit(err, d, bytes, what) != AN_OK) return NULL;
    an_id buffer = an_send(device_new_buffer, d->device, bytes, AN_MTLResourceStorageModeShared);
    void *contents = buffer ? an_send0(buffer_contents, buffer) : NULL;
    if (!contents) {
        an_release(buffer);
        no_memory(err, bytes, what);
        return NULL;
    }
    memset(contents, 0, bytes);
    d->allocated += bytes;
    return buffer;
}

/* Bytes to allocate for a segmented buffer: Metal wants whole pages of 16 KiB, aligned to them; a large allocation is. */
static size_t segmented_bytes(size_t bytes)
{
    enum { PAGE = 1 << 14, LEAST = 1 << 22 };
    return (size_t)an_round_up((int64_t)AN_MAX(bytes, LEAST), PAGE);
}

static void free_segments(an_buffer *b)
{
    an_mtl_segments *p = b->parts;
    for (int i = 0; i < p->n; i++) an_release(p->segment[i]);
    an_pages_free(b->host, segmented_bytes(b->bytes));
    free(p);
}

static an_status alloc_segments(an_err *err, an_device *d, size_t bytes, an_buffer *out)
{
    const size_t each = (size_t)d->target.segment_bytes, all = segmented_bytes(bytes);
    const int n = (int)an_ceil_div((int64_t)bytes, (int64_t)each);
    AN_TRY(admit(err, d, bytes, "a plan"));
    an_mtl_segments *p = calloc(1, sizeof *p + sizeof p->segment[0] * (size_t)n);
    an_buffer b = {.host = p ? an_pages_alloc(all) : NULL, .bytes = bytes, .parts = p};
    if (!b.host) {
        free(p);
        return no_memory(err, bytes, "a plan");
    }
    p->bytes = each;
    for (int i = 0; i < n; i++) {
        char *from = (char *)b.host + each * (size_t)i;
        p->segment[i] = an_send(device_new_buffer_over, d->device, from, AN_MIN(each, all - each * (size_t)i),
                                AN_MTLResourceStorageModeShared, NULL);
        if (!p->segment[i]) {
            free_segments(&b);
            return no_memory(err, bytes, "a plan");
        }
        p->n++;
    }
    b.handle = (uint64_t)(uintptr_t)p->segment[0];
    d->allocated += bytes;
    *out = b;
    return AN_OK;
}

static an_status metal_alloc(an_err *err, an_device *d, size_t bytes, an_buffer *out)
{
    an_status status = AN_OK;
    void *pool = an_mtl.pool_push();
    if (bytes > d->facts.max_buffer) {
        status = alloc_segments(err, d, bytes, out);
    } else {
        an_id buffer = an_mtl_buffer(err, d, AN_MAX(bytes, 16), "a plan");
        if (buffer)
            *out = (an_buffer){
                .host = an_send0(buffer_contents, buffer), .handle = (uint64_t)(uintptr_t)buffer, .bytes = bytes};
        else
            status = AN_E_NOMEM;
    }
    an_mtl.pool_pop(pool);
    return status;
}

static void metal_free(an_device *d, an_buffer *b)
{
    if (!b->handle) return;
    void *pool = an_mtl.pool_push();
    if (b->parts)
        free_segments(b);
    else
        an_release((an_id)(uintptr_t)b->handle);
    an_mtl.pool_pop(pool);
    d->allocated -= AN_MAX(b->bytes, 16);
    *b = (an_buffer){0};
}

/* Bytes of an MTLBuffer of another program in this process, which is retained meanwhile. Its memory must be one that the CPU reaches, as all
 * buffers here: reads, and steps that run on the CPU, are in place. */
static an_status borrow(an_err *err, an_device *d, an_id buffer, uint64_t offset, size_t bytes, an_buffer *out)
{
    if (an_send0(buffer_device, buffer) != d->device)
        return an_fail(err, AN_E_USAGE, "metal: the MTLBuffer is of another device than %s", d->facts.name);
    const uint64_t length = an_send0(buffer_length, buffer);
    if (offset > length || bytes > length - offset)
        return an_fail(err, AN_E_USAGE, "metal: bytes %llu to %llu of an MTLBuffer of %llu", (unsigned long long)offset,
                       (unsigned long long)offset + bytes, (unsigned long long)length);
    char *contents = an_send0(buffer_contents, buffer);
    if (!contents)
        return an_fail(err, AN_E_USAGE,
                       "metal: the MTLBuffer is in private storage, which the CPU does not reach: make "
                       "it with MTLResourceStorageModeShared");
    *out = (an_buffer){
        .host = contents + offset, .handle = (uint64_t)(uintptr_t)an_mtl.retain(buffer), .bytes = bytes, .at = offset};
    return AN_OK;
}

static an_status metal_borrow(an_err *err, an_device *d, void *memory, uint64_t offset, size_t bytes, an_buffer *out)
{
    void *pool = an_mtl.pool_push();
    const an_status status = borrow(err, d, memory, offset, bytes, out);
    an_mtl.pool_pop(pool);
    return status;
}

static void metal_give_back(an_device *d, an_buffer *b)
{
    (void)d;
    void *pool = an_mtl.pool_push();
    an_release((an_id)(uintptr_t)b->handle);
    an_mtl.pool_pop(pool);
}

static an_status wait_idle(an_err *err, an_device *d)
{
    return an_mtl_wait(err, d, d->tickets, INT64_MAX);
}

static an_status metal_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n)
{
    if (at > dst->bytes || n > dst->bytes - at)
        return an_fail(err, AN_E_INTERNAL, "metal: write of %zu bytes at %zu into a buffer of %zu", n, at, dst->bytes);
    AN_TRY(wait_idle(err, d));
    memcpy((char *)dst->host + at, src, n);
    return AN_OK;
}

static an_status metal_read(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n)
{
    if (at > src->bytes || n > src->bytes - at)
        return an_fail(err, AN_E_INTERNAL, "metal: read of %zu bytes at %zu from a buffer of %zu", n, at, src->bytes);
    AN_TRY(wait_idle(err, d));
    memcpy(dst, (const char *)src->host + at, n);
    return AN_OK;
}

/* The GPU memory that macOS counts for this process, pipelines included, and the limit that it recommends. */
static void metal_memory(an_device *d, uint64_t *driver, uint64_t *recommended)
{
    void *pool = an_mtl.pool_push();
    *driver = an_send0(device_allocated, d->device);
    *recommended = d->facts.working_set;
    an_mtl.pool_pop(pool);
}

static double metal_busy_seconds(an_device *d)
{
    return d->busy_s;
}

static double metal_step_seconds(an_device *d, an_exec *e, int step)
{
    (void)d;
    return e->seconds[step];
}

static void metal_profile(an_device *d, bool on)
{
    d->profile = on;
}

const an_backend an_backend_metal = {.name = "metal",
                                     .aliases = {"mps", "mps:0"},
                                     .planned_by = "null:metal",
                                     .auto_rank = 2,
                                     .gpu = true,
                                     .probe = metal_probe,
                                     .open = metal_open,
                                     .close = metal_close,
                                     .target = metal_target,
                                     .alloc = metal_alloc,
                                     .free = metal_free,
                                     .write = metal_write,
                                     .read = metal_read,
                                     .borrows = AN_BORROWS_OBJECT,
                                     .borrow_align = 16,
                                     .borrow = metal_borrow,
                                     .give_back = metal_give_back,
                                     .load = an_mtl_load,
                                     .unload = an_mtl_unload,
                                     .submit = an_mtl_submit,
                                     .wait = an_mtl_wait,
                                     .done = an_mtl_done,
                                     .step_seconds = metal_step_seconds,
                                     .profile = metal_profile,
                                     .memory = metal_memory,
                                     .busy_seconds = metal_busy_seconds,
                                     .self_check = an_mtl_self_check,
                                     .gemm_body = an_mtl_gemm_body,
                                     .gemm_use = an_mtl_gemm_use,
                                     .gemm_keep = an_mtl_gemm_keep,
                                     .power_state = an_objc_mac_state,
                                     .awake_begin = an_objc_awake_begin,
                                     .awake_end = an_objc_awake_end,
                                     .estimate = an_apple_roofline_text};
