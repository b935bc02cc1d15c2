/* sample_images.h: labelled images (io/data/image_set.h) as samples of an imported model of one image.
 *
 * Owns:      cropping an image around its middle, resizing it to what the model reads, and its values:
 *            (x / 255 - mean) / std for each channel, f32 [channels,height,width] as PyTorch's vision models have them.
 * Does not:  change images at random; know how samples are drawn.
 *
 * A model fits whose only input is f32 [B,1 or 3,height,width], with one class a sample as labels. Classes are numbered
 * in the order of their names' bytes, as torchvision's ImageFolder does. */
#ifndef AN_TRAIN_SAMPLE_IMAGES_H
#define AN_TRAIN_SAMPLE_IMAGES_H

#include "io/data/image_set.h"
#include "io/hash128.h"
#include "train/task.h"

typedef struct an_sample_images {
    an_image_set *set; /* NULL: opened without data */
    int channels, height, width;
    int64_t classes;
    float scale[3], shift[3]; /* of each channel: x * scale + shift */
} an_sample_images;

/* Whether a model with these n input arrays fits. */
bool an_sample_images_fit(const an_array *a, int n);
/* Fills in sizes and normalisation. `mean` and `std`: "0.485,0.456,0.406", one number for all channels, or empty. */
an_status an_sample_images_settle(an_err *err, const an_array *a, int n, const char *mean, const char *std,
                                  an_sample_images *out);
/* `out` comes from an_sample_images_settle. More classes than the model knows are AN_E_DATA. */
an_status an_sample_images_open(an_err *err, const char *source, bool whole, an_sample_images *out);
void an_sample_images_close(an_sample_images *d);

int64_t an_sample_images_count(const an_sample_images *d, int split);
size_t an_sample_images_bytes(const an_sample_images *d);
bool an_sample_images_built_in(const an_sample_images *d);
/* Image `row` of a split and its class to place `at` of the two arrays. */
an_status an_sample_images_read(an_err *err, const an_sample_images *d, int split, int64_t row, int64_t at,
                                void *const *array);
void an_sample_images_hash(const an_sample_images *d, int split, char out[AN_HASH_TEXT_BYTES]);
/* An image file as an input to predict from. */
an_status an_sample_images_ask(an_err *err, const an_sample_images *d, const char *path, an_questions *out);

#endif
