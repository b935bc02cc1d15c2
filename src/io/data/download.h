/* download.h: downloads a file, complete and with the expected SHA-256, or fails with a sentence.
 *
 * Owns:      PATH.part, which an interrupted download leaves and the next one continues; checking the SHA-256 before
 *            the file gets its name.
 * Does not:  know any address.
 *
 * libcurl is loaded at the first download (platform/dynamic_library.h), so that the program runs without it; where it
 * is missing, the sentence says how to provide the file by hand. */
#ifndef AN_IO_DATA_DOWNLOAD_H
#define AN_IO_DATA_DOWNLOAD_H

#include "base/base.h"

typedef struct an_download {
    const char *url, *path;
    const char *sha256;    /* 64 lower-case hexadecimal digits */
    uint64_t bytes;        /* the file's size: nothing longer is written */
    const char *otherwise; /* what to do without the network, to end a sentence: "name your copy with --from FILE" */
    void (*tell)(void *arg, uint64_t have, uint64_t bytes); /* progress; NULL: none */
    void *arg;
} an_download;

/* A file of this SHA-256 that is there already is not fetched again. The file's folder is made. */
an_status an_download_file(an_err *err, const an_download *d);

#endif
