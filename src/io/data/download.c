/* download.c: see download.h. A transfer appends to PATH.part; the part gets its name after its SHA-256 was
 * compared. */
#define _DEFAULT_SOURCE
#include "io/data/download.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include "io/formats/sha256.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The part of libcurl's interface (stable since 2006, soname 4) that is used here, under curl.h's names;
 * tests/unit/test_download.c compares the numbers with curl.h where there is one. */
enum {
    CURLOPT_WRITEDATA = 10001,
    CURLOPT_URL = 10002,
    CURLOPT_ERRORBUFFER = 10010,
    CURLOPT_USERAGENT = 10018,
    CURLOPT_LOW_SPEED_LIMIT = 19,
    CURLOPT_LOW_SPEED_TIME = 20,
    CURLOPT_FAILONERROR = 45,
    CURLOPT_FOLLOWLOCATION = 52,
    CURLOPT_MAXREDIRS = 68,
    CURLOPT_CONNECTTIMEOUT = 78,
    CURLOPT_NOSIGNAL = 99,
    CURLOPT_PROTOCOLS = 181,
    CURLOPT_REDIR_PROTOCOLS = 182,
    CURLOPT_WRITEFUNCTION = 20011,
    CURLOPT_RESUME_FROM_LARGE = 30116,
    CURLINFO_RESPONSE_CODE = 0x200002,
    CURLPROTO_HTTP = 1,
    CURLPROTO_HTTPS = 2,
    CURLE_RANGE_ERROR = 33,
    CURL_ERROR_SIZE = 256,
    HTTP_PARTIAL = 206,
    HTTP_RANGE_ERROR = 416
};

typedef struct curl {
    void *lib;
    void *(*easy_init)(void);
    int (*easy_setopt)(void *, int, ...);
    int (*easy_perform)(void *);
    int (*easy_getinfo)(void *, int, ...);
    void (*easy_cleanup)(void *);
    const char *(*easy_strerror)(int);
} curl;

typedef struct transfer {
    const an_download *d;
    const curl *api;
    void *handle;
    char part[1024];
    int fd;
    uint64_t have;   /* bytes in the part */
    bool resumed;    /* a range was asked for */
    int write_error; /* errno of a failed write; 0: none */
    bool too_long;
} transfer;

/* ---- the library */

static an_status load(an_err *err, const an_download *d, curl *out)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib", "libcurl.so", NULL};
    static const an_dl_symbol symbols[] = {
        {"curl_easy_init", offsetof(curl, easy_init)},       {"curl_easy_setopt", offsetof(curl, easy_setopt)},
        {"curl_easy_perform", offsetof(curl, easy_perform)}, {"curl_easy_getinfo", offsetof(curl, easy_getinfo)},
        {"curl_easy_cleanup", offsetof(curl, easy_cleanup)}, {"curl_easy_strerror", offsetof(curl, easy_strerror)}};
    static const an_dl_library library = {names, "libcurl, which downloads,", "libcurl4", symbols, AN_COUNT(symbols)};
    return an_dl_load(err, d->url, &library, d->otherwise, out, &out->lib);
}

/* ---- one attempt */

static bool start_over(transfer *t)
{
    t->have = 0;
    t->resumed = false;
    return ftruncate(t->fd, 0) == 0 && lseek(t->fd, 0, SEEK_SET) == 0;
}

/* libcurl's write function: anything but `n` ends the transfer. A server that ignores the range sends the whole file.
 */
