/* import.c: the public functions of anneal_import.h.
 *
 * Owns:       an opened file with its one or two graphs; which state and parameter each tensor of it is; the assignments
 *             that give buffers, such as running statistics, their new values (assign_buffers).
 * Invariants: a parameter's name in the context is the first of its tied names; all parameters are declared before any
 *             is written, so that they share blocks. */
#include "import/archive_write.h"
#include "import/pt2_model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `why`: the caller's AN_IMPORT_WHY bytes, or NULL. */
static void give_reason(char *why, const an_err *err)
{
    if (why) snprintf(why, AN_IMPORT_WHY, "%s", err->text);
}

/* ---- opening */

/* The i-th input that the caller gives, NULL: there are fewer. An input that is no tensor does not count. */
static const an_pt2_input *user_input(const an_pt2_graph *g, int i)
{
    for (int32_t k = 0; k < g->n_inputs; k++)
        if (g->input[k].kind == AN_INPUT_USER && g->input[k].value >= 0 && i-- == 0) return &g->input[k];
    return NULL;
}

/* The i-th result that the caller gets, NULL: there are fewer. */
static const an_pt2_output *user_output(const an_pt2_graph *g, int i)
{
    for (int32_t k = 0; k < g->n_outputs; k++)
        if (g->output[k].kind != AN_OUTPUT_BUFFER && i-- == 0) return &g->output[k];
    return NULL;
}

static int count_user_inputs(const an_pt2_graph *g)
{
    int n = 0;
    for (int32_t k = 0; k < g->n_inputs; k++) n += g->input[k].kind == AN_INPUT_USER && g->input[k].value >= 0;
    return n;
}

static int count_user_outputs(const an_pt2_graph *g)
{
    int n = 0;
    for (int32_t k = 0; k < g->n_outputs; k++) n += g->output[k].kind != AN_OUTPUT_BUFFER;
    return n;
}

static an_status list_tensors(an_err *err, an_import *f)
{
    const an_pt2 *a = &f->archive;
    f->parameters = AN_NEW_ARRAY(&f->archive.arena, int32_t, a->n_tensors + 1);
    f->buffers = AN_NEW_ARRAY(&f->archive.arena, int32_t, a->n_tensors + 1);
    if (!f->parameters || !f->buffers) return an_fail_nomem(err, a->path, 0);
    for (int32_t i = 0; i < a->n_tensors; i++) {
        if (a->tensor[i].parameter)
            f->parameters[f->n_parameters++] = i;
        else
            f->buffers[f->n_buffers++] = i;
    }
    return AN_OK;
}

static an_status read_graphs(an_err *err, an_import *f)
{
    AN_TRY(an_pt2_graph_open(err, &f->archive, f->archive.model, &f->graph[AN_PROGRAM_TRAIN]));
    f->has_eval = f->archive.eval != NULL;
    if (f->has_eval) AN_TRY(an_pt2_graph_open(err, &f->archive, f->archive.eval, &f->graph[AN_PROGRAM_EVAL]));
    const int in_train = count_user_inputs(&f->graph[AN_PROGRAM_TRAIN]);
    const int in_eval = f->has_eval ? count_user_inputs(&f->graph[AN_PROGRAM_EVAL]) : in_train;
    if (in_eval != in_train)
        return an_fail(err, AN_E_UNSUPPORTED,
                       "%s: the program for evaluation takes %d inputs, the one for training %d: export both of one "
                       "model with the same arguments",
                       f->archive.path, in_eval, in_train);
    return list_tensors(err, f);
}

static an_import *opened(an_status status, an_err *err, an_import *f, char *why)
{
    if (status == AN_OK) status = read_graphs(err, f);
    if (status == AN_OK) return f;
    give_reason(why, err);
    an_import_close(f);
    return NULL;
}

an_import *an_import_open(const char *path, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    an_import *f = calloc(1, sizeof *f);
    if (!f) (void)an_fail_nomem(&err, path, sizeof *f), give_reason(why, &err);
    return f ? opened(an_pt2_open(&err, path, &f->archive), &err, f, why) : NULL;
}

an_import *an_import_open_description(const char *name, const char *json, size_t bytes, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    an_import *f = calloc(1, sizeof *f);
    if (!f) (void)an_fail_nomem(&err, name, sizeof *f), give_reason(why, &err);
    return f ? opened(an_pt2_open_description(&err, name, json, bytes, &f->archive), &err, f, why) : NULL;
}

