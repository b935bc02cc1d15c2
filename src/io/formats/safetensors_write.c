/* safetensors_write.c: the writer. The header comes first in the file and holds every offset, so that tensors are listed,
 * then laid out, then streamed: nothing is held in memory but the list and one buffer. */
#define _DEFAULT_SOURCE
#include "platform/platform.h"
#include "io/formats/json.h"
#include "io/formats/safetensors.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct item {
    char *name;
    an_dtype dtype;
    int rank;
    int64_t shape[AN_ST_MAX_RANK];
    const void *data;
    an_st_read_fn read; /* NULL: data */
    void *arg;
    uint64_t bytes, begin;
    size_t order; /* of being added */
} item;

struct an_st_writer {
    char *path;
    json_t *meta, *names; /* names: a set, to refuse a second tensor of the same name */
    item *items;
    size_t n, cap;
};

enum { BUFFER_BYTES = 1 << 20 };

an_status an_st_begin(an_err *err, const char *path, an_st_writer **out)
{
    an_st_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (w) {
        w->path = malloc(strlen(path) + 1);
        w->meta = json_object();
        w->names = json_object();
    }
    if (!w || !w->path || !w->meta || !w->names) {
        an_st_abort(w);
        return an_fail_nomem(err, path, sizeof *w);
    }
    strcpy(w->path, path);
    *out = w;
    return AN_OK;
}

void an_st_abort(an_st_writer *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n; i++) free(w->items[i].name);
    free(w->items);
    json_decref(w->meta);
    json_decref(w->names);
    free(w->path);
    free(w);
}

static an_status item_bytes(an_err *err, const an_st_writer *w, item *it)
{
    char quoted[AN_QUOTED_BYTES];
    it->bytes = an_st_dtype_bytes(it->dtype);
    for (int i = 0; i < it->rank; i++) {
        if (it->shape[i] < 0 || (it->shape[i] > 0 && it->bytes > (uint64_t)INT64_MAX / (uint64_t)it->shape[i]))
            return an_fail(err, AN_E_SHAPE, "%s: tensor %s: size %" PRId64 " of axis %d is negative or too large",
                           w->path, an_quoted(it->name, quoted), it->shape[i], i);
        it->bytes *= (uint64_t)it->shape[i];
    }
    return AN_OK;
}

static an_status add(an_err *err, an_st_writer *w, const char *name, item it, const int64_t *shape)
{
    char quoted[AN_QUOTED_BYTES];
    if (an_st_dtype_bytes(it.dtype) == 0 || it.rank < 0 || it.rank > AN_ST_MAX_RANK)
        return an_fail(err, AN_E_USAGE, "%s: tensor %s: a dtype of an_dtype and at most %d axes are written", w->path,
                       an_quoted(name, quoted), AN_ST_MAX_RANK);
    if (json_object_get(w->names, name) || strcmp(name, "__metadata__") == 0)
        return an_fail(err, AN_E_USAGE, "%s: tensor %s: the name is taken", w->path, an_quoted(name, quoted));
    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 64;
        item *more = realloc(w->items, cap * sizeof *more);
        if (!more) return an_fail_nomem(err, "the list of tensors to write", cap * sizeof *more);
        w->items = more;
        w->cap = cap;
    }
    if (it.rank > 0) memcpy(it.shape, shape, (size_t)it.rank * sizeof *shape);
    it.name = malloc(strlen(name) + 1);
    if (!it.name) return an_fail_nomem(err, name, strlen(name) + 1);
    strcpy(it.name, name);
    it.order = w->n;
    an_status status = item_bytes(err, w, &it);
    if (status == AN_OK) status = an_json_check_text(err, w->path, name);
    if (status == AN_OK && json_object_set_new(w->names, name, json_true()) != 0)
        status = an_fail_nomem(err, name, strlen(name));
    if (status == AN_OK)
        w->items[w->n++] = it;
    else
        free(it.name);
    return status;
}

an_status an_st_add(an_err *err, an_st_writer *w, const char *name, an_dtype dtype, int rank, const int64_t *shape,
                    const void *data)
{
    return add(err, w, name, (item){.dtype = dtype, .rank = rank, .data = data}, shape);
}

an_status an_st_add_read(an_err *err, an_st_writer *w, const char *name, an_dtype dtype, int rank, const int64_t *shape,
                         an_st_read_fn read, void *arg)
{
    return add(err, w, name, (item){.dtype = dtype, .rank = rank, .read = read, .arg = arg}, shape);
}

an_status an_st_set_meta(an_err *err, an_st_writer *w, const char *key, const char *value)
{
    AN_TRY(an_json_check_text(err, w->path, key));
    AN_TRY(an_json_check_text(err, key, value));
    return json_object_set_new(w->meta, key, json_string(value)) == 0 ? AN_OK : an_fail_nomem(err, key, strlen(value));
}

