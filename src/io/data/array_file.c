/* array_file.c: see array_file.h. */
#include "io/data/array_file.h"
#include "io/formats/csv.h"
#include "io/formats/json.h"
#include "io/formats/line_reader.h"
#include "io/formats/safetensors.h"
#include "io/formats/zip.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MADE = 64, NUMBER_BYTES = 64 };

struct an_array_file {
    char *path;
    an_arena arena;
    an_map_file map;
    an_zip zip;
    an_st *tensors; /* of .safetensors */
    an_csv *csv;
    an_csv_field *column; /* [columns]: the names of a .csv */
    size_t columns;
    double *cell; /* [rows,columns] */
    int64_t rows;
    void *made[MOST_MADE]; /* arrays that are unpacked or converted */
    int n_made;
};

bool an_array_file_name(const char *path)
{
    return an_path_ends(path, ".npz") || an_path_ends(path, ".safetensors") || an_path_ends(path, ".csv");
}

bool an_array_file_columns(const an_array_file *f)
{
    return f->csv != NULL;
}

static an_status keep(an_err *err, an_array_file *f, void *memory)
{
    if (f->n_made < MOST_MADE) return f->made[f->n_made++] = memory, AN_OK;
    free(memory);
    return an_fail(err, AN_E_DATA, "%s: more than %d arrays of it are asked for", f->path, MOST_MADE);
}

/* ---- CSV */

/* A decimal number, or NaN, that is the whole field but for blanks around it; strtod's hexadecimal ones are none. */
static bool number_of(const an_csv_field *f, double *out)
{
    char text[NUMBER_BYTES], *end;
    if (f->n == 0 || f->n >= sizeof text || memchr(f->data, 'x', f->n) || memchr(f->data, 'X', f->n)) return false;
    snprintf(text, sizeof text, "%.*s", (int)f->n, f->data);
    *out = strtod(text, &end);
    if (end == text) return false;
    while (*end == ' ' || *end == '\t') end++;
    return *end == 0;
}

static an_status read_names(an_err *err, an_array_file *f)
{
    const an_csv_field *field;
    double number;
    AN_TRY(an_csv_next(err, f->csv, &field, &f->columns));
    f->column = AN_NEW_ARRAY(&f->arena, an_csv_field, f->columns + 1);
    if (!f->column) return an_fail_nomem(err, f->path, f->columns * sizeof *field);
    for (size_t i = 0; i < f->columns; i++) {
        if (number_of(&field[i], &number))
            return an_fail(err, AN_E_DATA,
                           "%s: line 1: column %zu has a number for a name; the first line names columns", f->path,
                           i + 1);
        f->column[i] = field[i];
        for (size_t k = 0; k < i; k++)
            if (f->column[k].n == field[i].n && memcmp(f->column[k].data, field[i].data, field[i].n) == 0)
                return an_fail(err, AN_E_DATA, "%s: line 1: columns %zu and %zu have one name", f->path, k + 1, i + 1);
    }
    return AN_OK;
}

/* Cells that are no numbers become infinite, a mark: columns that are never read may hold texts. */
static an_status read_cells(an_err *err, an_array_file *f)
{
    const an_csv_field *field;
    size_t n, cap = 0;
    AN_TRY(read_names(err, f));
    for (;;) {
        AN_TRY(an_csv_next(err, f->csv, &field, &n));
        if (n == 0) return AN_OK;
        if ((size_t)f->rows == cap) {
            cap = cap ? 2 * cap : 1024;
            double *more = realloc(f->cell, cap * f->columns * sizeof *more);
            if (!more) return an_fail_nomem(err, f->path, cap * f->columns * sizeof *more);
            f->cell = more;
        }
        for (size_t i = 0; i < n; i++) {
            double *x = &f->cell[(size_t)f->rows * f->columns + i];
            if (!number_of(&field[i], x))
                *x = HUGE_VAL; /* refused where the column is read: no data set has infinities */
        }
        f->rows++;
    }
}

static bool is_name(const an_csv_field *f, const char *name, size_t n)
{
    return f->n == n && memcmp(f->data, name, n) == 0;
}

/* Whether a column is one of "a+b". */
static bool is_one_of(const an_csv_field *f, const char *names)
{
    for (const char *p = names; *p;) {
        const size_t word = strcspn(p, "+");
        if (is_name(f, p, word)) return true;
        p += word + (p[word] == '+');
    }
    return false;
}

/* The columns of "a+b", or of "*", which are all but those of `except`; -1: one is not there. */
static int64_t columns_of(const an_array_file *f, const char *name, const char *except, size_t *out)
{
    int64_t n = 0;
    if (strcmp(name, "*") == 0) {
        for (size_t i = 0; i < f->columns; i++)
            if (!is_one_of(&f->column[i], except)) out[n++] = i;
        return n;
    }
    for (const char *p = name; *p;) {
        if (n == (int64_t)f->columns) return -1; /* one twice */
        const size_t word = strcspn(p, "+");
        size_t i = 0;
        while (i < f->columns && !is_name(&f->column[i], p, word)) i++;
        if (i == f->columns) return -1;
        out[n++] = i;
        p += word + (p[word] == '+');
    }
    return n;
}

/* Whether all cells of these columns are whole numbers; *bad: a cell that is no number. */
static bool whole_numbers(const an_array_file *f, const size_t *column, int64_t n, int64_t *bad)
{
    bool whole = true;
    *bad = -1;
    for (int64_t r = 0; r < f->rows && *bad < 0; r++)
        for (int64_t k = 0; k < n && *bad < 0; k++) {
            const double x = f->cell[(size_t)r * f->columns + column[k]];
            if (isinf(x)) *bad = r * n + k;
            whole = whole && x == floor(x) && fabs(x) < 9e15;
        }
    return whole;
}

