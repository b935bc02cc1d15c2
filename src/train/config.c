/* config.c: the table of settings that all runs have, its union with those of a model and a task, and checks. See
 * config.h. */
#include "train/config.h"
#include "io/config/config_py.h"
#include "comm/comm.h"
#include "platform/platform.h"
#include "train/optimizer.h"
#include "train/step.h"
#include "train/task.h"
#include "io/formats/json.h"
#include <stdio.h>
#include <stdlib.h>
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

/* ---- the common keys, in the parts between which the task's and the model's are written */

/* clang-format off */
static const an_config_field choice_fields[] = {
    {"model", AN_CONFIG_TEXT, AT(model_name), "", 0, 0, NULL, "of a settings file: the model it is for"},
    {"task", AN_CONFIG_TEXT, AT(task_name), "", 0, 0, NULL, "of a settings file: what the model is trained for"},
};
/* clang-format on */

static const an_config_field place_fields[] = {
    TEXT(out, "out", NULL, "folder of the run: metrics, logbook, curve and checkpoints"),
    ALIAS(out_dir, out, "out", "nanoGPT's name for out"),
    TEXT(data, "corpus", NULL,
         "a text file, a folder with train.bin and val.bin, a .bin file, or corpus, the built-in text"),
    ALIAS(dataset, data, "corpus", "nanoGPT's name for data: NAME is data/NAME where that is a folder"),
};

static const an_config_field begin_fields[] = {
    TEXT(init_from, "scratch", NULL,
         "scratch; resume, the run in out; a run, checkpoint or weights file; gpt2, gpt2-medium, -large, -xl"),
    TEXT(note, "", NULL, "a free text for the logbook"),
};

static const an_config_field loader_fields[] = {
    INT(workers, "1", 0, 64, "threads that prepare batches; 0: none"),
    INT(seed, "1337", 0, 9e15, "of initialisation, batches and dropout"),
};

