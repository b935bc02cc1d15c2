/* vit.c: a vision transformer (Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021), under the task `image`.
 *
 *     x [B,H,W,C] -> patches [B,N,C P P] -> patch_embed.proj -> [B,N,D], cls_token in front -> [B,T,D], + pos_embed
 *       -> `depth` blocks -> norm -> the first token -> head -> [B,classes]
 *     block: x + attn(norm1(x)), x + mlp(norm2(x)) with GELU, four times as wide
 *
 * Of the last block's result the head reads the first token alone, and what the others would be enters no other number: there only
 * keys and values are computed of every token, all else (queries, proj, mlp, and their gradients) of the first.
 *
 * Parameters have timm's names and shapes (patch_embed.proj.weight is OIHW), norms its eps of 1e-6, weights its
 * initialisation of 0.02. The token and the positions do not decay. */
#include "models/vit/vit.h"
#include "models/image_head.h"
#include <stdio.h>
#include <stdlib.h>

enum { MOST_BLOCKS = 64 };

/* ---- settings */

typedef struct settings {
    an_image_settings image;
    int64_t patch, dim, depth, heads;
} settings;

#define AT(name) offsetof(settings, name)
static const an_config_field fields[] = {
    AN_IMAGE_FIELDS,
    {"patch", AN_CONFIG_INT, AT(patch), "16", 1, 256, NULL, "pixels on a side of a patch"},
    {"dim", AN_CONFIG_INT, AT(dim), "192", 1, 1 << 14, NULL, "numbers in a token"},
    {"depth", AN_CONFIG_INT, AT(depth), "12", 1, MOST_BLOCKS, NULL, "blocks"},
    {"heads", AN_CONFIG_INT, AT(heads), "3", 1, 256, NULL, "attention heads; they divide dim"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const weight_keys[] = {AN_IMAGE_WEIGHT_KEYS, "patch", "dim", "depth", "heads", NULL};
static const char *const halve[] = {"depth", NULL};

static int64_t patches(const settings *s)
{
    return (s->image.height / s->patch) * (s->image.width / s->patch);
}

static an_status check(an_err *err, const void *given, int64_t batch)
{
    const settings *s = given;
    const an_image_settings *i = &s->image;
    AN_TRY(an_image_check(err, i, batch));
    if (s->dim % s->heads)
        return an_fail(err, AN_E_USAGE, "dim=%lld heads=%lld: the heads must divide dim", (long long)s->dim,
                       (long long)s->heads);
    if (i->height > 0 && i->width > 0 && (i->height % s->patch || i->width % s->patch))
        return an_fail(err, AN_E_USAGE, "height=%lld width=%lld patch=%lld: patches must divide the image",
                       (long long)i->height, (long long)i->width, (long long)s->patch);
    if ((double)batch * (double)(patches(s) + 1) * 4 * (double)s->dim > INT32_MAX)
        return an_fail(err, AN_E_USAGE, "dim=%lld batch_size=%lld: a tensor has more than 2^31 elements",
                       (long long)s->dim, (long long)batch);
    return AN_OK;
}

static void miniature(void *given)
{
    settings *s = given;
    s->dim = 12 * s->heads;
    s->depth = AN_MIN(s->depth, 2);
}

#define TRAINING                                                                                                       \
    "height=224 width=224 batch_size=32 max_iters=1000 learning_rate=5e-4 min_lr=1e-6 warmup_iters=50 "                \
    "lr_decay_iters=1000 eval_interval=250 eval_iters=0 log_interval=10 weight_decay=0.05 beta2=0.999 "                \
    "label_smoothing=0.1 flip=true workers=8 out=vit_tiny"
static const an_preset presets[] = {
    {"vit_tiny", "for a GPU: a vision transformer of 5.5 M parameters at 224 x 224; data=FOLDER of images", TRAINING, 3,
     1, NULL},
};

/* ---- graphs */

typedef struct layer_norm {
    an_tensor *weight, *bias; /* [D] */
} layer_norm;

typedef struct block {
    layer_norm norm1, norm2;
    an_dense qkv, proj, fc1, fc2; /* [3D,D], [D,D], [4D,D], [D,4D] */
} block;

typedef struct vit {
    an_class_model base;
    settings s;
    an_tensor *cls, *position;            /* [1,1,D], [1,T,D] */
    an_tensor *patch_weight, *patch_bias; /* [D,C,P,P], [D] */
    block block[MOST_BLOCKS];
    layer_norm norm;
    an_dense head;
} vit;

static an_tensor *make(const vit *m, const char *name, const char *part, an_shape shape, an_init init)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", name, part);
    return an_param_at(AN_AT, m->base.cx, full, AN_F32, shape, init);
}

static layer_norm open_norm(const vit *m, const char *name)
{
    return (layer_norm){make(m, name, ".weight", AN_SHAPE(m->s.dim), AN_ONES),
                        make(m, name, ".bias", AN_SHAPE(m->s.dim), AN_ZEROS)};
}

static an_dense open_linear(const vit *m, const char *name, int64_t in, int64_t out)
{
    return (an_dense){make(m, name, ".weight", AN_SHAPE(out, in), AN_NORMAL(0.02)),
                      make(m, name, ".bias", AN_SHAPE(out), AN_ZEROS)};
}

static void open_block(vit *m, int i)
{
    char name[64];
    const int64_t D = m->s.dim;
    block *b = &m->block[i];
    snprintf(name, sizeof name, "blocks.%d.norm1", i);
    b->norm1 = open_norm(m, name);
    snprintf(name, sizeof name, "blocks.%d.attn.qkv", i);
    b->qkv = open_linear(m, name, D, 3 * D);
    snprintf(name, sizeof name, "blocks.%d.attn.proj", i);
    b->proj = open_linear(m, name, D, D);
    snprintf(name, sizeof name, "blocks.%d.norm2", i);
    b->norm2 = open_norm(m, name);
    snprintf(name, sizeof name, "blocks.%d.mlp.fc1", i);
    b->fc1 = open_linear(m, name, D, 4 * D);
    snprintf(name, sizeof name, "blocks.%d.mlp.fc2", i);
    b->fc2 = open_linear(m, name, 4 * D, D);
}

static an_tensor *linear(const an_dense *d, an_tensor *x)
{
    return an_linear_at(AN_AT, x, d->weight, d->bias);
}

static an_tensor *normalise(const layer_norm *n, an_tensor *x)
{
    return an_layer_norm_at(AN_AT, x, n->weight, n->bias, 1e-6);
}

/* x [B,T,D] by rows [from*D, to*D) of a qkv layer, as [B,H,T,D/H] each */
static void project(const vit *m, const an_dense *qkv, an_tensor *x, int from, int to, an_tensor **out)
{
    const an_shape shape = an_shape_of(x);
    const int64_t B = shape.dim[0], T = shape.dim[1], D = m->s.dim, H = m->s.heads;
    const an_dense part = {an_slice_at(AN_AT, qkv->weight, 0, from * D, to * D, 1),
                           an_slice_at(AN_AT, qkv->bias, 0, from * D, to * D, 1)};
    an_tensor *y = linear(&part, x); /* [B,T,(to-from)D] */
    for (int i = 0; i < to - from; i++) {
        an_tensor *one = an_slice_at(AN_AT, y, 2, i * D, (i + 1) * D, 1);
        out[i] = an_transpose_at(AN_AT, an_reshape_at(AN_AT, one, AN_SHAPE(B, T, H, D / H)), 1, 2);
    }
}

/* x [B,T,D]; the result [B,n,D] is that of the first n tokens: all of them, or what the last block is asked for. */
static an_tensor *attend(const vit *m, const block *b, an_tensor *x, int64_t n)
{
    const an_shape shape = an_shape_of(x);
    const int64_t B = shape.dim[0], D = m->s.dim;
    an_tensor *part[3]; /* [B,H,n,D/H], and twice [B,H,T,D/H] */
    if (n == shape.dim[1]) {
        project(m, &b->qkv, x, 0, 3, part);
    } else {
        project(m, &b->qkv, an_slice_at(AN_AT, x, 1, 0, n, 1), 0, 1, part);
        project(m, &b->qkv, x, 1, 3, part + 1);
    }
    an_tensor *y = an_attention_at(AN_AT, part[0], part[1], part[2], 0, false, 0, NULL); /* [B,H,n,D/H] */
    y = an_reshape_at(AN_AT, an_transpose_at(AN_AT, y, 1, 2), AN_SHAPE(B, n, D));
    return linear(&b->proj, y);
}

/* images u8 [B,H,W,C]: tokens [B,T,D] */
static an_tensor *embed(const vit *m, an_tensor *images)
{
    const settings *s = &m->s;
    const int64_t B = an_shape_of(images).dim[0], P = s->patch, C = s->image.channels, D = s->dim;
    const int64_t rows = s->image.height / P, columns = s->image.width / P;
    an_tensor *x = an_image_normalised(m->base.cx, &s->image, images); /* [B,H,W,C] */
    x = an_reshape_at(AN_AT, x, AN_SHAPE(B, rows, P, columns, P, C));
    x = an_permute_at(AN_AT, x, AN_SHAPE(0, 1, 3, 5, 2, 4)); /* [B,rows,columns,C,P,P] */
    x = an_reshape_at(AN_AT, x, AN_SHAPE(B, rows * columns, C * P * P));
    x = an_linear_at(AN_AT, x, an_reshape_at(AN_AT, m->patch_weight, AN_SHAPE(D, C * P * P)),
                     m->patch_bias); /* [B,N,D] */
    x = an_cast_at(AN_AT, x, AN_F32);
    an_tensor *parts[] = {an_expand_at(AN_AT, m->cls, AN_SHAPE(B, 1, D)), x};
    return an_add_at(AN_AT, an_concat_at(AN_AT, parts, 2, 1), m->position); /* [B,N+1,D] */
}

/* The residual branch's dtype may be narrower than the stream's. */
static an_tensor *add(an_tensor *x, an_tensor *branch)
{
    return an_add_at(AN_AT, x, an_cast_at(AN_AT, branch, an_dtype_of(x)));
}

/* logits f32 [B,classes] */
static an_tensor *forward(const void *model, an_tensor *images, bool training)
{
    (void)training;
    const vit *m = model;
    an_tensor *x = embed(m, images); /* [B,T,D] */
    const int64_t B = an_shape_of(x).dim[0], T = an_shape_of(x).dim[1];
    for (int i = 0; i < (int)m->s.depth; i++) {
        const block *b = &m->block[i];
        const int64_t n = i + 1 < (int)m->s.depth ? T : 1; /* tokens of the block's result */
        an_tensor *y = attend(m, b, normalise(&b->norm1, x), n);
        x = add(an_slice_at(AN_AT, x, 1, 0, n, 1), y);
        x = add(x, linear(&b->fc2, an_gelu_at(AN_AT, linear(&b->fc1, normalise(&b->norm2, x)))));
    }
    x = an_reshape_at(AN_AT, x, AN_SHAPE(B, m->s.dim));
    return an_cast_at(AN_AT, linear(&m->head, normalise(&m->norm, x)), AN_F32);
}

static void *open_vit(an_ctx *cx, const void *given)
{
    vit *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->s = *(const settings *)given;
    m->base = (an_class_model){cx, "vit", &m->s, forward};
    const settings *s = &m->s;
    const int64_t D = s->dim, C = s->image.channels, P = s->patch;
    m->cls = make(m, "cls_token", "", AN_SHAPE(1, 1, D), AN_NORMAL(1e-6));
    m->position = make(m, "pos_embed", "", AN_SHAPE(1, patches(s) + 1, D), AN_NORMAL(0.02));
    an_param_decay(m->cls, false);
    an_param_decay(m->position, false);
    m->patch_weight = make(m, "patch_embed.proj", ".weight", AN_SHAPE(D, C, P, P), AN_NORMAL(0.02));
    m->patch_bias = make(m, "patch_embed.proj", ".bias", AN_SHAPE(D), AN_ZEROS);
    for (int i = 0; i < (int)s->depth; i++) open_block(m, i);
    m->norm = open_norm(m, "norm");
    m->head = open_linear(m, "head", D, s->image.classes);
    return m;
}

/* ---- numbers and words */

static void count(const void *given, int64_t samples, an_model_counts *out)
{
    const settings *s = given;
    const int64_t D = s->dim, N = patches(s), patch = s->image.channels * s->patch * s->patch * D;
    const int64_t head = D * s->image.classes;
    *out = (an_model_counts){.parameters = patch + D + D + (N + 1) * D + s->depth * (12 * D * D + 13 * D) + 2 * D +
                                           head + s->image.classes,
                             .largest = AN_MAX(AN_MAX(4 * D * D, patch), AN_MAX(head, (N + 1) * D))};
    out->parameters_printed = out->parameters;
    const double T = (double)(N + 1), d = (double)D;
    const double whole = 12 * T * d * d + 2 * T * T * d, last = (2 * T + 10) * d * d + 2 * T * d;
    const double one = (double)N * (double)patch + (double)(s->depth - 1) * whole + last + (double)head;
    out->flops = out->flops_printed = 6 * (double)samples * one;
}

static void describe(const void *given, const char *parameters, an_text *out)
{
    const settings *s = given;
    const an_image_settings *i = &s->image;
    an_text_printf(
        out,
        "%s): images of %lld x %lld,\n        %lld channels, patches of %lld, %lld blocks, width %lld, %lld heads, "
        "%lld classes\n",
        parameters, (long long)i->height, (long long)i->width, (long long)i->channels, (long long)s->patch,
        (long long)s->depth, (long long)s->dim, (long long)s->heads, (long long)i->classes);
}

const an_model an_vit_model = {.name = "vit",
                               AN_IMAGE_ROW,
                               .keys = &keys,
                               .settings_bytes = sizeof(settings),
                               .weight_keys = weight_keys,
                               .halve = halve,
                               .presets = presets,
                               .n_presets = AN_COUNT(presets),
                               .check = check,
                               .head = "head.",
                               .miniature = miniature,
                               .open = open_vit,
                               .count = count,
                               .describe = describe};
