/* libz.h: the calls of zlib that readers of compressed files use. It is loaded when the first such file is read, and its
 * interface is declared here, so that no header of it is needed to build: calls on opaque gzFile handles, stable since
 * 1.2.4, and those that inflate, stable since 1.1. */
#ifndef AN_IO_FORMATS_LIBZ_H
#define AN_IO_FORMATS_LIBZ_H

#include "base/base.h"

typedef struct an_libz {
    /* of .gz files */
    void *(*gz_open)(int fd, const char *mode);
    int (*gz_read)(void *file, void *to, unsigned bytes);
    const char *(*gz_error)(void *file, int *code);
    int (*gz_close)(void *file);
    /* of a z_stream, which the caller declares */
    int (*inflate_init)(void *stream, int window_bits, const char *version, int stream_bytes);
    int (*inflate)(void *stream, int flush);
    int (*inflate_end)(void *stream);
} an_libz;

/* AN_E_ENV with a sentence about the file `where`, which ends in what to do without zlib, where it is not installed. */
an_status an_libz_load(an_err *err, const char *where, const char *otherwise, an_libz *out);

#endif
