/* cmd_prepare.c: tokenizes a file, a folder of files, tinyshakespeare, or the user's copy of a collection of documents
 * (openwebtext, fineweb) into a folder that train reads. */
#define _DEFAULT_SOURCE
#include "cli/cmd_prepare.h"
#include "cli/progress_bar.h"
#include "io/data/download.h"
#include "io/data/prepare_text.h"
#include "io/formats/sha256.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef struct prepare_values {
    char out[AN_CONFIG_TEXT_BYTES], tokenizer[AN_CONFIG_TEXT_BYTES], from[AN_CONFIG_TEXT_BYTES],
        mirror[AN_CONFIG_TEXT_BYTES], errors[AN_CONFIG_TEXT_BYTES];
} prepare_values;

#define AT(name) offsetof(prepare_values, name)
static const an_config_field fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "", 0, 0, NULL,
     "folder for train.bin, val.bin and meta.json; empty: data/NAME, which data=NAME finds"},
    {"tokenizer", AN_CONFIG_TEXT, AT(tokenizer), "char", 0, 0, NULL,
     "char; gpt2, which is downloaded; or a tokenizer.json, or a folder with encoder.json and vocab.bpe"},
    {"from", AN_CONFIG_TEXT, AT(from), "", 0, 0, NULL,
     "your copy: of the text for shakespeare, in place of a download; for openwebtext and fineweb a folder or file of "
     "JSON lines (.jsonl, .gz, .zst) or texts"},
    {"mirror", AN_CONFIG_TEXT, AT(mirror), "", 0, 0, NULL,
     "address of a folder with input.txt, encoder.json and vocab.bpe, in place of their usual ones"},
    {"errors", AN_CONFIG_TEXT, AT(errors), "strict", 0, 0, "strict|replace",
     "what is no UTF-8: an error with file and byte, or U+FFFD as Python's errors=\"replace\" has it"},
};
const an_config an_prepare_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* Files that are downloaded: what nanoGPT's prepare.py and OpenAI's encoder.py fetch. */
typedef struct known_file {
    const char *name, *folder, *sha256;
    uint64_t bytes;
} known_file;
static const known_file shakespeare = {
    "input.txt", "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", 1115394};
static const known_file gpt2_files[] = {{"encoder.json",
                                         "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main",
                                         "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783", 1042301},
                                        {"vocab.bpe", "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main",
                                         "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5", 456318}};

enum { PATH_BYTES = 1024 };

/* ---- downloads */

void an_prepare_tell_download(void *arg, uint64_t have, uint64_t bytes)
{
    fprintf(stderr, "\r%s: %3.0f %%", (const char *)arg, 100.0 * (double)have / (double)bytes);
    if (have == bytes) fputc('\n', stderr);
}

/* Into the folder `into`, from `mirror` where it is not empty. */
static an_status fetch(an_err *err, const known_file *f, const char *into, const char *mirror, bool quiet,
                       const char *otherwise, char path[PATH_BYTES])
{
    char url[PATH_BYTES];
    const char *folder = *mirror ? mirror : f->folder;
    int n = snprintf(url, sizeof url, "%s/%s", folder, f->name), m = snprintf(path, PATH_BYTES, "%s/%s", into, f->name);
    if (n >= PATH_BYTES || m >= PATH_BYTES) return an_fail(err, AN_E_USAGE, "out=%s: the path is too long", into);
    const an_download d = {.url = url,
                           .path = path,
                           .sha256 = f->sha256,
                           .bytes = f->bytes,
                           .otherwise = otherwise,
                           .tell = !quiet && isatty(STDERR_FILENO) ? an_prepare_tell_download : NULL,
                           .arg = (void *)(uintptr_t)f->name};
    return an_download_file(err, &d);
}

an_status an_prepare_gpt2(an_err *err, const char *folder, const char *mirror, bool quiet, an_tokenizer **out)
{
    char paths[2][PATH_BYTES];
    *out = NULL;
    for (int i = 0; i < 2; i++)
        AN_TRY(fetch(err, &gpt2_files[i], folder, mirror, quiet,
                     "name a folder with encoder.json and vocab.bpe with tokenizer=FOLDER", paths[i]));
    return an_tokenizer_gpt2(err, paths[0], paths[1], out);
}

static an_status find_shakespeare(an_err *err, const prepare_values *v, bool quiet, char path[PATH_BYTES])
{
    char sha256[AN_SHA256_TEXT_BYTES];
    if (!v->from[0])
        return fetch(err, &shakespeare, v->out, v->mirror, quiet, "name your copy of the text with --from FILE", path);
    AN_TRY(an_sha256_file(err, v->from, sha256));
    if (strcmp(sha256, shakespeare.sha256) != 0)
        return an_fail(err, AN_E_DATA,
                       "%s: not tinyshakespeare (%llu bytes, sha256 %s); anneal prepare FILE takes any text", v->from,
                       (unsigned long long)shakespeare.bytes, shakespeare.sha256);
    snprintf(path, PATH_BYTES, "%s", v->from);
    return AN_OK;
}

/* *out NULL: characters. */
static an_status find_tokenizer(an_err *err, const prepare_values *v, bool quiet, an_tokenizer **out)
{
    *out = NULL;
    if (strcmp(v->tokenizer, "char") == 0) return AN_OK;
    if (strcmp(v->tokenizer, "gpt2") == 0) return an_prepare_gpt2(err, v->out, v->mirror, quiet, out);
    return an_tokenizer_open(err, v->tokenizer, out);
}

