/* prepare_chat.c: anneal prepare chat, example-chat: data sets of conversations. */
#include "cli/cmd_prepare.h"
#include "cli/progress_bar.h"
#include "io/data/chat_set.h"
#include "io/data/example_chat.h"
#include <signal.h>
#include <string.h>

typedef struct values {
    char input_file[AN_CONFIG_TEXT_BYTES], out[AN_CONFIG_TEXT_BYTES], output_dir[AN_CONFIG_TEXT_BYTES];
    char format[AN_CONFIG_TEXT_BYTES], tokenizer[AN_CONFIG_TEXT_BYTES], mirror[AN_CONFIG_TEXT_BYTES];
    char loss[AN_CONFIG_TEXT_BYTES];
    int64_t max_length, seed, subsample_size;
    double train_split;
    bool system;
} values;

#define AT(name) offsetof(values, name)
#define TOKENIZER_KEYS(doc)                                                                                            \
    {"tokenizer", AN_CONFIG_TEXT, AT(tokenizer), "gpt2", 0, 0, NULL, doc},                                             \
    {                                                                                                                  \
        "mirror", AN_CONFIG_TEXT, AT(mirror), "", 0, 0, NULL,                                                          \
            "address of a folder with encoder.json and vocab.bpe, in place of their usual one"                         \
    }
#define COMMON_KEYS(length, split)                                                                                     \
    {"max_length",                                                                                                     \
     AN_CONFIG_INT,                                                                                                    \
     AT(max_length),                                                                                                   \
     length,                                                                                                           \
     2,                                                                                                                \
     1 << 20,                                                                                                          \
     NULL,                                                                                                             \
     "tokens of a conversation; longer ones are cut at their end"},                                                    \
        {"train_split", AN_CONFIG_FLOAT, AT(train_split), split, 0, 1, NULL, "share for training: the first ones"},    \
        {"seed", AN_CONFIG_INT, AT(seed), "42", 0, 1e15, NULL, "of the choice with subsample_size"},                   \
    {                                                                                                                  \
        "loss", AN_CONFIG_TEXT, AT(loss), "all", 0, 0, "all|assistant",                                                \
            "what is learned: every token, or the assistant's words"                                                   \
    }

static const an_config_field chat_fields[] = {
    {"input_file", AN_CONFIG_TEXT, AT(input_file), "", 0, 0, NULL, "FILE or FILE,FILE of conversations"},
    {"out", AN_CONFIG_TEXT, AT(out), "", 0, 0, NULL, "folder for the data set; empty: data/chat-dataset"},
    {"output_dir", AN_CONFIG_TEXT, AT(output_dir), "", 0, 0, NULL, "the same"},
    {"format", AN_CONFIG_TEXT, AT(format), "sharegpt", 0, 0, "sharegpt|alpaca|openassistant|chatterbot", "of the file"},
    TOKENIZER_KEYS(
        "gpt2, downloaded to data/gpt2 unless it is there; bytes, which needs no file; or a tokenizer.json, or "
        "a folder"),
    {"subsample_size", AN_CONFIG_INT, AT(subsample_size), "0", 0, 1e9, NULL,
     "so many conversations at random; 0: all in their order"},
    {"system", AN_CONFIG_BOOL, AT(system), "false", 0, 0, NULL, "keep system turns"},
    COMMON_KEYS("2048", "0.95"),
};
const an_config an_prepare_chat_keys = {.fields = chat_fields, .n = AN_COUNT(chat_fields)};

static const an_config_field example_fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "", 0, 0, NULL, "folder for the data set; empty: data/example-chat-dataset"},
    {"output_dir", AN_CONFIG_TEXT, AT(output_dir), "", 0, 0, NULL, "the same"},
    TOKENIZER_KEYS("as of prepare chat; where GPT-2's cannot be downloaded, bytes are taken, and that is said"),
    COMMON_KEYS("512", "0.8"),
};
const an_config an_prepare_example_chat_keys = {.fields = example_fields, .n = AN_COUNT(example_fields)};

static const char gpt2_folder[] = "data/gpt2";

/* With `instead`, the tokenizer of bytes is used in place of GPT-2's where that cannot be had; v->tokenizer says which
 * it is. */
static an_status find_tokenizer(an_err *err, values *v, bool quiet, bool instead, an_tokenizer **out)
{
    an_err why = {0};
    if (strcmp(v->tokenizer, "bytes") == 0) return an_tokenizer_bytes(err, out);
    if (strcmp(v->tokenizer, "gpt2") != 0) return an_tokenizer_open(err, v->tokenizer, out);
    if (!instead) return an_prepare_gpt2(err, gpt2_folder, v->mirror, quiet, out);
    if (an_prepare_gpt2(&why, gpt2_folder, v->mirror, quiet, out) == AN_OK) return AN_OK;
    an_say("%s", why.text);
    an_say("the tokenizer of bytes is used in place of GPT-2's; tokenizer=FOLDER names another");
    snprintf(v->tokenizer, sizeof v->tokenizer, "bytes");
    return an_tokenizer_bytes(err, out);
}

