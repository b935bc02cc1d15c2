/* chat_set.c: encoding conversations to rows, and writing both splits. See chat_set.h. */
#include "io/data/chat_set.h"
#include "base/map.h"
#include "base/rng.h"
#include "io/data/order.h"
#include "io/data/puzzle_write.h"
#include "io/formats/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct builder {
    const an_chat_options *o;
    const an_conversations *list;
    const an_tokenizer *t;
    const an_chat_tokens *c;
    an_chat_result *result;
    an_ids ids, learned;      /* of a conversation: tokens; 1 where the token is one to learn */
    int32_t *inputs, *labels; /* [max_length] */
} builder;

static an_status mark(an_err *err, builder *b, bool learn)
{
    while (b->learned.len < b->ids.len) AN_TRY(an_ids_push(err, &b->learned, learn));
    return AN_OK;
}

static an_status encode(an_err *err, builder *b, int32_t conversation)
{
    int32_t n;
    const an_turn *turn = an_conversation(b->list, conversation, &n);
    b->ids.len = b->learned.len = 0;
    for (int32_t i = 0; i < n; i++) {
        if (turn[i].role == AN_CHAT_SYSTEM && !b->o->system) continue;
        if (b->ids.len > 0) AN_TRY(an_ids_push(err, &b->ids, b->c->sep));
        const size_t begin = b->ids.len + 1; /* behind the marker of the role */
        AN_TRY(mark(err, b, !b->o->assistant_only));
        AN_TRY(an_chat_turn(err, b->t, b->c, b->o->source, turn[i].role, turn[i].text, turn[i].n, false, &b->ids));
        if (b->o->assistant_only && turn[i].role == AN_CHAT_ASSISTANT) {
            while (b->learned.len < begin) AN_TRY(an_ids_push(err, &b->learned, 0));
            AN_TRY(mark(err, b, true));
        }
        AN_TRY(mark(err, b, !b->o->assistant_only));
    }
    AN_TRY(an_ids_push(err, &b->ids, b->c->end));
    return mark(err, b, !b->o->assistant_only);
}

static an_status write_row(an_err *err, builder *b, int32_t conversation, int split, an_puzzle_writer *w)
{
    const int64_t room = b->o->max_length;
    AN_TRY(encode(err, b, conversation));
    b->result->cut += (int64_t)b->ids.len > room;
    const int64_t n = AN_MIN((int64_t)b->ids.len, room);
    for (int64_t i = 0; i < room; i++) {
        const bool inside = i + 1 < n;
        b->inputs[i] = inside ? b->ids.data[i] : b->c->pad;
        b->labels[i] = inside && b->learned.data[i + 1] ? b->ids.data[i + 1] : AN_PUZZLE_IGNORED;
        b->result->tokens[split] += b->labels[i] != AN_PUZZLE_IGNORED;
    }
    AN_TRY(an_puzzle_writer_example(err, w, b->inputs, b->labels));
    AN_TRY(an_puzzle_writer_puzzle(err, w, (int32_t)b->result->conversations[split]++));
    return an_puzzle_writer_group(err, w);
}

static an_status write_split(an_err *err, builder *b, int split, const int32_t *chosen, int64_t n)
{
    const an_puzzle_meta meta = {.vocab_size = an_tokenizer_vocab(b->t),
                                 .seq_len = b->o->max_length,
                                 .pad_id = b->c->pad,
                                 .ignores = true,
                                 .ignore_label_id = AN_PUZZLE_IGNORED,
                                 .num_puzzle_identifiers = n + 1,
                                 .mean_puzzle_examples = 1};
    an_puzzle_writer *w;
    AN_TRY(an_puzzle_writer_open(err, b->o->out, split ? "test" : "train", &meta, AN_I32, &w));
    for (int64_t i = 0; i < n; i++) {
        if (b->o->tell) b->o->tell(b->o->tell_arg, i, n);
        an_status status = write_row(err, b, chosen[i], split, w);
        if (status == AN_OK) continue;
        an_puzzle_writer_abort(w);
        return status;
    }
    if (b->result->tokens[split] == 0) {
        an_puzzle_writer_abort(w);
        return an_fail(err, AN_E_DATA,
                       "%s: the %s split has nothing to learn in the first %lld tokens of its conversations; "
                       "raise max_length",
                       b->o->source, split ? "test" : "training", (long long)b->o->max_length);
    }
    return an_puzzle_writer_end(err, w);
}

static an_status write_config(an_err *err, const an_chat_options *o)
{
    an_text t = {0};
    char path[AN_PUZZLE_PATH_BYTES];
    snprintf(path, sizeof path, "%s/config.json", o->out);
    an_text_puts(&t, "{\n  \"format\": ");
    an_json_put(&t, o->format);
    an_text_puts(&t, ",\n  \"tokenizer\": ");
    an_json_put(&t, o->tokenizer_name);
    an_text_printf(&t,
                   ",\n  \"max_length\": %" PRId64 ",\n  \"train_split\": %.9g,\n  \"seed\": %" PRIu64
                   ",\n  \"loss\": \"%s\"\n}\n",
                   o->max_length, o->train_split, o->seed, o->assistant_only ? "assistant" : "all");
    an_status status = an_json_save(err, path, &t);
    an_text_free(&t);
    return status;
}

/* Which conversations, in which order. */
static int64_t choose(const an_chat_options *o, int32_t n, int32_t *chosen)
{
    const bool some = o->subsample > 0 && o->subsample < n;
    const uint32_t stream = an_rng_stream(an_hash("conversations", 13, 0), 0);
    const int64_t count = some ? o->subsample : n;
    for (int64_t i = 0; i < count; i++)
        chosen[i] = some ? (int32_t)an_shuffled((uint64_t)i, (uint64_t)n, an_rng_key(o->seed, 0), stream) : (int32_t)i;
    return count;
}

static an_status build(an_err *err, builder *b, int32_t *chosen)
{
    char folder[AN_PUZZLE_PATH_BYTES];
    const an_chat_options *o = b->o;
    const int64_t n = choose(o, b->list->n, chosen), train = (int64_t)((double)n * o->train_split);
    if (train < 1 || train >= n)
        return an_fail(
            err, AN_E_DATA,
            "%s: of %lld conversations train_split=%g leaves %lld for training and %lld for testing; both need one",
            o->source, (long long)n, o->train_split, (long long)train, (long long)(n - train));
    if (snprintf(folder, sizeof folder, "%s/tokenizer", o->out) >= (int)sizeof folder)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", o->out);
    AN_TRY(write_split(err, b, 0, chosen, train));
    AN_TRY(write_split(err, b, 1, chosen + train, n - train));
    AN_TRY(an_chat_tokenizer_write(err, b->t, folder, o->max_length));
    return write_config(err, o);
}

an_status an_chat_build(an_err *err, const an_chat_options *o, const an_conversations *list, const an_tokenizer *t,
                        const an_chat_tokens *c, an_chat_result *out)
{
    *out = (an_chat_result){0};
    builder b = {.o = o, .list = list, .t = t, .c = c, .result = out};
    const size_t row = (size_t)o->max_length * sizeof(int32_t);
    int32_t *chosen = malloc(((size_t)list->n + 1) * sizeof *chosen);
    b.inputs = malloc(row);
    b.labels = malloc(row);
    an_status status = chosen && b.inputs && b.labels ? build(err, &b, chosen) : an_fail_nomem(err, "a data set", row);
    free(chosen);
    free(b.inputs);
    free(b.labels);
    an_ids_free(&b.ids);
    an_ids_free(&b.learned);
    return status;
}
