/* optimizer.c: the table of optimizer.h, and what settings mean to it: decay, freeze, the rate of averages (EMA). */
#include "train/optimizer.h"
#include <string.h>

/* ---- the rows */

static an_adamw_options adam_options(const an_train_config *c, const an_update *u)
{
    return (an_adamw_options){.lr = u->lr,
                              .beta1 = c->beta1,
                              .beta2 = c->beta2,
                              .eps = 1e-8,
                              .weight_decay = c->weight_decay,
                              .clip = c->grad_clip,
                              .t = u->t,
                              .only_if = u->only_if,
                              .scaled = u->scaled,
                              .moments = c->moments_dtype};
}

static an_tensor *adamw(an_ctx *cx, const an_train_config *c, const an_update *u)
{
    return an_adamw(cx, adam_options(c, u));
}

static an_tensor *adam(an_ctx *cx, const an_train_config *c, const an_update *u)
{
    return an_adam(cx, adam_options(c, u));
}

static an_tensor *adam_atan2(an_ctx *cx, const an_train_config *c, const an_update *u)
{
    return an_adam_atan2(cx, adam_options(c, u));
}

static an_tensor *sgd(an_ctx *cx, const an_train_config *c, const an_update *u)
{
    return an_sgd_with(cx, ((an_sgd_options){.lr = u->lr,
                                             .momentum = c->momentum,
                                             .dampening = c->dampening,
                                             .weight_decay = c->weight_decay,
                                             .clip = c->grad_clip,
                                             .nesterov = c->nesterov,
                                             .t = u->t,
                                             .only_if = u->only_if,
                                             .scaled = u->scaled}));
}

static const char *const adam_keys[] = {"moments_dtype", NULL}, *const sgd_keys[] = {"momentum", "dampening",
                                                                                     "nesterov", NULL};

const an_optimizer an_optimizers[] = {
    {"adamw", adam_keys, adamw},
    {"adam", adam_keys, adam},
    {"adam_atan2", adam_keys, adam_atan2},
    {"sgd", sgd_keys, sgd},
};
const size_t an_n_optimizers = AN_COUNT(an_optimizers);

const an_optimizer *an_optimizer_of(const an_train_config *c)
{
    for (size_t i = 0; i < an_n_optimizers; i++)
        if (strcmp(an_optimizers[i].name, c->optimizer) == 0) return &an_optimizers[i];
    return &an_optimizers[0]; /* settings are checked when they are read */
}

/* ---- checks */

/* The first optimizer that has the setting. */
static const char *owner_of(const char *key)
{
    size_t i = 0;
    while (i + 1 < an_n_optimizers && !an_key_in(an_optimizers[i].keys, key)) i++;
    return an_optimizers[i].name;
}

an_status an_optimizer_check(an_err *err, const an_train_config *c)
{
    const struct {
        const char *key;
        bool set;
    } some[] = {{"momentum", c->momentum != 0},
                {"dampening", c->dampening != 0},
                {"nesterov", c->nesterov},
                {"moments_dtype", c->moments_dtype != AN_F32}};
    const an_optimizer *o = an_optimizer_of(c);
    for (size_t i = 0; i < AN_COUNT(some); i++)
        if (some[i].set && !an_key_in(o->keys, some[i].key))
            return an_fail(err, AN_E_USAGE, "%s= is a setting of optimizer=%s, and this is optimizer=%s: leave one out",
                           some[i].key, owner_of(some[i].key), o->name);
    if (c->nesterov && (c->momentum == 0 || c->dampening != 0))
        return an_fail(err, AN_E_USAGE, "nesterov=true needs momentum= above 0 and dampening=0");
    if (c->dampening != 0 && c->momentum == 0)
        return an_fail(err, AN_E_USAGE, "dampening= is of sgd with momentum: set momentum= too, or leave it out");
    return AN_OK;
}

/* ---- which parameters */

static an_status nothing_matches(an_err *err, const char *key, const char *globs, const an_train_config *c)
{
    return an_fail(err, AN_E_USAGE,
                   "%s=%.128s: no parameter of the model %s has such a name; anneal inspect RUN lists them", key, globs,
                   c->model->name);
}

an_status an_optimizer_select(an_err *err, an_ctx *cx, const an_train_config *c)
{
    if (strcmp(c->decay, "matrices") != 0) {
        const bool all = strcmp(c->decay, "all") == 0;
        an_params_decay(cx, "*", all);
        if (!all && an_params_decay(cx, c->decay, true) == 0) return nothing_matches(err, "decay", c->decay, c);
    }
    if (c->freeze[0] && an_params_freeze(cx, c->freeze, true) == 0) return nothing_matches(err, "freeze", c->freeze, c);
    return AN_OK;
}

/* ---- averages */

bool an_optimizer_ema_warms_up(const an_train_config *c)
{
    return (double)c->max_iters * (1 - c->ema_rate) < 5;
}

double an_optimizer_ema_rate(const an_train_config *c, int64_t t)
{
    const double most = (1 + (double)t) / (10 + (double)t);
    return an_optimizer_ema_warms_up(c) && most < c->ema_rate ? most : c->ema_rate;
}
