/* Conversations of others' files, and the data sets made of them. */
#include "io/data/chat_set.h"
#include "io/data/example_chat.h"
#include "io/data/puzzle_set.h"
#include "lib/test.h"
#include <stdio.h>
#include <string.h>

static an_status parse(an_err *err, const char *format, bool lines, const char *text, an_conversations *c)
{
    *c = (an_conversations){0};
    return an_conversations_parse(err, "file", format, lines, text, strlen(text), c);
}

/* "u:Hi|a:Hello|" for each turn, a conversation a line. */
static void check(const char *format, bool lines, const char *text, const char *want)
{
    an_err err = {0};
    an_conversations c;
    an_text got = {0};
    if (parse(&err, format, lines, text, &c) != AN_OK) fail_msg("%s", err.text);
    for (int32_t i = 0; i < c.n; i++) {
        int32_t n;
        const an_turn *turn = an_conversation(&c, i, &n);
        for (int32_t k = 0; k < n; k++) an_text_printf(&got, "%c:%s|", "uas"[turn[k].role], turn[k].text);
        an_text_puts(&got, "\n");
    }
    assert_string_equal(got.data ? got.data : "", want);
    an_text_free(&got);
    an_conversations_free(&c);
}

static void refuses(const char *format, bool lines, const char *text, const char *part)
{
    an_err err = {0};
    an_conversations c;
    if (parse(&err, format, lines, text, &c) == AN_OK) fail_msg("taken: %s", text);
    if (!strstr(err.text, part)) fail_msg("no \"%s\" in: %s", part, err.text);
    an_conversations_free(&c);
}

static void the_four_formats_are_read(void **state)
{
    (void)state;
    check("sharegpt", false,
          "[{\"id\":\"x\",\"conversations\":[{\"from\":\"system\",\"value\":\"be "
          "kind\"},{\"from\":\"human\",\"value\":\" Hi \"},"
          "{\"from\":\"tool\",\"value\":\"?\"},{\"from\":\"gpt\",\"value\":\"Hello\"}]},{\"conversations\":[]}]",
          "s:be kind|u:Hi|a:Hello|\n");
    check("alpaca", false,
          "[{\"instruction\":\"Add\",\"input\":\"1 2\",\"output\":\"3\"},{\"instruction\":\"Say\",\"output\":\"o\"}]",
          "u:Add\n\n1 2|a:3|\nu:Say|a:o|\n");
    check("alpaca", true,
          "{\"instruction\":\"A\",\"instances\":[{\"input\":\"\",\"output\":\"x\"},{\"input\":\"i\",\"output\":\"y\"}]}"
          "\n\n",
          "u:A|a:x|\nu:A\n\ni|a:y|\n");
    check("openassistant", true,
          "{\"messages\":[{\"role\":\"prompter\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"r\"}]}",
          "u:q|a:r|\n");
}

static void yaml_conversations_are_lists_of_sentences(void **state)
{
    (void)state;
    check("chatterbot", false,
          "categories:\n- x\nconversations:\n- - Hi\n  - 'Hello'\n  - Again\n- alone\n- - one\n- - a\n  - b\n",
          "u:Hi|a:Hello|u:Again|\nu:a|a:b|\n");
    refuses("chatterbot", false, "conversations:\n- - Hi\n  - How: are you\n",
            "file:3: a conversation is a list of sentences");
    refuses("chatterbot", false, "conversations:\n- {a: b}\n", "file:2: ");
    refuses("chatterbot", false, "conversations:\n- - &x Hi\n  - *x\n", "aliases are not read");
    refuses("chatterbot", false, "- a\n", "file:1: a mapping");
    refuses("chatterbot", false, "conversations:\n- - \"a\n", "not valid YAML");
}

static void what_is_no_conversation_is_named_with_its_place(void **state)
{
    (void)state;
    refuses("sharegpt", false, "[{\"conversations\":[]},{\"conversation\":[]}]",
            "file: conversation 2: \"conversations\" is missing");
    refuses("sharegpt", true, "{\"conversations\":[]}\n{\"conversations\":[{\"from\":\"human\"}]}",
            "file:2: \"value\" is missing");
    refuses("sharegpt", true, "{\"conversations\":[]}\n{", "file:2: byte");
    refuses("alpaca", false, "[{\"instruction\":\"a\",\"input\":3,\"output\":\"b\"}]",
            "\"input\" is missing or no text");
    refuses("alpaca", false, "[3]", "an object is needed");
    refuses("openassistant", false, "[{\"messages\":[[]]}]", "a turn is no object");
    refuses("other", false, "[]", "sharegpt, alpaca, openassistant and chatterbot");
}

/* ---- data sets */

static const char *build(const char *name, bool assistant_only, int64_t max_length, an_chat_result *result)
{
    an_err err = {0};
    an_conversations list = {0};
    an_tokenizer *t;
    an_chat_tokens c;
    const char *out = test_path(name);
    assert_int_equal(
        an_conversations_parse(&err, "example", "sharegpt", false, an_example_chat, strlen(an_example_chat), &list),
        AN_OK);
    assert_int_equal(list.n, 5);
    assert_int_equal(an_tokenizer_bytes(&err, &t), AN_OK);
    assert_int_equal(an_chat_tokens_add(&err, &t, &c), AN_OK);
    const an_chat_options o = {.out = out,
                               .source = "example",
                               .format = "sharegpt",
                               .tokenizer_name = "bytes",
                               .max_length = max_length,
                               .train_split = 0.8,
                               .assistant_only = assistant_only};
    if (an_chat_build(&err, &o, &list, t, &c, result) != AN_OK) fail_msg("%s", err.text);
    an_tokenizer_free(t);
    an_conversations_free(&list);
    return out;
}

