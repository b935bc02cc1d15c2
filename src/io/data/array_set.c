/* array_set.c: opening and checking the arrays, splits, and copying samples. See array_set.h. */
#include "io/data/array_set.h"
#include "io/checkpoint.h"
#include "io/data/array_file.h"
#include "io/formats/npy.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct an_array_set {
    an_array array[AN_MAX_ARRAYS]; /* of one sample */
    int64_t elements[AN_MAX_ARRAYS];
    int n;
    an_npy file[AN_N_SPLITS][AN_MAX_ARRAYS];                    /* split 1 is empty where one file has both */
    char where[AN_N_SPLITS][AN_MAX_ARRAYS][AN_CKPT_PATH_BYTES]; /* their names in sentences */
    bool tenths, whole;
    an_array_file *both, *of[AN_N_SPLITS]; /* files of several arrays: one, or one a split; all NULL: .npy files */
};

/* The file's name for an array: what feed says, else the array's own. */
static void file_of(const char *feed, const char *array, char out[256])
{
    const size_t n = strlen(array);
    snprintf(out, 256, "%s", array);
    for (const char *p = feed; *p;) {
        const size_t word = strcspn(p, ",");
        if (word > n + 1 && strncmp(p, array, n) == 0 && p[n] == ':')
            snprintf(out, 256, "%.*s", (int)(word - n - 1), p + n + 1);
        p += word + (p[word] == ',');
    }
}

/* Every word of feed names an array. */
static an_status check_feed(an_err *err, const char *feed, const an_array *a, int n)
{
    for (const char *p = feed; *p;) {
        const size_t word = strcspn(p, ","), name = strcspn(p, ":,");
        bool known = false;
        for (int i = 0; i < n; i++) known |= strlen(a[i].name) == name && strncmp(p, a[i].name, name) == 0;
        if (!known || name >= word)
            return an_fail(err, AN_E_USAGE,
                           "feed=%.200s: %.*s is none of the model's arrays; write input:file,labels:file", feed,
                           (int)word, p);
        p += word + (p[word] == ',');
    }
    return AN_OK;
}

static bool path_of(const char *folder, const char *prefix, const char *name, char out[AN_CKPT_PATH_BYTES])
{
    return snprintf(out, AN_CKPT_PATH_BYTES, "%s/%s%s.npy", folder, prefix, name) < AN_CKPT_PATH_BYTES &&
           access(out, F_OK) == 0;
}

/* FOLDER/train.npz and the like; false: there is none. */
static bool split_path(const char *folder, const char *split, const char *ending, char out[AN_CKPT_PATH_BYTES])
{
    return snprintf(out, AN_CKPT_PATH_BYTES, "%s/%s%s", folder, split, ending) < AN_CKPT_PATH_BYTES &&
           access(out, F_OK) == 0;
}

static const char *const endings[] = {".npz", ".safetensors", ".csv"};

static an_status open_containers(an_err *err, const char *source, an_array_set *s)
{
    char train[AN_CKPT_PATH_BYTES], val[AN_CKPT_PATH_BYTES];
    if (an_array_file_name(source)) return an_array_file_open(err, source, &s->both);
    for (size_t i = 0; i < AN_COUNT(endings); i++) {
        if (!split_path(source, "train", endings[i], train)) continue;
        if (!split_path(source, "val", endings[i], val))
            return an_fail(err, AN_E_IO, "data=%s: train%s is there, val%s is not", source, endings[i], endings[i]);
        AN_TRY(an_array_file_open(err, train, &s->of[AN_TRAIN]));
        return an_array_file_open(err, val, &s->of[AN_VAL]);
    }
    return AN_OK;
}

