/* world.h: a world of the stand-in for a test of the backend; what the stand-in found wrong in it is the test's
 * failure. */
#ifndef AN_TESTS_METAL_WORLD_H
#define AN_TESTS_METAL_WORLD_H

#include "metal/standin/load.h"

static const standin_api *mac;

static inline void world(const char *settings)
{
    if (!mac) mac = standin_load(""); /* skips the test where it cannot be had */
    const char *why = mac->configure(settings);
    if (why) fail_msg("stand-in: %s", why);
}

static inline void nothing_was_wrong(void)
{
    char leaks[2000];
    for (int i = 0; mac->misuse(i); i++) print_error("stand-in: %s\n", mac->misuse(i));
    assert_int_equal(mac->misuses(), 0);
    if (mac->leaks(leaks, sizeof leaks)) fail_msg("objects are alive at the end:\n%s", leaks);
}

#endif
