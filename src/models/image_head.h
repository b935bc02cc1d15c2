/* image_head.h: what models of images share: their input, its normalisation, and the losses of classes.
 *
 * Owns:      the settings of sizes, classes and normalisation; arrays of a micro-batch; loss with label smoothing (Szegedy
 *            et al., "Rethinking the Inception architecture", CVPR 2016), accuracy, top-5 accuracy.
 * Does not:  know what is between image and logits.
 *
 * Images are u8 [B,H,W,C] up to the device, and are normalised there: (x / 255 - mean) / std for each channel. Evaluation
 * reports the plain loss, training the smoothed one. */
#ifndef AN_MODELS_IMAGE_HEAD_H
#define AN_MODELS_IMAGE_HEAD_H

#include "models/class_head.h"
#include <stdlib.h>

enum { AN_IMAGE_MOST_CHANNELS = 4, AN_IMAGE_DATA_KEYS = 4 };

/* The settings of a model of images begin with this. */
typedef struct an_image_settings {
    int64_t height, width, channels, classes;
    double label_smoothing;
    char mean[AN_CONFIG_TEXT_BYTES], std[AN_CONFIG_TEXT_BYTES]; /* "0.286" or "0.485,0.456,0.406"; empty: of the data */
} an_image_settings;

#define AN_IMAGE_AT(name) offsetof(an_image_settings, name)
/* The rows of its keys, sizes first, for a table of settings that begin with it at byte 0. */
#define AN_IMAGE_FIELDS                                                                                                 \
    {"height", AN_CONFIG_INT, AN_IMAGE_AT(height), "0", 0, 8192, NULL, "rows of an image; 0: as the data has them"},    \
        {"width",                                                                                                       \
         AN_CONFIG_INT,                                                                                                 \
         AN_IMAGE_AT(width),                                                                                            \
         "0",                                                                                                           \
         0,                                                                                                             \
         8192,                                                                                                          \
         NULL,                                                                                                          \
         "columns of an image; 0: as the data has them"},                                                               \
        {"channels",                                                                                                    \
         AN_CONFIG_INT,                                                                                                 \
         AN_IMAGE_AT(channels),                                                                                         \
         "0",                                                                                                           \
         0,                                                                                                             \
         AN_IMAGE_MOST_CHANNELS,                                                                                        \
         NULL,                                                                                                          \
         "1: grey, 3: colours; 0: as the data has them"},                                                               \
        {"classes", AN_CONFIG_INT, AN_IMAGE_AT(classes), "0", 0, 1 << 20, NULL, "classes; 0: as many as the data has"}, \
        {"label_smoothing",                                                                                             \
         AN_CONFIG_FLOAT,                                                                                               \
         AN_IMAGE_AT(label_smoothing),                                                                                  \
         "0.0",                                                                                                         \
         0,                                                                                                             \
         0.99,                                                                                                          \
         NULL,                                                                                                          \
         "share of a label that is spread over all classes in training"},                                               \
        {"mean",                                                                                                        \
         AN_CONFIG_TEXT,                                                                                                \
         AN_IMAGE_AT(mean),                                                                                             \
         "",                                                                                                            \
         0,                                                                                                             \
         0,                                                                                                             \
         NULL,                                                                                                          \
         "of each channel, from 0 to 1, with commas; empty: of the training images"},                                   \
    {                                                                                                                   \
        "std", AN_CONFIG_TEXT, AN_IMAGE_AT(std), "", 0, 0, NULL, "standard deviation of each channel, likewise"         \
    }

/* What weights decide of them: classes do not belong to it, for another number of them gets a new head. */
#define AN_IMAGE_WEIGHT_KEYS "height", "width", "channels", "mean", "std"

an_status an_image_check(an_err *err, const an_image_settings *s, int64_t batch);

/* images u8 [B,H,W,C] -> f32 [B,H,W,C] in the policy's range, normalised */
an_tensor *an_image_normalised(an_ctx *cx, const an_image_settings *s, an_tensor *images);

/* ---- hooks of a model's row: `settings` begin with an_image_settings, `model` begins with an_class_model */
int an_image_inputs(const void *settings, int64_t samples, an_array out[AN_MAX_ARRAYS]);
const an_sum *an_image_sums(const void *settings);
an_losses an_image_losses(void *model, an_tensor *const *in, bool training);
extern const char *const an_image_changeable[];

/* The part of the row that is the same for all of them. */
#define AN_IMAGE_ROW                                                                                                   \
    .task = "image", .n_data_keys = AN_IMAGE_DATA_KEYS, .changeable = an_image_changeable,                             \
    .too_large = "no smaller batch or model: more memory", .defaults = "data=shapes", .close = free,                   \
    .inputs = an_image_inputs, .sums = an_image_sums, .losses = an_image_losses, .predict = an_class_predict,          \
    .predicts_classes = an_class_predicts

/* ---- layers, with parameters named as PyTorch names them. Convolution weights are OIHW, as in its files. */
typedef struct an_conv {
    an_tensor *weight, *bias; /* [O,I/groups,K,K], [O] or NULL */
    int stride, pad, groups;
} an_conv;
typedef enum an_conv_init { AN_CONV_UNIFORM, AN_CONV_KAIMING } an_conv_init; /* 1/sqrt(fan in); normal, fan out, ReLU */
an_conv an_conv_open(an_ctx *cx, const char *name, int64_t in, int64_t out, int kernel, int stride, int pad, int groups,
                     bool bias, an_conv_init init);
an_tensor *an_conv_apply(const an_conv *c, an_tensor *x); /* [B,H,W,I] -> [B,H',W',O] */

/* Batch normalisation over all axes but the last (Ioffe and Szegedy, ICML 2015): momentum 0.1, eps 1e-5. */
typedef struct an_norm {
    an_tensor *weight, *bias, *mean, *var; /* [C] each; the last two are states: NAME.running_mean, NAME.running_var */
} an_norm;
an_norm an_norm_open(an_ctx *cx, const char *name, int64_t channels);
an_tensor *an_norm_apply(const an_norm *n, an_tensor *x, bool training);

typedef struct an_dense {
    an_tensor *weight, *bias; /* [out,in], [out] */
} an_dense;
an_dense an_dense_open(an_ctx *cx, const char *name, int64_t in, int64_t out); /* uniform within 1/sqrt(in) */

#endif
