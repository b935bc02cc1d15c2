/* zip_inflate.c: deflated members of a zip archive (RFC 1951) by libz, which is loaded when the first is read. Its stream is
 * declared here, so that no header of it is needed to build: the struct is the same since zlib 1.1, and inflateInit2_
 * compares its size. */
#include "io/formats/zip.h"
#include "io/formats/json.h"
#include "platform/platform.h"
#include <stdlib.h>
#include <string.h>

typedef struct zstream {
    const unsigned char *next_in;
    unsigned avail_in;
    unsigned long total_in;
    unsigned char *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state;
    void *(*zalloc)(void *opaque, unsigned items, unsigned size);
    void (*zfree)(void *opaque, void *address);
    void *opaque;
    int data_type;
    unsigned long adler, reserved;
} zstream;

typedef struct zlib {
    int (*init)(zstream *s, int window_bits, const char *version, int stream_bytes);
    int (*inflate)(zstream *s, int flush);
    int (*end)(zstream *s);
} zlib;

enum { RAW = -15, NO_FLUSH = 0, OK = 0, STREAM_END = 1, PIECE = 1 << 30, MOST_PER_BYTE = 1032 };

static an_status load(an_err *err, const char *where, zlib *z)
{
    static const char *const names[] = {"libz.so.1", "libz.1.dylib", "libz.so"};
    static const char *const symbols[] = {"inflateInit2_", "inflate", "inflateEnd"};
    void *places[] = {&z->init, &z->inflate, &z->end}, *lib = NULL;
    for (size_t i = 0; i < AN_COUNT(names) && !lib; i++) lib = an_dl_open(NULL, names[i]);
    for (size_t i = 0; i < AN_COUNT(symbols); i++) {
        void *found = lib ? an_dl_sym(lib, symbols[i]) : NULL;
        if (!found)
            return an_fail(err, AN_E_ENV,
                           "%s: the library that decompresses it is not installed: install zlib1g, or save it "
                           "without compression (numpy.savez)",
                           where);
        memcpy(places[i], &found, sizeof found);
    }
    return AN_OK;
}

/* Whether the member gives exactly the bytes that the directory says. */
static bool inflate_all(const zlib *z, zstream *s, const unsigned char *from, uint64_t packed, unsigned char *to,
                        uint64_t bytes)
{
    int code = OK;
    unsigned char spare; /* libz wants a place to write to, also where nothing comes */
    s->next_in = from;
    s->next_out = bytes ? to : &spare;
    while (code == OK) {
        const uint64_t used = (uint64_t)(s->next_in - from), made = bytes ? (uint64_t)(s->next_out - to) : 0;
        s->avail_in = (unsigned)AN_MIN(packed - used, PIECE);
        s->avail_out = (unsigned)AN_MIN(bytes - made, PIECE);
        code = z->inflate(s, NO_FLUSH); /* no progress is an error, so that this ends */
    }
    return code == STREAM_END && (uint64_t)(s->next_in - from) == packed &&
           (bytes == 0 || (uint64_t)(s->next_out - to) == bytes);
}

an_status an_zip_inflate(an_err *err, const an_zip *z, const an_zip_member *m, void **out)
{
    char quoted[AN_QUOTED_BYTES];
    zlib lib;
    zstream s = {.next_in = z->data + m->at};
    *out = NULL;
    if (m->unpacked / MOST_PER_BYTE > m->bytes || m->unpacked > SIZE_MAX / 2)
        return an_fail(err, AN_E_IO,
                       "%s: byte %llu: %s would be more than deflate can make of its bytes; it is damaged", z->where,
                       (unsigned long long)m->at, an_quoted(m->name, quoted));
    AN_TRY(load(err, z->where, &lib));
    unsigned char *to = malloc((size_t)m->unpacked + 1);
    if (!to || lib.init(&s, RAW, "1.2.11", (int)sizeof s) != OK) {
        free(to);
        return an_fail_nomem(err, z->where, (size_t)m->unpacked);
    }
    const bool whole = inflate_all(&lib, &s, z->data + m->at, m->bytes, to, m->unpacked);
    lib.end(&s);
    if (whole && an_crc32(to, (size_t)m->unpacked) == m->crc) return *out = to, AN_OK;
    free(to);
    return an_fail(err, AN_E_IO,
                   "%s: byte %llu: %s cannot be decompressed, or its checksum differs; the file is damaged", z->where,
                   (unsigned long long)m->at, an_quoted(m->name, quoted));
}
