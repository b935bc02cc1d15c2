/* prepare_text.c: see prepare_text.h. Two passes over the files: the first checks and counts characters, the second encodes
 * pieces of 4 MiB and writes ids. All files are saved together: none has its name before all are written. */
#define _DEFAULT_SOURCE
#include "io/data/prepare_text.h"
#include "base/arena.h"
#include "platform/platform.h"
#include "io/formats/json.h"
#include "io/formats/line_reader.h"
#include "io/text/utf8.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE_BYTES = 4 << 20, MAX_VOCAB = 65536, ALL_POINTS = 0x110000, PATH_BYTES = 1024, MAX_DEPTH = 32 };

typedef struct worker {
    an_err *err;
    const an_prepare *p;
    an_arena arena;
    const char **files;
    size_t n_files, cap_files;
    unsigned char *seen; /* by code point; NULL: the tokenizer is given */
    an_tokenizer *own;
    const an_tokenizer *tokenizer;
    uint64_t cut, at; /* in characters: where validation starts; how many are encoded */
    uint64_t encoded_bytes;
    an_save saves[2];
    an_ids ids;
    uint16_t *words;
    size_t cap_words;
    an_prepared *out;
} worker;

/* ---- files */

/* "" when the file can be read; else what to do with it, behind its name. */
static const char *why_not(const worker *w, const char *path)
{
    if (an_path_ends(path, ".parquet"))
        return "Parquet is not read; convert it to JSON lines: python3 -c \"import json, sys, pyarrow.parquet as pq; "
               "[print(json.dumps({'text': t})) for b in pq.ParquetFile(sys.argv[1]).iter_batches(columns=['text']) "
               "for t in b.column(0).to_pylist()]\" FILE.parquet > FILE.jsonl";
    if (w->p->records && (an_path_ends(path, ".gz") || an_path_ends(path, ".zst")))
        return "of compressed files only JSON lines (.jsonl.gz, .jsonl.zst) are read; decompress it";
    return "";
}

static bool is_records(const worker *w, const char *path)
{
    static const char *const endings[] = {".jsonl", ".ndjson", ".json"}, *const packed[] = {"", ".gz", ".zst"};
    for (size_t i = 0; i < AN_COUNT(endings) * AN_COUNT(packed) && w->p->records; i++) {
        char ending[16];
        snprintf(ending, sizeof ending, "%s%s", endings[i / AN_COUNT(packed)], packed[i % AN_COUNT(packed)]);
        if (an_path_ends(path, ending)) return true;
    }
    return false;
}

static an_status add_file(worker *w, const char *path)
{
    if (!is_records(w, path) && *why_not(w, path)) return an_fail(w->err, AN_E_DATA, "%s: %s", path, why_not(w, path));
    if (w->n_files == w->cap_files) {
        size_t cap = w->cap_files ? 2 * w->cap_files : 64;
        const char **more = realloc(w->files, cap * sizeof *more);
        if (!more) return an_fail_nomem(w->err, path, cap * sizeof *more);
        w->files = more;
        w->cap_files = cap;
    }
    const char *copy = an_arena_strdup(&w->arena, path);
    if (!copy) return an_fail_nomem(w->err, path, strlen(path));
    w->files[w->n_files++] = copy;
    return AN_OK;
}

