/* test_tokenizer.c: characters and byte pairs: encoding, decoding, their JSON. */
#define _DEFAULT_SOURCE
#include "io/text/tokenizer.h"
#include "platform/platform.h"
#include "io/data/token_data.h"
#include "io_files.h"

static an_tokenizer *chars(const char *text)
{
    an_err err = {0};
    an_tokenizer *t;
    if (an_tokenizer_chars(&err, "text", text, strlen(text), &t) != AN_OK) fail_msg("%s", err.text);
    return t;
}

/* "1 2 3": the ids of a text. */
static const char *ids_text(const an_tokenizer *t, const char *text, bool special)
{
    static char out[512];
    an_err err = {0};
    an_ids ids = {0};
    if (an_tokenizer_encode(&err, t, "text", text, strlen(text), special, &ids) != AN_OK) fail_msg("%s", err.text);
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < ids.len && n < sizeof out - 16; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%d", i ? " " : "", (int)ids.data[i]);
    an_ids_free(&ids);
    return out;
}

static void assert_round_trip(const an_tokenizer *t, const char *text, size_t n)
{
    an_err err = {0};
    an_ids ids = {0};
    an_text back = {0};
    if (an_tokenizer_encode(&err, t, "text", text, n, false, &ids) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_tokenizer_decode(&err, t, ids.data, ids.len, &back), AN_OK);
    assert_int_equal(back.len, n);
    if (n > 0) assert_memory_equal(back.data, text, n);
    an_ids_free(&ids);
    an_text_free(&back);
}

static void characters_are_numbered_in_the_order_of_code_points(void **state)
{
    (void)state;
    an_tokenizer *t = chars("b\na\xc3\xa9\xf0\x9f\x98\x80"
                            "ab\xe2\x82\xac");
    assert_int_equal(an_tokenizer_vocab(t), 6);
    assert_string_equal(an_tokenizer_kind(t), "char");
    assert_string_equal(ids_text(t, "\nab\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", false), "0 1 2 3 4 5");
    assert_round_trip(t, "a\xf0\x9f\x98\x80\n\xe2\x82\xac", 9);
    an_tokenizer_free(t);
}

static void an_unknown_character_is_named_with_its_place(void **state)
{
    (void)state;
    an_tokenizer *t = chars("ab\xc3\xa9");
    an_err err = {0};
    an_ids ids = {0};
    assert_int_equal(an_tokenizer_encode(&err, t, "prompt",
                                         "a\xc3\xa9\xc3\xa8"
                                         "b",
                                         6, false, &ids),
                     AN_E_DATA);
    assert_contains(err.text, "prompt: character 2 (byte 3): U+00E8 '\xc3\xa8' is not among the 3 characters");
    err = (an_err){0};
    assert_int_equal(an_tokenizer_encode(&err, t, "prompt", "a\n", 2, false, &ids), AN_E_DATA);
    assert_contains(err.text, "U+000A is not"); /* control characters are not printed */
    an_ids_free(&ids);
    an_tokenizer_free(t);
}

static void text_that_is_not_utf8_is_refused_at_its_byte(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "ab\x80", "ab\xc0\xaf", "ab\xe2\x82", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xf0\x8f\xbf\xbf", "ab\xff"};
    an_tokenizer *known = chars("ab"), *t;
    for (size_t i = 0; i < AN_COUNT(wrong); i++) {
        an_err err = {0};
        an_ids ids = {0};
        assert_int_equal(an_tokenizer_chars(&err, "text", wrong[i], strlen(wrong[i]), &t), AN_E_DATA);
        assert_contains(err.text, "text: byte 2: not UTF-8");
        err = (an_err){0};
        assert_int_equal(an_tokenizer_encode(&err, known, "text", wrong[i], strlen(wrong[i]), false, &ids), AN_E_DATA);
        assert_contains(err.text, "text: byte 2: not UTF-8");
        an_ids_free(&ids);
    }
    an_tokenizer_free(known);
}

static void characters_survive_json(void **state)
{
    (void)state;
    an_err err = {0};
    an_tokenizer *t, *back;
    static const char text[] = "a\0\"\\\xc3\xa9\n";
    assert_int_equal(an_tokenizer_chars(&err, "text", text, sizeof text - 1, &t), AN_OK);
    an_text json = {0};
    assert_int_equal(an_tokenizer_json(&err, t, &json), AN_OK);
    assert_string_equal(json.data, "{\"type\":\"char\",\"code_points\":[0,10,34,92,97,233]}");
    assert_int_equal(an_tokenizer_from_json(&err, "meta", json.data, json.len, &back), AN_OK);
    assert_round_trip(back, text, sizeof text - 1);
    an_text_free(&json);
    an_tokenizer_free(t);
    an_tokenizer_free(back);
}

