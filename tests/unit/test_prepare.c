/* test_prepare.c: texts and folders of texts as files of token ids. */
#include "io/data/prepare_text.h"
#include "platform/platform.h"
#include "io/data/token_data.h"
#include "io_files.h"

static an_err err;

/* The ids of FOLDER/NAME as text, "3 0 1 ". */
static const char *ids_of(const char *folder, const char *name)
{
    static char text[512];
    char path[1100], *data;
    size_t n, used = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (an_file_read(&err, path, 1 << 20, &data, &n) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(n % 2, 0);
    text[0] = 0;
    for (size_t i = 0; i < n && used < sizeof text - 8; i += 2)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d ",
                                 (unsigned char)data[i] | (unsigned char)data[i + 1] << 8);
    free(data);
    return text;
}

static an_prepared prepared(const an_prepare *p)
{
    an_prepared out;
    err = (an_err){0};
    if (an_prepare_text(&err, p, &out) != AN_OK) fail_msg("%s", err.text);
    return out;
}

static void refused(const an_prepare *p, const char *part)
{
    an_prepared out;
    err = (an_err){0};
    if (an_prepare_text(&err, p, &out) == AN_OK) fail_msg("taken, instead of: %s", part);
    assert_contains(err.text, part);
    assert_int_equal(access(test_path("out/train.bin"), F_OK), -1);
}

static void characters_are_split_nine_to_one(void **state)
{
    (void)state;
    const char *out = test_path("chars");
    /* 11 characters: int(11 * 0.9) = 9 for training; a character of two bytes is one */
    const an_prepared r = prepared(&(an_prepare){.source = temp_text("t.txt", "cab\xc3\xa9"
                                                                              "cabcabc"),
                                                 .out = out});
    assert_int_equal(r.characters, 11);
    assert_int_equal(r.tokens[0], 9);
    assert_int_equal(r.tokens[1], 2);
    assert_int_equal(r.vocab, 4);
    assert_string_equal(ids_of(out, "train.bin"), "2 0 1 3 2 0 1 2 0 ");
    assert_string_equal(ids_of(out, "val.bin"), "1 2 ");
    an_data *d;
    if (an_data_open(&err, &(an_data_options){.source = out}, &d) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_data_vocab(d), 4); /* from meta.json: the call does not name it again */
    assert_string_equal(an_tokenizer_kind(an_data_tokenizer(d)), "char");
    an_data_close(d);
    char path[1100];
    snprintf(path, sizeof path, "%s/val.bin", out);
    if (an_data_open(&err, &(an_data_options){.source = path, .whole = true}, &d) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_data_vocab(d), 4); /* a file finds it in its folder too */
    an_data_close(d);
    assert_int_equal(temp_count(out, ".tmp"), 0);
}

static void what_is_no_utf8_is_named_or_replaced(void **state)
{
    (void)state;
    const char *text = temp_text("broken.txt", "ab\xe2\x82"
                                               "c\xff"
                                               "dddddd"),
               *out = test_path("out");
    refused(&(an_prepare){.source = text, .out = out},
            "broken.txt: byte 2: not UTF-8; convert the text, or set errors=replace");
    const an_prepared r = prepared(&(an_prepare){.source = text, .out = test_path("fixed"), .replace = true});
    assert_int_equal(r.replaced, 2);
    assert_int_equal(r.characters, 11);
    assert_string_equal(ids_of(test_path("fixed"), "train.bin"), "0 1 4 2 4 3 3 3 3 ");
}

static void texts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const char *out = test_path("out");
    refused(&(an_prepare){.source = test_path("nothing"), .out = out}, "nothing: No such file");
    refused(&(an_prepare){.source = temp_text("empty.txt", ""), .out = out}, "empty.txt: there is no text in it");
    assert_int_equal(an_make_dirs(&err, test_path("void"), 0777), AN_OK);
    refused(&(an_prepare){.source = test_path("void"), .out = out}, "void: there is no file in this folder");
    const char *file = temp_text("a_file", "x");
    char below[1100];
    snprintf(below, sizeof below, "%s/out", file);
    refused(&(an_prepare){.source = file, .out = below}, "a_file");
}