static an_status make_columns(an_err *err, an_array_file *f, const size_t *column, int64_t n, bool single, an_npy *out)
{
    int64_t bad;
    const bool whole = whole_numbers(f, column, n, &bad);
    if (bad >= 0)
        return an_fail(err, AN_E_DATA, "%s: record %lld behind the names: column %.*s holds no finite number", f->path,
                       (long long)(bad / n + 1), (int)AN_MIN(f->column[column[bad % n]].n, 60),
                       f->column[column[bad % n]].data);
    double *to = malloc((size_t)(f->rows * n) * sizeof *to + 1); /* [rows,n] */
    if (!to) return an_fail_nomem(err, f->path, (size_t)(f->rows * n) * sizeof *to);
    for (int64_t i = 0; i < f->rows * n; i++) {
        const double x = f->cell[(size_t)(i / n) * f->columns + column[i % n]];
        const int64_t same = whole ? (int64_t)x : 0;
        memcpy(to + i, whole ? (const void *)&same : &x, sizeof x);
    }
    *out = (an_npy){.dtype = whole ? AN_I64 : AN_F64,
                    .rank = single ? 1 : 2,
                    .dim = {f->rows, n},
                    .data = to,
                    .bytes = (size_t)(f->rows * n) * sizeof *to};
    return keep(err, f, to);
}

static an_status find_columns(an_err *err, an_array_file *f, const char *name, const char *except, an_npy *out,
                              bool *found)
{
    size_t *column = malloc((f->columns + 1) * sizeof *column);
    if (!column) return an_fail_nomem(err, f->path, f->columns * sizeof *column);
    const int64_t n = columns_of(f, name, except, column);
    *found = n > 0;
    an_status status = *found ? make_columns(err, f, column, n, n == 1 && strcmp(name, "*") != 0, out) : AN_OK;
    free(column);
    return status;
}

/* ---- .npz and .safetensors */

static an_status find_member(an_err *err, an_array_file *f, const char *name, an_npy *out, bool *found)
{
    char member[512], where[1024];
    snprintf(member, sizeof member, "%.500s.npy", name);
    const an_zip_member *m = an_zip_find(&f->zip, member);
    *found = m != NULL;
    if (!m) return AN_OK;
    snprintf(where, sizeof where, "%.500s: %.500s", f->path, member);
    if (!m->deflated) {
        AN_TRY(an_zip_check(err, &f->zip, m));
        return an_npy_parse(err, where, f->zip.data + m->at, (size_t)m->bytes, out);
    }
    void *unpacked;
    AN_TRY(an_zip_inflate(err, &f->zip, m, &unpacked));
    AN_TRY(keep(err, f, unpacked));
    return an_npy_parse(err, where, unpacked, (size_t)m->unpacked, out);
}

static an_status find_tensor(an_err *err, const an_array_file *f, const char *name, an_npy *out, bool *found)
{
    static const an_dtype known[] = {AN_F32, AN_F64, AN_I32, AN_I64, AN_U8, AN_BOOL};
    const an_st_tensor *t = an_st_find(f->tensors, name);
    bool good = false;
    *found = t != NULL;
    if (!t) return AN_OK;
    for (size_t i = 0; i < AN_COUNT(known); i++) good |= known[i] == t->dtype;
    if (!good || t->rank > AN_NPY_MAX_RANK)
        return an_fail(err, AN_E_DTYPE, "%s: %.80s is of dtype %s; F32, F64, I32, I64, U8 and BOOL are read", f->path,
                       name, an_st_dtype_name(t->dtype));
    *out = (an_npy){.dtype = t->dtype, .rank = t->rank, .data = t->data, .bytes = t->bytes};
    for (int i = 0; i < t->rank; i++) out->dim[i] = t->shape[i];
    return AN_OK;
}

/* ---- the file */

static an_status open_parts(an_err *err, an_array_file *f)
{
    if (an_path_ends(f->path, ".safetensors")) return an_st_open(err, f->path, &f->tensors);
    if (an_path_ends(f->path, ".csv")) {
        AN_TRY(an_csv_open(err, f->path, &f->csv));
        return read_cells(err, f);
    }
    AN_TRY(an_file_map(err, f->path, &f->map));
    return an_zip_open_packed(err, f->path, f->map.data ? f->map.data : "", f->map.bytes, &f->arena, &f->zip);
}

an_status an_array_file_open(an_err *err, const char *path, an_array_file **out)
{
    *out = NULL;
    an_array_file *f = calloc(1, sizeof *f);
    if (!f) return an_fail_nomem(err, path, sizeof *f);
    f->path = an_arena_strdup(&f->arena, path);
    an_status status = f->path ? open_parts(err, f) : an_fail_nomem(err, path, strlen(path));
    if (status == AN_OK)
        *out = f;
    else
        an_array_file_close(f);
    return status;
}

void an_array_file_close(an_array_file *f)
{
    if (!f) return;
    for (int i = 0; i < f->n_made; i++) free(f->made[i]);
    free(f->cell);
    an_csv_close(f->csv);
    an_st_close(f->tensors);
    an_file_unmap(&f->map);
    an_arena_free(&f->arena);
    free(f);
}

an_status an_array_file_find(an_err *err, an_array_file *f, const char *name, const char *except, an_npy *out,
                             bool *found)
{
    *out = (an_npy){.rank = 0};
    return f->csv       ? find_columns(err, f, name, except, out, found)
           : f->tensors ? find_tensor(err, f, name, out, found)
                        : find_member(err, f, name, out, found);
}
