/* table.c: the task `arrays`: predicts a class or values from a row of numbers (io/data/table.h).
 *
 * A sample is a row, and so is a unit. The model has two inputs: f32 [B,features] and the labels, i32 [B] of classes
 * or f32 [B,outputs]. Its settings have `features` and `outputs`, which the data settle where they are 0. */
#include "train/tasks/table.h"
#include "io/data/table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const an_config keys = {.fields = NULL, .n = 0};

typedef struct array_data {
    an_task_data head;
    an_table *table; /* NULL: opened without data */
    int64_t features, outputs;
    bool classes; /* the model's labels are classes */
} array_data;

enum { NO_LABEL = -1 }; /* of rows that count nothing */

static const array_data *arrays(const an_task_data *d)
{
    return (const array_data *)d;
}

/* ---- opening */

static an_status check_table(an_err *err, const an_train_config *c, const array_data *d)
{
    const an_table *t = d->table;
    if (an_table_has_classes(t) != d->classes)
        return an_fail(err, AN_E_DATA, "data=%s: its labels are %s, the model wants %s; see the setting loss", c->data,
                       d->classes ? "values" : "classes", d->classes ? "classes" : "values");
    if (an_table_features(t) != d->features)
        return an_fail(err, AN_E_DATA, "data=%s: rows of %lld numbers, the model wants %lld", c->data,
                       (long long)an_table_features(t), (long long)d->features);
    if (d->classes ? an_table_outputs(t) > d->outputs : an_table_outputs(t) != d->outputs)
        return an_fail(err, AN_E_DATA, "data=%s: %lld %s, the model knows %lld", c->data,
                       (long long)an_table_outputs(t), d->classes ? "classes" : "values a row", (long long)d->outputs);
    return AN_OK;
}

static void close_arrays(an_task_data *d)
{
    array_data *a = (array_data *)d;
    an_table_close(a->table);
}

static an_status open_table(an_err *err, an_train_config *c, bool whole, array_data *d)
{
    AN_TRY(an_table_open(err, c->data, whole, &d->table));
    d->head.loaded = true;
    d->head.built_in = strcmp(c->data, "spirals") == 0;
    d->head.bytes = an_table_bytes(d->table);
    for (int split = 0; split < AN_N_SPLITS; split++) {
        d->head.units[split] = an_table_rows(d->table, split);
        if (d->head.units[split] > 0 && !an_table_is_labelled(d->table, split))
            return an_fail(err, AN_E_DATA, "data=%s: no row of the %s split has a label: each is nan", c->data,
                           split == AN_TRAIN ? "training" : "validation");
    }
    return AN_OK;
}

static an_status open_parts(an_err *err, an_train_config *c, int flags, array_data *d)
{
    an_array in[AN_MAX_ARRAYS];
    if (flags & AN_OPEN_DATA) AN_TRY(open_table(err, c, flags & AN_OPEN_WHOLE_FILE, d));
    AN_TRY(an_task_settle(err, c, "features", d->table ? an_table_features(d->table) : 0));
    AN_TRY(an_task_settle(err, c, "outputs", d->table ? an_table_outputs(d->table) : 0));
    d->features = *an_train_number(c, "features");
    d->outputs = *an_train_number(c, "outputs");
    c->model->inputs(an_model_settings(c), 1, in);
    d->classes = in[1].dtype == AN_I32;
    return d->table ? check_table(err, c, d) : AN_OK;
}

static an_status open_arrays(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *data)
{
    (void)from;
    if (!an_train_number(c, "features") || !an_train_number(c, "outputs"))
        return an_fail(err, AN_E_USAGE, "task=arrays: the model %s reads no rows of numbers", c->model->name);
    return open_parts(err, c, flags, (array_data *)data);
}

/* As of the built-in data. */
static const an_task_size sizes[] = {{"features", 2}, {"outputs", 3}, {NULL, 0}};

/* ---- batches and evaluation samples */

static an_status count(an_err *err, const an_task_data *d, int split, int64_t *out)
{
    *out = d->units[split];
    if (*out > 0) return AN_OK;
    return an_fail(err, AN_E_DATA, "the %s split has no rows: ten are needed, or files of its own",
                   split == AN_TRAIN ? "training" : "validation");
}

/* Row `row` of the data as sample i of the arrays. */
static an_status read_row(an_err *err, const array_data *d, int split, int64_t row, int64_t i, void *const *array)
{
    float *x = (float *)array[0] + i * d->features;
    void *y = (char *)array[1] + i * (d->classes ? 1 : d->outputs) * 4; /* int32_t or float */
    return an_table_read(err, d->table, split, row, d->outputs, x, y);
}

static an_status batch(an_err *err, const an_task_data *d, const an_sample_range *draw, uint64_t step,
                       void *const *array)
{
    const array_data *a = arrays(d);
    for (int64_t i = 0; i < draw->samples; i++) {
        const uint64_t s = (uint64_t)(draw->first + i);
        const int64_t row = an_table_draw(a->table, draw->split, draw->seed, step, s, draw->per_step);
        AN_TRY(read_row(err, a, draw->split, row, i, array));
    }
    return AN_OK;
}

static an_status read_rows(an_err *err, const an_task_data *d, int split, int64_t first, int64_t n, int64_t room,
                           void *const *array)
{
    const array_data *a = arrays(d);
    for (int64_t i = 0; i < n; i++) AN_TRY(read_row(err, a, split, first + i, i, array));
    float *x = array[0]; /* [room,features] */
    float *values = array[1];
    int32_t *classes = array[1]; /* [room], or [room,outputs] of values */
    for (int64_t i = n * a->features; i < room * a->features; i++) x[i] = 0;
    for (int64_t i = n; a->classes && i < room; i++) classes[i] = NO_LABEL;
    for (int64_t i = n * a->outputs; !a->classes && i < room * a->outputs; i++) values[i] = NAN;
    return AN_OK;
}

static void locate(const an_task_data *d, int split, int64_t row, int array, an_text *out)
{
    an_table_place(arrays(d)->table, split, row, array > 0, out);
}

static void hash(const an_task_data *d, int split, char out[AN_HASH_TEXT_BYTES])
{
    an_table_hash(arrays(d)->table, split, out);
}

const an_task an_table_task = {.name = "arrays",
                               .unit = "example",
                               .units = "examples",
                               .unit_rate = "examples/s",
                               .sample = "example",
                               .built_in = "the built-in spirals (data=FOLDER of x.npy and y.npy for your own)",
                               .next = "ask it with\n    anneal predict",
                               .next_argument = " FILE.npy",
                               .keys = &keys,
                               .data_bytes = sizeof(array_data),
                               .open = open_arrays,
                               .close = close_arrays,
                               .sizes = sizes,
                               .hash = hash,
                               .batch = batch,
                               .count = count,
                               .read = read_rows,
                               .locate = locate};