void an_import_close(an_import *f)
{
    if (!f) return;
    for (int i = 0; i < AN_PROGRAMS; i++) an_pt2_graph_close(&f->graph[i]);
    an_pt2_close(&f->archive);
    free(f);
}

char *an_import_description(const an_import *f)
{
    an_text text = {0};
    if (an_pt2_describe(NULL, &f->archive, &text) == AN_OK) return text.data;
    an_text_free(&text);
    return NULL;
}

/* ---- what is in it */

int an_import_count(const an_import *f, an_import_kind kind)
{
    const an_pt2_graph *g = &f->graph[AN_PROGRAM_TRAIN];
    if (kind == AN_IMPORT_PARAMETER) return f->n_parameters;
    if (kind == AN_IMPORT_BUFFER) return f->n_buffers;
    return kind == AN_IMPORT_INPUT ? count_user_inputs(g) : count_user_outputs(g);
}

static void describe_value(const an_pt2_value *v, const char *name, an_import_entry *out)
{
    *out = (an_import_entry){.name = name, .torch_dtype = an_pt2_dtype_name(v->torch_dtype)};
    (void)an_pt2_dtype(v->torch_dtype, &out->dtype);
    out->shape.rank = v->rank;
    memcpy(out->shape.dim, v->dim, (size_t)v->rank * sizeof v->dim[0]);
    out->first_axis_free = v->rank > 0 && v->symbolic[0];
}

/* What a tensor of the archive is in the context: a tied parameter is the first one, and so is a buffer of a module with two names. */
static const an_pt2_tensor *owner_of(const an_pt2 *a, int32_t i)
{
    const an_pt2_tensor *t = &a->tensor[i], *first = &a->tensor[t->first];
    return t->parameter == first->parameter && t->constant == first->constant ? first : t;
}

static void describe_tensor(const an_pt2 *a, const an_pt2_tensor *t, an_import_entry *out)
{
    *out = (an_import_entry){.name = t->name,
                             .torch_dtype = an_pt2_dtype_name(t->torch_dtype),
                             .shape = {.rank = t->rank},
                             .requires_grad = t->requires_grad,
                             .persistent = !t->constant};
    (void)an_pt2_dtype(t->torch_dtype, &out->dtype);
    memcpy(out->shape.dim, t->dim, (size_t)t->rank * sizeof t->dim[0]);
    const an_pt2_tensor *owner = owner_of(a, (int32_t)(t - a->tensor));
    if (owner != t) out->tied_to = owner->name;
}

/* The rows of the smallest embedding table whose ids are this value itself, not computed from it; 0: there is none. */
static int64_t ids_below(const an_pt2_graph *g, int32_t value)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const an_pt2_node *n = &g->node[i];
        if (n->n_in < 2 || strcmp(n->target, "aten.embedding.default") != 0) continue;
        const an_pt2_arg *table = &n->in[0], *ids = &n->in[1];
        if (table->kind != AN_ARG_TENSOR || ids->kind != AN_ARG_TENSOR || ids->value != value) continue;
        const an_pt2_value *t = &g->value[table->value];
        if (t->rank > 0 && (rows == 0 || t->dim[0] < rows)) rows = t->dim[0];
    }
    return rows;
}

bool an_import_get(const an_import *f, an_import_kind kind, int i, an_import_entry *out)
{
    const an_pt2_graph *g = &f->graph[AN_PROGRAM_TRAIN];
    if (i < 0 || i >= an_import_count(f, kind)) return false;
    if (kind == AN_IMPORT_INPUT) {
        const an_pt2_input *in = user_input(g, i);
        describe_value(&g->value[in->value], in->name, out);
        out->ids_below = ids_below(g, in->value);
        return true;
    }
    if (kind == AN_IMPORT_OUTPUT) {
        const an_pt2_output *o = user_output(g, i);
        *out = (an_import_entry){.name = "", .torch_dtype = "none"};
        if (o->value >= 0) describe_value(&g->value[o->value], o->name, out);
        return true;
    }
    describe_tensor(&f->archive, &f->archive.tensor[kind == AN_IMPORT_PARAMETER ? f->parameters[i] : f->buffers[i]],
                    out);
    return true;
}

bool an_import_has_eval(const an_import *f)
{
    return f->has_eval;
}

