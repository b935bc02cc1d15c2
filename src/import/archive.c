/* archive.c: opening an archive or a description, its tensors and their elements. See archive.h. */
#include "import/archive.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- dtypes */

static const struct {
    int torch;
    an_dtype dtype;
    unsigned char bytes;
    const char *name;
} dtypes[] = {{1, AN_I32, 1, "uint8"},     {2, AN_I32, 1, "int8"},    {3, AN_I32, 2, "int16"},
              {4, AN_I32, 4, "int32"},     {5, AN_I32, 8, "int64"},   {6, AN_F16, 2, "float16"},
              {7, AN_F32, 4, "float32"},   {8, AN_F64, 8, "float64"}, {12, AN_BOOL, 1, "bool"},
              {13, AN_BF16, 2, "bfloat16"}};

static size_t dtype_row(int torch)
{
    size_t i = 0;
    while (i < AN_COUNT(dtypes) && dtypes[i].torch != torch) i++;
    return i;
}

bool an_pt2_dtype(int torch_dtype, an_dtype *out)
{
    const size_t i = dtype_row(torch_dtype);
    if (i < AN_COUNT(dtypes)) *out = dtypes[i].dtype;
    return i < AN_COUNT(dtypes);
}

bool an_pt2_is_complex(int torch_dtype)
{
    return torch_dtype >= 9 && torch_dtype <= 11;
}

int an_pt2_real(int torch_dtype)
{
    return an_pt2_is_complex(torch_dtype) ? torch_dtype - 3 : torch_dtype;
}

const char *an_pt2_dtype_name(int torch_dtype)
{
    const size_t i = dtype_row(torch_dtype);
    return i < AN_COUNT(dtypes) ? dtypes[i].name : "another dtype";
}

size_t an_pt2_dtype_bytes(int torch_dtype)
{
    const size_t i = dtype_row(torch_dtype);
    return i < AN_COUNT(dtypes) ? dtypes[i].bytes : 0;
}

/* ---- tensors' descriptions */

an_status an_pt2_int(an_err *err, const an_pt2 *a, const char *what, const json_t *number, int64_t *out)
{
    const json_t *n = json_is_object(number) ? json_object_get(number, "as_int") : number;
    char quoted[AN_QUOTED_BYTES];
    if (!json_is_integer(n))
        return an_fail(err, AN_E_IO, "%s: %s: a whole number is missing; the file is damaged", a->path,
                       an_quoted(what, quoted));
    *out = json_integer_value(n);
    return AN_OK;
}

static an_status read_sizes(an_err *err, const an_pt2 *a, const char *name, const json_t *list, int64_t *out, int *rank)
{
    char quoted[AN_QUOTED_BYTES];
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > AN_PT2_MAX_RANK)
        return an_fail(err, AN_E_IO, "%s: tensor %s: it has %zu axes, %d are the most", a->path,
                       an_quoted(name, quoted), n, AN_PT2_MAX_RANK);
    *rank = (int)n;
    for (size_t i = 0; i < n; i++) {
        AN_TRY(an_pt2_int(err, a, name, json_array_get(list, i), &out[i]));
        if (out[i] < 0 || out[i] > INT64_MAX / 16)
            return an_fail(err, AN_E_IO, "%s: tensor %s: the size or stride %lld is out of range; the file is damaged",
                           a->path, an_quoted(name, quoted), (long long)out[i]);
    }
    return AN_OK;
}