static const an_config_field train_fields[] = {
    INT(batch_size, "12", 1, 1 << 20, "sequences in a micro-batch"),
    INT(gradient_accumulation_steps, "1", 1, 1 << 20, "micro-batches in an update"),
    {"divide_batch", AN_CONFIG_GIB, AT(divide_batch), "0", 0, 1e6, NULL,
     "a new run that needs more than so many GiB gets a batch_size so many times smaller, and "
     "gradient_accumulation_steps so many times larger, that it does not; 0: never"},
    INT(max_iters, "600000", 1, AN_STEP_MOST,
        "updates, numbered from 0; nanoGPT makes one more, update max_iters, whose result it does not save"),
    INT(epochs, "0", 0, 1LL << 40, "passes over the training data: sets max_iters and lr_decay_iters; 0: these say it"),
    REAL(learning_rate, "6e-4", 0, 100, "peak learning rate"),
    BOOL(decay_lr, "true", "warm up, then decay along a cosine; false: constant"),
    INT(warmup_iters, "2000", 0, 1LL << 40, "updates of linear warm-up"),
    INT(lr_decay_iters, "600000", 0, 1LL << 40, "update at which the learning rate has reached min_lr"),
    REAL(min_lr, "6e-5", 0, 100, "learning rate at the end"),
    TEXT(optimizer, "adamw", "adamw|adam|adam_atan2|sgd", "what turns gradients into an update"),
    REAL(weight_decay, "0.1", 0, 100,
         "of adamw and adam_atan2: each update shrinks by learning rate times this; of adam and sgd: this times the "
         "parameter is added to the gradient"),
    TEXT(decay, "matrices", NULL,
         "what weight_decay is for: matrices (vectors have none), all, or names: wte.*,h.*.weight (* is any text)"),
    TEXT(freeze, "", NULL,
         "names of parameters that are not trained: wte.*,h.0.* (* is any text; alone, a puzzle table is all that is "
         "trained)"),
    REAL(beta1, "0.9", 0, 0.999999, "of adamw, adam, adam_atan2: decay of the mean of gradients"),
    REAL(beta2, "0.95", 0, 0.999999999, "of adamw, adam, adam_atan2: decay of the mean of their squares"),
    REAL(momentum, "0", 0, 0.999999, "of sgd: decay of the sum of gradients that is followed; 0: the gradient"),
    REAL(dampening, "0", 0, 1, "of sgd with momentum: a gradient counts by 1 minus this"),
    BOOL(nesterov, "false", "of sgd with momentum: Nesterov's"),
    BOOL(ema, "false", "keep averages of the parameters, which evaluation, export, sample and predict use"),
    REAL(ema_rate, "0.999", 0, 0.999999999, "of these: how much of the average an update keeps"),
    REAL(grad_clip, "1.0", 0, 1e9, "largest global norm of the gradients; 0: any"),

    INT(eval_interval, "2000", 1, 1LL << 40,
        "updates between evaluations on the validation split (and after the last)"),
    INT(min_eval_interval, "0", 0, 1LL << 40, "intervals at the beginning of a run that end without an evaluation"),
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
     "float32, bfloat16 or float16 (with a loss scale), of matrix products; weights stay as weights_dtype= says"},
    {"weights_dtype", AN_CONFIG_DTYPE, AT(weights_dtype), "float32", 0, 0, NULL,
     "bfloat16 keeps matrices (not norms and biases) and their gradients in half the memory, rounded at random; other "
     "losses"},
    {"moments_dtype", AN_CONFIG_DTYPE, AT(moments_dtype), "float32", 0, 0, NULL,
     "of adamw, adam and adam_atan2: bfloat16 keeps moments in half the memory, rounded at random; other losses"},
    {"budget", AN_CONFIG_GIB, AT(budget), "0", 0, 1e6, NULL,
     "GiB that the run may take, or 16GiB, 512MiB; data and loader included; 0: what the machine has"},
    REAL(high_watermark, "-1", -1, 100,
         "part of the device's memory above which a step is refused; 0: no limit; "
         "-1: PYTORCH_MPS_HIGH_WATERMARK_RATIO, or 0.95"),
    REAL(low_watermark, "-1", -1, 100,
         "part of the device's memory above which idle memory is freed; 0: never; "
         "-1: PYTORCH_MPS_LOW_WATERMARK_RATIO, or 0.8"),
    TEXT(recompute, "auto", "auto|on|off", "compute cheap activations again instead of keeping them"),
    BOOL(compile, "true", "false: one kernel an operation; same bits, slower"),
    TEXT(isa, "", NULL, "CPU instruction set by name; empty: the best here"),
    TEXT(cc, "", NULL, "C compiler for fused kernels; empty: $CC, cc, clang, gcc; none: interpret"),
    TEXT(cache_dir, "", NULL, "compiled kernels; empty: $ANNEAL_CACHE, or the user's cache folder"),
    BOOL(exact, "false", "float32 training with the same bits on every device; slower"),
    TEXT(shard, "none", "none|moments|gradients|weights",
         "of several ranks: each keeps its part of the optimizer's moments, also of the gradients of earlier "
         "micro-batches, also of the weights, which are gathered ahead of use (ZeRO 1, 2, 3); same losses"),
    {"exchange_dtype", AN_CONFIG_DTYPE, AT(exchange_dtype), "float32", 0, 0, NULL,
     "of several ranks: bfloat16 rounds gradients before they are added, half the bytes on a slow link; other losses"},
    BOOL(overlap, "true", "of several GPUs: gradients are exchanged while the backward pass still runs; same bits"),
    TEXT(fallback, "auto", "auto|none|cpu",
         "Metal: what the GPU cannot run is an error, or the CPU's (cpu); auto: as PYTORCH_ENABLE_MPS_FALLBACK=1 says"),
    TEXT(place, "", NULL,
         "Metal: GLOB:cpu, launches that the CPU runs deliberately, by scope (optimizer:cpu, gpt.h.0.*:cpu; several "
         "with commas)"),
    BOOL(tf32, "false", "CUDA: float32 products on tensor cores, operands rounded to 11 bits"),
    BOOL(place_apart, "false", "every value in memory of its own (for sanitizers); same bits"),
    BOOL(verify, "false", "check each kernel that is made"),
    TEXT(dump, "", NULL, "passes whose text goes to dump_dir: all, or fuse,lower,..."),
    TEXT(dump_dir, "", NULL, "folder for dumps"),

    BOOL(wandb_log, "false", "nanoGPT's; nothing is sent anywhere: metrics.jsonl has the numbers"),
    TEXT(wandb_project, "owt", NULL, "nanoGPT's; kept in the logbook"),
    TEXT(wandb_run_name, "gpt2", NULL, "nanoGPT's; kept in the logbook"),
    TEXT(backend, "nccl", NULL, "nanoGPT's; read and ignored: ranks= and devices= start several processes"),
};

/* ---- the table of a model and its task */

#define TABLE(table)                                                                                                   \
    {                                                                                                                  \
        .fields = table, .n = AN_COUNT(table)                                                                          \
    }
