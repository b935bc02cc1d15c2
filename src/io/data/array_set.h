/* array_set.h: samples in named arrays, one for each that the model reads; the first axis counts samples.
 *
 * Owns:      opening the files that a model's arrays ask for, their checks, copying samples in the model's dtypes.
 * Does not:  know models or draw batches.
 *
 * A source is a folder with NAME.npy for each array (every tenth sample is for validation), or with train_NAME.npy and
 * val_NAME.npy; or a file of several arrays (io/data/array_file.h: .npz, .safetensors, .csv), with NAME in it or
 * train_NAME and val_NAME; or a folder with train and val of such files. Where the names differ,
 * feed="input:file,labels:other" says where each array is: a file's name, an array's, or columns a+b of a .csv; without
 * it, the only input of a model is all columns but those of the labels. Files stay mapped.
 *
 * Invariant: in an open set all arrays have the same number of samples, in the shapes and dtypes of the model. */
#ifndef AN_IO_DATA_ARRAY_SET_H
#define AN_IO_DATA_ARRAY_SET_H

#include "base/text.h"
#include "io/data/arrays.h"
#include "io/hash128.h"

typedef struct an_array_set an_array_set;

/* `a`: the arrays of one sample. `whole`: all samples are the validation split. */
an_status an_array_set_open(an_err *err, const char *folder, const char *feed, const an_array *a, int n, bool whole,
                            an_array_set **out);
/* Whether a source has anything that an array could be read from by these rules. */
bool an_array_set_is(const char *source, const char *feed, const an_array *a, int n);
void an_array_set_close(an_array_set *s); /* NULL is fine */
int64_t an_array_set_samples(const an_array_set *s, int split);
/* Sample `row` of a split to place `at` of each array. A whole number beside [0, limit) of a limited array is AN_E_DATA,
 * save `ignore`. */
an_status an_array_set_read(an_err *err, const an_array_set *s, int split, int64_t row, int64_t ignore, int64_t at,
                            void *const *array);
/* Appends the file and the row in it of array `i` of a split's sample. */
void an_array_set_place(const an_array_set *s, int split, int64_t row, int i, an_text *out);
/* Whether the last array, the labels, has one in the split: of whole numbers one that is neither negative nor `ignore`, of floats one
 * that is not NaN. A split without samples has. */
bool an_array_set_is_labelled(const an_array_set *s, int split, int64_t ignore);
void an_array_set_hash(const an_array_set *s, int split, char out[AN_HASH_TEXT_BYTES]);

#endif
