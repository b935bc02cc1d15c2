/* tokenizer_bpe.c: GPT-2's byte-level BPE.
 *
 * A text is split into words by GPT-2's pattern; a word's bytes are merged, best rank first, leftmost first among
 * equals. The reference merges every occurrence of the best pair before it looks again; both orders give the same
 * tokens because a merge's parts are made by earlier merges only, which an_bpe_build checks: no merge can make a pair
 * of better rank. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/text/tokenizer_impl.h"
#include "io/text/utf8.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct an_bpe {
    pcre2_code *pattern;
    an_map merges;   /* left id << 32 | right id -> rank << 32 | merged id */
    uint64_t *pairs; /* by rank: left id << 32 | right id, for JSON */
    size_t n_pairs;
    int32_t byte_id[256]; /* token of a single byte */
};

enum { MAX_VOCAB = 1 << 20, MAX_PIECES_BYTES = 64 << 20 };

/* GPT-2's pattern. Its \s is Unicode's White_Space; PCRE2's \s under UCP lacks U+0085 of that and has U+180E besides. */
#define WHITE                                                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
static const char split_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE "\\p{L}\\p{N}]+"
                                    "|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]+";

/* The byte alphabet, in which vocabularies are written: a printable byte is its own code point, the other 68 bytes are
 * U+0100 and the code points after it, in order. */
static bool is_printable_byte(uint32_t c)
{
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
}

static void byte_alphabet(uint32_t point_of[256])
{
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) point_of[b] = is_printable_byte(b) ? b : next++;
}

/* A code point of the alphabet to its byte, -1: none. */
static int byte_of_point(const uint32_t point_of[256], uint32_t c)
{
    for (int b = 0; b < 256; b++)
        if (point_of[b] == c) return b;
    return -1;
}

void an_bpe_free(an_bpe *b)
{
    if (!b) return;
    pcre2_code_free(b->pattern);
    an_map_free(&b->merges);
    free(b->pairs);
    free(b);
}

/* ---- building */

static an_status fill_pieces(an_err *err, const char *where, const json_t *tokens, an_tokenizer *t)
{
    uint32_t point_of[256];
    byte_alphabet(point_of);
    int16_t byte_at[512];
    for (uint32_t c = 0; c < AN_COUNT(byte_at); c++) byte_at[c] = (int16_t)byte_of_point(point_of, c);
    memset(t->bpe->byte_id, -1, sizeof t->bpe->byte_id);
    for (int32_t id = 0; id < t->vocab; id++) {
        const char *s = json_string_value(json_array_get(tokens, (size_t)id));
        size_t n = strlen(s), at = 0, len = 0;
        char *piece = t->bytes + t->start[id], quoted[AN_QUOTED_BYTES];
        while (at < n) {
            uint32_t c;
            int step = an_utf8_next(s + at, n - at, &c);
            if (step == 0 || c >= AN_COUNT(byte_at) || byte_at[c] < 0)
                return an_fail(err, AN_E_IO, "%s: token %d, %s, is not written in GPT-2's byte alphabet", where,
                               (int)id, an_quoted(s, quoted));
            piece[len++] = (char)byte_at[c];
            at += (size_t)step;
        }
        t->start[id + 1] = t->start[id] + (uint32_t)len;
        if (len == 1 && t->bpe->byte_id[(unsigned char)piece[0]] < 0) t->bpe->byte_id[(unsigned char)piece[0]] = id;
        if (strcmp(s, "<|endoftext|>") == 0) t->end = id;
    }
    for (int b = 0; b < 256; b++)
        if (t->bpe->byte_id[b] < 0)
            return an_fail(err, AN_E_IO, "%s: byte %d has no token: some text could not be encoded", where, b);
    return AN_OK;
}

static uint64_t piece_hash(const an_tokenizer *t, int32_t id)
{
    return an_hash(t->bytes + t->start[id], t->start[id + 1] - t->start[id], 0);
}

