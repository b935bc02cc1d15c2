/* safetensors.h: reading and writing safetensors files (https://github.com/huggingface/safetensors, "Format"):
 *
 *     | header length: 8 bytes, little-endian | header: JSON | data of all tensors, one after the other |
 *
 * Owns:      the bytes of the file: everything a header says is checked before a tensor is handed out.
 * Does not:  copy or convert data, know models, decide what is saved, or join the files of a model in several
 *            (model.safetensors.index.json): nothing here does.
 *
 * Reader invariants: an open file has unique names, only dtypes of an_dtype, byte ranges that lie in the file, agree
 * with dtype x shape, and follow one another without holes or overlap (so no bytes hide in it). Data is a read-only
 * view of the mapped file.
 *
 * Writer invariants: the file under its name is always complete, the old one or the new one (an_save,
 * platform/atomic_save.c); equal input gives equal bytes. The format allows no padding between tensors, so alignment comes
 * from their order: the data starts at a multiple of 256; tensors whose size is a multiple of 256 come first, in the
 * order added; the others follow, large elements before small ones. Every tensor of a file from this writer is thus
 * aligned to its element size; one of another writer may not be. */
#ifndef AN_IO_FORMATS_SAFETENSORS_H
#define AN_IO_FORMATS_SAFETENSORS_H

#include "base/base.h"

enum { AN_ST_MAX_RANK = 8, AN_ST_ALIGN = 256, AN_ST_MAX_HEADER_BYTES = 100000000 };

typedef struct an_st_tensor {
    const char *name;
    an_dtype dtype;
    int rank;
    int64_t shape[AN_ST_MAX_RANK];
    const void *data; /* in the map, until an_st_close; possibly unaligned: copy with memcpy */
    size_t bytes;
    uint64_t at; /* byte of the file where the data starts */
} an_st_tensor;

typedef struct an_st an_st;

an_status an_st_open(an_err *err, const char *path, an_st **out);
/* The same over `bytes` bytes of memory that outlives the reader; `name` is used for the path in sentences. */
an_status an_st_open_memory(an_err *err, const char *name, const void *data, size_t bytes, an_st **out);
/* A reader of tensors that are in memory already, whatever file they came from: `at` is their place in it. Names and
 * metadata (UTF-8) are copied; the invariants above on ranges are the caller's. `release(owner)` is called when the
 * reader is closed, and when this fails. */
typedef struct an_st_view {
    const an_st_tensor *tensors;
    size_t n;
    const char *const (*meta)[2]; /* key, value */
    size_t n_meta;
    void *owner;
    void (*release)(void *owner); /* NULL: nothing to release */
} an_st_view;
an_status an_st_open_view(an_err *err, const char *path, const an_st_view *view, an_st **out);
void an_st_close(an_st *st);

const char *an_st_path(const an_st *st);
size_t an_st_count(const an_st *st);
const an_st_tensor *an_st_tensor_at(const an_st *st, size_t i);           /* in the order of the data */
const an_st_tensor *an_st_tensor_by_name(const an_st *st, size_t i);      /* in the order of names (strcmp) */
const an_st_tensor *an_st_find(const an_st *st, const char *name);        /* NULL: no such tensor */
const char *an_st_meta(const an_st *st, const char *key);                 /* NULL: no such key */
const char *an_st_meta_at(const an_st *st, size_t i, const char **value); /* i-th key, NULL past the end */

const char *an_st_dtype_name(an_dtype dtype);                     /* "F32", as in the file */
size_t an_st_dtype_bytes(an_dtype dtype);                         /* of one element */
void an_st_widen(const an_st_tensor *t, size_t n, uint32_t *out); /* the first n elements of a BF16 one, as float32 */
bool an_st_dtype_find(const char *name, an_dtype *out);
/* "[384,1536]" into out; returns out. */
enum { AN_ST_SHAPE_BYTES = 24 * AN_ST_MAX_RANK };
const char *an_st_shape_text(int rank, const int64_t *shape, char out[AN_ST_SHAPE_BYTES]);

/* Gives bytes [at, at + bytes) of a tensor: for data that is not in host memory or not in one piece. Asked in order. */
typedef an_status (*an_st_read_fn)(an_err *err, void *arg, uint64_t at, void *out, size_t bytes);

typedef struct an_st_writer an_st_writer;

an_status an_st_begin(an_err *err, const char *path, an_st_writer **out);
/* Names and shapes are copied; `data` (or what `read` reads) must live until the commit. */
an_status an_st_add(an_err *err, an_st_writer *w, const char *name, an_dtype dtype, int rank, const int64_t *shape,
                    const void *data);
an_status an_st_add_read(an_err *err, an_st_writer *w, const char *name, an_dtype dtype, int rank, const int64_t *shape,
                         an_st_read_fn read, void *arg);
an_status an_st_set_meta(an_err *err, an_st_writer *w, const char *key, const char *value);
/* Writes the file and frees the writer, whether it succeeds or not. */
an_status an_st_commit(an_err *err, an_st_writer *w);
void an_st_abort(an_st_writer *w); /* frees the writer, writes nothing; NULL is fine */

#endif
