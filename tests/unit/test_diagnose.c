/* test_diagnose.c: every rule fires on a run that was made for it, alone, and on nothing else of this file; a healthy
 * run is silent. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "report/diagnose.h"
#include "io/formats/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What differs from a healthy run: 60 lines, 10 updates apart, 100 ms each. */
typedef struct fault {
    const char *rule; /* that it fires; NULL: none */
    const char *name;
    double wait_ms, late_ms, every_fifth_ms; /* added: always, in the last third, in every fifth line */
    double cpu_wait_ms, slow_cpu_wait_share; /* for a processor: added always; of what late_ms and every_fifth_ms add */
    double slow_data_wait_share;             /* the same, for data */
    double rss_growth, live_growth, swap_growth, plan_growth, rss, gpu_busy; /* growth: from first to last line */
    double heap_growth, mapped_growth;                                       /* of the process */
    double loss_rise;                                                        /* from the middle on, up to this */
    int null_loss_at;                                                        /* line; 0: none */
    int lines;                                                               /* 0: 60 */
    int n_launches;                                                          /* of an update; 0: 100 */
    const char *facts, *begin, *plan, *end, *machine; /* members; end: the whole line, "" for none */
    const char *memory[2];                            /* scopes of the device's memory, early and late */
    const char *launches;                             /* of a profile beside it; NULL: none */
    double reference_ms;                              /* of a run beside it; 0: none */
} fault;

static const char healthy_end[] = "{\"event\":\"end\",\"seconds\":70,\"save_s\":1,\"evaluate_s\":5}\n";

/* Launches of a profile: time, share of the roofline, work. */
#define LAUNCH(kind, us, flops, share)                                                                                 \
    "{\"kernel\":\"h.0." kind "\",\"kind\":\"" kind                                                                    \
    "\",\"phase\":\"forward\",\"shape\":\"8x8\",\"bytes\":64,\"device_us\":" us ",\"enqueue_us\":1,\"flops\":" flops   \
    ",\"share_of_roof\":" share "}"
#define PRODUCT(us, share) LAUNCH("product", us, "1e6", share)
#define ROW(us, flops)     LAUNCH("row", us, flops, "0.5")
#define SCATTER(us)        LAUNCH("scatter", us, "1e3", "0.5")

