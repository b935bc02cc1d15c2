/* labelled_texts.c: see labelled_texts.h. The CSV reader keeps the bytes; a row points into them. */
#include "io/data/labelled_texts.h"
#include "base/map.h"
#include "io/data/issue_texts.h"
#include "io/formats/csv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *text;
    size_t n;
    int64_t line;
    int32_t label, number; /* number: of its group within the class */
} row;

struct an_labelled_texts {
    an_csv *file;
    row *rows;
    int32_t n, cap;
    int32_t *order[AN_N_SPLITS]; /* the rows of each split, in the order of the file */
    int32_t count[AN_N_SPLITS];
    an_class_names classes;
};

typedef struct columns {
    size_t text, label, group; /* NONE: there is no such column */
    bool named;
} columns;
#define NONE SIZE_MAX

static bool is_word(const an_csv_field *f, const char *word)
{
    if (f->n != strlen(word)) return false;
    for (size_t i = 0; i < f->n; i++)
        if ((f->data[i] >= 'A' && f->data[i] <= 'Z' ? f->data[i] + 32 : f->data[i]) != word[i]) return false;
    return true;
}

static an_status find_columns(an_err *err, const an_csv *file, const an_csv_field *f, size_t n, columns *out)
{
    *out = (columns){NONE, NONE, NONE, true};
    for (size_t i = 0; i < n; i++) {
        size_t *column = is_word(&f[i], "text")    ? &out->text
                         : is_word(&f[i], "label") ? &out->label
                         : is_word(&f[i], "group") ? &out->group
                                                   : NULL;
        if (column && *column != NONE)
            return an_fail(err, AN_E_DATA, "%s: line 1: two columns are named %.*s", an_csv_name(file), (int)f[i].n,
                           f[i].data);
        if (column) *column = i;
    }
    if (out->text != NONE && out->label != NONE) return AN_OK;
    if (out->text == NONE && out->label == NONE && n == 2) return *out = (columns){0, 1, NONE, false}, AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s: line %lld: %zu columns, and none named text, or none named label: name them in the first line "
                   "(text,label), or have these two alone",
                   an_csv_name(file), (long long)an_csv_line(file), n);
}

/* ---- reading rows */

/* Numbers groups within the class of their first text; equal names (64 bits of hash) are one group. */
typedef struct groups {
    an_map map;
    int32_t *next; /* of each class */
    int32_t cap;
} groups;

static an_status number_group(an_err *err, groups *g, const an_csv_field *name, int32_t label, int32_t *out)
{
    const uint64_t key = an_hash(name->data, name->n, 1);
    uint64_t number;
    while (label >= g->cap)
        if (!an_grow((void **)&g->next, g->cap, &g->cap, sizeof *g->next))
            return an_fail_nomem(err, "groups of texts", (size_t)label * sizeof *g->next);
    if (!an_map_get(&g->map, key, &number)) {
        number = (uint64_t)g->next[label]++;
        if (!an_map_set(&g->map, key, number)) return an_fail_nomem(err, "groups of texts", g->map.cap * 24);
    }
    *out = (int32_t)number;
    return AN_OK;
}

static an_status add_row(an_err *err, an_labelled_texts *t, const an_csv_field *f, const columns *at, groups *g)
{
    char where[512];
    snprintf(where, sizeof where, "%.400s: line %lld", an_csv_name(t->file), (long long)an_csv_line(t->file));
    const an_csv_field *label = &f[at->label], *text = &f[at->text];
    if (t->n == INT32_MAX - 1) return an_fail(err, AN_E_DATA, "%s: more than 2^31 texts", where);
    AN_TRY(an_class_names_add(err, where, &t->classes, label->data, label->n));
    if (!an_grow((void **)&t->rows, t->n, &t->cap, sizeof *t->rows))
        return an_fail_nomem(err, where, (size_t)t->n * sizeof *t->rows);
    row *r = &t->rows[t->n++];
    *r = (row){.text = text->data, .n = text->n, .line = an_csv_line(t->file)};
    r->label = an_class_names_find(&t->classes, label->data, label->n);
    return number_group(err, g, at->group == NONE ? text : &f[at->group], r->label, &r->number);
}

static an_status read_rows(an_err *err, an_labelled_texts *t)
{
    const an_csv_field *f;
    groups g = {.map = {0}};
    columns at;
    size_t n;
    an_status status = an_csv_next(err, t->file, &f, &n);
    if (status == AN_OK && n == 0)
        status = an_fail(err, AN_E_DATA, "%s: there are no texts in it", an_csv_name(t->file));
    if (status == AN_OK) status = find_columns(err, t->file, f, n, &at);
    if (status == AN_OK && at.named) status = an_csv_next(err, t->file, &f, &n);
    while (status == AN_OK && n > 0) {
        status = add_row(err, t, f, &at, &g);
        if (status == AN_OK) status = an_csv_next(err, t->file, &f, &n);
    }
    if (status == AN_OK && t->n == 0)
        status = an_fail(err, AN_E_DATA, "%s: there are no texts below its first line", an_csv_name(t->file));
    an_map_free(&g.map);
    free(g.next);
    return status;
}

