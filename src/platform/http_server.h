/* http_server.h: a small HTTP server in threads of its own, by libmicrohttpd, which is loaded at run time.
 *
 * Owns:      loading the library (the folders in ANNEAL_MICROHTTPD_PATH, and no others when it is set), the socket, the
 *            parsing of requests, streams of events.
 * Does not:  know pages, or who may read them: a handler answers.
 *
 * Invariants: a request's body is never read: the answer follows its headers. Connections, their memory and their idle
 * time are bounded, whatever is sent. The server's threads take no signals. */
#ifndef AN_PLATFORM_HTTP_SERVER_H
#define AN_PLATFORM_HTTP_SERVER_H

#include "base/base.h"
#include "base/text.h"

typedef struct an_http_request {
    const char *method, *path; /* "GET", "/events" */
    const char *token;         /* of ?token=TOKEN, or of the header Authorization: Bearer TOKEN; NULL: none */
} an_http_request;

typedef struct an_http_answer {
    int code;           /* 200, 403, ... */
    const char *type;   /* of the content */
    const char *policy; /* Content-Security-Policy; NULL: nothing may be loaded */
    bool stream;        /* what `next` gives, without an end, in place of `body` */
    an_text body;
} an_http_answer;

/* All are called from the server's threads, several at once. */
typedef struct an_http_handler {
    void (*answer)(void *arg, const an_http_request *q, an_http_answer *out);
    /* The next piece of a stream, after a wait of at most a second; an empty text is taken to be one more wait. *seen is
     * 0 at first and the handler's. False: the stream ends. */
    bool (*next)(void *arg, uint64_t *seen, an_text *out);
    void (*done)(void *arg); /* once for each answer that was a stream, when its connection has ended */
    void *arg;
} an_http_handler;

typedef struct an_http_server an_http_server;

/* Listens on a numeric IPv4 address. AN_E_ENV: there is no library, or the port is in use; AN_E_USAGE: no such address. */
an_status an_http_open(an_err *err, const char *address, int port, const an_http_handler *handler,
                       an_http_server **out);
/* Waits for the threads: streams must end by themselves, which `next` sees to. NULL: nothing. */
void an_http_close(an_http_server *s);

#endif
