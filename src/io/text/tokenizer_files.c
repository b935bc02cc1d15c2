/* tokenizer_files.c: vocabularies in the files of others: GPT-2's two, Hugging Face's tokenizer.json, nanoGPT's
 * meta.pkl, and the meta.json of a folder that anneal prepared. See tokenizer.h. */
#include "platform/platform.h"
#include "io/formats/pickle.h"
#include "io/text/tokenizer_impl.h"
#include "io/text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE_BYTES = 64 << 20, MAX_PICKLE_BYTES = 16 << 20, PATH_BYTES = 1024 };

/* ---- {token: id} and merges */

/* {token: id} to an array by id; every id from 0 to n-1 once. *out is the caller's, also on failure. */
static an_status tokens_by_id(an_err *err, const char *path, const json_t *encoder, json_t **out)
{
    size_t n = json_object_size(encoder); /* 0: of an empty one, and of what is none */
    *out = NULL;
    if (n == 0) return an_fail(err, AN_E_IO, "%s: not an object of tokens and their ids: {\"token\": id, ...}", path);
    const char **by_id = calloc(n + 1, sizeof *by_id);
    *out = json_array();
    if (!by_id || !*out) {
        free(by_id);
        return an_fail_nomem(err, path, n * sizeof *by_id);
    }
    an_status status = AN_OK;
    const char *token;
    json_t *id;
    json_object_foreach((json_t *)encoder, token, id)
    {
        char quoted[AN_QUOTED_BYTES];
        json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;
        if (i < 0 || (size_t)i >= n || by_id[i])
            status = an_fail(err, AN_E_IO, "%s: token %s has an id that is not a number from 0 to %zu of its own", path,
                             an_quoted(token, quoted), n - 1);
        else
            by_id[i] = token;
    }
    for (size_t i = 0; status == AN_OK && i < n; i++)
        if (json_array_append_new(*out, json_string(by_id[i])) != 0) status = an_fail_nomem(err, path, n);
    free(by_id);
    return status;
}

/* The two tokens of a merge to two ids. `unit` is "line" or "merge", for the sentence. */
static an_status add_merge(an_err *err, const char *path, const char *unit, size_t number, const json_t *encoder,
                           const char *const parts[2], json_t *out)
{
    for (int i = 0; i < 2; i++) {
        const json_t *id = parts[i] ? json_object_get(encoder, parts[i]) : NULL;
        if (!json_is_integer(id))
            return an_fail(err, AN_E_IO, "%s: %s %zu: not two tokens of the vocabulary with a blank between them", path,
                           unit, number);
        if (json_array_append_new(out, json_integer(json_integer_value(id))) != 0)
            return an_fail_nomem(err, path, sizeof *id);
    }
    return AN_OK;
}

/* "left right", which is cut at its blank. */
static an_status add_merge_text(an_err *err, const char *path, const char *unit, size_t number, const json_t *encoder,
                                char *s, json_t *out)
{
    char *blank = strchr(s, ' ');
    if (blank) *blank = 0;
    return add_merge(err, path, unit, number, encoder, (const char *const[2]){s, blank ? blank + 1 : NULL}, out);
}

static an_status build(an_err *err, const char *path, const json_t *encoder, const json_t *merges, an_tokenizer **out)
{
    json_t *tokens = NULL;
    an_status status = tokens_by_id(err, path, encoder, &tokens);
    if (status == AN_OK) status = an_bpe_build(err, path, tokens, merges, out);
    json_decref(tokens);
    return status;
}

/* ---- encoder.json and vocab.bpe */

static an_status read_merges(an_err *err, const char *path, const json_t *encoder, json_t *out)
{
    char *text;
    size_t n;
    AN_TRY(an_file_read(err, path, MAX_FILE_BYTES, &text, &n));
    an_status status = AN_OK;
    size_t line = 1;
    for (char *p = text, *end = text + n; status == AN_OK && p < end; line++) {
        char *eol = memchr(p, '\n', (size_t)(end - p)), *stop = eol ? eol : end;
        *stop = 0;
        if (stop > p && stop[-1] == '\r') stop[-1] = 0;
        bool comment = line == 1 && strncmp(p, "#version", 8) == 0;
        if (!comment && *p) status = add_merge_text(err, path, "line", line, encoder, p, out);
        p = stop + 1;
    }
    free(text);
    return status;
}