/* Multiples of 256 bytes first, as added; then the rest, large elements before small ones. */
static int compare_layout(const void *a, const void *b)
{
    const item *x = a, *y = b;
    size_t xk = x->bytes % AN_ST_ALIGN == 0 ? 0 : 16 - an_st_dtype_bytes(x->dtype);
    size_t yk = y->bytes % AN_ST_ALIGN == 0 ? 0 : 16 - an_st_dtype_bytes(y->dtype);
    if (xk != yk) return xk < yk ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void put_item(an_text *t, const item *it)
{
    an_json_put(t, it->name);
    an_text_printf(t, ":{\"dtype\":\"%s\",\"shape\":[", an_st_dtype_name(it->dtype));
    for (int i = 0; i < it->rank; i++) an_text_printf(t, "%s%" PRId64, i ? "," : "", it->shape[i]);
    an_text_printf(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", it->begin, it->begin + it->bytes);
}

static void put_meta(an_text *t, json_t *meta)
{
    const char *key, *comma = "";
    json_t *value;
    an_text_puts(t, "\"__metadata__\":{");
    json_object_foreach(meta, key, value)
    {
        an_text_puts(t, comma);
        an_json_put(t, key);
        an_text_puts(t, ":");
        an_json_put(t, json_string_value(value));
        comma = ",";
    }
    an_text_puts(t, "}");
}

/* The header's text, padded with blanks so that the data starts at a multiple of AN_ST_ALIGN. */
static an_status make_header(an_err *err, an_st_writer *w, an_text *out)
{
    const char *comma = "";
    uint64_t at = 0;
    an_text_puts(out, "{");
    if (json_object_size(w->meta) > 0) {
        put_meta(out, w->meta);
        comma = ",";
    }
    for (size_t i = 0; i < w->n; i++, comma = ",") {
        w->items[i].begin = at;
        if (w->items[i].bytes > (uint64_t)INT64_MAX - at)
            return an_fail(err, AN_E_SHAPE, "%s: more than 2^63 bytes", w->path);
        at += w->items[i].bytes;
        an_text_puts(out, comma);
        put_item(out, &w->items[i]);
    }
    an_text_puts(out, "}");
    while (!out->failed && (out->len + 8) % AN_ST_ALIGN != 0) an_text_puts(out, " ");
    if (out->failed) return an_fail_nomem(err, w->path, out->len);
    if (out->len <= AN_ST_MAX_HEADER_BYTES) return AN_OK;
    return an_fail(err, AN_E_USAGE, "%s: a header of %zu bytes is too large (at most %d): metadata is not for data",
                   w->path, out->len, AN_ST_MAX_HEADER_BYTES);
}

static an_status write_item(an_err *err, an_save *save, const item *it, char *buffer)
{
    if (it->bytes == 0) return AN_OK;
    if (!it->read) return an_save_write(err, save, it->data, (size_t)it->bytes);
    for (uint64_t at = 0; at < it->bytes;) {
        size_t n = (size_t)AN_MIN(it->bytes - at, (uint64_t)BUFFER_BYTES);
        AN_TRY(it->read(err, it->arg, at, buffer, n));
        AN_TRY(an_save_write(err, save, buffer, n));
        at += n;
    }
    return AN_OK;
}

static an_status stream(an_err *err, an_st_writer *w, an_save *save, const an_text *header, char *buffer)
{
    uint64_t length = header->len;
    AN_TRY(an_save_write(err, save, &length, 8));
    AN_TRY(an_save_write(err, save, header->data, header->len));
    for (size_t i = 0; i < w->n; i++) AN_TRY(write_item(err, save, &w->items[i], buffer));
    return AN_OK;
}

static an_status write_file(an_err *err, an_st_writer *w, const an_text *header)
{
    char *buffer = malloc(BUFFER_BYTES);
    if (!buffer) return an_fail_nomem(err, w->path, BUFFER_BYTES);
    an_save save;
    an_status status = an_save_begin(err, w->path, &save);
    if (status == AN_OK) {
        status = stream(err, w, &save, header, buffer);
        if (status == AN_OK)
            status = an_save_commit(err, &save);
        else
            an_save_abort(&save);
    }
    free(buffer);
    return status;
}

an_status an_st_commit(an_err *err, an_st_writer *w)
{
    an_text header = {0};
    if (w->n > 0) qsort(w->items, w->n, sizeof *w->items, compare_layout);
    an_status status = make_header(err, w, &header);
    if (status == AN_OK) status = write_file(err, w, &header);
    an_text_free(&header);
    an_st_abort(w);
    return status;
}
