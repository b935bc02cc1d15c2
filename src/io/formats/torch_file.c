/* torch_file.c: what torch.save writes, as tensors with names: a zip of stored members, PREFIX/data.pkl with the tree
 * of values and PREFIX/data/KEY with the elements of each storage (torch/serialization.py). See torch_file.h.
 *
 * Invariants: only the two names that a tensor needs are taken from the pickle, and dtypes' names; a tensor is
 * contiguous and lies in its storage, whose size and checksum agree with the archive. */
#include "platform/platform.h"
#include "io/formats/json.h"
#include "io/formats/pickle.h"
#include "io/formats/torch_file.h"
#include "io/formats/zip.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values may be shared: what they become is bounded apart from the pickle's size. GPT-2 xl with its optimizer has a
 * pickle of 0.3 MB and 1,700 tensors. */
enum {
    MAX_PICKLE_BYTES = 4 << 20,
    MAX_DEPTH = 16,
    MAX_TENSORS = 1 << 17,
    MAX_VALUES_BYTES = 16 << 20,
    MAX_NAME_BYTES = 256 /* of the folder in the archive, and of a storage's key */
};

static const char rebuild_tensor[] = "torch._utils._rebuild_tensor_v2";
static const char rebuild_parameter[] = "torch._utils._rebuild_parameter"; /* (tensor, requires_grad, hooks) */
static const char *const globals[] = {"collections.OrderedDict", rebuild_tensor,        rebuild_parameter,
                                      "torch.FloatStorage",      "torch.DoubleStorage", "torch.HalfStorage",
                                      "torch.BFloat16Storage",   "torch.LongStorage",   "torch.IntStorage",
                                      "torch.ByteStorage",       "torch.BoolStorage"};
static const struct {
    const char *name;
    an_dtype dtype;
} storages[] = {{"torch.FloatStorage", AN_F32},     {"torch.DoubleStorage", AN_F64}, {"torch.HalfStorage", AN_F16},
                {"torch.BFloat16Storage", AN_BF16}, {"torch.LongStorage", AN_I64},   {"torch.IntStorage", AN_I32},
                {"torch.ByteStorage", AN_U8},       {"torch.BoolStorage", AN_BOOL}};

/* Memory of an open file. */
typedef struct content {
    an_map_file map;
    an_arena arena;
} content;

typedef struct reader {
    an_err *err;
    const char *path;
    an_arena *arena;
    an_zip zip;
    const char *prefix; /* "ckpt/" */
    bool *checked;      /* by member: its checksum agrees */
    char name[512];     /* place in the tree of what is being walked: "optimizer.state.0" */
    size_t name_bytes;
    an_st_tensor *tensors;
    size_t n, cap;
    size_t visits, max_visits; /* a tree has no more nodes than its pickle has opcodes */
} reader;

static an_status wrong(const reader *r, const an_pickle_value *v, const char *what)
{
    return an_fail(r->err, AN_E_IO, "%s: byte %" PRIu64 ": %s; the file is damaged, or torch.save did not make it",
                   r->path, v->at, what);
}

/* ---- tensors */

static an_status find_storage(reader *r, const an_pickle_value *v, an_st_tensor *t, const an_zip_member **out)
{
    const an_pickle_value *id = v->kind == AN_PICKLE_PERSISTENT ? v->items[0] : NULL;
    if (!id || id->kind != AN_PICKLE_TUPLE || id->n != 5 || !an_pickle_is_text(id->items[0], "storage") ||
        id->items[1]->kind != AN_PICKLE_GLOBAL || id->items[2]->kind != AN_PICKLE_TEXT)
        return wrong(r, v, "a tensor's storage is not described as PyTorch does");
    size_t k = 0;
    while (k < AN_COUNT(storages) && strcmp(storages[k].name, id->items[1]->text) != 0) k++;
    if (k == AN_COUNT(storages)) return wrong(r, v, "a tensor's storage is of no known dtype");
    t->dtype = storages[k].dtype;
    char name[2 * MAX_NAME_BYTES], quoted[AN_QUOTED_BYTES];
    snprintf(name, sizeof name, "%sdata/%.*s", r->prefix, MAX_NAME_BYTES, id->items[2]->text);
    const an_zip_member *m = an_zip_find(&r->zip, name);
    if (!m)
        return an_fail(r->err, AN_E_IO, "%s: byte %" PRIu64 ": there is no member %s; the file is damaged", r->path,
                       v->at, an_quoted(name, quoted));
    const size_t size = an_st_dtype_bytes(t->dtype);
    if (id->items[4]->kind != AN_PICKLE_INT || m->bytes % size != 0 || (uint64_t)id->items[4]->i != m->bytes / size)
        return wrong(r, v, "a storage's size differs from the archive's");
    bool *checked = &r->checked[m - r->zip.members];
    if (!*checked) AN_TRY(an_zip_check(r->err, &r->zip, m));
    *checked = true;
    *out = m;
    return AN_OK;
}

