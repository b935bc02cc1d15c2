/* token_data.c: see token_data.h. A batch is computed, not drawn from a stream: sample s of a step is a function of the
 * seed, the step and s alone, so threads and resumed runs agree. Epochs are a keyed permutation of the windows (a
 * Feistel network), which needs no memory. */
#define _DEFAULT_SOURCE
#include "io/data/token_data.h"
#include "base/map.h"
#include "platform/platform.h"
#include "base/rng.h"
#include "io/data/corpus.h"
#include "io/data/order.h"
#include "io/formats/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a .bin file is little-endian and is used in place: a big-endian machine needs a conversion here"
#endif

typedef struct part {
    const uint16_t *tokens;
    int64_t n, first; /* first: place of tokens[0] in the file, for sentences */
    const char *path;
} part;

struct an_data {
    part parts[AN_N_SPLITS];
    char *paths[AN_N_SPLITS];
    an_map_file maps[AN_N_SPLITS];
    uint16_t *owned;
    size_t owned_bytes;
    int64_t vocab;
    const an_tokenizer *tokenizer;
    an_tokenizer *own_tokenizer;
};

enum { MAX_VOCAB = 65536, META_BYTES = 64 << 20 };

/* ---- opening */

static an_status keep_path(an_err *err, an_data *d, int split, const char *dir, const char *name)
{
    size_t n = strlen(dir) + strlen(name) + 2;
    d->paths[split] = malloc(n);
    if (!d->paths[split]) return an_fail_nomem(err, dir, n);
    snprintf(d->paths[split], n, "%s%s%s", dir, *name ? "/" : "", name);
    return AN_OK;
}

static an_status map_bin(an_err *err, an_data *d, int split)
{
    const char *path = d->paths[split];
    AN_TRY(an_file_map(err, path, &d->maps[split]));
    size_t bytes = d->maps[split].bytes;
    if (bytes == 0) return an_fail(err, AN_E_DATA, "%s: the file is empty", path);
    if (bytes % 2 != 0)
        return an_fail(err, AN_E_DATA, "%s: %zu bytes is odd: not a file of 16-bit token ids, or it was cut short",
                       path, bytes);
    d->parts[split] = (part){d->maps[split].data, (int64_t)(bytes / 2), 0, path};
    return AN_OK;
}

/* 90 % as nanoGPT rounds it: int(n * 0.9), in double. */
static int64_t cut_at(int64_t n)
{
    return (int64_t)((double)n * 0.9);
}

/* The tokenizer that the folder of the tokens names. When the caller has one, its ids must mean the same. */
static an_status find_tokenizer(an_err *err, const an_data_options *o, bool folder, an_data *d)
{
    char dir[1024];
    const char *slash = strrchr(o->source, '/');
    if (folder)
        snprintf(dir, sizeof dir, "%s", o->source);
    else
        snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - o->source) : 1, slash ? o->source : ".");
    if (!an_tokenizer_is_in(dir)) return AN_OK;
    AN_TRY(an_tokenizer_open(err, dir, &d->own_tokenizer));
    if (o->tokenizer) return an_tokenizer_match(err, o->source, d->own_tokenizer, o->tokenizer);
    d->tokenizer = d->own_tokenizer;
    if (o->vocab_size == 0 || an_tokenizer_vocab(d->tokenizer) <= o->vocab_size) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s: the tokens are of %d kinds, the model knows %lld; was it trained on other data?", o->source,
                   (int)an_tokenizer_vocab(d->tokenizer), (long long)o->vocab_size);
}

/* The meta.json of anneal prepare says how many tokens each file has: one that was cut in a copy, or is of another set, is noticed. */
static an_status check_counts(an_err *err, const char *folder, const an_data *d)
{
    static const char *const keys[AN_N_SPLITS] = {"train_tokens", "val_tokens"};
    char path[1024];
    json_t *meta = NULL;
    if (snprintf(path, sizeof path, "%s/meta.json", folder) >= (int)sizeof path || access(path, F_OK) != 0)
        return AN_OK;
    an_status status = an_json_read(err, path, META_BYTES, &meta);
    for (int split = 0; status == AN_OK && split < AN_N_SPLITS; split++) {
        const json_t *count = json_object_get(meta, keys[split]);
        const part *p = &d->parts[split];
        if (json_is_integer(count) && json_integer_value(count) != p->n)
            status = an_fail(
                err, AN_E_DATA,
                "%s: %lld tokens, where the %s of meta.json beside it are %lld: the file was cut short or is of "
                "another data set; copy the folder again, or run anneal prepare again",
                p->path, (long long)p->n, keys[split], (long long)json_integer_value(count));
    }
    json_decref(meta);
    return status;
}

