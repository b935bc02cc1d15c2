/* image_classes.c: the task `image`: classifies images (io/data/image_set.h).
 *
 * A sample is an image, and so is a unit. The model has two inputs: images u8 [B,height,width,channels] and labels i32 [B].
 * Its settings are those of models/image_head.h: sizes, classes and normalisation, which the data settle where they are
 * 0 or empty. An image of another size is cropped around its middle and resized. In training it is augmented at random
 * (cropped, zoomed, flipped, its brightness and contrast changed) as a function of (seed, step, sample), the same with any
 * number of loader threads. A checkpoint holds the names of the classes. */
#include "train/tasks/image_classes.h"
#include "io/data/image_files.h"
#include "io/data/image_fit.h"
#include "io/data/order.h"
#include "platform/thread_pool.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT(name) offsetof(an_image_changes, name)
static const an_config_field fields[] = {
    {"crop", AN_CONFIG_INT, AT(crop), "0", 0, 1024, NULL,
     "training images are shifted by up to so many pixels, and what comes free is black"},
    {"zoom", AN_CONFIG_FLOAT, AT(zoom), "0.0", 0, 0.95, NULL,
     "and are a random part of the image, at most this share of its area smaller"},
    {"flip", AN_CONFIG_BOOL, AT(flip), "false", 0, 0, NULL, "and every second one, at random, is mirrored"},
    {"jitter", AN_CONFIG_FLOAT, AT(jitter), "0.0", 0, 0.9, NULL,
     "and brightness and contrast change by up to this share"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

typedef struct image_data {
    an_task_data head;
    an_image_set *set; /* NULL: opened without data */
    an_class_names classes;
    an_image_changes s;
    int height, width, channels;
    an_pool *readers; /* as many as there are loader threads; NULL: images are in memory, or the caller reads them */
} image_data;

enum { NO_LABEL = -1 };

static const image_data *images(const an_task_data *d)
{
    return (const image_data *)d;
}

/* ---- opening */

static an_status open_facts(an_err *err, const an_st *from, image_data *d)
{
    const char *text = from ? an_st_meta(from, AN_CKPT_TASK) : NULL;
    json_t *facts;
    if (!text) return AN_OK;
    AN_TRY(an_json_parse(err, an_st_path(from), 0, text, strlen(text), &facts));
    an_status status = an_class_names_from_json(err, an_st_path(from), json_object_get(facts, "classes"), &d->classes);
    json_decref(facts);
    return status;
}

static an_status facts(an_err *err, const an_task_data *d, an_text *out)
{
    (void)err;
    an_text_puts(out, "{\"classes\":");
    an_class_names_json(&images(d)->classes, out);
    an_text_puts(out, "}");
    return AN_OK;
}

static an_status settle(an_err *err, an_train_config *c, const image_data *d, const char *key, int64_t have)
{
    if (d->set && *an_train_number(c, key) == 0 && have == 0)
        return an_fail(
            err, AN_E_USAGE,
            "data=%s: images of a folder are all brought to one size, which height= and width= say: set both", c->data);
    return an_task_settle(err, c, key, have);
}

static char *text_of(an_train_config *c, const char *key)
{
    const an_config_field *f = an_config_find(c->model->keys, key);
    return f && f->type == AN_CONFIG_TEXT ? c->model_settings.bytes + f->offset : NULL;
}

/* Image i of a split as the model reads it, augmented with the draw `random`; NULL: not augmented. */
static an_status read_image(an_err *err, const image_data *d, int split, int64_t i, const an_image_draw *random,
                            uint8_t *out);

/* Mean and standard deviation of each channel, in units of 0 to 1, over training images spread evenly: at most 2^20 of a
 * data set in memory, 1000 of files. Validation images where there are no training images. */
static an_status measure(an_err *err, const image_data *d, double mean[4], double std[4])
{
    enum { MOST_STORED = 1 << 20, MOST_FILES = 1000 };
    uint64_t sum[4] = {0}, squares[4] = {0};
    int height, width;
    const int split = d->head.units[AN_TRAIN] > 0 ? AN_TRAIN : AN_VAL;
    const int64_t n = d->head.units[split],
                  most = an_image_set_size(d->set, &height, &width) ? MOST_STORED : MOST_FILES;
    const int64_t step = AN_MAX(n / most, 1);
    const size_t pixels = (size_t)d->height * (size_t)d->width;
    uint8_t *x = malloc(pixels * (size_t)d->channels);
    if (!x) return an_fail_nomem(err, "an image", pixels * (size_t)d->channels);
    an_status status = AN_OK;
    uint64_t count = 0;
    for (int64_t i = 0; i < n && status == AN_OK; i += step, count += pixels) {
        status = read_image(err, d, split, i, NULL, x);
        for (size_t k = 0; status == AN_OK && k < pixels * (size_t)d->channels; k++) {
            sum[k % (size_t)d->channels] += x[k];
            squares[k % (size_t)d->channels] += (uint64_t)x[k] * x[k];
        }
    }
    free(x);
    for (int c = 0; c < d->channels && count > 0; c++) {
        const double m = (double)sum[c] / (double)count, v = (double)squares[c] / (double)count - m * m;
        mean[c] = m / 255;
        std[c] = v > 1 ? sqrt(v) / 255 : 1;
    }
    return status;
}

/* The normalisation of the data, where the settings leave it open. */
static an_status settle_normalisation(an_err *err, an_train_config *c, const image_data *d)
{
    char *mean = text_of(c, "mean"), *std = text_of(c, "std");
    double m[4] = {0}, s[4] = {1, 1, 1, 1};
    if (!mean || !std || (*mean && *std) || !d->set) return AN_OK;
    AN_TRY(measure(err, d, m, s));
    size_t mean_bytes = 0, std_bytes = 0;
    const bool set_mean = !*mean, set_std = !*std;
    for (int k = 0; k < d->channels; k++) {
        if (set_mean) mean_bytes += (size_t)snprintf(mean + mean_bytes, 64, "%s%.4f", k ? "," : "", m[k]);
        if (set_std) std_bytes += (size_t)snprintf(std + std_bytes, 64, "%s%.4f", k ? "," : "", s[k]);
    }
    return AN_OK;
}

static an_status open_set(an_err *err, const an_train_config *c, int64_t channels, bool whole, image_data *d)
{
    const an_image_set_options o = {
        .source = c->data, .whole = whole, .known = d->classes.n ? &d->classes : NULL, .channels = (int)channels};
    AN_TRY(an_image_set_open(err, &o, &d->set));
    an_class_names_free(&d->classes);
    d->head.loaded = true;
    d->head.built_in = an_image_set_built_in(d->set);
    d->head.bytes = an_image_set_bytes(d->set);
    for (int split = 0; split < AN_N_SPLITS; split++) d->head.units[split] = an_image_set_count(d->set, split);
    if (channels && channels != an_image_set_channels(d->set))
        return an_fail(err, AN_E_DATA, "data=%s: its images have %d channels, the model reads %lld", c->data,
                       an_image_set_channels(d->set), (long long)channels);
    return an_class_names_copy(err, an_image_set_classes(d->set), &d->classes);
}

static an_status open_parts(an_err *err, an_train_config *c, const an_st *from, int flags, image_data *d)
{
    int height = 0, width = 0;
    int64_t *classes = an_train_number(c, "classes");
    memcpy(&d->s, c->task_settings.bytes, sizeof d->s);
    if (!(flags & AN_OPEN_INITIAL) || !(flags & AN_OPEN_DATA)) AN_TRY(open_facts(err, from, d));
    if (flags & AN_OPEN_DATA) {
        AN_TRY(open_set(err, c, *an_train_number(c, "channels"), flags & AN_OPEN_WHOLE_FILE, d));
        an_image_set_size(d->set, &height, &width);
    }
    if (d->set && height == 0 && c->workers > 1) AN_TRY(an_pool_open(err, (int)c->workers, &d->readers));
    AN_TRY(settle(err, c, d, "height", height));
    AN_TRY(settle(err, c, d, "width", width));
    AN_TRY(settle(err, c, d, "channels", d->set ? an_image_set_channels(d->set) : 0));
    AN_TRY(settle(err, c, d, "classes", d->classes.n));
    if (d->classes.n > *classes)
        return an_fail(err, AN_E_USAGE, "classes=%lld, but %s has %d", (long long)*classes, c->data, d->classes.n);
    d->height = (int)*an_train_number(c, "height");
    d->width = (int)*an_train_number(c, "width");
    d->channels = (int)*an_train_number(c, "channels");
    return settle_normalisation(err, c, d);
}

static void close_images(an_task_data *task)
{
    image_data *d = (image_data *)task;
    an_pool_close(d->readers);
    an_image_set_close(d->set);
    an_class_names_free(&d->classes);
}

static an_status open_images(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *data)
{
    if (!an_train_number(c, "height") || !an_train_number(c, "width") || !an_train_number(c, "channels") ||
        !an_train_number(c, "classes"))
        return an_fail(err, AN_E_USAGE, "task=image: the model %s reads no images", c->model->name);
    return open_parts(err, c, from, flags, (image_data *)data);
}

/* As of Fashion-MNIST. */
static const an_task_size sizes[] = {{"height", 28}, {"width", 28}, {"channels", 1}, {"classes", 10}, {NULL, 0}};

static an_status read_image(an_err *err, const image_data *d, int split, int64_t i, const an_image_draw *random,
                            uint8_t *out)
{
    an_image x;
    AN_TRY(an_image_set_read(err, d->set, split, i, &x));
    const an_loader_stage before = an_loader_enter(AN_LOADER_AUGMENT);
    an_image_part p = an_image_middle(&x, d->height, d->width);
    if (random) an_image_change(&d->s, random, d->height, d->width, &p);
    const an_status status = an_image_fit(err, &x, &p, d->height, d->width, out);
    an_loader_enter(before);
    an_image_free(&x);
    return status;
}

/* ---- batches and evaluation samples */

static an_status count(an_err *err, const an_task_data *d, int split, int64_t *out)
{
    *out = d->units[split];
    if (*out > 0) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "the %s split has no images: each tenth file of a class is for validation, or folders train "
                   "and val",
                   split == AN_TRAIN ? "training" : "validation");
}

static size_t sample_bytes(const image_data *d)
{
    return (size_t)d->height * (size_t)d->width * (size_t)d->channels;
}

static an_status read_sample(an_err *err, const image_data *d, int split, int64_t row, int64_t i,
                             const an_image_draw *random, void *const *array)
{
    ((int32_t *)array[1])[i] = an_image_set_label(d->set, split, row);
    return read_image(err, d, split, row, random, (uint8_t *)array[0] + (size_t)i * sample_bytes(d));
}

static an_status batch(an_err *err, const an_task_data *task, const an_sample_range *range, uint64_t step,
                       void *const *array)
{
    const image_data *d = images(task);
    for (int64_t i = 0; i < range->samples; i++) {
        const uint64_t s = (uint64_t)(range->first + i);
        const int64_t row = an_draw_row(task->units[range->split], range->split, range->seed, step, s, range->per_step);
        const an_image_draw random = {range->seed, step, s, range->split};
        AN_TRY(read_sample(err, d, range->split, row, i, range->split == AN_TRAIN ? &random : NULL, array));
    }
    return AN_OK;
}

/* Samples of an evaluation's batch, by the readers at once. */
typedef struct reading {
    const image_data *d;
    int split;
    int64_t first, failed; /* failed: the first sample that was not read, of which `err` tells; -1: none */
    void *const *array;
    pthread_mutex_t lock; /* of failed and err */
    an_err err;
} reading;

static void read_one(void *arg, int64_t i, int thread)
{
    reading *r = arg;
    an_err err = {0};
    (void)thread;
    if (read_sample(&err, r->d, r->split, r->first + i, i, NULL, r->array) == AN_OK) return;
    pthread_mutex_lock(&r->lock);
    if (r->failed < 0 || i < r->failed) {
        r->failed = i;
        r->err = err;
    }
    pthread_mutex_unlock(&r->lock);
}

static an_status read_images(an_err *err, const an_task_data *task, int split, int64_t first, int64_t n, int64_t room,
                             void *const *array)
{
    const image_data *d = images(task);
    reading r = {.d = d, .split = split, .first = first, .failed = -1, .array = array};
    pthread_mutex_init(&r.lock, NULL);
    an_pool_run(d->readers, n, read_one, &r);
    pthread_mutex_destroy(&r.lock);
    if (r.failed >= 0) return an_fail(err, r.err.code, "%s", r.err.text);
    memset((uint8_t *)array[0] + (size_t)n * sample_bytes(d), 0, (size_t)(room - n) * sample_bytes(d));
    for (int64_t i = n; i < room; i++) ((int32_t *)array[1])[i] = NO_LABEL;
    return AN_OK;
}

static void hash(const an_task_data *task, int split, char out[AN_HASH_TEXT_BYTES])
{
    an_image_set_hash(images(task)->set, split, out);
}

/* ---- questions: image files, or every image of a set */

static an_status ask_image(an_err *err, const image_data *d, const an_image *x, const char *name, an_questions *out)
{
    const an_image_part p = an_image_middle(x, d->height, d->width);
    uint8_t *more = realloc(out->data, (size_t)(out->samples + 1) * out->sample_bytes);
    if (!more) return an_fail_nomem(err, name, (size_t)(out->samples + 1) * out->sample_bytes);
    out->data = more;
    an_text_puts(&out->names, name);
    an_text_putn(&out->names, "", 1);
    if (out->names.failed) return an_fail_nomem(err, name, out->names.len);
    return an_image_fit(err, x, &p, d->height, d->width, more + (size_t)out->samples++ * out->sample_bytes);
}

static an_status ask_set(an_err *err, const image_data *d, const char *folder, an_questions *out)
{
    char number[64];
    an_image_set *set;
    const an_image_set_options o = {.source = folder, .whole = true, .unlabelled = true, .channels = d->channels};
    AN_TRY(an_image_set_open(err, &o, &set));
    an_status status = AN_OK;
    if (an_image_set_channels(set) != d->channels)
        status = an_fail(err, AN_E_DATA, "%s: its images have %d channels, the model reads %d", folder,
                         an_image_set_channels(set), d->channels);
    for (int64_t i = 0; status == AN_OK && i < an_image_set_count(set, AN_VAL); i++) {
        an_image x = {0};
        const char *path = an_image_set_path(set, AN_VAL, i);
        snprintf(number, sizeof number, "%lld", (long long)i);
        out->names_shown = path != NULL;
        status = an_image_set_read(err, set, AN_VAL, i, &x);
        if (status == AN_OK) status = ask_image(err, d, &x, path ? path : number, out);
        an_image_free(&x);
    }
    an_image_set_close(set);
    return status;
}

static an_status questions(an_err *err, const an_task_data *task, const char *word, const an_text *standard_input,
                           an_questions *out)
{
    const image_data *d = images(task);
    an_image x = {0};
    struct stat info;
    *out = (an_questions){.sample_bytes = sample_bytes(d)};
    an_status status;
    if (standard_input) {
        status = an_image_decode(err, "standard input", standard_input->data ? standard_input->data : "",
                                 standard_input->len, d->channels, &x);
        if (status == AN_OK) status = ask_image(err, d, &x, "standard input", out);
    } else if (an_image_file_name(word) || (stat(word, &info) == 0 && S_ISREG(info.st_mode))) {
        status = an_image_file_read(err, word, d->channels, &x);
        if (status == AN_OK) status = ask_image(err, d, &x, word, out);
    } else {
        status = ask_set(err, d, word, out);
    }
    an_image_free(&x);
    if (status != AN_OK) an_questions_free(out);
    return status;
}

static const an_class_names *classes(const an_task_data *d)
{
    return &images(d)->classes;
}

const an_task an_image_task = {.name = "image",
                               .unit = "image",
                               .units = "images",
                               .unit_rate = "images/s",
                               .sample = "image",
                               .built_in = "the built-in shapes (data=FOLDER for your own)",
                               .next = "ask it with\n    anneal predict",
                               .next_argument = " IMAGE",
                               .keys = &keys,
                               .settings_bytes = sizeof(an_image_changes),
                               .data_bytes = sizeof(image_data),
                               .open = open_images,
                               .close = close_images,
                               .sizes = sizes,
                               .hash = hash,
                               .batch = batch,
                               .count = count,
                               .read = read_images,
                               .facts = facts,
                               .questions = questions,
                               .classes = classes};
