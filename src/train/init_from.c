/* init_from.c: what init_from= names. See init_from.h. */
#include "train/init_from.h"
#include <string.h>

static void take_weight_keys(const an_model *m, const void *from, void *settings)
{
    for (const char *const *key = m->weight_keys; *key; key++) {
        const an_config_field *f = an_config_find(m->keys, *key);
        memcpy((char *)settings + f->offset, (const char *)from + f->offset, an_config_value_bytes(f));
    }
}

/* The shape of a file's model; bare tensors say nothing of it, and the settings must fit them. */
static an_status take_shape(an_err *err, const an_st *st, const an_model *model, an_train_config *c)
{
    an_train_config file;
    const char *json = an_st_meta(st, AN_CKPT_CONFIG);
    if (!json) return AN_OK;
    if (model != c->model)
        return an_fail(err, AN_E_USAGE, "init_from=%s: its weights are of model %s, the run is of model %s",
                       c->init_from, model->name, c->model->name);
    AN_TRY(an_session_config(err, st, &file));
    if (model->adopt) return model->adopt(err, an_model_settings(&file), c->init_from, c->model_settings.bytes);
    take_weight_keys(model, an_model_settings(&file), c->model_settings.bytes);
    return AN_OK;
}

an_status an_init_weights_open(an_err *err, an_train_config *c, bool shape_only, an_st **out)
{
    char path[AN_CKPT_PATH_BYTES];
    const an_model *model;
    const an_weight_formats *w = c->model->weights;
    *out = NULL;
    if (strcmp(c->init_from, "scratch") == 0) return AN_OK;
    if (w && w->is_published && w->is_published(c->init_from))
        return w->open_published(err, c->init_from, c->model_settings.bytes, shape_only, out);
    AN_TRY(an_ckpt_find(err, c->init_from, false, path));
    AN_TRY(an_model_open_weights(err, path, &model, out));
    an_status status = take_shape(err, *out, model, c);
    if (status == AN_OK) return AN_OK;
    an_st_close(*out);
    *out = NULL;
    return status;
}
