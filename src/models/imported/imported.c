/* imported.c: settings, losses and weights of imported models. See imported.h. */
#include "models/imported/imported.h"
#include "io/checkpoint.h"
#include "models/imported/imported_weights.h"
#include <anneal_import.h>
#include <anneal_tools.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef an_imported_settings settings;

#define AT(name) offsetof(settings, name)
static const an_config_field fields[] = {
    {"file", AN_CONFIG_TEXT, AT(file), "", 0, 0, NULL, "the archive of torch.export.save"},
    {"loss", AN_CONFIG_TEXT, AT(loss), "cross_entropy", 0, 0, "output|cross_entropy|mse|bce_with_logits",
     "of an imported model: its first result itself, or what it makes of the first result and the labels"},
    {"ignore", AN_CONFIG_INT, AT(ignore), "-100", -1e9, 1e9, NULL, "labels with this value are ignored"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const changeable[] = {NULL}, *const weight_keys[] = {NULL}, *const halve[] = {NULL};

static bool is_loss(const settings *s, const char *name)
{
    return strcmp(s->loss, name) == 0;
}

/* ---- settling */

static bool is_archive(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".pt2") == 0;
}

static an_status open_description(an_err *err, const an_st *st, an_import **out)
{
    char why[AN_IMPORT_WHY] = "";
    const char *json = an_st_meta(st, AN_CKPT_TASK);
    if (!json) return an_fail(err, AN_E_IO, "%s: it holds no graph of an imported model", an_st_path(st));
    *out = an_import_open_description(an_st_path(st), json, strlen(json), why);
    return *out ? AN_OK : an_fail(err, AN_E_IO, "%s", why);
}

/* The graph, and in *st the checkpoint that it was read from (NULL: an archive); both are the caller's. */
static an_status open_graph(an_err *err, const char *source, an_import **out, an_st **st)
{
    char why[AN_IMPORT_WHY] = "";
    *st = NULL;
    *out = NULL;
    if (is_archive(source)) {
        *out = an_import_open(source, why);
        return *out ? AN_OK : an_fail(err, AN_E_IO, "%s", why);
    }
    AN_TRY(an_st_open(err, source, st));
    an_status status = open_description(err, *st, out);
    if (status != AN_OK) an_st_close(*st);
    return status;
}

static an_status settle_input(an_err *err, const settings *s, const an_import_entry *e, an_imported_array *out)
{
    if (e->shape.rank < 1)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: input %.60s has no axis of samples", s->source, e->name);
    *out = (an_imported_array){.shape = e->shape, .first_axis_free = e->first_axis_free};
    snprintf(out->name, sizeof out->name, "%s", e->name ? e->name : "input");
    out->dtype = e->dtype == AN_I32 || e->dtype == AN_BOOL ? AN_I32 : AN_F32;
    out->limit = e->ids_below;
    return AN_OK;
}

/* Whether a result [B,T,V] belongs to ids [B,T]: then its classes are last, else in axis 1 as PyTorch's losses want
 * them. */
static bool has_classes_last(const settings *s, an_shape out)
{
    bool found = false;
    for (int64_t i = 0; i < s->n_inputs && out.rank >= 3; i++) {
        const an_imported_array *in = &s->input[i];
        found |= in->dtype == AN_I32 && in->shape.rank == out.rank - 1 && in->shape.dim[1] == out.dim[1];
    }
    return found;
}

enum { NOT_A_CLASS = -100 }; /* of `ignore`, where it is not set */

static an_status settle_label(an_err *err, settings *s, const an_import_entry *out)
{
    const bool classes = is_loss(s, "cross_entropy");
    an_shape label = out->shape;
    s->label = (an_imported_array){.name = "labels"};
    if (!classes && s->ignore != NOT_A_CLASS)
        return an_fail(err, AN_E_USAGE, "ignore=%lld: labels are ignored by loss=cross_entropy alone, not by loss=%s",
                       (long long)s->ignore, s->loss);
    if (is_loss(s, "output")) {
        if (out->shape.rank == 0 && out->dtype != AN_I32) return AN_OK;
        return an_fail(err, AN_E_USAGE, "loss=output: the first result of %s is no scalar; name a loss", s->source);
    }
    if (out->shape.rank < (classes ? 2 : 1))
        return an_fail(err, AN_E_USAGE, "loss=%s: the first result of %s has %d axes; loss=output trains a scalar",
                       s->loss, s->source, out->shape.rank);
    s->classes_last = out->shape.rank == 2 || has_classes_last(s, out->shape);
    if (classes) {
        const int axis = s->classes_last ? label.rank - 1 : 1;
        s->label.limit = label.dim[axis];
        for (int i = axis; i + 1 < label.rank; i++) label.dim[i] = label.dim[i + 1];
        label.rank--;
    }
    s->label.dtype = classes ? AN_I32 : AN_F32;
    s->label.shape = label;
    s->label.first_axis_free = true;
    return AN_OK;
}

static an_status settle(an_err *err, an_import *f, settings *s)
{
    char why[AN_IMPORT_WHY];
    an_import_entry e;
    if (an_import_check(f, why) != AN_OK) return an_fail(err, AN_E_UNSUPPORTED, "%s", why);
    s->n_inputs = an_import_count(f, AN_IMPORT_INPUT);
    if (s->n_inputs < 1 || s->n_inputs > AN_IMPORTED_INPUTS)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: %lld inputs; 1 to %d are trained from data", s->source,
                       (long long)s->n_inputs, AN_IMPORTED_INPUTS);
    for (int i = 0; an_import_get(f, AN_IMPORT_INPUT, i, &e); i++) AN_TRY(settle_input(err, s, &e, &s->input[i]));
    s->parameters = s->largest = 0;
    char note[AN_IMPORT_WHY];
    an_import_note(f, note);
    s->noted = note[0] != 0;
    for (int i = 0; an_import_get(f, AN_IMPORT_PARAMETER, i, &e); i++) {
        int64_t n = 1;
        for (int k = 0; k < e.shape.rank; k++) n *= e.shape.dim[k];
        s->parameters += e.tied_to ? 0 : n;
        s->largest = AN_MAX(s->largest, n);
    }
    for (int i = 0; an_import_get(f, AN_IMPORT_BUFFER, i, &e); i++) { /* written to checkpoints too */
        int64_t n = 1;
        for (int k = 0; k < e.shape.rank; k++) n *= e.shape.dim[k];
        s->largest = AN_MAX(s->largest, n);
    }
    if (!an_import_get(f, AN_IMPORT_OUTPUT, 0, &e))
        return an_fail(err, AN_E_UNSUPPORTED, "%s: it has no result", s->source);
    return settle_label(err, s, &e);
}

