/* cmd_generate.c: a trained model of conversations answers one prompt (--prompt), or a person turn by turn
 * (--interactive). */
#include "cli/cli.h"
#include "infer/generate.h"
#include "io/text/chat_tokens.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    char checkpoint[AN_CONFIG_TEXT_BYTES], tokenizer[AN_CONFIG_TEXT_BYTES], device[AN_CONFIG_TEXT_BYTES];
    char prompt_key[AN_CONFIG_TEXT_BYTES]; /* for the table of settings; what is said may be longer */
    const char *prompt;
    int64_t max_new_tokens, top_k, seed, threads;
    double temperature, top_p;
    bool interactive;
} values;

#define AT(name) offsetof(values, name)
static const an_config_field fields[] = {
    {"checkpoint", AN_CONFIG_TEXT, AT(checkpoint), "", 0, 0, NULL,
     "a run's folder, a checkpoint, or step_N in it with or without its ending"},
    {"prompt", AN_CONFIG_TEXT, AT(prompt_key), "", 0, 0, NULL, "what the user says"},
    {"interactive", AN_CONFIG_BOOL, AT(interactive), "false", 0, 0, NULL,
     "a conversation: a line of standard input a turn, until quit, exit or its end"},
    {"max_new_tokens", AN_CONFIG_INT, AT(max_new_tokens), "-1", -1, 1e9, NULL,
     "tokens of an answer at most; -1: 100, interactive 200"},
    {"temperature", AN_CONFIG_FLOAT, AT(temperature), "0.7", 0, 100, NULL, "0: always the most probable token"},
    {"top_k", AN_CONFIG_INT, AT(top_k), "50", 0, 1e6, NULL, "draw from the k most probable tokens; 0: from all"},
    {"top_p", AN_CONFIG_FLOAT, AT(top_p), "0.9", 0, 1, NULL,
     "then from the fewest that reach probability p; 0 or 1: all"},
    {"seed", AN_CONFIG_INT, AT(seed), "1337", 0, 9e15, NULL, "of the drawing"},
    {"device", AN_CONFIG_TEXT, AT(device), "auto", 0, 0, NULL, "where to run"},
    {"threads", AN_CONFIG_INT, AT(threads), "0", 0, 4096, NULL, "CPU threads; 0: every core"},
    {"tokenizer", AN_CONFIG_TEXT, AT(tokenizer), "", 0, 0, NULL,
     "for a checkpoint without one: a folder; empty: tokenizer in the first folder of its data"},
};
const an_config an_generate_keys = {.fields = fields, .n = AN_COUNT(fields)};

typedef struct talk {
    an_err *err;
    an_session *r;
    const values *v;
    const an_tokenizer *t;
    an_chat_tokens c;
    int64_t context, turns; /* the most tokens that the model attends to; answers so far */
    an_ids ids;             /* the conversation so far */
    an_ids answer;
    an_text held;      /* decoded bytes that are not printed yet */
    bool ended, begun; /* the answer ended by itself; something of it is printed */
    an_status status;
} talk;

/* How many bytes at the end are an incomplete UTF-8 character, or blanks, which are dropped if the answer ends here. */
static size_t unfinished(const an_text *t)
{
    size_t n = 0;
    while (n < t->len && strchr(" \t\r\n", t->data[t->len - 1 - n])) n++;
    if (n > 0) return n;
    while (n < 3 && n < t->len && ((unsigned char)t->data[t->len - 1 - n] & 0xC0) == 0x80) n++;
    return n < t->len && (unsigned char)t->data[t->len - 1 - n] >= 0xC0 ? n + 1 : 0;
}

/* Prints what is decoded, without blanks before the first word and after the last one. */
static void write_held(talk *k, bool end)
{
    size_t skip = 0, keep = unfinished(&k->held);
    if (k->held.failed || k->held.len == 0) return;
    if (end && !strchr(" \t\r\n", k->held.data[k->held.len - 1])) keep = 0;
    while (!k->begun && skip < k->held.len - keep && strchr(" \t\r\n", k->held.data[skip])) skip++;
    const size_t n = k->held.len - keep;
    if (isatty(STDOUT_FILENO) == 1) an_text_printable(k->held.data, n);
    if (n > skip) {
        fwrite(k->held.data + skip, 1, n - skip, stdout);
        k->begun = true;
    }
    fflush(stdout);
    memmove(k->held.data, k->held.data + n, keep);
    k->held.len = keep;
}