static an_status open_bin(an_err *err, const an_data_options *o, bool folder, an_data *d)
{
    AN_TRY(find_tokenizer(err, o, folder, d));
    d->vocab = o->vocab_size > 0 ? o->vocab_size : d->tokenizer ? an_tokenizer_vocab(d->tokenizer) : 0;
    if (d->vocab == 0)
        return an_fail(err, AN_E_USAGE,
                       "%s: there is no meta.json or meta.pkl beside the tokens to say how many ids there are; set "
                       "vocab_size (GPT-2 has 50257)",
                       o->source);
    if (folder) {
        AN_TRY(keep_path(err, d, AN_TRAIN, o->source, "train.bin"));
        AN_TRY(keep_path(err, d, AN_VAL, o->source, "val.bin"));
        AN_TRY(map_bin(err, d, AN_TRAIN));
        AN_TRY(map_bin(err, d, AN_VAL));
        return check_counts(err, o->source, d);
    }
    AN_TRY(keep_path(err, d, AN_TRAIN, o->source, ""));
    AN_TRY(map_bin(err, d, AN_TRAIN));
    part *train = &d->parts[AN_TRAIN], *val = &d->parts[AN_VAL];
    int64_t cut = o->whole ? 0 : cut_at(train->n);
    *val = (part){train->tokens + cut, train->n - cut, cut, train->path};
    train->n = cut;
    return AN_OK;
}

/* The byte at which validation starts. Bytes that are not UTF-8 are reported later, by the tokenizer. */
static size_t cut_text(const char *text, size_t n)
{
    int64_t characters = 0;
    for (size_t i = 0; i < n; i++) characters += ((unsigned char)text[i] & 0xC0) != 0x80;
    int64_t cut = cut_at(characters), at = -1;
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)text[i] & 0xC0) != 0x80 && ++at == cut) return i;
    return n;
}

static an_status encode_text(an_err *err, const an_data_options *o, const char *where, const char *text, size_t n,
                             an_data *d)
{
    if (!o->tokenizer) AN_TRY(an_tokenizer_chars(err, where, text, n, &d->own_tokenizer));
    d->tokenizer = o->tokenizer ? o->tokenizer : d->own_tokenizer;
    d->vocab = an_tokenizer_vocab(d->tokenizer);
    if (d->vocab > MAX_VOCAB)
        return an_fail(err, AN_E_DATA, "%s: %lld different tokens: at most %d are possible", where, (long long)d->vocab,
                       MAX_VOCAB);
    size_t cut = o->whole ? 0 : cut_text(text, n), train = 0;
    an_ids ids = {0};
    an_status status = an_tokenizer_encode(err, d->tokenizer, where, text, cut, false, &ids);
    if (status == AN_OK) {
        train = ids.len;
        status = an_tokenizer_encode(err, d->tokenizer, where, text + cut, n - cut, false, &ids);
    }
    d->owned_bytes = ids.len * sizeof *d->owned;
    if (status == AN_OK && (d->owned = malloc(d->owned_bytes + 1)) == NULL)
        status = an_fail_nomem(err, where, d->owned_bytes);
    if (status == AN_OK) {
        for (size_t i = 0; i < ids.len; i++) d->owned[i] = (uint16_t)ids.data[i];
        d->parts[AN_TRAIN] = (part){d->owned, (int64_t)train, 0, where};
        d->parts[AN_VAL] = (part){d->owned + train, (int64_t)(ids.len - train), (int64_t)train, where};
    }
    an_ids_free(&ids);
    return status;
}

