/* idx.c: the header and the bytes of an idx file, unpacked where it is a .gz. See idx.h. */
#define _DEFAULT_SOURCE
#include "io/formats/idx.h"
#include "io/formats/libz.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_MOST = 4 + 4 * AN_IDX_MAX_RANK, PIECE = 1 << 20 };

/* Reads the sizes of a header of which `have` bytes are there. *header: its bytes. */
static an_status read_header(an_err *err, const char *name, const uint8_t *b, size_t have, an_idx *out, size_t *header)
{
    if (have < 4 || b[0] != 0 || b[1] != 0 || b[2] != 8 || b[3] < 1 || b[3] > AN_IDX_MAX_RANK)
        return an_fail(err, AN_E_DATA, "%s: no idx file of bytes: it begins with 0 0 8 and a rank of 1 to %d", name,
                       AN_IDX_MAX_RANK);
    out->rank = b[3];
    *header = 4 + 4 * (size_t)out->rank;
    if (have < *header) return an_fail(err, AN_E_DATA, "%s: byte %zu: the file ends in its header", name, have);
    double elements = 1;
    for (int i = 0; i < out->rank; i++) {
        const uint8_t *d = b + 4 + 4 * i;
        out->dim[i] = (int64_t)((uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 | (uint32_t)d[2] << 8 | d[3]);
        elements *= (double)out->dim[i];
    }
    if (elements > (double)AN_IDX_MAX_BYTES)
        return an_fail(err, AN_E_DATA, "%s: its header names %.0f bytes, and at most 8 GiB are read", name, elements);
    out->bytes = (size_t)elements;
    return AN_OK;
}

an_status an_idx_parse(an_err *err, const char *name, const void *data, size_t bytes, an_idx *out)
{
    size_t header;
    *out = (an_idx){0};
    AN_TRY(read_header(err, name, data, bytes, out, &header));
    if (bytes - header != out->bytes)
        return an_fail(err, AN_E_DATA,
                       "%s: %zu bytes behind the header, where its sizes make %zu; the file is cut short or "
                       "damaged",
                       name, bytes - header, out->bytes);
    out->data = (const uint8_t *)data + header;
    return AN_OK;
}

/* ---- gzip */

typedef struct gz {
    an_libz z;
    void *file;
} gz;

static an_status open_gz(an_err *err, const char *path, gz *g)
{
    int fd;
    AN_TRY(an_libz_load(err, path, "decompress the file", &g->z));
    AN_TRY(an_file_open(err, path, O_RDONLY, &fd));
    if (fd < 0) return an_fail(err, AN_E_IO, "%s: no such file", path);
    g->file = g->z.gz_open(fd, "rb");
    if (g->file) return AN_OK;
    close(fd);
    return an_fail_nomem(err, path, PIECE);
}

/* Up to `most` bytes; a read that fails counts as the end: the caller compares the size. */
static size_t read_gz(const gz *g, uint8_t *to, size_t most)
{
    size_t got = 0;
    while (got < most) {
        const int n = g->z.gz_read(g->file, to + got, (unsigned)AN_MIN(most - got, PIECE));
        if (n <= 0) break;
        got += (size_t)n;
    }
    return got;
}

/* Memory grows with what has been unpacked, not with what the header claims. */
static an_status unpack(an_err *err, const char *path, const gz *g, an_idx *out)
{
    uint8_t start[HEADER_MOST], *data = NULL, one;
    size_t header, have = read_gz(g, start, 4), cap = 0, got = 0;
    if (have == 4 && start[3] <= AN_IDX_MAX_RANK) have += read_gz(g, start + 4, 4 * (size_t)start[3]);
    AN_TRY(read_header(err, path, start, have, out, &header));
    while (got == cap && cap < out->bytes) {
        cap = AN_MIN(out->bytes, AN_MAX(cap * 2, (size_t)16 << 20));
        uint8_t *more = realloc(data, cap);
        if (!more) {
            free(data);
            return an_fail_nomem(err, path, cap);
        }
        data = more;
        got += read_gz(g, data + got, cap - got);
    }
    if (got == out->bytes && read_gz(g, &one, 1) == 0) {
        out->memory = data;
        out->data = data;
        out->held_bytes = out->bytes;
        return AN_OK;
    }
    free(data);
    return an_fail(err, AN_E_DATA, "%s: %s bytes than the %zu that its sizes make; the file is damaged", path,
                   got == out->bytes ? "more" : "fewer", out->bytes);
}

static an_status open_packed(an_err *err, const char *path, an_idx *out)
{
    gz g;
    AN_TRY(open_gz(err, path, &g));
    an_status status = unpack(err, path, &g, out);
    g.z.gz_close(g.file);
    return status;
}

bool an_idx_is_there(const char *path)
{
    char packed[1024];
    const int n = snprintf(packed, sizeof packed, "%s.gz", path);
    return access(path, F_OK) == 0 || (n < (int)sizeof packed && access(packed, F_OK) == 0);
}

an_status an_idx_open(an_err *err, const char *path, an_idx *out)
{
    char packed[1024];
    *out = (an_idx){0};
    const int n = snprintf(packed, sizeof packed, "%s.gz", path);
    if (n >= (int)sizeof packed) return an_fail(err, AN_E_USAGE, "%.100s...: the path is too long", path);
    if (access(path, F_OK) != 0 && access(packed, F_OK) == 0) return open_packed(err, packed, out);
    an_map_file map;
    AN_TRY(an_file_map(err, path, &map));
    an_status status = an_idx_parse(err, path, map.data ? map.data : "", map.bytes, out);
    out->map = map;
    if (status != AN_OK) an_idx_close(out);
    return status;
}

void an_idx_close(an_idx *x)
{
    free(x->memory);
    an_file_unmap(&x->map);
    *x = (an_idx){0};
}