/* Hidden files, and what is neither a file nor a folder, are skipped. */
static an_status add_path(worker *w, const char *path, int depth)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return an_fail(w->err, AN_E_IO, "%s: %s; name a text file or a folder of them", path, strerror(errno));
    if (S_ISREG(info.st_mode)) return add_file(w, path);
    if (!S_ISDIR(info.st_mode))
        return depth > 0 ? AN_OK : an_fail(w->err, AN_E_DATA, "%s: not a regular file or a folder of them", path);
    if (depth == MAX_DEPTH)
        return an_fail(w->err, AN_E_USAGE, "%s: folders lie more than %d deep; is a link in a circle?", path,
                       MAX_DEPTH);
    DIR *d = opendir(path);
    if (!d) return an_fail(w->err, AN_E_IO, "%s: %s", path, strerror(errno));
    an_status status = AN_OK;
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;) {
        char child[PATH_BYTES];
        if (e->d_name[0] == '.') continue;
        int n = snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        status = n > 0 && n < PATH_BYTES ? add_path(w, child, depth + 1)
                                         : an_fail(w->err, AN_E_USAGE, "%s: the path of a file is too long", path);
    }
    closedir(d);
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static an_status list_files(worker *w)
{
    AN_TRY(add_path(w, w->p->source, 0));
    if (w->n_files == 0) return an_fail(w->err, AN_E_DATA, "%s: there is no file in this folder", w->p->source);
    qsort(w->files, w->n_files, sizeof *w->files, compare_paths);
    w->out->files = w->n_files;
    return AN_OK;
}

typedef an_status (*text_body)(worker *w, size_t i, const char *text, size_t n);

/* Whether the texts have <|endoftext|> between them; else a newline ends each record. */
static bool has_end(const worker *w)
{
    return w->p->tokenizer && an_tokenizer_end(w->p->tokenizer) >= 0;
}

/* Calls `body` with the "text" of one line; lines of white space are skipped. */
static an_status with_record(worker *w, size_t i, const char *where, const char *line, size_t n, text_body body)
{
    json_t *record;
    an_text text = {0};
    size_t blank = 0;
    while (blank < n && strchr(" \t\r", line[blank]) && line[blank]) blank++;
    if (blank == n) return AN_OK;
    AN_TRY(an_json_parse(w->err, where, 0, line, n, &record));
    const json_t *value = json_object_get(record, "text");
    if (!json_is_string(value)) {
        json_decref(record);
        return an_fail(w->err, AN_E_DATA, "%s: an object with a \"text\" is needed, as {\"text\": \"...\"}", where);
    }
    an_text_putn(&text, json_string_value(value), json_string_length(value));
    if (!has_end(w)) an_text_puts(&text, "\n");
    json_decref(record);
    w->out->documents += !w->tokenizer; /* counted once, in the first pass */
    an_status status = text.failed ? an_fail_nomem(w->err, where, n) : body(w, i, text.data ? text.data : "", text.len);
    an_text_free(&text);
    return status;
}

static an_status with_records(worker *w, size_t i, text_body body)
{
    an_line_reader *r;
    const char *line;
    size_t n;
    char where[PATH_BYTES + 32];
    AN_TRY(an_line_reader_open(w->err, w->files[i], &r));
    an_status status;
    while ((status = an_line_reader_next(w->err, r, &line, &n)) == AN_OK && line) {
        snprintf(where, sizeof where, "%s: line %llu", w->files[i], (unsigned long long)an_line_reader_number(r));
        if ((status = with_record(w, i, where, line, n, body)) != AN_OK) break;
    }
    an_line_reader_close(r);
    return status;
}

/* Calls `body` with the text of file `i`, repaired when asked, or with each of its records. */
static an_status with_text(worker *w, size_t i, text_body body)
{
    if (is_records(w, w->files[i])) return with_records(w, i, body);
    an_map_file map;
    an_text repaired = {0};
    AN_TRY(an_file_map(w->err, w->files[i], &map));
    const char *text = map.data ? map.data : "";
    size_t n = map.bytes, replaced = 0;
    an_status status = AN_OK;
    if (w->p->replace && (replaced = an_utf8_repair(text, n, &repaired)) > 0) {
        if (repaired.failed) status = an_fail_nomem(w->err, w->files[i], n);
        text = repaired.data;
        n = repaired.len;
    }
    if (status == AN_OK) status = body(w, i, text, n);
    w->out->replaced += w->tokenizer ? 0 : replaced; /* counted once, in the first pass */
    w->out->documents += !w->tokenizer;
    an_text_free(&repaired);
    an_file_unmap(&map);
    return status;
}

static an_status for_each_file(worker *w, text_body body)
{
    for (size_t i = 0; i < w->n_files; i++) AN_TRY(with_text(w, i, body));
    return AN_OK;
}

