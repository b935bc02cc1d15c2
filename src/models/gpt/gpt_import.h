/* gpt_import.h: what gpt_weights.c (tensors), gpt_import.c (settings) and gpt_export.c share. */
#ifndef AN_MODELS_GPT_GPT_IMPORT_H
#define AN_MODELS_GPT_GPT_IMPORT_H

#include "io/formats/json.h"
#include "models/gpt/gpt_weights.h"

/* Metadata of files that anneal export wrote in another layout. */
#define AN_GPT_META_LAYOUT "anneal.layout" /* "hugging_face" */
#define AN_GPT_META_BIAS   "anneal.bias"   /* "false": the biases are zeros that the layout requires */

/* Finds c->heads: in the file, else in the config.json beside it, else width / 64. `values`: NULL unless the file is
 * torch.save's. */
an_status an_gpt_import_heads(an_err *err, const an_st *raw, const json_t *values, an_gpt_config *c);
/* The settings of the model, and those of nanoGPT's config that anneal has too, as JSON. */
void an_gpt_import_config(const an_gpt_config *c, const json_t *values, an_text *out);
/* {"step":iter_num,"best_val":...} of a ckpt.pt. */
void an_gpt_import_state(const an_st *raw, const json_t *values, an_text *out);

#endif
