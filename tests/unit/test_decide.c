/* test_decide.c: prepared measurements of two and three lanes give each verdict, with both numbers of each rule. */
#include "lib/test.h"

#include "report/decide.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A run of 100 updates of 1000 tokens, of 5000 in the training split: 20 epochs. */
typedef struct measurement {
    const char *device;
    double ms, busy;       /* busy < 0: not told */
    double cpu_wait;       /* ms of an update; 0: not told */
    double growth;         /* of live bytes, from the first epoch to the tenth; flat behind it */
    double drift;          /* relative, of the losses from update 50 on */
    int batch_size, lines; /* 0: 8, 100 */
    bool no_count;         /* the logbook does not say how many tokens there are */
    const char *extra;     /* lines of the logbook behind the first */
    const char *begin;     /* members of its first */
} measurement;

/* What `compare --accept` signs: the worst difference, at update 50, where the losses are these. */
#define SIGNED(a, b, worst)                                                                                            \
    "{\"event\":\"accepted\",\"name\":\"n\",\"rows\":[{\"name\":\"loss\",\"worst\":" worst ",\"a\":" a ",\"b\":" b     \
    ",\"worst_step\":50}],\"updates\":0}"

static void write_run(const measurement *m, const char *name, an_run_record *out)
{
    char metrics[160], logbook[160];
    const char *dir = test_path(name);
    an_err err = {0};
    mkdir(dir, 0700);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", dir);
    snprintf(logbook, sizeof logbook, "%s/logbook.jsonl", dir);
    FILE *f = fopen(metrics, "w");
    assert_non_null(f);
    for (int i = 0; i < (m->lines ? m->lines : 100); i++) {
        fprintf(f, "{\"step\":%d,\"loss\":%.12g,\"ms\":%g,\"units_per_s\":%g,\"live_bytes\":%g", i,
                (3 - 0.01 * i) * (1 + (i < 50 ? 0 : m->drift)), i == 0 ? 1e5 : m->ms, 1e6 / m->ms,
                1e9 * (1 + m->growth * (i < 45 ? i : 45) / 45));
        if (m->busy >= 0) fprintf(f, ",\"gpu_busy\":%g", m->busy);
        if (m->cpu_wait > 0) fprintf(f, ",\"cpu_wait_ms\":%g", m->cpu_wait);
        fprintf(f, "}\n");
    }
    fclose(f);
    f = fopen(logbook, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"event\":\"begin\",\"device\":\"%s: "
            "it\",\"host\":\"h\"%s%s,\"settings\":{\"batch_size\":%d,\"device\":\"%s\"}}\n",
            m->device, m->no_count ? "" : ",\"train_tokens\":5000", m->begin ? m->begin : "",
            m->batch_size ? m->batch_size : 8, m->device);
    if (m->extra) fprintf(f, "%s\n", m->extra);
    fclose(f);
    if (an_run_record_read(&err, dir, out) != AN_OK) fail_msg("%s", err.text);
}

static an_status decide(an_err *err, const measurement *m, int n, an_decision *d, an_decide_limits *limits)
{
    static const char *const names[] = {"lane0", "lane1", "lane2"};
    an_run_record run[3];
    if (an_config_defaults(err, &an_decide_limit_keys, limits) != AN_OK) fail_msg("%s", err->text);
    for (int i = 0; i < n; i++) write_run(&m[i], names[i], &run[i]);
    an_status status = an_decide(err, run, names, n, limits, d);
    for (int i = 0; i < n; i++) an_run_record_free(&run[i]);
    return status;
}

