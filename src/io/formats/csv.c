/* csv.c: see csv.h. A quoted field is unquoted in place: without its quotes it is never longer than in the file. */
#include "io/formats/csv.h"
#include "platform/platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct an_csv {
    char *text, *at, *end; /* the file, the next byte to read, behind the last */
    char name[1024];
    size_t bytes;
    int64_t line, record_line;
    an_csv_field *field;
    int32_t cap;
    size_t width; /* fields of the first record; 0: none was read */
    bool failed;
};

static an_status begin(an_err *err, const char *name, char *text, size_t n, an_csv **out)
{
    const unsigned char *b = (const unsigned char *)text;
    an_status status = AN_OK;
    an_csv *r = NULL;
    if (n >= 2 && ((b[0] == 0xFF && b[1] == 0xFE) || (b[0] == 0xFE && b[1] == 0xFF)))
        status = an_fail(err, AN_E_DATA, "%s: the text is UTF-16; save it as UTF-8", name);
    else if (!(r = calloc(1, sizeof *r)))
        status = an_fail_nomem(err, name, sizeof *r);
    if (status != AN_OK) {
        free(text);
        return status;
    }
    const size_t mark = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    snprintf(r->name, sizeof r->name, "%s", name);
    r->text = text;
    r->at = text + mark;
    r->end = text + n;
    r->bytes = n;
    r->line = 1;
    *out = r;
    return AN_OK;
}

an_status an_csv_open(an_err *err, const char *path, an_csv **out)
{
    char *text;
    size_t n;
    *out = NULL;
    AN_TRY(an_file_read(err, path, AN_CSV_MAX_BYTES, &text, &n));
    return begin(err, path, text, n, out);
}

an_status an_csv_parse(an_err *err, const char *name, const char *text, size_t n, an_csv **out)
{
    *out = NULL;
    if (n > AN_CSV_MAX_BYTES) return an_fail(err, AN_E_DATA, "%s: larger than %d MiB", name, AN_CSV_MAX_BYTES >> 20);
    char *copy = malloc(n + 1);
    if (!copy) return an_fail_nomem(err, name, n + 1);
    if (n > 0) memcpy(copy, text, n);
    copy[n] = 0;
    return begin(err, name, copy, n, out);
}

void an_csv_close(an_csv *r)
{
    if (!r) return;
    free(r->field);
    free(r->text);
    free(r);
}

int64_t an_csv_line(const an_csv *r)
{
    return r->record_line;
}
const char *an_csv_name(const an_csv *r)
{
    return r->name;
}
size_t an_csv_bytes(const an_csv *r)
{
    return r->bytes + (size_t)r->cap * sizeof *r->field;
}

static bool at_line_end(const an_csv *r)
{
    return r->at == r->end || *r->at == '\n' || *r->at == '\r';
}

/* Behind a line end: LF, CRLF or CR. */
static void skip_line_end(an_csv *r)
{
    if (r->at == r->end) return;
    if (*r->at == '\r' && r->at + 1 < r->end && r->at[1] == '\n') r->at++;
    r->at++;
    r->line++;
}

static an_status wrong(an_err *err, const an_csv *r, int64_t line, const char *what)
{
    return an_fail(err, AN_E_DATA, "%s: line %lld: %s", r->name, (long long)line, what);
}

/* After the opening quote. */
static an_status quoted_field(an_err *err, an_csv *r, an_csv_field *out)
{
    const int64_t begun = r->line;
    char *to = r->at;
    *out = (an_csv_field){.data = r->at};
    for (;; r->at++) {
        if (r->at == r->end) return wrong(err, r, begun, "the quote that opens a field here is never closed");
        if (*r->at == 0) return wrong(err, r, r->line, "a NUL byte; the file is no text");
        if (*r->at == '"') {
            if (r->at + 1 == r->end || r->at[1] != '"') break;
            r->at++;
        } else if (*r->at == '\n' || (*r->at == '\r' && (r->at + 1 == r->end || r->at[1] != '\n'))) {
            r->line++;
        }
        *to++ = *r->at;
    }
    r->at++;
    out->n = (size_t)(to - out->data);
    if (!at_line_end(r) && *r->at != ',')
        return wrong(err, r, r->line, "text behind the quote that closes a field; double a quote that is meant");
    return AN_OK;
}

static an_status bare_field(an_err *err, an_csv *r, an_csv_field *out)
{
    *out = (an_csv_field){.data = r->at};
    for (; !at_line_end(r) && *r->at != ','; r->at++) {
        if (*r->at == 0) return wrong(err, r, r->line, "a NUL byte; the file is no text");
        if (*r->at == '"')
            return wrong(err, r, r->line, "a quote inside a field; put the field in quotes and double the quote");
    }
    out->n = (size_t)(r->at - out->data);
    return AN_OK;
}

static an_status read_record(an_err *err, an_csv *r, size_t *n)
{
    for (bool more = true; more;) {
        if (*n == AN_CSV_MAX_FIELDS) return wrong(err, r, r->line, "more fields than 4096; is a quote missing?");
        if (!an_grow((void **)&r->field, (int32_t)*n, &r->cap, sizeof *r->field))
            return an_fail_nomem(err, r->name, (*n + 1) * sizeof *r->field);
        an_csv_field *f = &r->field[(*n)++];
        if (r->at < r->end && *r->at == '"') {
            r->at++;
            AN_TRY(quoted_field(err, r, f));
        } else {
            AN_TRY(bare_field(err, r, f));
        }
        more = r->at < r->end && *r->at == ',';
        if (more) r->at++;
    }
    skip_line_end(r);
    if (r->width == 0) r->width = *n;
    if (*n == r->width) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s: line %lld: %zu fields, the first record has %zu; put a field with commas in quotes", r->name,
                   (long long)r->record_line, *n, r->width);
}

an_status an_csv_next(an_err *err, an_csv *r, const an_csv_field **fields, size_t *n)
{
    *fields = NULL;
    *n = 0;
    if (r->failed) return an_fail(err, AN_E_DATA, "%s: the file is damaged before this place", r->name);
    while (r->at < r->end && at_line_end(r)) skip_line_end(r);
    if (r->at == r->end) return AN_OK;
    r->record_line = r->line;
    size_t count = 0;
    an_status status = read_record(err, r, &count);
    r->failed = status != AN_OK;
    if (r->failed) return status;
    *fields = r->field;
    *n = count;
    return AN_OK;
}

const char *an_csv_line_field(const char *line, size_t n, int k, size_t *length)
{
    const char *end = line + n, *at = line;
    *length = 0;
    for (;; k--, at++) {
        const bool quoted = at < end && *at == '"';
        const char *begin = at + quoted, *close = end;
        if (quoted) {
            for (at = begin; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++) at += *at == '"';
            close = at;
            if (at == end || (at + 1 < end && at[1] != ',')) return *length = SIZE_MAX, NULL;
            at++;
        } else {
            const char *comma = memchr(at, ',', (size_t)(end - at));
            close = at = comma ? comma : end;
        }
        if (k == 0) return *length = (size_t)(close - begin), begin;
        if (at == end) return NULL;
    }
}
