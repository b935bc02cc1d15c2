/* tokenizer.h: text to token ids and back: characters, or GPT-2's byte-level byte pair encoding.
 *
 * Owns:      vocabularies, encoding and decoding.
 * Does not:  read corpora, know models or datasets.
 *
 * Character tokenizer: the sorted code points of a text; id = place in that order (nanoGPT's rule). Text outside of the
 * vocabulary is an error that names the character and its position.
 * BPE (Sennrich, Haddow, Birch, ACL 2016, on bytes as in GPT-2, Radford et al. 2019): any UTF-8 text can be encoded,
 * and decode(encode(text)) == text. Encoding a word of n bytes takes O(n log n). Both are stored as JSON (in a
 * checkpoint's metadata), so that a checkpoint needs no other file to be sampled from. A tokenizer is immutable once
 * made: threads may share it. */
#ifndef AN_IO_TEXT_TOKENIZER_H
#define AN_IO_TEXT_TOKENIZER_H

#include "base/base.h"
#include "base/text.h"

typedef struct an_tokenizer an_tokenizer;

/* Token ids that grow; zero-initialised, released with an_ids_free. */
typedef struct an_ids {
    int32_t *data;
    size_t len, cap;
} an_ids;
an_status an_ids_push(an_err *err, an_ids *ids, int32_t id);
void an_ids_free(an_ids *ids);

/* From the characters of a text of `n` bytes; `where` is its name in sentences. */
an_status an_tokenizer_chars(an_err *err, const char *where, const char *text, size_t n, an_tokenizer **out);
/* From whatever of these `path` is, or has in it when it is a folder, the first of: meta.json (anneal prepare),
 * meta.pkl (nanoGPT, of characters), tokenizer.json (Hugging Face, byte-level BPE with GPT-2's splitting), encoder.json
 * and vocab.bpe (OpenAI), vocab.json and merges.txt (the same under Hugging Face's names). */
an_status an_tokenizer_open(an_err *err, const char *path, an_tokenizer **out);
/* Whether a folder of tokens says which tokenizer made them (meta.json, meta.pkl). */
bool an_tokenizer_is_in(const char *folder);
/* From GPT-2's two files: encoder.json {token: id} and vocab.bpe (a comment line, then one merge a line). */
an_status an_tokenizer_gpt2(an_err *err, const char *encoder_path, const char *merges_path, an_tokenizer **out);
/* From the JSON that an_tokenizer_json wrote; `where` names its origin. */
an_status an_tokenizer_from_json(an_err *err, const char *where, const char *json, size_t n, an_tokenizer **out);
an_status an_tokenizer_json(an_err *err, const an_tokenizer *t, an_text *out);
/* From code points in ascending order, the ids 0, 1, ...; `where` names their origin. */
an_status an_tokenizer_points(an_err *err, const char *where, const uint32_t *points, size_t n, an_tokenizer **out);
/* The 256 bytes and <|endoftext|>, without merges: needs no file. */
an_status an_tokenizer_bytes(an_err *err, an_tokenizer **out);
void an_tokenizer_free(an_tokenizer *t);

int32_t an_tokenizer_vocab(const an_tokenizer *t);
const char *an_tokenizer_kind(const an_tokenizer *t); /* "char" or "bpe" */
int32_t an_tokenizer_end(const an_tokenizer *t);      /* id of <|endoftext|>, -1 when there is none */
/* Whether ids made with `data` mean the same to a model made with `model`; else AN_E_DATA and the first that does not.
 * `model` may know more of them. `where` is where `data` comes from, for the sentence. */
an_status an_tokenizer_match(an_err *err, const char *where, const an_tokenizer *data, const an_tokenizer *model);
/* Whether the tokenizer at `path`, which a user names, is that of the weights in `from`, `model`: as many ids, of the same
 * meaning; else AN_E_USAGE with both names and the first id that differs. */
an_status an_tokenizer_check_named(an_err *err, const char *path, const char *from, const an_tokenizer *model);

/* Appends the ids of `n` bytes of text. With `special`, the text <|endoftext|> is its one token; without, it is text.
 */
an_status an_tokenizer_encode(an_err *err, const an_tokenizer *t, const char *where, const char *text, size_t n,
                              bool special, an_ids *out);
/* Appends bytes. With BPE a single token may be part of a character. */
an_status an_tokenizer_decode(an_err *err, const an_tokenizer *t, const int32_t *ids, size_t n, an_text *out);

#endif