static const fault faults[] = {
    {NULL, "healthy", .lines = 60},
    {NULL, "some waiting", .wait_ms = 5},
    {NULL, "a little slower at the end", .late_ms = 20},
    {NULL, "a slow line now and then", .every_fifth_ms = 50},
    {NULL, "swap that others use", .swap_growth = 100e6},
    {NULL, "one more plan for evaluations", .plan_growth = 2},
    {NULL, "a buffer more", .rss_growth = 8e6},
    {NULL, "a busy GPU", .gpu_busy = 0.9},
    {NULL, "a loss with noise", .loss_rise = 2.2},
    {NULL, "a local disk", .begin = ",\"mount\":\"ext4\"", .wait_ms = 8},
    {NULL, "a network that suffices", .begin = ",\"mount\":\"nfs4\"", .wait_ms = 2},
    {NULL, "a little load", .cpu_wait_ms = 15},
    {"processors_are_shared", "much load", .cpu_wait_ms = 40},
    {NULL, "mains and native", .facts = ",\"on_battery\":0,\"low_power\":0,\"translated\":\"\""},
    {NULL, "warm", .machine = "thermal state fair: the machine is warm, and may be slowed soon"},
    {NULL, "no fallbacks", .plan = ",\"fallbacks\":0"},
    {NULL, "interrupted", .end = "{\"event\":\"interrupted\",\"seconds\":70}\n"},
    {NULL, "too short to be judged", .lines = 8, .wait_ms = 90},
    {"waits_for_data", "a slow loader", .wait_ms = 30},
    {"slows_down", "a cliff", .late_ms = 80},
    {"slows_down", "a cliff by heat", .late_ms = 80,
     .machine = "the processor was slowed down for its heat: steps get slower"},
    {"times_swing", "other load", .every_fifth_ms = 300},
    {"memory_grows", "a leak of the process", .rss_growth = 200e6},
    {"memory_grows", "a leak on the device", .live_growth = 200e6},
    {"memory_grows", "a leak of the heap", .rss_growth = 200e6, .heap_growth = 190e6},
    {"memory_grows", "a leak beside mapped files", .rss_growth = 300e6, .mapped_growth = 200e6},
    {NULL, "data that are mapped", .rss_growth = 200e6, .mapped_growth = 200e6},
    {"swap_grows", "swap", .swap_growth = 900e6},
    {"swap_grows", "stalls", .machine = "programs here waited for memory 40 % of the last 10 s"},
    {"plans_grow", "a number in the graph", .plan_growth = 50},
    {"near_memory_limit", "nearly full", .rss = 15.5e9},
    {"near_memory_limit", "a full control group", .rss = 3.9e9, .facts = ",\"cgroup_bytes\":4000000000"},
    {"device_is_idle", "a tiny model", .gpu_busy = 0.2},
    {"device_is_idle", "empty launches", .begin = ",\"gpu\":true", .n_launches = 30000},
    {"device_is_idle", "empty launches, one always runs", .begin = ",\"gpu\":true", .n_launches = 30000,
     .gpu_busy = 0.95},
    {NULL, "many launches on the CPU", .begin = ",\"gpu\":false", .n_launches = 30000},
    {NULL, "full launches", .begin = ",\"gpu\":true", .n_launches = 9000},
    {"loss_rises", "drift", .loss_rise = 3.5},
    {"not_finite", "a NaN", .null_loss_at = 30,
     .end = "{\"event\":\"failed\",\"error\":\"update 30: the loss is nan\"}\n"},
    {"out_of_memory", "no memory", .end = "{\"event\":\"failed\",\"error\":\"out of memory: 8 GiB\"}\n"},
    {"failed", "a full disk", .end = "{\"event\":\"failed\",\"error\":\"x: No space left on device\"}\n"},
    {"killed", "no end", .end = ""},
    {"network_mount", "nfs", .begin = ",\"mount\":\"nfs4\"", .wait_ms = 7},
    {"memory_grows", "a small leak on the device", .live_growth = 10e6},
    {"metrics_cut_short", "half of the metrics",
     .end = "{\"event\":\"end\",\"step\":1200,\"seconds\":70,\"save_s\":1,\"evaluate_s\":5}\n"},
    {NULL, "metrics of a run that was interrupted between two lines",
     .end = "{\"event\":\"interrupted\",\"step\":598,\"seconds\":70}\n"},
    {"slow_saves", "a slow disk", .end = "{\"event\":\"end\",\"seconds\":70,\"save_s\":20,\"evaluate_s\":5}\n"},
    {"evaluates_much", "evaluations", .end = "{\"event\":\"end\",\"seconds\":70,\"save_s\":1,\"evaluate_s\":50}\n"},
    {"falls_back", "fallbacks", .plan = ",\"fallbacks\":3,\"fallback_ms\":12"},
    {NULL, "a step that computes", .launches = PRODUCT("60", "0.7") "," ROW("40", "1e6")},
    {NULL, "a slow operation of little time", .launches = PRODUCT("30", "0.05") "," ROW("50", "1e6") "," SCATTER("20")},
    {NULL, "three times as fast", .reference_ms = 300},
    {NULL, "one program on the GPU", .machine = "low-power mode is off again"},
    {"slow_operation", "a slow product", .launches = PRODUCT("60", "0.05") "," ROW("40", "1e6")},
    {"moves_dominate", "tables", .launches = PRODUCT("30", "0.7") "," SCATTER("40") "," ROW("30", "1e6")},
    {"moves_dominate", "casts", .launches = PRODUCT("60", "0.7") "," ROW("40", "0")},
    {"launch_bound", "small launches",
     .launches = "{\"kernel\":\"a\",\"kind\":\"row\",\"flops\":9,\"device_us\":5,\"enqueue_us\":9}"},
    {"no_faster", "as fast as the CPU", .reference_ms = 110},
    {"gpu_is_shared", "two programs",
     .machine = "2 programs compute on the GPU 0 (H200): each gets a part of its time"},
    {"too_hot", "heat", .machine = "thermal state serious: the machine is hot and slowed down, steps take longer"},
    {"saves_power", "battery", .facts = ",\"on_battery\":1"},
    {"saves_power", "low power", .machine = "low-power mode is on: steps are slower"},
    {"is_translated", "Rosetta", .facts = ",\"translated\":\"Rosetta 2\""},
};

