/* train_case.h: a small GPT trained through the public interface, and one hash of all that persists: what the proofs
 * of tests/proof and the faults of tests/fault have in common.
 *
 * Invariants: batches are a function of the step alone, so that two contexts see the same data; a case with `micros`
 * micro-batches of B sequences sees what one batch of micros * B sees. */
#ifndef AN_TESTS_TRAIN_CASE_H
#define AN_TESTS_TRAIN_CASE_H

#include <anneal.h>
#include "base/map.h"
#include "base/rng.h"
#include "lib/test.h"
#include "models/gpt/gpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct train_case {
    int64_t B, T, C, L, H, V;
    an_dtype matmul; /* AN_F32 or AN_BF16 */
    double dropout;
    bool bias;
    int micros; /* 0 means 1 */
} train_case;

enum { CASE_TOKENS = 16384 }; /* the largest micros * B * T */

static inline an_gpt_config case_model(const train_case *c)
{
    return (an_gpt_config){.vocab = c->V,
                           .block = c->T,
                           .layers = c->L,
                           .heads = c->H,
                           .width = c->C,
                           .dropout = c->dropout,
                           .bias = c->bias};
}

/* An open context and model, or a status and the sentence in `err`. */
static inline an_status case_open(an_err *err, const train_case *c, const an_options *o, an_ctx **cx, an_gpt **m)
{
    const an_gpt_config model = case_model(c);
    *m = NULL;
    *cx = an_open(o);
    if (*cx == NULL) return an_fail(err, AN_E_NOMEM, "no memory for a context");
    an_set_policy(*cx, (an_policy){.matmul = c->matmul});
    if (!an_error(*cx)) *m = an_gpt_open(*cx, &model);
    if (an_error(*cx)) return an_fail(err, an_error_status(*cx), "%s", an_error(*cx));
    return *m ? AN_OK : an_fail(err, AN_E_NOMEM, "no memory for the model's tables");
}

static inline void case_close(an_ctx *cx, an_gpt *m)
{
    an_gpt_close(m);
    an_close(cx);
}

/* The loss of micro-batch `micro` of a step, with everything that the step does with it; NULL: see an_error. */
static inline an_tensor *case_build(an_ctx *cx, an_gpt *m, const train_case *c, int step, int micro)
{
    static int32_t x[CASE_TOKENS], y[CASE_TOKENS];
    const int64_t per = c->B * c->T, first = micro * per;
    const int micros = c->micros ? c->micros : 1;
    for (int64_t i = 0; i < per; i++) {
        const uint32_t r = an_rng_u32(7, (uint32_t)step, (uint64_t)(first + i));
        x[i] = (int32_t)(r % (uint32_t)c->V);
        y[i] = (int32_t)((r >> 8) % (uint32_t)c->V);
    }
    an_set_step(cx, (uint64_t)step);
    an_set_sample(cx, (uint64_t)(micro * c->B));
    an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(c->B, c->T), x); /* [B,T] */
    an_tensor *labels = an_input(cx, AN_I32, AN_SHAPE(c->B, c->T), y); /* [B,T] */
    an_tensor *loss = an_mean(an_gpt_losses(m, tokens, labels, true), AN_ALL);
    an_backward(micros > 1 ? an_mul_num(loss, 1.0 / micros) : loss);
    if (micro == micros - 1)
        an_adamw(cx, ((an_adamw_options){.lr = 1e-3,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .eps = 1e-8,
                                         .weight_decay = 0.1,
                                         .clip = 1.0,
                                         .t = step + 1}));
    return loss;
}

/* Steps [from, from + n). *loss: of the last micro-batch. */
static inline an_status case_train(an_err *err, an_ctx *cx, an_gpt *m, const train_case *c, int from, int n,
                                   double *loss)
{
    for (int step = from; step < from + n; step++)
        for (int micro = 0; micro < (c->micros ? c->micros : 1); micro++) {
            an_tensor *l = case_build(cx, m, c, step, micro);
            an_status status = an_eval(l);
            if (status == AN_OK && loss) *loss = an_item(l);
            if (status == AN_OK) status = an_error_status(cx);
            if (status != AN_OK) {
                an_fail(err, status, "%s", an_error(cx) ? an_error(cx) : "");
                an_reset(cx);
                return status;
            }
            an_reset(cx);
        }
    return AN_OK;
}

/* One hash over names and bytes of parameters and moments. */
static inline an_status case_hash(an_err *err, an_ctx *cx, uint64_t *out)
{
    uint64_t hash = 1;
    const int n = an_persist_count(cx);
    for (int i = 0; i < n; i++) {
        an_persist p;
        if (an_persist_get(cx, i, &p) != AN_OK) break;
        size_t bytes = an_dtype_size(p.dtype);
        for (int a = 0; a < p.shape.rank; a++) bytes *= (size_t)p.shape.dim[a];
        char *data = malloc(bytes + 1);
        if (!data) return an_fail_nomem(err, "a tensor", bytes);
        hash = an_hash(p.name, strlen(p.name), hash);
        if (an_persist_read(cx, i, data, bytes) == AN_OK) hash = an_hash(data, bytes, hash);
        free(data);
    }
    *out = hash;
    return an_error(cx) ? an_fail(err, an_error_status(cx), "%s", an_error(cx)) : AN_OK;
}

/* Opens, trains n steps, hashes, closes. */
static inline an_status case_run(an_err *err, const train_case *c, const an_options *o, int n, uint64_t *hash,
                                 double *loss)
{
    an_ctx *cx;
    an_gpt *m;
    an_status status = case_open(err, c, o, &cx, &m);
    if (status == AN_OK) status = case_train(err, cx, m, c, 0, n, loss);
    if (status == AN_OK) status = case_hash(err, cx, hash);
    case_close(cx, m);
    return status;
}

/* The same where nothing may fail. */
static inline uint64_t case_bits(const train_case *c, const an_options *o, int n, double *loss)
{
    an_err err = {0};
    uint64_t hash = 0;
    if (case_run(&err, c, o, n, &hash, loss) != AN_OK) fail_msg("%s", err.text);
    return hash;
}

#endif
