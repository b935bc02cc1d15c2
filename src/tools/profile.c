/* profile.c: runs and times steps, computes medians and writes the trace. See profile.h. */
#include "tools/profile.h"
#include "comm/comm.h"
#include "train/session.h"
#include "train/step.h"
#include <anneal_tools.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct phases { /* seconds since the first profiled step began */
    double begin, got_data, built, ran;
} phases;

typedef struct profiler {
    const an_profile_options *o;
    an_session *r;
    an_loader *loader; /* NULL: the batch is fixed */
    an_arrays fixed;
    double zero;     /* clock when the first profiled step began */
    phases *phase;   /* [steps] */
    double *device;  /* [steps][n_launches] seconds on the device */
    double *enqueue; /* [steps][n_launches] seconds on the host */
    double *begin;   /* [steps][n_launches] seconds since the plan began; < 0: launches ran one after the other */
    double *exchange, *exposed; /* [steps] seconds */
    double *sorted;             /* [steps] scratch of the medians */
    an_profile_result *out;
} profiler;

/* ---- one step */

static an_status run_step(an_err *err, profiler *p, phases *t)
{
    an_session *r = p->r;
    void *const *array = p->fixed.data;
    t->begin = an_session_clock() - p->zero;
    if (p->loader) AN_TRY(an_loader_next(err, p->loader, &array));
    t->got_data = p->loader ? an_session_clock() - p->zero : t->begin;
    t->built = t->ran = t->got_data;
    if (p->o->what == AN_PROFILE_DATA) return AN_OK;
    an_step s = {0};
    if (p->o->what == AN_PROFILE_FORWARD)
        s = (an_step){.root = {an_step_evaluation(r->cx, r->model, &r->cfg, 0, array)}, .n_roots = 1};
    else
        s = an_step_build(r->cx, r->model, &r->cfg, r->step++, 0, array);
    t->built = an_session_clock() - p->zero;
    an_status status = an_step_eval(&s);
    if (status == AN_OK) status = an_synchronize(r->cx);
    t->ran = an_session_clock() - p->zero;
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

/* Copies the launches' names and figures; the originals are freed with the context. */
static an_status keep_names(an_err *err, profiler *p)
{
    an_profile_result *out = p->out;
    const int n = an_launch_count(p->r->cx);
    size_t bytes = (size_t)n * sizeof *out->launch;
    an_launch l;
    for (int i = 0; i < n && an_launch_get(p->r->cx, i, &l); i++)
        bytes += strlen(l.kernel) + strlen(l.scope) + strlen(l.shape) + 3;
    out->memory = calloc(1, bytes + 1);
    p->device = calloc((size_t)(n * p->o->steps) + 1, sizeof *p->device);
    p->enqueue = calloc((size_t)(n * p->o->steps) + 1, sizeof *p->enqueue);
    p->begin = calloc((size_t)(n * p->o->steps) + 1, sizeof *p->begin);
    if (!out->memory || !p->device || !p->enqueue || !p->begin) return an_fail_nomem(err, "a profile", bytes);
    out->launch = out->memory;
    char *text = (char *)out->memory + (size_t)n * sizeof *out->launch;
    for (int i = 0; i < n && an_launch_get(p->r->cx, i, &l); i++) {
        out->launch[i] = (an_profile_launch){.kind = l.kind,
                                             .flops = l.flops,
                                             .bytes = l.bytes,
                                             .recompute = l.recompute,
                                             .on_cpu = l.fallback,
                                             .exchange = l.exchange,
                                             .phase = l.phase,
                                             .kernel = text};
        text += sprintf(text, "%s", l.kernel) + 1;
        out->launch[i].scope = text;
        text += sprintf(text, "%s", l.scope) + 1;
        out->launch[i].shape = text;
        text += sprintf(text, "%s", l.shape) + 1;
    }
    out->n_launches = n;
    return AN_OK;
}

static an_status keep_times(an_err *err, profiler *p, int64_t step)
{
    an_launch l;
    an_exchange_time t;
    if (an_comm_ranks(p->r->cfg.comm) > 1) { /* asks for every launch's times once more */
        AN_TRY(an_session_result(err, p->r->cx, an_exchange_time_read(p->r->cx, &t)));
        p->exchange[step] = t.exchange_s;
        p->exposed[step] = t.exposed_s;
    }
    for (int i = 0; i < p->out->n_launches && an_launch_get(p->r->cx, i, &l); i++) {
        p->device[step * p->out->n_launches + i] = l.device_s;
        p->enqueue[step * p->out->n_launches + i] = l.enqueue_s;
        p->begin[step * p->out->n_launches + i] = l.begin_s;
    }
    return AN_OK;
}

static void report_progress(const profiler *p, int64_t done)
{
    if (p->o->tell) p->o->tell(p->o->tell_arg, done, 1 + p->o->warmup + p->o->steps);
}

static an_status run_steps(an_err *err, profiler *p)
{
    phases unused;
    const bool launches = p->o->what != AN_PROFILE_DATA;
    AN_TRY(run_step(err, p, &unused));
    an_profile(p->r->cx, true);
    for (int64_t i = 0; i < p->o->warmup; i++) {
        report_progress(p, 1 + i);
        AN_TRY(run_step(err, p, &unused));
    }
    if (launches) AN_TRY(keep_names(err, p));
    if (p->loader) an_loader_time(p->loader);
    p->zero = an_session_clock();
    for (int64_t i = 0; i < p->o->steps; i++) {
        report_progress(p, 1 + p->o->warmup + i);
        AN_TRY(run_step(err, p, &p->phase[i]));
        if (launches) AN_TRY(keep_times(err, p, i));
    }
    an_profile(p->r->cx, false);
    if (p->loader) an_loader_times_read(p->loader, &p->out->loader);
    return AN_OK;
}

/* ---- medians */

static double median_of(profiler *p, const double *first, int64_t stride)
{
    for (int64_t i = 0; i < p->o->steps; i++) p->sorted[i] = first[i * stride];
    return an_median(p->sorted, p->o->steps);
}

static void summarize(profiler *p)
{
    an_profile_result *out = p->out;
    const int64_t n = p->o->steps;
    const struct {
        double *to;
        size_t from, until;
    } spans[] = {{&out->step_ms, offsetof(phases, begin), offsetof(phases, ran)},
                 {&out->data_ms, offsetof(phases, begin), offsetof(phases, got_data)},
                 {&out->build_ms, offsetof(phases, got_data), offsetof(phases, built)},
                 {&out->run_ms, offsetof(phases, built), offsetof(phases, ran)}};
    for (size_t k = 0; k < AN_COUNT(spans); k++) {
        for (int64_t i = 0; i < n; i++) {
            const char *phase = (const char *)&p->phase[i];
            double from, until;
            memcpy(&from, phase + spans[k].from, sizeof from);
            memcpy(&until, phase + spans[k].until, sizeof until);
            p->sorted[i] = 1e3 * (until - from);
        }
        *spans[k].to = an_median(p->sorted, n);
    }
    for (int i = 0; i < out->n_launches; i++) {
        an_profile_launch *l = &out->launch[i];
        l->device_s = median_of(p, p->device + i, out->n_launches);
        l->enqueue_s = median_of(p, p->enqueue + i, out->n_launches);
        out->device_ms += 1e3 * l->device_s;
        double *const phase_ms = strcmp(l->phase, "forward") == 0    ? &out->forward_ms
                                 : strcmp(l->phase, "backward") == 0 ? &out->backward_ms
                                                                     : &out->update_ms;
        *phase_ms += 1e3 * l->device_s;
    }
    out->exchange_ms = 1e3 * median_of(p, p->exchange, 1);
    out->exposed_ms = 1e3 * median_of(p, p->exposed, 1);
    an_profile_shares(out);
}

void an_profile_shares(an_profile_result *out)
{
    static const double NOISE = 0.1; /* of a measured roof */
    out->n_above = 0;
    for (int i = 0; i < out->n_launches; i++) {
        an_profile_launch *l = &out->launch[i];
        const double compute = out->roof.gflops > 0 ? 1e-9 * (double)l->flops / out->roof.gflops : 0;
        const double move = out->roof.gbytes > 0 ? 1e-9 * (double)l->bytes / out->roof.gbytes : 0;
        const double share = l->device_s > 0 ? AN_MAX(compute, move) / l->device_s : 0;
        l->above_roof = share > 1 + NOISE;
        l->share = l->above_roof ? 0 : AN_MIN(share, 1);
        out->n_above += l->above_roof;
    }
}

/* ---- the trace: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, "complete events" */

enum { HOST = 1, EXCHANGES = 2, DEVICE = 3, TRACKS = 64 }; /* DEVICE and those behind it: launches side by side */

/* Begin and end are rounded to a nanosecond, not the duration, so that adjacent events do not overlap in the file:
 * viewers drop overlapping events. */
static void put_event(an_text *t, const char *name, const char *category, int track, double begin_s, double end_s)
{
    const long long begin = llround(1e9 * begin_s), ns = llround(1e9 * end_s) - begin;
    an_text_printf(t,
                   ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%lld.%03lld,"
                   "\"dur\":%lld.%03lld",
                   name, category, track, begin / 1000, begin % 1000, ns / 1000, ns % 1000);
}

static void put_launch(an_text *t, const profiler *p, int i, int track, double begin_s, double end_s)
{
    const an_profile_launch *l = &p->out->launch[i];
    put_event(t, l->kernel, l->exchange ? "exchange" : l->kind, track, begin_s, end_s);
    an_text_printf(t, ",\"args\":{\"launch\":%d,\"scope\":\"%s\",\"flops\":%llu,\"bytes\":%llu}}", i, l->scope,
                   (unsigned long long)l->flops, (unsigned long long)l->bytes);
}

/* The device measures durations, not start times: launches are drawn back to back and end with `run`. */
static void put_in_turn(an_text *t, const profiler *p, int64_t step, double *end)
{
    const phases *f = &p->phase[step];
    const int n = p->out->n_launches;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += p->device[step * n + i];
    double at = AN_MAX(AN_MAX(f->built, f->ran - sum), end[0]);
    for (int i = 0; i < n; i++) {
        const double s = p->device[step * n + i];
        put_launch(t, p, i, p->out->launch[i].exchange ? EXCHANGES : DEVICE, at, at + s);
        at += s;
    }
    end[0] = at;
}

/* Each launch where it ran, on a track of its own kind that is free then, or on the last: the plan's end is drawn where `run` ends. */
static void put_side_by_side(an_text *t, const profiler *p, int64_t step, double *end)
{
    const int n = p->out->n_launches;
    const double *begin = p->begin + step * n, *lasts = p->device + step * n;
    double plan_s = 0;
    for (int i = 0; i < n; i++) plan_s = AN_MAX(plan_s, begin[i] + lasts[i]);
    const double zero = AN_MAX(p->phase[step].ran - plan_s, 0.0);
    for (int i = 0; i < n; i++) {
        const double from = zero + begin[i];
        if (lasts[i] <= 0) continue; /* another launch did its work */
        int track = DEVICE;
        if (p->out->launch[i].exchange)
            track = EXCHANGES;
        else
            while (track < TRACKS - 1 && end[track - DEVICE] > from) track++;
        put_launch(t, p, i, track, from, from + lasts[i]);
        if (track >= DEVICE) end[track - DEVICE] = from + lasts[i];
    }
}

/* Names of kernels and scopes are identifiers and dots, which need no escapes in JSON. end[]: of the last launch on each track. */
static void put_step(an_text *t, const profiler *p, int64_t step, double *end)
{
    const phases *f = &p->phase[step];
    const int n = p->out->n_launches;
    put_event(t, "data", "host", HOST, f->begin, f->got_data);
    an_text_printf(t, ",\"args\":{\"step\":%lld}}", (long long)step);
    if (!n) return;
    put_event(t, "build", "host", HOST, f->got_data, f->built);
    an_text_puts(t, "}");
    put_event(t, "run", "host", HOST, f->built, f->ran);
    an_text_puts(t, "}");
    bool side_by_side = false;
    for (int i = 0; i < n; i++) side_by_side |= p->begin[step * n + i] > 0;
    if (side_by_side)
        put_side_by_side(t, p, step, end);
    else
        put_in_turn(t, p, step, end);
}

static an_status write_trace(an_err *err, const profiler *p)
{
    an_text t = {0};
    an_text_puts(&t, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                     "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"anneal\"}},\n"
                     "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"host\"}},\n");
    an_text_printf(&t, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"device\"}}",
                   DEVICE);
    if (an_comm_ranks(p->r->cfg.comm) > 1)
        an_text_printf(&t,
                       ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,"
                       "\"args\":{\"name\":\"exchanges between ranks\"}}",
                       EXCHANGES);
    double end[TRACKS - DEVICE] = {0};
    for (int64_t i = 0; i < p->o->steps; i++) put_step(&t, p, i, end);
    an_text_puts(&t, "\n]}\n");
    an_status status = t.failed ? an_fail_nomem(err, "the trace", t.len) : AN_OK;
    FILE *f = status == AN_OK ? fopen(p->o->trace, "w") : NULL;
    bool good = f && fwrite(t.data, 1, t.len, f) == t.len;
    if (f) good = fclose(f) == 0 && good;
    if (status == AN_OK && !good)
        status = an_fail(err, AN_E_IO, "%s: the trace cannot be written: %s; name another file", p->o->trace,
                         strerror(errno));
    an_text_free(&t);
    return status;
}

/* ---- all together */

static an_status run_with_data(an_err *err, profiler *p)
{
    const an_train_config *c = &p->r->cfg;
    const an_sample_range draw = {.split = AN_TRAIN, .seed = (uint64_t)c->seed, .samples = c->batch_size};
    an_task_source data;
    an_source source;
    an_task_source_open(c, p->r->data, &draw, &data, &source);
    AN_TRY(an_loader_open(err, &source, 0, (int)c->workers, &p->loader));
    an_status status = run_steps(err, p);
    an_loader_close(p->loader); /* before `source`, which it reads */
    return status;
}

static an_status run_with_fixed(an_err *err, profiler *p)
{
    an_array array[AN_MAX_ARRAYS];
    const int n = p->r->cfg.model->inputs(an_model_settings(&p->r->cfg), p->r->cfg.batch_size, array);
    an_status status = an_arrays_open(err, array, n, &p->fixed);
    if (status == AN_OK) an_arrays_random(array, n, 1, p->fixed.data);
    if (status == AN_OK) status = run_steps(err, p);
    an_arrays_close(&p->fixed);
    return status;
}

static an_status profile(an_err *err, profiler *p)
{
    const an_train_config *c = &p->r->cfg;
    p->out->units = c->batch_size * an_task_units(c);
    p->phase = calloc((size_t)p->o->steps, sizeof *p->phase);
    p->exchange = calloc((size_t)p->o->steps, sizeof *p->exchange);
    p->exposed = calloc((size_t)p->o->steps, sizeof *p->exposed);
    p->sorted = calloc((size_t)p->o->steps, sizeof *p->sorted);
    if (!p->phase || !p->sorted || !p->exchange || !p->exposed)
        return an_fail_nomem(err, "a profile", (size_t)p->o->steps * sizeof *p->phase);
    AN_TRY(p->o->fixed ? run_with_fixed(err, p) : run_with_data(err, p));
    /* The roofline is measured right after the steps, at the same temperature of the machine. */
    if (p->o->what != AN_PROFILE_DATA) AN_TRY(an_bench_roof(err, c, &p->out->roof));
    summarize(p);
    return p->o->trace && an_comm_rank(c->comm) == 0 ? write_trace(err, p) : AN_OK;
}

an_status an_profile_steps(an_err *err, const an_train_config *c, const an_profile_options *o, an_profile_result *out)
{
    an_train_config one = *c;
    one.gradient_accumulation_steps = an_comm_ranks(c->comm);
    if (o->fixed) an_task_assume(&one);
    profiler p = {.o = o, .out = out};
    *out = (an_profile_result){0};
    AN_TRY(an_session_open(err, &one, NULL, (o->fixed ? 0 : AN_RUN_DATA) | AN_RUN_PARAMETERS_ONLY, &p.r));
    an_status status = profile(err, &p);
    an_session_close(p.r);
    free(p.phase);
    free(p.device);
    free(p.enqueue);
    free(p.begin);
    free(p.exchange);
    free(p.exposed);
    free(p.sorted);
    if (status != AN_OK) an_profile_free(out);
    return status;
}

void an_profile_free(an_profile_result *p)
{
    free(p->memory);
    *p = (an_profile_result){0};
}
