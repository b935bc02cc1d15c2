/* test_dashboard.c: the page about a run answers to its token alone, whatever is sent to its socket, holds bounded memory, and
 * shows texts of strangers as text. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "lib/skip.h"
#include "io/formats/json.h"
#include "report/dashboard.h"
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS has none; SIGPIPE is ignored below */
#endif

static const char TOKEN[] = "0123456789abcdefghij";
static const an_dashboard_run run_of_a_stranger = {
    .out = "a\"b\\c</script>\n\xff", .preset = "demo", .device = "cpu", .unit = "token", .max_iters = 10};

static an_http_answer ask(an_dashboard *d, const char *method, const char *path, const char *token)
{
    an_http_answer a = {.code = 0};
    an_dashboard_answer(d, &(an_http_request){method, path, token}, &a);
    assert_false(a.body.failed);
    return a;
}

static int code_of(an_dashboard *d, const char *method, const char *path, const char *token)
{
    an_http_answer a = ask(d, method, path, token);
    an_text_free(&a.body);
    if (a.stream) an_dashboard_done(d);
    return a.code;
}

static void nothing_is_answered_without_the_token(void **state)
{
    (void)state;
    static const char *const paths[] = {"/", "/events", "/state", "/metrics", "/stop", "/nothing", ""};
    static const char *const wrong[] = {
        NULL, "", "0123456789abcdefghi", "0123456789abcdefghijk", "0123456789abcdefghiJ", "0"};
    an_dashboard *d;
    assert_int_equal(an_dashboard_new(NULL, TOKEN, &run_of_a_stranger, &d), AN_OK);
    for (size_t p = 0; p < AN_COUNT(paths); p++)
        for (size_t w = 0; w < AN_COUNT(wrong); w++) {
            assert_int_equal(code_of(d, "GET", paths[p], wrong[w]), 403);
            assert_int_equal(code_of(d, "POST", paths[p], wrong[w]), 403);
        }
    assert_false(an_dashboard_stop_asked(d));
    assert_int_equal(code_of(d, "GET", "/", TOKEN), 200);
    assert_int_equal(code_of(d, "GET", "/events", TOKEN), 200);
    assert_int_equal(code_of(d, "GET", "/nothing", TOKEN), 404);
    assert_int_equal(code_of(d, "PUT", "/", TOKEN), 405);
    assert_int_equal(code_of(d, "GET", "/stop", TOKEN), 405); /* a link that is followed stops nothing */
    assert_false(an_dashboard_stop_asked(d));
    assert_int_equal(code_of(d, "POST", "/stop", TOKEN), 202);
    assert_true(an_dashboard_stop_asked(d));
    an_dashboard_close(d, "");
}

static void tokens_and_addresses_are_checked(void **state)
{
    (void)state;
    an_err err = {0};
    an_dashboard *d;
    an_err open = {0};
    assert_int_equal(an_dashboard_new(&err, "short", &run_of_a_stranger, &d), AN_E_USAGE);
    assert_int_equal(an_dashboard_new(&err, "0123456789abcdef/../", &run_of_a_stranger, &d), AN_E_USAGE);
    assert_int_equal(an_dashboard_open(&open, "0.0.0.0", 1, "", &run_of_a_stranger, &d), AN_E_USAGE);
    assert_non_null(strstr(open.text, "dashboard_token="));
    assert_null(d);
    an_dashboard *a, *b;
    char one[AN_DASHBOARD_URL_BYTES], other[AN_DASHBOARD_URL_BYTES];
    assert_int_equal(an_dashboard_new(&err, "", &run_of_a_stranger, &a), AN_OK);
    assert_int_equal(an_dashboard_new(&err, "", &run_of_a_stranger, &b), AN_OK);
    an_dashboard_url(a, one);
    an_dashboard_url(b, other);
    assert_string_not_equal(one, other); /* drawn, 32 digits */
    assert_int_equal(strlen(strstr(one, "token=")), 6 + 32);
    an_dashboard_close(a, "");
    an_dashboard_close(b, "");
}

static json_t *state_of(an_dashboard *d)
{
    json_t *parsed;
    an_http_answer a = ask(d, "GET", "/state", TOKEN);
    assert_int_equal(an_json_parse(NULL, "state", 0, a.body.data, a.body.len, &parsed), AN_OK);
    an_text_free(&a.body);
    return parsed;
}

