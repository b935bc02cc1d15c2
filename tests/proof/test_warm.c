/* test_warm.c: a warm step allocates no memory, and a long run does not grow. */
#include <anneal.h>
#include "platform/platform.h"
#include "proof/train_case.h"

static const train_case small = {.B = 2, .T = 16, .C = 32, .L = 2, .H = 2, .V = 65, .dropout = 0.1, .micros = 2};

static void open_and_warm(const train_case *c, const an_options *o, int steps, an_ctx **cx, an_gpt **m)
{
    an_err err = {0};
    if (case_open(&err, c, o, cx, m) != AN_OK || case_train(&err, *cx, *m, c, 0, steps, NULL) != AN_OK)
        fail_msg("%s", err.text);
}

static void train_on(an_ctx *cx, an_gpt *m, const train_case *c, int from, int steps)
{
    an_err err = {0};
    if (case_train(&err, cx, m, c, from, steps, NULL) != AN_OK) fail_msg("%s", err.text);
}

/* malloc and its like from our objects are counted by tests/lib, requests to the device by the context. */
static void a_warm_step_allocates_nothing(void **state)
{
    (void)state;
#ifdef __APPLE__
    test_skip("this system's linker cannot count calls of malloc");
#endif
    static const char *const cc[] = {NULL, "none"};
    for (int which = 0; which < 2; which++) {
        an_ctx *cx;
        an_gpt *m;
        an_bill before, after;
        test_refuse_allocation(0);
        open_and_warm(&small,
                      &(an_options){.device = "cpu", .threads = 2, .cc = cc[which], .cache_dir = test_path("cache")}, 3,
                      &cx, &m);
        assert_int_equal(an_report(cx, &before), AN_OK);
        assert_true(test_allocations() > 50); /* a cold one does, and they are counted */
        assert_true(before.allocations > 2);
        test_refuse_allocation(0);
        train_on(cx, m, &small, 3, 5);
        const long calls = test_allocations();
        assert_int_equal(an_report(cx, &after), AN_OK);
        if (calls) fail_msg("%ld allocations in 5 warm steps (cc=%s)", calls, cc[which] ? cc[which] : "cc");
        assert_int_equal(after.allocations, before.allocations);
        assert_int_equal(after.allocated_bytes, before.allocated_bytes);
        assert_true(after.plan_cached);
        case_close(cx, m);
    }
}

/* 1,000 steps as a test, 10,000 under AN_SOAK. The first tenth may still touch pages for the first time. */
static void resident_memory_is_flat_over_a_long_run(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("a sanitizer's records grow with every call of free");
#endif
    const train_case tiny = {.B = 1, .T = 8, .C = 8, .L = 1, .H = 1, .V = 11, .dropout = 0.1};
    const int steps = getenv("AN_SOAK") ? 10000 : 1000;
    an_ctx *cx;
    an_gpt *m;
    open_and_warm(&tiny, &(an_options){.device = "cpu", .threads = 2, .cc = "none"}, steps / 10, &cx, &m);
    const uint64_t before = an_rss_bytes();
    train_on(cx, m, &tiny, steps / 10, steps - steps / 10);
    const uint64_t after = an_rss_bytes();
    print_message("# %d steps: %llu KiB resident before, %llu after\n", steps, (unsigned long long)before >> 10,
                  (unsigned long long)after >> 10);
    assert_true(before > 0);
    if (after > before + 128 * 1024)
        fail_msg("%llu bytes more after %d steps", (unsigned long long)(after - before), steps);
    case_close(cx, m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warm_step_allocates_nothing),
        cmocka_unit_test(resident_memory_is_flat_over_a_long_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
