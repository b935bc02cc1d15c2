/* zip.c: see zip.h. An archive is read from its end: the end record names the directory, an entry of the directory
 * names its member, and the member's data follows a local header that repeats the name.
 *
 *     | local header, data | local header, data | ... | directory: entry, entry, ... | end record |
 *           ^------------------------------------------------'          ^-----------------'
 */
#include "io/formats/zip.h"
#include "io/formats/json.h"
#include <stdlib.h>
#include <string.h>

/* Sizes and signatures of the records (APPNOTE 4.3). */
enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    EXTRA_ZIP64 = 1,
    FLAG_ENCRYPTED = 1,
    METHOD_DEFLATE = 8
};
static const uint32_t SIGN_END = 0x06054b50, SIGN_END64 = 0x06064b50, SIGN_LOCATOR = 0x07064b50,
                      SIGN_ENTRY = 0x02014b50, SIGN_LOCAL = 0x04034b50, ALL_ONES = 0xFFFFFFFF;

static uint32_t u16(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}
static uint32_t u32(const unsigned char *p)
{
    return u16(p) | u16(p + 2) << 16;
}
static uint64_t u64(const unsigned char *p)
{
    return u32(p) | (uint64_t)u32(p + 4) << 32;
}

bool an_zip_is(const void *data, size_t bytes)
{
    return bytes >= 4 && (u32(data) == SIGN_LOCAL || u32(data) == SIGN_END);
}

static an_status damaged(an_err *err, const an_zip *z, uint64_t at, const char *what)
{
    return an_fail(err, AN_E_IO, "%s: byte %llu: %s; the file is damaged or was cut short: copy or save it again",
                   z->where, (unsigned long long)at, what);
}

/* ---- the directory's place: the end record, then, where a field of it is all ones, ZIP64's */

typedef struct directory {
    uint64_t at, bytes, n;
} directory;

static an_status find_end(an_err *err, const an_zip *z, uint64_t *out)
{
    if (z->bytes >= END_BYTES) {
        uint64_t first = z->bytes > END_BYTES + MAX_COMMENT ? z->bytes - END_BYTES - MAX_COMMENT : 0;
        for (uint64_t at = z->bytes - END_BYTES + 1; at-- > first;)
            if (u32(z->data + at) == SIGN_END && at + END_BYTES + u16(z->data + at + 20) == z->bytes)
                return *out = at, AN_OK;
    }
    return damaged(err, z, z->bytes, "the zip archive has no end record");
}

static an_status find_directory(an_err *err, const an_zip *z, directory *d)
{
    uint64_t end = 0;
    AN_TRY(find_end(err, z, &end));
    const unsigned char *p = z->data + end;
    if (u16(p + 4) != u16(p + 6)) return damaged(err, z, end + 4, "the zip archive is a part of several");
    *d = (directory){u32(p + 16), u32(p + 12), u16(p + 10)};
    if (end >= LOCATOR_BYTES && u32(p - LOCATOR_BYTES) == SIGN_LOCATOR) {
        uint64_t at = u64(p - LOCATOR_BYTES + 8);
        if (end - LOCATOR_BYTES < END64_BYTES || at > end - LOCATOR_BYTES - END64_BYTES ||
            u32(z->data + at) != SIGN_END64)
            return damaged(err, z, end - LOCATOR_BYTES, "the ZIP64 end record is not where it should be");
        *d = (directory){u64(z->data + at + 48), u64(z->data + at + 40), u64(z->data + at + 32)};
        end = at;
    }
    if (d->at > end || d->bytes > end - d->at)
        return damaged(err, z, end, "the zip archive's directory is outside of the file");
    if (d->n > d->bytes / ENTRY_BYTES) return damaged(err, z, end, "the zip archive's directory is too short");
    return AN_OK;
}

/* ---- one entry */

typedef struct entry {
    uint64_t at; /* of the entry */
    uint64_t packed, bytes, local;
    uint32_t name_bytes, crc;
    bool deflated;
} entry;

