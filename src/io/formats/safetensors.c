/* safetensors.c: the reader: a corrupt or truncated file is an error that names the byte or the tensor. The header is parsed once; names and metadata stay in its JSON tree, which lives as long as
 * the reader. */
#include "io/formats/safetensors.h"
#include "platform/platform.h"
#include "io/formats/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data is little-endian and is used in place: a big-endian machine needs a conversion here"
#endif

struct an_st {
    char *path;
    an_map_file map; /* data is NULL when the bytes are the caller's */
    const char *bytes;
    uint64_t total, data_at;
    json_t *header;
    const json_t *meta; /* NULL: none */
    an_st_tensor *tensors;
    size_t *by_name; /* indices into tensors */
    size_t n;
    void *owner; /* of a view's data */
    void (*release)(void *owner);
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[AN_N_DTYPES] = {
    [AN_F32] = {"F32", 4}, [AN_BF16] = {"BF16", 2}, [AN_F16] = {"F16", 2}, [AN_F64] = {"F64", 8},
    [AN_I32] = {"I32", 4}, [AN_I64] = {"I64", 8},   [AN_U8] = {"U8", 1},   [AN_BOOL] = {"BOOL", 1},
};

const char *an_st_dtype_name(an_dtype dtype)
{
    return (unsigned)dtype < AN_N_DTYPES ? dtypes[dtype].name : "?";
}
void an_st_widen(const an_st_tensor *t, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half; /* data may be unaligned */
        memcpy(&half, (const char *)t->data + 2 * i, sizeof half);
        out[i] = (uint32_t)half << 16;
    }
}

size_t an_st_dtype_bytes(an_dtype dtype)
{
    return (unsigned)dtype < AN_N_DTYPES ? dtypes[dtype].bytes : 0;
}

bool an_st_dtype_find(const char *name, an_dtype *out)
{
    for (int d = 0; d < AN_N_DTYPES; d++)
        if (strcmp(name, dtypes[d].name) == 0) return *out = (an_dtype)d, true;
    return false;
}

const char *an_st_shape_text(int rank, const int64_t *shape, char out[AN_ST_SHAPE_BYTES])
{
    int n = snprintf(out, AN_ST_SHAPE_BYTES, "[");
    for (int i = 0; i < rank && i < AN_ST_MAX_RANK; i++)
        n += snprintf(out + n, AN_ST_SHAPE_BYTES - (size_t)n, "%s%" PRId64, i ? "," : "", shape[i]);
    snprintf(out + n, AN_ST_SHAPE_BYTES - (size_t)n, "]");
    return out;
}

/* Where the header speaks of `name`, for a sentence. A name that is written with escapes is not found: the header's
 * start. */
static uint64_t byte_of(const an_st *st, const char *name)
{
    size_t n = strlen(name);
    const char *end = st->bytes + st->data_at;
    for (const char *p = st->bytes + 8; (p = memchr(p, '"', (size_t)(end - p))) != NULL; p++)
        if ((size_t)(end - p) >= n + 2 && memcmp(p + 1, name, n) == 0 && p[n + 1] == '"')
            return (uint64_t)(p - st->bytes);
    return 8;
}

static an_status bad_tensor(an_err *err, const an_st *st, an_status code, const char *name, const char *why)
{
    char quoted[AN_QUOTED_BYTES];
    return an_fail(err, code, "%s: byte %" PRIu64 ": tensor %s %s", st->path, byte_of(st, name),
                   an_quoted(name, quoted), why);
}

/* dtype x shape in bytes; false when it does not fit in 63 bits. Sizes of 0 count as 1 in the check, so that no partial
 * product of a shape overflows where strides are computed from it. */
static bool shape_bytes(an_dtype dtype, int rank, const int64_t *shape, uint64_t *out)
{
    uint64_t safe = dtypes[dtype].bytes, bytes = safe;
    for (int i = 0; i < rank; i++) {
        uint64_t size = (uint64_t)shape[i];
        if (size > 0 && safe > (uint64_t)INT64_MAX / size) return false;
        safe *= AN_MAX(size, 1);
        bytes *= size;
    }
    *out = bytes;
    return true;
}

