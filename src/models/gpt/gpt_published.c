/* gpt_published.c: sets the model's shape from the weights that training starts with: OpenAI's published GPT-2 by name,
 * or another checkpoint. */
#define _DEFAULT_SOURCE
#include "io/checkpoint.h"
#include "models/gpt/gpt_model.h"
#include "models/gpt/gpt_weights.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int64_t layers, heads, width;
} published[] = {
    {"gpt2", 12, 12, 768}, {"gpt2-medium", 24, 16, 1024}, {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}};

enum { GPT2_VOCAB = 50257, GPT2_BLOCK = 1024 };

static an_status check_context(an_err *err, const an_gpt_settings *s, const char *name, int64_t block)
{
    if (s->block_size <= block) return AN_OK;
    return an_fail(err, AN_E_USAGE, "block_size=%lld, but the weights of init_from=%s have %lld positions",
                   (long long)s->block_size, name, (long long)block);
}

/* The first of the usual paths at which the file exists. */
static an_status find_file(an_err *err, const char *name, char out[AN_CKPT_PATH_BYTES])
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

static size_t index_of(const char *name)
{
    size_t i = 0;
    while (i < AN_COUNT(published) && strcmp(published[i].name, name) != 0) i++;
    return i;
}

bool an_gpt_is_published(const char *name)
{
    return index_of(name) < AN_COUNT(published);
}

an_status an_gpt_open_published(an_err *err, const char *name, void *settings, bool shape_only, an_st **out)
{
    char path[AN_CKPT_PATH_BYTES];
    an_gpt_settings *s = settings;
    const size_t i = index_of(name);
    s->n_layer = published[i].layers;
    s->n_head = published[i].heads;
    s->n_embd = published[i].width;
    s->vocab_size = GPT2_VOCAB;
    s->bias = true;
    AN_TRY(check_context(err, s, name, GPT2_BLOCK));
    if (shape_only) return AN_OK;
    AN_TRY(find_file(err, name, path));
    return an_gpt_weights_open(err, path, out);
}

an_status an_gpt_adopt(an_err *err, const void *from, const char *name, void *settings)
{
    const an_gpt_settings *file = from;
    an_gpt_settings *s = settings;
    s->n_layer = file->n_layer;
    s->n_head = file->n_head;
    s->n_embd = file->n_embd;
    s->vocab_size = file->vocab_size;
    s->bias = file->bias;
    if (strcmp(file->gelu, "tanh") == 0) /* other programs' files do not store it, which reads as erf */
        memcpy(s->gelu, file->gelu, sizeof s->gelu);
    return check_context(err, s, name, file->block_size);
}