static an_status print_result(an_err *err, const char *out, int32_t vocab, const an_chat_result *r, bool json)
{
    static const char *const splits[] = {"train", "test"};
    an_text line = {0};
    if (json) {
        an_text_puts(&line, "{\"out\":");
        an_json_put(&line, out);
        an_text_printf(&line, ",\"vocab_size\":%d", (int)vocab);
        for (int k = 0; k < 2; k++)
            an_text_printf(&line, ",\"%s\":%lld,\"%s_tokens\":%lld", splits[k], (long long)r->conversations[k],
                           splits[k], (long long)r->tokens[k]);
        an_text_printf(&line, ",\"cut\":%lld}", (long long)r->cut);
        return an_print_line(err, &line);
    }
    an_text_printf(&line, "Vocabulary size: %d\n", (int)vocab);
    for (int k = 0; k < 2; k++)
        an_text_printf(&line, "%s: %lld conversations, %lld tokens\n", splits[k], (long long)r->conversations[k],
                       (long long)r->tokens[k]);
    if (r->cut > 0) an_text_printf(&line, "%lld conversations were cut at max_length\n", (long long)r->cut);
    an_text_printf(&line, "Dataset saved to %s", out);
    return an_print_line(err, &line);
}

/* Writes the data set of the conversations and prints what it is. Frees `list` in every case. */
static an_status build(an_err *err, values *v, const an_args *args, an_conversations *list, const char *source,
                       const char *out, bool instead)
{
    an_tokenizer *t = NULL;
    an_chat_tokens c;
    an_chat_result result;
    an_prepare_folder made = {.out = out};
    int32_t vocab = 0;
    an_status status = find_tokenizer(err, v, args->quiet, instead, &t);
    if (status == AN_OK) status = an_chat_tokens_add(err, &t, &c);
    if (status == AN_OK) status = an_prepare_begin(err, out, &made);
    an_bar *bar = an_bar_open(args, "prepare", "conversations", NULL, NULL);
    const an_chat_options o = {.out = made.scratch.path,
                               .source = source,
                               .format = v->format,
                               .tokenizer_name = v->tokenizer,
                               .max_length = v->max_length,
                               .train_split = v->train_split,
                               .subsample = v->subsample_size,
                               .assistant_only = strcmp(v->loss, "assistant") == 0,
                               .system = v->system,
                               .seed = (uint64_t)v->seed,
                               .tell = an_bar_tell,
                               .tell_arg = bar};
    if (status == AN_OK) status = an_chat_build(err, &o, list, t, &c, &result);
    an_bar_close(bar);
    status = an_prepare_end(err, &made, status);
    if (status == AN_OK) vocab = an_tokenizer_vocab(t);
    an_tokenizer_free(t);
    an_conversations_free(list);
    return status == AN_OK ? print_result(err, out, vocab, &result, args->json) : status;
}

/* FILE,FILE */
static an_status read_files(an_err *err, const char *names, const char *format, an_conversations *list)
{
    for (const char *at = names; *at;) {
        char path[AN_CONFIG_TEXT_BYTES];
        const size_t n = strcspn(at, ",");
        snprintf(path, sizeof path, "%.*s", (int)n, at);
        if (n > 0) AN_TRY(an_conversations_read(err, path, format, list));
        at += n + (at[n] == ',');
    }
    return AN_OK;
}

an_status an_cmd_prepare_chat(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    values v = {0};
    an_conversations list = {0};
    AN_TRY(an_config_defaults(err, &an_prepare_chat_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_prepare_chat_keys, &v}, 1));
    if (!v.input_file[0])
        return an_fail(err, AN_E_USAGE, "prepare chat: name the conversations with --input-file FILE");
    signal(SIGXFSZ, SIG_IGN);
    an_status status = read_files(err, v.input_file, v.format, &list);
    if (status != AN_OK) {
        an_conversations_free(&list);
        return status;
    }
    if (!args->json) an_say("Loaded %d conversations from %s", (int)list.n, v.input_file);
    if (list.dropped + list.dropped_turns > 0)
        an_say("left out: %lld turns that are empty or of unknown roles, %lld conversations without a question and an "
               "answer",
               (long long)list.dropped_turns, (long long)list.dropped);
    return build(err, &v, args, &list, v.input_file, an_prepare_out(v.out, v.output_dir, "data/chat-dataset"), false);
}

an_status an_cmd_prepare_example_chat(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    values v = {.format = "sharegpt"};
    an_conversations list = {0};
    AN_TRY(an_config_defaults(err, &an_prepare_example_chat_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_prepare_example_chat_keys, &v}, 1));
    signal(SIGXFSZ, SIG_IGN);
    an_status status = an_conversations_parse(err, "the built-in conversations", v.format, false, an_example_chat,
                                              strlen(an_example_chat), &list);
    if (status != AN_OK) {
        an_conversations_free(&list);
        return status;
    }
    return build(err, &v, args, &list, "the built-in conversations",
                 an_prepare_out(v.out, v.output_dir, "data/example-chat-dataset"), true);
}
