/* dashboard.h: a page about a run while it trains: curve, progress, memory, samples, a button that saves and stops; and
 * /metrics for Prometheus.
 *
 * Owns:      the run's numbers for the page, who may read them, the answers to requests (an_dashboard_answer), the page
 *            (dashboard_page.html).
 * Does not:  speak HTTP (platform/http_server.h), train, or ask a device: the training loop calls it with the numbers.
 *
 * Invariants: without the token every request gets the same refusal, and the token is compared in a time that does not
 * depend on where it differs. Numbers take bounded memory, however long the run is. The trainer's thread holds the
 * lock for a copy of a few numbers and never waits for a reader. Text of a run reaches the page as text, never as markup.
 *
 *     GET  /          the page
 *     GET  /events    server-sent events: the state, at most once a second
 *     GET  /state     the same once, as JSON
 *     GET  /metrics   Prometheus' text format
 *     POST /stop      finish the update, save, and end */
#ifndef AN_REPORT_DASHBOARD_H
#define AN_REPORT_DASHBOARD_H

#include "platform/http_server.h"

enum { AN_DASHBOARD_TOKEN_BYTES = 129, AN_DASHBOARD_TOKEN_LEAST = 16, AN_DASHBOARD_URL_BYTES = 256 };

typedef struct an_dashboard_run { /* texts may be of any bytes */
    const char *out, *preset, *device, *unit;
    int64_t max_iters;
} an_dashboard_run;

typedef struct an_dashboard_numbers { /* of one update; NaN: unknown */
    int64_t step;
    double loss, lr, grad_norm, ms, units_per_s, data_wait_ms, eta_s, gpu_busy;
    double live_bytes, reserved_bytes, rss_bytes;
} an_dashboard_numbers;

typedef struct an_dashboard an_dashboard;

/* `token`: at least AN_DASHBOARD_TOKEN_LEAST letters, digits, - or _; "": one is drawn. An address that is not of the
 * loopback network needs one that the user chose. AN_E_USAGE: one of these; else as an_http_open. */
an_status an_dashboard_open(an_err *err, const char *address, int port, const char *token, const an_dashboard_run *run,
                            an_dashboard **out);
/* The same without a server, for an_dashboard_answer alone. */
an_status an_dashboard_new(an_err *err, const char *token, const an_dashboard_run *run, an_dashboard **out);
/* Where to look, with the token. */
void an_dashboard_url(const an_dashboard *d, char out[AN_DASHBOARD_URL_BYTES]);
/* Ends the streams, which are sent how the run ended ("": nothing is sent), then the server. NULL: nothing. */
void an_dashboard_close(an_dashboard *d, const char *ended);

void an_dashboard_update(an_dashboard *d, const an_dashboard_numbers *n);
void an_dashboard_evaluated(an_dashboard *d, int64_t step, double val_loss);
void an_dashboard_note(an_dashboard *d, const char *text);
void an_dashboard_sample(an_dashboard *d, int64_t step, const char *text, size_t n);
bool an_dashboard_stop_asked(an_dashboard *d);

/* An an_http_handler's functions; `arg` is the an_dashboard. */
void an_dashboard_answer(void *arg, const an_http_request *q, an_http_answer *out);
bool an_dashboard_next(void *arg, uint64_t *seen, an_text *out);
void an_dashboard_done(void *arg);

#endif
