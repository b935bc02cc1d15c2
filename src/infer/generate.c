/* generate.c: prefill, decode and sample: see generate.h. */
#include "infer/generate.h"
#include <stdlib.h>
#include <string.h>

typedef struct text {
    an_session *r;
    const an_decoder *decoder;
    an_sampler *sampler;
    int64_t S, V;           /* the longest context, the vocabulary */
    int32_t *seen, *padded; /* [S] the context; [S] the prefill's input, padded to a power of two */
    int64_t n;              /* tokens in the context */
    float *logits;          /* [V] of the next token */
} text;

static an_status read_logits(an_err *err, text *t, an_tensor *logits)
{
    an_ctx *cx = t->r->cx;
    an_status status = an_eval(logits);
    if (status == AN_OK) status = an_read(logits, t->logits, (size_t)t->V * sizeof *t->logits);
    status = an_session_result(err, cx, status);
    an_reset(cx);
    return status;
}

/* Runs the full context in one pass, padded to a power of two so that few plans serve all lengths. */
static an_status prefill(an_err *err, text *t)
{
    an_ctx *cx = t->r->cx;
    int64_t P = 16;
    while (P < t->n) P *= 2;
    P = AN_MIN(P, t->S);
    memset(t->padded, 0, (size_t)P * sizeof *t->padded);
    memcpy(t->padded, t->seen, (size_t)t->n * sizeof *t->padded);
    an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(1, P), t->padded); /* [1,P] */
    an_tensor *last = an_scalar_i32(cx, (int32_t)(t->n - 1));
    return read_logits(err, t, t->decoder->prefill(t->r->model, tokens, last));
}

/* Runs the newest token alone; keys and values of the others are in the cache. */
static an_status decode(an_err *err, text *t)
{
    an_ctx *cx = t->r->cx;
    an_tensor *token = an_input(cx, AN_I32, AN_SHAPE(1, 1), &t->seen[t->n - 1]); /* [1,1] */
    an_tensor *position = an_scalar_i32(cx, (int32_t)(t->n - 1)), *n_keys = an_scalar_i32(cx, (int32_t)t->n);
    return read_logits(err, t, t->decoder->decode(t->r->model, token, position, n_keys));
}

/* Appends a token and computes the logits of the next one. A full context keeps its newer half. */
static an_status advance(an_err *err, text *t, int32_t id)
{
    const bool full = t->n == t->S;
    if (full) {
        t->n = t->S / 2;
        memmove(t->seen, t->seen + (t->S - t->n), (size_t)t->n * sizeof *t->seen);
    }
    t->seen[t->n++] = id;
    return full ? prefill(err, t) : decode(err, t);
}

static an_status draw_all(an_err *err, text *t, const an_generate_options *o, an_token_sink sink, void *arg,
                          an_generate_result *out)
{
    const double begin = an_session_clock();
    AN_TRY(prefill(err, t));
    const double prompt_done = an_session_clock();
    out->prompt_s = prompt_done - begin;
    for (int64_t i = 0; i < o->tokens; i++) {
        const int64_t id = an_sampler_next(t->sampler, t->logits, (uint64_t)o->sample << 32 | (uint64_t)i);
        if (id < 0)
            return an_fail(err, AN_E_NUMERIC, "token %lld: the logits are not finite; check that the weights are",
                           (long long)i);
        out->tokens = i + 1;
        out->tokens_s = an_session_clock() - prompt_done;
        if (!sink(arg, (int32_t)id) || i + 1 == o->tokens) break;
        AN_TRY(advance(err, t, (int32_t)id));
    }
    return AN_OK;
}

/* Each token reads every weight: rounded once, they are half as many bytes. Where there is no memory for both, each token
 * rounds them anew, with the same result. */
static an_status round_weights(an_err *err, an_ctx *cx)
{
    const an_status status = an_round_weights(cx, true);
    if (status != AN_E_NOMEM) return an_session_result(err, cx, status);
    an_error_clear(cx);
    return AN_OK;
}

an_status an_generate(an_err *err, an_session *r, const an_generate_options *o, const int32_t *prompt, size_t n_prompt,
                      an_token_sink sink, void *arg, an_generate_result *out)
{
    const an_decoder *d = r->cfg.model->decoder;
    const void *settings = an_model_settings(&r->cfg);
    *out = (an_generate_result){0};
    if (!d || d->context(settings) == 0)
        return an_fail(err, AN_E_USAGE, "this model of kind %s generates no text; use anneal predict, or anneal solve",
                       r->cfg.model->name);
    if (n_prompt == 0) return an_fail(err, AN_E_USAGE, "the prompt is empty: give at least one character");
    text t = {.r = r, .decoder = d, .S = d->context(settings), .V = d->vocabulary(settings)};
    t.sampler = an_sampler_open(&o->sampler, t.V);
    t.seen = malloc((size_t)(2 * t.S) * sizeof *t.seen);
    t.logits = malloc((size_t)t.V * sizeof *t.logits);
    an_status status = AN_OK;
    if (!t.sampler || !t.seen || !t.logits)
        status = an_fail(err, AN_E_NOMEM, "no memory for a context of %lld tokens and %lld logits", (long long)t.S,
                         (long long)t.V);
    if (status == AN_OK) status = round_weights(err, r->cx);
    if (status == AN_OK) {
        t.padded = t.seen + t.S;
        t.n = AN_MIN((int64_t)n_prompt, t.S); /* a longer prompt keeps its last S tokens */
        memcpy(t.seen, prompt + n_prompt - (size_t)t.n, (size_t)t.n * sizeof *t.seen);
        status = draw_all(err, &t, o, sink, arg, out);
    }
    free(t.logits);
    free(t.seen);
    an_sampler_close(t.sampler);
    return status;
}
