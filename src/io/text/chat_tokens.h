/* chat_tokens.h: the special tokens that mark the turns of a conversation: adds them to a BPE tokenizer, encodes turns with
 * them, and writes such a tokenizer as a folder that Hugging Face reads.
 *
 *     <|user|>Hello.<|enduser|><|sep|><|assistant|>Hi!<|endassistant|><|endoftext|>
 *
 * Owns:      their names and ids, and how a turn becomes ids.
 * Does not:  read conversations (io/data/conversations.h).
 * Invariant: a turn's text never becomes a special token: "<|user|>" written in it is encoded as ordinary characters.
 */
#ifndef AN_IO_TEXT_CHAT_TOKENS_H
#define AN_IO_TEXT_CHAT_TOKENS_H

#include "io/text/tokenizer.h"

typedef enum an_chat_role { AN_CHAT_USER, AN_CHAT_ASSISTANT, AN_CHAT_SYSTEM } an_chat_role;

typedef struct an_chat_tokens {
    int32_t pad, begin, end, sep;
    int32_t open[3], close[3]; /* by role */
} an_chat_tokens;

/* `t` with those of the tokens that it lacks, the first new id being its vocabulary: <|pad|> <|startoftext|> <|sep|>
 * <|user|> <|enduser|> <|assistant|> <|endassistant|> <|system|> <|endsystem|>. Takes `t` on success. AN_E_DATA for a
 * tokenizer of characters. */
an_status an_chat_tokens_add(an_err *err, an_tokenizer **t, an_chat_tokens *out);
/* Looks them up in a tokenizer that must have them all; `where` is for the error. */
an_status an_chat_tokens_find(an_err *err, const char *where, const an_tokenizer *t, an_chat_tokens *out);

/* Appends the ids of a turn, without <|sep|>. With `open` the closing token is left out, so that a model continues it. */
an_status an_chat_turn(an_err *err, const an_tokenizer *t, const an_chat_tokens *c, const char *where,
                       an_chat_role role, const char *text, size_t n, bool open, an_ids *out);

/* FOLDER/tokenizer.json, tokenizer_config.json and special_tokens_map.json, which an_tokenizer_open and Hugging Face's
 * AutoTokenizer read. */
an_status an_chat_tokenizer_write(an_err *err, const an_tokenizer *t, const char *folder, int64_t max_length);

#endif
