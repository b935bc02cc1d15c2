/* table.c: opening .npy files or making spirals, splits, and reading rows. See table.h. */
#include "io/data/table.h"
#include "io/checkpoint.h"
#include <anneal_nn.h>
#include "base/map.h"
#include "base/rng.h"
#include "io/data/class_names.h"
#include "io/data/order.h"
#include "io/formats/npy.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A pair of files, or of built-in arrays. */
typedef struct pair {
    an_npy x, y;
    char x_path[AN_CKPT_PATH_BYTES], y_path[AN_CKPT_PATH_BYTES];
} pair;

struct an_table {
    pair file[AN_N_SPLITS]; /* the second is unused where one pair is split */
    bool split_tenths, whole;
    void *built_in;
    size_t bytes;
    int64_t features, outputs;
    bool classes;
};

enum { SPIRAL_ROWS = 3000, SPIRAL_ARMS = 3 };

static bool is_whole(an_dtype t)
{
    return t == AN_I32 || t == AN_I64 || t == AN_U8;
}

/* Numbers in a row: the product of all axes but the first. */
static int64_t row_length(const an_npy *a)
{
    return a->dim[0] > 0 ? an_npy_elements(a) / a->dim[0] : 0;
}

/* ---- the built-in points: arm k is a spiral of one turn, with noise */

static void spiral_point(int64_t i, float *x, int32_t *y)
{
    const uint32_t key = an_rng_key(1, 0), stream = an_rng_stream(an_hash("spirals", 7, 0), 0);
    const int64_t arm = i % SPIRAL_ARMS;
    const double radius = 0.05 + 0.95 * (double)(i / SPIRAL_ARMS) / (SPIRAL_ROWS / SPIRAL_ARMS);
    const double noise = 0.03 * (double)an_rng_normal(key, stream, (uint64_t)i);
    double turns = (double)arm / SPIRAL_ARMS + radius + noise; /* of a circle */
    turns -= floor(turns);
    x[0] = (float)(radius * an_cospi(2 * turns > 1 ? 2 * turns - 2 : 2 * turns));
    x[1] = (float)(radius * an_cospi(2 * turns > 1.5 ? 2 * turns - 2.5 : 2 * turns - 0.5));
    y[0] = (int32_t)arm;
}

static an_status make_spirals(an_err *err, an_table *t)
{
    const size_t x_bytes = SPIRAL_ROWS * 2 * sizeof(float), y_bytes = SPIRAL_ROWS * sizeof(int32_t);
    t->bytes = x_bytes + y_bytes;
    t->built_in = malloc(t->bytes);
    if (!t->built_in) return an_fail_nomem(err, "spirals", t->bytes);
    float *x = t->built_in;                                          /* [SPIRAL_ROWS,2] */
    int32_t *y = (int32_t *)(void *)((char *)t->built_in + x_bytes); /* [SPIRAL_ROWS] */
    for (int64_t i = 0; i < SPIRAL_ROWS; i++) spiral_point(i, x + 2 * i, y + i);
    pair *p = &t->file[0];
    p->x = (an_npy){.dtype = AN_F32, .rank = 2, .dim = {SPIRAL_ROWS, 2}, .data = x, .bytes = x_bytes};
    p->y = (an_npy){.dtype = AN_I32, .rank = 1, .dim = {SPIRAL_ROWS}, .data = y, .bytes = y_bytes};
    snprintf(p->x_path, sizeof p->x_path, "spirals");
    snprintf(p->y_path, sizeof p->y_path, "spirals");
    t->split_tenths = true;
    return AN_OK;
}

/* ---- files */

