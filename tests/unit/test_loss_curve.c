/* test_loss_curve.c: the loss curve: which points are kept, and what the picture shows. */
#include "lib/test.h"
#include "report/loss_curve.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* metrics.jsonl with `n` lines, an evaluation every 100th. */
static const char *write_metrics(int n)
{
    const char *path = test_path("metrics.jsonl");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "{\"step\":%d,\"loss\":%.6f", i, 4.0 / (1 + 0.01 * i));
        if (i % 100 == 99) fprintf(f, ",\"val_loss\":%.6f", 4.5 / (1 + 0.01 * i));
        fprintf(f, ",\"lr\":0.001}\n");
    }
    fprintf(f, "{\"step\":%d,\"lo", n); /* of a run that was killed */
    assert_int_equal(fclose(f), 0);
    return test_folder();
}

static an_curve read_curve(const char *dir)
{
    an_err err = {0};
    an_curve c;
    if (an_curve_read(&err, dir, &c) != AN_OK) fail_msg("%s", err.text);
    return c;
}

static void a_short_run_keeps_every_line(void **state)
{
    (void)state;
    an_curve c = read_curve(write_metrics(250));
    assert_int_equal(c.n, 250);
    for (size_t i = 0; i < c.n; i++) {
        assert_int_equal(c.point[i].step, i);
        assert_true(isfinite(c.point[i].loss) && isfinite(c.point[i].val_loss) == (i % 100 == 99));
    }
    an_curve_free(&c);
}

static void a_long_run_is_thinned_and_keeps_its_evaluations(void **state)
{
    (void)state;
    an_curve c = read_curve(write_metrics(20000));
    int evaluations = 0;
    double last = INFINITY;
    assert_true(c.n <= 2 * AN_CURVE_POINTS && c.n >= AN_CURVE_POINTS / 2);
    for (size_t i = 0; i < c.n; i++) {
        evaluations += isfinite(c.point[i].val_loss);
        assert_true(i == 0 || c.point[i].step > c.point[i - 1].step);
        assert_true(c.point[i].loss < last); /* means of a falling curve fall */
        last = c.point[i].loss;
    }
    assert_int_equal(evaluations, 200);
    an_curve_free(&c);
}

static void no_metrics_are_no_points(void **state)
{
    (void)state;
    an_err err = {0};
    double low, high;
    an_curve c = read_curve("/nonexistent");
    assert_int_equal(c.n, 0);
    assert_false(an_curve_range(&c, &low, &high));
    assert_int_equal(an_curve_save(&err, "/nonexistent"), AN_OK); /* nothing to draw, nothing to write */
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p += strlen(what)) n++;
    return n;
}

/* Every number of an attribute x, cx or y, cy stands inside of the picture. */
static void inside(const char *svg, const char *attribute, double most)
{
    for (const char *p = svg; (p = strstr(p, attribute)) != NULL; p += strlen(attribute)) {
        const double v = strtod(p + strlen(attribute), NULL);
        if (!(v >= 0 && v <= most)) fail_msg("%s%g is outside of the picture", attribute, v);
    }
}

static void the_picture_has_a_line_and_a_mark_for_each_evaluation(void **state)
{
    (void)state;
    an_curve c = read_curve(write_metrics(500));
    an_text svg = {0};
    an_curve_svg(&c, "a <run> & more", &svg);
    assert_false(svg.failed);
    assert_int_equal(count(svg.data, "<circle"), 5 + 1); /* and one in the legend */
    assert_non_null(strstr(svg.data, "a &#60;run> &#38; more"));
    assert_non_null(strstr(svg.data, "</svg>"));
    assert_int_equal(count(svg.data, "L"), 499);
    inside(svg.data, " cx=\"", 720);
    inside(svg.data, " cy=\"", 400);
    inside(svg.data, " x=\"", 720);
    inside(svg.data, " y=\"", 400);
    assert_null(strstr(svg.data, "nan"));
    an_text_free(&svg);
    an_curve_free(&c);
}

static void a_curve_without_height_or_numbers_is_drawn(void **state)
{
    (void)state;
    an_curve_point flat[] = {{3, 2.5, NAN}, {3, 2.5, NAN}}, none[] = {{0, NAN, NAN}, {9, INFINITY, NAN}};
    an_curve_point near[] = {{0, 1e17, NAN}, {9, 1e17 + 16, NAN}}, far[] = {{0, -1.7e308, NAN}, {9, 1.7e308, 1}};
    an_curve_point *const cases[] = {flat, none, near, far};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_text svg = {0};
        an_curve_svg(&(an_curve){cases[i], 2}, "", &svg);
        assert_false(svg.failed);
        assert_null(strstr(svg.data, "nan"));
        assert_null(strstr(svg.data, "inf"));
        an_text_free(&svg);
    }
}

static void steps_out_of_order_are_put_in_order(void **state)
{
    (void)state;
    const char *text = "{\"step\":5,\"loss\":1}\n{\"step\":9223372036854775807,\"loss\":2}\n"
                       "{\"step\":-9223372036854775807,\"loss\":3}\n{\"step\":2,\"loss\":4}\n";
    test_write_file(test_path("metrics.jsonl"), text, strlen(text));
    an_curve c = read_curve(test_folder());
    assert_int_equal(c.n, 3); /* a step that no run has is left out */
    for (size_t i = 1; i < c.n; i++) assert_true(c.point[i].step >= c.point[i - 1].step);
    assert_int_equal(c.point[0].step, 0);
    an_curve_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_run_keeps_every_line),
        cmocka_unit_test(a_long_run_is_thinned_and_keeps_its_evaluations),
        cmocka_unit_test(no_metrics_are_no_points),
        cmocka_unit_test(the_picture_has_a_line_and_a_mark_for_each_evaluation),
        cmocka_unit_test(a_curve_without_height_or_numbers_is_drawn),
        cmocka_unit_test(steps_out_of_order_are_put_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
