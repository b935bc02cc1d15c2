/* cmd_sample.c: text from a checkpoint, streamed token by token. */
#include "cli/cli.h"
#include "train/generate.h"
#include <string.h>

typedef struct sample_values {
    int64_t tokens, num_samples, top_k, seed, threads;
    double temperature, top_p;
    bool best;
    char start[AN_CONFIG_TEXT_BYTES], device[AN_CONFIG_TEXT_BYTES], tokenizer[AN_CONFIG_TEXT_BYTES];
} sample_values;

#define AT(name) offsetof(sample_values, name)
static const an_config_field fields[] = {
    {"start", AN_CONFIG_TEXT, AT(start), "", 0, 0, NULL,
     "the prompt, or FILE:PATH for a file's text; empty: a new line"},
    {"tokens", AN_CONFIG_INT, AT(tokens), "500", 0, 1e9, NULL, "tokens to draw for each sample"},
    {"num_samples", AN_CONFIG_INT, AT(num_samples), "1", 1, 1e6, NULL, "texts to write, each from the prompt"},
    {"temperature", AN_CONFIG_FLOAT, AT(temperature), "0.8", 0, 100, NULL, "0: always the most probable token"},
    {"top_k", AN_CONFIG_INT, AT(top_k), "200", 0, 1e6, NULL, "draw from the k most probable tokens; 0: from all"},
    {"top_p", AN_CONFIG_FLOAT, AT(top_p), "1", 0, 1, NULL,
     "then from the fewest that reach probability p; 0 or 1: all"},
    {"seed", AN_CONFIG_INT, AT(seed), "1337", 0, 9e15, NULL, "of the drawing"},
    {"best", AN_CONFIG_BOOL, AT(best), "false", 0, 0, NULL, "of a run: the checkpoint with the lowest validation loss"},
    {"device", AN_CONFIG_TEXT, AT(device), "auto", 0, 0, NULL, "where to run"},
    {"threads", AN_CONFIG_INT, AT(threads), "0", 0, 4096, NULL, "CPU threads; 0: every core"},
    {"tokenizer", AN_CONFIG_TEXT, AT(tokenizer), "", 0, 0, NULL,
     "for a checkpoint without one: a folder with GPT-2's encoder.json and vocab.bpe"},
};
const an_config an_sample_keys = {fields, AN_COUNT(fields)};

typedef struct output {
    an_err *err;
    const an_tokenizer *tokenizer;
    an_status status;
} output;

static an_status write_tokens(an_err *err, const an_tokenizer *t, const int32_t *ids, size_t n)
{
    an_text text = {0};
    an_status status = an_tokenizer_decode(err, t, ids, n, &text);
    if (status == AN_OK && text.len && fwrite(text.data, 1, text.len, stdout) != text.len)
        status = an_fail(err, AN_E_IO, "stdout cannot be written to");
    if (status == AN_OK) fflush(stdout);
    an_text_free(&text);
    return status;
}

/* A vocabulary that was rounded up has ids without text: they end a text as <|endoftext|> does. */
static bool write_token(void *arg, int32_t id)
{
    output *o = arg;
    if (id >= an_tokenizer_vocab(o->tokenizer) || id == an_tokenizer_end(o->tokenizer)) return false;
    o->status = write_tokens(o->err, o->tokenizer, &id, 1);
    return o->status == AN_OK && !an_interrupt_seen(NULL);
}

static an_status read_prompt(an_err *err, const char *start, const an_tokenizer *t, an_ids *out)
{
    if (strncmp(start, "FILE:", 5) != 0) return an_tokenizer_encode(err, t, "start", start, strlen(start), true, out);
    FILE *f = fopen(start + 5, "rb");
    if (!f) return an_fail(err, AN_E_IO, "start=%s: the file cannot be read", start);
    an_text text = {0};
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) an_text_putn(&text, piece, n);
    an_status status = ferror(f) ? an_fail(err, AN_E_IO, "start=%s: the file cannot be read", start) : AN_OK;
    fclose(f);
    if (status == AN_OK && text.len) status = an_tokenizer_encode(err, t, start + 5, text.data, text.len, true, out);
    an_text_free(&text);
    return status;
}

static an_status write_samples(an_err *err, an_run *r, const sample_values *v, const an_ids *prompt, bool quiet)
{
    double seconds = 0, first = 0;
    int64_t drawn = 0;
    for (int64_t i = 0; i < v->num_samples && !an_interrupt_seen(NULL); i++) {
        const an_generate_options o = {
            .sampler = {.temperature = v->temperature, .top_k = v->top_k, .top_p = v->top_p, .seed = (uint64_t)v->seed},
            .tokens = v->tokens,
            .sample = (uint32_t)i};
        output sink = {err, r->tokenizer, AN_OK};
        an_generate_result result;
        AN_TRY(write_tokens(err, r->tokenizer, prompt->data, prompt->len));
        AN_TRY(an_generate(err, r, &o, prompt->data, prompt->len, write_token, &sink, &result));
        AN_TRY(sink.status);
        fputs(v->num_samples > 1 ? "\n---------------\n" : "\n", stdout);
        fflush(stdout);
        drawn += result.tokens;
        seconds += result.tokens_s;
        first += result.prompt_s;
    }
    if (!quiet && drawn > 0)
        fprintf(stderr, "%lld tokens, %.0f tokens/s (first after %.0f ms)\n", (long long)drawn,
                seconds > 0 ? (double)(drawn - 1) / seconds : 0, 1e3 * first / (double)v->num_samples);
    return AN_OK;
}

static an_status sample(an_err *err, an_run *r, const sample_values *v, bool quiet)
{
    if (!r->tokenizer)
        return an_fail(err, AN_E_USAGE,
                       "the checkpoint has no tokenizer (its data was a .bin file): set tokenizer=FOLDER");
    an_ids prompt = {0};
    an_status status = read_prompt(err, v->start[0] ? v->start : "\n", r->tokenizer, &prompt);
    if (status == AN_OK) status = write_samples(err, r, v, &prompt, quiet);
    an_ids_free(&prompt);
    return status;
}

an_status an_cmd_sample(an_err *err, const an_args *args, int *exit_code)
{
    sample_values v;
    an_train_config c;
    an_st *st;
    an_run *r = NULL;
    AN_TRY(an_config_defaults(err, &an_sample_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_sample_keys, &v}, 1));
    AN_TRY(an_cli_open_weights(err, args->words[0], v.best, &c, &st));
    snprintf(c.device, sizeof c.device, "%s", v.device);
    if (v.tokenizer[0]) snprintf(c.tokenizer, sizeof c.tokenizer, "%s", v.tokenizer);
    c.threads = v.threads;
    an_interrupt_catch();
    an_status status = an_run_open(err, &c, st, AN_RUN_PARAMETERS_ONLY, &r);
    an_st_close(st);
    if (status == AN_OK) status = sample(err, r, &v, args->quiet);
    if (status == AN_OK && an_interrupt_seen(NULL)) *exit_code = AN_EXIT_INTERRUPTED;
    an_run_close(r);
    return status;
}
