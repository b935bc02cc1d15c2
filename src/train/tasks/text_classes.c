/* text_classes.c: the task `text`: classifies texts (io/data/labelled_texts.h), or, with data=FILE.npy, embeddings of texts
 * [N,length,width] that another program computed, with their classes in FILE.labels.npy.
 *
 * A sample is a text, and so is a unit. The model has two inputs: tokens i32 [B,length], 0 after a text's end, or vectors
 * f32 [B,length,width]; and labels i32 [B]. Its settings have `vocabulary`, `classes`, `length` and `input`. Tokens are
 * the words of the training split, or those of a tokenizer in a folder, each id plus one, since 0 is padding. A checkpoint
 * holds the names of the classes, and words or tokenizer, so that anneal predict does not need the data. */
#include "train/tasks/text_classes.h"
#include "io/data/labelled_texts.h"
#include "io/data/order.h"
#include "io/formats/csv.h"
#include "io/formats/npy.h"
#include "io/text/words.h"
#include "platform/platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct text_settings {
    an_train_text tokenizer;
    int64_t folds, fold;
} text_settings;

#define AT(name) offsetof(text_settings, name)
static const an_config_field fields[] = {
    {"tokenizer", AN_CONFIG_TEXT, AT(tokenizer), "words", 0, 0, NULL,
     "of texts: words, or a folder with GPT-2's encoder.json and vocab.bpe"},
    {"folds", AN_CONFIG_INT, AT(folds), "5", 2, 1 << 20, NULL, "parts of the data, of which one is for validation"},
    {"fold", AN_CONFIG_INT, AT(fold), "0", 0, 1 << 20, NULL, "which of the parts is for validation, from 0"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

/* The tokens of a split's texts, concatenated: text i is ids [start[i], start[i + 1]). */
typedef struct encoded {
    an_ids ids;
    int64_t *start; /* [texts + 1] */
    int32_t *label; /* [texts] */
} encoded;

typedef struct text_data {
    an_task_data head;
    an_class_names classes;
    an_tokenizer *tokenizer; /* this or `words`; neither for vectors */
    an_words *words;
    encoded split[AN_N_SPLITS];
    an_npy x, y; /* of vectors; x.data NULL: there are none */
    int64_t folds, fold, T, width;
    bool vectors, whole;
    an_train_text source; /* data= */
} text_data;

enum { NO_LABEL = -1, PADDING = 0 };

static const text_data *texts(const an_task_data *d)
{
    return (const text_data *)d;
}

static const text_settings *settings_of(const an_train_config *c)
{
    return (const void *)c->task_settings.bytes;
}

/* ---- what weights were trained with */

static an_status read_facts(an_err *err, const char *where, const json_t *facts, text_data *d)
{
    const json_t *words = json_object_get(facts, "words");
    AN_TRY(an_class_names_from_json(err, where, json_object_get(facts, "classes"), &d->classes));
    return words ? an_words_from_json(err, where, words, &d->words) : AN_OK;
}

static an_status open_facts(an_err *err, const an_st *from, text_data *d)
{
    const char *text = from ? an_st_meta(from, AN_CKPT_TASK) : NULL;
    const char *tokenizer = from ? an_st_meta(from, AN_CKPT_TOKENIZER) : NULL;
    json_t *facts;
    if (text) {
        AN_TRY(an_json_parse(err, an_st_path(from), 0, text, strlen(text), &facts));
        an_status status = read_facts(err, an_st_path(from), facts, d);
        json_decref(facts);
        AN_TRY(status);
    }
    if (tokenizer) AN_TRY(an_tokenizer_from_json(err, an_st_path(from), tokenizer, strlen(tokenizer), &d->tokenizer));
    return AN_OK;
}

static an_status facts(an_err *err, const an_task_data *task, an_text *out)
{
    (void)err;
    const text_data *d = texts(task);
    an_text_puts(out, "{\"classes\":");
    an_class_names_json(&d->classes, out);
    if (d->words) {
        an_text_puts(out, ",\"words\":");
        an_words_json(d->words, out);
    }
    an_text_puts(out, "}");
    return AN_OK;
}

/* ---- opening texts */

static an_status make_words(an_err *err, const an_labelled_texts *t, text_data *d)
{
    size_t n;
    int32_t label;
    AN_TRY(an_words_new(err, &d->words));
    for (int64_t i = 0; i < an_labelled_texts_count(t, AN_TRAIN); i++) {
        const char *text = an_labelled_text(t, AN_TRAIN, i, &n, &label);
        AN_TRY(an_words_add(err, d->words, text, n));
    }
    return an_words_seal(err, d->words);
}

/* Appends the ids of a text's first T tokens. */
static an_status encode(an_err *err, const text_data *d, const char *text, size_t n, an_ids *out)
{
    if (d->words) return an_words_encode(err, d->words, text, n, (size_t)d->T, out);
    const size_t begin = out->len;
    AN_TRY(an_tokenizer_encode(err, d->tokenizer, "a text", text, n, false, out));
    out->len = AN_MIN(out->len, begin + (size_t)d->T);
    for (size_t i = begin; i < out->len; i++) out->data[i]++;
    return AN_OK;
}

static an_status encode_split(an_err *err, const an_labelled_texts *t, int split, text_data *d)
{
    const int64_t n = an_labelled_texts_count(t, split);
    encoded *e = &d->split[split];
    e->start = calloc((size_t)n + 1, sizeof *e->start);
    e->label = calloc((size_t)n + 1, sizeof *e->label);
    if (!e->start || !e->label) return an_fail_nomem(err, "the texts' tokens", (size_t)n * sizeof *e->start);
    for (int64_t i = 0; i < n; i++) {
        size_t bytes;
        const char *text = an_labelled_text(t, split, i, &bytes, &e->label[i]);
        AN_TRY(encode(err, d, text, bytes, &e->ids));
        e->start[i + 1] = (int64_t)e->ids.len;
    }
    d->head.units[split] = n;
    d->head.bytes += (size_t)(n + 1) * (sizeof *e->start + sizeof *e->label) + e->ids.cap * sizeof *e->ids.data;
    return AN_OK;
}

static an_status take_texts(an_err *err, const an_train_config *c, const an_labelled_texts *t, text_data *d)
{
    const char *tokenizer = settings_of(c)->tokenizer;
    an_class_names_free(&d->classes);
    AN_TRY(an_class_names_copy(err, an_labelled_texts_classes(t), &d->classes));
    if (!d->words && !d->tokenizer && strcmp(tokenizer, "words") == 0)
        AN_TRY(make_words(err, t, d));
    else if (!d->words && !d->tokenizer)
        AN_TRY(an_tokenizer_open(err, tokenizer, &d->tokenizer));
    for (int split = 0; split < AN_N_SPLITS; split++) AN_TRY(encode_split(err, t, split, d));
    d->head.bytes += d->words ? an_words_bytes(d->words) : 0;
    return AN_OK;
}

static an_status open_texts(an_err *err, const an_train_config *c, text_data *d)
{
    an_labelled_texts *t;
    const an_labelled_texts_options o = {.source = c->data,
                                         .folds = d->folds,
                                         .fold = d->fold,
                                         .whole = d->whole,
                                         .known = d->classes.n ? &d->classes : NULL};
    AN_TRY(an_labelled_texts_open(err, &o, &t));
    an_status status = take_texts(err, c, t, d);
    an_labelled_texts_close(t);
    d->head.built_in = strcmp(c->data, "issues") == 0;
    return status;
}

/* ---- opening vectors */

static bool is_npy(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".npy") == 0;
}

/* Classes that are numbers have their numbers as names. */
static an_status number_classes(an_err *err, const char *path, text_data *d)
{
    int64_t most = -1, row = 0;
    char name[32];
    for (int64_t i = 0; i < d->y.dim[0]; i++) {
        const double y = an_npy_number(&d->y, i);
        if (y < 0 || y >= AN_CLASSES_MOST)
            return an_fail(err, AN_E_DATA, "%s: the label of row %lld is %.0f; classes are 0 to %d", path, (long long)i,
                           y, AN_CLASSES_MOST - 1);
        if ((int64_t)y > most) most = (int64_t)y, row = i;
    }
    if (d->classes.n > most) return AN_OK; /* the checkpoint has names for them */
    if (d->whole && d->classes.n > 0)
        return an_fail(err, AN_E_DATA, "%s: a label is %lld, the weights know %d classes", path, (long long)most,
                       d->classes.n);
    uint8_t *seen = calloc((size_t)most + 1, 1);
    if (!seen) return an_fail_nomem(err, path, (size_t)most + 1);
    for (int64_t i = 0; i < d->y.dim[0]; i++) seen[(int64_t)an_npy_number(&d->y, i)] = 1;
    const an_status status = an_class_numbers_check(err, path, seen, most, row);
    free(seen);
    AN_TRY(status);
    an_class_names_free(&d->classes);
    for (int64_t i = 0; i <= most; i++) {
        snprintf(name, sizeof name, "%lld", (long long)i);
        AN_TRY(an_class_names_add(err, path, &d->classes, name, strlen(name)));
    }
    return AN_OK;
}

static an_status open_vectors(an_err *err, const an_train_config *c, text_data *d)
{
    char labels[AN_CONFIG_TEXT_BYTES + 16];
    snprintf(labels, sizeof labels, "%.*s.labels.npy", (int)strlen(c->data) - 4, c->data);
    AN_TRY(an_npy_open(err, c->data, &d->x));
    if (access(labels, F_OK) != 0)
        return an_fail(err, AN_E_DATA, "%s is not there: the classes of %s, a whole number for each of its texts",
                       labels, c->data);
    AN_TRY(an_npy_open(err, labels, &d->y));
    if (d->x.rank != 3 || d->x.dim[0] < 1 || an_npy_elements(&d->x) < 1)
        return an_fail(err, AN_E_DATA, "%s: vectors of texts are an array [N,length,width]", c->data);
    if (d->y.rank != 1 || d->y.dim[0] != d->x.dim[0] || d->y.dtype == AN_F32 || d->y.dtype == AN_F64)
        return an_fail(err, AN_E_DATA, "%s: labels are whole numbers, one for each of the %lld texts of %s", labels,
                       (long long)d->x.dim[0], c->data);
    AN_TRY(number_classes(err, labels, d));
    const int64_t n = d->x.dim[0], val = n / d->folds + (n % d->folds > d->fold);
    d->head.units[AN_VAL] = d->whole ? n : val;
    d->head.units[AN_TRAIN] = d->whole ? 0 : n - val;
    return AN_OK;
}

/* The row of the file that is row i of a split. */
static int64_t vector_row(const text_data *d, int split, int64_t i)
{
    if (d->whole) return i;
    if (split == AN_VAL) return i * d->folds + d->fold;
    const int64_t k = i % (d->folds - 1);
    return i / (d->folds - 1) * d->folds + k + (k >= d->fold);
}

/* ---- opening */

static an_status settle(an_err *err, an_train_config *c, const char *key, int64_t have)
{
    AN_TRY(an_task_settle(err, c, key, have));
    const int64_t *size = an_train_number(c, key);
    if (have <= *size) return AN_OK;
    return an_fail(err, AN_E_USAGE, "%s=%lld, but %s has %lld", key, (long long)*size, c->data, (long long)have);
}

static char *input_of(an_train_config *c)
{
    const an_config_field *f = an_config_find(c->model->keys, "input");
    return f ? c->model_settings.bytes + f->offset : NULL;
}

static void close_text(an_task_data *task)
{
    text_data *d = (text_data *)task;
    for (int split = 0; split < AN_N_SPLITS; split++) {
        an_ids_free(&d->split[split].ids);
        free(d->split[split].start);
        free(d->split[split].label);
    }
    an_npy_close(&d->x);
    an_npy_close(&d->y);
    an_words_free(d->words);
    an_tokenizer_free(d->tokenizer);
    an_class_names_free(&d->classes);
}

static an_status open_parts(an_err *err, an_train_config *c, const an_st *from, int flags, text_data *d)
{
    const bool load = flags & AN_OPEN_DATA;
    memcpy(d->source, c->data, sizeof d->source);
    d->folds = settings_of(c)->folds;
    d->fold = settings_of(c)->fold;
    d->whole = flags & AN_OPEN_WHOLE_FILE;
    if (d->fold >= d->folds)
        return an_fail(err, AN_E_USAGE, "fold=%lld folds=%lld: there are folds 0 to %lld", (long long)d->fold,
                       (long long)d->folds, (long long)d->folds - 1);
    AN_TRY(open_facts(err, from, d));
    const char *named = settings_of(c)->tokenizer;
    if (flags & AN_OPEN_INITIAL && d->words && strcmp(named, "words") != 0)
        return an_fail(err, AN_E_USAGE,
                       "tokenizer=%.300s, but the weights of %.300s are for words, which they bring: leave it out",
                       named, an_st_path(from));
    if (flags & AN_OPEN_INITIAL && d->tokenizer && strcmp(named, "words") != 0)
        AN_TRY(an_tokenizer_check_named(err, named, an_st_path(from), d->tokenizer));
    if (load && is_npy(c->data)) snprintf(input_of(c), AN_CONFIG_TEXT_BYTES, "vectors");
    d->vectors = strcmp(input_of(c), "vectors") == 0;
    if (load && d->vectors && !is_npy(c->data))
        return an_fail(err, AN_E_USAGE, "data=%s: with input=vectors it is a .npy file [N,length,width]", c->data);
    d->T = *an_train_number(c, "length");
    if (load) AN_TRY(d->vectors ? open_vectors(err, c, d) : open_texts(err, c, d));
    d->head.loaded = load;
    d->head.tokenizer = d->tokenizer;
    if (d->x.data) {
        *an_train_number(c, "length") = d->T = d->x.dim[1];
        *an_train_number(c, "width") = d->x.dim[2];
    }
    d->width = *an_train_number(c, "width");
    AN_TRY(settle(err, c, "classes", d->classes.n));
    const int64_t ids = d->words ? an_words_count(d->words) : d->tokenizer ? an_tokenizer_vocab(d->tokenizer) + 1 : 0;
    return d->vectors ? AN_OK : settle(err, c, "vocabulary", ids);
}

static an_status open_text(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *data)
{
    if (!an_train_number(c, "vocabulary") || !an_train_number(c, "length") || !input_of(c))
        return an_fail(err, AN_E_USAGE, "task=text: the model %s reads no texts", c->model->name);
    return open_parts(err, c, from, flags, (text_data *)data);
}

/* About those of the built-in texts. */
static const an_task_size sizes[] = {{"vocabulary", 700}, {"classes", 3}, {NULL, 0}};

/* ---- batches and evaluation samples */

static an_status count(an_err *err, const an_task_data *d, int split, int64_t *out)
{
    *out = d->units[split];
    if (*out > 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "the %s split has no texts: each class needs more groups of texts than folds=%lld",
                   split == AN_TRAIN ? "training" : "validation", (long long)texts(d)->folds);
}

/* Text `row` of a split as sample i of the arrays. */
static void read_sample(const text_data *d, int split, int64_t row, int64_t i, void *const *array)
{
    int32_t *label = array[1]; /* [room] */
    if (d->vectors) {
        const int64_t at = vector_row(d, split, row), n = d->T * d->width;
        float *x = (float *)array[0] + i * n; /* [T,width] */
        if (d->x.dtype == AN_F32)
            memcpy(x, (const char *)d->x.data + (size_t)(at * n) * sizeof *x, (size_t)n * sizeof *x);
        else
            for (int64_t k = 0; k < n; k++) x[k] = (float)an_npy_number(&d->x, at * n + k);
        label[i] = (int32_t)an_npy_number(&d->y, at);
        return;
    }
    const encoded *e = &d->split[split];
    int32_t *tokens = (int32_t *)array[0] + i * d->T; /* [T] */
    const int64_t n = e->start[row + 1] - e->start[row];
    for (int64_t k = 0; k < d->T; k++) tokens[k] = k < n ? e->ids.data[e->start[row] + k] : PADDING;
    label[i] = e->label[row];
}

static an_status batch(an_err *err, const an_task_data *task, const an_sample_range *draw, uint64_t step,
                       void *const *array)
{
    (void)err;
    const text_data *d = texts(task);
    for (int64_t i = 0; i < draw->samples; i++) {
        const uint64_t s = (uint64_t)(draw->first + i);
        read_sample(d, draw->split,
                    an_draw_row(task->units[draw->split], draw->split, draw->seed, step, s, draw->per_step), i, array);
    }
    return AN_OK;
}

static an_status read_texts(an_err *err, const an_task_data *task, int split, int64_t first, int64_t n, int64_t room,
                            void *const *array)
{
    (void)err;
    const text_data *d = texts(task);
    int32_t *label = array[1]; /* [room] */
    for (int64_t i = 0; i < n; i++) read_sample(d, split, first + i, i, array);
    const size_t sample = (size_t)d->T * (d->vectors ? (size_t)d->width * sizeof(float) : sizeof(int32_t));
    memset((char *)array[0] + (size_t)n * sample, 0, (size_t)(room - n) * sample);
    for (int64_t i = n; i < room; i++) label[i] = NO_LABEL;
    return AN_OK;
}

/* Classes that no training text has: a model cannot learn them. */
static void tell(const an_train_config *c, const an_task_data *task, an_text *out)
{
    enum { NAMED = 3 };
    const text_data *d = texts(task);
    const encoded *train = &d->split[AN_TRAIN];
    int missing = 0;
    (void)c;
    if (!task->loaded || d->vectors || d->whole || !train->label) return;
    for (int32_t k = 0; k < d->classes.n; k++) {
        bool found = false;
        char name[AN_CLASS_NAME_BYTES];
        for (int64_t i = 0; i < task->units[AN_TRAIN] && !found; i++) found = train->label[i] == k;
        if (found || missing++ >= NAMED) continue;
        snprintf(name, sizeof name, "%s", d->classes.name[k]);
        an_text_printable(name, strlen(name));
        an_text_printf(
            out, "no text of the class %s is trained on: all of them are for validation (fold=%lld of folds=%lld)\n",
            name, (long long)d->fold, (long long)d->folds);
    }
    if (missing > NAMED) an_text_printf(out, "nor of %d classes more\n", missing - NAMED);
}

/* XXH3-128 over tokens (or vectors as float32) and label of each text of the split. */
static void hash(const an_task_data *task, int split, char out[AN_HASH_TEXT_BYTES])
{
    const text_data *d = texts(task);
    const size_t bytes = (size_t)d->T * (d->vectors ? (size_t)d->width * sizeof(float) : sizeof(int32_t));
    int32_t label;
    char *sample = malloc(bytes);
    an_hasher h = an_hasher_begin();
    void *const array[] = {sample, &label};
    bool ok = sample != NULL;
    for (int64_t i = 0; ok && i < task->units[split]; i++) {
        read_sample(d, split, i, 0, array);
        ok = an_hasher_add(&h, sample, bytes) && an_hasher_add(&h, &label, sizeof label);
    }
    an_hasher_end_text(&h, ok, out);
    free(sample);
}

/* ---- questions */

typedef struct asked {
    const text_data *d;
    an_questions *out;
    an_text ids; /* samples of T ids */
} asked;

static an_status ask(an_err *err, asked *a, const char *text, size_t n)
{
    const text_data *d = a->d;
    an_ids ids = {0};
    an_status status = encode(err, d, text, n, &ids);
    for (int64_t k = 0; status == AN_OK && k < d->T; k++) {
        const int32_t id = (size_t)k < ids.len ? ids.data[k] : PADDING;
        an_text_putn(&a->ids, (const char *)&id, sizeof id);
    }
    an_ids_free(&ids);
    for (size_t i = 0; i < n; i++) an_text_putn(&a->out->names, text[i] ? &text[i] : " ", 1);
    an_text_putn(&a->out->names, "", 1);
    a->out->samples++;
    if (status == AN_OK && (a->ids.failed || a->out->names.failed))
        return an_fail_nomem(err, "texts to ask", a->ids.len);
    return status;
}

/* One text on each line; empty lines are skipped. */
static an_status ask_lines(an_err *err, asked *a, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        const size_t next = at + length + 1;
        if (length > 0 && text[at + length - 1] == '\r') length--;
        if (length > 0) AN_TRY(ask(err, a, text + at, length));
        at = next;
    }
    return AN_OK;
}

