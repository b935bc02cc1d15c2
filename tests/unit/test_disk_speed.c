/* test_disk_speed.c: the measured speed of the medium that data lie on, and the warning about a slow one. */
#include "io/data/disk_speed.h"
#include "platform/platform.h"
#include "io_files.h"

static void a_local_file_is_measured_quickly(void **state)
{
    (void)state;
    enum { BYTES = 24 << 20 };
    char *data = calloc(1, BYTES);
    assert_non_null(data);
    an_storage s, folder;
    const char *path = temp_file("big", data, BYTES);
    free(data);
    an_storage_look(path, &s);
    assert_true(s.mb_s > 0);
    assert_true(s.seconds > 0 && s.seconds < 30); /* asks for 0.3; one block of a slow disk may take longer */
    assert_true(s.mount.folder[0] == '/' || s.mount.type[0] == '\0'); /* not told in a changed root */
    an_storage_look(test_folder(), &folder);                          /* its largest file */
    assert_true(folder.mb_s > 0);
}

static void what_cannot_be_read_is_not_measured(void **state)
{
    (void)state;
    an_storage s;
    char text[AN_STORAGE_TEXT_BYTES];
    an_storage_look(test_path("nothing"), &s);
    assert_true(s.mb_s == 0);
    an_storage_look(temp_text("small", "x"), &s); /* too small: there is no time to measure */
    assert_true(s.mb_s == 0);
    s.mount.network = false;
    assert_false(an_storage_warning(&s, "data", "small", text));
}

static void network_and_slow_mounts_are_warned_of_with_the_figure(void **state)
{
    (void)state;
    char text[AN_STORAGE_TEXT_BYTES];
    an_storage s = {.mount = {.type = "ext4"}, .mb_s = 900};
    assert_false(an_storage_warning(&s, "data", "/d", text));
    s.mb_s = 7.25;
    assert_true(an_storage_warning(&s, "data", "/d", text));
    assert_string_equal(
        text, "/d: data lies on a slow mount (ext4): it is read with 7.2 MB/s; a copy on a local disk is faster");
    s = (an_storage){.mount = {.type = "nfs4", .network = true}, .mb_s = 110};
    assert_true(an_storage_warning(&s, "the kernel cache", "/n", text));
    assert_string_equal(text,
                        "/n: the kernel cache lies on a network mount (nfs4): it is read with 110 MB/s; a copy on "
                        "a local disk is faster");
    s.mb_s = 0;
    assert_true(an_storage_warning(&s, "data", "/n", text));
    assert_contains(text, "its speed was not measured");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_local_file_is_measured_quickly),
        cmocka_unit_test(what_cannot_be_read_is_not_measured),
        cmocka_unit_test(network_and_slow_mounts_are_warned_of_with_the_figure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
