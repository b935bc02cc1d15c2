/* hash128.h: XXH3-128 hashes of tensors and of data, and their text: 32 hexadecimal digits. */
#ifndef AN_IO_HASH128_H
#define AN_IO_HASH128_H

#include "base/base.h"

typedef struct an_hash128 {
    unsigned char bytes[16];
} an_hash128;
enum { AN_HASH_TEXT_BYTES = 33 };

const char *an_hash_text(an_hash128 h, char out[AN_HASH_TEXT_BYTES]); /* returns out */

/* A hash of bytes that come in pieces. After a failure (no memory) nothing more is added. */
typedef struct an_hasher {
    void *state;
    bool failed;
} an_hasher;
an_hasher an_hasher_begin(void);
bool an_hasher_add(an_hasher *h, const void *data, size_t n); /* false: it failed, now or before */
bool an_hasher_end(an_hasher *h, an_hash128 *out);            /* frees it; false: it failed, and *out is zero */
/* Frees it too; "" where it failed, or unless `ok`: the caller could not read all that was to be hashed. */
void an_hasher_end_text(an_hasher *h, bool ok, char out[AN_HASH_TEXT_BYTES]);

#endif
