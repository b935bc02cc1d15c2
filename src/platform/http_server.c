/* http_server.c: see http_server.h. Names and numbers of the interface are those of microhttpd.h, version 0.9.71 and later
 * (libmicrohttpd.so.12). */
#define _DEFAULT_SOURCE
#include "platform/http_server.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* MHD_USE_THREAD_PER_CONNECTION, _INTERNAL_POLLING_THREAD, _AUTO: a thread may then wait for news of a stream. */
enum { USE_THREADS = 4 | 8 | 65536 };
enum { OPTION_END = 0, OPTION_MEMORY = 1, OPTION_CONNECTIONS = 2, OPTION_TIMEOUT = 3, OPTION_SOCKET = 12 };
enum { HEADER_KIND = 1, ARGUMENT_KIND = 8, MUST_COPY = 2, YES = 1, NO = 0 };
enum { MOST_CONNECTIONS = 32, MOST_MEMORY = 32 << 10, IDLE_SECONDS = 15, MOST_PIECE = 1 << 20, BLOCK = 16 << 10 };

typedef ssize_t (*read_piece)(void *arg, uint64_t position, char *out, size_t cap);
typedef int (*take_request)(void *arg, void *connection, const char *path, const char *method, const char *version,
                            const char *upload, size_t *upload_bytes, void **state);

struct an_http_server {
    void *lib, *daemon;
    an_http_handler handler;
    void *(*start)(unsigned flags, uint16_t port, void *policy, void *policy_arg, take_request take, void *arg, ...);
    void (*stop)(void *daemon);
    const char *(*lookup)(void *connection, int kind, const char *key);
    void *(*from_buffer)(size_t n, void *data, int mode);
    void *(*from_callback)(uint64_t n, size_t block, read_piece read, void *arg, void (*free)(void *arg));
    int (*add_header)(void *response, const char *name, const char *value);
    int (*queue)(void *connection, unsigned code, void *response);
    void (*release)(void *response);
};

/* ---- the library */

static void *open_library(void)
{
    static const char *const names[] = {"libmicrohttpd.so.12", "libmicrohttpd.12.dylib", "libmicrohttpd.so"};
    const char *only = getenv("ANNEAL_MICROHTTPD_PATH");
    void *lib = NULL;
    char path[1100];
    for (size_t i = 0; i < AN_COUNT(names) && !lib; i++) {
        snprintf(path, sizeof path, "%.1000s/%s", only ? only : "", names[i]);
        lib = an_dl_open(NULL, only ? path : names[i]);
    }
    return lib;
}

static an_status load(an_err *err, an_http_server *s)
{
    static const an_dl_symbol symbols[] = {
        {"MHD_start_daemon", offsetof(an_http_server, start)},
        {"MHD_stop_daemon", offsetof(an_http_server, stop)},
        {"MHD_lookup_connection_value", offsetof(an_http_server, lookup)},
        {"MHD_create_response_from_buffer", offsetof(an_http_server, from_buffer)},
        {"MHD_create_response_from_callback", offsetof(an_http_server, from_callback)},
        {"MHD_add_response_header", offsetof(an_http_server, add_header)},
        {"MHD_queue_response", offsetof(an_http_server, queue)},
        {"MHD_destroy_response", offsetof(an_http_server, release)}};
    s->lib = open_library();
    if (s->lib && !an_dl_fill(s->lib, symbols, AN_COUNT(symbols), s)) return AN_OK;
    return an_fail(err, AN_E_ENV,
                   "the library that serves pages is not installed: install libmicrohttpd12 (Homebrew: "
                   "libmicrohttpd), or leave dashboard= out");
}

/* ---- streams */

typedef struct stream {
    an_http_handler handler;
    an_text piece;
    size_t at; /* of `piece`, sent */
    uint64_t seen;
} stream;