/* ---- classes and splits */

/* Renumbers the labels, which are in the order of appearance. */
static an_status settle_classes(an_err *err, an_labelled_texts *t, const an_labelled_texts_options *o)
{
    char list[256];
    an_class_names sorted;
    int32_t *becomes = calloc((size_t)t->classes.n, sizeof *becomes);
    if (!becomes) return an_fail_nomem(err, "names of classes", (size_t)t->classes.n * sizeof *becomes);
    bool all = o->known != NULL;
    for (int32_t i = 0; o->known && i < t->classes.n; i++)
        all &= an_class_names_find(o->known, t->classes.name[i], strlen(t->classes.name[i])) >= 0;
    an_status status = an_class_names_copy(err, all || (o->whole && o->known) ? o->known : &t->classes, &sorted);
    if (status == AN_OK && !o->known) an_class_names_sort(&sorted);
    for (int32_t i = 0; status == AN_OK && i < t->classes.n; i++)
        becomes[i] = an_class_names_find(&sorted, t->classes.name[i], strlen(t->classes.name[i]));
    for (int32_t i = 0; status == AN_OK && i < t->n; i++) {
        row *r = &t->rows[i];
        const char *name = t->classes.name[r->label];
        r->label = becomes[r->label];
        if (r->label < 0)
            status = an_fail(err, AN_E_DATA, "%s: line %lld: the label %.100s is none that the weights know: %s",
                             an_csv_name(t->file), (long long)r->line, name,
                             an_class_names_list(&sorted, list, sizeof list));
    }
    free(becomes);
    an_class_names_free(&t->classes);
    t->classes = sorted;
    return status;
}

static an_status split(an_err *err, an_labelled_texts *t, const an_labelled_texts_options *o)
{
    for (int s = 0; s < AN_N_SPLITS; s++) {
        t->order[s] = calloc((size_t)t->n + 1, sizeof *t->order[s]);
        if (!t->order[s]) return an_fail_nomem(err, "the order of texts", (size_t)t->n * sizeof *t->order[s]);
    }
    for (int32_t i = 0; i < t->n; i++) {
        const int s = o->whole || t->rows[i].number % o->folds == o->fold ? AN_VAL : AN_TRAIN;
        t->order[s][t->count[s]++] = i;
    }
    return AN_OK;
}

static an_status open_file(an_err *err, const char *source, an_csv **out)
{
    if (strcmp(source, "issues") != 0) return an_csv_open(err, source, out);
    an_text text = {0};
    an_issue_texts_csv(&text);
    an_status status = text.failed ? an_fail_nomem(err, "the built-in texts", text.len)
                                   : an_csv_parse(err, "issues", text.data, text.len, out);
    an_text_free(&text);
    return status;
}

an_status an_labelled_texts_open(an_err *err, const an_labelled_texts_options *o, an_labelled_texts **out)
{
    *out = NULL;
    if (!o->whole && (o->folds < 2 || o->fold < 0 || o->fold >= o->folds))
        return an_fail(err, AN_E_USAGE, "fold=%lld folds=%lld: there are folds 0 to %lld", (long long)o->fold,
                       (long long)o->folds, (long long)o->folds - 1);
    an_labelled_texts *t = calloc(1, sizeof *t);
    if (!t) return an_fail_nomem(err, o->source, sizeof *t);
    an_status status = open_file(err, o->source, &t->file);
    if (status == AN_OK) status = read_rows(err, t);
    if (status == AN_OK) status = settle_classes(err, t, o);
    if (status == AN_OK) status = split(err, t, o);
    if (status == AN_OK)
        *out = t;
    else
        an_labelled_texts_close(t);
    return status;
}

void an_labelled_texts_close(an_labelled_texts *t)
{
    if (!t) return;
    for (int s = 0; s < AN_N_SPLITS; s++) free(t->order[s]);
    an_class_names_free(&t->classes);
    free(t->rows);
    an_csv_close(t->file);
    free(t);
}

const an_class_names *an_labelled_texts_classes(const an_labelled_texts *t)
{
    return &t->classes;
}

int64_t an_labelled_texts_count(const an_labelled_texts *t, int s)
{
    return t->count[s];
}

const char *an_labelled_text(const an_labelled_texts *t, int s, int64_t i, size_t *n, int32_t *label)
{
    const row *r = &t->rows[t->order[s][i]];
    *n = r->n;
    *label = r->label;
    return r->text;
}

size_t an_labelled_texts_bytes(const an_labelled_texts *t)
{
    return an_csv_bytes(t->file) + (size_t)t->cap * sizeof *t->rows + 2 * (size_t)t->n * sizeof *t->order[0];
}
