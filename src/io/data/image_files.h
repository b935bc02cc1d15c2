/* image_files.h: image files on disk, in one folder for each class, and decoding them to pixels.
 *
 * Owns:      which files a folder has; decoding JPEG, PNG and WebP by libturbojpeg, libpng and libwebp, which are loaded at
 *            run time when the first such file is read, so that nothing else needs them.
 * Does not:  resize (image_fit.h), or turn an image as its EXIF orientation says.
 *
 * Files are untrusted: an image of more than AN_IMAGE_MOST_PIXELS is refused by its header, before memory is taken; a file
 * that is cut short or damaged is an error that names it. Memory is the file (at most AN_IMAGE_FILE_BYTES; of a PNG,
 * twice) and its pixels, of at most four bytes. */
#ifndef AN_IO_DATA_IMAGE_FILES_H
#define AN_IO_DATA_IMAGE_FILES_H

#include "io/data/class_names.h"
#include "io/data/image_set.h"

enum { AN_IMAGE_MOST_PIXELS = 1 << 26, AN_IMAGE_FILE_BYTES = 1 << 28, AN_IMAGE_FILES_MOST = 1 << 26 };

/* What tells one content of a file from another without reading it. */
typedef struct an_image_stamp {
    int64_t bytes, written; /* its size and, in seconds, the time of its last change */
} an_image_stamp;

typedef struct an_image_list {
    char **path;
    int32_t *label;
    an_image_stamp *stamp; /* as the folders were listed */
    int32_t n, cap, label_cap, stamp_cap;
    size_t bytes; /* of all that is kept of the files */
} an_image_list;

/* The files of FOLDER/CLASS/, each tenth of them for validation, or of FOLDER/train/CLASS/ and FOLDER/val/CLASS/.
 * `unlabelled` takes files of FOLDER and FOLDER/val themselves as well, before the others: their label is -1. */
an_status an_image_lists_open(an_err *err, const char *folder, const an_image_set_options *o, an_class_names *classes,
                              an_image_list out[AN_N_SPLITS]);
void an_image_list_free(an_image_list *l);

/* A file's pixels as 1 or 3 channels, whatever it holds. They are those of Pillow's convert("RGB") and convert("L"):
 * transparency is dropped, a gamma or colour profile is not applied, of an animation the first image is taken, ink (CMYK)
 * becomes light. Not so: 16 bits are rounded to 8 (Pillow cuts those of colours, and takes greys above 255 for white); the
 * grey of a JPEG is the brightness that is in the file (Pillow adds the colours up again: 0.1 apart in the mean, and up to
 * 43 in noise, whose saturated colours are cut off at 0 and 255). */
an_status an_image_file_read(an_err *err, const char *path, int channels, an_image *out);
/* The same of file i of a list. A file that changed since the folders were listed is refused, whether it can be decoded or
 * not: what is trained on is what the run's hash of the data is of. */
an_status an_image_list_read(an_err *err, const an_image_list *l, int64_t i, int channels, an_image *out);
/* The same of a file in memory; `name` is for sentences. */
an_status an_image_decode(an_err *err, const char *name, const void *data, size_t n, int channels, an_image *out);
/* Whether a name ends like that of an image. */
bool an_image_file_name(const char *name);

#endif
