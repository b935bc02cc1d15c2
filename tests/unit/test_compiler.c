/* test_compiler.c: finding the C compiler of fused CPU kernels (device/cpu/compile.c). */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "lib/test.h"

#include "device/cpu/cpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_script(const char *path, int code)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\nexit %d\n", code);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

/* macOS without the command line tools has /usr/bin/cc all the same; running it opens a window. */
static void a_compiler_that_only_offers_to_install_one_is_recognised(void **state)
{
    (void)state;
    char dir[] = "/tmp/anneal-compiler.XXXXXX", cc[64], ask[64], deeper[64];
    assert_non_null(mkdtemp(dir));
    snprintf(cc, sizeof cc, "%s/cc", dir);
    snprintf(ask, sizeof ask, "%s/xcode-select", dir);
    snprintf(deeper, sizeof deeper, "%s/llvm/cc", dir);
    assert_false(an_compiler_is_stub(cc, ask)); /* another system: there is no xcode-select */
    write_script(ask, 2);
    assert_true(an_compiler_is_stub(cc, ask));
    assert_false(an_compiler_is_stub(deeper, ask));
    assert_false(an_compiler_is_stub("/opt/homebrew/bin/gcc-14", ask));
    write_script(ask, 0);
    assert_false(an_compiler_is_stub(cc, ask));
    unlink(ask);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_compiler_that_only_offers_to_install_one_is_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
