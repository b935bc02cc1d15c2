/* generate.h: text from a model, token by token, with a key-value cache.
 *
 * Prefill: the prompt goes through the model in one pass, padded to a power of two, so that few plans serve all
 * lengths. Decode: each further token is one pass over the KV cache, at the end of which it is drawn on the device
 * (an_draw), for the next pass to begin with. On a device that has several steps in flight the host reads up to 16
 * tokens at a time, as many as are drawn in 20 ms, and waits for nothing else; tokens drawn past the end of a text
 * are thrown away. When the context is full, its older half is dropped and the newer half is prefilled anew. (nanoGPT
 * shifts by one and recomputes everything for every token: the same text up to the first full context, much slower
 * after it.) */
#ifndef AN_INFER_GENERATE_H
#define AN_INFER_GENERATE_H

#include "train/session.h"
#include <anneal_nn.h>

typedef struct an_generate_options {
    an_sampler_options sampler;
    int64_t tokens;  /* how many to draw */
    int64_t texts;   /* from the same prompt, drawn together, a pass of the model for a token of each; 0: one */
    uint32_t sample; /* index of the first among several texts of one seed: each draws its own random numbers */
} an_generate_options;

enum { AN_MOST_TEXTS = 1024 }; /* at a time */

/* Called with each token of text `text` (from 0); returning false ends that text. */
typedef bool (*an_token_sink)(void *arg, int64_t text, int32_t id);

typedef struct an_generate_result {
    int64_t tokens;            /* drawn, of all texts */
    double prompt_s, tokens_s; /* until the first token; for the others */
    int64_t group;             /* tokens of a text that were read with the newest one */
} an_generate_result;

/* Draws o->tokens tokens after the prompt, of which the last ones are used where it is longer than the context. AN_E_USAGE:
 * the model generates no text, or the prompt is empty. AN_E_NUMERIC: the logits are not finite. */
an_status an_generate(an_err *err, an_session *r, const an_generate_options *o, const int32_t *prompt, size_t n_prompt,
                      an_token_sink sink, void *arg, an_generate_result *out);

#endif
