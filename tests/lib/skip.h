/* skip.h: how a test is skipped: with its reason, which tools/run_tests lists and counts. A skip without one is a failed test.
 * A header of its own: programs that need nothing else of tests/lib include it after cmocka.h or test.h. */
#ifndef AN_TEST_SKIP_H
#define AN_TEST_SKIP_H

/* test_skip("no GPU: %s", reason): ends the running test. The reason names what is missing first, and what would bring it. */
#define test_skip(...)                                                                                                 \
    do {                                                                                                               \
        print_message("# skipped: " __VA_ARGS__);                                                                      \
        print_message("\n");                                                                                           \
        skip();                                                                                                        \
    } while (0)

#endif
