/* words.h: a tokenizer of whole words. A word is a run of ASCII letters, digits and bytes above 127 (UTF-8); ASCII capitals
 * are read as small letters.
 *
 * Owns:      which words there are and their ids: 1, 2, ... in the order of their bytes. Id 0 is padding.
 * Does not:  encode unknown words: a word outside of the vocabulary has no id and is left out.
 * Invariant: immutable once made; threads may share it. */
#ifndef AN_IO_TEXT_WORDS_H
#define AN_IO_TEXT_WORDS_H

#include "io/formats/json.h"
#include "io/text/tokenizer.h"

enum { AN_WORD_BYTES = 64, AN_WORDS_MOST = 1 << 20 }; /* longer words are cut */

typedef struct an_words an_words;

/* Words are collected from texts, then sealed, which gives them their ids. */
an_status an_words_new(an_err *err, an_words **out);
an_status an_words_add(an_err *err, an_words *w, const char *text, size_t n);
an_status an_words_seal(an_err *err, an_words *w);
void an_words_free(an_words *w); /* NULL is fine */

int64_t an_words_count(const an_words *w); /* ids, padding among them */
size_t an_words_bytes(const an_words *w);
/* Appends the ids of the words that are known, at most `most` of them. */
an_status an_words_encode(an_err *err, const an_words *w, const char *text, size_t n, size_t most, an_ids *out);

/* A JSON array of the words in their order, and back; `where` is where it is from. */
void an_words_json(const an_words *w, an_text *out);
an_status an_words_from_json(an_err *err, const char *where, const json_t *array, an_words **out);

#endif
