/* bench.c: times training steps on one fixed random batch. See bench.h. */
#include "tools/bench.h"
#include "tools/bench_op.h"
#include "train/step.h"
#include <anneal_tools.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double peak_rss_mib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
    return (double)usage.ru_maxrss / 1048576.0; /* bytes there, KiB elsewhere */
#else
    return (double)usage.ru_maxrss / 1024.0;
#endif
}

static double processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* One training step; returns when its loss has been read. */
static an_status one_step(an_err *err, an_session *r, void *const *array, double *ms)
{
    const double begin = an_session_clock();
    const an_step s = an_step_build(r->cx, r->model, &r->cfg, r->step++, 0, array);
    an_status status = an_step_eval(&s);
    if (status == AN_OK) (void)an_item(s.loss);
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    *ms = 1e3 * (an_session_clock() - begin);
    return status != AN_OK ? status : an_session_fault(err, r->cx);
}

/* Milliseconds a step of ten, of which the last one's loss is read; the fastest of `times`. */
static an_status ten_steps(an_err *err, an_session *r, void *const *array, int64_t times, double *ms)
{
    enum { TOGETHER = 10 };
    for (int64_t t = 0; t < times; t++) {
        const double begin = an_session_clock();
        for (int i = 1; i < TOGETHER; i++) {
            const an_step s = an_step_build(r->cx, r->model, &r->cfg, r->step++, 0, array);
            AN_TRY(an_session_result(err, r->cx, an_step_eval(&s)));
            an_reset(r->cx);
        }
        double last_ms;
        AN_TRY(one_step(err, r, array, &last_ms));
        const double each_ms = 1e3 * (an_session_clock() - begin) / TOGETHER;
        *ms = t && *ms < each_ms ? *ms : each_ms;
    }
    return AN_OK;
}

typedef struct listener {
    an_bench_tell *tell;
    void *arg;
} listener;

static void report_progress(const listener *l, int64_t steps, int64_t all)
{
    if (l->tell) l->tell(l->arg, steps, all);
}

static an_status measure(an_err *err, an_session *r, void *const *array, int64_t warm_up, int64_t steps,
                         const listener *l, double *ms, an_bench_result *out)
{
    const int64_t all = 1 + warm_up + steps;
    double first_ms, unused_ms, *const cpu_ms = ms + steps;
    AN_TRY(one_step(err, r, array, &first_ms));
    out->first_s = 1e-3 * first_ms;
    AN_TRY(an_session_result(err, r->cx, an_report(r->cx, &out->bill)));
    out->on_cpu = an_planned_on_cpu(r->cx);
    report_progress(l, 1, all);
    for (int64_t i = 0; i < warm_up; i++) {
        AN_TRY(one_step(err, r, array, &unused_ms));
        report_progress(l, 2 + i, all);
    }
    const double before = an_fma_peak(r->cx, r->cfg.dtype);
    for (int64_t i = 0; i < steps; i++) {
        const double began = processor_ms();
        AN_TRY(one_step(err, r, array, &ms[i]));
        cpu_ms[i] = processor_ms() - began;
        report_progress(l, 2 + warm_up + i, all);
    }
    an_device_facts device; /* a processor does not run ahead of itself: there it would be the same figure again */
    if (an_device_opened(r->cx, &device) && device.gpu) AN_TRY(ten_steps(err, r, array, steps / 10, &out->tenth_ms));
    out->peak_rss_mib = peak_rss_mib();
    const double after = an_fma_peak(r->cx, r->cfg.dtype);
    out->fma_peak_gflops = before > after ? before : after;
    out->ms = an_median(ms, steps); /* sorts them */
    out->min_ms = ms[0];
    out->cpu_ms = an_median(cpu_ms, steps);
    an_model_counts counts;
    r->cfg.model->count(an_model_settings(&r->cfg), r->cfg.batch_size, &counts);
    out->gflops = counts.flops / out->ms / 1e6;
    return AN_OK;
}

an_status an_bench(an_err *err, const an_train_config *c, int64_t warm_up, int64_t steps, an_bench_tell *tell,
                   void *arg, an_bench_result *out)
{
    const listener l = {tell, arg};
    an_train_config cfg = *c;
    an_task_assume(&cfg);
    cfg.learning_rate = 1e-3;
    cfg.decay_lr = false;
    cfg.beta1 = 0.9;
    cfg.beta2 = 0.95;
    cfg.weight_decay = 0.1;
    cfg.grad_clip = 1.0;
    cfg.gradient_accumulation_steps = 1;
    an_session *r;
    *out = (an_bench_result){0};
    AN_TRY(an_session_open(err, &cfg, NULL, AN_RUN_PARAMETERS_ONLY, &r));
    an_array array[AN_MAX_ARRAYS];
    an_arrays batch;
    const int n = r->cfg.model->inputs(an_model_settings(&r->cfg), r->cfg.batch_size, array);
    double *ms = malloc(2 * (size_t)steps * sizeof *ms); /* wall clock times, then processor times */
    an_status status = an_arrays_open(err, array, n, &batch);
    if (status == AN_OK && !ms) status = an_fail_nomem(err, "the times", 2 * (size_t)steps * sizeof *ms);
    if (status == AN_OK) {
        an_arrays_random(array, n, 1, batch.data);
        status = measure(err, r, batch.data, warm_up, steps, &l, ms, out);
    }
    free(ms);
    an_arrays_close(&batch);
    an_session_close(r);
    return status;
}
