/* gpt_names.h: the names, shapes and order of a GPT's parameters, as nanoGPT and Hugging Face's GPT-2 have them.
 *
 * Owns:      the table of a block's parts.
 * Does not:  read, transpose or check files (gpt_weights.h does).
 */
#ifndef AN_MODELS_GPT_GPT_NAMES_H
#define AN_MODELS_GPT_GPT_NAMES_H

#include "models/gpt/gpt.h"

enum { AN_GPT_NAME_BYTES = 128 };

/* Parameter `i` in the order of nanoGPT's state dict: wte, wpe, block by block, ln_f; false past the end. */
bool an_gpt_parameter_at(const an_gpt_config *c, int64_t i, char name[AN_GPT_NAME_BYTES], an_shape *shape);
/* One of the four matrices of a block, which Hugging Face keeps as [in,out]. */
bool an_gpt_is_conv1d(const char *name);

/* Whether some config has a parameter of this name. */
bool an_gpt_is_parameter(const char *name);

typedef enum an_gpt_name_kind {
    AN_GPT_NAME_PARAMETER, /* or an unknown name; `name` is its normal form */
    AN_GPT_NAME_HEAD,      /* lm_head.weight, the same matrix as wte */
    AN_GPT_NAME_BUFFER,    /* a causal mask, not a weight */
    AN_GPT_NAME_STRANGE    /* longer than any parameter's name */
} an_gpt_name_kind;

/* Classifies a tensor's name in a file, without or with "_orig_mod." (torch.compile) and "transformer.". */
an_gpt_name_kind an_gpt_name_read(const char *given, char name[AN_GPT_NAME_BYTES]);

#endif
