/* jsonl.h: files of JSON lines (metrics.jsonl, logbook.jsonl) that survive a crash: every line is one write(), a half
 * line that a crash or a full disk left behind is cut off, and a resumed run removes the lines of steps it will repeat.
 *
 * Owns:      the bounds of such a file (below), and that it is opened as an_file_open does: never through a link.
 * Does not:  build the JSON of a line, or sync: after a power cut the last lines may be missing, but none is wrong.
 * Invariant: a line that is damaged costs that line and no other. */
#ifndef AN_IO_FORMATS_JSONL_H
#define AN_IO_FORMATS_JSONL_H

#include "base/base.h"
#include <jansson.h>

/* A longer line is skipped, and a larger file refused: a million logged updates make 200 MiB. */
enum { AN_JSONL_LINE_BYTES = 1 << 20, AN_JSONL_FILE_BYTES = 1 << 30 };

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

/* Calls `visit` with each line that is a JSON object, in order; lines that are not are skipped. No file: no lines. */
typedef an_status (*an_jsonl_visit)(an_err *err, void *arg, const json_t *line);
an_status an_jsonl_each(an_err *err, const char *path, an_jsonl_visit visit, void *arg);

/* Removes the lines whose number `key` is greater than `last`, and an unfinished last line. All others stay, also those
 * without the key and damaged ones. No file is fine. `removed_bytes` may be NULL. */
an_status an_jsonl_drop_after(an_err *err, const char *path, const char *key, int64_t last, uint64_t *removed_bytes);

#endif
