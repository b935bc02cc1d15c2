/* archive.h: a file of torch.export.save (PyTorch 2.9 and newer): its graphs as JSON, its tensors as bytes.
 *
 *     STEM/models/NAME.json                                   one exported program each ("model"; "eval" beside it)
 *     STEM/data/weights/{model_weights_config.json,weight_0}  parameters and buffers: a storage a file
 *     STEM/data/constants/{model_constants_config.json,...}   lifted constants, buffers that are not persistent
 *
 * Owns:      the members and what they say of tensors: dtype, shape, strides, offset, all checked against the storage.
 * Does not:  read pickles (tensors stored as such are refused, sample inputs are skipped) or know what a node means.
 *
 * A description is the archive without its bytes: one JSON text {"model":...,"eval":...,"weights":...,"constants":...}
 * that opens again. A checkpoint keeps it beside the tensors.
 *
 * Invariants: the file is untrusted; a tensor that is handed out lies in its storage; tensors of equal file, offset,
 * sizes and strides are one (`first`). */
#ifndef AN_IMPORT_ARCHIVE_H
#define AN_IMPORT_ARCHIVE_H

#include "base/arena.h"
#include "base/text.h"
#include "io/formats/json.h"
#include "io/formats/zip.h"
#include "platform/platform.h"

enum { AN_PT2_MAX_RANK = 8, AN_PT2_MAX_TENSORS = 1 << 16, AN_PT2_MAX_JSON_BYTES = 64 << 20, AN_PT2_TEXTS = 4 };

typedef struct an_pt2_tensor {
    const char *name;   /* as in state_dict */
    const char *file;   /* member of the archive, without its folder */
    int torch_dtype;    /* number of torch._export.serde's ScalarType */
    int64_t item_bytes; /* of an element of it */
    int rank;
    int64_t dim[AN_PT2_MAX_RANK], stride[AN_PT2_MAX_RANK], offset; /* in elements */
    bool constant;                                                 /* in data/constants */
    bool parameter, requires_grad;
    int32_t first;             /* index of the first tensor with these bytes; its own index: none before it */
    const an_zip_member *data; /* NULL: a description alone */
} an_pt2_tensor;

typedef struct an_pt2 {
    const char *path; /* for sentences; in the arena */
    an_arena arena;
    an_map_file map;
    an_zip zip;
    const char *folder; /* "stem/" */
    json_t *model, *eval, *weights_config, *constants_config;
    const an_zip_member *text[AN_PT2_TEXTS]; /* of these, in an archive */
    const char *description;                 /* the whole text, of a description */
    an_pt2_tensor *tensor;                   /* weights, then constants, each in the order of the file */
    int32_t n_tensors;
    bool has_data;
} an_pt2;

/* an_pt2_close also after a failure. */
an_status an_pt2_open(an_err *err, const char *path, an_pt2 *out);
an_status an_pt2_open_memory(an_err *err, const char *name, const void *data, size_t bytes, an_pt2 *out);
an_status an_pt2_open_description(an_err *err, const char *name, const char *json, size_t n, an_pt2 *out);
void an_pt2_close(an_pt2 *a);

/* The description as text; the caller frees it. */
an_status an_pt2_describe(an_err *err, const an_pt2 *a, an_text *out);

const an_pt2_tensor *an_pt2_find(const an_pt2 *a, const char *name, bool constant); /* NULL: none */
int64_t an_pt2_elements(const an_pt2_tensor *t);

/* What a dtype of PyTorch is inside: 64-, 16- and 8-bit integers are int32. False: there is none for it. */
bool an_pt2_dtype(int torch_dtype, an_dtype *out);
const char *an_pt2_dtype_name(int torch_dtype); /* "int64" */
size_t an_pt2_dtype_bytes(int torch_dtype);     /* of an element there; 0: not known */

/* The elements in C order, in the dtype above. An integer that int32 does not hold is AN_E_DATA. Compares the storage's
 * checksum. */
an_status an_pt2_read(an_err *err, const an_pt2 *a, const an_pt2_tensor *t, void *out);

/* A member of an object: {"as_int":3} and the like, whole numbers that fit, with a sentence that names `what`. */
an_status an_pt2_int(an_err *err, const an_pt2 *a, const char *what, const json_t *number, int64_t *out);

#endif
