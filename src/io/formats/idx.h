/* idx.h: MNIST's idx files: one array of bytes each, plain or compressed with gzip (NAME.gz).
 *
 * Owns:      the header, checked against the file's size; the bytes.
 * Does not:  know images or labels.
 *
 *     0 0 8 rank, then `rank` sizes (4 bytes, big-endian), then the elements       8: unsigned bytes, the only type read
 *
 * The file is untrusted: nothing is allocated before the claimed size is compared with the bytes that are there. A .gz is
 * unpacked by libz, loaded at run time, up to the size that its header gives. */
#ifndef AN_IO_FORMATS_IDX_H
#define AN_IO_FORMATS_IDX_H

#include "platform/platform.h"

enum { AN_IDX_MAX_RANK = 4 };
#define AN_IDX_MAX_BYTES ((uint64_t)8 << 30)

typedef struct an_idx {
    int rank;
    int64_t dim[AN_IDX_MAX_RANK];
    const uint8_t *data; /* elements in C order */
    size_t bytes;        /* of them */
    size_t held_bytes;   /* memory of this process: 0 of a plain file, which is mapped */
    void *memory;
    an_map_file map;
} an_idx;

/* `path`, or path.gz where there is no such file. */
an_status an_idx_open(an_err *err, const char *path, an_idx *out);
/* The same for bytes in memory, which must outlive it; errors say `name` in place of a path. */
an_status an_idx_parse(an_err *err, const char *name, const void *data, size_t bytes, an_idx *out);
void an_idx_close(an_idx *x);
/* Whether `path` or path.gz is there. */
bool an_idx_is_there(const char *path);

#endif