static bool is_marker(const an_chat_tokens *c, int32_t id)
{
    bool is = id == c->pad || id == c->begin || id == c->end || id == c->sep;
    for (int role = 0; role < 3; role++) is |= id == c->open[role] || id == c->close[role];
    return is;
}

/* The answer ends at its closing token, at <|endoftext|>, at any other token that marks turns (a model that has learnt little goes on
 * with the user's), and at an id without text (of a padded vocabulary). */
static bool take_token(void *arg, int64_t text, int32_t id)
{
    (void)text;
    talk *k = arg;
    k->ended = is_marker(&k->c, id) || id >= an_tokenizer_vocab(k->t);
    if (k->ended) return false;
    k->status = an_ids_push(k->err, &k->answer, id);
    if (k->status == AN_OK) k->status = an_tokenizer_decode(k->err, k->t, &id, 1, &k->held);
    write_held(k, false);
    return k->status == AN_OK && !an_interrupt_seen(NULL);
}

/* The user's turn, the separator, and the beginning of the assistant's. */
static an_status add_user(an_err *err, talk *k, const char *text, size_t n)
{
    if (k->ids.len > 0) AN_TRY(an_ids_push(err, &k->ids, k->c.sep));
    AN_TRY(an_chat_turn(err, k->t, &k->c, "prompt", AN_CHAT_USER, text, n, false, &k->ids));
    AN_TRY(an_ids_push(err, &k->ids, k->c.sep));
    return an_chat_turn(err, k->t, &k->c, "prompt", AN_CHAT_ASSISTANT, "", 0, true, &k->ids);
}

static an_status answer(an_err *err, talk *k, int64_t most)
{
    const int64_t room = k->context - (int64_t)k->ids.len;
    const an_generate_options o = {.sampler = {.temperature = k->v->temperature,
                                               .top_k = k->v->top_k,
                                               .top_p = k->v->top_p,
                                               .seed = (uint64_t)k->v->seed},
                                   .tokens = AN_MIN(most, room),
                                   .sample = (uint32_t)k->turns++};
    an_generate_result result;
    k->answer.len = 0;
    k->ended = k->begun = false;
    an_text_clear(&k->held);
    if (o.tokens < 1) {
        putchar('\n');
        return AN_OK;
    }
    AN_TRY(an_generate(err, k->r, &o, k->ids.data, k->ids.len, take_token, k, &result));
    AN_TRY(k->status);
    write_held(k, true);
    putchar('\n');
    fflush(stdout);
    if (!k->ended && room <= most && !an_interrupt_seen(NULL))
        an_say("note    the answer ends where the model's %lld tokens do", (long long)k->context);
    return AN_OK;
}

static an_status answer_prompt(an_err *err, talk *k, bool quiet)
{
    const values *v = k->v;
    AN_TRY(add_user(err, k, v->prompt, strlen(v->prompt)));
    if ((int64_t)k->ids.len >= k->context)
        return an_fail(err, AN_E_USAGE,
                       "the prompt has %zu tokens with its markers; the model sees %lld, the answer's included",
                       k->ids.len, (long long)k->context);
    if (!quiet) printf("Prompt: %s\nResponse: ", v->prompt);
    return answer(err, k, v->max_new_tokens < 0 ? 100 : v->max_new_tokens);
}

/* ---- a conversation */

/* The history is kept as long as it and an answer fit the context; then the conversation starts again with this question.
 * The key-value cache is not: each answer prefills the whole conversation (infer/generate.c). */
static an_status converse(an_err *err, talk *k, const char *line, size_t n)
{
    const int64_t most = k->v->max_new_tokens < 0 ? 200 : k->v->max_new_tokens;
    const size_t before = k->ids.len;
    AN_TRY(add_user(err, k, line, n));
    if (before > 0 && (int64_t)k->ids.len + AN_MIN(most, k->context / 4) > k->context) {
        an_say("note    the conversation is longer than the model's %lld tokens: it begins anew with this question",
               (long long)k->context);
        k->ids.len = 0;
        AN_TRY(add_user(err, k, line, n));
    }
    if ((int64_t)k->ids.len >= k->context) {
        an_say("note    this question alone is longer than the model's %lld tokens: ask a shorter one",
               (long long)k->context);
        k->ids.len = 0;
        return AN_OK;
    }
    fputs("Assistant: ", stdout);
    AN_TRY(answer(err, k, most));
    for (size_t i = 0; i < k->answer.len; i++) AN_TRY(an_ids_push(err, &k->ids, k->answer.data[i]));
    return an_ids_push(err, &k->ids, k->c.close[AN_CHAT_ASSISTANT]);
}