/* Bytes, two merges, and the end of a text. */
static an_tokenizer *small_bpe(void)
{
    an_text json = {0};
    unsigned next = 256;
    an_tokenizer *t;
    an_text_puts(&json, "{\"type\":\"bpe\",\"tokens\":[");
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        an_text_printf(&json, "%s\"\\u%04x\"", b ? "," : "", prints ? b : next++);
    }
    an_text_puts(&json, ",\"aa\",\"\\u010a\\u010a\",\"<|endoftext|>\"],\"merges\":[97,97,10,10]}");
    if (an_tokenizer_from_json(&err, "own", json.data, json.len, &t) != AN_OK) fail_msg("%s", err.text);
    an_text_free(&json);
    return t;
}

static void a_folder_is_its_files_by_name_with_ends_between(void **state)
{
    (void)state;
    const char *in = test_path("in"), *out = test_path("folder");
    an_tokenizer *t = small_bpe();
    char path[1100];
    static const char *const files[][2] = {{"b.txt", "aaaa"}, {"a/z.txt", "xy"}, {".hidden", "\xff"}, {"c", "aab"}};
    snprintf(path, sizeof path, "%s/a", in);
    assert_int_equal(an_make_dirs(&err, path, 0777), AN_OK);
    for (size_t i = 0; i < AN_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", in, files[i][0]);
        test_write_file(path, files[i][1], strlen(files[i][1]));
    }
    const an_prepared r = prepared(&(an_prepare){.source = in, .out = out, .tokenizer = t});
    assert_int_equal(r.files, 3);
    assert_int_equal(r.characters, 9); /* 8 for training: a/z.txt, b.txt, and "aa" of c */
    assert_string_equal(ids_of(out, "train.bin"), "120 121 258 256 256 258 256 ");
    assert_string_equal(ids_of(out, "val.bin"), "98 258 ");
    an_tokenizer *back;
    if (an_tokenizer_open(&err, out, &back) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_tokenizer_vocab(back), 259);
    assert_int_equal(an_tokenizer_end(back), 258);
    an_tokenizer_free(back);
    an_tokenizer_free(t);
}

/* Texts are encoded in pieces of at least 4 MiB: the ids are those of the whole. */
static void pieces_do_not_show(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe();
    an_text text = {0};
    while (text.len < (9 << 20)) {
        for (size_t i = text.len % 7; i < 40; i++) an_text_puts(&text, "aaab aa'll aaa\n\n\naa ");
        an_text_puts(&text, "x\ny\n"); /* where a piece may end */
    }
    assert_false(text.failed);
    const char *out = test_path("pieces");
    const an_prepared r =
        prepared(&(an_prepare){.source = temp_file("long.txt", text.data, text.len), .out = out, .tokenizer = t});
    an_ids ids = {0};
    const size_t cut = (size_t)((double)text.len * 0.9);
    assert_int_equal(an_tokenizer_encode(&err, t, "long", text.data, cut, false, &ids), AN_OK);
    assert_int_equal(r.tokens[0], ids.len);
    char path[1100];
    snprintf(path, sizeof path, "%s/train.bin", out);
    an_map_file map;
    assert_int_equal(an_file_map(&err, path, &map), AN_OK);
    const uint16_t *words = map.data;
    for (size_t i = 0; i < ids.len; i++)
        if (words[i] != ids.data[i]) fail_msg("token %zu is %d, not %d", i, words[i], (int)ids.data[i]);
    an_file_unmap(&map);
    an_ids_free(&ids);
    an_text_free(&text);
    an_tokenizer_free(t);
}

static an_status prepare_once(an_err *e, void *arg)
{
    an_prepared out;
    return an_prepare_text(e, arg, &out);
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    an_prepare p = {.source = temp_text("t.txt", "ab\xff"
                                                 "cabcabcabcabcab"),
                    .out = test_path("refused"),
                    .replace = true};
    test_refuse_each_allocation(prepare_once, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_split_nine_to_one),
        cmocka_unit_test(what_is_no_utf8_is_named_or_replaced),
        cmocka_unit_test(texts_that_cannot_be_are_refused),
        cmocka_unit_test(a_folder_is_its_files_by_name_with_ends_between),
        cmocka_unit_test(pieces_do_not_show),
        cmocka_unit_test(a_refused_allocation_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