int64_t an_pt2_elements(const an_pt2_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* Whether the tensor lies in `bytes` of storage, all products in range. */
static bool lies_in(const an_pt2_tensor *t, uint64_t bytes)
{
    uint64_t last = (uint64_t)t->offset, count = 1;
    const uint64_t most = INT64_MAX / 64;
    for (int i = 0; i < t->rank; i++) {
        const uint64_t dim = (uint64_t)t->dim[i], stride = (uint64_t)t->stride[i];
        if (dim > 0 && count > INT32_MAX / dim) return false; /* the library's limit of elements */
        count *= dim;
        if (dim > 1 && stride > 0 && (dim - 1) > (most - AN_MIN(last, most)) / stride) return false;
        if (dim > 1) last += (dim - 1) * stride;
    }
    return count == 0 || (last < most && (last + 1) * (uint64_t)t->item_bytes <= bytes);
}

static an_status read_meta(an_err *err, const an_pt2 *a, const json_t *entry, an_pt2_tensor *t)
{
    char quoted[AN_QUOTED_BYTES];
    int64_t number;
    int strides;
    const json_t *meta = json_object_get(entry, "tensor_meta");
    if (!json_is_object(meta) || !json_is_string(json_object_get(entry, "path_name")))
        return an_fail(err, AN_E_IO, "%s: tensor %s is not described; the file is damaged", a->path,
                       an_quoted(t->name, quoted));
    if (json_is_true(json_object_get(entry, "use_pickle")))
        return an_fail(err, AN_E_UNSUPPORTED,
                       "%s: tensor %s is stored as a pickle (a tensor subclass), which is not read; make it a plain "
                       "tensor before the export",
                       a->path, an_quoted(t->name, quoted));
    t->file = json_string_value(json_object_get(entry, "path_name"));
    t->parameter = json_is_true(json_object_get(entry, "is_param"));
    t->requires_grad = json_is_true(json_object_get(meta, "requires_grad"));
    AN_TRY(an_pt2_int(err, a, t->name, json_object_get(meta, "dtype"), &number));
    t->torch_dtype = number > 0 && number < 256 ? (int)number : 0;
    t->item_bytes = (int64_t)an_pt2_dtype_bytes(t->torch_dtype);
    if (t->item_bytes == 0)
        return an_fail(
            err, AN_E_UNSUPPORTED,
            "%s: tensor %s: its dtype (number %lld of PyTorch's) is none that anneal has; export it in float32",
            a->path, an_quoted(t->name, quoted), (long long)number);
    AN_TRY(an_pt2_int(err, a, t->name, json_object_get(meta, "storage_offset"), &t->offset));
    AN_TRY(read_sizes(err, a, t->name, json_object_get(meta, "sizes"), t->dim, &t->rank));
    AN_TRY(read_sizes(err, a, t->name, json_object_get(meta, "strides"), t->stride, &strides));
    if (strides == t->rank && t->offset >= 0) return AN_OK;
    return an_fail(err, AN_E_IO, "%s: tensor %s: %d sizes, %d strides, offset %lld; the file is damaged", a->path,
                   an_quoted(t->name, quoted), t->rank, strides, (long long)t->offset);
}

static an_status find_bytes(an_err *err, an_pt2 *a, an_pt2_tensor *t)
{
    char quoted[AN_QUOTED_BYTES];
    if (!a->has_data) {
        if (lies_in(t, UINT64_MAX)) return AN_OK;
        return an_fail(err, AN_E_IO, "%s: tensor %s is too large; the file is damaged", a->path,
                       an_quoted(t->name, quoted));
    }
    const char *name =
        an_arena_printf(&a->arena, "%sdata/%s/%s", a->folder, t->constant ? "constants" : "weights", t->file);
    if (!name) return an_fail_nomem(err, a->path, 0);
    t->data = an_zip_find(&a->zip, name);
    if (!t->data)
        return an_fail(err, AN_E_IO, "%s: tensor %s: there is no member %.200s; the file is damaged", a->path,
                       an_quoted(t->name, quoted), name);
    if (lies_in(t, t->data->bytes)) return AN_OK;
    return an_fail(err, AN_E_IO,
                   "%s: byte %" PRIu64 ": tensor %s does not lie in the %" PRIu64 " bytes of %.200s; the file is "
                   "damaged",
                   a->path, t->data->at, an_quoted(t->name, quoted), t->data->bytes, name);
}

/* Compares where two tensors lie and how they are read, in an order in which equal ones are neighbours. 0: the same place. */
static int compare_place(const an_pt2_tensor *x, const an_pt2_tensor *y)
{
    const int file = strcmp(x->file, y->file);
    if (file) return file;
    if (x->constant != y->constant) return x->constant ? 1 : -1;
    if (x->torch_dtype != y->torch_dtype) return x->torch_dtype < y->torch_dtype ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    const int dims = memcmp(x->dim, y->dim, (size_t)x->rank * sizeof x->dim[0]);
    return dims ? dims : memcmp(x->stride, y->stride, (size_t)x->rank * sizeof x->stride[0]);
}

static int by_place(const void *x, const void *y)
{
    const an_pt2_tensor *const *a = x, *const *b = y;
    const int order = compare_place(*a, *b);
    return order ? order : *a < *b ? -1 : *a > *b;
}

/* Finds tied tensors (shared weights) as neighbours in a sorted list: the time is not quadratic in their number. */
static an_status find_ties(an_err *err, an_pt2 *a)
{
    const an_pt2_tensor **order = AN_NEW_ARRAY(&a->arena, const an_pt2_tensor *, a->n_tensors + 1);
    if (!order) return an_fail_nomem(err, a->path, 0);
    for (int32_t i = 0; i < a->n_tensors; i++) order[i] = &a->tensor[a->tensor[i].first = i];
    qsort(order, (size_t)a->n_tensors, sizeof *order, by_place);
    for (int32_t i = 1; i < a->n_tensors; i++)
        if (compare_place(order[i - 1], order[i]) == 0) a->tensor[order[i] - a->tensor].first = order[i - 1]->first;
    return AN_OK;
}

static an_status read_config(an_err *err, an_pt2 *a, const json_t *config, bool constant)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)config, name, entry) /* a cast for jansson's macro, which changes nothing */
    {
        an_pt2_tensor *t = &a->tensor[a->n_tensors++];
        t->name = name;
        t->constant = constant;
        AN_TRY(read_meta(err, a, entry, t));
        AN_TRY(find_bytes(err, a, t));
    }
    return AN_OK;
}