static an_status converse_all(an_err *err, talk *k)
{
    an_text line = {0};
    an_status status = AN_OK;
    while (status == AN_OK && !an_interrupt_seen(NULL)) {
        an_text_clear(&line);
        fputs("You: ", stdout);
        fflush(stdout);
        if (!an_input_line(&line)) break;
        if (line.failed) status = an_fail_nomem(err, "a line", line.len);
        if (status != AN_OK || strspn(line.data, " \t\r") == line.len) continue;
        if (strcmp(line.data, "quit") == 0 || strcmp(line.data, "exit") == 0) break;
        status = converse(err, k, line.data, line.len);
    }
    putchar('\n');
    an_text_free(&line);
    return status;
}

static an_status speak(an_err *err, an_session *r, const values *v, bool quiet)
{
    const an_decoder *d = r->cfg.model->decoder;
    talk k = {.err = err, .r = r, .v = v, .t = r->data->tokenizer};
    if (!d || d->context(an_model_settings(&r->cfg)) == 0)
        return an_fail(err, AN_E_USAGE, "generate: a model of kind %s holds no conversations", r->cfg.model->name);
    if (!k.t)
        return an_fail(err, AN_E_USAGE,
                       "generate: %s has no tokenizer, and there is none in its data's folder (data=%s): set "
                       "--tokenizer to the folder tokenizer of the data set that it was trained on",
                       v->checkpoint, r->cfg.data);
    AN_TRY(an_chat_tokens_find(err, v->checkpoint, k.t, &k.c));
    k.context = d->context(an_model_settings(&r->cfg));
    an_status status = v->interactive ? converse_all(err, &k) : answer_prompt(err, &k, quiet);
    an_ids_free(&k.ids);
    an_ids_free(&k.answer);
    an_text_free(&k.held);
    return status;
}

/* Takes the prompt, which has any length, out of the arguments, and all others by the table. */
static an_status apply(an_err *err, const an_args *args, values *v)
{
    an_args others = *args;
    AN_TRY(an_config_defaults(err, &an_generate_keys, v));
    v->prompt = "";
    for (size_t i = 0; i < others.n_settings; i++)
        if (strcmp(others.settings[i].key, "prompt") == 0) {
            v->prompt = others.settings[i].value;
            others.settings[i].value = "";
        }
    return an_args_apply(err, &others, &(an_key_set){&an_generate_keys, v}, 1);
}

/* step_1000 may lack its ending. */
static void complete_path(values *v)
{
    char longer[AN_CONFIG_TEXT_BYTES + 16];
    const int n = snprintf(longer, sizeof longer, "%s.safetensors", v->checkpoint);
    if (access(v->checkpoint, F_OK) != 0 && access(longer, F_OK) == 0 && n < (int)sizeof v->checkpoint)
        memcpy(v->checkpoint, longer, (size_t)n + 1);
}

an_status an_cmd_generate(an_err *err, const an_args *args, int *exit_code)
{
    values v;
    an_train_config c;
    an_st *st;
    an_session *r = NULL;
    AN_TRY(apply(err, args, &v));
    if (args->n_words) snprintf(v.checkpoint, sizeof v.checkpoint, "%.500s", args->words[0]);
    if (!v.checkpoint[0]) return an_fail(err, AN_E_USAGE, "generate: name a run with --checkpoint RUN");
    if (!v.prompt[0] && !v.interactive)
        return an_fail(err, AN_E_USAGE, "generate: --prompt TEXT or --interactive is needed");
    complete_path(&v);
    AN_TRY(an_cli_open_weights(err, v.checkpoint, false, -1, &c, &st));
    snprintf(c.device, sizeof c.device, "%s", v.device);
    c.threads = v.threads;
    const an_config keys = an_train_keys(&c);
    an_interrupt_catch();
    an_status status = AN_OK;
    const bool own = an_st_meta(st, AN_CKPT_TOKENIZER) != NULL;
    if (v.tokenizer[0]) status = an_config_set(err, &keys, &c, "", "tokenizer", v.tokenizer);
    if (status == AN_OK) status = an_session_open(err, &c, st, AN_RUN_PARAMETERS_ONLY, &r);
    if (status == AN_OK && own && v.tokenizer[0])
        status = an_tokenizer_check_named(err, v.tokenizer, an_st_path(st), r->data->tokenizer);
    an_st_close(st);
    if (status == AN_OK) status = speak(err, r, &v, args->quiet);
    if (status == AN_OK && an_interrupt_seen(NULL)) *exit_code = AN_EXIT_INTERRUPTED;
    an_session_close(r);
    return status;
}
