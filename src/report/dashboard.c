/* dashboard.c: see dashboard.h. */
#define _DEFAULT_SOURCE
#include "report/dashboard.h"
#include "io/formats/json.h"
#include "io/text/utf8.h"
#include "platform/platform.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const char an_embed_dashboard_page[];

enum { POINTS = 512, VALS = 256, TEXT = 400, SAMPLE = 4000 };

/* One point of the charts: several logged updates, of which it has the mean loss and the last of the other numbers. */
typedef struct point {
    int64_t step;
    double loss, ms, live_bytes, rss_bytes;
} point;
typedef struct val_point {
    int64_t step;
    double loss;
} val_point;

struct an_dashboard {
    an_http_server *server;
    char token[AN_DASHBOARD_TOKEN_BYTES], nonce[2 * AN_RANDOM_NAME_BYTES], policy[256], address[64];
    int port;
    char out[TEXT], preset[TEXT], device[TEXT], unit[64]; /* valid UTF-8 */
    int64_t max_iters;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t end;
    uint64_t version; /* counts changes, from 1 */
    int streams;      /* open ones */
    bool ending, stop_asked;
    bool told; /* `now` holds an update's numbers */
    an_dashboard_numbers now;
    double val_loss, best_val_loss;
    point point[POINTS];
    size_t n_points, lines_a_point, lines; /* `lines`: in the last point */
    val_point val[VALS];
    size_t n_vals;
    char note[TEXT], ended[TEXT], sample[SAMPLE];
    int64_t sample_step;
};

/* ---- texts */

/* Copies text to `out` as valid UTF-8 of fewer than `cap` bytes. */
static void keep_text(char *out, size_t cap, const char *text, size_t n)
{
    an_text repaired = {0};
    an_utf8_repair(text, AN_MIN(n, cap), &repaired);
    size_t used = 0;
    uint32_t c;
    for (int len; !repaired.failed && used < repaired.len; used += (size_t)len) {
        len = an_utf8_next(repaired.data + used, repaired.len - used, &c);
        if (len <= 0 || c == 0 || used + (size_t)len >= cap) break;
    }
    if (used) memcpy(out, repaired.data, used);
    out[used] = 0;
    an_text_free(&repaired);
}

static bool is_token(const char *text)
{
    size_t n = 0;
    for (; text[n]; n++)
        if (!isalnum((unsigned char)text[n]) && text[n] != '-' && text[n] != '_') return false;
    return n >= AN_DASHBOARD_TOKEN_LEAST && n < AN_DASHBOARD_TOKEN_BYTES;
}

/* Compares in constant time: how long it takes depends only on the length of what was sent. */
static bool is_the_token(const an_dashboard *d, const char *sent)
{
    if (!sent) return false;
    const size_t n = strlen(d->token), m = strlen(sent);
    unsigned differs = n != m;
    for (size_t i = 0; i < m; i++)
        differs |= (unsigned)((unsigned char)sent[i] ^ (unsigned char)d->token[i < n ? i : 0]);
    return differs == 0;
}

/* ---- events of the run */

/* The table is full: merges neighbours in pairs; from then on a point takes twice as many lines of metrics. */
static void halve(an_dashboard *d)
{
    for (size_t i = 0; i < POINTS / 2; i++) {
        point a = d->point[2 * i], b = d->point[2 * i + 1];
        b.loss = isfinite(a.loss) && isfinite(b.loss) ? 0.5 * (a.loss + b.loss) : isfinite(a.loss) ? a.loss : b.loss;
        d->point[i] = b;
    }
    d->n_points = POINTS / 2;
    d->lines_a_point *= 2;
}

void an_dashboard_update(an_dashboard *d, const an_dashboard_numbers *n)
{
    pthread_mutex_lock(&d->lock);
    if (d->lines == d->lines_a_point || d->n_points == 0) {
        if (d->n_points == POINTS) halve(d);
        d->point[d->n_points++] = (point){.loss = NAN};
        d->lines = 0;
    }
    point *p = &d->point[d->n_points - 1];
    const double before = p->loss, k = (double)d->lines;
    d->lines++;
    *p = (point){.step = n->step, .ms = n->ms, .live_bytes = n->live_bytes, .rss_bytes = n->rss_bytes};
    p->loss = isfinite(before) && isfinite(n->loss) ? (before * k + n->loss) / (k + 1)
              : isfinite(n->loss)                   ? n->loss
                                                    : before;
    d->now = *n;
    d->told = true;
    d->version++;
    pthread_mutex_unlock(&d->lock);
}