static an_status settle_settings(an_err *err, const an_st *from, void *given)
{
    settings *s = given;
    an_import *f;
    an_st *st;
    const bool there = from && an_st_meta(from, AN_CKPT_TASK);
    if (!there && !*s->file) return an_fail(err, AN_E_USAGE, "file= is empty: name an archive of torch.export.save");
    snprintf(s->source, sizeof s->source, "%s", there ? an_st_path(from) : s->file);
    AN_TRY(open_graph(err, s->source, &f, &st));
    an_status status = settle(err, f, s);
    an_import_close(f);
    an_st_close(st);
    return status;
}

static an_status description(an_err *err, const void *given, an_text *out)
{
    const settings *s = given;
    an_import *f;
    an_st *st;
    AN_TRY(open_graph(err, s->source, &f, &st));
    char *text = an_import_description(f);
    if (text) an_text_puts(out, text);
    const bool failed = !text || out->failed;
    free(text);
    an_import_close(f);
    an_st_close(st);
    return failed ? an_fail_nomem(err, "the graph of a checkpoint", out->len) : AN_OK;
}

static an_status check(an_err *err, const void *given, int64_t batch)
{
    const settings *s = given;
    for (int64_t i = 0; i < s->n_inputs; i++) {
        const an_imported_array *in = &s->input[i];
        if (!in->first_axis_free && in->shape.dim[0] != batch)
            return an_fail(
                err, AN_E_USAGE,
                "batch_size=%lld: input %s was exported for %lld samples; set batch_size=%lld, or export with "
                "a first axis of any length (dynamic_shapes)",
                (long long)batch, in->name, (long long)in->shape.dim[0], (long long)in->shape.dim[0]);
        int64_t n = batch;
        for (int k = 1; k < in->shape.rank; k++) n = n > INT32_MAX ? n : n * AN_MAX(in->shape.dim[k], 1);
        if (n > INT32_MAX)
            return an_fail(err, AN_E_USAGE, "batch_size=%lld: input %s has more than 2^31 elements", (long long)batch,
                           in->name);
    }
    return AN_OK;
}

