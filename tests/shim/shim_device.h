/* shim_device.h: a device that runs plans as MSL on the CPU shim, so that whatever a context can do (evaluate, train,
 * read) can be done with it. It takes the place of null:metal in a context that a test has opened.
 *
 *     an_ctx *cx = shim_context(&(an_options){.seed = 1}, MSL_300);
 *
 * Invariant: the arena is poison when a step begins: what a step reads, it has written, or it is in another slot. */
#ifndef AN_SHIM_DEVICE_H
#define AN_SHIM_DEVICE_H

#include "runtime/context.h"
#include "plan_run.h"
#include "shim_build.h"

#define MSL_300 ((an_gpu){.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300})

struct an_device { /* this test program's own: backends do not share theirs */
    an_target target;
    plan_text *texts;
    an_gpu gpu;
    uint64_t runs;
    long launches;
    const char *from, *to; /* see plan_run.h */
    int mistakes;
};

struct an_exec {
    plan_run run;
};

static size_t shim_scratch(const an_target *t, const an_kernel *k)
{
    return (void)t, an_gpu_scratch(k, NULL);
}
static int shim_probe(an_device_info *out)
{
    *out = (an_device_info){.built = true, .available = true, .name = "shim"};
    return 1;
}
static an_status shim_no_open(an_err *err, const an_device_options *o, an_device **out)
{
    return (void)o, (void)out, an_fail(err, AN_E_USAGE, "the shim is opened by shim_context");
}
static void shim_device_close(an_device *d)
{
    plan_texts_free(&d->texts);
    free(d);
}
static const an_target *shim_target(an_device *d)
{
    return &d->target;
}
static an_status shim_alloc(an_err *err, an_device *d, size_t bytes, an_buffer *out)
{
    void *p = aligned_alloc(256, (bytes + 511) & ~(size_t)255);
    (void)d;
    if (!p) return an_fail_nomem(err, "the shim", bytes);
    memset(p, 0, bytes);
    *out = (an_buffer){.host = p, .bytes = bytes};
    return AN_OK;
}
static void shim_free(an_device *d, an_buffer *b)
{
    (void)d;
    free(b->host);
    *b = (an_buffer){0};
}
static an_status shim_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n)
{
    return (void)err, (void)d, memcpy((char *)dst->host + at, src, n), AN_OK;
}
static an_status shim_read(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n)
{
    return (void)err, (void)d, memcpy(dst, (const char *)src->host + at, n), AN_OK;
}
static an_status shim_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    an_exec *e = calloc(1, sizeof *e);
    if (!e) return an_fail_nomem(err, "the shim", sizeof *e);
    *stats = (an_load_stats){0};
    e->run.from = d->from, e->run.to = d->to;
    if (plan_run_open(&e->run, p, d->gpu, test_folder(), &d->texts)) {
        an_fail(err, AN_E_UNSUPPORTED, "shim: %.900s", e->run.why);
        free(e);
        return AN_E_UNSUPPORTED;
    }
    d->mistakes += e->run.mistakes;
    *out = e;
    return AN_OK;
}
static void shim_exec_free(an_device *d, an_exec *e)
{
    (void)d;
    plan_run_close(&e->run);
    free(e);
}
static an_status shim_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out)
{
    void **base = calloc((size_t)n_slots + 1, sizeof *base);
    if (!base) return an_fail_nomem(err, "the shim", 0);
    for (int i = 0; i < n_slots; i++) base[i] = slots[i].host;
    for (size_t i = 0; i < slots[AN_SLOT_ARENA].bytes / 4; i++) ((uint32_t *)base[AN_SLOT_ARENA])[i] = 0x7fc0dead;
    int failed = plan_run_all(&e->run, base, ++d->runs);
    d->launches += e->run.launches;
    free(base);
    *out = d->runs;
    return failed ? an_fail(err, AN_E_INTERNAL, "shim: %.900s", e->run.why) : AN_OK;
}
static an_status shim_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns)
{
    return (void)err, (void)d, (void)t, (void)timeout_ns, AN_OK;
}
static double shim_step_seconds(an_device *d, an_exec *e, int step)
{
    return (void)d, (void)e, (void)step, 0;
}

static const an_backend shim_backend = {.name = "shim",
                                        .probe = shim_probe,
                                        .open = shim_no_open,
                                        .close = shim_device_close,
                                        .target = shim_target,
                                        .alloc = shim_alloc,
                                        .free = shim_free,
                                        .write = shim_write,
                                        .read = shim_read,
                                        .load = shim_load,
                                        .unload = shim_exec_free,
                                        .submit = shim_submit,
                                        .wait = shim_wait,
                                        .step_seconds = shim_step_seconds};

/* A context whose device is the shim, taken for the GPU that `gpu` says. Skips the test where MSL cannot be run. */
static inline an_ctx *shim_context(const an_options *options, an_gpu gpu)
{
    an_options o = *options;
    shim_need();
    o.device = "null:metal";
    an_ctx *cx = an_open(&o);
    an_device *d = calloc(1, sizeof *d);
    assert_true(cx && d && !an_error(cx));
    cx->backend->close(cx->device);
    d->target =
        (an_target){.dialect = "msl", .threads = 1, .max_args = 31, .row_update = true, .scratch = shim_scratch};
    d->gpu = gpu;
    cx->backend = &shim_backend;
    cx->device = d;
    return cx;
}

#endif