static void tell(const worker *w, int64_t characters, int64_t all)
{
    if (w->p->tell) w->p->tell(w->p->arg, characters, all);
}

/* ---- first pass: is it text, how many characters, which ones */

static an_status count_text(worker *w, size_t i, const char *text, size_t n)
{
    w->out->bytes += n;
    for (size_t at = 0; at < n; w->out->characters++) {
        uint32_t c;
        int len = an_utf8_next(text + at, n - at, &c);
        if (len == 0)
            return an_fail(w->err, AN_E_DATA,
                           "%s: byte %zu: not UTF-8; convert the text, or set errors=replace to have U+FFFD there",
                           w->files[i], at);
        if (w->seen) w->seen[c] = 1;
        at += (size_t)len;
        if ((w->out->characters & 0xFFFFF) == 0) tell(w, (int64_t)w->out->characters, 0);
    }
    return AN_OK;
}

static an_status make_characters(worker *w)
{
    size_t n = 0;
    uint32_t *points = malloc(ALL_POINTS * sizeof *points);
    if (!points) return an_fail_nomem(w->err, "the characters of the texts", ALL_POINTS * sizeof *points);
    for (uint32_t c = 0; c < ALL_POINTS; c++)
        if (w->seen[c]) points[n++] = c;
    an_status status = an_tokenizer_points(w->err, w->p->source, points, n, &w->own);
    free(points);
    return status;
}

static an_status settle_tokenizer(worker *w)
{
    if (w->out->characters == 0) return an_fail(w->err, AN_E_DATA, "%s: there is no text in it", w->p->source);
    if (!w->p->tokenizer) AN_TRY(make_characters(w));
    w->tokenizer = w->p->tokenizer ? w->p->tokenizer : w->own;
    w->out->vocab = an_tokenizer_vocab(w->tokenizer);
    const double part = w->p->train_part > 0 ? w->p->train_part : 0.9;
    w->cut = (uint64_t)((double)w->out->characters * part); /* as nanoGPT rounds it */
    if (w->out->vocab <= MAX_VOCAB) return AN_OK;
    return an_fail(w->err, AN_E_DATA, "%s: %d different tokens do not fit the 16 bits of the format; use BPE",
                   w->p->source, (int)w->out->vocab);
}

/* ---- second pass: ids to files */

static an_status write_ids(worker *w, int split)
{
    const size_t n = w->ids.len;
    if (n > w->cap_words) {
        uint16_t *more = realloc(w->words, n * sizeof *more);
        if (!more) return an_fail_nomem(w->err, "token ids", n * sizeof *more);
        w->words = more;
        w->cap_words = n;
    }
    for (size_t i = 0; i < n; i++) w->words[i] = (uint16_t)w->ids.data[i];
    w->ids.len = 0;
    w->out->tokens[split] += n;
    return n ? an_save_write(w->err, &w->saves[split], w->words, n * sizeof *w->words) : AN_OK;
}

static bool is_plain(char c)
{
    return c > 32 && c < 127;
}

/* The length of a piece that can be encoded apart from the text behind it, to the same ids: it ends after a newline
 * between two characters that are not white space. GPT-2's pattern never joins such a line end with anything. */
static size_t piece_of(const char *text, size_t n)
{
    for (size_t at = PIECE_BYTES; at + 1 < n; at++)
        if (text[at] == '\n' && is_plain(text[at - 1]) && is_plain(text[at + 1])) return at + 1;
    return n;
}

static an_status encode_part(worker *w, size_t i, int split, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const size_t piece = piece_of(text + at, n - at);
        AN_TRY(an_tokenizer_encode(w->err, w->tokenizer, w->files[i], text + at, piece, false, &w->ids));
        AN_TRY(write_ids(w, split));
        at += piece;
        w->encoded_bytes += piece;
        /* In bytes within a text, for characters are not counted again. */
        const double share = (double)w->encoded_bytes / (double)AN_MAX(w->out->bytes, (uint64_t)1);
        tell(w, (int64_t)(share * (double)w->out->characters), (int64_t)w->out->characters);
    }
    return AN_OK;
}

