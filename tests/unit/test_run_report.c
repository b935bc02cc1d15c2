/* test_run_report.c: the page about runs: what is proven, that texts of strangers are escaped, that charts are bounded. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "report/run_report.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char whole[] =
    "{\"event\":\"begin\",\"preset\":\"demo\",\"available\":true,\"product_checked\":\"equals ref\",\"commit\":\"abc\","
    "\"host\":\"h\",\"device\":\"<cpu>: x\",\"settings\":{\"batch_size\":4},"
    "\"facts\":{\"machine\":\"x86_64\",\"translated\":\"\"}}\n{\"event\":\"end\",\"seconds\":3}\n";
static const char sweep_text[] =
    "{\"preset\":\"demo\",\"device\":\"<cpu>\",\"host\":\"h\",\"commit\":\"abc\",\"points\":[{\"ran\":true,\"batch_"
    "size\":1,"
    "\"units_per_s\":50,\"unit\":\"<u>\",\"axes\":\"<x>\"},"
    "{\"ran\":true,\"batch_size\":2,\"units_per_s\":70,\"axes\":\"<x>\"},{\"ran\":true,\"batch_size\":1e300,"
    "\"units_per_s\":9},{\"ran\":true,\"batch_size\":-1,\"units_per_s\":9},{\"ran\":false,\"why\":\"<i>\"},7],"
    "\"answers\":[{\"axes\":\"\",\"knee\":1,\"largest_fit\":9},null]}";

static double cpu_wait_share; /* of the runs' updates; 0: the metrics do not tell */

static void write_run(const char *dir, int lines, const char *log)
{
    char path[1200];
    an_text text = {0};
    mkdir(dir, 0777);
    for (int i = 0; i < lines; i++) {
        an_text_printf(&text, "{\"step\":%d,\"loss\":%g,\"ms\":%d,\"units_per_s\":100,\"rss_bytes\":1e8", i,
                       4.0 / (1 + i), 10 + i % 7);
        if (cpu_wait_share > 0) an_text_printf(&text, ",\"cpu_wait_ms\":%g", cpu_wait_share * (10 + i % 7));
        an_text_puts(&text, "}\n");
    }
    assert_false(text.failed);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    test_write_file(path, text.data ? text.data : "", text.len);
    snprintf(path, sizeof path, "%s/logbook.jsonl", dir);
    test_write_file(path, log, strlen(log));
    an_text_free(&text);
}

static json_t *parse(const char *text)
{
    json_t *out;
    assert_int_equal(an_json_parse(NULL, "json", 0, text, strlen(text), &out), AN_OK);
    return out;
}

static int lacks_of(int lines, const char *log, const char *sweep)
{
    an_err err = {0};
    const char *out[AN_REPORT_LACKS];
    char dir[1100];
    snprintf(dir, sizeof dir, "%s", test_path("lacks"));
    write_run(dir, lines, log);
    an_report_run run = {.dir = dir};
    json_t *parsed = sweep ? parse(sweep) : NULL;
    if (an_run_record_read(&err, dir, &run.record) != AN_OK) fail_msg("%s", err.text);
    const int n = an_run_report_lacks(&run, parsed, out);
    an_run_record_free(&run.record);
    json_decref(parsed);
    return n;
}

static void a_speed_is_proven_only_with_everything(void **state)
{
    (void)state;
    assert_int_equal(lacks_of(30, whole, sweep_text), 0);
    assert_int_equal(lacks_of(30, whole, NULL), 1);
    assert_int_equal(lacks_of(30, whole, "{\"preset\":\"other\",\"points\":[{\"ran\":true},{\"ran\":true}]}"), 1);
    assert_int_equal(lacks_of(30, whole, "{\"preset\":\"demo\",\"points\":[{\"ran\":true}]}"), 1);
    assert_int_equal(lacks_of(19, whole, sweep_text), 1); /* no memory curve */
    assert_int_equal(lacks_of(30, "{\"event\":\"begin\",\"preset\":\"demo\"}\n", sweep_text), 4);
    assert_int_equal(
        lacks_of(30,
                 "{\"event\":\"begin\",\"preset\":\"demo\",\"available\":true,\"product_checked\":\"x\","
                 "\"commit\":\"a-dirty\",\"facts\":{\"machine\":\"x86_64\",\"translated\":\"Rosetta 2\"}}\n",
                 sweep_text),
        3);
}

