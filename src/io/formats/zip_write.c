/* zip_write.c: see zip_write.h. Sizes and checksums are in the local headers, so that a reader needs no data
 * descriptors. */
#include "io/formats/zip_write.h"
#include "io/formats/zip.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, LOCAL_BYTES = 30, PADDING_ID = 0x4246, MAX_NAME = 60000 };
static const uint64_t ALL_ONES = 0xFFFFFFFF;

/* A record under construction: little-endian fields one after the other. */
typedef struct record {
    unsigned char bytes[128];
    size_t n;
} record;

static void put(record *r, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) r->bytes[r->n++] = (unsigned char)(x >> 8 * i);
}

static uint64_t low32(uint64_t x)
{
    return x < ALL_ONES ? x : ALL_ONES;
}

an_status an_zip_begin(an_err *err, const char *path, an_zip_writer *out)
{
    *out = (an_zip_writer){0};
    return an_save_begin(err, path, &out->save);
}

static an_zip_entry *grow(an_zip_writer *w)
{
    if (w->n == w->cap) {
        const size_t cap = w->cap ? 2 * w->cap : 64;
        an_zip_entry *more = realloc(w->entry, cap * sizeof *more);
        if (!more) return NULL;
        w->entry = more;
        w->cap = cap;
    }
    return &w->entry[w->n++];
}

/* Version, flags, method, time, date, checksum, sizes, length of the name: the same in both headers. */
static void put_fields(record *r, const an_zip_entry *e)
{
    const bool large = e->bytes >= ALL_ONES || e->at >= ALL_ONES;
    put(r, large ? 45 : 20, 2);
    put(r, 0x800, 2); /* names are UTF-8 */
    put(r, 0, 2);     /* stored */
    put(r, 0, 2);
    put(r, 0x21, 2); /* 1980-01-01: the same bytes at any time */
    put(r, e->crc, 4);
    put(r, low32(e->bytes), 4);
    put(r, low32(e->bytes), 4);
    put(r, strlen(e->name), 2);
}

an_status an_zip_add(an_err *err, an_zip_writer *w, const char *name, const void *data, uint64_t bytes)
{
    static const unsigned char zeros[ALIGNMENT];
    record head = {.n = 0}, extra = {.n = 0};
    const size_t length = strlen(name);
    if (length > MAX_NAME)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: a member's name of %zu bytes", w->save.path, length);
    an_zip_entry *e = grow(w);
    const char *kept = an_arena_printf(&w->arena, "%s", name);
    if (!e || !kept) return an_fail_nomem(err, w->save.path, length);
    *e = (an_zip_entry){.name = kept, .at = w->save.bytes, .bytes = bytes, .crc = an_crc32(data, (size_t)bytes)};
    if (bytes >= ALL_ONES) {
        put(&extra, 1, 2);
        put(&extra, 16, 2);
        put(&extra, bytes, 8);
        put(&extra, bytes, 8);
    }
    const uint64_t begins = e->at + LOCAL_BYTES + length + extra.n + 4;
    const size_t padding = (size_t)((ALIGNMENT - begins % ALIGNMENT) % ALIGNMENT);
    put(&extra, PADDING_ID, 2);
    put(&extra, padding, 2);
    put(&head, 0x04034b50, 4);
    put_fields(&head, e);
    put(&head, extra.n + padding, 2);
    AN_TRY(an_save_write(err, &w->save, head.bytes, head.n));
    AN_TRY(an_save_write(err, &w->save, name, length));
    AN_TRY(an_save_write(err, &w->save, extra.bytes, extra.n));
    AN_TRY(an_save_write(err, &w->save, zeros, padding));
    return bytes ? an_save_write(err, &w->save, data, (size_t)bytes) : AN_OK;
}

static an_status write_entry(an_err *err, an_zip_writer *w, const an_zip_entry *e)
{
    record head = {.n = 0}, extra = {.n = 0};
    if (e->bytes >= ALL_ONES || e->at >= ALL_ONES) {
        put(&extra, 1, 2);
        put(&extra, (e->bytes >= ALL_ONES ? 16 : 0) + (e->at >= ALL_ONES ? 8 : 0), 2);
        for (int i = 0; e->bytes >= ALL_ONES && i < 2; i++) put(&extra, e->bytes, 8);
        if (e->at >= ALL_ONES) put(&extra, e->at, 8);
    }
    put(&head, 0x02014b50, 4);
    put(&head, 45, 2);
    put_fields(&head, e);
    put(&head, extra.n, 2);
    put(&head, 0, 2 + 2 + 2); /* comment, disk, internal attributes */
    put(&head, 0, 4);         /* external attributes */
    put(&head, low32(e->at), 4);
    AN_TRY(an_save_write(err, &w->save, head.bytes, head.n));
    AN_TRY(an_save_write(err, &w->save, e->name, strlen(e->name)));
    return extra.n ? an_save_write(err, &w->save, extra.bytes, extra.n) : AN_OK;
}

static an_status write_end(an_err *err, an_zip_writer *w, uint64_t at, uint64_t bytes)
{
    record end = {.n = 0};
    const uint64_t end64 = w->save.bytes;
    if (at >= ALL_ONES || bytes >= ALL_ONES || w->n >= 0xFFFF) {
        put(&end, 0x06064b50, 4);
        put(&end, 44, 8);
        put(&end, 45, 2);
        put(&end, 45, 2);
        put(&end, 0, 8); /* disks */
        put(&end, w->n, 8);
        put(&end, w->n, 8);
        put(&end, bytes, 8);
        put(&end, at, 8);
        put(&end, 0x07064b50, 4);
        put(&end, 0, 4);
        put(&end, end64, 8);
        put(&end, 1, 4);
    }
    const uint64_t n = w->n < 0xFFFF ? w->n : 0xFFFF;
    put(&end, 0x06054b50, 4);
    put(&end, 0, 4);
    put(&end, n, 2);
    put(&end, n, 2);
    put(&end, low32(bytes), 4);
    put(&end, low32(at), 4);
    put(&end, 0, 2);
    return an_save_write(err, &w->save, end.bytes, end.n);
}

an_status an_zip_commit(an_err *err, an_zip_writer *w)
{
    const uint64_t at = w->save.bytes;
    for (size_t i = 0; i < w->n; i++) AN_TRY(write_entry(err, w, &w->entry[i]));
    AN_TRY(write_end(err, w, at, w->save.bytes - at));
    return an_save_commit(err, &w->save);
}

void an_zip_abort(an_zip_writer *w)
{
    an_save_abort(&w->save);
    an_arena_free(&w->arena);
    free(w->entry);
    w->entry = NULL;
    w->n = w->cap = 0;
}