static bool is_joined(const an_tokenizer *t, int32_t id, int32_t left, int32_t right)
{
    size_t n = t->start[left + 1] - t->start[left], m = t->start[right + 1] - t->start[right];
    const char *piece = t->bytes + t->start[id];
    return t->start[id + 1] - t->start[id] == n + m && memcmp(piece, t->bytes + t->start[left], n) == 0 &&
           memcmp(piece + n, t->bytes + t->start[right], m) == 0;
}

/* Which token two others make: looked up by hash, checked by bytes. -1: none. */
static int32_t joined(const an_tokenizer *t, const an_map *by_bytes, int32_t left, int32_t right)
{
    char small[256], *text = small;
    size_t n = t->start[left + 1] - t->start[left], m = t->start[right + 1] - t->start[right];
    if (n + m > sizeof small && (text = malloc(n + m)) == NULL) return -1;
    memcpy(text, t->bytes + t->start[left], n);
    memcpy(text + n, t->bytes + t->start[right], m);
    uint64_t id = 0;
    bool found = an_map_get(by_bytes, an_hash(text, n + m, 0), &id) && is_joined(t, (int32_t)id, left, right);
    if (text != small) free(text);
    return found ? (int32_t)id : -1;
}

static an_status fill_merges(an_err *err, const char *where, const json_t *merges, an_tokenizer *t,
                             const an_map *by_bytes, unsigned char *made)
{
    an_bpe *b = t->bpe;
    for (int i = 0; i < 256; i++) made[b->byte_id[i]] = 1;
    for (size_t rank = 0; rank < b->n_pairs; rank++) {
        const json_t *l = json_array_get(merges, 2 * rank), *r = json_array_get(merges, 2 * rank + 1);
        int64_t left = json_is_integer(l) ? (int64_t)json_integer_value(l) : -1;
        int64_t right = json_is_integer(r) ? (int64_t)json_integer_value(r) : -1;
        if (left < 0 || left >= t->vocab || right < 0 || right >= t->vocab || !made[left] || !made[right])
            return an_fail(err, AN_E_IO, "%s: merge %zu joins a token that no earlier merge makes; the file is damaged",
                           where, rank);
        int32_t id = joined(t, by_bytes, (int32_t)left, (int32_t)right);
        if (id < 0)
            return an_fail(err, AN_E_IO, "%s: merge %zu makes a token that is not in the vocabulary", where, rank);
        uint64_t pair = (uint64_t)left << 32 | (uint64_t)right, before;
        if (an_map_get(&b->merges, pair, &before))
            return an_fail(err, AN_E_IO, "%s: merge %zu is there twice", where, rank);
        if (!an_map_set(&b->merges, pair, (uint64_t)rank << 32 | (uint32_t)id))
            return an_fail_nomem(err, where, b->n_pairs * 24);
        b->pairs[rank] = pair;
        made[id] = 1;
    }
    return AN_OK;
}

static an_status compile_pattern(an_err *err, an_bpe *b)
{
    int code;
    PCRE2_SIZE at;
    b->pattern =
        pcre2_compile((PCRE2_SPTR)split_pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!b->pattern)
        return an_fail(err, AN_E_ENV,
                       "pcre2 does not take GPT-2's pattern (code %d at %zu): is it built without Unicode?", code, at);
    (void)pcre2_jit_compile(b->pattern,
                            PCRE2_JIT_COMPLETE); /* without a JIT, matching is interpreted: slower, same matches */
    return AN_OK;
}

static an_status build(an_err *err, const char *where, const json_t *tokens, const json_t *merges, an_tokenizer *t)
{
    an_bpe *b = t->bpe = calloc(1, sizeof *b);
    if (!b) return an_fail_nomem(err, where, sizeof *b);
    AN_TRY(compile_pattern(err, b));
    AN_TRY(fill_pieces(err, where, tokens, t));
    b->n_pairs = json_array_size(merges) / 2;
    b->pairs = malloc((b->n_pairs + 1) * sizeof *b->pairs);
    unsigned char *made = calloc((size_t)t->vocab, 1);
    an_map by_bytes = {0};
    bool ok = b->pairs && made;
    for (int32_t id = 0; ok && id < t->vocab; id++) ok = an_map_set(&by_bytes, piece_hash(t, id), (uint64_t)id);
    an_status status =
        ok ? fill_merges(err, where, merges, t, &by_bytes, made) : an_fail_nomem(err, where, b->n_pairs * 8);
    an_map_free(&by_bytes);
    free(made);
    return status;
}