/* ---- the command */

/* nanoGPT's collections: many documents, of which the last 0.05 % of the characters are kept for validation, about as
 * much as nanoGPT keeps. */
static const double COLLECTION_TRAIN_PART = 0.9995;

static bool is_collection(const char *source)
{
    return strcmp(source, "openwebtext") == 0 || strcmp(source, "fineweb") == 0;
}

static an_status check_from(an_err *err, const char *source, const prepare_values *v)
{
    if (is_collection(source) && !v->from[0])
        return an_fail(err, AN_E_USAGE,
                       "prepare: %s is not downloaded; name your copy with --from PATH: JSON lines with a \"text\" "
                       "(.jsonl, .jsonl.gz, .jsonl.zst), or a folder of them or of texts",
                       source);
    if (v->from[0] && !is_collection(source) && strcmp(source, "shakespeare") != 0)
        return an_fail(err, AN_E_USAGE,
                       "prepare: --from is for shakespeare, openwebtext and fineweb; name the text itself: anneal "
                       "prepare %s",
                       v->from);
    return AN_OK;
}

/* data/NAME, NAME being nanoGPT's for tinyshakespeare and else the file's or folder's, without what follows a dot. */
static void settle_out(const char *source, bool is_shakespeare, prepare_values *v)
{
    const bool characters = strcmp(v->tokenizer, "char") == 0;
    size_t n = strlen(source);
    if (v->out[0]) return;
    while (n > 1 && source[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && source[start - 1] != '/') start--;
    const char *dot = memchr(source + start + 1, '.', n > start + 1 ? n - start - 1 : 0);
    if (dot) n = (size_t)(dot - source);
    if (is_shakespeare)
        snprintf(v->out, sizeof v->out, "data/shakespeare%s", characters ? "_char" : "");
    else
        snprintf(v->out, sizeof v->out, "data/%.*s", (int)(n - start), source + start);
}

static an_status print_result(an_err *err, const prepare_values *v, const an_prepared *p, bool json)
{
    an_text line = {0};
    if (json) {
        an_text_puts(&line, "{\"out\":");
        an_json_put(&line, v->out);
        an_text_printf(&line, ",\"vocab_size\":%d,\"train_tokens\":%llu,\"val_tokens\":%llu", (int)p->vocab,
                       (unsigned long long)p->tokens[0], (unsigned long long)p->tokens[1]);
        an_text_printf(&line, ",\"documents\":%llu", (unsigned long long)p->documents);
        an_text_printf(&line, ",\"files\":%llu,\"bytes\":%llu,\"characters\":%llu,\"replaced\":%llu}",
                       (unsigned long long)p->files, (unsigned long long)p->bytes, (unsigned long long)p->characters,
                       (unsigned long long)p->replaced);
        return an_print_line(err, &line);
    }
    an_text_printf(&line, "%s: %llu training and %llu validation tokens of %d kinds, from %llu characters", v->out,
                   (unsigned long long)p->tokens[0], (unsigned long long)p->tokens[1], (int)p->vocab,
                   (unsigned long long)p->characters);
    if (p->documents > p->files) an_text_printf(&line, " in %llu documents", (unsigned long long)p->documents);
    if (p->files > 1) an_text_printf(&line, " in %llu files", (unsigned long long)p->files);
    if (p->replaced) an_text_printf(&line, "; %llu places were no UTF-8", (unsigned long long)p->replaced);
    return an_print_line(err, &line);
}

an_status an_cmd_prepare(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    prepare_values v;
    char path[PATH_BYTES];
    const char *source = args->words[0];
    an_tokenizer *tokenizer = NULL;
    an_prepared result;
    AN_TRY(an_config_defaults(err, &an_prepare_keys, &v));
    if (is_collection(source)) snprintf(v.tokenizer, sizeof v.tokenizer, "gpt2"); /* as nanoGPT prepares them */
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_prepare_keys, &v}, 1));
    signal(SIGXFSZ, SIG_IGN); /* exceeding a file size limit becomes an error, not a signal */
    const bool is_shakespeare = strcmp(source, "shakespeare") == 0;
    AN_TRY(check_from(err, source, &v));
    settle_out(source, is_shakespeare, &v);
    if (is_shakespeare) AN_TRY(find_shakespeare(err, &v, args->quiet, path));
    AN_TRY(find_tokenizer(err, &v, args->quiet, &tokenizer));
    an_bar *bar = an_bar_open(args, "prepare", "characters", NULL, NULL);
    const an_prepare p = {.source = is_shakespeare          ? path
                                    : is_collection(source) ? v.from
                                                            : source,
                          .out = v.out,
                          .records = is_collection(source),
                          .train_part = is_collection(source) ? COLLECTION_TRAIN_PART : 0,
                          .tokenizer = tokenizer,
                          .replace = strcmp(v.errors, "replace") == 0,
                          .tell = an_bar_tell,
                          .arg = bar};
    an_status status = an_prepare_text(err, &p, &result);
    an_bar_close(bar);
    an_tokenizer_free(tokenizer);
    return status == AN_OK ? print_result(err, &v, &result, args->json) : status;
}
