/* tokenizer.c: character tokenizers (BPE: tokenizer_bpe.c; others' files: tokenizer_files.c), the table of pieces that both kinds share, and their JSON. See tokenizer.h. */
#include "io/text/tokenizer_impl.h"
#include "io/text/utf8.h"
#include <stdlib.h>
#include <string.h>

static const char end_text[] = "<|endoftext|>";

an_status an_ids_push(an_err *err, an_ids *ids, int32_t id)
{
    if (ids->len == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 256;
        int32_t *more = realloc(ids->data, cap * sizeof *more);
        if (!more) return an_fail_nomem(err, "token ids", cap * sizeof *more);
        ids->data = more;
        ids->cap = cap;
    }
    ids->data[ids->len++] = id;
    return AN_OK;
}

void an_ids_free(an_ids *ids)
{
    free(ids->data);
    *ids = (an_ids){0};
}

an_status an_tokenizer_alloc(an_err *err, int32_t vocab, size_t bytes, an_tokenizer **out)
{
    an_tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t) {
        t->bytes = calloc(1, bytes + 1);
        t->start = calloc((size_t)vocab + 1, sizeof *t->start);
    }
    if (!t || !t->bytes || !t->start) {
        an_tokenizer_free(t);
        return an_fail_nomem(err, "a tokenizer", bytes);
    }
    t->vocab = vocab;
    t->end = -1;
    *out = t;
    return AN_OK;
}

void an_tokenizer_free(an_tokenizer *t)
{
    if (!t) return;
    an_bpe_free(t->bpe);
    free(t->points);
    free(t->bytes);
    free(t->start);
    free(t);
}

int32_t an_tokenizer_vocab(const an_tokenizer *t)
{
    return t->vocab;
}
const char *an_tokenizer_kind(const an_tokenizer *t)
{
    return t->points ? "char" : "bpe";
}
int32_t an_tokenizer_end(const an_tokenizer *t)
{
    return t->end;
}

/* ---- comparison */

/* Piece `id` as a sentence shows it: U+0061 'a' of characters, the bytes of others. */
static void put_piece(const an_tokenizer *t, int32_t id, an_text *out)
{
    const int n = (int)(t->start[id + 1] - t->start[id]);
    const unsigned char *p = (const unsigned char *)t->bytes + t->start[id];
    bool plain = n > 0;
    for (int i = 0; i < n; i++) plain &= t->points ? p[i] >= 32 : p[i] >= 32 && p[i] < 127;
    if (t->points) an_text_printf(out, "U+%04X", (unsigned)t->points[id]);
    if (plain) an_text_printf(out, "%s'%.*s'", t->points ? " " : "", AN_MIN(n, 40), (const char *)p);
    for (int i = 0; !t->points && !plain && i < AN_MIN(n, 16); i++) an_text_printf(out, "%s%02x", i ? " " : "", p[i]);
}

static bool same_piece(const an_tokenizer *a, const an_tokenizer *b, int32_t id)
{
    const uint32_t n = a->start[id + 1] - a->start[id];
    return n == b->start[id + 1] - b->start[id] && memcmp(a->bytes + a->start[id], b->bytes + b->start[id], n) == 0;
}

/* The first id that both do not share, and what it is in each; -1: there is none. */
static int32_t first_other(const an_tokenizer *a, const an_tokenizer *b, an_text *in_a, an_text *in_b)
{
    const int32_t both = AN_MIN(a->vocab, b->vocab), most = AN_MAX(a->vocab, b->vocab);
    int32_t id = 0;
    while (id < both && same_piece(a, b, id)) id++;
    if (id == most) return -1;
    if (id < a->vocab)
        put_piece(a, id, in_a);
    else
        an_text_puts(in_a, "nothing");
    if (id < b->vocab)
        put_piece(b, id, in_b);
    else
        an_text_puts(in_b, "nothing");
    return id;
}

an_status an_tokenizer_match(an_err *err, const char *where, const an_tokenizer *data, const an_tokenizer *model)
{
    an_text one = {0}, other = {0};
    const int32_t id = first_other(data, model, &one, &other);
    const bool same = id < 0 || id == data->vocab;
    an_status status = AN_OK;
    if (!same)
        status = an_fail(err, AN_E_DATA,
                         "%s: its tokens were made with another vocabulary than the model's: id %d is %s there "
                         "and %s in the model; prepare the text again, or train a new model on it",
                         where, (int)id, one.data ? one.data : "", other.data ? other.data : "");
    an_text_free(&one);
    an_text_free(&other);
    return status;
}