static an_status adopt(an_err *err, const void *from, const char *name, void *given)
{
    (void)err;
    (void)name;
    settings *s = given;
    const settings kept = *s;
    *s = *(const settings *)from;
    memcpy(s->loss, kept.loss, sizeof s->loss);
    s->ignore = kept.ignore;
    return AN_OK;
}

static void miniature(void *given)
{
    (void)given; /* a graph has one size */
}

/* ---- graphs */

typedef struct imported {
    an_ctx *cx;
    settings s;
    an_import *file;
    an_import_model *m;
    an_st *st; /* the checkpoint that the graph is of, until the states are read */
} imported;

static void close_imported(void *model)
{
    imported *m = model;
    if (!m) return;
    an_import_release(m->m);
    an_import_close(m->file);
    an_st_close(m->st);
    free(m);
}

/* States of a checkpoint: constants among them are read when the first step is built. */
static void write_states(an_ctx *cx, const an_st *st)
{
    an_persist p;
    for (int i = 0; i < an_persist_count(cx); i++) {
        if (an_persist_get(cx, i, &p) != AN_OK || p.kind != 2) continue;
        const an_st_tensor *t = an_st_find(st, p.name);
        size_t bytes = an_dtype_size(p.dtype);
        for (int k = 0; k < p.shape.rank; k++) bytes *= (size_t)p.shape.dim[k];
        if (t && t->dtype == p.dtype && t->bytes == bytes) (void)an_persist_write(cx, i, t->data, bytes);
    }
}

static void *open_imported(an_ctx *cx, const void *given)
{
    char why[AN_IMPORT_WHY] = "";
    an_err err = {0};
    imported *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->cx = cx;
    m->s = *(const settings *)given;
    if (open_graph(&err, m->s.source, &m->file, &m->st) != AN_OK) {
        an_error_record(cx, err.code, err.text);
        return m;
    }
    m->m = an_import_declare(m->file, cx, why);
    if (!m->m) an_error_record(cx, AN_E_UNSUPPORTED, why);
    return m;
}

static void fill(void *model)
{
    char why[AN_IMPORT_WHY] = "";
    imported *m = model;
    const an_status status = an_import_fill(m->m, why);
    if (status != AN_OK)
        an_error_record(m->cx, status, why);
    else if (m->st)
        write_states(m->cx, m->st);
    an_st_close(m->st);
    m->st = NULL;
}

static an_array array_of(const an_imported_array *a, int64_t samples)
{
    an_array out = {.name = a->name, .dtype = a->dtype, .shape = a->shape, .limit = a->limit};
    out.shape.dim[0] = samples;
    return out;
}

static int inputs(const void *given, int64_t samples, an_array out[AN_MAX_ARRAYS])
{
    const settings *s = given;
    int n = 0;
    while (n < s->n_inputs) {
        out[n] = array_of(&s->input[n], samples);
        n++;
    }
    if (s->label.shape.rank > 0) out[n++] = array_of(&s->label, samples);
    return n;
}

/* The graph's results; NULL after an error, which is recorded. */
static an_tensor *forward(imported *m, an_tensor *const *in, bool training)
{
    enum { MOST = 512 };
    char why[AN_IMPORT_WHY] = "";
    an_tensor *out[MOST] = {NULL};
    if (!m->m) return NULL;
    if (an_import_count(m->file, AN_IMPORT_OUTPUT) > MOST) {
        an_error_record(m->cx, AN_E_UNSUPPORTED, "an imported model with more than 512 results");
        return NULL;
    }
    if (an_import_build(m->m, training ? AN_IMPORT_TRAIN : AN_IMPORT_EVAL, in, out, why) != AN_OK) {
        an_error_record(m->cx, AN_E_UNSUPPORTED, why);
        return NULL;
    }
    return out[0];
}

