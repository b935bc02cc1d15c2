/* test_engine_memory.c: a run that is refused memory, at any one place, ends with a sentence and the right status,
 * and what can go on goes on with the same bits. Host allocations are refused one by one; the device's by a limit on
 * the address space. Under ASan, nothing is lost on the way. */
#define _DEFAULT_SOURCE
#include <anneal.h>
#include "proof/train_case.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const train_case model = {.B = 1, .T = 4, .C = 8, .L = 1, .H = 1, .V = 5, .dropout = 0.1, .micros = 2};

/* Runs `attempt` with its first allocation refused, then its second, and so on. A refusal is AN_E_NOMEM and a sentence,
 * or, where the memory was for something that can be done without (a text for people, a file of the cache), the same
 * result: `attempt` checks that. Returns how often it could do without. */
static int refused_each(an_status (*attempt)(an_err *err, void *arg), void *arg)
{
    int without = 0;
    for (long n = 1;; n++) {
        an_err err = {0};
        test_refuse_allocation(n);
        const an_status status = attempt(&err, arg);
        const long tried = test_allocations();
        test_refuse_allocation(0);
        if (tried < n) {
            if (status != AN_OK) fail_msg("no allocation was refused, yet: %s", err.text);
            print_message("# %ld allocations refused one by one, %d of them could be done without\n", n - 1, without);
            return without;
        }
        if (status != AN_OK && (status != AN_E_NOMEM || !err.text[0]))
            fail_msg("allocation %ld refused: status %d, \"%s\"", n, status, err.text);
        without += status == AN_OK;
    }
}

typedef struct job {
    an_options o;
    uint64_t hash;
} job;

static an_status train(an_err *err, void *arg)
{
    const job *j = arg;
    uint64_t hash = 0;
    an_status status = case_run(err, &model, &j->o, 2, &hash, NULL);
    if (status == AN_OK && hash != j->hash) fail_msg("a run that succeeded has other bits");
    return status;
}

/* From the opening of the context to the hash of the result: plan, interpreter, two micro-batches, two steps. */
static void training_survives_every_refused_allocation(void **state)
{
    (void)state;
    job j = {.o = {.device = "cpu", .seed = 1, .threads = 2, .cc = "none"}};
    j.hash = case_bits(&model, &j.o, 2, NULL);
    refused_each(train, &j);
    j.o.recompute = "on", j.o.verify = true, j.o.place_apart = true;
    refused_each(train, &j);
}

/* The same where programs come from the cache. Those found nowhere for want of memory may be compiled or interpreted:
 * either a refusal or the same bits, never a half. */
static void loading_from_the_cache_survives_every_refused_allocation(void **state)
{
    (void)state;
    job j = {.o = {.device = "cpu", .seed = 1, .threads = 1, .cache_dir = test_path("cache")}};
    j.hash = case_bits(&model, &j.o, 2, NULL);
    refused_each(train, &j);
}

typedef struct graph_job {
    char cache[512];
} graph_job;

static an_status compile_one(an_err *err, void *arg)
{
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    static int round;
    graph_job *j = arg;
    char cache[600];
    float out[6];
    snprintf(cache, sizeof cache, "%s%d", j->cache, round++); /* always cold */
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1, .cache_dir = cache});
    if (!cx) return an_fail(err, AN_E_NOMEM, "no memory for a context");
    an_tensor *y = an_softmax(an_input(cx, AN_F32, AN_SHAPE(2, 3), data), 1); /* [2,3] */
    an_status status = an_eval(y);
    if (status == AN_OK) status = an_read(y, out, sizeof out);
    if (status == AN_OK) status = an_error_status(cx);
    if (status != AN_OK) an_fail(err, status, "%s", an_error(cx) ? an_error(cx) : "");
    if (status == AN_OK && !(out[0] > 0.0900f && out[0] < 0.0901f)) fail_msg("softmax is %g", (double)out[0]);
    an_close(cx);
    return status;
}

static void compiling_survives_every_refused_allocation(void **state)
{
    (void)state;
    graph_job j;
    snprintf(j.cache, sizeof j.cache, "%s", test_path("cold"));
    refused_each(compile_one, &j);
}

/* A context that was refused memory in the middle of a run goes on as if nothing had been: the failed step changed
 * nothing, and the next attempt has the bits of the undisturbed run. */
static void a_step_that_failed_for_memory_can_be_tried_again(void **state)
{
    (void)state;
    const an_options o = {.device = "cpu", .seed = 1, .threads = 1, .cc = "none"};
    train_case c = model;
    c.micros = 1;
    const uint64_t want = case_bits(&c, &o, 3, NULL);
    for (long n = 1;; n++) {
        an_err err = {0};
        an_ctx *cx;
        an_gpt *m;
        uint64_t hash = 0;
        if (case_open(&err, &c, &o, &cx, &m) != AN_OK) fail_msg("%s", err.text);
        test_refuse_allocation(n);
        an_status status = case_train(&err, cx, m, &c, 0, 1, NULL);
        const bool reached = test_allocations() >= n;
        test_refuse_allocation(0);
        if (reached != (status == AN_E_NOMEM) || (!reached && status != AN_OK))
            fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        an_error_clear(cx);
        an_err_clear(&err);
        if (case_train(&err, cx, m, &c, reached ? 0 : 1, reached ? 3 : 2, NULL) != AN_OK ||
            case_hash(&err, cx, &hash) != AN_OK)
            fail_msg("after allocation %ld was refused: %s", n, err.text);
        if (hash != want) fail_msg("after allocation %ld was refused, three steps have other bits", n);
        case_close(cx, m);
        if (!reached) break;
    }
}

/* ---- the device. In a process of its own, whose address space ends a little above what it has. */

static int train_within(rlim_t more_bytes)
{
    const train_case large = {.B = 8, .T = 128, .C = 256, .L = 2, .H = 4, .V = 500};
    const an_options o = {.device = "cpu", .seed = 1, .threads = 1, .cc = "none"};
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu", &pages) != 1) return 2;
    fclose(f);
    if (case_open(&err, &large, &o, &cx, &m) != AN_OK) return 3;
    const struct rlimit limit = {pages * (rlim_t)sysconf(_SC_PAGESIZE) + more_bytes, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 4;
    an_status status = case_train(&err, cx, m, &large, 0, 1, NULL);
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &none);
    if (status == AN_OK) return 0;
    if (status != AN_E_NOMEM || !strstr(err.text, "memory")) return 5;
    an_error_clear(cx);
    if (case_train(&err, cx, m, &large, 0, 1, NULL) != AN_OK) return 6; /* with the memory there, it goes on */
    case_close(cx, m);
    return 1;
}

static void a_device_without_memory_is_a_sentence_and_the_run_can_go_on_later(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("a sanitizer's shadow needs the address space");
#endif
    int refused = 0;
    for (int mib = 2; mib <= 256; mib *= 2) {
        const pid_t pid = fork();
        if (pid == 0) _exit(train_within((rlim_t)mib << 20));
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) fail_msg("%d MiB more: wait status %d", mib, status);
        refused += WEXITSTATUS(status) == 1;
    }
    assert_in_range(refused, 2, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_survives_every_refused_allocation),
        cmocka_unit_test(loading_from_the_cache_survives_every_refused_allocation),
        cmocka_unit_test(compiling_survives_every_refused_allocation),
        cmocka_unit_test(a_step_that_failed_for_memory_can_be_tried_again),
        cmocka_unit_test(a_device_without_memory_is_a_sentence_and_the_run_can_go_on_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
