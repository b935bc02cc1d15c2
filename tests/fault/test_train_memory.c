/* test_train_memory.c: every allocation of what comes beside the updates of a run is refused once: the logbook with
 * its proof of the device, the curve, the price and its advice. A sentence each time, and nothing half written. */
#include "lib/gpt_settings.h"
#include "lib/test.h"
#include "report/loss_curve.h"
#include "tools/estimate.h"
#include "train/loop.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Refuses each allocation in turn. What is no more than a nicety of the engine's may do without: but a failure is
 * AN_E_NOMEM and a sentence. Returns how many allocations ended in one. */
static long refuse_each(an_status (*attempt)(an_err *err, void *arg), void *arg)
{
    long refused = 0;
#ifdef __APPLE__
    test_skip("this system's linker cannot wrap malloc");
#endif
    for (long n = 1;; n++) {
        an_err err = {0};
        test_refuse_allocation(n);
        const an_status status = attempt(&err, arg);
        const bool reached = test_allocations() >= n;
        test_refuse_allocation(0);
        if (status != AN_OK && (!reached || status != AN_E_NOMEM || !err.text[0]))
            fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        if (!reached) return refused;
        refused += status == AN_E_NOMEM;
    }
}

static an_train_config settings(void)
{
    static const char *const all[] = {"block_size=8", "n_layer=1", "n_head=1", "n_embd=8",  "batch_size=2",
                                      "dropout=0",    "workers=0", "cc=none",  "threads=1", "note=a"};
    an_err err = {0};
    an_train_config c;
    assert_int_equal(an_train_config_open(&err, "macbook", &c), AN_OK);
    const an_config keys = an_train_keys(&c);
    for (size_t i = 0; i < AN_COUNT(all); i++)
        if (an_config_argument(&err, &keys, &c, all[i]) != AN_OK) fail_msg("%s", err.text);
    snprintf(c.out, sizeof c.out, "%s", test_folder());
    return c;
}

static an_session *open_run(const an_train_config *c)
{
    an_err err = {0};
    an_session *r;
    if (an_session_open(&err, c, NULL, AN_RUN_DATA, &r) != AN_OK) fail_msg("%s", err.text);
    return r;
}

static an_status write_logbook(an_err *err, void *arg)
{
    const an_session *r = arg;
    an_text notes = {0};
    const an_train_result result = {.loss = 1, .val_loss = NAN};
    an_status status = an_session_begin_logbook(err, r, &notes);
    if (status == AN_OK && notes.failed) status = an_fail_nomem(err, "notes", 0);
    an_text_free(&notes);
    return status != AN_OK ? status : an_train_logbook_end(err, r, "end", &result, NULL);
}

static void the_logbook_and_its_proof(void **state)
{
    (void)state;
    const an_train_config c = settings();
    an_session *r = open_run(&c);
    assert_true(refuse_each(write_logbook, r) > 20);
    an_session_close(r);
    /* Whatever was refused: only whole lines. */
    char line[1 << 14];
    FILE *f = fopen(test_path("logbook.jsonl"), "rb");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) assert_string_equal(line + strlen(line) - 2, "}\n");
    fclose(f);
}

static an_status save_curve(an_err *err, void *arg)
{
    return an_curve_save(err, arg);
}

static void the_curve(void **state)
{
    (void)state;
    FILE *f = fopen(test_path("metrics.jsonl"), "wb");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++) fprintf(f, "{\"step\":%d,\"loss\":%d,\"val_loss\":%d}\n", i, i, i);
    fclose(f);
    assert_true(refuse_each(save_curve, (void *)(uintptr_t)test_folder()) > 5);
}

static an_status advise(an_err *err, void *arg)
{
    an_text text = {0};
    an_status status = an_fit_advice(err, arg, NULL, &(an_limit){.bytes = 200000}, &text);
    if (status == AN_OK && text.failed) status = an_fail_nomem(err, "advice", 0);
    an_text_free(&text);
    return status;
}

static void the_price_and_its_advice(void **state)
{
    (void)state;
    an_train_config c = settings();
    GPT(c)->vocab_size = 65;
    c.batch_size = 1;
    assert_true(refuse_each(advise, &c) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logbook_and_its_proof),
        cmocka_unit_test(the_curve),
        cmocka_unit_test(the_price_and_its_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