static an_status open_text(an_err *err, const an_data_options *o, an_data *d)
{
    AN_TRY(keep_path(err, d, AN_TRAIN, o->source, ""));
    an_map_file map;
    AN_TRY(an_file_map(err, o->source, &map));
    an_status status = map.bytes > 0 ? encode_text(err, o, d->paths[AN_TRAIN], map.data, map.bytes, d)
                                     : an_fail(err, AN_E_DATA, "%s: the file is empty", o->source);
    an_file_unmap(&map);
    return status;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static an_status open_source(an_err *err, const an_data_options *o, an_data *d)
{
    d->tokenizer = o->tokenizer;
    if (strcmp(o->source, "corpus") == 0)
        return encode_text(err, o, "corpus", (const char *)an_corpus, an_corpus_bytes, d);
    struct stat info;
    bool folder = stat(o->source, &info) == 0 && S_ISDIR(info.st_mode);
    return folder || ends_with(o->source, ".bin") ? open_bin(err, o, folder, d) : open_text(err, o, d);
}

an_status an_data_open(an_err *err, const an_data_options *o, an_data **out)
{
    *out = NULL;
    an_data *d = calloc(1, sizeof *d);
    if (!d) return an_fail_nomem(err, o->source, sizeof *d);
    an_status status = open_source(err, o, d);
    if (status == AN_OK)
        *out = d;
    else
        an_data_close(d);
    return status;
}

void an_data_close(an_data *d)
{
    if (!d) return;
    for (int i = 0; i < AN_N_SPLITS; i++) {
        an_file_unmap(&d->maps[i]);
        free(d->paths[i]);
    }
    free(d->owned);
    an_tokenizer_free(d->own_tokenizer);
    free(d);
}

int64_t an_data_tokens(const an_data *d, int split)
{
    return d->parts[split].n;
}
int64_t an_data_vocab(const an_data *d)
{
    return d->vocab;
}
const an_tokenizer *an_data_tokenizer(const an_data *d)
{
    return d->tokenizer;
}
size_t an_data_bytes(const an_data *d)
{
    return d->owned_bytes;
}

/* ---- batches */

/* Copies T tokens and the T one later. The largest id is found in the same loop at no cost; its position is
 * searched only when it is out of range. */
static an_status gather(an_err *err, const an_data *d, const part *p, int64_t at, int64_t T, int32_t *x, int32_t *y)
{
    const uint16_t *t = p->tokens + at;
    int32_t most = t[0];
    for (int64_t i = 0; i < T; i++) {
        x[i] = t[i];
        y[i] = t[i + 1];
        most = AN_MAX(most, y[i]);
    }
    if (most < d->vocab) return AN_OK;
    int64_t i = 0;
    while (t[i] < d->vocab) i++;
    return an_fail(
        err, AN_E_DATA,
        "%s: byte %lld: token id %d is outside the vocabulary of %lld; was the file made with another tokenizer?",
        p->path, (long long)(2 * (p->first + at + i)), (int)t[i], (long long)d->vocab);
}

static an_status check_length(an_err *err, const part *p, int split, int64_t T)
{
    if (T > 0 && p->n > T) return AN_OK;
    return an_fail(
        err, AN_E_DATA,
        "%s: the %s split has %lld tokens, a sample of %lld needs one more than that; set a smaller block_size",
        p->path, split == AN_TRAIN ? "training" : "validation", (long long)p->n, (long long)T);
}

an_status an_data_check(an_err *err, const an_data *d, int64_t T)
{
    for (int split = 0; split < AN_N_SPLITS; split++) AN_TRY(check_length(err, &d->parts[split], split, T));
    return AN_OK;
}

/* First token of sample `s` of the step, of `range` possible ones. */
static int64_t start_of(const an_batch *b, uint64_t step, uint64_t s, uint64_t range)
{
    uint32_t stream = an_rng_stream(an_hash("data", 4, 0), (uint32_t)b->split), key = an_rng_key(b->seed, step);
    uint64_t windows = range / (uint64_t)b->T, number = step * (uint64_t)b->per_step + s;
    if (b->per_step > 0 && windows > 1) {
        key = an_rng_key(b->seed, number / windows); /* of the epoch */
        uint64_t spare = range - (windows - 1) * (uint64_t)b->T;
        uint64_t u = (uint64_t)an_rng_u32(key, ~stream, 0) << 32 | an_rng_u32(key, ~stream, 1);
        return (int64_t)(an_multiply_high(u, spare) +
                         an_shuffled(number % windows, windows, key, stream) * (uint64_t)b->T);
    }
    uint64_t u = (uint64_t)an_rng_u32(key, stream, 2 * s) << 32 | an_rng_u32(key, stream, 2 * s + 1);
    return (int64_t)an_multiply_high(u, range);
}

an_status an_data_batch(an_err *err, const an_data *d, const an_batch *b, uint64_t step, int32_t *x, int32_t *y)
{
    const part *p = &d->parts[b->split];
    AN_TRY(check_length(err, p, b->split, b->T));
    for (int64_t i = 0; i < b->B; i++) {
        int64_t at = start_of(b, step, (uint64_t)(b->first + i), (uint64_t)(p->n - b->T));
        AN_TRY(gather(err, d, p, at, b->T, x + i * b->T, y + i * b->T));
    }
    return AN_OK;
}

int64_t an_data_windows(const an_data *d, int split, int64_t T)
{
    return d->parts[split].n > 0 ? (d->parts[split].n - 1) / T : 0;
}

an_status an_data_window(an_err *err, const an_data *d, int split, int64_t T, int64_t first, int64_t count, int32_t *x,
                         int32_t *y)
{
    const part *p = &d->parts[split];
    AN_TRY(check_length(err, p, split, T));
    if (first < 0 || count < 0 || first + count > an_data_windows(d, split, T))
        return an_fail(err, AN_E_USAGE, "%s: windows %lld to %lld are asked for, there are %lld", p->path,
                       (long long)first, (long long)(first + count), (long long)an_data_windows(d, split, T));
    for (int64_t i = 0; i < count; i++) AN_TRY(gather(err, d, p, (first + i) * T, T, x + i * T, y + i * T));
    return AN_OK;
}
