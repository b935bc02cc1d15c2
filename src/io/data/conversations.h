/* conversations.h: reads conversations from files of four common formats.
 *
 *     sharegpt       [{"conversations": [{"from": "human", "value": ...}, ...]}], answers from gpt
 *     alpaca         [{"instruction": ..., "input": ..., "output": ...}], or "instances": [{"input", "output"}]
 *     openassistant  [{"messages": [{"role": "user", "content": ...}]}]
 *     chatterbot     YAML: conversations: a list of lists of sentences, the user's first
 *
 * The first three are JSON, or JSON lines (one object on each line), plain or as .gz. Text is UTF-8.
 *
 * Owns:      parsing; every error names the file and the line or item. Empty turns and turns of unknown roles are
 *            dropped and counted, and so are conversations that lack a turn of the user or of the assistant.
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
    int32_t *begin; /* [n]: the first turn of each conversation; the last one ends with n_turns */
    int32_t n, cap;
    int64_t dropped_turns, dropped;
    an_arena text;
} an_conversations;

/* Appends the conversations of a file to a list, which is zeroed before the first file; `format`: a name above. */
an_status an_conversations_read(an_err *err, const char *path, const char *format, an_conversations *out);
/* The same for text in memory; errors say `name` in place of a path. `lines`: JSON lines. */
an_status an_conversations_parse(an_err *err, const char *name, const char *format, bool lines, const char *data,
                                 size_t n, an_conversations *out);
/* Turns of conversation i. */
const an_turn *an_conversation(const an_conversations *c, int32_t i, int32_t *n);
void an_conversations_free(an_conversations *c);

#endif