/* The run: 100 units a second with a batch of 4. */
static void a_sweep_of_something_else_or_against_the_run_proves_nothing(void **state)
{
    (void)state;
#define SWEEP(device, host, commit, speed)                                                                             \
    "{\"preset\":\"demo\",\"device\":\"" device "\",\"host\":\"" host "\",\"commit\":\"" commit                        \
    "\",\"points\":[{\"ran\":true,\"batch_size\":2,\"units_per_s\":" speed                                             \
    "},{\"ran\":true,\"batch_size\":4,\"units_per_s\":" speed "}]}"
    assert_int_equal(lacks_of(30, whole, SWEEP("<cpu>", "h", "abc", "120")), 0);
    assert_int_equal(lacks_of(30, whole, SWEEP("cuda", "h", "abc", "120")), 1);
    assert_int_equal(lacks_of(30, whole, SWEEP("<cpu", "h", "abc", "120")), 1);
    assert_int_equal(lacks_of(30, whole, SWEEP("<cpu>", "other", "abc", "120")), 1);
    assert_int_equal(lacks_of(30, whole, SWEEP("<cpu>", "h", "old", "120")), 1);
    assert_int_equal(lacks_of(30, whole, SWEEP("<cpu>", "h", "abc", "-1e308")), 1);
    assert_int_equal(lacks_of(30, whole, SWEEP("<cpu>", "h", "abc", "160")), 1); /* the run was slowed */
    assert_int_equal(lacks_of(30, whole, SWEEP("<cpu>", "h", "abc", "60")), 1);
}

/* Times that other programs made are no proof of a speed, neither the run's nor the sweep's. */
static void a_busy_machine_proves_no_speed(void **state)
{
    (void)state;
#define ANSWER(share)                                                                                                  \
    "{\"preset\":\"demo\",\"device\":\"<cpu>\",\"host\":\"h\",\"commit\":\"abc\",\"points\":[{\"ran\":true,\"batch_"   \
    "size\":2,"                                                                                                        \
    "\"units_per_s\":90},{\"ran\":true,\"batch_size\":4,\"units_per_s\":100}],\"answers\":[{\"cpu_wait_share\":" share \
    "}]}"
    assert_int_equal(lacks_of(30, whole, ANSWER("null")), 0);
    assert_int_equal(lacks_of(30, whole, ANSWER("0.1")), 0);
    assert_int_equal(lacks_of(30, whole, ANSWER("0.5")), 1);
    cpu_wait_share = 0.1;
    assert_int_equal(lacks_of(30, whole, ANSWER("0.1")), 0);
    cpu_wait_share = 0.5;
    assert_int_equal(lacks_of(30, whole, ANSWER("0.1")), 1);
    assert_int_equal(lacks_of(30, whole, ANSWER("0.5")), 2);
    cpu_wait_share = 0;
}

/* A profile of a stranger: markup in every text, numbers that are none, a launch that can be drawn. */
static const char profile_text[] =
    "{\"preset\":\"<i>p\",\"device\":\"<i>d\",\"time\":\"<i>\",\"step_ms\":null,\"peak_gflops\":100,\"peak_gbytes\":10,"
    "\"launches\":["
    "{\"kernel\":\"<i>gemm\",\"shape\":\"<i>8x8\",\"phase\":\"<i>\",\"device_us\":50,\"flops\":1000000,\"bytes\":"
    "100000,\"share_of_roof\":0.2},"
    "{\"kernel\":7,\"device_us\":1e300,\"flops\":-1,\"bytes\":0},{\"device_us\":\"x\"},3,null,[]]}";

static an_text report(const char *dir, const char *sweep, int times)
{
    const an_report_profile profile = {.path = "<i>path", .sha256 = "0", .json = parse(profile_text)};
    an_err err = {0};
    an_text out = {0};
    an_report_run run[2] = {{.dir = dir}, {.dir = dir}};
    json_t *parsed = sweep ? parse(sweep) : NULL;
    for (int i = 0; i < times; i++)
        if (an_run_record_read(&err, dir, &run[i].record) != AN_OK) fail_msg("%s", err.text);
    if (an_run_report(&err, run, times, parsed, &profile, &out) != AN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < times; i++) an_run_record_free(&run[i].record);
    json_decref(parsed);
    json_decref(profile.json);
    return out;
}

