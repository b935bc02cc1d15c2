/* test_kernel_cache.c: the kernel cache keeps to its size, removes what was used longest ago, and touches nothing that is
 * not an entry of it. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "device/kernel_cache.h"
#include "lib/test.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *folder(void)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s", test_path("cache"));
    mkdir(path, 0700);
    return path;
}

static void in_folder(const char *name, char out[1100])
{
    snprintf(out, 1100, "%s/%s", folder(), name);
}

static void make(const char *name, size_t bytes, int hours_ago)
{
    char path[1100], *data = calloc(1, bytes + 1);
    in_folder(name, path);
    test_write_file(path, data, bytes);
    free(data);
    const struct timespec then = {.tv_sec = time(NULL) - 3600 * hours_ago};
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0), 0);
}

static bool is_there(const char *name)
{
    struct stat st;
    char path[1100];
    in_folder(name, path);
    return lstat(path, &st) == 0;
}

static void the_least_recently_used_entries_go_first(void **state)
{
    (void)state;
    char path[1100];
    int64_t files;
    make("00000000000000aa.so", 4000, 30);
    make("00000000000000bb.cubin", 4000, 20);
    make("00000000000000cc.so", 4000, 10);
    assert_true(an_cache_trim(folder(), 12000, &files) == 0 && files == 0);
    in_folder("00000000000000aa.so", path);
    assert_int_equal(chmod(path, 0600), 0);
    assert_true(an_cache_ours(path)); /* a use: it is the newest now */
    assert_true(an_cache_trim(folder(), 9000, &files) == 4000 && files == 1);
    assert_true(is_there("00000000000000aa.so") && !is_there("00000000000000bb.cubin"));
    assert_true(is_there("00000000000000cc.so"));
}

static void other_files_stay_and_leftovers_go(void **state)
{
    (void)state;
    int64_t files;
    char path[1100];
    make("thesis.so", 9000, 99);
    make("00000000000000ab.so.mine", 9000, 99);
    make("00000000000000ad.so", 9000, 99);
    make(".00000000000000ae.so.0123456789abcdef.tmp", 10, 2);
    make(".00000000000000af.so.0123456789abcdef.tmp", 10, 0);
    in_folder(".anneal-scratch-0123456789abcdef", path);
    assert_int_equal(mkdir(path, 0700), 0);
    make(".anneal-scratch-0123456789abcdef/0.c", 10, 2);
    const struct timespec then = {.tv_sec = time(NULL) - 7200};
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0), 0);
    an_cache_trim(folder(), 0, &files);
    assert_true(is_there("thesis.so") && is_there("00000000000000ab.so.mine") && !is_there("00000000000000ad.so"));
    assert_true(!is_there(".00000000000000ae.so.0123456789abcdef.tmp"));
    assert_true(is_there(".00000000000000af.so.0123456789abcdef.tmp")); /* its writer may live */
    assert_false(is_there(".anneal-scratch-0123456789abcdef"));
}

static void the_limit_is_one_gib_or_what_the_environment_says(void **state)
{
    (void)state;
    unsetenv("ANNEAL_CACHE_MIB");
    assert_true(an_cache_limit() == (uint64_t)1 << 30);
    setenv("ANNEAL_CACHE_MIB", "64", 1);
    assert_true(an_cache_limit() == (uint64_t)64 << 20);
    setenv("ANNEAL_CACHE_MIB", "much", 1);
    assert_true(an_cache_limit() == (uint64_t)1 << 30);
    unsetenv("ANNEAL_CACHE_MIB");
}

/* What an_cache_find says with these variables; NULL: not set. The folder it names is in `dir`. */
static const char *found_with(const char *cache, const char *xdg, const char *home, char dir[600])
{
    static const char *const name[] = {"ANNEAL_CACHE", "XDG_CACHE_HOME", "HOME"};
    static char why[400];
    const char *value[] = {cache, xdg, home};
    for (size_t i = 0; i < 3; i++)
        if (value[i])
            setenv(name[i], value[i], 1);
        else
            unsetenv(name[i]);
    an_cache_find("cpu", NULL, dir, 600, why, sizeof why);
    return why;
}

static void only_absolute_folders_of_a_user_hold_the_cache(void **state)
{
    (void)state;
    char dir[600], home[1024], want[1100], was[1024];
    snprintf(was, sizeof was, "%s", getenv("ANNEAL_CACHE") ? getenv("ANNEAL_CACHE") : "");
    snprintf(home, sizeof home, "%s", test_path("home"));
    mkdir(home, 0700);
    assert_string_equal(found_with(NULL, NULL, home, dir), "");
    snprintf(want, sizeof want, "%s/", home);
    assert_true(strncmp(dir, want, strlen(want)) == 0);
    assert_string_equal(found_with(NULL, "relative", home, dir), "");
    assert_true(strncmp(dir, want, strlen(want)) == 0);
    static const char *const none[] = {"", "relative", NULL};
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(strstr(found_with(NULL, none[i], none[i], dir), "HOME is no absolute path"));
        assert_string_equal(dir, "");
        assert_int_equal(access("relative", F_OK), -1);
    }
    assert_non_null(strstr(found_with("", NULL, home, dir), "ANNEAL_CACHE is empty"));
    char *far = calloc(1, 1000);
    memset(far, '/', 999);
    assert_non_null(strstr(found_with(far, NULL, home, dir), "too long"));
    assert_string_equal(dir, "");
    assert_non_null(strstr(found_with(NULL, NULL, far, dir), "cpu"));
    assert_string_equal(dir, "");
    free(far);
    if (*was) setenv("ANNEAL_CACHE", was, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_entries_go_first),
        cmocka_unit_test(other_files_stay_and_leftovers_go),
        cmocka_unit_test(only_absolute_folders_of_a_user_hold_the_cache),
        cmocka_unit_test(the_limit_is_one_gib_or_what_the_environment_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
