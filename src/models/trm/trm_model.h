/* trm_model.h: TRM's row of the model table, and its settings under TinyRecursiveModels' names. */
#ifndef AN_MODELS_TRM_TRM_MODEL_H
#define AN_MODELS_TRM_TRM_MODEL_H

#include "models/model.h"
#include "models/trm/act.h"
#include "models/trm/trm.h"

typedef struct an_trm_settings {
    int64_t vocab_size, seq_len, puzzles; /* 0: as the data has it */
    int64_t hidden_size, num_heads, L_layers, H_cycles, L_cycles, halt_max_steps;
    int64_t puzzle_emb_ndim, puzzle_emb_len; /* ndim -1: hidden_size */
    double expansion, rms_norm_eps, rope_theta, halt_exploration_prob, puzzle_emb_lr, puzzle_emb_weight_decay;
    char pos_encodings[AN_CONFIG_TEXT_BYTES], loss_type[AN_CONFIG_TEXT_BYTES], eval_ids[AN_CONFIG_TEXT_BYTES];
    bool mlp_t, causal, tie_head, no_ACT_continue, eval_halt;
    int64_t eval_steps; /* 0: halt_max_steps */
} an_trm_settings;

an_trm_config an_trm_config_from(const an_trm_settings *s);
int64_t an_trm_calls(const an_trm_settings *s); /* of an evaluation, on each batch */

extern const an_model an_trm_model;

#endif
