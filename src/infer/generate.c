/* generate.c: prefill, decode with a KV cache, and draw (an_draw: temperature, top-k, top-p): see generate.h.
 *
 * Invariant: a drawn token goes to the next run of the model through a state, never through the host, which only reads.
 * The step of a token is built once and run again with other numbers, until a prefill comes between. */
#include "infer/generate.h"
#include <anneal_decode.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 16 }; /* the most tokens of a text that are drawn before the host reads them */
/* How long a group of tokens may take: a screen shows that much in one or two frames. */
static const double GROUP_SECONDS = 0.02;

/* The graph of a prefill, or of decoding one token of each text. Its scalars are inputs, which later tokens change. */
typedef struct step {
    an_tensor *next;     /* i32 [GROUP,B]: the group's tokens, those drawn now included; NULL: no graph is built */
    an_tensor *number;   /* i32 [2]: what the random draw is a function of */
    an_tensor *place;    /* row of `next` that is written */
    an_tensor *position; /* of the token in its context */
    an_tensor *n_keys;   /* position + 1 */
} step;

/* One text, or several from one prompt that are drawn together and have equal lengths. */
typedef struct text {
    an_session *r;
    const an_decoder *decoder;
    const an_generate_options *o;
    int64_t S, B;           /* the longest context; texts */
    int32_t *seen, *padded; /* [B,S] the contexts; [B,S] the prefill's input, padded to a power of two */
    int64_t n;              /* tokens in a context; the newest may not have gone through the model yet */
    bool slid;              /* the context was full and its older half was dropped: the next step is a prefill */
    int64_t drawn;          /* tokens of a text so far */
    int32_t *fresh;         /* [GROUP,B] the newest of them */
    bool *ended;            /* [B] */
    int64_t n_ended;
    step step;
} text;

/* The state `what` of this number of texts: each number has states of its own, since their shapes differ. */
static an_tensor *state(const text *t, const char *what, an_shape shape)
{
    char name[64];
    if (t->B == 1)
        snprintf(name, sizeof name, "generate.%s", what);
    else
        snprintf(name, sizeof name, "generate%d.%s", (int)t->B, what);
    return an_state(t->r->cx, name, AN_I32, shape, AN_ZEROS);
}

/* i32 [B,1]: the newest token of each text, which the next decoding step reads. */
static an_tensor *token_state(const text *t)
{
    return state(t, "token", AN_SHAPE(t->B, 1));
}

/* What the random numbers of token `at` of the group are a function of: sample and token. */
static void draw_number(const text *t, int64_t at, int32_t number[2])
{
    number[0] = (int32_t)t->o->sample;
    number[1] = (int32_t)(t->drawn + at);
}

/* Builds what follows `logits` ([V] or [B,V]) in a step: the tokens drawn from them, number `at` of a group. */
static void build_draw(text *t, an_tensor *logits, int64_t at)
{
    an_ctx *cx = t->r->cx;
    const an_sampler_options *o = &t->o->sampler;
    int32_t number[2];
    const an_shape all = AN_SHAPE(GROUP, t->B);
    draw_number(t, at, number);
    t->step.number = an_input(cx, AN_I32, AN_SHAPE(2), number);
    t->step.place = an_scalar_i32(cx, (int32_t)at);
    an_tensor *id = an_draw(logits, t->step.number, o->temperature, o->top_k, o->top_p, o->seed);
    an_tensor *group = state(t, "group", all),
              *here = an_eq(an_iota(cx, AN_SHAPE(GROUP, 1), 0), t->step.place); /* bool [GROUP,1] */
    an_tensor *where = an_expand(here, all), *ids = an_expand(an_reshape(id, AN_SHAPE(1, t->B)), all);
    t->step.next = an_where(where, ids, group);
    an_assign(group, t->step.next);
    an_tensor *only = an_reshape(id, AN_SHAPE(t->B, 1));
    an_assign(token_state(t), only);
}

static void drop_step(text *t)
{
    an_reset(t->r->cx);
    t->step = (step){.next = NULL};
}

/* Ends a step that returned `status`; after the last one of a group waits for the device and reads the group's tokens. */
static an_status take(an_err *err, text *t, an_status status, bool last)
{
    if (status == AN_OK && last) status = an_read(t->step.next, t->fresh, (size_t)(GROUP * t->B) * sizeof *t->fresh);
    return an_session_result(err, t->r->cx, status);
}

/* Runs the full contexts in one pass, padded to a power of two so that few plans serve all lengths. */
static an_status prefill(an_err *err, text *t)
{
    an_ctx *cx = t->r->cx;
    int64_t P = 16;
    while (P < t->n) P *= 2;
    P = AN_MIN(P, t->S);
    memset(t->padded, 0, (size_t)(t->B * P) * sizeof *t->padded);
    for (int64_t b = 0; b < t->B; b++) memcpy(t->padded + b * P, t->seen + b * t->S, (size_t)t->n * sizeof *t->padded);
    drop_step(t);
    an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(t->B, P), t->padded); /* [B,P] */
    an_tensor *last = an_scalar_i32(cx, (int32_t)(t->n - 1));
    build_draw(t, t->decoder->prefill(t->r->model, tokens, last), 0);
    t->slid = false;
    const an_status status = take(err, t, an_eval(t->step.next), true);
    drop_step(t);
    return status;
}

