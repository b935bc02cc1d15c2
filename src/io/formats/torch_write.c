/* torch_write.c: see torch_write.h.
 *
 *     | header, "FB" padding, data | ... | directory, each entry with ZIP64's field | ZIP64's end | end |
 *
 * ZIP64's fields are always there, so that files of more than 4 GiB take no path of their own. */
#include "io/formats/torch_write.h"
#include "io/formats/zip.h"
#include "platform/platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, STEM_BYTES = 128, NAME_BYTES = STEM_BYTES + 48, BATCH = 1000 };
enum { UTF8_NAMES = 0x0800, VERSION_ZIP64 = 45, EXTRA_ZIP64 = 1, EXTRA_PADDING = 0x4246 };

/* ---- the pickle: opcodes of protocol 2, in the order and with the memo of Python's pickler */

typedef struct pickler {
    an_text *out;
    uint32_t memo;                       /* entries */
    int64_t dict, rebuild, storage, cpu; /* places in the memo; -1: not there yet */
    int64_t dtype[AN_N_DTYPES];
} pickler;

static void number(an_text *out, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++, x >>= 8) an_text_putn(out, &(char){(char)(x & 255)}, 1);
}

static int64_t remember(pickler *p)
{
    const bool small = p->memo < 256;
    an_text_puts(p->out, small ? "q" : "r");
    number(p->out, p->memo, small ? 1 : 4);
    return p->memo++;
}

static void recall(pickler *p, int64_t place)
{
    const bool small = place < 256;
    an_text_puts(p->out, small ? "h" : "j");
    number(p->out, (uint64_t)place, small ? 1 : 4);
}

static int64_t put_text(pickler *p, const char *text)
{
    an_text_puts(p->out, "X");
    number(p->out, strlen(text), 4);
    an_text_puts(p->out, text);
    return remember(p);
}

static void put_known_text(pickler *p, const char *text, int64_t *place)
{
    if (*place >= 0)
        recall(p, *place);
    else
        *place = put_text(p, text);
}

static void put_name(pickler *p, const char *module_and_name, int64_t *place)
{
    if (*place >= 0) {
        recall(p, *place);
        return;
    }
    an_text_printf(p->out, "c%s\n", module_and_name);
    *place = remember(p);
}

/* Of whole numbers that are not negative. */
static void put_number(pickler *p, uint64_t x)
{
    const int bytes = x < 256 ? 1 : x < 65536 ? 2 : x < 0x80000000u ? 4 : 0;
    if (bytes) {
        an_text_puts(p->out, bytes == 1 ? "K" : bytes == 2 ? "M" : "J");
        number(p->out, x, bytes);
        return;
    }
    int used = 1; /* two's complement, as short as it can be */
    while (x >> (8 * used - 1)) used++;
    an_text_puts(p->out, "\x8a");
    number(p->out, (uint64_t)used, 1);
    number(p->out, x, used);
}

static void put_numbers(pickler *p, int n, const int64_t *x)
{
    static const char *const ends[] = {"", "\x85", "\x86", "\x87"};
    if (n == 0) {
        an_text_puts(p->out, ")");
        return;
    }
    if (n > 3) an_text_puts(p->out, "(");
    for (int i = 0; i < n; i++) put_number(p, (uint64_t)x[i]);
    an_text_puts(p->out, n > 3 ? "t" : ends[n]);
    remember(p);
}

static const char *storage_class(an_dtype dtype)
{
    static const char *const names[AN_N_DTYPES] = {
        [AN_F32] = "torch\nFloatStorage", [AN_F64] = "torch\nDoubleStorage", [AN_BF16] = "torch\nBFloat16Storage",
        [AN_F16] = "torch\nHalfStorage",  [AN_I32] = "torch\nIntStorage",    [AN_I64] = "torch\nLongStorage",
        [AN_U8] = "torch\nByteStorage",   [AN_BOOL] = "torch\nBoolStorage"};
    return names[dtype];
}

