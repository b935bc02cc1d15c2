#include "tools/bench.h"
#include "train/step.h"
#include <stdlib.h>
#include <sys/resource.h>

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

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One whole step; returns when its loss is there. */
static an_status one_step(an_err *err, an_session *r, const int32_t *x, const int32_t *y, double *ms)
{
    const double begin = an_session_clock();
    const an_step s = an_step_build(r->cx, r->model, &r->cfg, r->step++, 0, x, y);
    an_status status = an_step_eval(&s);
    if (status == AN_OK) (void)an_item(s.loss);
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    *ms = 1e3 * (an_session_clock() - begin);
    return status != AN_OK ? status : an_session_fault(err, r->cx);
}

static an_status measure(an_err *err, an_session *r, const int32_t *x, const int32_t *y, int64_t warm_up, int64_t steps,
                         double *ms, an_bench_result *out)
{
    double first_ms, unused_ms;
    AN_TRY(one_step(err, r, x, y, &first_ms));
    out->first_s = 1e-3 * first_ms;
    AN_TRY(an_session_result(err, r->cx, an_report(r->cx, &out->bill)));
    for (int64_t i = 0; i < warm_up; i++) AN_TRY(one_step(err, r, x, y, &unused_ms));
    const double before = an_fma_peak(r->cx, r->cfg.dtype);
    for (int64_t i = 0; i < steps; i++) AN_TRY(one_step(err, r, x, y, &ms[i]));
    out->peak_rss_mib = peak_rss_mib();
    const double after = an_fma_peak(r->cx, r->cfg.dtype);
    out->fma_peak_gflops = before > after ? before : after;
    qsort(ms, (size_t)steps, sizeof *ms, ascending);
    out->min_ms = ms[0];
    out->ms = steps % 2 ? ms[steps / 2] : 0.5 * (ms[steps / 2 - 1] + ms[steps / 2]);
    const an_gpt_config *m = an_gpt_config_of(r->model);
    out->gflops = an_gpt_flops(m, r->cfg.batch_size, r->cfg.block_size) / out->ms / 1e6;
    return AN_OK;
}

an_status an_bench(an_err *err, const an_train_config *c, int64_t warm_up, int64_t steps, an_bench_result *out)
{
    an_train_config cfg = *c;
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
    const int64_t n = cfg.batch_size * cfg.block_size;
    int32_t *tokens = malloc((size_t)(2 * n) * sizeof *tokens); /* x then y, [B,T] each */
    double *ms = malloc((size_t)steps * sizeof *ms);
    an_status status = tokens && ms ? AN_OK : an_fail_nomem(err, "a batch", (size_t)(2 * n) * sizeof *tokens);
    uint64_t state = 1;
    for (int64_t i = 0; status == AN_OK && i < 2 * n; i++) { /* Knuth's MMIX generator; its high bits are good enough */
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((state >> 33) % (uint64_t)cfg.vocab_size);
    }
    if (status == AN_OK) status = measure(err, r, tokens, tokens + n, warm_up, steps, ms, out);
    free(ms);
    free(tokens);
    an_session_close(r);
    return status;
}
