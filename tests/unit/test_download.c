/* test_download.c: downloads from a server of this program's own on 127.0.0.1, which cuts, lies and refuses on request.
 */
#define _DEFAULT_SOURCE
#include "platform/platform.h"
#include "io/data/download.h"
#include "io/formats/sha256.h"
#include "io_files.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#if defined(__has_include)
#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#define HAVE_CURL_H 1
#endif
#endif

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: SIGPIPE is ignored in start() */
#endif

enum { CONTENT_BYTES = 300000 };
static char content[CONTENT_BYTES], content_sha256[AN_SHA256_TEXT_BYTES];

/* ---- the server: one connection after another, each an answer of `manner` */

typedef enum manner {
    WHOLE,         /* answers ranges with 206 */
    IGNORES_RANGE, /* 200 and everything, whatever was asked */
    CUT,           /* closes after `cut` bytes of the body, with a Content-Length of all */
    CUT_SILENTLY,  /* the same without a length */
    REFUSES_RANGE, /* 416 to a range */
    ABSENT,        /* 404 */
    WRONG,         /* other bytes */
    LONGER         /* one byte more */
} manner;

typedef struct server {
    int listener, port;
    pthread_t thread;
    manner manner;
    size_t cut;
    int requests;
    long range; /* first byte that the last request asked for; -1: no range */
} server;
static server s;

static void send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0) return;
        p += sent;
        n -= (size_t)sent;
    }
}

static void answer(int fd)
{
    char request[4096], head[256];
    size_t n = 0;
    while (n < sizeof request - 1) {
        ssize_t got = recv(fd, request + n, sizeof request - 1 - n, 0);
        if (got <= 0) return;
        request[n += (size_t)got] = 0;
        if (strstr(request, "\r\n\r\n")) break;
    }
    const char *range = strstr(request, "Range: bytes=");
    s.requests++;
    s.range = range ? strtol(range + 13, NULL, 10) : -1;
    const size_t first = range && s.manner != IGNORES_RANGE && s.manner != WRONG ? (size_t)s.range : 0;
    const size_t length = CONTENT_BYTES - first + (s.manner == LONGER);
    if (s.manner == ABSENT || (range && s.manner == REFUSES_RANGE)) {
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                 s.manner == ABSENT ? "404 Not Found" : "416 Range Not Satisfiable");
        send_all(fd, head, strlen(head));
        return;
    }
    n = (size_t)snprintf(head, sizeof head, "HTTP/1.1 %s\r\nConnection: close\r\n",
                         first ? "206 Partial Content" : "200 OK");
    if (first)
        n += (size_t)snprintf(head + n, sizeof head - n, "Content-Range: bytes %zu-%d/%d\r\n", first, CONTENT_BYTES - 1,
                              CONTENT_BYTES);
    if (s.manner != CUT_SILENTLY) n += (size_t)snprintf(head + n, sizeof head - n, "Content-Length: %zu\r\n", length);
    n += (size_t)snprintf(head + n, sizeof head - n, "\r\n");
    send_all(fd, head, n);
    const bool cut = s.manner == CUT || s.manner == CUT_SILENTLY;
    if (s.manner == WRONG)
        for (size_t i = 0; i < CONTENT_BYTES; i++) send_all(fd, "x", 1);
    else
        send_all(fd, content + first, cut ? s.cut : CONTENT_BYTES - first);
    if (s.manner == LONGER) send_all(fd, "x", 1);
}

static void *serve(void *unused)
{
    (void)unused;
    for (int fd; (fd = accept(s.listener, NULL, NULL)) >= 0;) {
        answer(fd);
        shutdown(fd, SHUT_WR);
        char rest[256];
        while (recv(fd, rest, sizeof rest, 0) > 0) continue; /* so that what was sent arrives before the end */
        close(fd);
    }
    return NULL;
}

