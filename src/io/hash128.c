/* hash128.c: hashing pieces by xxHash, and hashes as text. See hash128.h. */
#include "io/hash128.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

const char *an_hash_text(an_hash128 h, char out[AN_HASH_TEXT_BYTES])
{
    for (size_t i = 0; i < sizeof h.bytes; i++) snprintf(out + 2 * i, 3, "%02x", h.bytes[i]);
    return out;
}

an_hasher an_hasher_begin(void)
{
    XXH3_state_t *state = XXH3_createState();
    return (an_hasher){.state = state, .failed = !state || XXH3_128bits_reset(state) != XXH_OK};
}

bool an_hasher_add(an_hasher *h, const void *data, size_t n)
{
    if (!h->failed && n > 0) h->failed = XXH3_128bits_update(h->state, data, n) != XXH_OK;
    return !h->failed;
}

bool an_hasher_end(an_hasher *h, an_hash128 *out)
{
    *out = (an_hash128){{0}};
    if (!h->failed) {
        XXH128_canonical_t digest;
        XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(h->state));
        memcpy(out->bytes, digest.digest, sizeof out->bytes);
    }
    XXH3_freeState(h->state);
    h->state = NULL;
    return !h->failed;
}

void an_hasher_end_text(an_hasher *h, bool ok, char out[AN_HASH_TEXT_BYTES])
{
    an_hash128 hash;
    *out = 0;
    if (an_hasher_end(h, &hash) && ok) an_hash_text(hash, out);
}
