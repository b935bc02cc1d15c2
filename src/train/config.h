/* config.h: the settings of a training run, under nanoGPT's names where it has them, and the presets.
 *
 * Owns:      the table of keys (defaults, ranges, one line of help each), the presets, checks across keys.
 * Does not:  parse (io/config/config.h), open or train anything.
 */
#ifndef AN_TRAIN_CONFIG_H
#define AN_TRAIN_CONFIG_H

#include <anneal.h>
#include "io/config/config.h"
#include "models/gpt/gpt.h"

typedef char an_train_text[AN_CONFIG_TEXT_BYTES];

typedef struct an_train_config {
    an_train_text preset; /* the name it began with; not a key */
    /* where things are */
    an_train_text out, data, tokenizer, init_from, note;
    int64_t vocab_size, workers, seed;
    /* the model */
    int64_t block_size, n_layer, n_head, n_embd;
    double dropout;
    bool bias;
    an_train_text gelu;
    /* the optimizer */
    int64_t batch_size, gradient_accumulation_steps, max_iters, warmup_iters, lr_decay_iters;
    double learning_rate, min_lr, weight_decay, beta1, beta2, grad_clip;
    bool decay_lr;
    /* the run */
    int64_t eval_interval, eval_iters, log_interval, save_interval, keep;
    bool eval_only, eval_first, eval_train, always_save;
    an_train_text nan, eval_batches, log_format;
    /* nanoGPT's, which mean nothing here */
    an_train_text backend, wandb_project, wandb_run_name;
    bool wandb_log;
    /* the machine */
    an_train_text device, isa, cc, cache_dir, recompute, fallback, dump, dump_dir;
    an_dtype dtype;
    int64_t threads;
    double budget;
    bool compile, exact, tf32, place_apart, verify;
} an_train_config;

extern const an_config an_train_keys;

typedef struct an_preset {
    const char *name, *summary, *settings; /* settings: "key=value key=value" */
} an_preset;
extern const an_preset an_presets[];
extern const size_t an_n_presets;

/* Defaults, then the preset, or the file when the name ends in .yaml, .yml or .py. A .py file is one of nanoGPT's and
 * begins with what nanoGPT does where it differs: evaluations of both splits on random batches, the first one before
 * any update, and 40 micro-batches. */
an_status an_train_config_open(an_err *err, const char *preset_or_file, an_train_config *out);
/* Forgets the settings that name programs to run or places to write: a file that somebody else may have made does not
 * decide them. The command line does, and the environment. */
void an_train_config_untrusted(an_train_config *c);
/* What no single key can be blamed for: shapes that do not fit one another, a precision that cannot train. */
an_status an_train_config_check(an_err *err, const an_train_config *c);
/* The settings of a run as a YAML file that an_train_config_open reads back. */
void an_train_config_yaml(const an_train_config *c, an_text *out);
/* Whether a resumed run may change the key: shapes, data order and initialisation are settled at the start. */
bool an_train_key_is_fixed(const char *key);
/* Takes the values of all such keys from the settings a run began with. */
void an_train_config_fix(an_train_config *c, const an_train_config *from);

an_gpt_config an_train_model(const an_train_config *c, int64_t vocab);

#endif