static int start(void **unused)
{
    (void)unused;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    uint32_t x = 1;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < CONTENT_BYTES; i++) content[i] = (char)((x = x * 1664525 + 1013904223) >> 24);
    an_sha256(content, CONTENT_BYTES, content_sha256);
    s.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (s.listener < 0 || bind(s.listener, (struct sockaddr *)&a, n) != 0 || listen(s.listener, 4) != 0) return -1;
    if (getsockname(s.listener, (struct sockaddr *)&a, &n) != 0) return -1;
    s.port = ntohs(a.sin_port);
    return pthread_create(&s.thread, NULL, serve, NULL);
}

static int stop(void **unused)
{
    (void)unused;
    shutdown(s.listener, SHUT_RDWR);
    close(s.listener);
    return pthread_join(s.thread, NULL);
}

/* ---- the tests */

static an_err err;

static an_status fetch_from(int port, const char *path)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/file", port);
    err = (an_err){0};
    return an_download_file(&err, &(an_download){.url = url,
                                                 .path = path,
                                                 .sha256 = content_sha256,
                                                 .bytes = CONTENT_BYTES,
                                                 .otherwise = "name your copy with --from FILE"});
}

static an_status fetch(manner m, const char *path)
{
    s.manner = m;
    s.requests = 0;
    an_status status = fetch_from(s.port, path);
    if (status == AN_E_ENV && strstr(err.text, "is not installed")) {
        assert_contains(err.text, "install libcurl4, or name your copy with --from FILE");
        test_skip("libcurl is not here: nothing can be downloaded");
    }
    return status;
}

static const char *fresh(const char *name)
{
    char part[1100];
    const char *path = test_path(name);
    snprintf(part, sizeof part, "%s.part", path);
    (void)unlink(path);
    (void)unlink(part);
    return path;
}

static size_t part_bytes(const char *path)
{
    char part[1100];
    struct stat info;
    snprintf(part, sizeof part, "%s.part", path);
    return stat(part, &info) == 0 ? (size_t)info.st_size : 0;
}

static void assert_whole(const char *path)
{
    char sha256[AN_SHA256_TEXT_BYTES];
    assert_int_equal(an_sha256_file(NULL, path, sha256), AN_OK);
    assert_string_equal(sha256, content_sha256);
    assert_int_equal(part_bytes(path), 0);
}