static const an_config choice_keys = TABLE(choice_fields), place_keys = TABLE(place_fields),
                       begin_keys = TABLE(begin_fields), loader_keys = TABLE(loader_fields),
                       train_keys = TABLE(train_fields);

/* Appends fields [from, until) of a table whose struct is at `base` in an_train_config. */
static void add_fields(an_train_config *c, const an_config *keys, size_t from, size_t until, size_t base)
{
    for (size_t i = from; i < until && c->n_fields < AN_TRAIN_MAX_KEYS; i++) {
        c->field[c->n_fields] = keys->fields[i];
        c->field[c->n_fields++].offset += base;
    }
}

static void make_table(an_train_config *c)
{
    const size_t model = offsetof(an_train_config, model_settings), task = offsetof(an_train_config, task_settings);
    const an_config *m = c->model->keys, *t = c->task->keys;
    c->n_fields = 0;
    add_fields(c, &choice_keys, 0, choice_keys.n, 0);
    add_fields(c, &place_keys, 0, place_keys.n, 0);
    add_fields(c, t, 0, t->n, task);
    add_fields(c, &begin_keys, 0, begin_keys.n, 0);
    add_fields(c, m, 0, c->model->n_data_keys, model);
    add_fields(c, &loader_keys, 0, loader_keys.n, 0);
    add_fields(c, m, c->model->n_data_keys, m->n, model);
    add_fields(c, &train_keys, 0, train_keys.n, 0);
}

an_config an_train_keys(const an_train_config *c)
{
    return (an_config){.fields = c->field, .n = c->n_fields};
}

an_config an_train_file_keys(const an_train_config *c)
{
    const bool first = c->model == an_models[0] && c->task == an_task_find(an_models[0]->task);
    const size_t skip = first ? choice_keys.n : 0;
    return (an_config){.fields = c->field + skip, .n = c->n_fields - skip};
}

static const an_config *const common_keys[] = {&choice_keys, &place_keys, &begin_keys, &loader_keys, &train_keys};

void an_train_each_table(an_table_fn *take, void *arg)
{
    an_train_config *c = malloc(sizeof *c);
    if (c && an_train_config_defaults(NULL, an_models[0], NULL, c) == AN_OK) {
        const an_config keys = an_train_file_keys(c);
        take(arg, "", &keys);
    }
    free(c);
    for (size_t i = 1; i < an_n_models; i++) take(arg, an_models[i]->name, an_models[i]->keys);
    for (size_t i = 1; i < an_n_tasks; i++)
        if (an_tasks[i]->keys->n) take(arg, an_tasks[i]->name, an_tasks[i]->keys);
}

const an_config_field *an_train_key_find(const char *key)
{
    const an_config_field *f = NULL;
    for (size_t i = 0; i < AN_COUNT(common_keys) && !f; i++) f = an_config_find(common_keys[i], key);
    for (size_t i = 0; i < an_n_models && !f; i++) f = an_config_find(an_models[i]->keys, key);
    for (size_t i = 0; i < an_n_tasks && !f; i++) f = an_config_find(an_tasks[i]->keys, key);
    return f;
}

/* ---- settings of an evaluation */

static const char eval_prefix[] = "eval_";

void an_train_each_eval_table(an_table_fn *take, void *arg)
{
    for (size_t i = 0; i < an_n_models; i++) {
        an_config_field shorter[16];
        an_config keys = {.fields = shorter};
        for (size_t k = 0; k < an_models[i]->keys->n && keys.n < AN_COUNT(shorter); k++) {
            const an_config_field *f = &an_models[i]->keys->fields[k];
            if (strncmp(f->name, eval_prefix, sizeof eval_prefix - 1) != 0) continue;
            shorter[keys.n] = *f;
            shorter[keys.n++].name += sizeof eval_prefix - 1;
        }
        if (keys.n) take(arg, an_models[i]->name, &keys);
    }
}

static const an_config_field *eval_key(const an_config *keys, const char *key)
{
    char full[96];
    const int n = snprintf(full, sizeof full, "%s%s", eval_prefix, key);
    return n < (int)sizeof full ? an_config_find(keys, full) : NULL;
}

const an_config_field *an_train_eval_key_find(const char *key)
{
    const an_config_field *f = NULL;
    for (size_t i = 0; i < an_n_models && !f; i++) f = eval_key(an_models[i]->keys, key);
    return f;
}

