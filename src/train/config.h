/* config.h: the settings of a training run, under nanoGPT's names where it has them.
 *
 * Owns:      the settings that all runs have; one table of keys for each pair of model and task, made of these and of
 *            the keys that model and task bring; checks across keys; which keys a resumed run may not change.
 * Does not:  parse (io/config/config.h), apply a command line (cli/args.c), open or train anything.
 *
 * Precedence of settings, a later one overrides an earlier one:
 *     train     table's defaults < model's defaults < one of a preset, a YAML or a .py file < environment (DISABLE_COMPILE) < command line
 *     resume    the checkpoint < environment < command line, which may not name a fixed key (an_train_key_is_fixed)
 *     train with init_from=resume (nanoGPT's): as train, but fixed keys have the checkpoint's values
 *
 * A run's table, in the order in which keys are written to files:
 *
 *     model, task | where things are | the task's | the model's sizes | machine | the model's | optimizer, run, device
 *
 * `model` and `task` name the rows of the two registries. Files of gpt, the first model, and its task `language` leave
 * both out, as files did that were written before other models existed.
 */
#ifndef AN_TRAIN_CONFIG_H
#define AN_TRAIN_CONFIG_H

#include <anneal.h>
#include "io/config/config.h"
#include "models/model.h"

typedef char an_train_text[AN_CONFIG_TEXT_BYTES];

enum { AN_TASK_SETTINGS_BYTES = 2048, AN_TRAIN_MAX_KEYS = 128 };

/* Plain data: copied with =. */
typedef struct an_train_config {
    const an_model *model;
    const struct an_task *task;
    an_train_text model_name, task_name; /* of these, as keys */
    an_train_text preset;                /* the name it began with; not a key */
    union {
        max_align_t align;
        char bytes[AN_MODEL_SETTINGS_BYTES];
    } model_settings; /* the model's own struct */
    union {
        max_align_t align;
        char bytes[AN_TASK_SETTINGS_BYTES];
    } task_settings; /* and the task's */
    /* where things are */
    an_train_text out, data, init_from, note;
    int64_t workers, seed;
    /* the optimizer */
    int64_t batch_size, gradient_accumulation_steps, max_iters, epochs, warmup_iters, lr_decay_iters;
    double learning_rate, min_lr, weight_decay, beta1, beta2, grad_clip, momentum, dampening, ema_rate;
    bool decay_lr, nesterov, ema;
    an_train_text optimizer, decay, freeze;
    /* the run */
    int64_t eval_interval, min_eval_interval, eval_iters, log_interval, save_interval, keep;
    bool eval_only, eval_first, eval_train, always_save;
    an_train_text nan, eval_batches, log_format;
    /* accepted from nanoGPT's files and ignored */
    an_train_text backend, wandb_project, wandb_run_name;
    bool wandb_log;
    /* the machine */
    an_train_text device, isa, cc, cache_dir, recompute, fallback, place, dump, dump_dir;
    an_dtype dtype;
    int64_t threads;
    double budget, divide_batch, low_watermark, high_watermark;
    bool compile, exact, tf32, place_apart, verify;
    an_train_text shard;
    bool overlap;
    an_dtype exchange_dtype; /* AN_F32 or AN_BF16 */
    an_dtype weights_dtype;  /* AN_F32 or AN_BF16 */
    an_dtype moments_dtype;  /* AN_F32 or AN_BF16 */
    /* Not a key: the processes that train together (comm/comm.h); NULL: this one alone. gradient_accumulation_steps is
     * that of them all, and micro-batch m of an update is of rank m mod ranks. The caller's. */
    struct an_comm *comm;
    /* the table of all these keys */
    an_config_field field[AN_TRAIN_MAX_KEYS];
    size_t n_fields;
} an_train_config;

/* The table of keys of this model and task. It points into `c`, which must be neither changed nor moved. */
an_config an_train_keys(const an_train_config *c);
/* The same without the keys that files of the first model do not have. */
an_config an_train_file_keys(const an_train_config *c);
/* Calls `take` for the tables that all of these are made of, before a model is known: the first model's (owner ""),
 * then the keys of each further model and task. */
typedef void an_table_fn(void *arg, const char *owner, const an_config *keys);
void an_train_each_table(an_table_fn *take, void *arg);
/* The key in any of them; NULL: there is none. */
const an_config_field *an_train_key_find(const char *key);
/* A model's settings that begin with "eval_" say how it is evaluated; the command that evaluates takes them without these
 * letters. Calls `take` for each model that has some, with these shorter names. */
void an_train_each_eval_table(an_table_fn *take, void *arg);
/* The setting eval_KEY of any model; NULL: there is none. */
const an_config_field *an_train_eval_key_find(const char *key);
/* Sets it. AN_E_USAGE with a sentence where the model of `c` has none. */
an_status an_train_eval_set(an_err *err, an_train_config *c, const char *key, const char *value);

/* The micro-batches of an update that this rank does. */
int64_t an_train_micros(const an_train_config *c);

/* The settings of the model, of its own type. */
static inline const void *an_model_settings(const an_train_config *c)
{
    return c->model_settings.bytes;
}
/* A whole number among them, by its key; NULL: this model has none. */
int64_t *an_train_number(an_train_config *c, const char *key);

/* The i-th preset of all models; NULL past the last. */
const an_preset *an_preset_at(size_t i, const an_model **model);
const an_preset *an_preset_find(const char *name, const an_model **model); /* NULL: there is none */

/* Defaults of a model and its task; `task` may be NULL: the model's. */
an_status an_train_config_defaults(an_err *err, const an_model *model, const struct an_task *task,
                                   an_train_config *out);
/* Settings as JSON, of a checkpoint. */
an_status an_train_config_json(an_err *err, const char *where, const char *json, an_train_config *out);
/* Defaults, then the preset, or the file when the name ends in .yaml, .yml or .py, or as a model's own files do
 * (an_model.file_ending). A .py file is one of nanoGPT's: before it the settings in which that program differs from
 * ours are applied (an_model.py_settings). */
an_status an_train_config_open(an_err *err, const char *preset_or_file, an_train_config *out);
/* Clears the settings that name programs to run or places to write. The command line and the environment decide them,
 * never a file, which may come from a stranger. */
void an_train_config_untrusted(an_train_config *c);
/* What no single key shows: sizes that do not fit one another, a precision that cannot train. */
an_status an_train_config_check(an_err *err, const an_train_config *c);
/* The settings of a run as a YAML file that an_train_config_open reads back. */
void an_train_config_yaml(const an_train_config *c, an_text *out);
/* Whether a resumed run may not change the key: shapes, data order and initialisation are fixed when a run begins. Of a model's
 * keys, those that an_model.changeable does not name. */
bool an_train_key_is_fixed(const an_train_config *c, const char *key);
/* Takes the values of all such keys from the settings that a run began with, and its model and task. */
void an_train_config_fix(an_train_config *c, const an_train_config *from);

#endif
