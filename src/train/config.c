#include "train/config.h"
#include "io/config/config_py.h"
#include "io/formats/json.h"
#include <stdio.h>
#include <string.h>

#define AT(name) offsetof(an_train_config, name)
#define TEXT(k, d, choices, doc)                                                                                       \
    {                                                                                                                  \
#k, AN_CONFIG_TEXT, AT(k), d, 0, 0, choices, doc                                                               \
    }
#define INT(k, d, lo, hi, doc)                                                                                         \
    {                                                                                                                  \
#k, AN_CONFIG_INT, AT(k), d, lo, hi, NULL, doc                                                                 \
    }
#define REAL(k, d, lo, hi, doc)                                                                                        \
    {                                                                                                                  \
#k, AN_CONFIG_FLOAT, AT(k), d, lo, hi, NULL, doc                                                               \
    }
#define BOOL(k, d, doc)                                                                                                \
    {                                                                                                                  \
#k, AN_CONFIG_BOOL, AT(k), d, 0, 0, NULL, doc                                                                  \
    }

/* A second name for the setting `place`. It follows the first one, as an_train_config_yaml expects. */
#define ALIAS(k, place, d, doc)                                                                                        \
    {                                                                                                                  \
#k, AN_CONFIG_TEXT, AT(place), d, 0, 0, NULL, doc                                                              \
    }