static bool is_there(const char *folder, const char *name)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static an_status open_pair(an_err *err, const char *folder, const char *prefix, pair *p)
{
    int n = snprintf(p->x_path, sizeof p->x_path, "%s/%sx.npy", folder, prefix);
    if (n >= (int)sizeof p->x_path) return an_fail(err, AN_E_USAGE, "data=%.100s...: the path is too long", folder);
    snprintf(p->y_path, sizeof p->y_path, "%s/%sy.npy", folder, prefix);
    AN_TRY(an_npy_open(err, p->x_path, &p->x));
    AN_TRY(an_npy_open(err, p->y_path, &p->y));
    if (p->x.rank < 1 || p->y.rank < 1 || p->x.dim[0] != p->y.dim[0])
        return an_fail(err, AN_E_DATA, "%s has %lld rows, %s %lld: a label is needed for each row", p->x_path,
                       p->x.rank ? (long long)p->x.dim[0] : 0, p->y_path, p->y.rank ? (long long)p->y.dim[0] : 0);
    if (p->x.dim[0] < 1 || row_length(&p->x) < 1)
        return an_fail(err, AN_E_DATA, "%s: there are no numbers in it", p->x_path);
    if (is_whole(p->y.dtype) ? p->y.rank != 1 : p->y.rank > 2 || row_length(&p->y) < 1)
        return an_fail(err, AN_E_DATA, "%s: labels are whole numbers [N], or floats [N] or [N,K]", p->y_path);
    return AN_OK;
}

static an_status open_folder(an_err *err, const char *folder, bool whole, an_table *t)
{
    if (is_there(folder, "train_x.npy") && !whole) {
        AN_TRY(open_pair(err, folder, "train_", &t->file[AN_TRAIN]));
        return open_pair(err, folder, "val_", &t->file[AN_VAL]);
    }
    const bool val = whole && !is_there(folder, "x.npy") && is_there(folder, "val_x.npy");
    if (!val && !is_there(folder, "x.npy"))
        return an_fail(err, AN_E_IO,
                       "data=%s: no folder with x.npy and y.npy, or with train_x.npy, train_y.npy, val_x.npy and "
                       "val_y.npy; spirals is built in",
                       folder);
    t->split_tenths = !whole;
    return open_pair(err, folder, val ? "val_" : "", &t->file[0]);
}

enum { CLASSES_MOST = 1000000 };

/* The largest class of a pair; AN_E_DATA for one that is none. Validation may lack some. */
static an_status find_classes(an_err *err, const pair *p, bool all, int64_t *most)
{
    int64_t largest = -1, row = 0;
    uint8_t *seen = calloc(CLASSES_MOST + 1, 1);
    an_status status = seen ? AN_OK : an_fail_nomem(err, p->y_path, CLASSES_MOST + 1);
    for (int64_t i = 0; status == AN_OK && i < p->y.dim[0]; i++) {
        const double y = an_npy_number(&p->y, i);
        if (y < 0 || y > CLASSES_MOST) {
            status = an_fail(err, AN_E_DATA, "%s: the label of row %lld is %.0f; classes are 0 to %d", p->y_path,
                             (long long)i, y, CLASSES_MOST);
            continue;
        }
        seen[(int64_t)y] = 1;
        if ((int64_t)y > largest) largest = (int64_t)y, row = i;
    }
    if (status == AN_OK && all) status = an_class_numbers_check(err, p->y_path, seen, largest, row);
    *most = AN_MAX(*most, largest);
    free(seen);
    return status;
}

/* What both splits must agree on. */
static an_status settle(an_err *err, an_table *t)
{
    const int files = t->file[1].x.data ? 2 : 1;
    int64_t most = 0;
    t->features = row_length(&t->file[0].x);
    t->classes = is_whole(t->file[0].y.dtype);
    for (int i = 0; i < files; i++) {
        const pair *p = &t->file[i];
        if (row_length(&p->x) != t->features || is_whole(p->y.dtype) != t->classes ||
            (!t->classes && row_length(&p->y) != row_length(&t->file[0].y)))
            return an_fail(err, AN_E_DATA, "%s: its rows are unlike those of %s", p->x_path, t->file[0].x_path);
        if (t->classes) AN_TRY(find_classes(err, p, i == 0 && !t->whole, &most));
    }
    t->outputs = t->classes ? most + 1 : row_length(&t->file[0].y);
    return AN_OK;
}

an_status an_table_open(an_err *err, const char *source, bool whole, an_table **out)
{
    *out = NULL;
    an_table *t = calloc(1, sizeof *t);
    if (!t) return an_fail_nomem(err, source, sizeof *t);
    t->whole = whole;
    an_status status = strcmp(source, "spirals") == 0 ? make_spirals(err, t) : open_folder(err, source, whole, t);
    if (whole) t->split_tenths = false;
    if (status == AN_OK) status = settle(err, t);
    if (status == AN_OK)
        *out = t;
    else
        an_table_close(t);
    return status;
}

