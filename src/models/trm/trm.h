/* trm.h: the network of TinyRecursiveModels (Jolicoeur-Martineau, "Less is more: recursive reasoning with tiny networks",
 * 2025): one small stack of layers, applied again and again to an answer z_H and a latent z_L.
 *
 *     z_L <- f(z_L, z_H + x)  L_cycles times,  then  z_H <- f(z_H, z_L)        a cycle, of which there are H_cycles
 *
 * where x is the embedded input and f(h, inject) the layers applied to h + inject. Only the last cycle is differentiated.
 *
 * Owns:      parameters and initial states under the original's names, embedding, layers, recursion, heads, and for
 *            conversations the key-value cache of decoding.
 * Does not:  know data, losses, halting (act.h) or files.
 * Letters:   B batch, S positions of the data, P of the puzzle embedding before them, L = P + S, D width, H heads,
 *            d = D / H rounded down, V vocabulary.
 * Invariants: parameters are of `dtype`; the stream is of the policy's matrix dtype, or float64 where the parameters are.
 *            Linear layers have no bias but q_head's; layers have no learned norm.
 */
#ifndef AN_MODELS_TRM_TRM_H
#define AN_MODELS_TRM_TRM_H

#include <anneal.h>

typedef enum an_trm_positions { AN_TRM_ROPE, AN_TRM_LEARNED, AN_TRM_NO_POSITIONS } an_trm_positions;

typedef struct an_trm_config {
    int64_t vocab, seq; /* V, S */
    int64_t puzzles;    /* rows of the puzzle table */
    int64_t width, heads, layers;
    double expansion; /* of SwiGLU: its inner width is expansion * width * 2/3, rounded up to a multiple of 256 */
    int64_t H_cycles, L_cycles;
    int64_t puzzle_width;  /* of a row of the puzzle table; 0: there is none */
    int64_t puzzle_length; /* positions that it takes; 0: as many as puzzle_width needs. Without a table: none */
    double norm_eps, rope_theta;
    an_trm_positions positions;
    bool mlp_t;     /* a SwiGLU over positions in place of attention */
    bool causal;    /* attention sees earlier positions only */
    bool tie_head;  /* the output head is the token embedding */
    int64_t steps;  /* supervision steps: calls that an answer takes at most (decoding: always) */
    an_dtype dtype; /* AN_F32, or AN_F64 for comparisons */
} an_trm_config;

typedef struct an_trm an_trm;

/* The answer and the latent, [B,L,D] each. */
typedef struct an_trm_state {
    an_tensor *z_H, *z_L;
} an_trm_state;

/* NULL when the numbers make a model, else what is wrong with them (a constant sentence). */
const char *an_trm_fault(const an_trm_config *c);

/* Creates parameters and states in `cx`. NULL: no memory or a faulty config. The context must outlive the model. */
an_trm *an_trm_open(an_ctx *cx, const an_trm_config *c);
void an_trm_close(an_trm *m);
const an_trm_config *an_trm_config_of(const an_trm *m);
an_ctx *an_trm_context(const an_trm *m);

int64_t an_trm_prefix(const an_trm_config *c); /* P */
int64_t an_trm_length(const an_trm_config *c); /* L */
an_dtype an_trm_stream_dtype(const an_trm *m); /* of states and activations */

/* The state puzzle_emb.weights [puzzles,puzzle_width]; NULL: there is none. */
an_tensor *an_trm_puzzle_table(const an_trm *m);

/* tokens i32 [B,S'] with S' <= S, rows [B,puzzle_width] of the puzzle table (NULL: zeros): x [B,P+S',D]. */
an_tensor *an_trm_embed(an_trm *m, an_tensor *tokens, an_tensor *rows);
/* H_init and L_init at every position: [1,1,D] each, to be broadcast. */
an_trm_state an_trm_initial(an_trm *m);
/* One supervision step: all cycles. No gradient reaches `z`, or what is before the last cycle. */
an_trm_state an_trm_call(an_trm *m, an_trm_state z, an_tensor *x);
/* Of the answer: the data's positions of z_H [B,S',D]; logits [B,S',V], f32 or f64; q [B,2] of the first position,
 * f32 or f64: halt and continue. Causal models have no use for q, whose position sees one token. */
an_tensor *an_trm_answer(an_trm *m, an_tensor *z_H);
an_tensor *an_trm_logits(an_trm *m, an_tensor *z_H);
an_tensor *an_trm_q(an_trm *m, an_tensor *z_H);
an_tensor *an_trm_head(const an_trm *m); /* [V,D] */

/* Decoding of causal models without a puzzle embedding, one sequence, all `steps` calls for each token. Each application
 * of a layer keeps keys and values of its own (kv.I.k and kv.I.v, [1,H,S,d]): steps * H_cycles * (L_cycles + 1) * layers
 * of them. As an_decoder says (models/model.h): logits f32 [V] of the next token. */
an_tensor *an_trm_prefill(an_trm *m, an_tensor *tokens, an_tensor *last);
an_tensor *an_trm_decode(an_trm *m, an_tensor *token, an_tensor *position, an_tensor *n_keys);

/* Parameters, without the puzzle table; elements of the largest; multiply-adds of a call's matrix products on one
 * sequence, counted 2 each. */
int64_t an_trm_parameters(const an_trm_config *c);
int64_t an_trm_largest(const an_trm_config *c);
double an_trm_call_flops(const an_trm_config *c);
int64_t an_trm_inner(double expansion, int64_t width); /* inner width of a SwiGLU */

#endif
