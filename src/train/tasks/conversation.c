/* conversation.c: the task `chat`: predicts the next token of conversations, from data sets of anneal prepare chat
 * (io/data/chat_set.h writes them, puzzle_set.h reads them; one example is one conversation).
 *
 * A sample is a conversation, cut or padded to seq_len tokens; a unit is a token. The length of a run is counted in epochs:
 * each visits the conversations in a random order and leaves out those after the last full batch. The model has the
 * settings vocab_size, arch.seq_len and num_puzzle_identifiers, which the data settle where they are 0, and reads
 * i32 tokens [B,S], labels [B,S] (negative: none), identifiers [B]. */
#define _DEFAULT_SOURCE
#include "train/tasks/conversation.h"
#include "io/data/puzzle_set.h"
#include "io/text/chat_tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat_settings {
    an_train_text tokenizer, data_test;
    int64_t eval_epochs, lr_warmup_steps;
    double lr_min_ratio;
} chat_settings;

enum {
    AUTO_WARMUP = 1000,
    AS_COMMON = -2, /* of lr_warmup_steps */
    UNKNOWN_LENGTH = 512,
    UNSET_DECAY = 600000 /* lr_decay_iters' own default (train/config.c) */
};

#define AT(name) offsetof(chat_settings, name)
static const an_config_field fields[] = {
    {"tokenizer", AN_CONFIG_TEXT, AT(tokenizer), "", 0, 0, NULL,
     "folder of the conversations' tokenizer; empty: the data set's"},
    {"eval_epochs", AN_CONFIG_INT, AT(eval_epochs), "0", 0, 1LL << 40, NULL,
     "epochs between evaluations; 0: as eval_interval says"},
    {"lr_warmup_steps", AN_CONFIG_INT, AT(lr_warmup_steps), "-1", AS_COMMON, 1LL << 40, NULL,
     "the update, from 1, at which a linear warm-up reaches its peak; -1: 1000, but at most a tenth of the run; -2: as "
     "warmup_iters says"},
    {"lr_min_ratio", AN_CONFIG_FLOAT, AT(lr_min_ratio), "0.1", -1, 1, NULL,
     "learning rate at the end, as a part of its peak; -1: as min_lr says"},
    {"data_paths_test", AN_CONFIG_TEXT, AT(data_test), "", 0, 0, NULL,
     "folders whose test split is evaluated; empty: those of data"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

typedef struct chat_data {
    an_task_data head;
    an_tokenizer *own_tokenizer;
    an_puzzle_set *set[AN_N_SPLITS]; /* NULL: opened without data, or without this split */
    int64_t S;
    int32_t pad;
    an_puzzle_order order;
    char tokenizer_of[AN_PUZZLE_PATH_BYTES]; /* where own_tokenizer is from */
} chat_data;

static const chat_data *chat(const an_task_data *d)
{
    return (const chat_data *)d;
}

static chat_settings *settings_of(an_train_config *c)
{
    return (chat_settings *)(void *)c->task_settings.bytes;
}

/* ---- opening */

/* *out: where the tokenizer of folder i of the data is, or of those that data= names where none are opened; *found: there is such a
 * folder. */
static an_status tokenizer_at(an_err *err, const an_train_config *c, const chat_data *d, int i,
                              char out[AN_PUZZLE_PATH_BYTES], bool *found)
{
    const an_puzzle_set *s = d->set[AN_TRAIN] ? d->set[AN_TRAIN] : d->set[AN_VAL];
    an_text name = {0};
    an_list list = an_list_begin(c->data);
    const char *dir = s ? an_puzzle_set_dir(s, i) : NULL;
    for (int k = 0; !s && k <= i; k++) dir = an_list_next(&list, &name) ? name.data : NULL;
    *found = dir && snprintf(out, AN_PUZZLE_PATH_BYTES, "%s/tokenizer", dir) < AN_PUZZLE_PATH_BYTES;
    const an_status status = name.failed ? an_fail_nomem(err, "data=", strlen(c->data)) : AN_OK;
    an_text_free(&name);
    return status;
}

/* Each folder of conversations may have the tokenizer that made it; those that do must mean the same by their ids as `own`, which
 * becomes that of the first where there is none yet. */
static an_status match_tokenizers(an_err *err, const an_train_config *c, chat_data *d)
{
    char path[AN_PUZZLE_PATH_BYTES];
    for (int i = 0; i < AN_PUZZLE_MAX_PARTS; i++) {
        an_tokenizer *other;
        bool found;
        AN_TRY(tokenizer_at(err, c, d, i, path, &found));
        if (!found) break;
        if (access(path, F_OK) != 0) continue;
        if (!d->own_tokenizer) {
            AN_TRY(an_tokenizer_open(err, path, &d->own_tokenizer));
            snprintf(d->tokenizer_of, sizeof d->tokenizer_of, "%s", path);
            continue;
        }
        if (!d->head.loaded) break; /* which data these weights saw says data=, and nothing is read of them */
        AN_TRY(an_tokenizer_open(err, path, &other));
        an_status status = an_tokenizer_match(err, path, other, d->own_tokenizer);
        an_tokenizer_free(other);
        AN_TRY(status);
    }
    return AN_OK;
}

/* The first that is there: the tokenizer of the checkpoint that weights come from, so that its ids keep their meaning;
 * that of the settings; that of the data. */
static an_status open_tokenizer(an_err *err, an_train_config *c, const an_st *from, int flags, chat_data *d)
{
    const char *named = settings_of(c)->tokenizer, *json = from ? an_st_meta(from, AN_CKPT_TOKENIZER) : NULL;
    if (json) {
        AN_TRY(an_tokenizer_from_json(err, an_st_path(from), json, strlen(json), &d->own_tokenizer));
        if (*named && flags & AN_OPEN_INITIAL)
            AN_TRY(an_tokenizer_check_named(err, named, an_st_path(from), d->own_tokenizer));
        snprintf(d->tokenizer_of, sizeof d->tokenizer_of, "%.1000s", an_st_path(from));
    } else if (*named) {
        AN_TRY(an_tokenizer_open(err, named, &d->own_tokenizer));
        snprintf(d->tokenizer_of, sizeof d->tokenizer_of, "%.1000s", named);
    }
    AN_TRY(match_tokenizers(err, c, d));
    d->head.tokenizer = d->own_tokenizer;
    return AN_OK;
}

/* AN_E_DATA where labels equal their inputs: they were not shifted to the next token, and a model would learn to copy. */
static an_status check_shift(an_err *err, const an_puzzle_set *s)
{
    const int64_t length = an_puzzle_set_meta(s)->seq_len, rows = AN_MIN(an_puzzle_set_examples(s), 16);
    int32_t *x = malloc((size_t)length * 2 * sizeof *x), *y = x ? x + length : NULL, id; /* [length] each */
    int64_t same = 0, next = 0, all = 0;
    if (!x) return an_fail_nomem(err, "a conversation", (size_t)length * 2 * sizeof *x);
    an_status status = AN_OK;
    for (int64_t e = 0; status == AN_OK && e < rows; e++) {
        status = an_puzzle_set_read(err, s, e, x, y, &id);
        for (int64_t i = 0; status == AN_OK && i + 1 < length; i++) {
            if (y[i] < 0) continue;
            all++;
            same += y[i] == x[i];
            next += y[i] == x[i + 1];
        }
    }
    free(x);
    if (status == AN_OK && all >= 8 && same == all && next < all)
        status =
            an_fail(err, AN_E_DATA,
                    "%s: every label is the token of its own position, so a model would learn to copy; labels must be "
                    "the next tokens: prepare the data again",
                    an_puzzle_set_dir(s, 0));
    return status;
}

static an_status open_sets(an_err *err, an_train_config *c, bool whole, chat_data *d)
{
    for (int split = whole ? AN_VAL : 0; split < AN_N_SPLITS; split++) {
        const char *test = whole || split == AN_TRAIN ? "" : settings_of(c)->data_test;
        AN_TRY(
            an_puzzle_set_open_list(err, *test ? test : c->data, split == AN_TRAIN ? "train" : "test", &d->set[split]));
        AN_TRY(check_shift(err, d->set[split]));
        if (split == AN_VAL && d->set[AN_TRAIN])
            AN_TRY(an_puzzle_set_agree(err, d->set[AN_TRAIN], d->set[AN_VAL], false));
        const an_puzzle_meta *m = an_puzzle_set_meta(d->set[split]);
        d->head.units[split] = an_puzzle_set_examples(d->set[split]) * m->seq_len;
        if (split == AN_TRAIN) d->head.epoch = an_puzzle_set_examples(d->set[split]);
        d->head.bytes += an_puzzle_set_bytes(d->set[split]);
        d->pad = (int32_t)m->pad_id;
    }
    d->head.loaded = true;
    return AN_OK;
}

static an_status settle_sizes(an_err *err, an_train_config *c, const an_st *from, chat_data *d)
{
    int64_t *vocab = an_train_number(c, "vocab_size"), *length = an_train_number(c, "arch.seq_len");
    int64_t *ids = an_train_number(c, "num_puzzle_identifiers");
    const an_puzzle_set *s = d->set[AN_VAL];
    const int64_t have = s                  ? an_puzzle_set_meta(s)->vocab_size
                         : d->own_tokenizer ? an_tokenizer_vocab(d->own_tokenizer)
                                            : 0;
    if (*vocab == 0) *vocab = have;
    if (*length == 0 && s) *length = an_puzzle_set_meta(s)->seq_len;
    if (*length == 0 && from) *length = an_puzzle_set_length(c->data); /* TinyRecursiveModels leaves it to the data */
    if (*length == 0 && from) *length = UNKNOWN_LENGTH;
    if (ids && *ids == 0) *ids = 1;
    if (*vocab == 0 || *length == 0)
        return an_fail(err, AN_E_USAGE,
                       "the number of token ids and of tokens in a conversation are not known: set data=, or "
                       "vocab_size and arch.seq_len");
    if (have > *vocab)
        return an_fail(err, AN_E_DATA, "%s has %lld token ids, the model %lld; name the %s that it was trained on",
                       s ? an_puzzle_set_dir(s, 0) : d->tokenizer_of, (long long)have, (long long)*vocab,
                       s ? "data set" : "tokenizer");
    d->S = *length;
    return AN_OK;
}

/* TinyRecursiveModels' lr_warmup_steps of a run. */
static int64_t warmup_of(const an_train_config *c, const chat_settings *s)
{
    return s->lr_warmup_steps >= 0 ? s->lr_warmup_steps : AN_MIN(AUTO_WARMUP, c->max_iters / 10);
}

/* What is counted in epochs becomes updates, and TinyRecursiveModels' schedule, which counts them from 1, ours. */
static void settle_schedule(an_train_config *c, const chat_data *d)
{
    const chat_settings *s = settings_of(c);
    int64_t per_epoch = 1; /* a folder's last batch is left out where it is not full */
    if (d->set[AN_TRAIN] && an_puzzle_set_updates(NULL, d->set[AN_TRAIN], &d->order, 1, &per_epoch) != AN_OK)
        per_epoch = 1; /* a batch larger than the data is refused where it is drawn */
    if (d->set[AN_TRAIN] && c->epochs > 0) c->max_iters = AN_MIN(c->epochs, INT64_MAX / per_epoch) * per_epoch;
    /* The rate falls over the whole run, also where max_iters says how long it is and lr_decay_iters was left as it is for GPTs. */
    if (d->set[AN_TRAIN] && (c->epochs > 0 || c->lr_decay_iters == UNSET_DECAY))
        c->lr_decay_iters = AN_MAX(c->max_iters - 1, 1);
    if (d->set[AN_TRAIN] && s->eval_epochs > 0)
        c->eval_interval = AN_MIN(s->eval_epochs, INT64_MAX / per_epoch) * per_epoch;
    if (s->lr_warmup_steps != AS_COMMON) c->warmup_iters = AN_MAX(warmup_of(c, s) - 1, 0);
    if (s->lr_min_ratio >= 0) c->min_lr = s->lr_min_ratio * c->learning_rate;
}

static void tell(const an_train_config *c, const an_task_data *data, an_text *out)
{
    const chat_settings *s = (const void *)c->task_settings.bytes;
    const chat_data *d = chat(data);
    const int64_t have = d->set[AN_TRAIN] ? an_puzzle_set_meta(d->set[AN_TRAIN])->seq_len : d->S;
    if (s->lr_warmup_steps == -1 && c->max_iters / 10 < AUTO_WARMUP)
        an_text_printf(out,
                       "the warm-up is a tenth of the run, %lld of %lld updates, where lr_warmup_steps is not set\n",
                       (long long)warmup_of(c, s), (long long)c->max_iters);
    if (d->S > have)
        an_text_printf(
            out,
            "arch.seq_len=%lld is more than the %lld tokens that conversations of the data have: %.1f %% of each "
            "sample is padding, which is computed and teaches nothing; arch.seq_len=%lld leaves it out\n",
            (long long)d->S, (long long)have, 100 * (1 - (double)have / (double)d->S), (long long)have);
    if (d->set[AN_TRAIN] && !d->own_tokenizer)
        an_text_printf(out,
                       "%s has no folder tokenizer, so that checkpoints have none: anneal generate will ask for it "
                       "(--tokenizer), or set tokenizer=FOLDER\n",
                       an_puzzle_set_dir(d->set[AN_TRAIN], 0));
}

static void close_chat(an_task_data *data)
{
    chat_data *d = (chat_data *)data;
    for (int split = 0; split < AN_N_SPLITS; split++) an_puzzle_set_close(d->set[split]);
    an_tokenizer_free(d->own_tokenizer);
}

static an_status open_chat(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *data)
{
    const an_config_field *causal = an_config_find(c->model->keys, "arch.causal");
    if (!causal || !an_train_number(c, "arch.seq_len") || !an_train_number(c, "vocab_size"))
        return an_fail(err, AN_E_USAGE, "task=chat: the model %s holds no conversations", c->model->name);
    bool is_causal;
    memcpy(&is_causal, c->model_settings.bytes + causal->offset, sizeof is_causal);
    if (!is_causal)
        return an_fail(err, AN_E_USAGE,
                       "task=chat: a model that sees the tokens it is to predict learns to copy them; set "
                       "arch.causal=true, as cfg_chat does");
    chat_data *d = (chat_data *)data;
    d->order = (an_puzzle_order){.per_update = c->batch_size * c->gradient_accumulation_steps};
    an_status status = flags & AN_OPEN_DATA ? open_sets(err, c, flags & AN_OPEN_WHOLE_FILE, d) : AN_OK;
    if (status == AN_OK) status = open_tokenizer(err, c, from, flags, d);
    if (status == AN_OK) status = settle_sizes(err, c, from, d);
    for (int split = 0; status == AN_OK && split < AN_N_SPLITS; split++)
        if (d->set[split])
            status = an_puzzle_set_labelled(err, d->set[split], split == AN_TRAIN ? "train" : "test", d->S);
    if (status == AN_OK) settle_schedule(c, d);
    return status;
}

/* GPT-2's ids and the nine of a conversation; the builder's default length. */
static const an_task_size sizes[] = {
    {"vocab_size", 50266}, {"arch.seq_len", 1024}, {"num_puzzle_identifiers", 1}, {NULL, 0}};

/* ---- batches and evaluation samples */

static an_status check(an_err *err, const an_task_data *d)
{
    return an_puzzle_set_check(err, chat(d)->set[AN_TRAIN], &chat(d)->order);
}

/* Conversation e as sample i of the arrays, cut at S or padded to it. */
static an_status read_row(an_err *err, const chat_data *d, int split, int64_t e, int64_t i, void *const *array)
{
    const an_puzzle_set *s = d->set[split];
    const int64_t length = an_puzzle_set_meta(s)->seq_len, n = AN_MIN(length, d->S);
    int32_t *x = (int32_t *)array[0] + i * d->S, *y = (int32_t *)array[1] + i * d->S, id; /* [S] */
    int32_t *row = malloc((size_t)length * 2 * sizeof *row);
    if (!row) return an_fail_nomem(err, "a conversation", (size_t)length * 2 * sizeof *row);
    an_status status = an_puzzle_set_read(err, s, e, row, row + length, &id);
    for (int64_t k = 0; status == AN_OK && k < d->S; k++) {
        x[k] = k < n ? row[k] : d->pad;
        y[k] = k < n ? row[length + k] : AN_PUZZLE_IGNORED;
    }
    ((int32_t *)array[2])[i] = 0;
    free(row);
    return status;
}

static an_status batch(an_err *err, const an_task_data *data, const an_sample_range *draw, uint64_t step,
                       void *const *array)
{
    const chat_data *d = chat(data);
    const an_puzzle_set *s = d->set[draw->split];
    an_puzzle_order o = d->order;
    o.seed = draw->seed;
    if (draw->split != AN_TRAIN) o.per_update = AN_MAX(AN_MIN(o.per_update, an_puzzle_set_examples(s)), 1);
    for (int64_t i = 0; i < draw->samples; i++) {
        int64_t e;
        const int64_t at = (draw->first + i) % o.per_update;
        AN_TRY(an_puzzle_set_draw(err, s, &o, step, at, 1, &e));
        AN_TRY(read_row(err, d, draw->split, e, i, array));
    }
    return AN_OK;
}

static an_status count(an_err *err, const an_task_data *d, int split, int64_t *out)
{
    *out = chat(d)->set[split] ? an_puzzle_set_examples(chat(d)->set[split]) : 0;
    if (*out > 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "the %s split has no conversation", split == AN_TRAIN ? "training" : "test");
}

static an_status read_rows(an_err *err, const an_task_data *data, int split, int64_t first, int64_t n, int64_t room,
                           void *const *array)
{
    const chat_data *d = chat(data);
    int32_t *x = array[0], *y = array[1], *ids = array[2]; /* [room,S], [room,S], [room] */
    for (int64_t i = 0; i < n; i++) AN_TRY(read_row(err, d, split, first + i, i, array));
    for (int64_t i = n * d->S; i < room * d->S; i++) x[i] = d->pad, y[i] = AN_PUZZLE_IGNORED;
    for (int64_t i = n; i < room; i++) ids[i] = 0;
    return AN_OK;
}

static void hash(const an_task_data *d, int split, char out[AN_HASH_TEXT_BYTES])
{
    *out = 0;
    if (chat(d)->set[split]) an_puzzle_set_hash(chat(d)->set[split], out);
}

static const an_task_unit other_units[] = {{"eval_interval", "eval_epochs", "0"},
                                           {"warmup_iters", "lr_warmup_steps", "-2"},
                                           {"min_lr", "lr_min_ratio", "-1"},
                                           {NULL, NULL, NULL}};

const an_task an_conversation_task = {.name = "chat",
                                      .settles_epochs = true,
                                      .loss_exp = "perplexity",
                                      .unit = "token",
                                      .units = "tokens",
                                      .unit_rate = "tok/s",
                                      .sample = "conversation",
                                      .next = "talk to it with\n    anneal generate --checkpoint",
                                      .next_argument = " --interactive",
                                      .built_in = "",
                                      .keys = &keys,
                                      .settings_bytes = sizeof(chat_settings),
                                      .other_units = other_units,
                                      .data_bytes = sizeof(chat_data),
                                      .open = open_chat,
                                      .close = close_chat,
                                      .sizes = sizes,
                                      .units_key = "arch.seq_len",
                                      .tell = tell,
                                      .check = check,
                                      .hash = hash,
                                      .batch = batch,
                                      .count = count,
                                      .read = read_rows};
