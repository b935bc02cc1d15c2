/* pt2_model.h: an opened file and its parameters in a context, as import.c and pt2_call.c see them.
 *
 * Owns: the two structs behind anneal_import.h. */
#ifndef AN_IMPORT_PT2_MODEL_H
#define AN_IMPORT_PT2_MODEL_H

#include "import/pt2_fold.h"
#include <anneal_import.h>

enum { AN_PROGRAM_TRAIN, AN_PROGRAM_EVAL, AN_PROGRAMS };

struct an_import {
    an_pt2 archive;
    an_pt2_graph graph[AN_PROGRAMS];
    bool has_eval, resolved;
    int32_t *parameters, *buffers, n_parameters, n_buffers; /* indices of the archive's tensors */
};

/* A buffer of integers, which the caller has wider than this library. */
typedef struct an_mirror {
    int32_t tensor; /* of the archive */
    int entry;      /* of an_persist_get, when it was last looked for */
    an_import_array array;
} an_mirror;

struct an_import_model {
    an_import *file;
    an_ctx *cx;
    an_tensor **tensor; /* of each tensor of the archive: its parameter or state */
    an_folder *fold[AN_PROGRAMS];
    an_built_value *value; /* scratch of a build */
    an_pt2_number *symbol;
    an_mirror *mirror;
    int n_mirrors, cap_mirrors;
    an_import_mode mode; /* of calls */
    uint64_t calls;      /* of an_import_call, and what they cost */
    int64_t copies, copied_bytes, launches, peak_bytes;
};

/* an_import_build with the order of axes of each input and result: true is channels last, as in import/pt2_build.h. `last_out` NULL:
 * results in the plain order. */
an_status an_import_build_as(an_import_model *m, an_import_mode mode, an_tensor *const *in, const bool *last_in,
                             an_tensor **out, bool *last_out, char why[AN_IMPORT_WHY]);

#endif
