/* selftest_parts.c: the parts of a selftest in order: driver, kernels, speeds, training compared with the CPU's. */
#include "tools/selftest.h"
#include "tools/bench_op.h"
#include "train/session.h"
#include "train/step.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct tester {
    const an_train_config *c;
    const an_selftest_listener *l;
    an_selftest_result *out;
    int64_t done, all; /* launches of this part */
} tester;

static void progress(const tester *t, const char *unit, int64_t done, int64_t all)
{
    if (t->l->progress) t->l->progress(t->l->user, unit, done, all);
}

__attribute__((format(printf, 4, 5))) static void line(tester *t, bool fault, const char *what, const char *format, ...)
{
    char found[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found, sizeof found, format, arguments);
    va_end(arguments);
    t->out->faults += fault;
    t->l->line(t->l->user, what, found, fault);
}

/* Records the error of a part that could not run to its end. */
static void ended(tester *t, const char *what, an_status status, const an_err *err)
{
    if (status == AN_OK) return;
    if (t->out->failed.code == AN_OK) t->out->failed = *err;
    line(t, true, what, "%s", err->text);
}

/* ---- driver and kernels */

static void hear_driver(void *user, const char *what, const char *found, bool fault)
{
    line(user, fault, what, "%s", found);
}

static void hear_kernel(void *user, const an_kernel_check *k)
{
    tester *t = user;
    t->l->kernel(t->l->user, k);
    progress(t, "launches", t->done += k->launches, t->all);
}

static void hear_refused(void *user, const an_kernel_check *k)
{
    tester *t = user;
    if (k->fault[0]) t->l->kernel(t->l->user, k);
    progress(t, "launches", t->done += k->launches, t->all);
}

static void kernels(tester *t, an_dtype dtype, bool compile_only)
{
    an_err err = {0};
    an_check_result r;
    char title[80];
    an_train_config c = *t->c;
    c.dtype = dtype;
    snprintf(title, sizeof title, compile_only ? "kernels compiled one by one, %s" : "kernels against the oracle, %s",
             an_dtype_text(dtype));
    t->l->part(t->l->user, title);
    t->done = 0;
    ended(t, title,
          an_selftest_kernels(&err, &c, compile_only, compile_only ? hear_refused : hear_kernel, t, &t->all, &r), &err);
    t->out->faults += r.faults;
    if (compile_only) {
        line(t, false, "compiled", "%d kernels, %d refused", r.kernels, r.faults);
        return;
    }
    t->out->kernels.kernels += r.kernels;
    t->out->kernels.faults += r.faults;
    t->out->kernels.skipped += r.skipped;
    t->out->kernels.elements += r.elements;
}

/* ---- speeds */

static void time_one(tester *t, const char *what, const an_bench_op *op)
{
    an_err err = {0};
    an_bench_op_result r;
    const an_status status = an_bench_run_op(&err, t->c, op, &r);
    ended(t, what, status, &err);
    if (status == AN_OK)
        line(t, false, what, "%.3f ms, fastest %.3f; %.1f GFLOP/s, %.2f GB/s; the first took %.0f ms", r.ms, r.min_ms,
             r.gflops, r.gbytes, 1e3 * r.first_s);
}

static void times(tester *t, int64_t n)
{
    enum { ITERATIONS = 20 };
    char what[80];
    t->l->part(t->l->user, "speeds");
    for (int i = 0; i < 2; i++) {
        const an_dtype dtype = i ? AN_BF16 : AN_F32;
        snprintf(what, sizeof what, "matmul %lldx%lld %s", (long long)n, (long long)n, an_dtype_text(dtype));
        time_one(t, what, &(an_bench_op){.kind = AN_BENCH_MATMUL, .dtype = dtype, .n = n, .iters = ITERATIONS});
        progress(t, "speeds", 2 * i + 1, 5);
        snprintf(what, sizeof what, "attention %lld tokens %s", (long long)n, an_dtype_text(dtype));
        time_one(t, what, &(an_bench_op){.kind = AN_BENCH_ATTENTION, .dtype = dtype, .n = n, .iters = ITERATIONS});
        progress(t, "speeds", 2 * i + 2, 5);
    }
    const int64_t mib = AN_MAX(1, n / 8);
    snprintf(what, sizeof what, "copy %lld MiB", (long long)mib);
    time_one(t, what, &(an_bench_op){.kind = AN_BENCH_COPY, .dtype = AN_F32, .n = mib, .iters = ITERATIONS});
}

/* ---- training compared with the CPU's */

typedef struct trace {        /* of one device */
    double *ms, *loss, *norm; /* [steps + 1]; one allocation */
    uint64_t hash;            /* of parameters and moments at the end */
    an_bill bill;
} trace;