static an_status read_tensors(an_err *err, an_pt2 *a)
{
    const json_t *weights = json_object_get(a->weights_config, "config"),
                 *constants = json_object_get(a->constants_config, "config");
    const size_t n = json_object_size(weights) + json_object_size(constants);
    if (a->weights_config && !json_is_object(weights))
        return an_fail(err, AN_E_IO, "%s: the list of weights is not one; the file is damaged", a->path);
    if (n > AN_PT2_MAX_TENSORS)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: %zu tensors, %d are the most", a->path, n, AN_PT2_MAX_TENSORS);
    a->tensor = AN_NEW_ARRAY(&a->arena, an_pt2_tensor, n + 1);
    if (!a->tensor) return an_fail_nomem(err, a->path, n * sizeof *a->tensor);
    AN_TRY(read_config(err, a, weights, false));
    AN_TRY(read_config(err, a, constants, true));
    return find_ties(err, a);
}

const an_pt2_tensor *an_pt2_find(const an_pt2 *a, const char *name, bool constant)
{
    for (int32_t i = 0; i < a->n_tensors; i++)
        if (a->tensor[i].constant == constant && strcmp(a->tensor[i].name, name) == 0) return &a->tensor[i];
    return NULL;
}

/* ---- opening */

/* *out stays NULL where the archive has no such member. */
static an_status read_json(an_err *err, an_pt2 *a, const char *member, int text, json_t **out)
{
    char name[600];
    *out = NULL;
    if (snprintf(name, sizeof name, "%s%s", a->folder, member) >= (int)sizeof name) return AN_OK;
    const an_zip_member *m = an_zip_find(&a->zip, name);
    if (!m) return AN_OK;
    if (m->bytes > AN_PT2_MAX_JSON_BYTES)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: %.200s has %" PRIu64 " bytes, %d are the most", a->path, name,
                       m->bytes, AN_PT2_MAX_JSON_BYTES);
    AN_TRY(an_zip_check(err, &a->zip, m));
    a->text[text] = m;
    return an_json_parse(err, a->path, m->at, (const char *)a->zip.data + m->at, (size_t)m->bytes, out);
}

const char *an_pt2_place(const an_pt2 *a, const json_t *program, const char *const *step, int n_steps,
                         char out[AN_PT2_PLACE])
{
    const int eval = program == a->eval;
    const char *way[AN_PT2_STEPS + 1] = {eval ? "eval" : "model"}; /* of a description, whose parts have names */
    const an_zip_member *m = a->text[eval];
    n_steps = AN_MIN(n_steps, AN_PT2_STEPS);
    memcpy(way + 1, step, (size_t)n_steps * sizeof *way);
    const char *text = m ? (const char *)a->zip.data + m->at : a->description;
    const size_t n = m ? (size_t)m->bytes : strlen(text);
    const uint64_t at = (m ? m->at : 0) + an_json_byte(text, n, m ? step : way, m ? n_steps : n_steps + 1);
    snprintf(out, AN_PT2_PLACE, "%s%s, byte %" PRIu64 " of the %s", m ? "models/" : "",
             m && !eval ? "model.json"
             : m        ? "eval.json"
                        : way[0],
             at, m ? "file" : "text");
    return out;
}

