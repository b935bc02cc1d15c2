/* pt2_step.c: a whole training step of a graph over another program's memory (an_import_step, an_import_bind_tensor).
 *
 * Owns:       the copies of buffers of integers, which are wider there than here.
 * Does not:   know who calls: python/anneal/_step.py does. Assign buffers that the graph changes: import.c.
 * Invariants: a step that failed before it ran has changed nothing. */
#include "import/pt2_call.h"
#include <anneal_interop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- buffers */

/* In C order, and of the tensor's shape. */
static bool fits(const an_pt2_tensor *t, const an_import_array *a)
{
    int64_t step = 1;
    if (a->rank != t->rank) return false;
    for (int i = a->rank - 1; i >= 0; step *= a->dim[i], i--)
        if (a->dim[i] != t->dim[i] || (a->dim[i] > 1 && a->step[i] != step)) return false;
    return true;
}

/* The entry of an_persist_get; `last`, where it was before, is looked at first. A tensor of two names has one state. */
static int entry_of(const an_import_model *m, const an_pt2_tensor *t, int last)
{
    an_persist p;
    const char *name = an_name_of(m->tensor[t - m->file->archive.tensor]);
    if (last >= 0 && last < an_persist_count(m->cx) && an_persist_get(m->cx, last, &p) == AN_OK &&
        strcmp(p.name, name) == 0)
        return last;
    return an_persist_find(m->cx, name);
}

/* The state takes the integers at `a`. */
static an_status write_integers(an_err *err, const an_import_model *m, const an_pt2_tensor *t, const an_import_array *a,
                                int *entry)
{
    const int64_t n = an_array_elements(a);
    const size_t each = an_dtype_size((an_dtype)a->dtype);
    int32_t *narrow = malloc((size_t)n * sizeof *narrow);
    an_status status = narrow ? AN_OK : an_fail_nomem(err, t->name, (size_t)n * sizeof *narrow);
    for (int64_t i = 0; status == AN_OK && i < n; i++) {
        const int64_t x = an_call_integer((const char *)a->data + (size_t)i * each, a->dtype);
        narrow[i] = (int32_t)x;
        if (x != narrow[i])
            status = an_fail(err, AN_E_DATA, "%s: %.60s holds %lld: integers are 32 bits wide here",
                             m->file->archive.path, t->name, (long long)x);
    }
    *entry = entry_of(m, t, *entry);
    if (status == AN_OK && an_persist_write(m->cx, *entry, narrow, (size_t)n * sizeof *narrow) != AN_OK)
        status = an_fail(err, an_error_status(m->cx), "%s: %.500s", m->file->archive.path,
                         an_error(m->cx) ? an_error(m->cx) : "a buffer cannot be written");
    free(narrow);
    return status;
}

/* The caller's integers take the state's. */
static an_status read_integers(an_err *err, const an_import_model *m, const an_pt2_tensor *t, const an_import_array *a,
                               int *entry)
{
    const int64_t n = an_array_elements(a);
    int32_t *narrow = malloc((size_t)n * sizeof *narrow);
    if (!narrow) return an_fail_nomem(err, t->name, (size_t)n * sizeof *narrow);
    *entry = entry_of(m, t, *entry);
    const an_status status = an_persist_read(m->cx, *entry, narrow, (size_t)n * sizeof *narrow);
    for (int64_t i = 0; status == AN_OK && i < n; i++) {
        if (a->dtype == AN_I64)
            ((int64_t *)a->data)[i] = narrow[i];
        else if (a->dtype == AN_I32)
            ((int32_t *)a->data)[i] = narrow[i];
        else
            ((unsigned char *)a->data)[i] = (unsigned char)narrow[i];
    }
    free(narrow);
    return status == AN_OK ? AN_OK : an_fail(err, status, "%s: %.60s cannot be read", m->file->archive.path, t->name);
}

static an_status keep_mirror(an_err *err, an_import_model *m, int32_t tensor, const an_import_array *a)
{
    for (int i = 0; i < m->n_mirrors; i++)
        if (m->mirror[i].tensor == tensor) {
            m->mirror[i].array = *a;
            return AN_OK;
        }
    if (!an_grow((void **)&m->mirror, m->n_mirrors, &m->cap_mirrors, sizeof *m->mirror))
        return an_fail_nomem(err, "buffers of integers", sizeof *m->mirror);
    m->mirror[m->n_mirrors++] = (an_mirror){tensor, -1, *a};
    return AN_OK;
}

