/* trm_export.c: see trm_export.h. */
#include "models/trm/trm_export.h"
#include "io/checkpoint.h"
#include "io/config/config.h"
#include "io/formats/json.h"
#include "io/formats/torch_file.h"
#include "io/formats/torch_write.h"
#include "models/trm/trm_model.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool an_trm_is_weight(const char *name)
{
    static const char *const others[] = {"optimizer.", AN_CKPT_EMA, "carry."};
    for (size_t i = 0; i < AN_COUNT(others); i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0) return false;
    return true;
}

/* ---- tensors */

typedef struct dict {
    an_st_tensor *t;
    size_t n;
    const char *prefix;
    an_arena arena;
} dict;

static an_status add(an_err *err, dict *d, const an_st_tensor *t, const char *name)
{
    an_st_tensor *out = &d->t[d->n++];
    *out = *t;
    out->name = an_arena_printf(&d->arena, "%s%s", d->prefix, name);
    return out->name ? AN_OK : an_fail_nomem(err, name, strlen(name));
}

/* A Q head as its module begins: weights [2,D] of 0, biases of -5. Causal models do not train it. */
static an_status add_q_head(an_err *err, dict *d, int64_t width)
{
    float *weight = AN_NEW_ARRAY(&d->arena, float, 2 * width), *bias = AN_NEW_ARRAY(&d->arena, float, 2);
    if (!weight || !bias) return an_fail_nomem(err, "q_head", (size_t)width * 8);
    bias[0] = bias[1] = -5;
    const an_st_tensor w = {.dtype = AN_F32,
                            .rank = 2,
                            .shape = {2, width},
                            .data = weight,
                            .bytes = (size_t)width * 8},
                       b = {.dtype = AN_F32, .rank = 1, .shape = {2}, .data = bias, .bytes = 8};
    AN_TRY(add(err, d, &w, "q_head.weight"));
    return add(err, d, &b, "q_head.bias");
}

static an_status collect(an_err *err, const an_st *st, dict *d)
{
    const an_st_tensor *embed = an_st_find(st, "embed_tokens.embedding_weight");
    d->t = AN_NEW_ARRAY(&d->arena, an_st_tensor, an_st_count(st) + 3);
    if (!d->t) return an_fail_nomem(err, "weights", an_st_count(st) * sizeof *d->t);
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_by_name(st, i);
        if (an_trm_is_weight(t->name)) AN_TRY(add(err, d, t, t->name));
    }
    if (!embed || embed->rank != 2)
        return an_fail(err, AN_E_IO, "%s: it has no tensor embed_tokens.embedding_weight", an_st_path(st));
    if (!an_st_find(st, "lm_head.weight")) AN_TRY(add(err, d, embed, "lm_head.weight"));
    return an_st_find(st, "q_head.weight") ? AN_OK : add_q_head(err, d, embed->shape[1]);
}

/* ---- all_config.yaml */

/* YAML 1.1 takes 1e-05 for text: a number has a point in front of its exponent. */
static void put_real(an_text *out, double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", x);
    const char *e = strchr(text, 'e');
    if (e && !strchr(text, '.'))
        an_text_printf(out, "%.*s.0%s", (int)(e - text), text, e);
    else
        an_text_puts(out, text);
}

