/* puzzle_write.c: see puzzle_write.h. Examples go to temporary files as they come, behind headers that are written again
 * at the end, when their number is known: a header of two axes has 128 bytes, whatever the number. */
#define _DEFAULT_SOURCE
#include "io/data/puzzle_write.h"
#include "io/formats/json.h"
#include "io/formats/npy.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18 };

/* One of the two large files. */
typedef struct rows {
    an_save save;
    bool open;
    char *buffer; /* [BUFFER_BYTES + a row] */
    size_t used;
} rows;

/* Numbers that grow, kept until the end. */
typedef struct list {
    int32_t *at;
    int32_t n, cap;
} list;

struct an_puzzle_writer {
    char folder[AN_PUZZLE_PATH_BYTES], path[AN_PUZZLE_PATH_BYTES + 64];
    an_puzzle_meta meta;
    an_dtype dtype;
    rows inputs, labels;
    list puzzles, groups, identifiers;
    int64_t examples;
};

static const char *file_of(an_puzzle_writer *w, const char *name)
{
    snprintf(w->path, sizeof w->path, "%s/%s", w->folder, name);
    return w->path;
}

static an_status add(an_err *err, list *l, int64_t value)
{
    if (l->n == INT32_MAX || value > INT32_MAX)
        return an_fail(err, AN_E_DATA, "a data set has at most %d examples", INT32_MAX);
    if (!an_grow((void **)&l->at, l->n, &l->cap, sizeof *l->at)) return an_fail_nomem(err, "a data set", (size_t)l->n);
    l->at[l->n++] = (int32_t)value;
    return AN_OK;
}

/* ---- rows */

static an_status flush(an_err *err, rows *r)
{
    AN_TRY(an_save_write(err, &r->save, r->buffer, r->used));
    r->used = 0;
    return AN_OK;
}

static an_status begin_rows(an_err *err, an_puzzle_writer *w, const char *name, rows *r)
{
    an_text head = {0};
    const int64_t dim[] = {0, w->meta.seq_len};
    r->buffer = malloc(BUFFER_BYTES + 8 * (size_t)w->meta.seq_len);
    if (!r->buffer) return an_fail_nomem(err, name, BUFFER_BYTES);
    an_status status = an_npy_header(err, w->dtype, 2, dim, &head);
    if (status == AN_OK) status = an_save_begin(err, file_of(w, name), &r->save);
    r->open = status == AN_OK;
    if (status == AN_OK) status = an_save_write(err, &r->save, head.data, head.len);
    an_text_free(&head);
    return status;
}

static an_status add_row(an_err *err, const an_puzzle_writer *w, rows *r, const int32_t *values)
{
    char *to = r->buffer + r->used;
    const size_t n = (size_t)w->meta.seq_len;
    if (w->dtype == AN_U8)
        for (size_t i = 0; i < n; i++) to[i] = (char)values[i];
    else if (w->dtype == AN_I32)
        memcpy(to, values, 4 * n);
    else
        for (size_t i = 0; i < n; i++) memcpy(to + 8 * i, &(int64_t){values[i]}, 8);
    r->used += n * (w->dtype == AN_U8 ? 1 : w->dtype == AN_I32 ? 4 : 8);
    return r->used >= BUFFER_BYTES ? flush(err, r) : AN_OK;
}

static an_status end_rows(an_err *err, an_puzzle_writer *w, rows *r)
{
    an_text head = {0};
    const int64_t dim[] = {w->examples, w->meta.seq_len};
    an_status status = flush(err, r);
    if (status == AN_OK) status = an_npy_header(err, w->dtype, 2, dim, &head);
    if (status == AN_OK && pwrite(r->save.fd, head.data, head.len, 0) != (ssize_t)head.len)
        status = an_fail(err, AN_E_IO, "%s: cannot be written: %s", r->save.path, strerror(errno));
    an_text_free(&head);
    if (status == AN_OK) status = an_save_commit(err, &r->save);
    if (status == AN_OK) r->open = false;
    return status;
}

static void drop_rows(rows *r)
{
    if (r->open) an_save_abort(&r->save);
    free(r->buffer);
}

/* ---- the writer */

an_status an_puzzle_writer_open(an_err *err, const char *dir, const char *split, const an_puzzle_meta *meta,
                                an_dtype dtype, an_puzzle_writer **out)
{
    *out = NULL;
    an_puzzle_writer *w = calloc(1, sizeof *w);
    if (!w) return an_fail_nomem(err, dir, sizeof *w);
    w->meta = *meta;
    w->dtype = dtype;
    an_status status = AN_OK;
    if (snprintf(w->folder, sizeof w->folder, "%s/%s", dir, split) >= (int)sizeof w->folder)
        status = an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", dir);
    if (status == AN_OK) status = an_make_dirs(err, w->folder, 0777);
    if (status == AN_OK) status = begin_rows(err, w, "all__inputs.npy", &w->inputs);
    if (status == AN_OK) status = begin_rows(err, w, "all__labels.npy", &w->labels);
    if (status == AN_OK) status = add(err, &w->puzzles, 0);
    if (status == AN_OK) status = add(err, &w->groups, 0);
    if (status == AN_OK)
        *out = w;
    else
        an_puzzle_writer_abort(w);
    return status;
}

