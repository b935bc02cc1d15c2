/* resnet.c: a residual network for small images (He et al., "Deep residual learning for image recognition", CVPR 2016,
 * section 4.2), under the task `image`.
 *
 *     x [B,H,W,C] -> conv1 3x3, bn1, ReLU -> [B,H,W,F] -> layer1 -> [B,H,W,F] -> layer2 -> [B,H/2,W/2,2F]
 *       -> layer3 -> [B,H/4,W/4,4F] -> mean over the pixels -> fc -> [B,classes]
 *     block: x -> conv1 3x3, bn1, ReLU -> conv2 3x3, bn2 -> + shortcut -> ReLU
 *
 * Where a block changes the size, its first convolution has stride 2 and the shortcut is downsample.0, a convolution of
 * 1x1, and downsample.1, a norm. Names are torchvision's (layer2.0.conv1.weight); so is the initialisation. */
#include "models/resnet/resnet.h"
#include "models/image_head.h"
#include <stdio.h>
#include <stdlib.h>

enum { STAGES = 3, MOST_BLOCKS = 32 };

/* ---- settings */

typedef struct settings {
    an_image_settings image;
    int64_t filters, blocks;
} settings;

#define AT(name) offsetof(settings, name)
static const an_config_field fields[] = {
    AN_IMAGE_FIELDS,
    {"filters", AN_CONFIG_INT, AT(filters), "16", 1, 1024, NULL,
     "channels of the first stage; two further ones double them"},
    {"blocks", AN_CONFIG_INT, AT(blocks), "1", 1, MOST_BLOCKS, NULL, "blocks in each of the three stages"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const weight_keys[] = {AN_IMAGE_WEIGHT_KEYS, "filters", "blocks", NULL};
static const char *const halve[] = {"filters", "blocks", NULL};

static an_status check(an_err *err, const void *given, int64_t batch)
{
    const settings *s = given;
    const an_image_settings *i = &s->image;
    AN_TRY(an_image_check(err, i, batch));
    if ((double)batch * (double)i->height * (double)i->width * (double)s->filters > INT32_MAX)
        return an_fail(err, AN_E_USAGE, "filters=%lld batch_size=%lld: a tensor has more than 2^31 elements",
                       (long long)s->filters, (long long)batch);
    return AN_OK;
}

static void miniature(void *given)
{
    settings *s = given;
    s->filters = AN_MIN(s->filters, 4);
    s->blocks = 1;
}

/* 3 epochs of 60,000 images are 2,811 updates. */
#define TRAINING                                                                                                       \
    "batch_size=64 max_iters=2811 learning_rate=3e-3 min_lr=1e-5 warmup_iters=100 lr_decay_iters=2811 "                \
    "eval_interval=937 eval_iters=0 log_interval=50 weight_decay=0.01 beta2=0.999 out=resnet"
static const an_preset presets[] = {
    {"resnet", "minutes on any CPU: residual blocks of 16, 32 and 64 channels on built-in shapes; data=FOLDER",
     TRAINING, 10, 3, NULL},
};

/* ---- graphs */

typedef struct block {
    an_conv conv1, conv2, down;
    an_norm bn1, bn2, down_norm;
    bool changes;
} block;

typedef struct resnet {
    an_class_model base;
    settings s;
    an_conv conv1;
    an_norm bn1;
    block block[STAGES][MOST_BLOCKS];
    an_dense fc;
} resnet;

static block open_block(an_ctx *cx, int stage, int index, int64_t in, int64_t out)
{
    char name[96];
    const int stride = in == out ? 1 : 2;
    block b = {.changes = in != out};
    snprintf(name, sizeof name, "layer%d.%d.conv1", stage + 1, index);
    b.conv1 = an_conv_open(cx, name, in, out, 3, stride, 1, 1, false, AN_CONV_KAIMING);
    snprintf(name, sizeof name, "layer%d.%d.bn1", stage + 1, index);
    b.bn1 = an_norm_open(cx, name, out);
    snprintf(name, sizeof name, "layer%d.%d.conv2", stage + 1, index);
    b.conv2 = an_conv_open(cx, name, out, out, 3, 1, 1, 1, false, AN_CONV_KAIMING);
    snprintf(name, sizeof name, "layer%d.%d.bn2", stage + 1, index);
    b.bn2 = an_norm_open(cx, name, out);
    if (!b.changes) return b;
    snprintf(name, sizeof name, "layer%d.%d.downsample.0", stage + 1, index);
    b.down = an_conv_open(cx, name, in, out, 1, stride, 0, 1, false, AN_CONV_KAIMING);
    snprintf(name, sizeof name, "layer%d.%d.downsample.1", stage + 1, index);
    b.down_norm = an_norm_open(cx, name, out);
    return b;
}

/* x [B,H,W,C] to [B,H,W,C], or where the block changes the size to [B,H/2,W/2,2C] */
static an_tensor *apply_block(const block *b, an_tensor *x, bool training)
{
    an_tensor *y = an_relu_at(AN_AT, an_norm_apply(&b->bn1, an_conv_apply(&b->conv1, x), training));
    y = an_norm_apply(&b->bn2, an_conv_apply(&b->conv2, y), training);
    if (b->changes) x = an_norm_apply(&b->down_norm, an_conv_apply(&b->down, x), training);
    return an_relu_at(AN_AT, an_add_at(AN_AT, y, x));
}

/* images u8 [B,H,W,C]: logits f32 [B,classes] */
static an_tensor *forward(const void *model, an_tensor *images, bool training)
{
    const resnet *m = model;
    an_tensor *x = an_image_normalised(m->base.cx, &m->s.image, images);                  /* [B,H,W,C] */
    x = an_relu_at(AN_AT, an_norm_apply(&m->bn1, an_conv_apply(&m->conv1, x), training)); /* [B,H,W,F] */
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < (int)m->s.blocks; i++) x = apply_block(&m->block[stage][i], x, training);
    x = an_mean_at(AN_AT, x, AN_AXIS(1) | AN_AXIS(2), false); /* [B,4F] */
    return an_cast_at(AN_AT, an_linear_at(AN_AT, x, m->fc.weight, m->fc.bias), AN_F32);
}

static void *open_resnet(an_ctx *cx, const void *given)
{
    resnet *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->s = *(const settings *)given;
    m->base = (an_class_model){cx, "resnet", &m->s, forward};
    int64_t in = m->s.filters;
    m->conv1 = an_conv_open(cx, "conv1", m->s.image.channels, in, 3, 1, 1, 1, false, AN_CONV_KAIMING);
    m->bn1 = an_norm_open(cx, "bn1", in);
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < (int)m->s.blocks; i++) {
            const int64_t out = m->s.filters << stage;
            m->block[stage][i] = open_block(cx, stage, i, in, out);
            in = out;
        }
    m->fc = an_dense_open(cx, "fc", in, m->s.image.classes);
    return m;
}