static void put_line(an_text *out, const fault *f, int i, int n)
{
    const double part = (double)i / (n - 1), noise = i % 2 ? 0.02 : -0.02;
    double loss = 2 + 2 * exp(-6 * part) + noise;
    const double slower = (i % 5 == 0 ? f->every_fifth_ms : 0) + (i >= 2 * n / 3 ? f->late_ms : 0);
    const double wait_ms = f->wait_ms + f->slow_data_wait_share * slower,
                 ms = 100 + 2 * (i % 3) + f->wait_ms + f->cpu_wait_ms + slower;
    if (f->loss_rise > 0 && part > 0.5) loss = 2 + (f->loss_rise - 2) * (2 * part - 1) + noise;
    an_text_printf(out, "{\"step\":%d,\"ms\":%.3f,\"grad_norm\":1,\"data_wait_ms\":%.3f", 10 * i, ms, wait_ms);
    if (f->cpu_wait_ms > 0 || f->slow_cpu_wait_share > 0)
        an_text_printf(out, ",\"cpu_wait_ms\":%.3f", f->cpu_wait_ms + f->slow_cpu_wait_share * slower);
    if (f->null_loss_at > 0 && i == f->null_loss_at)
        an_text_puts(out, ",\"loss\":null");
    else
        an_text_printf(out, ",\"loss\":%.6f", loss);
    an_text_printf(out, ",\"rss_bytes\":%.0f,\"live_bytes\":%.0f,\"swap_bytes\":%.0f,\"plans\":%.0f",
                   (f->rss > 0 ? f->rss : 500e6) + f->rss_growth * part, 300e6 + f->live_growth * part,
                   1e6 + f->swap_growth * part, 3 + floor(f->plan_growth * part));
    an_text_printf(out, ",\"heap_bytes\":%.0f,\"mapped_bytes\":%.0f", 50e6 + f->heap_growth * part,
                   80e6 + f->mapped_growth * part);
    if (f->gpu_busy > 0) an_text_printf(out, ",\"gpu_busy\":%.3f", f->gpu_busy);
    an_text_puts(out, "}\n");
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static void write_run(const char *dir, const fault *f)
{
    char path[1200];
    an_text metrics = {0}, log = {0};
    const int n = f->lines ? f->lines : 60;
    for (int i = 0; i < n; i++) put_line(&metrics, f, i, n);
    an_text_printf(&log,
                   "{\"event\":\"begin\",\"time\":\"2026-01-01T00:00:00Z\",\"facts\":{\"ram_bytes\":16000000000%s}%s,"
                   "\"settings\":{\"batch_size\":8,\"gradient_accumulation_steps\":1,\"learning_rate\":0.001,"
                   "\"workers\":1,\"log_interval\":10,\"eval_interval\":100,\"save_interval\":100}}\n",
                   or_empty(f->facts), or_empty(f->begin));
    an_text_printf(&log, "{\"event\":\"plan\",\"launches\":%d%s}\n", f->n_launches ? f->n_launches : 100,
                   or_empty(f->plan));
    for (int i = 0; i < 2; i++)
        if (f->memory[i]) an_text_printf(&log, "{\"event\":\"memory\",\"scopes\":[%s]}\n", f->memory[i]);
    if (f->machine) an_text_printf(&log, "{\"event\":\"machine\",\"what\":\"%s\"}\n", f->machine);
    an_text_puts(&log, f->end ? f->end : healthy_end);
    assert_false(metrics.failed || log.failed);
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    test_write_file(path, metrics.data, metrics.len);
    snprintf(path, sizeof path, "%s/logbook.jsonl", dir);
    test_write_file(path, log.data, log.len);
    an_text_free(&metrics);
    an_text_free(&log);
}

static an_diagnosis diagnose(const char *dir, bool running)
{
    an_err err = {0};
    an_run_record r;
    an_diagnosis d = {0};
    if (an_run_record_read(&err, dir, &r) != AN_OK || an_diagnose(&err, dir, &r, running, &d) != AN_OK)
        fail_msg("%s", err.text);
    an_run_record_free(&r);
    return d;
}

/* The run with what lies beside it. */
static an_diagnosis diagnose_beside(const char *dir, const fault *f)
{
    char reference_dir[1300];
    an_err err = {0};
    an_run_record r, reference = {0};
    an_diagnosis d = {0};
    an_text text = {0};
    json_t *profile = NULL;
    if (f->launches) {
        an_text_printf(&text, "{\"schema\":1,\"step_ms\":1,\"device_ms\":0.1,\"launches\":[%s]}", f->launches);
        if (an_json_parse(&err, "profile", 0, text.data, text.len, &profile) != AN_OK) fail_msg("%s", err.text);
    }
    snprintf(reference_dir, sizeof reference_dir, "%s-reference", dir);
    write_run(reference_dir, &(fault){.wait_ms = f->reference_ms - 100});
    const an_diagnose_beside beside = {profile, "profile", f->reference_ms > 0 ? &reference : NULL, reference_dir};
    if (an_run_record_read(&err, dir, &r) != AN_OK || an_run_record_read(&err, reference_dir, &reference) != AN_OK ||
        an_diagnose_beside_others(&err, dir, &r, false, &beside, &d) != AN_OK)
        fail_msg("%s: %s", f->name, err.text);
    json_decref(profile);
    an_text_free(&text);
    an_run_record_free(&r);
    an_run_record_free(&reference);
    return d;
}

static bool has(const an_diagnosis *d, const char *rule)
{
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->finding[i].rule, rule) == 0) return true;
    return false;
}

