/* cmd_sample.c: text from a checkpoint, streamed token by token. */
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "infer/generate.h"
#include <anneal_decode.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct sample_values {
    int64_t tokens, num_samples, together, top_k, seed, threads, step;
    double temperature, top_p;
    bool best;
    const char *start; /* the argument itself: it may be longer than a setting's text */
    char out_dir[AN_CONFIG_TEXT_BYTES], init_from[AN_CONFIG_TEXT_BYTES], prompt[AN_CONFIG_TEXT_BYTES],
        device[AN_CONFIG_TEXT_BYTES], dtype[AN_CONFIG_TEXT_BYTES], tokenizer[AN_CONFIG_TEXT_BYTES],
        stop[AN_CONFIG_TEXT_BYTES];
} sample_values;

#define AT(name) offsetof(sample_values, name)
static const an_config_field fields[] = {
    {"prompt", AN_CONFIG_TEXT, AT(prompt), "", 0, 0, NULL,
     "the prompt; FILE:PATH for a file's text, - for standard input; empty: a new line"},
    {"start", AN_CONFIG_TEXT, AT(prompt), "", 0, 0, NULL, "nanoGPT's name for prompt"},
    {"tokens", AN_CONFIG_INT, AT(tokens), "500", 0, 1e9, NULL, "tokens to draw for each sample"},
    {"max_new_tokens", AN_CONFIG_INT, AT(tokens), "500", 0, 1e9, NULL, "nanoGPT's name for tokens"},
    {"num_samples", AN_CONFIG_INT, AT(num_samples), "1", 1, 1e6, NULL, "texts to write, each from the prompt"},
    {"together", AN_CONFIG_INT, AT(together), "0", 0, AN_MOST_TEXTS, NULL,
     "of these, texts drawn at a time, in one pass of the model a token; 0: on a GPU up to 64, elsewhere 1"},
    {"temperature", AN_CONFIG_FLOAT, AT(temperature), "0.8", 0, 100, NULL, "0: always the most probable token"},
    {"top_k", AN_CONFIG_INT, AT(top_k), "200", 0, 1e6, NULL, "draw from the k most probable tokens; 0: from all"},
    {"top_p", AN_CONFIG_FLOAT, AT(top_p), "1", 0, 1, NULL,
     "then from the fewest that reach probability p; 0 or 1: all"},
    {"stop", AN_CONFIG_TEXT, AT(stop), "", 0, 0, NULL,
     "end a text before this one (\\n is a new line); may be given several times"},
    {"seed", AN_CONFIG_INT, AT(seed), "1337", 0, 9e15, NULL, "of the drawing"},
    {"best", AN_CONFIG_BOOL, AT(best), "false", 0, 0, NULL, "of a run: the checkpoint with the lowest validation loss"},
    {"step", AN_CONFIG_INT, AT(step), "-1", -1, 9e15, NULL, "of a run: the checkpoint after so many updates"},
    {"device", AN_CONFIG_TEXT, AT(device), "auto", 0, 0, NULL, "where to run"},
    {"dtype", AN_CONFIG_TEXT, AT(dtype), "", 0, 0, NULL,
     "multiply in float32, bfloat16 or float16; empty: as the run was trained. 16 bits read half the memory a token"},
    {"threads", AN_CONFIG_INT, AT(threads), "0", 0, 4096, NULL, "CPU threads; 0: every core"},
    {"out_dir", AN_CONFIG_TEXT, AT(out_dir), "", 0, 0, NULL, "nanoGPT's way to name the run: sample --out_dir=RUN"},
    {"init_from", AN_CONFIG_TEXT, AT(init_from), "resume", 0, 0, NULL,
     "resume: the run of out_dir; or weights, as sample FILE has them"},
    {"tokenizer", AN_CONFIG_TEXT, AT(tokenizer), "", 0, 0, NULL,
     "for a checkpoint without one: a folder with GPT-2's encoder.json and vocab.bpe"},
};
const an_config an_sample_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { MAX_STOPS = 16 };

typedef struct one_text {
    an_text held;  /* drawn but not written: it may be the beginning of a stop text */
    an_text later; /* of texts drawn beside the first: written when those before it are complete */
    bool live, stopped;
} one_text;

