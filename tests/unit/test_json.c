/* test_json.c: reading JSON with the byte of damage, and files of JSON lines: appended, cut, resumed. */
#define _DEFAULT_SOURCE
#include "io/formats/json.h"
#include "io/formats/jsonl.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "io_files.h"

static void damage_is_named_with_file_and_byte(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"a\":1,}", "file.json: byte 1"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":\"\\u0000\"}", "not valid JSON"},
        {"{\"a\":\"\xff\"}", "file.json: byte 16"},
        {"{} x", "not valid JSON"},
        {"7", "not valid JSON"},
        {"", "not valid JSON"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        json_t *root;
        assert_int_equal(an_json_parse(&err, "file.json", 10, cases[i].text, strlen(cases[i].text), &root), AN_E_IO);
        assert_null(root);
        assert_contains(err.text, cases[i].part);
        assert_null(strchr(err.text, '\n'));
    }
}

static void names_from_a_file_are_printed_in_one_short_line(void **state)
{
    (void)state;
    char out[AN_QUOTED_BYTES], text[300];
    assert_string_equal(an_quoted("a\nb\x1b[31m\x7f", out), "\"a?b?[31m?\"");
    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 'x', n);
        text[n] = 0;
        assert_true(strlen(an_quoted(text, out)) < AN_QUOTED_BYTES);
    }
    for (size_t shift = 0; shift < 4; shift++) { /* cut between characters, not in one */
        text[0] = 0;
        for (size_t i = 0; i < shift; i++) strcat(text, "x");
        for (int i = 0; i < 40; i++) strcat(text, "\xe2\x82\xac");
        json_t *string = json_string(an_quoted(text, out));
        assert_non_null(string);
        json_decref(string);
    }
}

static const char *content(const char *path)
{
    static char text[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void lines_are_appended_across_openings(void **state)
{
    (void)state;
    const char *path = test_path("lines");
    an_err err = {0};
    an_jsonl j;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(an_jsonl_open(&err, path, &j), AN_OK);
        assert_int_equal(an_jsonl_write(&err, &j, "{\"step\":1}"), AN_OK);
        an_jsonl_close(&j);
    }
    assert_string_equal(content(path), "{\"step\":1}\n{\"step\":1}\n");
    assert_int_equal(an_jsonl_open(&err, path, &j), AN_OK);
    assert_int_equal(an_jsonl_write(&err, &j, "{\n}"), AN_E_INTERNAL);
    an_jsonl_close(&j);
}

static void an_unfinished_last_line_is_cut_off(void **state)
{
    (void)state;
    an_err err = {0};
    an_jsonl j;
    char big[9000];
    memset(big, 'x', sizeof big);
    memcpy(big, "{}\n", 3);
    const char *path = temp_file("half", big, sizeof big); /* the newline is two blocks before the end */
    assert_int_equal(an_jsonl_open(&err, path, &j), AN_OK);
    assert_int_equal(an_jsonl_write(&err, &j, "{\"a\":1}"), AN_OK);
    an_jsonl_close(&j);
    assert_string_equal(content(path), "{}\n{\"a\":1}\n");
    path = temp_text("half", "{\"only\":");
    assert_int_equal(an_jsonl_open(&err, path, &j), AN_OK);
    an_jsonl_close(&j);
    assert_string_equal(content(path), "");
}

static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    const char *path = temp_text("limited", "{\"step\":1}\n");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){25, 25}); /* 14 bytes of the next line fit */
        an_err err = {0};
        an_jsonl j;
        bool ok =
            an_jsonl_open(&err, path, &j) == AN_OK && an_jsonl_write(&err, &j, "{\"step\":2,\"loss\":1.5}") == AN_E_IO;
        _exit(ok && strstr(err.text, "limited: cannot append a line") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(content(path), "{\"step\":1}\n");
}

static void resuming_removes_later_steps_and_nothing_else(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"{\"run\":\"x\"}\n{\"step\":9}\n{\"step\":10}\n{\"note\":1}\n{\"step\":11}\n{\"step\":3}\n",
         "{\"run\":\"x\"}\n{\"step\":9}\n{\"step\":10}\n{\"note\":1}\n{\"step\":3}\n"},
        {"{\"step\":9}\n{\"step\":10}\n", "{\"step\":9}\n{\"step\":10}\n"},
        {"{\"step\":9}\n{\"step\":10", "{\"step\":9}\n"},
        {"{\"step\":9}\ngarbage\n{\"step\":10}\n{\"step\":12}\n", "{\"step\":9}\ngarbage\n{\"step\":10}\n"},
        {"{\"step\":9}\n[1]\n{\"step\":10}\n", "{\"step\":9}\n[1]\n{\"step\":10}\n"},
        {"{\"step\":11}\n", ""},
        {"{\"step\":10.5}\n", ""},
        {"", ""},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        uint64_t removed;
        size_t n = strlen(cases[i].before);
        const char *path = temp_file("metrics", cases[i].before, n);
        assert_int_equal(an_jsonl_drop_after(&err, path, "step", 10, &removed), AN_OK);
        assert_string_equal(content(path), cases[i].after);
        assert_int_equal(removed, n - strlen(cases[i].after));
    }
    assert_int_equal(an_jsonl_drop_after(NULL, test_path("absent"), "step", 10, NULL), AN_OK);
    assert_int_equal(an_jsonl_drop_after(NULL, test_folder(), "step", 10, NULL), AN_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_named_with_file_and_byte),
        cmocka_unit_test(names_from_a_file_are_printed_in_one_short_line),
        cmocka_unit_test(lines_are_appended_across_openings),
        cmocka_unit_test(an_unfinished_last_line_is_cut_off),
        cmocka_unit_test(a_full_disk_leaves_whole_lines),
        cmocka_unit_test(resuming_removes_later_steps_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
