/* test_bpe.c: GPT-2's BPE over 1.2 MB of languages, emoji, code and broken UTF-8 gives the ids of two references. The
 * text is made here by the generator of tools/bpe_goldens.py, which made the small vocabulary and the expected hashes.
 * With AN_GPT2_DIR, a folder with encoder.json and vocab.bpe, GPT-2's own vocabulary is compared too. */
#include "platform/platform.h"
#include "base/text.h"
#include "io/formats/sha256.h"
#include "io/text/tokenizer.h"
#include "io/text/utf8.h"
#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1200000, SEED = 20260101, MAX_PIECES = 256 };

/* As in the script: ranges of characters whose classes no version of Unicode has changed since 9. */
static const uint32_t ranges[][2] = {
    {0x20, 0x7E},     {0xA1, 0xFF},       {0x100, 0x17F},    {0x3B1, 0x3C9},   {0x410, 0x44F},   {0x5D0, 0x5EA},
    {0x621, 0x63A},   {0x905, 0x939},     {0xE01, 0xE30},    {0x10D0, 0x10F0}, {0x1100, 0x1112}, {0x2010, 0x2027},
    {0x2190, 0x21FF}, {0x2200, 0x22FF},   {0x3041, 0x3096},  {0x30A1, 0x30FA}, {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3},
    {0xFF01, 0xFF5E}, {0x1D400, 0x1D454}, {0x1F600, 0x1F64F}};
static const char *const syllables[] = {
    "th",  "er",  "in",   "ing",  "ion",   "pre",   "con", "st",   "ab",  "le",   "ment", "un",  "re",
    "al",  "ity", "ous",  "str",  "ength", "ly",    "Sh",  "akes", "pe",  "are",  "quo",  "mag", "net",
    "ic",  "ver", "tex",  "com",  "put",   "ation", "der", "wood", "ful", "ness", "bi",   "o",   "gra",
    "phy", "is",  "land", "ock",  "el",    "ton",   "ham", "ber",  "ry",  "cra",  "ft",   "or",  "ig",
    "nal", "wa",  "ter",  "fire", "sun",   "Mon",   "day", "QU",   "eu",  "e"};
static const char *const separators[] = {"", " ", " ", " ", "  ", "\n", "\n\n", "\t", ", ", " \n"};

static uint64_t state;

static uint64_t below(uint64_t n)
{
    state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    uint64_t x = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return ((x ^ (x >> 31)) >> 11) % n;
}

static void put_point(an_text *out, uint32_t c)
{
    char utf8[4];
    an_text_putn(out, utf8, (size_t)an_utf8_put(c, utf8));
}

/* One line of pieces.txt: \n \r \t \\, \xNN a byte, \uN... a code point of four digits, or six that begin with 10. */
static void unescape(const char *p, const char *end, an_text *out)
{
    while (p < end) {
        char digits[8] = {0};
        size_t n = p[0] != '\\' ? 0 : p[1] == 'x' ? 2 : p[1] != 'u' ? 0 : strncmp(p + 2, "10", 2) == 0 ? 6 : 4;
        memcpy(digits, p + 2, n);
        uint32_t value = (uint32_t)strtoul(digits, NULL, 16);
        if (p[0] != '\\')
            an_text_putn(out, p++, 1);
        else if (p[1] == 'x')
            an_text_putn(out, &(char){(char)value}, 1), p += 4;
        else if (p[1] == 'u')
            put_point(out, value), p += 2 + n;
        else
            an_text_putn(out, p[1] == 'n' ? "\n" : p[1] == 'r' ? "\r" : p[1] == 't' ? "\t" : "\\", 1), p += 2;
    }
}

static size_t read_pieces(an_text pieces[MAX_PIECES])
{
    char *text;
    size_t n, count = 0;
    an_err err = {0};
    if (an_file_read(&err, "tests/bpe/pieces.txt", 1 << 20, &text, &n) != AN_OK) fail_msg("%s", err.text);
    for (char *p = text, *eol; (eol = memchr(p, '\n', (size_t)(text + n - p))) != NULL; p = eol + 1) {
        assert_true(count < MAX_PIECES);
        unescape(p, eol, &pieces[count++]);
    }
    free(text);
    return count;
}

static void put_some(an_text *out, const an_text *pieces, size_t n_pieces)
{
    uint64_t kind = below(100);
    if (kind < 50) {
        const an_text *piece = &pieces[below(n_pieces)];
        an_text_putn(out, piece->data, piece->len);
    } else if (kind < 74) {
        for (uint64_t n = 1 + below(4); n > 0; n--) an_text_puts(out, syllables[below(AN_COUNT(syllables))]);
    } else if (kind < 88) {
        const uint32_t *range = ranges[below(AN_COUNT(ranges))];
        for (uint64_t n = 1 + below(12); n > 0; n--)
            put_point(out, range[0] + (uint32_t)below(range[1] - range[0] + 1));
    } else if (kind < 94) {
        for (uint64_t n = 1 + below(6); n > 0; n--) an_text_putn(out, &(char){(char)(0x80 + below(128))}, 1);
    } else {
        char c = (char)(32 + below(95));
        for (uint64_t n = 1 + below(40); n > 0; n--) an_text_putn(out, &c, 1);
    }
    an_text_puts(out, separators[below(AN_COUNT(separators))]);
}

