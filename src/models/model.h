/* model.h: what a model is to everything around it: one row of a table.
 *
 * Owns:      the row (settings, presets, inputs, losses, predictions, decoding, counts, weight formats) and the registry.
 * Does not:  know data, optimizers or commands: those know models only through this header.
 *
 * A model is a folder src/models/NAME with one an_model, and one line in models/registry.c. Its settings are a struct
 * of its own, described by a table of keys; all other code passes it as `const void *settings`.
 *
 *     settings --open--> parameters in a context --losses--> graph of a micro-batch --> loss and named sums
 *                                                --predict--> graph of the outputs
 */
#ifndef AN_MODELS_MODEL_H
#define AN_MODELS_MODEL_H

#include "io/config/config.h"
#include "io/data/arrays.h"
#include "io/formats/safetensors.h"

enum { AN_MODEL_SUMS = 8, AN_MODEL_SETTINGS_BYTES = 4096, AN_STATE_OF_ALL = -1 };

typedef struct an_preset {
    const char *name, *summary;
    const char *settings;            /* "key=value key=value" */
    int64_t bench_steps, bench_warm; /* steps that `bench` times on a CPU, and runs before; 0: 4 after 2 */
    const char *task;                /* NULL: the model's */
} an_preset;

/* A number that training and evaluation report: sums over a micro-batch, added up on the host and divided. */
typedef struct an_sum {
    const char *name; /* "loss", "accuracy" */
    const char *per;  /* the sum that it is divided by; NULL: the number of the task's units (tokens, examples) */
} an_sum;

/* What the loss of a model that a file describes makes of the labels, which a task must know to read them. */
typedef struct an_label_use {
    bool classes;       /* they are ids of classes */
    bool whole_batches; /* the loss is the graph's own: no sample of a batch may be left out of it */
} an_label_use;

/* The losses of a micro-batch, f32 scalars of the graph. */
typedef struct an_losses {
    an_tensor *loss;               /* training: what is differentiated, a mean over the micro-batch */
    an_tensor *sum[AN_MODEL_SUMS]; /* in the order of the row's sums. A model whose only sum is the loss may leave it
                                    * NULL in training, where `loss` is what is reported */
} an_losses;

/* Which part of an update or of an evaluation the next graph of `losses` is, for models that keep states between
 * batches. */
typedef struct an_place {
    int64_t micro, micros; /* training: which micro-batch of an update, and of how many */
    int64_t ranks;         /* processes that share them: micro-batch m is done by rank m mod ranks */
    int64_t call;          /* evaluation: which of the graphs that run on one batch (an_model.calls) */
    double lr_share;       /* training: the learning rate as a part of its peak */
} an_place;

/* Autoregressive decoding, with a cache that the model keeps in states of its context, or none. B is 1 unless
 * `together`: then of any number of sequences of one length, whose logits are [B,V]. */
typedef struct an_decoder {
    int64_t (*context)(const void *settings); /* the most tokens that the cache holds; 0: no text with these settings */
    int64_t (*vocabulary)(const void *settings); /* length of the logits */
    /* tokens i32 [B,P] start a sequence each, `last` (i32 scalar) is the position of the last real one: logits f32 [V]
     */
    an_tensor *(*prefill)(void *model, an_tensor *tokens, an_tensor *last);
    /* token i32 [B,1] at `position` (i32 scalar); n_keys = position + 1: logits f32 [V] of the next token. NULL: there
     * is no cache, and each token is a prefill of all before it */
    an_tensor *(*decode)(void *model, an_tensor *token, an_tensor *position, an_tensor *n_keys);
    bool together;
} an_decoder;

/* Files of other programs. */
#define AN_EPOCH_KEY "train_epoch"

typedef struct an_weight_formats {
    const char *layouts;     /* what `write` writes: "nanogpt|hf"; the first is the default */
    const char *layouts_doc; /* what each is, for people */
    /* Takes `raw` and gives it back in the form of our checkpoints (io/checkpoint.h), whatever program wrote it. */
    an_status (*import)(an_err *err, an_st *raw, an_st **out);
    an_status (*write)(an_err *err, const an_st *st, const char *layout, const char *path);
    /* Published weights that init_from= takes by name, and their files; with `shape_only` just the settings that
     * they imply, and *out stays NULL. */
    bool (*is_published)(const char *name);
    an_status (*open_published)(an_err *err, const char *name, void *settings, bool shape_only, an_st **out);
    /* Whether a file without settings of ours is of this model. NULL: never asked; such files are the first row's. */
    bool (*recognizes)(const an_st *raw);
    /* The file in which that program keeps a run's settings, and its text from ours as JSON (`from` begins its sentences) and from
     * how far the run is (NULL: not known), whose AN_EPOCH_KEY is the number of samples in an epoch: a run has it in its
     * folder beside config.yaml. NULL: there is none. */
    const char *settings_name;
    an_status (*settings)(an_err *err, const char *from, const char *json, const char *state, an_text *out);
} an_weight_formats;

typedef struct an_model_counts {
    int64_t parameters, parameters_printed; /* all; as the program that the model comes from counts them */
    int64_t largest;                        /* elements of the largest parameter */
    double flops;         /* of a training step on the batch: forward and backward, nothing computed twice (a plan with
                                               recomputation counts more: an_bill.flops) */
    double flops_printed; /* the same as the program that the model comes from estimates it */
} an_model_counts;

/* A short word for a setting, in plan's what_if: "layers" for n_layer. */
typedef struct an_key_alias {
    const char *word, *key;
} an_key_alias;

