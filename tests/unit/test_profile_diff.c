/* test_profile_diff.c: which operations of two profiles belong together, which matter, and the four conclusions. */
#include "lib/test.h"

#include "report/profile_diff.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A profile of four operations on `device`: two products of two layers, a norm, an update. `slow` scales the norm's time. */
static json_t *profile(const char *device, double data_ms, double host_ms, double share, double slow)
{
    static const char form[] =
        "{\"schema\":1,\"preset\":\"p\",\"device\":\"%s\",\"time\":\"2026-11-0%dT00:00:00Z\",\"step_ms\":%g,"
        "\"data_ms\":%g,\"device_ms\":%g,\"launches\":["
        "{\"kernel\":\"h.0.mlp\",\"scope\":\"h.0\",\"kind\":\"product\",\"phase\":\"forward\",\"shape\":\"4x4x4 "
        "f32\",\"device_us\":1000,\"share_of_roof\":%g},"
        "{\"kernel\":\"h.1.mlp\",\"scope\":\"h.1\",\"kind\":\"product\",\"phase\":\"forward\",\"shape\":\"4x4x4 "
        "f32\",\"device_us\":2000,\"share_of_roof\":%g},"
        "{\"kernel\":\"norm_rows_3\",\"scope\":\"n\",\"kind\":\"row\",\"phase\":\"forward\",\"shape\":\"4 x "
        "4\",\"device_us\":%g,\"share_of_roof\":%g},"
        "{\"kernel\":\"optimizer\",\"scope\":\"\",\"kind\":\"row\",\"phase\":\"update\",\"shape\":\"\",\"flops\":7,"
        "\"device_us\":100,\"share_of_roof\":%g}]}";
    char text[2048];
    an_err err = {0};
    json_t *j;
    const double device_ms = 3.1 + slow;
    const int n = snprintf(text, sizeof text, form, device, slow > 1 ? 9 : 1, data_ms + host_ms + device_ms, data_ms,
                           device_ms, share, share, 1000 * slow, share, share);
    if (an_json_parse(&err, "text", 0, text, (size_t)n, &j) != AN_OK) fail_msg("%s", err.text);
    return j;
}

static an_profile_diff diff(json_t *a, json_t *b)
{
    an_err err = {0};
    an_profile_diff d;
    if (an_profile_diff_make(&err, a, b, "a", "b", &d) != AN_OK) fail_msg("%s", err.text);
    json_decref(a);
    json_decref(b);
    return d;
}

static void layers_are_one_operation_and_the_change_comes_first(void **state)
{
    (void)state;
    an_profile_diff d = diff(profile("cpu", 0, 0, 0.1, 1), profile("cpu", 0.1, 0, 0.1, 4));
    assert_int_equal(d.n, 3);
    assert_true(d.changed);
    const an_profile_op *first = &d.op[d.top[0]];
    assert_string_equal(first->name, "norm_rows_*");
    assert_true(first->us[0] == 1000 && first->us[1] == 4000);
    assert_string_equal(d.op[d.top[1]].phase, d.op[d.top[1]].launches[0] == 2 ? "forward" : "update");
    assert_int_equal(d.verdict, AN_PROFILE_REWRITE);
    assert_true(d.days_apart == 8);
    assert_true(d.same_slowest);
    an_profile_diff_free(&d);
}

/* 50 ms of waiting for data in B change nothing but the conclusion. */
static void waiting_for_data_is_no_change_of_the_step(void **state)
{
    (void)state;
    an_profile_diff d = diff(profile("cpu", 0, 0, 0.1, 1), profile("cpu", 50, 0, 0.1, 1));
    assert_false(d.changed);
    assert_int_equal(d.verdict, AN_PROFILE_OTHER_PATH);
    assert_string_equal(d.op[d.top[0]].name, "h.*.mlp");
    assert_int_equal(d.op[d.top[0]].launches[0], 2);
    an_profile_diff_free(&d);
}

