/* registry.c: the table of models: a line a model; which model a file of weights is of. */
#include "io/checkpoint.h"
#include "io/formats/json.h"
#include "io/formats/torch_file.h"
#include "models/classifier/classifier.h"
#include "models/cnn/cnn.h"
#include "models/gpt/gpt_model.h"
#include "models/imported/imported.h"
#include "models/mlp/mlp.h"
#include "models/resnet/resnet.h"
#include "models/trm/trm_model.h"
#include "models/vit/vit.h"
#include <string.h>

/* clang-format off */
const an_model *const an_models[] = {
    &an_gpt_model,
    &an_mlp_model,
    &an_classifier_model,
    &an_trm_model,
    &an_cnn_model,
    &an_resnet_model,
    &an_vit_model,
    &an_imported_model,
};
/* clang-format on */
const size_t an_n_models = AN_COUNT(an_models);

const an_model *an_model_find(const char *name)
{
    for (size_t i = 0; i < an_n_models; i++)
        if (strcmp(an_models[i]->name, name) == 0) return an_models[i];
    return NULL;
}

size_t an_model_sums(const an_model *m, const void *settings)
{
    const an_sum *sums = m->sums(settings);
    size_t n = 0;
    while (n < AN_MODEL_SUMS && sums[n].name) n++;
    return n;
}

bool an_key_in(const char *const *list, const char *key)
{
    while (*list && strcmp(*list, key) != 0) list++;
    return *list != NULL;
}

/* ---- weights */

/* The row that the settings of a checkpoint name; the first one where they name none, or where there are none. */
static an_status model_of(an_err *err, const an_st *raw, const an_model **out)
{
    char quoted[AN_QUOTED_BYTES];
    const char *path = an_st_path(raw), *text = an_st_meta(raw, AN_CKPT_CONFIG);
    json_t *settings = NULL;
    *out = an_models[0];
    if (!text) {
        for (size_t i = 0; i < an_n_models; i++)
            if (an_models[i]->weights && an_models[i]->weights->recognizes && an_models[i]->weights->recognizes(raw))
                *out = an_models[i];
        return AN_OK;
    }
    AN_TRY(an_json_parse(err, path, 0, text, strlen(text), &settings));
    const char *name = json_string_value(json_object_get(settings, "model"));
    if (name) *out = an_model_find(name);
    an_status status = AN_OK;
    if (!*out)
        status = an_fail(err, AN_E_IO, "%s: its settings name the model %s, which this program does not know", path,
                         an_quoted(name, quoted));
    json_decref(settings);
    return status;
}

an_status an_model_open_weights(an_err *err, const char *path, const an_model **out_model, an_st **out)
{
    an_st *raw;
    *out = NULL;
    AN_TRY(an_weights_open(err, path, &raw));
    an_status status = model_of(err, raw, out_model);
    if (status == AN_OK && (*out_model)->weights) return (*out_model)->weights->import(err, raw, out);
    if (status == AN_OK)
        *out = raw;
    else
        an_st_close(raw);
    return status;
}

static bool is_weight(const an_st_tensor *t)
{
    return strncmp(t->name, "optimizer.", 10) != 0 && strncmp(t->name, AN_CKPT_EMA, strlen(AN_CKPT_EMA)) != 0;
}

static an_status add_weights(an_err *err, const an_st *st, an_st_writer *w)
{
    static const char *const kept[] = {AN_CKPT_CONFIG, AN_CKPT_TASK};
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_at(st, i);
        if (is_weight(t)) AN_TRY(an_st_add(err, w, t->name, t->dtype, t->rank, t->shape, t->data));
    }
    AN_TRY(an_st_set_meta(err, w, "format", "pt"));
    for (size_t i = 0; i < AN_COUNT(kept); i++)
        if (an_st_meta(st, kept[i])) AN_TRY(an_st_set_meta(err, w, kept[i], an_st_meta(st, kept[i])));
    return AN_OK;
}

static an_status write_plain(an_err *err, const an_st *st, const char *path)
{
    an_st_writer *w;
    AN_TRY(an_st_begin(err, path, &w));
    an_status status = add_weights(err, st, w);
    if (status == AN_OK) return an_st_commit(err, w);
    an_st_abort(w);
    return status;
}

/* Whether "nanogpt|hf" has the word. */
static bool is_choice(const char *choices, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == '|' || p[n] == 0)) return n > 0;
    return false;
}

static an_status export_weights(an_err *err, const an_st *st, const an_model *m, const char *layout, const char *path)
{
    char quoted[AN_QUOTED_BYTES], first[64];
    const char *layouts = m->weights ? m->weights->layouts : NULL;
    if (*layout && !layouts)
        return an_fail(err, AN_E_USAGE, "layout=%s: a model of kind %s has one layout; leave the setting out",
                       an_quoted(layout, quoted), m->name);
    if (!layouts) return write_plain(err, st, path);
    if (*layout && !is_choice(layouts, layout))
        return an_fail(err, AN_E_USAGE, "layout=%s: %s", an_quoted(layout, quoted), layouts);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(layouts, "|"), layouts);
    return m->weights->write(err, st, *layout ? layout : first, path);
}

an_status an_model_export(an_err *err, const an_st *st, const an_model *m, const char *layout, const char *path)
{
    an_st *weights;
    AN_TRY(an_ckpt_weights(err, st, &weights));
    an_status status = export_weights(err, weights ? weights : st, m, layout, path);
    an_st_close(weights);
    return status;
}
