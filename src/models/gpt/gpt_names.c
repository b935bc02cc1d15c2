/* gpt_names.c: the names, shapes and order of a GPT's parameters. See gpt_names.h. Files are read, and their matrices
 * transposed, by gpt_weights.c. */
#include "models/gpt/gpt_names.h"
#include <stdio.h>
#include <string.h>

/* The parts of a block in the order of nanoGPT's state dict. Sizes are multiples of the width; 0 rows: a norm. */
static const struct {
    const char *name;
    int rows, cols;
} parts[] = {{"ln_1", 0, 1}, {"attn.c_attn", 3, 1}, {"attn.c_proj", 1, 1},
             {"ln_2", 0, 1}, {"mlp.c_fc", 4, 1},    {"mlp.c_proj", 1, 4}};
enum { PARTS = sizeof parts / sizeof parts[0] };

bool an_gpt_parameter_at(const an_gpt_config *c, int64_t i, char name[AN_GPT_NAME_BYTES], an_shape *shape)
{
    const int64_t C = c->width, kinds = c->bias ? 2 : 1, in_block = PARTS * kinds, blocks = c->layers * in_block;
    /* i of wte and wpe is 0 and 1, so that blocks begin at an even i, and weights and biases take turns from there */
    const char *kind = i % kinds ? "bias" : "weight";
    if (i < 0 || i >= 2 + blocks + kinds) return false;
    if (i < 2) {
        snprintf(name, AN_GPT_NAME_BYTES, "transformer.%s.weight", i ? "wpe" : "wte");
        *shape = AN_SHAPE(i ? c->block : c->vocab, C);
    } else if (i >= 2 + blocks) {
        snprintf(name, AN_GPT_NAME_BYTES, "transformer.ln_f.%s", kind);
        *shape = AN_SHAPE(C);
    } else {
        const int64_t part = (i - 2) % in_block / kinds, rows = parts[part].rows;
        snprintf(name, AN_GPT_NAME_BYTES, "transformer.h.%d.%s.%s", (int)((i - 2) / in_block), parts[part].name, kind);
        if (rows == 0)
            *shape = AN_SHAPE(C);
        else if (kind[0] == 'b')
            *shape = AN_SHAPE(rows * C);
        else
            *shape = AN_SHAPE(rows * C, parts[part].cols * C);
    }
    return true;
}

/* REST of "h.12.REST"; NULL: the name is not a block's. */
static const char *rest_of_block(const char *name)
{
    if (strncmp(name, "h.", 2) != 0) return NULL;
    const char *p = name + 2;
    while (*p >= '0' && *p <= '9') p++;
    return p > name + 2 && *p == '.' ? p + 1 : NULL;
}

static const char *without_prefix(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : name;
}

/* The part of a block that "REST.weight" or "REST.bias" names, -1: none. */
static int part_of(const char *rest)
{
    for (int i = 0; rest && i < PARTS; i++) {
        size_t n = strlen(parts[i].name);
        if (strncmp(rest, parts[i].name, n) == 0 &&
            (strcmp(rest + n, ".weight") == 0 || strcmp(rest + n, ".bias") == 0))
            return i;
    }
    return -1;
}

bool an_gpt_is_conv1d(const char *name)
{
    const int part = part_of(rest_of_block(without_prefix(name, "transformer.")));
    return part >= 0 && parts[part].rows > 0 &&
           name[strlen(name) - 1] == 't'; /* of "weight", for part_of saw no other end but "bias" */
}

bool an_gpt_is_parameter(const char *name)
{
    const char *plain = without_prefix(name, "transformer.");
    return part_of(rest_of_block(plain)) >= 0 || strcmp(plain, "wte.weight") == 0 || strcmp(plain, "wpe.weight") == 0 ||
           strcmp(plain, "ln_f.weight") == 0 || strcmp(plain, "ln_f.bias") == 0;
}

/* The causal masks that old versions of nanoGPT and transformers stored with the weights. */
static bool is_buffer(const char *rest)
{
    return rest && (strcmp(rest, "attn.bias") == 0 || strcmp(rest, "attn.masked_bias") == 0);
}

an_gpt_name_kind an_gpt_name_read(const char *given, char name[AN_GPT_NAME_BYTES])
{
    const char *plain = without_prefix(without_prefix(given, "_orig_mod."), "transformer.");
    if (is_buffer(rest_of_block(plain))) return AN_GPT_NAME_BUFFER;
    const char *head = without_prefix(given, "_orig_mod.");
    if (strcmp(head, "lm_head.weight") == 0) return AN_GPT_NAME_HEAD;
    int n = snprintf(name, AN_GPT_NAME_BYTES, "transformer.%s", plain);
    return n > 0 && n < AN_GPT_NAME_BYTES ? AN_GPT_NAME_PARAMETER : AN_GPT_NAME_STRANGE;
}
