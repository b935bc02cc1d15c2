/* image_fit.h: resizes an image to what a model reads, with random changes for training (augmentation).
 *
 * Owns:      resizing (a triangle filter as wide as the step between samples, so that a smaller image is an average),
 *            crop, flip, brightness and contrast. All arithmetic is on integers: the same bits on every machine.
 * Invariant: random changes are a function of (seed, step, sample, split) alone. */
#ifndef AN_IO_DATA_IMAGE_FIT_H
#define AN_IO_DATA_IMAGE_FIT_H

#include "io/data/image_set.h"

/* A part of an image, in 1/65536 of a pixel; what is outside of the image is black. */
typedef struct an_image_part {
    int64_t top, left, height, width;
    bool flip;
    int brightness, contrast; /* 256: as it is */
} an_image_part;

/* The largest part in the middle that has the shape height : width. */
an_image_part an_image_middle(const an_image *x, int height, int width);
/* The part as [height,width,channels]; the channels of `x`. */
an_status an_image_fit(an_err *err, const an_image *x, const an_image_part *p, int height, int width, uint8_t *out);

/* Random changes of an image for training. */
typedef struct an_image_changes {
    int64_t crop;        /* shifted by up to so many pixels of the result */
    double zoom, jitter; /* a part whose area is smaller by up to this share; brightness and contrast by up to this */
    bool flip;           /* every second one is mirrored */
} an_image_changes;
typedef struct an_image_draw {
    uint64_t seed, step, sample;
    int split;
} an_image_draw;
void an_image_change(const an_image_changes *c, const an_image_draw *d, int height, int width, an_image_part *p);

#endif