static const an_config_field fields[] = {
    TEXT(out, "out", NULL, "folder of the run: metrics, logbook, curve and checkpoints"),
    ALIAS(out_dir, out, "out", "nanoGPT's name for out"),
    TEXT(data, "corpus", NULL,
         "a text file, a folder with train.bin and val.bin, a .bin file, or corpus, the built-in text"),
    ALIAS(dataset, data, "corpus", "nanoGPT's name for data: NAME is data/NAME where that is a folder"),
    TEXT(tokenizer, "char", NULL, "of a text: char, or a folder with GPT-2's encoder.json and vocab.bpe"),
    TEXT(init_from, "scratch", NULL,
         "scratch; resume, the run in out; a run, checkpoint or weights file; gpt2, gpt2-medium, -large, -xl"),
    TEXT(note, "", NULL, "a free text for the logbook"),
    INT(vocab_size, "0", 0, 65536, "token ids of the model; 0: as many as the tokenizer has"),
    INT(workers, "1", 0, 64, "threads that prepare batches; 0: none"),
    INT(seed, "1337", 0, 9e15, "of initialisation, batches and dropout"),

    INT(block_size, "1024", 1, 1 << 20, "context length in tokens"),
    INT(n_layer, "12", 1, 4096, "blocks"),
    INT(n_head, "12", 1, 4096, "attention heads in a block"),
    INT(n_embd, "768", 1, 65536, "width"),
    REAL(dropout, "0.0", 0, 0.99, "share of activations dropped in training"),
    BOOL(bias, "false", "biases in linear layers and norms"),
    TEXT(gelu, "erf", "erf|tanh", "GELU as nanoGPT has it (erf), or as OpenAI's GPT-2 does (tanh)"),

    INT(batch_size, "12", 1, 1 << 20, "sequences in a micro-batch"),
    INT(gradient_accumulation_steps, "1", 1, 1 << 20, "micro-batches in an update"),
    INT(max_iters, "600000", 1, 1LL << 40, "updates, numbered from 0"),
    REAL(learning_rate, "6e-4", 0, 100, "peak learning rate"),
    BOOL(decay_lr, "true", "warm up, then decay along a cosine; false: constant"),
    INT(warmup_iters, "2000", 0, 1LL << 40, "updates of linear warm-up"),
    INT(lr_decay_iters, "600000", 0, 1LL << 40, "update at which the learning rate has reached min_lr"),
    REAL(min_lr, "6e-5", 0, 100, "learning rate at the end"),
    REAL(weight_decay, "0.1", 0, 100, "decoupled decay of matrices; vectors have none"),
    REAL(beta1, "0.9", 0, 0.999999, "AdamW: decay of the mean of gradients"),
    REAL(beta2, "0.95", 0, 0.999999999, "AdamW: decay of the mean of their squares"),
    REAL(grad_clip, "1.0", 0, 1e9, "largest global norm of the gradients; 0: any"),

    INT(eval_interval, "2000", 1, 1LL << 40,
        "updates between evaluations on the validation split (and after the last)"),
    INT(eval_iters, "200", 0, 1LL << 40, "batches in an evaluation of a split; 0: the whole split"),
    TEXT(eval_batches, "fixed", "fixed|random",
         "consecutive windows, the same every time, or drawn anew each time as nanoGPT does"),
    BOOL(eval_first, "false", "evaluate before the first update too"),
    BOOL(eval_train, "false", "evaluate the training split too"),
    BOOL(eval_only, "false", "evaluate both splits and train nothing"),
    INT(log_interval, "1", 1, 1LL << 40, "updates between lines of metrics"),
    INT(save_interval, "0", 0, 1LL << 40, "updates between checkpoints; 0: with each evaluation"),
    INT(keep, "2", -1, 1 << 20, "numbered checkpoints to keep; -1: all"),
    {"always_save_checkpoint", AN_CONFIG_BOOL, AT(always_save), "true", 0, 0, NULL,
     "false: after an evaluation only when it was the best; the end and Ctrl-C save anyway"},
    TEXT(log_format, "anneal", "anneal|nanogpt", "nanogpt: its iter and step lines, on standard output"),
    TEXT(nan, "stop", "stop|skip",
         "when a loss or gradient is not finite: stop, or go on (such an update is never applied)"),

    TEXT(device, "auto", NULL, "auto, cpu, cuda, metal, ref; to plan for: null:cpu, null:cuda, null:metal"),
    INT(threads, "0", 0, 4096, "CPU threads; 0: every core. Results do not depend on it"),
    {"dtype", AN_CONFIG_DTYPE, AT(dtype), "float32", 0, 0, NULL,
     "float32, bfloat16 or float16 (with a loss scale), of matrix products; weights stay float32"},
    REAL(budget, "0", 0, 1e6, "GiB that the run may take, data and loader included; 0: what the machine has"),
    TEXT(recompute, "auto", "auto|on|off", "compute cheap activations again instead of keeping them"),
    BOOL(compile, "true", "false: one kernel an operation; same bits, slower"),
    TEXT(isa, "", NULL, "CPU instruction set by name; empty: the best here"),
    TEXT(cc, "", NULL, "C compiler for fused kernels; empty: $CC, cc, clang, gcc; none: interpret"),
    TEXT(cache_dir, "", NULL, "compiled kernels; empty: $ANNEAL_CACHE, or the user's cache folder"),
    BOOL(exact, "false", "float32 training with the same bits on every device; slower"),
    TEXT(fallback, "auto", "auto|none|cpu",
         "Metal: what the GPU cannot run is an error, or the CPU's (cpu); auto: as PYTORCH_ENABLE_MPS_FALLBACK=1 says"),
    BOOL(tf32, "false", "CUDA: float32 products on tensor cores, operands rounded to 11 bits"),
    BOOL(place_apart, "false", "every value in memory of its own (for sanitizers); same bits"),
    BOOL(verify, "false", "check the plan between passes"),
    TEXT(dump, "", NULL, "passes whose text goes to dump_dir: all, or group,place,..."),
    TEXT(dump_dir, "", NULL, "folder for dumps"),

    BOOL(wandb_log, "false", "nanoGPT's; nothing is sent anywhere: metrics.jsonl has the numbers"),
    TEXT(wandb_project, "owt", NULL, "nanoGPT's; kept in the logbook"),
    TEXT(wandb_run_name, "gpt2", NULL, "nanoGPT's; kept in the logbook"),
    TEXT(backend, "nccl", NULL, "nanoGPT's, of several processes; there is one here"),
};

const an_config an_train_keys = {fields, sizeof fields / sizeof fields[0]};

/* nanoGPT's config/train_shakespeare_char.py, of which its README's CPU settings ("I only have a macbook") are a
 * smaller form. */
#define SHAKESPEARE                                                                                                    \
    "eval_interval=250 eval_iters=200 log_interval=10 batch_size=64 block_size=256 n_layer=6 n_head=6 n_embd=384 "     \
    "dropout=0.2 learning_rate=1e-3 max_iters=5000 lr_decay_iters=5000 min_lr=1e-4 beta2=0.99 warmup_iters=100"
#define MACBOOK                                                                                                        \
    SHAKESPEARE " eval_iters=20 block_size=64 batch_size=12 n_layer=4 n_head=4 n_embd=128 max_iters=2000 "             \
                "lr_decay_iters=2000 dropout=0.0"
#define GPT2                                                                                                           \
    "vocab_size=50304 batch_size=12 block_size=1024 gradient_accumulation_steps=40 eval_interval=1000 eval_iters=200 " \
    "log_interval=10"
