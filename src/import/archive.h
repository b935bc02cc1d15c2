/* archive.h: reads a .pt2 archive, as torch.export.save writes it (PyTorch 2.9 and newer): a zip file of graphs as JSON and
 * of tensors as bytes.
 *
 *     STEM/models/NAME.json                                   an exported program ("model", and optionally "eval")
 *     STEM/data/weights/{model_weights_config.json,weight_0}  parameters and buffers, one file for each storage
 *     STEM/data/constants/{model_constants_config.json,...}   lifted constants, and buffers that are not persistent
 *
 * Owns:      the members of the archive, and the dtype, shape, strides and offset of each tensor, checked against its storage.
 * Does not:  read pickles (a tensor stored as one is refused, sample inputs are skipped) or know what a node means.
 *
 * A *description* is the archive without the tensors' bytes, as one JSON text that can be opened like the archive:
 * {"model":...,"eval":...,"weights":...,"constants":...}. A checkpoint keeps it beside its own tensors.
 *
 * Invariants: the file is untrusted; every tensor that is handed out lies inside its storage; tensors with the same file,
 * offset, sizes and strides are one tensor (tied weights: `first`). */
#ifndef AN_IMPORT_ARCHIVE_H
#define AN_IMPORT_ARCHIVE_H

#include "base/arena.h"
#include "base/text.h"
#include "io/formats/json.h"
#include "io/formats/zip.h"
#include "platform/platform.h"

enum {
    AN_PT2_MAX_RANK = 8,
    AN_PT2_MAX_TENSORS = 1 << 16,
    AN_PT2_MAX_JSON_BYTES = 64 << 20,
    AN_PT2_TEXTS = 4,
    AN_PT2_MINOR = 20 /* of schema 8: PyTorch 2.12 to 2.15 write it */
};

typedef struct an_pt2_tensor {
    const char *name;   /* as in state_dict */
    const char *file;   /* the member that holds its storage, without the folder */
    int torch_dtype;    /* number of torch._export.serde's ScalarType */
    int64_t item_bytes; /* of an element of that dtype */
    int rank;
    int64_t dim[AN_PT2_MAX_RANK], stride[AN_PT2_MAX_RANK], offset; /* in elements */
    bool constant;                                                 /* in data/constants */
    bool parameter, requires_grad;
    int32_t first;             /* index of the first tensor with the same bytes, perhaps its own */
    const an_zip_member *data; /* NULL in a description */
} an_pt2_tensor;

typedef struct an_pt2 {
    const char *path; /* for errors; in the arena */
    an_arena arena;
    an_map_file map;
    an_zip zip;
    const char *folder; /* "stem/" */
    json_t *model, *eval, *weights_config, *constants_config;
    const an_zip_member *text[AN_PT2_TEXTS]; /* the members that these four were read from; NULL in a description */
    const char *description;                 /* the whole text; NULL in an archive */
    an_pt2_tensor *tensor;                   /* weights, then constants, each in the order of the file */
    int32_t n_tensors;
    bool has_data;
    int64_t minor; /* of the schema's version */
} an_pt2;

/* After a failure, too, an_pt2_close is called. */
an_status an_pt2_open(an_err *err, const char *path, an_pt2 *out);
an_status an_pt2_open_memory(an_err *err, const char *name, const void *data, size_t bytes, an_pt2 *out);
an_status an_pt2_open_description(an_err *err, const char *name, const char *json, size_t n, an_pt2 *out);
void an_pt2_close(an_pt2 *a);

/* The description as text; the caller frees it. */
an_status an_pt2_describe(an_err *err, const an_pt2 *a, an_text *out);

/* Where in the file a value of its model (or of its graph for evaluation) begins: "models/model.json, byte 4711 of the file". `step` leads to it, as
 * an_json_line says. */
enum { AN_PT2_PLACE = 80, AN_PT2_STEPS = 160 };
const char *an_pt2_place(const an_pt2 *a, const json_t *program, const char *const *step, int n_steps,
                         char out[AN_PT2_PLACE]);

const an_pt2_tensor *an_pt2_find(const an_pt2 *a, const char *name, bool constant); /* NULL: none */
int64_t an_pt2_elements(const an_pt2_tensor *t);

/* The dtype of this library that a dtype of PyTorch is read as: 64-, 16- and 8-bit integers become int32. False: none. */
bool an_pt2_dtype(int torch_dtype, an_dtype *out);
bool an_pt2_is_complex(int torch_dtype);
int an_pt2_real(int torch_dtype);               /* the dtype of a complex number's parts; of another its own */
const char *an_pt2_dtype_name(int torch_dtype); /* "int64" */
size_t an_pt2_dtype_bytes(int torch_dtype);     /* of an element in PyTorch; 0: an unknown dtype */

/* Reads the elements in row-major order as the dtype of an_pt2_dtype, after comparing the checksum of the storage. An
 * integer outside of int32 is AN_E_DATA. */
an_status an_pt2_read(an_err *err, const an_pt2 *a, const an_pt2_tensor *t, void *out);

/* The number of {"as_int":3}; AN_E_DATA, naming `what`, where it is not a whole number that fits. */
an_status an_pt2_int(an_err *err, const an_pt2 *a, const char *what, const json_t *number, int64_t *out);

#endif
