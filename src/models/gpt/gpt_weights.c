/* gpt_weights.c: opens a GPT's weights in any of the layouts of gpt_weights.h as if they were an anneal checkpoint.
 *
 * In order:
 *   1. names are normalized to nanoGPT's (read_names);
 *   2. the tensors' shapes give the model's settings (read_model);
 *   3. every parameter is found and converted to f32 [out,in] where the file has it transposed or in half precision;
 *      tensors left over are an error (add_parameters);
 *   4. the optimizer's moments of a ckpt.pt are taken too (add_moments).
 * A tensor that needs no conversion is used in place, in the mapped file. */
#define _DEFAULT_SOURCE
#include "models/gpt/gpt_weights.h"
#include "io/checkpoint.h"
#include "io/formats/json.h"
#include "io/formats/torch_file.h"
#include "models/gpt/gpt_import.h"
#include "models/gpt/gpt_names.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Owner of the file and of converted tensors, released when the opened view is closed. */
typedef struct content {
    an_st *raw;
    an_arena arena;
} content;

/* A tensor of the file under its normalized name. */
typedef struct item {
    const char *name;
    const an_st_tensor *t;
    bool used;
} item;

typedef struct importer {
    an_err *err;
    const an_st *raw;
    an_arena *arena;
    json_t *values;     /* of a torch.save file; NULL: safetensors */
    const char *prefix; /* of parameter names in the file: "model." or "" */
    item *items;        /* sorted by name */
    size_t n_items;
    const an_st_tensor *head; /* lm_head.weight; NULL: none */
    an_gpt_config c;
    bool transposed; /* Hugging Face's layout: a block's matrices are [in,out] */
    bool no_bias;    /* its biases are zeros that the layout requires: the model has none */
    an_st_tensor *out;
    size_t n_out;
    bool moments;
} importer;

/* ---- names */

