/* jsonl.c: see jsonl.h. Lines are read through a buffer of one line's bound, so memory does not depend on the file. */
#define _DEFAULT_SOURCE
#include "io/formats/jsonl.h"
#include "platform/platform.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static an_status fail(an_err *err, const char *path, const char *what)
{
    return an_fail(err, AN_E_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Where the last complete line ends: 0 when there is none. */
static bool end_of_lines(int fd, off_t size, off_t *out)
{
    char block[4096];
    for (off_t end = size; end > 0;) {
        off_t begin = end > (off_t)sizeof block ? end - (off_t)sizeof block : 0;
        ssize_t n = pread(fd, block, (size_t)(end - begin), begin);
        if (n != end - begin) return false;
        for (off_t i = n; i > 0; i--)
            if (block[i - 1] == '\n') return *out = begin + i, true;
        end = begin;
    }
    return *out = 0, true;
}

/* A file of lines within the bounds; *fd is -1 when there is none and `flags` do not make one. */
static an_status open_lines(an_err *err, const char *path, int flags, int *fd, off_t *size)
{
    struct stat info;
    AN_TRY(an_file_open(err, path, flags, fd));
    if (*fd < 0) return AN_OK;
    an_status status = fstat(*fd, &info) == 0 ? AN_OK : fail(err, path, "read");
    if (status == AN_OK && info.st_size > AN_JSONL_FILE_BYTES)
        status = an_fail(err, AN_E_IO, "%s: larger than %d MiB, the most that is read of such a file; move it away",
                         path, AN_JSONL_FILE_BYTES >> 20);
    if (status == AN_OK) return *size = info.st_size, AN_OK;
    close(*fd);
    *fd = -1;
    return status;
}

an_status an_jsonl_open(an_err *err, const char *path, an_jsonl *out)
{
    off_t end, size;
    int fd;
    *out = (an_jsonl){.fd = -1};
    if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is longer than %zu bytes", path, sizeof out->path - 1);
    AN_TRY(open_lines(err, path, O_RDWR | O_APPEND | O_CREAT, &fd, &size));
    an_status status = AN_OK;
    if (!end_of_lines(fd, size, &end))
        status = fail(err, path, "read");
    else if (size - end > AN_JSONL_LINE_BYTES)
        status = an_fail(err, AN_E_IO,
                         "%s: the last %lld bytes are no unfinished line, and are not cut off; move the file away",
                         path, (long long)(size - end));
    else if (end < size && ftruncate(fd, end) != 0)
        status = fail(err, path, "cut off the unfinished last line");
    if (status == AN_OK)
        out->fd = fd;
    else
        close(fd);
    return status;
}

an_status an_jsonl_write(an_err *err, an_jsonl *j, const char *line)
{
    size_t n = strlen(line);
    if (memchr(line, '\n', n)) return an_fail(err, AN_E_INTERNAL, "%s: a JSON line has a newline in it", j->path);
    struct stat before;
    bool known = fstat(j->fd, &before) == 0;
    const struct iovec parts[] = {{(void *)(uintptr_t)line, n}, {"\n", 1}};
    ssize_t written;
    do written = writev(j->fd, parts, 2);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)n + 1) return AN_OK;
    if (written >= 0) errno = ENOSPC; /* a part was taken: the disk, or the file's limit, is full */
    an_status status = fail(err, j->path, "append a line");
    (void)(known && ftruncate(j->fd, before.st_size) == 0); /* else the next open cuts the half line off */
    return status;
}

void an_jsonl_close(an_jsonl *j)
{
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
}

/* ---- reading */

/* The lines of an open file, one after the other. */
typedef struct lines {
    FILE *file;
    char *text; /* [AN_JSONL_LINE_BYTES] */
    size_t n;   /* bytes of the line, newline included */
    bool whole; /* a complete line; false: `text` is a part of one that is too long, or unfinished */
} lines;

