/* test_estimate.c: what a run is said to take is what it takes; what is said to fit fits, and one more does not. */
#include "lib/gpt_settings.h"
#include "lib/test.h"
#include "train/loop.h"
#include "tools/estimate.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void set(an_train_config *c, const char *setting)
{
    const an_config keys = an_train_keys(c);
    an_err err = {0};
    if (an_config_argument(&err, &keys, c, setting) != AN_OK) fail_msg("%s", err.text);
}

/* A model that trains in a blink, with further settings. */
static an_train_config tiny(const char *const *more, size_t n)
{
    static const char *const settings[] = {"block_size=16", "n_layer=2",      "n_head=2",         "n_embd=32",
                                           "batch_size=3",  "eval_iters=2",   "eval_interval=2",  "max_iters=2",
                                           "dropout=0.1",   "warmup_iters=1", "lr_decay_iters=2", "threads=1",
                                           "cc=none"};
    an_err err = {0};
    an_train_config c;
    assert_int_equal(an_train_config_open(&err, "macbook", &c), AN_OK);
    for (size_t i = 0; i < AN_COUNT(settings); i++) set(&c, settings[i]);
    for (size_t i = 0; i < n; i++) set(&c, more[i]);
    snprintf(c.out, sizeof c.out, "%s/run", test_folder());
    return c;
}

static an_session *open_run(const an_train_config *c)
{
    an_err err = {0};
    an_session *r;
    if (an_session_open(&err, c, NULL, AN_RUN_DATA, &r) != AN_OK) fail_msg("%s", err.text);
    return r;
}

/* Trains, evaluates and saves. */
static void train(an_session *r)
{
    an_err err = {0};
    const an_train_listener none = {0};
    an_train_result result;
    if (an_train(&err, r, &none, &result) != AN_OK) fail_msg("%s", err.text);
    assert_true(isfinite(result.val_loss));
}

static void a_runs_price_is_what_it_requests_of_the_device(void **state)
{
    static const char *const cases[][4] = {
        {"threads=2"},
        {"gradient_accumulation_steps=3"},
        {"gradient_accumulation_steps=2", "recompute=on"},
        {"recompute=on", "eval_first=true", "eval_train=true"},
        {"dtype=bfloat16", "dropout=0"},
        {"compile=false"},
        {"bias=true", "batch_size=7", "n_layer=1", "eval_batches=random"},
        {"block_size=64", "batch_size=1", "workers=3"},
    };
    (void)state;
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        size_t n = 0;
        an_estimate p;
        an_bill after;
        while (n < 4 && cases[i][n]) n++;
        const an_train_config c = tiny(cases[i], n);
        an_session *r = open_run(&c);
        if (an_estimate_run(&err, r, &p) != AN_OK) fail_msg("%s", err.text);
        train(r);
        assert_int_equal(an_report(r->cx, &after), AN_OK);
        if (after.allocated_bytes != p.bill.peak_bytes)
            fail_msg("%s: %llu bytes were said, %llu requested", cases[i][0], (unsigned long long)p.bill.peak_bytes,
                     (unsigned long long)after.allocated_bytes);
        assert_int_equal(p.total_bytes, p.bill.peak_bytes + p.data_bytes + p.worker_bytes + p.host_bytes);
        an_session_close(r);
    }
}

static void the_loaders_bytes_are_in_the_price(void **state)
{
    (void)state;
    an_err err = {0};
    const an_train_config c = tiny((const char *const[]){"workers=2", "gradient_accumulation_steps=3"}, 2);
    an_session *r = open_run(&c);
    an_estimate p;
    an_loader *loader;
    const an_sample_range draw = {.split = AN_TRAIN, .samples = 9, .per_step = 9};
    an_task_source data;
    an_source source;
    assert_int_equal(an_estimate_run(&err, r, &p), AN_OK);
    an_task_source_open(&r->cfg, r->data, &draw, &data, &source);
    assert_int_equal(an_loader_open(&err, &source, 0, 2, &loader), AN_OK);
    assert_int_equal(p.worker_bytes, an_loader_bytes(loader));
    assert_int_equal(p.data_bytes, r->data->bytes);
    an_loader_close(loader);
    an_session_close(r);
}

