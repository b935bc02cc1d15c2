/* gpt_model.h: GPT's entry in the model registry, and its settings. */
#ifndef AN_MODELS_GPT_GPT_MODEL_H
#define AN_MODELS_GPT_GPT_MODEL_H

#include "models/gpt/gpt.h"
#include "models/model.h"

typedef struct an_gpt_settings {
    int64_t vocab_size, block_size, n_layer, n_head, n_embd;
    double dropout;
    bool bias;
    char gelu[AN_CONFIG_TEXT_BYTES];
} an_gpt_settings;

extern const an_model an_gpt_model;

an_gpt_config an_gpt_config_from(const an_gpt_settings *s);

/* GPT-2's published weights: see an_weight_formats. */
bool an_gpt_is_published(const char *name);
an_status an_gpt_open_published(an_err *err, const char *name, void *settings, bool shape_only, an_st **out);
/* Copies the shape from the settings `from` of a weight file. A smaller block_size is kept: only the first rows of the
 * position table are loaded. */
an_status an_gpt_adopt(an_err *err, const void *from, const char *name, void *settings);

#endif