/* A tensor of which storage `key` is the whole; its text is kept at *key_place. */
static void put_tensor(pickler *p, const an_st_tensor *t, size_t key, int64_t *key_place)
{
    char text[24];
    int64_t stride[AN_ST_MAX_RANK], elements = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        stride[i] = elements;
        elements *= t->shape[i] > 0 ? t->shape[i] : 1;
    }
    put_name(p, "torch._utils\n_rebuild_tensor_v2", &p->rebuild);
    an_text_puts(p->out, "((");
    put_known_text(p, "storage", &p->storage);
    put_name(p, storage_class(t->dtype), &p->dtype[t->dtype]);
    snprintf(text, sizeof text, "%zu", key);
    put_known_text(p, text, key_place);
    put_known_text(p, "cpu", &p->cpu);
    put_number(p, t->bytes / an_st_dtype_bytes(t->dtype));
    an_text_puts(p->out, "t");
    remember(p);
    an_text_puts(p->out, "Q");
    put_number(p, 0); /* of the storage's first element */
    put_numbers(p, t->rank, t->shape);
    put_numbers(p, t->rank, stride);
    an_text_puts(p->out, "\x89"); /* no gradient */
    recall(p, p->dict);
    an_text_puts(p->out, ")R"); /* no hooks */
    remember(p);
    an_text_puts(p->out, "t");
    remember(p);
    an_text_puts(p->out, "R");
    remember(p);
}

/* The storage of tensor i: the number of the first tensor with its data, among such firsts. */
static size_t *number_storages(const an_st_tensor *t, size_t n, size_t *count)
{
    size_t *key = calloc(n + 1, sizeof *key);
    *count = 0;
    for (size_t i = 0; key && i < n; i++) {
        size_t first = 0;
        while (first < i && (t[first].data != t[i].data || t[first].bytes != t[i].bytes || t[i].bytes == 0)) first++;
        key[i] = first < i ? key[first] : (*count)++;
    }
    return key;
}

static void put_dict(pickler *p, const an_st_tensor *t, size_t n, const size_t *key, int64_t *key_place)
{
    an_text_putn(p->out, "\x80\x02", 2);
    put_name(p, "collections\nOrderedDict", &p->dict);
    an_text_puts(p->out, ")R");
    remember(p);
    for (size_t begin = 0; begin < n; begin += BATCH) {
        const size_t end = AN_MIN(n, begin + BATCH);
        if (end - begin > 1) an_text_puts(p->out, "(");
        for (size_t i = begin; i < end; i++) {
            put_text(p, t[i].name);
            put_tensor(p, &t[i], key[i], &key_place[key[i]]);
        }
        an_text_puts(p->out, end - begin > 1 ? "u" : "s");
    }
    an_text_puts(p->out, ".");
}

an_status an_torch_pickle(an_err *err, const an_st_tensor *tensors, size_t n, an_text *out)
{
    size_t count;
    size_t *key = number_storages(tensors, n, &count);
    int64_t *places = calloc(n + 1, sizeof *places);
    pickler p = {.out = out, .dict = -1, .rebuild = -1, .storage = -1, .cpu = -1};
    for (int i = 0; i < AN_N_DTYPES; i++) p.dtype[i] = -1;
    for (size_t i = 0; places && i < n; i++) places[i] = -1;
    if (key && places) put_dict(&p, tensors, n, key, places);
    an_status status = key && places && !out->failed ? AN_OK : an_fail_nomem(err, "a pickle", out->len);
    free(key);
    free(places);
    return status;
}

/* ---- the archive */

typedef struct archive {
    an_save save;
    an_text directory;
    char stem[STEM_BYTES];
    uint64_t at, members;
} archive;

static an_status put(an_err *err, archive *a, const void *data, size_t bytes)
{
    a->at += bytes;
    return bytes ? an_save_write(err, &a->save, data, bytes) : AN_OK;
}

/* What header and directory say alike; sizes are in the ZIP64 field. */
static void describe(an_text *out, uint32_t crc, size_t name_bytes, size_t extra_bytes)
{
    number(out, VERSION_ZIP64, 2);
    number(out, UTF8_NAMES, 2);
    number(out, 0, 2); /* stored */
    number(out, 0, 4); /* no time */
    number(out, crc, 4);
    number(out, UINT32_MAX, 4); /* packed, unpacked */
    number(out, UINT32_MAX, 4);
    number(out, name_bytes, 2);
    number(out, extra_bytes, 2);
}

static void put_header(an_text *head, const char *name, uint64_t at, uint32_t crc, size_t bytes)
{
    enum { FIXED = 30, ZIP64 = 20, PADDING = 4 };
    const size_t used = FIXED + strlen(name) + ZIP64 + PADDING, padding = (ALIGN - (at + used) % ALIGN) % ALIGN;
    number(head, 0x04034b50, 4);
    describe(head, crc, strlen(name), ZIP64 + PADDING + padding);
    an_text_puts(head, name);
    number(head, EXTRA_ZIP64, 2);
    number(head, ZIP64 - 4, 2);
    number(head, bytes, 8);
    number(head, bytes, 8);
    number(head, EXTRA_PADDING, 2);
    number(head, padding, 2);
    for (size_t i = 0; i < padding; i++) an_text_puts(head, "Z");
}