static an_status check_file(an_err *err, const char *path, const an_array *a, const an_npy *f)
{
    const bool whole = f->dtype == AN_I32 || f->dtype == AN_I64 || f->dtype == AN_U8 || f->dtype == AN_BOOL;
    char want[AN_ST_SHAPE_BYTES], have[AN_ST_SHAPE_BYTES];
    if (f->rank < 1 || f->dim[0] < 1) return an_fail(err, AN_E_DATA, "%s: it has no samples", path);
    if (a->dtype == AN_I32 && !whole)
        return an_fail(err, AN_E_DATA, "%s: it holds floats, %s of the model are whole numbers", path, a->name);
    bool same = f->rank == a->shape.rank;
    for (int i = 1; same && i < f->rank; i++) same = f->dim[i] == a->shape.dim[i];
    /* one number a sample may be [N] or [N,1] */
    const bool flat = an_npy_elements(f) == f->dim[0] && a->shape.rank == 2 && a->shape.dim[1] == 1;
    if (same || flat) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s: a sample is %s, %s of the model is %s", path,
                   an_st_shape_text(f->rank - 1, f->dim + 1, have), a->name,
                   an_st_shape_text(a->shape.rank - 1, a->shape.dim + 1, want));
}

/* An array by its name, with a prefix, in a file of several; `where` becomes its name in sentences. */
static an_status find_in(an_err *err, an_array_file *f, const char *source, const char *prefix, const char *name,
                         const char *labels, an_npy *out, char where[AN_CKPT_PATH_BYTES], bool *found)
{
    char full[300];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    snprintf(where, AN_CKPT_PATH_BYTES, "%.600s: %.280s", source, full);
    return an_array_file_find(err, f, full, labels, out, found);
}

static an_status missing(an_err *err, const char *source, const char *name, const an_array *a)
{
    return an_fail(
        err, AN_E_IO,
        "data=%s: the model reads %s: there is neither %s nor train_%s and val_%s; feed=%s:NAME names another", source,
        a->name, name, name, name, a->name);
}

/* Array i out of files of several arrays. */
static an_status open_member(an_err *err, const char *source, const char *name, const char *labels, int i,
                             an_array_set *s)
{
    static const char *const prefix[] = {"train_", "val_"};
    const an_array *a = &s->array[i];
    an_npy *f[] = {&s->file[AN_TRAIN][i], &s->file[AN_VAL][i]};
    bool found, val;
    if (s->both) {
        AN_TRY(find_in(err, s->both, source, "", name, labels, f[0], s->where[AN_TRAIN][i], &found));
        if (found) return check_file(err, s->where[AN_TRAIN][i], a, f[0]);
    }
    for (int split = 0; split < AN_N_SPLITS; split++) {
        an_array_file *in = s->both ? s->both : s->of[split];
        AN_TRY(find_in(err, in, source, s->both ? prefix[split] : "", name, labels, f[split], s->where[split][i],
                       split ? &val : &found));
        if (!(split ? val : found)) return missing(err, source, name, a);
        AN_TRY(check_file(err, s->where[split][i], a, f[split]));
    }
    return AN_OK;
}

static an_status open_npy(an_err *err, int split, int i, an_array_set *s)
{
    AN_TRY(an_npy_open(err, s->where[split][i], &s->file[split][i]));
    return check_file(err, s->where[split][i], &s->array[i], &s->file[split][i]);
}

/* Array i out of .npy files of its own. */
static an_status open_own(an_err *err, const char *folder, const char *name, int i, an_array_set *s)
{
    if (path_of(folder, "train_", name, s->where[AN_TRAIN][i])) {
        AN_TRY(open_npy(err, AN_TRAIN, i, s));
        if (!path_of(folder, "val_", name, s->where[AN_VAL][i]))
            return an_fail(err, AN_E_IO, "data=%s: train_%s.npy is there, val_%s.npy is not", folder, name, name);
        return open_npy(err, AN_VAL, i, s);
    }
    if (!path_of(folder, "", name, s->where[AN_TRAIN][i]))
        return an_fail(
            err, AN_E_IO,
            "data=%s: the model reads %s: there is neither %s.npy nor train_%s.npy; feed=%s:FILE names another", folder,
            s->array[i].name, name, name, s->array[i].name);
    return open_npy(err, AN_TRAIN, i, s);
}

