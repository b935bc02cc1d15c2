/* line_reader.h: the lines of a text file that may be compressed: NAME.gz, NAME.zst, or plain under every other name.
 *
 * Owns:      the file, the decompressor (libz or libzstd, loaded at run time when such a file is opened), one line.
 * Does not:  know what a line means.
 * Invariant: memory is one line of at most AN_LINE_MAX_BYTES and the decompressor's window, whatever the file says. */
#ifndef AN_IO_FORMATS_LINE_READER_H
#define AN_IO_FORMATS_LINE_READER_H

#include "base/base.h"
#include "base/text.h"

enum { AN_LINE_MAX_BYTES = 256 << 20 };

typedef struct an_line_reader an_line_reader;

an_status an_line_reader_open(an_err *err, const char *path, an_line_reader **out);
/* The next line without its newline, valid until the next call; *line NULL: there are no more. */
an_status an_line_reader_next(an_err *err, an_line_reader *r, const char **line, size_t *n);
/* The number of the line that was read last, from 1. */
uint64_t an_line_reader_number(const an_line_reader *r);
void an_line_reader_close(an_line_reader *r);

/* All lines of a file, each with its newline again. AN_E_DATA: more than max_bytes. */
an_status an_text_file_read(an_err *err, const char *path, size_t max_bytes, an_text *out);

/* Whether `path` ends with `ending`. */
bool an_path_ends(const char *path, const char *ending);

#endif
