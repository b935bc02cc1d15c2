/* compose.h: the formulas of compose.c, compose_nn.c and compose_attention.c, between resolved tensors. Private to src/graph.
 * Masks have bit i for axis i. [O,R,I] formulas work over axis 1. */
#ifndef AN_GRAPH_COMPOSE_H
#define AN_GRAPH_COMPOSE_H

#include "graph/build.h"

an_tensor *an_wide(an_tensor *a); /* bf16 and f16 as f32, others as they are */
/* What the policy makes of operands of dtypes a and b: its dtype, save that equal dtypes stay under the default f32, and f64 stays f64. */
an_dtype an_policy_dtype(const an_tensor *a, const an_tensor *b);
an_rule *an_graph_new_rule(an_graph *g); /* NULL: no memory, recorded */

an_tensor *an_mean_of(an_tensor *a, uint32_t mask, bool keep);
an_tensor *an_var_of(an_tensor *a, uint32_t mask, bool keep);
an_tensor *an_min_of(an_tensor *a, uint32_t mask, bool keep);
an_tensor *an_lse_of(an_tensor *x);                                    /* [O,R,I] to [O,1,I] */
an_tensor *an_lse_of_any(an_tensor *x);                                /* the same for infinite elements too */
an_tensor *an_softmax_of(an_tensor *x);                                /* [O,R,I] */
an_tensor *an_stablemax_loss_of(an_tensor *logits, an_tensor *labels); /* the same */
an_tensor *an_cross_entropy_of(an_tensor *logits, an_tensor *labels);  /* [N,V,1], [N,1,1] to [N,1,1] */

an_tensor *an_relu_of(an_tensor *a);
an_tensor *an_gelu_of(an_tensor *a);
an_tensor *an_gelu_tanh_of(an_tensor *a);
an_tensor *an_silu_of(an_tensor *a);
an_tensor *an_softplus_of(an_tensor *a);
an_tensor *an_square_of(an_tensor *a);
an_tensor *an_clamp_of(an_tensor *a, double low, double high);
an_tensor *an_dropout_of(an_tensor *a, double p);
/* k or v [B,G,S,D] as [B,heads,S,D], G a divisor of heads: each of its heads heads / G times, one behind the other. */
an_tensor *an_repeat_heads(an_tensor *k, int32_t heads);

#endif
