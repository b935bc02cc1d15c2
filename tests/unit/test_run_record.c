/* test_run_record.c: what is read of a run's folder, whoever wrote it, and how two runs compare. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "report/compare.h"
#include "io/formats/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of its own, with these two files (NULL: not there). */
static const char *folder(const char *name, const char *metrics, const char *logbook)
{
    char path[1200];
    const char *dir = test_path(name);
    assert_int_equal(mkdir(dir, 0777), 0);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    if (metrics) test_write_file(path, metrics, strlen(metrics));
    snprintf(path, sizeof path, "%s/logbook.jsonl", dir);
    if (logbook) test_write_file(path, logbook, strlen(logbook));
    return dir;
}

static an_run_record read_run(const char *dir)
{
    an_err err = {0};
    an_run_record r;
    if (an_run_record_read(&err, dir, &r) != AN_OK) fail_msg("%s", err.text);
    return r;
}

static void null_is_a_number_that_was_not_finite_and_absence_is_none(void **state)
{
    (void)state;
    an_run_record r = read_run(folder("null",
                                      "{\"step\":-1,\"loss\":null,\"val_loss\":4,\"ms\":null}\n"
                                      "{\"step\":0,\"loss\":3,\"grad_norm\":null,\"ms\":5}\n",
                                      NULL));
    assert_int_equal(r.n, 2);
    assert_true(isnan(r.update[0].at[AN_RUN_LOSS])); /* an evaluation has no loss of a batch */
    assert_true(r.update[0].at[AN_RUN_VAL_LOSS] == 4);
    assert_true(isinf(r.update[1].at[AN_RUN_GRAD_NORM]));
    assert_true(isnan(r.update[1].at[AN_RUN_VAL_LOSS]));
    an_run_record_free(&r);
}

static void lines_out_of_order_are_left_out_and_counted(void **state)
{
    (void)state;
    an_run_record r = read_run(folder("order",
                                      "{\"step\":0,\"ms\":1}\n{\"step\":7,\"ms\":1}\nrubbish\n{\"step\":3,\"ms\":1}\n"
                                      "{\"step\":1e300,\"ms\":1}\n{\"step\":\"9\"}\n{\"step\":9007199254740993}\n"
                                      "[1]\n{\"step\":8,\"loss\":1,\"ms\":2}\n{\"step\":8,\"val_loss\":5}\n{\"step\":9",
                                      NULL));
    assert_int_equal(r.n, 3);
    assert_int_equal(r.disordered, 1);
    assert_true(r.update[2].at[AN_RUN_VAL_LOSS] == 5 && r.update[2].at[AN_RUN_LOSS] == 1); /* two lines, one update */
    an_run_record_free(&r);
}

static void the_end_belongs_to_the_last_beginning(void **state)
{
    (void)state;
    an_run_record r = read_run(folder("again", NULL,
                                      "{\"event\":\"begin\",\"settings\":{\"a\":1}}\n{\"event\":\"plan\"}\n"
                                      "{\"event\":\"end\"}\n{\"event\":7}\n{\"event\":\"begin\",\"settings\":[]}\n"));
    assert_int_equal(r.begins, 2);
    assert_null(r.end);
    assert_null(r.plan);
    assert_null(an_run_settings(&r)); /* a list is none */
    an_run_record_free(&r);
}

static void events_beyond_the_bound_are_counted(void **state)
{
    (void)state;
    an_text log = {0};
    for (int i = 0; i < AN_RUN_MOST_EVENTS + 10; i++) an_text_puts(&log, "{\"event\":\"note\",\"text\":\"x\"}\n");
    assert_false(log.failed);
    an_run_record r = read_run(folder("notes", NULL, log.data));
    an_text_free(&log);
    assert_int_equal(json_array_size(r.notes), AN_RUN_MOST_EVENTS);
    assert_int_equal(r.events_left_out, 10);
    an_run_record_free(&r);
}

static void a_folder_without_a_run_is_a_sentence(void **state)
{
    (void)state;
    an_err err = {0};
    an_run_record r;
    assert_int_equal(an_run_record_read(&err, "/nonexistent", &r), AN_E_DATA);
    an_run_record_free(&r);
    assert_int_equal(an_run_record_read(&err, folder("empty", "", ""), &r), AN_E_DATA);
    assert_non_null(strstr(err.text, "no run's folder"));
    an_run_record_free(&r);
    const char *dir = folder("link", NULL, NULL);
    char path[1200];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(an_run_record_read(&err, dir, &r), AN_E_IO); /* links are not followed */
    an_run_record_free(&r);
}