/* Bytes of the first `count` characters, or all of them; *count is lowered by those that were there. */
static size_t bytes_of(const char *text, size_t n, uint64_t *count)
{
    for (size_t at = 0; at < n; at++) {
        if (((unsigned char)text[at] & 0xC0) == 0x80) continue;
        if (*count == 0) return at;
        --*count;
    }
    return n;
}

static an_status encode_text(worker *w, size_t i, const char *text, size_t n)
{
    uint64_t left = w->cut - AN_MIN(w->at, w->cut), before = left;
    const size_t train = bytes_of(text, n, &left);
    uint64_t rest = UINT64_MAX;
    bytes_of(text + train, n - train, &rest);
    w->at += before - left + (UINT64_MAX - rest);
    AN_TRY(encode_part(w, i, 0, text, train));
    AN_TRY(encode_part(w, i, 1, text + train, n - train));
    const int32_t end = an_tokenizer_end(w->tokenizer);
    if (w->out->documents == 1 || end < 0) return AN_OK;
    AN_TRY(an_ids_push(w->err, &w->ids, end));
    return write_ids(w, w->at > w->cut);
}

/* ---- the folder */

static an_status begin(worker *w, const char *name, an_save *save)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", w->p->out, name);
    if (n < 0 || n >= PATH_BYTES) return an_fail(w->err, AN_E_USAGE, "%s: the path is too long", w->p->out);
    return an_save_begin(w->err, path, save);
}

static an_status write_meta(worker *w, an_save *save)
{
    an_text text = {0};
    const an_prepared *o = w->out;
    an_text_printf(&text, "{\"anneal\":\"%s\",\"format\":\"uint16\",\"vocab_size\":%d", AN_VERSION, (int)o->vocab);
    an_text_printf(&text, ",\"train_tokens\":%llu,\"val_tokens\":%llu", (unsigned long long)o->tokens[0],
                   (unsigned long long)o->tokens[1]);
    an_text_printf(&text, ",\"files\":%llu,\"bytes\":%llu,\"characters\":%llu,\"replaced\":%llu,\"source\":",
                   (unsigned long long)o->files, (unsigned long long)o->bytes, (unsigned long long)o->characters,
                   (unsigned long long)o->replaced);
    an_json_put(&text, w->p->source);
    an_text_puts(&text, ",\n\"tokenizer\":");
    an_status status = an_json_check_text(w->err, "the path of the text", w->p->source);
    if (status == AN_OK) status = an_tokenizer_json(w->err, w->tokenizer, &text);
    an_text_puts(&text, "}\n");
    if (status == AN_OK && text.failed) status = an_fail_nomem(w->err, "meta.json", text.len);
    if (status == AN_OK) status = an_save_write(w->err, save, text.data, text.len);
    an_text_free(&text);
    return status;
}

static void put_u32(an_text *out, uint32_t v)
{
    const char bytes[] = {(char)(v & 255), (char)(v >> 8 & 255), (char)(v >> 16 & 255), (char)(v >> 24)};
    an_text_putn(out, bytes, 4);
}

static void pickle_text(an_text *out, const char *text, size_t n)
{
    an_text_putn(out, "X", 1); /* BINUNICODE */
    put_u32(out, (uint32_t)n);
    an_text_putn(out, text, n);
}

static void pickle_int(an_text *out, int32_t v)
{
    an_text_putn(out, "J", 1); /* BININT */
    put_u32(out, (uint32_t)v);
}

/* A dict from characters to ids, or from ids to characters. */
static an_status pickle_characters(worker *w, bool to_ids, an_text *out)
{
    an_text one = {0};
    an_status status = AN_OK;
    an_text_putn(out, "}(", 2); /* EMPTY_DICT MARK */
    for (int32_t id = 0; id < w->out->vocab && status == AN_OK; id++) {
        an_text_clear(&one);
        status = an_tokenizer_decode(w->err, w->tokenizer, &id, 1, &one);
        if (!to_ids) pickle_int(out, id);
        pickle_text(out, one.data, one.len);
        if (to_ids) pickle_int(out, id);
    }
    an_text_putn(out, "u", 1); /* SETITEMS */
    an_text_free(&one);
    return status;
}

