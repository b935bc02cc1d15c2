/* chat_tokens.c: adding the special tokens, encoding turns, and Hugging Face's files. See chat_tokens.h. */
#include "io/text/chat_tokens.h"
#include "io/text/tokenizer_impl.h"
#include "platform/platform.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ADDED = 9, PATH_BYTES = 1024 };
static const char *const added[N_ADDED] = {"<|pad|>",          "<|startoftext|>", "<|sep|>",
                                           "<|user|>",         "<|enduser|>",     "<|assistant|>",
                                           "<|endassistant|>", "<|system|>",      "<|endsystem|>"};

/* The last piece of these bytes, -1: there is none. */
static int32_t find_piece(const an_tokenizer *t, const char *name)
{
    const size_t n = strlen(name);
    for (int32_t id = t->vocab - 1; id >= 0; id--)
        if (t->start[id + 1] - t->start[id] == n && memcmp(t->bytes + t->start[id], name, n) == 0) return id;
    return -1;
}

an_status an_chat_tokens_find(an_err *err, const char *where, const an_tokenizer *t, an_chat_tokens *out)
{
    int32_t id[N_ADDED];
    for (int i = 0; i < N_ADDED; i++)
        if ((id[i] = find_piece(t, added[i])) < 0)
            return an_fail(err, AN_E_DATA,
                           "%s: its tokenizer has no token %s; anneal prepare chat makes data sets of conversations",
                           where, added[i]);
    if (t->end < 0) return an_fail(err, AN_E_DATA, "%s: its tokenizer has no token <|endoftext|>", where);
    *out = (an_chat_tokens){.pad = id[0],
                            .begin = id[1],
                            .end = t->end,
                            .sep = id[2],
                            .open = {id[3], id[5], id[7]},
                            .close = {id[4], id[6], id[8]}};
    return AN_OK;
}

static an_status extend(an_err *err, const an_tokenizer *t, const char *const *names, int n, an_tokenizer **out)
{
    an_text json = {0};
    json_t *root = NULL;
    *out = NULL;
    an_status status = an_tokenizer_json(err, t, &json);
    if (status == AN_OK) status = an_json_parse(err, "a tokenizer", 0, json.data, json.len, &root);
    json_t *tokens = json_object_get(root, "tokens");
    for (int i = 0; status == AN_OK && i < n; i++)
        if (json_array_append_new(tokens, json_string(names[i])) != 0)
            status = an_fail_nomem(err, "a tokenizer", json.len);
    if (status == AN_OK) status = an_bpe_build(err, "a tokenizer", tokens, json_object_get(root, "merges"), out);
    json_decref(root);
    an_text_free(&json);
    return status;
}

an_status an_chat_tokens_add(an_err *err, an_tokenizer **t, an_chat_tokens *out)
{
    const char *missing[N_ADDED + 1];
    int n = 0;
    an_tokenizer *more;
    if (!(*t)->bpe)
        return an_fail(err, AN_E_DATA,
                       "conversations need a tokenizer of bytes (gpt2, bytes, or a folder), not one of "
                       "characters");
    if ((*t)->end < 0) missing[n++] = "<|endoftext|>";
    for (int i = 0; i < N_ADDED; i++)
        if (find_piece(*t, added[i]) < 0) missing[n++] = added[i];
    if (n > 0) {
        AN_TRY(extend(err, *t, missing, n, &more));
        an_tokenizer_free(*t);
        *t = more;
    }
    return an_chat_tokens_find(err, "tokenizer", *t, out);
}

an_status an_chat_turn(an_err *err, const an_tokenizer *t, const an_chat_tokens *c, const char *where,
                       an_chat_role role, const char *text, size_t n, bool open, an_ids *out)
{
    AN_TRY(an_ids_push(err, out, c->open[role]));
    if (n > 0) AN_TRY(an_tokenizer_encode(err, t, where, text, n, false, out));
    return open ? AN_OK : an_ids_push(err, out, c->close[role]);
}