typedef struct output {
    an_err *err;
    const an_tokenizer *tokenizer;
    an_status status;
    const char *stop[MAX_STOPS];
    size_t n_stops;
    one_text *text; /* [texts] drawn at a time */
    int64_t texts;
    an_bar *bar;        /* where the texts go into a file and several are drawn */
    int64_t drawn, all; /* tokens */
} output;

static an_status write_bytes(an_err *err, const char *bytes, size_t n)
{
    if (n > 0 && fwrite(bytes, 1, n, stdout) != n) return an_fail(err, AN_E_IO, "stdout cannot be written to");
    fflush(stdout);
    return AN_OK;
}

/* ---- stop texts */

/* How many bytes at the end of the held text may be the beginning of a stop text; *at: where a complete one begins, or
 * the length of the held text. */
static size_t undecided(const output *o, const an_text *held, size_t *at)
{
    size_t most = 0;
    *at = held->len;
    for (size_t s = 0; s < o->n_stops; s++) {
        const size_t n = strlen(o->stop[s]);
        for (size_t begin = 0; begin < held->len; begin++) {
            const size_t there = held->len - begin;
            if (memcmp(held->data + begin, o->stop[s], there < n ? there : n) != 0) continue;
            if (there >= n)
                *at = begin < *at ? begin : *at;
            else
                most = there > most ? there : most;
            break;
        }
    }
    return most;
}

/* Writes the held text except a tail that may become a stop text; at the `end`, all of it. */
static an_status write_held(output *o, one_text *t, bool end)
{
    size_t at;
    an_text *held = &t->held;
    const size_t keep = undecided(o, held, &at);
    t->stopped = at < held->len;
    size_t n = t->stopped ? at : end ? held->len : held->len - keep;
    if (held->failed) return an_fail_nomem(o->err, "text that may be a stop text", held->len);
    if (isatty(STDOUT_FILENO) == 1) {
        if (n > 0 && !end && (unsigned char)held->data[n - 1] == 0xC2) n--; /* the next byte may make it a control */
        an_text_printable(held->data, n);
    }
    if (t->live)
        AN_TRY(write_bytes(o->err, held->data, n));
    else if (n > 0)
        an_text_putn(&t->later, held->data, n);
    if (t->later.failed) return an_fail_nomem(o->err, "a text", t->later.len);
    if (n > 0) memmove(held->data, held->data + n, held->len - n);
    held->len -= n;
    return AN_OK;
}

/* \n and \t in `text`, which is changed in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        const bool escape = *p == '\\' && (p[1] == 'n' || p[1] == 't' || p[1] == '\\');
        *to++ = !escape ? *p : *++p == 'n' ? '\n' : *p == 't' ? '\t' : '\\';
    }
    *to = 0;
}

static void free_output(output *o)
{
    for (size_t i = 0; i < o->n_stops; i++) free((char *)o->stop[i]);
    for (int64_t i = 0; o->text && i < o->texts; i++) {
        an_text_free(&o->text[i].held);
        an_text_free(&o->text[i].later);
    }
    free(o->text);
}

static an_status read_stops(an_err *err, const an_args *args, output *o)
{
    for (size_t i = 0; i < args->n_settings; i++) {
        const an_setting *s = &args->settings[i];
        if (strcmp(s->key, "stop") != 0 || !*s->value) continue;
        if (o->n_stops == MAX_STOPS) return an_fail(err, AN_E_USAGE, "sample: more than %d stop texts", MAX_STOPS);
        const size_t n = strlen(s->value) + 1;
        char *copy = malloc(n);
        if (!copy) return an_fail_nomem(err, "a stop text", n);
        memcpy(copy, s->value, n);
        unescape(copy);
        o->stop[o->n_stops++] = copy;
    }
    return AN_OK;
}

/* ---- drawing */

/* Vocabularies padded to a multiple of 64 have ids without text: drawing one ends the text, as <|endoftext|> does. */
static bool write_token(void *arg, int64_t text, int32_t id)
{
    output *o = arg;
    one_text *t = &o->text[text];
    an_bar_tell(o->bar, ++o->drawn, o->all);
    if (id >= an_tokenizer_vocab(o->tokenizer) || id == an_tokenizer_end(o->tokenizer)) return false;
    if (o->status != AN_OK) return false;
    o->status = an_tokenizer_decode(o->err, o->tokenizer, &id, 1, &t->held);
    if (o->status == AN_OK) o->status = write_held(o, t, false);
    return o->status == AN_OK && !t->stopped && !an_interrupt_seen(NULL);
}

