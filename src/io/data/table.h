/* table.h: data sets of labelled rows of numbers, from .npy files or built in.
 *
 * Owns:      a training and a validation split of rows and labels; reading row i as the numbers a model wants.
 * Does not:  know models.
 *
 * To add a dataset format: one more case in an_table_open that fills rows and labels (other tasks: train/task.h).
 * A source is
 *     a folder with x.npy and y.npy               every tenth row is for validation
 *     a folder with train_x, train_y, val_x, val_y (.npy)
 *     "spirals"                                   3000 points of the plane on three arms, made here
 * The first axis of x and y counts rows; the other axes of x are flattened. y is whole numbers [N] (classes from 0 on)
 * or floats [N] or [N,K]. Rows are converted as they are read; files stay mapped.
 *
 * Invariant: which rows a batch holds is a pure function of (split, seed, step, sample).
 */
#ifndef AN_IO_DATA_TABLE_H
#define AN_IO_DATA_TABLE_H

#include "base/text.h"
#include "io/data/arrays.h"
#include "io/hash128.h"

typedef struct an_table an_table;

/* `whole`: all rows are the validation split. */
an_status an_table_open(an_err *err, const char *source, bool whole, an_table **out);
void an_table_close(an_table *t);

int64_t an_table_rows(const an_table *t, int split);
int64_t an_table_features(const an_table *t); /* numbers in a row of x */
int64_t an_table_outputs(const an_table *t);  /* classes, or numbers in a row of y */
bool an_table_has_classes(const an_table *t);
size_t an_table_bytes(const an_table *t); /* host memory held */

/* Row `row` of a split: f32 x[features]; a class into y[0], or f32 y[outputs]. A class outside [0, classes) is
 * AN_E_DATA. */
an_status an_table_read(an_err *err, const an_table *t, int split, int64_t row, int64_t classes, float *x, void *y);

/* The row that sample `s` of a step gets: drawn alone, or with per_step > 0 in epochs, each row once. */
int64_t an_table_draw(const an_table *t, int split, uint64_t seed, uint64_t step, uint64_t s, int64_t per_step);

/* Appends the file and the row in it of x, or with `labels` of y, of a split's row. */
void an_table_place(const an_table *t, int split, int64_t row, bool labels, an_text *out);
/* Whether a row of the split has a label: classes always, values unless all are NaN. */
bool an_table_is_labelled(const an_table *t, int split);

void an_table_hash(const an_table *t, int split, char out[AN_HASH_TEXT_BYTES]);

#endif
