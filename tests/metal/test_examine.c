/* test_examine.c: what `anneal selftest --device metal` asks a macOS before anything else: every method's type, a first
 * kernel. A stand-in that differs in any of them is named, and is sent nothing that would be undefined. */
#define _XOPEN_SOURCE 700 /* setenv */
#include "lib/test.h"
#include "metal/standin/load.h"

#include "base/base.h"

#include <anneal_tools.h>

static const standin_api *mac;

typedef struct heard {
    int lines, methods, faults;
    char first[512]; /* fault */
} heard;

static void hear(void *user, const char *what, const char *found, bool fault)
{
    heard *h = user;
    h->lines++;
    h->methods += what[0] == '-' || what[0] == '+';
    if (fault && !h->faults++) snprintf(h->first, sizeof h->first, "%s: %s", what, found);
}

/* Nothing that a stand-in does may make the asking itself wrong. */
static heard examine(const char *settings)
{
    heard h = {0};
    char leaks[2000];
    if (!mac) mac = standin_load("");
    const char *why = mac->configure(settings);
    if (why) fail_msg("stand-in: %s", why);
    assert_true(an_device_examine("metal", hear, &h));
    for (int i = 0; mac->misuse(i); i++) print_error("with %s: %s\n", settings, mac->misuse(i));
    assert_int_equal(mac->misuses(), 0);
    if (mac->leaks(leaks, sizeof leaks)) fail_msg("with %s objects are alive at the end:\n%s", settings, leaks);
    return h;
}

static void machines_as_apple_makes_them_have_no_fault(void **state)
{
    (void)state;
    static const char *const worlds[] = {"gpu=apple7", "gpu=apple10,macos=26", "gpu=apple8,macos=13,when=early",
                                         "gpu=paravirtual,macos=14,when=random"};
    for (size_t i = 0; i < AN_COUNT(worlds); i++) {
        const heard h = examine(worlds[i]);
        if (h.faults) fail_msg("%s: %s", worlds[i], h.first);
        assert_true(h.methods > 35);
    }
}

/* The N-th type that the runtime gives is another one, for every N. */
static void every_method_of_another_type_is_named(void **state)
{
    (void)state;
    const int methods = examine("gpu=apple7").methods;
    for (int n = 1; n <= methods; n++) {
        char settings[80];
        snprintf(settings, sizeof settings, "gpu=apple7,fault=encoding:%d", n);
        const heard h = examine(settings);
        if (h.faults != 1) fail_msg("with %s there are %d faults", settings, h.faults);
        if (!strstr(h.first, "was written as")) fail_msg("with %s: %s", settings, h.first);
    }
}

static void what_a_driver_refuses_or_computes_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *words;
    } cases[] = {
        {"fault=queue:1", "MTLCommandQueue: there is no object"},
        {"fault=buffer:1", "MTLBuffer: there is no object"},
        {"fault=library:1", "Apple's compiler refuses a first kernel"},
        {"fault=pipeline:1", "no pipeline for a first kernel"},
        {"fault=commands:1", "MTLCommandBuffer: there is no object"},
        {"fault=encoder:1", "MTLCommandEncoder: there is no object"},
        {"fault=commit:1:nothing:page", "the command buffer failed"},
        {"edit=3u * i>4u * i", "31 of 32 numbers are wrong"},
        {"gpu=none", "MTLDevice: there is no object"},
        {"macos=12.6", "macOS 12.6 is too old"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        const heard h = examine(cases[i].settings);
        if (!strstr(h.first, cases[i].words))
            fail_msg("with %s: \"%s\" does not say \"%s\"", cases[i].settings, h.first, cases[i].words);
    }
}

static void devices_without_a_driver_have_nothing_to_ask(void **state)
{
    (void)state;
    heard h = {0};
    assert_false(an_device_examine("cpu", hear, &h));
    assert_false(an_device_examine("no such device", hear, &h));
    assert_int_equal(h.lines, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_as_apple_makes_them_have_no_fault),
        cmocka_unit_test(every_method_of_another_type_is_named),
        cmocka_unit_test(what_a_driver_refuses_or_computes_wrong_is_named),
        cmocka_unit_test(devices_without_a_driver_have_nothing_to_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
