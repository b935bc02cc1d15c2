/* image_head.c: see image_head.h. */
#include "models/image_head.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings */

/* Numbers of "0.1,0.2"; false where they are not `n` finite ones. */
static bool read_numbers(const char *text, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(text, &end);
        if (end == text || !isfinite(out[i]) || *end != (i + 1 < n ? ',' : '\0')) return false;
        text = end + 1;
    }
    return true;
}

an_status an_image_check(an_err *err, const an_image_settings *s, int64_t batch)
{
    double number[AN_IMAGE_MOST_CHANNELS];
    if ((double)batch * (double)s->height * (double)s->width * (double)AN_MAX(s->channels, 1) > INT32_MAX)
        return an_fail(err, AN_E_USAGE, "height=%lld width=%lld batch_size=%lld: a batch has more than 2^31 numbers",
                       (long long)s->height, (long long)s->width, (long long)batch);
    if (*s->mean && s->channels > 0 && !read_numbers(s->mean, s->channels, number))
        return an_fail(err, AN_E_USAGE, "mean=%.64s: one number for each of the %lld channels, with commas", s->mean,
                       (long long)s->channels);
    if (!*s->std || s->channels == 0) return AN_OK;
    bool good = read_numbers(s->std, s->channels, number);
    for (int64_t i = 0; good && i < s->channels; i++) good = number[i] > 0;
    if (good) return AN_OK;
    return an_fail(err, AN_E_USAGE, "std=%.64s: one number above 0 for each of the %lld channels, with commas", s->std,
                   (long long)s->channels);
}

const char *const an_image_changeable[] = {"label_smoothing", NULL};

int an_image_inputs(const void *settings, int64_t samples, an_array out[AN_MAX_ARRAYS])
{
    const an_image_settings *s = settings;
    out[0] = (an_array){.name = "images", .dtype = AN_U8, .shape = AN_SHAPE(samples, s->height, s->width, s->channels)};
    out[1] = (an_array){.name = "labels", .dtype = AN_I32, .shape = AN_SHAPE(samples), .limit = s->classes};
    return 2;
}

const an_sum *an_image_sums(const void *settings)
{
    (void)settings;
    static const an_sum sums[] = {{"loss", NULL}, {"accuracy", NULL}, {"top5", NULL}, {NULL, NULL}};
    return sums;
}

/* ---- graphs */

/* f32 [C] of numbers that are part of the plan. */
static an_tensor *channels_of(an_ctx *cx, const double *x, int64_t n)
{
    an_tensor *part[AN_IMAGE_MOST_CHANNELS];
    for (int64_t i = 0; i < n; i++) part[i] = an_full_at(AN_AT, cx, AN_F32, AN_SHAPE(1), (double)(float)x[i]);
    return n == 1 ? part[0] : an_concat_at(AN_AT, part, (int)n, 0);
}

an_tensor *an_image_normalised(an_ctx *cx, const an_image_settings *s, an_tensor *images)
{
    double mean[AN_IMAGE_MOST_CHANNELS] = {0}, std[AN_IMAGE_MOST_CHANNELS], scale[AN_IMAGE_MOST_CHANNELS];
    if (!*s->mean || !read_numbers(s->mean, s->channels, mean)) memset(mean, 0, sizeof mean);
    if (!*s->std || !read_numbers(s->std, s->channels, std))
        for (int i = 0; i < AN_IMAGE_MOST_CHANNELS; i++) std[i] = 1;
    for (int i = 0; i < AN_IMAGE_MOST_CHANNELS; i++) {
        scale[i] = 1 / (255 * std[i]);
        mean[i] = -mean[i] / std[i];
    }
    an_tensor *factor = channels_of(cx, scale, s->channels);
    an_tensor *x = an_mul_at(AN_AT, an_cast_at(AN_AT, images, AN_F32), factor);
    return an_add_at(AN_AT, x, channels_of(cx, mean, s->channels)); /* [B,H,W,C] */
}

/* How many labels are among the five largest logits, f32 scalar: fewer than five are greater than the label's. */
static an_tensor *top5_of(an_ctx *cx, const an_image_settings *s, an_tensor *logits, an_tensor *labels)
{
    const int64_t B = an_shape_of(logits).dim[0];
    an_tensor *column = an_reshape_at(AN_AT, labels, AN_SHAPE(B, 1));                             /* [B,1] */
    an_tensor *here = an_eq_at(AN_AT, an_iota_at(AN_AT, cx, AN_SHAPE(B, s->classes), 1), column); /* bool [B,K] */
    an_tensor *zero = an_full_at(AN_AT, cx, AN_F32, AN_SHAPE(B, s->classes), 0);
    an_tensor *own = an_sum_at(AN_AT, an_where_at(AN_AT, here, logits, zero), AN_AXIS(1), true); /* [B,1] */
    an_tensor *above = an_cast_at(AN_AT, an_gt_at(AN_AT, logits, own), AN_F32);                  /* [B,K] */
    an_tensor *rank = an_sum_at(AN_AT, above, AN_AXIS(1), false);                                /* [B] */
    an_tensor *counted = an_ge_at(AN_AT, labels, an_const_at(AN_AT, cx, AN_I32, 0));
    an_tensor *in = an_and_at(AN_AT, an_lt_at(AN_AT, rank, an_const_at(AN_AT, cx, AN_F32, 5)), counted);
    return an_sum_at(AN_AT, an_cast_at(AN_AT, in, AN_F32), AN_ALL, false);
}

