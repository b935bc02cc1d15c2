/* test_memory_watch.c: a context whose memory grows is told by its own scopes: a state that is made anew each update, a graph that
 * gets larger; and the rule of the diagnosis names them from the lines that are written of it. */
#include <anneal.h>

#include "io/formats/json.h"
#include "lib/test.h"
#include "report/diagnose.h"
#include "train/memory_watch.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { IN = 32, WIDE = 4096, ROWS = 64, UPDATES = 50 };

/* The product of scope "wide", [rows,WIDE], is stored for the next one. */
static an_tensor *update(an_ctx *cx, int rows)
{
    static float x[(ROWS + UPDATES * 32) * IN];
    an_tensor *w = an_param(cx, "head.weight", AN_F32, AN_SHAPE(IN, WIDE), AN_NORMAL(0.1));
    an_tensor *v = an_param(cx, "tail.weight", AN_F32, AN_SHAPE(WIDE, 8), AN_NORMAL(0.1));
    an_scope_push(cx, "wide");
    an_tensor *y = an_matmul(an_input(cx, AN_F32, AN_SHAPE(rows, IN), x), w);
    an_scope_pop(cx);
    return an_sum(an_matmul(y, v), AN_ALL);
}

static void leak(an_ctx *cx, int i)
{
    char name[32];
    snprintf(name, sizeof name, "cache.%d", i);
    an_tensor *s = an_state(cx, name, AN_F32, AN_SHAPE(1024, 128), AN_ZEROS);
    an_assign(s, an_add_num(s, 1));
}

/* A run of `updates` of a graph whose rows and states grow as asked for, written as training writes one. */
static an_diagnosis run(const char *dir, int more_rows, bool leaks)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    an_text metrics = {0}, log = {0};
    an_err err = {0};
    an_memory m;
    char path[1300];
    an_text_puts(&log, "{\"event\":\"begin\",\"settings\":{}}\n");
    for (int i = 0; i < UPDATES; i++) {
        if (leaks) leak(cx, i);
        assert_int_equal(an_eval(update(cx, ROWS + i * more_rows)), AN_OK);
        assert_int_equal(an_memory_read(cx, &m), AN_OK);
        an_text_printf(&metrics, "{\"step\":%d,\"loss\":1,\"ms\":1,\"live_bytes\":%llu}\n", i,
                       (unsigned long long)m.live_bytes);
        if (i == UPDATES / 10 || i == UPDATES - 1) {
            an_text_puts(&log, "{\"event\":\"memory\"");
            assert_int_equal(an_memory_scopes_put(&err, cx, &log), AN_OK);
            an_text_puts(&log, "}\n");
        }
        an_reset(cx);
    }
    an_text_puts(&log, "{\"event\":\"end\",\"seconds\":1}\n");
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    an_close(cx);
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    test_write_file(path, metrics.data, metrics.len);
    snprintf(path, sizeof path, "%s/logbook.jsonl", dir);
    test_write_file(path, log.data, log.len);
    an_text_free(&metrics);
    an_text_free(&log);
    an_run_record r;
    an_diagnosis d = {0};
    if (an_run_record_read(&err, dir, &r) != AN_OK || an_diagnose(&err, dir, &r, false, &d) != AN_OK)
        fail_msg("%s", err.text);
    an_run_record_free(&r);
    return d;
}

static void a_state_that_is_made_anew_each_update_is_named(void **state)
{
    (void)state;
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("leak"));
    const an_diagnosis d = run(dir, 0, true);
    assert_int_equal(d.n, 1);
    assert_string_equal(d.finding[0].rule, "memory_grows");
    if (!strstr(d.finding[0].evidence, "states of scope cache: 3 MiB, then 25 MiB"))
        fail_msg("%s", d.finding[0].evidence);
}

static void a_graph_that_grows_is_named_by_the_scope_that_grows(void **state)
{
    (void)state;
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("graph"));
    const an_diagnosis d = run(dir, 32, false);
    assert_true(d.n >= 1);
    assert_string_equal(d.finding[0].rule, "memory_grows");
    if (!strstr(d.finding[0].evidence, "step of scope wide: ")) fail_msg("%s", d.finding[0].evidence);
}

static void a_steady_run_is_silent(void **state)
{
    (void)state;
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("steady"));
    assert_int_equal(run(dir, 0, false).n, 0);
}

/* Kinds, names without their last part, equal scopes added up, and the sum is what is alive. */
static void scopes_add_up_to_the_live_bytes(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    an_text text = {0};
    an_err err = {0};
    an_memory m;
    json_t *all;
    an_tensor *loss = update(cx, ROWS);
    an_backward(loss);
    (void)an_adamw(cx, (an_adamw_options){.lr = 1e-3});
    assert_int_equal(an_eval(loss), AN_OK);
    assert_int_equal(an_memory_read(cx, &m), AN_OK);
    an_text_puts(&text, "{\"a\":1");
    assert_int_equal(an_memory_scopes_put(&err, cx, &text), AN_OK);
    an_text_puts(&text, "}");
    assert_int_equal(an_json_parse(&err, "scopes", 0, text.data, text.len, &all), AN_OK);
    double sum = 0, moments = 0, parameters = 0, before = 1e30;
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(all, "scopes"), i, entry)
    {
        const char *kind = json_string_value(json_array_get(entry, 0)),
                   *scope = json_string_value(json_array_get(entry, 1));
        const double bytes = json_number_value(json_array_get(entry, 2));
        assert_true(bytes <= before);
        before = bytes;
        sum += bytes;
        if (strcmp(kind, "moments") == 0 && strcmp(scope, "head") == 0) moments += bytes;
        if (strcmp(kind, "parameters") == 0 && strcmp(scope, "head") == 0) parameters += bytes;
    }
    assert_true(parameters == 4.0 * IN * WIDE && moments == 2 * parameters);
    assert_true(sum == (double)m.live_bytes);
    json_decref(all);
    an_text_free(&text);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_that_is_made_anew_each_update_is_named),
        cmocka_unit_test(a_graph_that_grows_is_named_by_the_scope_that_grows),
        cmocka_unit_test(a_steady_run_is_silent),
        cmocka_unit_test(scopes_add_up_to_the_live_bytes),
    };
    return cmocka_run_group_tests_name("memory_watch", tests, NULL, NULL);
}