/* meta.pkl, from which nanoGPT takes the vocabulary: {"vocab_size": n, "stoi": ..., "itos": ...}, in protocol 2. */
static an_status write_pickle(worker *w, an_save *save)
{
    an_text out = {0};
    an_text_putn(&out, "\x80\x02}(", 4); /* PROTO 2, EMPTY_DICT, MARK */
    pickle_text(&out, "vocab_size", 10);
    pickle_int(&out, w->out->vocab);
    pickle_text(&out, "stoi", 4);
    an_status status = pickle_characters(w, true, &out);
    pickle_text(&out, "itos", 4);
    if (status == AN_OK) status = pickle_characters(w, false, &out);
    an_text_putn(&out, "u.", 2); /* SETITEMS, STOP */
    if (status == AN_OK && out.failed) status = an_fail_nomem(w->err, "meta.pkl", out.len);
    if (status == AN_OK) status = an_save_write(w->err, save, out.data, out.len);
    an_text_free(&out);
    return status;
}

static an_status write_folder(worker *w)
{
    static const char *const names[] = {"train.bin", "val.bin"};
    an_save meta = {.fd = -1}, pickle = {.fd = -1};
    const bool characters = strcmp(an_tokenizer_kind(w->tokenizer), "char") == 0;
    an_status status = an_make_dirs(w->err, w->p->out, 0777);
    for (int i = 0; i < 2 && status == AN_OK; i++) status = begin(w, names[i], &w->saves[i]);
    if (status == AN_OK) status = for_each_file(w, encode_text);
    if (status == AN_OK && w->at != w->out->characters)
        status = an_fail(w->err, AN_E_DATA, "%s: the text changed while it was read; run it again", w->p->source);
    for (int i = 0; i < 2 && status == AN_OK; i++)
        if (w->out->tokens[i] < 2)
            status = an_fail(w->err, AN_E_DATA,
                             "%s: the %s part has %llu tokens, and even a context of one needs two; take a longer text",
                             w->p->source, i == 0 ? "training" : "validation", (unsigned long long)w->out->tokens[i]);
    if (status == AN_OK) status = begin(w, "meta.json", &meta);
    if (status == AN_OK) status = write_meta(w, &meta);
    if (status == AN_OK && characters) status = begin(w, "meta.pkl", &pickle);
    if (status == AN_OK && characters) status = write_pickle(w, &pickle);
    for (int i = 0; i < 2 && status == AN_OK; i++) status = an_save_commit(w->err, &w->saves[i]);
    if (status == AN_OK && characters) status = an_save_commit(w->err, &pickle);
    if (status == AN_OK) return an_save_commit(w->err, &meta);
    for (int i = 0; i < 2; i++) an_save_abort(&w->saves[i]);
    an_save_abort(&meta);
    an_save_abort(&pickle);
    return status;
}

static an_status prepare(worker *w)
{
    AN_TRY(list_files(w));
    if (!w->p->tokenizer && (w->seen = calloc(1, ALL_POINTS)) == NULL)
        return an_fail_nomem(w->err, "the characters of the texts", ALL_POINTS);
    AN_TRY(for_each_file(w, count_text));
    AN_TRY(settle_tokenizer(w));
    return write_folder(w);
}

an_status an_prepare_text(an_err *err, const an_prepare *p, an_prepared *out)
{
    worker w = {.err = err, .p = p, .out = out, .saves = {{.fd = -1}, {.fd = -1}}};
    memset(out, 0, sizeof *out);
    an_status status = prepare(&w);
    an_ids_free(&w.ids);
    an_tokenizer_free(w.own);
    an_arena_free(&w.arena);
    free(w.files);
    free(w.seen);
    free(w.words);
    return status;
}