static an_status read_a_run(an_err *err, void *arg)
{
    an_run_record r;
    double *sorted = NULL;
    size_t n;
    an_status status = an_run_record_read(err, arg, &r);
    if (status == AN_OK) status = an_run_sorted(err, &r, AN_RUN_MS, 0, r.n, &sorted, &n);
    free(sorted);
    an_run_record_free(&r);
    return status;
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", folder("refused", "{\"step\":0,\"ms\":1}\n", NULL));
    test_refuse_each_allocation(read_a_run, dir);
}

static void quantiles_are_elements_or_between_two(void **state)
{
    (void)state;
    an_err err = {0};
    double *v;
    size_t n;
    an_run_record r = read_run(folder(
        "quantiles", "{\"step\":0,\"ms\":5}\n{\"step\":1,\"ms\":1}\n{\"step\":2}\n{\"step\":3,\"ms\":3}\n", NULL));
    assert_int_equal(an_run_sorted(&err, &r, AN_RUN_MS, 0, 99, &v, &n), AN_OK);
    assert_int_equal(n, 3);
    assert_true(an_run_quantile(v, n, 0) == 1 && an_run_quantile(v, n, 0.5) == 3 && an_run_quantile(v, n, 1) == 5);
    assert_true(isnan(an_run_quantile(NULL, 0, 0.5)));
    const double even[] = {1, 2, 4, 8};
    assert_true(an_run_quantile(even, 4, 0.5) == 3 && an_run_quantile(even, 4, 1) == 8 &&
                an_run_quantile(even, 1, 0.9) == 1);
    assert_true(fabs(an_run_quantile(even, 4, 0.1) - 1.3) < 1e-12);
    free(v);
    assert_int_equal(an_run_sorted(&err, &r, AN_RUN_MS, 2, 3, &v, &n), AN_OK);
    assert_null(v);
    an_run_record_free(&r);
}

/* ---- comparing */

static an_tolerances shipped(void)
{
    an_err err = {0};
    an_tolerances t;
    assert_int_equal(an_config_defaults(&err, &an_tolerance_keys, &t), AN_OK);
    return t;
}

static an_comparison compare(const char *a, const char *b, const an_tolerances *t)
{
    an_err err = {0};
    an_comparison c;
    an_run_record x = read_run(a), y = read_run(b);
    if (an_compare_runs(&err, &x, &y, t, &c) != AN_OK) fail_msg("%s", err.text);
    an_run_record_free(&x);
    an_run_record_free(&y);
    return c;
}

/* `n` updates, of which update `at` has its loss multiplied by 1 + change. */
static const char *losses(const char *name, int n, int at, double change)
{
    an_text text = {0};
    for (int i = 0; i < n; i++)
        an_text_printf(&text, "{\"step\":%d,\"loss\":%.9g,\"grad_norm\":1,\"ms\":1}\n", i,
                       4.0 / (1 + i) * (i == at ? 1 + change : 1));
    assert_false(text.failed);
    const char *dir = folder(name, text.data, NULL);
    an_text_free(&text);
    return dir;
}

static void the_shipped_file_says_the_defaults(void **state)
{
    (void)state;
    an_err err = {0};
    const an_tolerances t = shipped();
    an_tolerances file = {.loss = 1};
    if (an_config_yaml(&err, &an_tolerance_keys, &file, "configs/tolerances/f32.yaml") != AN_OK)
        fail_msg("%s", err.text);
    assert_true(t.loss == file.loss && t.val_loss == file.val_loss && t.grad_norm == file.grad_norm);
    assert_int_equal(t.updates, file.updates);
    assert_true(t.loss == 1e-6 && t.updates == 100);
}

static void a_difference_beyond_the_tolerance_fails_at_its_update(void **state)
{
    (void)state;
    const an_tolerances t = shipped();
    const char *a = losses("base", 50, -1, 0);
    an_comparison c = compare(a, losses("near", 50, 20, 5e-7), &t);
    assert_true(c.pass && c.diverged_at == -1 && c.row[0].first_step == 20 && c.row[0].compared == 50);
    c = compare(a, losses("far", 50, 20, 2e-6), &t);
    assert_false(c.pass);
    assert_int_equal(c.diverged_at, 20);
    assert_int_equal(c.row[0].worst_step, 20);
    assert_true(c.row[0].worst > 1.9e-6 && c.row[0].worst < 2.1e-6);
}

