/* test_interrupt.c: a run that is told to stop, at whichever question, goes on from its checkpoint to the same bits, the same
 * validation losses and the same best one; in an evaluation too, which the resumed run makes first. */
#include "lib/gpt_settings.h"
#include "lib/test.h"
#include "platform/platform.h"
#include "report/loss_curve.h"
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UPDATES = 4, EVERY = 2, EVALUATIONS = UPDATES / EVERY };

typedef struct asked {
    int questions, stop_at; /* 0: never */
} asked;

typedef struct ending {
    an_hash128 hash;
    double best, val[EVALUATIONS + 1];
    int n_val;
    bool interrupted;
    int64_t step;
} ending;

static bool stop(void *arg)
{
    asked *a = arg;
    return ++a->questions == a->stop_at || (a->stop_at > 0 && a->questions > a->stop_at);
}

static an_train_config settings(const char *folder)
{
    static const char *const all[] = {"block_size=16",  "n_layer=1",      "n_head=2",        "n_embd=16",
                                      "batch_size=2",   "eval_iters=3",   "eval_interval=2", "max_iters=4",
                                      "dropout=0.1",    "warmup_iters=1", "cc=none",         "lr_decay_iters=4",
                                      "log_interval=1", "threads=1",      "workers=0"};
    an_err err = {0};
    an_train_config c;
    assert_int_equal(an_train_config_open(&err, "macbook", &c), AN_OK);
    const an_config keys = an_train_keys(&c);
    for (size_t i = 0; i < AN_COUNT(all); i++)
        if (an_config_argument(&err, &keys, &c, all[i]) != AN_OK) fail_msg("%s", err.text);
    snprintf(c.out, sizeof c.out, "%s/%s", test_folder(), folder);
    assert_int_equal(an_make_dirs(&err, c.out, 0777), AN_OK);
    return c;
}

/* Trains, from the run's last checkpoint when `resumed`. */
static ending train(const char *folder, bool resumed, asked *a)
{
    an_err err = {0};
    an_train_config c = settings(folder);
    char path[AN_CONFIG_TEXT_BYTES + 32];
    an_st *st = NULL;
    an_session *r;
    an_train_result result;
    an_curve curve;
    ending e = {0};
    snprintf(path, sizeof path, "%s/last.safetensors", c.out);
    if (resumed && an_st_open(&err, path, &st) != AN_OK) fail_msg("%s", err.text);
    if (an_session_open(&err, &c, st, AN_RUN_DATA, &r) != AN_OK) fail_msg("%s", err.text);
    an_st_close(st);
    const an_train_listener listener = {.stop = stop, .arg = a};
    if (an_train(&err, r, &listener, &result) != AN_OK) fail_msg("%s", err.text);
    e.best = r->best_val;
    e.step = r->step;
    e.interrupted = result.interrupted;
    an_session_close(r);
    if (an_st_open(&err, path, &st) != AN_OK || an_ckpt_hash(&err, st, &e.hash, NULL) != AN_OK)
        fail_msg("%s", err.text);
    an_st_close(st);
    assert_int_equal(an_curve_read(&err, c.out, &curve), AN_OK);
    for (size_t i = 0; i < curve.n; i++)
        if (!isnan(curve.point[i].val_loss) && e.n_val <= EVALUATIONS) e.val[e.n_val++] = curve.point[i].val_loss;
    an_curve_free(&curve);
    return e;
}

static void a_run_stopped_at_any_question_ends_as_if_it_had_not_been(void **state)
{
    (void)state;
    asked never = {0};
    const ending whole = train("whole", false, &never);
    assert_false(whole.interrupted);
    assert_int_equal(whole.n_val, EVALUATIONS);
    assert_true(never.questions > UPDATES + EVALUATIONS); /* it is asked between the batches of an evaluation */
    int in_evaluations = 0;
    for (int k = 1; k <= never.questions; k++) {
        char folder[16];
        asked once = {.stop_at = k}, again = {0};
        snprintf(folder, sizeof folder, "at%d", k);
        const ending cut = train(folder, false, &once);
        assert_true(cut.interrupted);
        assert_int_equal(once.questions, k); /* one is enough */
        in_evaluations += cut.n_val < cut.step / EVERY;
        const ending end = train(folder, true, &again);
        assert_false(end.interrupted);
        assert_int_equal(end.step, UPDATES);
        assert_memory_equal(&end.hash, &whole.hash, sizeof end.hash);
        assert_true(end.best == whole.best);
        assert_int_equal(end.n_val, EVALUATIONS);
        for (int i = 0; i < EVALUATIONS; i++) assert_true(end.val[i] == whole.val[i]);
    }
    assert_true(in_evaluations >= 2 * EVALUATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_stopped_at_any_question_ends_as_if_it_had_not_been),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