/* nanoGPT's config/finetune_shakespeare.py, but for gpt2 in place of gpt2-xl, whose 1.6 G parameters need 25 GB. */
#define FINETUNE                                                                                                       \
    "data=shakespeare init_from=gpt2 eval_interval=5 eval_iters=40 batch_size=1 block_size=1024 "                      \
    "gradient_accumulation_steps=32 max_iters=20 learning_rate=3e-5 decay_lr=false log_interval=1 "                    \
    "always_save_checkpoint=false"
/* What nanoGPT does where a file of its own says nothing. */
#define NANOGPT "data=openwebtext gradient_accumulation_steps=40 eval_batches=random eval_first=true eval_train=true"

const an_preset an_presets[] = {
    {"demo", "half a minute on a laptop's CPU: watch a small GPT learn the built-in text",
     MACBOOK " max_iters=1500 lr_decay_iters=1500 eval_interval=250"},
    {"shakespeare_char", "nanoGPT's train_shakespeare_char: 10.7 M parameters, characters", SHAKESPEARE},
    {"char", "shakespeare_char under its short name", SHAKESPEARE},
    {"macbook", "nanoGPT's settings for a laptop's CPU: 0.8 M parameters, characters", MACBOOK},
    {"gpt2", "GPT-2 124M as nanoGPT trains it; needs data=FOLDER of GPT-2 tokens", GPT2},
    {"gpt2s", "GPT-2 124M in small batches (4 x 64), for a CPU",
     GPT2 " batch_size=4 block_size=64 gradient_accumulation_steps=1"},
    {"gpt2-medium", "GPT-2 354M", GPT2 " n_layer=24 n_head=16 n_embd=1024"},
    {"gpt2-large", "GPT-2 773M", GPT2 " n_layer=36 n_head=20 n_embd=1280"},
    {"gpt2-xl", "GPT-2 1.6G", GPT2 " n_layer=48 n_head=25 n_embd=1600"},
    {"finetune_shakespeare", "nanoGPT's: GPT-2's weights, 20 updates on Shakespeare in GPT-2 tokens", FINETUNE},
};
const size_t an_n_presets = sizeof an_presets / sizeof an_presets[0];

static const an_preset *find_preset(const char *name)
{
    for (size_t i = 0; i < an_n_presets; i++)
        if (strcmp(an_presets[i].name, name) == 0) return &an_presets[i];
    return NULL;
}

static an_status apply(an_err *err, const char *settings, an_train_config *c)
{
    char word[AN_CONFIG_TEXT_BYTES];
    int used;
    for (const char *at = settings; sscanf(at, "%511s%n", word, &used) == 1; at += used)
        AN_TRY(an_config_argument(err, &an_train_keys, c, word));
    return AN_OK;
}

static an_status unknown_preset(an_err *err, const char *name)
{
    const char *names[32];
    char list[512];
    size_t used = 0;
    for (size_t i = 0; i < an_n_presets; i++) {
        names[i] = an_presets[i].name;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = an_nearest(name, names, an_n_presets);
    if (near) return an_fail(err, AN_E_USAGE, "unknown preset %.64s; did you mean %s?", name, near);
    return an_fail(err, AN_E_USAGE, "unknown preset %.64s; there are %s, or a file NAME.yaml or NAME.py", name, list);
}

static bool ends_in(const char *name, const char *ending)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ending) == 0;
}

/* The settings that name programs to run or places to write. A file that somebody else may have made does not decide
 * them: the command line does, and the environment. */
static const size_t trusted[] = {offsetof(an_train_config, cc), offsetof(an_train_config, cache_dir),
                                 offsetof(an_train_config, dump), offsetof(an_train_config, dump_dir)};

static bool is_trusted(const an_config_field *f)
{
    bool found = false;
    for (size_t i = 0; i < sizeof trusted / sizeof trusted[0]; i++) found |= f->offset == trusted[i];
    return found;
}

void an_train_config_untrusted(an_train_config *c)
{
    for (size_t i = 0; i < sizeof trusted / sizeof trusted[0]; i++) ((char *)c)[trusted[i]] = 0;
}

static an_status refuse_programs(an_err *err, const char *file, const an_train_config *c)
{
    for (size_t i = 0; i < an_train_keys.n; i++) {
        const an_config_field *f = &an_train_keys.fields[i];
        if (is_trusted(f) && ((const char *)c)[f->offset] != 0)
            return an_fail(
                err, AN_E_USAGE,
                "%s: %s names a program to run or a place to write, which a settings file may not: say it on "
                "the command line",
                file, f->name);
    }
    return AN_OK;
}