static void updates_behind_the_bound_are_not_judged(void **state)
{
    (void)state;
    an_tolerances t = shipped();
    const char *a = losses("long", 150, -1, 0), *b = losses("late", 150, 120, 1);
    an_comparison c = compare(a, b, &t);
    assert_true(c.pass && c.row[0].compared == 100);
    t.updates = 0;
    c = compare(a, b, &t);
    assert_true(!c.pass && c.diverged_at == 120);
}

static void a_number_that_is_not_finite_agrees_with_nothing(void **state)
{
    (void)state;
    const an_tolerances t = {.loss = 1e9, .val_loss = 1e9, .grad_norm = 1e9};
    const char *text = "{\"step\":0,\"loss\":null,\"ms\":1}\n";
    an_comparison c = compare(folder("nan_a", text, NULL), folder("nan_b", text, NULL), &t);
    assert_false(c.pass);
    assert_int_equal(c.diverged_at, 0);
    an_text json = {0};
    json_t *parsed;
    an_text_puts(&json, "{");
    an_compare_json(&c, &json);
    an_text_puts(&json, "}");
    assert_int_equal(an_json_parse(NULL, "json", 0, json.data, json.len, &parsed), AN_OK);
    json_decref(parsed);
    an_text_free(&json);
}

static void runs_without_a_common_update_are_refused(void **state)
{
    (void)state;
    an_err err = {0};
    an_comparison c;
    const an_tolerances t = shipped();
    an_run_record a = read_run(folder("even", "{\"step\":0,\"loss\":1,\"ms\":1}\n", NULL)),
                  b = read_run(folder("odd", "{\"step\":1,\"loss\":1,\"ms\":1}\n", NULL));
    assert_int_equal(an_compare_runs(&err, &a, &b, &t, &c), AN_E_DATA);
    assert_non_null(strstr(err.text, "log_interval"));
    an_run_record_free(&a);
    an_run_record_free(&b);
}

static void settings_that_differ_are_named_without_control_characters(void **state)
{
    (void)state;
    an_text out = {0};
    an_run_record a = read_run(
        folder("s_a", NULL,
               "{\"event\":\"begin\",\"settings\":{\"out\":\"x\",\"n\":1,\"same\":true,\"t\":\"a\\u001b[2J\"}}\n"));
    an_run_record b = read_run(
        folder("s_b", NULL, "{\"event\":\"begin\",\"settings\":{\"out\":\"y\",\"n\":2,\"same\":true,\"u\":3}}\n"));
    assert_int_equal(an_compare_settings(&a, &b, 9, &out), 3);
    assert_string_equal(out.data, "n: 1 and 2\nt: a?[2J and (not there)\nu: (not there) and 3\n");
    an_text_free(&out);
    assert_int_equal(an_compare_settings(&a, &b, 1, &out), 3);
    assert_string_equal(out.data, "n: 1 and 2\nand 2 more\n");
    an_text_free(&out);
    an_run_record_free(&a);
    an_run_record_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_a_number_that_was_not_finite_and_absence_is_none),
        cmocka_unit_test(lines_out_of_order_are_left_out_and_counted),
        cmocka_unit_test(the_end_belongs_to_the_last_beginning),
        cmocka_unit_test(events_beyond_the_bound_are_counted),
        cmocka_unit_test(a_folder_without_a_run_is_a_sentence),
        cmocka_unit_test(a_refused_allocation_is_a_sentence),
        cmocka_unit_test(quantiles_are_elements_or_between_two),
        cmocka_unit_test(the_shipped_file_says_the_defaults),
        cmocka_unit_test(a_difference_beyond_the_tolerance_fails_at_its_update),
        cmocka_unit_test(updates_behind_the_bound_are_not_judged),
        cmocka_unit_test(a_number_that_is_not_finite_agrees_with_nothing),
        cmocka_unit_test(runs_without_a_common_update_are_refused),
        cmocka_unit_test(settings_that_differ_are_named_without_control_characters),
    };
    return cmocka_run_group_tests_name("run_record", tests, NULL, NULL);
}
