/* language.c: the task `language`: predicts the next token of a text, from token files or a text file
 * (io/data/token_data.h).
 *
 * A sample is a window of block_size tokens with the token after each as its label. The model's settings have
 * block_size and vocab_size; a vocab_size of 0 is settled by the tokenizer. */
#define _DEFAULT_SOURCE
#include "train/tasks/language.h"
#include "io/data/token_data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct language_settings {
    an_train_text tokenizer;
} language_settings;

static const an_config_field fields[] = {
    {"tokenizer", AN_CONFIG_TEXT, offsetof(language_settings, tokenizer), "char", 0, 0, NULL,
     "of a text: char, or a folder with GPT-2's encoder.json and vocab.bpe"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

typedef struct language_data {
    an_task_data head;
    an_tokenizer *own_tokenizer;
    an_data *tokens; /* NULL: opened without data */
    int64_t T;       /* tokens in a sample */
    an_train_text source;
} language_data;

enum { NO_LABEL = -1 }; /* of positions that count nothing */

static const language_data *language(const an_task_data *d)
{
    return (const language_data *)d;
}

/* ---- opening, in order: tokenizer, data, vocabulary */

/* Opens the vocabulary that Hugging Face keeps beside the weights, if there is one. */
static void open_tokenizer_beside(const an_st *from, language_data *d)
{
    char folder[AN_CKPT_PATH_BYTES];
    const char *path = an_st_path(from), *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (an_tokenizer_open(NULL, folder, &d->own_tokenizer) != AN_OK) d->own_tokenizer = NULL;
}

/* That of the checkpoint that weights come from, so that its ids keep their meaning; else what the settings name. */
static an_status open_tokenizer(an_err *err, const an_train_config *c, const an_st *from, int flags, language_data *d)
{
    const language_settings *s = (const void *)c->task_settings.bytes;
    const char *json = from ? an_st_meta(from, AN_CKPT_TOKENIZER) : NULL;
    const bool named = strcmp(s->tokenizer, "char") != 0;
    if (json)
        AN_TRY(an_tokenizer_from_json(err, an_st_path(from), json, strlen(json), &d->own_tokenizer));
    else if (named)
        AN_TRY(an_tokenizer_open(err, s->tokenizer, &d->own_tokenizer));
    else if (from)
        open_tokenizer_beside(from, d);
    if (json && named && flags & AN_OPEN_INITIAL)
        AN_TRY(an_tokenizer_check_named(err, s->tokenizer, an_st_path(from), d->own_tokenizer));
    d->head.tokenizer = d->own_tokenizer;
    return AN_OK;
}

static bool exists(const char *folder, const char *name)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%s%s%s", folder, *name ? "/" : "", name);
    return access(path, F_OK) == 0;
}

/* nanoGPT's dataset=NAME is the folder data/NAME. For its own settings files, where that folder has no meta.pkl, the
 * ids are GPT-2's, whose number it rounds up to a multiple of 64. */
static an_status find_data(an_err *err, an_train_config *c)
{
    const char *dot = strrchr(c->preset, '.');
    char folder[AN_CONFIG_TEXT_BYTES + 8];
    char *data = c->data;
    int64_t *vocab = an_train_number(c, "vocab_size");
    if (strcmp(data, "corpus") == 0) return AN_OK;
    if (!exists(data, "")) {
        if (strchr(data, '/')) return an_fail(err, AN_E_IO, "data=%s: no such file or folder", data);
        snprintf(folder, sizeof folder, "data/%s", data);
        if (!exists(folder, "") || strlen(folder) >= sizeof c->data)
            return an_fail(err, AN_E_IO, "data=%s: no such file or folder, and no data/%s; anneal prepare makes one",
                           data, data);
        memcpy(data, folder, strlen(folder) + 1);
    }
    const bool known = *vocab > 0 || exists(data, "meta.pkl") || exists(data, "meta.json");
    if (!known && exists(data, "train.bin") && dot && strcmp(dot, ".py") == 0) *vocab = 50304;
    return AN_OK;
}

static an_status open_data(an_err *err, an_train_config *c, bool whole, language_data *d)
{
    AN_TRY(find_data(err, c));
    const an_data_options o = {.source = c->data,
                               .tokenizer = d->own_tokenizer,
                               .vocab_size = *an_train_number(c, "vocab_size"),
                               .whole = whole};
    AN_TRY(an_data_open(err, &o, &d->tokens));
    d->head.loaded = true;
    d->head.built_in = strcmp(c->data, "corpus") == 0;
    d->head.tokenizer = an_data_tokenizer(d->tokens);
    d->head.bytes = an_data_bytes(d->tokens);
    for (int split = 0; split < AN_N_SPLITS; split++) d->head.units[split] = an_data_tokens(d->tokens, split);
    return AN_OK;
}

static an_status settle_vocabulary(an_err *err, an_train_config *c, const language_data *d)
{
    int64_t *vocab = an_train_number(c, "vocab_size");
    const an_tokenizer *t = d->head.tokenizer;
    const int64_t have = d->tokens ? an_data_vocab(d->tokens) : t ? an_tokenizer_vocab(t) : 0;
    if (*vocab == 0) *vocab = have;
    if (*vocab == 0) return an_fail(err, AN_E_USAGE, "the number of token ids is not known: set vocab_size, or data=");
    if (have <= *vocab) return AN_OK;
    return an_fail(err, AN_E_USAGE, "vocab_size=%lld, but %s has %lld different tokens", (long long)*vocab, c->data,
                   (long long)have);
}

static void close_language(an_task_data *d)
{
    language_data *l = (language_data *)d;
    an_data_close(l->tokens);
    an_tokenizer_free(l->own_tokenizer);
}

static an_status open_language(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *data)
{
    if (!an_train_number(c, "vocab_size") || !an_train_number(c, "block_size"))
        return an_fail(err, AN_E_USAGE, "task=language: the model %s reads no tokens", c->model->name);
    language_data *d = (language_data *)data;
    an_status status = open_tokenizer(err, c, from, flags, d);
    if (status == AN_OK && (flags & AN_OPEN_DATA)) status = open_data(err, c, flags & AN_OPEN_WHOLE_FILE, d);
    if (status == AN_OK) status = settle_vocabulary(err, c, d);
    d->T = *an_train_number(c, "block_size");
    memcpy(d->source, c->data, sizeof d->source);
    return status;
}

/* The characters of Shakespeare. */
static const an_task_size sizes[] = {{"vocab_size", 65}, {NULL, 0}};

/* ---- batches and evaluation samples */

static an_status check(an_err *err, const an_task_data *d)
{
    return an_data_check(err, language(d)->tokens, language(d)->T);
}

static an_status batch(an_err *err, const an_task_data *d, const an_sample_range *draw, uint64_t step,
                       void *const *array)
{
    const an_batch b = {.split = draw->split,
                        .seed = draw->seed,
                        .first = draw->first,
                        .B = draw->samples,
                        .T = language(d)->T,
                        .per_step = draw->per_step};
    return an_data_batch(err, language(d)->tokens, &b, step, array[0], array[1]);
}

static an_status count(an_err *err, const an_task_data *d, int split, int64_t *out)
{
    const language_data *l = language(d);
    *out = an_data_windows(l->tokens, split, l->T);
    if (*out > 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s: %lld tokens are not one window of block_size=%lld and its next token",
                   l->source, (long long)d->units[split], (long long)l->T);
}

static an_status read_windows(an_err *err, const an_task_data *d, int split, int64_t first, int64_t n, int64_t room,
                              void *const *array)
{
    const language_data *l = language(d);
    int32_t *x = array[0], *y = array[1]; /* [room,T] */
    AN_TRY(an_data_window(err, l->tokens, split, l->T, first, n, x, y));
    for (int64_t i = n * l->T; i < room * l->T; i++) {
        x[i] = 0;
        y[i] = NO_LABEL;
    }
    return AN_OK;
}

/* ---- a hash of the data */

enum { WINDOW = 1024, MOST = 4096, SPREAD = 1024 };

/* The first token, and the last up to WINDOW: what windows leave over, and all of a split that is shorter. */
static bool hash_ends(const an_data *d, int split, an_hasher *h)
{
    int32_t x[WINDOW], y[WINDOW];
    const int64_t n = an_data_tokens(d, split), last = AN_MIN(n - 1, WINDOW);
    return last > 0 && an_data_window(NULL, d, split, 1, n - 1 - last, last, x, y) == AN_OK &&
           an_hasher_add(h, x, sizeof x[0]) && an_hasher_add(h, y, (size_t)last * sizeof y[0]);
}

/* XXH3-128 of a split's tokens, as little-endian int32: of all of them; of more than 4 Mi tokens, of 1024 windows of
 * 1024 spread evenly, and of the last 1024. */
static void hash(const an_task_data *task, int split, char out[AN_HASH_TEXT_BYTES])
{
    const an_data *d = language(task)->tokens;
    int32_t x[WINDOW], y[WINDOW];
    const int64_t windows = an_data_windows(d, split, WINDOW), used = windows > MOST ? SPREAD : windows;
    an_hasher h = an_hasher_begin();
    bool ok = true;
    for (int64_t i = 0; i < used && ok; i++) {
        const int64_t at = windows > MOST ? i * (windows / SPREAD) : i;
        ok = an_data_window(NULL, d, split, WINDOW, at, 1, x, y) == AN_OK && an_hasher_add(&h, x, sizeof x);
    }
    ok = ok && hash_ends(d, split, &h);
    an_hasher_end_text(&h, ok, out);
}

const an_task an_language_task = {.name = "language",
                                  .unit = "token",
                                  .units = "tokens",
                                  .unit_rate = "tok/s",
                                  .sample = "window",
                                  .built_in = "the built-in text (data=FILE for your own)",
                                  .next = "write with\n    anneal sample",
                                  .next_argument = "",
                                  .keys = &keys,
                                  .settings_bytes = sizeof(language_settings),
                                  .data_bytes = sizeof(language_data),
                                  .open = open_language,
                                  .close = close_language,
                                  .sizes = sizes,
                                  .units_key = "block_size",
                                  .check = check,
                                  .hash = hash,
                                  .batch = batch,
                                  .count = count,
                                  .read = read_windows};