static void prepared_measurements_give_their_verdicts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n;
        measurement m[3];
        an_decide_verdict want;
        int on;
    } cases[] = {
        {"a GPU with nothing to do",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 90, .busy = 0.1, .growth = 0, .drift = 0}},
         AN_DECIDE_DATA_FIRST,
         1},
        {"slower, and idle",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 130, .busy = 0.1, .growth = 0, .drift = 0}},
         AN_DECIDE_DATA_FIRST,
         1},
        {"a leak",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 20, .busy = 0.9, .growth = 0.5, .drift = 0}},
         AN_DECIDE_RETAINED,
         1},
        {"other numbers",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 20, .busy = 0.9, .growth = 0, .drift = 1e-3}},
         AN_DECIDE_OTHER_HARDWARE,
         1},
        {"wrong numbers outweigh a leak",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 20, .busy = 0.1, .growth = 0.5, .drift = 1e-3}},
         AN_DECIDE_OTHER_HARDWARE,
         1},
        {"a good GPU",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 20, .busy = 0.9, .growth = 0.2, .drift = 1e-7}},
         AN_DECIDE_TRAIN,
         1},
        {"a GPU that is idle but fast",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 70, .busy = 0.1, .growth = 0, .drift = 0}},
         AN_DECIDE_TRAIN,
         1},
        {"a GPU that is busy and slower",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 120, .busy = 0.9, .growth = 0, .drift = 0}},
         AN_DECIDE_TRAIN,
         0},
        {"accepted",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g",
           .ms = 20,
           .busy = 0.9,
           .growth = 0,
           .drift = 1e-3,
           .extra = SIGNED("2.5", "2.5025", "0.001")}},
         AN_DECIDE_TRAIN,
         1},
        {"another table was accepted",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1},
          {.device = "g", .ms = 20, .busy = 0.9, .drift = 1e-3, .extra = SIGNED("2.4", "2.5025", "0.001")}},
         AN_DECIDE_OTHER_HARDWARE,
         1},
        {"a smaller difference was accepted",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1},
          {.device = "g", .ms = 20, .busy = 0.9, .drift = 1e-3, .extra = SIGNED("2.5", "2.5025", "0.0001")}},
         AN_DECIDE_OTHER_HARDWARE,
         1},
        {"a signature without a table",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1},
          {.device = "g", .ms = 20, .busy = 0.9, .drift = 1e-3, .extra = "{\"event\":\"accepted\",\"name\":\"n\"}"}},
         AN_DECIDE_OTHER_HARDWARE,
         1},
        {"one lane", 1, {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0}}, AN_DECIDE_TRAIN, 0},
        {"a leak on the only lane",
         1,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0.5, .drift = 0}},
         AN_DECIDE_RETAINED,
         0},
        {"a third lane without fault",
         3,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 10, .busy = 0.9, .growth = 0, .drift = 1},
          {.device = "r", .ms = 30, .busy = 0.9, .growth = 0, .drift = 0}},
         AN_DECIDE_TRAIN,
         2},
        {"epochs that were not counted",
         2,
         {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
          {.device = "g", .ms = 20, .busy = 0.9, .growth = 0.5, .drift = 0, .no_count = true}},
         AN_DECIDE_RETAINED,
         1},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        an_decision d;
        an_decide_limits limits;
        an_text json = {0};
        if (decide(&err, cases[i].m, cases[i].n, &d, &limits) != AN_OK) fail_msg("%s: %s", cases[i].name, err.text);
        if (d.verdict != cases[i].want || d.on != cases[i].on)
            fail_msg("%s: %s on %d", cases[i].name, an_decide_verdict_name(d.verdict), d.on);
        an_text_puts(&json, "{");
        an_decide_json(&d, &limits, &json);
        an_text_puts(&json, "}");
        json_t *back = json_loads(json.data, 0, NULL);
        assert_non_null(back);
        json_decref(back);
        an_text_free(&json);
    }
}

static void figures_are_of_the_window_that_they_name(void **state)
{
    (void)state;
    static const measurement m[] = {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
                                    {.device = "g", .ms = 50, .busy = 0.5, .growth = 0.5, .drift = 1e-3}};
    an_err err = {0};
    an_decision d;
    an_decide_limits limits;
    double found, limit;
    assert_int_equal(decide(&err, m, 2, &d, &limits), AN_OK);
    const an_decide_lane *l = &d.lane[1];
    assert_true(l->ms == 50 && l->gain == 0.5 && l->busy == 0.5); /* not the first update, of 100 s */
    assert_int_equal(l->first_step, 11);
    assert_int_equal(l->last_step, 99);
    assert_true(fabs(l->last_epoch - 20) < 1e-9 && fabs(l->growth_epochs - 10) < 1e-9);
    assert_true(an_decide_numbers(l, &limits, AN_DECIDE_MEMORY, &found, &limit));
    assert_true(found > 0.3 && found < 0.5 && limit == 0.26);
    assert_true(an_decide_numbers(l, &limits, AN_DECIDE_DRIFT, &found, &limit));
    assert_true(fabs(found - 1e-3) < 1e-5 && limit == 1e-6 && l->drift_step >= 50);
    assert_false(an_decide_numbers(&d.lane[0], &limits, AN_DECIDE_DATA, &found, &limit));
}