/* A field that is all ones has its value in the ZIP64 extra field, in this order. */
static bool read_extra(const unsigned char *p, size_t n, entry *e)
{
    uint64_t *fields[] = {&e->bytes, &e->packed, &e->local};
    for (size_t at = 0; at + 4 <= n;) {
        size_t size = u16(p + at + 2);
        if (size > n - at - 4) return false;
        if (u16(p + at) == EXTRA_ZIP64) {
            const unsigned char *q = p + at + 4, *stop = q + size;
            for (size_t i = 0; i < AN_COUNT(fields); i++) {
                if (*fields[i] != ALL_ONES) continue;
                if (stop - q < 8) return false;
                *fields[i] = u64(q);
                q += 8;
            }
            return true;
        }
        at += 4 + size;
    }
    return e->bytes != ALL_ONES && e->packed != ALL_ONES && e->local != ALL_ONES;
}

static an_status read_entry(an_err *err, const an_zip *z, uint64_t at, uint64_t stop, entry *e, uint64_t *next)
{
    const unsigned char *p = z->data + at;
    if (stop - at < ENTRY_BYTES || u32(p) != SIGN_ENTRY)
        return damaged(err, z, at, "no entry of the zip archive's directory is here");
    uint64_t tail = (uint64_t)u16(p + 28) + u16(p + 30) + u16(p + 32);
    if (tail > stop - at - ENTRY_BYTES) return damaged(err, z, at, "the entry is longer than the directory");
    *e = (entry){.at = at,
                 .packed = u32(p + 20),
                 .bytes = u32(p + 24),
                 .local = u32(p + 42),
                 .name_bytes = u16(p + 28),
                 .crc = u32(p + 16)};
    if (!read_extra(p + ENTRY_BYTES + e->name_bytes, u16(p + 30), e))
        return damaged(err, z, at, "the entry's ZIP64 sizes are missing");
    if (u16(p + 8) & FLAG_ENCRYPTED)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: byte %llu: the member is encrypted; save it without a password",
                       z->where, (unsigned long long)at);
    e->deflated = u16(p + 10) == METHOD_DEFLATE && z->any_packed;
    if (!e->deflated && (u16(p + 10) != 0 || e->packed != e->bytes))
        return an_fail(err, AN_E_UNSUPPORTED,
                       "%s: byte %llu: the member is compressed (method %u), which torch.save never does; unpack the "
                       "archive and pack it again with zip -0 -r",
                       z->where, (unsigned long long)at, (unsigned)u16(p + 10));
    *next = at + ENTRY_BYTES + tail;
    return AN_OK;
}

/* Where the member's data begins: after its local header, whose own extra field may be longer. */
static an_status find_data(an_err *err, const an_zip *z, const entry *e, uint64_t limit, an_zip_member *m)
{
    const unsigned char *p = z->data + e->local;
    if (limit < LOCAL_BYTES || e->local > limit - LOCAL_BYTES || u32(p) != SIGN_LOCAL)
        return damaged(err, z, e->at, "the entry points at no member");
    uint64_t head = LOCAL_BYTES + (uint64_t)u16(p + 26) + u16(p + 28);
    if (head > limit - e->local || e->packed > limit - e->local - head)
        return damaged(err, z, e->local, "the member is longer than the archive");
    if (u16(p + 26) != e->name_bytes || memcmp(p + LOCAL_BYTES, z->data + e->at + ENTRY_BYTES, e->name_bytes) != 0)
        return damaged(err, z, e->local, "the member's name differs from the directory's");
    m->at = e->local + head;
    m->bytes = e->packed;
    m->unpacked = e->bytes;
    m->deflated = e->deflated;
    m->crc = e->crc;
    return AN_OK;
}

/* ---- the archive */

