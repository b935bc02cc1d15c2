/* jsonl.h: files of JSON lines (metrics) that survive a crash: every line is one write(), a half line that a crash or a
 * full disk left behind is cut off, and a resumed run removes the lines of steps it will do again.
 *
 * Does not: build the JSON of a line, or sync: after a power cut the last lines may be missing, but none is wrong. */
#ifndef AN_IO_FORMATS_JSONL_H
#define AN_IO_FORMATS_JSONL_H

#include "base/base.h"

typedef struct an_jsonl {
    int fd;
    char path[1024];
} an_jsonl;

/* Opens for appending, creates when absent, cuts off an unfinished last line. */
an_status an_jsonl_open(an_err *err, const char *path, an_jsonl *out);
/* Appends `line` (one JSON value, no newline in it) and a newline. When the disk is full, the file keeps its whole
 * lines. */
an_status an_jsonl_write(an_err *err, an_jsonl *j, const char *line);
void an_jsonl_close(an_jsonl *j);

/* Cuts the file before the first line whose number `key` is greater than `last`, or that is not a JSON object; lines
 * without the key stay. A file that does not exist is fine. `removed_bytes` may be NULL. */
an_status an_jsonl_cut_after(an_err *err, const char *path, const char *key, int64_t last, uint64_t *removed_bytes);

#endif