static void put_value(an_text *out, const char *name, const json_t *v)
{
    an_text_printf(out, "%s: ", name);
    if (json_is_string(v))
        an_json_put(out, json_string_value(v));
    else if (json_is_boolean(v))
        an_text_puts(out, json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        an_text_printf(out, "%" PRId64, (int64_t)json_integer_value(v));
    else
        put_real(out, json_number_value(v));
    an_text_puts(out, "\n");
}

/* The group `arch`: its class, the loss, then every setting of ours that begins with arch. */
static void put_arch(an_text *out, const json_t *settings)
{
    static const char arch[] = "arch.", loss[] = "arch.loss.";
    const an_config *keys = an_trm_model.keys;
    const json_t *dtype = json_object_get(settings, "dtype"), *width = json_object_get(settings, "arch.hidden_size");
    an_text_puts(out, "arch:\n  name: \"recursive_reasoning.trm@TinyRecursiveReasoningModel_ACTV1\"\n"
                      "  loss:\n    name: \"losses@ACTLossHead\"\n");
    for (size_t i = 0; i < keys->n; i++) {
        const char *key = keys->fields[i].name;
        const json_t *v = json_object_get(settings, key);
        if (v && strncmp(key, loss, strlen(loss)) == 0)
            an_text_puts(out, "    "), put_value(out, key + strlen(loss), v);
    }
    an_text_puts(out, "  H_layers: 0\n");
    if (dtype) an_text_puts(out, "  "), put_value(out, "forward_dtype", dtype);
    for (size_t i = 0; i < keys->n; i++) {
        const char *key = keys->fields[i].name, *name = key + strlen(arch);
        const json_t *v = json_object_get(settings, key);
        if (!v || strncmp(key, arch, strlen(arch)) != 0 || strncmp(key, loss, strlen(loss)) == 0) continue;
        if (strcmp(name, "puzzle_emb_ndim") == 0 && json_integer_value(v) < 0) v = width;
        an_text_puts(out, "  ");
        put_value(out, name, v);
    }
}

/* The folders of a list (an_list). */
static void put_folders(an_text *out, const char *key, const char *data)
{
    an_text name = {0};
    an_list list = an_list_begin(data);
    bool any = false;
    for (; an_list_next(&list, &name); any = true) {
        an_text_printf(out, any ? "- " : "%s:\n- ", key);
        an_json_put(out, name.data);
        an_text_puts(out, "\n");
    }
    if (!any) an_text_printf(out, "%s: []\n", key);
    out->failed |= name.failed;
    an_text_free(&name);
}

static int64_t whole(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The length of a run, which is counted in epochs there: where updates ended it, as many epochs as have them. An interval between
 * evaluations that does not divide it is none to that program. */
static void put_length(an_text *out, const json_t *settings, const json_t *state, int64_t batch)
{
    const int64_t samples = whole(state, AN_EPOCH_KEY), interval = whole(settings, "eval_epochs");
    int64_t epochs = whole(settings, "epochs");
    const double updates = (double)whole(settings, "max_iters") * (double)batch;
    if (epochs == 0 && samples > 0 && updates > 0) {
        epochs = (int64_t)ceil(fmin(updates / (double)samples, 1e15));
        if (interval > 0 && interval <= epochs) epochs = an_ceil_div(epochs, interval) * interval;
    }
    if (epochs > 0) an_text_printf(out, "epochs: %" PRId64 "\n", epochs);
    if (interval > 0 && epochs % interval == 0)
        an_text_printf(out, "eval_interval: %" PRId64 "\n", interval);
    else
        an_text_puts(out, "eval_interval: null\n");
}

/* checkpoints/PROJECT/RUN, or what a run's folder is called otherwise. */
static void put_folder_names(an_text *out, const char *folder)
{
    char path[AN_CONFIG_TEXT_BYTES];
    snprintf(path, sizeof path, "%s", folder);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
    char *slash = strrchr(path, '/');
    an_text_puts(out, "run_name: ");
    an_json_put(out, slash ? slash + 1 : path);
    if (slash) *slash = 0;
    char *project = slash ? strrchr(path, '/') : NULL;
    project = project ? project + 1 : path;
    an_text_puts(out, "\nproject_name: ");
    if (slash && *project && strcmp(project, ".") != 0 && strcmp(project, "..") != 0)
        an_json_put(out, project);
    else
        an_text_puts(out, "null");
    an_text_puts(out, "\n");
}

static void put_rest(an_text *out, const json_t *settings, const json_t *state)
{
    static const char *const names[][2] = {{"learning_rate", "lr"},
                                           {"beta1", "beta1"},
                                           {"beta2", "beta2"},
                                           {"weight_decay", "weight_decay"},
                                           {"puzzle_emb_lr", "puzzle_emb_lr"},
                                           {"puzzle_emb_weight_decay", "puzzle_emb_weight_decay"},
                                           {"min_eval_interval", "min_eval_interval"},
                                           {"always_save_checkpoint", "checkpoint_every_eval"},
                                           {"seed", "seed"},
                                           {"ema", "ema"},
                                           {"ema_rate", "ema_rate"}};
    const json_t *warmup = json_object_get(settings, "warmup_iters");
    const double lr = json_number_value(json_object_get(settings, "learning_rate")),
                 clip = json_number_value(json_object_get(settings, "grad_clip"));
    const int64_t batch = whole(settings, "batch_size") * AN_MAX(whole(settings, "gradient_accumulation_steps"), 1);
    put_folder_names(out, text_of(settings, "out"));
    an_text_printf(out, "dataset_type: \"%s\"\n",
                   json_is_true(json_object_get(settings, "arch.causal")) ? "chat" : "puzzle");
    put_folders(out, "data_paths", text_of(settings, "data"));
    put_folders(out, "data_paths_test", text_of(settings, "data_paths_test"));
    an_text_puts(out, "evaluators: []\n");
    put_length(out, settings, state, batch);
    if (batch > 0) an_text_printf(out, "global_batch_size: %" PRId64 "\n", batch);
    for (size_t i = 0; i < AN_COUNT(names); i++) {
        const json_t *v = json_object_get(settings, names[i][0]);
        if (v) put_value(out, names[i][1], v);
    }
    an_text_printf(out, "freeze_weights: %s\n", strcmp(text_of(settings, "freeze"), "*") == 0 ? "true" : "false");
    if (clip > 0) an_text_puts(out, "grad_clip_norm: "), put_real(out, clip), an_text_puts(out, "\n");
    if (warmup) /* a warm-up of w updates reaches the peak at update w there, counted from 1 */
        an_text_printf(out, "lr_warmup_steps: %" PRId64 "\n", (int64_t)json_integer_value(warmup) + 1);
    if (lr > 0)
        an_text_puts(out, "lr_min_ratio: "), put_real(out, json_number_value(json_object_get(settings, "min_lr")) / lr),
            an_text_puts(out, "\n");
}

an_status an_trm_settings_text(an_err *err, const char *from, const char *json, const char *state, an_text *out)
{
    json_t *settings, *progress = NULL;
    AN_TRY(an_json_parse(err, from, 0, json, strlen(json), &settings));
    an_status status = state ? an_json_parse(err, from, 0, state, strlen(state), &progress) : AN_OK;
    if (status == AN_OK) {
        put_arch(out, settings);
        put_rest(out, settings, progress);
    }
    json_decref(progress);
    json_decref(settings);
    return status;
}

static an_status write_settings(an_err *err, const an_st *st, const char *path)
{
    char beside[AN_CKPT_PATH_BYTES];
    an_text out = {0};
    const char *slash = strrchr(path, '/'), *text = an_st_meta(st, AN_CKPT_CONFIG);
    if (!text) return AN_OK;
    if (snprintf(beside, sizeof beside, "%.*sall_config.yaml", slash ? (int)(slash - path + 1) : 0, path) >=
        (int)sizeof beside)
        return an_fail(err, AN_E_USAGE, "out=%.200s...: the path is too long", path);
    an_status status = an_trm_settings_text(err, an_st_path(st), text, an_st_meta(st, AN_CKPT_STATE), &out);
    if (status == AN_OK) status = an_json_save(err, beside, &out);
    an_text_free(&out);
    return status;
}

an_status an_trm_export_torch(an_err *err, const an_st *st, const char *prefix, const char *path)
{
    dict d = {.prefix = prefix};
    const size_t n = strlen(path), end = strlen(".safetensors");
    if (n >= end && strcmp(path + n - end, ".safetensors") == 0)
        return an_fail(err, AN_E_USAGE,
                       "out=%.200s: layout=torch is torch.save's format; name the file as "
                       "TinyRecursiveModels does, out=RUN/step_1000",
                       path);
    an_status status = collect(err, st, &d);
    if (status == AN_OK) status = an_torch_write(err, path, d.t, d.n);
    an_arena_free(&d.arena);
    return status == AN_OK ? write_settings(err, st, path) : status;
}
