/* anneal_nn.h: layers made of several operations, learning rate schedules and token samplers, for programs that use
 * anneal.h.
 *
 * Schedules and samplers are host arithmetic in IEEE double with functions of our own, so that a schedule or a drawn
 * token has the same bits on every machine, whatever its mathematics library.
 */
#ifndef ANNEAL_NN_H
#define ANNEAL_NN_H

#include <anneal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers */

/* SwiGLU (Shazeer, "GLU variants improve transformer", 2020): (silu(x g^T) * (x u^T)) down^T. x [...,C]; gate_up [2I,C]
 * holds g above u; down [C',I]; no biases; in the policy's matmul dtype. Built so that the gate is applied where the
 * second product is computed, and its gradient where the product behind it is: no pass over [...,I] of its own. */
#define an_swiglu(x, gate_up, down) an_swiglu_at(AN_AT, x, gate_up, down)
AN_API an_tensor *an_swiglu_at(const char *at, an_tensor *x, an_tensor *gate_up, an_tensor *down);

/* Its gate alone, of columns: silu(g) * u of [g; u] = gate_up x, [I,n]. x [C,n], of gate_up's dtype [2I,C]: g and u are the
 * upper and the lower half of one product's rows. */
#define an_swiglu_columns(gate_up, x) an_swiglu_columns_at(AN_AT, gate_up, x)
AN_API an_tensor *an_swiglu_columns_at(const char *at, an_tensor *gate_up, an_tensor *x);

/* ---- schedules */

/* Linear warm-up, then half a cosine down to `min_lr`, then constant (Loshchilov and Hutter, "SGDR", ICLR 2017, in
 * nanoGPT's form). With `it` counted from 0 and r = (it - warmup) / (decay - warmup):
 *
 *    - it < warmup: lr (it + 1) / (warmup + 1)
 *    - it > decay, or decay <= warmup: min_lr
 *    - else: min_lr + (1 + cos(pi r)) / 2 (lr - min_lr)
 *
 * `constant` keeps lr throughout. */
typedef struct an_lr_schedule {
    double lr, min_lr;
    int64_t warmup, decay;
    bool constant;
} an_lr_schedule;
AN_API double an_lr_at(const an_lr_schedule *s, int64_t it);

/* cos(pi r) and exp(x) in double, within 2 ulp for |r| <= 1 and for x <= 0 (below -708: 0): what schedules and samplers
 * use. */
AN_API double an_cospi(double r);
AN_API double an_exp_host(double x);

/* ---- token sampling */

typedef struct an_sampler_options {
    double temperature; /* 0: always the most probable token */
    int64_t top_k;      /* keep the k most probable (ties with the k-th too); 0: all */
    double top_p; /* then keep the fewest most probable whose probabilities reach p (Holtzman et al., ICLR 2020); 0 or
                     1: all */
    uint64_t seed;
} an_sampler_options;

typedef struct an_sampler an_sampler;

/* NULL: no memory, or options that mean nothing (a negative or NaN temperature, top_p outside [0,1], n_tokens < 1). */
AN_API an_sampler *an_sampler_open(const an_sampler_options *o, int64_t n_tokens);
AN_API void an_sampler_close(an_sampler *s);
/* Draws from softmax(logits / temperature). A pure function of (options, logits, draw): `draw` numbers the random
 * numbers, one a token. Returns the token, or -1 when a logit is NaN or none is finite. */
AN_API int64_t an_sampler_next(an_sampler *s, const float *logits, uint64_t draw);

#ifdef __cplusplus
}
#endif
#endif