an_status an_tokenizer_gpt2(an_err *err, const char *encoder_path, const char *merges_path, an_tokenizer **out)
{
    *out = NULL;
    json_t *encoder = NULL, *tokens = NULL, *merges = json_array();
    if (!merges) return an_fail_nomem(err, merges_path, sizeof merges);
    an_status status = an_json_read(err, encoder_path, MAX_FILE_BYTES, &encoder);
    if (status == AN_OK) status = tokens_by_id(err, encoder_path, encoder, &tokens);
    if (status == AN_OK) status = read_merges(err, merges_path, encoder, merges);
    if (status == AN_OK && json_array_size(merges) == 0)
        status = an_fail(err, AN_E_IO, "%s: there is no merge in it; is it the file that belongs to %s?", merges_path,
                         encoder_path);
    if (status == AN_OK) status = an_bpe_build(err, encoder_path, tokens, merges, out);
    json_decref(encoder);
    json_decref(tokens);
    json_decref(merges);
    return status;
}

/* ---- tokenizer.json */

static an_status unsupported(an_err *err, const char *path, const char *what)
{
    return an_fail(err, AN_E_UNSUPPORTED,
                   "%s: %s; a byte-level BPE that splits words as GPT-2 does is read (model BPE, pre_tokenizer "
                   "ByteLevel without add_prefix_space, no normalizer)",
                   path, what);
}

/* "a b" or ["a","b"], as older and newer files have it. */
static an_status add_json_merge(an_err *err, const char *path, size_t i, const json_t *merge, const json_t *encoder,
                                json_t *out)
{
    const char *text = json_string_value(merge);
    if (!text) {
        const char *const parts[2] = {json_string_value(json_array_get(merge, 0)),
                                      json_array_size(merge) == 2 ? json_string_value(json_array_get(merge, 1)) : NULL};
        return add_merge(err, path, "merge", i, encoder, parts, out);
    }
    char *copy = malloc(strlen(text) + 1);
    if (!copy) return an_fail_nomem(err, path, strlen(text) + 1);
    an_status status = add_merge_text(err, path, "merge", i, encoder, strcpy(copy, text), out);
    free(copy);
    return status;
}

/* Tokens such as <|endoftext|> may be listed apart from the vocabulary, with the ids that follow it. */
static an_status add_tokens(an_err *err, const char *path, const json_t *root, json_t *encoder)
{
    size_t i;
    json_t *token;
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
    {
        const char *content;
        AN_TRY(an_json_string(err, path, token, "content", &content));
        if (!json_object_get(encoder, content) && json_object_set(encoder, content, json_object_get(token, "id")) != 0)
            return an_fail(err, AN_E_IO, "%s: added token %zu has no id", path, i);
    }
    return AN_OK;
}

static an_status from_tokenizer_json(an_err *err, const char *path, const json_t *root, json_t *out_merges,
                                     an_tokenizer **out)
{
    const json_t *model = json_object_get(root, "model"), *split = json_object_get(root, "pre_tokenizer"), *merge;
    const json_t *list = json_object_get(model, "merges");
    const char *type = json_string_value(json_object_get(model, "type"));
    const char *split_type = json_string_value(json_object_get(split, "type"));
    json_t *encoder = json_object_get(model, "vocab");
    if (type && strcmp(type, "BPE") != 0) return unsupported(err, path, "its model is not BPE");
    if (!json_is_object(encoder) || !json_is_array(list)) return unsupported(err, path, "it has no vocab and merges");
    if (!split_type || strcmp(split_type, "ByteLevel") != 0 ||
        json_is_true(json_object_get(split, "add_prefix_space")) || json_is_false(json_object_get(split, "use_regex")))
        return unsupported(err, path, "it splits words in another way");
    if (json_is_object(json_object_get(root, "normalizer"))) return unsupported(err, path, "it changes texts first");
    AN_TRY(add_tokens(err, path, root, encoder));
    for (size_t i = 0; (merge = json_array_get(list, i)) != NULL; i++)
        AN_TRY(add_json_merge(err, path, i, merge, encoder, out_merges));
    return build(err, path, encoder, out_merges, out);
}

/* ---- meta.json, and any JSON of these by what is in it */

static an_status from_json(an_err *err, const char *path, const json_t *root, an_tokenizer **out)
{
    const json_t *own = json_object_get(root, "tokenizer");
    if (!own && json_is_string(json_object_get(root, "type"))) own = root;
    if (json_is_object(own)) {
        char *text = json_dumps(own, JSON_COMPACT);
        if (!text) return an_fail_nomem(err, path, MAX_FILE_BYTES);
        an_status status = an_tokenizer_from_json(err, path, text, strlen(text), out);
        free(text);
        return status;
    }
    if (!json_is_object(json_object_get(root, "model")))
        return an_fail(
            err, AN_E_IO,
            "%s: no tokenizer is in it; name a meta.json, a tokenizer.json, or a folder with encoder.json and "
            "vocab.bpe",
            path);
    json_t *merges = json_array();
    if (!merges) return an_fail_nomem(err, path, sizeof merges);
    an_status status = from_tokenizer_json(err, path, root, merges, out);
    json_decref(merges);
    return status;
}