static an_status open_trace(an_err *err, int64_t steps, trace *out)
{
    out->ms = calloc((size_t)steps + 1, 3 * sizeof *out->ms);
    if (!out->ms) return an_fail_nomem(err, "the losses", (size_t)steps * 3 * sizeof *out->ms);
    out->loss = out->ms + steps + 1;
    out->norm = out->loss + steps + 1;
    return AN_OK;
}

static an_status hash_state(an_err *err, const an_session *r, uint64_t *out)
{
    XXH3_state_t *state = XXH3_createState();
    an_status status = state && XXH3_64bits_reset(state) == XXH_OK ? AN_OK : an_fail_nomem(err, "a hash", 0);
    for (int i = 0; status == AN_OK && i < an_persist_count(r->cx); i++) {
        an_persist p;
        status = an_session_result(err, r->cx, an_persist_get(r->cx, i, &p));
        if (status != AN_OK) break;
        size_t bytes = an_dtype_size(p.dtype);
        for (int k = 0; k < p.shape.rank; k++) bytes *= (size_t)p.shape.dim[k];
        void *x = malloc(bytes);
        if (!x) status = an_fail_nomem(err, p.name, bytes);
        if (x) status = an_session_result(err, r->cx, an_persist_read(r->cx, i, x, bytes));
        if (status == AN_OK) XXH3_64bits_update(state, x, bytes);
        free(x);
    }
    *out = status == AN_OK ? XXH3_64bits_digest(state) : 0;
    XXH3_freeState(state);
    return status;
}

/* ---- the time of each launch of one more step */

static int slower(const void *a, const void *b)
{
    const double x = ((const an_launch *)a)->device_s, y = ((const an_launch *)b)->device_s;
    return (x < y) - (x > y);
}

static void report_launches(tester *t, an_ctx *cx)
{
    enum { SHOWN = 30 };
    const int n = an_launch_count(cx);
    an_launch *l = calloc((size_t)n + 1, sizeof *l);
    double sum = 0;
    for (int i = 0; l && i < n; i++)
        if (an_launch_get(cx, i, &l[i])) sum += l[i].device_s;
    if (l) qsort(l, (size_t)n, sizeof *l, slower);
    line(t, false, "device time of an update", "%.2f ms in %d launches, timed one by one; the longest:", 1e3 * sum, n);
    for (int i = 0; l && i < AN_MIN(n, SHOWN) && l[i].device_s > 0; i++)
        line(t, false, l[i].kernel, "%.1f us, %.1f GFLOP/s, %.1f GB/s (%s, %s)", 1e6 * l[i].device_s,
             1e-9 * (double)l[i].flops / l[i].device_s, 1e-9 * (double)l[i].bytes / l[i].device_s, l[i].kind,
             l[i].scope);
    free(l);
}

/* ---- updates */

/* Device time of the products of the update that ran. */
static double products_seconds(const an_ctx *cx)
{
    an_launch l;
    double sum = 0;
    for (int i = 0, n = an_launch_count(cx); i < n; i++)
        if (an_launch_get(cx, i, &l) && strcmp(l.kind, "product") == 0) sum += l.device_s;
    return sum;
}

/* Runs one update and records loss, norm and time; with `t` (else NULL) reports the time of each launch, and with `products`
 * returns that of the products: both of a profiled context. */
static an_status train_step(an_err *err, tester *t, an_session *r, void *const *array, trace *out, double *products)
{
    const an_train_config *c = &r->cfg;
    const int64_t s = r->step;
    const an_sample_range draw = {.split = AN_TRAIN, .seed = (uint64_t)c->seed, .samples = c->batch_size};
    AN_TRY(c->task->batch(err, r->data, &draw, (uint64_t)s, array));
    const double begin = an_session_clock();
    const an_step built = an_step_build(r->cx, r->model, c, s, 0, array);
    an_status status = an_session_result(err, r->cx, an_eval(built.loss, built.norm));
    if (status == AN_OK) {
        out->loss[s] = an_item(built.loss);
        out->norm[s] = an_item(built.norm);
        out->ms[s] = 1e3 * (an_session_clock() - begin);
        status = an_session_fault(err, r->cx);
    }
    if (status == AN_OK && s == 0) status = an_session_result(err, r->cx, an_report(r->cx, &out->bill));
    if (status == AN_OK && t) report_launches(t, r->cx);
    if (status == AN_OK && products) *products = products_seconds(r->cx);
    an_reset(r->cx);
    r->step++;
    return status;
}

/* ---- bodies of products, timed in an update of the model */

