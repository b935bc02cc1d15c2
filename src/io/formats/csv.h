/* csv.h: reads a file of comma-separated values record by record (RFC 4180).
 *
 * Owns:      the file's bytes, quotes and line ends; errors that name the file and the line.
 * Does not:  know columns, or what a field means: fields are bytes, which may hold commas, quotes and newlines.
 *
 * Accepted: fields in double quotes, "" for a quote in them, newlines in quotes; lines that end in LF, CRLF or CR; a UTF-8
 * byte order mark; blank lines, which are skipped. Refused: a quote inside a bare field, text behind a closing quote,
 * a quote that is never closed, a NUL, UTF-16, and a record that has another number of fields than the first.
 *
 * Invariant: memory is the file, at most AN_CSV_MAX_BYTES, and one record's table of fields. */
#ifndef AN_IO_FORMATS_CSV_H
#define AN_IO_FORMATS_CSV_H

#include "base/base.h"

enum { AN_CSV_MAX_BYTES = 1 << 30, AN_CSV_MAX_FIELDS = 4096 };

typedef struct an_csv an_csv;

typedef struct an_csv_field {
    const char *data; /* not terminated; valid until the reader is closed */
    size_t n;
} an_csv_field;

an_status an_csv_open(an_err *err, const char *path, an_csv **out);
/* The same for a copy of `n` bytes in memory; errors say `name` in place of a path. */
an_status an_csv_parse(an_err *err, const char *name, const char *text, size_t n, an_csv **out);
void an_csv_close(an_csv *r); /* NULL is fine */

/* The next record. *n is 0 at the end. After a failure every later call fails too. */
an_status an_csv_next(an_err *err, an_csv *r, const an_csv_field **fields, size_t *n);
/* The line on which the last record read begins, counted from 1. */
int64_t an_csv_line(const an_csv *r);
const char *an_csv_name(const an_csv *r);
size_t an_csv_bytes(const an_csv *r); /* memory held */

/* Field k (from 0) of a record that is one line, where it lies: without its quotes, with those inside of it as they are (doubled).
 * NULL: there are fewer fields, or *length is SIZE_MAX and a quote before or in it has no end, or no comma behind it. */
const char *an_csv_line_field(const char *line, size_t n, int k, size_t *length);

#endif