void an_dashboard_evaluated(an_dashboard *d, int64_t step, double val_loss)
{
    pthread_mutex_lock(&d->lock);
    if (d->n_vals == VALS) {
        for (size_t i = 0; i < VALS / 2; i++) d->val[i] = d->val[2 * i + 1];
        d->n_vals = VALS / 2;
    }
    d->val[d->n_vals++] = (val_point){step, val_loss};
    d->val_loss = val_loss;
    if (!(d->best_val_loss <= val_loss)) d->best_val_loss = val_loss;
    d->version++;
    pthread_mutex_unlock(&d->lock);
}

static void set_text(an_dashboard *d, char *place, size_t cap, const char *text, size_t n)
{
    pthread_mutex_lock(&d->lock);
    keep_text(place, cap, text, n);
    d->version++;
    pthread_mutex_unlock(&d->lock);
}

void an_dashboard_note(an_dashboard *d, const char *text)
{
    set_text(d, d->note, sizeof d->note, text, strlen(text));
}

void an_dashboard_sample(an_dashboard *d, int64_t step, const char *text, size_t n)
{
    pthread_mutex_lock(&d->lock);
    d->sample_step = step;
    pthread_mutex_unlock(&d->lock);
    set_text(d, d->sample, sizeof d->sample, text, n);
}

bool an_dashboard_stop_asked(an_dashboard *d)
{
    pthread_mutex_lock(&d->lock);
    const bool asked = d->stop_asked;
    pthread_mutex_unlock(&d->lock);
    return asked;
}

/* ---- answers to requests; these functions are called with the lock held */

static void put_member(an_text *out, const char *key, const char *text)
{
    an_text_printf(out, ",\"%s\":", key);
    an_json_put(out, text);
}

typedef struct number {
    const char *key, *help;
    double value;
} number;
enum { NUMBERS = 14 };

static void numbers_of(const an_dashboard *d, number out[NUMBERS])
{
    const an_dashboard_numbers *n = &d->now;
    const number all[NUMBERS] = {{"step", "updates done", d->told ? (double)n->step + 1 : NAN},
                                 {"max_iters", "updates asked for", (double)d->max_iters},
                                 {"loss", "loss of the last batch", n->loss},
                                 {"val_loss", "validation loss", d->val_loss},
                                 {"best_val_loss", "lowest validation loss", d->best_val_loss},
                                 {"learning_rate", "learning rate", n->lr},
                                 {"grad_norm", "norm of the gradients", n->grad_norm},
                                 {"update_ms", "milliseconds an update", n->ms},
                                 {"units_per_s", "tokens or examples a second", n->units_per_s},
                                 {"data_wait_ms", "milliseconds an update waits for data", n->data_wait_ms},
                                 {"eta_s", "seconds left", n->eta_s},
                                 {"gpu_busy", "share of the time in which the GPU works", n->gpu_busy},
                                 {"live_bytes", "memory in use on the device", n->live_bytes},
                                 {"rss_bytes", "resident memory of the process", n->rss_bytes}};
    memcpy(out, all, sizeof all);
}

static void put_series(const an_dashboard *d, an_text *out)
{
    an_text_puts(out, ",\"points\":[");
    for (size_t i = 0; i < d->n_points; i++) {
        const point *p = &d->point[i];
        const double v[] = {p->loss, p->ms, p->live_bytes, p->rss_bytes};
        an_text_printf(out, "%s[%lld", i ? "," : "", (long long)p->step);
        for (size_t k = 0; k < AN_COUNT(v); k++) an_text_printf(out, isfinite(v[k]) ? ",%.7g" : ",null", v[k]);
        an_text_puts(out, "]");
    }
    an_text_puts(out, "],\"validation\":[");
    for (size_t i = 0; i < d->n_vals; i++)
        an_text_printf(out, isfinite(d->val[i].loss) ? "%s[%lld,%.7g]" : "%s[%lld,null]", i ? "," : "",
                       (long long)d->val[i].step, d->val[i].loss);
    an_text_puts(out, "]");
}