/* logits f32 [B,classes], labels i32 [B] */
static an_losses losses_of(an_ctx *cx, const an_image_settings *s, an_tensor *logits, an_tensor *labels, bool training)
{
    an_tensor *each = an_cross_entropy_at(AN_AT, logits, labels);                      /* [B] */
    an_tensor *right = an_eq_at(AN_AT, an_argmax_at(AN_AT, logits, 1, false), labels); /* bool [B] */
    const double share = training ? s->label_smoothing : 0;
    if (share > 0) { /* the mean over all classes of -log softmax */
        an_tensor *all = an_neg_at(AN_AT, an_mean_at(AN_AT, an_log_softmax_at(AN_AT, logits, 1), AN_AXIS(1), false));
        all = an_mul_num_at(AN_AT, all, share);
        each = an_add_at(AN_AT, an_mul_num_at(AN_AT, each, 1 - share), all);
    }
    an_losses l = an_class_losses(each, right);
    l.sum[2] = top5_of(cx, s, logits, labels);
    return l;
}

an_losses an_image_losses(void *model, an_tensor *const *in, bool training)
{
    const an_class_model *m = model;
    an_scope_push(m->cx, m->scope);
    const an_losses l = losses_of(m->cx, m->settings, m->forward(model, in[0], training), in[1], training);
    an_scope_pop(m->cx);
    return l;
}

/* ---- layers */

static const char *join(char out[128], const char *name, const char *part)
{
    snprintf(out, 128, "%s.%s", name, part);
    return out;
}

an_conv an_conv_open(an_ctx *cx, const char *name, int64_t in, int64_t out, int kernel, int stride, int pad, int groups,
                     bool bias, an_conv_init init)
{
    char full[128];
    const int64_t fan_in = in / groups * kernel * kernel, fan_out = out / groups * kernel * kernel;
    const double bound = 1 / sqrt((double)fan_in);
    const an_init how = init == AN_CONV_KAIMING ? AN_NORMAL(sqrt(2 / (double)fan_out)) : AN_UNIFORM(-bound, bound);
    an_conv c = {.stride = stride, .pad = pad, .groups = groups};
    c.weight =
        an_param_at(AN_AT, cx, join(full, name, "weight"), AN_F32, AN_SHAPE(out, in / groups, kernel, kernel), how);
    if (bias)
        c.bias = an_param_at(AN_AT, cx, join(full, name, "bias"), AN_F32, AN_SHAPE(out), AN_UNIFORM(-bound, bound));
    return c;
}

an_tensor *an_conv_apply(const an_conv *c, an_tensor *x)
{
    const an_window w = {
        .stride_h = c->stride, .stride_w = c->stride, .pad_h = c->pad, .pad_w = c->pad, .groups = c->groups};
    an_tensor *ohwi = an_permute_at(AN_AT, c->weight, AN_SHAPE(0, 2, 3, 1)); /* [O,K,K,I/groups] */
    return an_conv2d_at(AN_AT, x, ohwi, c->bias, w);
}

an_norm an_norm_open(an_ctx *cx, const char *name, int64_t channels)
{
    char full[128];
    const an_shape shape = AN_SHAPE(channels);
    an_norm n;
    n.weight = an_param_at(AN_AT, cx, join(full, name, "weight"), AN_F32, shape, AN_ONES);
    n.bias = an_param_at(AN_AT, cx, join(full, name, "bias"), AN_F32, shape, AN_ZEROS);
    n.mean = an_state_at(AN_AT, cx, join(full, name, "running_mean"), AN_F32, shape, AN_ZEROS);
    n.var = an_state_at(AN_AT, cx, join(full, name, "running_var"), AN_F32, shape, AN_ONES);
    return n;
}

an_tensor *an_norm_apply(const an_norm *n, an_tensor *x, bool training)
{
    return an_batch_norm_at(AN_AT, x, n->weight, n->bias, n->mean, n->var, 0.1, 1e-5, training);
}

an_dense an_dense_open(an_ctx *cx, const char *name, int64_t in, int64_t out)
{
    char full[128];
    const double bound = 1 / sqrt((double)in);
    an_dense d;
    d.weight = an_param_at(AN_AT, cx, join(full, name, "weight"), AN_F32, AN_SHAPE(out, in), AN_UNIFORM(-bound, bound));
    d.bias = an_param_at(AN_AT, cx, join(full, name, "bias"), AN_F32, AN_SHAPE(out), AN_UNIFORM(-bound, bound));
    return d;
}
