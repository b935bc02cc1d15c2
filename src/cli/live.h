/* live.h: what train and resume show while they train, where dashboard=PORT asks for it: the page of
 * report/dashboard.h, told of the run's events, with samples of the newest checkpoint.
 *
 * Owns:      the settings, the translation of events, the program that draws a sample.
 * Does not:  serve, or compute anything in the training process: a sample is drawn by `anneal sample` on the CPU, at the
 *            lowest priority, so that the run's bits do not depend on who looks. */
#ifndef AN_CLI_LIVE_H
#define AN_CLI_LIVE_H

#include "report/dashboard.h"
#include "train/loop.h"

typedef struct an_live_values {
    int64_t port; /* 0: no page */
    char address[AN_CONFIG_TEXT_BYTES], token[AN_CONFIG_TEXT_BYTES];
} an_live_values;

/* Rows for a command's table of settings. */
/* clang-format off */
#define AN_LIVE_FIELDS(type, member)                                                                                   \
    {"dashboard", AN_CONFIG_INT, offsetof(type, member.port), "0", 0, 65535, NULL,                                      \
     "port of a page about this run: curve, progress, memory, samples, save and stop; /metrics for Prometheus; 0: none"}, \
    {"dashboard_address", AN_CONFIG_TEXT, offsetof(type, member.address), "127.0.0.1", 0, 0, NULL,                      \
     "numeric address of that page; one that others can reach needs dashboard_token="},                                \
    {"dashboard_token", AN_CONFIG_TEXT, offsetof(type, member.token), "", 0, 0, NULL,                                   \
     "what a reader of the page must know; empty: one is drawn and printed with the address"}
/* clang-format on */

typedef struct an_live {
    an_dashboard *board; /* NULL: none */
    const char *out;
    int64_t asked_step, sample_step; /* of the newest checkpoint; of the sample that is drawn */
    int pid, fd;                     /* of the program that draws; 0: none */
    double began;                    /* clock when it was started */
} an_live;

/* Whether a page could be served, before anything of the run is written. */
an_status an_live_check(an_err *err, const an_live_values *v);
an_status an_live_open(an_err *err, const an_live_values *v, const an_session *r, an_live *out);
void an_live_event(an_live *l, const an_session *r, const an_train_event *e);
/* Whether the page's button was pressed. Looks after the sample, too. */
bool an_live_wants_stop(an_live *l);
void an_live_close(an_live *l, const char *ended);

#endif
