/* test_sweep.c: the knee of a series of batch sizes, its picture and JSON, and what is read of a point's run. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "report/sweep.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Batches 1, 2, 4, ... with these speeds; 0: the point did not run. */
static an_sweep *series(const char *axes, const double *speed, int n)
{
    an_sweep *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (int i = 0; i < n; i++) {
        an_sweep_point *p = &s->point[s->n++];
        *p = (an_sweep_point){
            .batch = (int64_t)1 << i, .ran = speed[i] > 0, .units_per_s = speed[i], .ms = 1, .why = "no"};
        p->gpu_busy = p->swap_growth_bytes = p->predicted_bytes = p->measured_bytes = p->rss_bytes = NAN;
        snprintf(p->axes, sizeof p->axes, "%s", axes);
        snprintf(p->unit, sizeof p->unit, "token");
    }
    return s;
}

static int64_t knee_of(const double *speed, int n, int64_t most)
{
    const an_sweep_point *fastest;
    an_sweep *s = series("", speed, n);
    const an_sweep_point *knee = an_sweep_knee(s, "", most, &fastest);
    const int64_t batch = knee ? knee->batch : 0;
    free(s);
    return batch;
}

static void the_knee_is_where_more_adds_less_than_five_percent(void **state)
{
    (void)state;
    assert_int_equal(knee_of((double[]){100, 190, 300, 310, 315}, 5, 0), 4);
    assert_int_equal(knee_of((double[]){100, 190, 300, 310, 315}, 5, 2), 0); /* within the budget it still grows */
    assert_int_equal(knee_of((double[]){100, 190, 300, 500}, 4, 0), 0);
    assert_int_equal(knee_of((double[]){100, 104, 103}, 3, 0), 1);
    assert_int_equal(knee_of((double[]){100, 101, 150, 151}, 4, 0), 4); /* a dent is no knee */
    assert_int_equal(knee_of((double[]){100, 200, 150, 0}, 4, 0), 2);
    assert_int_equal(knee_of((double[]){100}, 1, 0), 0);
    assert_int_equal(knee_of((double[]){0}, 1, 0), 0);
}

static void other_programs_make_a_knee_uncertain(void **state)
{
    (void)state;
    an_sweep *s = series("", (double[]){100, 200, 90, 0}, 4);
    for (int i = 0; i < s->n; i++) s->point[i].cpu_wait_share = NAN;
    assert_null(an_sweep_most_disturbed(s, "", 0));
    s->point[0].cpu_wait_share = 0.1;
    s->point[1].cpu_wait_share = 0.3;
    s->point[2].cpu_wait_share = 0.7;
    assert_int_equal(an_sweep_most_disturbed(s, "", 0)->batch, 4);
    assert_int_equal(an_sweep_most_disturbed(s, "", 2)->batch, 2); /* within the budget */
    assert_null(an_sweep_most_disturbed(s, "", 1));
    assert_null(an_sweep_most_disturbed(s, "a=1", 0));
    free(s);
}

/* Ten percent longer than a larger batch: a point of that kind is measured again, and told when it stays. */
static void a_smaller_batch_that_takes_longer_is_told(void **state)
{
    (void)state;
    an_sweep *s = series("", (double[]){100, 200, 300, 0}, 4);
    an_text json = {0}, table = {0};
    static const double ms[] = {10, 25, 24, 1};
    for (int i = 0; i < s->n; i++) s->point[i].ms = ms[i];
    assert_null(an_sweep_contradicted(s, "", 0, false)); /* 25 against 24 is noise, and the last did not run */
    s->point[1].ms = 27;
    assert_int_equal(an_sweep_contradicted(s, "", 0, false)->batch, 2);
    assert_int_equal(an_sweep_contradicts(s, &s->point[1])->batch, 4);
    assert_null(an_sweep_contradicted(s, "", 1, false)); /* beyond the budget */
    assert_null(an_sweep_contradicted(s, "a=1", 0, false));
    assert_null(an_sweep_contradicted(s, "", 0, true));
    s->point[1].again = true;
    assert_null(an_sweep_contradicted(s, "", 0, false));
    assert_int_equal(an_sweep_contradicted(s, "", 0, true)->batch, 2);
    an_sweep_json(s, &json);
    an_sweep_table(s, &table);
    assert_non_null(strstr(json.data, "\"again\":true,\"slower_than\":4"));
    assert_non_null(strstr(json.data, "\"again\":false,\"slower_than\":null"));
    assert_non_null(strstr(table.data, "an update takes longer than with batch_size=4, measured twice"));
    an_text_free(&json);
    an_text_free(&table);
    free(s);
}