an_status an_tokenizer_from_file(an_err *err, const char *path, an_tokenizer **out)
{
    json_t *root;
    *out = NULL;
    AN_TRY(an_json_read(err, path, MAX_FILE_BYTES, &root));
    an_status status = from_json(err, path, root, out);
    json_decref(root);
    return status;
}

/* ---- meta.pkl: {"vocab_size": n, "itos": {id: character}, "stoi": {character: id}} */

static an_status bad_pickle(an_err *err, const char *path, const an_pickle_value *v, const char *what)
{
    return an_fail(err, AN_E_IO, "%s: byte %llu: %s; nanoGPT's prepare.py writes vocab_size, itos and stoi", path,
                   (unsigned long long)v->at, what);
}

static an_status points_of(an_err *err, const char *path, const an_pickle_value *root, uint32_t *points, size_t n)
{
    const an_pickle_value *itos = an_pickle_find(root, "itos");
    memset(points, 0xFF, n * sizeof *points); /* no code point: an id that is missing is found later */
    for (size_t i = 0; i + 1 < itos->n; i += 2) {
        const an_pickle_value *id = itos->items[i], *text = itos->items[i + 1];
        uint32_t c;
        if (id->kind != AN_PICKLE_INT || id->i < 0 || (uint64_t)id->i >= n)
            return bad_pickle(err, path, id, "an id is no number below vocab_size");
        if (text->kind != AN_PICKLE_TEXT || text->bytes == 0 ||
            (size_t)an_utf8_next(text->text, text->bytes, &c) != text->bytes)
            return bad_pickle(err, path, text, "an id is more or less than one character");
        points[id->i] = c;
    }
    return AN_OK;
}

an_status an_tokenizer_from_pickle(an_err *err, const char *path, const void *data, size_t n, an_tokenizer **out)
{
    an_arena arena = {0};
    const an_pickle_value *root = NULL;
    uint32_t *points = NULL;
    *out = NULL;
    an_status status = an_pickle_read(err, path, 0, data, n, NULL, 0, &arena, &root);
    if (status == AN_OK) {
        const an_pickle_value *size = an_pickle_find(root, "vocab_size"), *itos = an_pickle_find(root, "itos");
        if (!size || size->kind != AN_PICKLE_INT || !itos || itos->kind != AN_PICKLE_DICT || size->i < 1 ||
            (uint64_t)size->i > itos->n / 2)
            status = bad_pickle(err, path, root, "vocab_size and itos do not agree, or are missing");
        else if ((points = an_arena_array(&arena, sizeof *points, (size_t)size->i)) == NULL)
            status = an_fail_nomem(err, path, (size_t)size->i * sizeof *points);
        if (status == AN_OK) status = points_of(err, path, root, points, (size_t)size->i);
        if (status == AN_OK) status = an_tokenizer_points(err, path, points, (size_t)size->i, out);
    }
    an_arena_free(&arena);
    return status;
}

static an_status open_pickle(an_err *err, const char *path, an_tokenizer **out)
{
    char *data;
    size_t n;
    *out = NULL;
    AN_TRY(an_file_read(err, path, MAX_PICKLE_BYTES, &data, &n));
    an_status status = an_tokenizer_from_pickle(err, path, data, n, out);
    free(data);
    return status;
}

/* ---- whichever it is */

/* FOLDER/NAME in `out` when there is such a file. */
static bool has(const char *folder, const char *name, char out[PATH_BYTES])
{
    struct stat info;
    int n = snprintf(out, PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < PATH_BYTES && stat(out, &info) == 0 && S_ISREG(info.st_mode);
}

bool an_tokenizer_is_in(const char *folder)
{
    char path[PATH_BYTES];
    return has(folder, "meta.json", path) || has(folder, "meta.pkl", path);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

an_status an_tokenizer_open(an_err *err, const char *path, an_tokenizer **out)
{
    char first[PATH_BYTES], second[PATH_BYTES];
    struct stat info;
    *out = NULL;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return ends_with(path, ".pkl") ? open_pickle(err, path, out) : an_tokenizer_from_file(err, path, out);
    if (has(path, "meta.json", first)) return an_tokenizer_from_file(err, first, out);
    if (has(path, "meta.pkl", first)) return open_pickle(err, first, out);
    if (has(path, "tokenizer.json", first)) return an_tokenizer_from_file(err, first, out);
    if (has(path, "encoder.json", first) && has(path, "vocab.bpe", second))
        return an_tokenizer_gpt2(err, first, second, out);
    if (has(path, "vocab.json", first) && has(path, "merges.txt", second))
        return an_tokenizer_gpt2(err, first, second, out);
    return an_fail(
        err, AN_E_IO,
        "%s: no tokenizer is in this folder: it has no meta.json, meta.pkl or tokenizer.json, and not both of "
        "encoder.json and vocab.bpe",
        path);
}
