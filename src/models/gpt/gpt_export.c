/* gpt_export.c: writes a checkpoint's weights in the layout of nanoGPT or of Hugging Face. See gpt_weights.h.
 *
 * Invariant: tensors are written straight from the mapped checkpoint. Only the transposed matrices of Hugging Face's
 * layout need memory, one buffer that is as large as the largest of them. */
#define _DEFAULT_SOURCE
#include "io/checkpoint.h"
#include "models/gpt/gpt_import.h"
#include "models/gpt/gpt_names.h"
#include <inttypes.h>
#include <stdio.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The buffer shared by all transposed matrices; it holds one at a time. */
typedef struct buffer {
    float *data;
    size_t bytes;
    const an_st_tensor *holds;
} buffer;

typedef struct source {
    const an_st_tensor *t;
    buffer *b;
} source;

typedef struct exporter {
    an_err *err;
    const an_st *st;
    an_st_writer *w;
    an_gpt_config c;
    source *sources; /* one for each parameter */
    buffer buffer;
    float *zeros; /* [4 C]: biases for a model without any, in a layout that requires them */
} exporter;

static an_status transpose(an_err *err, buffer *b, const an_st_tensor *t)
{
    if (b->bytes < t->bytes) {
        float *more = realloc(b->data, t->bytes);
        if (!more) return an_fail_nomem(err, t->name, t->bytes);
        b->data = more;
        b->bytes = t->bytes;
    }
    const int64_t rows = t->shape[0], cols = t->shape[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(&b->data[c * rows + r], (const char *)t->data + (r * cols + c) * 4, sizeof(float));
    b->holds = t;
    return AN_OK;
}

static an_status read_transposed(an_err *err, void *arg, uint64_t at, void *out, size_t bytes)
{
    const source *s = arg;
    if (s->b->holds != s->t) AN_TRY(transpose(err, s->b, s->t));
    memcpy(out, (const char *)s->b->data + at, bytes);
    return AN_OK;
}

static an_status add(exporter *x, an_gpt_layout layout, const char *name, const an_shape *shape, source *s)
{
    const bool hugging_face = layout == AN_GPT_HUGGING_FACE;
    const char *out_name = name + (hugging_face ? strlen("transformer.") : 0);
    if (!x->c.bias && strcmp(name + strlen(name) - 5, ".bias") == 0)
        return an_st_add(x->err, x->w, out_name, AN_F32, shape->rank, shape->dim, x->zeros);
    AN_TRY(an_ckpt_expect(x->err, x->st, "", name, AN_F32, shape->rank, shape->dim, &s->t));
    if (!hugging_face || !an_gpt_is_conv1d(name))
        return an_st_add(x->err, x->w, out_name, AN_F32, shape->rank, shape->dim, s->t->data);
    const int64_t dims[2] = {shape->dim[1], shape->dim[0]};
    s->b = &x->buffer;
    return an_st_add_read(x->err, x->w, out_name, AN_F32, 2, dims, read_transposed, s);
}

static an_status add_parameters(exporter *x, an_gpt_layout layout)
{
    an_gpt_config written = x->c; /* Hugging Face's GPT-2 always has biases */
    char name[AN_GPT_NAME_BYTES];
    an_shape shape;
    int64_t n = 0;
    if (layout == AN_GPT_HUGGING_FACE) written.bias = true;
    while (an_gpt_parameter_at(&written, n, name, &shape)) n++;
    x->sources = calloc((size_t)n, sizeof *x->sources);
    x->zeros = calloc((size_t)(4 * x->c.width), sizeof *x->zeros);
    if (!x->sources || !x->zeros) return an_fail_nomem(x->err, an_st_path(x->st), (size_t)n * sizeof *x->sources);
    for (int64_t i = 0; an_gpt_parameter_at(&written, i, name, &shape); i++)
        AN_TRY(add(x, layout, name, &shape, &x->sources[i]));
    return AN_OK;
}

static an_status copy_meta(exporter *x, const char *key)
{
    const char *value = an_st_meta(x->st, key);
    return value ? an_st_set_meta(x->err, x->w, key, value) : AN_OK;
}

static an_status add_meta(exporter *x, an_gpt_layout layout)
{
    AN_TRY(an_st_set_meta(x->err, x->w, "format", "pt"));
    AN_TRY(copy_meta(x, AN_CKPT_CONFIG));
    AN_TRY(copy_meta(x, AN_CKPT_TOKENIZER));
    if (layout != AN_GPT_HUGGING_FACE) return AN_OK;
    AN_TRY(an_st_set_meta(x->err, x->w, AN_GPT_META_LAYOUT, "hugging_face"));
    return an_st_set_meta(x->err, x->w, AN_GPT_META_BIAS, x->c.bias ? "true" : "false");
}

/* config.json, which transformers' GPT2LMHeadModel.from_pretrained(FOLDER) reads beside model.safetensors. */
static an_status make_config(an_err *err, const an_gpt_config *c, const char *path, char beside[AN_CKPT_PATH_BYTES],
                             an_text *text)
{
    const char *slash = strrchr(path, '/');
    int n = snprintf(beside, AN_CKPT_PATH_BYTES, "%.*sconfig.json", slash ? (int)(slash - path + 1) : 0, path);
    if (n < 0 || n >= AN_CKPT_PATH_BYTES) return an_fail(err, AN_E_USAGE, "%s: the path is too long", path);
    an_text_printf(text,
                   "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
                   "  \"activation_function\": \"%s\",\n  \"layer_norm_epsilon\": 1e-05,\n"
                   "  \"n_layer\": %" PRId64 ",\n  \"n_head\": %" PRId64 ",\n  \"n_embd\": %" PRId64 ",\n",
                   c->gelu_tanh ? "gelu_new" : "gelu", c->layers, c->heads, c->width);
    an_text_printf(text,
                   "  \"n_positions\": %" PRId64 ",\n  \"n_ctx\": %" PRId64 ",\n  \"vocab_size\": %" PRId64 ",\n"
                   "  \"attn_pdrop\": %.6g,\n  \"embd_pdrop\": %.6g,\n  \"resid_pdrop\": %.6g,\n"
                   "  \"tie_word_embeddings\": true\n}\n",
                   c->block, c->block, c->vocab, c->dropout, c->dropout, c->dropout);
    return text->failed ? an_fail_nomem(err, beside, text->len) : AN_OK;
}

/* Refuses to overwrite a config.json that another program may have written: one with a key that no export writes. */
static an_status check_beside(an_err *err, const char *beside, const an_text *text)
{
    enum { MAX_CONFIG_BYTES = 1 << 20 };
    json_t *there = NULL;
    const char *key;
    json_t *value;
    struct stat info = {0};
    if (lstat(beside, &info) != 0 && errno == ENOENT) return AN_OK;
    const an_status read = an_json_read(NULL, beside, MAX_CONFIG_BYTES, &there);
    if (read == AN_E_NOMEM) return an_fail_nomem(err, beside, (size_t)info.st_size);
    bool ours = read == AN_OK && json_is_object(there);
    json_object_foreach(there, key, value)
    {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%.60s\":", key);
        ours &= strstr(text->data, quoted) != NULL;
    }
    json_decref(there);
    if (ours) return AN_OK;
    return an_fail(
        err, AN_E_USAGE,
        "%s: was not written by anneal export and is not overwritten; name a file in another folder with out=", beside);
}

