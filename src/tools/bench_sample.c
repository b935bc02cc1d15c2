/* bench_sample.c: see bench_sample.h. */
#include "tools/bench_sample.h"
#include "infer/generate.h"
#include "tools/bench_op.h"
#include <anneal_tools.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARM_TOKENS = 8, /* of the untimed first text: after two tokens the plans of prefill and decoding are compiled */
    MOST_READ_MIB = 256, /* more than caches hold */
    BLOCKS = 4,          /* of the timed tokens: reading is timed before, between and after them, */
    FEWEST_TOKENS = 16,  /* each of so many tokens at least, */
    TIMED_READS = 3,     /* so often each time, after one that fills the caches as far as they hold it */
    MOST_READS = (BLOCKS + 2) * TIMED_READS,
};

/* The bandwidth of reading, timed in turn with the tokens, by as many threads. */
typedef struct reads {
    an_ctx *cx;
    an_bench_op op;
    double ms[MOST_READS];
    int64_t n;
} reads;

static an_status read_some(an_err *err, reads *r)
{
    double unused;
    AN_TRY(an_bench_iterate(err, r->cx, &r->op, &unused));
    for (int i = 0; i < TIMED_READS; i++) AN_TRY(an_bench_iterate(err, r->cx, &r->op, &r->ms[r->n++]));
    return AN_OK;
}

/* Times of the tokens of one text. */
typedef struct clock_of_tokens {
    double *ms;                /* between a token and the one before it; of the first, since the text began */
    int64_t n, seen, of_group; /* times; tokens; of those that were read together */
    int64_t texts;
    double last;
    reads *reads; /* between blocks of `block` tokens, next after token `next_read`; NULL: never */
    int64_t block, next_read;
    bool read_last; /* the next token has no time: caches hold what was read, not its weights */
    an_err *err;
    an_status status;
    an_generate_result result;
} clock_of_tokens;

/* Tokens that are read together share the time since the read before. */
static bool note_token(void *arg, int64_t text, int32_t id)
{
    (void)id;
    clock_of_tokens *c = arg;
    if (text > 0) return true; /* drawn with the first one's */
    const double now = an_session_clock();
    const int64_t group = c->result.group;
    if (c->of_group == 0) {
        for (int64_t i = 0; i < group && !c->read_last; i++) c->ms[c->n++] = 1e3 * (now - c->last) / (double)group;
        c->last = now;
        c->read_last = false;
    }
    c->seen++;
    c->of_group = (c->of_group + 1) % group;
    if (!c->reads || c->of_group != 0 || c->seen < c->next_read) return true;
    c->next_read += c->block;
    c->status = read_some(c->err, c->reads);
    c->last = an_session_clock();
    c->read_last = true;
    return c->status == AN_OK;
}

static an_status draw(an_err *err, an_session *r, const int32_t *prompt, int64_t n_prompt, int64_t tokens,
                      clock_of_tokens *c)
{
    const an_generate_options o = {
        .sampler = {.temperature = 0.8, .top_k = 200, .seed = 1}, .tokens = tokens, .texts = c->texts};
    c->n = c->seen = c->of_group = 0;
    c->next_read = c->block;
    c->read_last = false;
    c->status = AN_OK;
    c->err = err;
    c->last = an_session_clock();
    AN_TRY(an_generate(err, r, &o, prompt, (size_t)n_prompt, note_token, c, &c->result));
    return c->status;
}

/* The time that a share `p` of the ascending times does not exceed. */
static double percentile(const double *ms, int64_t n, double p)
{
    return ms[AN_MIN((int64_t)(p * (double)n), n - 1)];
}

/* The timed text, and reading in turn with it. */
static an_status time_tokens(an_err *err, an_session *r, const int32_t *prompt, int64_t n_prompt, int64_t tokens,
                             clock_of_tokens *c, an_bench_sample_result *out)
{
    reads in_turn = {.op = {.kind = AN_BENCH_READ, .dtype = AN_F32, .n = out->read_mib}};
    c->reads = &in_turn;
    c->block = AN_MAX(tokens / BLOCKS, FEWEST_TOKENS);
    in_turn.cx = an_bench_open(&r->cfg);
    an_status status = an_session_fault(err, in_turn.cx);
    if (status == AN_OK) status = read_some(err, &in_turn);
    if (status == AN_OK) status = draw(err, r, prompt, n_prompt, tokens, c);
    if (status == AN_OK) status = read_some(err, &in_turn);
    an_close(in_turn.cx);
    if (status == AN_OK) out->read_gbytes = (double)out->read_mib * 1.048576 / an_median(in_turn.ms, in_turn.n);
    return status;
}

/* What the launches of a token move. The plan counts the whole cache of keys and values, of which attention reads as much as
 * is filled: the share `filled` on average. */
static double token_bytes(an_ctx *cx, double filled)
{
    double bytes = 0;
    an_launch l;
    for (int i = 0; i < an_launch_count(cx); i++)
        if (an_launch_get(cx, i, &l)) bytes += (double)l.bytes * (strcmp(l.kind, "attention") == 0 ? filled : 1);
    return bytes;
}

static an_status measure(an_err *err, an_session *r, const int32_t *prompt, int64_t n_prompt, int64_t tokens,
                         clock_of_tokens *c, an_bench_sample_result *out)
{
    an_tensor *one = an_scalar(r->cx, 1); /* any step makes the weights and moves them to the device: not timed */
    AN_TRY(an_session_result(err, r->cx, an_eval(one)));
    an_reset(r->cx);
    AN_TRY(draw(err, r, prompt, n_prompt, AN_MIN(tokens, WARM_TOKENS), c));
    out->cold_s = 1e-3 * c->ms[0];
    const an_decoder *d = r->cfg.model->decoder;
    const double keys = (double)n_prompt + 0.5 * (double)tokens,
                 context = (double)d->context(an_model_settings(&r->cfg));
    out->moved_bytes = token_bytes(r->cx, d->decode ? keys / context : 1);
    out->read_mib = AN_MAX(1, AN_MIN((int64_t)(out->moved_bytes / 1048576 + 0.5), MOST_READ_MIB));
    AN_TRY(time_tokens(err, r, prompt, n_prompt, tokens, c, out));
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
    const an_status status = measure(err, r, ids, prompt, tokens, &(clock_of_tokens){.ms = ms, .texts = texts}, out);
    free(ms);
    return status;
}