static void sha256_is_that_of_the_standard(void **unused)
{
    (void)unused;
    char out[AN_SHA256_TEXT_BYTES];
    an_sha256("abc", 3, out);
    assert_string_equal(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    an_sha256("", 0, out);
    assert_string_equal(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    an_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, out); /* two blocks of padding */
    assert_string_equal(out, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *a = malloc(1000000);
    assert_non_null(a);
    memset(a, 'a', 1000000);
    an_sha256(a, 1000000, out);
    assert_string_equal(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(a);
}

static void a_file_comes_whole_and_is_not_fetched_twice(void **unused)
{
    (void)unused;
    const char *path = fresh("whole");
    if (fetch(WHOLE, path) != AN_OK) fail_msg("%s", err.text);
    assert_whole(path);
    assert_int_equal(fetch(ABSENT, path), AN_OK);
    assert_int_equal(s.requests, 0);
}

static void a_cut_download_goes_on_where_it_broke(void **unused)
{
    (void)unused;
    const manner cuts[] = {CUT, CUT_SILENTLY};
    for (size_t i = 0; i < AN_COUNT(cuts); i++) {
        const char *path = fresh("cut");
        s.cut = 100000;
        assert_int_equal(fetch(cuts[i], path), AN_E_ENV);
        assert_contains(err.text, "after byte 100000");
        assert_contains(err.text, "run it again to go on from there, or name your copy");
        assert_int_equal(part_bytes(path), 100000);
        if (fetch(WHOLE, path) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(s.range, 100000);
        assert_whole(path);
    }
}

static void a_server_without_ranges_sends_it_all_again(void **unused)
{
    (void)unused;
    const manner kinds[] = {IGNORES_RANGE, REFUSES_RANGE};
    for (size_t i = 0; i < AN_COUNT(kinds); i++) {
        const char *path = fresh("again");
        s.cut = 5000;
        assert_int_equal(fetch(CUT, path), AN_E_ENV);
        if (fetch(kinds[i], path) != AN_OK) fail_msg("%s", err.text);
        assert_whole(path);
    }
}

static void what_is_not_the_file_is_removed(void **unused)
{
    (void)unused;
    const char *path = fresh("wrong");
    assert_int_equal(fetch(WRONG, path), AN_E_DATA);
    assert_contains(err.text, "what came is not the file that was meant (300000 bytes, sha256 ");
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(part_bytes(path), 0);
    assert_int_equal(fetch(LONGER, path), AN_E_DATA);
    assert_contains(err.text, "sends more than the 300000 bytes");
    assert_int_equal(fetch(WHOLE, path), AN_OK); /* nothing of it is in the way */
    assert_whole(path);
}

static void a_file_that_is_not_there_is_a_sentence(void **unused)
{
    (void)unused;
    assert_int_equal(fetch(ABSENT, fresh("absent")), AN_E_ENV);
    assert_contains(err.text, "404");
    assert_int_equal(fetch_from(1, fresh("absent")), AN_E_ENV); /* no process listens */
    assert_contains(err.text, "http://127.0.0.1:1/file: after byte 0: ");
    assert_contains(err.text, "name your copy with --from FILE");
}

static void a_full_disk_is_a_sentence_and_room_goes_on(void **unused)
{
    (void)unused;
    const char *path = fresh("full");
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 50000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    s.manner = WHOLE;
    an_status status = fetch_from(s.port, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    if (status == AN_E_ENV && strstr(err.text, "is not installed"))
        test_skip("libcurl is not here: nothing can be downloaded");
    assert_int_equal(status, AN_E_IO);
    assert_contains(err.text, "full.part: cannot write byte ");
    assert_contains(err.text, "make room and run it again");
    assert_true(part_bytes(path) > 0 && part_bytes(path) <= 50000);
    if (fetch(WHOLE, path) != AN_OK) fail_msg("%s", err.text);
    assert_true(s.range > 0);
    assert_whole(path);
}

static void the_numbers_are_those_of_curl_h(void **unused)
{
    (void)unused;
#ifdef HAVE_CURL_H
    assert_int_equal(CURLOPT_WRITEDATA, 10001);
    assert_int_equal(CURLOPT_URL, 10002);
    assert_int_equal(CURLOPT_ERRORBUFFER, 10010);
    assert_int_equal(CURLOPT_USERAGENT, 10018);
    assert_int_equal(CURLOPT_LOW_SPEED_LIMIT, 19);
    assert_int_equal(CURLOPT_LOW_SPEED_TIME, 20);
    assert_int_equal(CURLOPT_FAILONERROR, 45);
    assert_int_equal(CURLOPT_FOLLOWLOCATION, 52);
    assert_int_equal(CURLOPT_MAXREDIRS, 68);
    assert_int_equal(CURLOPT_CONNECTTIMEOUT, 78);
    assert_int_equal(CURLOPT_NOSIGNAL, 99);
    assert_int_equal(CURLOPT_WRITEFUNCTION, 20011);
    assert_int_equal(CURLOPT_RESUME_FROM_LARGE, 30116);
    assert_int_equal(CURLINFO_RESPONSE_CODE, 0x200002);
    assert_int_equal(CURLPROTO_HTTP, 1);
    assert_int_equal(CURLPROTO_HTTPS, 2);
    assert_int_equal(CURLE_RANGE_ERROR, 33);
    assert_int_equal(CURL_ERROR_SIZE, 256);
    assert_int_equal(sizeof(curl_off_t), sizeof(int64_t));
#else
    test_skip("curl.h is not here to compare the numbers of download.c with");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_is_that_of_the_standard),
        cmocka_unit_test(a_file_comes_whole_and_is_not_fetched_twice),
        cmocka_unit_test(a_cut_download_goes_on_where_it_broke),
        cmocka_unit_test(a_server_without_ranges_sends_it_all_again),
        cmocka_unit_test(what_is_not_the_file_is_removed),
        cmocka_unit_test(a_file_that_is_not_there_is_a_sentence),
        cmocka_unit_test(a_full_disk_is_a_sentence_and_room_goes_on),
        cmocka_unit_test(the_numbers_are_those_of_curl_h),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