static an_status open_array(an_err *err, const char *source, const char *feed, int i, an_array_set *s)
{
    char name[256], labels[256];
    const an_array *a = &s->array[i];
    an_array_file *f = s->both ? s->both : s->of[AN_TRAIN];
    file_of(feed, a->name, name);
    if (!f) return open_own(err, source, name, i, s);
    file_of(feed, s->array[s->n - 1].name, labels);
    /* the only input of a model is a table's other columns */
    const bool rest =
        an_array_file_columns(f) && i == 0 && s->n == 2 && strcmp(name, a->name) == 0 && a->shape.rank == 2;
    return open_member(err, source, rest ? "*" : name, labels, i, s);
}

static an_status check_lengths(an_err *err, const char *folder, an_array_set *s)
{
    s->tenths = s->file[AN_VAL][0].rank == 0;
    for (int i = 0; i < s->n; i++) {
        if ((s->file[AN_VAL][i].rank == 0) != s->tenths)
            return an_fail(err, AN_E_DATA, "data=%s: some arrays have files for training and validation, some have one",
                           folder);
        for (int split = 0; split < (s->tenths ? 1 : AN_N_SPLITS); split++)
            if (s->file[split][i].dim[0] != s->file[split][0].dim[0])
                return an_fail(err, AN_E_DATA, "data=%s: %s has %lld samples, %s has %lld", folder, s->array[0].name,
                               (long long)s->file[split][0].dim[0], s->array[i].name,
                               (long long)s->file[split][i].dim[0]);
    }
    return AN_OK;
}

static an_status open_all(an_err *err, const char *folder, const char *feed, const an_array *a, an_array_set *s)
{
    AN_TRY(check_feed(err, feed, a, s->n));
    AN_TRY(open_containers(err, folder, s));
    for (int i = 0; i < s->n; i++) s->array[i] = a[i];
    for (int i = 0; i < s->n; i++) {
        s->elements[i] = 1;
        for (int k = 1; k < a[i].shape.rank; k++) s->elements[i] *= a[i].shape.dim[k];
        AN_TRY(open_array(err, folder, feed, i, s));
    }
    return check_lengths(err, folder, s);
}

an_status an_array_set_open(an_err *err, const char *folder, const char *feed, const an_array *a, int n, bool whole,
                            an_array_set **out)
{
    *out = NULL;
    an_array_set *s = calloc(1, sizeof *s);
    if (!s) return an_fail_nomem(err, folder, sizeof *s);
    s->n = n;
    s->whole = whole;
    an_status status = open_all(err, folder, feed, a, s);
    if (status == AN_OK)
        *out = s;
    else
        an_array_set_close(s);
    return status;
}

void an_array_set_close(an_array_set *s)
{
    if (!s) return;
    for (int split = 0; split < AN_N_SPLITS; split++)
        for (int i = 0; i < s->n; i++) an_npy_close(&s->file[split][i]);
    an_array_file_close(s->both);
    for (int split = 0; split < AN_N_SPLITS; split++) an_array_file_close(s->of[split]);
    free(s);
}

bool an_array_set_is(const char *source, const char *feed, const an_array *a, int n)
{
    char name[256], path[AN_CKPT_PATH_BYTES];
    bool is = an_array_file_name(source);
    for (size_t i = 0; i < AN_COUNT(endings); i++) is |= split_path(source, "train", endings[i], path);
    for (int i = 0; i < n; i++) {
        file_of(feed, a[i].name, name);
        is |= path_of(source, "", name, path) || path_of(source, "train_", name, path);
    }
    return is;
}

int64_t an_array_set_samples(const an_array_set *s, int split)
{
    const int64_t n = s->file[AN_TRAIN][0].dim[0], val = n / 10;
    if (!s->tenths) return s->whole ? (split == AN_VAL ? s->file[AN_VAL][0].dim[0] : 0) : s->file[split][0].dim[0];
    if (s->whole) return split == AN_VAL ? n : 0;
    return split == AN_VAL ? val : n - val;
}

