/* sample_images.c: see sample_images.h. */
#include "train/sample_images.h"
#include "io/data/image_files.h"
#include "io/data/image_fit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool an_sample_images_fit(const an_array *a, int n)
{
    return n == 2 && a[0].dtype == AN_F32 && a[0].shape.rank == 4 &&
           (a[0].shape.dim[1] == 1 || a[0].shape.dim[1] == 3) && a[0].shape.dim[2] > 0 && a[0].shape.dim[2] <= 8192 &&
           a[0].shape.dim[3] > 0 && a[0].shape.dim[3] <= 8192 && a[1].dtype == AN_I32 && a[1].shape.rank == 1;
}

/* n numbers with commas, or one for all of them. */
static bool read_numbers(const char *text, int n, double *out)
{
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(text, &end);
        if (end == text || !isfinite(out[i])) return false;
        if (i == 0 && !*end) {
            for (int k = 1; k < n; k++) out[k] = out[0];
            return true;
        }
        if (*end != (i + 1 < n ? ',' : '\0')) return false;
        text = end + 1;
    }
    return true;
}

an_status an_sample_images_settle(an_err *err, const an_array *a, int n, const char *mean, const char *std,
                                  an_sample_images *out)
{
    double m[3] = {0}, s[3] = {1, 1, 1};
    if (!an_sample_images_fit(a, n)) return an_fail(err, AN_E_INTERNAL, "images for a model that reads none");
    out->channels = (int)a[0].shape.dim[1];
    out->height = (int)a[0].shape.dim[2];
    out->width = (int)a[0].shape.dim[3];
    out->classes = a[1].limit;
    bool good = !*mean || read_numbers(mean, out->channels, m);
    good = good && (!*std || read_numbers(std, out->channels, s));
    for (int i = 0; i < out->channels; i++) good = good && s[i] > 0;
    if (!good)
        return an_fail(err, AN_E_USAGE,
                       "pixel_mean=%.64s pixel_std=%.64s: one number for each of the %d channels, with "
                       "commas, or one for all; deviations above 0",
                       mean, std, out->channels);
    for (int i = 0; i < out->channels; i++) {
        out->scale[i] = (float)(1 / (255 * s[i]));
        out->shift[i] = (float)(-m[i] / s[i]);
    }
    return AN_OK;
}

an_status an_sample_images_open(an_err *err, const char *source, bool whole, an_sample_images *out)
{
    const an_image_set_options o = {.source = source, .whole = whole, .channels = out->channels};
    AN_TRY(an_image_set_open(err, &o, &out->set));
    const int32_t classes = an_image_set_classes(out->set)->n;
    if (an_image_set_channels(out->set) != out->channels)
        return an_fail(err, AN_E_DATA, "data=%s: its images have %d channels, the model reads %d", source,
                       an_image_set_channels(out->set), out->channels);
    if (classes <= out->classes) return AN_OK;
    return an_fail(err, AN_E_DATA, "data=%s: %d classes of images, the model has %lld", source, classes,
                   (long long)out->classes);
}

void an_sample_images_close(an_sample_images *d)
{
    an_image_set_close(d->set);
    d->set = NULL;
}

int64_t an_sample_images_count(const an_sample_images *d, int split)
{
    return an_image_set_count(d->set, split);
}

size_t an_sample_images_bytes(const an_sample_images *d)
{
    return an_image_set_bytes(d->set);
}

bool an_sample_images_built_in(const an_sample_images *d)
{
    return an_image_set_built_in(d->set);
}

/* u8 [height,width,channels] of any size to f32 [channels,height,width] of the model's. */
static an_status convert(an_err *err, const an_sample_images *d, const an_image *x, float *to)
{
    const size_t pixels = (size_t)d->height * (size_t)d->width, bytes = pixels * (size_t)d->channels;
    const an_image_part p = an_image_middle(x, d->height, d->width);
    uint8_t *fitted = malloc(bytes); /* [height,width,channels] */
    if (!fitted) return an_fail_nomem(err, "an image", bytes);
    an_status status = AN_OK;
    const an_loader_stage before = an_loader_enter(AN_LOADER_AUGMENT);
    an_loader_copied(bytes);
    if (x->height == d->height && x->width == d->width)
        memcpy(fitted, x->data, bytes);
    else
        status = an_image_fit(err, x, &p, d->height, d->width, fitted);
    an_loader_enter(before);
    for (int c = 0; status == AN_OK && c < d->channels; c++)
        for (size_t i = 0; i < pixels; i++)
            to[(size_t)c * pixels + i] = (float)fitted[i * (size_t)d->channels + (size_t)c] * d->scale[c] + d->shift[c];
    free(fitted);
    return status;
}

static size_t numbers(const an_sample_images *d)
{
    return (size_t)d->height * (size_t)d->width * (size_t)d->channels;
}

an_status an_sample_images_read(an_err *err, const an_sample_images *d, int split, int64_t row, int64_t at,
                                void *const *array)
{
    an_image x;
    ((int32_t *)array[1])[at] = an_image_set_label(d->set, split, row);
    AN_TRY(an_image_set_read(err, d->set, split, row, &x));
    an_status status = convert(err, d, &x, (float *)array[0] + (size_t)at * numbers(d));
    an_image_free(&x);
    return status;
}

void an_sample_images_hash(const an_sample_images *d, int split, char out[AN_HASH_TEXT_BYTES])
{
    an_image_set_hash(d->set, split, out);
}

an_status an_sample_images_ask(an_err *err, const an_sample_images *d, const char *path, an_questions *out)
{
    an_image x = {0};
    *out = (an_questions){.samples = 1, .sample_bytes = numbers(d) * sizeof(float)};
    AN_TRY(an_image_file_read(err, path, d->channels, &x));
    out->data = malloc(out->sample_bytes);
    an_status status = out->data ? convert(err, d, &x, out->data) : an_fail_nomem(err, path, out->sample_bytes);
    an_text_puts(&out->names, path);
    an_text_putn(&out->names, "", 1);
    if (status == AN_OK && out->names.failed) status = an_fail_nomem(err, path, out->names.len);
    an_image_free(&x);
    if (status != AN_OK) an_questions_free(out);
    return status;
}