an_status an_train_eval_set(an_err *err, an_train_config *c, const char *key, const char *value)
{
    const an_config keys = an_train_keys(c);
    const an_config_field *f = eval_key(c->model->keys, key);
    if (f) return an_config_set(err, &keys, c, "", f->name, value);
    return an_fail(err, AN_E_USAGE, "%s=%.64s: a model of kind %s has no such setting", key, value, c->model->name);
}

int64_t *an_train_number(an_train_config *c, const char *key)
{
    const an_config_field *f = an_config_find(c->model->keys, key);
    return f && f->type == AN_CONFIG_INT ? (int64_t *)(void *)(c->model_settings.bytes + f->offset) : NULL;
}

int64_t an_train_micros(const an_train_config *c)
{
    return c->gradient_accumulation_steps / an_comm_ranks(c->comm);
}

/* ---- presets */

const an_preset *an_preset_at(size_t i, const an_model **model)
{
    for (size_t k = 0; k < an_n_models; k++) {
        *model = an_models[k];
        if (i < an_models[k]->n_presets) return &an_models[k]->presets[i];
        i -= an_models[k]->n_presets;
    }
    return NULL;
}

const an_preset *an_preset_find(const char *name, const an_model **model)
{
    const an_preset *p;
    for (size_t i = 0; (p = an_preset_at(i, model)) != NULL; i++)
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

static an_status apply(an_err *err, const char *settings, an_train_config *c)
{
    const an_config keys = an_train_keys(c);
    char word[AN_CONFIG_TEXT_BYTES];
    int used;
    for (const char *at = settings; at && sscanf(at, "%511s%n", word, &used) == 1; at += used)
        AN_TRY(an_config_argument(err, &keys, c, word));
    return AN_OK;
}

static an_status unknown_preset(an_err *err, const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST];
    const an_model *model;
    const an_preset *p;
    char list[1024];
    size_t used = 0, n = 0;
    while (n < MOST && used < sizeof list && (p = an_preset_at(n, &model)) != NULL) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", n ? ", " : "", p->name);
        names[n++] = p->name;
    }
    const char *near = an_nearest(name, names, n);
    if (near) return an_fail(err, AN_E_USAGE, "unknown preset %.64s; did you mean %s?", name, near);
    return an_fail(err, AN_E_USAGE, "unknown preset %.64s; there are %s, or a file NAME.yaml or NAME.py", name, list);
}

static bool ends_in(const char *name, const char *ending)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ending) == 0;
}

/* The settings that name programs to run or places to write. A file that may come from a stranger does not decide
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
    for (size_t i = 0; i < c->n_fields; i++) {
        const an_config_field *f = &c->field[i];
        if (is_trusted(f) && ((const char *)c)[f->offset] != 0)
            return an_fail(
                err, AN_E_USAGE,
                "%s: %s names a program to run or a place to write, which a settings file may not: say it on "
                "the command line",
                file, f->name);
    }
    return AN_OK;
}

an_status an_train_config_defaults(an_err *err, const an_model *model, const an_task *task, an_train_config *out)
{
    memset(out, 0, sizeof *out);
    out->model = model;
    out->task = task ? task : an_task_find(model->task);
    if (!out->task || model->settings_bytes > AN_MODEL_SETTINGS_BYTES ||
        out->task->settings_bytes > AN_TASK_SETTINGS_BYTES ||
        model->keys->n + out->task->keys->n + choice_keys.n + place_keys.n + begin_keys.n + loader_keys.n +
                train_keys.n >
            AN_TRAIN_MAX_KEYS)
        return an_fail(err, AN_E_INTERNAL, "the row of model %s does not fit the tables of train/config.h",
                       model->name);
    make_table(out);
    const an_config keys = an_train_keys(out);
    AN_TRY(an_config_defaults(err, &keys, out));
    snprintf(out->model_name, sizeof out->model_name, "%s", model->name);
    snprintf(out->task_name, sizeof out->task_name, "%s", out->task->name);
    return apply(err, model->defaults, out);
}

/* ---- files */

/* The model and task that a file names. They are read first, because the table of all other keys depends on them. */
typedef struct choice {
    an_train_text model, task;
} choice;
static const an_config_field chosen_fields[] = {
    {"model", AN_CONFIG_TEXT, offsetof(choice, model), "", 0, 0, NULL, "of a settings file: the model it is for"},
    {"task", AN_CONFIG_TEXT, offsetof(choice, task), "", 0, 0, NULL, "what the model is trained for"},
};
static const an_config chosen_keys = {.fields = chosen_fields, .n = AN_COUNT(chosen_fields), .partial = true};