an_status an_tokenizer_check_named(an_err *err, const char *path, const char *from, const an_tokenizer *model)
{
    an_tokenizer *named;
    an_text one = {0}, other = {0};
    AN_TRY(an_tokenizer_open(err, path, &named));
    const int32_t id = first_other(named, model, &one, &other);
    an_status status = AN_OK;
    if (id >= 0)
        status =
            an_fail(err, AN_E_USAGE,
                    "tokenizer=%.300s is another one than that in %.300s: id %d is %s there and %s in the weights' "
                    "own, which is used where tokenizer= is left out",
                    path, from, (int)id, one.data ? one.data : "", other.data ? other.data : "");
    an_text_free(&one);
    an_text_free(&other);
    an_tokenizer_free(named);
    return status;
}

/* ---- characters */

/* `points` is ascending, without equals, all valid. */
static an_status from_points(an_err *err, const uint32_t *points, size_t n, an_tokenizer **out)
{
    AN_TRY(an_tokenizer_alloc(err, (int32_t)n, 4 * n, out));
    an_tokenizer *t = *out;
    t->points = malloc(n * sizeof *points);
    if (!t->points) {
        an_tokenizer_free(t);
        *out = NULL;
        return an_fail_nomem(err, "a vocabulary", n * sizeof *points);
    }
    memcpy(t->points, points, n * sizeof *points);
    memset(t->ascii, -1, sizeof t->ascii);
    for (size_t i = 0; i < n; i++) {
        t->start[i + 1] = t->start[i] + (uint32_t)an_utf8_put(points[i], t->bytes + t->start[i]);
        if (points[i] < 128) t->ascii[points[i]] = (int32_t)i;
    }
    return AN_OK;
}

static an_status not_utf8(an_err *err, const char *where, size_t at)
{
    return an_fail(err, AN_E_DATA, "%s: byte %zu: not UTF-8; convert the text to UTF-8 first", where, at);
}

an_status an_tokenizer_chars(an_err *err, const char *where, const char *text, size_t n, an_tokenizer **out)
{
    *out = NULL;
    if (n == 0) return an_fail(err, AN_E_DATA, "%s: the text is empty: there is no character to learn", where);
    enum { ALL = 0x110000 };
    unsigned char *seen = calloc(1, ALL);
    uint32_t *points = NULL;
    size_t count = 0;
    an_status status = seen ? AN_OK : an_fail_nomem(err, "the characters of a text", ALL);
    for (size_t at = 0; status == AN_OK && at < n;) {
        uint32_t c;
        int len = an_utf8_next(text + at, n - at, &c);
        if (len == 0) {
            status = not_utf8(err, where, at);
            break;
        }
        count += !seen[c];
        seen[c] = 1;
        at += (size_t)len;
    }
    if (status == AN_OK && (points = malloc(count * sizeof *points)) == NULL)
        status = an_fail_nomem(err, "the characters of a text", count * sizeof *points);
    if (status == AN_OK) {
        for (uint32_t c = 0, i = 0; c < ALL; c++)
            if (seen[c]) points[i++] = c;
        status = from_points(err, points, count, out);
    }
    free(seen);
    free(points);
    return status;
}

static int32_t id_of(const an_tokenizer *t, uint32_t c)
{
    if (c < 128) return t->ascii[c];
    int32_t low = 0, high = t->vocab;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (t->points[middle] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->vocab && t->points[low] == c ? low : -1;
}

static an_status encode_chars(an_err *err, const an_tokenizer *t, const char *where, const char *text, size_t n,
                              an_ids *out)
{
    size_t character = 0;
    for (size_t at = 0; at < n; character++) {
        uint32_t c;
        int len = an_utf8_next(text + at, n - at, &c);
        if (len == 0) return not_utf8(err, where, at);
        int32_t id = id_of(t, c);
        if (id < 0)
            return an_fail(
                err, AN_E_DATA,
                "%s: character %zu (byte %zu): U+%04X%s%.*s%s is not among the %d characters the model was trained on",
                where, character, at, (unsigned)c, c >= 32 ? " '" : "", c >= 32 ? len : 0, text + at,
                c >= 32 ? "'" : "", (int)t->vocab);
        AN_TRY(an_ids_push(err, out, id));
        at += (size_t)len;
    }
    return AN_OK;
}

/* ---- both directions */

static an_status encode_plain(an_err *err, const an_tokenizer *t, const char *where, const char *text, size_t n,
                              an_ids *out)
{
    return t->points ? encode_chars(err, t, where, text, n, out) : an_bpe_encode(err, t, where, text, n, out);
}

static const char *find_end(const char *text, size_t n)
{
    size_t len = sizeof end_text - 1;
    for (const char *p = text; (size_t)(text + n - p) >= len; p++) {
        p = memchr(p, end_text[0], (size_t)(text + n - p) - len + 1);
        if (!p || memcmp(p, end_text, len) == 0) return p;
    }
    return NULL;
}

an_status an_tokenizer_encode(an_err *err, const an_tokenizer *t, const char *where, const char *text, size_t n,
                              bool special, an_ids *out)
{
    const char *end;
    while (special && t->end >= 0 && n > 0 && (end = find_end(text, n)) != NULL) {
        AN_TRY(encode_plain(err, t, where, text, (size_t)(end - text), out));
        AN_TRY(an_ids_push(err, out, t->end));
        n -= (size_t)(end - text) + sizeof end_text - 1;
        text = end + sizeof end_text - 1;
    }
    return n > 0 ? encode_plain(err, t, where, text, n, out) : AN_OK;
}

an_status an_tokenizer_decode(an_err *err, const an_tokenizer *t, const int32_t *ids, size_t n, an_text *out)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocab)
            return an_fail(err, AN_E_DATA, "token %zu: id %d is outside the vocabulary of %d", i, (int)ids[i],
                           (int)t->vocab);
        an_text_putn(out, t->bytes + t->start[ids[i]], t->start[ids[i] + 1] - t->start[ids[i]]);
    }
    return out->failed ? an_fail_nomem(err, "decoded text", out->len) : AN_OK;
}