static void damaged_json_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "{}",
                                        "[]",
                                        "{\"type\":7}",
                                        "{\"type\":\"wordpiece\"}",
                                        "{\"type\":\"char\"}",
                                        "{\"type\":\"char\",\"code_points\":[]}",
                                        "{\"type\":\"char\",\"code_points\":[5,5]}",
                                        "{\"type\":\"char\",\"code_points\":[5,4]}",
                                        "{\"type\":\"char\",\"code_points\":[-1]}",
                                        "{\"type\":\"char\",\"code_points\":[55296]}",
                                        "{\"type\":\"char\",\"code_points\":[1114112]}",
                                        "{\"type\":\"char\",\"code_points\":[\"a\"]}",
                                        "{\"type\":\"bpe\"}",
                                        "{\"type\":\"bpe\",\"tokens\":[\"a\"],\"merges\":[]}"};
    for (size_t i = 0; i < AN_COUNT(wrong); i++) {
        an_err err = {0};
        an_tokenizer *t;
        if (an_tokenizer_from_json(&err, "meta", wrong[i], strlen(wrong[i]), &t) == AN_OK)
            fail_msg("taken: %s", wrong[i]);
        assert_contains(err.text, "meta");
        assert_null(t);
    }
}

/* ---- BPE over a small vocabulary: the 256 bytes in GPT-2's order, the merges below, <|endoftext|> */

static const char *const merges[] = {"h e", "l l",          "he ll", "\xc4\xa0 w", "hell o",
                                     "o r", "\xc4\xa0w or", "a a",   "aa a",       "\xc3\x83 \xc2\xa9"};
enum { HELLO = 256 + 4, SPACE_WOR = 256 + 6, AA = 256 + 7, AAA = 256 + 8, E_ACUTE = 256 + 9, END = 256 + 10 };

static void put_point(FILE *f, unsigned c)
{
    if (c == '"' || c == '\\') fputc('\\', f);
    if (c < 128)
        fputc((int)c, f);
    else
        fprintf(f, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 63));
}

/* The single bytes in GPT-2's order: those that print first. Id of byte b in *id_of. */
static void write_small_vocabulary(const char *encoder, const char *bpe, int id_of[256])
{
    FILE *e = fopen(encoder, "wb"), *m = fopen(bpe, "wb");
    assert_non_null(e);
    assert_non_null(m);
    int id = 0;
    unsigned next = 256;
    fputc('{', e);
    for (int pass = 0; pass < 2; pass++)
        for (unsigned b = 0; b < 256; b++) {
            bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
            if (prints != (pass == 0)) continue;
            fprintf(e, "%s\"", id ? ", " : "");
            put_point(e, prints ? b : next++);
            fprintf(e, "\": %d", id);
            id_of[b] = id++;
        }
    fprintf(m, "#version: 0.2\n");
    for (size_t i = 0; i < AN_COUNT(merges); i++) {
        const char *blank = strchr(merges[i], ' ');
        fprintf(e, ", \"%.*s%s\": %d", (int)(blank - merges[i]), merges[i], blank + 1, id++);
        fprintf(m, "%s\n", merges[i]);
    }
    fprintf(e, ", \"<|endoftext|>\": %d}", id);
    assert_int_equal(id, END);
    fclose(e);
    fclose(m);
}

static int id_of[256];

static an_tokenizer *small_bpe(void)
{
    const char *encoder = test_path("encoder.json"), *bpe = test_path("vocab.bpe");
    write_small_vocabulary(encoder, bpe, id_of);
    an_err err = {0};
    an_tokenizer *t;
    if (an_tokenizer_gpt2(&err, encoder, bpe, &t) != AN_OK) fail_msg("%s", err.text);
    return t;
}

static void bpe_merges_by_rank_and_leftmost_first(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe();
    char expected[128];
    assert_int_equal(an_tokenizer_vocab(t), 267);
    assert_string_equal(an_tokenizer_kind(t), "bpe");
    assert_int_equal(id_of['!'], 0); /* GPT-2's own numbers for these bytes */
    assert_int_equal(id_of['a'], 64);
    assert_int_equal(id_of['\n'], 198);
    assert_int_equal(id_of[' '], 220);
    snprintf(expected, sizeof expected, "%d %d %d %d", HELLO, SPACE_WOR, id_of['l'], id_of['d']);
    assert_string_equal(ids_text(t, "hello world", false), expected);
    /* aaaaa: aa aa a, then "aa a" joins the second pair with the last a. */
    snprintf(expected, sizeof expected, "%d %d", AA, AAA);
    assert_string_equal(ids_text(t, "aaaaa", false), expected);
    snprintf(expected, sizeof expected, "%d", AAA);
    assert_string_equal(ids_text(t, "aaa", false), expected);
    snprintf(expected, sizeof expected, "%d", E_ACUTE);
    assert_string_equal(ids_text(t, "\xc3\xa9", false), expected);
    assert_string_equal(ids_text(t, "", false), "");
    an_tokenizer_free(t);
}

