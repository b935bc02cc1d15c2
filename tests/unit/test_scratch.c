/* test_scratch.c: a folder for temporary files goes with the process that made it, and touches nothing else. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "lib/test.h"
#include "platform/platform.h"
#include "platform/scratch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void make_old(const char *path)
{
    const struct timespec then = {.tv_sec = time(NULL) - 7200};
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0), 0);
}

static void put_file(const char *dir, const char *name)
{
    char path[1300];
    snprintf(path, sizeof path, "%.1199s/%s", dir, name);
    test_write_file(path, "x", 1);
}

static void what_a_killed_process_left_goes_and_what_a_living_one_has_stays(void **state)
{
    (void)state;
    an_scratch living, killed, next;
    char left[1024];
    assert_int_equal(an_scratch_open(NULL, test_folder(), &living), AN_OK);
    assert_int_equal(an_scratch_open(NULL, test_folder(), &killed), AN_OK);
    put_file(living.path, "a");
    put_file(killed.path, ".a.0123456789abcdef.tmp"); /* half of a save */
    snprintf(left, sizeof left, "%s", killed.path);
    close(killed.fd); /* as the system does at the end of a process */
    close(killed.base);
    assert_int_equal(an_scratch_open(NULL, test_folder(), &next), AN_OK);
    assert_true(is_there(left)); /* too young: it might not have been locked yet */
    make_old(left);
    make_old(living.path);
    an_scratch_sweep(test_folder());
    assert_false(is_there(left));
    assert_true(is_there(living.path) && is_there(next.path));
    an_scratch_close(&living);
    an_scratch_close(&next);
    an_scratch_close(&next); /* a second time: nothing */
}

static void a_link_of_that_name_is_not_followed(void **state)
{
    (void)state;
    char own[1100], link[1100], file[1200];
    snprintf(own, sizeof own, "%s", test_path("own"));
    snprintf(link, sizeof link, "%s", test_path(".anneal-scratch-0123456789abcdef"));
    assert_int_equal(mkdir(own, 0700), 0);
    put_file(own, "thesis");
    assert_int_equal(symlink(own, link), 0);
    make_old(own);
    an_scratch_sweep(test_folder());
    snprintf(file, sizeof file, "%s/thesis", own);
    assert_true(is_there(file) && is_there(link));
    unlink(link);
    unlink(file);
    rmdir(own);
}

static void one_that_is_kept_has_its_name_and_takes_no_other_s_place(void **state)
{
    (void)state;
    an_scratch s;
    char kept[1100], file[1200];
    snprintf(kept, sizeof kept, "%s", test_path("kept"));
    snprintf(file, sizeof file, "%s/a", kept);
    assert_int_equal(an_scratch_open(NULL, test_folder(), &s), AN_OK);
    put_file(s.path, "a");
    assert_true(an_scratch_keep(&s, "kept"));
    assert_true(is_there(file) && !is_there(s.path));
    assert_int_equal(an_scratch_open(NULL, test_folder(), &s), AN_OK);
    assert_false(an_scratch_keep(&s, "kept"));
    assert_int_equal(errno, EEXIST);
    an_scratch_close(&s);
    assert_true(is_there(file));
    unlink(file);
    rmdir(kept);
}

static void a_base_that_takes_no_folder_is_a_sentence(void **state)
{
    (void)state;
    an_scratch s;
    an_err err = {0};
    assert_int_equal(an_scratch_open(&err, test_path("absent"), &s), AN_E_IO);
    assert_non_null(strstr(err.text, "absent"));
    an_scratch_close(&s);
}

/* What a file holds: "x" as put_file writes it, "old" as put_old does. */
static void put_old(const char *dir, const char *name)
{
    char path[1300];
    snprintf(path, sizeof path, "%.1199s/%s", dir, name);
    test_write_file(path, "old", 3);
}
static bool is_new(const char *dir, const char *name)
{
    char path[1200];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &st) == 0 && st.st_size == 1;
}

static void a_set_takes_the_place_of_an_older_one_whole_or_not_at_all(void **state)
{
    (void)state;
    static const char *const names[] = {"train/a", "train/set.json", "b"};
    an_scratch s;
    an_err err = {0};
    char base[1024], inner[1200];
    snprintf(base, sizeof base, "%s", test_path("set"));
    snprintf(inner, sizeof inner, "%s/train", base);
    assert_int_equal(an_make_dirs(NULL, inner, 0777), AN_OK);
    for (size_t i = 0; i < AN_COUNT(names); i++) put_old(base, names[i]);
    put_old(base, "train/of the user");
    for (int blocked = 1; blocked >= 0; blocked--) { /* first with a folder in the place of b's successor */
        assert_int_equal(an_scratch_open(NULL, base, &s), AN_OK);
        snprintf(inner, sizeof inner, "%s/train", s.path);
        assert_int_equal(mkdir(inner, 0777), 0);
        for (size_t i = 0; i < AN_COUNT(names); i++) put_file(s.path, names[i]);
        snprintf(inner, sizeof inner, "%s/c", base);
        if (blocked) assert_int_equal(mkdir(inner, 0777), 0);
        put_file(s.path, "c");
        assert_int_equal(an_scratch_deliver(&err, &s, "set.json"), blocked ? AN_E_IO : AN_OK);
        for (size_t i = 0; i < AN_COUNT(names); i++) assert_int_equal(is_new(base, names[i]), !blocked);
        an_scratch_close(&s);
        assert_false(is_there(s.path));
        if (blocked) rmdir(inner);
    }
    assert_false(is_new(base, "train/of the user"));
    assert_true(is_new(base, "c"));
}

static void folders_in_one_go_with_it_and_links_are_not_followed(void **state)
{
    (void)state;
    an_scratch s;
    char path[1200], outside[1024];
    snprintf(outside, sizeof outside, "%s", test_path("outside"));
    assert_int_equal(mkdir(outside, 0777), 0);
    put_file(outside, "mine");
    assert_int_equal(an_scratch_open(NULL, test_folder(), &s), AN_OK);
    snprintf(path, sizeof path, "%s/1/2/3", s.path);
    assert_int_equal(an_make_dirs(NULL, path, 0777), AN_OK);
    put_file(path, "a");
    snprintf(path, sizeof path, "%s/1/link", s.path);
    assert_int_equal(symlink(outside, path), 0);
    snprintf(path, sizeof path, "%s", s.path);
    an_scratch_close(&s);
    assert_false(is_there(path));
    assert_true(is_new(outside, "mine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_killed_process_left_goes_and_what_a_living_one_has_stays),
        cmocka_unit_test(a_link_of_that_name_is_not_followed),
        cmocka_unit_test(one_that_is_kept_has_its_name_and_takes_no_other_s_place),
        cmocka_unit_test(a_base_that_takes_no_folder_is_a_sentence),
        cmocka_unit_test(a_set_takes_the_place_of_an_older_one_whole_or_not_at_all),
        cmocka_unit_test(folders_in_one_go_with_it_and_links_are_not_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
