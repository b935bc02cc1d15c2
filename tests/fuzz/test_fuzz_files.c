/* Files of tokens and vocabularies. The first byte picks which: 'b' a .bin of token ids with a vocabulary of 300, 'j' a
 * tokenizer.json or meta.json, 'v' a vocab.bpe beside a fixed encoder.json, 'e' an encoder.json beside a fixed
 * vocab.bpe. A token that leaves the data is in the vocabulary; a tokenizer that opens gives back what it encodes. */
#include "platform/platform.h"
#include "io/data/token_data.h"
#include "io/text/tokenizer.h"
#include "fuzz.h"

#include <unistd.h>

enum { VOCAB = 300 };

/* A folder of this process, for the harness too, which has no cmocka around it. */
static const char *path_of(const char *name)
{
    static char folder[64], paths[4][96];
    static int next;
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "%s/anneal-fuzz-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (long)getpid());
        FUZZ_CHECK(an_make_dirs(NULL, folder, 0700) == AN_OK);
    }
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void remove_files(void)
{
    static const char *const names[] = {"x.bin", "x.json", "x.bpe", "."};
    for (size_t i = 0; i < AN_COUNT(names); i++) (void)remove(path_of(names[i]));
}

static void write_file(const char *path, const char *data, size_t bytes)
{
    static bool registered;
    if (!registered) registered = atexit(remove_files) == 0;
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
}

static const char *encoder_json(void)
{
    static an_text json;
    unsigned next = 256;
    if (json.len > 0) return json.data;
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        an_text_printf(&json, "%s\"\\u%04x\":%u", b ? "," : "{", prints ? b : next++, b);
    }
    an_text_puts(&json, ",\"aa\":256,\"aaaa\":257,\"he\":258,\"<|endoftext|>\":259}");
    return json.data;
}
static const char merges[] = "#version: 0.2\na a\naa aa\nh e\n";

static const char *tokenizer_json(void)
{
    static an_text json;
    if (json.len > 0) return json.data;
    an_text_puts(&json, "j{\"added_tokens\":[{\"id\":259,\"content\":\"<|endoftext|>\"}],\"normalizer\":null,"
                        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                        "\"model\":{\"type\":\"BPE\",\"merges\":[\"a a\",[\"aa\",\"aa\"],\"h e\"],\"vocab\":");
    an_text_printf(&json, "%s}}", encoder_json());
    return json.data;
}

static bool check_bin(const char *data, size_t bytes)
{
    enum { T = 4 };
    an_err err = {0};
    an_data *d;
    int32_t x[T], y[T];
    const char *path = path_of("x.bin");
    write_file(path, data, bytes);
    an_status status = an_data_open(&err, &(an_data_options){.source = path, .vocab_size = VOCAB}, &d);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK) return false;
    FUZZ_CHECK(an_data_tokens(d, AN_TRAIN) + an_data_tokens(d, AN_VAL) == (int64_t)bytes / 2);
    for (int split = 0; split < AN_N_SPLITS; split++)
        for (int64_t w = 0; w < an_data_windows(d, split, T); w++) {
            an_err_clear(&err);
            status = an_data_window(&err, d, split, T, w, 1, x, y);
            fuzz_check_sentence(status, &err);
            for (int i = 0; status == AN_OK && i < T; i++)
                FUZZ_CHECK(x[i] >= 0 && x[i] < VOCAB && y[i] >= 0 && y[i] < VOCAB);
        }
    an_data_close(d);
    return true;
}

static bool check_tokenizer(an_status status, const an_err *err, an_tokenizer *t)
{
    static const char text[] = "he aaaaa <|endoftext|> \xc3\xa9";
    an_ids ids = {0};
    an_text back = {0};
    fuzz_check_sentence(status, err);
    FUZZ_CHECK((t != NULL) == (status == AN_OK));
    if (!t) return false;
    an_err own = {0};
    if (an_tokenizer_encode(&own, t, "text", text, sizeof text - 1, true, &ids) == AN_OK) {
        FUZZ_CHECK(an_tokenizer_decode(&own, t, ids.data, ids.len, &back) == AN_OK);
        FUZZ_CHECK(back.len == sizeof text - 1 && memcmp(back.data, text, back.len) == 0);
    }
    an_ids_free(&ids);
    an_text_free(&back);
    an_tokenizer_free(t);
    return true;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_tokenizer *t;
    if (bytes == 0) return false;
    if (data[0] == 'b') return check_bin(data + 1, bytes - 1);
    const char *json = path_of("x.json"), *bpe = path_of("x.bpe");
    if (data[0] == 'v' || data[0] == 'e') {
        const bool is_merges = data[0] == 'v';
        write_file(json, is_merges ? encoder_json() : data + 1, is_merges ? strlen(encoder_json()) : bytes - 1);
        write_file(bpe, is_merges ? data + 1 : merges, is_merges ? bytes - 1 : sizeof merges - 1);
        an_status status = an_tokenizer_gpt2(&err, json, bpe, &t);
        return check_tokenizer(status, &err, t);
    }
    write_file(json, data + 1, bytes - 1);
    an_status status = an_tokenizer_open(&err, json, &t);
    return check_tokenizer(status, &err, t);
}

static fuzz_seed seeds[] = {
    SEED("b\0\0\1\0\2\0\3\0\4\0\5\0\6\0\7\0\x2b\1\0\0"),
    SEED("v#version: 0.2\r\na a\naa aa\nh e\n\n"),
    SEED("j{\"anneal\":\"1\",\"tokenizer\":{\"type\":\"char\",\"code_points\":[10,32,60,62,95,97,101,104]}}"),
    {NULL, 0},
    {NULL, 0},
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    static an_text encoder;
    if (!seeds[3].data) {
        an_text_printf(&encoder, "e%s", encoder_json());
        seeds[3] = (fuzz_seed){tokenizer_json(), strlen(tokenizer_json())};
        seeds[4] = (fuzz_seed){encoder.data, encoder.len};
    }
    *out = seeds;
    return AN_COUNT(seeds);
}
