/* ref_device.c: the backend "ref", the oracle as a device: host memory for parameters, moments and states.
 *
 * Does not: run plans. A context on this device evaluates graph nodes with the oracle (runtime/oracle_eval.c) instead of
 * planning, so load and submit are never reached.
 */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct an_device {
    an_target target;
};

static int ref_probe(an_device_info *out)
{
    snprintf(out->name, sizeof out->name, "ref");
    snprintf(out->reason, sizeof out->reason, "the oracle: node by node in double precision, one thread, for tests");
    out->built = out->available = true;
    return 1;
}

static an_status ref_open(an_err *err, const an_device_options *o, an_device **out)
{
    (void)o;
    an_device *d = calloc(1, sizeof *d);
    if (!d) return an_fail_nomem(err, "the ref device", sizeof *d);
    d->target = (an_target){.dialect = "c", .threads = 1, .max_args = AN_LOOP_ARGS};
    *out = d;
    return AN_OK;
}

static void ref_close(an_device *d)
{
    free(d);
}
static const an_target *ref_target(an_device *d)
{
    return &d->target;
}

static an_status ref_alloc(an_err *err, an_device *d, size_t bytes, an_buffer *out)
{
    (void)d;
    void *p = calloc(1, AN_MAX(bytes, 8));
    if (!p) return an_fail_nomem(err, "the ref device", bytes);
    *out = (an_buffer){.host = p, .bytes = bytes};
    return AN_OK;
}

static void ref_free(an_device *d, an_buffer *b)
{
    (void)d;
    free(b->host);
    *b = (an_buffer){0};
}

static bool inside(const an_buffer *b, size_t at, size_t n)
{
    return at <= b->bytes && n <= b->bytes - at;
}

static an_status ref_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n)
{
    (void)d;
    if (!inside(dst, at, n))
        return an_fail(err, AN_E_INTERNAL, "ref: write of %zu bytes at %zu into a buffer of %zu", n, at, dst->bytes);
    if (n) memcpy((char *)dst->host + at, src, n);
    return AN_OK;
}

static an_status ref_read(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n)
{
    (void)d;
    if (!inside(src, at, n))
        return an_fail(err, AN_E_INTERNAL, "ref: read of %zu bytes at %zu from a buffer of %zu", n, at, src->bytes);
    if (n) memcpy(dst, (const char *)src->host + at, n);
    return AN_OK;
}

static an_status never(an_err *err)
{
    return an_fail(err, AN_E_INTERNAL, "ref: a plan reached the oracle, which evaluates nodes");
}
static an_status ref_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    return (void)d, (void)p, (void)out, (void)stats, never(err);
}
static void ref_unload(an_device *d, an_exec *e)
{
    (void)d, (void)e;
}
static an_status ref_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out)
{
    return (void)d, (void)e, (void)slots, (void)n_slots, (void)out, never(err);
}
static an_status ref_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns)
{
    return (void)d, (void)t, (void)timeout_ns, never(err);
}
static double ref_step_seconds(an_device *d, an_exec *e, int step)
{
    return (void)d, (void)e, (void)step, 0;
}

const an_backend an_backend_ref = {.name = "ref",
                                   .evaluates_nodes = true,
                                   .probe = ref_probe,
                                   .open = ref_open,
                                   .close = ref_close,
                                   .target = ref_target,
                                   .alloc = ref_alloc,
                                   .free = ref_free,
                                   .write = ref_write,
                                   .read = ref_read,
                                   .load = ref_load,
                                   .unload = ref_unload,
                                   .submit = ref_submit,
                                   .wait = ref_wait,
                                   .step_seconds = ref_step_seconds};