/* The run with `batch` sequences under the budget: does it train? */
static bool fits(const an_train_config *c, int64_t batch, bool recompute, uint64_t budget)
{
    an_err err = {0};
    an_estimate p;
    an_train_config t = *c;
    t.batch_size = batch;
    t.budget = (double)budget / 1073741824.0;
    snprintf(t.recompute, sizeof t.recompute, "%s", recompute ? "on" : "off");
    an_session *r = open_run(&t);
    const an_status status = an_estimate_check(&err, r, &p);
    if (status == AN_OK) {
        train(r);
        an_bill b;
        assert_int_equal(an_report(r->cx, &b), AN_OK);
        assert_true(b.allocated_bytes + p.data_bytes + p.worker_bytes + p.host_bytes <= budget);
    } else {
        if (status != AN_E_BUDGET || !strstr(err.text, "Smallest changes that fit:")) fail_msg("%s", err.text);
    }
    an_session_close(r);
    return status == AN_OK;
}

static void what_is_said_to_fit_runs_and_one_more_does_not_for_ten_budgets(void **state)
{
    (void)state;
    an_train_config c = tiny((const char *const[]){"eval_iters=1", "max_iters=1"}, 2);
    an_session *r = open_run(&c);
    int64_t largest = 0;
    GPT(c)->vocab_size = GPT(r->cfg)->vocab_size;
    for (int i = 0; i < 10; i++) {
        const uint64_t budget = r->data->bytes + (uint64_t)(0.62 * 1048576 * pow(1.36, i)) + (uint64_t)i;
        an_err err = {0};
        an_fit f;
        const bool recompute = i % 2;
        if (an_fit_batch(&err, &c, r->data, &(an_limit){.bytes = budget}, recompute, &f) != AN_OK)
            fail_msg("%s", err.text);
        assert_true(f.batch_size >= 1 && f.total_bytes <= budget && f.next_bytes > budget);
        assert_true(fits(&c, f.batch_size, recompute, budget));
        assert_false(fits(&c, f.batch_size + 1, recompute, budget));
        largest = AN_MAX(largest, f.batch_size);
    }
    assert_true(largest > 20);
    an_session_close(r);
}

/* A tensor has at most 2^31 elements: beyond the batch that reaches it there is nothing to estimate. */
static void the_search_ends_at_the_longest_tensor_that_there_may_be(void **state)
{
    (void)state;
    an_err err = {0};
    an_train_config c;
    an_fit f;
    an_estimate p;
    assert_int_equal(an_train_config_open(&err, "issues", &c), AN_OK);
    set(&c, "cc=none");
    an_session *r = open_run(&c);
    if (an_fit_batch(&err, &r->cfg, r->data, &(an_limit){.bytes = (uint64_t)1 << 50}, false, &f) != AN_OK)
        fail_msg("%s", err.text);
    assert_true(f.batch_size > 1000 && f.total_bytes > 0);
    assert_true(f.next_bytes == 0);
    c = r->cfg;
    c.batch_size = f.batch_size;
    if (an_estimate_settings(&err, &c, r->data, &p) != AN_OK) fail_msg("%s", err.text);
    c.batch_size++;
    assert_int_not_equal(an_estimate_settings(&err, &c, r->data, &p), AN_OK);
    an_session_close(r);
}

static void a_budget_below_one_sequence_fits_nothing(void **state)
{
    (void)state;
    an_err err = {0};
    an_fit f;
    const an_train_config c = tiny((const char *const[]){"vocab_size=65"}, 1);
    assert_int_equal(an_fit_batch(&err, &c, NULL, &(an_limit){.bytes = 1000}, true, &f), AN_OK);
    assert_int_equal(f.batch_size, 0);
    assert_true(f.next_bytes > 1000);
}

/* How often a text is in another. */
static int count(const char *text, const char *what)
{
    int n = 0;
    while ((text = strstr(text, what)) != NULL) n++, text += strlen(what);
    return n;
}

