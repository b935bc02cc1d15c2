/* sha256.c: see sha256.h. */
#include "io/formats/sha256.h"
#include "platform/platform.h"
#include <nettle/sha2.h>
#include <nettle/version.h>
#include <stdio.h>

void an_sha256(const void *data, size_t n, char out[AN_SHA256_TEXT_BYTES])
{
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&context);
    sha256_update(&context, n, data);
#if NETTLE_VERSION_MAJOR >= 4 /* always the whole digest from there on */
    sha256_digest(&context, digest);
#else
    sha256_digest(&context, sizeof digest, digest);
#endif
    for (size_t i = 0; i < sizeof digest; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

an_status an_sha256_file(an_err *err, const char *path, char out[AN_SHA256_TEXT_BYTES])
{
    an_map_file map;
    AN_TRY(an_file_map(err, path, &map));
    an_sha256(map.data ? map.data : "", map.bytes, out);
    an_file_unmap(&map);
    return AN_OK;
}
