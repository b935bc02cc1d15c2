/* Conversations: whatever the bytes behind the first (which says the format), every turn that is taken lies in memory
 * of its own, is UTF-8 and not empty, and every conversation has a question and an answer. */
#include "io/data/conversations.h"
#include "io/text/utf8.h"
#include "fuzz.h"

static bool fuzz_one(const char *data, size_t bytes)
{
    static const char *const formats[] = {"sharegpt", "alpaca", "openassistant", "chatterbot"};
    an_err err = {0};
    an_conversations c = {0};
    if (bytes == 0) return false;
    const unsigned kind = (unsigned char)data[0];
    an_status status = an_conversations_parse(&err, "fuzz", formats[kind % 4], kind / 4 % 2, data + 1, bytes - 1, &c);
    fuzz_check_sentence(status, &err);
    for (int32_t i = 0; i < c.n; i++) {
        int32_t n;
        unsigned roles = 0;
        const an_turn *turn = an_conversation(&c, i, &n);
        FUZZ_CHECK(n >= 2 && turn >= c.turn && turn + n <= c.turn + c.n_turns);
        for (int32_t k = 0; k < n; k++) {
            uint32_t point;
            FUZZ_CHECK(turn[k].n > 0 && turn[k].text[turn[k].n] == 0);
            for (size_t at = 0; at < turn[k].n;) {
                const int step = an_utf8_next(turn[k].text + at, turn[k].n - at, &point);
                FUZZ_CHECK(step > 0);
                at += (size_t)step;
            }
            roles |= 1u << turn[k].role;
        }
        FUZZ_CHECK((roles & 3) == 3);
    }
    an_conversations_free(&c);
    return status == AN_OK;
}

static const fuzz_seed seeds[] = {
    SEED("0[{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\"}]}]"),
    SEED("1[{\"instruction\":\"i\",\"input\":\"x\",\"output\":\"o\"},{\"instruction\":\"i\",\"instances\":[{\"output\":"
         "\"o\"}]}]"),
    SEED("6{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\\u00e4\"}]}\n{"
         "\"messages\":[]}\n"),
    SEED("3categories:\n- x\nconversations:\n- - Hi\n  - Hello\n  - 'Bye'\n- alone\n"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
