/* chat_set.h: data sets of conversations in the directories of puzzle_set.h, for models that predict the next token.
 *
 * A row is a conversation (io/text/chat_tokens.h), cut at max_length: inputs are its tokens but the last, then <|pad|>; labels
 * the same one place on, -100 where nothing is to be learned. Beside the splits stand tokenizer/ and config.json.
 * Owns:      that form. Does not: read conversations (conversations.h), know tokenizers (chat_tokens.h).
 */
#ifndef AN_IO_DATA_CHAT_SET_H
#define AN_IO_DATA_CHAT_SET_H

#include "io/data/conversations.h"

typedef struct an_chat_options {
    const char *out, *source; /* folder; where the conversations are from, for sentences and config.json */
    const char *format, *tokenizer_name;
    int64_t max_length;
    double train_split;  /* share of the conversations, the first ones, for training */
    int64_t subsample;   /* so many of them at random; 0: all, in their order */
    bool assistant_only; /* labels are the assistant's words alone */
    bool system;         /* system turns are kept */
    uint64_t seed;
} an_chat_options;

typedef struct an_chat_result {
    int64_t conversations[2], tokens[2], cut; /* train, test: rows, labels; rows that were cut at max_length */
} an_chat_result;

/* `t` has the tokens `c`. */
an_status an_chat_build(an_err *err, const an_chat_options *o, const an_conversations *list, const an_tokenizer *t,
                        const an_chat_tokens *c, an_chat_result *out);

#endif