typedef struct an_model {
    const char *name;
    const char *task; /* what it is trained for: a row of train/task.h */

    /* ---- settings: keys are of no other table; offsets are in a struct of `settings_bytes` */
    const an_config *keys;
    size_t n_data_keys; /* the first of them are sizes, where 0 means: as the data has it */
    size_t settings_bytes;
    const char *const *changeable;  /* keys that a resumed run may change; NULL-terminated, as the lists below */
    const char *const *weight_keys; /* keys that weights to start from decide */
    const char *const *halve;       /* keys that make a step smaller, in the order in which to advise them */
    const char *too_large;          /* advice where no smaller value of those helps */
    const an_key_alias *aliases;    /* the last row is {NULL, NULL} */
    const char *defaults;           /* "key=value ...", after the common defaults; NULL: none */
    const an_preset *presets;
    size_t n_presets;
    const char *py_settings; /* where a .py file of settings (nanoGPT's) begins; NULL: it is not of this model */

    /* Of a model that a file describes (NULL: others). A file of this ending in place of a preset is the setting `file`. */
    const char *file_ending;
    /* Reads the description, of `from`, a checkpoint that has one as AN_CKPT_TASK, or else of the file. */
    an_status (*settle)(an_err *err, const an_st *from, void *settings);
    an_status (*description)(an_err *err, const void *settings, an_text *out); /* as JSON, for checkpoints */
    an_label_use (*label_use)(const void *settings);

    /* AN_E_USAGE with a sentence where the numbers make no model, or no batch of so many samples. */
    an_status (*check)(an_err *err, const void *settings, int64_t batch);
    /* Takes the shape of other weights' settings; `name` is what init_from= says, for sentences. NULL: takes weight_keys. */
    an_status (*adopt)(an_err *err, const void *from, const char *name, void *settings);
    void (*miniature)(void *settings); /* the same model small enough for the CPU's slow exact mode */

    /* ---- graphs */
    void *(*open)(an_ctx *cx, const void *settings); /* creates parameters and states. NULL: no memory */
    /* Behind `open` and the choice of parameters by freeze= and decay=, which a value would come before: writes what a
     * file has. NULL: all values are drawn. */
    void (*fill)(void *model);
    void (*close)(void *model); /* NULL is fine */
    /* The arrays of a micro-batch of so many samples; returns how many there are. */
    int (*inputs)(const void *settings, int64_t samples, an_array out[AN_MAX_ARRAYS]);
    const an_sum *(*sums)(const void *settings); /* the loss first; up to a row without a name, AN_MODEL_SUMS at most */
    /* The sum by which an evaluation divides numbers that have no `per`: of the samples that have a label, where some
     * have none. NULL, or a sum of 0: by the number of the task's units. */
    const char *evaluated;
    /* training false: no dropout, and batch norm with its stored running statistics. */
    an_losses (*losses)(void *model, an_tensor *const *in, bool training);
    /* For models with states of their own between batches; NULL: there are none. `place` is called before `losses`;
     * `update` behind each micro-batch's an_backward, and behind the optimizer of the last, for what is no parameter:
     * false where there is nothing of the kind. `only_if`, a bool scalar of the last one, says whether the update is
     * applied. Evaluation runs `calls` graphs on each batch and counts the sums of the last. States named "evaluation.*"
     * are temporary: checkpoints leave them out. */
    void (*place)(void *model, const an_place *p);
    bool (*update)(void *model, an_tensor *only_if);
    int64_t (*calls)(const void *settings);
    /* Of a state of the model, by its name: the micro-batch that it belongs to, whose rank alone has its value, or
     * AN_STATE_OF_ALL: its graph gives it the same value on every rank (an_batch_norm, an_all_gather). NULL: states are
     * not made for several ranks, which are then refused. */
    int64_t (*state_micro)(const char *state);
    /* Of in[0] alone, f32 [samples,...]: probabilities or values. NULL: the model has a decoder. */
    an_tensor *(*predict)(void *model, an_tensor *in);
    bool (*predicts_classes)(const void *settings); /* predictions are probabilities of classes; NULL: never */
    const an_decoder *decoder;                      /* NULL: none */

    /* ---- numbers, words, files */
    void (*count)(const void *settings, int64_t samples, an_model_counts *out);
    /* Continues "model   0.80M parameters (" with the count of all of them, in words, and the sizes. */
    void (*describe)(const void *settings, const char *parameters, an_text *out);
    const an_weight_formats *weights; /* NULL: our own checkpoints only */
    /* The names of the last layer's parameters begin so: weights to start from may lack them or have them for other
     * classes, and they begin anew then; NULL: never. */
    const char *head;
    const char *cut_parameter; /* of which a file may have more rows than the model wants; NULL: none */
    /* Models of boards: `in` are the arrays given to `losses`; `place` selects the call of the evaluation. The tokens
     * that are most probable now, i32 [samples,cells], and the logit of their being right, f32 [samples] (NULL: not
     * known). NULL: no such model. */
    void (*answer)(void *model, an_tensor *const *in, an_tensor **out, an_tensor **right);
} an_model;

/* The first row is the model of files that name none. */
extern const an_model *const an_models[];
extern const size_t an_n_models;

const an_model *an_model_find(const char *name);               /* NULL: there is none */
size_t an_model_sums(const an_model *m, const void *settings); /* how many sums it has */
bool an_key_in(const char *const *list, const char *key);

/* Any file of weights, as a checkpoint of ours; `out_model` is the row that its settings name. */
an_status an_model_open_weights(an_err *err, const char *path, const an_model **out_model, an_st **out);
/* Writes the parameters of such a file, or their averages where it has them, for other programs; "" is the model's first
 * layout, or plain names and shapes. */
an_status an_model_export(an_err *err, const an_st *st, const an_model *m, const char *layout, const char *path);

#endif