void an_import_note(const an_import *f, char note[AN_IMPORT_WHY])
{
    const char *by = json_string_value(json_object_get(f->archive.model, "torch_version"));
    note[0] = 0;
    if (f->archive.minor <= AN_PT2_MINOR) return;
    snprintf(
        note, AN_IMPORT_WHY,
        "%.500s: its schema is version 8.%lld%s%.40s, newer than 8.%d: what that adds is ignored, or refused by name",
        f->archive.path, (long long)f->archive.minor, by ? ", of PyTorch " : "", by ? by : "", AN_PT2_MINOR);
    an_text_printable(note, strlen(note));
}

char *an_import_operations(const an_import *f)
{
    an_text text = {0};
    an_text_puts(&text, "");
    an_aten_list(&f->graph[AN_PROGRAM_TRAIN], &text);
    if (!text.failed) return text.data;
    an_text_free(&text);
    return NULL;
}

static an_status resolve(an_err *err, an_import *f)
{
    const an_pt2_graph *g = &f->graph[AN_PROGRAM_TRAIN];
    if (f->resolved) return AN_OK;
    AN_TRY(an_aten_resolve(err, &f->graph[AN_PROGRAM_TRAIN]));
    if (f->has_eval) AN_TRY(an_aten_resolve(err, &f->graph[AN_PROGRAM_EVAL]));
    if (!g->training_ir)
        return an_fail(err, AN_E_UNSUPPORTED,
                       "%s: a graph for inference: what it says of gradients (detach, no_grad) is lost; save what "
                       "torch.export.export gives, without run_decompositions",
                       f->archive.path);
    f->resolved = true;
    return AN_OK;
}

an_status an_import_check(an_import *f, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    an_status status = resolve(&err, f);
    if (status != AN_OK) give_reason(why, &err);
    return status;
}

/* ---- written again */

typedef struct reader {
    const an_pt2 *archive;
    an_import_read read;
    void *user;
} reader;

static an_status read_one(an_err *err, void *user, const an_pt2_tensor *t, const void **data)
{
    const reader *r = user;
    an_import_entry e;
    char why[AN_IMPORT_WHY] = "";
    describe_tensor(r->archive, t, &e);
    *data = r->read(r->user, &e, why);
    return *data ? AN_OK : an_fail(err, AN_E_IO, "%s", why);
}

an_status an_import_write(const an_import *f, const char *path, an_import_read read, void *user,
                          char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    reader r = {&f->archive, read, user};
    an_status status = an_pt2_write(&err, &f->archive, path, read_one, &r);
    if (status != AN_OK) give_reason(why, &err);
    return status;
}

/* ---- in a context */

static an_status declare(an_err *err, an_import_model *m, int32_t i)
{
    const an_pt2 *a = &m->file->archive;
    const an_pt2_tensor *t = &a->tensor[i];
    char quoted[AN_QUOTED_BYTES];
    an_dtype dtype = AN_F32;
    an_shape s = {.rank = t->rank};
    memcpy(s.dim, t->dim, (size_t)t->rank * sizeof t->dim[0]);
    (void)an_pt2_dtype(t->torch_dtype, &dtype);
    if (t->parameter && dtype != AN_F32 && dtype != AN_F64)
        return an_fail(
            err, AN_E_UNSUPPORTED,
            "%s: parameter %s is %s: export the model in float32 (model.float()); dtype=bfloat16 then trains "
            "it in mixed precision",
            a->path, an_quoted(t->name, quoted), an_pt2_dtype_name(t->torch_dtype));
    if (owner_of(a, i) != t) return AN_OK;
    if (t->parameter) {
        m->tensor[i] = an_param_at(AN_AT, m->cx, t->name, dtype, s, AN_ZEROS);
        an_param_freeze(m->tensor[i], !t->requires_grad);
    } else {
        m->tensor[i] = an_state_at(AN_AT, m->cx, t->name, dtype, s, AN_ZEROS);
    }
    if (an_error(m->cx))
        return an_fail(err, an_error_status(m->cx), "%s: tensor %s: %.500s", a->path, an_quoted(t->name, quoted),
                       an_error(m->cx));
    return AN_OK;
}

static an_status write_tensor(an_err *err, an_import_model *m, int32_t i)
{
    const an_pt2 *a = &m->file->archive;
    const an_pt2_tensor *t = &a->tensor[i];
    an_dtype dtype = AN_F32;
    (void)an_pt2_dtype(t->torch_dtype, &dtype);
    const size_t bytes = (size_t)an_pt2_elements(t) * an_dtype_size(dtype);
    const int at = an_persist_find(m->cx, t->name);
    if (at < 0 || bytes == 0) return AN_OK;
    void *data = malloc(bytes);
    if (!data) return an_fail_nomem(err, t->name, bytes);
    an_status status = an_pt2_read(err, a, t, data);
    if (status == AN_OK && an_persist_write(m->cx, at, data, bytes) != AN_OK)
        status = an_fail(err, an_error_status(m->cx), "%s: %.500s", a->path,
                         an_error(m->cx) ? an_error(m->cx) : "a tensor cannot be written");
    free(data);
    return status;
}