static an_tensor *wide(an_tensor *t)
{
    return an_dtype_of(t) == AN_F32 ? t : an_cast_at(AN_AT, t, AN_F32);
}

static an_tensor *sum_of(an_tensor *t)
{
    return an_shape_of(t).rank == 0 ? t : an_sum_at(AN_AT, t, AN_ALL, false);
}

/* One label a sample, of more classes than five: of tokens it would be one more pass over all logits. */
static bool has_top5(const settings *s)
{
    return is_loss(s, "cross_entropy") && s->label.shape.rank == 1 && s->label.limit > 5;
}

/* How many labels are among the five largest of y [B,C]: fewer than five are greater than the label's. */
static an_tensor *top5_of(an_ctx *cx, an_tensor *y, an_tensor *labels)
{
    const an_shape s = an_shape_of(y);
    an_tensor *column = an_reshape_at(AN_AT, labels, AN_SHAPE(s.dim[0], 1)); /* [B,1] */
    an_tensor *here = an_eq_at(AN_AT, an_iota_at(AN_AT, cx, s, 1), column);  /* bool [B,C] */
    an_tensor *zero = an_full_at(AN_AT, cx, AN_F32, s, 0);
    an_tensor *own = an_sum_at(AN_AT, an_where_at(AN_AT, here, y, zero), AN_AXIS(1), true); /* [B,1] */
    an_tensor *above = an_cast_at(AN_AT, an_gt_at(AN_AT, y, own), AN_F32);                  /* [B,C] */
    an_tensor *rank = an_sum_at(AN_AT, above, AN_AXIS(1), false);                           /* [B] */
    an_tensor *counted = an_ge_at(AN_AT, labels, an_const_at(AN_AT, cx, AN_I32, 0));
    an_tensor *in = an_and_at(AN_AT, an_lt_at(AN_AT, rank, an_const_at(AN_AT, cx, AN_F32, 5)), counted);
    return sum_of(an_cast_at(AN_AT, in, AN_F32));
}

/* y [B,C,d...], or [B,d...,C] with classes_last; labels i32 [B,d...]. Sums of losses, hits and labels that count. */
static an_losses classes(const imported *m, an_tensor *y, an_tensor *labels)
{
    const int rank = an_shape_of(y).rank;
    if (!m->s.classes_last) {
        an_shape perm = {.rank = rank, .dim = {0}};
        for (int i = 1; i < rank - 1; i++) perm.dim[i] = i + 1;
        perm.dim[rank - 1] = 1;
        y = an_permute_at(AN_AT, y, perm);
    }
    an_tensor *ignored = an_eq_at(AN_AT, labels, an_const_at(AN_AT, m->cx, AN_I32, (double)m->s.ignore));
    an_tensor *none = an_const_at(AN_AT, m->cx, AN_I32, -1);
    if (m->s.ignore >= 0) labels = an_where_at(AN_AT, ignored, none, labels); /* negative ones are ignored anyway */
    an_tensor *counts =                                                       /* of the labels' shape, as `right` */
        an_cast_at(AN_AT, an_ge_at(AN_AT, labels, an_const_at(AN_AT, m->cx, AN_I32, 0)), AN_F32);
    an_tensor *right = an_eq_at(AN_AT, an_argmax_at(AN_AT, y, rank - 1, false), labels);
    an_losses l = {.sum = {sum_of(an_cross_entropy_at(AN_AT, y, labels)), sum_of(an_cast_at(AN_AT, right, AN_F32)),
                           sum_of(counts)}};
    if (has_top5(&m->s)) l.sum[3] = top5_of(m->cx, y, labels);
    an_tensor *one = an_const_at(AN_AT, m->cx, AN_F32, 1); /* a batch without labels has loss 0 */
    l.loss = an_div_at(AN_AT, l.sum[0], an_maximum_at(AN_AT, l.sum[2], one));
    return l;
}