/* The folder that all members are in: what precedes models/ in the name of the first of them. */
static an_status find_folder(an_err *err, an_pt2 *a)
{
    for (size_t i = 0; i < a->zip.n; i++) {
        const char *name = a->zip.members[i].name, *at = strstr(name, "models/");
        const size_t n = at ? (size_t)(at - name) : 0;
        if (!at || (n > 0 && at[-1] != '/') || n > 500 || memchr(name, '/', n) != (n ? name + n - 1 : NULL)) continue;
        a->folder = an_arena_printf(&a->arena, "%.*s", (int)n, name);
        return a->folder ? AN_OK : an_fail_nomem(err, a->path, n);
    }
    for (size_t i = 0; i < a->zip.n; i++)
        if (strstr(a->zip.members[i].name, "serialized_exported_program.json"))
            return an_fail(err, AN_E_UNSUPPORTED,
                           "%s: an archive of PyTorch before 2.9; export it again with 2.9 or newer", a->path);
    return an_fail(err, AN_E_IO, "%s: a zip archive, but not one of torch.export.save: it has no models/", a->path);
}

static an_status check_byteorder(an_err *err, const an_pt2 *a)
{
    char name[600];
    snprintf(name, sizeof name, "%sbyteorder", a->folder);
    const an_zip_member *m = an_zip_find(&a->zip, name);
    if (!m || (m->bytes == 6 && memcmp(a->zip.data + m->at, "little", 6) == 0)) return AN_OK;
    return an_fail(err, AN_E_UNSUPPORTED,
                   "%s: its tensors are not little-endian; export the model on a little-endian machine", a->path);
}

static an_status check_version(an_err *err, an_pt2 *a)
{
    const json_t *versions = json_object_get(a->model, "schema_version"), *version = json_object_get(versions, "major");
    a->minor = json_integer_value(json_object_get(versions, "minor"));
    if (!a->model)
        return an_fail(err, AN_E_IO, "%s: it has no models/model.json; the file is damaged, or of another program",
                       a->path);
    if (json_is_integer(version) && json_integer_value(version) == 8) return AN_OK;
    return an_fail(err, AN_E_UNSUPPORTED, "%s: its schema is version %lld, version 8 is read (PyTorch 2.9 to 2.15)",
                   a->path, (long long)json_integer_value(version));
}

static an_status read_members(an_err *err, an_pt2 *a)
{
    AN_TRY(find_folder(err, a));
    AN_TRY(check_byteorder(err, a));
    AN_TRY(read_json(err, a, "models/model.json", 0, &a->model));
    AN_TRY(read_json(err, a, "models/eval.json", 1, &a->eval));
    AN_TRY(check_version(err, a));
    AN_TRY(read_json(err, a, "data/weights/model_weights_config.json", 2, &a->weights_config));
    AN_TRY(read_json(err, a, "data/constants/model_constants_config.json", 3, &a->constants_config));
    return read_tensors(err, a);
}

an_status an_pt2_open_memory(an_err *err, const char *name, const void *data, size_t bytes, an_pt2 *out)
{
    *out = (an_pt2){.has_data = true};
    out->path = an_arena_strdup(&out->arena, name);
    if (!out->path) return an_fail_nomem(err, name, 0);
    if (!an_zip_is(data, bytes))
        return an_fail(err, AN_E_IO, "%s: not a file of torch.export.save: it is no zip archive", name);
    AN_TRY(an_zip_open(err, out->path, data, bytes, &out->arena, &out->zip));
    return read_members(err, out);
}

an_status an_pt2_open(an_err *err, const char *path, an_pt2 *out)
{
    an_map_file map;
    *out = (an_pt2){0};
    AN_TRY(an_file_map(err, path, &map));
    an_status status = an_pt2_open_memory(err, path, map.data, map.bytes, out);
    out->map = map;
    return status;
}