static void lanes_of_other_buckets_and_short_runs_are_a_sentence(void **state)
{
    (void)state;
    static const measurement other[] = {
        {.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
        {.device = "g", .ms = 50, .busy = 0.5, .growth = 0, .drift = 0, .batch_size = 16}};
    static const measurement brief[] = {{.device = "cpu", .ms = 100, .busy = -1, .growth = 0, .drift = 0},
                                        {.device = "g", .ms = 50, .busy = 0.5, .growth = 0, .drift = 0, .lines = 9}};
    an_err err = {0};
    an_decision d;
    an_decide_limits limits;
    assert_int_equal(decide(&err, other, 2, &d, &limits), AN_E_USAGE);
    assert_non_null(strstr(err.text, "batch_size"));
    an_err_clear(&err);
    assert_int_equal(decide(&err, brief, 2, &d, &limits), AN_E_DATA);
    assert_non_null(strstr(err.text, "9 lines"));
}

static void lanes_that_failed_or_had_other_data_are_a_sentence(void **state)
{
    (void)state;
    static const measurement failed[] = {
        {.device = "cpu", .ms = 100, .busy = -1},
        {.device = "g", .ms = 20, .busy = 0.9, .extra = "{\"event\":\"failed\",\"error\":\"cuda: device lost\"}"}};
    static const measurement data[] = {
        {.device = "cpu", .ms = 100, .busy = -1, .begin = ",\"train_xxh3\":\"aa\",\"val_xxh3\":\"b\""},
        {.device = "g", .ms = 20, .busy = 0.9, .drift = 1, .begin = ",\"train_xxh3\":\"ab\",\"val_xxh3\":\"b\""}};
    static const measurement ended[] = {
        {.device = "cpu", .ms = 100, .busy = -1, .extra = "{\"event\":\"end\"}", .begin = ",\"train_xxh3\":\"aa\""},
        {.device = "g", .ms = 20, .busy = 0.9, .begin = ",\"train_xxh3\":\"aa\""}};
    an_err err = {0};
    an_decision d;
    an_decide_limits limits;
    assert_int_equal(decide(&err, failed, 2, &d, &limits), AN_E_DATA);
    assert_non_null(strstr(err.text, "failed"));
    an_err_clear(&err);
    assert_int_equal(decide(&err, data, 2, &d, &limits), AN_E_USAGE);
    assert_non_null(strstr(err.text, "train_xxh3"));
    an_err_clear(&err);
    assert_int_equal(decide(&err, ended, 2, &d, &limits), AN_OK);
    assert_true(d.lane[0].ended && !d.lane[1].ended);
}

static void a_lane_tells_how_long_it_waited_for_a_processor(void **state)
{
    (void)state;
    an_err err = {0};
    an_decision d;
    an_decide_limits limits;
    const measurement m[] = {{.device = "cpu", .ms = 100, .busy = -1},
                             {.device = "g", .ms = 80, .busy = -1, .cpu_wait = 32}};
    if (decide(&err, m, 2, &d, &limits) != AN_OK) fail_msg("%s", err.text);
    assert_true(isnan(d.lane[0].cpu_wait));
    assert_float_equal(d.lane[1].cpu_wait, 0.4, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_measurements_give_their_verdicts),
        cmocka_unit_test(figures_are_of_the_window_that_they_name),
        cmocka_unit_test(lanes_of_other_buckets_and_short_runs_are_a_sentence),
        cmocka_unit_test(lanes_that_failed_or_had_other_data_are_a_sentence),
        cmocka_unit_test(a_lane_tells_how_long_it_waited_for_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