/* The column `text` of a CSV file, or its first. */
static an_status ask_csv(an_err *err, asked *a, const char *path)
{
    const an_csv_field *f;
    an_csv *file;
    size_t n, column = 0;
    AN_TRY(an_csv_open(err, path, &file));
    an_status status = an_csv_next(err, file, &f, &n);
    bool named = false;
    for (size_t i = 0; status == AN_OK && i < n; i++)
        if (f[i].n == 4 && memcmp(f[i].data, "text", 4) == 0) column = i, named = true;
    if (status == AN_OK && named) status = an_csv_next(err, file, &f, &n);
    while (status == AN_OK && n > 0) {
        status = ask(err, a, f[column].data, f[column].n);
        if (status == AN_OK) status = an_csv_next(err, file, &f, &n);
    }
    an_csv_close(file);
    return status;
}

static an_status ask_file(an_err *err, asked *a, const char *path)
{
    enum { MOST_BYTES = 1 << 30 };
    const size_t length = strlen(path);
    char *text;
    size_t n;
    if (length > 4 && strcmp(path + length - 4, ".csv") == 0) return ask_csv(err, a, path);
    AN_TRY(an_file_read(err, path, MOST_BYTES, &text, &n));
    an_status status = ask_lines(err, a, text, n);
    free(text);
    return status;
}