/* Squares or binary cross entropies, a mean over each sample; a label that is NaN is ignored. */
static an_losses values(const imported *m, an_tensor *y, an_tensor *labels)
{
    an_tensor *zero = an_const_at(AN_AT, m->cx, AN_F32, 0), *known = an_eq_at(AN_AT, labels, labels), *each;
    labels = an_where_at(AN_AT, known, labels, zero);
    if (is_loss(&m->s, "mse")) {
        each = an_square_at(AN_AT, an_sub_at(AN_AT, y, labels));
    } else { /* (1 - t) y + log(1 + exp(-y)) */
        an_tensor *rest = an_mul_at(AN_AT, an_add_num_at(AN_AT, an_neg_at(AN_AT, labels), 1), y);
        each = an_add_at(AN_AT, rest, an_softplus_at(AN_AT, an_neg_at(AN_AT, y)));
    }
    each = an_where_at(AN_AT, known, each, zero);
    const an_shape s = an_shape_of(each);
    double share = 1;
    for (int i = 1; i < s.rank; i++) share /= (double)AN_MAX(s.dim[i], 1);
    an_losses l = {.loss = an_mean_at(AN_AT, each, AN_ALL, false)};
    l.sum[0] = an_mul_num_at(AN_AT, sum_of(each), share);
    return l;
}

static an_losses losses(void *model, an_tensor *const *in, bool training)
{
    imported *m = model;
    an_tensor *y = forward(m, in, training);
    if (!y) { /* recorded */
        an_tensor *zero = an_const_at(AN_AT, m->cx, AN_F32, 0);
        return (an_losses){.loss = zero, .sum = {zero, zero, zero, zero}};
    }
    y = wide(y);
    if (is_loss(&m->s, "output")) {
        const double samples = (double)an_shape_of(in[0]).dim[0];
        return (an_losses){.loss = y, .sum = {an_mul_num_at(AN_AT, y, samples)}};
    }
    an_tensor *labels = in[m->s.n_inputs];
    return is_loss(&m->s, "cross_entropy") ? classes(m, y, labels) : values(m, y, labels);
}

static const an_sum *sums(const void *given)
{
    static const an_sum of_classes[] = {{"loss", "labels"}, {"accuracy", "labels"}, {"labels", NULL}, {NULL, NULL}},
                        of_many[] = {{"loss", "labels"},
                                     {"accuracy", "labels"},
                                     {"labels", NULL},
                                     {"top5", "labels"},
                                     {NULL, NULL}},
                        of_values[] = {{"loss", NULL}, {NULL, NULL}};
    return has_top5(given) ? of_many : is_loss(given, "cross_entropy") ? of_classes : of_values;
}

static an_label_use label_use(const void *given)
{
    return (an_label_use){.classes = is_loss(given, "cross_entropy"), .whole_batches = is_loss(given, "output")};
}

static an_tensor *predict(void *model, an_tensor *in)
{
    imported *m = model;
    an_tensor *y = NULL;
    if (m->s.n_inputs == 1)
        y = forward(m, &in, false);
    else
        an_error_record(m->cx, AN_E_UNSUPPORTED, "predict: an imported model of several inputs");
    if (!y) return an_const_at(AN_AT, m->cx, AN_F32, 0);
    y = wide(y);
    return is_loss(&m->s, "cross_entropy") && an_shape_of(y).rank == 2 ? an_softmax_at(AN_AT, y, 1) : y;
}

/* ---- text, of a model that reads ids [B,T] and has a logit for each id behind each token */

static int64_t context(const void *given)
{
    const settings *s = given;
    const bool ids = s->n_inputs == 1 && s->input[0].dtype == AN_I32 && s->input[0].shape.rank == 2;
    const bool logits = is_loss(s, "cross_entropy") && s->classes_last && s->label.shape.rank == 2;
    return ids && logits && s->label.shape.dim[1] == s->input[0].shape.dim[1] ? s->input[0].shape.dim[1] : 0;
}

static int64_t vocabulary(const void *given)
{
    return ((const settings *)given)->label.limit;
}