/* Called in the connection's own thread, which may wait. A piece too large for memory ends the stream. */
static ssize_t read_stream(void *arg, uint64_t position, char *out, size_t cap)
{
    enum { END_OF_STREAM = -1 };
    stream *s = arg;
    (void)position;
    while (s->at == s->piece.len) {
        an_text_clear(&s->piece);
        s->at = 0;
        if (!s->handler.next(s->handler.arg, &s->seen, &s->piece) || s->piece.failed || s->piece.len > MOST_PIECE)
            return END_OF_STREAM;
    }
    const size_t n = AN_MIN(cap, s->piece.len - s->at);
    memcpy(out, s->piece.data + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

static void free_stream(void *arg)
{
    stream *s = arg;
    s->handler.done(s->handler.arg);
    an_text_free(&s->piece);
    free(s);
}

/* ---- requests */

static const char *token_of(const an_http_server *s, void *connection)
{
    static const char bearer[] = "Bearer ";
    const char *header = s->lookup(connection, HEADER_KIND, "Authorization");
    if (header && strncmp(header, bearer, sizeof bearer - 1) == 0) return header + sizeof bearer - 1;
    return s->lookup(connection, ARGUMENT_KIND, "token");
}

static void *make_response(const an_http_server *s, const an_http_answer *a)
{
    if (!a->stream) return s->from_buffer(a->body.len, a->body.data ? a->body.data : (char[]){""}, MUST_COPY);
    stream *state = calloc(1, sizeof *state);
    if (state) state->handler = s->handler;
    void *response = state ? s->from_callback(UINT64_MAX, BLOCK, read_stream, state, free_stream) : NULL;
    if (!response) {
        s->handler.done(s->handler.arg);
        free(state);
    }
    return response;
}

/* The first call for a request comes behind its headers; an answer then means that a body is not read. */
static int take(void *arg, void *connection, const char *path, const char *method, const char *version,
                const char *upload, size_t *upload_bytes, void **state)
{
    const an_http_server *s = arg;
    const an_http_request q = {.method = method, .path = path, .token = token_of(s, connection)};
    an_http_answer a = {.code = 404, .type = "text/plain; charset=utf-8"};
    (void)version, (void)upload, (void)upload_bytes, (void)state;
    s->handler.answer(s->handler.arg, &q, &a);
    void *response = a.body.failed && !a.stream ? NULL : make_response(s, &a);
    int sent = NO;
    if (response) {
        const char *const headers[][2] = {{"Content-Type", a.type},
                                          {"Cache-Control", "no-store"},
                                          {"Referrer-Policy", "no-referrer"},
                                          {"X-Content-Type-Options", "nosniff"},
                                          {"Content-Security-Policy", a.policy ? a.policy : "default-src 'none'"}};
        sent = YES;
        for (size_t i = 0; i < AN_COUNT(headers); i++)
            if (s->add_header(response, headers[i][0], headers[i][1]) != YES) sent = NO;
        if (sent == YES) sent = s->queue(connection, (unsigned)a.code, response);
        s->release(response);
    }
    an_text_free(&a.body);
    return sent; /* NO closes the connection */
}

/* ---- the socket */

static an_status listen_on(an_err *err, const char *address, int port, int *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int yes = 1;
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
        return an_fail(err, AN_E_USAGE, "%.64s: not a numeric IPv4 address, such as 127.0.0.1", address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && listen(fd, MOST_CONNECTIONS) == 0) {
        *out = fd;
        return AN_OK;
    }
    const int why = errno;
    if (fd >= 0) close(fd);
    if (why == EADDRINUSE) return an_fail(err, AN_E_ENV, "port %d of %s is in use: name another", port, address);
    return an_fail(err, AN_E_ENV, "port %d of %s cannot be listened on: %s; name another", port, address,
                   strerror(why));
}

/* Threads that the library starts inherit the mask: signals are for the program's own. */
static void *start_without_signals(an_http_server *s, int port, int fd)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    void *daemon = s->start(USE_THREADS, (uint16_t)port, NULL, NULL, take, s, OPTION_SOCKET, fd, OPTION_CONNECTIONS,
                            (unsigned)MOST_CONNECTIONS, OPTION_MEMORY, (size_t)MOST_MEMORY, OPTION_TIMEOUT,
                            (unsigned)IDLE_SECONDS, OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

an_status an_http_open(an_err *err, const char *address, int port, const an_http_handler *handler, an_http_server **out)
{
    int fd = -1;
    an_http_server *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return an_fail_nomem(err, "a server", sizeof *s);
    s->handler = *handler;
    an_status status = load(err, s);
    if (status == AN_OK) status = listen_on(err, address, port, &fd);
    if (status == AN_OK && !(s->daemon = start_without_signals(s, port, fd))) {
        close(fd);
        status = an_fail(err, AN_E_ENV, "port %d of %s: the server's threads cannot be started", port, address);
    }
    if (status == AN_OK)
        *out = s;
    else
        an_http_close(s);
    return status;
}

void an_http_close(an_http_server *s)
{
    if (!s) return;
    if (s->daemon) s->stop(s->daemon);
    an_dl_close(s->lib);
    free(s);
}
