/* imported_weights.c: a checkpoint's tensors under PyTorch's names and dtypes. See imported_weights.h. */
#include "models/imported/imported_weights.h"
#include "io/checkpoint.h"
#include <anneal_import.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Converted copies, which are kept until the file is written. */
typedef struct copies {
    void **data;
    int n;
} copies;

static an_dtype dtype_there(const char *name, an_dtype inside)
{
    return strcmp(name, "int64") == 0 ? AN_I64 : strcmp(name, "uint8") == 0 ? AN_U8 : inside;
}

/* int32 elements converted to the dtype that they have in PyTorch. */
static void *converted(const an_st_tensor *t, an_dtype to, copies *c)
{
    const size_t n = t->bytes / 4, width = to == AN_I64 ? 8 : 1;
    char *out = malloc(n * width + 1);
    for (size_t i = 0; out && i < n; i++) {
        int32_t x;
        memcpy(&x, (const char *)t->data + 4 * i, sizeof x);
        const int64_t wide = x;
        const unsigned char byte = (unsigned char)x;
        memcpy(out + i * width, to == AN_I64 ? (const void *)&wide : &byte, width);
    }
    if (out) c->data[c->n++] = out;
    return out;
}

static an_status add(an_err *err, const an_st *st, const an_import_entry *e, an_st_writer *w, copies *c)
{
    const char *stored = e->tied_to ? e->tied_to : e->name;
    const an_st_tensor *t = an_st_find(st, stored);
    const an_dtype to = dtype_there(e->torch_dtype, e->dtype);
    const void *data = t ? t->data : NULL;
    if (!t || t->dtype != e->dtype || t->rank != e->shape.rank)
        return an_fail(err, AN_E_IO, "%s: tensor %.100s is missing or another than its graph says", an_st_path(st),
                       stored);
    if (to != t->dtype) data = converted(t, to, c);
    if (!data && t->bytes) return an_fail_nomem(err, e->name, t->bytes);
    return an_st_add(err, w, e->name, to, t->rank, t->shape, data);
}

static an_status add_all(an_err *err, const an_st *st, const an_import *f, an_st_writer *w, copies *c)
{
    an_import_entry e;
    for (int i = 0; an_import_get(f, AN_IMPORT_PARAMETER, i, &e); i++) AN_TRY(add(err, st, &e, w, c));
    for (int i = 0; an_import_get(f, AN_IMPORT_BUFFER, i, &e); i++)
        if (e.persistent) AN_TRY(add(err, st, &e, w, c));
    return an_st_set_meta(err, w, "format", "pt");
}

/* ---- as an archive */

static const void *read_tensor(void *user, const an_import_entry *e, char why[AN_IMPORT_WHY])
{
    const an_st *st = user;
    const char *stored = e->tied_to ? e->tied_to : e->name;
    const an_st_tensor *t = an_st_find(st, stored);
    bool same = t && t->dtype == e->dtype && t->rank == e->shape.rank;
    for (int k = 0; same && k < t->rank; k++) same = t->shape[k] == e->shape.dim[k];
    if (same) return t->data;
    snprintf(why, AN_IMPORT_WHY, "%.500s: tensor %.100s is missing or another than its graph says", an_st_path(st),
             stored);
    return NULL;
}

static an_status write_archive(an_err *err, const an_st *st, const an_import *f, const char *path)
{
    char why[AN_IMPORT_WHY] = "";
    an_status status = an_import_write(f, path, read_tensor, (void *)st, why); /* read only */
    return status == AN_OK ? AN_OK : an_fail(err, status, "%s", why);
}

static bool is_archive(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".pt2") == 0;
}

/* ---- as safetensors */

static an_status write_tensors(an_err *err, const an_st *st, const an_import *f, const char *path)
{
    an_st_writer *w;
    copies c = {.data = calloc((size_t)an_import_count(f, AN_IMPORT_BUFFER) + 1, sizeof(void *))};
    an_status status = c.data ? an_st_begin(err, path, &w) : an_fail_nomem(err, path, 0);
    if (status == AN_OK) {
        status = add_all(err, st, f, w, &c);
        if (status == AN_OK)
            status = an_st_commit(err, w);
        else
            an_st_abort(w);
    }
    for (int i = 0; i < c.n; i++) free(c.data[i]);
    free(c.data);
    return status;
}

an_status an_imported_write_weights(an_err *err, const an_st *st, const char *layout, const char *path)
{
    char why[AN_IMPORT_WHY] = "";
    (void)layout;
    const char *json = an_st_meta(st, AN_CKPT_TASK);
    an_import *f = json ? an_import_open_description(an_st_path(st), json, strlen(json), why) : NULL;
    if (!f) return an_fail(err, AN_E_IO, "%s", json ? why : "the file holds no graph of an imported model");
    an_status status = is_archive(path) ? write_archive(err, st, f, path) : write_tensors(err, st, f, path);
    an_import_close(f);
    return status;
}