static int compare_items(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static item *find(const importer *m, const char *name)
{
    const item key = {.name = name};
    return m->n_items ? bsearch(&key, m->items, m->n_items, sizeof key, compare_items) : NULL;
}

static an_status unknown_tensor(const importer *m, const an_st_tensor *t)
{
    char quoted[AN_QUOTED_BYTES];
    const char **names = AN_NEW_ARRAY(m->arena, const char *, 16 * (size_t)m->c.layers + 8);
    size_t n = 0;
    char name[AN_GPT_NAME_BYTES];
    an_shape shape;
    for (int64_t i = 0; names && an_gpt_parameter_at(&m->c, i, name, &shape); i++)
        if ((names[n] = an_arena_strdup(m->arena, name)) != NULL && !find(m, name)) n++;
    if (an_gpt_name_read(t->name + strlen(m->prefix), name) == AN_GPT_NAME_STRANGE) name[0] = 0;
    const char *near = names ? an_nearest(name, names, n) : NULL;
    return an_fail(m->err, AN_E_IO, "%s: byte %" PRIu64 ": tensor %s has no place in a GPT-2%s%s%s", an_st_path(m->raw),
                   t->at, an_quoted(t->name, quoted), near ? "; the nearest that is missing is " : "", near ? near : "",
                   near ? "" : "; is it a checkpoint of this model?");
}

static an_status read_names(importer *m)
{
    const size_t n = an_st_count(m->raw);
    char name[AN_GPT_NAME_BYTES];
    m->items = AN_NEW_ARRAY(m->arena, item, n + 1);
    if (!m->items) return an_fail_nomem(m->err, an_st_path(m->raw), n * sizeof *m->items);
    for (size_t i = 0; i < n; i++) {
        const an_st_tensor *t = an_st_tensor_at(m->raw, i);
        if (strncmp(t->name, m->prefix, strlen(m->prefix)) != 0) continue; /* optimizer, best_val_loss */
        switch (an_gpt_name_read(t->name + strlen(m->prefix), name)) {
        case AN_GPT_NAME_BUFFER: continue;
        case AN_GPT_NAME_HEAD: m->head = t; continue;
        case AN_GPT_NAME_STRANGE: return unknown_tensor(m, t);
        case AN_GPT_NAME_PARAMETER: break;
        }
        item *it = &m->items[m->n_items++];
        *it = (item){.name = an_arena_strdup(m->arena, name), .t = t};
        if (!it->name) return an_fail_nomem(m->err, an_st_path(m->raw), sizeof name);
    }
    if (m->n_items) qsort(m->items, m->n_items, sizeof *m->items, compare_items);
    for (size_t i = 1; i < m->n_items; i++)
        if (strcmp(m->items[i].name, m->items[i - 1].name) == 0)
            return an_fail(m->err, AN_E_IO, "%s: byte %" PRIu64 ": %s is there twice, with and without a prefix",
                           an_st_path(m->raw), m->items[i].t->at, m->items[i].name);
    return AN_OK;
}

/* ---- the model that the shapes describe */

static an_status missing(const importer *m, const char *name)
{
    const char **names = AN_NEW_ARRAY(m->arena, const char *, m->n_items + 1);
    size_t n = 0;
    for (size_t i = 0; names && i < m->n_items; i++) /* only misspelled names are worth suggesting */
        if (!m->items[i].used && !an_gpt_is_parameter(m->items[i].name)) names[n++] = m->items[i].name;
    const char *near = names ? an_nearest(name, names, n) : NULL;
    return an_fail(m->err, AN_E_IO, "%s: there is no tensor %s, which a GPT-2 has%s%s%s", an_st_path(m->raw), name,
                   near ? "; the nearest in the file is " : "", near ? near : "",
                   near ? "" : "; is it a checkpoint of this model?");
}

static an_status table_shape(const importer *m, const char *name, int64_t *rows, int64_t *width)
{
    char shape[AN_ST_SHAPE_BYTES];
    const item *it = find(m, name);
    if (!it) return missing(m, name);
    if (it->t->rank != 2 || it->t->shape[0] < 1 || it->t->shape[1] < 1 || (*width && *width != it->t->shape[1]))
        return an_fail(m->err, AN_E_SHAPE, "%s: byte %" PRIu64 ": %s is %s, not a table of rows as wide as the model",
                       an_st_path(m->raw), it->t->at, name, an_st_shape_text(it->t->rank, it->t->shape, shape));
    *rows = it->t->shape[0];
    *width = it->t->shape[1];
    return AN_OK;
}

static an_status read_model(importer *m)
{
    char name[AN_GPT_NAME_BYTES];
    AN_TRY(table_shape(m, "transformer.wte.weight", &m->c.vocab, &m->c.width));
    AN_TRY(table_shape(m, "transformer.wpe.weight", &m->c.block, &m->c.width));
    for (;; m->c.layers++) {
        snprintf(name, sizeof name, "transformer.h.%d.ln_1.weight", (int)m->c.layers);
        if (!find(m, name)) break;
    }
    if (m->c.layers == 0) return missing(m, name);
    const item *qkv = find(m, "transformer.h.0.attn.c_attn.weight");
    if (!qkv) return missing(m, "transformer.h.0.attn.c_attn.weight");
    m->transposed = qkv->t->rank == 2 && qkv->t->shape[0] == m->c.width && qkv->t->shape[1] == 3 * m->c.width;
    m->c.bias = find(m, "transformer.ln_f.bias") != NULL;
    const char *bias = an_st_meta(m->raw, AN_GPT_META_BIAS);
    m->no_bias = m->transposed && m->c.bias && bias && strcmp(bias, "false") == 0;
    AN_TRY(an_gpt_import_heads(m->err, m->raw, m->values, &m->c));
    const char *fault = an_gpt_fault(&m->c);
    if (!fault) return AN_OK;
    return an_fail(m->err, AN_E_IO,
                   "%s: the shapes are not those of a GPT-2: %s (n_head=%" PRId64 " n_embd=%" PRId64 ")",
                   an_st_path(m->raw), fault, m->c.heads, m->c.width);
}

/* ---- parameters */

static float f16_value(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float sign = h >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * ldexpf((float)(exponent ? fraction + 1024 : fraction), (exponent ? exponent : 1) - 25);
}

static float value_at(const an_st_tensor *t, uint64_t i)
{
    const char *p = (const char *)t->data + i * an_st_dtype_bytes(t->dtype); /* possibly unaligned */
    uint32_t bits;
    uint16_t half;
    float f;
    if (t->dtype == AN_F32) return memcpy(&f, p, sizeof f), f;
    memcpy(&half, p, sizeof half);
    if (t->dtype == AN_F16) return f16_value(half);
    bits = (uint32_t)half << 16;
    return memcpy(&f, &bits, sizeof f), f;
}

/* A copy of t [rows,cols] in f32, transposed on request. */
static an_status convert(const importer *m, const an_st_tensor *t, bool transpose, const void **out)
{
    const uint64_t n = t->bytes / an_st_dtype_bytes(t->dtype);
    const uint64_t rows = transpose ? (uint64_t)t->shape[0] : 1, cols = n / rows;
    float *data = an_arena_array(m->arena, sizeof *data, (size_t)n);
    if (!data) return an_fail_nomem(m->err, an_st_path(m->raw), (size_t)n * sizeof *data);
    enum { TILE = 32 }; /* source and destination of a transposed tile stay in the cache */
    for (uint64_t r0 = 0; r0 < rows; r0 += TILE)
        for (uint64_t c0 = 0; c0 < cols; c0 += TILE)
            for (uint64_t r = r0; r < AN_MIN(r0 + TILE, rows); r++)
                for (uint64_t c = c0; c < AN_MIN(c0 + TILE, cols); c++) data[c * rows + r] = value_at(t, r * cols + c);
    *out = data;
    return AN_OK;
}

/* Adds tensor `t` to the result as parameter or moment `name` of `shape`, converted if necessary. */
static an_status add_tensor(importer *m, const an_st_tensor *t, const char *name, const an_shape *shape)
{
    const bool transpose = m->transposed && an_gpt_is_conv1d(name);
    char has[AN_ST_SHAPE_BYTES], wants[AN_ST_SHAPE_BYTES];
    int64_t dims[2] = {shape->dim[0], shape->rank == 2 ? shape->dim[1] : 0};
    if (transpose) dims[0] = shape->dim[1], dims[1] = shape->dim[0];
    if (t->rank != shape->rank || memcmp(t->shape, dims, (size_t)t->rank * sizeof *dims) != 0)
        return an_fail(m->err, AN_E_SHAPE, "%s: byte %" PRIu64 ": %s is %s, the other tensors make it %s",
                       an_st_path(m->raw), t->at, name, an_st_shape_text(t->rank, t->shape, has),
                       an_st_shape_text(shape->rank, dims, wants));
    if (t->dtype != AN_F32 && t->dtype != AN_F16 && t->dtype != AN_BF16)
        return an_fail(m->err, AN_E_DTYPE, "%s: byte %" PRIu64 ": %s is %s; weights must be F32, F16 or BF16",
                       an_st_path(m->raw), t->at, name, an_st_dtype_name(t->dtype));
    an_st_tensor *out = &m->out[m->n_out++];
    *out = *t;
    out->name = an_arena_strdup(m->arena, name);
    if (!out->name) return an_fail_nomem(m->err, name, AN_GPT_NAME_BYTES);
    if (!transpose && t->dtype == AN_F32) return AN_OK;
    memcpy(out->shape, shape->dim, (size_t)shape->rank * sizeof *shape->dim);
    out->bytes = t->bytes / an_st_dtype_bytes(t->dtype) * sizeof(float);
    out->dtype = AN_F32;
    return convert(m, t, transpose, &out->data);
}

static bool is_zero(const an_st_tensor *t)
{
    const char *p = t->data;
    size_t i = 0;
    while (i < t->bytes && p[i] == 0) i++;
    return i == t->bytes;
}

/* Adds a parameter of the model. Zero biases that the layout requires are checked and left out. */
static an_status add_parameter(importer *m, const char *name, const an_shape *shape)
{
    item *it = find(m, name);
    if (!it) return missing(m, name);
    it->used = true;
    const size_t n = strlen(name);
    if (!m->no_bias || strcmp(name + n - 5, ".bias") != 0) return add_tensor(m, it->t, name, shape);
    if (is_zero(it->t)) return AN_OK;
    return an_fail(m->err, AN_E_IO, "%s: byte %" PRIu64 ": %s is not zero, but the file says the model has no biases",
                   an_st_path(m->raw), it->t->at, name);
}

static an_status check_head(const importer *m)
{
    const item *wte = find(m, "transformer.wte.weight");
    if (!m->head || !wte || m->head->data == wte->t->data) return AN_OK;
    if (m->head->dtype == wte->t->dtype && m->head->bytes == wte->t->bytes &&
        memcmp(m->head->data, wte->t->data, wte->t->bytes) == 0)
        return AN_OK;
    return an_fail(m->err, AN_E_UNSUPPORTED,
                   "%s: byte %" PRIu64
                   ": lm_head.weight differs from transformer.wte.weight; a GPT-2 uses one matrix for both",
                   an_st_path(m->raw), m->head->at);
}

static an_status add_parameters(importer *m)
{
    char name[AN_GPT_NAME_BYTES];
    an_shape shape;
    int64_t n = 0;
    while (an_gpt_parameter_at(&m->c, n, name, &shape)) n++;
    m->out = AN_NEW_ARRAY(m->arena, an_st_tensor, 3 * n);
    if (!m->out) return an_fail_nomem(m->err, an_st_path(m->raw), 3 * (size_t)n * sizeof *m->out);
    for (int64_t i = 0; an_gpt_parameter_at(&m->c, i, name, &shape); i++) AN_TRY(add_parameter(m, name, &shape));
    for (size_t i = 0; i < m->n_items; i++)
        if (!m->items[i].used) return unknown_tensor(m, m->items[i].t);
    if (m->no_bias) m->c.bias = false;
    return check_head(m);
}

/* ---- moments: PyTorch numbers parameters across its groups; nanoGPT has two, matrices (0) and vectors (1) */

/* PyTorch's number of the k-th parameter of a group; -1: not in the file. */
static int64_t number_of(const json_t *groups, size_t group, size_t k)
{
    const json_t *params = json_object_get(json_array_get(groups, group), "params");
    const json_t *number = json_array_get(params, k);
    return json_is_integer(number) ? (int64_t)json_integer_value(number) : -1;
}

static an_status add_moment(importer *m, const char *prefix, const char *field, int64_t number, const char *name,
                            const an_shape *shape)
{
    char full[AN_GPT_NAME_BYTES + 16], key[64];
    snprintf(key, sizeof key, "optimizer.state.%" PRId64 ".%s", number, field);
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const an_st_tensor *t = an_st_find(m->raw, key);
    if (!t)
        return an_fail(m->err, AN_E_IO, "%s: the optimizer has no %s, the moment of %s; the file is damaged",
                       an_st_path(m->raw), key, name);
    return add_tensor(m, t, full, shape);
}

static an_status add_moments(importer *m)
{
    const json_t *optimizer = json_object_get(m->values, "optimizer");
    const json_t *groups = json_object_get(optimizer, "param_groups");
    char name[AN_GPT_NAME_BYTES];
    an_shape shape;
    size_t k[2] = {0, 0};
    if (json_object_size(json_object_get(optimizer, "state")) == 0) return AN_OK;
    for (int64_t i = 0; an_gpt_parameter_at(&m->c, i, name, &shape); i++) {
        const size_t group = shape.rank < 2;
        const int64_t number = number_of(groups, group, k[group]++);
        AN_TRY(add_moment(m, AN_CKPT_M, "exp_avg", number, name, &shape));
        AN_TRY(add_moment(m, AN_CKPT_V, "exp_avg_sq", number, name, &shape));
    }
    m->moments = true;
    return AN_OK;
}

/* ---- the file */

static bool has_prefix(const an_st *st, const char *prefix)
{
    for (size_t i = 0; i < an_st_count(st); i++)
        if (strncmp(an_st_tensor_at(st, i)->name, prefix, strlen(prefix)) == 0) return true;
    return false;
}

static an_status import(importer *m, an_text *config, an_text *state)
{
    const char *values = an_st_meta(m->raw, AN_WEIGHTS_VALUES);
    if (values) AN_TRY(an_json_parse(m->err, an_st_path(m->raw), 0, values, strlen(values), &m->values));
    m->prefix = m->values && has_prefix(m->raw, "model.") ? "model." : "";
    AN_TRY(read_names(m));
    AN_TRY(read_model(m));
    AN_TRY(add_parameters(m));
    AN_TRY(add_moments(m));
    an_gpt_import_config(&m->c, m->values, config);
    if (m->values) an_gpt_import_state(m->raw, m->values, state);
    return config->failed || state->failed ? an_fail_nomem(m->err, an_st_path(m->raw), config->len) : AN_OK;
}

static void release(void *owner)
{
    content *c = owner;
    an_st_close(c->raw);
    an_arena_free(&c->arena);
    free(c);
}

static an_status import_file(an_err *err, an_st *raw, an_st **out)
{
    content *c = calloc(1, sizeof *c);
    if (!c) {
        an_st_close(raw);
        return an_fail_nomem(err, "weights", sizeof *c);
    }
    c->raw = raw;
    an_text config = {0}, state = {0};
    importer m = {.err = err, .raw = raw, .arena = &c->arena};
    an_status status = import(&m, &config, &state);
    json_decref(m.values);
    if (status == AN_OK) {
        const char *meta[3][2] = {{AN_CKPT_CONFIG, config.data}};
        const char *tokenizer = an_st_meta(raw, AN_CKPT_TOKENIZER);
        size_t n = 1;
        if (tokenizer) meta[n][0] = AN_CKPT_TOKENIZER, meta[n++][1] = tokenizer;
        if (state.len && m.moments) meta[n][0] = AN_CKPT_STATE, meta[n++][1] = state.data;
        const an_st_view view = {m.out, m.n_out, (const char *const(*)[2])meta, n, c, release};
        status = an_st_open_view(err, an_st_path(raw), &view, out);
    } else {
        release(c);
    }
    an_text_free(&config);
    an_text_free(&state);
    return status;
}

an_status an_gpt_weights_import(an_err *err, an_st *raw, an_st **out)
{
    const bool ours = an_st_meta(raw, AN_CKPT_CONFIG) && !an_st_meta(raw, AN_GPT_META_LAYOUT);
    *out = NULL;
    if (!ours) return import_file(err, raw, out);
    *out = raw;
    return AN_OK;
}

an_status an_gpt_weights_open(an_err *err, const char *path, an_st **out)
{
    an_st *raw;
    *out = NULL;
    AN_TRY(an_weights_open(err, path, &raw));
    return an_gpt_weights_import(err, raw, out);
}