/* data on a network mount that are waited for also are data that are waited for: not below its threshold here. */
static void each_fault_fires_its_rule_alone(void **state)
{
    (void)state;
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("run"));
    for (size_t i = 0; i < AN_COUNT(faults); i++) {
        const fault *f = &faults[i];
        write_run(dir, f);
        const an_diagnosis d = diagnose_beside(dir, f);
        if (f->rule && !has(&d, f->rule)) fail_msg("%s: %s does not fire", f->name, f->rule);
        if (d.n > (f->rule ? 1 : 0))
            fail_msg("%s: %s fires: %s", f->name, d.finding[d.n - 1].rule, d.finding[d.n - 1].evidence);
        for (int k = 0; k < d.n; k++)
            if (!*d.finding[k].evidence || !*d.finding[k].fix) fail_msg("%s: no evidence or no fix", f->name);
    }
}

static void every_rule_has_a_run_that_fires_it(void **state)
{
    (void)state;
    for (int k = 0; an_diagnose_rule(k); k++) {
        bool found = false;
        for (size_t i = 0; i < AN_COUNT(faults); i++)
            found |= faults[i].rule && strcmp(faults[i].rule, an_diagnose_rule(k)) == 0;
        if (!found) fail_msg("no run fires %s", an_diagnose_rule(k));
    }
}

/* Nothing found is said of those rules alone that had something to look at. */
static void rules_without_figures_are_counted(void **state)
{
    (void)state;
    char dir[1200];
    int all = 0;
    while (an_diagnose_rule(all)) all++;
    snprintf(dir, sizeof dir, "%s", test_path("figures"));
    write_run(dir, &(fault){.lines = 60});
    an_diagnosis d = diagnose(dir, false);
    assert_int_equal(d.judged, all - 4);
    assert_string_equal(d.lacks, "profile=, reference=");
    write_run(dir, &(fault){.lines = 8});
    d = diagnose(dir, false);
    assert_true(d.judged < all - 4);
    assert_non_null(strstr(d.lacks, "20 lines and 10 s of updates"));
    assert_non_null(strstr(d.lacks, "40 lines of metrics"));
}

static void what_lies_beside_is_of_the_same_preset(void **state)
{
    (void)state;
    char dir[1200];
    an_err err = {0};
    an_run_record r;
    an_diagnosis d;
    json_t *profile = NULL;
    static const char text[] = "{\"schema\":1,\"preset\":\"other\",\"step_ms\":1,\"device_ms\":1,\"launches\":[]}";
    snprintf(dir, sizeof dir, "%s", test_path("preset"));
    write_run(dir, &(fault){.begin = ",\"preset\":\"demo\""});
    assert_int_equal(an_run_record_read(&err, dir, &r), AN_OK);
    assert_int_equal(an_json_parse(&err, "profile", 0, text, strlen(text), &profile), AN_OK);
    const an_diagnose_beside beside = {.profile = profile, .profile_path = "p.json"};
    assert_int_equal(an_diagnose_beside_others(&err, dir, &r, false, &beside, &d), AN_E_DATA);
    assert_non_null(strstr(err.text, "p.json: it is of "));
    json_decref(profile);
    an_run_record_free(&r);
}

static void a_record_that_cannot_be_read_leaves_nothing_to_free(void **state)
{
    (void)state;
    char dir[1200], logbook[1300];
    an_err err = {0};
    an_run_record r;
    static const an_run_record none;
    snprintf(dir, sizeof dir, "%s", test_path("unreadable"));
    write_run(dir, &(fault){.end = ""});
    snprintf(logbook, sizeof logbook, "%s/logbook.jsonl", dir);
    assert_int_equal(remove(logbook), 0);
    assert_int_equal(mkdir(logbook, 0700), 0); /* behind metrics.jsonl, which has been read by then */
    assert_int_not_equal(an_run_record_read(&err, dir, &r), AN_OK);
    assert_non_null(strstr(err.text, "logbook.jsonl"));
    assert_memory_equal(&r, &none, sizeof r);
    assert_int_equal(rmdir(logbook), 0);
}

