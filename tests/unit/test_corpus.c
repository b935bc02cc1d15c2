/* test_corpus.c: the built-in text: how it is packed from files, and that it is fit to train on. */
#define _DEFAULT_SOURCE
#include "io/data/corpus.h"
#include "platform/platform.h"
#include "io_files.h"

static void the_corpus_has_every_printable_character_and_is_large_enough_to_train_on(void **state)
{
    (void)state;
    bool seen[128] = {0};
    assert_true(an_corpus_bytes > 400000);
    for (size_t i = 0; i < an_corpus_bytes; i++) {
        if (an_corpus[i] != '\n' && (an_corpus[i] < 32 || an_corpus[i] > 126))
            fail_msg("byte %zu is %d", i, an_corpus[i]);
        seen[an_corpus[i]] = true;
    }
    for (int c = 32; c < 127; c++) /* the vocabulary, and so the demo's plan, is that of every build: 96 */
        if (!seen[c]) fail_msg("'%c' is not in the text", c);
    assert_memory_equal(an_corpus, "==> ", 4);
}

/* Runs the packer from the project's root, where tests are started; returns its exit code. */
static int pack(const char *const *files, char *output, size_t cap)
{
    const char *argv[8] = {"sh", "tools/pack_corpus.sh", test_path("corpus.c")};
    for (int i = 0; i < 4 && files[i]; i++) argv[3 + i] = files[i];
    int code = -2;
    an_err err = {0};
    if (an_spawn(&err, argv, 60, output, cap, &code) != AN_OK) fail_msg("%s", err.text);
    return code;
}

/* The numbers of the array, as bytes. */
static size_t packed_bytes(char *out, size_t cap)
{
    char *text;
    size_t n, count = 0;
    an_err err = {0};
    if (an_file_read(&err, test_path("corpus.c"), 0, &text, &n) != AN_OK) fail_msg("%s", err.text);
    char *p = strchr(text, '{');
    assert_non_null(p);
    for (p++; *p && *p != '}' && count < cap;) {
        char *end;
        long v = strtol(p, &end, 10);
        if (end == p) break;
        out[count++] = (char)v;
        p = end + strspn(end, ",\n");
    }
    assert_int_equal(*p, '}');
    free(text);
    return count;
}

static void a_source_gives_the_sentences_of_its_comments(void **state)
{
    (void)state;
    char output[512], bytes[1024], expected[1024], path[300];
    snprintf(path, sizeof path, "%s",
             temp_text("source.h",
                       "/* A first sentence that is long enough to be worth reading,\n"
                       " * and its second line. */\n"
                       "#define X 1 /* [B,T] */\n"
                       "int f(int); /* What f returns is one more than what it was given, always. */ int g;\n"));
    const char *files[] = {path, NULL};
    if (pack(files, output, sizeof output) != 0) fail_msg("%s", output);
    const size_t n = packed_bytes(bytes, sizeof bytes);
    const int m =
        snprintf(expected, sizeof expected,
                 "==> %s <==\nA first sentence that is long enough to be worth reading,\nand its second line. \n\n"
                 "What f returns is one more than what it was given, always. \n\n\n",
                 path);
    assert_int_equal(n, m);
    assert_memory_equal(bytes, expected, n);
}

static void files_are_packed_in_one_order_without_foreign_bytes(void **state)
{
    (void)state;
    char output[512], bytes[1024], path_a[300], path_b[300], expected[1024];
    snprintf(path_a, sizeof path_a, "%s", temp_text("a.md", "| a | b |\none\ttwo\r\n\xc3\xa9~"));
    snprintf(path_b, sizeof path_b, "%s", temp_text("b.md", "\001x\xff\n"));
    for (int order = 0; order < 2; order++) {
        const char *files[] = {order ? path_a : path_b, order ? path_b : path_a, path_a, NULL};
        int code = pack(files, output, sizeof output);
        if (code != 0) fail_msg("%s", output);
        size_t n = packed_bytes(bytes, sizeof bytes);
        int m = snprintf(expected, sizeof expected, "==> %s <==\nonetwo\n~\n\n==> %s <==\nx\n\n", path_a, path_b);
        assert_int_equal(n, m);
        assert_memory_equal(bytes, expected, n);
    }
    assert_int_equal(temp_count(test_folder(), "corpus.c."), 0); /* no temporary file stays */
}

static void a_file_that_is_not_there_fails_and_keeps_the_old_output(void **state)
{
    (void)state;
    char output[512];
    temp_text("corpus.c", "old {1}");
    const char *files[] = {test_path("absent"), NULL};
    assert_int_equal(pack(files, output, sizeof output), 1);
    assert_contains(output, "absent: no such file");
    char bytes[8];
    assert_int_equal(packed_bytes(bytes, sizeof bytes), 1);
    const char *none[] = {NULL};
    assert_int_equal(pack(none, output, sizeof output), 2);
    assert_contains(output, "usage");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_corpus_has_every_printable_character_and_is_large_enough_to_train_on),
        cmocka_unit_test(a_source_gives_the_sentences_of_its_comments),
        cmocka_unit_test(files_are_packed_in_one_order_without_foreign_bytes),
        cmocka_unit_test(a_file_that_is_not_there_fails_and_keeps_the_old_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
