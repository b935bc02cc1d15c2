/* words.c: see words.h. The words lie one behind the other in one text; a map finds them by a hash of their bytes, and
 * the bytes are compared. Two words of one hash (64 bits) are told apart by trying the next hash. */
#include "io/text/words.h"
#include "base/map.h"
#include <stdlib.h>
#include <string.h>

typedef struct word {
    size_t at;
    uint32_t n, id;
} word;

struct an_words {
    an_text bytes; /* of all words */
    word *list;    /* in the order of their first appearance; ids are given by `seal` */
    int32_t n, cap;
    an_map map; /* hash -> place in `list` */
};

an_status an_words_new(an_err *err, an_words **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? AN_OK : an_fail_nomem(err, "a vocabulary of words", sizeof **out);
}

void an_words_free(an_words *w)
{
    if (!w) return;
    an_text_free(&w->bytes);
    free(w->list);
    an_map_free(&w->map);
    free(w);
}

/* The next word of the text in small letters; its length, 0 at the end. *at is moved behind it. */
static uint32_t next_word(const char *text, size_t n, size_t *at, char out[AN_WORD_BYTES])
{
    uint32_t length = 0;
    for (; *at < n; ++*at) {
        const unsigned char c = (unsigned char)text[*at];
        const bool capital = c >= 'A' && c <= 'Z';
        if (!capital && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c < 128) {
            if (length > 0) break;
            continue;
        }
        if (length < AN_WORD_BYTES) out[length++] = (char)(capital ? c + 32 : c);
    }
    return length;
}

/* The place of a word in the list, or -1, and the hash under which it is or would be. */
static int32_t find(const an_words *w, const char *text, uint32_t n, uint64_t *hash)
{
    uint64_t place;
    for (uint64_t seed = 0;; seed++) {
        *hash = an_hash(text, n, seed);
        if (!an_map_get(&w->map, *hash, &place)) return -1;
        const word *found = &w->list[place];
        if (found->n == n && memcmp(w->bytes.data + found->at, text, n) == 0) return (int32_t)place;
    }
}

static an_status add_word(an_err *err, an_words *w, const char *text, uint32_t n)
{
    uint64_t hash;
    if (find(w, text, n, &hash) >= 0) return AN_OK;
    if (w->n >= AN_WORDS_MOST - 1)
        return an_fail(err, AN_E_DATA, "the texts have more than %d different words; use tokenizer=FOLDER",
                       AN_WORDS_MOST);
    if (!an_grow((void **)&w->list, w->n, &w->cap, sizeof *w->list))
        return an_fail_nomem(err, "a vocabulary of words", (size_t)w->n * sizeof *w->list);
    w->list[w->n] = (word){.at = w->bytes.len, .n = n};
    an_text_putn(&w->bytes, text, n);
    if (w->bytes.failed || !an_map_set(&w->map, hash, (uint64_t)w->n))
        return an_fail_nomem(err, "a vocabulary of words", w->bytes.len);
    w->n++;
    return AN_OK;
}

an_status an_words_add(an_err *err, an_words *w, const char *text, size_t n)
{
    char word[AN_WORD_BYTES];
    size_t at = 0;
    for (uint32_t length; (length = next_word(text, n, &at, word)) > 0;) AN_TRY(add_word(err, w, word, length));
    return AN_OK;
}

/* For qsort, which passes no context: a word and where it is. */
typedef struct sorted {
    const char *text;
    uint32_t n, place;
} sorted;

static int by_bytes(const void *a, const void *b)
{
    const sorted *x = a, *y = b;
    const int order = memcmp(x->text, y->text, AN_MIN(x->n, y->n));
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static sorted *sort_words(const an_words *w)
{
    sorted *s = calloc((size_t)w->n + 1, sizeof *s);
    for (int32_t i = 0; s && i < w->n; i++) s[i] = (sorted){w->bytes.data + w->list[i].at, w->list[i].n, (uint32_t)i};
    if (s && w->n > 1) qsort(s, (size_t)w->n, sizeof *s, by_bytes);
    return s;
}

an_status an_words_seal(an_err *err, an_words *w)
{
    sorted *s = sort_words(w);
    if (!s) return an_fail_nomem(err, "a vocabulary of words", (size_t)w->n * sizeof *s);
    for (int32_t i = 0; i < w->n; i++) w->list[s[i].place].id = (uint32_t)i + 1;
    free(s);
    return AN_OK;
}

int64_t an_words_count(const an_words *w)
{
    return (int64_t)w->n + 1;
}

size_t an_words_bytes(const an_words *w)
{
    return w->bytes.cap + (size_t)w->cap * sizeof *w->list + w->map.cap * 24;
}

an_status an_words_encode(an_err *err, const an_words *w, const char *text, size_t n, size_t most, an_ids *out)
{
    char word[AN_WORD_BYTES];
    size_t at = 0, count = 0;
    uint64_t hash;
    for (uint32_t length; count < most && (length = next_word(text, n, &at, word)) > 0;) {
        const int32_t place = find(w, word, length, &hash);
        if (place < 0) continue;
        AN_TRY(an_ids_push(err, out, (int32_t)w->list[place].id));
        count++;
    }
    return AN_OK;
}

void an_words_json(const an_words *w, an_text *out)
{
    sorted *s = sort_words(w);
    out->failed |= s == NULL;
    an_text_puts(out, "[");
    for (int32_t i = 0; s && i < w->n; i++) {
        char text[AN_WORD_BYTES + 1] = {0};
        memcpy(text, s[i].text, s[i].n);
        if (i > 0) an_text_puts(out, ",");
        an_json_put(out, text);
    }
    an_text_puts(out, "]");
    free(s);
}

an_status an_words_from_json(an_err *err, const char *where, const json_t *array, an_words **out)
{
    char word[AN_WORD_BYTES];
    *out = NULL;
    if (!json_is_array(array) || json_array_size(array) >= AN_WORDS_MOST)
        return an_fail(err, AN_E_IO, "%s: its vocabulary is no list of words; the file is damaged", where);
    an_words *w;
    AN_TRY(an_words_new(err, &w));
    an_status status = AN_OK;
    for (size_t i = 0; i < json_array_size(array) && status == AN_OK; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        const size_t n = text ? strlen(text) : 0;
        size_t at = 0;
        const uint32_t length = text ? next_word(text, n, &at, word) : 0;
        if (length == 0 || length != n || memcmp(word, text, n) != 0)
            status = an_fail(err, AN_E_IO, "%s: word %zu of its vocabulary is none; the file is damaged", where, i);
        else
            status = add_word(err, w, word, length);
        if (status == AN_OK && w->n != (int32_t)i + 1)
            status =
                an_fail(err, AN_E_IO, "%s: word %zu of its vocabulary is there twice; the file is damaged", where, i);
    }
    if (status == AN_OK) status = an_words_seal(err, w);
    if (status == AN_OK)
        *out = w;
    else
        an_words_free(w);
    return status;
}