/* Takes `fd`. */
static an_status begin_lines(an_err *err, const char *path, int fd, lines *l)
{
    *l = (lines){.file = fdopen(fd, "rb"), .text = malloc(AN_JSONL_LINE_BYTES)};
    if (l->file && l->text) return AN_OK;
    if (!l->file) close(fd);
    if (l->file) fclose(l->file);
    free(l->text);
    return an_fail_nomem(err, path, AN_JSONL_LINE_BYTES);
}

static void end_lines(lines *l)
{
    fclose(l->file);
    free(l->text);
}

/* A line longer than the buffer comes in parts, none of them marked whole. False at the end of the file. */
static bool next_line(lines *l)
{
    const bool inside = l->n > 0 && l->text[l->n - 1] != '\n'; /* the last part did not end its line */
    int c = EOF;
    for (l->n = 0; l->n < AN_JSONL_LINE_BYTES && (c = getc(l->file)) != EOF;) {
        l->text[l->n++] = (char)c;
        if (c == '\n') break;
    }
    l->whole = !inside && c == '\n';
    return l->n > 0;
}

an_status an_jsonl_each(an_err *err, const char *path, an_jsonl_visit visit, void *arg)
{
    off_t size;
    int fd;
    lines l;
    AN_TRY(open_lines(err, path, O_RDONLY, &fd, &size));
    if (fd < 0) return AN_OK;
    AN_TRY(begin_lines(err, path, fd, &l));
    an_status status = AN_OK;
    while (status == AN_OK && next_line(&l)) {
        json_t *line = l.whole ? json_loadb(l.text, l.n, JSON_REJECT_DUPLICATES, NULL) : NULL;
        if (json_is_object(line)) status = visit(err, arg, line);
        json_decref(line);
    }
    end_lines(&l);
    return status;
}

/* ---- removing lines of later steps */

static bool is_later(const lines *l, const char *key, int64_t last)
{
    json_t *root = l->whole ? json_loadb(l->text, l->n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *number = json_object_get(root, key);
    const bool later = json_is_number(number) && json_number_value(number) > (double)last;
    json_decref(root);
    return later;
}

/* Writes the lines that stay to `out`; with NULL they are only counted. */
static an_status keep_lines(an_err *err, lines *l, const char *key, int64_t last, an_save *out, uint64_t *kept)
{
    *kept = 0;
    rewind(l->file);
    l->n = 0;
    while (next_line(l)) {
        const bool unfinished = l->text[l->n - 1] != '\n' && l->n < AN_JSONL_LINE_BYTES;
        if (unfinished || is_later(l, key, last)) continue;
        if (out) AN_TRY(an_save_write(err, out, l->text, l->n));
        *kept += l->n;
    }
    return AN_OK;
}

static an_status rewrite(an_err *err, const char *path, lines *l, const char *key, int64_t last)
{
    an_save save;
    uint64_t kept;
    AN_TRY(an_save_begin(err, path, &save));
    an_status status = keep_lines(err, l, key, last, &save, &kept);
    if (status == AN_OK) return an_save_commit(err, &save);
    an_save_abort(&save);
    return status;
}

an_status an_jsonl_drop_after(an_err *err, const char *path, const char *key, int64_t last, uint64_t *removed_bytes)
{
    off_t size;
    int fd;
    uint64_t kept;
    lines l;
    if (removed_bytes) *removed_bytes = 0;
    AN_TRY(open_lines(err, path, O_RDONLY, &fd, &size));
    if (fd < 0) return AN_OK;
    AN_TRY(begin_lines(err, path, fd, &l));
    an_status status = keep_lines(err, &l, key, last, NULL, &kept);
    const bool changes = kept < (uint64_t)size;
    if (status == AN_OK && changes) status = rewrite(err, path, &l, key, last);
    if (removed_bytes && status == AN_OK && changes) *removed_bytes = (uint64_t)size - kept;
    end_lines(&l);
    return status;
}
