/* zip.h: the members of a zip archive: stored without compression, as torch.save writes them, or deflated, as
 * numpy.savez_compressed does (PKWARE's APPNOTE.TXT 6.3.10, with ZIP64).
 *
 * Owns:      the directory of the archive: every range it says is checked before a member is handed out; inflating.
 * Does not:  join archives of several disks, or write (zip_write.h).
 *
 * Why not a library: libzip and libarchive copy every member out and do not tell at which byte it begins. Here weights
 * of gigabytes are used in the mapped file without a copy, and a sentence can name the byte.
 *
 * Invariants: members lie inside the archive, before its directory, do not overlap, and have unique names. */
#ifndef AN_IO_FORMATS_ZIP_H
#define AN_IO_FORMATS_ZIP_H

#include "base/arena.h"
#include "base/base.h"

typedef struct an_zip_member {
    const char *name;   /* in the arena, without NUL inside */
    uint64_t at, bytes; /* in the archive */
    uint64_t unpacked;  /* the same, but of a deflated member */
    uint32_t crc;
    bool deflated;
} an_zip_member;

typedef struct an_zip {
    const char *where; /* for sentences */
    const unsigned char *data;
    uint64_t bytes;
    an_zip_member *members; /* in the order of names */
    size_t n;
    bool any_packed; /* deflated members are there to be inflated; else one is refused */
} an_zip;

bool an_zip_is(const void *data, size_t bytes); /* begins as an archive does */
/* `where` and `data` outlive *out, whose lists are in the arena. */
an_status an_zip_open(an_err *err, const char *where, const void *data, size_t bytes, an_arena *a, an_zip *out);
/* The same of an archive whose members may be deflated. */
an_status an_zip_open_packed(an_err *err, const char *where, const void *data, size_t bytes, an_arena *a, an_zip *out);
const an_zip_member *an_zip_find(const an_zip *z, const char *name); /* NULL: no such member */
/* Reads the member and compares its CRC-32. */
an_status an_zip_check(an_err *err, const an_zip *z, const an_zip_member *m);
/* A deflated member's `unpacked` bytes into `*out`, to be freed, their CRC-32 compared. libz is loaded for it. */
an_status an_zip_inflate(an_err *err, const an_zip *z, const an_zip_member *m, void **out);

uint32_t an_crc32(const void *data, size_t n); /* of ISO 3309, as in zip and PNG */

#endif