/* ---- JSON: {"type":"char","code_points":[10,32,...]} or {"type":"bpe","tokens":[...],"merges":[...]} */

an_status an_tokenizer_points(an_err *err, const char *where, const uint32_t *points, size_t n, an_tokenizer **out)
{
    *out = NULL;
    for (size_t i = 0; i < n; i++)
        if (points[i] > 0x10FFFF || (points[i] >= 0xD800 && points[i] <= 0xDFFF) ||
            (i > 0 && points[i] <= points[i - 1]))
            return an_fail(
                err, AN_E_IO,
                "%s: id %zu is no character, or not above that of the id before; the file is damaged, or its "
                "characters are not numbered in their order",
                where, i);
    if (n == 0 || n > 0x110000) return an_fail(err, AN_E_IO, "%s: there are no characters in it", where);
    return from_points(err, points, n, out);
}

static an_status chars_from_json(an_err *err, const char *where, const json_t *root, an_tokenizer **out)
{
    const json_t *list = json_object_get(root, "code_points");
    size_t n = json_array_size(list);
    if (n == 0 || n > 0x110000)
        return an_fail(err, AN_E_IO, "%s: \"code_points\" is missing, empty or too long; the file is damaged", where);
    uint32_t *points = malloc(n * sizeof *points);
    if (!points) return an_fail_nomem(err, where, n * sizeof *points);
    an_status status = AN_OK;
    int64_t before = -1;
    for (size_t i = 0; i < n && status == AN_OK; i++) {
        const json_t *item = json_array_get(list, i);
        int64_t c = json_is_integer(item) ? (int64_t)json_integer_value(item) : -1;
        if (c <= before || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
            status = an_fail(
                err, AN_E_IO,
                "%s: element %zu of \"code_points\" is no code point above the one before it; the file is damaged",
                where, i);
        else
            points[i] = (uint32_t)c;
        before = c;
    }
    if (status == AN_OK) status = from_points(err, points, n, out);
    free(points);
    return status;
}

an_status an_tokenizer_from_json(an_err *err, const char *where, const char *json, size_t n, an_tokenizer **out)
{
    *out = NULL;
    json_t *root;
    AN_TRY(an_json_parse(err, where, 0, json, n, &root));
    const char *type;
    char quoted[AN_QUOTED_BYTES];
    an_status status = an_json_string(err, where, root, "type", &type);
    if (status == AN_OK) {
        if (strcmp(type, "char") == 0)
            status = chars_from_json(err, where, root, out);
        else if (strcmp(type, "bpe") == 0)
            status = an_bpe_build(err, where, json_object_get(root, "tokens"), json_object_get(root, "merges"), out);
        else
            status = an_fail(err, AN_E_UNSUPPORTED, "%s: tokenizer type %s is unknown; char and bpe are", where,
                             an_quoted(type, quoted));
    }
    json_decref(root);
    return status;
}

an_status an_tokenizer_json(an_err *err, const an_tokenizer *t, an_text *out)
{
    if (t->points) {
        an_text_puts(out, "{\"type\":\"char\",\"code_points\":[");
        for (int32_t i = 0; i < t->vocab; i++) an_text_printf(out, "%s%u", i ? "," : "", (unsigned)t->points[i]);
        an_text_puts(out, "]}");
    } else {
        an_bpe_json(t, out);
    }
    return out->failed ? an_fail_nomem(err, "a tokenizer as JSON", (size_t)t->vocab) : AN_OK;
}