static an_text make_text(void)
{
    an_text pieces[MAX_PIECES] = {{0}}, out = {0};
    size_t n = read_pieces(pieces);
    state = SEED;
    while (out.len < TEXT_BYTES) put_some(&out, pieces, n);
    for (size_t i = 0; i < n; i++) an_text_free(&pieces[i]);
    assert_false(out.failed);
    return out;
}

/* A line of expected.txt: name, count, hash. */
static void compare_line(const char *name, size_t count, const char *sha256)
{
    char *text, line[160];
    size_t n;
    an_err err = {0};
    if (an_file_read(&err, "tests/bpe/expected.txt", 1 << 20, &text, &n) != AN_OK) fail_msg("%s", err.text);
    snprintf(line, sizeof line, "%s %zu %s\n", name, count, sha256);
    if (!strstr(text, line)) fail_msg("%s is not among\n%s", line, text);
    free(text);
}

static an_text repaired_text(void)
{
    char sha256[AN_SHA256_TEXT_BYTES];
    an_text raw = make_text(), out = {0};
    an_sha256(raw.data, raw.len, sha256);
    compare_line("text", raw.len, sha256);
    assert_true(an_utf8_repair(raw.data, raw.len, &out) > 1000);
    an_text_free(&raw);
    return out;
}

static void check_ids(const char *name, const an_tokenizer *t, const an_text *text)
{
    char sha256[AN_SHA256_TEXT_BYTES];
    an_err err = {0};
    an_ids ids = {0};
    an_text back = {0};
    if (an_tokenizer_encode(&err, t, "text", text->data, text->len, false, &ids) != AN_OK) fail_msg("%s", err.text);
    uint16_t *words = malloc(ids.len * sizeof *words);
    assert_non_null(words);
    for (size_t i = 0; i < ids.len; i++) words[i] = (uint16_t)ids.data[i];
    an_sha256(words, ids.len * sizeof *words, sha256);
    compare_line(name, ids.len, sha256);
    assert_int_equal(an_tokenizer_decode(&err, t, ids.data, ids.len, &back), AN_OK);
    assert_int_equal(back.len, text->len);
    assert_memory_equal(back.data, text->data, text->len);
    free(words);
    an_text_free(&back);
    an_ids_free(&ids);
}

static void broken_utf8_is_replaced_as_python_replaces_it(void **unused)
{
    (void)unused;
    char sha256[AN_SHA256_TEXT_BYTES];
    an_text text = repaired_text();
    an_sha256(text.data, text.len, sha256);
    compare_line("repaired", text.len, sha256);
    an_text_free(&text);
}

/* encoder.json of merges.txt: the 256 bytes in GPT-2's order (those that print first), then what each merge makes. */
static void write_encoder(const char *path)
{
    FILE *f = fopen(path, "wb"), *merges = fopen("tests/bpe/merges.txt", "rb");
    char line[256];
    an_text c = {0};
    unsigned next = 256;
    int id = 0;
    assert_true(f && merges);
    for (int pass = 0; pass < 2; pass++)
        for (unsigned b = 0; b < 256; b++) {
            bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
            if (prints == (pass == 0)) fprintf(f, "%s\"\\u%04x\": %d", id ? ", " : "{", prints ? b : next++, id), id++;
        }
    while (fgets(line, sizeof line, merges)) {
        char left[120], right[120];
        if (line[0] == '#' && strncmp(line, "#version", 8) == 0) continue;
        assert_int_equal(sscanf(line, "%119s %119s", left, right), 2);
        an_text_clear(&c);
        for (const char *p = left; *p; p++) an_text_printf(&c, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
        for (const char *p = right; *p; p++) an_text_printf(&c, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
        fprintf(f, ", \"%s\": %d", c.data, id++);
    }
    fprintf(f, "}");
    an_text_free(&c);
    fclose(merges);
    fclose(f);
}

static void ids_are_the_references(void **unused)
{
    (void)unused;
    an_err err = {0};
    an_tokenizer *t;
    const char *encoder = test_path("encoder.json");
    write_encoder(encoder);
    if (an_tokenizer_gpt2(&err, encoder, "tests/bpe/merges.txt", &t) != AN_OK) fail_msg("%s", err.text);
    an_text text = repaired_text();
    check_ids("small", t, &text);
    an_text_free(&text);
    an_tokenizer_free(t);
}

static void gpt2s_own_ids_are_the_references(void **unused)
{
    (void)unused;
    an_err err = {0};
    an_tokenizer *t;
    const char *dir = getenv("AN_GPT2_DIR");
    if (!dir) {
        test_skip("AN_GPT2_DIR is not set: it names a folder with GPT-2's encoder.json and vocab.bpe");
    }
    if (an_tokenizer_open(&err, dir, &t) != AN_OK) fail_msg("%s", err.text);
    an_text text = repaired_text();
    check_ids("gpt2", t, &text);
    an_text_free(&text);
    an_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(broken_utf8_is_replaced_as_python_replaces_it),
                                       cmocka_unit_test(ids_are_the_references)};
    const struct CMUnitTest large[] = {cmocka_unit_test(gpt2s_own_ids_are_the_references)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("AN_SOAK") || getenv("AN_GPT2_DIR")) failed += cmocka_run_group_tests(large, NULL, NULL);
    return failed;
}