static void texts_of_strangers_are_escaped(void **state)
{
    (void)state;
    char dir[1100];
    snprintf(dir, sizeof dir, "%s", test_path("a<b>&\"c\xff"));
    write_run(
        dir, 3,
        "{\"event\":\"begin\",\"preset\":\"<script>alert(1)</"
        "script>\",\"data\":\"x\\u001b\\u009b'y\",\"commit\":\"<img "
        "src=x>\"}\n{\"event\":\"note\",\"text\":\"<b onclick=z>\"}\n{\"event\":\"machine\",\"what\":\"</table>\"}\n"
        "{\"event\":\"failed\",\"error\":\"<a href=x>\"}\n");
    an_text page = report(dir, sweep_text, 2);
    static const char *const never[] = {"<script", "<img", "<b onclick", "<a ",  "<i>",  "<x>",
                                        "<u>",     "<cpu", "\x1b",       "\xff", "http", "url("};
    for (size_t i = 0; i < AN_COUNT(never); i++)
        if (strstr(page.data, never[i])) fail_msg("the page has %s", never[i]);
    assert_non_null(strstr(page.data, "&#60;script&#62;"));
    assert_non_null(strstr(page.data, "unproven"));
    assert_non_null(strstr(page.data, "Comparison"));
    assert_non_null(strstr(page.data, "<h3>Roofline</h3>"));
    assert_null(strstr(page.data, "In the second tenth")); /* of three lines */
    assert_non_null(strstr(page.data, "<figure class=\"sweep\"><svg"));
    assert_non_null(strstr(page.data, ">units a second</text>"));
    assert_non_null(strstr(page.data, "&#60;i&#62;gemm"));
    an_text_free(&page);
}

static void charts_are_bounded_and_finite_whatever_the_numbers(void **state)
{
    (void)state;
    char dir[1100], path[1200];
    snprintf(dir, sizeof dir, "%s", test_path("large"));
    write_run(dir, 50000, whole);
    an_text page = report(dir, NULL, 1);
    assert_true(page.len < 200000);
    assert_non_null(strstr(page.data, "resident bytes of the process 95.4 MiB and 95.4 MiB (+0.0 %)"));
    an_text_free(&page);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    static const char odd[] = "{\"step\":0,\"loss\":1e308,\"ms\":1e308,\"grad_norm\":-1e308}\n"
                              "{\"step\":1,\"loss\":-1e308,\"ms\":-1e308,\"grad_norm\":null}\n"
                              "{\"step\":2,\"loss\":5e-324,\"ms\":1e308,\"units_per_s\":1e308}\n"
                              "{\"step\":9007199254740992,\"loss\":0,\"ms\":1e-300}\n";
    test_write_file(path, odd, sizeof odd - 1);
    page = report(dir, NULL, 2);
    assert_null(strstr(page.data, "nan"));
    assert_null(strstr(page.data, "\"inf"));
    an_text_free(&page);
}

static void figures_of_a_page_are_those_of_the_run(void **state)
{
    (void)state;
    char dir[1100], path[1200];
    an_text text = {0};
    snprintf(dir, sizeof dir, "%s", test_path("figures"));
    write_run(dir, 30, whole); /* 29 times are counted: five of 11 ms, four of each other */
    an_text page = report(dir, NULL, 2);
    const char *at = strstr(page.data, "<h3>Time of an update</h3>");
    assert_non_null(at);
    int bars = 0;
    for (const char *end = strstr(at, "</svg>"); (at = strstr(at, "height=\"")) && at < end; at++) {
        double height;
        assert_int_equal(sscanf(at, "height=\"%lf", &height), 1);
        const double updates = height / (240 - 30 - 34) * 8; /* the uppermost line is the next multiple of four */
        assert_true(fabs(updates) < 0.02 || fabs(updates - 4) < 0.02 || fabs(updates - 5) < 0.02);
        bars += updates > 1;
    }
    assert_int_equal(bars, 7);
    assert_non_null(strstr(page.data, "Their settings are the same."));
    an_text_free(&page);

    /* Two mebibytes of a hundred are no growth, and the page says why. */
    for (int i = 0; i < 30; i++)
        an_text_printf(&text, "{\"step\":%d,\"loss\":1,\"ms\":10,\"rss_bytes\":%d}\n", i, 100000000 + i * 80000);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    test_write_file(path, text.data, text.len);
    page = report(dir, NULL, 1);
    assert_non_null(strstr(page.data, "Memory was flat."));
    assert_non_null(strstr(page.data, ", less than the 16 MiB by which"));
    an_text_free(&page);
    an_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_speed_is_proven_only_with_everything),
        cmocka_unit_test(a_sweep_of_something_else_or_against_the_run_proves_nothing),
        cmocka_unit_test(a_busy_machine_proves_no_speed),
        cmocka_unit_test(texts_of_strangers_are_escaped),
        cmocka_unit_test(charts_are_bounded_and_finite_whatever_the_numbers),
        cmocka_unit_test(figures_of_a_page_are_those_of_the_run),
    };
    return cmocka_run_group_tests_name("run_report", tests, NULL, NULL);
}