an_status an_bpe_build(an_err *err, const char *where, const json_t *tokens, const json_t *merges, an_tokenizer **out)
{
    *out = NULL;
    size_t n = json_array_size(tokens), bytes = 0;
    if (n < 256 || n > MAX_VOCAB || !json_is_array(merges) || json_array_size(merges) % 2 != 0 ||
        json_array_size(merges) / 2 > n)
        return an_fail(err, AN_E_IO,
                       "%s: a BPE needs 256 to %d tokens and an array of merged pairs, no more than tokens", where,
                       MAX_VOCAB);
    for (size_t i = 0; i < n; i++) {
        if (!json_is_string(json_array_get(tokens, i)))
            return an_fail(err, AN_E_IO, "%s: token %zu is not a string", where, i);
        bytes += json_string_length(json_array_get(tokens, i));
    }
    if (bytes > MAX_PIECES_BYTES)
        return an_fail(err, AN_E_IO, "%s: the tokens have more than %d bytes", where, MAX_PIECES_BYTES);
    an_tokenizer *t;
    AN_TRY(an_tokenizer_alloc(err, (int32_t)n, bytes, &t));
    an_status status = build(err, where, tokens, merges, t);
    if (status == AN_OK)
        *out = t;
    else
        an_tokenizer_free(t);
    return status;
}

void an_bpe_json(const an_tokenizer *t, an_text *out)
{
    uint32_t point_of[256];
    byte_alphabet(point_of);
    an_text piece = {0};
    an_text_puts(out, "{\"type\":\"bpe\",\"tokens\":[");
    for (int32_t id = 0; id < t->vocab; id++) {
        an_text_clear(&piece);
        for (uint32_t i = t->start[id]; i < t->start[id + 1]; i++) {
            char c[4];
            an_text_putn(&piece, c, (size_t)an_utf8_put(point_of[(unsigned char)t->bytes[i]], c));
        }
        if (id > 0) an_text_puts(out, ",");
        an_json_put(out, piece.len ? piece.data : "");
    }
    an_text_puts(out, "],\"merges\":[");
    for (size_t i = 0; i < t->bpe->n_pairs; i++)
        an_text_printf(out, "%s%u,%u", i ? "," : "", (unsigned)(t->bpe->pairs[i] >> 32), (unsigned)t->bpe->pairs[i]);
    an_text_puts(out, "]}");
    if (piece.failed) out->failed = true;
    an_text_free(&piece);
}

an_status an_tokenizer_bytes(an_err *err, an_tokenizer **out)
{
    uint32_t point_of[256];
    an_text json = {0};
    byte_alphabet(point_of);
    *out = NULL;
    an_text_puts(&json, "{\"type\":\"bpe\",\"tokens\":[");
    for (int b = 0; b < 256; b++) {
        char c[5] = {0};
        an_utf8_put(point_of[b], c);
        an_json_put(&json, c);
        an_text_puts(&json, ",");
    }
    an_text_puts(&json, "\"<|endoftext|>\"],\"merges\":[]}");
    an_status status = json.failed ? an_fail_nomem(err, "a tokenizer", 4096)
                                   : an_tokenizer_from_json(err, "bytes", json.data, json.len, out);
    an_text_free(&json);
    return status;
}

/* ---- encoding */

/* The symbols of a word: a linked list over its bytes. id -1: merged into an earlier one. */
typedef struct symbol {
    int32_t id, before, next; /* before, next: places, -1 at the ends */
} symbol;

typedef struct scratch {
    symbol *symbols;
    uint64_t *heap; /* rank << 32 | place: the smallest is the best rank, leftmost */
    size_t cap, n_heap;
} scratch;

static void heap_push(scratch *s, uint64_t x)
{
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2] > x; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = x;
}

static uint64_t heap_pop(scratch *s)
{
    uint64_t top = s->heap[0], x = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        child += child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] >= x) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = x;
    return top;
}

