/* null.c: devices that plan and render but never run: `anneal plan device=null:metal` and most tests need no hardware.
 *
 * Also the skeleton of a backend: copy this file into a folder of its own, replace "null", fill the functions in, and add
 * a row to device.c.
 */
#include "device/device.h"
#include "device/apple_roofline.h"
#include "codegen/gpu_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct an_device {
    an_target target;
};

struct an_exec {
    const an_plan *plan;
};

/* The scratch of a GPU's templates, so that the cost report is that of the device. The CPU's depends on its threads, and is
 * 0 here. */
static size_t scratch_of(const an_target *t, const an_kernel *k)
{
    return strcmp(t->dialect, "c") ? an_gpu_scratch(k, NULL) : 0;
}

static int null_probe(an_device_info *out)
{
    snprintf(out->name, sizeof out->name, "null");
    snprintf(out->reason, sizeof out->reason, "plans and renders, does not run");
    out->built = out->available = true;
    return 1;
}

static an_status open_as(an_err *err, const char *dialect, int max_args, an_device **out)
{
    an_device *d = calloc(1, sizeof *d);
    if (!d) return an_fail_nomem(err, "the null device", sizeof *d);
    d->target = (an_target){.dialect = dialect,
                            .threads = 1,
                            .max_args = max_args,
                            .row_update = strcmp(dialect, "msl") != 0,
                            .scratch = scratch_of,
                            .side_by_side = strcmp(dialect, "cuda") == 0,
                            .bind_align = strcmp(dialect, "msl") ? 0 : 4};
    *out = d;
    return AN_OK;
}

static an_status open_c(an_err *err, const an_device_options *o, an_device **out)
{
    return (void)o, open_as(err, "c", AN_LOOP_ARGS, out);
}
static an_status open_cuda(an_err *err, const an_device_options *o, an_device **out)
{
    return (void)o, open_as(err, "cuda", AN_LOOP_ARGS, out);
}
static an_status open_metal(an_err *err, const an_device_options *o, an_device **out)
{
    AN_TRY(open_as(err, "msl", AN_MSL_BUFFERS, out));
    (*out)->target.fallback = o->fallback;
    (*out)->target.cpu_steps = true;
    (*out)->target.input_blocks = 2; /* as on the device: they count in the cost report */
    return AN_OK;
}

static void null_close(an_device *d)
{
    free(d);
}
static const an_target *null_target(an_device *d)
{
    return &d->target;
}

static an_status never(an_err *err)
{
    return an_fail(
        err, AN_E_UNSUPPORTED,
        "null: this device does not run: `anneal plan` (in C an_plan) says what it knows; choose another device to run "
        "on, such as cpu");
}

static an_status null_alloc(an_err *err, an_device *d, size_t bytes, an_buffer *out)
{
    return (void)d, (void)bytes, (void)out, never(err);
}
static void null_free(an_device *d, an_buffer *b)
{
    (void)d, (void)b;
}
static an_status null_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n)
{
    return (void)d, (void)dst, (void)at, (void)src, (void)n, never(err);
}
static an_status null_read(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n)
{
    return (void)d, (void)src, (void)at, (void)dst, (void)n, never(err);
}
static an_status null_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    return (void)d, (void)p, (void)out, (void)stats, never(err);
}
static void null_unload(an_device *d, an_exec *e)
{
    (void)d, free(e);
}
static an_status null_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out)
{
    return (void)d, (void)e, (void)slots, (void)n_slots, (void)out, never(err);
}
static an_status null_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns)
{
    return (void)d, (void)t, (void)timeout_ns, never(err);
}
static double null_step_seconds(an_device *d, an_exec *e, int step)
{
    return (void)d, (void)e, (void)step, 0;
}

#define NULL_FUNCTIONS                                                                                                 \
    .plans_only = true, .probe = null_probe, .close = null_close, .target = null_target, .alloc = null_alloc,          \
    .free = null_free, .write = null_write, .read = null_read, .load = null_load, .unload = null_unload,               \
    .submit = null_submit, .wait = null_wait, .step_seconds = null_step_seconds

const an_backend an_backend_null_cpu = {.name = "null:cpu", .open = open_c, NULL_FUNCTIONS};
const an_backend an_backend_null_cuda = {.name = "null:cuda", .open = open_cuda, NULL_FUNCTIONS};
const an_backend an_backend_null_metal = {.name = "null:metal",
                                          .aliases = {"null:mps"},
                                          .open = open_metal,
                                          .estimate = an_apple_roofline_text,
                                          NULL_FUNCTIONS};