static an_status check_sizes(const reader *r, const an_pickle_value *call, const an_pickle_value *sizes,
                             const an_pickle_value *strides, bool *empty)
{
    if (sizes->kind != AN_PICKLE_TUPLE || strides->kind != AN_PICKLE_TUPLE || sizes->n != strides->n)
        return wrong(r, call, "a tensor's sizes and strides are no tuples of one length");
    if (sizes->n > AN_ST_MAX_RANK) return wrong(r, call, "a tensor has more than 8 axes");
    *empty = false;
    for (size_t i = 0; i < sizes->n; i++) {
        if (sizes->items[i]->kind != AN_PICKLE_INT || sizes->items[i]->i < 0 ||
            strides->items[i]->kind != AN_PICKLE_INT)
            return wrong(r, call, "a tensor's size or stride is no number");
        *empty = *empty || sizes->items[i]->i == 0;
    }
    return AN_OK;
}

/* The shape of a row-major tensor; *count its elements. Strides of axes of size 1, and of empty tensors, mean nothing.
 */
static an_status read_shape(const reader *r, const an_pickle_value *call, const an_pickle_value *sizes,
                            const an_pickle_value *strides, an_st_tensor *t, uint64_t *count)
{
    bool empty = false;
    AN_TRY(check_sizes(r, call, sizes, strides, &empty));
    t->rank = (int)sizes->n;
    *count = 1;
    for (int i = t->rank; i-- > 0;) {
        const int64_t size = t->shape[i] = sizes->items[i]->i, stride = strides->items[i]->i;
        if (!empty && size > 1 && (uint64_t)stride != *count)
            return an_fail(r->err, AN_E_UNSUPPORTED,
                           "%s: byte %" PRIu64 ": a tensor is not contiguous (stride %" PRId64 ", not %" PRIu64
                           "); save tensor.contiguous()",
                           r->path, call->at, stride, *count);
        if (size > 0 && *count > (uint64_t)INT64_MAX / 8 / (uint64_t)size)
            return wrong(r, call, "a tensor is too large");
        *count *= (uint64_t)AN_MAX(size, 1);
    }
    if (empty) *count = 0;
    return AN_OK;
}

static an_status read_tensor(reader *r, const an_pickle_value *call)
{
    const an_pickle_value *args = call->items[1];
    if (strcmp(call->items[0]->text, rebuild_parameter) == 0 && args->n == 3 && args->items[0]->kind == AN_PICKLE_CALL)
        call = args->items[0], args = call->items[1];
    an_st_tensor t = {0};
    const an_zip_member *m = NULL;
    uint64_t count = 0;
    if (strcmp(call->items[0]->text, rebuild_tensor) != 0 || args->n < 4 || args->n > 7)
        return wrong(r, call, "a tensor is not described as PyTorch does");
    if (r->n == MAX_TENSORS) return wrong(r, call, "there are more tensors than any model has");
    if ((t.name = an_arena_strdup(r->arena, r->name)) == NULL) return an_fail_nomem(r->err, r->path, r->name_bytes);
    AN_TRY(find_storage(r, args->items[0], &t, &m));
    AN_TRY(read_shape(r, call, args->items[2], args->items[3], &t, &count));
    const uint64_t size = an_st_dtype_bytes(t.dtype), all = m->bytes / size;
    const an_pickle_value *offset = args->items[1];
    if (offset->kind != AN_PICKLE_INT || offset->i < 0 || (uint64_t)offset->i > all ||
        count > all - (uint64_t)offset->i)
        return wrong(r, call, "a tensor is larger than its storage");
    t.bytes = (size_t)(count * size);
    t.at = m->at + (uint64_t)offset->i * size;
    t.data = r->zip.data + t.at;
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        an_st_tensor *more = AN_NEW_ARRAY(r->arena, an_st_tensor, cap);
        if (!more) return an_fail_nomem(r->err, r->path, cap * sizeof *more);
        if (r->n > 0) memcpy(more, r->tensors, r->n * sizeof *more);
        r->tensors = more;
        r->cap = cap;
    }
    r->tensors[r->n++] = t;
    return AN_OK;
}

/* ---- the tree: tensors into the list, all else into JSON */