static void put_state(const an_dashboard *d, an_text *out)
{
    number n[NUMBERS];
    numbers_of(d, n);
    an_text_printf(out, "{\"version\":%llu", (unsigned long long)d->version);
    put_member(out, "run", d->out);
    put_member(out, "preset", d->preset);
    put_member(out, "device", d->device);
    put_member(out, "unit", d->unit);
    for (size_t i = 0; i < NUMBERS; i++) an_json_put_number(out, n[i].key, n[i].value);
    put_series(d, out);
    put_member(out, "note", d->note);
    put_member(out, "sample", d->sample);
    an_text_printf(out, ",\"sample_step\":%lld,\"stopping\":%s", (long long)d->sample_step,
                   d->stop_asked ? "true" : "false");
    put_member(out, "ended", d->ended);
    an_text_puts(out, "}");
}

/* Prometheus' text format: in a label's value, backslash, quote and newline are escaped. */
static void put_metrics(const an_dashboard *d, an_text *out)
{
    number n[NUMBERS];
    an_text label = {0};
    for (const char *c = d->out; *c; c++) {
        if (*c == '\\' || *c == '"') an_text_puts(&label, "\\");
        if (*c == '\n')
            an_text_puts(&label, "\\n");
        else
            an_text_putn(&label, c, 1);
    }
    numbers_of(d, n);
    for (size_t i = 0; i < NUMBERS; i++)
        if (isfinite(n[i].value))
            an_text_printf(out, "# HELP anneal_%s %s\n# TYPE anneal_%s gauge\nanneal_%s{run=\"%s\"} %.17g\n", n[i].key,
                           n[i].help, n[i].key, n[i].key, label.data ? label.data : "", n[i].value);
    out->failed |= label.failed;
    an_text_free(&label);
}

/* The page, with the nonce that its one script needs to run: injected script would lack it. */
static void put_page(const an_dashboard *d, an_text *out)
{
    static const char mark[] = "@NONCE@";
    const char *page = an_embed_dashboard_page;
    for (const char *at; (at = strstr(page, mark)) != NULL; page = at + sizeof mark - 1) {
        an_text_putn(out, page, (size_t)(at - page));
        an_text_puts(out, d->nonce);
    }
    an_text_puts(out, page);
}

static void refuse(an_http_answer *out, int code, const char *sentence)
{
    out->code = code;
    out->type = "text/plain; charset=utf-8";
    an_text_puts(&out->body, sentence);
}

static void answer_get(an_dashboard *d, const char *path, an_http_answer *out)
{
    out->code = 200;
    if (strcmp(path, "/") == 0) {
        out->type = "text/html; charset=utf-8";
        out->policy = d->policy;
        put_page(d, &out->body);
    } else if (strcmp(path, "/state") == 0) {
        out->type = "application/json";
        put_state(d, &out->body);
    } else if (strcmp(path, "/metrics") == 0) {
        out->type = "text/plain; version=0.0.4; charset=utf-8";
        put_metrics(d, &out->body);
    } else if (strcmp(path, "/events") == 0 && !d->ending) {
        out->type = "text/event-stream";
        out->stream = true;
        d->streams++;
    } else {
        refuse(out, 404, "there is /, /events, /state, /metrics, and POST /stop\n");
    }
}

void an_dashboard_answer(void *arg, const an_http_request *q, an_http_answer *out)
{
    an_dashboard *d = arg;
    const bool reads = strcmp(q->method, "GET") == 0, stops = strcmp(q->path, "/stop") == 0;
    if (!is_the_token(d, q->token)) {
        refuse(out, 403, "the token is missing or wrong: open the address that anneal train printed\n");
        return;
    }
    pthread_mutex_lock(&d->lock);
    if (stops && strcmp(q->method, "POST") == 0) {
        d->stop_asked = true;
        d->version++;
        refuse(out, 202, "the run finishes its update, saves and ends\n");
    } else if (stops || !reads) {
        refuse(out, 405, "GET /, /events, /state and /metrics; POST /stop\n");
    } else {
        answer_get(d, q->path, out);
    }
    pthread_mutex_unlock(&d->lock);
}

/* ---- streams */

/* Waits a second, or until the run ends. Streams are sent at most one state a second, so that they never slow an update. */
static void wait_a_second(an_dashboard *d)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    while (!d->ending && pthread_cond_timedwait(&d->end, &d->lock, &until) != ETIMEDOUT) {
    }
}