void an_table_close(an_table *t)
{
    if (!t) return;
    for (int i = 0; i < AN_N_SPLITS && !t->built_in; i++) {
        an_npy_close(&t->file[i].x);
        an_npy_close(&t->file[i].y);
    }
    free(t->built_in);
    free(t);
}

/* ---- rows */

int64_t an_table_rows(const an_table *t, int split)
{
    const int64_t n = t->file[0].x.dim[0], val = n / 10;
    if (t->whole) return split == AN_VAL ? n : 0;
    if (t->split_tenths) return split == AN_VAL ? val : n - val;
    return t->file[split].x.dim[0];
}

int64_t an_table_features(const an_table *t)
{
    return t->features;
}
int64_t an_table_outputs(const an_table *t)
{
    return t->outputs;
}
bool an_table_has_classes(const an_table *t)
{
    return t->classes;
}
size_t an_table_bytes(const an_table *t)
{
    return t->bytes;
}

/* The file and the row in it. Of one pair rows 9, 19, 29, ... are for validation. */
static const pair *find_row(const an_table *t, int split, int64_t *row)
{
    if (t->whole) return &t->file[0];
    if (!t->split_tenths) return &t->file[split];
    *row = split == AN_VAL                         ? 10 * *row + 9
           : *row < 9 * (t->file[0].x.dim[0] / 10) ? *row + *row / 9
                                                   : *row + t->file[0].x.dim[0] / 10;
    return &t->file[0];
}

an_status an_table_read(an_err *err, const an_table *t, int split, int64_t row, int64_t classes, float *x, void *y)
{
    int64_t at = row;
    const pair *p = find_row(t, split, &at);
    for (int64_t i = 0; i < t->features; i++) x[i] = (float)an_npy_number(&p->x, at * t->features + i);
    if (!t->classes) {
        float *values = y;
        for (int64_t i = 0; i < t->outputs; i++) values[i] = (float)an_npy_number(&p->y, at * t->outputs + i);
        return AN_OK;
    }
    const int32_t label = (int32_t)an_npy_number(&p->y, at);
    memcpy(y, &label, sizeof label);
    if (label >= 0 && label < classes) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s: the label of row %lld is %d, the model knows %lld classes", p->y_path,
                   (long long)at, (int)label, (long long)classes);
}

void an_table_place(const an_table *t, int split, int64_t row, bool labels, an_text *out)
{
    const pair *p = find_row(t, split, &row);
    an_text_printf(out, "%s: row %lld", labels ? p->y_path : p->x_path, (long long)row);
}

bool an_table_is_labelled(const an_table *t, int split)
{
    const int64_t n = an_table_rows(t, split);
    for (int64_t i = 0; !t->classes && i < n; i++) {
        int64_t at = i;
        const pair *p = find_row(t, split, &at);
        for (int64_t k = 0; k < t->outputs; k++)
            if (!isnan(an_npy_number(&p->y, at * t->outputs + k))) return true;
    }
    return t->classes;
}

int64_t an_table_draw(const an_table *t, int split, uint64_t seed, uint64_t step, uint64_t s, int64_t per_step)
{
    return an_draw_row(an_table_rows(t, split), split, seed, step, s, per_step);
}

/* XXH3-128 over all rows of the split as float32, each with its label. */
void an_table_hash(const an_table *t, int split, char out[AN_HASH_TEXT_BYTES])
{
    an_hasher h = an_hasher_begin();
    const size_t y_bytes = (t->classes ? 1 : (size_t)t->outputs) * 4, x_bytes = (size_t)t->features * sizeof(float);
    char *row = malloc(x_bytes + y_bytes);
    bool ok = row != NULL;
    for (int64_t i = 0; ok && i < an_table_rows(t, split); i++)
        ok = an_table_read(NULL, t, split, i, t->outputs, (float *)(void *)row, row + x_bytes) == AN_OK &&
             an_hasher_add(&h, row, x_bytes + y_bytes);
    an_hasher_end_text(&h, ok, out);
    free(row);
}
