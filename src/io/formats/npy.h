/* npy.h: NumPy's .npy files: one array each (the format: numpy.lib.format, versions 1 to 3).
 *
 * Owns:      the header: read strictly, checked against the file's size; written as NumPy writes it.
 * Does not:  convert data: what is not C order, little-endian and of a dtype below is refused with a sentence.
 *
 *     "\x93NUMPY" major minor, header length (2 bytes, 4 from version 2 on, little-endian)
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      blanks, newline, then the elements
 *
 * dtypes: <f4 <f8 <i4 <i8 |u1 |b1 (bools). The file is untrusted: no number in it is used before it is checked.
 */
#ifndef AN_IO_FORMATS_NPY_H
#define AN_IO_FORMATS_NPY_H

#include "base/text.h"
#include "platform/platform.h"

enum { AN_NPY_MAX_RANK = 8, AN_NPY_MAX_HEADER_BYTES = 65536 };

typedef struct an_npy {
    an_dtype dtype;
    int rank;
    int64_t dim[AN_NPY_MAX_RANK];
    const void *data; /* elements in C order, possibly unaligned: copy with memcpy */
    size_t bytes;
    an_map_file map; /* of an opened file */
} an_npy;

an_status an_npy_open(an_err *err, const char *path, an_npy *out); /* an_npy_close */
/* The same over memory that outlives it; sentences say `name` in place of a path. */
an_status an_npy_parse(an_err *err, const char *name, const void *data, size_t bytes, an_npy *out);
void an_npy_close(an_npy *a);
int64_t an_npy_elements(const an_npy *a);
double an_npy_number(const an_npy *a, int64_t i); /* element i of them */

/* The header in front of the elements, padded so that they begin at a multiple of 64. */
an_status an_npy_header(an_err *err, an_dtype dtype, int rank, const int64_t *dim, an_text *out);
/* A whole file, which replaces one of this name. */
an_status an_npy_write(an_err *err, const char *path, an_dtype dtype, int rank, const int64_t *dim, const void *data);

#endif
