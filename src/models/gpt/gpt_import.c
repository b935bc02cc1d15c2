/* gpt_import.c: model settings and training progress from files of nanoGPT and Hugging Face. See gpt_weights.h. */
#include "models/gpt/gpt_import.h"
#include "io/checkpoint.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG_BYTES = 1 << 20, GPT2_HEAD_WIDTH = 64 };

/* ---- the number of heads, which no tensor's shape shows */

/* Parses config.json in the folder of `path`; *out is NULL when there is none. */
static an_status read_config_beside(an_err *err, const char *path, json_t **out)
{
    char beside[AN_CKPT_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    *out = NULL;
    int length = snprintf(beside, sizeof beside, "%.*sconfig.json", slash ? (int)(slash - path + 1) : 0, path);
    if (length < 0 || length >= (int)sizeof beside) return AN_OK;
    if (access(beside, F_OK) != 0) return AN_OK;
    return an_json_read(err, beside, MAX_CONFIG_BYTES, out);
}

/* Refuses a Hugging Face config that contradicts the weights or needs what this model lacks. */
static an_status check_beside(an_err *err, const char *path, const json_t *config, const an_gpt_config *c)
{
    const json_t *width = json_object_get(config, "n_embd"), *eps = json_object_get(config, "layer_norm_epsilon");
    if (json_is_integer(width) && json_integer_value(width) != c->width)
        return an_fail(err, AN_E_IO, "%s: n_embd is %" PRId64 ", the config.json beside it says %" PRId64, path,
                       c->width, (int64_t)json_integer_value(width));
    if (json_is_number(eps) && fabs(json_number_value(eps) - 1e-5) > 1e-12)
        return an_fail(err, AN_E_UNSUPPORTED,
                       "%s: the config.json beside it says layer_norm_epsilon %g; anneal's is 1e-5", path,
                       json_number_value(eps));
    return AN_OK;
}

static int64_t integer_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : 0;
}

an_status an_gpt_import_heads(an_err *err, const an_st *raw, const json_t *values, an_gpt_config *c)
{
    const char *path = an_st_path(raw), *own = an_st_meta(raw, AN_CKPT_CONFIG);
    json_t *config = NULL;
    c->heads = integer_of(json_object_get(values, "model_args"), "n_head");
    if (c->heads) return AN_OK;
    if (own)
        AN_TRY(an_json_parse(err, path, 0, own, strlen(own), &config));
    else
        AN_TRY(read_config_beside(err, path, &config));
    c->heads = integer_of(config, "n_head");
    const char *gelu = json_string_value(json_object_get(config, "gelu")); /* a key that only anneal writes */
    c->gelu_tanh = gelu && strcmp(gelu, "tanh") == 0;
    an_status status = config && !own ? check_beside(err, path, config, c) : AN_OK;
    json_decref(config);
    if (status != AN_OK || c->heads) return status;
    if (c->width % GPT2_HEAD_WIDTH != 0)
        return an_fail(
            err, AN_E_IO,
            "%s: the number of heads is not stored, and the width %" PRId64
            " is not a multiple of 64, GPT-2's head width; put a config.json with \"n_head\" beside the file",
            path, c->width);
    c->heads = c->width / GPT2_HEAD_WIDTH;
    return AN_OK;
}

/* ---- settings and progress under anneal's keys */

static void put_value(an_text *out, const char *key, const json_t *v)
{
    if (json_is_integer(v))
        an_text_printf(out, ",\"%s\":%" PRId64, key, (int64_t)json_integer_value(v));
    else if (json_is_real(v))
        an_text_printf(out, ",\"%s\":%.17g", key, json_real_value(v));
    else if (json_is_boolean(v))
        an_text_printf(out, ",\"%s\":%s", key, json_is_true(v) ? "true" : "false");
}

/* nanoGPT's keys that mean the same here. Its folders, device and dtype are not taken over. */
static const char *const shared_keys[] = {"batch_size",    "gradient_accumulation_steps",
                                          "max_iters",     "learning_rate",
                                          "min_lr",        "decay_lr",
                                          "warmup_iters",  "lr_decay_iters",
                                          "weight_decay",  "beta1",
                                          "beta2",         "grad_clip",
                                          "eval_interval", "eval_iters",
                                          "log_interval"};

void an_gpt_import_config(const an_gpt_config *c, const json_t *values, an_text *out)
{
    const json_t *config = json_object_get(values, "config");
    const json_t *dropout = json_object_get(json_object_get(values, "model_args"), "dropout");
    an_text_printf(out,
                   "{\"n_layer\":%" PRId64 ",\"n_head\":%" PRId64 ",\"n_embd\":%" PRId64 ",\"block_size\":%" PRId64
                   ",\"vocab_size\":%" PRId64 ",\"bias\":%s",
                   c->layers, c->heads, c->width, c->block, c->vocab, c->bias ? "true" : "false");
    if (c->gelu_tanh) an_text_puts(out, ",\"gelu\":\"tanh\"");
    put_value(out, "dropout", dropout);
    for (size_t i = 0; i < AN_COUNT(shared_keys); i++)
        put_value(out, shared_keys[i], json_object_get(config, shared_keys[i]));
    an_text_puts(out, "}");
}

void an_gpt_import_state(const an_st *raw, const json_t *values, an_text *out)
{
    const an_st_tensor *best = an_st_find(raw, "best_val_loss"); /* nanoGPT saves a scalar tensor */
    const json_t *number = json_object_get(values, "best_val_loss");
    float value = json_is_number(number) ? (float)json_number_value(number) : INFINITY;
    if (best && best->dtype == AN_F32 && best->bytes == sizeof value) memcpy(&value, best->data, sizeof value);
    const int64_t step = integer_of(values, "iter_num");
    an_text_printf(out, "{\"from\":\"nanoGPT\",\"step\":%" PRId64 ",\"best_step\":%" PRId64 ",\"best_val\":", step,
                   step);
    an_text_printf(out, isfinite(value) ? "%.9g}" : "null}", (double)value);
}