static void bpe_splits_words_as_gpt2_does(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe();
    char expected[256];
    /* "hello" after a blank is its own word with the blank; "  w": one blank stays behind, the other goes with the
     * word. */
    snprintf(expected, sizeof expected, "%d %d %d %d", id_of[' '], SPACE_WOR, id_of[' '], HELLO);
    assert_string_equal(ids_text(t, "  wor hello", false), expected);
    /* 'll is a word of its own: no "he ll". */
    snprintf(expected, sizeof expected, "256 %d %d", id_of['\''], 257);
    assert_string_equal(ids_text(t, "he'll", false), expected);
    /* Letters and digits are apart: "aa" ends before 1. */
    snprintf(expected, sizeof expected, "%d %d %d", AA, id_of['1'], id_of['a']);
    assert_string_equal(ids_text(t, "aa1a", false), expected);
    /* U+0085 is white space: two of them before a letter are two words. */
    snprintf(expected, sizeof expected, "%d %d %d %d %d", id_of[0xC2], id_of[0x85], id_of[0xC2], id_of[0x85],
             id_of['a']);
    assert_string_equal(ids_text(t,
                                 "\xc2\x85\xc2\x85"
                                 "a",
                                 false),
                        expected);
    an_tokenizer_free(t);
}

static void the_end_token_is_special_only_when_asked(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe();
    char expected[64];
    assert_int_equal(an_tokenizer_end(t), END);
    snprintf(expected, sizeof expected, "%d %d %d", AA, END, AA);
    assert_string_equal(ids_text(t, "aa<|endoftext|>aa", true), expected);
    snprintf(expected, sizeof expected, "%d %d", END, END);
    assert_string_equal(ids_text(t, "<|endoftext|><|endoftext|>", true), expected);
    assert_true(strlen(ids_text(t, "<|endoftext|>", false)) > 12); /* many tokens: plain text */
    assert_true(strlen(ids_text(t, "<|endoftext|", true)) > 12);
    assert_round_trip(t, "a<|endoftext|>", 14);
    an_tokenizer_free(t);
}

static void every_utf8_text_comes_back(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe();
    char all[128 + 2 * 128];
    size_t n = 0;
    for (unsigned c = 0; c < 256; c++)
        n +=
            c < 128 ? (all[n] = (char)c, 1) : (all[n] = (char)(0xC0 | c >> 6), all[n + 1] = (char)(0x80 | (c & 63)), 2);
    assert_round_trip(t, all, n);
    assert_round_trip(t, "\xe2\x82\xac \xf0\x9f\x98\x80\xf0\x9f\x98\x80  \t\n\n x", 19);
    an_tokenizer_free(t);
}

static void a_long_word_is_not_quadratic(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe();
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG);
    memset(text, 'a', LONG);
    an_err err = {0};
    an_ids ids = {0};
    double start = an_seconds();
    if (an_tokenizer_encode(&err, t, "text", text, LONG, false, &ids) != AN_OK) fail_msg("%s", err.text);
    double seconds = an_seconds() - start;
    assert_int_equal(ids.len, LONG / 2);
    assert_true(seconds < 60); /* a quadratic algorithm needs hours */
    an_ids_free(&ids);
    free(text);
    an_tokenizer_free(t);
}

static void bpe_survives_json(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe(), *back;
    an_err err = {0};
    an_text json = {0};
    char expected[512];
    assert_int_equal(an_tokenizer_json(&err, t, &json), AN_OK);
    assert_int_equal(an_tokenizer_from_json(&err, "meta", json.data, json.len, &back), AN_OK);
    static const char text[] = "hello world aaaaa\n\xc3\xa9<|endoftext|>";
    snprintf(expected, sizeof expected, "%s", ids_text(t, text, true));
    assert_string_equal(ids_text(back, text, true), expected);
    an_text_free(&json);
    an_tokenizer_free(t);
    an_tokenizer_free(back);
}

