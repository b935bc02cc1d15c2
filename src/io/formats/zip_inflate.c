/* zip_inflate.c: deflated members of a zip archive (RFC 1951) by libz (libz.h). Its stream is declared here: the struct is
 * the same since zlib 1.1, and the call that begins it compares its size. */
#include "io/formats/zip.h"
#include "io/formats/libz.h"
#include "io/formats/json.h"
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

enum { RAW = -15, NO_FLUSH = 0, OK = 0, STREAM_END = 1, PIECE = 1 << 30, MOST_PER_BYTE = 1032 };

/* Whether the member gives exactly the bytes that the directory says. */
static bool inflate_all(const an_libz *z, zstream *s, const unsigned char *from, uint64_t packed, unsigned char *to,
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
    an_libz lib;
    zstream s = {.next_in = z->data + m->at};
    *out = NULL;
    if (m->unpacked / MOST_PER_BYTE > m->bytes || m->unpacked > SIZE_MAX / 2)
        return an_fail(err, AN_E_IO,
                       "%s: byte %llu: %s would be more than deflate can make of its bytes; it is damaged", z->where,
                       (unsigned long long)m->at, an_quoted(m->name, quoted));
    AN_TRY(an_libz_load(err, z->where, "save it without compression (numpy.savez)", &lib));
    unsigned char *to = malloc((size_t)m->unpacked + 1);
    if (!to || lib.inflate_init(&s, RAW, "1.2.11", (int)sizeof s) != OK) {
        free(to);
        return an_fail_nomem(err, z->where, (size_t)m->unpacked);
    }
    const bool whole = inflate_all(&lib, &s, z->data + m->at, m->bytes, to, m->unpacked);
    lib.inflate_end(&s);
    if (whole && an_crc32(to, (size_t)m->unpacked) == m->crc) return *out = to, AN_OK;
    free(to);
    return an_fail(err, AN_E_IO,
                   "%s: byte %llu: %s cannot be decompressed, or its checksum differs; the file is damaged", z->where,
                   (unsigned long long)m->at, an_quoted(m->name, quoted));
}