static void a_run_that_goes_on_was_not_killed(void **state)
{
    (void)state;
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("alive"));
    write_run(dir, &(fault){.end = ""});
    assert_int_equal(diagnose(dir, true).n, 0);
    assert_true(has(&(an_diagnosis[]){diagnose(dir, false)}[0], "killed"));
}

static void a_slow_down_names_what_the_machine_said(void **state)
{
    (void)state;
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("cause"));
    write_run(dir, &(fault){.late_ms = 80});
    an_diagnosis d = diagnose(dir, false);
    assert_non_null(strstr(d.finding[0].evidence, "names no cause"));
    write_run(dir, &(fault){.late_ms = 80, .machine = "the processor was slowed down for its heat"});
    d = diagnose(dir, false);
    assert_non_null(strstr(d.finding[0].evidence, "heat"));
    write_run(dir, &(fault){.late_ms = 80, .swap_growth = 900e6});
    d = diagnose(dir, false);
    assert_true(has(&d, "swap_grows") && has(&d, "slows_down"));
    assert_non_null(strstr(d.finding[d.n - 1].evidence, "swap"));
}

/* Slow updates, steady or now and then: what they waited for is told, of fallbacks, data, a processor, or that it is none of them. */
/* More programs than a run lists, each with the longest name that is shown. */
#define LONG(digit) "[\"" digit "-a-program-with-a-very-long-n\",90],"

static void slow_updates_name_what_they_waited_for(void **state)
{
    (void)state;
    static const struct {
        fault fault;
        const char *rule, *says;
    } cases[] = {
        {{.wait_ms = 30, .cpu_wait_ms = 60},
         "waits_for_data",
         "whose processors other programs used: an update waited"},
        {{.every_fifth_ms = 300, .slow_cpu_wait_share = 0.9},
         "times_swing",
         "an update waited 0 ms for one when it was fast, 270"},
        {{.late_ms = 80, .slow_cpu_wait_share = 0.9}, "slows_down", "waited 0 ms for one when it was fast, 72"},
        {{.every_fifth_ms = 300, .slow_data_wait_share = 0.9}, "times_swing", "data are the cause"},
        {{.late_ms = 80, .slow_data_wait_share = 0.9}, "slows_down", "data are the cause: an update waited 0 ms"},
        {{.every_fifth_ms = 300, .plan = ",\"fallbacks\":3"}, "times_swing", "3 launches of an update run on the CPU"},
        {{.every_fifth_ms = 300, .cpu_wait_ms = 1}, "times_swing", "neither waits for data nor for a processor"},
        {{.every_fifth_ms = 300}, "times_swing", "does not tell whether other programs"},
        {{.late_ms = 80, .cpu_wait_ms = 1}, "slows_down", "neither the machine's log nor waits"},
        {{.cpu_wait_ms = 40, .begin = ",\"busiest\":[[\"make\",97.2],[\"\\u001b[2J\",40],[\"x\",1e300],[],[\"y\",5]]"},
         "processors_are_shared",
         "waited 28 % of the time of the updates for a processor; when it began: make 97 %, ?[2J 40 %"},
        {{.cpu_wait_ms = 40,
          .begin = ",\"busiest\":[" LONG("1") LONG("2") LONG("3") LONG("4") LONG("5") LONG("6") LONG("7") "[]]"},
         "processors_are_shared",
         "3-a-program-with-a-very-long-n 90 %"}};
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("waits"));
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        write_run(dir, &cases[i].fault);
        const an_diagnosis d = diagnose(dir, false);
        bool found = false;
        for (int k = 0; k < d.n; k++)
            found |= strcmp(d.finding[k].rule, cases[i].rule) == 0 && strstr(d.finding[k].evidence, cases[i].says);
        if (!found) fail_msg("%zu: %s", i, d.n ? d.finding[d.n - 1].evidence : "nothing was found");
    }
}

