/* line_reader.c: see line_reader.h. libzstd's streaming calls, stable since 1.0, are declared here, so that no header of it
 * is needed to build. */
#define _DEFAULT_SOURCE
#include "io/formats/line_reader.h"
#include "io/formats/libz.h"
#include "platform/dynamic_library.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 17 };

typedef struct zstd_out { /* ZSTD_outBuffer */
    void *data;
    size_t bytes, at;
} zstd_out;

typedef struct zstd_in { /* ZSTD_inBuffer */
    const void *data;
    size_t bytes, at;
} zstd_in;

typedef struct zstd {
    void *(*create)(void);
    size_t (*decompress)(void *stream, zstd_out *out, zstd_in *in);
    unsigned (*is_error)(size_t code);
    const char *(*error)(size_t code);
    size_t (*release)(void *stream);
} zstd;

struct an_line_reader {
    char *path;
    int fd; /* -1: the gz handle has it */
    an_libz z;
    void *gz; /* NULL: not a .gz */
    zstd s;
    void *stream; /* NULL: not a .zst */
    bool in_frame;
    zstd_in in;
    char *packed; /* [BLOCK_BYTES]: of a .zst */
    char *text;   /* [cap]: the lines from `begin` to `end` are still to be returned */
    size_t begin, end, cap;
    bool ended;
    uint64_t number;
};

