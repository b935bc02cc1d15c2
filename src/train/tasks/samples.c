/* samples.c: the task `samples`, of imported models: named arrays (io/data/array_set.h), labelled images
 * (train/sample_images.h) for a model of one image, or windows of a token data set (io/data/token_data.h) for a
 * model whose only input is token ids.
 *
 * A sample is what the first axis of the model's arrays counts, and so is a unit. The graph of the model is kept in
 * checkpoints as the task's facts, so that a run goes on without the archive that it came from. */
#include "train/tasks/samples.h"
#include "io/data/array_file.h"
#include "io/data/array_set.h"
#include "io/data/image_files.h"
#include "io/data/order.h"
#include "io/data/token_data.h"
#include "train/sample_images.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct samples_settings {
    an_train_text feed, label, pixel_mean, pixel_std;
} samples_settings;

static const an_config_field fields[] = {
    {"feed", AN_CONFIG_TEXT, offsetof(samples_settings, feed), "", 0, 0, NULL,
     "which file, array or column is which array of the model: input:x,labels:y, or input:a+b of columns; empty: those "
     "of the arrays' names"},
    {"label", AN_CONFIG_TEXT, offsetof(samples_settings, label), "", 0, 0, NULL,
     "which of them is the labels: the same as feed=labels:NAME"},
    {"pixel_mean", AN_CONFIG_TEXT, offsetof(samples_settings, pixel_mean), "", 0, 0, NULL,
     "of images that feed an imported model: subtracted from each channel, whose values are 0 to 1; empty: 0"},
    {"pixel_std", AN_CONFIG_TEXT, offsetof(samples_settings, pixel_std), "", 0, 0, NULL,
     "and what each channel is then divided by; empty: 1"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

typedef struct samples_data {
    an_task_data head;
    /* One of these three has the data; all are NULL when it was opened without data. */
    an_array_set *set;
    an_sample_images images;     /* .set */
    an_data *tokens;             /* windows of it */
    an_tokenizer *own_tokenizer; /* the checkpoint's; NULL: the data's, if any */
    int64_t T;                   /* tokens in a window */
    int64_t ignore, batch;
    bool whole_batches; /* the graph computes the loss itself: no sample of a batch may be left out of it */
    int n;
    an_train_text label;           /* the name that label= gives, or "labels" */
    an_array array[AN_MAX_ARRAYS]; /* of one sample */
    bool of_classes;               /* the last array is labels of classes, or of values */
    union {
        max_align_t align;
        char bytes[AN_MODEL_SETTINGS_BYTES];
    } model;       /* a copy of the model's settings: `array` points to names in it */
    an_text graph; /* the model's description, kept in checkpoints */
} samples_data;

static const samples_data *samples(const an_task_data *d)
{
    return (const samples_data *)d;
}

static void close_samples(an_task_data *d)
{
    samples_data *s = (samples_data *)d;
    an_array_set_close(s->set);
    an_sample_images_close(&s->images);
    an_data_close(s->tokens);
    an_tokenizer_free(s->own_tokenizer);
    an_text_free(&s->graph);
}

/* ---- opening */

/* A text, a .bin file or a folder with train.bin. */
static bool is_tokens(const char *source)
{
    char path[AN_CKPT_PATH_BYTES];
    struct stat st;
    snprintf(path, sizeof path, "%s/train.bin", source);
    return strcmp(source, "corpus") == 0 || access(path, F_OK) == 0 ||
           (stat(source, &st) == 0 && S_ISREG(st.st_mode) && !an_array_file_name(source));
}

static an_status open_tokens(an_err *err, const an_train_config *c, bool whole, samples_data *d)
{
    const bool windows = d->n >= 1 && d->n <= 2 && d->array[0].dtype == AN_I32 && d->array[0].shape.rank == 2 &&
                         (d->n == 1 || (d->array[1].dtype == AN_I32 && d->array[1].shape.rank == 2 &&
                                        d->array[1].shape.dim[1] == d->array[0].shape.dim[1]));
    if (!windows)
        return an_fail(err, AN_E_DATA,
                       "data=%s: a text, but the model does not read ids [samples,tokens] with a label for each",
                       c->data);
    d->T = d->array[0].shape.dim[1];
    const an_data_options o = {.source = c->data, .tokenizer = d->own_tokenizer, .whole = whole};
    AN_TRY(an_data_open(err, &o, &d->tokens));
    for (int i = 0; i < d->n; i++)
        if (d->array[i].limit > 0 && an_data_vocab(d->tokens) > d->array[i].limit)
            return an_fail(err, AN_E_DATA, "data=%s: %lld different tokens, the model knows %lld", c->data,
                           (long long)an_data_vocab(d->tokens), (long long)d->array[i].limit);
    d->head.tokenizer = an_data_tokenizer(d->tokens);
    d->head.bytes = an_data_bytes(d->tokens);
    d->head.built_in = strcmp(c->data, "corpus") == 0;
    for (int split = 0; split < AN_N_SPLITS; split++) d->head.units[split] = an_data_tokens(d->tokens, split);
    return AN_OK;
}

/* feed= with label=NAME as labels:NAME. */
static an_status whole_feed(an_err *err, const samples_settings *s, an_train_text out)
{
    const bool labels = strncmp(s->feed, "labels:", 7) == 0 || strstr(s->feed, ",labels:");
    if (*s->label && labels)
        return an_fail(err, AN_E_USAGE, "label=%.100s, and feed= names the labels too: leave one of them out",
                       s->label);
    const int n = *s->label
                      ? snprintf(out, sizeof(an_train_text), "%s%slabels:%s", s->feed, *s->feed ? "," : "", s->label)
                      : snprintf(out, sizeof(an_train_text), "%s", s->feed);
    if (n < (int)sizeof(an_train_text)) return AN_OK;
    return an_fail(err, AN_E_USAGE, "feed= and label= together have more than %zu bytes", sizeof(an_train_text) - 1);
}

static an_status open_images(an_err *err, const an_train_config *c, bool whole, samples_data *d)
{
    AN_TRY(an_sample_images_open(err, c->data, whole, &d->images));
    for (int split = 0; split < AN_N_SPLITS; split++) d->head.units[split] = an_sample_images_count(&d->images, split);
    d->head.bytes = an_sample_images_bytes(&d->images);
    d->head.built_in = an_sample_images_built_in(&d->images);
    return AN_OK;
}

static an_status open_data(an_err *err, const an_train_config *c, bool whole, samples_data *d)
{
    const samples_settings *s = (const void *)c->task_settings.bytes;
    an_train_text feed;
    d->head.loaded = true;
    AN_TRY(whole_feed(err, s, feed));
    if (is_tokens(c->data)) return open_tokens(err, c, whole, d);
    if (an_sample_images_fit(d->array, d->n) && !*feed && !an_array_set_is(c->data, feed, d->array, d->n))
        return open_images(err, c, whole, d);
    AN_TRY(an_array_set_open(err, c->data, feed, d->array, d->n, whole, &d->set));
    for (int split = 0; split < AN_N_SPLITS; split++) {
        d->head.units[split] = an_array_set_samples(d->set, split);
        if (d->n > 1 && !d->whole_batches && !an_array_set_is_labelled(d->set, split, d->ignore))
            return an_fail(err, AN_E_DATA,
                           "data=%s: no sample of the %s split has a label: each is nan, negative or %lld", c->data,
                           split == AN_TRAIN ? "training" : "validation", (long long)d->ignore);
    }
    return AN_OK;
}

/* That of the checkpoint, so that its ids keep their meaning. */
static an_status open_tokenizer(an_err *err, const an_st *from, samples_data *d)
{
    const char *json = from ? an_st_meta(from, AN_CKPT_TOKENIZER) : NULL;
    if (json) AN_TRY(an_tokenizer_from_json(err, an_st_path(from), json, strlen(json), &d->own_tokenizer));
    d->head.tokenizer = d->own_tokenizer;
    return AN_OK;
}

static an_status open_parts(an_err *err, an_train_config *c, const an_st *from, int flags, samples_data *d)
{
    AN_TRY(c->model->settle(err, from, c->model_settings.bytes));
    const int64_t *ignore = an_train_number(c, "ignore");
    if (!c->model->label_use || !ignore)
        return an_fail(err, AN_E_INTERNAL, "the model %s does not say what its labels are", c->model->name);
    const an_label_use use = c->model->label_use(c->model_settings.bytes);
    memcpy(&d->model, &c->model_settings, sizeof d->model);
    d->n = c->model->inputs(d->model.bytes, 1, d->array);
    d->ignore = *ignore;
    d->batch = c->batch_size;
    d->of_classes = use.classes;
    d->whole_batches = use.whole_batches;
    AN_TRY(c->model->description(err, d->model.bytes, &d->graph));
    const samples_settings *s = (const void *)c->task_settings.bytes;
    snprintf(d->label, sizeof d->label, "%s", *s->label ? s->label : "labels");
    if (an_sample_images_fit(d->array, d->n))
        AN_TRY(an_sample_images_settle(err, d->array, d->n, s->pixel_mean, s->pixel_std, &d->images));
    AN_TRY(open_tokenizer(err, from, d));
    return flags & AN_OPEN_DATA ? open_data(err, c, flags & AN_OPEN_WHOLE_FILE, d) : AN_OK;
}

static an_status open_samples(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *data)
{
    if (!c->model->settle)
        return an_fail(err, AN_E_USAGE, "task=samples is for imported models, and %s is none", c->model->name);
    return open_parts(err, c, from, flags, (samples_data *)data);
}

static void assume(an_train_config *c)
{
    if (c->model->settle) (void)c->model->settle(NULL, NULL, c->model_settings.bytes);
}

static an_status check(an_err *err, const an_task_data *task)
{
    const samples_data *d = samples(task);
    if (d->tokens) return an_data_check(err, d->tokens, d->T);
    for (int split = 0; split < AN_N_SPLITS; split++)
        if (d->head.units[split] < 1)
            return an_fail(err, AN_E_DATA, "the %s split has no samples: ten are needed, or files of its own",
                           split == AN_VAL ? "validation" : "training");
    return AN_OK;
}

/* ---- batches and evaluation samples */

/* Where the labels of n windows go: the model's second array; for a model that reads none, *spare, which the caller
 * frees. NULL: no memory. */
static int32_t *labels_of(const samples_data *d, void *const *array, int32_t **spare, int64_t n)
{
    *spare = d->n == 2 ? NULL : malloc((size_t)(n * d->T) * sizeof **spare + 1);
    return d->n == 2 ? array[1] : *spare;
}

static an_status read_one(an_err *err, const samples_data *d, int split, int64_t row, int64_t at, void *const *array)
{
    return d->set ? an_array_set_read(err, d->set, split, row, d->ignore, at, array)
                  : an_sample_images_read(err, &d->images, split, row, at, array);
}

static an_status batch(an_err *err, const an_task_data *task, const an_sample_range *draw, uint64_t step,
                       void *const *array)
{
    const samples_data *d = samples(task);
    if (d->tokens) {
        int32_t *spare, *y = labels_of(d, array, &spare, draw->samples);
        const an_batch b = {.split = draw->split,
                            .seed = draw->seed,
                            .first = draw->first,
                            .B = draw->samples,
                            .T = d->T,
                            .per_step = draw->per_step};
        an_status status =
            y ? an_data_batch(err, d->tokens, &b, step, array[0], y) : an_fail_nomem(err, "labels of a batch", 0);
        free(spare);
        return status;
    }
    for (int64_t i = 0; i < draw->samples; i++) {
        const int64_t row = an_draw_row(d->head.units[draw->split], draw->split, draw->seed, step,
                                        (uint64_t)(draw->first + i), draw->per_step);
        AN_TRY(read_one(err, d, draw->split, row, i, array));
    }
    return AN_OK;
}

static an_status count(an_err *err, const an_task_data *task, int split, int64_t *out)
{
    const samples_data *d = samples(task);
    *out = d->tokens ? an_data_windows(d->tokens, split, d->T) : d->head.units[split];
    if (d->whole_batches) *out -= *out % d->batch;
    if (*out > 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "the %s split has no %s", split == AN_VAL ? "validation" : "training",
                   d->whole_batches ? "whole batch" : "samples");
}

/* Fills samples [n, room): labels that are ignored, and as inputs those of the first sample. */
static void fill_rest(const samples_data *d, int64_t n, int64_t room, void *const *array)
{
    for (int i = 0; i < d->n; i++) {
        const size_t bytes = an_array_bytes(&d->array[i]);
        const bool label = i == d->n - 1 && !d->whole_batches;
        for (int64_t r = n; r < room; r++) {
            char *to = (char *)array[i] + (size_t)r * bytes;
            const int32_t none = d->ignore < 0 ? (int32_t)d->ignore : -1;
            const float nan = NAN;
            for (size_t k = 0; label && k < bytes; k += 4)
                memcpy(to + k, d->of_classes ? (const void *)&none : &nan, 4);
            if (!label && n > 0) memcpy(to, array[i], bytes);
        }
    }
}

static an_status read_samples(an_err *err, const an_task_data *task, int split, int64_t first, int64_t n, int64_t room,
                              void *const *array)
{
    const samples_data *d = samples(task);
    if (d->tokens) {
        int32_t *spare, *y = labels_of(d, array, &spare, n);
        an_status status = y ? an_data_window(err, d->tokens, split, d->T, first, n, array[0], y)
                             : an_fail_nomem(err, "labels of a batch", 0);
        free(spare);
        AN_TRY(status);
    }
    for (int64_t i = 0; i < n && !d->tokens; i++) AN_TRY(read_one(err, d, split, first + i, i, array));
    fill_rest(d, n, room, array);
    return AN_OK;
}

static void locate(const an_task_data *task, int split, int64_t row, int array, an_text *out)
{
    const samples_data *d = samples(task);
    if (d->set)
        an_array_set_place(d->set, split, row, array, out);
    else
        an_text_printf(out, "sample %lld of the %s split", (long long)row,
                       split == AN_TRAIN ? "training" : "validation");
}

static void hash(const an_task_data *task, int split, char out[AN_HASH_TEXT_BYTES])
{
    const samples_data *d = samples(task);
    *out = 0;
    if (d->set) an_array_set_hash(d->set, split, out);
    if (d->images.set) an_sample_images_hash(&d->images, split, out);
}

static an_status facts(an_err *err, const an_task_data *task, an_text *out)
{
    an_text_puts(out, samples(task)->graph.data);
    return out->failed ? an_fail_nomem(err, "the graph of a checkpoint", out->len) : AN_OK;
}

/* ---- questions: rows for the model's first input, from an array or an image file */

static an_status ask_array(an_err *err, const samples_data *d, const char *name, const an_npy *a, an_questions *out)
{
    const an_array *in = &d->array[0];
    const int64_t row = (int64_t)(an_array_bytes(in) / an_dtype_size(in->dtype)), n = an_npy_elements(a);
    if (a->rank < 1 || a->dim[0] < 1 || n / a->dim[0] != row)
        return an_fail(err, AN_E_SHAPE, "%s: rows of %lld numbers, %s of the model has %lld", name,
                       (long long)(a->rank > 0 && a->dim[0] > 0 ? n / a->dim[0] : 0), in->name, (long long)row);
    *out = (an_questions){.samples = a->dim[0], .sample_bytes = (size_t)row * 4};
    char *to = malloc((size_t)n * 4 + 1);
    if (!to) return an_fail_nomem(err, name, (size_t)n * 4);
    out->data = to;
    for (int64_t i = 0; i < n; i++) {
        const double x = an_npy_number(a, i);
        const float narrow = (float)x;
        const int32_t whole = x >= INT32_MIN && x <= INT32_MAX ? (int32_t)x : 0;
        if (in->dtype == AN_I32 && (double)whole != x)
            return an_fail(err, AN_E_DATA, "%s: element %lld is %g, and %s of the model are whole numbers", name,
                           (long long)i, x, in->name);
        memcpy(to + 4 * i, in->dtype == AN_I32 ? (const void *)&whole : &narrow, 4);
    }
    return AN_OK;
}

/* The first input's array in a file of several, as training finds it there. */
static an_status ask_file(an_err *err, const samples_data *d, const char *path, an_questions *out)
{
    an_array_file *f;
    an_npy a;
    bool found;
    AN_TRY(an_array_file_open(err, path, &f));
    an_status status = an_array_file_find(err, f, d->array[0].name, "", &a, &found);
    if (status == AN_OK && !found && an_array_file_columns(f))
        status = an_array_file_find(err, f, "*", d->label, &a, &found);
    if (status == AN_OK && !found)
        status = an_fail(err, AN_E_DATA, "%s: %s, which the model reads, is not there", path, d->array[0].name);
    if (status == AN_OK) status = ask_array(err, d, path, &a, out);
    an_array_file_close(f);
    return status;
}

static an_status ask(an_err *err, const samples_data *d, const char *word, const an_text *standard_input,
                     an_questions *out)
{
    an_npy a;
    if (standard_input) {
        AN_TRY(an_npy_parse(err, "standard input", standard_input->data ? standard_input->data : "",
                            standard_input->len, &a));
        return ask_array(err, d, "standard input", &a, out);
    }
    if (an_array_file_name(word)) return ask_file(err, d, word, out);
    if (d->images.channels > 0 && an_image_file_name(word)) return an_sample_images_ask(err, &d->images, word, out);
    AN_TRY(an_npy_open(err, word, &a));
    an_status status = ask_array(err, d, word, &a, out);
    an_npy_close(&a);
    return status;
}

static an_status questions(an_err *err, const an_task_data *task, const char *word, const an_text *standard_input,
                           an_questions *out)
{
    *out = (an_questions){.samples = 0};
    an_status status = ask(err, samples(task), word, standard_input, out);
    if (status != AN_OK) an_questions_free(out);
    return status;
}

const an_task an_samples_task = {.name = "samples",
                                 .unit = "sample",
                                 .units = "samples",
                                 .unit_rate = "samples/s",
                                 .sample = "sample",
                                 .next = "write its weights for PyTorch with\n    anneal export",
                                 .next_argument = "",
                                 .built_in = "built-in samples (data= for your own)",
                                 .keys = &keys,
                                 .settings_bytes = sizeof(samples_settings),
                                 .data_bytes = sizeof(samples_data),
                                 .open = open_samples,
                                 .close = close_samples,
                                 .assume = assume,
                                 .check = check,
                                 .hash = hash,
                                 .batch = batch,
                                 .count = count,
                                 .read = read_samples,
                                 .facts = facts,
                                 .questions = questions,
                                 .questions_of_arrays = true,
                                 .locate = locate};