an_status an_train_config_open(an_err *err, const char *preset_or_file, an_train_config *out)
{
    memset(out, 0, sizeof *out);
    AN_TRY(an_config_defaults(err, &an_train_keys, out));
    snprintf(out->preset, sizeof out->preset, "%s", preset_or_file);
    if (ends_in(preset_or_file, ".yaml") || ends_in(preset_or_file, ".yml")) {
        AN_TRY(an_config_yaml(err, &an_train_keys, out, preset_or_file));
        return refuse_programs(err, preset_or_file, out);
    }
    if (ends_in(preset_or_file, ".py")) {
        AN_TRY(apply(err, NANOGPT, out));
        AN_TRY(an_config_py(err, &an_train_keys, out, preset_or_file));
        return refuse_programs(err, preset_or_file, out);
    }
    const an_preset *p = find_preset(preset_or_file);
    return p ? apply(err, p->settings, out) : unknown_preset(err, preset_or_file);
}

an_status an_train_config_check(an_err *err, const an_train_config *c)
{
    const an_gpt_config m = an_train_model(c, c->vocab_size ? c->vocab_size : 1);
    const char *fault = an_gpt_fault(&m);
    if (fault)
        return an_fail(err, AN_E_USAGE, "%s (n_layer=%lld n_head=%lld n_embd=%lld block_size=%lld)", fault,
                       (long long)m.layers, (long long)m.heads, (long long)m.width, (long long)m.block);
    if (c->dtype != AN_F32 && c->dtype != AN_BF16 && c->dtype != AN_F16)
        return an_fail(err, AN_E_USAGE, "dtype=%s: training runs in float32, bfloat16 or float16",
                       an_dtype_text(c->dtype));
    if (c->exact && (c->dtype != AN_F32 || c->tf32))
        return an_fail(err, AN_E_USAGE, "exact=true is training in float32: %s%s is something else; leave one out",
                       c->tf32 ? "tf32=true" : "dtype=", c->tf32 ? "" : an_dtype_text(c->dtype));
    if (c->batch_size > INT32_MAX / c->block_size)
        return an_fail(err, AN_E_USAGE,
                       "batch_size=%lld of block_size=%lld: a batch has at most %d tokens; use a smaller one, and "
                       "gradient_accumulation_steps",
                       (long long)c->batch_size, (long long)c->block_size, INT32_MAX);
    if (!c->out[0]) return an_fail(err, AN_E_USAGE, "out= is empty: name a folder for the run");
    return AN_OK;
}

void an_train_config_yaml(const an_train_config *c, an_text *out)
{
    an_text_puts(out, "# The settings of this run: anneal train config.yaml begins it anew.\n");
    for (size_t i = 0; i < an_train_keys.n; i++) {
        const an_config_field *f = &an_train_keys.fields[i];
        an_text value = {0};
        if (i > 0 && f->offset == f[-1].offset) continue; /* a second name */
        if (is_trusted(f)) continue;
        an_config_value_text(f, c, &value);
        an_text_printf(out, "%s: ", f->name);
        if (f->type == AN_CONFIG_TEXT)
            an_json_put(out, value.len ? value.data : "");
        else
            an_text_puts(out, value.data ? value.data : "");
        an_text_puts(out, "\n");
        out->failed |= value.failed;
        an_text_free(&value);
    }
}

/* clang-format off */
static const char *const fixed[] = {"vocab_size", "block_size", "n_layer", "n_head", "n_embd",
                                    "bias", "gelu", "seed", "tokenizer", "init_from"};
/* clang-format on */

bool an_train_key_is_fixed(const char *key)
{
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (strcmp(fixed[i], key) == 0) return true;
    return false;
}

void an_train_config_fix(an_train_config *c, const an_train_config *from)
{
    c->vocab_size = from->vocab_size;
    c->block_size = from->block_size;
    c->n_layer = from->n_layer;
    c->n_head = from->n_head;
    c->n_embd = from->n_embd;
    c->bias = from->bias;
    memcpy(c->gelu, from->gelu, sizeof c->gelu);
    c->seed = from->seed;
    memcpy(c->tokenizer, from->tokenizer, sizeof c->tokenizer);
    memcpy(c->init_from, from->init_from, sizeof c->init_from);
}

an_gpt_config an_train_model(const an_train_config *c, int64_t vocab)
{
    return (an_gpt_config){.vocab = vocab,
                           .block = c->block_size,
                           .layers = c->n_layer,
                           .heads = c->n_head,
                           .width = c->n_embd,
                           .dropout = c->dropout,
                           .bias = c->bias,
                           .gelu_tanh = strcmp(c->gelu, "tanh") == 0};
}