/* The file and the row in it. Of one file rows 9, 19, 29, ... are for validation. */
static int find_row(const an_array_set *s, int split, int64_t *row)
{
    const int64_t val = s->file[AN_TRAIN][0].dim[0] / 10;
    if (!s->tenths || s->whole) return s->tenths ? AN_TRAIN : split;
    *row = split == AN_VAL ? 10 * *row + 9 : *row < 9 * val ? *row + *row / 9 : *row + val;
    return AN_TRAIN;
}

static an_status copy(an_err *err, const char *where, const an_array *a, const an_npy *f, int64_t from, int64_t n,
                      int64_t ignore, char *to)
{
    if (f->dtype == a->dtype && a->limit == 0) {
        memcpy(to, (const char *)f->data + (size_t)from * an_dtype_size(f->dtype), (size_t)n * an_dtype_size(f->dtype));
        return AN_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const double x = an_npy_number(f, from + i);
        const float narrow = (float)x;
        const int32_t whole = x >= INT32_MIN && x <= INT32_MAX ? (int32_t)x : INT32_MIN;
        if (a->dtype == AN_I32 &&
            ((double)whole != x || (a->limit > 0 && (whole < 0 || whole >= a->limit) && whole != ignore)))
            return an_fail(err, AN_E_DATA, "%s: row %lld: element %lld of %s is %.0f, the model knows 0 to %lld", where,
                           (long long)(from / AN_MAX(n, 1)), (long long)i, a->name, x,
                           (long long)(a->limit ? a->limit - 1 : INT32_MAX));
        memcpy(to + 4 * i, a->dtype == AN_I32 ? (const void *)&whole : &narrow, 4);
    }
    return AN_OK;
}

an_status an_array_set_read(an_err *err, const an_array_set *s, int split, int64_t row, int64_t ignore, int64_t at,
                            void *const *array)
{
    const int file = find_row(s, split, &row);
    for (int i = 0; i < s->n; i++) {
        const size_t bytes = (size_t)s->elements[i] * an_dtype_size(s->array[i].dtype);
        AN_TRY(copy(err, s->where[file][i], &s->array[i], &s->file[file][i], row * s->elements[i], s->elements[i],
                    ignore, (char *)array[i] + (size_t)at * bytes));
    }
    return AN_OK;
}

void an_array_set_place(const an_array_set *s, int split, int64_t row, int i, an_text *out)
{
    const int file = find_row(s, split, &row);
    an_text_printf(out, "%s: row %lld", s->where[file][i], (long long)row);
}

bool an_array_set_is_labelled(const an_array_set *s, int split, int64_t ignore)
{
    const int i = s->n - 1;
    const int64_t n = an_array_set_samples(s, split);
    for (int64_t r = 0; r < n; r++) {
        int64_t row = r;
        const an_npy *f = &s->file[find_row(s, split, &row)][i];
        for (int64_t k = 0; k < s->elements[i]; k++) {
            const double y = an_npy_number(f, row * s->elements[i] + k);
            if (s->array[i].dtype == AN_I32 ? y >= 0 && y != (double)ignore : !isnan(y)) return true;
        }
    }
    return n == 0;
}

/* XXH3-128 over the split's samples, array after array, as the files have them. */
void an_array_set_hash(const an_array_set *s, int split, char out[AN_HASH_TEXT_BYTES])
{
    an_hasher h = an_hasher_begin();
    bool ok = true;
    const int64_t n = an_array_set_samples(s, split);
    for (int64_t r = 0; ok && r < n; r++) {
        int64_t row = r;
        const int file = find_row(s, split, &row);
        for (int i = 0; ok && i < s->n; i++) {
            const an_npy *f = &s->file[file][i];
            const size_t bytes = (size_t)s->elements[i] * an_dtype_size(f->dtype);
            ok = an_hasher_add(&h, (const char *)f->data + (size_t)row * bytes, bytes);
        }
    }
    an_hasher_end_text(&h, ok, out);
}