static void combinations_of_axes_do_not_mix(void **state)
{
    (void)state;
    const an_sweep_point *fastest;
    an_sweep *s = series("a=1", (double[]){100, 101}, 2);
    assert_null(an_sweep_knee(s, "a=2", 0, &fastest));
    assert_null(fastest);
    assert_non_null(an_sweep_knee(s, "a=1", 0, &fastest));
    assert_int_equal(fastest->batch, 2);
    free(s);
}

static void what_limits_a_point_is_read_off_its_numbers(void **state)
{
    (void)state;
    an_sweep_point p = {.ran = true, .gpu_busy = 0.9};
    assert_string_equal(an_sweep_limit(&p), "arithmetic or bandwidth");
    p.arithmetic_ms = 3, p.bandwidth_ms = 2;
    assert_string_equal(an_sweep_limit(&p), "arithmetic");
    p.bandwidth_ms = 4;
    assert_string_equal(an_sweep_limit(&p), "bandwidth");
    p.gpu_busy = 0.3;
    assert_string_equal(an_sweep_limit(&p), "launches");
    p.wait_share = 0.5;
    assert_string_equal(an_sweep_limit(&p), "data");
    p.swap_growth_bytes = 1e9;
    assert_string_equal(an_sweep_limit(&p), "memory");
}

static void json_and_picture_hold_every_point(void **state)
{
    (void)state;
    an_text json = {0}, svg = {0};
    json_t *parsed;
    an_sweep *s = series("t=<a&\"b>", (double[]){100, 190, 0}, 3);
    an_sweep_json(s, &json);
    an_sweep_svg(s, "x < y", &svg);
    assert_false(json.failed || svg.failed);
    assert_int_equal(an_json_parse(NULL, "json", 0, json.data, json.len, &parsed), AN_OK);
    assert_int_equal(json_array_size(parsed), 3);
    json_decref(parsed);
    int circles = 0;
    for (const char *p = svg.data; (p = strstr(p, "<circle")) != NULL; p++) circles++;
    assert_int_equal(circles, 2);
    assert_null(strstr(svg.data, "nan"));
    assert_null(strstr(svg.data, "<a"));
    assert_non_null(strstr(svg.data, "x &#60; y"));
    an_text_free(&json);
    an_text_free(&svg);
    an_sweep_svg(&(an_sweep){.n = 0}, "", &svg);
    assert_int_equal(svg.len, 0);
    free(s);
}

static void a_point_is_read_without_its_first_updates(void **state)
{
    (void)state;
    an_err err = {0};
    an_sweep_point p = {.batch = 1};
    char path[1200], dir[1100];
    snprintf(dir, sizeof dir, "%s", test_path("point"));
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    static const char metrics[] =
        "{\"step\":0,\"ms\":900,\"units_per_s\":1,\"data_wait_ms\":800,\"reserved_bytes\":5}\n"
        "{\"step\":1,\"ms\":500,\"units_per_s\":2,\"data_wait_ms\":0,\"reserved_bytes\":7}\n"
        "{\"step\":2,\"ms\":10,\"units_per_s\":100,\"data_wait_ms\":1,\"reserved_bytes\":7}\n"
        "{\"step\":3,\"ms\":30,\"units_per_s\":40,\"data_wait_ms\":1,\"reserved_bytes\":6}\n"
        "{\"step\":4,\"ms\":20,\"units_per_s\":50,\"data_wait_ms\":1,\"reserved_bytes\":7}\n";
    test_write_file(path, metrics, sizeof metrics - 1);
    assert_int_equal(an_sweep_read(&err, dir, &p), AN_E_DATA); /* it has not ended */
    snprintf(path, sizeof path, "%s/logbook.jsonl", dir);
    static const char log[] = "{\"event\":\"begin\"}\n{\"event\":\"plan\",\"peak_bytes\":7}\n{\"event\":\"end\"}\n";
    test_write_file(path, log, sizeof log - 1);
    if (an_sweep_read(&err, dir, &p) != AN_OK) fail_msg("%s", err.text);
    assert_true(p.ran && p.ms == 20 && p.units_per_s == 50 && p.wait_share == 0.05);
    assert_true(p.predicted_bytes == 7 && p.measured_bytes == 7 && isnan(p.gpu_busy));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_knee_is_where_more_adds_less_than_five_percent),
        cmocka_unit_test(other_programs_make_a_knee_uncertain),
        cmocka_unit_test(a_smaller_batch_that_takes_longer_is_told),
        cmocka_unit_test(combinations_of_axes_do_not_mix),
        cmocka_unit_test(what_limits_a_point_is_read_off_its_numbers),
        cmocka_unit_test(json_and_picture_hold_every_point),
        cmocka_unit_test(a_point_is_read_without_its_first_updates),
    };
    return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
