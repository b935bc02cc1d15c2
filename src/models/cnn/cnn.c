/* cnn.c: a small convolutional network, under the task `image`.
 *
 *     x [B,H,W,C] -> conv1 3x3, ReLU, max-pool 2 -> [B,H/2,W/2,F] -> conv2 3x3, ReLU, max-pool 2 -> [B,H/4,W/4,2F]
 *       -> fc1, ReLU -> [B,hidden] -> fc2 -> [B,classes]
 *
 * With depthwise=true conv2 is a depthwise 3x3 (conv2.weight, batch norm bn2), ReLU and a pointwise convolution
 * (conv3; Howard et al., "MobileNets", 2017). fc1 reads the image channel by channel, as PyTorch's flatten of NCHW does. */
#include "models/cnn/cnn.h"
#include "models/image_head.h"
#include <stdlib.h>

/* ---- settings */

typedef struct settings {
    an_image_settings image;
    int64_t filters, hidden;
    bool depthwise;
} settings;

#define AT(name) offsetof(settings, name)
static const an_config_field fields[] = {
    AN_IMAGE_FIELDS,
    {"filters", AN_CONFIG_INT, AT(filters), "32", 1, 4096, NULL, "channels behind the first convolution"},
    {"hidden", AN_CONFIG_INT, AT(hidden), "128", 1, 1 << 20, NULL, "width of the linear layer"},
    {"depthwise", AN_CONFIG_BOOL, AT(depthwise), "false", 0, 0, NULL,
     "the second convolution is one a channel, and a pointwise one"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const weight_keys[] = {AN_IMAGE_WEIGHT_KEYS, "filters", "hidden", "depthwise", NULL};
static const char *const halve[] = {"filters", "hidden", NULL};

static an_status check(an_err *err, const void *given, int64_t batch)
{
    const settings *s = given;
    const an_image_settings *i = &s->image;
    AN_TRY(an_image_check(err, i, batch));
    if (i->height > 0 && i->width > 0 && (i->height < 4 || i->width < 4))
        return an_fail(err, AN_E_USAGE, "height=%lld width=%lld: two poolings need images of 4 x 4 and more",
                       (long long)i->height, (long long)i->width);
    const double pixels = (double)i->height * (double)i->width;
    if ((double)batch * pixels * (double)s->filters > INT32_MAX ||
        pixels / 8 * (double)s->filters * (double)s->hidden > INT32_MAX)
        return an_fail(err, AN_E_USAGE,
                       "filters=%lld hidden=%lld batch_size=%lld: a tensor has more than 2^31 elements",
                       (long long)s->filters, (long long)s->hidden, (long long)batch);
    return AN_OK;
}

static void miniature(void *given)
{
    settings *s = given;
    s->filters = AN_MIN(s->filters, 8);
    s->hidden = AN_MIN(s->hidden, 32);
}

#define TRAINING                                                                                                       \
    "batch_size=64 max_iters=2000 learning_rate=1e-3 min_lr=1e-5 warmup_iters=100 lr_decay_iters=2000 "                \
    "eval_interval=500 eval_iters=0 log_interval=50 weight_decay=0.01 beta2=0.999 "
static const an_preset presets[] = {
    {"cnn", "minutes on any CPU: two convolutions on built-in shapes; data=FOLDER of idx files for your own",
     TRAINING "out=cnn", 20, 4, NULL},
    {"cnn_depthwise", "the same with a depthwise convolution", TRAINING "depthwise=true out=cnn_depthwise", 20, 4,
     NULL},
};

/* ---- graphs */

typedef struct cnn {
    an_class_model base;
    settings s;
    an_conv conv1, conv2, conv3;
    an_norm bn2;
    an_dense fc1, fc2;
} cnn;

static an_tensor *pool(an_tensor *x)
{
    return an_max_pool_at(AN_AT, x, (an_window){.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2});
}

/* images u8 [B,H,W,C]: logits f32 [B,classes] */
static an_tensor *forward(const void *model, an_tensor *images, bool training)
{
    const cnn *m = model;
    an_tensor *x = an_image_normalised(m->base.cx, &m->s.image, images); /* [B,H,W,C] */
    x = pool(an_relu_at(AN_AT, an_conv_apply(&m->conv1, x)));            /* [B,H/2,W/2,F] */
    x = an_conv_apply(&m->conv2, x);                                     /* [B,H/2,W/2,2F], or depthwise F */
    if (m->s.depthwise)
        x = an_conv_apply(&m->conv3, an_relu_at(AN_AT, an_norm_apply(&m->bn2, x, training))); /* [B,H/2,W/2,2F] */
    x = pool(an_relu_at(AN_AT, x));                                                           /* [B,H/4,W/4,2F] */
    const an_shape s = an_shape_of(x);
    x = an_permute_at(AN_AT, x, AN_SHAPE(0, 3, 1, 2)); /* [B,2F,H/4,W/4] */
    x = an_reshape_at(AN_AT, x, AN_SHAPE(s.dim[0], s.dim[1] * s.dim[2] * s.dim[3]));
    x = an_relu_at(AN_AT, an_linear_at(AN_AT, x, m->fc1.weight, m->fc1.bias)); /* [B,hidden] */
    return an_cast_at(AN_AT, an_linear_at(AN_AT, x, m->fc2.weight, m->fc2.bias), AN_F32);
}

static void *open_cnn(an_ctx *cx, const void *given)
{
    cnn *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->s = *(const settings *)given;
    m->base = (an_class_model){cx, "cnn", &m->s, forward};
    const an_image_settings *i = &m->s.image;
    const int64_t F = m->s.filters, flat = 2 * F * (i->height / 4) * (i->width / 4);
    m->conv1 = an_conv_open(cx, "conv1", i->channels, F, 3, 1, 1, 1, true, AN_CONV_UNIFORM);
    if (m->s.depthwise) {
        m->conv2 = an_conv_open(cx, "conv2", F, F, 3, 1, 1, (int)F, false, AN_CONV_UNIFORM);
        m->bn2 = an_norm_open(cx, "bn2", F);
        m->conv3 = an_conv_open(cx, "conv3", F, 2 * F, 1, 1, 0, 1, true, AN_CONV_UNIFORM);
    } else {
        m->conv2 = an_conv_open(cx, "conv2", F, 2 * F, 3, 1, 1, 1, true, AN_CONV_UNIFORM);
    }
    m->fc1 = an_dense_open(cx, "fc1", flat, m->s.hidden);
    m->fc2 = an_dense_open(cx, "fc2", m->s.hidden, i->classes);
    return m;
}

/* ---- numbers and words */

static void count(const void *given, int64_t samples, an_model_counts *out)
{
    const settings *s = given;
    const an_image_settings *i = &s->image;
    const int64_t F = s->filters, flat = 2 * F * (i->height / 4) * (i->width / 4);
    const int64_t first = 9 * i->channels * F, second = s->depthwise ? 9 * F + 2 * F * F : 18 * F * F;
    const int64_t linear = flat * s->hidden + s->hidden * i->classes;
    *out = (an_model_counts){.parameters = first + F + second + 2 * F + linear + s->hidden + i->classes,
                             .largest = AN_MAX(flat * s->hidden, second)};
    if (s->depthwise) out->parameters += 2 * F;
    out->parameters_printed = out->parameters;
    const double pixels = (double)i->height * (double)i->width;
    out->flops = 6 * (double)samples * (pixels * (double)first + pixels / 4 * (double)second + (double)linear);
    out->flops_printed = out->flops;
}

static void describe(const void *given, const char *parameters, an_text *out)
{
    const settings *s = given;
    const an_image_settings *i = &s->image;
    an_text_printf(out, "%s): images of %lld x %lld,\n        %lld channels, %lld filters%s, %lld classes\n",
                   parameters, (long long)i->height, (long long)i->width, (long long)i->channels, (long long)s->filters,
                   s->depthwise ? ", depthwise" : "", (long long)i->classes);
}

const an_model an_cnn_model = {.name = "cnn",
                               AN_IMAGE_ROW,
                               .keys = &keys,
                               .settings_bytes = sizeof(settings),
                               .weight_keys = weight_keys,
                               .halve = halve,
                               .presets = presets,
                               .n_presets = AN_COUNT(presets),
                               .check = check,
                               .head = "fc2.",
                               .miniature = miniature,
                               .open = open_cnn,
                               .count = count,
                               .describe = describe};
