/* gpt_model.c: GPT's entry in the model registry (models/model.h): settings under nanoGPT's names, presets, and the
 * functions that build, count and describe the model of gpt.h from settings. */
#include "models/gpt/gpt_model.h"
#include "models/gpt/gpt_weights.h"
#include <stdio.h>
#include <string.h>

/* ---- settings */

#define AT(name) offsetof(an_gpt_settings, name)
#define INT(key, initial, low, high, doc)                                                                              \
    {                                                                                                                  \
#key, AN_CONFIG_INT, AT(key), initial, low, high, NULL, doc                                                    \
    }

static const an_config_field fields[] = {
    INT(vocab_size, "0", 0, 65536, "token ids of the model; 0: as many as the tokenizer has"),
    INT(block_size, "1024", 1, 1 << 20, "context length in tokens"),
    INT(n_layer, "12", 1, 4096, "blocks"),
    INT(n_head, "12", 1, 4096, "attention heads in a block"),
    INT(n_embd, "768", 1, 65536, "width"),
    {"dropout", AN_CONFIG_FLOAT, AT(dropout), "0.0", 0, 0.99, NULL, "share of activations dropped in training"},
    {"bias", AN_CONFIG_BOOL, AT(bias), "false", 0, 0, NULL, "biases in linear layers and norms"},
    {"gelu", AN_CONFIG_TEXT, AT(gelu), "erf", 0, 0, "erf|tanh",
     "GELU as nanoGPT has it (erf), or as OpenAI's GPT-2 does (tanh)"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const changeable[] = {"dropout", NULL};
static const char *const weight_keys[] = {"n_layer", "n_head", "n_embd", "vocab_size", "bias", NULL};
static const char *const halve[] = {"block_size", "n_embd", "n_layer", NULL};
static const an_key_alias aliases[] = {{"seq", "block_size"}, {"layers", "n_layer"},   {"heads", "n_head"},
                                       {"width", "n_embd"},   {"vocab", "vocab_size"}, {NULL, NULL}};

an_gpt_config an_gpt_config_from(const an_gpt_settings *s)
{
    return (an_gpt_config){.vocab = s->vocab_size,
                           .block = s->block_size,
                           .layers = s->n_layer,
                           .heads = s->n_head,
                           .width = s->n_embd,
                           .dropout = s->dropout,
                           .bias = s->bias,
                           .gelu_tanh = strcmp(s->gelu, "tanh") == 0};
}

/* vocab_size=0 means "the tokenizer's size", which is not known yet. */
static an_status check(an_err *err, const void *settings, int64_t batch)
{
    an_gpt_config c = an_gpt_config_from(settings);
    if (c.vocab == 0) c.vocab = 1;
    const char *fault = an_gpt_fault(&c);
    if (fault)
        return an_fail(err, AN_E_USAGE, "%s (n_layer=%lld n_head=%lld n_embd=%lld block_size=%lld)", fault,
                       (long long)c.layers, (long long)c.heads, (long long)c.width, (long long)c.block);
    if (batch > INT32_MAX / c.block)
        return an_fail(err, AN_E_USAGE,
                       "batch_size=%lld of block_size=%lld: a batch has at most %d tokens; use a smaller one, and "
                       "gradient_accumulation_steps",
                       (long long)batch, (long long)c.block, INT32_MAX);
    return AN_OK;
}

static void miniature(void *settings)
{
    an_gpt_settings *s = settings;
    s->n_layer = AN_MIN(s->n_layer, 2);
    if (s->n_embd > 128) s->n_embd = 128, s->n_head = 4;
    s->block_size = AN_MIN(s->block_size, 64);
}

/* ---- presets */

/* nanoGPT's config/train_shakespeare_char.py, of which its README's CPU settings ("I only have a macbook") are a
 * smaller form. */
#define SHAKESPEARE                                                                                                    \
    "eval_interval=250 eval_iters=200 log_interval=10 batch_size=64 block_size=256 n_layer=6 n_head=6 n_embd=384 "     \
    "dropout=0.2 learning_rate=1e-3 max_iters=5000 lr_decay_iters=5000 min_lr=1e-4 beta2=0.99 warmup_iters=100"
#define MACBOOK                                                                                                        \
    SHAKESPEARE " eval_iters=20 block_size=64 batch_size=12 n_layer=4 n_head=4 n_embd=128 max_iters=2000 "             \
                "lr_decay_iters=2000 dropout=0.0"
/* The largest that trains to words in ten minutes on two cores: 2,000 updates of 23.8 GFLOP. */
#define WORDS MACBOOK " block_size=128 batch_size=16 n_head=6 n_embd=192 learning_rate=2e-3 eval_interval=500"
#define GPT2                                                                                                           \
    "vocab_size=50304 batch_size=12 block_size=1024 gradient_accumulation_steps=40 eval_interval=1000 eval_iters=200 " \
    "log_interval=10"
/* nanoGPT's config/finetune_shakespeare.py, but for gpt2 in place of gpt2-xl, whose 1.6 G parameters need 25 GB. */
#define FINETUNE                                                                                                       \
    "data=shakespeare init_from=gpt2 eval_interval=5 eval_iters=40 batch_size=1 block_size=1024 "                      \
    "gradient_accumulation_steps=32 max_iters=20 learning_rate=3e-5 decay_lr=false log_interval=1 "                    \
    "always_save_checkpoint=false"
/* nanoGPT's defaults, for keys that its configuration files leave out. */
#define NANOGPT "data=openwebtext gradient_accumulation_steps=40 eval_batches=random eval_first=true eval_train=true"

static const an_preset presets[] = {
    {"demo", "half a minute on a laptop's CPU: watch a small GPT learn the built-in text",
     MACBOOK " max_iters=1500 lr_decay_iters=1500 eval_interval=250", 60, 10, NULL},
    {"words", "ten minutes on two cores: 1.8 M parameters learn the words of the built-in text", WORDS, 10, 2, NULL},
    {"shakespeare_char", "nanoGPT's train_shakespeare_char: 10.7 M parameters, characters", SHAKESPEARE, 4, 2, NULL},
    {"char", "shakespeare_char under its short name", SHAKESPEARE, 4, 2, NULL},
    {"macbook", "nanoGPT's settings for a laptop's CPU: 0.8 M parameters, characters", MACBOOK, 60, 10, NULL},
    {"gpt2", "GPT-2 124M as nanoGPT trains it; needs data=FOLDER of GPT-2 tokens", GPT2, 2, 2, NULL},
    {"gpt2s", "GPT-2 124M in small batches (4 x 64), for a CPU",
     GPT2 " batch_size=4 block_size=64 gradient_accumulation_steps=1", 6, 2, NULL},
    {"gpt2-medium", "GPT-2 354M", GPT2 " n_layer=24 n_head=16 n_embd=1024", 0, 0, NULL},
    {"gpt2-large", "GPT-2 773M", GPT2 " n_layer=36 n_head=20 n_embd=1280", 0, 0, NULL},
    {"gpt2-xl", "GPT-2 1.6G", GPT2 " n_layer=48 n_head=25 n_embd=1600", 0, 0, NULL},
    {"finetune_shakespeare", "nanoGPT's: GPT-2's weights, 20 updates on Shakespeare in GPT-2 tokens", FINETUNE, 0, 0,
     NULL},
};

/* ---- graphs */

static void *open_model(an_ctx *cx, const void *settings)
{
    const an_gpt_config c = an_gpt_config_from(settings);
    return an_gpt_open(cx, &c);
}

static void close_model(void *model)
{
    an_gpt_close(model);
}

static int inputs(const void *settings, int64_t samples, an_array out[AN_MAX_ARRAYS])
{
    const an_gpt_settings *s = settings;
    const an_shape shape = AN_SHAPE(samples, s->block_size); /* [B,T] */
    out[0] = (an_array){.name = "tokens", .dtype = AN_I32, .shape = shape, .limit = s->vocab_size};
    out[1] = (an_array){.name = "labels", .dtype = AN_I32, .shape = shape, .limit = s->vocab_size};
    return 2;
}

static const an_sum *sums(const void *settings)
{
    static const an_sum loss[] = {{"loss", NULL}, {NULL, NULL}};
    (void)settings;
    return loss;
}

static an_losses losses(void *model, an_tensor *const *in, bool training)
{
    an_tensor *each = an_gpt_losses(model, in[0], in[1], training); /* [B,T] */
    if (training) return (an_losses){.loss = an_mean_at(AN_AT, each, AN_ALL, false)};
    return (an_losses){.sum = {an_sum_at(AN_AT, each, AN_ALL, false)}};
}

static int64_t context(const void *settings)
{
    const an_gpt_settings *s = settings;
    return s->block_size;
}

static int64_t vocabulary(const void *settings)
{
    const an_gpt_settings *s = settings;
    return s->vocab_size;
}

static an_tensor *prefill(void *model, an_tensor *tokens, an_tensor *last)
{
    return an_gpt_prefill(model, tokens, last);
}

static an_tensor *decode(void *model, an_tensor *token, an_tensor *position, an_tensor *n_keys)
{
    return an_gpt_decode(model, token, position, n_keys);
}

static const an_decoder decoder = {
    .context = context, .vocabulary = vocabulary, .prefill = prefill, .decode = decode, .together = true};

/* ---- counts, description, weight files */

static void count(const void *settings, int64_t samples, an_model_counts *out)
{
    const an_gpt_config c = an_gpt_config_from(settings);
    const int64_t parameters = an_gpt_parameters_printed(&c);
    const double T = (double)c.block, token = 6 * (double)parameters + 12 * (double)(c.layers * c.width) * T;
    *out = (an_model_counts){.parameters = an_gpt_parameters(&c),
                             .parameters_printed = parameters,
                             .largest = AN_MAX(c.vocab, AN_MAX(4 * c.width, c.block)) * c.width,
                             .flops = an_gpt_flops(&c, samples, c.block),
                             .flops_printed = token * T * (double)samples};
}

static void describe(const void *settings, const char *parameters, an_text *out)
{
    const an_gpt_settings *s = settings;
    an_text_printf(out,
                   "%s with positions): %lld layers,\n"
                   "        %lld heads, width %lld, vocabulary %lld, context %lld\n",
                   parameters, (long long)s->n_layer, (long long)s->n_head, (long long)s->n_embd,
                   (long long)s->vocab_size, (long long)s->block_size);
}

static const an_weight_formats weights = {
    .layouts = "nanogpt|hf",
    .layouts_doc = "nanogpt: names and matrices as in nanoGPT's state dict; hf: as in Hugging "
                   "Face's GPT-2, with a config.json beside",
    .import = an_gpt_weights_import,
    .write = an_gpt_weights_export,
    .is_published = an_gpt_is_published,
    .open_published = an_gpt_open_published};

const an_model an_gpt_model = {.name = "gpt",
                               .task = "language",
                               .keys = &keys,
                               .n_data_keys = 1,
                               .settings_bytes = sizeof(an_gpt_settings),
                               .changeable = changeable,
                               .weight_keys = weight_keys,
                               .halve = halve,
                               .too_large = "no smaller batch or context: a smaller model (n_embd) or more memory",
                               .aliases = aliases,
                               .presets = presets,
                               .n_presets = AN_COUNT(presets),
                               .py_settings = NANOGPT,
                               .check = check,
                               .adopt = an_gpt_adopt,
                               .miniature = miniature,
                               .open = open_model,
                               .close = close_model,
                               .inputs = inputs,
                               .sums = sums,
                               .losses = losses,
                               .decoder = &decoder,
                               .count = count,
                               .describe = describe,
                               .weights = &weights,
                               .cut_parameter = "transformer.wpe.weight"};