static void each_of_the_four_conclusions_has_its_figures(void **state)
{
    (void)state;
    const struct {
        const char *device;
        double data_ms, host_ms, share, slow;
        an_profile_verdict want;
        const char *figure;
    } cases[] = {{"cpu", 0, 0.1, 0.2, 1, AN_PROFILE_REWRITE, "20 %"},
                 {"cpu", 0, 0.1, 0.8, 1, AN_PROFILE_OTHER_HARDWARE, "80 %"},
                 {"metal", 0, 0.1, 0.8, 4, AN_PROFILE_MOVE, "times as long"},
                 {"metal", 0, 0.1, 0.8, 1, AN_PROFILE_OTHER_HARDWARE, "80 %"},
                 {"cpu", 0, 20, 0.2, 1, AN_PROFILE_OTHER_PATH, "in no launch"},
                 {"cpu", 5, 0, 0.8, 1, AN_PROFILE_OTHER_PATH, "waits for data"}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_profile_diff d =
            diff(profile("cpu", 0, 0, 0.2, 1),
                 profile(cases[i].device, cases[i].data_ms, cases[i].host_ms, cases[i].share, cases[i].slow));
        if (d.verdict != cases[i].want || !strstr(d.why, cases[i].figure))
            fail_msg("case %zu: %s: %s", i, an_profile_verdict_name(d.verdict), d.why);
        an_profile_diff_free(&d);
    }
}

/* A profile of six operations, the first of preset `preset` and of its shapes, with these times. */
static json_t *six(const char *preset, const char *shape, const double us[6])
{
    an_text text = {0};
    an_err err = {0};
    json_t *j;
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += 1e-3 * us[i];
    an_text_printf(&text,
                   "{\"schema\":1,\"preset\":\"%s\",\"device\":\"cpu\",\"step_ms\":%g,\"device_ms\":%g,\"launches\":[",
                   preset, sum, sum);
    for (int i = 0; i < 6; i++)
        an_text_printf(
            &text,
            "%s{\"kernel\":\"op_%c\",\"kind\":\"row\",\"phase\":\"forward\",\"shape\":\"%s\",\"device_us\":%g,"
            "\"share_of_roof\":%s}",
            i ? "," : "", 'a' + i, shape, us[i], i < 2 ? "null" : "0.5");
    an_text_puts(&text, "]}");
    if (an_json_parse(&err, "text", 0, text.data, text.len, &j) != AN_OK) fail_msg("%s", err.text);
    an_text_free(&text);
    return j;
}

/* On a machine that is busy while B is measured everything takes 1.5 times as long, and the largest operation gains most
 * microseconds; the one that was made slower is still named first. */
static void what_a_busy_machine_does_to_all_names_none(void **state)
{
    (void)state;
    static const double before[6] = {5000, 1000, 900, 800, 700, 300}, after[6] = {7500, 1500, 1350, 1200, 1050, 1200},
                        twice[6] = {10000, 2000, 1800, 1600, 1400, 600};
    an_profile_diff d = diff(six("p", "4", before), six("p", "4", after));
    assert_string_equal(d.op[d.top[0]].name, "op_f");
    assert_true(d.factor == 1.5 && d.common == 1 && d.changed);
    assert_int_equal(d.file[0].n_above, 2);
    an_profile_diff_free(&d);
    d = diff(six("p", "4", before), six("p", "4", twice));
    assert_true(d.factor == 2);
    an_profile_diff_free(&d);
    static const double most[6] = {50000, 10000, 9000, 8000, 700, 300}; /* four of six were made slower: not all */
    d = diff(six("p", "4", before), six("p", "4", most));
    assert_true(d.factor == 1);
    assert_string_equal(d.op[d.top[0]].name, "op_a");
    an_profile_diff_free(&d);
    d = diff(six("p", "4", before), six("p", "4", before));
    assert_true(d.factor == 1 && !d.changed);
    an_profile_diff_free(&d);
}