static void take(json_t *root, const char *key, json_t **out)
{
    json_t *part = json_object_get(root, key);
    *out = json_is_object(part) ? json_incref(part) : NULL;
}

an_status an_pt2_open_description(an_err *err, const char *name, const char *json, size_t n, an_pt2 *out)
{
    json_t *root;
    *out = (an_pt2){0};
    out->path = an_arena_strdup(&out->arena, name);
    out->description = an_arena_printf(&out->arena, "%.*s", (int)AN_MIN(n, INT32_MAX), json);
    if (!out->path || !out->description) return an_fail_nomem(err, name, n);
    AN_TRY(an_json_parse(err, name, 0, json, n, &root));
    take(root, "model", &out->model);
    take(root, "eval", &out->eval);
    take(root, "weights", &out->weights_config);
    take(root, "constants", &out->constants_config);
    json_decref(root);
    AN_TRY(check_version(err, out));
    return read_tensors(err, out);
}

void an_pt2_close(an_pt2 *a)
{
    json_decref(a->model);
    json_decref(a->eval);
    json_decref(a->weights_config);
    json_decref(a->constants_config);
    an_file_unmap(&a->map);
    an_arena_free(&a->arena);
    *a = (an_pt2){0};
}

an_status an_pt2_describe(an_err *err, const an_pt2 *a, an_text *out)
{
    static const char *const key[] = {"model", "eval", "weights", "constants"};
    const char *separator = "{";
    if (a->description) an_text_puts(out, a->description);
    for (int i = 0; i < AN_PT2_TEXTS && !a->description; i++) {
        if (!a->text[i]) continue;
        an_text_printf(out, "%s\"%s\":", separator, key[i]);
        an_text_putn(out, (const char *)a->zip.data + a->text[i]->at, (size_t)a->text[i]->bytes);
        separator = ",";
    }
    if (!a->description) an_text_puts(out, "}");
    return out->failed ? an_fail_nomem(err, a->path, out->len) : AN_OK;
}

/* ---- elements */

static an_status put_element(an_err *err, const an_pt2 *a, const an_pt2_tensor *t, const unsigned char *from,
                             an_dtype to, unsigned char *out)
{
    char quoted[AN_QUOTED_BYTES];
    int64_t wide = 0;
    int32_t narrow;
    if (to != AN_I32 || t->item_bytes == 4) {
        memcpy(out, from, (size_t)t->item_bytes);
        if (to == AN_BOOL) *out = *out != 0;
        return AN_OK;
    }
    if (t->item_bytes == 8) {
        memcpy(&wide, from, sizeof wide);
    } else if (t->item_bytes == 2) {
        int16_t x;
        memcpy(&x, from, sizeof x);
        wide = x;
    } else {
        wide = t->torch_dtype == 1 ? (int64_t)*from : (int64_t)(signed char)*from;
    }
    narrow = (int32_t)wide;
    if (wide != narrow)
        return an_fail(err, AN_E_DATA, "%s: tensor %s holds %lld: integers are 32 bits wide here", a->path,
                       an_quoted(t->name, quoted), (long long)wide);
    memcpy(out, &narrow, sizeof narrow);
    return AN_OK;
}

an_status an_pt2_read(an_err *err, const an_pt2 *a, const an_pt2_tensor *t, void *out)
{
    an_dtype to = AN_F32;
    int64_t at[AN_PT2_MAX_RANK] = {0};
    const int64_t n = an_pt2_elements(t);
    unsigned char *dst = out;
    if (!t->data || !an_pt2_dtype(t->torch_dtype, &to))
        return an_fail(err, AN_E_INTERNAL, "%s: a tensor without bytes", a->path);
    AN_TRY(an_zip_check(err, &a->zip, t->data));
    const unsigned char *base = a->zip.data + t->data->at;
    const size_t width = to == AN_I32 ? 4 : (size_t)t->item_bytes;
    int64_t element = t->offset;
    for (int64_t i = 0; i < n; i++) {
        AN_TRY(put_element(err, a, t, base + element * t->item_bytes, to, dst + (size_t)i * width));
        for (int axis = t->rank - 1; axis >= 0; axis--) {
            element += t->stride[axis];
            if (++at[axis] < t->dim[axis]) break;
            element -= t->dim[axis] * t->stride[axis];
            at[axis] = 0;
        }
    }
    return AN_OK;
}
