/* make_zip.h: archives of stored members for tests, as torch.save writes them: sizes in the directory, data aligned to
 * 64 bytes by an extra field. */
#ifndef AN_TEST_MAKE_ZIP_H
#define AN_TEST_MAKE_ZIP_H

#include "base/text.h"
#include "io/formats/zip.h"
#include <string.h>

typedef struct make_zip {
    an_text file, directory;
    unsigned n;
} make_zip;

static inline void make_zip_number(an_text *out, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++, x >>= 8) an_text_putn(out, &(char){(char)(x & 255)}, 1);
}

/* A member as it lies in the file: `bytes` of data, which are `unpacked` bytes with this checksum when they are taken by `method`. */
static inline void make_zip_put(make_zip *z, const char *name, const void *data, size_t bytes, uint64_t method,
                                uint32_t crc, size_t unpacked)
{
    const size_t at = z->file.len, n = strlen(name), extra = 4 + (64 - (at + 30 + n + 4) % 64) % 64;
    for (int directory = 0; directory < 2; directory++) {
        an_text *out = directory ? &z->directory : &z->file;
        make_zip_number(out, directory ? 0x02014b50 : 0x04034b50, 4);
        if (directory) make_zip_number(out, 0, 2); /* made by */
        make_zip_number(out, 0, 2);                /* needed */
        make_zip_number(out, 0x0800, 2);           /* names are UTF-8 */
        make_zip_number(out, method, 2);           /* 0: stored, 8: deflated */
        make_zip_number(out, 0, 4);                /* time and date */
        make_zip_number(out, crc, 4);
        make_zip_number(out, bytes, 4);
        make_zip_number(out, unpacked, 4);
        make_zip_number(out, n, 2);
        make_zip_number(out, directory ? 0 : extra, 2);
        if (directory) make_zip_number(out, 0, 10), make_zip_number(out, at, 4);
        an_text_putn(out, name, n);
    }
    make_zip_number(&z->file, 0x4246, 2); /* "FB" */
    make_zip_number(&z->file, extra - 4, 2);
    for (size_t i = 4; i < extra; i++) an_text_putn(&z->file, "Z", 1);
    an_text_putn(&z->file, data, bytes);
    z->n++;
}

static inline void make_zip_add(make_zip *z, const char *name, const void *data, size_t bytes)
{
    make_zip_put(z, name, data, bytes, 0, an_crc32(data, bytes), bytes);
}

static inline void make_zip_end(make_zip *z)
{
    const size_t at = z->file.len, n = z->directory.len;
    an_text_putn(&z->file, z->directory.data, n);
    make_zip_number(&z->file, 0x06054b50, 4);
    make_zip_number(&z->file, 0, 4);
    make_zip_number(&z->file, z->n, 2);
    make_zip_number(&z->file, z->n, 2);
    make_zip_number(&z->file, n, 4);
    make_zip_number(&z->file, at, 4);
    make_zip_number(&z->file, 0, 2);
    an_text_free(&z->directory);
}

#endif