/* ---- Hugging Face's files */

static bool is_special(const char *token)
{
    bool found = strcmp(token, "<|endoftext|>") == 0;
    for (int i = 0; i < N_ADDED; i++) found |= strcmp(token, added[i]) == 0;
    return found;
}

static void put_special(an_text *t, int64_t id, const char *token, bool first)
{
    an_text_printf(t, "%s{\"id\":%" PRId64 ",\"content\":", first ? "" : ",", id);
    an_json_put(t, token);
    an_text_puts(t, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
}

static void put_tokenizer(an_text *t, const json_t *tokens, const json_t *merges)
{
    bool first = true;
    an_text_puts(t, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        if (!is_special(token)) continue;
        put_special(t, (int64_t)i, token, first);
        first = false;
    }
    an_text_puts(t, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                    "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":"
                    "\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\"model\":{"
                    "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\","
                    "\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        if (i > 0) an_text_puts(t, ",");
        an_json_put(t, json_string_value(json_array_get(tokens, i)));
        an_text_printf(t, ":%zu", i);
    }
    an_text_puts(t, "},\"merges\":[");
    for (size_t i = 0; i + 1 < json_array_size(merges); i += 2) {
        an_text_puts(t, i ? ",[" : "[");
        for (size_t k = 0; k < 2; k++) {
            const size_t id = (size_t)json_integer_value(json_array_get(merges, i + k));
            if (k) an_text_puts(t, ",");
            an_json_put(t, json_string_value(json_array_get(tokens, id)));
        }
        an_text_puts(t, "]");
    }
    an_text_puts(t, "]}}\n");
}

/* The names of special tokens, as both small files have them. */
static void put_names(an_text *t)
{
    an_text_puts(t, "\"bos_token\":\"<|startoftext|>\",\"eos_token\":\"<|endoftext|>\",\"unk_token\":\"<|endoftext|>\","
                    "\"pad_token\":\"<|pad|>\",\"additional_special_tokens\":[");
    for (int i = 2; i < N_ADDED; i++) an_text_printf(t, "%s\"%s\"", i > 2 ? "," : "", added[i]);
    an_text_puts(t, "]");
}

static an_status save(an_err *err, const char *folder, const char *name, an_text *t)
{
    char path[PATH_BYTES];
    an_status status = AN_OK;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        status = an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", folder);
    if (status == AN_OK) status = an_json_save(err, path, t);
    an_text_free(t);
    return status;
}

an_status an_chat_tokenizer_write(an_err *err, const an_tokenizer *t, const char *folder, int64_t max_length)
{
    an_text json = {0}, file = {0}, config = {0}, map = {0};
    json_t *root = NULL;
    AN_TRY(an_make_dirs(err, folder, 0777));
    an_status status = an_tokenizer_json(err, t, &json);
    if (status == AN_OK) status = an_json_parse(err, "a tokenizer", 0, json.data, json.len, &root);
    an_text_free(&json);
    if (status == AN_OK) put_tokenizer(&file, json_object_get(root, "tokens"), json_object_get(root, "merges"));
    json_decref(root);
    if (status != AN_OK) return status;
    an_text_printf(&config,
                   "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":false,\"add_bos_token\":false,"
                   "\"clean_up_tokenization_spaces\":false,\"model_max_length\":%" PRId64 ",",
                   max_length);
    put_names(&config);
    an_text_puts(&config, "}\n");
    an_text_puts(&map, "{");
    put_names(&map);
    an_text_puts(&map, "}\n");
    status = save(err, folder, "tokenizer.json", &file);
    if (status == AN_OK)
        status = save(err, folder, "tokenizer_config.json", &config);
    else
        an_text_free(&config);
    if (status == AN_OK) return save(err, folder, "special_tokens_map.json", &map);
    an_text_free(&map);
    return status;
}