static an_status defaults_of(an_err *err, const char *where, const choice *given, an_train_config *out)
{
    const an_model *model = *given->model ? an_model_find(given->model) : an_models[0];
    const an_task *task = *given->task ? an_task_find(given->task) : NULL;
    const char *names[32];
    char quoted[AN_QUOTED_BYTES];
    size_t n = 0;
    if (model && (task || !*given->task)) return an_train_config_defaults(err, model, task, out);
    for (size_t i = 0; !model && i < an_n_models && n < 32; i++) names[n++] = an_models[i]->name;
    for (size_t i = 0; model && i < an_n_tasks && n < 32; i++) names[n++] = an_tasks[i]->name;
    const char *near = an_nearest(model ? given->task : given->model, names, n);
    return an_fail(err, AN_E_USAGE, "%s: %s=%s: there is no such %s%s%s%s", where, model ? "task" : "model",
                   an_quoted(model ? given->task : given->model, quoted), model ? "task" : "model",
                   near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

an_status an_train_config_json(an_err *err, const char *where, const char *json, an_train_config *out)
{
    choice given = {{0}, {0}};
    AN_TRY(an_config_from_json(err, &chosen_keys, &given, where, json, strlen(json)));
    AN_TRY(defaults_of(err, where, &given, out));
    const an_config keys = an_train_keys(out);
    return an_config_from_json(err, &keys, out, where, json, strlen(json));
}

static an_status open_yaml(an_err *err, const char *path, an_train_config *out)
{
    choice given = {{0}, {0}};
    AN_TRY(an_config_yaml(err, &chosen_keys, &given, path));
    AN_TRY(defaults_of(err, path, &given, out));
    snprintf(out->preset, sizeof out->preset, "%s", path);
    const an_config keys = an_train_keys(out);
    AN_TRY(an_config_yaml(err, &keys, out, path));
    return refuse_programs(err, path, out);
}

static an_status open_python(an_err *err, const char *path, an_train_config *out)
{
    size_t i = 0;
    while (i + 1 < an_n_models && !an_models[i]->py_settings) i++;
    AN_TRY(an_train_config_defaults(err, an_models[i], NULL, out));
    snprintf(out->preset, sizeof out->preset, "%s", path);
    AN_TRY(apply(err, an_models[i]->py_settings, out));
    const an_config keys = an_train_keys(out);
    AN_TRY(an_config_py(err, &keys, out, path));
    return refuse_programs(err, path, out);
}

/* The model that files of this ending describe; NULL: none. */
static const an_model *model_of_file(const char *path)
{
    for (size_t i = 0; i < an_n_models; i++)
        if (an_models[i]->file_ending && ends_in(path, an_models[i]->file_ending)) return an_models[i];
    return NULL;
}

static an_status open_model_file(an_err *err, const an_model *model, const char *path, an_train_config *out)
{
    AN_TRY(an_train_config_defaults(err, model, NULL, out));
    snprintf(out->preset, sizeof out->preset, "%s", path);
    const an_config keys = an_train_keys(out);
    return an_config_set(err, &keys, out, "", "file", path);
}

an_status an_train_config_open(an_err *err, const char *preset_or_file, an_train_config *out)
{
    const an_model *model;
    if (ends_in(preset_or_file, ".yaml") || ends_in(preset_or_file, ".yml")) return open_yaml(err, preset_or_file, out);
    if (ends_in(preset_or_file, ".py")) return open_python(err, preset_or_file, out);
    if ((model = model_of_file(preset_or_file)) != NULL) return open_model_file(err, model, preset_or_file, out);
    const an_preset *p = an_preset_find(preset_or_file, &model);
    if (!p) return unknown_preset(err, preset_or_file);
    AN_TRY(an_train_config_defaults(err, model, p->task ? an_task_find(p->task) : NULL, out));
    snprintf(out->preset, sizeof out->preset, "%s", preset_or_file);
    return apply(err, p->settings, out);
}

/* ---- checks and files of settings */

static an_status check_weights(an_err *err, const an_train_config *c)
{
    if (c->weights_dtype == AN_F32) return AN_OK;
    if (c->weights_dtype != AN_BF16)
        return an_fail(err, AN_E_USAGE, "weights_dtype=%s: weights are kept in float32 or bfloat16",
                       an_dtype_text(c->weights_dtype));
    if (c->ema)
        return an_fail(
            err, AN_E_USAGE,
            "weights_dtype=bfloat16 and ema=true: bfloat16's steps are too coarse for an average; leave one out");
    if (c->dtype == AN_F16)
        return an_fail(err, AN_E_USAGE,
                       "weights_dtype=bfloat16 and dtype=float16: take dtype=bfloat16, or keep weights in float32");
    return AN_OK;
}

an_status an_train_config_check(an_err *err, const an_train_config *c)
{
    if (strcmp(c->model_name, c->model->name) != 0 || strcmp(c->task_name, c->task->name) != 0)
        return an_fail(err, AN_E_USAGE,
                       "model=%.64s task=%.64s: %.64s is for model %s and task %s; take another preset", c->model_name,
                       c->task_name, c->preset, c->model->name, c->task->name);
    AN_TRY(c->model->check(err, an_model_settings(c), c->batch_size));
    if (c->dtype != AN_F32 && c->dtype != AN_BF16 && c->dtype != AN_F16)
        return an_fail(err, AN_E_USAGE, "dtype=%s: training runs in float32, bfloat16 or float16",
                       an_dtype_text(c->dtype));
    AN_TRY(check_weights(err, c));
    if (c->moments_dtype != AN_F32 && c->moments_dtype != AN_BF16)
        return an_fail(err, AN_E_USAGE, "moments_dtype=%s: moments are kept in float32 or bfloat16",
                       an_dtype_text(c->moments_dtype));
    if (c->exchange_dtype != AN_F32 && c->exchange_dtype != AN_BF16)
        return an_fail(err, AN_E_USAGE, "exchange_dtype=%s: ranks exchange gradients in float32 or bfloat16",
                       an_dtype_text(c->exchange_dtype));
    if (c->exact && c->exchange_dtype != AN_F32)
        return an_fail(err, AN_E_USAGE,
                       "exact=true adds gradients in float32, so that any number of ranks has the same bits: leave "
                       "exchange_dtype=%s out",
                       an_dtype_text(c->exchange_dtype));
    if (c->exact && (c->dtype != AN_F32 || c->tf32))
        return an_fail(err, AN_E_USAGE, "exact=true is training in float32: %s%s is something else; leave one out",
                       c->tf32 ? "tf32=true" : "dtype=", c->tf32 ? "" : an_dtype_text(c->dtype));
    AN_TRY(an_optimizer_check(err, c));
    if (!c->out[0]) return an_fail(err, AN_E_USAGE, "out= is empty: name a folder for the run");
    return AN_OK;
}

void an_train_config_yaml(const an_train_config *c, an_text *out)
{
    an_text_puts(out, "# The settings of this run: anneal train config.yaml begins it anew.\n");
    const an_config keys = an_train_file_keys(c);
    for (size_t i = 0; i < keys.n; i++) {
        const an_config_field *f = &keys.fields[i];
        an_text value = {0};
        if (i > 0 && f->offset == f[-1].offset) continue; /* an alias of the setting before it */
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

bool an_train_key_is_fixed(const an_train_config *c, const char *key)
{
    /* optimizer, momentum and freeze decide which moments there are, and so which tensors a checkpoint must have */
    static const char *const fixed[] = {"model", "task", "seed", "init_from", "optimizer", "momentum", "freeze", NULL};
    const bool models = an_config_find(c->model->keys, key) != NULL;
    return an_key_in(fixed, key) || an_config_find(c->task->keys, key) != NULL ||
           (models && !an_key_in(c->model->changeable, key));
}

void an_train_config_fix(an_train_config *c, const an_train_config *from)
{
    static const size_t bytes[] = {[AN_CONFIG_INT] = sizeof(int64_t),       [AN_CONFIG_FLOAT] = sizeof(double),
                                   [AN_CONFIG_GIB] = sizeof(double),        [AN_CONFIG_BOOL] = sizeof(bool),
                                   [AN_CONFIG_TEXT] = AN_CONFIG_TEXT_BYTES, [AN_CONFIG_DTYPE] = sizeof(an_dtype)};
    const bool same = c->model == from->model && c->task == from->task;
    if (!same) { /* `from` is of another model, whose keys are not in this table */
        c->model = from->model;
        c->task = from->task;
        c->model_settings = from->model_settings;
        c->task_settings = from->task_settings;
        memcpy(c->field, from->field, sizeof c->field);
        c->n_fields = from->n_fields;
    }
    for (size_t i = 0; i < c->n_fields; i++) {
        const an_config_field *f = &c->field[i];
        if (an_train_key_is_fixed(c, f->name))
            memcpy((char *)c + f->offset, (const char *)from + f->offset, bytes[f->type]);
    }
}