static size_t take(char *data, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    long code = 0;
    n *= size;
    if (t->resumed && t->api->easy_getinfo(t->handle, CURLINFO_RESPONSE_CODE, &code) == 0 && code != HTTP_PARTIAL &&
        !start_over(t))
        return t->write_error = errno, 0;
    t->resumed = false; /* asked once */
    if (n > t->d->bytes - t->have) return t->too_long = true, 0;
    for (size_t done = 0; done < n;) {
        ssize_t wrote = write(t->fd, data + done, n - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return t->write_error = errno ? errno : EIO, 0;
        done += (size_t)wrote;
        t->have += (uint64_t)wrote;
    }
    if (t->d->tell) t->d->tell(t->d->arg, t->have, t->d->bytes);
    return n;
}

static int perform(transfer *t, char why[CURL_ERROR_SIZE], long *code)
{
    const curl *c = t->api;
    void *h = t->handle;
    t->resumed = t->have > 0;
    t->too_long = false;
    why[0] = 0;
    c->easy_setopt(h, CURLOPT_URL, t->d->url);
    c->easy_setopt(h, CURLOPT_USERAGENT, "anneal/" AN_VERSION);
    c->easy_setopt(h, CURLOPT_ERRORBUFFER, why);
    c->easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
    c->easy_setopt(h, CURLOPT_WRITEDATA, t);
    c->easy_setopt(h, CURLOPT_FAILONERROR, 1L);
    c->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
    c->easy_setopt(h, CURLOPT_MAXREDIRS, 5L);
    c->easy_setopt(h, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    c->easy_setopt(h, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    c->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(h, CURLOPT_CONNECTTIMEOUT, 30L);
    c->easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L); /* a minute without a byte is a cut connection */
    c->easy_setopt(h, CURLOPT_LOW_SPEED_TIME, 60L);
    c->easy_setopt(h, CURLOPT_RESUME_FROM_LARGE, (int64_t)t->have);
    int result = c->easy_perform(h);
    *code = 0;
    (void)c->easy_getinfo(h, CURLINFO_RESPONSE_CODE, code);
    if (!why[0]) snprintf(why, CURL_ERROR_SIZE, "%s", c->easy_strerror(result));
    return result;
}

static an_status fetch(an_err *err, transfer *t)
{
    char why[CURL_ERROR_SIZE];
    long code;
    if (t->have == t->d->bytes) return AN_OK; /* only the name was missing */
    int result = perform(t, why, &code);
    /* libcurl reports 416 (range not satisfiable) as a success. Bytes are missing, so the file there is another one. */
    if (t->have > 0 && !t->write_error && (result == CURLE_RANGE_ERROR || code == HTTP_RANGE_ERROR)) {
        if (!start_over(t)) return an_fail(err, AN_E_IO, "%s: %s", t->part, strerror(errno));
        result = perform(t, why, &code);
    }
    if (t->write_error)
        return an_fail(err, AN_E_IO,
                       "%s: cannot write byte %llu: %s; make room and run it again: it goes on from there", t->part,
                       (unsigned long long)t->have, strerror(t->write_error));
    if (t->too_long)
        return an_fail(err, AN_E_DATA, "%s: the server sends more than the %llu bytes of the file that was meant; %s",
                       t->d->url, (unsigned long long)t->d->bytes, t->d->otherwise);
    if (result == 0 && t->have < t->d->bytes) snprintf(why, sizeof why, "the connection was cut");
    if (t->have < t->d->bytes)
        return an_fail(err, AN_E_ENV, "%s: after byte %llu: %s; run it again to go on from there, or %s", t->d->url,
                       (unsigned long long)t->have, why, t->d->otherwise);
    return AN_OK;
}

/* ---- the file */

static an_status open_part(an_err *err, transfer *t)
{
    struct stat info;
    int n = snprintf(t->part, sizeof t->part, "%s.part", t->d->path);
    if (n < 0 || n >= (int)sizeof t->part) return an_fail(err, AN_E_USAGE, "%s: the path is too long", t->d->path);
    t->fd = open(t->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (t->fd < 0) return an_fail(err, AN_E_IO, "%s: cannot be written: %s", t->part, strerror(errno));
    if (flock(t->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return an_fail(err, AN_E_ENV, "%s: another process downloads it; wait for it", t->part);
    if (fstat(t->fd, &info) != 0 || !S_ISREG(info.st_mode) || lseek(t->fd, 0, SEEK_END) < 0)
        return an_fail(err, AN_E_IO, "%s: not a file that can be continued; remove it", t->part);
    t->have = (uint64_t)info.st_size;
    if (t->have > t->d->bytes && !start_over(t)) return an_fail(err, AN_E_IO, "%s: %s", t->part, strerror(errno));
    return AN_OK;
}

/* Compares the hash, then renames the part. A wrong part is removed: continuing it could not make it right. */
static an_status accept(an_err *err, const transfer *t)
{
    char sha256[AN_SHA256_TEXT_BYTES];
    AN_TRY(an_sha256_file(err, t->part, sha256));
    if (strcmp(sha256, t->d->sha256) != 0) {
        (void)unlink(t->part);
        return an_fail(err, AN_E_DATA,
                       "%s: what came is not the file that was meant (%llu bytes, sha256 %s, not %s) and was removed; "
                       "try again later, or %s",
                       t->d->url, (unsigned long long)t->have, sha256, t->d->sha256, t->d->otherwise);
    }
    if (fsync(t->fd) != 0 || rename(t->part, t->d->path) != 0)
        return an_fail(err, AN_E_IO, "%s: cannot be saved: %s", t->d->path, strerror(errno));
    return AN_OK;
}

static an_status make_folder(an_err *err, const char *path)
{
    char folder[1024];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof folder) return AN_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return an_make_dirs(err, folder, 0777);
}

static an_status download(an_err *err, transfer *t)
{
    AN_TRY(make_folder(err, t->d->path));
    AN_TRY(open_part(err, t));
    t->handle = t->api->easy_init();
    if (!t->handle) return an_fail_nomem(err, "a download", 4096);
    AN_TRY(fetch(err, t));
    return accept(err, t);
}

an_status an_download_file(an_err *err, const an_download *d)
{
    char sha256[AN_SHA256_TEXT_BYTES];
    curl api;
    if (access(d->path, F_OK) == 0 && an_sha256_file(NULL, d->path, sha256) == AN_OK && strcmp(sha256, d->sha256) == 0)
        return AN_OK;
    AN_TRY(load(err, d, &api));
    transfer t = {.d = d, .api = &api, .fd = -1};
    an_status status = download(err, &t);
    if (t.handle) api.easy_cleanup(t.handle);
    if (t.fd >= 0) close(t.fd);
    return status; /* libcurl stays loaded: TLS libraries under it crash when they are unloaded */
}
