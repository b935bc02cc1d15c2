/* trm_weights.h: reads and writes TinyRecursiveModels' state dicts, from torch.save or safetensors.
 *
 * Owns:      their names (with torch.compile's and the loss head's prefixes, or without), the settings that shapes imply
 *            and all_config.yaml beside the file states.
 * Does not:  know formats (io/formats/torch_file.h) or graphs.
 * Invariant: a tensor that the model does not have, and one that the file lacks, are errors. */
#ifndef AN_MODELS_TRM_TRM_WEIGHTS_H
#define AN_MODELS_TRM_TRM_WEIGHTS_H

#include "io/formats/safetensors.h"

/* Whether a file without settings of ours is a state dict of this model. */
bool an_trm_weights_are_ours(const an_st *raw);
/* As an_weight_formats says (models/model.h). */
an_status an_trm_weights_import(an_err *err, an_st *raw, an_st **out);
an_status an_trm_weights_write(an_err *err, const an_st *st, const char *layout, const char *path);

#endif
