/* bench_sample.c: see bench_sample.h. */
#include "tools/bench_sample.h"
#include "infer/generate.h"
#include "tools/bench_op.h"
#include <stdlib.h>

enum {
    WARM_TOKENS = 8,    /* of the untimed first text: after two tokens the plans of prefill and decoding are compiled */
    MOST_READ_MIB = 256 /* more than caches hold */
};

/* Times of the tokens of one text. */
typedef struct clock_of_tokens {
    double *ms;          /* between a token and the one before it; of the first, since the text began */
    int64_t n, of_group; /* tokens; of those that were read together */
    int64_t texts;
    double last;
    an_generate_result result;
} clock_of_tokens;

/* Tokens that are read together share the time since the read before. */
static bool note_token(void *arg, int64_t text, int32_t id)
{
    (void)id;
    clock_of_tokens *c = arg;
    if (text > 0) return true; /* drawn with the first one's */
    const double now = an_session_clock();
    if (c->of_group == 0) {
        for (int64_t i = 0; i < c->result.group; i++) c->ms[c->n + i] = 1e3 * (now - c->last) / (double)c->result.group;
        c->last = now;
    }
    c->n++;
    c->of_group = (c->of_group + 1) % c->result.group;
    return true;
}

static an_status draw(an_err *err, an_session *r, const int32_t *prompt, int64_t n_prompt, int64_t tokens,
                      clock_of_tokens *c)
{
    const an_generate_options o = {
        .sampler = {.temperature = 0.8, .top_k = 200, .seed = 1}, .tokens = tokens, .texts = c->texts};
    c->n = c->of_group = 0;
    c->last = an_session_clock();
    return an_generate(err, r, &o, prompt, (size_t)n_prompt, note_token, c, &c->result);
}

/* The time that a share `p` of the ascending times does not exceed. */
static double percentile(const double *ms, int64_t n, double p)
{
    return ms[AN_MIN((int64_t)(p * (double)n), n - 1)];
}

static an_status measure(an_err *err, an_session *r, const int32_t *prompt, int64_t n_prompt, int64_t tokens,
                         clock_of_tokens *c, an_bench_sample_result *out)
{
    an_tensor *one = an_scalar(r->cx, 1); /* any step makes the weights and moves them to the device: not timed */
    AN_TRY(an_session_result(err, r->cx, an_eval(one)));
    an_reset(r->cx);
    AN_TRY(draw(err, r, prompt, n_prompt, AN_MIN(tokens, WARM_TOKENS), c));
    out->cold_s = 1e-3 * c->ms[0];
    AN_TRY(draw(err, r, prompt, n_prompt, tokens, c));
    an_bill bill;
    if (an_report(r->cx, &bill) == AN_OK) out->moved_bytes = (double)bill.moved_bytes;
    out->first_ms = c->ms[0];
    out->tokens = c->n - 1;
    double sum = 0;
    for (int64_t i = 1; i < c->n; i++) sum += c->ms[i];
    out->tokens_per_s = 1e3 * (double)(out->tokens * c->texts) / sum;
    an_median(c->ms + 1, out->tokens); /* sorts */
    out->p50_ms = percentile(c->ms + 1, out->tokens, 0.50);
    out->p95_ms = percentile(c->ms + 1, out->tokens, 0.95);
    out->p99_ms = percentile(c->ms + 1, out->tokens, 0.99);
    return AN_OK;
}

an_status an_bench_sample(an_err *err, an_session *r, int64_t texts, int64_t prompt, int64_t tokens,
                          an_bench_sample_result *out)
{
    *out = (an_bench_sample_result){0};
    const an_decoder *d = r->cfg.model->decoder;
    const void *settings = an_model_settings(&r->cfg);
    const int64_t context = d ? d->context(settings) : 0;
    if (context == 0) return an_fail(err, AN_E_USAGE, "bench sample: a %s generates no text", r->cfg.model->name);
    if (prompt + tokens > context)
        return an_fail(err, AN_E_USAGE, "bench sample: prompt=%lld and tokens=%lld do not fit the context of %lld",
                       (long long)prompt, (long long)tokens, (long long)context);
    const size_t bytes = (size_t)tokens * sizeof(double) + (size_t)prompt * sizeof(int32_t);
    double *ms = malloc(bytes);
    if (!ms) return an_fail_nomem(err, "the times of tokens", bytes);
    int32_t *ids = (int32_t *)(void *)(ms + tokens);
    const uint64_t vocabulary = (uint64_t)d->vocabulary(settings);
    for (int64_t i = 0; i < prompt; i++) ids[i] = (int32_t)((uint64_t)(i + 1) * 2654435761u % vocabulary);
    an_status status = measure(err, r, ids, prompt, tokens, &(clock_of_tokens){.ms = ms, .texts = texts}, out);
    free(ms);
    AN_TRY(status);
    an_bench_op_result read;
    out->read_mib = AN_MAX(1, AN_MIN((int64_t)(out->moved_bytes / 1048576 + 0.5), MOST_READ_MIB));
    AN_TRY(an_bench_run_op(err, &r->cfg, &(an_bench_op){AN_BENCH_READ, AN_F32, out->read_mib, 8, false, 0}, &read));
    out->read_gbytes = read.gbytes * read.ms / read.min_ms;
    return AN_OK;
}