/* The products of one update, in seconds of the device; the first update compiles. */
static an_status time_products(an_err *err, const an_train_config *c, int body, double *seconds)
{
    an_session *r;
    an_array array[AN_MAX_ARRAYS];
    an_arrays batch;
    trace unused = {0};
    *seconds = 0;
    AN_TRY(an_session_open(err, c, NULL, AN_RUN_DATA | AN_RUN_PARAMETERS_ONLY, &r));
    an_gemm_body_use(r->cx, c->dtype, body);
    an_profile(r->cx, true);
    const int n = c->model->inputs(an_model_settings(&r->cfg), c->batch_size, array);
    an_status status = an_arrays_open(err, array, n, &batch);
    if (status == AN_OK) status = open_trace(err, 2, &unused);
    for (int s = 0; s < 2 && status == AN_OK; s++) status = train_step(err, NULL, r, batch.data, &unused, seconds);
    free(unused.ms);
    an_arrays_close(&batch);
    an_session_close(r);
    return status;
}

/* Times each body, and keeps the fastest for this GPU if it is faster than the choice by size by more than chance. */
static an_status time_bodies(an_err *err, tester *t, an_dtype dtype, an_ctx *cx, int bodies)
{
    const double chance = 0.02;
    an_train_config c = *t->c;
    int best = 0;
    double least = 0, seconds;
    c.dtype = dtype;
    c.gradient_accumulation_steps = 1;
    for (int i = 0; i < bodies; i++) {
        char what[96];
        AN_TRY(time_products(err, &c, i, &seconds));
        snprintf(what, sizeof what, "%s, %s", an_gemm_body(cx, i), an_dtype_text(dtype));
        line(t, false, what, "products of an update in %.3f ms", 1e3 * seconds);
        if (i == 0 || seconds < (best ? least : least * (1 - chance))) best = i, least = seconds;
    }
    an_gemm_body_use(cx, dtype, best);
    line(t, false, an_dtype_text(dtype), "kept for this GPU: %s", an_gemm_body(cx, best));
    return AN_OK;
}

static void bodies_of_products(tester *t)
{
    an_err err = {0};
    an_ctx *cx =
        an_open(&(an_options){.device = t->c->device, .cache_dir = t->c->cache_dir[0] ? t->c->cache_dir : NULL});
    an_status status = an_session_fault(&err, cx);
    int n = 0;
    while (status == AN_OK && an_gemm_body(cx, n)) n++;
    if (n) {
        t->l->part(t->l->user, "bodies of products, which give the same bits");
        status = time_bodies(&err, t, AN_F32, cx, n);
        if (status == AN_OK) status = time_bodies(&err, t, AN_BF16, cx, n);
        if (status == AN_OK) status = an_session_result(&err, cx, an_gemm_body_keep(cx));
    }
    an_close(cx);
    ended(t, "bodies of products", status, &err);
}

/* ---- two devices compared */

/* The tolerance for the difference of two devices by rounding, which grows from update to update. Measured in 50
 * updates of macbook: bfloat16 on two instruction sets 6e-5 of the loss and 4e-4 of the norm; float32 the same bits,
 * which other GPUs need not produce. */
static double allowed(const an_train_config *c, int64_t step)
{
    return (c->dtype == AN_F32 ? 1e-4 : 2e-3) * (1 + 0.1 * (double)step);
}

static double relative_difference(double a, double b)
{
    const double difference = fabs(a - b), size = fmax(fabs(a), fabs(b));
    return isfinite(difference) ? difference / fmax(size, 1e-6) : INFINITY;
}

/* Compares step `s` of the device with the CPU's and reports it; false: the difference is too large. */
static bool compare_step(tester *t, const an_train_config *c, const trace *cpu, const trace *gpu, int64_t s)
{
    char what[40];
    const bool exact = c->exact, same = cpu->loss[s] == gpu->loss[s] && cpu->norm[s] == gpu->norm[s];
    const double d =
        fmax(relative_difference(cpu->loss[s], gpu->loss[s]), relative_difference(cpu->norm[s], gpu->norm[s]) / 10);
    const bool fault = exact ? !same : !(d <= allowed(c, s));
    snprintf(what, sizeof what, "update %lld", (long long)s);
    line(t, fault, what, "loss %.9g, the CPU's %.9g; norm %.9g, the CPU's %.9g; %s; %.2f ms, the CPU %.2f ms",
         gpu->loss[s], cpu->loss[s], gpu->norm[s], cpu->norm[s],
         same    ? "the same bits"
         : exact ? "other bits"
         : fault ? "too far apart for rounding"
                 : "as far apart as rounding goes",
         gpu->ms[s], cpu->ms[s]);
    return !fault;
}