static an_status read_tensor(an_err *err, const an_st *st, const char *name, const json_t *entry, an_st_tensor *t)
{
    t->name = name;
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *range = json_object_get(entry, "data_offsets");
    if (!dtype || !json_is_array(shape) || !json_is_array(range) || json_object_size(entry) != 3)
        return bad_tensor(err, st, AN_E_IO, name,
                          "needs a dtype, a shape and data_offsets, and nothing else; the file is damaged");
    if (!an_st_dtype_find(dtype, &t->dtype)) {
        char quoted[AN_QUOTED_BYTES], why[256];
        snprintf(why, sizeof why, "has dtype %s; F32, BF16, F16, F64, I32, I64, U8 and BOOL are read: convert it first",
                 an_quoted(dtype, quoted));
        return bad_tensor(err, st, AN_E_UNSUPPORTED, name, why);
    }
    if (json_array_size(shape) > AN_ST_MAX_RANK)
        return bad_tensor(err, st, AN_E_UNSUPPORTED, name, "has more than 8 axes");
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return bad_tensor(err, st, AN_E_IO, name,
                              "has a size that is not a whole number, 0 or more; the file is damaged");
        t->shape[i] = (int64_t)json_integer_value(size);
    }
    const json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return bad_tensor(err, st, AN_E_IO, name,
                          "has data_offsets that are not two whole numbers; the file is damaged");
    int64_t b = (int64_t)json_integer_value(begin), e = (int64_t)json_integer_value(end);
    if (b < 0 || e < b || (uint64_t)e > st->total - st->data_at)
        return bad_tensor(err, st, AN_E_IO, name, "has data_offsets outside the file; it is damaged or was cut short");
    uint64_t bytes;
    if (!shape_bytes(t->dtype, t->rank, t->shape, &bytes) || bytes != (uint64_t)(e - b))
        return bad_tensor(err, st, AN_E_IO, name,
                          "has data_offsets that differ from dtype x shape; the file is damaged");
    t->bytes = (size_t)bytes;
    t->at = st->data_at + (uint64_t)b;
    t->data = st->bytes + t->at;
    return AN_OK;
}

static an_status read_meta(an_err *err, an_st *st, const json_t *meta)
{
    const char *key;
    json_t *value;
    if (!json_is_object(meta))
        return an_fail(err, AN_E_IO, "%s: byte %" PRIu64 ": __metadata__ is not an object", st->path,
                       byte_of(st, "__metadata__"));
    json_object_foreach((json_t *)meta, key, value)
    {
        char quoted[AN_QUOTED_BYTES];
        if (!json_is_string(value))
            return an_fail(err, AN_E_IO,
                           "%s: byte %" PRIu64 ": metadata %s is not a string; the format has only strings there",
                           st->path, byte_of(st, key), an_quoted(key, quoted));
    }
    st->meta = meta;
    return AN_OK;
}