static int compare_places(const void *a, const void *b)
{
    const an_zip_member *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int compare_names(const void *a, const void *b)
{
    const an_zip_member *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static an_status check_members(an_err *err, an_zip *z)
{
    char quoted[AN_QUOTED_BYTES];
    if (z->n == 0) return AN_OK;
    qsort(z->members, z->n, sizeof *z->members, compare_places);
    for (size_t i = 1; i < z->n; i++)
        if (z->members[i].at - z->members[i - 1].at < z->members[i - 1].bytes)
            return damaged(err, z, z->members[i].at, "two members of the zip archive overlap");
    qsort(z->members, z->n, sizeof *z->members, compare_names);
    for (size_t i = 1; i < z->n; i++)
        if (strcmp(z->members[i].name, z->members[i - 1].name) == 0)
            return an_fail(err, AN_E_IO, "%s: byte %llu: the archive has %s twice; the file is damaged", z->where,
                           (unsigned long long)z->members[i].at, an_quoted(z->members[i].name, quoted));
    return AN_OK;
}

static an_status open_members(an_err *err, an_arena *a, an_zip *out)
{
    const char *where = out->where;
    directory d = {0};
    AN_TRY(find_directory(err, out, &d));
    out->members = AN_NEW_ARRAY(a, an_zip_member, d.n + 1);
    if (!out->members) return an_fail_nomem(err, where, (size_t)d.n * sizeof *out->members);
    for (uint64_t at = d.at, i = 0; i < d.n; i++) {
        entry e;
        an_zip_member *m = &out->members[out->n];
        AN_TRY(read_entry(err, out, at, d.at + d.bytes, &e, &at));
        AN_TRY(find_data(err, out, &e, d.at, m));
        const char *name = (const char *)out->data + e.at + ENTRY_BYTES;
        if (memchr(name, 0, e.name_bytes)) return damaged(err, out, e.at, "the entry's name has a NUL in it");
        if ((m->name = an_arena_printf(a, "%.*s", (int)e.name_bytes, name)) == NULL)
            return an_fail_nomem(err, where, e.name_bytes);
        out->n++;
    }
    return check_members(err, out);
}

an_status an_zip_open(an_err *err, const char *where, const void *data, size_t bytes, an_arena *a, an_zip *out)
{
    *out = (an_zip){.where = where, .data = data, .bytes = bytes};
    return open_members(err, a, out);
}

an_status an_zip_open_packed(an_err *err, const char *where, const void *data, size_t bytes, an_arena *a, an_zip *out)
{
    *out = (an_zip){.where = where, .data = data, .bytes = bytes, .any_packed = true};
    return open_members(err, a, out);
}

const an_zip_member *an_zip_find(const an_zip *z, const char *name)
{
    const an_zip_member key = {.name = name};
    return z->n ? bsearch(&key, z->members, z->n, sizeof key, compare_names) : NULL;
}

/* Eight bytes at a time through eight tables (Kounavis and Berry, "A Systematic Approach to Building High Performance
 * Software-Based CRC Generators", 2005): weights are gigabytes, and a byte at a time would be slower than the disk. */
uint32_t an_crc32(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t t[8][256], crc = 0xFFFFFFFF;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
        t[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = u32(p) ^ crc, high = u32(p + 4);
        crc = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
              t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
    }
    while (n-- > 0) crc = t[0][(crc ^ *p++) & 255] ^ crc >> 8;
    return ~crc;
}

an_status an_zip_check(an_err *err, const an_zip *z, const an_zip_member *m)
{
    char quoted[AN_QUOTED_BYTES];
    if (an_crc32(z->data + m->at, (size_t)m->bytes) == m->crc) return AN_OK;
    return an_fail(err, AN_E_IO,
                   "%s: byte %llu: the checksum of %s differs; the file is damaged (or was saved with torch's CRC-32 "
                   "switched off): copy or save it again",
                   z->where, (unsigned long long)m->at, an_quoted(m->name, quoted));
}