/* Row 0 of the training split, decoded: inputs whole, or the labels that are learned. */
static void read_row(const char *dir, int64_t length, bool labels, char *out)
{
    an_err err = {0};
    an_puzzle_set *s;
    an_tokenizer *t;
    char path[512];
    static int32_t x[512], y[512];
    int32_t id;
    an_text text = {0};
    snprintf(path, sizeof path, "%s/tokenizer", dir);
    if (an_tokenizer_open(&err, path, &t) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_tokenizer_vocab(t), 266);
    if (an_puzzle_set_open(&err, &dir, 1, "train", &s) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_puzzle_set_read(&err, s, 0, x, y, &id), AN_OK);
    for (int64_t i = 0; i < length; i++) {
        if (labels && y[i] >= 0) an_tokenizer_decode(&err, t, &y[i], 1, &text);
        if (!labels) an_tokenizer_decode(&err, t, &x[i], 1, &text);
        if (i + 1 < length && y[i] >= 0) assert_int_equal(y[i], x[i + 1] == 257 ? y[i] : x[i + 1]);
    }
    strcpy(out, text.data ? text.data : "");
    an_text_free(&text);
    an_tokenizer_free(t);
    an_puzzle_set_close(s);
}

static void labels_are_the_tokens_one_place_on(void **state)
{
    (void)state;
    static char text[8192];
    an_chat_result result;
    const char *dir = build("all", false, 512, &result);
    assert_int_equal(result.conversations[0], 4);
    assert_int_equal(result.conversations[1], 1);
    assert_int_equal(result.cut, 0);
    read_row(dir, 512, false, text);
    static const char begins[] = "<|user|>Hello! Who are you?<|enduser|><|sep|><|assistant|>Hello!";
    static const char ends[] = "five conversations.<|endassistant|><|pad|>";
    assert_memory_equal(text, begins, sizeof begins - 1);
    assert_non_null(strstr(text, ends));
    read_row(dir, 512, true, text);
    assert_memory_equal(text, begins + 8, sizeof begins - 9);
    assert_non_null(strstr(text, "<|endassistant|><|endoftext|>"));
}

static void the_user_is_not_learned_when_the_loss_is_of_the_assistant(void **state)
{
    (void)state;
    static char text[8192];
    an_chat_result result;
    const char *dir = build("assistant", true, 512, &result);
    read_row(dir, 512, true, text);
    assert_string_equal(text, "Hello! I am a very small language model. I know five conversations.<|endassistant|>");
    dir = build("cut", false, 20, &result);
    assert_int_equal(result.cut, 5);
    read_row(dir, 20, false, text);
    assert_string_equal(text, "<|user|>Hello! Who are you<|pad|>");
}

static void markers_in_text_are_text(void **state)
{
    (void)state;
    an_err err = {0};
    an_tokenizer *t;
    an_chat_tokens c;
    an_ids ids = {0};
    static const char text[] = "a<|endoftext|><|assistant|>";
    assert_int_equal(an_tokenizer_bytes(&err, &t), AN_OK);
    assert_int_equal(an_chat_tokens_add(&err, &t, &c), AN_OK);
    assert_int_equal(an_chat_turn(&err, t, &c, "text", AN_CHAT_USER, text, sizeof text - 1, false, &ids), AN_OK);
    assert_int_equal(ids.len, sizeof text - 1 + 2);
    for (size_t i = 1; i + 1 < ids.len; i++) assert_in_range(ids.data[i], 0, 255);
    an_ids_free(&ids);
    an_tokenizer_free(t);
}

static an_status build_all(an_err *err, void *arg)
{
    an_conversations list = {0};
    an_tokenizer *t = NULL;
    an_chat_tokens c;
    an_chat_result result;
    an_status status =
        an_conversations_parse(err, "example", "sharegpt", false, an_example_chat, strlen(an_example_chat), &list);
    if (status == AN_OK) status = an_tokenizer_bytes(err, &t);
    if (status == AN_OK) status = an_chat_tokens_add(err, &t, &c);
    const an_chat_options o = {.out = arg,
                               .source = "e",
                               .format = "sharegpt",
                               .tokenizer_name = "bytes",
                               .max_length = 16,
                               .train_split = 0.5};
    if (status == AN_OK) status = an_chat_build(err, &o, &list, t, &c, &result);
    an_tokenizer_free(t);
    an_conversations_free(&list);
    return status;
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    test_refuse_each_allocation(build_all, (void *)(uintptr_t)test_path("memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_four_formats_are_read),
                                       cmocka_unit_test(yaml_conversations_are_lists_of_sentences),
                                       cmocka_unit_test(what_is_no_conversation_is_named_with_its_place),
                                       cmocka_unit_test(labels_are_the_tokens_one_place_on),
                                       cmocka_unit_test(the_user_is_not_learned_when_the_loss_is_of_the_assistant),
                                       cmocka_unit_test(markers_in_text_are_text),
                                       cmocka_unit_test(a_refused_allocation_is_a_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