bool an_path_ends(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

/* ---- the libraries */

static const char otherwise[] = "decompress the file";

static an_status open_gz(an_err *err, an_line_reader *r)
{
    AN_TRY(an_libz_load(err, r->path, otherwise, &r->z));
    r->gz = r->z.gz_open(r->fd, "rb");
    if (!r->gz) return an_fail_nomem(err, r->path, BLOCK_BYTES);
    r->fd = -1;
    return AN_OK;
}

static an_status open_zst(an_err *err, an_line_reader *r)
{
    static const char *const names[] = {"libzstd.so.1", "libzstd.1.dylib", "/opt/homebrew/lib/libzstd.1.dylib",
                                        "/usr/local/lib/libzstd.1.dylib", NULL};
    static const an_dl_symbol symbols[] = {{"ZSTD_createDStream", offsetof(zstd, create)},
                                           {"ZSTD_decompressStream", offsetof(zstd, decompress)},
                                           {"ZSTD_isError", offsetof(zstd, is_error)},
                                           {"ZSTD_getErrorName", offsetof(zstd, error)},
                                           {"ZSTD_freeDStream", offsetof(zstd, release)}};
    static const an_dl_library library = {names, "the library that decompresses it", "libzstd1", symbols,
                                          AN_COUNT(symbols)};
    AN_TRY(an_dl_load(err, r->path, &library, otherwise, &r->s, NULL));
    r->stream = r->s.create();
    r->packed = malloc(BLOCK_BYTES);
    return r->stream && r->packed ? AN_OK : an_fail_nomem(err, r->path, BLOCK_BYTES);
}

/* ---- bytes */

static an_status read_file(an_err *err, an_line_reader *r, char *to, size_t bytes, size_t *got)
{
    ssize_t n;
    do n = read(r->fd, to, bytes);
    while (n < 0 && errno == EINTR);
    if (n < 0) return an_fail(err, AN_E_IO, "%s: cannot be read: %s", r->path, strerror(errno));
    *got = (size_t)n;
    return AN_OK;
}

/* zlib returns what it has of a file that was cut short, and says so only when asked. */
static an_status read_gz(an_err *err, an_line_reader *r, char *to, size_t bytes, size_t *got)
{
    const int n = r->z.gz_read(r->gz, to, (unsigned)bytes);
    int code = 0;
    const char *why = n <= 0 ? r->z.gz_error(r->gz, &code) : "";
    if (n < 0 || code < 0)
        return an_fail(err, AN_E_DATA, "%s: behind line %llu: the gzip data is damaged or cut short (%.80s)", r->path,
                       (unsigned long long)r->number, why);
    *got = (size_t)n;
    return AN_OK;
}

static an_status read_zst(an_err *err, an_line_reader *r, char *to, size_t bytes, size_t *got)
{
    zstd_out out = {to, bytes, 0};
    while (out.at == 0) {
        if (r->in.at == r->in.bytes) {
            r->in = (zstd_in){r->packed, 0, 0};
            AN_TRY(read_file(err, r, r->packed, BLOCK_BYTES, &r->in.bytes));
            if (r->in.bytes == 0 && !r->in_frame) break;
            if (r->in.bytes == 0)
                return an_fail(err, AN_E_DATA, "%s: behind line %llu: the zstd data is cut short", r->path,
                               (unsigned long long)r->number);
        }
        const size_t left = r->s.decompress(r->stream, &out, &r->in);
        if (r->s.is_error(left))
            return an_fail(err, AN_E_DATA, "%s: behind line %llu: the zstd data is damaged (%.80s)", r->path,
                           (unsigned long long)r->number, r->s.error(left));
        r->in_frame = left != 0;
    }
    *got = out.at;
    return AN_OK;
}

/* ---- lines */

/* Makes space for another block behind the text that is not returned yet, and fills it. */
static an_status read_block(an_err *err, an_line_reader *r)
{
    if (r->begin > 0) memmove(r->text, r->text + r->begin, r->end - r->begin);
    r->end -= r->begin;
    r->begin = 0;
    if (r->end > AN_LINE_MAX_BYTES)
        return an_fail(err, AN_E_DATA, "%s: line %llu has more than %d MiB; is it a file of lines?", r->path,
                       (unsigned long long)r->number + 1, AN_LINE_MAX_BYTES >> 20);
    if (r->cap - r->end < BLOCK_BYTES) {
        const size_t cap = 2 * r->cap + BLOCK_BYTES;
        char *more = realloc(r->text, cap);
        if (!more) return an_fail_nomem(err, r->path, cap);
        r->text = more;
        r->cap = cap;
    }
    size_t got = 0;
    char *to = r->text + r->end;
    AN_TRY(r->gz       ? read_gz(err, r, to, BLOCK_BYTES, &got)
           : r->stream ? read_zst(err, r, to, BLOCK_BYTES, &got)
                       : read_file(err, r, to, BLOCK_BYTES, &got));
    r->end += got;
    r->ended = got == 0;
    return AN_OK;
}

an_status an_line_reader_next(an_err *err, an_line_reader *r, const char **line, size_t *n)
{
    size_t seen = 0; /* of the line's bytes, those without a newline */
    char *newline;
    *line = NULL;
    while ((newline = r->end - r->begin > seen ? memchr(r->text + r->begin + seen, '\n', r->end - r->begin - seen)
                                               : NULL) == NULL) {
        seen = r->end - r->begin;
        if (r->ended && seen == 0) return AN_OK;
        if (r->ended) break;
        AN_TRY(read_block(err, r));
    }
    *line = r->text + r->begin;
    *n = newline ? (size_t)(newline - *line) : seen;
    r->begin += *n + (newline != NULL);
    r->number++;
    return AN_OK;
}

uint64_t an_line_reader_number(const an_line_reader *r)
{
    return r->number;
}

an_status an_line_reader_open(an_err *err, const char *path, an_line_reader **out)
{
    an_line_reader *r = *out = calloc(1, sizeof *r);
    if (!r || (r->path = strdup(path)) == NULL || (r->text = malloc(r->cap = BLOCK_BYTES)) == NULL) {
        if (r) r->fd = -1;
        an_line_reader_close(r);
        *out = NULL;
        return an_fail_nomem(err, path, BLOCK_BYTES);
    }
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    an_status status = r->fd < 0 ? an_fail(err, AN_E_IO, "%s: cannot be opened: %s", path, strerror(errno)) : AN_OK;
    if (status == AN_OK && an_path_ends(path, ".gz")) status = open_gz(err, r);
    if (status == AN_OK && an_path_ends(path, ".zst")) status = open_zst(err, r);
    if (status == AN_OK) return AN_OK;
    an_line_reader_close(r);
    *out = NULL;
    return status;
}

void an_line_reader_close(an_line_reader *r)
{
    if (!r) return;
    if (r->gz) r->z.gz_close(r->gz);
    if (r->stream) r->s.release(r->stream);
    if (r->fd >= 0) close(r->fd);
    free(r->packed);
    free(r->text);
    free(r->path);
    free(r);
}

an_status an_text_file_read(an_err *err, const char *path, size_t max_bytes, an_text *out)
{
    an_line_reader *lines;
    const char *line = "";
    size_t n;
    AN_TRY(an_line_reader_open(err, path, &lines));
    struct stat s; /* a plain file says its size before any of it is read */
    const bool plain = lines->fd >= 0 && !lines->stream && fstat(lines->fd, &s) == 0;
    an_status status = AN_OK;
    if (plain && s.st_size > 0 && (uint64_t)s.st_size > max_bytes)
        status = an_fail(err, AN_E_DATA, "%s: larger than %zu MiB", path, max_bytes >> 20);
    while (status == AN_OK && (status = an_line_reader_next(err, lines, &line, &n)) == AN_OK && line) {
        an_text_putn(out, line, n);
        an_text_puts(out, "\n");
        if (out->len > max_bytes) status = an_fail(err, AN_E_DATA, "%s: larger than %zu MiB", path, max_bytes >> 20);
    }
    an_line_reader_close(lines);
    return status == AN_OK && out->failed ? an_fail_nomem(err, path, out->len) : status;
}