/* Each of the changes that the sentence names is tried. */
static void the_advised_changes_fit(void **state)
{
    static const double budgets[] = {0.2, 0.9, 2.2}; /* MiB, beside the data */
    (void)state;
    bool models = false;
    for (size_t i = 0; i < AN_COUNT(budgets); i++) {
        an_err err = {0};
        an_estimate p;
        an_train_config c = tiny((const char *const[]){"batch_size=64", "recompute=off"}, 2);
        an_session *r = open_run(&c);
        r->cfg.budget = c.budget = (double)r->data->bytes / 1073741824.0 + budgets[i] / 1024;
        assert_int_equal(an_estimate_check(&err, r, &p), AN_E_BUDGET);
        assert_non_null(strstr(err.text, "the budget is"));
        assert_non_null(strstr(err.text, "Largest:"));
        char *at = strstr(err.text, "that fit: ");
        assert_non_null(at);
        int tried = 0;
        for (at += strlen("that fit: "); at; tried++) {
            char change[128], word[64];
            int used = 0;
            const size_t n = strcspn(at, "(");
            an_train_config t = c;
            assert_true(n > 0 && n < sizeof change);
            memcpy(change, at, n);
            change[n] = 0;
            for (const char *w = change; sscanf(w, "%63s%n", word, &used) == 1; w += used) set(&t, word);
            an_session *changed = open_run(&t);
            an_err no = {0};
            if (an_estimate_check(&no, changed, &p) != AN_OK) fail_msg("%s was advised: %s", change, no.text);
            an_session_close(changed);
            at = strstr(at, ", or ");
            if (at) at += strlen(", or ");
        }
        /* one of each kind, in the names that are typed; batch_size=1 may stand beside a number of the model */
        static const char *const once[] = {" block_size=",    " n_embd=",        " n_layer=",          " dtype=",
                                           " weights_dtype=", " moments_dtype=", "accumulation_steps="};
        for (size_t k = 0; k < AN_COUNT(once); k++) assert_true(count(err.text, once[k]) <= 1);
        assert_int_equal(tried, count(err.text, " ("));
        models |= count(err.text, " n_embd=") == 1 && count(err.text, " n_layer=") == 1;
        an_session_close(r);
    }
    assert_true(models);
}

static void automatic_recomputation_looks_at_the_whole_budget(void **state)
{
    (void)state;
    an_err err = {0};
    an_estimate off, on, p;
    an_train_config c = tiny((const char *const[]){"batch_size=40", "vocab_size=0"}, 2);
    an_session *r = open_run(&c);
    GPT(c)->vocab_size = GPT(r->cfg)->vocab_size;
    set(&c, "recompute=off");
    assert_int_equal(an_estimate_settings(&err, &c, r->data, &off), AN_OK);
    set(&c, "recompute=on");
    assert_int_equal(an_estimate_settings(&err, &c, r->data, &on), AN_OK);
    an_session_close(r);
    assert_true(on.total_bytes < off.total_bytes);
    set(&c, "recompute=auto");
    c.budget = (double)(off.total_bytes - 1) / 1073741824.0;
    r = open_run(&c);
    if (an_estimate_check(&err, r, &p) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(p.total_bytes, on.total_bytes);
    an_session_close(r);
    c.budget = (double)off.total_bytes / 1073741824.0;
    r = open_run(&c);
    if (an_estimate_check(&err, r, &p) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(p.total_bytes, off.total_bytes);
    an_session_close(r);
    c.budget = (double)(on.total_bytes - 1) / 1073741824.0; /* refused: what it needs is with recomputation */
    r = open_run(&c);
    an_err_clear(&err);
    assert_int_equal(an_estimate_check(&err, r, &p), AN_E_BUDGET);
    assert_int_equal(p.total_bytes, on.total_bytes);
    assert_non_null(strstr(err.text, "without recomputation)"));
    an_session_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_runs_price_is_what_it_requests_of_the_device),
        cmocka_unit_test(the_loaders_bytes_are_in_the_price),
        cmocka_unit_test(what_is_said_to_fit_runs_and_one_more_does_not_for_ten_budgets),
        cmocka_unit_test(the_search_ends_at_the_longest_tensor_that_there_may_be),
        cmocka_unit_test(a_budget_below_one_sequence_fits_nothing),
        cmocka_unit_test(the_advised_changes_fit),
        cmocka_unit_test(automatic_recomputation_looks_at_the_whole_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
