/* image_set.h: data sets of labelled images: idx files, folders of image files, or built in.
 *
 * Owns:      a training and a validation split; names of classes; the pixels of image i as bytes [height,width,channels].
 * Does not:  resize or change images (io/data/image_fit.h); know models.
 *
 * A source is
 *     a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte,
 *         each plain or .gz (MNIST, Fashion-MNIST); the t10k files are for validation; images may have a fourth axis
 *     "fashion-mnist"   that folder as data/fashion-mnist, or as Debian's package dataset-fashion-mnist installs it
 *     "shapes"          2,000 images of 28 x 28 with one of four shapes, drawn here
 *     a folder with a folder of .jpg, .png and .webp files for each class (io/data/image_files.h), each tenth of which is
 *         for validation; or folders train and val of such
 *
 * Invariant: image i of a split is always the same one: files are in the order of their names' bytes. */
#ifndef AN_IO_DATA_IMAGE_SET_H
#define AN_IO_DATA_IMAGE_SET_H

#include "io/data/arrays.h"
#include "io/data/class_names.h"
#include "io/hash128.h"

typedef struct an_image_set an_image_set;

typedef struct an_image {
    const uint8_t *data; /* [height,width,channels] */
    int height, width, channels;
    void *memory; /* to be freed by an_image_free; NULL: the set's */
} an_image;
void an_image_free(an_image *x);

typedef struct an_image_set_options {
    const char *source;
    bool whole;                  /* every image is for validation; of idx folders, the t10k files */
    bool unlabelled;             /* with whole: images that lie in no folder of a class are taken too */
    const an_class_names *known; /* of the weights, or NULL; as in labelled_texts.h */
    int channels;                /* of folders of image files: 1 or 3; 0: 3 */
} an_image_set_options;

an_status an_image_set_open(an_err *err, const an_image_set_options *o, an_image_set **out);
void an_image_set_close(an_image_set *s);

const an_class_names *an_image_set_classes(const an_image_set *s);
int64_t an_image_set_count(const an_image_set *s, int split);
int an_image_set_channels(const an_image_set *s);
bool an_image_set_size(const an_image_set *s, int *height, int *width); /* false: images differ in size */
bool an_image_set_built_in(const an_image_set *s);
size_t an_image_set_bytes(const an_image_set *s);

int32_t an_image_set_label(const an_image_set *s, int split, int64_t i);
const char *an_image_set_path(const an_image_set *s, int split,
                              int64_t i); /* of its file; NULL: it is in a file of many */
/* Threads may share the set. */
an_status an_image_set_read(an_err *err, const an_image_set *s, int split, int64_t i, an_image *out);
/* XXH3-128 of a split, "" when a file cannot be read: pixels and labels; of image files, whose folder may move, their
 * names, sizes and bytes; of each in a split of more than 4 GiB, the first 64 KiB. */
void an_image_set_hash(const an_image_set *s, int split, char out[AN_HASH_TEXT_BYTES]);

#endif