/* Empty tensors before others at the same place, then by name: one order whatever the order in the header. */
static int compare_data(const void *a, const void *b)
{
    const an_st_tensor *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const an_st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* No byte of the data belongs to two tensors or to none. */
static an_status check_cover(an_err *err, const an_st *st)
{
    uint64_t at = st->data_at;
    for (size_t i = 0; i < st->n; i++) {
        if (st->tensors[i].at != at)
            return bad_tensor(err, st, AN_E_IO, st->tensors[i].name,
                              st->tensors[i].at < at
                                  ? "overlaps the one before it; the file is damaged"
                                  : "leaves a hole before it, which the format forbids; the file is damaged");
        at += st->tensors[i].bytes;
    }
    if (at != st->total)
        return an_fail(err, AN_E_IO, "%s: byte %" PRIu64 ": %" PRIu64 " bytes belong to no tensor; the file is damaged",
                       st->path, at, st->total - at);
    return AN_OK;
}

static an_status index_names(an_err *err, an_st *st)
{
    const an_st_tensor **order = malloc((st->n + 1) * sizeof *order);
    st->by_name = malloc((st->n + 1) * sizeof *st->by_name);
    if (!order || !st->by_name) {
        free(order);
        return an_fail_nomem(err, "the names of a safetensors file", st->n * sizeof *order);
    }
    for (size_t i = 0; i < st->n; i++) order[i] = &st->tensors[i];
    qsort(order, st->n, sizeof *order, compare_names);
    for (size_t i = 0; i < st->n; i++) st->by_name[i] = (size_t)(order[i] - st->tensors);
    free(order);
    return AN_OK;
}

static an_status read_header(an_err *err, an_st *st)
{
    if (st->total < 8)
        return an_fail(err, AN_E_IO,
                       "%s: byte %" PRIu64 ": the file ends before the header's length; it is no safetensors file",
                       st->path, st->total);
    uint64_t length;
    memcpy(&length, st->bytes, 8);
    if (length > AN_ST_MAX_HEADER_BYTES || length < 2 || length > st->total - 8)
        return an_fail(err, AN_E_IO,
                       "%s: byte 0: a header of %" PRIu64 " bytes does not fit a file of %" PRIu64
                       " (at most %d are allowed); it was cut short or is no safetensors file",
                       st->path, length, st->total, AN_ST_MAX_HEADER_BYTES);
    st->data_at = 8 + length;
    if (st->bytes[8] != '{')
        return an_fail(err, AN_E_IO, "%s: byte 8: the header does not start with {; it is no safetensors file",
                       st->path);
    AN_TRY(an_json_parse(err, st->path, 8, st->bytes + 8, (size_t)length, &st->header));

    st->tensors = calloc(json_object_size(st->header) + 1, sizeof *st->tensors);
    if (!st->tensors) return an_fail_nomem(err, st->path, json_object_size(st->header) * sizeof *st->tensors);
    const char *name;
    json_t *entry;
    json_object_foreach(st->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            AN_TRY(read_meta(err, st, entry));
        else
            AN_TRY(read_tensor(err, st, name, entry, &st->tensors[st->n++]));
    }
    qsort(st->tensors, st->n, sizeof *st->tensors, compare_data);
    AN_TRY(check_cover(err, st));
    return index_names(err, st);
}

static an_status open_over(an_err *err, const char *path, an_map_file map, const void *data, size_t bytes, an_st **out)
{
    *out = NULL;
    an_st *st = calloc(1, sizeof *st);
    char *copy = malloc(strlen(path) + 1);
    if (!st || !copy) {
        free(st);
        free(copy);
        an_file_unmap(&map);
        return an_fail_nomem(err, path, sizeof *st);
    }
    st->path = strcpy(copy, path);
    st->map = map;
    st->bytes = data;
    st->total = bytes;
    an_status status = read_header(err, st);
    if (status == AN_OK)
        *out = st;
    else
        an_st_close(st);
    return status;
}

an_status an_st_open(an_err *err, const char *path, an_st **out)
{
    *out = NULL;
    an_map_file map;
    AN_TRY(an_file_map(err, path, &map));
    return open_over(err, path, map, map.data, map.bytes, out);
}

an_status an_st_open_memory(an_err *err, const char *name, const void *data, size_t bytes, an_st **out)
{
    return open_over(err, name, (an_map_file){0}, data, bytes, out);
}

/* Names and metadata go into a JSON tree, as those of a file are. */
static an_status fill_view(an_err *err, an_st *st, const an_st_view *view)
{
    char quoted[AN_QUOTED_BYTES];
    json_t *meta = json_object();
    st->header = json_object();
    st->tensors = calloc(view->n + 1, sizeof *st->tensors);
    if (json_object_set_new(st->header, "__metadata__", meta) != 0 || !st->tensors)
        return an_fail_nomem(err, st->path, view->n * sizeof *st->tensors);
    for (size_t i = 0; i < view->n_meta; i++) {
        AN_TRY(an_json_check_text(err, st->path, view->meta[i][1]));
        if (json_object_set_new(meta, view->meta[i][0], json_string(view->meta[i][1])) != 0)
            return an_fail_nomem(err, st->path, strlen(view->meta[i][1]));
    }
    st->meta = meta;
    for (size_t i = 0; i < view->n; i++) {
        const char *name = view->tensors[i].name;
        AN_TRY(an_json_check_text(err, st->path, name));
        if (json_object_get(st->header, name))
            return an_fail(err, AN_E_IO, "%s: tensor %s is there twice", st->path, an_quoted(name, quoted));
        if (json_object_set_new(st->header, name, json_true()) != 0) return an_fail_nomem(err, st->path, strlen(name));
        st->tensors[i] = view->tensors[i];
        st->tensors[i].name = json_object_iter_key(json_object_iter_at(st->header, name));
    }
    st->n = view->n;
    if (st->n > 0) qsort(st->tensors, st->n, sizeof *st->tensors, compare_data);
    return index_names(err, st);
}

an_status an_st_open_view(an_err *err, const char *path, const an_st_view *view, an_st **out)
{
    *out = NULL;
    an_st *st = calloc(1, sizeof *st);
    char *copy = malloc(strlen(path) + 1);
    if (!st || !copy) {
        free(st);
        free(copy);
        an_status status = an_fail_nomem(err, path, sizeof *st); /* first: the path may be the owner's */
        if (view->release) view->release(view->owner);
        return status;
    }
    st->path = strcpy(copy, path);
    st->owner = view->owner;
    st->release = view->release;
    an_status status = fill_view(err, st, view);
    if (status == AN_OK)
        *out = st;
    else
        an_st_close(st);
    return status;
}

void an_st_close(an_st *st)
{
    if (!st) return;
    if (st->map.data) an_file_unmap(&st->map);
    if (st->release) st->release(st->owner);
    json_decref(st->header);
    free(st->tensors);
    free(st->by_name);
    free(st->path);
    free(st);
}

const char *an_st_path(const an_st *st)
{
    return st->path;
}
size_t an_st_count(const an_st *st)
{
    return st->n;
}
const an_st_tensor *an_st_tensor_at(const an_st *st, size_t i)
{
    return i < st->n ? &st->tensors[i] : NULL;
}

const an_st_tensor *an_st_tensor_by_name(const an_st *st, size_t i)
{
    return i < st->n ? &st->tensors[st->by_name[i]] : NULL;
}

const an_st_tensor *an_st_find(const an_st *st, const char *name)
{
    for (size_t low = 0, high = st->n; low < high;) {
        size_t middle = low + (high - low) / 2;
        const an_st_tensor *t = &st->tensors[st->by_name[middle]];
        int order = strcmp(name, t->name);
        if (order == 0) return t;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *an_st_meta(const an_st *st, const char *key)
{
    return json_string_value(json_object_get(st->meta, key));
}

const char *an_st_meta_at(const an_st *st, size_t i, const char **value)
{
    const char *key;
    json_t *text;
    json_object_foreach((json_t *)st->meta, key, text)
    {
        if (i-- > 0) continue;
        *value = json_string_value(text);
        return key;
    }
    return NULL;
}