/* Trains `steps` updates. With `other` each is compared with that trace, and the first large difference stops. */
static an_status train(an_err *err, tester *t, const an_train_config *c, int64_t steps, const trace *other, trace *out)
{
    an_session *r;
    AN_TRY(an_session_open(err, c, NULL, AN_RUN_DATA | AN_RUN_PARAMETERS_ONLY, &r));
    an_array array[AN_MAX_ARRAYS];
    an_arrays batch;
    const int n = c->model->inputs(an_model_settings(&r->cfg), c->batch_size, array);
    an_status status = an_arrays_open(err, array, n, &batch);
    for (int64_t s = 0; s < steps && status == AN_OK; s++) {
        status = train_step(err, NULL, r, batch.data, out, NULL);
        progress(t, "updates", s + 1 + (other ? steps : 0), 2 * steps); /* the CPU's come first */
        if (status == AN_OK && other && !compare_step(t, c, other, out, s)) break;
    }
    if (status == AN_OK) status = hash_state(err, r, &out->hash);
    if (status == AN_OK && other && !c->exact && r->step == steps) {
        an_profile(r->cx, true);
        status = train_step(err, t, r, batch.data, out, NULL);
    }
    an_arrays_close(&batch);
    an_session_close(r);
    return status;
}

static void train_both(tester *t, const an_train_config *c, int64_t steps, const char *title)
{
    an_err err = {0};
    trace cpu = {0}, gpu = {0};
    an_train_config on_cpu = *c;
    snprintf(on_cpu.device, sizeof on_cpu.device, "cpu");
    t->l->part(t->l->user, title);
    an_status status = open_trace(&err, steps, &cpu);
    if (status == AN_OK) status = open_trace(&err, steps, &gpu);
    if (status == AN_OK) status = train(&err, t, &on_cpu, steps, NULL, &cpu);
    ended(t, "cpu", status, &err);
    const int faults = t->out->faults;
    if (status == AN_OK) {
        status = train(&err, t, c, steps, &cpu, &gpu);
        ended(t, c->device, status, &err);
    }
    if (status == AN_OK && t->out->faults == faults) {
        if (c->exact)
            line(t, cpu.hash != gpu.hash, "parameters and moments", "%016llx, the CPU's %016llx",
                 (unsigned long long)gpu.hash, (unsigned long long)cpu.hash);
        line(t, false, "median of an update", "%.2f ms, the CPU %.2f ms", an_median(gpu.ms, steps),
             an_median(cpu.ms, steps));
        line(t, false, "bytes requested", "%llu, %d launches an update", (unsigned long long)gpu.bill.allocated_bytes,
             (int)gpu.bill.launches);
    }
    free(cpu.ms);
    free(gpu.ms);
}

/* The model is small because exact mode runs the CPU's portable kernels, which are slow. */
static void train_exactly(tester *t, int64_t steps)
{
    an_train_config c = *t->c;
    c.exact = true;
    c.dtype = AN_F32;
    c.gradient_accumulation_steps = 1;
    c.model->miniature(c.model_settings.bytes);
    c.batch_size = AN_MIN(c.batch_size, 4);
    train_both(t, &c, AN_MIN(steps, 5), "a small model in exact mode, beside the CPU: the same bits");
}

/* ---- the test */

void an_selftest(const an_train_config *c, const an_selftest_options *o, const an_selftest_listener *listener,
                 an_selftest_result *out)
{
    tester t = {.c = c, .l = listener, .out = out};
    an_device_facts device = {0};
    an_train_config one = *c; /* with one micro-batch an update */
    one.gradient_accumulation_steps = 1;
    *out = (an_selftest_result){0};
    const bool known = an_device_find(c->device, &device), gpu = known && device.runs && device.gpu;
    if (gpu) {
        listener->part(listener->user, "driver");
        an_device_examine(c->device, hear_driver, &t);
        line(&t, !device.available, device.name, "%s", device.reason);
    }
    if (gpu && !device.available) {
        an_fail(&out->failed, AN_E_ENV, "%s: %s", device.name, device.reason);
        return;
    }
    if (gpu) kernels(&t, c->dtype, true);
    kernels(&t, c->dtype, false);
    if (gpu) {
        const an_dtype other = c->dtype == AN_F32 ? AN_BF16 : AN_F32;
        kernels(&t, other, true);
        kernels(&t, other, false);
    }
    if (o->size > 0) times(&t, o->size);
    t.c = &one;
    if (o->size > 0 && gpu) bodies_of_products(&t);
    if (o->steps > 0) train_both(&t, &one, o->steps, "training beside the CPU");
    if (o->steps > 0) train_exactly(&t, o->steps);
}
