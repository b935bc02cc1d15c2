/* npy.c: the header is a Python dictionary of three keys; this reads that dictionary and nothing else of Python. */
#include "io/formats/npy.h"
#include "io/formats/json.h"
#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    an_dtype dtype;
    size_t bytes;
} dtypes[] = {{"<f4", AN_F32, 4}, {"<f8", AN_F64, 8}, {"<i4", AN_I32, 4},
              {"<i8", AN_I64, 8}, {"|u1", AN_U8, 1},  {"|b1", AN_BOOL, 1}};

static const char magic[] = "\x93NUMPY";
enum { MAGIC_BYTES = 6, ALIGN = 64 };

/* ---- reading the dictionary */

typedef struct scanner {
    an_err *err;
    const char *name, *begin, *at, *end;
} scanner;

static an_status bad(const scanner *s, const char *why)
{
    return an_fail(s->err, AN_E_IO, "%s: byte %zu of the header: %s; write the file with numpy.save", s->name,
                   (size_t)(s->at - s->begin), why);
}

static void skip_blanks(scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n')) s->at++;
}

static bool take(scanner *s, char c)
{
    skip_blanks(s);
    const bool there = s->at < s->end && *s->at == c;
    s->at += there;
    return there;
}

static bool take_word(scanner *s, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* 'text' or "text" without escapes, cut to the room. */
static an_status take_text(scanner *s, char *out, size_t room)
{
    skip_blanks(s);
    const char quote = s->at < s->end ? *s->at : 0;
    if (quote != '\'' && quote != '"') return bad(s, "a text in quotes is needed");
    const char *from = ++s->at, *to = memchr(from, quote, (size_t)(s->end - from));
    if (!to || memchr(from, '\\', (size_t)(to - from))) return bad(s, "a text has no end, or an escape in it");
    snprintf(out, room, "%.*s", (int)AN_MIN((size_t)(to - from), room - 1), from);
    s->at = to + 1;
    return AN_OK;
}

static an_status take_dtype(scanner *s, an_npy *out)
{
    char text[16], quoted[AN_QUOTED_BYTES];
    AN_TRY(take_text(s, text, sizeof text));
    for (size_t i = 0; i < AN_COUNT(dtypes); i++)
        if (strcmp(dtypes[i].name, text) == 0) return out->dtype = dtypes[i].dtype, AN_OK;
    return an_fail(s->err, AN_E_DTYPE, "%s: elements of type %s; <f4, <f8, <i4, <i8, |u1 and |b1 are read: use astype",
                   s->name, an_quoted(text, quoted));
}

static an_status take_order(scanner *s)
{
    if (take_word(s, "False")) return AN_OK;
    if (!take_word(s, "True")) return bad(s, "fortran_order is True or False");
    return an_fail(s->err, AN_E_UNSUPPORTED, "%s: the array is in Fortran order; save numpy.ascontiguousarray of it",
                   s->name);
}

static an_status take_number(scanner *s, int64_t *out)
{
    int64_t n = 0;
    int digits = 0;
    skip_blanks(s);
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++, digits++) {
        if (digits == 18) return bad(s, "a length is too large");
        n = 10 * n + (*s->at - '0');
    }
    *out = n;
    return digits > 0 ? AN_OK : bad(s, "a length is needed");
}

/* (), (3,) or (3, 4) */
static an_status take_shape(scanner *s, an_npy *out)
{
    out->rank = 0;
    if (!take(s, '(')) return bad(s, "shape is a tuple");
    while (!take(s, ')')) {
        if (out->rank == AN_NPY_MAX_RANK) return bad(s, "more than 8 axes");
        AN_TRY(take_number(s, &out->dim[out->rank++]));
        if (!take(s, ',')) return take(s, ')') ? AN_OK : bad(s, "shape has no end");
    }
    return AN_OK;
}

static an_status take_dictionary(scanner *s, an_npy *out)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    unsigned seen = 0;
    if (!take(s, '{')) return bad(s, "a dictionary is needed");
    while (!take(s, '}')) {
        char key[16];
        size_t k = 0;
        AN_TRY(take_text(s, key, sizeof key));
        while (k < AN_COUNT(keys) && strcmp(keys[k], key) != 0) k++;
        if (k == AN_COUNT(keys) || (seen & 1u << k)) return bad(s, "a key is unknown, or there twice");
        seen |= 1u << k;
        if (!take(s, ':')) return bad(s, "a key has no value");
        AN_TRY(k == 0 ? take_dtype(s, out) : k == 1 ? take_order(s) : take_shape(s, out));
        if (!take(s, ',')) {
            if (!take(s, '}')) return bad(s, "a comma is needed");
            break;
        }
    }
    skip_blanks(s);
    if (s->at != s->end) return bad(s, "something follows the dictionary");
    return seen == 7 ? AN_OK : bad(s, "descr, fortran_order or shape is missing");
}

/* ---- the file */

static size_t element_bytes(an_dtype dtype)
{
    size_t i = 0;
    while (i + 1 < AN_COUNT(dtypes) && dtypes[i].dtype != dtype) i++;
    return dtypes[i].bytes;
}

/* Bytes of the elements; false: more than a file can have. */
static bool size_of(const an_npy *a, size_t *out)
{
    size_t n = element_bytes(a->dtype);
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] == 0) return *out = 0, true;
    for (int i = 0; i < a->rank; i++) {
        if ((uint64_t)a->dim[i] > (SIZE_MAX >> 1) / n) return false;
        n *= (size_t)a->dim[i];
    }
    return *out = n, true;
}