/* Whatever the number of updates, of numbers that are none, of evaluations and the length of texts. */
static void a_long_run_takes_bounded_memory(void **state)
{
    (void)state;
    static char text[100000];
    an_dashboard *d;
    assert_int_equal(an_dashboard_new(NULL, TOKEN, &run_of_a_stranger, &d), AN_OK);
    memset(text, 0xe2, sizeof text - 1);
    for (int64_t i = 0; i < 300000; i++) {
        const double loss = i % 7 == 0 ? NAN : i % 11 == 0 ? INFINITY : 5 - 1e-5 * (double)i;
        an_dashboard_update(
            d, &(an_dashboard_numbers){.step = i, .loss = loss, .ms = 1, .live_bytes = 1e6, .rss_bytes = NAN});
        if (i % 100 == 0) an_dashboard_evaluated(d, i, 4 - 1e-5 * (double)i);
    }
    an_dashboard_note(d, text);
    an_dashboard_sample(d, 5, text, sizeof text - 1);
    json_t *s = state_of(d), *points = json_object_get(s, "points");
    const size_t n = json_array_size(points);
    assert_true(n >= 256 && n <= 512);
    assert_true(json_array_size(json_object_get(s, "validation")) <= 256);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(points, n - 1), 0)), 299999);
    for (size_t i = 1; i < n; i++) { /* in order, and the loss falls as it did */
        const json_t *p = json_array_get(points, i), *before = json_array_get(points, i - 1);
        assert_true(json_integer_value(json_array_get(p, 0)) > json_integer_value(json_array_get(before, 0)));
        assert_true(json_number_value(json_array_get(p, 1)) < json_number_value(json_array_get(before, 1)) + 0.01);
    }
    json_decref(s);
    an_dashboard_close(d, "");
}

static void texts_of_strangers_are_data(void **state)
{
    (void)state;
    an_dashboard *d;
    assert_int_equal(an_dashboard_new(NULL, TOKEN, &run_of_a_stranger, &d), AN_OK);
    an_dashboard_note(d, "<img src=x onerror=alert(1)>");
    json_t *s = state_of(d);
    assert_string_equal(json_string_value(json_object_get(s, "note")), "<img src=x onerror=alert(1)>");
    json_decref(s);
    an_http_answer a = ask(d, "GET", "/", TOKEN);
    an_text_putn(&a.body, "", 1);
    assert_null(strstr(a.body.data, "onerror=alert"));
    assert_null(strstr(a.body.data, "@NONCE@"));
    assert_null(strstr(a.body.data, "innerHTML"));
    assert_non_null(strstr(a.policy, "default-src 'none'"));
    an_text_free(&a.body);
    a = ask(d, "GET", "/metrics", TOKEN);
    an_text_putn(&a.body, "", 1);
    assert_non_null(strstr(a.body.data, "anneal_max_iters{run=\"a\\\"b\\\\c</script>\\n"));
    an_text_free(&a.body);
    an_dashboard_close(d, "");
}

/* ---- over a socket */

static int connect_to(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const struct timeval most = {.tv_sec = 10};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) return fd;
    close(fd);
    return -1;
}

/* What comes back, up to a closed connection or `until`. */
static size_t talk(int port, const char *request, size_t n, const char *until, char *out, size_t cap)
{
    const int fd = connect_to(port);
    size_t used = 0;
    out[0] = 0;
    if (fd < 0) return 0;
    for (size_t sent = 0; sent < n;) {
        const ssize_t k = send(fd, request + sent, n - sent, MSG_NOSIGNAL);
        if (k <= 0) break;
        sent += (size_t)k;
    }
    if (!until) shutdown(fd, SHUT_WR);
    while (used + 1 < cap) {
        const ssize_t k = recv(fd, out + used, cap - 1 - used, 0);
        if (k <= 0) break;
        used += (size_t)k;
        out[used] = 0;
        if (until && strstr(out, until)) break;
    }
    close(fd);
    return used;
}

static an_dashboard *open_somewhere(int *port)
{
    an_err err = {0};
    an_dashboard *d = NULL;
    for (*port = 20000 + getpid() % 20000; *port < 60000; *port += 7)
        if (an_dashboard_open(&err, "127.0.0.1", *port, TOKEN, &run_of_a_stranger, &d) == AN_OK)
            return d;
        else if (!strstr(err.text, "in use"))
            break;
    if (!strstr(err.text, "libmicrohttpd")) fail_msg("%s", err.text);
    test_skip("%s", err.text);
    return NULL;
}