/* A text without a prompt begins with a newline, or with the vocabulary's first character where it has none. */
static an_status default_prompt(an_err *err, const an_tokenizer *t, an_text *out)
{
    an_ids ids = {0};
    const bool line = an_tokenizer_encode(NULL, t, "prompt", "\n", 1, false, &ids) == AN_OK;
    an_ids_free(&ids);
    return line ? an_text_puts(out, "\n"), AN_OK : an_tokenizer_decode(err, t, &(int32_t){0}, 1, out);
}

enum { MAX_PROMPT_BYTES = 64 << 20 };

static an_status read_prompt(an_err *err, const an_tokenizer *t, const char *prompt, an_text *out)
{
    if (!*prompt) return default_prompt(err, t, out);
    const bool file = strncmp(prompt, "FILE:", 5) == 0;
    if (file || strcmp(prompt, "-") == 0) return an_input_read(err, file ? prompt + 5 : "-", MAX_PROMPT_BYTES, out);
    return an_text_puts(out, prompt), AN_OK;
}

/* Draws texts from number `first` on at a time; the first is written as it comes, the others when it has ended. */
static an_status write_together(an_err *err, an_session *r, const sample_values *v, const an_text *text,
                                const an_ids *ids, output *sink, int64_t first, an_generate_result *result)
{
    const int64_t now = AN_MIN(sink->texts, v->num_samples - first);
    const an_generate_options o = {
        .sampler = {.temperature = v->temperature, .top_k = v->top_k, .top_p = v->top_p, .seed = (uint64_t)v->seed},
        .tokens = v->tokens,
        .texts = sink->texts, /* those beyond the last are thrown away: there is one plan for all */
        .sample = (uint32_t)first};
    for (int64_t i = 0; i < sink->texts; i++) {
        an_text_clear(&sink->text[i].held);
        an_text_clear(&sink->text[i].later);
        sink->text[i].live = i == 0;
        sink->text[i].stopped = false;
    }
    AN_TRY(write_bytes(err, text->data, text->len));
    AN_TRY(an_generate(err, r, &o, ids->data, ids->len, write_token, sink, result));
    AN_TRY(sink->status);
    for (int64_t i = 0; i < now; i++) {
        one_text *t = &sink->text[i];
        if (i > 0) AN_TRY(write_bytes(err, text->data, text->len));
        if (i > 0) AN_TRY(write_bytes(err, t->later.data, t->later.len));
        t->live = true;
        if (!t->stopped) AN_TRY(write_held(sink, t, true));
        fputs(v->num_samples > 1 ? "\n---------------\n" : "\n", stdout);
        fflush(stdout);
    }
    return AN_OK;
}

static an_status write_samples(an_err *err, an_session *r, const sample_values *v, const an_text *text,
                               const an_ids *ids, output *sink, bool quiet)
{
    double seconds = 0, first = 0;
    int64_t drawn = 0, starts = 0;
    for (int64_t i = 0; i < v->num_samples && !an_interrupt_seen(NULL); i += sink->texts, starts++) {
        an_generate_result result;
        AN_TRY(write_together(err, r, v, text, ids, sink, i, &result));
        drawn += result.tokens - sink->texts;
        seconds += result.tokens_s;
        first += result.prompt_s;
    }
    if (!quiet && starts > 0)
        fprintf(stderr, "%lld tokens, %.0f tokens/s (first after %.0f ms)\n", (long long)(drawn + starts * sink->texts),
                seconds > 0 ? (double)drawn / seconds : 0, 1e3 * first / (double)starts);
    return AN_OK;
}

/* How many texts are drawn at a time. */
static int64_t texts_together(const an_session *r, const sample_values *v)
{
    enum { ON_A_GPU = 64 };
    const an_decoder *d = r->cfg.model->decoder;
    if (!d || !d->together) return v->together > 1 ? v->together : 1; /* an_generate refuses several */
    const int64_t most = v->together ? v->together : an_steps_in_flight(r->cx) > 1 ? ON_A_GPU : 1;
    return AN_MAX(AN_MIN(most, v->num_samples), 1);
}

