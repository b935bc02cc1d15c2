/* sha256.h: SHA-256, by nettle, as the 64 digits that download pages print: whether a download is the file it should
 * be. */
#ifndef AN_IO_FORMATS_SHA256_H
#define AN_IO_FORMATS_SHA256_H

#include "base/base.h"

enum { AN_SHA256_TEXT_BYTES = 65 };

/* 64 lower-case hexadecimal digits and NUL. */
void an_sha256(const void *data, size_t n, char out[AN_SHA256_TEXT_BYTES]);
an_status an_sha256_file(an_err *err, const char *path, char out[AN_SHA256_TEXT_BYTES]);

#endif