static bool answers(int port)
{
    char request[200], answer[8192];
    const int n =
        snprintf(request, sizeof request,
                 "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", TOKEN);
    for (int i = 0; i < 200; i++) { /* connections that were broken off are let go in a moment */
        talk(port, request, (size_t)n, "anneal_max_iters{", answer, sizeof answer);
        if (strstr(answer, " 200 ") && strstr(answer, "anneal_max_iters{")) return true;
        usleep(100000);
    }
    return false;
}

static void a_port_in_use_is_a_sentence(void **state)
{
    (void)state;
    int port;
    an_err err = {0};
    an_dashboard *d = open_somewhere(&port), *second;
    assert_true(answers(port));
    assert_int_equal(an_dashboard_open(&err, "127.0.0.1", port, TOKEN, &run_of_a_stranger, &second), AN_E_ENV);
    assert_non_null(strstr(err.text, "in use: name another"));
    assert_null(second);
    an_dashboard_close(d, "");
}

static void a_stream_tells_the_state_and_the_end(void **state)
{
    (void)state;
    int port;
    char request[200], answer[16384];
    an_dashboard *d = open_somewhere(&port);
    an_dashboard_update(d, &(an_dashboard_numbers){.step = 6, .loss = 2.5});
    const int n = snprintf(request, sizeof request, "GET /events?token=%s HTTP/1.1\r\nHost: x\r\n\r\n", TOKEN);
    talk(port, request, (size_t)n, "\"ended\":\"\"}", answer, sizeof answer);
    assert_non_null(strstr(answer, "text/event-stream"));
    assert_non_null(strstr(answer, "\"loss\":2.5"));
    const int fd = connect_to(port);
    assert_int_equal(send(fd, request, (size_t)n, 0), n);
    ssize_t k = recv(fd, answer, sizeof answer - 1, 0);
    assert_true(k > 0);
    an_dashboard_close(d, "it is over");
    size_t used = (size_t)k;
    while ((k = recv(fd, answer + used, sizeof answer - 1 - used, 0)) > 0) used += (size_t)k;
    answer[used] = 0;
    close(fd);
    assert_non_null(strstr(answer, "\"ended\":\"it is over\"}"));
}

/* Rubbish, huge heads, bodies without an end, requests cut anywhere, more connections than are taken: no answer but to the
 * token, and afterwards the page is there as before. */
static void hostile_requests_change_nothing(void **state)
{
    (void)state;
    enum { MOST = 200000, ROUNDS = 300 };
    static char bytes[MOST], answer[65536];
    static const char *const heads[] = {
        "GET /stop?token=x HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /stop HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\nxxxx",
        "POST /stop HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
        "GET /../../etc/passwd HTTP/1.0\r\n\r\n",
        "GET http://elsewhere/ HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "GET /metrics?token=%00%ff&token=%zz HTTP/9.9\r\n\r\n"};
    int port, held[64];
    uint64_t random = 7;
    an_dashboard *d = open_somewhere(&port);
    for (int i = 0; i < ROUNDS; i++) {
        const char *head = heads[(size_t)i % AN_COUNT(heads)];
        size_t n = strlen(head);
        memcpy(bytes, head, n);
        for (int change = i % 5; change > 0; change--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bytes[(random >> 33) % n] = (char)(random >> 25);
        }
        if (i % 5 == 4) n = (random >> 40) % n;
        talk(port, bytes, n, NULL, answer, sizeof answer);
        if (strstr(answer, " 200 ") || strstr(answer, "anneal_") || strstr(answer, "\"loss\""))
            fail_msg("answered: %.200s", head);
    }
    memset(bytes, 'a', sizeof bytes);
    memcpy(bytes, "GET /?token=", 12); /* a head without an end */
    talk(port, bytes, sizeof bytes, NULL, answer, sizeof answer);
    assert_null(strstr(answer, " 200 "));
    for (size_t i = 0; i < AN_COUNT(held); i++) held[i] = connect_to(port); /* and say nothing */
    for (size_t i = 0; i < AN_COUNT(held); i++)
        if (held[i] >= 0) close(held[i]);
    assert_true(answers(port));
    assert_false(an_dashboard_stop_asked(d));
    an_dashboard_close(d, "");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_answered_without_the_token), cmocka_unit_test(tokens_and_addresses_are_checked),
        cmocka_unit_test(a_long_run_takes_bounded_memory),       cmocka_unit_test(texts_of_strangers_are_data),
        cmocka_unit_test(a_port_in_use_is_a_sentence),           cmocka_unit_test(a_stream_tells_the_state_and_the_end),
        cmocka_unit_test(hostile_requests_change_nothing),
    };
    return cmocka_run_group_tests_name("dashboard", tests, NULL, NULL);
}
