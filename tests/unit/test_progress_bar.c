/* test_progress_bar.c: the line of a long command's progress: its texts, what the probes read of files that others write, and that it is
 * not there without a terminal. */
#include "lib/test.h"

#include "cli/progress_bar.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char an_commit[] = "test"; /* the program's own; libcli asks for it */

static void the_line_says_how_much_and_how_long(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        int64_t done, all;
        double seconds;
        int columns;
        const char *line;
    } cases[] = {
        {"batches", 1200, 5000, 20, 79, "eval      1,200 of 5,000 batches, 24 %, 1:03 left"},
        {"batches", 5000, 5000, 20, 79, "eval      5,000 of 5,000 batches, 100 %, 0 s left"},
        {"batches", 9, 5, 20, 79, "eval      5 of 5 batches, 100 %, 0 s left"},
        {"batches", 0, 5, 3, 79, "eval      0 of 5 batches, 3 s so far"},
        {"batches", -7, -1, 3, 79, "eval      0 batches, 3 s so far"},
        {"characters", 3000000, 0, 90, 79, "eval      3,000,000 characters, 1:30 so far"},
        {"bytes", 1 << 20, 4 << 20, 2, 79, "eval      1 MiB of 4 MiB, 25 %, 6 s left"},
        {"batches", 1200, 5000, 20, 12, "eval      1,"},
        {"batches", 1, INT64_MAX, 1e9, 79, "eval      1 of 9,223,372,036,854,775,807 batches, 0 %, ? left"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        char line[160];
        an_bar_line("eval", cases[i].unit, cases[i].done, cases[i].all, cases[i].seconds, cases[i].columns, line);
        assert_string_equal(line, cases[i].line);
    }
}

static void a_file_that_is_being_saved_is_found_by_its_name(void **state)
{
    (void)state;
    char path[1200], temp[1300];
    int64_t done = -1, all = -1;
    snprintf(path, sizeof path, "%s", test_path("saved"));
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s", test_path("saved/out.pack"));
    static const char *const others[] = {"saved/.out.pack2.abc.tmp", "saved/.out.pack", "saved/out.pack.abc.tmp",
                                         "saved/.xut.pack.abc.tmp"};
    for (size_t i = 0; i < AN_COUNT(others); i++) {
        snprintf(temp, sizeof temp, "%s", test_path(others[i]));
        test_write_file(temp, "0123456789ABCDEF", 16);
    }
    an_bar_probe_file(&(an_bar_file){path, 40}, &done, &all);
    assert_true(done == 0 && all == 40);
    snprintf(temp, sizeof temp, "%s", test_path("saved/.out.pack.0a1b2c.tmp"));
    test_write_file(temp, "0123456789", 10);
    an_bar_probe_file(&(an_bar_file){path, 40}, &done, &all);
    assert_true(done == 10 && all == 40);
    an_bar_probe_file(&(an_bar_file){"/no/such/folder/x", 3}, &done, &all);
    assert_true(done == 0 && all == 3);
    an_bar_probe_file(&(an_bar_file){"x", 3}, &done, &all); /* here */
    assert_true(done == 0);
}

static void updates_of_another_process_are_read_from_its_last_lines(void **state)
{
    (void)state;
    char dir[1200], path[1300];
    int64_t done = -1, all = -1;
    an_text text = {0};
    snprintf(dir, sizeof dir, "%s", test_path("run"));
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    an_bar_probe_run(&(an_bar_run){dir, 0, 50}, &done, &all);
    assert_true(done == 0 && all == 50);
    for (int i = 0; i < 400; i++) an_text_printf(&text, "{\"step\":%d,\"loss\":1.25}\n", i);
    test_write_file(path, text.data, text.len);
    an_bar_probe_run(&(an_bar_run){dir, 0, 500}, &done, &all);
    assert_true(done == 400 && all == 500);
    an_bar_probe_run(&(an_bar_run){dir, 390, 50}, &done, &all);
    assert_true(done == 10);
    test_write_file(path, text.data, text.len - 20); /* a line that is being written */
    an_bar_probe_run(&(an_bar_run){dir, 0, 500}, &done, &all);
    assert_true(done == 399 || done == 400);
    static const char odd[] = "{\"step\":99999999999999999999}\n{\"step\":x\n{\"step\":\0{\"step\":-5";
    test_write_file(path, odd, sizeof odd);
    an_bar_probe_run(&(an_bar_run){dir, 0, 500}, &done, &all);
    assert_true(done >= 0);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes: it is not waited for */
    an_bar_probe_run(&(an_bar_run){dir, 0, 500}, &done, &all);
    assert_true(done == 0);
    an_text_free(&text);
}

static void without_a_terminal_there_is_no_line(void **state)
{
    (void)state;
    const an_args quiet = {.quiet = true}, json = {.json = true}, plain = {.quiet = false};
    assert_null(an_bar_open(&quiet, "eval", "batches", NULL, NULL));
    assert_null(an_bar_open(&json, "eval", "batches", NULL, NULL));
    if (isatty(STDERR_FILENO) != 1) assert_null(an_bar_open(&plain, "eval", "batches", NULL, NULL));
    an_bar_tell(NULL, 1, 2);
    an_bar_hide();
    an_bar_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_says_how_much_and_how_long),
        cmocka_unit_test(a_file_that_is_being_saved_is_found_by_its_name),
        cmocka_unit_test(updates_of_another_process_are_read_from_its_last_lines),
        cmocka_unit_test(without_a_terminal_there_is_no_line),
    };
    return cmocka_run_group_tests_name("progress_bar", tests, NULL, NULL);
}
