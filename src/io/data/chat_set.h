/* chat_set.h: writes conversations as a data set for models that predict the next token, in the layout of puzzle_set.h.
 *
 * A row is a conversation (io/text/chat_tokens.h), cut at max_length. Its inputs are all tokens but the last, then
 * <|pad|>; its labels are the tokens that follow each input, or -100 where nothing is to be learned. Beside the folders
 * train and test it writes tokenizer/ and config.json.
 *
 * Owns:      this layout, the choice of conversations and their split.
 * Does not:  read conversations (conversations.h) or know the markers of turns (chat_tokens.h).
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
    void (*tell)(void *arg, int64_t done, int64_t all); /* conversations that are written so far; NULL: not told */
    void *tell_arg;
} an_chat_options;

typedef struct an_chat_result {
    int64_t conversations[2], tokens[2], cut; /* train, test: rows, labels; rows that were cut at max_length */
} an_chat_result;

/* `t` has the tokens `c`. */
an_status an_chat_build(an_err *err, const an_chat_options *o, const an_conversations *list, const an_tokenizer *t,
                        const an_chat_tokens *c, an_chat_result *out);

#endif