static void damaged_vocabularies_are_refused_with_the_line(void **state)
{
    (void)state;
    an_tokenizer *t = small_bpe();
    an_tokenizer_free(t);
    static const struct {
        const char *merges, *part;
    } cases[] = {
        {"#version\nh e\nhe\n", "vocab.bpe: line 3: not two tokens"},
        {"h e\nzz z\n", "vocab.bpe: line 2: not two tokens"},
        {"he ll\n", "merge 0 joins a token that no earlier merge makes"},
        {"h e\nh e\n", "merge 1 is there twice"},
        {"", "vocab.bpe: there is no merge in it"},
        {"#version: 0.2\n", "vocab.bpe: there is no merge in it"},
        {"x y\n", "merge 0 makes a token that is not in the vocabulary"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        assert_int_equal(
            an_tokenizer_gpt2(&err, test_path("encoder.json"), temp_text("vocab.bpe", cases[i].merges), &t), AN_E_IO);
        assert_contains(err.text, cases[i].part);
    }
    static const char *const encoders[] = {"{\"a\": 1}",  "{\"a\": 0, \"b\": 0}", "{\"a\": \"0\"}", "[]",     "{}",
                                           "{\"a\": -1}", "{\"a\": 1.5}",         "{\"a\": 0}",     "nothing"};
    for (size_t i = 0; i < AN_COUNT(encoders); i++) {
        an_err err = {0};
        assert_int_equal(
            an_tokenizer_gpt2(&err, temp_text("wrong.json", encoders[i]), temp_text("vocab.bpe", "a a\n"), &t),
            AN_E_IO);
        assert_contains(err.text, "wrong.json: ");
    }
}

static void ids_outside_of_the_vocabulary_are_refused(void **state)
{
    (void)state;
    an_tokenizer *t = chars("ab");
    an_err err = {0};
    an_text out = {0};
    assert_int_equal(an_tokenizer_decode(&err, t, (int32_t[]){0, 2}, 2, &out), AN_E_DATA);
    assert_contains(err.text, "token 1: id 2 is outside the vocabulary of 2");
    assert_int_equal(an_tokenizer_decode(NULL, t, (int32_t[]){-1}, 1, &out), AN_E_DATA);
    an_text_free(&out);
    an_tokenizer_free(t);
}

/* GPT-2's real files, when AN_GPT2_DIR names a folder with encoder.json and vocab.bpe (and, for the counts that
 * nanoGPT's README gives, AN_SHAKESPEARE the text of tinyshakespeare). */
static void gpt2_ids_are_those_of_openai(void **state)
{
    (void)state;
    const char *dir = getenv("AN_GPT2_DIR"), *shakespeare = getenv("AN_SHAKESPEARE");
    if (!dir) {
        test_skip("AN_GPT2_DIR is not set: it names a folder with GPT-2's encoder.json and vocab.bpe");
    }
    char encoder[512], bpe[512];
    snprintf(encoder, sizeof encoder, "%s/encoder.json", dir);
    snprintf(bpe, sizeof bpe, "%s/vocab.bpe", dir);
    an_err err = {0};
    an_tokenizer *t;
    if (an_tokenizer_gpt2(&err, encoder, bpe, &t) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_tokenizer_vocab(t), 50257);
    assert_int_equal(an_tokenizer_end(t), 50256);
    assert_string_equal(ids_text(t, "Hello world", false), "15496 995");
    assert_string_equal(ids_text(t, "Hello, world!", false), "15496 11 995 0");
    assert_string_equal(ids_text(t, " the", false), "262");
    assert_string_equal(ids_text(t, "\n", false), "198");
    assert_string_equal(ids_text(t, "<|endoftext|>", true), "50256");
    if (shakespeare) {
        an_data *d;
        if (an_data_open(&err, &(an_data_options){.source = shakespeare, .tokenizer = t}, &d) != AN_OK)
            fail_msg("%s", err.text);
        assert_int_equal(an_data_tokens(d, AN_TRAIN), 301966);
        assert_int_equal(an_data_tokens(d, AN_VAL), 36059);
        an_data_close(d);
    }
    an_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_numbered_in_the_order_of_code_points),
        cmocka_unit_test(an_unknown_character_is_named_with_its_place),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_at_its_byte),
        cmocka_unit_test(characters_survive_json),
        cmocka_unit_test(damaged_json_is_refused),
        cmocka_unit_test(bpe_merges_by_rank_and_leftmost_first),
        cmocka_unit_test(bpe_splits_words_as_gpt2_does),
        cmocka_unit_test(the_end_token_is_special_only_when_asked),
        cmocka_unit_test(every_utf8_text_comes_back),
        cmocka_unit_test(a_long_word_is_not_quadratic),
        cmocka_unit_test(bpe_survives_json),
        cmocka_unit_test(damaged_vocabularies_are_refused_with_the_line),
        cmocka_unit_test(ids_outside_of_the_vocabulary_are_refused),
    };
    const struct CMUnitTest large[] = {cmocka_unit_test(gpt2_ids_are_those_of_openai)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("AN_SOAK") || getenv("AN_GPT2_DIR")) failed += cmocka_run_group_tests(large, NULL, NULL);
    return failed;
}
