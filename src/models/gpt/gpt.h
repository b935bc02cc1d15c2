/* gpt.h: the GPT-2 language model as nanoGPT writes it (github.com/karpathy/nanoGPT, model.py; Radford et al. 2019):
 * same mathematics, same initialisation, same parameter names, so that weights move between the two.
 *
 * Owns:      the parameters' tensors, the forward pass, the key-value cache of decoding.
 * Does not:  know data, optimizers, checkpoints or text.
 * Letters:   B batch, T positions of this call, S positions of the model, C width, H heads, D = C / H, V vocabulary.
 */
#ifndef AN_MODELS_GPT_GPT_H
#define AN_MODELS_GPT_GPT_H

#include <anneal.h>

typedef struct an_gpt_config {
    int64_t vocab; /* V */
    int64_t block; /* S, the longest context */
    int64_t layers;
    int64_t heads;  /* H */
    int64_t width;  /* C, a multiple of H */
    double dropout; /* one rate for every site; in training only */
    bool bias;      /* of linear layers and layer norms */
    bool gelu_tanh; /* GELU by tanh, as OpenAI's GPT-2 has it; else by erf, as nanoGPT */
} an_gpt_config;

typedef struct an_gpt an_gpt;

/* NULL when the numbers make a model, else what is wrong with them (a constant sentence). */
const char *an_gpt_fault(const an_gpt_config *c);

/* Creates the parameters in `cx`. NULL: no memory or a faulty config. The context must outlive the model. */
an_gpt *an_gpt_open(an_ctx *cx, const an_gpt_config *c);
void an_gpt_close(an_gpt *m);
const an_gpt_config *an_gpt_config_of(const an_gpt *m);

/* tokens and labels i32 [B,T], T <= S: cross entropy of every position, f32 [B,T]. Dropout only when `training`. */
an_tensor *an_gpt_losses(an_gpt *m, an_tensor *tokens, an_tensor *labels, bool training);
/* tokens i32 [B,T]: f32 [B,T,V], without dropout. */
an_tensor *an_gpt_logits(an_gpt *m, an_tensor *tokens);

/* Decoding with a cache, of B sequences of one length. Both write keys and values to the states kv.h.I.k and kv.h.I.v
 * ([1,S,C]; of several sequences kvB.h.I.k, [B,S,C]) and return the logits of the next token, f32 [V], or [B,V] of
 * several.
 *
 *     prefill   tokens i32 [B,P] start sequences; `last` (i32 scalar) is the index of the last token, padding follows
 *     decode    token i32 [B,1] is at `position` (i32 scalar, < S), after `position` earlier tokens;
 *               n_keys = position + 1 */
an_tensor *an_gpt_prefill(an_gpt *m, an_tensor *tokens, an_tensor *last);
an_tensor *an_gpt_decode(an_gpt *m, an_tensor *token, an_tensor *position, an_tensor *n_keys);

/* Numbers of parameters: all, and the count nanoGPT prints, which leaves out the position table. */
int64_t an_gpt_parameters(const an_gpt_config *c);
int64_t an_gpt_parameters_printed(const an_gpt_config *c);
/* Floating-point operations of one training step on B sequences of T tokens: (6 n + 12 L C T) B T, n the parameters
 * that GEMMs read (Chowdhery et al., "PaLM", 2022, appendix B; attention counted in full although half of it
 * is masked). */
double an_gpt_flops(const an_gpt_config *c, int64_t B, int64_t T);

#endif