static an_status declare_all(an_err *err, an_import *f, an_import_model *m)
{
    const int32_t n = f->archive.n_tensors;
    int32_t values = 0, symbols = 0;
    AN_TRY(resolve(err, f));
    m->tensor = calloc((size_t)n + 1, sizeof(an_tensor *));
    for (int i = 0; i < AN_PROGRAMS; i++) {
        values = AN_MAX(values, f->graph[i].n_values);
        symbols = AN_MAX(symbols, f->graph[i].n_symbols);
        if (i == AN_PROGRAM_TRAIN || f->has_eval) AN_TRY(an_fold_open(err, &f->graph[i], &m->fold[i]));
    }
    m->value = calloc((size_t)values + 1, sizeof *m->value);
    m->symbol = calloc((size_t)symbols + 1, sizeof *m->symbol);
    if (!m->tensor || !m->value || !m->symbol) return an_fail_nomem(err, f->archive.path, 0);
    for (int32_t i = 0; i < n; i++) AN_TRY(declare(err, m, i));
    for (int32_t i = 0; i < n; i++) m->tensor[i] = m->tensor[owner_of(&f->archive, i) - f->archive.tensor];
    return AN_OK;
}

an_import_model *an_import_declare(an_import *f, an_ctx *cx, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    an_import_model *m = calloc(1, sizeof *m);
    an_status status = AN_OK;
    if (m) {
        *m = (an_import_model){.file = f, .cx = cx};
        status = declare_all(&err, f, m);
    } else {
        status = an_fail_nomem(&err, f->archive.path, sizeof *m);
    }
    if (status == AN_OK) return m;
    give_reason(why, &err);
    an_import_release(m);
    return NULL;
}

an_status an_import_fill(an_import_model *m, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    const an_pt2 *a = &m->file->archive;
    an_status status = AN_OK;
    for (int32_t i = 0; i < a->n_tensors && a->has_data && status == AN_OK; i++)
        if (owner_of(a, i) == &a->tensor[i]) status = write_tensor(&err, m, i);
    if (status != AN_OK) give_reason(why, &err);
    return status;
}

an_import_model *an_import_bind(an_import *f, an_ctx *cx, char why[AN_IMPORT_WHY])
{
    an_import_model *m = an_import_declare(f, cx, why);
    if (!m || an_import_fill(m, why) == AN_OK) return m;
    an_import_release(m);
    return NULL;
}

void an_import_release(an_import_model *m)
{
    if (!m) return;
    for (int i = 0; i < AN_PROGRAMS; i++) an_fold_close(m->fold[i]);
    free(m->tensor);
    free(m->value);
    free(m->symbol);
    free(m->mirror);
    free(m);
}

/* ---- a step */

/* The sentence for an input whose shape is `have`; an axis that may have any length is written as *. */
static an_status refuse_shape(an_build *b, const char *name, const an_built_value *v, const an_shape *have,
                              const an_pt2_value *want)
{
    char is[128] = "", was[128] = "";
    for (int k = 0, n = 0; k < have->rank; k++)
        n += snprintf(is + n, sizeof is - (size_t)n, "%s%lld", k ? "," : "",
                      (long long)have->dim[v->last ? an_last_axis(k, have->rank) : k] % 100000000000000);
    for (int k = 0, n = 0; k < want->rank && k < 8; k++)
        n += want->symbolic[k] ? snprintf(was + n, sizeof was - (size_t)n, "%s*", k ? "," : "")
                               : snprintf(was + n, sizeof was - (size_t)n, "%s%lld", k ? "," : "",
                                          (long long)want->dim[k] % 100000000000000);
    return an_build_refuse(b, AN_E_SHAPE, "input %.60s is [%s], the model was exported for [%s]", name, is, was);
}