an_status an_gpt_weights_config(an_err *err, const an_st *st, an_gpt_config *out)
{
    const char *path = an_st_path(st), *text = an_st_meta(st, AN_CKPT_CONFIG);
    json_t *json = NULL;
    if (!text) return an_fail(err, AN_E_IO, "%s: the file has no model settings", path);
    AN_TRY(an_json_parse(err, path, 0, text, strlen(text), &json));
#define INTEGER(key) ((int64_t)json_integer_value(json_object_get(json, key)))
    *out = (an_gpt_config){.vocab = INTEGER("vocab_size"),
                           .block = INTEGER("block_size"),
                           .layers = INTEGER("n_layer"),
                           .heads = INTEGER("n_head"),
                           .width = INTEGER("n_embd"),
                           .dropout = json_number_value(json_object_get(json, "dropout")),
                           .bias = json_is_true(json_object_get(json, "bias"))};
#undef INTEGER
    const char *gelu = json_string_value(json_object_get(json, "gelu"));
    out->gelu_tanh = gelu && strcmp(gelu, "tanh") == 0;
    json_decref(json);
    const char *fault = an_gpt_fault(out);
    return fault ? an_fail(err, AN_E_IO, "%s: the settings in the file are not valid: %s", path, fault) : AN_OK;
}

static an_status write_weights(exporter *x, an_gpt_layout layout, const char *path)
{
    AN_TRY(an_st_begin(x->err, path, &x->w));
    an_status status = add_parameters(x, layout);
    if (status == AN_OK) status = add_meta(x, layout);
    if (status == AN_OK)
        status = an_st_commit(x->err, x->w);
    else
        an_st_abort(x->w);
    free(x->sources);
    free(x->zeros);
    free(x->buffer.data);
    return status;
}

an_status an_gpt_weights_write(an_err *err, const an_st *st, an_gpt_layout layout, const char *path)
{
    exporter x = {.err = err, .st = st};
    an_text config = {0};
    char beside[AN_CKPT_PATH_BYTES];
    AN_TRY(an_gpt_weights_config(err, st, &x.c));
    if (layout != AN_GPT_HUGGING_FACE) return write_weights(&x, layout, path);
    an_status status = make_config(err, &x.c, path, beside, &config);
    if (status == AN_OK) status = check_beside(err, beside, &config);
    if (status == AN_OK) status = write_weights(&x, layout, path);
    if (status == AN_OK) status = an_json_save(err, beside, &config);
    an_text_free(&config);
    return status;
}

an_status an_gpt_weights_export(an_err *err, const an_st *st, const char *layout, const char *path)
{
    return an_gpt_weights_write(err, st, strcmp(layout, "hf") == 0 ? AN_GPT_HUGGING_FACE : AN_GPT_NANOGPT, path);
}