/* The graph has one length, so what is missing is padded behind the text; where it has one number of samples, all are
 * the text. */
static an_tensor *prefill(void *model, an_tensor *tokens, an_tensor *last)
{
    imported *m = model;
    const an_imported_array *in = &m->s.input[0];
    const int64_t T = in->shape.dim[1], P = an_shape_of(tokens).dim[1], B = in->first_axis_free ? 1 : in->shape.dim[0];
    an_tensor *ids = P < T ? an_pad_at(AN_AT, tokens, 1, 0, T - P, 0) : tokens; /* [1,T] */
    if (B > 1) ids = an_expand_at(AN_AT, ids, AN_SHAPE(B, T));
    an_tensor *y = forward(m, &ids, false); /* [B,T,V] */
    if (!y) return an_const_at(AN_AT, m->cx, AN_F32, 0);
    const int64_t V = vocabulary(&m->s);
    an_tensor *rows = an_reshape_at(AN_AT, wide(y), AN_SHAPE(B * T, V));
    an_tensor *one = an_gather_at(AN_AT, rows, an_reshape_at(AN_AT, last, AN_SHAPE(1))); /* [1,V] */
    return an_reshape_at(AN_AT, one, AN_SHAPE(V));
}

static const an_decoder decoder = {.context = context, .vocabulary = vocabulary, .prefill = prefill};

static bool predicts_classes(const void *given)
{
    const settings *s = given;
    return is_loss(s, "cross_entropy") && s->label.shape.rank == 1;
}

/* ---- numbers and words */

/* Operations as if every parameter were a matrix's that each sample (or each of its tokens) is multiplied by. */
static void count(const void *given, int64_t samples, an_model_counts *out)
{
    const settings *s = given;
    double positions = (double)samples;
    if (s->n_inputs > 0 && s->input[0].dtype == AN_I32 && s->input[0].shape.rank > 1)
        positions *= (double)s->input[0].shape.dim[1];
    *out = (an_model_counts){.parameters = s->parameters,
                             .parameters_printed = s->parameters,
                             .largest = s->largest,
                             .flops = 6 * (double)s->parameters * positions};
    out->flops_printed = out->flops;
}

static void describe(const void *given, const char *parameters, an_text *out)
{
    const settings *s = given;
    an_text_printf(out, "%s): imported from %s,\n        %lld inputs, loss %s\n", parameters, s->file,
                   (long long)s->n_inputs, s->loss);
    if (s->noted)
        an_text_puts(out, "        note: a newer PyTorch wrote the file: `anneal inspect` says what is known\n");
}

static an_status import_raw(an_err *err, an_st *raw, an_st **out)
{
    (void)err;
    *out = raw;
    return AN_OK;
}

static const an_weight_formats weights = {.layouts = "state_dict",
                                          .layouts_doc = "state_dict: the state dict of the module that was exported",
                                          .import = import_raw,
                                          .write = an_imported_write_weights};

const an_model an_imported_model = {.name = "imported",
                                    .task = "samples",
                                    .keys = &keys,
                                    .settings_bytes = sizeof(settings),
                                    .changeable = changeable,
                                    .weight_keys = weight_keys,
                                    .halve = halve,
                                    .too_large = "no smaller batch: more memory",
                                    .defaults = "batch_size=32 max_iters=1000 learning_rate=1e-3 min_lr=1e-4 "
                                                "warmup_iters=50 lr_decay_iters=1000 eval_interval=250 eval_iters=0 "
                                                "log_interval=10 weight_decay=0.01 beta2=0.999 data=data",
                                    .file_ending = ".pt2",
                                    .settle = settle_settings,
                                    .label_use = label_use,
                                    .description = description,
                                    .check = check,
                                    .adopt = adopt,
                                    .miniature = miniature,
                                    .open = open_imported,
                                    .fill = fill,
                                    .close = close_imported,
                                    .inputs = inputs,
                                    .sums = sums,
                                    .losses = losses,
                                    .predict = predict,
                                    .predicts_classes = predicts_classes,
                                    .decoder = &decoder,
                                    .count = count,
                                    .describe = describe,
                                    .weights = &weights};
