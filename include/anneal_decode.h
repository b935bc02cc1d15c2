/* anneal_decode.h: tokens drawn in the graph, so that a program which generates text need not wait for each of them. */
#ifndef ANNEAL_DECODE_H
#define ANNEAL_DECODE_H

#include <anneal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A token a row, i32 [...], of logits f32 [...,V] with V <= 2^22: at temperature 0 the first of the largest, else drawn
 * from softmax(logits / temperature), of the top_k largest (0: of all) and of the fewest of those whose probabilities
 * reach top_p (Holtzman et al., ICLR 2020; 0 or 1: all); ties with the last that is kept are kept. -1: a logit is NaN,
 * or none is above -inf. A function of its arguments, the same on every device; number, i32 [2], is of the text (row r
 * draws as text number[0] + r) and of the token. Probabilities are multiples of 2^-40 of the largest. Random numbers
 * are not an_sampler_next's. */
#define an_draw(logits, number, temperature, top_k, top_p, seed)                                                       \
    an_draw_at(AN_AT, logits, number, temperature, top_k, top_p, seed)
AN_API an_tensor *an_draw_at(const char *at, an_tensor *logits, an_tensor *number, double temperature, int64_t top_k,
                             double top_p, uint64_t seed);

/* How many steps an_eval may leave under way: 1 where it returns when the work is done. Where it is more, a program
 * that reads what it drew only after some steps does not keep the device waiting. */
AN_API int an_steps_in_flight(const an_ctx *cx);

/* Runs the step of the last an_eval once more, as it was built: no graph is built and no plan looked up, which takes as
 * long as a token of a small model. What the two functions below gave is read, assignments take effect again, and the
 * same tensors can be read. AN_E_USAGE: nothing has run since an_reset, or something was built since, or the step has
 * gradients. */
AN_API an_status an_eval_again(an_ctx *cx);

/* The number that a scalar of an_scalar, an_scalar_f64 or an_scalar_i32, or the data that an input of an_input has from
 * the next step on; `data` is as long as that of an_input, and copied. */
AN_API an_status an_set_scalar(an_tensor *scalar, double x);
AN_API an_status an_set_input(an_tensor *input, const void *data);

#ifdef __cplusplus
}
#endif
#endif