static an_status bind_tensor(an_err *err, an_import_model *m, const char *name, const an_import_array *a)
{
    const an_pt2 *f = &m->file->archive;
    const an_pt2_tensor *t = an_pt2_find(f, name, false);
    an_dtype dtype = AN_F32;
    if (!t) t = an_pt2_find(f, name, true);
    if (!t) return an_fail(err, AN_E_USAGE, "%s: there is no tensor %.60s", f->path, name);
    if (t->parameter)
        return an_fail(err, AN_E_USAGE, "%s: %.60s is a parameter: bind its block (an_bind_block)", f->path, name);
    (void)an_pt2_dtype(t->torch_dtype, &dtype);
    const bool integer = dtype == AN_I32, wide = a->dtype == AN_I64 || a->dtype == AN_U8 || a->dtype == AN_I32;
    const int64_t n = an_pt2_elements(t);
    if (!fits(t, a) || (integer ? !wide : a->dtype != (int32_t)dtype) || (n > 0 && !a->data))
        return an_fail(err, AN_E_USAGE, "%s: %.60s is not given as the graph has it: another shape, dtype or order",
                       f->path, name);
    if (n == 0) return AN_OK;
    if (integer) {
        int entry = -1;
        AN_TRY(write_integers(err, m, t, a, &entry));
        return t->constant ? AN_OK : keep_mirror(err, m, (int32_t)(t - f->tensor), a);
    }
    if (an_bind(m->tensor[t - f->tensor], a->data, (size_t)n * an_dtype_size(dtype), AN_READ_WRITE) == AN_OK)
        return AN_OK;
    return an_fail(err, an_error_status(m->cx), "%s: %.500s", f->path,
                   an_error(m->cx) ? an_error(m->cx) : "a buffer cannot be bound");
}

an_status an_import_bind_tensor(an_import_model *m, const char *name, const an_import_array *a, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    const an_status status = bind_tensor(&err, m, name, a);
    if (status != AN_OK && why) snprintf(why, AN_IMPORT_WHY, "%s", err.text);
    if (status != AN_OK) an_error_clear(m->cx);
    return status;
}

/* ---- a step */

static an_status update(const an_call *c, const an_import_update *u, an_tensor **norm)
{
    const an_adamw_options adam = {.lr = u->lr,
                                   .beta1 = u->beta1,
                                   .beta2 = u->beta2,
                                   .eps = u->eps,
                                   .weight_decay = u->weight_decay,
                                   .clip = u->clip,
                                   .t = u->t};
    const an_sgd_options sgd = {.lr = u->lr,
                                .momentum = u->momentum,
                                .dampening = u->dampening,
                                .weight_decay = u->weight_decay,
                                .clip = u->clip,
                                .nesterov = u->nesterov != 0,
                                .t = u->t};
    if (u->optimizer && strcmp(u->optimizer, "adamw") == 0)
        *norm = an_adamw_at(AN_AT, c->cx, adam);
    else if (u->optimizer && strcmp(u->optimizer, "adam") == 0)
        *norm = an_adam_at(AN_AT, c->cx, adam);
    else if (u->optimizer && strcmp(u->optimizer, "sgd") == 0)
        *norm = an_sgd_with_at(AN_AT, c->cx, sgd);
    else
        return an_fail(c->err, AN_E_USAGE, "optimizer %.40s is not there; there are adamw, adam and sgd",
                       u->optimizer ? u->optimizer : "");
    return an_error(c->cx) ? an_call_failed(c) : AN_OK;
}

static an_status mirrors(const an_call *c, bool out)
{
    const an_pt2 *f = &c->m->file->archive;
    for (int i = 0; i < c->m->n_mirrors; i++) {
        an_mirror *x = &c->m->mirror[i];
        AN_TRY(out ? read_integers(c->err, c->m, &f->tensor[x->tensor], &x->array, &x->entry)
                   : write_integers(c->err, c->m, &f->tensor[x->tensor], &x->array, &x->entry));
    }
    return AN_OK;
}

static an_status step(an_call *c, const an_import_array *in, const an_import_update *u, an_import_result *out,
                      char *built)
{
    an_bill bill;
    an_tensor *norm = NULL;
    if (out) AN_TRY(mirrors(c, false));
    AN_TRY(an_call_inputs(c, in));
    const an_status status = an_import_build_as(c->m, AN_IMPORT_TRAIN, c->in, c->last_in, c->out, NULL, built);
    if (status != AN_OK) return c->err->code = status; /* built[] has the sentence */
    an_tensor *loss = c->n_out > 0 ? c->out[0] : NULL;
    if (!loss || an_shape_of(loss).rank != 0)
        return an_fail(c->err, AN_E_SHAPE,
                       "%s: the first result is no scalar: a step needs a model that returns its loss, or a loss",
                       c->m->file->archive.path);
    if (out) an_set_step(c->cx, c->m->calls++);
    an_backward_at(AN_AT, loss);
    AN_TRY(update(c, u, &norm));
    an_tensor *roots[] = {loss, norm};
    const an_status ran = out ? an_eval_at(AN_AT, roots, 2) : an_plan_at(AN_AT, roots, 2);
    if (ran != AN_OK || an_error(c->cx)) return an_call_failed(c);
    if (an_report(c->cx, &bill) == AN_OK) {
        c->m->launches = bill.launches;
        c->m->peak_bytes = (int64_t)bill.peak_bytes;
    }
    if (!out) return AN_OK;
    *out = (an_import_result){an_item(loss), an_item(norm)};
    AN_TRY(mirrors(c, true));
    return an_error(c->cx) ? an_call_failed(c) : AN_OK;
}

an_status an_import_step(an_import_model *m, const an_import_array *in, const an_import_update *u,
                         an_import_result *out, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    char built[AN_IMPORT_WHY] = "";
    an_call c;
    an_status status = an_call_begin(m, &err, &c);
    c.runs = out != NULL;
    if (status == AN_OK) status = step(&c, in, u, out, built);
    return an_call_end(&c, status, built, why);
}