static void put_entry(an_text *out, const char *name, uint64_t at, uint32_t crc, size_t bytes)
{
    number(out, 0x02014b50, 4);
    number(out, VERSION_ZIP64, 2); /* made by */
    describe(out, crc, strlen(name), 28);
    number(out, 0, 10); /* no comment, the first disk, no attributes */
    number(out, UINT32_MAX, 4);
    an_text_puts(out, name);
    number(out, EXTRA_ZIP64, 2);
    number(out, 24, 2);
    number(out, bytes, 8);
    number(out, bytes, 8);
    number(out, at, 8);
}

static an_status add_member(an_err *err, archive *a, const char *member, const void *data, size_t bytes)
{
    char name[NAME_BYTES];
    an_text head = {0};
    const uint32_t crc = an_crc32(data, bytes);
    snprintf(name, sizeof name, "%s/%s", a->stem, member);
    put_header(&head, name, a->at, crc, bytes);
    put_entry(&a->directory, name, a->at, crc, bytes);
    a->members++;
    an_status status =
        head.failed || a->directory.failed ? an_fail_nomem(err, member, NAME_BYTES) : put(err, a, head.data, head.len);
    an_text_free(&head);
    return status == AN_OK ? put(err, a, data, bytes) : status;
}

static an_status put_end(an_err *err, archive *a)
{
    const uint64_t directory = a->at, bytes = a->directory.len, end64 = directory + bytes;
    an_text *out = &a->directory;
    number(out, 0x06064b50, 4); /* ZIP64's end record */
    number(out, 44, 8);         /* bytes that follow */
    number(out, VERSION_ZIP64, 2);
    number(out, VERSION_ZIP64, 2);
    number(out, 0, 8); /* disks */
    number(out, a->members, 8);
    number(out, a->members, 8);
    number(out, bytes, 8);
    number(out, directory, 8);
    number(out, 0x07064b50, 4); /* its place */
    number(out, 0, 4);
    number(out, end64, 8);
    number(out, 1, 4);
    number(out, 0x06054b50, 4); /* the end record, which refers to that */
    number(out, 0, 4);
    number(out, UINT16_MAX, 2);
    number(out, UINT16_MAX, 2);
    number(out, UINT32_MAX, 4);
    number(out, UINT32_MAX, 4);
    number(out, 0, 2);
    return out->failed ? an_fail_nomem(err, "an archive's directory", out->len) : put(err, a, out->data, out->len);
}

static an_status write_members(an_err *err, archive *a, const an_st_tensor *t, size_t n, const size_t *key)
{
    char member[32];
    an_text pickle = {0};
    an_status status = an_torch_pickle(err, t, n, &pickle);
    if (status == AN_OK) status = add_member(err, a, "data.pkl", pickle.data, pickle.len);
    an_text_free(&pickle);
    if (status == AN_OK) status = add_member(err, a, "byteorder", "little", 6);
    size_t next = 0;
    for (size_t i = 0; i < n && status == AN_OK; i++) {
        if (key[i] != next) continue; /* written with the tensor that has it first */
        snprintf(member, sizeof member, "data/%zu", next++);
        status = add_member(err, a, member, t[i].data, t[i].bytes);
    }
    if (status == AN_OK) status = add_member(err, a, "version", "3\n", 2);
    return status == AN_OK ? put_end(err, a) : status;
}

/* The file's name without its ending. */
static void name_stem(const char *path, char stem[STEM_BYTES])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    const size_t n = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    snprintf(stem, STEM_BYTES, "%.*s", (int)AN_MIN(n, (size_t)STEM_BYTES - 1), name);
}

an_status an_torch_write(an_err *err, const char *path, const an_st_tensor *tensors, size_t n)
{
    archive a = {.at = 0};
    size_t count;
    size_t *key = number_storages(tensors, n, &count);
    if (!key) return an_fail_nomem(err, path, n * sizeof *key);
    name_stem(path, a.stem);
    an_status status = an_save_begin(err, path, &a.save);
    const bool open = status == AN_OK;
    if (status == AN_OK) status = write_members(err, &a, tensors, n, key);
    if (status == AN_OK)
        status = an_save_commit(err, &a.save);
    else if (open)
        an_save_abort(&a.save);
    an_text_free(&a.directory);
    free(key);
    return status;
}