/* A word that is rather a file than a text: without blanks, with the beginning of a path or the ending of a file of texts. */
static bool is_file_name(const char *word)
{
    static const char *const endings[] = {".csv", ".tsv", ".txt", ".npy", ".json", ".jsonl"};
    static const char *const begins[] = {"/", "./", "../", "~/"};
    const size_t n = strlen(word);
    bool is = false;
    for (size_t i = 0; i < AN_COUNT(endings); i++)
        is |= n > strlen(endings[i]) && strcmp(word + n - strlen(endings[i]), endings[i]) == 0;
    for (size_t i = 0; i < AN_COUNT(begins); i++) is |= strncmp(word, begins[i], strlen(begins[i])) == 0;
    return is && !strpbrk(word, " \t\n");
}

static an_status questions(an_err *err, const an_task_data *task, const char *word, const an_text *standard_input,
                           an_questions *out)
{
    const text_data *d = texts(task);
    asked a = {.d = d, .out = out};
    *out = (an_questions){.sample_bytes = (size_t)d->T * sizeof(int32_t)};
    if (!d->words && !d->tokenizer)
        return an_fail(
            err, AN_E_DATA,
            "predict: these weights have no vocabulary, as exported ones and those for vectors do; predict from the "
            "run's checkpoint, or from a .npy file of vectors");
    an_status status =
        standard_input ? ask_lines(err, &a, standard_input->data ? standard_input->data : "", standard_input->len)
        : access(word, F_OK) == 0 ? ask_file(err, &a, word)
        : is_file_name(word)
            ? an_fail(err, AN_E_IO,
                      "%.300s: no such file; a text that is to be classified and looks like a file's name is "
                      "read from standard input: echo TEXT | anneal predict RUN -",
                      word)
            : ask(err, &a, word, strlen(word));
    if (status == AN_OK && out->samples == 0)
        status = an_fail(err, AN_E_DATA, "predict: there is no text in %s", standard_input ? "standard input" : word);
    out->data = a.ids.data;
    if (status != AN_OK) an_questions_free(out);
    return status;
}

