/* mlp.c: a multilayer perceptron for rows of numbers, under the task `arrays`: what a model's folder needs, in full.
 *
 *     x [B,F] -> linear, activation, dropout (`layers` times, width `hidden`) -> linear -> [B,outputs]
 *
 * Trained with cross entropy the outputs are classes' logits, and a prediction their probabilities; with mse they are
 * values. Parameters have PyTorch's names and initialisation: layers.0.weight [out,in], layers.0.bias [out]. */
#include "models/mlp/mlp.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings */

typedef struct settings {
    int64_t features, outputs, hidden, layers;
    double dropout;
    char activation[AN_CONFIG_TEXT_BYTES], loss[AN_CONFIG_TEXT_BYTES];
} settings;

#define AT(name) offsetof(settings, name)
static const an_config_field fields[] = {
    {"features", AN_CONFIG_INT, AT(features), "0", 0, 1 << 24, NULL, "numbers in a row; 0: as many as the data has"},
    {"outputs", AN_CONFIG_INT, AT(outputs), "0", 0, 1 << 20, NULL, "classes or values; 0: as many as the data has"},
    {"hidden", AN_CONFIG_INT, AT(hidden), "64", 1, 1 << 20, NULL, "width of the hidden layers"},
    {"layers", AN_CONFIG_INT, AT(layers), "2", 0, 64, NULL, "hidden layers; 0: a linear model"},
    {"dropout", AN_CONFIG_FLOAT, AT(dropout), "0.0", 0, 0.99, NULL, "share of activations dropped in training"},
    {"activation", AN_CONFIG_TEXT, AT(activation), "relu", 0, 0, "relu|gelu|tanh", "between layers"},
    {"loss", AN_CONFIG_TEXT, AT(loss), "cross_entropy", 0, 0, "cross_entropy|mse", "of classes, or of values"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const changeable[] = {"dropout", NULL};
static const char *const weight_keys[] = {"features", "outputs", "hidden", "layers", NULL};
static const char *const halve[] = {"hidden", "layers", NULL};

static bool has_classes(const settings *s)
{
    return strcmp(s->loss, "mse") != 0;
}

static int64_t inputs_of(const settings *s, int64_t layer)
{
    return layer == 0 ? s->features : s->hidden;
}

static int64_t outputs_of(const settings *s, int64_t layer)
{
    return layer == s->layers ? s->outputs : s->hidden;
}

static an_status check(an_err *err, const void *given, int64_t batch)
{
    const settings *s = given;
    const int64_t widest = AN_MAX(AN_MAX(s->features, s->outputs), s->hidden);
    if (widest > INT32_MAX / s->hidden || batch > INT32_MAX / widest || s->outputs > INT32_MAX / AN_MAX(s->features, 1))
        return an_fail(err, AN_E_USAGE,
                       "features=%lld hidden=%lld outputs=%lld batch_size=%lld: a matrix has more than 2^31 elements",
                       (long long)s->features, (long long)s->hidden, (long long)s->outputs, (long long)batch);
    return AN_OK;
}

static an_status adopt(an_err *err, const void *from, const char *name, void *given)
{
    const settings *file = from;
    settings *s = given;
    if (strcmp(s->loss, file->loss) != 0)
        return an_fail(err, AN_E_USAGE, "init_from=%s: its weights were trained with loss=%s, the run has loss=%s",
                       name, file->loss, s->loss);
    const double dropout = s->dropout;
    *s = *file;
    s->dropout = dropout;
    return AN_OK;
}

static void miniature(void *given)
{
    settings *s = given;
    s->hidden = AN_MIN(s->hidden, 64);
    s->layers = AN_MIN(s->layers, 2);
}

#define SPIRALS                                                                                                        \
    "batch_size=64 max_iters=1000 learning_rate=1e-2 min_lr=1e-3 warmup_iters=50 lr_decay_iters=1000 "                 \
    "eval_interval=250 "                                                                                               \
    "eval_iters=0 log_interval=10 weight_decay=0.01 out=mlp"
static const an_preset presets[] = {
    {"mlp", "seconds on any CPU: a perceptron learns three spirals; data=FOLDER of .npy files for your own", SPIRALS,
     200, 20, NULL},
};

/* ---- graphs */

typedef struct mlp {
    an_ctx *cx;
    settings s;
    an_tensor *weight[65], *bias[65]; /* of `layers` hidden layers and the last: [out,in], [out] */
} mlp;

static void *open_mlp(an_ctx *cx, const void *given)
{
    char name[64];
    mlp *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->cx = cx;
    m->s = *(const settings *)given;
    for (int64_t i = 0; i <= m->s.layers; i++) {
        const int64_t in = inputs_of(&m->s, i), out = outputs_of(&m->s, i);
        const double bound = 1 / sqrt((double)in);
        snprintf(name, sizeof name, "layers.%d.weight", (int)i);
        m->weight[i] = an_param_at(AN_AT, cx, name, AN_F32, AN_SHAPE(out, in), AN_UNIFORM(-bound, bound));
        snprintf(name, sizeof name, "layers.%d.bias", (int)i);
        m->bias[i] = an_param_at(AN_AT, cx, name, AN_F32, AN_SHAPE(out), AN_UNIFORM(-bound, bound));
    }
    return m;
}

static int inputs(const void *given, int64_t samples, an_array out[AN_MAX_ARRAYS])
{
    const settings *s = given;
    const bool classes = has_classes(s);
    out[0] = (an_array){.name = "inputs", .dtype = AN_F32, .shape = AN_SHAPE(samples, s->features)};
    out[1] = (an_array){.name = "labels",
                        .dtype = classes ? AN_I32 : AN_F32,
                        .shape = classes ? AN_SHAPE(samples) : AN_SHAPE(samples, s->outputs),
                        .limit = classes ? s->outputs : 0};
    return 2;
}

static an_tensor *activate(const mlp *m, an_tensor *x)
{
    if (strcmp(m->s.activation, "gelu") == 0) return an_gelu_at(AN_AT, x);
    return strcmp(m->s.activation, "tanh") == 0 ? an_tanh_at(AN_AT, x) : an_relu_at(AN_AT, x);
}

/* x [B,F]: f32 [B,outputs] */
static an_tensor *forward(const mlp *m, an_tensor *x, bool training)
{
    for (int64_t i = 0; i < m->s.layers; i++) {
        x = activate(m, an_linear_at(AN_AT, x, m->weight[i], m->bias[i])); /* [B,hidden] */
        if (training && m->s.dropout > 0) x = an_dropout_at(AN_AT, x, m->s.dropout);
    }
    x = an_linear_at(AN_AT, x, m->weight[m->s.layers], m->bias[m->s.layers]);
    return an_cast_at(AN_AT, x, AN_F32);
}

/* Each sample's loss, f32 [B], and in *hits how many classes are right; rows without a label count nothing. */
static an_tensor *each_loss(const mlp *m, an_tensor *outputs, an_tensor *labels, an_tensor **hits)
{
    if (has_classes(&m->s)) {
        an_tensor *right = an_eq_at(AN_AT, an_argmax_at(AN_AT, outputs, 1, false), labels); /* bool [B] */
        *hits = an_sum_at(AN_AT, an_cast_at(AN_AT, right, AN_F32), AN_ALL, false);
        return an_cross_entropy_at(AN_AT, outputs, labels);
    }
    an_tensor *known = an_eq_at(AN_AT, labels, labels); /* [B,outputs], false where NaN */
    an_tensor *zero = an_full_at(AN_AT, m->cx, AN_F32, an_shape_of(labels), 0);
    an_tensor *apart = an_sub_at(AN_AT, outputs, an_where_at(AN_AT, known, labels, zero));
    an_tensor *squares = an_square_at(AN_AT, an_where_at(AN_AT, known, apart, zero)); /* [B,outputs] */
    return an_mean_at(AN_AT, squares, AN_AXIS(1), false);
}

static an_losses losses(void *model, an_tensor *const *in, bool training)
{
    const mlp *m = model;
    an_tensor *hits = NULL;
    an_scope_push(m->cx, "mlp");
    an_tensor *each = each_loss(m, forward(m, in[0], training), in[1], &hits); /* [B] */
    an_losses l = {.loss = an_mean_at(AN_AT, each, AN_ALL, false)};
    if (hits || !training) l.sum[0] = an_sum_at(AN_AT, each, AN_ALL, false);
    l.sum[1] = hits;
    an_scope_pop(m->cx);
    return l;
}

static const an_sum *sums(const void *given)
{
    static const an_sum classes[] = {{"loss", NULL}, {"accuracy", NULL}, {NULL, NULL}},
                        values[] = {{"loss", NULL}, {NULL, NULL}};
    return has_classes(given) ? classes : values;
}

static an_tensor *predict(void *model, an_tensor *in)
{
    const mlp *m = model;
    an_scope_push(m->cx, "mlp");
    an_tensor *outputs = forward(m, in, false); /* [B,outputs] */
    if (has_classes(&m->s)) outputs = an_softmax_at(AN_AT, outputs, 1);
    an_scope_pop(m->cx);
    return outputs;
}

static bool predicts_classes(const void *given)
{
    return has_classes(given);
}

/* ---- numbers and words */

static void count(const void *given, int64_t samples, an_model_counts *out)
{
    const settings *s = given;
    *out = (an_model_counts){0};
    double products = 0;
    for (int64_t i = 0; i <= s->layers; i++) {
        const int64_t weight = inputs_of(s, i) * outputs_of(s, i);
        out->parameters += weight + outputs_of(s, i);
        out->largest = AN_MAX(out->largest, weight);
        products += (double)weight;
    }
    out->parameters_printed = out->parameters;
    out->flops = out->flops_printed = 6 * products * (double)samples;
}

static void describe(const void *given, const char *parameters, an_text *out)
{
    const settings *s = given;
    an_text_printf(out, "%s): %lld hidden layers,\n        width %lld, %lld features, %lld %s\n", parameters,
                   (long long)s->layers, (long long)s->hidden, (long long)s->features, (long long)s->outputs,
                   has_classes(s) ? "classes" : "values");
}

const an_model an_mlp_model = {.name = "mlp",
                               .task = "arrays",
                               .keys = &keys,
                               .n_data_keys = 2,
                               .settings_bytes = sizeof(settings),
                               .changeable = changeable,
                               .weight_keys = weight_keys,
                               .halve = halve,
                               .too_large = "no smaller batch or model: more memory",
                               .defaults = "data=spirals",
                               .presets = presets,
                               .n_presets = AN_COUNT(presets),
                               .check = check,
                               .adopt = adopt,
                               .miniature = miniature,
                               .open = open_mlp,
                               .close = free,
                               .inputs = inputs,
                               .sums = sums,
                               .losses = losses,
                               .predict = predict,
                               .predicts_classes = predicts_classes,
                               .count = count,
                               .describe = describe};