an_status an_puzzle_writer_example(an_err *err, an_puzzle_writer *w, const int32_t *inputs, const int32_t *labels)
{
    AN_TRY(add_row(err, w, &w->inputs, inputs));
    AN_TRY(add_row(err, w, &w->labels, labels));
    w->examples++;
    return AN_OK;
}

an_status an_puzzle_writer_puzzle(an_err *err, an_puzzle_writer *w, int32_t identifier)
{
    AN_TRY(add(err, &w->identifiers, identifier));
    return add(err, &w->puzzles, w->examples);
}

an_status an_puzzle_writer_group(an_err *err, an_puzzle_writer *w)
{
    return add(err, &w->groups, w->puzzles.n - 1);
}

void an_puzzle_writer_identifiers(an_puzzle_writer *w, int64_t n)
{
    w->meta.num_puzzle_identifiers = n;
}

int64_t an_puzzle_writer_examples(const an_puzzle_writer *w)
{
    return w->examples;
}

static an_status write_list(an_err *err, an_puzzle_writer *w, const char *name, const list *l)
{
    return an_npy_write(err, file_of(w, name), AN_I32, 1, (const int64_t[]){l->n}, l->at ? l->at : &(int32_t){0});
}

static an_status write_meta(an_err *err, an_puzzle_writer *w)
{
    const an_puzzle_meta *m = &w->meta;
    const int64_t groups = w->groups.n - 1, puzzles = m->total_puzzles > 0 ? m->total_puzzles : w->puzzles.n - 1;
    const double mean = m->mean_puzzle_examples > 0 ? m->mean_puzzle_examples
                        : w->puzzles.n > 1          ? (double)w->examples / (w->puzzles.n - 1)
                                                    : 0;
    an_text t = {0};
    an_text_printf(&t, "{\n  \"pad_id\": %" PRId64 ",\n", m->pad_id);
    if (m->ignores)
        an_text_printf(&t, "  \"ignore_label_id\": %" PRId64 ",\n", m->ignore_label_id);
    else
        an_text_puts(&t, "  \"ignore_label_id\": null,\n");
    an_text_printf(&t, "  \"blank_identifier_id\": %" PRId64 ",\n  \"vocab_size\": %" PRId64 ",\n",
                   m->blank_identifier_id, m->vocab_size);
    an_text_printf(&t, "  \"seq_len\": %" PRId64 ",\n  \"num_puzzle_identifiers\": %" PRId64 ",\n", m->seq_len,
                   m->num_puzzle_identifiers);
    an_text_printf(&t, "  \"total_groups\": %" PRId64 ",\n  \"mean_puzzle_examples\": %.17g,\n", groups, mean);
    an_text_printf(&t, "  \"total_puzzles\": %" PRId64 ",\n  \"sets\": [\"all\"]\n}\n", puzzles);
    an_status status = an_json_save(err, file_of(w, "dataset.json"), &t);
    an_text_free(&t);
    return status;
}

an_status an_puzzle_writer_end(an_err *err, an_puzzle_writer *w)
{
    an_status status = end_rows(err, w, &w->inputs);
    if (status == AN_OK) status = end_rows(err, w, &w->labels);
    if (status == AN_OK) status = write_list(err, w, "all__puzzle_indices.npy", &w->puzzles);
    if (status == AN_OK) status = write_list(err, w, "all__group_indices.npy", &w->groups);
    if (status == AN_OK) status = write_list(err, w, "all__puzzle_identifiers.npy", &w->identifiers);
    if (status == AN_OK) status = write_meta(err, w);
    an_puzzle_writer_abort(w);
    return status;
}

void an_puzzle_writer_abort(an_puzzle_writer *w)
{
    if (!w) return;
    drop_rows(&w->inputs);
    drop_rows(&w->labels);
    free(w->puzzles.at);
    free(w->groups.at);
    free(w->identifiers.at);
    free(w);
}

an_status an_puzzle_identifiers_write(an_err *err, const char *dir, const char *const *names, int64_t n)
{
    char path[AN_PUZZLE_PATH_BYTES];
    an_text t = {0};
    if (snprintf(path, sizeof path, "%s/identifiers.json", dir) >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", dir);
    an_text_puts(&t, "[");
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) an_text_puts(&t, ", ");
        an_json_put(&t, names[i]);
    }
    an_text_puts(&t, "]\n");
    an_status status = an_json_save(err, path, &t);
    an_text_free(&t);
    return status;
}