/* ---- numbers and words */

static void count(const void *given, int64_t samples, an_model_counts *out)
{
    const settings *s = given;
    const an_image_settings *image = &s->image;
    double pixels = (double)image->height * (double)image->width,
           products = pixels * 9 * (double)(image->channels * s->filters);
    int64_t in = s->filters;
    *out = (an_model_counts){.parameters = 9 * image->channels * in + 2 * in};
    for (int stage = 0; stage < STAGES; stage++) {
        const int64_t width = s->filters << stage;
        if (stage > 0) pixels /= 4;
        for (int64_t i = 0; i < s->blocks; i++) {
            const int64_t weights = 9 * in * width + 9 * width * width + (in != width ? in * width : 0);
            out->parameters += weights + 4 * width + (in != width ? 2 * width : 0);
            products += pixels * (double)weights;
            in = width;
        }
        out->largest = 9 * width * width;
    }
    out->parameters += in * image->classes + image->classes;
    out->largest = AN_MAX(out->largest, in * image->classes);
    out->parameters_printed = out->parameters;
    out->flops = out->flops_printed = 6 * (double)samples * products;
}

static void describe(const void *given, const char *parameters, an_text *out)
{
    const settings *s = given;
    const an_image_settings *i = &s->image;
    an_text_printf(out,
                   "%s): images of %lld x %lld,\n        %lld channels, three stages of %lld blocks from %lld filters "
                   "on, %lld classes\n",
                   parameters, (long long)i->height, (long long)i->width, (long long)i->channels, (long long)s->blocks,
                   (long long)s->filters, (long long)i->classes);
}

/* Running statistics, which an_batch_norm moves by the batches of all ranks. */
static int64_t state_micro(const char *state)
{
    (void)state;
    return AN_STATE_OF_ALL;
}

const an_model an_resnet_model = {.name = "resnet",
                                  AN_IMAGE_ROW,
                                  .keys = &keys,
                                  .settings_bytes = sizeof(settings),
                                  .weight_keys = weight_keys,
                                  .halve = halve,
                                  .presets = presets,
                                  .n_presets = AN_COUNT(presets),
                                  .check = check,
                                  .head = "fc.",
                                  .miniature = miniature,
                                  .open = open_resnet,
                                  .state_micro = state_micro,
                                  .count = count,
                                  .describe = describe};
