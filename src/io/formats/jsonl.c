#define _DEFAULT_SOURCE
#include "io/formats/jsonl.h"
#include "platform/platform.h"
#include "io/formats/json.h"
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

/* Where the last whole line ends: 0 when there is none. */
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

an_status an_jsonl_open(an_err *err, const char *path, an_jsonl *out)
{
    *out = (an_jsonl){.fd = -1};
    if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is longer than %zu bytes", path, sizeof out->path - 1);
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return fail(err, path, "open");
    struct stat info;
    off_t end;
    an_status status = AN_OK;
    if (fstat(fd, &info) != 0)
        status = fail(err, path, "read");
    else if (S_ISREG(info.st_mode) && !end_of_lines(fd, info.st_size, &end))
        status = fail(err, path, "read");
    else if (S_ISREG(info.st_mode) && end < info.st_size && ftruncate(fd, end) != 0)
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
    bool known = fstat(j->fd, &before) == 0 && S_ISREG(before.st_mode);
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

/* Does the file end before this line? */
static bool is_beyond(const char *line, size_t n, const char *key, int64_t last)
{
    json_t *root = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *number = json_object_get(root, key);
    bool beyond = !json_is_object(root) || (json_is_number(number) && json_number_value(number) > (double)last);
    json_decref(root);
    return beyond;
}

an_status an_jsonl_cut_after(an_err *err, const char *path, const char *key, int64_t last, uint64_t *removed_bytes)
{
    struct stat info;
    if (removed_bytes) *removed_bytes = 0;
    if (stat(path, &info) != 0 && errno == ENOENT) return AN_OK;
    an_map_file map;
    AN_TRY(an_file_map(err, path, &map));
    const char *text = map.data;
    size_t at = 0, bytes = map.bytes;
    while (at < bytes) {
        const char *eol = memchr(text + at, '\n', bytes - at);
        if (!eol || is_beyond(text + at, (size_t)(eol - text) - at, key, last)) break;
        at = (size_t)(eol - text) + 1;
    }
    an_file_unmap(&map);
    if (at == bytes) return AN_OK;
    if (truncate(path, (off_t)at) != 0) return fail(err, path, "remove lines of later steps");
    if (removed_bytes) *removed_bytes = bytes - at;
    return AN_OK;
}