/* The step of the token at `position`, number `at` of its group: built, or given other numbers. */
static an_status run_token(text *t, int32_t position, int64_t at)
{
    an_ctx *cx = t->r->cx;
    step *s = &t->step;
    int32_t number[2];
    if (!s->next) {
        s->position = an_scalar_i32(cx, position);
        s->n_keys = an_scalar_i32(cx, position + 1);
        build_draw(t, t->decoder->decode(t->r->model, token_state(t), s->position, s->n_keys), at);
        return an_eval(s->next);
    }
    draw_number(t, at, number);
    AN_TRY(an_set_scalar(s->position, position));
    AN_TRY(an_set_scalar(s->n_keys, position + 1));
    AN_TRY(an_set_scalar(s->place, (double)at));
    AN_TRY(an_set_input(s->number, number));
    return an_eval_again(cx);
}

/* Draws `group` tokens of each text, one step after the other; the keys and values of all earlier tokens are cached. */
static an_status decode(an_err *err, text *t, int64_t group)
{
    for (int64_t i = 0; i < group; i++) AN_TRY(take(err, t, run_token(t, (int32_t)(t->n - 1 + i), i), i + 1 == group));
    return AN_OK;
}

/* Appends one token to each text. A full context first drops its older half. */
static void append(text *t, const int32_t *id)
{
    t->slid = t->n == t->S;
    const int64_t kept = t->slid ? t->S / 2 : t->n;
    for (int64_t b = 0; b < t->B; b++) {
        int32_t *seen = t->seen + b * t->S;
        if (t->slid) memmove(seen, seen + (t->S - kept), (size_t)kept * sizeof *seen);
        seen[kept] = id[b];
    }
    t->n = kept + 1;
}

/* Gives the group's tokens to the sink; *more: some text goes on. */
static an_status hand_out(an_err *err, text *t, int64_t group, an_token_sink sink, void *arg, an_generate_result *out,
                          bool *more)
{
    *more = true;
    out->group = group;
    for (int64_t i = 0; i < group && *more; i++) {
        const int32_t *id = t->fresh + i * t->B;
        for (int64_t b = 0; b < t->B; b++) {
            if (t->ended[b]) continue;
            if (id[b] < 0)
                return an_fail(err, AN_E_NUMERIC, "token %lld: the logits are not finite; check that the weights are",
                               (long long)t->drawn);
            out->tokens++;
            t->ended[b] = !sink(arg, b, id[b]);
            t->n_ended += t->ended[b];
        }
        *more = ++t->drawn < t->o->tokens && t->n_ended < t->B;
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
        if (2 * (clock - before) < GROUP_SECONDS) group = AN_MIN(2 * group, most);
        before = clock;
        AN_TRY(hand_out(err, t, now, sink, arg, out, &more));
    }
    return AN_OK;
}

/* Rounds the weights to the GEMMs' dtype once, since each token reads all of them: half the bytes. Where memory does not
 * suffice for both copies, every step rounds them again, with the same result. */
static an_status round_weights(an_err *err, an_ctx *cx)
{
    const an_status status = an_round_weights(cx, true);
    if (status != AN_E_NOMEM) return an_session_result(err, cx, status);
    an_error_clear(cx);
    return AN_OK;
}

static an_status make_room(an_err *err, text *t)
{
    const size_t ids = (size_t)(t->B * (2 * t->S + GROUP)) * sizeof *t->seen;
    t->seen = malloc(ids + (size_t)t->B * sizeof *t->ended);
    if (!t->seen) return an_fail_nomem(err, "the contexts", ids);
    t->padded = t->seen + t->B * t->S;
    t->fresh = t->padded + t->B * t->S;
    t->ended = (bool *)(t->fresh + GROUP * t->B);
    memset(t->ended, 0, (size_t)t->B * sizeof *t->ended);
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
    text t = {.r = r, .decoder = d, .o = o, .S = d->context(settings), .B = AN_MAX(o->texts, 1)};
    if (t.B > AN_MOST_TEXTS || (t.B > 1 && !d->together))
        return an_fail(err, AN_E_USAGE, "%lld texts at a time: a model of kind %s draws at most %d", (long long)t.B,
                       r->cfg.model->name, d->together ? AN_MOST_TEXTS : 1);
    an_status status = make_room(err, &t);
    if (status == AN_OK) status = round_weights(err, r->cx);
    if (status == AN_OK) {
        t.n = AN_MIN((int64_t)n_prompt, t.S); /* a longer prompt keeps its last S tokens */
        for (int64_t b = 0; b < t.B; b++)
            memcpy(t.seen + b * t.S, prompt + n_prompt - (size_t)t.n, (size_t)t.n * sizeof *t.seen);
        status = draw_all(err, &t, sink, arg, out);
        drop_step(&t);
    }
    free(t.seen);
    return status;
}
