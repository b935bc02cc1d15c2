/* conversations.h: conversations in the files of others.
 *
 *     sharegpt       [{"conversations": [{"from": "human", "value": ...}, ...]}], answers from gpt
 *     alpaca         [{"instruction": ..., "input": ..., "output": ...}], or "instances": [{"input", "output"}]
 *     openassistant  [{"messages": [{"role": "user", "content": ...}]}]
 *     chatterbot     YAML: conversations: a list of lists of sentences, the user's first
 *
 * The first three are JSON, or JSON lines (an object a line); .gz too. Text is UTF-8.
 * Owns:      parsing, with file and line or item in every refusal. Turns of unknown roles and empty ones are left out and
 *            counted, and so are conversations without a turn of user and assistant.
 * Does not:  know tokens. */
#ifndef AN_IO_DATA_CONVERSATIONS_H
#define AN_IO_DATA_CONVERSATIONS_H

#include "base/arena.h"
#include "io/text/chat_tokens.h"

typedef struct an_turn {
    an_chat_role role;
    const char *text;
    size_t n;
} an_turn;

typedef struct an_conversations {
    an_turn *turn;
    int32_t n_turns, cap_turns;
    int32_t *begin; /* [n]: first turn of each; the last ends with n_turns */
    int32_t n, cap;
    int64_t dropped_turns, dropped;
    an_arena text;
} an_conversations;

/* Adds those of a file to a zeroed or filled list; `format`: one of the names above. */
an_status an_conversations_read(an_err *err, const char *path, const char *format, an_conversations *out);
/* The same over memory; `name` stands for the path. `lines`: an object a line. */
an_status an_conversations_parse(an_err *err, const char *name, const char *format, bool lines, const char *data,
                                 size_t n, an_conversations *out);
/* Turns of conversation i. */
const an_turn *an_conversation(const an_conversations *c, int32_t i, int32_t *n);
void an_conversations_free(an_conversations *c);

#endif