static void profiles_of_two_models_are_refused(void **state)
{
    (void)state;
    static const double us[6] = {5000, 1000, 900, 800, 700, 300};
    an_err err = {0};
    an_profile_diff d = diff(six("p", "4", us), six("p", "8", us)); /* one model with another batch */
    assert_true(d.common == 0);
    an_profile_diff_free(&d);
    d = diff(six("p", "4", us), six("q.yaml", "4", us)); /* one model, by its own file */
    an_profile_diff_free(&d);
    json_t *a = six("p", "4", us), *b = six("q", "8", us);
    assert_int_equal(an_profile_diff_make(&err, a, b, "a", "b", &d), AN_E_DATA);
    assert_non_null(strstr(err.text, "one is of p, the other of q"));
    an_profile_diff_free(&d);
    json_decref(a);
    json_decref(b);
}

static void what_is_no_profile_is_a_sentence(void **state)
{
    (void)state;
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "{\"schema\":1}",
                                        "{\"launches\":{}}",
                                        "{\"launches\":[1]}",
                                        "{\"schema\":2,\"launches\":[{}]}",
                                        "{\"schema\":1,\"launches\":[]}",
                                        "{\"schema\":1,\"launches\":[null,3,{}]}"};
    json_t *good = profile("cpu", 0, 0, 0.1, 1);
    for (size_t i = 0; i < AN_COUNT(texts); i++) {
        an_err err = {0};
        an_profile_diff d;
        json_t *j;
        assert_int_equal(an_json_parse(&err, "text", 0, texts[i], strlen(texts[i]), &j), AN_OK);
        assert_int_equal(an_profile_diff_make(&err, good, j, "good", "bad", &d), AN_E_DATA);
        assert_non_null(strstr(err.text, "bad: "));
        an_profile_diff_free(&d);
        json_decref(j);
    }
    json_decref(good);
}

static void names_and_numbers_of_a_hostile_file_stay_in_bounds(void **state)
{
    (void)state;
    an_text text = {0}, out = {0};
    an_err err = {0};
    json_t *j, *good = profile("cpu", 0, 0, 0.1, 1);
    an_profile_diff d;
    an_text_puts(&text, "{\"schema\":1,\"device\":\"\xc3\xa9\\n\\u001b[2J\",\"time\":\"9999999999\",\"step_ms\":1e308,"
                        "\"device_ms\":1e308,\"data_ms\":-5,\"launches\":[{\"kernel\":\"");
    for (int i = 0; i < 3000; i++) an_text_puts(&text, i % 2 ? "9" : "\xc3\xa9");
    an_text_puts(&text, "\",\"device_us\":1e308,\"share_of_roof\":1e308},{\"device_us\":1e308,\"flops\":1e308},"
                        "{\"kernel\":[],\"device_us\":\"x\"}]}");
    if (an_json_parse(&err, "text", 0, text.data, text.len, &j) != AN_OK) fail_msg("%s", err.text);
    if (an_profile_diff_make(&err, good, j, "a", "b", &d) != AN_OK) fail_msg("%s", err.text);
    assert_true(isnan(d.days_apart));
    an_text_puts(&out, "{");
    an_profile_diff_json(&d, &out);
    an_text_puts(&out, "}");
    json_t *back = json_loads(out.data, 0, NULL);
    assert_non_null(back);
    assert_null(strchr(d.file[1].device, 27));
    json_decref(back);
    json_decref(j);
    json_decref(good);
    an_profile_diff_free(&d);
    an_text_free(&text);
    an_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_one_operation_and_the_change_comes_first),
        cmocka_unit_test(waiting_for_data_is_no_change_of_the_step),
        cmocka_unit_test(each_of_the_four_conclusions_has_its_figures),
        cmocka_unit_test(what_a_busy_machine_does_to_all_names_none),
        cmocka_unit_test(profiles_of_two_models_are_refused),
        cmocka_unit_test(what_is_no_profile_is_a_sentence),
        cmocka_unit_test(names_and_numbers_of_a_hostile_file_stay_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
