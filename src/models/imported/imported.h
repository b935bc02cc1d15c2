/* imported.h: a model that was imported from PyTorch (anneal_import.h), as a row of the model table.
 *
 * Owns:      its settings: the file of the graph, the loss, and a summary of the graph's inputs, which
 *            an_model.settle fills in.
 * Does not:  read data.
 *
 * A new run reads the graph from the archive. A resumed one reads it from the description in its checkpoint, so that it
 * does not need the archive. */
#ifndef AN_MODELS_IMPORTED_IMPORTED_H
#define AN_MODELS_IMPORTED_IMPORTED_H

#include "models/model.h"

enum { AN_IMPORTED_INPUTS = AN_MAX_ARRAYS - 1, AN_IMPORTED_NAME = 64 };

typedef struct an_imported_array {
    char name[AN_IMPORTED_NAME];
    an_dtype dtype;
    an_shape shape; /* as exported */
    int64_t limit;
    bool first_axis_free; /* of any length (a dynamic shape): an_import_entry.first_axis_free */
} an_imported_array;

typedef struct an_imported_settings {
    char file[AN_CONFIG_TEXT_BYTES], loss[AN_CONFIG_TEXT_BYTES];
    int64_t ignore;
    /* ---- no keys; filled in by settle */
    char source[1024]; /* the archive, or the checkpoint that has the description */
    int64_t n_inputs;
    an_imported_array input[AN_IMPORTED_INPUTS], label; /* label: of rank 0 where the loss is an output */
    bool classes_last;                                  /* [B,T,V]: else axis 1 has the classes */
    int64_t parameters, largest;
    bool noted; /* an_import_note has something to say of the file */
} an_imported_settings;

extern const an_model an_imported_model;

#endif
