/* test_tokenizer_files.c: tokenizers of others: tokenizer.json, vocab.bpe, folders. */
#include "platform/platform.h"
#include "io/text/tokenizer.h"
#include "io_files.h"

static an_err err;

/* {token: id} of the 256 bytes, then "aa", "aaaa", and, unless it is listed apart, <|endoftext|>. */
static void put_vocab(an_text *out, bool end)
{
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        an_text_printf(out, "%s\"\\u%04x\":%u", b ? "," : "{", prints ? b : next++, b);
    }
    an_text_puts(out, ",\"aa\":256,\"aaaa\":257");
    an_text_puts(out, end ? ",\"<|endoftext|>\":258}" : "}");
}

static const char good_split[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}";

static const char *tokenizer_json(const char *split, const char *normalizer, const char *merges, const char *type)
{
    an_text json = {0};
    an_text_puts(
        &json, "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":258,\"content\":\"<|endoftext|>\",\"special\":true}],");
    an_text_printf(&json, "\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{\"type\":\"%s\",\"merges\":%s,\"vocab\":",
                   normalizer, split, type, merges);
    put_vocab(&json, false);
    an_text_puts(&json, "}}");
    const char *path = temp_file("tokenizer.json", json.data, json.len);
    an_text_free(&json);
    return path;
}

static void check_tokenizer(const char *path)
{
    an_tokenizer *t;
    an_ids ids = {0};
    err = (an_err){0};
    if (an_tokenizer_open(&err, path, &t) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_tokenizer_vocab(t), 259);
    assert_int_equal(an_tokenizer_end(t), 258);
    assert_int_equal(an_tokenizer_encode(&err, t, "x", "aaaaaa<|endoftext|>b", 20, true, &ids), AN_OK);
    assert_int_equal(ids.len, 4);
    assert_int_equal(ids.data[0], 257);
    assert_int_equal(ids.data[1], 256);
    assert_int_equal(ids.data[2], 258);
    assert_int_equal(ids.data[3], 'b');
    an_ids_free(&ids);
    an_tokenizer_free(t);
}

static void hugging_faces_tokenizer_json_is_read(void **state)
{
    (void)state;
    check_tokenizer(tokenizer_json(good_split, "null", "[\"a a\",\"aa aa\"]", "BPE"));
    check_tokenizer(tokenizer_json(good_split, "null", "[[\"a\",\"a\"],[\"aa\",\"aa\"]]", "BPE")); /* newer files */
}

static void what_splits_or_changes_texts_in_another_way_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *split, *normalizer, *merges, *type, *part;
    } cases[] = {
        {good_split, "null", "[]", "Unigram", "tokenizer.json: its model is not BPE; a byte-level BPE"},
        {"{\"type\":\"Whitespace\"}", "null", "[]", "BPE", "it splits words in another way"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "null", "[]", "BPE", "it splits words in another way"},
        {"{\"type\":\"ByteLevel\",\"use_regex\":false}", "null", "[]", "BPE", "it splits words in another way"},
        {"null", "null", "[]", "BPE", "it splits words in another way"},
        {good_split, "{\"type\":\"NFC\"}", "[]", "BPE", "it changes texts first"},
        {good_split, "null", "7", "BPE", "it has no vocab and merges"},
        {good_split, "null", "[\"a a\",\"aaaa\"]", "BPE", "merge 1: not two tokens"},
        {good_split, "null", "[[\"a\"]]", "BPE", "merge 0: not two tokens"},
        {good_split, "null", "[[\"a\",\"zz\"]]", "BPE", "merge 0: not two tokens"},
        {good_split, "null", "[7]", "BPE", "merge 0: not two tokens"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_tokenizer *t;
        err = (an_err){0};
        const char *path = tokenizer_json(cases[i].split, cases[i].normalizer, cases[i].merges, cases[i].type);
        if (an_tokenizer_open(&err, path, &t) == AN_OK) fail_msg("taken: case %zu", i);
        assert_contains(err.text, cases[i].part);
        assert_null(t);
    }
}

static void a_folder_has_one_of_the_known_files(void **state)
{
    (void)state;
    an_text vocab = {0};
    put_vocab(&vocab, true);
    static const char merges[] = "#version: 0.2\na a\naa aa\n";
    static const char *const names[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};
    for (size_t i = 0; i < AN_COUNT(names); i++) {
        char folder[32], path[64];
        snprintf(folder, sizeof folder, "folder%zu", i);
        const char *dir = test_path(folder);
        an_tokenizer *t;
        assert_int_equal(an_make_dirs(&err, dir, 0777), AN_OK);
        snprintf(path, sizeof path, "%s/%s", folder, names[i][0]);
        temp_file(path, vocab.data, vocab.len);
        err = (an_err){0};
        assert_int_equal(an_tokenizer_open(&err, dir, &t), AN_E_IO);
        assert_contains(err.text, "no tokenizer is in this folder");
        snprintf(path, sizeof path, "%s/%s", folder, names[i][1]);
        temp_text(path, merges);
        check_tokenizer(dir);
    }
    an_text_free(&vocab);
    an_tokenizer *t;
    err = (an_err){0};
    assert_int_equal(an_tokenizer_open(&err, temp_text("other.json", "{\"a\": 1}"), &t), AN_E_IO);
    assert_contains(err.text, "other.json: no tokenizer is in it; name a meta.json, a tokenizer.json");
    err = (an_err){0};
    assert_int_equal(an_tokenizer_open(&err, temp_text("meta.json", "{\"tokenizer\": 5}"), &t), AN_E_IO);
    assert_contains(err.text, "meta.json: no tokenizer is in it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hugging_faces_tokenizer_json_is_read),
        cmocka_unit_test(what_splits_or_changes_texts_in_another_way_is_refused),
        cmocka_unit_test(a_folder_has_one_of_the_known_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
