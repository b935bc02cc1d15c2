/* imported.h: the model that an archive of torch.export describes (anneal_import.h), as a row of the registry.
 *
 * Owns:      its settings: where the graph is, which loss is trained, and a summary of the graph's inputs that
 *            an_model.settle fills in.
 * Does not:  read data.
 *
 * The graph is read from the archive; of a checkpoint from the description beside its weights, so that a run goes on
 * without the archive. */
#ifndef AN_MODELS_IMPORTED_IMPORTED_H
#define AN_MODELS_IMPORTED_IMPORTED_H

#include "models/model.h"

enum { AN_IMPORTED_INPUTS = AN_MAX_ARRAYS - 1, AN_IMPORTED_NAME = 64 };

typedef struct an_imported_array {
    char name[AN_IMPORTED_NAME];
    an_dtype dtype;
    an_shape shape; /* as exported */
    int64_t limit;
    bool free; /* its first axis may have any length */
} an_imported_array;

typedef struct an_imported_settings {
    char file[AN_CONFIG_TEXT_BYTES], loss[AN_CONFIG_TEXT_BYTES];
    int64_t ignore;
    /* ---- not keys: settled */
    char source[1024]; /* the archive, or the checkpoint that has the description */
    int64_t n_inputs;
    an_imported_array input[AN_IMPORTED_INPUTS], label; /* label: of rank 0 where the loss is an output */
    bool classes_last;                                  /* [B,T,V]: else axis 1 has the classes */
    int64_t parameters, largest;
} an_imported_settings;

extern const an_model an_imported_model;

#endif
