#define _DEFAULT_SOURCE
#include "train/init_weights.h"
#include "train/session.h"
#include "models/gpt/gpt_weights.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int64_t layers, heads, width;
} gpt2[] = {
    {"gpt2", 12, 12, 768}, {"gpt2-medium", 24, 16, 1024}, {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}};

enum { GPT2_VOCAB = 50257, GPT2_BLOCK = 1024 };

static an_status shorten(an_err *err, an_train_config *c, int64_t block)
{
    if (c->block_size <= block) return AN_OK;
    return an_fail(err, AN_E_USAGE, "block_size=%lld, but the weights of init_from=%s know %lld positions",
                   (long long)c->block_size, c->init_from, (long long)block);
}

/* The first of the usual places that has the file. */
static an_status find_gpt2(an_err *err, const char *name, char out[AN_CKPT_PATH_BYTES])
{
    static const char *const places[] = {"%s/model.safetensors", "%s.safetensors", "models/%s/model.safetensors",
                                         "data/%s/model.safetensors", "%s/pytorch_model.bin"};
    for (size_t i = 0; i < AN_COUNT(places); i++) {
        const char *mark = strchr(places[i], '%');
        snprintf(out, AN_CKPT_PATH_BYTES, "%.*s%s%s", (int)(mark - places[i]), places[i], name, mark + 2);
        if (access(out, R_OK) == 0) return AN_OK;
    }
    return an_fail(err, AN_E_ENV,
                   "init_from=%s: no %s/model.safetensors, %s.safetensors or models/%s/model.safetensors here; get "
                   "model.safetensors of %s from huggingface.co/openai-community, or set init_from=FILE",
                   name, name, name, name, name);
}

static an_status open_gpt2(an_err *err, size_t which, an_train_config *c, bool shape_only, an_st **out)
{
    char path[AN_CKPT_PATH_BYTES];
    c->n_layer = gpt2[which].layers;
    c->n_head = gpt2[which].heads;
    c->n_embd = gpt2[which].width;
    c->vocab_size = GPT2_VOCAB;
    c->bias = true;
    AN_TRY(shorten(err, c, GPT2_BLOCK));
    if (shape_only) return AN_OK;
    AN_TRY(find_gpt2(err, gpt2[which].name, path));
    return an_gpt_weights_open(err, path, out);
}

static an_status take_shape(an_err *err, const an_st *st, an_train_config *c)
{
    an_train_config file;
    if (!an_st_meta(st, AN_CKPT_CONFIG)) return AN_OK; /* bare tensors: the settings must fit them */
    AN_TRY(an_session_config(err, st, &file));
    c->n_layer = file.n_layer;
    c->n_head = file.n_head;
    c->n_embd = file.n_embd;
    c->vocab_size = file.vocab_size;
    c->bias = file.bias;
    if (strcmp(file.gelu, "tanh") == 0)
        memcpy(c->gelu, file.gelu, sizeof c->gelu); /* erf is also what others do not say */
    return shorten(err, c, file.block_size);
}

an_status an_init_weights_open(an_err *err, an_train_config *c, bool shape_only, an_st **out)
{
    char path[AN_CKPT_PATH_BYTES];
    *out = NULL;
    if (strcmp(c->init_from, "scratch") == 0) return AN_OK;
    for (size_t i = 0; i < AN_COUNT(gpt2); i++)
        if (strcmp(c->init_from, gpt2[i].name) == 0) return open_gpt2(err, i, c, shape_only, out);
    AN_TRY(an_ckpt_find(err, c->init_from, false, path));
    AN_TRY(an_gpt_weights_open(err, path, out));
    an_status status = take_shape(err, *out, c);
    if (status == AN_OK) return AN_OK;
    an_st_close(*out);
    *out = NULL;
    return status;
}
