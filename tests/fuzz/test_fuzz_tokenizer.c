/* Tokenizers: the first byte picks what the rest is: JSON of a tokenizer, or text to encode with a small BPE. A
 * tokenizer that opens comes back from its own JSON; text that is taken comes back from its ids. */
#include "io/text/tokenizer.h"
#include "fuzz.h"

/* {"type":"bpe", ...} over the 256 bytes and a few merges. */
static const char *bpe_json(void)
{
    static an_text json;
    unsigned next = 256;
    if (json.len > 0) return json.data;
    an_text_puts(&json, "{\"type\":\"bpe\",\"tokens\":[");
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        an_text_printf(&json, "%s\"\\u%04x\"", b ? "," : "", prints ? b : next++);
    }
    an_text_puts(&json,
                 ",\"aa\",\"aaaa\",\"\\u0120a\",\"he\",\"<|endoftext|>\"],\"merges\":[97,97,256,256,32,97,104,101]}");
    return json.data;
}

static void check_round_trip(const an_tokenizer *t, const char *text, size_t n)
{
    an_err err = {0};
    an_ids ids = {0};
    an_text back = {0};
    for (int special = 0; special < 2; special++) {
        ids.len = 0;
        an_text_clear(&back);
        an_status status = an_tokenizer_encode(&err, t, "fuzz", text, n, special != 0, &ids);
        fuzz_check_sentence(status, &err);
        an_err_clear(&err);
        if (status != AN_OK) continue;
        FUZZ_CHECK(an_tokenizer_decode(&err, t, ids.data, ids.len, &back) == AN_OK);
        FUZZ_CHECK(back.len == n && (n == 0 || memcmp(back.data, text, n) == 0));
    }
    an_ids_free(&ids);
    an_text_free(&back);
}

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_tokenizer *t, *again;
    an_text json = {0};
    if (bytes == 0) return false;
    if (data[0] == 't') {
        FUZZ_CHECK(an_tokenizer_from_json(&err, "own", bpe_json(), strlen(bpe_json()), &t) == AN_OK);
        check_round_trip(t, data + 1, bytes - 1);
        an_tokenizer_free(t);
        if (an_tokenizer_chars(&err, "fuzz", data + 1, bytes - 1, &t) != AN_OK) return false;
        check_round_trip(t, data + 1, bytes - 1);
        an_tokenizer_free(t);
        return true;
    }
    an_status status = an_tokenizer_from_json(&err, "fuzz", data, bytes, &t);
    fuzz_check_sentence(status, &err);
    FUZZ_CHECK((t != NULL) == (status == AN_OK));
    if (!t) return false;
    check_round_trip(t, "a he<|endoftext|> aaaaa", 23);
    FUZZ_CHECK(an_tokenizer_json(&err, t, &json) == AN_OK);
    FUZZ_CHECK(an_tokenizer_from_json(&err, "again", json.data, json.len, &again) == AN_OK);
    FUZZ_CHECK(an_tokenizer_vocab(again) == an_tokenizer_vocab(t));
    an_text_free(&json);
    an_tokenizer_free(t);
    an_tokenizer_free(again);
    return true;
}

static fuzz_seed seeds[] = {
    SEED("{\"type\":\"char\",\"code_points\":[10,32,97,101,104,8364]}"),
    SEED("ta hello 'll 12 aaaaa<|endoftext|>\n\n  x"),
    SEED("t\xc3\xa9\xe2\x82\xac \xf0\x9f\x98\x80\xc2\x85 a"),
    {NULL, 0}, /* the BPE's JSON */
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    seeds[3] = (fuzz_seed){bpe_json(), strlen(bpe_json())};
    *out = seeds;
    return AN_COUNT(seeds);
}