static an_status walk(reader *r, const an_pickle_value *v, int depth, an_text *json);

/* %.17g prints an integral value without a point: with one, it is read as a float again. */
static void put_float(an_text *out, double f)
{
    if (!isfinite(f))
        an_text_puts(out, isnan(f) ? "\"nan\"" : f > 0 ? "\"inf\"" : "\"-inf\"");
    else
        an_text_printf(out, f == floor(f) && fabs(f) < 1e15 ? "%.1f" : "%.17g", f);
}

static an_status put_text(const reader *r, const an_pickle_value *v, an_text *out)
{
    if (strlen(v->text) != v->bytes) return wrong(r, v, "a text has a NUL in it");
    AN_TRY(an_json_check_text(r->err, r->path, v->text));
    an_json_put(out, v->text);
    return AN_OK;
}

/* Walks `v` under the name of `key` in what is walked now. */
static an_status walk_item(reader *r, const an_pickle_value *v, const char *key, int depth, an_text *json)
{
    const size_t before = r->name_bytes;
    int n = snprintf(r->name + before, sizeof r->name - before, "%s%s", before ? "." : "", key);
    if (n < 0 || (size_t)n >= sizeof r->name - before) return wrong(r, v, "a name is longer than 511 bytes");
    r->name_bytes += (size_t)n;
    AN_TRY(walk(r, v, depth, json));
    r->name[r->name_bytes = before] = 0;
    return AN_OK;
}

static an_status walk_dict(reader *r, const an_pickle_value *v, int depth, an_text *json)
{
    an_text_puts(json, "{");
    for (size_t i = 0; i + 1 < v->n; i += 2) {
        const an_pickle_value *key = v->items[i];
        char number[24];
        an_text_puts(json, i ? "," : "");
        if (key->kind == AN_PICKLE_TEXT)
            AN_TRY(put_text(r, key, json));
        else if (key->kind == AN_PICKLE_INT)
            snprintf(number, sizeof number, "%" PRId64, key->i), an_json_put(json, number);
        else
            return wrong(r, key, "a key is neither a text nor a whole number");
        an_text_puts(json, ":");
        AN_TRY(walk_item(r, v->items[i + 1], key->kind == AN_PICKLE_TEXT ? key->text : number, depth, json));
    }
    an_text_puts(json, "}");
    return AN_OK;
}

static an_status walk_list(reader *r, const an_pickle_value *v, int depth, an_text *json)
{
    an_text_puts(json, "[");
    for (size_t i = 0; i < v->n; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        an_text_puts(json, i ? "," : "");
        AN_TRY(walk_item(r, v->items[i], number, depth, json));
    }
    an_text_puts(json, "]");
    return AN_OK;
}

static an_status walk(reader *r, const an_pickle_value *v, int depth, an_text *json)
{
    if (depth == MAX_DEPTH || r->visits++ == r->max_visits || json->len > MAX_VALUES_BYTES)
        return wrong(r, v, "values are deeper or longer than a checkpoint's, or lie in themselves");
    switch (v->kind) {
    case AN_PICKLE_NONE: return an_text_puts(json, "null"), AN_OK;
    case AN_PICKLE_BOOL: return an_text_puts(json, v->i ? "true" : "false"), AN_OK;
    case AN_PICKLE_INT: return an_text_printf(json, "%" PRId64, v->i), AN_OK;
    case AN_PICKLE_FLOAT: return put_float(json, v->f), AN_OK;
    case AN_PICKLE_TEXT: return put_text(r, v, json);
    case AN_PICKLE_TUPLE:
    case AN_PICKLE_LIST: return walk_list(r, v, depth + 1, json);
    case AN_PICKLE_DICT: return walk_dict(r, v, depth + 1, json);
    case AN_PICKLE_CALL: return an_text_puts(json, "null"), read_tensor(r, v);
    case AN_PICKLE_GLOBAL:
    case AN_PICKLE_PERSISTENT: break;
    }
    return wrong(r, v, "a name where a value should be");
}

