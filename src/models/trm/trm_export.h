/* trm_export.h: checkpoints for TinyRecursiveModels' own programs: the state dict that its pretrain.py saves as step_N, by
 * torch.save, and the all_config.yaml beside it from which its programs build the model.
 *
 * Owns:      names (with torch.compile's prefix or without), what its modules have and ours do not (a head of its own
 *            where ours is tied, the untrained Q head of a causal model), the settings under its names.
 * Does not:  know the archive (io/formats/torch_write.h). */
#ifndef AN_MODELS_TRM_TRM_EXPORT_H
#define AN_MODELS_TRM_TRM_EXPORT_H

#include "io/config/config.h"
#include "io/formats/safetensors.h"

/* Whether a tensor of a checkpoint is one of the model's parameters or states that other programs have too. */
bool an_trm_is_weight(const char *name);
/* all_config.yaml of the settings of a run (an_weight_formats.settings). */
an_status an_trm_settings_text(an_err *err, const char *from, const char *json, const char *state, an_text *out);
/* `prefix` comes before each name: "model.inner." or "_orig_mod.model.inner.". */
an_status an_trm_export_torch(an_err *err, const an_st *st, const char *prefix, const char *path);

#endif