static void growth_is_named_by_its_owner(void **state)
{
    (void)state;
    static const struct {
        fault fault;
        const char *says, *says_not;
    } cases[] = {
        {{.live_growth = 200e6,
          .memory = {"[\"step\",\"h0/attn\",1000],[\"states\",\"cache\",4194304],[\"parameters\",\"h.0\",9]",
                     "[\"states\",\"cache\",208666624],[\"step\",\"h0/attn\",2000],[\"parameters\",\"h.0\",9]"}},
         "states of scope cache: 4 MiB, then 199 MiB",
         "h0/attn"},
        {{.live_growth = 200e6,
          .memory = {"[\"step\",\"a\",100000000],[\"step\",\"b\",7]",
                     "[\"step\",\"a\",150000000],[\"step\",\"b\",120000007],[\"moments\",\"c\",30000000]"}},
         "step of scope b: ",
         "heap"},
        {{.live_growth = 200e6, .memory = {"[\"step\",\"a\",5]", "[\"step\",\"a\",5]"}},
         "no scope of the model",
         "step of"},
        {{.live_growth = 200e6,
          .memory = {"", "7,[],[1,2,3],[\"\\u001b[2J\",\"\\u001b[31m\",1e30],[\"step\",\"x\",-1e300]"}},
         "bytes of scope ?[31m",
         "x"},
        {{.live_growth = 200e6}, "no line \"memory\"", "scope of"},
        {{.rss_growth = 200e6, .heap_growth = 190e6}, "the C library's heap: ", "mapped"},
        {{.rss_growth = 200e6}, "neither the heap", "library"}};
    char dir[1200];
    snprintf(dir, sizeof dir, "%s", test_path("owner"));
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        write_run(dir, &cases[i].fault);
        const an_diagnosis d = diagnose(dir, false);
        assert_int_equal(d.n, 1);
        assert_string_equal(d.finding[0].rule, "memory_grows");
        const char *owner = strstr(d.finding[0].evidence, "; ");
        assert_non_null(owner);
        if (!strstr(owner, cases[i].says) || strstr(owner, cases[i].says_not))
            fail_msg("%zu: %s", i, d.finding[0].evidence);
    }
}

/* Texts of strangers: cut within a character, control characters, several lines. */
static void evidence_is_one_printable_line_and_valid_json(void **state)
{
    (void)state;
    char dir[1200], line[2200] = "{\"event\":\"failed\",\"error\":\"a\\u001b[2J\\nnext ";
    snprintf(dir, sizeof dir, "%s", test_path("hostile"));
    for (int i = 0; i < 400; i++) strcat(line, "\xe2\x82\xac");
    strcat(line, "\"}\n");
    write_run(dir, &(fault){.end = line});
    an_diagnosis d = diagnose(dir, false);
    assert_int_equal(d.n, 1);
    assert_string_equal(d.finding[0].evidence, "a?[2J");
    snprintf(line, sizeof line, "{\"event\":\"failed\",\"error\":\"x");
    for (int i = 0; i < 400; i++) strcat(line, "\xe2\x82\xac");
    strcat(line, "\"}\n");
    write_run(dir, &(fault){.end = line});
    d = diagnose(dir, false);
    an_text json = {0};
    json_t *parsed;
    an_diagnosis_json(&d, &json);
    assert_false(json.failed);
    assert_int_equal(an_json_parse(NULL, "json", 0, json.data, json.len, &parsed), AN_OK);
    json_decref(parsed);
    an_text_free(&json);
}

static void a_run_without_figures_is_silent(void **state)
{
    (void)state;
    char dir[1200], path[1300];
    snprintf(dir, sizeof dir, "%s", test_path("bare"));
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    static const char text[] = "{\"step\":0}\n{\"step\":1,\"ms\":1e308}\n{\"step\":9007199254740992,\"ms\":1e308}\n";
    test_write_file(path, text, sizeof text - 1);
    assert_int_equal(diagnose(dir, false).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_fires_its_rule_alone),
        cmocka_unit_test(every_rule_has_a_run_that_fires_it),
        cmocka_unit_test(rules_without_figures_are_counted),
        cmocka_unit_test(what_lies_beside_is_of_the_same_preset),
        cmocka_unit_test(a_record_that_cannot_be_read_leaves_nothing_to_free),
        cmocka_unit_test(a_run_that_goes_on_was_not_killed),
        cmocka_unit_test(a_slow_down_names_what_the_machine_said),
        cmocka_unit_test(slow_updates_name_what_they_waited_for),
        cmocka_unit_test(growth_is_named_by_its_owner),
        cmocka_unit_test(evidence_is_one_printable_line_and_valid_json),
        cmocka_unit_test(a_run_without_figures_is_silent),
    };
    return cmocka_run_group_tests_name("diagnose", tests, NULL, NULL);
}
