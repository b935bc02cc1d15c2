/* archive_write.c: see archive_write.h. PyTorch wants for each program its own list of weights and constants and a member
 * of sample inputs, which is empty here. */
#include "import/archive_write.h"
#include "io/formats/zip_write.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128 };

/* The member that holds the bytes of a tensor: that of the first one with these bytes in the same folder. */
static int32_t owner_of(const an_pt2 *a, int32_t i)
{
    const int32_t first = a->tensor[i].first;
    return a->tensor[first].constant == a->tensor[i].constant ? first : i;
}

static void member_of(const an_pt2 *a, int32_t i, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%s_%d", a->tensor[i].constant ? "tensor" : "weight", owner_of(a, i));
}

/* ---- lists of tensors */

static void put_sizes(an_text *out, const char *key, const int64_t *size, int rank)
{
    an_text_printf(out, "\"%s\":[", key);
    for (int k = 0; k < rank; k++) an_text_printf(out, "%s{\"as_int\":%" PRId64 "}", k ? "," : "", size[k]);
    an_text_puts(out, "],");
}

static void put_tensor(an_text *out, const an_pt2 *a, int32_t i)
{
    const an_pt2_tensor *t = &a->tensor[i];
    char member[NAME_BYTES];
    int64_t stride[AN_PT2_MAX_RANK];
    int64_t step = 1;
    for (int k = t->rank; k-- > 0; step *= AN_MAX(t->dim[k], 1)) stride[k] = step;
    member_of(a, i, member);
    an_json_put(out, t->name);
    an_text_printf(out, ":{\"path_name\":\"%s\",\"is_param\":%s,\"use_pickle\":false,\"tensor_meta\":{\"dtype\":%d,",
                   member, t->parameter ? "true" : "false", t->torch_dtype);
    put_sizes(out, "sizes", t->dim, t->rank);
    an_text_printf(out, "\"requires_grad\":%s,\"device\":{\"type\":\"cpu\",\"index\":null},",
                   t->requires_grad ? "true" : "false");
    put_sizes(out, "strides", stride, t->rank);
    an_text_puts(out, "\"storage_offset\":{\"as_int\":0},\"layout\":7}}");
}

static void put_config(an_text *out, const an_pt2 *a, bool constants)
{
    const char *separator = "";
    an_text_puts(out, "{\"config\":{");
    for (int32_t i = 0; i < a->n_tensors; i++) {
        if (a->tensor[i].constant != constants) continue;
        an_text_puts(out, separator);
        put_tensor(out, a, i);
        separator = ",";
    }
    an_text_puts(out, "}}");
}

/* ---- members */

static an_status add(an_err *err, an_zip_writer *w, const char *path, const void *data, size_t bytes)
{
    char name[4 * NAME_BYTES];
    snprintf(name, sizeof name, "model/%s", path);
    return an_zip_add(err, w, name, data, bytes);
}

static an_status add_text(an_err *err, an_zip_writer *w, const char *path, an_text *text)
{
    an_status status = text->failed ? an_fail_nomem(err, path, text->len) : add(err, w, path, text->data, text->len);
    an_text_free(text);
    return status;
}

static an_status add_program(an_err *err, an_zip_writer *w, const an_pt2 *a, const char *name, const json_t *program)
{
    char path[NAME_BYTES];
    an_text text = {0}, weights = {0}, constants = {0};
    if (!program) return AN_OK;
    an_json_put_value(&text, program);
    snprintf(path, sizeof path, "models/%s.json", name);
    AN_TRY(add_text(err, w, path, &text));
    put_config(&weights, a, false);
    snprintf(path, sizeof path, "data/weights/%s_weights_config.json", name);
    AN_TRY(add_text(err, w, path, &weights));
    put_config(&constants, a, true);
    snprintf(path, sizeof path, "data/constants/%s_constants_config.json", name);
    AN_TRY(add_text(err, w, path, &constants));
    snprintf(path, sizeof path, "data/sample_inputs/%s.pt", name);
    return add(err, w, path, "", 0);
}

/* Elements from inside as PyTorch's: int32 as what it was. *copy is the caller's to free. */
static an_status to_torch(an_err *err, const an_pt2_tensor *t, const void *data, void **copy)
{
    const int64_t n = an_pt2_elements(t);
    unsigned char *out = malloc((size_t)(n * t->item_bytes) + 1);
    *copy = out;
    if (!out) return an_fail_nomem(err, t->name, (size_t)(n * t->item_bytes));
    for (int64_t i = 0; i < n; i++) {
        int32_t x;
        memcpy(&x, (const char *)data + 4 * i, sizeof x);
        const int64_t wide = x; /* little-endian: the low bytes are first */
        memcpy(out + i * t->item_bytes, &wide, (size_t)t->item_bytes);
    }
    return AN_OK;
}

static an_status add_tensor(an_err *err, an_zip_writer *w, const an_pt2 *a, int32_t i, an_pt2_source source, void *user)
{
    const an_pt2_tensor *t = &a->tensor[i];
    char member[NAME_BYTES], path[2 * NAME_BYTES];
    an_dtype inside = AN_F32;
    const void *data;
    void *copy = NULL;
    (void)an_pt2_dtype(t->torch_dtype, &inside);
    member_of(a, i, member);
    snprintf(path, sizeof path, "data/%s/%s", t->constant ? "constants" : "weights", member);
    AN_TRY(source(err, user, t, &data));
    if (inside == AN_I32 && t->item_bytes != 4) {
        an_status status = to_torch(err, t, data, &copy);
        if (status != AN_OK) return status;
        data = copy;
    }
    an_status status = add(err, w, path, data, (size_t)(an_pt2_elements(t) * t->item_bytes));
    free(copy);
    return status;
}

static an_status add_all(an_err *err, an_zip_writer *w, const an_pt2 *a, an_pt2_source source, void *user)
{
    AN_TRY(add(err, w, "archive_format", "pt2", 3));
    AN_TRY(add(err, w, "archive_version", "0", 1));
    AN_TRY(add(err, w, "byteorder", "little", 6));
    AN_TRY(add(err, w, ".data/version", "6\n", 2));
    AN_TRY(add_program(err, w, a, "model", a->model));
    AN_TRY(add_program(err, w, a, "eval", a->eval));
    for (int32_t i = 0; i < a->n_tensors; i++)
        if (owner_of(a, i) == i) AN_TRY(add_tensor(err, w, a, i, source, user));
    return AN_OK;
}

an_status an_pt2_write(an_err *err, const an_pt2 *a, const char *path, an_pt2_source source, void *user)
{
    an_zip_writer w;
    an_status status = an_zip_begin(err, path, &w);
    if (status == AN_OK) status = add_all(err, &w, a, source, user);
    if (status == AN_OK) status = an_zip_commit(err, &w);
    an_zip_abort(&w);
    return status;
}
