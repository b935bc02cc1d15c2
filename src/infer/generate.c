/* generate.c: prefill, decode and draw: see generate.h.
 *
 * Invariant: a drawn token goes to the next run of the model through a state, never through the host, which only reads. */
#include "infer/generate.h"
#include <anneal_decode.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 16 }; /* tokens drawn at most before the host looks */
static const double A_MOMENT_S =
    0.02; /* what is drawn in it may come at once: a screen shows it in one or two pictures */

typedef struct text {
    an_session *r;
    const an_decoder *decoder;
    const an_generate_options *o;
    int64_t S;              /* the longest context */
    int32_t *seen, *padded; /* [S] the context; [S] the prefill's input, padded to a power of two */
    int64_t n;              /* tokens in the context; the newest may not have gone through the model yet */
    bool slid;              /* the context was full: what remains of it is prefilled anew */
    int64_t drawn;          /* tokens of the text so far */
    int32_t fresh[GROUP];   /* the newest of them */
} text;

/* The token that went through the model last, for the next one; and the newest tokens, for the host. */
static an_tensor *token_state(an_ctx *cx)
{
    return an_state(cx, "generate.token", AN_I32, AN_SHAPE(1, 1), AN_ZEROS);
}

/* Runs the graph of `logits` [V] to its end, the token drawn from them, number `at` of a group. Only `last` waits, and
 * reads the group. */
static an_status draw(an_err *err, text *t, an_tensor *logits, int64_t at, bool last)
{
    an_ctx *cx = t->r->cx;
    const an_sampler_options *o = &t->o->sampler;
    const int32_t number[2] = {(int32_t)t->o->sample, (int32_t)(t->drawn + at)};
    an_tensor *id =
        an_draw(logits, an_input(cx, AN_I32, AN_SHAPE(2), number), o->temperature, o->top_k, o->top_p, o->seed);
    an_tensor *group = an_state(cx, "generate.group", AN_I32, AN_SHAPE(GROUP), AN_ZEROS);
    an_tensor *place = an_scalar_i32(cx, (int32_t)at),
              *here = an_eq(an_iota(cx, AN_SHAPE(GROUP), 0), place); /* bool [GROUP] */
    an_tensor *next = an_where(here, an_expand(an_reshape(id, AN_SHAPE(1)), AN_SHAPE(GROUP)), group);
    an_assign(group, next);
    an_tensor *only = an_reshape(id, AN_SHAPE(1, 1));
    an_assign(token_state(cx), only);
    an_status status = an_eval(next);
    if (status == AN_OK && last) status = an_read(next, t->fresh, sizeof t->fresh);
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
    t->slid = false;
    return draw(err, t, t->decoder->prefill(t->r->model, tokens, last), 0, true);
}

/* Runs the newest token alone, then each that is drawn; keys and values of the others are in the cache. */
static an_status decode(an_err *err, text *t, int64_t group)
{
    an_ctx *cx = t->r->cx;
    for (int64_t i = 0; i < group; i++) {
        const int32_t at = (int32_t)(t->n - 1 + i);
        an_tensor *position = an_scalar_i32(cx, at), *n_keys = an_scalar_i32(cx, at + 1);
        an_tensor *logits = t->decoder->decode(t->r->model, token_state(cx), position, n_keys);
        AN_TRY(draw(err, t, logits, i, i + 1 == group));
    }
    return AN_OK;
}

/* A full context keeps its newer half. */
static void append(text *t, int32_t id)
{
    t->slid = t->n == t->S;
    if (t->slid) {
        t->n = t->S / 2;
        memmove(t->seen, t->seen + (t->S - t->n), (size_t)t->n * sizeof *t->seen);
    }
    t->seen[t->n++] = id;
}

/* Hands the group to the sink; *more: the text goes on. */
static an_status hand_out(an_err *err, text *t, int64_t group, an_token_sink sink, void *arg, an_generate_result *out,
                          bool *more)
{
    *more = true;
    out->group = group;
    for (int64_t i = 0; i < group && *more; i++) {
        const int32_t id = t->fresh[i];
        if (id < 0)
            return an_fail(err, AN_E_NUMERIC, "token %lld: the logits are not finite; check that the weights are",
                           (long long)t->drawn);
        out->tokens = ++t->drawn;
        *more = sink(arg, id) && t->drawn < t->o->tokens;
        append(t, id);
    }
    return AN_OK;
}

static an_status draw_all(an_err *err, text *t, an_token_sink sink, void *arg, an_generate_result *out)
{
    const int64_t most = an_steps_in_flight(t->r->cx) > 1 ? GROUP : 1;
    const double begin = an_session_clock();
    bool more = t->o->tokens > 0;
    if (!more) return AN_OK;
    AN_TRY(prefill(err, t));
    const double prompt_done = an_session_clock();
    double before = prompt_done;
    out->prompt_s = prompt_done - begin;
    AN_TRY(hand_out(err, t, 1, sink, arg, out, &more));
    for (int64_t group = 1; more;) {
        const bool whole = t->slid || !t->decoder->decode;
        const int64_t now = whole ? 1 : AN_MIN(AN_MIN(group, t->o->tokens - t->drawn), t->S - t->n + 1);
        AN_TRY(whole ? prefill(err, t) : decode(err, t, now));
        const double clock = an_session_clock();
        out->tokens_s = clock - prompt_done;
        if (2 * (clock - before) < A_MOMENT_S) group = AN_MIN(2 * group, most);
        before = clock;
        AN_TRY(hand_out(err, t, now, sink, arg, out, &more));
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
    text t = {.r = r, .decoder = d, .o = o, .S = d->context(settings)};
    t.seen = malloc((size_t)(2 * t.S) * sizeof *t.seen);
    an_status status = t.seen ? round_weights(err, r->cx)
                              : an_fail(err, AN_E_NOMEM, "no memory for a context of %lld tokens", (long long)t.S);
    if (status == AN_OK) {
        t.padded = t.seen + t.S;
        t.n = AN_MIN((int64_t)n_prompt, t.S); /* a longer prompt keeps its last S tokens */
        memcpy(t.seen, prompt + n_prompt - (size_t)t.n, (size_t)t.n * sizeof *t.seen);
        status = draw_all(err, &t, sink, arg, out);
    }
    free(t.seen);
    return status;
}
