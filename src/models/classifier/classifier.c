/* classifier.c: a text classifier, under the task `text`.
 *
 *     tokens [B,length] -> embedding [B,length,width] -> mean over the tokens that are no padding (id 0) -> linear -> [B,classes]
 *
 * With input=vectors the embedding is made elsewhere: x [B,length,width] -> mean over length -> linear, and only the head
 * is trained. Parameters have PyTorch's names, shapes and initialisation: embedding.weight [vocabulary,width] (standard
 * normal), head.weight [classes,width], head.bias [classes] (uniform within 1/sqrt(width)). */
#include "models/classifier/classifier.h"
#include "models/class_head.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings */

typedef struct settings {
    int64_t vocabulary, classes, length, width;
    char input[AN_CONFIG_TEXT_BYTES];
} settings;

#define AT(name) offsetof(settings, name)
static const an_config_field fields[] = {
    {"vocabulary", AN_CONFIG_INT, AT(vocabulary), "0", 0, 1 << 24, NULL,
     "ids of tokens, padding among them; 0: as many as the data has"},
    {"classes", AN_CONFIG_INT, AT(classes), "0", 0, 1 << 20, NULL, "classes; 0: as many as the data has"},
    {"length", AN_CONFIG_INT, AT(length), "128", 1, 1 << 20, NULL, "tokens of a text; what is behind them is cut off"},
    {"width", AN_CONFIG_INT, AT(width), "768", 1, 1 << 20, NULL, "numbers in the embedding of a token"},
    {"input", AN_CONFIG_TEXT, AT(input), "tokens", 0, 0, "tokens|vectors",
     "vectors: embeddings made elsewhere, of a .npy file; the head alone is trained"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const changeable[] = {NULL};
static const char *const weight_keys[] = {"vocabulary", "width", "input", NULL};
static const char *const halve[] = {"length", "width", NULL};

static bool has_tokens(const settings *s)
{
    return strcmp(s->input, "vectors") != 0;
}

static an_status check(an_err *err, const void *given, int64_t batch)
{
    const settings *s = given;
    const double batch_size = (double)batch * (double)s->length * (double)s->width;
    const double table = (double)s->vocabulary * (double)s->width;
    if (batch_size > INT32_MAX || table > INT32_MAX || (double)s->classes * (double)s->width > INT32_MAX)
        return an_fail(
            err, AN_E_USAGE,
            "length=%lld width=%lld vocabulary=%lld classes=%lld batch_size=%lld: a tensor has more than 2^31 "
            "elements",
            (long long)s->length, (long long)s->width, (long long)s->vocabulary, (long long)s->classes,
            (long long)batch);
    return AN_OK;
}

static an_status adopt(an_err *err, const void *from, const char *name, void *given)
{
    const settings *file = from;
    settings *s = given;
    if (has_tokens(s) != has_tokens(file) && s->vocabulary > 0)
        return an_fail(err, AN_E_USAGE, "init_from=%s: its weights were trained with input=%s, the run has input=%s",
                       name, file->input, s->input);
    const int64_t length = s->length, classes = s->classes ? s->classes : file->classes;
    *s = *file;
    s->length = length;
    s->classes = classes;
    return AN_OK;
}

static void miniature(void *given)
{
    settings *s = given;
    s->width = AN_MIN(s->width, 64);
}

#define ISSUES                                                                                                         \
    "batch_size=32 max_iters=200 optimizer=sgd learning_rate=0.1 decay_lr=false weight_decay=0 grad_clip=0 "           \
    "eval_interval=50 "                                                                                                \
    "eval_iters=0 log_interval=10 out=issues"
static const an_preset presets[] = {
    {"issues", "seconds on any CPU: what a change still needs, of 300 built-in texts; data=FILE.csv for your own",
     ISSUES, 50, 5, NULL},
};

/* ---- graphs */

typedef struct classifier {
    an_class_model base;
    settings s;
    an_tensor *embedding;     /* [vocabulary,width]; NULL: the input has vectors */
    an_tensor *weight, *bias; /* [classes,width], [classes] */
} classifier;

static int inputs(const void *given, int64_t samples, an_array out[AN_MAX_ARRAYS])
{
    const settings *s = given;
    if (has_tokens(s))
        out[0] = (an_array){
            .name = "tokens", .dtype = AN_I32, .shape = AN_SHAPE(samples, s->length), .limit = s->vocabulary};
    else
        out[0] = (an_array){.name = "vectors", .dtype = AN_F32, .shape = AN_SHAPE(samples, s->length, s->width)};
    out[1] = (an_array){.name = "labels", .dtype = AN_I32, .shape = AN_SHAPE(samples), .limit = s->classes};
    return 2;
}

/* in: tokens [B,T] or vectors [B,T,C]. The mean over the tokens of each text, [B,C]; of a text without any, 0. */
static an_tensor *mean_of(const classifier *m, an_tensor *in)
{
    if (!m->embedding) return an_mean_at(AN_AT, in, AN_AXIS(1), false);
    const an_shape shape = an_shape_of(in);
    const int64_t B = shape.dim[0], T = shape.dim[1];
    an_tensor *real =
        an_cast_at(AN_AT, an_ne_at(AN_AT, in, an_const_at(AN_AT, m->base.cx, AN_I32, 0)), AN_F32); /* [B,T] */
    an_tensor *count = an_sum_at(AN_AT, real, AN_AXIS(1), true);                                   /* [B,1] */
    count = an_maximum_at(AN_AT, count, an_const_at(AN_AT, m->base.cx, AN_F32, 1));
    an_tensor *each = an_gather_at(AN_AT, m->embedding, in); /* [B,T,C] */
    each = an_mul_at(AN_AT, each, an_reshape_at(AN_AT, real, AN_SHAPE(B, T, 1)));
    return an_div_at(AN_AT, an_sum_at(AN_AT, each, AN_AXIS(1), false), count);
}

/* logits f32 [B,classes] */
static an_tensor *forward(const void *model, an_tensor *in, bool training)
{
    (void)training;
    const classifier *m = model;
    return an_cast_at(AN_AT, an_linear_at(AN_AT, mean_of(m, in), m->weight, m->bias), AN_F32);
}

static an_losses losses(void *model, an_tensor *const *in, bool training)
{
    const classifier *m = model;
    an_scope_push(m->base.cx, "classifier");
    an_tensor *logits = forward(m, in[0], training);                                  /* [B,classes] */
    an_tensor *each = an_cross_entropy_at(AN_AT, logits, in[1]);                      /* [B] */
    an_tensor *right = an_eq_at(AN_AT, an_argmax_at(AN_AT, logits, 1, false), in[1]); /* bool [B] */
    const an_losses l = an_class_losses(each, right);
    an_scope_pop(m->base.cx);
    return l;
}

static const an_sum *sums(const void *given)
{
    (void)given;
    static const an_sum both[] = {{"loss", NULL}, {"accuracy", NULL}, {NULL, NULL}};
    return both;
}

static void *open_classifier(an_ctx *cx, const void *given)
{
    classifier *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->base = (an_class_model){cx, "classifier", &m->s, forward};
    m->s = *(const settings *)given;
    const settings *s = &m->s;
    const double bound = 1 / sqrt((double)s->width);
    if (has_tokens(s))
        m->embedding =
            an_param_at(AN_AT, cx, "embedding.weight", AN_F32, AN_SHAPE(s->vocabulary, s->width), AN_NORMAL(1));
    m->weight =
        an_param_at(AN_AT, cx, "head.weight", AN_F32, AN_SHAPE(s->classes, s->width), AN_UNIFORM(-bound, bound));
    m->bias = an_param_at(AN_AT, cx, "head.bias", AN_F32, AN_SHAPE(s->classes), AN_UNIFORM(-bound, bound));
    return m;
}

/* ---- numbers and words */

static void count(const void *given, int64_t samples, an_model_counts *out)
{
    const settings *s = given;
    const int64_t table = has_tokens(s) ? s->vocabulary * s->width : 0, head = s->classes * s->width;
    *out = (an_model_counts){.parameters = table + head + s->classes, .largest = AN_MAX(table, head)};
    out->parameters_printed = out->parameters;
    out->flops = out->flops_printed = (double)samples * (double)(6 * head + 2 * s->length * s->width);
}

static void describe(const void *given, const char *parameters, an_text *out)
{
    const settings *s = given;
    char text[16];
    an_text_printf(out, "%s): mean of %lld %s of %lld numbers\n        (%s a text), %lld classes", parameters,
                   (long long)s->length, has_tokens(s) ? "embeddings" : "vectors", (long long)s->width,
                   an_bytes_text(4.0 * (double)s->length * (double)s->width, text), (long long)s->classes);
    if (has_tokens(s)) an_text_printf(out, ", %lld ids of tokens", (long long)s->vocabulary);
    an_text_puts(out, "\n");
}

const an_model an_classifier_model = {.name = "classifier",
                                      .task = "text",
                                      .keys = &keys,
                                      .n_data_keys = 2,
                                      .settings_bytes = sizeof(settings),
                                      .changeable = changeable,
                                      .weight_keys = weight_keys,
                                      .halve = halve,
                                      .too_large = "no smaller batch or model: more memory",
                                      .defaults = "data=issues",
                                      .presets = presets,
                                      .n_presets = AN_COUNT(presets),
                                      .check = check,
                                      .adopt = adopt,
                                      .miniature = miniature,
                                      .open = open_classifier,
                                      .close = free,
                                      .inputs = inputs,
                                      .sums = sums,
                                      .losses = losses,
                                      .predict = an_class_predict,
                                      .predicts_classes = an_class_predicts,
                                      .count = count,
                                      .describe = describe};