static void locate(const an_task_data *task, int split, int64_t row, int array, an_text *out)
{
    const text_data *d = texts(task);
    (void)array;
    if (d->vectors)
        an_text_printf(out, "%s: row %lld", d->source, (long long)vector_row(d, split, row));
    else
        an_text_printf(out, "%s: text %lld of the %s split", d->source, (long long)row,
                       split == AN_TRAIN ? "training" : "validation");
}

static const an_class_names *classes(const an_task_data *d)
{
    return &texts(d)->classes;
}

const an_task an_text_task = {.name = "text",
                              .unit = "text",
                              .units = "texts",
                              .unit_rate = "texts/s",
                              .sample = "text",
                              .built_in = "the built-in texts (data=FILE.csv of text,label for your own)",
                              .next = "ask it with\n    anneal predict",
                              .next_argument = " \"a text\"",
                              .keys = &keys,
                              .settings_bytes = sizeof(text_settings),
                              .data_bytes = sizeof(text_data),
                              .open = open_text,
                              .close = close_text,
                              .sizes = sizes,
                              .tell = tell,
                              .hash = hash,
                              .batch = batch,
                              .count = count,
                              .read = read_texts,
                              .facts = facts,
                              .questions = questions,
                              .classes = classes,
                              .locate = locate};