/* ---- the file */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static an_status find_pickle(reader *r, const an_zip_member **out)
{
    *out = NULL;
    for (size_t i = 0; i < r->zip.n; i++)
        if (ends_with(r->zip.members[i].name, "/data.pkl")) *out = &r->zip.members[i];
    if (!*out)
        return an_fail(r->err, AN_E_IO,
                       "%s: a zip archive without data.pkl: torch.save did not make it; name a checkpoint", r->path);
    if ((*out)->bytes > MAX_PICKLE_BYTES)
        return an_fail(r->err, AN_E_UNSUPPORTED,
                       "%s: byte %" PRIu64 ": a data.pkl of %" PRIu64 " bytes: a checkpoint of weights has far less",
                       r->path, (*out)->at, (*out)->bytes);
    if (strlen((*out)->name) > MAX_NAME_BYTES)
        return an_fail(r->err, AN_E_UNSUPPORTED,
                       "%s: byte %" PRIu64 ": the archive's folder has a name of more than %d bytes; save it under a "
                       "shorter name",
                       r->path, (*out)->at, MAX_NAME_BYTES);
    AN_TRY(an_zip_check(r->err, &r->zip, *out));
    r->prefix = an_arena_printf(r->arena, "%.*s", (int)(strlen((*out)->name) - strlen("data.pkl")), (*out)->name);
    return r->prefix ? AN_OK : an_fail_nomem(r->err, r->path, 64);
}

static an_status check_order(const reader *r)
{
    const char *name = an_arena_printf(r->arena, "%sbyteorder", r->prefix);
    if (!name) return an_fail_nomem(r->err, r->path, 64);
    const an_zip_member *m = an_zip_find(&r->zip, name);
    if (!m || (m->bytes == 6 && memcmp(r->zip.data + m->at, "little", 6) == 0)) return AN_OK;
    return an_fail(r->err, AN_E_UNSUPPORTED,
                   "%s: byte %" PRIu64 ": the numbers are not little-endian; save it on "
                   "another machine",
                   r->path, m->at);
}

static an_status read_values(reader *r, const void *data, size_t bytes, an_text *json)
{
    const an_zip_member *pickle = NULL;
    const an_pickle_value *root = NULL;
    AN_TRY(an_zip_open(r->err, r->path, data, bytes, r->arena, &r->zip));
    AN_TRY(find_pickle(r, &pickle));
    AN_TRY(check_order(r));
    r->checked = AN_NEW_ARRAY(r->arena, bool, r->zip.n + 1);
    if (!r->checked) return an_fail_nomem(r->err, r->path, r->zip.n);
    r->max_visits = (size_t)pickle->bytes;
    AN_TRY(an_pickle_read(r->err, r->path, pickle->at, r->zip.data + pickle->at, (size_t)pickle->bytes, globals,
                          AN_COUNT(globals), r->arena, &root));
    if (root->kind != AN_PICKLE_DICT) return wrong(r, root, "the file holds no dict");
    AN_TRY(walk(r, root, 0, json));
    return json->failed ? an_fail_nomem(r->err, r->path, json->len) : AN_OK;
}

static void release(void *owner)
{
    content *c = owner;
    an_file_unmap(&c->map);
    an_arena_free(&c->arena);
    free(c);
}

static an_status open_over(an_err *err, const char *path, an_map_file map, const void *data, size_t bytes, an_st **out)
{
    *out = NULL;
    content *c = calloc(1, sizeof *c);
    if (!c) {
        an_file_unmap(&map);
        return an_fail_nomem(err, path, sizeof *c);
    }
    c->map = map;
    an_text json = {0};
    reader r = {.err = err, .path = path, .arena = &c->arena};
    an_status status = read_values(&r, data, bytes, &json);
    if (status == AN_OK) {
        const char *const meta[][2] = {{AN_WEIGHTS_VALUES, json.data}};
        status = an_st_open_view(err, path, &(an_st_view){r.tensors, r.n, meta, 1, c, release}, out);
    } else {
        release(c);
    }
    an_text_free(&json);
    return status;
}

an_status an_weights_open_torch(an_err *err, const char *name, const void *data, size_t bytes, an_st **out)
{
    return open_over(err, name, (an_map_file){0}, data, bytes, out);
}

/* PyTorch before 1.6 wrote a pickle of the number 0x1950a86a20f9469cfc6c first. */
static bool is_old_torch(const an_map_file *m)
{
    return m->bytes > 4 && memcmp(m->data, "\x80\x02\x8a\x0a", 4) == 0;
}

an_status an_weights_open(an_err *err, const char *path, an_st **out)
{
    *out = NULL;
    an_map_file map;
    AN_TRY(an_file_map(err, path, &map));
    if (an_zip_is(map.data, map.bytes)) return open_over(err, path, map, map.data, map.bytes, out);
    bool old = is_old_torch(&map);
    an_file_unmap(&map);
    if (old)
        return an_fail(err, AN_E_UNSUPPORTED,
                       "%s: byte 0: the format of PyTorch before 1.6; load it there and torch.save it again", path);
    return an_st_open(err, path, out);
}