bool an_dashboard_next(void *arg, uint64_t *seen, an_text *out)
{
    an_dashboard *d = arg;
    pthread_mutex_lock(&d->lock);
    if (*seen) wait_a_second(d);
    const bool news = *seen != d->version, ends = d->ending && !news;
    *seen = d->version;
    if (news) {
        an_text_puts(out, "data: ");
        put_state(d, out);
        an_text_puts(out, "\n\n");
    } else {
        an_text_puts(out, ":\n\n"); /* a comment: the connection is alive */
    }
    pthread_mutex_unlock(&d->lock);
    return !ends;
}

void an_dashboard_done(void *arg)
{
    an_dashboard *d = arg;
    pthread_mutex_lock(&d->lock);
    d->streams--;
    pthread_mutex_unlock(&d->lock);
}

/* ---- open, close */

an_status an_dashboard_new(an_err *err, const char *token, const an_dashboard_run *run, an_dashboard **out)
{
    *out = NULL;
    if (*token && !is_token(token))
        return an_fail(err, AN_E_USAGE, "dashboard_token: %d to %d letters, digits, - or _", AN_DASHBOARD_TOKEN_LEAST,
                       AN_DASHBOARD_TOKEN_BYTES - 1);
    an_dashboard *d = calloc(1, sizeof *d);
    if (!d) return an_fail_nomem(err, "a dashboard", sizeof *d);
    char random[4][AN_RANDOM_NAME_BYTES];
    for (size_t i = 0; i < AN_COUNT(random); i++) an_random_name(random[i]);
    snprintf(d->token, sizeof d->token, "%s%s", *token ? token : random[0], *token ? "" : random[1]);
    snprintf(d->nonce, sizeof d->nonce, "%s%s", random[2], random[3]);
    snprintf(d->policy, sizeof d->policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'unsafe-inline'; connect-src 'self'; base-uri "
             "'none'; form-action 'none'; frame-ancestors 'none'",
             d->nonce);
    keep_text(d->out, sizeof d->out, run->out, strlen(run->out));
    keep_text(d->preset, sizeof d->preset, run->preset, strlen(run->preset));
    keep_text(d->device, sizeof d->device, run->device, strlen(run->device));
    keep_text(d->unit, sizeof d->unit, run->unit, strlen(run->unit));
    d->max_iters = run->max_iters;
    d->version = 1;
    d->lines_a_point = 1;
    d->now = (an_dashboard_numbers){0, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    d->val_loss = d->best_val_loss = NAN;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->end, NULL);
    *out = d;
    return AN_OK;
}

an_status an_dashboard_open(an_err *err, const char *address, int port, const char *token, const an_dashboard_run *run,
                            an_dashboard **out)
{
    *out = NULL;
    if (strncmp(address, "127.", 4) != 0 && !*token)
        return an_fail(
            err, AN_E_USAGE,
            "dashboard_address=%.64s: others can reach this address, so choose a token: dashboard_token=", address);
    AN_TRY(an_dashboard_new(err, token, run, out));
    an_dashboard *d = *out;
    snprintf(d->address, sizeof d->address, "%s", address);
    d->port = port;
    const an_http_handler handler = {an_dashboard_answer, an_dashboard_next, an_dashboard_done, d};
    an_status status = an_http_open(err, address, port, &handler, &d->server);
    if (status != AN_OK) {
        an_dashboard_close(d, "");
        *out = NULL;
    }
    return status;
}

void an_dashboard_url(const an_dashboard *d, char out[AN_DASHBOARD_URL_BYTES])
{
    snprintf(out, AN_DASHBOARD_URL_BYTES, "http://%s:%d/?token=%s", d->address, d->port, d->token);
}

/* Sends how the run ended to all streams and waits up to two seconds for them to close. */
static void end_streams(an_dashboard *d, const char *ended)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    bool some = true;
    pthread_mutex_lock(&d->lock);
    keep_text(d->ended, sizeof d->ended, ended, strlen(ended));
    d->ending = true;
    d->version++;
    pthread_cond_broadcast(&d->end);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < 200 && some; i++) {
        pthread_mutex_lock(&d->lock);
        some = d->streams > 0;
        pthread_mutex_unlock(&d->lock);
        if (some) nanosleep(&nap, NULL);
    }
}

void an_dashboard_close(an_dashboard *d, const char *ended)
{
    if (!d) return;
    if (d->server) end_streams(d, ended);
    an_http_close(d->server);
    pthread_cond_destroy(&d->end);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