static an_status sample(an_err *err, an_session *r, const sample_values *v, const an_args *args)
{
    if (!r->data->tokenizer)
        return an_fail(err, AN_E_USAGE,
                       "the checkpoint has no tokenizer (its data was a .bin file): set tokenizer=FOLDER");
    an_text text = {0};
    an_ids ids = {0};
    output sink = {.err = err, .tokenizer = r->data->tokenizer, .texts = texts_together(r, v)};
    sink.text = calloc((size_t)sink.texts, sizeof *sink.text);
    if (!sink.text) return an_fail_nomem(err, "texts", (size_t)sink.texts * sizeof *sink.text);
    an_status status = read_prompt(err, r->data->tokenizer, v->start, &text);
    if (status == AN_OK && text.len && !an_interrupt_seen(NULL))
        status = an_tokenizer_encode(err, r->data->tokenizer, "prompt", text.data, text.len, true, &ids);
    if (isatty(STDOUT_FILENO) == 1)
        an_text_printable(text.data, text.len); /* may come from a file; it is printed first */
    if (status == AN_OK) status = read_stops(err, args, &sink);
    sink.all = (v->num_samples + sink.texts - 1) / sink.texts * sink.texts * v->tokens;
    if (status == AN_OK && isatty(STDOUT_FILENO) != 1) sink.bar = an_bar_open(args, "sample", "tokens", NULL, NULL);
    if (status == AN_OK) status = write_samples(err, r, v, &text, &ids, &sink, args->quiet);
    an_bar_close(sink.bar);
    free_output(&sink);
    an_ids_free(&ids);
    an_text_free(&text);
    return status;
}

/* Removes the prompt from the arguments and returns it; the last one counts. */
static const char *take_prompt(an_args *args)
{
    const char *prompt = "";
    for (size_t i = 0; i < args->n_settings; i++) {
        an_setting *s = &args->settings[i];
        if (strcmp(s->key, "prompt") != 0 && strcmp(s->key, "start") != 0) continue;
        prompt = s->value;
        s->value = "";
    }
    return prompt;
}

/* The run or file to sample from: the argument; or as nanoGPT's sample.py has it, out_dir with init_from=resume, or the
 * weights that init_from names. */
static an_status source_of(an_err *err, const an_args *args, const sample_values *v, const char **out)
{
    const bool weights = strcmp(v->init_from, "resume") != 0;
    *out = args->n_words ? args->words[0] : weights ? v->init_from : v->out_dir;
    if (args->n_words && (v->out_dir[0] || weights))
        return an_fail(err, AN_E_USAGE, "sample: %.128s and %s both name what to sample from; leave one out", *out,
                       weights ? "init_from=" : "out_dir=");
    return **out ? AN_OK
                 : an_fail(err, AN_E_USAGE, "sample: name a run or a file: anneal sample RUN, or --out_dir=RUN");
}

an_status an_cmd_sample(an_err *err, const an_args *given, int *exit_code)
{
    an_args args = *given;
    sample_values v;
    an_train_config c;
    an_st *st;
    const char *source;
    an_session *r = NULL;
    AN_TRY(an_config_defaults(err, &an_sample_keys, &v));
    v.start = take_prompt(&args);
    AN_TRY(an_args_apply(err, &args, &(an_key_set){&an_sample_keys, &v}, 1));
    AN_TRY(source_of(err, &args, &v, &source));
    AN_TRY(an_cli_open_weights(err, source, v.best, v.step, &c, &st));
    snprintf(c.device, sizeof c.device, "%s", v.device);
    const an_config keys = an_train_keys(&c);
    c.threads = v.threads;
    an_interrupt_catch();
    an_status status = AN_OK;
    if (v.tokenizer[0]) status = an_config_set(err, &keys, &c, "", "tokenizer", v.tokenizer);
    if (status == AN_OK && v.dtype[0]) status = an_config_set(err, &keys, &c, "", "dtype", v.dtype);
    const bool own = an_st_meta(st, AN_CKPT_TOKENIZER) != NULL;
    if (status == AN_OK) status = an_session_open(err, &c, st, AN_RUN_PARAMETERS_ONLY, &r);
    if (status == AN_OK && own && v.tokenizer[0] && r->data->tokenizer)
        status = an_tokenizer_check_named(err, v.tokenizer, an_st_path(st), r->data->tokenizer);
    an_st_close(st);
    if (status == AN_OK) status = sample(err, r, &v, &args);
    if (status == AN_OK && an_interrupt_seen(NULL)) *exit_code = AN_EXIT_INTERRUPTED;
    an_session_close(r);
    return status;
}