/* Where header and elements begin, from the first 10 or 12 bytes. */
static an_status find_header(an_err *err, const char *name, const unsigned char *p, size_t bytes, size_t *begin,
                             size_t *length)
{
    if (bytes < MAGIC_BYTES + 4 || memcmp(p, magic, MAGIC_BYTES) != 0)
        return an_fail(err, AN_E_IO, "%s: not a .npy file; numpy.save writes them", name);
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: a .npy file of version %d.%d; 1.0, 2.0 and 3.0 are read", name, p[6],
                       p[7]);
    *begin = p[6] == 1 ? 10 : 12;
    if (bytes < *begin) return an_fail(err, AN_E_IO, "%s: the file ends in its header; it was cut short", name);
    *length = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) *length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (*length <= AN_NPY_MAX_HEADER_BYTES && *length <= bytes - *begin) return AN_OK;
    return an_fail(err, AN_E_IO, "%s: a header of %zu bytes is more than the file has, or than %d; it is damaged", name,
                   *length, AN_NPY_MAX_HEADER_BYTES);
}

an_status an_npy_parse(an_err *err, const char *name, const void *data, size_t bytes, an_npy *out)
{
    size_t begin = 0, length = 0, wanted;
    const char *text = data;
    *out = (an_npy){.rank = 0};
    AN_TRY(find_header(err, name, data, bytes, &begin, &length));
    scanner s = {.err = err, .name = name, .begin = text, .at = text + begin, .end = text + begin + length};
    AN_TRY(take_dictionary(&s, out));
    out->data = text + begin + length;
    out->bytes = bytes - begin - length;
    if (!size_of(out, &wanted)) return an_fail(err, AN_E_IO, "%s: the shape is larger than any file", name);
    if (wanted == out->bytes) return AN_OK;
    return an_fail(err, AN_E_IO,
                   "%s: %zu bytes of elements, where the shape makes %zu; the file is damaged or cut short", name,
                   out->bytes, wanted);
}

an_status an_npy_open(an_err *err, const char *path, an_npy *out)
{
    an_map_file map;
    *out = (an_npy){.rank = 0};
    AN_TRY(an_file_map(err, path, &map));
    an_status status = an_npy_parse(err, path, map.data ? map.data : "", map.bytes, out);
    out->map = map;
    if (status != AN_OK) an_npy_close(out);
    return status;
}

void an_npy_close(an_npy *a)
{
    an_file_unmap(&a->map);
    *a = (an_npy){.rank = 0};
}

int64_t an_npy_elements(const an_npy *a)
{
    return (int64_t)(a->bytes / element_bytes(a->dtype));
}

double an_npy_number(const an_npy *a, int64_t i)
{
    const char *p = a->data;
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    switch (a->dtype) {
    case AN_F32: return memcpy(&f32, p + 4 * i, sizeof f32), f32;
    case AN_F64: return memcpy(&f64, p + 8 * i, sizeof f64), f64;
    case AN_I32: return memcpy(&i32, p + 4 * i, sizeof i32), i32;
    case AN_I64: return memcpy(&i64, p + 8 * i, sizeof i64), (double)i64;
    default: return (unsigned char)p[i];
    }
}

/* ---- writing */

an_status an_npy_header(an_err *err, an_dtype dtype, int rank, const int64_t *dim, an_text *out)
{
    an_text text = {0};
    size_t i = 0;
    while (i < AN_COUNT(dtypes) && dtypes[i].dtype != dtype) i++;
    if (i == AN_COUNT(dtypes) || rank > AN_NPY_MAX_RANK)
        return an_fail(err, AN_E_DTYPE, "an array of this dtype (number %d) or of rank %d is not written as .npy",
                       (int)dtype, rank);
    an_text_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", dtypes[i].name);
    for (int axis = 0; axis < rank; axis++)
        an_text_printf(&text, "%" PRId64 "%s", dim[axis], rank == 1 ? "," : axis + 1 < rank ? ", " : "");
    an_text_puts(&text, "), }");
    while (!text.failed && (10 + text.len + 1) % ALIGN != 0) an_text_puts(&text, " ");
    an_text_puts(&text, "\n");
    const char head[] = {1, 0, (char)(text.len & 255), (char)(text.len >> 8)};
    an_text_putn(out, magic, MAGIC_BYTES);
    an_text_putn(out, head, sizeof head);
    an_text_putn(out, text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    an_text_free(&text);
    return out->failed ? an_fail_nomem(err, "a header", 128) : AN_OK;
}

an_status an_npy_write(an_err *err, const char *path, an_dtype dtype, int rank, const int64_t *dim, const void *data)
{
    an_text head = {0};
    an_save save;
    size_t bytes = element_bytes(dtype);
    for (int axis = 0; axis < rank; axis++) bytes *= (size_t)dim[axis];
    an_status status = an_npy_header(err, dtype, rank, dim, &head);
    if (status == AN_OK) status = an_save_begin(err, path, &save);
    if (status == AN_OK) {
        status = an_save_write(err, &save, head.data, head.len);
        if (status == AN_OK) status = an_save_write(err, &save, data, bytes);
        if (status == AN_OK)
            status = an_save_commit(err, &save);
        else
            an_save_abort(&save);
    }
    an_text_free(&head);
    return status;
}