static an_status set_inputs(an_build *b, const an_import_model *m, an_tensor *const *in, const bool *last)
{
    int user = 0;
    for (int32_t i = 0; i < b->g->n_inputs; i++) {
        const an_pt2_input *x = &b->g->input[i];
        if (x->value < 0) continue;
        an_built_value *v = &b->value[x->value];
        v->parent = -1;
        if (x->kind != AN_INPUT_USER) {
            v->t = m->tensor[x->tensor];
            continue;
        }
        an_dtype dtype = AN_F32;
        (void)an_pt2_dtype(b->g->value[x->value].torch_dtype, &dtype);
        an_tensor *t = in[user];
        v->last = last && last[user];
        user++;
        const an_shape s = an_shape_of(t);
        const an_pt2_value *want = &b->g->value[x->value];
        bool same = s.rank == want->rank;
        for (int k = 0; same && k < s.rank; k++)
            same = want->symbolic[k] || s.dim[v->last ? an_last_axis(k, s.rank) : k] == want->dim[k];
        if (!same) return refuse_shape(b, x->name ? x->name : "", v, &s, want);
        v->t = an_dtype_of(t) == dtype ? t : an_cast_at(AN_AT, t, dtype);
    }
    return AN_OK;
}

static void assign(an_tensor *state, const an_built_value *v)
{
    an_tensor *t = an_plain(v->t, v->last);
    if (t != state)
        an_assign_at(AN_AT, state, an_dtype_of(t) == an_dtype_of(state) ? t : an_cast_at(AN_AT, t, an_dtype_of(state)));
}

static void assign_buffers(an_build *b, const an_import_model *m)
{
    for (int32_t i = 0; i < b->g->n_inputs;
         i++) { /* buffers that a node changed in place: the input's value is the new one */
        const an_pt2_input *x = &b->g->input[i];
        if (x->kind == AN_INPUT_BUFFER && x->value >= 0) assign(m->tensor[x->tensor], an_build_get(b, x->value));
    }
    for (int32_t i = 0; i < b->g->n_outputs; i++) {
        const an_pt2_output *o = &b->g->output[i];
        if (o->kind != AN_OUTPUT_BUFFER) continue;
        for (int32_t k = 0; k < b->g->n_inputs; k++)
            if (b->g->input[k].kind == AN_INPUT_BUFFER && strcmp(b->g->input[k].name, o->name) == 0)
                assign(m->tensor[b->g->input[k].tensor], an_build_get(b, o->value));
    }
}

an_status an_import_build_as(an_import_model *m, an_import_mode mode, an_tensor *const *in, const bool *last_in,
                             an_tensor **out, bool *last_out, char why[AN_IMPORT_WHY])
{
    an_err err = {0};
    const bool training = mode == AN_IMPORT_TRAIN;
    const int which = !training && m->file->has_eval ? AN_PROGRAM_EVAL : AN_PROGRAM_TRAIN;
    const an_pt2_graph *g = &m->file->graph[which];
    an_build b = {.cx = m->cx,
                  .err = &err,
                  .g = g,
                  .value = m->value,
                  .symbol = m->symbol,
                  .training = training,
                  .inference = !training,
                  .fold = m->fold[which]};
    memset(m->value, 0, (size_t)g->n_values * sizeof *m->value);
    const an_pt2_input *first = user_input(g, 0);
    const an_shape s = first ? an_shape_of(in[0]) : AN_SCALAR;
    an_fold_begin(m->fold[which], s.rank ? s.dim[0] : 0);
    an_status status = set_inputs(&b, m, in, last_in);
    if (status == AN_OK) status = an_build_run(&b);
    b.now = NULL;
    /* The caller's out[] has the outputs of the program for training, also where this is the one for evaluation. */
    const int n_out = an_import_count(m->file, AN_IMPORT_OUTPUT);
    for (int i = 0; status == AN_OK && i < n_out; i++) {
        const an_pt2_output *o = user_output(g, i);
        const an_built_value *v = o && o->value >= 0 ? an_build_get(&b, o->value) : NULL;
        if (v && v->im)
            status = an_build_refuse(&b, AN_E_UNSUPPORTED, "result %d is complex; give view_as_real of it", i);
        out[i] = v ? last_out ? v->t : an_value_tensor(&b, o->value) : NULL;
        if (last_out) last_out[i] = v && v->last;
    }
    if (status == AN_OK && training) assign_buffers(&b, m);
    if (status == AN_OK && err.code != AN_OK) status = err.code; /* a constant that could not be computed */
    if (status != AN_OK) give_reason(why, &err);
    return status;
}

an_status an_import_build(an_import_model *m, an_import_mode mode, an_tensor *const *in, an_tensor **out,
                          char why[AN_IMPORT_WHY])
{
    return an_import_build_as(m, mode, in, NULL, out, NULL, why);
}
