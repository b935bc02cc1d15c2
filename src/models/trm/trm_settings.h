/* trm_settings.h: reads the all_config.yaml that TinyRecursiveModels leaves beside a checkpoint.
 *
 * Owns:      which of its keys are settings of the model here, and where its data are.
 * Does not:  write it (trm_export.h), or read files of settings for a run (cli/trm_yaml.c).
 * Invariant: keys that are not known here (a class, a schedule) are passed over; a value that cannot be is an error with its line. */
#ifndef AN_MODELS_TRM_TRM_SETTINGS_H
#define AN_MODELS_TRM_TRM_SETTINGS_H

#include "models/trm/trm_model.h"

/* Sets what the file beside `path` says, and makes *data the list of its data_paths (an_list), nothing where it names none. */
an_status an_trm_settings_beside(an_err *err, const char *path, an_trm_settings *s, an_text *data);

#endif