/* The merge of the symbol at `place` and its right neighbour: rank << 32 | merged id. */
static bool merge_at(const an_bpe *b, const scratch *s, int32_t place, uint64_t *out)
{
    if (place < 0 || s->symbols[place].id < 0 || s->symbols[place].next < 0) return false;
    uint64_t right = (uint32_t)s->symbols[s->symbols[place].next].id;
    return an_map_get(&b->merges, (uint64_t)(uint32_t)s->symbols[place].id << 32 | right, out);
}

static void offer(const an_bpe *b, scratch *s, int32_t place)
{
    uint64_t merge;
    if (merge_at(b, s, place, &merge)) heap_push(s, (merge >> 32 << 32) | (uint32_t)place);
}

/* n-1 offers at first and at most two for each of n-1 merges: 3n places in the heap are enough. */
static an_status reserve(an_err *err, scratch *s, size_t n)
{
    if (n <= s->cap) return AN_OK;
    if (n > INT32_MAX) return an_fail(err, AN_E_DATA, "a word of %zu bytes is too long", n);
    free(s->symbols);
    free(s->heap);
    s->cap = AN_MAX(n, 256);
    s->symbols = malloc(s->cap * sizeof *s->symbols);
    s->heap = malloc(3 * s->cap * sizeof *s->heap);
    if (s->symbols && s->heap) return AN_OK;
    s->cap = 0;
    return an_fail_nomem(err, "a word to encode", n * (sizeof *s->symbols + 3 * sizeof *s->heap));
}

static an_status encode_word(an_err *err, const an_bpe *b, scratch *s, const char *word, size_t n, an_ids *out)
{
    AN_TRY(reserve(err, s, n));
    s->n_heap = 0;
    int32_t count = (int32_t)n;
    for (int32_t i = 0; i < count; i++)
        s->symbols[i] = (symbol){b->byte_id[(unsigned char)word[i]], i - 1, i + 1 < count ? i + 1 : -1};
    for (int32_t i = 0; i + 1 < count; i++) offer(b, s, i);
    while (s->n_heap > 0) {
        uint64_t best = heap_pop(s), merge;
        int32_t place = (int32_t)(uint32_t)best;
        if (!merge_at(b, s, place, &merge) || merge >> 32 != best >> 32)
            continue; /* its pair was changed by another merge */
        symbol *left = &s->symbols[place], *right = &s->symbols[left->next];
        left->id = (int32_t)(uint32_t)merge;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) s->symbols[left->next].before = place;
        offer(b, s, left->before);
        offer(b, s, place);
    }
    for (int32_t i = 0; i >= 0 && n > 0; i = s->symbols[i].next) AN_TRY(an_ids_push(err, out, s->symbols[i].id));
    return AN_OK;
}

static an_status check_utf8(an_err *err, const char *where, const char *text, size_t n)
{
    uint32_t c;
    for (size_t at = 0; at < n;) {
        int len = an_utf8_next(text + at, n - at, &c);
        if (len == 0)
            return an_fail(err, AN_E_DATA, "%s: byte %zu: not UTF-8; convert the text to UTF-8 first", where, at);
        at += (size_t)len;
    }
    return AN_OK;
}

an_status an_bpe_encode(an_err *err, const an_tokenizer *t, const char *where, const char *text, size_t n, an_ids *out)
{
    AN_TRY(check_utf8(err, where, text, n)); /* once; pcre2 would check all of the text again for every word */
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match) return an_fail_nomem(err, "a match", sizeof match);
    scratch s = {0};
    an_status status = AN_OK;
    for (size_t at = 0; status == AN_OK && at < n;) {
        int found = pcre2_match(t->bpe->pattern, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, match, NULL);
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match);
        if (found < 0 || range[0] != at ||
            range[1] <= at) { /* every character belongs to a word: only pcre2's limits lead here */
            status = an_fail(err, AN_E_DATA,
                             "%s: byte %zu: pcre2 cannot split this text (code %d); is a word there extremely long?",
                             where, at, found);
            break;
        }
        status = encode_word(err, t->bpe, &s, text + at, range[1] - at, out);
        at = range[1];
    }
    free(s.symbols);
    free(s.heap);
    pcre2_match_data_free(match);
    return status;
}
